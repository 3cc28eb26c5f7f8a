/* Tensors in host memory: sizes, and copies for in-place calls. */
#ifndef FLHOST_CORE_TENSOR_H
#define FLHOST_CORE_TENSOR_H

#include <flhost/plugin.h>

/* Bytes of one element. */
size_t fl_tensor_item_size(const DLTensor *tensor);

int64_t fl_tensor_elements(const DLTensor *tensor);

/* Can the processor read and write it? */
bool fl_tensor_is_on_host(const DLTensor *tensor);

/* Copies between tensors of equal shape and dtype, whatever their strides; both on the host, not overlapping. */
void fl_tensor_copy(const DLTensor *to, const DLTensor *from);

/* Copies to and from a compact buffer of fl_tensor_elements() * fl_tensor_item_size() bytes. */
void fl_tensor_save(void *buffer, const DLTensor *from);
void fl_tensor_restore(const DLTensor *to, const void *buffer);

#endif
