/*
 * Matrix products of the optimised kernels: blocks of both operands are converted to float and packed, small tiles of
 * the result are kept in registers; a few rows are multiplied without packing (few_rows.h).
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_MATMUL_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_MATMUL_H

#include "plugins/cpu/support/product.h"

/* b [n, k] once more, as cpu_product_share likes it best for products of many rows: bytes of that, 0 where it likes b
 * as it is. a of the product need not be there, and m is nothing. Then fills them, at an address aligned to 64: FL_OK
 * or FL_ENOTSUP. Both in as many threads as pay. */
size_t cpu_product_packed_size(const cpu_product *product);
fl_status cpu_product_pack(const cpu_product *product, void *packed);

/* In as many threads as pay (parallel.h): each element is the same whatever their number. FL_ENOMEM without scratch
 * memory. */
fl_status cpu_product_share(const cpu_product *product);

/* ------------------------------------------------------------------------------- for the ways to compute products */

/* Rows m to m + rows - 1 and columns n to n + columns - 1 of the result. */
cpu_product cpu_product_part(const cpu_product *product, int64_t m, int64_t rows, int64_t n, int64_t columns);

/* Those of the result are these sums, whose rows are `stride` apart, with what is added to them. */
void cpu_product_end(const cpu_product *product, float *sums, int64_t stride, int64_t m, int64_t rows, int64_t n,
                     int64_t columns);

#endif
