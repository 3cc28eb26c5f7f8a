/* The products of the CPU backend: all their forms in the code for the base of the architecture, whose file is compiled
 * in here for its static functions, and the linear layers by each instruction set that this machine has. */
#include "plugins/cpu/flagos/block.c"
#include "plugins/cpu/flagos/matmul.c"
#include "tests/kernels.h"

#include <math.h>

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

static void check_product(int64_t m, int64_t n, int64_t k, bool b_is_k_by_n, bool accumulate) {
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
    multiply_few_rows(&product, scratch);
  else
    multiply_blocks(&product, scratch);
  for (int64_t i = 0; i < m * n; i++) {
    const float *column = b_is_k_by_n ? b + i % n : b + i % n * k;
    float sum = expected(a + i / n * k, column, k, b_is_k_by_n ? n : 1) + bias[i % n] + (accumulate ? before[i] : 0);
    ck_each(out[i] == sum, "%d x %d x %d: element %d is %g, expected %g", (int)m, (int)n, (int)k, (int)i,
            (double)out[i], (double)sum);
  }
  float *all[] = {a, b, before, out, bias, scratch};
  for (int i = 0; i < 6; i++)
    free(all[i]);
}

static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 17},    {8, 33, 40},   {9, 33, 40},   {12, 32, 16},
                                   {13, 257, 9}, {30, 40, 300}, {4, 300, 520}, {517, 5, 258}, {25, 31, 0}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

START_TEST(each_form_of_a_product_is_computed) {
  for (size_t i = 0; i < N_SIZES; i++)
    for (int form = 0; form < 4; form++)
      check_product(sizes[i][0], sizes[i][1], sizes[i][2], form & 1, form & 2);
}
END_TEST

static DLTensor matrix(float *data, int64_t *shape) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 2, .dtype = float32, .shape = shape};
}

static void check_linear(const char *variant, int64_t m, int64_t n, int64_t k) {
  float *a = make_numbers(m * k, 1), *b = make_numbers(n * k, 2), *out = make_numbers(m * n, 3);
  DLTensor x = matrix(a, (int64_t[]){m, k}), weight = matrix(b, (int64_t[]){n, k}),
           result = matrix(out, (int64_t[]){m, n});
  fl_value values[] = {fl_tensor(&x), fl_tensor(&weight), fl_none(), fl_bool(false), fl_tensor(&result)};
  check_call("replicated_linear", "default.flagos", values, 5);
  for (int64_t i = 0; i < m * n; i++)
    ck_each(out[i] == expected(a + i / n * k, b + i % n * k, k, 1), "%s, %d x %d x %d: element %d is %g", variant,
            (int)m, (int)n, (int)k, (int)i, (double)out[i]);
  free(a);
  free(b);
  free(out);
}

START_TEST(every_instruction_set_computes_linear_layers) {
  static const char *const variants[] = {"baseline", "avx2", "avx512"};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", variants[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal)
    printf("skip: every_instruction_set_computes_linear_layers: %s\n", refusal);
  for (size_t i = 0; i < N_SIZES && !refusal; i++)
    check_linear(variants[_i], sizes[i][0], sizes[i][1], sizes[i][2]);
}
END_TEST

/* A smaller product fits into the scratch memory of a larger one: callers allocate once for many. */
START_TEST(scratch_memory_grows_with_each_size) {
  for (int64_t m = 1; m < 1100; m += 43)
    for (int64_t n = 1; n < 600; n += 37)
      for (int64_t k = 1; k < 600; k += 41) {
        size_t needed = cpu_product_scratch(m, n, k);
        ck_each(needed <= cpu_product_scratch(m + 1, n, k) && needed <= cpu_product_scratch(m, n + 1, k) &&
                    needed <= cpu_product_scratch(m, n, k + 1),
                "one more than %d x %d x %d takes less than %zu", (int)m, (int)n, (int)k, needed);
      }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, each_form_of_a_product_is_computed);
  tcase_add_loop_test(tests, every_instruction_set_computes_linear_layers, 0, 3);
  tcase_add_test(tests, scratch_memory_grows_with_each_size);
}

int main(void) {
  return run_suite("cpu_matmul", add_tests, 20);
}
