/* Linear layers with quantised weights: their checks, what each bit of a weight means, sizes around those of the blocks
 * of the fast kernels, and what must not be read or may not spread. */
#include "tests/kernels.h"

#include <flhost/dtype.h>
#include <math.h>

static const DLDataType int8 = {kDLInt, 8, 1}, uint8 = {kDLUInt, 8, 1};

static owned *make_bytes(DLDataType dtype, int64_t rows, int64_t columns, int64_t padding, uint32_t seed) {
  owned *made = make(dtype, SHAPE(rows, columns), padding);
  uint32_t state = seed * 2654435761u + 1;
  for (size_t i = 0; i < made->bytes; i++) {
    state = state * 1664525u + 1013904223u;
    ((uint8_t *)made->tensor.data)[i] = (uint8_t)(state >> 24);
  }
  return made;
}

/* Of e4m3fn, without NaN. */
static owned *make_codes(int64_t rows, int64_t columns, int64_t padding, uint32_t seed) {
  owned *made = make_bytes(float8, rows, columns, padding, seed);
  for (size_t i = 0; i < made->bytes; i++)
    ((uint8_t *)made->tensor.data)[i] &= 0xbf;
  return made;
}

/* Words of four random bytes each. */
static owned *make_words(int64_t rows, int64_t columns, uint32_t seed) {
  owned *bytes = make_bytes(int8, rows, columns * 4, 0, seed), *made = make(int32, SHAPE(rows, columns), 0);
  memcpy(made->tensor.data, bytes->tensor.data, (size_t)(rows * columns) * 4);
  unmake(bytes);
  return made;
}

/* ------------------------------------------------------------------------------------------------------- scaled_mm */

typedef struct scaled {
  owned *x, *weight, *x_scale, *weight_scale, *bias, *azp, *out;
  int64_t block[2];
} scaled;

static const char *word_of(const owned *out) {
  DLDataType dtype = out->tensor.dtype;
  return dtype.bits == 32 ? "float32" : dtype.code == kDLBfloat ? "bfloat16" : "float16";
}

static void multiply(const char *id, const scaled *c) {
  const int64_t block[] = {c->block[0] ? c->block[0] : 128, c->block[1] ? c->block[1] : 128};
  fl_value values[] = {value_of(c->x),    value_of(c->weight), value_of(c->x_scale),       value_of(c->weight_scale),
                       value_of(c->bias), value_of(c->azp),    fl_string(word_of(c->out)), fl_ints(block, 2),
                       value_of(c->out)};
  fl_schema *schema = schema_of("scaled_mm");
  fl_call call = {.size = sizeof call, .count = 9, .values = values};
  ck_assert_msg(fl_schema_check(schema, &call) == FL_OK, "%s", fl_error_message());
  check_call("scaled_mm", id, values, 9);
  fl_schema_free(schema);
}

static void unmake_scaled(const scaled *c) {
  owned *all[] = {c->x, c->weight, c->x_scale, c->weight_scale, c->bias, c->azp, c->out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    unmake(all[i]);
}

START_TEST(sums_of_int8_are_exact_where_a_float_holds_no_more) {
  enum { K = 1060 };
  scaled c = {.x = make(int8, SHAPE(1 + 10 * (_i / 2), K), 0),
              .weight = make(int8, SHAPE(3, K), 0),
              .x_scale = make_constant(float32, SHAPE(1), 0, 1),
              .weight_scale = make_constant(float32, SHAPE(1), 0, 1),
              .azp = make(int32, SHAPE(1), 0),
              .out = make(float32, SHAPE(1 + 10 * (_i / 2), 3), 0)};
  memset(c.x->tensor.data, -128, c.x->bytes);
  memset(c.weight->tensor.data, -128, c.weight->bytes);
  ((int8_t *)c.weight->tensor.data)[K] = -127; /* of column 1 */
  set(&c.azp->tensor, 0, 896);
  multiply(both[_i % 2], &c);
  ck_assert_double_eq(element(c.out, 0), 1024.0 * 128 * K);
  ck_assert_double_eq(element(c.out, 1), 1024.0 * (128 * K - 1));
  ck_assert_double_eq(element(c.out, (int64_t)count(&c.out->tensor) - 1), 1024.0 * 128 * K);
  unmake_scaled(&c);
}
END_TEST

/* Scales of tokens and channels by themselves or for all, zero points, sizes next to those of tiles and steps. */
START_TEST(O5_products_of_bytes_of_all_sizes_agree_with_the_reference) {
  static const int64_t sizes[][3] = {{1, 1, 1},     {1, 33, 64},  {2, 9, 65},   {3, 17, 63},  {4, 32, 128},
                                     {5, 130, 200}, {8, 70, 256}, {9, 31, 100}, {12, 33, 64}, {13, 65, 31},
                                     {25, 300, 5},  {7, 3, 0},    {30, 40, 0},  {0, 4, 8}};
  bool is_float8 = _i % 2;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2], padding = (int64_t)i % 3;
    bool by_row = i % 2, has_zero = !is_float8 && i % 4 < 2;
    owned *(*fill_bytes)(int64_t rows, int64_t columns, int64_t padding, uint32_t seed) = make_codes;
    scaled c = {.x = is_float8 ? fill_bytes(m, k, padding, 1) : make_bytes(int8, m, k, padding, 1),
                .weight = is_float8 ? fill_bytes(n, k, 2 * padding, 2) : make_bytes(int8, n, k, 2 * padding, 2),
                .x_scale = by_row ? make_bounded(float32, SHAPE(m, 1), padding, 3, 0.01)
                                  : make_constant(float32, 0, NULL, 0, 0.01),
                .weight_scale = by_row ? make_bounded(float32, SHAPE(n, 1), padding, 4, 0.01)
                                       : make_bounded(float32, SHAPE(n), 0, 4, 0.01),
                .bias = i % 3 ? make_filled(floats[i % 3], SHAPE(n), 0, 5) : NULL};
    if (has_zero) {
      c.azp = by_row ? make(int32, SHAPE(m, 1), padding) : make(int32, SHAPE(1), 0);
      for (int64_t r = 0; r < count(&c.azp->tensor); r++)
        set(&c.azp->tensor, element_offset(&c.azp->tensor, r), (double)(7 * r - 20));
    }
    owned *out[] = {make(floats[i % 3], SHAPE(m, n), padding), make(floats[i % 3], SHAPE(m, n), padding)};
    for (int which = 0; which < 2; which++) {
      c.out = out[which];
      multiply(both[which], &c);
    }
    for (int64_t e = 0; e < m * n && !is_float8; e++) /* exact sums, the same operations behind them */
      ck_each(element(out[0], e) == element(out[1], e) ||
                  fabs(element(out[0], e) - element(out[1], e)) <= fabs(element(out[0], e)) * 0.01,
              "size %zu, element %lld: %.9g, expected %.9g", i, (long long)e, element(out[1], e), element(out[0], e));
    check_close("scaled_mm", &out[1]->tensor, &out[0]->tensor);
    unmake_scaled(&c);
    unmake(out[0]);
  }
}
END_TEST

START_TEST(blocks_have_scales_of_their_own_and_the_last_may_be_short) {
  static const int64_t blocks[][2] = {{16, 32}, {128, 128}, {3, 5}};
  bool is_float8 = _i % 2;
  for (size_t i = 0; i < 6; i++) {
    const int64_t *block = blocks[i % 3];
    int64_t m = i < 3 ? 5 : 14, n = 50, k = 140;
    int64_t down = (n + block[0] - 1) / block[0], across = (k + block[1] - 1) / block[1];
    scaled c = {.x = is_float8 ? make_codes(m, k, 0, 1) : make_bytes(int8, m, k, 0, 1),
                .weight = is_float8 ? make_codes(n, k, 3, 2) : make_bytes(int8, n, k, 3, 2),
                .x_scale = make_bounded(float32, SHAPE(m, across), 2, 3, 0.01),
                .weight_scale = make_bounded(float32, SHAPE(down, across), 1, 4, 0.01),
                .bias = make_filled(float32, SHAPE(n), 0, 5),
                .block = {block[0], block[1]}};
    owned *out[] = {make(float32, SHAPE(m, n), 0), make(float32, SHAPE(m, n), 0)};
    for (int which = 0; which < 2; which++) {
      c.out = out[which];
      multiply(both[which], &c);
    }
    check_close("scaled_mm", &out[1]->tensor, &out[0]->tensor);
    unmake_scaled(&c);
    unmake(out[0]);
  }
}
END_TEST

/* x and weight hold 1: a sum of blocks is that of their sizes times both scales. */
START_TEST(a_block_is_scaled_by_its_rows_and_columns) {
  enum { K = 40, N = 20 };
  scaled c = {.x = make(int8, SHAPE(2, K), 0),
              .weight = make(int8, SHAPE(N, K), 0),
              .x_scale = make(float32, SHAPE(2, 2), 0),
              .weight_scale = make(float32, SHAPE(2, 2), 0),
              .out = make(float32, SHAPE(2, N), 0),
              .block = {16, 32}};
  memset(c.x->tensor.data, 1, c.x->bytes);
  memset(c.weight->tensor.data, 1, c.weight->bytes);
  for (int i = 0; i < 4; i++) {
    set(&c.x_scale->tensor, i, i + 1);
    set(&c.weight_scale->tensor, i, 10 * (i + 1));
  }
  multiply(both[_i], &c);
  ck_assert_double_eq(element(c.out, 0), 32 * 1 * 10 + 8 * 2 * 20);
  ck_assert_double_eq(element(c.out, 16), 32 * 1 * 30 + 8 * 2 * 40);
  ck_assert_double_eq(element(c.out, N + 15), 32 * 3 * 10 + 8 * 4 * 20);
  unmake_scaled(&c);
}
END_TEST

/* In one row of x and one of the weight, for few rows and many. */
START_TEST(nan_stays_in_its_row_and_column) {
  int64_t m = _i / 2 ? 20 : 3, n = 40, k = 70;
  scaled c = {.x = make_codes(m, k, 0, 1),
              .weight = make_codes(n, k, 0, 2),
              .x_scale = make_constant(float32, SHAPE(1), 0, 0.01),
              .weight_scale = make_constant(float32, SHAPE(1), 0, 0.01),
              .out = make(bfloat16, SHAPE(m, n), 0)};
  ((uint8_t *)c.x->tensor.data)[k + 69] = 0x7f;
  ((uint8_t *)c.weight->tensor.data)[7 * k + 1] = 0xff;
  multiply(both[_i % 2], &c);
  for (int64_t row = 0; row < m; row++)
    for (int64_t column = 0; column < n; column++)
      ck_each(isnan(element(c.out, row * n + column)) == (row == 1 || column == 7), "row %lld, column %lld is %g",
              (long long)row, (long long)column, element(c.out, row * n + column));
  unmake_scaled(&c);
}
END_TEST

START_TEST(O6_bad_arguments_of_scaled_mm_are_refused_with_a_reason) {
  owned *x = make(int8, SHAPE(2, 40), 0), *w = make(int8, SHAPE(20, 40), 0), *f = make(float8, SHAPE(2, 40), 0);
  owned *fw = make(float8, SHAPE(20, 40), 0), *one = make(float32, SHAPE(1), 0);
  owned *rows = make(float32, SHAPE(2, 1), 0), *groups = make(float32, SHAPE(2, 2), 0);
  owned *azp = make(int32, SHAPE(1), 0), *out = make(bfloat16, SHAPE(2, 20), 0), *wide = make(float32, SHAPE(2, 20), 0);
  fl_value none = fl_none(), X = value_of(x), W = value_of(w), F = value_of(f), FW = value_of(fw), ONE = value_of(one);
  fl_value GROUPS = value_of(groups), AZP = value_of(azp), OUT = value_of(out), B = fl_string("bfloat16");
  static const int64_t sizes[] = {16, 32}, zero[] = {0, 32};
  fl_value SIZES = fl_ints(sizes, 2);
  const struct {
    const char *message;
    fl_value values[9];
  } cases[] = {
      {"argument 'weight': dtype float8_e4m3fn, expected int8 (that of 'x')",
       {X, FW, ONE, ONE, none, none, B, SIZES, OUT}},
      {"argument 'block_size': 1 numbers, expected 2 (rows and columns of 'weight')",
       {X, W, ONE, ONE, none, none, B, fl_ints(sizes, 1), OUT}},
      {"argument 'block_size': [0, 32], expected 1 or more", {X, W, ONE, ONE, none, none, B, fl_ints(zero, 2), OUT}},
      {"argument 'weight_scale': expected one element, [20] or [20, 1] (channel), or with 'x_scale' of groups [2, 2] "
       "(blocks of [16, 32])",
       {X, W, GROUPS, ONE, none, none, B, SIZES, OUT}},
      {"argument 'x_scale': expected shape [2, 2] (one for each group of 32, as 'weight_scale' has blocks)",
       {X, W, value_of(rows), GROUPS, none, none, B, SIZES, OUT}},
      {"argument 'azp': given, expected none (only int8 has a zero point)",
       {F, FW, ONE, ONE, none, AZP, B, SIZES, OUT}},
      {"argument 'azp': given, expected none (scales are of blocks)", {X, W, GROUPS, GROUPS, none, AZP, B, SIZES, OUT}},
      {"result 'out': dtype float32, expected bfloat16", {X, W, ONE, ONE, none, none, B, SIZES, value_of(wide)}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "scaled_mm: %s", cases[i].message);
    check_refused("scaled_mm", expected, cases[i].values, 9);
  }
  UNMAKE(x, w, f, fw, one, rows, groups, azp, out, wide);
}
END_TEST

/* ---------------------------------------------------------------------------------------------- weight_only_linear */

typedef struct weight_only {
  owned *x, *weight, *scale, *bias, *out;
  int64_t block[2];
} weight_only;

static void multiply_weight_only(const char *id, const weight_only *c) {
  fl_value values[] = {value_of(c->x),    value_of(c->weight),  value_of(c->scale),
                       value_of(c->bias), fl_ints(c->block, 2), value_of(c->out)};
  check_call("weight_only_linear", id, values, 6);
}

static void unmake_weight_only(const weight_only *c) {
  owned *all[] = {c->x, c->weight, c->scale, c->bias, c->out};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    unmake(all[i]);
}

/* Every code, by ones on a diagonal: few rows and many. */
START_TEST(a_weight_alone_is_its_codes_times_the_scale_of_its_channel) {
  bool is_float8 = _i / 2 % 2;
  int64_t k = 256, m = _i / 4 ? 256 : 8;
  weight_only c = {.x = make_constant(float32, SHAPE(m, k), 0, 0),
                   .weight = make(is_float8 ? float8 : int8, SHAPE(3, k), 0),
                   .scale = make(float32, SHAPE(3, 1), 0),
                   .out = make(float32, SHAPE(m, 3), 0),
                   .block = {128, 128}};
  for (int64_t i = 0; i < 3 * k; i++)
    ((uint8_t *)c.weight->tensor.data)[i] = (uint8_t)(is_float8 && (i & 127) == 127 ? 0 : i);
  for (int64_t i = 0; i < 3; i++)
    set(&c.scale->tensor, i, 0.37 * (double)(i + 1));
  for (int64_t first = 0; first < k; first += m) {
    for (int64_t i = 0; i < m * k; i++)
      set(&c.x->tensor, i, i % k == first + i / k);
    multiply_weight_only(both[_i % 2], &c);
    for (int64_t i = 0; i < 3 * m; i++) {
      uint8_t code = (uint8_t)(first + i / 3);
      double value = !is_float8 ? (int8_t)code : (code & 127) == 127 ? 0 : (double)fl_e4m3fn_to_float(code);
      double expected = value * (double)(float)(0.37 * (double)(i % 3 + 1));
      ck_each(fabs(element(c.out, i) - expected) <= 1e-6 * fabs(expected), "code %d of channel %d: %.9g, expected %.9g",
              code, (int)(i % 3), element(c.out, i), expected);
    }
  }
  unmake_weight_only(&c);
}
END_TEST

/* Scales of the tensor, of channels and of blocks, sizes next to those of tiles and steps, all types of x. */
START_TEST(O5_products_of_a_weight_of_bytes_agree_with_the_reference) {
  static const int64_t sizes[][3] = {{1, 1, 1},     {1, 33, 64},  {2, 9, 65},    {3, 17, 63},  {4, 32, 128},
                                     {5, 130, 200}, {8, 70, 256}, {9, 31, 100},  {12, 33, 64}, {25, 300, 5},
                                     {7, 3, 0},     {0, 4, 8},    {33, 50, 270}, {6, 50, 270}, {1, 70, 320}};
  static const int64_t blocks[][2] = {{16, 32}, {128, 128}, {3, 5}};
  bool is_float8 = _i % 2;
  for (size_t i = 0; i < 4 * sizeof sizes / sizeof sizes[0]; i++) {
    const int64_t *size = sizes[i / 4], *block = blocks[i / 4 % 3];
    int64_t m = size[0], n = size[1], k = size[2], padding = (int64_t)i % 3;
    DLDataType type = floats[(i + i / 4) % 3];
    weight_only c = {.x = make_filled(type, SHAPE(m, k), padding, 1),
                     .weight = is_float8 ? make_codes(n, k, 2 * padding, 2) : make_bytes(int8, n, k, 2 * padding, 2),
                     .bias = i % 3 ? make_filled(type, SHAPE(n), 0, 5) : NULL,
                     .block = {block[0], block[1]}};
    c.scale = i % 4 == 0   ? make_constant(float32, 0, NULL, 0, 0.01)
              : i % 4 == 1 ? make_bounded(float32, SHAPE(n), 0, 4, 0.01)
              : i % 4 == 2 ? make_bounded(float32, SHAPE(n, 1), padding, 4, 0.01)
                           : make_bounded(float32, SHAPE((n + block[0] - 1) / block[0], (k + block[1] - 1) / block[1]),
                                          padding, 4, 0.01);
    owned *out[] = {make(type, SHAPE(m, n), padding), make(type, SHAPE(m, n), padding)};
    for (int which = 0; which < 2; which++) {
      c.out = out[which];
      multiply_weight_only(both[which], &c);
    }
    check_close("weight_only_linear", &out[1]->tensor, &out[0]->tensor);
    unmake_weight_only(&c);
    unmake(out[0]);
  }
}
END_TEST

/* Of x in its row, of the weight in its column, for few rows and many. */
START_TEST(nan_beside_a_weight_of_bytes_stays_in_its_row_and_column) {
  int64_t m = _i / 2 ? 20 : 3, n = 40, k = 70;
  weight_only c = {.x = make_filled(bfloat16, SHAPE(m, k), 0, 1),
                   .weight = make_codes(n, k, 0, 2),
                   .scale = make_constant(float32, SHAPE(1), 0, 0.01),
                   .out = make(bfloat16, SHAPE(m, n), 0),
                   .block = {128, 128}};
  set(&c.x->tensor, k + 69, NAN);
  ((uint8_t *)c.weight->tensor.data)[7 * k + 1] = 0xff;
  multiply_weight_only(both[_i % 2], &c);
  for (int64_t row = 0; row < m; row++)
    for (int64_t column = 0; column < n; column++)
      ck_each(isnan(element(c.out, row * n + column)) == (row == 1 || column == 7), "row %lld, column %lld is %g",
              (long long)row, (long long)column, element(c.out, row * n + column));
  unmake_weight_only(&c);
}
END_TEST

START_TEST(O6_bad_arguments_of_weight_only_linear_are_refused_with_a_reason) {
  owned *x = make(bfloat16, SHAPE(2, 40), 0), *w = make(int8, SHAPE(20, 40), 0), *words = make(int32, SHAPE(20, 40), 0);
  owned *one = make(float32, SHAPE(1), 0), *rows = make(float32, SHAPE(2, 1), 0),
        *out = make(bfloat16, SHAPE(2, 20), 0);
  fl_value none = fl_none(), X = value_of(x), W = value_of(w), ONE = value_of(one), OUT = value_of(out);
  static const int64_t sizes[] = {16, 32}, zero[] = {16, 0};
  const struct {
    const char *message;
    fl_value values[6];
  } cases[] = {
      {"argument 'weight': dtype int32, expected float8_e4m3fn or int8",
       {X, value_of(words), ONE, none, fl_ints(sizes, 2), OUT}},
      {"argument 'block_size': 1 numbers, expected 2 (rows and columns of 'weight')",
       {X, W, ONE, none, fl_ints(sizes, 1), OUT}},
      {"argument 'block_size': [16, 0], expected 1 or more", {X, W, ONE, none, fl_ints(zero, 2), OUT}},
      {"argument 'weight_scale': shape [2, 1], expected [1], [], [20], [20, 1] (n of 'weight') or [2, 2] ((k + "
       "block_size[1] - 1) // block_size[1], k = 40 of 'x')",
       {X, W, value_of(rows), none, fl_ints(sizes, 2), OUT}},
      {"argument 'bias': dtype float32, expected bfloat16 (that of 'x')", {X, W, ONE, ONE, fl_ints(sizes, 2), OUT}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "weight_only_linear: %s", cases[i].message);
    check_refused("weight_only_linear", expected, cases[i].values, 6);
  }
  UNMAKE(x, w, words, one, rows, out);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- 4 bits */

static void awq(const char *id, owned *x, owned *qweight, owned *scales, owned *qzeros, owned *bias, owned *out) {
  fl_value values[] = {value_of(x),      value_of(qweight), value_of(scales),
                       value_of(qzeros), value_of(bias),    value_of(out)};
  check_call("awq_linear", id, values, 6);
}

typedef struct gptq_call {
  owned *x, *qweight, *scales, *qzeros, *g_idx, *bias, *out;
  bool v2;
} gptq_call;

static fl_status gptq(const char *id, const gptq_call *c) {
  fl_value values[] = {value_of(c->x),     value_of(c->qweight), value_of(c->scales), value_of(c->qzeros),
                       value_of(c->g_idx), value_of(c->bias),    fl_bool(c->v2),      value_of(c->out)};
  return call_impl("gptq_linear", id, values, 8);
}

/* A matrix with ones on its diagonal: the result is the weight. More rows than those that decoding has. */
static owned *identity(int64_t size) {
  owned *made = make_constant(float32, SHAPE(size, size), 0, 0);
  for (int64_t i = 0; i < size; i++)
    set(&made->tensor, i * size + i, 1);
  return made;
}

/* Nibble i of the word holds i; columns of AWQ are nibbles 0 4 1 5 2 6 3 7. */
START_TEST(AWQ_has_columns_in_its_order_of_nibbles_and_subtracts_zeros_as_stored) {
  static const int order[] = {0, 4, 1, 5, 2, 6, 3, 7};
  int64_t k = _i / 2 ? 16 : 8;
  owned *x = identity(k), *words = make(int32, SHAPE(k, 1), 0), *scales = make_constant(float32, SHAPE(1, 8), 0, 0.5);
  owned *zeros = make(int32, SHAPE(1, 1), 0), *out = make(float32, SHAPE(k, 8), 0);
  for (int64_t i = 0; i < k; i++)
    ((uint32_t *)words->tensor.data)[i] = 0x76543210u;
  ((uint32_t *)zeros->tensor.data)[0] = 0xf0000003u;
  awq(both[_i % 2], x, words, scales, zeros, NULL, out);
  for (int64_t i = 0; i < k * 8; i++) {
    int column = (int)(i % 8), zero = column == 0 ? 3 : column == 7 ? 15 : 0;
    ck_assert_double_eq(element(out, i), 0.5 * (order[column] - zero));
  }
  UNMAKE(x, words, scales, zeros, out);
}
END_TEST

START_TEST(GPTQ_has_rows_in_order_and_zeros_one_more_than_stored_but_in_its_second_version) {
  int64_t k = _i / 2 ? 16 : 8;
  owned *zeros = make_constant(int32, SHAPE(1, 1), 0, 0);
  ((uint32_t *)zeros->tensor.data)[0] = 0xe0000003u;
  for (int kind = 0; kind < 3; kind++) {
    gptq_call c = {.x = identity(k),
                   .qweight = make(int32, SHAPE(k / 8, 8), 0),
                   .scales = make_constant(float32, SHAPE(1, 8), 0, 0.5),
                   .qzeros = kind ? zeros : NULL,
                   .out = make(float32, SHAPE(k, 8), 0),
                   .v2 = kind == 2};
    for (int64_t i = 0; i < k; i++)
      ((uint32_t *)c.qweight->tensor.data)[i] = 0x76543210u;
    ck_assert_int_eq(gptq(both[_i % 2], &c), FL_OK);
    for (int64_t i = 0; i < k * 8; i++) {
      int column = (int)(i % 8), stored = column == 0 ? 3 : column == 7 ? 14 : 0;
      ck_assert_double_eq(element(c.out, i), 0.5 * ((int)(i / 8 % 8) - (kind ? stored + (kind == 1) : 8)));
    }
    UNMAKE(c.x, c.qweight, c.scales, c.out);
  }
  unmake(zeros);
}
END_TEST

START_TEST(rows_of_GPTQ_have_the_groups_of_g_idx_in_any_order) {
  static const int64_t groups[] = {2, 0, 1, 2, 2, 0, 1, 1};
  gptq_call c = {.x = identity(8),
                 .qweight = make(int32, SHAPE(1, 8), 0),
                 .scales = make(float32, SHAPE(3, 8), 0),
                 .g_idx = make_indices(_i / 2 ? int64 : int32, SHAPE(8), groups),
                 .out = make(float32, SHAPE(8, 8), 0)};
  for (int i = 0; i < 8; i++)
    ((uint32_t *)c.qweight->tensor.data)[i] = 0x99999999u; /* 1 more than the zero point */
  for (int i = 0; i < 24; i++)
    set(&c.scales->tensor, i, i / 8 + 1);
  ck_assert_int_eq(gptq(both[_i % 2], &c), FL_OK);
  for (int64_t i = 0; i < 64; i++)
    ck_assert_double_eq(element(c.out, i), (double)groups[i / 8] + 1);
  UNMAKE(c.x, c.qweight, c.scales, c.g_idx, c.out);
}
END_TEST

START_TEST(a_group_that_is_not_there_is_refused_before_anything_is_written) {
  static const int64_t beyond[] = {0, 1, 0, 1, 0, 2, 1, 1}, below[] = {0, -1, 0, 0, 0, 0, 0, 0};
  for (int64_t m = 1; m < 20; m += 18)
    for (int which = 0; which < 2; which++) {
      gptq_call c = {.x = make_constant(float32, SHAPE(m, 8), 0, 1),
                     .qweight = make_words(1, 8, 1),
                     .scales = make_constant(float32, SHAPE(2, 8), 0, 1),
                     .g_idx = make_indices(int32, SHAPE(8), which ? below : beyond),
                     .out = make_constant(float32, SHAPE(m, 8), 0, 77)};
      ck_assert_int_eq(gptq(both[_i], &c), FL_EINVAL);
      ck_assert_str_eq(message, which ? "argument 'g_idx'[1] is -1, expected 0 to 1 (groups of 'scales')"
                                      : "argument 'g_idx'[5] is 2, expected 0 to 1 (groups of 'scales')");
      for (int64_t i = 0; i < m * 8; i++)
        ck_each(element(c.out, i) == 77, "element %lld was written", (long long)i);
      UNMAKE(c.x, c.qweight, c.scales, c.g_idx, c.out);
    }
}
END_TEST

static void mxfp4(const char *id, owned *x, owned *weight, owned *scale, owned *bias, owned *out) {
  fl_value values[] = {value_of(x), value_of(weight), value_of(scale), value_of(bias), value_of(out)};
  check_call("mxfp4_linear", id, values, 5);
}

/* Codes 0 to 15 twice in a row, low nibbles first; one row or many of x. */
START_TEST(MXFP4_has_sixteen_values_powers_of_two_as_scales_and_NaN_in_the_column_of_255) {
  static const double expected[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  for (int64_t position = 0; position < 32; position++) {
    int64_t m = _i / 2 ? 11 : 1;
    owned *x = make_constant(float32, SHAPE(m, 32), 0, 0), *weight = make(uint8, SHAPE(4, 16), 0);
    owned *scale = make(uint8, SHAPE(4, 1), 0), *out = make(float32, SHAPE(m, 4), 0);
    for (int64_t r = 0; r < m; r++)
      set(&x->tensor, r * 32 + position, 1);
    for (int i = 0; i < 64; i++)
      ((uint8_t *)weight->tensor.data)[i] = (uint8_t)(i % 8 * 2 | (i % 8 * 2 + 1) << 4);
    memcpy(scale->tensor.data, (uint8_t[]){127, 130, 255, 0}, 4);
    mxfp4(both[_i % 2], x, weight, scale, NULL, out);
    for (int64_t r = 0; r < m; r++) {
      ck_assert_double_eq(element(out, 4 * r), expected[position % 16]);
      ck_assert_double_eq(element(out, 4 * r + 1), 8 * expected[position % 16]);
      ck_assert(isnan(element(out, 4 * r + 2)));
      ck_assert_double_eq(element(out, 4 * r + 3), ldexp(expected[position % 16], -127));
    }
    UNMAKE(x, weight, scale, out);
  }
}
END_TEST

/* Around the sizes of chunks, blocks and stripes, and of groups that are larger, smaller and no multiple of 8. */
START_TEST(O5_layers_of_four_bits_of_all_sizes_agree_with_the_reference) {
  static const int64_t sizes[][4] = {{1, 8, 8, 1},     {1, 128, 256, 1},  {2, 136, 272, 2}, {3, 264, 160, 20},
                                     {4, 1032, 64, 1}, {5, 120, 384, 3},  {8, 128, 128, 1}, {7, 16, 96, 8},
                                     {9, 40, 64, 2},   {17, 264, 128, 1}, {0, 8, 32, 1},    {2, 8, 0, 1}};
  DLDataType dtype = floats[_i];
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2], g = sizes[i][3];
    owned *x = make_filled(dtype, SHAPE(m, k), 3, 1), *bias = i % 2 ? make_filled(dtype, SHAPE(n), 0, 2) : NULL;
    owned *scales = make_bounded(dtype, SHAPE(g, n), 1, 3, 0.01), *zeros = make_words(g, n / 8, 4);
    owned *by_rows = make_words(k, n / 8, 5), *by_columns = make_words(k / 8, n, 6);
    owned *bytes = make_bytes(uint8, n, k / 2, 4, 7), *powers = make_bytes(uint8, n, k / 32, 2, 8);
    for (size_t b = 0; b < powers->bytes; b++)
      ((uint8_t *)powers->tensor.data)[b] = (uint8_t)(118 + ((uint8_t *)powers->tensor.data)[b] % 5);
    owned *out[6];
    for (int which = 0; which < 2; which++) {
      for (int op = 0; op < 3; op++)
        out[2 * op + which] = make(dtype, SHAPE(m, n), 2);
      awq(both[which], x, by_rows, scales, zeros, bias, out[which]);
      const gptq_call c = {x, by_columns, scales, i % 3 ? zeros : NULL, NULL, bias, out[2 + which], i % 2};
      ck_assert_int_eq(gptq(both[which], &c), FL_OK);
      if (k % 32 == 0)
        mxfp4(both[which], x, bytes, powers, bias, out[4 + which]);
    }
    check_close("awq_linear", &out[1]->tensor, &out[0]->tensor);
    check_close("gptq_linear", &out[3]->tensor, &out[2]->tensor);
    if (k % 32 == 0)
      check_close("mxfp4_linear", &out[5]->tensor, &out[4]->tensor);
    unmake_all(out, 6);
    UNMAKE(x, scales, zeros, by_rows, by_columns, bytes, powers);
    unmake(bias);
  }
}
END_TEST

/* One x with the weights of each format, by both implementations. */
enum { FORMATS = 3, FORMATS_N = 136, FORMATS_K = 256 };

static void multiply_by_each_format(owned *x, double scale, int power, owned **out) {
  enum { N = FORMATS_N, K = FORMATS_K, G = 2 };
  DLDataType dtype = x->tensor.dtype;
  owned *scales = make_constant(dtype, SHAPE(G, N), 0, scale), *zeros = make_words(G, N / 8, 4);
  owned *by_rows = make_words(K, N / 8, 5), *by_columns = make_words(K / 8, N, 6);
  owned *bytes = make_bytes(uint8, N, K / 2, 4, 7), *powers = make_bytes(uint8, N, K / 32, 2, 8);
  memset(powers->tensor.data, power, powers->bytes);
  for (int which = 0; which < 2; which++) {
    for (int op = 0; op < FORMATS; op++)
      out[2 * op + which] = make(dtype, SHAPE(x->tensor.shape[0], N), 2);
    awq(both[which], x, by_rows, scales, zeros, NULL, out[which]);
    const gptq_call c = {x, by_columns, scales, zeros, NULL, NULL, out[2 + which], true};
    ck_assert_int_eq(gptq(both[which], &c), FL_OK);
    mxfp4(both[which], x, bytes, powers, NULL, out[4 + which]);
  }
  UNMAKE(scales, zeros, by_rows, by_columns, bytes, powers);
}

/* Whole numbers of which float32 holds each sum, and powers of two as scales, near the ends of what floats are, too. */
START_TEST(sums_of_four_bits_that_a_float_holds_are_exact) {
  enum { M = 3, N = FORMATS_N, K = FORMATS_K, EXPONENTS = 4 };
  static const int exponents[EXPONENTS] = {0, 90, -100, -118};
  static const int edges[] = {127, 128, -128, -129, 255, 256, -256, -257, 2047, -2048, 1, -1, 0};
  double unit = ldexp(1, exponents[_i % EXPONENTS]);
  owned *x = make(_i < EXPONENTS ? float32 : bfloat16, SHAPE(M, K), 3), *out[2 * FORMATS];
  for (int64_t i = 0; i < M * K; i++)
    set(&x->tensor, i / K * (K + 3) + i % K, unit * edges[i * 7 % 13]);
  multiply_by_each_format(x, 0.25, 126, out);
  for (int op = 0; op < FORMATS; op++)
    for (int64_t i = 0; i < M * N; i++)
      ck_assert_double_eq(element(out[2 * op + 1], i), element(out[2 * op], i));
  unmake_all(out, 2 * FORMATS);
  unmake(x);
}
END_TEST

/* Two rows differ in one number, which in the second is 0: where its weight is 0, results are those of the others. */
START_TEST(a_number_much_greater_than_its_neighbours_costs_these_nothing) {
  enum { M = 2, N = FORMATS_N, K = FORMATS_K, WHERE = 70 };
  owned *x = make(floats[_i], SHAPE(M, K), 3), *out[2 * FORMATS];
  for (int64_t i = 0; i < M * K; i++)
    set(&x->tensor, i / K * (K + 3) + i % K, sin((double)(i % K * i % K + 1)));
  set(&x->tensor, WHERE, 4096);
  set(&x->tensor, K + 3 + WHERE, 0);
  multiply_by_each_format(x, 0.125, 124, out);
  for (int op = 0; op < FORMATS; op++) {
    int found = 0;
    for (int64_t column = 0; column < N; column++) {
      double wanted = element(out[2 * op], N + column), got = element(out[2 * op + 1], column);
      if (fabs(element(out[2 * op], column) - wanted) > 32)
        continue;
      found++;
      ck_each(fabs(got - wanted) <= 1e-3 + fabs(wanted) / 128, "op %d, column %lld is %g, expected %g", op,
              (long long)column, got, wanted);
    }
    ck_assert_int_gt(found, 0);
    ck_assert_int_lt(found, N / 2);
  }
  unmake_all(out, 2 * FORMATS);
  unmake(x);
}
END_TEST

/* It stays in its row; where a weight is 0, it makes NaN. */
START_TEST(an_infinite_number_beside_weights_of_four_bits_is_what_the_reference_makes_of_it) {
  enum { M = 2, N = FORMATS_N, K = FORMATS_K };
  owned *x = make_filled(floats[_i], SHAPE(M, K), 3, 1), *out[2 * FORMATS];
  set(&x->tensor, (M - 1) * (K + 3) + 70, INFINITY);
  multiply_by_each_format(x, 0.125, 124, out);
  for (int op = 0; op < FORMATS; op++)
    for (int64_t i = 0; i < M * N; i++) {
      double wanted = element(out[2 * op], i), got = element(out[2 * op + 1], i);
      ck_each(isfinite(wanted) == (i < N), "element %lld of the reference is %g", (long long)i, wanted);
      ck_each(isfinite(wanted) ? isfinite(got)
              : isnan(wanted)  ? isnan(got)
                               : got == wanted,
              "op %d, element %lld is %g, expected %g", op, (long long)i, got, wanted);
    }
  unmake_all(out, 2 * FORMATS);
  unmake(x);
}
END_TEST

START_TEST(O6_bad_arguments_of_layers_of_four_bits_are_refused_with_a_reason) {
  owned *x = make(float32, SHAPE(2, 96), 0), *odd = make(float32, SHAPE(2, 40), 0),
        *out = make(float32, SHAPE(2, 16), 0);
  owned *rows = make(int32, SHAPE(96, 2), 0), *columns = make(int32, SHAPE(12, 16), 0),
        *nine = make(int32, SHAPE(12, 9), 0);
  owned *scales = make(float32, SHAPE(5, 16), 0), *n9 = make(float32, SHAPE(3, 9), 0);
  owned *zeros = make(int32, SHAPE(5, 2), 0), *out9 = make(float32, SHAPE(2, 9), 0),
        *bytes = make(uint8, SHAPE(16, 20), 0);
  owned *powers = make(uint8, SHAPE(16, 1), 0), *none_of = make(float32, SHAPE(0, 16), 0);
  fl_value none = fl_none(), X = value_of(x), OUT = value_of(out), no = fl_bool(false);
  const struct {
    const char *message, *op;
    uint32_t n;
    fl_value values[8];
  } cases[] = {
      {"argument 'scales': 5 groups, expected a divisor of 96 (rows of the weight)",
       "awq_linear",
       6,
       {X, value_of(rows), value_of(scales), value_of(zeros), none, OUT}},
      {"argument 'scales': 5 groups, expected a divisor of 96 (rows of the weight)",
       "gptq_linear",
       8,
       {X, value_of(columns), value_of(scales), none, none, none, no, OUT}},
      {"argument 'scales': 0 groups, expected a divisor of 96 (rows of the weight)",
       "gptq_linear",
       8,
       {X, value_of(columns), value_of(none_of), none, none, none, no, OUT}},
      {"argument 'qweight': 9 columns, expected a multiple of 8",
       "gptq_linear",
       8,
       {X, value_of(nine), value_of(n9), none, none, none, no, value_of(out9)}},
      {"argument 'scales': shape [3, 9], expected [g, 16] (n of 'qweight')",
       "awq_linear",
       6,
       {X, value_of(rows), value_of(n9), value_of(zeros), none, OUT}},
      {"argument 'weight_scale': shape [16, 1], expected [16, k/32] (k/32, k = 40 of 'x')",
       "mxfp4_linear",
       5,
       {value_of(odd), value_of(bytes), value_of(powers), none, OUT}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "%s: %s", cases[i].op, cases[i].message);
    check_refused(cases[i].op, expected, cases[i].values, cases[i].n);
  }
  UNMAKE(x, odd, out, rows, columns, nine, scales, n9, zeros, out9, bytes, powers, none_of);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, sums_of_int8_are_exact_where_a_float_holds_no_more, 0, 4);
  tcase_add_loop_test(tests, O5_products_of_bytes_of_all_sizes_agree_with_the_reference, 0, 2);
  tcase_add_loop_test(tests, blocks_have_scales_of_their_own_and_the_last_may_be_short, 0, 2);
  tcase_add_loop_test(tests, a_block_is_scaled_by_its_rows_and_columns, 0, 2);
  tcase_add_loop_test(tests, nan_stays_in_its_row_and_column, 0, 4);
  tcase_add_test(tests, O6_bad_arguments_of_scaled_mm_are_refused_with_a_reason);
  tcase_add_loop_test(tests, a_weight_alone_is_its_codes_times_the_scale_of_its_channel, 0, 8);
  tcase_add_loop_test(tests, O5_products_of_a_weight_of_bytes_agree_with_the_reference, 0, 2);
  tcase_add_loop_test(tests, nan_beside_a_weight_of_bytes_stays_in_its_row_and_column, 0, 4);
  tcase_add_test(tests, O6_bad_arguments_of_weight_only_linear_are_refused_with_a_reason);
  tcase_add_loop_test(tests, AWQ_has_columns_in_its_order_of_nibbles_and_subtracts_zeros_as_stored, 0, 4);
  tcase_add_loop_test(tests, GPTQ_has_rows_in_order_and_zeros_one_more_than_stored_but_in_its_second_version, 0, 4);
  tcase_add_loop_test(tests, rows_of_GPTQ_have_the_groups_of_g_idx_in_any_order, 0, 4);
  tcase_add_loop_test(tests, a_group_that_is_not_there_is_refused_before_anything_is_written, 0, 2);
  tcase_add_loop_test(tests, MXFP4_has_sixteen_values_powers_of_two_as_scales_and_NaN_in_the_column_of_255, 0, 4);
  tcase_add_loop_test(tests, O5_layers_of_four_bits_of_all_sizes_agree_with_the_reference, 0, 3);
  tcase_add_loop_test(tests, an_infinite_number_beside_weights_of_four_bits_is_what_the_reference_makes_of_it, 0, 3);
  tcase_add_loop_test(tests, sums_of_four_bits_that_a_float_holds_are_exact, 0, 8);
  tcase_add_loop_test(tests, a_number_much_greater_than_its_neighbours_costs_these_nothing, 0, 3);
  tcase_add_test(tests, O6_bad_arguments_of_layers_of_four_bits_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_quantised_linear", add_tests, 20);
}
