/*
 * Elementary functions of sampling, for loops that compilers vectorise: exponentials in double, since probabilities are
 * added up to a bound at which a token stays or goes, and logarithms of random numbers in float.
 */
#ifndef FLHOST_CPU_FLAGOS_SAMPLING_PROBABILITY_H
#define FLHOST_CPU_FLAGOS_SAMPLING_PROBABILITY_H

#include <flhost/dtype.h>
#include <math.h>
#include <string.h>

/* exp(x) for x <= 0, within 1e-15 of it; below -700 as there, 1e-304. 2^n exp(r), |r| <= ln(2) / 2, by the Taylor
 * series of exp(r). Adding 1.5 * 2^52 rounds to an integer, found in the low bits. */
static inline double probability_exp(double x) {
  const double log2_e = 1.4426950408889634, ln2_high = 0.693147180369123816490, ln2_low = 1.90821492927058770002e-10;
  const double shifter = 6755399441055744.0 + 1023.0;
  double limited = x < -700.0 ? -700.0 : x, shifted = limited * log2_e + shifter, n = shifted - shifter, power;
  double r = limited - n * ln2_high - n * ln2_low, series = 1.0 / 479001600.0;
  uint64_t bits;
  series = series * r + 1.0 / 39916800.0;
  series = series * r + 1.0 / 3628800.0;
  series = series * r + 1.0 / 362880.0;
  series = series * r + 1.0 / 40320.0;
  series = series * r + 1.0 / 5040.0;
  series = series * r + 1.0 / 720.0;
  series = series * r + 1.0 / 120.0;
  series = series * r + 1.0 / 24.0;
  series = series * r + 1.0 / 6.0;
  series = series * r + 0.5;
  series = series * r + 1.0;
  memcpy(&bits, &shifted, sizeof bits);
  bits <<= 52;
  memcpy(&power, &bits, sizeof power);
  return (series * r + 1.0) * power;
}

/* log(x), within 2 ulp of it; -infinity of 0, NaN of what is below. Infinity is taken for a number. 2^e (1 + f) with 1
 * + f between sqrt(1/2) and sqrt(2), and log(1 + f) as 2 artanh(f / (2 + f)), by its series. */
static inline float probability_log(float x) {
  const float ln2 = 0.693147181f;
  float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x, scale = x < 1.17549435e-38f ? -23.0f : 0.0f;
  uint32_t bits = fl_float_bits(scaled);
  int32_t exponent = (int32_t)(bits - 0x3f3504f3u) >> 23;
  float f = fl_float_from_bits(bits - ((uint32_t)exponent << 23)) - 1.0f, s = f / (2.0f + f), square = s * s;
  float series = 2.0f / 9.0f;
  series = series * square + 2.0f / 7.0f;
  series = series * square + 2.0f / 5.0f;
  series = series * square + 2.0f / 3.0f;
  series = series * square * s + 2.0f * s;
  float logarithm = ((float)exponent + scale) * ln2 + series;
  return x > 0.0f ? logarithm : x == 0.0f ? -INFINITY : NAN;
}

/* -log(1 - x), which next to 0 is as exact as elsewhere: what 1 - x loses of x is in its logarithm, too. */
static inline float probability_minus_log1p_minus(float x) {
  float rest = 1.0f - x;
  return rest == 1.0f ? x : -probability_log(rest) * (x / (1.0f - rest));
}

#endif
