/* Attention over two parts of a context becomes that over both, by their log-sum-exps. */
#include "plugins/gpu/kernels/arguments/attention.h"
#include "plugins/gpu/kernels/device.h"

template <typename T> GPU_DEVICE void merge(const gpu_merge_arguments &a) {
  const int N = T::vector;
  uint32_t row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= a.rows.count)
    return;
  int64_t head = row % a.heads, token = row / a.heads;
  int64_t p = gpu_row_begin(a.rows, 0, row), s = gpu_row_begin(a.rows, 1, row), out = gpu_row_begin(a.rows, 2, row);
  float of_prefix = a.prefix_lse[head * a.prefix_lse_head + token];
  float of_suffix = a.suffix_lse[head * a.suffix_lse_head + token];
  of_prefix = of_prefix == INFINITY ? -INFINITY : of_prefix;
  of_suffix = of_suffix == INFINITY ? -INFINITY : of_suffix;
  float most = fmaxf(of_prefix, of_suffix);
  bool empty = most == -INFINITY;
  of_prefix = expf(of_prefix - most);
  of_suffix = expf(of_suffix - most);
  float sum = of_prefix + of_suffix;
  of_prefix = of_prefix / sum;
  of_suffix = of_suffix / sum;
  if (threadIdx.x == 0)
    a.lse[head * a.lse_head + token] = empty ? most : logf(sum) + most;
  if (a.vectorised) {
    for (int64_t i = threadIdx.x * N; i < a.size; i += blockDim.x * N) {
      float prefix[N], suffix[N];
      gpu_load_floats<T>(a.prefix, p + i, prefix);
      gpu_load_floats<T>(a.suffix, s + i, suffix);
#pragma unroll
      for (int k = 0; k < N; k++)
        prefix[k] = empty ? prefix[k] : prefix[k] * of_prefix + suffix[k] * of_suffix;
      gpu_store_floats<T>(a.out, out + i, prefix);
    }
    return;
  }
  for (int64_t i = threadIdx.x; i < a.size; i += blockDim.x) {
    float prefix = gpu_load<T>(a.prefix, p + i);
    gpu_store<T>(a.out, out + i, empty ? prefix : prefix * of_prefix + gpu_load<T>(a.suffix, s + i) * of_suffix);
  }
}

#define MERGE(type)                                                                                                    \
  GPU_KERNEL(gpu_merge_arguments, merge_attn_states_##type, GPU_MERGE_THREADS) {                                       \
    merge<gpu_##type>(a);                                                                                              \
  }
MERGE(f32)
MERGE(f16)
MERGE(bf16)
