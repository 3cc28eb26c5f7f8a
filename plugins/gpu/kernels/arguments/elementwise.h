/* Arguments of elementwise.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_ELEMENTWISE_H
#define FLHOST_GPU_ARGUMENTS_ELEMENTWISE_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, at most */
enum { GPU_ELEMENTWISE_THREADS = 256 };

typedef struct gpu_elementwise_arguments {
  const void *x, *y;
  void *out;
  gpu_rows rows;      /* of x, y, out */
  int64_t columns;    /* elements of a row */
  int32_t one_y;      /* for all of a row */
  int32_t vectorised; /* rows begin at multiples of 16 bytes */
} gpu_elementwise_arguments;

#endif
