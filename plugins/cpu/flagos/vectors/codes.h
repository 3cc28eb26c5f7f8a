/*
 * Codes of quantised values, a chunk at a time: float8 and int8, with the arithmetic of vLLM's native definitions. The
 * largest magnitude is found among the bits of floats, which are ordered like magnitudes, with NaN above all.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_CODES_H
#define FLHOST_CPU_FLAGOS_VECTORS_CODES_H

#include "plugins/cpu/flagos/vectors/chunk.h"

/* Loads a chunk apart where that is cheaper, else nothing: elements 0, 2, 4, ... before 1, 3, 5, ... Words of two
 * bfloat16 numbers are these at once, but for a shift and a mask; and codes can be put in order as they are packed. */
CPU_TEMPLATE bool cpu_load_apart(cpu_dtype dtype, float *to, const void *row, int64_t first, int64_t n) {
#ifdef __AVX512F__
  if (dtype == CPU_BFLOAT16 && n == CPU_CHUNK) {
    __m512i words = _mm512_loadu_si512((const cpu_element16 *)row + first);
    _mm512_storeu_si512(to, _mm512_slli_epi32(words, 16));
    _mm512_storeu_si512(to + 16, _mm512_and_si512(words, _mm512_set1_epi32((int)0xffff0000u)));
    return true;
  }
#endif
  (void)dtype, (void)to, (void)row, (void)first, (void)n;
  return false;
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

enum { CPU_LANES16 = 2 * CPU_CHUNK };

/* Lane by lane. */
CPU_TEMPLATE void cpu_magnitudes16(int16_t *restrict largest, const int16_t *restrict elements) {
  for (int i = 0; i < CPU_LANES16; i++) {
    int16_t magnitude = (int16_t)(elements[i] & 0x7fff);
    largest[i] = (int16_t)(magnitude > largest[i] ? magnitude : largest[i]);
  }
}

static inline int32_t cpu_absolute_maximum16(const int16_t *elements, int64_t n) {
  int16_t lanes[CPU_LANES16] = {0}, rest[CPU_LANES16] = {0}, largest = 0;
  int64_t i = 0;
  for (; i + CPU_LANES16 <= n; i += CPU_LANES16)
    cpu_magnitudes16(lanes, elements + i);
  if (i < n) {
    memcpy(rest, elements + i, (size_t)(n - i) * sizeof rest[0]);
    cpu_magnitudes16(lanes, rest);
  }
  for (int lane = 0; lane < CPU_LANES16; lane++)
    largest = (int16_t)(lanes[lane] > largest ? lanes[lane] : largest);
  return largest;
}

static inline int32_t cpu_absolute_maximum32(const float *elements, int64_t n) {
  int32_t lanes[CPU_CHUNK] = {0};
  float rest[CPU_CHUNK];
  int64_t i = 0;
  for (; i + CPU_CHUNK <= n; i += CPU_CHUNK)
    cpu_magnitudes(lanes, elements + i);
  if (i < n) {
    cpu_load(CPU_FLOAT32, rest, elements, i, n - i);
    cpu_magnitudes(lanes, rest);
  }
  return (int32_t)fl_float_bits(cpu_largest_magnitude(lanes));
}

/* Of elements [begin, end) of a row, as a float's bits. */
static inline int32_t cpu_absolute_maximum(cpu_dtype dtype, const void *row, int64_t begin, int64_t end) {
  int64_t n = end - begin;
  if (dtype == CPU_FLOAT32)
    return cpu_absolute_maximum32((const float *)row + begin, n);
  uint16_t largest = (uint16_t)cpu_absolute_maximum16((const int16_t *)row + begin, n);
  return (int32_t)fl_float_bits(dtype == CPU_FLOAT16 ? fl_f16_to_float(largest) : fl_bf16_to_float(largest));
}

/* ---------------------------------------------------------------------------------------------------------- float8 */

/* A type of codes, as what it does to a float's bits. */
typedef struct cpu_codes8 {
  int32_t most, least; /* the largest value; the power of two next to which codes are as far apart as denormals */
  float coarse;        /* see cpu_code8: 2^20, and 1/8 for each step from what the exponent makes of the code to it */
  bool fnuz;           /* NaN is where -0 would be, which is 0 */
} cpu_codes8;

enum { CPU_NAN_CODE = 0x7f };

static const cpu_codes8 cpu_e4m3fn = {0x43e00000, 121 << 23, 0x1p20f + 371, false};

/* In the lowest byte, the code of a value. Next to 2^20 times its power of two floats are as far apart as codes are
 * next to the value, so the addition rounds; the lowest bits of the sum count these steps, and with its exponent's
 * place in the code they add up to it: what rounding carries over counts there. The steps that these are away from the
 * code, which are even, so that ties stay, `coarse` has added already; and 2^12 of them, that no byte sees.
 *
 * `within`: the value is no NaN and at most the largest, but for rounding, which is far from half a step. */
CPU_TEMPLATE uint32_t cpu_code8(cpu_codes8 to, bool within, float value) {
  uint32_t bits = fl_float_bits(value), sign = bits >> 24 & 0x80u;
  int32_t magnitude = (int32_t)(bits & 0x7fffffffu), clamped = within || magnitude < to.most ? magnitude : to.most;
  float power = fl_float_from_bits((uint32_t)cpu_larger(clamped & 0x7f800000, to.least));
  uint32_t sum = fl_float_bits(power * to.coarse + fl_float_from_bits((uint32_t)clamped)), code = sum + (sum >> 20);
  return !within && magnitude > 0x7f800000 ? CPU_NAN_CODE : code | sign;
}

#ifdef __AVX512F__
/* The same in half of the instructions, as 16 times the code without its sign, which is in bit 15; higher bits are
 * anything. Of the sum, with the value's sign, one instruction multiplies both halves and adds them. */
CPU_TEMPLATE __m512i cpu_codes8_16(cpu_codes8 to, bool within, const float *values) {
  enum { LESS = 2, LARGER = 3 }; /* of two magnitudes, with the first one's sign */
  const __m512 exponents = _mm512_set1_ps(-INFINITY), most = _mm512_set1_ps(fl_float_from_bits((uint32_t)to.most)),
               least = _mm512_set1_ps(fl_float_from_bits((uint32_t)to.least));
  __m512 value = _mm512_loadu_ps(values), clamped = within ? value : _mm512_range_ps(value, most, LESS);
  __m512 power = _mm512_range_ps(_mm512_and_ps(clamped, exponents), least, LARGER);
  __m512i sum = _mm512_castps_si512(_mm512_fmadd_ps(power, _mm512_set1_ps(to.coarse), clamped));
  __m512i halves = _mm512_set1_epi32(1 << 16 | 16);
  if (within)
    return _mm512_madd_epi16(sum, halves);
  __mmask16 number = _mm512_cmp_ps_mask(value, value, _CMP_ORD_Q);
  return _mm512_mask_madd_epi16(_mm512_set1_epi32(CPU_NAN_CODE << 4), number, sum, halves);
}
#endif

/* ------------------------------------------------------------------------------------------------------------ int8 */

/* In the lowest byte: to the nearest, ties to even, saturated; NaN is 0. Floats next to 1.5 * 2^23 are 1 apart, so the
 * addition rounds, and the lowest bits of the sum are the integer. */
CPU_TEMPLATE uint32_t cpu_int8_code(float value) {
  float number = value == value ? value : 0.0f, least = number > -128.0f ? number : -128.0f;
  return fl_float_bits((least < 127.0f ? least : 127.0f) + 0x1.8p23f);
}

/* ------------------------------------------------------------------------------------------------------------- both */

#ifdef __AVX512F__
/* Lower halves, in their order, or by turns where they are `apart`. */
CPU_TEMPLATE __m512i cpu_lower_halves(__m512i first, __m512i second, bool apart) {
  static const uint16_t in_order[CPU_CHUNK] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                               32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  static const uint16_t by_turns[CPU_CHUNK] = {0,  32, 2,  34, 4,  36, 6,  38, 8,  40, 10, 42, 12, 44, 14, 46,
                                               16, 48, 18, 50, 20, 52, 22, 54, 24, 56, 26, 58, 28, 60, 30, 62};
  return _mm512_permutex2var_epi16(first, _mm512_loadu_si512(apart ? by_turns : in_order), second);
}

CPU_TEMPLATE void cpu_write_low_bytes(uint8_t *to, __m512i halves, bool around) {
  if (around)
    _mm256_stream_si256((void *)to, _mm512_cvtepi16_epi8(halves));
  else
    _mm256_storeu_si256((void *)to, _mm512_cvtepi16_epi8(halves));
}
#endif

/* Writes the lowest bytes; around the caches only where `to` is aligned. */
CPU_TEMPLATE void cpu_write_codes(uint8_t *restrict to, const uint32_t *restrict from, bool around) {
#ifdef __AVX512F__
  cpu_write_low_bytes(to, cpu_lower_halves(_mm512_loadu_si512(from), _mm512_loadu_si512(from + 16), false), around);
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

/* The same of the values' codes; `within` as for cpu_code8, `apart` as cpu_load_apart says. */
CPU_TEMPLATE void cpu_write_codes8(cpu_codes8 type, bool within, uint8_t *restrict to, const float *restrict values,
                                   bool apart, bool around) {
#ifdef __AVX512F__
  __m512i all = cpu_lower_halves(cpu_codes8_16(type, within, values), cpu_codes8_16(type, within, values + 16), apart);
  __m512i sign = _mm512_and_si512(all, _mm512_set1_epi16(INT16_MIN));
  cpu_write_low_bytes(to, _mm512_srli_epi16(_mm512_or_si512(_mm512_slli_epi16(all, 4), sign), 8), around);
#else
  (void)apart; /* which nothing is */
  uint32_t codes[CPU_CHUNK];
  for (int i = 0; i < CPU_CHUNK; i++)
    codes[i] = cpu_code8(type, within, values[i]);
  cpu_write_codes(to, codes, around);
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

CPU_TEMPLATE void cpu_store_codes8(cpu_codes8 type, bool within, uint8_t *row, int64_t first, const float *values,
                                   int64_t n, bool apart, bool around) {
  uint8_t part[CPU_CHUNK];
  if (n == CPU_CHUNK) {
    cpu_write_codes8(type, within, row + first, values, apart, around);
    return;
  }
  cpu_write_codes8(type, within, part, values, apart, false);
  memcpy(row + first, part, (size_t)n);
}

#endif
