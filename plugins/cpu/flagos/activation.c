/*
 * Element-wise activations with the roundings of vLLM's native definition: where these fall between steps they decide
 * more than the tolerance allows. All work in place.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/chunk.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/rows.h"

#include <math.h>
#include <string.h>

/* Attributes and parameters of xielu, the only one that has some. */
typedef struct parameters {
  float beta, eps; /* in x's type */
  float positive_alpha, negative_alpha;
  uint32_t positive_rounded, negative_rounded; /* masks: to x's type a product with them is; else it is a float32 */
} parameters;

typedef struct elementwise_job {
  cpu_dtype dtype;
  int64_t size; /* of a row */
  parameters p;
} elementwise_job;

/* One element. */
typedef float (*elementwise_fn)(cpu_dtype dtype, const parameters *p, float x);

CPU_TEMPLATE void chunk(cpu_dtype dtype, elementwise_fn function, const parameters *p, const void *x, void *out,
                        int64_t first, int64_t n, bool around) {
  float values[CPU_CHUNK];
  cpu_load(dtype, values, x, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = function(dtype, p, values[i]);
  cpu_store_around(dtype, out, first, values, n, around);
}

CPU_TEMPLATE void row_of(cpu_dtype dtype, elementwise_fn function, const elementwise_job *job, const cpu_rows *rows) {
  const parameters p = job->p;
  bool around = cpu_rows_around(rows, 1);
  int64_t i = 0, size = job->size;
  for (; i + CPU_CHUNK <= size; i += CPU_CHUNK)
    chunk(dtype, function, &p, rows->at[0], rows->at[1], i, CPU_CHUNK, around);
  if (i < size)
    chunk(dtype, function, &p, rows->at[0], rows->at[1], i, size - i, false);
}

/* The row function of an activation. */
CPU_TEMPLATE void row(elementwise_fn function, const elementwise_job *job, const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT32)
    row_of(CPU_FLOAT32, function, job, rows);
  else if (job->dtype == CPU_FLOAT16)
    row_of(CPU_FLOAT16, function, job, rows);
  else
    row_of(CPU_BFLOAT16, function, job, rows);
}

static fl_status elementwise(fl_call *call, cpu_row_fn row_function, parameters p) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  const elementwise_job job = {cpu_dtype_of(x), x->shape[x->ndim - 1], p};
  if (job.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  return cpu_rows_run(2, tensors, (cpu_row_cost){2 * bytes * CPU_WORK_EXP, fl_data(x) == fl_data(out) ? 0 : bytes},
                      row_function, &job);
}

CPU_TEMPLATE float gelu(cpu_dtype dtype, const parameters *p, float x) {
  (void)dtype;
  (void)p;
  return vector_gelu(x);
}

CPU_TEMPLATE float gelu_tanh(cpu_dtype dtype, const parameters *p, float x) {
  (void)dtype;
  (void)p;
  return vector_gelu_tanh(x);
}

static void gelu_row(const void *job, const cpu_rows *rows) {
  row(gelu, job, rows);
}

static void gelu_tanh_row(const void *job, const cpu_rows *rows) {
  row(gelu_tanh, job, rows);
}

/* gelu(x, approximate) -> out */
static fl_status run_gelu(void *self, fl_call *call) {
  (void)self;
  return elementwise(call, strcmp(call->values[1].v.s, "tanh") ? gelu_row : gelu_tanh_row, (parameters){0});
}

/* 0.5 x (1 + tanh(inner)) */
CPU_TEMPLATE float half_one_plus_tanh(cpu_dtype dtype, float x, float inner) {
  float factor = cpu_round(dtype, cpu_round(dtype, vector_tanh(inner)) + 1.0f);
  return cpu_round(dtype, 0.5f * x) * factor;
}

/* inner = sqrt(2 / pi) (x + 0.044715 x^3) */
CPU_TEMPLATE float gelu_new(cpu_dtype dtype, const parameters *p, float x) {
  const float sqrt_2_over_pi = 0.79788456f;
  float square = x * x;
  (void)p;
  if (dtype == CPU_BFLOAT16) /* only there does PyTorch's pow(x, 3) round the square */
    square = cpu_round(dtype, square);
  float cube = cpu_round(dtype, square * x);
  float sum = cpu_round(dtype, cpu_round(dtype, 0.044715f * cube) + x);
  return half_one_plus_tanh(dtype, x, cpu_round(dtype, sqrt_2_over_pi * sum));
}

/* inner = 0.7978845608 x (1 + 0.044715 x x) */
CPU_TEMPLATE float gelu_fast(cpu_dtype dtype, const parameters *p, float x) {
  float inner = cpu_round(dtype, cpu_round(dtype, 0.044715f * x) * x);
  (void)p;
  inner = cpu_round(dtype, inner + 1.0f) * cpu_round(dtype, x * 0.7978845608f);
  return half_one_plus_tanh(dtype, x, cpu_round(dtype, inner));
}

CPU_TEMPLATE float quick_gelu(cpu_dtype dtype, const parameters *p, float x) {
  (void)p;
  return x * cpu_round(dtype, vector_sigmoid(cpu_round(dtype, 1.702f * x)));
}

CPU_TEMPLATE float relu2(cpu_dtype dtype, const parameters *p, float x) {
  float above = x < 0.0f ? 0.0f : x;
  (void)dtype;
  (void)p;
  return above * above;
}

/* By a mask of all bits or none, of which compilers make vector instructions. */
CPU_TEMPLATE float round_where(uint32_t mask, cpu_dtype dtype, float value) {
  uint32_t bits = fl_float_bits(value), rounded = fl_float_bits(cpu_round(dtype, value));
  return fl_float_from_bits((rounded & mask) | (bits & ~mask));
}

/* Both branches of all elements, then the one that counts: ap x x or (expm1(min(x, eps)) - x) an, plus beta x. */
CPU_TEMPLATE float xielu(cpu_dtype dtype, const parameters *p, float x) {
  float positive = round_where(p->positive_rounded, dtype, p->positive_alpha * x) * x;
  positive = round_where(p->positive_rounded, dtype, positive);
  float negative = cpu_round(dtype, vector_expm1(vector_clamp_above(x, p->eps)));
  negative = round_where(p->negative_rounded, dtype, cpu_round(dtype, negative - x) * p->negative_alpha);
  return (x > 0.0f ? positive : negative) + cpu_round(dtype, p->beta * x);
}

static void gelu_new_row(const void *job, const cpu_rows *rows) {
  row(gelu_new, job, rows);
}

static void gelu_fast_row(const void *job, const cpu_rows *rows) {
  row(gelu_fast, job, rows);
}

static void quick_gelu_row(const void *job, const cpu_rows *rows) {
  row(quick_gelu, job, rows);
}

static void relu2_row(const void *job, const cpu_rows *rows) {
  row(relu2, job, rows);
}

static void xielu_row(const void *job, const cpu_rows *rows) {
  row(xielu, job, rows);
}

/* softplus of a parameter, rounded to its type. */
static float softplus_of(const cpu_block_type *type, const DLTensor *parameter) {
  float x;
  type->load(&x, fl_data(parameter), 0, 1);
  x = vector_softplus(x);
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
  p.positive_rounded = dtype == dtype_p ? UINT32_MAX : 0;
  p.negative_rounded = dtype == dtype_n ? UINT32_MAX : 0;
  p.positive_alpha = softplus_of(&cpu_block_types[dtype_p], alpha_p);
  p.negative_alpha = p.beta + softplus_of(&cpu_block_types[dtype_n], alpha_n);
  cpu_block_types[dtype_n].round(&p.negative_alpha, 1);
  return elementwise(call, xielu_row, p);
}

/* Ops without attributes: x -> out. */
static fl_status elementwise_op(void *self, fl_call *call) {
  return elementwise(call, *(cpu_row_fn *)self, (parameters){0});
}

static const fl_impl ops[] = {
    {.op_name = "gelu", CPU_FLAGOS, .fn = run_gelu},
    {.op_name = "gelu_new", CPU_FLAGOS, .fn = elementwise_op, .self = (cpu_row_fn[]){gelu_new_row}},
    {.op_name = "gelu_fast", CPU_FLAGOS, .fn = elementwise_op, .self = (cpu_row_fn[]){gelu_fast_row}},
    {.op_name = "quick_gelu", CPU_FLAGOS, .fn = elementwise_op, .self = (cpu_row_fn[]){quick_gelu_row}},
    {.op_name = "relu2", CPU_FLAGOS, .fn = elementwise_op, .self = (cpu_row_fn[]){relu2_row}},
    {.op_name = "xielu", CPU_FLAGOS, .fn = run_xielu},
};
OP_LIST(ops);
