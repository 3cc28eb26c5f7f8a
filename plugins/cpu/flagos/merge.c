/*
 * merge_attn_states: the results of attention over two parts of the keys, weighed by what was under each one's softmax.
 * Large values may cancel: products are rounded before they are added (plugin.mk), as in the reference.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/matrix.h"
#include "plugins/cpu/parallel.h"
#include "plugins/cpu/rows.h"

#include <math.h>
#include <string.h>

typedef struct merge {
  const DLTensor *prefix, *prefix_lse, *suffix, *suffix_lse, *out, *lse;
  cpu_dtype dtype;
  int64_t heads, size;
} merge;

typedef struct merge_weights {
  float prefix, suffix, lse;
} merge_weights;

static merge_weights weigh(float prefix_lse, float suffix_lse) {
  prefix_lse = prefix_lse == INFINITY ? -INFINITY : prefix_lse;
  suffix_lse = suffix_lse == INFINITY ? -INFINITY : suffix_lse;
  float most = fmaxf(prefix_lse, suffix_lse);
  float prefix = expf(prefix_lse - most), suffix = expf(suffix_lse - most), sum = prefix + suffix;
  if (most == -INFINITY)
    return (merge_weights){1, 0, most};
  return (merge_weights){prefix / sum, suffix / sum, logf(sum) + most};
}

static void merge_head(cpu_dtype dtype, int64_t size, const merge_weights *weights, const void *prefix,
                       const void *suffix, void *out) {
  const cpu_block_type *type = &cpu_block_types[dtype];
  float a[CPU_BLOCK], b[CPU_BLOCK];
  for (int64_t first = 0; first < size; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(size - first);
    type->load(a, prefix, first, n);
    type->load(b, suffix, first, n);
    for (int64_t i = 0; i < n; i++)
      a[i] = a[i] * weights->prefix + b[i] * weights->suffix;
    type->store(out, first, a, n);
  }
}

/* Heads of tokens. */
static fl_status merge_heads(void *user, int64_t first, int64_t end) {
  const merge *m = user;
  for (int64_t i = first; i < end; i++) {
    int64_t token = i / m->heads, head = i % m->heads;
    merge_weights weights =
        weigh(*(float *)cpu_tensor_at(m->prefix_lse, head, token), *(float *)cpu_tensor_at(m->suffix_lse, head, token));
    const void *from = cpu_tensor_at(m->prefix, token, head);
    void *out = cpu_tensor_at(m->out, token, head);
    if (weights.lse == -INFINITY) /* whatever the suffix holds */
      memcpy(out, from, (size_t)(m->size * cpu_dtype_size(m->dtype)));
    else
      merge_head(m->dtype, m->size, &weights, from, cpu_tensor_at(m->suffix, token, head), out);
    *(float *)cpu_tensor_at(m->lse, head, token) = weights.lse;
  }
  return FL_OK;
}

/* merge_attn_states(prefix_output, prefix_lse, suffix_output, suffix_lse) -> (out, lse) */
static fl_status merge_attn_states(void *self, fl_call *call) {
  const DLTensor *prefix = cpu_tensor(call, 0);
  merge m = {.prefix = prefix,
             .prefix_lse = cpu_tensor(call, 1),
             .suffix = cpu_tensor(call, 2),
             .suffix_lse = cpu_tensor(call, 3),
             .out = cpu_tensor(call, 4),
             .lse = cpu_tensor(call, 5),
             .dtype = cpu_dtype_of(prefix),
             .heads = prefix->shape[1],
             .size = prefix->shape[2]};
  (void)self;
  if (m.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "prefix_output");
  int64_t bytes = 3 * m.size * cpu_dtype_size(m.dtype);
  return cpu_parallel_for(prefix->shape[0] * m.heads, cpu_grain(bytes), merge_heads, &m);
}

static const fl_impl ops[] = {
    {.op_name = "merge_attn_states", CPU_FLAGOS, .fn = merge_attn_states},
};
OP_LIST(ops);
