/* The ops of this backend, by category: lists that end in an op without name. */
#ifndef FLHOST_ASCEND_OPS_H
#define FLHOST_ASCEND_OPS_H

#include "plugins/ascend/call.h"

extern ascend_op ascend_activations[], ascend_norms[], ascend_rotary[], ascend_linear[], ascend_convolutions[],
    ascend_moe[], ascend_attention[];

fl_status ascend_attention_backend(void *self, fl_call *call);

/* For supports(): says why not. */
static inline bool ascend_refuse(const char **reason, const char *words) {
  *reason = words;
  return false;
}

/* The tensor at `index`; NULL if there is none. */
static inline const DLTensor *ascend_tensor_at(const fl_call *call, uint32_t index) {
  return call->values[index].type == FL_TENSOR ? call->values[index].v.tensor : NULL;
}

static inline bool ascend_is_compact(const DLTensor *tensor) {
  ascend_view view = ascend_view_of(tensor);
  return ascend_view_is_compact(&view);
}

/* The very same tensor, in place. */
static inline bool ascend_is_same(const DLTensor *a, const DLTensor *b) {
  return fl_data(a) == fl_data(b);
}

static inline bool ascend_same_type(const DLTensor *a, const DLTensor *b) {
  return ascend_type_of(a->dtype) == ascend_type_of(b->dtype);
}

#endif
