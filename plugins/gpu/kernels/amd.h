/*
 * What kernels are written in, for AMD's devices and clang alone: the names that CUDA and HIP have in common, over the
 * compiler's builtins. HIP's headers and the device library that goes with them know the devices of one version of
 * ROCm. device.h includes this.
 */
#ifndef FLHOST_GPU_AMD_H
#define FLHOST_GPU_AMD_H

#define __device__           __attribute__((device))
#define __global__           __attribute__((global))
#define __shared__           __attribute__((shared))
#define __forceinline__      inline __attribute__((always_inline))
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define __align__(n)         __attribute__((aligned(n)))

/* ---------------------------------------------------------------------------------------------------------- indices */

struct gpu_index {
  uint32_t x, y, z;
};

GPU_DEVICE gpu_index gpu_thread_index() {
  return {__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(), __builtin_amdgcn_workitem_id_z()};
}

GPU_DEVICE gpu_index gpu_block_index() {
  return {__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(), __builtin_amdgcn_workgroup_id_z()};
}

GPU_DEVICE gpu_index gpu_block_size() {
  return {__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),
          __builtin_amdgcn_workgroup_size_z()};
}

/* In blocks; the hardware counts threads, of whole blocks. */
GPU_DEVICE gpu_index gpu_grid_size() {
  gpu_index block = gpu_block_size();
  return {__builtin_amdgcn_grid_size_x() / block.x, __builtin_amdgcn_grid_size_y() / block.y,
          __builtin_amdgcn_grid_size_z() / block.z};
}

#define threadIdx (gpu_thread_index())
#define blockIdx  (gpu_block_index())
#define blockDim  (gpu_block_size())
#define gridDim   (gpu_grid_size())

/* --------------------------------------------------------------------------------------------------------- together */

GPU_DEVICE void gpu_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

/* A warp runs in step: what is wanted is that the compiler keeps the order of accesses. */
GPU_DEVICE void gpu_warp_barrier() {
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
}

GPU_DEVICE uint32_t gpu_lane() {
  uint32_t below_32 = __builtin_amdgcn_mbcnt_lo(~0u, 0u);
  return GPU_WARP == 64 ? __builtin_amdgcn_mbcnt_hi(~0u, below_32) : below_32;
}

/* The value in another lane; one's own where there is no such lane. */
template <typename V> GPU_DEVICE V gpu_from_lane(V value, uint32_t lane) {
  static_assert(sizeof value % sizeof(int) == 0, "a shuffle moves words");
  int words[sizeof value / sizeof(int)], from = int(4 * (lane < GPU_WARP ? lane : gpu_lane()));
  __builtin_memcpy(words, &value, sizeof value);
#pragma unroll
  for (int &word : words)
    word = __builtin_amdgcn_ds_bpermute(from, word);
  __builtin_memcpy(&value, words, sizeof value);
  return value;
}

template <typename V> GPU_DEVICE V gpu_shuffle_xor(V value, int mask) {
  return gpu_from_lane(value, gpu_lane() ^ uint32_t(mask));
}

template <typename V> GPU_DEVICE V gpu_shuffle_up(V value, int n) {
  return gpu_from_lane(value, gpu_lane() - uint32_t(n));
}

template <typename V> GPU_DEVICE V gpu_shuffle_down(V value, int n) {
  return gpu_from_lane(value, gpu_lane() + uint32_t(n));
}

template <typename V> GPU_DEVICE V gpu_shuffle(V value, int lane) {
  return gpu_from_lane(value, uint32_t(lane) % GPU_WARP);
}

template <typename V> GPU_DEVICE V gpu_atomic_add(V *to, V value) {
  return __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

/* ------------------------------------------------------------------------------------------------------ mathematics */

#define GPU_OWN_MATH 1

/* The hardware's: to 1 unit in the last place, and 0 in place of a denormal. Where clang lacks the builtin, that is
 * what the one of C becomes. */
GPU_DEVICE float gpu_exp2_approximately(float x) {
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);
#endif
}

#endif
