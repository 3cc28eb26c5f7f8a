/* Elementwise ops of two tensors: roundings, infinities, layouts, bad calls. */
#include "tests/op_case.h"

#include <math.h>

START_TEST(O4_add_rounds_once_and_keeps_infinities) {
  const double x[] = {1, 1, INFINITY, INFINITY, NAN, 3e38, -0.0, 2048},
               y[] = {.00390625, .01171875, -INFINITY, 1, 1, -3e38, -0.0, 1};
  /* bfloat16 has 8 bits: 1 + 2^-8 lies between 1 and 1 + 2^-7, 1 + 3 * 2^-8 between that and 1 + 2^-6: to even. */
  const double expected[3][8] = {{1.00390625, 1.01171875, NAN, INFINITY, NAN, 0, -0.0, 2049},
                                 {1.00390625, 1.01171875, NAN, INFINITY, NAN, NAN, -0.0, 2048},
                                 {1, 1.015625, NAN, INFINITY, NAN, 0, -0.0, 2048}};
  op_case *c = op_case_make("add x=f1x8 y=f1x8", floats[_i % 3], 0);
  op_case_set_all(c, "x", x);
  op_case_set_all(c, "y", y);
  op_case_run(c, both[_i / 3]);
  for (int i = 0; i < 8; i++) {
    double given = op_case_get(c, "out", i), wanted = expected[_i % 3][i];
    ck_assert_msg(isnan(wanted) ? isnan(given) : given == wanted && signbit(given) == signbit(wanted),
                  "element %d is %.9g, expected %.9g", i, given, wanted);
  }
  op_case_free(c);
}
END_TEST

START_TEST(O1_O2_add_takes_strided_tensors_and_works_in_place) {
  op_case *c = op_case_make("add x=f2x3x301 y=f2x3x301", floats[_i % 3], 7);
  op_case_run(c, both[_i / 3]);
  op_case *again = op_case_make("add x=f2x3x301 y=f2x3x301", floats[_i % 3], 2);
  op_case_run(again, both[_i / 3]);
  *op_case_value(again, "out") = *op_case_value(again, "x");
  op_case_run(again, both[_i / 3]);
  for (int64_t i = 0; i < 2 * 3 * 301; i++)
    ck_each(op_case_get(again, "x", i) == op_case_get(c, "out", i), "element %d differs", (int)i);
  op_case_free(c);
  op_case_free(again);
}
END_TEST

START_TEST(O2_add_of_no_tokens_succeeds) {
  op_case *c = op_case_make("add x=f0x8 y=f0x8", float16, 0);
  op_case_run(c, both[_i]);
  op_case_free(c);
}
END_TEST

/* A gate an element, or one a row; what it is of infinities. */
START_TEST(O4_sigmoid_mul_takes_a_gate_for_each_element_or_row) {
  op_case *each = op_case_make("sigmoid_mul x=f3x5x37 gate=f3x5x37", floats[_i % 3], 3);
  op_case *rows = op_case_make("sigmoid_mul x=f3x5x37 gate=f3x5x1", floats[_i % 3], 3);
  for (int64_t i = 0; i < 3 * 5 * 37; i++)
    op_case_set(each, "gate", i, op_case_get(rows, "gate", i / 37));
  op_case_run(each, both[_i / 3]);
  op_case_run(rows, both[_i / 3]);
  for (int64_t i = 0; i < 3 * 5 * 37; i++) {
    double gate = op_case_get(rows, "gate", i / 37), exact = op_case_get(each, "x", i) / (1 + exp(-gate));
    ck_each(op_case_get(each, "out", i) == op_case_get(rows, "out", i), "element %d differs", (int)i);
    ck_each(fabs(op_case_get(each, "out", i) - exact) <= fabs(exact) * (floats[_i % 3].bits == 32 ? 1e-6 : 0x1p-7),
            "element %d is not x * sigmoid(gate)", (int)i);
  }
  op_case_free(each);
  op_case_free(rows);
}
END_TEST

START_TEST(O4_sigmoid_mul_of_infinities_and_NaN) {
  const double x[] = {2, 2, INFINITY, 2, NAN}, gate[] = {INFINITY, -INFINITY, -INFINITY, NAN, 0};
  const double expected[] = {2, 0, NAN, NAN, NAN};
  op_case *c = op_case_make("sigmoid_mul x=f1x5 gate=f1x5", floats[_i % 3], 0);
  op_case_set_all(c, "x", x);
  op_case_set_all(c, "gate", gate);
  op_case_run(c, both[_i / 3]);
  for (int i = 0; i < 5; i++) {
    double given = op_case_get(c, "out", i);
    ck_assert_msg(isnan(expected[i]) ? isnan(given) : given == expected[i], "element %d is %.9g", i, given);
  }
  op_case_free(c);
}
END_TEST

START_TEST(O6_tensors_that_differ_are_refused_with_a_reason) {
  op_case_refused("add x=f2x8 y=f2x4", "add: argument 'y': shape [2, 4], expected [2, 8] (d of 'x')");
  op_case_refused("add x=f2x8 y=f1x8",
                  "add: argument 'y': shape [1, 8], expected [2, 8] (the leading dimensions of 'x')");
  op_case_refused("sigmoid_mul x=f2x8 gate=f2x4",
                  "sigmoid_mul: argument 'gate': shape [2, 4], expected [2, 8] (d of 'x') or [2, 1]");
  op_case_refused("add x=f2x8 y=i2x8", "add: argument 'y': dtype int32, expected float32 (that of 'x')");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, O4_add_rounds_once_and_keeps_infinities, 0, 6);
  tcase_add_loop_test(tests, O1_O2_add_takes_strided_tensors_and_works_in_place, 0, 6);
  tcase_add_loop_test(tests, O4_sigmoid_mul_takes_a_gate_for_each_element_or_row, 0, 6);
  tcase_add_loop_test(tests, O4_sigmoid_mul_of_infinities_and_NaN, 0, 6);
  tcase_add_loop_test(tests, O2_add_of_no_tokens_succeeds, 0, 2);
  tcase_add_test(tests, O6_tensors_that_differ_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_elementwise", add_tests, 20);
}
