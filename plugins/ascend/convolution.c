/* Convolutions. aclnnConvolution wants the formats NCHW and NCDHW, and reads strided tensors. */
#include "plugins/ascend/ops.h"

enum { X, WEIGHT, BIAS, STRIDE, PADDING, DILATION, GROUPS, OUT };
enum { KEEP_DTYPE = 0 };

/* All numbers of an int[] from `first` on are at most `most`. */
static bool within(const fl_value *list, uint32_t first, int64_t most) {
  for (uint32_t i = first; i < list->length; i++)
    if (list->v.ints[i] > most)
      return false;
  return true;
}

/* The limits of H and W; depth, which comes first in three dimensions, has none of these. */
static bool supports_sizes(const fl_call *call, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X), *weight = ascend_tensor_at(call, WEIGHT);
  uint32_t first = x->ndim == 5 ? 1 : 0;
  if (!within(&call->values[PADDING], first, 255) || !within(&call->values[DILATION], first, 255))
    return ascend_refuse(reason, "aclnnConvolution takes padding and dilation of up to 255");
  if (x->ndim == 5 && !within(&call->values[STRIDE], first, 63))
    return ascend_refuse(reason, "aclnnConvolution takes strides of up to 63 in three dimensions");
  if (x->ndim == 5 && (weight->shape[3] > 511 || weight->shape[4] > 511))
    return ascend_refuse(reason, "aclnnConvolution takes kernels of up to 511 in three dimensions");
  if (call->values[GROUPS].v.i > 65535)
    return ascend_refuse(reason, "aclnnConvolution takes up to 65535 groups");
  for (int d = 0; d < x->ndim; d++)
    if (x->shape[d] > 1000000 || weight->shape[d] > 1000000)
      return ascend_refuse(reason, "aclnnConvolution takes dimensions of up to 1000000");
  return true;
}

static bool supports_on_310p(const fl_call *call, const char **reason) {
  const DLTensor *x = ascend_tensor_at(call, X), *weight = ascend_tensor_at(call, WEIGHT);
  for (int d = 2; d < x->ndim; d++)
    if (weight->shape[d] > 255 || (d >= x->ndim - 2 && x->shape[d] > 4096))
      return ascend_refuse(reason, "on 310P aclnnConvolution takes kernels of up to 255 and images of up to 4096");
  return true;
}

static bool supports_convolution(const fl_call *call, ascend_chips chip, const char **reason) {
  if (chip != ASCEND_950 && ascend_type_of(ascend_tensor_at(call, X)->dtype) == ACL_FLOAT)
    return ascend_refuse(reason, "float32 would be narrowed: only 950 convolves it as it is");
  if (chip == ASCEND_310P && !supports_on_310p(call, reason))
    return false;
  return supports_sizes(call, reason);
}

static void run_convolution(ascend_call *c) {
  static const int64_t zeros[3];
  const fl_value *values = c->call->values;
  ascend_view x = ascend_argument(c, X), weight = ascend_argument(c, WEIGHT), out = ascend_argument(c, OUT);
  const DLTensor *bias = ascend_tensor_at(c->call, BIAS);
  aclFormat format = x.n_dims == 5 ? ACL_FORMAT_NCDHW : ACL_FORMAT_NCHW;
  ACLNN(c, Convolution, ascend_tensor_of_format(c, x, format), ascend_tensor_of_format(c, weight, format),
        bias ? ascend_tensor(c, ascend_view_of(bias)) : NULL,
        ascend_ints(c, values[STRIDE].v.ints, values[STRIDE].length),
        ascend_ints(c, values[PADDING].v.ints, values[PADDING].length),
        ascend_ints(c, values[DILATION].v.ints, values[DILATION].length), false,
        ascend_ints(c, zeros, values[STRIDE].length), values[GROUPS].v.i, ascend_tensor_of_format(c, out, format),
        KEEP_DTYPE);
}

static ascend_op ops[] = {
    {.name = "conv2d",
     .chips = ASCEND_ALL,
     .run = run_convolution,
     .supports = supports_convolution,
     .needs = {ACLNN_Convolution}},
    {.name = "conv3d",
     .chips = ASCEND_ALL,
     .run = run_convolution,
     .supports = supports_convolution,
     .needs = {ACLNN_Convolution}},
};
OP_LIST(ops);
