/* Scores of experts, vectorised, and the sum over experts, a block at a time. */
#include "plugins/cpu/moe_routing.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/rows.h"
#include "plugins/cpu/view.h"

#include <math.h>

static void softmax(float *values, int64_t n) {
  float largest = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++)
    largest = values[i] > largest ? values[i] : largest;
  for (int64_t i = 0; i < n; i++)
    values[i] = vector_exp(values[i] - largest);
  for (int64_t i = 0; i < n; i++)
    sum += values[i];
  for (int64_t i = 0; i < n; i++)
    values[i] /= sum;
}

void cpu_flagos_score(const cpu_routing *routing, const void *logits, float *scores) {
  cpu_block_types[routing->dtype].load(scores, logits, 0, routing->experts);
  if (!routing->sigmoid) {
    softmax(scores, routing->experts);
    return;
  }
  for (int64_t i = 0; i < routing->experts; i++)
    scores[i] = vector_sigmoid(scores[i]);
}

/* Adds up `k` rows that are `step` elements apart. */
static void sum_rows(const cpu_block_type *type, const void *x, int64_t k, int64_t step, void *out, int64_t n) {
  float sum[CPU_BLOCK], next[CPU_BLOCK];
  for (int64_t first = 0; first < n; first += CPU_BLOCK) {
    int64_t size = cpu_block_size(n - first);
    for (int64_t i = 0; i < size; i++)
      sum[i] = 0;
    for (int64_t j = 0; j < k; j++) {
      type->load(next, x, j * step + first, size);
      for (int64_t i = 0; i < size; i++)
        sum[i] += next[i];
    }
    type->store(out, first, sum, size);
  }
}

/* moe_sum(x [..., k, h]) -> out [..., h] */
static fl_status moe_sum(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, 1);
  cpu_view first;
  DLTensor *const tensors[] = {out, cpu_view_first(&first, x, x->ndim - 2)};
  (void)self;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    sum_rows(&cpu_block_types[cpu_dtype_of(x)], rows.at[1], x->shape[x->ndim - 2], fl_stride(x, x->ndim - 2),
             rows.at[0], out->shape[out->ndim - 1]);
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "grouped_topk", CPU_FLAGOS, .fn = cpu_grouped_topk, .self = (cpu_score_fn[]){cpu_flagos_score}},
    {.op_name = "topk_softmax", CPU_FLAGOS, .fn = cpu_topk_softmax, .self = (cpu_score_fn[]){cpu_flagos_score}},
    {.op_name = "moe_sum", CPU_FLAGOS, .fn = moe_sum},
};
OP_LIST(ops);
