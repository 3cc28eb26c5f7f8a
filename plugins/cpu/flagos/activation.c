/*
 * Gated activations, a block of a row at a time: exp and erf by polynomials without branches, so that the loops are
 * vectorised; the two roundings of vLLM's kernels (activation, then product).
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/rows.h"

#include <flhost/dtype.h>
#include <string.h>

/* exp(x) to 2 ulp; infinite above 88.8, 0 below -104, NaN stays NaN. */
static inline float vector_exp(float x) {
  const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, found in the low bits */
  float limited = x > 89.0f ? 89.0f : x;
  limited = limited < -104.0f ? -104.0f : limited;
  float shifted = limited * log2_e + shifter;
  float n = shifted - shifter;
  float r = limited - n * ln2_high - n * ln2_low; /* |r| <= ln(2) / 2, where the series to r^7 is exact enough */
  float series = 1.0f / 5040.0f;
  series = series * r + 1.0f / 720.0f;
  series = series * r + 1.0f / 120.0f;
  series = series * r + 1.0f / 24.0f;
  series = series * r + 1.0f / 6.0f;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  /* 2^n in two factors: either is a normal float where 2^n itself is not. */
  int32_t exponent = (int32_t)(fl_float_bits(shifted) - fl_float_bits(shifter));
  int32_t half = exponent >> 1;
  float scale1 = fl_float_from_bits((uint32_t)(half + 127) << 23);
  float scale2 = fl_float_from_bits((uint32_t)(exponent - half + 127) << 23);
  return series * scale1 * scale2;
}

/* erfc(z) for z >= 0, relative error below 1e-6 for z < 4. exp(z^2) erfc(z) / t with t = 1 / (1 + 0.3 z) is smooth; its
 * interpolation at the 9 Chebyshev points of 0 <= z <= 10.5, in s from -1 to 1, is good to 3e-8. */
static inline float vector_erfc(float z) {
  float t = 1.0f / (1.0f + 0.3f * z);
  float s = 2.6349206f * t - 1.6349206f;
  float smooth = -5.634746986e-05f;
  smooth = smooth * s - 1.783180669e-04f;
  smooth = smooth * s + 6.001702357e-04f;
  smooth = smooth * s + 6.563232682e-03f;
  smooth = smooth * s + 2.825705251e-02f;
  smooth = smooth * s + 8.162070711e-02f;
  smooth = smooth * s + 1.771702872e-01f;
  smooth = smooth * s + 3.009986777e-01f;
  smooth = smooth * s + 4.050245162e-01f;
  return smooth * t * vector_exp(-z * z);
}

static void silu(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = values[i] / (1.0f + vector_exp(-values[i]));
}

/* x times the normal distribution function, which is erfc(-x / sqrt(2)) / 2. */
static void gelu(float *values, int64_t n) {
  const float sqrt_half = 0.70710678f;
  for (int64_t i = 0; i < n; i++) {
    float x = values[i];
    float tail = 0.5f * vector_erfc((x < 0.0f ? -x : x) * sqrt_half);
    values[i] = x * (x < 0.0f ? tail : 1.0f - tail);
  }
}

/* 0.5 x (1 + tanh(y)) = x / (1 + exp(-2y)) */
static void gelu_tanh(float *values, int64_t n) {
  const float sqrt_8_over_pi = 1.59576912f;
  for (int64_t i = 0; i < n; i++) {
    float x = values[i];
    values[i] = x / (1.0f + vector_exp(-sqrt_8_over_pi * (x + 0.044715f * (x * x * x))));
  }
}

static void gated_row(const cpu_block_type *type, void (*activation)(float *, int64_t), const void *x, void *out,
                      int64_t d) {
  float gate[CPU_BLOCK], up[CPU_BLOCK];
  for (int64_t first = 0; first < d; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(d - first);
    type->load(gate, x, first, n);
    type->load(up, x, d + first, n);
    activation(gate, n);
    type->round(gate, n);
    for (int64_t i = 0; i < n; i++)
      gate[i] *= up[i];
    type->store(out, first, gate, n);
  }
}

static fl_status gated(fl_call *call, void (*activation)(float *, int64_t), DLTensor *x, DLTensor *out) {
  DLTensor *const tensors[] = {x, out};
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t d = x->shape[x->ndim - 1] / 2;
  if (dtype == CPU_OTHER)
    return fl_fail(call, FL_ENOTSUP, "element type of 'x': float32, float16 or bfloat16 expected");
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    gated_row(&cpu_block_types[dtype], activation, rows.at[0], rows.at[1], d);
  return FL_OK;
}

/* silu_and_mul(x) -> out */
fl_status cpu_flagos_silu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, silu, cpu_tensor(call, 0), cpu_tensor(call, 1));
}

/* gelu_and_mul(x, approximate) -> out */
fl_status cpu_flagos_gelu_and_mul(void *self, fl_call *call) {
  const char *approximate = call->values[1].v.s;
  (void)self;
  if (!strcmp(approximate, "none"))
    return gated(call, gelu, cpu_tensor(call, 0), cpu_tensor(call, 2));
  if (!strcmp(approximate, "tanh"))
    return gated(call, gelu_tanh, cpu_tensor(call, 0), cpu_tensor(call, 2));
  return fl_fail(call, FL_EINVAL, "argument 'approximate' is \"%s\", expected \"none\" or \"tanh\"", approximate);
}
