/* Chooses experts by their scores: see moe_routing.h. Scratch is of the size of one token's scores. */
#include "plugins/cpu/moe_routing.h"
#include "plugins/cpu/moe_order.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/scratch.h"

#include <string.h>

/* One token's. */
typedef struct routing_scratch {
  uint64_t *keys, *group_keys; /* [experts], [groups] */
  float *scores;
} routing_scratch;

static bool allocate(const cpu_routing *routing, routing_scratch *scratch) {
  size_t experts = (size_t)routing->experts, groups = (size_t)routing->groups;
  size_t scores = (experts + CPU_SCORES - 1) / CPU_SCORES * CPU_SCORES;
  scratch->keys = cpu_scratch_take_bytes((experts + groups) * sizeof(uint64_t) + scores * sizeof(float));
  if (!scratch->keys)
    return false;
  scratch->group_keys = scratch->keys + experts;
  scratch->scores = (float *)(scratch->group_keys + groups);
  return true;
}

/* The best of a group, or with a bias the sum of its two best. */
static float score_group(const cpu_routing *routing, const cpu_router *router, const routing_scratch *scratch,
                         int64_t first, int64_t n) {
  const uint64_t *keys = scratch->keys + first;
  uint64_t best = router->largest_below(keys, n, CPU_ABOVE_ALL);
  int64_t expert = cpu_expert_of(best);
  float sum = cpu_choice(routing, scratch->scores[expert], expert);
  if (!routing->bias)
    return sum;
  int64_t second = cpu_expert_of(router->largest_below(keys, n, best));
  return round_to(cpu_choice_type(routing), sum + cpu_choice(routing, scratch->scores[second], second));
}

/* Closes the experts of all groups but the best. */
static void choose_groups(const cpu_routing *routing, const cpu_router *router, const routing_scratch *scratch) {
  int64_t size = routing->experts / routing->groups;
  uint64_t least = CPU_ABOVE_ALL;
  for (int64_t group = 0; group < routing->groups; group++)
    scratch->group_keys[group] = cpu_expert_key(score_group(routing, router, scratch, group * size, size), group);
  for (int64_t i = 0; i < routing->topk_group; i++)
    least = router->largest_below(scratch->group_keys, routing->groups, least);
  for (int64_t group = 0; group < routing->groups; group++)
    for (int64_t i = 0; i < size && scratch->group_keys[group] < least; i++)
      scratch->keys[group * size + i] = CPU_CLOSED;
}

static void weigh(const cpu_routing *routing, float *weights) {
  float sum = 0;
  for (int64_t i = 0; i < routing->topk; i++)
    sum += weights[i];
  sum = round_to(routing->rounding, sum);
  if (routing->guarded && !(sum > 0))
    sum = 1;
  for (int64_t i = 0; i < routing->topk; i++) {
    if (routing->renormalize)
      weights[i] = round_to(routing->rounding, weights[i] / sum);
    if (routing->scaling != 1)
      weights[i] = round_to(routing->rounding, weights[i] * routing->scaling);
  }
}

static void route_token(const cpu_routing *routing, const cpu_router *router, const routing_scratch *scratch,
                        const void *logits, float *weights, int32_t *ids) {
  router->score(routing, logits, scratch->scores);
  router->order(routing, scratch->scores, scratch->keys);
  if (routing->groups > 1)
    choose_groups(routing, router, scratch);
  uint64_t key = CPU_ABOVE_ALL;
  for (int64_t i = 0; i < routing->topk; i++) {
    key = router->largest_below(scratch->keys, routing->experts, key);
    ids[i] = (int32_t)cpu_expert_of(key);
    weights[i] = scratch->scores[ids[i]];
  }
  weigh(routing, weights);
}

typedef struct routing_job {
  const cpu_routing *routing;
  const cpu_router *router;
  cpu_rows rows;
} routing_job;

static fl_status route_tokens(void *user, int64_t first, int64_t end) {
  const routing_job *job = user;
  cpu_rows rows;
  routing_scratch scratch;
  if (!allocate(job->routing, &scratch))
    return FL_ENOMEM;
  cpu_rows_copy(&rows, &job->rows);
  cpu_rows_skip(&rows, first);
  for (int64_t i = first; i < end; i++, cpu_rows_next(&rows))
    route_token(job->routing, job->router, &scratch, rows.at[0], rows.at[1], rows.at[2]);
  cpu_scratch_give(scratch.keys);
  return FL_OK;
}

fl_status cpu_route(fl_call *call, const cpu_routing *routing, const cpu_router *router, DLTensor *logits,
                    DLTensor *weights, DLTensor *ids) {
  DLTensor *const tensors[] = {logits, weights, ids};
  routing_job job = {routing, router, cpu_rows_begin(3, tensors)};
  const int64_t work = 2700 + routing->experts * (11 + 2 * routing->topk); /* each choice looks at each key; measured */
  fl_status status = cpu_parallel_for(job.rows.left, cpu_grain(work), route_tokens, &job);
  return status == FL_ENOMEM
             ? fl_fail(call, status, "no memory for the scores of %lld experts", (long long)routing->experts)
             : status;
}

/* grouped_topk(gating_output, topk, renormalize, num_expert_group, topk_group, scoring_func, routed_scaling_factor,
 * e_score_correction_bias) -> (topk_weights, topk_ids) */
fl_status cpu_grouped_topk(void *self, fl_call *call) {
  enum { GATING_OUTPUT, TOPK, RENORMALIZE, GROUPS, TOPK_GROUP, SCORING_FUNC, SCALING, BIAS, WEIGHTS, IDS };
  const fl_value *values = call->values;
  DLTensor *logits = cpu_tensor(call, GATING_OUTPUT);
  cpu_routing routing = {.experts = logits->shape[logits->ndim - 1],
                         .topk = values[TOPK].v.i,
                         .groups = values[GROUPS].v.i,
                         .topk_group = values[TOPK_GROUP].v.i,
                         .sigmoid = !strcmp(values[SCORING_FUNC].v.s, "sigmoid"),
                         .renormalize = values[RENORMALIZE].v.b,
                         .dtype = cpu_dtype_of(logits),
                         .rounding = cpu_dtype_of(logits),
                         .bias = cpu_tensor(call, BIAS),
                         .scaling = (float)values[SCALING].v.f};
  return cpu_route(call, &routing, self, logits, cpu_tensor(call, WEIGHTS), cpu_tensor(call, IDS));
}

/* topk_softmax(gating_output, topk, renormalize) -> (topk_weights, topk_ids) */
fl_status cpu_topk_softmax(void *self, fl_call *call) {
  enum { GATING_OUTPUT, TOPK, RENORMALIZE, WEIGHTS, IDS };
  DLTensor *logits = cpu_tensor(call, GATING_OUTPUT);
  cpu_routing routing = {.experts = logits->shape[logits->ndim - 1],
                         .topk = call->values[TOPK].v.i,
                         .groups = 1,
                         .topk_group = 1,
                         .renormalize = call->values[RENORMALIZE].v.b,
                         .guarded = true,
                         .dtype = cpu_dtype_of(logits),
                         .rounding = CPU_FLOAT32,
                         .scaling = 1};
  return cpu_route(call, &routing, self, logits, cpu_tensor(call, WEIGHTS), cpu_tensor(call, IDS));
}
