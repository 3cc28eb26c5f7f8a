/* Arguments of merge_attn_states.cu, mla_decode.cu and mm_encoder_attn.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_ATTENTION_H
#define FLHOST_GPU_ARGUMENTS_ATTENTION_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Bytes of shared memory that a block may have on every device, and on every one with tensor cores (sm_86 has least).
 */
enum { GPU_LEAST_SHARED = 64 << 10, GPU_LEAST_SHARED_WITH_TENSOR_CORES = 99 << 10 };

/* Threads of blocks, and what they make. */
enum {
  GPU_MERGE_THREADS = 128,
  GPU_DECODE_THREADS = 256,
  GPU_DECODE_JOIN_THREADS = 128,
  GPU_DECODE_HEADS = 8,
  GPU_DECODE_COLUMNS = 2,     /* of a thread */
  GPU_DECODE_ROW_BYTES = 64,  /* a tile has so many rows of one byte: 16 of float32 */
  GPU_DECODE_PART_ROWS = 128, /* of a sequence, at least, are worth a block */
  /* By tensor cores: rows of a tile, slices of a row's columns, and what is behind a line so that eight of them lie in
   * different banks: 16 bytes of 16-bit numbers, and 8 floats. */
  GPU_DECODE_FRAGMENT_ROWS = 32,
  GPU_DECODE_FRAGMENT_SLICES = 4,
  GPU_FRAGMENT_PADDING = 8,
  GPU_ENCODER_THREADS = 256,
  GPU_ENCODER_SIZE = 128, /* of a head, at most */
  GPU_ENCODER_KEYS = 32,  /* of a tile */
  GPU_ENCODER_QUERY_BYTES = 128,
  GPU_ENCODER_FEW_QUERY_BYTES = 64, /* a block has so many queries of one byte */
  /* By tensor cores, which multiply 16 queries of 16 bits for each warp: the same numbers of queries. */
  GPU_ENCODER_FRAGMENT_THREADS = GPU_ENCODER_QUERY_BYTES,
  GPU_ENCODER_FRAGMENT_FEW_THREADS = GPU_ENCODER_FEW_QUERY_BYTES,
  GPU_ENCODER_FRAGMENT_KEYS = 64 /* of a tile */
};

typedef struct gpu_merge_arguments {
  const void *prefix, *suffix;          /* [token, head, size] */
  const float *prefix_lse, *suffix_lse; /* [head, token] */
  void *out;
  float *lse;
  gpu_rows rows; /* of prefix, suffix, out */
  uint32_t heads;
  int64_t size, prefix_lse_head, suffix_lse_head, lse_head; /* strides */
  int32_t vectorised;
} gpu_merge_arguments;

/* A sequence's rows are made in parts. The only part writes out and lse; of several each leaves the sum of its rows,
 * not divided, and the greatest score and the sum of weights, which a second kernel joins. */
typedef struct gpu_decode_arguments {
  const void *query, *cache;   /* [sequence, head, size], [block, row, size] */
  const void *table, *lengths; /* [sequence, n], [sequence] */
  void *out;                   /* [sequence, head, rank] */
  float *lse;                  /* [sequence, head] */
  float *parts_out;            /* [sequence, head, part, rank] */
  float *parts_weight;         /* [sequence, head, part, 2] */
  int64_t query_sequence, query_head, cache_block, cache_row, table_sequence, out_sequence, out_head, lse_sequence;
  int64_t blocks, rows; /* of the cache; of a sequence at most */
  uint32_t block_rows, heads, head_groups, parts;
  int32_t size, rank, wide_table, wide_lengths, vectorised, query_vectorised;
  float scale;
} gpu_decode_arguments;

typedef struct gpu_heads {
  void *data;
  int64_t batch, token, head; /* strides */
} gpu_heads;

typedef struct gpu_encoder_arguments {
  gpu_heads query, key, value, out;
  const void *ends; /* of segments, the start of the first before; NULL: one segment */
  int64_t queries, keys, n_ends;
  uint32_t tiles, heads, heads_per_key; /* tiles of queries */
  int32_t size, wide_ends, vectorised;
  float scale;
} gpu_encoder_arguments;

#endif
