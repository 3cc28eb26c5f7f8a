/*
 * Views: what an operator is told of a tensor, without its memory being copied. Views of arguments, of parts of them,
 * with dimensions in another order, or of scratch memory.
 */
#ifndef FLHOST_ASCEND_VIEW_H
#define FLHOST_ASCEND_VIEW_H

#include "plugins/ascend/acl.h"
#include <flhost/plugin.h>

typedef struct ascend_view {
  void *data; /* of the first element */
  aclDataType type;
  int32_t size; /* bytes of an element */
  int n_dims;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS]; /* in elements */
} ascend_view;

/* ACL_DT_UNDEFINED for an element type that ACL has not. */
aclDataType ascend_type_of(DLDataType type);

/* Strides of dimensions of size 1, which may be anything in DLPack, are those of a compact tensor. */
ascend_view ascend_view_of(const DLTensor *tensor);

/* A compact view of other memory. */
ascend_view ascend_view_make(void *data, aclDataType type, int n_dims, const int64_t *shape);

int64_t ascend_view_count(const ascend_view *view);
bool ascend_view_is_compact(const ascend_view *view);
int32_t ascend_type_size(aclDataType type);

/* As [rows, last]: all leading dimensions in one. False where their strides do not allow that. */
bool ascend_view_rows(const ascend_view *view, ascend_view *rows);

/* Of a compact view: the same elements in another shape. */
ascend_view ascend_view_reshaped(const ascend_view *view, int n_dims, const int64_t *shape);

/* With a dimension in two, the inner one of `size` elements. */
ascend_view ascend_view_split(const ascend_view *view, int dim, int64_t size);

ascend_view ascend_view_swapped(const ascend_view *view, int a, int b);
ascend_view ascend_view_part(const ascend_view *view, int dim, int64_t start, int64_t size);

#endif
