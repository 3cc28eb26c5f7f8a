/*
 * quant_fp8, a block of a row at a time, with the arithmetic of vLLM's native definition: codes are the same. The
 * largest magnitude is found among the bits of floats, which are ordered like magnitudes, with NaN above all.
 */
#include "plugins/cpu/quantisation.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/rows.h"

static const uint32_t magnitude_bits = 0x7fffffff;

/* The larger of `largest` and the magnitudes of elements [begin, end) of a row, all as bits. */
static int32_t absolute_maximum(const cpu_block_type *type, const void *row, int64_t begin, int64_t end,
                                int32_t largest) {
  float values[CPU_BLOCK];
  for (int64_t first = begin; first < end; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(end - first);
    type->load(values, row, first, n);
    for (int64_t i = 0; i < n; i++) {
      int32_t magnitude = (int32_t)(fl_float_bits(values[i]) & magnitude_bits);
      largest = magnitude > largest ? magnitude : largest;
    }
  }
  return largest;
}

static float scale_of(const cpu_quant *quant, int32_t largest_bits) {
  float largest = fl_float_from_bits((uint32_t)largest_bits);
  float scale = (largest > quant->upper_bound ? quant->upper_bound : largest) / quant->type->largest;
  if (quant->power_of_two)
    scale = exp2f(ceilf(log2f(scale)));
  return scale < quant->type->least_scale ? quant->type->least_scale : scale;
}

/* A loop for each type: compilers vectorise what is not called through a pointer. */
static void convert(const cpu_quant *quant, uint8_t *restrict q, const float *restrict values, int64_t n) {
  if (quant->type->code == FL_DTYPE_FLOAT8_E4M3FNUZ)
    for (int64_t i = 0; i < n; i++)
      q[i] = cpu_float_to_e4m3fnuz(values[i]);
  else
    for (int64_t i = 0; i < n; i++)
      q[i] = fl_float_to_e4m3fn(values[i]);
}

static void quantise(const cpu_quant *quant, const void *row, uint8_t *q, int64_t begin, int64_t end, float scale) {
  const cpu_block_type *type = &cpu_block_types[quant->dtype];
  float values[CPU_BLOCK], reciprocal = 1.0f / scale;
  for (int64_t first = begin; first < end; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(end - first);
    type->load(values, row, first, n);
    if (quant->mode == CPU_QUANT_GROUP)
      for (int64_t i = 0; i < n; i++)
        values[i] /= scale;
    else
      for (int64_t i = 0; i < n; i++)
        values[i] *= reciprocal;
    convert(quant, q + first, values, n);
  }
}

/* Each column has a scale of its own. */
static void quantise_channels(const cpu_quant *quant, const void *row, uint8_t *q, int64_t at_row) {
  const cpu_block_type *type = &cpu_block_types[quant->dtype];
  const float *scales = quant->scales + at_row / quant->rows * quant->row_step;
  float values[CPU_BLOCK];
  for (int64_t first = 0; first < quant->hidden; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(quant->hidden - first);
    type->load(values, row, first, n);
    for (int64_t i = 0; i < n; i++)
      values[i] *= 1.0f / scales[first + i];
    convert(quant, q + first, values, n);
  }
}

static float scale_of_tensor(const cpu_quant *quant) {
  int32_t largest = 0;
  for (cpu_rows rows = cpu_rows_begin(1, &quant->x); rows.left; cpu_rows_next(&rows))
    largest = absolute_maximum(&cpu_block_types[quant->dtype], rows.at[0], 0, quant->hidden, largest);
  return scale_of(quant, largest);
}

static void quantise_row(const void *user, const cpu_rows *rows) {
  const cpu_quant *quant = user;
  const cpu_block_type *type = &cpu_block_types[quant->dtype];
  const void *x = rows->at[0];
  float *scales = rows->at[2]; /* of a row of which they are computed */
  if (quant->mode == CPU_QUANT_STATIC && quant->columns == 1 && quant->column_step == 1) {
    quantise_channels(quant, x, rows->at[1], rows->index[0]);
    return;
  }
  for (int64_t begin = 0, tile = 0; begin < quant->hidden; begin += quant->columns, tile++) {
    int64_t end = begin + (quant->hidden - begin < quant->columns ? quant->hidden - begin : quant->columns);
    float scale = quant->tensor_scale;
    if (quant->mode == CPU_QUANT_STATIC)
      scale = cpu_quant_given_scale(quant, rows->index[0], begin);
    else if (quant->mode != CPU_QUANT_TENSOR)
      scales[tile] = scale = scale_of(quant, absolute_maximum(type, x, begin, end, 0));
    quantise(quant, x, rows->at[1], begin, end, scale);
  }
  if (quant->mode == CPU_QUANT_TOKEN && !quant->hidden)
    scales[0] = scale_of(quant, 0);
}

static cpu_quant_parts parts = {scale_of_tensor, quantise_row};

static const fl_impl ops[] = {
    {.op_name = "quant_fp8", CPU_FLAGOS, .fn = cpu_quant_fp8, .self = &parts},
};
OP_LIST(ops);
