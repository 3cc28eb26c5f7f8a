/* Attention over a paged cache and writes to it: both CPU kernels by hand, against each other, and what they must not
 * read. */
#include "tests/kernels.h"
#include "tests/suite.h"

#include <math.h>

enum { BLOCKS = 96, BLOCK = 16, TABLE = 48, MOST_SEQUENCES = 5 };

/* Queries and tokens of each sequence. */
typedef struct batch {
  int64_t n, padding; /* sequences, tokens behind the last */
  int64_t queries[MOST_SEQUENCES], lengths[MOST_SEQUENCES];
} batch;

typedef struct features {
  bool float8, not_causal, alibi, sinks, scale_for_each_head;
  int64_t left, right;
  double soft_cap;
} features;
static const features plain = {.left = -1, .right = -1};

typedef struct sizes {
  int64_t heads, kv_heads, size;
} sizes;

/* A call of paged_attention. */
typedef struct paged {
  features features;
  owned *query, *keys, *values, *table, *starts, *lens, *slopes, *sinks, *k_scale, *v_scale;
} paged;

static int64_t tokens_of(const batch *b) {
  int64_t n = b->padding;
  for (int64_t i = 0; i < b->n; i++)
    n += b->queries[i];
  return n;
}

/* Blocks of its own for each sequence, from the last one down; entries behind are -77. */
static paged make_paged(DLDataType dtype, DLDataType index, const batch *b, sizes s, features f, int64_t padding) {
  DLDataType cached = f.float8 ? float8 : dtype;
  paged p = {.features = f,
             .query = make_bounded(dtype, SHAPE(tokens_of(b), s.heads, s.size), padding, 1, 1),
             .keys = make_bounded(cached, SHAPE(BLOCKS, BLOCK, s.kv_heads, s.size), padding, 2, 1),
             .values = make_bounded(cached, SHAPE(BLOCKS, BLOCK, s.kv_heads, s.size), padding + 1, 3, 1),
             .table = make(index, SHAPE(b->n, TABLE), padding),
             .starts = make(index, SHAPE(b->n + 1), 0),
             .lens = make_indices(index, SHAPE(b->n), b->lengths),
             .slopes = f.alibi ? make_bounded(float32, SHAPE(s.heads), 0, 4, 0.1) : NULL,
             .sinks = f.sinks ? make_bounded(dtype, SHAPE(s.heads), 0, 5, 1) : NULL};
  if (f.float8) {
    int64_t scales = f.scale_for_each_head ? s.kv_heads : 1;
    p.k_scale = make_bounded(float32, SHAPE(scales), 0, 6, 1);
    p.v_scale = make_bounded(float32, SHAPE(scales), 0, 7, 1);
  }
  set(&p.starts->tensor, 0, 0);
  for (int64_t i = 0, start = 0, block = BLOCKS; i < b->n; i++) {
    set(&p.starts->tensor, i + 1, (double)(start += b->queries[i]));
    for (int64_t j = 0; j < TABLE; j++)
      set(&p.table->tensor, element_offset(&p.table->tensor, i * TABLE + j),
          j * BLOCK < b->lengths[i] ? (double)--block : -77);
  }
  return p;
}

static void unmake_paged(paged *p) {
  UNMAKE(p->query, p->keys, p->values, p->table, p->starts, p->lens);
  owned *optional[] = {p->slopes, p->sinks, p->k_scale, p->v_scale};
  for (int i = 0; i < 4; i++)
    if (optional[i])
      unmake(optional[i]);
}

static fl_status attend(const char *id, const paged *p, owned *out, owned *lse) {
  const features *f = &p->features;
  fl_value values[] = {value_of(p->query),  value_of(p->keys),    value_of(p->values),   value_of(p->table),
                       value_of(p->starts), value_of(p->lens),    fl_float(0.4),         fl_bool(!f->not_causal),
                       fl_int(f->left),     fl_int(f->right),     fl_float(f->soft_cap), value_of(p->slopes),
                       value_of(p->sinks),  value_of(p->k_scale), value_of(p->v_scale),  value_of(out),
                       value_of(lse)};
  return call_impl("paged_attention", id, values, 17);
}

/* Results of a call; what was in them before is no number. */
typedef struct results {
  owned *out, *lse;
} results;

static results run(const char *id, const paged *p, int64_t padding) {
  const int64_t *shape = p->query->shape;
  results r = {make_constant(p->query->tensor.dtype, 3, shape, padding, NAN),
               make_constant(float32, SHAPE(shape[1], shape[0]), padding, NAN)};
  ck_assert_msg(attend(id, p, r.out, r.lse) == FL_OK, "%s", message);
  return r;
}

static void free_results(results r) {
  UNMAKE(r.out, r.lse);
}

/* ------------------------------------------------------------------------------------------------------- by hand */

/* Scores 0 and ln 3 of one token that sees two: weights 1/4 and 3/4, and with a sink of ln 4 half of that. */
START_TEST(weights_are_exponentials_of_scores_and_a_sink_takes_its_share) {
  const batch one = {1, 0, {1}, {2}};
  for (int with_sink = 0; with_sink < 2; with_sink++) {
    features f = plain;
    f.sinks = with_sink;
    paged p = make_paged(float32, int32, &one, (sizes){1, 1, 1}, f, 0);
    int64_t row = (BLOCKS - 1) * BLOCK;
    set(&p.query->tensor, 0, 2.5);
    set(&p.keys->tensor, row, 0);
    set(&p.keys->tensor, row + 1, log(3));
    p.values->tensor.strides = NULL;
    set(&p.values->tensor, row, 8);
    set(&p.values->tensor, row + 1, 16);
    if (with_sink)
      set(&p.sinks->tensor, 0, log(4));
    results r = run(both[_i], &p, 0);
    ck_assert_double_eq_tol(get(&r.out->tensor, 0), with_sink ? 7 : 14, 1e-5);
    ck_assert_double_eq_tol(get(&r.lse->tensor, 0), log(with_sink ? 8 : 4), 1e-6);
    free_results(r);
    unmake_paged(&p);
  }
}
END_TEST

/* ----------------------------------------------------------------------------------------------- against each other */

static const batch batches[] = {
    {1, 0, {1}, {700}},                          /* long and alone: in parts */
    {3, 2, {1, 1, 1}, {5, 129, 300}},            /* decode */
    {5, 1, {3, 0, 40, 1, 0}, {30, 9, 40, 2, 0}}, /* mixed, some without tokens */
    {1, 0, {150}, {400}},                        /* more rows than a tile has, at the end of a context */
    {2, 0, {2, 4}, {2, 260}},
};
enum { N_BATCHES = sizeof batches / sizeof batches[0] };

static const struct {
  sizes sizes;
  features features;
} kinds[] = {
    {{4, 1, 16}, {.left = -1, .right = -1}},
    {{3, 1, 32}, {.left = -1, .right = -1, .sinks = true}},
    {{8, 1, 20}, {.left = 40, .right = -1, .soft_cap = 0.5}},
    {{12, 1, 8}, {.left = -1, .right = -1, .alibi = true, .sinks = true}},
    {{2, 2, 64}, {.left = 5, .right = 3, .not_causal = true}},
    {{4, 2, 32}, {.left = -1, .right = -1, .float8 = true}},
    {{10, 2, 20}, {.left = 33, .right = -1, .float8 = true, .scale_for_each_head = true, .soft_cap = 1, .alibi = true}},
    {{2, 1, 33}, {.left = -1, .right = -1, .not_causal = true}},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

START_TEST(O2_O5_both_implementations_agree_whatever_the_layout) {
  DLDataType dtype = floats[_i / N_KINDS];
  int kind = _i % N_KINDS;
  int step = is_sparse() ? 3 : 1; /* other batches in each round */
  for (int i = _i % step; i < N_BATCHES; i += step)
    for (int strided = 0; strided < 2; strided++) {
      paged p =
          make_paged(dtype, strided ? int64 : int32, &batches[i], kinds[kind].sizes, kinds[kind].features, strided * 3);
      results expected = run("reference.c", &p, 0), given = run("default.flagos", &p, strided * 5);
      check_close("paged_attention", &given.out->tensor, &expected.out->tensor);
      check_close("paged_attention", &given.lse->tensor, &expected.lse->tensor);
      free_results(expected);
      free_results(given);
      unmake_paged(&p);
    }
}
END_TEST

/* The calling thread alone. */
static fl_status in_one_range(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  (void)grain;
  return n > 0 ? body(user, 0, n) : FL_OK;
}

START_TEST(a_split_over_threads_does_not_change_a_bit) {
  int kind = _i;
  for (int i = 0; i < N_BATCHES; i++) {
    paged p = make_paged(bfloat16, int32, &batches[i], kinds[kind].sizes, kinds[kind].features, 0);
    fl_parallel_for_fn pool = registry_parallel_for;
    results split = run("default.flagos", &p, 0);
    registry_parallel_for = in_one_range;
    load_plugin();
    results whole = run("default.flagos", &p, 0);
    registry_parallel_for = pool;
    load_plugin();
    ck_assert_mem_eq(split.out->tensor.data, whole.out->tensor.data, whole.out->bytes);
    ck_assert_mem_eq(split.lse->tensor.data, whole.lse->tensor.data, whole.lse->bytes);
    free_results(split);
    free_results(whole);
    unmake_paged(&p);
  }
}
END_TEST

/* Heads of a cache that is keys and values by turns, [blocks, 2, size, heads, d], are strides and an offset. */
START_TEST(O2_keys_and_values_may_lie_in_one_tensor) {
  const batch b = {2, 0, {1, 20}, {60, 33}};
  enum { H = 2, D = 16, ROWS = BLOCK * H * D };
  paged p = make_paged(float32, int32, &b, (sizes){4, H, D}, plain, 0), one = p;
  owned *cache = make(float32, SHAPE(BLOCKS, 2, BLOCK, H, D), 0), views[2];
  for (int64_t i = 0; i < BLOCKS * (int64_t)ROWS; i++)
    for (int which = 0; which < 2; which++)
      set(&cache->tensor, i / ROWS * 2 * ROWS + which * ROWS + i % ROWS, element(which ? p.values : p.keys, i));
  for (int which = 0; which < 2; which++) {
    views[which] = *p.keys;
    views[which].tensor = (DLTensor){.data = cache->tensor.data,
                                     .byte_offset = (uint64_t)which * ROWS * sizeof(float),
                                     .device = cache->tensor.device,
                                     .ndim = 4,
                                     .dtype = float32,
                                     .shape = views[which].shape,
                                     .strides = views[which].strides};
    const int64_t strides[] = {2 * ROWS, H * D, D, 1};
    memcpy(views[which].strides, strides, sizeof strides);
  }
  one.keys = &views[0];
  one.values = &views[1];
  results expected = run(both[_i], &p, 0), given = run(both[_i], &one, 0);
  ck_assert_mem_eq(given.out->tensor.data, expected.out->tensor.data, expected.out->bytes);
  ck_assert_mem_eq(given.lse->tensor.data, expected.lse->tensor.data, expected.lse->bytes);
  free_results(expected);
  free_results(given);
  unmake_paged(&p);
  unmake(cache);
}
END_TEST

/* --------------------------------------------------------------------------------------------- what is not read */

/* Sets one row of both caches, of a sequence's token. */
static void set_row(const paged *p, int64_t sequence, int64_t token, double value) {
  int64_t row = (int64_t)element(p->table, sequence * TABLE + token / BLOCK) * BLOCK + token % BLOCK;
  int64_t n = p->keys->shape[2] * p->keys->shape[3];
  for (int64_t i = 0; i < n; i++) {
    set(&p->keys->tensor, element_offset(&p->keys->tensor, row * n + i), value);
    set(&p->values->tensor, element_offset(&p->values->tensor, row * n + i), value);
  }
}

/* Of block 0, which none has, and in blocks behind the last token. */
START_TEST(rows_behind_a_sequence_and_other_blocks_are_not_read) {
  const batch b = {4, 1, {1, 17, 1, 0}, {5, 37, 600, 20}};
  for (int kind = 0; kind < N_KINDS; kind++) {
    paged p = make_paged(float32, int32, &b, kinds[kind].sizes, kinds[kind].features, 0);
    results expected = run(both[_i], &p, 0);
    for (int64_t i = 0; i < p.keys->shape[2] * p.keys->shape[3] * BLOCK; i++) {
      set(&p.keys->tensor, element_offset(&p.keys->tensor, i), NAN);
      set(&p.values->tensor, element_offset(&p.values->tensor, i), NAN);
    }
    for (int64_t i = 0; i < 3; i++)
      for (int64_t token = b.lengths[i]; token % BLOCK; token++)
        set_row(&p, i, token, NAN);
    for (int64_t i = 0; i < TABLE; i++) /* the last sequence has no queries: its table is not looked at */
      set(&p.table->tensor, 3 * TABLE + i, -1);
    results given = run(both[_i], &p, 0);
    for (int64_t i = 0; i < count(&given.out->tensor); i++)
      ck_each(isfinite(element(given.out, i)), "element %d is not finite", (int)i);
    ck_assert_mem_eq(given.out->tensor.data, expected.out->tensor.data, expected.out->bytes);
    ck_assert_mem_eq(given.lse->tensor.data, expected.lse->tensor.data, expected.lse->bytes);
    free_results(expected);
    free_results(given);
    unmake_paged(&p);
  }
}
END_TEST

/* NaN in token 20 of 40: with causal attention from there on, with a window of 4 for so many queries, and of decode
 * none where the window is past it. */
START_TEST(nan_in_a_row_reaches_the_queries_that_see_it_and_no_others) {
  enum { TOKENS = 40, BAD = 20 };
  static const struct {
    int64_t left, right, first, end; /* queries that see it */
    bool not_causal;
  } cases[] = {{-1, -1, BAD, TOKENS, false},
               {4, -1, BAD, BAD + 5, false},
               {4, 2, BAD - 2, BAD + 5, true},
               {-1, -1, 0, TOKENS, true},
               {0, 5, BAD, BAD + 1, false}};
  for (int queries = 1; queries <= TOKENS; queries += TOKENS - 1)
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
      const batch b = {1, 0, {queries}, {TOKENS}};
      features f = {.left = cases[i].left, .right = cases[i].right, .not_causal = cases[i].not_causal};
      paged p = make_paged(_i / 2 ? bfloat16 : float32, int32, &b, (sizes){4, 1, 32}, f, 0);
      set_row(&p, 0, BAD, NAN);
      results r = run(both[_i % 2], &p, 0);
      for (int64_t j = 0; j < queries * 4; j++) {
        int64_t position = TOKENS - queries + j / 4;
        bool sees = position >= cases[i].first && position < cases[i].end;
        ck_each(isnan(element(r.out, j * 32 + 7)) == sees, "case %d, query %d", (int)i, (int)position);
        ck_each(isnan(element(r.lse, j % 4 * queries + j / 4)) == sees, "case %d, lse %d", (int)i, (int)position);
      }
      free_results(r);
      unmake_paged(&p);
    }
}
END_TEST

START_TEST(nan_in_a_query_stays_in_its_head) {
  const batch b = {1, 0, {6}, {50}};
  paged p = make_paged(_i / 2 ? bfloat16 : float32, int32, &b, (sizes){4, 2, 16}, plain, 0);
  set(&p.query->tensor, (3 * 4 + 2) * 16 + 5, NAN);
  results r = run(both[_i % 2], &p, 0);
  for (int64_t i = 0; i < 6 * 4 * 16; i++)
    ck_each(isnan(element(r.out, i)) == (i / 16 == 3 * 4 + 2), "element %d", (int)i);
  for (int64_t i = 0; i < 4 * 6; i++)
    ck_each(isnan(element(r.lse, i)) == (i == 2 * 6 + 3), "lse %d", (int)i);
  free_results(r);
  unmake_paged(&p);
}
END_TEST

/* Also where a product of smaller numbers than normal ones counts as 0, in the block of keys of the infinite one and in
 * those that have none. */
START_TEST(the_smallest_number_times_infinity_is_infinite) {
  enum { NUMBER = 5 };
  const int64_t size = _i ? 32 : 16, queries = _i ? 1 : 30;
  const batch b = {1, 0, {queries}, {400}};
  paged p = make_paged(bfloat16, int32, &b, (sizes){4, 2, size}, plain, 0);
  for (int64_t row = 0; row < queries * 4; row++)
    set(&p.query->tensor, row * size + NUMBER, ldexp(1, -133));
  set(&p.keys->tensor, (int64_t)element(p.table, 200 / BLOCK) * BLOCK * 2 * size + NUMBER, -INFINITY);
  results expected = run("reference.c", &p, 0), given = run("default.flagos", &p, 0);
  for (int64_t i = 0; i < queries * 4 * size; i++)
    ck_each(isfinite(element(given.out, i)), "element %d is not finite", (int)i);
  check_close("paged_attention", &given.out->tensor, &expected.out->tensor);
  free_results(expected);
  free_results(given);
  unmake_paged(&p);
}
END_TEST

/* One of 400 keys is all that some numbers of the query meet, and it takes most of the weight. */
START_TEST(a_large_query_sees_a_key_that_is_smaller_than_normal_numbers) {
  enum { SIZE = 32, LARGE = 16 };
  const batch b = {1, 0, {1}, {400}};
  paged p = make_paged(bfloat16, int32, &b, (sizes){4, 2, SIZE}, plain, 0);
  for (int64_t i = 0; i < LARGE; i++) {
    for (int64_t row = 0; row < 4; row++)
      set(&p.query->tensor, row * SIZE + i, ldexp(1, 127));
    for (int64_t row = 0; row < (int64_t)BLOCKS * BLOCK * 2; row++)
      set(&p.keys->tensor, row * SIZE + i, 0);
    set(&p.keys->tensor, (int64_t)element(p.table, 200 / BLOCK) * BLOCK * 2 * SIZE + i, ldexp(1, -127));
  }
  results expected = run("reference.c", &p, 0), given = run("default.flagos", &p, 0);
  check_close("paged_attention", &given.out->tensor, &expected.out->tensor);
  free_results(expected);
  free_results(given);
  unmake_paged(&p);
}
END_TEST

START_TEST(tokens_behind_the_last_sequence_are_padding) {
  const batch some = {2, 3, {1, 2}, {4, 9}}, none = {0, 2, {0}, {0}}, empty = {0, 0, {0}, {0}};
  const batch *const all[] = {&some, &none, &empty};
  for (int i = 0; i < 3; i++) {
    paged p = make_paged(bfloat16, int64, all[i], (sizes){4, 2, 8}, plain, 0);
    results r = run(both[_i], &p, 2);
    int64_t tokens = tokens_of(all[i]), used = tokens - all[i]->padding;
    for (int64_t j = 0; j < tokens * 4 * 8; j++)
      ck_each((j / 32 < used) == (element(r.out, j) != 0), "element %d is %g", (int)j, element(r.out, j));
    for (int64_t j = 0; j < 4 * tokens; j++)
      ck_each((j % tokens < used) == (element(r.lse, j) != -INFINITY), "lse %d", (int)j);
    free_results(r);
    unmake_paged(&p);
  }
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- refusals */

START_TEST(O6_indices_out_of_range_are_bad_arguments_and_nothing_is_written) {
  enum { STARTS, LENS, BLOCK_TABLE };
  static const struct {
    int tensor;
    int64_t at;
    double value;
    const char *message;
  } cases[] = {
      {STARTS, 0, 1, "argument 'query_start_loc'[0] is 1, expected 0 to 0 (the start)"},
      {STARTS, 1, 7, "argument 'query_start_loc'[1] is 7, expected 0 to 6 (the one before and the tokens of 'query')"},
      {STARTS, 2, 3, "argument 'query_start_loc'[2] is 3, expected 4 to 6 (the one before and the tokens of 'query')"},
      {STARTS, 1, -1,
       "argument 'query_start_loc'[1] is -1, expected 0 to 6 (the one before and the tokens of 'query')"},
      {LENS, 0, 3,
       "argument 'seq_lens'[0] is 3, expected 4 to 768 (the sequence's tokens of 'query' and rows in blocks of "
       "'block_table')"},
      {LENS, 1, 769,
       "argument 'seq_lens'[1] is 769, expected 2 to 768 (the sequence's tokens of 'query' and rows in blocks of "
       "'block_table')"},
      {BLOCK_TABLE, TABLE + 2, BLOCKS, "argument 'block_table'[1, 2] is 96, expected 0 to 95 (blocks of 'key_cache')"},
      {BLOCK_TABLE, 0, -1, "argument 'block_table'[0, 0] is -1, expected 0 to 95 (blocks of 'key_cache')"},
  };
  const batch b = {2, 0, {4, 2}, {20, 48}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    paged p = make_paged(float32, int32, &b, (sizes){2, 1, 4}, plain, 0);
    owned *const indices[] = {p.starts, p.lens, p.table}, *out = make(float32, SHAPE(6, 2, 4), 0);
    owned *lse = make(float32, SHAPE(2, 6), 0), *untouched = make(float32, SHAPE(6, 2, 4), 0);
    set(&indices[cases[i].tensor]->tensor, cases[i].at, cases[i].value);
    ck_assert_int_eq(attend(both[_i], &p, out, lse), FL_EINVAL);
    ck_assert_str_eq(message, cases[i].message);
    ck_assert_mem_eq(out->tensor.data, untouched->tensor.data, out->bytes);
    UNMAKE(out, lse, untouched);
    unmake_paged(&p);
  }
}
END_TEST

START_TEST(O6_bad_arguments_of_attention_are_refused_with_a_reason) {
  enum { SCALE = 6, LEFT = 8, RIGHT, SOFT_CAP, K_SCALE = 13, V_SCALE };
  const batch b = {1, 0, {1}, {1}};
  paged p = make_paged(float32, int32, &b, (sizes){6, 2, 4}, plain, 0);
  owned *wide = make(float32, SHAPE(BLOCKS, BLOCK, 4, 4), 0), *codes = make(float8, SHAPE(BLOCKS, BLOCK, 2, 4), 0);
  owned *out = make(float32, SHAPE(1, 6, 4), 0), *lse = make(float32, SHAPE(6, 1), 0);
  owned *scale = make(float32, SHAPE(1), 0), *scales = make(float32, SHAPE(3), 0);
  fl_value none = fl_none(), one = value_of(scale), eight = value_of(codes);
  const struct {
    const char *message;
    struct {
      int at;
      fl_value value;
    } changes[4]; /* ended by an index of 0: the query stays */
  } cases[] = {
      {"argument 'key_cache': 4 heads, expected a divisor of the 6 heads of 'query'",
       {{1, value_of(wide)}, {2, value_of(wide)}}},
      {"argument 'value_cache': expected the dtype of 'key_cache'", {{1, eight}, {K_SCALE, one}, {V_SCALE, one}}},
      {"argument 'k_scale': none, expected Tensor while 'key_cache' is float8_e4m3fn", {{1, eight}, {2, eight}}},
      {"argument 'v_scale': none, expected Tensor while 'key_cache' is float8_e4m3fn",
       {{1, eight}, {2, eight}, {K_SCALE, one}}},
      {"argument 'v_scale': given, expected none unless 'key_cache' is float8_e4m3fn", {{V_SCALE, one}}},
      {"argument 'scale': inf, expected a finite number", {{SCALE, fl_float(INFINITY)}}},
      {"argument 'window_left': -2, expected -1 (no limit), 0 or more", {{LEFT, fl_int(-2)}}},
      {"argument 'window_right': -5, expected -1 (no limit), 0 or more", {{RIGHT, fl_int(-5)}}},
      {"argument 'soft_cap': -1, expected a finite number, 0 or more", {{SOFT_CAP, fl_float(-1)}}},
      {"argument 'k_scale': shape [3], expected [1], [] or [2] (k of 'key_cache')",
       {{1, eight}, {2, eight}, {K_SCALE, value_of(scales)}, {V_SCALE, one}}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fl_value values[] = {value_of(p.query),
                         value_of(p.keys),
                         value_of(p.values),
                         value_of(p.table),
                         value_of(p.starts),
                         value_of(p.lens),
                         fl_float(1),
                         fl_bool(true),
                         fl_int(-1),
                         fl_int(-1),
                         fl_float(0),
                         none,
                         none,
                         none,
                         none,
                         value_of(out),
                         value_of(lse)};
    char expected[512];
    for (int j = 0; j < 4 && cases[i].changes[j].at; j++)
      values[cases[i].changes[j].at] = cases[i].changes[j].value;
    snprintf(expected, sizeof expected, "paged_attention: %s", cases[i].message);
    check_refused("paged_attention", expected, values, 17);
  }
  unmake_paged(&p);
  UNMAKE(wide, codes, out, lse, scale, scales);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ writes to a cache */

static fl_status cache_rows(const char *id, owned *key, owned *value, owned *keys, owned *values, owned *slots,
                            owned *k_scale, owned *v_scale) {
  fl_value all[] = {value_of(key),   value_of(value),   value_of(keys),   value_of(values),
                    value_of(slots), value_of(k_scale), value_of(v_scale)};
  return call_impl("reshape_and_cache", id, all, 7);
}

/* Of 5 tokens with 4 slots the second is skipped, and of two with one slot the last stays; all else of the caches, what
 * lies between their rows too, is as before. */
START_TEST(rows_go_to_their_slots_and_nothing_else_changes) {
  enum { H = 3, D = 20, SIZE = 4, N = 2 * SIZE * H * D };
  static const int64_t slots[] = {6, -1, 1, 6}, token_of[2 * SIZE] = {-1, 2, -1, -1, -1, -1, 3, -1};
  DLDataType dtype = floats[_i / 2];
  for (int padding = 0; padding < 3; padding++)
    for (int wide = 0; wide < 2; wide++) {
      owned *key = make_bounded(dtype, SHAPE(5, H, D), padding, 1, 1), *keys[2], *values[2];
      owned *value = make_bounded(dtype, SHAPE(5, H, D), 0, 2, 1),
            *at = make_indices(wide ? int64 : int32, SHAPE(4), slots);
      for (int i = 0; i < 2; i++) {
        keys[i] = make_bounded(dtype, SHAPE(2, SIZE, H, D), padding, 3, 1);
        values[i] = make_bounded(dtype, SHAPE(2, SIZE, H, D), 2, 4, 1);
      }
      for (int64_t i = 0; i < N; i++) { /* by hand */
        int64_t token = token_of[i / (H * D)], from = token * H * D + i % (H * D);
        if (token < 0)
          continue;
        set(&keys[1]->tensor, element_offset(&keys[1]->tensor, i), element(key, from));
        set(&values[1]->tensor, element_offset(&values[1]->tensor, i), element(value, from));
      }
      ck_assert_int_eq(cache_rows(both[_i % 2], key, value, keys[0], values[0], at, NULL, NULL), FL_OK);
      ck_assert_mem_eq(keys[0]->tensor.data, keys[1]->tensor.data, keys[1]->bytes);
      ck_assert_mem_eq(values[0]->tensor.data, values[1]->tensor.data, values[1]->bytes);
      UNMAKE(key, value, at, keys[0], keys[1], values[0], values[1]);
    }
}
END_TEST

/* Nearest even after a division, at the ends of the range, and each head by its scale. */
START_TEST(rows_of_float8_are_divided_by_their_scale_clamped_and_rounded) {
  static const double given[] = {1, -3, 500, -1e30, INFINITY, -INFINITY, NAN, 17, 19, 0.3};
  static const double ones[] = {1, -3, 448, -448, 448, -448, NAN, 16, 20, 0.3125};
  static const double thirds[] = {0.34375, -1, 160, -448, 448, -448, NAN, 5.5, 6.5, 0.1015625};
  enum { D = sizeof given / sizeof given[0] };
  const int64_t slots[] = {3};
  DLDataType dtype = floats[_i / 2];
  owned *key = make(dtype, SHAPE(1, 2, D), 0), *keys = make_constant(float8, SHAPE(2, 2, 2, D), 0, 1);
  owned *values = make_constant(float8, SHAPE(2, 2, 2, D), 0, 1), *at = make_indices(int64, SHAPE(1), slots);
  owned *scales = make(float32, SHAPE(2), 0), *scale = make(float32, SHAPE(1), 0);
  set(&scales->tensor, 0, 1);
  set(&scales->tensor, 1, 3);
  set(&scale->tensor, 0, 3);
  for (int64_t i = 0; i < 2 * D; i++)
    set(&key->tensor, i, given[i % D]);
  for (int single = 0; single < 2; single++) {
    scale->tensor.ndim = single; /* of one element: [] or [1] */
    ck_assert_int_eq(cache_rows(both[_i % 2], key, key, keys, values, at, scales, scale), FL_OK);
    for (int64_t i = 0; i < 2 * D; i++) {
      double k = element(keys, 3 * 2 * D + i), v = element(values, 3 * 2 * D + i);
      double expected = i < D ? ones[i] : thirds[i % D];
      ck_each(isnan(expected) ? isnan(k) : k == expected, "key %d is %g, expected %g", (int)i, k, expected);
      ck_each(isnan(thirds[i % D]) ? isnan(v) : v == thirds[i % D], "value %d is %g", (int)i, v);
    }
    for (int64_t i = 0; i < 3 * 2 * D; i++)
      ck_each(element(keys, i) == 1 && element(values, i) == 1, "element %d has changed", (int)i);
  }
  UNMAKE(key, keys, values, at, scales, scale);
}
END_TEST

START_TEST(O6_slots_out_of_range_are_bad_arguments_and_nothing_is_written) {
  const int64_t slots[] = {0, 3, 8};
  owned *key = make_bounded(float32, SHAPE(3, 1, 4), 0, 1, 1), *keys = make(float32, SHAPE(2, 4, 1, 4), 0);
  owned *values = make(float32, SHAPE(2, 4, 1, 4), 0), *untouched = make(float32, SHAPE(2, 4, 1, 4), 0);
  owned *at = make_indices(int32, SHAPE(3), slots);
  ck_assert_int_eq(cache_rows(both[_i], key, key, keys, values, at, NULL, NULL), FL_EINVAL);
  ck_assert_str_eq(message, "argument 'slot_mapping'[2] is 8, expected less than 8 (rows of 'key_cache'), or -1");
  ck_assert_mem_eq(keys->tensor.data, untouched->tensor.data, keys->bytes);
  ck_assert_mem_eq(values->tensor.data, untouched->tensor.data, keys->bytes);
  UNMAKE(key, keys, values, untouched, at);
}
END_TEST

START_TEST(O6_bad_arguments_of_cache_writes_are_refused_with_a_reason) {
  owned *key = make(bfloat16, SHAPE(3, 2, 4), 0), *cache = make(bfloat16, SHAPE(2, 4, 2, 4), 0);
  owned *codes = make(float8, SHAPE(2, 4, 2, 4), 0), *four = make(int64, SHAPE(4), 0),
        *three = make(int64, SHAPE(3), 0);
  owned *scale = make(float32, SHAPE(1), 0);
  const struct {
    const char *message;
    owned *keys, *values, *slots, *k_scale, *v_scale;
  } cases[] = {
      {"argument 'slot_mapping': 4 slots, expected at most 3 (tokens of 'key')", cache, cache, four, NULL, NULL},
      {"argument 'value_cache': expected the dtype of 'key_cache'", codes, cache, three, scale, scale},
      {"argument 'k_scale': none, expected Tensor while 'key_cache' is float8_e4m3fn", codes, codes, three, NULL,
       scale},
      {"argument 'k_scale': given, expected none unless 'key_cache' is float8_e4m3fn", cache, cache, three, scale,
       scale},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    fl_value values[] = {value_of(key),
                         value_of(key),
                         value_of(cases[i].keys),
                         value_of(cases[i].values),
                         value_of(cases[i].slots),
                         value_of(cases[i].k_scale),
                         value_of(cases[i].v_scale)};
    char expected[512];
    snprintf(expected, sizeof expected, "reshape_and_cache: %s", cases[i].message);
    check_refused("reshape_and_cache", expected, values, 7);
  }
  UNMAKE(key, cache, codes, four, three, scale);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, weights_are_exponentials_of_scores_and_a_sink_takes_its_share, 0, 2);
  tcase_add_loop_test(tests, O2_O5_both_implementations_agree_whatever_the_layout, 0, 3 * N_KINDS);
  tcase_add_loop_test(tests, a_split_over_threads_does_not_change_a_bit, 0, N_KINDS);
  tcase_add_loop_test(tests, O2_keys_and_values_may_lie_in_one_tensor, 0, 2);
  tcase_add_loop_test(tests, rows_behind_a_sequence_and_other_blocks_are_not_read, 0, 2);
  tcase_add_loop_test(tests, nan_in_a_row_reaches_the_queries_that_see_it_and_no_others, 0, 4);
  tcase_add_loop_test(tests, nan_in_a_query_stays_in_its_head, 0, 4);
  tcase_add_loop_test(tests, the_smallest_number_times_infinity_is_infinite, 0, 2);
  tcase_add_test(tests, a_large_query_sees_a_key_that_is_smaller_than_normal_numbers);
  tcase_add_loop_test(tests, tokens_behind_the_last_sequence_are_padding, 0, 2);
  tcase_add_loop_test(tests, O6_indices_out_of_range_are_bad_arguments_and_nothing_is_written, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_of_attention_are_refused_with_a_reason);
  tcase_add_loop_test(tests, rows_go_to_their_slots_and_nothing_else_changes, 0, 6);
  tcase_add_loop_test(tests, rows_of_float8_are_divided_by_their_scale_clamped_and_rounded, 0, 6);
  tcase_add_loop_test(tests, O6_slots_out_of_range_are_bad_arguments_and_nothing_is_written, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_of_cache_writes_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_paged_attention", add_tests, 20);
}
