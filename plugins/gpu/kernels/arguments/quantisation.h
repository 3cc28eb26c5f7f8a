/* Arguments of quantisation.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_QUANTISATION_H
#define FLHOST_GPU_ARGUMENTS_QUANTISATION_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, at most, and the most parts that a tensor's scale is found from */
enum { GPU_QUANT_THREADS = 512, GPU_QUANT_PARTS = 1024 };

typedef struct gpu_quant_arguments {
  const void *x; /* gates and then factors where they are gated */
  void *q;
  float *scale_out;
  const float *bound; /* of the largest magnitude, or of the scale (silu_and_mul_per_block_quant); may be NULL */
  gpu_rows rows;      /* of x, q; of scale_out where rows have scales of their own */
  int64_t columns;    /* elements of a row of q */
  uint32_t q_rows;    /* with those behind x's, which become 0 */
  int64_t q_stride;   /* from one of these to the next */
  int32_t fnuz;       /* q is of e4m3fnuz, else of e4m3fn */
  int32_t is_int8;    /* q is of int8, of silu_and_mul_per_block_quant alone */
  float largest, least_scale;
  int32_t power_of_two;
  int32_t vectorised;                /* what is read begins at multiples of 16 bytes, and is a multiple of that many */
  uint32_t lanes, groups_at_once;    /* threads that share a group, or a row; groups of a row that a block has */
  int64_t group_rows, group_columns; /* that share a scale */
  /* Given scales: that of row m and column n is scale[m / group_rows * row_step + n / group_columns * column_step]. */
  const float *scale;
  int64_t row_step, column_step;
  int32_t shared_by_vector;         /* the elements of 16 bytes have one scale */
  uint64_t n_scales, scale_columns; /* that are copied to scale_out */
  int64_t scale_stride, scale_out_stride;
  float *parts; /* of the tensor's largest magnitude */
  uint32_t n_parts;
} gpu_quant_arguments;

/* Of scaled_int8_quant */
typedef struct gpu_int8_arguments {
  const void *x;
  void *q;
  gpu_rows rows;      /* of x, q */
  int64_t columns;    /* elements of a row */
  int32_t vectorised; /* what is read begins at multiples of 16 bytes, and is a multiple of that many */
  const float *scale; /* that is given, for all rows; else each has its own */
  const int32_t *azp; /* with it; may be NULL */
  float *scale_out;
  int32_t *azp_out;             /* NULL: symmetric */
  int64_t scale_step, azp_step; /* of computed ones, from row to row */
  uint32_t lanes;               /* threads along a row, of a given scale */
} gpu_int8_arguments;

#endif
