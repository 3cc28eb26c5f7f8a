/*
 * Experts of a mixture by cuBLASLt, as vendor.cuda.cublaslt: an implementation of its own beside our kernels'
 * (ops/moe_experts.c), so that whoever asks is told which of the two runs and why.
 *
 * How many tokens an expert has is known on the device alone, and the library takes sizes from the host. So the sorted
 * pairs are cut into blocks of equally many rows, each of one expert, and the blocks are a batch of products whose
 * matrices are found through arrays of addresses, which a kernel fills. There are as many blocks as there can have to
 * be: with E experts and blocks of R rows, fewer than E * R rows are computed that no pair has.
 */
#include "plugins/gpu/math.h"
#include "plugins/gpu/ops/moe_align.h"
#include "plugins/gpu/ops/moe_experts.h"
#include "plugins/gpu/plugin.h"

GPU_MODULE(moe_experts);
GPU_MODULE(moe_routing);
GPU_MODULE(moe_align);
GPU_MODULE(activation);

static gpu_kernel place_batches = {.module = &gpu_module_moe_experts, .name = "place_batches"};
static gpu_kernel gather_rows[] = {[GPU_FLOAT16] = {.module = &gpu_module_moe_experts, .name = "gather_rows_f16"},
                                   [GPU_BFLOAT16] = {.module = &gpu_module_moe_experts, .name = "gather_rows_bf16"}};
static gpu_kernel fill_rows[] = {[GPU_FLOAT16] = {.module = &gpu_module_moe_experts, .name = "fill_rows_f16"},
                                 [GPU_BFLOAT16] = {.module = &gpu_module_moe_experts, .name = "fill_rows_bf16"}};

enum { PRIORITY = 110 }; /* before our own kernels, which have a vendor's 100 */

typedef struct batches {
  gpu_experts e;
  uint32_t n, rows;       /* blocks, and rows of each */
  int32_t *pair, *expert; /* [n * rows], [n], as moe_align_block_size makes them */
  int32_t *used, *counts; /* what it makes besides, and where it counts */
  int32_t *place;         /* [pairs] */
  void *x;                /* [n * rows, hidden] */
  gpu_experts_matrices up, down;
  gpu_product gate_up, output;
} batches;

/* ---------------------------------------------------------------------------------------------------------- reading */

/*
 * Rows of a block; 0: none is worth it. No more than an expert has pairs on average, P / E: what is computed for
 * nothing, below E * R rows, is then less than what is wanted.
 *
 * And no fewer than 64, since below that there is little to win. A product of 16-bit numbers with T rows to an expert
 * has T operations for a byte of the expert's weight, which our kernels read once for 64 rows. Devices have 150 to 300
 * operations of their tensor cores for a byte of their memory, so that few rows take the time that the weights need,
 * whoever multiplies. Our tiles of 64 by 64 take a byte from the second-level cache for 32 operations: at two to three
 * times the bandwidth of the memory that cache becomes their limit at about 64 rows, and larger tiles go further. This
 * is arithmetic; it has not been measured.
 */
static uint32_t rows_of_block(uint32_t pairs, uint32_t experts) {
  enum { FEW = 64, MANY = 128 };
  uint32_t average = experts ? pairs / experts : 0;
  return average < FEW ? 0 : average < 2 * MANY ? FEW : MANY;
}

static bool suits(const gpu_experts *e, const DLTensor *weight) {
  return gpu_is_aligned(fl_data(weight), (fl_stride(weight, 0) | fl_stride(weight, 1) | weight->shape[2]) * e->size);
}

static bool is_empty(const gpu_experts *e) {
  return !e->tokens || !e->hidden;
}

/* NULL, or what this way cannot do or is not good for. */
static const char *find_fault(const gpu_experts *e, uint32_t rows) {
  if (e->dtype == GPU_FLOAT32)
    return "element types: float16 or bfloat16 expected";
  if ((e->w13_bias && gpu_dtype_of(e->w13_bias) != e->dtype) || (e->w2_bias && gpu_dtype_of(e->w2_bias) != e->dtype))
    return "a bias of another element type than x's would be rounded before it is added";
  if (e->map && e->map->shape[0] > e->routing.experts)
    return "an expert map of more experts than are here: what is for the others would be computed for nothing";
  if (!rows)
    return "fewer than 64 pairs of a token and an expert to each expert on average, which our kernels are for";
  if (!e->inner || !suits(e, e->w13) || !suits(e, e->w2))
    return "weights whose rows do not all begin at multiples of 16 bytes";
  return NULL;
}

/* `weight` [experts, n, k], on rows of x that lie one behind the other. */
static gpu_product lay_out_product(const fl_call *call, batches *b, const DLTensor *weight, const DLTensor *bias,
                                   const void *x, void *out, gpu_experts_matrices *m) {
  int64_t size = b->e.size, n = weight->shape[1], k = weight->shape[2];
  size_t bytes = b->n * sizeof(void *);
  *m = (gpu_experts_matrices){.weight = fl_data(weight),
                              .x = x,
                              .out = out,
                              .weight_step = fl_stride(weight, 0) * size,
                              .x_step = b->rows * k * size,
                              .out_step = b->rows * n * size,
                              .weights = gpu_experts_piece(call, &b->e, bytes),
                              .xs = gpu_experts_piece(call, &b->e, bytes),
                              .outs = gpu_experts_piece(call, &b->e, bytes)};
  return (gpu_product){.dtype = b->e.dtype,
                       .m = b->rows,
                       .n = n,
                       .k = k,
                       .x = m->xs,
                       .weight = m->weights,
                       .out = m->outs,
                       .x_stride = k,
                       .weight_stride = fl_stride(weight, 1),
                       .out_stride = n,
                       .batch = (int32_t)b->n,
                       .onto = bias != NULL};
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* x is not needed any more when `between` comes, nor `gate_up` when `down` does. */
static void lay_out(const fl_call *call, batches *b) {
  gpu_experts *e = &b->e;
  size_t rows = e->rows, size = (size_t)e->size;
  b->pair = gpu_experts_piece(call, e, rows * sizeof *b->pair);
  b->expert = gpu_experts_piece(call, e, b->n * sizeof *b->expert);
  b->used = gpu_experts_piece(call, e, sizeof *b->used);
  b->counts = gpu_experts_piece(call, e, gpu_align_workspace(e->routing.pairs, e->routing.experts));
  b->place = gpu_experts_piece(call, e, e->routing.pairs * sizeof *b->place);
  b->x = e->between = gpu_experts_piece(call, e, rows * (size_t)larger(e->hidden, e->inner) * size);
  e->gate_up = e->down = gpu_experts_piece(call, e, rows * (size_t)larger(2 * e->inner, e->hidden) * size);
  b->gate_up = lay_out_product(call, b, e->w13, e->w13_bias, b->x, e->gate_up, &b->up);
  b->output = lay_out_product(call, b, e->w2, e->w2_bias, e->between, e->down, &b->down);
}

/* false: `reason` says what this way is not for. */
static bool read_batches(const gpu_op *op, const fl_call *call, batches *b, const char **reason) {
  gpu_experts *e = &b->e;
  *b = (batches){.n = 0};
  if (!gpu_experts_read(op, call, e, reason))
    return false;
  if (is_empty(e))
    return true;
  b->rows = rows_of_block(e->routing.pairs, e->routing.experts);
  *reason = find_fault(e, b->rows);
  if (*reason)
    return false;
  int64_t n = (e->routing.pairs + (int64_t)e->routing.experts * (b->rows - 1)) / b->rows;
  *reason = "more than 65535 blocks of tokens";
  if (n > GPU_MOST_BATCH)
    return false;
  b->n = (uint32_t)n;
  e->rows = b->n * b->rows;
  lay_out(call, b);
  return gpu_math_takes(&b->gate_up, reason) && gpu_math_takes(&b->output, reason);
}

/* --------------------------------------------------------------------------------------------------------- the host */

/* Has the library a way for both products? `workspace`: what the more demanding one wants. */
static fl_status ask(const gpu_op *op, fl_call *call, const batches *b, size_t *workspace) {
  size_t up = 0, down = 0;
  fl_status status = gpu_ask_product(op, call, &b->gate_up, &up);
  if (!status)
    status = gpu_ask_product(op, call, &b->output, &down);
  *workspace = up > down ? up : down;
  return status;
}

/* Before the device is used, what can be said is said of the arguments alone. A failure is left for run() to report. */
static bool supports(void *self, const fl_call *call, const char **reason) {
  char words[GPU_WORDS] = "";
  fl_call question = *call;
  const char *why = NULL;
  size_t workspace;
  batches b;
  bool taken = read_batches(self, call, &b, &why);
  if (taken && b.n && gpu_is_open()) {
    question.message = words;
    question.message_size = sizeof words;
    taken = ask(self, &question, &b, &workspace) != FL_ENOTSUP;
    why = words;
  }
  return taken || fl_reason(reason, "%s", why ? why : "");
}

/* The library's part comes last: it makes do with less. */
static size_t workspace_size(void *self, const fl_call *call) {
  char words[GPU_WORDS];
  fl_call question = *call;
  const char *reason;
  size_t workspace;
  batches b;
  question.message = words;
  question.message_size = sizeof words;
  if (!read_batches(self, call, &b, &reason) || !b.n || ask(self, &question, &b, &workspace))
    workspace = 0;
  return b.n ? b.e.workspace + workspace : 0;
}

/* ------------------------------------------------------------------------------------------------------------ steps */

static fl_status sort(const gpu_op *op, fl_call *call, const batches *b) {
  const gpu_experts_routing *r = &b->e.routing;
  gpu_align_arguments arguments = {.ids = r->ids,
                                   .wide_ids = r->wide_ids,
                                   .row_stride = r->ids_stride,
                                   .topk = r->topk,
                                   .places = r->pairs,
                                   .experts = (int32_t)r->experts,
                                   .block = (int32_t)b->rows,
                                   .map = r->map,
                                   .map_size = r->map_size,
                                   .wide_map = r->wide_map,
                                   .sorted = b->pair,
                                   .expert_ids = b->expert,
                                   .num_tokens_post_pad = b->used,
                                   .sorted_size = b->e.rows,
                                   .expert_ids_size = b->n,
                                   .counts = b->counts};
  return gpu_align(op, call, &arguments);
}

static fl_status place(const gpu_op *op, fl_call *call, const batches *b) {
  gpu_experts_batch_arguments arguments = {.pair = b->pair,
                                           .expert = b->expert,
                                           .place = b->place,
                                           .up = b->up,
                                           .down = b->down,
                                           .n = b->n,
                                           .rows = b->rows,
                                           .pairs = b->e.routing.pairs};
  gpu_shape shape = {.grid = {(unsigned)divide_up(b->e.rows, GPU_TILE_THREADS), 1, 1},
                     .block = {GPU_TILE_THREADS, 1, 1}};
  return gpu_launch(op, call, &place_batches, &shape, &arguments);
}

/* Blocks of a kernel that makes rows, several elements a thread where it may. */
static gpu_shape shape_of(const batches *b, int64_t columns, bool vectorised) {
  int64_t threads = vectorised ? columns * b->e.size / GPU_VECTOR : columns;
  unsigned x = gpu_power_of_two(threads, GPU_TILE_THREADS);
  return gpu_shape_of(threads, b->e.rows, x, GPU_TILE_THREADS / x);
}

static fl_status gather(const gpu_op *op, fl_call *call, const batches *b) {
  const gpu_experts *e = &b->e;
  gpu_experts_gather_arguments arguments = {.pair = b->pair,
                                            .x = fl_data(e->x),
                                            .out = b->x,
                                            .columns = e->hidden,
                                            .x_stride = fl_stride(e->x, 0),
                                            .rows = e->rows,
                                            .pairs = e->routing.pairs,
                                            .topk = e->routing.topk};
  if (e->weight_on_input)
    arguments.scale = gpu_experts_weights_of(e);
  arguments.vectorised = gpu_is_aligned(arguments.x, (arguments.x_stride | e->hidden) * e->size);
  gpu_shape shape = shape_of(b, e->hidden, arguments.vectorised);
  return gpu_launch(op, call, &gather_rows[e->dtype], &shape, &arguments);
}

/* A batch has no bias: it stands in the output, and the product is added to it, so that the sum is rounded once. */
static fl_status multiply(const gpu_op *op, fl_call *call, const batches *b, const gpu_product *product,
                          const DLTensor *bias, void *out) {
  fl_call part = *call;
  fl_status status = FL_OK;
  if (bias) {
    gpu_experts_fill_arguments arguments = {.expert = b->expert,
                                            .bias = fl_data(bias),
                                            .out = out,
                                            .columns = product->n,
                                            .bias_stride = fl_stride(bias, 0),
                                            .rows = b->e.rows,
                                            .of_expert = b->rows};
    arguments.vectorised = gpu_is_aligned(arguments.bias, (arguments.bias_stride | product->n) * b->e.size);
    gpu_shape shape = shape_of(b, product->n, arguments.vectorised);
    status = gpu_launch(op, call, &fill_rows[b->e.dtype], &shape, &arguments);
  }
  part.workspace = (char *)call->workspace + b->e.workspace;
  part.workspace_size = call->workspace_size - b->e.workspace;
  return status ? status : gpu_multiply(op, &part, product);
}

static fl_status run(void *self, fl_call *call) {
  const gpu_op *op = self;
  const char *reason = NULL;
  batches b;
  if (!read_batches(op, call, &b, &reason))
    return fl_fail(call, FL_ENOTSUP, "%s: %s", op->name, reason);
  if (is_empty(&b.e))
    return FL_OK;
  fl_status status = gpu_experts_check_workspace(op, call, &b.e);
  if (!status)
    status = gpu_experts_route(op, call, &b.e);
  if (!status)
    status = sort(op, call, &b);
  if (!status)
    status = place(op, call, &b);
  if (!status)
    status = gather(op, call, &b);
  if (!status)
    status = multiply(op, call, &b, &b.gate_up, b.e.w13_bias, b.e.gate_up);
  if (!status)
    status = gpu_experts_activate(call, &b.e);
  if (!status)
    status = multiply(op, call, &b, &b.output, b.e.w2_bias, b.e.down);
  return status ? status : gpu_experts_add(op, call, &b.e, b.place);
}

static gpu_module *const others[] = {&gpu_module_moe_routing, &gpu_module_moe_align, &gpu_module_activation, NULL};

/* float32 products are none for tensor cores, unless they are rounded: whoever computes them, it takes the same units,
 * and rows that nobody has would come on top. */
#define OP(op, ...)                                                                                                    \
  {.name = op,                                                                                                         \
   .impl_id = "vendor.cuda.cublaslt",                                                                                  \
   .priority = PRIORITY,                                                                                               \
   .run = run,                                                                                                         \
   .supports = supports,                                                                                               \
   .workspace_size = workspace_size,                                                                                   \
   .dtypes = FL_FLOAT16 | FL_BFLOAT16,                                                                                 \
   .module = &gpu_module_moe_experts,                                                                                  \
   .others = others,                                                                                                   \
   .is_ready = gpu_math_takes_batches,                                                                                 \
   .variant = &(const gpu_experts_places){__VA_ARGS__}},

static const gpu_op ops[] = {GPU_EXPERTS_OPS(OP)};
OP_LIST(ops);
