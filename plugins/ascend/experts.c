/*
 * Experts, as five steps: tokens sorted by expert, a matrix product for each expert's tokens, the activation, the
 * second product, and the weighted sum of each token's results.
 */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

#include <string.h>

enum { HALVES = FL_FLOAT16 | FL_BFLOAT16 };
enum { MOST_CHOICES = 1024, LONGEST_ROW = 65535, MOST_EXPERTS = 1024 };

enum { X, W13, W2 };

typedef struct activation {
  const char *name;
  void (*run)(ascend_call *c, ascend_view x, ascend_view out);
} activation;

typedef struct experts {
  ascend_view x, w13, w2, weights, ids, out;
  const DLTensor *w13_bias, *w2_bias; /* NULL: none */
  bool on_input;                      /* x is weighted, not the results */
  void (*activate)(ascend_call *c, ascend_view x, ascend_view out);
} experts;

/* ------------------------------------------------------------------------------------------------------ activations */

static void silu(ascend_call *c, ascend_view x, ascend_view out) {
  ACLNN(c, SwiGlu, ascend_tensor(c, x), -1, ascend_tensor(c, out));
}

static void swigluoai(ascend_call *c, ascend_view x, ascend_view out) {
  ACLNN(c, ClippedSwiglu, ascend_tensor(c, x), NULL, -1, 1.702, 7.0, 1.0, true, ascend_tensor(c, out));
}

static void gelu(ascend_call *c, ascend_view x, ascend_view out) {
  ascend_gelu_and_mul(c, ascend_last_half(x, 0), ascend_last_half(x, 1), false, out);
}

static void gelu_tanh(ascend_call *c, ascend_view x, ascend_view out) {
  ascend_gelu_and_mul(c, ascend_last_half(x, 0), ascend_last_half(x, 1), true, out);
}

static void swiglustep(ascend_call *c, ascend_view x, ascend_view out) {
  ascend_swiglustep_and_mul(c, ascend_last_half(x, 0), ascend_last_half(x, 1), 7.0, out);
}

static const activation activations[] = {{"silu", silu},           {"swigluoai", swigluoai},   {"gelu", gelu},
                                         {"gelu_tanh", gelu_tanh}, {"swiglustep", swiglustep}, {NULL, NULL}};

/* The entry of a name, or the last. */
static const activation *find_activation(const char *name) {
  const activation *found = activations;
  while (found->name && strcmp(found->name, name))
    found++;
  return found;
}

/* ------------------------------------------------------------------------------------------------------------ steps */

/* Biases of bfloat16 are float32 in the operator. */
static ascend_view bias_of(ascend_call *c, const DLTensor *bias, aclDataType type) {
  ascend_view given = ascend_view_of(bias);
  aclDataType wanted = type == ACL_BF16 ? ACL_FLOAT : type;
  if (given.type == wanted)
    return given;
  ascend_view made = ascend_scratch_like(c, &given, wanted);
  ascend_cast(c, given, made);
  return made;
}

/* Matrices of experts are [n, k] each; CANN multiplies by [k, n]. */
static void multiply(ascend_call *c, ascend_view x, ascend_view weight, const DLTensor *bias, ascend_view counts,
                     ascend_view out) {
  enum { ONE_OUTPUT = 2, BY_ROWS = 0, COUNTS = 1 };
  ascend_view transposed = ascend_view_swapped(&weight, 1, 2), added = bias ? bias_of(c, bias, x.type) : x;
  ACLNN(c, GroupedMatmulV4, ascend_list(c, 1, &x), ascend_list(c, 1, &transposed),
        bias ? ascend_list(c, 1, &added) : NULL, NULL, NULL, NULL, NULL, NULL, ascend_tensor(c, counts), NULL, NULL,
        NULL, ONE_OUTPUT, BY_ROWS, COUNTS, 0, ascend_list(c, 1, &out), NULL, NULL);
}

/* x with its tokens' weights, rounded to x's type. There is one expert to a token. */
static ascend_view weighted(ascend_call *c, ascend_view x, ascend_view weights) {
  ascend_view made = ascend_scratch_like(c, &x, x.type), narrow = weights;
  if (weights.type != x.type) {
    narrow = ascend_scratch_like(c, &weights, x.type);
    ascend_cast(c, weights, narrow);
  }
  ACLNN(c, Mul, ascend_tensor(c, x), ascend_tensor(c, narrow), ascend_tensor(c, made));
  return made;
}

static void run_experts(ascend_call *c, experts e) {
  enum { DROPLESS = 0, COUNTS = 1, NO_QUANTISATION = -1, GATHER = 0 };
  int64_t tokens = e.x.shape[0], hidden = e.x.shape[1], choices = e.ids.shape[1], n = e.w13.shape[0];
  int64_t terms = tokens * choices, inner = e.w2.shape[2], range[] = {0, n};
  ascend_view x = e.on_input ? weighted(c, e.x, e.weights) : e.x;
  ascend_view ids = e.ids.type == ACL_INT32 ? e.ids : ascend_scratch(c, ACL_INT32, 2, e.ids.shape);
  ascend_view sorted = ascend_scratch(c, x.type, 2, (int64_t[]){terms, hidden});
  ascend_view places = ascend_scratch(c, ACL_INT32, 1, &terms), counts = ascend_scratch(c, ACL_INT64, 1, &n);
  ascend_view scales = ascend_scratch(c, ACL_FLOAT, 1, &terms);
  ascend_view both = ascend_scratch(c, x.type, 2, (int64_t[]){terms, 2 * inner});
  ascend_view gated = ascend_scratch(c, x.type, 2, (int64_t[]){terms, inner});
  ascend_view results = ascend_scratch(c, x.type, 2, (int64_t[]){terms, hidden});
  if (e.ids.type != ACL_INT32)
    ascend_cast(c, e.ids, ids);
  ACLNN(c, MoeInitRoutingV3, ascend_tensor(c, x), ascend_tensor(c, ids), NULL, NULL, terms, 0, n, DROPLESS, COUNTS,
        true, NO_QUANTISATION, ascend_ints(c, range, 2), GATHER, ascend_tensor(c, sorted), ascend_tensor(c, places),
        ascend_tensor(c, counts), ascend_tensor(c, scales));
  multiply(c, sorted, e.w13, e.w13_bias, counts, both);
  e.activate(c, both, gated);
  multiply(c, gated, e.w2, e.w2_bias, counts, results);
  ACLNN(c, MoeTokenUnpermute, ascend_tensor(c, results), ascend_tensor(c, places),
        e.on_input ? NULL : ascend_tensor(c, e.weights), false, NULL, ascend_tensor(c, e.out));
}

/* -------------------------------------------------------------------------------------------------------- arguments */

static bool supports_experts(const fl_call *call, uint32_t activation_at, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X), *w13 = ascend_tensor_at(call, W13), *w2 = ascend_tensor_at(call, W2);
  if (!ascend_same_type(x, w13) || !ascend_same_type(x, w2))
    return ascend_refuse(reason, "an expert's weights are codes");
  if (!find_activation(call->values[activation_at].v.s)->run)
    return ascend_refuse(reason, "no operator of CANN has the activation");
  if (w13->shape[1] > LONGEST_ROW || w2->shape[1] > LONGEST_ROW || w13->shape[0] > MOST_EXPERTS)
    return ascend_refuse(reason, "CANN multiplies up to 1024 experts with rows of up to 65535 elements");
  for (uint32_t i = 0; i < call->count; i++)
    if (ascend_tensor_at(call, i) && !ascend_is_compact(ascend_tensor_at(call, i)))
      return ascend_refuse(reason, "a tensor is not compact");
  return true;
}

static bool supports_map(const fl_call *call, uint32_t map, const char **reason) {
  return call->values[map].type == FL_NONE ||
         ascend_refuse(reason, "CANN leaves open what the rows of experts that a map leaves out hold");
}

static experts experts_of(const ascend_call *c, uint32_t activation_at) {
  return (experts){.x = ascend_argument(c, X),
                   .w13 = ascend_argument(c, W13),
                   .w2 = ascend_argument(c, W2),
                   .out = ascend_argument(c, c->call->count - 1),
                   .activate = find_activation(c->call->values[activation_at].v.s)->run};
}

/* Of all ops but transformers_fused_moe: they follow each other, with a map behind the first. */
static void read_options(const ascend_call *c, uint32_t on_input, experts *e) {
  e->on_input = c->call->values[on_input].v.b;
  e->w13_bias = ascend_tensor_at(c->call, on_input + 2);
  e->w2_bias = ascend_tensor_at(c->call, on_input + 3);
}

/* unquantized_fused_moe and modular_fused_moe */
enum { ROUTED_WEIGHTS = 3, ROUTED_IDS, ROUTED_ACTIVATION, ROUTED_ON_INPUT };

static bool supports_routed(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return supports_map(call, ROUTED_ON_INPUT + 1, reason) && supports_experts(call, ROUTED_ACTIVATION, reason);
}

static void run_routed(ascend_call *c) {
  experts e = experts_of(c, ROUTED_ACTIVATION);
  read_options(c, ROUTED_ON_INPUT, &e);
  e.weights = ascend_argument(c, ROUTED_WEIGHTS);
  e.ids = ascend_argument(c, ROUTED_IDS);
  run_experts(c, e);
}

enum { TRANSFORMERS_IDS = 3, TRANSFORMERS_WEIGHTS, TRANSFORMERS_ACTIVATION };

static bool supports_transformers(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return supports_experts(call, TRANSFORMERS_ACTIVATION, reason);
}

static void run_transformers(ascend_call *c) {
  experts e = experts_of(c, TRANSFORMERS_ACTIVATION);
  e.weights = ascend_argument(c, TRANSFORMERS_WEIGHTS);
  e.ids = ascend_argument(c, TRANSFORMERS_IDS);
  run_experts(c, e);
}

/* fused_moe */
enum {
  LOGITS = 3,
  TOP_K,
  FUSED_RENORMALIZE,
  USE_GROUPED_TOPK,
  FUSED_GROUPS,
  FUSED_CHOSEN_GROUPS,
  FUSED_SCORING_FUNC,
  FUSED_SCALING_FACTOR,
  FUSED_BIAS,
  FUSED_ACTIVATION,
  FUSED_ON_INPUT
};

/* Without groups all experts are in one. */
static ascend_router router_of(const fl_call *call) {
  const fl_value *values = call->values;
  bool grouped = values[USE_GROUPED_TOPK].v.b;
  return (ascend_router){.logits = ascend_tensor_at(call, LOGITS),
                         .bias = ascend_tensor_at(call, FUSED_BIAS),
                         .choices = values[TOP_K].v.i,
                         .groups = grouped ? values[FUSED_GROUPS].v.i : 1,
                         .chosen_groups = grouped ? values[FUSED_CHOSEN_GROUPS].v.i : 1,
                         .sigmoid = !strcmp(values[FUSED_SCORING_FUNC].v.s, "sigmoid"),
                         .renormalize = values[FUSED_RENORMALIZE].v.b,
                         .factor = values[FUSED_SCALING_FACTOR].v.f};
}

/* For which there is an operator that takes logits of any type. Groups round scores, also where there is one only. */
static bool is_plain_softmax(const fl_call *call, const ascend_router *router) {
  return !call->values[USE_GROUPED_TOPK].v.b && !router->sigmoid && !router->bias && router->factor == 1;
}

static bool supports_fused(const fl_call *call, ascend_chips chip, const char **reason) {
  ascend_router router = router_of(call);
  (void)chip;
  if (router.choices > MOST_CHOICES)
    return ascend_refuse(reason, "CANN chooses up to 1024 experts");
  return (is_plain_softmax(call, &router) || ascend_supports_router(&router, reason)) &&
         supports_map(call, FUSED_ON_INPUT + 1, reason) && supports_experts(call, FUSED_ACTIVATION, reason);
}

static void run_fused(ascend_call *c) {
  ascend_router router = router_of(c->call);
  experts e = experts_of(c, FUSED_ACTIVATION);
  ascend_view logits = ascend_argument(c, LOGITS);
  const int64_t shape[] = {logits.shape[0], router.choices};
  read_options(c, FUSED_ON_INPUT, &e);
  e.weights = ascend_scratch(c, logits.type, 2, shape);
  e.ids = ascend_scratch(c, ACL_INT32, 2, shape);
  if (is_plain_softmax(c->call, &router))
    ascend_choose(c, logits, router.choices, router.renormalize, e.weights, e.ids);
  else
    ascend_choose_in_groups(c, &router, e.weights, e.ids);
  run_experts(c, e);
}

/* An activation's own operators are looked up when it is used. */
#define EXPERTS_NEED ACLNN_MoeInitRoutingV3, ACLNN_GroupedMatmulV4, ACLNN_Cast, ACLNN_Mul
enum { CHIPS_OF_EXPERTS = ASCEND_A2 | ASCEND_A3 };

static ascend_op ops[] = {
    {.name = "unquantized_fused_moe",
     .dtypes = HALVES,
     .chips = CHIPS_OF_EXPERTS,
     .run = run_routed,
     .supports = supports_routed,
     .needs = {EXPERTS_NEED, ACLNN_MoeTokenUnpermute}},
    {.name = "modular_fused_moe",
     .dtypes = HALVES,
     .chips = CHIPS_OF_EXPERTS,
     .run = run_routed,
     .supports = supports_routed,
     .needs = {EXPERTS_NEED, ACLNN_MoeTokenUnpermute}},
    {.name = "transformers_fused_moe",
     .dtypes = HALVES,
     .chips = CHIPS_OF_EXPERTS,
     .run = run_transformers,
     .supports = supports_transformers,
     .needs = {EXPERTS_NEED, ACLNN_MoeTokenUnpermute}},
    {.name = "fused_moe",
     .dtypes = HALVES,
     .chips = CHIPS_OF_EXPERTS,
     .run = run_fused,
     .supports = supports_fused,
     .needs = {EXPERTS_NEED, ACLNN_MoeTokenUnpermute, ACLNN_MoeGatingTopKSoftmaxV2}},
};
OP_LIST(ops);
