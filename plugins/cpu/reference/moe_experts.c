/*
 * Experts as vLLM's torch_experts, the oracle of its tests, computes them: one token and expert after the other, each
 * layer's result rounded to the tensor's type, the weighted sum in float32. Needs libm only.
 */
#include "plugins/cpu/moe_experts.h"
#include "plugins/cpu/gated.h"
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/reference/matmul.h"
#include "plugins/cpu/scratch.h"

static const fl_kernel_fn gated_kernels[CPU_N_GATED_OPS] = {
    [CPU_SILU] = cpu_reference_silu_and_mul,
    [CPU_GELU] = cpu_reference_gelu_and_mul,
    [CPU_SWIGLUOAI] = cpu_reference_swigluoai_and_mul,
    [CPU_SWIGLUSTEP] = cpu_reference_swiglustep_and_mul,
};

/* One token's vectors; all but `sum` of the tensors' type. */
typedef struct expert_scratch {
  float *sum;                       /* [hidden] */
  void *x, *gate_up, *inner, *down; /* [hidden], [2 * inner], [inner], [hidden] */
} expert_scratch;

static bool allocate(const cpu_experts *experts, expert_scratch *scratch) {
  size_t hidden = (size_t)experts->hidden, inner = (size_t)experts->inner;
  size_t element = (size_t)cpu_dtype_size(experts->dtype);
  scratch->sum = cpu_scratch_take_bytes(hidden * sizeof(float) + (2 * hidden + 3 * inner) * element);
  if (!scratch->sum)
    return false;
  scratch->x = scratch->sum + hidden;
  scratch->gate_up = (char *)scratch->x + hidden * element;
  scratch->inner = (char *)scratch->gate_up + 2 * inner * element;
  scratch->down = (char *)scratch->inner + inner * element;
  return true;
}

/* x times the router's weight, in the tensors' type. */
static void weigh_input(const cpu_experts *experts, float weight, void *x) {
  weight = round_to(experts->dtype, weight);
  for (int64_t i = 0; i < experts->hidden; i++)
    store(experts->dtype, x, i, load(experts->dtype, x, i) * weight);
}

/* out = W[expert] x + bias[expert] */
static void project(const DLTensor *weights, const DLTensor *bias, int64_t expert, const void *x, void *out) {
  cpu_dtype dtype = cpu_dtype_of(weights), bias_dtype = bias ? cpu_dtype_of(bias) : dtype;
  cpu_matrix weight = cpu_matrix_of(weights);
  const char *bias_row = NULL;
  weight.data = (char *)weight.data + expert * fl_stride(weights, 0) * cpu_dtype_size(dtype);
  if (bias)
    bias_row = (const char *)fl_data(bias) + expert * fl_stride(bias, 0) * cpu_dtype_size(bias_dtype);
  cpu_reference_linear(1, weights->shape[1], weights->shape[2], (cpu_matrix){(void *)x, dtype, 0}, weight, bias_dtype,
                       bias_row, (cpu_matrix){out, dtype, 0});
}

/* Adds what the token's `j`th expert says. */
static fl_status add_expert(fl_call *call, const cpu_experts *experts, expert_scratch *scratch, int64_t m, int64_t j) {
  cpu_dtype dtype = experts->dtype;
  int64_t expert = cpu_expert_of(experts, m, j);
  float weight = cpu_expert_weight(experts, m, j);
  const void *token = (const char *)fl_data(experts->x) + m * fl_stride(experts->x, 0) * cpu_dtype_size(dtype);
  if (expert < 0)
    return FL_OK;
  for (int64_t i = 0; i < experts->hidden; i++)
    store(dtype, scratch->x, i, load(dtype, token, i));
  if (experts->weight_on_input)
    weigh_input(experts, weight, scratch->x);
  project(experts->w13, experts->w13_bias, expert, scratch->x, scratch->gate_up);
  fl_status status = cpu_activate(call, experts->activation, gated_kernels[experts->activation->op], experts->x->dtype,
                                  1, experts->inner, scratch->gate_up, scratch->inner);
  if (status)
    return status;
  project(experts->w2, experts->w2_bias, expert, scratch->inner, scratch->down);
  for (int64_t i = 0; i < experts->hidden; i++)
    scratch->sum[i] += load(dtype, scratch->down, i) * (experts->weight_on_input ? 1 : weight);
  return FL_OK;
}

static fl_status run(fl_call *call, const cpu_experts *experts) {
  expert_scratch scratch;
  fl_status status = FL_OK;
  if (!allocate(experts, &scratch))
    return fl_fail(call, FL_ENOMEM, "no memory for the vectors of a token");
  for (int64_t m = 0; m < experts->tokens && !status; m++) {
    char *out = (char *)fl_data(experts->out) + m * fl_stride(experts->out, 0) * cpu_dtype_size(experts->dtype);
    for (int64_t i = 0; i < experts->hidden; i++)
      scratch.sum[i] = 0;
    for (int64_t j = 0; j < experts->topk && !status; j++)
      status = add_expert(call, experts, &scratch, m, j);
    for (int64_t i = 0; i < experts->hidden && !status; i++)
      store(experts->dtype, out, i, scratch.sum[i]);
  }
  cpu_scratch_give(scratch.sum);
  return status;
}

static cpu_experts_parts parts = {&cpu_reference_router, run};

static const fl_impl ops[] = {
    {.op_name = "unquantized_fused_moe", CPU_REFERENCE, .fn = cpu_routed_moe, .self = &parts},
    {.op_name = "modular_fused_moe", CPU_REFERENCE, .fn = cpu_routed_moe, .self = &parts},
    {.op_name = "transformers_fused_moe", CPU_REFERENCE, .fn = cpu_transformers_moe, .self = &parts},
    {.op_name = "fused_moe", CPU_REFERENCE, .fn = cpu_fused_moe, .self = &parts},
};
OP_LIST(ops);
