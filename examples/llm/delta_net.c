/* The layers of Qwen3-Next that attend by a gated delta rule, with a state for each request. */
#include "llm.h"

#include <string.h>

typedef struct delta_net {
  projection qkv, z, a, b, output; /* the rows of the first in the operator's order */
  DLTensor *conv, *a_log, *dt_bias, *norm, *conv_state, *state;
  int64_t key_heads, key_size, value_heads, value_size;
} delta_net;

static DLTensor *run(model *m, const void *self, const batch *b, DLTensor *x) {
  const delta_net *d = self;
  int64_t n = b->n_tokens;
  DLTensor *out = tensor(&m->step, m->dtype, SHAPE(n, d->value_heads, d->value_size));
  DLTensor *normed = tensor(&m->step, m->dtype, SHAPE(n, d->value_heads, d->value_size));
  DLTensor *z = view(&m->step, linear(m, x, &d->z), 0, NULL, SHAPE(n, d->value_heads, d->value_size));
  ok(fl_gdn_attention_core(&m->ops, NULL, linear(m, x, &d->qkv), linear(m, x, &d->a), linear(m, x, &d->b), d->conv,
                           NULL, d->a_log, d->dt_bias, d->conv_state, d->state, d->key_heads, d->key_size,
                           b->query_start_loc, b->states, b->has_state, out));
  ok(fl_rms_norm_gated(&m->ops, NULL, out, z, d->norm, m->epsilon, NULL, true, "silu", normed));
  return linear(m, view(&m->step, normed, 0, NULL, SHAPE(n, d->value_heads * d->value_size)), &d->output);
}

/* Rows of a weight: `rows[i]` of each of n groups of `group` rows, from row `from[i]` of it on; behind each other. */
static projection take_rows(model *m, const DLTensor *of, int64_t n, int64_t group, int parts, const int64_t *from,
                            const int64_t *rows) {
  size_t row = bytes(of) / (size_t)of->shape[0];
  int64_t all = 0;
  for (int part = 0; part < parts; part++)
    all += n * rows[part];
  DLTensor *taken = tensor(place_before_rounding(m, SHAPE(all, m->hidden)), m->dtype, SHAPE(all, m->hidden));
  char *to = taken->data;
  for (int part = 0; part < parts; part++)
    for (int64_t i = 0; i < n; i++, to += (size_t)rows[part] * row)
      memcpy(to, (char *)data(of) + (size_t)(i * group + from[part]) * row, (size_t)rows[part] * row);
  return projected(m, taken, NULL);
}

#define PREFIX "model.layers.%d.linear_attn."

/* The checkpoint has the rows of query, key, value and z, and those of b and a, together for each head of keys. */
static void split(model *m, delta_net *d, int64_t layer) {
  DLTensor *qkvz = weight(m, PREFIX "in_proj_qkvz.weight", layer), *ba = weight(m, PREFIX "in_proj_ba.weight", layer);
  int64_t n = d->key_heads, k = d->key_size, share = d->value_heads / n, v = share * d->value_size, all = 2 * k + 2 * v;
  if (qkvz->shape[0] != n * all || ba->shape[0] != 2 * d->value_heads)
    fail("the projections of layer %lld are of another size than config.json says", (long long)layer);
  d->qkv = take_rows(m, qkvz, n, all, 3, (int64_t[]){0, k, 2 * k}, (int64_t[]){k, k, v});
  d->z = take_rows(m, qkvz, n, all, 1, (int64_t[]){2 * k + v}, &v);
  d->b = take_rows(m, ba, n, 2 * share, 1, (int64_t[]){0}, &share);
  d->a = take_rows(m, ba, n, 2 * share, 1, &share, &share);
  checkpoint_release(&m->files, qkvz);
  checkpoint_release(&m->files, ba);
}

block delta_net_block(model *m, int64_t layer) {
  delta_net *d = arena_take(&m->kept, sizeof *d);
  DLTensor *conv = weight(m, PREFIX "conv1d.weight", layer);
  *d = (delta_net){.key_heads = config_int(&m->files, "linear_num_key_heads", NULL),
                   .key_size = config_int(&m->files, "linear_key_head_dim", NULL),
                   .value_heads = config_int(&m->files, "linear_num_value_heads", NULL),
                   .value_size = config_int(&m->files, "linear_value_head_dim", NULL),
                   .conv = view(&m->kept, conv, 0, NULL, SHAPE(conv->shape[0], conv->shape[2])),
                   .a_log = weight(m, PREFIX "A_log", layer),
                   .dt_bias = weight(m, PREFIX "dt_bias", layer),
                   .norm = weight(m, PREFIX "norm.weight", layer),
                   .output = find_projection(m, PREFIX "out_proj", layer),
                   .conv_state = tensor(&m->kept, m->dtype, SHAPE(m->n_states, conv->shape[0], conv->shape[2] - 1))};
  d->state = tensor(&m->kept, float32, SHAPE(m->n_states, d->value_heads, d->value_size, d->key_size));
  split(m, d, layer);
  m->has_states = true;
  return (block){run, d};
}
