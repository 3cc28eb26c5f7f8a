/* What follows a mixer: a gated activation between two products, a mixture of such experts, or both: see llm.h. */
#include "llm.h"

typedef struct feed_forward {
  projection router, gate_up, down; /* of experts: [experts, 2 * size, hidden], [experts, hidden, size]; or none */
  DLTensor *correction, *map;       /* NULL: none; where this rank has each expert, -1: elsewhere, NULL: it has all */
  const char *activation, *scoring;
  int64_t top_k, groups, top_groups;
  bool renormalize, grouped;
  double factor;
  projection gate, up, out, out_gate; /* that all tokens take, and what is multiplied with its sigmoid; or none */
} feed_forward;

static DLTensor *run_experts(model *m, const feed_forward *f, DLTensor *x) {
  DLTensor *out = MADE(x->shape[0], m->hidden);
  ok(fl_fused_moe(OPS, x, f->gate_up.weight, f->down.weight, linear(m, x, &f->router, NULL), f->top_k, f->renormalize,
                  f->grouped, f->groups, f->top_groups, f->scoring, f->factor, f->correction, f->activation, false,
                  f->map, f->gate_up.bias, f->down.bias, f->gate_up.scales, f->down.scales, m->scale_block, 2, out));
  return out;
}

static DLTensor *run_dense(model *m, const feed_forward *f, DLTensor *x) {
  int64_t n = x->shape[0], size = f->gate.n;
  DLTensor *both = MADE(n, 2 * size), *in = MADE(n, size);
  linear(m, x, &f->gate, view(&m->step, both, 0, SIZES(2 * size, 1), SHAPE(n, size)));
  linear(m, x, &f->up, view(&m->step, both, size, SIZES(2 * size, 1), SHAPE(n, size)));
  ok(fl_silu_and_mul(OPS, both, in));
  DLTensor *out = linear(m, in, &f->out, NULL);
  if (f->out_gate.weight)
    ok(fl_sigmoid_mul(OPS, out, linear(m, x, &f->out_gate, NULL), out));
  return out;
}

static DLTensor *run(model *m, const void *self, const batch *b, DLTensor *x) {
  const feed_forward *f = self;
  DLTensor *mixed = f->router.weight ? run_experts(m, f, x) : NULL, *dense = f->gate.weight ? run_dense(m, f, x) : NULL;
  (void)b; /* each token by itself */
  if (mixed && dense)
    ok(fl_add(OPS, mixed, dense, mixed));
  return mixed ? mixed : dense;
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
    {0},
};

/* Routers and gates, which are small and decide much, are not rounded. */
static projection find_router(model *m, const char *prefix, const char *name) {
  DLTensor *found = weight(m, prefix, name, ".weight", false);
  return (projection){found, NULL, weight(m, prefix, name, ".bias", false), found ? found->shape[0] : 0, false};
}

block feed_forward_block(model *m, const char *prefix) {
  static const char *const dense[] = {"mlp.", "mlp.shared_expert.", "mlp.shared_experts."}; /* the first: no experts */
  feed_forward *f = arena_take(&m->kept, sizeof *f);
  const char *scoring = json_string_value(json_object_get(m->config, "scoring_func"));
  char name[128];
  *f = (feed_forward){.correction = weight(m, prefix, "mlp.gate.e_score_correction_bias", "", false),
                      .out_gate = find_router(m, prefix, "mlp.shared_expert_gate"),
                      .groups = config_number(m->config, "n_group", 1),
                      .top_groups = config_number(m->config, "topk_group", 1),
                      .grouped = config_number(m->config, "n_group", 0) > 0,
                      .factor = config_number(m->config, "routed_scaling_factor", 1)};
  f->scoring = scoring ? scoring : f->correction ? "sigmoid" : "softmax";
  for (const struct mixture *kind = mixtures; kind->router && !f->router.weight; kind++) {
    f->router = find_router(m, prefix, kind->router);
    if (!f->router.weight)
      continue;
    snprintf(name, sizeof name, "%s%s", prefix, kind->experts);
    int64_t n = divided(m, "experts", f->router.n);
    f->map = m->group ? tensor(&m->kept, int32, SHAPE(f->router.n)) : NULL;
    for (int32_t i = 0; f->map && i < f->router.n; i++)
      ((int32_t *)f->map->data)[i] = i / n == m->own.part ? i % n : -1;
    f->gate_up = find_experts(m, name, kind->parts, kind->names, n);
    f->down = find_experts(m, name, 1, kind->names + 2, n);
    f->activation = kind->activation;
    f->top_k = config_number(m->config, "num_experts_per_tok", REQUIRED);
    f->renormalize = config_number(m->config, "norm_topk_prob", kind->renormalize) > 0;
  }
  for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) {
    snprintf(name, sizeof name, "%s%s", prefix, dense[i]);
    if (!stored_weight(m, name, "up_proj", ".weight", i == 0 && !f->router.weight))
      continue;
    f->gate = find_projection(m, name, "gate_proj", m->own, ALL);
    f->up = find_projection(m, name, "up_proj", m->own, ALL);
    f->out = find_projection(m, name, "down_proj", ALL, m->own);
  }
  return (block){.run = run, .self = f};
}
