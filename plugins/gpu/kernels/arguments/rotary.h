/* Arguments of rotary.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_ROTARY_H
#define FLHOST_GPU_ARGUMENTS_ROTARY_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, and the most tables that one tensor is rotated by */
enum { GPU_ROTARY_THREADS = 256, GPU_ROTARY_TABLES = 5 };

/* Which row of a table a position means: its own, that of its place in a chunk, or the last of a chunk. */
typedef enum gpu_rotary_row { GPU_ROTARY_AT_POSITION, GPU_ROTARY_IN_CHUNK, GPU_ROTARY_AT_CHUNK_END } gpu_rotary_row;

typedef struct gpu_rotary_table {
  const void *cos, *sin;
  int64_t cos_stride, sin_stride; /* from one row to the next */
  int32_t row;                    /* gpu_rotary_row */
} gpu_rotary_table;

/* query or key: rotated by each of its tables, the results side by side. */
typedef struct gpu_rotary_tensor {
  const void *in;
  void *out;
  int64_t in_head, out_head; /* from one head to the next */
  int64_t out_table;         /* from the result of one table to that of the next */
  uint32_t heads;
  uint32_t heads_at_once; /* that a block has of a token */
  uint32_t blocks;        /* of the grid, that take this tensor */
  uint32_t n_tables;
  gpu_rotary_table tables[GPU_ROTARY_TABLES];
} gpu_rotary_tensor;

typedef struct gpu_rotary_arguments {
  gpu_rotary_tensor tensors[2]; /* the second has no blocks if there is none */
  gpu_rows tokens;       /* of in and out of the first, in and out of the second: where their first heads begin */
  const void *positions; /* NULL: a token's is its number modulo n_positions */
  int64_t n_positions;   /* that the tables have */
  int64_t chunk;
  int64_t pairs, offset, size; /* of a head: rotated from element `offset` on, of `size` */
  uint32_t lanes;              /* threads that share a head, a power of two */
  int32_t wide_positions;      /* int64, else int32 */
  int32_t vectorised;          /* pairs begin at multiples of 16 bytes, and are a multiple of that many */
  int32_t interleaved, inverse;
  int32_t rounded;     /* after each product */
  int32_t table_dtype; /* gpu_dtype, float32 or that of the tensors */
} gpu_rotary_arguments;

#endif
