/* Arguments of paged_attention.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_PAGED_ATTENTION_H
#define FLHOST_GPU_ARGUMENTS_PAGED_ATTENTION_H

#include "plugins/gpu/kernels/arguments/attention.h"

/* Threads of blocks, and what they make: rows are queries of tokens times heads of one group. */
enum {
  GPU_PAGED_THREADS = 256,
  GPU_PAGED_KEYS = 32,       /* of a tile */
  GPU_PAGED_SIZE = 256,      /* of a head, at most */
  GPU_PAGED_MANY_SIZE = 128, /* of a head where a block makes many rows */
  GPU_PAGED_FEW_ROWS = 16,
  GPU_PAGED_MANY_ROWS = 64,
  /* By tensor cores, which multiply 16 rows for each warp: the same numbers of rows. */
  GPU_PAGED_FRAGMENT_FEW_THREADS = 32,
  GPU_PAGED_FRAGMENT_THREADS = 128,
  GPU_PAGED_FRAGMENT_KEYS = 64, /* of a tile; half of them of heads above GPU_PAGED_MANY_SIZE */
  GPU_PAGED_JOIN_THREADS = 128
};

/* Keys or values: [block, row, head, size]. */
typedef struct gpu_paged_cache {
  const void *data;
  const float *scale;       /* of float8, for each head or for all; NULL: of the activations' type */
  int64_t block, row, head; /* strides */
  int32_t scale_head;       /* from a head's scale to the next */
  int32_t vectorised;
} gpu_paged_cache;

/* The grid is made for as many tiles of rows as there can be: see query_rows. The only part writes out and lse; of
 * several each leaves its sums, not divided, and the greatest score and the sum of weights, which a second kernel
 * joins. */
typedef struct gpu_paged_arguments {
  const void *query; /* [token, head, size] */
  gpu_paged_cache keys, values;
  const void *table, *starts, *lengths; /* [sequence, n], [sequence + 1], [sequence] */
  const float *slopes;                  /* [head] or NULL */
  const void *sinks;                    /* [head] or NULL */
  void *out;                            /* [token, head, size] */
  float *lse;                           /* [head, token] */
  float *parts_out;                     /* [token, head, part, size] */
  float *parts_weight;                  /* [token, head, part, 2] */
  int64_t query_token, query_head, table_sequence, out_token, out_head, lse_head;
  int64_t tokens, sequences, blocks, most_keys; /* blocks of the cache; keys of a sequence at most */
  uint32_t block_rows, heads, kv_heads, group, parts;
  int32_t left, right; /* a query at p sees keys from p - left to p + right */
  int32_t size, sinks_dtype, wide_table, wide_starts, wide_lengths, query_vectorised, out_vectorised;
  float scale, soft_cap;
} gpu_paged_arguments;

#endif
