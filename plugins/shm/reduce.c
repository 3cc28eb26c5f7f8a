/*
 * The loops that reduce. Elements of 16 bits and fewer are added up in float and rounded once; the order is that of the
 * ranks, whoever computes, so that all have the same bits. Written for the vectoriser.
 */
#include "plugins/shm/reduce.h"

#include <flhost/dtype.h>

/* Elements i of different arrays have nothing to do with each other, also where two arrays are the same. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum { BLOCK = 1024 };

#define SAME(x)          (x)
#define IS_TRUE(x)       ((x) != 0)
#define SUM(A, U, x, y)  ((A)((U)(x) + (U)(y)))
#define PROD(A, U, x, y) ((A)((U)(x) * (U)(y)))
/* Of a NaN nothing is greater, and it is not what it is itself. */
#define MAX(A, U, x, y)     ((x) > (y) || (x) != (x) ? (x) : (y))
#define MIN(A, U, x, y)     ((x) < (y) || (x) != (x) ? (x) : (y))
#define OR(A, U, x, y)      ((x) | (y))
#define AND(A, U, x, y)     ((x) & (y))
#define ALL(A, x, n)        (x)
#define MEAN(A, x, n)       ((A)((x) / (A)(n)))
#define MEAN_SMALL(A, x, n) ((A)((x) / (n)))

/* T is the element, A what it is added up in, U the same without overflow. */
#define LOOP(name, T, A, U, widen, narrow, combine, finish)                                                            \
  static void name(void *out_, const void *const *operands, int n, size_t count) {                                     \
    T *out = out_;                                                                                                     \
    A sum[BLOCK];                                                                                                      \
    if (n == 2) {                                                                                                      \
      const T *a = operands[0], *b = operands[1];                                                                      \
      INDEPENDENT for (size_t i = 0; i < count; i++) {                                                                 \
        A x = widen(a[i]), y = widen(b[i]);                                                                            \
        A z = combine(A, U, x, y);                                                                                     \
        out[i] = narrow(finish(A, z, 2));                                                                              \
      }                                                                                                                \
      return;                                                                                                          \
    }                                                                                                                  \
    for (size_t first = 0; first < count; first += BLOCK) {                                                            \
      size_t m = count - first < BLOCK ? count - first : BLOCK;                                                        \
      const T *a = (const T *)operands[0] + first;                                                                     \
      for (size_t i = 0; i < m; i++)                                                                                   \
        sum[i] = widen(a[i]);                                                                                          \
      for (int k = 1; k < n; k++) {                                                                                    \
        const T *b = (const T *)operands[k] + first;                                                                   \
        for (size_t i = 0; i < m; i++) {                                                                               \
          A x = sum[i], y = widen(b[i]);                                                                               \
          sum[i] = combine(A, U, x, y);                                                                                \
        }                                                                                                              \
      }                                                                                                                \
      for (size_t i = 0; i < m; i++)                                                                                   \
        out[first + i] = narrow(finish(A, sum[i], n));                                                                 \
    }                                                                                                                  \
  }

#define LOOPS(name, T, A, U, widen, narrow, mean)                                                                      \
  LOOP(name##_sum, T, A, U, widen, narrow, SUM, ALL)                                                                   \
  LOOP(name##_prod, T, A, U, widen, narrow, PROD, ALL)                                                                 \
  LOOP(name##_max, T, A, U, widen, narrow, MAX, ALL)                                                                   \
  LOOP(name##_min, T, A, U, widen, narrow, MIN, ALL)                                                                   \
  LOOP(name##_avg, T, A, U, widen, narrow, SUM, mean)

LOOPS(float32, float, float, float, SAME, SAME, MEAN)
LOOPS(float16, uint16_t, float, float, fl_f16_to_float, fl_float_to_f16, MEAN)
LOOPS(bfloat16, uint16_t, float, float, fl_bf16_to_float, fl_float_to_bf16, MEAN)
LOOPS(float8_e4m3fn, uint8_t, float, float, fl_e4m3fn_to_float, fl_float_to_e4m3fn, MEAN)
LOOPS(float64, double, double, double, SAME, SAME, MEAN)
LOOPS(int32, int32_t, int32_t, uint32_t, SAME, SAME, MEAN)
LOOPS(int64, int64_t, int64_t, uint64_t, SAME, SAME, MEAN)
/* The number of ranks may be none of these: C divides ints. */
LOOPS(uint8, uint8_t, uint8_t, uint8_t, SAME, SAME, MEAN_SMALL)
LOOPS(int8, int8_t, int8_t, uint8_t, SAME, SAME, MEAN_SMALL)
LOOP(bool_or, uint8_t, uint8_t, uint8_t, IS_TRUE, SAME, OR, ALL)
LOOP(bool_and, uint8_t, uint8_t, uint8_t, IS_TRUE, SAME, AND, ALL)

typedef struct row {
  uint8_t code, bits;
  shm_reduce_fn reduce[FL_REDUCTIONS];
} row;

#define ALL_OF(name)                                                                                                   \
  { name##_sum, name##_prod, name##_max, name##_min, name##_avg }

static const row rows[] = {
    {kDLFloat, 32, ALL_OF(float32)},   {kDLFloat, 16, ALL_OF(float16)},
    {kDLBfloat, 16, ALL_OF(bfloat16)}, {FL_DTYPE_FLOAT8_E4M3FN, 8, ALL_OF(float8_e4m3fn)},
    {kDLFloat, 64, ALL_OF(float64)},   {kDLInt, 32, ALL_OF(int32)},
    {kDLInt, 64, ALL_OF(int64)},       {kDLUInt, 8, ALL_OF(uint8)},
    {kDLInt, 8, ALL_OF(int8)},         {FL_DTYPE_BOOL, 8, {bool_or, bool_and, bool_or, bool_and, NULL}},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

shm_reduce_fn shm_reduce_of(DLDataType dtype, int32_t reduction) {
  if (dtype.lanes != 1 || reduction < 0 || reduction >= FL_REDUCTIONS)
    return NULL;
  for (size_t i = 0; i < N_ROWS; i++)
    if (rows[i].code == dtype.code && rows[i].bits == dtype.bits)
      return rows[i].reduce[reduction];
  return NULL;
}
