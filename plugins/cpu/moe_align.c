/* moe_align_block_size: counting sort of the places of topk_ids by expert. Nothing in it depends on how it is computed,
 * so both kinds of implementation are this one. */
#include "plugins/cpu/support/index.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

#include <string.h>

enum { TOPK_IDS, NUM_EXPERTS, BLOCK_SIZE, SORTED_TOKEN_IDS, EXPERT_IDS, NUM_TOKENS_POST_PAD };

/* next[e]: how many places name expert e. */
static void count(const DLTensor *ids, int64_t *next) {
  for (int64_t row = 0; row < ids->shape[0]; row++)
    for (int64_t column = 0; column < ids->shape[1]; column++)
      next[cpu_index_at(ids, row, column)]++;
}

/* Turns the counts into where each expert's places begin, and says whose each block is. The padded number of places. */
static int64_t lay_out(int64_t *next, int64_t experts, int64_t block, int32_t *expert_ids) {
  int64_t end = 0;
  for (int64_t expert = 0; expert < experts; expert++) {
    int64_t begin = end, blocks = divide_up(next[expert], block);
    for (int64_t i = 0; i < blocks; i++)
      expert_ids[begin / block + i] = (int32_t)expert;
    end += blocks * block;
    next[expert] = begin;
  }
  return end;
}

static fl_status moe_align_block_size(void *self, fl_call *call) {
  const DLTensor *ids = cpu_tensor(call, TOPK_IDS);
  const DLTensor *sorted_tensor = cpu_tensor(call, SORTED_TOKEN_IDS), *expert_tensor = cpu_tensor(call, EXPERT_IDS);
  int32_t *sorted = fl_data(sorted_tensor), *expert_ids = fl_data(expert_tensor);
  int32_t *num_tokens_post_pad = fl_data(cpu_tensor(call, NUM_TOKENS_POST_PAD));
  int64_t experts = call->values[NUM_EXPERTS].v.i, block = call->values[BLOCK_SIZE].v.i, k = ids->shape[1];
  (void)self;
  fl_status status = cpu_check_indices(call, "topk_ids", ids, 0, experts - 1, "experts");
  if (status)
    return status;
  int64_t *next = cpu_scratch_take_bytes((size_t)experts * sizeof *next);
  if (!next)
    return fl_fail(call, FL_ENOMEM, "no memory to count %lld experts", (long long)experts);
  memset(next, 0, (size_t)experts * sizeof *next);
  count(ids, next);
  for (int64_t i = 0; i < sorted_tensor->shape[0]; i++)
    sorted[i] = (int32_t)(ids->shape[0] * k);
  for (int64_t i = 0; i < expert_tensor->shape[0]; i++)
    expert_ids[i] = -1;
  *num_tokens_post_pad = (int32_t)lay_out(next, experts, block, expert_ids);
  for (int64_t row = 0; row < ids->shape[0]; row++)
    for (int64_t column = 0; column < k; column++)
      sorted[next[cpu_index_at(ids, row, column)]++] = (int32_t)(row * k + column);
  cpu_scratch_give(next);
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "moe_align_block_size", CPU_REFERENCE, .fn = moe_align_block_size},
    {.op_name = "moe_align_block_size", CPU_FLAGOS, .fn = moe_align_block_size},
};
OP_LIST(ops);
