/* Linear layers and logits: products over as many rows at once as the strides of x and out allow. */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_LINEAR_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_LINEAR_H

#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/linear.h"

/* What is done with each matrix of the result while it is in the cache. */
typedef fl_status (*cpu_linear_then)(const fl_call *call, const cpu_product *product);

/* The weight may have more rows than out has columns, as padded vocabularies do. `then` may be NULL. */
fl_status cpu_flagos_linear_run(fl_call *call, const cpu_linear *linear, cpu_linear_then then);

/* fl_impl.prepared_size and prepare of ops whose weight is argument 1, and whose result comes last. */
size_t cpu_flagos_linear_prepared_size(void *self, const fl_call *call);
fl_status cpu_flagos_linear_prepare(void *self, fl_call *call, void *memory, size_t size);
#define CPU_LINEAR_PREPARES                                                                                            \
  .prepares = 1 << 1, .prepared_size = cpu_flagos_linear_prepared_size, .prepare = cpu_flagos_linear_prepare

#endif
