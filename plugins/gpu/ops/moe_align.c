/* Launches of moe_align_block_size: one kernel where a block can take all places, else one before it that counts. */
#include "plugins/gpu/ops/moe_align.h"

GPU_MODULE(moe_align);

static gpu_kernel count_kernel = {.module = &gpu_module_moe_align, .name = "moe_align_count"};
static gpu_kernel place_kernel = {.module = &gpu_module_moe_align, .name = "moe_align_place"};

enum { TOPK_IDS, NUM_EXPERTS, BLOCK_SIZE, SORTED_TOKEN_IDS, EXPERT_IDS, NUM_TOKENS_POST_PAD };

/* The places that a block takes, and how many blocks that makes. Each block reads what all have counted: so few. */
static int64_t divide(int64_t places, int64_t *chunk) {
  enum { THREADS = GPU_ALIGN_THREADS, LEAST = 8 * THREADS, MOST_BLOCKS = 64 };
  *chunk = LEAST;
  if (places > (int64_t)LEAST * MOST_BLOCKS)
    *chunk = divide_up(divide_up(places, MOST_BLOCKS), THREADS) * THREADS;
  return places > *chunk ? divide_up(places, *chunk) : 1;
}

size_t gpu_align_workspace(int64_t places, int64_t experts) {
  int64_t chunk, blocks = divide(places, &chunk);
  return blocks > 1 ? (size_t)(blocks * experts) * sizeof(int32_t) : 0;
}

/* As many warps to a block as shared memory has room for the counts of. */
static fl_status shape_for(const gpu_op *op, fl_call *call, int64_t experts, gpu_shape *shape) {
  enum { ALWAYS_ALLOWED = 48 << 10, SIZE = sizeof(int32_t) };
  fl_status status;
  const gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  int64_t most = device->properties.shared_limit, warp = device->properties.warp;
  if (experts > (most / SIZE - 1) / 3)
    return fl_fail(call, FL_ENOTSUP, "%s: %lld experts, expected at most %lld", op->name, (long long)experts,
                   (long long)(most / SIZE - 1) / 3);
  int64_t threads = GPU_ALIGN_THREADS;
  while (threads > warp && ((threads / warp + 2) * experts + 1) * SIZE > ALWAYS_ALLOWED)
    threads /= 2;
  shape->block[0] = (unsigned)threads;
  shape->shared = (unsigned)(((threads / warp + 2) * experts + 1) * SIZE);
  return FL_OK;
}

fl_status gpu_align(const gpu_op *op, fl_call *call, gpu_align_arguments *arguments) {
  int64_t chunk, blocks = divide((int64_t)arguments->places, &chunk);
  gpu_shape shape = {.grid = {(unsigned)blocks, 1, 1}, .block = {1, 1, 1}};
  fl_status status = shape_for(op, call, arguments->experts, &shape);
  arguments->chunk = (uint32_t)chunk;
  if (!status && blocks > 1) {
    gpu_shape counting = shape;
    counting.shared = (unsigned)((size_t)arguments->experts * sizeof(int32_t));
    status = gpu_launch(op, call, &count_kernel, &counting, arguments);
  }
  return status ? status : gpu_launch(op, call, &place_kernel, &shape, arguments);
}

static int64_t places_in(const DLTensor *ids) {
  return ids->shape[0] * ids->shape[1];
}

static size_t workspace_size(void *self, const fl_call *call) {
  (void)self;
  return gpu_align_workspace(places_in(gpu_tensor(call, TOPK_IDS)), call->values[NUM_EXPERTS].v.i);
}

static fl_status moe_align_block_size(void *self, fl_call *call) {
  const gpu_op *op = self;
  const DLTensor *ids = gpu_tensor(call, TOPK_IDS);
  const DLTensor *sorted = gpu_tensor(call, SORTED_TOKEN_IDS), *expert_ids = gpu_tensor(call, EXPERT_IDS);
  fl_status status = gpu_check_workspace(op, call);
  gpu_align_arguments arguments = {.ids = fl_data(ids),
                                   .wide_ids = gpu_is_wide(ids),
                                   .row_stride = fl_stride(ids, 0),
                                   .topk = ids->shape[1],
                                   .places = (uint64_t)places_in(ids),
                                   .experts = (int32_t)call->values[NUM_EXPERTS].v.i,
                                   .block = (int32_t)call->values[BLOCK_SIZE].v.i,
                                   .sorted = fl_data(sorted),
                                   .expert_ids = fl_data(expert_ids),
                                   .num_tokens_post_pad = fl_data(gpu_tensor(call, NUM_TOKENS_POST_PAD)),
                                   .sorted_size = sorted->shape[0],
                                   .expert_ids_size = expert_ids->shape[0],
                                   .counts = call->workspace};
  return status ? status : gpu_align(op, call, &arguments);
}

static const gpu_op ops[] = {
    {.name = "moe_align_block_size",
     .run = moe_align_block_size,
     .workspace_size = workspace_size,
     .module = &gpu_module_moe_align},
};
OP_LIST(ops);
