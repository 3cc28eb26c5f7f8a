/*
 * The experts of a mixture: the arguments of the ops that run them, which differ in where routing comes from and in
 * the order of their arguments. Nothing has been written when reading fails.
 */
#ifndef FLHOST_CPU_MOE_EXPERTS_H
#define FLHOST_CPU_MOE_EXPERTS_H

#include "plugins/cpu/moe_routing.h"

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
  const DLTensor *topk_weights, *topk_ids, *expert_map;
  DLTensor *out;
  const cpu_expert_activation *activation;
  bool weight_on_input;
} cpu_experts;

typedef struct cpu_experts_parts {
  const cpu_router *router;
  fl_status (*run)(fl_call *call, const cpu_experts *experts);
} cpu_experts_parts;

/* The ops; `self` of their rows is a cpu_experts_parts. */
fl_status cpu_routed_moe(void *self, fl_call *call);
fl_status cpu_transformers_moe(void *self, fl_call *call);
fl_status cpu_fused_moe(void *self, fl_call *call);

/* The expert that token `m` goes to as its `j`th; -1: none here. */
int64_t cpu_expert_of(const cpu_experts *experts, int64_t m, int64_t j);
float cpu_expert_weight(const cpu_experts *experts, int64_t m, int64_t j);

/* `kernel` of the activation on x [rows, 2 * inner] -> out [rows, inner], both compact. */
fl_status cpu_activate(fl_call *call, const cpu_expert_activation *activation, fl_kernel_fn kernel, DLDataType dtype,
                       int64_t rows, int64_t inner, void *x, void *out);

#endif
