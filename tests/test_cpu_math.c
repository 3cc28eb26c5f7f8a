/*
 * The elementary functions of the CPU plugin's vectorised kernels against libm in double, compiled as the plugin is for
 * each instruction set that this machine has: all bfloat16 and float16 values, and float32 values spread over all
 * bits. CHECK_MATH_POINTS says how many of these; `make check-math` takes a billion. And how they round to 16 bits.
 */
#include "tests/suite.h"
#include "tests/vector_math/functions.h"

#include <dlfcn.h>
#include <flhost/dtype.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

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
    {"exp", exp, 2, 0x1p-125, -INFINITY, INFINITY},
    {"expm1", expm1, 2, 0, -INFINITY, 0},
    {"erfc", erfc, 65, 0x1p-120, 0, INFINITY},
    {"tanh", tanh, 3, 0, -INFINITY, INFINITY},
    {"sigmoid", sigmoid, 3, 0x1p-125, -INFINITY, INFINITY},
    {"silu", silu, 3, 0x1p-118, -INFINITY, 1e30},
    {"gelu", gelu, 240, 0x1p-115, -1e15, 1e15},
    {"gelu_tanh", gelu_tanh, 190, 0x1p-115, -1e12, 1e12},
    {"softplus", softplus, 3, 0x1p-125, -INFINITY, INFINITY},
};

/* The largest error, in ulps, of those that are above `least`. */
static double worst[VECTOR_FUNCTIONS];
static float worst_at[VECTOR_FUNCTIONS];

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

static void check(const vector_function *vector_functions_of, const float *x, int n) {
  float kept[4096], y[4096];
  for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
    int m = 0;
    for (int i = 0; i < n; i++)
      if (isnan(x[i]) || (x[i] >= functions[f].from && x[i] <= functions[f].to))
        kept[m++] = x[i];
    vector_functions_of[f](kept, y, m);
    for (int i = 0; i < m; i++) {
      double error = error_of(f, kept[i], y[i]);
      if (error > worst[f]) {
        worst[f] = error;
        worst_at[f] = kept[i];
      }
    }
  }
}

static const void *symbol_of(const char *variant, const char *symbol) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/vector_math/%s.so", build_dir(), variant);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  ck_assert_msg(library != NULL, "%s", library ? "" : dlerror());
  return dlsym(library, symbol);
}

static bool machine_has(int variant) {
#ifdef __x86_64__
  if (variant == 1)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (variant == 2)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (variant == 3)
    return machine_has(2) && __builtin_cpu_supports("avx512bf16");
#endif
  return variant == 0;
}

enum { VARIANTS = 4 };
static const char *const variants[VARIANTS] = {"baseline", "avx2", "avx512", "avx512_bf16"};

START_TEST(vectorised_functions_keep_their_ulps) {
  const char *asked = getenv("CHECK_MATH_POINTS");
  int64_t points = asked ? (int64_t)strtod(asked, NULL) : 2000000;
  float x[4096];
  if (!machine_has(_i)) {
    printf("skip: vectorised_functions_keep_their_ulps: no %s here\n", variants[_i]);
    return;
  }
  const vector_function *of = symbol_of(variants[_i], "vector_functions");
  memset(worst, 0, sizeof worst);
  for (int first = 0; first < 0x10000; first += 4096) {
    for (int i = 0; i < 4096; i++)
      x[i] = fl_bf16_to_float((uint16_t)(first + i));
    check(of, x, 4096);
    for (int i = 0; i < 4096; i++)
      x[i] = fl_f16_to_float((uint16_t)(first + i));
    check(of, x, 4096);
  }
  uint32_t bits = 12345; /* steps of an odd number go through all */
  for (int64_t done = 0; done < points; done += 4096) {
    for (int i = 0; i < 4096; i++)
      x[i] = fl_float_from_bits(bits += 2654435761u);
    check(of, x, 4096);
  }
  for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
    if (asked)
      printf("%s %s: %.2f ulp, at %.9g\n", variants[_i], functions[f].name, worst[f], (double)worst_at[f]);
    ck_assert_msg(worst[f] <= functions[f].ulps, "%s, %s: %.2f ulp at %.9g, expected at most %g", variants[_i],
                  functions[f].name, worst[f], (double)worst_at[f], functions[f].ulps);
  }
}
END_TEST

/* Every bit pattern's upper half with lower halves next to what decides: ties, carries, and both sides of them. */
START_TEST(every_instruction_set_rounds_to_16_bits_alike) {
  static const uint32_t lower[] = {0,      1,      0x0fff, 0x1000, 0x1001, 0x3000, 0x7fff,
                                   0x8000, 0x8001, 0xa000, 0xb000, 0xd000, 0xefff, 0xffff};
  float x[4096];
  uint16_t rounded[4096];
  if (!machine_has(_i)) {
    printf("skip: every_instruction_set_rounds_to_16_bits_alike: no %s here\n", variants[_i]);
    return;
  }
  const vector_rounding *roundings = symbol_of(variants[_i], "vector_roundings");
  for (uint32_t first = 0; first < 0x10000; first += 4096)
    for (size_t l = 0; l < sizeof lower / sizeof lower[0]; l++) {
      for (uint32_t i = 0; i < 4096; i++)
        x[i] = fl_float_from_bits((first + i) << 16 | lower[l]);
      roundings[0](x, rounded, 4096);
      for (int i = 0; i < 4096; i++) {
        /* The processor's own conversion makes zeros of denormals; cpu_narrow_bfloat16 is for no NaN but bfloat16's. */
        bool flushed = _i == 3 && !isnormal(x[i]) && isfinite(x[i]);
        uint16_t expected = flushed ? (uint16_t)(fl_float_bits(x[i]) >> 16 & 0x8000u) : fl_float_to_bf16(x[i]);
        if (!isnan(x[i]) || !lower[l])
          ck_assert_msg(isnan(x[i]) ? isnan(fl_bf16_to_float(rounded[i])) : rounded[i] == expected,
                        "%s: %a is rounded to bfloat16 0x%04x, expected 0x%04x", variants[_i], (double)x[i], rounded[i],
                        expected);
      }
      roundings[1](x, rounded, 4096);
      for (int i = 0; i < 4096; i++)
        ck_assert_msg(isnan(x[i]) ? isnan(fl_f16_to_float(rounded[i])) : rounded[i] == fl_float_to_f16(x[i]),
                      "%s: %a is rounded to float16 0x%04x, expected 0x%04x", variants[_i], (double)x[i], rounded[i],
                      fl_float_to_f16(x[i]));
    }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, vectorised_functions_keep_their_ulps, 0, VARIANTS);
  tcase_add_loop_test(tests, every_instruction_set_rounds_to_16_bits_alike, 0, VARIANTS);
}

int main(void) {
  return run_suite("cpu_math", add_tests, 36000);
}
