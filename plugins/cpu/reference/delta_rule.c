/*
 * The gated delta rule as its formula stands, token after token, in float; the result is rounded once, and the state
 * when it is left.
 */
#include "plugins/cpu/delta_rule.h"
#include "plugins/cpu/reference/functions.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/scratch.h"

static float get(const cpu_array *array, int64_t i, int64_t j, int64_t k, int64_t l) {
  return load(array->dtype, array->data, cpu_at(array, i, j, k, l));
}

/* What the state of a head is and meets at a token. */
typedef struct delta_step {
  float *state; /* [value, key] */
  float *q, *k, *decay;
  float beta;
} delta_step;

/* One head's query or key. */
static void take_row(const cpu_delta *delta, const cpu_array *from, int64_t t, int64_t head, float scale, float *row) {
  float squares = 0;
  for (int64_t i = 0; i < delta->keys; i++) {
    row[i] = get(from, t, head, i, 0);
    squares += row[i] * row[i];
  }
  for (int64_t i = 0; i < delta->keys; i++)
    row[i] = (delta->normalise ? row[i] / sqrtf(squares + 1e-6f) : row[i]) * scale;
}

static void take_gates(const cpu_delta *delta, int64_t t, int64_t head, delta_step *step) {
  bool given = delta->g.data;
  float beta = get(&delta->beta, t, head, 0, 0), g = 0;
  if (!given)
    g = -expf(get(&delta->a_log, head, 0, 0, 0)) *
        softplus(get(&delta->a, t, head, 0, 0) + get(&delta->dt_bias, head, 0, 0, 0));
  for (int64_t i = 0; i < delta->keys; i++)
    step->decay[i] = expf(given ? get(&delta->g, t, head, i, 0) : g);
  step->beta = given ? beta : sigmoid(beta);
}

/* One value of a head. */
static float advance(const cpu_delta *delta, const delta_step *step, int64_t value, float v) {
  float *row = step->state + value * delta->keys, foretold = 0, out = 0;
  for (int64_t i = 0; i < delta->keys; i++) {
    row[i] *= step->decay[i];
    foretold += row[i] * step->k[i];
  }
  float d = (v - foretold) * step->beta;
  for (int64_t i = 0; i < delta->keys; i++) {
    row[i] += d * step->k[i];
    out += row[i] * step->q[i];
  }
  return out;
}

static void run_token(const cpu_delta *delta, delta_step *step, int64_t t, int64_t head) {
  int64_t key_head = head / (delta->heads / delta->key_heads);
  take_row(delta, &delta->q, t, key_head, delta->scale, step->q);
  take_row(delta, &delta->k, t, key_head, 1, step->k);
  take_gates(delta, t, head, step);
  for (int64_t value = 0; value < delta->values; value++)
    store(delta->out.dtype, delta->out.data, cpu_at(&delta->out, t, head, value, 0),
          advance(delta, step, value, get(&delta->v, t, head, value, 0)));
}

static void write_zeros(const cpu_delta *delta, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; t++)
    for (int64_t head = 0; head < delta->heads; head++)
      for (int64_t value = 0; value < delta->values; value++)
        store(delta->out.dtype, delta->out.data, cpu_at(&delta->out, t, head, value, 0), 0);
}

static void run_sequence(const cpu_delta *delta, const cpu_sequence *sequence, int64_t head, delta_step *step) {
  for (int64_t i = 0; i < delta->values; i++)
    for (int64_t j = 0; j < delta->keys; j++)
      step->state[i * delta->keys + j] = sequence->continues ? get(&delta->state, sequence->slot, head, i, j) : 0;
  for (int64_t t = sequence->begin; t < sequence->begin + sequence->length; t++)
    run_token(delta, step, t, head);
  for (int64_t i = 0; delta->state.data && i < delta->values; i++)
    for (int64_t j = 0; j < delta->keys; j++)
      store(delta->state.dtype, delta->state.data, cpu_at(&delta->state, sequence->slot, head, i, j),
            step->state[i * delta->keys + j]);
}

fl_status cpu_reference_delta(fl_call *call, const cpu_delta *delta) {
  delta_step step = {.state = cpu_scratch_take((size_t)((delta->values + 3) * delta->keys))};
  if (!step.state)
    return fl_fail(call, FL_ENOMEM, "no memory for a state of %lld by %lld numbers", (long long)delta->values,
                   (long long)delta->keys);
  step.q = step.state + delta->values * delta->keys;
  step.k = step.q + delta->keys;
  step.decay = step.k + delta->keys;
  for (int64_t i = 0; i < delta->sequences.n; i++) {
    cpu_sequence sequence = cpu_sequence_at(&delta->sequences, i);
    if (sequence.slot < 0)
      write_zeros(delta, sequence.begin, sequence.begin + sequence.length);
    for (int64_t head = 0; sequence.slot >= 0 && sequence.length && head < delta->heads; head++)
      run_sequence(delta, &sequence, head, &step);
  }
  write_zeros(delta, cpu_sequences_end(&delta->sequences), delta->sequences.tokens);
  cpu_scratch_give(step.state);
  return FL_OK;
}

static cpu_delta_parts parts = {.conv = cpu_reference_conv, .delta = cpu_reference_delta};

static const fl_impl ops[] = {
    {.op_name = "chunk_gated_delta_rule", CPU_REFERENCE, .fn = cpu_chunk_gated_delta_rule, .self = &parts},
    {.op_name = "recurrent_gated_delta_rule", CPU_REFERENCE, .fn = cpu_recurrent_gated_delta_rule, .self = &parts},
    {.op_name = "gdn_attention_core",
     CPU_REFERENCE,
     .fn = cpu_gdn_attention_core,
     .self = &parts,
     .workspace_size = cpu_gdn_attention_core_workspace},
};
OP_LIST(ops);
