/* Launches of the convolutions: see kernels/convolution.cu. */
#include "plugins/gpu/kernels/arguments/convolution.h"
#include "plugins/gpu/kernels/arguments/tile.h"
#include "plugins/gpu/launch.h"

GPU_MODULE(convolution);

static gpu_kernel convolve_few[] = GPU_KERNELS(convolution, "convolve_few");
static gpu_kernel convolve_many[] = GPU_KERNELS(convolution, "convolve_many");

enum { X, WEIGHT, BIAS, STRIDE, PADDING, DILATION, GROUPS, OUT };

static bool read_volume(const DLTensor *tensor, gpu_volume *volume) {
  int missing = GPU_SPACE + 2 - tensor->ndim;
  *volume = (gpu_volume){
      .data = fl_data(tensor), .a_stride = fl_stride(tensor, 0), .b_stride = fl_stride(tensor, 1), .space = {1, 1, 1}};
  for (int d = 2; d < tensor->ndim; d++) {
    if (tensor->shape[d] > INT32_MAX)
      return false;
    volume->space[d - 2 + missing] = (int32_t)tensor->shape[d];
    volume->strides[d - 2 + missing] = fl_stride(tensor, d);
  }
  return true;
}

/* The list's numbers behind as many `first` as the tensor has dimensions of space too few. */
static bool read_list(const fl_value *list, int32_t first, int32_t *numbers) {
  uint32_t missing = GPU_SPACE - list->length;
  for (uint32_t d = 0; d < GPU_SPACE; d++) {
    int64_t number = d < missing ? first : list->v.ints[d - missing];
    if (number > INT32_MAX)
      return false;
    numbers[d] = (int32_t)number;
  }
  return true;
}

/* Places around the input, and positions, are counted in 32 bits. */
static bool is_countable(const DLTensor *out, gpu_convolution_arguments *a) {
  int64_t positions = out->shape[0];
  for (int d = 0; d < GPU_SPACE; d++) {
    int64_t around = a->x.space[d] + 2 * (int64_t)a->padding[d];
    if (around > INT32_MAX || __builtin_mul_overflow(positions, a->out.space[d], &positions) || positions > INT32_MAX)
      return false;
  }
  a->positions = (uint32_t)positions;
  return true;
}

/* false: `reason` says what the kernel cannot do. */
static bool read_convolution(const fl_call *call, gpu_convolution_arguments *a, const char **reason) {
  const fl_value *values = call->values;
  const DLTensor *x = gpu_tensor(call, X), *weight = gpu_tensor(call, WEIGHT), *bias = gpu_tensor(call, BIAS);
  const DLTensor *out = gpu_tensor(call, OUT);
  gpu_dtype dtype = gpu_dtype_of(x);
  *reason = "element types: float32, float16 or bfloat16, and the same, expected";
  if (dtype == GPU_OTHER || gpu_dtype_of(weight) != dtype || (bias && gpu_dtype_of(bias) != dtype))
    return false;
  *reason = "more than 2147483647 positions, channels or groups";
  if (!read_volume(x, &a->x) || !read_volume(weight, &a->weight) || !read_volume(out, &a->out) ||
      !read_list(&values[STRIDE], 1, a->stride) || !read_list(&values[PADDING], 0, a->padding) ||
      !read_list(&values[DILATION], 1, a->dilation) || !is_countable(out, a))
    return false;
  int64_t groups = values[GROUPS].v.i, group_outputs = weight->shape[0] / groups, depth = weight->shape[1];
  if (weight->shape[0] > INT32_MAX || depth > INT32_MAX)
    return false;
  for (int d = 0; d < GPU_SPACE; d++)
    depth *= a->weight.space[d]; /* of a weight that lies in memory */
  int64_t tile = group_outputs <= GPU_CONVOLUTION_FEW ? GPU_CONVOLUTION_FEW : GPU_CONVOLUTION_MANY;
  a->bias = bias ? fl_data(bias) : NULL;
  a->group_channels = (int32_t)weight->shape[1];
  a->group_outputs = (int32_t)group_outputs;
  a->depth = depth;
  a->output_blocks = (uint32_t)divide_up(group_outputs, tile);
  a->blocks = (uint32_t)groups * a->output_blocks;
  return true;
}

static bool supports(void *self, const fl_call *call, const char **reason) {
  gpu_convolution_arguments arguments = {0};
  const char *why = NULL;
  bool taken = read_convolution(call, &arguments, &why);
  (void)self;
  return gpu_answer(taken, why, reason);
}

/* conv2d and conv3d(x, weight, bias, stride, padding, dilation, groups) -> out */
static fl_status run(void *self, fl_call *call) {
  const gpu_op *op = self;
  gpu_convolution_arguments a = {0};
  const char *reason = NULL;
  if (!read_convolution(call, &a, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (!a.positions || !a.blocks)
    return FL_OK;
  gpu_shape shape = {
      .grid = {(unsigned)divide_up(a.positions, GPU_CONVOLUTION_POSITIONS), gpu_limit_blocks(a.blocks), 1},
      .block = {GPU_TILE_THREADS, 1, 1}};
  gpu_kernel *kernels = a.group_outputs <= GPU_CONVOLUTION_FEW ? convolve_few : convolve_many;
  return gpu_launch(op, call, &kernels[gpu_dtype_of(gpu_tensor(call, X))], &shape, &a);
}

#define OP(op)                                                                                                         \
  { .name = op, .run = run, .supports = supports, .module = &gpu_module_convolution }

static const gpu_op ops[] = {
    OP("conv2d"),
    OP("conv3d"),
};
OP_LIST(ops);
