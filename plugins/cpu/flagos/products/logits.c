/* logits_processor: a blocked product, then cap and scale over blocks of the result while they are in the cache. */
#include "plugins/cpu/flagos/products/linear.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/integers.h"

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

/* The result of one matrix, as a loop over the blocks of all rows. */
typedef struct logits_loop {
  const fl_call *call;
  const cpu_product *product;
} logits_loop;

static int64_t blocks_of_row(const cpu_product *product) {
  return divide_up(product->n, CPU_BLOCK);
}

static fl_status process_blocks(void *user, int64_t i, int64_t end) {
  const logits_loop *loop = user;
  const cpu_product *product = loop->product;
  const cpu_block_type *type = &cpu_block_types[product->out.dtype];
  const fl_value *soft_cap = &loop->call->values[SOFT_CAP];
  float block[CPU_BLOCK], scale = (float)loop->call->values[SCALE].v.f;
  for (; i < end; i++) {
    void *row = cpu_matrix_row(product->out, i / blocks_of_row(product));
    int64_t first = i % blocks_of_row(product) * CPU_BLOCK, n = cpu_block_size(product->n - first);
    type->load(block, row, first, n);
    if (soft_cap->type == FL_FLOAT)
      cap_block(type, (float)soft_cap->v.f, block, n);
    for (int64_t j = 0; j < n; j++)
      block[j] *= scale;
    type->store(row, first, block, n);
  }
  return FL_OK;
}

static fl_status process(const fl_call *call, const cpu_product *product) {
  enum { GRAIN = 32 }; /* blocks, of a quarter of a microsecond each */
  return cpu_parallel_for(product->m * blocks_of_row(product), GRAIN, process_blocks, &(logits_loop){call, product});
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
    {.op_name = "logits_processor", CPU_FLAGOS, CPU_LINEAR_PREPARES, .fn = logits_processor},
};
OP_LIST(ops);
