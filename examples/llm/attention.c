/*
 * Attention over the paged cache: Llama and its kin. What a checkpoint has says what is done: biases, norms of query
 * and key (Qwen3), sinks (gpt-oss), a query projection of twice the size whose other half gates the result
 * (Qwen3-Next).
 */
#include "llm.h"

typedef struct attention {
  projection query, key, value, output;
  DLTensor *query_norm, *key_norm, *sinks;
  DLTensor *key_cache, *value_cache;
  int64_t heads, kv_heads, size, window; /* size: of a head; window: tokens before a query's own; -1: all */
  double scale;
  bool gated;
} attention;

/* Its halves of each head, in one product: [query | gate]. */
static DLTensor *head_views(model *m, const attention *a, DLTensor *projected, int64_t offset) {
  int64_t step = a->gated ? 2 * a->size : a->size;
  const int64_t strides[] = {a->heads * step, step, 1};
  return view(&m->step, projected, offset, strides, SHAPE(projected->shape[0], a->heads, a->size));
}

static DLTensor *run(model *m, const void *self, const batch *b, DLTensor *x) {
  const attention *a = self;
  int64_t n = b->n_tokens;
  DLTensor *projected = linear(m, x, &a->query, NULL), *query = head_views(m, a, projected, 0);
  DLTensor *key = view(&m->step, linear(m, x, &a->key, NULL), 0, NULL, SHAPE(n, a->kv_heads, a->size));
  DLTensor *value = view(&m->step, linear(m, x, &a->value, NULL), 0, NULL, SHAPE(n, a->kv_heads, a->size));
  DLTensor *out = tensor(&m->step, m->dtype, SHAPE(n, a->heads, a->size));
  DLTensor *lse = tensor(&m->step, float32, SHAPE(a->heads, n));
  if (a->query_norm) {
    norm(m, query, NULL, a->query_norm);
    norm(m, key, NULL, a->key_norm);
  }
  ok(fl_rotary_embedding(&m->ops, NULL, query, key, m->cos, m->sin, b->positions, false, 0, false, query, key));
  ok(fl_reshape_and_cache(&m->ops, NULL, key, value, a->key_cache, a->value_cache, b->slot_mapping, NULL, NULL));
  ok(fl_paged_attention(&m->ops, NULL, query, a->key_cache, a->value_cache, b->block_table, b->query_start_loc,
                        b->seq_lens, a->scale, true, a->window, -1, 0, NULL, a->sinks, NULL, NULL, out, lse));
  if (a->gated)
    ok(fl_sigmoid_mul(&m->ops, NULL, out, head_views(m, a, projected, a->size), out));
  return linear(m, view(&m->step, out, 0, NULL, SHAPE(n, a->heads * a->size)), &a->output, NULL);
}

/* Tokens before its own that a query sees, -1 for all: of layers that slide where some do and some do not. */
static int64_t window_of(const json_t *config, const char *kind) {
  int64_t window = config_int(config, "sliding_window", 0);
  bool slides = kind ? !strcmp(kind, "sliding_attention") : config_number(config, "use_sliding_window", true);
  return slides && window ? window - 1 : -1;
}

block attention_block(model *m, const char *prefix, const char *kind) {
  attention *a = arena_take(&m->kept, sizeof *a);
  int64_t heads = config_int(m->config, "num_attention_heads", REQUIRED);
  *a = (attention){.heads = heads,
                   .kv_heads = config_int(m->config, "num_key_value_heads", heads),
                   .size = config_int(m->config, "head_dim", m->hidden / heads),
                   .window = window_of(m->config, kind),
                   .query = find_projection(m, prefix, "self_attn.q_proj"),
                   .key = find_projection(m, prefix, "self_attn.k_proj"),
                   .value = find_projection(m, prefix, "self_attn.v_proj"),
                   .output = find_projection(m, prefix, "self_attn.o_proj"),
                   .query_norm = optional_weight(m, prefix, "self_attn.q_norm", ".weight"),
                   .key_norm = optional_weight(m, prefix, "self_attn.k_norm", ".weight"),
                   .sinks = optional_weight(m, prefix, "self_attn.sinks", "")};
  a->gated = a->query.n == 2 * a->heads * a->size;
  double turned = config_number(json_object_get(m->config, "rope_parameters"), "partial_rotary_factor",
                                config_number(m->config, "partial_rotary_factor", 1));
  a->scale = make_angles(m, (int64_t)((double)a->size * turned)) / sqrt((double)a->size);
  a->key_cache = tensor(&m->kept, m->dtype, SHAPE(m->n_blocks, m->block_size, a->kv_heads, a->size));
  a->value_cache = tensor(&m->kept, m->dtype, SHAPE(m->n_blocks, m->block_size, a->kv_heads, a->size));
  return (block){.run = run, .self = a};
}
