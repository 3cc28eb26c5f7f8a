/* logits_processor as vLLM's LogitsProcessor computes it: every step rounds to the type of the logits. */
#include "plugins/cpu/linear.h"
#include "plugins/cpu/reference/matmul.h"
#include "plugins/cpu/support/element.h"

#include <math.h>

enum { HIDDEN_STATES, WEIGHT, BIAS, ORG_VOCAB_SIZE, SOFT_CAP, SCALE, LOGITS };

static float processed(cpu_dtype dtype, const fl_value *soft_cap, double scale, float logit) {
  if (soft_cap->type == FL_FLOAT) {
    float cap = (float)soft_cap->v.f;
    logit = round_to(dtype, logit / cap);
    logit = round_to(dtype, tanhf(logit));
    logit = round_to(dtype, logit * cap);
  }
  return scale == 1 ? logit : round_to(dtype, logit * (float)scale);
}

static fl_status logits_processor(void *self, fl_call *call) {
  cpu_linear linear = {cpu_tensor(call, HIDDEN_STATES), cpu_tensor(call, WEIGHT), cpu_tensor(call, BIAS),
                       cpu_tensor(call, LOGITS)};
  cpu_matrix weight = cpu_matrix_of(linear.weight), x = {.dtype = weight.dtype}, out = x;
  const void *bias = linear.bias ? fl_data(linear.bias) : NULL;
  int64_t vocabulary = linear.out->shape[linear.out->ndim - 1];
  DLTensor *const tensors[] = {linear.x, linear.out};
  fl_status status = cpu_linear_check(call, &linear);
  (void)self;
  if (status)
    return status;
  for (cpu_rows rows = cpu_rows_begin(2, tensors); rows.left; cpu_rows_next(&rows)) {
    x.data = rows.at[0];
    out.data = rows.at[1];
    cpu_reference_linear(1, vocabulary, linear.weight->shape[1], x, weight, weight.dtype, bias, out);
    for (int64_t i = 0; i < vocabulary; i++)
      store(out.dtype, out.data, i,
            processed(out.dtype, &call->values[SOFT_CAP], call->values[SCALE].v.f, load(out.dtype, out.data, i)));
  }
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "logits_processor", CPU_REFERENCE, .fn = logits_processor},
};
OP_LIST(ops);
