/*
 * Experts a batch at a time: the places of a chunk of tokens are sorted by expert, so that each expert's weights are
 * read once for all its tokens of the chunk. All is float until the sum of a token is rounded, once. A token's experts
 * are added in the order of their numbers: the same bits every time.
 */
#include "plugins/cpu/moe_experts.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/gated.h"
#include "plugins/cpu/view.h"

#include <stdlib.h>

static const fl_kernel_fn gated_kernels[CPU_N_GATED_OPS] = {
    [CPU_SILU] = cpu_flagos_silu_and_mul,
    [CPU_GELU] = cpu_flagos_gelu_and_mul,
    [CPU_SWIGLUOAI] = cpu_flagos_swigluoai_and_mul,
    [CPU_SWIGLUSTEP] = cpu_flagos_swiglustep_and_mul,
};

enum { CHUNK = 512, BATCH = 128 }; /* tokens sorted together, rows multiplied together */

/* For one chunk. */
typedef struct expert_scratch {
  float *sum;                        /* [CHUNK, hidden] */
  float *x, *gate_up, *inner, *down; /* [BATCH, hidden], [BATCH, 2 * inner], [BATCH, inner], [BATCH, hidden] */
  int64_t *begin;                    /* [experts + 1]: where an expert's places begin in `places` */
  int64_t *places;                   /* [CHUNK * topk]: token in the chunk * topk + j, sorted by expert */
  float *product;                    /* what products need */
} expert_scratch;

static bool allocate(const cpu_experts *experts, expert_scratch *scratch) {
  int64_t chunk = experts->tokens < CHUNK ? experts->tokens : CHUNK;
  int64_t places = chunk * experts->topk, batch = places < BATCH ? places : BATCH;
  int64_t floats = (chunk + 2 * batch) * experts->hidden + 3 * batch * experts->inner;
  int64_t indices = experts->experts + 1 + places;
  size_t up = cpu_product_scratch(batch, 2 * experts->inner, experts->hidden);
  size_t down = cpu_product_scratch(batch, experts->hidden, experts->inner);
  scratch->begin = malloc((size_t)indices * sizeof(int64_t) + (size_t)floats * sizeof(float));
  scratch->product = cpu_floats_alloc(up > down ? up : down);
  if (!scratch->begin || !scratch->product)
    return false;
  scratch->places = scratch->begin + experts->experts + 1;
  scratch->sum = (float *)(scratch->places + places);
  scratch->x = scratch->sum + chunk * experts->hidden;
  scratch->gate_up = scratch->x + batch * experts->hidden;
  scratch->inner = scratch->gate_up + 2 * batch * experts->inner;
  scratch->down = scratch->inner + batch * experts->inner;
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

static void load_row(const cpu_experts *experts, int64_t m, float *to) {
  const DLTensor *x = experts->x;
  const char *row = (const char *)fl_data(x) + m * fl_stride(x, 0) * cpu_dtype_size(experts->dtype);
  cpu_block_types[experts->dtype].load(to, row, 0, experts->hidden);
}

/* out [rows, weights' rows] = x W[expert]^T + bias[expert] */
static void project(const expert_scratch *scratch, const DLTensor *weights, const DLTensor *bias, int64_t expert,
                    int64_t rows, float *x, float *out) {
  const cpu_product product = {.m = rows,
                               .n = weights->shape[1],
                               .k = weights->shape[2],
                               .a = cpu_matrix_in(x, CPU_FLOAT32, weights->shape[2]),
                               .b = {cpu_tensor_at(weights, expert, 0), cpu_dtype_of(weights),
                                     fl_stride(weights, 1) * cpu_dtype_size(cpu_dtype_of(weights))},
                               .bias_dtype = bias ? cpu_dtype_of(bias) : CPU_FLOAT32,
                               .bias = bias ? cpu_tensor_at(bias, expert, 0) : NULL,
                               .out = cpu_matrix_in(out, CPU_FLOAT32, weights->shape[1])};
  cpu_product_run(&product, scratch->product);
}

/* `rows` places of one expert, added to their tokens' sums. */
static fl_status run_batch(fl_call *call, const cpu_experts *experts, const expert_scratch *scratch, int64_t first,
                           int64_t expert, const int64_t *places, int64_t rows) {
  int64_t hidden = experts->hidden, topk = experts->topk;
  for (int64_t row = 0; row < rows; row++) {
    int64_t m = first + places[row] / topk;
    float *x = scratch->x + row * hidden;
    load_row(experts, m, x);
    if (experts->weight_on_input) {
      float weight = cpu_expert_weight(experts, m, 0);
      cpu_block_types[experts->dtype].round(&weight, 1);
      for (int64_t i = 0; i < hidden; i++)
        x[i] *= weight;
      cpu_block_types[experts->dtype].round(x, hidden);
    }
  }
  project(scratch, experts->w13, experts->w13_bias, expert, rows, scratch->x, scratch->gate_up);
  fl_status status =
      cpu_activate(call, experts->activation, gated_kernels[experts->activation->op], (DLDataType){kDLFloat, 32, 1},
                   rows, experts->inner, scratch->gate_up, scratch->inner);
  if (status)
    return status;
  project(scratch, experts->w2, experts->w2_bias, expert, rows, scratch->inner, scratch->down);
  for (int64_t row = 0; row < rows; row++) {
    int64_t token = places[row] / topk;
    float weight = experts->weight_on_input ? 1 : cpu_expert_weight(experts, first + token, places[row] % topk);
    float *restrict sum = scratch->sum + token * hidden;
    const float *restrict down = scratch->down + row * hidden;
    for (int64_t i = 0; i < hidden; i++)
      sum[i] += weight * down[i];
  }
  return FL_OK;
}

static fl_status run_chunk(fl_call *call, const cpu_experts *experts, const expert_scratch *scratch, int64_t first,
                           int64_t tokens) {
  fl_status status = FL_OK;
  sort_places(experts, scratch, first, tokens);
  for (int64_t i = 0; i < tokens * experts->hidden; i++)
    scratch->sum[i] = 0;
  for (int64_t expert = 0; expert < experts->experts; expert++)
    for (int64_t at = scratch->begin[expert]; at < scratch->begin[expert + 1] && !status; at += BATCH) {
      int64_t left = scratch->begin[expert + 1] - at;
      status = run_batch(call, experts, scratch, first, expert, scratch->places + at, left < BATCH ? left : BATCH);
    }
  for (int64_t token = 0; token < tokens && !status; token++) {
    int64_t offset = (first + token) * fl_stride(experts->out, 0) * cpu_dtype_size(experts->dtype);
    cpu_block_types[experts->dtype].store((char *)fl_data(experts->out) + offset, 0,
                                          scratch->sum + token * experts->hidden, experts->hidden);
  }
  return status;
}

static fl_status run(fl_call *call, const cpu_experts *experts) {
  expert_scratch scratch = {0};
  fl_status status = FL_OK;
  if (!allocate(experts, &scratch))
    status = fl_fail(call, FL_ENOMEM, "no memory for a chunk of %d tokens", CHUNK);
  for (int64_t first = 0; first < experts->tokens && !status; first += CHUNK) {
    int64_t left = experts->tokens - first;
    status = run_chunk(call, experts, &scratch, first, left < CHUNK ? left : CHUNK);
  }
  free(scratch.product);
  free(scratch.begin);
  return status;
}

static cpu_experts_parts parts = {cpu_flagos_score, run};

static const fl_impl ops[] = {
    {.op_name = "unquantized_fused_moe", CPU_FLAGOS, .fn = cpu_routed_moe, .self = &parts},
    {.op_name = "modular_fused_moe", CPU_FLAGOS, .fn = cpu_routed_moe, .self = &parts},
    {.op_name = "transformers_fused_moe", CPU_FLAGOS, .fn = cpu_transformers_moe, .self = &parts},
    {.op_name = "fused_moe", CPU_FLAGOS, .fn = cpu_fused_moe, .self = &parts},
};
OP_LIST(ops);
