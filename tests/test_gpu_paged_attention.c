/*
 * paged_attention's GPU kernels at sizes and in mixtures that generated calls do not have: prefill and decode in one
 * call, keys in parts, tiles' ends, and contents that must not be read. What the CPU refuses cannot be checked before a
 * kernel runs: nothing outside of the tensors is touched whatever it is (which the address sanitizer watches, since the
 * stand-in's memory is the host's).
 */
#include "tests/gpu_twin.h"

#include <math.h>

enum { QUERY, KEY_CACHE, VALUE_CACHE, TABLE, STARTS, LENS, SCALE, CAUSAL, LEFT, RIGHT, SOFT_CAP };
enum { SLOPES = SOFT_CAP + 1, SINKS, K_SCALE, V_SCALE, OUT, LSE };

static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
enum { RUNS = 6, HALF_RUNS = 4 }; /* warps of 32, which have tensor cores, and of 64 */

static const gpu_setup *setup_of(int run) {
  return &gpu_setups[run % 2];
}

static DLDataType type_of(int run) {
  return types[run / 2];
}

static DLDataType half_type_of(int run) {
  return types[1 + run / 2];
}

/* Under a tool with fewer element types. */
static int runs(int n) {
  return sample() > 1 ? n / 2 : n;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

/* What a call is made of. */
typedef struct shape {
  int heads, kv_heads, size, block_rows, columns;
} shape;

typedef struct features {
  bool everything; /* not causal */
  int left, right; /* 0: no limit, else one more than it */
  double soft_cap;
  bool slopes, sinks, float8;
} features;

typedef struct sequence {
  int queries, length;
} sequence;

static void add_scale(twin *t, bool there, int heads, double low) {
  if (!there) {
    add_value(t, fl_none());
    return;
  }
  DLTensor *scale = add_tensor(t, float32, 1, heads);
  for (int i = 0; i < heads; i++)
    set(scale, i, low + 0.25 * i);
}

/* Rows of blocks that no sequence has are NaN, and so is what a sequence's last block has behind its end; its row of
 * the table says -1 and more than there are blocks where it needs none. Sequences without queries have no blocks at
 * all. */
static void place_sequences(twin *t, const shape *s, const sequence *sequences, int n, int padding) {
  DLTensor *caches[] = {&t->tensors[0][KEY_CACHE]->tensor, &t->tensors[0][VALUE_CACHE]->tensor};
  int64_t row_size = (int64_t)s->kv_heads * s->size;
  int next = n * s->columns;
  for (int64_t i = 0; i < n * s->columns; i++)
    set(&t->tensors[0][TABLE]->tensor, i, i % 2 ? -1 : 1 << 30);
  for (int i = 0, start = 0; i < n; i++, start += sequences[i - 1].queries) {
    set(&t->tensors[0][STARTS]->tensor, i, start);
    set(&t->tensors[0][LENS]->tensor, i, sequences[i].length);
    for (int j = 0; sequences[i].queries && j * s->block_rows < sequences[i].length; j++) {
      set(&t->tensors[0][TABLE]->tensor, i * s->columns + j, --next);
      for (int row = 0; row < s->block_rows && j * s->block_rows + row < sequences[i].length; row++)
        for (int k = 0; k < 2; k++)
          for (int64_t at = 0; at < row_size; at++) {
            uint32_t mixed = (uint32_t)(((next * s->block_rows + row) * row_size + at) * 2 + k) * 2654435761u;
            set(caches[k], (next * s->block_rows + row) * row_size + at, (double)(mixed >> 16) / 16384 - 2);
          }
    }
  }
  set(&t->tensors[0][STARTS]->tensor, n, (double)t->tensors[0][QUERY]->shape[0] - padding);
}

static twin make_paged(DLDataType dtype, const shape *s, const features *f, const sequence *sequences, int n,
                       int padding) {
  twin t = {.op = "paged_attention"};
  int tokens = padding;
  for (int i = 0; i < n; i++)
    tokens += sequences[i].queries;
  spread(add_tensor(&t, dtype, 3, tokens, s->heads, s->size), 1, -1, 1);
  for (int i = 0; i < 2; i++) {
    DLTensor *cache =
        add_tensor(&t, f->float8 ? float8 : dtype, 4, n * s->columns, s->block_rows, s->kv_heads, s->size);
    for (int64_t k = 0; k < count(cache); k++)
      set(cache, k, NAN);
  }
  add_tensor(&t, int32, 2, n, s->columns);
  add_tensor(&t, int64, 1, n + 1);
  add_tensor(&t, int32, 1, n);
  add_value(&t, fl_float(1 / sqrt(s->size)));
  add_value(&t, fl_bool(!f->everything));
  add_value(&t, fl_int(f->left - 1));
  add_value(&t, fl_int(f->right - 1));
  add_value(&t, fl_float(f->soft_cap));
  if (f->slopes)
    spread(add_tensor(&t, float32, 1, s->heads), 4, 0, 0.2);
  else
    add_value(&t, fl_none());
  if (f->sinks)
    spread(add_tensor(&t, dtype, 1, s->heads), 5, -1, 2);
  else
    add_value(&t, fl_none());
  add_scale(&t, f->float8, s->kv_heads, 0.5);
  add_scale(&t, f->float8, 1, 0.75);
  add_tensor(&t, dtype, 3, tokens, s->heads, s->size);
  add_tensor(&t, float32, 2, s->heads, tokens);
  place_sequences(&t, s, sequences, n, padding);
  return t;
}

/* ------------------------------------------------------------------------------------------------------------ tests */

static const sequence mixed[] = {{1, 200}, {0, 9}, {37, 37}, {1, 5}, {5, 90}, {70, 170}, {0, 0}, {1, 1}};
enum { MIXED = sizeof mixed / sizeof mixed[0], PADDING = 3 };

static const features all_features[] = {
    {.sinks = false},
    {.left = 20, .sinks = true},
    {.everything = true, .soft_cap = 2.5},
    {.everything = true, .left = 8, .right = 4, .slopes = true},
    {.slopes = true, .sinks = true, .float8 = true},
    {.left = 1, .soft_cap = 0.5, .float8 = true},
    {.left = 130, .soft_cap = 1, .slopes = true, .sinks = true},
    {.everything = true, .right = 1, .float8 = true},
};
enum { N_FEATURES = sizeof all_features / sizeof all_features[0] };

START_TEST(prefill_and_decode_in_one_call_with_all_features) {
  static const shape shapes[] = {{4, 2, 64, 16, 14}, {6, 1, 40, 8, 26}, {3, 3, 136, 7, 29}};
  fl_host *host = gpu_host(setup_of(_i));
  for (int i = 0; i < rounds(N_FEATURES); i++) {
    int which = (i + _i) % N_FEATURES;
    twin t = make_paged(type_of(_i), &shapes[i % 3], &all_features[which], mixed, MIXED, PADDING);
    mirror(&t, setup_of(_i));
    check_twin(host, &t, OUT, NULL, 0);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(keys_are_made_in_parts_where_there_is_workspace) {
  enum { ROOM = 1 << 20 };
  static const sequence decode[] = {{1, 640}, {1, 129}, {0, 300}, {1, 1}, {2, 400}};
  static const shape s = {6, 2, 24, 16, 40};
  static const struct {
    size_t size;
    bool parts;
  } rows[] = {
      {ROOM, true}, {2 * 6 * 6 * (24 + 2) * sizeof(float), true}, {1000, false}, {0, true}}; /* 0: the host brings it */
  fl_host *host = gpu_host(setup_of(_i));
  float *workspace = malloc(ROOM);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    twin t = make_paged(type_of(_i), &s, &all_features[(i * 2 + (size_t)_i) % N_FEATURES], decode, 5, 1);
    t.values[0][LEFT] = fl_int(500);
    mirror(&t, setup_of(_i));
    t.values[1][LEFT] = fl_int(500);
    memset(workspace, 0xff, ROOM); /* NaN */
    stand_in_clear();
    check_twin(host, &t, OUT, rows[i].size ? workspace : NULL, rows[i].size);
    ck_assert_int_eq(was_launched("paged_attention_join", type_of(_i)), rows[i].parts);
    free_twin(&t);
  }
  free(workspace);
  fl_host_destroy(host);
}
END_TEST

/* A window that is shorter than a part leaves nothing to divide. */
START_TEST(keys_of_a_short_window_stay_whole) {
  static const sequence decode[] = {{1, 640}};
  static const shape s = {2, 2, 16, 16, 40};
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_paged(type_of(_i), &s, &(features){.left = 65}, decode, 1, 0);
  mirror(&t, setup_of(_i));
  stand_in_clear();
  check_twin(host, &t, OUT, NULL, 0);
  ck_assert(!was_launched("paged_attention_join", type_of(_i)));
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* Rows that are aligned and that are not, of few and of many queries, around the ends of tiles. */
START_TEST(heads_of_all_sizes) {
  static const struct {
    int size, queries;
    const char *kernel, *fragments;
  } rows[] = {
      {8, 40, "paged_attention_many", "paged_attention_64"},   {12, 65, "paged_attention_many", "paged_attention_64"},
      {64, 1, "paged_attention", "paged_attention_64"},        {80, 64, "paged_attention_many", "paged_attention_128"},
      {99, 17, "paged_attention_many", "paged_attention_128"}, {128, 63, "paged_attention_many", "paged_attention_128"},
      {136, 3, "paged_attention", "paged_attention_256"},      {192, 33, "paged_attention", "paged_attention_256"},
      {256, 16, "paged_attention", "paged_attention_256"},
  };
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = (size_t)_i % 3; i<sizeof rows / sizeof rows[0]; i += sample()> 1 ? 3 : 1) {
    const shape s = {4, 2, rows[i].size, 16, 9};
    const sequence sequences[] = {{rows[i].queries, 128}, {1, 129}};
    twin t = make_paged(type_of(_i), &s, &all_features[i % 2 * 4], sequences, rows[i].queries > 1 ? 1 : 2, 0);
    mirror(&t, setup_of(_i));
    stand_in_clear();
    check_twin(host, &t, OUT, NULL, 0);
    bool fragments = _i % 2 == 0 && type_of(_i).bits == 16;
    ck_assert_msg(was_launched(fragments ? rows[i].fragments : rows[i].kernel, type_of(_i)), "%s", stand_in_log());
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* More heads to a group than a tile has rows. */
START_TEST(a_group_of_many_heads) {
  static const sequence sequences[] = {{1, 50}, {3, 60}};
  static const shape s = {71, 1, 16, 16, 4};
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_paged(type_of(_i), &s, &(features){.slopes = true, .sinks = true}, sequences, 2, 2);
  mirror(&t, setup_of(_i));
  check_twin(host, &t, OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* In a key or a value that some queries see and others, of the same tile, do not. */
START_TEST(an_infinity_and_NaN_reach_those_that_see_them) {
  enum { SIZE = 24, TOKENS = 40, ROWS = 16 };
  static const struct {
    uint32_t argument;
    int token;
    double value;
  } rows[] = {{VALUE_CACHE, 20, INFINITY}, {VALUE_CACHE, 39, NAN},    {VALUE_CACHE, 0, -INFINITY},
              {KEY_CACHE, 30, NAN},        {KEY_CACHE, 11, INFINITY}, {QUERY, 7, NAN}};
  static const shape s = {2, 1, SIZE, ROWS, 3};
  static const sequence sequences[] = {{TOKENS, TOKENS}};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    twin t = make_paged(type_of(_i), &s, &(features){.left = 16}, sequences, 1, 0);
    int block = (int)get(&t.tensors[0][TABLE]->tensor, rows[i].token / ROWS);
    int row = rows[i].argument == QUERY ? rows[i].token : block * ROWS + rows[i].token % ROWS;
    set(&t.tensors[0][rows[i].argument]->tensor, row * SIZE + 3, rows[i].value);
    mirror(&t, setup_of(_i));
    check_twin(host, &t, OUT, NULL, 0);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* Values that cancel out, with weights of about 1/2. */
START_TEST(weights_are_not_rounded) {
  enum { SIZE = 8 };
  static const shape s = {2, 2, SIZE, 2, 1};
  static const sequence sequences[] = {{1, 2}};
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_paged(half_type_of(_i), &s, &(features){.left = 0}, sequences, 1, 0);
  for (int64_t i = 0; i < 2 * 2 * SIZE; i++) {
    set(&t.tensors[0][KEY_CACHE]->tensor, i, i % SIZE == 0 && i < 2 * SIZE ? 0.0625 : 0);
    set(&t.tensors[0][VALUE_CACHE]->tensor, i, i < 2 * SIZE ? 30 : -30);
  }
  mirror(&t, setup_of(_i));
  check_twin(host, &t, OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* The CPU's sequences end where the device's have a block that there is not, or no more blocks. */
START_TEST(keys_of_blocks_that_are_not_there_are_left_out) {
  static const sequence sequences[] = {{1, 16}, {1, 48}, {1, 64}};
  static const shape s = {2, 1, 32, 16, 4};
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_paged(type_of(_i), &s, &(features){.sinks = true}, sequences, 3, 1);
  mirror(&t, setup_of(_i));
  put_on_device(&t, LENS, 0, 30);
  put_on_device(&t, TABLE, 1, 12); /* one behind the last */
  put_on_device(&t, LENS, 1, 64);
  put_on_device(&t, TABLE, 7, -1);
  put_on_device(&t, LENS, 2, 1 << 30);
  check_twin(host, &t, OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* Of whatever numbers: what comes out of them is nobody's business, as long as it stays inside. */
START_TEST(nothing_outside_is_touched_whatever_the_starts_and_lengths_are) {
  enum { KIND = 5, N = 4 };
  static const double starts[KIND][N + 1] = {
      {0, -5, 3, 2, 40}, {1e9, 1e9, 1e9, 1e9, 1e9}, {9, 8, 7, 6, 5}, {-1e9, -1, 0, 1e9, 2}, {3, 3, 3, 3, 3}};
  static const double lengths[KIND][N] = {
      {-1, 2, 1e9, 4}, {-1e9, -1e9, 1e9, 1e9}, {1, 1, 1, 1}, {64, 64, 64, 64}, {0, 0, 0, 0}};
  static const sequence sequences[N] = {{3, 30}, {8, 8}, {1, 64}, {2, 2}};
  static const shape s = {2, 1, 16, 16, 4};
  fl_host *host = gpu_host(setup_of(_i));
  for (int kind = 0; kind < KIND; kind++) {
    twin t = make_paged(type_of(_i), &s, &all_features[kind], sequences, N, 0);
    mirror(&t, setup_of(_i));
    for (int i = 0; i <= N; i++)
      put_on_device(&t, STARTS, i, starts[kind][i]);
    for (int i = 0; i < N; i++)
      put_on_device(&t, LENS, i, lengths[kind][i]);
    fl_call call = {.size = sizeof call, .count = t.n, .values = t.values[1]};
    ck_ok(fl_call_op(host, t.op, &call));
    for (uint32_t i = 0; i < OUT; i++) /* arguments are as they were */
      if (t.tensors[0][i] && i != STARTS && i != LENS)
        ck_assert_mem_eq(t.tensors[1][i]->tensor.data, t.tensors[0][i]->tensor.data, t.tensors[0][i]->bytes);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_grid_is_the_same_whatever_the_lengths_are) {
  static const sequence sequences[][2] = {{{1, 1}, {11, 11}}, {{6, 600}, {6, 17}}};
  static const shape s = {4, 2, 16, 16, 40};
  fl_host *host = gpu_host(setup_of(_i));
  char *logs[2];
  for (int i = 0; i < 2; i++) {
    twin t = make_paged(type_of(_i), &s, &(features){.left = 0}, sequences[i], 2, 0);
    mirror(&t, setup_of(_i));
    stand_in_clear();
    check_twin(host, &t, OUT, NULL, 0);
    const char *launch = strstr(stand_in_log(), "launch paged_attention");
    ck_assert_ptr_nonnull(launch);
    logs[i] = strndup(launch, strcspn(launch, "\n"));
    free_twin(&t);
  }
  ck_assert_str_eq(logs[0], logs[1]);
  free(logs[0]);
  free(logs[1]);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, prefill_and_decode_in_one_call_with_all_features, 0, runs(RUNS));
  tcase_add_loop_test(tests, keys_are_made_in_parts_where_there_is_workspace, 0, runs(RUNS));
  tcase_add_loop_test(tests, keys_of_a_short_window_stay_whole, 0, runs(RUNS));
  tcase_add_loop_test(tests, heads_of_all_sizes, 0, runs(RUNS));
  tcase_add_loop_test(tests, a_group_of_many_heads, 0, runs(RUNS));
  tcase_add_loop_test(tests, an_infinity_and_NaN_reach_those_that_see_them, 0, runs(RUNS));
  tcase_add_loop_test(tests, weights_are_not_rounded, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, keys_of_blocks_that_are_not_there_are_left_out, 0, runs(RUNS));
  tcase_add_loop_test(tests, nothing_outside_is_touched_whatever_the_starts_and_lengths_are, 0, runs(RUNS));
  tcase_add_loop_test(tests, the_grid_is_the_same_whatever_the_lengths_are, 0, runs(RUNS));
}

int main(void) {
  return run_suite("gpu_paged_attention", add_tests, 120);
}
