/* What stands around a matrix product that the vendor's library computes: a bias in every row before it, and the steps
 * that make logits of its result. A block takes columns of one row after the other. */
#include "plugins/gpu/kernels/arguments/linear.h"
#include "plugins/gpu/kernels/device.h"

typedef gpu_linear_arguments arguments;

/* The bias, or zeros. */
struct bias_fill {
  template <typename T, int N> static GPU_METHOD void make(const arguments &a, int64_t, int64_t column, float (&v)[N]) {
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] = 0.0f;
    if (a.bias)
      gpu_load_floats<T, N>(a.bias, column, v);
  }
};

/* tanh(l / cap) * cap, times the scale; each step rounded as a tensor would hold it. */
struct logit_steps {
  template <typename T, int N> static GPU_METHOD void make(const arguments &a, int64_t at, int64_t, float (&v)[N]) {
    gpu_load_floats<T, N>(a.out, at, v);
#pragma unroll
    for (int k = 0; k < N; k++) {
      if (a.capped)
        v[k] = gpu_round<T>(gpu_round<T>(tanhf(gpu_round<T>(v[k] / a.cap))) * a.cap);
      if (a.scaled)
        v[k] *= a.scale;
    }
  }
};

template <typename T, int N, typename Step> GPU_DEVICE void make_rows(const arguments &a) {
  int64_t step = int64_t(gridDim.x) * blockDim.x * N;
  for (uint32_t row = blockIdx.y; row < a.rows.count; row += gridDim.y) {
    int64_t begin = gpu_row_begin(a.rows, 0, row);
    for (int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * N; i < a.columns; i += step) {
      float v[N];
      Step::template make<T, N>(a, begin + i, i, v);
      gpu_store_floats<T, N>(a.out, begin + i, v);
    }
  }
}

template <typename T, typename Step> GPU_DEVICE void make(const arguments &a) {
  if (a.vectorised)
    make_rows<T, T::vector, Step>(a);
  else
    make_rows<T, 1, Step>(a);
}

#define KERNELS(name, step)                                                                                            \
  GPU_KERNEL(gpu_linear_arguments, name##_f32, GPU_LINEAR_THREADS) {                                                   \
    make<gpu_f32, step>(a);                                                                                            \
  }                                                                                                                    \
  GPU_KERNEL(gpu_linear_arguments, name##_f16, GPU_LINEAR_THREADS) {                                                   \
    make<gpu_f16, step>(a);                                                                                            \
  }                                                                                                                    \
  GPU_KERNEL(gpu_linear_arguments, name##_bf16, GPU_LINEAR_THREADS) {                                                  \
    make<gpu_bf16, step>(a);                                                                                           \
  }
KERNELS(fill_bias, bias_fill)
KERNELS(process_logits, logit_steps)
