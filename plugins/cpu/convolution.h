/* conv2d and conv3d as numbers: two dimensions of space are three of which the first is 1. */
#ifndef FLHOST_CPU_CONVOLUTION_H
#define FLHOST_CPU_CONVOLUTION_H

#include "plugins/cpu/cpu.h"

enum { CPU_SPACE = 3 };

/* One tensor [a, b, space…]; strides in elements. */
typedef struct cpu_volume {
  void *data;
  int64_t a, b, space[CPU_SPACE];
  int64_t a_stride, b_stride, strides[CPU_SPACE];
} cpu_volume;

typedef struct cpu_convolution {
  cpu_dtype dtype;
  cpu_volume x, weight, out; /* [batch, channels, …], [outputs, channels of a group, …], [batch, outputs, …] */
  const void *bias;          /* may be NULL */
  int64_t groups, group_outputs;
  int64_t stride[CPU_SPACE], padding[CPU_SPACE], dilation[CPU_SPACE];
} cpu_convolution;

/* FL_ENOTSUP where element types are not one of ours. */
fl_status cpu_convolution_read(fl_call *call, cpu_convolution *convolution);

/* Where in x the first tap of the kernel falls for output position `out`, in dimension `d` of space; maybe outside. */
static inline int64_t cpu_convolution_origin(const cpu_convolution *c, int d, int64_t out) {
  return out * c->stride[d] - c->padding[d];
}

#endif
