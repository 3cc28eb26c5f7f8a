/*
 * Causal convolution and the scans of Mamba and Mamba-2, one element after the other, in float as vLLM's kernels are;
 * the result is rounded once. Needs libm only.
 */
#include "plugins/cpu/state_space.h"
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/scratch.h"

static float get(const cpu_array *array, int64_t i, int64_t j, int64_t k, int64_t l) {
  return load(array->dtype, array->data, cpu_at(array, i, j, k, l));
}

static void put(const cpu_array *array, int64_t i, int64_t j, int64_t k, int64_t l, float value) {
  store(array->dtype, array->data, cpu_at(array, i, j, k, l), value);
}

/* How far a step of a scan goes. */
static float step_size(float delta, const cpu_array *bias, int64_t i, bool soft) {
  if (bias->data)
    delta += get(bias, i, 0, 0, 0);
  return soft ? softplus(delta) : delta;
}

/* ------------------------------------------------------------------------------------------------------ convolution */

/* Input `t` of a sequence; before its first one the state, oldest first. */
static float conv_input(const cpu_conv *conv, const cpu_sequence *sequence, int64_t channel, int64_t t) {
  if (t >= 0)
    return get(&conv->x, channel, sequence->begin + t, 0, 0);
  if (!sequence->continues)
    return 0;
  return get(&conv->state, sequence->slot, channel, conv->width - 1 + t, 0);
}

static float convolve(const cpu_conv *conv, const cpu_sequence *sequence, int64_t channel, int64_t t) {
  float sum = conv->bias.data ? get(&conv->bias, channel, 0, 0, 0) : 0;
  for (int64_t j = 0; j < conv->width; j++)
    sum += get(&conv->weight, channel, j, 0, 0) * conv_input(conv, sequence, channel, t - (conv->width - 1) + j);
  return conv->silu ? silu(sum) : sum;
}

/* The last inputs, oldest first. An entry is read before it is overwritten: what it becomes lies behind it. */
static void leave_inputs(const cpu_conv *conv, const cpu_sequence *sequence, int64_t channel) {
  for (int64_t k = 0; k < conv->width - 1; k++)
    put(&conv->state, sequence->slot, channel, k, 0,
        conv_input(conv, sequence, channel, sequence->length - (conv->width - 1) + k));
}

fl_status cpu_reference_conv(fl_call *call, const cpu_conv *conv) {
  (void)call;
  for (int64_t channel = 0; channel < conv->channels; channel++) {
    for (int64_t i = 0; i < conv->sequences.n; i++) {
      cpu_sequence sequence = cpu_sequence_at(&conv->sequences, i);
      bool skipped = sequence.slot < 0;
      for (int64_t t = 0; t < sequence.length; t++)
        put(&conv->out, channel, sequence.begin + t, 0, 0, skipped ? 0 : convolve(conv, &sequence, channel, t));
      if (conv->state.data && !skipped && sequence.length)
        leave_inputs(conv, &sequence, channel);
    }
    for (int64_t t = cpu_sequences_end(&conv->sequences); t < conv->sequences.tokens; t++)
      put(&conv->out, channel, t, 0, 0, 0);
  }
  return FL_OK;
}

/* --------------------------------------------------------------------------------------------------- selective scan */

/* One step of a channel, from its state `h`. */
static float scan_step(const cpu_scan *scan, int64_t channel, int64_t t, float *h) {
  int64_t group = channel / (scan->channels / scan->groups);
  float u = get(&scan->u, channel, t, 0, 0), y = 0;
  float delta = step_size(get(&scan->delta, channel, t, 0, 0), &scan->delta_bias, channel, scan->softplus);
  for (int64_t n = 0; n < scan->states; n++) {
    h[n] = expf(delta * get(&scan->a, channel, n, 0, 0)) * h[n] + delta * get(&scan->b, group, n, t, 0) * u;
    y += get(&scan->c, group, n, t, 0) * h[n];
  }
  if (scan->d.data)
    y += get(&scan->d, channel, 0, 0, 0) * u;
  return scan->z.data ? y * silu(get(&scan->z, channel, t, 0, 0)) : y;
}

static void scan_sequence(const cpu_scan *scan, const cpu_sequence *sequence, int64_t channel, float *h) {
  bool skipped = sequence->slot < 0;
  for (int64_t n = 0; n < scan->states; n++)
    h[n] = sequence->continues && !skipped ? get(&scan->state, sequence->slot, channel, n, 0) : 0;
  for (int64_t t = sequence->begin; t < sequence->begin + sequence->length; t++)
    put(&scan->out, channel, t, 0, 0, skipped ? 0 : scan_step(scan, channel, t, h));
  for (int64_t n = 0; scan->state.data && !skipped && sequence->length && n < scan->states; n++)
    put(&scan->state, sequence->slot, channel, n, 0, h[n]);
}

fl_status cpu_reference_scan(fl_call *call, const cpu_scan *scan) {
  float *h = cpu_scratch_take((size_t)scan->states);
  if (!h)
    return fl_fail(call, FL_ENOMEM, "no memory for a state of %lld numbers", (long long)scan->states);
  for (int64_t channel = 0; channel < scan->channels; channel++) {
    for (int64_t i = 0; i < scan->sequences.n; i++) {
      cpu_sequence sequence = cpu_sequence_at(&scan->sequences, i);
      scan_sequence(scan, &sequence, channel, h);
    }
    for (int64_t t = cpu_sequences_end(&scan->sequences); t < scan->sequences.tokens; t++)
      put(&scan->out, channel, t, 0, 0, 0);
  }
  cpu_scratch_give(h);
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------- chunk scan */

/* One step of element `p` of a head, from its row `h` of the state. */
static float ssd_step(const cpu_ssd *scan, int64_t head, int64_t p, int64_t t, float *h) {
  int64_t group = head / (scan->heads / scan->groups);
  float x = get(&scan->x, t, head, p, 0), y = 0;
  float dt = step_size(get(&scan->dt, t, head, 0, 0), &scan->dt_bias, head, scan->softplus);
  dt = dt < scan->dt_min ? scan->dt_min : dt > scan->dt_max ? scan->dt_max : dt;
  float decay = expf(dt * get(&scan->a, head, 0, 0, 0));
  for (int64_t n = 0; n < scan->states; n++) {
    h[n] = decay * h[n] + dt * get(&scan->b, t, group, n, 0) * x;
    y += get(&scan->c, t, group, n, 0) * h[n];
  }
  if (scan->d.data)
    y += get(&scan->d, head, p, 0, 0) * x;
  return scan->z.data ? y * silu(get(&scan->z, t, head, p, 0)) : y;
}

static void ssd_sequence(const cpu_ssd *scan, const cpu_sequence *sequence, int64_t head, int64_t p, float *h) {
  bool skipped = sequence->slot < 0;
  for (int64_t n = 0; n < scan->states; n++)
    h[n] = sequence->continues && !skipped ? get(&scan->state, sequence->slot, head, p, n) : 0;
  for (int64_t t = sequence->begin; t < sequence->begin + sequence->length; t++)
    put(&scan->out, t, head, p, 0, skipped ? 0 : ssd_step(scan, head, p, t, h));
  for (int64_t n = 0; scan->state.data && !skipped && sequence->length && n < scan->states; n++)
    put(&scan->state, sequence->slot, head, p, n, h[n]);
}

fl_status cpu_reference_ssd(fl_call *call, const cpu_ssd *scan) {
  float *h = cpu_scratch_take((size_t)scan->states);
  if (!h)
    return fl_fail(call, FL_ENOMEM, "no memory for a state of %lld numbers", (long long)scan->states);
  for (int64_t row = 0; row < scan->heads * scan->size; row++) {
    int64_t head = row / scan->size, p = row % scan->size;
    for (int64_t i = 0; i < scan->sequences.n; i++) {
      cpu_sequence sequence = cpu_sequence_at(&scan->sequences, i);
      ssd_sequence(scan, &sequence, head, p, h);
    }
    for (int64_t t = cpu_sequences_end(&scan->sequences); t < scan->sequences.tokens; t++)
      put(&scan->out, t, head, p, 0, 0);
  }
  cpu_scratch_give(h);
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "causal_conv1d", CPU_REFERENCE, .fn = cpu_causal_conv1d, .self = (cpu_conv_fn[]){cpu_reference_conv}},
    {.op_name = "selective_scan", CPU_REFERENCE, .fn = cpu_selective_scan, .self = (cpu_scan_fn[]){cpu_reference_scan}},
    {.op_name = "mamba_chunk_scan",
     CPU_REFERENCE,
     .fn = cpu_mamba_chunk_scan,
     .self = (cpu_ssd_fn[]){cpu_reference_ssd}},
};
OP_LIST(ops);
