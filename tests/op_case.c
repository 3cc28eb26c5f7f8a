/* Calls of built-in ops written as text: see op_case.h. */
#include "tests/op_case.h"
#include "core/cases.h"
#include "core/ops.h"
#include "core/support.h"

static fl_schema *find_schema(const char *op, size_t length) {
  fl_schema *schema = NULL;
  for (const fl_op_def *const *entry = fl_builtin_ops; *entry; entry++) {
    if (strncmp((*entry)->schema, op, length) || (*entry)->schema[length] != '(')
      continue;
    ck_assert_msg(fl_schema_create_checked(*entry, &schema) == FL_OK, "%s", fl_error_message());
    return schema;
  }
  ck_abort_msg("no op %.*s", (int)length, op);
  return NULL;
}

static uint32_t find_value(const op_case *made, const char *name, size_t length) {
  uint32_t n = made->schema->n_arguments + made->schema->n_results;
  for (uint32_t i = 0; i < n; i++) {
    const char *known = made->schema->values[i].name;
    if (*known == *name && !strncmp(known, name, length) && !known[length]) /* the first letter: tests ask often */
      return i;
  }
  ck_abort_msg("%s has no '%.*s'", made->schema->op_name, (int)length, name);
  return n;
}

static DLDataType type_of(char letter, DLDataType dtype) {
  const struct {
    char letter;
    DLDataType dtype;
  } types[] = {{'f', dtype},
               {'w', float32},
               {'i', int32},
               {'l', int64},
               {'c', {kDLInt, 8, 1}},
               {'u', {kDLUInt, 8, 1}},
               {'e', {FL_DTYPE_FLOAT8_E4M3FN, 8, 1}},
               {'b', {FL_DTYPE_BOOL, 8, 1}}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (types[i].letter == letter)
      return types[i].dtype;
  ck_abort_msg("no element type has the letter '%c'", letter);
  return dtype;
}

static void set_element(DLTensor *tensor, int64_t i, double value) {
  int64_t at = element_offset(tensor, i);
  if (tensor->dtype.code == FL_DTYPE_BOOL)
    ((uint8_t *)fl_data(tensor))[at] = value != 0;
  else
    set(tensor, at, value);
}

static void fill_tensor(DLTensor *tensor, const char *name, int64_t modulus) {
  uint32_t seed = 1;
  for (const char *c = name; *c; c++)
    seed = seed * 31 + (unsigned char)*c;
  for (int64_t i = 0; i < count(tensor); i++) {
    seed = seed * 1664525u + 1013904223u;
    set_element(tensor, i, modulus ? (double)(i % modulus) : (double)(seed >> 8) / (1 << 23) - 1);
  }
}

/* "f7x16", "i7x2%4" */
static void add_tensor(op_case *made, uint32_t index, const char *text, DLDataType dtype, int64_t padding) {
  int64_t shape[FL_MAX_DIMS];
  int ndim = 0;
  char *end = (char *)text;
  do
    shape[ndim++] = strtoll(end + 1, &end, 10);
  while (*end == 'x');
  owned *tensor = make(type_of(*text, dtype), ndim, shape, ndim > 1 ? padding : 0);
  bool whole = tensor->tensor.dtype.code == kDLInt || tensor->tensor.dtype.code == FL_DTYPE_BOOL;
  fill_tensor(&tensor->tensor, made->schema->values[index].name,
              *end == '%' ? strtoll(end + 1, NULL, 10)
              : whole     ? INT32_MAX
                          : 0);
  made->tensors[index] = tensor;
  made->values[index] = fl_tensor(&tensor->tensor);
}

static fl_value list_of(int64_t *list, const char *text) {
  uint32_t n = 0;
  char *end = (char *)text - 1;
  do {
    ck_assert_uint_lt(n, 4);
    list[n++] = strtoll(end + 1, &end, 10);
  } while (*end == ',');
  return fl_ints(list, n);
}

static void add_value(op_case *made, uint32_t index, const char *text, size_t length, DLDataType dtype,
                      int64_t padding) {
  fl_type type = made->schema->values[index].type;
  if (type == FL_TENSOR) {
    add_tensor(made, index, text, dtype, padding);
    return;
  }
  ck_assert_uint_lt(length, sizeof made->strings[index]);
  memcpy(made->strings[index], text, length);
  made->values[index] = type == FL_INT        ? fl_int(strtoll(text, NULL, 10))
                        : type == FL_FLOAT    ? fl_float(strtod(text, NULL))
                        : type == FL_BOOL     ? fl_bool(*text == 't')
                        : type == FL_INT_LIST ? list_of(made->lists[index], text)
                                              : fl_string(made->strings[index]);
}

op_case *op_case_make(const char *text, DLDataType dtype, int64_t padding) {
  op_case *made = calloc(1, sizeof *made);
  size_t length = strcspn(text, " ");
  made->schema = find_schema(text, length);
  for (uint32_t i = 0; i < made->schema->n_arguments; i++)
    made->values[i] = made->schema->values[i].has_default ? made->schema->values[i].default_value : fl_none();
  for (text += length; *text; text += length) {
    size_t name = strcspn(++text, "=");
    length = strcspn(text, " ");
    add_value(made, find_value(made, text, name), text + name + 1, length - name - 1, dtype, padding);
  }
  return made;
}

void op_case_free(op_case *made) {
  for (uint32_t i = 0; i < FL_SCHEMA_MAX_VALUES; i++)
    unmake(made->tensors[i]);
  fl_schema_free(made->schema);
  free(made);
}

fl_value *op_case_value(op_case *made, const char *name) {
  return &made->values[find_value(made, name, strlen(name))];
}

DLTensor *op_case_tensor(op_case *made, const char *name) {
  fl_value *value = op_case_value(made, name);
  ck_each(value->type == FL_TENSOR, "%s: '%s' is no tensor", made->schema->op_name, name);
  return value->v.tensor;
}

double op_case_get(op_case *made, const char *name, int64_t i) {
  const DLTensor *tensor = op_case_tensor(made, name);
  return get(tensor, element_offset(tensor, i));
}

void op_case_set(op_case *made, const char *name, int64_t i, double value) {
  set_element(op_case_tensor(made, name), i, value);
}

void op_case_set_all(op_case *made, const char *name, const double *values) {
  for (int64_t i = 0; i < count(op_case_tensor(made, name)); i++)
    op_case_set(made, name, i, values[i]);
}

fl_status op_case_check(op_case *made) {
  const fl_schema *schema = made->schema;
  fl_tensor_spec specs[FL_SCHEMA_MAX_RESULTS];
  fl_call call = {.size = sizeof call, .count = schema->n_arguments, .values = made->values};
  fl_status status = fl_schema_infer(schema, &call, specs, schema->n_results);
  if (status)
    return status;
  for (uint32_t i = 0; i < schema->n_results; i++) {
    uint32_t index = schema->n_arguments + i;
    if (made->tensors[index] || !specs[i].present)
      continue;
    made->tensors[index] = make(specs[i].dtype, specs[i].ndim, specs[i].shape, 0);
    made->values[index] = fl_tensor(&made->tensors[index]->tensor);
  }
  call.count += schema->n_results;
  return fl_schema_check(schema, &call);
}

fl_status op_case_call(op_case *made, const char *id) {
  fl_status status = op_case_check(made);
  if (status)
    return status;
  return call_impl(made->schema->op_name, id, made->values, made->schema->n_arguments + made->schema->n_results);
}

void op_case_run(op_case *made, const char *id) {
  message[0] = 0;
  fl_status status = op_case_call(made, id);
  ck_assert_msg(status == FL_OK, "%s %s: %s", made->schema->op_name, id, *message ? message : fl_error_message());
}

void op_case_refused(const char *text, const char *expected) {
  op_case *made = op_case_make(text, float32, 0);
  ck_assert_int_eq(op_case_check(made), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), expected);
  op_case_free(made);
}

void op_case_refused_by(op_case *made, const char *id, const char *expected) {
  ck_assert_int_eq(op_case_call(made, id), FL_EINVAL);
  ck_assert_str_eq(message, expected);
  for (uint32_t i = made->schema->n_arguments; i < made->schema->n_arguments + made->schema->n_results; i++)
    for (size_t byte = 0; made->tensors[i] && byte < made->tensors[i]->bytes; byte++)
      ck_each(((char *)made->tensors[i]->tensor.data)[byte] == 0x5a, "byte %zu of result %u was written", byte, i);
}
