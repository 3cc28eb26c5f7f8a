/* Launches of vocab_parallel_embedding: elements of 16 or of 32 bits, whatever they mean. */
#include "plugins/gpu/kernels/arguments/embedding.h"
#include "plugins/gpu/launch.h"
#include "plugins/view.h"

GPU_MODULE(embedding);

static gpu_kernel of_16_bits = {.module = &gpu_module_embedding, .name = "embedding_16"};
static gpu_kernel of_32_bits = {.module = &gpu_module_embedding, .name = "embedding_32"};

enum { INPUT_IDS, WEIGHT, ORG_START, ORG_END, ORG_PADDING, ADDED_START, ADDED_END, OUT };

static void read_shard(const fl_value *values, gpu_embedding_arguments *a) {
  if (values[ORG_END].type == FL_NONE)
    return;
  a->sharded = true;
  a->org_start = values[ORG_START].v.i;
  a->org_end = values[ORG_END].v.i;
  a->added_start = values[ADDED_START].v.i;
  a->added_end = values[ADDED_END].v.i;
  a->added_row = a->org_end - a->org_start + values[ORG_PADDING].v.i;
}

static fl_status vocab_parallel_embedding(void *self, fl_call *call) {
  enum { THREADS = GPU_EMBEDDING_THREADS };
  const gpu_op *op = self;
  const DLTensor *ids = gpu_tensor(call, INPUT_IDS), *weight = gpu_tensor(call, WEIGHT);
  DLTensor *out = gpu_tensor(call, OUT);
  tensor_view view;
  DLTensor *const tensors[] = {view_column(&view, ids), out};
  int64_t item = gpu_item_size(weight);
  gpu_embedding_arguments a = {.ids = fl_data(ids),
                               .wide_ids = gpu_is_wide(ids),
                               .table = fl_data(weight),
                               .table_rows = weight->shape[0],
                               .table_stride = fl_stride(weight, 0),
                               .out = fl_data(out),
                               .columns = weight->shape[1]};
  if (gpu_dtype_of(weight) == GPU_OTHER)
    return gpu_wrong_type(call, "weight");
  fl_status status = gpu_rows_of(op, call, 2, tensors, &a.tokens);
  if (status || !a.tokens.count || !a.columns)
    return status;
  read_shard(call->values, &a);
  a.vectorised = gpu_rows_aligned(&a.tokens, 1, out) && gpu_is_aligned(a.table, (a.table_stride | a.columns) * item);
  int64_t threads = a.vectorised ? a.columns / gpu_vector_length(weight) : a.columns;
  a.lanes = gpu_power_of_two(threads, THREADS);
  gpu_shape shape = gpu_shape_of(threads, a.tokens.count, a.lanes, THREADS / a.lanes);
  shape.block[0] = THREADS; /* the kernel divides them itself */
  shape.block[1] = 1;
  return gpu_launch(op, call, item == 4 ? &of_32_bits : &of_16_bits, &shape, &a);
}

static const gpu_op ops[] = {
    {.name = "vocab_parallel_embedding", .run = vocab_parallel_embedding, .module = &gpu_module_embedding},
};
OP_LIST(ops);
