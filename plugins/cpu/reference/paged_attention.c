/* Attention over a paged cache, one query after the other: scores, softmax and sum in double, one rounding; and the
 * cache's rows, one after the other. */
#include "plugins/cpu/paged_attention.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/matrix.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>

/* Number i of a row of the cache. */
static float load_cached(const cpu_cache *cache, const void *row, int64_t i, int64_t head) {
  if (cache->scale)
    return fl_e4m3fn_to_float(((const uint8_t *)row)[i]) * cpu_cache_scale(cache, head);
  return load(cache->dtype, row, i);
}

/* One head of query j. */
typedef struct attended {
  const cpu_paged *paged;
  const cpu_paged_sequence *sequence;
  int64_t query, head, kv_head;
} attended;

static double score(const attended *a, int64_t token) {
  const cpu_paged *paged = a->paged;
  int64_t run, position = a->sequence->length - a->sequence->queries + a->query;
  const void *query = cpu_tensor_at(paged->query, a->sequence->first + a->query, a->head);
  const void *key = cpu_paged_row(paged, &paged->keys, a->sequence, token, a->kv_head, &run);
  double sum = 0;
  for (int64_t i = 0; i < paged->size; i++)
    sum += (double)load(paged->dtype, query, i) * (double)load_cached(&paged->keys, key, i, a->kv_head);
  sum *= (double)paged->scale;
  if (paged->soft_cap > 0)
    sum = (double)paged->soft_cap * tanh(sum / (double)paged->soft_cap);
  if (paged->slopes)
    sum += (double)load(CPU_FLOAT32, fl_data(paged->slopes), a->head) * (double)(token - position);
  return sum;
}

static void attend(const attended *a, double *weights) {
  const cpu_paged *paged = a->paged;
  cpu_token_range visible = cpu_paged_visible(paged, a->sequence, a->query);
  int64_t n = visible.end - visible.begin, token = a->sequence->first + a->query, run;
  double sink = paged->sinks ? (double)load(cpu_dtype_of(paged->sinks), fl_data(paged->sinks), a->head) : -INFINITY;
  double most = sink;
  for (int64_t i = 0; i < n; i++) {
    weights[i] = score(a, visible.begin + i);
    most = weights[i] > most ? weights[i] : most;
  }
  double total = paged->sinks ? exp(sink - most) : 0;
  for (int64_t i = 0; i < n; i++) {
    weights[i] = exp(weights[i] - most);
    total += weights[i];
  }
  for (int64_t i = 0; i < paged->size; i++) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
      const void *value = cpu_paged_row(paged, &paged->values, a->sequence, visible.begin + j, a->kv_head, &run);
      sum += weights[j] / total * (double)load_cached(&paged->values, value, i, a->kv_head);
    }
    store(paged->dtype, cpu_tensor_at(paged->out, token, a->head), i, (float)sum);
  }
  *(float *)cpu_tensor_at(paged->lse, a->head, token) = (float)(most + log(total));
}

static int64_t longest_of(const cpu_paged *paged) {
  int64_t longest = 0;
  for (int64_t i = 0; i < paged->sequences; i++) {
    int64_t length = cpu_paged_sequence_at(paged, i).length;
    longest = length > longest ? length : longest;
  }
  return longest;
}

static fl_status paged_attention(void *self, fl_call *call) {
  cpu_paged paged;
  fl_status status = cpu_paged_read(call, &paged);
  (void)self;
  if (status)
    return status;
  double *weights = cpu_scratch_take_bytes((size_t)longest_of(&paged) * sizeof *weights);
  if (!weights)
    return fl_fail(call, FL_ENOMEM, "out of memory");
  for (int64_t i = 0; i < paged.sequences; i++) {
    cpu_paged_sequence sequence = cpu_paged_sequence_at(&paged, i);
    for (int64_t query = 0; query < sequence.queries; query++)
      for (int64_t head = 0; head < paged.heads; head++)
        attend(&(attended){&paged, &sequence, query, head, head / (paged.heads / paged.kv_heads)}, weights);
  }
  cpu_scratch_give(weights);
  cpu_paged_clear_padding(&paged);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- cache */

static void write_row(const cpu_cache_write *write, const DLTensor *from, const cpu_cache *cache, int64_t token,
                      int64_t slot) {
  for (int64_t head = 0; head < write->heads; head++) {
    const void *row = cpu_tensor_at(from, token, head);
    void *to = cpu_cache_at(cache, slot / write->block_size, slot % write->block_size, head);
    if (!cache->scale) {
      memcpy(to, row, (size_t)(write->size * cpu_dtype_size(write->dtype)));
      continue;
    }
    float scale = cpu_cache_scale(cache, head);
    for (int64_t i = 0; i < write->size; i++) /* the conversion clamps */
      ((uint8_t *)to)[i] = fl_float_to_e4m3fn(load(write->dtype, row, i) / scale);
  }
}

/* reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, k_scale, v_scale) -> () */
static fl_status reshape_and_cache(void *self, fl_call *call) {
  cpu_cache_write write;
  fl_status status = cpu_cache_write_read(call, &write);
  (void)self;
  for (int64_t token = 0; token < write.tokens && !status; token++) {
    int64_t slot = cpu_index(write.slots, token);
    if (slot < 0)
      continue;
    write_row(&write, write.key, &write.keys, token, slot);
    write_row(&write, write.value, &write.values, token, slot);
  }
  return status;
}

static const fl_impl ops[] = {
    {.op_name = "paged_attention", CPU_REFERENCE, .fn = paged_attention},
    {.op_name = "reshape_and_cache", CPU_REFERENCE, .fn = reshape_and_cache},
};
OP_LIST(ops);
