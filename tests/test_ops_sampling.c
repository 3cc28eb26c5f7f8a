/* Sampling: orders and ties by hand and against a count of who comes before whom, edges of each op, bad calls. */
#include "tests/op_case.h"

#include <float.h>
#include <math.h>

#define NONE (-INFINITY)

static void assert_all(op_case *c, const char *name, const double *values, int64_t n, double tolerance) {
  for (int64_t i = 0; i < n; i++) {
    double given = op_case_get(c, name, i);
    bool same = isnan(values[i]) ? isnan(given) : given == values[i] || fabs(given - values[i]) <= tolerance;
    ck_each(same, "%s[%d] is %.9g, expected %.9g", name, (int)i, given, values[i]);
  }
}

/* The result in a tensor of its own, and in the place of the logits. */
static void run_twice(op_case *c, const char *id, const double *logits, const double *expected, int64_t n,
                      double tolerance) {
  op_case_set_all(c, "logits", logits);
  op_case_run(c, id);
  assert_all(c, "out", expected, n, tolerance);
  assert_all(c, "logits", logits, n, 0);
  fl_value *out = op_case_value(c, "out"), kept = *out;
  *out = *op_case_value(c, "logits");
  op_case_run(c, id);
  assert_all(c, "logits", expected, n, tolerance);
  *out = kept;
}

/* ------------------------------------------------------------------------------------------------------- penalties */

/* Repetition first, by the sign that the logit has then; frequency by the count; presence once. */
START_TEST(penalties_count_the_output_and_see_the_prompt) {
  static const char *const forms[] = {
      "apply_penalties logits=f2x6 prompt_token_ids=i2x3 output_token_ids=l2x4 presence_penalties=f2 "
      "frequency_penalties=f2 repetition_penalties=f2",
      "apply_penalties logits=f2x6 prompt_token_ids=l2x3 output_token_ids=i2x4 presence_penalties=f2 "
      "frequency_penalties=f2 repetition_penalties=f2"};
  const double logits[] = {4, -4, 2, 0, -1, 3, 4, -4, 2, 0, -1, 3};
  const double expected[] = {2, -8, 2 / 2. - 3 * .5 - .25, 0, -2 - .5 - .25, 3, 4 + 1, -4, 2, 0, -1, 3};
  op_case *c = op_case_make(forms[_i % 2], float32, 2);
  op_case_set_all(c, "prompt_token_ids", (double[]){0, 1, 1, -1, 6, -1});
  op_case_set_all(c, "output_token_ids", (double[]){2, 4, 2, 2, 6, 7, 0, -5});
  op_case_set_all(c, "presence_penalties", (double[]){.25, -1});
  op_case_set_all(c, "frequency_penalties", (double[]){.5, 0});
  op_case_set_all(c, "repetition_penalties", (double[]){2, 1});
  run_twice(c, both[_i / 2], logits, expected, 12, 1e-6);
  op_case_free(c);
}
END_TEST

START_TEST(a_temperature_below_a_hundred_thousandth_leaves_the_row) {
  const double logits[] = {1, -3, NONE, 1, -3, NONE, 1, -3, NONE, 1, -3, NONE};
  const double expected[] = {2, -6, NONE, 1, -3, NONE, 1, -3, NONE, (double)(1 / 1e-5f), (double)(-3 / 1e-5f), NONE};
  op_case *c = op_case_make("apply_temperature logits=f4x3 temperature=f4", float32, 1);
  op_case_set_all(c, "temperature", (double[]){.5, 0, 0.99e-5, 1e-5});
  run_twice(c, both[_i], logits, expected, 12, 0);
  op_case_free(c);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ min_p */

START_TEST(min_p_closes_what_is_less_probable_than_its_part) {
  const double logits[] = {0, -1, 0, -0.5, 0, -1, 0, -0.5, 7, 7, 6.5, -0.0, 7, 7, NONE, 5, 7, 7, NONE, 5};
  float part = (float)exp(-1), above = nextafterf(part, 1), below = nextafterf(part, 0);
  const double one_above[] = {0, NONE, 0, -0.5}, of_one[] = {7, 7, NONE, NONE}, beyond[] = {NONE, NONE, NONE, NONE};
  double expected[20];
  memcpy(expected, logits, sizeof expected);
  memcpy(expected + 4, one_above, sizeof one_above);
  memcpy(expected + 8, of_one, sizeof of_one);
  memcpy(expected + 12, beyond, sizeof beyond);
  op_case *c = op_case_make("apply_min_p logits=f5x4 min_p=f5", float32, 3);
  op_case_set_all(c, "min_p", (double[]){(double)below, (double)above, 1, 1.5, 0});
  run_twice(c, both[_i], logits, expected, 20, 0);
  op_case_free(c);
}
END_TEST

/* Where probabilities are NaN none is below another; and a row of -infinity has nothing to close. */
START_TEST(min_p_leaves_rows_without_a_finite_largest) {
  const double logits[] = {NONE, NONE, NONE, 1, INFINITY, 2, 1, NAN, 2, 1e-30, 0, -1e-30};
  const double of_one[] = {1e-30, 0, -1e-30};
  op_case *c = op_case_make("apply_min_p logits=f4x3 min_p=f4", float32, 0);
  double expected[12];
  memcpy(expected, logits, sizeof expected);
  for (int i = 0; i < 3; i++) /* exp sees no difference between these */
    expected[9 + i] = (double)(float)of_one[i];
  op_case_set_all(c, "min_p", (double[]){.5, .5, .5, 1});
  op_case_set_all(c, "logits", logits);
  op_case_run(c, both[_i]);
  assert_all(c, "out", expected, 12, 0);
  op_case_free(c);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- top k and top p */

#define TOP "apply_top_k_top_p logits=f1x6 top_k=l1 top_p=f1"

START_TEST(equal_logits_stay_from_the_lowest_token_on) {
  const struct {
    double k, p, logits[6], expected[6];
  } cases[] = {
      {3, 1, {1, 2, 1, 2, 1, 1}, {1, 2, NONE, 2, NONE, NONE}},
      {2, 1, {-0.0, -1, 0, 0, -0.0, 0}, {-0.0, NONE, 0, NONE, NONE, NONE}},
      {0, 1, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
      {-7, 1, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
      {6, 1, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
      {1e18, 1, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}},
      {4, .5, {0, 0, -9, 0, 0, 0}, {0, 0, NONE, NONE, NONE, NONE}}, /* of four: two are a half */
      {0, .5, {NONE, 0, 0, NONE, 0, 0}, {NONE, 0, 0, NONE, NONE, NONE}},
      {0, .25, {NONE, 0, 0, NONE, 0, 0}, {NONE, 0, NONE, NONE, NONE, NONE}},
      {0, 0, {1, 2, 2, 1, 1, 1}, {NONE, 2, NONE, NONE, NONE, NONE}},
      {0, -1, {1, 2, 2, 1, 1, 1}, {NONE, 2, NONE, NONE, NONE, NONE}},
      {0, 1.5, {1, 2, NONE, 1, 1, 1}, {1, 2, NONE, 1, 1, 1}},
      {2, .5, {NONE, NONE, NONE, NONE, NONE, NONE}, {NONE, NONE, NONE, NONE, NONE, NONE}},
      {2, 1, {1, NAN, 3, INFINITY, 2, NAN}, {NONE, NAN, NONE, NONE, NONE, NAN}},
      {3, 1, {1, NAN, 3, INFINITY, 2, NAN}, {NONE, NAN, NONE, INFINITY, NONE, NAN}},
      {0, .5, {1, 3, 3, INFINITY, 2, 1}, {NONE, NONE, NONE, INFINITY, NONE, NONE}},
  };
  op_case *c = op_case_make(TOP, float32, 0);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    op_case_set(c, "top_k", 0, cases[i].k);
    op_case_set(c, "top_p", 0, cases[i].p);
    run_twice(c, both[_i], cases[i].logits, cases[i].expected, 6, 0);
  }
  op_case_free(c);
}
END_TEST

/* What stays of a row by the definition: who has how many before it, and how much of the probability. */
static void check_top(op_case *c, int64_t v, int64_t k, float p, const double *logits) {
  double most = NONE, all = 0;
  for (int64_t i = 0; i < v; i++)
    most = logits[i] > most ? logits[i] : most;
  double *before = calloc((size_t)v, sizeof *before);
  int64_t *place = calloc((size_t)v, sizeof *place);
  for (int64_t i = 0; i < v; i++) {
    for (int64_t j = 0; j < v; j++) {
      bool earlier = logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
      place[i] += earlier;
      before[i] += earlier ? exp(logits[j] - most) : 0;
    }
    all += place[i] < k ? exp(logits[i] - most) : 0;
  }
  for (int64_t i = 0; i < v; i++) {
    double share = before[i] / all, given = op_case_get(c, "out", i);
    bool stays = place[i] < k && (p >= 1 || !place[i] || share < (double)p);
    if (place[i] < k && fabs(share - (double)p) < 1e-9) /* may fall to either side */
      continue;
    ck_each(given == (stays ? logits[i] : NONE), "k %d, p %g: %d is %g, expected %g", (int)k, (double)p, (int)i, given,
            stays ? logits[i] : NONE);
  }
  free(before);
  free(place);
}

/* Rows long enough that chunks, ranges and parts of keys decide; flat, steep, and with many equal logits. */
START_TEST(top_k_and_top_p_hold_their_definition_in_long_rows) {
  enum { V = 1403 };
  static const int64_t ks[] = {0, 1, 2, 7, 40, 700, 1402};
  static const float ps[] = {1, .05f, .5f, .9f, .9999f};
  op_case *c = op_case_make("apply_top_k_top_p logits=f1x1403 top_k=i1 top_p=f1", float32, 0);
  double scale[] = {0.01, 3, 20, 40}, logits[V];
  for (int i = 0; i < V; i++) {
    double value = (float)(op_case_get(c, "logits", i) * scale[_i % 4]);
    logits[i] = _i / 4 ? (float)(floor(value * 2) / 2) : value;
  }
  op_case_set_all(c, "logits", logits);
  for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
    for (size_t j = i % 2; j < sizeof ps / sizeof *ps; j += 2) {
      op_case_set(c, "top_k", 0, (double)ks[i]);
      op_case_set(c, "top_p", 0, (double)ps[j]);
      op_case_run(c, "default.flagos");
      check_top(c, V, ks[i] ? ks[i] : V, ps[j], logits);
    }
  op_case_free(c);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- taking a token */

START_TEST(the_greatest_logit_is_the_first_of_equal_ones) {
  enum { V = 131 };
  op_case *c = op_case_make("greedy_argmax logits=f1x131", floats[_i % 3], 5);
  const char *id = both[_i / 3];
  const struct {
    int at[2];
    double value;
  } cases[] = {{{70, 40}, 1}, {{130, 3}, 1}, {{64, 96}, INFINITY}, {{97, 33}, NAN}, {{130, 130}, 1}};
  for (int i = 0; i < V; i++)
    op_case_set(c, "logits", i, i % 2 ? -1 : NONE);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const int *at = cases[i].at;
    op_case_set(c, "logits", at[0], cases[i].value);
    op_case_set(c, "logits", at[1], cases[i].value);
    op_case_run(c, id);
    ck_assert_double_eq(op_case_get(c, "ids", 0), at[0] < at[1] ? at[0] : at[1]);
    op_case_set(c, "logits", at[0], NONE);
    op_case_set(c, "logits", at[1], NONE);
  }
  op_case_set(c, "logits", 9, NAN);
  op_case_set(c, "logits", 5, INFINITY);
  op_case_run(c, id);
  ck_assert_double_eq(op_case_get(c, "ids", 0), 9);
  for (int i = 0; i < V; i++)
    op_case_set(c, "logits", i, i < 50 ? -1 : i % 2 ? -0.0 : 0);
  op_case_run(c, id);
  ck_assert_double_eq(op_case_get(c, "ids", 0), 50);
  for (int i = 0; i < V; i++)
    op_case_set(c, "logits", i, NONE);
  op_case_run(c, id);
  ck_assert_double_eq(op_case_get(c, "ids", 0), 0);
  op_case_free(c);
}
END_TEST

/* Draws of two tokens among others that are less. */
static void check_draw(op_case *c, const char *id, const char *noise, int first, double l0, double n0, int second,
                       double l1, double n1, int expected) {
  for (int i = 0; i < 100; i++) {
    op_case_set(c, "logits", i, i % 3 ? -500 : NONE);
    op_case_set(c, noise, i, .5);
  }
  op_case_set(c, "logits", first, l0);
  op_case_set(c, noise, first, n0);
  op_case_set(c, "logits", second, l1);
  op_case_set(c, noise, second, n1);
  op_case_run(c, id);
  ck_assert_msg(op_case_get(c, "ids", 0) == expected, "%s: (%g, %g) at %d, (%g, %g) at %d: %g, expected %d", id, l0, n0,
                first, l1, n1, second, op_case_get(c, "ids", 0), expected);
}

START_TEST(exponential_noise_decides_to_the_last_bit) {
  op_case *c = op_case_make("exponential_sample logits=f1x100 noise=f1x100", float32, 0);
  const char *id = both[_i];
  double next = (double)nextafterf(1e-4f, 0), least = 1.4e-45;
  check_draw(c, id, "noise", 3, 10, (double)1e-4f, 77, 10, (double)1e-4f, 3);
  check_draw(c, id, "noise", 3, 10, (double)1e-4f, 77, 10, next, 77);
  check_draw(c, id, "noise", 3, 10, next, 77, 10, (double)1e-4f, 3);
  for (float n = 1e-6f; n < 4; n *= 1.37f) { /* in float the second is less than the first for some */
    check_draw(c, id, "noise", 3, 10, (double)n, 77, 10, (double)nextafterf(n, 0), 77);
    check_draw(c, id, "noise", 3, 0.3, (double)n, 77, 0.3, (double)nextafterf(n, 0), 77);
  }
  check_draw(c, id, "noise", 3, NONE, least, 77, -490, 4, 77); /* never a token of -infinity */
  check_draw(c, id, "noise", 3, 0, 1, 77, -103, least, 77);    /* log(least) is -103.28 */
  check_draw(c, id, "noise", 3, 0, 1, 77, -103.3, least, 3);
  check_draw(c, id, "noise", 3, 3e38, 4, 77, 1, least, 3);
  check_draw(c, id, "noise", 3, INFINITY, 4, 77, INFINITY, 1, 3);
  check_draw(c, id, "noise", 40, NAN, 4, 77, NAN, 1, 40);
  for (int i = 0; i < 100; i++)
    op_case_set(c, "logits", i, NONE);
  op_case_run(c, id);
  ck_assert_double_eq(op_case_get(c, "ids", 0), 0);
  op_case_free(c);
}
END_TEST

START_TEST(gumbel_noise_decides_at_every_temperature) {
  op_case *c = op_case_make("gumbel_sample logits=f1x100 uniform=f1x100 temperature=f1", float32, 0);
  const char *id = both[_i], *noise = "uniform";
  double next = (double)nextafterf(1e-4f, 0);
  op_case_set(c, "temperature", 0, 0); /* the noise is not looked at */
  check_draw(c, id, noise, 3, 10, .999, 77, 9.999, 1e-30, 3);
  op_case_set(c, "temperature", 0, 1);
  check_draw(c, id, noise, 3, 10, (double)1e-4f, 77, 10, (double)1e-4f, 3);
  check_draw(c, id, noise, 3, 10, (double)1e-4f, 77, 10, next, 77);
  check_draw(c, id, noise, 3, 0, 1e-30, 77, 60, .6321205588, 3); /* 69.08 and 60: next to 0 log(1 - u) is 0 in float */
  check_draw(c, id, noise, 3, NONE, 1e-30, 77, -490, .99999, 77);
  for (float u = 1e-6f; u < .3f; u *= 1.37f)
    check_draw(c, id, noise, 3, 0.3, (double)u, 77, 0.3, (double)nextafterf(u, 0), 77);
  op_case_set(c, "temperature", 0, -1); /* the least logit, then */
  check_draw(c, id, noise, 3, -501, .5, 77, -502, .5, 77);
  op_case_set(c, "temperature", 0, .5);
  check_draw(c, id, noise, 3, 0, 1e-30, 77, 60, .6321205588, 77); /* 69.08 and 120 */
  op_case_set(c, "temperature", 0, 1e-40);                        /* 1 / t is no float */
  check_draw(c, id, noise, 3, -2, 1e-30, 77, -1, .9999, 77);
  op_case_set(c, "temperature", 0, 1e37); /* nor is t times the noise */
  check_draw(c, id, noise, 3, 100, .5, 77, -100, .4, 77);
  op_case_free(c);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- logprobs */

START_TEST(logprobs_come_in_the_order_of_the_row_and_ranks_count_ties) {
  op_case *c = op_case_make("gather_logprobs logits=f3x4 token_ids=i3 num_logprobs=4", floats[_i % 3], 3);
  const double logits[] = {0, 1, 1, 0, NONE, 2, NONE, 2, 1, NAN, 2, INFINITY}, half = -log(2), e = exp(1);
  double low = -log(2 + 2 * e), high = 1 + low;
  op_case_set_all(c, "logits", logits);
  op_case_set_all(c, "token_ids", (double[]){3, 3, 0});
  op_case_run(c, both[_i / 3]);
  assert_all(c, "logprob_token_ids", (double[]){3, 1, 2, 0, 3, 3, 1, 3, 0, 2, 0, 1, 3, 2, 0}, 15, 0);
  assert_all(c, "logprobs",
             (double[]){low, high, high, low, low, half, half, half, NONE, NONE, NAN, NAN, NAN, NAN, NAN}, 15, 1e-6);
  assert_all(c, "ranks", (double[]){4, 2, 0}, 3, 0);
  op_case_free(c);
}
END_TEST

/* Of all entries, of a few and of none of a long row with ties, to the definition. */
START_TEST(logprobs_of_long_rows_hold_their_definition) {
  enum { V = 1403, MOST = V };
  static const char *const calls[] = {"gather_logprobs logits=f1x1403 token_ids=l1 num_logprobs=0",
                                      "gather_logprobs logits=f1x1403 token_ids=l1 num_logprobs=20",
                                      "gather_logprobs logits=f1x1403 token_ids=l1 num_logprobs=1403"};
  op_case *c = op_case_make(calls[_i / 3], floats[_i % 3], 0);
  double logits[V], sum = 0;
  int64_t n = _i / 3 == 0 ? 0 : _i / 3 == 1 ? 20 : V;
  for (int i = 0; i < V; i++) {
    logits[i] = floor(op_case_get(c, "logits", i) * 64) / 8;
    sum += exp(logits[i]);
  }
  op_case_set_all(c, "logits", logits);
  op_case_set(c, "token_ids", 0, 700);
  op_case_run(c, "default.flagos");
  int64_t rank = 0;
  for (int i = 0; i < V; i++)
    rank += logits[i] >= logits[700];
  ck_assert_double_eq(op_case_get(c, "ranks", 0), (double)rank);
  ck_assert_double_eq(op_case_get(c, "logprob_token_ids", 0), 700);
  ck_assert_double_eq_tol(op_case_get(c, "logprobs", 0), logits[700] - log(sum), 1e-5);
  for (int64_t i = 1; i <= n; i++) {
    int id = (int)op_case_get(c, "logprob_token_ids", i), last = (int)op_case_get(c, "logprob_token_ids", i - 1);
    ck_each(fabs(op_case_get(c, "logprobs", i) - (logits[id] - log(sum))) < 1e-5, "column %d", (int)i);
    ck_each(i < 2 || logits[id] < logits[last] || (logits[id] == logits[last] && id > last), "column %d: %d behind %d",
            (int)i, id, last);
  }
  for (int i = 0; n && i < V; i++) /* nobody was left out */
    ck_each(n == V || logits[i] <= logits[(int)op_case_get(c, "logprob_token_ids", 1)], "%d is greater", i);
  op_case_free(c);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- refusals */

START_TEST(O6_token_ids_out_of_range_are_refused_before_anything_is_written) {
  op_case *c = op_case_make("gather_logprobs logits=f3x4 token_ids=l3 num_logprobs=2", float32, 0);
  op_case_set_all(c, "token_ids", (double[]){3, 0, 4});
  op_case_refused_by(c, both[_i], "argument 'token_ids'[2] is 4, expected 0 to 3 (entries of a row)");
  op_case_set_all(c, "token_ids", (double[]){3, -1, 3});
  op_case_refused_by(c, both[_i], "argument 'token_ids'[1] is -1, expected 0 to 3 (entries of a row)");
  op_case_free(c);
}
END_TEST

START_TEST(O6_bad_arguments_of_sampling_are_refused_with_a_reason) {
  op_case_refused("greedy_argmax logits=f3x0",
                  "greedy_argmax: argument 'logits': rows of 0 entries, expected 1 to 2147483647");
  op_case_refused("gather_logprobs logits=f3x4 token_ids=i3 num_logprobs=5",
                  "gather_logprobs: argument 'num_logprobs': 5, expected 0 to 4 (the entries of a row of 'logits')");
  op_case_refused("gather_logprobs logits=f3x4 token_ids=i3 num_logprobs=-1",
                  "gather_logprobs: argument 'num_logprobs': -1, expected 0 to 4 (the entries of a row of 'logits')");
  op_case_refused("apply_temperature logits=f3x4 temperature=f2",
                  "apply_temperature: argument 'temperature': shape [2], expected [3] (n of 'logits')");
  op_case_refused("apply_top_k_top_p logits=f3x4 top_k=f3",
                  "apply_top_k_top_p: argument 'top_k': dtype float32, expected int32 or int64");
}
END_TEST

START_TEST(O2_sampling_of_no_rows_succeeds) {
  static const char *const calls[] = {
      ("apply_penalties logits=f0x4 prompt_token_ids=i0x2 output_token_ids=i0x0 presence_penalties=f0 "
       "frequency_penalties=f0 repetition_penalties=f0"),
      "apply_temperature logits=f0x4 temperature=f0",
      "apply_min_p logits=f0x4 min_p=f0",
      "apply_top_k_top_p logits=f0x4 top_k=i0 top_p=f0",
      "greedy_argmax logits=f0x4",
      "exponential_sample logits=f0x4 noise=f0x4",
      "gumbel_sample logits=f0x4 uniform=f0x4 temperature=f0",
      "gather_logprobs logits=f0x4 token_ids=i0 num_logprobs=2"};
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    op_case *c = op_case_make(calls[i], float32, 0);
    op_case_run(c, both[_i]);
    op_case_free(c);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, penalties_count_the_output_and_see_the_prompt, 0, 4);
  tcase_add_loop_test(tests, a_temperature_below_a_hundred_thousandth_leaves_the_row, 0, 2);
  tcase_add_loop_test(tests, min_p_closes_what_is_less_probable_than_its_part, 0, 2);
  tcase_add_loop_test(tests, min_p_leaves_rows_without_a_finite_largest, 0, 2);
  tcase_add_loop_test(tests, equal_logits_stay_from_the_lowest_token_on, 0, 2);
  tcase_add_loop_test(tests, top_k_and_top_p_hold_their_definition_in_long_rows, 0, 8);
  tcase_add_loop_test(tests, the_greatest_logit_is_the_first_of_equal_ones, 0, 6);
  tcase_add_loop_test(tests, exponential_noise_decides_to_the_last_bit, 0, 2);
  tcase_add_loop_test(tests, gumbel_noise_decides_at_every_temperature, 0, 2);
  tcase_add_loop_test(tests, logprobs_come_in_the_order_of_the_row_and_ranks_count_ties, 0, 6);
  tcase_add_loop_test(tests, logprobs_of_long_rows_hold_their_definition, 0, 9);
  tcase_add_loop_test(tests, O6_token_ids_out_of_range_are_refused_before_anything_is_written, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_of_sampling_are_refused_with_a_reason);
  tcase_add_loop_test(tests, O2_sampling_of_no_rows_succeeds, 0, 2);
}

int main(void) {
  return run_suite("ops_sampling", add_tests, 30);
}
