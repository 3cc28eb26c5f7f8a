/* Arguments of activation.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_ACTIVATION_H
#define FLHOST_GPU_ARGUMENTS_ACTIVATION_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, at most */
enum { GPU_ACTIVATION_THREADS = 256 };

typedef struct gpu_activation_parameters {
  float alpha, beta, limit, threshold, eps;
  float positive_alpha, negative_alpha;       /* of xielu, made on the device */
  int32_t positive_rounded, negative_rounded; /* are products with them of x's type? */
} gpu_activation_parameters;

typedef struct gpu_activation_arguments {
  const void *x;
  void *out;
  gpu_rows rows;      /* of x, out */
  int64_t columns;    /* elements of a row of out */
  int32_t vectorised; /* rows begin at multiples of 16 bytes, as do the second halves of x's */
  gpu_activation_parameters parameters;
  const float *scale;            /* of float8 codes that out has; else NULL */
  float quantile;                /* of gelu_and_mul_sparse */
  const void *alpha_p, *alpha_n; /* of xielu: one element each */
  int32_t dtype_p, dtype_n;      /* gpu_dtype */
} gpu_activation_arguments;

#endif
