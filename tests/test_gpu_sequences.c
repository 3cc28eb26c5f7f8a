/*
 * GPU kernels that follow indices in device memory, at sizes that generated calls do not have: sequences that are made
 * in parts, many queries, large states. Indices that the CPU refuses cannot be checked before a kernel runs: on the
 * device they mean what the nearest valid ones do, and nothing outside of the tensors is touched (which the address
 * sanitizer watches, since the stand-in's memory is the host's).
 */
#include "tests/gpu_twin.h"

#include <math.h>

static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLBfloat, 16, 1}};
enum { TYPES = sizeof types / sizeof types[0], RUNS = 2 * TYPES, HALF_RUNS = 4 }; /* warps of 32 and of 64 */

/* Of these tensor cores make the products, with the first setup; with warps of 64 there are none. */
static const DLDataType half_types[] = {{kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

/* Under a tool with one element type. */
static int runs(int n) {
  return sample() > 1 ? n / 2 : n;
}

static const gpu_setup *setup_of(int run) {
  return &gpu_setups[run % 2];
}

static DLDataType type_of(int run) {
  return types[run / 2];
}

static DLDataType half_type_of(int run) {
  return half_types[run / 2];
}

/* ------------------------------------------------------------------------------------------------------- attention */

enum { QUERY, KV_CACHE, BLOCK_TABLE, SEQ_LENS, SCALE, KV_LORA_RANK, OUT, LSE };

/* Blocks of 16 rows, a sequence's one after the other, from the last block of the cache to the first. */
static twin make_decode(DLDataType dtype, int sequences, int heads, int columns, int size, int rank) {
  twin t = {.op = "mla_decode"};
  int blocks = sequences * columns;
  spread(add_tensor(&t, dtype, 3, sequences, heads, size), 1, -2, 2);
  spread(add_tensor(&t, dtype, 3, blocks, 16, size), 2, -2, 2);
  DLTensor *table = add_tensor(&t, int32, 2, sequences, columns);
  for (int i = 0; i < blocks; i++)
    set(table, i, blocks - 1 - i);
  add_tensor(&t, int64, 1, sequences);
  add_value(&t, fl_float(0.125));
  add_value(&t, fl_int(rank));
  add_tensor(&t, dtype, 3, sequences, heads, rank);
  add_tensor(&t, float32, 2, sequences, heads);
  return t;
}

START_TEST(mla_decode_makes_long_sequences_in_parts_where_there_is_workspace) {
  enum { ROOM = 1 << 20 };
  static const struct {
    size_t size;
    bool parts;
  } rows[] = {
      {ROOM, true}, {2 * 3 * 9 * (56 + 2) * sizeof(float), true}, {1000, false}, {0, true}}; /* 0: the host brings it */
  fl_host *host = gpu_host(setup_of(_i));
  float *workspace = malloc(ROOM);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    twin t = make_decode(type_of(_i), 3, 9, 40, 72, 56);
    put(&t.tensors[0][SEQ_LENS]->tensor, 3, 640, 129, 0);
    mirror(&t, setup_of(_i));
    memset(workspace, 0xff, ROOM); /* NaN */
    stand_in_clear();
    check_twin(host, &t, OUT, rows[i].size ? workspace : NULL, rows[i].size);
    ck_assert_int_eq(strstr(stand_in_log(), "launch mla_decode_join") != NULL, rows[i].parts);
    free_twin(&t);
  }
  free(workspace);
  fl_host_destroy(host);
}
END_TEST

START_TEST(mla_decode_takes_the_rows_of_deepseek) {
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_decode(type_of(_i), 1, 2, 3, 576, 512);
  put(&t.tensors[0][SEQ_LENS]->tensor, 1, 45);
  mirror(&t, setup_of(_i));
  check_twin(host, &t, OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* The CPU's sequences end where the device's have a block that there is not, or no more blocks. */
START_TEST(mla_decode_leaves_out_rows_of_blocks_that_are_not_there) {
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_decode(type_of(_i), 4, 3, 4, 48, 32);
  put(&t.tensors[0][SEQ_LENS]->tensor, 4, 16, 48, 64, 0);
  mirror(&t, setup_of(_i));
  put_on_device(&t, SEQ_LENS, 0, 30);
  put_on_device(&t, BLOCK_TABLE, 1, 16); /* one behind the last */
  put_on_device(&t, SEQ_LENS, 1, 64);
  put_on_device(&t, BLOCK_TABLE, 7, -1);
  put_on_device(&t, SEQ_LENS, 2, 0x1p40);
  put_on_device(&t, SEQ_LENS, 3, -5);
  check_twin(host, &t, OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

static const int decode_lengths[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65};
enum { N_LENGTHS = sizeof decode_lengths / sizeof decode_lengths[0] };

/* Fewer and more heads than a block makes, rows that are aligned and that are not, and such as leave room for 16 heads
 * alone. */
START_TEST(mla_decode_of_heads_and_lengths_of_all_sizes) {
  static const struct {
    int heads, size, rank;
    const char *kernel;
  } rows[] = {{1, 48, 32, "mla_decode_16"},   {8, 72, 56, "mla_decode_16"}, {16, 36, 36, "mla_decode_16"},
              {17, 72, 64, "mla_decode_32"},  {33, 40, 8, "mla_decode_32"}, {128, 24, 17, "mla_decode_32"},
              {17, 584, 512, "mla_decode_16"}};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    int sequences = rows[i].size > 500 ? 2 : N_LENGTHS;
    twin t = make_decode(half_type_of(_i), sequences, rows[i].heads, 5, rows[i].size, rows[i].rank);
    for (int j = 0; j < sequences; j++)
      set(&t.tensors[0][SEQ_LENS]->tensor, j, decode_lengths[(j + (int)i) % N_LENGTHS]);
    mirror(&t, setup_of(_i));
    stand_in_clear();
    check_twin(host, &t, OUT, NULL, 0);
    ck_assert(was_launched(_i % 2 ? "mla_decode" : rows[i].kernel, half_type_of(_i)));
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* In columns that are keys and values and in such as are keys alone, of rows and of a query. */
START_TEST(mla_decode_gets_an_infinity_and_NaN_where_they_belong) {
  enum { SIZE = 24, RANK = 16, TOKENS = 20, HEADS = 20 };
  static const struct {
    uint32_t argument;
    int64_t i;
    double value;
  } rows[] = {{KV_CACHE, 19 * SIZE + 3, INFINITY},
              {KV_CACHE, 19 * SIZE + 20, NAN},
              {KV_CACHE, 7 * SIZE + 20, -INFINITY},
              {KV_CACHE, 30 * SIZE + 3, INFINITY}, /* behind the end */
              {QUERY, 17 * SIZE + 4, NAN}};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    twin t = make_decode(half_type_of(_i), 1, HEADS, 2, SIZE, RANK);
    put(&t.tensors[0][SEQ_LENS]->tensor, 1, TOKENS);
    put(&t.tensors[0][BLOCK_TABLE]->tensor, 2, 0, 1);
    set(&t.tensors[0][rows[i].argument]->tensor, rows[i].i, rows[i].value);
    mirror(&t, setup_of(_i));
    check_twin(host, &t, OUT, NULL, 0);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(mla_decode_does_not_round_weights) {
  enum { SIZE = 16, RANK = 8 };
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_decode(half_type_of(_i), 1, 5, 1, SIZE, RANK);
  put(&t.tensors[0][SEQ_LENS]->tensor, 1, 2);
  for (int64_t i = 0; i < 2 * SIZE; i++) /* values that are opposite, weights of about 1/2 */
    set(&t.tensors[0][KV_CACHE]->tensor, i, i % SIZE < RANK ? (i < SIZE ? 30 : -30) : i < SIZE ? 0.25 : 0);
  for (int64_t i = 0; i < 5 * SIZE; i++)
    set(&t.tensors[0][QUERY]->tensor, i, i % SIZE < RANK ? 0 : (double)(i / SIZE) / 3);
  mirror(&t, setup_of(_i));
  check_twin(host, &t, OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

enum { CU_SEQLENS = 4, ENCODER_OUT = 6 };

static twin make_encoder(DLDataType dtype, int batch, int tokens, int heads, int size) {
  twin t = {.op = "mm_encoder_attn"};
  for (int i = 0; i < 3; i++)
    spread(add_tensor(&t, dtype, 4, batch, tokens, i ? heads / 2 : heads, size), (uint32_t)i, -2, 2);
  add_value(&t, fl_none());
  put(add_tensor(&t, int32, 1, 5), 5, 0, 3, 3, 50, tokens);
  add_value(&t, fl_none());
  add_tensor(&t, dtype, 4, batch, tokens, heads, size);
  return t;
}

static bool has_tensor_cores(int run, DLDataType dtype) {
  return run % 2 == 0 && dtype.bits == 16;
}

/* By tensor cores, one kernel has blocks of two sizes. */
START_TEST(mm_encoder_attn_gives_a_block_more_queries_where_there_are_many) {
  static const struct {
    int heads;
    const char *kernel, *block;
  } rows[] = {{2, "mm_encoder_attn_few", " block 64x1x1 "}, {96, "mm_encoder_attn", " block 128x1x1 "}};
  fl_host *host = gpu_host(setup_of(_i));
  bool tensor_cores = has_tensor_cores(_i, type_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    twin t = make_encoder(type_of(_i), 2, 70, rows[i].heads, 10);
    mirror(&t, setup_of(_i));
    stand_in_clear();
    check_twin(host, &t, ENCODER_OUT, NULL, 0);
    ck_assert(was_launched(tensor_cores ? "mm_encoder_attn_64" : rows[i].kernel, type_of(_i)));
    ck_assert(!tensor_cores || strstr(stand_in_log(), rows[i].block));
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* Without segments, around the ends of tiles. Heads of 12 elements have rows that are not aligned. */
START_TEST(mm_encoder_attn_of_heads_and_tokens_of_all_sizes) {
  static const struct {
    int size;
    const char *kernel;
  } rows[] = {{8, "mm_encoder_attn_64"},   {12, "mm_encoder_attn_64"},  {40, "mm_encoder_attn_64"},
              {64, "mm_encoder_attn_64"},  {72, "mm_encoder_attn_80"},  {80, "mm_encoder_attn_80"},
              {88, "mm_encoder_attn_128"}, {128, "mm_encoder_attn_128"}};
  static const int tokens[] = {1, 15, 16, 17, 33, 63, 64, 65, 129};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (size_t j = i % 3; j < sizeof tokens / sizeof tokens[0]; j += 3) {
      twin t = make_encoder(half_type_of(_i), 1, tokens[j], 2, rows[i].size);
      t.values[0][CU_SEQLENS] = fl_none();
      unmake(t.tensors[0][CU_SEQLENS]);
      t.tensors[0][CU_SEQLENS] = NULL;
      mirror(&t, setup_of(_i));
      t.values[1][CU_SEQLENS] = fl_none();
      stand_in_clear();
      check_twin(host, &t, ENCODER_OUT, NULL, 0);
      ck_assert(was_launched(_i % 2 ? "mm_encoder_attn_few" : rows[i].kernel, half_type_of(_i)));
      free_twin(&t);
    }
  fl_host_destroy(host);
}
END_TEST

/* That begin and end inside of tiles of keys and of queries, at their ends, and of one token. */
static const int segment_ends[][5] = {
    {0, 3, 3, 50, 140}, {0, 64, 65, 128, 140}, {0, 1, 17, 18, 140}, {0, 63, 80, 96, 140}, {0, 20, 36, 139, 140}};
enum { N_SEGMENTS = sizeof segment_ends / sizeof segment_ends[0], SEGMENT_TOKENS = 140 };

static twin make_segments(DLDataType dtype, const int *ends, int size) {
  twin t = make_encoder(dtype, 2, SEGMENT_TOKENS, 2, size);
  for (int i = 0; i < 5; i++)
    set(&t.tensors[0][CU_SEQLENS]->tensor, i, ends[i]);
  return t;
}

START_TEST(mm_encoder_attn_of_segments_that_end_anywhere) {
  static const int sizes[] = {40, 72, 128};
  fl_host *host = gpu_host(setup_of(_i));
  for (int i = 0; i < N_SEGMENTS; i++) {
    twin t = make_segments(half_type_of(_i), segment_ends[i], sizes[i % 3]);
    mirror(&t, setup_of(_i));
    check_twin(host, &t, ENCODER_OUT, NULL, 0);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* The device's begin later: the CPU's first segment has values of 0. */
START_TEST(mm_encoder_attn_makes_zeros_of_tokens_outside_of_all_segments) {
  enum { FIRST = 5, SIZE = 40 };
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_segments(half_type_of(_i), (int[]){0, FIRST, 20, 100, SEGMENT_TOKENS}, SIZE);
  for (int64_t i = 0; i < 2 * SEGMENT_TOKENS * SIZE; i++)
    if (i / SIZE % SEGMENT_TOKENS < FIRST)
      set(&t.tensors[0][2]->tensor, i, 0);
  mirror(&t, setup_of(_i));
  for (int i = 0; i < 4; i++)
    put_on_device(&t, CU_SEQLENS, i, get(&t.tensors[0][CU_SEQLENS]->tensor, i + 1));
  check_twin(host, &t, ENCODER_OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* Element `column` of one of the keys or values, in both rows of the batch. */
static void put_token(twin *t, uint32_t argument, int token, int column, double value) {
  DLTensor *tensor = &t->tensors[0][argument]->tensor;
  for (int64_t row = 0; row < 2; row++)
    set(tensor, (row * SEGMENT_TOKENS + token) * tensor->shape[3] + column, value);
}

/* Infinities and NaN of other segments, each of which a query would see as 0 times that. Those of its own it gets, also
 * with a weight that 16 bits would make 0: the last case. */
START_TEST(mm_encoder_attn_gets_no_infinity_and_no_NaN_of_another_segment) {
  enum { E_QUERY, E_KEY, E_VALUE };
  static const struct {
    uint32_t argument;
    int token, column;
    double value;
  } rows[] = {{E_VALUE, 1, 3, INFINITY}, {E_VALUE, 60, 0, NAN},   {E_VALUE, 49, 9, -INFINITY},
              {E_KEY, 60, 1, NAN},       {E_KEY, 1, 2, INFINITY}, {E_VALUE, 139, 5, -INFINITY},
              {E_KEY, 49, 0, -INFINITY}, {E_QUERY, 70, 1, NAN}};
  static const int sizes[] = {10, 40, 72, 128};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    twin t = make_segments(half_type_of(_i), segment_ends[i % N_SEGMENTS], sizes[i % 4]);
    put_token(&t, rows[i].argument, rows[i].token, rows[i].column, rows[i].value);
    mirror(&t, setup_of(_i));
    check_twin(host, &t, ENCODER_OUT, NULL, 0);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* The first key has a score that is higher by 18 than the others: exp(-18) rounds to 0 in float16. */
START_TEST(mm_encoder_attn_sees_an_infinity_however_small_its_weight_is) {
  enum { SIZE = 8, FIRST = 6 };
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_encoder(half_type_of(_i), 1, 5, 2, SIZE);
  put(&t.tensors[0][CU_SEQLENS]->tensor, 5, 0, 5, 5, 5, 5);
  t.values[0][3] = fl_float(1);
  for (int argument = 0; argument < 2; argument++)
    for (int64_t i = 0; i < count(&t.tensors[0][argument]->tensor); i++)
      set(&t.tensors[0][argument]->tensor, i, 0);
  for (int64_t i = 0; i < count(&t.tensors[0][0]->tensor); i += SIZE)
    set(&t.tensors[0][0]->tensor, i, 3);
  set(&t.tensors[0][1]->tensor, 0, FIRST);
  set(&t.tensors[0][2]->tensor, 2 * SIZE + 4, INFINITY);
  mirror(&t, setup_of(_i));
  t.values[1][3] = fl_float(1);
  check_twin(host, &t, ENCODER_OUT, NULL, 0);
  ck_assert(isinf(get(&t.tensors[1][ENCODER_OUT]->tensor, 4)));
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* A weight of 16 bits would leave an error of 2^-9 or 2^-11 of the values where they cancel out. */
START_TEST(mm_encoder_attn_does_not_round_weights) {
  enum { TOKENS = 2, SIZE = 8 };
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_encoder(half_type_of(_i), 1, TOKENS, 2, SIZE);
  put(&t.tensors[0][CU_SEQLENS]->tensor, 5, 0, 2, 2, 2, 2);
  for (int i = 0; i < TOKENS * SIZE; i++) /* weights of about 1/2, values that are opposite */
    set(&t.tensors[0][2]->tensor, i, i < SIZE ? 30 : -30);
  for (int i = 0; i < TOKENS * SIZE; i++)
    set(&t.tensors[0][1]->tensor, i, i == 0 ? 0.0625 : 0);
  mirror(&t, setup_of(_i));
  check_twin(host, &t, ENCODER_OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

START_TEST(mm_encoder_attn_keeps_segments_within_the_tokens) {
  fl_host *host = gpu_host(setup_of(_i));
  twin t = make_encoder(type_of(_i), 1, 66, 2, 128);
  mirror(&t, setup_of(_i));
  put_on_device(&t, CU_SEQLENS, 0, -9);
  put_on_device(&t, CU_SEQLENS, 4, 1 << 30);
  check_twin(host, &t, ENCODER_OUT, NULL, 0);
  free_twin(&t);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- sequences */

/* Four sequences, of which one is skipped and one begins anew; slots of the state are not in order. */
static void add_sequences(twin *t, int tokens) {
  put(add_tensor(t, int32, 1, 5), 5, 0, 2, tokens / 2, tokens / 2 + 1, tokens - 3);
  put(add_tensor(t, int64, 1, 4), 4, 3, 0, -1, 2);
  DLTensor *initial = add_tensor(t, (DLDataType){FL_DTYPE_BOOL, 8, 1}, 1, 4);
  memcpy(fl_data(initial), (uint8_t[]){1, 1, 1, 0}, 4);
}

static void spoil_sequences(twin *t, uint32_t starts) {
  put_on_device(t, starts, 0, -2);
  put_on_device(t, starts + 1, 2, 4); /* one behind the last slot */
}

enum { CONV_STATE = 3, CONV_STARTS };

static twin make_conv(DLDataType dtype, int channels, int tokens, int width) {
  twin t = {.op = "causal_conv1d"};
  spread(add_tensor(&t, dtype, 2, channels, tokens), 1, -2, 2);
  spread(add_tensor(&t, float32, 2, channels, width), 2, -1, 1);
  spread(add_tensor(&t, dtype, 1, channels), 3, -1, 1);
  spread(add_tensor(&t, dtype, 3, 4, channels, width - 1), 4, -2, 2);
  add_sequences(&t, tokens);
  add_value(&t, fl_string("silu"));
  add_tensor(&t, dtype, 2, channels, tokens);
  return t;
}

/* Rows that are aligned and that are not; a width that registers hold and one that they do not. */
START_TEST(causal_conv1d_of_long_and_of_short_sequences) {
  static const struct {
    int tokens, width;
    const char *kernel;
  } rows[] = {{24, 4, "causal_conv1d_short"}, {24, 6, "causal_conv1d_short"}, {320, 4, "causal_conv1d"},
              {320, 2, "causal_conv1d"},      {321, 3, "causal_conv1d"},      {320, 6, "causal_conv1d"}};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int spoilt = 0; spoilt < 2; spoilt++) {
      twin t = make_conv(type_of(_i), 5, rows[i].tokens, rows[i].width);
      mirror(&t, setup_of(_i));
      if (spoilt)
        spoil_sequences(&t, CONV_STARTS);
      stand_in_clear();
      check_twin(host, &t, CONV_STARTS + 3, NULL, 0);
      check_close(t.op, &t.tensors[1][CONV_STATE]->tensor, &t.tensors[0][CONV_STATE]->tensor);
      ck_assert(was_launched(rows[i].kernel, type_of(_i)));
      free_twin(&t);
    }
  fl_host_destroy(host);
}
END_TEST

enum { SSM_STATE = 9, SCAN_STARTS };

static twin make_scan(DLDataType dtype, int channels, int groups, int tokens, int states) {
  twin t = {.op = "selective_scan"};
  spread(add_tensor(&t, dtype, 2, channels, tokens), 1, -1, 1);
  spread(add_tensor(&t, dtype, 2, channels, tokens), 2, -1, 1);
  spread(add_tensor(&t, float32, 2, channels, states), 3, -2, -0.1);
  spread(add_tensor(&t, dtype, 3, groups, states, tokens), 4, -0.3, 0.3);
  spread(add_tensor(&t, dtype, 3, groups, states, tokens), 5, -0.3, 0.3);
  spread(add_tensor(&t, float32, 1, channels), 6, -1, 1);
  spread(add_tensor(&t, dtype, 2, channels, tokens), 7, -2, 2);
  spread(add_tensor(&t, dtype, 1, channels), 8, -1, 0);
  add_value(&t, fl_bool(true));
  spread(add_tensor(&t, float32, 3, 4, channels, states), 9, -1, 1);
  add_sequences(&t, tokens);
  add_tensor(&t, dtype, 2, channels, tokens);
  return t;
}

START_TEST(selective_scan_of_states_of_all_sizes) {
  static const struct {
    int states;
    const char *kernel;
  } rows[] = {{16, "selective_scan"}, {40, "selective_scan_64"}, {200, "selective_scan_256"}};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int spoilt = 0; spoilt < 2; spoilt++) {
      twin t = make_scan(type_of(_i), 38, 2, 150, rows[i].states);
      mirror(&t, setup_of(_i));
      if (spoilt)
        spoil_sequences(&t, SCAN_STARTS);
      stand_in_clear();
      check_twin(host, &t, SCAN_STARTS + 3, NULL, 0);
      check_close(t.op, &t.tensors[1][SSM_STATE]->tensor, &t.tensors[0][SSM_STATE]->tensor);
      ck_assert(was_launched(rows[i].kernel, type_of(_i)));
      free_twin(&t);
    }
  fl_host_destroy(host);
}
END_TEST

enum { SSD_STATE = 9, SSD_STARTS = 11 };

static twin make_ssd(DLDataType dtype, int heads, int rows, int tokens, int states, DLDataType of_state) {
  twin t = {.op = "mamba_chunk_scan"};
  spread(add_tensor(&t, dtype, 3, tokens, heads, rows), 1, -1, 1);
  spread(add_tensor(&t, float32, 2, tokens, heads), 2, -1, 1);
  spread(add_tensor(&t, float32, 1, heads), 3, -2, -0.1);
  spread(add_tensor(&t, dtype, 3, tokens, 2, states), 4, -0.3, 0.3);
  spread(add_tensor(&t, dtype, 3, tokens, 2, states), 5, -0.3, 0.3);
  spread(add_tensor(&t, float32, 2, heads, rows), 6, -1, 1);
  spread(add_tensor(&t, dtype, 3, tokens, heads, rows), 7, -2, 2);
  spread(add_tensor(&t, dtype, 1, heads), 8, -1, 0);
  add_value(&t, fl_bool(true));
  spread(add_tensor(&t, of_state, 4, 4, heads, rows, states), 9, -1, 1);
  add_value(&t, fl_int(256));
  add_sequences(&t, tokens);
  add_value(&t, fl_float(0.01));
  add_value(&t, fl_float(0.9));
  add_tensor(&t, dtype, 3, tokens, heads, rows);
  return t;
}

START_TEST(mamba_chunk_scan_of_states_of_all_sizes) {
  static const struct {
    int states;
    const char *kernel;
  } rows[] = {
      {16, "mamba_chunk_scan"}, {30, "mamba_chunk_scan"}, {128, "mamba_chunk_scan_128"}, {200, "mamba_chunk_scan_256"}};
  fl_host *host = gpu_host(setup_of(_i));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    for (int spoilt = 0; spoilt < 2; spoilt++) {
      twin t = make_ssd(type_of(_i), 4, 36, 50, rows[i].states, spoilt ? type_of(_i) : float32);
      mirror(&t, setup_of(_i));
      if (spoilt)
        spoil_sequences(&t, SSD_STARTS);
      stand_in_clear();
      check_twin(host, &t, SSD_STARTS + 3, NULL, 0);
      check_close(t.op, &t.tensors[1][SSD_STATE]->tensor, &t.tensors[0][SSD_STATE]->tensor);
      ck_assert(was_launched(rows[i].kernel, type_of(_i)));
      free_twin(&t);
    }
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, mla_decode_makes_long_sequences_in_parts_where_there_is_workspace, 0, runs(RUNS));
  tcase_add_loop_test(tests, mla_decode_takes_the_rows_of_deepseek, 0, runs(RUNS));
  tcase_add_loop_test(tests, mla_decode_leaves_out_rows_of_blocks_that_are_not_there, 0, runs(RUNS));
  tcase_add_loop_test(tests, mla_decode_of_heads_and_lengths_of_all_sizes, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mla_decode_gets_an_infinity_and_NaN_where_they_belong, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mla_decode_does_not_round_weights, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_gives_a_block_more_queries_where_there_are_many, 0, runs(RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_of_heads_and_tokens_of_all_sizes, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_of_segments_that_end_anywhere, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_makes_zeros_of_tokens_outside_of_all_segments, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_gets_no_infinity_and_no_NaN_of_another_segment, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_sees_an_infinity_however_small_its_weight_is, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_does_not_round_weights, 0, runs(HALF_RUNS));
  tcase_add_loop_test(tests, mm_encoder_attn_keeps_segments_within_the_tokens, 0, runs(RUNS));
  tcase_add_loop_test(tests, causal_conv1d_of_long_and_of_short_sequences, 0, runs(RUNS));
  tcase_add_loop_test(tests, mamba_chunk_scan_of_states_of_all_sizes, 0, runs(RUNS));
  tcase_add_loop_test(tests, selective_scan_of_states_of_all_sizes, 0, runs(RUNS));
}

int main(void) {
  return run_suite("gpu_sequences", add_tests, 120);
}
