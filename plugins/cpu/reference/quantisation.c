/*
 * scaled_int8_quant as the formulas of vLLM's kernels have it, each operation in float32; quant_fp8 as vLLM's
 * QuantFP8.forward_native computes it, in float32: tensors and tokens are multiplied by the reciprocal of their scale,
 * groups are divided by it. NaN spreads to the scale, and to the codes from there. Needs libm only.
 */
#include "plugins/cpu/quantisation.h"
#include "plugins/cpu/reference/codes.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"

#include <string.h>

/* Largest magnitude of elements [begin, end) of a row. */
static float absolute_maximum(const cpu_quant *quant, const void *row, int64_t begin, int64_t end) {
  float largest = 0;
  for (int64_t i = begin; i < end; i++)
    largest = larger(largest, fabsf(load(quant->dtype, row, i)));
  return largest;
}

static float scale_of(const cpu_quant *quant, float largest) {
  float scale = (largest > quant->upper_bound ? quant->upper_bound : largest) / quant->type->largest;
  if (quant->power_of_two)
    scale = exp2f(ceilf(log2f(scale)));
  return scale < quant->type->least_scale ? quant->type->least_scale : scale;
}

/* Elements [begin, end) of a row. The conversion clamps. */
static void quantise(const cpu_quant *quant, const void *row, uint8_t *q, int64_t begin, int64_t end, float scale) {
  float reciprocal = 1.0f / scale;
  for (int64_t i = begin; i < end; i++) {
    float value = load(quant->dtype, row, i);
    q[i] = quant->type->narrow(quant->mode == CPU_QUANT_GROUP ? value / scale : value * reciprocal);
  }
}

static float scale_of_tensor(const cpu_quant *quant) {
  float largest = 0;
  for (cpu_rows rows = cpu_rows_begin(1, &quant->x); rows.left; cpu_rows_next(&rows))
    largest = larger(largest, absolute_maximum(quant, rows.at[0], 0, quant->hidden));
  return scale_of(quant, largest);
}

static void quantise_row(const void *user, const cpu_rows *rows) {
  const cpu_quant *quant = user;
  const void *x = rows->at[0];
  float *scales = rows->at[2]; /* of a row of which they are computed */
  for (int64_t begin = 0, tile = 0; begin < quant->hidden; begin += quant->columns, tile++) {
    int64_t end = quant->hidden - begin < quant->columns ? quant->hidden : begin + quant->columns;
    float scale = quant->tensor_scale;
    if (quant->mode == CPU_QUANT_STATIC)
      scale = cpu_quant_given_scale(quant, cpu_rows_first(rows), begin);
    else if (quant->mode != CPU_QUANT_TENSOR)
      scales[tile] = scale = scale_of(quant, absolute_maximum(quant, x, begin, end));
    quantise(quant, x, rows->at[1], begin, end, scale);
  }
  if (quant->mode == CPU_QUANT_TOKEN && !quant->hidden)
    scales[0] = scale_of(quant, 0);
}

static cpu_quant_parts parts = {scale_of_tensor, quantise_row};

/* ------------------------------------------------------------------------------------------------------------ int8 */

/* To the nearest, ties to even, plus azp, saturated; NaN is as 0. */
static int8_t to_shifted_int8(float value, int32_t azp) {
  double code = (isnan(value) ? 0.0 : nearbyint((double)value)) + azp;
  return (int8_t)(code < -128 ? -128 : code > 127 ? 127 : code);
}

static float symmetric_row(const cpu_int8_quant *quant, const void *x, int8_t *q) {
  float largest = 0;
  for (int64_t i = 0; i < quant->hidden; i++)
    largest = larger(largest, fabsf(load(quant->dtype, x, i)));
  float scale = largest / 127.0f, factor = 127.0f / largest; /* for zeros infinite, which makes them NaN, so 0 */
  for (int64_t i = 0; i < quant->hidden; i++)
    q[i] = to_int8(load(quant->dtype, x, i) * factor);
  return scale;
}

static void given_row(const cpu_int8_quant *quant, const void *x, int8_t *q, float scale, int32_t azp) {
  for (int64_t i = 0; i < quant->hidden; i++)
    q[i] = to_shifted_int8(load(quant->dtype, x, i) / scale, azp);
}

/* -128 - least / scale to the nearest, of what int32 holds; where that is no number, or a row is constant, 0. */
static int32_t azp_of(float least, float scale) {
  float azp = nearbyintf(-128.0f - least / scale);
  if (scale == 0 || isnan(azp))
    return 0;
  return azp < (float)INT32_MIN ? INT32_MIN : azp >= -(float)INT32_MIN ? INT32_MAX : (int32_t)azp;
}

static float shifted_row(const cpu_int8_quant *quant, const void *x, int8_t *q, int32_t *azp) {
  float most = quant->hidden ? -INFINITY : 0, negated = most; /* the least, negated: NaN spreads as in the other */
  for (int64_t i = 0; i < quant->hidden; i++) {
    most = larger(most, load(quant->dtype, x, i));
    negated = larger(negated, -load(quant->dtype, x, i));
  }
  float scale = (most + negated) / 255.0f;
  *azp = azp_of(-negated, scale);
  if (scale == 0 && quant->hidden)
    memset(q, 0, (size_t)quant->hidden);
  else
    given_row(quant, x, q, scale, *azp);
  return scale;
}

static void int8_row(const void *user, const cpu_rows *rows) {
  const cpu_int8_quant *quant = user;
  int64_t row = quant->n_rows - rows->left;
  if (quant->is_static)
    given_row(quant, rows->at[0], rows->at[1], quant->scale, quant->azp);
  else if (quant->azp_out)
    quant->scale_out[row * quant->scale_step] =
        shifted_row(quant, rows->at[0], rows->at[1], &quant->azp_out[row * quant->azp_step]);
  else
    quant->scale_out[row * quant->scale_step] = symmetric_row(quant, rows->at[0], rows->at[1]);
}

static const fl_impl ops[] = {
    {.op_name = "quant_fp8", CPU_REFERENCE, .fn = cpu_quant_fp8, .self = &parts},
    {.op_name = "scaled_int8_quant", CPU_REFERENCE, .fn = cpu_scaled_int8_quant, .self = (cpu_row_fn[]){int8_row}},
};
OP_LIST(ops);
