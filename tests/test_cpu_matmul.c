/* The products of the CPU backend with each instruction set that this machine has, not just the best: the file is
 * compiled in here, for its static functions. */
#include "plugins/cpu/flagos/block.c"
#include "plugins/cpu/flagos/matmul.c"
#include "tests/suite.h"

#include <math.h>

typedef struct named_machine {
  const char *name;
  machine functions;
  bool (*present)(void);
} named_machine;

static bool always(void) {
  return true;
}

#ifdef __x86_64__
static bool has_avx2(void) {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
  return __builtin_cpu_supports("avx512f");
}
#endif

static const named_machine machines[] = {
    {"base", {tile_base, dot_base}, always},
#ifdef __x86_64__
    {"avx2", {tile_avx2, dot_avx2}, has_avx2},
    {"avx512", {tile_avx512, dot_avx512}, has_avx512},
#endif
};
enum { N_MACHINES = sizeof machines / sizeof machines[0] };

/* Whole numbers from -3 to 3, whose sums are exact in any order. */
static float *make_numbers(int64_t n, uint32_t seed) {
  float *made = malloc((size_t)n * sizeof *made + 1);
  for (int64_t i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    made[i] = (float)(seed >> 16) - floorf((float)(seed >> 16) / 7) * 7 - 3;
  }
  return made;
}

static float expected(const float *a, const float *b, int64_t k, int64_t stride) {
  float sum = 0;
  for (int64_t i = 0; i < k; i++)
    sum += a[i] * b[i * stride];
  return sum;
}

static void check_product(const named_machine *with, int64_t m, int64_t n, int64_t k, bool b_is_k_by_n,
                          bool accumulate) {
  float *a = make_numbers(m * k, 1), *b = make_numbers(n * k, 2), *before = make_numbers(m * n, 3);
  float *out = make_numbers(m * n, 3), *bias = make_numbers(n, 4),
        *scratch = cpu_floats_alloc(cpu_product_scratch(m, n, k));
  cpu_product product = {.m = m,
                         .n = n,
                         .k = k,
                         .a = cpu_matrix_in(a, CPU_FLOAT32, k),
                         .b = cpu_matrix_in(b, CPU_FLOAT32, b_is_k_by_n ? n : k),
                         .b_is_k_by_n = b_is_k_by_n,
                         .accumulate = accumulate,
                         .bias = bias,
                         .out = cpu_matrix_in(out, CPU_FLOAT32, n)};
  if (m <= FEW_ROWS && !b_is_k_by_n)
    multiply_few_rows(&with->functions, &product, scratch);
  else
    multiply_blocks(&with->functions, &product, scratch);
  for (int64_t i = 0; i < m * n; i++) {
    const float *column = b_is_k_by_n ? b + i % n : b + i % n * k;
    float sum = expected(a + i / n * k, column, k, b_is_k_by_n ? n : 1) + bias[i % n] + (accumulate ? before[i] : 0);
    ck_each(out[i] == sum, "%s, %d x %d x %d: element %d is %g, expected %g", with->name, (int)m, (int)n, (int)k,
            (int)i, (double)out[i], (double)sum);
  }
  float *all[] = {a, b, before, out, bias, scratch};
  for (int i = 0; i < 6; i++)
    free(all[i]);
}

START_TEST(every_instruction_set_computes_the_product) {
  static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 17},    {8, 33, 40},   {9, 33, 40},   {12, 32, 16},
                                     {13, 257, 9}, {30, 40, 300}, {4, 300, 520}, {517, 5, 258}, {25, 31, 0}};
  const named_machine *with = &machines[_i];
  for (size_t i = 0; with->present() && i < sizeof sizes / sizeof sizes[0]; i++)
    for (int variant = 0; variant < 4; variant++)
      check_product(with, sizes[i][0], sizes[i][1], sizes[i][2], variant & 1, variant & 2);
}
END_TEST

/* A smaller product fits into the scratch memory of a larger one: callers allocate once for many. */
START_TEST(scratch_memory_grows_with_each_size) {
  for (int64_t m = 1; m < 1100; m += 43)
    for (int64_t n = 1; n < 600; n += 37)
      for (int64_t k = 1; k < 600; k += 41) {
        size_t floats = cpu_product_scratch(m, n, k);
        ck_each(floats <= cpu_product_scratch(m + 1, n, k) && floats <= cpu_product_scratch(m, n + 1, k) &&
                    floats <= cpu_product_scratch(m, n, k + 1),
                "one more than %d x %d x %d takes less than %zu", (int)m, (int)n, (int)k, floats);
      }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, every_instruction_set_computes_the_product, 0, N_MACHINES);
  tcase_add_test(tests, scratch_memory_grows_with_each_size);
}

int main(void) {
  return run_suite("cpu_matmul", add_tests, 20);
}
