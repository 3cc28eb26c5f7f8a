/*
 * Activations of one element each: a function of an element, over the rows of a call. The element type is a constant of
 * each copy of the loop.
 */
#ifndef FLHOST_CPU_FLAGOS_ACTIVATION_H
#define FLHOST_CPU_FLAGOS_ACTIVATION_H

#include "plugins/cpu/flagos/chunk.h"
#include "plugins/cpu/rows.h"

typedef struct elementwise_job {
  cpu_dtype dtype;
  int64_t size;  /* of a row */
  const void *p; /* the op's own */
} elementwise_job;

/* One element. */
typedef float (*elementwise_fn)(cpu_dtype dtype, const void *p, float x);

CPU_TEMPLATE void chunk(cpu_dtype dtype, elementwise_fn function, const void *p, const void *x, void *out,
                        int64_t first, int64_t n, bool around) {
  float values[CPU_CHUNK];
  cpu_load_ahead(dtype, values, x, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = function(dtype, p, values[i]);
  cpu_store_around(dtype, out, first, values, n, around);
}

CPU_TEMPLATE void row_of(cpu_dtype dtype, elementwise_fn function, const elementwise_job *job, const cpu_rows *rows) {
  bool around = cpu_rows_around(rows, 1);
  int64_t i = 0, size = job->size;
  for (; i + CPU_CHUNK <= size; i += CPU_CHUNK)
    chunk(dtype, function, job->p, rows->at[0], rows->at[1], i, CPU_CHUNK, around);
  if (i < size)
    chunk(dtype, function, job->p, rows->at[0], rows->at[1], i, size - i, false);
}

/* The row function of an activation. */
CPU_TEMPLATE void row(elementwise_fn function, const elementwise_job *job, const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT32)
    row_of(CPU_FLOAT32, function, job, rows);
  else if (job->dtype == CPU_FLOAT16)
    row_of(CPU_FLOAT16, function, job, rows);
  else
    row_of(CPU_BFLOAT16, function, job, rows);
}

/* x is the call's first value, out its last. */
static fl_status elementwise(fl_call *call, cpu_row_fn row_function, const void *p) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  const elementwise_job job = {cpu_dtype_of(x), x->shape[x->ndim - 1], p};
  if (job.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  int64_t bytes = job.size * cpu_dtype_size(job.dtype);
  return cpu_rows_run(2, tensors, (cpu_row_cost){2 * bytes * CPU_WORK_EXP, fl_data(x) == fl_data(out) ? 0 : bytes},
                      row_function, &job);
}

#endif
