/* logits_processor: a blocked product, then cap and scale over blocks of the result while they are in the cache. */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/linear.h"

#include <stdlib.h>

enum { HIDDEN_STATES, WEIGHT, BIAS, ORG_VOCAB_SIZE, SOFT_CAP, SCALE, LOGITS };

static void cap_block(const cpu_block_type *type, float cap, float *logits, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    logits[i] = logits[i] / cap;
  type->round(logits, n);
  for (int64_t i = 0; i < n; i++)
    logits[i] = vector_tanh(logits[i]);
  type->round(logits, n);
  for (int64_t i = 0; i < n; i++)
    logits[i] *= cap;
  type->round(logits, n);
}

static void process_row(const fl_call *call, cpu_dtype dtype, void *row, int64_t vocabulary) {
  const cpu_block_type *type = &cpu_block_types[dtype];
  const fl_value *soft_cap = &call->values[SOFT_CAP];
  float block[CPU_BLOCK], scale = (float)call->values[SCALE].v.f;
  for (int64_t first = 0; first < vocabulary; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(vocabulary - first);
    type->load(block, row, first, n);
    if (soft_cap->type == FL_FLOAT)
      cap_block(type, (float)soft_cap->v.f, block, n);
    for (int64_t i = 0; i < n; i++)
      block[i] *= scale;
    type->store(row, first, block, n);
  }
}

fl_status cpu_flagos_logits_processor(void *self, fl_call *call) {
  cpu_linear linear = {cpu_tensor(call, HIDDEN_STATES), cpu_tensor(call, WEIGHT), cpu_tensor(call, BIAS),
                       cpu_tensor(call, LOGITS)};
  cpu_linear_walk walk = cpu_linear_begin(linear.x, linear.out);
  cpu_matrix weight = cpu_matrix_of(linear.weight);
  bool changes = call->values[SOFT_CAP].type == FL_FLOAT || call->values[SCALE].v.f != 1;
  cpu_product product = {.m = walk.m,
                         .n = linear.out->shape[linear.out->ndim - 1],
                         .k = linear.weight->shape[1],
                         .a = {.dtype = weight.dtype, .stride = walk.strides[0]},
                         .b = weight,
                         .bias_dtype = weight.dtype,
                         .bias = linear.bias ? fl_data(linear.bias) : NULL,
                         .out = {.dtype = weight.dtype, .stride = walk.strides[1]}};
  fl_status status = cpu_linear_check(call, &linear);
  (void)self;
  if (status || !walk.matrices.left)
    return status;
  float *scratch = cpu_floats_alloc(cpu_product_scratch(product.m, product.n, product.k));
  if (!scratch)
    return fl_fail(call, FL_ENOMEM, "out of memory");
  for (cpu_rows *matrices = &walk.matrices; matrices->left; cpu_rows_next(matrices)) {
    product.a.data = matrices->at[0];
    product.out.data = matrices->at[1];
    cpu_product_run(&product, scratch);
    for (int64_t row = 0; row < product.m && changes; row++)
      process_row(call, weight.dtype, cpu_matrix_row(product.out, row), product.n);
  }
  free(scratch);
  return FL_OK;
}
