/*
 * The gated delta rule: its three ops against the formula in double precision, what is left in the states, sequences of
 * all kinds, and bad calls.
 */
#include "tests/op_case.h"

#include <flhost/dtype.h>
#include <math.h>

/* Six sequences of 21 + 1 + 0 + 2 + 4 + 3 tokens, then 2 tokens of none. The third is empty, the fifth is skipped; the
 * first and the fourth begin from their state. */
enum { TOKENS = 33, SEQUENCES = 6, SLOTS = 7, SKIPPED = 4 };
#define BATCH " query_start_loc=i7 cache_indices=l6 has_initial_state=b6"
static const double starts[] = {0, 21, 22, 22, 24, 28, 31}, slots[] = {6, 2, 0, 4, -1, 1};
static const double begins_from_state[] = {1, 0, 0, 1, 1, 0};

static void set_batch(op_case *c) {
  op_case_set_all(c, "query_start_loc", starts);
  op_case_set_all(c, "cache_indices", slots);
  op_case_set_all(c, "has_initial_state", begins_from_state);
}

/* What of the batch no implementation may compute with: the state of slots that no sequence begins from, tokens of the
 * skipped sequence and behind the last. */
static bool is_read_slot(int64_t slot) {
  return slot == 6 || slot == 4;
}

static bool is_computed(int64_t token) {
  return token < 24 || (token >= 28 && token < 31);
}

static void poison(op_case *c, const char *name, bool (*is_read)(int64_t)) {
  const DLTensor *tensor = op_case_tensor(c, name);
  int64_t of_one = count(tensor) / tensor->shape[0];
  for (int64_t i = 0; i < count(tensor); i++)
    if (!is_read(i / of_one))
      op_case_set(c, name, i, NAN);
}

static void assert_near(double got, double expected, double tolerance, const char *what, int64_t i) {
  ck_each(fabs(got - expected) <= tolerance * fmax(1, fabs(expected)), "%s[%d] is %g, expected %g", what, (int)i, got,
          expected);
}

static double tolerance_of(DLDataType dtype) {
  return dtype.bits == 32 ? 2e-5 : dtype.code == kDLFloat ? 4e-3 : 3e-2;
}

/* What a tensor of that type makes of a value. */
static double rounded(DLDataType dtype, double value) {
  float one = (float)value;
  return dtype.bits == 32          ? one
         : dtype.code == kDLBfloat ? fl_bf16_to_float(fl_float_to_bf16(one))
                                   : fl_f16_to_float(fl_float_to_f16(one));
}

/* ---------------------------------------------------------------------------------------------------- the formula */

enum { HEADS = 4, KEY_HEADS = 2, KEYS = 21, VALUES = 13, CHANNELS = 2 * KEY_HEADS * KEYS + HEADS * VALUES };

/* What a head has at a token. */
typedef struct step {
  double q[KEYS], k[KEYS], v[VALUES], decay[KEYS], beta;
} step;

static void normalise(double *x, double scale, bool l2norm) {
  double squares = 1e-6;
  for (int i = 0; i < KEYS; i++)
    squares += x[i] * x[i];
  for (int i = 0; i < KEYS; i++)
    x[i] *= scale / (l2norm ? sqrt(squares) : 1);
}

static void advance(step *at, double state[VALUES][KEYS], double scale, bool l2norm, double out[VALUES]) {
  normalise(at->q, scale, l2norm);
  normalise(at->k, 1, l2norm);
  for (int i = 0; i < VALUES; i++) {
    double foretold = 0;
    out[i] = 0;
    for (int j = 0; j < KEYS; j++) {
      state[i][j] *= at->decay[j];
      foretold += state[i][j] * at->k[j];
    }
    for (int j = 0; j < KEYS; j++) {
      state[i][j] += (at->v[i] - foretold) * at->beta * at->k[j];
      out[i] += state[i][j] * at->q[j];
    }
  }
}

/* Element [slot, head, i, j] of a state. */
static int64_t in_state(int64_t slot, int head, int i, int j) {
  return ((slot * HEADS + head) * VALUES + i) * KEYS + j;
}

enum { STATE_SIZE = SLOTS * HEADS * VALUES * KEYS };

static void read_state(op_case *c, double *state) {
  for (int i = 0; i < STATE_SIZE; i++)
    state[i] = op_case_get(c, "state", i);
}

/* Where steps come from. */
typedef void (*step_fn)(op_case *c, int token, int head, step *at);

/* The batch of a call that was run, from the states `before`. */
static void check_batch(op_case *c, step_fn take, double scale, bool l2norm, const double *before, double allowed) {
  bool left[SLOTS] = {false};
  double allowed_state = fmax(allowed, tolerance_of(op_case_tensor(c, "state")->dtype));
  for (int s = 0; s < SEQUENCES; s++)
    for (int head = 0; head < HEADS; head++) {
      double state[VALUES][KEYS] = {{0}}, out[VALUES];
      int64_t slot = (int64_t)slots[s];
      if (slot < 0 || starts[s] == starts[s + 1])
        continue;
      left[slot] = true;
      for (int i = 0; begins_from_state[s] != 0 && i < VALUES * KEYS; i++)
        state[i / KEYS][i % KEYS] = before[in_state(slot, head, i / KEYS, i % KEYS)];
      for (int t = (int)starts[s]; t < (int)starts[s + 1]; t++) {
        step at;
        take(c, t, head, &at);
        advance(&at, state, scale, l2norm, out);
        for (int i = 0; i < VALUES; i++)
          assert_near(op_case_get(c, "out", (t * HEADS + head) * VALUES + i), out[i], allowed, "out",
                      (t * HEADS + head) * VALUES + i);
      }
      for (int i = 0; i < VALUES * KEYS; i++)
        assert_near(op_case_get(c, "state", in_state(slot, head, i / KEYS, i % KEYS)), state[i / KEYS][i % KEYS],
                    allowed_state, "state", in_state(slot, head, i / KEYS, i % KEYS));
    }
  for (int i = 0; i < STATE_SIZE; i++) {
    double now = op_case_get(c, "state", i);
    ck_each(left[i / (STATE_SIZE / SLOTS)] || now == before[i] || (isnan(now) && isnan(before[i])), "state[%d] changed",
            i);
  }
  for (int i = 0; i < TOKENS * HEADS * VALUES; i++)
    ck_each(is_computed(i / (HEADS * VALUES)) || op_case_get(c, "out", i) == 0, "out[%d] is not 0", i);
}

static double softplus(double x) {
  return x > 20 ? x : log1p(exp(x));
}

/* g and beta of a, b, A_log and dt_bias. */
static void take_gates(op_case *c, int token, int head, step *at) {
  double a = op_case_get(c, "a", token * HEADS + head) + op_case_get(c, "dt_bias", head);
  double g = -exp(op_case_get(c, "A_log", head)) * softplus(a);
  for (int j = 0; j < KEYS; j++)
    at->decay[j] = exp(g);
  at->beta = 1 / (1 + exp(-op_case_get(c, "b", token * HEADS + head)));
}

/* ----------------------------------------------------------------------------------------- chunk_gated_delta_rule */

static void take_chunk(op_case *c, int token, int head, step *at) {
  int key_head = token * KEY_HEADS + head / (HEADS / KEY_HEADS), row = token * HEADS + head;
  bool of_keys = op_case_tensor(c, "g")->ndim == 3;
  for (int j = 0; j < KEYS; j++) {
    at->q[j] = op_case_get(c, "query", key_head * KEYS + j);
    at->k[j] = op_case_get(c, "key", key_head * KEYS + j);
    at->decay[j] = exp(op_case_get(c, "g", of_keys ? row * KEYS + j : row));
  }
  for (int i = 0; i < VALUES; i++)
    at->v[i] = op_case_get(c, "value", row * VALUES + i);
  at->beta = op_case_get(c, "beta", row);
}

#define CHUNK "chunk_gated_delta_rule query=f33x2x21 key=f33x2x21 value=f33x4x13 "
static const struct {
  const char *call;
  double scale; /* 0: the default */
  bool l2norm;
} chunk_calls[] = {
    {CHUNK "g=w33x4 beta=w33x4 state=w7x4x13x21" BATCH, 0, true},
    {CHUNK "g=w33x4x21 beta=f33x4 state=f7x4x13x21" BATCH, 0, true},
    {CHUNK "g=w33x4 beta=f33x4 state=w7x4x13x21 scale=0.25 use_qk_l2norm=false" BATCH, 0.25, false},
};

START_TEST(chunk_gated_delta_rule_computes_the_formula_and_leaves_its_state) {
  DLDataType dtype = floats[_i % 3];
  for (size_t i = 0; i < sizeof chunk_calls / sizeof chunk_calls[0]; i++) {
    op_case *c = op_case_make(chunk_calls[i].call, dtype, _i / 6 ? 3 : 0);
    static double before[STATE_SIZE];
    set_batch(c);
    for (int64_t j = 0; j < count(op_case_tensor(c, "g")); j++) /* decays from 0.2 to 1 */
      op_case_set(c, "g", j, 0.8 * (op_case_get(c, "g", j) - 1));
    for (int64_t j = 0; j < TOKENS * HEADS; j++)
      op_case_set(c, "beta", j, fabs(op_case_get(c, "beta", j)));
    for (int64_t j = 0; j < TOKENS * KEY_HEADS * KEYS; j++) /* without a norm, keys shorter than 1 */
      op_case_set(c, "key", j, 0.3 * op_case_get(c, "key", j));
    poison(c, "state", is_read_slot);
    poison(c, "query", is_computed);
    poison(c, "g", is_computed);
    read_state(c, before);
    op_case_run(c, both[_i / 3 % 2]);
    check_batch(c, take_chunk, chunk_calls[i].scale > 0 ? chunk_calls[i].scale : 1 / sqrt(KEYS), chunk_calls[i].l2norm,
                before, tolerance_of(dtype));
    op_case_free(c);
  }
}
END_TEST

/* One key, one value, no decay: what is learnt at once is recalled, and learnt again it changes nothing. */
START_TEST(chunk_gated_delta_rule_by_hand) {
  op_case *c = op_case_make("chunk_gated_delta_rule query=f3x1x1 key=f3x1x1 value=f3x1x1 g=w3x1 beta=f3x1 "
                            "state=w1x1x1x1 scale=2 use_qk_l2norm=false",
                            float32, 0);
  const double ones[] = {1, 1, 1}, value[] = {3, 3, 7}, g[] = {0, 0, -INFINITY}, beta[] = {1, 1, 0.5};
  const double expected[] = {6, 6, 7};
  op_case_set_all(c, "query", ones);
  op_case_set_all(c, "key", ones);
  op_case_set_all(c, "value", value);
  op_case_set_all(c, "g", g);
  op_case_set_all(c, "beta", beta);
  op_case_run(c, both[_i]);
  for (int i = 0; i < 3; i++)
    ck_assert_double_eq(op_case_get(c, "out", i), expected[i]);
  ck_assert_double_eq(op_case_get(c, "state", 0), 3.5);
  op_case_free(c);
}
END_TEST

/* Without states a sequence begins from nothing; in one or two pieces it is the same, in whatever order a
 * pool takes them. */
START_TEST(a_delta_rule_may_be_continued) {
  op_case *whole =
      op_case_make("chunk_gated_delta_rule query=f40x1x40 key=f40x1x40 value=f40x2x70 g=w40x2 beta=f40x2", float32, 0);
  op_case *parts = op_case_make("chunk_gated_delta_rule query=f40x1x40 key=f40x1x40 value=f40x2x70 g=w40x2 beta=f40x2 "
                                "state=w1x2x70x40 query_start_loc=i3 cache_indices=i2%1 has_initial_state=b2",
                                float32, 0);
  const double pieces[] = {0, 15, 40};
  op_case_set_all(parts, "query_start_loc", pieces); /* both from and to slot 0, the second from what the first left */
  op_case_run(whole, both[_i]);
  op_case_run(parts, both[_i]);
  for (int64_t i = 0; i < count(op_case_tensor(whole, "out")); i++)
    ck_each(op_case_get(whole, "out", i) == op_case_get(parts, "out", i), "out[%d] differs", (int)i);
  op_case_free(whole);
  op_case_free(parts);
}
END_TEST

/* Keys behind a whole vector are no zeros: an infinite value gives infinities, and NaN only where keys are 0. */
START_TEST(an_infinite_value_is_learnt_as_such) {
  op_case *c = op_case_make("chunk_gated_delta_rule query=f1x1x5 key=f1x1x5 value=f1x1x9 g=w1x1 beta=f1x1", float32, 0);
  for (int i = 0; i < 5; i++) {
    op_case_set(c, "query", i, 1);
    op_case_set(c, "key", i, 1);
  }
  op_case_set(c, "g", 0, 0);
  op_case_set(c, "beta", 0, 1);
  for (int i = 0; i < 9; i++)
    op_case_set(c, "value", i, i % 2 ? -INFINITY : INFINITY);
  op_case_run(c, both[_i]);
  for (int i = 0; i < 9; i++)
    ck_assert_double_eq(op_case_get(c, "out", i), i % 2 ? -INFINITY : INFINITY);
  op_case_free(c);
}
END_TEST

/* ------------------------------------------------------------------------------------- recurrent_gated_delta_rule */

/* Query, key and value of row `token` of `name`. */
static void take_mixed(op_case *c, const char *name, int token, int head, step *at) {
  int64_t row = (int64_t)token * CHANNELS, key_head = head / (HEADS / KEY_HEADS);
  for (int j = 0; j < KEYS; j++) {
    at->q[j] = op_case_get(c, name, row + key_head * KEYS + j);
    at->k[j] = op_case_get(c, name, row + (KEY_HEADS + key_head) * KEYS + j);
  }
  for (int i = 0; i < VALUES; i++)
    at->v[i] = op_case_get(c, name, row + 2 * KEY_HEADS * KEYS + head * VALUES + i);
}

/* Rows 0 and 3 go to one slot, row 3 from what row 0 left; row 2 is skipped. */
START_TEST(recurrent_gated_delta_rule_takes_a_step_of_each_row) {
  enum { ROWS = 5 };
  static const double at_slots[ROWS] = {3, 0, -1, 3, 6};
  DLDataType dtype = floats[_i % 3];
  op_case *c = op_case_make("recurrent_gated_delta_rule mixed_qkv=f5x136 a=f5x4 b=f5x4 A_log=w4 dt_bias=f4 "
                            "state=w7x4x13x21 cache_indices=i5 num_k_heads=2",
                            dtype, _i / 6 ? 3 : 0);
  static double state[SLOTS][HEADS][VALUES][KEYS];
  double allowed = tolerance_of(dtype), out[VALUES];
  op_case_set_all(c, "cache_indices", at_slots);
  op_case_set(c, "a", HEADS, 30); /* softplus is its argument there */
  for (int i = 0; i < CHANNELS; i++)
    op_case_set(c, "mixed_qkv", 2 * CHANNELS + i, NAN);
  read_state(c, &state[0][0][0][0]);
  op_case_run(c, both[_i / 3 % 2]);
  for (int row = 0; row < ROWS; row++)
    for (int head = 0; head < HEADS; head++) {
      step at;
      take_mixed(c, "mixed_qkv", row, head, &at);
      take_gates(c, row, head, &at);
      memset(out, 0, sizeof out);
      if (at_slots[row] >= 0)
        advance(&at, state[(int)at_slots[row]][head], 1 / sqrt(KEYS), true, out);
      for (int i = 0; i < VALUES; i++)
        assert_near(op_case_get(c, "out", (row * HEADS + head) * VALUES + i), out[i], allowed, "out", row);
    }
  for (int i = 0; i < STATE_SIZE; i++)
    assert_near(op_case_get(c, "state", i), (&state[0][0][0][0])[i], allowed, "state", i);
  op_case_free(c);
}
END_TEST

/* --------------------------------------------------------------------------------------------- gdn_attention_core */

enum { WIDTH = 4 };
static double convolved[TOKENS * CHANNELS];

/* The convolution with silu, each sequence by its own past, rounded. */
static void convolve(op_case *c, const double *past_of_slots) {
  DLDataType dtype = op_case_tensor(c, "mixed_qkv")->dtype;
  for (int s = 0; s < SEQUENCES; s++)
    for (int channel = 0; channel < CHANNELS && slots[s] >= 0; channel++)
      for (int t = (int)starts[s]; t < (int)starts[s + 1]; t++) {
        double sum = op_case_get(c, "conv_bias", channel);
        for (int j = 0; j < WIDTH; j++) {
          int at = t - (WIDTH - 1) + j, before = at - (int)starts[s] + WIDTH - 1;
          double x = 0;
          if (at >= (int)starts[s])
            x = op_case_get(c, "mixed_qkv", at * CHANNELS + channel);
          else if (begins_from_state[s] != 0)
            x = past_of_slots[((int)slots[s] * CHANNELS + channel) * (WIDTH - 1) + before];
          sum += op_case_get(c, "conv_weight", channel * WIDTH + j) * x;
        }
        convolved[t * CHANNELS + channel] = rounded(dtype, sum / (1 + exp(-sum)));
      }
}

static void take_core(op_case *c, int token, int head, step *at) {
  const double *row = convolved + (ptrdiff_t)token * CHANNELS;
  int key_head = head / (HEADS / KEY_HEADS);
  for (int j = 0; j < KEYS; j++) {
    at->q[j] = row[key_head * KEYS + j];
    at->k[j] = row[(KEY_HEADS + key_head) * KEYS + j];
  }
  for (int i = 0; i < VALUES; i++)
    at->v[i] = row[2 * KEY_HEADS * KEYS + head * VALUES + i];
  take_gates(c, token, head, at);
}

#define CORE                                                                                                           \
  "gdn_attention_core mixed_qkv=f33x136 a=f33x4 b=f33x4 conv_weight=f136x4 conv_bias=f136 A_log=w4 dt_bias=w4 "        \
  "num_k_heads=2 head_k_dim=21"

START_TEST(gdn_attention_core_convolves_and_then_computes_the_rule) {
  DLDataType dtype = floats[_i % 3];
  op_case *c = op_case_make(CORE " conv_state=f7x136x3 state=w7x4x13x21" BATCH, dtype, _i / 6 ? 3 : 0);
  static double before[STATE_SIZE], past[SLOTS * CHANNELS * (WIDTH - 1)];
  set_batch(c);
  poison(c, "state", is_read_slot);
  poison(c, "conv_state", is_read_slot);
  poison(c, "mixed_qkv", is_computed);
  read_state(c, before);
  for (int i = 0; i < SLOTS * CHANNELS * (WIDTH - 1); i++)
    past[i] = op_case_get(c, "conv_state", i);
  op_case_run(c, both[_i / 3 % 2]);
  convolve(c, past);
  check_batch(c, take_core, 1 / sqrt(KEYS), true, before, tolerance_of(dtype));
  for (int channel = 0; channel < CHANNELS; channel++) { /* the last three inputs of the first; slot 0 as it was */
    for (int k = 0; k < WIDTH - 1; k++) {
      ck_each(op_case_get(c, "conv_state", (6 * CHANNELS + channel) * 3 + k) ==
                  op_case_get(c, "mixed_qkv", (18 + k) * CHANNELS + channel),
              "conv_state[6, %d, %d] is not the input", channel, k);
      ck_each(isnan(op_case_get(c, "conv_state", channel * 3 + k)), "conv_state[0, %d, %d] changed", channel, k);
    }
  }
  op_case_free(c);
}
END_TEST

/* Its two ways to room for what the convolution leaves: the call's workspace, and scratch. */
START_TEST(gdn_attention_core_works_in_the_calls_workspace) {
  const fl_impl *impl = find_impl("gdn_attention_core", both[_i]);
  op_case *with = op_case_make(CORE, bfloat16, 0), *without = op_case_make(CORE, bfloat16, 0);
  op_case_run(without, both[_i]);
  ck_assert_int_eq(op_case_check(with), FL_OK);
  fl_call call = {.size = sizeof call, .count = with->schema->n_arguments + 1, .values = with->values};
  call.workspace_size = impl->workspace_size(impl->self, &call);
  ck_assert_uint_eq(call.workspace_size, TOKENS * CHANNELS * 2);
  unsigned char *workspace = aligned_alloc(256, (call.workspace_size + 511) / 256 * 256);
  call.workspace = memset(workspace, 0, call.workspace_size);
  ck_assert_int_eq(impl->fn(impl->self, &call), FL_OK);
  bool used = false;
  for (size_t i = 0; i < call.workspace_size; i++)
    used |= workspace[i];
  ck_assert(used);
  for (int64_t i = 0; i < TOKENS * HEADS * VALUES; i++)
    ck_each(op_case_get(with, "out", i) == op_case_get(without, "out", i), "out[%d] differs", (int)i);
  free(workspace);
  op_case_free(with);
  op_case_free(without);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- limits */

START_TEST(O2_no_tokens_and_no_sequences_are_no_work) {
  static const char *const calls[] = {
      "chunk_gated_delta_rule query=f0x2x21 key=f0x2x21 value=f0x4x13 g=w0x4 beta=w0x4 state=w7x4x13x21 "
      "query_start_loc=i1%1 cache_indices=i0 has_initial_state=b0",
      "chunk_gated_delta_rule query=f0x2x21 key=f0x2x21 value=f0x4x13 g=w0x4 beta=w0x4 state=w7x4x13x21",
      "recurrent_gated_delta_rule mixed_qkv=f0x136 a=f0x4 b=f0x4 A_log=w4 dt_bias=f4 state=w7x4x13x21 "
      "cache_indices=i0 num_k_heads=2",
      "gdn_attention_core mixed_qkv=f0x136 a=f0x4 b=f0x4 conv_weight=f136x4 A_log=w4 dt_bias=w4 num_k_heads=2 "
      "head_k_dim=21 conv_state=f7x136x3 state=w7x4x13x21",
  };
  op_case *c = op_case_make(calls[_i / 2], float32, 0);
  static double before[STATE_SIZE];
  read_state(c, before);
  op_case_run(c, both[_i % 2]);
  for (int i = 0; i < STATE_SIZE; i++)
    ck_each(op_case_get(c, "state", i) == before[i], "state[%d] changed", i);
  op_case_free(c);
}
END_TEST

#define RECURRENT                                                                                                      \
  "recurrent_gated_delta_rule mixed_qkv=f5x136 a=f5x4 b=f5x4 A_log=w4 dt_bias=f4 state=w7x4x13x21 "                    \
  "cache_indices=i5 "
static const struct {
  const char *call, *message;
} refused[] = {
    {"chunk_gated_delta_rule query=f6x3x8 key=f6x3x8 value=f6x4x5 g=w6x4 beta=w6x4",
     "chunk_gated_delta_rule: argument 'query': 3 heads, expected a divisor of 4 (the heads of 'value')"},
    {CHUNK "g=w33x4 beta=w33x4 scale=inf", "chunk_gated_delta_rule: argument 'scale': inf, expected a finite number"},
    {CHUNK "g=w33x4 beta=w33x4 cache_indices=i1",
     "chunk_gated_delta_rule: argument 'cache_indices': given, expected none without 'state'"},
    {CHUNK "g=w33x4 beta=w33x4 state=w2x4x13x21 query_start_loc=i4",
     "chunk_gated_delta_rule: argument 'state': 2 slots, expected 3 or more without 'cache_indices'"},
    {CHUNK "g=w33x4 beta=w33x4 state=w2x4x13x21 has_initial_state=b2",
     "chunk_gated_delta_rule: argument 'has_initial_state': shape [2], expected [1] without 'query_start_loc'"},
    {"recurrent_gated_delta_rule mixed_qkv=f5x52 a=f5x4 b=f5x4 A_log=w4 dt_bias=f4 state=w7x4x13x21 cache_indices=i5 "
     "num_k_heads=0",
     "recurrent_gated_delta_rule: argument 'num_k_heads': 0 heads, expected a divisor of 4 (the heads of 'state')"},
    {RECURRENT "num_k_heads=2 scale=nan",
     "recurrent_gated_delta_rule: argument 'scale': nan, expected a finite number"},
    {"gdn_attention_core mixed_qkv=f3x52 a=f3x4 b=f3x4 conv_weight=f52x4 A_log=w4 dt_bias=w4 num_k_heads=0 "
     "head_k_dim=21",
     "gdn_attention_core: argument 'num_k_heads': 0 heads, expected a divisor of 4 (the heads of 'a')"},
    {"gdn_attention_core mixed_qkv=f3x52 a=f3x4 b=f3x4 conv_weight=f52x4 A_log=w4 dt_bias=w4 num_k_heads=2 "
     "head_k_dim=0",
     "gdn_attention_core: argument 'head_k_dim': 0, expected 1 or more"},
    {CORE " conv_state=f2x136x3 cache_indices=i1",
     "gdn_attention_core: argument 'cache_indices': given, expected none without 'state'"},
};

START_TEST(O6_bad_arguments_are_named_with_what_is_expected) {
  op_case_refused(refused[_i].call, refused[_i].message);
}
END_TEST

static const struct {
  const char *call, *tensor;
  int64_t index;
  double value;
  const char *message;
} bad_indices[] = {
    {CHUNK "g=w33x4 beta=w33x4 query_start_loc=i3%3", "query_start_loc", 0, 1,
     "argument 'query_start_loc'[0] is 1, expected 0 to 0 (the first sequence begins at 0)"},
    {CHUNK "g=w33x4 beta=w33x4 query_start_loc=l3%3", "query_start_loc", 2, 34,
     "argument 'query_start_loc'[2] is 34, expected 1 to 33 (from the one before to the number of tokens)"},
    {CHUNK "g=w33x4 beta=w33x4 query_start_loc=i3%3 state=w2x4x13x21 cache_indices=l2", "cache_indices", 1, 2,
     "argument 'cache_indices'[1] is 2, expected -1 to 1 (slots of the state; -1: skipped)"},
    {RECURRENT "num_k_heads=2", "cache_indices", 4, 7,
     "argument 'cache_indices'[4] is 7, expected -1 to 6 (slots of the state; -1: skipped)"},
    {RECURRENT "num_k_heads=2", "cache_indices", 0, -2,
     "argument 'cache_indices'[0] is -2, expected -1 to 6 (slots of the state; -1: skipped)"},
    {CORE " query_start_loc=i3%3 conv_state=f2x136x3 state=w2x4x13x21 cache_indices=i2", "cache_indices", 1, 5,
     "argument 'cache_indices'[1] is 5, expected -1 to 1 (slots of the state; -1: skipped)"},
};

START_TEST(O6_an_index_out_of_range_is_named_and_nothing_is_written) {
  op_case *c = op_case_make(bad_indices[_i / 2].call, float32, 0);
  op_case_set(c, bad_indices[_i / 2].tensor, bad_indices[_i / 2].index, bad_indices[_i / 2].value);
  op_case_refused_by(c, both[_i % 2], bad_indices[_i / 2].message);
  op_case_free(c);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, chunk_gated_delta_rule_computes_the_formula_and_leaves_its_state, 0, loop_cases(12));
  tcase_add_loop_test(tests, chunk_gated_delta_rule_by_hand, 0, 2);
  tcase_add_loop_test(tests, a_delta_rule_may_be_continued, 0, 2);
  tcase_add_loop_test(tests, an_infinite_value_is_learnt_as_such, 0, 2);
  tcase_add_loop_test(tests, recurrent_gated_delta_rule_takes_a_step_of_each_row, 0, loop_cases(12));
  tcase_add_loop_test(tests, gdn_attention_core_convolves_and_then_computes_the_rule, 0, loop_cases(12));
  tcase_add_loop_test(tests, gdn_attention_core_works_in_the_calls_workspace, 0, 2);
  tcase_add_loop_test(tests, O2_no_tokens_and_no_sequences_are_no_work, 0, 8);
  tcase_add_loop_test(tests, O6_bad_arguments_are_named_with_what_is_expected, 0, sizeof refused / sizeof refused[0]);
  tcase_add_loop_test(tests, O6_an_index_out_of_range_is_named_and_nothing_is_written, 0,
                      2 * (int)(sizeof bad_indices / sizeof bad_indices[0]));
}

int main(void) {
  return run_suite("ops_delta_rule", add_tests, 30);
}
