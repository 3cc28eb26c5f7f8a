/*
 * GPU kernels of an engine's operators, at sizes and with contents that generated calls do not have. What the CPU
 * refuses, indices outside of a tensor, cannot be checked before a kernel runs: on the device they are left out.
 */
#include "tests/gpu.h"
#include "tests/kernels.h"

#include <math.h>

enum { MOST = 8 };

/* The values of a call, and the device's: tensors with the same contents. */
typedef struct twin {
  uint32_t n;
  owned *tensors[MOST], *copies[MOST]; /* NULL: the value is not a tensor */
  fl_value values[2][MOST];
} twin;

static owned *add(twin *t, owned *tensor) {
  ck_assert_uint_lt(t->n, MOST);
  t->values[0][t->n] = value_of(tensor);
  t->tensors[t->n++] = tensor;
  return tensor;
}

static void add_value(twin *t, fl_value value) {
  add(t, NULL);
  t->values[0][t->n - 1] = value;
}

/* When the CPU's tensors are as they should be. */
static void copy_to(twin *t, const gpu_setup *setup) {
  for (uint32_t i = 0; i < t->n; i++) {
    owned *from = t->tensors[i];
    t->values[1][i] = t->values[0][i];
    if (!from)
      continue;
    t->copies[i] = make(from->tensor.dtype, from->tensor.ndim, from->shape, 0);
    memcpy(t->copies[i]->tensor.data, from->tensor.data, from->bytes);
    t->copies[i]->tensor.device = (DLDevice){(DLDeviceType)setup->device_type, 0};
    t->values[1][i] = fl_tensor(&t->copies[i]->tensor);
  }
}

static void call_side(fl_host *host, const char *op, twin *t, int side) {
  fl_call call = {.size = sizeof call, .count = t->n, .values = t->values[side]};
  ck_ok(fl_call_op(host, op, &call));
}

/* Whichever of the device's threads comes first. */
static void call_both(fl_host *host, const char *op, twin *t) {
  static int calls;
  stand_in_set(calls++ % 2 ? "" : "backwards=1");
  call_side(host, op, t, 0);
  call_side(host, op, t, 1);
}

/* Bit for bit. */
static void check_results(const twin *t, uint32_t first, uint32_t n) {
  for (uint32_t i = first; i < first + n; i++)
    check_same_elements(&t->tensors[i]->tensor, t->copies[i]);
}

static void free_twin(twin *t) {
  for (uint32_t i = 0; i < t->n; i++)
    UNMAKE(t->tensors[i], t->copies[i]);
}

/* ----------------------------------------------------------------------------------------------------------- norms */

/* More than a block's registers hold, so that a row is read again; far from 0, where a mean that is off shows. */
START_TEST(layer_norm_of_long_rows_far_from_0) {
  enum { ROWS = 2, COLUMNS = 20003, FAR = 200, OUT = 4 };
  const gpu_setup *setup = &gpu_setups[_i % 2]; /* warps of 32 and of 64 */
  fl_host *host = gpu_host(setup);
  const DLDataType dtype = floats[_i / 2];
  for (int64_t columns = COLUMNS; columns > COLUMNS - 6; columns -= 3) { /* rows that are aligned, too */
    twin t = {.n = 0};
    owned *x = add(&t, make_bounded(dtype, SHAPE(ROWS, columns), 0, 1, 0.5));
    for (int64_t i = 0; i < ROWS * columns; i++)
      set(&x->tensor, i, FAR + get(&x->tensor, i));
    add_value(&t, fl_none());
    add(&t, make_filled(float32, SHAPE(columns), 0, 2));
    add_value(&t, fl_float(1e-5));
    add(&t, make_constant(dtype, SHAPE(ROWS, columns), 0, 0));
    copy_to(&t, setup);
    call_both(host, "layer_norm", &t);
    check_close("layer_norm", &t.copies[OUT]->tensor, &t.tensors[OUT]->tensor);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* Of rows that a block reads again: of zeros, with NaN, beyond the bound; empty ones have scales, too. */
START_TEST(norm_of_long_rows_with_a_scale_for_each) {
  enum { ROWS = 4, BOUND = 4, RESIDUAL, Q, SCALE_OUT };
  static const int columns[] = {20003, 20000, 40, 0};
  static const char *const types[] = {"float8_e4m3fn", "int8"};
  const gpu_setup *setup = &gpu_setups[_i % 2]; /* warps of 32 and of 64 */
  fl_host *host = gpu_host(setup);
  const DLDataType dtype = floats[_i / 2];
  for (int run = 0; run < 4 * 2 * 2; run++) {
    int n = columns[run / 4], is_int8 = run % 2, with_residual = run / 2 % 2;
    twin t = {.n = 0};
    owned *x = add(&t, make_filled(dtype, SHAPE(ROWS, n), 0, 1));
    add(&t, make_filled(dtype, SHAPE(n), 0, 2));
    add_value(&t, fl_float(1e-5));
    add_value(&t, fl_string(types[is_int8]));
    add(&t, is_int8 ? NULL : make_constant(float32, SHAPE(1), 0, 2));
    owned *residual = add(&t, with_residual ? make_filled(dtype, SHAPE(ROWS, n), 0, 3) : NULL);
    for (int i = 0; i < n; i++) {
      set(&x->tensor, i, 0);
      if (residual)
        set(&residual->tensor, i, 0);
    }
    if (n)
      set(&x->tensor, 2 * n - 1, (double)__builtin_nanf(""));
    add(&t, make_constant(is_int8 ? (DLDataType){kDLInt, 8, 1} : float8, SHAPE(ROWS, n), 0, 55));
    add(&t, make_constant(float32, SHAPE(ROWS, 1), 0, 5));
    copy_to(&t, setup);
    call_both(host, "rms_norm_dynamic_per_token_quant", &t);
    check_close("rms_norm_dynamic_per_token_quant", &t.copies[Q]->tensor, &t.tensors[Q]->tensor);
    check_close("rms_norm_dynamic_per_token_quant", &t.copies[SCALE_OUT]->tensor, &t.tensors[SCALE_OUT]->tensor);
    if (residual)
      check_close("rms_norm_dynamic_per_token_quant", &t.copies[RESIDUAL]->tensor, &residual->tensor);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- caches */

enum { BLOCKS = 3, BLOCK = 4, SLOTS = BLOCKS * BLOCK, HEADS = 2 };

/* What is not valid comes to the device alone: the CPU's slots say that those tokens are skipped. Far ones lie beyond
 * what 32 bits count. */
static void break_slots(twin *t, uint32_t slots, int n) {
  static const int64_t wrong[] = {SLOTS, INT64_C(1) << 40, INT64_MAX, INT64_MIN, SLOTS + 1};
  for (int i = 0; i < n; i++)
    if (i % 7 == 3) {
      int64_t slot = wrong[i / 7 % 5];
      set(&t->tensors[slots]->tensor, i, -1);
      if (t->tensors[slots]->tensor.dtype.bits == 64)
        ((int64_t *)t->copies[slots]->tensor.data)[i] = slot;
      else
        ((int32_t *)t->copies[slots]->tensor.data)[i] = i % 2 ? SLOTS : INT32_MIN;
    }
}

/* So many tokens that every slot occurs several times, within a block of threads and in several. */
static owned *many_slots(int run, int tokens) {
  owned *slots = make(run % 4 < 2 ? int64 : int32, SHAPE(tokens), 0);
  for (int i = 0; i < tokens; i++)
    set(&slots->tensor, i, i % 5 == 4 ? -1 : i * i % 11);
  return slots;
}

/* Numbers that float8 does not hold, too. */
static owned *make_rows(DLDataType dtype, int ndim, const int64_t *shape, uint32_t seed) {
  owned *rows = make_bounded(dtype, ndim, shape, 0, seed, 500);
  set(&rows->tensor, 1, INFINITY);
  set(&rows->tensor, count(&rows->tensor) - 2, (double)__builtin_nanf(""));
  return rows;
}

/* Copied and narrowed, of rows that are aligned and that are not; with a scale for the tensor, or for each head. */
START_TEST(reshape_and_cache_leaves_the_last_token_of_a_slot_and_nothing_else) {
  enum { KEY_CACHE = 2, SLOT_MAPPING = 4 };
  static const int sizes[] = {32, 5}, counts[] = {1, 40, 1500};
  const gpu_setup *setup = &gpu_setups[_i % 2]; /* warps of 32 and of 64 */
  fl_host *host = gpu_host(setup);
  for (int run = 0; run < 3 * 2 * 2 * 3; run += sample()) {
    DLDataType dtype = floats[run % 3], type = run / 3 % 2 ? float8 : dtype;
    int size = sizes[run / 6 % 2], tokens = counts[run / 12], scales = run / 3 % 2 ? 1 + run / 6 % 2 : 0;
    twin t = {.n = 0};
    add(&t, make_rows(dtype, SHAPE(tokens + 3, HEADS, size), 1));
    add(&t, make_rows(dtype, SHAPE(tokens + 3, HEADS, size), 2));
    add(&t, make_constant(type, SHAPE(BLOCKS, BLOCK, HEADS, size), 0, 7));
    add(&t, make_constant(type, SHAPE(BLOCKS, BLOCK, HEADS, size), 0, 9));
    add(&t, many_slots(run, tokens));
    for (int i = 0; i < 2; i++)
      add(&t, scales ? make_filled(float32, SHAPE(scales), 0, 3 + (uint32_t)i) : NULL);
    if (!scales)
      t.values[0][5] = t.values[0][6] = fl_none();
    copy_to(&t, setup);
    break_slots(&t, SLOT_MAPPING, tokens);
    call_both(host, "reshape_and_cache", &t);
    check_results(&t, KEY_CACHE, 2);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(concat_and_cache_mla_leaves_the_last_token_of_a_slot_and_nothing_else) {
  enum { KV_CACHE = 2, SLOT_MAPPING = 3 };
  static const int ranks[] = {32, 5}, counts[] = {1, 40, 1500};
  const gpu_setup *setup = &gpu_setups[_i % 2]; /* warps of 32 and of 64 */
  fl_host *host = gpu_host(setup);
  for (int run = 0; run < 3 * 2 * 3; run += sample()) {
    DLDataType dtype = floats[run % 3];
    int rank = ranks[run / 3 % 2], tokens = counts[run / 6], rope = 8;
    twin t = {.n = 0};
    add(&t, make_rows(dtype, SHAPE(tokens + 3, rank), 1));
    add(&t, run % 2 ? make_rows(dtype, SHAPE(tokens + 3, rope), 2) : make_rows(dtype, SHAPE(tokens + 3, 1, rope), 2));
    add(&t, make_constant(dtype, SHAPE(BLOCKS, BLOCK, rank + rope), 0, 7));
    add(&t, many_slots(run, tokens));
    copy_to(&t, setup);
    break_slots(&t, SLOT_MAPPING, tokens);
    call_both(host, "concat_and_cache_mla", &t);
    check_results(&t, KV_CACHE, 1);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------ int8 */

enum { KINDS = 8 };

/* A row of zeros, of one number, with NaN, with an infinity, around the ends of int8, far from 0, negative, usual. */
static void fill_row(DLTensor *x, int row, int64_t columns) {
  for (int64_t i = 0; i < columns; i++) {
    double usual = get(x, row * columns + i);
    const double kinds[KINDS] = {0, -3, usual, usual, 127.5 - (double)(i % 257), usual + 1e4, -1 - fabs(usual), usual};
    set(x, row * columns + i, kinds[row]);
  }
  if (row == 2 || row == 3)
    set(x, row * columns + columns / 2, row == 2 ? (double)__builtin_nanf("") : -INFINITY);
}

/* With a given scale of 1 the elements of row 4 lie between two codes; zero points that no code is left of. */
START_TEST(int8_codes_scales_and_zero_points_are_those_of_the_cpu) {
  enum { Q = 4, SCALE_OUT, AZP_OUT };
  static const int columns[] = {1, 48, 2101};
  static const int64_t azps[] = {0, 17, INT32_MIN, INT32_MAX};
  enum { COMPUTED = 2, MODES = COMPUTED + 4 + 1 }; /* symmetric and not; given with a zero point, and without */
  const gpu_setup *setup = &gpu_setups[_i % 2];    /* warps of 32 and of 64 */
  fl_host *host = gpu_host(setup);
  for (int run = 0; run < 3 * 3 * MODES; run += sample()) {
    int mode = run % MODES, n = columns[run / MODES % 3], steps = run / MODES / 3;
    bool given = mode >= COMPUTED, shifted = given && mode < COMPUTED + 4, symmetric = !shifted && mode != 1;
    twin t = {.n = 0};
    owned *x = add(&t, make_filled(floats[steps], SHAPE(KINDS, n), 0, 1));
    for (int row = 0; row < KINDS; row++)
      fill_row(&x->tensor, row, n);
    add(&t, given ? make_constant(float32, SHAPE(1), 0, 1) : NULL);
    add(&t, shifted ? make_indices(int32, SHAPE(1), &azps[mode - COMPUTED]) : NULL);
    add_value(&t, fl_bool(symmetric));
    add(&t, make_constant((DLDataType){kDLInt, 8, 1}, SHAPE(KINDS, n), 0, 55));
    add(&t, given ? make_constant(float32, SHAPE(1), 0, 5) : make_constant(float32, SHAPE(KINDS, 1), 0, 5));
    if (symmetric)
      add(&t, NULL);
    else
      add(&t, given ? make_constant(int32, SHAPE(1), 0, 5) : make_constant(int32, SHAPE(KINDS, 1), 0, 5));
    copy_to(&t, setup);
    call_both(host, "scaled_int8_quant", &t);
    check_results(&t, Q, 1);
    check_close("scaled_int8_quant", &t.copies[SCALE_OUT]->tensor, &t.tensors[SCALE_OUT]->tensor); /* NaN is NaN */
    check_results(&t, AZP_OUT, symmetric ? 0 : 1);
    free_twin(&t);
  }
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, layer_norm_of_long_rows_far_from_0, 0, 6);
  tcase_add_loop_test(tests, norm_of_long_rows_with_a_scale_for_each, 0, 6);
  tcase_add_loop_test(tests, reshape_and_cache_leaves_the_last_token_of_a_slot_and_nothing_else, 0, 2);
  tcase_add_loop_test(tests, int8_codes_scales_and_zero_points_are_those_of_the_cpu, 0, 2);
  tcase_add_loop_test(tests, concat_and_cache_mla_leaves_the_last_token_of_a_slot_and_nothing_else, 0, 2);
}

int main(void) {
  return run_suite("gpu_engine", add_tests, 60);
}
