/*
 * Causal convolution along whichever dimension lies together: tokens (the op's tensors) or channels (in the mixers).
 * Either way a block of sums is built from width blocks of inputs, and the past is carried in scratch.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/state_space.h"

#include <stdlib.h>
#include <string.h>

static void *address(const cpu_array *array, int64_t i, int64_t j, int64_t k) {
  return (char *)array->data + cpu_at(array, i, j, k, 0) * cpu_dtype_size(array->dtype);
}

static float get(const cpu_array *array, int64_t i, int64_t j, int64_t k) {
  float value;
  cpu_block_types[array->dtype].load(&value, address(array, i, j, k), 0, 1);
  return value;
}

static void put(const cpu_array *array, int64_t i, int64_t j, int64_t k, float value) {
  cpu_block_types[array->dtype].store(address(array, i, j, k), 0, &value, 1);
}

static void activate(const cpu_conv *conv, float *sums, int64_t n) {
  for (int64_t i = 0; conv->silu && i < n; i++)
    sums[i] = vector_silu(sums[i]);
}

/* ------------------------------------------------------------------------------------------------ along the tokens */

/* inputs: width - 1 past ones, then a block. */
static void convolve_tokens(const cpu_conv *conv, const cpu_sequence *sequence, int64_t channel, float *inputs) {
  int64_t past = conv->width - 1;
  float sums[CPU_BLOCK], bias = conv->bias.data ? get(&conv->bias, channel, 0, 0) : 0;
  for (int64_t k = 0; k < past; k++)
    inputs[k] = sequence->continues ? get(&conv->state, sequence->slot, channel, k) : 0;
  for (int64_t first = 0; first < sequence->length; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(sequence->length - first), token = sequence->begin + first;
    cpu_block_types[conv->x.dtype].load(inputs + past, address(&conv->x, channel, token, 0), 0, n);
    for (int64_t i = 0; i < n; i++)
      sums[i] = bias;
    for (int64_t j = 0; j < conv->width; j++) {
      float weight = get(&conv->weight, channel, j, 0);
      for (int64_t i = 0; i < n; i++)
        sums[i] += weight * inputs[i + j];
    }
    activate(conv, sums, n);
    cpu_block_types[conv->out.dtype].store(address(&conv->out, channel, token, 0), 0, sums, n);
    memmove(inputs, inputs + n, (size_t)past * sizeof *inputs);
  }
  for (int64_t k = 0; conv->state.data && k < past; k++)
    put(&conv->state, sequence->slot, channel, k, inputs[k]);
}

/* ---------------------------------------------------------------------------------------------- along the channels */

/* A block of channels: weights [width] and the last inputs [width], a ring; each [CPU_BLOCK]. */
typedef struct channel_scratch {
  float (*weights)[CPU_BLOCK], (*ring)[CPU_BLOCK];
} channel_scratch;

static void begin_ring(const cpu_conv *conv, const cpu_sequence *sequence, int64_t channel, int64_t n,
                       const channel_scratch *scratch) {
  for (int64_t k = 0; k < conv->width - 1; k++)
    for (int64_t i = 0; i < n; i++)
      scratch->ring[k][i] = sequence->continues ? get(&conv->state, sequence->slot, channel + i, k) : 0;
}

/* Input t lies in ring[(t + width - 1) % width]. */
static void end_ring(const cpu_conv *conv, const cpu_sequence *sequence, int64_t channel, int64_t n,
                     const channel_scratch *scratch) {
  for (int64_t k = 0; conv->state.data && k < conv->width - 1; k++)
    for (int64_t i = 0; i < n; i++)
      put(&conv->state, sequence->slot, channel + i, k, scratch->ring[(sequence->length + k) % conv->width][i]);
}

static void convolve_channels(const cpu_conv *conv, const cpu_sequence *sequence, int64_t channel, int64_t n,
                              const channel_scratch *scratch) {
  int64_t width = conv->width;
  float sums[CPU_BLOCK];
  begin_ring(conv, sequence, channel, n, scratch);
  for (int64_t t = 0; t < sequence->length; t++) {
    int64_t token = sequence->begin + t;
    cpu_block_types[conv->x.dtype].load(scratch->ring[(t + width - 1) % width], address(&conv->x, channel, token, 0), 0,
                                        n);
    for (int64_t i = 0; i < n; i++)
      sums[i] = 0;
    if (conv->bias.data)
      cpu_block_types[conv->bias.dtype].load(sums, address(&conv->bias, channel, 0, 0), 0, n);
    for (int64_t j = 0; j < width; j++) {
      const float *restrict weights = scratch->weights[j], *restrict inputs = scratch->ring[(t + j) % width];
      for (int64_t i = 0; i < n; i++)
        sums[i] += weights[i] * inputs[i];
    }
    activate(conv, sums, n);
    cpu_block_types[conv->out.dtype].store(address(&conv->out, channel, token, 0), 0, sums, n);
  }
  end_ring(conv, sequence, channel, n, scratch);
}

/* ------------------------------------------------------------------------------------------------------------- all */

static void write_zeros(const cpu_conv *conv, int64_t begin, int64_t end) {
  for (int64_t channel = 0; channel < conv->channels; channel++)
    for (int64_t t = begin; t < end; t++)
      put(&conv->out, channel, t, 0, 0);
}

static void run_tokens(const cpu_conv *conv, const cpu_sequence *sequence, float *scratch) {
  for (int64_t channel = 0; channel < conv->channels; channel++)
    convolve_tokens(conv, sequence, channel, scratch);
}

static void run_channels(const cpu_conv *conv, const cpu_sequence *sequence, float *scratch) {
  channel_scratch of_block = {.weights = (float(*)[CPU_BLOCK])scratch};
  of_block.ring = of_block.weights + conv->width;
  for (int64_t channel = 0; channel < conv->channels; channel += CPU_BLOCK) {
    int64_t n = cpu_block_size(conv->channels - channel);
    for (int64_t j = 0; j < conv->width; j++)
      for (int64_t i = 0; i < n; i++)
        of_block.weights[j][i] = get(&conv->weight, channel + i, j, 0);
    convolve_channels(conv, sequence, channel, n, &of_block);
  }
}

fl_status cpu_flagos_conv(fl_call *call, const cpu_conv *conv) {
  bool along_tokens = conv->x.stride[1] == 1 && conv->out.stride[1] == 1;
  size_t floats = along_tokens ? (size_t)conv->width + CPU_BLOCK : 2 * (size_t)conv->width * CPU_BLOCK;
  float *scratch = malloc(floats * sizeof *scratch + 1);
  if (!scratch)
    return fl_fail(call, FL_ENOMEM, "no memory for a window of %lld inputs", (long long)conv->width);
  for (int64_t i = 0; i < conv->sequences.n; i++) {
    cpu_sequence sequence = cpu_sequence_at(&conv->sequences, i);
    if (!sequence.length)
      continue;
    if (sequence.slot < 0)
      write_zeros(conv, sequence.begin, sequence.begin + sequence.length);
    else if (along_tokens)
      run_tokens(conv, &sequence, scratch);
    else
      run_channels(conv, &sequence, scratch);
  }
  write_zeros(conv, cpu_sequences_end(&conv->sequences), conv->sequences.tokens);
  free(scratch);
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "causal_conv1d", CPU_FLAGOS, .fn = cpu_causal_conv1d, .self = (cpu_conv_fn[]){cpu_flagos_conv}},
};
OP_LIST(ops);
