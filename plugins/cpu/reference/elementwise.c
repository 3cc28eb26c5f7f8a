/* Elementwise ops of several tensors: what vLLM's models write as x + y. */
#include "plugins/cpu/reference/element.h"
#include "plugins/cpu/rows.h"

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

static const fl_impl ops[] = {{.op_name = "add", CPU_REFERENCE, .fn = add}};
OP_LIST(ops);
