/* Arguments of embedding.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_EMBEDDING_H
#define FLHOST_GPU_ARGUMENTS_EMBEDDING_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block */
enum { GPU_EMBEDDING_THREADS = 256 };

typedef struct gpu_embedding_arguments {
  const void *ids, *table;
  void *out;
  gpu_rows tokens; /* of ids, out */
  int64_t columns, table_rows, table_stride;
  int32_t wide_ids;   /* int64, else int32 */
  int32_t vectorised; /* all rows begin at multiples of 16 bytes, and are a multiple of that many */
  uint32_t lanes;     /* threads that share a row, a power of two */
  /* Of a shard: the ids that have rows, and the row of added_start. */
  int32_t sharded;
  int64_t org_start, org_end, added_start, added_end, added_row;
} gpu_embedding_arguments;

#endif
