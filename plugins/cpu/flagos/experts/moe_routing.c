/* Scores of experts, vectorised, and the sum over experts. */
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/moe_order.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/view.h"

#include <math.h>

_Static_assert((int)CPU_SCORES == (int)CPU_CHUNK, "scores are computed by chunks");

/* Logits as floats, further lanes of the last chunk as if there were no more experts; the largest. */
CPU_TEMPLATE float load_logits(cpu_dtype dtype, const void *logits, int64_t n, float *scores) {
  float largest[CPU_CHUNK], all = -INFINITY;
  for (int i = 0; i < CPU_CHUNK; i++)
    largest[i] = -INFINITY;
  for (int64_t first = 0; first < n; first += CPU_CHUNK) {
    float *chunk = scores + first;
    cpu_load(dtype, chunk, logits, first, n - first < CPU_CHUNK ? n - first : CPU_CHUNK);
    for (int64_t i = n - first; i < CPU_CHUNK; i++)
      chunk[i] = -INFINITY;
    for (int i = 0; i < CPU_CHUNK; i++)
      largest[i] = chunk[i] > largest[i] ? chunk[i] : largest[i];
  }
  for (int i = 0; i < CPU_CHUNK; i++)
    all = largest[i] > all ? largest[i] : all;
  return all;
}

static float load_all(cpu_dtype dtype, const void *logits, int64_t n, float *scores) {
  return dtype == CPU_FLOAT32   ? load_logits(CPU_FLOAT32, logits, n, scores)
         : dtype == CPU_FLOAT16 ? load_logits(CPU_FLOAT16, logits, n, scores)
                                : load_logits(CPU_BFLOAT16, logits, n, scores);
}

static void softmax(float *scores, int64_t n, float largest) {
  float sums[CPU_CHUNK] = {0}, sum = 0;
  for (int64_t first = 0; first < n; first += CPU_CHUNK)
    for (int i = 0; i < CPU_CHUNK; i++) {
      scores[first + i] = vector_exp_to_one(scores[first + i] - largest);
      sums[i] += scores[first + i];
    }
  for (int half = CPU_CHUNK / 2; half; half /= 2)
    for (int i = 0; i < half; i++)
      sums[i] += sums[i + half];
  sum = sums[0];
  for (int64_t first = 0; first < n; first += CPU_CHUNK)
    for (int i = 0; i < CPU_CHUNK; i++)
      scores[first + i] /= sum;
}

static void score(const cpu_routing *routing, const void *logits, float *scores) {
  int64_t n = routing->experts;
  float largest = load_all(routing->dtype, logits, n, scores);
  if (!routing->sigmoid)
    softmax(scores, n, largest);
  for (int64_t first = 0; first < n && routing->sigmoid; first += CPU_CHUNK)
    for (int i = 0; i < CPU_CHUNK; i++)
      scores[first + i] = vector_sigmoid(scores[first + i]);
}

static void order(const cpu_routing *routing, float *scores, uint64_t *keys) {
  cpu_order_experts(routing, scores, keys);
}

static uint64_t largest_below(const uint64_t *keys, int64_t n, uint64_t bound) {
  return cpu_largest_below(keys, n, bound);
}

const cpu_router cpu_flagos_router = {score, order, largest_below};

typedef struct sum_job {
  cpu_dtype dtype;
  int64_t k, step, size; /* rows to add up, elements from one to the next, elements of one */
} sum_job;

CPU_TEMPLATE void sum_chunk(cpu_dtype dtype, const sum_job *job, const cpu_rows *rows, int64_t first, int64_t n,
                            bool around) {
  float sum[CPU_CHUNK] = {0}, next[CPU_CHUNK];
  for (int64_t j = 0; j < job->k; j++) {
    cpu_load_next(dtype, next, rows->at[1], j * job->step + first, n);
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
  tensor_view first;
  DLTensor *const tensors[] = {out, view_first(&first, x, x->ndim - 2)};
  const sum_job job = {cpu_dtype_of(x), x->shape[x->ndim - 2], fl_stride(x, x->ndim - 2), out->shape[out->ndim - 1]};
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  (void)self;
  return cpu_rows_run(2, tensors, (cpu_row_cost){(job.k + 1) * bytes, bytes}, sum_row, &job);
}

static const fl_impl ops[] = {
    {.op_name = "grouped_topk", CPU_FLAGOS, .fn = cpu_grouped_topk, .self = (void *)&cpu_flagos_router},
    {.op_name = "topk_softmax", CPU_FLAGOS, .fn = cpu_topk_softmax, .self = (void *)&cpu_flagos_router},
    {.op_name = "moe_sum", CPU_FLAGOS, .fn = moe_sum},
};
OP_LIST(ops);
