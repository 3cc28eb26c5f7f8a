/* Linear layers as PyTorch computes them: sum and bias, rounded once. */
#include "plugins/cpu/linear.h"
#include "plugins/cpu/reference/matmul.h"

static fl_status run(void *self, fl_call *call) {
  cpu_linear linear = cpu_linear_read(call);
  cpu_matrix weight = cpu_matrix_of(linear.weight), x = {.dtype = weight.dtype}, out = x;
  const void *bias = linear.bias ? fl_data(linear.bias) : NULL;
  DLTensor *const tensors[] = {linear.x, linear.out};
  fl_status status = cpu_linear_check(call, &linear);
  (void)self;
  if (status)
    return status;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows)) {
    x.data = rows.at[0];
    out.data = rows.at[1];
    cpu_reference_linear(1, linear.weight->shape[0], linear.weight->shape[1], x, weight, weight.dtype, bias, out);
  }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "replicated_linear", CPU_REFERENCE, .fn = run},
    {.op_name = "column_parallel_linear", CPU_REFERENCE, .fn = run},
    {.op_name = "row_parallel_linear", CPU_REFERENCE, .fn = run},
    {.op_name = "parallel_lm_head", CPU_REFERENCE, .fn = run},
};
OP_LIST(ops);
