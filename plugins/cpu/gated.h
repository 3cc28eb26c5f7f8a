/* Gated activations that experts call, too: the kernels of the ops of these names, which make nothing of `self`. */
#ifndef FLHOST_CPU_GATED_H
#define FLHOST_CPU_GATED_H

#include "plugins/cpu/cpu.h"

fl_status cpu_reference_silu_and_mul(void *self, fl_call *call);
fl_status cpu_reference_gelu_and_mul(void *self, fl_call *call);
fl_status cpu_reference_swigluoai_and_mul(void *self, fl_call *call);
fl_status cpu_reference_swiglustep_and_mul(void *self, fl_call *call);

fl_status cpu_flagos_silu_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_gelu_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_swigluoai_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_swiglustep_and_mul(void *self, fl_call *call);

#endif
