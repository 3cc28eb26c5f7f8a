/* Tensors over memory that belongs to someone else: parts of a tensor, and scratch that is handed to another kernel. */
#ifndef FLHOST_PLUGINS_VIEW_H
#define FLHOST_PLUGINS_VIEW_H

#include <flhost/plugin.h>

/* Not to be copied: the tensor points into the struct. */
typedef struct tensor_view {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
} tensor_view;

/* [rows, columns], the rows `stride` elements apart. */
static inline DLTensor *view_matrix(tensor_view *view, void *data, DLDataType dtype, int64_t rows, int64_t columns,
                                    int64_t stride) {
  view->shape[0] = rows;
  view->shape[1] = columns;
  view->strides[0] = stride;
  view->strides[1] = 1;
  view->tensor = (DLTensor){
      .data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = dtype, .shape = view->shape, .strides = view->strides};
  return &view->tensor;
}

/* The tensor at index 0 of dimension `dim`, without that dimension. */
static inline DLTensor *view_first(tensor_view *view, const DLTensor *tensor, int dim) {
  int n = 0;
  for (int d = 0; d < tensor->ndim; d++) {
    if (d == dim)
      continue;
    view->shape[n] = tensor->shape[d];
    view->strides[n++] = fl_stride(tensor, d);
  }
  view->tensor = *tensor;
  view->tensor.ndim = n;
  view->tensor.shape = view->shape;
  view->tensor.strides = view->strides;
  return &view->tensor;
}

/* The tensor with a last dimension of 1 behind its own: ids, whose leading dimensions are then those of what is looked
 * up for them. */
static inline DLTensor *view_column(tensor_view *view, const DLTensor *tensor) {
  int n = tensor->ndim;
  for (int d = 0; d < n; d++) {
    view->shape[d] = tensor->shape[d];
    view->strides[d] = fl_stride(tensor, d);
  }
  view->shape[n] = view->strides[n] = 1;
  view->tensor = *tensor;
  view->tensor.ndim = n + 1;
  view->tensor.shape = view->shape;
  view->tensor.strides = view->strides;
  return &view->tensor;
}

#endif
