/*
 * The experts of a mixture: the arguments of the ops that run them, which differ in where routing comes from and in
 * the order of their arguments. Nothing has been written when reading fails.
 */
#ifndef FLHOST_CPU_MOE_EXPERTS_H
#define FLHOST_CPU_MOE_EXPERTS_H

#include "plugins/cpu/moe_routing.h"
#include "plugins/cpu/quantised_linear.h"

/* The ops that are gated activations of experts; reference and optimised kernels have a table of theirs each. */
typedef enum cpu_gated_op { CPU_SILU, CPU_GELU, CPU_SWIGLUOAI, CPU_SWIGLUSTEP, CPU_N_GATED_OPS } cpu_gated_op;

/* A gated activation: its op, called as op(x, arguments…) -> out. */
typedef struct cpu_expert_activation {
  const char *name;
  cpu_gated_op op;
  uint32_t n_arguments;
  fl_value arguments[2];
} cpu_expert_activation;

typedef struct cpu_experts {
  cpu_dtype dtype;
  int64_t tokens, topk, hidden, inner, experts; /* inner: what w2 takes, half of what w13 gives */
  const DLTensor *x, *w13, *w2, *w13_bias, *w2_bias;
  const DLTensor *w13_scale, *w2_scale; /* given where the weights are codes */
  const int64_t *block_size;            /* of their blocks, if they have some */
  const DLTensor *topk_weights, *topk_ids, *expert_map;
  DLTensor *out;
  const cpu_expert_activation *activation;
  bool weight_on_input;
} cpu_experts;

typedef struct cpu_experts_parts {
  const cpu_router *router;
  fl_status (*run)(fl_call *call, const cpu_experts *experts);
} cpu_experts_parts;

/* One of the two layers: out [rows, n] = x [rows, k] W[expert]^T + bias[expert], x of the tensors' type. */
typedef struct cpu_expert_layer {
  const DLTensor *weights, *scales, *bias; /* scales NULL: weights are no codes; bias NULL: none */
  const int64_t *block_size;
} cpu_expert_layer;

static inline cpu_expert_layer cpu_first_layer(const cpu_experts *experts) {
  return (cpu_expert_layer){experts->w13, experts->w13_scale, experts->w13_bias, experts->block_size};
}

static inline cpu_expert_layer cpu_second_layer(const cpu_experts *experts) {
  return (cpu_expert_layer){experts->w2, experts->w2_scale, experts->w2_bias, experts->block_size};
}

/* A product with codes: calls the one of the two that is for such codes. */
typedef struct cpu_coded_product {
  cpu_scaled_mm_fn eight_bits;
  cpu_four_bit_fn four_bits;
} cpu_coded_product;

fl_status cpu_multiply_codes(const cpu_coded_product *by, const cpu_expert_layer *layer, int64_t expert, int64_t rows,
                             cpu_matrix x, cpu_matrix out);

/* The ops; `self` of their rows is a cpu_experts_parts. */
fl_status cpu_routed_moe(void *self, fl_call *call);
fl_status cpu_modular_moe(void *self, fl_call *call);
fl_status cpu_transformers_moe(void *self, fl_call *call);
fl_status cpu_fused_moe(void *self, fl_call *call);

/* The expert that token `m` goes to as its `j`th; -1: none here. */
int64_t cpu_expert_of(const cpu_experts *experts, int64_t m, int64_t j);
float cpu_expert_weight(const cpu_experts *experts, int64_t m, int64_t j);

/* `kernel` of the activation on x [rows, 2 * inner] -> out [rows, inner], both compact. */
fl_status cpu_activate(fl_call *call, const cpu_expert_activation *activation, fl_kernel_fn kernel, DLDataType dtype,
                       int64_t rows, int64_t inner, void *x, void *out);

#endif
