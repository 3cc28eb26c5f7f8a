/* Arguments of moe_experts.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_MOE_EXPERTS_H
#define FLHOST_GPU_ARGUMENTS_MOE_EXPERTS_H

#include "plugins/gpu/kernels/arguments/common.h"

/* Columns of a tile; its rows, where few tokens go to each expert and where many do */
enum { GPU_EXPERTS_COLUMNS = 64, GPU_EXPERTS_FEW = 16, GPU_EXPERTS_MANY = 64 };

/* Which expert each token goes to, as each of its topk. A pair is a token and one of its experts: token * topk + j. */
typedef struct gpu_experts_routing {
  const void *ids, *map; /* map: NULL for none */
  int64_t ids_stride, map_size;
  uint32_t pairs, topk, experts;
  int32_t wide_ids, wide_map; /* int64, else int32 */
} gpu_experts_routing;

/* The pairs by expert, in tiles of `rows`, of which each belongs to one expert. */
typedef struct gpu_experts_tiles {
  int32_t *pair;   /* [n * rows]: -1 for none */
  int32_t *expert; /* [n]: -1 for pairs whose expert is not here, -2 for none */
  uint32_t n, rows;
} gpu_experts_tiles;

typedef struct gpu_experts_sort_arguments {
  gpu_experts_routing routing;
  gpu_experts_tiles tiles;
} gpu_experts_sort_arguments;

/* The router's weights. */
typedef struct gpu_experts_weights {
  const void *data; /* NULL: none are wanted */
  int64_t stride;   /* from token to token */
  int32_t dtype;    /* gpu_dtype, float32 or that of x */
} gpu_experts_weights;

/* out[pair] = x[pair / share] weight[expert]^T + bias[expert] */
typedef struct gpu_experts_product_arguments {
  gpu_experts_tiles tiles;
  const void *x, *weight, *bias; /* bias: NULL for none */
  void *out;
  int64_t n, k, x_stride, out_stride, weight_expert, weight_stride, bias_expert;
  uint32_t share, topk;
  int32_t bias_dtype;        /* gpu_dtype, float32 or that of x */
  int32_t vectorised;        /* rows of x and weight begin at multiples of 16 bytes and have whole vectors */
  gpu_experts_weights scale; /* of x, before the product */
} gpu_experts_product_arguments;

/* out[token] = the sum of weight * x[place[pair]] over its pairs */
typedef struct gpu_experts_sum_arguments {
  gpu_experts_routing routing;
  gpu_experts_weights weights;
  const int32_t *place; /* NULL: each pair's own number */
  const void *x;
  void *out;
  uint32_t tokens;
  int64_t columns, x_stride, out_stride;
} gpu_experts_sum_arguments;

/* For products by a library, a batch of them, which has a matrix of each kind for every `rows` of the sorted pairs: */

/* Where those of one product lie: `weight` by expert, the others one behind the other. Steps are bytes. */
typedef struct gpu_experts_matrices {
  const void *weight, *x;
  void *out;
  int64_t weight_step, x_step, out_step;
  const void **weights, **xs; /* [n], to be filled */
  void **outs;
} gpu_experts_matrices;

typedef struct gpu_experts_batch_arguments {
  const int32_t *pair, *expert; /* [n * rows], of which `pairs` and above are none; [n], -1 for none */
  int32_t *place;               /* [pairs]: the row of each that has one */
  gpu_experts_matrices up, down;
  uint32_t n, rows, pairs;
} gpu_experts_batch_arguments;

/* out[row] = x[pair / topk], or zeros where there is no pair */
typedef struct gpu_experts_gather_arguments {
  const int32_t *pair; /* [rows] */
  const void *x;
  void *out;
  int64_t columns, x_stride;
  uint32_t rows, pairs, topk;
  int32_t vectorised; /* rows of both begin at multiples of 16 bytes and have whole vectors */
  gpu_experts_weights scale;
} gpu_experts_gather_arguments;

/* out[row] = bias[expert], or zeros where there is no expert */
typedef struct gpu_experts_fill_arguments {
  const int32_t *expert; /* [rows / of_expert] */
  const void *bias;
  void *out;
  int64_t columns, bias_stride;
  uint32_t rows, of_expert;
  int32_t vectorised; /* rows of both begin at multiples of 16 bytes and have whole vectors */
} gpu_experts_fill_arguments;

#endif
