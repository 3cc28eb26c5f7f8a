/*
 * The arguments of the kernels: plain structs that C on the host fills and device code reads, each passed by value as
 * the one argument of its kernel. Pointers are the device's; sizes and strides count elements.
 */
#ifndef FLHOST_GPU_ARGUMENTS_H
#define FLHOST_GPU_ARGUMENTS_H

#include <stdint.h>

enum { GPU_ROWS_TENSORS = 4, GPU_ROWS_DIMS = 7 };

/* Where the rows (last dimension) of several tensors begin. They are counted in row-major order of the leading
 * dimensions. */
typedef struct gpu_rows {
  uint32_t count;
  int32_t dims; /* leading dimensions; 0: one row */
  uint32_t shape[GPU_ROWS_DIMS];
  int64_t stride[GPU_ROWS_TENSORS][GPU_ROWS_DIMS];
} gpu_rows;

/* Element types of activations. */
typedef enum gpu_dtype { GPU_FLOAT32, GPU_FLOAT16, GPU_BFLOAT16, GPU_N_DTYPES, GPU_OTHER = GPU_N_DTYPES } gpu_dtype;

/* activation.cu: threads of a block, at most */
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
  float quantile;                /* of gelu_and_mul_sparse */
  const void *alpha_p, *alpha_n; /* of xielu: one element each */
  int32_t dtype_p, dtype_n;      /* gpu_dtype */
} gpu_activation_arguments;

/* normalisation.cu: threads of a block, at most */
enum { GPU_NORM_THREADS = 512 };

typedef struct gpu_norm_arguments {
  const void *x, *second; /* the residual or the gate; may be NULL */
  const void *weight;     /* may be NULL */
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

/* linear.cu: threads of a block */
enum { GPU_LINEAR_THREADS = 256 };

typedef struct gpu_linear_arguments {
  void *out;
  const void *bias; /* NULL: zeros */
  gpu_rows rows;    /* of out */
  int64_t columns;
  int32_t vectorised;     /* rows of out, and the bias, begin at multiples of 16 bytes and have whole vectors */
  int32_t capped, scaled; /* process_logits: which of the steps there are */
  float cap, scale;
} gpu_linear_arguments;

#endif
