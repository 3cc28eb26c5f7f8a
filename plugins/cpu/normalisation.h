/* What both kernels of the RMS norms need: the arguments as numbers. */
#ifndef FLHOST_CPU_NORMALISATION_H
#define FLHOST_CPU_NORMALISATION_H

#include "plugins/cpu/cpu.h"

typedef struct cpu_norm {
  DLTensor *x, *residual, *weight, *out, *residual_out; /* residual, weight, residual_out may be NULL */
  cpu_dtype dtype, weight_dtype;                        /* of x and residual; that of x where there is no weight */
  float epsilon;
  int64_t hidden, variance_size; /* elements of a row, and those of them that the variance is taken over */
  bool from_one;                 /* the weight is counted from 1, in float32 */
} cpu_norm;

/* rms_norm, and fused_add_rms_norm, which has the same values in the same places and whose residual is required. */
fl_status cpu_norm_read(fl_call *call, cpu_norm *norm);
fl_status cpu_gemma_norm_read(fl_call *call, cpu_norm *norm);

typedef struct cpu_gated_norm {
  DLTensor *x, *gate, *weight, *out; /* gate, weight may be NULL */
  cpu_dtype dtype, weight_dtype;     /* of x and gate; that of x where there is no weight */
  bool sigmoid;                      /* is the gate's activation, else silu */
  bool gate_after;                   /* the norm, else before */
  bool normalise;
  bool round_norm; /* to x's type, before the weight comes in */
  float epsilon;
  int64_t group; /* elements that are normalised together */
} cpu_gated_norm;

/* rms_norm_gated; mixer2_gated_rms_norm. */
fl_status cpu_gated_norm_read(fl_call *call, cpu_gated_norm *norm);
fl_status cpu_mixer2_norm_read(fl_call *call, cpu_gated_norm *norm);

/* Kernels that layers call, too: those of the ops of these names. */
fl_status cpu_reference_rms_norm(void *self, fl_call *call);
fl_status cpu_reference_mixer2_gated_rms_norm(void *self, fl_call *call);
fl_status cpu_flagos_rms_norm(void *self, fl_call *call);
fl_status cpu_flagos_mixer2_gated_rms_norm(void *self, fl_call *call);

#endif
