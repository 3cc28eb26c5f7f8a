/*
 * Numbers that are multiplied by small whole ones, as whole numbers themselves, where the processor multiplies bytes
 * four at a time: 24 bits in three signed bytes, the least digit first, times a unit, the power of two that the
 * greatest of a group of numbers needs. Products and their sums are exact then; what is less than 2^-23 of the group's
 * greatest is lost, as it is in a sum of float32 in which that is a term.
 */
#ifndef FLHOST_CPU_FLAGOS_DIGITS_H
#define FLHOST_CPU_FLAGOS_DIGITS_H

#include "plugins/cpu/flagos/lanes.h"

enum { DIGITS = 3 };

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
  enum { LEAST = 23 };
  uint32_t largest = largest_bits(row, n), exponent = (largest + 0x20000u) >> 23;
  if (!largest)
    return LEAST;
  return largest < 0x7f800000u && exponent >= LEAST ? exponent : 0;
}

SPECIALISED float unit_of(uint32_t exponent) {
  return fl_float_from_bits((exponent - 22) << 23);
}

/* The digits of up to LANES numbers: bytes of words, of which the highest is none; 0 behind the last number. */
SPECIALISED __m512i digits_of(const float *row, int64_t n, uint32_t exponent) {
  const __m512i halves = _mm512_set1_epi32(0x808080); /* digits from -128 on are those from 0 on less 128 */
  const __m512 per_unit = _mm512_set1_ps(fl_float_from_bits((276 - exponent) << 23));
  const __m512 x = _mm512_maskz_loadu_ps((__mmask16)(n < LANES ? (1u << n) - 1 : 0xffffu), row);
  const __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(x, per_unit));
  return _mm512_xor_si512(_mm512_add_epi32(whole, halves), halves);
}

/* Digit `digit` of each word. */
SPECIALISED __m128i one_digit(__m512i digits, int digit) {
  return _mm512_cvtepi32_epi8(_mm512_srl_epi32(digits, _mm_cvtsi32_si128(8 * digit)));
}

/* In units: sums by digit, of which the lower two together fit a word. */
SPECIALISED vector join_sums(const __m512i *sums) {
  const __m512i lower = _mm512_add_epi32(_mm512_slli_epi32(sums[1], 8), sums[0]);
  return (vector)_mm512_cvtepi32_ps(sums[2]) * 65536.f + (vector)_mm512_cvtepi32_ps(lower);
}
#endif

#endif
