/* Matrices within tensors, as the kernels for products take them. */
#ifndef FLHOST_CPU_SUPPORT_MATRIX_H
#define FLHOST_CPU_SUPPORT_MATRIX_H

#include "plugins/cpu/cpu.h"

#include <stdlib.h>

/* A matrix whose rows are contiguous and `stride` bytes apart. */
typedef struct cpu_matrix {
  void *data;
  cpu_dtype dtype;
  int64_t stride;
} cpu_matrix;

/* The last two dimensions of a tensor, at its first element; a tensor of one dimension is one row. */
static inline cpu_matrix cpu_matrix_of(const DLTensor *tensor) {
  cpu_dtype dtype = cpu_dtype_of(tensor);
  return (cpu_matrix){.data = fl_data(tensor),
                      .dtype = dtype,
                      .stride = tensor->ndim > 1 ? fl_stride(tensor, tensor->ndim - 2) * cpu_dtype_size(dtype) : 0};
}

static inline void *cpu_matrix_row(cpu_matrix matrix, int64_t row) {
  return (char *)matrix.data + row * matrix.stride;
}

/* What lies behind the first `row` rows and `column` columns. */
static inline cpu_matrix cpu_matrix_at(cpu_matrix matrix, int64_t row, int64_t column) {
  matrix.data = (char *)cpu_matrix_row(matrix, row) + column * cpu_dtype_size(matrix.dtype);
  return matrix;
}

/* Memory as a matrix of rows of `columns`, one behind the other. */
static inline cpu_matrix cpu_matrix_in(void *data, cpu_dtype dtype, int64_t columns) {
  return (cpu_matrix){.data = data, .dtype = dtype, .stride = columns * cpu_dtype_size(dtype)};
}

/* Element [i, j, 0…] of a tensor. */
static inline void *cpu_tensor_at(const DLTensor *tensor, int64_t i, int64_t j) {
  return (char *)fl_data(tensor) +
         (i * fl_stride(tensor, 0) + j * fl_stride(tensor, 1)) * ((tensor->dtype.bits + 7) / 8);
}

/* Scratch memory that begins on a cache line; NULL if there is none left. */
static inline float *cpu_floats_alloc(size_t n) {
  if (n > SIZE_MAX / sizeof(float) - 64)
    return NULL;
  return aligned_alloc(64, (n * sizeof(float) + 64) / 64 * 64);
}

#endif
