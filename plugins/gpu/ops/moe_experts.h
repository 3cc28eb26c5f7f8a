/*
 * What the implementations of the experts of a mixture have in common: arguments, routing, activation, sum. Between
 * these lie two products, which each takes in its own way: moe_experts.c by kernels, cublaslt_experts.c by cuBLASLt.
 */
#ifndef FLHOST_GPU_MOE_EXPERTS_H
#define FLHOST_GPU_MOE_EXPERTS_H

#include "plugins/gpu/kernels/arguments/moe_experts.h"
#include "plugins/gpu/kernels/arguments/tile.h"
#include "plugins/gpu/launch.h"

/* Where an op has its arguments, x, w13 and w2 being the first three; -1: it has none. The result is the last value. */
typedef struct gpu_experts_places {
  int ids, weights, activation, weight_on_input, map, w13_bias, w2_bias;
  bool routes; /* fused_moe: ids and weights follow from logits */
} gpu_experts_places;

/* x, w13, w2, topk_weights, topk_ids, activation, apply_router_weight_on_input, expert_map, w13_bias, w2_bias */
#define GPU_ROUTED_EXPERTS                                                                                             \
  .weights = 3, .ids = 4, .activation = 5, .weight_on_input = 6, .map = 7, .w13_bias = 8, .w2_bias = 9

/* OP(name, gpu_experts_places), the ops. */
#define GPU_EXPERTS_OPS(OP)                                                                                            \
  OP("unquantized_fused_moe", GPU_ROUTED_EXPERTS)                                                                      \
  OP("modular_fused_moe", GPU_ROUTED_EXPERTS)                                                                          \
  OP("transformers_fused_moe", .ids = 3, .weights = 4, .activation = 5, .weight_on_input = -1, .map = -1,              \
     .w13_bias = -1, .w2_bias = -1)                                                                                    \
  OP("fused_moe", .ids = -1, .weights = -1, .activation = 12, .weight_on_input = 13, .map = 14, .w13_bias = 15,        \
     .w2_bias = 16, .routes = true)

typedef struct gpu_experts {
  DLTensor *x, *w13, *w2, *ids, *weights, *map, *w13_bias, *w2_bias, *out;
  DLTensor routed_weights, routed_ids; /* in the workspace, where routing is not given */
  int64_t routed_shape[2];
  gpu_dtype dtype;
  int64_t tokens, topk, hidden, inner, size; /* size: bytes of an element */
  bool weight_on_input;
  const struct gpu_experts_activation *activation;
  gpu_experts_routing routing;
  size_t workspace; /* bytes of the pieces so far */

  /* What is between the products; an implementation gives it its place in the workspace. */
  uint32_t rows;
  void *gate_up, *between, *down; /* [rows, 2 * inner], [rows, inner], [rows, hidden] */
} gpu_experts;

/* Reads the arguments of op->variant, a gpu_experts_places. Routing that is not given is the first piece of the
 * workspace. false: `reason` says what none of the implementations can do. */
bool gpu_experts_read(const gpu_op *op, const fl_call *call, gpu_experts *e, const char **reason);

/* The next piece of the workspace, aligned as the whole is; NULL where there is no workspace yet. */
void *gpu_experts_piece(const fl_call *call, gpu_experts *e, size_t size);

/* FL_ENOTSUP, with a message, where the call's workspace has not all pieces. */
fl_status gpu_experts_check_workspace(const gpu_op *op, fl_call *call, const gpu_experts *e);

/* Each queues one kernel. The first does nothing where routing is given. */
fl_status gpu_experts_route(const gpu_op *op, fl_call *call, gpu_experts *e);
fl_status gpu_experts_activate(fl_call *call, const gpu_experts *e);

/* out = the sum of `down` over each token's pairs, whose rows `place` has; NULL: a pair's row has its number. */
fl_status gpu_experts_add(const gpu_op *op, fl_call *call, const gpu_experts *e, const int32_t *place);

gpu_experts_weights gpu_experts_weights_of(const gpu_experts *e);

#endif
