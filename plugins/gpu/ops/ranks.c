/* This rank's part of what ranks make together: the host makes the rest (fl_op_def.ranks). No kernel is needed. */
#include "plugins/gpu/launch.h"

enum { X, OUT };

static bool is_compact(const DLTensor *tensor) {
  int64_t stride = 1;
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->shape[i] > 1 && fl_stride(tensor, i) != stride)
      return false;
    stride *= tensor->shape[i];
  }
  return true;
}

static bool supports(void *self, const fl_call *call, const char **reason) {
  (void)self;
  return gpu_answer(is_compact(gpu_tensor(call, X)) && is_compact(gpu_tensor(call, OUT)), "tensors with strides",
                    reason);
}

/* tensor_model_parallel_all_reduce(x) -> out: x, which the host adds the other ranks' to. */
static fl_status all_reduce(void *self, fl_call *call) {
  const gpu_op *op = self;
  const DLTensor *x = gpu_tensor(call, X);
  size_t size = (size_t)gpu_item_size(x);
  gpu_scope scope;
  fl_status status;
  for (int i = 0; i < x->ndim; i++)
    size *= (size_t)x->shape[i];
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device || !size)
    return device ? FL_OK : status;
  gpu_code code = gpu.call.enter(device, &scope);
  if (!code) {
    code = gpu.call.copy(fl_data(gpu_tensor(call, OUT)), fl_data(x), size, FL_COPY_ON_DEVICE, call->stream);
    gpu.call.leave(&scope);
  }
  gpu_note_launch(device, op->name);
  return code ? fl_fail(call, FL_EDEVICE, "copying %zu bytes: %s", size, gpu.call.error_name(code)) : FL_OK;
}

static const gpu_op ops[] = {
    {.name = "tensor_model_parallel_all_reduce", .run = all_reduce, .supports = supports},
};
OP_LIST(ops);
