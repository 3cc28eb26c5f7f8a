/*
 * Rotary embeddings as vLLM's RotaryEmbedding, ApplyRotaryEmb and DualChunkRotaryEmbedding compute them (native): cos
 * and sin are taken in the type of query, each product and the sum are rounded to it.
 */
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/rows.h"

static void rotate_head(const cpu_rotary *rotary, const char *cos, const char *sin, const char *in, char *out) {
  cpu_dtype dtype = rotary->dtype, rounding = rotary->rounding;
  for (int64_t i = 0; i < rotary->pairs; i++) {
    int64_t first = rotary->offset + (rotary->interleaved ? 2 * i : i);
    int64_t second = rotary->interleaved ? first + 1 : first + rotary->pairs;
    float c = round_to(rounding, load(rotary->table_dtype, cos, i));
    float s = round_to(rounding, load(rotary->table_dtype, sin, i));
    float x1 = load(dtype, in, first), x2 = load(dtype, in, second);
    if (rotary->inverse)
      s = -s;
    store(dtype, out, first, round_to(rounding, x1 * c) - round_to(rounding, x2 * s));
    store(dtype, out, second, round_to(rounding, x2 * c) + round_to(rounding, x1 * s));
  }
}

/* All heads of a token. */
static void rotate_token(const cpu_rotary *rotary, const cpu_heads *heads, const char *cos, const char *sin,
                         int64_t token) {
  for (int64_t head = 0; head < heads->heads; head++) {
    const char *in = heads->in + token * heads->in_token + head * heads->in_head;
    char *out = heads->out + token * heads->out_token + head * heads->out_head;
    rotate_head(rotary, cos, sin, in, out);
    cpu_rotary_pass_through(rotary, heads->size, in, out);
  }
}

/* rotary_embedding(query, key, cos, sin, position_ids, interleaved, rope_dim_offset, inverse) -> (query_out, key_out)
 */
fl_status cpu_reference_rotary_embedding(void *self, fl_call *call) {
  cpu_rotary rotary;
  fl_status status = cpu_rotary_read(call, &rotary);
  (void)self;
  if (status)
    return status;
  for (int which = 0; which < 2; which++)
    for (int64_t token = 0; rotary.heads[which].in && token < rotary.tokens; token++) {
      int64_t position = cpu_rotary_position(&rotary, token);
      rotate_token(&rotary, &rotary.heads[which], rotary.cos + position * rotary.cos_stride,
                   rotary.sin + position * rotary.sin_stride, token);
    }
  return FL_OK;
}

/* apply_rotary_emb(x, cos, sin, is_neox_style, enable_fp32_compute) -> out */
static fl_status apply_rotary_emb(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, 5)};
  cpu_rotary rotary;
  fl_status status = cpu_rotary_read_apply(call, &rotary);
  (void)self;
  if (status)
    return status;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows)) {
    int64_t place = rows.index[x->ndim - 3];
    rotate_head(&rotary, rotary.cos + place * rotary.cos_stride, rotary.sin + place * rotary.sin_stride, rows.at[0],
                rows.at[1]);
  }
  return FL_OK;
}

/* dual_chunk_rotary_embedding(position_ids, query, key, q_cache, qc_cache, k_cache, qc_no_clamp_cache, q_inter_cache,
 * head_size, rotary_dim, chunk_size, local_size, is_neox_style) -> (query_out, key_out) */
static fl_status dual_chunk_rotary_embedding(void *self, fl_call *call) {
  cpu_dual_chunk dual;
  fl_status status = cpu_dual_chunk_read(call, &dual);
  (void)self;
  if (status)
    return status;
  for (int64_t token = 0; token < dual.rotary.tokens; token++)
    for (int part = 0; part < CPU_DUAL_CHUNK_PARTS; part++) {
      const char *cos = cpu_dual_chunk_angles(&dual, part, token);
      const char *sin = cos + dual.rotary.pairs * cpu_dtype_size(dual.rotary.dtype);
      rotate_token(&dual.rotary, &dual.parts[part].heads, cos, sin, token);
    }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "rotary_embedding", CPU_REFERENCE, .fn = cpu_reference_rotary_embedding},
    {.op_name = "apply_rotary_emb", CPU_REFERENCE, .fn = apply_rotary_emb},
    {.op_name = "dual_chunk_rotary_embedding", CPU_REFERENCE, .fn = dual_chunk_rotary_embedding},
};
OP_LIST(ops);
