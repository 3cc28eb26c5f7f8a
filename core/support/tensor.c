#include "core/support/tensor.h"

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

bool fl_is_host_memory(int32_t device_type) {
  return device_type == kDLCPU || device_type == kDLCUDAHost || device_type == kDLROCMHost;
}

bool fl_tensor_is_on_host(const DLTensor *tensor) {
  return fl_is_host_memory((int32_t)tensor->device.device_type);
}

size_t fl_tensor_span(const DLTensor *tensor) {
  int64_t last = 0;
  if (!fl_tensor_elements(tensor))
    return 0;
  for (int i = 0; i < tensor->ndim; i++)
    last += fl_stride(tensor, i) * (tensor->shape[i] - 1);
  return (size_t)(last + 1) * fl_tensor_item_size(tensor);
}

/* From which dimension on are both tensors without gaps? `*elements` lie from there on. */
static int first_dense(const DLTensor *a, const DLTensor *b, int64_t *elements) {
  int dim = a->ndim;
  *elements = 1;
  for (; dim > 0; dim--) {
    int64_t n = a->shape[dim - 1];
    if (n != 1 && (fl_stride(a, dim - 1) != *elements || fl_stride(b, dim - 1) != *elements))
      break;
    *elements *= n;
  }
  return dim;
}

/* One copy of tensors, and what all its runs have in common. */
typedef struct tensor_copy {
  const DLTensor *to, *from;
  int dense; /* from this dimension on all is one run */
  size_t run, item;
  fl_copy_fn copy;
  void *user;
} tensor_copy;

/* Dimension by dimension, as far as there are gaps. */
static fl_status copy_dim(const tensor_copy *c, char *to, const char *from, int dim) {
  fl_status status = FL_OK;
  if (dim == c->dense)
    return c->copy(c->user, to, from, c->run);
  int64_t to_step = fl_stride(c->to, dim) * (int64_t)c->item, from_step = fl_stride(c->from, dim) * (int64_t)c->item;
  for (int64_t i = 0; i < c->to->shape[dim] && !status; i++)
    status = copy_dim(c, to + i * to_step, from + i * from_step, dim + 1);
  return status;
}

fl_status fl_tensor_copy_with(const DLTensor *to, const DLTensor *from, fl_copy_fn copy, void *user) {
  tensor_copy c = {.to = to, .from = from, .item = fl_tensor_item_size(to), .copy = copy, .user = user};
  int64_t elements;
  if (!fl_tensor_elements(to))
    return FL_OK;
  c.dense = first_dense(to, from, &elements);
  c.run = (size_t)elements * c.item;
  return copy_dim(&c, fl_data(to), fl_data(from), 0);
}

static fl_status copy_on_host(void *user, void *to, const void *from, size_t size) {
  (void)user;
  memcpy(to, from, size);
  return FL_OK;
}

void fl_tensor_copy(const DLTensor *to, const DLTensor *from) {
  fl_tensor_copy_with(to, from, copy_on_host, NULL);
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
