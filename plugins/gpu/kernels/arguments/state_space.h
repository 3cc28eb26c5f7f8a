/* Arguments of state_space.cu. */
#ifndef FLHOST_GPU_ARGUMENTS_STATE_SPACE_H
#define FLHOST_GPU_ARGUMENTS_STATE_SPACE_H

#include "plugins/gpu/kernels/arguments/common.h"

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

#endif
