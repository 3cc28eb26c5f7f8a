/* Products with quantised weights, an element at a time: for experts, too. */
#ifndef FLHOST_CPU_REFERENCE_QUANTISED_LINEAR_H
#define FLHOST_CPU_REFERENCE_QUANTISED_LINEAR_H

#include "plugins/cpu/quantised_linear.h"

/* x is not quantised: mm->x_dtype is not CPU_OTHER. Always FL_OK. */
fl_status cpu_reference_weight_only(const cpu_scaled_mm *mm);
fl_status cpu_reference_four_bit(const cpu_four_bit_linear *linear);

#endif
