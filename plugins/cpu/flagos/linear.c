/* Linear layers by blocked products: see linear.h. */
#include "plugins/cpu/flagos/linear.h"

#include <stdlib.h>

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
  float *scratch = cpu_floats_alloc(cpu_product_scratch(product.m, product.n, product.k));
  if (!scratch)
    return fl_fail(call, FL_ENOMEM, "out of memory");
  for (cpu_rows *matrices = &walk.matrices; matrices->left; cpu_rows_next(matrices)) {
    product.a.data = matrices->at[0];
    product.out.data = matrices->at[1];
    cpu_product_run(&product, scratch);
    if (then)
      then(call, &product);
  }
  free(scratch);
  return FL_OK;
}

static fl_status run(fl_call *call, bool skip_bias_add, uint32_t out) {
  const cpu_linear linear = {cpu_tensor(call, 0), cpu_tensor(call, 1), skip_bias_add ? NULL : cpu_tensor(call, 2),
                             cpu_tensor(call, out)};
  return cpu_flagos_linear_run(call, &linear, NULL);
}

/* replicated_linear(x, weight, bias, skip_bias_add) -> out */
fl_status cpu_flagos_replicated_linear(void *self, fl_call *call) {
  (void)self;
  return run(call, call->values[3].v.b, 4);
}

/* column_parallel_linear(x, weight, bias, gather_output, skip_bias_add) -> out */
fl_status cpu_flagos_column_parallel_linear(void *self, fl_call *call) {
  (void)self;
  return run(call, call->values[4].v.b, 5);
}

/* row_parallel_linear(x, weight, bias, input_is_parallel, reduce_results, skip_bias_add) -> out */
fl_status cpu_flagos_row_parallel_linear(void *self, fl_call *call) {
  (void)self;
  return run(call, call->values[5].v.b, 6);
}

/* parallel_lm_head(hidden_states, weight, bias) -> logits */
fl_status cpu_flagos_parallel_lm_head(void *self, fl_call *call) {
  (void)self;
  return run(call, false, 3);
}
