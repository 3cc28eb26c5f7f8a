/*
 * Chunks: as many elements of a row as a kernel has in registers at once. A kernel is a function of one element, which
 * a loop over the lanes of a chunk calls between load and store. Of that loop, whose length is fixed, the compiler
 * makes vector instructions and leaves out the arrays, so that an element is loaded, converted, computed with, rounded
 * and stored in one go, and a formula stands once for all element types and instruction sets.
 *
 * What is inlined here has to be, with the element type as a constant: CPU_TEMPLATE.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_CHUNK_H
#define FLHOST_CPU_FLAGOS_VECTORS_CHUNK_H

#include "plugins/cpu/cpu.h"

#include "plugins/cpu/flagos/vectors/half.h"
#include <math.h>
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#define CPU_TEMPLATE static inline __attribute__((always_inline))

/* Two vectors of AVX-512. Loops of 16 or less gcc unrolls before it looks for vectors in them. */
enum { CPU_CHUNK = 32 };

/* ------------------------------------------------------------------------------------------------- element types */

/* Elements in memory of any type. */
typedef uint16_t __attribute__((may_alias)) cpu_element16;
typedef float __attribute__((may_alias)) cpu_element32;

CPU_TEMPLATE void cpu_widen_float16(float *to, const char *from) {
#if defined __AVX512F__
  for (int i = 0; i < CPU_CHUNK; i += 16)
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(from + 2 * i))));
#elif defined __F16C__
  for (int i = 0; i < CPU_CHUNK; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(from + 2 * i))));
#else
  const cpu_element16 *halves = (const void *)from;
  for (int i = 0; i < CPU_CHUNK; i++)
    to[i] = cpu_half_to_float(halves[i]);
#endif
}

CPU_TEMPLATE void cpu_narrow_float16(char *to, const float *from) {
#if defined __AVX512F__
  for (int i = 0; i < CPU_CHUNK; i += 16)
    _mm256_storeu_si256((void *)(to + 2 * i), _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined __F16C__
  for (int i = 0; i < CPU_CHUNK; i += 16) {
    __m128i low = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT),
            high = _mm256_cvtps_ph(_mm256_loadu_ps(from + i + 8), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((void *)(to + 2 * i), _mm256_set_m128i(high, low));
  }
#elif defined __aarch64__ /* gcc 12 makes no vectors of the loop below here */
  for (int i = 0; i < CPU_CHUNK; i += 4)
    vst1_u16((void *)(to + 2 * i), vreinterpret_u16_f16(vcvt_f16_f32(vld1q_f32(from + i))));
#else
  cpu_element16 *halves = (void *)to;
  for (int i = 0; i < CPU_CHUNK; i++)
    halves[i] = cpu_float_to_half(from[i]);
#endif
}

#if defined __AVX512BF16__ && !defined __AMX_TILE__
#define CPU_PERMUTES_WORDS /* in one instruction, and fast: measured on AMD's, not on those with AMX */
#endif

#ifdef CPU_PERMUTES_WORDS
/* Each number of bfloat16 comes to the upper half of a lane. */
CPU_TEMPLATE void cpu_widen_words(float *to, __m512i numbers) {
  static const uint16_t places[CPU_CHUNK][2] = {{0, 0},  {0, 1},  {0, 2},  {0, 3},  {0, 4},  {0, 5},  {0, 6},  {0, 7},
                                                {0, 8},  {0, 9},  {0, 10}, {0, 11}, {0, 12}, {0, 13}, {0, 14}, {0, 15},
                                                {0, 16}, {0, 17}, {0, 18}, {0, 19}, {0, 20}, {0, 21}, {0, 22}, {0, 23},
                                                {0, 24}, {0, 25}, {0, 26}, {0, 27}, {0, 28}, {0, 29}, {0, 30}, {0, 31}};
  const __mmask32 upper = 0xaaaaaaaa;
  for (int i = 0; i < CPU_CHUNK; i += 16)
    _mm512_storeu_si512(to + i, _mm512_maskz_permutexvar_epi16(upper, _mm512_loadu_si512(places[i]), numbers));
}
#endif

CPU_TEMPLATE void cpu_widen_bfloat16(float *to, const char *from) {
#if defined CPU_PERMUTES_WORDS
  cpu_widen_words(to, _mm512_loadu_si512(from));
#elif defined __AVX2__ && !defined __AVX512F__
  for (int i = 0; i < CPU_CHUNK; i += 8) {
    __m256i lower = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(from + 2 * i)));
    _mm256_storeu_si256((void *)(to + i), _mm256_slli_epi32(lower, 16));
  }
#else
  const cpu_element16 *halves = (const void *)from;
  for (int i = 0; i < CPU_CHUNK; i++)
    to[i] = fl_bf16_to_float(halves[i]);
#endif
}

/* The upper half of the result is fl_float_to_bf16(value), but for a NaN's bits. It stays one if its lower half is 0,
 * as that of all is which come of bfloat16 numbers or of none; cpu_load_other sees to the rest. */
CPU_TEMPLATE uint32_t cpu_round_upper_half(float value) {
  uint32_t bits = fl_float_bits(value);
  return bits + 0x7fffu + (bits >> 16 & 1u);
}

/* Of numbers below 1 << 16. */
CPU_TEMPLATE void cpu_narrow_integers(char *to, const uint32_t *from) {
#if defined __AVX2__ && !defined __AVX512F__
  for (int i = 0; i < CPU_CHUNK; i += 16) {
    __m256i low = _mm256_loadu_si256((const void *)(from + i)), high = _mm256_loadu_si256((const void *)(from + i + 8));
    /* of 8, 8 and 8, 8 numbers the packed are 4 of each in turn */
    _mm256_storeu_si256((void *)(to + 2 * i), _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8));
  }
#else
  cpu_element16 *numbers = (void *)to;
  for (int i = 0; i < CPU_CHUNK; i++)
    numbers[i] = (uint16_t)from[i];
#endif
}

#ifdef __AVX512BF16__
CPU_TEMPLATE __m512i cpu_narrowed_words(const float *from) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
}
#endif

CPU_TEMPLATE void cpu_narrow_bfloat16(char *to, const float *from) {
#ifdef __AVX512BF16__
  _mm512_storeu_si512(to, cpu_narrowed_words(from));
#else
  uint32_t rounded[CPU_CHUNK];
  for (int i = 0; i < CPU_CHUNK; i++)
    rounded[i] = cpu_round_upper_half(from[i]) >> 16;
  cpu_narrow_integers(to, rounded);
#endif
}

/* Not memcpy: that of so much the compiler makes through memory. */
CPU_TEMPLATE void cpu_copy_float32(char *to, const char *from) {
  cpu_element32 *out = (void *)to;
  const cpu_element32 *in = (const void *)from;
  for (int i = 0; i < CPU_CHUNK; i++)
    out[i] = in[i];
}

/* As fl_f16_to_float(fl_float_to_f16(value)), in float: next to `coarse` the floats are as far apart as float16's are
 * next to the value, so the addition rounds. */
CPU_TEMPLATE float cpu_round_float16(float value) {
  uint32_t bits = fl_float_bits(value), magnitude = bits & 0x7fffffffu;
  int32_t exponent = (int32_t)(magnitude & 0x7f800000u);
  exponent = exponent < 113 << 23 ? 113 << 23 : exponent; /* float16's denormals lie as the least normal numbers do */
  float coarse = fl_float_from_bits((uint32_t)exponent + (13u << 23));
  float rounded = (fl_float_from_bits(magnitude) + coarse) - coarse;
  rounded = fl_float_from_bits(magnitude) >= 65520.0f ? INFINITY : rounded; /* NaN is not */
  return fl_float_from_bits(fl_float_bits(rounded) | (bits & 0x80000000u));
}

/* The value as an element of this type holds it. */
CPU_TEMPLATE float cpu_round(cpu_dtype dtype, float value) {
  return dtype == CPU_BFLOAT16  ? fl_float_from_bits(cpu_round_upper_half(value) & 0xffff0000u)
         : dtype == CPU_FLOAT16 ? cpu_round_float16(value)
                                : value;
}

/* The same of a chunk, but that a NaN may lose what bits the type does not have. */
CPU_TEMPLATE void cpu_round_chunk(cpu_dtype dtype, float *values) {
#if defined __AVX512F__ || defined __F16C__
  if (dtype == CPU_FLOAT16) {
    char halves[2 * CPU_CHUNK];
    cpu_narrow_float16(halves, values);
    cpu_widen_float16(values, halves);
    return;
  }
#endif
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = cpu_round(dtype, values[i]);
}

/* Of numbers that nothing is multiplied with any more: what is smaller than a normal one may become 0. */
CPU_TEMPLATE void cpu_round_last(cpu_dtype dtype, float *values) {
#ifdef CPU_PERMUTES_WORDS
  if (dtype == CPU_BFLOAT16) {
    cpu_widen_words(values, cpu_narrowed_words(values));
    return;
  }
#endif
  cpu_round_chunk(dtype, values);
}

CPU_TEMPLATE void cpu_widen(cpu_dtype dtype, float *to, const char *from) {
  if (dtype == CPU_FLOAT32)
    cpu_copy_float32((char *)to, from);
  else if (dtype == CPU_FLOAT16)
    cpu_widen_float16(to, from);
  else
    cpu_widen_bfloat16(to, from);
}

CPU_TEMPLATE void cpu_narrow(cpu_dtype dtype, char *to, const float *from) {
  if (dtype == CPU_FLOAT32)
    cpu_copy_float32(to, (const char *)from);
  else if (dtype == CPU_FLOAT16)
    cpu_narrow_float16(to, from);
  else
    cpu_narrow_bfloat16(to, from);
}

/* --------------------------------------------------------------------------------------------------- parts of rows */

/* Elements `first` to first + n - 1 of a row, n <= CPU_CHUNK; further lanes are 0. */
CPU_TEMPLATE void cpu_load(cpu_dtype dtype, float *to, const void *row, int64_t first, int64_t n) {
  const char *from = (const char *)row + first * cpu_dtype_size(dtype);
  _Alignas(64) char part[CPU_CHUNK * sizeof(float)] = {0};
  if (n == CPU_CHUNK) {
    cpu_widen(dtype, to, from);
    return;
  }
  memcpy(part, from, (size_t)(n * cpu_dtype_size(dtype)));
  cpu_widen(dtype, to, part);
}

/* How far ahead is fetched, in bytes, and to which cache: into the second more lines can be under way at once, by which
 * AMD's processors sum up rows a third faster. */
#ifdef __AMX_TILE__
enum { CPU_AHEAD = 2048, CPU_NEARNESS = 3 };
#else
enum { CPU_AHEAD = 4096, CPU_NEARNESS = 2 };
#endif

/* Of a row that is read once, and computed with for so long that the processor itself does not look far enough ahead:
 * what lies so far behind elements `first` to first + n - 1 is fetched, lest memory wait for the processor. */
CPU_TEMPLATE void cpu_fetch_ahead(cpu_dtype dtype, const void *row, int64_t first, int64_t n) {
  const int64_t bytes = n < CPU_CHUNK ? 0 : CPU_CHUNK * cpu_dtype_size(dtype);
  const char *next = (const char *)row + first * cpu_dtype_size(dtype) + CPU_AHEAD;
  for (int64_t at = 0; at < bytes; at += 64)
    __builtin_prefetch(next + at, 0, CPU_NEARNESS);
}

/* The same as cpu_load of such a row. */
CPU_TEMPLATE void cpu_load_ahead(cpu_dtype dtype, float *to, const void *row, int64_t first, int64_t n) {
  cpu_fetch_ahead(dtype, row, first, n);
  cpu_load(dtype, to, row, first, n);
}

/* Both where little is computed: of float32 only processors with AMX do not look far enough ahead by themselves then,
 * and what others fetch takes them up to a fifth of their time. */
CPU_TEMPLATE void cpu_fetch_next(cpu_dtype dtype, const void *row, int64_t first, int64_t n) {
#ifdef __AMX_TILE__
  const bool looks_ahead = false;
#else
  const bool looks_ahead = dtype == CPU_FLOAT32;
#endif
  if (!looks_ahead)
    cpu_fetch_ahead(dtype, row, first, n);
}

CPU_TEMPLATE void cpu_load_next(cpu_dtype dtype, float *to, const void *row, int64_t first, int64_t n) {
  cpu_fetch_next(dtype, row, first, n);
  cpu_load(dtype, to, row, first, n);
}

/* cpu_load of a tensor that may have another type than those of the results: a NaN gets bits that all types know. */
CPU_TEMPLATE void cpu_load_other(cpu_dtype results, cpu_dtype dtype, float *to, const void *row, int64_t first,
                                 int64_t n) {
  cpu_load(dtype, to, row, first, n);
  for (int i = 0; i < CPU_CHUNK && results == CPU_BFLOAT16 && dtype != CPU_BFLOAT16; i++)
    to[i] = to[i] != to[i] ? fl_float_from_bits(0x7fc00000u) : to[i];
}

/* While a row that lies in a cache is computed with, the next one can come there: else memory waits for the processor,
 * and the other way round. `next` may be any address; a short row comes into the first cache, from which a longer one
 * would displace the present one. */
CPU_TEMPLATE void cpu_prefetch_chunk(cpu_dtype dtype, const char *next, bool is_short, int64_t first) {
  const int64_t bytes = CPU_CHUNK * cpu_dtype_size(dtype);
  next += first * cpu_dtype_size(dtype);
  for (int64_t at = 0; at < bytes && is_short; at += 64)
    __builtin_prefetch(next + at);
  for (int64_t at = 0; at < bytes && !is_short; at += 64)
    __builtin_prefetch(next + at, 0, 2);
}

CPU_TEMPLATE void cpu_store(cpu_dtype dtype, void *row, int64_t first, const float *from, int64_t n) {
  _Alignas(64) char part[CPU_CHUNK * sizeof(float)];
  char *to = (char *)row + first * cpu_dtype_size(dtype);
  if (n == CPU_CHUNK) {
    cpu_narrow(dtype, to, from);
    return;
  }
  cpu_narrow(dtype, part, from);
  memcpy(to, part, (size_t)(n * cpu_dtype_size(dtype)));
}

/* Writes whole vectors to aligned memory without reading it into a cache first. */
CPU_TEMPLATE void cpu_write_around(char *to, const char *from, int64_t bytes) {
#if defined __AVX512F__
  for (int64_t i = 0; i < bytes; i += 64)
    _mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
#elif defined __AVX__
  for (int64_t i = 0; i < bytes; i += 32)
    _mm256_stream_si256((void *)(to + i), _mm256_loadu_si256((const void *)(from + i)));
#elif defined __SSE2__
  for (int64_t i = 0; i < bytes; i += 16)
    _mm_stream_si128((void *)(to + i), _mm_loadu_si128((const void *)(from + i)));
#else
  memcpy(to, from, (size_t)bytes);
#endif
}

/* The same as cpu_store, around the caches if `around`: then the row is one of cpu_rows_around. */
CPU_TEMPLATE void cpu_store_around(cpu_dtype dtype, void *row, int64_t first, const float *from, int64_t n,
                                   bool around) {
  _Alignas(64) char whole[CPU_CHUNK * sizeof(float)];
  if (n != CPU_CHUNK || !around) {
    cpu_store(dtype, row, first, from, n);
    return;
  }
  cpu_narrow(dtype, whole, from);
  cpu_write_around((char *)row + first * cpu_dtype_size(dtype), whole, CPU_CHUNK * cpu_dtype_size(dtype));
}

#endif
