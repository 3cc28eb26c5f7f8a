/* Normalisations and gated activations that are quantised at once, and scaled_int8_quant: what of them neither golden
 * files nor verify show. */
#include "tests/kernels.h"

#include <flhost/dtype.h>
#include <math.h>

static const DLDataType int8 = {kDLInt, 8, 1};
static const float least_float8 = 4.359654e-06f, least_int8 = 0x1p-23f;
/* Short, two chunks and a bit, as much as is kept and a bit, more than twice that. */
static const int64_t sizes[] = {1, 70, 4096 + 9, 8192 + 40};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], ROWS = 3 };

static owned *one(DLDataType dtype, double element) {
  return make_constant(dtype, SHAPE(1), 0, element);
}

static fl_value codes_word(DLDataType dtype) {
  return fl_string(dtype.code == kDLInt ? "int8" : "float8_e4m3fn");
}

static void norm_dynamic(const char *id, owned *x, owned *weight, owned *bound, owned *residual, owned *q,
                         owned *scale) {
  fl_value values[] = {value_of(x),     value_of(weight),   fl_float(1e-6), codes_word(q->tensor.dtype),
                       value_of(bound), value_of(residual), value_of(q),    value_of(scale)};
  check_call("rms_norm_dynamic_per_token_quant", id, values, 8);
}

static void gate_blocks(const char *id, owned *x, int64_t group, owned *bound, owned *q, owned *scale) {
  fl_value values[] = {value_of(x),     fl_int(group), codes_word(q->tensor.dtype),
                       value_of(bound), value_of(q),   value_of(scale)};
  check_call("silu_and_mul_per_block_quant", id, values, 6);
}

static void int8_codes(const char *id, owned *x, owned *scale, owned *azp, bool symmetric, owned *q, owned *scale_out,
                       owned *azp_out) {
  fl_value values[] = {value_of(x), value_of(scale),     value_of(azp),    fl_bool(symmetric),
                       value_of(q), value_of(scale_out), value_of(azp_out)};
  check_call("scaled_int8_quant", id, values, 7);
}

static void quantise_tensor(const char *id, owned *x, owned *scale, owned *q, owned *scale_out) {
  static const int64_t tensor[] = {-1, -1};
  fl_value values[] = {value_of(x),    value_of(scale), fl_none(),   fl_ints(tensor, 2),
                       fl_bool(false), fl_int(0),       value_of(q), value_of(scale_out)};
  check_call("quant_fp8", id, values, 8);
}

static void check_same_bytes(const owned *a, const owned *b) {
  ck_assert_uint_eq(a->bytes, b->bytes);
  ck_assert_mem_eq(a->tensor.data, b->tensor.data, a->bytes);
}

/* ----------------------------------------------------------------------------------------------------- given scales */

START_TEST(a_norm_with_a_given_scale_is_quant_fp8_of_the_norm) {
  DLDataType dtype = floats[_i];
  for (int s = 0; s < N_SIZES; s++) {
    int64_t n = sizes[s];
    owned *x = make_filled(dtype, SHAPE(ROWS, n), 0, 1), *residual = make_filled(dtype, SHAPE(ROWS, n), 0, 2);
    owned *weight = make_filled(dtype, SHAPE(n), 0, 3), *scale = one(float32, 0.0123);
    owned *normed = make(dtype, SHAPE(ROWS, n), 0), *sum = make(dtype, SHAPE(ROWS, n), 0);
    owned *expected = make(float8, SHAPE(ROWS, n), 0), *scale_out = make(float32, SHAPE(1), 0);
    owned *q = make(float8, SHAPE(ROWS, n), 0), *sum_out = make(dtype, SHAPE(ROWS, n), 0);
    owned *by_default = make(float8, SHAPE(ROWS, n), 0);
    for (int with = 0; with < 2; with++) {
      fl_value parts[] = {
          value_of(x),      with ? value_of(residual) : fl_none(), value_of(weight), fl_float(1e-6), fl_none(),
          value_of(normed), with ? value_of(sum) : fl_none()};
      fl_value plain[] = {value_of(x), value_of(weight), value_of(scale), fl_float(1e-6), value_of(q)};
      fl_value added[] = {value_of(x),    value_of(residual), value_of(weight), value_of(scale),
                          fl_float(1e-6), value_of(q),        value_of(sum_out)};
      const char *op = with ? "fused_add_rms_norm_static_fp8_quant" : "rms_norm_static_fp8_quant";
      check_call("rms_norm", "reference.c", parts, 7);
      quantise_tensor("reference.c", normed, scale, expected, scale_out);
      check_call(op, "reference.c", with ? added : plain, with ? 7 : 5);
      check_same_bytes(q, expected);
      if (with)
        check_same_bytes(sum_out, sum);
      (with ? added : plain)[with ? 5 : 4] = value_of(by_default);
      check_call(op, "default.flagos", with ? added : plain, with ? 7 : 5);
      check_close(op, &by_default->tensor, &expected->tensor);
      if (with)
        check_same_bytes(sum_out, sum);
    }
    UNMAKE(x, residual, weight, scale, normed, sum, expected, scale_out, q, sum_out, by_default);
  }
}
END_TEST

START_TEST(a_gate_with_a_given_scale_is_quant_fp8_of_the_gate) {
  DLDataType dtype = floats[_i];
  owned *x = make_filled(dtype, SHAPE(ROWS, 154), 0, 1), *scale = one(float32, 0.017);
  owned *gated = make(dtype, SHAPE(ROWS, 77), 0), *expected = make(float8, SHAPE(ROWS, 77), 0);
  owned *q = make(float8, SHAPE(ROWS, 77), 0), *scale_out = make(float32, SHAPE(1), 0);
  fl_value parts[] = {value_of(x), value_of(gated)}, values[] = {value_of(x), value_of(scale), value_of(q)};
  check_call("silu_and_mul", "reference.c", parts, 2);
  quantise_tensor("reference.c", gated, scale, expected, scale_out);
  check_call("silu_and_mul_quant", "reference.c", values, 3);
  check_same_bytes(q, expected);
  check_call("silu_and_mul_quant", "default.flagos", values, 3);
  check_close("silu_and_mul_quant", &q->tensor, &expected->tensor);
  UNMAKE(x, scale, gated, expected, q, scale_out);
}
END_TEST

START_TEST(a_residual_may_be_overwritten_and_rows_may_lie_apart) {
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  owned *x = make_filled(dtype, SHAPE(2, ROWS, 77), 0, 1), *apart_x = make_filled(dtype, SHAPE(2, ROWS, 77), 5, 1);
  owned *residual = make_filled(dtype, SHAPE(2, ROWS, 77), 0, 2);
  owned *in_place = make_filled(dtype, SHAPE(2, ROWS, 77), 3, 2);
  owned *weight = make_filled(dtype, SHAPE(77), 0, 3), *scale = one(float32, 0.05);
  owned *q = make(float8, SHAPE(2, ROWS, 77), 0), *apart_q = make(float8, SHAPE(2, ROWS, 77), 7);
  owned *sum = make(dtype, SHAPE(2, ROWS, 77), 0);
  fl_value plain[] = {value_of(x),    value_of(residual), value_of(weight), value_of(scale),
                      fl_float(1e-6), value_of(q),        value_of(sum)};
  fl_value apart[] = {value_of(apart_x), value_of(in_place), value_of(weight),  value_of(scale),
                      fl_float(1e-6),    value_of(apart_q),  value_of(in_place)};
  check_call("fused_add_rms_norm_static_fp8_quant", id, plain, 7);
  check_call("fused_add_rms_norm_static_fp8_quant", id, apart, 7);
  check_same_elements(&q->tensor, apart_q);
  check_same_elements(&sum->tensor, in_place);
  UNMAKE(x, apart_x, residual, in_place, weight, scale, q, apart_q, sum);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- computed scales */

/* Scales of float32 rows to a few units in the last place: the op's tolerance is that of bfloat16. */
START_TEST(scales_of_tokens_are_those_of_the_reference_at_every_size) {
  DLDataType dtype = floats[_i % 3], codes = _i < 3 ? float8 : int8;
  for (int s = 0; s < N_SIZES; s++) {
    int64_t n = sizes[s];
    owned *x = make_filled(dtype, SHAPE(ROWS, n), 0, 1), *weight = make_filled(dtype, SHAPE(n), 0, 3);
    owned *q[2], *scale[2], *residual[2];
    for (int with = 0; with < 2; with++) {
      for (int i = 0; i < 2; i++) {
        q[i] = make(codes, SHAPE(ROWS, n), 0);
        scale[i] = make(float32, SHAPE(ROWS, 1), 0);
        residual[i] = with ? make_filled(dtype, SHAPE(ROWS, n), 0, 2) : NULL;
        norm_dynamic(both[i], x, weight, NULL, residual[i], q[i], scale[i]);
      }
      check_close("rms_norm_dynamic_per_token_quant", &q[1]->tensor, &q[0]->tensor);
      check_close("rms_norm_dynamic_per_token_quant", &scale[1]->tensor, &scale[0]->tensor);
      for (int i = 0; i < ROWS && dtype.bits == 32; i++)
        ck_assert_double_eq_tol(element(scale[1], i) / element(scale[0], i), 1, 2e-6);
      if (with)
        check_same_bytes(residual[1], residual[0]);
      for (int i = 0; i < 2; i++) {
        UNMAKE(q[i], scale[i]);
        unmake(residual[i]);
      }
    }
    UNMAKE(x, weight);
  }
}
END_TEST

/* In float32 a norm of [3, 4] is [3, 4] / sqrt(12.5): its scale, and the codes from there. */
START_TEST(a_token_has_the_scale_of_its_largest_normed_value) {
  owned *x = make(float32, SHAPE(1, 2), 0), *weight = make_constant(float32, SHAPE(2), 0, 1);
  owned *q = make(int8, SHAPE(1, 2), 0), *scale = make(float32, SHAPE(1, 1), 0);
  set(&x->tensor, 0, 3);
  set(&x->tensor, 1, -4);
  norm_dynamic(both[_i], x, weight, NULL, NULL, q, scale);
  ck_assert_double_eq_tol(element(scale, 0), 4 / sqrt(12.5) / 127, 1e-8);
  ck_assert_double_eq(element(q, 0), 95); /* 127 * 3 / 4 */
  ck_assert_double_eq(element(q, 1), -127);
  UNMAKE(x, weight, q, scale);
}
END_TEST

START_TEST(rows_of_zeros_have_the_least_scale_and_codes_of_zero) {
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  owned *x = make_constant(dtype, SHAPE(2, 80), 0, 0), *weight = make_filled(dtype, SHAPE(80), 0, 3);
  for (int i = 0; i < 2; i++) {
    owned *q = make(i ? int8 : float8, SHAPE(2, 80), 0), *scale = make(float32, SHAPE(2, 1), 0);
    owned *gated = make(i ? int8 : float8, SHAPE(2, 40), 0), *scales = make(float32, SHAPE(2, 5), 0);
    norm_dynamic(id, x, weight, NULL, NULL, q, scale);
    gate_blocks(id, x, 8, NULL, gated, scales);
    float least = i ? least_int8 : least_float8;
    for (int64_t e = 0; e < 160; e++)
      ck_each(element(q, e) == 0, "code %g of a norm", element(q, e));
    for (int64_t e = 0; e < 80; e++)
      ck_each(element(gated, e) == 0, "code %g of a gate", element(gated, e));
    for (int64_t e = 0; e < 2; e++)
      ck_each((float)element(scale, e) == least, "scale %g of a norm", element(scale, e));
    for (int64_t e = 0; e < 10; e++)
      ck_each((float)element(scales, e) == least, "scale %g of a gate", element(scales, e));
    UNMAKE(q, scale, gated, scales);
  }
  UNMAKE(x, weight);
}
END_TEST

/* silu(20) * u is 20 u to float32's last bit or so. */
START_TEST(an_upper_bound_is_that_of_a_tokens_magnitude_and_of_a_blocks_scale) {
  owned *x = make_constant(float32, SHAPE(1, 8), 0, 20), *weight = make_constant(float32, SHAPE(8), 0, 3);
  owned *bound = one(float32, 0.5), *q = make(float8, SHAPE(1, 8), 0), *scale = make(float32, SHAPE(1, 1), 0);
  owned *gated = make(float8, SHAPE(1, 4), 0), *scales = make(float32, SHAPE(1, 2), 0);
  norm_dynamic(both[_i], x, weight, bound, NULL, q, scale); /* 3 everywhere */
  gate_blocks(both[_i], x, 2, bound, gated, scales);        /* 400 everywhere: a scale of 0.89 */
  ck_assert_float_eq((float)element(scale, 0), 0.5f / 448);
  ck_assert_double_eq(element(q, 7), 448);
  ck_assert_float_eq((float)element(scales, 1), 0.5f);
  ck_assert_double_eq(element(gated, 3), 448);
  set(&bound->tensor, 0, 1);
  gate_blocks(both[_i], x, 2, bound, gated, scales);
  ck_assert_double_eq_tol(element(scales, 1), 400.0 / 448, 1e-6);
  UNMAKE(x, weight, bound, q, scale, gated, scales);
}
END_TEST

START_TEST(NaN_spreads_over_what_shares_its_scale_and_no_further) {
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  owned *x = make_filled(dtype, SHAPE(ROWS, 80), 0, 1), *weight = make_constant(dtype, SHAPE(80), 0, 1);
  set(&x->tensor, 80 + 77, (double)NAN); /* in the second row the last but two: of the gate a factor */
  for (int i = 0; i < 2; i++) {
    owned *q = make(i ? int8 : float8, SHAPE(ROWS, 80), 0), *scale = make(float32, SHAPE(ROWS, 1), 0);
    owned *gated = make(i ? int8 : float8, SHAPE(ROWS, 40), 0), *scales = make(float32, SHAPE(ROWS, 5), 0);
    norm_dynamic(id, x, weight, NULL, NULL, q, scale);
    gate_blocks(id, x, 8, NULL, gated, scales);
    for (int64_t e = 0; e < (int64_t)ROWS * 80; e++)
      ck_each(e / 80 != 1 ? !isnan(element(q, e))
              : i         ? element(q, e) == 0
                          : isnan(element(q, e)),
              "code %g of row %d of a norm", element(q, e), (int)e / 80);
    for (int64_t e = 0; e < (int64_t)ROWS * 40; e++)
      ck_each(e / 8 != 9 ? !isnan(element(gated, e))
              : i        ? element(gated, e) == 0
                         : isnan(element(gated, e)),
              "code %g of block %d of a gate", element(gated, e), (int)e / 8);
    for (int64_t e = 0; e < ROWS; e++)
      ck_each(isnan(element(scale, e)) == (e == 1), "scale %g of a norm", element(scale, e));
    for (int64_t e = 0; e < (int64_t)ROWS * 5; e++)
      ck_each(isnan(element(scales, e)) == (e == 9), "scale %g of a gate", element(scales, e));
    UNMAKE(q, scale, gated, scales);
  }
  UNMAKE(x, weight);
}
END_TEST

/* Groups that are no chunks, that end where nothing is kept any more, and one for the row. */
START_TEST(blocks_of_any_size_have_scales_of_their_own) {
  static const int64_t groups[] = {1, 3, 32, 100, 4100, 8200};
  DLDataType dtype = floats[_i % 3], codes = _i < 3 ? float8 : int8;
  for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
    int64_t group = groups[g], d = group < 100 ? 96 : group < 4000 ? 300 : 8200;
    owned *x = make_filled(dtype, SHAPE(2, 2 * d), 0, 5), *q[2], *scale[2];
    for (int i = 0; i < 2; i++) {
      q[i] = make(codes, SHAPE(2, d), 0);
      scale[i] = make(float32, SHAPE(2, d / group), 0);
      gate_blocks(both[i], x, group, NULL, q[i], scale[i]);
    }
    check_close("silu_and_mul_per_block_quant", &scale[1]->tensor, &scale[0]->tensor);
    check_close("silu_and_mul_per_block_quant", &q[1]->tensor, &q[0]->tensor);
    for (int64_t e = 0; e < 2 * d / group; e++) { /* the largest code is that of its group */
      double most = 0;
      for (int64_t k = e * group; k < (e + 1) * group; k++)
        most = fmax(most, fabs(element(q[1], k)));
      double scaled_up = (codes.code == kDLInt ? 127 : 448);
      ck_each(most == scaled_up, "largest code %g of a group", most);
    }
    UNMAKE(x, q[0], q[1], scale[0], scale[1]);
  }
}
END_TEST

START_TEST(O2_no_rows_succeed) {
  const char *id = both[_i];
  owned *x = make(float32, SHAPE(0, 8), 0), *weight = make_constant(float32, SHAPE(8), 0, 1);
  owned *q = make(float8, SHAPE(0, 8), 0), *scale = make(float32, SHAPE(0, 1), 0), *code = make(int8, SHAPE(0, 8), 0);
  owned *half = make(float8, SHAPE(0, 4), 0), *scales = make(float32, SHAPE(0, 2), 0),
        *azp = make(int32, SHAPE(0, 1), 0);
  norm_dynamic(id, x, weight, NULL, NULL, q, scale);
  gate_blocks(id, x, 2, NULL, half, scales);
  int8_codes(id, x, NULL, NULL, true, code, scale, NULL);
  int8_codes(id, x, NULL, NULL, false, code, scale, azp);
  UNMAKE(x, weight, q, scale, code, half, scales, azp);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ scaled_int8_quant */

static const double awkward[] = {0, 1, -3, 127.5, 126.5, NAN, INFINITY, -INFINITY, 1e30, -1e30, 1e-30, 0.5, -0.5, 2.5};
enum { N_AWKWARD = sizeof awkward / sizeof awkward[0] };

/* What all kinds of calls make of x, with both implementations. */
static void check_same_codes(owned *x, int64_t rows, int64_t n) {
  for (int kind = 0; kind < 6; kind++) { /* computed: symmetric or not; given: without azp, with three of them */
    static const double azps[] = {0, 0, 0, 17, 2147483647.0, -2147483648.0};
    bool given = kind >= 2, symmetric = kind == 0 || kind == 2;
    owned *q[2], *scale_out[2], *azp_out[2];
    owned *scale = given ? one(float32, 0.037) : NULL, *azp = given && !symmetric ? one(int32, azps[kind]) : NULL;
    for (int i = 0; i < 2; i++) {
      q[i] = make(int8, SHAPE(rows, n), 0);
      scale_out[i] = given ? make(float32, SHAPE(1), 0) : make(float32, SHAPE(rows, 1), 0);
      azp_out[i] = symmetric ? NULL : given ? make(int32, SHAPE(1), 0) : make(int32, SHAPE(rows, 1), 0);
      int8_codes(both[i], x, scale, azp, symmetric, q[i], scale_out[i], azp_out[i]);
    }
    for (int64_t e = 0; e < rows * n; e++)
      ck_each(element(q[1], e) == element(q[0], e), "kind %d, element %d of %d: %g, expected %g", kind, (int)(e % n),
              (int)n, element(q[1], e), element(q[0], e));
    for (int64_t e = 0; e < count(&scale_out[0]->tensor); e++) {
      double a = element(scale_out[1], e), b = element(scale_out[0], e);
      ck_each(a == b || (isnan(a) && isnan(b)), "kind %d, scale of row %d: %g, expected %g", kind, (int)e, a, b);
    }
    if (!symmetric)
      check_same_bytes(azp_out[1], azp_out[0]);
    for (int i = 0; i < 2; i++) {
      UNMAKE(q[i], scale_out[i]);
      unmake(azp_out[i]);
    }
    unmake(scale);
    unmake(azp);
  }
}

START_TEST(O4_int8_codes_are_the_references_bit_for_bit) {
  DLDataType dtype = floats[_i];
  for (int s = 0; s < N_SIZES - 1; s++) {
    owned *x = make_filled(dtype, SHAPE(ROWS, sizes[s]), 0, 9);
    check_same_codes(x, ROWS, sizes[s]);
    unmake(x);
  }
  owned *x = make_filled(dtype, SHAPE(N_AWKWARD + 1, 70), 0, 9); /* one in each row, and all in the last */
  for (int i = 0; i < N_AWKWARD; i++) {
    set(&x->tensor, i * 70 + 69 - i, awkward[i]);
    set(&x->tensor, N_AWKWARD * 70 + i, awkward[i]);
  }
  check_same_codes(x, N_AWKWARD + 1, 70);
  unmake(x);
}
END_TEST

START_TEST(int8_ties_go_to_even_before_azp_is_added) {
  static const double elements[] = {0.5, 1.5, -0.5, -1.5, 2.5, 1000, -1000, NAN};
  static const double plain[] = {0, 2, 0, -2, 2, 127, -128, 0}, shifted[] = {3, 5, 3, 1, 5, 127, -128, 3};
  owned *x = make(float32, SHAPE(1, 8), 0), *q = make(int8, SHAPE(1, 8), 0), *scale = one(float32, 1);
  owned *scale_out = make(float32, SHAPE(1), 0), *azp = one(int32, 3), *azp_out = make(int32, SHAPE(1), 0);
  for (int i = 0; i < 8; i++)
    set(&x->tensor, i, elements[i]);
  int8_codes(both[_i], x, scale, NULL, true, q, scale_out, NULL);
  for (int i = 0; i < 8; i++)
    ck_assert_double_eq(element(q, i), plain[i]);
  int8_codes(both[_i], x, scale, azp, false, q, scale_out, azp_out);
  for (int i = 0; i < 8; i++)
    ck_assert_double_eq(element(q, i), shifted[i]);
  ck_assert_double_eq(element(scale_out, 0), 1);
  ck_assert_double_eq(element(azp_out, 0), 3);
  UNMAKE(x, q, scale, scale_out, azp, azp_out);
}
END_TEST

/* Rows: zeros; the same everywhere; from -1 to 254; NaN. */
START_TEST(int8_rows_without_an_extent_have_scale_azp_and_codes_of_zero) {
  const char *id = both[_i];
  owned *x = make_constant(float32, SHAPE(4, 40), 0, 0), *q = make(int8, SHAPE(4, 40), 0);
  owned *scale = make(float32, SHAPE(4, 1), 0), *azp = make(int32, SHAPE(4, 1), 0);
  for (int i = 0; i < 40; i++) {
    set(&x->tensor, 40 + i, 7);
    set(&x->tensor, 80 + i, i == 39 ? 254 : i - 1);
  }
  set(&x->tensor, 120 + 38, (double)NAN);
  int8_codes(id, x, NULL, NULL, false, q, scale, azp);
  static const double scales[] = {0, 0, 1}, azps[] = {0, 0, -127, 0};
  for (int i = 0; i < 4; i++) {
    ck_assert(i == 3 ? isnan(element(scale, i)) : element(scale, i) == scales[i]);
    ck_assert_double_eq(element(azp, i), azps[i]);
  }
  for (int64_t e = 0; e < 160; e++) {
    double expected = e / 40 != 2 ? 0 : element(x, e) - 127;
    ck_each(element(q, e) == expected, "row %d: code %g, expected %g", (int)e / 40, element(q, e), expected);
  }
  int8_codes(id, x, NULL, NULL, true, q, scale, NULL);
  ck_assert_double_eq(element(scale, 0), 0);
  ck_assert_double_eq(element(q, 0), 0);
  ck_assert_double_eq(element(q, 40), 127);
  ck_assert(isnan(element(scale, 3)));
  ck_assert_double_eq(element(q, 120), 0);
  UNMAKE(x, q, scale, azp);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- refusals */

START_TEST(O6_bad_arguments_are_refused_with_a_reason) {
  owned *x_ = make(bfloat16, SHAPE(2, 8), 0), *weight_ = make(bfloat16, SHAPE(8), 0),
        *q_ = make(float8, SHAPE(2, 8), 0);
  owned *scale_ = one(float32, 1), *two_ = make(float32, SHAPE(2), 0), *rows_ = make(float32, SHAPE(2, 1), 0);
  owned *code_ = make(int8, SHAPE(2, 8), 0), *half_ = make(int8, SHAPE(2, 4), 0), *azp_ = one(int32, 1);
  owned *blocks_ = make(float32, SHAPE(2, 2), 0), *wide_ = make(float32, SHAPE(8), 0);
  fl_value x = value_of(x_), weight = value_of(weight_), q = value_of(q_), scale = value_of(scale_),
           two = value_of(two_);
  fl_value rows = value_of(rows_), code = value_of(code_), half = value_of(half_), azp = value_of(azp_),
           none = fl_none();
  fl_value blocks = value_of(blocks_), wide = value_of(wide_), eps = fl_float(1e-6), to8 = fl_string("int8");
  fl_value yes = fl_bool(true), no = fl_bool(false);
  const struct {
    const char *op, *expected;
    uint32_t n;
    fl_value values[8];
  } cases[] = {
      {"rms_norm_static_fp8_quant",
       "argument 'epsilon': -1, expected a finite number, 0 or more",
       5,
       {x, weight, scale, fl_float(-1), q}},
      {"rms_norm_static_fp8_quant", "argument 'scale': shape [2], expected [1] or []", 5, {x, weight, two, eps, q}},
      {"rms_norm_static_fp8_quant",
       "argument 'weight': dtype float32, expected bfloat16 (that of 'x')",
       5,
       {x, wide, scale, eps, q}},
      {"fused_add_rms_norm_static_fp8_quant",
       "argument 'epsilon': nan, expected a finite number, 0 or more",
       7,
       {x, x, weight, scale, fl_float((double)NAN), q, x}},
      {"rms_norm_dynamic_per_token_quant",
       "argument 'quant_dtype': \"int4\", expected \"float8_e4m3fn\" or \"int8\"; did you mean 'int8'?",
       8,
       {x, weight, eps, fl_string("int4"), none, none, q, rows}},
      {"rms_norm_dynamic_per_token_quant",
       "argument 'scale_ub': given, expected none (scales have an upper bound where 'quant_dtype' is "
       "\"float8_e4m3fn\", not \"int8\")",
       8,
       {x, weight, eps, to8, scale, none, code, rows}},
      {"rms_norm_dynamic_per_token_quant",
       "argument 'epsilon': inf, expected a finite number, 0 or more",
       8,
       {x, weight, fl_float((double)INFINITY), to8, none, none, code, rows}},
      {"rms_norm_dynamic_per_token_quant",
       "result 'q': dtype float8_e4m3fn, expected int8",
       8,
       {x, weight, eps, to8, none, none, q, rows}},
      {"silu_and_mul_per_block_quant",
       "argument 'group_size': 3, expected a divisor of 4 (half of the last dimension of 'x')",
       6,
       {x, fl_int(3), to8, none, half, blocks}},
      {"silu_and_mul_per_block_quant",
       "argument 'group_size': 0, expected a divisor of 4 (half of the last dimension of 'x')",
       6,
       {x, fl_int(0), to8, none, half, blocks}},
      {"silu_and_mul_per_block_quant",
       "argument 'scale_ub': given, expected none (scales have an upper bound where 'quant_dtype' is "
       "\"float8_e4m3fn\", not \"int8\")",
       6,
       {x, fl_int(2), to8, scale, half, blocks}},
      {"scaled_int8_quant",
       "argument 'azp': given, expected none (it belongs to a given 'scale')",
       7,
       {x, none, azp, no, code, rows, rows}},
      {"scaled_int8_quant",
       "argument 'symmetric': true, expected false ('scale' is given with 'azp')",
       7,
       {x, scale, azp, yes, code, scale, azp}},
      {"scaled_int8_quant",
       "argument 'symmetric': false, expected true ('scale' is given without 'azp')",
       7,
       {x, scale, none, no, code, scale, none}},
      {"scaled_int8_quant", "result 'azp_out': none, expected Tensor", 7, {x, none, none, no, code, rows, none}},
      {"scaled_int8_quant", "result 'azp_out': given, expected none", 7, {x, none, none, yes, code, rows, azp}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char expected[512];
    snprintf(expected, sizeof expected, "%s: %s", cases[i].op, cases[i].expected);
    check_refused(cases[i].op, expected, cases[i].values, cases[i].n);
  }
  UNMAKE(x_, weight_, q_, scale_, two_, rows_, code_, half_, azp_, blocks_, wide_);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, a_norm_with_a_given_scale_is_quant_fp8_of_the_norm, 0, 3);
  tcase_add_loop_test(tests, a_gate_with_a_given_scale_is_quant_fp8_of_the_gate, 0, 3);
  tcase_add_loop_test(tests, a_residual_may_be_overwritten_and_rows_may_lie_apart, 0, 6);
  tcase_add_loop_test(tests, scales_of_tokens_are_those_of_the_reference_at_every_size, 0, 6);
  tcase_add_loop_test(tests, a_token_has_the_scale_of_its_largest_normed_value, 0, 2);
  tcase_add_loop_test(tests, rows_of_zeros_have_the_least_scale_and_codes_of_zero, 0, 6);
  tcase_add_loop_test(tests, an_upper_bound_is_that_of_a_tokens_magnitude_and_of_a_blocks_scale, 0, 2);
  tcase_add_loop_test(tests, NaN_spreads_over_what_shares_its_scale_and_no_further, 0, 6);
  tcase_add_loop_test(tests, blocks_of_any_size_have_scales_of_their_own, 0, 6);
  tcase_add_loop_test(tests, O2_no_rows_succeed, 0, 2);
  tcase_add_loop_test(tests, O4_int8_codes_are_the_references_bit_for_bit, 0, 3);
  tcase_add_loop_test(tests, int8_ties_go_to_even_before_azp_is_added, 0, 2);
  tcase_add_loop_test(tests, int8_rows_without_an_extent_have_scale_azp_and_codes_of_zero, 0, 2);
  tcase_add_test(tests, O6_bad_arguments_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_fused_quantisation", add_tests, 20);
}
