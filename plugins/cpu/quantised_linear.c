/* Calls of linear layers with quantised weights: see quantised_linear.h. */
#include "plugins/cpu/quantised_linear.h"
#include "plugins/integers.h"

/* What the call could not get is memory: its arguments were checked before. */
static fl_status with_reason(fl_call *call, fl_status status) {
  return status == FL_ENOMEM ? fl_fail(call, status, "out of memory") : status;
}

static int64_t bytes_between_rows(const DLTensor *tensor) {
  return fl_stride(tensor, 0) * (tensor->dtype.bits / 8);
}

/* One for all, [n] or [n, 1], or [n, groups]. */
static cpu_scales scales_of(const DLTensor *scale) {
  int64_t rows = scale->ndim ? scale->shape[0] : 1;
  return (cpu_scales){.data = fl_data(scale),
                      .row = rows > 1 ? fl_stride(scale, 0) : 0,
                      .column = scale->ndim == 2 && scale->shape[1] > 1 ? 1 : 0};
}

static bool covers(const DLTensor *scale, int64_t rows) {
  return scale->ndim < 2 || (scale->shape[0] == rows && scale->shape[1] == 1);
}

/* What shares a scale; where the weight has as many rows as blocks and one group, blocks are channels. */
static void set_blocks(cpu_scaled_mm *mm, bool has_blocks, const int64_t *block) {
  mm->has_blocks = has_blocks;
  mm->block_k = has_blocks ? block[1] : mm->k + 1;
  mm->block_n = has_blocks ? block[0] : 1;
}

/* Where an op has what the other one may not have: 0 for that. x, weight and out are at the same places. */
typedef struct places {
  uint32_t x_scale, weight_scale, bias, azp, block_size;
} places;

static fl_status each(fl_call *call, const places *at, cpu_scaled_mm_fn run) {
  static const float one = 1;
  DLTensor *x = cpu_tensor(call, 0), *weight = cpu_tensor(call, 1), *out = cpu_tensor(call, call->count - 1);
  const DLTensor *x_scale = at->x_scale ? cpu_tensor(call, at->x_scale) : NULL;
  const DLTensor *azp = at->azp ? cpu_tensor(call, at->azp) : NULL;
  const DLTensor *bias = cpu_tensor(call, at->bias), *weight_scale = cpu_tensor(call, at->weight_scale);
  const int64_t *block = call->values[at->block_size].v.ints;
  cpu_linear_walk walk = cpu_linear_begin(x, out);
  cpu_scaled_mm mm = {.m = walk.m,
                      .n = weight->shape[0],
                      .k = weight->shape[1],
                      .is_float8 = weight->dtype.code == FL_DTYPE_FLOAT8_E4M3FN,
                      .x_dtype = cpu_dtype_of(x),
                      .weight = fl_data(weight),
                      .x_stride = walk.strides[0],
                      .weight_stride = bytes_between_rows(weight),
                      .x_scale = x_scale ? scales_of(x_scale) : (cpu_scales){.data = &one},
                      .weight_scale = scales_of(weight_scale),
                      .azp = azp ? fl_data(azp) : NULL,
                      .azp_step = azp && azp->ndim == 2 && azp->shape[0] > 1 ? fl_stride(azp, 0) : 0,
                      .bias = bias ? fl_data(bias) : NULL,
                      .bias_dtype = cpu_dtype_of(out),
                      .out = {.dtype = cpu_dtype_of(out), .stride = walk.strides[1]}};
  fl_status status = FL_OK;
  set_blocks(&mm, !covers(weight_scale, mm.n) || (x_scale && x_scale->ndim == 2 && x_scale->shape[1] != 1), block);
  for (cpu_rows *matrices = &walk.matrices; matrices->left && !status; cpu_rows_next(matrices)) {
    mm.x = matrices->at[0];
    mm.out.data = matrices->at[1];
    status = mm.n ? run(&mm) : FL_OK;
    mm.x_scale.data += mm.m * mm.x_scale.row;
    mm.azp = mm.azp ? mm.azp + mm.m * mm.azp_step : NULL;
  }
  return with_reason(call, status);
}

/* scaled_mm(x, weight, x_scale, weight_scale, bias, azp, out_dtype, block_size) -> out */
fl_status cpu_scaled_mm_each(fl_call *call, cpu_scaled_mm_fn run) {
  return each(call, &(places){.x_scale = 2, .weight_scale = 3, .bias = 4, .azp = 5, .block_size = 7}, run);
}

/* weight_only_linear(x, weight, weight_scale, bias, block_size) -> out */
fl_status cpu_weight_only_each(fl_call *call, cpu_scaled_mm_fn run) {
  return each(call, &(places){.weight_scale = 2, .bias = 3, .block_size = 4}, run);
}

/* One of a stack. */
static DLTensor element_of(const DLTensor *stack, int64_t index) {
  DLTensor element = *stack;
  element.byte_offset += (uint64_t)(index * bytes_between_rows(stack));
  element.ndim--;
  element.shape++;
  element.strides += element.strides ? 1 : 0;
  return element;
}

cpu_scaled_mm cpu_weight_only_of(const DLTensor *stack, const DLTensor *scales, const int64_t *block, int64_t index) {
  static const float one = 1;
  DLTensor weight = element_of(stack, index), scale = element_of(scales, index);
  cpu_scaled_mm mm = {.n = weight.shape[0],
                      .k = weight.shape[1],
                      .is_float8 = weight.dtype.code == FL_DTYPE_FLOAT8_E4M3FN,
                      .weight = fl_data(&weight),
                      .weight_stride = bytes_between_rows(&weight),
                      .x_scale = {.data = &one},
                      .weight_scale = scales_of(&scale)};
  set_blocks(&mm, !covers(&scale, mm.n), block);
  return mm;
}

/* ---------------------------------------------------------------------------------------------------------- 4 bits */

static void set_weight(cpu_four_bit_linear *linear, const DLTensor *weight, const DLTensor *scales) {
  linear->weight = fl_data(weight);
  linear->weight_stride = bytes_between_rows(weight);
  linear->scales =
      (cpu_matrix){.data = fl_data(scales), .dtype = cpu_dtype_of(scales), .stride = bytes_between_rows(scales)};
}

static void set_zeros(cpu_four_bit_linear *linear, const DLTensor *zeros) {
  linear->zeros = zeros ? fl_data(zeros) : NULL;
  linear->zeros_stride = zeros ? bytes_between_rows(zeros) : 0;
}

/* awq_linear(x, qweight, scales, qzeros, bias) -> out,
 * gptq_linear(x, qweight, scales, qzeros, g_idx, bias, use_v2_format) -> out, mxfp4_linear(x, weight, weight_scale,
 * bias)
 * -> out */
fl_status cpu_four_bit_each(fl_call *call, cpu_four_bits format, cpu_four_bit_fn run) {
  enum { X, WEIGHT, SCALES, ZEROS, G_IDX, GPTQ_V2 = 6 };
  static const uint32_t bias_at[] = {[CPU_AWQ] = 4, [CPU_GPTQ] = 5, [CPU_MXFP4] = 3};
  DLTensor *x = cpu_tensor(call, X), *out = cpu_tensor(call, call->count - 1);
  const DLTensor *scales = cpu_tensor(call, SCALES), *bias = cpu_tensor(call, bias_at[format]);
  cpu_linear_walk walk = cpu_linear_begin(x, out);
  cpu_four_bit_linear linear = {.format = format,
                                .m = walk.m,
                                .n = out->shape[out->ndim - 1],
                                .k = x->shape[x->ndim - 1],
                                .x = {.dtype = cpu_dtype_of(x), .stride = walk.strides[0]},
                                .out = {.dtype = cpu_dtype_of(out), .stride = walk.strides[1]},
                                .bias = bias ? fl_data(bias) : NULL,
                                .bias_dtype = cpu_dtype_of(out),
                                .g_idx = format == CPU_GPTQ ? cpu_tensor(call, G_IDX) : NULL,
                                .zero_offset = format == CPU_GPTQ && !call->values[GPTQ_V2].v.b};
  fl_status status = FL_OK;
  set_weight(&linear, cpu_tensor(call, WEIGHT), scales);
  if (format != CPU_MXFP4) {
    set_zeros(&linear, cpu_tensor(call, ZEROS));
    linear.group = linear.g_idx || !linear.k ? 1 : linear.k / scales->shape[0];
  }
  if (linear.g_idx)
    status = cpu_check_index_list(call, "g_idx", linear.g_idx, 0, scales->shape[0] - 1, "groups of 'scales'");
  for (cpu_rows *matrices = &walk.matrices; matrices->left && !status; cpu_rows_next(matrices)) {
    linear.x.data = matrices->at[0];
    linear.out.data = matrices->at[1];
    status = linear.n ? run(&linear) : FL_OK;
  }
  return with_reason(call, status);
}

cpu_four_bit_linear cpu_mxfp4_of(const DLTensor *stack, const DLTensor *scales, int64_t index) {
  DLTensor weight = element_of(stack, index), scale = element_of(scales, index);
  cpu_four_bit_linear linear = {.format = CPU_MXFP4, .n = weight.shape[0], .k = 2 * weight.shape[1]};
  set_weight(&linear, &weight, &scale);
  return linear;
}
