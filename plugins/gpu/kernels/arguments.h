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

/* rotary.cu: threads of a block, and the most tables that one tensor is rotated by */
enum { GPU_ROTARY_THREADS = 256, GPU_ROTARY_TABLES = 5 };

/* Which row of a table a position means: its own, that of its place in a chunk, or the last of a chunk. */
typedef enum gpu_rotary_row { GPU_ROTARY_AT_POSITION, GPU_ROTARY_IN_CHUNK, GPU_ROTARY_AT_CHUNK_END } gpu_rotary_row;

typedef struct gpu_rotary_table {
  const void *cos, *sin;
  int64_t cos_stride, sin_stride; /* from one row to the next */
  int32_t row;                    /* gpu_rotary_row */
} gpu_rotary_table;

/* query or key: rotated by each of its tables, the results side by side. */
typedef struct gpu_rotary_tensor {
  const void *in;
  void *out;
  int64_t in_head, out_head; /* from one head to the next */
  int64_t out_table;         /* from the result of one table to that of the next */
  uint32_t heads;
  uint32_t heads_at_once; /* that a block has of a token */
  uint32_t blocks;        /* of the grid, that take this tensor */
  uint32_t n_tables;
  gpu_rotary_table tables[GPU_ROTARY_TABLES];
} gpu_rotary_tensor;

typedef struct gpu_rotary_arguments {
  gpu_rotary_tensor tensors[2]; /* the second has no blocks if there is none */
  gpu_rows tokens;       /* of in and out of the first, in and out of the second: where their first heads begin */
  const void *positions; /* NULL: a token's is its number modulo n_positions */
  int64_t n_positions;   /* that the tables have */
  int64_t chunk;
  int64_t pairs, offset, size; /* of a head: rotated from element `offset` on, of `size` */
  uint32_t lanes;              /* threads that share a head, a power of two */
  int32_t wide_positions;      /* int64, else int32 */
  int32_t vectorised;          /* pairs begin at multiples of 16 bytes, and are a multiple of that many */
  int32_t interleaved, inverse;
  int32_t rounded;     /* after each product */
  int32_t table_dtype; /* gpu_dtype, float32 or that of the tensors */
} gpu_rotary_arguments;

/* quantisation.cu: threads of a block, at most, and the most parts that a tensor's scale is found from */
enum { GPU_QUANT_THREADS = 512, GPU_QUANT_PARTS = 1024 };

typedef struct gpu_quant_arguments {
  const void *x;
  void *q;
  float *scale_out;
  const float *bound; /* of the largest magnitude; may be NULL */
  gpu_rows rows;      /* of x, q; of scale_out where rows have scales of their own */
  int64_t columns;    /* elements of a row */
  uint32_t q_rows;    /* with those behind x's, which become 0 */
  int64_t q_stride;   /* from one of these to the next */
  int32_t fnuz;       /* q is of e4m3fnuz, else of e4m3fn */
  float largest, least_scale;
  int32_t power_of_two;
  int32_t vectorised;                /* what is read begins at multiples of 16 bytes, and is a multiple of that many */
  uint32_t lanes, groups_at_once;    /* threads that share a group, or a row; groups of a row that a block has */
  int64_t group_rows, group_columns; /* that share a scale */
  /* Given scales: that of row m and column n is scale[m / group_rows * row_step + n / group_columns * column_step]. */
  const float *scale;
  int64_t row_step, column_step;
  int32_t shared_by_vector;         /* the elements of 16 bytes have one scale */
  uint64_t n_scales, scale_columns; /* that are copied to scale_out */
  int64_t scale_stride, scale_out_stride;
  float *parts; /* of the tensor's largest magnitude */
  uint32_t n_parts;
} gpu_quant_arguments;

/* moe_routing.cu: threads of a block, at most */
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

/* moe_align.cu: threads of a block, at most */
enum { GPU_ALIGN_THREADS = 512 };

typedef struct gpu_align_arguments {
  const void *ids;
  int32_t wide_ids;         /* int64, else int32 */
  int64_t row_stride, topk; /* of ids */
  uint64_t places;          /* in ids */
  uint32_t chunk;           /* places that a block takes, a multiple of its threads */
  int32_t experts, block;
  const void *map; /* from the ids' experts to these, -1 for none; NULL: they are the same */
  int64_t map_size;
  int32_t wide_map;
  int32_t *sorted, *expert_ids, *num_tokens_post_pad;
  int64_t sorted_size, expert_ids_size;
  int32_t *counts; /* [blocks][experts], where there are several blocks */
} gpu_align_arguments;

/* embedding.cu: threads of a block */
enum { GPU_EMBEDDING_THREADS = 256 };

typedef struct gpu_embedding_arguments {
  const void *ids, *table;
  void *out;
  gpu_rows tokens; /* of ids, out */
  int64_t columns, table_rows, table_stride;
  int32_t wide_ids;   /* int64, else int32 */
  int32_t vectorised; /* all rows begin at multiples of 16 bytes, and are a multiple of that many */
  uint32_t lanes;     /* threads that share a row, a power of two */
  /* Of a shard: the ids that have rows, and the row of added_start. */
  int32_t sharded;
  int64_t org_start, org_end, added_start, added_end, added_row;
} gpu_embedding_arguments;
/* Bytes of shared memory that a block may have on every device, and on every one with tensor cores (sm_86 has least).
 */
enum { GPU_LEAST_SHARED = 64 << 10, GPU_LEAST_SHARED_WITH_TENSOR_CORES = 99 << 10 };

/* merge_attn_states.cu, mla_decode.cu, mm_encoder_attn.cu: threads of blocks, and what they make */
enum {
  GPU_MERGE_THREADS = 128,
  GPU_DECODE_THREADS = 256,
  GPU_DECODE_JOIN_THREADS = 128,
  GPU_DECODE_HEADS = 8,
  GPU_DECODE_COLUMNS = 2,     /* of a thread */
  GPU_DECODE_ROW_BYTES = 64,  /* a tile has so many rows of one byte: 16 of float32 */
  GPU_DECODE_PART_ROWS = 128, /* of a sequence, at least, are worth a block */
  /* By tensor cores: rows of a tile, slices of a row's columns, and what is behind a line so that eight of them lie in
   * different banks: 16 bytes of 16-bit numbers, and 8 floats. */
  GPU_DECODE_FRAGMENT_ROWS = 32,
  GPU_DECODE_FRAGMENT_SLICES = 4,
  GPU_FRAGMENT_PADDING = 8,
  GPU_ENCODER_THREADS = 256,
  GPU_ENCODER_SIZE = 128, /* of a head, at most */
  GPU_ENCODER_KEYS = 32,  /* of a tile */
  GPU_ENCODER_QUERY_BYTES = 128,
  GPU_ENCODER_FEW_QUERY_BYTES = 64, /* a block has so many queries of one byte */
  /* By tensor cores, which multiply 16 queries of 16 bits for each warp: the same numbers of queries. */
  GPU_ENCODER_FRAGMENT_THREADS = GPU_ENCODER_QUERY_BYTES,
  GPU_ENCODER_FRAGMENT_FEW_THREADS = GPU_ENCODER_FEW_QUERY_BYTES,
  GPU_ENCODER_FRAGMENT_KEYS = 64 /* of a tile */
};

typedef struct gpu_merge_arguments {
  const void *prefix, *suffix;          /* [token, head, size] */
  const float *prefix_lse, *suffix_lse; /* [head, token] */
  void *out;
  float *lse;
  gpu_rows rows; /* of prefix, suffix, out */
  uint32_t heads;
  int64_t size, prefix_lse_head, suffix_lse_head, lse_head; /* strides */
  int32_t vectorised;
} gpu_merge_arguments;

/* A sequence's rows are made in parts. The only part writes out and lse; of several each leaves the sum of its rows,
 * not divided, and the greatest score and the sum of weights, which a second kernel joins. */
typedef struct gpu_decode_arguments {
  const void *query, *cache;   /* [sequence, head, size], [block, row, size] */
  const void *table, *lengths; /* [sequence, n], [sequence] */
  void *out;                   /* [sequence, head, rank] */
  float *lse;                  /* [sequence, head] */
  float *parts_out;            /* [sequence, head, part, rank] */
  float *parts_weight;         /* [sequence, head, part, 2] */
  int64_t query_sequence, query_head, cache_block, cache_row, table_sequence, out_sequence, out_head, lse_sequence;
  int64_t blocks, rows; /* of the cache; of a sequence at most */
  uint32_t block_rows, heads, head_groups, parts;
  int32_t size, rank, wide_table, wide_lengths, vectorised, query_vectorised;
  float scale;
} gpu_decode_arguments;

typedef struct gpu_heads {
  void *data;
  int64_t batch, token, head; /* strides */
} gpu_heads;

typedef struct gpu_encoder_arguments {
  gpu_heads query, key, value, out;
  const void *ends; /* of segments, the start of the first before; NULL: one segment */
  int64_t queries, keys, n_ends;
  uint32_t tiles, heads, heads_per_key; /* tiles of queries */
  int32_t size, wide_ends, vectorised;
  float scale;
} gpu_encoder_arguments;

/* state_space.cu */
enum {
  GPU_CONV_THREADS = 128,
  GPU_CONV_WIDTH = 4, /* up to this width, inputs stay in registers */
  GPU_SCAN_THREADS = 256,
  GPU_SCAN_LANES = 16,   /* threads of a channel: each has some of its states */
  GPU_SCAN_STATES = 256, /* of a channel, at most */
  GPU_SSD_ROWS = 32      /* of a head, which a block makes */
};

/* Of an element type that only the call knows; NULL where there is no tensor. The last dimension is contiguous. */
typedef struct gpu_array {
  void *data;
  int32_t dtype;
  int64_t stride[3];
} gpu_array;

/* The sequences of a batch; the pointers may be NULL. */
typedef struct gpu_sequences {
  int64_t n, tokens, slots;
  const void *starts, *indices;
  const uint8_t *initial;
  int32_t wide_starts, wide_indices;
} gpu_sequences;

typedef struct gpu_conv_arguments {
  const void *x;    /* [channel, token] */
  void *out;        /* the same */
  gpu_array weight; /* [channel, width] */
  gpu_array bias;   /* [channel] */
  gpu_array state;  /* [slot, channel, width - 1] */
  int64_t channels, x_channel, out_channel;
  int32_t width, silu, vectorised;
  gpu_sequences sequences;
} gpu_conv_arguments;

typedef struct gpu_scan_arguments {
  const void *u, *delta, *z;  /* [channel, token] */
  void *out;                  /* the same */
  const void *b, *c;          /* [group, state, token] */
  gpu_array a, d, delta_bias; /* [channel, state], [channel], [channel] */
  gpu_array state;            /* [slot, channel, state] */
  int64_t u_channel, delta_channel, z_channel, out_channel, b_group, b_state, c_group, c_state;
  uint32_t group_channels, group_blocks; /* of each group */
  int32_t states, softplus;
  gpu_sequences sequences;
} gpu_scan_arguments;

typedef struct gpu_ssd_arguments {
  const void *x, *z, *b, *c;   /* [token, head, row], the same, [token, group, state] */
  void *out;                   /* as x */
  gpu_array dt, a, d, dt_bias; /* [token, head], [head], [head, row], [head] */
  gpu_array state;             /* [slot, head, row, state] */
  int64_t x_token, x_head, z_token, z_head, b_token, b_group, c_token, c_group, out_token, out_head;
  uint32_t heads, group_heads, row_blocks; /* heads of a group, blocks of a head */
  int32_t rows, states, softplus, vectorised;
  float dt_min, dt_max;
  gpu_sequences sequences;
} gpu_ssd_arguments;

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
