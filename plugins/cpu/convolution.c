/* Reads the arguments of conv2d and conv3d: see convolution.h. */
#include "plugins/cpu/convolution.h"

enum { X, WEIGHT, BIAS, STRIDE, PADDING, DILATION, GROUPS, OUT };

static cpu_volume read_volume(const DLTensor *tensor) {
  cpu_volume volume = {.data = fl_data(tensor),
                       .a = tensor->shape[0],
                       .b = tensor->shape[1],
                       .a_stride = fl_stride(tensor, 0),
                       .b_stride = fl_stride(tensor, 1),
                       .space = {1, 1, 1}};
  int missing = CPU_SPACE + 2 - tensor->ndim;
  for (int d = 2; d < tensor->ndim; d++) {
    volume.space[d - 2 + missing] = tensor->shape[d];
    volume.strides[d - 2 + missing] = fl_stride(tensor, d);
  }
  return volume;
}

/* The list's numbers behind as many `first` as the tensor has dimensions of space too few. */
static void read_list(const fl_value *list, int64_t first, int64_t *numbers) {
  int missing = CPU_SPACE - (int)list->length;
  for (int d = 0; d < CPU_SPACE; d++)
    numbers[d] = d < missing ? first : list->v.ints[d - missing];
}

fl_status cpu_convolution_read(fl_call *call, cpu_convolution *convolution) {
  const DLTensor *x = cpu_tensor(call, X), *weight = cpu_tensor(call, WEIGHT), *bias = cpu_tensor(call, BIAS);
  cpu_dtype dtype = cpu_dtype_of(x);
  if (dtype == CPU_OTHER || cpu_dtype_of(weight) != dtype || (bias && cpu_dtype_of(bias) != dtype))
    return fl_fail(call, FL_ENOTSUP, "element types: float32, float16 or bfloat16, and the same, expected");
  *convolution = (cpu_convolution){.dtype = dtype,
                                   .x = read_volume(x),
                                   .weight = read_volume(weight),
                                   .out = read_volume(cpu_tensor(call, OUT)),
                                   .bias = bias ? fl_data(bias) : NULL,
                                   .groups = call->values[GROUPS].v.i,
                                   .group_outputs = weight->shape[0] / call->values[GROUPS].v.i};
  read_list(&call->values[STRIDE], 1, convolution->stride);
  read_list(&call->values[PADDING], 0, convolution->padding);
  read_list(&call->values[DILATION], 1, convolution->dilation);
  return FL_OK;
}
