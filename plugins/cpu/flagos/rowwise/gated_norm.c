/*
 * RMS norms with a gate. What is normalised, x times the activated gate, may cost an exp for each element: one pass
 * over a piece of a group computes it, adds up its squares and keeps it for the pass that scales it.
 */
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/flagos/vectors/squares.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/normalisation.h"
#include "plugins/cpu/support/rows.h"

#include <math.h>

enum { KEPT = 8192 }; /* elements of a piece; whole chunks */

/* What is done to elements before the norm, and after it: times the gate by one of two activations; or rounded to x's
 * type, which comes before the weight. */
typedef enum step { NOTHING, SILU, SIGMOID, ROUNDING } step;

typedef struct gated_row {
  const void *x, *gate, *weight; /* gate and weight may be NULL */
  void *out;
  step before, after;
  cpu_dtype weight_dtype; /* CPU_OTHER where there is none */
  cpu_dtype out_dtype;    /* float32, or as x */
  bool around;            /* the caches: out */
} gated_row;

/* What decides on the instructions. */
typedef struct gated_form {
  cpu_dtype dtype, weight_dtype;
  step step;
} gated_form;

CPU_TEMPLATE void multiply_by_gate(gated_form form, float *values, const char *gates, int64_t first) {
  float gate[CPU_CHUNK];
  if (form.step != SILU && form.step != SIGMOID)
    return;
  cpu_load_ahead(form.dtype, gate, gates, first, CPU_CHUNK);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] *= form.step == SILU ? vector_silu(gate[i]) : vector_sigmoid(gate[i]);
}

/* Of the gates of a row those from element `first` on, as far as they are in the span. */
CPU_TEMPLATE const char *gates_in(gated_form form, cpu_span *span, const gated_row *row, int64_t first) {
  const int64_t bytes = cpu_dtype_size(form.dtype);
  if (form.step != SILU && form.step != SIGMOID)
    return NULL;
  return cpu_span_in(span, 1, (const char *)row->gate + first * bytes, bytes);
}

/* ------------------------------------------------------------------------------------------------------- first pass */

CPU_TEMPLATE void begin(gated_form form, const gated_row *row, float *kept, float *restrict lanes, int64_t first,
                        int64_t n) {
  const int64_t bytes = cpu_dtype_size(form.dtype);
  cpu_span span;
  for (cpu_span_begin(&span, n, CPU_CHUNK, false); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, (const char *)row->x + first * bytes, bytes);
    const char *gates = gates_in(form, &span, row, first);
    float *restrict keep = kept + span.first;
    for (int64_t i = 0, size = span.size; i < size; i += CPU_CHUNK) {
      float values[CPU_CHUNK];
      cpu_load_ahead(form.dtype, values, x, i, CPU_CHUNK);
      multiply_by_gate(form, values, gates, i);
      cpu_squares_add_chunk(lanes, values);
      cpu_copy_float32((char *)(keep + i), (const char *)values);
    }
  }
}

CPU_TEMPLATE void begin_as(cpu_dtype dtype, const gated_row *row, float *kept, float *lanes, int64_t first, int64_t n) {
  if (row->before == SILU)
    begin((gated_form){.dtype = dtype, .step = SILU}, row, kept, lanes, first, n);
  else if (row->before == SIGMOID)
    begin((gated_form){.dtype = dtype, .step = SIGMOID}, row, kept, lanes, first, n);
  else
    begin((gated_form){.dtype = dtype, .step = NOTHING}, row, kept, lanes, first, n);
}

/* ------------------------------------------------------------------------------------------------------ second pass */

CPU_TEMPLATE void end(gated_form form, const gated_row *row, const float *kept, float scale, int64_t first, int64_t n) {
  const int64_t bytes = cpu_dtype_size(form.dtype), weight_bytes = cpu_dtype_size(form.weight_dtype);
  const bool in_float = row->out_dtype == CPU_FLOAT32, weighted = form.weight_dtype != CPU_OTHER;
  const int64_t out_bytes = in_float ? (int64_t)sizeof(float) : bytes;
  char *row_out = (char *)row->out + first * out_bytes;
  cpu_span span;
  for (cpu_span_begin(&span, n, CPU_CHUNK, row->around); span.size; cpu_span_next(&span)) {
    const char *gates = gates_in(form, &span, row, first), *weight = NULL;
    const float *keep = kept + span.first;
    const bool around = span.around;
    char *out = cpu_span_out(&span, 0, row_out);
    if (weighted)
      weight = cpu_span_in(&span, 2, (const char *)row->weight + first * weight_bytes, weight_bytes);
    for (int64_t i = 0, size = span.size; i < size; i += CPU_CHUNK) {
      float values[CPU_CHUNK], weights[CPU_CHUNK];
      for (int lane = 0; lane < CPU_CHUNK; lane++) {
        values[lane] = keep[i + lane] * scale;
        if (form.step == ROUNDING)
          values[lane] = cpu_round(form.dtype, values[lane]);
      }
      if (weighted) {
        cpu_load_other(form.dtype, form.weight_dtype, weights, weight, i, CPU_CHUNK);
        for (int lane = 0; lane < CPU_CHUNK; lane++)
          values[lane] *= weights[lane];
      }
      multiply_by_gate(form, values, gates, i);
      if (in_float)
        cpu_store_around(CPU_FLOAT32, out, i, values, CPU_CHUNK, around);
      else
        cpu_store_around(form.dtype, out, i, values, CPU_CHUNK, around);
    }
    cpu_span_end(&span, 0, row_out, out_bytes);
  }
}

CPU_TEMPLATE void end_with(cpu_dtype dtype, cpu_dtype weight_dtype, const gated_row *row, const float *kept,
                           float scale, int64_t first, int64_t n) {
  if (row->after == ROUNDING)
    end((gated_form){dtype, weight_dtype, ROUNDING}, row, kept, scale, first, n);
  else if (row->after == SILU)
    end((gated_form){dtype, weight_dtype, SILU}, row, kept, scale, first, n);
  else if (row->after == SIGMOID)
    end((gated_form){dtype, weight_dtype, SIGMOID}, row, kept, scale, first, n);
  else
    end((gated_form){dtype, weight_dtype, NOTHING}, row, kept, scale, first, n);
}

/* Without a weight nothing comes after the norm. One has x's type, or is float32; that of x in float32
 * has any. */
CPU_TEMPLATE void end_as(cpu_dtype dtype, const gated_row *row, const float *kept, float scale, int64_t first,
                         int64_t n) {
  if (row->weight_dtype == CPU_OTHER)
    end((gated_form){dtype, CPU_OTHER, NOTHING}, row, kept, scale, first, n);
  else if (dtype != CPU_BFLOAT16 && row->weight_dtype == CPU_FLOAT16)
    end_with(dtype, CPU_FLOAT16, row, kept, scale, first, n);
  else if (dtype != CPU_FLOAT16 && row->weight_dtype == CPU_BFLOAT16)
    end_with(dtype, CPU_BFLOAT16, row, kept, scale, first, n);
  else
    end_with(dtype, CPU_FLOAT32, row, kept, scale, first, n);
}

/* ------------------------------------------------------------------------------------------------------------- rows */

/* Functions of their own: together they are more than compilers optimise well. */
#define PASSES(name, dtype)                                                                                            \
  static __attribute__((noinline)) void begin_##name(const gated_row *row, float *kept, float *lanes, int64_t first,   \
                                                     int64_t n) {                                                      \
    begin_as(dtype, row, kept, lanes, first, n);                                                                       \
  }                                                                                                                    \
  static __attribute__((noinline)) void end_##name(const gated_row *row, const float *kept, float scale,               \
                                                   int64_t first, int64_t n) {                                         \
    end_as(dtype, row, kept, scale, first, n);                                                                         \
  }
PASSES(float32, CPU_FLOAT32)
PASSES(float16, CPU_FLOAT16)
PASSES(bfloat16, CPU_BFLOAT16)

typedef struct passes {
  /* Keeps `n` elements from `first` on of what is normalised, n <= KEPT, and adds their squares to the lanes. */
  void (*begin)(const gated_row *row, float *kept, float *lanes, int64_t first, int64_t n);
  /* Makes results of them. */
  void (*end)(const gated_row *row, const float *kept, float scale, int64_t first, int64_t n);
} passes;

static const passes all_passes[CPU_N_DTYPES] = {[CPU_FLOAT32] = {begin_float32, end_float32},
                                                [CPU_FLOAT16] = {begin_float16, end_float16},
                                                [CPU_BFLOAT16] = {begin_bfloat16, end_bfloat16}};

static float scale_of(const cpu_gated_norm *norm, const cpu_squares *squares) {
  if (!norm->normalise)
    return 1.0f;
  return 1.0f / sqrtf(cpu_squares_sum(squares) / (float)norm->group + norm->epsilon);
}

/* Of a group of several pieces the last is still kept when all squares are known; the others are computed again. */
static void normalise_group(const cpu_gated_norm *norm, const gated_row *row, int64_t first) {
  const passes *pass = &all_passes[norm->dtype];
  _Alignas(64) float kept[KEPT];
  cpu_squares squares = {{0}}, again = {{0}};
  int64_t last = (norm->group - 1) / KEPT * KEPT;
  for (int64_t at = 0; at < last; at += KEPT)
    pass->begin(row, kept, squares.lanes, first + at, KEPT);
  pass->begin(row, kept, squares.lanes, first + last, norm->group - last);
  float scale = scale_of(norm, &squares);
  pass->end(row, kept, scale, first + last, norm->group - last);
  for (int64_t at = 0; at < last; at += KEPT) {
    pass->begin(row, kept, again.lanes, first + at, KEPT);
    pass->end(row, kept, scale, first + at, KEPT);
  }
}

static void normalise_row(const void *user, const cpu_rows *rows) {
  const cpu_gated_norm *norm = user;
  step gate = !norm->gate ? NOTHING : norm->sigmoid ? SIGMOID : SILU;
  const gated_row row = {.x = rows->at[0],
                         .gate = rows->at[1],
                         .weight = norm->weight ? fl_data(norm->weight) : NULL,
                         .out = rows->at[2],
                         .before = norm->gate_after ? NOTHING : gate,
                         .after = norm->round_norm   ? ROUNDING
                                  : norm->gate_after ? gate
                                                     : NOTHING,
                         .weight_dtype = norm->weight ? norm->weight_dtype : CPU_OTHER,
                         .out_dtype = cpu_dtype_of(norm->out),
                         .around = cpu_rows_around(rows, 2) && norm->group % CPU_CHUNK == 0};
  for (int64_t first = 0; first < norm->x->shape[norm->x->ndim - 1]; first += norm->group)
    normalise_group(norm, &row, first);
}

fl_status cpu_flagos_gated_norm(const cpu_gated_norm *norm) {
  DLTensor *const tensors[] = {norm->x, norm->gate, norm->out};
  int64_t size = norm->x->shape[norm->x->ndim - 1];
  bool in_place = fl_data(norm->out) == fl_data(norm->x) || (norm->gate && fl_data(norm->out) == fl_data(norm->gate));
  const cpu_row_cost cost = {.work = 3 * size * cpu_dtype_size(norm->dtype) * CPU_WORK_EXP,
                             .written = in_place ? 0 : size * cpu_dtype_size(cpu_dtype_of(norm->out))};
  return cpu_rows_run(3, tensors, cost, normalise_row, norm);
}

static const fl_impl ops[] = {
    {.op_name = "rms_norm_gated",
     CPU_FLAGOS,
     .fn = cpu_rms_norm_gated,
     .self = (cpu_gated_norm_fn[]){cpu_flagos_gated_norm}},
    {.op_name = "mixer2_gated_rms_norm",
     CPU_FLAGOS,
     .fn = cpu_mixer2_gated_rms_norm,
     .self = (cpu_gated_norm_fn[]){cpu_flagos_gated_norm}},
};
OP_LIST(ops);
