/* What follows attention: a gated activation between two products, or a mixture of such experts: see llm.h. */
#include "llm.h"

/* ------------------------------------------------------------------------------------------------------- dense */

typedef struct dense {
  projection gate, up, down;
} dense;

static DLTensor *run_dense(model *m, const void *self, const batch *b, DLTensor *x) {
  const dense *d = self;
  int64_t n = b->n_tokens, size = d->gate.n;
  const int64_t strides[] = {2 * size, 1};
  DLTensor *both = tensor(&m->step, m->dtype, SHAPE(n, 2 * size)), *out = tensor(&m->step, m->dtype, SHAPE(n, size));
  linear(m, x, &d->gate, view(&m->step, both, 0, strides, SHAPE(n, size)));
  linear(m, x, &d->up, view(&m->step, both, size, strides, SHAPE(n, size)));
  ok(fl_silu_and_mul(&m->ops, NULL, both, out));
  return linear(m, out, &d->down, NULL);
}

static dense *find_dense(model *m, const char *prefix, const char *name) {
  dense *d = arena_take(&m->kept, sizeof *d);
  char whole[128];
  snprintf(whole, sizeof whole, "%s%s.", prefix, name);
  d->gate = find_projection(m, whole, "gate_proj");
  d->up = find_projection(m, whole, "up_proj");
  d->down = find_projection(m, whole, "down_proj");
  return d;
}

/* ----------------------------------------------------------------------------------------------------- experts */

typedef struct experts {
  projection router, gate_up, down; /* weights [experts, 2 * size, hidden] and [experts, hidden, size] */
  DLTensor *correction;             /* NULL: none */
  dense *shared;                    /* one that all tokens take; NULL: none */
  projection shared_gate;           /* weight NULL: none */
  const char *activation, *scoring;
  int64_t top_k, groups, top_groups;
  bool renormalize, grouped;
  double factor;
} experts;

static DLTensor *run_experts(model *m, const void *self, const batch *b, DLTensor *x) {
  const experts *e = self;
  DLTensor *out = tensor(&m->step, m->dtype, SHAPE(b->n_tokens, m->hidden));
  ok(fl_fused_moe(&m->ops, NULL, x, e->gate_up.weight, e->down.weight, linear(m, x, &e->router, NULL), e->top_k,
                  e->renormalize, e->grouped, e->groups, e->top_groups, e->scoring, e->factor, e->correction,
                  e->activation, false, NULL, e->gate_up.bias, e->down.bias, e->gate_up.scales, e->down.scales,
                  m->scale_block, 2, out));
  if (!e->shared)
    return out;
  DLTensor *shared = run_dense(m, e->shared, b, x);
  if (e->shared_gate.weight)
    ok(fl_sigmoid_mul(&m->ops, NULL, shared, linear(m, x, &e->shared_gate, NULL), shared));
  ok(fl_add(&m->ops, NULL, out, shared, out));
  return out;
}

/* How families name their weights, and what they do where config.json does not say it. */
static const struct mixture {
  const char *router; /* which tells them apart */
  const char *experts, *names[3], *activation;
  int parts; /* matrices that an expert's gate and up projection are */
  bool renormalize;
} mixtures[] = {
    /* gpt-oss, Mixtral; Qwen2-MoE, Qwen3-MoE, Qwen3-Next, DeepSeek */
    {"mlp.router", "mlp.experts.", {"gate_up_proj", NULL, "down_proj"}, "swigluoai", 1, true},
    {"block_sparse_moe.gate", "block_sparse_moe.experts.", {"w1", "w3", "w2"}, "silu", 2, true},
    {"mlp.gate", "mlp.experts.", {"gate_proj", "up_proj", "down_proj"}, "silu", 2, false},
};

/* Routers and gates, which are small and decide much, are not rounded. */
static projection find_router(model *m, const char *prefix, const char *name) {
  DLTensor *found = optional_weight(m, prefix, name, ".weight");
  return (projection){found, NULL, optional_weight(m, prefix, name, ".bias"), found ? found->shape[0] : 0};
}

static experts *find_mixture(model *m, const char *prefix, const struct mixture *kind, projection router) {
  static const char *const shared[] = {"mlp.shared_expert", "mlp.shared_experts"};
  char whole[128];
  experts *e = arena_take(&m->kept, sizeof *e);
  snprintf(whole, sizeof whole, "%s%s", prefix, kind->experts);
  *e = (experts){.router = router,
                 .gate_up = find_experts(m, whole, kind->parts, kind->names, router.n),
                 .down = find_experts(m, whole, 1, kind->names + 2, router.n),
                 .correction = optional_weight(m, prefix, "mlp.gate.e_score_correction_bias", ""),
                 .shared_gate = find_router(m, prefix, "mlp.shared_expert_gate"),
                 .activation = kind->activation,
                 .top_k = config_int(m->config, "num_experts_per_tok", REQUIRED),
                 .groups = config_int(m->config, "n_group", 1),
                 .top_groups = config_int(m->config, "topk_group", 1),
                 .renormalize = config_number(m->config, "norm_topk_prob", kind->renormalize),
                 .grouped = json_object_get(m->config, "n_group") != NULL,
                 .factor = config_number(m->config, "routed_scaling_factor", 1)};
  const char *scoring = json_string_value(json_object_get(m->config, "scoring_func"));
  e->scoring = scoring ? scoring : e->correction ? "sigmoid" : "softmax";
  for (int i = 0; i < 2; i++)
    if (stored_weight(m, prefix, shared[i], ".up_proj.weight"))
      e->shared = find_dense(m, prefix, shared[i]);
  return e;
}

block feed_forward_block(model *m, const char *prefix) {
  for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) {
    projection router = find_router(m, prefix, mixtures[i].router);
    if (router.weight)
      return (block){.run = run_experts, .self = find_mixture(m, prefix, &mixtures[i], router)};
  }
  return (block){.run = run_dense, .self = find_dense(m, prefix, "mlp")};
}
