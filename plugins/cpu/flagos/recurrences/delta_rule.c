/*
 * The gated delta rule, vectorised along the keys: a row of a state, of one value, is two sums of products and what is
 * added to it in between. Rows are independent of each other, so some of them go through all tokens of a sequence while
 * they stay in a cache. Where the state lies as it is computed with, it is computed with where it lies. The order of
 * additions is fixed: the same bits every time, however many threads there are.
 */
#include "plugins/cpu/delta_rule.h"
#include "plugins/cpu/flagos/recurrences/plane.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/lanes.h"
#include "plugins/cpu/flagos/vectors/squares.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

/* Rows of a state that a thread takes at once: of 128 keys they fit the nearest cache. And so many are computed
 * together as there are registers to add up in. */
enum { ROWS = 64, TOGETHER = REGISTERS >= 32 ? 8 : 4 };

typedef struct delta_loop {
  const cpu_delta *delta;
  int64_t blocks; /* of rows, in a head */
  bool in_order;  /* of the sequences: some share a slot */
} delta_loop;

/* Of a block of rows at one token. */
typedef struct delta_step {
  int64_t keys;
  float *q, *k, *decay, *decayed; /* [keys]; decayed: decay * k */
  float *v, *out;                 /* [rows] */
  float *state;                   /* [rows, keys], */
  int64_t stride;                 /* its rows are that far apart */
  float beta;
} delta_step;

static size_t scratch_size(int64_t keys) {
  return (size_t)((ROWS + 4) * keys + 2 * ROWS);
}

/* -------------------------------------------------------------------------------------------------------- one token */

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

/* Quarters, eighths… are added until four numbers are left. */
SPECIALISED quad add_quads(vector sum) {
  float lanes[LANES];
  memcpy(lanes, &sum, sizeof lanes);
  quad four = *(const quad *)lanes;
  UNROLL for (int i = 4; i < LANES; i += 4) four += *(const quad *)(lanes + i);
  return four;
}

/* to[r] = what the lanes of sums[r] make; of four rows at once, which takes half as long as one after the other. */
SPECIALISED void add_rows(int n, const vector *sums, float *to) {
  if (n < 4) {
    UNROLL for (int r = 0; r < n; r++) to[r] = add_lanes(sums[r]);
    return;
  }
  UNROLL for (int r = 0; r < n; r += 4) {
    quad a = add_quads(sums[r]), b = add_quads(sums[r + 1]), c = add_quads(sums[r + 2]), d = add_quads(sums[r + 3]);
    quad ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    quad cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(quad *)(to + r) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5) + __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
  }
}

/* S = S * decay; d = (v - S k) * beta; S = S + d k; out = S q, of `n` rows from `row` on. Keys behind the last whole
 * vector are taken one by one: what is multiplied with an infinity may not be a 0 that stands there for none. */
SPECIALISED void advance_rows(int n, const delta_step *step, int64_t row) {
  float *rows = step->state + row * step->stride, d[TOGETHER], rest[TOGETHER] = {0};
  vector sums[TOGETHER] = {0};
  int64_t whole = step->keys - step->keys % LANES;
  for (int64_t i = 0; i < whole; i += LANES) {
    vector k = *(const vector *)(step->decayed + i);
    UNROLL for (int r = 0; r < n; r++) sums[r] += *(const vector *)(rows + r * step->stride + i) * k;
  }
  for (int64_t i = whole; i < step->keys; i++)
    UNROLL for (int r = 0; r < n; r++) rest[r] += rows[r * step->stride + i] * step->decayed[i];
  add_rows(n, sums, d);
  UNROLL for (int r = 0; r < n; r++) {
    d[r] = (step->v[row + r] - (d[r] + rest[r])) * step->beta;
    sums[r] = (vector){0};
    rest[r] = 0;
  }
  for (int64_t i = 0; i < whole; i += LANES) {
    vector k = *(const vector *)(step->k + i), q = *(const vector *)(step->q + i);
    vector decay = *(const vector *)(step->decay + i);
    UNROLL for (int r = 0; r < n; r++) {
      vector *at = (vector *)(rows + r * step->stride + i);
      vector next = *at * decay + d[r] * k;
      *at = next;
      sums[r] += next * q;
    }
  }
  for (int64_t i = whole; i < step->keys; i++)
    UNROLL for (int r = 0; r < n; r++) {
      float *at = rows + r * step->stride + i;
      *at = *at * step->decay[i] + d[r] * step->k[i];
      rest[r] += *at * step->q[i];
    }
  add_rows(n, sums, d);
  UNROLL for (int r = 0; r < n; r++) step->out[row + r] = d[r] + rest[r];
}

static void advance(const delta_step *step, int64_t n) {
  int64_t row = 0;
  for (; row + TOGETHER <= n; row += TOGETHER)
    advance_rows(TOGETHER, step, row);
  for (; row < n; row++)
    advance_rows(1, step, row);
}

/* Elements [t, head, …] of an array, as floats. */
static void load_row(const cpu_array *from, int64_t t, int64_t head, int64_t first, float *to, int64_t n) {
  cpu_block_types[from->dtype].load(to, from->data, cpu_at(from, t, head, first, 0), n);
}

static float load_one(const cpu_array *from, int64_t i, int64_t j) {
  int64_t at = cpu_at(from, i, j, 0, 0);
  if (from->dtype == CPU_FLOAT32)
    return ((const float *)from->data)[at];
  uint16_t bits = ((const uint16_t *)from->data)[at];
  return from->dtype == CPU_FLOAT16 ? cpu_half_to_float(bits) : fl_bf16_to_float(bits);
}

/* One head's query or key, of length 1 where the call wants that, times `scale`. */
static void take_row(const cpu_delta *delta, const cpu_array *from, int64_t t, int64_t head, float scale, float *row) {
  cpu_squares squares = {0};
  load_row(from, t, head, 0, row, delta->keys);
  if (delta->normalise) {
    cpu_squares_add(&squares, row, delta->keys);
    scale /= sqrtf(cpu_squares_sum(&squares) + 1e-6f);
  }
  for (int64_t i = 0; i < delta->keys; i++)
    row[i] *= scale;
}

static void take_gates(const cpu_delta *delta, int64_t t, int64_t head, delta_step *step) {
  float beta = load_one(&delta->beta, t, head), g;
  if (delta->g.stride[2]) {
    load_row(&delta->g, t, head, 0, step->decay, delta->keys);
    for (int64_t i = 0; i < delta->keys; i++)
      step->decay[i] = vector_exp(step->decay[i]);
    step->beta = beta;
    return;
  }
  if (delta->g.data)
    g = load_one(&delta->g, t, head);
  else
    g = -vector_exp(load_one(&delta->a_log, head, 0)) *
        vector_softplus(load_one(&delta->a, t, head) + load_one(&delta->dt_bias, head, 0));
  g = vector_exp(g);
  step->beta = delta->g.data ? beta : vector_sigmoid(beta);
  for (int64_t i = 0; i < delta->keys; i++)
    step->decay[i] = g;
}

static void run_token(const cpu_delta *delta, delta_step *step, int64_t t, int64_t head, int64_t first, int64_t n) {
  int64_t key_head = head / (delta->heads / delta->key_heads);
  take_row(delta, &delta->q, t, key_head, delta->scale, step->q);
  take_row(delta, &delta->k, t, key_head, 1, step->k);
  take_gates(delta, t, head, step);
  for (int64_t i = 0; i < delta->keys; i++)
    step->decayed[i] = step->decay[i] * step->k[i];
  load_row(&delta->v, t, head, first, step->v, n);
  advance(step, n);
  cpu_block_types[delta->out.dtype].store(delta->out.data, cpu_at(&delta->out, t, head, first, 0), step->out, n);
}

/* -------------------------------------------------------------------------------------------------------- sequences */

/* Rows `first` to first + n - 1 of a head through a sequence. `memory` is for as many. */
static void run_rows(const cpu_delta *delta, const cpu_sequence *sequence, int64_t head, int64_t first, int64_t n,
                     delta_step *step, float *memory) {
  int64_t keys = delta->keys;
  cpu_plane state = cpu_plane_at(&delta->state, 2, 3, sequence->slot, head, first);
  bool in_place = state.data && state.dtype == CPU_FLOAT32;
  step->state = in_place ? state.data : memory;
  step->stride = in_place ? state.row : keys;
  if (!sequence->continues)
    for (int64_t i = 0; i < n; i++)
      memset(step->state + i * step->stride, 0, (size_t)keys * sizeof *memory);
  else if (!in_place)
    cpu_plane_load(&state, n, keys, memory, keys);
  for (int64_t t = sequence->begin; t < sequence->begin + sequence->length; t++)
    run_token(delta, step, t, head, first, n);
  if (state.data && !in_place)
    cpu_plane_store(&state, n, keys, memory, keys);
}

static fl_status run_blocks(void *user, int64_t begin, int64_t end) {
  const delta_loop *loop = user;
  const cpu_delta *delta = loop->delta;
  int64_t keys = delta->keys, of_head = loop->blocks, of_sequence = delta->heads * of_head;
  float *memory = cpu_scratch_take(scratch_size(keys));
  if (!memory)
    return FL_ENOMEM;
  float *rows = memory + ROWS * keys, *values = rows + 4 * keys;
  delta_step step = {.keys = keys,
                     .q = rows,
                     .k = rows + keys,
                     .decay = rows + 2 * keys,
                     .decayed = rows + 3 * keys,
                     .v = values,
                     .out = values + ROWS};
  for (int64_t i = begin; i < end; i++) {
    int64_t first = i % of_head * ROWS, left = delta->values - first;
    int64_t from = loop->in_order ? 0 : i / of_sequence, to = loop->in_order ? delta->sequences.n : from + 1;
    for (int64_t s = from; s < to; s++) {
      cpu_sequence sequence = cpu_sequence_at(&delta->sequences, s);
      if (sequence.slot >= 0 && sequence.length)
        run_rows(delta, &sequence, i / of_head % delta->heads, first, left < ROWS ? left : ROWS, &step, memory);
    }
  }
  cpu_scratch_give(memory);
  return FL_OK;
}

/* The results of tokens `begin` to end - 1. */
static void write_zeros(const cpu_delta *delta, int64_t begin, int64_t end) {
  const int64_t bytes = cpu_dtype_size(delta->out.dtype);
  for (int64_t t = begin; t < end; t++)
    for (int64_t head = 0; head < delta->heads; head++)
      memset((char *)delta->out.data + cpu_at(&delta->out, t, head, 0, 0) * bytes, 0, (size_t)(delta->values * bytes));
}

/* Do some sequences go from and to the same slot? */
static bool share_slots(const cpu_sequences *sequences) {
  for (int64_t i = 0; sequences->slots && i < sequences->n; i++) {
    int64_t slot = cpu_sequence_at(sequences, i).slot;
    for (int64_t j = 0; slot >= 0 && j < i; j++)
      if (cpu_sequence_at(sequences, j).slot == slot)
        return true;
  }
  return false;
}

fl_status cpu_flagos_delta(fl_call *call, const cpu_delta *delta) {
  const cpu_sequences *sequences = &delta->sequences;
  delta_loop loop = {.delta = delta, .blocks = (delta->values + ROWS - 1) / ROWS, .in_order = share_slots(sequences)};
  int64_t n = loop.in_order ? 1 : sequences->n;
  int64_t work = sequences->tokens / (n ? n : 1) * ROWS * delta->keys * (int64_t)sizeof(float);
  for (int64_t i = 0; i < sequences->n; i++) {
    cpu_sequence sequence = cpu_sequence_at(sequences, i);
    if (sequence.slot < 0)
      write_zeros(delta, sequence.begin, sequence.begin + sequence.length);
  }
  write_zeros(delta, cpu_sequences_end(sequences), sequences->tokens);
  fl_status status = cpu_parallel_for(n * delta->heads * loop.blocks, cpu_grain(work), run_blocks, &loop);
  return status
             ? fl_fail(call, status, "no memory for %d rows of a state of %lld keys", (int)ROWS, (long long)delta->keys)
             : FL_OK;
}

static cpu_delta_parts parts = {.conv = cpu_flagos_conv, .delta = cpu_flagos_delta};

static const fl_impl ops[] = {
    {.op_name = "chunk_gated_delta_rule", CPU_FLAGOS, .fn = cpu_chunk_gated_delta_rule, .self = &parts},
    {.op_name = "recurrent_gated_delta_rule", CPU_FLAGOS, .fn = cpu_recurrent_gated_delta_rule, .self = &parts},
    {.op_name = "gdn_attention_core",
     CPU_FLAGOS,
     .fn = cpu_gdn_attention_core,
     .self = &parts,
     .workspace_size = cpu_gdn_attention_core_workspace},
};
OP_LIST(ops);
