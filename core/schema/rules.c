/*
 * The compiler of rules: text to arrays of clauses, alternatives, dimensions and expression nodes. It refuses rules
 * that could not decide a call: a name, leading dimensions or a result's dtype that do not follow from the arguments.
 */
#include "core/schema/rules.h"

#include "core/schema/expression.h"

#include <errno.h>
#include <stdlib.h>

enum { NONE = FL_RULES_NONE, MAX_NODES = 512, MAX_ALTERNATIVES = 64 };

typedef struct compiler {
  fl_scanner scan;
  const fl_schema *schema;
  fl_rules *rules;
} compiler;

static fl_status add_node(fl_expression *e, fl_rule_node added, fl_operand *operand) {
  fl_rules *rules = ((const compiler *)e->context)->rules;
  if (rules->n_nodes == MAX_NODES)
    return fl_scan_fail(&e->scan, e->scan.at, "more than %d terms", MAX_NODES);
  if (!fl_array_grow(&rules->nodes, rules->n_nodes, sizeof added))
    return fl_error_no_memory();
  rules->nodes[rules->n_nodes] = added;
  operand->node = (uint16_t)rules->n_nodes++;
  return FL_OK;
}

uint32_t fl_rules_find(const fl_rules *rules, const char *name, size_t length) {
  uint32_t i = 0;
  while (i < rules->n_names &&
         (rules->names[i].source.length != length || memcmp(rules->names[i].source.text, name, length) != 0))
    i++;
  return i;
}

const fl_rule_clause *fl_rules_of_argument(const fl_rules *rules, uint32_t argument) {
  for (uint32_t i = 0; i < rules->n_argument_clauses; i++)
    if (rules->clauses[i].value == argument)
      return &rules->clauses[i];
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ words */

/* "NAME", an argument that `is_good` takes; `expected` says which. */
static fl_status read_argument(fl_expression *e, bool (*is_good)(const fl_argument *), const char *expected,
                               uint16_t *argument) {
  const fl_schema *schema = ((const compiler *)e->context)->schema;
  const char *names[FL_SCHEMA_MAX_VALUES];
  uint32_t n = 0;
  fl_expression_look(e);
  size_t length = fl_scan_word(&e->scan);
  uint32_t found = length ? fl_schema_find(schema, e->scan.at, length) : schema->n_arguments;
  for (uint32_t i = 0; i < schema->n_arguments; i++)
    if (is_good(&schema->values[i]))
      names[n++] = schema->values[i].name;
  if (found >= schema->n_arguments || !is_good(&schema->values[found]))
    return fl_scan_unexpected(&e->scan, expected, names, n);
  e->scan.at += length;
  *argument = (uint16_t)found;
  return FL_OK;
}

static bool may_be_none(const fl_argument *argument) {
  return argument->optional;
}

static fl_status compile_given(fl_expression *e, fl_operand *operand) {
  fl_rule_node added = {.operation = FL_GIVEN};
  fl_status status = read_argument(e, may_be_none, "an argument that may be none", &added.left);
  return status ? status : add_node(e, added, operand);
}

static fl_status compile_leading(fl_expression *e, fl_operand *operand) {
  fl_expression_look(e);
  if (!fl_scan_accept(&e->scan, "..."))
    return fl_scan_unexpected(&e->scan, "'...': the number of elements that the leading dimensions make", NULL, 0);
  return add_node(e, (fl_rule_node){.operation = FL_LEADING}, operand);
}

/* "a, b" */
static fl_status compile_two(fl_expression *e, fl_operation operation, fl_operand *operand) {
  fl_operand right;
  fl_status status = fl_expression_sum(e, operand);
  if (!status)
    status = fl_expression_expect(e, ',');
  if (!status)
    status = fl_expression_sum(e, &right);
  return status
             ? status
             : add_node(e, (fl_rule_node){.operation = operation, .left = operand->node, .right = right.node}, operand);
}

static fl_status compile_minimum(fl_expression *e, fl_operand *operand) {
  return compile_two(e, FL_MINIMUM, operand);
}

static fl_status compile_maximum(fl_expression *e, fl_operand *operand) {
  return compile_two(e, FL_MAXIMUM, operand);
}

static const struct {
  const char *name;
  fl_status (*compile)(fl_expression *e, fl_operand *operand); /* what is in the parentheses */
} functions[] = {
    {"given", compile_given}, {"numel", compile_leading}, {"min", compile_minimum}, {"max", compile_maximum}};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

/* "NAME(", the cursor at the name. */
static fl_status compile_function(fl_expression *e, size_t length, fl_operand *operand) {
  const char *names[N_FUNCTIONS];
  uint32_t i = 0;
  for (uint32_t j = 0; j < N_FUNCTIONS; j++)
    names[j] = functions[j].name;
  while (i < N_FUNCTIONS && (strncmp(names[i], e->scan.at, length) || names[i][length]))
    i++;
  if (i == N_FUNCTIONS)
    return fl_scan_unexpected(&e->scan, "given, numel, min or max before '('", names, N_FUNCTIONS);
  e->scan.at += length;
  fl_status status = fl_expression_expect(e, '(');
  if (!status)
    status = functions[i].compile(e, operand);
  return status ? status : fl_expression_expect(e, ')');
}

static bool is_int_list(const fl_argument *argument) {
  return argument->type == FL_INT_LIST;
}

/* "NAME[number]", the cursor at the name. */
static fl_status compile_element(fl_expression *e, fl_operand *operand) {
  fl_rule_node added = {.operation = FL_ELEMENT};
  fl_status status = read_argument(e, is_int_list, "an int[] argument before '['", &added.left);
  if (!status)
    status = fl_expression_expect(e, '[');
  char *end = NULL;
  if (status)
    return status;
  char first = fl_expression_look(e);
  if (!fl_scan_is_digit(first) || fl_scan_is_octal(e->scan.at))
    return fl_scan_unexpected(&e->scan, "the number of an element, from 0", NULL, 0);
  errno = 0;
  added.number = strtoll(e->scan.at, &end, 10);
  if (errno || fl_scan_is_letter(*end))
    return fl_scan_unexpected(&e->scan, "a number of 64 bits", NULL, 0);
  e->scan.at = end;
  status = fl_expression_expect(e, ']');
  return status ? status : add_node(e, added, operand);
}

/* What stands behind the word at the cursor. */
static char behind_word(const fl_expression *e, size_t length) {
  const char *behind = e->scan.at + length;
  behind += strspn(behind, " \t\r\n");
  if (behind >= e->end)
    return 0;
  return *behind;
}

/* The word at the cursor: a dimension's name, or another thing that has a value in a call. */
static fl_status compile_word(fl_expression *e, fl_operand *operand) {
  compiler *c = (compiler *)e->context;
  fl_rules *rules = c->rules;
  const fl_schema *schema = c->schema;
  size_t length = fl_scan_word(&e->scan);
  const char *text = e->scan.at;
  char behind = behind_word(e, length);
  if (behind == '(')
    return compile_function(e, length, operand);
  if (behind == '[')
    return compile_element(e, operand);
  if (*schema->ranks && length == strlen("ranks") && !memcmp(text, "ranks", length)) {
    e->scan.at += length;
    return add_node(e, (fl_rule_node){.operation = FL_RANKS}, operand);
  }
  uint32_t i = fl_rules_find(rules, text, length), value = fl_schema_find(schema, text, length);
  if (value < schema->n_arguments && schema->values[value].type == FL_BOOL) {
    e->scan.at += length;
    return add_node(e, (fl_rule_node){.operation = FL_FLAG, .left = (uint16_t)value}, operand);
  }
  if (i == FL_RULES_MAX_NAMES)
    return fl_scan_fail(&e->scan, text, "more than %d names", FL_RULES_MAX_NAMES);
  if (i == rules->n_names) {
    bool is_argument = value < schema->n_arguments && schema->values[value].type != FL_TENSOR;
    if (is_argument && schema->values[value].type != FL_INT)
      return fl_scan_fail(&e->scan, text, "argument '%s' is not an int", schema->values[value].name);
    rules->names[rules->n_names++] =
        (fl_rule_name){{text, (uint32_t)length}, is_argument ? (uint8_t)value : (uint8_t)NONE};
  }
  e->scan.at += length;
  return add_node(e, (fl_rule_node){.operation = FL_NAME, .left = (uint16_t)i}, operand);
}

static fl_status compile_number(fl_expression *e, fl_operand *operand) {
  char *end = NULL;
  if (!fl_scan_is_digit(*e->scan.at))
    return fl_scan_unexpected(&e->scan, "a dimension: a number, a name or an expression", NULL, 0);
  errno = 0;
  long long number = strtoll(e->scan.at, &end, 10);
  if (fl_scan_is_octal(e->scan.at))
    return fl_scan_unexpected(&e->scan, "a decimal number without leading zeros", NULL, 0);
  if (errno || fl_scan_is_letter(*end))
    return fl_scan_unexpected(&e->scan, "a number of 64 bits", NULL, 0);
  e->scan.at = end;
  return add_node(e, (fl_rule_node){.operation = FL_NUMBER, .number = number}, operand);
}

static fl_status compile_join(fl_expression *e, const char *sign, fl_operand *left, fl_operand right) {
  fl_operation operation = *sign == '+'                   ? FL_ADD
                           : *sign == '-'                 ? FL_SUBTRACT
                           : *sign == '*'                 ? FL_MULTIPLY
                           : fl_expression_is_floor(sign) ? FL_FLOOR_DIVIDE
                                                          : FL_DIVIDE;
  return add_node(e, (fl_rule_node){.operation = operation, .left = left->node, .right = right.node}, left);
}

/* The source from `begin` to the cursor. */
static fl_rule_source source_from(const compiler *c, const char *begin) {
  return (fl_rule_source){begin, (uint32_t)(c->scan.at - begin)};
}

/* -------------------------------------------------------------------------------------------------------- clauses */

static fl_expression expression_at_cursor(compiler *c) {
  fl_scan_peek(&c->scan);
  return (fl_expression){.scan = c->scan,
                         .end = c->scan.at + strlen(c->scan.at),
                         .word = compile_word,
                         .number = compile_number,
                         .join = compile_join,
                         .context = c};
}

/* "k > 2*d and given(x)", behind `when`. */
static fl_status parse_condition(compiler *c, uint16_t *condition) {
  static const struct {
    const char *sign;
    fl_operation operation;
  } comparisons[] = {{"<=", FL_LESS_EQUAL}, {"<", FL_LESS},   {">=", FL_GREATER_EQUAL}, /* the longer one first */
                     {">", FL_GREATER},     {"==", FL_EQUAL}, {"!=", FL_NOT_EQUAL}};
  enum { N = sizeof comparisons / sizeof comparisons[0] };
  *condition = FL_RULES_NO_NODE;
  do {
    fl_operand left, right;
    size_t i = 0;
    fl_expression e = expression_at_cursor(c);
    fl_status status = fl_expression_sum(&e, &left);
    while (!status && i < N && !fl_scan_accept(&e.scan, comparisons[i].sign))
      i++;
    if (!status && i < N)
      status = fl_expression_sum(&e, &right);
    if (!status && i < N)
      status = add_node(&e, (fl_rule_node){comparisons[i].operation, left.node, right.node, 0}, &left);
    if (!status && *condition != FL_RULES_NO_NODE)
      status = add_node(&e, (fl_rule_node){FL_AND, *condition, left.node, 0}, &left);
    c->scan = e.scan;
    if (status)
      return status;
    *condition = left.node;
  } while (fl_scan_accept(&c->scan, "and"));
  return FL_OK;
}

static fl_status parse_dimension(compiler *c, fl_rule_alternative *built) {
  fl_rules *rules = c->rules;
  fl_expression e = expression_at_cursor(c);
  const char *begin = c->scan.at;
  fl_operand root;
  fl_status status = fl_expression_sum(&e, &root);
  c->scan = e.scan;
  if (status)
    return status;
  if (built->n_dimensions == FL_MAX_DIMS)
    return fl_scan_fail(&c->scan, begin, "more than %d dimensions", FL_MAX_DIMS);
  if (!fl_array_grow(&rules->dimensions, rules->n_dimensions, sizeof *rules->dimensions))
    return fl_error_no_memory();
  rules->dimensions[rules->n_dimensions++] = (fl_rule_dimension){source_from(c, begin), root.node};
  built->n_dimensions++;
  return FL_OK;
}

static fl_status parse_dimensions(compiler *c, fl_rule_alternative *built) {
  built->shaped = true;
  built->first_dimension = (uint16_t)c->rules->n_dimensions;
  built->leading = fl_scan_accept(&c->scan, "...");
  for (bool first = !built->leading; !fl_scan_accept(&c->scan, "]"); first = false) {
    if (!first && !fl_scan_accept(&c->scan, ","))
      return fl_scan_unexpected(&c->scan, "',' or ']'", NULL, 0);
    fl_status status = parse_dimension(c, built);
    if (status)
      return status;
  }
  return FL_OK;
}

/* The variable at the cursor. */
static fl_status parse_variable(compiler *c, uint8_t *index) {
  fl_rules *rules = c->rules;
  uint32_t i = 0;
  while (i < rules->n_variables && *rules->variables[i].source.text != *c->scan.at)
    i++;
  if (i == FL_RULES_MAX_VARIABLES)
    return fl_scan_fail(&c->scan, c->scan.at, "more than %d dtype variables", FL_RULES_MAX_VARIABLES);
  if (i == rules->n_variables)
    rules->variables[rules->n_variables++] = (fl_rule_variable){.source = {c->scan.at, 1}, .argument = NONE};
  c->scan.at++;
  *index = (uint8_t)i;
  return FL_OK;
}

static bool at_variable(fl_scanner *scan) {
  return fl_scan_word(scan) == 1 && *scan->at >= 'A' && *scan->at <= 'Z';
}

/* "float32|T": sets *dtypes, and *variable (may be NULL: none is allowed). */
static fl_status parse_dtypes(compiler *c, uint32_t *dtypes, uint8_t *variable) {
  const char *names[FL_DTYPE_COUNT];
  for (int i = 0; i < FL_DTYPE_COUNT; i++)
    names[i] = fl_element_types[i].name;
  do {
    int i = 0;
    if (variable && at_variable(&c->scan)) {
      if (*variable != NONE)
        return fl_scan_unexpected(&c->scan, "a dtype (only one may be a variable)", names, FL_DTYPE_COUNT);
      fl_status status = parse_variable(c, variable);
      if (status)
        return status;
      continue;
    }
    while (i < FL_DTYPE_COUNT && !fl_scan_accept(&c->scan, names[i]))
      i++;
    if (i == FL_DTYPE_COUNT)
      return fl_scan_unexpected(&c->scan, variable ? "a dtype or a capital letter that stands for one" : "a dtype",
                                names, FL_DTYPE_COUNT);
    *dtypes |= UINT32_C(1) << i;
  } while (fl_scan_accept(&c->scan, "|"));
  return FL_OK;
}

/* The name of an argument of that type, at the cursor. */
static fl_status parse_argument(compiler *c, fl_type type, const char *expected, uint8_t *index) {
  const fl_schema *schema = c->schema;
  const char *names[FL_SCHEMA_MAX_VALUES];
  uint32_t n = 0;
  size_t length = fl_scan_word(&c->scan);
  uint32_t found = length ? fl_schema_find(schema, c->scan.at, length) : schema->n_arguments;
  for (uint32_t i = 0; i < schema->n_arguments; i++)
    if (schema->values[i].type == type)
      names[n++] = schema->values[i].name;
  if (found >= schema->n_arguments || schema->values[found].type != type)
    return fl_scan_unexpected(&c->scan, expected, names, n);
  c->scan.at += length;
  *index = (uint8_t)found;
  return FL_OK;
}

/* Of a tensor, or what `like` names, and when. */
static fl_status parse_alternative(compiler *c, bool of_result) {
  fl_rules *rules = c->rules;
  fl_rule_alternative built = {.variable = NONE, .like = NONE, .condition = FL_RULES_NO_NODE};
  fl_status status = FL_OK;
  fl_scan_peek(&c->scan);
  const char *begin = c->scan.at;
  bool is_like = fl_scan_accept(&c->scan, "like");
  if (is_like && !of_result)
    return fl_scan_fail(&c->scan, begin, "only a result can be 'like' an argument");
  status = is_like ? parse_argument(c, FL_TENSOR, "the name of a tensor argument", &built.like)
                   : parse_dtypes(c, &built.dtypes, &built.variable);
  if (!status && !is_like && fl_scan_accept(&c->scan, "["))
    status = parse_dimensions(c, &built);
  if (status)
    return status;
  built.source = source_from(c, begin);
  fl_scan_peek(&c->scan);
  const char *condition = c->scan.at;
  if (fl_scan_accept(&c->scan, "when")) {
    if (!of_result)
      return fl_scan_fail(&c->scan, condition, "only an alternative of a result can have a 'when'");
    if ((status = parse_condition(c, &built.condition)))
      return status;
  }
  if (!fl_array_grow(&rules->alternatives, rules->n_alternatives, sizeof built))
    return fl_error_no_memory();
  rules->alternatives[rules->n_alternatives++] = built;
  return FL_OK;
}

/* "x: T[n, h, d] or T[n, hd]", the cursor behind the colon. */
static fl_status parse_clause(compiler *c, const char *begin, uint32_t value) {
  fl_rules *rules = c->rules;
  fl_rule_clause built = {.value = (uint8_t)value, .first_alternative = (uint16_t)rules->n_alternatives};
  if (c->schema->values[value].type != FL_TENSOR)
    return fl_scan_fail(&c->scan, begin, "'%s' is not a tensor", c->schema->values[value].name);
  for (uint32_t i = 0; i < rules->n_clauses; i++)
    if (rules->clauses[i].value == value)
      return fl_scan_fail(&c->scan, begin, "there are two rules for '%s'", c->schema->values[value].name);
  do {
    if (built.n_alternatives == MAX_ALTERNATIVES)
      return fl_scan_fail(&c->scan, c->scan.at, "more than %d alternatives", MAX_ALTERNATIVES);
    fl_status status = parse_alternative(c, value >= c->schema->n_arguments);
    if (status)
      return status;
    built.n_alternatives++;
  } while (fl_scan_accept(&c->scan, "or"));
  if (!fl_array_grow(&rules->clauses, rules->n_clauses, sizeof built))
    return fl_error_no_memory();
  rules->clauses[rules->n_clauses++] = built;
  return FL_OK;
}

/* "T = float32|float16", "O = float32|float16 by out_dtype" */
static fl_status parse_limit(compiler *c) {
  uint8_t index = NONE;
  const char *begin = c->scan.at;
  fl_status status = parse_variable(c, &index);
  if (status)
    return status;
  fl_rule_variable *limited = &c->rules->variables[index];
  if (!fl_scan_accept(&c->scan, "="))
    return fl_scan_unexpected(&c->scan, "'=' and the dtypes that the variable may be", NULL, 0);
  if (limited->limited)
    return fl_scan_fail(&c->scan, begin, "there are two rules for dtype variable '%c'", *limited->source.text);
  limited->limited = true;
  status = parse_dtypes(c, &limited->limit, NULL);
  if (!status && fl_scan_accept(&c->scan, "by"))
    status = parse_argument(c, FL_STRING, "the name of a str argument", &limited->argument);
  return status;
}

/* A clause or a limit. A tensor may be named by a capital letter, too: what follows decides. */
static fl_status parse_rule(compiler *c) {
  const fl_schema *schema = c->schema;
  const char *names[FL_SCHEMA_MAX_VALUES];
  uint32_t n = schema->n_arguments + schema->n_results;
  for (uint32_t i = 0; i < n; i++)
    names[i] = schema->values[i].name;
  size_t length = fl_scan_word(&c->scan);
  const char *begin = c->scan.at;
  fl_scanner ahead = c->scan;
  ahead.at += length;
  bool is_clause = length && fl_scan_accept(&ahead, ":");
  if (!is_clause && at_variable(&c->scan))
    return parse_limit(c);
  uint32_t value = length ? fl_schema_find(schema, begin, length) : n;
  if (value == n)
    return fl_scan_unexpected(&c->scan, "the name of an argument or result, or of a dtype variable", names, n);
  c->scan.at += length;
  if (!fl_scan_accept(&c->scan, ":"))
    return fl_scan_unexpected(&c->scan, "':' and what the tensor must be", NULL, 0);
  return parse_clause(c, begin, value);
}

static fl_status parse_rules(compiler *c) {
  while (fl_scan_peek(&c->scan)) {
    fl_status status = parse_rule(c);
    if (status)
      return status;
    if (fl_scan_peek(&c->scan) && !fl_scan_accept(&c->scan, ";"))
      return fl_scan_unexpected(&c->scan, "';' or the end", NULL, 0);
  }
  return FL_OK;
}

/* Arguments' clauses before results', each in the order of the text. */
static void sort_clauses(fl_rules *rules, uint32_t n_arguments) {
  for (uint32_t i = 0; i < rules->n_clauses; i++) {
    fl_rule_clause moved = rules->clauses[i];
    if (moved.value >= n_arguments)
      continue;
    uint32_t to = rules->n_argument_clauses++;
    memmove(&rules->clauses[to + 1], &rules->clauses[to], (i - to) * sizeof moved);
    rules->clauses[to] = moved;
  }
}

static bool is_known(uint32_t known, unsigned bit) {
  return known & UINT32_C(1) << bit;
}

/* How often names that are not in `known` stand under a node, twice where a size does not tell them; *which is one of
 * them. */
static unsigned count_unknown(const fl_rules *rules, uint32_t known, unsigned index, unsigned *which) {
  const fl_rule_node *node = &rules->nodes[index];
  if (node->operation >= FL_ADD) {
    unsigned n = count_unknown(rules, known, node->left, which) + count_unknown(rules, known, node->right, which);
    return node->operation >= FL_FLOOR_DIVIDE ? 2 * n : n;
  }
  if (node->operation != FL_NAME || is_known(known, node->left))
    return 0;
  *which = node->left;
  return 1;
}

/* Does a node need the leading dimensions? */
static bool needs_leading(const fl_rules *rules, unsigned index) {
  const fl_rule_node *node = &rules->nodes[index];
  if (node->operation >= FL_ADD)
    return needs_leading(rules, node->left) || needs_leading(rules, node->right);
  return node->operation == FL_LEADING;
}

/* What follows from the arguments if all of them are given. */
typedef struct known {
  uint32_t names, variables; /* bits */
  bool leading;
} known;

static void learn_alternative(const fl_rules *rules, const fl_rule_alternative *alternative, known *k) {
  if (alternative->variable != NONE && !alternative->dtypes)
    k->variables |= UINT32_C(1) << alternative->variable;
  k->leading |= alternative->leading;
  for (unsigned i = 0; i < alternative->n_dimensions; i++) {
    unsigned which = 0;
    if (count_unknown(rules, k->names, rules->dimensions[alternative->first_dimension + i].root, &which) == 1)
      k->names |= UINT32_C(1) << which;
  }
}

static known what_follows(const fl_rules *rules) {
  known k = {0};
  uint32_t before;
  for (uint32_t i = 0; i < rules->n_names; i++)
    if (rules->names[i].argument != NONE)
      k.names |= UINT32_C(1) << i;
  for (uint32_t i = 0; i < rules->n_variables; i++)
    if (rules->variables[i].argument != NONE)
      k.variables |= UINT32_C(1) << i;
  do { /* one name may need another that a later clause tells */
    before = k.names;
    for (uint32_t i = 0; i < rules->n_argument_clauses; i++)
      for (unsigned j = 0; j < rules->clauses[i].n_alternatives; j++)
        learn_alternative(rules, &rules->alternatives[rules->clauses[i].first_alternative + j], &k);
  } while (k.names != before);
  return k;
}

static fl_status check_expression(const compiler *c, unsigned root, const char *at, const known *k) {
  const fl_rules *rules = c->rules;
  unsigned which = 0;
  if (count_unknown(rules, k->names, root, &which))
    return fl_scan_fail(&c->scan, at, "'%.*s' does not follow from the arguments",
                        (int)rules->names[which].source.length, rules->names[which].source.text);
  if (needs_leading(rules, root) && !k->leading)
    return fl_scan_fail(&c->scan, at, "'...' does not follow from the arguments");
  return FL_OK;
}

static fl_status check_names(const compiler *c, const fl_rule_alternative *alternative, const known *k) {
  fl_status status = FL_OK;
  for (unsigned i = 0; i < alternative->n_dimensions && !status; i++) {
    const fl_rule_dimension *dimension = &c->rules->dimensions[alternative->first_dimension + i];
    status = check_expression(c, dimension->root, dimension->source.text, k);
  }
  if (!status && alternative->condition != FL_RULES_NO_NODE)
    status = check_expression(c, alternative->condition, alternative->source.text + alternative->source.length, k);
  return status;
}

/* An argument may be matched without knowing all, a result not. */
static fl_status check_result(const compiler *c, const fl_rule_alternative *alternative, const known *k) {
  const char *at = alternative->source.text;
  if (alternative->like != NONE)
    return FL_OK;
  bool is_set = alternative->variable == NONE ? alternative->dtypes & (alternative->dtypes - 1) : alternative->dtypes;
  if (!alternative->shaped)
    return fl_scan_fail(&c->scan, at, "a result needs dimensions in []");
  if (is_set)
    return fl_scan_fail(&c->scan, at, "a result needs one dtype");
  if (alternative->variable != NONE && !is_known(k->variables, alternative->variable))
    return fl_scan_fail(&c->scan, at, "dtype variable '%c' does not follow from the arguments",
                        *c->rules->variables[alternative->variable].source.text);
  if (alternative->leading && !k->leading)
    return fl_scan_fail(&c->scan, at, "'...' does not follow from the arguments");
  return FL_OK;
}

static fl_status check_clauses(const compiler *c) {
  const fl_rules *rules = c->rules;
  known k = what_follows(rules);
  for (uint32_t i = 0; i < rules->n_clauses; i++)
    for (unsigned j = 0; j < rules->clauses[i].n_alternatives; j++) {
      const fl_rule_alternative *alternative = &rules->alternatives[rules->clauses[i].first_alternative + j];
      fl_status status = check_names(c, alternative, &k);
      if (!status && i >= rules->n_argument_clauses)
        status = check_result(c, alternative, &k);
      if (status)
        return status;
    }
  for (uint32_t i = 0; i < rules->n_variables; i++)
    if (!is_known(k.variables, i))
      return fl_scan_fail(&c->scan, rules->variables[i].source.text, "no argument is of dtype variable '%c' alone",
                          *rules->variables[i].source.text);
  return FL_OK;
}

/* Finds what says shape and dtype of each result. */
static fl_status link_results(const compiler *c) {
  const fl_schema *schema = c->schema;
  fl_rules *rules = c->rules;
  bool implied = !*schema->rules && !schema->infer && schema->device_argument < (int32_t)schema->n_arguments;
  int32_t first_tensor = implied ? schema->device_argument : -1;
  memset(rules->result_clause, NONE, sizeof rules->result_clause);
  memset(rules->result_like, NONE, sizeof rules->result_like);
  for (uint32_t i = rules->n_argument_clauses; i < rules->n_clauses; i++)
    rules->result_clause[rules->clauses[i].value - schema->n_arguments] = (uint8_t)i;
  for (uint32_t i = 0; i < schema->n_results; i++) {
    const fl_argument *result = &schema->values[schema->n_arguments + i];
    int32_t like = result->alias >= 0 ? result->alias : first_tensor;
    if (result->type != FL_TENSOR || rules->result_clause[i] != NONE)
      continue;
    if (like >= 0 && (result->optional || !schema->values[like].optional))
      rules->result_like[i] = (uint8_t)like;
    else if (!schema->infer)
      return fl_error(FL_EINVAL, "%s: nothing says the shape and dtype of result '%s': expected rules or infer",
                      schema->op_name, result->name);
  }
  return FL_OK;
}

fl_status fl_rules_compile(const fl_schema *schema, fl_rules **rules) {
  compiler c = {.scan = {"rules", schema->rules, schema->rules}, .schema = schema};
  c.rules = calloc(1, sizeof *c.rules);
  if (!c.rules)
    return fl_error_no_memory();
  fl_status status = parse_rules(&c);
  if (!status) {
    sort_clauses(c.rules, schema->n_arguments);
    status = check_clauses(&c);
  }
  if (!status)
    status = link_results(&c);
  if (status)
    fl_rules_free(c.rules);
  else
    *rules = c.rules;
  return status;
}

/* Those of one alternative; 0: any. */
static uint32_t admitted_dtypes(const fl_rules *rules, const fl_rule_alternative *alternative) {
  if (alternative->variable == NONE)
    return alternative->dtypes;
  const fl_rule_variable *variable = &rules->variables[alternative->variable];
  return variable->limited ? alternative->dtypes | variable->limit : 0;
}

uint32_t fl_schema_dtypes(const fl_schema *schema) {
  const fl_rules *rules = schema->compiled;
  uint32_t dtypes = 0;
  for (uint32_t i = 0; i < rules->n_argument_clauses; i++)
    for (unsigned j = 0; j < rules->clauses[i].n_alternatives && rules->clauses[i].value == schema->device_argument;
         j++) {
      uint32_t admitted = admitted_dtypes(rules, &rules->alternatives[rules->clauses[i].first_alternative + j]);
      if (!admitted)
        return 0;
      dtypes |= admitted;
    }
  return dtypes;
}

uint32_t fl_rules_named_dtype(const fl_rule_variable *variable, const char *name) {
  uint32_t i = 0;
  while (i < FL_DTYPE_COUNT && !(is_known(variable->limit, i) && !strcmp(fl_element_types[i].name, name)))
    i++;
  return i;
}

void fl_rules_free(fl_rules *rules) {
  if (!rules)
    return;
  free(rules->clauses);
  free(rules->alternatives);
  free(rules->dimensions);
  free(rules->nodes);
  free(rules);
}
