/*
 * RMS norms as vLLM defines them (IR rms_norm and fused_add_rms_norm, GemmaRMSNorm, RMSNormGated, Mixer2RMSNormGated;
 * native), with PyTorch's roundings. The sum of squares is kept in double, which stands for whatever order PyTorch adds
 * in. Needs libm only.
 */
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/rows.h"

typedef struct norm_arguments {
  DLTensor *x, *residual, *weight, *out, *residual_out; /* residual, weight, residual_out may be NULL */
  float epsilon;
  int64_t variance_size;
  bool from_one; /* the weight is counted from 1, in float32 */
} norm_arguments;

/* An element of the row that is normalised: x, plus the residual where there is one, not rounded. */
static float input(cpu_dtype dtype, const void *x, const void *residual, int64_t i) {
  float value = load(dtype, x, i);
  return residual ? value + load(dtype, residual, i) : value;
}

/* x * scale, times the weight in the weight's own type, as `x.to(weight.dtype) * weight` does. */
static float weighted(const norm_arguments *norm, float normed, int64_t i) {
  if (!norm->weight)
    return normed;
  cpu_dtype dtype = cpu_dtype_of(norm->weight);
  float weight = load(dtype, fl_data(norm->weight), i);
  return norm->from_one ? normed * (weight + 1.0f) : round_to(dtype, round_to(dtype, normed) * weight);
}

/* 1 / root mean square of n elements whose squares add up to `sum`. */
static float scale_of(double sum, int64_t n, float epsilon) {
  return 1.0f / sqrtf((float)sum / (float)n + epsilon);
}

/* In place is fine: an element of x and residual is read for the last time before it is overwritten. */
static fl_status run(fl_call *call, const norm_arguments *norm) {
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  cpu_dtype dtype = cpu_dtype_of(norm->x), weight_dtype = norm->weight ? cpu_dtype_of(norm->weight) : dtype;
  int64_t hidden = norm->x->shape[norm->x->ndim - 1];

  if (dtype == CPU_OTHER || weight_dtype == CPU_OTHER || (norm->residual && cpu_dtype_of(norm->residual) != dtype))
    return fl_fail(call, FL_ENOTSUP,
                   "element types: float32, float16 or bfloat16, and the same for x and residual, expected");
  for (cpu_rows rows = cpu_rows_begin(4, tensors); rows.left; cpu_rows_next(&rows)) {
    const void *x = rows.at[0], *residual = rows.at[1];
    double sum = 0;
    for (int64_t i = 0; i < norm->variance_size; i++) {
      float value = input(dtype, x, residual, i);
      sum += (double)(value * value);
    }
    float scale = scale_of(sum, norm->variance_size, norm->epsilon);
    for (int64_t i = 0; i < hidden; i++) {
      float value = input(dtype, x, residual, i);
      store(dtype, rows.at[2], i, weighted(norm, value * scale, i));
      if (rows.at[3])
        store(dtype, rows.at[3], i, value);
    }
  }
  return FL_OK;
}

/* rms_norm(x, residual, weight, epsilon, variance_size) -> (out, residual_out), and fused_add_rms_norm, which has the
 * same values in the same places and whose residual is required. */
fl_status cpu_reference_rms_norm(void *self, fl_call *call) {
  norm_arguments norm = {.x = cpu_tensor(call, 0),
                         .residual = cpu_tensor(call, 1),
                         .weight = cpu_tensor(call, 2),
                         .out = cpu_tensor(call, 5),
                         .residual_out = cpu_tensor(call, 6),
                         .epsilon = (float)call->values[3].v.f};
  fl_status status = cpu_variance_size(call, 4, norm.x->shape[norm.x->ndim - 1], &norm.variance_size);
  (void)self;
  return status ? status : run(call, &norm);
}

/* gemma_rms_norm(x, residual, weight, epsilon) -> (out, residual_out) */
fl_status cpu_reference_gemma_rms_norm(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0);
  const norm_arguments norm = {.x = x,
                               .residual = cpu_tensor(call, 1),
                               .weight = cpu_tensor(call, 2),
                               .out = cpu_tensor(call, 4),
                               .residual_out = cpu_tensor(call, 5),
                               .epsilon = (float)call->values[3].v.f,
                               .variance_size = x->shape[x->ndim - 1],
                               .from_one = true};
  (void)self;
  return run(call, &norm);
}

/* ------------------------------------------------------------------------------------------------ with a gate */

typedef struct gated_arguments {
  DLTensor *x, *gate, *weight, *out; /* gate, weight may be NULL */
  float (*activation)(float);        /* of the gate */
  bool gate_after;                   /* the norm, else before */
  bool normalise;
  bool round_norm; /* to x's type, before the weight comes in */
  float epsilon;
  int64_t group; /* elements that are normalised together */
} gated_arguments;

static float gate_of(const gated_arguments *norm, const void *gate, int64_t i) {
  return norm->gate ? norm->activation(load(cpu_dtype_of(norm->gate), gate, i)) : 1.0f;
}

/* An element of what is normalised. */
static float gated_input(const gated_arguments *norm, const void *x, const void *gate, int64_t i) {
  float value = load(cpu_dtype_of(norm->x), x, i);
  return norm->gate_after ? value : value * gate_of(norm, gate, i);
}

/* Elements [begin, begin + group) of a row. */
static void normalise_group(const gated_arguments *norm, const void *x, const void *gate, void *out, int64_t begin) {
  double sum = 0;
  for (int64_t i = begin; i < begin + norm->group; i++) {
    float value = gated_input(norm, x, gate, i);
    sum += (double)(value * value);
  }
  float scale = norm->normalise ? scale_of(sum, norm->group, norm->epsilon) : 1.0f;
  for (int64_t i = begin; i < begin + norm->group; i++) {
    float value = gated_input(norm, x, gate, i) * scale;
    if (norm->round_norm)
      value = round_to(cpu_dtype_of(norm->x), value);
    if (norm->weight)
      value *= load(cpu_dtype_of(norm->weight), fl_data(norm->weight), i);
    if (norm->gate_after)
      value *= gate_of(norm, gate, i);
    store(cpu_dtype_of(norm->out), out, i, value);
  }
}

static fl_status run_gated(fl_call *call, const gated_arguments *norm) {
  DLTensor *const tensors[] = {norm->x, norm->gate, norm->out};
  if (cpu_dtype_of(norm->x) == CPU_OTHER || (norm->weight && cpu_dtype_of(norm->weight) == CPU_OTHER))
    return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16 expected");
  for (cpu_rows rows = cpu_rows_begin(3, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t begin = 0; begin < norm->x->shape[norm->x->ndim - 1]; begin += norm->group)
      normalise_group(norm, rows.at[0], rows.at[1], rows.at[2], begin);
  return FL_OK;
}

/* rms_norm_gated(x, z, weight, epsilon, group_size, norm_before_gate, activation) -> out */
fl_status cpu_reference_rms_norm_gated(void *self, fl_call *call) {
  const fl_value *values = call->values;
  DLTensor *x = cpu_tensor(call, 0);
  const gated_arguments norm = {.x = x,
                                .gate = cpu_tensor(call, 1),
                                .weight = cpu_tensor(call, 2),
                                .out = cpu_tensor(call, 7),
                                .activation = strcmp(values[6].v.s, "sigmoid") ? silu : sigmoid,
                                .gate_after = values[5].v.b,
                                .normalise = true,
                                .epsilon = (float)values[3].v.f,
                                .group = values[4].type == FL_INT ? values[4].v.i : x->shape[x->ndim - 1]};
  (void)self;
  return run_gated(call, &norm);
}

/* mixer2_gated_rms_norm(x, gate, weight, epsilon, n_groups, use_rms_norm) -> out */
fl_status cpu_reference_mixer2_gated_rms_norm(void *self, fl_call *call) {
  const fl_value *values = call->values;
  DLTensor *x = cpu_tensor(call, 0);
  bool normalise = values[5].v.b;
  const gated_arguments norm = {.x = x,
                                .gate = cpu_tensor(call, 1),
                                .weight = normalise ? cpu_tensor(call, 2) : NULL,
                                .out = cpu_tensor(call, 6),
                                .activation = silu,
                                .normalise = normalise,
                                .round_norm = normalise,
                                .epsilon = (float)values[3].v.f,
                                .group = x->shape[x->ndim - 1] / values[4].v.i};
  (void)self;
  return run_gated(call, &norm);
}
