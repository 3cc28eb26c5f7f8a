/*
 * Rotary embedding, a block of pairs at a time: cos and sin of a token are converted once for all its heads. Products
 * and sums are rounded one by one, as vLLM's native definition does: a difference of two products may cancel, and one
 * rounding would then lie outside the tolerance.
 */
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/rows.h"

/* cos and sin of one token for pairs first to first + n - 1. */
typedef struct rotary_angles {
  int64_t first, n;
  float cos[CPU_BLOCK], sin[CPU_BLOCK];
} rotary_angles;

/* From rows of the tables, for pairs from `first` on. */
static void load_angles(const cpu_rotary *rotary, const char *cos, const char *sin, int64_t first,
                        rotary_angles *angles) {
  const cpu_block_type *table = &cpu_block_types[rotary->table_dtype], *type = &cpu_block_types[rotary->rounding];
  int64_t n = angles->n = cpu_block_size(rotary->pairs - first);
  angles->first = first;
  table->load(angles->cos, cos, first, n);
  table->load(angles->sin, sin, first, n);
  type->round(angles->cos, n);
  type->round(angles->sin, n);
  if (rotary->inverse)
    for (int64_t i = 0; i < n; i++)
      angles->sin[i] = -angles->sin[i];
}

/* x1, x2 = x1 cos - x2 sin, x2 cos + x1 sin */
static void rotate(const cpu_block_type *type, const rotary_angles *angles, float *restrict x1, float *restrict x2) {
  float a[CPU_BLOCK], b[CPU_BLOCK], c[CPU_BLOCK], d[CPU_BLOCK];
  int64_t n = angles->n;
  for (int64_t i = 0; i < n; i++) {
    a[i] = x1[i] * angles->cos[i];
    b[i] = x2[i] * angles->sin[i];
    c[i] = x2[i] * angles->cos[i];
    d[i] = x1[i] * angles->sin[i];
  }
  type->round(a, n);
  type->round(b, n);
  type->round(c, n);
  type->round(d, n);
  for (int64_t i = 0; i < n; i++) {
    x1[i] = a[i] - b[i];
    x2[i] = c[i] + d[i];
  }
}

static void rotate_halves(const cpu_rotary *rotary, const rotary_angles *angles, const char *in, char *out) {
  const cpu_block_type *type = &cpu_block_types[rotary->dtype];
  int64_t first = rotary->offset + angles->first, second = first + rotary->pairs;
  float x1[CPU_BLOCK], x2[CPU_BLOCK];
  type->load(x1, in, first, angles->n);
  type->load(x2, in, second, angles->n);
  rotate(&cpu_block_types[rotary->rounding], angles, x1, x2);
  type->store(out, first, x1, angles->n);
  type->store(out, second, x2, angles->n);
}

static void rotate_neighbours(const cpu_rotary *rotary, const rotary_angles *angles, const char *in, char *out) {
  const cpu_block_type *type = &cpu_block_types[rotary->dtype];
  int64_t first = rotary->offset + 2 * angles->first;
  float both[2 * CPU_BLOCK], x1[CPU_BLOCK], x2[CPU_BLOCK];
  type->load(both, in, first, 2 * angles->n);
  for (int64_t i = 0; i < angles->n; i++) {
    x1[i] = both[2 * i];
    x2[i] = both[2 * i + 1];
  }
  rotate(&cpu_block_types[rotary->rounding], angles, x1, x2);
  for (int64_t i = 0; i < angles->n; i++) {
    both[2 * i] = x1[i];
    both[2 * i + 1] = x2[i];
  }
  type->store(out, first, both, 2 * angles->n);
}

static void rotate_pairs(const cpu_rotary *rotary, const rotary_angles *angles, const char *in, char *out) {
  if (rotary->interleaved)
    rotate_neighbours(rotary, angles, in, out);
  else
    rotate_halves(rotary, angles, in, out);
}

static void rotate_token(const cpu_rotary *rotary, const cpu_heads *heads, const rotary_angles *angles, int64_t token) {
  const char *in = heads->in + token * heads->in_token;
  char *out = heads->out + token * heads->out_token;
  for (int64_t head = 0; head < heads->heads; head++) {
    rotate_pairs(rotary, angles, in, out);
    if (!angles->first)
      cpu_rotary_pass_through(rotary, heads->size, in, out);
    in += heads->in_head;
    out += heads->out_head;
  }
}

/* rotary_embedding(query, key, cos, sin, position_ids, interleaved, rope_dim_offset, inverse) -> (query_out, key_out)
 */
fl_status cpu_flagos_rotary_embedding(void *self, fl_call *call) {
  cpu_rotary rotary;
  rotary_angles angles;
  fl_status status = cpu_rotary_read(call, &rotary);
  (void)self;
  if (status)
    return status;
  for (int64_t token = 0; token < rotary.tokens; token++) {
    int64_t position = cpu_rotary_position(&rotary, token);
    const char *cos = rotary.cos + position * rotary.cos_stride, *sin = rotary.sin + position * rotary.sin_stride;
    for (int64_t first = 0; first < rotary.pairs; first += CPU_BLOCK) {
      load_angles(&rotary, cos, sin, first, &angles);
      rotate_token(&rotary, &rotary.heads[0], &angles, token);
      if (rotary.heads[1].in)
        rotate_token(&rotary, &rotary.heads[1], &angles, token);
    }
  }
  return FL_OK;
}

/* apply_rotary_emb(x, cos, sin, is_neox_style, enable_fp32_compute) -> out */
static fl_status apply_rotary_emb(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, 5)};
  cpu_rotary rotary;
  rotary_angles angles;
  fl_status status = cpu_rotary_read_apply(call, &rotary);
  (void)self;
  if (status)
    return status;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows)) {
    int64_t place = rows.index[x->ndim - 3], head = rows.index[x->ndim - 2];
    const char *cos = rotary.cos + place * rotary.cos_stride, *sin = rotary.sin + place * rotary.sin_stride;
    for (int64_t first = 0; first < rotary.pairs; first += CPU_BLOCK) {
      if (!head || rotary.pairs > CPU_BLOCK) /* the first head's angles serve the others, too */
        load_angles(&rotary, cos, sin, first, &angles);
      rotate_pairs(&rotary, &angles, rows.at[0], rows.at[1]);
    }
  }
  return FL_OK;
}

/* dual_chunk_rotary_embedding(position_ids, query, key, q_cache, qc_cache, k_cache, qc_no_clamp_cache, q_inter_cache,
 * head_size, rotary_dim, chunk_size, local_size, is_neox_style) -> (query_out, key_out) */
static fl_status dual_chunk_rotary_embedding(void *self, fl_call *call) {
  cpu_dual_chunk dual;
  rotary_angles angles;
  fl_status status = cpu_dual_chunk_read(call, &dual);
  (void)self;
  if (status)
    return status;
  for (int64_t token = 0; token < dual.rotary.tokens; token++)
    for (int part = 0; part < CPU_DUAL_CHUNK_PARTS; part++) {
      const char *cos = cpu_dual_chunk_angles(&dual, part, token);
      const char *sin = cos + dual.rotary.pairs * cpu_dtype_size(dual.rotary.dtype);
      for (int64_t first = 0; first < dual.rotary.pairs; first += CPU_BLOCK) {
        load_angles(&dual.rotary, cos, sin, first, &angles);
        rotate_token(&dual.rotary, &dual.parts[part].heads, &angles, token);
      }
    }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "rotary_embedding", CPU_FLAGOS, .fn = cpu_flagos_rotary_embedding},
    {.op_name = "apply_rotary_emb", CPU_FLAGOS, .fn = apply_rotary_emb},
    {.op_name = "dual_chunk_rotary_embedding", CPU_FLAGOS, .fn = dual_chunk_rotary_embedding},
};
OP_LIST(ops);
