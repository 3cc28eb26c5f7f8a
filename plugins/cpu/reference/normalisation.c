/*
 * RMS norm as vLLM's IR defines it (rms_norm and fused_add_rms_norm, native), with PyTorch's roundings. The sum of
 * squares is kept in double, which stands for whatever order PyTorch adds in. Needs libm only.
 */
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/rows.h"

#include <math.h>

typedef struct norm_arguments {
  DLTensor *x, *residual, *weight, *out, *residual_out; /* residual, weight, residual_out may be NULL */
  float epsilon;
  int64_t variance_size;
} norm_arguments;

/* An element of the row that is normalised: x, plus the residual where there is one, not rounded. */
static float input(cpu_dtype dtype, const void *x, const void *residual, int64_t i) {
  float value = load(dtype, x, i);
  return residual ? value + load(dtype, residual, i) : value;
}

/* x * scale, times the weight in the weight's own type, as `x.to(weight.dtype) * weight` does. */
static float weighted(float normed, cpu_dtype weight_dtype, const void *weight, int64_t i) {
  if (!weight)
    return normed;
  return round_to(weight_dtype, round_to(weight_dtype, normed) * load(weight_dtype, weight, i));
}

/* In place is fine: an element of x and residual is read for the last time before it is overwritten. */
static fl_status run(fl_call *call, const norm_arguments *norm) {
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  cpu_dtype dtype = cpu_dtype_of(norm->x), weight_dtype = norm->weight ? cpu_dtype_of(norm->weight) : dtype;
  const void *weight = norm->weight ? fl_data(norm->weight) : NULL;
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
    float variance = (float)sum / (float)norm->variance_size;
    float scale = 1.0f / sqrtf(variance + norm->epsilon);
    for (int64_t i = 0; i < hidden; i++) {
      float value = input(dtype, x, residual, i);
      store(dtype, rows.at[2], i, weighted(value * scale, weight_dtype, weight, i));
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
