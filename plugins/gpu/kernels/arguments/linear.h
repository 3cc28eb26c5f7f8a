/* Arguments of linear.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_LINEAR_H
#define FLHOST_GPU_ARGUMENTS_LINEAR_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block */
enum { GPU_LINEAR_THREADS = 256 };

typedef struct gpu_linear_arguments {
  void *out;
  const void *bias; /* NULL: zeros */
  gpu_rows rows;    /* of out */
  int64_t columns;
  int32_t vectorised;     /* rows of out, and the bias, begin at multiples of 16 bytes and have whole vectors */
  int32_t capped, scaled; /* process_logits: which of the steps there are */
  float cap, scale;
} gpu_linear_arguments;

#endif
