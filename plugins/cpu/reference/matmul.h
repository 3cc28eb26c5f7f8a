/*
 * The matrix product of the reference kernels: linear layers and what is built from them (logits, MoE experts, Mamba
 * projections, latent attention) call it.
 */
#ifndef FLHOST_CPU_REFERENCE_MATMUL_H
#define FLHOST_CPU_REFERENCE_MATMUL_H

#include "plugins/cpu/support/matrix.h"

/* The sum over `n` products, in double: it stands for whatever order PyTorch adds in. */
double cpu_reference_dot(cpu_dtype a_dtype, const void *a, cpu_dtype b_dtype, const void *b, int64_t n);

/* out [m, n] = x [m, k] weight^T [k, n] + bias [n], weight stored as [n, k]. The sum and the bias are added unrounded,
 * then the result is rounded once to the type of `out`. `bias` may be NULL; `out` must not overlap what is read. */
void cpu_reference_linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_dtype bias_dtype,
                          const void *bias, cpu_matrix out);

/* out [m, n] = a [m, k] b [k, n], rounded once. */
void cpu_reference_product(int64_t m, int64_t n, int64_t k, cpu_matrix a, cpu_matrix b, cpu_matrix out);

#endif
