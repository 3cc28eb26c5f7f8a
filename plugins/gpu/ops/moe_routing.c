/* Launches of the ops that route tokens to experts, and of moe_sum. */
#include "plugins/gpu/ops/moe_routing.h"
#include "plugins/view.h"

#include <string.h>

GPU_MODULE(moe_routing);

static gpu_kernel route_kernels[] = GPU_KERNELS(moe_routing, "route");
static gpu_kernel sum_kernels[] = GPU_KERNELS(moe_routing, "moe_sum");

/* As many warps to a block as shared memory lets every kernel have; a warp may have all that the device can give. */
static fl_status shape_for(const gpu_op *op, fl_call *call, const gpu_route_arguments *a, gpu_shape *shape) {
  enum { ALWAYS_ALLOWED = 48 << 10 };
  fl_status status;
  int64_t of_warp = (2 * (int64_t)a->experts + a->groups + a->topk) * (int64_t)sizeof(float);
  const gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  if (of_warp > device->properties.shared_limit)
    return fl_fail(call, FL_ENOTSUP, "%s: %u experts: their scores take %lld bytes, expected at most %d", op->name,
                   a->experts, (long long)of_warp, device->properties.shared_limit);
  unsigned threads = GPU_ROUTE_THREADS, warp = (unsigned)device->properties.warp;
  while (threads > warp && threads / warp * of_warp > ALWAYS_ALLOWED)
    threads /= 2;
  unsigned tokens = threads / warp;
  *shape = (gpu_shape){.grid = {(unsigned)divide_up(a->rows.count, tokens), 1, 1},
                       .block = {threads, 1, 1},
                       .shared = (unsigned)(tokens * of_warp)};
  return FL_OK;
}

fl_status gpu_route(const gpu_op *op, fl_call *call, gpu_route_arguments *a, const DLTensor *bias,
                    DLTensor *const *tensors) {
  DLTensor *logits = tensors[0];
  gpu_dtype dtype = gpu_dtype_of(logits), bias_dtype = bias ? gpu_dtype_of(bias) : dtype;
  int64_t experts = logits->shape[logits->ndim - 1];
  gpu_shape shape;
  if (dtype == GPU_OTHER || (bias_dtype != dtype && bias_dtype != GPU_FLOAT32))
    return fl_fail(call, FL_ENOTSUP,
                   "%s: element types: float32, float16 or bfloat16 expected, and of a bias the same or float32",
                   op->name);
  if (experts > INT32_MAX / 4)
    return fl_fail(call, FL_ENOTSUP, "%s: %lld experts, expected at most %d", op->name, (long long)experts,
                   INT32_MAX / 4);
  a->logits = fl_data(logits);
  a->weights = fl_data(tensors[1]);
  a->ids = fl_data(tensors[2]);
  a->bias = bias ? fl_data(bias) : NULL;
  a->bias_dtype = (int32_t)bias_dtype;
  a->experts = (uint32_t)experts;
  fl_status status = gpu_rows_of(op, call, 3, tensors, &a->rows);
  if (status || !a->rows.count || (status = shape_for(op, call, a, &shape)))
    return status;
  return gpu_launch(op, call, &route_kernels[dtype], &shape, a);
}

static fl_status grouped_topk(void *self, fl_call *call) {
  enum { GATING_OUTPUT, TOPK, RENORMALIZE, GROUPS, TOPK_GROUP, SCORING_FUNC, SCALING, BIAS, WEIGHTS, IDS };
  const fl_value *values = call->values;
  gpu_route_arguments arguments = {.topk = (uint32_t)values[TOPK].v.i,
                                   .groups = (uint32_t)values[GROUPS].v.i,
                                   .topk_group = (uint32_t)values[TOPK_GROUP].v.i,
                                   .sigmoid = !strcmp(values[SCORING_FUNC].v.s, "sigmoid"),
                                   .renormalize = values[RENORMALIZE].v.b,
                                   .rounded = true,
                                   .scaling = (float)values[SCALING].v.f};
  DLTensor *const tensors[] = {gpu_tensor(call, GATING_OUTPUT), gpu_tensor(call, WEIGHTS), gpu_tensor(call, IDS)};
  return gpu_route(self, call, &arguments, gpu_tensor(call, BIAS), tensors);
}

static fl_status topk_softmax(void *self, fl_call *call) {
  enum { GATING_OUTPUT, TOPK, RENORMALIZE, WEIGHTS, IDS };
  gpu_route_arguments arguments = {.topk = (uint32_t)call->values[TOPK].v.i,
                                   .groups = 1,
                                   .topk_group = 1,
                                   .renormalize = call->values[RENORMALIZE].v.b,
                                   .guarded = true,
                                   .scaling = 1};
  DLTensor *const tensors[] = {gpu_tensor(call, GATING_OUTPUT), gpu_tensor(call, WEIGHTS), gpu_tensor(call, IDS)};
  return gpu_route(self, call, &arguments, NULL, tensors);
}

/* x [..., k, h] -> out [..., h] */
static fl_status moe_sum(void *self, fl_call *call) {
  enum { X, OUT };
  const gpu_op *op = self;
  DLTensor *x = gpu_tensor(call, X), *out = gpu_tensor(call, OUT);
  tensor_view first;
  DLTensor *const tensors[] = {out, view_first(&first, x, x->ndim - 2)};
  gpu_dtype dtype = gpu_dtype_of(x);
  int64_t item = gpu_item_size(x);
  gpu_moe_sum_arguments a = {.x = fl_data(x),
                             .out = fl_data(out),
                             .columns = out->shape[out->ndim - 1],
                             .experts = x->shape[x->ndim - 2],
                             .step = fl_stride(x, x->ndim - 2)};
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  fl_status status = gpu_rows_of(op, call, 2, tensors, &a.rows);
  if (status || !a.rows.count || !a.columns)
    return status;
  a.vectorised = gpu_rows_aligned(&a.rows, 0, out) && gpu_rows_aligned(&a.rows, 1, tensors[1]) &&
                 (a.step | a.columns) * item % GPU_VECTOR == 0;
  int64_t threads = a.vectorised ? a.columns / gpu_vector_length(x) : a.columns;
  unsigned width = gpu_power_of_two(threads, GPU_MOE_SUM_THREADS);
  gpu_shape shape = gpu_shape_of(threads, a.rows.count, width, GPU_MOE_SUM_THREADS / width);
  return gpu_launch(op, call, &sum_kernels[dtype], &shape, &a);
}

static const gpu_op ops[] = {
    {.name = "grouped_topk", .run = grouped_topk, .module = &gpu_module_moe_routing},
    {.name = "topk_softmax", .run = topk_softmax, .module = &gpu_module_moe_routing},
    {.name = "moe_sum", .run = moe_sum, .module = &gpu_module_moe_routing},
};
OP_LIST(ops);
