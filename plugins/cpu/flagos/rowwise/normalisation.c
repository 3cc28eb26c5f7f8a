/*
 * RMS norm: squares are added in float in independent sums, scale and weight are applied in float and rounded once, as
 * vLLM's CUDA and CPU kernels do, unless it shows that its native definition rounds twice (is_rounded). The norm is
 * that of the unrounded sum of x and residual, as in vLLM's native definition. The order of additions is fixed: the
 * same bits every time.
 */
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/flagos/vectors/codes.h"
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/flagos/vectors/squares.h"
#include "plugins/cpu/support/rows.h"

#include <math.h>

typedef struct norm_row {
  const void *x, *residual, *weight;
  void *out, *residual_out;
  int64_t size, variance_size;
  float epsilon, weight_from;
  cpu_dtype weight_dtype;       /* CPU_OTHER where there is none */
  bool around, residual_around; /* the caches: out, residual_out */
  cpu_next_row next;            /* of x; with a residual enough is under way */
} norm_row;

/* What decides on the instructions. */
typedef struct norm_form {
  cpu_dtype dtype, weight_dtype;
  bool residual;
  bool rounded; /* to the element type, before the weight */
} norm_form;

/* In place is fine: a chunk of x and residual is read for the last time before it is overwritten. */
CPU_TEMPLATE void scale_row(norm_form form, const norm_row *of, float scale) {
  const norm_row row = *of;
  const int64_t bytes = cpu_dtype_size(form.dtype);
  const bool weighted = form.weight_dtype != CPU_OTHER;
  cpu_span span;
  for (cpu_span_begin(&span, row.size, CPU_CHUNK, true); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, row.x, bytes);
    const char *residual = form.residual ? cpu_span_in(&span, 1, row.residual, bytes) : NULL;
    const char *weight = weighted ? cpu_span_in(&span, 2, row.weight, cpu_dtype_size(form.weight_dtype)) : NULL;
    const char *next = form.residual || !span.around ? NULL : row.next.at;
    char *out = cpu_span_out(&span, 0, row.out), *residual_out = NULL;
    const bool around = span.around && row.around, residual_around = span.around && row.residual_around;
    if (row.residual_out)
      residual_out = cpu_span_out(&span, 1, row.residual_out);
    for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK) {
      float values[CPU_CHUNK], weights[CPU_CHUNK];
      if (next)
        cpu_prefetch_chunk(form.dtype, next, row.next.is_short, i);
      cpu_load_sum(form.dtype, form.residual, values, x, residual, i);
      if (residual_out)
        cpu_store_around(form.dtype, residual_out, i, values, CPU_CHUNK, residual_around);
      for (int lane = 0; lane < CPU_CHUNK; lane++)
        values[lane] *= scale;
      if (form.rounded)
        cpu_round_chunk(form.dtype, values);
      if (weighted) {
        cpu_load_other(form.dtype, form.weight_dtype, weights, weight, i, CPU_CHUNK);
        for (int lane = 0; lane < CPU_CHUNK; lane++)
          values[lane] *= row.weight_from + weights[lane];
      }
      cpu_store_around(form.dtype, out, i, values, CPU_CHUNK, around);
    }
    cpu_span_end(&span, 0, row.out, bytes);
    if (row.residual_out)
      cpu_span_end(&span, 1, row.residual_out, bytes);
  }
}

CPU_TEMPLATE float scale_of(cpu_dtype dtype, bool residual, const norm_row *row) {
  float squares = cpu_squares_of_row(dtype, residual, row->x, row->residual, row->variance_size);
  return 1.0f / sqrtf(squares / (float)row->variance_size + row->epsilon);
}

/* A weight has x's type, or is float32; that of x in float32 has any. */
CPU_TEMPLATE void normalise_with(cpu_dtype dtype, bool residual, const norm_row *row) {
  float scale = scale_of(dtype, residual, row);
  if (row->weight_dtype == CPU_OTHER)
    scale_row((norm_form){dtype, CPU_OTHER, residual, false}, row, scale);
  else if (dtype != CPU_BFLOAT16 && row->weight_dtype == CPU_FLOAT16)
    scale_row((norm_form){dtype, CPU_FLOAT16, residual, false}, row, scale);
  else if (dtype != CPU_FLOAT16 && row->weight_dtype == CPU_BFLOAT16)
    scale_row((norm_form){dtype, CPU_BFLOAT16, residual, false}, row, scale);
  else
    scale_row((norm_form){dtype, CPU_FLOAT32, residual, false}, row, scale);
}

/* Functions of their own: together they are more than compilers optimise well. */
#define NORMALISE(name, dtype)                                                                                         \
  static __attribute__((noinline)) void normalise_##name(const norm_row *row) {                                        \
    if (row->residual)                                                                                                 \
      normalise_with(dtype, true, row);                                                                                \
    else                                                                                                               \
      normalise_with(dtype, false, row);                                                                               \
  }
NORMALISE(float32, CPU_FLOAT32)
NORMALISE(float16, CPU_FLOAT16)
NORMALISE(bfloat16, CPU_BFLOAT16)

/* The same with rows that are rounded before the weight, which has x's type. */
#define NORMALISE_ROUNDED(name, dtype)                                                                                 \
  static __attribute__((noinline)) void normalise_##name##_rounded(const norm_row *row) {                              \
    if (row->residual)                                                                                                 \
      scale_row((norm_form){dtype, dtype, true, true}, row, scale_of(dtype, true, row));                               \
    else                                                                                                               \
      scale_row((norm_form){dtype, dtype, false, true}, row, scale_of(dtype, false, row));                             \
  }
NORMALISE_ROUNDED(float16, CPU_FLOAT16)
NORMALISE_ROUNDED(bfloat16, CPU_BFLOAT16)

typedef struct norm_job {
  const cpu_norm *norm;
  bool rounded;
} norm_job;

static void norm_one_row(const void *user, const cpu_rows *rows) {
  static void (*const functions[2][CPU_N_DTYPES])(const norm_row *row) = {
      {[CPU_FLOAT32] = normalise_float32, [CPU_FLOAT16] = normalise_float16, [CPU_BFLOAT16] = normalise_bfloat16},
      {[CPU_FLOAT16] = normalise_float16_rounded, [CPU_BFLOAT16] = normalise_bfloat16_rounded}};
  const norm_job *job = user;
  const cpu_norm *norm = job->norm;
  int64_t bytes = norm->hidden * cpu_dtype_size(norm->dtype);
  const norm_row row = {.x = rows->at[0],
                        .residual = rows->at[1],
                        .weight = norm->weight ? fl_data(norm->weight) : NULL,
                        .out = rows->at[2],
                        .residual_out = rows->at[3],
                        .size = norm->hidden,
                        .variance_size = norm->variance_size,
                        .epsilon = norm->epsilon,
                        .weight_dtype = norm->weight ? norm->weight_dtype : CPU_OTHER,
                        .weight_from = norm->from_one ? 1.0f : 0.0f,
                        .around = cpu_rows_around(rows, 2),
                        .residual_around = cpu_rows_around(rows, 3),
                        .next = rows->far ? cpu_rows_ahead(rows, 0, bytes) : (cpu_next_row){NULL, false}};
  functions[job->rounded][norm->dtype](&row);
}

static bool same_place(const DLTensor *a, const DLTensor *b) {
  return a && b && fl_data(a) == fl_data(b);
}

/* What is normalised may be rounded to the element type before the weight, as in vLLM's native definition, or not, as
 * in its kernels: to nearly the same results, unless it is rounded to what is infinite, which it can be if the mean is
 * not that of all squares, or to few digits or 0, of which a large weight makes something else. */
static bool is_rounded(const cpu_norm *norm) {
  const int32_t large = (int32_t)fl_float_bits(64.0f);
  const bool of_its_type = norm->weight && norm->weight_dtype == norm->dtype && !norm->from_one;
  return of_its_type && norm->dtype != CPU_FLOAT32 &&
         (norm->variance_size < norm->hidden ||
          cpu_absolute_maximum(norm->dtype, fl_data(norm->weight), 0, norm->hidden) >= large);
}

fl_status cpu_flagos_norm(const cpu_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->residual, norm->out, norm->residual_out};
  int64_t bytes = norm->hidden * cpu_dtype_size(norm->dtype), touched = norm->residual ? 4 : 2;
  bool in_place = same_place(norm->x, norm->out) || same_place(norm->residual, norm->residual_out);
  return cpu_rows_run(4, tensors, (cpu_row_cost){touched * bytes, in_place ? 0 : touched / 2 * bytes}, norm_one_row,
                      &(norm_job){norm, is_rounded(norm)});
}

static const fl_impl ops[] = {
    {.op_name = "rms_norm", CPU_FLAGOS, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
    {.op_name = "fused_add_rms_norm", CPU_FLAGOS, .fn = cpu_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
    {.op_name = "gemma_rms_norm", CPU_FLAGOS, .fn = cpu_gemma_rms_norm, .self = (cpu_norm_fn[]){cpu_flagos_norm}},
};
OP_LIST(ops);
