/* Launches of the attention kernels. */
#include "plugins/gpu/ops/attention.h"
#include "plugins/gpu/kernels/arguments/attention.h"

#include <math.h>
#include <string.h>

GPU_MODULE(merge_attn_states);
GPU_MODULE(mla_decode);
GPU_MODULE(mm_encoder_attn);

typedef gpu_kernel kernels[GPU_N_DTYPES];
#define KERNELS(file, name) static kernels name = GPU_KERNELS(file, #name)
KERNELS(merge_attn_states, merge_attn_states);
KERNELS(mla_decode, mla_decode);
KERNELS(mla_decode, mla_decode_join);
KERNELS(mm_encoder_attn, mm_encoder_attn);
KERNELS(mm_encoder_attn, mm_encoder_attn_few);
/* Of 16-bit types, by tensor cores. */
KERNELS(mla_decode, mla_decode_16);
KERNELS(mla_decode, mla_decode_32);
KERNELS(mm_encoder_attn, mm_encoder_attn_64);
KERNELS(mm_encoder_attn, mm_encoder_attn_80);
KERNELS(mm_encoder_attn, mm_encoder_attn_128);

/* ----------------------------------------------------------------------------------------------- merge_attn_states */

static fl_status merge(void *self, fl_call *call) {
  enum { PREFIX, PREFIX_LSE, SUFFIX, SUFFIX_LSE, OUT, LSE };
  const gpu_op *op = self;
  DLTensor *prefix = gpu_tensor(call, PREFIX), *suffix = gpu_tensor(call, SUFFIX), *out = gpu_tensor(call, OUT);
  DLTensor *const tensors[] = {prefix, suffix, out};
  const DLTensor *prefix_lse = gpu_tensor(call, PREFIX_LSE), *suffix_lse = gpu_tensor(call, SUFFIX_LSE);
  const DLTensor *lse = gpu_tensor(call, LSE);
  gpu_dtype dtype = gpu_dtype_of(prefix);
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "prefix_output");
  gpu_merge_arguments arguments = {.prefix = fl_data(prefix),
                                   .suffix = fl_data(suffix),
                                   .prefix_lse = fl_data(prefix_lse),
                                   .suffix_lse = fl_data(suffix_lse),
                                   .out = fl_data(out),
                                   .lse = fl_data(lse),
                                   .heads = (uint32_t)prefix->shape[1],
                                   .size = prefix->shape[2],
                                   .prefix_lse_head = fl_stride(prefix_lse, 0),
                                   .suffix_lse_head = fl_stride(suffix_lse, 0),
                                   .lse_head = fl_stride(lse, 0)};
  fl_status status = gpu_rows_of(op, call, 3, tensors, &arguments.rows);
  if (status || !arguments.rows.count)
    return status;
  int64_t length = gpu_vector_length(prefix);
  arguments.vectorised = arguments.size % length == 0;
  for (int i = 0; i < 3; i++)
    arguments.vectorised = arguments.vectorised && gpu_rows_aligned(&arguments.rows, i, tensors[i]);
  unsigned x = gpu_power_of_two(arguments.vectorised ? arguments.size / length : arguments.size, GPU_MERGE_THREADS);
  unsigned y = GPU_MERGE_THREADS / x;
  gpu_shape shape = {.grid = {(unsigned)divide_up(arguments.rows.count, y), 1, 1}, .block = {x, y, 1}};
  return gpu_launch(op, call, &merge_attn_states[dtype], &shape, &arguments);
}

/* ------------------------------------------------------------------------------------------------------ mla_decode */

enum { QUERY, KV_CACHE, BLOCK_TABLE, SEQ_LENS, DECODE_SCALE, KV_LORA_RANK, OUT, LSE };

/* Kernels for queries of at least so many heads: how many a block makes, and the shared memory that it wants and may
 * have. */
typedef struct decode_kernels {
  bool tensor_cores; /* of 16-bit types */
  int64_t least_heads, heads;
  gpu_kernel *kernels;
  int64_t (*shared)(int64_t item, int64_t heads, int64_t size);
  int64_t most_shared;
} decode_kernels;

/* An element of a row takes one piece of 16 bytes, and each row one more where their number is even: see decoder. */
static int64_t decode_shared(int64_t item, int64_t heads, int64_t size) {
  int64_t length = 16 / item, pieces = divide_up(size, length), rows = GPU_DECODE_ROW_BYTES / item;
  int64_t floats = heads * (pieces * length + GPU_DECODE_THREADS + 1);
  return rows * (pieces | 1) * 16 + (floats + rows) * (int64_t)sizeof(float);
}

/* Rows and queries, weights in two parts, scores, scales and which rows there are: see fragment_decoder. */
static int64_t fragments_shared(int64_t item, int64_t heads, int64_t size) {
  int64_t rows = GPU_DECODE_FRAGMENT_ROWS, line = rows + GPU_FRAGMENT_PADDING;
  int64_t numbers = (rows + heads) * (divide_up(size, 16) * 16 + GPU_FRAGMENT_PADDING) + 2 * heads * line;
  int64_t floats = GPU_DECODE_FRAGMENT_SLICES * heads * line + heads + rows;
  return numbers * item + floats * (int64_t)sizeof(float);
}

/* The first row that suits. */
static const decode_kernels decoders[] = {
    {true, 17, 32, mla_decode_32, fragments_shared, GPU_LEAST_SHARED_WITH_TENSOR_CORES},
    {true, 0, 16, mla_decode_16, fragments_shared, GPU_LEAST_SHARED_WITH_TENSOR_CORES},
    {false, 0, GPU_DECODE_HEADS, mla_decode, decode_shared, GPU_LEAST_SHARED},
};
enum { N_DECODERS = sizeof decoders / sizeof decoders[0] };

static int64_t shared_of(const decode_kernels *row, const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY);
  return row->shared(gpu_item_size(query), row->heads, query->shape[2]);
}

/* NULL: rows are too long for shared memory. */
static const decode_kernels *find_decoder(const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY);
  bool tensor_cores = gpu_has_tensor_cores(gpu_dtype_of(query));
  for (const decode_kernels *row = decoders; row < decoders + N_DECODERS; row++)
    if (row->tensor_cores == tensor_cores && query->shape[1] >= row->least_heads &&
        shared_of(row, call) <= row->most_shared)
      return row;
  return NULL;
}

static bool supports_decode(void *self, const fl_call *call, const char **reason) {
  const DLTensor *cache = gpu_tensor(call, KV_CACHE), *table = gpu_tensor(call, BLOCK_TABLE);
  int64_t rows;
  const char *why = NULL;
  (void)self;
  if (call->values[KV_LORA_RANK].v.i > GPU_DECODE_THREADS * GPU_DECODE_COLUMNS)
    why = "kv_lora_rank above 512";
  else if (!find_decoder(call))
    why = "rows of 'kv_cache' that are too long for shared memory";
  else if (__builtin_mul_overflow(table->shape[1], cache->shape[1], &rows) || rows > INT32_MAX)
    why = "room for more than 2147483647 rows of a sequence in 'block_table'";
  return gpu_answer(!why, why, reason);
}

/* Blocks for the heads of a sequence. */
static int64_t head_groups(const fl_call *call) {
  return divide_up(gpu_tensor(call, QUERY)->shape[1], find_decoder(call)->heads);
}

/* Into how many parts sequences should go, of which only the most is known here. */
static int64_t wanted_parts(const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY);
  int64_t blocks = query->shape[0] * head_groups(call);
  int64_t rows = gpu_tensor(call, BLOCK_TABLE)->shape[1] * gpu_tensor(call, KV_CACHE)->shape[1];
  int64_t parts = blocks ? divide_up(GPU_MANY_BLOCKS, blocks) : 1, most = divide_up(rows, GPU_DECODE_PART_ROWS);
  parts = parts < most ? parts : most;
  return parts > 1 ? parts : 1;
}

/* Each part leaves its sums, its greatest score and its sum of weights. */
static size_t bytes_of_part(const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY);
  return (size_t)(query->shape[0] * query->shape[1] * (call->values[KV_LORA_RANK].v.i + 2)) * sizeof(float);
}

static size_t decode_workspace(void *self, const fl_call *call) {
  int64_t parts = find_decoder(call) ? wanted_parts(call) : 1;
  (void)self;
  return parts > 1 ? (size_t)parts * bytes_of_part(call) : 0;
}

/* As many as there is memory for: without any, sequences stay whole. */
static uint32_t choose_parts(const fl_call *call) {
  int64_t parts = wanted_parts(call);
  size_t room = call->workspace ? call->workspace_size / bytes_of_part(call) : 0;
  if ((size_t)parts > room)
    parts = (int64_t)room;
  return parts > 1 ? (uint32_t)parts : 1;
}

static gpu_decode_arguments decode_arguments(const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY), *cache = gpu_tensor(call, KV_CACHE), *out = gpu_tensor(call, OUT);
  const DLTensor *table = gpu_tensor(call, BLOCK_TABLE), *lengths = gpu_tensor(call, SEQ_LENS);
  const DLTensor *lse = gpu_tensor(call, LSE);
  gpu_decode_arguments arguments = {.query = fl_data(query),
                                    .cache = fl_data(cache),
                                    .table = fl_data(table),
                                    .lengths = fl_data(lengths),
                                    .out = fl_data(out),
                                    .lse = fl_data(lse),
                                    .query_sequence = fl_stride(query, 0),
                                    .query_head = fl_stride(query, 1),
                                    .cache_block = fl_stride(cache, 0),
                                    .cache_row = fl_stride(cache, 1),
                                    .table_sequence = fl_stride(table, 0),
                                    .out_sequence = fl_stride(out, 0),
                                    .out_head = fl_stride(out, 1),
                                    .lse_sequence = fl_stride(lse, 0),
                                    .blocks = cache->shape[0],
                                    .rows = table->shape[1] * cache->shape[1],
                                    .block_rows = (uint32_t)cache->shape[1],
                                    .heads = (uint32_t)query->shape[1],
                                    .head_groups = (uint32_t)head_groups(call),
                                    .parts = choose_parts(call),
                                    .size = (int32_t)query->shape[2],
                                    .rank = (int32_t)call->values[KV_LORA_RANK].v.i,
                                    .wide_table = gpu_is_wide(table),
                                    .wide_lengths = gpu_is_wide(lengths),
                                    .vectorised = gpu_heads_aligned(cache, query->shape[2]),
                                    .query_vectorised = gpu_heads_aligned(query, query->shape[2]),
                                    .scale = (float)call->values[DECODE_SCALE].v.f};
  arguments.parts_out = call->workspace;
  arguments.parts_weight = arguments.parts_out + query->shape[0] * query->shape[1] * arguments.parts * arguments.rank;
  return arguments;
}

static fl_status decode(void *self, fl_call *call) {
  const gpu_op *op = self;
  const DLTensor *query = gpu_tensor(call, QUERY);
  gpu_dtype dtype = gpu_dtype_of(query);
  const char *reason;
  int64_t heads;
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "query");
  if (!supports_decode(self, call, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (__builtin_mul_overflow(query->shape[0], query->shape[1], &heads) || heads > INT32_MAX)
    return fl_fail(call, FL_ENOTSUP, "%s: more than 2147483647 heads of sequences", op->name);
  if (!heads)
    return FL_OK;
  const decode_kernels *found = find_decoder(call);
  gpu_decode_arguments arguments = decode_arguments(call);
  gpu_shape shape = {.grid = {(unsigned)(query->shape[0] * arguments.head_groups), arguments.parts, 1},
                     .block = {GPU_DECODE_THREADS, 1, 1},
                     .shared = (unsigned)shared_of(found, call)};
  gpu_shape join = {.grid = {(unsigned)heads, 1, 1}, .block = {GPU_DECODE_JOIN_THREADS, 1, 1}};
  fl_status status = gpu_launch(op, call, &found->kernels[dtype], &shape, &arguments);
  if (!status && arguments.parts > 1)
    status = gpu_launch(op, call, &mla_decode_join[dtype], &join, &arguments);
  return status;
}

/* -------------------------------------------------------------------------------------------------- mm_encoder_attn */

enum { ENCODER_QUERY, ENCODER_KEY, ENCODER_VALUE, ENCODER_SCALE, CU_SEQLENS, MAX_SEQLEN, ENCODER_OUT };

/* The schema has seen to it that one of the tensors has a dimension for heads. */
static int64_t head_size(const fl_call *call) {
  for (uint32_t i = ENCODER_QUERY; i <= ENCODER_VALUE; i++)
    if (gpu_tensor(call, i)->ndim == 4)
      return gpu_tensor(call, i)->shape[3];
  return 0;
}

static int64_t count_heads(const DLTensor *tensor, int64_t size) {
  return tensor->ndim == 4 ? tensor->shape[2] : size ? tensor->shape[2] / size : 0;
}

static gpu_heads heads_of(const DLTensor *tensor, int64_t size) {
  return (gpu_heads){.data = fl_data(tensor),
                     .batch = fl_stride(tensor, 0),
                     .token = fl_stride(tensor, 1),
                     .head = tensor->ndim == 4 ? fl_stride(tensor, 2) : size};
}

static bool supports_encoder(void *self, const fl_call *call, const char **reason) {
  const char *why = NULL;
  (void)self;
  if (head_size(call) > GPU_ENCODER_SIZE)
    why = "heads of more than 128 elements";
  else if (gpu_tensor(call, ENCODER_QUERY)->shape[1] > INT32_MAX || gpu_tensor(call, ENCODER_KEY)->shape[1] > INT32_MAX)
    why = "more than 2147483647 tokens";
  return gpu_answer(!why, why, reason);
}

/* See encoder. */
static unsigned encoder_shared(int64_t item, int64_t size, int64_t queries) {
  int64_t length = 16 / item, pieces = divide_up(size, length);
  int64_t floats = queries * (pieces * length + 4) + GPU_ENCODER_KEYS * (queries + 4) + 2 * queries;
  return (unsigned)(2 * GPU_ENCODER_KEYS * (pieces | 1) * 16 + floats * (int64_t)sizeof(float));
}

/* Kernels for heads of up to `size` elements, and the threads of a block: where there are many queries, where few. */
typedef struct encoder_kernels {
  bool tensor_cores; /* of 16-bit types */
  int64_t size;
  gpu_kernel *kernels[2];
  unsigned threads[2];
} encoder_kernels;

#define FRAGMENT_THREADS                                                                                               \
  { GPU_ENCODER_FRAGMENT_THREADS, GPU_ENCODER_FRAGMENT_FEW_THREADS }

/* The first row that suits. */
static const encoder_kernels encoders[] = {
    {true, 64, {mm_encoder_attn_64, mm_encoder_attn_64}, FRAGMENT_THREADS},
    {true, 80, {mm_encoder_attn_80, mm_encoder_attn_80}, FRAGMENT_THREADS},
    {true, GPU_ENCODER_SIZE, {mm_encoder_attn_128, mm_encoder_attn_128}, FRAGMENT_THREADS},
    {false, GPU_ENCODER_SIZE, {mm_encoder_attn, mm_encoder_attn_few}, {GPU_ENCODER_THREADS, GPU_ENCODER_THREADS}},
};

static const encoder_kernels *find_encoder(gpu_dtype dtype, int64_t size) {
  const encoder_kernels *row = encoders;
  while (size > row->size || row->tensor_cores != gpu_has_tensor_cores(dtype))
    row++;
  return row;
}

static fl_status encode(void *self, fl_call *call) {
  const gpu_op *op = self;
  const DLTensor *query = gpu_tensor(call, ENCODER_QUERY), *key = gpu_tensor(call, ENCODER_KEY);
  const DLTensor *value = gpu_tensor(call, ENCODER_VALUE), *out = gpu_tensor(call, ENCODER_OUT);
  const DLTensor *ends = gpu_tensor(call, CU_SEQLENS);
  int64_t size = head_size(call), heads = count_heads(query, size), item = gpu_item_size(query), blocks;
  gpu_dtype dtype = gpu_dtype_of(query);
  const char *reason;
  if (dtype == GPU_OTHER)
    return gpu_wrong_type(call, "query");
  if (!supports_encoder(self, call, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (!query->shape[0] || !query->shape[1] || !heads || !size)
    return FL_OK;
  gpu_encoder_arguments arguments = {.query = heads_of(query, size),
                                     .key = heads_of(key, size),
                                     .value = heads_of(value, size),
                                     .out = heads_of(out, size),
                                     .ends = ends ? fl_data(ends) : NULL,
                                     .queries = query->shape[1],
                                     .keys = key->shape[1],
                                     .n_ends = ends ? ends->shape[0] : 0,
                                     .heads = (uint32_t)heads,
                                     .heads_per_key = (uint32_t)(heads / count_heads(key, size)),
                                     .size = (int32_t)size,
                                     .wide_ends = gpu_is_wide(ends),
                                     .vectorised = gpu_heads_aligned(query, size) && gpu_heads_aligned(key, size) &&
                                                   gpu_heads_aligned(value, size) && gpu_heads_aligned(out, size),
                                     .scale = call->values[ENCODER_SCALE].type == FL_FLOAT
                                                  ? (float)call->values[ENCODER_SCALE].v.f
                                                  : (float)(1 / sqrt((double)size))};
  const encoder_kernels *found = find_encoder(dtype, size);
  int64_t queries = GPU_ENCODER_QUERY_BYTES / item, all = query->shape[0] * heads;
  bool few = all * divide_up(query->shape[1], queries) < GPU_MANY_BLOCKS;
  if (few)
    queries = GPU_ENCODER_FEW_QUERY_BYTES / item;
  arguments.tiles = (uint32_t)divide_up(query->shape[1], queries);
  if (__builtin_mul_overflow(all, (int64_t)arguments.tiles, &blocks) || blocks > INT32_MAX)
    return fl_fail(call, FL_ENOTSUP, "%s: more heads and tokens than a grid has blocks", op->name);
  gpu_shape shape = {.grid = {(unsigned)blocks, 1, 1},
                     .block = {found->threads[few], 1, 1},
                     .shared = found->tensor_cores ? 0 : encoder_shared(item, size, queries)};
  return gpu_launch(op, call, &found->kernels[few][dtype], &shape, &arguments);
}

static const gpu_op ops[] = {
    {.name = "merge_attn_states", .run = merge, .module = &gpu_module_merge_attn_states},
    {.name = "mla_decode",
     .run = decode,
     .supports = supports_decode,
     .workspace_size = decode_workspace,
     .module = &gpu_module_mla_decode},
    {.name = "mm_encoder_attn", .run = encode, .supports = supports_encoder, .module = &gpu_module_mm_encoder_attn},
};
OP_LIST(ops);
