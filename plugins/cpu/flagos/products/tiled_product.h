/*
 * Products by tiles (tiles.h): of bfloat16 with a weight of bfloat16, any number of rows, and of float16 with one of
 * float16, more than a few. The weight is multiplied as it lies in memory.
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_TILED_PRODUCT_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_TILED_PRODUCT_H

#include "plugins/cpu/flagos/products/matmul.h"

/* Fewer rows of float16 take no longer by vectors. */
enum { CPU_TILED_HALF_ROWS = 5 };

/* Whether the product is one that is computed so, where the processor has tiles. */
static inline bool cpu_is_of_tiles(const cpu_product *product) {
#ifdef __AMX_BF16__
  const cpu_dtype dtype = product->b.dtype;
  const bool is_half = dtype == CPU_FLOAT16 && product->m >= CPU_TILED_HALF_ROWS && !product->accumulate;
  return product->a.dtype == dtype && (dtype == CPU_BFLOAT16 || is_half) && !product->b_is_k_by_n;
#else
  return (void)product, false;
#endif
}

/* Of such a product. In as many threads as pay: each element is the same whatever their number, and whatever rows are
 * beside it (of float16, whatever more than eight). FL_ENOMEM without scratch memory; FL_ENOTSUP, and some of `out` may
 * be written: a number of float16 is not finite, none of the product is computed so then. */
fl_status cpu_tiled_product(const cpu_product *product);

#endif
