/*
 * The float8 types, as element types like those of device.h. OCP's e4m3fn and e5m2 are what NVIDIA and the newer AMD
 * devices compute with; MI300 has the fnuz forms: another bias, one NaN, which is 0x80, and no -0. Narrowing rounds to
 * nearest even and stops at the largest finite value, as quantisers have it; NaN stays NaN.
 */
#ifndef FLHOST_GPU_FLOAT8_H
#define FLHOST_GPU_FLOAT8_H

#include "plugins/gpu/kernels/device.h"

/* 1 bit of sign, then the exponent, counted from BIAS, then MANTISSA bits; LARGEST is the greatest finite number's. */
template <int MANTISSA, int BIAS, uint32_t LARGEST, bool FNUZ> struct gpu_float8 {
  enum { vector = 16, word = 4 };
  typedef uint8_t stored;

  static GPU_METHOD uint8_t narrow(float value) {
    uint32_t bits = gpu_bits(value), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    uint32_t half = (1u << (22 - MANTISSA)) - 1u + (magnitude >> (23 - MANTISSA) & 1u);
    uint32_t normal = (magnitude - (uint32_t(127 - BIAS) << 23) + half) >> (23 - MANTISSA);
    /* Where the floats are as far apart as the denormals of the type, an addition rounds. */
    uint32_t place = uint32_t(127 + 24 - BIAS - MANTISSA) << 23;
    uint32_t subnormal = gpu_bits(gpu_float(magnitude) + gpu_float(place)) - place;
    uint32_t finite = magnitude < uint32_t(128 - BIAS) << 23 ? subnormal : normal;
    if (magnitude > 0x7f800000u)
      return FNUZ ? 0x80 : 0x7f;
    finite = finite < LARGEST ? finite : LARGEST;
    return uint8_t(FNUZ && !finite ? 0 : sign | finite);
  }

  static GPU_METHOD float load(uint8_t code) {
    uint32_t sign = uint32_t(code & 0x80u) << 24, magnitude = code & 0x7fu;
    float unit = gpu_float(uint32_t(128 - BIAS - MANTISSA) << 23);
    uint32_t normal = (magnitude << (23 - MANTISSA)) + (uint32_t(127 - BIAS) << 23);
    if (FNUZ ? code == 0x80 : magnitude > LARGEST && (MANTISSA == 3 || magnitude != LARGEST + 1))
      return gpu_float(0x7fc00000u);
    if (magnitude > LARGEST)
      return gpu_float(sign | 0x7f800000u); /* e5m2 alone has an infinity */
    float value = magnitude >> MANTISSA ? gpu_float(normal) : float(magnitude) * unit;
    return gpu_float(sign | gpu_bits(value));
  }

  /* Two codes, that of `low` in the lower byte. */
  static GPU_METHOD uint32_t pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (!FNUZ) {
      uint16_t codes;
      if constexpr (MANTISSA == 3)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
      else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
      return codes;
    }
#endif
    return narrow(low) | uint32_t(narrow(high)) << 8;
  }

  static GPU_METHOD uint8_t store(float value) {
    return uint8_t(pair(value, 0.0f));
  }

  static GPU_METHOD float unpack(uint32_t bits, int i) {
    return load(uint8_t(bits >> 8 * i));
  }
  static GPU_METHOD uint32_t pack(const float *v) {
    return pair(v[0], v[1]) | pair(v[2], v[3]) << 16;
  }
};

/* N codes, to an address that is a multiple of N. */
template <typename Q, int N> GPU_DEVICE void gpu_store_float8(uint8_t *to, const float (&values)[N]) {
  static_assert(N == 1 || N == 4 || N == 8, "one element, or those of 16 bytes");
  if constexpr (N == 1)
    *to = Q::store(values[0]);
  else if constexpr (N == 4)
    *reinterpret_cast<uint32_t *>(to) = Q::pack(values);
  else
    *reinterpret_cast<uint64_t *>(to) = Q::pack(values) | uint64_t(Q::pack(values + 4)) << 32;
}

typedef gpu_float8<3, 7, 0x7e, false> gpu_e4m3fn;
typedef gpu_float8<2, 15, 0x7b, false> gpu_e5m2;
typedef gpu_float8<3, 8, 0x7f, true> gpu_e4m3fnuz;
typedef gpu_float8<2, 16, 0x7f, true> gpu_e5m2fnuz;

#endif
