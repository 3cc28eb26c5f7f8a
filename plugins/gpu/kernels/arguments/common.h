/*
 * What the arguments of all kernels are made of. Each family has a header beside this one: plain structs that C on the
 * host fills and device code reads, each passed by value as the one argument of its kernel. Pointers are the device's;
 * sizes and strides count elements.
 */
#ifndef FLHOST_GPU_ARGUMENTS_COMMON_H
#define FLHOST_GPU_ARGUMENTS_COMMON_H

#include <stdint.h>

enum { GPU_ROWS_TENSORS = 4, GPU_ROWS_DIMS = 7 };

/* Where the rows (last dimension) of several tensors begin. They are counted in row-major order of the leading
 * dimensions. */
typedef struct gpu_rows {
  uint32_t count;
  int32_t dims; /* leading dimensions; 0: one row */
  uint32_t shape[GPU_ROWS_DIMS];
  int64_t stride[GPU_ROWS_TENSORS][GPU_ROWS_DIMS];
} gpu_rows;

/* Element types of activations. */
typedef enum gpu_dtype { GPU_FLOAT32, GPU_FLOAT16, GPU_BFLOAT16, GPU_N_DTYPES, GPU_OTHER = GPU_N_DTYPES } gpu_dtype;

#endif
