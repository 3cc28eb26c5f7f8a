/* A matrix product, for all that compute one. */
#ifndef FLHOST_CPU_SUPPORT_PRODUCT_H
#define FLHOST_CPU_SUPPORT_PRODUCT_H

#include "plugins/cpu/support/matrix.h"

/* out [m, n] = a [m, k] b^T + bias; or with b_is_k_by_n, a b. Each element is rounded once. */
typedef struct cpu_product {
  int64_t m, n, k;
  cpu_matrix a;
  cpu_matrix b; /* [n, k], as weights are stored; or [k, n] */
  bool b_is_k_by_n;
  bool accumulate;  /* adds to `out`, which is float32 */
  bool bias_by_row; /* bias is [m], else [n] */
  cpu_dtype bias_dtype;
  const void *bias;   /* may be NULL */
  cpu_matrix out;     /* overlaps nothing that is read */
  const void *packed; /* b once more, as products of more than a few rows like it best; or NULL */
} cpu_product;

#endif
