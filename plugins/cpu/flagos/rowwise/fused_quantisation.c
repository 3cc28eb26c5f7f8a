/*
 * Norms and gated activations that are quantised at once, a row at a time, with the roundings of vLLM's native
 * definitions: they decide on codes. A row is read from memory once; what its scale was found in is kept, as far as it
 * goes into the first cache, and computed again beyond that.
 */
#include "plugins/cpu/fused_quantisation.h"
#include "plugins/cpu/flagos/vectors/codes.h"
#include "plugins/cpu/flagos/vectors/lookup.h"
#include "plugins/cpu/flagos/vectors/span.h"
#include "plugins/cpu/flagos/vectors/squares.h"
#include "plugins/cpu/flagos/vectors/vector.h"

enum { KEPT = 4096 }; /* elements; whole chunks */

typedef struct quant_row {
  const void *x, *residual, *weight;
  void *residual_out;
  uint8_t *q;
  int64_t size;
  float epsilon, upper_bound;
  float factor;                 /* of the norm */
  const uint16_t *silu;         /* of numbers of the type, where it is looked up */
  bool around, residual_around; /* the caches: q, residual_out */
} quant_row;

/* What decides on the instructions. */
typedef struct quant_form {
  cpu_dtype dtype;
  bool gated;     /* an activation, else a norm */
  bool looked_up; /* of numbers of 16 bits */
  bool residual;  /* of a norm */
  bool is_static, is_int8;
  bool divided;       /* by the scale, else times its reciprocal */
  bool bounded_scale; /* by upper_bound, else the magnitude is */
} quant_form;

/* What is read of a row, and the sum with the residual, as far as they are in a span. */
typedef struct quant_span {
  const char *x, *residual, *weight; /* of a norm */
  const char *up;                    /* of an activation */
  char *residual_out;
} quant_span;

/* ------------------------------------------------------------------------------------------------------------ norm */

CPU_TEMPLATE float norm_factor(cpu_dtype dtype, const quant_row *row) {
  float squares = row->residual ? cpu_squares_of_row(dtype, true, row->x, row->residual, row->size)
                                : cpu_squares_of_row(dtype, false, row->x, NULL, row->size);
  return 1.0f / sqrtf(squares / (float)row->size + row->epsilon);
}

/* For the `last` time: then the residual may be overwritten. */
CPU_TEMPLATE void norm_chunk(quant_form form, const quant_row *row, const quant_span *in, float *values, int64_t first,
                             bool last, bool around) {
  float weight[CPU_CHUNK];
  cpu_load_sum(form.dtype, form.residual, values, in->x, in->residual, first);
  if (form.residual && last)
    cpu_store_around(form.dtype, in->residual_out, first, values, CPU_CHUNK, around);
  cpu_load(form.dtype, weight, in->weight, first, CPU_CHUNK);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = cpu_round(form.dtype, cpu_round(form.dtype, values[i] * row->factor) * weight[i]);
}

/* ------------------------------------------------------------------------------------------------------------ gate */

CPU_TEMPLATE void gated_chunk(quant_form form, const quant_row *row, const quant_span *in, float *values,
                              int64_t first) {
  float up[CPU_CHUNK];
  char found[LOOKUP_BYTES];
  cpu_load_ahead(form.dtype, values, in->x, first, CPU_CHUNK);
  cpu_load_ahead(form.dtype, up, in->up, first, CPU_CHUNK);
  if (form.looked_up) {
    lookup_chunk(row->silu, found, in->x + first * (int64_t)sizeof *row->silu, 1);
    cpu_widen(form.dtype, values, found);
  }
  for (int i = 0; i < CPU_CHUNK && !form.looked_up; i++) {
    float gate = vector_silu(values[i]);
    values[i] = form.is_static ? cpu_round(form.dtype, gate) : gate;
  }
  for (int i = 0; i < CPU_CHUNK; i++) {
    float product = values[i] * up[i];
    values[i] = form.is_static ? cpu_round(form.dtype, product) : product;
  }
}

/* ------------------------------------------------------------------------------------------------------------ both */

/* `begin`: of the elements that the span is of. */
CPU_TEMPLATE quant_span read_span(quant_form form, cpu_span *span, const quant_row *row, int64_t begin) {
  const int64_t bytes = cpu_dtype_size(form.dtype);
  const char *x = (const char *)row->x + begin * bytes;
  if (form.gated)
    return (quant_span){.x = cpu_span_in(span, 0, x, bytes), .up = cpu_span_in(span, 1, x + row->size * bytes, bytes)};
  return (quant_span){.x = cpu_span_in(span, 0, x, bytes),
                      .residual = form.residual ? cpu_span_in(span, 1, row->residual, bytes) : NULL,
                      .weight = cpu_span_in(span, 2, row->weight, bytes),
                      .residual_out = form.residual ? cpu_span_out(span, 1, row->residual_out) : NULL};
}

/* What was written of it, where a padded chunk was the last time. */
CPU_TEMPLATE void end_span(quant_form form, const cpu_span *span, const quant_row *row) {
  if (form.residual)
    cpu_span_end(span, 1, row->residual_out, cpu_dtype_size(form.dtype));
}

/* A chunk of what is quantised. */
CPU_TEMPLATE void chunk(quant_form form, const quant_row *row, const cpu_span *span, const quant_span *in,
                        float *values, int64_t first, bool last) {
  if (form.gated)
    gated_chunk(form, row, in, values, first);
  else
    norm_chunk(form, row, in, values, first, last, !span->padded && row->residual_around);
}

/* ----------------------------------------------------------------------------------------------------------- codes */

static float scale_of(quant_form form, const quant_row *row, float largest) {
  float most = form.is_int8 ? 127.0f : 448.0f, least = form.is_int8 ? 0x1p-23f : (float)(1.0 / (448.0 * 512.0));
  float bound = row->upper_bound;
  float scale = (!form.bounded_scale && largest > bound ? bound : largest) / most;
  scale = form.bounded_scale && scale > bound ? bound : scale;
  return scale < least ? least : scale;
}

CPU_TEMPLATE void write_codes(quant_form form, uint8_t *q, const float *values, float scale, float reciprocal,
                              int64_t first, bool around) {
  float scaled[CPU_CHUNK];
  uint32_t codes[CPU_CHUNK];
  for (int i = 0; i < CPU_CHUNK; i++)
    scaled[i] = form.divided ? values[i] / scale : values[i] * reciprocal;
  if (!form.is_int8) {
    cpu_store_codes8(cpu_e4m3fn, false, q, first, scaled, CPU_CHUNK, false, around);
    return;
  }
  for (int i = 0; i < CPU_CHUNK; i++)
    codes[i] = cpu_int8_code(scaled[i]);
  cpu_store_codes(q, first, codes, CPU_CHUNK, around);
}

/* The largest magnitude of n elements from `begin` on, of which the first KEPT are kept. */
CPU_TEMPLATE float find_largest(quant_form form, const quant_row *row, int64_t begin, int64_t n, float *kept) {
  int32_t largest[CPU_CHUNK] = {0};
  cpu_span span;
  for (cpu_span_begin(&span, n, CPU_CHUNK, false); span.size; cpu_span_next(&span)) {
    const quant_span in = read_span(form, &span, row, begin);
    const int64_t first = span.first;
    const int elements = span.padded ? (int)span.left : CPU_CHUNK; /* none behind the last one */
    for (int64_t i = 0, size = span.size; i < size; i += CPU_CHUNK) {
      float values[CPU_CHUNK];
      const int64_t place = first + i < KEPT ? first + i : KEPT;
      chunk(form, row, &span, &in, values, i, place < KEPT);
      for (int lane = 0; lane < CPU_CHUNK; lane++)
        values[lane] = lane < elements ? values[lane] : 0.0f;
      cpu_magnitudes(largest, values);
      cpu_copy_float32((char *)(kept + place), (const char *)values);
    }
    if (first < KEPT)
      end_span(form, &span, row);
  }
  return cpu_largest_magnitude(largest);
}

/* n elements from `begin` on, with a scale of their own if that is computed. */
CPU_TEMPLATE void quantise(quant_form form, const quant_row *row, int64_t begin, int64_t n, float *scale) {
  _Alignas(64) float kept[KEPT + CPU_CHUNK]; /* the last chunk: of all that is not kept */
  if (!form.is_static)
    *scale = scale_of(form, row, find_largest(form, row, begin, n, kept));
  const float by = *scale, reciprocal = 1.0f / by;
  cpu_span span;
  for (cpu_span_begin(&span, n, CPU_CHUNK, row->around); span.size; cpu_span_next(&span)) {
    const quant_span in = read_span(form, &span, row, begin);
    const int64_t first = span.first, size = span.size, left = form.is_static || first > KEPT ? 0 : KEPT - first;
    const bool around = span.around;
    uint8_t *q = (uint8_t *)cpu_span_out(&span, 0, row->q + begin);
    float values[CPU_CHUNK];
    int64_t i = 0;
    for (; i < size && i < left; i += CPU_CHUNK) {
      cpu_copy_float32((char *)values, (const char *)(kept + first + i));
      write_codes(form, q, values, by, reciprocal, i, around);
    }
    for (; i < size; i += CPU_CHUNK) {
      chunk(form, row, &span, &in, values, i, true);
      write_codes(form, q, values, by, reciprocal, i, around);
    }
    cpu_span_end(&span, 0, row->q + begin, 1);
    if (form.is_static || first >= KEPT)
      end_span(form, &span, row);
  }
}

/* ------------------------------------------------------------------------------------------------------------ rows */

/* Functions of their own, which several row functions share. */
static __attribute__((noinline)) float norm_factor_float32(const quant_row *row) {
  return norm_factor(CPU_FLOAT32, row);
}

static __attribute__((noinline)) float norm_factor_float16(const quant_row *row) {
  return norm_factor(CPU_FLOAT16, row);
}

static __attribute__((noinline)) float norm_factor_bfloat16(const quant_row *row) {
  return norm_factor(CPU_BFLOAT16, row);
}

static float (*const norm_factors[CPU_N_DTYPES])(const quant_row *row) = {
    [CPU_FLOAT32] = norm_factor_float32, [CPU_FLOAT16] = norm_factor_float16, [CPU_BFLOAT16] = norm_factor_bfloat16};

CPU_TEMPLATE void norm_as(quant_form form, const cpu_fused_quant *quant, const cpu_rows *rows) {
  float given = quant->scale;
  quant_row row = {.x = rows->at[0],
                   .residual = rows->at[1],
                   .weight = quant->weight,
                   .residual_out = rows->at[3],
                   .q = rows->at[2],
                   .size = quant->size,
                   .epsilon = quant->epsilon,
                   .upper_bound = quant->upper_bound,
                   .around = cpu_rows_around(rows, 2),
                   .residual_around = cpu_rows_around(rows, 3)};
  row.factor = norm_factors[form.dtype](&row);
  quantise(form, &row, 0, row.size, form.is_static ? &given : cpu_fused_scales(quant, rows));
}

/* Groups that are no whole chunks make codes that begin anywhere. */
CPU_TEMPLATE void gated_as(quant_form form, const cpu_fused_quant *quant, const cpu_rows *rows) {
  const bool rounded = form.is_static; /* the activation, so that it may be looked up */
  float given = quant->scale, *scales = form.is_static ? &given : cpu_fused_scales(quant, rows);
  const quant_row row = {.x = rows->at[0],
                         .q = rows->at[1],
                         .size = quant->size,
                         .upper_bound = quant->upper_bound,
                         .silu = rounded ? cpu_silu_results(form.dtype, quant->n_rows * quant->size) : NULL,
                         .around = cpu_rows_around(rows, 1) && (form.is_static || quant->group % CPU_CHUNK == 0)};
  if (rounded && row.silu) {
    form.looked_up = true;
    quantise(form, &row, 0, row.size, scales);
    return;
  }
  for (int64_t begin = 0; begin < row.size; begin += quant->group)
    quantise(form, &row, begin, quant->group, scales++);
}

typedef void (*row_fn)(const cpu_fused_quant *quant, const cpu_rows *rows);

enum { STATIC_FLOAT8, FLOAT8, INT8, N_CODES };

#define ROW(name, as, ...)                                                                                             \
  static void name(const cpu_fused_quant *quant, const cpu_rows *rows) {                                               \
    as((quant_form){__VA_ARGS__}, quant, rows);                                                                        \
  }
#define NORM_ROWS(type, norm, ...)                                                                                     \
  ROW(type##_##norm##_static, norm_as, __VA_ARGS__, .is_static = true)                                                 \
  ROW(type##_##norm##_float8, norm_as, __VA_ARGS__, .divided = true)                                                   \
  ROW(type##_##norm##_int8, norm_as, __VA_ARGS__, .is_int8 = true)
#define ROWS(type, dtype_)                                                                                             \
  NORM_ROWS(type, norm, .dtype = dtype_)                                                                               \
  NORM_ROWS(type, added_norm, .dtype = dtype_, .residual = true)                                                       \
  ROW(type##_gated_static, gated_as, .dtype = dtype_, .gated = true, .is_static = true)                                \
  ROW(type##_gated_float8, gated_as, .dtype = dtype_, .gated = true, .divided = true, .bounded_scale = true)           \
  ROW(type##_gated_int8, gated_as, .dtype = dtype_, .gated = true, .is_int8 = true, .divided = true,                   \
      .bounded_scale = true)
ROWS(float32, CPU_FLOAT32)
ROWS(float16, CPU_FLOAT16)
ROWS(bfloat16, CPU_BFLOAT16)

#define NAMES(name)                                                                                                    \
  { name##_static, name##_float8, name##_int8 }
static const row_fn norm_rows[CPU_N_DTYPES][N_CODES] = {
    [CPU_FLOAT32] = NAMES(float32_norm), [CPU_FLOAT16] = NAMES(float16_norm), [CPU_BFLOAT16] = NAMES(bfloat16_norm)};
static const row_fn added_norm_rows[CPU_N_DTYPES][N_CODES] = {[CPU_FLOAT32] = NAMES(float32_added_norm),
                                                              [CPU_FLOAT16] = NAMES(float16_added_norm),
                                                              [CPU_BFLOAT16] = NAMES(bfloat16_added_norm)};
static const row_fn gated_rows[CPU_N_DTYPES][N_CODES] = {
    [CPU_FLOAT32] = NAMES(float32_gated), [CPU_FLOAT16] = NAMES(float16_gated), [CPU_BFLOAT16] = NAMES(bfloat16_gated)};

static int codes_of(const cpu_fused_quant *quant) {
  return quant->is_static ? STATIC_FLOAT8 : quant->is_int8 ? INT8 : FLOAT8;
}

static void norm_row(const void *user, const cpu_rows *rows) {
  const cpu_fused_quant *quant = user;
  (rows->at[1] ? added_norm_rows : norm_rows)[quant->dtype][codes_of(quant)](quant, rows);
}

static void gated_row(const void *user, const cpu_rows *rows) {
  const cpu_fused_quant *quant = user;
  gated_rows[quant->dtype][codes_of(quant)](quant, rows);
}

static cpu_fused_quant_parts parts = {norm_row, gated_row};

static const fl_impl ops[] = {
    {.op_name = "rms_norm_static_fp8_quant", CPU_FLAGOS, .fn = cpu_rms_norm_static_fp8_quant, .self = &parts},
    {.op_name = "fused_add_rms_norm_static_fp8_quant",
     CPU_FLAGOS,
     .fn = cpu_fused_add_rms_norm_static_fp8_quant,
     .self = &parts},
    {.op_name = "rms_norm_dynamic_per_token_quant",
     CPU_FLAGOS,
     .fn = cpu_rms_norm_dynamic_per_token_quant,
     .self = &parts},
    {.op_name = "silu_and_mul_quant", CPU_FLAGOS, .fn = cpu_silu_and_mul_quant, .self = &parts},
    {.op_name = "silu_and_mul_per_block_quant", CPU_FLAGOS, .fn = cpu_silu_and_mul_per_block_quant, .self = &parts},
};
OP_LIST(ops);
