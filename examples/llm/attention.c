/* Attention over the paged cache: see llm.h. What a checkpoint has says what is done: biases, norms of query and key
 * (Qwen3), sinks (gpt-oss), a query projection of twice the size whose other half gates the result (Qwen3-Next). */
#include "llm.h"

typedef struct attention {
  projection query, key, value, output;
  DLTensor *query_norm, *key_norm, *sinks, *key_cache, *value_cache; /* the first three NULL: there is none */
  int64_t heads, kv_heads, size, window; /* size: of a head; window: tokens before a query's own; -1: all */
  double scale;
  bool gated;
} attention;

/* Its halves of each head, in one product: [query | gate]. */
static DLTensor *head_views(model *m, const attention *a, DLTensor *of, int64_t offset) {
  int64_t step = a->gated ? 2 * a->size : a->size;
  return view(&m->step, of, offset, SIZES(a->heads * step, step, 1), SHAPE(of->shape[0], a->heads, a->size));
}

static DLTensor *run_attention(model *m, const void *self, const batch *b, DLTensor *x) {
  const attention *a = self;
  int64_t n = b->n_tokens;
  DLTensor *projected = linear(m, x, &a->query, NULL), *query = head_views(m, a, projected, 0);
  DLTensor *key = view(&m->step, linear(m, x, &a->key, NULL), 0, NULL, SHAPE(n, a->kv_heads, a->size));
  DLTensor *value = view(&m->step, linear(m, x, &a->value, NULL), 0, NULL, SHAPE(n, a->kv_heads, a->size));
  DLTensor *out = MADE(n, a->heads, a->size);
  DLTensor *lse = tensor(&m->step, float32, SHAPE(a->heads, n));
  norm(m, query, NULL, a->query_norm);
  norm(m, key, NULL, a->key_norm);
  ok(fl_rotary_embedding(OPS, query, key, m->cos, m->sin, b->positions, false, 0, false, query, key));
  ok(fl_reshape_and_cache(OPS, key, value, a->key_cache, a->value_cache, b->slot_mapping, NULL, NULL));
  ok(fl_paged_attention(OPS, query, a->key_cache, a->value_cache, b->block_table, b->query_start_loc, b->seq_lens,
                        a->scale, true, a->window, -1, 0, NULL, a->sinks, NULL, NULL, out, lse));
  if (a->gated)
    ok(fl_sigmoid_mul(OPS, out, head_views(m, a, projected, a->size), out));
  return linear(m, view(&m->step, out, 0, NULL, SHAPE(n, a->heads * a->size)), &a->output, NULL);
}

block attention_block(model *m, const char *prefix) {
  attention *a = arena_take(&m->kept, sizeof *a);
  int64_t heads = config_number(m->config, "num_attention_heads", REQUIRED),
          kv_heads = config_number(m->config, "num_key_value_heads", heads), ranks = m->own.parts,
          size = config_number(m->config, "head_dim", m->hidden / (heads ? heads : 1)),
          window = config_number(m->config, "sliding_window", 0), own = divided(m, "num_attention_heads", heads);
  bool slides = m->kind ? !strcmp(m->kind, "sliding_attention") : config_number(m->config, "use_sliding_window", 1) > 0,
       fewer = kv_heads > 0 && kv_heads < ranks && ranks % kv_heads == 0; /* than ranks: several have the same one */
  share kv = fewer ? (share){m->own.part * kv_heads / ranks, kv_heads} : m->own;
  kv_heads = fewer ? 1 : divided(m, "num_key_value_heads", kv_heads);
  double turned = config_number(json_object_get(m->config, "rope_parameters"), "partial_rotary_factor",
                                config_number(m->config, "partial_rotary_factor", 1));
  *a = (attention){.query = find_projection(m, prefix, "self_attn.q_proj", m->own, ALL),
                   .key = find_projection(m, prefix, "self_attn.k_proj", kv, ALL),
                   .value = find_projection(m, prefix, "self_attn.v_proj", kv, ALL),
                   .output = find_projection(m, prefix, "self_attn.o_proj", ALL, m->own),
                   .query_norm = weight(m, prefix, "self_attn.q_norm", ".weight", false),
                   .key_norm = weight(m, prefix, "self_attn.k_norm", ".weight", false),
                   .sinks = cut(&m->kept, weight(m, prefix, "self_attn.sinks", "", false), m->own, ALL),
                   .key_cache = tensor(&m->kept, m->dtype, SHAPE(m->n_blocks, m->block_size, kv_heads, size)),
                   .value_cache = tensor(&m->kept, m->dtype, SHAPE(m->n_blocks, m->block_size, kv_heads, size)),
                   .heads = own,
                   .kv_heads = kv_heads,
                   .size = size,
                   .window = slides && window ? window - 1 : -1,
                   .scale = make_angles(m, (double)size * turned) / sqrt((double)size)};
  a->gated = a->query.n == 2 * own * size;
  return (block){.run = run_attention, .self = a};
}

/* Latent attention of DeepSeek: the cache has a row [latent | rotated key] a token for all heads. */
typedef struct latent {
  projection query_a, query, kv_a, output;
  DLTensor *query_norm; /* NULL: the query has no latent of its own, and no query_a */
  DLTensor *kv_norm, *kv_b, *cache;
  int64_t heads, nope, rope, value, rank; /* sizes of a head's parts; of the latent */
  double scale;
  bool interleaved;
} latent;

static DLTensor *run_latent(model *m, const void *self, const batch *b, DLTensor *x) {
  const latent *a = self;
  int64_t n = b->n_tokens, size = a->nope + a->rope, row = a->rank + a->rope;
  DLTensor *query = a->query_norm ? linear(m, x, &a->query_a, NULL) : x, *kv = linear(m, x, &a->kv_a, NULL),
           *out = MADE(n, a->heads * a->value);
  norm(m, query, NULL, a->query_norm);
  query = view(&m->step, linear(m, query, &a->query, NULL), 0, NULL, SHAPE(n, a->heads, size));
  DLTensor *turned = view(&m->step, query, a->nope, SIZES(a->heads * size, size, 1), SHAPE(n, a->heads, a->rope));
  DLTensor *kv_c = view(&m->step, kv, 0, SIZES(row, 1), SHAPE(n, a->rank));
  DLTensor *k_pe = view(&m->step, kv, a->rank, SIZES(row, a->rope, 1), SHAPE(n, 1, a->rope));
  norm(m, kv_c, NULL, a->kv_norm);
  ok(fl_rotary_embedding(OPS, turned, k_pe, m->cos, m->sin, b->positions, a->interleaved, 0, false, turned, k_pe));
  ok(fl_concat_and_cache_mla(OPS, kv_c, view(&m->step, kv, a->rank, SIZES(row, 1), SHAPE(n, a->rope)), a->cache,
                             b->slot_mapping));
  ok(fl_mla_paged_attention(OPS, query, a->cache, a->kv_b, b->block_table, b->query_start_loc, b->seq_lens, a->rank,
                            a->value, a->scale, out));
  return linear(m, out, &a->output, NULL);
}

block latent_block(model *m, const char *prefix) {
  latent *a = arena_take(&m->kept, sizeof *a);
  int64_t heads = divided(m, "num_attention_heads", config_number(m->config, "num_attention_heads", REQUIRED));
  *a = (latent){.heads = heads,
                .nope = config_number(m->config, "qk_nope_head_dim", REQUIRED),
                .rope = config_number(m->config, "qk_rope_head_dim", REQUIRED),
                .value = config_number(m->config, "v_head_dim", REQUIRED),
                .rank = config_number(m->config, "kv_lora_rank", REQUIRED),
                .interleaved = config_number(m->config, "rope_interleave", true) > 0,
                .query_norm = weight(m, prefix, "self_attn.q_a_layernorm", ".weight", false),
                .kv_a = find_projection(m, prefix, "self_attn.kv_a_proj_with_mqa", ALL, ALL),
                .kv_norm = weight(m, prefix, "self_attn.kv_a_layernorm", ".weight", true),
                .kv_b = cut(&m->kept, weight(m, prefix, "self_attn.kv_b_proj", ".weight", true), m->own, ALL),
                .output = find_projection(m, prefix, "self_attn.o_proj", ALL, m->own)};
  if (a->query_norm)
    a->query_a = find_projection(m, prefix, "self_attn.q_a_proj", ALL, ALL);
  a->query = find_projection(m, prefix, a->query_norm ? "self_attn.q_b_proj" : "self_attn.q_proj", m->own, ALL);
  a->scale = make_angles(m, a->rope) / sqrt((double)(a->nope + a->rope));
  a->cache = tensor(&m->kept, m->dtype, SHAPE(m->n_blocks, m->block_size, a->rank + a->rope));
  return (block){.run = run_latent, .self = a};
}
