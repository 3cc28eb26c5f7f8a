/* Attention, one query after the other: scores, softmax and sum in double, one rounding. */
#include "plugins/cpu/attention.h"
#include "plugins/cpu/reference/matmul.h"
#include "plugins/cpu/rotary.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

/* Makes weights that add up to 1 of n scores, n >= 1; the log of the sum of their exponentials. */
static double softmax(double *scores, int64_t n) {
  double most = -INFINITY, sum = 0;
  for (int64_t i = 0; i < n; i++)
    most = scores[i] > most ? scores[i] : most;
  for (int64_t i = 0; i < n; i++) {
    scores[i] = exp(scores[i] - most);
    sum += scores[i];
  }
  for (int64_t i = 0; i < n; i++)
    scores[i] /= sum;
  return most + log(sum);
}

static double score(const cpu_head *head, int64_t query, int64_t key) {
  const char *row = cpu_matrix_row(head->query, query);
  int64_t own = head->size - head->shared_size;
  double sum = cpu_reference_dot(head->query.dtype, row, head->key.dtype, cpu_matrix_row(head->key, key), own);
  if (head->shared_size)
    sum += cpu_reference_dot(head->query.dtype, row + own * cpu_dtype_size(head->query.dtype), head->shared_key.dtype,
                             cpu_matrix_row(head->shared_key, key), head->shared_size);
  return head->scale * sum;
}

static void attend_head(const cpu_head *head, double *scores) {
  for (int64_t query = 0; query < head->queries; query++) {
    int64_t visible = cpu_head_visible(head, query);
    for (int64_t key = 0; key < visible; key++)
      scores[key] = score(head, query, key);
    if (visible)
      softmax(scores, visible);
    for (int64_t i = 0; i < head->value_size; i++) {
      double sum = 0;
      for (int64_t key = 0; key < visible; key++)
        sum += scores[key] * (double)load(head->value.dtype, cpu_matrix_row(head->value, key), i);
      store(head->out.dtype, cpu_matrix_row(head->out, query), i, (float)sum);
    }
  }
}

static fl_status attend(const cpu_head_list *heads) {
  double *scores = cpu_scratch_take_bytes((size_t)heads->largest.keys * sizeof *scores);
  for (int64_t i = 0; scores && i < heads->n; i++) {
    cpu_head head = heads->at(heads->user, i);
    attend_head(&head, scores);
  }
  cpu_scratch_give(scores);
  return scores ? FL_OK : FL_ENOMEM;
}

/* -------------------------------------------------------------------------------------------------- latent, decode */

/* One head of one sequence of `length` rows; its log-sum-exp. */
static double decode_head(const cpu_decode *decode, int64_t sequence, int64_t length, const void *query, void *out,
                          double *scores) {
  int64_t run;
  for (int64_t row = 0; row < length; row++)
    scores[row] = decode->scale * cpu_reference_dot(decode->dtype, query, decode->dtype,
                                                    cpu_pages_row(&decode->pages, sequence, row, &run), decode->size);
  double lse = length ? softmax(scores, length) : -INFINITY;
  for (int64_t i = 0; i < decode->rank; i++) {
    double sum = 0;
    for (int64_t row = 0; row < length; row++)
      sum += scores[row] * (double)load(decode->dtype, cpu_pages_row(&decode->pages, sequence, row, &run), i);
    store(decode->dtype, out, i, (float)sum);
  }
  return lse;
}

static int64_t longest_sequence(const cpu_decode *decode) {
  int64_t longest = 0;
  for (int64_t sequence = 0; sequence < decode->query->shape[0]; sequence++) {
    int64_t length = cpu_pages_length(&decode->pages, sequence);
    longest = length > longest ? length : longest;
  }
  return longest;
}

static fl_status mla_decode(void *self, fl_call *call) {
  cpu_decode decode;
  fl_status status = cpu_decode_read(call, &decode);
  (void)self;
  if (status)
    return status;
  double *scores = cpu_scratch_take_bytes((size_t)longest_sequence(&decode) * sizeof *scores);
  if (!scores)
    return fl_fail(call, FL_ENOMEM, "out of memory");
  for (int64_t sequence = 0; sequence < decode.query->shape[0]; sequence++) {
    float *lse = (float *)fl_data(decode.lse) + sequence * fl_stride(decode.lse, 0);
    for (int64_t head = 0; head < decode.heads; head++)
      lse[head] = (float)decode_head(&decode, sequence, cpu_pages_length(&decode.pages, sequence),
                                     cpu_tensor_at(decode.query, sequence, head),
                                     cpu_tensor_at(decode.out, sequence, head), scores);
  }
  cpu_scratch_give(scores);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- merge */

/* One head of one token; the log-sum-exp of both parts. */
static float merge_head(cpu_dtype dtype, int64_t size, const void *prefix, float prefix_lse, const void *suffix,
                        float suffix_lse, void *out) {
  prefix_lse = prefix_lse == INFINITY ? -INFINITY : prefix_lse;
  suffix_lse = suffix_lse == INFINITY ? -INFINITY : suffix_lse;
  float most = fmaxf(prefix_lse, suffix_lse);
  if (most == -INFINITY) {
    memcpy(out, prefix, (size_t)(size * cpu_dtype_size(dtype)));
    return most;
  }
  float of_prefix = expf(prefix_lse - most), of_suffix = expf(suffix_lse - most), sum = of_prefix + of_suffix;
  for (int64_t i = 0; i < size; i++)
    store(dtype, out, i, load(dtype, prefix, i) * (of_prefix / sum) + load(dtype, suffix, i) * (of_suffix / sum));
  return logf(sum) + most;
}

/* merge_attn_states(prefix_output, prefix_lse, suffix_output, suffix_lse) -> (out, lse) */
static fl_status merge_attn_states(void *self, fl_call *call) {
  const DLTensor *prefix = cpu_tensor(call, 0), *prefix_lse = cpu_tensor(call, 1), *suffix = cpu_tensor(call, 2);
  const DLTensor *suffix_lse = cpu_tensor(call, 3), *out = cpu_tensor(call, 4), *lse = cpu_tensor(call, 5);
  (void)self;
  if (cpu_dtype_of(prefix) == CPU_OTHER)
    return cpu_wrong_type(call, "prefix_output");
  for (int64_t token = 0; token < prefix->shape[0]; token++)
    for (int64_t head = 0; head < prefix->shape[1]; head++)
      *(float *)cpu_tensor_at(lse, head, token) =
          merge_head(cpu_dtype_of(prefix), prefix->shape[2], cpu_tensor_at(prefix, token, head),
                     *(float *)cpu_tensor_at(prefix_lse, head, token), cpu_tensor_at(suffix, token, head),
                     *(float *)cpu_tensor_at(suffix_lse, head, token), cpu_tensor_at(out, token, head));
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- parts */

static fl_status linear(int64_t m, int64_t n, int64_t k, cpu_matrix x, cpu_matrix weight, cpu_matrix out) {
  cpu_reference_linear(m, n, k, x, weight, weight.dtype, NULL, out);
  return FL_OK;
}

static fl_status product(int64_t m, int64_t n, int64_t k, cpu_matrix a, cpu_matrix b, cpu_matrix out) {
  cpu_reference_product(m, n, k, a, b, out);
  return FL_OK;
}

static cpu_attention_parts parts = {.linear = linear,
                                    .product = product,
                                    .attend = attend,
                                    .norm = cpu_reference_norm,
                                    .rotary_embedding = cpu_reference_rotary_embedding,
                                    .mla_decode = mla_decode};

static const fl_impl ops[] = {
    {.op_name = "mm_encoder_attn", CPU_REFERENCE, .fn = cpu_mm_encoder_attn, .self = &parts},
    {.op_name = "mla_prefill", CPU_REFERENCE, .fn = cpu_mla_prefill, .self = &parts},
    {.op_name = "mla_decode", CPU_REFERENCE, .fn = mla_decode},
    {.op_name = "merge_attn_states", CPU_REFERENCE, .fn = merge_attn_states},
    {.op_name = "multi_head_latent_attention", CPU_REFERENCE, .fn = cpu_multi_head_latent_attention, .self = &parts},
    {.op_name = "mla_paged_attention", CPU_REFERENCE, .fn = cpu_mla_paged_attention, .self = &parts},
    {.op_name = "concat_and_cache_mla", CPU_REFERENCE, .fn = cpu_concat_and_cache_mla},
};
OP_LIST(ops);
