/*
 * Norms and gated activations that are quantised at once, a row at a time, with the roundings of vLLM's native
 * definitions: they decide on codes. A row is read from memory once; what its scale was found in is kept, as far as it
 * goes into the first cache, and computed again beyond that.
 */
#include "plugins/cpu/fused_quantisation.h"
#include "plugins/cpu/flagos/codes.h"
#include "plugins/cpu/flagos/squares.h"
#include "plugins/cpu/flagos/vector.h"

enum { KEPT = 4096 }; /* elements; whole chunks */

typedef struct quant_row {
  const void *x, *residual, *weight;
  void *residual_out;
  uint8_t *q;
  int64_t size;
  float epsilon, upper_bound;
  float factor;                 /* of the norm */
  bool around, residual_around; /* the caches: q, residual_out */
} quant_row;

/* What decides on the instructions. */
typedef struct quant_form {
  cpu_dtype dtype;
  bool is_static, is_int8;
  bool divided;       /* by the scale, else times its reciprocal */
  bool bounded_scale; /* by upper_bound, else the magnitude is */
} quant_form;

/* Elements `first` to first + n - 1 of what is quantised. For the `last` time: then the residual may be overwritten. */
typedef void (*chunk_fn)(quant_form form, const quant_row *row, float *values, int64_t first, int64_t n, bool last);

/* ------------------------------------------------------------------------------------------------------------ norm */

/* x, plus the residual where there is one. */
CPU_TEMPLATE void load_input(cpu_dtype dtype, const quant_row *row, float *values, int64_t first, int64_t n) {
  float residual[CPU_CHUNK];
  cpu_load(dtype, values, row->x, first, n);
  if (!row->residual)
    return;
  cpu_load(dtype, residual, row->residual, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] += residual[i];
}

CPU_TEMPLATE void add_squares(cpu_dtype dtype, const quant_row *row, float *lanes, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_input(dtype, row, values, first, n);
  cpu_squares_add_chunk(lanes, values);
}

CPU_TEMPLATE float norm_factor(cpu_dtype dtype, const quant_row *row) {
  cpu_squares squares = {{0}};
  int64_t i = 0;
  for (; i + CPU_LANES <= row->size; i += CPU_LANES) {
    add_squares(dtype, row, squares.lanes, i, CPU_CHUNK);
    add_squares(dtype, row, squares.lanes + CPU_CHUNK, i + CPU_CHUNK, CPU_CHUNK);
  }
  for (; i < row->size; i += CPU_CHUNK)
    add_squares(dtype, row, squares.lanes, i, row->size - i < CPU_CHUNK ? row->size - i : CPU_CHUNK);
  return 1.0f / sqrtf(cpu_squares_sum(&squares) / (float)row->size + row->epsilon);
}

CPU_TEMPLATE void norm_chunk(quant_form form, const quant_row *row, float *values, int64_t first, int64_t n,
                             bool last) {
  float weight[CPU_CHUNK];
  load_input(form.dtype, row, values, first, n);
  if (last && row->residual_out)
    cpu_store_around(form.dtype, row->residual_out, first, values, n, row->residual_around);
  cpu_load(form.dtype, weight, row->weight, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = cpu_round(form.dtype, cpu_round(form.dtype, values[i] * row->factor) * weight[i]);
}

/* ------------------------------------------------------------------------------------------------------------ gate */

CPU_TEMPLATE void gated_chunk(quant_form form, const quant_row *row, float *values, int64_t first, int64_t n,
                              bool last) {
  float up[CPU_CHUNK];
  (void)last;
  cpu_load_ahead(form.dtype, values, row->x, first, n);
  cpu_load_ahead(form.dtype, up, row->x, row->size + first, n);
  for (int i = 0; i < CPU_CHUNK; i++) {
    float gate = vector_silu(values[i]);
    values[i] = form.is_static ? cpu_round(form.dtype, cpu_round(form.dtype, gate) * up[i]) : gate * up[i];
  }
}

/* ----------------------------------------------------------------------------------------------------------- codes */

static float scale_of(quant_form form, const quant_row *row, float largest) {
  float most = form.is_int8 ? 127.0f : 448.0f, least = form.is_int8 ? 0x1p-23f : (float)(1.0 / (448.0 * 512.0));
  float bound = row->upper_bound;
  float scale = (!form.bounded_scale && largest > bound ? bound : largest) / most;
  scale = form.bounded_scale && scale > bound ? bound : scale;
  return scale < least ? least : scale;
}

/* Lanes that are no elements count as 0. */
CPU_TEMPLATE void find_largest(quant_form form, chunk_fn chunk, const quant_row *row, int32_t *largest, float *kept,
                               int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  chunk(form, row, values, first, n, kept);
  if (n < CPU_CHUNK)
    for (int i = 0; i < CPU_CHUNK; i++)
      values[i] = i < n ? values[i] : 0.0f;
  cpu_magnitudes(largest, values);
  if (kept)
    cpu_copy_float32((char *)kept, (const char *)values);
}

CPU_TEMPLATE void write_codes(quant_form form, const quant_row *row, const float *values, float scale, float reciprocal,
                              int64_t first, int64_t n) {
  float scaled[CPU_CHUNK];
  uint32_t codes[CPU_CHUNK];
  for (int i = 0; i < CPU_CHUNK; i++)
    scaled[i] = form.divided ? values[i] / scale : values[i] * reciprocal;
  if (!form.is_int8) {
    cpu_store_codes8(cpu_e4m3fn, false, row->q, first, scaled, n, false, row->around);
    return;
  }
  for (int i = 0; i < CPU_CHUNK; i++)
    codes[i] = cpu_int8_code(scaled[i]);
  cpu_store_codes(row->q, first, codes, n, row->around);
}

/* The chunk at `first` of those that end at `end`. */
CPU_TEMPLATE int64_t in_chunk(int64_t first, int64_t end) {
  return end - first < CPU_CHUNK ? end - first : CPU_CHUNK;
}

/* Elements [begin, end), with a scale of their own if that is computed. */
CPU_TEMPLATE void quantise(quant_form form, chunk_fn chunk, const quant_row *row, int64_t begin, int64_t end,
                           float *scale) {
  _Alignas(64) float kept[KEPT];
  int64_t known = form.is_static ? begin : end - begin < KEPT ? end : begin + KEPT;
  if (!form.is_static) {
    int32_t largest[CPU_CHUNK] = {0};
    int64_t i = begin;
    for (; i + CPU_CHUNK <= known; i += CPU_CHUNK)
      find_largest(form, chunk, row, largest, kept + (i - begin), i, CPU_CHUNK);
    for (; i < end; i += CPU_CHUNK)
      find_largest(form, chunk, row, largest, i < known ? kept + (i - begin) : NULL, i, in_chunk(i, end));
    *scale = scale_of(form, row, cpu_largest_magnitude(largest));
  }
  const float by = *scale, reciprocal = 1.0f / by;
  int64_t i = begin;
  for (; i + CPU_CHUNK <= known; i += CPU_CHUNK)
    write_codes(form, row, kept + (i - begin), by, reciprocal, i, CPU_CHUNK);
  for (; i < known; i += CPU_CHUNK)
    write_codes(form, row, kept + (i - begin), by, reciprocal, i, in_chunk(i, end));
  for (; i < end; i += CPU_CHUNK) {
    float values[CPU_CHUNK];
    chunk(form, row, values, i, in_chunk(i, end), true);
    write_codes(form, row, values, by, reciprocal, i, in_chunk(i, end));
  }
}

/* ------------------------------------------------------------------------------------------------------------ rows */

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
  row.factor = norm_factor(form.dtype, &row);
  quantise(form, norm_chunk, &row, 0, row.size, form.is_static ? &given : cpu_fused_scales(quant, rows));
}

/* Groups that are no whole chunks make codes that begin anywhere. */
CPU_TEMPLATE void gated_as(quant_form form, const cpu_fused_quant *quant, const cpu_rows *rows) {
  float given = quant->scale, *scales = form.is_static ? &given : cpu_fused_scales(quant, rows);
  const quant_row row = {.x = rows->at[0],
                         .q = rows->at[1],
                         .size = quant->size,
                         .upper_bound = quant->upper_bound,
                         .around = cpu_rows_around(rows, 1) && (form.is_static || quant->group % CPU_CHUNK == 0)};
  for (int64_t begin = 0; begin < row.size; begin += quant->group)
    quantise(form, gated_chunk, &row, begin, begin + quant->group, scales++);
}

typedef void (*row_fn)(const cpu_fused_quant *quant, const cpu_rows *rows);

enum { STATIC_FLOAT8, FLOAT8, INT8, N_CODES };

#define ROW(name, as, ...)                                                                                             \
  static void name(const cpu_fused_quant *quant, const cpu_rows *rows) {                                               \
    as((quant_form){__VA_ARGS__}, quant, rows);                                                                        \
  }
#define ROWS(type, dtype_)                                                                                             \
  ROW(type##_norm_static, norm_as, .dtype = dtype_, .is_static = true)                                                 \
  ROW(type##_norm_float8, norm_as, .dtype = dtype_, .divided = true)                                                   \
  ROW(type##_norm_int8, norm_as, .dtype = dtype_, .is_int8 = true)                                                     \
  ROW(type##_gated_static, gated_as, .dtype = dtype_, .is_static = true)                                               \
  ROW(type##_gated_float8, gated_as, .dtype = dtype_, .divided = true, .bounded_scale = true)                          \
  ROW(type##_gated_int8, gated_as, .dtype = dtype_, .is_int8 = true, .divided = true, .bounded_scale = true)
ROWS(float32, CPU_FLOAT32)
ROWS(float16, CPU_FLOAT16)
ROWS(bfloat16, CPU_BFLOAT16)

static const row_fn norm_rows[CPU_N_DTYPES][N_CODES] = {
    [CPU_FLOAT32] = {float32_norm_static, float32_norm_float8, float32_norm_int8},
    [CPU_FLOAT16] = {float16_norm_static, float16_norm_float8, float16_norm_int8},
    [CPU_BFLOAT16] = {bfloat16_norm_static, bfloat16_norm_float8, bfloat16_norm_int8},
};

static const row_fn gated_rows[CPU_N_DTYPES][N_CODES] = {
    [CPU_FLOAT32] = {float32_gated_static, float32_gated_float8, float32_gated_int8},
    [CPU_FLOAT16] = {float16_gated_static, float16_gated_float8, float16_gated_int8},
    [CPU_BFLOAT16] = {bfloat16_gated_static, bfloat16_gated_float8, bfloat16_gated_int8},
};

static int codes_of(const cpu_fused_quant *quant) {
  return quant->is_static ? STATIC_FLOAT8 : quant->is_int8 ? INT8 : FLOAT8;
}

static void norm_row(const void *user, const cpu_rows *rows) {
  const cpu_fused_quant *quant = user;
  norm_rows[quant->dtype][codes_of(quant)](quant, rows);
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
