/*
 * Products of many rows of bfloat16 with a weight of bfloat16, both multiplied as they are: in pairs of neighbours,
 * whose products the processor adds.
 */
#ifndef FLHOST_CPU_FLAGOS_PAIRS_H
#define FLHOST_CPU_FLAGOS_PAIRS_H

#include "plugins/cpu/flagos/matmul.h"

/* Whether that is the fastest way: not where the processor has no such products, or has tiles, which are faster; beside
 * tiles, a product of pairs takes as long as four of floats. */
#ifdef __AVX512BF16__
bool cpu_has_pairs(void);
#else
static inline bool cpu_has_pairs(void) {
  return false;
}
#endif

/* Whether the product is one that is computed so: both of bfloat16, there. */
static inline bool cpu_is_of_pairs(const cpu_product *product) {
  return product->a.dtype == CPU_BFLOAT16 && product->b.dtype == CPU_BFLOAT16 && !product->b_is_k_by_n &&
         cpu_has_pairs();
}

/* Of such a product. In as many threads as pay: each element is the same whatever their number.
 * FL_ENOMEM without scratch memory. */
fl_status cpu_pairs_share(const cpu_product *product);

#endif
