/*
 * What the linear layers have in common: x [..., k], weight [n, k], bias [n], out [..., n], and how their leading
 * dimensions become rows of matrices. Without a communicator a parallel layer is the local one.
 */
#ifndef FLHOST_CPU_LINEAR_H
#define FLHOST_CPU_LINEAR_H

#include "plugins/cpu/support/matrix.h"
#include "plugins/cpu/support/rows.h"

typedef struct cpu_linear {
  DLTensor *x, *weight, *bias, *out; /* bias may be NULL */
} cpu_linear;

/* x, weight, bias, … -> out; where a layer has skip_bias_add, that stands before out. */
static inline cpu_linear cpu_linear_read(const fl_call *call) {
  uint32_t out = call->count - 1;
  const fl_value *skip_bias_add = &call->values[out - 1];
  bool skipped = skip_bias_add->type == FL_BOOL && skip_bias_add->v.b;
  return (cpu_linear){cpu_tensor(call, 0), cpu_tensor(call, 1), skipped ? NULL : cpu_tensor(call, 2),
                      cpu_tensor(call, out)};
}

/* FL_ENOTSUP where element types are not one of ours, or not the same. */
static inline fl_status cpu_linear_check(fl_call *call, const cpu_linear *linear) {
  cpu_dtype dtype = cpu_dtype_of(linear->x);
  if (dtype != CPU_OTHER && cpu_dtype_of(linear->weight) == dtype && cpu_dtype_of(linear->out) == dtype &&
      (!linear->bias || cpu_dtype_of(linear->bias) == dtype))
    return FL_OK;
  return fl_fail(call, FL_ENOTSUP,
                 "element types: float32, float16 or bfloat16, and the same for all tensors, expected");
}

/* Matrices in a tensor, with the rows that all lie at one distance from the next: the longest run of leading dimensions
 * that is so in both tensors. The dimensions before it are walked through with cpu_rows. */
typedef struct cpu_linear_walk {
  cpu_rows matrices; /* first rows of x and of out */
  int64_t m;         /* rows of a matrix */
  int64_t strides[2];
} cpu_linear_walk;

static inline cpu_linear_walk cpu_linear_begin(DLTensor *x, DLTensor *out) {
  DLTensor *const tensors[] = {x, out};
  cpu_linear_walk walk = {.matrices = cpu_rows_begin(2, tensors), .m = 1};
  cpu_rows *rows = &walk.matrices;
  int d = rows->n_dims - 1;
  if (d >= 0) {
    walk.m = rows->dims[d].size;
    walk.strides[0] = rows->dims[d].stride[0];
    walk.strides[1] = rows->dims[d].stride[1];
  }
  for (d--; d >= 0; d--) {
    if (rows->dims[d].stride[0] != walk.strides[0] * walk.m || rows->dims[d].stride[1] != walk.strides[1] * walk.m)
      break;
    walk.m *= rows->dims[d].size;
  }
  rows->n_dims = d < 0 ? 0 : d + 1;
  rows->left = walk.m ? rows->left / walk.m : 0;
  return walk;
}

#endif
