/* Arguments of convolution.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_CONVOLUTION_H
#define FLHOST_GPU_ARGUMENTS_CONVOLUTION_H

#include <stdint.h>

/* Positions of a tile; its outputs, where a group has few and else */
enum { GPU_CONVOLUTION_POSITIONS = 64, GPU_CONVOLUTION_FEW = 16, GPU_CONVOLUTION_MANY = 64, GPU_SPACE = 3 };

/* A tensor [a, b, space…]; two dimensions of space are three of which the first is 1. */
typedef struct gpu_volume {
  void *data;
  int64_t a_stride, b_stride, strides[GPU_SPACE];
  int32_t space[GPU_SPACE];
} gpu_volume;

typedef struct gpu_convolution_arguments {
  gpu_volume x, weight, out;
  const void *bias; /* NULL for none */
  int32_t stride[GPU_SPACE], padding[GPU_SPACE], dilation[GPU_SPACE];
  uint32_t positions; /* of all of out's batch */
  int32_t group_channels, group_outputs;
  int64_t depth;                  /* summands: channels of a group times taps */
  uint32_t output_blocks, blocks; /* of a group, and of all groups */
} gpu_convolution_arguments;

#endif
