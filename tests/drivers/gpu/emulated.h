/* The primitives of plugins/gpu/kernels/device.h for the CPU: included before it when kernels are compiled for grid.c.
 */
#ifndef FLHOST_TESTS_EMULATED_H
#define FLHOST_TESTS_EMULATED_H

#include "tests/drivers/gpu/grid.h"

#include <flhost/dtype.h>
#include <string.h>

#define GPU_EMULATED 1
enum { GPU_WARP = GRID_WARP };

/* With warps of 64 the mathematical functions are those that AMD's devices get. */
#if GRID_WARP == 64
#define GPU_OWN_MATH 1
#else
#include <math.h>
#endif

/* A kernel is entered with the address of its arguments; the linker collects its entry. */
#define GPU_KERNEL(type, name, threads)                                                                                \
  static void name(const type &a);                                                                                     \
  static void name##_thread(const void *arguments) {                                                                   \
    name(*static_cast<const type *>(arguments));                                                                       \
  }                                                                                                                    \
  static const grid_kernel name##_entry = {#name, name##_thread, sizeof(type), threads, __FILE__};                     \
  __attribute__((section("grid_kernels"), used)) static const grid_kernel *const name##_listed = &name##_entry;        \
  static void name(const type &a)
#define GPU_DEVICE inline
#define GPU_METHOD inline
/* One block at a time runs in a thread, so what is the thread's is the block's. */
#define GPU_SHARED         static __thread
#define GPU_DYNAMIC_SHARED unsigned char *gpu_dynamic_shared = grid_self->shared

#define threadIdx (grid_self->thread)
#define blockIdx  (grid_self->block)
#define blockDim  (grid_self->block_size)
#define gridDim   (grid_self->grid_size)

inline void gpu_barrier() {
  grid_barrier();
}

inline unsigned gpu_lane() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % GPU_WARP;
}

template <typename V> V gpu_exchange(V value, unsigned from) {
  static_assert(sizeof value <= 8, "a shuffle moves at most 8 bytes");
  grid_exchange(&value, sizeof value, gpu_lane(), from);
  return value;
}

inline void gpu_warp_barrier() {
  gpu_exchange(0, gpu_lane());
}

template <typename V> V gpu_shuffle_xor(V value, int mask) {
  return gpu_exchange(value, gpu_lane() ^ unsigned(mask));
}

/* A lane that is not there becomes a large number. */
template <typename V> V gpu_shuffle_up(V value, int n) {
  return gpu_exchange(value, gpu_lane() - unsigned(n));
}

template <typename V> V gpu_shuffle_down(V value, int n) {
  return gpu_exchange(value, gpu_lane() + unsigned(n));
}

template <typename V> V gpu_shuffle(V value, int lane) {
  return gpu_exchange(value, unsigned(lane) % GPU_WARP);
}

/* Several launches may run at once. */
template <typename V, typename Change> V gpu_change(V *to, Change change) {
  V before, after;
  __atomic_load(to, &before, __ATOMIC_RELAXED);
  do
    after = change(before);
  while (!__atomic_compare_exchange(to, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}

template <typename V> V gpu_atomic_add(V *to, V value) {
  return gpu_change(to, [=](V before) { return V(before + value); });
}

inline float gpu_from_f16(uint16_t bits) {
  return fl_f16_to_float(bits);
}

inline uint16_t gpu_to_f16(float value) {
  return fl_float_to_f16(value);
}

#endif
