/* Chooses experts by their scores: see moe_routing.h. Scratch is of the size of one token's scores. */
#include "plugins/cpu/moe_routing.h"
#include "plugins/cpu/parallel.h"
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/rows.h"
#include "plugins/cpu/scratch.h"

#include <math.h>
#include <string.h>

/* One token's, all [experts] but the last two, which are [groups]. */
typedef struct routing_scratch {
  float *scores, *choice; /* choice: what is compared */
  bool *open;             /* may still be chosen */
  float *group_score;
  bool *group_open;
} routing_scratch;

static bool allocate(const cpu_routing *routing, routing_scratch *scratch) {
  size_t experts = (size_t)routing->experts, groups = (size_t)routing->groups;
  scratch->scores = cpu_scratch_take_bytes((2 * experts + groups) * sizeof(float) + (experts + groups) * sizeof(bool));
  if (!scratch->scores)
    return false;
  scratch->choice = scratch->scores + experts;
  scratch->group_score = scratch->choice + experts;
  scratch->open = (bool *)(scratch->group_score + groups);
  scratch->group_open = scratch->open + experts;
  return true;
}

/* As torch.topk orders: NaN is largest. */
static bool better(float a, float b) {
  return a > b || (isnan(a) && !isnan(b));
}

/* Takes the best of those that are open out of `n`, of equal ones the lowest; -1: none is open. */
static int64_t take_best(const float *values, bool *open, int64_t n) {
  int64_t best = -1;
  for (int64_t i = 0; i < n; i++)
    if (open[i] && (best < 0 || better(values[i], values[best])))
      best = i;
  if (best >= 0)
    open[best] = false;
  return best;
}

/* The type of score + bias. */
static cpu_dtype choice_type(const cpu_routing *routing) {
  return routing->bias && cpu_dtype_of(routing->bias) != routing->rounding ? CPU_FLOAT32 : routing->rounding;
}

/* The best of a group, or with a bias the sum of its two best. */
static float score_group(const cpu_routing *routing, const float *choice, bool *open, int64_t n) {
  float sum = choice[take_best(choice, open, n)];
  if (routing->bias)
    sum = round_to(choice_type(routing), sum + choice[take_best(choice, open, n)]);
  return sum;
}

/* Opens the experts of the best groups. */
static void choose_groups(const cpu_routing *routing, routing_scratch *scratch) {
  int64_t size = routing->experts / routing->groups;
  for (int64_t i = 0; i < routing->experts; i++)
    scratch->open[i] = true;
  if (routing->groups == 1)
    return;
  for (int64_t group = 0; group < routing->groups; group++) {
    int64_t first = group * size;
    scratch->group_score[group] = score_group(routing, scratch->choice + first, scratch->open + first, size);
    scratch->group_open[group] = true;
  }
  for (int64_t i = 0; i < routing->experts; i++)
    scratch->open[i] = false;
  for (int64_t i = 0; i < routing->topk_group; i++) {
    int64_t first = take_best(scratch->group_score, scratch->group_open, routing->groups) * size;
    for (int64_t j = first; j < first + size; j++)
      scratch->open[j] = true;
  }
}

static void compare_with_bias(const cpu_routing *routing, routing_scratch *scratch) {
  cpu_dtype type = choice_type(routing);
  for (int64_t i = 0; i < routing->experts; i++) {
    float score = scratch->scores[i];
    if (routing->bias)
      score = round_to(type, score + load(cpu_dtype_of(routing->bias), fl_data(routing->bias), i));
    scratch->choice[i] = score;
  }
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

static void route_token(const cpu_routing *routing, cpu_score_fn score, routing_scratch *scratch, const void *logits,
                        float *weights, int32_t *ids) {
  score(routing, logits, scratch->scores);
  for (int64_t i = 0; i < routing->experts; i++) {
    float value = scratch->scores[i];
    scratch->scores[i] = routing->guarded && !isfinite(value) ? 0 : round_to(routing->rounding, value);
  }
  compare_with_bias(routing, scratch);
  choose_groups(routing, scratch);
  for (int64_t i = 0; i < routing->topk; i++) {
    ids[i] = (int32_t)take_best(scratch->choice, scratch->open, routing->experts);
    weights[i] = scratch->scores[ids[i]];
  }
  weigh(routing, weights);
}

typedef struct routing_job {
  const cpu_routing *routing;
  cpu_score_fn score;
  cpu_rows rows;
} routing_job;

static fl_status route_tokens(void *user, int64_t first, int64_t end) {
  const routing_job *job = user;
  cpu_rows rows = job->rows;
  routing_scratch scratch;
  if (!allocate(job->routing, &scratch))
    return FL_ENOMEM;
  cpu_rows_skip(&rows, first);
  for (int64_t i = first; i < end; i++, cpu_rows_next(&rows))
    route_token(job->routing, job->score, &scratch, rows.at[0], rows.at[1], rows.at[2]);
  cpu_scratch_give(scratch.scores);
  return FL_OK;
}

fl_status cpu_route(fl_call *call, const cpu_routing *routing, cpu_score_fn score, DLTensor *logits, DLTensor *weights,
                    DLTensor *ids) {
  DLTensor *const tensors[] = {logits, weights, ids};
  routing_job job = {routing, score, cpu_rows_begin(3, tensors)};
  int64_t work = routing->experts * (routing->topk + 8); /* looks at each expert for each choice */
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
  return cpu_route(call, &routing, *(cpu_score_fn *)self, logits, cpu_tensor(call, WEIGHTS), cpu_tensor(call, IDS));
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
  return cpu_route(call, &routing, *(cpu_score_fn *)self, logits, cpu_tensor(call, WEIGHTS), cpu_tensor(call, IDS));
}
