/* Latent attention: mla_prefill by heads, and the paged cache of mla_decode. */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/scratch.h"

/* --------------------------------------------------------------------------------------------------------- prefill */

typedef struct prefill {
  const cpu_latent *latent;
  cpu_matrix expanded; /* [keys, heads * (nope + v)]: what kv_b_proj makes of the latent */
  cpu_head head;       /* what all have in common */
} prefill;

static cpu_head head_at(const void *user, int64_t i) {
  const prefill *p = user;
  int64_t column = i * (p->latent->nope + p->latent->v);
  cpu_head head = p->head;
  head.query.data = (char *)p->latent->query.data + i * p->latent->query_head;
  head.key = cpu_matrix_at(p->expanded, 0, column);
  head.value = cpu_matrix_at(p->expanded, 0, column + p->latent->nope);
  head.out = cpu_matrix_at(p->latent->out, 0, i * p->latent->v);
  return head;
}

fl_status cpu_latent_attend(const cpu_attention_parts *parts, const cpu_latent *latent) {
  cpu_dtype dtype = latent->query.dtype;
  int64_t columns = latent->heads * (latent->nope + latent->v);
  size_t bytes = (size_t)latent->keys * (size_t)columns * (size_t)cpu_dtype_size(dtype);
  void *expanded = cpu_scratch_take_bytes(bytes);
  if (!expanded)
    return FL_ENOMEM;
  const prefill all = {.latent = latent,
                       .expanded = cpu_matrix_in(expanded, dtype, columns),
                       .head = {.queries = latent->tokens,
                                .keys = latent->keys,
                                .size = latent->nope + latent->rope,
                                .value_size = latent->v,
                                .query = latent->query,
                                .shared_size = latent->rope,
                                .shared_key = latent->k_pe,
                                .scale = latent->scale,
                                .offset = latent->offset}};
  const cpu_head_list heads = {latent->heads, all.head, head_at, &all};
  fl_status status = parts->linear(latent->keys, columns, latent->rank, latent->kv_c, latent->kv_b_proj, all.expanded);
  if (!status)
    status = parts->attend(&heads);
  cpu_scratch_give(expanded);
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
