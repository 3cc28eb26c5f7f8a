/*
 * quant_fp8 and scaled_int8_quant, a chunk of a row at a time, with the arithmetic of vLLM's native definition: codes
 * are the same. The largest magnitude is found among the bits of elements, which are ordered like magnitudes, with NaN
 * above all.
 */
#include "plugins/cpu/quantisation.h"
#include "plugins/cpu/flagos/vectors/codes.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"

#include <stdatomic.h>

/* ----------------------------------------------------------------------------------------------------------- scales */

static float scale_of(const cpu_quant *quant, int32_t largest_bits) {
  float largest = fl_float_from_bits((uint32_t)largest_bits);
  float scale = (largest > quant->upper_bound ? quant->upper_bound : largest) / quant->type->largest;
  if (quant->power_of_two)
    scale = exp2f(ceilf(log2f(scale)));
  return scale < quant->type->least_scale ? quant->type->least_scale : scale;
}

typedef struct maximum_loop {
  const cpu_quant *quant;
  cpu_rows begin;
  _Atomic int32_t largest;
} maximum_loop;

static fl_status maximum_of_rows(void *user, int64_t first, int64_t end) {
  maximum_loop *loop = user;
  cpu_rows rows;
  cpu_rows_copy(&rows, &loop->begin);
  int32_t largest = 0;
  cpu_rows_skip(&rows, first);
  for (int64_t i = first; i < end; i++, cpu_rows_next(&rows))
    largest = cpu_larger(largest, cpu_absolute_maximum(loop->quant->dtype, rows.at[0], 0, loop->quant->hidden));
  int32_t others = atomic_load(&loop->largest);
  while (largest > others && !atomic_compare_exchange_weak(&loop->largest, &others, largest))
    ;
  return FL_OK;
}

static float scale_of_tensor(const cpu_quant *quant) {
  maximum_loop loop = {.quant = quant, .begin = cpu_rows_begin(1, &quant->x)};
  int64_t bytes = quant->hidden * cpu_dtype_size(quant->dtype);
  cpu_parallel_for(loop.begin.left, cpu_grain(bytes), maximum_of_rows, &loop); /* which cannot fail */
  return scale_of(quant, loop.largest);
}

/* ----------------------------------------------------------------------------------------------------------- codes */

static const cpu_codes8 e4m3fnuz = {0x43600000, 120 << 23, 0x1p20f + 372, true};

/* CPU_NAN_CODE is none of this type, whose largest value has no code that high. */
static __attribute__((noinline)) void make_fnuz(uint8_t *q, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    q[i] = q[i] == 0x80 ? 0 : q[i] == CPU_NAN_CODE ? 0x80 : q[i];
}

/* What becomes of values: float8 codes, of values that are within the type's by TIMES_WITHIN; or int8 codes, the last
 * by a zero point. */
typedef enum scaling { TIMES, TIMES_WITHIN, DIVIDED, BY_COLUMN, INT8_TIMES, INT8_DIVIDED, SHIFTED, N_SCALINGS } scaling;

/* What decides on the instructions. */
typedef struct quant_form {
  cpu_dtype dtype;
  scaling scaling;
} quant_form;

/* Elements [begin, end) of a row. */
typedef struct quant_range {
  const char *x;
  uint8_t *q;
  int64_t begin, end;
  bool around; /* the caches */
  cpu_next_row next;
  cpu_codes8 to;
  float scale, reciprocal;
  const float *scales; /* BY_COLUMN */
  int32_t azp;         /* SHIFTED */
} quant_range;

/* In the lowest byte, to the nearest, plus azp, saturated; NaN is as 0. In double, which has room for both. */
CPU_TEMPLATE uint32_t shifted_code(float value, int32_t azp) {
  const float far = 0x1p40f; /* from where on no azp matters */
  float above = value > -far ? value : -far, within = above < far ? above : far;
  double rounded = ((double)(value == value ? within : 0.0f) + 0x1.8p52) - 0x1.8p52, code = rounded + (double)azp;
  double least = code > -128.0 ? code : -128.0;
  return (uint32_t)(int32_t)(least < 127.0 ? least : 127.0);
}

CPU_TEMPLATE float scaled(scaling how, const quant_range *r, float value, float scale) {
  return how == BY_COLUMN                                           ? value * (1.0f / scale)
         : how == TIMES || how == TIMES_WITHIN || how == INT8_TIMES ? value * r->reciprocal
                                                                    : value / r->scale;
}

/* The `n` elements from `first` on. */
CPU_TEMPLATE void quantise_chunk(quant_form form, const quant_range *r, int64_t first, int64_t n) {
  float values[CPU_CHUNK], scales[CPU_CHUNK] = {0};
  uint32_t q[CPU_CHUNK];
  if (r->next.at)
    cpu_prefetch_chunk(form.dtype, r->next.at, r->next.is_short, first);
  const bool apart = form.scaling < BY_COLUMN && cpu_load_apart(form.dtype, values, r->x, first, n);
  if (!apart)
    cpu_load(form.dtype, values, r->x, first, n);
  if (form.scaling == BY_COLUMN)
    cpu_load(CPU_FLOAT32, scales, r->scales, first, n);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = scaled(form.scaling, r, values[i], scales[i]);
  if (form.scaling < INT8_TIMES) {
    cpu_store_codes8(r->to, form.scaling == TIMES_WITHIN, r->q, first, values, n, apart, r->around);
    if (r->to.fnuz)
      make_fnuz(r->q + first, n);
    return;
  }
  for (int i = 0; i < CPU_CHUNK; i++)
    q[i] = form.scaling == SHIFTED ? shifted_code(values[i], r->azp) : cpu_int8_code(values[i]);
  cpu_store_codes(r->q, first, q, n, r->around);
}

CPU_TEMPLATE void quantise_as(quant_form form, const quant_range *given) {
  quant_range r = *given; /* which nothing that is written changes */
  int64_t i = r.begin;
  r.around &= i % CPU_CHUNK == 0;
  for (; i + CPU_CHUNK <= r.end; i += CPU_CHUNK)
    quantise_chunk(form, &r, i, CPU_CHUNK);
  if (i < r.end)
    quantise_chunk(form, &r, i, r.end - i);
}

typedef void (*quantise_fn)(const quant_range *range);

#define QUANTISE(name, ...)                                                                                            \
  static void name(const quant_range *range) {                                                                         \
    quantise_as((quant_form){__VA_ARGS__}, range);                                                                     \
  }
#define QUANTISE_ALL(type, dtype)                                                                                      \
  QUANTISE(type##_times, dtype, TIMES)                                                                                 \
  QUANTISE(type##_times_within, dtype, TIMES_WITHIN)                                                                   \
  QUANTISE(type##_divided, dtype, DIVIDED)                                                                             \
  QUANTISE(type##_by_column, dtype, BY_COLUMN)                                                                         \
  QUANTISE(type##_int8_times, dtype, INT8_TIMES)                                                                       \
  QUANTISE(type##_int8_divided, dtype, INT8_DIVIDED)                                                                   \
  QUANTISE(type##_shifted, dtype, SHIFTED)
QUANTISE_ALL(float32, CPU_FLOAT32)
QUANTISE_ALL(float16, CPU_FLOAT16)
QUANTISE_ALL(bfloat16, CPU_BFLOAT16)

static const quantise_fn quantise[CPU_N_DTYPES][N_SCALINGS] = {
    [CPU_FLOAT32] = {float32_times, float32_times_within, float32_divided, float32_by_column, float32_int8_times,
                     float32_int8_divided, float32_shifted},
    [CPU_FLOAT16] = {float16_times, float16_times_within, float16_divided, float16_by_column, float16_int8_times,
                     float16_int8_divided, float16_shifted},
    [CPU_BFLOAT16] = {bfloat16_times, bfloat16_times_within, bfloat16_divided, bfloat16_by_column, bfloat16_int8_times,
                      bfloat16_int8_divided, bfloat16_shifted},
};

/* ------------------------------------------------------------------------------------------------------------ rows */

/* Values are within the largest where that has made the scale: then this is smaller than that of an infinite magnitude,
 * which is infinite or what the upper bound makes of it. NaN is not. */
static void quantise_row(const void *user, const cpu_rows *rows) {
  const cpu_quant *quant = user;
  const quantise_fn *run = quantise[quant->dtype];
  float *scales = rows->at[2]; /* of a row of which they are computed */
  const float beyond = scale_of(quant, (int32_t)fl_float_bits(INFINITY));
  quant_range r = {.x = rows->at[0],
                   .q = rows->at[1],
                   .end = quant->hidden,
                   .next = cpu_rows_ahead(rows, 0, quant->hidden * cpu_dtype_size(quant->dtype)),
                   .around = cpu_rows_around(rows, 1) && quant->type->code == FL_DTYPE_FLOAT8_E4M3FN,
                   .to = quant->type->code == FL_DTYPE_FLOAT8_E4M3FNUZ ? e4m3fnuz : cpu_e4m3fn};
  if (quant->mode == CPU_QUANT_STATIC && quant->columns == 1 && quant->column_step == 1) {
    r.scales = quant->scales + cpu_rows_first(rows) / quant->rows * quant->row_step;
    run[BY_COLUMN](&r);
    return;
  }
  for (int64_t tile = 0; r.begin < quant->hidden; r.begin = r.end, tile++) {
    r.end = r.begin + (quant->hidden - r.begin < quant->columns ? quant->hidden - r.begin : quant->columns);
    r.scale = quant->tensor_scale;
    if (quant->mode == CPU_QUANT_STATIC)
      r.scale = cpu_quant_given_scale(quant, cpu_rows_first(rows), r.begin);
    else if (quant->mode != CPU_QUANT_TENSOR)
      scales[tile] = r.scale = scale_of(quant, cpu_absolute_maximum(quant->dtype, r.x, r.begin, r.end));
    r.reciprocal = 1.0f / r.scale;
    const bool within = quant->mode != CPU_QUANT_STATIC && r.scale < beyond;
    run[quant->mode == CPU_QUANT_GROUP ? DIVIDED : within ? TIMES_WITHIN : TIMES](&r);
  }
  if (quant->mode == CPU_QUANT_TOKEN && !quant->hidden)
    scales[0] = scale_of(quant, 0);
}

static cpu_quant_parts parts = {scale_of_tensor, quantise_row};

/* ------------------------------------------------------------------------------------------------------------ int8 */

/* The ends of a row, lane by lane. */
typedef struct ends {
  float least[CPU_CHUNK], most[CPU_CHUNK];
  int32_t magnitudes[CPU_CHUNK]; /* which know of NaN */
} ends;

CPU_TEMPLATE void find_ends(cpu_dtype dtype, ends *found, const void *row, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  cpu_load(dtype, values, row, first, n);
  if (n < CPU_CHUNK)
    for (int i = 0; i < CPU_CHUNK; i++)
      values[i] = i < n ? values[i] : values[0];
  for (int i = 0; i < CPU_CHUNK; i++) {
    found->least[i] = values[i] < found->least[i] ? values[i] : found->least[i];
    found->most[i] = values[i] > found->most[i] ? values[i] : found->most[i];
  }
  cpu_magnitudes(found->magnitudes, values);
}

CPU_TEMPLATE void ends_as(cpu_dtype dtype, const void *row, int64_t size, float *least, float *most) {
  ends found = {.magnitudes = {0}};
  int64_t i = 0;
  for (int lane = 0; lane < CPU_CHUNK; lane++) {
    found.least[lane] = INFINITY;
    found.most[lane] = -INFINITY;
  }
  for (; i + CPU_CHUNK <= size; i += CPU_CHUNK)
    find_ends(dtype, &found, row, i, CPU_CHUNK);
  if (i < size)
    find_ends(dtype, &found, row, i, size - i);
  *least = found.least[0];
  *most = found.most[0];
  for (int lane = 1; lane < CPU_CHUNK; lane++) {
    *least = found.least[lane] < *least ? found.least[lane] : *least;
    *most = found.most[lane] > *most ? found.most[lane] : *most;
  }
  if (isnan(cpu_largest_magnitude(found.magnitudes)))
    *least = *most = NAN;
}

static void ends_of(cpu_dtype dtype, const void *row, int64_t size, float *least, float *most) {
  *least = *most = 0;
  if (!size)
    return;
  if (dtype == CPU_FLOAT32)
    ends_as(CPU_FLOAT32, row, size, least, most);
  else if (dtype == CPU_FLOAT16)
    ends_as(CPU_FLOAT16, row, size, least, most);
  else
    ends_as(CPU_BFLOAT16, row, size, least, most);
}

/* Of what int32 holds; 0 where there is none. */
static int32_t azp_of(float least, float scale) {
  double azp = nearbyint((double)(-128.0f - least / scale));
  if (scale == 0.0f || isnan(azp))
    return 0;
  return azp < INT32_MIN ? INT32_MIN : azp > INT32_MAX ? INT32_MAX : (int32_t)azp;
}

static void int8_row(const void *user, const cpu_rows *rows) {
  const cpu_int8_quant *quant = user;
  const quantise_fn *run = quantise[quant->dtype];
  int64_t row = quant->n_rows - rows->left;
  quant_range r = {.x = rows->at[0],
                   .q = rows->at[1],
                   .end = quant->hidden,
                   .next = cpu_rows_ahead(rows, 0, quant->hidden * cpu_dtype_size(quant->dtype)),
                   .around = cpu_rows_around(rows, 1),
                   .scale = quant->scale,
                   .azp = quant->azp};
  if (quant->is_static) {
    run[quant->azp ? SHIFTED : INT8_DIVIDED](&r);
    return;
  }
  float *scale = quant->scale_out + row * quant->scale_step;
  if (!quant->azp_out) {
    float largest = fl_float_from_bits((uint32_t)cpu_absolute_maximum(quant->dtype, r.x, 0, quant->hidden));
    *scale = largest / 127.0f;
    r.reciprocal = 127.0f / largest; /* infinite for zeros, which times that are no number, so 0 */
    run[INT8_TIMES](&r);
    return;
  }
  float least, most;
  ends_of(quant->dtype, r.x, quant->hidden, &least, &most);
  *scale = r.scale = (most - least) / 255.0f;
  quant->azp_out[row * quant->azp_step] = r.azp = azp_of(least, r.scale);
  if (r.scale != 0.0f)
    run[SHIFTED](&r);
  else if (quant->hidden)
    memset(r.q, 0, (size_t)quant->hidden);
}

static const fl_impl ops[] = {
    {.op_name = "quant_fp8", CPU_FLAGOS, .fn = cpu_quant_fp8, .self = &parts},
    {.op_name = "scaled_int8_quant", CPU_FLAGOS, .fn = cpu_scaled_int8_quant, .self = (cpu_row_fn[]){int8_row}},
};
OP_LIST(ops);
