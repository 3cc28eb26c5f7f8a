/*
 * Products of bfloat16 with a weight of bfloat16 by tiles (tiles.h), of any number of rows: the weight is multiplied as
 * it lies in memory.
 */
#ifndef FLHOST_CPU_FLAGOS_TILED_PRODUCT_H
#define FLHOST_CPU_FLAGOS_TILED_PRODUCT_H

#include "plugins/cpu/flagos/matmul.h"

/* Whether the product is one that is computed so: both of bfloat16, where the processor has tiles. */
static inline bool cpu_is_of_tiles(const cpu_product *product) {
#ifdef __AMX_BF16__
  return product->a.dtype == CPU_BFLOAT16 && product->b.dtype == CPU_BFLOAT16 && !product->b_is_k_by_n;
#else
  return (void)product, false;
#endif
}

/* Of such a product. In as many threads as pay: each element is the same whatever their number, and whatever rows are
 * beside it. FL_ENOMEM without scratch memory. */
fl_status cpu_tiled_product(const cpu_product *product);

#endif
