/* Conversions of blocks: see block.h. */
#include "plugins/cpu/flagos/block.h"

#include <flhost/dtype.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

static void load_float32(float *restrict to, const void *restrict row, int64_t first, int64_t n) {
  memcpy(to, (const float *)row + first, (size_t)n * sizeof *to);
}

static void store_float32(void *restrict row, int64_t first, const float *restrict from, int64_t n) {
  memcpy((float *)row + first, from, (size_t)n * sizeof *from);
}

static void round_float32(float *values, int64_t n) {
  (void)values;
  (void)n;
}

/* Eight at a time by the instructions of machines that have them. How many were done. */
#ifdef __F16C__
static int64_t load_eights(float *restrict to, const uint16_t *restrict from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
  return i;
}

static int64_t store_eights(uint16_t *restrict to, const float *restrict from, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128((__m128i *)(to + i), _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}

static int64_t round_eights(float *values, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(values + i,
                     _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT)));
  return i;
}
#else
static int64_t load_eights(float *restrict to, const uint16_t *restrict from, int64_t n) {
  return (void)to, (void)from, (void)n, 0;
}

static int64_t store_eights(uint16_t *restrict to, const float *restrict from, int64_t n) {
  return (void)to, (void)from, (void)n, 0;
}

static int64_t round_eights(float *values, int64_t n) {
  return (void)values, (void)n, 0;
}
#endif

static void load_float16(float *restrict to, const void *restrict row, int64_t first, int64_t n) {
  const uint16_t *restrict from = (const uint16_t *)row + first;
  for (int64_t i = load_eights(to, from, n); i < n; i++)
    to[i] = fl_f16_to_float(from[i]);
}

static void store_float16(void *restrict row, int64_t first, const float *restrict from, int64_t n) {
  uint16_t *restrict to = (uint16_t *)row + first;
  for (int64_t i = store_eights(to, from, n); i < n; i++)
    to[i] = fl_float_to_f16(from[i]);
}

static void round_float16(float *values, int64_t n) {
  for (int64_t i = round_eights(values, n); i < n; i++)
    values[i] = fl_f16_to_float(fl_float_to_f16(values[i]));
}

static void load_bfloat16(float *restrict to, const void *restrict row, int64_t first, int64_t n) {
  const uint16_t *restrict from = (const uint16_t *)row + first;
  for (int64_t i = 0; i < n; i++)
    to[i] = fl_bf16_to_float(from[i]);
}

static void store_bfloat16(void *restrict row, int64_t first, const float *restrict from, int64_t n) {
  uint16_t *restrict to = (uint16_t *)row + first;
  for (int64_t i = 0; i < n; i++)
    to[i] = fl_float_to_bf16(from[i]);
}

static void round_bfloat16(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = fl_bf16_to_float(fl_float_to_bf16(values[i]));
}

const cpu_block_type cpu_block_types[CPU_N_DTYPES] = {
    [CPU_FLOAT32] = {load_float32, store_float32, round_float32},
    [CPU_FLOAT16] = {load_float16, store_float16, round_float16},
    [CPU_BFLOAT16] = {load_bfloat16, store_bfloat16, round_bfloat16},
};
