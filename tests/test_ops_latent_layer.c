/*
 * multi_head_latent_attention: its checks, and both CPU kernels against the layer's definition in double, written down
 * here, and against themselves with a cache that is filled in one, in chunks or token by token.
 */
#include "tests/kernels.h"

#include <math.h>

enum { TOKENS = 6, HIDDEN = 20, HEADS = 3, NOPE = 8, ROPE = 4, V = 6, RANK = 16, Q_RANK = 10, POSITIONS = 64 };
enum { HEAD = NOPE + ROPE, ROW = RANK + ROPE, QUERY = HEADS * HEAD, VALUES = HEADS * V, BLOCKS = 8, BLOCK = 4 };

/* The places of the call's values. */
enum {
  POSITION_IDS,
  HIDDEN_STATES,
  FUSED,
  Q_NORM,
  Q_B,
  KV_A,
  Q_PROJ,
  KV_NORM,
  KV_B,
  GATE,
  O_PROJ,
  COS,
  SIN,
  CACHE,
  TABLE,
  LENS,
  NUM_HEADS,
  NOPE_DIM,
  ROPE_DIM,
  V_DIM,
  RANK_DIM,
  SCALE,
  EPSILON,
  INTERLEAVED,
  SCALING,
  OUT,
  N_VALUES,
  N_TENSORS = NUM_HEADS
};

static const double scale = 0.35, epsilon = 1e-5;

/* A layer and its call. `tensors` holds what the values point to. */
typedef struct layer {
  owned *tensors[N_TENSORS], *scaling, *out;
  fl_value values[N_VALUES];
} layer;

static owned *make_weight(DLDataType dtype, int ndim, const int64_t *shape, uint32_t seed) {
  return make_bounded(dtype, ndim, shape, ndim > 1 ? 3 : 0, seed, 0.5);
}

static void give(layer *l, int at, owned *tensor) {
  unmake(l->tensors[at]);
  l->tensors[at] = tensor;
  l->values[at] = tensor ? fl_tensor(&tensor->tensor) : fl_none();
}

/* TOKENS tokens of one sequence, with all that is optional as `options` says. */
enum { LORA = 1, GATED = 2, SCALED = 4, NEOX = 8, N_OPTIONS = 16 };

static void make_layer(layer *l, DLDataType dtype, int options) {
  static const int64_t numbers[] = {HEADS, NOPE, ROPE, V, RANK};
  *l = (layer){0};
  for (int i = 0; i < N_TENSORS; i++)
    give(l, i, NULL);
  give(l, POSITION_IDS, make(int64, SHAPE(TOKENS), 0));
  for (int i = 0; i < TOKENS; i++)
    set(&l->tensors[POSITION_IDS]->tensor, i, 3 + i);
  give(l, HIDDEN_STATES, make_weight(dtype, SHAPE(TOKENS, HIDDEN), 1));
  if (options & LORA) {
    give(l, FUSED, make_weight(dtype, SHAPE(Q_RANK + ROW, HIDDEN), 2));
    give(l, Q_NORM, make_weight(dtype, SHAPE(Q_RANK), 3));
    give(l, Q_B, make_weight(dtype, SHAPE(QUERY, Q_RANK), 4));
  } else {
    give(l, KV_A, make_weight(dtype, SHAPE(ROW, HIDDEN), 2));
    give(l, Q_PROJ, make_weight(dtype, SHAPE(QUERY, HIDDEN), 4));
  }
  give(l, KV_NORM, make_weight(dtype, SHAPE(RANK), 5));
  give(l, KV_B, make_weight(dtype, SHAPE(HEADS * (NOPE + V), RANK), 6));
  give(l, GATE, options & GATED ? make_weight(dtype, SHAPE(VALUES, HIDDEN), 7) : NULL);
  give(l, O_PROJ, make_weight(dtype, SHAPE(HIDDEN, VALUES), 8));
  give(l, COS, make(dtype, SHAPE(POSITIONS, ROPE / 2), 0));
  give(l, SIN, make(dtype, SHAPE(POSITIONS, ROPE / 2), 0));
  for (int i = 0; i < POSITIONS * ROPE / 2; i++) {
    set(&l->tensors[COS]->tensor, i, cos(i / 2 * (i % 2 ? 0.1 : 1)));
    set(&l->tensors[SIN]->tensor, i, sin(i / 2 * (i % 2 ? 0.1 : 1)));
  }
  for (int i = 0; i < 5; i++)
    l->values[NUM_HEADS + i] = fl_int(numbers[i]);
  l->values[SCALE] = fl_float(scale);
  l->values[EPSILON] = fl_float(epsilon);
  l->values[INTERLEAVED] = fl_bool(!(options & NEOX));
  l->scaling = options & SCALED ? make(dtype, SHAPE(TOKENS, 1, 1), 0) : NULL;
  for (int i = 0; i < TOKENS && l->scaling; i++)
    set(&l->scaling->tensor, i, 1 + i / 4.0);
  l->values[SCALING] = l->scaling ? fl_tensor(&l->scaling->tensor) : fl_none();
  l->out = make(dtype, SHAPE(TOKENS, HIDDEN), 2);
  l->values[OUT] = fl_tensor(&l->out->tensor);
}

static void unmake_layer(layer *l) {
  for (int i = 0; i < N_TENSORS; i++)
    unmake(l->tensors[i]);
  unmake(l->scaling);
  unmake(l->out);
}

static double at(const layer *l, int tensor, int64_t i) {
  return get(&l->tensors[tensor]->tensor, element_offset(&l->tensors[tensor]->tensor, i));
}

/* ------------------------------------------------------------------------------------------- the definition, double */

/* out [n] = weight x, from row `first` of the weight on. */
static void project(const layer *l, int weight, int64_t first, int64_t n, const double *x, double *out) {
  int64_t k = l->tensors[weight]->shape[1];
  for (int64_t i = 0; i < n; i++) {
    out[i] = 0;
    for (int64_t j = 0; j < k; j++)
      out[i] += at(l, weight, (first + i) * k + j) * x[j];
  }
}

static void normalise(const layer *l, int weight, double *x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += x[i] * x[i];
  for (int64_t i = 0; i < n; i++)
    x[i] *= at(l, weight, i) / sqrt(sum / (double)n + epsilon);
}

static void rotate(const layer *l, bool neox, int64_t token, double *x) {
  int64_t position = ((int64_t *)l->tensors[POSITION_IDS]->tensor.data)[token];
  for (int64_t pair = 0; pair < ROPE / 2; pair++) {
    double *a = x + (neox ? pair : 2 * pair), *b = neox ? a + ROPE / 2 : a + 1;
    double c = at(l, COS, position * (ROPE / 2) + pair), s = at(l, SIN, position * (ROPE / 2) + pair);
    double first = *a * c - *b * s, second = *b * c + *a * s;
    *a = first;
    *b = second;
  }
}

static double q[TOKENS][QUERY], rows[TOKENS][ROW], expanded[TOKENS][HEADS * (NOPE + V)];

static void define_token(const layer *l, int options, int64_t token) {
  double h[HIDDEN], q_c[Q_RANK];
  for (int64_t i = 0; i < HIDDEN; i++)
    h[i] = at(l, HIDDEN_STATES, token * HIDDEN + i);
  project(l, options & LORA ? FUSED : KV_A, options & LORA ? Q_RANK : 0, ROW, h, rows[token]);
  if (options & LORA) {
    project(l, FUSED, 0, Q_RANK, h, q_c);
    normalise(l, Q_NORM, q_c, Q_RANK);
    project(l, Q_B, 0, QUERY, q_c, q[token]);
  } else {
    project(l, Q_PROJ, 0, QUERY, h, q[token]);
  }
  normalise(l, KV_NORM, rows[token], RANK);
  rotate(l, options & NEOX, token, rows[token] + RANK);
  for (int64_t head = 0; head < HEADS; head++)
    rotate(l, options & NEOX, token, q[token] + head * HEAD + NOPE);
  for (int64_t i = 0; i < QUERY && options & SCALED; i++)
    q[token][i] *= get(&l->scaling->tensor, token);
  project(l, KV_B, 0, HEADS * (NOPE + V), rows[token], expanded[token]);
}

static void define_attention(int64_t token, int64_t head, double *out) {
  double sum = 0;
  for (int64_t i = 0; i < V; i++)
    out[i] = 0;
  for (int64_t key = 0; key <= token; key++) {
    const double *k = expanded[key] + head * (NOPE + V), *query = q[token] + head * HEAD;
    double score = 0;
    for (int64_t i = 0; i < HEAD; i++)
      score += query[i] * (i < NOPE ? k[i] : rows[key][RANK + i - NOPE]);
    sum += exp(score * scale);
    for (int64_t i = 0; i < V; i++)
      out[i] += exp(score * scale) * k[NOPE + i];
  }
  for (int64_t i = 0; i < V; i++)
    out[i] /= sum;
}

static void define(const layer *l, int options, double (*out)[HIDDEN]) {
  for (int64_t token = 0; token < TOKENS; token++)
    define_token(l, options, token);
  for (int64_t token = 0; token < TOKENS; token++) {
    double h[HIDDEN], gate[VALUES], attended[VALUES];
    for (int64_t i = 0; i < HIDDEN; i++)
      h[i] = at(l, HIDDEN_STATES, token * HIDDEN + i);
    for (int64_t head = 0; head < HEADS; head++)
      define_attention(token, head, attended + head * V);
    if (options & GATED)
      project(l, GATE, 0, VALUES, h, gate);
    for (int64_t i = 0; i < VALUES && options & GATED; i++)
      attended[i] /= 1 + exp(-gate[i]);
    project(l, O_PROJ, 0, HIDDEN, attended, out[token]);
  }
}

START_TEST(O4_O7_the_layer_is_its_definition) {
  DLDataType dtype = floats[_i % 3];
  double tolerance = dtype.bits == 32 ? 1e-6 : dtype.code == kDLBfloat ? 2e-2 : 2e-3, expected[TOKENS][HIDDEN];
  for (int options = 0; options < N_OPTIONS; options++) {
    layer l;
    make_layer(&l, dtype, options);
    define(&l, options, expected);
    check_call("multi_head_latent_attention", both[_i / 3], l.values, N_VALUES);
    for (int64_t i = 0; i < TOKENS * HIDDEN; i++)
      ck_assert_double_eq_tol(get(&l.out->tensor, element_offset(&l.out->tensor, i)), expected[i / HIDDEN][i % HIDDEN],
                              tolerance);
    unmake_layer(&l);
  }
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- cache */

/* Sequence i has every other block, from the last one on. */
static void give_cache(layer *l, DLDataType dtype, int64_t sequences) {
  give(l, CACHE, make(dtype, SHAPE(BLOCKS, BLOCK, ROW), 1));
  give(l, TABLE, make(int32, SHAPE(sequences, BLOCKS / 2), 0));
  give(l, LENS, make(int64, SHAPE(sequences), 0));
  for (int64_t i = 0; i < sequences * BLOCKS / 2; i++)
    set(&l->tensors[TABLE]->tensor, i,
        (double)(sequences == 1 ? BLOCKS - 1 - i : BLOCKS - 1 - 2 * (i % (BLOCKS / 2)) - i / (BLOCKS / 2)));
}

/* Shows the layer only tokens `first` to `first` + n - 1. */
static void show_tokens(layer *l, int64_t first, int64_t n) {
  owned *all[] = {l->tensors[POSITION_IDS], l->tensors[HIDDEN_STATES], l->out, l->scaling};
  for (int i = 0; i < 4; i++)
    if (all[i]) {
      all[i]->shape[0] = n;
      all[i]->tensor.byte_offset = (uint64_t)(first * fl_stride(&all[i]->tensor, 0) * all[i]->tensor.dtype.bits / 8);
    }
}

/* Filled in chunks, or token by token (where attention is in the latent space), the cache gives what it gives at once:
 * and it holds the rows of the definition, and nothing else is written. */
START_TEST(a_cache_makes_no_difference) {
  static const int64_t chunks[][TOKENS] = {{6}, {2, 3, 1}, {1, 1, 1, 1, 1, 1}, {4, 1, 1}};
  for (int options = 0; options < N_OPTIONS; options += 7)
    for (int c = 0; c < 4; c++) {
      layer l;
      double expected[TOKENS][HIDDEN];
      make_layer(&l, float32, options);
      define(&l, options, expected);
      give_cache(&l, float32, 1);
      owned *untouched = make(float32, SHAPE(BLOCKS, BLOCK, ROW), 1);
      for (int64_t first = 0, i = 0; first < TOKENS; first += chunks[c][i], i++) {
        show_tokens(&l, first, chunks[c][i]);
        set(&l.tensors[LENS]->tensor, 0, (double)(first + chunks[c][i]));
        check_call("multi_head_latent_attention", both[_i], l.values, N_VALUES);
      }
      show_tokens(&l, 0, TOKENS);
      for (int64_t i = 0; i < TOKENS * HIDDEN; i++)
        ck_assert_double_eq_tol(get(&l.out->tensor, element_offset(&l.out->tensor, i)),
                                expected[i / HIDDEN][i % HIDDEN], 1e-6);
      for (int64_t i = 0; i < TOKENS * ROW; i++) {
        int64_t token = i / ROW, block = BLOCKS - 1 - token / BLOCK, in_cache = (block * BLOCK + token % BLOCK) * ROW;
        ck_assert_double_eq_tol(at(&l, CACHE, in_cache + i % ROW), rows[token][i % ROW], 1e-6);
        set(&untouched->tensor, element_offset(&untouched->tensor, in_cache + i % ROW),
            at(&l, CACHE, in_cache + i % ROW));
      }
      ck_assert_mem_eq(untouched->tensor.data, l.tensors[CACHE]->tensor.data, untouched->bytes);
      unmake(untouched);
      unmake_layer(&l);
    }
}
END_TEST

/* Two sequences in one call, one token or three each, are as two calls. */
START_TEST(sequences_do_not_see_each_other) {
  for (int64_t each = 1; each <= 3; each += 2) {
    layer l, alone;
    make_layer(&l, float32, LORA);
    give_cache(&l, float32, 2);
    show_tokens(&l, 0, 2 * each);
    for (int i = 0; i < 2; i++)
      set(&l.tensors[LENS]->tensor, i, (double)each);
    check_call("multi_head_latent_attention", both[_i], l.values, N_VALUES);
    make_layer(&alone, float32, LORA);
    for (int i = 0; i < 2; i++) {
      show_tokens(&alone, i * each, each);
      check_call("multi_head_latent_attention", both[_i], alone.values, N_VALUES);
    }
    show_tokens(&l, 0, 2 * each);
    show_tokens(&alone, 0, 2 * each);
    for (int64_t i = 0; i < 2 * each * HIDDEN; i++)
      ck_assert_double_eq_tol(get(&l.out->tensor, element_offset(&l.out->tensor, i)),
                              get(&alone.out->tensor, element_offset(&alone.out->tensor, i)), 1e-6);
    unmake_layer(&l);
    unmake_layer(&alone);
  }
}
END_TEST

START_TEST(O5_the_default_agrees_with_the_reference) {
  for (int cached = 0; cached < 3; cached++)
    for (int options = 0; options < N_OPTIONS; options++) {
      layer l[2];
      for (int which = 0; which < 2; which++) {
        make_layer(&l[which], floats[_i], options);
        if (cached) {
          give_cache(&l[which], floats[_i], cached == 1 ? 1 : 2);
          fill(&l[which].tensors[CACHE]->tensor, 9);
          show_tokens(&l[which], 0, 2);
          for (int i = 0; i < cached; i++)
            set(&l[which].tensors[LENS]->tensor, i, 9 + i);
        }
        check_call("multi_head_latent_attention", both[which], l[which].values, N_VALUES);
      }
      check_close("multi_head_latent_attention", &l[1].out->tensor, &l[0].out->tensor);
      unmake_layer(&l[0]);
      unmake_layer(&l[1]);
    }
}
END_TEST

START_TEST(O2_no_tokens_write_nothing) {
  layer l;
  make_layer(&l, bfloat16, LORA);
  give_cache(&l, bfloat16, 1);
  show_tokens(&l, 0, 0);
  set(&l.tensors[LENS]->tensor, 0, 3);
  owned *untouched = make(bfloat16, SHAPE(BLOCKS, BLOCK, ROW), 1);
  check_call("multi_head_latent_attention", both[_i], l.values, N_VALUES);
  ck_assert_mem_eq(untouched->tensor.data, l.tensors[CACHE]->tensor.data, untouched->bytes);
  unmake(untouched);
  unmake_layer(&l);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- refusals */

START_TEST(O6_indices_out_of_range_are_bad_arguments_and_nothing_is_written) {
  static const struct {
    int tensor, at;
    double index;
    const char *message;
  } cases[] = {
      {POSITION_IDS, 5, POSITIONS, "argument 'position_ids'[5] is 64, expected 0 to 63 (rows of 'cos')"},
      {TABLE, 1, BLOCKS, "argument 'block_table'[0, 1] is 8, expected 0 to 7 (blocks of 'kv_cache')"},
      {LENS, 0, 5, "argument 'seq_lens'[0] is 5, expected 6 to 16 (rows in blocks of 'block_table')"},
      {LENS, 0, 17, "argument 'seq_lens'[0] is 17, expected 6 to 16 (rows in blocks of 'block_table')"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    layer l;
    make_layer(&l, float32, LORA);
    give_cache(&l, float32, 1);
    set(&l.tensors[LENS]->tensor, 0, TOKENS);
    set(&l.tensors[cases[i].tensor]->tensor, cases[i].at, cases[i].index);
    owned *untouched = make(float32, SHAPE(BLOCKS, BLOCK, ROW), 1);
    ck_assert_int_eq(call_impl("multi_head_latent_attention", both[_i], l.values, N_VALUES), FL_EINVAL);
    ck_assert_str_eq(message, cases[i].message);
    ck_assert_mem_eq(untouched->tensor.data, l.tensors[CACHE]->tensor.data, untouched->bytes);
    ck_assert_mem_eq(untouched->tensor.data, l.out->tensor.data, l.out->bytes);
    unmake(untouched);
    unmake_layer(&l);
  }
}
END_TEST

START_TEST(O6_bad_arguments_are_refused_with_a_reason) {
  layer l;
  make_layer(&l, float32, LORA);
  give_cache(&l, float32, 1);
  owned *four = make(int64, SHAPE(4), 0), *tables = make(int32, SHAPE(4, 2), 0),
        *q_proj = make(float32, SHAPE(QUERY, HIDDEN), 0);
  const struct {
    const char *message;
    struct {
      int at;
      fl_value value;
    } changes[2];
  } cases[] = {
      {"argument 'q_a_layernorm': none, expected Tensor while 'fused_qkv_a_proj' is given", {{Q_NORM, fl_none()}}},
      {"argument 'q_a_layernorm': given, expected none while 'fused_qkv_a_proj' is none", {{FUSED, fl_none()}}},
      {"argument 'q_proj': given, expected none while 'fused_qkv_a_proj' is given",
       {{Q_PROJ, fl_tensor(&q_proj->tensor)}}},
      {"argument 'block_table': none, expected all of 'kv_cache', 'block_table' and 'seq_lens' or none",
       {{TABLE, fl_none()}}},
      {"argument 'seq_lens': none, expected all of 'kv_cache', 'block_table' and 'seq_lens' or none",
       {{LENS, fl_none()}}},
      {"argument 'block_table': given while 'kv_cache' is none, expected all of 'kv_cache', 'block_table' and "
       "'seq_lens' "
       "or none",
       {{CACHE, fl_none()}}},
      {"argument 'seq_lens': 4 sequences, expected a divisor of 6 (tokens of 'hidden_states')",
       {{LENS, fl_tensor(&four->tensor)}, {TABLE, fl_tensor(&tables->tensor)}}},
      {"argument 'epsilon': -1, expected a finite number, 0 or more", {{EPSILON, fl_float(-1)}}},
      {"argument 'kv_a_layernorm': shape [10], expected [16] (argument 'kv_lora_rank')", {{KV_NORM, l.values[Q_NORM]}}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fl_value values[N_VALUES];
    char expected[512];
    memcpy(values, l.values, sizeof values);
    for (int c = 0; c < 2; c++)
      if (cases[i].changes[c].at)
        values[cases[i].changes[c].at] = cases[i].changes[c].value;
    snprintf(expected, sizeof expected, "multi_head_latent_attention: %s", cases[i].message);
    check_refused("multi_head_latent_attention", expected, values, N_VALUES);
  }
  unmake(four);
  unmake(tables);
  unmake(q_proj);
  unmake_layer(&l);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, O4_O7_the_layer_is_its_definition, 0, 6);
  tcase_add_loop_test(tests, a_cache_makes_no_difference, 0, 2);
  tcase_add_loop_test(tests, sequences_do_not_see_each_other, 0, 2);
  tcase_add_loop_test(tests, O5_the_default_agrees_with_the_reference, 0, 3);
  tcase_add_loop_test(tests, O2_no_tokens_write_nothing, 0, 2);
  tcase_add_loop_test(tests, O6_indices_out_of_range_are_bad_arguments_and_nothing_is_written, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_latent_layer", add_tests, 20);
}
