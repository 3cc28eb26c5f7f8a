/* Latent attention: mla_prefill by heads, and the paged cache of mla_decode. */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/index.h"

#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------------- prefill */

/* keys [t, nope + rope] of one head: what kv_b_proj made of the latent, and what all heads share. */
static void join_keys(const cpu_latent *latent, cpu_matrix nope, cpu_matrix keys) {
  int64_t item = cpu_dtype_size(keys.dtype);
  for (int64_t row = 0; row < latent->keys; row++) {
    char *key = cpu_matrix_row(keys, row);
    memcpy(key, cpu_matrix_row(nope, row), (size_t)(latent->nope * item));
    memcpy(key + latent->nope * item, cpu_matrix_row(latent->k_pe, row), (size_t)(latent->rope * item));
  }
}

static void attend_heads(const cpu_attention_parts *parts, const cpu_latent *latent, cpu_matrix expanded,
                         cpu_matrix keys, float *scratch) {
  cpu_head head = {.queries = latent->tokens,
                   .keys = latent->keys,
                   .size = latent->nope + latent->rope,
                   .value_size = latent->v,
                   .query = latent->query,
                   .key = keys,
                   .scale = latent->scale,
                   .offset = latent->offset};
  for (int64_t h = 0; h < latent->heads; h++) {
    int64_t column = h * (latent->nope + latent->v);
    join_keys(latent, cpu_matrix_at(expanded, 0, column), keys);
    head.value = cpu_matrix_at(expanded, 0, column + latent->nope);
    head.query.data = (char *)latent->query.data + h * latent->query_head;
    head.out = cpu_matrix_at(latent->out, 0, h * latent->v);
    parts->attend(&head, scratch);
  }
}

fl_status cpu_latent_attend(const cpu_attention_parts *parts, const cpu_latent *latent) {
  cpu_dtype dtype = latent->query.dtype;
  int64_t columns = latent->heads * (latent->nope + latent->v), size = latent->nope + latent->rope;
  cpu_head largest = {
      .queries = latent->tokens, .keys = latent->keys, .size = size, .value_size = latent->v, .offset = latent->offset};
  size_t item = (size_t)cpu_dtype_size(dtype), keys = (size_t)latent->keys;
  float *scratch = cpu_floats_alloc(parts->scratch(&largest));
  cpu_matrix expanded = cpu_matrix_in(malloc(keys * (size_t)columns * item + 1), dtype, columns);
  cpu_matrix joined = cpu_matrix_in(malloc(keys * (size_t)size * item + 1), dtype, size);
  fl_status status = scratch && expanded.data && joined.data ? FL_OK : FL_ENOMEM;
  if (!status)
    status = parts->linear(latent->keys, columns, latent->rank, latent->kv_c, latent->kv_b_proj, expanded);
  if (!status)
    attend_heads(parts, latent, expanded, joined, scratch);
  free(scratch);
  free(expanded.data);
  free(joined.data);
  return status;
}

fl_status cpu_mla_prefill(void *self, fl_call *call) {
  enum { QUERY, KV_C, K_PE, KV_B_PROJ, V_HEAD_DIM, SCALE, QUERY_OFFSET, OUT };
  const DLTensor *query = cpu_tensor(call, QUERY), *k_pe = cpu_tensor(call, K_PE);
  cpu_dtype dtype = cpu_dtype_of(query);
  int64_t item = query->dtype.bits / 8, rope = k_pe->shape[k_pe->ndim - 1];
  for (uint32_t i = KV_C; i <= KV_B_PROJ; i++)
    if (dtype == CPU_OTHER || cpu_dtype_of(cpu_tensor(call, i)) != dtype)
      return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16, and the same, expected");
  cpu_latent latent = {
      .tokens = query->shape[0],
      .keys = k_pe->shape[0],
      .heads = query->shape[1],
      .nope = query->shape[2] - rope,
      .rope = rope,
      .v = call->values[V_HEAD_DIM].v.i,
      .rank = cpu_tensor(call, KV_C)->shape[1],
      .query = {fl_data(query), dtype, fl_stride(query, 0) * item},
      .kv_c = cpu_matrix_of(cpu_tensor(call, KV_C)),
      .k_pe = {fl_data(k_pe), dtype, fl_stride(k_pe, 0) * item},
      .kv_b_proj = cpu_matrix_of(cpu_tensor(call, KV_B_PROJ)),
      .out = cpu_matrix_of(cpu_tensor(call, OUT)),
      .query_head = fl_stride(query, 1) * item,
      .scale = call->values[SCALE].v.f,
      .offset = call->values[QUERY_OFFSET].v.i,
  };
  fl_status status = latent.tokens ? cpu_latent_attend(self, &latent) : FL_OK;
  return status ? fl_fail(call, status, "out of memory") : FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- pages */

int64_t cpu_pages_length(const cpu_pages *pages, int64_t sequence) {
  return cpu_index(pages->lens, sequence);
}

void *cpu_pages_row(const cpu_pages *pages, int64_t sequence, int64_t row, int64_t *run) {
  const DLTensor *cache = pages->cache;
  int64_t block = cpu_index_at(pages->table, sequence, row / pages->size), in_block = row % pages->size;
  *run = pages->size - in_block;
  return (char *)fl_data(cache) +
         (block * fl_stride(cache, 0) + in_block * fl_stride(cache, 1)) * (cache->dtype.bits / 8);
}

fl_status cpu_pages_check(fl_call *call, const cpu_pages *pages, int64_t least) {
  int64_t blocks = pages->cache->shape[0], columns = pages->table->shape[1], room;
  if (__builtin_mul_overflow(columns, pages->size, &room))
    room = INT64_MAX;
  fl_status status =
      cpu_check_index_list(call, "seq_lens", pages->lens, least, room, "rows in blocks of 'block_table'");
  for (int64_t sequence = 0; sequence < pages->lens->shape[0] && !status; sequence++) {
    int64_t length = cpu_pages_length(pages, sequence);
    for (int64_t i = 0; i * pages->size < length && !status; i++) {
      int64_t block = cpu_index_at(pages->table, sequence, i);
      if (block < 0 || block >= blocks)
        status = fl_fail(call, FL_EINVAL,
                         "argument 'block_table'[%lld, %lld] is %lld, expected 0 to %lld (blocks of 'kv_cache')",
                         (long long)sequence, (long long)i, (long long)block, (long long)blocks - 1);
    }
  }
  return status;
}

fl_status cpu_decode_read(fl_call *call, cpu_decode *decode) {
  enum { QUERY, KV_CACHE, BLOCK_TABLE, SEQ_LENS, SCALE, KV_LORA_RANK, OUT, LSE };
  const DLTensor *query = cpu_tensor(call, QUERY), *cache = cpu_tensor(call, KV_CACHE);
  *decode = (cpu_decode){
      .query = query,
      .out = cpu_tensor(call, OUT),
      .lse = cpu_tensor(call, LSE),
      .pages = {cache, cpu_tensor(call, BLOCK_TABLE), cpu_tensor(call, SEQ_LENS), cache->shape[1]},
      .dtype = cpu_dtype_of(query),
      .heads = query->shape[1],
      .size = query->shape[2],
      .rank = call->values[KV_LORA_RANK].v.i,
      .scale = call->values[SCALE].v.f,
  };
  if (decode->dtype == CPU_OTHER || cpu_dtype_of(cache) != decode->dtype)
    return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16, and the same, expected");
  return cpu_pages_check(call, &decode->pages, 0);
}
