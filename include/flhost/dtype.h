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

/* A float's bits. */
static inline uint32_t fl_float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* The float that has these bits. */
static inline float fl_float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/*
 * Of the formats below that have fewer bits of exponent than a float; internal to this header. `rebias` is by how much
 * the bias of their exponent is below the float's, `shift` by how many bits their mantissa is shorter. Neither function
 * knows of signs, infinities and NaNs.
 */

/* `magnitude` lies as a float's bits do: shifted. */
static inline uint32_t fl_widen_finite(uint32_t magnitude, uint32_t rebias) {
  uint32_t normal = magnitude + (rebias << 23);
  /* A denormal as one with the least exponent, less that power of two: exact, and meets no float denormal. */
  uint32_t least = (rebias + 1u) << 23;
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(normal + (1u << 23)) - fl_float_from_bits(least));
  return magnitude < 0x00800000u ? subnormal : normal;
}

static inline uint32_t fl_narrow_finite(uint32_t magnitude, uint32_t rebias, uint32_t shift) {
  uint32_t normal = (magnitude - (rebias << 23) + (1u << (shift - 1u)) - 1u + (magnitude >> shift & 1u)) >> shift;
  /* Next to this power of two the floats are as far apart as the format's denormals: the addition rounds. */
  uint32_t coarse = (rebias + 1u + shift) << 23;
  uint32_t subnormal = fl_float_bits(fl_float_from_bits(magnitude) + fl_float_from_bits(coarse)) - coarse;
  return magnitude < (rebias + 1u) << 23 ? subnormal : normal;
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
  uint32_t finite = fl_widen_finite(magnitude, 112u);
  uint32_t special = magnitude + (224u << 23); /* exponent 31 becomes 255: infinity and NaN */
  return fl_float_from_bits(sign | (magnitude < 0x0f800000u ? finite : special));
}

/* From 65520 on a value becomes infinity; every NaN becomes 0x7e00. */
static inline uint16_t fl_float_to_f16(float value) {
  uint32_t bits = fl_float_bits(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 16 & 0x8000u;
  uint32_t finite = fl_narrow_finite(magnitude, 112u, 13u);
  uint32_t rounded = sign | (magnitude < 0x477ff000u ? finite : 0x7c00u);
  return (uint16_t)(magnitude > 0x7f800000u ? 0x7e00u : rounded);
}

/* float8 e4m3fn: bias 7, no infinity, NaN is 0x7f and 0xff, largest value 448. Exact. */
static inline float fl_e4m3fn_to_float(uint8_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x80u) << 24;
  uint32_t magnitude = (uint32_t)(bits & 0x7fu) << 20;
  uint32_t finite = fl_widen_finite(magnitude, 120u);
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
  uint32_t finite = fl_narrow_finite(magnitude, 120u, 20u);
  uint32_t rounded = sign | (magnitude < 0x43e00000u ? finite : 0x7eu);
  return (uint8_t)(magnitude > 0x7f800000u ? 0x7fu : rounded);
}

/* float8 e4m3fnuz: bias 8, no infinity, no -0, NaN is 0x80, largest value 240. Exact. */
static inline float fl_e4m3fnuz_to_float(uint8_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x80u) << 24;
  uint32_t finite = fl_widen_finite((uint32_t)(bits & 0x7fu) << 20, 119u);
  return fl_float_from_bits(bits == 0x80u ? 0x7fc00000u : sign | finite);
}

/* What lies beyond ±240, infinity included, becomes ±240 (0x7f, 0xff). Every NaN becomes 0x80, -0 becomes 0. */
static inline uint8_t fl_float_to_e4m3fnuz(float value) {
  uint32_t bits = fl_float_bits(value);
  uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 24 & 0x80u;
  uint32_t finite = fl_narrow_finite(magnitude, 119u, 20u);
  uint32_t rounded = magnitude < 0x43700000u ? finite : 0x7fu;
  return (uint8_t)(magnitude > 0x7f800000u ? 0x80u : rounded ? sign | rounded : 0);
}

/* float8 e5m2: the upper half of a binary16. Exact. */
static inline float fl_e5m2_to_float(uint8_t bits) {
  return fl_f16_to_float((uint16_t)(bits << 8));
}

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_DTYPE_H */
