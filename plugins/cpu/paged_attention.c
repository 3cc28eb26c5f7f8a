/* Calls of paged_attention and reshape_and_cache taken apart: see paged_attention.h. */
#include "plugins/cpu/paged_attention.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/matrix.h"

#include <math.h>
#include <string.h>

static bool is_float8(const DLTensor *tensor) {
  return tensor->dtype.code == FL_DTYPE_FLOAT8_E4M3FN;
}

static cpu_cache read_cache(const DLTensor *tensor, const DLTensor *scale) {
  return (cpu_cache){tensor, is_float8(tensor) ? scale : NULL, cpu_dtype_of(tensor)};
}

/* A cache of the activations' type, or of float8 with its scale. */
static fl_status check_cache(fl_call *call, const char *name, const cpu_cache *cache, cpu_dtype dtype) {
  if (dtype == CPU_OTHER || (cache->scale ? !is_float8(cache->tensor) : cache->dtype != dtype))
    return fl_fail(call, FL_ENOTSUP,
                   "element type of '%s': that of the activations, float32, float16 or bfloat16, or float8_e4m3fn with "
                   "a scale expected",
                   name);
  return FL_OK;
}

static fl_status check_caches(fl_call *call, const cpu_cache *keys, const cpu_cache *values, cpu_dtype dtype) {
  fl_status status = check_cache(call, "key_cache", keys, dtype);
  return status ? status : check_cache(call, "value_cache", values, dtype);
}

/* ------------------------------------------------------------------------------------------------------- attention */

static fl_status check_starts(fl_call *call, const cpu_paged *paged) {
  int64_t before = 0;
  for (int64_t i = 0; i <= paged->sequences; i++) {
    int64_t start = cpu_index(paged->starts, i), most = i ? paged->tokens : 0;
    if (start < before || start > most)
      return fl_fail(call, FL_EINVAL, "argument 'query_start_loc'[%lld] is %lld, expected %lld to %lld (%s)",
                     (long long)i, (long long)start, (long long)before, (long long)most,
                     i ? "the one before and the tokens of 'query'" : "the start");
    before = start;
  }
  return FL_OK;
}

static fl_status check_lengths(fl_call *call, const cpu_paged *paged) {
  int64_t room;
  if (__builtin_mul_overflow(paged->table->shape[1], paged->block_size, &room))
    room = INT64_MAX;
  for (int64_t i = 0; i < paged->sequences; i++) {
    cpu_paged_sequence sequence = cpu_paged_sequence_at(paged, i);
    if (sequence.length < sequence.queries || sequence.length > room)
      return fl_fail(call, FL_EINVAL,
                     "argument 'seq_lens'[%lld] is %lld, expected %lld to %lld (the sequence's tokens of 'query' and "
                     "rows in blocks of 'block_table')",
                     (long long)i, (long long)sequence.length, (long long)sequence.queries, (long long)room);
  }
  return FL_OK;
}

/* Those of the sequences that have queries: of others nothing is read. */
static fl_status check_blocks(fl_call *call, const cpu_paged *paged) {
  int64_t blocks = paged->keys.tensor->shape[0];
  for (int64_t i = 0; i < paged->sequences; i++) {
    cpu_paged_sequence sequence = cpu_paged_sequence_at(paged, i);
    for (int64_t j = 0, token = 0; sequence.queries && token < sequence.length; j++, token += paged->block_size) {
      int64_t block = cpu_index_at(paged->table, i, j);
      if (block < 0 || block >= blocks)
        return fl_fail(call, FL_EINVAL,
                       "argument 'block_table'[%lld, %lld] is %lld, expected 0 to %lld (blocks of 'key_cache')",
                       (long long)i, (long long)j, (long long)block, (long long)blocks - 1);
    }
  }
  return FL_OK;
}

fl_status cpu_paged_read(fl_call *call, cpu_paged *paged) {
  enum { QUERY, KEY_CACHE, VALUE_CACHE, TABLE, STARTS, LENS, SCALE, CAUSAL, LEFT, RIGHT, SOFT_CAP };
  enum { SLOPES = SOFT_CAP + 1, SINKS, K_SCALE, V_SCALE, OUT, LSE };
  const DLTensor *query = cpu_tensor(call, QUERY), *keys = cpu_tensor(call, KEY_CACHE);
  *paged = (cpu_paged){
      .query = query,
      .out = cpu_tensor(call, OUT),
      .lse = cpu_tensor(call, LSE),
      .table = cpu_tensor(call, TABLE),
      .starts = cpu_tensor(call, STARTS),
      .lens = cpu_tensor(call, LENS),
      .slopes = cpu_tensor(call, SLOPES),
      .sinks = cpu_tensor(call, SINKS),
      .keys = read_cache(keys, cpu_tensor(call, K_SCALE)),
      .values = read_cache(cpu_tensor(call, VALUE_CACHE), cpu_tensor(call, V_SCALE)),
      .dtype = cpu_dtype_of(query),
      .sequences = cpu_tensor(call, LENS)->shape[0],
      .tokens = query->shape[0],
      .heads = query->shape[1],
      .kv_heads = keys->shape[2],
      .size = query->shape[2],
      .block_size = keys->shape[1],
      .scale = (float)call->values[SCALE].v.f,
      .soft_cap = (float)call->values[SOFT_CAP].v.f,
      .causal = call->values[CAUSAL].v.b,
      .left = call->values[LEFT].v.i,
      .right = call->values[RIGHT].v.i,
  };
  fl_status status = check_caches(call, &paged->keys, &paged->values, paged->dtype);
  if (!status && paged->sinks && cpu_dtype_of(paged->sinks) == CPU_OTHER)
    status = cpu_wrong_type(call, "sinks");
  if (!status)
    status = check_starts(call, paged);
  if (!status)
    status = check_lengths(call, paged);
  return status ? status : check_blocks(call, paged);
}

cpu_paged_sequence cpu_paged_sequence_at(const cpu_paged *paged, int64_t i) {
  int64_t first = cpu_index(paged->starts, i);
  return (cpu_paged_sequence){i, first, cpu_index(paged->starts, i + 1) - first, cpu_index(paged->lens, i)};
}

cpu_token_range cpu_paged_visible(const cpu_paged *paged, const cpu_paged_sequence *sequence, int64_t query) {
  int64_t position = sequence->length - sequence->queries + query, behind = sequence->length - 1 - position;
  if (paged->causal)
    behind = 0;
  if (paged->right >= 0 && paged->right < behind)
    behind = paged->right;
  return (cpu_token_range){paged->left >= 0 && paged->left < position ? position - paged->left : 0,
                           position + behind + 1};
}

void *cpu_paged_row(const cpu_paged *paged, const cpu_cache *cache, const cpu_paged_sequence *sequence, int64_t token,
                    int64_t head, int64_t *run) {
  int64_t row = token % paged->block_size;
  *run = paged->block_size - row;
  return cpu_cache_at(cache, cpu_index_at(paged->table, sequence->index, token / paged->block_size), row, head);
}

void cpu_paged_clear_padding(const cpu_paged *paged) {
  size_t bytes = (size_t)(paged->size * cpu_dtype_size(paged->dtype));
  for (int64_t token = cpu_index(paged->starts, paged->sequences); token < paged->tokens; token++)
    for (int64_t head = 0; head < paged->heads; head++) {
      if (bytes)
        memset(cpu_tensor_at(paged->out, token, head), 0, bytes);
      *(float *)cpu_tensor_at(paged->lse, head, token) = -INFINITY;
    }
}

/* ----------------------------------------------------------------------------------------------------------- cache */

fl_status cpu_cache_write_read(fl_call *call, cpu_cache_write *write) {
  enum { KEY, VALUE, KEY_CACHE, VALUE_CACHE, SLOT_MAPPING, K_SCALE, V_SCALE };
  const DLTensor *key = cpu_tensor(call, KEY), *cache = cpu_tensor(call, KEY_CACHE);
  *write = (cpu_cache_write){
      .key = key,
      .value = cpu_tensor(call, VALUE),
      .slots = cpu_tensor(call, SLOT_MAPPING),
      .keys = read_cache(cache, cpu_tensor(call, K_SCALE)),
      .values = read_cache(cpu_tensor(call, VALUE_CACHE), cpu_tensor(call, V_SCALE)),
      .dtype = cpu_dtype_of(key),
      .tokens = cpu_tensor(call, SLOT_MAPPING)->shape[0],
      .heads = key->shape[1],
      .size = key->shape[2],
      .block_size = cache->shape[1],
  };
  int64_t rows;
  if (__builtin_mul_overflow(cache->shape[0], cache->shape[1], &rows))
    rows = INT64_MAX;
  fl_status status = check_caches(call, &write->keys, &write->values, write->dtype);
  for (int64_t i = 0; i < write->tokens && !status; i++) {
    int64_t slot = cpu_index(write->slots, i);
    if (slot >= rows)
      status = fl_fail(call, FL_EINVAL,
                       "argument 'slot_mapping'[%lld] is %lld, expected less than %lld (rows of 'key_cache'), or -1",
                       (long long)i, (long long)slot, (long long)rows);
  }
  return status;
}
