/* Reads the arguments of the ops that run experts: see moe_experts.h. */
#include "plugins/cpu/moe_experts.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/view.h"

#include <string.h>

#define STRING(text)                                                                                                   \
  { .type = FL_STRING, .v.s = text }
#define NUMBER(value)                                                                                                  \
  { .type = FL_FLOAT, .v.f = value }

static const cpu_expert_activation activations[] = {
    {"silu", CPU_SILU, 0, {{0}}},
    {"gelu", CPU_GELU, 1, {STRING("none")}},
    {"gelu_tanh", CPU_GELU, 1, {STRING("tanh")}},
    {"swigluoai", CPU_SWIGLUOAI, 2, {NUMBER(1.702), NUMBER(7.0)}}, /* alpha, limit */
    {"swiglustep", CPU_SWIGLUSTEP, 1, {NUMBER(7.0)}},              /* limit */
};

fl_status cpu_activate(fl_call *call, const cpu_expert_activation *activation, fl_kernel_fn kernel, DLDataType dtype,
                       int64_t rows, int64_t inner, void *x, void *out) {
  tensor_view x_view, out_view;
  fl_value values[4];
  uint32_t n = 0;
  values[n++] = fl_tensor(view_matrix(&x_view, x, dtype, rows, 2 * inner, 2 * inner));
  for (uint32_t i = 0; i < activation->n_arguments; i++)
    values[n++] = activation->arguments[i];
  values[n++] = fl_tensor(view_matrix(&out_view, out, dtype, rows, inner, inner));
  return cpu_call_part(call, kernel, NULL, values, n);
}

int64_t cpu_expert_of(const cpu_experts *experts, int64_t m, int64_t j) {
  int64_t id = cpu_index_at(experts->topk_ids, m, j);
  return experts->expert_map ? cpu_index(experts->expert_map, id) : id;
}

float cpu_expert_weight(const cpu_experts *experts, int64_t m, int64_t j) {
  const DLTensor *weights = experts->topk_weights;
  return load(cpu_dtype_of(weights), fl_data(weights), m * fl_stride(weights, 0) + j);
}

/* The activation and, from the tensors, sizes. */
static fl_status complete(fl_call *call, cpu_experts *experts, const char *activation) {
  experts->dtype = cpu_dtype_of(experts->x);
  experts->tokens = experts->x->shape[0];
  experts->hidden = experts->x->shape[1];
  experts->experts = experts->w13->shape[0];
  experts->inner = experts->w13->shape[1] / 2;
  for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
    if (!strcmp(activations[i].name, activation))
      experts->activation = &activations[i];
  return experts->activation ? FL_OK : fl_fail(call, FL_ENOTSUP, "activation \"%s\" is not implemented", activation);
}

static fl_status check_map(fl_call *call, const cpu_experts *experts) {
  if (!experts->expert_map)
    return FL_OK;
  return cpu_check_index_list(call, "expert_map", experts->expert_map, -1, experts->experts - 1,
                              "experts of 'w13'; -1: none here");
}

static fl_status check_ids(fl_call *call, const cpu_experts *experts) {
  const DLTensor *map = experts->expert_map;
  return cpu_check_indices(call, "topk_ids", experts->topk_ids, 0, (map ? map->shape[0] : experts->experts) - 1,
                           map ? "experts of 'expert_map'" : "experts of 'w13'");
}

/* w13_scale, w2_scale, block_size */
static void read_scales(const fl_call *call, uint32_t first, cpu_experts *experts) {
  experts->w13_scale = cpu_tensor(call, first);
  experts->w2_scale = cpu_tensor(call, first + 1);
  experts->block_size = call->values[first + 2].v.ints;
}

fl_status cpu_multiply_codes(const cpu_coded_product *by, const cpu_expert_layer *layer, int64_t expert, int64_t rows,
                             cpu_matrix x, cpu_matrix out) {
  cpu_dtype bias_dtype = layer->bias ? cpu_dtype_of(layer->bias) : CPU_FLOAT32;
  const void *bias = layer->bias ? cpu_tensor_at(layer->bias, expert, 0) : NULL;
  if (layer->weights->dtype.code == kDLUInt) {
    cpu_four_bit_linear linear = cpu_mxfp4_of(layer->weights, layer->scales, expert);
    linear.m = rows;
    linear.x = x;
    linear.out = out;
    linear.bias = bias;
    linear.bias_dtype = bias_dtype;
    return linear.n ? by->four_bits(&linear) : FL_OK;
  }
  cpu_scaled_mm mm = cpu_weight_only_of(layer->weights, layer->scales, layer->block_size, expert);
  mm.m = rows;
  mm.x = x.data;
  mm.x_dtype = x.dtype;
  mm.x_stride = x.stride;
  mm.out = out;
  mm.bias = bias;
  mm.bias_dtype = bias_dtype;
  return mm.n ? by->eight_bits(&mm) : FL_OK;
}

/* x, w13, w2, topk_weights, topk_ids, activation, apply_router_weight_on_input, expert_map, w13_bias, w2_bias, and of
 * modular_fused_moe w13_scale, w2_scale, block_size -> out */
static fl_status routed(const cpu_experts_parts *parts, fl_call *call, bool has_scales) {
  enum { X, W13, W2, WEIGHTS, IDS, ACTIVATION, WEIGHT_ON_INPUT, EXPERT_MAP, W13_BIAS, W2_BIAS, W13_SCALE };
  cpu_experts experts = {.x = cpu_tensor(call, X),
                         .w13 = cpu_tensor(call, W13),
                         .w2 = cpu_tensor(call, W2),
                         .topk_weights = cpu_tensor(call, WEIGHTS),
                         .topk_ids = cpu_tensor(call, IDS),
                         .topk = cpu_tensor(call, IDS)->shape[1],
                         .expert_map = cpu_tensor(call, EXPERT_MAP),
                         .w13_bias = cpu_tensor(call, W13_BIAS),
                         .w2_bias = cpu_tensor(call, W2_BIAS),
                         .out = cpu_tensor(call, call->count - 1),
                         .weight_on_input = call->values[WEIGHT_ON_INPUT].v.b};
  if (has_scales)
    read_scales(call, W13_SCALE, &experts);
  fl_status status = complete(call, &experts, call->values[ACTIVATION].v.s);
  if (!status)
    status = check_map(call, &experts);
  if (!status)
    status = check_ids(call, &experts);
  return status ? status : parts->run(call, &experts);
}

fl_status cpu_routed_moe(void *self, fl_call *call) {
  return routed(self, call, false);
}

fl_status cpu_modular_moe(void *self, fl_call *call) {
  return routed(self, call, true);
}

/* x, w13, w2, topk_ids, topk_weights, activation -> out */
fl_status cpu_transformers_moe(void *self, fl_call *call) {
  const cpu_experts_parts *parts = self;
  enum { X, W13, W2, IDS, WEIGHTS, ACTIVATION, OUT };
  cpu_experts experts = {.x = cpu_tensor(call, X),
                         .w13 = cpu_tensor(call, W13),
                         .w2 = cpu_tensor(call, W2),
                         .topk_weights = cpu_tensor(call, WEIGHTS),
                         .topk_ids = cpu_tensor(call, IDS),
                         .topk = cpu_tensor(call, IDS)->shape[1],
                         .out = cpu_tensor(call, OUT)};
  fl_status status = complete(call, &experts, call->values[ACTIVATION].v.s);
  if (!status)
    status = check_ids(call, &experts);
  return status ? status : parts->run(call, &experts);
}

enum {
  FUSED_X,
  FUSED_W13,
  FUSED_W2,
  FUSED_ROUTER_LOGITS,
  FUSED_TOP_K,
  FUSED_RENORMALIZE,
  FUSED_USE_GROUPED_TOPK,
  FUSED_NUM_EXPERT_GROUP,
  FUSED_TOPK_GROUP,
  FUSED_SCORING_FUNC,
  FUSED_ROUTED_SCALING_FACTOR,
  FUSED_BIAS,
  FUSED_ACTIVATION,
  FUSED_WEIGHT_ON_INPUT,
  FUSED_EXPERT_MAP,
  FUSED_W13_BIAS,
  FUSED_W2_BIAS,
  FUSED_W13_SCALE,
  FUSED_OUT = FUSED_W13_SCALE + 3
};

/* Without groups as the op topk_softmax, in float32. */
static cpu_routing read_routing(const fl_call *call) {
  const fl_value *values = call->values;
  const DLTensor *logits = cpu_tensor(call, FUSED_ROUTER_LOGITS);
  bool grouped = values[FUSED_USE_GROUPED_TOPK].v.b;
  return (cpu_routing){.experts = logits->shape[1],
                       .topk = values[FUSED_TOP_K].v.i,
                       .groups = grouped ? values[FUSED_NUM_EXPERT_GROUP].v.i : 1,
                       .topk_group = grouped ? values[FUSED_TOPK_GROUP].v.i : 1,
                       .sigmoid = !strcmp(values[FUSED_SCORING_FUNC].v.s, "sigmoid"),
                       .renormalize = values[FUSED_RENORMALIZE].v.b,
                       .guarded = !grouped,
                       .dtype = cpu_dtype_of(logits),
                       .rounding = grouped ? cpu_dtype_of(logits) : CPU_FLOAT32,
                       .bias = cpu_tensor(call, FUSED_BIAS),
                       .scaling = (float)values[FUSED_ROUTED_SCALING_FACTOR].v.f};
}

fl_status cpu_fused_moe(void *self, fl_call *call) {
  const cpu_experts_parts *parts = self;
  static const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1};
  cpu_routing routing = read_routing(call);
  tensor_view weights_view, ids_view;
  cpu_experts experts = {.x = cpu_tensor(call, FUSED_X),
                         .w13 = cpu_tensor(call, FUSED_W13),
                         .w2 = cpu_tensor(call, FUSED_W2),
                         .topk = routing.topk,
                         .expert_map = cpu_tensor(call, FUSED_EXPERT_MAP),
                         .w13_bias = cpu_tensor(call, FUSED_W13_BIAS),
                         .w2_bias = cpu_tensor(call, FUSED_W2_BIAS),
                         .out = cpu_tensor(call, FUSED_OUT),
                         .weight_on_input = call->values[FUSED_WEIGHT_ON_INPUT].v.b};
  float *weights = NULL;
  read_scales(call, FUSED_W13_SCALE, &experts);
  fl_status status = complete(call, &experts, call->values[FUSED_ACTIVATION].v.s);
  if (!status)
    status = check_map(call, &experts);
  if (status || !experts.tokens)
    goto out;
  size_t places = (size_t)(experts.tokens * routing.topk);
  weights = cpu_scratch_take_bytes(places * (sizeof(float) + sizeof(int32_t)));
  if (!weights) {
    status = fl_fail(call, FL_ENOMEM, "no memory to route %lld tokens", (long long)experts.tokens);
    goto out;
  }
  DLTensor *weights_tensor = view_matrix(&weights_view, weights, float32, experts.tokens, routing.topk, routing.topk);
  DLTensor *ids = view_matrix(&ids_view, weights + places, int32, experts.tokens, routing.topk, routing.topk);
  experts.topk_weights = weights_tensor;
  experts.topk_ids = ids;
  status = cpu_route(call, &routing, parts->router, cpu_tensor(call, FUSED_ROUTER_LOGITS), weights_tensor, ids);
  if (!status)
    status = parts->run(call, &experts);
out:
  cpu_scratch_give(weights);
  return status;
}
