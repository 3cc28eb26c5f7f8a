/*
 * Element-wise activations with the roundings of vLLM's native definition: where these fall between steps they decide
 * more than the tolerance allows. All work in place.
 */
#include "plugins/cpu/flagos/rowwise/activation.h"
#include "plugins/cpu/flagos/vectors/gelu.h"
#include "plugins/cpu/flagos/vectors/vector.h"

#include <string.h>

CPU_TEMPLATE void gelu(cpu_dtype dtype, const void *p, float *values) {
  (void)dtype, (void)p;
  cpu_gelu_chunk(values);
}

static void gelu_row(const void *job, const cpu_rows *rows) {
  row(gelu, job, rows);
}

CPU_TEMPLATE void gelu_tanh(cpu_dtype dtype, const void *p, float *values) {
  (void)dtype, (void)p;
  cpu_gelu_tanh_chunk(values);
}

static void gelu_tanh_row(const void *job, const cpu_rows *rows) {
  row(gelu_tanh, job, rows);
}

/* gelu(x, approximate) -> out */
static fl_status run_gelu(void *self, fl_call *call) {
  const activation_entry *functions = self;
  return activate(call, &functions[!strcmp(call->values[1].v.s, "tanh")], "", 0);
}

/* 0.5 x (1 + tanh(inner)) */
CPU_TEMPLATE float half_one_plus_tanh(cpu_dtype dtype, float x, float inner) {
  float factor = cpu_round(dtype, cpu_round(dtype, vector_tanh(inner)) + 1.0f);
  return cpu_round(dtype, 0.5f * x) * factor;
}

/* inner = sqrt(2 / pi) (x + 0.044715 x^3). In float32 its roundings, and those of gelu_fast, decide nothing. */
CPU_TEMPLATE void gelu_new(cpu_dtype dtype, const void *p, float *values) {
  const float sqrt_2_over_pi = 0.79788456f;
  if (dtype == CPU_FLOAT32) {
    gelu_tanh(dtype, p, values);
    return;
  }
  for (int i = 0; i < CPU_CHUNK; i++) {
    float x = values[i], square = x * x;
    if (dtype == CPU_BFLOAT16) /* only there does PyTorch's pow(x, 3) round the square */
      square = cpu_round(dtype, square);
    float cube = cpu_round(dtype, square * x);
    float sum = cpu_round(dtype, cpu_round(dtype, 0.044715f * cube) + x);
    values[i] = half_one_plus_tanh(dtype, x, cpu_round(dtype, sqrt_2_over_pi * sum));
  }
}

/* inner = 0.7978845608 x (1 + 0.044715 x x) */
CPU_TEMPLATE void gelu_fast(cpu_dtype dtype, const void *p, float *values) {
  if (dtype == CPU_FLOAT32) {
    gelu_tanh(dtype, p, values);
    return;
  }
  for (int i = 0; i < CPU_CHUNK; i++) {
    float x = values[i], inner = cpu_round(dtype, cpu_round(dtype, 0.044715f * x) * x);
    inner = cpu_round(dtype, inner + 1.0f) * cpu_round(dtype, x * 0.7978845608f);
    values[i] = half_one_plus_tanh(dtype, x, cpu_round(dtype, inner));
  }
}

CPU_TEMPLATE void quick_gelu(cpu_dtype dtype, const void *p, float *values) {
  (void)p;
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] *= cpu_round(dtype, vector_sigmoid_factor(cpu_round(dtype, 1.702f * values[i])));
}

CPU_TEMPLATE void relu2(cpu_dtype dtype, const void *p, float *values) {
  (void)dtype, (void)p;
  for (int i = 0; i < CPU_CHUNK; i++) {
    float above = values[i] < 0.0f ? 0.0f : values[i];
    values[i] = above * above;
  }
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

/* Ops without attributes: x -> out. */
static fl_status activation_op(void *self, fl_call *call) {
  return activate(call, self, "", 0);
}

static lookup_table gelu_tables[LOOKUP_TABLES], gelu_tanh_tables[LOOKUP_TABLES], gelu_new_tables[LOOKUP_TABLES],
    gelu_fast_tables[LOOKUP_TABLES], quick_gelu_tables[LOOKUP_TABLES];

static activation_entry gelu_functions[] = {{gelu_row, gelu_tables}, {gelu_tanh_row, gelu_tanh_tables}},
                        gelu_new_function = {gelu_new_row, gelu_new_tables},
                        gelu_fast_function = {gelu_fast_row, gelu_fast_tables},
                        quick_gelu_function = {quick_gelu_row, quick_gelu_tables}, relu2_function = {relu2_row, NULL};

static const fl_impl ops[] = {
    {.op_name = "gelu", CPU_FLAGOS, .fn = run_gelu, .self = gelu_functions},
    {.op_name = "gelu_new", CPU_FLAGOS, .fn = activation_op, .self = &gelu_new_function},
    {.op_name = "gelu_fast", CPU_FLAGOS, .fn = activation_op, .self = &gelu_fast_function},
    {.op_name = "quick_gelu", CPU_FLAGOS, .fn = activation_op, .self = &quick_gelu_function},
    {.op_name = "relu2", CPU_FLAGOS, .fn = activation_op, .self = &relu2_function},
};
OP_LIST(ops);
