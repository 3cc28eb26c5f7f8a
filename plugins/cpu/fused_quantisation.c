/* The ops that normalise or gate, and quantise: see fused_quantisation.h. The host has checked shapes and attributes.
 */
#include "plugins/cpu/fused_quantisation.h"

/* What is not there is NULL. */
typedef struct tensors {
  DLTensor *x, *residual, *weight, *q, *residual_out, *scale_out;
  DLTensor *scale, *upper_bound; /* of one element */
} tensors;

static int64_t last_dimension(const DLTensor *tensor) {
  return tensor->shape[tensor->ndim - 1];
}

static int64_t leading_size(const DLTensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->ndim - 1; d++)
    n *= tensor->shape[d];
  return n;
}

static cpu_fused_quant arguments(const tensors *t) {
  return (cpu_fused_quant){.dtype = cpu_dtype_of(t->x),
                           .size = last_dimension(t->q),
                           .group = last_dimension(t->q),
                           .is_static = t->scale,
                           .is_int8 = t->q->dtype.code == kDLInt,
                           .scale = t->scale ? *(const float *)fl_data(t->scale) : 0,
                           .upper_bound = t->upper_bound ? *(const float *)fl_data(t->upper_bound) : INFINITY,
                           .weight = t->weight ? fl_data(t->weight) : NULL,
                           .n_rows = leading_size(t->x),
                           .scale_out = t->scale_out ? fl_data(t->scale_out) : NULL,
                           .scale_step = t->scale_out ? fl_stride(t->scale_out, 0) : 0};
}

static fl_status run_norm(void *self, fl_call *call, const tensors *t, double epsilon) {
  const cpu_fused_quant_parts *parts = self;
  cpu_fused_quant quant = arguments(t);
  DLTensor *const walked[] = {t->x, t->residual, t->q, t->residual_out};
  quant.epsilon = (float)epsilon;
  if (quant.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  bool apart = t->residual_out && fl_data(t->residual_out) != fl_data(t->residual);
  int64_t bytes = quant.size * cpu_dtype_size(quant.dtype);
  cpu_row_cost cost = {(t->residual ? 4 : 2) * bytes, quant.size + (apart ? bytes : 0)};
  return cpu_rows_run(4, walked, cost, parts->norm_row, &quant);
}

/* rms_norm_static_fp8_quant(x, weight, scale, epsilon) -> q */
fl_status cpu_rms_norm_static_fp8_quant(void *self, fl_call *call) {
  enum { X, WEIGHT, SCALE, EPSILON, Q };
  const tensors t = {.x = cpu_tensor(call, X),
                     .weight = cpu_tensor(call, WEIGHT),
                     .scale = cpu_tensor(call, SCALE),
                     .q = cpu_tensor(call, Q)};
  return run_norm(self, call, &t, call->values[EPSILON].v.f);
}

/* fused_add_rms_norm_static_fp8_quant(x, residual, weight, scale, epsilon) -> (q, residual_out) */
fl_status cpu_fused_add_rms_norm_static_fp8_quant(void *self, fl_call *call) {
  enum { X, RESIDUAL, WEIGHT, SCALE, EPSILON, Q, RESIDUAL_OUT };
  const tensors t = {.x = cpu_tensor(call, X),
                     .residual = cpu_tensor(call, RESIDUAL),
                     .weight = cpu_tensor(call, WEIGHT),
                     .scale = cpu_tensor(call, SCALE),
                     .q = cpu_tensor(call, Q),
                     .residual_out = cpu_tensor(call, RESIDUAL_OUT)};
  return run_norm(self, call, &t, call->values[EPSILON].v.f);
}

/* rms_norm_dynamic_per_token_quant(x, weight, epsilon, quant_dtype, scale_ub, residual) -> (q, scale_out) */
fl_status cpu_rms_norm_dynamic_per_token_quant(void *self, fl_call *call) {
  enum { X, WEIGHT, EPSILON, QUANT_DTYPE, SCALE_UB, RESIDUAL, Q, SCALE_OUT };
  const tensors t = {.x = cpu_tensor(call, X),
                     .weight = cpu_tensor(call, WEIGHT),
                     .upper_bound = cpu_tensor(call, SCALE_UB),
                     .residual = cpu_tensor(call, RESIDUAL),
                     .q = cpu_tensor(call, Q),
                     .residual_out = cpu_tensor(call, RESIDUAL),
                     .scale_out = cpu_tensor(call, SCALE_OUT)};
  return run_norm(self, call, &t, call->values[EPSILON].v.f);
}

static fl_status run_gated(void *self, fl_call *call, const tensors *t, int64_t group) {
  const cpu_fused_quant_parts *parts = self;
  cpu_fused_quant quant = arguments(t);
  DLTensor *const walked[] = {t->x, t->q};
  if (quant.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  if (group)
    quant.group = group;
  int64_t bytes = quant.size * cpu_dtype_size(quant.dtype);
  return cpu_rows_run(2, walked, (cpu_row_cost){3 * bytes * CPU_WORK_EXP, quant.size}, parts->gated_row, &quant);
}

/* silu_and_mul_quant(x, scale) -> q */
fl_status cpu_silu_and_mul_quant(void *self, fl_call *call) {
  enum { X, SCALE, Q };
  const tensors t = {.x = cpu_tensor(call, X), .scale = cpu_tensor(call, SCALE), .q = cpu_tensor(call, Q)};
  return run_gated(self, call, &t, 0);
}

/* silu_and_mul_per_block_quant(x, group_size, quant_dtype, scale_ub) -> (q, scale_out) */
fl_status cpu_silu_and_mul_per_block_quant(void *self, fl_call *call) {
  enum { X, GROUP_SIZE, QUANT_DTYPE, SCALE_UB, Q, SCALE_OUT };
  const tensors t = {.x = cpu_tensor(call, X),
                     .upper_bound = cpu_tensor(call, SCALE_UB),
                     .q = cpu_tensor(call, Q),
                     .scale_out = cpu_tensor(call, SCALE_OUT)};
  return run_gated(self, call, &t, call->values[GROUP_SIZE].v.i);
}
