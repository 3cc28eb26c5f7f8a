/*
 * Weights of 4 bits times a few rows, where the processor multiplies pairs of bfloat16: the inner loops of
 * four_bit_rows.c. A shift brings a nibble to the bottom of each half of a word, a table makes both the values they
 * stand for, and one instruction multiplies the pair with one of x and adds: a third of what floats take. x is a pair
 * of bfloat16 itself, or such parts of its numbers as add up to them, so that nothing is rounded.
 */
#ifndef FLHOST_CPU_FLAGOS_FOUR_BIT_PAIRS_H
#define FLHOST_CPU_FLAGOS_FOUR_BIT_PAIRS_H

#include "plugins/cpu/flagos/lanes.h"

enum {
  PAIRS = 4,      /* of a word: nibbles p and p + 4 */
  MOST_PARTS = 3, /* bfloat16 numbers have 8 bits: float16's are two of them, float32's three */
};

#ifdef __AVX512BF16__
/* Into a register: compilers would read the words again for each of their nibbles. */
SPECIALISED vector_words load_once(const void *from) {
  vector_words words = *(const vector_words *)from;
  __asm__("" : "+v"(words));
  return words;
}

/* Of each 16 bits the low 5 say which. */
SPECIALISED __m512bh look_up(__m512i table, vector_words codes) {
  return (__m512bh)_mm512_permutexvar_epi16((__m512i)codes, table);
}

/* All 16 of them twice. */
SPECIALISED __m512i table_of(const uint16_t *values) {
  return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)values));
}

SPECIALISED vector add_pairs(vector sum, __m512bh values, __m512i x) {
  return (vector)_mm512_dpbf16_ps((__m512)sum, values, (__m512bh)x);
}

/* Words of which the lower half is that of `a`, or what was its upper one, and the upper half that of `b`. */
SPECIALISED vector_words lower_halves(vector_words a, vector_words b) {
  return (vector_words)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)a, (__m512i)(b << 16));
}
SPECIALISED vector_words upper_halves(vector_words a, vector_words b) {
  return (vector_words)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)(a >> 16), (__m512i)b);
}
#endif

#endif
