/* The matrix product of the optimised layers: activations as float, weights of any type converted a block at a time. */
#ifndef FLHOST_CPU_FLAGOS_MATMUL_H
#define FLHOST_CPU_FLAGOS_MATMUL_H

#include "plugins/cpu/reference/matmul.h"

/* out [m, n] = x [m, k] weight^T [k, n] + bias [n], weight stored as [n, k]; strides of x and out in floats, none of
 * them rounded. `bias` may be NULL. The order of additions depends on nothing but m, n and k. */
void cpu_flagos_matmul(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_stride, cpu_matrix weight,
                       cpu_dtype bias_dtype, const void *bias, float *out, int64_t out_stride);

#endif
