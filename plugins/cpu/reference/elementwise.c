/* Elementwise ops of two tensors: what vLLM's models write as x + y and x * sigmoid(gate). */
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/rows.h"

#include <math.h>

/* add(x, y) -> out; in place is fine. */
static fl_status add(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *const tensors[] = {x, cpu_tensor(call, 1), cpu_tensor(call, 2)};
  cpu_dtype dtype = cpu_dtype_of(x);
  (void)self;
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  for (cpu_rows rows = cpu_rows_begin(3, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t i = 0; i < x->shape[x->ndim - 1]; i++)
      store(dtype, rows.at[2], i, load(dtype, rows.at[0], i) + load(dtype, rows.at[1], i));
  return FL_OK;
}

/* sigmoid_mul(x, gate) -> out; in place is fine. */
static fl_status sigmoid_mul(void *self, fl_call *call) {
  DLTensor *x = cpu_tensor(call, 0), *gate = cpu_tensor(call, 1), *const tensors[] = {x, gate, cpu_tensor(call, 2)};
  cpu_dtype dtype = cpu_dtype_of(x);
  int64_t step = gate->shape[gate->ndim - 1] == 1 ? 0 : 1;
  (void)self;
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "x");
  for (cpu_rows rows = cpu_rows_begin(3, tensors); rows.left; cpu_rows_next(&rows))
    for (int64_t i = 0; i < x->shape[x->ndim - 1]; i++) {
      float share = round_to(dtype, 1.0f / (1.0f + expf(-load(dtype, rows.at[1], i * step))));
      store(dtype, rows.at[2], i, load(dtype, rows.at[0], i) * share);
    }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "add", CPU_REFERENCE, .fn = add},
    {.op_name = "sigmoid_mul", CPU_REFERENCE, .fn = sigmoid_mul},
};
OP_LIST(ops);
