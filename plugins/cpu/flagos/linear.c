/* Linear layers by blocked products, over as many rows at once as the strides of x and out allow. */
#include "plugins/cpu/linear.h"
#include "plugins/cpu/flagos/matmul.h"

#include <stdlib.h>

static fl_status run(fl_call *call, const cpu_linear *linear, bool skip_bias_add) {
  cpu_linear_walk walk = cpu_linear_begin(linear->x, linear->out);
  cpu_matrix weight = cpu_matrix_of(linear->weight);
  cpu_product product = {.m = walk.m,
                         .n = linear->weight->shape[0],
                         .k = linear->weight->shape[1],
                         .a = {.dtype = weight.dtype, .stride = walk.strides[0]},
                         .b = weight,
                         .bias_dtype = weight.dtype,
                         .bias = linear->bias && !skip_bias_add ? fl_data(linear->bias) : NULL,
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
  }
  free(scratch);
  return FL_OK;
}

static cpu_linear arguments(const fl_call *call, uint32_t out) {
  return (cpu_linear){cpu_tensor(call, 0), cpu_tensor(call, 1), cpu_tensor(call, 2), cpu_tensor(call, out)};
}

/* replicated_linear(x, weight, bias, skip_bias_add) -> out */
fl_status cpu_flagos_replicated_linear(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 4);
  (void)self;
  return run(call, &linear, call->values[3].v.b);
}

/* column_parallel_linear(x, weight, bias, gather_output, skip_bias_add) -> out */
fl_status cpu_flagos_column_parallel_linear(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 5);
  (void)self;
  return run(call, &linear, call->values[4].v.b);
}

/* row_parallel_linear(x, weight, bias, input_is_parallel, reduce_results, skip_bias_add) -> out */
fl_status cpu_flagos_row_parallel_linear(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 6);
  (void)self;
  return run(call, &linear, call->values[5].v.b);
}

/* parallel_lm_head(hidden_states, weight, bias) -> logits */
fl_status cpu_flagos_parallel_lm_head(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 3);
  (void)self;
  return run(call, &linear, false);
}
