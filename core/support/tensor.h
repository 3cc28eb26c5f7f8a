/* Tensors: sizes, and copies for in-place calls. */
#ifndef FLHOST_CORE_SUPPORT_TENSOR_H
#define FLHOST_CORE_SUPPORT_TENSOR_H

#include <flhost/plugin.h>

/* Device types are less than this; each has a place of its own in a binding table, where 0, which is none of DLPack's,
 * stands for an op without tensors. */
enum { FL_DEVICE_SLOTS = 20 };

/* Stands for the device type of an opaque call, which has none. */
enum { FL_OPAQUE_SLOT = FL_DEVICE_SLOTS, FL_SLOTS };

/* Bytes of one element. */
size_t fl_tensor_item_size(const DLTensor *tensor);

int64_t fl_tensor_elements(const DLTensor *tensor);

/* Can the processor read and write tensors of that device type? */
bool fl_is_host_memory(int32_t device_type);

/* Can it read and write this one? */
bool fl_tensor_is_on_host(const DLTensor *tensor);

/* Bytes from the first to behind the last element, gaps between them included; strides are not negative. */
size_t fl_tensor_span(const DLTensor *tensor);

/* Copies between tensors of equal shape and dtype, whatever their strides, in runs of bytes that lie together on both
 * sides; neither is looked at. The first error of `copy` ends it. */
typedef fl_status (*fl_copy_fn)(void *user, void *to, const void *from, size_t size);
fl_status fl_tensor_copy_with(const DLTensor *to, const DLTensor *from, fl_copy_fn copy, void *user);

/* Copies between tensors of equal shape and dtype, whatever their strides; both on the host, not overlapping. */
void fl_tensor_copy(const DLTensor *to, const DLTensor *from);

/* Copies to and from a compact buffer of fl_tensor_elements() * fl_tensor_item_size() bytes. */
void fl_tensor_save(void *buffer, const DLTensor *from);
void fl_tensor_restore(const DLTensor *to, const void *buffer);

#endif
