/* The ops of the norms: see normalisation.h. */
#include "plugins/cpu/normalisation.h"

#include <string.h>

static cpu_dtype weight_dtype_of(const DLTensor *weight, cpu_dtype otherwise) {
  return weight ? cpu_dtype_of(weight) : otherwise;
}

/* What the kernels have: x's type or float32. A caller without argument checks may pass others. */
static bool are_types(cpu_dtype dtype, cpu_dtype weight_dtype) {
  return dtype != CPU_OTHER && (weight_dtype == dtype || weight_dtype == CPU_FLOAT32);
}

/* Of RMS norms: mixers compute them of float32 with a weight of the call's type. */
static bool are_types_of_rms(cpu_dtype dtype, cpu_dtype weight_dtype) {
  return are_types(dtype, weight_dtype) || (dtype == CPU_FLOAT32 && weight_dtype != CPU_OTHER);
}

static fl_status refuse_types(fl_call *call) {
  return fl_fail(call, FL_ENOTSUP,
                 "element types: float32, float16 or bfloat16 expected; a residual has x's, a weight x's or float32");
}

static int64_t row_of(const DLTensor *x) {
  return x->shape[x->ndim - 1];
}

/* `variance_size`: the number of leading elements of a row; none = all of them. */
static fl_status read_variance_size(fl_call *call, uint32_t index, cpu_norm *norm) {
  const fl_value *value = &call->values[index];
  int64_t size = norm->variance_size = value->type == FL_INT ? value->v.i : norm->hidden;
  if ((size >= 1 && size <= norm->hidden) || (!norm->hidden && value->type != FL_INT))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'variance_size' is %lld, expected 1 to %lld (the size of a row of 'x')",
                 (long long)size, (long long)norm->hidden);
}

static fl_status run(void *self, fl_call *call, const cpu_norm *norm) {
  if (!are_types_of_rms(norm->dtype, norm->weight_dtype) ||
      (norm->residual && cpu_dtype_of(norm->residual) != norm->dtype))
    return refuse_types(call);
  return (*(cpu_norm_fn *)self)(norm);
}

/* (x, residual, weight, epsilon, …) -> (out, residual_out) */
static cpu_norm arguments(const fl_call *call, uint32_t out) {
  DLTensor *x = cpu_tensor(call, 0), *weight = cpu_tensor(call, 2);
  return (cpu_norm){.x = x,
                    .residual = cpu_tensor(call, 1),
                    .weight = weight,
                    .out = cpu_tensor(call, out),
                    .residual_out = cpu_tensor(call, out + 1),
                    .dtype = cpu_dtype_of(x),
                    .weight_dtype = weight_dtype_of(weight, cpu_dtype_of(x)),
                    .epsilon = (float)call->values[3].v.f,
                    .hidden = row_of(x),
                    .variance_size = row_of(x)};
}

/* rms_norm(x, residual, weight, epsilon, variance_size) -> (out, residual_out) */
fl_status cpu_rms_norm(void *self, fl_call *call) {
  cpu_norm norm = arguments(call, 5);
  fl_status status = read_variance_size(call, 4, &norm);
  return status ? status : run(self, call, &norm);
}

/* gemma_rms_norm(x, residual, weight, epsilon) -> (out, residual_out) */
fl_status cpu_gemma_rms_norm(void *self, fl_call *call) {
  cpu_norm norm = arguments(call, 4);
  norm.from_one = true;
  return run(self, call, &norm);
}

static fl_status run_gated(void *self, fl_call *call, cpu_gated_norm *norm) {
  norm->dtype = cpu_dtype_of(norm->x);
  norm->weight_dtype = weight_dtype_of(norm->weight, norm->dtype);
  if (!are_types_of_rms(norm->dtype, norm->weight_dtype))
    return refuse_types(call);
  return (*(cpu_gated_norm_fn *)self)(norm);
}

/* rms_norm_gated(x, z, weight, epsilon, group_size, norm_before_gate, activation) -> out */
fl_status cpu_rms_norm_gated(void *self, fl_call *call) {
  const fl_value *values = call->values;
  DLTensor *x = cpu_tensor(call, 0);
  cpu_gated_norm norm = {.x = x,
                         .gate = cpu_tensor(call, 1),
                         .weight = cpu_tensor(call, 2),
                         .out = cpu_tensor(call, 7),
                         .sigmoid = !strcmp(values[6].v.s, "sigmoid"),
                         .gate_after = values[5].v.b,
                         .normalise = true,
                         .epsilon = (float)values[3].v.f,
                         .group = values[4].type == FL_INT ? values[4].v.i : row_of(x)};
  return run_gated(self, call, &norm);
}

/* mixer2_gated_rms_norm(x, gate, weight, epsilon, n_groups, use_rms_norm) -> out */
fl_status cpu_mixer2_gated_rms_norm(void *self, fl_call *call) {
  const fl_value *values = call->values;
  DLTensor *x = cpu_tensor(call, 0);
  bool normalise = values[5].v.b;
  cpu_gated_norm norm = {.x = x,
                         .gate = cpu_tensor(call, 1),
                         .weight = normalise ? cpu_tensor(call, 2) : NULL,
                         .out = cpu_tensor(call, 6),
                         .normalise = normalise,
                         .round_norm = normalise,
                         .epsilon = (float)values[3].v.f,
                         .group = row_of(x) / values[4].v.i};
  return run_gated(self, call, &norm);
}

static fl_status run_layer_norm(void *self, fl_call *call, const cpu_layer_norm *norm) {
  if (!are_types(norm->dtype, norm->weight_dtype))
    return refuse_types(call);
  return (*(cpu_layer_norm_fn *)self)(norm);
}

/* layer_norm(x, weight, bias, epsilon) -> out */
fl_status cpu_run_layer_norm(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *weight = cpu_tensor(call, 1), *bias = cpu_tensor(call, 2);
  cpu_layer_norm norm = {.x = x,
                         .weight = weight,
                         .bias = bias,
                         .out = cpu_tensor(call, 4),
                         .dtype = cpu_dtype_of(x),
                         .weight_dtype = weight_dtype_of(weight ? weight : bias, cpu_dtype_of(x)),
                         .epsilon = (float)call->values[3].v.f,
                         .hidden = row_of(x)};
  return run_layer_norm(self, call, &norm);
}

/* nemotron_layer_norm(x, residual, weight, bias, epsilon) -> out, residual_out */
fl_status cpu_run_nemotron_layer_norm(void *self, fl_call *call) {
  enum { X, RESIDUAL, WEIGHT, BIAS, EPSILON, OUT, RESIDUAL_OUT };
  DLTensor *x = cpu_tensor(call, X), *weight = cpu_tensor(call, WEIGHT);
  cpu_layer_norm norm = {.x = x,
                         .residual = cpu_tensor(call, RESIDUAL),
                         .weight = weight,
                         .bias = cpu_tensor(call, BIAS),
                         .out = cpu_tensor(call, OUT),
                         .residual_out = cpu_tensor(call, RESIDUAL_OUT),
                         .dtype = cpu_dtype_of(x),
                         .weight_dtype = weight_dtype_of(weight, cpu_dtype_of(x)),
                         .epsilon = (float)call->values[EPSILON].v.f,
                         .hidden = row_of(x),
                         .from_one = true};
  return run_layer_norm(self, call, &norm);
}
