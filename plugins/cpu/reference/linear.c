/* Linear layers as PyTorch computes them: sum and bias, rounded once. */
#include "plugins/cpu/linear.h"
#include "plugins/cpu/reference/matmul.h"

static fl_status run(fl_call *call, const cpu_linear *linear, bool skip_bias_add) {
  cpu_matrix weight = cpu_matrix_of(linear->weight), x = {.dtype = weight.dtype}, out = x;
  const void *bias = linear->bias && !skip_bias_add ? fl_data(linear->bias) : NULL;
  DLTensor *const tensors[] = {linear->x, linear->out};
  fl_status status = cpu_linear_check(call, linear);
  if (status)
    return status;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows)) {
    x.data = rows.at[0];
    out.data = rows.at[1];
    cpu_reference_linear(1, linear->weight->shape[0], linear->weight->shape[1], x, weight, weight.dtype, bias, out);
  }
  return FL_OK;
}

static cpu_linear arguments(const fl_call *call, uint32_t out) {
  return (cpu_linear){cpu_tensor(call, 0), cpu_tensor(call, 1), cpu_tensor(call, 2), cpu_tensor(call, out)};
}

/* replicated_linear(x, weight, bias, skip_bias_add) -> out */
fl_status cpu_reference_replicated_linear(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 4);
  (void)self;
  return run(call, &linear, call->values[3].v.b);
}

/* column_parallel_linear(x, weight, bias, gather_output, skip_bias_add) -> out */
fl_status cpu_reference_column_parallel_linear(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 5);
  (void)self;
  return run(call, &linear, call->values[4].v.b);
}

/* row_parallel_linear(x, weight, bias, input_is_parallel, reduce_results, skip_bias_add) -> out */
fl_status cpu_reference_row_parallel_linear(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 6);
  (void)self;
  return run(call, &linear, call->values[5].v.b);
}

/* parallel_lm_head(hidden_states, weight, bias) -> logits */
fl_status cpu_reference_parallel_lm_head(void *self, fl_call *call) {
  cpu_linear linear = arguments(call, 3);
  (void)self;
  return run(call, &linear, false);
}
