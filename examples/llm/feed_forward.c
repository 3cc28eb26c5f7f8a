/* What follows attention: a gated activation between two products, or a mixture of such experts: see llm.h. */
#include "llm.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------------------- dense */

typedef struct dense {
  projection gate, up, down;
} dense;

static DLTensor *run_dense(model *m, const void *self, const batch *b, DLTensor *x) {
  const dense *d = self;
  int64_t n = b->n_tokens, size = d->gate.n;
  const int64_t strides[] = {2 * size, 1};
  DLTensor *both = tensor(&m->step, m->dtype, SHAPE(n, 2 * size)), *out = tensor(&m->step, m->dtype, SHAPE(n, size));
  linear_into(m, x, &d->gate, view(&m->step, both, 0, strides, SHAPE(n, size)));
  linear_into(m, x, &d->up, view(&m->step, both, size, strides, SHAPE(n, size)));
  ok(fl_silu_and_mul(&m->ops, NULL, both, out));
  return linear(m, out, &d->down);
}

static dense *find_dense(model *m, const char *prefix, int64_t layer) {
  static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
  dense *d = arena_take(&m->kept, sizeof *d);
  projection *to[] = {&d->gate, &d->up, &d->down};
  char name[128];
  for (int i = 0; i < 3; i++) {
    snprintf(name, sizeof name, "%s%s", prefix, names[i]);
    *to[i] = find_projection(m, name, layer);
  }
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
  ok(fl_fused_moe(&m->ops, NULL, x, e->gate_up.weight, e->down.weight, linear(m, x, &e->router), e->top_k,
                  e->renormalize, e->grouped, e->groups, e->top_groups, e->scoring, e->factor, e->correction,
                  e->activation, false, NULL, e->gate_up.bias, e->down.bias, e->gate_up.scales, e->down.scales,
                  SIZES(128, 128), 2, out));
  if (!e->shared)
    return out;
  DLTensor *shared = run_dense(m, e->shared, b, x);
  if (e->shared_gate.weight)
    ok(fl_sigmoid_mul(&m->ops, NULL, shared, linear(m, x, &e->shared_gate), shared));
  ok(fl_add(&m->ops, NULL, out, shared, out));
  return out;
}

/* Routers and gates, which are small and decide much. */
static projection unrounded(DLTensor *weight, DLTensor *bias) {
  return (projection){weight, NULL, bias, weight ? weight->shape[0] : 0};
}

/* The experts' weights one behind the other, `parts` of each: that is how operators take them, and checkpoints do not
 * have them. What was copied may leave memory. */
static projection stack(model *m, const char *prefix, const char *const *parts, int n_parts, int64_t layer, int64_t n) {
  DLTensor *all = NULL;
  char name[160], *at = NULL;
  for (int64_t i = 0; i < n; i++)
    for (int part = 0; part < n_parts; part++) {
      snprintf(name, sizeof name, "%s%lld.%s.weight", prefix, (long long)i, parts[part]);
      const DLTensor *one = weight(m, name, layer);
      int64_t rows = n_parts * one->shape[0], k = one->shape[1];
      if (!all) {
        all = tensor(place_before_rounding(m, SHAPE(n, rows, k)), m->dtype, SHAPE(n, rows, k));
        at = all->data;
      }
      if (bytes(one) * (size_t)(n * n_parts) != bytes(all))
        fail("'%s' of layer %lld is of another size than the first expert's", name, (long long)layer);
      at = (char *)memcpy(at, data(one), bytes(one)) + bytes(one);
      checkpoint_release(&m->files, one);
    }
  return projected(m, all, NULL);
}

/* gpt-oss has them as [experts, in, out], or as codes: MXFP4 [experts, out, in / 32, 16 bytes] and their scales. */
static projection gpt_oss_experts(model *m, const char *name, int64_t layer) {
  char whole[3][128];
  static const char *const ends[] = {"_bias", "_blocks", "_scales"};
  for (int i = 0; i < 3; i++)
    snprintf(whole[i], sizeof whole[i], "%s%s", name, ends[i]);
  const DLTensor *codes = stored_weight(m, whole[1], layer);
  if (codes && (codes->ndim != 4 || codes->shape[3] != 16))
    fail("'%s' of layer %lld: expected blocks of 16 bytes", whole[1], (long long)layer);
  if (codes)
    return (projection){view(&m->kept, codes, 0, NULL, SHAPE(codes->shape[0], codes->shape[1], 16 * codes->shape[2])),
                        stored_weight(m, whole[2], layer), weight(m, whole[0], layer), 0};
  DLTensor *t = weight(m, name, layer);
  int64_t n = t->shape[0], rows = t->shape[1], columns = t->shape[2];
  size_t size = t->dtype.bits / 8u;
  DLTensor *made = tensor(place_before_rounding(m, SHAPE(n, columns, rows)), m->dtype, SHAPE(n, columns, rows));
  const char *from = data(t);
  char *to = made->data;
  for (int64_t i = 0; i < n; i++)
    for (int64_t column = 0; column < columns; column++)
      for (int64_t row = 0; row < rows; row++, to += size)
        memcpy(to, from + (size_t)((i * rows + row) * columns + column) * size, size);
  checkpoint_release(&m->files, t);
  return projected(m, made, weight(m, whole[0], layer));
}

#define MLP "model.layers.%d.mlp."

static void gpt_oss(model *m, experts *e, int64_t layer) {
  e->router = unrounded(weight(m, MLP "router.weight", layer), weight(m, MLP "router.bias", layer));
  e->gate_up = gpt_oss_experts(m, MLP "experts.gate_up_proj", layer);
  e->down = gpt_oss_experts(m, MLP "experts.down_proj", layer);
  e->activation = "swigluoai";
  e->renormalize = true;
}

static void mixtral(model *m, experts *e, int64_t layer) {
  static const char *const gate_up[] = {"w1", "w3"}, *const down[] = {"w2"};
  int64_t n = config_int(&m->files, "num_local_experts", NULL);
  e->router = unrounded(weight(m, "model.layers.%d.block_sparse_moe.gate.weight", layer), NULL);
  e->gate_up = stack(m, "model.layers.%d.block_sparse_moe.experts.", gate_up, 2, layer, n);
  e->down = stack(m, "model.layers.%d.block_sparse_moe.experts.", down, 1, layer, n);
  e->renormalize = true;
}

/* Qwen2-MoE, Qwen3-MoE, Qwen3-Next, DeepSeek. */
static void routed(model *m, experts *e, int64_t layer) {
  static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
  static const int64_t one = 1;
  int64_t none = 0, n = config_int(&m->files, "n_routed_experts", &none);
  const char *scoring = json_string_value(json_object_get(m->files.config, "scoring_func"));
  n = n ? n : config_int(&m->files, "num_experts", NULL);
  e->router = unrounded(weight(m, MLP "gate.weight", layer), NULL);
  e->correction = optional_weight(m, MLP "gate.e_score_correction_bias", layer);
  e->gate_up = stack(m, MLP "experts.", gate_up, 2, layer, n);
  e->down = stack(m, MLP "experts.", down, 1, layer, n);
  e->renormalize = config_is(&m->files, "norm_topk_prob", false);
  e->scoring = scoring ? scoring : e->correction ? "sigmoid" : "softmax";
  e->groups = config_int(&m->files, "n_group", &one);
  e->top_groups = config_int(&m->files, "topk_group", &one);
  e->grouped = json_object_get(m->files.config, "n_group") != NULL;
  e->factor = config_number(m->files.config, "routed_scaling_factor", 1);
  e->shared_gate = unrounded(optional_weight(m, MLP "shared_expert_gate.weight", layer), NULL);
  if (e->shared_gate.weight)
    e->shared = find_dense(m, MLP "shared_expert.", layer);
  else if (optional_weight(m, MLP "shared_experts.up_proj.weight", layer))
    e->shared = find_dense(m, MLP "shared_experts.", layer);
}

block feed_forward_block(model *m, int64_t layer) {
  static const struct {
    const char *sign; /* a weight that only these have */
    void (*find)(model *m, experts *e, int64_t layer);
  } kinds[] = {{MLP "router.weight", gpt_oss},
               {"model.layers.%d.block_sparse_moe.gate.weight", mixtral},
               {MLP "gate.weight", routed}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!optional_weight(m, kinds[i].sign, layer))
      continue;
    experts *e = arena_take(&m->kept, sizeof *e);
    *e = (experts){.activation = "silu", .scoring = "softmax", .groups = 1, .top_groups = 1, .factor = 1};
    e->top_k = config_int(&m->files, "num_experts_per_tok", NULL);
    kinds[i].find(m, e, layer);
    return (block){run_experts, e};
  }
  return (block){run_dense, find_dense(m, MLP, layer)};
}
