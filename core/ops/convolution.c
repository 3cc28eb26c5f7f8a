/* Convolutions, as PyTorch defines them (cross-correlation with zeros around the input). */
#include "core/ops/checks.h"
#include "core/ops/entries.h"

enum { X, WEIGHT, BIAS, STRIDE, PADDING, DILATION, GROUPS };

static fl_status check_list(fl_call *call, uint32_t index, const char *name, uint32_t n, int64_t least) {
  const fl_value *list = &call->values[index];
  if (list->length != n)
    return fl_fail(call, FL_EINVAL, "argument '%s': %u numbers, expected %u", name, (unsigned)list->length,
                   (unsigned)n);
  for (uint32_t i = 0; i < n; i++)
    if (list->v.ints[i] < least)
      return fl_fail(call, FL_EINVAL, "argument '%s'[%u]: %lld, expected %lld or more", name, (unsigned)i,
                     (long long)list->v.ints[i], (long long)least);
  return FL_OK;
}

/* floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 in dimension `i` of space; 0: the kernel does not
 * fit, or 64 bits do not hold the terms. */
static int64_t output_size(const fl_value *values, uint32_t i) {
  int64_t in = values[X].v.tensor->shape[2 + i], kernel = values[WEIGHT].v.tensor->shape[2 + i];
  int64_t around, spread, room;
  if (__builtin_mul_overflow(2, values[PADDING].v.ints[i], &around) || __builtin_add_overflow(in, around, &around) ||
      __builtin_mul_overflow(values[DILATION].v.ints[i], kernel - 1, &spread) ||
      __builtin_sub_overflow(around, spread, &room))
    return 0;
  return room < 1 ? 0 : (room - 1) / values[STRIDE].v.ints[i] + 1;
}

/* Padding may make a result large that has nothing but the bias in it. */
static fl_status check_size(fl_call *call) {
  const DLTensor *x = call->values[X].v.tensor;
  int64_t outputs = call->values[WEIGHT].v.tensor->shape[0], size, given;
  bool is_large = __builtin_mul_overflow(x->shape[0], outputs, &size);
  given = size;
  for (uint32_t i = 0; (int32_t)i < x->ndim - 2 && !is_large; i++)
    is_large = __builtin_mul_overflow(size, output_size(call->values, i), &size) ||
               __builtin_mul_overflow(given, x->shape[2 + i], &given);
  if (is_large)
    return fl_fail(call, FL_EINVAL, "argument 'padding': more elements of 'out' than 64 bits can count");
  return fl_check_sized(call, "argument 'padding'", "'out'", size, given);
}

static fl_status check_groups(fl_call *call) {
  int64_t groups = call->values[GROUPS].v.i, inputs = call->values[X].v.tensor->shape[1];
  int64_t outputs = call->values[WEIGHT].v.tensor->shape[0], of_group = call->values[WEIGHT].v.tensor->shape[1];
  if (groups < 1 || inputs % groups || outputs % groups)
    return fl_fail(call, FL_EINVAL,
                   "argument 'groups': %lld, expected a divisor of %lld (channels of 'x') and of %lld (outputs of "
                   "'weight')",
                   (long long)groups, (long long)inputs, (long long)outputs);
  if (of_group != inputs / groups)
    return fl_fail(call, FL_EINVAL, "argument 'weight': %lld channels, expected %lld (those of 'x' over 'groups')",
                   (long long)of_group, (long long)(inputs / groups));
  return FL_OK;
}

static fl_status check_convolution(fl_call *call) {
  const fl_value *values = call->values;
  const DLTensor *x = values[X].v.tensor, *weight = values[WEIGHT].v.tensor;
  uint32_t n = (uint32_t)x->ndim - 2;
  fl_status status = check_list(call, STRIDE, "stride", n, 1);
  if (!status)
    status = check_list(call, PADDING, "padding", n, 0);
  if (!status)
    status = check_list(call, DILATION, "dilation", n, 1);
  if (!status)
    status = check_groups(call);
  for (uint32_t i = 0; i < n && !status; i++)
    if (weight->shape[2 + i] < 1)
      status =
          fl_fail(call, FL_EINVAL, "argument 'weight': size 0 of dimension %u, expected 1 or more", 2 + (unsigned)i);
    else if (output_size(values, i) < 1)
      status = fl_fail(call, FL_EINVAL,
                       "argument 'weight': size %lld of dimension %u with dilation %lld, expected to fit into %lld of "
                       "'x' and padding %lld on each side",
                       (long long)weight->shape[2 + i], 2 + (unsigned)i, (long long)values[DILATION].v.ints[i],
                       (long long)x->shape[2 + i], (long long)values[PADDING].v.ints[i]);
  return status ? status : check_size(call);
}

#define FORMULA                                                                                                        \
  "out size = floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1; products and bias are added in "       \
  "float32 or better and rounded to T once "
#define FLOATS "T = float32|float16|bfloat16"
/* Size of dimension `i` of space, which is `in` in x and `kernel` in the weight: output_size as the rules say it. */
#define OUT(in, kernel, i) "(" in " + 2*padding[" i "] - dilation[" i "]*(" kernel " - 1) - 1) // stride[" i "] + 1"

const fl_op_def fl_op_conv2d = {
    .size = sizeof(fl_op_def),
    .schema = "conv2d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1,1], int[] padding=[0,0], "
              "int[] dilation=[1,1], int groups=1) -> Tensor out",
    .layers = "Conv2dLayer",
    .rules = "x: T[n, c, h, w]; weight: T[o, g, i, j]; bias: T[o]; out: T[n, o, " OUT("h", "i", "0") ", " OUT(
        "w", "j", "1") "]; " FLOATS,
    .category = "convolution",
    .doc = "Convolution over two dimensions of space, out [n, o, ...].",
    .formula = "out[n, o, y, x] = bias[o] + sum over c, i, j of weight[o, c, i, j] * x[n, group of o + c, y stride + i "
               "dilation - padding, x stride + j dilation - padding]; " FORMULA "(vLLM: Conv2dLayer; PyTorch: conv2d)",
    .check = check_convolution,
    .cases = "n: 1 2 0; c: 3 4 8; groups: 1 2 4; g: c/groups; h: 1 7 16; w: 1 9 16; o: 1 4 8; i: 1 2 3; j: 1 3; "
             "stride: [1, 1] [2, 2] [2, 1]; "
             "padding: [0, 0] [1, 1] [1, 2]; dilation: [1, 1] [2, 1]; x: moderate; weight: -0.3..0.3; bias: none -1..1",
    /* With the products of padding. Sizes of CLIP ViT-L/14. */
    .flops = "(2*g*i*j + given(bias))*numel(out)",
    .bench = "n: 1 8 64; c: 3; h: 336; w: 336; o: 1024; i: 14; j: 14; stride: [14, 14]",
};

const fl_op_def fl_op_conv3d = {
    .size = sizeof(fl_op_def),
    .schema = "conv3d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1,1,1], int[] padding=[0,0,0], "
              "int[] dilation=[1,1,1], int groups=1) -> Tensor out",
    .layers = "Conv3dLayer",
    .rules = "x: T[n, c, d, h, w]; weight: T[o, g, i, j, k]; bias: T[o]; out: T[n, o, " OUT("d", "i", "0") ", " OUT(
        "h", "j", "1") ", " OUT("w", "k", "2") "]; " FLOATS,
    .category = "convolution",
    .doc = "Convolution over three dimensions of space (or two and time), out [n, o, ...].",
    .formula = "conv2d with one more dimension; " FORMULA "(vLLM: Conv3dLayer; PyTorch: conv3d)",
    .check = check_convolution,
    .cases =
        "n: 1 2 0; c: 2 4; groups: 1 2; g: c/groups; d: 1 4; h: 1 7 9; w: 1 8; o: 1 4; i: 1 2; j: 1 3; k: 1 2; stride: "
        "[1, 1, 1] [2, 2, 1]; "
        "padding: [0, 0, 0] [1, 1, 0]; dilation: [1, 1, 1] [1, 2, 1]; x: moderate; weight: -0.3..0.3; bias: none -1..1",
    /* With the products of padding. Sizes of Qwen2-VL's patches. */
    .flops = "(2*g*i*j*k + given(bias))*numel(out)",
    .bench = "n: 1 128 4096; c: 3; d: 2; h: 14; w: 14; o: 1280; i: 2; j: 14; k: 14; stride: [2, 14, 14]",
};
