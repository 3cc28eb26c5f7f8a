/*
 * Attention by blocks of queries: scores as a matrix product, softmax over rows that stay in the cache, the sum over
 * values as another product. Weights are divided by their sum at the end, which is one division a result.
 */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/matmul.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/rotary.h"
#include "plugins/integers.h"

#include <math.h>
#include <string.h>

enum { QUERY_BLOCK = 64, CACHE_ROWS = 512 };

/* Reductions keep LANES partial results, which is the order that vectors have. */
enum { LANES = 16 };

static float scale_and_find_largest(float *values, int64_t n, float scale) {
  float lanes[LANES], largest = -INFINITY;
  int64_t i = 0;
  for (int lane = 0; lane < LANES; lane++)
    lanes[lane] = -INFINITY;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) {
      values[i + lane] *= scale;
      lanes[lane] = values[i + lane] > lanes[lane] ? values[i + lane] : lanes[lane];
    }
  for (; i < n; i++) {
    values[i] *= scale;
    largest = values[i] > largest ? values[i] : largest;
  }
  for (int lane = 0; lane < LANES; lane++)
    largest = lanes[lane] > largest ? lanes[lane] : largest;
  return largest;
}

/* n >= 1 scores, times scale, become their exponentials less the largest, *most; the sum of these. */
static float exponentials(float *scores, int64_t n, float scale, float *most) {
  float lanes[LANES] = {0}, largest = scale_and_find_largest(scores, n, scale), sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) {
      scores[i + lane] = vector_exp(scores[i + lane] - largest);
      lanes[lane] += scores[i + lane];
    }
  for (; i < n; i++) {
    scores[i] = vector_exp(scores[i] - largest);
    sum += scores[i];
  }
  for (int lane = 0; lane < LANES; lane++)
    sum += lanes[lane];
  *most = largest;
  return sum;
}

/* A row of `from`, times `factor`, in the type of the result. */
static void store_row(cpu_dtype dtype, void *to, float *from, int64_t n, float factor) {
  for (int64_t i = 0; i < n; i++)
    from[i] *= factor;
  cpu_block_types[dtype].store(to, 0, from, n);
}

/* -------------------------------------------------------------------------------------------------------- one head */

static int64_t in_lines(int64_t floats) {
  return (floats + 15) / 16 * 16;
}

/* Scores and results of a block of queries, then what products need. */
static size_t attend_scratch(const cpu_head *head) {
  int64_t rows = least(head->queries, QUERY_BLOCK);
  size_t of_scores = cpu_product_scratch(rows, head->keys, head->size);
  size_t of_values = cpu_product_scratch(rows, head->value_size, head->keys);
  return (size_t)(in_lines(rows * head->keys) + in_lines(rows * head->value_size)) +
         (of_scores > of_values ? of_scores : of_values);
}

static bool all_finite(const float *values, int64_t n) {
  bool finite = true;
  for (int64_t i = 0; i < n; i++)
    finite &= (fl_float_bits(values[i]) & 0x7f800000u) != 0x7f800000u;
  return finite;
}

/* One row of the sum over values, without the keys that its query does not see: weight 0 is not enough for those whose
 * values are not finite. */
static void sum_visible(const cpu_head *head, const cpu_product *all, int64_t row, int64_t visible, float *result,
                        float *scratch) {
  cpu_product product = *all;
  product.m = 1;
  product.k = visible;
  product.a = cpu_matrix_at(all->a, row, 0);
  product.out = cpu_matrix_in(result, CPU_FLOAT32, head->value_size);
  cpu_product_run(&product, scratch);
}

/* Queries first to first + rows - 1; what they do not see has weight 0. */
static void attend_block(const cpu_head *head, int64_t first, int64_t rows, float *scratch) {
  int64_t keys = cpu_head_visible(head, first + rows - 1);
  float *scores = scratch, *sums = scores + in_lines(rows * keys), *rest = sums + in_lines(rows * head->value_size);
  float factors[QUERY_BLOCK], most;
  cpu_product product = {.m = rows,
                         .n = keys,
                         .k = head->size,
                         .a = cpu_matrix_at(head->query, first, 0),
                         .b = head->key,
                         .out = cpu_matrix_in(scores, CPU_FLOAT32, keys)};
  cpu_product_run(&product, rest);
  for (int64_t row = 0; row < rows; row++) {
    int64_t visible = cpu_head_visible(head, first + row);
    float sum = visible ? exponentials(scores + row * keys, visible, (float)head->scale, &most) : 1;
    memset(scores + row * keys + visible, 0, (size_t)(keys - visible) * sizeof *scores);
    factors[row] = 1 / sum;
  }
  product = (cpu_product){.m = rows,
                          .n = head->value_size,
                          .k = keys,
                          .a = product.out,
                          .b = head->value,
                          .b_is_k_by_n = true,
                          .out = cpu_matrix_in(sums, CPU_FLOAT32, head->value_size)};
  cpu_product_run(&product, rest);
  for (int64_t row = 0; row < rows; row++) {
    float *result = sums + row * head->value_size;
    if (cpu_head_visible(head, first + row) < keys && !all_finite(result, head->value_size))
      sum_visible(head, &product, row, cpu_head_visible(head, first + row), result, rest);
    store_row(head->out.dtype, cpu_matrix_row(head->out, first + row), result, head->value_size, factors[row]);
  }
}

static void attend(const cpu_head *head, float *scratch) {
  for (int64_t first = 0; first < head->queries; first += QUERY_BLOCK)
    attend_block(head, first, least(QUERY_BLOCK, head->queries - first), scratch);
}

/* ---------------------------------------------------------------------------------------------------------- decode */

/* Memory for the longest sequence. */
typedef struct decode_scratch {
  float *scores, *sums, *rest; /* [heads, length], [heads, rank], of products */
  char *rows;                  /* a stretch of a sequence whose blocks do not follow each other */
} decode_scratch;

/* Rows first to first + n - 1 of a sequence as a matrix: where they are if they lie in one block, else copied. */
static cpu_matrix gather(const cpu_decode *decode, int64_t sequence, int64_t first, int64_t n, char *rows) {
  int64_t item = cpu_dtype_size(decode->dtype), run;
  cpu_matrix stretch = {cpu_pages_row(&decode->pages, sequence, first, &run), decode->dtype,
                        fl_stride(decode->pages.cache, 1) * item};
  if (run >= n)
    return stretch;
  stretch = cpu_matrix_in(rows, decode->dtype, decode->size);
  for (int64_t row = 0; row < n; row++)
    memcpy(cpu_matrix_row(stretch, row), cpu_pages_row(&decode->pages, sequence, first + row, &run),
           (size_t)(decode->size * item));
  return stretch;
}

static void decode_sequence(const cpu_decode *decode, int64_t sequence, int64_t length, const decode_scratch *scratch) {
  cpu_matrix query = {cpu_tensor_at(decode->query, sequence, 0), decode->dtype,
                      fl_stride(decode->query, 1) * cpu_dtype_size(decode->dtype)};
  cpu_matrix scores = cpu_matrix_in(scratch->scores, CPU_FLOAT32, length);
  float *lse = cpu_tensor_at(decode->lse, sequence, 0);
  for (int64_t first = 0; first < length; first += CACHE_ROWS) {
    int64_t n = least(CACHE_ROWS, length - first);
    cpu_product product = {.m = decode->heads,
                           .n = n,
                           .k = decode->size,
                           .a = query,
                           .b = gather(decode, sequence, first, n, scratch->rows),
                           .out = cpu_matrix_at(scores, 0, first)};
    cpu_product_run(&product, scratch->rest);
  }
  memset(scratch->sums, 0, (size_t)(decode->heads * decode->rank) * sizeof *scratch->sums);
  for (int64_t head = 0; head < decode->heads; head++) {
    float *row = cpu_matrix_row(scores, head), most = -INFINITY;
    float sum = length ? exponentials(row, length, (float)decode->scale, &most) : 0;
    for (int64_t i = 0; i < length; i++)
      row[i] /= sum;
    lse[head] = length ? most + logf(sum) : -INFINITY;
  }
  for (int64_t first = 0; first < length; first += CACHE_ROWS) {
    int64_t n = least(CACHE_ROWS, length - first);
    cpu_product product = {.m = decode->heads,
                           .n = decode->rank,
                           .k = n,
                           .a = cpu_matrix_at(scores, 0, first),
                           .b = gather(decode, sequence, first, n, scratch->rows),
                           .b_is_k_by_n = true,
                           .accumulate = true,
                           .out = cpu_matrix_in(scratch->sums, CPU_FLOAT32, decode->rank)};
    cpu_product_run(&product, scratch->rest);
  }
  for (int64_t head = 0; head < decode->heads; head++)
    cpu_block_types[decode->dtype].store(cpu_tensor_at(decode->out, sequence, head), 0,
                                         scratch->sums + head * decode->rank, decode->rank);
}

static fl_status mla_decode(void *self, fl_call *call) {
  cpu_decode decode;
  int64_t longest = 0;
  fl_status status = cpu_decode_read(call, &decode);
  (void)self;
  if (status)
    return status;
  for (int64_t sequence = 0; sequence < decode.query->shape[0]; sequence++)
    if (cpu_pages_length(&decode.pages, sequence) > longest)
      longest = cpu_pages_length(&decode.pages, sequence);
  int64_t rows = least(longest, CACHE_ROWS), of_scores = in_lines(decode.heads * longest);
  int64_t of_sums = in_lines(decode.heads * decode.rank);
  size_t score_product = cpu_product_scratch(decode.heads, rows, decode.size);
  size_t sum_product = cpu_product_scratch(decode.heads, decode.rank, rows);
  size_t of_products = score_product > sum_product ? score_product : sum_product;
  decode_scratch scratch = {.scores =
                                cpu_floats_alloc((size_t)(of_scores + of_sums + rows * decode.size) + of_products)};
  if (!scratch.scores)
    return fl_fail(call, FL_ENOMEM, "out of memory");
  scratch.sums = scratch.scores + of_scores;
  scratch.rest = scratch.sums + of_sums;
  scratch.rows = (char *)(scratch.rest + of_products);
  for (int64_t sequence = 0; sequence < decode.query->shape[0]; sequence++)
    decode_sequence(&decode, sequence, cpu_pages_length(&decode.pages, sequence), &scratch);
  free(scratch.scores);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- merge */

typedef struct merge_weights {
  float prefix, suffix, lse;
} merge_weights;

static merge_weights weigh(float prefix_lse, float suffix_lse) {
  prefix_lse = prefix_lse == INFINITY ? -INFINITY : prefix_lse;
  suffix_lse = suffix_lse == INFINITY ? -INFINITY : suffix_lse;
  float most = fmaxf(prefix_lse, suffix_lse);
  float prefix = expf(prefix_lse - most), suffix = expf(suffix_lse - most), sum = prefix + suffix;
  if (most == -INFINITY)
    return (merge_weights){1, 0, most};
  return (merge_weights){prefix / sum, suffix / sum, logf(sum) + most};
}

static void merge_head(cpu_dtype dtype, int64_t size, const merge_weights *weights, const void *prefix,
                       const void *suffix, void *out) {
  const cpu_block_type *type = &cpu_block_types[dtype];
  float a[CPU_BLOCK], b[CPU_BLOCK];
  for (int64_t first = 0; first < size; first += CPU_BLOCK) {
    int64_t n = cpu_block_size(size - first);
    type->load(a, prefix, first, n);
    type->load(b, suffix, first, n);
    for (int64_t i = 0; i < n; i++)
      a[i] = a[i] * weights->prefix + b[i] * weights->suffix;
    type->store(out, first, a, n);
  }
}

/* merge_attn_states(prefix_output, prefix_lse, suffix_output, suffix_lse) -> (out, lse) */
static fl_status merge_attn_states(void *self, fl_call *call) {
  const DLTensor *prefix = cpu_tensor(call, 0), *prefix_lse = cpu_tensor(call, 1), *suffix = cpu_tensor(call, 2);
  const DLTensor *suffix_lse = cpu_tensor(call, 3), *out = cpu_tensor(call, 4), *lse = cpu_tensor(call, 5);
  cpu_dtype dtype = cpu_dtype_of(prefix);
  (void)self;
  if (dtype == CPU_OTHER)
    return cpu_wrong_type(call, "prefix_output");
  for (int64_t token = 0; token < prefix->shape[0]; token++)
    for (int64_t head = 0; head < prefix->shape[1]; head++) {
      merge_weights weights =
          weigh(*(float *)cpu_tensor_at(prefix_lse, head, token), *(float *)cpu_tensor_at(suffix_lse, head, token));
      const void *from = cpu_tensor_at(prefix, token, head);
      if (weights.lse == -INFINITY) /* whatever the suffix holds */
        memcpy(cpu_tensor_at(out, token, head), from, (size_t)(prefix->shape[2] * cpu_dtype_size(dtype)));
      else
        merge_head(dtype, prefix->shape[2], &weights, from, cpu_tensor_at(suffix, token, head),
                   cpu_tensor_at(out, token, head));
      *(float *)cpu_tensor_at(lse, head, token) = weights.lse;
    }
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- parts */

static fl_status linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_matrix out) {
  const cpu_product whole = {.m = m, .n = n, .k = k, .a = x, .b = weight, .out = out};
  return cpu_product_share(&whole);
}

static fl_status product(int64_t m, int64_t n, int64_t k, cpu_matrix a, cpu_matrix b, cpu_matrix out) {
  const cpu_product whole = {.m = m, .n = n, .k = k, .a = a, .b = b, .b_is_k_by_n = true, .out = out};
  return cpu_product_share(&whole);
}

static cpu_attention_parts parts = {.linear = linear,
                                    .product = product,
                                    .scratch = attend_scratch,
                                    .attend = attend,
                                    .norm = cpu_flagos_norm,
                                    .rotary_embedding = cpu_flagos_rotary_embedding,
                                    .mla_decode = mla_decode};

static const fl_impl ops[] = {
    {.op_name = "mm_encoder_attn", CPU_FLAGOS, .fn = cpu_mm_encoder_attn, .self = &parts},
    {.op_name = "mla_prefill", CPU_FLAGOS, .fn = cpu_mla_prefill, .self = &parts},
    {.op_name = "mla_decode", CPU_FLAGOS, .fn = mla_decode},
    {.op_name = "merge_attn_states", CPU_FLAGOS, .fn = merge_attn_states},
    {.op_name = "multi_head_latent_attention", CPU_FLAGOS, .fn = cpu_multi_head_latent_attention, .self = &parts},
};
OP_LIST(ops);
