/*
 * Layer norm: the mean, then the mean of squares of what lies around it, as the definition has it, so that values far
 * from 0 lose nothing. Additions are those of independent lanes in a fixed order: the same bits every time.
 */
#include "plugins/cpu/flagos/span.h"
#include "plugins/cpu/flagos/squares.h"
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/rows.h"

#include <math.h>

/* Lanes behind the row's end hold the mean, which is none from there. */
CPU_TEMPLATE void load_around(cpu_dtype dtype, float *values, const void *x, int64_t first, int64_t n, float mean) {
  cpu_load(dtype, values, x, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = i < n ? values[i] - mean : 0.0f;
}

/* In double: the sum of values far from 0 would lose in float what their differences are made of. */
CPU_TEMPLATE float mean_of(cpu_dtype dtype, const void *x, int64_t size) {
  double lanes[CPU_CHUNK] = {0}, sum = 0;
  float values[CPU_CHUNK];
  for (int64_t first = 0; first < size; first += CPU_CHUNK) {
    if (first + CPU_CHUNK <= size)
      cpu_load_ahead(dtype, values, x, first, CPU_CHUNK);
    else
      cpu_load(dtype, values, x, first, size - first);
    for (int i = 0; i < CPU_CHUNK; i++)
      lanes[i] += (double)values[i];
  }
  for (int i = 0; i < CPU_CHUNK; i++)
    sum += lanes[i];
  return (float)(sum / (double)size);
}

CPU_TEMPLATE float variance_of(cpu_dtype dtype, const void *x, int64_t size, float mean) {
  cpu_squares squares = {{0}};
  float values[CPU_CHUNK];
  int64_t i = 0;
  for (; i + 2 * CPU_CHUNK <= size; i += 2 * CPU_CHUNK)
    for (int half = 0; half < 2; half++) {
      load_around(dtype, values, x, i + half * CPU_CHUNK, CPU_CHUNK, mean);
      cpu_squares_add_chunk(squares.lanes + half * CPU_CHUNK, values);
    }
  for (; i < size; i += CPU_CHUNK) {
    load_around(dtype, values, x, i, size - i < CPU_CHUNK ? size - i : CPU_CHUNK, mean);
    cpu_squares_add_chunk(squares.lanes, values);
  }
  return cpu_squares_sum(&squares) / (float)size;
}

CPU_TEMPLATE void scale_row(cpu_dtype dtype, cpu_dtype weight_dtype, const cpu_layer_norm *norm, const void *of,
                            void *results, float mean, float scale, bool may_go_around) {
  const int64_t bytes = cpu_dtype_size(dtype), weight_bytes = cpu_dtype_size(weight_dtype);
  const bool from_one = norm->from_one;
  cpu_span span;
  for (cpu_span_begin(&span, norm->hidden, CPU_CHUNK, may_go_around); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, of, bytes);
    const char *weight = norm->weight ? cpu_span_in(&span, 1, fl_data(norm->weight), weight_bytes) : NULL;
    const char *bias = norm->bias ? cpu_span_in(&span, 2, fl_data(norm->bias), weight_bytes) : NULL;
    char *out = cpu_span_out(&span, 0, results);
    const bool around = span.around;
    for (int64_t first = 0, n = span.size; first < n; first += CPU_CHUNK) {
      float values[CPU_CHUNK], other[CPU_CHUNK];
      cpu_load(dtype, values, x, first, CPU_CHUNK);
      for (int i = 0; i < CPU_CHUNK; i++)
        values[i] = (values[i] - mean) * scale;
      if (weight) {
        cpu_load_other(dtype, weight_dtype, other, weight, first, CPU_CHUNK);
        if (from_one)
          for (int i = 0; i < CPU_CHUNK; i++)
            other[i] = cpu_round(weight_dtype, other[i] + 1.0f);
        for (int i = 0; i < CPU_CHUNK; i++)
          values[i] *= other[i];
      }
      if (bias) {
        cpu_load_other(dtype, weight_dtype, other, bias, first, CPU_CHUNK);
        for (int i = 0; i < CPU_CHUNK; i++)
          values[i] += other[i];
      }
      cpu_store_around(dtype, out, first, values, CPU_CHUNK, around);
    }
    cpu_span_end(&span, 0, results, bytes);
  }
}

CPU_TEMPLATE void add(cpu_dtype dtype, void *sum, const void *x, const void *y, int64_t size) {
  float values[CPU_CHUNK], other[CPU_CHUNK];
  for (int64_t first = 0; first < size; first += CPU_CHUNK) {
    int64_t n = size - first < CPU_CHUNK ? size - first : CPU_CHUNK;
    cpu_load_ahead(dtype, values, x, first, n);
    cpu_load_ahead(dtype, other, y, first, n);
    for (int i = 0; i < CPU_CHUNK; i++)
      values[i] += other[i];
    cpu_store(dtype, sum, first, values, n);
  }
}

/* In place is fine: a chunk is read for the last time before it is overwritten. */
CPU_TEMPLATE void normalise(cpu_dtype dtype, cpu_dtype weight_dtype, const cpu_layer_norm *of, const cpu_rows *rows) {
  const cpu_layer_norm norm = *of;
  const void *x = rows->at[0];
  if (norm.residual) {
    add(dtype, rows->at[3], x, rows->at[1], norm.hidden);
    x = rows->at[3];
  }
  float mean = mean_of(dtype, x, norm.hidden);
  float scale = 1.0f / sqrtf(variance_of(dtype, x, norm.hidden, mean) + norm.epsilon);
  scale_row(dtype, weight_dtype, &norm, x, rows->at[2], mean, scale, cpu_rows_around(rows, 2));
}

/* A weight has x's type, or is float32. */
CPU_TEMPLATE void normalise_as(cpu_dtype dtype, const cpu_layer_norm *norm, const cpu_rows *rows) {
  if (norm->weight_dtype == dtype)
    normalise(dtype, dtype, norm, rows);
  else
    normalise(dtype, CPU_FLOAT32, norm, rows);
}

/* Functions of their own: together they are more than compilers optimise well. */
static __attribute__((noinline)) void normalise_float32(const void *norm, const cpu_rows *rows) {
  normalise(CPU_FLOAT32, CPU_FLOAT32, norm, rows);
}

static __attribute__((noinline)) void normalise_float16(const void *norm, const cpu_rows *rows) {
  normalise_as(CPU_FLOAT16, norm, rows);
}

static __attribute__((noinline)) void normalise_bfloat16(const void *norm, const cpu_rows *rows) {
  normalise_as(CPU_BFLOAT16, norm, rows);
}

static fl_status layer_norm(const cpu_layer_norm *norm) {
  static const cpu_row_fn functions[CPU_N_DTYPES] = {
      [CPU_FLOAT32] = normalise_float32, [CPU_FLOAT16] = normalise_float16, [CPU_BFLOAT16] = normalise_bfloat16};
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  int64_t bytes = norm->hidden * cpu_dtype_size(norm->dtype);
  int64_t moved = (norm->residual ? 6 : 3) * bytes;
  return cpu_rows_run(4, tensors, (cpu_row_cost){moved, fl_data(norm->x) == fl_data(norm->out) ? 0 : bytes},
                      functions[norm->dtype], norm);
}

static const fl_impl ops[] = {
    {.op_name = "layer_norm", CPU_FLAGOS, .fn = cpu_run_layer_norm, .self = (cpu_layer_norm_fn[]){layer_norm}},
    {.op_name = "nemotron_layer_norm",
     CPU_FLAGOS,
     .fn = cpu_run_nemotron_layer_norm,
     .self = (cpu_layer_norm_fn[]){layer_norm}},
};
OP_LIST(ops);
