/* Latent attention of DeepSeek-V2 and V3: the cache has a row [latent | rotated key] a token for all heads. */
#include "llm.h"

#include <math.h>

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
  DLTensor *query = x, *kv = linear(m, x, &a->kv_a), *out = tensor(&m->step, m->dtype, SHAPE(n, a->heads * a->value));
  if (a->query_norm) {
    query = linear(m, x, &a->query_a);
    norm(m, query, NULL, a->query_norm);
  }
  query = view(&m->step, linear(m, query, &a->query), 0, NULL, SHAPE(n, a->heads, size));
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
  return linear(m, out, &a->output);
}

#define PREFIX "model.layers.%d.self_attn."

block latent_block(model *m, int64_t layer) {
  latent *a = arena_take(&m->kept, sizeof *a);
  *a = (latent){.heads = config_int(&m->files, "num_attention_heads", NULL),
                .nope = config_int(&m->files, "qk_nope_head_dim", NULL),
                .rope = config_int(&m->files, "qk_rope_head_dim", NULL),
                .value = config_int(&m->files, "v_head_dim", NULL),
                .rank = config_int(&m->files, "kv_lora_rank", NULL),
                .interleaved = config_is(&m->files, "rope_interleave", true)};
  a->query_norm = optional_weight(m, PREFIX "q_a_layernorm.weight", layer);
  if (a->query_norm)
    a->query_a = find_projection(m, PREFIX "q_a_proj", layer);
  a->query = find_projection(m, a->query_norm ? PREFIX "q_b_proj" : PREFIX "q_proj", layer);
  a->kv_a = find_projection(m, PREFIX "kv_a_proj_with_mqa", layer);
  a->kv_norm = weight(m, PREFIX "kv_a_layernorm.weight", layer);
  a->kv_b = weight(m, PREFIX "kv_b_proj.weight", layer);
  a->output = find_projection(m, PREFIX "o_proj", layer);
  a->scale = make_angles(m, a->rope) / sqrt((double)(a->nope + a->rope));
  a->cache = tensor(&m->kept, m->dtype, SHAPE(m->n_blocks, m->block_size, a->rank + a->rope));
  return (block){run, a};
}
