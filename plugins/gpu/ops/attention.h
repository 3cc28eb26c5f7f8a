/* What files that launch attention share. */
#ifndef FLHOST_GPU_OPS_ATTENTION_H
#define FLHOST_GPU_OPS_ATTENTION_H

#include "plugins/gpu/launch.h"

/* As many as keep every multiprocessor of a large device busy. */
enum { GPU_MANY_BLOCKS = 384 };

/* Can all rows of the last dimension be read in vectors, to their end? */
static inline bool gpu_heads_aligned(const DLTensor *tensor, int64_t row) {
  return gpu_tensor_aligned(tensor) && row % gpu_vector_length(tensor) == 0;
}

/* Are there kernels that multiply such elements by tensor cores? */
static inline bool gpu_has_tensor_cores(gpu_dtype dtype) {
  return gpu.tensor_cores && (dtype == GPU_FLOAT16 || dtype == GPU_BFLOAT16);
}

#endif
