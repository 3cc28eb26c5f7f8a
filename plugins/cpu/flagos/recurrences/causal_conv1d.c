/*
 * Causal convolution along whichever dimension suits: long sequences whose tokens lie together are vectorised along
 * the tokens, all else along the channels. Either way a sum stays in registers until it is activated. Blocks of
 * channels are independent of each other, and the order of additions is fixed.
 */
#include "plugins/cpu/flagos/recurrences/plane.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/scratch.h"

#include <string.h>

enum {
  USUAL_WIDTH = 4,
  LANES = CPU_PLANE_LANES,
  TOKENS = CPU_PLANE_ROWS,
  CACHE = 2 << 20 /* bytes of a processor's own */
};

/* Of a block of channels: weights [width, channel], bias [channel]; inputs, of which the first width - 1 are past, and
 * sums, both [token, channel], or [token] of one channel. */
typedef struct conv_block {
  const cpu_conv *conv;
  int64_t channel, channels;
  bool far; /* in memory, not in a cache */
  float *weights, *bias, *inputs, *sums;
} conv_block;

static size_t inputs_size(const cpu_conv *conv) {
  return (size_t)(conv->width + TOKENS) * LANES;
}

static size_t scratch_size(const cpu_conv *conv) {
  return inputs_size(conv) + (size_t)(conv->width + 1 + TOKENS) * LANES;
}

/* What decides on the instructions. */
typedef struct conv_form {
  bool usual; /* width */
  bool silu;
} conv_form;

/* Sum i is of inputs i, i + step, …, each times its weight, which is one for each lane, or for all. Of the usual width
 * the loop is unrolled: the sums stay in registers. */
CPU_TEMPLATE void add_up(conv_form form, int64_t width, const float *restrict weights, int64_t lane_weight,
                         const float *restrict bias, const float *restrict inputs, int64_t step, float *restrict sums) {
  const int64_t n = form.usual ? USUAL_WIDTH : width;
  float sum[LANES];
  for (int lane = 0; lane < LANES; lane++)
    sum[lane] = bias[lane * lane_weight];
  for (int64_t j = 0; j < n; j++)
    for (int lane = 0; lane < LANES; lane++)
      sum[lane] += weights[j * LANES + lane * lane_weight] * inputs[j * step + lane];
  for (int lane = 0; form.silu && lane < LANES; lane++)
    sum[lane] = vector_silu(sum[lane]);
  memcpy(sums, sum, sizeof sum);
}

/* ------------------------------------------------------------------------------------------------ along the tokens */

/* While a channel is computed, the next one's tokens come from memory: its page no prefetcher would find. */
CPU_TEMPLATE void prefetch_lanes(const char *x, const char *out, int64_t bytes) {
  enum { LINE = 64 };
  for (int64_t i = 0; i < bytes; i += LINE) {
    __builtin_prefetch(x + i);
    __builtin_prefetch(out + i, 1);
  }
}

CPU_TEMPLATE void convolve_channel(conv_form form, const conv_block *block, const cpu_sequence *sequence,
                                   int64_t lane) {
  const cpu_conv *conv = block->conv;
  int64_t past = conv->width - 1, channel = block->channel + lane;
  cpu_plane state = cpu_plane_at(&conv->state, 1, 2, sequence->slot, channel, 0);
  const int64_t bytes = cpu_dtype_size(conv->x.dtype);
  const bool far = block->far;
  float *inputs = block->inputs;
  memset(inputs, 0, (size_t)past * sizeof *inputs);
  if (sequence->continues)
    cpu_plane_load(&state, 1, past, inputs, past);
  for (int64_t first = 0; first < sequence->length; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(sequence->length - first), token = sequence->begin + first;
    cpu_plane x = cpu_plane_at(&conv->x, 0, 1, channel, token, 0),
              out = cpu_plane_at(&conv->out, 0, 1, channel, token, 0);
    cpu_plane_load(&x, 1, n, inputs + past, CPU_BLOCK);
    const char *next_x = (const char *)x.data + conv->x.stride[0] * bytes;
    const char *next_out = (const char *)out.data + conv->out.stride[0] * bytes;
    for (int64_t i = 0; i < n; i += LANES) {
      if (far)
        prefetch_lanes(next_x + i * bytes, next_out + i * bytes, LANES * bytes);
      add_up(form, conv->width, block->weights + lane, 0, block->bias + lane, inputs + i, 1, block->sums + i);
    }
    cpu_plane_store(&out, 1, n, block->sums, CPU_BLOCK);
    memmove(inputs, inputs + n, (size_t)past * sizeof *inputs);
  }
  if (state.data)
    cpu_plane_store(&state, 1, past, inputs, past);
}

CPU_TEMPLATE void along_tokens(conv_form form, const conv_block *block, const cpu_sequence *sequence) {
  for (int64_t lane = 0; lane < block->channels; lane++)
    convolve_channel(form, block, sequence, lane);
}

/* ---------------------------------------------------------------------------------------------- along the channels */

CPU_TEMPLATE void along_channels(conv_form form, const conv_block *block, const cpu_sequence *sequence) {
  const cpu_conv *conv = block->conv;
  int64_t past = conv->width - 1;
  cpu_plane state = cpu_plane_at(&conv->state, 2, 1, sequence->slot, block->channel, 0);
  float *inputs = block->inputs;
  memset(inputs, 0, (size_t)(past * LANES) * sizeof *inputs);
  if (sequence->continues)
    cpu_plane_load(&state, past, block->channels, inputs, LANES);
  for (int64_t first = 0; first < sequence->length; first += TOKENS) {
    int64_t n = sequence->length - first < TOKENS ? sequence->length - first : TOKENS, token = sequence->begin + first;
    cpu_plane x = cpu_plane_at(&conv->x, 1, 0, block->channel, token, 0);
    cpu_plane out = cpu_plane_at(&conv->out, 1, 0, block->channel, token, 0);
    cpu_plane_load(&x, n, block->channels, inputs + past * LANES, LANES);
    for (int64_t t = 0; t < n; t++)
      add_up(form, conv->width, block->weights, 1, block->bias, inputs + t * LANES, LANES, block->sums + t * LANES);
    cpu_plane_store(&out, n, block->channels, block->sums, LANES);
    memmove(inputs, inputs + n * LANES, (size_t)(past * LANES) * sizeof *inputs);
  }
  if (state.data)
    cpu_plane_store(&state, past, block->channels, inputs, LANES);
}

/* ------------------------------------------------------------------------------------------------------------- all */

typedef void (*sequence_fn)(const conv_block *block, const cpu_sequence *sequence);

#define CONVOLVE(name, ...)                                                                                            \
  static void tokens_##name(const conv_block *block, const cpu_sequence *sequence) {                                   \
    along_tokens((conv_form){__VA_ARGS__}, block, sequence);                                                           \
  }                                                                                                                    \
  static void channels_##name(const conv_block *block, const cpu_sequence *sequence) {                                 \
    along_channels((conv_form){__VA_ARGS__}, block, sequence);                                                         \
  }
CONVOLVE(plain, false, false)
CONVOLVE(silu, false, true)
CONVOLVE(usual, true, false)
CONVOLVE(usual_silu, true, true)

typedef struct conv_loop {
  const cpu_conv *conv;
  sequence_fn sequence;
} conv_loop;

static void write_zeros(const conv_block *block, int64_t begin, int64_t end) {
  cpu_plane out = cpu_plane_at(&block->conv->out, 1, 0, block->channel, begin, 0);
  cpu_plane_zero(&out, end - begin, block->channels);
}

static void run_block(const conv_loop *loop, const conv_block *block) {
  const cpu_conv *conv = loop->conv;
  cpu_plane weights = cpu_plane_at(&conv->weight, 1, 0, block->channel, 0, 0);
  cpu_plane bias = cpu_plane_at(&conv->bias, 1, 0, block->channel, 0, 0);
  cpu_plane_load(&weights, conv->width, block->channels, block->weights, LANES);
  cpu_plane_load(&bias, 1, block->channels, block->bias, LANES);
  for (int64_t i = 0; i < conv->sequences.n; i++) {
    cpu_sequence sequence = cpu_sequence_at(&conv->sequences, i);
    if (sequence.slot < 0)
      write_zeros(block, sequence.begin, sequence.begin + sequence.length);
    else if (sequence.length)
      loop->sequence(block, &sequence);
  }
  write_zeros(block, cpu_sequences_end(&conv->sequences), conv->sequences.tokens);
}

static fl_status run_blocks(void *user, int64_t first, int64_t end) {
  const conv_loop *loop = user;
  const cpu_conv *conv = loop->conv;
  int64_t bytes = 2 * conv->channels * conv->sequences.tokens * cpu_dtype_size(conv->x.dtype);
  conv_block block = {.conv = conv, .far = bytes > CACHE, .inputs = cpu_scratch_take(scratch_size(conv))};
  if (!block.inputs)
    return FL_ENOMEM;
  block.sums = block.inputs + inputs_size(conv);
  block.bias = block.sums + TOKENS * LANES;
  block.weights = block.bias + LANES;
  for (int64_t i = first; i < end; i++) {
    block.channel = i * LANES;
    block.channels = conv->channels - block.channel < LANES ? conv->channels - block.channel : LANES;
    run_block(loop, &block);
  }
  cpu_scratch_give(block.inputs);
  return FL_OK;
}

/* Along the tokens a short sequence would leave most of a vector empty. */
static bool suits_tokens(const cpu_conv *conv) {
  bool together = conv->x.stride[1] == 1 && conv->out.stride[1] == 1;
  return together && conv->sequences.tokens >= conv->sequences.n * LANES;
}

fl_status cpu_flagos_conv(fl_call *call, const cpu_conv *conv) {
  static const sequence_fn functions[2][2][2] = {
      {{channels_plain, channels_silu}, {channels_usual, channels_usual_silu}},
      {{tokens_plain, tokens_silu}, {tokens_usual, tokens_usual_silu}}};
  conv_loop loop = {conv, functions[suits_tokens(conv)][conv->width == USUAL_WIDTH][conv->silu]};
  int64_t bytes = 2 * conv->sequences.tokens * LANES * cpu_dtype_size(conv->x.dtype);
  fl_status status =
      cpu_parallel_for((conv->channels + LANES - 1) / LANES, cpu_grain(bytes * CPU_WORK_EXP), run_blocks, &loop);
  return status ? fl_fail(call, status, "no memory for a window of %lld inputs", (long long)conv->width) : FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "causal_conv1d", CPU_FLAGOS, .fn = cpu_causal_conv1d, .self = (cpu_conv_fn[]){cpu_flagos_conv}},
};
OP_LIST(ops);
