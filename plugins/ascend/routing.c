/* Which experts a token goes to, with what weights, and the sum of what they gave. */
#include "plugins/ascend/arithmetic.h"
#include "plugins/ascend/ops.h"

#include <string.h>

enum { FLOATS = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16 };
enum { MOST_CHOICES = 1024 };

static ascend_view matrix_of(const DLTensor *tensor) {
  ascend_view view = ascend_view_of(tensor);
  int64_t last = view.shape[view.n_dims - 1], shape[] = {ascend_view_count(&view) / last, last};
  return ascend_view_reshaped(&view, 2, shape);
}

void ascend_choose(ascend_call *c, ascend_view logits, int64_t k, bool renormalize, ascend_view weights,
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
  ascend_choose(c, logits, values[TOPK].v.i, values[RENORMALIZE].v.b, narrow, ids);
  if (narrow.data != weights.data || logits.type != ACL_FLOAT)
    ACLNN(c, Cast, ascend_tensor(c, narrow), ACL_FLOAT, ascend_tensor(c, weights));
}

enum { NUM_EXPERT_GROUP = 3, TOPK_GROUP, SCORING_FUNC, ROUTED_SCALING_FACTOR, BIAS, GROUPED_WEIGHTS, GROUPED_IDS };

static ascend_router router_of(const fl_call *call) {
  const fl_value *values = call->values;
  return (ascend_router){.logits = ascend_tensor_at(call, GATING),
                         .bias = ascend_tensor_at(call, BIAS),
                         .choices = values[TOPK].v.i,
                         .groups = values[NUM_EXPERT_GROUP].v.i,
                         .chosen_groups = values[TOPK_GROUP].v.i,
                         .sigmoid = !strcmp(values[SCORING_FUNC].v.s, "sigmoid"),
                         .renormalize = values[RENORMALIZE].v.b,
                         .factor = values[ROUTED_SCALING_FACTOR].v.f};
}

/* Scores are rounded to the type of the logits in vLLM, but not in the operator: in 16 bits they would choose other
 * experts. */
bool ascend_supports_router(const ascend_router *router, const char **reason) {
  int64_t experts = router->logits->shape[router->logits->ndim - 1], of_group = experts / router->groups;
  if (ascend_type_of(router->logits->dtype) != ACL_FLOAT)
    return ascend_refuse(reason, "aclnnMoeGatingTopK does not round scores to 16 bits, so that it would choose others");
  if (router->sigmoid && !router->renormalize)
    return ascend_refuse(reason, "aclnnMoeGatingTopK always renormalises scores of sigmoid");
  if (router->bias && !ascend_same_type(router->bias, router->logits))
    return ascend_refuse(reason, "'e_score_correction_bias' is not of the element type of the logits");
  if (router->bias && !ascend_is_compact(router->bias))
    return ascend_refuse(reason, "'e_score_correction_bias' is not compact");
  if (experts > 2048 || of_group <= 2 || router->groups * ((of_group + 31) / 32 * 32) > 2048)
    return ascend_refuse(reason, "aclnnMoeGatingTopK takes up to 2048 experts in groups of more than 2");
  return true;
}

static bool supports_grouped_topk(const fl_call *call, ascend_chips chip, const char **reason) {
  ascend_router router = router_of(call);
  (void)chip;
  return ascend_supports_router(&router, reason) && supports_routing(call, GROUPED_WEIGHTS, reason);
}

/* So that a token's weights add up to the factor. */
static void renormalise(ascend_call *c, ascend_view weights, double factor) {
  static const int64_t last[] = {1};
  const int64_t shape[] = {weights.shape[0], 1};
  ascend_view sum = ascend_scratch(c, ACL_FLOAT, 2, shape);
  ACLNN(c, ReduceSum, ascend_tensor(c, weights), ascend_ints(c, last, 1), true, ACL_FLOAT, ascend_tensor(c, sum));
  ascend_div(c, weights, sum, weights);
  if (factor != 1)
    ascend_muls(c, weights, factor, weights);
}

/* Sigmoid scores are always made to add up to 1, those of softmax never: that takes two steps more. */
void ascend_choose_in_groups(ascend_call *c, const ascend_router *router, ascend_view weights, ascend_view ids) {
  enum { BY_BEST, BY_TWO_BEST };
  enum { SOFTMAX, SIGMOID };
  ascend_view logits = matrix_of(router->logits), scores = ascend_scratch(c, ACL_FLOAT, 2, logits.shape);
  bool renormalize = !router->sigmoid && router->renormalize;
  ACLNN(c, MoeGatingTopK, ascend_tensor(c, logits),
        router->bias ? ascend_tensor(c, ascend_view_of(router->bias)) : NULL, router->choices, router->chosen_groups,
        router->groups, router->bias ? BY_TWO_BEST : BY_BEST, 0, router->sigmoid ? SIGMOID : SOFTMAX, false,
        renormalize ? 1 : router->factor, 1e-20, ascend_tensor(c, weights), ascend_tensor(c, ids),
        ascend_tensor(c, scores));
  if (renormalize)
    renormalise(c, weights, router->factor);
}

static void run_grouped_topk(ascend_call *c) {
  ascend_router router = router_of(c->call);
  ascend_choose_in_groups(c, &router, matrix_of(ascend_tensor_at(c->call, GROUPED_WEIGHTS)),
                          matrix_of(ascend_tensor_at(c->call, GROUPED_IDS)));
}

/* -------------------------------------------------------------------------------------------------------------- sum */

/* In float32, and rounded once. */
static void run_moe_sum(ascend_call *c) {
  enum { X, OUT };
  ascend_view x = ascend_argument(c, X), out = ascend_argument(c, OUT), sum = out;
  const int64_t choices[] = {x.n_dims - 2};
  if (out.type != ACL_FLOAT)
    sum = ascend_scratch_like(c, &out, ACL_FLOAT);
  ACLNN(c, ReduceSum, ascend_tensor(c, x), ascend_ints(c, choices, 1), false, ACL_FLOAT, ascend_tensor(c, sum));
  if (out.type != ACL_FLOAT)
    ascend_cast(c, sum, out);
}

static ascend_op ops[] = {
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
     .needs = {ACLNN_MoeGatingTopK, ACLNN_ReduceSum, ACLNN_InplaceDiv, ACLNN_InplaceMuls}},
    {.name = "moe_sum",
     .dtypes = FLOATS,
     .chips = ASCEND_ALL,
     .run = run_moe_sum,
     .needs = {ACLNN_ReduceSum, ACLNN_Cast}},
};
OP_LIST(ops);
