/*
 * The matcher. A good call allocates nothing and reads no text; only the words for a bad one do.
 *
 * An expression is solved for its one unknown name. Where several are unknown yet ("h*2*r" before r is met) the tensor
 * passes for now, and is looked at again when all others have been matched.
 */
#include "core/schema/match.h"

#include "core/support.h"

#include <string.h>

enum { NONE = FL_RULES_NONE };

typedef enum outcome { MISMATCH, MATCH, OPEN } outcome;

/* ------------------------------------------------------------------------------------------------------ expressions */

static bool is_known(uint32_t known, unsigned bit) {
  return known & UINT32_C(1) << bit;
}

static bool divide(int64_t a, int64_t b, int64_t *quotient) {
  if (!b || (a == INT64_MIN && b == -1) || a % b)
    return false;
  *quotient = a / b;
  return true;
}

/* Rounded down. */
static bool floor_divide(int64_t a, int64_t b, int64_t *quotient) {
  if (!b || (a == INT64_MIN && b == -1))
    return false;
  *quotient = a / b - (a % b && (a < 0) != (b < 0));
  return true;
}

/* a `operation` b, if it is an integer of 64 bits. */
static bool compute(fl_operation operation, int64_t a, int64_t b, int64_t *value) {
  switch (operation) {
  case FL_ADD:
    return !__builtin_add_overflow(a, b, value);
  case FL_SUBTRACT:
    return !__builtin_sub_overflow(a, b, value);
  case FL_MULTIPLY:
    return !__builtin_mul_overflow(a, b, value);
  case FL_DIVIDE:
    return divide(a, b, value);
  case FL_FLOOR_DIVIDE:
    return floor_divide(a, b, value);
  case FL_MINIMUM:
    *value = a < b ? a : b;
    return true;
  case FL_MAXIMUM:
    *value = a > b ? a : b;
    return true;
  case FL_LESS:
    *value = a < b;
    return true;
  case FL_LESS_EQUAL:
    *value = a <= b;
    return true;
  case FL_EQUAL:
    *value = a == b;
    return true;
  case FL_NOT_EQUAL:
    *value = a != b;
    return true;
  case FL_GREATER_EQUAL:
    *value = a >= b;
    return true;
  case FL_GREATER:
    *value = a > b;
    return true;
  case FL_AND:
    *value = a && b;
    return true;
  default:
    return false;
  }
}

static outcome count_leading(const fl_bindings *bindings, int64_t *value) {
  if (!bindings->leading_known)
    return OPEN;
  *value = 1;
  for (int32_t i = 0; i < bindings->n_leading; i++)
    if (__builtin_mul_overflow(*value, bindings->leading[i], value))
      return MISMATCH;
  return MATCH;
}

/* What an argument alone says. */
static outcome evaluate_argument(const fl_rule_node *node, const fl_value *values, int64_t *value) {
  const fl_value *argument = values ? &values[node->left] : NULL;
  if (!argument)
    return OPEN;
  if (node->operation == FL_GIVEN)
    *value = argument->type != FL_NONE;
  else if (node->operation == FL_FLAG && argument->type == FL_BOOL)
    *value = argument->v.b;
  else if (node->operation == FL_ELEMENT && argument->type == FL_INT_LIST && node->number < argument->length)
    *value = argument->v.ints[node->number];
  else
    return OPEN;
  return MATCH;
}

/* MATCH: *value is the node's. OPEN: a name is not known. MISMATCH: it has no value, like 3/2. */
static outcome evaluate(const fl_rules *rules, const fl_bindings *bindings, unsigned index, int64_t *value) {
  const fl_rule_node *node = &rules->nodes[index];
  int64_t a = 0, b = 0;
  if (node->operation == FL_NUMBER) {
    *value = node->number;
    return MATCH;
  }
  if (node->operation == FL_NAME) {
    if (!is_known(bindings->names_known, node->left))
      return OPEN;
    *value = bindings->names[node->left];
    return MATCH;
  }
  if (node->operation == FL_RANKS) {
    *value = bindings->ranks;
    return MATCH;
  }
  if (node->operation < FL_ADD)
    return node->operation == FL_LEADING ? count_leading(bindings, value)
                                         : evaluate_argument(node, bindings->values, value);
  outcome left = evaluate(rules, bindings, node->left, &a), right = evaluate(rules, bindings, node->right, &b);
  if (left != MATCH || right != MATCH)
    return left == MISMATCH || right == MISMATCH ? MISMATCH : OPEN;
  return compute(node->operation, a, b, value) ? MATCH : MISMATCH;
}

bool fl_match_evaluate(const fl_rules *rules, const fl_bindings *bindings, unsigned node, int64_t *value) {
  return evaluate(rules, bindings, node, value) == MATCH;
}

/* The left operand from the result and the right one: x + b = size, x - b = size… */
static outcome solve_left(fl_operation operation, int64_t b, int64_t size, int64_t *x) {
  static const uint8_t inverse[] = {
      [FL_ADD] = FL_SUBTRACT, [FL_SUBTRACT] = FL_ADD, [FL_MULTIPLY] = FL_DIVIDE, [FL_DIVIDE] = FL_MULTIPLY};
  if (operation == FL_MULTIPLY && !b)
    return size ? MISMATCH : OPEN;
  if (operation == FL_DIVIDE && !b)
    return MISMATCH;
  return compute(inverse[operation], size, b, x) ? MATCH : MISMATCH;
}

/* The right operand from the result and the left one: a + x = size, a - x = size… */
static outcome solve_right(fl_operation operation, int64_t a, int64_t size, int64_t *x) {
  if (operation == FL_ADD || operation == FL_MULTIPLY)
    return solve_left(operation, a, size, x);
  if (operation == FL_DIVIDE && !size)
    return a ? MISMATCH : OPEN;
  return compute(operation, a, size, x) ? MATCH : MISMATCH;
}

/* Makes the node equal `size`, by binding its one unknown name if it has one. */
static outcome solve(const fl_rules *rules, fl_bindings *bindings, unsigned index, int64_t size, unsigned from) {
  const fl_rule_node *node = &rules->nodes[index];
  if (node->operation == FL_NUMBER)
    return node->number == size ? MATCH : MISMATCH;
  if (node->operation == FL_NAME) {
    if (is_known(bindings->names_known, node->left))
      return bindings->names[node->left] == size ? MATCH : MISMATCH;
    if (size < 0)
      return MISMATCH;
    bindings->names_known |= UINT32_C(1) << node->left;
    bindings->names[node->left] = size;
    bindings->names_from[node->left] = (uint8_t)from;
    return MATCH;
  }
  int64_t a, b, wanted;
  if (node->operation < FL_ADD) {
    outcome found = evaluate(rules, bindings, index, &wanted);
    return found == MATCH && wanted != size ? MISMATCH : found;
  }
  outcome left = evaluate(rules, bindings, node->left, &a), right = evaluate(rules, bindings, node->right, &b), found;
  if (left == MISMATCH || right == MISMATCH)
    return MISMATCH;
  if (left == OPEN && right == OPEN)
    return OPEN;
  if (left == MATCH && right == MATCH)
    return compute(node->operation, a, b, &wanted) && wanted == size ? MATCH : MISMATCH;
  if (node->operation >= FL_FLOOR_DIVIDE)
    return OPEN;
  found = left == OPEN ? solve_left(node->operation, b, size, &wanted) : solve_right(node->operation, a, size, &wanted);
  if (found != MATCH)
    return found;
  return solve(rules, bindings, left == OPEN ? node->left : node->right, wanted, from);
}

/* -------------------------------------------------------------------------------------------------------- arguments */

static bool same_dtype(DLDataType a, DLDataType b) {
  return !memcmp(&a, &b, sizeof a);
}

static bool within_limit(const fl_rule_variable *variable, DLDataType dtype) {
  return !variable->limited || variable->limit & fl_dtype_bit(dtype);
}

static bool match_dtype(const fl_rules *rules, const fl_rule_alternative *alternative, DLDataType dtype,
                        fl_bindings *bindings, unsigned from) {
  unsigned v = alternative->variable;
  if (alternative->dtypes && alternative->dtypes & fl_dtype_bit(dtype))
    return true;
  if (v == NONE)
    return false;
  if (is_known(bindings->variables_known, v))
    return same_dtype(bindings->variables[v], dtype);
  if (!within_limit(&rules->variables[v], dtype))
    return false;
  if (alternative->dtypes) {
    bindings->open = true;
    return true;
  }
  bindings->variables_known |= UINT32_C(1) << v;
  bindings->variables[v] = dtype;
  bindings->variables_from[v] = (uint8_t)from;
  return true;
}

static bool match_leading(const DLTensor *tensor, int32_t n, fl_bindings *bindings, unsigned from) {
  if (bindings->leading_known)
    return n == bindings->n_leading &&
           (!n || !memcmp(tensor->shape, bindings->leading, (size_t)n * sizeof *tensor->shape));
  bindings->leading_known = true;
  bindings->n_leading = n;
  bindings->leading = tensor->shape;
  bindings->leading_from = (uint8_t)from;
  return true;
}

static bool match_shape(const fl_rules *rules, const fl_rule_alternative *alternative, const DLTensor *tensor,
                        fl_bindings *bindings, unsigned from) {
  int32_t n_leading = tensor->ndim - alternative->n_dimensions;
  if (!alternative->shaped)
    return true;
  if (alternative->leading ? n_leading < 0 : n_leading != 0)
    return false;
  if (alternative->leading && !match_leading(tensor, n_leading, bindings, from))
    return false;
  const fl_rule_dimension *dimensions = &rules->dimensions[alternative->first_dimension];
  for (unsigned i = 0; i < alternative->n_dimensions; i++) {
    outcome solved = solve(rules, bindings, dimensions[i].root, tensor->shape[n_leading + (int32_t)i], from);
    if (solved == MISMATCH)
      return false;
    bindings->open |= solved == OPEN;
  }
  return true;
}

static bool match_alternative(const fl_rules *rules, const fl_rule_alternative *alternative, const DLTensor *tensor,
                              fl_bindings *bindings, unsigned from) {
  return match_dtype(rules, alternative, tensor->dtype, bindings, from) &&
         match_shape(rules, alternative, tensor, bindings, from);
}

/* What an alternative that does not match must undo. */
typedef struct marks {
  uint32_t names_known, variables_known;
  bool leading_known, open;
} marks;

static bool match_clause(const fl_rules *rules, const fl_rule_clause *clause, const DLTensor *tensor,
                         fl_bindings *bindings) {
  marks before = {bindings->names_known, bindings->variables_known, bindings->leading_known, bindings->open};
  for (unsigned i = 0; i < clause->n_alternatives; i++) {
    if (match_alternative(rules, &rules->alternatives[clause->first_alternative + i], tensor, bindings,
                          clause->value)) {
      bindings->chosen[clause->value] = (uint8_t)i;
      return true;
    }
    bindings->names_known = before.names_known;
    bindings->variables_known = before.variables_known;
    bindings->leading_known = before.leading_known;
    bindings->open = before.open;
  }
  return false;
}

static void bind_int_arguments(const fl_rules *rules, const fl_value *values, fl_bindings *bindings) {
  for (uint32_t i = 0; i < rules->n_names; i++) {
    uint8_t argument = rules->names[i].argument;
    if (argument == NONE || values[argument].type != FL_INT)
      continue;
    bindings->names_known |= UINT32_C(1) << i;
    bindings->names[i] = values[argument].v.i;
    bindings->names_from[i] = argument;
  }
}

static fl_status argument_error(const fl_schema *schema, const fl_bindings *bindings, const fl_rule_clause *clause,
                                const DLTensor *given);
static fl_status dtype_name_error(const fl_schema *schema, const fl_rule_variable *variable, const char *given);

/* Variables that a str argument names. */
static fl_status bind_named_dtypes(const fl_schema *schema, const fl_value *values, fl_bindings *bindings) {
  const fl_rules *rules = schema->compiled;
  for (uint32_t i = 0; i < rules->n_variables; i++) {
    const fl_rule_variable *variable = &rules->variables[i];
    if (variable->argument == NONE || values[variable->argument].type != FL_STRING)
      continue;
    uint32_t which = fl_rules_named_dtype(variable, values[variable->argument].v.s);
    if (which == FL_DTYPE_COUNT)
      return dtype_name_error(schema, variable, values[variable->argument].v.s);
    bindings->variables_known |= UINT32_C(1) << i;
    bindings->variables[i] = fl_element_types[which].dtype;
    bindings->variables_from[i] = variable->argument;
  }
  return FL_OK;
}

/* Looks again at what was left open, until nothing new is learnt. What is open even then depends on tensors that were
 * not given. */
static fl_status match_open(const fl_schema *schema, const fl_value *values, fl_bindings *bindings) {
  const fl_rules *rules = schema->compiled;
  uint32_t before;
  do {
    before = bindings->names_known;
    bindings->open = false;
    for (uint32_t i = 0; i < rules->n_argument_clauses; i++) {
      const fl_rule_clause *clause = &rules->clauses[i];
      const fl_value *value = &values[clause->value];
      if (value->type != FL_TENSOR)
        continue;
      const fl_rule_alternative *chosen =
          &rules->alternatives[clause->first_alternative + bindings->chosen[clause->value]];
      if (!match_alternative(rules, chosen, value->v.tensor, bindings, clause->value))
        return argument_error(schema, bindings, clause, value->v.tensor);
    }
  } while (bindings->open && bindings->names_known != before);
  return FL_OK;
}

fl_status fl_match_arguments(const fl_schema *schema, const fl_value *values, fl_bindings *bindings) {
  const fl_rules *rules = schema->compiled;
  bindings->values = values;
  bindings->names_known = bindings->variables_known = 0;
  bindings->leading_known = bindings->open = false;
  bind_int_arguments(rules, values, bindings);
  fl_status status = bind_named_dtypes(schema, values, bindings);
  for (uint32_t i = 0; i < rules->n_argument_clauses && !status; i++) {
    const fl_rule_clause *clause = &rules->clauses[i];
    const fl_value *value = &values[clause->value];
    if (value->type == FL_TENSOR && !match_clause(rules, clause, value->v.tensor, bindings))
      return argument_error(schema, bindings, clause, value->v.tensor);
  }
  if (status)
    return status;
  return bindings->open ? match_open(schema, values, bindings) : FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- results */

/* Those of an argument, if it is given. */
static bool fill_like(const fl_value *argument, fl_tensor_spec *spec) {
  if (argument->type != FL_TENSOR)
    return false;
  const DLTensor *tensor = argument->v.tensor;
  spec->ndim = tensor->ndim;
  spec->dtype = tensor->dtype;
  for (int32_t i = 0; i < tensor->ndim; i++)
    spec->shape[i] = tensor->shape[i];
  return true;
}

/* Shape and dtype by an alternative; false if its condition does not hold, or something in it is not known or has no
 * value. */
static bool fill_spec(const fl_rules *rules, const fl_bindings *bindings, const fl_rule_alternative *alternative,
                      fl_tensor_spec *spec) {
  int32_t n = 0;
  int64_t holds = 1;
  if (alternative->condition != FL_RULES_NO_NODE &&
      (evaluate(rules, bindings, alternative->condition, &holds) != MATCH || !holds))
    return false;
  if (alternative->like != NONE)
    return fill_like(&bindings->values[alternative->like], spec);
  if (alternative->variable == NONE)
    spec->dtype = fl_element_types[__builtin_ctz(alternative->dtypes)].dtype;
  else if (is_known(bindings->variables_known, alternative->variable))
    spec->dtype = bindings->variables[alternative->variable];
  else
    return false;
  if (alternative->leading) {
    if (!bindings->leading_known || bindings->n_leading + alternative->n_dimensions > FL_MAX_DIMS)
      return false;
    for (; n < bindings->n_leading; n++)
      spec->shape[n] = bindings->leading[n];
  }
  for (unsigned i = 0; i < alternative->n_dimensions; i++, n++) {
    unsigned root = rules->dimensions[alternative->first_dimension + i].root;
    if (evaluate(rules, bindings, root, &spec->shape[n]) != MATCH || spec->shape[n] < 0)
      return false;
  }
  spec->ndim = n;
  return true;
}

/* The alternative by which a result's spec follows from the arguments, NULL if there is none. */
static const fl_rule_alternative *result_alternative(const fl_rules *rules, const fl_bindings *bindings,
                                                     uint32_t result, fl_tensor_spec *spec) {
  const fl_rule_clause *clause = &rules->clauses[rules->result_clause[result]];
  for (unsigned i = 0; i < clause->n_alternatives; i++) {
    const fl_rule_alternative *alternative = &rules->alternatives[clause->first_alternative + i];
    if (fill_spec(rules, bindings, alternative, spec))
      return alternative;
  }
  return NULL;
}

/* Names under a node that are not known, as "'k', 'd'". */
static void add_unknown(const fl_rules *rules, const fl_bindings *bindings, unsigned index, fl_text *text) {
  const fl_rule_node *node = &rules->nodes[index];
  if (node->operation >= FL_ADD) {
    add_unknown(rules, bindings, node->left, text);
    add_unknown(rules, bindings, node->right, text);
  } else if (node->operation == FL_NAME && !is_known(bindings->names_known, node->left)) {
    const fl_rule_source *name = &rules->names[node->left].source;
    fl_text_add(text, "%s'%.*s'", text->length ? ", " : "", (int)name->length, name->text);
  }
}

static fl_status cannot_infer(const fl_schema *schema, const fl_bindings *bindings, uint32_t result) {
  const fl_rules *rules = schema->compiled;
  const fl_rule_clause *clause = &rules->clauses[rules->result_clause[result]];
  const fl_rule_alternative *alternative = &rules->alternatives[clause->first_alternative];
  fl_text unknown = {0};
  for (unsigned i = 0; i < alternative->n_dimensions; i++)
    add_unknown(rules, bindings, rules->dimensions[alternative->first_dimension + i].root, &unknown);
  const char *name = schema->values[clause->value].name;
  int length = (int)alternative->source.length;
  fl_status status =
      unknown.length ? fl_error(FL_EINVAL, "%s: result '%s' is %.*s, and the arguments that are given do not say %s",
                                schema->op_name, name, length, alternative->source.text, fl_text_get(&unknown))
                     : fl_error(FL_EINVAL, "%s: result '%s' is %.*s, which these arguments make impossible",
                                schema->op_name, name, length, alternative->source.text);
  fl_text_free(&unknown);
  return status;
}

fl_status fl_match_result(const fl_schema *schema, const fl_value *values, const fl_bindings *bindings, uint32_t result,
                          fl_tensor_spec *spec) {
  const fl_rules *rules = schema->compiled;
  int32_t alias = schema->values[schema->n_arguments + result].alias;
  uint8_t like = rules->result_like[result];
  if (alias >= 0 && values[alias].type == FL_NONE) {
    spec->present = false;
    return FL_OK;
  }
  if (rules->result_clause[result] != NONE) {
    spec->present = result_alternative(rules, bindings, result, spec);
    bool may_be_none = schema->values[schema->n_arguments + result].optional;
    return spec->present || may_be_none ? FL_OK : cannot_infer(schema, bindings, result);
  }
  if (like == NONE)
    return FL_OK;
  spec->present = fill_like(&values[like], spec);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- errors */

void fl_text_add_shape(fl_text *text, const int64_t *shape, int32_t ndim) {
  fl_text_add(text, "[");
  for (int32_t i = 0; i < ndim; i++)
    fl_text_add(text, "%s%lld", i ? ", " : "", (long long)shape[i]);
  fl_text_add(text, "]");
}

/* Types that are none of flhost's have names, too: what everybody calls them. */
static const char *const dtype_words[] = {
    [kDLInt] = "int", [kDLUInt] = "uint", [kDLFloat] = "float", [kDLComplex] = "complex"};

void fl_text_add_dtype(fl_text *text, DLDataType dtype) {
  const char *word = dtype.code < sizeof dtype_words / sizeof *dtype_words ? dtype_words[dtype.code] : NULL;
  if (fl_element_type_of(dtype))
    fl_text_add(text, "%s", fl_dtype_name(dtype));
  else if (word && dtype.lanes == 1)
    fl_text_add(text, "%s%u", word, (unsigned)dtype.bits);
  else
    fl_text_add(text, "of type code %u, %u bits, %u lanes", (unsigned)dtype.code, (unsigned)dtype.bits,
                (unsigned)dtype.lanes);
}

/* "8" if it is known, else the expression. */
static void add_dimension(const fl_rules *rules, const fl_bindings *bindings, const fl_rule_dimension *dimension,
                          fl_text *text) {
  int64_t value;
  if (evaluate(rules, bindings, dimension->root, &value) == MATCH)
    fl_text_add(text, "%lld", (long long)value);
  else
    fl_text_add_bytes(text, dimension->source.text, dimension->source.length);
}

/* "[..., 8]" */
static void add_expected_shape(const fl_rules *rules, const fl_bindings *bindings,
                               const fl_rule_alternative *alternative, fl_text *text) {
  const char *comma = "";
  fl_text_add(text, "[");
  if (alternative->leading && !bindings->leading_known) {
    fl_text_add(text, "...");
    comma = ", ";
  }
  for (int32_t i = 0; alternative->leading && bindings->leading_known && i < bindings->n_leading; i++, comma = ", ")
    fl_text_add(text, "%s%lld", comma, (long long)bindings->leading[i]);
  for (unsigned i = 0; i < alternative->n_dimensions; i++, comma = ", ") {
    fl_text_add(text, "%s", comma);
    add_dimension(rules, bindings, &rules->dimensions[alternative->first_dimension + i], text);
  }
  fl_text_add(text, "]");
}

/* "d = 4 of 'x', r = 16 of 'cos'" for the known names under a node. */
static void add_names(const fl_schema *schema, const fl_bindings *bindings, unsigned index, fl_text *text) {
  const fl_rules *rules = schema->compiled;
  const fl_rule_node *node = &rules->nodes[index];
  if (node->operation >= FL_ADD) {
    add_names(schema, bindings, node->left, text);
    add_names(schema, bindings, node->right, text);
  } else if (node->operation == FL_NAME && is_known(bindings->names_known, node->left)) {
    const fl_rule_source *name = &rules->names[node->left].source;
    fl_text_add(text, ", %.*s = %lld of '%s'", (int)name->length, name->text, (long long)bindings->names[node->left],
                schema->values[bindings->names_from[node->left]].name);
  }
}

/* Why a dimension is what it is: "H of 'x'", "2*d, d = 4 of 'x'"; nothing for a number. */
static void add_dimension_reason(const fl_schema *schema, const fl_bindings *bindings,
                                 const fl_rule_dimension *dimension, fl_text *text) {
  const fl_rule_node *node = &schema->compiled->nodes[dimension->root];
  if (node->operation == FL_NAME && is_known(bindings->names_known, node->left)) {
    const fl_argument *from = &schema->values[bindings->names_from[node->left]];
    if (from->type == FL_TENSOR)
      fl_text_add(text, " (%.*s of '%s')", (int)dimension->source.length, dimension->source.text, from->name);
    else
      fl_text_add(text, " (argument '%s')", from->name);
  } else if (node->operation >= FL_ADD) {
    fl_text names = {0};
    add_names(schema, bindings, dimension->root, &names);
    if (names.length)
      fl_text_add(text, " (%.*s%s)", (int)dimension->source.length, dimension->source.text, fl_text_get(&names));
    fl_text_free(&names);
  }
}

/* Why the given shape is not that of the alternative, where its rank is. */
static void add_shape_reason(const fl_schema *schema, const fl_bindings *bindings,
                             const fl_rule_alternative *alternative, const DLTensor *given, fl_text *text) {
  const fl_rules *rules = schema->compiled;
  int32_t n_leading = given->ndim - alternative->n_dimensions;
  fl_bindings scratch = *bindings;
  if (alternative->leading ? n_leading < 0 : n_leading != 0)
    return;
  if (alternative->leading && !match_leading(given, n_leading, &scratch, 0)) {
    fl_text_add(text, " (the leading dimensions of '%s')", schema->values[bindings->leading_from].name);
    return;
  }
  for (unsigned i = 0; i < alternative->n_dimensions; i++) {
    const fl_rule_dimension *dimension = &rules->dimensions[alternative->first_dimension + i];
    if (solve(rules, &scratch, dimension->root, given->shape[n_leading + (int32_t)i], 0) == MISMATCH) {
      add_dimension_reason(schema, bindings, dimension, text);
      return;
    }
  }
}

/* Adds `word` to a list "a, b or c" of `n`, as its element `i`. */
static void add_choice(fl_text *text, uint32_t i, uint32_t n) {
  if (i)
    fl_text_add(text, i + 1 == n ? " or " : ", ");
}

/* A str argument that names none of the dtypes that it may. */
static fl_status dtype_name_error(const fl_schema *schema, const fl_rule_variable *variable, const char *given) {
  const char *names[FL_DTYPE_COUNT];
  uint32_t n = 0;
  fl_text expected = {0};
  for (unsigned i = 0; i < FL_DTYPE_COUNT; i++)
    if (is_known(variable->limit, i))
      names[n++] = fl_element_types[i].name;
  fl_text_add_choices(&expected, names, n);
  fl_status status = fl_error(FL_EINVAL, "%s: argument '%s': \"%s\", expected %s%s", schema->op_name,
                              schema->values[variable->argument].name, given, fl_text_get(&expected),
                              fl_suggest(fl_nearest_word(given, names, n)).text);
  fl_text_free(&expected);
  return status;
}

/* The dtypes that the clause allows: "float16 (that of 'x') or float32". */
static void add_expected_dtypes(const fl_schema *schema, const fl_bindings *bindings, const fl_rule_clause *clause,
                                fl_text *text) {
  const fl_rules *rules = schema->compiled;
  uint32_t bound = 0, named = 0, written = 0;
  for (unsigned i = 0; i < clause->n_alternatives; i++) {
    const fl_rule_alternative *alternative = &rules->alternatives[clause->first_alternative + i];
    unsigned v = alternative->variable;
    named |= alternative->dtypes;
    if (v != NONE && is_known(bindings->variables_known, v))
      bound |= UINT32_C(1) << v;
    else if (v != NONE)
      named |= rules->variables[v].limit;
  }
  for (unsigned v = 0; v < rules->n_variables; v++)
    if (is_known(bound, v))
      named &= ~fl_dtype_bit(bindings->variables[v]);
  uint32_t n = (uint32_t)(__builtin_popcount(bound) + __builtin_popcount(named));
  for (unsigned v = 0; v < rules->n_variables; v++) {
    if (!is_known(bound, v))
      continue;
    add_choice(text, written++, n);
    const fl_argument *from = &schema->values[bindings->variables_from[v]];
    fl_text_add_dtype(text, bindings->variables[v]);
    fl_text_add(text, from->type == FL_TENSOR ? " (that of '%s')" : " (argument '%s')", from->name);
  }
  for (unsigned i = 0; i < FL_DTYPE_COUNT; i++) {
    if (!is_known(named, i))
      continue;
    add_choice(text, written++, n);
    fl_text_add(text, "%s", fl_element_types[i].name);
  }
}

/* The shapes of the alternatives that take the dtype. */
static void add_expected_shapes(const fl_schema *schema, const fl_bindings *bindings, const fl_rule_clause *clause,
                                uint64_t candidates, const DLTensor *given, fl_text *text) {
  const fl_rules *rules = schema->compiled;
  uint32_t written = 0, n = (uint32_t)__builtin_popcountll(candidates);
  for (unsigned i = 0; i < clause->n_alternatives; i++) {
    const fl_rule_alternative *alternative = &rules->alternatives[clause->first_alternative + i];
    if (!(candidates & UINT64_C(1) << i))
      continue;
    add_choice(text, written++, n);
    add_expected_shape(rules, bindings, alternative, text);
    add_shape_reason(schema, bindings, alternative, given, text);
  }
}

static fl_status argument_error(const fl_schema *schema, const fl_bindings *bindings, const fl_rule_clause *clause,
                                const DLTensor *given) {
  const fl_rules *rules = schema->compiled;
  uint64_t candidates = 0; /* alternatives that take the dtype */
  fl_text text = {0};
  for (unsigned i = 0; i < clause->n_alternatives; i++) {
    fl_bindings scratch = *bindings;
    if (match_dtype(rules, &rules->alternatives[clause->first_alternative + i], given->dtype, &scratch, 0))
      candidates |= UINT64_C(1) << i;
  }
  fl_text_add(&text, "%s: argument '%s': %s ", schema->op_name, schema->values[clause->value].name,
              candidates ? "shape" : "dtype");
  if (candidates)
    fl_text_add_shape(&text, given->shape, given->ndim);
  else
    fl_text_add_dtype(&text, given->dtype);
  fl_text_add(&text, ", expected ");
  if (candidates)
    add_expected_shapes(schema, bindings, clause, candidates, given, &text);
  else
    add_expected_dtypes(schema, bindings, clause, &text);
  fl_status status = fl_error(FL_EINVAL, "%s", fl_text_get(&text));
  fl_text_free(&text);
  return status;
}

fl_status fl_match_result_error(const fl_schema *schema, const fl_bindings *bindings, uint32_t result,
                                const DLTensor *given, const fl_tensor_spec *spec) {
  const fl_rules *rules = schema->compiled;
  bool dtype_differs = !same_dtype(given->dtype, spec->dtype);
  fl_tensor_spec ignored;
  uint8_t like = rules->result_like[result];
  const fl_rule_alternative *chosen = NULL;
  if (rules->result_clause[result] != NONE)
    chosen = result_alternative(rules, bindings, result, &ignored);
  if (chosen && chosen->like != NONE)
    like = chosen->like;
  fl_text text = {0};
  fl_text_add(&text, "%s: result '%s': %s ", schema->op_name, schema->values[schema->n_arguments + result].name,
              dtype_differs ? "dtype" : "shape");
  if (dtype_differs) {
    fl_text_add_dtype(&text, given->dtype);
    fl_text_add(&text, ", expected ");
    fl_text_add_dtype(&text, spec->dtype);
  } else {
    fl_text_add_shape(&text, given->shape, given->ndim);
    fl_text_add(&text, ", expected ");
    fl_text_add_shape(&text, spec->shape, spec->ndim);
  }
  if (schema->infer) /* the entry's function had the last word */
    ;
  else if (like != NONE)
    fl_text_add(&text, " (that of '%s')", schema->values[like].name);
  else if (!dtype_differs && chosen)
    add_shape_reason(schema, bindings, chosen, given, &text);
  fl_status status = fl_error(FL_EINVAL, "%s", fl_text_get(&text));
  fl_text_free(&text);
  return status;
}
