/*
 * Norms as vLLM defines them (IR rms_norm and fused_add_rms_norm, GemmaRMSNorm, RMSNormGated, Mixer2RMSNormGated,
 * LayerNorm, NemotronLayerNorm1P; native), with PyTorch's roundings. The sum of squares is kept in double, which stands
 * for whatever order PyTorch adds in. Needs libm only.
 */
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"

/* An element of the row that is normalised: x, plus the residual where there is one, not rounded. */
static float input(cpu_dtype dtype, const void *x, const void *residual, int64_t i) {
  float value = load(dtype, x, i);
  return residual ? value + load(dtype, residual, i) : value;
}

/* x * scale, times the weight in the weight's own type, as `x.to(weight.dtype) * weight` does. */
static float weighted(const cpu_norm *norm, float normed, int64_t i) {
  if (!norm->weight)
    return normed;
  float weight = load(norm->weight_dtype, fl_data(norm->weight), i);
  if (norm->from_one)
    return normed * (weight + 1.0f);
  return round_to(norm->weight_dtype, round_to(norm->weight_dtype, normed) * weight);
}

/* 1 / root mean square of n elements whose squares add up to `sum`. */
static float scale_of(double sum, int64_t n, float epsilon) {
  return 1.0f / sqrtf((float)sum / (float)n + epsilon);
}

/* In place is fine: an element of x and residual is read for the last time before it is overwritten. */
fl_status cpu_reference_norm(const cpu_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  cpu_dtype dtype = norm->dtype;
  for (cpu_rows rows = cpu_rows_begin(4, tensors); rows.left; cpu_rows_next(&rows)) {
    const void *x = rows.at[0], *residual = rows.at[1];
    double sum = 0;
    for (int64_t i = 0; i < norm->variance_size; i++) {
      float value = input(dtype, x, residual, i);
      sum += (double)(value * value);
    }
    float scale = scale_of(sum, norm->variance_size, norm->epsilon);
    for (int64_t i = 0; i < norm->hidden; i++) {
      float value = input(dtype, x, residual, i);
      store(dtype, rows.at[2], i, weighted(norm, value * scale, i));
      if (rows.at[3])
        store(dtype, rows.at[3], i, value);
    }
  }
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------ with a gate */

static float gate_of(const cpu_gated_norm *norm, const void *gate, int64_t i) {
  if (!norm->gate)
    return 1.0f;
  float value = load(norm->dtype, gate, i);
  return norm->sigmoid ? sigmoid(value) : silu(value);
}

/* An element of what is normalised. */
static float gated_input(const cpu_gated_norm *norm, const void *x, const void *gate, int64_t i) {
  float value = load(norm->dtype, x, i);
  return norm->gate_after ? value : value * gate_of(norm, gate, i);
}

/* Elements [begin, begin + group) of a row. */
static void normalise_group(const cpu_gated_norm *norm, const void *x, const void *gate, void *out, int64_t begin) {
  double sum = 0;
  for (int64_t i = begin; i < begin + norm->group; i++) {
    float value = gated_input(norm, x, gate, i);
    sum += (double)(value * value);
  }
  float scale = norm->normalise ? scale_of(sum, norm->group, norm->epsilon) : 1.0f;
  for (int64_t i = begin; i < begin + norm->group; i++) {
    float value = gated_input(norm, x, gate, i) * scale;
    if (norm->round_norm)
      value = round_to(norm->dtype, value);
    if (norm->weight)
      value *= load(norm->weight_dtype, fl_data(norm->weight), i);
    if (norm->gate_after)
      value *= gate_of(norm, gate, i);
    store(cpu_dtype_of(norm->out), out, i, value);
  }
}

fl_status cpu_reference_gated_norm(const cpu_gated_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->gate, norm->out};
  for (cpu_rows rows = cpu_rows_begin(3, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t begin = 0; begin < norm->x->shape[norm->x->ndim - 1]; begin += norm->group)
      normalise_group(norm, rows.at[0], rows.at[1], rows.at[2], begin);
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------- layer norm */

static float layer_weight(const cpu_layer_norm *norm, int64_t i) {
  float weight = norm->weight ? load(norm->weight_dtype, fl_data(norm->weight), i) : 1.0f;
  return norm->from_one ? round_to(norm->weight_dtype, weight + 1.0f) : weight;
}

/* Of x, or of the sum with the residual, which is rounded. */
static fl_status layer_norm(const cpu_layer_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  cpu_dtype dtype = norm->dtype;
  for (cpu_rows rows = cpu_rows_begin(4, tensors); rows.left; cpu_rows_next(&rows)) {
    const void *x = rows.at[0];
    double sum = 0, squares = 0;
    if (norm->residual) {
      for (int64_t i = 0; i < norm->hidden; i++)
        store(dtype, rows.at[3], i, input(dtype, x, rows.at[1], i));
      x = rows.at[3];
    }
    for (int64_t i = 0; i < norm->hidden; i++)
      sum += (double)load(dtype, x, i);
    float mean = (float)(sum / (double)norm->hidden);
    for (int64_t i = 0; i < norm->hidden; i++) {
      float value = load(dtype, x, i) - mean;
      squares += (double)(value * value);
    }
    float scale = scale_of(squares, norm->hidden, norm->epsilon);
    for (int64_t i = 0; i < norm->hidden; i++) {
      float value = (load(dtype, x, i) - mean) * scale * layer_weight(norm, i);
      if (norm->bias)
        value += load(norm->weight_dtype, fl_data(norm->bias), i);
      store(dtype, rows.at[2], i, value);
    }
  }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "layer_norm", CPU_REFERENCE, .fn = cpu_run_layer_norm, .self = (cpu_layer_norm_fn[]){layer_norm}},
    {.op_name = "nemotron_layer_norm",
     CPU_REFERENCE,
     .fn = cpu_run_nemotron_layer_norm,
     .self = (cpu_layer_norm_fn[]){layer_norm}},
    {.op_name = "rms_norm", CPU_REFERENCE, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_reference_norm}},
    {.op_name = "fused_add_rms_norm", CPU_REFERENCE, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_reference_norm}},
    {.op_name = "gemma_rms_norm", CPU_REFERENCE, .fn = cpu_gemma_rms_norm, .self = (cpu_norm_fn[]){cpu_reference_norm}},
    {.op_name = "rms_norm_gated",
     CPU_REFERENCE,
     .fn = cpu_rms_norm_gated,
     .self = (cpu_gated_norm_fn[]){cpu_reference_gated_norm}},
    {.op_name = "mixer2_gated_rms_norm",
     CPU_REFERENCE,
     .fn = cpu_mixer2_gated_rms_norm,
     .self = (cpu_gated_norm_fn[]){cpu_reference_gated_norm}},
};
OP_LIST(ops);
