/* Arguments of cache.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_CACHE_H
#define FLHOST_GPU_ARGUMENTS_CACHE_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, at most, and tokens; tensors whose rows go to a cache */
enum { GPU_CACHE_THREADS = 256, GPU_CACHE_TOKENS = 16, GPU_CACHE_PARTS = 2 };

/* What goes to a cache, or to some columns of one. */
typedef struct gpu_cache_part {
  const void *from;
  void *to;
  int64_t from_token, from_head; /* from one to the next */
  int64_t to_block, to_row, to_head;
  uint32_t heads, columns;
  const float *scale; /* of float8 codes */
  int64_t scale_step; /* from a head's to the next; 0: all have the same one */
  int32_t vectorised; /* all rows begin at multiples of 16 bytes, and are such */
} gpu_cache_part;

typedef struct gpu_cache_arguments {
  gpu_cache_part parts[GPU_CACHE_PARTS];
  const void *slots; /* of tokens: slot s is row s % block_size of block s / block_size */
  int32_t wide_slots;
  int64_t slot_stride, n_slots, block_size;
  int64_t tokens;   /* that have a slot */
  uint32_t at_once; /* of them a block has, at most GPU_CACHE_TOKENS */
  uint32_t lanes;   /* threads that share one */
} gpu_cache_arguments;

#endif
