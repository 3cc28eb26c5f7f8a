/* Linear layers with quantised weights, an element at a time: sums of int8 in integers, all others in float64; a weight
 * of AWQ or GPTQ is rounded to its element type once, a result too. */
#include "plugins/cpu/reference/quantised_linear.h"
#include "plugins/cpu/support/element.h"

#include <math.h>

/* ------------------------------------------------------------------------------------------------------- scaled_mm */

/* Terms first to end - 1. */
static double sum_of_block(const cpu_scaled_mm *mm, int64_t row, int64_t column, int64_t first, int64_t end) {
  const uint8_t *x = (const uint8_t *)mm->x + row * mm->x_stride;
  const uint8_t *weight = (const uint8_t *)mm->weight + column * mm->weight_stride;
  int64_t exact = 0, zero = mm->azp ? mm->azp[row * mm->azp_step] : 0;
  double sum = 0;
  for (int64_t i = first; i < end; i++)
    if (mm->is_float8)
      sum += (double)fl_e4m3fn_to_float(x[i]) * (double)fl_e4m3fn_to_float(weight[i]);
    else
      exact += ((int8_t)x[i] - zero) * (int8_t)weight[i];
  return mm->is_float8 ? sum : (double)exact;
}

static float scaled_element(const cpu_scaled_mm *mm, int64_t row, int64_t column) {
  float sum = 0;
  for (int64_t first = 0, block = 0; first < mm->k; first += mm->block_k, block++) {
    int64_t end = mm->k - first < mm->block_k ? mm->k : first + mm->block_k;
    sum += (float)sum_of_block(mm, row, column, first, end) *
           mm->x_scale.data[row * mm->x_scale.row + block * mm->x_scale.column] *
           mm->weight_scale.data[column / mm->block_n * mm->weight_scale.row + block * mm->weight_scale.column];
  }
  return mm->bias ? sum + load(mm->bias_dtype, mm->bias, column) : sum;
}

static fl_status run_scaled_mm(const cpu_scaled_mm *mm) {
  for (int64_t row = 0; row < mm->m; row++)
    for (int64_t column = 0; column < mm->n; column++)
      store(mm->out.dtype, cpu_matrix_row(mm->out, row), column, scaled_element(mm, row, column));
  return FL_OK;
}

static fl_status scaled_mm(void *self, fl_call *call) {
  (void)self;
  return cpu_scaled_mm_each(call, run_scaled_mm);
}

/* ---------------------------------------------------------------------------------------------- weight_only_linear */

static double weight_only_element(const cpu_scaled_mm *mm, int64_t row, int64_t column) {
  const uint8_t *weight = (const uint8_t *)mm->weight + column * mm->weight_stride;
  const float *scales = mm->weight_scale.data + column / mm->block_n * mm->weight_scale.row;
  double sum = mm->bias ? (double)load(mm->bias_dtype, mm->bias, column) : 0;
  for (int64_t i = 0; i < mm->k; i++) {
    float code = mm->is_float8 ? fl_e4m3fn_to_float(weight[i]) : (float)(int8_t)weight[i];
    sum += (double)load(mm->x_dtype, (const char *)mm->x + row * mm->x_stride, i) *
           (double)(code * scales[i / mm->block_k * mm->weight_scale.column]);
  }
  return sum;
}

fl_status cpu_reference_weight_only(const cpu_scaled_mm *mm) {
  for (int64_t row = 0; row < mm->m; row++)
    for (int64_t column = 0; column < mm->n; column++)
      store(mm->out.dtype, cpu_matrix_row(mm->out, row), column, (float)weight_only_element(mm, row, column));
  return FL_OK;
}

static fl_status weight_only(void *self, fl_call *call) {
  (void)self;
  return cpu_weight_only_each(call, cpu_reference_weight_only);
}

/* ---------------------------------------------------------------------------------------------------------- 4 bits */

/* Nibble `i` of word `word` of a row. */
static int nibble(const char *row, int64_t word, int i) {
  return (int)(((const uint32_t *)(const void *)row)[word] >> 4 * i & 15);
}

/* In which nibble of its word a column of AWQ lies. */
static const int awq_order[] = {0, 4, 1, 5, 2, 6, 3, 7};

static float scaled(const cpu_four_bit_linear *linear, int64_t group, int64_t column, int value) {
  float scale = load(linear->scales.dtype, cpu_matrix_row(linear->scales, group), column);
  return round_to(linear->scales.dtype, (float)value * scale);
}

static float awq_weight(const cpu_four_bit_linear *linear, int64_t row, int64_t column) {
  int64_t group = cpu_group_of(linear, row), word = column / 8;
  int at = awq_order[column % 8];
  return scaled(linear, group, column,
                nibble(linear->weight + row * linear->weight_stride, word, at) -
                    nibble(linear->zeros + group * linear->zeros_stride, word, at));
}

static float gptq_weight(const cpu_four_bit_linear *linear, int64_t row, int64_t column) {
  int64_t group = cpu_group_of(linear, row);
  int zero = 8;
  if (linear->zeros)
    zero = nibble(linear->zeros + group * linear->zeros_stride, column / 8, (int)(column % 8)) + linear->zero_offset;
  return scaled(linear, group, column,
                nibble(linear->weight + row / 8 * linear->weight_stride, column, (int)(row % 8)) - zero);
}

static float mxfp4_weight(const cpu_four_bit_linear *linear, int64_t row, int64_t column) {
  static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  uint8_t both = (uint8_t)linear->weight[column * linear->weight_stride + row / 2];
  uint8_t scale = ((const uint8_t *)linear->scales.data)[column * linear->scales.stride + row / 32];
  int code = row % 2 ? both >> 4 : both & 15;
  float value = code & 8 ? -values[code & 7] : values[code & 7];
  return scale == 255 ? NAN : value * ldexpf(1, scale - 127);
}

static float (*const weights[])(const cpu_four_bit_linear *linear, int64_t row, int64_t column) = {
    [CPU_AWQ] = awq_weight, [CPU_GPTQ] = gptq_weight, [CPU_MXFP4] = mxfp4_weight};

fl_status cpu_reference_four_bit(const cpu_four_bit_linear *linear) {
  for (int64_t row = 0; row < linear->m; row++)
    for (int64_t column = 0; column < linear->n; column++) {
      double sum = linear->bias ? (double)load(linear->bias_dtype, linear->bias, column) : 0;
      for (int64_t i = 0; i < linear->k; i++)
        sum += (double)load(linear->x.dtype, cpu_matrix_row(linear->x, row), i) *
               (double)weights[linear->format](linear, i, column);
      store(linear->out.dtype, cpu_matrix_row(linear->out, row), column, (float)sum);
    }
  return FL_OK;
}

static fl_status awq(void *self, fl_call *call) {
  (void)self;
  return cpu_four_bit_each(call, CPU_AWQ, cpu_reference_four_bit);
}

static fl_status gptq(void *self, fl_call *call) {
  (void)self;
  return cpu_four_bit_each(call, CPU_GPTQ, cpu_reference_four_bit);
}

static fl_status mxfp4(void *self, fl_call *call) {
  (void)self;
  return cpu_four_bit_each(call, CPU_MXFP4, cpu_reference_four_bit);
}

static const fl_impl ops[] = {
    {.op_name = "scaled_mm", CPU_REFERENCE, .fn = scaled_mm},
    {.op_name = "weight_only_linear", CPU_REFERENCE, .fn = weight_only},
    {.op_name = "awq_linear", CPU_REFERENCE, .fn = awq},
    {.op_name = "gptq_linear", CPU_REFERENCE, .fn = gptq},
    {.op_name = "mxfp4_linear", CPU_REFERENCE, .fn = mxfp4},
};
OP_LIST(ops);
