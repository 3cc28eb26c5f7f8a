/*
 * RMS norms with a gate, a block of a row at a time. What is normalised, x times the activated gate, costs an exp for
 * each element: a group's first KEPT elements are computed once and kept for the second pass over it.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/squares.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/rows.h"

#include <math.h>

enum { KEPT = 16 * CPU_BLOCK };

static void silu(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = vector_silu(values[i]);
}

static void sigmoid(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = vector_sigmoid(values[i]);
}

static void multiply_by_gate(const cpu_gated_norm *norm, float *restrict values, const void *gate, int64_t first,
                             int64_t n) {
  float activated[CPU_BLOCK];
  if (!norm->gate)
    return;
  cpu_block_types[norm->dtype].load(activated, gate, first, n);
  (norm->sigmoid ? sigmoid : silu)(activated, n);
  for (int64_t i = 0; i < n; i++)
    values[i] *= activated[i];
}

/* A block of what is normalised. */
static void load_input(const cpu_gated_norm *norm, float *values, const void *x, const void *gate, int64_t first,
                       int64_t n) {
  cpu_block_types[norm->dtype].load(values, x, first, n);
  if (!norm->gate_after)
    multiply_by_gate(norm, values, gate, first, n);
}

/* Where the block at `first` of the group lies: among those that are kept, else in `spare`. */
static float *place_of(float *kept, float *spare, int64_t first) {
  return first + CPU_BLOCK <= KEPT ? kept + first : spare;
}

static void finish(const cpu_gated_norm *norm, float *restrict values, float scale, const void *gate, int64_t first,
                   int64_t n) {
  float weight[CPU_BLOCK];
  if (norm->normalise)
    for (int64_t i = 0; i < n; i++)
      values[i] *= scale;
  if (norm->round_norm)
    cpu_block_types[norm->dtype].round(values, n);
  if (norm->weight) {
    cpu_block_types[norm->weight_dtype].load(weight, fl_data(norm->weight), first, n);
    for (int64_t i = 0; i < n; i++)
      values[i] *= weight[i];
  }
  if (norm->gate_after)
    multiply_by_gate(norm, values, gate, first, n);
}

static void normalise_group(const cpu_gated_norm *norm, const void *x, const void *gate, void *out, int64_t begin) {
  const cpu_block_type *out_type = &cpu_block_types[cpu_dtype_of(norm->out)];
  float kept[KEPT], spare[CPU_BLOCK], scale = 1.0f;
  if (norm->normalise) {
    cpu_squares squares = {{0}};
    for (int64_t first = 0; first < norm->group; first += CPU_BLOCK) {
      int64_t n = cpu_block_size(norm->group - first);
      float *values = place_of(kept, spare, first);
      load_input(norm, values, x, gate, begin + first, n);
      cpu_squares_add(&squares, values, n);
    }
    scale = 1.0f / sqrtf(cpu_squares_sum(&squares) / (float)norm->group + norm->epsilon);
  }
  for (int64_t first = 0; first < norm->group; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(norm->group - first);
    float *values = place_of(kept, spare, first);
    if (!norm->normalise || values == spare)
      load_input(norm, values, x, gate, begin + first, n);
    finish(norm, values, scale, gate, begin + first, n);
    out_type->store(out, begin + first, values, n);
  }
}

static void normalise_row(const void *user, const cpu_rows *rows) {
  const cpu_gated_norm *norm = user;
  for (int64_t begin = 0; begin < norm->x->shape[norm->x->ndim - 1]; begin += norm->group)
    normalise_group(norm, rows->at[0], rows->at[1], rows->at[2], begin);
}

fl_status cpu_flagos_gated_norm(const cpu_gated_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->gate, norm->out};
  int64_t bytes = norm->x->shape[norm->x->ndim - 1] * cpu_dtype_size(norm->dtype);
  return cpu_rows_run(3, tensors, (cpu_row_cost){.work = 3 * bytes * CPU_WORK_EXP}, normalise_row, norm);
}

static const fl_impl ops[] = {
    {.op_name = "rms_norm_gated",
     CPU_FLAGOS,
     .fn = cpu_rms_norm_gated,
     .self = (cpu_gated_norm_fn[]){cpu_flagos_gated_norm}},
    {.op_name = "mixer2_gated_rms_norm",
     CPU_FLAGOS,
     .fn = cpu_mixer2_gated_rms_norm,
     .self = (cpu_gated_norm_fn[]){cpu_flagos_gated_norm}},
};
OP_LIST(ops);
