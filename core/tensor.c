#include "core/tensor.h"

#include <flhost/flhost.h>

#include <string.h>

const char *fl_device_type_name(int32_t device_type) {
  /* By DLPack's numbers; those after 13 are newer than the header of Debian 12. */
  static const char *const names[] = {[kDLCPU] = "cpu",
                                      [kDLCUDA] = "cuda",
                                      [kDLCUDAHost] = "cuda_host",
                                      [kDLOpenCL] = "opencl",
                                      [kDLVulkan] = "vulkan",
                                      [kDLMetal] = "metal",
                                      [kDLVPI] = "vpi",
                                      [kDLROCM] = "rocm",
                                      [kDLROCMHost] = "rocm_host",
                                      [kDLExtDev] = "ext_dev",
                                      [kDLCUDAManaged] = "cuda_managed",
                                      [14] = "oneapi",
                                      [15] = "webgpu",
                                      [16] = "hexagon",
                                      [17] = "maia",
                                      [18] = "trn"};
  return device_type >= 0 && (size_t)device_type < sizeof names / sizeof names[0] ? names[device_type] : NULL;
}

size_t fl_tensor_item_size(const DLTensor *tensor) {
  return ((size_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
}

int64_t fl_tensor_elements(const DLTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->ndim; i++)
    n *= tensor->shape[i];
  return n;
}

bool fl_tensor_is_on_host(const DLTensor *tensor) {
  int32_t type = (int32_t)tensor->device.device_type;
  return type == kDLCPU || type == kDLCUDAHost || type == kDLROCMHost;
}

/* Dimension by dimension; the last one in a single move where it is contiguous on both sides. */
static void copy_dim(char *to, const DLTensor *to_tensor, const char *from, const DLTensor *from_tensor, int dim,
                     size_t item) {
  if (dim == to_tensor->ndim) {
    memcpy(to, from, item);
    return;
  }
  int64_t n = to_tensor->shape[dim], to_stride = fl_stride(to_tensor, dim), from_stride = fl_stride(from_tensor, dim);
  if (dim == to_tensor->ndim - 1 && to_stride == 1 && from_stride == 1) {
    memcpy(to, from, (size_t)n * item);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    copy_dim(to + i * to_stride * (int64_t)item, to_tensor, from + i * from_stride * (int64_t)item, from_tensor,
             dim + 1, item);
}

void fl_tensor_copy(const DLTensor *to, const DLTensor *from) {
  if (fl_tensor_elements(to) > 0)
    copy_dim(fl_data(to), to, fl_data(from), from, 0, fl_tensor_item_size(to));
}

/* The same tensor, compact, at `buffer`. */
static DLTensor compact(void *buffer, const DLTensor *like) {
  DLTensor tensor = *like;
  tensor.data = buffer;
  tensor.byte_offset = 0;
  tensor.strides = NULL;
  return tensor;
}

void fl_tensor_save(void *buffer, const DLTensor *from) {
  DLTensor to = compact(buffer, from);
  fl_tensor_copy(&to, from);
}

void fl_tensor_restore(const DLTensor *to, const void *buffer) {
  DLTensor from = compact((void *)buffer, to);
  fl_tensor_copy(to, &from);
}
