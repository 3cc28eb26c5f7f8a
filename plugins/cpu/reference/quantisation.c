/*
 * quant_fp8 as vLLM's QuantFP8.forward_native computes it, in float32: tensors and tokens are multiplied by the
 * reciprocal of their scale, groups are divided by it. NaN spreads to the scale, and to the codes from there. Needs
 * libm only.
 */
#include "plugins/cpu/quantisation.h"
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/rows.h"

/* The larger one; NaN if there is one. */
static float larger(float a, float b) {
  return a > b || isnan(a) ? a : b;
}

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
      scale = cpu_quant_given_scale(quant, rows->index[0], begin);
    else if (quant->mode != CPU_QUANT_TENSOR)
      scales[tile] = scale = scale_of(quant, absolute_maximum(quant, x, begin, end));
    quantise(quant, x, rows->at[1], begin, end, scale);
  }
  if (quant->mode == CPU_QUANT_TOKEN && !quant->hidden)
    scales[0] = scale_of(quant, 0);
}

static cpu_quant_parts parts = {scale_of_tensor, quantise_row};

static const fl_impl ops[] = {
    {.op_name = "quant_fp8", CPU_REFERENCE, .fn = cpu_quant_fp8, .self = &parts},
};
OP_LIST(ops);
