/* How the tensors of a call lie in memory, in the form that kernels take: see launch.h. */
#include "plugins/gpu/launch.h"

gpu_dtype gpu_dtype_of(const DLTensor *tensor) {
  DLDataType type = tensor->dtype;
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 32)
    return GPU_FLOAT32;
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 16)
    return GPU_FLOAT16;
  if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16)
    return GPU_BFLOAT16;
  return GPU_OTHER;
}

fl_status gpu_wrong_type(fl_call *call, const char *name) {
  return fl_fail(call, FL_ENOTSUP, "element type of '%s': float32, float16 or bfloat16 expected", name);
}

/* Does dimension `d` continue, in each tensor, where the dimension after it, the last of `rows`, ends? */
static bool continues(const gpu_rows *rows, int n_tensors, DLTensor *const *tensors, int d) {
  for (int t = 0; t < n_tensors; t++)
    if (tensors[t] && fl_stride(tensors[t], d) != rows->shape[rows->dims - 1] * rows->stride[t][rows->dims - 1])
      return false;
  return true;
}

/* From the last leading dimension to the first; so the result is in the opposite order, until turned around. */
static void collect(gpu_rows *rows, int n_tensors, DLTensor *const *tensors) {
  for (int d = tensors[0]->ndim - 2; d >= 0; d--) {
    uint32_t size = (uint32_t)tensors[0]->shape[d];
    if (size == 1)
      continue;
    if (rows->dims && continues(rows, n_tensors, tensors, d)) {
      rows->shape[rows->dims - 1] *= size;
      continue;
    }
    for (int t = 0; t < n_tensors; t++)
      rows->stride[t][rows->dims] = tensors[t] ? fl_stride(tensors[t], d) : 0;
    rows->shape[rows->dims++] = size;
  }
}

static void turn_around(gpu_rows *rows) {
  gpu_rows kept = *rows;
  for (int i = 0; i < rows->dims; i++) {
    int from = rows->dims - 1 - i;
    rows->shape[i] = kept.shape[from];
    for (int t = 0; t < GPU_ROWS_TENSORS; t++)
      rows->stride[t][i] = kept.stride[t][from];
  }
}

fl_status gpu_rows_of(const gpu_op *op, fl_call *call, int n_tensors, DLTensor *const *tensors, gpu_rows *rows) {
  int64_t count = 1;
  for (int d = 0; d < tensors[0]->ndim - 1; d++)
    if (__builtin_mul_overflow(count, tensors[0]->shape[d], &count) || count > INT32_MAX)
      return fl_fail(call, FL_ENOTSUP, "%s: more than 2147483647 rows", op->name);
  *rows = (gpu_rows){.count = (uint32_t)count};
  if (count)
    collect(rows, n_tensors, tensors);
  turn_around(rows);
  return FL_OK;
}

bool gpu_rows_aligned(const gpu_rows *rows, int index, const DLTensor *tensor) {
  int64_t steps = 0;
  for (int d = 0; d < rows->dims; d++)
    steps |= rows->stride[index][d] * gpu_item_size(tensor);
  return gpu_is_aligned(fl_data(tensor), steps);
}

bool gpu_tensor_aligned(const DLTensor *tensor) {
  int64_t steps = 0;
  for (int d = 0; d < tensor->ndim - 1; d++)
    if (tensor->shape[d] > 1)
      steps |= fl_stride(tensor, d) * gpu_item_size(tensor);
  return gpu_is_aligned(fl_data(tensor), steps);
}

unsigned gpu_power_of_two(int64_t n, unsigned limit) {
  unsigned power = 1;
  while (power < n && power < limit)
    power *= 2;
  return power;
}

unsigned gpu_block_size(const gpu_device *device, int64_t n, unsigned limit) {
  unsigned threads = gpu_power_of_two(n, limit), warp = (unsigned)device->properties.warp;
  return threads < warp ? warp : threads;
}
