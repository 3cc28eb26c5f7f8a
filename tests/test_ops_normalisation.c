/* Gemma's and the gated RMS norms, and layer norm: their checks, and both CPU kernels against the formula in double
 * precision. */
#include "tests/kernels.h"

#include <flhost/dtype.h>
#include <math.h>

/* ----------------------------------------------------------------------------------------------------------- Gemma */

static void run_gemma(const char *id, owned *x, owned *residual, owned *weight, owned *out, owned *residual_out) {
  fl_value values[] = {value_of(x),    value_of(residual), value_of(weight),
                       fl_float(1e-6), value_of(out),      value_of(residual_out)};
  check_call("gemma_rms_norm", id, values, 6);
}

START_TEST(gemma_counts_its_weight_from_1) {
  const int64_t shape[] = {1, 4}, hidden[] = {4};
  const double expected[] = {.36514837, .73029673, 2 * 1.09544516, 0};
  owned *x = make(float32, 2, shape, 0), *out = make(float32, 2, shape, 0), *weight = make(float32, 1, hidden, 0);
  for (int i = 0; i < 4; i++) {
    set(&x->tensor, i, i + 1);
    set(&weight->tensor, i, i < 2 ? 0 : i == 2 ? 1 : -1);
  }
  run_gemma(both[_i], x, NULL, weight, out, NULL);
  for (int i = 0; i < 4; i++)
    ck_assert_double_eq_tol(get(&out->tensor, i), expected[i], 1e-6);
  UNMAKE(x, out, weight);
}
END_TEST

/* The weight is float32 once 1 is added, so the result is rounded once, whatever its own type. */
START_TEST(O4_gemmas_reference_rounds_once) {
  enum { N = 128 };
  const int64_t shape[] = {1, N}, hidden[] = {N};
  owned *x = make_filled(bfloat16, 2, shape, 0, 1), *residual = make_filled(bfloat16, 2, shape, 0, 2);
  owned *weight = make_filled(bfloat16, 1, hidden, 0, 3), *out = make(bfloat16, 2, shape, 0);
  owned *sum_out = make(bfloat16, 2, shape, 0);
  float sums[N];
  double squares = 0;
  int differ = 0;
  for (int i = 0; i < N; i++) {
    sums[i] = (float)get(&x->tensor, i) + (float)get(&residual->tensor, i);
    squares += (double)(sums[i] * sums[i]);
  }
  float scale = 1.0f / sqrtf((float)squares / N + 1e-6f);
  run_gemma("reference.c", x, residual, weight, out, sum_out);
  for (int i = 0; i < N; i++) {
    float w = (float)get(&weight->tensor, i) + 1.0f, normed = sums[i] * scale;
    uint16_t once = fl_float_to_bf16(normed * w);
    ck_assert_uint_eq(((uint16_t *)out->tensor.data)[i], once);
    ck_assert_uint_eq(((uint16_t *)sum_out->tensor.data)[i], fl_float_to_bf16(sums[i]));
    differ += once != fl_float_to_bf16(fl_bf16_to_float(fl_float_to_bf16(normed)) * w);
  }
  ck_assert_int_gt(differ, 0);
  UNMAKE(x, residual, weight, out, sum_out);
}
END_TEST

START_TEST(O1_O2_gemma_takes_strided_tensors_and_works_in_place) {
  const int64_t shape[] = {2, 3, 301}, hidden[] = {301};
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  for (int wide = 0; wide < 2; wide++) {
    owned *x = make_filled(dtype, 3, shape, 0, 1), *residual = make_filled(dtype, 3, shape, 0, 2);
    owned *out = make(dtype, 3, shape, 0), *sum = make(dtype, 3, shape, 0);
    owned *strided_x = make_filled(dtype, 3, shape, 7, 1), *strided_residual = make_filled(dtype, 3, shape, 2, 2);
    owned *weight = make_filled(wide ? float32 : dtype, 1, hidden, 0, 3), *by_default = make(dtype, 3, shape, 0);
    run_gemma(id, x, residual, weight, out, sum);
    run_gemma(id, strided_x, strided_residual, weight, strided_x, strided_residual);
    check_same_elements(&out->tensor, strided_x);
    check_same_elements(&sum->tensor, strided_residual);
    run_gemma("default.flagos", x, residual, weight, by_default, sum);
    check_close("gemma_rms_norm", &by_default->tensor, &out->tensor);
    UNMAKE(x, residual, out, sum, strided_x, strided_residual, weight, by_default);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- gated */

static double sigmoid(double v) {
  return 1 / (1 + exp(-v));
}

/* What a gated norm is to compute. */
typedef struct formula {
  const char *activation;
  int64_t group;
  bool gated, after, normalised;
  double epsilon;
} formula;

static double gate_of(const formula *f, const DLTensor *gate, int64_t i) {
  if (!f->gated)
    return 1;
  double z = get(gate, element_offset(gate, i));
  return strcmp(f->activation, "sigmoid") ? z * sigmoid(z) : sigmoid(z);
}

/* Element `i` of the compact result. */
static double evaluate(const formula *f, const DLTensor *x, const DLTensor *gate, const DLTensor *weight, int64_t i) {
  int64_t hidden = x->shape[x->ndim - 1], begin = i - i % hidden % f->group;
  double squares = 0, value = get(x, element_offset(x, i)) * (f->after ? 1 : gate_of(f, gate, i));
  if (!f->normalised)
    return value;
  for (int64_t j = begin; j < begin + f->group; j++) {
    double other = get(x, element_offset(x, j)) * (f->after ? 1 : gate_of(f, gate, j));
    squares += other * other;
  }
  value *= get(weight, i % hidden) / sqrt(squares / (double)f->group + f->epsilon);
  return value * (f->after ? gate_of(f, gate, i) : 1);
}

/* Some elements of every row and group, for long rows not all. */
static void check_formula(const char *op, const formula *f, const owned *x, const owned *gate, const owned *weight,
                          const owned *result) {
  const DLTensor *out = &result->tensor;
  fl_schema *schema = schema_of(op);
  fl_tolerance tolerance = fl_schema_tolerance(schema, out->dtype);
  int64_t n = count(out), step = n > 2000 ? 97 : 1;
  for (int64_t i = 0; i < n; i += step) {
    double expected = evaluate(f, &x->tensor, gate ? &gate->tensor : NULL, weight ? &weight->tensor : NULL, i);
    double given = get(out, element_offset(out, i));
    ck_each(fabs(given - expected) <= tolerance.atol + 2 * tolerance.rtol * fabs(expected),
            "%s: element %d is %.9g, expected %.9g", op, (int)i, given, expected);
  }
  fl_schema_free(schema);
}

static void run_gated(const char *id, owned *x, owned *z, owned *weight, const formula *f, owned *out) {
  bool whole = f->group == x->shape[x->tensor.ndim - 1];
  fl_value values[] = {value_of(x),
                       value_of(z),
                       value_of(weight),
                       fl_float(f->epsilon),
                       whole ? fl_none() : fl_int(f->group),
                       fl_bool(f->after),
                       fl_string(f->activation),
                       value_of(out)};
  check_call("rms_norm_gated", id, values, 8);
}

START_TEST(rms_norm_gated_computes_its_formula_in_every_mode) {
  const int64_t shape[] = {2, 3, 40}, hidden[] = {40};
  const formula formulas[] = {{"swish", 40, true, false, true, 1e-5},  {"silu", 8, true, true, true, 1e-5},
                              {"sigmoid", 8, true, false, true, 1e-2}, {"sigmoid", 40, true, true, true, 0},
                              {"swish", 20, false, false, true, 1e-5}, {"swish", 40, false, true, true, 1e-5}};
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
    owned *x = make_filled(dtype, 3, shape, 5, 1), *z = formulas[i].gated ? make_filled(dtype, 3, shape, 3, 2) : NULL;
    owned *weight = make_filled(i % 2 ? float32 : dtype, 1, hidden, 0, 3), *out = make(dtype, 3, shape, 1);
    run_gated(id, x, z, weight, &formulas[i], out);
    check_formula("rms_norm_gated", &formulas[i], x, z, weight, out);
    UNMAKE(x, z, weight, out);
  }
}
END_TEST

/* A group that is more than twice as long as what the default kernel keeps between its passes. */
START_TEST(gated_norms_of_long_rows_compute_their_formula) {
  const int64_t shape[] = {2, 20011}, hidden[] = {20011};
  const formula before = {"swish", 20011, true, false, true, 1e-5}, after = {"sigmoid", 20011, true, true, true, 1e-5};
  owned *x = make_filled(float32, 2, shape, 0, 1), *z = make_filled(float32, 2, shape, 0, 2);
  owned *weight = make_filled(float32, 1, hidden, 0, 3), *out = make(float32, 2, shape, 0);
  run_gated(both[_i], x, z, weight, &before, out);
  check_formula("rms_norm_gated", &before, x, z, weight, out);
  run_gated(both[_i], x, z, weight, &after, out);
  check_formula("rms_norm_gated", &after, x, z, weight, out);
  UNMAKE(x, z, weight, out);
}
END_TEST

static void run_mixer2(const char *id, owned *x, owned *gate, owned *weight, const formula *f, owned *out) {
  fl_value values[] = {value_of(x),
                       value_of(gate),
                       value_of(weight),
                       fl_float(f->epsilon),
                       fl_int(x->shape[x->tensor.ndim - 1] / f->group),
                       fl_bool(f->normalised),
                       value_of(out)};
  fl_schema *schema = schema_of("mixer2_gated_rms_norm");
  fl_call call = {.size = sizeof call, .count = 7, .values = values};
  ck_assert_int_eq(fl_schema_check(schema, &call), FL_OK);
  check_call("mixer2_gated_rms_norm", id, values, 7);
  fl_schema_free(schema);
}

START_TEST(mixer2_computes_its_formula_and_a_float32_weight_makes_a_float32_result) {
  const int64_t shape[] = {2, 3, 40}, hidden[] = {40};
  const formula formulas[] = {{"silu", 40, true, false, true, 1e-6},
                              {"silu", 10, true, false, true, 1e-6},
                              {"silu", 40, true, false, false, 0}};
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  for (size_t i = 0; i < 6; i++) {
    const formula *f = &formulas[i % 3];
    bool wide = i / 3;
    owned *x = make_filled(dtype, 3, shape, 5, 1), *gate = make_filled(dtype, 3, shape, 3, 2);
    owned *weight = f->normalised || wide ? make_filled(wide ? float32 : dtype, 1, hidden, 0, 3) : NULL;
    owned *out = make(wide && f->normalised ? float32 : dtype, 3, shape, 1);
    run_mixer2(id, x, gate, weight, f, out);
    if (!wide || !f->normalised)
      check_formula("mixer2_gated_rms_norm", f, x, gate, weight, out);
    else /* the normalised value was rounded to x's type */
      for (int64_t e = 0; e < count(&out->tensor); e++) {
        double expected = evaluate(f, &x->tensor, &gate->tensor, &weight->tensor, e);
        double unit = dtype.bits == 32 ? 1e-6 : dtype.code == kDLBfloat ? 1.0 / 256 : 1.0 / 2048;
        ck_assert_double_eq_tol(get(&out->tensor, element_offset(&out->tensor, e)), expected,
                                1e-6 + unit * fabs(expected));
      }
    UNMAKE(x, gate, weight, out);
  }
}
END_TEST

/* w * T(v * s): two roundings, which the default kernel keeps. */
START_TEST(O4_mixer2_rounds_before_the_weight) {
  enum { N = 64 };
  const int64_t shape[] = {1, N}, hidden[] = {N};
  owned *x = make_filled(bfloat16, 2, shape, 0, 1), *gate = make(bfloat16, 2, shape, 0);
  owned *weight = make_filled(bfloat16, 1, hidden, 0, 3), *out = make(bfloat16, 2, shape, 0);
  const formula f = {"silu", N, true, false, true, 1e-6};
  double squares = 0;
  int differ = 0;
  for (int i = 0; i < N; i++) /* silu(32) is 32 */
    set(&gate->tensor, i, 32);
  for (int i = 0; i < N; i++)
    squares += 32 * 32 * get(&x->tensor, i) * get(&x->tensor, i);
  float scale = 1.0f / sqrtf((float)squares / N + 1e-6f);
  run_mixer2("reference.c", x, gate, weight, &f, out);
  for (int i = 0; i < N; i++) {
    float normed = 32 * (float)get(&x->tensor, i) * scale, w = (float)get(&weight->tensor, i);
    uint16_t twice = fl_float_to_bf16(fl_bf16_to_float(fl_float_to_bf16(normed)) * w);
    ck_assert_uint_eq(((uint16_t *)out->tensor.data)[i], twice);
    differ += twice != fl_float_to_bf16(normed * w);
  }
  ck_assert_int_gt(differ, 0);
  UNMAKE(x, gate, weight, out);
}
END_TEST

/* What is normalised is rounded before the weight where that shows: a mean of some squares lets it overflow, and a
 * large weight tells how few digits it has. */
START_TEST(rms_norm_rounds_before_the_weight_where_that_shows) {
  const struct {
    DLDataType dtype;
    double x, weight;
    bool of_some;
  } cases[] = {{floats[1], 60000, 1e-6, true}, {floats[2], 3e-40, 3e38, false}};
  const DLDataType dtype = cases[_i].dtype;
  const int64_t shape[] = {3, 200}, hidden[] = {200};
  owned *x = make_filled(dtype, 2, shape, 0, 1), *weight = make_filled(dtype, 1, hidden, 0, 2);
  owned *out = make(dtype, 2, shape, 0), *expected = make(dtype, 2, shape, 0);
  for (int i = 0; i < 4 && cases[_i].of_some; i++)
    set(&x->tensor, i, 1e-4);
  set(&x->tensor, 150, cases[_i].x);
  set(&weight->tensor, 150, cases[_i].weight);
  fl_value values[] = {
      value_of(x),   fl_none(), value_of(weight), fl_float(0), cases[_i].of_some ? fl_int(4) : fl_none(),
      value_of(out), fl_none()};
  check_call("rms_norm", "default.flagos", values, 7);
  values[5] = value_of(expected);
  check_call("rms_norm", "reference.c", values, 7);
  check_close("rms_norm", &out->tensor, &expected->tensor);
  ck_assert_int_eq(isinf(element(out, 150)), cases[_i].of_some);
  ck_assert_int_eq(isinf(element(expected, 150)), cases[_i].of_some);
  UNMAKE(x, weight, out, expected);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- layer norm */

static void run_layer(const char *id, owned *x, owned *weight, owned *bias, double epsilon, owned *out) {
  fl_value values[] = {value_of(x), value_of(weight), value_of(bias), fl_float(epsilon), value_of(out)};
  check_call("layer_norm", id, values, 5);
}

/* Rows around `from`, against the formula. */
static void check_layer(const char *id, DLDataType dtype, DLDataType weights, bool scaled, bool shifted, double from) {
  const int64_t shape[] = {2, 3, 301}, hidden[] = {301};
  owned *x = make_filled(dtype, 3, shape, 7, 1), *out = make(dtype, 3, shape, 2);
  owned *weight = scaled ? make_filled(weights, 1, hidden, 0, 2) : NULL;
  owned *bias = shifted ? make_filled(weights, 1, hidden, 0, 3) : NULL;
  for (int64_t i = 0; i < count(&x->tensor); i++)
    set(&x->tensor, element_offset(&x->tensor, i), element(x, i) + from);
  run_layer(id, x, weight, bias, 1e-5, out);
  fl_schema *schema = schema_of("layer_norm");
  fl_tolerance tolerance = fl_schema_tolerance(schema, dtype);
  for (int64_t row = 0; row < 6; row++) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < 301; i++)
      mean += element(x, row * 301 + i) / 301;
    for (int64_t i = 0; i < 301; i++)
      variance += pow(element(x, row * 301 + i) - mean, 2) / 301;
    for (int64_t i = 0; i < 301; i++) {
      double expected = (element(x, row * 301 + i) - mean) / sqrt(variance + 1e-5), given = element(out, row * 301 + i);
      expected = expected * (weight ? element(weight, i) : 1) + (bias ? element(bias, i) : 0);
      double most = tolerance.atol + tolerance.rtol * fabs(expected) + 2e-7 * fabs(from);
      ck_each(fabs(given - expected) <= most, "%s: element %d of row %d is %.9g, expected %.9g", id, (int)i, (int)row,
              given, expected);
    }
  }
  fl_schema_free(schema);
  UNMAKE(x, out, weight, bias);
}

START_TEST(layer_norm_computes_its_formula) {
  DLDataType dtype = floats[_i % 3];
  check_layer(both[_i / 3], dtype, dtype, true, true, 0);
  check_layer(both[_i / 3], dtype, float32, true, true, 0);
  check_layer(both[_i / 3], dtype, dtype, false, false, 0);
  check_layer(both[_i / 3], dtype, float32, true, false, 0);
  check_layer(both[_i / 3], dtype, dtype, false, true, 0);
}
END_TEST

/* The mean of squares less the square of the mean would have nothing left of the variance. */
START_TEST(layer_norm_of_values_far_from_0_loses_nothing) {
  check_layer(both[_i], float32, float32, true, true, 10000);
}
END_TEST

/* The variance is found by what elements are above the mean of the first few, if that is near the row's. */
START_TEST(layer_norm_of_a_row_that_begins_unlike_its_rest) {
  enum { N = 1 << 16 };
  const int64_t shape[] = {1, N};
  owned *x = make_filled(float32, 2, shape, 0, 1), *out = make(float32, 2, shape, 0);
  double mean = 0, variance = 0;
  for (int i = 0; i < 32; i++)
    set(&x->tensor, i, 1000 + element(x, i));
  for (int i = 0; i < N; i++)
    mean += element(x, i) / N;
  for (int i = 0; i < N; i++)
    variance += pow(element(x, i) - mean, 2) / N;
  run_layer(both[_i], x, NULL, NULL, 1e-5, out);
  for (int i = 0; i < N; i++) {
    double expected = (element(x, i) - mean) / sqrt(variance + 1e-5);
    ck_each(fabs(element(out, i) - expected) <= 1e-5 + 2e-6 * fabs(expected), "element %d is %.9g, expected %.9g", i,
            element(out, i), expected);
  }
  UNMAKE(x, out);
}
END_TEST

/* Next to the mean a large weight makes much of the mean's last digits. */
START_TEST(layer_norm_with_a_large_weight_has_the_mean_in_all_digits) {
  DLDataType dtype = floats[_i];
  const int64_t shape[] = {512, 64}, hidden[] = {64};
  owned *x = make_filled(dtype, 2, shape, 0, 1), *weight = make_filled(dtype, 1, hidden, 0, 2);
  owned *out = make(dtype, 2, shape, 0), *expected = make(dtype, 2, shape, 0);
  set(&weight->tensor, 40, 60000);
  run_layer("reference.c", x, weight, NULL, 1e-5, expected);
  run_layer("default.flagos", x, weight, NULL, 1e-5, out);
  check_close("layer_norm", &out->tensor, &expected->tensor);
  UNMAKE(x, weight, out, expected);
}
END_TEST

/* Against layer_norm of the rounded sum with the rounded weight. */
START_TEST(nemotrons_norm_counts_its_weight_from_1_and_adds_the_residual) {
  DLDataType dtype = floats[_i % 3], weights = _i / 6 ? float32 : dtype;
  const char *id = both[_i / 3 % 2];
  const int64_t shape[] = {2, 3, 301}, hidden[] = {301};
  owned *x = make_filled(dtype, 3, shape, 7, 1), *residual = make_filled(dtype, 3, shape, 5, 2);
  owned *weight = make_filled(weights, 1, hidden, 0, 3), *bias = make_filled(weights, 1, hidden, 0, 4);
  owned *sum = make(dtype, 3, shape, 3), *from_one = make(weights, 1, hidden, 0), *expected = make(dtype, 3, shape, 0);
  fl_value values[] = {value_of(x),    value_of(residual), value_of(weight),  value_of(bias),
                       fl_float(1e-5), value_of(x),        value_of(residual)};
  for (int64_t i = 0; i < count(&x->tensor); i++)
    set(&sum->tensor, element_offset(&sum->tensor, i), element(x, i) + element(residual, i));
  for (int64_t i = 0; i < 301; i++)
    set(&from_one->tensor, i, element(weight, i) + 1);
  run_layer(id, sum, from_one, bias, 1e-5, expected);
  check_call("nemotron_layer_norm", id, values, 7);
  check_close("nemotron_layer_norm", &x->tensor, &expected->tensor);
  check_close("add", &residual->tensor, &sum->tensor);
  UNMAKE(x, residual, weight, bias, sum, from_one, expected);
}
END_TEST

START_TEST(nemotrons_norm_without_a_residual_leaves_x_alone) {
  DLDataType dtype = floats[_i % 3];
  const int64_t shape[] = {5, 40}, hidden[] = {40};
  owned *x = make_filled(dtype, 2, shape, 7, 1), *before = make_filled(dtype, 2, shape, 0, 1);
  owned *weight = make_filled(dtype, 1, hidden, 0, 3), *out = make(dtype, 2, shape, 1),
        *expected = make(dtype, 2, shape, 0);
  fl_value values[] = {value_of(x),    fl_none(),     value_of(weight), value_of(weight),
                       fl_float(1e-5), value_of(out), fl_none()};
  check_call("nemotron_layer_norm", both[_i / 3], values, 7);
  check_same_elements(&before->tensor, x);
  for (int64_t i = 0; i < 40; i++)
    set(&before->tensor, i, element(weight, i) + 1);
  owned *from_one = make(dtype, 1, hidden, 0);
  memcpy(from_one->tensor.data, before->tensor.data, 40 * dtype.bits / 8);
  run_layer(both[_i / 3], x, from_one, weight, 1e-5, expected);
  check_close("nemotron_layer_norm", &out->tensor, &expected->tensor);
  UNMAKE(x, before, weight, out, expected, from_one);
}
END_TEST

START_TEST(O2_norms_of_no_tokens_succeed_and_write_nothing) {
  const int64_t shape[] = {3, 0, 8}, hidden[] = {8};
  const formula f = {"swish", 8, true, false, true, 1e-5};
  owned *x = make(float16, 3, shape, 0), *weight = make_filled(float16, 1, hidden, 0, 1);
  run_gemma(both[_i], x, x, weight, x, x);
  run_gated(both[_i], x, x, weight, &f, x);
  run_mixer2(both[_i], x, x, weight, &f, x);
  run_layer(both[_i], x, weight, weight, 1e-5, x);
  UNMAKE(x, weight);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- bad calls */

/* As a caller without argument checks may call it: a row of such a weight would be read as one of another type. */
START_TEST(norms_refuse_a_weight_of_another_type_than_their_kernels_have) {
  owned *x = make(bfloat16, SHAPE(2, 8), 0), *weight = make(float16, SHAPE(8), 0),
        *out = make(bfloat16, SHAPE(2, 8), 0);
  const fl_value a = value_of(x), w = value_of(weight), o = value_of(out), eps = fl_float(1e-5), none = fl_none();
  struct {
    const char *op;
    uint32_t n;
    fl_value values[8];
  } cases[] = {
      {"rms_norm", 7, {a, none, w, eps, none, o, none}},
      {"fused_add_rms_norm", 7, {a, a, w, eps, none, o, o}},
      {"gemma_rms_norm", 6, {a, none, w, eps, o, none}},
      {"rms_norm_gated", 8, {a, none, w, eps, none, fl_bool(false), fl_string("silu"), o}},
      {"mixer2_gated_rms_norm", 7, {a, a, w, eps, fl_int(1), fl_bool(true), o}},
      {"layer_norm", 5, {a, w, none, eps, o}},
      {"nemotron_layer_norm", 7, {a, none, w, w, eps, o, none}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ck_assert_int_eq(call_impl(cases[i].op, both[_i], cases[i].values, cases[i].n), FL_ENOTSUP);
    ck_assert_ptr_nonnull(strstr(message, "a weight x's or float32"));
  }
  UNMAKE(x, weight, out);
}
END_TEST

START_TEST(O6_bad_arguments_of_norms_are_refused_with_a_reason) {
  const int64_t rows[] = {2, 8}, others[] = {3, 8}, hidden[] = {8}, less[] = {4};
  owned *x_ = make(float32, 2, rows, 0), *other_ = make(float32, 2, others, 0), *half_ = make(float16, 2, rows, 0);
  owned *weight_ = make(float32, 1, hidden, 0), *short_ = make(float32, 1, less, 0), *out_ = make(float32, 2, rows, 0);
  owned *brain_ = make(bfloat16, 1, hidden, 0), *thin_ = make(float16, 1, hidden, 0);
  const fl_value x = value_of(x_), other = value_of(other_), half = value_of(half_), weight = value_of(weight_);
  const fl_value small = value_of(short_), out = value_of(out_), brain = value_of(brain_), none = fl_none();
  const fl_value thin = value_of(thin_);
  const fl_value eps = fl_float(1e-5), swish = fl_string("swish"), no = fl_bool(false), yes = fl_bool(true);
  const struct {
    const char *op, *expected;
    uint32_t n;
    fl_value values[8];
  } cases[] = {
      {"gemma_rms_norm",
       "argument 'residual': shape [3, 8], expected [2, 8] (the leading dimensions of 'x')",
       6,
       {x, other, weight, eps, out, out}},
      {"gemma_rms_norm", "argument 'weight': shape [4], expected [8] (H of 'x')", 6, {x, none, small, eps, out, none}},
      {"gemma_rms_norm",
       "argument 'weight': dtype bfloat16, expected float32 (that of 'x')",
       6,
       {x, none, brain, eps, out, none}},
      {"gemma_rms_norm",
       "argument 'epsilon': -1, expected a finite number, 0 or more",
       6,
       {x, none, weight, fl_float(-1), out, none}},
      {"gemma_rms_norm",
       "result 'residual_out': given, expected none, as argument 'residual'",
       6,
       {x, none, weight, eps, out, other}},
      {"layer_norm",
       "argument 'bias': dtype bfloat16, expected float32 (that of 'x')",
       5,
       {x, weight, brain, eps, out}},
      {"layer_norm",
       "argument 'bias': dtype float32, expected float16 (that of 'weight')",
       5,
       {half, thin, weight, eps, half}},
      {"layer_norm", "argument 'weight': shape [4], expected [8] (H of 'x')", 5, {x, small, none, eps, out}},
      {"layer_norm",
       "argument 'epsilon': -1, expected a finite number, 0 or more",
       5,
       {x, none, none, fl_float(-1), out}},
      {"rms_norm_gated",
       "argument 'z': dtype float16, expected float32 (that of 'x')",
       8,
       {x, half, weight, eps, none, no, swish, out}},
      {"rms_norm_gated",
       "argument 'group_size': 3, expected a divisor of 8 (the last dimension of 'x')",
       8,
       {x, none, weight, eps, fl_int(3), no, swish, out}},
      {"rms_norm_gated",
       "argument 'group_size': 0, expected a divisor of 8 (the last dimension of 'x')",
       8,
       {x, none, weight, eps, fl_int(0), no, swish, out}},
      {"rms_norm_gated",
       "argument 'activation': \"sigmod\", expected \"silu\", \"swish\" or \"sigmoid\"; did you mean 'sigmoid'?",
       8,
       {x, none, weight, eps, none, no, fl_string("sigmod"), out}},
      {"mixer2_gated_rms_norm",
       "argument 'weight': none, expected Tensor (use_rms_norm is true)",
       7,
       {x, x, none, eps, fl_int(1), yes, out}},
      {"mixer2_gated_rms_norm",
       "argument 'n_groups': 3, expected a divisor of 8 (the last dimension of 'x')",
       7,
       {x, x, weight, eps, fl_int(3), yes, out}},
      {"mixer2_gated_rms_norm",
       "argument 'n_groups': -2, expected a divisor of 8 (the last dimension of 'x')",
       7,
       {x, x, weight, eps, fl_int(-2), yes, out}},
      {"mixer2_gated_rms_norm",
       "argument 'gate': shape [3, 8], expected [2, 8] (the leading dimensions of 'x')",
       7,
       {x, other, weight, eps, fl_int(1), yes, out}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "%s: %s", cases[i].op, cases[i].expected);
    check_refused(cases[i].op, expected, cases[i].values, cases[i].n);
  }
  UNMAKE(x_, other_, half_, weight_, short_, out_, brain_, thin_);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, gemma_counts_its_weight_from_1, 0, 2);
  tcase_add_test(tests, O4_gemmas_reference_rounds_once);
  tcase_add_loop_test(tests, O1_O2_gemma_takes_strided_tensors_and_works_in_place, 0, 6);
  tcase_add_loop_test(tests, rms_norm_gated_computes_its_formula_in_every_mode, 0, 6);
  tcase_add_loop_test(tests, gated_norms_of_long_rows_compute_their_formula, 0, 2);
  tcase_add_loop_test(tests, mixer2_computes_its_formula_and_a_float32_weight_makes_a_float32_result, 0, 6);
  tcase_add_test(tests, O4_mixer2_rounds_before_the_weight);
  tcase_add_loop_test(tests, rms_norm_rounds_before_the_weight_where_that_shows, 0, 2);
  tcase_add_loop_test(tests, layer_norm_computes_its_formula, 0, 6);
  tcase_add_loop_test(tests, layer_norm_of_values_far_from_0_loses_nothing, 0, 2);
  tcase_add_loop_test(tests, layer_norm_of_a_row_that_begins_unlike_its_rest, 0, 2);
  tcase_add_loop_test(tests, layer_norm_with_a_large_weight_has_the_mean_in_all_digits, 0, 3);
  tcase_add_loop_test(tests, nemotrons_norm_counts_its_weight_from_1_and_adds_the_residual, 0, 12);
  tcase_add_loop_test(tests, nemotrons_norm_without_a_residual_leaves_x_alone, 0, 6);
  tcase_add_loop_test(tests, O2_norms_of_no_tokens_succeed_and_write_nothing, 0, 2);
  tcase_add_loop_test(tests, norms_refuse_a_weight_of_another_type_than_their_kernels_have, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_of_norms_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_normalisation", add_tests, 20);
}
