/* Normalisations and gated activations that are quantised at once: the arguments as numbers, for both kinds of kernels,
 * and the ops that are made of these. */
#ifndef FLHOST_CPU_FUSED_QUANTISATION_H
#define FLHOST_CPU_FUSED_QUANTISATION_H

#include "plugins/cpu/support/rows.h"

#include <flhost/dtype.h>
#include <math.h>

typedef struct cpu_fused_quant {
  cpu_dtype dtype;   /* of x, residual and weight */
  int64_t size;      /* elements of a row of codes */
  int64_t group;     /* so many of them share a computed scale */
  bool is_static;    /* the scale is given, and its reciprocal multiplies; the codes are float8 */
  bool is_int8;      /* else float8_e4m3fn */
  float scale;       /* that is given */
  float upper_bound; /* of a computed scale (gated), or of the magnitude that it comes of */
  const void *weight;
  float epsilon;
  int64_t n_rows;
  float *scale_out; /* of row 0, where it is computed */
  int64_t scale_step;
} cpu_fused_quant;

/* Of rows x, residual (may be NULL), q, residual_out (with the residual); or of x, q. */
typedef struct cpu_fused_quant_parts {
  cpu_row_fn norm_row, gated_row; /* take the cpu_fused_quant */
} cpu_fused_quant_parts;

/* The scales of the present row. */
static inline float *cpu_fused_scales(const cpu_fused_quant *quant, const cpu_rows *rows) {
  return quant->scale_out + (quant->n_rows - rows->left) * quant->scale_step;
}

/* The ops; `self` of their rows is a cpu_fused_quant_parts. */
fl_status cpu_rms_norm_static_fp8_quant(void *self, fl_call *call);
fl_status cpu_fused_add_rms_norm_static_fp8_quant(void *self, fl_call *call);
fl_status cpu_rms_norm_dynamic_per_token_quant(void *self, fl_call *call);
fl_status cpu_silu_and_mul_quant(void *self, fl_call *call);
fl_status cpu_silu_and_mul_per_block_quant(void *self, fl_call *call);

#endif
