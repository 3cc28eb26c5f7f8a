/*
 * Experts as vLLM's torch_experts, the oracle of its tests, computes them: one token and expert after the other, each
 * layer's result rounded to the tensor's type, the weighted sum in float32. Needs libm only.
 */
#include "plugins/cpu/moe_experts.h"
#include "plugins/cpu/gated.h"
#include "plugins/cpu/reference/matmul.h"
#include "plugins/cpu/reference/quantised_linear.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/scratch.h"

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

static const cpu_coded_product coded = {cpu_reference_weight_only, cpu_reference_four_bit};

/* out = W[expert] x + bias[expert]; k elements of x, n of out */
static void project(const cpu_experts *experts, cpu_expert_layer layer, int64_t expert, int64_t n, int64_t k, void *x,
                    void *out) {
  cpu_matrix from = cpu_matrix_in(x, experts->dtype, k), to = cpu_matrix_in(out, experts->dtype, n);
  if (layer.scales) {
    cpu_multiply_codes(&coded, &layer, expert, 1, from, to);
    return;
  }
  cpu_matrix weight = cpu_matrix_of(layer.weights);
  weight.data = cpu_tensor_at(layer.weights, expert, 0);
  cpu_reference_linear(1, n, k, from, weight, layer.bias ? cpu_dtype_of(layer.bias) : experts->dtype,
                       layer.bias ? cpu_tensor_at(layer.bias, expert, 0) : NULL, to);
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
  project(experts, cpu_first_layer(experts), expert, 2 * experts->inner, experts->hidden, scratch->x, scratch->gate_up);
  fl_status status = cpu_activate(call, experts->activation, gated_kernels[experts->activation->op], experts->x->dtype,
                                  1, experts->inner, scratch->gate_up, scratch->inner);
  if (status)
    return status;
  project(experts, cpu_second_layer(experts), expert, experts->hidden, experts->inner, scratch->inner, scratch->down);
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
    {.op_name = "modular_fused_moe", CPU_REFERENCE, .fn = cpu_modular_moe, .self = &parts},
    {.op_name = "transformers_fused_moe", CPU_REFERENCE, .fn = cpu_transformers_moe, .self = &parts},
    {.op_name = "fused_moe", CPU_REFERENCE, .fn = cpu_fused_moe, .self = &parts},
};
OP_LIST(ops);
