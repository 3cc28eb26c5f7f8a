/* Ops that ranks share (fl_op_def.ranks): what a group makes of them, who is called with it, and what goes wrong. */
#include "tests/collectives.h"
#include "tests/scratch.h"

#include <math.h>
#include <string.h>

static const DLDataType float32 = {kDLFloat, 32, 1};

static fl_host *host;

static void start(void) {
  static const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  host = test_host(environment, 0);
  ck_ok(fl_load_plugin(host, built("tests/plugins/communicators.so")));
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
}

static void stop(void) {
  fl_host_destroy(host);
}

/* ---------------------------------------------------------------------------------------------------------- tensors */

typedef struct held {
  DLTensor tensor;
  int64_t shape[3];
  float data[]; /* or int32_t */
} held;

static held *sized(int ndim, int64_t a, int64_t b, int64_t c) {
  int64_t n = a * (ndim > 1 ? b : 1) * (ndim > 2 ? c : 1);
  held *made = calloc(1, sizeof *made + (size_t)(n + 1) * sizeof *made->data);
  made->shape[0] = a;
  made->shape[1] = b;
  made->shape[2] = c;
  made->tensor = (DLTensor){made->data, {kDLCPU, 0}, ndim, float32, made->shape, NULL, 0};
  return made;
}

static int64_t elements(const held *h) {
  int64_t n = 1;
  for (int i = 0; i < h->tensor.ndim; i++)
    n *= h->shape[i];
  return n;
}

/* Numbers that depend on the seed alone: all ranks have the same. */
static held *filled(uint32_t seed, int ndim, int64_t a, int64_t b, int64_t c) {
  held *made = sized(ndim, a, b, c);
  for (int64_t i = 0; i < elements(made); i++) {
    seed = seed * 1664525u + 1013904223u;
    made->data[i] = (float)(seed >> 8) / (float)(1 << 23) - 1;
  }
  return made;
}

static held *ids(uint32_t seed, int ndim, int64_t a, int64_t b, int32_t below) {
  held *made = filled(seed, ndim, a, b, 1);
  int32_t *numbers = (int32_t *)made->data;
  for (int64_t i = 0; i < elements(made); i++)
    numbers[i] = (int32_t)((made->data[i] + 1) / 2 * (float)below) % below;
  made->tensor.dtype = (DLDataType){kDLInt, 32, 1};
  return made;
}

/* Rows [from, from + n) of the first dimension. */
static held *rows_of(const held *whole, int64_t from, int64_t n) {
  int64_t row = elements(whole) / whole->shape[0];
  held *made = sized(whole->tensor.ndim, n, whole->shape[1], whole->shape[2]);
  made->tensor.dtype = whole->tensor.dtype;
  memcpy(made->data, whole->data + from * row, (size_t)(n * row) * sizeof *made->data);
  return made;
}

/* Columns [from, from + n) of the last dimension. */
static held *columns_of(const held *whole, int64_t from, int64_t n) {
  int last = whole->tensor.ndim - 1;
  int64_t width = whole->shape[last], rows = elements(whole) / width, shape[3];
  memcpy(shape, whole->shape, sizeof shape);
  shape[last] = n;
  held *made = sized(whole->tensor.ndim, shape[0], shape[1], shape[2]);
  for (int64_t i = 0; i < rows; i++)
    memcpy(made->data + i * n, whole->data + i * width + from, (size_t)n * sizeof *made->data);
  return made;
}

static void check_same(const held *got, const float *wanted, double tolerance) {
  for (int64_t i = 0; i < elements(got); i++)
    ck_assert_msg(fabs(got->data[i] - wanted[i]) <= tolerance * (1 + fabs(wanted[i])), "element %lld: %g, expected %g",
                  (long long)i, got->data[i], wanted[i]);
}

/* Freed together at the end of a rank's work. */
static _Thread_local void *kept[64];
static _Thread_local int n_kept;

static held *keep(held *made) {
  ck_assert_int_lt(n_kept, 64);
  return kept[n_kept++] = made;
}

static void let_go(void) {
  while (n_kept)
    free(kept[--n_kept]);
}

#define T(h)          fl_tensor(&(h)->tensor)
#define CALL(op, ...) call_op(op, (sizeof((fl_value[]){__VA_ARGS__}) / sizeof(fl_value)), (fl_value[]){__VA_ARGS__})

static fl_status call_op(const char *op, size_t n, fl_value *values) {
  fl_call call = {.size = sizeof call, .count = (uint32_t)n, .values = values};
  fl_status status = fl_call_op(host, op, &call);
  ck_assert_ptr_null(call.group);
  return status;
}

/* The number of ranks in each turn of a loop test. */
static const int32_t numbers[] = {1, 2, 3, 4, 7};
enum { N_NUMBERS = 5 };

static _Thread_local struct {
  int32_t rank, ranks;
  fl_group *group;
  fl_scope scope;
} me;

static void enter(fl_group *group) {
  me.rank = fl_group_rank(group);
  me.ranks = fl_group_ranks(group);
  me.group = group;
  ck_ok(fl_scope_group(host, group, &me.scope));
}

static void leave(void) {
  ck_ok(fl_scope_leave(&me.scope));
  let_go();
}

/* ---------------------------------------------------------------------------------------------------- linear layers */

/* A whole layer of K inputs and N outputs that the ranks share. */
enum { K = 84, N = 84 }; /* divided by 1, 2, 3, 4 and 7 */

static void column_parallel(fl_host *of, fl_group *group) {
  (void)of;
  enter(group);
  int64_t n = N / me.ranks;
  for (int64_t rows = 1; rows < 6; rows += 2) {
    held *x = keep(filled(1, 2, rows, K, 1)), *weight = keep(filled(2, 2, N, K, 1)),
         *bias = keep(filled(3, 1, N, 1, 1));
    held *own = keep(rows_of(weight, me.rank * n, n)), *own_bias = keep(rows_of(bias, me.rank * n, n));
    held *out = keep(sized(2, rows, N, 1)), *part = keep(sized(2, rows, n, 1)), *all = keep(sized(2, rows, N, 1));
    ck_ok(CALL("replicated_linear", T(x), T(weight), T(bias), fl_bool(false), T(all)));
    ck_ok(CALL("column_parallel_linear", T(x), T(own), T(own_bias), fl_bool(true), fl_bool(false), T(out)));
    check_same(out, all->data, 1e-5);
    ck_ok(CALL("column_parallel_linear", T(x), T(own), T(own_bias), fl_bool(false), fl_bool(false), T(part)));
    check_same(part, keep(columns_of(all, me.rank * n, n))->data, 1e-5);
  }
  leave();
}

static void row_parallel(fl_host *of, fl_group *group) {
  (void)of;
  enter(group);
  int64_t k = K / me.ranks;
  held *x = keep(filled(1, 2, 3, K, 1)), *weight = keep(filled(2, 2, N, K, 1)), *bias = keep(filled(3, 1, N, 1, 1));
  held *own_x = keep(columns_of(x, me.rank * k, k)), *own = keep(columns_of(weight, me.rank * k, k));
  held *out = keep(sized(2, 3, N, 1)), *all = keep(sized(2, 3, N, 1)), *local = keep(sized(2, 3, N, 1));
  ck_ok(CALL("replicated_linear", T(x), T(weight), T(bias), fl_bool(false), T(all)));
  /* The input is cut already, or by the op; the bias is added once. */
  ck_ok(CALL("row_parallel_linear", T(own_x), T(own), T(bias), fl_bool(true), fl_bool(true), fl_bool(false), T(out)));
  check_same(out, all->data, 1e-5);
  memset(out->data, 0, (size_t)elements(out) * sizeof *out->data);
  ck_ok(CALL("row_parallel_linear", T(x), T(own), T(bias), fl_bool(false), fl_bool(true), fl_bool(false), T(out)));
  check_same(out, all->data, 1e-5);
  /* This rank's results alone. */
  ck_ok(CALL("row_parallel_linear", T(x), T(own), fl_none(), fl_bool(false), fl_bool(false), fl_bool(false), T(out)));
  ck_ok(CALL("replicated_linear", T(own_x), T(own), fl_none(), fl_bool(false), T(local)));
  check_same(out, local->data, 1e-6);
  leave();
}

START_TEST(G5_linear_layers_over_ranks_are_as_one) {
  start();
  ranks_as_threads(host, numbers[_i], column_parallel);
  ranks_as_threads(host, numbers[_i], row_parallel);
  stop();
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- vocabulary */

enum { VOCABULARY = 80, HIDDEN = 24, SHARD = 84 }; /* a shard's rows times ranks: padding behind the words */

static void vocabulary(fl_host *of, fl_group *group) {
  (void)of;
  enter(group);
  int64_t rows = SHARD / me.ranks, begin = me.rank * rows;
  int64_t end = begin + rows < VOCABULARY ? begin + rows : begin < VOCABULARY ? VOCABULARY : begin;
  held *table = keep(filled(4, 2, SHARD, HIDDEN, 1)), *own = keep(rows_of(table, begin, rows));
  held *tokens = keep(ids(5, 2, 3, 4, VOCABULARY)), *out = keep(sized(3, 3, 4, HIDDEN));
  held *all = keep(sized(3, 3, 4, HIDDEN));
  ck_ok(CALL("vocab_parallel_embedding", T(tokens), T(table), fl_int(0), fl_none(), fl_int(0), fl_int(0), fl_int(0),
             T(all)));
  ck_ok(CALL("vocab_parallel_embedding", T(tokens), T(own), fl_int(begin), fl_int(end), fl_int(0), fl_int(0), fl_int(0),
             T(out)));
  check_same(out, all->data, 0);
  leave();
}

static void logits(fl_host *of, fl_group *group) {
  (void)of;
  enter(group);
  int64_t rows = SHARD / me.ranks;
  held *table = keep(filled(4, 2, SHARD, HIDDEN, 1)), *own = keep(rows_of(table, me.rank * rows, rows));
  for (int64_t n = 1; n < 4; n++) {
    held *x = keep(filled(6, 2, n, HIDDEN, 1)), *all = keep(sized(2, n, SHARD, 1)), *out = keep(sized(2, n, SHARD, 1));
    held *words = keep(sized(2, n, VOCABULARY, 1)), *wanted = keep(sized(2, n, VOCABULARY, 1));
    ck_ok(CALL("replicated_linear", T(x), T(table), fl_none(), fl_bool(false), T(all)));
    ck_ok(CALL("parallel_lm_head", T(x), T(own), fl_none(), T(out)));
    check_same(out, all->data, 1e-5);
    ck_ok(CALL("logits_processor", T(x), T(own), fl_none(), fl_int(VOCABULARY), fl_float(2), fl_float(0.5), T(words)));
    ck_ok(fl_scope_leave(&me.scope));
    ck_ok(
        CALL("logits_processor", T(x), T(table), fl_none(), fl_int(VOCABULARY), fl_float(2), fl_float(0.5), T(wanted)));
    ck_ok(fl_scope_group(host, group, &me.scope));
    check_same(words, wanted->data, 1e-5);
  }
  leave();
}

START_TEST(G5_a_vocabulary_over_ranks_is_as_one) {
  start();
  ranks_as_threads(host, numbers[_i], vocabulary);
  ranks_as_threads(host, numbers[_i], logits);
  stop();
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- experts */

enum { EXPERTS = 12, INNER = 84, TOKENS = 5, TOP = 2 };

typedef struct experts {
  held *x, *w13, *w2, *w13_bias, *w2_bias, *weights, *chosen, *out;
} experts;

static experts whole_experts(int64_t tokens, uint32_t seed) {
  experts e = {
      .x = keep(filled(seed, 2, tokens, HIDDEN, 1)),
      .w13 = keep(filled(11, 3, EXPERTS, 2 * INNER, HIDDEN)),
      .w2 = keep(filled(12, 3, EXPERTS, HIDDEN, INNER)),
      .w13_bias = keep(filled(13, 2, EXPERTS, 2 * INNER, 1)),
      .w2_bias = keep(filled(14, 2, EXPERTS, HIDDEN, 1)),
      .weights = keep(filled(seed + 1, 2, tokens, TOP, 1)),
      .chosen = keep(ids(seed + 2, 2, tokens, TOP, EXPERTS)),
      .out = keep(sized(2, tokens, HIDDEN, 1)),
  };
  return e;
}

static fl_status run_experts(const char *op, const experts *e, fl_value map) {
  bool coded = !strcmp(op, "modular_fused_moe");
  fl_value values[] = {T(e->x),
                       T(e->w13),
                       T(e->w2),
                       T(e->weights),
                       T(e->chosen),
                       fl_string("silu"),
                       fl_bool(false),
                       map,
                       T(e->w13_bias),
                       T(e->w2_bias),
                       fl_none(),
                       fl_none(),
                       fl_ints((int64_t[]){128, 128}, 2),
                       T(e->out)};
  if (!coded)
    values[10] = values[13];
  return call_op(op, coded ? 14 : 11, values);
}

/* Each rank has some of the experts, and all tokens. */
static void experts_over_ranks(fl_host *of, fl_group *group) {
  (void)of;
  experts whole = whole_experts(TOKENS, 20), own = whole;
  ck_ok(run_experts("unquantized_fused_moe", &whole, fl_none()));
  enter(group);
  int64_t n = EXPERTS / me.ranks;
  held *map = keep(ids(1, 1, EXPERTS, 1, 1));
  for (int32_t i = 0; i < EXPERTS; i++)
    ((int32_t *)map->data)[i] = i / n == me.rank ? i % (int32_t)n : -1;
  own.w13 = keep(rows_of(whole.w13, me.rank * n, n));
  own.w2 = keep(rows_of(whole.w2, me.rank * n, n));
  own.w13_bias = keep(rows_of(whole.w13_bias, me.rank * n, n));
  own.w2_bias = keep(rows_of(whole.w2_bias, me.rank * n, n));
  own.out = keep(sized(2, TOKENS, HIDDEN, 1));
  ck_ok(run_experts("unquantized_fused_moe", &own, T(map)));
  check_same(own.out, whole.out->data, 1e-4);
  leave();
}

/* Each rank has a part of every expert, as of a dense layer. */
static void shards_of_experts(fl_host *of, fl_group *group) {
  (void)of;
  experts whole = whole_experts(TOKENS, 20), own = whole;
  ck_ok(run_experts("unquantized_fused_moe", &whole, fl_none()));
  enter(group);
  int64_t n = INNER / me.ranks;
  own.w13 = keep(sized(3, EXPERTS, 2 * n, HIDDEN));
  own.w13_bias = keep(sized(2, EXPERTS, 2 * n, 1));
  for (int64_t e = 0; e < EXPERTS; e++)
    for (int64_t half = 0; half < 2; half++) {
      int64_t from = e * 2 * INNER + half * INNER + me.rank * n, to = e * 2 * n + half * n;
      memcpy(own.w13->data + to * HIDDEN, whole.w13->data + from * HIDDEN, (size_t)(n * HIDDEN) * sizeof(float));
      memcpy(own.w13_bias->data + to, whole.w13_bias->data + from, (size_t)n * sizeof(float));
    }
  own.w2 = keep(columns_of(whole.w2, me.rank * n, n));
  own.out = keep(sized(2, TOKENS, HIDDEN, 1));
  ck_ok(run_experts("unquantized_fused_moe", &own, fl_none()));
  check_same(own.out, whole.out->data, 1e-4);
  leave();
}

/* Each rank has tokens of its own and some of the experts: "ep". */
static void tokens_and_experts(fl_host *of, fl_group *group) {
  fl_group *part;
  const fl_group_options options = {.size = sizeof options, .name = "ep"};
  (void)of;
  ck_ok(fl_group_split(group, 0, fl_group_rank(group), &options, &part));
  experts whole = whole_experts(TOKENS, 30 + (uint32_t)fl_group_rank(group)), own = whole;
  ck_ok(run_experts("modular_fused_moe", &whole, fl_none()));
  enter(part);
  int64_t n = EXPERTS / me.ranks;
  held *map = keep(ids(1, 1, EXPERTS, 1, 1));
  for (int32_t i = 0; i < EXPERTS; i++)
    ((int32_t *)map->data)[i] = i / n == me.rank ? i % (int32_t)n : -1;
  own.w13 = keep(rows_of(whole.w13, me.rank * n, n));
  own.w2 = keep(rows_of(whole.w2, me.rank * n, n));
  own.w13_bias = keep(rows_of(whole.w13_bias, me.rank * n, n));
  own.w2_bias = keep(rows_of(whole.w2_bias, me.rank * n, n));
  own.out = keep(sized(2, TOKENS, HIDDEN, 1));
  ck_ok(run_experts("modular_fused_moe", &own, T(map)));
  check_same(own.out, whole.out->data, 1e-4);
  leave();
  fl_group_destroy(part);
}

START_TEST(G5_experts_over_ranks_are_as_one) {
  start();
  ranks_as_threads(host, numbers[_i], experts_over_ranks); /* 12 experts: 1 to 4 */
  ranks_as_threads(host, numbers[_i], shards_of_experts);
  ranks_as_threads(host, numbers[_i], tokens_and_experts);
  stop();
}
END_TEST

/* ---------------------------------------------------------------------------------------------- a block of a model */

enum { HEADS = 4, HEAD = 16, MODEL = HEADS * HEAD, FEED = 96, LENGTH = 6 };

/* The weights of a block as one rank of so many has them. */
typedef struct block {
  held *norm, *qkv, *o, *norm_2, *gate_up, *down;
  int64_t heads, feed;
} block;

/* Rows of each of `n` matrices that lie one behind the other in `whole`. */
static held *shard_rows(const held *whole, int n, int32_t rank, int32_t ranks) {
  int64_t each = whole->shape[0] / n, part = each / ranks;
  held *made = keep(sized(2, n * part, whole->shape[1], 1));
  for (int i = 0; i < n; i++)
    memcpy(made->data + i * part * whole->shape[1], whole->data + (i * each + rank * part) * whole->shape[1],
           (size_t)(part * whole->shape[1]) * sizeof(float));
  return made;
}

static block make_block(int32_t rank, int32_t ranks) {
  held *qkv = keep(filled(41, 2, 3 * MODEL, MODEL, 1)), *o = keep(filled(42, 2, MODEL, MODEL, 1));
  held *gate_up = keep(filled(43, 2, 2 * FEED, MODEL, 1)), *down = keep(filled(44, 2, MODEL, FEED, 1));
  int64_t heads = HEADS / ranks, feed = FEED / ranks;
  return (block){.norm = keep(filled(45, 1, MODEL, 1, 1)),
                 .norm_2 = keep(filled(46, 1, MODEL, 1, 1)),
                 .qkv = shard_rows(qkv, 3, rank, ranks),
                 .o = keep(columns_of(o, rank * heads * HEAD, heads * HEAD)),
                 .gate_up = shard_rows(gate_up, 2, rank, ranks),
                 .down = keep(columns_of(down, rank * feed, feed)),
                 .heads = heads,
                 .feed = feed};
}

static DLTensor heads_of(const held *qkv, int which, int64_t heads, int64_t *shape, int64_t *strides) {
  int64_t sizes[] = {1, LENGTH, heads, HEAD}, steps[] = {LENGTH * 3 * heads * HEAD, 3 * heads * HEAD, HEAD, 1};
  memcpy(shape, sizes, sizeof sizes);
  memcpy(strides, steps, sizeof steps);
  return (DLTensor){(void *)(uintptr_t)(qkv->data + which * heads * HEAD), {kDLCPU, 0}, 4, float32, shape, strides, 0};
}

/* Norm, attention, norm, gated feed-forward; residuals added. `fused` joins the sum over ranks and what follows. */
static held *run_block(const block *b, bool fused) {
  held *x = keep(filled(50, 2, LENGTH, MODEL, 1)), *residual = keep(filled(50, 2, LENGTH, MODEL, 1));
  held *normal = keep(sized(2, LENGTH, MODEL, 1)), *qkv = keep(sized(2, LENGTH, 3 * b->heads * HEAD, 1));
  held *attended = keep(sized(2, LENGTH, b->heads * HEAD, 1)), *o = keep(sized(2, LENGTH, MODEL, 1));
  held *gate_up = keep(sized(2, LENGTH, 2 * b->feed, 1)), *inner = keep(sized(2, LENGTH, b->feed, 1));
  held *out = keep(sized(2, LENGTH, MODEL, 1));
  int64_t shapes[4][4], strides[4][4], sizes[] = {1, LENGTH, b->heads, HEAD};
  DLTensor q = heads_of(qkv, 0, b->heads, shapes[0], strides[0]), k = heads_of(qkv, 1, b->heads, shapes[1], strides[1]);
  DLTensor v = heads_of(qkv, 2, b->heads, shapes[2], strides[2]), a = attended->tensor;
  const fl_value bools[] = {fl_bool(false), fl_bool(true)};
  a.ndim = 4;
  a.shape = sizes;
  ck_ok(CALL("rms_norm", T(x), fl_none(), T(b->norm), fl_float(1e-5), fl_none(), T(normal), fl_none()));
  ck_ok(CALL("column_parallel_linear", T(normal), T(b->qkv), fl_none(), bools[0], bools[0], T(qkv)));
  ck_ok(CALL("mm_encoder_attn", fl_tensor(&q), fl_tensor(&k), fl_tensor(&v), fl_none(), fl_none(), fl_none(),
             fl_tensor(&a)));
  ck_ok(CALL("row_parallel_linear", T(attended), T(b->o), fl_none(), bools[1], bools[!fused], bools[0], T(o)));
  ck_ok(fused ? CALL("all_reduce_fused_add_rms_norm", T(o), T(residual), T(b->norm_2), fl_float(1e-5), fl_none(),
                     T(normal), T(residual))
              : CALL("fused_add_rms_norm", T(o), T(residual), T(b->norm_2), fl_float(1e-5), fl_none(), T(normal),
                     T(residual)));
  ck_ok(CALL("column_parallel_linear", T(normal), T(b->gate_up), fl_none(), bools[0], bools[0], T(gate_up)));
  ck_ok(CALL("silu_and_mul", T(gate_up), T(inner)));
  ck_ok(CALL("row_parallel_linear", T(inner), T(b->down), fl_none(), bools[1], bools[1], bools[0], T(out)));
  ck_ok(CALL("add", T(out), T(residual), T(out)));
  return out;
}

static void block_over_ranks(fl_host *of, fl_group *group) {
  (void)of;
  block alone = make_block(0, 1);
  float wanted[LENGTH * MODEL];
  memcpy(wanted, run_block(&alone, false)->data, sizeof wanted);
  let_go();
  enter(group);
  block own = make_block(me.rank, me.ranks);
  check_same(run_block(&own, false), wanted, 2e-5);
  check_same(run_block(&own, true), wanted, 2e-5);
  leave();
}

START_TEST(G5_a_block_over_2_and_4_ranks_is_as_on_one) {
  start();
  ranks_as_threads(host, 1 << _i, block_over_ranks);
  stop();
}
END_TEST

/* -------------------------------------------------------------------------------------------- what is known before */

static void shapes(fl_host *of, fl_group *group) {
  (void)of;
  enter(group);
  held *x = keep(filled(1, 2, 3, K, 1)), *weight = keep(filled(2, 2, 6, K, 1)),
       *out = keep(sized(2, 3, 6 * me.ranks, 1));
  fl_value values[] = {T(x), T(weight), fl_none(), fl_bool(true), fl_bool(false), T(out)};
  fl_call call = FL_CALL(values);
  fl_tensor_spec spec;
  fl_cost cost = {.size = sizeof cost};
  size_t size;
  fl_op *op = fl_find_op(host, "column_parallel_linear");
  ck_assert_str_eq(fl_op_ranks(op), "tp: out = all_gather(out, -1) if gather_output");
  ck_ok(fl_infer(op, &call, &spec, 1, sizeof spec));
  ck_assert_int_eq(spec.shape[1], 6 * me.ranks);
  ck_ok(fl_check(op, &call));
  ck_ok(fl_op_cost(op, &call, &cost));
  ck_ok(fl_workspace_size(op, &call, &size));
  ck_ok(fl_scope_leave(&me.scope));
  ck_ok(fl_infer(op, &call, &spec, 1, sizeof spec));
  ck_assert_int_eq(spec.shape[1], 6);
  ck_assert_int_eq(fl_invoke(op, &call), FL_EINVAL); /* also where it passed before, with ranks */
  ck_contains(fl_error_message(), "column_parallel_linear: result 'out': shape [3, ");
  ck_ok(fl_scope_group(host, group, &me.scope));
  ck_ok(fl_invoke(op, &call));
  leave();
}

START_TEST(rules_know_how_many_ranks_there_are_in_a_scope) {
  start();
  ranks_as_threads(host, 2 + _i, shapes);
  stop();
}
END_TEST

static void prepared(fl_host *of, fl_group *group) {
  (void)of;
  enter(group);
  int64_t k = 256, n = 256;
  held *x = keep(filled(1, 2, 64, k * me.ranks, 1)), *weight = keep(filled(2, 2, n, k, 1));
  held *out = keep(sized(2, 64, n, 1)), *again = keep(sized(2, 64, n, 1));
  fl_value values[] = {T(x), T(weight), fl_none(), fl_bool(false), fl_bool(true), fl_bool(false), T(out)};
  fl_call call = FL_CALL(values);
  fl_op *op = fl_find_op(host, "row_parallel_linear");
  ck_ok(fl_invoke(op, &call));
  ck_ok(fl_prepare(op, &call, &call.prepared));
  values[6] = T(again);
  ck_ok(fl_invoke(op, &call));
  check_same(again, out->data, 1e-4);
  fl_prepared_free(call.prepared);
  leave();
}

START_TEST(prepared_weights_serve_a_call_over_ranks) {
  start();
  ranks_as_threads(host, 2, prepared);
  stop();
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- groups */

static void named(fl_host *of, fl_group *group) {
  fl_group *pipeline, *world;
  const fl_group_options pp = {.size = sizeof pp, .name = "pp"}, any = {.size = sizeof any};
  fl_scope scope;
  (void)of;
  ck_ok(fl_group_split(group, 0, fl_group_rank(group), &pp, &pipeline));
  ck_ok(fl_group_split(group, 0, fl_group_rank(group), &any, &world));
  held *x = keep(filled(1, 1, 4, 1, 1)), *out = keep(sized(1, 4, 1, 1));
  float n = (float)fl_group_ranks(group);
  /* Not by a group that the op does not name; by "world"; by the innermost with its name, also behind another. */
  enter(pipeline);
  ck_ok(CALL("tensor_model_parallel_all_reduce", T(x), T(out)));
  ck_assert_float_eq(out->data[0], x->data[0]);
  ck_ok(fl_scope_group(host, world, &scope));
  ck_ok(CALL("tensor_model_parallel_all_reduce", T(x), T(out)));
  ck_assert_float_eq_tol(out->data[0], n * x->data[0], 1e-6);
  ck_ok(fl_scope_leave(&scope));
  ck_ok(fl_scope_leave(&me.scope));
  enter(group);
  ck_ok(fl_scope_group(host, pipeline, &scope));
  ck_ok(CALL("tensor_model_parallel_all_reduce", T(x), T(out)));
  ck_assert_float_eq_tol(out->data[0], n * x->data[0], 1e-6);
  ck_ok(fl_scope_leave(&scope));
  /* A scope of a policy inside it keeps the group. */
  ck_ok(fl_scope_prefer(host, "reference", &scope));
  ck_ok(CALL("tensor_model_parallel_all_reduce", T(x), T(out)));
  ck_assert_float_eq_tol(out->data[0], n * x->data[0], 1e-6);
  ck_ok(fl_scope_leave(&scope));
  ck_ok(fl_scope_leave(&me.scope));
  ck_ok(CALL("tensor_model_parallel_all_reduce", T(x), T(out)));
  ck_assert_float_eq(out->data[0], x->data[0]);
  let_go();
  fl_group_destroy(world);
  fl_group_destroy(pipeline);
}

START_TEST(G5_an_op_goes_by_the_groups_that_it_names) {
  start();
  ranks_as_threads(host, 3, named);
  stop();
}
END_TEST

/* ------------------------------------------------------------------------------------------------- implementations */

static _Atomic int whole_calls, part_calls;

/* Of an op over ranks: counts what it is given. */
static fl_status own_all_reduce(void *self, fl_call *call) {
  const fl_ranks *group = fl_call_ranks(call);
  DLTensor *x = call->values[0].v.tensor, *out = call->values[call->count - 2].v.tensor;
  (void)self;
  if (!group) {
    part_calls++;
    return FL_ENOTSUP;
  }
  whole_calls++;
  fl_collective c = {.size = sizeof c, .kind = FL_ALL_REDUCE, .send = fl_data(x), .recv = fl_data(out)};
  c.count = x->shape[0] * x->shape[1];
  c.dtype = x->dtype;
  memset(call->values[call->count - 1].v.tensor->data, 0, (size_t)c.count * sizeof(float));
  return group->collective(group, &c, call->message, call->message_size);
}

static void vendors_own(fl_host *of, fl_group *group) {
  (void)of;
  held *x = keep(filled(1, 2, 2, 8, 1)), *residual = keep(filled(2, 2, 2, 8, 1));
  held *out = keep(sized(2, 2, 8, 1)), *residual_out = keep(sized(2, 2, 8, 1));
  fl_value values[] = {T(x), T(residual), fl_none(), fl_float(1e-5), fl_none(), T(out), T(residual_out)};
  enter(group);
  ck_ok(call_op("all_reduce_fused_add_rms_norm", 7, values));
  ck_assert_float_eq_tol(out->data[3], (float)me.ranks * x->data[3], 1e-6);
  leave();
}

START_TEST(G5_one_that_knows_ranks_gets_the_whole_call) {
  const fl_impl impl = {.size = sizeof impl,
                        .flags = FL_IMPL_RANKS,
                        .op_name = "all_reduce_fused_add_rms_norm",
                        .impl_id = "vendor.acme",
                        .kind = FL_KIND_VENDOR,
                        .vendor = "acme",
                        .priority = 500,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = own_all_reduce};
  whole_calls = part_calls = 0;
  start();
  ck_ok(fl_register_impl(host, &impl));
  fl_policy *policy = fl_get_policy(host), *prefers;
  ck_ok(fl_policy_with_preference(policy, "vendor", &prefers));
  ck_ok(fl_set_global_policy(host, prefers));
  fl_policy_release(policy);
  fl_policy_release(prefers);
  ranks_as_threads(host, 2, vendors_own);
  ck_assert_int_eq(whole_calls, 2);
  ck_assert_int_eq(part_calls, 0);
  stop();
}
END_TEST

static _Atomic int failing_calls;

static fl_status failing(void *self, fl_call *call) {
  (void)self;
  failing_calls++;
  return fl_fail(call, FL_EDEVICE, "out of order");
}

static void no_fallback(fl_host *of, fl_group *group) {
  (void)of;
  held *x = keep(filled(1, 2, 2, 8, 1)), *out = keep(sized(2, 2, 4, 1));
  ck_ok(CALL("silu_and_mul", T(x), T(out))); /* another takes its place */
  enter(group);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(CALL("silu_and_mul", T(x), T(out)), FL_EDEVICE);
    ck_contains(fl_error_message(), "silu_and_mul: out of order");
  }
  ck_ok(fl_scope_leave(&me.scope));
  ck_ok(CALL("silu_and_mul", T(x), T(out)));
  let_go();
}

START_TEST(G6_none_takes_the_place_of_one_that_fails) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "silu_and_mul",
                        .impl_id = "default.bad",
                        .kind = FL_KIND_DEFAULT,
                        .priority = 500,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = failing};
  failing_calls = 0;
  start();
  ck_ok(fl_register_impl(host, &impl));
  ranks_as_threads(host, 1, no_fallback);
  ck_assert_int_eq(failing_calls, 4);
  stop();
}
END_TEST

/* Every rank's local part failing leaves the group whole. */
static void local_failure(fl_host *of, fl_group *group) {
  (void)of;
  held *x = keep(filled(1, 2, 2, 8, 1)), *out = keep(sized(2, 2, 8, 1));
  enter(group);
  ck_assert_int_eq(CALL("tensor_model_parallel_all_reduce", T(x), T(out)), FL_EDEVICE);
  ck_contains(fl_error_message(), "tensor_model_parallel_all_reduce: out of order");
  ck_ok(fl_group_state(group));
  ck_ok(fl_barrier(group, NULL));
  leave();
}

START_TEST(a_part_that_fails_is_the_calls_error) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "tensor_model_parallel_all_reduce",
                        .impl_id = "default.bad",
                        .kind = FL_KIND_DEFAULT,
                        .priority = 500,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = failing};
  start();
  ck_ok(fl_register_impl(host, &impl));
  ranks_as_threads(host, 2, local_failure);
  stop();
}
END_TEST

static void only_those_that_know(fl_host *of, fl_group *group) {
  (void)of;
  held *x = keep(filled(1, 2, 2, 8, 1)), *out = keep(sized(2, 2, 8, 1));
  ck_ok(CALL("shared", T(x), T(out)));
  enter(group);
  ck_assert_int_eq(CALL("shared", T(x), T(out)), FL_ENOIMPL);
  ck_contains(fl_error_message(), "No implementation of op='shared' makes it over ranks");
  leave();
}

static fl_status nothing(void *self, fl_call *call) {
  (void)self;
  (void)call;
  return FL_OK;
}

START_TEST(where_the_host_does_nothing_only_those_that_know_ranks_are_called) {
  const fl_op_def def = {.size = sizeof def, .schema = "shared(Tensor x) -> Tensor out", .ranks = "tp:"};
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "shared",
                        .impl_id = "default.one",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = nothing};
  start();
  ck_ok(fl_register_op(host, &def));
  ck_ok(fl_register_impl(host, &impl));
  ranks_as_threads(host, 2, only_those_that_know);
  stop();
}
END_TEST

/* ------------------------------------------------------------------------------------------------- what goes wrong */

static void wrong_calls(fl_host *of, fl_group *group) {
  (void)of;
  fl_scope scope;
  held *x = keep(filled(1, 2, 2, 8, 1)), *out = keep(sized(2, 2, 16, 1));
  held *one = keep(filled(1, 2, 2, 6, 1)), *weight = keep(filled(1, 2, 3, 4, 1)), *other = keep(sized(2, 2, 3, 1));
  enter(group);
  /* Not compact. */
  DLTensor wide = out->tensor;
  int64_t shape[] = {2, 8}, strides[] = {16, 1};
  wide.shape = shape;
  wide.strides = strides;
  ck_assert_int_eq(CALL("tensor_model_parallel_all_reduce", T(x), fl_tensor(&wide)), FL_EINVAL);
  ck_contains(fl_error_message(), "tensor_model_parallel_all_reduce: result 'out': it has strides, expected a compact");
  /* The sizes of rank and ranks do not fit. */
  ck_assert_int_eq(CALL("row_parallel_linear", T(one), T(weight), fl_none(), fl_bool(false), fl_bool(true),
                        fl_bool(false), T(other)),
                   FL_EINVAL);
  ck_contains(fl_error_message(), "row_parallel_linear: argument 'weight': shape [3, 4], expected [");
  ck_assert_int_eq(fl_scope_group(host, NULL, &scope), FL_EINVAL);
  ck_contains(fl_error_message(), "fl_scope_group: the group is NULL");
  leave();
  /* A caller's own. */
  held *y = keep(filled(1, 2, 2, 8, 1)), *result = keep(sized(2, 2, 4, 1));
  fl_value values[] = {T(y), T(result)};
  fl_call call = FL_CALL(values);
  const fl_ranks mine = {.size = sizeof mine, .ranks = 2, .name = "tp"};
  call.group = &mine;
  ck_assert_int_eq(fl_call_op(host, "silu_and_mul", &call), FL_EINVAL);
  ck_contains(fl_error_message(),
              "silu_and_mul: the call's 'group' is given, expected NULL: a group is that of a scope");
  let_go();
}

START_TEST(wrong_calls_are_refused_with_words_and_leave_the_group_whole) {
  start();
  ranks_as_threads(host, 2, wrong_calls);
  stop();
}
END_TEST

static void one_stays_away(fl_host *of, fl_group *group) {
  (void)of;
  held *x = keep(filled(1, 2, 2, 8, 1)), *out = keep(sized(2, 2, 8, 1));
  enter(group);
  if (!me.rank) {
    ck_assert_int_ne(CALL("tensor_model_parallel_all_reduce", T(x), T(out)), FL_OK);
    ck_contains(fl_error_message(), "tensor_model_parallel_all_reduce: all_reduce of group 'tp', rank 0 of 2");
    ck_assert_int_eq(fl_scope_group(host, group, &(fl_scope){0}), FL_ESTATE);
    ck_contains(fl_error_message(), "group 'tp' is broken: ");
  }
  leave();
}

START_TEST(a_rank_that_makes_no_call_is_an_error_of_the_others) {
  static const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_COMMUNICATOR=shm", NULL};
  host = test_host(environment, 0);
  ck_ok(fl_load_plugin(host, built("plugins/shm.so")));
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  ranks_as_threads(host, 2, one_stays_away);
  stop();
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, G5_linear_layers_over_ranks_are_as_one, 0, N_NUMBERS);
  tcase_add_loop_test(tests, G5_a_vocabulary_over_ranks_is_as_one, 0, N_NUMBERS);
  tcase_add_loop_test(tests, G5_experts_over_ranks_are_as_one, 0, 4);
  tcase_add_loop_test(tests, G5_a_block_over_2_and_4_ranks_is_as_on_one, 0, 3);
  tcase_add_loop_test(tests, rules_know_how_many_ranks_there_are_in_a_scope, 0, 2);
  tcase_add_test(tests, prepared_weights_serve_a_call_over_ranks);
  tcase_add_test(tests, G5_an_op_goes_by_the_groups_that_it_names);
  tcase_add_test(tests, G5_one_that_knows_ranks_gets_the_whole_call);
  tcase_add_test(tests, G6_none_takes_the_place_of_one_that_fails);
  tcase_add_test(tests, a_part_that_fails_is_the_calls_error);
  tcase_add_test(tests, where_the_host_does_nothing_only_those_that_know_ranks_are_called);
  tcase_add_test(tests, wrong_calls_are_refused_with_words_and_leave_the_group_whole);
  tcase_add_test(tests, a_rank_that_makes_no_call_is_an_error_of_the_others);
}

int main(void) {
  return run_suite("over_ranks", add_tests, 120);
}
