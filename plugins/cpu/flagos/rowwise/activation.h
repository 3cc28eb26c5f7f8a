/*
 * Activations of one element each: a function of a chunk of them over the rows of a call. The element type is a
 * constant of each copy of the loop.
 */
#ifndef FLHOST_CPU_FLAGOS_ROWWISE_ACTIVATION_H
#define FLHOST_CPU_FLAGOS_ROWWISE_ACTIVATION_H

#include "plugins/cpu/flagos/vectors/lookup.h"
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/support/rows.h"

typedef struct activation_job {
  cpu_dtype dtype;
  int64_t size;            /* of a row */
  const void *p;           /* the op's own */
  const uint16_t *results; /* where they are looked up */
} activation_job;

/* An activation as ops of it have it. */
typedef struct activation_entry {
  cpu_row_fn row;
  lookup_table *tables; /* LOOKUP_TABLES; NULL: it is always computed */
} activation_entry;

/* Makes the activations of a chunk, which stores round. */
typedef void (*activation_fn)(cpu_dtype dtype, const void *p, float *values);

CPU_TEMPLATE void row_of(cpu_dtype dtype, activation_fn function, const activation_job *job, const cpu_rows *rows) {
  const int64_t bytes = cpu_dtype_size(dtype);
  cpu_span span;
  for (cpu_span_begin(&span, job->size, CPU_CHUNK, cpu_rows_around(rows, 1)); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, rows->at[0], bytes);
    char *out = cpu_span_out(&span, 0, rows->at[1]);
    const bool around = span.around;
    for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK) {
      float values[CPU_CHUNK];
      cpu_load_ahead(dtype, values, x, i, CPU_CHUNK);
      function(dtype, job->p, values);
      cpu_store_around(dtype, out, i, values, CPU_CHUNK, around);
    }
    cpu_span_end(&span, 0, rows->at[1], bytes);
  }
}

/* The row function of an activation. */
CPU_TEMPLATE void row(activation_fn function, const activation_job *job, const cpu_rows *rows) {
  if (job->dtype == CPU_FLOAT32)
    row_of(CPU_FLOAT32, function, job, rows);
  else if (job->dtype == CPU_FLOAT16)
    row_of(CPU_FLOAT16, function, job, rows);
  else
    row_of(CPU_BFLOAT16, function, job, rows);
}

/* The row function of any activation where it is looked up: results are copied, whatever type they have. */
static void looked_up_row(const void *user, const cpu_rows *rows) {
  const activation_job *job = user;
  const uint16_t *results = job->results;
  cpu_span span;
  for (cpu_span_begin(&span, job->size, CPU_CHUNK, cpu_rows_around(rows, 1)); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, rows->at[0], sizeof *results);
    char *out = cpu_span_out(&span, 0, rows->at[1]);
    const bool around = span.around;
    for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK, x += LOOKUP_BYTES, out += LOOKUP_BYTES) {
      char found[LOOKUP_BYTES];
      cpu_fetch_ahead(CPU_BFLOAT16, x, 0, CPU_CHUNK);
      lookup_chunk(results, found, x, 1);
      if (around)
        cpu_write_around(out, found, LOOKUP_BYTES);
      else
        memcpy(out, found, LOOKUP_BYTES);
    }
    cpu_span_end(&span, 0, rows->at[1], sizeof *results);
  }
}

/* x is the call's first value, out its last. `p`: the op's own, of so many bytes. */
static fl_status activate(fl_call *call, const activation_entry *function, const void *p, size_t p_bytes) {
  DLTensor *x = cpu_tensor(call, 0), *out = cpu_tensor(call, call->count - 1), *const tensors[] = {x, out};
  const activation_job of_numbers = {cpu_dtype_of(x), CPU_CHUNK, p, NULL};
  activation_job job = of_numbers;
  if (job.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  const lookup_function computed = {job.dtype, function->row, &of_numbers, p, p_bytes};
  job.size = x->shape[x->ndim - 1];
  job.results = lookup_results(function->tables, &computed, cpu_rows_of(x) * job.size);
  int64_t bytes = job.size * cpu_dtype_size(job.dtype), of_row = 2 * bytes * (job.results ? 1 : CPU_WORK_EXP);
  return cpu_rows_run(2, tensors, (cpu_row_cost){of_row, fl_data(x) == fl_data(out) ? 0 : bytes},
                      job.results ? looked_up_row : function->row, &job);
}

#endif
