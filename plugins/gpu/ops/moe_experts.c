/*
 * Launches of the experts of a mixture: the routing where it is not given, sort, product, activation, product, sum, one
 * behind the other on the call's stream. What is in between lies in the call's workspace.
 */
#include "plugins/gpu/ops/moe_experts.h"
#include "plugins/gpu/ops/activation.h"
#include "plugins/gpu/ops/moe_routing.h"

#include <string.h>

GPU_MODULE(moe_experts);
GPU_MODULE(moe_routing);
GPU_MODULE(activation);

static gpu_kernel sort = {.module = &gpu_module_moe_experts, .name = "sort_experts"};
static gpu_kernel multiply_few[] = GPU_KERNELS(moe_experts, "multiply_few");
static gpu_kernel multiply_many[] = GPU_KERNELS(moe_experts, "multiply_many");
static gpu_kernel add_experts[] = GPU_KERNELS(moe_experts, "add_experts");

enum { X, W13, W2 };

/* Arguments of fused_moe alone. */
enum { LOGITS = 3, TOP_K, RENORMALIZE, USE_GROUPED_TOPK, NUM_EXPERT_GROUP, TOPK_GROUP, SCORING_FUNC, SCALING, BIAS };

/* What an activation's name means: an op, and its arguments between x and out. */
typedef struct gpu_experts_activation {
  const char *name, *op;
  uint32_t n;
  fl_value arguments[2];
} activation;

#define STRING(text)                                                                                                   \
  { .type = FL_STRING, .v.s = text }
#define NUMBER(value)                                                                                                  \
  { .type = FL_FLOAT, .v.f = value }

static const activation activations[] = {
    {"silu", "silu_and_mul", 0, {{0}}},
    {"gelu", "gelu_and_mul", 1, {STRING("none")}},
    {"gelu_tanh", "gelu_and_mul", 1, {STRING("tanh")}},
    {"swigluoai", "swigluoai_and_mul", 2, {NUMBER(1.702), NUMBER(7.0)}}, /* alpha, limit */
    {"swiglustep", "swiglustep_and_mul", 1, {NUMBER(7.0)}},              /* limit */
};

static DLTensor *tensor_at(const fl_call *call, int place) {
  return place < 0 ? NULL : gpu_tensor(call, (uint32_t)place);
}

static bool is_of(const DLTensor *tensor, gpu_dtype dtype) {
  return !tensor || gpu_dtype_of(tensor) == dtype;
}

/* ---------------------------------------------------------------------------------------------------------- reading */

void *gpu_experts_piece(const fl_call *call, gpu_experts *e, size_t size) {
  enum { ALIGNMENT = 256 };
  char *at = call->workspace ? (char *)call->workspace + e->workspace : NULL;
  e->workspace += (size_t)round_up((int64_t)size, ALIGNMENT);
  return at;
}

static void place_routing(const fl_call *call, gpu_experts *e) {
  static const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1};
  e->routed_shape[0] = e->x->shape[0];
  e->routed_shape[1] = call->values[TOP_K].v.i;
  size_t size = (size_t)(e->routed_shape[0] * e->routed_shape[1]) * sizeof(float);
  e->routed_weights = (DLTensor){.data = gpu_experts_piece(call, e, size),
                                 .device = e->x->device,
                                 .ndim = 2,
                                 .dtype = float32,
                                 .shape = e->routed_shape};
  e->routed_ids = e->routed_weights;
  e->routed_ids.data = gpu_experts_piece(call, e, size);
  e->routed_ids.dtype = int32;
  e->weights = &e->routed_weights;
  e->ids = &e->routed_ids;
}

static bool is_type(const DLTensor *tensor, const gpu_experts *e) {
  return is_of(tensor, e->dtype) || is_of(tensor, GPU_FLOAT32);
}

bool gpu_experts_read(const gpu_op *op, const fl_call *call, gpu_experts *e, const char **reason) {
  const gpu_experts_places *at = op->variant;
  const char *name = call->values[at->activation].v.s;
  *e = (gpu_experts){.x = gpu_tensor(call, X),
                     .w13 = gpu_tensor(call, W13),
                     .w2 = gpu_tensor(call, W2),
                     .ids = tensor_at(call, at->ids),
                     .weights = tensor_at(call, at->weights),
                     .map = tensor_at(call, at->map),
                     .w13_bias = tensor_at(call, at->w13_bias),
                     .w2_bias = tensor_at(call, at->w2_bias),
                     .out = gpu_tensor(call, call->count - 1),
                     .weight_on_input = at->weight_on_input >= 0 && call->values[at->weight_on_input].v.b};
  if (at->routes)
    place_routing(call, e);
  e->dtype = gpu_dtype_of(e->x);
  e->size = gpu_item_size(e->x);
  e->tokens = e->x->shape[0];
  e->hidden = e->x->shape[1];
  e->topk = e->ids->shape[1];
  e->inner = e->w2->shape[2];
  for (size_t i = 0; i < sizeof activations / sizeof activations[0]; i++)
    if (!strcmp(activations[i].name, name))
      e->activation = &activations[i];
  *reason = "element types: float32, float16 or bfloat16, the same for x, w13, w2 and out, expected";
  if (e->dtype == GPU_OTHER || !is_of(e->w13, e->dtype) || !is_of(e->w2, e->dtype) || !is_of(e->out, e->dtype) ||
      !is_type(e->weights, e) || !is_type(e->w13_bias, e) || !is_type(e->w2_bias, e))
    return false;
  *reason = "an activation that there is no kernel of";
  if (!e->activation)
    return false;
  int64_t pairs, n = e->w13->shape[0];
  *reason = "more than 2147483647 pairs of a token and an expert, or more than 4096 experts";
  if (e->tokens > INT32_MAX || __builtin_mul_overflow(e->tokens, e->topk, &pairs) ||
      pairs > INT32_MAX - (n + 1) * GPU_EXPERTS_MANY || n > 4096)
    return false;
  e->routing = (gpu_experts_routing){.ids = fl_data(e->ids),
                                     .map = e->map ? fl_data(e->map) : NULL,
                                     .ids_stride = fl_stride(e->ids, 0),
                                     .map_size = e->map ? e->map->shape[0] : 0,
                                     .pairs = (uint32_t)pairs,
                                     .topk = (uint32_t)e->topk,
                                     .experts = (uint32_t)n,
                                     .wide_ids = gpu_is_wide(e->ids),
                                     .wide_map = gpu_is_wide(e->map)};
  return true;
}

fl_status gpu_experts_check_workspace(const gpu_op *op, fl_call *call, const gpu_experts *e) {
  size_t given = call->workspace ? call->workspace_size : 0;
  if (given >= e->workspace)
    return FL_OK;
  return fl_fail(call, FL_ENOTSUP, "%s: a workspace of %zu bytes, needs %zu (fl_workspace_size)", op->name, given,
                 e->workspace);
}

/* ------------------------------------------------------------------------------------------------------------ steps */

/* As the op grouped_topk does it, or, without groups, as topk_softmax, in float32. */
fl_status gpu_experts_route(const gpu_op *op, fl_call *call, gpu_experts *e) {
  if (!((const gpu_experts_places *)op->variant)->routes)
    return FL_OK;
  const fl_value *values = call->values;
  bool grouped = values[USE_GROUPED_TOPK].v.b;
  gpu_route_arguments arguments = {.topk = e->routing.topk,
                                   .groups = grouped ? (uint32_t)values[NUM_EXPERT_GROUP].v.i : 1,
                                   .topk_group = grouped ? (uint32_t)values[TOPK_GROUP].v.i : 1,
                                   .sigmoid = !strcmp(values[SCORING_FUNC].v.s, "sigmoid"),
                                   .renormalize = values[RENORMALIZE].v.b,
                                   .guarded = !grouped,
                                   .rounded = grouped,
                                   .scaling = (float)values[SCALING].v.f};
  DLTensor *const tensors[] = {gpu_tensor(call, LOGITS), e->weights, e->ids};
  return gpu_route(op, call, &arguments, gpu_tensor(call, BIAS), tensors);
}

gpu_experts_weights gpu_experts_weights_of(const gpu_experts *e) {
  return (gpu_experts_weights){
      .data = fl_data(e->weights), .stride = fl_stride(e->weights, 0), .dtype = (int32_t)gpu_dtype_of(e->weights)};
}

static DLTensor matrix(const gpu_experts *e, void *data, int64_t *shape) {
  return (DLTensor){.data = data, .device = e->x->device, .ndim = 2, .dtype = e->x->dtype, .shape = shape};
}

/* The op's own kernel. */
fl_status gpu_experts_activate(fl_call *call, const gpu_experts *e) {
  int64_t in_shape[] = {e->rows, 2 * e->inner}, out_shape[] = {e->rows, e->inner};
  DLTensor in = matrix(e, e->gate_up, in_shape), out = matrix(e, e->between, out_shape);
  fl_value values[4];
  uint32_t n = 0;
  values[n++] = fl_tensor(&in);
  for (uint32_t i = 0; i < e->activation->n; i++)
    values[n++] = e->activation->arguments[i];
  values[n++] = fl_tensor(&out);
  fl_call part = *call;
  part.values = values;
  part.count = n;
  return gpu_activate(e->activation->op, &part);
}

fl_status gpu_experts_add(const gpu_op *op, fl_call *call, const gpu_experts *e, const int32_t *place) {
  enum { LEAST = 32 };
  gpu_experts_sum_arguments arguments = {.routing = e->routing,
                                         .place = place,
                                         .x = e->down,
                                         .out = fl_data(e->out),
                                         .tokens = (uint32_t)e->tokens,
                                         .columns = e->hidden,
                                         .x_stride = e->hidden,
                                         .out_stride = fl_stride(e->out, 0)};
  if (!e->weight_on_input)
    arguments.weights = gpu_experts_weights_of(e);
  unsigned x = gpu_power_of_two(e->hidden, GPU_TILE_THREADS);
  x = x < LEAST ? LEAST : x;
  gpu_shape shape = gpu_shape_of(e->hidden, e->tokens, x, GPU_TILE_THREADS / x);
  return gpu_launch(op, call, &add_experts[e->dtype], &shape, &arguments);
}

/* -------------------------------------------------------------------------------------------- by kernels of our own */

/* Many rows to a tile where an expert has many tokens on average. As many tiles as it may take: each expert, and what
 * is for none of them, has at most one that is not full. */
static void lay_out(const fl_call *call, gpu_experts *e, gpu_experts_tiles *t) {
  uint32_t pairs = e->routing.pairs, buckets = e->routing.experts + 1;
  uint32_t rows = pairs / buckets >= GPU_EXPERTS_MANY / 2 ? GPU_EXPERTS_MANY : GPU_EXPERTS_FEW;
  int64_t widest = 2 * e->inner > e->hidden ? 2 * e->inner : e->hidden;
  t->rows = rows;
  t->n = pairs / rows + (buckets < pairs ? buckets : pairs);
  t->pair = gpu_experts_piece(call, e, (size_t)t->n * rows * sizeof *t->pair);
  t->expert = gpu_experts_piece(call, e, t->n * sizeof *t->expert);
  e->rows = pairs;
  e->gate_up = e->down = gpu_experts_piece(call, e, (size_t)(pairs * widest * e->size));
  e->between = gpu_experts_piece(call, e, (size_t)(pairs * e->inner * e->size));
}

/* false: `reason` says what the kernels cannot do. */
static bool read_tiles(const gpu_op *op, const fl_call *call, gpu_experts *e, gpu_experts_tiles *tiles,
                       const char **reason) {
  bool taken = gpu_experts_read(op, call, e, reason);
  if (taken)
    lay_out(call, e, tiles);
  return taken;
}

static bool supports(void *self, const fl_call *call, const char **reason) {
  const char *why = NULL;
  gpu_experts e;
  gpu_experts_tiles tiles;
  bool taken = read_tiles(self, call, &e, &tiles, &why);
  return gpu_answer(taken, why, reason);
}

static size_t workspace_size(void *self, const fl_call *call) {
  const char *reason;
  gpu_experts e;
  gpu_experts_tiles tiles;
  return read_tiles(self, call, &e, &tiles, &reason) && e.routing.pairs ? e.workspace : 0;
}

static fl_status run_sort(const gpu_op *op, fl_call *call, const gpu_experts *e, const gpu_experts_tiles *tiles) {
  gpu_experts_sort_arguments arguments = {.routing = e->routing, .tiles = *tiles};
  gpu_shape shape = {.grid = {1, 1, 1},
                     .block = {GPU_TILE_THREADS, 1, 1},
                     .shared = (unsigned)(2 * (e->routing.experts + 1) * sizeof(uint32_t))};
  return gpu_launch(op, call, &sort, &shape, &arguments);
}

/* `weight` [experts, n, k], on rows that `share` pairs have in common. */
static fl_status run_product(const gpu_op *op, fl_call *call, const gpu_experts *e, const gpu_experts_tiles *tiles,
                             const DLTensor *weight, const DLTensor *bias, gpu_experts_product_arguments *a) {
  a->tiles = *tiles;
  a->topk = e->routing.topk;
  a->weight = fl_data(weight);
  a->weight_expert = fl_stride(weight, 0);
  a->weight_stride = fl_stride(weight, 1);
  a->n = weight->shape[1];
  a->k = weight->shape[2];
  if (bias) {
    a->bias = fl_data(bias);
    a->bias_expert = fl_stride(bias, 0);
    a->bias_dtype = (int32_t)gpu_dtype_of(bias);
  }
  a->vectorised = gpu_is_aligned(a->x, (a->k | a->x_stride) * e->size) &&
                  gpu_is_aligned(a->weight, (a->weight_expert | a->weight_stride) * e->size);
  gpu_kernel *kernels = tiles->rows == GPU_EXPERTS_MANY ? multiply_many : multiply_few;
  gpu_shape shape = {.block = {GPU_TILE_THREADS, 1, 1}};
  fl_status status = FL_OK;
  shape.grid[0] = (unsigned)divide_up(a->n, GPU_EXPERTS_COLUMNS);
  shape.grid[2] = 1;
  for (uint32_t first = 0; first < tiles->n && !status && a->n; first += GPU_MOST_BLOCKS) {
    a->tiles.pair = tiles->pair + (size_t)first * tiles->rows;
    a->tiles.expert = tiles->expert + first;
    shape.grid[1] = gpu_limit_blocks(tiles->n - first);
    status = gpu_launch(op, call, &kernels[e->dtype], &shape, a);
  }
  return status;
}

static fl_status run(void *self, fl_call *call) {
  const gpu_op *op = self;
  const char *reason = NULL;
  gpu_experts e;
  gpu_experts_tiles tiles;
  if (!read_tiles(op, call, &e, &tiles, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (!e.tokens || !e.hidden) /* no experts of a token is a sum of nothing */
    return FL_OK;
  fl_status status = gpu_experts_check_workspace(op, call, &e);
  if (status)
    return status;
  gpu_experts_product_arguments up = {.x = fl_data(e.x),
                                      .out = e.gate_up,
                                      .x_stride = fl_stride(e.x, 0),
                                      .out_stride = 2 * e.inner,
                                      .share = e.routing.topk};
  gpu_experts_product_arguments down = {
      .x = e.between, .out = e.down, .x_stride = e.inner, .out_stride = e.hidden, .share = 1};
  if (e.weight_on_input)
    up.scale = gpu_experts_weights_of(&e);
  status = gpu_experts_route(op, call, &e);
  if (!status && e.topk)
    status = run_sort(op, call, &e, &tiles);
  if (!status)
    status = run_product(op, call, &e, &tiles, e.w13, e.w13_bias, &up);
  if (!status && e.topk)
    status = gpu_experts_activate(call, &e);
  if (!status)
    status = run_product(op, call, &e, &tiles, e.w2, e.w2_bias, &down);
  return status ? status : gpu_experts_add(op, call, &e, NULL);
}

static gpu_module *const others[] = {&gpu_module_moe_routing, &gpu_module_activation, NULL};

#define OP(op, ...)                                                                                                    \
  {.name = op,                                                                                                         \
   .run = run,                                                                                                         \
   .supports = supports,                                                                                               \
   .workspace_size = workspace_size,                                                                                   \
   .module = &gpu_module_moe_experts,                                                                                  \
   .others = others,                                                                                                   \
   .variant = &(const gpu_experts_places){__VA_ARGS__}},

static const gpu_op ops[] = {GPU_EXPERTS_OPS(OP)};
OP_LIST(ops);
