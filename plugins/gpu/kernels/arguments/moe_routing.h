/* Arguments of moe_routing.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_MOE_ROUTING_H
#define FLHOST_GPU_ARGUMENTS_MOE_ROUTING_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Threads of a block, at most */
enum { GPU_ROUTE_THREADS = 128, GPU_MOE_SUM_THREADS = 256 };

typedef struct gpu_route_arguments {
  const void *logits;
  float *weights;
  int32_t *ids;
  gpu_rows rows;                              /* of logits, weights, ids */
  const void *bias;                           /* may be NULL */
  int32_t bias_dtype;                         /* gpu_dtype, float32 or that of the logits */
  uint32_t experts, topk, groups, topk_group; /* a warp has 2 * experts + groups + topk words of shared memory */
  int32_t sigmoid;                            /* else softmax */
  int32_t renormalize;
  int32_t guarded; /* a score that is not finite is 0, and a sum of 0 divides nothing */
  int32_t rounded; /* scores and weights, to the logits' type */
  float scaling;
} gpu_route_arguments;

typedef struct gpu_moe_sum_arguments {
  const void *x;
  void *out;
  gpu_rows rows; /* of out, and of x at the first expert */
  int64_t columns;
  int64_t experts, step; /* from one expert to the next */
  int32_t vectorised;    /* all rows begin at multiples of 16 bytes, and are a multiple of that many */
} gpu_moe_sum_arguments;

#endif
