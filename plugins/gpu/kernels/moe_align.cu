/*
 * moe_align_block_size: a counting sort of the places of topk_ids by expert, stable, so that its result is always the
 * same. A block takes a chunk of the places, each of its warps a part of that. One block does all where there are few
 * places; of several each has to know what the others counted, which moe_align_count leaves in the workspace.
 */
#include "plugins/gpu/kernels/arguments/moe_align.h"
#include "plugins/gpu/kernels/device.h"

typedef gpu_align_arguments arguments;

enum { THREADS = GPU_ALIGN_THREADS };

/* -1: behind the chunk's end, or none of the experts, which has no place in the result. */
GPU_DEVICE int32_t expert_at(const arguments &a, uint64_t place, uint64_t end) {
  if (place >= end)
    return -1;
  uint32_t n = uint32_t(place);
  int64_t at = a.row_stride == a.topk ? int64_t(n) : n / uint32_t(a.topk) * a.row_stride + n % uint32_t(a.topk);
  int64_t id = gpu_load_index(a.wide_ids, a.ids, at);
  if (a.map)
    id = id >= 0 && id < a.map_size ? gpu_load_index(a.wide_map, a.map, id) : -1;
  return id >= 0 && id < a.experts ? int32_t(id) : -1;
}

/* How often each expert is named from place `first` to `end`, by every step-th place. */
GPU_DEVICE void count_experts(const arguments &a, uint64_t first, uint64_t end, uint32_t step, int32_t *counts) {
  for (uint64_t place = first; place < end; place += step) {
    int32_t expert = expert_at(a, place, end);
    if (expert >= 0)
      gpu_atomic_add(&counts[expert], 1);
  }
}

GPU_DEVICE uint64_t end_of_chunk(const arguments &a) {
  uint64_t end = (uint64_t(blockIdx.x) + 1) * a.chunk;
  return end < a.places ? end : a.places;
}

GPU_DEVICE void clear(int32_t *counts, uint32_t n) {
  for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
    counts[i] = 0;
}

GPU_KERNEL(gpu_align_arguments, moe_align_count, THREADS) {
  GPU_DYNAMIC_SHARED;
  int32_t *counts = reinterpret_cast<int32_t *>(gpu_dynamic_shared);
  clear(counts, uint32_t(a.experts));
  gpu_barrier();
  count_experts(a, uint64_t(blockIdx.x) * a.chunk + threadIdx.x, end_of_chunk(a), blockDim.x, counts);
  gpu_barrier();
  for (uint32_t i = threadIdx.x; i < uint32_t(a.experts); i += blockDim.x)
    a.counts[uint64_t(blockIdx.x) * a.experts + i] = counts[i];
}

/* In shared memory, of every expert: */
struct table {
  int32_t *begin; /* of its places in the result; at [experts] the end of the last expert's */
  int32_t *total; /* its places */
  int32_t *next;  /* [warps][experts]: how many are before the next one of that warp */
};

/* What other blocks counted, if there are any: how many places there are, and how many before this block's. */
GPU_DEVICE void read_counts(const arguments &a, uint32_t expert, int32_t &total, int32_t &before) {
#pragma unroll 8
  for (uint32_t block = 0; block < gridDim.x; block++) {
    int32_t count = a.counts[uint64_t(block) * a.experts + expert];
    total += count;
    before += block < blockIdx.x ? count : 0;
  }
}

/* Turns each warp's counts into how many places are before its first. */
GPU_DEVICE void add_up(const arguments &a, const table &t, uint32_t expert) {
  int32_t total = 0, before = 0;
  if (gridDim.x > 1)
    read_counts(a, expert, total, before);
  for (uint32_t warp = 0; warp < blockDim.x / GPU_WARP; warp++) {
    int32_t *next = &t.next[warp * a.experts + expert], count = *next;
    *next = before;
    before += count;
  }
  t.total[expert] = gridDim.x > 1 ? total : before;
}

GPU_DEVICE int32_t padded(const arguments &a, int32_t places) {
  return (places + a.block - 1) / a.block * a.block;
}

/* By one warp: where each expert's places begin. */
GPU_DEVICE void lay_out(const arguments &a, const table &t, uint32_t lane) {
  int32_t end = 0;
  for (int32_t first = 0; first < a.experts; first += GPU_WARP) {
    int32_t expert = first + int32_t(lane), own = expert < a.experts ? padded(a, t.total[expert]) : 0, sum = own;
    for (int n = 1; n < GPU_WARP; n *= 2) {
      int32_t before = gpu_shuffle_up(sum, n);
      sum += int(lane) >= n ? before : 0;
    }
    if (expert < a.experts)
      t.begin[expert] = end + sum - own;
    end += gpu_shuffle(sum, GPU_WARP - 1);
  }
  if (lane == 0)
    t.begin[a.experts] = end;
}

/* A warp's part of the chunk, as many places at a time as it has lanes. */
GPU_DEVICE void place_part(const arguments &a, const table &t, uint64_t first, uint64_t end, int32_t *next) {
  int lane = int(threadIdx.x % GPU_WARP);
  for (; first < end; first += GPU_WARP) {
    int32_t expert = expert_at(a, first + lane, end), rank = 0, later = 0;
    for (int i = 0; i < GPU_WARP; i++) {
      bool same = gpu_shuffle(expert, i) == expert;
      rank += same && i < lane;
      later += same && i > lane;
    }
    int32_t at = expert < 0 ? 0 : next[expert] + rank;
    gpu_warp_barrier();
    if (expert >= 0 && !later)
      next[expert] = at + 1;
    if (expert >= 0)
      a.sorted[t.begin[expert] + at] = int32_t(first) + lane;
    gpu_warp_barrier();
  }
}

/* What lies behind the places of each expert, and whose each block is: a warp of the grid for an expert. */
GPU_DEVICE void fill_experts(const arguments &a, const table &t) {
  uint32_t warps = blockDim.x / GPU_WARP, warp = blockIdx.x * warps + threadIdx.x / GPU_WARP;
  int32_t lane = int32_t(threadIdx.x % GPU_WARP);
  for (uint32_t expert = warp; expert < uint32_t(a.experts); expert += gridDim.x * warps) {
    int32_t begin = t.begin[expert], end = begin + padded(a, t.total[expert]);
    for (int64_t i = int64_t(begin) + t.total[expert] + lane; i < end; i += GPU_WARP)
      a.sorted[i] = int32_t(a.places);
    for (int64_t i = begin / a.block + lane; i < end / a.block; i += GPU_WARP)
      a.expert_ids[i] = int32_t(expert);
  }
}

/* What lies behind all experts. */
GPU_DEVICE void fill_rest(const arguments &a, int32_t end) {
  int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = end + thread; i < a.sorted_size; i += step)
    a.sorted[i] = int32_t(a.places);
  for (int64_t i = end / a.block + thread; i < a.expert_ids_size; i += step)
    a.expert_ids[i] = -1;
  if (thread == 0)
    *a.num_tokens_post_pad = end;
}

GPU_KERNEL(gpu_align_arguments, moe_align_place, THREADS) {
  GPU_DYNAMIC_SHARED;
  uint32_t warps = blockDim.x / GPU_WARP, warp = threadIdx.x / GPU_WARP, lane = threadIdx.x % GPU_WARP;
  uint32_t experts = uint32_t(a.experts), part = a.chunk / warps;
  int32_t *memory = reinterpret_cast<int32_t *>(gpu_dynamic_shared);
  table t = {memory, memory + experts + 1, memory + 2 * experts + 1};
  uint64_t first = uint64_t(blockIdx.x) * a.chunk + uint64_t(warp) * part, end = end_of_chunk(a);
  end = first + part < end ? first + part : end;
  clear(t.next, warps * experts);
  gpu_barrier();
  count_experts(a, first + lane, end, GPU_WARP, t.next + warp * experts);
  gpu_barrier();
  for (uint32_t expert = threadIdx.x; expert < experts; expert += blockDim.x)
    add_up(a, t, expert);
  gpu_barrier();
  if (warp == 0)
    lay_out(a, t, lane);
  gpu_barrier();
  place_part(a, t, first, end, t.next + warp * experts);
  fill_experts(a, t);
  fill_rest(a, t.begin[experts]);
}
