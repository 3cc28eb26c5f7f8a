/*
 * The matrix product of the reference kernels: linear layers and what is built from them (logits, MoE experts, Mamba
 * projections, latent attention) call it.
 */
#ifndef FLHOST_CPU_REFERENCE_MATMUL_H
#define FLHOST_CPU_REFERENCE_MATMUL_H

#include "plugins/cpu/cpu.h"

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

/* The sum over `n` products, in double: it stands for whatever order PyTorch adds in. */
double cpu_reference_dot(cpu_dtype a_dtype, const void *a, cpu_dtype b_dtype, const void *b, int64_t n);

/* out [m, n] = x [m, k] weight^T [k, n] + bias [n], weight stored as [n, k]. The sum and the bias are added unrounded,
 * then the result is rounded once to the type of `out`. `bias` may be NULL; `out` must not overlap what is read. */
void cpu_reference_linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_dtype bias_dtype,
                          const void *bias, cpu_matrix out);

#endif
