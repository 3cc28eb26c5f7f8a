/*
 * Element-wise activations, a block at a time, with the roundings of vLLM's native definition: where these fall between
 * steps they decide more than the tolerance allows. All work in place.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/rows.h"

#include <math.h>
#include <string.h>

/* Attributes and parameters of xielu, the only one that has some. */
typedef struct parameters {
  float beta, eps; /* in x's type */
  float positive_alpha, negative_alpha;
  const cpu_block_type *positive_type, *negative_type; /* that a product with them has */
} parameters;

typedef void (*elementwise_fn)(const cpu_block_type *type, const parameters *p, float *values, int64_t n);

static fl_status elementwise(fl_call *call, elementwise_fn function, const parameters *p) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, call->count - 1)};
  cpu_dtype dtype = cpu_dtype_of(x);
  float values[CPU_BLOCK];
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  const cpu_block_type *type = &cpu_block_types[dtype];
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t first = 0, d = x->shape[x->ndim - 1]; first < d; first += CPU_BLOCK) {
      int64_t n = cpu_block_size(d - first);
      type->load(values, rows.at[0], first, n);
      function(type, p, values, n);
      type->store(rows.at[1], first, values, n);
    }
  return FL_OK;
}

static void gelu(const cpu_block_type *type, const parameters *p, float *values, int64_t n) {
  (void)type;
  (void)p;
  for (int64_t i = 0; i < n; i++)
    values[i] = vector_gelu(values[i]);
}

static void gelu_tanh(const cpu_block_type *type, const parameters *p, float *values, int64_t n) {
  (void)type;
  (void)p;
  for (int64_t i = 0; i < n; i++)
    values[i] = vector_gelu_tanh(values[i]);
}

/* gelu(x, approximate) -> out */
static fl_status run_gelu(void *self, fl_call *call) {
  (void)self;
  return elementwise(call, strcmp(call->values[1].v.s, "tanh") ? gelu : gelu_tanh, NULL);
}

/* 0.5 x (1 + tanh(inner)) */
static void half_one_plus_tanh(const cpu_block_type *type, float *restrict values, float *restrict inner, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    inner[i] = vector_tanh(inner[i]);
  type->round(inner, n);
  for (int64_t i = 0; i < n; i++) {
    inner[i] += 1.0f;
    values[i] *= 0.5f;
  }
  type->round(inner, n);
  type->round(values, n);
  for (int64_t i = 0; i < n; i++)
    values[i] *= inner[i];
}

/* inner = sqrt(2 / pi) (x + 0.044715 x^3) */
static void gelu_new(const cpu_block_type *type, const parameters *p, float *values, int64_t n) {
  const float sqrt_2_over_pi = 0.79788456f;
  float inner[CPU_BLOCK];
  (void)p;
  for (int64_t i = 0; i < n; i++)
    inner[i] = values[i] * values[i];
  if (type == &cpu_block_types[CPU_BFLOAT16]) /* only there does PyTorch's pow(x, 3) round the square */
    type->round(inner, n);
  for (int64_t i = 0; i < n; i++)
    inner[i] *= values[i];
  type->round(inner, n);
  for (int64_t i = 0; i < n; i++)
    inner[i] *= 0.044715f;
  type->round(inner, n);
  for (int64_t i = 0; i < n; i++)
    inner[i] += values[i];
  type->round(inner, n);
  for (int64_t i = 0; i < n; i++)
    inner[i] *= sqrt_2_over_pi;
  type->round(inner, n);
  half_one_plus_tanh(type, values, inner, n);
}

/* inner = 0.7978845608 x (1 + 0.044715 x x) */
static void gelu_fast(const cpu_block_type *type, const parameters *p, float *values, int64_t n) {
  float inner[CPU_BLOCK], scaled[CPU_BLOCK];
  (void)p;
  for (int64_t i = 0; i < n; i++) {
    inner[i] = 0.044715f * values[i];
    scaled[i] = values[i] * 0.7978845608f;
  }
  type->round(inner, n);
  type->round(scaled, n);
  for (int64_t i = 0; i < n; i++)
    inner[i] *= values[i];
  type->round(inner, n);
  for (int64_t i = 0; i < n; i++)
    inner[i] += 1.0f;
  type->round(inner, n);
  for (int64_t i = 0; i < n; i++)
    inner[i] *= scaled[i];
  type->round(inner, n);
  half_one_plus_tanh(type, values, inner, n);
}

static void quick_gelu(const cpu_block_type *type, const parameters *p, float *values, int64_t n) {
  float logistic[CPU_BLOCK];
  (void)p;
  for (int64_t i = 0; i < n; i++)
    logistic[i] = 1.702f * values[i];
  type->round(logistic, n);
  for (int64_t i = 0; i < n; i++)
    logistic[i] = vector_sigmoid(logistic[i]);
  type->round(logistic, n);
  for (int64_t i = 0; i < n; i++)
    values[i] *= logistic[i];
}

static void relu2(const cpu_block_type *type, const parameters *p, float *values, int64_t n) {
  (void)type;
  (void)p;
  for (int64_t i = 0; i < n; i++) {
    float above = values[i] < 0.0f ? 0.0f : values[i];
    values[i] = above * above;
  }
}

/* Both branches of all elements, then the one that counts: ap x x or (expm1(min(x, eps)) - x) an, plus beta x. */
static void xielu(const cpu_block_type *type, const parameters *p, float *values, int64_t n) {
  float positive[CPU_BLOCK], negative[CPU_BLOCK], linear[CPU_BLOCK];
  const parameters of = *p;
  for (int64_t i = 0; i < n; i++) {
    positive[i] = of.positive_alpha * values[i];
    negative[i] = vector_expm1(vector_clamp_above(values[i], of.eps));
    linear[i] = of.beta * values[i];
  }
  of.positive_type->round(positive, n);
  type->round(negative, n);
  type->round(linear, n);
  for (int64_t i = 0; i < n; i++) {
    positive[i] *= values[i];
    negative[i] -= values[i];
  }
  of.positive_type->round(positive, n);
  type->round(negative, n);
  for (int64_t i = 0; i < n; i++)
    negative[i] *= of.negative_alpha;
  of.negative_type->round(negative, n);
  for (int64_t i = 0; i < n; i++)
    values[i] = (values[i] > 0.0f ? positive[i] : negative[i]) + linear[i];
}

/* softplus of a parameter, rounded to its type. */
static float softplus_of(const cpu_block_type *type, const DLTensor *parameter) {
  float x;
  type->load(&x, fl_data(parameter), 0, 1);
  x = softplus(x);
  type->round(&x, 1);
  return x;
}

/* xielu(x, alpha_p, alpha_n, beta, eps) -> out */
static fl_status run_xielu(void *self, fl_call *call) {
  const DLTensor *alpha_p = cpu_tensor(call, 1), *alpha_n = cpu_tensor(call, 2);
  cpu_dtype dtype = cpu_dtype_of(cpu_tensor(call, 0)), dtype_p = cpu_dtype_of(alpha_p), dtype_n = cpu_dtype_of(alpha_n);
  parameters p = {.beta = (float)call->values[3].v.f, .eps = (float)call->values[4].v.f};
  (void)self;
  /* Above 0, eps would lead where vector_expm1 does not reach. */
  if (dtype == CPU_OTHER || dtype_p == CPU_OTHER || dtype_n == CPU_OTHER || p.eps > 0)
    return fl_fail(call, FL_ENOTSUP, "element types float32, float16 or bfloat16 and an eps of at most 0 expected");
  cpu_block_types[dtype].round(&p.beta, 1);
  cpu_block_types[dtype].round(&p.eps, 1);
  p.positive_type = &cpu_block_types[dtype == dtype_p ? dtype : CPU_FLOAT32];
  p.negative_type = &cpu_block_types[dtype == dtype_n ? dtype : CPU_FLOAT32];
  p.positive_alpha = softplus_of(&cpu_block_types[dtype_p], alpha_p);
  p.negative_alpha = p.beta + softplus_of(&cpu_block_types[dtype_n], alpha_n);
  cpu_block_types[dtype_n].round(&p.negative_alpha, 1);
  return elementwise(call, xielu, &p);
}

/* Ops without attributes: x -> out. */
static fl_status elementwise_op(void *self, fl_call *call) {
  return elementwise(call, *(elementwise_fn *)self, NULL);
}

static const fl_impl ops[] = {
    {.op_name = "gelu", CPU_FLAGOS, .fn = run_gelu},
    {.op_name = "gelu_new", CPU_FLAGOS, .fn = elementwise_op, .self = (elementwise_fn[]){gelu_new}},
    {.op_name = "gelu_fast", CPU_FLAGOS, .fn = elementwise_op, .self = (elementwise_fn[]){gelu_fast}},
    {.op_name = "quick_gelu", CPU_FLAGOS, .fn = elementwise_op, .self = (elementwise_fn[]){quick_gelu}},
    {.op_name = "relu2", CPU_FLAGOS, .fn = elementwise_op, .self = (elementwise_fn[]){relu2}},
    {.op_name = "xielu", CPU_FLAGOS, .fn = run_xielu},
};
OP_LIST(ops);
