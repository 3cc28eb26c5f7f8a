/*
 * The operators of CANN that this plugin calls. Each is a pair of functions: phase 1, aclnnNAMEGetWorkspaceSize, takes
 * the arguments below, and then says how much workspace phase 2, aclnnNAME, needs. The arguments are those of the
 * vendor's op_api headers (CANN 8.5 and the ops-nn, ops-math and ops-transformer repositories of 2025-11 to 2026-08).
 */
#ifndef FLHOST_ASCEND_ACLNN_H
#define FLHOST_ASCEND_ACLNN_H

#include "plugins/ascend/acl.h"

/* X(name, arguments of phase 1 but for the last two) */
#define ACLNN_OPERATORS(X)                                                                                             \
  X(Abs, const aclTensor *self, aclTensor *out)                                                                        \
  X(Add, const aclTensor *self, const aclTensor *other, const aclScalar *alpha, aclTensor *out)                        \
  X(AddRmsNorm, const aclTensor *x1, const aclTensor *x2, const aclTensor *gamma, double epsilon, aclTensor *y,        \
    aclTensor *rstd, aclTensor *x)                                                                                     \
  X(Addmm, const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2, const aclScalar *beta,                 \
    const aclScalar *alpha, aclTensor *out, int8_t cube_math_type)                                                     \
  X(Adds, const aclTensor *self, const aclScalar *other, const aclScalar *alpha, aclTensor *out)                       \
  X(Amax, const aclTensor *self, const aclIntArray *dims, bool keep_dims, aclTensor *out)                              \
  X(AscendQuantV3, const aclTensor *x, const aclTensor *scale, const aclTensor *offset, bool sqrt_mode,                \
    const char *round_mode, int32_t type, int32_t axis, const aclTensor *y)                                            \
  X(Cast, const aclTensor *self, aclDataType type, aclTensor *out)                                                     \
  X(Cat, const aclTensorList *tensors, int64_t dim, aclTensor *out)                                                    \
  X(Clamp, const aclTensor *self, const aclScalar *least, const aclScalar *most, aclTensor *out)                       \
  X(ClampMax, const aclTensor *self, const aclScalar *most, aclTensor *out)                                            \
  X(ClampMin, const aclTensor *self, const aclScalar *least, aclTensor *out)                                           \
  X(ClippedSwiglu, const aclTensor *x, const aclTensor *group_index, int64_t dim, double alpha, double limit,          \
    double bias, bool interleaved, const aclTensor *out)                                                               \
  X(Convolution, const aclTensor *input, const aclTensor *weight, const aclTensor *bias, const aclIntArray *stride,    \
    const aclIntArray *padding, const aclIntArray *dilation, bool transposed, const aclIntArray *output_padding,       \
    int64_t groups, aclTensor *output, int8_t cube_math_type)                                                          \
  X(Div, const aclTensor *self, const aclTensor *other, aclTensor *out)                                                \
  X(DynamicQuant, const aclTensor *x, const aclTensor *smooth_scales, const aclTensor *y, const aclTensor *scale)      \
  X(Embedding, const aclTensor *weight, const aclTensor *indices, const aclTensor *out)                                \
  X(Expm1, const aclTensor *self, aclTensor *out)                                                                      \
  X(FastGelu, const aclTensor *self, aclTensor *out)                                                                   \
  X(FusedInferAttentionScoreV3, const aclTensor *query, const aclTensorList *key, const aclTensorList *value,          \
    const aclTensor *pse_shift, const aclTensor *mask, const aclIntArray *lengths, const aclIntArray *kv_lengths,      \
    const aclTensor *dequant_scale1, const aclTensor *quant_scale1, const aclTensor *dequant_scale2,                   \
    const aclTensor *quant_scale2, const aclTensor *quant_offset2, const aclTensor *antiquant_scale,                   \
    const aclTensor *antiquant_offset, const aclTensor *block_table, const aclTensor *query_padding,                   \
    const aclTensor *kv_padding, const aclTensor *key_antiquant_scale, const aclTensor *key_antiquant_offset,          \
    const aclTensor *value_antiquant_scale, const aclTensor *value_antiquant_offset,                                   \
    const aclTensor *key_shared_prefix, const aclTensor *value_shared_prefix, const aclIntArray *shared_prefix_length, \
    const aclTensor *query_rope, const aclTensor *key_rope, const aclTensor *key_rope_antiquant_scale, int64_t heads,  \
    double scale, int64_t pre_tokens, int64_t next_tokens, char *layout, int64_t kv_heads, int64_t sparse_mode,        \
    int64_t inner_precise, int64_t block_size, int64_t antiquant_mode, bool lse_flag, int64_t key_antiquant_mode,      \
    int64_t value_antiquant_mode, const aclTensor *out, const aclTensor *lse)                                          \
  X(GeScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)                                           \
  X(GeluMul, const aclTensor *input, char *approximate, const aclTensor *out)                                          \
  X(GeluV2, const aclTensor *x, int64_t approximate, aclTensor *y)                                                     \
  X(GemmaRmsNorm, const aclTensor *x, const aclTensor *gamma, double epsilon, const aclTensor *y,                      \
    const aclTensor *rstd)                                                                                             \
  X(GroupedMatmulV4, const aclTensorList *x, const aclTensorList *weight, const aclTensorList *bias,                   \
    const aclTensorList *scale, const aclTensorList *offset, const aclTensorList *antiquant_scale,                     \
    const aclTensorList *antiquant_offset, const aclTensorList *per_token_scale, const aclTensor *group_list,          \
    const aclTensorList *activation_input, const aclTensorList *activation_quant_scale,                                \
    const aclTensorList *activation_quant_offset, int64_t split_item, int64_t group_type, int64_t group_list_type,     \
    int64_t activation_type, aclTensorList *out, aclTensorList *activation_feature_out,                                \
    aclTensorList *dynamic_quant_scale_out)                                                                            \
  X(GtScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)                                           \
  X(IndexSelect, const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out)                           \
  X(InplaceAdd, const aclTensor *self, const aclTensor *other, const aclScalar *alpha)                                 \
  X(InplaceAddRmsNorm, aclTensor *x1, aclTensor *x2, const aclTensor *gamma, double epsilon, const aclTensor *rstd)    \
  X(InplaceAdds, const aclTensor *self, const aclScalar *other, const aclScalar *alpha)                                \
  X(InplaceClampMax, const aclTensor *self, const aclScalar *most)                                                     \
  X(InplaceClampMaxTensor, aclTensor *self, const aclTensor *most)                                                     \
  X(InplaceCopy, aclTensor *self, const aclTensor *source)                                                             \
  X(InplaceDiv, aclTensor *self, const aclTensor *other)                                                               \
  X(InplaceDivs, aclTensor *self, const aclScalar *other)                                                              \
  X(InplaceExp, aclTensor *self)                                                                                       \
  X(InplaceLogicalAnd, aclTensor *self, const aclTensor *other)                                                        \
  X(InplaceMaskedFillScalar, aclTensor *self, const aclTensor *mask, const aclScalar *value)                           \
  X(InplaceMul, aclTensor *self, const aclTensor *other)                                                               \
  X(InplaceMuls, aclTensor *self, const aclScalar *other)                                                              \
  X(InplaceNeg, aclTensor *self)                                                                                       \
  X(InplaceOne, const aclTensor *self)                                                                                 \
  X(InplaceRsqrt, aclTensor *self)                                                                                     \
  X(InplaceSub, aclTensor *self, const aclTensor *other, const aclScalar *alpha)                                       \
  X(InplaceTanh, aclTensor *self)                                                                                      \
  X(InplaceZero, const aclTensor *self)                                                                                \
  X(LayerNorm, const aclTensor *input, const aclIntArray *normalized_shape, const aclTensor *weight,                   \
    const aclTensor *bias, double epsilon, aclTensor *out, aclTensor *mean, aclTensor *rstd)                           \
  X(LeScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)                                           \
  X(Log, const aclTensor *self, aclTensor *out)                                                                        \
  X(LtScalar, const aclTensor *self, const aclScalar *other, aclTensor *out)                                           \
  X(Maximum, const aclTensor *self, const aclTensor *other, aclTensor *out)                                            \
  X(Mean, const aclTensor *self, const aclIntArray *dims, bool keep_dims, aclDataType type, aclTensor *out)            \
  X(Mm, const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cube_math_type)                           \
  X(MoeGatingTopK, const aclTensor *x, const aclTensor *bias, int64_t k, int64_t k_group, int64_t group_count,         \
    int64_t group_select_mode, int64_t renorm, int64_t norm_type, bool out_flag, double routed_scaling_factor,         \
    double epsilon, const aclTensor *y, const aclTensor *expert_idx, const aclTensor *norm_out)                        \
  X(MoeGatingTopKSoftmaxV2, const aclTensor *x, const aclTensor *finished, int64_t k, int64_t renorm,                  \
    bool out_softmax, const aclTensor *y, const aclTensor *expert_idx, const aclTensor *softmax_out)                   \
  X(MoeInitRoutingV3, const aclTensor *x, const aclTensor *expert_idx, const aclTensor *scale,                         \
    const aclTensor *offset, int64_t active_num, int64_t capacity, int64_t expert_num, int64_t drop_pad_mode,          \
    int64_t counts_type, bool counts_flag, int64_t quant_mode, const aclIntArray *active_range, int64_t row_idx_type,  \
    const aclTensor *expanded_x, const aclTensor *expanded_row_idx, const aclTensor *counts,                           \
    const aclTensor *expanded_scale)                                                                                   \
  X(MoeTokenUnpermute, const aclTensor *permuted, const aclTensor *sorted_indices, const aclTensor *probs,             \
    bool padded, const aclIntArray *restore_shape, aclTensor *out)                                                     \
  X(Mul, const aclTensor *self, const aclTensor *other, aclTensor *out)                                                \
  X(Muls, const aclTensor *self, const aclScalar *other, aclTensor *out)                                               \
  X(QuantMatmulV4, const aclTensor *x1, const aclTensor *x2, const aclTensor *scale, const aclTensor *offset,          \
    const aclTensor *per_token_scale, const aclTensor *bias, bool transpose_x1, bool transpose_x2,                     \
    const aclTensor *out)                                                                                              \
  X(Reciprocal, const aclTensor *self, aclTensor *out)                                                                 \
  X(ReduceSum, const aclTensor *self, const aclIntArray *dims, bool keep_dims, aclDataType type, aclTensor *out)       \
  X(RmsNorm, const aclTensor *x, const aclTensor *gamma, double epsilon, const aclTensor *y, const aclTensor *rstd)    \
  X(RopeWithSinCosCache, const aclTensor *positions, const aclTensor *query, const aclTensor *key,                     \
    const aclTensor *cos_sin_cache, const aclIntArray *mrope_section, int64_t head_size, bool is_neox,                 \
    aclTensor *query_out, aclTensor *key_out)                                                                          \
  X(RotaryPositionEmbedding, const aclTensor *x, const aclTensor *cos, const aclTensor *sin, int64_t mode,             \
    aclTensor *out)                                                                                                    \
  X(SWhere, const aclTensor *condition, const aclTensor *self, const aclTensor *other, aclTensor *out)                 \
  X(ScatterPaKvCache, const aclTensor *key, aclTensor *key_cache, const aclTensor *slot_mapping,                       \
    const aclTensor *value, aclTensor *value_cache, const aclTensor *compress_lens,                                    \
    const aclTensor *compress_seq_offset, const aclTensor *seq_lens, char *cache_mode, char *scatter_mode,             \
    const aclIntArray *strides, const aclIntArray *offsets)                                                            \
  X(Sigmoid, const aclTensor *self, aclTensor *out)                                                                    \
  X(Silu, const aclTensor *self, aclTensor *out)                                                                       \
  X(SituGlu, const aclTensor *x, int64_t dim, double beta, double linear_beta, bool activate_left,                     \
    const aclTensor *out)                                                                                              \
  X(Softplus, const aclTensor *self, const aclScalar *beta, const aclScalar *threshold, aclTensor *out)                \
  X(SquaredRelu, const aclTensor *input, const aclTensor *out)                                                         \
  X(SwiGlu, const aclTensor *x, int64_t dim, const aclTensor *out)                                                     \
  X(Threshold, const aclTensor *self, const aclScalar *threshold, const aclScalar *value, aclTensor *out)

/* ACLNN_SwiGlu and so on; 0 ends a list of them. */
typedef enum aclnn_operator {
  ACLNN_NONE,
#define ACLNN_NUMBER(name, ...) ACLNN_##name,
  ACLNN_OPERATORS(ACLNN_NUMBER)
#undef ACLNN_NUMBER
      ACLNN_COUNT
} aclnn_operator;

/* aclnn_SwiGlu: the type of its phase 1. */
#define ACLNN_PHASE_1(name, ...)                                                                                       \
  typedef aclnnStatus (*aclnn_##name)(__VA_ARGS__, uint64_t * workspace_size, aclOpExecutor * *executor);
ACLNN_OPERATORS(ACLNN_PHASE_1)
#undef ACLNN_PHASE_1

/* Phase 2 of all. It consumes the executor, also when it fails. */
typedef aclnnStatus (*aclnn_phase_2)(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
                                     aclrtStream stream);

#endif
