/*
 * The elementary functions of the CPU plugin's vectorised kernels against libm in double, compiled as the plugin is for
 * each instruction set that this machine has: all bfloat16 and float16 values, and float32 values spread over all
 * bits. CHECK_MATH_POINTS says how many of these; `make check-math` takes a billion. And their conversions to and
 * from 16 bits. What is promised: vector_math/promises.c.
 */
#include "tests/suite.h"
#include "tests/vector_math/promises.h"

#include <dlfcn.h>
#include <unistd.h>

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

/* Where fewer instruction sets are made than there are (Makefile, check-clang). */
static bool is_left_out(int variant) {
  char path[512];
  snprintf(path, sizeof path, "%s/tests/vector_math/%s.so", build_dir(), variants[variant]);
  return access(path, F_OK) != 0;
}

START_TEST(vectorised_functions_keep_their_ulps) {
  const char *asked = getenv("CHECK_MATH_POINTS");
  if (!machine_has(_i) || is_left_out(_i)) {
    printf("skip: vectorised_functions_keep_their_ulps: no %s here\n", variants[_i]);
    return;
  }
  const vector_worst *worst =
      vector_worst_errors(symbol_of(variants[_i], "vector_functions"), asked ? (int64_t)strtod(asked, NULL) : 2000000);
  for (int f = 0; f < VECTOR_FUNCTIONS; f++) {
    if (asked)
      printf("%s %s: %.2f ulp, at %.9g\n", variants[_i], worst[f].name, worst[f].ulps, (double)worst[f].at);
    ck_assert_msg(worst[f].ulps <= worst[f].allowed, "%s, %s: %.2f ulp at %.9g, expected at most %g", variants[_i],
                  worst[f].name, worst[f].ulps, (double)worst[f].at, worst[f].allowed);
  }
}
END_TEST

START_TEST(every_instruction_set_converts_16_bits_alike) {
  if (!machine_has(_i) || is_left_out(_i)) {
    printf("skip: every_instruction_set_converts_16_bits_alike: no %s here\n", variants[_i]);
    return;
  }
  const char *wrong = vector_wrong_rounding(symbol_of(variants[_i], "vector_roundings"), _i == 3);
  ck_assert_msg(!wrong, "%s: %s", variants[_i], wrong);
  wrong = vector_wrong_widening(symbol_of(variants[_i], "vector_widenings"));
  ck_assert_msg(!wrong, "%s: %s", variants[_i], wrong);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, vectorised_functions_keep_their_ulps, 0, VARIANTS);
  tcase_add_loop_test(tests, every_instruction_set_converts_16_bits_alike, 0, VARIANTS);
}

int main(void) {
  return run_suite("cpu_math", add_tests, 36000);
}
