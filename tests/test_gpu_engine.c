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

static void call_both(fl_host *host, const char *op, twin *t) {
  call_side(host, op, t, 0);
  call_side(host, op, t, 1);
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

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, layer_norm_of_long_rows_far_from_0, 0, 6);
}

int main(void) {
  return run_suite("gpu_engine", add_tests, 60);
}
