/* Elementwise ops of several tensors. */
#include "plugins/cpu/flagos/chunk.h"
#include "plugins/cpu/rows.h"

typedef struct add_job {
  cpu_dtype dtype;
  int64_t size; /* of a row */
} add_job;

CPU_TEMPLATE void add_chunk(cpu_dtype dtype, const cpu_rows *rows, int64_t first, int64_t n, bool around) {
  float x[CPU_CHUNK], y[CPU_CHUNK];
  cpu_load(dtype, x, rows->at[0], first, n);
  cpu_load(dtype, y, rows->at[1], first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    x[i] += y[i];
  cpu_store_around(dtype, rows->at[2], first, x, n, around);
}

CPU_TEMPLATE void add_row_of(cpu_dtype dtype, int64_t size, const cpu_rows *rows) {
  bool around = cpu_rows_around(rows, 2);
  int64_t i = 0;
  for (; i + CPU_CHUNK <= size; i += CPU_CHUNK)
    add_chunk(dtype, rows, i, CPU_CHUNK, around);
  if (i < size)
    add_chunk(dtype, rows, i, size - i, false);
}

static void add_row(const void *user, const cpu_rows *rows) {
  const add_job *job = user;
  if (job->dtype == CPU_FLOAT32)
    add_row_of(CPU_FLOAT32, job->size, rows);
  else if (job->dtype == CPU_FLOAT16)
    add_row_of(CPU_FLOAT16, job->size, rows);
  else
    add_row_of(CPU_BFLOAT16, job->size, rows);
}

/* add(x, y) -> out; in place is fine. */
static fl_status add(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, 2), *const tensors[] = {x, cpu_tensor(call, 1), out};
  const add_job job = {cpu_dtype_of(x), x->shape[x->ndim - 1]};
  (void)self;
  if (job.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  return cpu_rows_run(3, tensors, (cpu_row_cost){3 * bytes, fl_data(x) == fl_data(out) ? 0 : bytes}, add_row, &job);
}

static const fl_impl ops[] = {{.op_name = "add", CPU_FLAGOS, .fn = add}};
OP_LIST(ops);
