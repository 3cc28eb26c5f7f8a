/*
 * Scores of experts as PyTorch computes softmax and sigmoid, and the sum over experts. Needs libm only.
 */
#include "plugins/cpu/moe_order.h"
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/view.h"

#include <math.h>

/* exp(x - largest) / sum */
static void softmax(const cpu_routing *routing, const void *logits, float *scores) {
  float largest = -INFINITY;
  double sum = 0;
  for (int64_t i = 0; i < routing->experts; i++)
    largest = fmaxf(largest, load(routing->dtype, logits, i));
  for (int64_t i = 0; i < routing->experts; i++) {
    scores[i] = expf(load(routing->dtype, logits, i) - largest);
    sum += (double)scores[i];
  }
  for (int64_t i = 0; i < routing->experts; i++)
    scores[i] /= (float)sum;
}

static void score(const cpu_routing *routing, const void *logits, float *scores) {
  if (!routing->sigmoid) {
    softmax(routing, logits, scores);
    return;
  }
  for (int64_t i = 0; i < routing->experts; i++)
    scores[i] = sigmoid(load(routing->dtype, logits, i));
}

static void order(const cpu_routing *routing, float *scores, uint64_t *keys) {
  cpu_order_experts(routing, scores, keys);
}

static uint64_t largest_below(const uint64_t *keys, int64_t n, uint64_t bound) {
  return cpu_largest_below(keys, n, bound);
}

const cpu_router cpu_reference_router = {score, order, largest_below};

/* moe_sum(x [..., k, h]) -> out [..., h] */
static fl_status moe_sum(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, 1);
  tensor_view first;
  DLTensor *const tensors[] = {out, view_first(&first, x, x->ndim - 2)};
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t k = x->shape[x->ndim - 2], step = fl_stride(x, x->ndim - 2);
  (void)self;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t i = 0; i < out->shape[out->ndim - 1]; i++) {
      float sum = 0;
      for (int64_t j = 0; j < k; j++)
        sum += load(dtype, rows.at[1], j * step + i);
      store(dtype, rows.at[0], i, sum);
    }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "grouped_topk", CPU_REFERENCE, .fn = cpu_grouped_topk, .self = (void *)&cpu_reference_router},
    {.op_name = "topk_softmax", CPU_REFERENCE, .fn = cpu_topk_softmax, .self = (void *)&cpu_reference_router},
    {.op_name = "moe_sum", CPU_REFERENCE, .fn = moe_sum},
};
OP_LIST(ops);
