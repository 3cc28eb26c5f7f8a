/* Linear layers and logits: products over as many rows at once as the strides of x and out allow. */
#ifndef FLHOST_CPU_FLAGOS_LINEAR_H
#define FLHOST_CPU_FLAGOS_LINEAR_H

#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/linear.h"

/* What is done with each matrix of the result while it is in the cache. */
typedef fl_status (*cpu_linear_then)(const fl_call *call, const cpu_product *product);

/* The weight may have more rows than out has columns, as padded vocabularies do. `then` may be NULL. */
fl_status cpu_flagos_linear_run(fl_call *call, const cpu_linear *linear, cpu_linear_then then);

#endif
