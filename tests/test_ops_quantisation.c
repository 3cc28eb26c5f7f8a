/* quant_fp8: its checks, and both CPU kernels in every mode, at the edges of scales and codes, strided and padded. */
#include "core/support.h"
#include "tests/kernels.h"

#include <flhost/dtype.h>
#include <math.h>

static const int64_t by_tensor[] = {-1, -1}, by_token[] = {1, -1}, by_channel[] = {-1, 1};
static const float min_scale = 4.359654e-06f;

/* A call that is being put together; the tensors may be NULL. */
typedef struct quantisation {
  owned *x, *scale, *scale_ub, *q, *scale_out;
  const int64_t *group_shape;
  bool use_ue8m0;
  int64_t padding;
} quantisation;

static void quantise(const quantisation *c, const char *id) {
  fl_value values[] = {value_of(c->x),        value_of(c->scale), value_of(c->scale_ub), fl_ints(c->group_shape, 2),
                       fl_bool(c->use_ue8m0), fl_int(c->padding), value_of(c->q),        value_of(c->scale_out)};
  fl_schema *schema = schema_of("quant_fp8");
  fl_call call = {.size = sizeof call, .count = 8, .values = values};
  fl_status status = fl_schema_check(schema, &call);
  ck_assert_msg(status == FL_OK, "%s", fl_error_message());
  check_call("quant_fp8", id, values, 8);
  fl_schema_free(schema);
}

static owned *matrix(DLDataType dtype, int64_t rows, int64_t columns, int64_t padding) {
  const int64_t shape[] = {rows, columns};
  return make(dtype, 2, shape, padding);
}

static owned *one(float element) {
  const int64_t shape[] = {1};
  owned *made = make(float32, 1, shape, 0);
  set(&made->tensor, 0, (double)element);
  return made;
}

static void unmake_call(quantisation *c) {
  owned *all[] = {c->x, c->scale, c->scale_ub, c->q, c->scale_out};
  for (size_t i = 0; i < 5; i++)
    unmake(all[i]);
}

static float scale_at(const quantisation *c, int64_t i) {
  return ((const float *)c->scale_out->tensor.data)[i];
}

static uint8_t code_at(const quantisation *c, int64_t i) {
  return ((const uint8_t *)c->q->tensor.data)[i];
}

/* -------------------------------------------------------------------------------------------------- computed scales */

START_TEST(a_token_is_divided_by_its_largest_magnitude_over_448) {
  const float elements[] = {1, -2, 0.5f, 4, 0, 0, 0, 0, 448, 1, -448, 0.001f};
  quantisation c = {.x = matrix(float32, 3, 4, 0),
                    .q = matrix(float8, 3, 4, 0),
                    .scale_out = matrix(float32, 3, 1, 0),
                    .group_shape = by_token};
  memcpy(c.x->tensor.data, elements, sizeof elements);
  quantise(&c, both[_i]);
  ck_assert_float_eq(scale_at(&c, 0), 4.0f / 448.0f);
  ck_assert_float_eq(scale_at(&c, 1), min_scale);
  ck_assert_float_eq(scale_at(&c, 2), 1);
  const float expected[] = {112, -224, 56, 448, 0, 0, 0, 0, 448, 1, -448, 0.001953125f};
  for (int i = 0; i < 12; i++) /* half of the least denormal rounds up from just above it */
    ck_assert_float_eq((float)get(&c.q->tensor, i), expected[i]);
  unmake_call(&c);
}
END_TEST

START_TEST(an_upper_bound_limits_the_scale_and_codes_are_clamped) {
  const float elements[] = {1, -2, 0.5f, 4};
  quantisation c = {.x = matrix(float32, 1, 4, 0),
                    .scale_ub = one(2),
                    .q = matrix(float8, 1, 4, 0),
                    .scale_out = matrix(float32, 1, 1, 0),
                    .group_shape = by_token};
  memcpy(c.x->tensor.data, elements, sizeof elements);
  quantise(&c, both[_i]);
  const float expected[] = {224, -448, 112, 448};
  ck_assert_float_eq(scale_at(&c, 0), 2.0f / 448.0f);
  for (int i = 0; i < 4; i++)
    ck_assert_float_eq((float)get(&c.q->tensor, i), expected[i]);
  unmake_call(&c);
}
END_TEST

/* Groups of 4 in rows of 6: the last one is short. */
START_TEST(groups_have_scales_of_their_own_and_the_last_may_be_short) {
  static const int64_t groups[] = {1, 4};
  const float elements[] = {1, 2, 3, 7, -14, 3, 0, 0, 0, 0, 448, 0};
  const float scales[] = {7.0f / 448, 14.0f / 448, min_scale, 1}, powers[] = {0.015625f, 0.03125f, min_scale, 1};
  for (int power = 0; power < 2; power++) {
    quantisation c = {.x = matrix(float32, 2, 6, 0),
                      .q = matrix(float8, 2, 6, 0),
                      .scale_out = matrix(float32, 2, 2, 0),
                      .group_shape = groups,
                      .use_ue8m0 = power};
    memcpy(c.x->tensor.data, elements, sizeof elements);
    quantise(&c, both[_i]);
    for (int i = 0; i < 4; i++)
      ck_assert_float_eq(scale_at(&c, i), power ? powers[i] : scales[i]);
    for (int i = 0; i < 12; i++) {
      float scale = scale_at(&c, i / 6 * 2 + i % 6 / 4);
      ck_assert_uint_eq(code_at(&c, i), fl_float_to_e4m3fn(elements[i] / scale));
    }
    unmake_call(&c);
  }
}
END_TEST

/* 3 / 448 lies between 2^-8 and 2^-7. */
START_TEST(ue8m0_rounds_a_scale_up_to_a_power_of_two) {
  static const int64_t groups[] = {1, 2};
  quantisation c = {.x = matrix(bfloat16, 1, 2, 0),
                    .q = matrix(float8, 1, 2, 0),
                    .scale_out = matrix(float32, 1, 1, 0),
                    .group_shape = groups,
                    .use_ue8m0 = true};
  set(&c.x->tensor, 0, 3);
  set(&c.x->tensor, 1, -1);
  quantise(&c, both[_i]);
  ck_assert_float_eq(scale_at(&c, 0), 0.0078125f);
  ck_assert_double_eq(get(&c.q->tensor, 0), 384);
  ck_assert_double_eq(get(&c.q->tensor, 1), -128);
  unmake_call(&c);
}
END_TEST

START_TEST(a_tensor_has_one_scale_and_behind_its_tokens_come_rows_of_zeros) {
  quantisation c = {.x = matrix(float16, 2, 3, 0),
                    .q = matrix(float8, 5, 3, 0),
                    .scale_out = one(0),
                    .group_shape = by_tensor,
                    .padding = 5};
  for (int i = 0; i < 6; i++)
    set(&c.x->tensor, i, i - 3);
  quantise(&c, both[_i]);
  ck_assert_float_eq(scale_at(&c, 0), 3.0f / 448.0f);
  ck_assert_double_eq(get(&c.q->tensor, 0), -448);
  ck_assert_double_eq(get(&c.q->tensor, 5), 288); /* 298.67 lies between 288 and 320 */
  for (int i = 6; i < 15; i++)
    ck_assert_uint_eq(code_at(&c, i), 0);
  unmake_call(&c);
}
END_TEST

/* Fewer rows than there are tokens: nothing is cut off. */
START_TEST(padding_below_the_number_of_tokens_changes_nothing) {
  quantisation c = {.x = matrix(float32, 3, 8, 0),
                    .q = matrix(float8, 3, 8, 0),
                    .scale_out = matrix(float32, 3, 1, 0),
                    .group_shape = by_token,
                    .padding = 2};
  fill(&c.x->tensor, 1);
  quantise(&c, both[_i]);
  ck_assert_uint_ne(code_at(&c, 17), 0x5a);
  unmake_call(&c);
}
END_TEST

START_TEST(nan_spreads_to_the_scale_and_infinity_to_nan) {
  const float elements[] = {1, NAN, 2, 1, INFINITY, -2, 1, -448, 2};
  quantisation c = {.x = matrix(float32, 3, 3, 0),
                    .q = matrix(float8, 3, 3, 0),
                    .scale_out = matrix(float32, 3, 1, 0),
                    .group_shape = by_token};
  memcpy(c.x->tensor.data, elements, sizeof elements);
  quantise(&c, both[_i]);
  const double expected[] = {NAN, NAN, NAN, 0, NAN, 0, 1, -448, 2};
  ck_assert(isnan(scale_at(&c, 0)) && isinf(scale_at(&c, 1)) && scale_at(&c, 2) == 1);
  for (int i = 0; i < 9; i++) {
    double code = get(&c.q->tensor, i);
    ck_assert_msg(code == expected[i] || (isnan(code) && isnan(expected[i])), "element %d: %g", i, code);
  }
  unmake_call(&c);
}
END_TEST

START_TEST(O2_no_tokens_have_no_scales_and_a_tensor_the_least_one) {
  static const int64_t groups[] = {1, 4};
  const int64_t *const shapes[] = {by_token, groups, by_tensor};
  for (int i = 0; i < 3; i++) {
    quantisation c = {.x = matrix(float32, 0, 8, 0),
                      .q = matrix(float8, 0, 8, 0),
                      .scale_out = i == 2 ? one(0) : matrix(float32, 0, i ? 2 : 1, 0),
                      .group_shape = shapes[i]};
    quantise(&c, both[_i]);
    if (i == 2)
      ck_assert_float_eq(scale_at(&c, 0), min_scale);
    unmake_call(&c);
  }
}
END_TEST

/* What q is decides: MI300's type has half the range, of which vLLM uses 224, and one NaN in the place of -0. */
START_TEST(codes_are_e4m3fnuz_where_q_is) {
  static const DLDataType fnuz = {FL_DTYPE_FLOAT8_E4M3FNUZ, 8, 1};
  const float elements[] = {4, -2, -0.0f, 1, 0, 0, 0, 0, 230, -240, NAN, 1000};
  quantisation c = {.x = matrix(float32, 3, 4, 0),
                    .q = matrix(fnuz, 3, 4, 0),
                    .scale_out = matrix(float32, 3, 1, 0),
                    .group_shape = by_token};
  memcpy(c.x->tensor.data, elements, sizeof elements);
  quantise(&c, both[_i]);
  ck_assert_float_eq(scale_at(&c, 0), 4.0f / 224.0f);
  ck_assert_float_eq(scale_at(&c, 1), (float)(1.0 / (224.0 * 512.0)));
  ck_assert(isnan(scale_at(&c, 2)));
  const float expected[] = {224, -112, 0, 56, 0, 0, 0, 0};
  for (int i = 0; i < 8; i++)
    ck_assert_float_eq(fl_e4m3fnuz_to_float(code_at(&c, i)), expected[i]);
  ck_assert_uint_eq(code_at(&c, 2), 0);
  for (int i = 8; i < 12; i++)
    ck_assert_uint_eq(code_at(&c, i), 0x80);
  c.scale = one(1);
  c.group_shape = by_tensor;
  unmake(c.scale_out);
  c.scale_out = one(0);
  quantise(&c, both[_i]);
  const float clamped[] = {224, -224, NAN, 224};
  for (int i = 0; i < 4; i++) {
    float value = fl_e4m3fnuz_to_float(code_at(&c, 8 + i));
    ck_assert_msg(value == clamped[i] || (isnan(value) && isnan(clamped[i])), "element %d: %g", i, (double)value);
  }
  unmake_call(&c);
}
END_TEST

/* Every float16 and bfloat16; of float32 every upper half, with lower ones next to what is rounded up or down. */
static owned *every_value(DLDataType dtype) {
  static const uint32_t lower[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
  enum { UPPER = 1 << 16, LOWER = sizeof lower / sizeof lower[0] };
  owned *x = matrix(dtype, dtype.bits == 32 ? LOWER : 1, UPPER, 0);
  for (uint32_t i = 0; i < UPPER; i++)
    for (uint32_t j = 0; dtype.bits == 32 && j < LOWER; j++)
      ((uint32_t *)x->tensor.data)[j * UPPER + i] = i << 16 | lower[j];
  for (uint32_t i = 0; dtype.bits == 16 && i < UPPER; i++)
    ((uint16_t *)x->tensor.data)[i] = (uint16_t)i;
  return x;
}

START_TEST(every_value_has_the_code_of_the_reference_with_each_instruction_set) {
  static const DLDataType types[] = {{FL_DTYPE_FLOAT8_E4M3FN, 8, 1}, {FL_DTYPE_FLOAT8_E4M3FNUZ, 8, 1}};
  static const char *const variants[] = {"baseline", "avx2", "avx512"};
  static const float scales[] = {1, 0.3f, 1e-38f, 3e38f};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", variants[_i / 6], 1), 0);
  if (try_plugin()) {
    printf("skip: every_value_has_the_code_of_the_reference: no %s here\n", variants[_i / 6]);
    return;
  }
  DLDataType type = types[_i / 3 % 2];
  owned *x = every_value(floats[_i % 3]), *q[2];
  for (size_t scale = 0; scale < sizeof scales / sizeof scales[0]; scale++) {
    for (int which = 0; which < 2; which++) {
      quantisation c = {.x = x,
                        .scale = one(scales[scale]),
                        .q = q[which] = matrix(type, x->shape[0], x->shape[1], 0),
                        .scale_out = one(0),
                        .group_shape = by_tensor};
      quantise(&c, both[which]);
      UNMAKE(c.scale, c.scale_out);
    }
    for (int64_t i = 0; i < count(&x->tensor); i++) {
      unsigned code = ((uint8_t *)q[1]->tensor.data)[i], expected = ((uint8_t *)q[0]->tensor.data)[i];
      ck_each(code == expected, "%g with scale %g: %x, expected %x", get(&x->tensor, i), (double)scales[scale], code,
              expected);
    }
    UNMAKE(q[0], q[1]);
  }
  unmake(x);
}
END_TEST

/* Rows of all magnitudes, also such that the largest value times the reciprocal of the scale is beyond the largest
 * code's for rounding. To every seventh comes something that makes no scale, to others magnitudes that a bound cuts. */
static owned *rows_of_many_sizes(DLDataType dtype) {
  enum { ROWS = 1500, COLUMNS = 101 };
  static const double odd[] = {NAN, INFINITY, -INFINITY, 0};
  const int least = dtype.bits == 32 || dtype.code == kDLBfloat ? -140 : -24, most = least == -24 ? 15 : 126;
  owned *x = matrix(dtype, ROWS, COLUMNS, 0);
  uint32_t random = 1;
  for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
    int64_t row = i / COLUMNS;
    random = random * 1664525u + 1013904223u;
    double fraction = (double)(int32_t)random * 0x1p-31;
    set(&x->tensor, i, ldexp(fraction, least + (int)(row * 7 % (most - least))));
    if (row % 7 == 6 && i % COLUMNS == row % COLUMNS)
      set(&x->tensor, i, odd[row / 7 % 4]);
  }
  return x;
}

START_TEST(computed_scales_give_the_codes_of_the_reference_with_each_instruction_set) {
  static const DLDataType types[] = {{FL_DTYPE_FLOAT8_E4M3FN, 8, 1}, {FL_DTYPE_FLOAT8_E4M3FNUZ, 8, 1}};
  static const char *const variants[] = {"baseline", "avx2", "avx512"};
  static const int64_t groups[] = {1, 40};
  static const struct {
    const int64_t *group_shape;
    float bound;
    int64_t first, rows; /* of x; what makes no scale spreads to a whole tensor */
  } cases[] = {{by_token, 0, 0, 1500}, {by_token, 0.75f, 0, 1500}, {groups, 0, 0, 1500}, {by_tensor, 0, 0, 6},
               {by_tensor, 0, 70, 6},  {by_tensor, 0, 0, 7},       {by_tensor, 0, 7, 7}};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", variants[_i / 6], 1), 0);
  if (try_plugin()) {
    printf("skip: computed_scales_give_the_codes_of_the_reference: no %s here\n", variants[_i / 6]);
    return;
  }
  DLDataType dtype = floats[_i % 3];
  owned *all = rows_of_many_sizes(dtype);
  const int64_t columns = all->shape[1];
  for (size_t which_case = 0; which_case < sizeof cases / sizeof cases[0]; which_case++) {
    const int64_t *shape = cases[which_case].group_shape, rows = cases[which_case].rows;
    owned *q[2], *x = matrix(dtype, rows, columns, 0);
    memcpy(x->tensor.data, (char *)all->tensor.data + cases[which_case].first * columns * dtype.bits / 8,
           (size_t)(rows * columns * dtype.bits / 8));
    for (int which = 0; which < 2; which++) {
      quantisation c = {.x = x,
                        .scale_ub = cases[which_case].bound > 0 ? one(cases[which_case].bound) : NULL,
                        .q = q[which] = matrix(types[_i / 3 % 2], rows, columns, 0),
                        .scale_out = shape == by_tensor ? one(0) : matrix(float32, rows, shape == by_token ? 1 : 3, 0),
                        .group_shape = shape};
      quantise(&c, both[which]);
      UNMAKE(c.scale_ub, c.scale_out);
    }
    for (int64_t i = 0; i < rows * columns; i++) {
      unsigned code = ((uint8_t *)q[1]->tensor.data)[i], expected = ((uint8_t *)q[0]->tensor.data)[i];
      ck_each(code == expected, "case %d, row %d, %g: %x, expected %x", (int)which_case, (int)(i / columns),
              get(&x->tensor, i), code, expected);
    }
    UNMAKE(x, q[0], q[1]);
  }
  unmake(all);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- given scales */

/* x [4, 6] with scales of each kind; also those that are vectors. */
START_TEST(a_given_scale_serves_the_elements_that_group_shape_says) {
  static const int64_t groups[] = {1, 3}, blocks[] = {2, 3};
  static const struct {
    const int64_t *group_shape;
    int ndim;
    int64_t shape[2];
    int64_t rows, columns; /* of x that share one */
  } cases[] = {
      {by_tensor, 1, {1}, 4, 6},   {by_tensor, 0, {0}, 4, 6}, {by_tensor, 2, {1, 1}, 4, 6},
      {by_token, 2, {4, 1}, 1, 6}, {by_token, 1, {4}, 1, 6},  {by_channel, 2, {1, 6}, 4, 1},
      {by_channel, 1, {6}, 4, 1},  {groups, 2, {4, 2}, 1, 3}, {blocks, 2, {2, 2}, 2, 3},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    quantisation c = {.x = matrix(bfloat16, 4, 6, 0),
                      .scale = make(float32, cases[i].ndim, cases[i].shape, 0),
                      .q = matrix(float8, 6, 6, 0),
                      .scale_out = make(float32, cases[i].ndim, cases[i].shape, 0),
                      .group_shape = cases[i].group_shape,
                      .padding = 6};
    int64_t n_scales = count(&c.scale->tensor), per_row = 6 / cases[i].columns;
    fill(&c.x->tensor, 5);
    for (int64_t s = 0; s < n_scales; s++)
      set(&c.scale->tensor, s, 0.01 * (double)(s + 1));
    quantise(&c, both[_i]);
    ck_assert_mem_eq(c.scale->tensor.data, c.scale_out->tensor.data, (size_t)n_scales * sizeof(float));
    for (int64_t e = 0; e < 24; e++) {
      float scale = ((float *)c.scale->tensor.data)[e / 6 / cases[i].rows * per_row + e % 6 / cases[i].columns];
      ck_assert_msg(code_at(&c, e) == fl_float_to_e4m3fn((float)get(&c.x->tensor, e) * (1.0f / scale)),
                    "case %d, element %d", (int)i, (int)e);
    }
    for (int64_t e = 24; e < 36; e++)
      ck_assert_uint_eq(code_at(&c, e), 0);
    unmake_call(&c);
  }
}
END_TEST

/* Its scale has a row and a column all the same. */
START_TEST(a_token_may_come_without_a_dimension_of_tokens) {
  const int64_t shape[] = {6}, scale_shape[] = {1, 1};
  quantisation c = {.x = make(float32, 1, shape, 0),
                    .scale = make(float32, 2, scale_shape, 0),
                    .q = make(float8, 1, shape, 0),
                    .scale_out = make(float32, 2, scale_shape, 0),
                    .group_shape = by_tensor};
  fill(&c.x->tensor, 5);
  set(&c.scale->tensor, 0, 0.01);
  quantise(&c, both[_i]);
  for (int64_t e = 0; e < 6; e++)
    ck_assert_uint_eq(code_at(&c, e), fl_float_to_e4m3fn((float)get(&c.x->tensor, e) * (1.0f / scale_at(&c, 0))));
  unmake_call(&c);
}
END_TEST

/* ---------------------------------------------------------------------------------------- layouts, both kernels */

START_TEST(O2_strided_tensors_give_what_compact_ones_give_and_both_kernels_the_same) {
  static const int64_t groups[] = {1, 128};
  const int64_t *const shapes[] = {by_tensor, by_token, groups};
  const int64_t in[] = {2, 3, 700}, tokens[] = {2, 3, 1}, grouped[] = {2, 3, 6}, single[] = {1};
  DLDataType dtype = floats[_i];
  for (int i = 0; i < 3; i++) {
    owned *codes = NULL, *scales = NULL;
    for (int which = 0; which < 4; which++) {
      int64_t padding = which % 2 ? 9 : 0;
      quantisation c = {.x = make(dtype, 3, in, padding),
                        .q = make(float8, 3, in, padding),
                        .scale_out = make(float32, i ? 3 : 1,
                                          i == 2 ? grouped
                                          : i    ? tokens
                                                 : single,
                                          padding),
                        .group_shape = shapes[i]};
      fill(&c.x->tensor, 11);
      quantise(&c, both[which / 2]);
      if (which) {
        check_same_elements(&codes->tensor, c.q);
        check_same_elements(&scales->tensor, c.scale_out);
        unmake_call(&c);
      } else {
        codes = c.q;
        scales = c.scale_out;
        unmake(c.x);
      }
    }
    unmake(codes);
    unmake(scales);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- bad calls */

START_TEST(O6_bad_arguments_of_quant_fp8_are_refused_with_a_reason) {
  static const int64_t rank3[] = {2, 2, 6}, pair[] = {2}, cube[] = {1, 1, 1}, bad[] = {0, -1}, block[] = {2, 3},
                       uneven[] = {1, 4}, groups[] = {1, 3}, triple[] = {1, 2, 3};
  owned *x = matrix(float32, 4, 6, 0), *deep = make(float32, 3, rank3, 0);
  owned *q = matrix(float8, 4, 6, 0), *bytes = matrix((DLDataType){kDLUInt, 8, 1}, 4, 6, 0), *scale = one(1);
  owned *two = make(float32, 1, pair, 0), *three = make(float32, 3, cube, 0);
  owned *tokens = matrix(float32, 4, 1, 0);
  const struct {
    const char *expected;
    owned *x, *scale, *scale_ub;
    const int64_t *group_shape;
    uint32_t n_group;
    bool use_ue8m0;
    int64_t padding;
    owned *q, *scale_out;
  } cases[] = {
      {"argument 'scale': expected one element, shape [1], [] or [1, 1] (group_shape is [-1, -1], one scale for the "
       "tensor)",
       x, two, NULL, by_tensor, 2, false, 0, q, scale},
      {"argument 'scale': expected one element, shape [1], [] or [1, 1] (group_shape is [-1, -1], one scale for the "
       "tensor)",
       x, three, NULL, by_tensor, 2, false, 0, q, scale},
      {"argument 'scale': expected shape [4, 1] (one for each token of 'x')", x, two, NULL, by_token, 2, false, 0, q,
       scale},
      {"argument 'scale': expected shape [1, 6] (one for each channel of 'x')", x, tokens, NULL, by_channel, 2, false,
       0, q, scale},
      {"argument 'scale': expected shape [2, 2] (one for each block of 'x')", x, tokens, NULL, block, 2, false, 0, q,
       scale},
      {"argument 'group_shape': 4, expected a divisor of 6 (dimension 1 of 'x')", x, tokens, NULL, uneven, 2, false, 0,
       q, scale},
      {"argument 'x': 3 dimensions, expected 2 (so that 'group_shape' can say what shares a scale)", deep, tokens, NULL,
       by_token, 2, false, 0, q, scale},
      {"argument 'x': 3 dimensions, expected 2 ('num_token_padding' is given)", deep, NULL, NULL, by_token, 2, false, 4,
       q, scale},
      {"argument 'group_shape': [0, -1], expected [-1, -1] (tensor), [1, -1] (token), [-1, 1] (channel), [1, G] "
       "(group) or [R, C] (block)",
       x, NULL, NULL, bad, 2, false, 0, q, scale},
      {"argument 'group_shape': [1, 2, 3], expected [-1, -1] (tensor), [1, -1] (token), [-1, 1] (channel), [1, G] "
       "(group) or [R, C] (block)",
       x, NULL, NULL, triple, 3, false, 0, q, scale},
      {"argument 'group_shape': [-1, 1], expected [-1, -1] (tensor), [1, -1] (token) or [1, G] (group) where 'scale' "
       "is none",
       x, NULL, NULL, by_channel, 2, false, 0, q, scale},
      {"argument 'group_shape': [2, 3], expected [-1, -1] (tensor), [1, -1] (token) or [1, G] (group) where 'scale' "
       "is none",
       x, NULL, NULL, block, 2, false, 0, q, scale},
      {"argument 'scale_ub': given, expected none (only scales that are computed for each token have an upper bound)",
       x, NULL, scale, by_tensor, 2, false, 0, q, scale},
      {"argument 'scale_ub': shape [2], expected [1] or []", x, NULL, two, by_token, 2, false, 0, q, tokens},
      {"argument 'use_ue8m0': true, expected false (only scales that are computed for groups [1, G] can be powers of "
       "two)",
       x, NULL, NULL, by_token, 2, true, 0, q, tokens},
      {"argument 'num_token_padding': -1, expected 0 or more", x, NULL, NULL, by_token, 2, false, -1, q, tokens},
      {"argument 'num_token_padding': 8, expected 0 (groups are not padded)", x, NULL, NULL, groups, 2, false, 8, q,
       tokens},
      {"result 'q': dtype uint8, expected float8_e4m3fn", x, NULL, NULL, by_token, 2, false, 0, bytes, tokens},
      {"result 'q': shape [4, 6], expected [9, 6]", x, NULL, NULL, by_token, 2, false, 9, q, tokens},
      {"result 'scale_out': shape [1], expected [4, 1]", x, NULL, NULL, by_token, 2, false, 0, q, scale},
      {"result 'scale_out': shape [4, 1], expected [4, 2]", x, NULL, NULL, groups, 2, false, 0, q, tokens},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    const fl_value values[] = {value_of(cases[i].x),        value_of(cases[i].scale),
                               value_of(cases[i].scale_ub), fl_ints(cases[i].group_shape, cases[i].n_group),
                               fl_bool(cases[i].use_ue8m0), fl_int(cases[i].padding),
                               value_of(cases[i].q),        value_of(cases[i].scale_out)};
    snprintf(expected, sizeof expected, "quant_fp8: %s", cases[i].expected);
    check_refused("quant_fp8", expected, values, 8);
  }
  owned *all[] = {x, deep, q, bytes, scale, two, three, tokens};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    unmake(all[i]);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, a_token_is_divided_by_its_largest_magnitude_over_448, 0, 2);
  tcase_add_loop_test(tests, an_upper_bound_limits_the_scale_and_codes_are_clamped, 0, 2);
  tcase_add_loop_test(tests, groups_have_scales_of_their_own_and_the_last_may_be_short, 0, 2);
  tcase_add_loop_test(tests, ue8m0_rounds_a_scale_up_to_a_power_of_two, 0, 2);
  tcase_add_loop_test(tests, a_tensor_has_one_scale_and_behind_its_tokens_come_rows_of_zeros, 0, 2);
  tcase_add_loop_test(tests, padding_below_the_number_of_tokens_changes_nothing, 0, 2);
  tcase_add_loop_test(tests, nan_spreads_to_the_scale_and_infinity_to_nan, 0, 2);
  tcase_add_loop_test(tests, O2_no_tokens_have_no_scales_and_a_tensor_the_least_one, 0, 2);
  tcase_add_loop_test(tests, codes_are_e4m3fnuz_where_q_is, 0, 2);
  tcase_add_loop_test(tests, every_value_has_the_code_of_the_reference_with_each_instruction_set, 0, 18);
  tcase_add_loop_test(tests, computed_scales_give_the_codes_of_the_reference_with_each_instruction_set, 0, 18);
  tcase_add_loop_test(tests, a_given_scale_serves_the_elements_that_group_shape_says, 0, 2);
  tcase_add_loop_test(tests, a_token_may_come_without_a_dimension_of_tokens, 0, 2);
  tcase_add_loop_test(tests, O2_strided_tensors_give_what_compact_ones_give_and_both_kernels_the_same, 0, 3);
  tcase_add_test(tests, O6_bad_arguments_of_quant_fp8_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_quantisation", add_tests, 20);
}
