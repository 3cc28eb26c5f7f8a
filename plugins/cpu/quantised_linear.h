/* Linear layers with quantised weights: their calls taken apart, for both kernels of each. The host has checked shapes,
 * element types and attributes. */
#ifndef FLHOST_CPU_QUANTISED_LINEAR_H
#define FLHOST_CPU_QUANTISED_LINEAR_H

#include "plugins/cpu/linear.h"
#include "plugins/cpu/support/index.h"

/* ---------------------------------------------------------------------------------------------------------- 8 bits */

/* Element [i, j] is data[i * row + j * column]; the steps are 0 where there is but one. */
typedef struct cpu_scales {
  const float *data;
  int64_t row, column;
} cpu_scales;

/* out [m, n] = x [m, k] weight [n, k]^T, a weight of 8 bits with scales. */
typedef struct cpu_scaled_mm {
  int64_t m, n, k;
  bool is_float8;    /* the weight is, else int8 */
  cpu_dtype x_dtype; /* CPU_OTHER: as the weight */
  const void *x, *weight;
  int64_t x_stride, weight_stride; /* of rows, in bytes */
  cpu_scales x_scale;              /* [rows, groups] */
  cpu_scales weight_scale;         /* [n / block_n, groups] */
  bool has_blocks;
  int64_t block_n, block_k; /* what shares a scale; block_k is at least k where there are no blocks */
  const int32_t *azp;       /* may be NULL; the steps of its rows */
  int64_t azp_step;
  const void *bias; /* may be NULL */
  cpu_dtype bias_dtype;
  cpu_matrix out;
} cpu_scaled_mm;

/* Calls `run` for each matrix of x and out (cpu_linear_walk), and says what is wrong: of scaled_mm and of
 * weight_only_linear. */
typedef fl_status (*cpu_scaled_mm_fn)(const cpu_scaled_mm *mm);
fl_status cpu_scaled_mm_each(fl_call *call, cpu_scaled_mm_fn run);
fl_status cpu_weight_only_each(fl_call *call, cpu_scaled_mm_fn run);

/* Matrix `index` of a stack of codes of 8 bits [stack, n, k], with its scales: [stack], [stack, n], [stack, n, 1] or
 * [stack, blocks of block[0] rows, blocks of block[1] columns]. m, x, bias and out are the caller's to set. */
cpu_scaled_mm cpu_weight_only_of(const DLTensor *stack, const DLTensor *scales, const int64_t *block, int64_t index);

/* ---------------------------------------------------------------------------------------------------------- 4 bits */

typedef enum cpu_four_bits { CPU_AWQ, CPU_GPTQ, CPU_MXFP4 } cpu_four_bits;

/* out [m, n] = x [m, k] times a weight of 4 bits. */
typedef struct cpu_four_bit_linear {
  cpu_four_bits format;
  int64_t m, n, k;
  cpu_matrix x, out;
  const void *bias; /* may be NULL */
  cpu_dtype bias_dtype;
  /* The weight: of AWQ [k, n / 8] and GPTQ [k / 8, n] words, of MXFP4 [n, k / 2] bytes; rows so many bytes apart. */
  const char *weight;
  int64_t weight_stride;
  cpu_matrix scales; /* [groups, n]; of MXFP4 the bytes [n, k / 32] */
  const char *zeros; /* words [groups, n / 8]; NULL: all are 8 */
  int64_t zeros_stride;
  int zero_offset;       /* of what is stored */
  int64_t group;         /* rows of a group, */
  const DLTensor *g_idx; /* or the group of each row; else NULL */
} cpu_four_bit_linear;

static inline int64_t cpu_group_of(const cpu_four_bit_linear *linear, int64_t row) {
  return linear->g_idx ? cpu_index(linear->g_idx, row) : row / linear->group;
}

/* As above; FL_EINVAL where g_idx has what is no group, before anything is computed. */
typedef fl_status (*cpu_four_bit_fn)(const cpu_four_bit_linear *linear);
fl_status cpu_four_bit_each(fl_call *call, cpu_four_bits format, cpu_four_bit_fn run);

/* Matrix `index` of a stack of MXFP4 [stack, n, k / 2] with its scales [stack, n, k / 32]; the rest as above. */
cpu_four_bit_linear cpu_mxfp4_of(const DLTensor *stack, const DLTensor *scales, int64_t index);

#endif
