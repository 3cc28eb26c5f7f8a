/*
 * Gated activations as vLLM's forward_native computes them: x [..., 2d] -> out [..., d], with PyTorch's roundings: what
 * a tensor would hold between two steps is rounded to the tensor's type. Needs libm only.
 */
#include "plugins/cpu/gated.h"
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/quantile.h"

/* The attributes of all of them. */
typedef struct parameters {
  float (*activation)(float);
  float alpha, beta, limit, threshold;
  bool interleaved; /* gate and factor alternate, else gates come first */
  bool limited;     /* situ_and_mul's linear_beta is given: it is `limit` */
} parameters;

/* One element from gate and factor; the last step is not yet rounded. */
typedef float (*gated_fn)(cpu_dtype dtype, const parameters *p, float gate, float up);

static fl_status gated(fl_call *call, gated_fn function, const parameters *p) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, call->count - 1)};
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t d = x->shape[x->ndim - 1] / 2, step = p->interleaved ? 2 : 1, up = p->interleaved ? 1 : d;
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t i = 0; i < d; i++)
      store(dtype, rows.at[1], i,
            function(dtype, p, load(dtype, rows.at[0], step * i), load(dtype, rows.at[0], step * i + up)));
  return FL_OK;
}

static float activate_gate(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return round_to(dtype, p->activation(gate)) * up;
}

static float activate_factor(cpu_dtype dtype, const parameters *p, float gate, float up) {
  return gate * round_to(dtype, p->activation(up));
}

/* silu_and_mul(x) -> out */
fl_status cpu_reference_silu_and_mul(void *self, fl_call *call) {
  (void)self;
  return gated(call, activate_gate, &(parameters){.activation = silu});
}

/* mul_and_silu(x) -> out */
static fl_status mul_and_silu(void *self, fl_call *call) {
  (void)self;
  return gated(call, activate_factor, &(parameters){.activation = silu});
}

/* gelu_and_mul(x, approximate) -> out */
fl_status cpu_reference_gelu_and_mul(void *self, fl_call *call) {
  const parameters p = {.activation = gelu_of(call->values[1].v.s)};
  (void)self;
  return gated(call, activate_gate, &p);
}

/* (u + 1) * (g * sigmoid(alpha g)) */
static float swigluoai(cpu_dtype dtype, const parameters *p, float gate, float up) {
  float g = clamp_above(gate, round_to(dtype, p->limit)), u = clamp_both(up, round_to(dtype, p->limit));
  float gated_value = round_to(dtype, g * round_to(dtype, sigmoid(round_to(dtype, g * p->alpha))));
  return round_to(dtype, u + 1.0f) * gated_value;
}

/* swigluoai_and_mul(x, alpha, limit) -> out */
fl_status cpu_reference_swigluoai_and_mul(void *self, fl_call *call) {
  const parameters p = {.alpha = (float)call->values[1].v.f, .limit = (float)call->values[2].v.f, .interleaved = true};
  (void)self;
  return gated(call, swigluoai, &p);
}

/* NaN is not below a threshold: it stays. */
static float fatrelu(cpu_dtype dtype, const parameters *p, float gate, float up) {
  (void)dtype;
  return (gate <= p->threshold ? 0.0f : gate) * up;
}

/* fatrelu_and_mul(x, threshold) -> out */
static fl_status fatrelu_and_mul(void *self, fl_call *call) {
  const parameters p = {.threshold = (float)call->values[1].v.f};
  (void)self;
  return gated(call, fatrelu, &p);
}

/* g * sigmoid(alpha g) * (u + beta) */
static float silu_with_clamp(cpu_dtype dtype, const parameters *p, float gate, float up) {
  float g = clamp_above(gate, round_to(dtype, p->limit)), u = clamp_both(up, round_to(dtype, p->limit));
  float gated_value = round_to(dtype, g * round_to(dtype, sigmoid(round_to(dtype, g * p->alpha))));
  return gated_value * round_to(dtype, u + p->beta);
}

/* silu_and_mul_with_clamp(x, limit, alpha, beta) -> out */
static fl_status silu_and_mul_with_clamp(void *self, fl_call *call) {
  const fl_value *values = call->values;
  const parameters p = {.limit = (float)values[1].v.f, .alpha = (float)values[2].v.f, .beta = (float)values[3].v.f};
  (void)self;
  return gated(call, silu_with_clamp, &p);
}

/* min(silu(g), limit) * clamp(u) */
static float swiglustep(cpu_dtype dtype, const parameters *p, float gate, float up) {
  float limit = round_to(dtype, p->limit);
  return clamp_above(round_to(dtype, silu(gate)), limit) * clamp_both(up, limit);
}

/* swiglustep_and_mul(x, limit) -> out */
fl_status cpu_reference_swiglustep_and_mul(void *self, fl_call *call) {
  const parameters p = {.limit = (float)call->values[1].v.f};
  (void)self;
  return gated(call, swiglustep, &p);
}

/* beta tanh(g / beta) sigmoid(g) u, all in float */
static float situ(cpu_dtype dtype, const parameters *p, float gate, float up) {
  float u = p->limited ? p->limit * tanhf(up / p->limit) : up;
  (void)dtype;
  return p->beta * tanhf(gate / p->beta) * sigmoid(gate) * u;
}

/* situ_and_mul(x, beta, linear_beta) -> out */
static fl_status situ_and_mul(void *self, fl_call *call) {
  const fl_value *linear_beta = &call->values[2];
  parameters p = {.beta = (float)call->values[1].v.f, .limited = linear_beta->type == FL_FLOAT};
  (void)self;
  if (p.limited)
    p.limit = (float)linear_beta->v.f;
  return gated(call, situ, &p);
}

/* --------------------------------------------------------------------------------------------- gelu_and_mul_sparse */

/* mean + std * quantile of n elements, each of the three rounded as a tensor would hold it. */
static float cut_of(cpu_dtype dtype, const void *row, int64_t n, float quantile) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; i++)
    sum += (double)load(dtype, row, i);
  double mean = sum / (double)n;
  for (int64_t i = 0; i < n; i++)
    squares += ((double)load(dtype, row, i) - mean) * ((double)load(dtype, row, i) - mean);
  float deviation = round_to(dtype, (float)sqrt(squares / (double)n));
  return round_to(dtype, round_to(dtype, (float)mean) + round_to(dtype, deviation * quantile));
}

/* gelu_and_mul_sparse(x, activation_sparsity, approximate) -> out */
static fl_status gelu_and_mul_sparse(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, 3)};
  float quantile = normal_quantile(call->values[1].v.f), (*activation)(float) = gelu_of(call->values[2].v.s);
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t d = x->shape[x->ndim - 1] / 2;
  (void)self;
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left && d; cpu_rows_next(&rows)) {
    float cut = cut_of(dtype, rows.at[0], d, quantile);
    for (int64_t i = 0; i < d; i++) {
      float above = round_to(dtype, load(dtype, rows.at[0], i) - cut);
      float gate = round_to(dtype, activation(above < 0 ? 0 : above));
      store(dtype, rows.at[1], i, gate * load(dtype, rows.at[0], d + i));
    }
  }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "silu_and_mul", CPU_REFERENCE, .fn = cpu_reference_silu_and_mul},
    {.op_name = "mul_and_silu", CPU_REFERENCE, .fn = mul_and_silu},
    {.op_name = "gelu_and_mul", CPU_REFERENCE, .fn = cpu_reference_gelu_and_mul},
    {.op_name = "gelu_and_mul_sparse", CPU_REFERENCE, .fn = gelu_and_mul_sparse},
    {.op_name = "swigluoai_and_mul", CPU_REFERENCE, .fn = cpu_reference_swigluoai_and_mul},
    {.op_name = "fatrelu_and_mul", CPU_REFERENCE, .fn = fatrelu_and_mul},
    {.op_name = "silu_and_mul_with_clamp", CPU_REFERENCE, .fn = silu_and_mul_with_clamp},
    {.op_name = "swiglustep_and_mul", CPU_REFERENCE, .fn = cpu_reference_swiglustep_and_mul},
    {.op_name = "situ_and_mul", CPU_REFERENCE, .fn = situ_and_mul},
};
OP_LIST(ops);
