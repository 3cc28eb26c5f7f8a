/* Calls on the CPU and on a GPU plugin's stand-in: see gpu_twin.h. */
#include "tests/gpu_twin.h"

#include <stdarg.h>

void add_value(twin *t, fl_value value) {
  ck_assert_uint_lt(t->n, TWIN_MOST);
  t->values[0][t->n] = t->values[1][t->n] = value;
  t->n++;
}

DLTensor *add_tensor(twin *t, DLDataType dtype, int ndim, ...) {
  int64_t shape[4];
  va_list sizes;
  va_start(sizes, ndim);
  for (int d = 0; d < ndim; d++)
    shape[d] = va_arg(sizes, int);
  va_end(sizes);
  owned *made = make(dtype, ndim, shape, 0);
  memset(made->tensor.data, 0, made->bytes);
  t->tensors[0][t->n] = made;
  add_value(t, fl_tensor(&made->tensor));
  return &made->tensor;
}

void spread(DLTensor *tensor, uint32_t seed, double low, double high) {
  fill(tensor, seed);
  for (int64_t i = 0; i < count(tensor); i++)
    set(tensor, i, low + (get(tensor, i) + 4) / 8 * (high - low));
}

void put(DLTensor *tensor, int n, ...) {
  va_list numbers;
  va_start(numbers, n);
  ck_assert_int_eq(n, count(tensor));
  for (int i = 0; i < n; i++)
    set(tensor, i, va_arg(numbers, int));
  va_end(numbers);
}

void mirror(twin *t, const gpu_setup *setup) {
  for (uint32_t i = 0; i < t->n; i++) {
    owned *from = t->tensors[0][i];
    if (!from)
      continue;
    owned *to = make(from->tensor.dtype, from->tensor.ndim, from->shape, 0);
    memcpy(to->tensor.data, from->tensor.data, from->bytes);
    to->tensor.device = (DLDevice){(DLDeviceType)setup->device_type, 0};
    t->tensors[1][i] = to;
    t->values[1][i] = fl_tensor(&to->tensor);
  }
}

void put_on_device(twin *t, uint32_t argument, int64_t i, double value) {
  set(&t->tensors[1][argument]->tensor, i, value);
}

void check_twin(fl_host *host, twin *t, uint32_t first, void *workspace, size_t size) {
  for (int side = 0; side < 2; side++) {
    fl_call call = {.size = sizeof call, .count = t->n, .values = t->values[side]};
    if (side) {
      call.workspace = workspace;
      call.workspace_size = size;
    }
    ck_ok(fl_call_op(host, t->op, &call));
  }
  for (uint32_t i = first; i < t->n; i++)
    if (t->tensors[0][i])
      check_close(t->op, &t->tensors[1][i]->tensor, &t->tensors[0][i]->tensor);
}

void free_twin(twin *t) {
  for (uint32_t i = 0; i < t->n; i++)
    for (int side = 0; side < 2; side++)
      unmake(t->tensors[side][i]);
}

bool was_launched(const char *kernel, DLDataType dtype) {
  char line[96];
  snprintf(line, sizeof line, "launch %s_%s grid", kernel,
           dtype.code == kDLBfloat ? "bf16"
           : dtype.bits == 16      ? "f16"
                                   : "f32");
  return strstr(stand_in_log(), line) != NULL;
}
