/* The CPU plugin's implementations, called without a host, and tensors for them. */
#ifndef FLHOST_TESTS_KERNELS_H
#define FLHOST_TESTS_KERNELS_H

#include "core/schema.h"
#include "tests/suite.h"

#include <flhost/plugin.h>

static const DLDataType float32 = {kDLFloat, 32, 1}, float16 = {kDLFloat, 16, 1}, bfloat16 = {kDLBfloat, 16, 1};
static const DLDataType int32 = {kDLInt, 32, 1}, int64 = {kDLInt, 64, 1};
static const DLDataType float8 = {FL_DTYPE_FLOAT8_E4M3FN, 8, 1};
static const DLDataType floats[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
static const char *const both[] = {"reference.c", "default.flagos"};

/* Loads the plugin into a registry of the tests' own: a fixture. */
void load_plugin(void);
/* The same anew; why it is refused, else NULL. */
const char *try_plugin(void);
/* What the registry offers as its pool from the next load on: as many ranges as there may be, the last one first; NULL:
 * none. */
extern fl_parallel_for_fn registry_parallel_for;
int count_impls(void);
const fl_impl *find_impl(const char *op, const char *id);

/* Calls one; `message` is what it had to say. check_call wants FL_OK. */
extern _Thread_local char message[512];
fl_status call_impl(const char *op, const char *id, fl_value *values, uint32_t n);
void check_call(const char *op, const char *id, fl_value *values, uint32_t n);

/* An op as its built-in entry has it; fl_schema_free. */
fl_schema *schema_of(const char *op);

/* The op's checks refuse the call: nothing of an implementation runs. */
void check_refused(const char *op, const char *expected, const fl_value *values, uint32_t n);

/* A tensor whose storage may be larger than what it shows. */
typedef struct owned {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  size_t bytes;
} owned;

/* Compact when `padding` is 0; else that many elements lie behind each row and each further leading step. */
owned *make(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding);
void unmake(owned *made);

/* For make(): the number of dimensions and their sizes. */
#define SHAPE(...)                                                                                                     \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                                       \
    __VA_ARGS__                                                                                                        \
  }

/* Several at once. */
#define UNMAKE(...) unmake_all((owned *[]){__VA_ARGS__}, sizeof((owned *[]){__VA_ARGS__}) / sizeof(owned *))
void unmake_all(owned **all, size_t n);

/* Filled as fill() does it; with values between -bound and bound; with one value; with the elements that are given. */
owned *make_filled(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, uint32_t seed);
owned *make_bounded(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, uint32_t seed, double bound);
owned *make_constant(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, double value);
owned *make_indices(DLDataType dtype, int ndim, const int64_t *shape, const int64_t *indices);

/* None where there is no tensor. */
fl_value value_of(owned *tensor);

/* Element `i` of the storage. */
void set(DLTensor *tensor, int64_t i, double value);
double get(const DLTensor *tensor, int64_t i);

/* Where the i-th element lies in the storage, and how many there are. */
int64_t element_offset(const DLTensor *tensor, int64_t i);
int64_t count(const DLTensor *tensor);

/* The i-th element, in the order of the shape. */
double element(const owned *tensor, int64_t i);

/* Some values between -4 and 4; the same for the same `seed`, whatever the strides. */
void fill(DLTensor *tensor, uint32_t seed);

/* The same elements (bit for bit), and where `strided` has padding, that is as make() left it. */
void check_same_elements(const DLTensor *compact, const owned *strided);

/* Within the op's tolerance; NaN is NaN, and an infinity itself. */
void check_close(const char *op, const DLTensor *result, const DLTensor *expected);

#endif
