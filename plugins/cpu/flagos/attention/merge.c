/*
 * merge_attn_states: the results of attention over two parts of the keys, weighed by what was under each one's softmax.
 * Large values may cancel: products are rounded before they are added (plugin.mk), as in the reference.
 */
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"

#include <math.h>
#include <string.h>

/* Where a token's head lies; strides in bytes. */
typedef struct places {
  char *data;
  int64_t token, head;
} places;

typedef struct merge {
  places prefix, suffix, out;         /* rows */
  places prefix_lse, suffix_lse, lse; /* numbers */
  cpu_dtype dtype;
  int64_t heads, size;
  bool around; /* the caches, where a head's results begin with a line of theirs */
} merge;

typedef struct merge_weights {
  float prefix, suffix, lse;
} merge_weights;

static merge_weights weigh(float prefix_lse, float suffix_lse) {
  prefix_lse = prefix_lse == INFINITY ? -INFINITY : prefix_lse;
  suffix_lse = suffix_lse == INFINITY ? -INFINITY : suffix_lse;
  float most = fmaxf(prefix_lse, suffix_lse);
  if (most == -INFINITY)
    return (merge_weights){1, 0, most};
  float prefix = prefix_lse == most ? 1.0f : expf(prefix_lse - most);
  float suffix = suffix_lse == most ? 1.0f : expf(suffix_lse - most), sum = prefix + suffix;
  return (merge_weights){prefix / sum, suffix / sum, logf(sum) + most};
}

/* A head's elements: of both parts, and of the result. */
typedef struct merged_head {
  const void *prefix, *suffix;
  void *out;
  int64_t size;
  bool around;
} merged_head;

CPU_TEMPLATE void merge_chunk(cpu_dtype dtype, const merge_weights *weights, const merged_head *head, int64_t first,
                              int64_t n) {
  float a[CPU_CHUNK], b[CPU_CHUNK];
  cpu_load_next(dtype, a, head->prefix, first, n);
  cpu_load_next(dtype, b, head->suffix, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    a[i] = a[i] * weights->prefix + b[i] * weights->suffix;
  cpu_store_around(dtype, head->out, first, a, n, head->around);
}

CPU_TEMPLATE void merge_as(cpu_dtype dtype, const merge_weights *weights, const merged_head *of) {
  const merged_head head = *of;
  int64_t i = 0;
  for (; i + CPU_CHUNK <= head.size; i += CPU_CHUNK)
    merge_chunk(dtype, weights, &head, i, CPU_CHUNK);
  if (i < head.size)
    merge_chunk(dtype, weights, &head, i, head.size - i);
}

static void merge_head(cpu_dtype dtype, const merge_weights *weights, const merged_head *head) {
  if (dtype == CPU_FLOAT32)
    merge_as(CPU_FLOAT32, weights, head);
  else if (dtype == CPU_FLOAT16)
    merge_as(CPU_FLOAT16, weights, head);
  else
    merge_as(CPU_BFLOAT16, weights, head);
}

static void *place_of(const places *all, int64_t token, int64_t head) {
  return all->data + token * all->token + head * all->head;
}

/* Heads of tokens. */
static fl_status merge_heads(void *user, int64_t first, int64_t end) {
  const merge *m = user;
  for (int64_t i = first; i < end; i++) {
    int64_t token = i / m->heads, head = i % m->heads;
    merge_weights weights = weigh(*(const float *)place_of(&m->prefix_lse, token, head),
                                  *(const float *)place_of(&m->suffix_lse, token, head));
    merged_head merged = {place_of(&m->prefix, token, head), place_of(&m->suffix, token, head),
                          place_of(&m->out, token, head), m->size, false};
    merged.around = m->around && !((uintptr_t)merged.out % 64);
    if (weights.lse == -INFINITY) /* whatever the suffix holds */
      memcpy(merged.out, merged.prefix, (size_t)(m->size * cpu_dtype_size(m->dtype)));
    else
      merge_head(m->dtype, &weights, &merged);
    *(float *)place_of(&m->lse, token, head) = weights.lse;
  }
  cpu_rows_written(m->around);
  return FL_OK;
}

static places places_of(const DLTensor *tensor, int token, int head) {
  int64_t item = tensor->dtype.bits / 8;
  return (places){fl_data(tensor), fl_stride(tensor, token) * item, fl_stride(tensor, head) * item};
}

/* merge_attn_states(prefix_output, prefix_lse, suffix_output, suffix_lse) -> (out, lse) */
static fl_status merge_attn_states(void *self, fl_call *call) {
  enum { PREFIX, PREFIX_LSE, SUFFIX, SUFFIX_LSE, OUT, LSE };
  const DLTensor *prefix = cpu_tensor(call, PREFIX);
  merge m = {.prefix = places_of(prefix, 0, 1),
             .suffix = places_of(cpu_tensor(call, SUFFIX), 0, 1),
             .out = places_of(cpu_tensor(call, OUT), 0, 1),
             .prefix_lse = places_of(cpu_tensor(call, PREFIX_LSE), 1, 0),
             .suffix_lse = places_of(cpu_tensor(call, SUFFIX_LSE), 1, 0),
             .lse = places_of(cpu_tensor(call, LSE), 1, 0),
             .dtype = cpu_dtype_of(prefix),
             .heads = prefix->shape[1],
             .size = prefix->shape[2]};
  (void)self;
  if (m.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "prefix_output");
  const int64_t n = prefix->shape[0] * m.heads, bytes = m.size * cpu_dtype_size(m.dtype);
  m.around = cpu_rows_outgrow_caches(n * bytes);
  return cpu_parallel_for(n, cpu_grain(3 * bytes), merge_heads, &m);
}

static const fl_impl ops[] = {
    {.op_name = "merge_attn_states", CPU_FLAGOS, .fn = merge_attn_states},
};
OP_LIST(ops);
