/*
 * Elementary functions for loops that compilers vectorise: polynomials in float without branches, tables or calls.
 * NaN stays NaN.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTOR_H
#define FLHOST_CPU_FLAGOS_VECTOR_H

#include <flhost/dtype.h>
#include <math.h>

/* The Taylor series of exp(r) without its first two terms, over r^2: exact enough for |r| <= ln(2) / 2. */
static inline float vector_exp_series(float r) {
  float series = 1.0f / 5040.0f;
  series = series * r + 1.0f / 720.0f;
  series = series * r + 1.0f / 120.0f;
  series = series * r + 1.0f / 24.0f;
  series = series * r + 1.0f / 6.0f;
  return series * r + 0.5f;
}

/* exp(x) to 2 ulp; infinite above 88.8, 0 below -104, NaN stays NaN. */
static inline float vector_exp(float x) {
  const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, found in the low bits */
  float limited = x > 89.0f ? 89.0f : x;
  limited = limited < -104.0f ? -104.0f : limited;
  float shifted = limited * log2_e + shifter;
  float n = shifted - shifter;
  float r = limited - n * ln2_high - n * ln2_low; /* |r| <= ln(2) / 2 */
  float series = vector_exp_series(r) * r + 1.0f;
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

/* exp(x) - 1 for x <= 0, to 3 ulp. */
static inline float vector_expm1(float x) {
  const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
  const float shifter = 12582912.0f;       /* as in vector_exp */
  float limited = x < -80.0f ? -80.0f : x; /* where it is -1 already, and 2^n a normal float yet */
  float shifted = limited * log2_e + shifter;
  float n = shifted - shifter;
  float r = limited - n * ln2_high - n * ln2_low;
  float series = vector_exp_series(r) * r * r + r; /* exp(r) - 1: what is small is not added to 1 */
  float scale = fl_float_from_bits((fl_float_bits(shifted) - fl_float_bits(shifter) + 127u) << 23);
  return series * scale + (scale - 1.0f);
}

/* log(1 + exp(x)), above 20 x itself. Of few numbers: it is not vectorised. */
static inline float softplus(float x) {
  return x > 20.0f ? x : log1pf(expf(x));
}

static inline float vector_sigmoid(float x) {
  return 1.0f / (1.0f + vector_exp(-x));
}

/* -e / (2 + e) with e = exp(-2 |x|) - 1, which is as exact near 0 as elsewhere. */
static inline float vector_tanh(float x) {
  float e = vector_expm1(-2.0f * (x < 0.0f ? -x : x));
  float magnitude = -e / (2.0f + e);
  return fl_float_from_bits((fl_float_bits(magnitude) & 0x7fffffffu) | (fl_float_bits(x) & 0x80000000u));
}

static inline float vector_silu(float x) {
  return x / (1.0f + vector_exp(-x));
}

/* x times the normal distribution function, which is erfc(-x / sqrt(2)) / 2. */
static inline float vector_gelu(float x) {
  const float sqrt_half = 0.70710678f;
  float tail = 0.5f * vector_erfc((x < 0.0f ? -x : x) * sqrt_half);
  return x * (x < 0.0f ? tail : 1.0f - tail);
}

/* 0.5 x (1 + tanh(y)) = x / (1 + exp(-2y)) */
static inline float vector_gelu_tanh(float x) {
  const float sqrt_8_over_pi = 1.59576912f;
  return x / (1.0f + vector_exp(-sqrt_8_over_pi * (x + 0.044715f * (x * x * x))));
}

/* torch.clamp(x, max=limit) and torch.clamp(x, -limit, limit). */
static inline float vector_clamp_above(float x, float limit) {
  return x > limit ? limit : x;
}

static inline float vector_clamp(float x, float limit) {
  return x < -limit ? -limit : vector_clamp_above(x, limit);
}

#endif
