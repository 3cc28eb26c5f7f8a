/* Launches of the convolution and the scans over sequences. */
#include "plugins/gpu/kernels/arguments/state_space.h"
#include "plugins/gpu/launch.h"

#include <math.h>
#include <string.h>

GPU_MODULE(state_space);

typedef gpu_kernel kernels[GPU_N_DTYPES];
#define KERNELS(name) static kernels name = GPU_KERNELS(state_space, #name)
KERNELS(causal_conv1d);
KERNELS(causal_conv1d_short);
KERNELS(causal_conv1d_state);
KERNELS(selective_scan);
KERNELS(selective_scan_64);
KERNELS(selective_scan_256);
KERNELS(mamba_chunk_scan);
KERNELS(mamba_chunk_scan_128);
KERNELS(mamba_chunk_scan_256);

/* A dimension of one element may have any stride; the last is 1. */
static gpu_array array_of(const DLTensor *tensor) {
  gpu_array array = {0};
  if (!tensor)
    return array;
  array.data = fl_data(tensor);
  array.dtype = (int32_t)gpu_dtype_of(tensor);
  for (int d = 0; d < tensor->ndim - 1; d++)
    array.stride[d] = fl_stride(tensor, d);
  return array;
}

/* query_start_loc, cache_indices and has_initial_state are the call's values `first` to first + 2. */
static gpu_sequences sequences_of(const fl_call *call, uint32_t first, int64_t tokens, const DLTensor *state) {
  const DLTensor *starts = gpu_tensor(call, first), *indices = gpu_tensor(call, first + 1);
  const DLTensor *initial = gpu_tensor(call, first + 2);
  return (gpu_sequences){.n = starts ? starts->shape[0] - 1 : 1,
                         .tokens = tokens,
                         .slots = state ? state->shape[0] : -1,
                         .starts = starts ? fl_data(starts) : NULL,
                         .indices = indices ? fl_data(indices) : NULL,
                         .initial = initial ? fl_data(initial) : NULL,
                         .wide_starts = gpu_is_wide(starts),
                         .wide_indices = gpu_is_wide(indices)};
}

/* --------------------------------------------------------------------------------------------------- causal_conv1d */

enum { X, WEIGHT, BIAS, CONV_STATE, CONV_STARTS, CONV_INDICES, CONV_INITIAL, ACTIVATION, CONV_OUT };

static gpu_conv_arguments conv_arguments(const fl_call *call) {
  const DLTensor *x = gpu_tensor(call, X), *out = gpu_tensor(call, CONV_OUT), *weight = gpu_tensor(call, WEIGHT);
  const DLTensor *state = gpu_tensor(call, CONV_STATE);
  return (gpu_conv_arguments){.x = fl_data(x),
                              .out = fl_data(out),
                              .weight = array_of(weight),
                              .bias = array_of(gpu_tensor(call, BIAS)),
                              .state = array_of(state),
                              .channels = x->shape[0],
                              .x_channel = fl_stride(x, 0),
                              .out_channel = fl_stride(out, 0),
                              .width = (int32_t)weight->shape[1],
                              .silu = !strcmp(call->values[ACTIVATION].v.s, "silu"),
                              .vectorised = gpu_tensor_aligned(x) && gpu_tensor_aligned(out),
                              .sequences = sequences_of(call, CONV_STARTS, x->shape[1], state)};
}

/* Threads along channels, so that states, which are more than inputs, are read in one piece. */
static gpu_shape shape_by_sequences(const gpu_conv_arguments *arguments) {
  enum { CHANNELS = 32, SEQUENCES = GPU_CONV_THREADS / CHANNELS };
  return gpu_shape_of(arguments->channels, arguments->sequences.n, CHANNELS, SEQUENCES);
}

static gpu_shape shape_by_tokens(const gpu_conv_arguments *arguments, int64_t length) {
  int64_t vectors = divide_up(arguments->sequences.tokens, length);
  unsigned x = gpu_power_of_two(vectors, GPU_CONV_THREADS);
  return gpu_shape_of(vectors, arguments->channels, x, GPU_CONV_THREADS / x);
}

/* Decoding has as many sequences as tokens, and one kernel for all of it; else states are left after all results are
 * there, since several threads read them. */
static fl_status convolve(void *self, fl_call *call) {
  enum { SHORT = 8 };
  const gpu_op *op = self;
  const DLTensor *x = gpu_tensor(call, X);
  gpu_dtype dtype = gpu_dtype_of(x);
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  gpu_conv_arguments arguments = conv_arguments(call);
  const gpu_sequences *sequences = &arguments.sequences;
  if (!arguments.channels || !sequences->tokens)
    return FL_OK;
  gpu_shape by_sequences = shape_by_sequences(&arguments);
  if (sequences->n && sequences->tokens / sequences->n <= SHORT)
    return gpu_launch(op, call, &causal_conv1d_short[dtype], &by_sequences, &arguments);
  gpu_shape by_tokens = shape_by_tokens(&arguments, gpu_vector_length(x));
  fl_status status = gpu_launch(op, call, &causal_conv1d[dtype], &by_tokens, &arguments);
  if (!status && arguments.state.data && sequences->n)
    status = gpu_launch(op, call, &causal_conv1d_state[dtype], &by_sequences, &arguments);
  return status;
}

/* -------------------------------------------------------------------------------------------------- selective_scan */

enum { U, DELTA, A, B, C, D, Z, DELTA_BIAS, SOFTPLUS, SSM_STATE, SCAN_STARTS, SCAN_INDICES, SCAN_INITIAL, SCAN_OUT };

static bool supports_scan(void *self, const fl_call *call, const char **reason) {
  bool fits = gpu_tensor(call, B)->shape[1] <= GPU_SCAN_STATES;
  (void)self;
  return gpu_answer(fits, "states of more than 256 numbers", reason);
}

static gpu_scan_arguments scan_arguments(const fl_call *call) {
  const DLTensor *u = gpu_tensor(call, U), *delta = gpu_tensor(call, DELTA), *z = gpu_tensor(call, Z);
  const DLTensor *b = gpu_tensor(call, B), *c = gpu_tensor(call, C), *out = gpu_tensor(call, SCAN_OUT);
  const DLTensor *state = gpu_tensor(call, SSM_STATE);
  int64_t group_channels = u->shape[0] / b->shape[0], channels = GPU_SCAN_THREADS / GPU_SCAN_LANES;
  return (gpu_scan_arguments){.u = fl_data(u),
                              .delta = fl_data(delta),
                              .z = z ? fl_data(z) : NULL,
                              .out = fl_data(out),
                              .b = fl_data(b),
                              .c = fl_data(c),
                              .a = array_of(gpu_tensor(call, A)),
                              .d = array_of(gpu_tensor(call, D)),
                              .delta_bias = array_of(gpu_tensor(call, DELTA_BIAS)),
                              .state = array_of(state),
                              .u_channel = fl_stride(u, 0),
                              .delta_channel = fl_stride(delta, 0),
                              .z_channel = z ? fl_stride(z, 0) : 0,
                              .out_channel = fl_stride(out, 0),
                              .b_group = fl_stride(b, 0),
                              .b_state = fl_stride(b, 1),
                              .c_group = fl_stride(c, 0),
                              .c_state = fl_stride(c, 1),
                              .group_channels = (uint32_t)group_channels,
                              .group_blocks = (uint32_t)divide_up(group_channels, channels),
                              .states = (int32_t)b->shape[1],
                              .softplus = call->values[SOFTPLUS].v.b,
                              .sequences = sequences_of(call, SCAN_STARTS, u->shape[1], state)};
}

/* By how many states a thread has. */
static gpu_kernel *choose_scan(int64_t states, gpu_dtype dtype) {
  if (states <= GPU_SCAN_LANES)
    return &selective_scan[dtype];
  return states <= 4 * GPU_SCAN_LANES ? &selective_scan_64[dtype] : &selective_scan_256[dtype];
}

static fl_status scan(void *self, fl_call *call) {
  const gpu_op *op = self;
  const DLTensor *u = gpu_tensor(call, U);
  gpu_dtype dtype = gpu_dtype_of(u);
  const char *reason;
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "u");
  if (!supports_scan(self, call, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (!u->shape[0] || !u->shape[1])
    return FL_OK;
  gpu_scan_arguments arguments = scan_arguments(call);
  int64_t groups = u->shape[0] / arguments.group_channels, n = arguments.sequences.n;
  gpu_shape shape = {.grid = {(unsigned)groups * arguments.group_blocks, gpu_limit_blocks(n ? n : 1), 1},
                     .block = {GPU_SCAN_THREADS, 1, 1}};
  return gpu_launch(op, call, choose_scan(arguments.states, dtype), &shape, &arguments);
}

/* ------------------------------------------------------------------------------------------------ mamba_chunk_scan */

enum {
  SSD_X,
  SSD_DT,
  SSD_A,
  SSD_B,
  SSD_C,
  SSD_D,
  SSD_Z,
  SSD_DT_BIAS,
  SSD_SOFTPLUS,
  SSD_STATE,
  SSD_CHUNK_SIZE,
  SSD_STARTS,
  SSD_INDICES,
  SSD_INITIAL,
  SSD_DT_MIN,
  SSD_DT_MAX,
  SSD_OUT
};

static bool supports_ssd(void *self, const fl_call *call, const char **reason) {
  bool fits = gpu_tensor(call, SSD_B)->shape[2] <= GPU_SCAN_STATES;
  (void)self;
  return gpu_answer(fits, "states of more than 256 numbers", reason);
}

/* D of a head is that of all its rows. */
static gpu_array factors_of(const DLTensor *d) {
  gpu_array array = array_of(d);
  if (d && d->ndim == 1)
    array.stride[0] = 1;
  else if (d)
    array.stride[1] = 1;
  return array;
}

/* Four numbers of a state are 16 bytes, wherever in it. */
static bool has_aligned_rows(const DLTensor *state) {
  return state && gpu_dtype_of(state) == GPU_FLOAT32 && state->shape[3] % 4 == 0 && gpu_tensor_aligned(state);
}

static gpu_ssd_arguments ssd_arguments(const fl_call *call) {
  const DLTensor *x = gpu_tensor(call, SSD_X), *z = gpu_tensor(call, SSD_Z), *out = gpu_tensor(call, SSD_OUT);
  const DLTensor *b = gpu_tensor(call, SSD_B), *c = gpu_tensor(call, SSD_C), *state = gpu_tensor(call, SSD_STATE);
  const fl_value *most = &call->values[SSD_DT_MAX];
  return (gpu_ssd_arguments){.x = fl_data(x),
                             .z = z ? fl_data(z) : NULL,
                             .b = fl_data(b),
                             .c = fl_data(c),
                             .out = fl_data(out),
                             .dt = array_of(gpu_tensor(call, SSD_DT)),
                             .a = array_of(gpu_tensor(call, SSD_A)),
                             .d = factors_of(gpu_tensor(call, SSD_D)),
                             .dt_bias = array_of(gpu_tensor(call, SSD_DT_BIAS)),
                             .state = array_of(state),
                             .x_token = fl_stride(x, 0),
                             .x_head = fl_stride(x, 1),
                             .z_token = z ? fl_stride(z, 0) : 0,
                             .z_head = z ? fl_stride(z, 1) : 0,
                             .b_token = fl_stride(b, 0),
                             .b_group = fl_stride(b, 1),
                             .c_token = fl_stride(c, 0),
                             .c_group = fl_stride(c, 1),
                             .out_token = fl_stride(out, 0),
                             .out_head = fl_stride(out, 1),
                             .heads = (uint32_t)x->shape[1],
                             .group_heads = (uint32_t)(x->shape[1] / b->shape[1]),
                             .row_blocks = (uint32_t)divide_up(x->shape[2], GPU_SSD_ROWS),
                             .rows = (int32_t)x->shape[2],
                             .states = (int32_t)b->shape[2],
                             .softplus = call->values[SSD_SOFTPLUS].v.b,
                             .vectorised = has_aligned_rows(state),
                             .dt_min = (float)call->values[SSD_DT_MIN].v.f,
                             .dt_max = most->type == FL_FLOAT ? (float)most->v.f : INFINITY,
                             .sequences = sequences_of(call, SSD_STARTS, x->shape[0], state)};
}

static gpu_kernel *choose_ssd(int64_t states, gpu_dtype dtype) {
  if (states <= 4 * GPU_SCAN_LANES)
    return &mamba_chunk_scan[dtype];
  return states <= 8 * GPU_SCAN_LANES ? &mamba_chunk_scan_128[dtype] : &mamba_chunk_scan_256[dtype];
}

/* Token after token: chunk_size, which is about products of chunks, changes nothing. */
static fl_status scan_heads(void *self, fl_call *call) {
  const gpu_op *op = self;
  const DLTensor *x = gpu_tensor(call, SSD_X);
  gpu_dtype dtype = gpu_dtype_of(x);
  const char *reason;
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "x");
  if (!supports_ssd(self, call, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (!x->shape[0] || !x->shape[1] || !x->shape[2])
    return FL_OK;
  gpu_ssd_arguments arguments = ssd_arguments(call);
  int64_t n = arguments.sequences.n;
  gpu_shape shape = {.grid = {arguments.heads * arguments.row_blocks, gpu_limit_blocks(n ? n : 1), 1},
                     .block = {GPU_SCAN_THREADS, 1, 1}};
  return gpu_launch(op, call, choose_ssd(arguments.states, dtype), &shape, &arguments);
}

static const gpu_op ops[] = {
    {.name = "causal_conv1d", .run = convolve, .module = &gpu_module_state_space},
    {.name = "mamba_chunk_scan", .run = scan_heads, .supports = supports_ssd, .module = &gpu_module_state_space},
    {.name = "selective_scan", .run = scan, .supports = supports_scan, .module = &gpu_module_state_space},
};
OP_LIST(ops);
