/* Latent attention of DeepSeek-V2 and V3: the cache has a row [latent | rotated key] a token for all heads. */
#include "llm.h"

typedef struct latent {
  projection query_a, query, kv_a, output;
  DLTensor *query_norm; /* NULL: the query has no latent of its own, and no query_a */
  DLTensor *kv_norm, *kv_b, *cache;
  int64_t heads, nope, rope, value, rank; /* sizes of a head's parts; of the latent */
  double scale;
  bool interleaved;
} latent;

static DLTensor *run(model *m, const void *self, const batch *b, DLTensor *x) {
  const latent *a = self;
  int64_t n = b->n_tokens, size = a->nope + a->rope, row = a->rank + a->rope;
  const int64_t heads[] = {a->heads * size, size, 1}, rows[] = {row, 1}, row_heads[] = {row, a->rope, 1};
  DLTensor *query = x, *kv = linear(m, x, &a->kv_a, NULL),
           *out = tensor(&m->step, m->dtype, SHAPE(n, a->heads * a->value));
  if (a->query_norm) {
    query = linear(m, x, &a->query_a, NULL);
    norm(m, query, NULL, a->query_norm);
  }
  query = view(&m->step, linear(m, query, &a->query, NULL), 0, NULL, SHAPE(n, a->heads, size));
  DLTensor *turned = view(&m->step, query, a->nope, heads, SHAPE(n, a->heads, a->rope));
  DLTensor *kv_c = view(&m->step, kv, 0, rows, SHAPE(n, a->rank));
  DLTensor *k_pe = view(&m->step, kv, a->rank, row_heads, SHAPE(n, 1, a->rope));
  norm(m, kv_c, NULL, a->kv_norm);
  ok(fl_rotary_embedding(&m->ops, NULL, turned, k_pe, m->cos, m->sin, b->positions, a->interleaved, 0, false, turned,
                         k_pe));
  ok(fl_concat_and_cache_mla(&m->ops, NULL, kv_c, view(&m->step, kv, a->rank, rows, SHAPE(n, a->rope)), a->cache,
                             b->slot_mapping));
  ok(fl_mla_paged_attention(&m->ops, NULL, query, a->cache, a->kv_b, b->block_table, b->query_start_loc, b->seq_lens,
                            a->rank, a->value, a->scale, out));
  return linear(m, out, &a->output, NULL);
}

block latent_block(model *m, const char *prefix, const char *kind) {
  latent *a = arena_take(&m->kept, sizeof *a);
  (void)kind; /* all layers are alike */
  *a = (latent){.heads = config_int(m->config, "num_attention_heads", REQUIRED),
                .nope = config_int(m->config, "qk_nope_head_dim", REQUIRED),
                .rope = config_int(m->config, "qk_rope_head_dim", REQUIRED),
                .value = config_int(m->config, "v_head_dim", REQUIRED),
                .rank = config_int(m->config, "kv_lora_rank", REQUIRED),
                .interleaved = config_number(m->config, "rope_interleave", true),
                .query_norm = optional_weight(m, prefix, "self_attn.q_a_layernorm", ".weight"),
                .kv_a = find_projection(m, prefix, "self_attn.kv_a_proj_with_mqa"),
                .kv_norm = weight(m, prefix, "self_attn.kv_a_layernorm", ".weight"),
                .kv_b = weight(m, prefix, "self_attn.kv_b_proj", ".weight"),
                .output = find_projection(m, prefix, "self_attn.o_proj")};
  if (a->query_norm)
    a->query_a = find_projection(m, prefix, "self_attn.q_a_proj");
  a->query = find_projection(m, prefix, a->query_norm ? "self_attn.q_b_proj" : "self_attn.q_proj");
  a->scale = make_angles(m, a->rope) / sqrt((double)(a->nope + a->rope));
  a->cache = tensor(&m->kept, m->dtype, SHAPE(m->n_blocks, m->block_size, a->rank + a->rope));
  return (block){.run = run, .self = a};
}
