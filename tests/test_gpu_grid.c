/*
 * What GPU kernels are written in (plugins/gpu/kernels), as the stand-in drivers run it: conversions, reductions,
 * shuffles, barriers; and that the stand-ins find the errors that a device would only hang at. Warps of 32 and of 64.
 */
#include "tests/drivers/gpu/probe.h"
#include "tests/gpu.h"

#include <flhost/dtype.h>
#include <math.h>

enum { SUCCESS = 0, LAUNCH_FAILURE = 719 };

static int warp;

/* The functions of the driver's that launch. */
static struct {
  int (*find)(void **function, void *module, const char *name);
  int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, void *stream, void **arguments, void **extra);
  int (*wait)(void);
} driver;

static void set_up(int which) {
  int (*init)(unsigned), (*retain)(void **, int), (*push)(void *);
  void *context;
  warp = which ? 64 : 32;
  stand_in_open(gpu_setups[which].driver);
  stand_in_find(which ? "hipModuleGetFunction" : "cuModuleGetFunction", &driver.find);
  stand_in_find(which ? "hipModuleLaunchKernel" : "cuLaunchKernel", &driver.launch);
  stand_in_find(which ? "hipDeviceSynchronize" : "cuCtxSynchronize", &driver.wait);
  if (which)
    return;
  stand_in_find("cuInit", &init);
  stand_in_find("cuDevicePrimaryCtxRetain", &retain);
  stand_in_find("cuCtxPushCurrent_v2", &push);
  ck_assert_int_eq(init(0) + retain(&context, 0) + push(context), 0);
}

/* Launches and waits; what waiting says. */
static int run(const char *kernel, const void *in, void *out, int64_t n, unsigned blocks, unsigned threads,
               unsigned shared) {
  probe_arguments arguments = {in, out, n};
  void *function;
  ck_assert_int_eq(driver.find(&function, NULL, kernel), SUCCESS);
  ck_assert_int_eq(driver.launch(function, blocks, 1, 1, threads, 1, 1, shared, NULL, (void *[]){&arguments}, NULL),
                   SUCCESS);
  return driver.wait();
}

/* ------------------------------------------------------------------------------------------------------- float8 */

/* A format as its definition has it. */
typedef struct format {
  const char *name;
  int mantissa, bias;
  unsigned largest, nan; /* codes; of several NaN the one that narrowing gives */
  bool fnuz, infinite;
} format;

static const format formats[] = {{"e4m3fn", 3, 7, 0x7e, 0x7f, false, false},
                                 {"e5m2", 2, 15, 0x7b, 0x7f, false, true},
                                 {"e4m3fnuz", 3, 8, 0x7f, 0x80, true, false},
                                 {"e5m2fnuz", 2, 16, 0x7f, 0x80, true, false}};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

static double value_of_code(const format *f, unsigned code) {
  unsigned magnitude = code & 0x7f, exponent = magnitude >> f->mantissa, part = magnitude & ((1u << f->mantissa) - 1);
  double sign = code & 0x80 ? -1 : 1, unit = ldexp(1, 1 - f->bias - f->mantissa);
  if (f->fnuz ? code == 0x80 : magnitude > f->largest)
    return f->infinite && magnitude == f->largest + 1 ? sign * HUGE_VAL : NAN;
  return sign * (exponent ? ldexp(part + (1 << f->mantissa), (int)exponent - 1) : part) * unit;
}

START_TEST(every_float8_code_widens_to_its_value) {
  const format *f = &formats[_i];
  _Alignas(16) uint8_t codes[256];
  _Alignas(16) float values[256];
  char kernel[32];
  set_up(0);
  for (int i = 0; i < 256; i++)
    codes[i] = (uint8_t)i;
  snprintf(kernel, sizeof kernel, "widen_%s", f->name);
  ck_assert_int_eq(run(kernel, codes, values, 256, 1, 16, 0), SUCCESS);
  for (unsigned i = 0; i < 256; i++) {
    double expected = value_of_code(f, i);
    ck_assert_msg(isnan(expected) ? isnan(values[i]) : (double)values[i] == expected, "%s 0x%02x is %g, expected %g",
                  f->name, i, (double)values[i], expected);
    ck_assert(isnan(expected) || !signbit(values[i]) == !signbit(expected));
  }
}
END_TEST

/* The nearest finite code, of two as near the even one; found by looking at them all. */
static unsigned nearest(const format *f, float value) {
  unsigned best = 0;
  if (isnan(value))
    return f->nan;
  for (unsigned code = 1; code <= f->largest; code++) {
    double further = fabs(value_of_code(f, code) - fabs((double)value)),
           near = fabs(value_of_code(f, best) - fabs((double)value));
    if (further < near || (further == near && code % 2 == 0))
      best = code;
  }
  if (fabs((double)value) > value_of_code(f, f->largest))
    best = f->largest;
  return (signbit(value) && !(f->fnuz && !best) ? 0x80 : 0) | best;
}

START_TEST(narrowing_to_float8_gives_the_nearest_and_stops_at_the_largest) {
  enum { N = 4096 };
  const format *f = &formats[_i];
  static float values[N];
  static uint8_t codes[N];
  char kernel[32];
  int n = 0;
  set_up(0);
  /* Each value, what lies half way to the next, and next to that; then what is out of the ordinary. */
  for (unsigned code = 0; code < f->largest; code++) {
    float low = (float)value_of_code(f, code), high = (float)value_of_code(f, code + 1), half = (low + high) / 2;
    const float some[] = {low, half, nextafterf(half, 0), nextafterf(half, INFINITY), -low, -half};
    memcpy(values + n, some, sizeof some);
    n += (int)(sizeof some / sizeof some[0]);
  }
  float most = (float)value_of_code(f, f->largest);
  const float odd[] = {most, most * 1.03f, most * 2, 3e38f,   INFINITY, -INFINITY,
                       NAN,  -NAN,         1e-30f,   -1e-30f, 1e-45f,   -0.0f};
  memcpy(values + n, odd, sizeof odd);
  n += (int)(sizeof odd / sizeof odd[0]);
  snprintf(kernel, sizeof kernel, "narrow_%s", f->name);
  ck_assert_int_eq(run(kernel, values, codes, n, (unsigned)(n + 255) / 256, 256, 0), SUCCESS);
  for (int i = 0; i < n; i++)
    ck_assert_msg(codes[i] == nearest(f, values[i]), "%s of %.9g is 0x%02x, expected 0x%02x", f->name,
                  (double)values[i], codes[i], nearest(f, values[i]));
}
END_TEST

/* The same as the host's own, which the CPU's kernels use. */
START_TEST(narrowing_to_e4m3fn_is_that_of_the_host) {
  enum { N = 1 << 16 };
  float *values = malloc(N * sizeof *values);
  uint8_t *codes = malloc(N);
  set_up(0);
  for (uint32_t i = 0; i < N; i++)
    values[i] = fl_bf16_to_float((uint16_t)i);
  ck_assert_int_eq(run("narrow_e4m3fn", values, codes, N, N / 256, 256, 0), SUCCESS);
  for (uint32_t i = 0; i < N; i++)
    ck_assert_msg(codes[i] == fl_float_to_e4m3fn(values[i]) || isnan(values[i]), "%.9g", (double)values[i]);
  free(values);
  free(codes);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- mathematics */

static const struct {
  const char *name;
  double (*exact)(double);
} functions[] = {{"expf", exp},   {"expm1f", expm1}, {"logf", log}, {"log1pf", log1p},
                 {"log2f", log2}, {"tanhf", tanh},   {"erff", erf}};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

/* How far the float is from the value, in units of its last place. */
static double units_off(float value, double exact) {
  int exponent;
  if (isnan(exact) || isnan(value))
    return isnan(exact) && isnan(value) ? 0 : HUGE_VAL;
  if (isinf((float)exact))
    return value == (float)exact ? 0 : HUGE_VAL;
  frexp(exact, &exponent);
  return fabs((double)value - exact) / ldexp(1, exponent < -125 ? -149 : exponent - 24);
}

/* Floats of all sizes, and each function at its limits. The kernels' tests take nothing more exact than 2 units. */
START_TEST(mathematical_functions_are_two_units_off_at_most) {
  enum { N = 1 << 16, STRIDE = 65521 };
  const float odd[] = {0,        -0.0f,    1,         -1,        INFINITY,   -INFINITY, NAN,      1e-45f, -1e-45f,
                       1e-38f,   88.722f,  88.723f,   88.73f,    -87.34f,    -103.97f,  -103.98f, 0.625f, 0.62499f,
                       1.41421f, 0.70710f, 0.999999f, 1.000001f, -0.999999f, 3.4e38f,   2,        0.5f};
  enum { N_ODD = sizeof odd / sizeof odd[0] };
  float *x = malloc(N * sizeof *x), *out = malloc(N * sizeof *out);
  char kernel[32];
  set_up(1);
  memcpy(x, odd, sizeof odd);
  for (uint32_t i = N_ODD; i < N; i++) {
    uint32_t bits = i * STRIDE;
    memcpy(&x[i], &bits, sizeof bits);
  }
  snprintf(kernel, sizeof kernel, "function_%s", functions[_i].name);
  ck_assert_int_eq(run(kernel, x, out, N, N / 256, 256, 0), SUCCESS);
  for (int i = 0; i < N; i++) {
    double exact = functions[_i].exact((double)x[i]), off = units_off(out[i], exact);
    ck_assert_msg(off <= 2, "%s(%.9g) is %.9g, %g units from %.9g", functions[_i].name, (double)x[i], (double)out[i],
                  off, exact);
  }
  free(x);
  free(out);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ threads */

START_TEST(a_block_adds_up_and_finds_the_largest) {
  float values[1000], out[2 * 1024];
  set_up(_i);
  for (int i = 0; i < 1000; i++)
    values[i] = (float)(i % 7) - 3;
  values[640] = 50;
  for (unsigned threads = (unsigned)warp; threads <= 1024; threads *= 2) {
    ck_assert_int_eq(run("reduce", values, out, 1000, 1, threads, 0), SUCCESS);
    for (unsigned t = 0; t < threads; t++)
      ck_assert(out[2 * t] == out[0] && out[2 * t + 1] == 50);
    double sum = 0;
    for (int i = 0; i < 1000; i++)
      sum += (double)values[i];
    ck_assert_double_eq((double)out[0], sum);
  }
}
END_TEST

START_TEST(a_maximum_with_nan_is_nan) {
  float values[100] = {0}, out[2 * 64];
  set_up(_i);
  values[77] = NAN;
  ck_assert_int_eq(run("reduce", values, out, 100, 1, 64, 0), SUCCESS);
  for (int t = 0; t < 64; t++)
    ck_assert(isnan(out[2 * t + 1]));
}
END_TEST

START_TEST(shuffles_move_values_between_the_lanes_of_a_warp) {
  double out[4 * 128];
  set_up(_i);
  ck_assert_int_eq(run("shuffle", NULL, out, 0, 1, 128, 0), SUCCESS);
  for (int t = 0; t < 128; t++) {
    int lane = t % warp, first = t - lane;
    ck_assert_double_eq(out[4 * t], lane < 2 ? t : t - 2);
    ck_assert_double_eq(out[4 * t + 1], lane >= warp - 2 ? t : t + 2);
    ck_assert_double_eq(out[4 * t + 2], first + (lane + 1) % warp);
    ck_assert_double_eq(out[4 * t + 3], first + (lane ^ 1));
  }
}
END_TEST

START_TEST(threads_exchange_through_shared_memory) {
  int in[200], out[200];
  set_up(_i);
  for (int i = 0; i < 200; i++)
    in[i] = i;
  ck_assert_int_eq(run("turn_around", in, out, 200, 1, 200, sizeof in), SUCCESS);
  for (int i = 0; i < 200; i++)
    ck_assert_int_eq(out[i], 199 - i);
}
END_TEST

START_TEST(shared_memory_begins_with_no_zeros) {
  unsigned char found = 0;
  set_up(_i);
  ck_assert_int_eq(run("look", NULL, &found, 0, 1, 1, 16), SUCCESS);
  ck_assert_uint_ne(found, 0);
}
END_TEST

START_TEST(every_block_runs_once) {
  int counted = 0;
  set_up(_i);
  ck_assert_int_eq(run("count_blocks", NULL, &counted, 0, 37, 64, 0), SUCCESS);
  ck_assert_int_eq(counted, 37);
}
END_TEST

START_TEST(threads_that_wait_for_each_other_for_ever_are_found) {
  int out = 0;
  set_up(_i);
  ck_assert_int_eq(run("wait_for_ever", NULL, &out, 0, 1, 64, 0), LAUNCH_FAILURE);
  ck_contains(stand_in_log(), "failed wait_for_ever: threads of a block wait for each other for ever");
}
END_TEST

START_TEST(more_threads_than_a_kernel_is_for_are_found) {
  int counted = 0;
  set_up(_i);
  ck_assert_int_eq(run("count_blocks", NULL, &counted, 0, 1, 128, 0), LAUNCH_FAILURE);
  ck_assert_int_eq(counted, 0);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, every_float8_code_widens_to_its_value, 0, N_FORMATS);
  tcase_add_loop_test(tests, narrowing_to_float8_gives_the_nearest_and_stops_at_the_largest, 0, N_FORMATS);
  tcase_add_test(tests, narrowing_to_e4m3fn_is_that_of_the_host);
  tcase_add_loop_test(tests, mathematical_functions_are_two_units_off_at_most, 0, N_FUNCTIONS);
  tcase_add_loop_test(tests, a_block_adds_up_and_finds_the_largest, 0, 2);
  tcase_add_loop_test(tests, a_maximum_with_nan_is_nan, 0, 2);
  tcase_add_loop_test(tests, shuffles_move_values_between_the_lanes_of_a_warp, 0, 2);
  tcase_add_loop_test(tests, threads_exchange_through_shared_memory, 0, 2);
  tcase_add_loop_test(tests, shared_memory_begins_with_no_zeros, 0, 2);
  tcase_add_loop_test(tests, every_block_runs_once, 0, 2);
  tcase_add_loop_test(tests, threads_that_wait_for_each_other_for_ever_are_found, 0, 2);
  tcase_add_loop_test(tests, more_threads_than_a_kernel_is_for_are_found, 0, 2);
}

int main(void) {
  return run_suite("gpu_grid", add_tests, 30);
}
