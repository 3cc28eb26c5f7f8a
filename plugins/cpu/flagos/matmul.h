/* The matrix product of the optimised layers: activations as float, weights of any type converted a block at a time. */
#ifndef FLHOST_CPU_FLAGOS_MATMUL_H
#define FLHOST_CPU_FLAGOS_MATMUL_H

#include "plugins/cpu/reference/matmul.h"

/* The same as cpu_reference_linear; FL_ENOMEM without scratch memory. */
fl_status cpu_flagos_linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_dtype bias_dtype,
                            const void *bias, cpu_matrix out);

#endif
