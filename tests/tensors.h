/* Tensors and calls for tests of the schema modules. */
#ifndef FLHOST_TESTS_TENSORS_H
#define FLHOST_TESTS_TENSORS_H

#include "core/cases.h"
#include "core/schema.h"
#include "core/support.h"
#include "tests/suite.h"

static const DLDataType f32 = {kDLFloat, 32, 1}, f16 = {kDLFloat, 16, 1}, bf16 = {kDLBfloat, 16, 1},
                        f64 = {kDLFloat, 64, 1}, i32 = {kDLInt, 32, 1}, i64 = {kDLInt, 64, 1};

/* Places that tensors may be at, far enough from each other. */
static inline void *place(int i) {
  return (void *)(uintptr_t)(0x10000000 + (uintptr_t)i * 0x100000);
}

#define DIMS(...)                                                                                                      \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) {                                             \
    __VA_ARGS__                                                                                                        \
  }
#define STRIDES(...) ((int64_t[]){__VA_ARGS__})

static inline DLTensor strided(DLDataType dtype, void *data, int ndim, int64_t *shape, int64_t *strides) {
  DLTensor tensor = {data, {kDLCPU, 0}, ndim, dtype, shape, strides, 0};
  return tensor;
}

/* A compact one. */
static inline DLTensor tensor(DLDataType dtype, void *data, int ndim, int64_t *shape) {
  return strided(dtype, data, ndim, shape, NULL);
}

/* Made from schema and rules; the test ends when it cannot be. */
static inline fl_schema *make_schema(const char *text, const char *rules) {
  fl_op_def def = {.size = sizeof def, .schema = text, .rules = rules};
  fl_schema *schema = NULL;
  ck_assert_msg(fl_schema_create_checked(&def, &schema) == FL_OK, "%s", fl_error_message());
  return schema;
}

#define ACCEPTED(schema_, ...)                                                                                         \
  do {                                                                                                                 \
    fl_value values_[] = {__VA_ARGS__};                                                                                \
    fl_call call_ = FL_CALL(values_);                                                                                  \
    ck_assert_msg(fl_schema_check(schema_, &call_) == FL_OK, "%s", fl_error_message());                                \
  } while (0)

#define REFUSED(schema_, message_, ...)                                                                                \
  do {                                                                                                                 \
    fl_value values_[] = {__VA_ARGS__};                                                                                \
    fl_call call_ = FL_CALL(values_);                                                                                  \
    ck_assert_int_eq(fl_schema_check(schema_, &call_), FL_EINVAL);                                                     \
    ck_assert_str_eq(fl_error_message(), message_);                                                                    \
  } while (0)

#endif
