/* Elementwise ops of two tensors, of which the second may have one element a row. */
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/rows.h"

typedef struct elementwise_job {
  cpu_dtype dtype;
  int64_t size; /* of a row */
  bool one;     /* element of y for the whole row */
} elementwise_job;

typedef float (*elementwise_fn)(cpu_dtype dtype, float x, float y);

CPU_TEMPLATE void row_of(cpu_dtype dtype, elementwise_fn function, int64_t size, bool one, const cpu_rows *rows) {
  const int64_t bytes = cpu_dtype_size(dtype);
  float of_row[CPU_CHUNK];
  cpu_span span;
  if (one)
    cpu_load(dtype, of_row, rows->at[1], 0, 1);
  for (cpu_span_begin(&span, size, CPU_CHUNK, cpu_rows_around(rows, 2)); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, rows->at[0], bytes);
    const char *y = one ? NULL : cpu_span_in(&span, 1, rows->at[1], bytes);
    char *out = cpu_span_out(&span, 0, rows->at[2]);
    const bool around = span.around;
    for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK) {
      float values[CPU_CHUNK], others[CPU_CHUNK];
      cpu_load_next(dtype, values, x, i, CPU_CHUNK);
      if (!one)
        cpu_load_next(dtype, others, y, i, CPU_CHUNK);
      for (int lane = 0; lane < CPU_CHUNK; lane++)
        values[lane] = function(dtype, values[lane], one ? of_row[0] : others[lane]);
      cpu_store_around(dtype, out, i, values, CPU_CHUNK, around);
    }
    cpu_span_end(&span, 0, rows->at[2], bytes);
  }
}

CPU_TEMPLATE void row(elementwise_fn function, bool one, const elementwise_job *job, const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT32)
    row_of(CPU_FLOAT32, function, job->size, one, rows);
  else if (job->dtype == CPU_FLOAT16)
    row_of(CPU_FLOAT16, function, job->size, one, rows);
  else
    row_of(CPU_BFLOAT16, function, job->size, one, rows);
}

CPU_TEMPLATE float sum(cpu_dtype dtype, float x, float y) {
  (void)dtype;
  return x + y;
}

CPU_TEMPLATE float gated(cpu_dtype dtype, float x, float gate) {
  return x * cpu_round(dtype, vector_sigmoid(gate));
}

static void add_row(const void *job, const cpu_rows *rows) {
  row(sum, false, job, rows);
}

static void sigmoid_mul_row(const void *user, const cpu_rows *rows) {
  const elementwise_job *job = user;
  if (job->one)
    row(gated, true, job, rows);
  else
    row(gated, false, job, rows);
}

/* add(x, y) -> out, sigmoid_mul(x, gate) -> out; in place is fine. */
static fl_status elementwise(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *y = cpu_tensor(call, 1), *out = cpu_tensor(call, 2);
  DLTensor *const tensors[] = {x, y, out};
  const elementwise_job job = {cpu_dtype_of(x), x->shape[x->ndim - 1], y->shape[y->ndim - 1] == 1};
  if (job.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  return cpu_rows_run(3, tensors, (cpu_row_cost){3 * bytes, fl_data(x) == fl_data(out) ? 0 : bytes},
                      *(cpu_row_fn *)self, &job);
}

static const fl_impl ops[] = {
    {.op_name = "add", CPU_FLAGOS, .fn = elementwise, .self = (cpu_row_fn[]){add_row}},
    {.op_name = "sigmoid_mul", CPU_FLAGOS, .fn = elementwise, .self = (cpu_row_fn[]){sigmoid_mul_row}},
};
OP_LIST(ops);
