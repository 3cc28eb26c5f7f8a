/* The activations: their checks, and both CPU kernels on every 16-bit value, on awkward floats, strided, in place. */
#include "tests/kernels.h"

#include <flhost/dtype.h>
#include <math.h>
#include <pthread.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define F(number)                                                                                                      \
  { .type = FL_FLOAT, .v.f = (number) }
#define S(string)                                                                                                      \
  { .type = FL_STRING, .v.s = (string) }
#define NONE                                                                                                           \
  { .type = FL_NONE }

/* An op and the attributes behind x. */
typedef struct variant {
  const char *op;
  uint32_t n_attributes;
  fl_value attributes[3];
} variant;

static const variant gated[] = {
    {"silu_and_mul", 0, {NONE}},
    {"mul_and_silu", 0, {NONE}},
    {"gelu_and_mul", 1, {S("none")}},
    {"gelu_and_mul", 1, {S("tanh")}},
    {"swigluoai_and_mul", 2, {F(1.702), F(7)}},
    {"swigluoai_and_mul", 2, {F(1.1), F(2.3)}},
    {"fatrelu_and_mul", 1, {F(0)}},
    {"fatrelu_and_mul", 1, {F(0.3)}},
    {"silu_and_mul_with_clamp", 3, {F(7), F(1), F(0)}},
    {"silu_and_mul_with_clamp", 3, {F(2.3), F(1.702), F(1)}},
    {"swiglustep_and_mul", 1, {F(7)}},
    {"swiglustep_and_mul", 1, {F(1.3)}},
    {"situ_and_mul", 2, {F(1), NONE}},
    {"situ_and_mul", 2, {F(2.5), F(3)}},
    {"silu_and_mul_with_clamp", 3, {F(7), F(1), F(0.3)}},
    {"silu_and_mul_with_clamp", 3, {F(7), F(1.1), F(0)}},
};
enum { N_GATED = sizeof gated / sizeof gated[0] };

static const variant sparse[] = {
    {"gelu_and_mul_sparse", 2, {F(0.95), S("none")}},
    {"gelu_and_mul_sparse", 2, {F(0.5), S("tanh")}},
};

static const variant elementwise[] = {
    {"gelu", 1, {S("none")}}, {"gelu", 1, {S("tanh")}},  {"gelu_new", 0, {NONE}},
    {"gelu_fast", 0, {NONE}}, {"quick_gelu", 0, {NONE}}, {"relu2", 0, {NONE}},
};
enum { N_ELEMENTWISE = sizeof elementwise / sizeof elementwise[0] };

static void run_variant(const variant *v, const char *id, owned *x, owned *out) {
  fl_value values[8] = {fl_tensor(&x->tensor)};
  memcpy(values + 1, v->attributes, v->n_attributes * sizeof *values);
  values[1 + v->n_attributes] = fl_tensor(&out->tensor);
  check_call(v->op, id, values, 2 + v->n_attributes);
}

static void run_xielu(const char *id, owned *x, owned *alpha_p, owned *alpha_n, owned *out) {
  fl_value values[] = {fl_tensor(&x->tensor), fl_tensor(&alpha_p->tensor), fl_tensor(&alpha_n->tensor), fl_float(0.5),
                       fl_float(-1e-6),       fl_tensor(&out->tensor)};
  check_call("xielu", id, values, 6);
}

/* One element. */
static owned *scalar(DLDataType dtype, double value) {
  const int64_t shape[] = {1};
  owned *made = make(dtype, 1, shape, 0);
  set(&made->tensor, 0, value);
  return made;
}

/* ------------------------------------------------------------------------------------- default against reference */

enum { N_VALUES = 65536 };

/* Every value of float16 and bfloat16 as gate and as factor, where they lie in halves or alternate. */
START_TEST(O5_gated_activations_agree_with_the_reference_on_every_16_bit_value) {
  const int64_t d = rounds(N_VALUES), step = N_VALUES / d;
  const variant *v = &gated[_i % N_GATED];
  const DLDataType dtype = _i / N_GATED ? float16 : bfloat16;
  const int64_t in_shape[] = {2, 2 * d}, out_shape[] = {2, d};
  bool interleaved = !strcmp(v->op, "swigluoai_and_mul");
  owned *x = make(dtype, 2, in_shape, 0), *results[2];
  for (int64_t i = 0; i < 2 * d; i++) {
    bool is_gate = interleaved ? i % 2 == 0 : i < d;
    int64_t pattern = (interleaved ? i / 2 : i % d) * step;
    set(&x->tensor, i, 1.5);
    set(&x->tensor, 2 * d + i, -1.5);
    ((uint16_t *)x->tensor.data)[is_gate ? i : 2 * d + i] = (uint16_t)pattern;
  }
  for (int which = 0; which < 2; which++) {
    results[which] = make(dtype, 2, out_shape, 0);
    run_variant(v, both[which], x, results[which]);
  }
  check_close(v->op, &results[1]->tensor, &results[0]->tensor);
  UNMAKE(x, results[0], results[1]);
}
END_TEST

static owned *every_value(DLDataType dtype) {
  const int64_t n = rounds(N_VALUES), shape[] = {1, n};
  owned *x = make(dtype, 2, shape, 0);
  for (int64_t i = 0; i < n; i++)
    ((uint16_t *)x->tensor.data)[i] = (uint16_t)(i * (N_VALUES / n));
  return x;
}

START_TEST(O5_elementwise_activations_agree_with_the_reference_on_every_16_bit_value) {
  const variant *v = &elementwise[_i % N_ELEMENTWISE];
  const DLDataType dtype = _i / N_ELEMENTWISE ? float16 : bfloat16;
  owned *x = every_value(dtype), *a = every_value(dtype), *b = every_value(dtype);
  run_variant(v, both[0], x, a);
  run_variant(v, both[1], x, b);
  check_close(v->op, &b->tensor, &a->tensor);
  UNMAKE(x, a, b);
}
END_TEST

START_TEST(O5_xielu_agrees_with_the_reference_on_every_16_bit_value) {
  const DLDataType dtype = _i % 2 ? float16 : bfloat16, parameter = _i / 2 ? float32 : dtype;
  owned *x = every_value(dtype), *a = every_value(dtype), *b = every_value(dtype);
  owned *alpha_p = scalar(parameter, 0.2109375), *alpha_n = scalar(parameter, -1.046875);
  run_xielu(both[0], x, alpha_p, alpha_n, a);
  run_xielu(both[1], x, alpha_p, alpha_n, b);
  check_close("xielu", &b->tensor, &a->tensor);
  UNMAKE(x, a, b, alpha_p, alpha_n);
}
END_TEST

/* ------------------------------------------------------------------------------------ large calls and small ones */

/* The results of the rows of a large call, which may be looked up, are those of small calls, which are computed. */
enum { LARGE_ROWS = 32, LARGE_SIZE = N_VALUES / LARGE_ROWS };

/* Every 16-bit value once as it is and, in an op of two, once more as a factor, in another order. */
static owned *large(DLDataType dtype, const variant *v, bool is_gated) {
  const int64_t shape[] = {LARGE_ROWS, LARGE_SIZE * (is_gated ? 2 : 1)};
  owned *x = make(dtype, 2, shape, 0);
  uint16_t *values = x->tensor.data;
  for (int64_t row = 0; row < LARGE_ROWS; row++)
    for (int64_t i = 0; i < LARGE_SIZE; i++) {
      int64_t value = row * LARGE_SIZE + i, at = row * shape[1];
      bool interleaved = !strcmp(v->op, "swigluoai_and_mul"), swapped = !strcmp(v->op, "mul_and_silu");
      int64_t gate = interleaved ? 2 * i
                     : swapped   ? LARGE_SIZE + i
                                 : i,
              factor = interleaved ? gate + 1
                       : swapped   ? i
                                   : LARGE_SIZE + i;
      values[at + gate] = (uint16_t)value;
      if (is_gated)
        values[at + factor] = (uint16_t)(value * 40503);
    }
  return x;
}

static void check_row(const variant *v, const owned *x, const owned *out, int64_t row) {
  const int64_t in_shape[] = {1, x->shape[1]}, out_shape[] = {1, LARGE_SIZE};
  const uint16_t *expected = (const uint16_t *)out->tensor.data + row * LARGE_SIZE;
  owned *small_x = make(x->tensor.dtype, 2, in_shape, 0), *small = make(x->tensor.dtype, 2, out_shape, 0);
  memcpy(small_x->tensor.data, (const uint16_t *)x->tensor.data + row * in_shape[1], (size_t)in_shape[1] * 2);
  run_variant(v, both[1], small_x, small);
  for (int64_t i = 0; i < LARGE_SIZE; i++)
    ck_each(((const uint16_t *)small->tensor.data)[i] == expected[i] ||
                (isnan(get(&small->tensor, i)) && isnan(get(&out->tensor, row * LARGE_SIZE + i))),
            "%s, row %d, element %d: %04x in a large call, %04x in a small one", v->op, (int)row, (int)i, expected[i],
            ((const uint16_t *)small->tensor.data)[i]);
  UNMAKE(small_x, small);
}

static void check_large(const variant *v, DLDataType dtype, bool is_gated) {
  const int64_t shape[] = {LARGE_ROWS, LARGE_SIZE};
  owned *x = large(dtype, v, is_gated), *out = make(dtype, 2, shape, 0);
  run_variant(v, both[1], x, out);
  for (int64_t row = 0; row < rounds(LARGE_ROWS); row++)
    check_row(v, x, out, row);
  UNMAKE(x, out);
}

/* One op after the other, of which several have the same name and other attributes. */
static void check_all_large(DLDataType dtype) {
  for (size_t i = 0; i < N_GATED; i++)
    check_large(&gated[i], dtype, true);
  for (size_t i = 0; i < N_ELEMENTWISE; i++)
    check_large(&elementwise[i], dtype, false);
}

START_TEST(large_calls_give_the_bits_of_small_ones_whatever_attributes_came_before) {
  check_all_large(_i ? float16 : bfloat16);
}
END_TEST

START_TEST(large_calls_of_xielu_give_the_bits_of_small_ones_whatever_parameters_came_before) {
  const DLDataType dtype = _i ? float16 : bfloat16;
  const int64_t shape[] = {LARGE_ROWS, LARGE_SIZE}, row_shape[] = {1, LARGE_SIZE};
  for (int which = 0; which < 2; which++) {
    owned *x = large(dtype, &elementwise[0], false), *out = make(dtype, 2, shape, 0);
    owned *alpha_p = scalar(dtype, which ? 0.75 : 0.2109375), *alpha_n = scalar(dtype, -1.046875);
    run_xielu(both[1], x, alpha_p, alpha_n, out);
    for (int64_t row = 0; row < rounds(LARGE_ROWS); row++) {
      owned *small_x = make(dtype, 2, row_shape, 0), *small = make(dtype, 2, row_shape, 0);
      memcpy(small_x->tensor.data, (uint16_t *)x->tensor.data + row * LARGE_SIZE, LARGE_SIZE * 2);
      run_xielu(both[1], small_x, alpha_p, alpha_n, small);
      ck_assert_mem_eq(small->tensor.data, (uint16_t *)out->tensor.data + row * LARGE_SIZE, LARGE_SIZE * 2);
      UNMAKE(small_x, small);
    }
    UNMAKE(x, out, alpha_p, alpha_n);
  }
}
END_TEST

#ifdef __x86_64__
/* What was computed where denormal numbers are 0 is not what later callers get, nor the other way round. */
START_TEST(large_calls_give_the_bits_of_small_ones_in_every_floating_point_mode) {
  const unsigned denormals_are_0 = 0x8040, up = 0x4000, as_found = _mm_getcsr();
  const unsigned modes[] = {as_found | denormals_are_0, as_found, as_found | up, as_found | denormals_are_0};
  for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
    _mm_setcsr(modes[i]);
    check_large(&gated[_i % N_GATED], _i / N_GATED ? float16 : bfloat16, true);
    _mm_setcsr(as_found);
  }
}
END_TEST

/* Zeros raise no exception, though among all 16-bit values there are some that do. */
START_TEST(large_calls_raise_only_the_exceptions_of_their_own_numbers) {
  const unsigned invalid = 1, overflow = 8, masks = (invalid | overflow) << 7, as_found = _mm_getcsr();
  const int64_t shape[] = {LARGE_ROWS, LARGE_SIZE};
  owned *x = make(_i % 2 ? float16 : bfloat16, 2, shape, 0), *out = make(x->tensor.dtype, 2, shape, 0);
  memset(x->tensor.data, 0, N_VALUES * sizeof(uint16_t));
  _mm_setcsr((as_found & ~0x3fu) & (_i / 2 ? ~masks : ~0u));
  run_variant(&elementwise[2], both[1], x, out);
  unsigned raised = _mm_getcsr() & (invalid | overflow);
  _mm_setcsr(as_found);
  ck_assert_uint_eq(raised, 0);
  UNMAKE(x, out);
}
END_TEST
#endif

static pthread_barrier_t all_are_here;

static void *call_at_once(void *user) {
  const int64_t shape[] = {LARGE_ROWS, LARGE_SIZE};
  (void)user;
  for (size_t i = 0; i < 2 * N_ELEMENTWISE; i++) {
    const variant *v = &elementwise[i / 2];
    owned *x = large(i % 2 ? float16 : bfloat16, v, false), *out = make(x->tensor.dtype, 2, shape, 0);
    pthread_barrier_wait(&all_are_here);
    run_variant(v, both[1], x, out);
    for (int64_t row = 0; row < rounds(LARGE_ROWS); row++)
      check_row(v, x, out, row);
    UNMAKE(x, out);
  }
  return NULL;
}

START_TEST(threads_that_make_the_first_large_call_at_once_all_get_the_bits_of_small_ones) {
  pthread_t threads[3];
  const unsigned n = sizeof threads / sizeof threads[0];
  ck_assert_int_eq(pthread_barrier_init(&all_are_here, NULL, n), 0);
  for (size_t i = 0; i < n; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, call_at_once, NULL), 0);
  for (size_t i = 0; i < n; i++)
    pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&all_are_here);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ other values */

/* Zeros, infinities, NaN, denormals, the largest finite ones, and values of all magnitudes. */
static owned *awkward_floats(int64_t rows, int64_t n) {
  static const uint32_t special[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 1,
                                     0x80000001, 0x007fffff, 0x7f7fffff, 0xff7fffff, 0x3f800000, 0xbf800000};
  const int64_t shape[] = {rows, n};
  owned *x = make(float32, 2, shape, 0);
  uint32_t seed = 7;
  for (int64_t i = 0; i < rows * n; i++) {
    seed = seed * 1664525u + 1013904223u;
    int exponent = (int)(seed >> 24) % 24 - 16;
    set(&x->tensor, i, ldexp((double)(int32_t)(seed << 8) / 2147483648.0, exponent));
    if (i % 5 == 0)
      ((uint32_t *)x->tensor.data)[i] = special[(uint64_t)(i / 5) % (sizeof special / sizeof special[0])];
  }
  return x;
}

START_TEST(O5_activations_agree_with_the_reference_on_awkward_floats) {
  const int64_t gated_shape[] = {4, 700}, plain_shape[] = {4, 1400};
  bool is_gated = _i < N_GATED;
  const variant *v = is_gated ? &gated[_i] : &elementwise[_i - N_GATED];
  owned *x = awkward_floats(4, 1400), *a = make(float32, 2, is_gated ? gated_shape : plain_shape, 0);
  owned *b = make(float32, 2, is_gated ? gated_shape : plain_shape, 0);
  run_variant(v, both[0], x, a);
  run_variant(v, both[1], x, b);
  check_close(v->op, &b->tensor, &a->tensor);
  UNMAKE(x, a, b);
}
END_TEST

/* Rows of several blocks and a rest. */
START_TEST(O5_gelu_and_mul_sparse_agrees_with_the_reference) {
  const int64_t in_shape[] = {5, 2 * 701}, out_shape[] = {5, 701};
  DLDataType dtype = floats[_i % 3];
  const variant *v = &sparse[_i / 3];
  owned *x = make(dtype, 2, in_shape, 0), *a = make(dtype, 2, out_shape, 0), *b = make(dtype, 2, out_shape, 0);
  fill(&x->tensor, 5);
  run_variant(v, both[0], x, a);
  run_variant(v, both[1], x, b);
  check_close(v->op, &b->tensor, &a->tensor);
  UNMAKE(x, a, b);
}
END_TEST

/* --------------------------------------------------------------------------------------------- layouts */

static void check_strided(const variant *v, const char *id, DLDataType dtype, const int64_t *in_shape,
                          const int64_t *out_shape) {
  owned *x = make(dtype, 4, in_shape, 0), *out = make(dtype, 4, out_shape, 0);
  owned *strided_x = make(dtype, 4, in_shape, 5), *strided_out = make(dtype, 4, out_shape, 3);
  fill(&x->tensor, 1);
  fill(&strided_x->tensor, 1);
  run_variant(v, id, x, out);
  run_variant(v, id, strided_x, strided_out);
  check_same_elements(&out->tensor, strided_out);
  UNMAKE(x, out, strided_x, strided_out);
}

START_TEST(O2_activations_take_strided_tensors_of_any_rank_and_rows_longer_than_a_block) {
  const int64_t twice[] = {2, 1, 3, 2 * 301}, once[] = {2, 1, 3, 301};
  const char *id = both[_i / 3];
  for (size_t i = 0; i < N_GATED; i++)
    check_strided(&gated[i], id, floats[_i % 3], twice, once);
  for (size_t i = 0; i < 2; i++)
    check_strided(&sparse[i], id, floats[_i % 3], twice, once);
  for (size_t i = 0; i < N_ELEMENTWISE; i++)
    check_strided(&elementwise[i], id, floats[_i % 3], once, once);
}
END_TEST

START_TEST(O1_elementwise_activations_work_in_place) {
  const int64_t shape[] = {3, 301};
  DLDataType dtype = floats[_i % 3];
  const char *id = both[_i / 3];
  owned *alpha_p = scalar(dtype, 0.2), *alpha_n = scalar(dtype, -1.05);
  for (size_t i = 0; i <= N_ELEMENTWISE; i++) { /* the last is xielu */
    owned *x = make(dtype, 2, shape, 0), *out = make(dtype, 2, shape, 0), *in_place = make(dtype, 2, shape, 9);
    fill(&x->tensor, 3);
    fill(&in_place->tensor, 3);
    if (i < N_ELEMENTWISE) {
      run_variant(&elementwise[i], id, x, out);
      run_variant(&elementwise[i], id, in_place, in_place);
    } else {
      run_xielu(id, x, alpha_p, alpha_n, out);
      run_xielu(id, in_place, alpha_p, alpha_n, in_place);
    }
    check_same_elements(&out->tensor, in_place);
    UNMAKE(x, out, in_place);
  }
  UNMAKE(alpha_p, alpha_n);
}
END_TEST

START_TEST(O2_no_tokens_and_no_elements_succeed_and_write_nothing) {
  const int64_t shapes[][3] = {{2, 0, 8}, {2, 3, 0}}, halves[][3] = {{2, 0, 4}, {2, 3, 0}};
  for (int which = 0; which < 4; which++) {
    owned *x = make(float16, 3, shapes[which % 2], 0), *out = make(float16, 3, halves[which % 2], 0);
    for (size_t i = 0; i < N_GATED; i++)
      run_variant(&gated[i], both[which / 2], x, out);
    run_variant(&sparse[0], both[which / 2], x, out);
    for (size_t i = 0; i < N_ELEMENTWISE; i++)
      run_variant(&elementwise[i], both[which / 2], x, x);
    UNMAKE(x, out);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------- computed by others */

/* A vector of that type. */
static owned *vector(DLDataType dtype, int64_t n, const double *elements) {
  owned *made = make(dtype, 1, &n, 0);
  for (int64_t i = 0; i < n; i++)
    set(&made->tensor, i, elements[i]);
  return made;
}

static void check_elements(const owned *result, const double *expected, double tolerance) {
  for (int64_t i = 0; i < count(&result->tensor); i++) {
    double given = get(&result->tensor, i);
    ck_each((isnan(given) && isnan(expected[i])) || given == expected[i] ||
                fabs(given - expected[i]) <= tolerance * fabs(expected[i]),
            "element %d: %.9g, expected %.9g", (int)i, given, expected[i]);
  }
}

/* Runs on x, whose results are `n` numbers. */
static void check_numbers(const variant *v, DLDataType dtype, int64_t n_x, const double *numbers, int64_t n,
                          const double *expected, double tolerance) {
  for (int which = 0; which < 2; which++) {
    owned *x = vector(dtype, n_x, numbers), *out = make(dtype, 1, &n, 0);
    run_variant(v, both[which], x, out);
    check_elements(out, expected, tolerance);
    UNMAKE(x, out);
  }
}

START_TEST(activations_give_the_numbers_of_vllm) {
  static const double one[] = {1}, gelus[] = {0.84134471, 0.84119201, 0.84119201, 0.84119201, 0.84579575};
  const double halves[] = {1, -2, .5, 3, 2, 4, -1, .25}, silu[] = {1.4609375, -0.953125, -0.310546875, 0.71484375};
  const double pairs[] = {1, 2, -3, 4, 9, -9, .5, .5};
  const double swiglu[] = {2.5373874, -0.0903566, -41.9997177, 0.5255827};
  check_numbers(&gated[0], bfloat16, 8, halves, 4, silu, 0);
  check_numbers(&gated[4], float32, 8, pairs, 4, swiglu, 1e-6);
  for (size_t i = 0; i < 5; i++)
    check_numbers(&elementwise[i], float32, 1, one, 1, &gelus[i], 1e-6);
}
END_TEST

START_TEST(xielu_gives_the_numbers_of_vllm_and_is_not_0_at_0) {
  const double numbers[] = {-2, -1e-7, 0, .5, 2}, expected[] = {-0.09173173, -7.69999e-07, -7.99999e-07, 0.45, 4.2};
  const int64_t n = 5;
  for (int which = 0; which < 2; which++) {
    owned *x = vector(float32, n, numbers), *out = make(float32, 1, &n, 0);
    owned *alpha_p = scalar(float32, 0.2033823), *alpha_n = scalar(float32, -1.0502254);
    run_xielu(both[which], x, alpha_p, alpha_n, out);
    check_elements(out, expected, 3e-6);
    UNMAKE(x, out, alpha_p, alpha_n);
  }
}
END_TEST

/* A parameter of another type takes the products with it to float32, as PyTorch promotes; beta * x stays in x's type.
 */
START_TEST(O4_the_parameters_type_decides_where_xielu_rounds) {
  const double numbers[] = {3.171875, 0.30078125, 1.3359375, 2.828125};
  const int64_t n = 4;
  int differ = 0;
  owned *x = vector(bfloat16, n, numbers), *out = make(bfloat16, 1, &n, 0), *alpha = scalar(float32, 0.2109375);
  run_xielu("reference.c", x, alpha, alpha, out);
  float ap = log1pf(expf(0.2109375f));
  for (int64_t i = 0; i < n; i++) {
    float v = (float)numbers[i], linear = fl_bf16_to_float(fl_float_to_bf16(0.5f * v));
    float stepwise = fl_bf16_to_float(fl_float_to_bf16(fl_bf16_to_float(fl_float_to_bf16(ap * v)) * v));
    uint16_t once = fl_float_to_bf16(ap * v * v + linear);
    ck_assert_uint_eq(((uint16_t *)out->tensor.data)[i], once);
    differ += once != fl_float_to_bf16(stepwise + linear);
  }
  ck_assert_int_gt(differ, 0);
  UNMAKE(x, out, alpha);
}
END_TEST

/* mean 1, standard deviation sqrt(3); the quantile at 0.5 is 0, that at 0.95 is 1.64485: what is above is 0.15103. */
START_TEST(gelu_and_mul_sparse_keeps_what_is_above_the_cut) {
  const double numbers[] = {0, 0, 0, 4, 1, 1, 1, 2};
  const double above_mean[] = {0, 0, 0, 2 * 3 * 0.9986501}, above_cut[] = {0, 0, 0, 0.169160776};
  const variant half = {"gelu_and_mul_sparse", 2, {F(0.5), S("none")}};
  check_numbers(&half, float32, 8, numbers, 4, above_mean, 1e-6);
  check_numbers(&sparse[0], float32, 8, numbers, 4, above_cut, 1e-5);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ edge cases */

START_TEST(activations_at_nan_and_infinity_are_what_pytorch_gives) {
  const double silu_of_1 = 1 / (1 + exp(-1)), swiglu = 14 / (1 + exp(-7 * 1.702));
  const double clamped = 7 / (1 + exp(-7)), clamped_more = 4.6 / (1 + exp(-2.3 * 1.702));
  const struct {
    const variant *v;
    double x[6], expected[3];
  } cases[] = {
      {&gated[0], {NAN, INFINITY, -INFINITY, 1, 1, 1}, {NAN, INFINITY, NAN}}, /* silu(-inf) is -inf / inf */
      {&gated[1], {1, 1, 1, NAN, INFINITY, -INFINITY}, {NAN, INFINITY, NAN}},
      {&gated[4], {NAN, 1, INFINITY, 1, -INFINITY, 1}, {NAN, swiglu, NAN}}, /* no clamp from below */
      {&gated[6], {NAN, INFINITY, -INFINITY, 1, 1, 1}, {NAN, INFINITY, 0}}, /* NaN is not below a threshold */
      {&gated[8], {1, 1, 1, NAN, INFINITY, -INFINITY}, {NAN, 7 * silu_of_1, -7 * silu_of_1}},
      {&gated[8], {NAN, INFINITY, -INFINITY, 1, 1, 1}, {NAN, clamped, NAN}},
      {&gated[9], {NAN, INFINITY, -INFINITY, 1, 1, 1}, {NAN, clamped_more, NAN}},
      {&gated[10], {NAN, INFINITY, -INFINITY, 1, 1, 1}, {NAN, 7, NAN}}, /* clamped behind silu */
  };
  const double plain[] = {NAN, INFINITY, -INFINITY}, expected[] = {NAN, INFINITY, 0}, gelu[] = {NAN, INFINITY, NAN};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    check_numbers(cases[i].v, float32, 6, cases[i].x, 3, cases[i].expected, 1e-6);
  check_numbers(&elementwise[5], float32, 3, plain, 3, expected, 0); /* relu2 */
  check_numbers(&elementwise[0], float32, 3, plain, 3, gelu, 0);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- bad calls */

START_TEST(O6_bad_arguments_of_activations_are_refused_with_a_reason) {
  const int64_t rows[] = {2, 8}, halves[] = {2, 4}, odd[] = {2, 7}, none[] = {0}, one[] = {1}, two[] = {2};
  owned *wide = make(float32, 2, rows, 0), *half = make(float32, 2, halves, 0);
  owned *uneven = make(float32, 2, odd, 0), *scalar_x = make(float32, 0, none, 0);
  owned *alpha = make(float32, 1, one, 0), *alphas = make(float32, 1, two, 0);
  const fl_value x = fl_tensor(&wide->tensor), out = fl_tensor(&half->tensor), p = fl_tensor(&alpha->tensor);
  const struct {
    const char *op, *expected;
    uint32_t n;
    fl_value values[6];
  } cases[] = {
      {"mul_and_silu",
       "mul_and_silu: argument 'x': shape [2, 7], expected [..., 2*d]",
       2,
       {fl_tensor(&uneven->tensor), out}},
      {"relu2", "relu2: argument 'x': shape [], expected [..., d]", 2, {fl_tensor(&scalar_x->tensor), x}},
      {"relu2", "relu2: result 'out': shape [2, 4], expected [2, 8] (that of 'x')", 2, {x, out}},
      {"situ_and_mul",
       "situ_and_mul: argument 'beta': 0, expected a finite number above 0",
       4,
       {x, fl_float(0), fl_none(), out}},
      {"situ_and_mul",
       "situ_and_mul: argument 'linear_beta': -1, expected a finite number above 0",
       4,
       {x, fl_float(1), fl_float(-1), out}},
      {"swigluoai_and_mul",
       "swigluoai_and_mul: argument 'limit': -7, expected a finite number above 0",
       4,
       {x, fl_float(1), fl_float(-7), out}},
      {"silu_and_mul_with_clamp",
       "silu_and_mul_with_clamp: argument 'limit': 0, expected a finite number above 0",
       5,
       {x, fl_float(0), fl_float(1), fl_float(0), out}},
      {"gelu",
       "gelu: argument 'approximate': \"tan\", expected \"none\" or \"tanh\"; did you mean 'tanh'?",
       3,
       {x, fl_string("tan"), x}},
      {"gelu_and_mul",
       "gelu_and_mul: argument 'approximate': \"erf\", expected \"none\" or \"tanh\"",
       3,
       {x, fl_string("erf"), out}},
      {"gelu_and_mul_sparse",
       "gelu_and_mul_sparse: argument 'activation_sparsity': 0, expected a number above 0 and below 1 (gelu_and_mul is "
       "the op without sparsity)",
       4,
       {x, fl_float(0), fl_string("none"), out}},
      {"gelu_and_mul_sparse",
       "gelu_and_mul_sparse: argument 'activation_sparsity': 1, expected a number above 0 and below 1",
       4,
       {x, fl_float(1), fl_string("none"), out}},
      {"xielu",
       "xielu: argument 'alpha_n': shape [2], expected [1]",
       6,
       {x, p, fl_tensor(&alphas->tensor), fl_float(.5), fl_float(-1e-6), x}},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    check_refused(cases[i].op, cases[i].expected, cases[i].values, cases[i].n);
  UNMAKE(wide, half, uneven, scalar_x, alpha, alphas);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, load_plugin, NULL);
  tcase_add_loop_test(tests, O5_gated_activations_agree_with_the_reference_on_every_16_bit_value, 0, 2 * N_GATED);
  tcase_add_loop_test(tests, O5_elementwise_activations_agree_with_the_reference_on_every_16_bit_value, 0,
                      2 * N_ELEMENTWISE);
  tcase_add_loop_test(tests, O5_xielu_agrees_with_the_reference_on_every_16_bit_value, 0, 4);
  tcase_add_loop_test(tests, large_calls_give_the_bits_of_small_ones_whatever_attributes_came_before, 0, 2);
  tcase_add_loop_test(tests, large_calls_of_xielu_give_the_bits_of_small_ones_whatever_parameters_came_before, 0, 2);
#ifdef __x86_64__
  tcase_add_loop_test(tests, large_calls_give_the_bits_of_small_ones_in_every_floating_point_mode, 0, 2 * N_GATED);
  tcase_add_loop_test(tests, large_calls_raise_only_the_exceptions_of_their_own_numbers, 0, 4);
#endif
  tcase_add_test(tests, threads_that_make_the_first_large_call_at_once_all_get_the_bits_of_small_ones);
  tcase_add_loop_test(tests, O5_activations_agree_with_the_reference_on_awkward_floats, 0, N_GATED + N_ELEMENTWISE);
  tcase_add_loop_test(tests, O5_gelu_and_mul_sparse_agrees_with_the_reference, 0, 6);
  tcase_add_loop_test(tests, O2_activations_take_strided_tensors_of_any_rank_and_rows_longer_than_a_block, 0, 6);
  tcase_add_loop_test(tests, O1_elementwise_activations_work_in_place, 0, 6);
  tcase_add_test(tests, O2_no_tokens_and_no_elements_succeed_and_write_nothing);
  tcase_add_test(tests, activations_give_the_numbers_of_vllm);
  tcase_add_test(tests, xielu_gives_the_numbers_of_vllm_and_is_not_0_at_0);
  tcase_add_test(tests, O4_the_parameters_type_decides_where_xielu_rounds);
  tcase_add_test(tests, gelu_and_mul_sparse_keeps_what_is_above_the_cut);
  tcase_add_test(tests, activations_at_nan_and_infinity_are_what_pytorch_gives);
  tcase_add_test(tests, O6_bad_arguments_of_activations_are_refused_with_a_reason);
}

int main(void) {
  return run_suite("ops_activation", add_tests, 20);
}
