/* Linear layers, embedding and logits: their checks, and both CPU kernels over sizes around those of their blocks. */
#include "tests/kernels.h"

#include <flhost/dtype.h>
#include <math.h>

/* Values between -1/8 and 1/8: sums of hundreds of products stay near 1, as in a model. */
static owned *make_weight(DLDataType dtype, int ndim, const int64_t *shape, int64_t padding, uint32_t seed) {
  return make_bounded(dtype, ndim, shape, padding, seed, 1.0 / 8);
}

static void replicated(const char *id, owned *x, owned *weight, owned *bias, owned *out) {
  fl_value values[] = {value_of(x), value_of(weight), value_of(bias), fl_bool(false), value_of(out)};
  check_call("replicated_linear", id, values, 5);
}

/* ---------------------------------------------------------------------------------------------------------- linear */

START_TEST(a_linear_layer_is_x_times_the_transposed_weight_plus_bias) {
  const float x[] = {1, 2, 3, -1, 0, 0.5f}, weight[] = {1, 0, 0, 1, 1, 1}, bias[] = {0.25f, -6};
  const double expected[] = {1.25, 0, -0.75, -6.5};
  owned *a = make(floats[_i % 3], SHAPE(2, 3), 0), *w = make(floats[_i % 3], SHAPE(2, 3), 0);
  owned *b = make(floats[_i % 3], SHAPE(2), 0), *out = make(floats[_i % 3], SHAPE(2, 2), 0);
  for (int i = 0; i < 6; i++) {
    set(&a->tensor, i, (double)x[i]);
    set(&w->tensor, i, (double)weight[i]);
  }
  set(&b->tensor, 0, (double)bias[0]);
  set(&b->tensor, 1, (double)bias[1]);
  replicated(both[_i / 3], a, w, b, out);
  for (int i = 0; i < 4; i++)
    ck_assert_double_eq(get(&out->tensor, i), expected[i]);
  UNMAKE(a, w, b, out);
}
END_TEST

/* 256 + 1 is 256 in bfloat16: sum and bias are rounded together, not one by one. */
START_TEST(O4_sum_and_bias_are_rounded_once) {
  owned *x = make(bfloat16, SHAPE(1, 3), 0), *w = make(bfloat16, SHAPE(1, 3), 0), *b = make(bfloat16, SHAPE(1), 0);
  owned *out = make(bfloat16, SHAPE(1, 1), 0);
  const double elements[] = {256, 1, 0.5};
  for (int i = 0; i < 3; i++) {
    set(&x->tensor, i, elements[i]);
    set(&w->tensor, i, 1);
  }
  set(&b->tensor, 0, 0.5);
  replicated(both[_i], x, w, b, out);
  ck_assert_double_eq(get(&out->tensor, 0), 258);
  UNMAKE(x, w, b, out);
}
END_TEST

static void compare_products(DLDataType dtype, int64_t m, int64_t n, int64_t k) {
  owned *x = make_filled(dtype, SHAPE(m, k), 3, 1), *w = make_weight(dtype, SHAPE(n, k), 5, 2);
  owned *b = make_filled(dtype, SHAPE(n), 0, 3);
  owned *out[] = {make(dtype, SHAPE(m, n), 0), make(dtype, SHAPE(m, n), 0)};
  for (int with_bias = 0; with_bias < 2; with_bias++) {
    for (int which = 0; which < 2; which++)
      replicated(both[which], x, w, with_bias ? b : NULL, out[which]);
    check_close("replicated_linear", &out[1]->tensor, &out[0]->tensor);
  }
  UNMAKE(x, w, b, out[0], out[1]);
}

/* Around the numbers of rows, columns and terms at which the default's blocks, panels and vectors end. */
START_TEST(O5_products_of_all_sizes_agree_with_the_reference) {
  static const int64_t sizes[][3] = {{1, 1, 1},    {1, 33, 17},  {2, 5, 15},    {3, 31, 16},    {4, 32, 256},
                                     {5, 33, 257}, {8, 64, 300}, {9, 32, 8},    {12, 257, 256}, {13, 31, 513},
                                     {25, 300, 5}, {516, 9, 3},  {517, 33, 7},  {1033, 2, 20},  {2, 260, 1024},
                                     {7, 3, 0},    {30, 40, 0},  {24, 256, 512}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    compare_products(floats[_i], sizes[i][0], sizes[i][1], sizes[i][2]);
}
END_TEST

START_TEST(O2_linear_layers_take_strided_tensors_of_any_rank) {
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  enum { K = 19, N = 35 };
  const int64_t leading[] = {2, 3, 5};
  owned *w = make_weight(dtype, SHAPE(N, K), 0, 2), *strided_w = make_weight(dtype, SHAPE(N, K), 3, 2);
  for (int rank = 0; rank <= 3; rank++) {
    int64_t in[4], result[4];
    memcpy(in, leading, sizeof leading);
    memcpy(result, leading, sizeof leading);
    in[rank] = K;
    result[rank] = N;
    owned *x = make_filled(dtype, rank + 1, in, 0, 1), *out = make(dtype, rank + 1, result, 0);
    owned *strided_x = make_filled(dtype, rank + 1, in, 4, 1), *strided_out = make(dtype, rank + 1, result, 2);
    replicated(id, x, w, NULL, out);
    replicated(id, strided_x, strided_w, NULL, strided_out);
    check_close("replicated_linear", &strided_out->tensor, &out->tensor);
    UNMAKE(x, out, strided_x, strided_out);
  }
  UNMAKE(w, strided_w);
}
END_TEST

/* x may be one row for all tokens: what is only read may overlap itself. */
START_TEST(a_row_that_stands_for_many_is_read_many_times) {
  owned *x = make_filled(float32, SHAPE(9, 8), 0, 1), *w = make_weight(float32, SHAPE(3, 8), 0, 2);
  owned *out = make(float32, SHAPE(9, 3), 0);
  x->strides[0] = 0;
  x->strides[1] = 1;
  x->tensor.strides = x->strides;
  replicated(both[_i], x, w, NULL, out);
  for (int64_t i = 3; i < 27; i++)
    ck_assert_double_eq(get(&out->tensor, i), get(&out->tensor, i % 3));
  UNMAKE(x, w, out);
}
END_TEST

START_TEST(O7_parallel_layers_are_local_and_a_skipped_bias_is_not_added) {
  const char *id = both[_i];
  owned *x = make_filled(bfloat16, SHAPE(3, 8), 0, 1), *w = make_weight(bfloat16, SHAPE(5, 8), 0, 2);
  owned *b = make_filled(bfloat16, SHAPE(5), 0, 3), *with = make(bfloat16, SHAPE(3, 5), 0);
  owned *without = make(bfloat16, SHAPE(3, 5), 0), *out = make(bfloat16, SHAPE(3, 5), 0);
  replicated(id, x, w, b, with);
  replicated(id, x, w, NULL, without);
  for (int skip = 0; skip < 2; skip++) {
    owned *expected = skip ? without : with;
    fl_value one[] = {value_of(x), value_of(w), value_of(b), fl_bool(skip), value_of(out)};
    fl_value column[] = {value_of(x), value_of(w), value_of(b), fl_bool(true), fl_bool(skip), value_of(out)};
    fl_value row[] = {value_of(x),   value_of(w),   value_of(b),  fl_bool(false),
                      fl_bool(true), fl_bool(skip), value_of(out)};
    check_call("replicated_linear", id, one, 5);
    check_same_elements(&expected->tensor, out);
    check_call("column_parallel_linear", id, column, 6);
    check_same_elements(&expected->tensor, out);
    check_call("row_parallel_linear", id, row, 7);
    check_same_elements(&expected->tensor, out);
  }
  fl_value head[] = {value_of(x), value_of(w), value_of(b), value_of(out)};
  check_call("parallel_lm_head", id, head, 4);
  check_same_elements(&with->tensor, out);
  UNMAKE(x, w, b, with, without, out);
}
END_TEST

START_TEST(O2_no_tokens_write_nothing) {
  const char *id = both[_i];
  owned *x = make(float16, SHAPE(3, 0, 8), 0), *w = make_weight(float16, SHAPE(5, 8), 0, 2);
  owned *out = make(float16, SHAPE(3, 0, 5), 0), *ids = make(int64, SHAPE(0), 0), *rows = make(float16, SHAPE(0, 8), 0);
  replicated(id, x, w, NULL, out);
  fl_value logits[] = {value_of(x), value_of(w), fl_none(), fl_none(), fl_float(2), fl_float(1), value_of(out)};
  check_call("logits_processor", id, logits, 7);
  fl_value embedding[] = {value_of(ids), value_of(w), fl_int(0), fl_none(),
                          fl_int(0),     fl_int(0),   fl_int(0), value_of(rows)};
  check_call("vocab_parallel_embedding", id, embedding, 8);
  UNMAKE(x, w, out, ids, rows);
}
END_TEST

START_TEST(nan_and_infinity_stay_in_their_rows) {
  owned *x = make_filled(float32, SHAPE(14, 40), 0, 1), *w = make_weight(float32, SHAPE(34, 40), 0, 2);
  owned *out = make(float32, SHAPE(14, 34), 0);
  set(&x->tensor, 0, NAN);
  set(&x->tensor, 13 * 40, INFINITY);
  replicated(both[_i], x, w, NULL, out);
  for (int64_t i = 0; i < 14 * 34; i++) {
    double result = get(&out->tensor, i);
    ck_assert(i < 34 ? isnan(result) : i >= 13 * 34 ? isinf(result) : isfinite(result));
  }
  UNMAKE(x, w, out);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- embedding */

typedef struct shard {
  int64_t org_start, org_end, padding, added_start, added_end; /* org_end < 0: the whole table */
} shard;

static fl_status embed(const char *id, owned *ids, owned *weight, shard s, owned *out) {
  fl_value values[] = {
      value_of(ids),     value_of(weight),      fl_int(s.org_start), s.org_end < 0 ? fl_none() : fl_int(s.org_end),
      fl_int(s.padding), fl_int(s.added_start), fl_int(s.added_end), value_of(out)};
  return call_impl("vocab_parallel_embedding", id, values, 8);
}

/* Two ranks, 8 ids and 4 added ones: vLLM's own example of masked ids. A row of the weight holds its number plus 1. */
START_TEST(O7_ids_of_another_shard_give_zeros) {
  static const shard ranks[] = {{0, 4, 0, 8, 10}, {4, 8, 0, 10, 12}};
  static const double rows[2][12] = {{1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 0, 0}, {0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6}};
  static const int64_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  for (int wide = 0; wide < 2; wide++)
    for (int rank = 0; rank < 2; rank++) {
      owned *ids = make_indices(wide ? int64 : int32, SHAPE(12), all), *out = make(floats[_i], SHAPE(12, 3), 2);
      owned *weight = make(floats[_i], SHAPE(6, 3), 4);
      for (int64_t i = 0; i < 18; i++)
        set(&weight->tensor, element_offset(&weight->tensor, i), (double)(i / 3 + 1));
      ck_assert_int_eq(embed("default.flagos", ids, weight, ranks[rank], out), FL_OK);
      for (int64_t i = 0; i < 36; i++)
        ck_assert_double_eq(get(&out->tensor, element_offset(&out->tensor, i)), rows[rank][i / 3]);
      UNMAKE(ids, out, weight);
    }
}
END_TEST

/* Added ids lie behind the padding of the others. Ids have any rank, also none. */
START_TEST(an_added_id_has_its_row_behind_the_padding) {
  const shard s = {2, 4, 3, 10, 12};
  owned *weight = make(float32, SHAPE(7, 1), 0), *id = make(int64, 0, NULL, 0), *out = make(float32, SHAPE(1), 0);
  for (int i = 0; i < 7; i++)
    set(&weight->tensor, i, i);
  set(&id->tensor, 0, 11);
  ck_assert_int_eq(embed(both[_i], id, weight, s, out), FL_OK);
  ck_assert_double_eq(get(&out->tensor, 0), 6);
  UNMAKE(weight, id, out);
}
END_TEST

/* Any that is not negative may be another shard's. */
START_TEST(the_largest_id_there_is_has_zeros) {
  const shard s = {0, 2, 0, 4, 5};
  owned *weight = make_weight(float32, SHAPE(3, 4), 0, 1), *out = make(float32, SHAPE(1, 4), 0);
  owned *id = make(int64, SHAPE(1), 0);
  *(int64_t *)fl_data(&id->tensor) = INT64_MAX;
  ck_assert_msg(embed(both[_i], id, weight, s, out) == FL_OK, "%s", message);
  for (int i = 0; i < 4; i++)
    ck_assert_double_eq(get(&out->tensor, i), 0);
  UNMAKE(weight, out, id);
}
END_TEST

START_TEST(O6_an_id_without_row_is_a_bad_argument_and_nothing_is_written) {
  static const struct {
    int64_t id;
    shard s;
    const char *message;
  } cases[] = {
      {6, {0, -1, 0, 0, 0}, "argument 'input_ids'[4] is 6, expected 0 to 5 (rows of 'weight')"},
      {-1, {0, -1, 0, 0, 0}, "argument 'input_ids'[4] is -1, expected 0 to 5 (rows of 'weight')"},
      {-1, {0, 4, 0, 8, 10}, "argument 'input_ids'[4] is -1, expected 0 or more"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    for (int wide = 0; wide < 2; wide++) {
      owned *weight = make_weight(float32, SHAPE(6, 4), 0, 1), *out = make(float32, SHAPE(2, 3, 4), 0);
      owned *untouched = make(float32, SHAPE(2, 3, 4), 0);
      owned *ids = make_indices(wide ? int64 : int32, SHAPE(2, 3), (int64_t[]){0, 1, 2, 3, cases[i].id, 5});
      ck_assert_int_eq(embed(both[_i], ids, weight, cases[i].s, out), FL_EINVAL);
      ck_assert_str_eq(message, cases[i].message);
      ck_assert_mem_eq(out->tensor.data, untouched->tensor.data, out->bytes);
      UNMAKE(weight, out, untouched, ids);
    }
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- logits */

/* tanh(6 / 3) * 3 = 2.8921, in bfloat16 by steps: tanh is 0.96484, times 3 is 2.8906; halved afterwards 1.4453. */
START_TEST(O4_logits_are_capped_and_then_scaled_and_rounded_at_each_step) {
  owned *x = make(bfloat16, SHAPE(1, 2), 0), *w = make(bfloat16, SHAPE(3, 2), 0), *out = make(bfloat16, SHAPE(1, 2), 0);
  const double rows[] = {4, 2, 0, 0, 1, 1};
  for (int i = 0; i < 6; i++)
    set(&w->tensor, i, rows[i]);
  set(&x->tensor, 0, 1);
  set(&x->tensor, 1, 1);
  fl_value values[] = {value_of(x), value_of(w), fl_none(), fl_int(2), fl_float(3), fl_float(0.5), value_of(out)};
  check_call("logits_processor", both[_i], values, 7);
  ck_assert_double_eq(get(&out->tensor, 0), 1.4453125);
  ck_assert_double_eq(get(&out->tensor, 1), 0);
  values[4] = fl_none();
  check_call("logits_processor", both[_i], values, 7);
  ck_assert_double_eq(get(&out->tensor, 0), 3);
  UNMAKE(x, w, out);
}
END_TEST

START_TEST(O5_logits_agree_with_the_reference) {
  static const int64_t tokens[] = {1, 8, 30};
  for (int i = 0; i < 3; i++) {
    owned *x = make_filled(floats[_i], SHAPE(tokens[i], 70), 1, 1), *w = make_weight(floats[_i], SHAPE(520, 70), 0, 2);
    owned *b = make_filled(floats[_i], SHAPE(520), 0, 3);
    owned *out[] = {make(floats[_i], SHAPE(tokens[i], 515), 0), make(floats[_i], SHAPE(tokens[i], 515), 0)};
    for (int which = 0; which < 2; which++) {
      fl_value values[] = {value_of(x),   value_of(w),    value_of(b),         fl_int(515),
                           fl_float(2.5), fl_float(-1.5), value_of(out[which])};
      check_call("logits_processor", both[which], values, 7);
    }
    check_close("logits_processor", &out[1]->tensor, &out[0]->tensor);
    UNMAKE(x, w, b, out[0], out[1]);
  }
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- refusals */

START_TEST(O6_bad_arguments_are_refused_with_a_reason) {
  owned *x = make(float32, SHAPE(3, 8), 0), *w = make(float32, SHAPE(5, 8), 0), *b = make(float32, SHAPE(5), 0);
  owned *out = make(float32, SHAPE(3, 5), 0), *half = make(float16, SHAPE(5, 8), 0), *ids = make(int64, SHAPE(3), 0);
  owned *rows = make(float32, SHAPE(3, 8), 0), *scalar = make(float32, 0, NULL, 0),
        *cube = make(float32, SHAPE(5, 8, 1), 0);
  fl_value none = fl_none(), X = value_of(x), W = value_of(w), B = value_of(b), OUT = value_of(out);
  fl_value yes = fl_bool(true), no = fl_bool(false), IDS = value_of(ids), ROWS = value_of(rows), zero = fl_int(0);
  const struct {
    const char *op, *message;
    uint32_t n;
    fl_value values[8];
  } cases[] = {
      {"replicated_linear", "argument 'x': shape [], expected [..., k]", 5, {value_of(scalar), W, B, no, OUT}},
      {"replicated_linear", "argument 'weight': shape [5, 8, 1], expected [n, 8]", 5, {X, value_of(cube), B, no, OUT}},
      {"replicated_linear", "argument 'weight': shape [3, 5], expected [n, 8] (k of 'x')", 5, {X, OUT, B, no, OUT}},
      {"replicated_linear",
       "argument 'weight': dtype float16, expected float32 (that of 'x')",
       5,
       {X, value_of(half), B, no, OUT}},
      {"replicated_linear", "argument 'bias': shape [3, 8], expected [5]", 5, {X, W, X, no, OUT}},
      {"replicated_linear", "result 'out': shape [3, 8], expected [3, 5] (n of 'weight')", 5, {X, W, B, no, ROWS}},
      {"row_parallel_linear",
       "argument 'bias': given, expected none or 'skip_bias_add': when not reduce the results, adding bias to the "
       "results can lead to incorrect results",
       7,
       {X, W, B, yes, no, no, OUT}},
      {"logits_processor",
       "argument 'org_vocab_size': 6, expected 1 to 5 (rows of 'weight')",
       7,
       {X, W, B, fl_int(6), none, fl_float(1), OUT}},
      {"logits_processor",
       "argument 'org_vocab_size': 0, expected 1 to 5 (rows of 'weight')",
       7,
       {X, W, B, zero, none, fl_float(1), OUT}},
      {"logits_processor",
       "argument 'soft_cap': 0, expected a finite number above 0",
       7,
       {X, W, B, none, fl_float(0), fl_float(1), OUT}},
      {"logits_processor",
       "result 'logits': shape [3, 5], expected [3, 4] (argument 'org_vocab_size')",
       7,
       {X, W, B, fl_int(4), none, fl_float(1), OUT}},
      {"vocab_parallel_embedding",
       "argument 'org_vocab_start': 1, expected 0 while 'org_vocab_end' is none",
       8,
       {IDS, W, fl_int(1), none, zero, zero, zero, ROWS}},
      {"vocab_parallel_embedding",
       "argument 'added_vocab_end': 2, expected 0 while 'org_vocab_end' is none",
       8,
       {IDS, W, zero, none, zero, zero, fl_int(2), ROWS}},
      {"vocab_parallel_embedding",
       "argument 'org_vocab_start': -1, expected 0 or more",
       8,
       {IDS, W, fl_int(-1), fl_int(4), zero, zero, zero, ROWS}},
      {"vocab_parallel_embedding",
       "argument 'org_vocab_end': 1, expected 2 or more (argument 'org_vocab_start')",
       8,
       {IDS, W, fl_int(2), fl_int(1), zero, zero, zero, ROWS}},
      {"vocab_parallel_embedding",
       "argument 'num_org_vocab_padding': -1, expected 0 or more",
       8,
       {IDS, W, zero, fl_int(4), fl_int(-1), zero, zero, ROWS}},
      {"vocab_parallel_embedding",
       "argument 'added_vocab_start': 3, expected 4 or more (argument 'org_vocab_end')",
       8,
       {IDS, W, zero, fl_int(4), zero, fl_int(3), fl_int(4), ROWS}},
      {"vocab_parallel_embedding",
       "argument 'added_vocab_end': 4, expected 5 or more (argument 'added_vocab_start')",
       8,
       {IDS, W, zero, fl_int(4), zero, fl_int(5), fl_int(4), ROWS}},
      {"vocab_parallel_embedding",
       "argument 'weight': 5 rows, expected at least those of the shard: 4 of 'org_vocab_start' to 'org_vocab_end', 1 "
       "of 'num_org_vocab_padding', 1 of 'added_vocab_start' to 'added_vocab_end'",
       8,
       {IDS, W, zero, fl_int(4), fl_int(1), fl_int(4), fl_int(5), ROWS}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "%s: %s", cases[i].op, cases[i].message);
    check_refused(cases[i].op, expected, cases[i].values, cases[i].n);
  }
  UNMAKE(x, w, b, out, half, ids, rows, scalar, cube);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, a_linear_layer_is_x_times_the_transposed_weight_plus_bias, 0, 6);
  tcase_add_loop_test(tests, O4_sum_and_bias_are_rounded_once, 0, 2);
  tcase_add_loop_test(tests, O5_products_of_all_sizes_agree_with_the_reference, 0, 3);
  tcase_add_loop_test(tests, O2_linear_layers_take_strided_tensors_of_any_rank, 0, 6);
  tcase_add_loop_test(tests, a_row_that_stands_for_many_is_read_many_times, 0, 2);
  tcase_add_loop_test(tests, O7_parallel_layers_are_local_and_a_skipped_bias_is_not_added, 0, 2);
  tcase_add_loop_test(tests, O2_no_tokens_write_nothing, 0, 2);
  tcase_add_loop_test(tests, nan_and_infinity_stay_in_their_rows, 0, 2);
  tcase_add_loop_test(tests, O7_ids_of_another_shard_give_zeros, 0, 3);
  tcase_add_loop_test(tests, an_added_id_has_its_row_behind_the_padding, 0, 2);
  tcase_add_loop_test(tests, the_largest_id_there_is_has_zeros, 0, 2);
  tcase_add_loop_test(tests, O6_an_id_without_row_is_a_bad_argument_and_nothing_is_written, 0, 2);
  tcase_add_loop_test(tests, O4_logits_are_capped_and_then_scaled_and_rounded_at_each_step, 0, 2);
  tcase_add_loop_test(tests, O5_logits_agree_with_the_reference, 0, 3);
  tcase_add_test(tests, O6_bad_arguments_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_linear", add_tests, 20);
}
