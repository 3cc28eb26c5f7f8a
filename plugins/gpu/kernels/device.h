/*
 * What kernels are written in, for nvcc, for clang and AMD's devices, and for the C++ compiler with which the tests run
 * them on the CPU (GPU_EMULATED: the file with the primitives is included before). No header of the vendors' is needed:
 * bfloat16 and float8 are integers here, with the hardware's conversion where there is one.
 *
 * A file of kernels:
 *     #include "plugins/gpu/kernels/device.h"
 *     GPU_KERNEL(gpu_example_arguments, example_f32, 256) {  // a: its arguments; a block has at most 256 threads
 *       int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
 *       ...
 *     }
 * A multiplication and an addition round twice, as written, with every compiler (no contraction): say fmaf() for one.
 */
#ifndef FLHOST_GPU_DEVICE_H
#define FLHOST_GPU_DEVICE_H

#include "plugins/gpu/kernels/arguments/common.h"

#if defined(__CUDACC__) || defined(__HIP__)
#define GPU_DEVICE         __device__ __forceinline__
#define GPU_METHOD         __device__ __forceinline__
#define GPU_SHARED         __shared__
#define GPU_DYNAMIC_SHARED extern __shared__ __align__(16) unsigned char gpu_dynamic_shared[]
#elif !defined(GPU_EMULATED)
#error "a kernel file: compile it with nvcc, or with clang for HIP"
#endif

#if defined(__CUDACC__)

enum { GPU_WARP = 32 };
#define GPU_KERNEL(type, name, threads)                                                                                \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ type a)
#define gpu_barrier()            __syncthreads()
#define gpu_warp_barrier()       __syncwarp()
#define gpu_shuffle_xor(v, mask) __shfl_xor_sync(0xffffffffu, (v), (mask))
#define gpu_shuffle_up(v, n)     __shfl_up_sync(0xffffffffu, (v), (n))
#define gpu_shuffle_down(v, n)   __shfl_down_sync(0xffffffffu, (v), (n))
#define gpu_shuffle(v, lane)     __shfl_sync(0xffffffffu, (v), (lane))
/* Gives what was there before. Values are int, unsigned or float. */
#define gpu_atomic_add(to, value) atomicAdd((to), (value))

#elif defined(__HIP__)

#if defined(__GFX9__)
enum { GPU_WARP = 64 };
#else
enum { GPU_WARP = 32 };
#endif
#define GPU_KERNEL(type, name, threads) extern "C" __global__ void __launch_bounds__(threads) name(const type a)
#include "plugins/gpu/kernels/amd.h"

#endif

/* ------------------------------------------------------------------------------------------------- element types */

GPU_DEVICE uint32_t gpu_bits(float value) {
#if defined(__CUDACC__)
  return __float_as_uint(value);
#else
  return __builtin_bit_cast(uint32_t, value);
#endif
}

GPU_DEVICE float gpu_float(uint32_t bits) {
#if defined(__CUDACC__)
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}

#if defined(GPU_OWN_MATH)
#include "plugins/gpu/kernels/math.h"
#endif

/* bfloat16: the upper half of a float. NaN stays NaN. */
GPU_DEVICE float gpu_from_bf16(uint16_t bits) {
  return gpu_float(uint32_t(bits) << 16);
}

GPU_DEVICE uint16_t gpu_to_bf16(float value) {
#if defined(__CUDA_ARCH__)
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#else
  uint32_t bits = gpu_bits(value), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
#endif
}

/* IEEE binary16. */
#if defined(__CUDA_ARCH__)
GPU_DEVICE float gpu_from_f16(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

GPU_DEVICE uint16_t gpu_to_f16(float value) {
  uint16_t rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
}
#elif defined(__HIP__)
GPU_DEVICE float gpu_from_f16(uint16_t bits) {
  return float(__builtin_bit_cast(_Float16, bits));
}

GPU_DEVICE uint16_t gpu_to_f16(float value) {
  return __builtin_bit_cast(uint16_t, _Float16(value));
}
#endif

/* The element types, as tags: what is stored, and how many of them 16 bytes hold. For vectors also a word of 32 bits:
 * the float at a place in it, and a word of the floats from `v` on. */
struct gpu_f32 {
  static constexpr gpu_dtype dtype = GPU_FLOAT32;
  enum { vector = 4, word = 1 };
  typedef float stored;
  static GPU_METHOD float load(float value) {
    return value;
  }
  static GPU_METHOD float store(float value) {
    return value;
  }
  static GPU_METHOD float unpack(uint32_t bits, int) {
    return gpu_float(bits);
  }
  static GPU_METHOD uint32_t pack(const float *v) {
    return gpu_bits(v[0]);
  }
};

struct gpu_f16 {
  static constexpr gpu_dtype dtype = GPU_FLOAT16;
  enum { vector = 8, word = 2 };
  typedef uint16_t stored;
  static GPU_METHOD float load(uint16_t bits) {
    return gpu_from_f16(bits);
  }
  static GPU_METHOD uint16_t store(float value) {
    return gpu_to_f16(value);
  }
  static GPU_METHOD float unpack(uint32_t bits, int i) {
    return gpu_from_f16(uint16_t(bits >> 16 * i));
  }
  static GPU_METHOD uint32_t pack(const float *v) {
#if defined(__CUDA_ARCH__)
    uint32_t bits;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(v[1]), "f"(v[0]));
    return bits;
#else
    return uint32_t(gpu_to_f16(v[1])) << 16 | gpu_to_f16(v[0]);
#endif
  }
};

struct gpu_bf16 {
  static constexpr gpu_dtype dtype = GPU_BFLOAT16;
  enum { vector = 8, word = 2 };
  typedef uint16_t stored;
  static GPU_METHOD float load(uint16_t bits) {
    return gpu_from_bf16(bits);
  }
  static GPU_METHOD uint16_t store(float value) {
    return gpu_to_bf16(value);
  }
  static GPU_METHOD float unpack(uint32_t bits, int i) {
    return gpu_float(i ? bits & 0xffff0000u : bits << 16);
  }
  static GPU_METHOD uint32_t pack(const float *v) {
#if defined(__CUDA_ARCH__)
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(v[1]), "f"(v[0]));
    return bits;
#else
    return uint32_t(gpu_to_bf16(v[1])) << 16 | gpu_to_bf16(v[0]);
#endif
  }
};

/* exp and a quotient to about 22 bits: enough for what is rounded to 16. A divisor above 2^126 may count as infinity.
 */
GPU_DEVICE float gpu_exp_approximately(float x) {
#if defined(__CUDACC__)
  return __expf(x);
#elif defined(__HIP__)
  return gpu_exp2_approximately(x * gpu_math::log2_of_e);
#else
  return expf(x);
#endif
}

GPU_DEVICE float gpu_divide_approximately(float a, float b) {
#if defined(__CUDACC__)
  return __fdividef(a, b);
#elif defined(__HIP__)
  return a * __builtin_amdgcn_rcpf(b);
#else
  return a / b;
#endif
}

/* Of any size: the approximate quotient by more than 2^126 is 0 in CUDA, and AMD's reciprocal of it is. */
GPU_DEVICE float gpu_divide_in_full_range(float a, float b) {
#if defined(__CUDACC__)
  float quotient;
  asm("div.full.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
#elif defined(__HIP__)
  float scale = fabsf(b) > 0x1p96f ? 0x1p-32f : 1.0f;
  return scale * gpu_divide_approximately(a, b * scale);
#else
  return a / b;
#endif
}

/* As exact as a tensor of that type shows. */
template <typename T> GPU_DEVICE float gpu_exp(float x) {
  if constexpr (T::dtype == GPU_FLOAT32)
    return expf(x);
  else
    return gpu_exp_approximately(x);
}

template <typename T> GPU_DEVICE float gpu_divide(float a, float b) {
  if constexpr (T::dtype == GPU_FLOAT32)
    return a / b;
  else if constexpr (T::dtype == GPU_BFLOAT16)
    return gpu_divide_in_full_range(a, b);
  else
    return gpu_divide_approximately(a, b);
}

/* What a value becomes when PyTorch writes it into a tensor of that type and reads it again. */
template <typename T> GPU_DEVICE float gpu_round(float value) {
  return T::load(T::store(value));
}

#if defined(__CUDA_ARCH__)
/* The conversion of a pair leaves the upper half where a float has it, and is faster than that of one. */
template <> GPU_DEVICE float gpu_round<gpu_bf16>(float value) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(value), "f"(0.0f));
  return gpu_float(bits);
}
#endif

template <typename T> GPU_DEVICE float gpu_load(const void *from, int64_t i) {
  return T::load(static_cast<const typename T::stored *>(from)[i]);
}

template <typename T> GPU_DEVICE void gpu_store(void *to, int64_t i, float value) {
  static_cast<typename T::stored *>(to)[i] = T::store(value);
}

/* Of an element type that only the call knows, a gpu_dtype. */
GPU_DEVICE float gpu_load_as(int dtype, const void *from, int64_t i) {
  return dtype == GPU_FLOAT32   ? gpu_load<gpu_f32>(from, i)
         : dtype == GPU_FLOAT16 ? gpu_load<gpu_f16>(from, i)
                                : gpu_load<gpu_bf16>(from, i);
}

GPU_DEVICE void gpu_store_as(int dtype, void *to, int64_t i, float value) {
  if (dtype == GPU_FLOAT32)
    gpu_store<gpu_f32>(to, i, value);
  else if (dtype == GPU_FLOAT16)
    gpu_store<gpu_f16>(to, i, value);
  else
    gpu_store<gpu_bf16>(to, i, value);
}

/* Of a tensor of int64, or else int32. */
GPU_DEVICE int64_t gpu_load_index(int wide, const void *from, int64_t i) {
  return wide ? static_cast<const int64_t *>(from)[i] : static_cast<const int32_t *>(from)[i];
}

template <typename I> GPU_DEVICE I gpu_divide_up(I n, I by) {
  return (n + by - 1) / by;
}

GPU_DEVICE int64_t gpu_clamp(int64_t value, int64_t least, int64_t most) {
  return value < least ? least : value > most ? most : value;
}

/* ------------------------------------------------------------------------------------------------------- vectors */

/* 16 bytes in one access: compilers split the assignment of a struct in places. */
#if defined(__CUDACC__)
GPU_DEVICE void gpu_store_words(void *to, const uint32_t (&w)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
               : "memory");
}

GPU_DEVICE void gpu_load_words(const void *from, uint32_t (&w)[4]) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "l"(__cvta_generic_to_global(from))
               : "memory");
}
#else
#if defined(__clang__)
typedef uint32_t gpu_words __attribute__((ext_vector_type(4), may_alias));
#else
typedef uint32_t gpu_words __attribute__((vector_size(16), may_alias));
#endif

GPU_DEVICE void gpu_store_words(void *to, const uint32_t (&w)[4]) {
  *static_cast<gpu_words *>(to) = gpu_words{w[0], w[1], w[2], w[3]};
}

GPU_DEVICE void gpu_load_words(const void *from, uint32_t (&w)[4]) {
  gpu_words loaded = *static_cast<const gpu_words *>(from);
  w[0] = loaded[0];
  w[1] = loaded[1];
  w[2] = loaded[2];
  w[3] = loaded[3];
}
#endif

/* N elements from `i` on as floats: one for N = 1, else by vectors of 16 bytes, whose address has to be a multiple of
 * 16 and of whose length, T::vector, N is a multiple. */
template <typename T, int N> GPU_DEVICE void gpu_load_floats(const void *from, int64_t i, float (&values)[N]) {
  if constexpr (N == 1) {
    values[0] = gpu_load<T>(from, i);
  } else {
    static_assert(N % T::vector == 0, "a number of whole vectors");
#pragma unroll
    for (int k = 0; k < N; k += T::vector) {
      uint32_t words[4];
      gpu_load_words(static_cast<const typename T::stored *>(from) + i + k, words);
#pragma unroll
      for (int j = 0; j < T::vector; j++)
        values[k + j] = T::unpack(words[j / T::word], j % T::word);
    }
  }
}

template <typename T, int N> GPU_DEVICE void gpu_store_floats(void *to, int64_t i, const float (&values)[N]) {
  if constexpr (N == 1) {
    gpu_store<T>(to, i, values[0]);
  } else {
    static_assert(N % T::vector == 0, "a number of whole vectors");
#pragma unroll
    for (int k = 0; k < N; k += T::vector) {
      const uint32_t words[4] = {T::pack(values + k), T::pack(values + k + T::word), T::pack(values + k + 2 * T::word),
                                 T::pack(values + k + 3 * T::word)};
      gpu_store_words(static_cast<typename T::stored *>(to) + i + k, words);
    }
  }
}

/* ---------------------------------------------------------------------------------------------------------- rows */

/* The element at which a row of tensor number `tensor` begins. */
GPU_DEVICE int64_t gpu_row_begin(const gpu_rows &rows, int tensor, uint32_t row) {
  if (rows.dims == 1)
    return int64_t(row) * rows.stride[tensor][0];
  int64_t begin = 0;
#pragma unroll 1
  for (int d = rows.dims - 1; d >= 0; d--) {
    begin += int64_t(row % rows.shape[d]) * rows.stride[tensor][d];
    row /= rows.shape[d];
  }
  return begin;
}

/* ---------------------------------------------------------------------------------------------------- reductions */

struct gpu_sum {
  template <typename V> static GPU_METHOD V of(V a, V b) {
    return a + b;
  }
};

/* NaN wins. */
struct gpu_max {
  template <typename V> static GPU_METHOD V of(V a, V b) {
    return a > b || a != a ? a : b;
  }
};

/* Over the warp; every thread of it has to come, and gets the result. */
template <typename Op, typename V> GPU_DEVICE V gpu_warp_reduce(V value) {
  for (int mask = GPU_WARP / 2; mask > 0; mask /= 2)
    value = Op::of(value, gpu_shuffle_xor(value, mask));
  return value;
}

/* Over n neighbouring lanes, a power of two of at most 32; the same holds. */
template <typename Op, int n, typename V> GPU_DEVICE V gpu_lanes_reduce(V value) {
#pragma unroll
  for (int mask = n / 2; mask > 0; mask /= 2)
    value = Op::of(value, gpu_shuffle_xor(value, mask));
  return value;
}

/* Over a block of a multiple of GPU_WARP threads in one dimension; every thread has to come, and gets the result. May
 * be called again at once. `none` is what changes nothing: 0 for a sum. */
template <typename Op, typename V> GPU_DEVICE V gpu_block_reduce(V value, V none) {
  GPU_SHARED V parts[1024 / GPU_WARP];
  int warp = int(threadIdx.x) / GPU_WARP, lane = int(threadIdx.x) % GPU_WARP, n = int(blockDim.x) / GPU_WARP;
  value = gpu_warp_reduce<Op>(value);
  if (lane == 0)
    parts[warp] = value;
  gpu_barrier();
  value = gpu_warp_reduce<Op>(lane < n ? parts[lane] : none);
  gpu_barrier();
  return value;
}

#endif
