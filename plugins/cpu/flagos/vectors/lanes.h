/*
 * Vectors of floats as wide as the instruction set that a file is compiled for, how many of them it holds, and loading
 * them from a row of any element type: for kernels that keep sums in registers, where a block (block.h) in between
 * would cost as much as the sum.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_LANES_H
#define FLHOST_CPU_FLAGOS_VECTORS_LANES_H

#include "plugins/cpu/cpu.h"

#include "plugins/cpu/flagos/vectors/half.h"
#include <string.h>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
enum { LANES = 16, REGISTERS = 32 };
#elif defined(__AVX2__)
enum { LANES = 8, REGISTERS = 16 };
#elif defined(__aarch64__)
enum { LANES = 4, REGISTERS = 24 }; /* of 32: what x86 multiplies with where it lies in memory is loaded first */
#else
enum { LANES = 4, REGISTERS = 16 };
#endif
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
/* Weights that are bytes in which two numbers lie may begin anywhere. */
typedef uint32_t vector_words __attribute__((vector_size(4 * LANES), aligned(1), may_alias));

#define UNROLL _Pragma("GCC unroll 16")
/* For loops over LANES that become one vector's instructions, as they do not once they are unrolled. */
#define LANEWISE _Pragma("GCC unroll 1")
/* For functions of which the compiler shall make one for each constant that they are called with. */
#define SPECIALISED static inline __attribute__((always_inline))

SPECIALISED vector load_halves(const uint16_t *from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
#elif defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
#elif defined(__aarch64__)
  return (vector)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
#else
  vector to = {0};
  for (int i = 0; i < LANES; i++)
    to[i] = cpu_half_to_float(from[i]);
  return to;
#endif
}

/* Elements of a row from `first` on. */
SPECIALISED vector load_lanes(cpu_dtype dtype, const void *row, int64_t first) {
  typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(1), may_alias));
  const uint16_t *from = (const uint16_t *)row + first;
  if (dtype == CPU_FLOAT32)
    return *(const vector *)((const float *)row + first);
  if (dtype == CPU_FLOAT16)
    return load_halves(from);
  return (vector)(__builtin_convertvector(*(const halves *)from, vector_words) << 16);
}

/* Half 0 or 1 of the PAIR elements of a row from `first` on, as floats. Those of bfloat16 are taken apart in another
 * way, by half as many instructions: half 0 are all at even places. */
enum { PAIR = 2 * LANES };

SPECIALISED vector load_half(cpu_dtype dtype, const void *row, int64_t first, int half) {
  const uint16_t *from = (const uint16_t *)row + first;
  if (dtype == CPU_FLOAT32)
    return *(const vector *)((const float *)row + first + half * LANES);
  if (dtype == CPU_FLOAT16)
    return load_halves(from + half * LANES);
  vector_words words = *(const vector_words *)from;
  bool is_low = half == (__BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__);
  return is_low ? (vector)(words << 16) : (vector)(words & 0xffff0000u);
}

/* What is at even places of two vectors, one behind the other, or at odd ones. */
#define FOUR_PLACES(i)  i, (i) + 2, (i) + 4, (i) + 6
#define EIGHT_PLACES(i) FOUR_PLACES(i), FOUR_PLACES((i) + 8)
#if defined(__AVX512F__)
#define PLACES(i) EIGHT_PLACES(i), EIGHT_PLACES((i) + 16)
#elif defined(__AVX2__)
#define PLACES(i) EIGHT_PLACES(i)
#else
#define PLACES(i) FOUR_PLACES(i)
#endif
SPECIALISED vector take_even(vector a, vector b) {
  return __builtin_shufflevector(a, b, PLACES(0));
}

SPECIALISED vector take_odd(vector a, vector b) {
  return __builtin_shufflevector(a, b, PLACES(1));
}

/* The same of each 16 bytes of both, or of these as a whole: what takes one instruction. */
#define QUARTER_PLACES(i) i, (i) + 2, (i) + LANES, (i) + LANES + 2
#define QUARTER(i)        4 * (i), 4 * (i) + 1, 4 * (i) + 2, 4 * (i) + 3
#if defined(__AVX512F__)
#define LOCAL_PLACES(i) QUARTER_PLACES(i), QUARTER_PLACES((i) + 4), QUARTER_PLACES((i) + 8), QUARTER_PLACES((i) + 12)
#define WHOLE_PLACES(i) QUARTER(i), QUARTER((i) + 2), QUARTER((i) + 4), QUARTER((i) + 6)
#elif defined(__AVX2__)
#define LOCAL_PLACES(i) QUARTER_PLACES(i), QUARTER_PLACES((i) + 4)
#define WHOLE_PLACES(i) QUARTER(i), QUARTER((i) + 2)
#else
#define LOCAL_PLACES(i) QUARTER_PLACES(i)
#define WHOLE_PLACES(i) QUARTER(i)
#endif

SPECIALISED void take_apart(bool is_local, vector a, vector b, vector *even, vector *odd) {
  *even = is_local ? __builtin_shufflevector(a, b, LOCAL_PLACES(0)) : __builtin_shufflevector(a, b, WHOLE_PLACES(0));
  *odd = is_local ? __builtin_shufflevector(a, b, LOCAL_PLACES(1)) : __builtin_shufflevector(a, b, WHOLE_PLACES(1));
}

/* Columns become rows: each step takes what is at even places of two neighbours, and at odd ones; the first two of each
 * 16 bytes. */
SPECIALISED void transpose(vector rows[LANES]) {
  UNROLL for (int step = 1; step < LANES; step *= 2) {
    vector parts[LANES];
    UNROLL for (int i = 0; i < LANES / 2; i++)
        take_apart(step < 4, rows[2 * i], rows[2 * i + 1], &parts[i], &parts[i + LANES / 2]);
    UNROLL for (int i = 0; i < LANES; i++) rows[i] = parts[i];
  }
}

/* Where the processor has that: sum += products of PAIR elements of bfloat16, those of two neighbours in one lane. */
#ifdef __AVX512BF16__
SPECIALISED vector add_pairs(vector sum, __m512i a, __m512i b) {
  return (vector)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#endif

/*
 * Brings `bytes` into the second-level cache while others are computed with. What is fetched so, call after call,
 * should be in the order in which it lies in memory, whatever the order of computing: only then processors read ahead
 * of that by themselves, and by what they are asked for alone they reach half of their memory's bandwidth. Memory need
 * not be there.
 */
SPECIALISED void fetch(const char *next, int64_t bytes) {
  UNROLL for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(next + line, 0, 2);
}

/* Halves are added until one number is left. */
SPECIALISED float add_lanes(vector sum) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_ps((__m512)sum);
#else
  float lanes[LANES];
  memcpy(lanes, &sum, sizeof lanes);
  for (int n = LANES / 2; n; n /= 2)
    for (int i = 0; i < n; i++)
      lanes[i] += lanes[i + n];
  return lanes[0];
#endif
}

/* In lane i what the lanes of sums[i] make, which are no longer there. Each step adds neighbours, as transpose takes
 * them apart: a third of the instructions of add_lanes for each. */
SPECIALISED vector add_lanes_of_each(vector sums[LANES]) {
  UNROLL for (int step = 1; step < LANES; step *= 2) {
    UNROLL for (int i = 0; i < LANES / 2; i++) {
      vector even, odd;
      if (i >= LANES / 2 / step)
        break;
      take_apart(step < 4, sums[2 * i], sums[2 * i + 1], &even, &odd);
      sums[i] = even + odd;
    }
  }
  return sums[0];
}

/* The sum of `n` numbers, a multiple of LANES. */
SPECIALISED float sum_of_lanes(const float *numbers, int n) {
  vector sum = *(const vector *)numbers;
  UNROLL for (int i = LANES; i < n; i += LANES) sum += *(const vector *)(numbers + i);
  return add_lanes(sum);
}

#endif
