/* Views of tensors: see view.h. */
#include "plugins/ascend/view.h"

#include <string.h>

static const struct {
  uint8_t code, bits;
  aclDataType type;
} types[] = {{kDLFloat, 32, ACL_FLOAT},    {kDLFloat, 16, ACL_FLOAT16},
             {kDLBfloat, 16, ACL_BF16},    {kDLInt, 32, ACL_INT32},
             {kDLInt, 64, ACL_INT64},      {kDLInt, 8, ACL_INT8},
             {kDLUInt, 8, ACL_UINT8},      {kDLFloat, 64, ACL_DOUBLE},
             {FL_DTYPE_BOOL, 8, ACL_BOOL}, {FL_DTYPE_FLOAT8_E4M3FN, 8, ACL_FLOAT8_E4M3FN}};
enum { N_TYPES = sizeof types / sizeof types[0] };

aclDataType ascend_type_of(DLDataType type) {
  for (int i = 0; i < N_TYPES; i++)
    if (type.lanes == 1 && types[i].code == type.code && types[i].bits == type.bits)
      return types[i].type;
  return ACL_DT_UNDEFINED;
}

int32_t ascend_type_size(aclDataType type) {
  for (int i = 0; i < N_TYPES; i++)
    if (types[i].type == type)
      return types[i].bits / 8;
  return 1;
}

ascend_view ascend_view_make(void *data, aclDataType type, int n_dims, const int64_t *shape) {
  ascend_view view = {.data = data, .type = type, .size = ascend_type_size(type), .n_dims = n_dims};
  int64_t stride = 1;
  for (int d = n_dims - 1; d >= 0; d--) {
    view.shape[d] = shape[d];
    view.strides[d] = stride;
    stride *= shape[d];
  }
  return view;
}

ascend_view ascend_view_of(const DLTensor *tensor) {
  ascend_view view = ascend_view_make(fl_data(tensor), ascend_type_of(tensor->dtype), tensor->ndim, tensor->shape);
  for (int d = tensor->ndim - 1; d >= 0 && tensor->strides; d--)
    if (tensor->shape[d] != 1)
      view.strides[d] = tensor->strides[d];
    else
      view.strides[d] = d + 1 < tensor->ndim ? view.strides[d + 1] * view.shape[d + 1] : 1;
  return view;
}

int64_t ascend_view_count(const ascend_view *view) {
  int64_t count = 1;
  for (int d = 0; d < view->n_dims; d++)
    count *= view->shape[d];
  return count;
}

bool ascend_view_is_compact(const ascend_view *view) {
  int64_t stride = 1;
  if (!ascend_view_count(view))
    return true;
  for (int d = view->n_dims - 1; d >= 0; d--) {
    if (view->shape[d] != 1 && view->strides[d] != stride)
      return false;
    stride *= view->shape[d];
  }
  return true;
}

bool ascend_view_rows(const ascend_view *view, ascend_view *rows) {
  int last = view->n_dims - 1;
  int64_t n = 1, stride = 0;
  for (int d = last - 1; d >= 0; d--) {
    if (view->shape[d] == 1)
      continue;
    if (n == 1)
      stride = view->strides[d];
    else if (view->strides[d] != stride * n)
      return false;
    n *= view->shape[d];
  }
  *rows = *view;
  rows->n_dims = 2;
  rows->shape[0] = n;
  rows->shape[1] = view->shape[last];
  rows->strides[0] = n == 1 ? view->shape[last] * view->strides[last] : stride;
  rows->strides[1] = view->strides[last];
  return true;
}

ascend_view ascend_view_reshaped(const ascend_view *view, int n_dims, const int64_t *shape) {
  return ascend_view_make(view->data, view->type, n_dims, shape);
}

ascend_view ascend_view_split(const ascend_view *view, int dim, int64_t size) {
  ascend_view split = *view;
  split.n_dims++;
  for (int d = view->n_dims; d > dim; d--) {
    split.shape[d] = view->shape[d - 1];
    split.strides[d] = view->strides[d - 1];
  }
  split.shape[dim] = view->shape[dim] / size;
  split.strides[dim] = view->strides[dim] * size;
  split.shape[dim + 1] = size;
  return split;
}

ascend_view ascend_view_swapped(const ascend_view *view, int a, int b) {
  ascend_view swapped = *view;
  swapped.shape[a] = view->shape[b];
  swapped.shape[b] = view->shape[a];
  swapped.strides[a] = view->strides[b];
  swapped.strides[b] = view->strides[a];
  return swapped;
}

ascend_view ascend_view_part(const ascend_view *view, int dim, int64_t start, int64_t size) {
  ascend_view part = *view;
  part.data = (void *)((uintptr_t)view->data + (uintptr_t)(start * view->strides[dim] * view->size)); /* NULL: to be */
  part.shape[dim] = size;
  return part;
}
