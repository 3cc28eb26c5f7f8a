/* Comparison under a tolerance: what passes, what does not, and what is reported. */
#include "cli/trials/compare.h"
#include "tests/suite.h"

#include <math.h>

static const DLDataType float32 = {kDLFloat, 32, 1}, bfloat16 = {kDLBfloat, 16, 1}, int64 = {kDLInt, 64, 1},
                        int8 = {kDLInt, 8, 1};

/* A vector over `data`; `shape` is storage for its one size. */
static DLTensor vector(DLDataType dtype, void *data, int64_t *shape, int64_t n) {
  *shape = n;
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = dtype, .shape = shape};
}

static comparison compare(DLDataType dtype, void *a, void *b, int64_t n, double atol, double rtol, bool bit_exact) {
  int64_t shapes[2];
  DLTensor x = vector(dtype, a, &shapes[0], n), y = vector(dtype, b, &shapes[1], n);
  return compare_tensors(&x, &y, atol, rtol, bit_exact);
}

START_TEST(equal_tensors_pass_with_no_error_and_no_worst_element) {
  float a[] = {1, -0.0f, INFINITY}, b[] = {1, -0.0f, INFINITY};
  comparison c = compare(float32, a, b, 3, 0, 0, true);
  ck_assert(c.pass);
  ck_assert_double_eq(c.max_abs_err, 0);
  ck_assert_int_eq(c.worst, -1);
  ck_assert_str_eq(c.problem, "");
}
END_TEST

START_TEST(error_is_measured_against_atol_plus_rtol_times_expected) {
  float a[] = {1.5f, 101.0f}, b[] = {1.0f, 100.0f};
  comparison c = compare(float32, a, b, 2, 0.25, 0.25, false); /* 0.5 of 0.5, 1 of 25.25 */
  ck_assert(c.pass);
  ck_assert_double_eq(c.max_abs_err, 1.0);
  ck_assert_double_eq(c.max_rel_err, 0.5);
  ck_assert_double_eq(c.max_share, 1.0);
  ck_assert_int_eq(c.worst, 0); /* nearest to its own limit */
  c = compare(float32, a, b, 2, 0.25, 0.24, false);
  ck_assert(!c.pass);
  ck_assert_int_eq(c.worst, 0);
  ck_assert_ptr_nonnull(strstr(c.problem, "1 of 2 elements differ, worst at 0: 1.5, expected 1"));
}
END_TEST

START_TEST(nan_equals_nan_and_nothing_else) {
  float a[] = {NAN, 1}, b[] = {-NAN, 1}, c[] = {0, 1};
  ck_assert(compare(float32, a, b, 2, 0, 0, false).pass);
  ck_assert(compare(float32, a, b, 2, 0, 0, true).pass);
  ck_assert(!compare(float32, a, c, 2, 1e9, 1e9, false).pass);
  comparison r = compare(float32, c, a, 2, 1e9, 1e9, false);
  ck_assert(!r.pass && isinf(r.max_abs_err) && isinf(r.max_share));
  ck_assert_int_eq(r.worst, 0);
}
END_TEST

START_TEST(an_infinity_equals_only_itself) {
  float a[] = {INFINITY}, b[] = {-INFINITY}, c[] = {3e38f};
  ck_assert(compare(float32, a, a, 1, 0, 0, false).pass);
  ck_assert(!compare(float32, a, b, 1, 1e9, 1e9, false).pass);
  ck_assert(!compare(float32, c, a, 1, 1e9, 1e9, false).pass);
  ck_assert(!compare(float32, a, c, 1, 1e9, 1e9, false).pass);
}
END_TEST

START_TEST(bit_exact_tells_zero_from_minus_zero) {
  uint16_t a[] = {0x8000, 0x3f80}, b[] = {0x0000, 0x3f80};
  ck_assert(compare(bfloat16, a, b, 2, 0, 0, false).pass);
  comparison c = compare(bfloat16, a, b, 2, 1, 1, true);
  ck_assert(!c.pass);
  ck_assert_int_eq(c.worst, 0);
}
END_TEST

START_TEST(integers_are_compared_exactly_even_where_doubles_are_too_coarse) {
  int64_t a[] = {(INT64_C(1) << 60) + 1}, b[] = {INT64_C(1) << 60};
  ck_assert(!compare(int64, a, b, 1, 1e30, 1e30, false).pass);
  ck_assert(compare(int64, b, b, 1, 0, 0, false).pass);
}
END_TEST

START_TEST(int8_codes_may_be_as_far_apart_as_the_tolerance_says) {
  int8_t a[] = {-115, 3}, b[] = {-116, 3}, c[] = {-117, 3};
  ck_assert(compare(int8, a, b, 2, 1, 0, false).pass);
  ck_assert(!compare(int8, a, b, 2, 0, 0, false).pass);
  ck_assert(!compare(int8, a, b, 2, 1, 0, true).pass);
  ck_assert(!compare(int8, a, c, 2, 1, 0, false).pass);
}
END_TEST

START_TEST(different_shapes_and_types_are_named) {
  float a[4] = {0};
  int64_t shape1[] = {2, 2}, shape2[] = {4};
  DLTensor x = {.data = a, .device = {kDLCPU, 0}, .ndim = 2, .dtype = float32, .shape = shape1};
  DLTensor y = {.data = a, .device = {kDLCPU, 0}, .ndim = 1, .dtype = float32, .shape = shape2};
  comparison c = compare_tensors(&x, &y, 1, 1, false);
  ck_assert(!c.pass);
  ck_assert_str_eq(c.problem, "shape [2, 2], expected [4]");
  y.dtype = (DLDataType){kDLInt, 32, 1};
  y.ndim = 2;
  y.shape = shape1;
  c = compare_tensors(&x, &y, 1, 1, false);
  ck_assert(!c.pass);
  ck_assert_ptr_nonnull(strstr(c.problem, "element type"));
}
END_TEST

START_TEST(an_empty_tensor_passes) {
  ck_assert(compare(float32, NULL, NULL, 0, 0, 0, true).pass);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, equal_tensors_pass_with_no_error_and_no_worst_element);
  tcase_add_test(tests, error_is_measured_against_atol_plus_rtol_times_expected);
  tcase_add_test(tests, nan_equals_nan_and_nothing_else);
  tcase_add_test(tests, an_infinity_equals_only_itself);
  tcase_add_test(tests, bit_exact_tells_zero_from_minus_zero);
  tcase_add_test(tests, integers_are_compared_exactly_even_where_doubles_are_too_coarse);
  tcase_add_test(tests, int8_codes_may_be_as_far_apart_as_the_tolerance_says);
  tcase_add_test(tests, different_shapes_and_types_are_named);
  tcase_add_test(tests, an_empty_tensor_passes);
}

int main(void) {
  return run_suite("compare", add_tests, 10);
}
