/*
 * Elementary functions for loops that compilers vectorise: polynomials in float without branches, tables or calls.
 * NaN stays NaN. Errors, at most (tests/vector_math/promises.c holds them): exp and expm1 2 ulp; tanh, sigmoid, silu
 * and softplus 3; exp_weight 4 or 6e-8, gelu (gelu.h) and its tanh form 6 or 1e-6, whichever is more.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_VECTOR_H
#define FLHOST_CPU_FLAGOS_VECTORS_VECTOR_H

#include <flhost/dtype.h>
#include <math.h>

/* torch.clamp(x, max=limit) and torch.clamp(x, -limit, limit). */
static inline float vector_clamp_above(float x, float limit) {
  return x > limit ? limit : x;
}

static inline float vector_clamp(float x, float limit) {
  return x < -limit ? -limit : vector_clamp_above(x, limit);
}

/* exp(x) as 2^n exp(r) with |r| <= ln(2) / 2. */
typedef struct vector_power {
  float r;
  float half; /* of 2^n, which itself may be no float; where that were no normal one, 0 */
} vector_power;

/* Adding 1.5 * 2^23 rounds to an integer, found in the low bits; with 126 more these are the exponent of half of 2^n.
 */
static inline vector_power vector_split(float x) {
  const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f, shifter = 12582912.0f + 126.0f;
  float shifted = x * log2_e + shifter, n = shifted - shifter;
  return (vector_power){x - n * ln2_high - n * ln2_low, fl_float_from_bits(fl_float_bits(shifted) << 23)};
}

/* Twice (exp(r) - 1 - r) / r^2, its Taylor series with the term of r^5 taken into those of r and r^3 (a Chebyshev
 * polynomial's worth): off by 1.3e-8 of exp(r). */
static inline float vector_exp_series(float r) {
  float series = 2.7777778e-3f;
  series = series * r + 1.67262466e-2f;
  series = series * r + 8.3333333e-2f;
  series = series * r + 3.33331544e-1f;
  return series * r + 1.0f;
}

/* exp(x) for -87.34 <= x <= 89. */
static inline float vector_exp_within(float x) {
  vector_power power = vector_split(x);
  float twice = vector_exp_series(power.r) * power.r + 2.0f;
  twice = twice * power.r + 2.0f;
  return twice * power.half;
}

static const float vector_exp_least = -87.34f, vector_exp_most = 89.0f;

/* Infinite above 88.73, 0 below -87: a result that would be smaller than 2^-125 is 0. */
static inline float vector_exp(float x) {
  float limited = x > vector_exp_most ? vector_exp_most : x;
  return vector_exp_within(limited < vector_exp_least ? vector_exp_least : limited);
}

/* exp(x) for x <= 0. */
static inline float vector_exp_to_one(float x) {
  return vector_exp_within(x < vector_exp_least ? vector_exp_least : x);
}

/* exp(x) for x <= 0, beside others of which one is 1, as a softmax has them: 2^n 2^r with |r| <= 1/2, a polynomial of
 * least largest error, whose terms are added up by pairs, which wait for each other less than one after the other do.
 * Off by 2e-7 of itself, and by 6e-8 of that more for each that x is below 0; 0 below -87.7. */
static inline float vector_exp_weight(float x) {
  const float log2_e = 1.44269504f, shifter = 12582912.0f + 127.0f;
  float limited = x < -88.0f ? -88.0f : x, shifted = limited * log2_e + shifter, n = shifted - shifter;
  float r = limited * log2_e - n, square = r * r;
  float power = (1.3264727e-3f * r + 9.6715130e-3f) * square + (5.5507336e-2f * r + 2.4022242e-1f);
  power = power * square + (6.9314700e-1f * r + 1.0f);
  return power * fl_float_from_bits(fl_float_bits(shifted) << 23);
}

/* 1 + exp(-x), of NaN some number. By their bits, in two instructions where comparisons of floats take four: as signed
 * numbers those above 0 are ordered, as unsigned ones those below it are the largest, and the other way round. */
static inline float vector_one_plus_exp_minus(float x) {
  const int32_t most = (int32_t)fl_float_bits(-vector_exp_least);
  const uint32_t least = fl_float_bits(-vector_exp_most);
  int32_t bits = (int32_t)fl_float_bits(x);
  uint32_t limited = (uint32_t)(bits < most ? bits : most);
  return 1.0f + vector_exp_within(-fl_float_from_bits(limited < least ? limited : least));
}

/* exp(x) - 1 for x <= 0 */
static inline float vector_expm1(float x) {
  float limited = x < -80.0f ? -80.0f : x; /* where it is -1 already, and 2^n a normal float yet */
  vector_power power = vector_split(limited);
  float twice = vector_exp_series(power.r) * power.r + 2.0f;
  return twice * power.r * power.half + (2.0f * power.half - 1.0f); /* what is small is not added to 1 */
}

/* log(1 + exp(x)), which is the larger of x and 0, and log(1 + exp(-|x|)): this as 2 artanh(s), by its series. */
static inline float vector_softplus(float x) {
  float power = vector_exp_to_one(x < 0.0f ? x : -x), s = power / (2.0f + power), square = s * s;
  float series = 1.0f / 13.0f;
  series = series * square + 1.0f / 11.0f;
  series = series * square + 1.0f / 9.0f;
  series = series * square + 1.0f / 7.0f;
  series = series * square + 1.0f / 5.0f;
  series = series * square + 1.0f / 3.0f;
  return (x > 0.0f ? x : 0.0f) + 2.0f * (s * square * series + s);
}

/* Of NaN some number: for products with what is NaN then, too. */
static inline float vector_sigmoid_factor(float x) {
  return 1.0f / vector_one_plus_exp_minus(x);
}

static inline float vector_sigmoid(float x) {
  return x == x ? vector_sigmoid_factor(x) : x;
}

/* -e / (2 + e) with e = exp(-2 |x|) - 1, which is as exact near 0 as elsewhere. */
static inline float vector_tanh(float x) {
  float e = vector_expm1(-2.0f * (x < 0.0f ? -x : x));
  float magnitude = -e / (2.0f + e);
  return fl_float_from_bits((fl_float_bits(magnitude) & 0x7fffffffu) | (fl_float_bits(x) & 0x80000000u));
}

static inline float vector_silu(float x) {
  return x / vector_one_plus_exp_minus(x);
}

#endif
