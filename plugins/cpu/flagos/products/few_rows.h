/*
 * Products of a few rows with a weight, as decoding has them: what they take is the time to read the weight. Each
 * element of it is read from memory once, and where it has to be converted that is done in registers.
 */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_FEW_ROWS_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_FEW_ROWS_H

#include "plugins/cpu/flagos/products/matmul.h"

/* How many are few, by the weight's element type: so many that another way is faster for more. The most of
 * all. */
enum { CPU_FEW_ROWS = 64 };
int64_t cpu_few_rows_of(cpu_dtype dtype);

/* Floats of memory for the rows of a, converted or as they are. */
size_t cpu_few_rows_size(int64_t m, int64_t k);
void cpu_few_rows_convert(const cpu_product *product, void *rows);

/* Columns `first` to `end - 1` of a product with no more rows than that and not b_is_k_by_n. An element of the result
 * is the same whichever columns, and how many rows, are computed with it. */
void cpu_few_rows(const cpu_product *product, const void *rows, int64_t first, int64_t end);

#endif
