/* The norms: what both kinds of kernels take, the arguments as numbers, and the ops that are made of these. */
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

typedef struct cpu_gated_norm {
  DLTensor *x, *gate, *weight, *out; /* gate may be NULL; weight, too, where a gate comes before the norm */
  cpu_dtype dtype, weight_dtype;     /* of x and gate; that of x where there is no weight */
  bool sigmoid;                      /* is the gate's activation, else silu */
  bool gate_after;                   /* the norm, else before */
  bool normalise;
  bool round_norm; /* to x's type, before the weight comes in; the gate comes before the norm then */
  float epsilon;
  int64_t group; /* elements that are normalised together */
} cpu_gated_norm;

typedef struct cpu_layer_norm {
  DLTensor *x, *residual, *weight, *bias, *out, *residual_out; /* all but x and out may be NULL */
  cpu_dtype dtype, weight_dtype; /* of x and residual; of weight and bias, that of x where there is neither */
  float epsilon;
  int64_t hidden;
  bool from_one; /* the weight is counted from 1, in its own type */
} cpu_layer_norm;

/* In place is fine. */
typedef fl_status (*cpu_norm_fn)(const cpu_norm *norm);
typedef fl_status (*cpu_gated_norm_fn)(const cpu_gated_norm *norm);
typedef fl_status (*cpu_layer_norm_fn)(const cpu_layer_norm *norm);
fl_status cpu_reference_norm(const cpu_norm *norm);
fl_status cpu_reference_gated_norm(const cpu_gated_norm *norm);
fl_status cpu_flagos_norm(const cpu_norm *norm);
fl_status cpu_flagos_gated_norm(const cpu_gated_norm *norm);

/* The ops; `self` of their rows is the address of a cpu_norm_fn, of the gated two of a cpu_gated_norm_fn, of the last
 * two of a cpu_layer_norm_fn. The first is fused_add_rms_norm, too, which has the same values in the same places and
 * whose residual is required. */
fl_status cpu_rms_norm(void *self, fl_call *call);
fl_status cpu_gemma_rms_norm(void *self, fl_call *call);
fl_status cpu_rms_norm_gated(void *self, fl_call *call);
fl_status cpu_mixer2_gated_rms_norm(void *self, fl_call *call);
fl_status cpu_run_layer_norm(void *self, fl_call *call);
fl_status cpu_run_nemotron_layer_norm(void *self, fl_call *call);

#endif
