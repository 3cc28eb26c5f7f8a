/*
 * flhost/dtype.h against an oracle that is written from the definition of the formats: double arithmetic (ldexp) for
 * widening, search for the nearest of all representable values for narrowing.
 */
#include "tests/suite.h"

#include <flhost/dtype.h>
#include <math.h>
#include <stdbool.h>

/* A format by its parameters; `top` is the largest finite value's bits. */
typedef struct format {
  const char *name;
  int exponent_bits, mantissa_bits, bias;
  uint32_t top, nan;
  bool has_infinity;
  bool fnuz; /* the pattern of -0 is the NaN */
} format;

static const format bf16 = {"bf16", 8, 7, 127, 0x7f7f, 0x7fc0, true, false};
static const format f16 = {"f16", 5, 10, 15, 0x7bff, 0x7e00, true, false};
static const format e4m3fn = {"e4m3fn", 4, 3, 7, 0x7e, 0x7f, false, false};
static const format e5m2 = {"e5m2", 5, 2, 15, 0x7b, 0x7e, true, false};
static const format e4m3fnuz = {"e4m3fnuz", 4, 3, 8, 0x7f, 0x80, false, true};

/* The value of a bit pattern without its sign. */
static double value_of(const format *f, uint32_t magnitude) {
  uint32_t mantissa = magnitude & ((1u << f->mantissa_bits) - 1), exponent = magnitude >> f->mantissa_bits;
  if (magnitude > f->top)
    return f->has_infinity && magnitude == f->top + 1 ? INFINITY : NAN;
  if (!exponent)
    return ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
  return ldexp(mantissa + (1u << f->mantissa_bits), (int)exponent - f->bias - f->mantissa_bits);
}

/* Nearest representable magnitude to |value|, ties to the even pattern; one past the top stands for overflow. */
static uint32_t nearest_magnitude(const format *f, double value) {
  uint32_t low = 0, high = f->top;
  value = fabs(value);
  while (low < high) { /* the largest pattern whose value is <= |value| */
    uint32_t middle = (low + high + 1) / 2;
    if (value_of(f, middle) <= value)
      low = middle;
    else
      high = middle - 1;
  }
  double below = value_of(f, low);
  double above = low == f->top ? 2 * below - value_of(f, low - 1) : value_of(f, low + 1);
  if (value - below > above - value || (value - below == above - value && (low & 1)))
    low++;
  return low;
}

static uint32_t oracle(const format *f, float value) {
  uint32_t sign = signbit(value) ? 1u << (f->exponent_bits + f->mantissa_bits) : 0;
  if (isnan(value))
    return f->nan;
  if (!f->has_infinity && fabs((double)value) > value_of(f, f->top))
    return sign | f->top;
  uint32_t magnitude = isinf(value) ? f->top + 1 : nearest_magnitude(f, value);
  return f->fnuz && !magnitude ? 0 : sign | magnitude;
}

static uint32_t narrow(const format *f, float value) {
  return f == &bf16     ? fl_float_to_bf16(value)
         : f == &f16    ? fl_float_to_f16(value)
         : f == &e4m3fn ? fl_float_to_e4m3fn(value)
                        : fl_float_to_e4m3fnuz(value);
}

static float widen(const format *f, uint32_t bits) {
  return f == &bf16     ? fl_bf16_to_float((uint16_t)bits)
         : f == &f16    ? fl_f16_to_float((uint16_t)bits)
         : f == &e4m3fn ? fl_e4m3fn_to_float((uint8_t)bits)
         : f == &e5m2   ? fl_e5m2_to_float((uint8_t)bits)
                        : fl_e4m3fnuz_to_float((uint8_t)bits);
}

static void check_narrowing(const format *f, float value) {
  uint32_t got = narrow(f, value), expected = oracle(f, value);
  ck_each(got == expected, "%s of %a (0x%08x): got 0x%x, expected 0x%x", f->name, (double)value, fl_float_bits(value),
          got, expected);
}

static void check_every_pattern(const format *f) {
  uint32_t sign = 1u << (f->exponent_bits + f->mantissa_bits);
  for (uint32_t bits = 0; bits < 2 * sign; bits++) {
    float got = widen(f, bits);
    double expected = f->fnuz && bits == f->nan ? NAN : value_of(f, bits & (sign - 1));
    if (isnan(expected)) {
      ck_each(isnan(got), "%s 0x%x: got %a, expected NaN", f->name, bits, (double)got);
      continue;
    }
    ck_each(fabs((double)got) == expected && !signbit(got) == !(bits & sign), "%s 0x%x: got %a, expected %a", f->name,
            bits, (double)got, expected);
    if (f != &e5m2 && !isinf(got))
      ck_each(narrow(f, got) == bits, "%s 0x%x does not survive the way to float and back", f->name, bits);
  }
}

START_TEST(every_pattern_widens_exactly_and_comes_back) {
  check_every_pattern(&bf16);
  check_every_pattern(&f16);
  check_every_pattern(&e4m3fn);
  check_every_pattern(&e5m2);
  check_every_pattern(&e4m3fnuz);
}
END_TEST

/* Every representable value, every midpoint, and the floats next to them: where rounding decides. */
START_TEST(narrowing_rounds_to_nearest_even_at_every_boundary) {
  const format *const formats[] = {&bf16, &f16, &e4m3fn, &e4m3fnuz};
  const uint32_t step = rounds(100) == 1 ? 37 : 1;
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
    for (uint32_t magnitude = 0; magnitude <= formats[i]->top; magnitude += step) {
      double here = value_of(formats[i], magnitude);
      double next = magnitude < formats[i]->top ? value_of(formats[i], magnitude + 1)
                                                : 2 * here - value_of(formats[i], magnitude - 1);
      float points[] = {(float)here, (float)((here + next) / 2)};
      for (size_t p = 0; p < 2; p++)
        for (int sign = -1; sign <= 1; sign += 2) {
          check_narrowing(formats[i], (float)sign * points[p]);
          check_narrowing(formats[i], (float)sign * nextafterf(points[p], INFINITY));
          check_narrowing(formats[i], (float)sign * nextafterf(points[p], -INFINITY));
        }
    }
}
END_TEST

START_TEST(narrowing_agrees_with_the_oracle_on_sampled_floats) {
  uint32_t bits = 0x12345u;
  for (int i = 0; i < rounds(400000); i++) {
    float value = fl_float_from_bits(bits);
    check_narrowing(&bf16, value);
    check_narrowing(&f16, value);
    check_narrowing(&e4m3fn, value);
    check_narrowing(&e4m3fnuz, value);
    bits = bits * 1664525u + 1013904223u;
  }
}
END_TEST

/* The one of the 256 codes whose value is nearest, the even one of two; NaN where none is. */
static uint32_t search_codes(const double *values, double value) {
  uint32_t best = 256;
  for (uint32_t code = 0; code < 256; code++) {
    double distance = fabs(values[code] - value), least = best < 256 ? fabs(values[best] - value) : INFINITY;
    if (distance < least || (distance == least && !(code & 1)))
      best = code;
  }
  return best;
}

START_TEST(every_bfloat16_becomes_the_nearest_float8) {
  const format *const formats[] = {&e4m3fn, &e4m3fnuz};
  const uint32_t step = rounds(100) == 1 ? 37 : 1;
  for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
    const format *f = formats[i];
    double values[256];
    for (uint32_t code = 0; code < 256; code++)
      values[code] = f->fnuz && code == f->nan ? NAN : copysign(value_of(f, code & 0x7f), code & 0x80 ? -1 : 1);
    double largest = value_of(f, f->top);
    for (uint32_t bits = 0; bits < 0x10000; bits += step) {
      double value = fl_bf16_to_float((uint16_t)bits);
      uint32_t got = narrow(f, (float)value);
      if (isnan(value)) {
        ck_each(got == f->nan, "%s of a NaN is 0x%x", f->name, got);
        continue;
      }
      uint32_t expected = search_codes(values, fmin(fmax(value, -largest), largest));
      /* Both zeros are as near. */
      bool same = values[expected] ? got == expected : got == (f->fnuz || !signbit(value) ? 0u : 0x80u);
      ck_each(same, "%s of %a is 0x%x, and 0x%x is the nearest", f->name, value, got, expected);
    }
  }
}
END_TEST

START_TEST(special_values_have_their_documented_patterns) {
  ck_assert_uint_eq(fl_float_to_bf16(NAN), 0x7fc0);
  ck_assert_uint_eq(fl_float_to_bf16(-NAN), 0x7fc0);
  ck_assert_uint_eq(fl_float_to_bf16(fl_float_from_bits(0x7f800001)), 0x7fc0); /* would round to infinity */
  ck_assert_uint_eq(fl_float_to_bf16(fl_float_from_bits(0x7f7fffff)), 0x7f80);
  ck_assert_uint_eq(fl_float_to_bf16(-INFINITY), 0xff80);
  ck_assert_uint_eq(fl_float_to_bf16(-0.0f), 0x8000);
  ck_assert_uint_eq(fl_float_to_f16(NAN), 0x7e00);
  ck_assert_uint_eq(fl_float_to_f16(65519.99f), 0x7bff);
  ck_assert_uint_eq(fl_float_to_f16(65520.0f), 0x7c00);
  ck_assert_uint_eq(fl_float_to_f16(-INFINITY), 0xfc00);
  ck_assert_uint_eq(fl_float_to_f16(0x1p-25f), 0);
  ck_assert_uint_eq(fl_float_to_f16(0x1.8p-25f), 1);
  ck_assert_uint_eq(fl_float_to_e4m3fn(NAN), 0x7f);
  ck_assert_uint_eq(fl_float_to_e4m3fn(INFINITY), 0x7e);
  ck_assert_uint_eq(fl_float_to_e4m3fn(-1e30f), 0xfe);
  ck_assert_uint_eq(fl_float_to_e4m3fn(-0.0f), 0x80);
  ck_assert_uint_eq(fl_float_to_e4m3fn(0x1p-10f), 0);
  ck_assert_uint_eq(fl_float_to_e4m3fn(0x1.8p-10f), 1);
  ck_assert_uint_eq(fl_float_to_e4m3fnuz(-NAN), 0x80);
  ck_assert_uint_eq(fl_float_to_e4m3fnuz(-INFINITY), 0xff);
  ck_assert_uint_eq(fl_float_to_e4m3fnuz(-0.0f), 0);
  ck_assert_uint_eq(fl_float_to_e4m3fnuz(-0x1p-11f), 0);
  ck_assert_uint_eq(fl_float_to_e4m3fnuz(-0x1.8p-11f), 0x81);
}
END_TEST

#ifdef __FLT16_MAX__
/* The compiler's own binary16, where it has one. */
START_TEST(f16_agrees_with_the_compilers_float16) {
  uint32_t bits = 0x9876u;
  for (uint32_t i = 0; i < 0x10000; i++) {
    uint16_t pattern = (uint16_t)i;
    _Float16 half;
    memcpy(&half, &pattern, sizeof half);
    float expected = (float)half, got = fl_f16_to_float(pattern);
    ck_each(isnan(expected) ? isnan(got) : fl_float_bits(got) == fl_float_bits(expected), "0x%x is %a, expected %a", i,
            (double)got, (double)expected);
  }
  for (int i = 0; i < rounds(1000000); i++) {
    float value = fl_float_from_bits(bits);
    _Float16 half = (_Float16)value;
    uint16_t expected;
    memcpy(&expected, &half, sizeof expected);
    ck_each(isnan(value) || fl_float_to_f16(value) == expected, "f16 of %a is 0x%x, expected 0x%x", (double)value,
            fl_float_to_f16(value), expected);
    bits = bits * 1664525u + 1013904223u;
  }
}
END_TEST
#endif

static void add_tests(TCase *tests) {
  tcase_add_test(tests, every_pattern_widens_exactly_and_comes_back);
  tcase_add_test(tests, narrowing_rounds_to_nearest_even_at_every_boundary);
  tcase_add_test(tests, narrowing_agrees_with_the_oracle_on_sampled_floats);
  tcase_add_test(tests, every_bfloat16_becomes_the_nearest_float8);
  tcase_add_test(tests, special_values_have_their_documented_patterns);
#ifdef __FLT16_MAX__
  tcase_add_test(tests, f16_agrees_with_the_compilers_float16);
#endif
}

int main(void) {
  return run_suite("dtype", add_tests, 60);
}
