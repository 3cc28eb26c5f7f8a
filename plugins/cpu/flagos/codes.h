/*
 * Codes of quantised values, a chunk at a time: float8 and int8, with the arithmetic of vLLM's native definitions. The
 * largest magnitude is found among the bits of floats, which are ordered like magnitudes, with NaN above all.
 */
#ifndef FLHOST_CPU_FLAGOS_CODES_H
#define FLHOST_CPU_FLAGOS_CODES_H

#include "plugins/cpu/flagos/chunk.h"

/* While a row that lies in a cache is computed with, the next one can come there: else memory waits for the processor,
 * and the other way round. `next` may be any address. */
CPU_TEMPLATE void cpu_prefetch_chunk(cpu_dtype dtype, const char *next, int64_t first) {
  int64_t item = cpu_dtype_size(dtype);
  for (int64_t at = 0; at < CPU_CHUNK * item; at += 64)
    __builtin_prefetch(next + first * item + at);
}

/* ----------------------------------------------------------------------------------------------- largest magnitude */

static inline int32_t cpu_larger(int32_t a, int32_t b) {
  return a > b ? a : b;
}

/* Lane by lane, as bits; at the beginning all are 0. */
CPU_TEMPLATE void cpu_magnitudes(int32_t *restrict largest, const float *restrict values) {
  for (int i = 0; i < CPU_CHUNK; i++) {
    int32_t magnitude = (int32_t)(fl_float_bits(values[i]) & 0x7fffffffu);
    largest[i] = cpu_larger(magnitude, largest[i]);
  }
}

CPU_TEMPLATE float cpu_largest_magnitude(const int32_t *lanes) {
  int32_t largest = 0;
  for (int i = 0; i < CPU_CHUNK; i++)
    largest = cpu_larger(lanes[i], largest);
  return fl_float_from_bits((uint32_t)largest);
}

/* ---------------------------------------------------------------------------------------------------------- float8 */

/* A type of codes, as what it does to a float's bits. */
typedef struct cpu_codes8 {
  int32_t most, least; /* the largest value; the power of two next to which codes are as far apart as denormals */
  bool fnuz;           /* NaN is where -0 would be, which is 0 */
} cpu_codes8;

enum { CPU_NAN_CODE = 0x7f };

static const cpu_codes8 cpu_e4m3fn = {0x43e00000, 121 << 23, false};

/* In the lowest byte, the code of a value. Next to 2^20 times its power of two floats are as far apart as codes are
 * next to the value, so the addition rounds; the lowest bits of the sum count these steps, and with its exponent's
 * place in the code they add up to it: what rounding carries over counts there. */
CPU_TEMPLATE uint32_t cpu_code8(cpu_codes8 to, float value) {
  uint32_t bits = fl_float_bits(value), sign = bits >> 24 & 0x80u;
  int32_t magnitude = (int32_t)(bits & 0x7fffffffu), clamped = magnitude < to.most ? magnitude : to.most;
  float power = fl_float_from_bits((uint32_t)cpu_larger(clamped & 0x7f800000, to.least));
  uint32_t sum = fl_float_bits(power * 0x1p20f + fl_float_from_bits((uint32_t)clamped));
  uint32_t code = sum + (sum >> 20) - (((uint32_t)to.least >> 20) + (20u << 3));
  return magnitude > 0x7f800000 ? CPU_NAN_CODE : code | sign;
}

/* ------------------------------------------------------------------------------------------------------------ int8 */

/* In the lowest byte: to the nearest, ties to even, saturated; NaN is 0. Floats next to 1.5 * 2^23 are 1 apart, so the
 * addition rounds, and the lowest bits of the sum are the integer. */
CPU_TEMPLATE uint32_t cpu_int8_code(float value) {
  float number = value == value ? value : 0.0f, least = number > -128.0f ? number : -128.0f;
  return fl_float_bits((least < 127.0f ? least : 127.0f) + 0x1.8p23f);
}

/* ------------------------------------------------------------------------------------------------------------- both */

/* Writes the lowest bytes; around the caches only where `to` is aligned. */
CPU_TEMPLATE void cpu_write_codes(uint8_t *restrict to, const uint32_t *restrict from, bool around) {
#if defined __AVX512F__
  __m128i low = _mm512_cvtepi32_epi8(_mm512_loadu_si512(from)),
          high = _mm512_cvtepi32_epi8(_mm512_loadu_si512(from + 16));
  __m256i all = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
  if (around)
    _mm256_stream_si256((void *)to, all);
  else
    _mm256_storeu_si256((void *)to, all);
#else
  _Alignas(32) uint8_t bytes[CPU_CHUNK];
  for (int i = 0; i < CPU_CHUNK; i++)
    bytes[i] = (uint8_t)from[i];
  if (around)
    cpu_write_around((char *)to, (const char *)bytes, CPU_CHUNK);
  else
    memcpy(to, bytes, CPU_CHUNK);
#endif
}

/* Elements `first` to first + n - 1 of a row, n <= CPU_CHUNK. */
CPU_TEMPLATE void cpu_store_codes(uint8_t *row, int64_t first, const uint32_t *codes, int64_t n, bool around) {
  uint8_t part[CPU_CHUNK];
  if (n == CPU_CHUNK) {
    cpu_write_codes(row + first, codes, around);
    return;
  }
  cpu_write_codes(part, codes, false);
  memcpy(row + first, part, (size_t)n);
}

#endif
