/*
 * The arguments of the kernels: plain structs that C on the host fills and device code reads, each passed by value as
 * the one argument of its kernel. Pointers are the device's; sizes and strides count elements.
 */
#ifndef FLHOST_GPU_ARGUMENTS_H
#define FLHOST_GPU_ARGUMENTS_H

#include <stdint.h>

enum { GPU_ROWS_TENSORS = 4, GPU_ROWS_DIMS = 7 };

/* Where the rows (last dimension) of several tensors begin. They are counted in row-major order of the leading
 * dimensions. */
typedef struct gpu_rows {
  uint32_t count;
  int32_t dims; /* leading dimensions; 0: one row */
  uint32_t shape[GPU_ROWS_DIMS];
  int64_t stride[GPU_ROWS_TENSORS][GPU_ROWS_DIMS];
} gpu_rows;

/* Element types of activations. */
typedef enum gpu_dtype { GPU_FLOAT32, GPU_FLOAT16, GPU_BFLOAT16, GPU_N_DTYPES, GPU_OTHER = GPU_N_DTYPES } gpu_dtype;

/* activation.cu: threads of a block, at most */
enum { GPU_ACTIVATION_THREADS = 256 };

typedef struct gpu_activation_parameters {
  float alpha, beta, limit, threshold, eps;
  float positive_alpha, negative_alpha;       /* of xielu, made on the device */
  int32_t positive_rounded, negative_rounded; /* are products with them of x's type? */
} gpu_activation_parameters;

typedef struct gpu_activation_arguments {
  const void *x;
  void *out;
  gpu_rows rows;      /* of x, out */
  int64_t columns;    /* elements of a row of out */
  int32_t vectorised; /* rows begin at multiples of 16 bytes, as do the second halves of x's */
  gpu_activation_parameters parameters;
  float quantile;                /* of gelu_and_mul_sparse */
  const void *alpha_p, *alpha_n; /* of xielu: one element each */
  int32_t dtype_p, dtype_n;      /* gpu_dtype */
} gpu_activation_arguments;

/* normalisation.cu: threads of a block, at most */
enum { GPU_NORM_THREADS = 512 };

typedef struct gpu_norm_arguments {
  const void *x, *second; /* the residual or the gate; may be NULL */
  const void *weight;     /* may be NULL */
  void *out, *residual_out;
  gpu_rows rows;   /* of x, second, out, residual_out */
  int64_t columns; /* that are normalised together: a row's, or a group's */
  int64_t counted; /* of these, the first that the variance is taken over */
  uint32_t groups; /* in a row */
  float epsilon;
  int32_t vectorised;   /* every group begins at a multiple of 16 bytes, in the weight, too */
  int32_t weight_dtype; /* gpu_dtype, float32 or that of x */
  int32_t from_one;     /* the weight is counted from 1 */
  /* With a gate: */
  int32_t out_dtype;  /* float32 or that of x */
  int32_t sigmoid;    /* the gate's activation, else silu */
  int32_t gate_after; /* the norm, else before */
  int32_t normalise;
  int32_t round_norm; /* to x's type, before the weight comes in */
} gpu_norm_arguments;

/* linear.cu: threads of a block */
enum { GPU_LINEAR_THREADS = 256 };

typedef struct gpu_linear_arguments {
  void *out;
  const void *bias; /* NULL: zeros */
  gpu_rows rows;    /* of out */
  int64_t columns;
  int32_t vectorised;     /* rows of out, and the bias, begin at multiples of 16 bytes and have whole vectors */
  int32_t capped, scaled; /* process_logits: which of the steps there are */
  float cap, scale;
} gpu_linear_arguments;

/* tile.h: threads of a block, and summands of a step */
enum { GPU_TILE_THREADS = 256, GPU_TILE_DEPTH = 32 };

/* moe_experts.cu: columns of a tile; its rows, where few tokens go to each expert and where many do */
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

/* out[token] = the sum of weight * x[pair] over its pairs */
typedef struct gpu_experts_sum_arguments {
  gpu_experts_routing routing;
  gpu_experts_weights weights;
  const void *x;
  void *out;
  uint32_t tokens;
  int64_t columns, x_stride, out_stride;
} gpu_experts_sum_arguments;

/* convolution.cu: positions of a tile; its outputs, where a group has few and else */
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
