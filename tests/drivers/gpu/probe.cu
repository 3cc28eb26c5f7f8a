/* Kernels that the backends do not have: each shows one thing that kernels are written in. See tests/test_gpu_grid.c.
 */
#include "plugins/gpu/kernels/float8.h"
#include "tests/drivers/gpu/probe.h"

/* One thread for each float: it goes to float8, and each byte comes back. */
#define NARROW(name, type)                                                                                             \
  GPU_KERNEL(probe_arguments, narrow_##name, 256) {                                                                    \
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;                                                        \
    if (i < a.n)                                                                                                       \
      static_cast<uint8_t *>(a.out)[i] = type::store(static_cast<const float *>(a.in)[i]);                             \
  }                                                                                                                    \
  GPU_KERNEL(probe_arguments, widen_##name, 256) {                                                                     \
    float values[16];                                                                                                  \
    gpu_load_floats<type, 16>(a.in, 16 * threadIdx.x, values);                                                         \
    gpu_store_floats<gpu_f32, 16>(a.out, 16 * threadIdx.x, values);                                                    \
  }
NARROW(e4m3fn, gpu_e4m3fn)
NARROW(e5m2, gpu_e5m2)
NARROW(e4m3fnuz, gpu_e4m3fnuz)
NARROW(e5m2fnuz, gpu_e5m2fnuz)

/* One thread for each float. */
#define FUNCTION(name)                                                                                                 \
  GPU_KERNEL(probe_arguments, function_##name, 256) {                                                                  \
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;                                                        \
    if (i < a.n)                                                                                                       \
      static_cast<float *>(a.out)[i] = name(static_cast<const float *>(a.in)[i]);                                      \
  }
FUNCTION(expf)
FUNCTION(expm1f)
FUNCTION(logf)
FUNCTION(log1pf)
FUNCTION(log2f)
FUNCTION(tanhf)
FUNCTION(erff)

/* A block adds up and finds the largest, twice, from n numbers. */
GPU_KERNEL(probe_arguments, reduce, 1024) {
  float sum = 0, most = gpu_float(0xff800000u);
  for (int64_t i = threadIdx.x; i < a.n; i += blockDim.x) {
    float value = static_cast<const float *>(a.in)[i];
    sum += value;
    most = gpu_max::of(most, value);
  }
  sum = gpu_block_reduce<gpu_sum>(sum, 0.0f);
  most = gpu_block_reduce<gpu_max>(most, gpu_float(0xff800000u));
  static_cast<float *>(a.out)[2 * threadIdx.x] = sum;
  static_cast<float *>(a.out)[2 * threadIdx.x + 1] = most;
}

/* Each lane's four: from two above, from two below, from the lane after it in a circle, and from its pair. */
GPU_KERNEL(probe_arguments, shuffle, 128) {
  double me = threadIdx.x;
  double *out = static_cast<double *>(a.out) + 4 * threadIdx.x;
  out[0] = gpu_shuffle_up(me, 2);
  out[1] = gpu_shuffle_down(me, 2);
  out[2] = gpu_shuffle(me, int(threadIdx.x + 1) % GPU_WARP);
  out[3] = gpu_shuffle_xor(me, 1);
}

/* The block's threads turn n numbers around in dynamic shared memory. */
GPU_KERNEL(probe_arguments, turn_around, 256) {
  GPU_DYNAMIC_SHARED;
  int *shared = reinterpret_cast<int *>(gpu_dynamic_shared);
  shared[threadIdx.x] = static_cast<const int *>(a.in)[threadIdx.x];
  gpu_barrier();
  static_cast<int *>(a.out)[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

/* What memory a block finds: never zeros. */
GPU_KERNEL(probe_arguments, look, 1) {
  GPU_DYNAMIC_SHARED;
  static_cast<unsigned char *>(a.out)[0] = gpu_dynamic_shared[0];
}

/* Every block counts itself. */
GPU_KERNEL(probe_arguments, count_blocks, 64) {
  if (threadIdx.x == 0)
    gpu_atomic_add(static_cast<int *>(a.out), 1);
}

/* A thread waits that nobody comes to meet: half of them meet lanes, half the block. */
GPU_KERNEL(probe_arguments, wait_for_ever, 64) {
  if (threadIdx.x % 2)
    gpu_barrier();
  else
    static_cast<int *>(a.out)[0] = gpu_shuffle(int(threadIdx.x), 0);
  gpu_barrier();
}
