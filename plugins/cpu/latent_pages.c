/*
 * Latent attention over a paged cache, and the write of its rows. A sequence of several new tokens has keys and values
 * made of its gathered rows; single tokens stay in the latent space.
 */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/state_space.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/scratch.h"

#include <string.h>

static fl_status out_of_memory(fl_call *call) {
  return fl_fail(call, FL_ENOMEM, "out of memory");
}

fl_status cpu_latent_attend_pages(fl_call *call, const cpu_attention_parts *parts, const cpu_latent *all,
                                  const cpu_pages *pages, int64_t sequence, int64_t first, int64_t n) {
  cpu_dtype dtype = all->query.dtype;
  cpu_latent latent = *all;
  int64_t row = all->rank + all->rope, run;
  latent.tokens = n;
  latent.keys = cpu_pages_length(pages, sequence);
  latent.kv_c = cpu_matrix_in(cpu_scratch_take_bytes((size_t)(latent.keys * row * cpu_dtype_size(dtype))), dtype, row);
  if (!latent.kv_c.data)
    return out_of_memory(call);
  for (int64_t i = 0; i < latent.keys; i++)
    memcpy(cpu_matrix_row(latent.kv_c, i), cpu_pages_row(pages, sequence, i, &run), (size_t)latent.kv_c.stride);
  latent.k_pe = cpu_matrix_at(latent.kv_c, 0, all->rank);
  latent.query = cpu_matrix_at(all->query, first, 0);
  latent.out = cpu_matrix_at(all->out, first, 0);
  latent.offset = latent.keys - n;
  fl_status status = cpu_latent_attend(parts, &latent);
  cpu_scratch_give(latent.kv_c.data);
  return status ? out_of_memory(call) : FL_OK;
}

/* --------------------------------------------------------------------------------------------- in the latent space */

/* Per head: the query into the latent space, [q_nope W_UK | q_pe]. */
static fl_status absorb(const cpu_attention_parts *parts, const cpu_latent *of, cpu_matrix queries) {
  int64_t row = of->rank + of->rope, item = cpu_dtype_size(of->query.dtype);
  for (int64_t head = 0; head < of->heads; head++) {
    cpu_matrix query = of->query, out = cpu_matrix_at(queries, 0, head * row);
    query.data = (char *)query.data + head * of->query_head;
    if (parts->product(of->tokens, of->rank, of->nope, query,
                       cpu_matrix_at(of->kv_b_proj, head * (of->nope + of->v), 0), out))
      return FL_ENOMEM;
    for (int64_t token = 0; token < of->tokens; token++)
      memcpy(cpu_matrix_row(cpu_matrix_at(out, 0, of->rank), token),
             cpu_matrix_row(cpu_matrix_at(query, 0, of->nope), token), (size_t)(of->rope * item));
  }
  return FL_OK;
}

/* Per head: the result out of the latent space, o W_UV. */
static fl_status expand(const cpu_attention_parts *parts, const cpu_latent *of, cpu_matrix results) {
  for (int64_t head = 0; head < of->heads; head++)
    if (parts->linear(of->tokens, of->v, of->rank, cpu_matrix_at(results, 0, head * of->rank),
                      cpu_matrix_at(of->kv_b_proj, head * (of->nope + of->v) + of->nope, 0),
                      cpu_matrix_at(of->out, 0, head * of->v)))
      return FL_ENOMEM;
  return FL_OK;
}

/* A tensor [tokens, heads, columns] over a matrix without gaps. */
static DLTensor by_heads(cpu_matrix matrix, DLDataType type, int64_t shape[static 3]) {
  return (DLTensor){.data = matrix.data, .device = {kDLCPU, 0}, .ndim = 3, .dtype = type, .shape = shape};
}

/* Rows `from` to `from` + `n` of an index. `shape` is where its sizes go. */
static DLTensor rows_of(const DLTensor *index, int64_t from, int64_t n, int64_t *shape) {
  DLTensor rows = *index;
  memcpy(shape, index->shape, (size_t)index->ndim * sizeof *shape);
  shape[0] = n;
  rows.shape = shape;
  rows.byte_offset += (uint64_t)(from * fl_stride(index, 0) * (index->dtype.bits / 8));
  return rows;
}

static fl_status decode(fl_call *call, const cpu_attention_parts *parts, const cpu_latent *of, const cpu_pages *pages,
                        int64_t sequence, cpu_matrix queries, cpu_matrix results, float *lse) {
  static const DLDataType float32 = {kDLFloat, 32, 1};
  int64_t n = of->tokens, query_shape[] = {n, of->heads, of->rank + of->rope}, out_shape[] = {n, of->heads, of->rank};
  int64_t lse_shape[] = {n, of->heads}, table_shape[2], lens_shape[1];
  DLTensor query = by_heads(queries, pages->cache->dtype, query_shape), cache = *pages->cache;
  DLTensor out = by_heads(results, pages->cache->dtype, out_shape);
  DLTensor table = rows_of(pages->table, sequence, n, table_shape);
  DLTensor lens = rows_of(pages->lens, sequence, n, lens_shape);
  DLTensor lse_tensor = {.data = lse, .device = {kDLCPU, 0}, .ndim = 2, .dtype = float32, .shape = lse_shape};
  fl_value values[] = {fl_tensor(&query),   fl_tensor(&cache), fl_tensor(&table), fl_tensor(&lens),
                       fl_float(of->scale), fl_int(of->rank),  fl_tensor(&out),   fl_tensor(&lse_tensor)};
  return cpu_call_part(call, parts->mla_decode, NULL, values, sizeof values / sizeof values[0]);
}

fl_status cpu_latent_decode(fl_call *call, const cpu_attention_parts *parts, const cpu_latent *all,
                            const cpu_pages *pages, int64_t sequence, int64_t first, int64_t n) {
  cpu_dtype dtype = all->query.dtype;
  cpu_latent latent = *all;
  size_t item = (size_t)cpu_dtype_size(dtype), rows = (size_t)(n * all->heads);
  int64_t row = all->rank + all->rope;
  float *lse = cpu_scratch_take_bytes(rows * (sizeof *lse + (size_t)(row + all->rank) * item));
  if (!lse)
    return out_of_memory(call);
  cpu_matrix queries = cpu_matrix_in(lse + rows, dtype, all->heads * row);
  cpu_matrix results = cpu_matrix_in((char *)queries.data + rows * (size_t)row * item, dtype, all->heads * all->rank);
  latent.tokens = n;
  latent.query = cpu_matrix_at(all->query, first, 0);
  latent.out = cpu_matrix_at(all->out, first, 0);
  fl_status status = absorb(parts, &latent, queries) ? out_of_memory(call) : FL_OK;
  if (!status)
    status = decode(call, parts, &latent, pages, sequence, queries, results, lse);
  if (!status && expand(parts, &latent, results))
    status = out_of_memory(call);
  cpu_scratch_give(lse);
  return status;
}

/* --------------------------------------------------------------------------------------------- mla_paged_attention */

/* Each sequence has the tokens that it is given, at least. */
static fl_status check_lengths(fl_call *call, const cpu_sequences *sequences, const cpu_pages *pages) {
  for (int64_t i = 0; i < sequences->n; i++) {
    int64_t tokens = cpu_sequence_at(sequences, i).length, length = cpu_pages_length(pages, i);
    if (length < tokens)
      return fl_fail(call, FL_EINVAL,
                     "argument 'seq_lens'[%lld] is %lld, expected %lld or more (tokens of the sequence)", (long long)i,
                     (long long)length, (long long)tokens);
  }
  return cpu_pages_check(call, pages, 0);
}

/* mla_paged_attention(query, kv_cache, kv_b_proj, block_table, query_start_loc, seq_lens, kv_lora_rank, v_head_dim,
 * scale) -> out */
fl_status cpu_mla_paged_attention(void *self, fl_call *call) {
  enum { QUERY, KV_CACHE, KV_B_PROJ, BLOCK_TABLE, QUERY_START_LOC, SEQ_LENS, KV_LORA_RANK, V_HEAD_DIM, SCALE, OUT };
  const DLTensor *query = cpu_tensor(call, QUERY), *cache = cpu_tensor(call, KV_CACHE);
  const DLTensor *starts = cpu_tensor(call, QUERY_START_LOC);
  cpu_dtype dtype = cpu_dtype_of(query);
  int64_t item = cpu_dtype_size(dtype), rank = call->values[KV_LORA_RANK].v.i, rope = cache->shape[2] - rank;
  const cpu_sequences sequences = {.n = starts->shape[0] - 1, .tokens = query->shape[0], .starts = starts};
  const cpu_pages pages = {cache, cpu_tensor(call, BLOCK_TABLE), cpu_tensor(call, SEQ_LENS), cache->shape[1]};
  if (dtype == CPU_OTHER || cpu_dtype_of(cache) != dtype || cpu_dtype_of(cpu_tensor(call, KV_B_PROJ)) != dtype)
    return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16, and the same, expected");
  const cpu_latent all = {.tokens = query->shape[0],
                          .heads = query->shape[1],
                          .nope = query->shape[2] - rope,
                          .rope = rope,
                          .v = call->values[V_HEAD_DIM].v.i,
                          .rank = rank,
                          .query = {fl_data(query), dtype, fl_stride(query, 0) * item},
                          .kv_b_proj = cpu_matrix_of(cpu_tensor(call, KV_B_PROJ)),
                          .out = cpu_matrix_of(cpu_tensor(call, OUT)),
                          .query_head = fl_stride(query, 1) * item,
                          .scale = call->values[SCALE].v.f};
  fl_status status = cpu_sequences_check(call, &sequences);
  if (!status)
    status = check_lengths(call, &sequences, &pages);
  for (int64_t i = 0, n; i < sequences.n && !status; i += n) {
    cpu_sequence s = cpu_sequence_at(&sequences, i);
    n = 1;
    while (s.length == 1 && i + n < sequences.n && cpu_sequence_at(&sequences, i + n).length == 1)
      n++;
    if (s.length == 1)
      status = cpu_latent_decode(call, self, &all, &pages, i, s.begin, n);
    else if (s.length)
      status = cpu_latent_attend_pages(call, self, &all, &pages, i, s.begin, s.length);
  }
  for (int64_t token = status ? all.tokens : cpu_sequences_end(&sequences); token < all.tokens; token++)
    memset(cpu_matrix_row(all.out, token), 0, (size_t)(all.heads * all.v * item));
  return status;
}

/* -------------------------------------------------------------------------------------------- concat_and_cache_mla */

fl_status cpu_concat_and_cache_mla(void *self, fl_call *call) {
  enum { KV_C, K_PE, KV_CACHE, SLOT_MAPPING };
  const DLTensor *kv_c = cpu_tensor(call, KV_C), *k_pe = cpu_tensor(call, K_PE), *cache = cpu_tensor(call, KV_CACHE);
  const DLTensor *slots = cpu_tensor(call, SLOT_MAPPING);
  int64_t item = cache->dtype.bits / 8, size = cache->shape[1], blocks = cache->shape[0];
  size_t latent = (size_t)(kv_c->shape[1] * item), rope = (size_t)(k_pe->shape[k_pe->ndim - 1] * item);
  (void)self;
  fl_status status = cpu_check_index_list(call, "slot_mapping", slots, INT64_MIN, blocks * size - 1,
                                          "rows of 'kv_cache'; below 0: skipped");
  for (int64_t i = 0; i < slots->shape[0] && !status; i++) {
    int64_t slot = cpu_index(slots, i);
    if (slot < 0)
      continue;
    char *row = cpu_tensor_at(cache, slot / size, slot % size);
    memcpy(row, cpu_tensor_at(kv_c, i, 0), latent);
    memcpy(row + latent, (char *)fl_data(k_pe) + i * fl_stride(k_pe, 0) * item, rope);
  }
  return status;
}
