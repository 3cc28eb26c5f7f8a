/*
 * RMS norm, a block of a row at a time: squares are added in float in independent sums, scale and weight are
 * applied in float and rounded once, as vLLM's CUDA and CPU kernels do. The norm is that of the unrounded sum of x and
 * residual, as in vLLM's native definition. The order of additions is fixed: the same bits every time.
 */
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/squares.h"
#include "plugins/cpu/rows.h"

#include <math.h>

typedef struct norm_row {
  const cpu_block_type *type, *weight_type;
  const void *x, *residual, *weight;
  void *out, *residual_out;
  int64_t size, variance_size;
  float epsilon, weight_from;
} norm_row;

/* A block of x, plus the residual where there is one. */
static void load_input(const norm_row *row, float *values, int64_t first, int64_t n) {
  float residual[CPU_BLOCK];
  row->type->load(values, row->x, first, n);
  if (!row->residual)
    return;
  row->type->load(residual, row->residual, first, n);
  for (int64_t i = 0; i < n; i++)
    values[i] += residual[i];
}

static float sum_of_squares(const norm_row *row) {
  float values[CPU_BLOCK];
  cpu_squares squares = {{0}};
  for (int64_t first = 0; first < row->variance_size; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(row->variance_size - first);
    load_input(row, values, first, n);
    cpu_squares_add(&squares, values, n);
  }
  return cpu_squares_sum(&squares);
}

static void normalise(const norm_row *row) {
  float values[CPU_BLOCK], weight[CPU_BLOCK];
  float scale = 1.0f / sqrtf(sum_of_squares(row) / (float)row->variance_size + row->epsilon);
  for (int64_t first = 0; first < row->size; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(row->size - first);
    load_input(row, values, first, n);
    if (row->residual_out)
      row->type->store(row->residual_out, first, values, n);
    for (int64_t i = 0; i < n; i++)
      values[i] *= scale;
    if (row->weight) {
      row->weight_type->load(weight, row->weight, first, n);
      for (int64_t i = 0; i < n; i++)
        values[i] *= row->weight_from + weight[i];
    }
    row->type->store(row->out, first, values, n);
  }
}

/* In place is fine: a block of x and residual is read for the last time before it is overwritten. */
void cpu_flagos_norm(const cpu_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  for (cpu_rows rows = cpu_rows_begin(4, tensors); rows.left; cpu_rows_next(&rows)) {
    norm_row row = {.type = &cpu_block_types[norm->dtype],
                    .weight_type = &cpu_block_types[norm->weight_dtype],
                    .x = rows.at[0],
                    .residual = rows.at[1],
                    .weight = norm->weight ? fl_data(norm->weight) : NULL,
                    .out = rows.at[2],
                    .residual_out = rows.at[3],
                    .size = norm->hidden,
                    .variance_size = norm->variance_size,
                    .epsilon = norm->epsilon,
                    .weight_from = norm->from_one ? 1.0f : 0.0f};
    normalise(&row);
  }
}

static const fl_impl ops[] = {
    {.op_name = "rms_norm", CPU_FLAGOS, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
    {.op_name = "fused_add_rms_norm", CPU_FLAGOS, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
    {.op_name = "gemma_rms_norm", CPU_FLAGOS, .fn = cpu_gemma_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
};
OP_LIST(ops);
