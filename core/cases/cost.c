/*
 * Evaluates an op's counts for one call. Names mean what the matcher found for the call's arguments; the language is
 * described for authors at fl_op_def.bytes.
 */
#include "core/cases/cost.h"

#include "core/schema.h"

#include <math.h>

/* What words mean. `call` NULL: only their form is looked at. */
typedef struct meaning {
  const fl_schema *schema;
  const fl_call *call;
  const fl_bindings *bindings;
  const fl_tensor_spec *results;
  bool has_default; /* `default` is a word */
} meaning;

/* --------------------------------------------------------------------------------------------------------- tensors */

static double count(const int64_t *shape, int32_t ndim) {
  double n = 1;
  for (int32_t i = 0; i < ndim; i++)
    n *= (double)shape[i];
  return n;
}

/* Elements of a value, and bytes of one; both 0 for what is no tensor here. */
static void measure(const meaning *m, uint32_t index, double *elements, double *item) {
  const fl_schema *schema = m->schema;
  *elements = *item = 0;
  if (index >= schema->n_arguments) {
    const fl_tensor_spec *spec = &m->results[index - schema->n_arguments];
    if (schema->values[index].type == FL_TENSOR && spec->present) {
      *elements = count(spec->shape, spec->ndim);
      *item = ((double)spec->dtype.bits * spec->dtype.lanes) / 8;
    }
  } else if (m->call->values[index].type == FL_TENSOR) {
    const DLTensor *tensor = m->call->values[index].v.tensor;
    *elements = count(tensor->shape, tensor->ndim);
    *item = ((double)tensor->dtype.bits * tensor->dtype.lanes) / 8;
  }
}

/* Each argument read once, each result written once, a state both. */
static double default_bytes(const meaning *m) {
  const fl_schema *schema = m->schema;
  double bytes = 0, elements, item;
  for (uint32_t i = 0; i < schema->n_arguments + schema->n_results; i++) {
    measure(m, i, &elements, &item);
    bytes += elements * item * (fl_schema_is_state(schema, i) ? 2 : 1);
  }
  return bytes;
}

/* ----------------------------------------------------------------------------------------------------------- words */

/* Names that the cursor's word may have been meant to be are those of the n first values that `fits` lets through. */
static fl_status no_such_value(fl_expression *e, const char *expected, uint32_t n, bool (*fits)(fl_type type)) {
  const meaning *m = e->context;
  const char *names[FL_SCHEMA_MAX_VALUES];
  uint32_t n_names = 0;
  for (uint32_t i = 0; i < n; i++)
    if (fits(m->schema->values[i].type))
      names[n_names++] = m->schema->values[i].name;
  return fl_scan_unexpected(&e->scan, expected, names, n_names);
}

static bool is_tensor(fl_type type) {
  return type == FL_TENSOR;
}

static bool is_any(fl_type type) {
  return type != FL_NONE;
}

static bool is_number(fl_type type) {
  return type == FL_INT || type == FL_BOOL;
}

/* "numel(x)", "nbytes(x)", "itemsize(x)", the cursor behind the parenthesis; `pick` makes the value of elements and
 * bytes of one. */
static fl_status evaluate_tensor(fl_expression *e, double (*pick)(double elements, double item), double *value) {
  const meaning *m = e->context;
  uint32_t n = m->schema->n_arguments + m->schema->n_results;
  fl_expression_look(e);
  size_t length = fl_scan_word(&e->scan);
  uint32_t index = length ? fl_schema_find(m->schema, e->scan.at, length) : n;
  double elements, item;
  if (index == n || m->schema->values[index].type != FL_TENSOR)
    return no_such_value(e, "the name of a tensor", n, is_tensor);
  e->scan.at += length;
  *value = 1;
  if (m->call) {
    measure(m, index, &elements, &item);
    *value = pick(elements, item);
  }
  return FL_OK;
}

static double pick_elements(double elements, double item) {
  (void)item;
  return elements;
}

static double pick_item(double elements, double item) {
  (void)elements;
  return item;
}

static double pick_bytes(double elements, double item) {
  return elements * item;
}

static fl_status evaluate_numel(fl_expression *e, double *value) {
  const meaning *m = e->context;
  fl_expression_look(e);
  if (e->end - e->scan.at < 3 || memcmp(e->scan.at, "...", 3) != 0)
    return evaluate_tensor(e, pick_elements, value);
  e->scan.at += 3;
  *value = !m->call ? 1 : m->bindings->leading_known ? count(m->bindings->leading, m->bindings->n_leading) : 0;
  return FL_OK;
}

static fl_status evaluate_nbytes(fl_expression *e, double *value) {
  return evaluate_tensor(e, pick_bytes, value);
}

static fl_status evaluate_itemsize(fl_expression *e, double *value) {
  return evaluate_tensor(e, pick_item, value);
}

static fl_status evaluate_given(fl_expression *e, double *value) {
  const meaning *m = e->context;
  fl_expression_look(e);
  size_t length = fl_scan_word(&e->scan);
  uint32_t n = m->schema->n_arguments, index = length ? fl_schema_find(m->schema, e->scan.at, length) : n;
  if (index >= n)
    return no_such_value(e, "the name of an argument", n, is_any);
  e->scan.at += length;
  *value = !m->call || m->call->values[index].type != FL_NONE;
  return FL_OK;
}

static fl_status evaluate_two(fl_expression *e, double (*choose)(double a, double b), double *value) {
  fl_operand left, right;
  fl_status status = fl_expression_sum(e, &left);
  if (!status)
    status = fl_expression_expect(e, ',');
  if (!status)
    status = fl_expression_sum(e, &right);
  if (!status)
    *value = choose(left.value, right.value);
  return status;
}

static fl_status evaluate_min(fl_expression *e, double *value) {
  return evaluate_two(e, fmin, value);
}

static fl_status evaluate_max(fl_expression *e, double *value) {
  return evaluate_two(e, fmax, value);
}

static const struct {
  const char *name;
  fl_status (*evaluate)(fl_expression *e, double *value); /* of what is in the parentheses */
} functions[] = {
    {"numel", evaluate_numel}, {"nbytes", evaluate_nbytes}, {"itemsize", evaluate_itemsize},
    {"given", evaluate_given}, {"min", evaluate_min},       {"max", evaluate_max},
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

/* "NAME(", the cursor at the name. */
static fl_status evaluate_function(fl_expression *e, size_t length, double *value) {
  const char *names[N_FUNCTIONS];
  uint32_t i = 0;
  for (uint32_t j = 0; j < N_FUNCTIONS; j++)
    names[j] = functions[j].name;
  while (i < N_FUNCTIONS && (strncmp(names[i], e->scan.at, length) || names[i][length]))
    i++;
  if (i == N_FUNCTIONS)
    return fl_scan_unexpected(&e->scan, "numel, nbytes, itemsize, given, min or max before '('", names, N_FUNCTIONS);
  e->scan.at += length;
  fl_status status = fl_expression_expect(e, '(');
  if (!status)
    status = functions[i].evaluate(e, value);
  return status ? status : fl_expression_expect(e, ')');
}

/* A dimension of the rules, an int or a bool. */
static fl_status evaluate_name(fl_expression *e, size_t length, double *value) {
  const meaning *m = e->context;
  const fl_rules *rules = m->schema->compiled;
  uint32_t name = fl_rules_find(rules, e->scan.at, length), n = m->schema->n_arguments;
  uint32_t argument = fl_schema_find(m->schema, e->scan.at, length);
  bool is_dimension = name < rules->n_names;
  if (!is_dimension && (argument >= n || !is_number(m->schema->values[argument].type)))
    return no_such_value(e, "a number, a dimension of the rules, an int, a bool or a function", n, is_number);
  e->scan.at += length;
  *value = 1;
  if (!m->call)
    return FL_OK;
  const fl_value *given = argument < n ? &m->call->values[argument] : NULL;
  bool is_known = is_dimension && m->bindings->names_known & UINT32_C(1) << name;
  *value = is_dimension             ? is_known ? (double)m->bindings->names[name] : 0
           : given->type == FL_INT  ? (double)given->v.i
           : given->type == FL_BOOL ? given->v.b
                                    : 0;
  return FL_OK;
}

static fl_status evaluate_word(fl_expression *e, fl_operand *operand) {
  const meaning *m = e->context;
  size_t length = fl_scan_word(&e->scan);
  const char *behind = e->scan.at + length;
  behind += strspn(behind, " \t\r\n");
  if (behind < e->end && *behind == '(')
    return evaluate_function(e, length, &operand->value);
  if (!m->has_default || !fl_scan_accept(&e->scan, "default"))
    return evaluate_name(e, length, &operand->value);
  operand->value = m->call ? default_bytes(m) : 1;
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------- the counts */

/* The value of a text; *value stays where there is none. */
static fl_status evaluate(const meaning *m, const char *what, const char *text, double *value) {
  fl_expression e = {
      .scan = {what, text, text}, .end = text + strlen(text), .word = evaluate_word, .context = m, .form = !m->call};
  if (!*text)
    return FL_OK;
  double found;
  fl_status status = fl_expression_evaluate(&e, &found);
  if (status || e.form)
    return status;
  if (!(found >= 0 && isfinite(found)))
    return fl_error(FL_EINVAL, "%s: %s '%s' is %g for these arguments, expected 0 or more", m->schema->op_name, what,
                    text, found);
  *value = found;
  return FL_OK;
}

/* Both counts. */
static fl_status evaluate_both(meaning *m, fl_cost *cost) {
  m->has_default = true;
  fl_status status = evaluate(m, "bytes", m->schema->bytes, &cost->bytes);
  m->has_default = false;
  return status ? status : evaluate(m, "flops", m->schema->flops, &cost->flops);
}

fl_status fl_cost_check(const fl_schema *schema) {
  meaning m = {.schema = schema};
  fl_cost ignored;
  return evaluate_both(&m, &ignored);
}

fl_status fl_cost_evaluate(const fl_schema *schema, const fl_call *call, const fl_bindings *bindings,
                           const fl_tensor_spec *results, fl_cost *cost) {
  meaning m = {.schema = schema, .call = call, .bindings = bindings, .results = results};
  fl_cost found = {.bytes = default_bytes(&m), .flops = -1};
  fl_status status = evaluate_both(&m, &found);
  if (!status) {
    cost->bytes = found.bytes;
    cost->flops = found.flops;
  }
  return status;
}
