/*
 * Rows of tokens into a paged cache: copied, or as float8 codes. A slot that the cache does not have gets nothing.
 * Where tokens have the same slot the last one writes, and no other: a block compares its tokens' slots with all behind
 * them.
 */
#include "plugins/gpu/kernels/arguments/cache.h"
#include "plugins/gpu/kernels/float8.h"

typedef gpu_cache_arguments arguments;
typedef gpu_cache_part part;

enum { THREADS = GPU_CACHE_THREADS, TOKENS = GPU_CACHE_TOKENS };

/* ------------------------------------------------------------------------------------------------------- elements
 * Each writes what a thread writes at once.
 */

template <typename Element> struct copied {
  enum { length = 16 / sizeof(Element) };
  static GPU_METHOD void write(const part &p, int64_t from, int64_t to, uint32_t) {
    const Element *source = static_cast<const Element *>(p.from) + from;
    Element *target = static_cast<Element *>(p.to) + to;
    if (p.vectorised) {
      uint32_t words[4];
      gpu_load_words(source, words);
      gpu_store_words(target, words);
    } else {
      *target = *source;
    }
  }
};

template <typename T> struct narrowed {
  enum { length = T::vector };
  template <int N> static GPU_METHOD void write_some(const part &p, int64_t from, int64_t to, float scale) {
    float v[N];
    gpu_load_floats<T, N>(p.from, from, v);
#pragma unroll
    for (int k = 0; k < N; k++)
      v[k] /= scale;
    gpu_store_float8<gpu_e4m3fn>(static_cast<uint8_t *>(p.to) + to, v);
  }
  static GPU_METHOD void write(const part &p, int64_t from, int64_t to, uint32_t head) {
    float scale = p.scale[head * p.scale_step];
    p.vectorised ? write_some<length>(p, from, to, scale) : write_some<1>(p, from, to, scale);
  }
};

/* ---------------------------------------------------------------------------------------------------------- tokens */

GPU_DEVICE int64_t slot_of(const arguments &a, int64_t token) {
  return gpu_load_index(a.wide_slots, a.slots, token * a.slot_stride);
}

/* The slots of the block's n tokens from `first` on; -1: none, or one that a later token has. */
GPU_DEVICE void find_slots(const arguments &a, int64_t first, int n, int64_t *slots, int64_t *found) {
  if (int(threadIdx.x) < n) {
    int64_t slot = slot_of(a, first + threadIdx.x);
    slots[threadIdx.x] = found[threadIdx.x] = slot < a.n_slots ? slot : -1;
  }
  gpu_barrier();
  for (int64_t token = first + 1 + threadIdx.x; token < a.tokens; token += blockDim.x) {
    int64_t slot = slot_of(a, token);
    for (int k = 0; k < n && first + k < token; k++)
      if (slots[k] == slot)
        found[k] = -1; /* as all do that come here */
  }
  gpu_barrier();
}

template <typename Write>
GPU_DEVICE void write_part(const arguments &a, const part &p, int64_t token, int64_t slot, uint32_t lane) {
  int64_t from = token * p.from_token, to = slot / a.block_size * p.to_block + slot % a.block_size * p.to_row;
  uint32_t length = p.vectorised ? uint32_t(Write::length) : 1, of_head = p.columns / length, n = p.heads * of_head;
  for (uint32_t unit = lane; unit < n; unit += a.lanes) {
    uint32_t head = p.heads == 1 ? 0 : unit / of_head;
    int64_t column = int64_t(unit - head * of_head) * length;
    Write::write(p, from + head * p.from_head + column, to + head * p.to_head + column, head);
  }
}

/* `lanes` threads for each token, a block's others for those behind. */
template <typename Write> GPU_DEVICE void write_tokens(const arguments &a) {
  GPU_SHARED int64_t slots[TOKENS], found[TOKENS];
  int64_t first = int64_t(blockIdx.x) * a.at_once, left = a.tokens - first;
  int n = int(left < a.at_once ? left : a.at_once);
  find_slots(a, first, n, slots, found);
  for (int k = int(threadIdx.x / a.lanes); k < n; k += int(blockDim.x / a.lanes))
    if (found[k] >= 0)
#pragma unroll
      for (int i = 0; i < GPU_CACHE_PARTS; i++)
        write_part<Write>(a, a.parts[i], first + k, found[k], threadIdx.x % a.lanes);
}

GPU_KERNEL(gpu_cache_arguments, cache_16, THREADS) {
  write_tokens<copied<uint16_t>>(a);
}
GPU_KERNEL(gpu_cache_arguments, cache_32, THREADS) {
  write_tokens<copied<uint32_t>>(a);
}
GPU_KERNEL(gpu_cache_arguments, cache_float8_f32, THREADS) {
  write_tokens<narrowed<gpu_f32>>(a);
}
GPU_KERNEL(gpu_cache_arguments, cache_float8_f16, THREADS) {
  write_tokens<narrowed<gpu_f16>>(a);
}
GPU_KERNEL(gpu_cache_arguments, cache_float8_bf16, THREADS) {
  write_tokens<narrowed<gpu_bf16>>(a);
}
