/*
 * Element by element of two tensors, in float, rounded as the formula says and once at the end. Each thread makes the
 * elements that 16 bytes hold, or one where rows are not aligned; a block's x runs along a row, its y over rows.
 */
#include "plugins/gpu/kernels/arguments/elementwise.h"
#include "plugins/gpu/kernels/functions.h"

typedef gpu_elementwise_arguments arguments;

enum { THREADS = GPU_ELEMENTWISE_THREADS };

struct sum {
  template <typename T> static GPU_METHOD float of(float x, float y) {
    return x + y;
  }
};

struct gated {
  template <typename T> static GPU_METHOD float of(float x, float gate) {
    return x * gpu_round<T>(gpu_sigmoid<T>(gate));
  }
};

template <typename T, int N, typename F> GPU_DEVICE void make_columns(const arguments &a, uint32_t row, int64_t i) {
  float v[N], y[N];
  int64_t begin = gpu_row_begin(a.rows, 1, row);
  gpu_load_floats<T, N>(a.x, gpu_row_begin(a.rows, 0, row) + i, v);
  if (a.one_y)
    y[0] = gpu_load<T>(a.y, begin);
  else
    gpu_load_floats<T, N>(a.y, begin + i, y);
#pragma unroll
  for (int k = 0; k < N; k++)
    v[k] = F::template of<T>(v[k], a.one_y ? y[0] : y[k]);
  gpu_store_floats<T, N>(a.out, gpu_row_begin(a.rows, 2, row) + i, v);
}

template <typename T, typename F> GPU_DEVICE void make_elements(const arguments &a) {
  const int N = T::vector;
  int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, i = a.vectorised ? thread * N : thread;
  uint32_t step = gridDim.y * blockDim.y;
  if (i >= a.columns)
    return;
  for (uint64_t row = blockIdx.y * blockDim.y + threadIdx.y; row < a.rows.count; row += step) {
    if (a.vectorised && i + N <= a.columns)
      make_columns<T, N, F>(a, uint32_t(row), i);
    else
#pragma unroll 1
      for (int64_t k = i; k < (a.vectorised ? a.columns : i + 1); k++)
        make_columns<T, 1, F>(a, uint32_t(row), k);
  }
}

#define ELEMENTWISE(name, formula)                                                                                     \
  GPU_KERNEL(gpu_elementwise_arguments, name##_f32, THREADS) {                                                         \
    make_elements<gpu_f32, formula>(a);                                                                                \
  }                                                                                                                    \
  GPU_KERNEL(gpu_elementwise_arguments, name##_f16, THREADS) {                                                         \
    make_elements<gpu_f16, formula>(a);                                                                                \
  }                                                                                                                    \
  GPU_KERNEL(gpu_elementwise_arguments, name##_bf16, THREADS) {                                                        \
    make_elements<gpu_bf16, formula>(a);                                                                               \
  }

ELEMENTWISE(add, sum)
ELEMENTWISE(sigmoid_mul, gated)
