/* Arguments of moe_align.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_MOE_ALIGN_H
#define FLHOST_GPU_ARGUMENTS_MOE_ALIGN_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, at most */
enum { GPU_ALIGN_THREADS = 512 };

typedef struct gpu_align_arguments {
  const void *ids;
  int32_t wide_ids;         /* int64, else int32 */
  int64_t row_stride, topk; /* of ids */
  uint64_t places;          /* in ids */
  uint32_t chunk;           /* places that a block takes, a multiple of its threads */
  int32_t experts, block;
  const void *map; /* from the ids' experts to these, -1 for none; NULL: they are the same */
  int64_t map_size;
  int32_t wide_map;
  int32_t *sorted, *expert_ids, *num_tokens_post_pad;
  int64_t sorted_size, expert_ids_size;
  int32_t *counts; /* [blocks][experts], where there are several blocks */
} gpu_align_arguments;

#endif
