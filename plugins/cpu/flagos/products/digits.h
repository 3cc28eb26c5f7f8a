/*
 * Numbers that are multiplied by small whole ones, as whole numbers themselves, where the processor multiplies bytes
 * four at a time: signed bytes, the least digit first, times a unit, the power of two that the greatest of a group of
 * numbers needs. Products and their sums are exact then. Of three digits, what is less than 2^-23 of the group's
 * greatest is lost, as it is in a sum of float32 in which that is a term. Numbers that are bfloat16 may have two, if
 * what all of a group lose is at most half of what they, the greatest left out, may have lost when they were rounded.
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_DIGITS_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_DIGITS_H

#include "plugins/cpu/flagos/vectors/lanes.h"

enum { MOST_DIGITS = 3 };

#ifdef __AVX512VNNI__
/* Of the magnitudes' bits; those of infinity are 0x7f800000. */
SPECIALISED uint32_t largest_bits(const float *row, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = fl_float_bits(row[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/* The exponent of the power of two above numbers that may have digits, with a float's bias; one more where a number is
 * so close below it that its digits would be greater than 127. 0: they may not, being infinite, NaN, or so small that
 * their unit would be no normal number. */
SPECIALISED uint32_t exponent_above(const float *row, int64_t n) {
  enum { LEAST = 8 * MOST_DIGITS - 1 };
  uint32_t largest = largest_bits(row, n), exponent = (largest + 0x20000u) >> 23;
  if (!largest)
    return LEAST;
  return largest < 0x7f800000u && exponent >= LEAST ? exponent : 0;
}

/* The unit's own, with a float's bias. */
SPECIALISED uint32_t exponent_of_unit(int n_digits, uint32_t exponent) {
  return exponent + 2 - 8 * (uint32_t)n_digits;
}

SPECIALISED float unit_of(int n_digits, uint32_t exponent) {
  return fl_float_from_bits(exponent_of_unit(n_digits, exponent) << 23);
}

/* The digits of up to LANES numbers: bytes of words, zeros above; 0 behind the last number. */
SPECIALISED __m512i digits_of(int n_digits, const float *row, int64_t n, uint32_t exponent) {
  const __m512i halves = _mm512_set1_epi32(0x808080); /* digits from -128 on are those from 0 on less 128 */
  const __m512 per_unit = _mm512_set1_ps(fl_float_from_bits((254 - exponent_of_unit(n_digits, exponent)) << 23));
  const __m512 x = _mm512_maskz_loadu_ps((__mmask16)(n < LANES ? (1u << n) - 1 : 0xffffu), row);
  const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(x, per_unit));
  return _mm512_xor_si512(_mm512_add_epi32(whole, halves), halves);
}

/* How many digits a group of bfloat16 numbers needs. */
SPECIALISED int digits_for(const float *row, int64_t n, uint32_t exponent) {
  const float greatest = fl_float_from_bits(largest_bits(row, n));
  const __m512 per_unit = _mm512_set1_ps(fl_float_from_bits((254 - exponent_of_unit(2, exponent)) << 23));
  __m512 lost = _mm512_setzero_ps(), all = lost;
  for (int64_t i = 0; i < n; i += LANES) {
    const __mmask16 mask = (__mmask16)(n - i < LANES ? (1u << (n - i)) - 1 : 0xffffu);
    const __m512 x = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, row + i), per_unit);
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    lost = _mm512_add_ps(lost, _mm512_abs_ps(_mm512_sub_ps(x, whole)));
    all = _mm512_add_ps(all, _mm512_abs_ps(x));
  }
  const float others = _mm512_reduce_add_ps(all) - greatest / unit_of(2, exponent);
  return _mm512_reduce_add_ps(lost) <= others * 0x1p-10f ? 2 : MOST_DIGITS;
}

/* Digit `digit` of each word. */
SPECIALISED __m128i one_digit(__m512i digits, int digit) {
  return _mm512_cvtepi32_epi8(_mm512_srl_epi32(digits, _mm_cvtsi32_si128(8 * digit)));
}

/* In units: sums by digit, of which the lower two together fit a word. */
SPECIALISED vector join_sums(int n_digits, const __m512i *sums) {
  const vector lower = (vector)_mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(sums[1], 8), sums[0]));
  if (n_digits == 2)
    return lower;
  return (vector)_mm512_cvtepi32_ps(sums[2]) * 65536.f + lower;
}
#endif

#endif
