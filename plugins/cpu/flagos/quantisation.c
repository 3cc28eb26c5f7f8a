/*
 * quant_fp8, a chunk of a row at a time, with the arithmetic of vLLM's native definition: codes are the same. The
 * largest magnitude is found among the bits of elements, which are ordered like magnitudes, with NaN above all.
 */
#include "plugins/cpu/quantisation.h"
#include "plugins/cpu/flagos/chunk.h"
#include "plugins/cpu/parallel.h"
#include "plugins/cpu/rows.h"

#include <stdatomic.h>

static int32_t larger(int32_t a, int32_t b) {
  return a > b ? a : b;
}

/* ----------------------------------------------------------------------------------------------- largest magnitude */

static int32_t absolute_maximum16(const int16_t *restrict elements, int64_t n) {
  int16_t largest = 0;
  for (int64_t i = 0; i < n; i++) {
    int16_t magnitude = (int16_t)(elements[i] & 0x7fff);
    if (magnitude > largest)
      largest = magnitude;
  }
  return largest;
}

static int32_t absolute_maximum32(const int32_t *restrict elements, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; i++)
    largest = larger(largest, elements[i] & 0x7fffffff);
  return largest;
}

/* Of elements [begin, end) of a row, as a float's bits. */
static int32_t absolute_maximum(cpu_dtype dtype, const void *row, int64_t begin, int64_t end) {
  int64_t n = end - begin;
  if (dtype == CPU_FLOAT32)
    return absolute_maximum32((const int32_t *)row + begin, n);
  uint16_t largest = (uint16_t)absolute_maximum16((const int16_t *)row + begin, n);
  return (int32_t)fl_float_bits(dtype == CPU_FLOAT16 ? fl_f16_to_float(largest) : fl_bf16_to_float(largest));
}

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
  cpu_rows rows = loop->begin;
  int32_t largest = 0;
  cpu_rows_skip(&rows, first);
  for (int64_t i = first; i < end; i++, cpu_rows_next(&rows))
    largest = larger(largest, absolute_maximum(loop->quant->dtype, rows.at[0], 0, loop->quant->hidden));
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

/* A type of codes, as what it does to a float's bits. */
typedef struct codes {
  int32_t most, least; /* the largest value; the power of two next to which codes are as far apart as denormals */
  bool fnuz;           /* NaN is where -0 would be, which is 0 */
} codes;

enum { NAN_CODE = 0x7f };

static const codes e4m3fn = {0x43e00000, 121 << 23, false}, e4m3fnuz = {0x43600000, 120 << 23, true};

/* In the lowest byte, the code of a value. Next to 2^20 times its power of two floats are as far apart as codes are
 * next to the value, so the addition rounds; the lowest bits of the sum count these steps, and with its exponent's
 * place in the code they add up to it: what rounding carries over counts there. */
CPU_TEMPLATE uint32_t narrow(codes to, float value) {
  uint32_t bits = fl_float_bits(value), sign = bits >> 24 & 0x80u;
  int32_t magnitude = (int32_t)(bits & 0x7fffffffu), clamped = magnitude < to.most ? magnitude : to.most;
  float power = fl_float_from_bits((uint32_t)larger(clamped & 0x7f800000, to.least));
  uint32_t sum = fl_float_bits(power * 0x1p20f + fl_float_from_bits((uint32_t)clamped));
  uint32_t code = sum + (sum >> 20) - (((uint32_t)to.least >> 20) + (20u << 3));
  return magnitude > 0x7f800000 ? NAN_CODE : code | sign;
}

/* NAN_CODE is none of this type, whose largest value has no code that high. */
static __attribute__((noinline)) void make_fnuz(uint8_t *q, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    q[i] = q[i] == 0x80 ? 0 : q[i] == NAN_CODE ? 0x80 : q[i];
}

/* The lowest bytes. */
CPU_TEMPLATE void store_bytes(uint8_t *restrict to, const uint32_t *restrict from) {
#if defined __AVX512F__
  for (int i = 0; i < CPU_CHUNK; i += 16)
    _mm_storeu_si128((void *)(to + i), _mm512_cvtepi32_epi8(_mm512_loadu_si512(from + i)));
#else
  for (int i = 0; i < CPU_CHUNK; i++)
    to[i] = (uint8_t)from[i];
#endif
}

/* What becomes of values before they are codes. */
typedef enum scaling { TIMES, DIVIDED, BY_COLUMN, N_SCALINGS } scaling;

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
  codes to;
  float scale, reciprocal;
  const float *scales; /* BY_COLUMN */
} quant_range;

/* The `n` elements from `first` on. */
CPU_TEMPLATE void narrow_chunk(quant_form form, const quant_range *r, int64_t first, int64_t n, uint8_t *restrict q) {
  _Alignas(64) char part[CPU_CHUNK * sizeof(float)];
  int64_t item = cpu_dtype_size(form.dtype);
  const char *from = r->x + first * item;
  float values[CPU_CHUNK], scales[CPU_CHUNK] = {0};
  uint32_t q32[CPU_CHUNK];
  if (n < CPU_CHUNK) {
    memset(part, 0, sizeof part);
    from = memcpy(part, from, (size_t)(n * item));
  }
  cpu_widen(form.dtype, values, from);
  if (form.scaling == BY_COLUMN)
    cpu_load(CPU_FLOAT32, scales, r->scales, first, n);
  for (int i = 0; i < CPU_CHUNK; i++) {
    float value = form.scaling == TIMES     ? values[i] * r->reciprocal
                  : form.scaling == DIVIDED ? values[i] / r->scale
                                            : values[i] * (1.0f / scales[i]);
    q32[i] = narrow(r->to, value);
  }
  store_bytes(q, q32);
  if (r->to.fnuz)
    make_fnuz(q, CPU_CHUNK);
}

CPU_TEMPLATE void quantise_as(quant_form form, const quant_range *given) {
  enum { LINE = 2 * CPU_CHUNK };
  const quant_range r = *given; /* which nothing that is written changes */
  _Alignas(64) uint8_t line[LINE];
  int64_t size = r.end - r.begin, lines = r.around && r.begin % LINE == 0 ? r.begin + size / LINE * LINE : r.begin;
  for (int64_t i = r.begin; i < r.end; i += CPU_CHUNK) {
    int64_t n = r.end - i < CPU_CHUNK ? r.end - i : CPU_CHUNK;
    bool aside = i < lines || n < CPU_CHUNK;
    narrow_chunk(form, &r, i, n, aside ? line + (n < CPU_CHUNK ? 0 : i % LINE) : r.q + i);
    if (i < lines && i % LINE)
      cpu_write_around((char *)r.q + i - CPU_CHUNK, (const char *)line, LINE);
    else if (n < CPU_CHUNK)
      memcpy(r.q + i, line, (size_t)n);
  }
}

typedef void (*quantise_fn)(const quant_range *range);

#define QUANTISE(name, ...)                                                                                            \
  static void name(const quant_range *range) {                                                                         \
    quantise_as((quant_form){__VA_ARGS__}, range);                                                                     \
  }
QUANTISE(float32_times, CPU_FLOAT32, TIMES)
QUANTISE(float32_divided, CPU_FLOAT32, DIVIDED)
QUANTISE(float32_by_column, CPU_FLOAT32, BY_COLUMN)
QUANTISE(float16_times, CPU_FLOAT16, TIMES)
QUANTISE(float16_divided, CPU_FLOAT16, DIVIDED)
QUANTISE(float16_by_column, CPU_FLOAT16, BY_COLUMN)
QUANTISE(bfloat16_times, CPU_BFLOAT16, TIMES)
QUANTISE(bfloat16_divided, CPU_BFLOAT16, DIVIDED)
QUANTISE(bfloat16_by_column, CPU_BFLOAT16, BY_COLUMN)

static const quantise_fn quantise[CPU_N_DTYPES][N_SCALINGS] = {
    [CPU_FLOAT32] = {float32_times, float32_divided, float32_by_column},
    [CPU_FLOAT16] = {float16_times, float16_divided, float16_by_column},
    [CPU_BFLOAT16] = {bfloat16_times, bfloat16_divided, bfloat16_by_column},
};

/* ------------------------------------------------------------------------------------------------------------ rows */

static void quantise_row(const void *user, const cpu_rows *rows) {
  const cpu_quant *quant = user;
  const quantise_fn *run = quantise[quant->dtype];
  float *scales = rows->at[2]; /* of a row of which they are computed */
  quant_range r = {.x = rows->at[0],
                   .q = rows->at[1],
                   .end = quant->hidden,
                   .around = cpu_rows_around(rows, 1),
                   .to = quant->type->code == FL_DTYPE_FLOAT8_E4M3FNUZ ? e4m3fnuz : e4m3fn};
  if (quant->mode == CPU_QUANT_STATIC && quant->columns == 1 && quant->column_step == 1) {
    r.scales = quant->scales + rows->index[0] / quant->rows * quant->row_step;
    run[BY_COLUMN](&r);
    return;
  }
  for (int64_t tile = 0; r.begin < quant->hidden; r.begin = r.end, tile++) {
    r.end = r.begin + (quant->hidden - r.begin < quant->columns ? quant->hidden - r.begin : quant->columns);
    r.scale = quant->tensor_scale;
    if (quant->mode == CPU_QUANT_STATIC)
      r.scale = cpu_quant_given_scale(quant, rows->index[0], r.begin);
    else if (quant->mode != CPU_QUANT_TENSOR)
      scales[tile] = r.scale = scale_of(quant, absolute_maximum(quant->dtype, r.x, r.begin, r.end));
    r.reciprocal = 1.0f / r.scale;
    run[quant->mode == CPU_QUANT_GROUP ? DIVIDED : TIMES](&r);
  }
  if (quant->mode == CPU_QUANT_TOKEN && !quant->hidden)
    scales[0] = scale_of(quant, 0);
}

static cpu_quant_parts parts = {scale_of_tensor, quantise_row};

static const fl_impl ops[] = {
    {.op_name = "quant_fp8", CPU_FLAGOS, .fn = cpu_quant_fp8, .self = &parts},
};
OP_LIST(ops);
