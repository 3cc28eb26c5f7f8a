/*
 * Gated activations as vLLM's forward_native computes them, with PyTorch's roundings: the activation is rounded to the
 * tensor's type, then the product. Needs libm only.
 */
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/rows.h"

#include <math.h>
#include <string.h>

/* x / (1 + exp(-x)) */
static float silu(float x) {
  return x / (1.0f + expf(-x));
}

/* 0.5 x (1 + erf(x / sqrt(2))) */
static float gelu(float x) {
  const float sqrt_half = 0.70710678118654752440f;
  return x * 0.5f * (1.0f + erff(x * sqrt_half));
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static float gelu_tanh(float x) {
  const float sqrt_2_over_pi = 0.79788456080286535588f;
  float inner = sqrt_2_over_pi * (x + 0.044715f * (x * x * x));
  return 0.5f * x * (1.0f + tanhf(inner));
}

/* x [..., 2d] -> out [..., d]: out = activation(first half) * second half. */
static fl_status gated(fl_call *call, float (*activation)(float), DLTensor *x, DLTensor *out) {
  DLTensor *const tensors[] = {x, out};
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t d = x->shape[x->ndim - 1] / 2;
  if (dtype == CPU_OTHER)
    return fl_fail(call, FL_ENOTSUP, "element type of 'x': float32, float16 or bfloat16 expected");
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t i = 0; i < d; i++) {
      float gate = load(dtype, rows.at[0], i), up = load(dtype, rows.at[0], d + i);
      store(dtype, rows.at[1], i, round_to(dtype, activation(gate)) * up);
    }
  return FL_OK;
}

/* silu_and_mul(x) -> out */
fl_status cpu_reference_silu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, silu, cpu_tensor(call, 0), cpu_tensor(call, 1));
}

/* gelu_and_mul(x, approximate) -> out */
fl_status cpu_reference_gelu_and_mul(void *self, fl_call *call) {
  const char *approximate = call->values[1].v.s;
  (void)self;
  if (!strcmp(approximate, "none"))
    return gated(call, gelu, cpu_tensor(call, 0), cpu_tensor(call, 2));
  if (!strcmp(approximate, "tanh"))
    return gated(call, gelu_tanh, cpu_tensor(call, 0), cpu_tensor(call, 2));
  return fl_fail(call, FL_EINVAL, "argument 'approximate' is \"%s\", expected \"none\" or \"tanh\"", approximate);
}
