/* Launches of paged_attention's kernels. */
#include "plugins/gpu/kernels/arguments/paged_attention.h"
#include "plugins/gpu/ops/attention.h"

GPU_MODULE(paged_attention);

typedef gpu_kernel kernels[GPU_N_DTYPES];
#define KERNELS(name) static kernels name = GPU_KERNELS(paged_attention, #name)
KERNELS(paged_attention);
KERNELS(paged_attention_many);
KERNELS(paged_attention_join);
/* Of 16-bit types, by tensor cores. */
KERNELS(paged_attention_64);
KERNELS(paged_attention_128);
KERNELS(paged_attention_256);

enum { QUERY, KEY_CACHE, VALUE_CACHE, TABLE, STARTS, LENS, SCALE, CAUSAL, LEFT, RIGHT, SOFT_CAP };
enum { SLOPES = SOFT_CAP + 1, SINKS, K_SCALE, V_SCALE, OUT, LSE };

/* Kernels for heads of up to `size` elements, where a sequence has at least so many rows on average. */
typedef struct form {
  bool tensor_cores; /* of 16-bit types */
  int64_t size, least_rows;
  kernels *kernels;
  unsigned threads;
  int rows; /* of a block */
  unsigned (*shared)(const struct form *form, int64_t item, int64_t size);
} form;

/* See paged. */
static unsigned shared_of(const form *found, int64_t item, int64_t size) {
  int64_t padded = divide_up(size, 16) * 16, pieces = padded * item / 16;
  int64_t floats = found->rows * (padded + 4) + GPU_PAGED_KEYS * (found->rows + 4);
  return (unsigned)(GPU_PAGED_KEYS * ((pieces | 1) * 16 + 8) + floats * (int64_t)sizeof(float));
}

/* See fragment_paged: rows that are as long as the kernel's heads. */
static unsigned fragments_shared(const form *found, int64_t item, int64_t size) {
  int64_t keys = GPU_PAGED_FRAGMENT_KEYS / (found->size > GPU_PAGED_MANY_SIZE ? 2 : 1);
  (void)size;
  return (unsigned)((2 * keys + found->rows) * (found->size + GPU_FRAGMENT_PADDING) * item + 2 * keys * 8 + 8);
}

enum { MANY = GPU_PAGED_MANY_ROWS, FEW = GPU_PAGED_FEW_ROWS };
#define FRAGMENT_FORMS(size)                                                                                           \
  {true, size, FEW + 1, &paged_attention_##size, GPU_PAGED_FRAGMENT_THREADS, MANY, fragments_shared}, {                \
    true, size, 0, &paged_attention_##size, GPU_PAGED_FRAGMENT_FEW_THREADS, FEW, fragments_shared                      \
  }

/* The first row that suits. */
static const form forms[] = {
    FRAGMENT_FORMS(64),
    FRAGMENT_FORMS(128),
    FRAGMENT_FORMS(256),
    {false, GPU_PAGED_MANY_SIZE, FEW + 1, &paged_attention_many, GPU_PAGED_THREADS, MANY, shared_of},
    {false, GPU_PAGED_SIZE, 0, &paged_attention, GPU_PAGED_THREADS, FEW, shared_of},
};

/* Heads of query that share one of the cache. */
static int64_t group_of(const fl_call *call) {
  int64_t shared = gpu_tensor(call, KEY_CACHE)->shape[2];
  return shared ? gpu_tensor(call, QUERY)->shape[1] / shared : 0;
}

static const form *find_form(const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY);
  int64_t rows = query->shape[0] * group_of(call), sequences = gpu_tensor(call, LENS)->shape[0];
  bool tensor_cores = gpu_has_tensor_cores(gpu_dtype_of(query));
  const form *found = forms;
  while (tensor_cores != found->tensor_cores || query->shape[2] > found->size || rows < found->least_rows * sequences)
    found++;
  return found;
}

/* Of one head of the cache: the sequences' and those of padding, see query_rows. */
static int64_t tiles_of(const fl_call *call) {
  return gpu_tensor(call, QUERY)->shape[0] * group_of(call) / find_form(call)->rows + gpu_tensor(call, LENS)->shape[0] +
         1;
}

static bool supports(void *self, const fl_call *call, const char **reason) {
  const DLTensor *query = gpu_tensor(call, QUERY), *cache = gpu_tensor(call, KEY_CACHE);
  int64_t keys, heads, blocks;
  const char *why = NULL;
  (void)self;
  if (query->shape[2] > GPU_PAGED_SIZE)
    why = "heads of more than 256 elements";
  else if (__builtin_mul_overflow(gpu_tensor(call, TABLE)->shape[1], cache->shape[1], &keys) || keys > INT32_MAX)
    why = "room for more than 2147483647 tokens of a sequence in 'block_table'";
  else if (__builtin_mul_overflow(query->shape[0], query->shape[1], &heads) || heads > INT32_MAX ||
           cache->shape[0] > INT32_MAX || __builtin_mul_overflow(tiles_of(call), cache->shape[2], &blocks) ||
           blocks > INT32_MAX)
    why = "more heads and tokens than a grid has blocks";
  return gpu_answer(!why, why, reason);
}

/* -1 is no limit: more than there are keys. */
static int32_t limit_of(const fl_call *call, uint32_t index) {
  int64_t given = call->values[index].v.i;
  return given < 0 || given > INT32_MAX ? INT32_MAX : (int32_t)given;
}

static int32_t right_of(const fl_call *call) {
  return call->values[CAUSAL].v.b ? 0 : limit_of(call, RIGHT);
}

/* Into how many parts the keys of a tile should go, of which only the most is known here. */
static int64_t wanted_parts(const fl_call *call) {
  int64_t blocks = tiles_of(call) * gpu_tensor(call, KEY_CACHE)->shape[2];
  int64_t keys = gpu_tensor(call, TABLE)->shape[1] * gpu_tensor(call, KEY_CACHE)->shape[1];
  int64_t window = (int64_t)limit_of(call, LEFT) + right_of(call) + find_form(call)->rows;
  int64_t parts = blocks ? divide_up(GPU_MANY_BLOCKS, blocks) : 1;
  int64_t most = divide_up(keys < window ? keys : window, GPU_DECODE_PART_ROWS);
  parts = parts < most ? parts : most;
  return parts > 1 ? parts : 1;
}

/* Each part leaves its sums, its greatest score and its sum of weights. */
static size_t bytes_of_part(const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY);
  return (size_t)(query->shape[0] * query->shape[1] * (query->shape[2] + 2)) * sizeof(float);
}

static size_t workspace_size(void *self, const fl_call *call) {
  int64_t parts = supports(self, call, NULL) ? wanted_parts(call) : 1;
  return parts > 1 ? (size_t)parts * bytes_of_part(call) : 0;
}

/* As many as there is memory for: without any, keys stay whole. */
static uint32_t choose_parts(const fl_call *call) {
  int64_t parts = wanted_parts(call);
  size_t room = call->workspace ? call->workspace_size / bytes_of_part(call) : 0;
  if ((size_t)parts > room)
    parts = (int64_t)room;
  return parts > 1 ? (uint32_t)parts : 1;
}

static gpu_paged_cache cache_of(const fl_call *call, uint32_t index, uint32_t scale_index) {
  const DLTensor *tensor = gpu_tensor(call, index), *scale = gpu_tensor(call, scale_index);
  return (gpu_paged_cache){.data = fl_data(tensor),
                           .scale = scale ? fl_data(scale) : NULL,
                           .block = fl_stride(tensor, 0),
                           .row = fl_stride(tensor, 1),
                           .head = fl_stride(tensor, 2),
                           .scale_head = scale && scale->ndim && scale->shape[0] > 1,
                           .vectorised = gpu_heads_aligned(tensor, tensor->shape[3])};
}

static gpu_paged_arguments arguments_of(const fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY), *table = gpu_tensor(call, TABLE), *out = gpu_tensor(call, OUT);
  const DLTensor *starts = gpu_tensor(call, STARTS), *lengths = gpu_tensor(call, LENS), *lse = gpu_tensor(call, LSE);
  const DLTensor *keys = gpu_tensor(call, KEY_CACHE), *slopes = gpu_tensor(call, SLOPES);
  const DLTensor *sinks = gpu_tensor(call, SINKS);
  gpu_paged_arguments arguments = {.query = fl_data(query),
                                   .keys = cache_of(call, KEY_CACHE, K_SCALE),
                                   .values = cache_of(call, VALUE_CACHE, V_SCALE),
                                   .table = fl_data(table),
                                   .starts = fl_data(starts),
                                   .lengths = fl_data(lengths),
                                   .slopes = slopes ? fl_data(slopes) : NULL,
                                   .sinks = sinks ? fl_data(sinks) : NULL,
                                   .out = fl_data(out),
                                   .lse = fl_data(lse),
                                   .query_token = fl_stride(query, 0),
                                   .query_head = fl_stride(query, 1),
                                   .table_sequence = fl_stride(table, 0),
                                   .out_token = fl_stride(out, 0),
                                   .out_head = fl_stride(out, 1),
                                   .lse_head = fl_stride(lse, 0),
                                   .tokens = query->shape[0],
                                   .sequences = lengths->shape[0],
                                   .blocks = keys->shape[0],
                                   .most_keys = table->shape[1] * keys->shape[1],
                                   .block_rows = (uint32_t)keys->shape[1],
                                   .heads = (uint32_t)query->shape[1],
                                   .kv_heads = (uint32_t)keys->shape[2],
                                   .group = (uint32_t)group_of(call),
                                   .parts = choose_parts(call),
                                   .left = limit_of(call, LEFT),
                                   .right = right_of(call),
                                   .size = (int32_t)query->shape[2],
                                   .sinks_dtype = sinks ? (int32_t)gpu_dtype_of(sinks) : 0,
                                   .wide_table = gpu_is_wide(table),
                                   .wide_starts = gpu_is_wide(starts),
                                   .wide_lengths = gpu_is_wide(lengths),
                                   .query_vectorised = gpu_heads_aligned(query, query->shape[2]),
                                   .out_vectorised = gpu_heads_aligned(out, query->shape[2]),
                                   .scale = (float)call->values[SCALE].v.f,
                                   .soft_cap = (float)call->values[SOFT_CAP].v.f};
  arguments.parts_out = call->workspace;
  arguments.parts_weight = arguments.parts_out + query->shape[0] * query->shape[1] * arguments.parts * arguments.size;
  return arguments;
}

/* Caches are of the activations' type, or of float8 with scales: the schema has seen to the rest. */
static fl_status check_types(fl_call *call) {
  const DLTensor *query = gpu_tensor(call, QUERY), *keys = gpu_tensor(call, KEY_CACHE);
  const DLTensor *sinks = gpu_tensor(call, SINKS);
  if (gpu_dtype_of(query) == GPU_OTHER)
    return gpu_wrong_type(call, "query");
  if (!gpu_tensor(call, K_SCALE) && gpu_dtype_of(keys) != gpu_dtype_of(query))
    return gpu_wrong_type(call, "key_cache");
  return sinks && gpu_dtype_of(sinks) == GPU_OTHER ? gpu_wrong_type(call, "sinks") : FL_OK;
}

static fl_status attend(void *self, fl_call *call) {
  const gpu_op *op = self;
  const DLTensor *query = gpu_tensor(call, QUERY);
  gpu_dtype dtype = gpu_dtype_of(query);
  const char *reason;
  fl_status status = check_types(call);
  if (status)
    return status;
  if (!supports(self, call, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (!query->shape[0] || !query->shape[1])
    return FL_OK;
  const form *found = find_form(call);
  gpu_paged_arguments arguments = arguments_of(call);
  gpu_shape shape = {.grid = {(unsigned)tiles_of(call) * arguments.kv_heads, arguments.parts, 1},
                     .block = {found->threads, 1, 1},
                     .shared = found->shared(found, gpu_item_size(query), query->shape[2])};
  gpu_shape join = {.grid = {arguments.heads * (unsigned)query->shape[0], 1, 1},
                    .block = {GPU_PAGED_JOIN_THREADS, 1, 1}};
  status = gpu_launch(op, call, &(*found->kernels)[dtype], &shape, &arguments);
  if (!status && arguments.parts > 1)
    status = gpu_launch(op, call, &paged_attention_join[dtype], &join, &arguments);
  return status;
}

static const gpu_op ops[] = {
    {.name = "paged_attention",
     .run = attend,
     .supports = supports,
     .workspace_size = workspace_size,
     .module = &gpu_module_paged_attention},
};
OP_LIST(ops);
