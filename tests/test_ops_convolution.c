/* conv2d and conv3d: their checks, and both CPU kernels with padding, dilation, groups and strided tensors. */
#include "tests/kernels.h"

#include <math.h>

static const char *const ops[] = {"conv2d", "conv3d"};

/* A convolution over the last `n` of three dimensions of space. */
typedef struct convolution {
  int n;
  int64_t batch, groups, inputs, outputs; /* channels of a group */
  int64_t in[3], kernel[3], stride[3], padding[3], dilation[3];
} convolution;

static int64_t output_size(const convolution *c, int d) {
  return (c->in[d] + 2 * c->padding[d] - c->dilation[d] * (c->kernel[d] - 1) - 1) / c->stride[d] + 1;
}

static owned *make_volume(DLDataType dtype, const convolution *c, int64_t a, int64_t b, const int64_t *space,
                          int64_t padding) {
  int64_t shape[5] = {a, b};
  for (int d = 0; d < c->n; d++)
    shape[2 + d] = space[3 - c->n + d];
  return make(dtype, 2 + c->n, shape, padding);
}

static owned *make_result(DLDataType dtype, const convolution *c, int64_t padding) {
  const int64_t space[] = {c->n == 3 ? output_size(c, 0) : 1, output_size(c, 1), output_size(c, 2)};
  return make_volume(dtype, c, c->batch, c->groups * c->outputs, space, padding);
}

static void convolve(const char *id, const convolution *c, owned *x, owned *weight, owned *bias, owned *out) {
  uint32_t n = (uint32_t)c->n, skip = 3 - n;
  fl_value values[] = {value_of(x),
                       value_of(weight),
                       value_of(bias),
                       fl_ints(c->stride + skip, n),
                       fl_ints(c->padding + skip, n),
                       fl_ints(c->dilation + skip, n),
                       fl_int(c->groups),
                       value_of(out)};
  check_call(ops[n - 2], id, values, 8);
}

/* ------------------------------------------------------------------------------------------------------ by hand */

/* 3 x 3 image, 2 x 2 kernel, one ring of zeros: each result is a sum of what the kernel covers. */
START_TEST(a_convolution_is_a_cross_correlation_with_zeros_around) {
  const convolution c = {2, 1, 1, 1, 1, {1, 3, 3}, {1, 2, 2}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}};
  owned *x = make(floats[_i % 3], SHAPE(1, 1, 3, 3), 0), *w = make(floats[_i % 3], SHAPE(1, 1, 2, 2), 0);
  owned *b = make(floats[_i % 3], SHAPE(1), 0), *out = make(floats[_i % 3], SHAPE(1, 1, 2, 2), 0);
  for (int i = 0; i < 9; i++)
    set(&x->tensor, i, i + 1);
  for (int i = 0; i < 4; i++)
    set(&w->tensor, i, i + 1);
  set(&b->tensor, 0, 0.5);
  convolve(both[_i / 3], &c, x, w, b, out);
  /* 4*1; 3*2 + 4*3; 2*4 + 4*7; 1*5 + 2*6 + 3*8 + 4*9; and the bias */
  const double expected[] = {4.5, 18.5, 36.5, 77.5};
  for (int i = 0; i < 4; i++)
    ck_assert_double_eq(get(&out->tensor, i), expected[i]);
  UNMAKE(x, w, b, out);
}
END_TEST

/* A dilated kernel that is as wide as the stride is no patch embedding. */
START_TEST(dilation_counts_where_kernel_and_stride_are_equal) {
  const convolution c = {2, 1, 1, 1, 1, {1, 1, 5}, {1, 1, 2}, {1, 1, 2}, {0, 0, 0}, {1, 1, 2}};
  owned *x = make(float32, SHAPE(1, 1, 1, 5), 0), *w = make(float32, SHAPE(1, 1, 1, 2), 0);
  owned *out = make(float32, SHAPE(1, 1, 1, 2), 0);
  for (int i = 0; i < 5; i++)
    set(&x->tensor, i, 1 << i);
  set(&w->tensor, 0, 1);
  set(&w->tensor, 1, 100);
  convolve(both[_i], &c, x, w, NULL, out);
  ck_assert_double_eq(get(&out->tensor, 0), 1 + 400);
  ck_assert_double_eq(get(&out->tensor, 1), 4 + 1600);
  UNMAKE(x, w, out);
}
END_TEST

/* ----------------------------------------------------------------------------------------- against the reference */

static const convolution convolutions[] = {
    {2, 2, 1, 3, 5, {1, 28, 28}, {1, 14, 14}, {1, 14, 14}, {0, 0, 0}, {1, 1, 1}},
    {2, 1, 3, 2, 4, {1, 9, 11}, {1, 3, 2}, {1, 1, 2}, {0, 2, 1}, {1, 2, 3}},
    {2, 1, 6, 1, 1, {1, 7, 40}, {1, 1, 4}, {1, 1, 1}, {0, 0, 3}, {1, 1, 1}},
    {2, 1, 1, 2, 13, {1, 30, 31}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {3, 2, 1, 2, 3, {4, 6, 7}, {2, 3, 3}, {2, 1, 2}, {0, 1, 1}, {1, 1, 1}},
    {3, 1, 2, 2, 2, {5, 5, 5}, {2, 2, 2}, {1, 2, 1}, {1, 0, 2}, {2, 1, 3}},
    {3, 0, 1, 2, 3, {4, 6, 7}, {2, 3, 3}, {2, 1, 2}, {0, 1, 1}, {1, 1, 1}},
    {2, 2, 2, 8, 60, {1, 30, 31}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {1, 1, 1}}, /* several ranges of the host's loop */
};
enum { N_CONVOLUTIONS = sizeof convolutions / sizeof convolutions[0], LARGE = N_CONVOLUTIONS - 1 };

static void compare(const convolution *c, DLDataType dtype, int64_t padding) {
  owned *x = make_volume(dtype, c, c->batch, c->groups * c->inputs, c->in, padding);
  owned *weight = make_volume(dtype, c, c->groups * c->outputs, c->inputs, c->kernel, 0);
  owned *bias = make(dtype, SHAPE(c->groups * c->outputs), 0);
  owned *expected = make_result(dtype, c, 0), *out = make_result(dtype, c, padding);
  fill(&x->tensor, 1);
  fill(&weight->tensor, 2);
  fill(&bias->tensor, 3);
  for (int64_t i = 0; i < count(&weight->tensor); i++)
    set(&weight->tensor, i, get(&weight->tensor, i) / 32);
  for (int with_bias = 0; with_bias < 2; with_bias++) {
    convolve("reference.c", c, x, weight, with_bias ? bias : NULL, expected);
    convolve("default.flagos", c, x, weight, with_bias ? bias : NULL, out);
    check_close(ops[c->n - 2], &out->tensor, &expected->tensor);
    convolve("reference.c", c, x, weight, with_bias ? bias : NULL, out);
    check_same_elements(&expected->tensor, out);
  }
  UNMAKE(x, weight, bias, expected, out);
}

START_TEST(O5_convolutions_agree_with_the_reference_whatever_the_strides) {
  for (int i = 0; i < N_CONVOLUTIONS; i++) {
    compare(&convolutions[i], floats[_i], 0);
    if (i != LARGE || sample() == 1)
      compare(&convolutions[i], floats[_i], 3);
  }
}
END_TEST

/* The default multiplies by rows of the weight: it leaves others to the reference, and says why. */
START_TEST(a_weight_with_gaps_is_the_references) {
  const convolution c = {2, 1, 1, 1, 1, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}};
  const int64_t ones[] = {1, 1}, zeros[] = {0, 0};
  owned *x = make(float32, SHAPE(1, 1, 3, 3), 0), *weight = make(float32, SHAPE(1, 1, 2, 2), 3);
  owned *compact = make(float32, SHAPE(1, 1, 2, 2), 0), *out = make(float32, SHAPE(1, 1, 2, 2), 0);
  owned *expected = make(float32, SHAPE(1, 1, 2, 2), 0);
  fill(&x->tensor, 1);
  fill(&weight->tensor, 2);
  fill(&compact->tensor, 2);
  fl_value values[] = {value_of(x),       value_of(weight), fl_none(), fl_ints(ones, 2),
                       fl_ints(zeros, 2), fl_ints(ones, 2), fl_int(1), value_of(out)};
  ck_assert_int_eq(call_impl("conv2d", "default.flagos", values, 8), FL_ENOTSUP);
  ck_assert_str_eq(message, "argument 'weight': the kernels of an output do not follow each other in memory");
  convolve("reference.c", &c, x, weight, NULL, out);
  convolve("reference.c", &c, x, compact, NULL, expected);
  check_same_elements(&expected->tensor, out);
  UNMAKE(x, weight, compact, out, expected);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- refusals */

START_TEST(O6_bad_arguments_are_refused_with_a_reason) {
  const int64_t one[] = {1, 1, 1}, zero[] = {0, 0, 0}, minus[] = {1, -1, 1}, far[] = {INT64_MAX, INT64_MAX, 1};
  owned *x = make(float32, SHAPE(2, 4, 6, 7), 0), *w = make(float32, SHAPE(6, 2, 3, 3), 0);
  owned *b = make(float32, SHAPE(6), 0), *out = make(float32, SHAPE(2, 6, 4, 5), 0),
        *image = make(float32, SHAPE(4, 6, 7), 0);
  owned *half = make(float16, SHAPE(6, 2, 3, 3), 0), *none = make(float32, SHAPE(6, 2, 0, 3), 0);
  fl_value X = value_of(x), W = value_of(w), B = value_of(b), OUT = value_of(out), two = fl_int(2);
  fl_value ones = fl_ints(one, 2), zeros = fl_ints(zero, 2), three = fl_ints(one, 3);
  const struct {
    const char *message;
    fl_value values[8];
  } cases[] = {
      {"argument 'x': shape [4, 6, 7], expected [n, c, h, w]", {value_of(image), W, B, ones, zeros, ones, two, OUT}},
      {"argument 'weight': dtype float16, expected float32 (that of 'x')",
       {X, value_of(half), B, ones, zeros, ones, two, OUT}},
      {"argument 'bias': shape [2, 4, 6, 7], expected [6]", {X, W, X, ones, zeros, ones, two, OUT}},
      {"argument 'stride': 3 numbers, expected 2", {X, W, B, three, zeros, ones, two, OUT}},
      {"argument 'stride'[0]: 0, expected 1 or more", {X, W, B, zeros, zeros, ones, two, OUT}},
      {"argument 'padding'[1]: -1, expected 0 or more", {X, W, B, ones, fl_ints(minus, 2), ones, two, OUT}},
      {"argument 'dilation'[1]: -1, expected 1 or more", {X, W, B, ones, zeros, fl_ints(minus, 2), two, OUT}},
      {"argument 'groups': 0, expected a divisor of 4 (channels of 'x') and of 6 (outputs of 'weight')",
       {X, W, B, ones, zeros, ones, fl_int(0), OUT}},
      {"argument 'groups': 4, expected a divisor of 4 (channels of 'x') and of 6 (outputs of 'weight')",
       {X, W, B, ones, zeros, ones, fl_int(4), OUT}},
      {"argument 'weight': 2 channels, expected 4 (those of 'x' over 'groups')",
       {X, W, B, ones, zeros, ones, fl_int(1), OUT}},
      {"argument 'weight': size 0 of dimension 2, expected 1 or more",
       {X, value_of(none), B, ones, zeros, ones, two, OUT}},
      {"argument 'weight': size 3 of dimension 2 with dilation 9223372036854775807, expected to fit into 6 of 'x' and "
       "padding 0 on each side",
       {X, W, B, ones, zeros, fl_ints(far, 2), two, OUT}},
      {"argument 'weight': size 3 of dimension 2 with dilation 1, expected to fit into 6 of 'x' and padding "
       "9223372036854775807 on each side",
       {X, W, B, ones, fl_ints(far, 2), ones, two, OUT}},
      {"result 'out': shape [6], expected [2, 6, 4, 5]", {X, W, B, ones, zeros, ones, two, B}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "conv2d: %s", cases[i].message);
    check_refused("conv2d", expected, cases[i].values, 8);
  }
  UNMAKE(x, w, b, out, image, half, none);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, a_convolution_is_a_cross_correlation_with_zeros_around, 0, 6);
  tcase_add_loop_test(tests, dilation_counts_where_kernel_and_stride_are_equal, 0, 2);
  tcase_add_loop_test(tests, O5_convolutions_agree_with_the_reference_whatever_the_strides, 0, 3);
  tcase_add_test(tests, a_weight_with_gaps_is_the_references);
  tcase_add_test(tests, O6_bad_arguments_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_convolution", add_tests, 20);
}
