/*
 * Element-wise activations as vLLM's forward_native computes them, with PyTorch's roundings: what a tensor would hold
 * between two steps is rounded to the tensor's type. All work in place. Needs libm only.
 */
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"

/* The attributes of all of them. */
typedef struct parameters {
  float (*activation)(float);
  float beta, eps;                          /* of xielu, in x's type */
  float positive_alpha, negative_alpha;     /* of xielu */
  cpu_dtype positive_dtype, negative_dtype; /* that a product with them has */
} parameters;

/* One element; the last step is not yet rounded. */
typedef float (*elementwise_fn)(cpu_dtype dtype, const parameters *p, float x);

static fl_status elementwise(fl_call *call, elementwise_fn function, const parameters *p) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, call->count - 1)};
  cpu_dtype dtype = cpu_dtype_of(x);
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t i = 0; i < x->shape[x->ndim - 1]; i++)
      store(dtype, rows.at[1], i, function(dtype, p, load(dtype, rows.at[0], i)));
  return FL_OK;
}

static float plain(cpu_dtype dtype, const parameters *p, float x) {
  (void)dtype;
  return p->activation(x);
}

/* gelu(x, approximate) -> out */
static fl_status run_gelu(void *self, fl_call *call) {
  const parameters p = {.activation = gelu_of(call->values[1].v.s)};
  (void)self;
  return elementwise(call, plain, &p);
}

/* PyTorch's pow(x, 3) rounds once in float16, but after each product in bfloat16. */
static float cube(cpu_dtype dtype, float x) {
  return round_to(dtype, (dtype == CPU_BFLOAT16 ? round_to(dtype, x * x) : x * x) * x);
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
static float gelu_new(cpu_dtype dtype, const parameters *p, float x) {
  const float sqrt_2_over_pi = 0.79788456080286535588f;
  float cubic = round_to(dtype, 0.044715f * cube(dtype, x));
  float inner = round_to(dtype, sqrt_2_over_pi * round_to(dtype, x + cubic));
  (void)p;
  return round_to(dtype, 0.5f * x) * round_to(dtype, 1.0f + round_to(dtype, tanhf(inner)));
}

/* 0.5 x (1 + tanh(0.7978845608 x (1 + 0.044715 x x))) */
static float gelu_fast(cpu_dtype dtype, const parameters *p, float x) {
  float square = round_to(dtype, round_to(dtype, 0.044715f * x) * x);
  float inner = round_to(dtype, round_to(dtype, x * 0.7978845608f) * round_to(dtype, 1.0f + square));
  (void)p;
  return round_to(dtype, 0.5f * x) * round_to(dtype, 1.0f + round_to(dtype, tanhf(inner)));
}

/* x sigmoid(1.702 x) */
static float quick_gelu(cpu_dtype dtype, const parameters *p, float x) {
  (void)p;
  return x * round_to(dtype, sigmoid(round_to(dtype, 1.702f * x)));
}

/* NaN stays. */
static float relu2(cpu_dtype dtype, const parameters *p, float x) {
  float above = x < 0 ? 0 : x;
  (void)dtype;
  (void)p;
  return above * above;
}

/* x > 0: ap x x + beta x, else (expm1(min(x, eps)) - x) an + beta x */
static float xielu(cpu_dtype dtype, const parameters *p, float x) {
  cpu_dtype pos = p->positive_dtype, neg = p->negative_dtype;
  float linear = round_to(dtype, p->beta * x);
  if (x > 0)
    return round_to(pos, round_to(pos, p->positive_alpha * x) * x) + linear;
  float bent = round_to(dtype, round_to(dtype, expm1f(clamp_above(x, p->eps))) - x);
  return round_to(neg, bent * p->negative_alpha) + linear;
}

/* PyTorch's type of a product of tensors of two of our types. */
static cpu_dtype promote(cpu_dtype a, cpu_dtype b) {
  return a == b ? a : CPU_FLOAT32;
}

/* xielu(x, alpha_p, alpha_n, beta, eps) -> out */
static fl_status run_xielu(void *self, fl_call *call) {
  const DLTensor *alpha_p = cpu_tensor(call, 1), *alpha_n = cpu_tensor(call, 2);
  cpu_dtype dtype = cpu_dtype_of(cpu_tensor(call, 0)), dtype_p = cpu_dtype_of(alpha_p), dtype_n = cpu_dtype_of(alpha_n);
  (void)self;
  if (dtype == CPU_OTHER || dtype_p == CPU_OTHER || dtype_n == CPU_OTHER)
    return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16 expected");
  parameters p = {.beta = round_to(dtype, (float)call->values[3].v.f),
                  .eps = round_to(dtype, (float)call->values[4].v.f),
                  .positive_alpha = round_to(dtype_p, softplus(load(dtype_p, fl_data(alpha_p), 0))),
                  .positive_dtype = promote(dtype, dtype_p),
                  .negative_dtype = promote(dtype, dtype_n)};
  p.negative_alpha = round_to(dtype_n, p.beta + round_to(dtype_n, softplus(load(dtype_n, fl_data(alpha_n), 0))));
  return elementwise(call, xielu, &p);
}

/* Ops without attributes: x -> out. */
static fl_status elementwise_op(void *self, fl_call *call) {
  return elementwise(call, *(elementwise_fn *)self, NULL);
}

static const fl_impl ops[] = {
    {.op_name = "gelu", CPU_REFERENCE, .fn = run_gelu},
    {.op_name = "gelu_new", CPU_REFERENCE, .fn = elementwise_op, .self = (elementwise_fn[]){gelu_new}},
    {.op_name = "gelu_fast", CPU_REFERENCE, .fn = elementwise_op, .self = (elementwise_fn[]){gelu_fast}},
    {.op_name = "quick_gelu", CPU_REFERENCE, .fn = elementwise_op, .self = (elementwise_fn[]){quick_gelu}},
    {.op_name = "relu2", CPU_REFERENCE, .fn = elementwise_op, .self = (elementwise_fn[]){relu2}},
    {.op_name = "xielu", CPU_REFERENCE, .fn = run_xielu},
};
OP_LIST(ops);
