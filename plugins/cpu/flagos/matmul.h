/*
 * Matrix products of the optimised kernels: blocks of both operands are converted to float and packed, small tiles of
 * the result are kept in registers; a few rows are multiplied without packing. The tiles are compiled for several
 * instruction sets, of which the machine's best is taken. One thread, no state, no library.
 */
#ifndef FLHOST_CPU_FLAGOS_MATMUL_H
#define FLHOST_CPU_FLAGOS_MATMUL_H

#include "plugins/cpu/matrix.h"

/* out [m, n] = a [m, k] b^T + bias; or with b_is_k_by_n, a b. Each element is rounded once. */
typedef struct cpu_product {
  int64_t m, n, k;
  cpu_matrix a;
  cpu_matrix b; /* [n, k], as weights are stored; or [k, n] */
  bool b_is_k_by_n;
  bool accumulate;  /* adds to `out`, which is float32 */
  bool bias_by_row; /* bias is [m], else [n] */
  cpu_dtype bias_dtype;
  const void *bias; /* may be NULL */
  cpu_matrix out;   /* overlaps nothing that is read */
} cpu_product;

/* Floats of scratch memory (cpu_floats_alloc) that a product of these sizes needs; a
 * smaller product needs no more. */
size_t cpu_product_scratch(int64_t m, int64_t n, int64_t k);
void cpu_product_run(const cpu_product *product, float *scratch);

/* The same as cpu_reference_linear; FL_ENOMEM without scratch memory. */
fl_status cpu_flagos_linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_dtype bias_dtype,
                            const void *bias, cpu_matrix out);

#endif
