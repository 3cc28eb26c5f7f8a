/*
 * Mixture of experts: routing, and the experts as five steps: tokens sorted by expert, a matrix product for each
 * expert's tokens, the activation, the second product, and the weighted sum of each token's results.
 */
#include "plugins/ascend/ops.h"

#include <string.h>

enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16, HALVES = FL_FLOAT16 | FL_BFLOAT16 };
enum { MOST_CHOICES = 1024, LONGEST_ROW = 65535, MOST_EXPERTS = 1024 };

static ascend_view matrix_of(const DLTensor *tensor) {
  ascend_view view = ascend_view_of(tensor);
  int64_t last = view.shape[view.n_dims - 1], shape[] = {ascend_view_count(&view) / last, last};
  return ascend_view_reshaped(&view, 2, shape);
}

/* ---------------------------------------------------------------------------------------------------------- routing */

/* The weights have the element type of what they are computed from. */
static void choose(ascend_call *c, ascend_view logits, int64_t k, bool renormalize, ascend_view weights,
                   ascend_view ids) {
  ACLNN(c, MoeGatingTopKSoftmaxV2, ascend_tensor(c, logits), NULL, k, renormalize, false, ascend_tensor(c, weights),
        ascend_tensor(c, ids), NULL);
}

enum { GATING, TOPK, RENORMALIZE, WEIGHTS, IDS };

static bool supports_routing(const fl_call *call, uint32_t weights, const char **reason) {
  if (call->values[TOPK].v.i > MOST_CHOICES)
    return ascend_refuse(reason, "CANN chooses up to 1024 experts");
  for (uint32_t i = weights; i <= weights + 1; i++)
    if (!ascend_is_compact(ascend_tensor_at(call, i)))
      return ascend_refuse(reason, "a result is not compact");
  if (!ascend_is_compact(ascend_tensor_at(call, GATING)))
    return ascend_refuse(reason, "'gating_output' is not compact");
  return true;
}

static bool supports_topk_softmax(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return supports_routing(call, WEIGHTS, reason);
}

static void run_topk_softmax(ascend_call *c) {
  const fl_value *values = c->call->values;
  ascend_view logits = matrix_of(ascend_tensor_at(c->call, GATING));
  ascend_view weights = matrix_of(ascend_tensor_at(c->call, WEIGHTS)), ids = matrix_of(ascend_tensor_at(c->call, IDS));
  ascend_view narrow =
      logits.type == ACL_FLOAT ? weights : ascend_scratch(c, logits.type, weights.n_dims, weights.shape);
  choose(c, logits, values[TOPK].v.i, values[RENORMALIZE].v.b, narrow, ids);
  if (narrow.data != weights.data || logits.type != ACL_FLOAT)
    ACLNN(c, Cast, ascend_tensor(c, narrow), ACL_FLOAT, ascend_tensor(c, weights));
}

enum { NUM_EXPERT_GROUP = 3, TOPK_GROUP, SCORING_FUNC, ROUTED_SCALING_FACTOR, BIAS, GROUPED_WEIGHTS, GROUPED_IDS };

/* Scores are rounded to the type of 'gating_output' in the op, but not in the operator: in 16 bits they would choose
 * other experts. Sigmoid scores are always made to add up to 1, those of softmax never. */
static bool supports_grouped_topk(const fl_call *call, ascend_chips chip, const char **reason) {
  const fl_value *values = call->values;
  const DLTensor *bias = ascend_tensor_at(call, BIAS), *gating = ascend_tensor_at(call, GATING);
  int64_t experts = gating->shape[gating->ndim - 1], groups = values[NUM_EXPERT_GROUP].v.i;
  int64_t of_group = experts / groups;
  bool sigmoid = !strcmp(values[SCORING_FUNC].v.s, "sigmoid");
  (void)chip;
  if (values[RENORMALIZE].v.b != sigmoid)
    return ascend_refuse(reason, sigmoid ? "aclnnMoeGatingTopK always renormalises scores of sigmoid"
                                         : "aclnnMoeGatingTopK never renormalises scores of softmax");
  if (bias && !ascend_same_type(bias, gating))
    return ascend_refuse(reason, "'e_score_correction_bias' is not of the element type of 'gating_output'");
  if (bias && !ascend_is_compact(bias))
    return ascend_refuse(reason, "'e_score_correction_bias' is not compact");
  if (experts > 2048 || of_group <= 2 || groups * ((of_group + 31) / 32 * 32) > 2048)
    return ascend_refuse(reason, "aclnnMoeGatingTopK takes up to 2048 experts in groups of more than 2");
  return supports_routing(call, GROUPED_WEIGHTS, reason);
}

static void run_grouped_topk(ascend_call *c) {
  enum { BY_BEST, BY_TWO_BEST };
  enum { SOFTMAX, SIGMOID };
  const fl_value *values = c->call->values;
  const DLTensor *bias = ascend_tensor_at(c->call, BIAS);
  ascend_view logits = matrix_of(ascend_tensor_at(c->call, GATING));
  ascend_view weights = matrix_of(ascend_tensor_at(c->call, GROUPED_WEIGHTS));
  ascend_view ids = matrix_of(ascend_tensor_at(c->call, GROUPED_IDS));
  ascend_view scores = ascend_scratch(c, ACL_FLOAT, 2, logits.shape);
  bool sigmoid = !strcmp(values[SCORING_FUNC].v.s, "sigmoid");
  ACLNN(c, MoeGatingTopK, ascend_tensor(c, logits), bias ? ascend_tensor(c, ascend_view_of(bias)) : NULL,
        values[TOPK].v.i, values[TOPK_GROUP].v.i, values[NUM_EXPERT_GROUP].v.i, bias ? BY_TWO_BEST : BY_BEST, 0,
        sigmoid ? SIGMOID : SOFTMAX, false, values[ROUTED_SCALING_FACTOR].v.f, 1e-20, ascend_tensor(c, weights),
        ascend_tensor(c, ids), ascend_tensor(c, scores));
}

/* ---------------------------------------------------------------------------------------------------------- experts */

enum { X, W13, W2 };

typedef struct experts {
  ascend_view x, w13, w2, weights, ids, out;
  bool interleaved; /* swigluoai, else silu */
} experts;

/* Matrices of experts are [n, k] each; CANN multiplies by [k, n]. */
static void multiply(ascend_call *c, ascend_view x, ascend_view weight, ascend_view counts, ascend_view out) {
  enum { ONE_OUTPUT = 2, BY_ROWS = 0, COUNTS = 1 };
  ascend_view transposed = ascend_view_swapped(&weight, 1, 2);
  ACLNN(c, GroupedMatmulV4, ascend_list(c, 1, &x), ascend_list(c, 1, &transposed), NULL, NULL, NULL, NULL, NULL, NULL,
        ascend_tensor(c, counts), NULL, NULL, NULL, ONE_OUTPUT, BY_ROWS, COUNTS, 0, ascend_list(c, 1, &out), NULL,
        NULL);
}

static void activate(ascend_call *c, bool interleaved, ascend_view x, ascend_view out) {
  if (interleaved)
    ACLNN(c, ClippedSwiglu, ascend_tensor(c, x), NULL, -1, 1.702, 7.0, 1.0, true, ascend_tensor(c, out));
  else
    ACLNN(c, SwiGlu, ascend_tensor(c, x), -1, ascend_tensor(c, out));
}

static void run_experts(ascend_call *c, experts e) {
  enum { DROPLESS = 0, COUNTS = 1, NO_QUANTISATION = -1, GATHER = 0 };
  int64_t tokens = e.x.shape[0], hidden = e.x.shape[1], choices = e.ids.shape[1], n = e.w13.shape[0];
  int64_t terms = tokens * choices, inner = e.w2.shape[2], range[] = {0, n};
  ascend_view ids = e.ids.type == ACL_INT32 ? e.ids : ascend_scratch(c, ACL_INT32, 2, e.ids.shape);
  ascend_view sorted = ascend_scratch(c, e.x.type, 2, (int64_t[]){terms, hidden});
  ascend_view places = ascend_scratch(c, ACL_INT32, 1, &terms), counts = ascend_scratch(c, ACL_INT64, 1, &n);
  ascend_view scales = ascend_scratch(c, ACL_FLOAT, 1, &terms);
  ascend_view both = ascend_scratch(c, e.x.type, 2, (int64_t[]){terms, 2 * inner});
  ascend_view gated = ascend_scratch(c, e.x.type, 2, (int64_t[]){terms, inner});
  ascend_view results = ascend_scratch(c, e.x.type, 2, (int64_t[]){terms, hidden});
  if (e.ids.type != ACL_INT32)
    ACLNN(c, Cast, ascend_tensor(c, e.ids), ACL_INT32, ascend_tensor(c, ids));
  ACLNN(c, MoeInitRoutingV3, ascend_tensor(c, e.x), ascend_tensor(c, ids), NULL, NULL, terms, 0, n, DROPLESS, COUNTS,
        true, NO_QUANTISATION, ascend_ints(c, range, 2), GATHER, ascend_tensor(c, sorted), ascend_tensor(c, places),
        ascend_tensor(c, counts), ascend_tensor(c, scales));
  multiply(c, sorted, e.w13, counts, both);
  activate(c, e.interleaved, both, gated);
  multiply(c, gated, e.w2, counts, results);
  ACLNN(c, MoeTokenUnpermute, ascend_tensor(c, results), ascend_tensor(c, places), ascend_tensor(c, e.weights), false,
        NULL, ascend_tensor(c, e.out));
}

static bool is_absent(const fl_call *call, uint32_t first, uint32_t last) {
  for (uint32_t i = first; i <= last; i++)
    if (call->values[i].type != FL_NONE)
      return false;
  return true;
}

static bool supports_experts(const fl_call *call, uint32_t activation, uint32_t out, const char **reason) {
  const DLTensor *w13 = ascend_tensor_at(call, W13), *w2 = ascend_tensor_at(call, W2);
  const char *name = call->values[activation].v.s;
  if (strcmp(name, "silu") && strcmp(name, "swigluoai"))
    return ascend_refuse(reason, "experts have the activation silu or swigluoai");
  if (w13->shape[1] > LONGEST_ROW || w2->shape[1] > LONGEST_ROW || w13->shape[0] > MOST_EXPERTS)
    return ascend_refuse(reason, "CANN multiplies up to 1024 experts with rows of up to 65535 elements");
  for (uint32_t i = 0; i <= out; i++)
    if (ascend_tensor_at(call, i) && !ascend_is_compact(ascend_tensor_at(call, i)))
      return ascend_refuse(reason, "a tensor is not compact");
  return true;
}

static experts experts_of(const ascend_call *c, uint32_t activation, uint32_t out) {
  return (experts){.x = ascend_argument(c, X),
                   .w13 = ascend_argument(c, W13),
                   .w2 = ascend_argument(c, W2),
                   .out = ascend_argument(c, out),
                   .interleaved = !strcmp(c->call->values[activation].v.s, "swigluoai")};
}

/* unquantized_fused_moe and modular_fused_moe */
enum { ROUTED_WEIGHTS = 3, ROUTED_IDS, ROUTED_ACTIVATION, ON_INPUT, EXPERT_MAP, W13_BIAS, W2_BIAS, ROUTED_OUT };

static bool supports_routed(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  if (call->values[ON_INPUT].v.b)
    return ascend_refuse(reason, "CANN weights the results of experts, not their input");
  if (!is_absent(call, EXPERT_MAP, W2_BIAS))
    return ascend_refuse(reason, "no expert map and no biases");
  return supports_experts(call, ROUTED_ACTIVATION, ROUTED_OUT, reason);
}

static void run_routed(ascend_call *c) {
  experts e = experts_of(c, ROUTED_ACTIVATION, ROUTED_OUT);
  e.weights = ascend_argument(c, ROUTED_WEIGHTS);
  e.ids = ascend_argument(c, ROUTED_IDS);
  run_experts(c, e);
}

enum { TRANSFORMERS_IDS = 3, TRANSFORMERS_WEIGHTS, TRANSFORMERS_ACTIVATION, TRANSFORMERS_OUT };

static bool supports_transformers(const fl_call *call, ascend_chips chip, const char **reason) {
  (void)chip;
  return supports_experts(call, TRANSFORMERS_ACTIVATION, TRANSFORMERS_OUT, reason);
}

static void run_transformers(ascend_call *c) {
  experts e = experts_of(c, TRANSFORMERS_ACTIVATION, TRANSFORMERS_OUT);
  e.weights = ascend_argument(c, TRANSFORMERS_WEIGHTS);
  e.ids = ascend_argument(c, TRANSFORMERS_IDS);
  run_experts(c, e);
}

/* fused_moe, with the router's softmax */
enum {
  LOGITS = 3,
  TOP_K,
  FUSED_RENORMALIZE,
  USE_GROUPED_TOPK,
  FUSED_SCORING_FUNC = 9,
  FUSED_SCALING_FACTOR,
  FUSED_BIAS,
  FUSED_ACTIVATION,
  FUSED_ON_INPUT,
  FUSED_MAP,
  FUSED_W2_BIAS = 16,
  FUSED_OUT
};

static bool supports_fused(const fl_call *call, ascend_chips chip, const char **reason) {
  const fl_value *values = call->values;
  (void)chip;
  if (values[USE_GROUPED_TOPK].v.b || strcmp(values[FUSED_SCORING_FUNC].v.s, "softmax") ||
      values[FUSED_SCALING_FACTOR].v.f != 1 || values[FUSED_BIAS].type != FL_NONE)
    return ascend_refuse(reason, "CANN routes by softmax alone here");
  if (values[FUSED_ON_INPUT].v.b)
    return ascend_refuse(reason, "CANN weights the results of experts, not their input");
  if (!is_absent(call, FUSED_MAP, FUSED_W2_BIAS))
    return ascend_refuse(reason, "no expert map and no biases");
  if (values[TOP_K].v.i > MOST_CHOICES)
    return ascend_refuse(reason, "CANN chooses up to 1024 experts");
  return supports_experts(call, FUSED_ACTIVATION, FUSED_OUT, reason);
}

static void run_fused(ascend_call *c) {
  const fl_value *values = c->call->values;
  experts e = experts_of(c, FUSED_ACTIVATION, FUSED_OUT);
  ascend_view logits = ascend_argument(c, LOGITS);
  const int64_t shape[] = {logits.shape[0], values[TOP_K].v.i};
  e.weights = ascend_scratch(c, logits.type, 2, shape);
  e.ids = ascend_scratch(c, ACL_INT32, 2, shape);
  choose(c, logits, values[TOP_K].v.i, values[FUSED_RENORMALIZE].v.b, e.weights, e.ids);
  run_experts(c, e);
}

#define EXPERTS_NEED ACLNN_MoeInitRoutingV3, ACLNN_GroupedMatmulV4, ACLNN_SwiGlu, ACLNN_ClippedSwiglu
enum { CHIPS_OF_EXPERTS = ASCEND_A2 | ASCEND_A3 };

ascend_op ascend_moe[] = {
    {.name = "topk_softmax",
     .dtypes = FLOATS,
     .chips = ASCEND_TRAINING,
     .run = run_topk_softmax,
     .supports = supports_topk_softmax,
     .needs = {ACLNN_MoeGatingTopKSoftmaxV2, ACLNN_Cast}},
    {.name = "grouped_topk",
     .dtypes = FL_FLOAT32,
     .chips = ASCEND_TRAINING,
     .run = run_grouped_topk,
     .supports = supports_grouped_topk,
     .needs = {ACLNN_MoeGatingTopK}},
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
    {.name = NULL},
};
