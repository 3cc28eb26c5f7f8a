/*
 * Launches of the rotary embeddings: one kernel serves the three ops. An op says what it rotates, by which tables, and
 * where the position of a token comes from.
 */
#include "plugins/gpu/kernels/arguments/rotary.h"
#include "plugins/gpu/launch.h"
#include "plugins/view.h"

GPU_MODULE(rotary);

static gpu_kernel kernels[GPU_N_DTYPES] = GPU_KERNELS(rotary, "rotary");

/* What the tokens of a call are counted over: in and out of query, in and out of key, without their heads. */
enum { VIEWS = 4 };
typedef struct views {
  tensor_view storage[VIEWS];
  DLTensor *tensors[VIEWS]; /* NULL: no key */
} views;

/* A tensor [n, heads * size] has heads of `size`. */
static gpu_rotary_tensor heads_of(const DLTensor *in, const DLTensor *out, int64_t size) {
  bool flat = in->ndim == 2;
  int head = in->ndim - 2;
  return (gpu_rotary_tensor){.in = fl_data(in),
                             .out = fl_data(out),
                             .in_head = flat ? size : fl_stride(in, head),
                             .out_head = flat ? size : fl_stride(out, head),
                             .heads = (uint32_t)(flat ? in->shape[1] / size : in->shape[head]),
                             .n_tables = 1};
}

static void view_tokens(views *v, int which, DLTensor *in, DLTensor *out) {
  DLTensor *const both[] = {in, out};
  for (int i = 0; i < 2; i++)
    v->tensors[2 * which + i] =
        both[i]->ndim == 2 ? both[i] : view_first(&v->storage[2 * which + i], both[i], both[i]->ndim - 2);
}

static gpu_rotary_table table_of(const DLTensor *cos, const DLTensor *sin) {
  return (gpu_rotary_table){
      .cos = fl_data(cos), .sin = fl_data(sin), .cos_stride = fl_stride(cos, 0), .sin_stride = fl_stride(sin, 0)};
}

/* A row of the table holds cosines, then sines. */
static gpu_rotary_table split_table(const DLTensor *cache, int64_t pairs, gpu_rotary_row row) {
  const char *cos = fl_data(cache);
  int64_t stride = fl_stride(cache, 0);
  return (gpu_rotary_table){
      .cos = cos, .sin = cos + pairs * gpu_item_size(cache), .cos_stride = stride, .sin_stride = stride, .row = row};
}

/* ------------------------------------------------------------------------------------------------------ alignment */

static bool is_tensor_aligned(const gpu_rotary_arguments *a, int which, DLTensor *const *tokens, int64_t table_item) {
  const gpu_rotary_tensor *t = &a->tensors[which];
  int64_t size = gpu_item_size(tokens[2 * which]);
  bool aligned = gpu_rows_aligned(&a->tokens, 2 * which, tokens[2 * which]) &&
                 gpu_rows_aligned(&a->tokens, 2 * which + 1, tokens[2 * which + 1]) &&
                 gpu_is_aligned(t->in, t->in_head * size) && gpu_is_aligned(t->out, t->out_head * size) &&
                 gpu_is_aligned(t->out, t->out_table * size);
  for (uint32_t i = 0; i < t->n_tables; i++)
    aligned = aligned && gpu_is_aligned(t->tables[i].cos, t->tables[i].cos_stride * table_item) &&
              gpu_is_aligned(t->tables[i].sin, t->tables[i].sin_stride * table_item);
  return aligned;
}

static bool is_vectorised(const gpu_rotary_arguments *a, DLTensor *const *tokens) {
  int64_t length = gpu_vector_length(tokens[0]), table_item = a->table_dtype == GPU_FLOAT32 ? 4 : 2;
  return a->pairs % length == 0 && a->offset % length == 0 && a->size % length == 0 &&
         is_tensor_aligned(a, 0, tokens, table_item) && (!tokens[2] || is_tensor_aligned(a, 1, tokens, table_item));
}

/* -------------------------------------------------------------------------------------------------------- launch */

static int64_t count_blocks(const gpu_rotary_arguments *a, gpu_rotary_tensor *t) {
  enum { THREADS = GPU_ROTARY_THREADS };
  if (!t->heads)
    return 0;
  t->heads_at_once = gpu_power_of_two(t->heads, THREADS / a->lanes);
  int64_t tokens = THREADS / a->lanes / t->heads_at_once;
  return divide_up(a->tokens.count, tokens);
}

/* Tensors and tables are given; `cos` is one of the tables, for its type. */
static fl_status launch(const gpu_op *op, fl_call *call, gpu_rotary_arguments *a, const views *v, const DLTensor *cos) {
  const DLTensor *query = v->tensors[0];
  gpu_dtype dtype = gpu_dtype_of(query), table_dtype = gpu_dtype_of(cos);
  if (dtype == GPU_OTHER || (table_dtype != dtype && table_dtype != GPU_FLOAT32))
    return fl_fail(call, FL_ENOTSUP,
                   "%s: element types: float32, float16 or bfloat16 expected, and of cosines and sines the same or "
                   "float32",
                   op->name);
  fl_status status = gpu_rows_of(op, call, VIEWS, v->tensors, &a->tokens);
  if (status || !a->tokens.count || !a->pairs)
    return status;
  a->table_dtype = (int32_t)table_dtype;
  a->vectorised = is_vectorised(a, v->tensors);
  int64_t per_thread = a->vectorised ? gpu_vector_length(query) : 1;
  a->lanes = gpu_power_of_two(a->pairs / per_thread, GPU_ROTARY_THREADS);
  int64_t first = count_blocks(a, &a->tensors[0]), second = count_blocks(a, &a->tensors[1]);
  if (first + second > INT32_MAX)
    return fl_fail(call, FL_ENOTSUP, "%s: %lld blocks of threads, expected at most %d", op->name,
                   (long long)(first + second), INT32_MAX);
  if (!(first + second))
    return FL_OK;
  a->tensors[0].blocks = (uint32_t)first;
  a->tensors[1].blocks = (uint32_t)second;
  gpu_shape shape = {.grid = {(unsigned)(first + second), 1, 1}, .block = {GPU_ROTARY_THREADS, 1, 1}};
  return gpu_launch(op, call, &kernels[dtype], &shape, a);
}

/* ----------------------------------------------------------------------------------------------------------- ops */

static fl_status rotary_embedding(void *self, fl_call *call) {
  enum { QUERY, KEY, COS, SIN, POSITION_IDS, INTERLEAVED, OFFSET, INVERSE, QUERY_OUT, KEY_OUT };
  DLTensor *query = gpu_tensor(call, QUERY), *key = gpu_tensor(call, KEY);
  const DLTensor *cos = gpu_tensor(call, COS), *sin = gpu_tensor(call, SIN), *ids = gpu_tensor(call, POSITION_IDS);
  int64_t pairs = cos->shape[1], size = query->ndim == 2 ? 2 * pairs : query->shape[2];
  gpu_rotary_arguments arguments = {.positions = fl_data(ids),
                                    .wide_positions = gpu_is_wide(ids),
                                    .n_positions = cos->shape[0],
                                    .pairs = pairs,
                                    .offset = call->values[OFFSET].v.i,
                                    .size = size,
                                    .interleaved = call->values[INTERLEAVED].v.b,
                                    .inverse = call->values[INVERSE].v.b,
                                    .rounded = true};
  views v = {.tensors = {NULL}};
  if (pairs < 1)
    return fl_fail(call, FL_EINVAL, "argument 'cos' has rows of no elements, expected at least 1");
  view_tokens(&v, 0, query, gpu_tensor(call, QUERY_OUT));
  arguments.tensors[0] = heads_of(query, gpu_tensor(call, QUERY_OUT), size);
  arguments.tensors[0].tables[0] = table_of(cos, sin);
  if (key) {
    view_tokens(&v, 1, key, gpu_tensor(call, KEY_OUT));
    arguments.tensors[1] = heads_of(key, gpu_tensor(call, KEY_OUT), size);
    arguments.tensors[1].tables[0] = table_of(cos, sin);
  }
  return launch(self, call, &arguments, &v, cos);
}

/* x [..., places, heads, size]: a token is a place of the sequence. */
static fl_status apply_rotary_emb(void *self, fl_call *call) {
  enum { X, COS, SIN, NEOX, IN_FLOAT, OUT };
  DLTensor *x = gpu_tensor(call, X), *out = gpu_tensor(call, OUT);
  const DLTensor *cos = gpu_tensor(call, COS), *sin = gpu_tensor(call, SIN);
  gpu_rotary_arguments arguments = {.n_positions = cos->shape[0],
                                    .pairs = cos->shape[1],
                                    .size = x->shape[x->ndim - 1],
                                    .interleaved = !call->values[NEOX].v.b,
                                    .rounded = !call->values[IN_FLOAT].v.b};
  views v = {.tensors = {NULL}};
  view_tokens(&v, 0, x, out);
  arguments.tensors[0] = heads_of(x, out, arguments.size);
  arguments.tensors[0].tables[0] = table_of(cos, sin);
  return launch(self, call, &arguments, &v, cos);
}

static fl_status dual_chunk_rotary_embedding(void *self, fl_call *call) {
  enum { POSITIONS, QUERY, KEY, Q, QC, K, QC_NO_CLAMP, Q_INTER, SIZE, ROTARY_DIM, CHUNK, LOCAL, NEOX };
  enum { QUERY_OUT = NEOX + 1, KEY_OUT };
  static const struct {
    uint32_t cache;
    gpu_rotary_row row;
  } tables[GPU_ROTARY_TABLES] = {{Q, GPU_ROTARY_IN_CHUNK},
                                 {QC, GPU_ROTARY_IN_CHUNK},
                                 {QC, GPU_ROTARY_AT_CHUNK_END},
                                 {QC_NO_CLAMP, GPU_ROTARY_IN_CHUNK},
                                 {Q_INTER, GPU_ROTARY_IN_CHUNK}};
  const fl_value *values = call->values;
  DLTensor *query = gpu_tensor(call, QUERY), *key = gpu_tensor(call, KEY);
  DLTensor *query_out = gpu_tensor(call, QUERY_OUT), *key_out = gpu_tensor(call, KEY_OUT);
  const DLTensor *ids = gpu_tensor(call, POSITIONS), *k_cache = gpu_tensor(call, K);
  gpu_rotary_arguments arguments = {.positions = fl_data(ids),
                                    .wide_positions = gpu_is_wide(ids),
                                    .n_positions = k_cache->shape[0],
                                    .chunk = values[CHUNK].v.i - values[LOCAL].v.i,
                                    .pairs = values[ROTARY_DIM].v.i / 2,
                                    .size = values[SIZE].v.i,
                                    .interleaved = !values[NEOX].v.b,
                                    .rounded = true};
  views v = {.tensors = {NULL}};
  view_tokens(&v, 0, query, query_out);
  view_tokens(&v, 1, key, key_out);
  gpu_rotary_tensor *of_query = &arguments.tensors[0], *of_key = &arguments.tensors[1];
  *of_query = heads_of(query, query_out, arguments.size);
  of_query->n_tables = GPU_ROTARY_TABLES;
  of_query->out_table = query->shape[1];
  for (int i = 0; i < GPU_ROTARY_TABLES; i++)
    of_query->tables[i] = split_table(gpu_tensor(call, tables[i].cache), arguments.pairs, tables[i].row);
  *of_key = heads_of(key, key_out, arguments.size);
  of_key->tables[0] = split_table(k_cache, arguments.pairs, GPU_ROTARY_AT_POSITION);
  return launch(self, call, &arguments, &v, k_cache);
}

static const gpu_op ops[] = {
    {.name = "rotary_embedding", .run = rotary_embedding, .module = &gpu_module_rotary},
    {.name = "apply_rotary_emb", .run = apply_rotary_emb, .module = &gpu_module_rotary},
    {.name = "dual_chunk_rotary_embedding", .run = dual_chunk_rotary_embedding, .module = &gpu_module_rotary},
};
OP_LIST(ops);
