/* The ops quant_fp8 and scaled_int8_quant: see quantisation.h. The host has checked shapes and attributes. */
#include "plugins/cpu/quantisation.h"

#include <string.h>

enum { X, SCALE, SCALE_UB, GROUP_SHAPE, USE_UE8M0, NUM_TOKEN_PADDING, Q, SCALE_OUT };

static const cpu_fp8 types[] = {
    {FL_DTYPE_FLOAT8_E4M3FN, 448, (float)(1.0 / (448.0 * 512.0)), fl_float_to_e4m3fn},
    {FL_DTYPE_FLOAT8_E4M3FNUZ, 224, (float)(1.0 / (224.0 * 512.0)), cpu_float_to_e4m3fnuz},
};

/* The host takes no other. */
static const cpu_fp8 *type_of(const DLTensor *q) {
  return &types[q->dtype.code == FL_DTYPE_FLOAT8_E4M3FNUZ];
}

/* At least 1, so that it divides. */
static int64_t tile(int64_t group, int64_t size) {
  return group > 0 ? group : size > 0 ? size : 1;
}

static void read_scales(const DLTensor *scale, const int64_t *group, cpu_quant *quant) {
  const DLTensor *x = quant->x;
  quant->scales = fl_data(scale);
  quant->rows = tile(group[0], x->shape[0]);
  if (scale->ndim == 2) {
    quant->row_step = fl_stride(scale, 0);
    quant->column_step = 1;
  } else if (scale->ndim == 1) { /* one for each token, or for each channel */
    quant->row_step = group[0] == 1;
    quant->column_step = group[1] == 1;
  }
}

static fl_status read_call(fl_call *call, cpu_quant *quant) {
  const DLTensor *scale = cpu_tensor(call, SCALE), *bound = cpu_tensor(call, SCALE_UB);
  const int64_t *group = call->values[GROUP_SHAPE].v.ints;
  DLTensor *x = cpu_tensor(call, X);
  *quant = (cpu_quant){.x = x,
                       .q = cpu_tensor(call, Q),
                       .type = type_of(cpu_tensor(call, Q)),
                       .scale_out = cpu_tensor(call, SCALE_OUT),
                       .dtype = cpu_dtype_of(x),
                       .mode = scale          ? CPU_QUANT_STATIC
                               : group[0] < 0 ? CPU_QUANT_TENSOR
                               : group[1] < 0 ? CPU_QUANT_TOKEN
                                              : CPU_QUANT_GROUP,
                       .hidden = x->shape[x->ndim - 1],
                       .columns = tile(group[1], x->shape[x->ndim - 1]),
                       .power_of_two = call->values[USE_UE8M0].v.b,
                       .upper_bound = bound ? *(const float *)fl_data(bound) : INFINITY};
  if (quant->dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  if (scale)
    read_scales(scale, group, quant);
  return FL_OK;
}

static void copy_scales(const DLTensor *from, DLTensor *to) {
  int64_t n = from->ndim ? from->shape[from->ndim - 1] : 1, rows = from->ndim == 2 ? from->shape[0] : 1;
  for (int64_t row = 0; row < rows; row++)
    memcpy((float *)fl_data(to) + (rows > 1 ? row * fl_stride(to, 0) : 0),
           (const float *)fl_data(from) + (rows > 1 ? row * fl_stride(from, 0) : 0), (size_t)n * sizeof(float));
}

/* Copies given scales to scale_out, and makes the rows of q behind x's tokens 0. */
static void finish(const cpu_quant *quant, const DLTensor *scale) {
  if (scale)
    copy_scales(scale, quant->scale_out);
  if (quant->hidden)
    for (int64_t row = quant->x->shape[0]; quant->x->ndim == 2 && row < quant->q->shape[0]; row++)
      memset((uint8_t *)fl_data(quant->q) + row * fl_stride(quant->q, 0), 0, (size_t)quant->hidden);
}

/* quant_fp8(x, scale, scale_ub, group_shape, use_ue8m0, num_token_padding) -> (q, scale_out) */
fl_status cpu_quant_fp8(void *self, fl_call *call) {
  const cpu_quant_parts *parts = self;
  cpu_quant quant;
  fl_status status = read_call(call, &quant);
  if (status)
    return status;
  if (quant.mode == CPU_QUANT_TENSOR)
    *(float *)fl_data(quant.scale_out) = quant.tensor_scale = parts->scale_of_tensor(&quant);
  bool by_row = quant.mode == CPU_QUANT_TOKEN || quant.mode == CPU_QUANT_GROUP;
  DLTensor *const tensors[] = {quant.x, quant.q, by_row ? quant.scale_out : NULL};
  int64_t bytes = quant.hidden * (cpu_dtype_size(quant.dtype) + 1);
  status = cpu_rows_run(3, tensors, (cpu_row_cost){2 * bytes, quant.hidden}, parts->quantise_row, &quant);
  finish(&quant, cpu_tensor(call, 1));
  return status;
}

/* scaled_int8_quant(x, scale, azp, symmetric) -> (q, scale_out, azp_out) */
fl_status cpu_scaled_int8_quant(void *self, fl_call *call) {
  enum { INT8_X, INT8_SCALE, INT8_AZP, SYMMETRIC, INT8_Q, INT8_SCALE_OUT, INT8_AZP_OUT };
  DLTensor *x = cpu_tensor(call, INT8_X), *const tensors[] = {x, cpu_tensor(call, INT8_Q)};
  DLTensor *scale = cpu_tensor(call, INT8_SCALE), *azp = cpu_tensor(call, INT8_AZP);
  DLTensor *scale_out = cpu_tensor(call, INT8_SCALE_OUT), *azp_out = cpu_tensor(call, INT8_AZP_OUT);
  cpu_int8_quant quant = {.dtype = cpu_dtype_of(x),
                          .hidden = x->shape[x->ndim - 1],
                          .n_rows = cpu_rows_of(x),
                          .is_static = scale,
                          .scale_out = fl_data(scale_out),
                          .azp_out = azp_out ? fl_data(azp_out) : NULL,
                          .scale_step = scale ? 0 : fl_stride(scale_out, 0),
                          .azp_step = scale || !azp_out ? 0 : fl_stride(azp_out, 0)};
  if (quant.dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  if (scale)
    *quant.scale_out = quant.scale = *(const float *)fl_data(scale);
  if (azp)
    *quant.azp_out = quant.azp = *(const int32_t *)fl_data(azp);
  int64_t bytes = quant.hidden * (cpu_dtype_size(quant.dtype) + 1);
  return cpu_rows_run(2, tensors, (cpu_row_cost){2 * bytes, quant.hidden}, *(cpu_row_fn *)self, &quant);
}
