/* Blocks with a state for each request, which has no blocks in the cache: see llm.h. Each rank does all of them. */
#include "llm.h"

/* The gated delta rule of Qwen3-Next. */
typedef struct delta_net {
  projection qkv, z, a, b, output; /* the rows of the first in the operator's order */
  DLTensor *conv, *a_log, *dt_bias, *norm, *conv_state, *state;
  int64_t key_heads, key_size, value_heads, value_size;
} delta_net;

static DLTensor *run_delta_net(model *m, const void *self, const batch *b, DLTensor *x) {
  const delta_net *d = self;
  int64_t n = b->n_tokens;
  DLTensor *out = MADE(n, d->value_heads, d->value_size), *normed = MADE(n, d->value_heads, d->value_size);
  DLTensor *z = view(&m->step, linear(m, x, &d->z, NULL), 0, NULL, SHAPE(n, d->value_heads, d->value_size));
  ok(fl_gdn_attention_core(OPS, linear(m, x, &d->qkv, NULL), linear(m, x, &d->a, NULL), linear(m, x, &d->b, NULL),
                           d->conv, NULL, d->a_log, d->dt_bias, d->conv_state, d->state, d->key_heads, d->key_size,
                           b->query_start_loc, b->states, b->has_state, out));
  ok(fl_rms_norm_gated(OPS, out, z, d->norm, m->epsilon, NULL, true, "silu", normed));
  return linear(m, view(&m->step, normed, 0, NULL, SHAPE(n, d->value_heads * d->value_size)), &d->output, NULL);
}

/* The checkpoint has several projections in one: of each head of keys the rows of all, one behind the other. Takes
 * those of each head from bounds[0] to bounds[1], then those to bounds[2], … to bounds[parts]; `rows`: of a head. */
static projection take_rows(model *m, const delta_net *d, const char *prefix, const char *name, int64_t rows, int parts,
                            const int64_t *bounds) {
  arena once = {.host = m->host, .stream = m->stream}; /* the whole is not kept, and what is rounded is not */
  const DLTensor *of = weight_in(m, &once, prefix, name, ".weight", true);
  int64_t k = m->hidden, n = d->key_heads, at = 0;
  DLTensor *taken = tensor(m->format ? &once : &m->kept, m->dtype, SHAPE(n * (bounds[parts] - bounds[0]), k));
  if (elements(of) != n * rows * k)
    fail("'%s%s.weight' is of another size than config.json says", prefix, name);
  for (int i = 0; i < parts; at += n * (bounds[i + 1] - bounds[i]) * k, i++)
    put(taken, at, view(&once, of, bounds[i] * k, SIZES(rows * k, k, 1), SHAPE(n, bounds[i + 1] - bounds[i], k)));
  projection made = projected(m, &m->kept, taken, 0, ALL);
  arena_reset(&once);
  return made;
}

block delta_net_block(model *m, const char *prefix) {
  delta_net *d = arena_take(&m->kept, sizeof *d);
  DLTensor *conv = weight(m, prefix, "linear_attn.conv1d", ".weight", true);
  *d = (delta_net){.key_heads = config_number(m->config, "linear_num_key_heads", REQUIRED),
                   .key_size = config_number(m->config, "linear_key_head_dim", REQUIRED),
                   .value_heads = config_number(m->config, "linear_num_value_heads", REQUIRED),
                   .value_size = config_number(m->config, "linear_value_head_dim", REQUIRED),
                   .conv = view(&m->kept, conv, 0, NULL, SHAPE(conv->shape[0], conv->shape[2])),
                   .a_log = weight(m, prefix, "linear_attn.A_log", "", true),
                   .dt_bias = weight(m, prefix, "linear_attn.dt_bias", "", true),
                   .norm = weight(m, prefix, "linear_attn.norm", ".weight", true),
                   .output = find_projection(m, prefix, "linear_attn.out_proj", ALL, ALL),
                   .conv_state = tensor(&m->kept, m->dtype, SHAPE(m->n_states, conv->shape[0], conv->shape[2] - 1))};
  d->state = tensor(&m->kept, float32, SHAPE(m->n_states, d->value_heads, d->value_size, d->key_size));
  int64_t k = d->key_size, ratio = d->value_heads / d->key_heads, v = ratio * d->value_size, all = 2 * k + 2 * v;
  d->qkv = take_rows(m, d, prefix, "linear_attn.in_proj_qkvz", all, 3, SIZES(0, k, 2 * k, 2 * k + v));
  d->z = take_rows(m, d, prefix, "linear_attn.in_proj_qkvz", all, 1, SIZES(2 * k + v, all));
  d->b = take_rows(m, d, prefix, "linear_attn.in_proj_ba", 2 * ratio, 1, SIZES(0, ratio));
  d->a = take_rows(m, d, prefix, "linear_attn.in_proj_ba", 2 * ratio, 1, SIZES(ratio, 2 * ratio));
  m->has_states = true;
  return (block){.run = run_delta_net, .self = d};
}

/* Mamba-2: one operator is all of it. */
typedef struct mamba2 {
  DLTensor *in, *out, *conv, *conv_bias, *dt_bias, *a, *d, *norm, *conv_state, *state;
  int64_t groups, head_size, chunk;
} mamba2;

static DLTensor *run_mamba2(model *m, const void *self, const batch *b, DLTensor *x) {
  const mamba2 *l = self;
  DLTensor *out = MADE(b->n_tokens, m->hidden);
  ok(fl_mamba_mixer2(OPS, x, l->in, l->conv, l->conv_bias, l->dt_bias, l->a, l->d, l->norm, l->out, l->conv_state,
                     l->state, l->groups, l->head_size, l->chunk, b->query_start_loc, b->states, b->has_state,
                     m->epsilon, out));
  return out;
}

block mamba2_block(model *m, const char *prefix) {
  mamba2 *l = arena_take(&m->kept, sizeof *l);
  DLTensor *a_log = converted(&m->kept, weight(m, prefix, "mixer.A_log", "", true), float32);
  DLTensor *conv = weight(m, prefix, "mixer.conv1d", ".weight", true);
  int64_t n_state = config_number(m->config, "state_size", REQUIRED), width = conv->shape[2];
  *l = (mamba2){.in = weight(m, prefix, "mixer.in_proj", ".weight", true),
                .out = weight(m, prefix, "mixer.out_proj", ".weight", true),
                .conv = view(&m->kept, conv, 0, NULL, SHAPE(conv->shape[0], width)),
                .conv_bias = weight(m, prefix, "mixer.conv1d", ".bias", false),
                .dt_bias = weight(m, prefix, "mixer.dt_bias", "", true),
                .a = tensor(&m->kept, float32, SHAPE(a_log->shape[0])),
                .d = weight(m, prefix, "mixer.D", "", true),
                .norm = weight(m, prefix, "mixer.norm", ".weight", true),
                .conv_state = tensor(&m->kept, m->dtype, SHAPE(m->n_states, conv->shape[0], width - 1)),
                .groups = config_number(m->config, "n_groups", REQUIRED),
                .head_size = config_number(m->config, "head_dim", REQUIRED),
                .chunk = config_number(m->config, "chunk_size", REQUIRED)};
  l->state = tensor(&m->kept, float32, SHAPE(m->n_states, a_log->shape[0], l->head_size, n_state));
  for (int64_t i = 0; i < a_log->shape[0]; i++)
    ((float *)l->a->data)[i] = -expf(((float *)fl_data(a_log))[i]);
  m->has_states = true;
  return (block){.run = run_mamba2, .self = l};
}
