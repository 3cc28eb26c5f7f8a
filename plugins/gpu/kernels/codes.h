/* Codes of quantised values: float8 (float8.h) or int8, which is to the nearest, ties to even, saturated, and 0 for
 * NaN. */
#ifndef FLHOST_GPU_CODES_H
#define FLHOST_GPU_CODES_H

#include "plugins/gpu/kernels/float8.h"

/* To the nearest integer, ties to even: from 2^23 on there are no others. */
GPU_DEVICE float gpu_nearest(float value) {
  const float whole = 8388608.0f;
  float magnitude = fabsf(value), nearest = magnitude < whole ? magnitude + whole - whole : magnitude;
  return value < 0 ? -nearest : nearest;
}

/* The integer, plus azp, whatever the two are. */
GPU_DEVICE int gpu_shifted_int8(float value, int32_t azp) {
  const float far = 8589934592.0f; /* 2^33: no azp leads back from there */
  float nearest = gpu_nearest(value != value ? 0.0f : value);
  int64_t code = int64_t(nearest < -far ? -far : nearest > far ? far : nearest) + azp;
  return int(gpu_clamp(code, -128, 127));
}

GPU_DEVICE int gpu_int8(float value) {
  float within = value < -128.0f ? -128.0f : value > 127.0f ? 127.0f : value;
  return within != within ? 0 : int(gpu_nearest(within));
}

/* N codes to byte `i` on, a multiple of N. */
template <int N> GPU_DEVICE void gpu_store_bytes(void *to, int64_t i, const int (&codes)[N]) {
  static_assert(N == 1 || N == 4 || N == 8, "one element, or those of 16 bytes");
  uint8_t *at = static_cast<uint8_t *>(to) + i;
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < N; k++)
    words[k / 4] |= uint32_t(codes[k] & 0xff) << 8 * (k % 4);
  if constexpr (N == 1)
    *at = uint8_t(words[0]);
  else if constexpr (N == 4)
    *reinterpret_cast<uint32_t *>(at) = words[0];
  else
    *reinterpret_cast<uint64_t *>(at) = words[0] | uint64_t(words[1]) << 32;
}

/* Values that are scaled already. */
template <int N> GPU_DEVICE void gpu_store_int8(void *to, int64_t i, const float (&values)[N]) {
  int codes[N];
#pragma unroll
  for (int k = 0; k < N; k++)
    codes[k] = gpu_int8(values[k]);
  gpu_store_bytes<N>(to, i, codes);
}

#endif
