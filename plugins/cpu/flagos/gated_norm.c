/*
 * RMS norms with a gate, a block of a row at a time. What is normalised, x times the activated gate, costs an exp for
 * each element: a group's first KEPT elements are computed once and kept for the second pass over it.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/squares.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/rows.h"

#include <math.h>
#include <string.h>

enum { KEPT = 16 * CPU_BLOCK };

typedef struct gated_norm {
  DLTensor *x, *gate, *weight, *out; /* gate, weight may be NULL */
  const cpu_block_type *type, *weight_type, *out_type;
  void (*activation)(float *values, int64_t n); /* of the gate */
  bool gate_after;                              /* the norm, else before */
  bool normalise;
  bool round_norm; /* to x's type, before the weight comes in */
  float epsilon;
  int64_t group; /* elements that are normalised together */
} gated_norm;

static void silu(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = vector_silu(values[i]);
}

static void sigmoid(float *values, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    values[i] = vector_sigmoid(values[i]);
}

static void multiply_by_gate(const gated_norm *norm, float *restrict values, const void *gate, int64_t first,
                             int64_t n) {
  float activated[CPU_BLOCK];
  if (!norm->gate)
    return;
  norm->type->load(activated, gate, first, n);
  norm->activation(activated, n);
  for (int64_t i = 0; i < n; i++)
    values[i] *= activated[i];
}

/* A block of what is normalised. */
static void load_input(const gated_norm *norm, float *values, const void *x, const void *gate, int64_t first,
                       int64_t n) {
  norm->type->load(values, x, first, n);
  if (!norm->gate_after)
    multiply_by_gate(norm, values, gate, first, n);
}

/* Where the block at `first` of the group lies: among those that are kept, else in `spare`. */
static float *place_of(float *kept, float *spare, int64_t first) {
  return first + CPU_BLOCK <= KEPT ? kept + first : spare;
}

static void finish(const gated_norm *norm, float *restrict values, float scale, const void *gate, int64_t first,
                   int64_t n) {
  float weight[CPU_BLOCK];
  if (norm->normalise)
    for (int64_t i = 0; i < n; i++)
      values[i] *= scale;
  if (norm->round_norm)
    norm->type->round(values, n);
  if (norm->weight) {
    norm->weight_type->load(weight, fl_data(norm->weight), first, n);
    for (int64_t i = 0; i < n; i++)
      values[i] *= weight[i];
  }
  if (norm->gate_after)
    multiply_by_gate(norm, values, gate, first, n);
}

static void normalise_group(const gated_norm *norm, const void *x, const void *gate, void *out, int64_t begin) {
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
    norm->out_type->store(out, begin + first, values, n);
  }
}

static fl_status run(fl_call *call, gated_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->gate, norm->out};
  cpu_dtype dtype = cpu_dtype_of(norm->x), weight_dtype = norm->weight ? cpu_dtype_of(norm->weight) : dtype;
  if (dtype == CPU_OTHER || weight_dtype == CPU_OTHER)
    return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16 expected");
  norm->type = &cpu_block_types[dtype];
  norm->weight_type = &cpu_block_types[weight_dtype];
  norm->out_type = &cpu_block_types[cpu_dtype_of(norm->out)];
  for (cpu_rows rows = cpu_rows_begin(3, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t begin = 0; begin < norm->x->shape[norm->x->ndim - 1]; begin += norm->group)
      normalise_group(norm, rows.at[0], rows.at[1], rows.at[2], begin);
  return FL_OK;
}

/* rms_norm_gated(x, z, weight, epsilon, group_size, norm_before_gate, activation) -> out */
fl_status cpu_flagos_rms_norm_gated(void *self, fl_call *call) {
  const fl_value *values = call->values;
  DLTensor *x = cpu_tensor(call, 0);
  gated_norm norm = {.x = x,
                     .gate = cpu_tensor(call, 1),
                     .weight = cpu_tensor(call, 2),
                     .out = cpu_tensor(call, 7),
                     .activation = strcmp(values[6].v.s, "sigmoid") ? silu : sigmoid,
                     .gate_after = values[5].v.b,
                     .normalise = true,
                     .epsilon = (float)values[3].v.f,
                     .group = values[4].type == FL_INT ? values[4].v.i : x->shape[x->ndim - 1]};
  (void)self;
  return run(call, &norm);
}

/* mixer2_gated_rms_norm(x, gate, weight, epsilon, n_groups, use_rms_norm) -> out */
fl_status cpu_flagos_mixer2_gated_rms_norm(void *self, fl_call *call) {
  const fl_value *values = call->values;
  DLTensor *x = cpu_tensor(call, 0);
  bool normalise = values[5].v.b;
  gated_norm norm = {.x = x,
                     .gate = cpu_tensor(call, 1),
                     .weight = normalise ? cpu_tensor(call, 2) : NULL,
                     .out = cpu_tensor(call, 6),
                     .activation = silu,
                     .normalise = normalise,
                     .round_norm = normalise,
                     .epsilon = (float)values[3].v.f,
                     .group = x->shape[x->ndim - 1] / values[4].v.i};
  (void)self;
  return run(call, &norm);
}
