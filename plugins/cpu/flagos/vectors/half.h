/* float16 to float and back, one element, by the instructions of the machine that a file is compiled for where it has
 * some. Of a NaN that is narrowed the bits are the machine's. */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_HALF_H
#define FLHOST_CPU_FLAGOS_VECTORS_HALF_H

#include <flhost/dtype.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

static inline float cpu_half_to_float(uint16_t bits) {
#if defined __F16C__
  return _cvtsh_ss(bits);
#elif defined __aarch64__
  __fp16 half;
  memcpy(&half, &bits, sizeof half);
  return half;
#else
  return fl_f16_to_float(bits);
#endif
}

static inline uint16_t cpu_float_to_half(float value) {
#if defined __F16C__
  return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT);
#elif defined __aarch64__
  __fp16 half = (__fp16)value;
  uint16_t bits;
  memcpy(&bits, &half, sizeof bits);
  return bits;
#else
  return fl_float_to_f16(value);
#endif
}

#endif
