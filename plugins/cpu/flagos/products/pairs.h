/*
 * Products of many rows of bfloat16 with a weight of bfloat16, both multiplied as they are: in pairs of neighbours,
 * whose products the processor adds.
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_PAIRS_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_PAIRS_H

#include "plugins/cpu/flagos/products/matmul.h"

/* Whether such products are used: processors with tiles (tiles.h) take as long for one as for four of floats. */
static inline bool cpu_has_pairs(void) {
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
  return true;
#else
  return false;
#endif
}

/* Whether the product is one that is computed so: both of bfloat16, there. */
static inline bool cpu_is_of_pairs(const cpu_product *product) {
  return product->a.dtype == CPU_BFLOAT16 && product->b.dtype == CPU_BFLOAT16 && !product->b_is_k_by_n &&
         cpu_has_pairs();
}

/* Bytes of b as such a product takes it without packing it first, and what fills them. */
size_t cpu_pairs_packed_size(const cpu_product *product);
fl_status cpu_pairs_pack(const cpu_product *product, void *packed);

/* Up to how many rows few_rows.h is faster, though b is packed. */
enum { CPU_FEW_ROWS_PACKED = 2 };

/* Of such a product; its `packed` is NULL or what that left. In as many threads as pay: each element is the same
 * whatever their number. FL_ENOMEM without scratch memory. */
fl_status cpu_pairs_share(const cpu_product *product);

#endif
