/* Normalisations over the last dimension. */
#include "core/ops/entries.h"

#include <math.h>

#define FORMULA                                                                                                        \
  "s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s[..., :variance_size]^2) + epsilon) * weight; " \
  "the normalised value is rounded to weight's dtype before the product, the product to T "

#define CASES "H: 1 8 33 769 2048; epsilon: 1e-6 1e-5 0; variance_size: none 7 none H"

/* vLLM IR overrides float16 for both ops. */
static const fl_tolerance tolerance[] = {{FL_FLOAT16, 1e-2, 2e-3}, {0}};

static fl_status check_epsilon(fl_call *call, uint32_t index) {
  double epsilon = call->values[index].v.f;
  if (isfinite(epsilon) && epsilon >= 0)
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'epsilon': %g, expected a finite number, 0 or more", epsilon);
}

/* variance_size may be none. */
static fl_status check_variance_size(fl_call *call, uint32_t index, const DLTensor *x) {
  const fl_value *value = &call->values[index];
  int64_t hidden = x->shape[x->ndim - 1];
  if (value->type == FL_NONE || (value->v.i >= 1 && value->v.i <= hidden))
    return FL_OK;
  return fl_fail(call, FL_EINVAL, "argument 'variance_size': %lld, expected 1 to %lld (the last dimension of 'x')",
                 (long long)value->v.i, (long long)hidden);
}

static fl_status check_rms_norm(fl_call *call) {
  enum { X, RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE };
  fl_status status = check_epsilon(call, EPSILON);
  return status ? status : check_variance_size(call, VARIANCE_SIZE, call->values[X].v.tensor);
}

const fl_op_def fl_op_rms_norm = {
    .size = sizeof(fl_op_def),
    .schema = "rms_norm(Tensor(a!) x, Tensor(b!)? residual=None, Tensor? weight=None, float epsilon=1e-6, "
              "int? variance_size=None) -> (Tensor(a) out, Tensor(b)? residual_out)",
    .rules = "x: T[..., H]; residual: T[..., H]; weight: T|float32[H]; T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Root-mean-square normalisation of x, or of x + residual when there is a residual.",
    .formula = FORMULA "(vLLM: RMSNorm, kernels rms_norm, fused_add_rms_norm)",
    .tolerance = tolerance,
    .check = check_rms_norm,
    .cases = CASES,
};

static fl_status check_fused_add_rms_norm(fl_call *call) {
  enum { X, X_RESIDUAL, WEIGHT, EPSILON, VARIANCE_SIZE };
  fl_status status = check_epsilon(call, EPSILON);
  return status ? status : check_variance_size(call, VARIANCE_SIZE, call->values[X].v.tensor);
}

const fl_op_def fl_op_fused_add_rms_norm = {
    .size = sizeof(fl_op_def),
    .schema = "fused_add_rms_norm(Tensor(a!) x, Tensor(b!) x_residual, Tensor? weight, float epsilon, "
              "int? variance_size=None) -> (Tensor(a) out, Tensor(b) residual_out)",
    .rules = "x: T[..., H]; x_residual: T[..., H]; weight: T|float32[H]; T = float32|float16|bfloat16",
    .category = "normalisation",
    .doc = "Adds x_residual to x and normalises the sum by its root mean square.",
    .formula = FORMULA "(residual is x_residual; vLLM: IR op and kernel fused_add_rms_norm)",
    .tolerance = tolerance,
    .check = check_fused_add_rms_norm,
    .cases = CASES,
};
