/*
 * Rows of a table by the ids of tokens: nothing but copies. `lanes` threads share a row, others of a block have the
 * rows behind.
 */
#include "plugins/gpu/kernels/arguments/embedding.h"
#include "plugins/gpu/kernels/device.h"

typedef gpu_embedding_arguments arguments;

enum { THREADS = GPU_EMBEDDING_THREADS };

/* The table's row; -1: another shard's, or no id at all. */
GPU_DEVICE int64_t row_of(const arguments &a, int64_t id) {
  int64_t row = id;
  if (a.sharded && id >= a.org_start && id < a.org_end)
    row = id - a.org_start;
  else if (a.sharded)
    row = id >= a.added_start && id < a.added_end ? id - a.added_start + a.added_row : -1;
  return row >= 0 && row < a.table_rows ? row : -1;
}

/* 16 bytes; zeros if there is no row. */
template <typename Element> GPU_DEVICE void copy_vector(const Element *from, Element *to, bool present) {
  uint32_t words[4] = {0, 0, 0, 0};
  if (present)
    gpu_load_words(from, words);
  gpu_store_words(to, words);
}

template <typename Element> GPU_DEVICE void copy_row(const arguments &a, int64_t row, int64_t out, uint32_t lane) {
  const Element *from = static_cast<const Element *>(a.table) + (row < 0 ? 0 : row * a.table_stride);
  Element *to = static_cast<Element *>(a.out) + out;
  const int64_t length = 16 / sizeof(Element), step = int64_t(gridDim.x) * a.lanes;
  int64_t thread = int64_t(blockIdx.x) * a.lanes + lane;
  if (a.vectorised)
    for (int64_t i = thread * length; i < a.columns; i += step * length)
      copy_vector(from + i, to + i, row >= 0);
  else
    for (int64_t i = thread; i < a.columns; i += step)
      to[i] = row < 0 ? Element(0) : from[i];
}

template <typename Element> GPU_DEVICE void embed(const arguments &a) {
  uint32_t lane = threadIdx.x % a.lanes, per_block = blockDim.x / a.lanes;
  uint64_t token = uint64_t(blockIdx.y) * per_block + threadIdx.x / a.lanes;
  for (; token < a.tokens.count; token += gridDim.y * per_block) {
    int64_t at = gpu_row_begin(a.tokens, 0, uint32_t(token));
    int64_t id = a.wide_ids ? static_cast<const int64_t *>(a.ids)[at] : static_cast<const int32_t *>(a.ids)[at];
    copy_row<Element>(a, row_of(a, id), gpu_row_begin(a.tokens, 1, uint32_t(token)), lane);
  }
}

GPU_KERNEL(gpu_embedding_arguments, embedding_32, THREADS) {
  embed<uint32_t>(a);
}
GPU_KERNEL(gpu_embedding_arguments, embedding_16, THREADS) {
  embed<uint16_t>(a);
}
