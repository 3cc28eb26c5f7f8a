/* logits_processor: a blocked product, then cap and scale over blocks of the result while they are in the cache. */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/linear.h"
#include "plugins/cpu/flagos/vector.h"

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

static void process(const fl_call *call, const cpu_product *product) {
  for (int64_t row = 0; row < product->m; row++)
    process_row(call, product->out.dtype, cpu_matrix_row(product->out, row), product->n);
}

/* logits_processor(hidden_states, weight, bias, org_vocab_size, soft_cap, scale) -> logits */
static fl_status logits_processor(void *self, fl_call *call) {
  const cpu_linear linear = {cpu_tensor(call, HIDDEN_STATES), cpu_tensor(call, WEIGHT), cpu_tensor(call, BIAS),
                             cpu_tensor(call, LOGITS)};
  bool changes = call->values[SOFT_CAP].type == FL_FLOAT || call->values[SCALE].v.f != 1;
  (void)self;
  return cpu_flagos_linear_run(call, &linear, changes ? process : NULL);
}

static const fl_impl ops[] = {
    {.op_name = "logits_processor", CPU_FLAGOS, .fn = logits_processor},
};
OP_LIST(ops);
