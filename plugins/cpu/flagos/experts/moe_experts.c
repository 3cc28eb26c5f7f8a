/*
 * Experts a batch at a time: the places of a chunk of tokens are sorted by expert, so that each expert's weights are
 * read once for all its tokens of the chunk, by all threads together. What a product takes is of the tensors' type;
 * what the last one gives is float until the sum of a token is rounded, once. A token's experts are added in the order
 * of their numbers: the same bits every time.
 */
#include "plugins/cpu/moe_experts.h"
#include "plugins/cpu/flagos/products/four_bit_linear.h"
#include "plugins/cpu/flagos/products/matmul.h"
#include "plugins/cpu/flagos/products/scaled_mm.h"
#include "plugins/cpu/flagos/vectors/block.h"
#include "plugins/cpu/gated.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"
#include "plugins/view.h"

#include <string.h>

static const fl_kernel_fn gated_kernels[CPU_N_GATED_OPS] = {
    [CPU_SILU] = cpu_flagos_silu_and_mul,
    [CPU_GELU] = cpu_flagos_gelu_and_mul,
    [CPU_SWIGLUOAI] = cpu_flagos_swigluoai_and_mul,
    [CPU_SWIGLUSTEP] = cpu_flagos_swiglustep_and_mul,
};

/* Tokens sorted together, and rows multiplied together at most: of an expert's places all batches are about as large,
 * as its weight is read, and packed, for each. */
enum { CHUNK = 512, BATCH = 384 };

/* For one chunk. */
typedef struct expert_scratch {
  float *sum, *down;         /* [CHUNK, hidden], [BATCH, hidden] */
  int64_t *begin;            /* [experts + 1]: where an expert's places begin in `places` */
  int64_t *places;           /* [CHUNK * topk]: token in the chunk * topk + j, sorted by expert */
  void *x, *gate_up, *inner; /* [BATCH, hidden], [BATCH, 2 * inner], [BATCH, inner], of the tensors' type */
} expert_scratch;

/* To be given back: `x`, then `sum`: two, of which a thread keeps more than of one as large. */
static bool allocate(const cpu_experts *experts, expert_scratch *scratch) {
  int64_t chunk = experts->tokens < CHUNK ? experts->tokens : CHUNK;
  int64_t places = chunk * experts->topk, batch = places < BATCH ? places : BATCH;
  int64_t floats = (chunk + batch) * experts->hidden, indices = experts->experts + 1 + places;
  int64_t elements = batch * (experts->hidden + 3 * experts->inner), item = cpu_dtype_size(experts->dtype);
  floats += floats % 2; /* indices are aligned */
  scratch->sum = cpu_scratch_take_bytes((size_t)floats * sizeof(float) + (size_t)indices * sizeof(int64_t));
  scratch->x = cpu_scratch_take_bytes((size_t)(elements * item));
  if (!scratch->sum || !scratch->x)
    return false;
  scratch->down = scratch->sum + chunk * experts->hidden;
  scratch->begin = (int64_t *)(void *)(scratch->sum + floats);
  scratch->places = scratch->begin + experts->experts + 1;
  scratch->gate_up = (char *)scratch->x + batch * experts->hidden * item;
  scratch->inner = (char *)scratch->gate_up + 2 * batch * experts->inner * item;
  return true;
}

/* Counting sort of the places of `tokens` tokens from `first` on. */
static void sort_places(const cpu_experts *experts, const expert_scratch *scratch, int64_t first, int64_t tokens) {
  int64_t *begin = scratch->begin, n = experts->experts;
  for (int64_t e = 0; e <= n; e++)
    begin[e] = 0;
  for (int64_t place = 0; place < tokens * experts->topk; place++) {
    int64_t expert = cpu_expert_of(experts, first + place / experts->topk, place % experts->topk);
    if (expert >= 0)
      begin[expert + 1]++;
  }
  for (int64_t e = 0; e < n; e++)
    begin[e + 1] += begin[e];
  for (int64_t place = 0; place < tokens * experts->topk; place++) {
    int64_t expert = cpu_expert_of(experts, first + place / experts->topk, place % experts->topk);
    if (expert >= 0)
      scratch->places[begin[expert]++] = place;
  }
  for (int64_t e = n; e > 0; e--) /* each begin has moved to its end */
    begin[e] = begin[e - 1];
  begin[0] = 0;
}

/* Row `m` of x; times the router's weight where that goes on the input. */
static void take_row(const cpu_experts *experts, int64_t m, void *to) {
  const cpu_block_type *type = &cpu_block_types[experts->dtype];
  const char *row = (const char *)fl_data(experts->x) + m * fl_stride(experts->x, 0) * cpu_dtype_size(experts->dtype);
  float block[CPU_BLOCK], weight;
  memcpy(to, row, (size_t)(experts->hidden * cpu_dtype_size(experts->dtype)));
  if (!experts->weight_on_input)
    return;
  weight = cpu_expert_weight(experts, m, 0);
  type->round(&weight, 1);
  for (int64_t first = 0; first < experts->hidden; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(experts->hidden - first);
    type->load(block, to, first, n);
    for (int64_t i = 0; i < n; i++)
      block[i] *= weight;
    type->store(to, first, block, n);
  }
}

static const cpu_coded_product coded = {cpu_scaled_mm_run, cpu_four_bit_run};

/* out [rows, n] = x [rows, k] W[expert]^T + bias[expert] */
static fl_status project(const cpu_experts *experts, cpu_expert_layer layer, int64_t expert, int64_t rows, int64_t n,
                         int64_t k, void *x, cpu_dtype out_dtype, void *out) {
  const cpu_matrix from = cpu_matrix_in(x, experts->dtype, k), to = cpu_matrix_in(out, out_dtype, n);
  if (layer.scales)
    return cpu_multiply_codes(&coded, &layer, expert, rows, from, to);
  const DLTensor *weights = layer.weights, *bias = layer.bias;
  const cpu_product product = {.m = rows,
                               .n = n,
                               .k = k,
                               .a = from,
                               .b = {cpu_tensor_at(weights, expert, 0), cpu_dtype_of(weights),
                                     fl_stride(weights, 1) * cpu_dtype_size(cpu_dtype_of(weights))},
                               .bias_dtype = bias ? cpu_dtype_of(bias) : CPU_FLOAT32,
                               .bias = bias ? cpu_tensor_at(bias, expert, 0) : NULL,
                               .out = to};
  return cpu_product_share(&product);
}

/* Places of one expert that are multiplied together. */
typedef struct batch {
  const cpu_experts *experts;
  const expert_scratch *scratch;
  int64_t first; /* token of the chunk */
  const int64_t *places;
  int64_t rows;
} batch;

static fl_status take_rows(void *user, int64_t begin, int64_t end) {
  const batch *b = user;
  int64_t bytes = b->experts->hidden * cpu_dtype_size(b->experts->dtype);
  for (int64_t row = begin; row < end; row++)
    take_row(b->experts, b->first + b->places[row] / b->experts->topk, (char *)b->scratch->x + row * bytes);
  return FL_OK;
}

/* Adds columns of all rows to their tokens' sums: by columns, since a token may have chosen an expert twice. */
static fl_status add_columns(void *user, int64_t begin, int64_t end) {
  const batch *b = user;
  const cpu_experts *experts = b->experts;
  for (int64_t row = 0; row < b->rows; row++) {
    int64_t token = b->places[row] / experts->topk, j = b->places[row] % experts->topk;
    float weight = experts->weight_on_input ? 1 : cpu_expert_weight(experts, b->first + token, j);
    float *restrict sum = b->scratch->sum + token * experts->hidden;
    const float *restrict down = b->scratch->down + row * experts->hidden;
    for (int64_t i = begin; i < end; i++)
      sum[i] += weight * down[i];
  }
  return FL_OK;
}

static fl_status run_batch(fl_call *call, batch *b, int64_t expert) {
  const cpu_experts *experts = b->experts;
  const expert_scratch *scratch = b->scratch;
  const int64_t hidden = experts->hidden, inner = experts->inner;
  fl_status status = cpu_parallel_for(b->rows, cpu_grain(2 * hidden * cpu_dtype_size(experts->dtype)), take_rows, b);
  if (!status)
    status = project(experts, cpu_first_layer(experts), expert, b->rows, 2 * inner, hidden, scratch->x, experts->dtype,
                     scratch->gate_up);
  if (!status)
    status = cpu_activate(call, experts->activation, gated_kernels[experts->activation->op], experts->x->dtype, b->rows,
                          inner, scratch->gate_up, scratch->inner);
  if (!status)
    status = project(experts, cpu_second_layer(experts), expert, b->rows, hidden, inner, scratch->inner, CPU_FLOAT32,
                     scratch->down);
  const int64_t line = 16; /* numbers of a line, which two threads do not write */
  if (!status)
    status = cpu_parallel_for(hidden, (cpu_grain(12 * b->rows) + line - 1) / line * line, add_columns, b);
  return status;
}

/* A chunk of tokens. */
typedef struct chunk {
  const cpu_experts *experts;
  const expert_scratch *scratch;
  int64_t first;
} chunk;

static fl_status clear_sums(void *user, int64_t begin, int64_t end) {
  const chunk *c = user;
  int64_t hidden = c->experts->hidden;
  memset(c->scratch->sum + begin * hidden, 0, (size_t)((end - begin) * hidden) * sizeof(float));
  return FL_OK;
}

static fl_status round_sums(void *user, int64_t begin, int64_t end) {
  const chunk *c = user;
  const cpu_experts *experts = c->experts;
  for (int64_t token = begin; token < end; token++) {
    int64_t offset = (c->first + token) * fl_stride(experts->out, 0) * cpu_dtype_size(experts->dtype);
    cpu_block_types[experts->dtype].store((char *)fl_data(experts->out) + offset, 0,
                                          c->scratch->sum + token * experts->hidden, experts->hidden);
  }
  return FL_OK;
}

static fl_status run_chunk(fl_call *call, const cpu_experts *experts, const expert_scratch *scratch, int64_t first,
                           int64_t tokens) {
  const int64_t grain = cpu_grain(experts->hidden * (int64_t)sizeof(float));
  chunk all = {experts, scratch, first};
  sort_places(experts, scratch, first, tokens);
  fl_status status = cpu_parallel_for(tokens, grain, clear_sums, &all);
  for (int64_t expert = 0; expert < experts->experts; expert++)
    for (int64_t at = scratch->begin[expert], end = scratch->begin[expert + 1]; at < end && !status;) {
      const int64_t rows = divide_up(end - at, divide_up(end - at, BATCH));
      batch part = {experts, scratch, first, scratch->places + at, rows};
      status = run_batch(call, &part, expert);
      at += rows;
    }
  return status ? status : cpu_parallel_for(tokens, grain, round_sums, &all);
}

static fl_status run(fl_call *call, const cpu_experts *experts) {
  expert_scratch scratch = {0};
  fl_status status = FL_OK;
  if (!allocate(experts, &scratch))
    status = FL_ENOMEM;
  for (int64_t first = 0; first < experts->tokens && !status; first += CHUNK) {
    int64_t left = experts->tokens - first;
    status = run_chunk(call, experts, &scratch, first, left < CHUNK ? left : CHUNK);
  }
  cpu_scratch_give(scratch.x);
  cpu_scratch_give(scratch.sum);
  return status == FL_ENOMEM ? fl_fail(call, status, "no memory for a chunk of %d tokens", CHUNK) : status;
}

static cpu_experts_parts parts = {&cpu_flagos_router, run};

static const fl_impl ops[] = {
    {.op_name = "unquantized_fused_moe", CPU_FLAGOS, .fn = cpu_routed_moe, .self = &parts},
    {.op_name = "modular_fused_moe", CPU_FLAGOS, .fn = cpu_modular_moe, .self = &parts},
    {.op_name = "transformers_fused_moe", CPU_FLAGOS, .fn = cpu_transformers_moe, .self = &parts},
    {.op_name = "fused_moe", CPU_FLAGOS, .fn = cpu_fused_moe, .self = &parts},
};
OP_LIST(ops);
