/*
 * What the files of ops share: each ends with the list of its ops (plugins/op_lists.h), and some of their steps are
 * those of other ops, too.
 */
#ifndef FLHOST_ASCEND_OPS_H
#define FLHOST_ASCEND_OPS_H

#include "plugins/ascend/call.h"
#include "plugins/op_lists.h"

/* A half of the last dimension, the first (0) or the second (1). */
ascend_view ascend_last_half(ascend_view x, int which);

/* The activations of experts that have no operator of their own. */
void ascend_gelu_and_mul(ascend_call *c, ascend_view gate, ascend_view up, bool by_tanh, ascend_view out);
void ascend_swiglustep_and_mul(ascend_call *c, ascend_view gate, ascend_view up, double limit, ascend_view out);

/* The k most probable experts. The weights have the element type of what they are computed from. */
void ascend_choose(ascend_call *c, ascend_view logits, int64_t k, bool renormalize, ascend_view weights,
                   ascend_view ids);

/* The best experts of the best groups, by scores of sigmoid or softmax. Weights are float32. */
typedef struct ascend_router {
  const DLTensor *logits, *bias; /* bias may be NULL */
  int64_t choices, groups, chosen_groups;
  bool sigmoid, renormalize;
  double factor; /* of the weights */
} ascend_router;
bool ascend_supports_router(const ascend_router *router, const char **reason);
void ascend_choose_in_groups(ascend_call *c, const ascend_router *router, ascend_view weights, ascend_view ids);

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
