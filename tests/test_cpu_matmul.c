/* The products of the CPU backend: all their forms in the code for the base of the architecture, whose file is compiled
 * in here for its static functions, and the linear layers by each instruction set that this machine has. */
#include "plugins/cpu/flagos/products/few_rows.c"
#include "plugins/cpu/flagos/products/matmul.c"
#include "plugins/cpu/flagos/products/pairs.c"
#include "plugins/cpu/flagos/vectors/block.c"
#include "plugins/cpu/support/onednn.c"
#include "plugins/cpu/support/parallel.c"
#include "plugins/cpu/support/scratch.c"
#include "plugins/cpu/support/variants.c"
#include "tests/kernels.h"
#include "tests/tasks.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* A host's loop: each range of `grain` steps in a thread of its own, the last range first. */
typedef struct range {
  fl_range_fn body;
  void *user;
  int64_t first, end;
  fl_status status;
} range;

static void *run_range(void *argument) {
  range *r = argument;
  r->status = r->body(r->user, r->first, r->end);
  return NULL;
}

static int n_ranges;

static fl_status in_many_threads(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  fl_status status = FL_OK;
  ck_assert_int_ge(grain, 1);
  for (int64_t first = (n - 1) / grain * grain; first >= 0; first -= grain, n_ranges++) {
    range r = {body, user, first, first + grain < n ? first + grain : n, FL_OK};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_range, &r), 0);
    pthread_join(thread, NULL);
    status = r.status ? r.status : status;
  }
  return status;
}

static void check_numbers(const cpu_product *product, const float *a, const float *b, const float *before,
                          const float *bias) {
  int64_t m = product->m, n = product->n, k = product->k;
  const float *out = product->out.data;
  for (int64_t i = 0; i < m * n; i++) {
    const float *column = product->b_is_k_by_n ? b + i % n : b + i % n * k;
    float sum = expected(a + i / n * k, column, k, product->b_is_k_by_n ? n : 1) + bias[i % n] +
                (product->accumulate ? before[i] : 0);
    ck_each(out[i] == sum, "%d x %d x %d: element %d is %g, expected %g", (int)m, (int)n, (int)k, (int)i,
            (double)out[i], (double)sum);
  }
}

static void check_product(int64_t m, int64_t n, int64_t k, bool b_is_k_by_n, bool accumulate) {
  float *a = make_numbers(m * k, 1), *b = make_numbers(n * k, 2), *before = make_numbers(m * n, 3);
  float *out = make_numbers(m * n, 3), *bias = make_numbers(n, 4);
  cpu_product product = {.m = m,
                         .n = n,
                         .k = k,
                         .a = cpu_matrix_in(a, CPU_FLOAT32, k),
                         .b = cpu_matrix_in(b, CPU_FLOAT32, b_is_k_by_n ? n : k),
                         .b_is_k_by_n = b_is_k_by_n,
                         .accumulate = accumulate,
                         .bias = bias,
                         .out = cpu_matrix_in(out, CPU_FLOAT32, n)};
  ck_assert_int_eq(cpu_product_share(&product), FL_OK);
  check_numbers(&product, a, b, before, bias);
  float *all[] = {a, b, before, out, bias};
  for (int i = 0; i < 5; i++)
    free(all[i]);
}
static const int64_t sizes[][3] = {{1, 1, 1},    {3, 7, 17},    {8, 33, 40},   {9, 33, 40},   {12, 32, 16},
                                   {13, 257, 9}, {30, 40, 300}, {4, 300, 520}, {517, 5, 258}, {25, 31, 0}};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

START_TEST(each_form_of_a_product_is_computed) {
  const fl_registry threads = {.size = sizeof threads, .parallel_for = in_many_threads};
  cpu_parallel_begin(&threads);
  for (size_t i = 0; i < N_SIZES; i++)
    for (int form = 0; form < 4; form++)
      check_product(sizes[i][0], sizes[i][1], sizes[i][2], form & 1, form & 2);
}
END_TEST

START_TEST(large_products_are_shared) {
  static const int64_t large[][3] = {{1, 700, 1000}, {40, 600, 2000}};
  const fl_registry threads = {.size = sizeof threads, .parallel_for = in_many_threads};
  cpu_parallel_begin(&threads);
  for (int i = 0; i < 2; i++) {
    n_ranges = 0;
    check_product(large[i][0], large[i][1], large[i][2], false, false);
    ck_assert_int_gt(n_ranges, 1);
  }
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

enum { AVX2 = 1, AVX512, AVX512_BF16, FLOAT = 0, HALF, BFLOAT16 }; /* of instruction_sets, of floats */
static const char *const instruction_sets[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};

START_TEST(every_instruction_set_computes_linear_layers) {
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", instruction_sets[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal)
    printf("skip: every_instruction_set_computes_linear_layers: %s\n", refusal);
  for (size_t i = 0; i < N_SIZES && !refusal; i++)
    check_linear(instruction_sets[_i], sizes[i][0], sizes[i][1], sizes[i][2]);
}
END_TEST

/* Small whole numbers: results are exact but for being rounded to the element type. */
static owned *make_whole(DLDataType dtype, int64_t rows, int64_t columns, int64_t padding, uint32_t seed) {
  owned *made = make_filled(dtype, SHAPE(rows, columns), padding, seed);
  for (int64_t i = 0; i < rows * columns; i++)
    set(&made->tensor, element_offset(&made->tensor, i), floor(element(made, i)));
  return made;
}

static void check_linear_of(DLDataType dtype, int64_t m, int64_t n, int64_t k, int64_t padding) {
  owned *x = make_whole(dtype, m, k, padding, 1), *weight = make_whole(dtype, n, k, 3 * padding, 2);
  owned *bias = make_whole(dtype, 1, n, 0, 3), *out = make(dtype, SHAPE(m, n), padding),
        *one = make(dtype, SHAPE(1), 0);
  bias->tensor.shape++;
  bias->tensor.ndim--;
  fl_value values[] = {value_of(x), value_of(weight), value_of(bias), fl_bool(false), value_of(out)};
  check_call("replicated_linear", "default.flagos", values, 5);
  for (int64_t i = 0; i < m * n; i++) {
    double sum = element(bias, i % n);
    for (int64_t j = 0; j < k; j++)
      sum += element(x, i / n * k + j) * element(weight, i % n * k + j);
    set(&one->tensor, 0, sum); /* rounds it */
    ck_each(element(out, i) == element(one, 0), "%d bits, %d x %d x %d: element %d is %g, expected %g", dtype.bits,
            (int)m, (int)n, (int)k, (int)i, element(out, i), element(one, 0));
  }
  UNMAKE(x, weight, bias, out, one);
}

/* How many rows are few, by instruction set and type: cpu_few_rows_of there; by tiles none of bfloat16 are many, and
 * five of float16. */
static int64_t most_rows(int variant, int type) {
  static const int64_t rows[][3] = {{8, 8, 8}, {32, 32, 16}, {32, 64, 8}, {32, 64, 64}, {32, 4, 65}};
  return rows[variant][type];
}

/* Numbers of rows that make tiles of all heights, and those around where they are few no more. */
static const int64_t few_rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31, 32, 33, 47, 63, 64, 65};
enum { N_FEW = sizeof few_rows / sizeof few_rows[0] };

/* Of few rows those that are multiplied in another way where no second cache holds the weight. */
enum { FAR_DEPTH = 2115, N_FAR = 4 };
static const struct {
  int type;
  int64_t rows, columns;
} far[N_FAR] = {{FLOAT, 4, 499}, {BFLOAT16, 4, 996}, {BFLOAT16, 5, 997}, {BFLOAT16, 6, 998}};

START_TEST(every_instruction_set_computes_few_rows_of_each_type) {
  static const int64_t columns[] = {1, 5, 13, 300}, depths[] = {1, 15, 31, 64, 97};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", instruction_sets[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal)
    printf("skip: every_instruction_set_computes_few_rows_of_each_type: %s\n", refusal);
  for (int type = 0; type < 3 && !refusal; type++)
    for (int m = 0; m < N_FEW; m++)
      for (int n = 0; n < 4; n++)
        for (int k = 0; k < 5; k++)
          check_linear_of(floats[type], few_rows[m], columns[n], depths[k], (m + n + k) % 2 * 3);
  for (int i = 0; i < N_FAR && !refusal; i++)
    check_linear_of(floats[far[i].type], far[i].rows, far[i].columns, FAR_DEPTH, i % 2 * 3);
}
END_TEST

/* Tiles, groups, strips and blocks that are not full, in rows, columns and depth; several of each; without depth. */
START_TEST(every_instruction_set_computes_many_rows_of_each_type) {
  static const int64_t many[][3] = {{66, 33, 2115}, {85, 17, 4130}, {600, 70, 63},
                                    {98, 530, 70},  {1100, 5, 96},  {72, 64, 0}};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", instruction_sets[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal)
    printf("skip: every_instruction_set_computes_many_rows_of_each_type: %s\n", refusal);
  for (int type = 0; type < 3 && !refusal; type++)
    for (int i = 0; i < 6; i++)
      check_linear_of(floats[type], many[i][0], many[i][1], many[i][2], i % 2 * 3);
}
END_TEST

/* Products of float16 by tiles of two parts: without the smaller part a product of two numbers would be off by more
 * than what one unit of float16 is. */
static void check_all_digits(int64_t m, int64_t k) {
  enum { N = 37 };
  owned *x = make_filled(floats[HALF], SHAPE(m, k), 0, 1), *weight = make_filled(floats[HALF], SHAPE(N, k), 0, 2),
        *out = make(floats[HALF], SHAPE(m, N), 0);
  fl_value values[] = {value_of(x), value_of(weight), fl_none(), fl_bool(false), value_of(out)};
  for (int64_t i = 0; i < m * k; i++) /* none that cancel each other */
    set(&x->tensor, i, 1 + fabs(element(x, i)));
  for (int64_t i = 0; i < N * k; i++)
    set(&weight->tensor, i, 1 + fabs(element(weight, i)));
  check_call("replicated_linear", "default.flagos", values, 5);
  for (int64_t i = 0; i < m * N; i++) {
    double sum = 0;
    for (int64_t j = 0; j < k; j++)
      sum += element(x, i / N * k + j) * element(weight, i % N * k + j);
    ck_each(fabs(element(out, i) - sum) <= sum * 0x1p-10, "%d x %d: element %d is %g, expected %g", (int)m, (int)k,
            (int)i, element(out, i), sum);
  }
  UNMAKE(x, weight, out);
}

START_TEST(every_instruction_set_uses_all_digits_of_halves) {
  static const int64_t rows[] = {1, 4, 5, 8, 9, 16, 17, 40, 64, 65, 130};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", instruction_sets[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal)
    printf("skip: every_instruction_set_uses_all_digits_of_halves: %s\n", refusal);
  for (int i = 0; i < 11 && !refusal; i++)
    for (int64_t k = 1; k < 300; k = 3 * k + 2)
      check_all_digits(rows[i], k);
}
END_TEST

/* One number of x or of the weight: what it is in concerns one row or one column of the result. */
static void check_one_infinite(DLDataType dtype, int64_t m, bool in_weight, double number) {
  enum { N = 300, K = 301, AT = 17 };
  owned *x = make_whole(dtype, m, K, 0, 1), *weight = make_whole(dtype, N, K, 0, 2), *out = make(dtype, SHAPE(m, N), 0);
  fl_value values[] = {value_of(x), value_of(weight), fl_none(), fl_bool(false), value_of(out)};
  const int64_t line = in_weight ? N - 1 : m - 1;
  for (int64_t i = 0; i < m; i++)
    set(&x->tensor, i * K + AT, 1);
  for (int64_t i = 0; i < N; i++)
    set(&weight->tensor, i * K + AT, 1);
  set(in_weight ? &weight->tensor : &x->tensor, line * K + AT, number);
  check_call("replicated_linear", "default.flagos", values, 5);
  for (int64_t i = 0; i < m * N; i++) {
    bool is_of_it = (in_weight ? i % N : i / N) == line;
    double result = element(out, i);
    ck_each(is_of_it ? isnan(number) ? isnan(result) : result == number : isfinite(result),
            "%d bits, %d rows, %g in %s: element %d is %g", dtype.bits, (int)m, number, in_weight ? "weight" : "x",
            (int)i, result);
  }
  UNMAKE(x, weight, out);
}

START_TEST(every_instruction_set_keeps_the_infinite_in_its_line) {
  static const int64_t rows[] = {1, 5, 8, 24, 65, 130};
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", instruction_sets[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal)
    printf("skip: every_instruction_set_keeps_the_infinite_in_its_line: %s\n", refusal);
  for (int type = 0; type < 3 && !refusal; type++)
    for (int i = 0; i < 6; i++)
      for (int in_weight = 0; in_weight < 2; in_weight++) {
        check_one_infinite(floats[type], rows[i], in_weight, INFINITY);
        check_one_infinite(floats[type], rows[i], in_weight, -INFINITY);
        check_one_infinite(floats[type], rows[i], in_weight, NAN);
      }
}
END_TEST

/* What an engine that batches its requests otherwise gets for one of them. */
static void check_rows_alone(DLDataType dtype, int64_t m, int64_t n, int64_t k) {
  owned *x = make_filled(dtype, SHAPE(m, k), 0, 1), *weight = make_filled(dtype, SHAPE(n, k), 0, 2),
        *out = make(dtype, SHAPE(m, n), 0), *row = make(dtype, SHAPE(1, n), 0);
  fl_value values[] = {value_of(x), value_of(weight), fl_none(), fl_bool(false), value_of(out)};
  check_call("replicated_linear", "default.flagos", values, 5);
  x->tensor.shape[0] = 1;
  values[4] = value_of(row);
  for (int64_t r = 0; r < m; r++, x->tensor.byte_offset += (uint64_t)k * dtype.bits / 8u) {
    check_call("replicated_linear", "default.flagos", values, 5);
    for (int64_t i = 0; i < n; i++)
      ck_each(element(out, r * n + i) == element(row, i), "%d bits, row %d of %d: element %d is %g, alone %g",
              dtype.bits, (int)r, (int)m, (int)i, element(out, r * n + i), element(row, i));
  }
  x->tensor.shape[0] = m;
  UNMAKE(x, weight, out, row);
}

START_TEST(a_row_does_not_depend_on_the_few_beside_it) {
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", instruction_sets[_i], 1), 0);
  const char *refusal = try_plugin();
  if (refusal)
    printf("skip: a_row_does_not_depend_on_the_few_beside_it: %s\n", refusal);
  for (int type = 0; type < 3 && !refusal; type++)
    for (int m = 1; m < N_FEW && few_rows[m] <= most_rows(_i, type); m++)
      check_rows_alone(floats[type], few_rows[m], 37, 301);
  for (int i = 0; i < N_FAR && !refusal; i++)
    if (far[i].rows <= most_rows(_i, far[i].type))
      check_rows_alone(floats[far[i].type], far[i].rows, far[i].columns, FAR_DEPTH);
  if (!refusal && !strcmp(instruction_sets[_i], "amx")) { /* there none are many */
    check_rows_alone(floats[BFLOAT16], 130, 37, 301);
    check_rows_alone(floats[BFLOAT16], 600, 37, 301);
  }
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- library */

static bool is_mapped(const char *name) {
  char line[1024];
  bool found = false;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    found |= strstr(line, name) != NULL;
  if (maps)
    fclose(maps);
  return found;
}

/* The plugin with instructions that oneDNN is used with; false: none here, or no oneDNN. */
static bool begin_with_library(const char *test, int variant) {
  int status = 0;
  pid_t child = fork(); /* it would stay mapped */
  if (!child)
    _exit(dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL) ? 0 : 1);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  const char *refusal = status ? "no oneDNN" : NULL;
  ck_assert_int_eq(unsetenv("FLHOST_ONEDNN"), 0);
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", instruction_sets[variant], 1), 0);
  refusal = refusal ? refusal : try_plugin();
  if (refusal)
    printf("skip: %s: %s\n", test, refusal);
  return !refusal;
}

/* Parts of every size, with strides and without, for each element type. */
static void check_large_products(void) {
  static const int64_t large[][3] = {{9, 1030, 300}, {64, 513, 70}, {600, 100, 40}, {513, 600, 7}};
  for (int i = 0; i < 4; i++)
    for (int type = 0; type < 3; type++)
      check_linear_of(floats[type], large[i][0], large[i][1], large[i][2], i % 2 * 3);
}

START_TEST(large_products_are_the_librarys) {
  if (!begin_with_library("large_products_are_the_librarys", AVX512))
    return;
  ck_assert(!is_mapped("libdnnl"));
  check_linear_of(float32, 1, 64, 64, 0);
  check_linear_of(float32, 16, 64, 64, 0);
  ck_assert(!is_mapped("libdnnl"));
  check_large_products();
  ck_assert(is_mapped("libdnnl"));
}
END_TEST

START_TEST(without_the_library_they_are_computed_too) {
  static const char *const no_library[] = {"", "/nowhere/libdnnl.so.2", "libm.so.6"};
  if (!begin_with_library("without_the_library_they_are_computed_too", AVX512))
    return;
  ck_assert_int_eq(setenv("FLHOST_ONEDNN", no_library[_i], 1), 0);
  check_large_products();
  ck_assert(!is_mapped("libdnnl"));
}
END_TEST

/* What fl_prepare has a plugin do: memory that ends where it says. NULL: it wants none. */
static char *prepare_weight(const fl_impl *impl, fl_value *values, size_t *size) {
  fl_call call = {.size = sizeof call, .count = 5, .values = values};
  *size = impl->prepared_size(impl->self, &call);
  char *memory = *size ? aligned_alloc(64, (*size + 63) / 64 * 64 + 64) : NULL;
  if (!memory)
    return NULL;
  memset(memory, 0xa5, (*size + 63) / 64 * 64 + 64);
  ck_assert_int_eq(impl->prepare(impl->self, &call, memory, *size), FL_OK);
  for (int i = 0; i < 64; i++)
    ck_each(memory[*size + (size_t)i] == (char)0xa5, "byte %d behind its memory was written", i);
  return memory;
}

/* Rows of all numbers for which there are different ways, with what was prepared once: as close to the sums as without.
 * The weight is another one then, so that it is seen which was used. False: the library likes the weight as it is. */
static bool check_prepared(int variant, int type, int64_t n, int64_t k, int64_t padding) {
  const DLDataType dtype = floats[type];
  const bool of_pairs = variant == AVX512_BF16 && type == BFLOAT16; /* used by all that are not few */
  const int64_t most = of_pairs ? 2 : most_rows(variant, type), rows[] = {1, most, most + 1, most + 32, 600};
  const fl_impl *impl = find_impl("replicated_linear", "default.flagos");
  owned *weight = make_bounded(dtype, SHAPE(n, k), padding, 2, 0.5), *any = make_bounded(dtype, SHAPE(1, k), 0, 1, 1);
  owned *other = make_constant(dtype, SHAPE(n, k), padding, 0), *few = make(dtype, SHAPE(1, n), 0);
  fl_value values[] = {value_of(any), value_of(weight), fl_none(), fl_bool(false), value_of(few)};
  size_t size;
  char *memory = prepare_weight(impl, values, &size);
  if (!memory) {
    UNMAKE(weight, any, other, few);
    return false;
  }
  const fl_prepared prepared = {
      .size = sizeof prepared, .prepare = (uintptr_t)impl->prepare, .self = impl->self, .data = memory, .bytes = size};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    int64_t apart =
        i % 2 ? 0 : padding; /* the library packs for rows of x without gaps: others use the weight itself */
    owned *x = make_bounded(dtype, SHAPE(rows[i], k), apart, 3, 1), *out = make(dtype, SHAPE(rows[i], n), padding);
    owned *wanted = make(dtype, SHAPE(rows[i], n), padding);
    bool uses = rows[i] > most && (of_pairs || (!apart && rows[i] * n * k >= LIBRARY_FACTORS));
    fl_value plain[] = {value_of(x), value_of(weight), fl_none(), fl_bool(false), value_of(wanted)};
    fl_value with[] = {value_of(x), value_of(uses ? other : weight), fl_none(), fl_bool(false), value_of(out)};
    fl_call call = {.size = sizeof call, .count = 5, .values = with, .prepared = &prepared};
    check_call("replicated_linear", "default.flagos", plain, 5);
    ck_assert_int_eq(impl->fn(impl->self, &call), FL_OK);
    for (int64_t j = 0; j < rows[i] * n; j++) {
      double got = element(out, j), expected_ = element(wanted, j);
      ck_each(fabs(got - expected_) <= (dtype.bits == 16 ? 0.02 : 1e-4) * (1 + fabs(expected_)),
              "%d bits, %d x %d x %d: element %d is %g, expected %g", dtype.bits, (int)rows[i], (int)n, (int)k, (int)j,
              got, expected_);
    }
    UNMAKE(x, out, wanted);
  }
  free(memory);
  UNMAKE(weight, any, other, few);
  return true;
}

/* Of columns in one part, in several, in parts that are not full. The library wants another layout of each float32
 * weight, of bfloat16 of some or none. Pairs of bfloat16 are always packed. */
START_TEST(prepared_weights_give_the_same) {
  static const int64_t sizes_of[][2] = {{512, 300}, {1030, 260}, {513, 1024}, {96, 701}, {512, 512}, {40, 2500}};
  static const struct { int variant, type; } used[] = {{AVX512, 0}, {AVX512, BFLOAT16}, {AVX512_BF16, BFLOAT16}};
  enum { N_WEIGHTS = sizeof sizes_of / sizeof *sizes_of };
  int n = 0;
  if (!begin_with_library("prepared_weights_give_the_same", used[_i].variant))
    return;
  for (int i = 0; i < N_WEIGHTS; i++)
    n += check_prepared(used[_i].variant, used[_i].type, sizes_of[i][0], sizes_of[i][1], i % 2 * 3);
  if (used[_i].variant == AVX512_BF16 ||
      (used[_i].variant == AVX512 && !used[_i].type && !getenv("ONEDNN_MAX_CPU_ISA")))
    ck_assert_int_eq(n, N_WEIGHTS);
  if (!n)
    printf("skip: prepared_weights_give_the_same: here the library packs no %s\n",
           used[_i].type ? "bfloat16" : "float32");
}
END_TEST

/* float16, of which the library computes nothing; by AVX2, which is faster without it; what is small; without the
 * library; the base's instructions; what tiles multiply as it is. */
START_TEST(nothing_is_prepared_where_nothing_is_gained) {
  static const struct {
    const char *isa, *library;
    int64_t n, k;
    int type; /* of floats[] */
  } nothing[] = {{"avx2", NULL, 512, 512, HALF},   {"avx2", NULL, 512, 512, BFLOAT16}, {"avx2", NULL, 512, 512, 0},
                 {"avx512", NULL, 16, 16, 0},      {"avx512", "", 512, 512, 0},        {"baseline", NULL, 512, 512, 0},
                 {"amx", NULL, 512, 512, BFLOAT16}};
  if (!begin_with_library("nothing_is_prepared_where_nothing_is_gained", AVX2))
    return;
  ck_assert_int_eq(setenv("VLLM_FL_CPU_ISA", nothing[_i].isa, 1), 0);
  if (nothing[_i].library)
    ck_assert_int_eq(setenv("FLHOST_ONEDNN", nothing[_i].library, 1), 0);
  const char *refusal = try_plugin();
  if (refusal) {
    ck_assert(!strcmp(nothing[_i].isa, "amx") || !strcmp(nothing[_i].isa, "avx512"));
    printf("skip: nothing_is_prepared_where_nothing_is_gained: %s\n", refusal);
    return;
  }
  DLDataType dtype = floats[nothing[_i].type];
  owned *x = make_bounded(dtype, SHAPE(1, nothing[_i].k), 0, 1, 1), *out = make(dtype, SHAPE(1, nothing[_i].n), 0);
  owned *weight = make_bounded(dtype, SHAPE(nothing[_i].n, nothing[_i].k), 0, 2, 1);
  fl_value values[] = {value_of(x), value_of(weight), fl_none(), fl_bool(false), value_of(out)};
  size_t size;
  ck_assert_ptr_null(prepare_weight(find_impl("replicated_linear", "default.flagos"), values, &size));
  UNMAKE(x, weight, out);
}
END_TEST

/* It has OpenMP, whose threads an engine wants for itself, and which do not come back after fork. */
START_TEST(the_librarys_threads_are_the_callers_alone) {
  void *openmp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!openmp || !begin_with_library("the_librarys_threads_are_the_callers_alone", AVX512))
    return;
  int (*most)(void) = NULL, threads = listed_threads(NULL, 0);
  void (*set_most)(int) = NULL;
  *(void **)&most = dlsym(openmp, "omp_get_max_threads");
  *(void **)&set_most = dlsym(openmp, "omp_set_num_threads");
  set_most(3);
  check_large_products();
  ck_assert(is_mapped("libdnnl"));
  check_threads(NULL, threads);
  ck_assert_int_eq(most(), 3);
}
END_TEST

static void *compute(void *unused) {
  check_large_products();
  return unused;
}

static void compute_in_two_threads(void) {
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, compute, NULL), 0);
  compute(NULL);
  pthread_join(thread, NULL);
}

START_TEST(two_threads_at_once_and_a_forked_child_use_it) {
  int status = 0;
  if (!begin_with_library("two_threads_at_once_and_a_forked_child_use_it", AVX512))
    return;
  compute_in_two_threads();
  pid_t child = fork();
  if (!child) {
    alarm(10);
    compute_in_two_threads();
    _exit(is_mapped("libdnnl") ? 0 : 1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
}
END_TEST

static void *hold_some(void *kept) {
  enum { MOST = CPU_SCRATCH_DEPTH + 2 };
  float *held[MOST];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < MOST; i++) {
      size_t n = i == 1 ? CPU_SCRATCH_KEPT : 100u * (size_t)(round + 1);
      held[i] = cpu_scratch_take(n);
      ck_assert(held[i] && (uintptr_t)held[i] % 64 == 0);
      for (size_t j = 0; j < n; j++)
        held[i][j] = (float)i;
    }
    for (int i = MOST; i-- > 0; cpu_scratch_give(held[i]))
      ck_assert(held[i][0] == (float)i && held[i][99] == (float)i);
  }
  cpu_scratch_give(NULL);
  float *first = cpu_scratch_take(300);
  cpu_scratch_give(first);
  float *others[64]; /* who else would get what is freed */
  for (int i = 0; i < 64; i++)
    others[i] = cpu_floats_alloc(100);
  float *again = cpu_scratch_take(200);
  cpu_scratch_give(again);
  for (int i = 0; i < 64; i++)
    free(others[i]);
  *(bool *)kept = first == again;
  return NULL;
}

/* Valgrind and the address sanitizer see that it is freed when the thread ends. */
START_TEST(a_thread_keeps_its_scratch_memory) {
  bool kept = false;
  pthread_t thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, hold_some, &kept), 0);
  pthread_join(thread, NULL);
  ck_assert(kept);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, each_form_of_a_product_is_computed);
  tcase_add_loop_test(tests, every_instruction_set_computes_linear_layers, 0, 5);
  tcase_add_test(tests, large_products_are_shared);
  tcase_add_loop_test(tests, every_instruction_set_computes_few_rows_of_each_type, 0, 5);
  tcase_add_loop_test(tests, every_instruction_set_computes_many_rows_of_each_type, 0, 5);
  tcase_add_loop_test(tests, every_instruction_set_uses_all_digits_of_halves, 0, 5);
  tcase_add_loop_test(tests, every_instruction_set_keeps_the_infinite_in_its_line, 0, 5);
  tcase_add_loop_test(tests, a_row_does_not_depend_on_the_few_beside_it, 0, 5);
  tcase_add_test(tests, large_products_are_the_librarys);
  tcase_add_loop_test(tests, without_the_library_they_are_computed_too, 0, 3);
  if (!is_sparse()) /* for valgrind: what oneDNN generates reads behind the end of a buffer of its own */
    tcase_add_loop_test(tests, prepared_weights_give_the_same, 0, 3);
  tcase_add_loop_test(tests, nothing_is_prepared_where_nothing_is_gained, 0, 7);
  tcase_add_test(tests, the_librarys_threads_are_the_callers_alone);
  if (!is_sparse()) /* under valgrind the child of a fork beside other threads may hang in the tool */
    tcase_add_test(tests, two_threads_at_once_and_a_forked_child_use_it);
  tcase_add_test(tests, a_thread_keeps_its_scratch_memory);
}

int main(void) {
  return run_suite("cpu_matmul", add_tests, 60);
}
