/* Linear layers by blocked products: see linear.h. */
#include "plugins/cpu/flagos/linear.h"

fl_status cpu_flagos_linear_run(fl_call *call, const cpu_linear *linear, cpu_linear_then then) {
  cpu_linear_walk walk = cpu_linear_begin(linear->x, linear->out);
  cpu_matrix weight = cpu_matrix_of(linear->weight);
  cpu_product product = {.m = walk.m,
                         .n = linear->out->shape[linear->out->ndim - 1],
                         .k = linear->weight->shape[1],
                         .a = {.dtype = weight.dtype, .stride = walk.strides[0]},
                         .b = weight,
                         .bias_dtype = weight.dtype,
                         .bias = linear->bias ? fl_data(linear->bias) : NULL,
                         .out = {.dtype = weight.dtype, .stride = walk.strides[1]}};
  fl_status status = cpu_linear_check(call, linear);
  if (status || !walk.matrices.left)
    return status;
  for (cpu_rows *matrices = &walk.matrices; matrices->left && !status; cpu_rows_next(matrices)) {
    product.a.data = matrices->at[0];
    product.out.data = matrices->at[1];
    status = cpu_product_share(&product);
    if (!status && then)
      status = then(call, &product);
  }
  return status == FL_ENOMEM ? fl_fail(call, status, "out of memory") : status;
}

static fl_status run(void *self, fl_call *call) {
  const cpu_linear linear = cpu_linear_read(call);
  (void)self;
  return cpu_flagos_linear_run(call, &linear, NULL);
}

static const fl_impl ops[] = {
    {.op_name = "replicated_linear", CPU_FLAGOS, .fn = run},
    {.op_name = "column_parallel_linear", CPU_FLAGOS, .fn = run},
    {.op_name = "row_parallel_linear", CPU_FLAGOS, .fn = run},
    {.op_name = "parallel_lm_head", CPU_FLAGOS, .fn = run},
};
OP_LIST(ops);
