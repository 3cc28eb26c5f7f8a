/*
 * What kernels that multiply by fragments (gpu_multiply_fragment, tile.h) need beside the product: fragments out of
 * shared memory, and copies into it that no register holds. There where GPU_HAS_TENSOR_CORES says so.
 *
 *     gpu_copy_begin(shared + i, global + i); … gpu_copies_wait(); gpu_barrier();
 *     gpu_load_matrices<false>(row, fragment);
 */
#ifndef FLHOST_GPU_FRAGMENT_H
#define FLHOST_GPU_FRAGMENT_H

#include "plugins/gpu/kernels/tile.h"

#if GPU_HAS_TENSOR_CORES

/* gpu_copy_begin: 16 bytes into shared memory, both addresses multiples of 16. They are there, for the thread that
 * copied them, after its gpu_copies_wait, which waits for all of its copies.
 *
 * gpu_load_matrices: four matrices of 8 rows of 8 elements. Lane 8 m + r says where row r of matrix m begins, a
 * multiple of 16 bytes; with g = lane / 4, t = lane % 4, words[m] becomes columns 2t, 2t + 1 of row g of matrix m;
 * TRANSPOSED: rows 2t, 2t + 1 of column g. */
#if defined(__CUDACC__)

/* GPU_KERNEL with so few registers that `blocks` blocks share a multiprocessor. */
#define GPU_KERNEL_SHARING(type, name, threads, blocks)                                                                \
  extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ type a)

GPU_DEVICE void gpu_copy_begin(void *to, const void *from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               :
               : "r"(uint32_t(__cvta_generic_to_shared(to))), "l"(__cvta_generic_to_global(from))
               : "memory");
}

GPU_DEVICE void gpu_copies_wait() {
  asm volatile("cp.async.wait_all;" : : : "memory");
}

template <bool TRANSPOSED> GPU_DEVICE void gpu_load_matrices(const uint16_t *row, uint32_t (&words)[4]) {
  uint32_t from = uint32_t(__cvta_generic_to_shared(row));
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from)
                 : "memory");
}

/* 2^x as gpu_exp_approximately is e^x. */
GPU_DEVICE float gpu_exp2_approximately(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

#else

#define GPU_KERNEL_SHARING(type, name, threads, blocks) GPU_KERNEL(type, name, threads)

/* A copy that is under way is a link of its thread's list, in the very bytes that it will fill: who reads them too
 * early reads addresses. */
struct gpu_copy {
  const void *from;
  gpu_copy *before;
};

inline gpu_copy *&gpu_last_copy() {
  static __thread gpu_copy *last[1024];
  return last[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)];
}

inline void gpu_copy_begin(void *to, const void *from) {
  const gpu_copy copy = {from, gpu_last_copy()};
  gpu_last_copy() = static_cast<gpu_copy *>(memcpy(to, &copy, sizeof copy));
}

inline void gpu_copies_wait() {
  while (gpu_copy *to = gpu_last_copy()) {
    gpu_copy copy;
    memcpy(&copy, to, sizeof copy);
    gpu_last_copy() = copy.before;
    memcpy(to, copy.from, sizeof copy);
  }
}

template <bool TRANSPOSED> void gpu_load_matrices(const uint16_t *row, uint32_t (&words)[4]) {
  int g = int(gpu_lane()) / 4, t = int(gpu_lane()) % 4 * 2;
  for (int m = 0; m < 4; m++) {
    const uint16_t *first = gpu_shuffle(row, 8 * m + (TRANSPOSED ? t : g));
    const uint16_t *second = gpu_shuffle(row, 8 * m + (TRANSPOSED ? t + 1 : g));
    words[m] = first[TRANSPOSED ? g : t] | uint32_t(second[TRANSPOSED ? g : t + 1]) << 16;
  }
  gpu_warp_barrier(); /* nobody changes a row before all have read */
}

inline float gpu_exp2_approximately(float x) {
  return exp2f(x);
}

#endif

/* ------------------------------------------------------------------------------------------------------- fragments */

/* a of 16 lines, b of 16 columns, each a line of shared memory, `stride` elements apart: 16 summands from `from` on.
 * The words of b's first 8 columns come first. */
GPU_DEVICE void gpu_load_a(const uint16_t *from, int stride, uint32_t (&a)[4]) {
  int lane = int(threadIdx.x) % GPU_WARP;
  gpu_load_matrices<false>(from + lane % 16 * stride + lane / 16 * 8, a);
}

GPU_DEVICE void gpu_load_b(const uint16_t *from, int stride, uint32_t (&b)[4]) {
  int lane = int(threadIdx.x) % GPU_WARP;
  gpu_load_matrices<false>(from + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8, b);
}

/* b where each summand is a line, of 16 columns from `from` on. */
GPU_DEVICE void gpu_load_b_transposed(const uint16_t *from, int stride, uint32_t (&b)[4]) {
  int lane = int(threadIdx.x) % GPU_WARP;
  gpu_load_matrices<true>(from + lane % 16 * stride + lane / 16 * 8, b);
}

/* By the columns of gpu_load_b, 8 to each sum. */
template <typename T>
GPU_DEVICE void gpu_multiply_fragments(float (&left)[4], float (&right)[4], const uint32_t (&a)[4],
                                       const uint32_t (&b)[4]) {
  const uint32_t of_left[2] = {b[0], b[1]}, of_right[2] = {b[2], b[3]};
  gpu_multiply_fragment<T>(left, a, of_left);
  gpu_multiply_fragment<T>(right, a, of_right);
}

/* Two floats as sums of two 16-bit numbers: what the first word rounds away is in the second. POSITIVE: no number above
 * 0 becomes 0 in the first word. */
template <typename T, bool POSITIVE>
GPU_DEVICE void gpu_split(const float (&values)[2], uint32_t &high, uint32_t &low) {
  high = T::pack(values);
  if constexpr (POSITIVE)
    high |= uint32_t(values[0] > 0 && !(high & 0xffffu)) | uint32_t(values[1] > 0 && !(high >> 16)) << 16;
  const float rest[2] = {values[0] - T::unpack(high, 0), values[1] - T::unpack(high, 1)};
  low = T::pack(rest);
}

/* Sums of fragments, from column `k` on, as the two factors of a next product whose summands are the columns. */
template <typename T, bool POSITIVE, int N>
GPU_DEVICE void gpu_split_sums(const float (&sums)[N][4], int k, uint32_t (&high)[4], uint32_t (&low)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const float pair[2] = {sums[k / 8 + i / 2][i % 2 * 2], sums[k / 8 + i / 2][i % 2 * 2 + 1]};
    gpu_split<T, POSITIVE>(pair, high[i], low[i]);
  }
}

/* sums += weights values; a value's line is STRIDE elements long. */
template <typename T, int STRIDE, int N, int M>
GPU_DEVICE void gpu_multiply_weights(const float (&weights)[N][4], const uint16_t *values, float (&sums)[M][4]) {
#pragma unroll
  for (int k = 0; k < 8 * N; k += 16) {
    uint32_t high[4], low[4];
    gpu_split_sums<T, false>(weights, k, high, low);
#pragma unroll
    for (int c = 0; c < 8 * M; c += 16) {
      uint32_t columns[4];
      gpu_load_b_transposed(values + k * STRIDE + c, STRIDE, columns);
      gpu_multiply_fragments<T>(sums[c / 8], sums[c / 8 + 1], high, columns);
      gpu_multiply_fragments<T>(sums[c / 8], sums[c / 8 + 1], low, columns);
    }
  }
}

/* Of two elements what is an infinity or NaN becomes 0. Of its exponent all bits are 1: one more carries into the sign.
 */
template <typename T> GPU_DEVICE uint32_t gpu_finite_only(uint32_t pair) {
  const uint32_t exponent = T::dtype == GPU_FLOAT16 ? 0x7c007c00u : 0x7f807f80u;
  const uint32_t one = T::dtype == GPU_FLOAT16 ? 0x04000400u : 0x00800080u;
  return pair & ~((((pair & exponent) + one) >> 15 & 0x00010001u) * 0xffffu);
}

#endif
#endif
