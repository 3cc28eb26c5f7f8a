/*
 * flhost/dtype.h: conversions between float and the small floating-point formats of tensors.
 *
 * For backends and engines that have no hardware or library conversion at hand. Header only, C11 and C++17, no library,
 * no branches that keep a loop from being vectorised. Narrowing rounds to nearest, ties to even, as PyTorch does;
 * it relies on the default floating-point rounding mode and works whether or not denormals are flushed to zero.
 * Safe from any thread.
 */
#ifndef FLHOST_DTYPE_H
#define FLHOST_DTYPE_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

static inline uint32_t fl_float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float fl_float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* bfloat16: the upper half of a float. Exact; a NaN keeps its payload. */
static inline float fl_bf16_to_float(uint16_t bits) {
  return fl_float_from_bits((uint32_t)bits << 16);
}

/* Too large a value becomes infinity; every NaN becomes 0x7fc0. */
static inline uint16_t fl_float_to_bf16(float value) {
  uint32_t bits = fl_float_bits(value);
  uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}

/* IEEE binary16. Exact; a NaN keeps its payload. */
static inline float fl_f16_to_float(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
  uint32_t magnitude = (uint32_t)(bits & 0x7fffu) << 13;
  uint32_t normal = magnitude + (112u << 23); /* from exponent bias 15 to 127 */
  uint32_t special = normal + (112u << 23);   /* exponent 31 becomes 255: infinity and NaN */
  /* m * 2^-24 as (1 + m * 2^-10) * 2^-14 - 2^-14, which is exact and meets no float denormal. */
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(normal + (1u << 23)) - fl_float_from_bits(113u << 23));
  uint32_t finite = magnitude < 0x00800000u ? subnormal : normal;
  return fl_float_from_bits(sign | (magnitude < 0x0f800000u ? finite : special));
}

/* From 65520 on a value becomes infinity; every NaN becomes 0x7e00. */
static inline uint16_t fl_float_to_f16(float value) {
  uint32_t bits = fl_float_bits(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 16 & 0x8000u;
  uint32_t normal = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  /* Next to 0.5 the floats are 2^-24 apart, the unit of binary16's denormals: the addition rounds. */
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t finite = sign | (magnitude < 0x38800000u ? subnormal : normal);
  uint32_t rounded = magnitude < 0x477ff000u ? finite : sign | 0x7c00u;
  return (uint16_t)(magnitude > 0x7f800000u ? 0x7e00u : rounded);
}

/* float8 e4m3fn: bias 7, no infinity, NaN is 0x7f and 0xff, largest value 448. Exact. */
static inline float fl_e4m3fn_to_float(uint8_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x80u) << 24;
  uint32_t magnitude = (uint32_t)(bits & 0x7fu) << 20;
  uint32_t normal = magnitude + (120u << 23);
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(normal + (1u << 23)) - fl_float_from_bits(121u << 23));
  uint32_t finite = magnitude < 0x00800000u ? subnormal : normal;
  return fl_float_from_bits(sign | (magnitude == 0x07f00000u ? 0x7fc00000u : finite));
}

/*
 * Clamps first: what lies beyond ±448, infinity included, becomes ±448 (0x7e, 0xfe), as the quantisers of vLLM do it.
 * Every NaN becomes 0x7f. -0 stays -0.
 */
static inline uint8_t fl_float_to_e4m3fn(float value) {
  uint32_t bits = fl_float_bits(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 24 & 0x80u;
  uint32_t normal = (magnitude - (120u << 23) + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  /* Next to 2^14 the floats are 2^-9 apart, the unit of e4m3's denormals. */
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(magnitude) + 16384.0f) - 0x46800000u;
  uint32_t finite = magnitude < 0x3c800000u ? subnormal : normal;
  uint32_t rounded = sign | (magnitude < 0x43e00000u ? finite : 0x7eu);
  return (uint8_t)(magnitude > 0x7f800000u ? 0x7fu : rounded);
}

/* float8 e4m3fnuz: bias 8, no infinity, no -0, NaN is 0x80, largest value 240. Exact. */
static inline float fl_e4m3fnuz_to_float(uint8_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x80u) << 24;
  uint32_t magnitude = (uint32_t)(bits & 0x7fu) << 20;
  uint32_t normal = magnitude + (119u << 23);
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(normal + (1u << 23)) - fl_float_from_bits(120u << 23));
  uint32_t finite = magnitude < 0x00800000u ? subnormal : normal;
  return fl_float_from_bits(bits == 0x80u ? 0x7fc00000u : sign | finite);
}

/* What lies beyond ±240, infinity included, becomes ±240 (0x7f, 0xff). Every NaN becomes 0x80, -0 becomes 0. */
static inline uint8_t fl_float_to_e4m3fnuz(float value) {
  uint32_t bits = fl_float_bits(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 24 & 0x80u;
  uint32_t normal = (magnitude - (119u << 23) + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  /* Next to 2^13 the floats are 2^-10 apart, the unit of the denormals. */
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(magnitude) + 8192.0f) - 0x46000000u;
  uint32_t finite = magnitude < 0x3c000000u ? subnormal : magnitude < 0x43700000u ? normal : 0x7fu;
  return (uint8_t)(magnitude > 0x7f800000u ? 0x80u : finite ? sign | finite : 0);
}

/* float8 e5m2: the upper half of a binary16. Exact. */
static inline float fl_e5m2_to_float(uint8_t bits) {
  return fl_f16_to_float((uint16_t)(bits << 8));
}

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_DTYPE_H */
