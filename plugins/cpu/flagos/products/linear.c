/* Linear layers by blocked products: see linear.h. */
#include "plugins/cpu/flagos/products/linear.h"

static cpu_product product_of(DLTensor *weight, const DLTensor *out) {
  cpu_matrix b = cpu_matrix_of(weight);
  return (cpu_product){.n = out->shape[out->ndim - 1], .k = weight->shape[1], .b = b};
}

/* The weight alone counts: the same serves any number of rows. */
size_t cpu_flagos_linear_prepared_size(void *self, const fl_call *call) {
  (void)self;
  DLTensor *weight = cpu_tensor(call, 1);
  if (cpu_dtype_of(weight) == CPU_OTHER)
    return 0;
  const cpu_product product = product_of(weight, cpu_tensor(call, call->count - 1));
  return cpu_product_packed_size(&product);
}

fl_status cpu_flagos_linear_prepare(void *self, fl_call *call, void *memory, size_t size) {
  (void)self, (void)size;
  const cpu_product product = product_of(cpu_tensor(call, 1), cpu_tensor(call, call->count - 1));
  return cpu_product_pack(&product, memory);
}

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
                         .out = {.dtype = weight.dtype, .stride = walk.strides[1]},
                         .packed = fl_prepared_data(call, cpu_flagos_linear_prepare, NULL)};
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
    {.op_name = "replicated_linear", CPU_FLAGOS, CPU_LINEAR_PREPARES, .fn = run},
    {.op_name = "column_parallel_linear", CPU_FLAGOS, CPU_LINEAR_PREPARES, .fn = run},
    {.op_name = "row_parallel_linear", CPU_FLAGOS, CPU_LINEAR_PREPARES, .fn = run},
    {.op_name = "parallel_lm_head", CPU_FLAGOS, CPU_LINEAR_PREPARES, .fn = run},
};
OP_LIST(ops);
