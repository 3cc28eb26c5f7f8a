/*
 * Layer norm. Mean and variance are those of what elements are above the mean of the row's beginning, so that values
 * far from 0 lose nothing, in float and in one pass; by the definition, which takes two and doubles, where that would
 * not do. Additions are those of independent lanes in a fixed order: the same bits every time.
 */
#include "plugins/cpu/flagos/vectors/codes.h"
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/flagos/vectors/squares.h"
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/support/rows.h"

#include <math.h>

#ifdef __AVX512F__
enum { MOMENT_LANES = 2 * CPU_CHUNK }; /* additions are slower to finish than to begin */
#else
enum { MOMENT_LANES = CPU_CHUNK }; /* registers have no room for more */
#endif

/* Sums of what elements of a row are above `around`, and of its squares, lane by lane. */
typedef struct moments {
  float around, above[MOMENT_LANES], squares[MOMENT_LANES];
} moments;

/* A call. */
typedef struct layer_job {
  cpu_layer_norm norm;
  bool exact; /* weights are so large that results next to the mean have to be right in all digits */
} layer_job;

/* A chunk of x, or of its sum with the residual, as it is stored. */
CPU_TEMPLATE void load_row(cpu_dtype dtype, float *values, const char *x, const char *residual, int64_t first) {
  cpu_load_sum(dtype, residual != NULL, values, x, residual, first);
  if (residual)
    cpu_round_chunk(dtype, values);
}

/* A chunk, of which `n` elements are the row's. */
CPU_TEMPLATE void add_chunk(cpu_dtype dtype, moments *of, int part, const char *x, const char *residual, char *sum,
                            int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_row(dtype, values, x, residual, first);
  if (residual)
    cpu_store(dtype, sum, first, values, CPU_CHUNK);
  for (int i = 0; i < CPU_CHUNK; i++) {
    float above = n == CPU_CHUNK || i < n ? values[i] - of->around : 0.0f;
    of->above[part + i] += above;
    of->squares[part + i] += above * above;
  }
}

/* Of a row; the sum with the residual, where there is one, is stored. */
CPU_TEMPLATE void find_moments(cpu_dtype dtype, moments *found, const void *row, const void *residual_row,
                               void *residual_out, int64_t size, float around) {
  const int64_t bytes = cpu_dtype_size(dtype);
  moments of = {.around = around};
  cpu_span span;
  for (cpu_span_begin(&span, size, MOMENT_LANES, false); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, row, bytes);
    const char *residual = residual_row ? cpu_span_in(&span, 1, residual_row, bytes) : NULL;
    char *sum = residual_row ? cpu_span_out(&span, 0, residual_out) : NULL;
    for (int64_t i = 0, n = span.padded ? 0 : span.size; i < n; i += MOMENT_LANES) {
      add_chunk(dtype, &of, 0, x, residual, sum, i, CPU_CHUNK);
      if (MOMENT_LANES - CPU_CHUNK > 0)
        add_chunk(dtype, &of, MOMENT_LANES - CPU_CHUNK, x, residual, sum, i + CPU_CHUNK, CPU_CHUNK);
    }
    for (int64_t i = 0; span.padded && i < span.left; i += CPU_CHUNK)
      add_chunk(dtype, &of, 0, x, residual, sum, i, span.left - i);
    if (residual_row)
      cpu_span_end(&span, 0, residual_out, bytes);
  }
  *found = of;
}

CPU_TEMPLATE float mean_of(cpu_dtype dtype, const void *x, int64_t size) {
  double lanes[CPU_CHUNK] = {0}, sum = 0;
  float values[CPU_CHUNK];
  for (int64_t i = 0; i < size; i += CPU_CHUNK) {
    cpu_load(dtype, values, x, i, size - i < CPU_CHUNK ? size - i : CPU_CHUNK);
    for (int lane = 0; lane < CPU_CHUNK; lane++)
      lanes[lane] += (double)values[lane];
  }
  for (int lane = 0; lane < CPU_CHUNK; lane++)
    sum += lanes[lane];
  return (float)(sum / (double)size);
}

/* What decides on the instructions. */
typedef struct scale_form {
  cpu_dtype dtype, weight_dtype;
  bool from_one; /* the weight is counted from 1, in its own type */
} scale_form;

/* A row that is scaled. */
typedef struct scaled_row {
  const void *x;
  void *out;
  float mean, scale;
  cpu_next_row next;
  bool around; /* the caches */
} scaled_row;

/* Where there is no weight, or no bias: a chunk of ones, or of zeros, which is read again and again. */
CPU_TEMPLATE void fill_chunk(cpu_dtype dtype, char *chunk, float number) {
  float numbers[CPU_CHUNK];
  for (int i = 0; i < CPU_CHUNK; i++)
    numbers[i] = number;
  cpu_narrow(dtype, chunk, numbers);
}

CPU_TEMPLATE void scale_row(scale_form form, const cpu_layer_norm *norm, const scaled_row *of) {
  const int64_t bytes = cpu_dtype_size(form.dtype), weight_bytes = cpu_dtype_size(form.weight_dtype);
  const int64_t weight_step = norm->weight ? 1 : 0, bias_step = norm->bias ? 1 : 0;
  const scaled_row row = *of;
  char ones[CPU_CHUNK * sizeof(float)], zeros[CPU_CHUNK * sizeof(float)];
  cpu_span span;
  fill_chunk(form.weight_dtype, ones, 1.0f);
  fill_chunk(form.weight_dtype, zeros, 0.0f);
  for (cpu_span_begin(&span, norm->hidden, CPU_CHUNK, row.around); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, row.x, bytes);
    const char *weights = norm->weight ? cpu_span_in(&span, 1, fl_data(norm->weight), weight_bytes) : ones;
    const char *biases = norm->bias ? cpu_span_in(&span, 2, fl_data(norm->bias), weight_bytes) : zeros;
    char *out = cpu_span_out(&span, 0, row.out);
    const bool around = span.around;
    const char *next = around ? row.next.at : NULL;
    for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK) {
      float values[CPU_CHUNK], weight[CPU_CHUNK], bias[CPU_CHUNK];
      if (next)
        cpu_prefetch_chunk(form.dtype, next, row.next.is_short, i);
      cpu_load(form.dtype, values, x, i, CPU_CHUNK);
      cpu_load_other(form.dtype, form.weight_dtype, weight, weights, i * weight_step, CPU_CHUNK);
      cpu_load_other(form.dtype, form.weight_dtype, bias, biases, i * bias_step, CPU_CHUNK);
      for (int lane = 0; lane < CPU_CHUNK && form.from_one; lane++)
        weight[lane] += 1.0f;
      if (form.from_one)
        cpu_round_last(form.weight_dtype, weight);
      for (int lane = 0; lane < CPU_CHUNK; lane++)
        values[lane] = (values[lane] - row.mean) * row.scale * weight[lane] + bias[lane];
      cpu_store_around(form.dtype, out, i, values, CPU_CHUNK, around);
    }
    cpu_span_end(&span, 0, row.out, bytes);
  }
}

/* In place is fine: a chunk is read for the last time before it is overwritten. */
CPU_TEMPLATE void normalise(cpu_dtype dtype, cpu_dtype weight_dtype, const layer_job *job, const cpu_rows *rows) {
  const cpu_layer_norm norm = job->norm;
  const int64_t size = norm.hidden, bytes = size * cpu_dtype_size(dtype), n = size < CPU_CHUNK ? size : CPU_CHUNK;
  const void *x = rows->at[0], *residual = norm.residual ? rows->at[1] : NULL;
  float first[CPU_CHUNK], added[CPU_CHUNK];
  moments found;
  cpu_load(dtype, first, x, 0, n);
  if (residual) {
    cpu_load(dtype, added, residual, 0, n);
    for (int i = 0; i < CPU_CHUNK; i++)
      first[i] += added[i];
    find_moments(dtype, &found, x, residual, rows->at[3], size, sum_of_lanes(first, CPU_CHUNK) / (float)n);
    x = rows->at[3];
  } else
    find_moments(dtype, &found, x, NULL, NULL, size, sum_of_lanes(first, CPU_CHUNK) / (float)n);
  float above = sum_of_lanes(found.above, MOMENT_LANES) / (float)size, mean = found.around + above;
  float variance = sum_of_lanes(found.squares, MOMENT_LANES) / (float)size - above * above;
  bool is_near = above * above <= 4 * variance; /* else that is a difference of large numbers */
  if (job->exact || !is_near || !(variance < INFINITY)) {
    mean = mean_of(dtype, x, size);
    find_moments(dtype, &found, x, NULL, NULL, size, mean);
    variance = sum_of_lanes(found.squares, MOMENT_LANES) / (float)size;
  }
  const scaled_row row = {.x = x,
                          .out = rows->at[2],
                          .mean = mean,
                          .scale = 1.0f / sqrtf(variance + norm.epsilon),
                          .next = rows->far && !residual ? cpu_rows_ahead(rows, 0, bytes) : (cpu_next_row){NULL, false},
                          .around = cpu_rows_around(rows, 2)};
  if (norm.from_one)
    scale_row((scale_form){dtype, weight_dtype, true}, &norm, &row);
  else
    scale_row((scale_form){dtype, weight_dtype, false}, &norm, &row);
}

/* A weight has x's type, or is float32. */
CPU_TEMPLATE void normalise_as(cpu_dtype dtype, const layer_job *job, const cpu_rows *rows) {
  if (job->norm.weight_dtype == dtype)
    normalise(dtype, dtype, job, rows);
  else
    normalise(dtype, CPU_FLOAT32, job, rows);
}

/* Functions of their own: together they are more than compilers optimise well. */
static __attribute__((noinline)) void normalise_float32(const void *job, const cpu_rows *rows) {
  normalise(CPU_FLOAT32, CPU_FLOAT32, job, rows);
}

static __attribute__((noinline)) void normalise_float16(const void *job, const cpu_rows *rows) {
  normalise_as(CPU_FLOAT16, job, rows);
}

static __attribute__((noinline)) void normalise_bfloat16(const void *job, const cpu_rows *rows) {
  normalise_as(CPU_BFLOAT16, job, rows);
}

/* The mean in float is off by some 1e-8 of the deviation, which a weight multiplies. */
static bool has_large_weights(const cpu_layer_norm *norm) {
  const int32_t large = (int32_t)fl_float_bits(64.0f);
  return norm->weight && cpu_absolute_maximum(norm->weight_dtype, fl_data(norm->weight), 0, norm->hidden) >= large;
}

static fl_status layer_norm(const cpu_layer_norm *norm) {
  static const cpu_row_fn functions[CPU_N_DTYPES] = {
      [CPU_FLOAT32] = normalise_float32, [CPU_FLOAT16] = normalise_float16, [CPU_BFLOAT16] = normalise_bfloat16};
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  const layer_job job = {*norm, has_large_weights(norm)};
  int64_t bytes = norm->hidden * cpu_dtype_size(norm->dtype);
  int64_t moved = (norm->residual ? 6 : 3) * bytes;
  return cpu_rows_run(4, tensors, (cpu_row_cost){moved, fl_data(norm->x) == fl_data(norm->out) ? 0 : bytes},
                      functions[norm->dtype], &job);
}

static const fl_impl ops[] = {
    {.op_name = "layer_norm", CPU_FLAGOS, .fn = cpu_run_layer_norm, .self = (cpu_layer_norm_fn[]){layer_norm}},
    {.op_name = "nemotron_layer_norm",
     CPU_FLAGOS,
     .fn = cpu_run_nemotron_layer_norm,
     .self = (cpu_layer_norm_fn[]){layer_norm}},
};
OP_LIST(ops);
