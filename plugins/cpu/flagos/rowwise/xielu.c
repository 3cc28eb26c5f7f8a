/* xielu, whose product with alpha_p overflows: then it is infinite, whatever is added, so the two are not fused. */
#include "plugins/cpu/flagos/rowwise/activation.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/vector.h"

/* Attributes and parameters. */
typedef struct parameters {
  float beta, eps; /* in x's type */
  float positive_alpha, negative_alpha;
  uint32_t positive_rounded, negative_rounded; /* masks: to x's type a product with them is; else it is a float32 */
} parameters;

/* By a mask of all bits or none, of which compilers make vector instructions. */
CPU_TEMPLATE float round_where(uint32_t mask, cpu_dtype dtype, float value) {
  uint32_t bits = fl_float_bits(value), rounded = fl_float_bits(cpu_round(dtype, value));
  return fl_float_from_bits((rounded & mask) | (bits & ~mask));
}

/* Both branches of all elements, then the one that counts: ap x x or (expm1(min(x, eps)) - x) an, plus beta x. */
CPU_TEMPLATE void xielu(cpu_dtype dtype, const void *user, float *values) {
  const parameters p = *(const parameters *)user;
  for (int i = 0; i < CPU_CHUNK; i++) {
    float x = values[i], positive = round_where(p.positive_rounded, dtype, p.positive_alpha * x) * x;
    positive = round_where(p.positive_rounded, dtype, positive);
    float negative = cpu_round(dtype, vector_expm1(vector_clamp_above(x, p.eps)));
    negative = round_where(p.negative_rounded, dtype, cpu_round(dtype, negative - x) * p.negative_alpha);
    values[i] = (x > 0.0f ? positive : negative) + cpu_round(dtype, p.beta * x);
  }
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

static lookup_table tables[LOOKUP_TABLES];

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
  return activate(call, &(activation_entry){xielu_row, tables}, &p, sizeof p);
}

static const fl_impl ops[] = {{.op_name = "xielu", CPU_FLAGOS, .fn = run_xielu}};
OP_LIST(ops);
