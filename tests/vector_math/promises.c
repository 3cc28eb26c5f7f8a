/* What the vectorised functions and conversions promise: see promises.h. */
#include "tests/vector_math/promises.h"

#include <flhost/dtype.h>
#include <math.h>
#include <stdio.h>

/* ------------------------------------------------------------------------------------------------------- functions */

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static double silu(double x) {
  return x / (1 + exp(-x));
}

static double softplus(double x) {
  return x > 700 ? x : log1p(exp(x));
}

static double gelu(double x) {
  return x * 0.5 * erfc(-x * M_SQRT1_2);
}

static double gelu_tanh(double x) {
  return x / (1 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/* What is promised: `ulps`, or an error of `least`, whichever is more; for arguments from `from` to `to`. */
static const struct {
  const char *name;
  double (*exact)(double);
  double ulps, least, from, to;
} functions[VECTOR_FUNCTIONS] = {
    {"exp", exp, 2, 0x1p-125, -INFINITY, INFINITY},     {"exp_to_one", exp, 2, 0x1p-125, -INFINITY, 0},
    {"exp_weight", exp, 4, 6e-8, -INFINITY, 0},         {"expm1", expm1, 2, 0, -INFINITY, 0},
    {"tanh", tanh, 3, 0, -INFINITY, INFINITY},          {"sigmoid", sigmoid, 3, 0x1p-125, -INFINITY, INFINITY},
    {"silu", silu, 3, 0x1p-118, -INFINITY, 1e30},       {"gelu", gelu, 6, 1e-6, -INFINITY, 1e30},
    {"gelu_tanh", gelu_tanh, 6, 1e-6, -INFINITY, 1e30}, {"softplus", softplus, 3, 0x1p-125, -INFINITY, INFINITY},
};

static vector_worst worst[VECTOR_FUNCTIONS];

static double error_of(int f, float x, float result) {
  double exact = functions[f].exact(x);
  if (isnan(exact) || isnan(result))
    return isnan(exact) && isnan(result) ? 0 : INFINITY;
  if (isinf(result) && fabs(exact) > 3.4028235e38)
    return 0;
  double apart = fabs((double)result - exact);
  if (apart <= functions[f].least)
    return 0;
  int exponent;
  frexp(exact, &exponent);
  return apart / ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
}

static void check_values(const vector_function *vector_functions_of, const float *x, int n) {
  float kept[4096], y[4096];
  for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
    int m = 0;
    for (int i = 0; i < n; i++)
      if (isnan(x[i]) || (x[i] >= functions[f].from && x[i] <= functions[f].to))
        kept[m++] = x[i];
    vector_functions_of[f](kept, y, m);
    for (int i = 0; i < m; i++) {
      double error = error_of(f, kept[i], y[i]);
      if (error > worst[f].ulps) {
        worst[f].ulps = error;
        worst[f].at = kept[i];
      }
    }
  }
}

const vector_worst *vector_worst_errors(const vector_function of[VECTOR_FUNCTIONS], int64_t points) {
  float x[4096];
  for (int f = 0; f < VECTOR_FUNCTIONS; f++)
    worst[f] = (vector_worst){.name = functions[f].name, .allowed = functions[f].ulps};
  for (int first = 0; first < 0x10000; first += 4096) {
    for (int i = 0; i < 4096; i++)
      x[i] = fl_bf16_to_float((uint16_t)(first + i));
    check_values(of, x, 4096);
    for (int i = 0; i < 4096; i++)
      x[i] = fl_f16_to_float((uint16_t)(first + i));
    check_values(of, x, 4096);
  }
  uint32_t bits = 12345; /* steps of an odd number go through all */
  for (int64_t done = 0; done < points; done += 4096) {
    for (int i = 0; i < 4096; i++)
      x[i] = fl_float_from_bits(bits += 2654435761u);
    check_values(of, x, 4096);
  }
  return worst;
}

/* ----------------------------------------------------------------------------------------------------- conversions */

static const char *const formats[VECTOR_ROUNDINGS] = {"bfloat16", "float16"};
static char words[160];

static bool is_nan(int format, uint16_t bits) {
  return isnan(format ? fl_f16_to_float(bits) : fl_bf16_to_float(bits));
}

/* NaN stays one; a conversion to bfloat16 need not see others than bfloat16's own. */
static bool is_rounded(int format, float x, uint16_t result, bool flushes) {
  uint16_t expected = format ? fl_float_to_f16(x) : fl_float_to_bf16(x);
  if (!format && flushes && fpclassify(x) == FP_SUBNORMAL)
    expected = signbit(x) ? 0x8000u : 0;
  if (isnan(x) ? is_nan(format, result) || (!format && fl_float_bits(x) & 0xffffu) : result == expected)
    return true;
  snprintf(words, sizeof words, "%a is rounded to %s 0x%04x, expected 0x%04x", (double)x, formats[format], result,
           expected);
  return false;
}

const char *vector_wrong_rounding(const vector_rounding of[VECTOR_ROUNDINGS], bool flushes) {
  static const uint32_t lower[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff,
                                   0x8000, 0x8001, 0xa000, 0xb000, 0xd000, 0xefff, 0xffff};
  float x[4096];
  uint16_t rounded[4096];
  for (uint32_t first = 0; first < 0x10000; first += 4096)
    for (size_t l = 0; l < sizeof lower / sizeof lower[0]; l++) {
      for (uint32_t i = 0; i < 4096; i++)
        x[i] = fl_float_from_bits((first + i) << 16 | lower[l]);
      for (int format = 0; format < VECTOR_ROUNDINGS; format++) {
        of[format](x, rounded, 4096);
        for (int i = 0; i < 4096; i++)
          if (!is_rounded(format, x[i], rounded[i], flushes))
            return words;
      }
    }
  return NULL;
}

const char *vector_wrong_widening(const vector_widening of[VECTOR_ROUNDINGS]) {
  uint16_t x[4096];
  float wide[4096];
  for (uint32_t first = 0; first < 0x10000; first += 4096) {
    for (uint32_t i = 0; i < 4096; i++)
      x[i] = (uint16_t)(first + i);
    for (int format = 0; format < VECTOR_ROUNDINGS; format++) {
      of[format](x, wide, 4096);
      for (int i = 0; i < 4096; i++) {
        float expected = format ? fl_f16_to_float(x[i]) : fl_bf16_to_float(x[i]);
        if (fl_float_bits(wide[i]) == fl_float_bits(expected) || (isnan(wide[i]) && isnan(expected)))
          continue;
        snprintf(words, sizeof words, "%s 0x%04x is %a as a float, expected %a", formats[format], x[i], (double)wide[i],
                 (double)expected);
        return words;
      }
    }
  }
  return NULL;
}
