/* Arguments of normalisation.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_NORMALISATION_H
#define FLHOST_GPU_ARGUMENTS_NORMALISATION_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, at most */
enum { GPU_NORM_THREADS = 512 };

typedef struct gpu_norm_arguments {
  const void *x, *second; /* the residual or the gate; may be NULL */
  const void *weight;     /* may be NULL */
  const void *bias;       /* of the weight's type; may be NULL */
  const float *scale;     /* of float8 codes that out has; else NULL */
  float *scale_out;       /* of codes with a scale for each row; else NULL */
  int64_t scale_step;     /* from row to row */
  const float *bound;     /* of a row's largest magnitude; may be NULL */
  int32_t is_int8;        /* the codes with a scale for each row, else float8 */
  void *out, *residual_out;
  gpu_rows rows;   /* of x, second, out, residual_out */
  int64_t columns; /* that are normalised together: a row's, or a group's */
  int64_t counted; /* of these, the first that the variance is taken over */
  uint32_t groups; /* in a row */
  float epsilon;
  int32_t vectorised;   /* every group begins at a multiple of 16 bytes, in the weight, too */
  int32_t weight_dtype; /* gpu_dtype, float32 or that of x */
  int32_t from_one;     /* the weight is counted from 1 */
  /* With a gate: */
  int32_t out_dtype;  /* float32 or that of x */
  int32_t sigmoid;    /* the gate's activation, else silu */
  int32_t gate_after; /* the norm, else before */
  int32_t normalise;
  int32_t round_norm; /* to x's type, before the weight comes in */
} gpu_norm_arguments;

#endif
