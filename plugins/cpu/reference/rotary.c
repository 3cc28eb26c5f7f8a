/*
 * Rotary embeddings as vLLM's RotaryEmbedding, ApplyRotaryEmb and DualChunkRotaryEmbedding compute them (native): cos
 * and sin are taken in the type of query, each product and the sum are rounded to it.
 */
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>

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
    int64_t place = rows.dims[x->ndim - 3].index;
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

/* One head in float: normalised, then rotated. `row` is one of floats. */
static void norm_rope_head(const cpu_norm_rope *fused, const void *weight, const char *cos, const char *sin,
                           const char *in, int64_t size, float *row, char *out) {
  cpu_dtype dtype = fused->rotary.dtype;
  cpu_rotary in_float = fused->rotary;
  float squares = 0;
  in_float.dtype = CPU_FLOAT32;
  for (int64_t i = 0; i < size; i++)
    squares += load(dtype, in, i) * load(dtype, in, i);
  float scale = 1 / sqrtf(squares / (float)size + fused->epsilon);
  for (int64_t i = 0; i < size; i++)
    row[i] = load(dtype, in, i) * scale * load(dtype, weight, i);
  rotate_head(&in_float, cos, sin, (char *)row, (char *)row);
  for (int64_t i = 0; i < size; i++)
    store(dtype, out, i, row[i]);
}

/* fused_qk_norm_rope(qkv, q_weight, k_weight, cos, sin, position_ids, num_heads_q, num_heads_k, num_heads_v, epsilon,
 * interleaved) -> qkv_out */
static fl_status fused_qk_norm_rope(void *self, fl_call *call) {
  cpu_norm_rope fused;
  fl_status status = cpu_norm_rope_read(call, &fused);
  (void)self;
  if (status)
    return status;
  int64_t size = fused.value.size;
  float *row = cpu_scratch_take((size_t)size);
  if (!row)
    return fl_fail(call, FL_ENOMEM, "no memory for a head of %lld elements", (long long)size);
  for (int64_t token = 0; token < fused.rotary.tokens; token++) {
    int64_t position = cpu_rotary_position(&fused.rotary, token);
    const char *cos = fused.rotary.cos + position * fused.rotary.cos_stride;
    const char *sin = fused.rotary.sin + position * fused.rotary.sin_stride;
    for (int which = 0; which < 2; which++) {
      const cpu_heads *heads = &fused.rotary.heads[which];
      for (int64_t head = 0; head < heads->heads; head++)
        norm_rope_head(&fused, fused.weights[which], cos, sin,
                       heads->in + token * heads->in_token + head * heads->in_head, size, row,
                       heads->out + token * heads->out_token + head * heads->out_head);
    }
    cpu_norm_rope_pass_value(&fused, token);
  }
  cpu_scratch_give(row);
  return FL_OK;
}

/* Which of its positions turns pair i. */
static int axis_of(const cpu_mrope *mrope, int64_t i) {
  const int64_t *sections = mrope->sections;
  int axis = (int)(i % CPU_MROPE_AXES);
  if (mrope->alternating)
    return axis && i < CPU_MROPE_AXES * sections[axis] ? axis : 0;
  return i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
}

/* mrope(query, key, cos, sin, position_ids, mrope_section, mrope_interleaved, interleaved) -> (query_out, key_out) */
static fl_status mrope(void *self, fl_call *call) {
  cpu_mrope mrope;
  fl_status status = cpu_mrope_read(call, &mrope);
  (void)self;
  if (status)
    return status;
  int64_t bytes = mrope.rotary.pairs * cpu_dtype_size(mrope.rotary.table_dtype);
  char *cos = cpu_scratch_take_bytes((size_t)(2 * bytes)), *sin;
  if (!cos)
    return fl_fail(call, FL_ENOMEM, "no memory for %lld angles", (long long)mrope.rotary.pairs);
  sin = cos + bytes;
  for (int64_t token = 0; token < mrope.rotary.tokens; token++) {
    for (int64_t i = 0; i < mrope.rotary.pairs; i++) {
      int64_t position = cpu_mrope_position(&mrope, axis_of(&mrope, i), token);
      cpu_dtype table = mrope.rotary.table_dtype;
      store(table, cos, i, load(table, mrope.rotary.cos + position * mrope.rotary.cos_stride, i));
      store(table, sin, i, load(table, mrope.rotary.sin + position * mrope.rotary.sin_stride, i));
    }
    for (int which = 0; which < 2 && mrope.rotary.heads[which].in; which++)
      rotate_token(&mrope.rotary, &mrope.rotary.heads[which], cos, sin, token);
  }
  cpu_scratch_give(cos);
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "rotary_embedding", CPU_REFERENCE, .fn = cpu_reference_rotary_embedding},
    {.op_name = "apply_rotary_emb", CPU_REFERENCE, .fn = apply_rotary_emb},
    {.op_name = "dual_chunk_rotary_embedding", CPU_REFERENCE, .fn = dual_chunk_rotary_embedding},
    {.op_name = "fused_qk_norm_rope", CPU_REFERENCE, .fn = fused_qk_norm_rope},
    {.op_name = "mrope", CPU_REFERENCE, .fn = mrope},
};
OP_LIST(ops);
