/* Tensors of indices, int32 or int64: how they are read, and what is said of one that is out of range. */
#ifndef FLHOST_CPU_SUPPORT_INDEX_H
#define FLHOST_CPU_SUPPORT_INDEX_H

#include "plugins/cpu/cpu.h"

/* The index `offset` elements behind the first. */
static inline int64_t cpu_index(const DLTensor *tensor, int64_t offset) {
  const void *data = fl_data(tensor);
  return tensor->dtype.bits == 64 ? ((const int64_t *)data)[offset] : ((const int32_t *)data)[offset];
}

/* Element [row, column] of a tensor of two dimensions. */
static inline int64_t cpu_index_at(const DLTensor *tensor, int64_t row, int64_t column) {
  return cpu_index(tensor, row * fl_stride(tensor, 0) + column);
}

/* FL_EINVAL unless all of [rows, columns] are from `least` to `most`; `what` says where `most` comes from. */
static inline fl_status cpu_check_indices(fl_call *call, const char *name, const DLTensor *tensor, int64_t least,
                                          int64_t most, const char *what) {
  for (int64_t row = 0; row < tensor->shape[0]; row++)
    for (int64_t column = 0; column < tensor->shape[1]; column++) {
      int64_t index = cpu_index_at(tensor, row, column);
      if (index < least || index > most)
        return fl_fail(call, FL_EINVAL, "argument '%s'[%lld, %lld] is %lld, expected %lld to %lld (%s)", name,
                       (long long)row, (long long)column, (long long)index, (long long)least, (long long)most, what);
    }
  return FL_OK;
}

/* The same for a tensor of one dimension. */
static inline fl_status cpu_check_index_list(fl_call *call, const char *name, const DLTensor *tensor, int64_t least,
                                             int64_t most, const char *what) {
  for (int64_t i = 0; i < tensor->shape[0]; i++) {
    int64_t index = cpu_index(tensor, i);
    if (index < least || index > most)
      return fl_fail(call, FL_EINVAL, "argument '%s'[%lld] is %lld, expected %lld to %lld (%s)", name, (long long)i,
                     (long long)index, (long long)least, (long long)most, what);
  }
  return FL_OK;
}

#endif
