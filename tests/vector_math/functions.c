/* The functions of plugins/cpu/flagos/vectors/vector.h, gelu.h for gelu, and the conversions of chunk.h over arrays,
 * compiled once for each instruction set: see test_cpu_math.c. */
#include "tests/vector_math/functions.h"
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/flagos/vectors/gelu.h"
#include "plugins/cpu/flagos/vectors/vector.h"

#define OVER_ARRAY(name)                                                                                               \
  static void over_##name(const float *x, float *y, int n) {                                                           \
    for (int i = 0; i < n; i++)                                                                                        \
      y[i] = vector_##name(x[i]);                                                                                      \
  }
OVER_ARRAY(exp)
OVER_ARRAY(exp_to_one)
OVER_ARRAY(exp_weight)
OVER_ARRAY(expm1)
OVER_ARRAY(tanh)
OVER_ARRAY(sigmoid)
OVER_ARRAY(silu)
OVER_ARRAY(softplus)

/* What is left behind whole chunks is computed with zeros. */
#define OVER_CHUNKS(name)                                                                                              \
  static void over_##name(const float *x, float *y, int n) {                                                           \
    for (int i = 0; i < n; i += CPU_CHUNK) {                                                                           \
      const size_t bytes = (size_t)(n - i < CPU_CHUNK ? n - i : CPU_CHUNK) * sizeof *x;                                \
      float values[CPU_CHUNK] = {0};                                                                                   \
      memcpy(values, x + i, bytes);                                                                                    \
      cpu_##name##_chunk(values);                                                                                      \
      memcpy(y + i, values, bytes);                                                                                    \
    }                                                                                                                  \
  }
OVER_CHUNKS(gelu)
OVER_CHUNKS(gelu_tanh)

__attribute__((visibility("default"))) const vector_function vector_functions[VECTOR_FUNCTIONS] = {
    over_exp,     over_exp_to_one, over_exp_weight, over_expm1,     over_tanh,
    over_sigmoid, over_silu,       over_gelu,       over_gelu_tanh, over_softplus};

#define CONVERSIONS(name)                                                                                              \
  static void round_to_##name(const float *x, uint16_t *y, int n) {                                                    \
    for (int i = 0; i < n; i += CPU_CHUNK)                                                                             \
      cpu_narrow_##name((char *)(y + i), x + i);                                                                       \
  }                                                                                                                    \
  static void widen_##name(const uint16_t *x, float *y, int n) {                                                       \
    for (int i = 0; i < n; i += CPU_CHUNK)                                                                             \
      cpu_widen_##name(y + i, (const char *)(x + i));                                                                  \
  }
CONVERSIONS(bfloat16)
CONVERSIONS(float16)
_Static_assert((int)VECTOR_CHUNK == (int)CPU_CHUNK, "a chunk's floats");

__attribute__((visibility("default")))
const vector_rounding vector_roundings[VECTOR_ROUNDINGS] = {round_to_bfloat16, round_to_float16};
__attribute__((visibility("default")))
const vector_widening vector_widenings[VECTOR_ROUNDINGS] = {widen_bfloat16, widen_float16};
