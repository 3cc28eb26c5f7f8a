/* Products with a weight of 4 bits, which experts have, too; and what their files share: products of a few rows. */
#ifndef FLHOST_CPU_FLAGOS_PRODUCTS_FOUR_BIT_LINEAR_H
#define FLHOST_CPU_FLAGOS_PRODUCTS_FOUR_BIT_LINEAR_H

#include "plugins/cpu/quantised_linear.h"

/* In as many threads as pay; FL_ENOMEM. */
fl_status cpu_four_bit_run(const cpu_four_bit_linear *linear);

/* A few rows times a weight that is read once and unpacked in registers: is it a case for that? Then does it, in as
 * many threads as pay; FL_ENOMEM. A weight is not rounded before it is multiplied: that is more exact. */
bool cpu_four_bit_rows_take(const cpu_four_bit_linear *linear);
fl_status cpu_four_bit_rows(const cpu_four_bit_linear *linear);

#endif
