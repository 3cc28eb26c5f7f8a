/* This rank's part of what ranks make together: the host makes the rest (fl_op_def.ranks). No kernel is needed. */
#include "plugins/gpu/launch.h"

enum { X, OUT };

/* Do the rows lie one behind the other, in both? */
static bool is_flat(const gpu_rows *rows, int64_t columns) {
  return !rows->dims || (rows->dims == 1 && rows->stride[X][0] == columns && rows->stride[OUT][0] == columns);
}

/* Elements before row `number` of a tensor. */
static int64_t offset_of(const gpu_rows *rows, int tensor, uint32_t number) {
  int64_t offset = 0;
  for (int d = rows->dims - 1; d >= 0; d--) {
    offset += (int64_t)(number % rows->shape[d]) * rows->stride[tensor][d];
    number /= rows->shape[d];
  }
  return offset;
}

static gpu_code copy_rows(const gpu_rows *rows, DLTensor *const *tensors, int64_t columns, void *stream) {
  int64_t item = gpu_item_size(tensors[X]);
  uint32_t n = is_flat(rows, columns) ? 1 : rows->count;
  size_t size = (size_t)(columns * item) * (rows->count / n);
  gpu_code code = GPU_SUCCESS;
  for (uint32_t i = 0; i < n && !code; i++)
    code = gpu.call.copy((char *)fl_data(tensors[OUT]) + offset_of(rows, OUT, i) * item,
                         (const char *)fl_data(tensors[X]) + offset_of(rows, X, i) * item, size, FL_COPY_ON_DEVICE,
                         stream);
  return code;
}

/* tensor_model_parallel_all_reduce(x) -> out: x, which the host adds the other ranks' to. Rows that lie apart are
 * copied one by one. */
static fl_status all_reduce(void *self, fl_call *call) {
  const gpu_op *op = self;
  DLTensor *const tensors[] = {gpu_tensor(call, X), gpu_tensor(call, OUT)};
  int64_t columns = tensors[X]->shape[tensors[X]->ndim - 1];
  gpu_rows rows;
  gpu_scope scope;
  fl_status status = gpu_rows_of(op, call, 2, tensors, &rows);
  gpu_device *device = status ? NULL : gpu_call_device(op, call, &status);
  if (!device || !rows.count || !columns)
    return status;
  gpu_code code = gpu.call.enter(device, &scope);
  if (code)
    return fl_fail(call, FL_EDEVICE, "entering the device: %s", gpu.call.error_name(code));
  code = copy_rows(&rows, tensors, columns, call->stream);
  gpu.call.leave(&scope);
  gpu_note_launch(device, op->name);
  return code ? fl_fail(call, FL_EDEVICE, "queueing a copy: %s", gpu.call.error_name(code)) : FL_OK;
}

static const gpu_op ops[] = {
    {.name = "tensor_model_parallel_all_reduce", .run = all_reduce},
};
OP_LIST(ops);
