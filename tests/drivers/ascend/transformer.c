/* The stand-in's rotary embeddings, routing of experts and attention. Prototypes: op_api headers of ops-transformer. */
#include "tests/drivers/ascend/stand_in.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AS_CPU(view, e, index) fl_tensor(as_cpu(&(view), &(e)->tensors[index]))

/* ------------------------------------------------------------------------------------------------ rotary embeddings */

enum { POSITIONS, QUERY, KEY, CACHE, QUERY_OUT, KEY_OUT };

/* [tokens, heads * size] as [tokens, heads, size] */
static aclTensor with_heads(const aclTensor *rows, int64_t size) {
  aclTensor split = *rows;
  split.n = 3;
  split.shape[1] = rows->shape[1] / size;
  split.shape[2] = size;
  split.strides[1] = size * rows->strides[1];
  split.strides[2] = rows->strides[1];
  return split;
}

static int compute_rope(aclOpExecutor *e) {
  cpu_tensor_view views[7];
  aclTensor q = with_heads(&e->tensors[QUERY], e->i[0]), k = with_heads(&e->tensors[KEY], e->i[0]);
  aclTensor q_out = with_heads(&e->tensors[QUERY_OUT], e->i[0]), k_out = with_heads(&e->tensors[KEY_OUT], e->i[0]);
  aclTensor cos = e->tensors[CACHE], sin = e->tensors[CACHE];
  cos.shape[1] = sin.shape[1] = cos.shape[1] / 2;
  sin.offset += cos.shape[1] * sin.strides[1];
  fl_value values[] = {fl_tensor(as_cpu(&views[0], &q)),
                       fl_tensor(as_cpu(&views[1], &k)),
                       fl_tensor(as_cpu(&views[2], &cos)),
                       fl_tensor(as_cpu(&views[3], &sin)),
                       AS_CPU(views[4], e, POSITIONS),
                       fl_bool(!e->i[1]),
                       fl_int(0),
                       fl_bool(false),
                       fl_tensor(as_cpu(&views[5], &q_out)),
                       fl_tensor(as_cpu(&views[6], &k_out))};
  return reference(e, "rotary_embedding", values, 10);
}

EXPORT int aclnnRopeWithSinCosCacheGetWorkspaceSize(const aclTensor *positions, const aclTensor *query,
                                                    const aclTensor *key, const aclTensor *cache,
                                                    const aclIntArray *mrope_section, int64_t head_size, _Bool is_neox,
                                                    aclTensor *query_out, aclTensor *key_out, uint64_t *workspace_size,
                                                    aclOpExecutor **executor);
int aclnnRopeWithSinCosCacheGetWorkspaceSize(const aclTensor *positions, const aclTensor *query, const aclTensor *key,
                                             const aclTensor *cache, const aclIntArray *mrope_section,
                                             int64_t head_size, _Bool is_neox, aclTensor *query_out, aclTensor *key_out,
                                             uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnRopeWithSinCosCache", compute_rope, A2 | A3, &status);
  const aclTensor *const given[] = {positions, query, key, cache, query_out, key_out};
  if (!e)
    return status;
  for (int i = POSITIONS; i <= KEY_OUT; i++) {
    take(e, given[i]);
    REQUIRE_TENSOR(e, i);
    REQUIRE(e, i == POSITIONS || (given[i]->n == 2 && same_type(e, i, QUERY)));
  }
  take_ints(e, 0, mrope_section);
  REQUIRE(e, !mrope_section || (e->n_ints[0] == 3 && !e->ints[0][0])); /* mrope has no reference */
  REQUIRE(e, is_float(e, QUERY) && (positions->type == I32 || positions->type == I64));
  REQUIRE(e, positions->n == 1 && positions->shape[0] == query->shape[0] && key->shape[0] == query->shape[0]);
  REQUIRE(e, same_shape(e, QUERY, QUERY_OUT) && same_shape(e, KEY, KEY_OUT));
  REQUIRE(e, head_size > 0 && query->shape[1] % head_size == 0 && key->shape[1] % head_size == 0);
  REQUIRE(e, cache->shape[1] % 2 == 0 && cache->shape[1] <= head_size);
  REQUIRE(e, query->strides[1] == 1 && key->strides[1] == 1);
  e->i[0] = head_size;
  e->i[1] = is_neox;
  return finish(e, workspace_size, executor);
}
PHASE_2(RopeWithSinCosCache)

/* An element of cos or sin for that of x, by broadcasting the first three dimensions. */
static double factor(const aclTensor *factors, const aclTensor *x, int64_t index) {
  int64_t at = 0, stride = 1;
  for (int d = 3; d >= 0; d--) {
    at += (factors->shape[d] == 1 ? 0 : index % x->shape[d]) * stride;
    stride *= factors->shape[d];
    index /= x->shape[d];
  }
  return get(factors, at);
}

/* As the element type of a tensor has it. */
static double rounded(const aclTensor *as, double value) {
  uint64_t memory = 0;
  aclTensor one = {.n = 0, .type = as->type, .data = (char *)&memory};
  put(&one, 0, value);
  return get(&one, 0);
}

/* y = x cos + rotate(x) sin, modes 0 (halves) and 1 (pairs); kernels differ in whether products are rounded, the
 * reference rounds them. */
static int compute_rotary(aclOpExecutor *e) {
  const aclTensor *x = &e->tensors[0], *out = &e->tensors[3];
  int64_t size = x->shape[3], half = size / 2;
  for (int64_t i = 0; i < elements(x); i++) {
    int64_t d = i % size, row = i - d;
    int first = e->i[0] ? d % 2 == 0 : d < half;
    int64_t partner = e->i[0] ? (first ? d + 1 : d - 1) : (first ? d + half : d - half);
    double rotated = first ? -get(x, row + partner) : get(x, row + partner);
    put(out, i,
        rounded(x, get(x, i) * factor(&e->tensors[1], x, i)) + rounded(x, rotated * factor(&e->tensors[2], x, i)));
  }
  return 0;
}

EXPORT int aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor *x, const aclTensor *cos, const aclTensor *sin,
                                                        int64_t mode, aclTensor *out, uint64_t *workspace_size,
                                                        aclOpExecutor **executor);
int aclnnRotaryPositionEmbeddingGetWorkspaceSize(const aclTensor *x, const aclTensor *cos, const aclTensor *sin,
                                                 int64_t mode, aclTensor *out, uint64_t *workspace_size,
                                                 aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnRotaryPositionEmbedding", compute_rotary, BIG_CHIP, &status);
  const aclTensor *const given[] = {x, cos, sin, out};
  if (!e)
    return status;
  for (int i = 0; i < 4; i++) {
    take(e, given[i]);
    REQUIRE_TENSOR(e, i);
    REQUIRE(e, given[i]->n == 4 && same_type(e, 0, i) && given[i]->shape[3] == x->shape[3]);
  }
  REQUIRE(e, is_float(e, 0) && same_shape(e, 0, 3) && same_shape(e, 1, 2) && is_compact(e, 3));
  REQUIRE(e, mode == 0 || mode == 1);
  REQUIRE(e, x->shape[3] % 2 == 0 && x->shape[3] < 896 && x->data != out->data);
  for (int d = 0; d < 3; d++)
    REQUIRE(e, cos->shape[d] == 1 || cos->shape[d] == x->shape[d]);
  REQUIRE(e, mode ? x->shape[0] * x->shape[2] < 1000 : x->shape[0] < 1000 && x->shape[2] < 1000);
  e->i[0] = mode;
  return finish(e, workspace_size, executor);
}
PHASE_2(RotaryPositionEmbedding)

/* ---------------------------------------------------------------------------------------------------------- routing */

/* Weights of the reference are float32; the operator's have the type of x. */
static aclTensor float_like(const aclTensor *tensor, float **memory) {
  aclTensor made = *tensor;
  *memory = calloc((size_t)elements(tensor), sizeof **memory);
  if (!*memory)
    abort();
  made.type = F32;
  made.offset = 0;
  made.data = (char *)*memory;
  for (int64_t d = made.n - 1, stride = 1; d >= 0; stride *= made.shape[d--])
    made.strides[d] = stride;
  return made;
}

static void copy_back(const aclTensor *to, const aclTensor *from) {
  for (int64_t i = 0; i < elements(to); i++)
    put(to, i, get(from, i));
}

/* x, y, ids */
static int compute_gating_softmax(aclOpExecutor *e) {
  float *memory;
  cpu_tensor_view x, y, ids;
  aclTensor weights = float_like(&e->tensors[1], &memory);
  fl_value values[] = {AS_CPU(x, e, 0), fl_int(e->i[0]), fl_bool(e->i[1]), fl_tensor(as_cpu(&y, &weights)),
                       AS_CPU(ids, e, 2)};
  int code = reference(e, "topk_softmax", values, 5);
  copy_back(&e->tensors[1], &weights);
  free(memory);
  return code;
}

static int chooses(const aclOpExecutor *e, int64_t k) {
  const aclTensor *x = &e->tensors[0], *y = &e->tensors[1];
  return x->n == 2 && y->n == 2 && y->shape[0] == x->shape[0] && y->shape[1] == k && k >= 1 && k <= x->shape[1] &&
         same_shape(e, 1, 2) && same_type(e, 0, 1) && e->tensors[2].type == I32;
}

EXPORT int aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize(const aclTensor *x, const aclTensor *finished, int64_t k,
                                                       int64_t renorm, _Bool output_softmax, const aclTensor *y,
                                                       const aclTensor *expert_idx, const aclTensor *softmax_out,
                                                       uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnMoeGatingTopKSoftmaxV2GetWorkspaceSize(const aclTensor *x, const aclTensor *finished, int64_t k,
                                                int64_t renorm, _Bool output_softmax, const aclTensor *y,
                                                const aclTensor *expert_idx, const aclTensor *softmax_out,
                                                uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnMoeGatingTopKSoftmaxV2", compute_gating_softmax, BIG_CHIP, &status);
  if (!e)
    return status;
  take(e, x);
  take(e, y);
  take(e, expert_idx);
  for (int i = 0; i < 3; i++)
    REQUIRE_TENSOR(e, i);
  REQUIRE(e, is_float(e, 0) && k <= 1024 && chooses(e, k));
  REQUIRE(e, !finished && !output_softmax && !softmax_out && (renorm == 0 || renorm == 1));
  e->i[0] = k;
  e->i[1] = renorm;
  return finish(e, workspace_size, executor);
}
PHASE_2(MoeGatingTopKSoftmaxV2)

enum { K, K_GROUP, GROUP_COUNT, NORM_TYPE };

/* x, y, ids, scores, bias */
static int compute_gating(aclOpExecutor *e) {
  cpu_tensor_view x, y, ids, bias;
  int sigmoid = e->i[NORM_TYPE] == 1;
  fl_value values[] = {AS_CPU(x, e, 0),       fl_int(e->i[K]),
                       fl_bool(sigmoid),      fl_int(e->i[GROUP_COUNT]),
                       fl_int(e->i[K_GROUP]), fl_string(sigmoid ? "sigmoid" : "softmax"),
                       fl_float(e->f[0]),     present(e, 4) ? AS_CPU(bias, e, 4) : fl_none(),
                       AS_CPU(y, e, 1),       AS_CPU(ids, e, 2)};
  return reference(e, "grouped_topk", values, 10);
}

EXPORT int aclnnMoeGatingTopKGetWorkspaceSize(const aclTensor *x, const aclTensor *bias, int64_t k, int64_t k_group,
                                              int64_t group_count, int64_t group_select_mode, int64_t renorm,
                                              int64_t norm_type, _Bool out_flag, double routed_scaling_factor,
                                              double eps, const aclTensor *y, const aclTensor *expert_idx,
                                              const aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnMoeGatingTopKGetWorkspaceSize(const aclTensor *x, const aclTensor *bias, int64_t k, int64_t k_group,
                                       int64_t group_count, int64_t group_select_mode, int64_t renorm,
                                       int64_t norm_type, _Bool out_flag, double routed_scaling_factor, double eps,
                                       const aclTensor *y, const aclTensor *expert_idx, const aclTensor *out,
                                       uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnMoeGatingTopK", compute_gating, BIG_CHIP, &status);
  if (!e)
    return status;
  take(e, x);
  take(e, y);
  take(e, expert_idx);
  take(e, out);
  take(e, bias);
  for (int i = 0; i < 4; i++)
    REQUIRE_TENSOR(e, i);
  REQUIRE(e, x->type == F32 && chooses(e, k) && same_shape(e, 0, 3) && out->type == F32);
  int64_t of_group = group_count > 0 ? x->shape[1] / group_count : 0;
  REQUIRE(e, of_group > 2 && x->shape[1] % group_count == 0 && (of_group + 31) / 32 * 32 * group_count <= 2048);
  REQUIRE(e, k_group >= 1 && k_group <= group_count && k <= k_group * of_group);
  REQUIRE(e, !bias || (bias->n == 1 && bias->shape[0] == x->shape[1] && same_type(e, 0, 4)));
  REQUIRE(e, group_select_mode == (bias ? 1 : 0)); /* what has a reference */
  REQUIRE(e, renorm == 0 && !out_flag && (norm_type == 0 || norm_type == 1) && eps >= 0 && eps < 1e-10);
  e->i[K] = k;
  e->i[K_GROUP] = k_group;
  e->i[GROUP_COUNT] = group_count;
  e->i[NORM_TYPE] = norm_type;
  e->f[0] = routed_scaling_factor;
  return finish(e, workspace_size, executor);
}
PHASE_2(MoeGatingTopK)

enum { ROUTED_X, EXPERT_IDX, EXPANDED_X, ROW_IDX, COUNTS };

/* Rows sorted by expert, in order; where each went. */
static int compute_init_routing(aclOpExecutor *e) {
  const aclTensor *t = e->tensors;
  int64_t choices = t[EXPERT_IDX].shape[1], n = elements(&t[EXPERT_IDX]), h = t[ROUTED_X].shape[1], at = 0;
  for (int64_t expert = 0; expert < t[COUNTS].shape[0]; expert++) {
    int64_t before = at;
    for (int64_t i = 0; i < n; i++) {
      if ((int64_t)get(&t[EXPERT_IDX], i) != expert)
        continue;
      for (int64_t column = 0; column < h; column++)
        put(&t[EXPANDED_X], at * h + column, get(&t[ROUTED_X], i / choices * h + column));
      put(&t[ROW_IDX], i, (double)at++);
    }
    put(&t[COUNTS], expert, (double)(at - before));
  }
  return 0;
}

EXPORT int aclnnMoeInitRoutingV3GetWorkspaceSize(const aclTensor *x, const aclTensor *expert_idx,
                                                 const aclTensor *scale, const aclTensor *offset, int64_t active_num,
                                                 int64_t capacity, int64_t expert_num, int64_t drop_pad_mode,
                                                 int64_t counts_type, _Bool counts_flag, int64_t quant_mode,
                                                 const aclIntArray *active_range, int64_t row_idx_type,
                                                 const aclTensor *expanded_x, const aclTensor *expanded_row_idx,
                                                 const aclTensor *counts, const aclTensor *expanded_scale,
                                                 uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnMoeInitRoutingV3GetWorkspaceSize(const aclTensor *x, const aclTensor *expert_idx, const aclTensor *scale,
                                          const aclTensor *offset, int64_t active_num, int64_t capacity,
                                          int64_t expert_num, int64_t drop_pad_mode, int64_t counts_type,
                                          _Bool counts_flag, int64_t quant_mode, const aclIntArray *active_range,
                                          int64_t row_idx_type, const aclTensor *expanded_x,
                                          const aclTensor *expanded_row_idx, const aclTensor *counts,
                                          const aclTensor *expanded_scale, uint64_t *workspace_size,
                                          aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnMoeInitRoutingV3", compute_init_routing, BIG_CHIP, &status);
  const aclTensor *const given[] = {x, expert_idx, expanded_x, expanded_row_idx, counts, expanded_scale};
  if (!e)
    return status;
  for (int i = 0; i < 6; i++) {
    take(e, given[i]);
    REQUIRE_TENSOR(e, i);
  }
  take_ints(e, 0, active_range);
  REQUIRE(e, is_float(e, ROUTED_X) && same_type(e, ROUTED_X, EXPANDED_X) && expert_idx->type == I32);
  REQUIRE(e, expanded_row_idx->type == I32 && counts->type == I64 && expanded_scale->type == F32);
  REQUIRE(e, x->n == 2 && expert_idx->n == 2 && expert_idx->shape[0] == x->shape[0]);
  REQUIRE(e, active_num == elements(expert_idx) && capacity >= 0 && !drop_pad_mode && !scale && !offset);
  REQUIRE(e, counts_type == 1 && counts_flag && quant_mode == -1 && row_idx_type == 0);
  REQUIRE(e, e->n_ints[0] == 2 && e->ints[0][0] == 0 && e->ints[0][1] == expert_num);
  REQUIRE(e, counts->n == 1 && counts->shape[0] == expert_num && elements(expanded_row_idx) == active_num);
  REQUIRE(e, expanded_x->n == 2 && expanded_x->shape[0] == active_num && expanded_x->shape[1] == x->shape[1]);
  return finish(e, workspace_size, executor);
}
PHASE_2(MoeInitRoutingV3)

/* permuted, indices, probs, out */
static int compute_unpermute(aclOpExecutor *e) {
  const aclTensor *t = e->tensors;
  int has_probs = present(e, 2);
  int64_t choices = has_probs ? t[2].shape[1] : 1, h = t[3].shape[1];
  for (int64_t token = 0; token < t[3].shape[0]; token++)
    for (int64_t column = 0; column < h; column++) {
      double sum = 0;
      for (int64_t j = token * choices; j < (token + 1) * choices; j++)
        sum += (has_probs ? get(&t[2], j) : 1) * get(&t[0], (int64_t)get(&t[1], j) * h + column);
      put(&t[3], token * h + column, sum);
    }
  return 0;
}

EXPORT int aclnnMoeTokenUnpermuteGetWorkspaceSize(const aclTensor *permuted, const aclTensor *sorted_indices,
                                                  const aclTensor *probs, _Bool padded,
                                                  const aclIntArray *restore_shape, aclTensor *out,
                                                  uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnMoeTokenUnpermuteGetWorkspaceSize(const aclTensor *permuted, const aclTensor *sorted_indices,
                                           const aclTensor *probs, _Bool padded, const aclIntArray *restore_shape,
                                           aclTensor *out, uint64_t *workspace_size, aclOpExecutor **executor) {
  int status;
  aclOpExecutor *e = begin("aclnnMoeTokenUnpermute", compute_unpermute, A2 | A3, &status);
  const aclTensor *const given[] = {permuted, sorted_indices, probs, out};
  if (!e)
    return status;
  for (int i = 0; i < 4; i++) {
    take(e, given[i]);
    if (i != 2)
      REQUIRE_TENSOR(e, i);
  }
  REQUIRE(e, is_float(e, 0) && same_type(e, 0, 3) && sorted_indices->type == I32);
  REQUIRE(e, permuted->n == 2 && out->n == 2 && !padded && !restore_shape);
  REQUIRE(e, permuted->shape[0] == elements(sorted_indices) && permuted->shape[1] == out->shape[1]);
  REQUIRE(e, !probs || (is_float(e, 2) && probs->n == 2 && probs->shape[0] == out->shape[0]));
  REQUIRE(e, elements(sorted_indices) == (probs ? elements(probs) : out->shape[0])); /* without: one a token */
  return finish(e, workspace_size, executor);
}
PHASE_2(MoeTokenUnpermute)

/* -------------------------------------------------------------------------------------------------------- attention */

/* query, key, value, out */
static int compute_attention(aclOpExecutor *e) {
  cpu_tensor_view views[4];
  fl_value values[] = {
      AS_CPU(views[0], e, 0), AS_CPU(views[1], e, 1), AS_CPU(views[2], e, 2), fl_float(e->f[0]), fl_none(), fl_none(),
      AS_CPU(views[3], e, 3)};
  return reference(e, "mm_encoder_attn", values, 7);
}

EXPORT int aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
    const aclTensor *query, const aclTensorList *key, const aclTensorList *value, const aclTensor *pse_shift,
    const aclTensor *mask, const aclIntArray *seq_lengths, const aclIntArray *seq_lengths_kv, const aclTensor *dequant1,
    const aclTensor *quant1, const aclTensor *dequant2, const aclTensor *quant2, const aclTensor *offset2,
    const aclTensor *antiquant_scale, const aclTensor *antiquant_offset, const aclTensor *block_table,
    const aclTensor *query_padding, const aclTensor *kv_padding, const aclTensor *key_scale,
    const aclTensor *key_offset, const aclTensor *value_scale, const aclTensor *value_offset,
    const aclTensor *key_prefix, const aclTensor *value_prefix, const aclIntArray *prefix_length,
    const aclTensor *query_rope, const aclTensor *key_rope, const aclTensor *key_rope_scale, int64_t num_heads,
    double scale, int64_t pre_tokens, int64_t next_tokens, char *layout, int64_t num_kv_heads, int64_t sparse_mode,
    int64_t inner_precise, int64_t block_size, int64_t antiquant_mode, _Bool lse_flag, int64_t key_mode,
    int64_t value_mode, const aclTensor *out, const aclTensor *lse, uint64_t *workspace_size, aclOpExecutor **executor);
int aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
    const aclTensor *query, const aclTensorList *key, const aclTensorList *value, const aclTensor *pse_shift,
    const aclTensor *mask, const aclIntArray *seq_lengths, const aclIntArray *seq_lengths_kv, const aclTensor *dequant1,
    const aclTensor *quant1, const aclTensor *dequant2, const aclTensor *quant2, const aclTensor *offset2,
    const aclTensor *antiquant_scale, const aclTensor *antiquant_offset, const aclTensor *block_table,
    const aclTensor *query_padding, const aclTensor *kv_padding, const aclTensor *key_scale,
    const aclTensor *key_offset, const aclTensor *value_scale, const aclTensor *value_offset,
    const aclTensor *key_prefix, const aclTensor *value_prefix, const aclIntArray *prefix_length,
    const aclTensor *query_rope, const aclTensor *key_rope, const aclTensor *key_rope_scale, int64_t num_heads,
    double scale, int64_t pre_tokens, int64_t next_tokens, char *layout, int64_t num_kv_heads, int64_t sparse_mode,
    int64_t inner_precise, int64_t block_size, int64_t antiquant_mode, _Bool lse_flag, int64_t key_mode,
    int64_t value_mode, const aclTensor *out, const aclTensor *lse, uint64_t *workspace_size,
    aclOpExecutor **executor) {
  enum { WHOLE = 2147483647 };
  const void *const unused[] = {pse_shift,        mask,        seq_lengths,   seq_lengths_kv, dequant1,
                                quant1,           dequant2,    quant2,        offset2,        antiquant_scale,
                                antiquant_offset, block_table, query_padding, kv_padding,     key_scale,
                                key_offset,       value_scale, value_offset,  key_prefix,     value_prefix,
                                prefix_length,    query_rope,  key_rope,      key_rope_scale, lse};
  int status;
  aclOpExecutor *e = begin("aclnnFusedInferAttentionScoreV3", compute_attention, A2 | A3 | P310, &status);
  if (!e)
    return status;
  REQUIRE(e, key && value && key->n == 1 && value->n == 1);
  const aclTensor *const given[] = {query, key->tensors[0], value->tensors[0], out};
  for (int i = 0; i < 4; i++) {
    take(e, given[i]);
    REQUIRE_TENSOR(e, i);
    REQUIRE(e, given[i]->n == 4 && is_compact(e, i) && same_type(e, 0, i) && given[i]->shape[3] == query->shape[3]);
  }
  for (size_t i = 0; i < sizeof unused / sizeof unused[0]; i++)
    REQUIRE(e, !unused[i]);
  REQUIRE(e, query->type == F16 || query->type == BF16);
  REQUIRE(e, !strcmp(layout, "BSND") && query->shape[2] == num_heads && given[1]->shape[2] == num_kv_heads);
  REQUIRE(e, same_shape(e, 0, 3) && same_shape(e, 1, 2) && num_heads % num_kv_heads == 0);
  REQUIRE(e, num_heads / num_kv_heads <= 64 && query->shape[3] <= 512 && num_heads * query->shape[3] < 65535);
  REQUIRE(e, pre_tokens == WHOLE && next_tokens == WHOLE && !sparse_mode && inner_precise >= 0 && inner_precise <= 3);
  REQUIRE(e, !block_size && !antiquant_mode && !lse_flag && !key_mode && !value_mode);
  e->f[0] = scale;
  return finish(e, workspace_size, executor);
}
PHASE_2(FusedInferAttentionScoreV3)
