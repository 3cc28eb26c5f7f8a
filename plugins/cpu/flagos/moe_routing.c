/* Scores of experts, vectorised, and the sum over experts. */
#include "plugins/cpu/moe_routing.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/chunk.h"
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

typedef struct sum_job {
  cpu_dtype dtype;
  int64_t k, step, size; /* rows to add up, elements from one to the next, elements of one */
} sum_job;

CPU_TEMPLATE void sum_chunk(cpu_dtype dtype, const sum_job *job, const cpu_rows *rows, int64_t first, int64_t n,
                            bool around) {
  float sum[CPU_CHUNK] = {0}, next[CPU_CHUNK];
  for (int64_t j = 0; j < job->k; j++) {
    cpu_load(dtype, next, rows->at[1], j * job->step + first, n);
    for (int i = 0; i < CPU_CHUNK; i++)
      sum[i] += next[i];
  }
  cpu_store_around(dtype, rows->at[0], first, sum, n, around);
}

CPU_TEMPLATE void sum_row_of(cpu_dtype dtype, const sum_job *of, const cpu_rows *rows) {
  const sum_job job = *of;
  bool around = cpu_rows_around(rows, 0);
  int64_t i = 0;
  for (; i + CPU_CHUNK <= job.size; i += CPU_CHUNK)
    sum_chunk(dtype, &job, rows, i, CPU_CHUNK, around);
  if (i < job.size)
    sum_chunk(dtype, &job, rows, i, job.size - i, false);
}

static void sum_row(const void *user, const cpu_rows *rows) {
  const sum_job *job = user;
  if (job->dtype == CPU_FLOAT32)
    sum_row_of(CPU_FLOAT32, job, rows);
  else if (job->dtype == CPU_FLOAT16)
    sum_row_of(CPU_FLOAT16, job, rows);
  else
    sum_row_of(CPU_BFLOAT16, job, rows);
}

/* moe_sum(x [..., k, h]) -> out [..., h] */
static fl_status moe_sum(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, 1);
  cpu_view first;
  DLTensor *const tensors[] = {out, cpu_view_first(&first, x, x->ndim - 2)};
  const sum_job job = {cpu_dtype_of(x), x->shape[x->ndim - 2], fl_stride(x, x->ndim - 2), out->shape[out->ndim - 1]};
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  (void)self;
  return cpu_rows_run(2, tensors, (cpu_row_cost){(job.k + 1) * bytes, bytes}, sum_row, &job);
}

static const fl_impl ops[] = {
    {.op_name = "grouped_topk", CPU_FLAGOS, .fn = cpu_grouped_topk, .self = (cpu_score_fn[]){cpu_flagos_score}},
    {.op_name = "topk_softmax", CPU_FLAGOS, .fn = cpu_topk_softmax, .self = (cpu_score_fn[]){cpu_flagos_score}},
    {.op_name = "moe_sum", CPU_FLAGOS, .fn = moe_sum},
};
OP_LIST(ops);
