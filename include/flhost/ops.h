/*
 * flhost/ops.h: a typed call for each built-in op. Written by generate-ops from the entries in core/ops; do not edit.
 *
 *     fl_ops ops;
 *     fl_ops_init(&ops, host);
 *     if (fl_silu_and_mul(&ops, NULL, &x, &out)) fprintf(stderr, "%s\n", fl_error_message());
 *
 * Each call takes the device's stream or queue (NULL: the default one), the op's arguments and its results. The caller
 * provides every output tensor; fl_infer says shapes and dtypes. Tensors are borrowed for the call, which may be made
 * from any thread. It returns what fl_invoke returns; FL_ENOENT when the host does not know the op. Workspaces are
 * the host's to bring; with one of your own, or weights that fl_prepare prepared, make a fl_call (FL_CALL) and invoke
 * that.
 *
 * T[..., 2*d] is a tensor of dtype T with any leading dimensions and a last one of 2*d; a letter or name has the same
 * meaning wherever it stands in one op. The last dimension is contiguous, the others may be strided.
 */
/* clang-format off */
#ifndef FLHOST_OPS_H
#define FLHOST_OPS_H

#include <flhost/flhost.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The handles of the built-in ops in one host, valid as long as the host; NULL for an op that it does not know. */
typedef struct fl_ops {
  uint32_t size; /* sizeof(fl_ops) */
  fl_op *silu_and_mul;
  fl_op *mul_and_silu;
  fl_op *gelu_and_mul;
  fl_op *gelu_and_mul_sparse;
  fl_op *swigluoai_and_mul;
  fl_op *fatrelu_and_mul;
  fl_op *silu_and_mul_with_clamp;
  fl_op *swiglustep_and_mul;
  fl_op *situ_and_mul;
  fl_op *gelu;
  fl_op *gelu_new;
  fl_op *gelu_fast;
  fl_op *quick_gelu;
  fl_op *relu2;
  fl_op *xielu;
  fl_op *rms_norm;
  fl_op *fused_add_rms_norm;
  fl_op *gemma_rms_norm;
  fl_op *rms_norm_gated;
  fl_op *mixer2_gated_rms_norm;
  fl_op *layer_norm;
  fl_op *nemotron_layer_norm;
  fl_op *add;
  fl_op *sigmoid_mul;
  fl_op *rotary_embedding;
  fl_op *apply_rotary_emb;
  fl_op *dual_chunk_rotary_embedding;
  fl_op *fused_qk_norm_rope;
  fl_op *mrope;
  fl_op *quant_fp8;
  fl_op *scaled_int8_quant;
  fl_op *rms_norm_static_fp8_quant;
  fl_op *fused_add_rms_norm_static_fp8_quant;
  fl_op *rms_norm_dynamic_per_token_quant;
  fl_op *silu_and_mul_quant;
  fl_op *silu_and_mul_per_block_quant;
  fl_op *attention_backend;
  fl_op *mm_encoder_attn;
  fl_op *mla_prefill;
  fl_op *mla_decode;
  fl_op *merge_attn_states;
  fl_op *multi_head_latent_attention;
  fl_op *concat_and_cache_mla;
  fl_op *mla_paged_attention;
  fl_op *paged_attention;
  fl_op *reshape_and_cache;
  fl_op *replicated_linear;
  fl_op *column_parallel_linear;
  fl_op *row_parallel_linear;
  fl_op *scaled_mm;
  fl_op *weight_only_linear;
  fl_op *awq_linear;
  fl_op *gptq_linear;
  fl_op *mxfp4_linear;
  fl_op *vocab_parallel_embedding;
  fl_op *parallel_lm_head;
  fl_op *logits_processor;
  fl_op *conv2d;
  fl_op *conv3d;
  fl_op *grouped_topk;
  fl_op *topk_softmax;
  fl_op *moe_align_block_size;
  fl_op *moe_sum;
  fl_op *unquantized_fused_moe;
  fl_op *modular_fused_moe;
  fl_op *transformers_fused_moe;
  fl_op *fused_moe;
  fl_op *tensor_model_parallel_all_reduce;
  fl_op *all_reduce_fused_add_rms_norm;
  fl_op *causal_conv1d;
  fl_op *selective_scan;
  fl_op *mamba_chunk_scan;
  fl_op *mamba_mixer;
  fl_op *mamba_mixer2;
  fl_op *plamo2_mamba_mixer;
  fl_op *short_conv;
  fl_op *apply_penalties;
  fl_op *apply_temperature;
  fl_op *apply_min_p;
  fl_op *apply_top_k_top_p;
  fl_op *greedy_argmax;
  fl_op *exponential_sample;
  fl_op *gumbel_sample;
  fl_op *gather_logprobs;
  fl_op *chunk_gated_delta_rule;
  fl_op *recurrent_gated_delta_rule;
  fl_op *gdn_attention_core;
} fl_ops;

/* Gets the handles, by fl_op_handle: plugins that wait until an op of theirs is looked for are loaded by its first
 * call. FL_EINVAL: a null pointer; there is no message then. */
static inline fl_status fl_ops_init(fl_ops *ops, fl_host *host) {
  if (!ops || !host)
    return FL_EINVAL;
  ops->size = (uint32_t)sizeof(fl_ops);
  ops->silu_and_mul = fl_op_handle(host, "silu_and_mul");
  ops->mul_and_silu = fl_op_handle(host, "mul_and_silu");
  ops->gelu_and_mul = fl_op_handle(host, "gelu_and_mul");
  ops->gelu_and_mul_sparse = fl_op_handle(host, "gelu_and_mul_sparse");
  ops->swigluoai_and_mul = fl_op_handle(host, "swigluoai_and_mul");
  ops->fatrelu_and_mul = fl_op_handle(host, "fatrelu_and_mul");
  ops->silu_and_mul_with_clamp = fl_op_handle(host, "silu_and_mul_with_clamp");
  ops->swiglustep_and_mul = fl_op_handle(host, "swiglustep_and_mul");
  ops->situ_and_mul = fl_op_handle(host, "situ_and_mul");
  ops->gelu = fl_op_handle(host, "gelu");
  ops->gelu_new = fl_op_handle(host, "gelu_new");
  ops->gelu_fast = fl_op_handle(host, "gelu_fast");
  ops->quick_gelu = fl_op_handle(host, "quick_gelu");
  ops->relu2 = fl_op_handle(host, "relu2");
  ops->xielu = fl_op_handle(host, "xielu");
  ops->rms_norm = fl_op_handle(host, "rms_norm");
  ops->fused_add_rms_norm = fl_op_handle(host, "fused_add_rms_norm");
  ops->gemma_rms_norm = fl_op_handle(host, "gemma_rms_norm");
  ops->rms_norm_gated = fl_op_handle(host, "rms_norm_gated");
  ops->mixer2_gated_rms_norm = fl_op_handle(host, "mixer2_gated_rms_norm");
  ops->layer_norm = fl_op_handle(host, "layer_norm");
  ops->nemotron_layer_norm = fl_op_handle(host, "nemotron_layer_norm");
  ops->add = fl_op_handle(host, "add");
  ops->sigmoid_mul = fl_op_handle(host, "sigmoid_mul");
  ops->rotary_embedding = fl_op_handle(host, "rotary_embedding");
  ops->apply_rotary_emb = fl_op_handle(host, "apply_rotary_emb");
  ops->dual_chunk_rotary_embedding = fl_op_handle(host, "dual_chunk_rotary_embedding");
  ops->fused_qk_norm_rope = fl_op_handle(host, "fused_qk_norm_rope");
  ops->mrope = fl_op_handle(host, "mrope");
  ops->quant_fp8 = fl_op_handle(host, "quant_fp8");
  ops->scaled_int8_quant = fl_op_handle(host, "scaled_int8_quant");
  ops->rms_norm_static_fp8_quant = fl_op_handle(host, "rms_norm_static_fp8_quant");
  ops->fused_add_rms_norm_static_fp8_quant = fl_op_handle(host, "fused_add_rms_norm_static_fp8_quant");
  ops->rms_norm_dynamic_per_token_quant = fl_op_handle(host, "rms_norm_dynamic_per_token_quant");
  ops->silu_and_mul_quant = fl_op_handle(host, "silu_and_mul_quant");
  ops->silu_and_mul_per_block_quant = fl_op_handle(host, "silu_and_mul_per_block_quant");
  ops->attention_backend = fl_op_handle(host, "attention_backend");
  ops->mm_encoder_attn = fl_op_handle(host, "mm_encoder_attn");
  ops->mla_prefill = fl_op_handle(host, "mla_prefill");
  ops->mla_decode = fl_op_handle(host, "mla_decode");
  ops->merge_attn_states = fl_op_handle(host, "merge_attn_states");
  ops->multi_head_latent_attention = fl_op_handle(host, "multi_head_latent_attention");
  ops->concat_and_cache_mla = fl_op_handle(host, "concat_and_cache_mla");
  ops->mla_paged_attention = fl_op_handle(host, "mla_paged_attention");
  ops->paged_attention = fl_op_handle(host, "paged_attention");
  ops->reshape_and_cache = fl_op_handle(host, "reshape_and_cache");
  ops->replicated_linear = fl_op_handle(host, "replicated_linear");
  ops->column_parallel_linear = fl_op_handle(host, "column_parallel_linear");
  ops->row_parallel_linear = fl_op_handle(host, "row_parallel_linear");
  ops->scaled_mm = fl_op_handle(host, "scaled_mm");
  ops->weight_only_linear = fl_op_handle(host, "weight_only_linear");
  ops->awq_linear = fl_op_handle(host, "awq_linear");
  ops->gptq_linear = fl_op_handle(host, "gptq_linear");
  ops->mxfp4_linear = fl_op_handle(host, "mxfp4_linear");
  ops->vocab_parallel_embedding = fl_op_handle(host, "vocab_parallel_embedding");
  ops->parallel_lm_head = fl_op_handle(host, "parallel_lm_head");
  ops->logits_processor = fl_op_handle(host, "logits_processor");
  ops->conv2d = fl_op_handle(host, "conv2d");
  ops->conv3d = fl_op_handle(host, "conv3d");
  ops->grouped_topk = fl_op_handle(host, "grouped_topk");
  ops->topk_softmax = fl_op_handle(host, "topk_softmax");
  ops->moe_align_block_size = fl_op_handle(host, "moe_align_block_size");
  ops->moe_sum = fl_op_handle(host, "moe_sum");
  ops->unquantized_fused_moe = fl_op_handle(host, "unquantized_fused_moe");
  ops->modular_fused_moe = fl_op_handle(host, "modular_fused_moe");
  ops->transformers_fused_moe = fl_op_handle(host, "transformers_fused_moe");
  ops->fused_moe = fl_op_handle(host, "fused_moe");
  ops->tensor_model_parallel_all_reduce = fl_op_handle(host, "tensor_model_parallel_all_reduce");
  ops->all_reduce_fused_add_rms_norm = fl_op_handle(host, "all_reduce_fused_add_rms_norm");
  ops->causal_conv1d = fl_op_handle(host, "causal_conv1d");
  ops->selective_scan = fl_op_handle(host, "selective_scan");
  ops->mamba_chunk_scan = fl_op_handle(host, "mamba_chunk_scan");
  ops->mamba_mixer = fl_op_handle(host, "mamba_mixer");
  ops->mamba_mixer2 = fl_op_handle(host, "mamba_mixer2");
  ops->plamo2_mamba_mixer = fl_op_handle(host, "plamo2_mamba_mixer");
  ops->short_conv = fl_op_handle(host, "short_conv");
  ops->apply_penalties = fl_op_handle(host, "apply_penalties");
  ops->apply_temperature = fl_op_handle(host, "apply_temperature");
  ops->apply_min_p = fl_op_handle(host, "apply_min_p");
  ops->apply_top_k_top_p = fl_op_handle(host, "apply_top_k_top_p");
  ops->greedy_argmax = fl_op_handle(host, "greedy_argmax");
  ops->exponential_sample = fl_op_handle(host, "exponential_sample");
  ops->gumbel_sample = fl_op_handle(host, "gumbel_sample");
  ops->gather_logprobs = fl_op_handle(host, "gather_logprobs");
  ops->chunk_gated_delta_rule = fl_op_handle(host, "chunk_gated_delta_rule");
  ops->recurrent_gated_delta_rule = fl_op_handle(host, "recurrent_gated_delta_rule");
  ops->gdn_attention_core = fl_op_handle(host, "gdn_attention_core");
  return FL_OK;
}

/* What FL_CALL makes, but for the message, which the host sets. */
static inline void fl_ops_call(fl_call *call, fl_value *values, uint32_t count, void *stream) {
  call->size = (uint32_t)sizeof *call;
  call->count = count;
  call->values = values;
  call->stream = stream;
  call->workspace = NULL;
  call->workspace_size = 0;
  call->prepared = NULL;
  call->group = NULL;
}

/*
 * SiLU of the first half of x's last dimension, times the second half.
 *     silu_and_mul(Tensor x) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = silu(x[..., :d]) * x[..., d:], silu(v) = v / (1 + exp(-v)); rounded to T after silu and after the
 * product (vLLM: SiluAndMul, kernel silu_and_mul)
 */
static inline fl_status fl_silu_and_mul(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->silu_and_mul, &call);
}

/*
 * The first half of x's last dimension, times SiLU of the second half.
 *     mul_and_silu(Tensor x) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = x[..., :d] * silu(x[..., d:]), silu(v) = v / (1 + exp(-v)); rounded to T after silu and after the
 * product (vLLM: MulAndSilu, kernel mul_and_silu)
 */
static inline fl_status fl_mul_and_silu(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->mul_and_silu, &call);
}

/*
 * GELU of the first half of x's last dimension, times the second half; approximate is "none" or "tanh".
 *     gelu_and_mul(Tensor x, str approximate="none") -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = gelu(x[..., :d]) * x[..., d:], gelu(v) = v/2 * (1 + erf(v / sqrt(2))) for "none", v/2 * (1 +
 * tanh(sqrt(2/pi) * (v + 0.044715 * v^3))) for "tanh"; rounded to T after gelu and after the product (vLLM: GeluAndMul,
 * kernels gelu_and_mul, gelu_tanh_and_mul)
 */
static inline fl_status fl_gelu_and_mul(const fl_ops *ops, void *stream, DLTensor *x, const char *approximate,
                                        DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(x);
  values[1] = fl_string(approximate);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->gelu_and_mul, &call);
}

/*
 * GELU of what the first half of x's last dimension has above a cut, times the second half; the cut leaves a part of 1
 * - activation_sparsity of normally distributed values.
 *     gelu_and_mul_sparse(Tensor x, float activation_sparsity, str approximate="none") -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = gelu(relu(g - cut)) * u, g = x[..., :d], u = x[..., d:], cut = mean(g) + std(g) * m over the last
 * dimension, std of the population, m the quantile of the standard normal distribution at activation_sparsity in
 * float32, gelu(v) = v/2 * (1 + erf(v / sqrt(2))) for "none", v/2 * (1 + tanh(sqrt(2/pi) * (v + 0.044715 * v^3))) for
 * "tanh"; rounded to T after every step (vLLM: GeluAndMulSparse)
 */
static inline fl_status fl_gelu_and_mul_sparse(const fl_ops *ops, void *stream, DLTensor *x, double activation_sparsity,
                                               const char *approximate, DLTensor *out) {
  fl_value values[4];
  values[0] = fl_required_tensor(x);
  values[1] = fl_float(activation_sparsity);
  values[2] = fl_string(approximate);
  values[3] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 4, stream);
  return fl_invoke(ops->gelu_and_mul_sparse, &call);
}

/*
 * The gated activation of gpt-oss: gate and factor alternate in x's last dimension, both are clamped.
 *     swigluoai_and_mul(Tensor x, float alpha=1.702, float limit=7.0) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = (u + 1) * (g * sigmoid(alpha * g)), g = min(x[..., 0::2], limit), u = clamp(x[..., 1::2], -limit,
 * limit); rounded to T after every step (vLLM: SwigluOAIAndMul, kernel swigluoai_and_mul)
 */
static inline fl_status fl_swigluoai_and_mul(const fl_ops *ops, void *stream, DLTensor *x, double alpha, double limit,
                                             DLTensor *out) {
  fl_value values[4];
  values[0] = fl_required_tensor(x);
  values[1] = fl_float(alpha);
  values[2] = fl_float(limit);
  values[3] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 4, stream);
  return fl_invoke(ops->swigluoai_and_mul, &call);
}

/*
 * What of the first half of x's last dimension is above a threshold, else 0, times the second half.
 *     fatrelu_and_mul(Tensor x, float threshold=0.0) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = (g > threshold ? g : 0) * u, g = x[..., :d], u = x[..., d:]; compared in float32, NaN stays (vLLM:
 * FatreluAndMul, kernel fatrelu_and_mul)
 */
static inline fl_status fl_fatrelu_and_mul(const fl_ops *ops, void *stream, DLTensor *x, double threshold,
                                           DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(x);
  values[1] = fl_float(threshold);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->fatrelu_and_mul, &call);
}

/*
 * SiLU of the clamped first half of x's last dimension, times the clamped second half plus beta.
 *     silu_and_mul_with_clamp(Tensor x, float limit, float alpha=1.0, float beta=0.0) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = g * sigmoid(alpha * g) * (u + beta), g = min(x[..., :d], limit), u = clamp(x[..., d:], -limit, limit);
 * rounded to T after every step (vLLM: SiluAndMulWithClamp, kernel silu_and_mul_with_clamp)
 */
static inline fl_status fl_silu_and_mul_with_clamp(const fl_ops *ops, void *stream, DLTensor *x, double limit,
                                                   double alpha, double beta, DLTensor *out) {
  fl_value values[5];
  values[0] = fl_required_tensor(x);
  values[1] = fl_float(limit);
  values[2] = fl_float(alpha);
  values[3] = fl_float(beta);
  values[4] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 5, stream);
  return fl_invoke(ops->silu_and_mul_with_clamp, &call);
}

/*
 * SiLU of the first half of x's last dimension, clamped from above, times the clamped second half.
 *     swiglustep_and_mul(Tensor x, float limit=7.0) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * Formula: out = min(silu(x[..., :d]), limit) * clamp(x[..., d:], -limit, limit); rounded to T after silu and after the
 * product (vLLM: SwigluStepAndMul)
 */
static inline fl_status fl_swiglustep_and_mul(const fl_ops *ops, void *stream, DLTensor *x, double limit,
                                              DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(x);
  values[1] = fl_float(limit);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->swiglustep_and_mul, &call);
}

/*
 * SiLU with a soft limit of the first half of x's last dimension, times the second half, which is softly limited too
 * when linear_beta is given.
 *     situ_and_mul(Tensor x, float beta=1.0, float? linear_beta=None) -> Tensor out
 * where  x: T[..., 2*d]
 *        out: T[..., d]
 *        T = float32|float16|bfloat16
 * linear_beta: NULL for none.
 * Formula: out = beta * tanh(g / beta) * sigmoid(g) * u, g = x[..., :d], u = x[..., d:], u -> linear_beta * tanh(u /
 * linear_beta) if there is one; in float32, rounded once (vLLM: SituAndMul, kernel situ_and_mul)
 */
static inline fl_status fl_situ_and_mul(const fl_ops *ops, void *stream, DLTensor *x, double beta,
                                        const double *linear_beta, DLTensor *out) {
  fl_value values[4];
  values[0] = fl_required_tensor(x);
  values[1] = fl_float(beta);
  values[2] = linear_beta ? fl_float(*linear_beta) : fl_none();
  values[3] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 4, stream);
  return fl_invoke(ops->situ_and_mul, &call);
}

/*
 * GELU of each element; approximate is "none" or "tanh".
 *     gelu(Tensor(a!) x, str approximate="none") -> Tensor(a) out
 * where  x: T[..., d]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = gelu(x), gelu(v) = v/2 * (1 + erf(v / sqrt(2))) for "none", v/2 * (1 + tanh(sqrt(2/pi) * (v + 0.044715
 * * v^3))) for "tanh" (vLLM: get_act_fn gelu, gelu_pytorch_tanh)
 */
static inline fl_status fl_gelu(const fl_ops *ops, void *stream, DLTensor *x, const char *approximate, DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(x);
  values[1] = fl_string(approximate);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->gelu, &call);
}

/*
 * GELU by tanh, in the steps of the first GPT-2.
 *     gelu_new(Tensor(a!) x) -> Tensor(a) out
 * where  x: T[..., d]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x^3))); rounded to T after every step (vLLM: NewGELU,
 * kernel gelu_new)
 */
static inline fl_status fl_gelu_new(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->gelu_new, &call);
}

/*
 * GELU by tanh, with the cubic factored.
 *     gelu_fast(Tensor(a!) x) -> Tensor(a) out
 * where  x: T[..., d]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = 0.5 * x * (1 + tanh(x * 0.7978845608 * (1 + 0.044715 * x * x))); rounded to T after every step (vLLM:
 * FastGELU, kernel gelu_fast)
 */
static inline fl_status fl_gelu_fast(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->gelu_fast, &call);
}

/*
 * GELU by the logistic function.
 *     quick_gelu(Tensor(a!) x) -> Tensor(a) out
 * where  x: T[..., d]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = x * sigmoid(1.702 * x); rounded to T after every step (vLLM: QuickGELU, kernel gelu_quick)
 */
static inline fl_status fl_quick_gelu(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->quick_gelu, &call);
}

/*
 * The square of what is above 0.
 *     relu2(Tensor(a!) x) -> Tensor(a) out
 * where  x: T[..., d]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = max(x, 0)^2; NaN stays (vLLM: ReLUSquaredActivation, kernel relu_squared)
 */
static inline fl_status fl_relu2(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->relu2, &call);
}

/*
 * Expanded integral of the exponential linear unit, with trained parameters alpha_p and alpha_n.
 *     xielu(Tensor(a!) x, Tensor alpha_p, Tensor alpha_n, float beta=0.5, float eps=-1e-6) -> Tensor(a) out
 * where  x: T[..., d]
 *        alpha_p: float32|float16|bfloat16[1]
 *        alpha_n: float32|float16|bfloat16[1]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = ap * x * x + beta * x for x > 0, else (expm1(min(x, eps)) - x) * an + beta * x, ap =
 * softplus(alpha_p), an = beta + softplus(alpha_n); beta and eps are rounded to T, then every step to T, or to float32
 * where a parameter of another type comes in (vLLM: XIELU)
 */
static inline fl_status fl_xielu(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *alpha_p, DLTensor *alpha_n,
                                 double beta, double eps, DLTensor *out) {
  fl_value values[6];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(alpha_p);
  values[2] = fl_required_tensor(alpha_n);
  values[3] = fl_float(beta);
  values[4] = fl_float(eps);
  values[5] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->xielu, &call);
}

/*
 * Root-mean-square normalisation of x, or of x + residual when there is a residual.
 *     rms_norm(Tensor(a!) x, Tensor(b!)? residual=None, Tensor? weight=None, float epsilon=1e-6,
 *         int? variance_size=None) -> (Tensor(a) out, Tensor(b)? residual_out)
 * where  x: T[..., H]
 *        residual: T[..., H]
 *        weight: T|float32[H]
 *        T = float32|float16|bfloat16
 *        out: as x
 *        residual_out: as residual
 * out may be the very tensor x (in place); else x stays as it is.
 * residual_out may be the very tensor residual (in place); else residual stays as it is. NULL exactly where that is
 * NULL.
 * residual, weight, variance_size: NULL for none.
 * Formula: s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s[..., :variance_size]^2) + epsilon) *
 * weight; the normalised value is rounded to weight's dtype before the product, the product to T (vLLM: RMSNorm,
 * kernels rms_norm, fused_add_rms_norm)
 */
static inline fl_status fl_rms_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *residual, DLTensor *weight,
                                    double epsilon, const int64_t *variance_size, DLTensor *out,
                                    DLTensor *residual_out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_tensor(residual);
  values[2] = fl_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = variance_size ? fl_int(*variance_size) : fl_none();
  values[5] = fl_required_tensor(out);
  values[6] = fl_tensor(residual_out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->rms_norm, &call);
}

/*
 * Adds x_residual to x and normalises the sum by its root mean square.
 *     fused_add_rms_norm(Tensor(a!) x, Tensor(b!) x_residual, Tensor? weight, float epsilon, int? variance_size=None)
 *         -> (Tensor(a) out, Tensor(b) residual_out)
 * where  x: T[..., H]
 *        x_residual: T[..., H]
 *        weight: T|float32[H]
 *        T = float32|float16|bfloat16
 *        out: as x
 *        residual_out: as x_residual
 * out may be the very tensor x (in place); else x stays as it is.
 * residual_out may be the very tensor x_residual (in place); else x_residual stays as it is.
 * weight, variance_size: NULL for none.
 * Formula: s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s[..., :variance_size]^2) + epsilon) *
 * weight; the normalised value is rounded to weight's dtype before the product, the product to T (residual is
 * x_residual; vLLM: IR op and kernel fused_add_rms_norm)
 */
static inline fl_status fl_fused_add_rms_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *x_residual,
                                              DLTensor *weight, double epsilon, const int64_t *variance_size,
                                              DLTensor *out, DLTensor *residual_out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(x_residual);
  values[2] = fl_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = variance_size ? fl_int(*variance_size) : fl_none();
  values[5] = fl_required_tensor(out);
  values[6] = fl_required_tensor(residual_out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->fused_add_rms_norm, &call);
}

/*
 * Root-mean-square normalisation whose weight is counted from 1, of x, or of x + residual when there is a residual.
 *     gemma_rms_norm(Tensor(a!) x, Tensor(b!)? residual, Tensor weight, float epsilon=1e-6) -> (Tensor(a) out,
 *         Tensor(b)? residual_out)
 * where  x: T[..., H]
 *        residual: T[..., H]
 *        weight: T|float32[H]
 *        T = float32|float16|bfloat16
 *        out: as x
 *        residual_out: as residual
 * out may be the very tensor x (in place); else x stays as it is.
 * residual_out may be the very tensor residual (in place); else residual stays as it is. NULL exactly where that is
 * NULL.
 * residual: NULL for none.
 * Formula: s = x + residual in float32; residual_out = s; out = s / sqrt(mean(s^2) + epsilon) * (1 + weight) in
 * float32, rounded once (vLLM: GemmaRMSNorm)
 */
static inline fl_status fl_gemma_rms_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *residual,
                                          DLTensor *weight, double epsilon, DLTensor *out, DLTensor *residual_out) {
  fl_value values[6];
  values[0] = fl_required_tensor(x);
  values[1] = fl_tensor(residual);
  values[2] = fl_required_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = fl_required_tensor(out);
  values[5] = fl_tensor(residual_out);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->gemma_rms_norm, &call);
}

/*
 * Root-mean-square normalisation in groups of group_size (none: of the whole dimension), gated by z before or after;
 * activation is "swish", "silu" (the same) or "sigmoid".
 *     rms_norm_gated(Tensor x, Tensor? z, Tensor weight, float epsilon=1e-5, int? group_size=None,
 *         bool norm_before_gate=False, str activation="swish") -> Tensor out
 * where  x: T[..., H]
 *        z: T[..., H]
 *        weight: T|float32[H]
 *        out: T[..., H]
 *        T = float32|float16|bfloat16
 * z, group_size: NULL for none.
 * Formula: x -> x * act(z) unless norm_before_gate; out = x / sqrt(mean(x^2) + epsilon) * weight, times act(z) if
 * norm_before_gate; in float32, rounded once (vLLM: RMSNormGated, FusedRMSNormGated)
 */
static inline fl_status fl_rms_norm_gated(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *z, DLTensor *weight,
                                          double epsilon, const int64_t *group_size, bool norm_before_gate,
                                          const char *activation, DLTensor *out) {
  fl_value values[8];
  values[0] = fl_required_tensor(x);
  values[1] = fl_tensor(z);
  values[2] = fl_required_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = group_size ? fl_int(*group_size) : fl_none();
  values[5] = fl_bool(norm_before_gate);
  values[6] = fl_string(activation);
  values[7] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->rms_norm_gated, &call);
}

/*
 * Mamba-2's norm: x times SiLU of the gate, normalised by the root mean square of each of n_groups groups. Without
 * use_rms_norm the product alone (a weight is not used). A float32 weight makes a float32 result.
 *     mixer2_gated_rms_norm(Tensor x, Tensor gate, Tensor? weight, float epsilon=1e-6, int n_groups=1,
 *         bool use_rms_norm=True) -> Tensor out
 * where  x: T[..., H]
 *        gate: T[..., H]
 *        weight: T[H] or F[H]
 *        out: F[..., H] when use_rms_norm or T[..., H]
 *        T = float32|float16|bfloat16
 *        F = float32
 * weight: NULL for none.
 * Formula: v = x * silu(gate) in float32; out = weight * v / sqrt(mean(v^2) + epsilon); the normalised value is rounded
 * to T before the product (vLLM: Mixer2RMSNormGated)
 */
static inline fl_status fl_mixer2_gated_rms_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *gate,
                                                 DLTensor *weight, double epsilon, int64_t n_groups, bool use_rms_norm,
                                                 DLTensor *out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(gate);
  values[2] = fl_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = fl_int(n_groups);
  values[5] = fl_bool(use_rms_norm);
  values[6] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->mixer2_gated_rms_norm, &call);
}

/*
 * Normalisation of rows to mean 0 and variance 1, then times weight, plus bias.
 *     layer_norm(Tensor x, Tensor? weight=None, Tensor? bias=None, float epsilon=1e-5) -> Tensor out
 * where  x: T[..., H]
 *        weight: T|float32[H]
 *        bias: T|float32[H]
 *        out: T[..., H]
 *        T = float32|float16|bfloat16
 * weight, bias: NULL for none.
 * Formula: m = mean(x); out = (x - m) / sqrt(mean((x - m)^2) + epsilon) * weight + bias in float32, rounded once (vLLM:
 * LayerNorm; torch.nn.functional.layer_norm)
 */
static inline fl_status fl_layer_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight, DLTensor *bias,
                                      double epsilon, DLTensor *out) {
  fl_value values[5];
  values[0] = fl_required_tensor(x);
  values[1] = fl_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_float(epsilon);
  values[4] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 5, stream);
  return fl_invoke(ops->layer_norm, &call);
}

/*
 * Layer norm whose weight is counted from 1, of x, or of x + residual when there is a residual.
 *     nemotron_layer_norm(Tensor(a!) x, Tensor(b!)? residual, Tensor weight, Tensor bias, float epsilon=1e-5)
 *         -> (Tensor(a) out, Tensor(b)? residual_out)
 * where  x: T[..., H]
 *        residual: T[..., H]
 *        weight: T|float32[H]
 *        bias: T|float32[H]
 *        T = float32|float16|bfloat16
 *        out: as x
 *        residual_out: as residual
 * out may be the very tensor x (in place); else x stays as it is.
 * residual_out may be the very tensor residual (in place); else residual stays as it is. NULL exactly where that is
 * NULL.
 * residual: NULL for none.
 * Formula: s = x + residual, rounded to T; residual_out = s; w = weight + 1, rounded to weight's dtype; out = (s -
 * mean(s)) / sqrt(mean((s - mean(s))^2) + epsilon) * w + bias in float32, rounded once (vLLM: NemotronLayerNorm1P)
 */
static inline fl_status fl_nemotron_layer_norm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *residual,
                                               DLTensor *weight, DLTensor *bias, double epsilon, DLTensor *out,
                                               DLTensor *residual_out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_tensor(residual);
  values[2] = fl_required_tensor(weight);
  values[3] = fl_required_tensor(bias);
  values[4] = fl_float(epsilon);
  values[5] = fl_required_tensor(out);
  values[6] = fl_tensor(residual_out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->nemotron_layer_norm, &call);
}

/*
 * The sum of two tensors of one shape.
 *     add(Tensor(a!) x, Tensor y) -> Tensor(a) out
 * where  x: T[..., d]
 *        y: T[..., d]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = x + y, rounded once (residual connections of vLLM's models)
 */
static inline fl_status fl_add(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *y, DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(y);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->add, &call);
}

/*
 * A tensor times the logistic function of a gate, which has an element for each of the tensor's or one a row.
 *     sigmoid_mul(Tensor(a!) x, Tensor gate) -> Tensor(a) out
 * where  x: T[..., d]
 *        gate: T[..., d] or T[..., 1]
 *        T = float32|float16|bfloat16
 *        out: as x
 * out may be the very tensor x (in place); else x stays as it is.
 * Formula: out = x * s, s = 1 / (1 + exp(-gate)) rounded to T; rounded once more (vLLM: the gated attention and the
 * shared expert of Qwen3-Next, x * sigmoid(gate))
 */
static inline fl_status fl_sigmoid_mul(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *gate, DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(gate);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->sigmoid_mul, &call);
}

/*
 * Rotates pairs of dimensions of each head of query and key by the angle of the token's position.
 *     rotary_embedding(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor position_ids,
 *         bool interleaved=False, int rope_dim_offset=0, bool inverse=False) -> (Tensor(a) query_out,
 *         Tensor(b)? key_out)
 * where  query: T[n, h, d] or T[n, h*2*r]
 *        key: T[n, k, d] or T[n, k*2*r]
 *        cos: T|float32[p, r]
 *        sin: T|float32[p, r]
 *        position_ids: int32|int64[n]
 *        T = float32|float16|bfloat16
 *        query_out: as query
 *        key_out: as key
 * query_out may be the very tensor query (in place); else query stays as it is.
 * key_out may be the very tensor key (in place); else key stays as it is. NULL exactly where that is NULL.
 * key: NULL for none.
 * Formula: (x1, x2) -> (x1*c - x2*s, x2*c + x1*s), c = cos[position, i], s = sin[position, i] (-s if inverse); the pair
 * is (i, i + r), or (2*i, 2*i + 1) if interleaved, from rope_dim_offset on; other dimensions stay. Query and key of two
 * dimensions have heads of 2*r. Rounded to T after each product and the sum (vLLM: RotaryEmbedding, kernel
 * rotary_embedding)
 */
static inline fl_status fl_rotary_embedding(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *key,
                                            DLTensor *cos, DLTensor *sin, DLTensor *position_ids, bool interleaved,
                                            int64_t rope_dim_offset, bool inverse, DLTensor *query_out,
                                            DLTensor *key_out) {
  fl_value values[10];
  values[0] = fl_required_tensor(query);
  values[1] = fl_tensor(key);
  values[2] = fl_required_tensor(cos);
  values[3] = fl_required_tensor(sin);
  values[4] = fl_required_tensor(position_ids);
  values[5] = fl_bool(interleaved);
  values[6] = fl_int(rope_dim_offset);
  values[7] = fl_bool(inverse);
  values[8] = fl_required_tensor(query_out);
  values[9] = fl_tensor(key_out);
  fl_call call;
  fl_ops_call(&call, values, 10, stream);
  return fl_invoke(ops->rotary_embedding, &call);
}

/*
 * Rotates pairs of dimensions of each head by the angle of the token's place in the sequence.
 *     apply_rotary_emb(Tensor x, Tensor cos, Tensor sin, bool is_neox_style=True, bool enable_fp32_compute=False)
 *         -> Tensor out
 * where  x: T[..., S, H, 2*r]
 *        cos: T|float32[S, r]
 *        sin: T|float32[S, r]
 *        out: T[..., S, H, 2*r]
 *        T = float32|float16|bfloat16
 * Formula: (x1, x2) -> (x1*c - x2*s, x2*c + x1*s), c = cos[place, i], s = sin[place, i] as T; the pair is (i, i + r),
 * or (2*i, 2*i + 1) if not is_neox_style; rounded to T after each product and the sum, or in float32 and rounded once
 * if enable_fp32_compute (vLLM: ApplyRotaryEmb)
 */
static inline fl_status fl_apply_rotary_emb(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *cos, DLTensor *sin,
                                            bool is_neox_style, bool enable_fp32_compute, DLTensor *out) {
  fl_value values[6];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(cos);
  values[2] = fl_required_tensor(sin);
  values[3] = fl_bool(is_neox_style);
  values[4] = fl_bool(enable_fp32_compute);
  values[5] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->apply_rotary_emb, &call);
}

/*
 * Rotary embedding of dual chunk attention: the key by its position, the query five times, one after the other: within
 * the chunk, to the chunk before, to those before that, and the last two again without the clamp. A cache row holds
 * cosines, then sines.
 *     dual_chunk_rotary_embedding(Tensor position_ids, Tensor query, Tensor key, Tensor q_cache, Tensor qc_cache,
 *         Tensor k_cache, Tensor qc_no_clamp_cache, Tensor q_inter_cache, int head_size, int rotary_dim,
 *         int chunk_size, int local_size, bool is_neox_style=True) -> (Tensor query_out, Tensor key_out)
 * where  position_ids: int32|int64[n]
 *        query: T[n, h*head_size]
 *        key: T[n, k*head_size]
 *        q_cache: T[q, rotary_dim]
 *        qc_cache: T[c, rotary_dim]
 *        k_cache: T[p, rotary_dim]
 *        qc_no_clamp_cache: T[d, rotary_dim]
 *        q_inter_cache: T[i, rotary_dim]
 *        query_out: T[n, 5*(h*head_size)]
 *        key_out: T[n, k*head_size]
 *        T = float32|float16|bfloat16
 * Formula: key_out = R(key, k_cache[p]); query_out = R(query, q_cache[p % c]), R(query, qc_cache[p % c]), R(query,
 * qc_cache[c - 1]), R(query, qc_no_clamp_cache[p % c]), R(query, q_inter_cache[p % c]), c = chunk_size - local_size; R
 * rotates the first rotary_dim dimensions as rotary_embedding does (vLLM: DualChunkRotaryEmbedding)
 */
static inline fl_status fl_dual_chunk_rotary_embedding(const fl_ops *ops, void *stream, DLTensor *position_ids,
                                                       DLTensor *query, DLTensor *key, DLTensor *q_cache,
                                                       DLTensor *qc_cache, DLTensor *k_cache,
                                                       DLTensor *qc_no_clamp_cache, DLTensor *q_inter_cache,
                                                       int64_t head_size, int64_t rotary_dim, int64_t chunk_size,
                                                       int64_t local_size, bool is_neox_style, DLTensor *query_out,
                                                       DLTensor *key_out) {
  fl_value values[15];
  values[0] = fl_required_tensor(position_ids);
  values[1] = fl_required_tensor(query);
  values[2] = fl_required_tensor(key);
  values[3] = fl_required_tensor(q_cache);
  values[4] = fl_required_tensor(qc_cache);
  values[5] = fl_required_tensor(k_cache);
  values[6] = fl_required_tensor(qc_no_clamp_cache);
  values[7] = fl_required_tensor(q_inter_cache);
  values[8] = fl_int(head_size);
  values[9] = fl_int(rotary_dim);
  values[10] = fl_int(chunk_size);
  values[11] = fl_int(local_size);
  values[12] = fl_bool(is_neox_style);
  values[13] = fl_required_tensor(query_out);
  values[14] = fl_required_tensor(key_out);
  fl_call call;
  fl_ops_call(&call, values, 15, stream);
  return fl_invoke(ops->dual_chunk_rotary_embedding, &call);
}

/*
 * Normalises each head of query and key by its root mean square, and rotates it; value stays.
 *     fused_qk_norm_rope(Tensor(a!) qkv, Tensor q_weight, Tensor k_weight, Tensor cos, Tensor sin, Tensor position_ids,
 *         int num_heads_q, int num_heads_k, int num_heads_v, float epsilon=1e-6, bool interleaved=False)
 *         -> Tensor(a) qkv_out
 * where  q_weight: T[d]
 *        k_weight: T[d]
 *        qkv: T[n, (num_heads_q + num_heads_k + num_heads_v)*d]
 *        cos: T|float32[p, r]
 *        sin: T|float32[p, r]
 *        position_ids: int32|int64[n]
 *        T = float32|float16|bfloat16
 *        qkv_out: as qkv
 * qkv_out may be the very tensor qkv (in place); else qkv stays as it is.
 * Formula: y = x / sqrt(mean of x^2 + epsilon) * weight for each head of query and key; then as rotary_embedding, of
 * the first 2*r dimensions; in float32, rounded to T once (vLLM: kernel fused_qk_norm_rope)
 */
static inline fl_status fl_fused_qk_norm_rope(const fl_ops *ops, void *stream, DLTensor *qkv, DLTensor *q_weight,
                                              DLTensor *k_weight, DLTensor *cos, DLTensor *sin, DLTensor *position_ids,
                                              int64_t num_heads_q, int64_t num_heads_k, int64_t num_heads_v,
                                              double epsilon, bool interleaved, DLTensor *qkv_out) {
  fl_value values[12];
  values[0] = fl_required_tensor(qkv);
  values[1] = fl_required_tensor(q_weight);
  values[2] = fl_required_tensor(k_weight);
  values[3] = fl_required_tensor(cos);
  values[4] = fl_required_tensor(sin);
  values[5] = fl_required_tensor(position_ids);
  values[6] = fl_int(num_heads_q);
  values[7] = fl_int(num_heads_k);
  values[8] = fl_int(num_heads_v);
  values[9] = fl_float(epsilon);
  values[10] = fl_bool(interleaved);
  values[11] = fl_required_tensor(qkv_out);
  fl_call call;
  fl_ops_call(&call, values, 12, stream);
  return fl_invoke(ops->fused_qk_norm_rope, &call);
}

/*
 * Rotary embedding of tokens that have three positions, by time, height and width: each frequency turns by one of them.
 *     mrope(Tensor(a!) query, Tensor(b!)? key, Tensor cos, Tensor sin, Tensor position_ids, int[] mrope_section,
 *         bool mrope_interleaved=False, bool interleaved=False) -> (Tensor(a) query_out, Tensor(b)? key_out)
 * where  query: T[n, h, d] or T[n, h*2*r]
 *        key: T[n, k, d] or T[n, k*2*r]
 *        cos: T|float32[p, r]
 *        sin: T|float32[p, r]
 *        position_ids: int32|int64[3, n]
 *        T = float32|float16|bfloat16
 *        query_out: as query
 *        key_out: as key
 * query_out may be the very tensor query (in place); else query stays as it is.
 * key_out may be the very tensor key (in place); else key stays as it is. NULL exactly where that is NULL.
 * key: NULL for none.
 * Formula: as rotary_embedding, frequency i by position_ids[a(i)]; mrope_section [t, h, w]: a = 0 for i < t, 1 for i <
 * t + h, else 2; mrope_interleaved: a = 1 if i % 3 = 1 and i < 3*h, 2 if i % 3 = 2 and i < 3*w, else 0 (vLLM:
 * MRotaryEmbedding, mrope)
 */
static inline fl_status fl_mrope(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *key, DLTensor *cos,
                                 DLTensor *sin, DLTensor *position_ids, const int64_t *mrope_section,
                                 uint32_t n_mrope_section, bool mrope_interleaved, bool interleaved,
                                 DLTensor *query_out, DLTensor *key_out) {
  fl_value values[10];
  values[0] = fl_required_tensor(query);
  values[1] = fl_tensor(key);
  values[2] = fl_required_tensor(cos);
  values[3] = fl_required_tensor(sin);
  values[4] = fl_required_tensor(position_ids);
  values[5] = fl_ints(mrope_section, n_mrope_section);
  values[6] = fl_bool(mrope_interleaved);
  values[7] = fl_bool(interleaved);
  values[8] = fl_required_tensor(query_out);
  values[9] = fl_tensor(key_out);
  fl_call call;
  fl_ops_call(&call, values, 10, stream);
  return fl_invoke(ops->mrope, &call);
}

/*
 * Quantises to float8 e4m3fn, or to e4m3fnuz where q is such a tensor (MI300), with one scale for the tensor [-1, -1],
 * each token [1, -1], channel [-1, 1], group [1, G] or block [R, C]; x is q * scale_out. Without a scale it is computed
 * (tensor, token, group).
 *     quant_fp8(Tensor x, Tensor? scale=None, Tensor? scale_ub=None, int[] group_shape=[-1, -1], bool use_ue8m0=False,
 *         int num_token_padding=0) -> (Tensor q, Tensor scale_out)
 * where  x: T[..., N]
 *        scale: float32
 *        scale_ub: float32[1] or float32[]
 *        q: float8_e4m3fn[max(numel(...), num_token_padding), N] when num_token_padding or float8_e4m3fn[..., N]
 *        scale_out: like scale or float32[1] when group_shape[0] < 0 or float32[..., 1] when group_shape[1] < 0 or
 *        float32[..., (N + group_shape[1] - 1) // group_shape[1]]
 *        T = float32|float16|bfloat16
 * scale, scale_ub: NULL for none.
 * Formula: M = 448, of e4m3fnuz 224; s = max(absmax(x) / M, 1 / (M * 512)), absmax limited by scale_ub, or with
 * use_ue8m0 the power of two from absmax / M on; q = clamp(x * (1 / s), -M, M), of groups clamp(x / s); rows from x's
 * tokens to num_token_padding are 0 (vLLM: QuantFP8, kernels *_scaled_fp8_quant)
 */
static inline fl_status fl_quant_fp8(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *scale, DLTensor *scale_ub,
                                     const int64_t *group_shape, uint32_t n_group_shape, bool use_ue8m0,
                                     int64_t num_token_padding, DLTensor *q, DLTensor *scale_out) {
  fl_value values[8];
  values[0] = fl_required_tensor(x);
  values[1] = fl_tensor(scale);
  values[2] = fl_tensor(scale_ub);
  values[3] = fl_ints(group_shape, n_group_shape);
  values[4] = fl_bool(use_ue8m0);
  values[5] = fl_int(num_token_padding);
  values[6] = fl_required_tensor(q);
  values[7] = fl_required_tensor(scale_out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->quant_fp8, &call);
}

/*
 * Quantises to int8, with a given scale or one for each token; not symmetric: with a zero point, too (azp, given or
 * computed). x is (q - azp_out) * scale_out.
 *     scaled_int8_quant(Tensor x, Tensor? scale=None, Tensor? azp=None, bool symmetric=True) -> (Tensor q,
 *         Tensor scale_out, Tensor? azp_out)
 * where  x: T[..., N]
 *        scale: float32[1] or float32[]
 *        azp: int32[1] or int32[]
 *        q: int8[..., N]
 *        scale_out: like scale or float32[numel(...), 1]
 *        azp_out: like azp or int32[numel(...), 1] when symmetric == 0
 *        T = float32|float16|bfloat16
 * scale, azp: NULL for none.
 * Formula: given: q = x / scale to the nearest, plus azp, saturated; computed: a = max|x|, scale = a / 127, q = x *
 * (127 / a); not symmetric: scale = (max - min) / 255, azp = -128 - min / scale to the nearest, q as given; where a
 * scale is 0 so are azp and q, and NaN is as 0 (vLLM: kernels static_scaled_int8_quant, dynamic_scaled_int8_quant)
 */
static inline fl_status fl_scaled_int8_quant(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *scale,
                                             DLTensor *azp, bool symmetric, DLTensor *q, DLTensor *scale_out,
                                             DLTensor *azp_out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_tensor(scale);
  values[2] = fl_tensor(azp);
  values[3] = fl_bool(symmetric);
  values[4] = fl_required_tensor(q);
  values[5] = fl_required_tensor(scale_out);
  values[6] = fl_tensor(azp_out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->scaled_int8_quant, &call);
}

/*
 * Root-mean-square normalisation, quantised to float8 e4m3fn with a given scale.
 *     rms_norm_static_fp8_quant(Tensor x, Tensor weight, Tensor scale, float epsilon=1e-6) -> Tensor q
 * where  x: T[..., H]
 *        weight: T[H]
 *        scale: float32[1] or float32[]
 *        q: float8_e4m3fn[..., H]
 *        T = float32|float16|bfloat16
 * Formula: norm(v) = v / sqrt(mean(v^2) + epsilon), rounded to T, times weight, rounded to T; s = x; q =
 * e4m3(clamp(norm(s) * (1 / scale), -448, 448)), the reciprocal rounded to float32 (vLLM: kernel
 * rms_norm_static_fp8_quant; quant_fp8 of rms_norm)
 */
static inline fl_status fl_rms_norm_static_fp8_quant(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight,
                                                     DLTensor *scale, double epsilon, DLTensor *q) {
  fl_value values[5];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_required_tensor(scale);
  values[3] = fl_float(epsilon);
  values[4] = fl_required_tensor(q);
  fl_call call;
  fl_ops_call(&call, values, 5, stream);
  return fl_invoke(ops->rms_norm_static_fp8_quant, &call);
}

/*
 * Adds the residual to x, and quantises the root-mean-square normalisation of the sum to float8 e4m3fn with a given
 * scale.
 *     fused_add_rms_norm_static_fp8_quant(Tensor x, Tensor(a!) residual, Tensor weight, Tensor scale,
 *         float epsilon=1e-6) -> (Tensor q, Tensor(a) residual_out)
 * where  x: T[..., H]
 *        residual: T[..., H]
 *        weight: T[H]
 *        scale: float32[1] or float32[]
 *        q: float8_e4m3fn[..., H]
 *        T = float32|float16|bfloat16
 *        residual_out: as residual
 * residual_out may be the very tensor residual (in place); else residual stays as it is.
 * Formula: norm(v) = v / sqrt(mean(v^2) + epsilon), rounded to T, times weight, rounded to T; s = x + residual in
 * float32, residual_out = s rounded to T; q = e4m3(clamp(norm(s) * (1 / scale), -448, 448)), the reciprocal rounded to
 * float32 (vLLM: kernel fused_add_rms_norm_static_fp8_quant; quant_fp8 of fused_add_rms_norm)
 */
static inline fl_status fl_fused_add_rms_norm_static_fp8_quant(const fl_ops *ops, void *stream, DLTensor *x,
                                                               DLTensor *residual, DLTensor *weight, DLTensor *scale,
                                                               double epsilon, DLTensor *q, DLTensor *residual_out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(residual);
  values[2] = fl_required_tensor(weight);
  values[3] = fl_required_tensor(scale);
  values[4] = fl_float(epsilon);
  values[5] = fl_required_tensor(q);
  values[6] = fl_required_tensor(residual_out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->fused_add_rms_norm_static_fp8_quant, &call);
}

/*
 * Root-mean-square normalisation of x, or of x + residual when there is a residual (which then holds the sum),
 * quantised to float8 e4m3fn or int8 with a scale for each token.
 *     rms_norm_dynamic_per_token_quant(Tensor x, Tensor weight, float epsilon=1e-6, str quant_dtype="float8_e4m3fn",
 *         Tensor? scale_ub=None, Tensor(a!)? residual=None) -> (Tensor q, Tensor scale_out)
 * where  x: T[..., H]
 *        weight: T[H]
 *        scale_ub: float32[1] or float32[]
 *        residual: T[..., H]
 *        q: Q[..., H]
 *        scale_out: float32[numel(...), 1]
 *        T = float32|float16|bfloat16
 *        Q = float8_e4m3fn|int8 by quant_dtype
 * scale_ub, residual: NULL for none.
 * Formula: norm(v) = v / sqrt(mean(v^2) + epsilon), rounded to T, times weight, rounded to T; s = x + residual in
 * float32, residual = s rounded to T; y = norm(s), a = max|y|; float8: a = min(a, scale_ub), scale = max(a / 448, 1 /
 * (448 * 512)), q = e4m3(clamp(y / scale)); int8: scale = max(a / 127, 2^-23), q = y * (1 / scale) to the nearest, NaN
 * to 0 (vLLM: kernel rms_norm_dynamic_per_token_quant)
 */
static inline fl_status fl_rms_norm_dynamic_per_token_quant(const fl_ops *ops, void *stream, DLTensor *x,
                                                            DLTensor *weight, double epsilon, const char *quant_dtype,
                                                            DLTensor *scale_ub, DLTensor *residual, DLTensor *q,
                                                            DLTensor *scale_out) {
  fl_value values[8];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_float(epsilon);
  values[3] = fl_string(quant_dtype);
  values[4] = fl_tensor(scale_ub);
  values[5] = fl_tensor(residual);
  values[6] = fl_required_tensor(q);
  values[7] = fl_required_tensor(scale_out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->rms_norm_dynamic_per_token_quant, &call);
}

/*
 * SiLU of the first half of x's last dimension, times the second half, quantised to float8 e4m3fn with a given scale.
 *     silu_and_mul_quant(Tensor x, Tensor scale) -> Tensor q
 * where  x: T[..., 2*d]
 *        scale: float32[1] or float32[]
 *        q: float8_e4m3fn[..., d]
 *        T = float32|float16|bfloat16
 * Formula: y = silu(x[..., :d]) * x[..., d:], rounded to T after silu and after the product; q = e4m3(clamp(y * (1 /
 * scale), -448, 448)), the reciprocal rounded to float32 (vLLM: kernel silu_and_mul_quant; quant_fp8 of silu_and_mul)
 */
static inline fl_status fl_silu_and_mul_quant(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *scale,
                                              DLTensor *q) {
  fl_value values[3];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(scale);
  values[2] = fl_required_tensor(q);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->silu_and_mul_quant, &call);
}

/*
 * SiLU of the first half of x's last dimension, times the second half, quantised to float8 e4m3fn or int8 with a scale
 * for each group_size elements of a token.
 *     silu_and_mul_per_block_quant(Tensor x, int group_size=128, str quant_dtype="float8_e4m3fn",
 *         Tensor? scale_ub=None) -> (Tensor q, Tensor scale_out)
 * where  x: T[n, 2*d]
 *        scale_ub: float32[1] or float32[]
 *        q: Q[n, d]
 *        scale_out: float32[n, d/group_size]
 *        T = float32|float16|bfloat16
 *        Q = float8_e4m3fn|int8 by quant_dtype
 * scale_ub: NULL for none.
 * Formula: y = silu(x[:, :d]) * x[:, d:] in float32, not rounded; a = max|y| of a group; float8: scale = max(min(a /
 * 448, scale_ub), 1 / (448 * 512)), q = e4m3(clamp(y / scale)); int8: scale = max(a / 127, 2^-23), q = y / scale to the
 * nearest, NaN to 0 (vLLM: kernel silu_and_mul_per_block_quant)
 */
static inline fl_status fl_silu_and_mul_per_block_quant(const fl_ops *ops, void *stream, DLTensor *x,
                                                        int64_t group_size, const char *quant_dtype, DLTensor *scale_ub,
                                                        DLTensor *q, DLTensor *scale_out) {
  fl_value values[6];
  values[0] = fl_required_tensor(x);
  values[1] = fl_int(group_size);
  values[2] = fl_string(quant_dtype);
  values[3] = fl_tensor(scale_ub);
  values[4] = fl_required_tensor(q);
  values[5] = fl_required_tensor(scale_out);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->silu_and_mul_per_block_quant, &call);
}

/*
 * The attention backend to use: the path of a class, or for a C engine the name of an attention component.
 *     attention_backend(bool use_mla=False, bool use_sparse=False) -> str
 * Formula: (vLLM: Platform.get_attn_backend_cls)
 */
static inline fl_status fl_attention_backend(const fl_ops *ops, void *stream, bool use_mla, bool use_sparse,
                                             const char **out) {
  fl_value values[3];
  values[0] = fl_bool(use_mla);
  values[1] = fl_bool(use_sparse);
  values[2] = fl_none();
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  fl_status status = fl_invoke(ops->attention_backend, &call);
  if (status == FL_OK)
    *out = values[2].v.s;
  return status;
}

/*
 * Attention without mask, of an encoder of images or sound; cu_seqlens keeps it within segments of tokens.
 *     mm_encoder_attn(Tensor query, Tensor key, Tensor value, float? scale=None, Tensor? cu_seqlens=None,
 *         int? max_seqlen=None) -> Tensor out
 * where  query: T[b, s, h, d] or T[b, s, h*d]
 *        key: T[b, t, k, d] or T[b, t, k*d]
 *        value: T[b, t, k, d] or T[b, t, k*d]
 *        cu_seqlens: int32|int64[segments + 1]
 *        out: like query
 *        T = float32|float16|bfloat16
 * scale, cu_seqlens, max_seqlen: NULL for none.
 * Formula: out = softmax(query key^T * scale) value for each head, scale = 1 / sqrt(d) if none; key and value heads are
 * shared by h / k query heads; segment i is tokens cu_seqlens[i] to cu_seqlens[i + 1] - 1 of each batch row; softmax in
 * float32, rounded to T once; max_seqlen is a hint (vLLM: MMEncoderAttention)
 */
static inline fl_status fl_mm_encoder_attn(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *key,
                                           DLTensor *value, const double *scale, DLTensor *cu_seqlens,
                                           const int64_t *max_seqlen, DLTensor *out) {
  fl_value values[7];
  values[0] = fl_required_tensor(query);
  values[1] = fl_required_tensor(key);
  values[2] = fl_required_tensor(value);
  values[3] = scale ? fl_float(*scale) : fl_none();
  values[4] = fl_tensor(cu_seqlens);
  values[5] = max_seqlen ? fl_int(*max_seqlen) : fl_none();
  values[6] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->mm_encoder_attn, &call);
}

/*
 * Multi-head latent attention of one sequence, keys and values made from the latent: query i is token query_offset + i.
 *     mla_prefill(Tensor query, Tensor kv_c, Tensor k_pe, Tensor kv_b_proj, int v_head_dim, float scale,
 *         int query_offset=0) -> Tensor out
 * where  query: T[n, h, p+r]
 *        kv_c: T[t, l]
 *        k_pe: T[t, r] or T[t, 1, r]
 *        kv_b_proj: T[h*(p+v_head_dim), l]
 *        out: T[n, h*v_head_dim]
 *        T = float32|float16|bfloat16
 * Formula: [k_nope | v] = kv_c kv_b_proj^T for each head, rounded to T; k = [k_nope | k_pe]; out = softmax(query k^T *
 * scale) v over tokens up to query_offset + i, softmax in float32, rounded to T once (vLLM: MLA prefill, forward_mha)
 */
static inline fl_status fl_mla_prefill(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *kv_c, DLTensor *k_pe,
                                       DLTensor *kv_b_proj, int64_t v_head_dim, double scale, int64_t query_offset,
                                       DLTensor *out) {
  fl_value values[8];
  values[0] = fl_required_tensor(query);
  values[1] = fl_required_tensor(kv_c);
  values[2] = fl_required_tensor(k_pe);
  values[3] = fl_required_tensor(kv_b_proj);
  values[4] = fl_int(v_head_dim);
  values[5] = fl_float(scale);
  values[6] = fl_int(query_offset);
  values[7] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->mla_prefill, &call);
}

/*
 * Latent attention of one query a sequence over a paged cache whose rows are kv_c and k_pe, in the latent space.
 *     mla_decode(Tensor query, Tensor kv_cache, Tensor block_table, Tensor seq_lens, float scale, int kv_lora_rank)
 *         -> (Tensor out, Tensor lse)
 * where  query: T[b, h, c]
 *        kv_cache: T[blocks, size, c]
 *        block_table: int32|int64[b, n]
 *        seq_lens: int32|int64[b]
 *        out: T[b, h, kv_lora_rank]
 *        lse: float32[b, h]
 *        T = float32|float16|bfloat16
 * Formula: s = query row^T * scale over the sequence's seq_lens rows; out = softmax(s) row[:kv_lora_rank], in float32,
 * rounded to T once; lse = log sum exp s; of an empty sequence out = 0, lse = -inf (vLLM: MLA decode, forward_mqa,
 * kernel mla_decode_kvcache)
 */
static inline fl_status fl_mla_decode(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *kv_cache,
                                      DLTensor *block_table, DLTensor *seq_lens, double scale, int64_t kv_lora_rank,
                                      DLTensor *out, DLTensor *lse) {
  fl_value values[8];
  values[0] = fl_required_tensor(query);
  values[1] = fl_required_tensor(kv_cache);
  values[2] = fl_required_tensor(block_table);
  values[3] = fl_required_tensor(seq_lens);
  values[4] = fl_float(scale);
  values[5] = fl_int(kv_lora_rank);
  values[6] = fl_required_tensor(out);
  values[7] = fl_required_tensor(lse);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->mla_decode, &call);
}

/*
 * Joins attention over two parts of a context by their log-sum-exps.
 *     merge_attn_states(Tensor prefix_output, Tensor prefix_lse, Tensor suffix_output, Tensor suffix_lse)
 *         -> (Tensor out, Tensor lse)
 * where  prefix_output: T[n, h, d]
 *        prefix_lse: float32[h, n]
 *        suffix_output: T[n, h, d]
 *        suffix_lse: float32[h, n]
 *        out: T[n, h, d]
 *        lse: float32[h, n]
 *        T = float32|float16|bfloat16
 * Formula: m = max(prefix_lse, suffix_lse), w = exp(lse - m) of each part; out = (w_p prefix_output + w_s
 * suffix_output) / (w_p + w_s), lse = log(w_p + w_s) + m; +inf counts as -inf; where both are -inf, out = prefix_output
 * and lse = -inf (vLLM: kernel merge_attn_states)
 */
static inline fl_status fl_merge_attn_states(const fl_ops *ops, void *stream, DLTensor *prefix_output,
                                             DLTensor *prefix_lse, DLTensor *suffix_output, DLTensor *suffix_lse,
                                             DLTensor *out, DLTensor *lse) {
  fl_value values[6];
  values[0] = fl_required_tensor(prefix_output);
  values[1] = fl_required_tensor(prefix_lse);
  values[2] = fl_required_tensor(suffix_output);
  values[3] = fl_required_tensor(suffix_lse);
  values[4] = fl_required_tensor(out);
  values[5] = fl_required_tensor(lse);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->merge_attn_states, &call);
}

/*
 * The latent attention layer of DeepSeek's models: projections, norms, rotation, attention, output. Without kv_cache
 * the tokens are one sequence; with one they are the last t / n tokens of each of n sequences of seq_lens tokens, and
 * their rows are written to it first.
 *     multi_head_latent_attention(Tensor position_ids, Tensor hidden_states, Tensor? fused_qkv_a_proj,
 *         Tensor? q_a_layernorm, Tensor? q_b_proj, Tensor? kv_a_proj_with_mqa, Tensor? q_proj, Tensor kv_a_layernorm,
 *         Tensor kv_b_proj, Tensor? g_proj, Tensor o_proj, Tensor cos, Tensor sin, Tensor(a!)? kv_cache,
 *         Tensor? block_table, Tensor? seq_lens, int num_heads, int qk_nope_head_dim, int qk_rope_head_dim,
 *         int v_head_dim, int kv_lora_rank, float scale, float epsilon=1e-6, bool interleaved=True,
 *         Tensor? llama_4_scaling=None) -> Tensor out
 * where  position_ids: int32|int64[t]
 *        hidden_states: T[t, c]
 *        fused_qkv_a_proj: T[q + kv_lora_rank + qk_rope_head_dim, c]
 *        q_a_layernorm: T[q]
 *        q_b_proj: T[num_heads * (qk_nope_head_dim + qk_rope_head_dim), q]
 *        kv_a_proj_with_mqa: T[kv_lora_rank + qk_rope_head_dim, c]
 *        q_proj: T[num_heads * (qk_nope_head_dim + qk_rope_head_dim), c]
 *        kv_a_layernorm: T[kv_lora_rank]
 *        kv_b_proj: T[num_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]
 *        g_proj: T[num_heads * v_head_dim, c]
 *        o_proj: T[c, num_heads * v_head_dim]
 *        cos: T|float32[p, qk_rope_head_dim / 2]
 *        sin: T|float32[p, qk_rope_head_dim / 2]
 *        kv_cache: T[blocks, size, kv_lora_rank + qk_rope_head_dim]
 *        block_table: int32|int64[n, m]
 *        seq_lens: int32|int64[n]
 *        llama_4_scaling: T|float32[t, 1, 1] or T|float32[t]
 *        out: T[t, c]
 *        T = float32|float16|bfloat16
 * fused_qkv_a_proj, q_a_layernorm, q_b_proj, kv_a_proj_with_mqa, q_proj, g_proj, kv_cache, block_table, seq_lens,
 * llama_4_scaling: NULL for none.
 * Formula: [q_c | kv] = fused_qkv_a_proj(h), q = q_b_proj(norm(q_c)); or kv = kv_a_proj_with_mqa(h), q = q_proj(h);
 * [kv_c | k_pe] = kv, kv_c = norm(kv_c); rotary embedding of q[..., qk_nope_head_dim:] and k_pe; q *= llama_4_scaling;
 * a = latent attention (mla_prefill) of q over rows [kv_c | k_pe]; a *= sigmoid(g_proj(h)); out = o_proj(a); rounded to
 * T after each step (vLLM: MultiHeadLatentAttentionWrapper)
 */
static inline fl_status fl_multi_head_latent_attention(const fl_ops *ops, void *stream, DLTensor *position_ids,
                                                       DLTensor *hidden_states, DLTensor *fused_qkv_a_proj,
                                                       DLTensor *q_a_layernorm, DLTensor *q_b_proj,
                                                       DLTensor *kv_a_proj_with_mqa, DLTensor *q_proj,
                                                       DLTensor *kv_a_layernorm, DLTensor *kv_b_proj, DLTensor *g_proj,
                                                       DLTensor *o_proj, DLTensor *cos, DLTensor *sin,
                                                       DLTensor *kv_cache, DLTensor *block_table, DLTensor *seq_lens,
                                                       int64_t num_heads, int64_t qk_nope_head_dim,
                                                       int64_t qk_rope_head_dim, int64_t v_head_dim,
                                                       int64_t kv_lora_rank, double scale, double epsilon,
                                                       bool interleaved, DLTensor *llama_4_scaling, DLTensor *out) {
  fl_value values[26];
  values[0] = fl_required_tensor(position_ids);
  values[1] = fl_required_tensor(hidden_states);
  values[2] = fl_tensor(fused_qkv_a_proj);
  values[3] = fl_tensor(q_a_layernorm);
  values[4] = fl_tensor(q_b_proj);
  values[5] = fl_tensor(kv_a_proj_with_mqa);
  values[6] = fl_tensor(q_proj);
  values[7] = fl_required_tensor(kv_a_layernorm);
  values[8] = fl_required_tensor(kv_b_proj);
  values[9] = fl_tensor(g_proj);
  values[10] = fl_required_tensor(o_proj);
  values[11] = fl_required_tensor(cos);
  values[12] = fl_required_tensor(sin);
  values[13] = fl_tensor(kv_cache);
  values[14] = fl_tensor(block_table);
  values[15] = fl_tensor(seq_lens);
  values[16] = fl_int(num_heads);
  values[17] = fl_int(qk_nope_head_dim);
  values[18] = fl_int(qk_rope_head_dim);
  values[19] = fl_int(v_head_dim);
  values[20] = fl_int(kv_lora_rank);
  values[21] = fl_float(scale);
  values[22] = fl_float(epsilon);
  values[23] = fl_bool(interleaved);
  values[24] = fl_tensor(llama_4_scaling);
  values[25] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 26, stream);
  return fl_invoke(ops->multi_head_latent_attention, &call);
}

/*
 * Writes rows [kv_c | k_pe] to a paged cache: token i to row slot_mapping[i] % size of block slot_mapping[i] / size; a
 * negative slot is skipped, tokens behind the last slot are not read, of equal slots the last token counts.
 *     concat_and_cache_mla(Tensor kv_c, Tensor k_pe, Tensor(a!) kv_cache, Tensor slot_mapping) -> ()
 * where  kv_c: T[n, l]
 *        k_pe: T[n, r] or T[n, 1, r]
 *        kv_cache: T[blocks, size, l + r]
 *        slot_mapping: int32|int64[t]
 *        T = float32|float16|bfloat16
 * Formula: kv_cache[slot / size, slot % size] = [kv_c[i] | k_pe[i]] (vLLM: kernel concat_and_cache_mla)
 */
static inline fl_status fl_concat_and_cache_mla(const fl_ops *ops, void *stream, DLTensor *kv_c, DLTensor *k_pe,
                                                DLTensor *kv_cache, DLTensor *slot_mapping) {
  fl_value values[4];
  values[0] = fl_required_tensor(kv_c);
  values[1] = fl_required_tensor(k_pe);
  values[2] = fl_required_tensor(kv_cache);
  values[3] = fl_required_tensor(slot_mapping);
  fl_call call;
  fl_ops_call(&call, values, 4, stream);
  return fl_invoke(ops->concat_and_cache_mla, &call);
}

/*
 * Causal latent attention of several sequences over a paged cache of rows [kv_c | k_pe]: tokens query_start_loc[i] to
 * [i + 1] are the last of the seq_lens[i] of sequence i. Tokens behind the last sequence are padding, their results 0.
 *     mla_paged_attention(Tensor query, Tensor kv_cache, Tensor kv_b_proj, Tensor block_table, Tensor query_start_loc,
 *         Tensor seq_lens, int kv_lora_rank, int v_head_dim, float scale) -> Tensor out
 * where  query: T[n, h, q]
 *        kv_cache: T[blocks, size, c]
 *        kv_b_proj: T[h*(q - c + kv_lora_rank + v_head_dim), kv_lora_rank]
 *        block_table: int32|int64[b, m]
 *        query_start_loc: int32|int64[b + 1]
 *        seq_lens: int32|int64[b]
 *        out: T[n, h*v_head_dim]
 *        T = float32|float16|bfloat16
 * Formula: [k_nope | v] = kv_c kv_b_proj^T for each head, rounded to T; k = [k_nope | k_pe]; out = softmax(query k^T *
 * scale) v over the rows up to the token's own, softmax in float32, rounded to T. Of a single token the same in the
 * latent space, where the query and the result are rounded: q_c = q_nope W_UK, o = softmax([q_c | q_pe] row^T * scale)
 * kv_c, out = o W_UV (vLLM: MLA, forward_mha and forward_mqa)
 */
static inline fl_status fl_mla_paged_attention(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *kv_cache,
                                               DLTensor *kv_b_proj, DLTensor *block_table, DLTensor *query_start_loc,
                                               DLTensor *seq_lens, int64_t kv_lora_rank, int64_t v_head_dim,
                                               double scale, DLTensor *out) {
  fl_value values[10];
  values[0] = fl_required_tensor(query);
  values[1] = fl_required_tensor(kv_cache);
  values[2] = fl_required_tensor(kv_b_proj);
  values[3] = fl_required_tensor(block_table);
  values[4] = fl_required_tensor(query_start_loc);
  values[5] = fl_required_tensor(seq_lens);
  values[6] = fl_int(kv_lora_rank);
  values[7] = fl_int(v_head_dim);
  values[8] = fl_float(scale);
  values[9] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 10, stream);
  return fl_invoke(ops->mla_paged_attention, &call);
}

/*
 * Attention of prefill, chunked prefill and decode over a paged cache. Queries of sequence i are tokens
 * query_start_loc[i] to [i + 1] - 1, the last of its seq_lens[i] tokens; token t is row t % size of block
 * block_table[i, t / size]. Of tokens behind the last sequence out is 0 and lse -inf. A float8 cache has scales, of the
 * tensor or of each head. GPU kernels do not refuse starts, lengths and blocks that are out of range: they stay within
 * the tensors, a length ends with block_table, a block that is not in the cache counts as not seen; that starts ascend
 * from 0 is the caller's duty.
 *     paged_attention(Tensor query, Tensor key_cache, Tensor value_cache, Tensor block_table, Tensor query_start_loc,
 *         Tensor seq_lens, float scale, bool causal=True, int window_left=-1, int window_right=-1, float soft_cap=0.0,
 *         Tensor? alibi_slopes=None, Tensor? sinks=None, Tensor? k_scale=None, Tensor? v_scale=None) -> (Tensor out,
 *         Tensor lse)
 * where  query: T[n, h, d]
 *        key_cache: T|float8_e4m3fn[blocks, size, k, d]
 *        value_cache: T|float8_e4m3fn[blocks, size, k, d]
 *        block_table: int32|int64[b, m]
 *        query_start_loc: int32|int64[b + 1]
 *        seq_lens: int32|int64[b]
 *        alibi_slopes: float32[h]
 *        sinks: T|float32[h]
 *        k_scale: float32[1] or float32[] or float32[k]
 *        v_scale: float32[1] or float32[] or float32[k]
 *        out: T[n, h, d]
 *        lse: float32[h, n]
 *        T = float32|float16|bfloat16
 * alibi_slopes, sinks, k_scale, v_scale: NULL for none.
 * Formula: s_t = (q . k_t) * scale; s_t = soft_cap * tanh(s_t / soft_cap) if soft_cap > 0; s_t += alibi_slopes[head] *
 * (t - p) for the query at position p; visible: t <= p if causal, p - window_left <= t <= p + window_right of those
 * that are not -1; Z = sum of exp(s_t) over visible t, plus exp(sinks[head]); out = sum of exp(s_t) / Z * v_t, lse =
 * log Z, in float32, rounded to T once; k and v of float8 are multiplied by k_scale and v_scale (vLLM:
 * unified_attention, flash_attn_varlen_func, cpu_attention_with_kv_cache)
 */
static inline fl_status fl_paged_attention(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *key_cache,
                                           DLTensor *value_cache, DLTensor *block_table, DLTensor *query_start_loc,
                                           DLTensor *seq_lens, double scale, bool causal, int64_t window_left,
                                           int64_t window_right, double soft_cap, DLTensor *alibi_slopes,
                                           DLTensor *sinks, DLTensor *k_scale, DLTensor *v_scale, DLTensor *out,
                                           DLTensor *lse) {
  fl_value values[17];
  values[0] = fl_required_tensor(query);
  values[1] = fl_required_tensor(key_cache);
  values[2] = fl_required_tensor(value_cache);
  values[3] = fl_required_tensor(block_table);
  values[4] = fl_required_tensor(query_start_loc);
  values[5] = fl_required_tensor(seq_lens);
  values[6] = fl_float(scale);
  values[7] = fl_bool(causal);
  values[8] = fl_int(window_left);
  values[9] = fl_int(window_right);
  values[10] = fl_float(soft_cap);
  values[11] = fl_tensor(alibi_slopes);
  values[12] = fl_tensor(sinks);
  values[13] = fl_tensor(k_scale);
  values[14] = fl_tensor(v_scale);
  values[15] = fl_required_tensor(out);
  values[16] = fl_required_tensor(lse);
  fl_call call;
  fl_ops_call(&call, values, 17, stream);
  return fl_invoke(ops->paged_attention, &call);
}

/*
 * Writes keys and values of tokens into a paged cache: token i goes to row slot % size of block slot / size, slot =
 * slot_mapping[i], and nowhere if that is negative. Tokens behind the last slot are padding. Where a slot occurs twice
 * the last token stays.
 *     reshape_and_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_mapping,
 *         Tensor? k_scale=None, Tensor? v_scale=None) -> ()
 * where  key: T[n, k, d]
 *        value: T[n, k, d]
 *        key_cache: T|float8_e4m3fn[blocks, size, k, d]
 *        value_cache: T|float8_e4m3fn[blocks, size, k, d]
 *        slot_mapping: int32|int64[t]
 *        k_scale: float32[1] or float32[] or float32[k]
 *        v_scale: float32[1] or float32[] or float32[k]
 *        T = float32|float16|bfloat16
 * k_scale, v_scale: NULL for none.
 * Formula: cache row = key or value, bit for bit; of a float8 cache e4m3(clamp(x / scale, -448, 448)), nearest even,
 * NaN stays NaN (vLLM: reshape_and_cache_flash)
 */
static inline fl_status fl_reshape_and_cache(const fl_ops *ops, void *stream, DLTensor *key, DLTensor *value,
                                             DLTensor *key_cache, DLTensor *value_cache, DLTensor *slot_mapping,
                                             DLTensor *k_scale, DLTensor *v_scale) {
  fl_value values[7];
  values[0] = fl_required_tensor(key);
  values[1] = fl_required_tensor(value);
  values[2] = fl_required_tensor(key_cache);
  values[3] = fl_required_tensor(value_cache);
  values[4] = fl_required_tensor(slot_mapping);
  values[5] = fl_tensor(k_scale);
  values[6] = fl_tensor(v_scale);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->reshape_and_cache, &call);
}

/*
 * A linear layer whose whole weight every rank has.
 *     replicated_linear(Tensor x, Tensor weight, Tensor? bias=None, bool skip_bias_add=False) -> Tensor out
 * where  x: T[..., k]
 *        weight: T[n, k]
 *        bias: T[n]
 *        out: T[..., n]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: out = x W^T + bias, weight stored as [n, k]; products and bias are added in float32 or better and rounded to
 * T once; skip_bias_add leaves the bias to the caller (vLLM: ReplicatedLinear)
 */
static inline fl_status fl_replicated_linear(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight,
                                             DLTensor *bias, bool skip_bias_add, DLTensor *out) {
  fl_value values[5];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_bool(skip_bias_add);
  values[4] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 5, stream);
  return fl_invoke(ops->replicated_linear, &call);
}

/*
 * A linear layer of which this rank has some outputs; gather_output joins those of all ranks.
 *     column_parallel_linear(Tensor x, Tensor weight, Tensor? bias=None, bool gather_output=False,
 *         bool skip_bias_add=False) -> Tensor out
 * where  x: T[..., k]
 *        weight: T[n, k]
 *        bias: T[n]
 *        out: T[..., n*ranks] when gather_output or T[..., n]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: out = x W^T + bias, weight stored as [n, k]; products and bias are added in float32 or better and rounded to
 * T once; skip_bias_add leaves the bias to the caller (vLLM: ColumnParallelLinear)
 * Over ranks (fl_scope_group): tp: out = all_gather(out, -1) if gather_output
 */
static inline fl_status fl_column_parallel_linear(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight,
                                                  DLTensor *bias, bool gather_output, bool skip_bias_add,
                                                  DLTensor *out) {
  fl_value values[6];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_bool(gather_output);
  values[4] = fl_bool(skip_bias_add);
  values[5] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->column_parallel_linear, &call);
}

/*
 * A linear layer of which this rank has some inputs; reduce_results adds up the results of all ranks.
 *     row_parallel_linear(Tensor x, Tensor weight, Tensor? bias=None, bool input_is_parallel=True,
 *         bool reduce_results=True, bool skip_bias_add=False) -> Tensor out
 * where  x: T[..., k*max(ranks*(1 - input_is_parallel), 1)]
 *        weight: T[n, k]
 *        bias: T[n]
 *        out: T[..., n]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: out = x W^T + bias, weight stored as [n, k]; products and bias are added in float32 or better and rounded to
 * T once; skip_bias_add leaves the bias to the caller (vLLM: RowParallelLinear)
 * Over ranks (fl_scope_group): tp: x = part(x) if not input_is_parallel; bias = first(bias) if reduce_results; out =
 * all_reduce(out) if reduce_results
 */
static inline fl_status fl_row_parallel_linear(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight,
                                               DLTensor *bias, bool input_is_parallel, bool reduce_results,
                                               bool skip_bias_add, DLTensor *out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_bool(input_is_parallel);
  values[4] = fl_bool(reduce_results);
  values[5] = fl_bool(skip_bias_add);
  values[6] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->row_parallel_linear, &call);
}

/*
 * A linear layer of 8 bits: inputs and weight are int8 or float8 with scales for the tensor, each token [m, 1] and
 * channel [n, 1], or both for blocks of block_size; azp is the zero point of int8 inputs.
 *     scaled_mm(Tensor x, Tensor weight, Tensor x_scale, Tensor weight_scale, Tensor? bias=None, Tensor? azp=None,
 *         str out_dtype="bfloat16", int[] block_size=[128, 128]) -> Tensor out
 * where  x: I[..., k]
 *        weight: I[n, k]
 *        x_scale: float32[1] or float32[] or float32[numel(...), 1] or float32[numel(...), (k + block_size[1] - 1) //
 *        block_size[1]]
 *        weight_scale: float32[1] or float32[] or float32[n] or float32[n, 1] or float32[(n + block_size[0] - 1) //
 *        block_size[0], (k + block_size[1] - 1) // block_size[1]]
 *        bias: O[n]
 *        azp: int32[1] or int32[numel(...), 1]
 *        out: O[..., n]
 *        I = int8|float8_e4m3fn
 *        O = float32|float16|bfloat16 by out_dtype
 * bias, azp: NULL for none.
 * Formula: out = (sum (x - azp) W^T) * x_scale * weight_scale + bias, sums of int8 exact, else in float32, rounded to
 * out_dtype once; of blocks the sum of each times its scales (vLLM: cutlass_scaled_mm, cutlass_scaled_mm_azp,
 * w8a8_triton_block_scaled_mm)
 */
static inline fl_status fl_scaled_mm(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight, DLTensor *x_scale,
                                     DLTensor *weight_scale, DLTensor *bias, DLTensor *azp, const char *out_dtype,
                                     const int64_t *block_size, uint32_t n_block_size, DLTensor *out) {
  fl_value values[9];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_required_tensor(x_scale);
  values[3] = fl_required_tensor(weight_scale);
  values[4] = fl_tensor(bias);
  values[5] = fl_tensor(azp);
  values[6] = fl_string(out_dtype);
  values[7] = fl_ints(block_size, n_block_size);
  values[8] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 9, stream);
  return fl_invoke(ops->scaled_mm, &call);
}

/*
 * A linear layer whose weight has 8 bits, int8 or float8, with a scale for the tensor, for each channel [n] or [n, 1],
 * or for each block of block_size; inputs are not quantised.
 *     weight_only_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias=None, int[] block_size=[128, 128])
 *         -> Tensor out
 * where  x: T[..., k]
 *        weight: int8|float8_e4m3fn[n, k]
 *        weight_scale: float32[1] or float32[] or float32[n] or float32[n, 1] or float32[(n + block_size[0] - 1) //
 *        block_size[0], (k + block_size[1] - 1) // block_size[1]]
 *        bias: T[n]
 *        out: T[..., n]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: w = weight * weight_scale in float32; out = x w^T + bias, added in float32 and rounded once (vLLM: 8-bit
 * weights with 16-bit activations, as its Marlin kernel of float8)
 */
static inline fl_status fl_weight_only_linear(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight,
                                              DLTensor *weight_scale, DLTensor *bias, const int64_t *block_size,
                                              uint32_t n_block_size, DLTensor *out) {
  fl_value values[6];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_required_tensor(weight_scale);
  values[3] = fl_tensor(bias);
  values[4] = fl_ints(block_size, n_block_size);
  values[5] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->weight_only_linear, &call);
}

/*
 * A linear layer whose weight has 4 bits in AWQ's order: words of 8 columns, column i in nibble 0 4 1 5 2 6 3 7; each
 * group of k / g rows has scales and zero points.
 *     awq_linear(Tensor x, Tensor qweight, Tensor scales, Tensor qzeros, Tensor? bias=None) -> Tensor out
 * where  x: T[..., k]
 *        qweight: int32[k, n/8]
 *        scales: T[g, n]
 *        qzeros: int32[g, n/8]
 *        bias: T[n]
 *        out: T[..., n]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: w = (q - z) * scales rounded to T; out = x w + bias, added in float32 and rounded once (vLLM: awq_gemm)
 */
static inline fl_status fl_awq_linear(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *qweight, DLTensor *scales,
                                      DLTensor *qzeros, DLTensor *bias, DLTensor *out) {
  fl_value values[6];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(qweight);
  values[2] = fl_required_tensor(scales);
  values[3] = fl_required_tensor(qzeros);
  values[4] = fl_tensor(bias);
  values[5] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->awq_linear, &call);
}

/*
 * A linear layer whose weight has 4 bits in GPTQ's order: words of 8 rows. Row r has group g_idx[r], or r / (k / g);
 * zero points are one more than stored unless use_v2_format, 8 where there are none.
 *     gptq_linear(Tensor x, Tensor qweight, Tensor scales, Tensor? qzeros=None, Tensor? g_idx=None, Tensor? bias=None,
 *         bool use_v2_format=False) -> Tensor out
 * where  x: T[..., k]
 *        qweight: int32[k/8, n]
 *        scales: T[g, n]
 *        qzeros: int32[g, n/8]
 *        g_idx: int32[k] or int64[k]
 *        bias: T[n]
 *        out: T[..., n]
 *        T = float32|float16|bfloat16
 * qzeros, g_idx, bias: NULL for none.
 * Formula: w = (q - z) * scales rounded to T; out = x w + bias, added in float32 and rounded once (vLLM: gptq_gemm)
 */
static inline fl_status fl_gptq_linear(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *qweight,
                                       DLTensor *scales, DLTensor *qzeros, DLTensor *g_idx, DLTensor *bias,
                                       bool use_v2_format, DLTensor *out) {
  fl_value values[8];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(qweight);
  values[2] = fl_required_tensor(scales);
  values[3] = fl_tensor(qzeros);
  values[4] = fl_tensor(g_idx);
  values[5] = fl_tensor(bias);
  values[6] = fl_bool(use_v2_format);
  values[7] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->gptq_linear, &call);
}

/*
 * A linear layer whose weight is MXFP4: e2m1, the even column in a byte's low half, with a power of two 2^(byte - 127)
 * for each 32 columns; a scale of 255 is NaN.
 *     mxfp4_linear(Tensor x, Tensor weight, Tensor weight_scale, Tensor? bias=None) -> Tensor out
 * where  x: T[..., k]
 *        weight: uint8[n, k/2]
 *        weight_scale: uint8[n, k/32]
 *        bias: T[n]
 *        out: T[..., n]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: w = (0, .5, 1, 1.5, 2, 3, 4 or 6, bit 3 the sign) * scale in float32; out = x w^T + bias, rounded once (OCP
 * Microscaling Formats 1.0; vLLM: MXFP4 linear methods, weight only)
 */
static inline fl_status fl_mxfp4_linear(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight,
                                        DLTensor *weight_scale, DLTensor *bias, DLTensor *out) {
  fl_value values[5];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_required_tensor(weight_scale);
  values[3] = fl_tensor(bias);
  values[4] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 5, stream);
  return fl_invoke(ops->mxfp4_linear, &call);
}

/*
 * The rows of weight for token ids; of a shard (org_vocab_end given), zeros for the ids of other shards.
 *     vocab_parallel_embedding(Tensor input_ids, Tensor weight, int org_vocab_start=0, int? org_vocab_end=None,
 *         int num_org_vocab_padding=0, int added_vocab_start=0, int added_vocab_end=0) -> Tensor out
 * where  input_ids: int32|int64[...]
 *        weight: T[v, h]
 *        out: T[..., h]
 *        T = float32|float16|bfloat16
 * org_vocab_end: NULL for none.
 * Formula: out = weight[row]; row = id without shard; with one, id - org_vocab_start for org_vocab_start <= id <
 * org_vocab_end, id - added_vocab_start + (org_vocab_end - org_vocab_start) + num_org_vocab_padding for
 * added_vocab_start <= id < added_vocab_end, else out = 0 (vLLM: VocabParallelEmbedding)
 * Over ranks (fl_scope_group): tp: out = all_reduce(out) if org_vocab_end
 */
static inline fl_status fl_vocab_parallel_embedding(const fl_ops *ops, void *stream, DLTensor *input_ids,
                                                    DLTensor *weight, int64_t org_vocab_start,
                                                    const int64_t *org_vocab_end, int64_t num_org_vocab_padding,
                                                    int64_t added_vocab_start, int64_t added_vocab_end, DLTensor *out) {
  fl_value values[8];
  values[0] = fl_required_tensor(input_ids);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_int(org_vocab_start);
  values[3] = org_vocab_end ? fl_int(*org_vocab_end) : fl_none();
  values[4] = fl_int(num_org_vocab_padding);
  values[5] = fl_int(added_vocab_start);
  values[6] = fl_int(added_vocab_end);
  values[7] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->vocab_parallel_embedding, &call);
}

/*
 * The logits of this rank's part of the vocabulary; with a group those of all ranks.
 *     parallel_lm_head(Tensor hidden_states, Tensor weight, Tensor? bias=None) -> Tensor logits
 * where  hidden_states: T[..., h]
 *        weight: T[v, h]
 *        bias: T[v]
 *        logits: T[..., v*ranks]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: logits = hidden_states W^T + bias, rounded to T once (vLLM: ParallelLMHead, as LogitsProcessor uses it)
 * Over ranks (fl_scope_group): tp: logits = all_gather(logits, -1)
 */
static inline fl_status fl_parallel_lm_head(const fl_ops *ops, void *stream, DLTensor *hidden_states, DLTensor *weight,
                                            DLTensor *bias, DLTensor *logits) {
  fl_value values[4];
  values[0] = fl_required_tensor(hidden_states);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_required_tensor(logits);
  fl_call call;
  fl_ops_call(&call, values, 4, stream);
  return fl_invoke(ops->parallel_lm_head, &call);
}

/*
 * The logits of the first org_vocab_size entries of the vocabulary (all, if none), capped and scaled.
 *     logits_processor(Tensor hidden_states, Tensor weight, Tensor? bias=None, int? org_vocab_size=None,
 *         float? soft_cap=None, float scale=1.0) -> Tensor logits
 * where  hidden_states: T[..., h]
 *        weight: T[v, h]
 *        bias: T[v]
 *        logits: T[..., org_vocab_size] or T[..., v*ranks]
 *        T = float32|float16|bfloat16
 * bias, org_vocab_size, soft_cap: NULL for none.
 * Formula: l = (hidden_states W^T + bias)[..., :org_vocab_size]; with soft_cap l = tanh(l / soft_cap) * soft_cap;
 * logits = l * scale; rounded to T after each step (vLLM: LogitsProcessor)
 * Over ranks (fl_scope_group): tp: org_vocab_size = none; logits = all_gather(logits, -1)
 */
static inline fl_status fl_logits_processor(const fl_ops *ops, void *stream, DLTensor *hidden_states, DLTensor *weight,
                                            DLTensor *bias, const int64_t *org_vocab_size, const double *soft_cap,
                                            double scale, DLTensor *logits) {
  fl_value values[7];
  values[0] = fl_required_tensor(hidden_states);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = org_vocab_size ? fl_int(*org_vocab_size) : fl_none();
  values[4] = soft_cap ? fl_float(*soft_cap) : fl_none();
  values[5] = fl_float(scale);
  values[6] = fl_required_tensor(logits);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->logits_processor, &call);
}

/*
 * Convolution over two dimensions of space, out [n, o, ...].
 *     conv2d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1, 1], int[] padding=[0, 0], int[] dilation=[1,
 *         1], int groups=1) -> Tensor out
 * where  x: T[n, c, h, w]
 *        weight: T[o, g, i, j]
 *        bias: T[o]
 *        out: T[n, o, (h + 2*padding[0] - dilation[0]*(i - 1) - 1) // stride[0] + 1, (w + 2*padding[1] - dilation[1]*(j
 *        - 1) - 1) // stride[1] + 1]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: out[n, o, y, x] = bias[o] + sum over c, i, j of weight[o, c, i, j] * x[n, group of o + c, y stride + i
 * dilation - padding, x stride + j dilation - padding]; out size = floor((in + 2 padding - dilation (kernel - 1) - 1) /
 * stride) + 1; products and bias are added in float32 or better and rounded to T once (vLLM: Conv2dLayer; PyTorch:
 * conv2d)
 */
static inline fl_status fl_conv2d(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight, DLTensor *bias,
                                  const int64_t *stride, uint32_t n_stride, const int64_t *padding, uint32_t n_padding,
                                  const int64_t *dilation, uint32_t n_dilation, int64_t groups, DLTensor *out) {
  fl_value values[8];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_ints(stride, n_stride);
  values[4] = fl_ints(padding, n_padding);
  values[5] = fl_ints(dilation, n_dilation);
  values[6] = fl_int(groups);
  values[7] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->conv2d, &call);
}

/*
 * Convolution over three dimensions of space (or two and time), out [n, o, ...].
 *     conv3d(Tensor x, Tensor weight, Tensor? bias=None, int[] stride=[1, 1, 1], int[] padding=[0, 0, 0],
 *         int[] dilation=[1, 1, 1], int groups=1) -> Tensor out
 * where  x: T[n, c, d, h, w]
 *        weight: T[o, g, i, j, k]
 *        bias: T[o]
 *        out: T[n, o, (d + 2*padding[0] - dilation[0]*(i - 1) - 1) // stride[0] + 1, (h + 2*padding[1] - dilation[1]*(j
 *        - 1) - 1) // stride[1] + 1, (w + 2*padding[2] - dilation[2]*(k - 1) - 1) // stride[2] + 1]
 *        T = float32|float16|bfloat16
 * bias: NULL for none.
 * Formula: conv2d with one more dimension; out size = floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1;
 * products and bias are added in float32 or better and rounded to T once (vLLM: Conv3dLayer; PyTorch: conv3d)
 */
static inline fl_status fl_conv3d(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight, DLTensor *bias,
                                  const int64_t *stride, uint32_t n_stride, const int64_t *padding, uint32_t n_padding,
                                  const int64_t *dilation, uint32_t n_dilation, int64_t groups, DLTensor *out) {
  fl_value values[8];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_ints(stride, n_stride);
  values[4] = fl_ints(padding, n_padding);
  values[5] = fl_ints(dilation, n_dilation);
  values[6] = fl_int(groups);
  values[7] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 8, stream);
  return fl_invoke(ops->conv3d, &call);
}

/*
 * The topk best experts of each token, from its topk_group best groups of experts.
 *     grouped_topk(Tensor gating_output, int topk, bool renormalize, int num_expert_group=1, int topk_group=1,
 *         str scoring_func="softmax", float routed_scaling_factor=1.0, Tensor? e_score_correction_bias=None)
 *         -> (Tensor topk_weights, Tensor topk_ids)
 * where  gating_output: T[..., e]
 *        e_score_correction_bias: T|float32[e]
 *        topk_weights: float32[..., topk]
 *        topk_ids: int32[..., topk]
 *        T = float32|float16|bfloat16
 * e_score_correction_bias: NULL for none.
 * Formula: s = scoring_func(gating_output), rounded to T; s' = s + e_score_correction_bias; a group is as good as its
 * best s', with a bias as the sum of its two best; ids = the topk best s' in the topk_group best groups, of equal ones
 * the lowest; weights = s[ids], / their sum if renormalize, * routed_scaling_factor (vLLM: GroupedTopk, kernel
 * grouped_topk)
 */
static inline fl_status fl_grouped_topk(const fl_ops *ops, void *stream, DLTensor *gating_output, int64_t topk,
                                        bool renormalize, int64_t num_expert_group, int64_t topk_group,
                                        const char *scoring_func, double routed_scaling_factor,
                                        DLTensor *e_score_correction_bias, DLTensor *topk_weights, DLTensor *topk_ids) {
  fl_value values[10];
  values[0] = fl_required_tensor(gating_output);
  values[1] = fl_int(topk);
  values[2] = fl_bool(renormalize);
  values[3] = fl_int(num_expert_group);
  values[4] = fl_int(topk_group);
  values[5] = fl_string(scoring_func);
  values[6] = fl_float(routed_scaling_factor);
  values[7] = fl_tensor(e_score_correction_bias);
  values[8] = fl_required_tensor(topk_weights);
  values[9] = fl_required_tensor(topk_ids);
  fl_call call;
  fl_ops_call(&call, values, 10, stream);
  return fl_invoke(ops->grouped_topk, &call);
}

/*
 * The topk most probable experts of each token.
 *     topk_softmax(Tensor gating_output, int topk, bool renormalize=False) -> (Tensor topk_weights, Tensor topk_ids)
 * where  gating_output: T[..., e]
 *        topk_weights: float32[..., topk]
 *        topk_ids: int32[..., topk]
 *        T = float32|float16|bfloat16
 * Formula: p = softmax(gating_output) in float32, 0 where it is not finite; ids = the topk largest p, of equal ones the
 * lowest; weights = p[ids], / their sum if renormalize and that is above 0 (vLLM: fused_topk, kernel topk_softmax)
 */
static inline fl_status fl_topk_softmax(const fl_ops *ops, void *stream, DLTensor *gating_output, int64_t topk,
                                        bool renormalize, DLTensor *topk_weights, DLTensor *topk_ids) {
  fl_value values[5];
  values[0] = fl_required_tensor(gating_output);
  values[1] = fl_int(topk);
  values[2] = fl_bool(renormalize);
  values[3] = fl_required_tensor(topk_weights);
  values[4] = fl_required_tensor(topk_ids);
  fl_call call;
  fl_ops_call(&call, values, 5, stream);
  return fl_invoke(ops->topk_softmax, &call);
}

/*
 * The places of topk_ids sorted by expert, each expert's filled up to whole blocks; expert_ids has the expert of each
 * block.
 *     moe_align_block_size(Tensor topk_ids, int num_experts, int block_size) -> (Tensor sorted_token_ids,
 *         Tensor expert_ids, Tensor num_tokens_post_pad)
 * where  topk_ids: int32|int64[m, k]
 *        sorted_token_ids: int32[m*k + num_experts*(block_size - 1)]
 *        expert_ids: int32[(m*k + (num_experts + 1)*(block_size - 1)) // block_size]
 *        num_tokens_post_pad: int32[1]
 * Formula: sorted_token_ids: for each expert in order the flat indices of topk_ids that name it, in order, then numel
 * up to a multiple of block_size; behind num_tokens_post_pad sorted_token_ids = numel and expert_ids = -1 (vLLM:
 * moe_align_block_size)
 */
static inline fl_status fl_moe_align_block_size(const fl_ops *ops, void *stream, DLTensor *topk_ids,
                                                int64_t num_experts, int64_t block_size, DLTensor *sorted_token_ids,
                                                DLTensor *expert_ids, DLTensor *num_tokens_post_pad) {
  fl_value values[6];
  values[0] = fl_required_tensor(topk_ids);
  values[1] = fl_int(num_experts);
  values[2] = fl_int(block_size);
  values[3] = fl_required_tensor(sorted_token_ids);
  values[4] = fl_required_tensor(expert_ids);
  values[5] = fl_required_tensor(num_tokens_post_pad);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->moe_align_block_size, &call);
}

/*
 * The sum of what the k experts of a token gave.
 *     moe_sum(Tensor x) -> Tensor out
 * where  x: T[..., k, h]
 *        out: T[..., h]
 *        T = float32|float16|bfloat16
 * Formula: out = x.sum(-2), in float32 and in order, rounded to T once (vLLM: moe_sum)
 */
static inline fl_status fl_moe_sum(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->moe_sum, &call);
}

/*
 * Each token through its experts, their results weighted and added.
 *     unquantized_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_weights, Tensor topk_ids,
 *         str activation="silu", bool apply_router_weight_on_input=False, Tensor? expert_map=None,
 *         Tensor? w13_bias=None, Tensor? w2_bias=None) -> Tensor out
 * where  x: T[m, h]
 *        w13: T[e, 2*i, h]
 *        w2: T[e, h, i]
 *        topk_weights: T|float32[m, k]
 *        topk_ids: int32|int64[m, k]
 *        expert_map: int32|int64[g]
 *        w13_bias: T|float32[e, 2*i]
 *        w2_bias: T|float32[e, h]
 *        out: T[m, h]
 *        T = float32|float16|bfloat16
 * expert_map, w13_bias, w2_bias: NULL for none.
 * Formula: with e = topk_ids[m, j], or expert_map[that] (-1: the term is 0): t1 = x[m] w13[e]^T + w13_bias[e]; t2 =
 * activation of t1's first half times its second half (swigluoai: neighbours); t3 = t2 w2[e]^T + w2_bias[e]; out[m] =
 * sum over j of topk_weights[m, j] * t3, in float32; t1, t2, t3, out rounded to T. With apply_router_weight_on_input
 * (topk 1) x is multiplied by the weight instead. activation: silu, gelu, gelu_tanh, swigluoai or swiglustep (vLLM:
 * UnquantizedFusedMoEMethod, fused_experts)
 * Over ranks (fl_scope_group): ep, tp: w2_bias = first(w2_bias) if not expert_map; out = all_reduce(out)
 */
static inline fl_status fl_unquantized_fused_moe(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *w13,
                                                 DLTensor *w2, DLTensor *topk_weights, DLTensor *topk_ids,
                                                 const char *activation, bool apply_router_weight_on_input,
                                                 DLTensor *expert_map, DLTensor *w13_bias, DLTensor *w2_bias,
                                                 DLTensor *out) {
  fl_value values[11];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(w13);
  values[2] = fl_required_tensor(w2);
  values[3] = fl_required_tensor(topk_weights);
  values[4] = fl_required_tensor(topk_ids);
  values[5] = fl_string(activation);
  values[6] = fl_bool(apply_router_weight_on_input);
  values[7] = fl_tensor(expert_map);
  values[8] = fl_tensor(w13_bias);
  values[9] = fl_tensor(w2_bias);
  values[10] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 11, stream);
  return fl_invoke(ops->unquantized_fused_moe, &call);
}

/*
 * Each token through its experts in three steps: dispatch to the experts' ranks, experts, combine.
 *     modular_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_weights, Tensor topk_ids, str activation="silu",
 *         bool apply_router_weight_on_input=False, Tensor? expert_map=None, Tensor? w13_bias=None,
 *         Tensor? w2_bias=None, Tensor? w13_scale=None, Tensor? w2_scale=None, int[] block_size=[128, 128])
 *         -> Tensor out
 * where  x: T[m, h]
 *        w13: T[e, 2*i, h] or int8|float8_e4m3fn[e, 2*i, h] or uint8[e, 2*i, h/2]
 *        w2: T[e, h, i] or int8|float8_e4m3fn[e, h, i] or uint8[e, h, i/2]
 *        topk_weights: T|float32[m, k]
 *        topk_ids: int32|int64[m, k]
 *        expert_map: int32|int64[g]
 *        w13_bias: T|float32[e, 2*i]
 *        w2_bias: T|float32[e, h]
 *        w13_scale: float32[e] or float32[e, 2*i] or float32[e, 2*i, 1] or float32[e, (2*i + block_size[0] - 1) //
 *        block_size[0], (h + block_size[1] - 1) // block_size[1]] or uint8[e, 2*i, h/32]
 *        w2_scale: float32[e] or float32[e, h] or float32[e, h, 1] or float32[e, (h + block_size[0] - 1) //
 *        block_size[0], (i + block_size[1] - 1) // block_size[1]] or uint8[e, h, i/32]
 *        out: T[m, h]
 *        T = float32|float16|bfloat16
 * expert_map, w13_bias, w2_bias, w13_scale, w2_scale: NULL for none.
 * Formula: with e = topk_ids[m, j], or expert_map[that] (-1: the term is 0): t1 = x[m] w13[e]^T + w13_bias[e]; t2 =
 * activation of t1's first half times its second half (swigluoai: neighbours); t3 = t2 w2[e]^T + w2_bias[e]; out[m] =
 * sum over j of topk_weights[m, j] * t3, in float32; t1, t2, t3, out rounded to T. With apply_router_weight_on_input
 * (topk 1) x is multiplied by the weight instead. activation: silu, gelu, gelu_tanh, swigluoai or swiglustep ; weights
 * of int8 or float8 are codes, each times the scale of its expert, its row, or its block of block_size; those of uint8
 * are MXFP4, 2 in a byte, with a power of two 2^(byte - 127) for each 32 columns, as mxfp4_linear has them; x is not
 * quantised (vLLM: FusedMoEModularMethod)
 * Over ranks (fl_scope_group): ep: x = all_gather(x, 0); topk_weights = all_gather(topk_weights, 0); topk_ids =
 * all_gather(topk_ids, 0); out = reduce_scatter(out, 0)
 */
static inline fl_status fl_modular_fused_moe(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *w13, DLTensor *w2,
                                             DLTensor *topk_weights, DLTensor *topk_ids, const char *activation,
                                             bool apply_router_weight_on_input, DLTensor *expert_map,
                                             DLTensor *w13_bias, DLTensor *w2_bias, DLTensor *w13_scale,
                                             DLTensor *w2_scale, const int64_t *block_size, uint32_t n_block_size,
                                             DLTensor *out) {
  fl_value values[14];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(w13);
  values[2] = fl_required_tensor(w2);
  values[3] = fl_required_tensor(topk_weights);
  values[4] = fl_required_tensor(topk_ids);
  values[5] = fl_string(activation);
  values[6] = fl_bool(apply_router_weight_on_input);
  values[7] = fl_tensor(expert_map);
  values[8] = fl_tensor(w13_bias);
  values[9] = fl_tensor(w2_bias);
  values[10] = fl_tensor(w13_scale);
  values[11] = fl_tensor(w2_scale);
  values[12] = fl_ints(block_size, n_block_size);
  values[13] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 14, stream);
  return fl_invoke(ops->modular_fused_moe, &call);
}

/*
 * Each token through the experts that the model itself chose, their results weighted and added.
 *     transformers_fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor topk_ids, Tensor topk_weights,
 *         str activation="silu") -> Tensor out
 * where  x: T[m, h]
 *        w13: T[e, 2*i, h]
 *        w2: T[e, h, i]
 *        topk_weights: T|float32[m, k]
 *        topk_ids: int32|int64[m, k]
 *        out: T[m, h]
 *        T = float32|float16|bfloat16
 * Formula: with e = topk_ids[m, j], or expert_map[that] (-1: the term is 0): t1 = x[m] w13[e]^T + w13_bias[e]; t2 =
 * activation of t1's first half times its second half (swigluoai: neighbours); t3 = t2 w2[e]^T + w2_bias[e]; out[m] =
 * sum over j of topk_weights[m, j] * t3, in float32; t1, t2, t3, out rounded to T. With apply_router_weight_on_input
 * (topk 1) x is multiplied by the weight instead. activation: silu, gelu, gelu_tanh, swigluoai or swiglustep (vLLM:
 * TransformersMoERunner)
 * Over ranks (fl_scope_group): ep, tp: out = all_reduce(out)
 */
static inline fl_status fl_transformers_fused_moe(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *w13,
                                                  DLTensor *w2, DLTensor *topk_ids, DLTensor *topk_weights,
                                                  const char *activation, DLTensor *out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(w13);
  values[2] = fl_required_tensor(w2);
  values[3] = fl_required_tensor(topk_ids);
  values[4] = fl_required_tensor(topk_weights);
  values[5] = fl_string(activation);
  values[6] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->transformers_fused_moe, &call);
}

/*
 * Routes each token by its router_logits and sends it through its experts.
 *     fused_moe(Tensor x, Tensor w13, Tensor w2, Tensor router_logits, int top_k, bool renormalize=True,
 *         bool use_grouped_topk=False, int num_expert_group=1, int topk_group=1, str scoring_func="softmax",
 *         float routed_scaling_factor=1.0, Tensor? e_score_correction_bias=None, str activation="silu",
 *         bool apply_router_weight_on_input=False, Tensor? expert_map=None, Tensor? w13_bias=None,
 *         Tensor? w2_bias=None, Tensor? w13_scale=None, Tensor? w2_scale=None, int[] block_size=[128, 128])
 *         -> Tensor out
 * where  x: T[m, h]
 *        w13: T[e, 2*i, h] or int8|float8_e4m3fn[e, 2*i, h] or uint8[e, 2*i, h/2]
 *        w2: T[e, h, i] or int8|float8_e4m3fn[e, h, i] or uint8[e, h, i/2]
 *        router_logits: R[m, n]
 *        e_score_correction_bias: R|float32[n]
 *        expert_map: int32|int64[g]
 *        w13_bias: T|float32[e, 2*i]
 *        w2_bias: T|float32[e, h]
 *        w13_scale: float32[e] or float32[e, 2*i] or float32[e, 2*i, 1] or float32[e, (2*i + block_size[0] - 1) //
 *        block_size[0], (h + block_size[1] - 1) // block_size[1]] or uint8[e, 2*i, h/32]
 *        w2_scale: float32[e] or float32[e, h] or float32[e, h, 1] or float32[e, (h + block_size[0] - 1) //
 *        block_size[0], (i + block_size[1] - 1) // block_size[1]] or uint8[e, h, i/32]
 *        out: T[m, h]
 *        T = float32|float16|bfloat16
 *        R = float32|float16|bfloat16
 * e_score_correction_bias, expert_map, w13_bias, w2_bias, w13_scale, w2_scale: NULL for none.
 * Formula: topk_weights, topk_ids = grouped_topk(router_logits, …) if use_grouped_topk, else topk_softmax (or the
 * same of sigmoid, with e_score_correction_bias in the choice, times routed_scaling_factor), in float32; with e =
 * topk_ids[m, j], or expert_map[that] (-1: the term is 0): t1 = x[m] w13[e]^T + w13_bias[e]; t2 = activation of t1's
 * first half times its second half (swigluoai: neighbours); t3 = t2 w2[e]^T + w2_bias[e]; out[m] = sum over j of
 * topk_weights[m, j] * t3, in float32; t1, t2, t3, out rounded to T. With apply_router_weight_on_input (topk 1) x is
 * multiplied by the weight instead. activation: silu, gelu, gelu_tanh, swigluoai or swiglustep ; weights of int8 or
 * float8 are codes, each times the scale of its expert, its row, or its block of block_size; those of uint8 are MXFP4,
 * 2 in a byte, with a power of two 2^(byte - 127) for each 32 columns, as mxfp4_linear has them; x is not quantised
 * (vLLM: FusedMoE)
 * Over ranks (fl_scope_group): ep, tp: w2_bias = first(w2_bias) if not expert_map; out = all_reduce(out)
 */
static inline fl_status fl_fused_moe(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *w13, DLTensor *w2,
                                     DLTensor *router_logits, int64_t top_k, bool renormalize, bool use_grouped_topk,
                                     int64_t num_expert_group, int64_t topk_group, const char *scoring_func,
                                     double routed_scaling_factor, DLTensor *e_score_correction_bias,
                                     const char *activation, bool apply_router_weight_on_input, DLTensor *expert_map,
                                     DLTensor *w13_bias, DLTensor *w2_bias, DLTensor *w13_scale, DLTensor *w2_scale,
                                     const int64_t *block_size, uint32_t n_block_size, DLTensor *out) {
  fl_value values[21];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(w13);
  values[2] = fl_required_tensor(w2);
  values[3] = fl_required_tensor(router_logits);
  values[4] = fl_int(top_k);
  values[5] = fl_bool(renormalize);
  values[6] = fl_bool(use_grouped_topk);
  values[7] = fl_int(num_expert_group);
  values[8] = fl_int(topk_group);
  values[9] = fl_string(scoring_func);
  values[10] = fl_float(routed_scaling_factor);
  values[11] = fl_tensor(e_score_correction_bias);
  values[12] = fl_string(activation);
  values[13] = fl_bool(apply_router_weight_on_input);
  values[14] = fl_tensor(expert_map);
  values[15] = fl_tensor(w13_bias);
  values[16] = fl_tensor(w2_bias);
  values[17] = fl_tensor(w13_scale);
  values[18] = fl_tensor(w2_scale);
  values[19] = fl_ints(block_size, n_block_size);
  values[20] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 21, stream);
  return fl_invoke(ops->fused_moe, &call);
}

/*
 * The sum of all ranks' x; x itself without a group.
 *     tensor_model_parallel_all_reduce(Tensor x) -> Tensor out
 * where  x: T[..., h]
 *        out: T[..., h]
 *        T = float32|float16|bfloat16
 * Formula: out = sum over the ranks of x (vLLM: tensor_model_parallel_all_reduce)
 * Over ranks (fl_scope_group): tp: out = all_reduce(out)
 */
static inline fl_status fl_tensor_model_parallel_all_reduce(const fl_ops *ops, void *stream, DLTensor *x,
                                                            DLTensor *out) {
  fl_value values[2];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->tensor_model_parallel_all_reduce, &call);
}

/*
 * The sum of all ranks' x and x_residual, normalised by its root mean square: the end of a layer that ranks share, and
 * the beginning of the next.
 *     all_reduce_fused_add_rms_norm(Tensor(a!) x, Tensor(b!) x_residual, Tensor? weight, float epsilon,
 *         int? variance_size=None) -> (Tensor(a) out, Tensor(b) residual_out)
 * where  x: T[..., H]
 *        x_residual: T[..., H]
 *        weight: T|float32[H]
 *        T = float32|float16|bfloat16
 *        out: as x
 *        residual_out: as x_residual
 * out may be the very tensor x (in place); else x stays as it is.
 * residual_out may be the very tensor x_residual (in place); else x_residual stays as it is.
 * weight, variance_size: NULL for none.
 * Formula: out, residual_out = fused_add_rms_norm(tensor_model_parallel_all_reduce(x), x_residual, weight, epsilon,
 * variance_size) (vLLM: pattern AllReduceFusedAddRMSNorm)
 * Over ranks (fl_scope_group): tp:
 */
static inline fl_status fl_all_reduce_fused_add_rms_norm(const fl_ops *ops, void *stream, DLTensor *x,
                                                         DLTensor *x_residual, DLTensor *weight, double epsilon,
                                                         const int64_t *variance_size, DLTensor *out,
                                                         DLTensor *residual_out) {
  fl_value values[7];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(x_residual);
  values[2] = fl_tensor(weight);
  values[3] = fl_float(epsilon);
  values[4] = variance_size ? fl_int(*variance_size) : fl_none();
  values[5] = fl_required_tensor(out);
  values[6] = fl_required_tensor(residual_out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->all_reduce_fused_add_rms_norm, &call);
}

/*
 * Depthwise convolution of each channel with its own past; conv_state is left with the last w - 1 inputs. Sequence i is
 * query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is
 * skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not).
 *     causal_conv1d(Tensor x, Tensor weight, Tensor? bias, Tensor(a!)? conv_state, Tensor? query_start_loc=None,
 *         Tensor? cache_indices=None, Tensor? has_initial_state=None, str activation="silu") -> Tensor out
 * where  x: T[d, l]
 *        weight: T|float32[d, w]
 *        bias: T|float32[d]
 *        conv_state: S[s, d, w - 1]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[d, l]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 * bias, conv_state, query_start_loc, cache_indices, has_initial_state: NULL for none.
 * Formula: out[d, t] = activation(bias[d] + sum over j of weight[d, j] * x'[d, t + j]), x' = state (0 where a sequence
 * does not begin from one), then x; in float32, rounded to T once; activation none or silu (vLLM: causal_conv1d_fn,
 * causal_conv1d_update)
 */
static inline fl_status fl_causal_conv1d(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *weight, DLTensor *bias,
                                         DLTensor *conv_state, DLTensor *query_start_loc, DLTensor *cache_indices,
                                         DLTensor *has_initial_state, const char *activation, DLTensor *out) {
  fl_value values[9];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(weight);
  values[2] = fl_tensor(bias);
  values[3] = fl_tensor(conv_state);
  values[4] = fl_tensor(query_start_loc);
  values[5] = fl_tensor(cache_indices);
  values[6] = fl_tensor(has_initial_state);
  values[7] = fl_string(activation);
  values[8] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 9, stream);
  return fl_invoke(ops->causal_conv1d, &call);
}

/*
 * Mamba's scan: each channel has a state of n numbers, of which the last is left in ssm_state. Sequence i is
 * query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i; -1: the sequence is
 * skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not).
 *     selective_scan(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? delta_bias,
 *         bool delta_softplus, Tensor(a!)? ssm_state, Tensor? query_start_loc=None, Tensor? cache_indices=None,
 *         Tensor? has_initial_state=None) -> Tensor out
 * where  u: T[d, l]
 *        delta: T[d, l]
 *        A: T|float32[d, n]
 *        B: T[g, n, l]
 *        C: T[g, n, l]
 *        D: T|float32[d]
 *        z: T[d, l]
 *        delta_bias: T|float32[d]
 *        ssm_state: S[s, d, n]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[d, l]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 * D, z, delta_bias, ssm_state, query_start_loc, cache_indices, has_initial_state: NULL for none.
 * Formula: delta' = delta + delta_bias, log(1 + exp(delta')) if delta_softplus and delta' <= 20; h = exp(delta' * A) *
 * h + delta' * B * u; out = (sum over n of C * h + D * u) * z / (1 + exp(-z)); channel d uses group d / (channels / g)
 * of B and C; in float32, rounded to T once (vLLM: selective_scan_fwd, selective_state_update)
 */
static inline fl_status fl_selective_scan(const fl_ops *ops, void *stream, DLTensor *u, DLTensor *delta, DLTensor *A,
                                          DLTensor *B, DLTensor *C, DLTensor *D, DLTensor *z, DLTensor *delta_bias,
                                          bool delta_softplus, DLTensor *ssm_state, DLTensor *query_start_loc,
                                          DLTensor *cache_indices, DLTensor *has_initial_state, DLTensor *out) {
  fl_value values[14];
  values[0] = fl_required_tensor(u);
  values[1] = fl_required_tensor(delta);
  values[2] = fl_required_tensor(A);
  values[3] = fl_required_tensor(B);
  values[4] = fl_required_tensor(C);
  values[5] = fl_tensor(D);
  values[6] = fl_tensor(z);
  values[7] = fl_tensor(delta_bias);
  values[8] = fl_bool(delta_softplus);
  values[9] = fl_tensor(ssm_state);
  values[10] = fl_tensor(query_start_loc);
  values[11] = fl_tensor(cache_indices);
  values[12] = fl_tensor(has_initial_state);
  values[13] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 14, stream);
  return fl_invoke(ops->selective_scan, &call);
}

/*
 * Mamba-2's scan: each head has a state of p by n numbers, of which the last is left in ssm_state; chunk_size is how
 * many tokens an implementation may take at a time. Sequence i is query_start_loc[i] to [i + 1] (none: there is one),
 * its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if
 * has_initial_state[i] (none: it does not).
 *     mamba_chunk_scan(Tensor x, Tensor dt, Tensor A, Tensor B, Tensor C, Tensor? D, Tensor? z, Tensor? dt_bias,
 *         bool dt_softplus, Tensor(a!)? ssm_state, int chunk_size=256, Tensor? query_start_loc=None,
 *         Tensor? cache_indices=None, Tensor? has_initial_state=None, float dt_min=0.0, float? dt_max=None)
 *         -> Tensor out
 * where  x: T[t, h, p]
 *        dt: T|float32[t, h]
 *        A: T|float32[h]
 *        B: T[t, g, n]
 *        C: T[t, g, n]
 *        D: T|float32[h] or T|float32[h, p]
 *        z: T[t, h, p]
 *        dt_bias: T|float32[h]
 *        ssm_state: S[s, h, p, n]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[t, h, p]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 * D, z, dt_bias, ssm_state, query_start_loc, cache_indices, has_initial_state, dt_max: NULL for none.
 * Formula: dt' = dt + dt_bias, log(1 + exp(dt')) if dt_softplus and dt' <= 20, then clamped to dt_min and dt_max; S =
 * exp(dt' * A) * S + dt' * x B^T; out = (S C + D * x) * z / (1 + exp(-z)); head h uses group h / (heads / g) of B and
 * C; in float32, rounded to T once (vLLM: mamba_chunk_scan_combined_varlen)
 */
static inline fl_status fl_mamba_chunk_scan(const fl_ops *ops, void *stream, DLTensor *x, DLTensor *dt, DLTensor *A,
                                            DLTensor *B, DLTensor *C, DLTensor *D, DLTensor *z, DLTensor *dt_bias,
                                            bool dt_softplus, DLTensor *ssm_state, int64_t chunk_size,
                                            DLTensor *query_start_loc, DLTensor *cache_indices,
                                            DLTensor *has_initial_state, double dt_min, const double *dt_max,
                                            DLTensor *out) {
  fl_value values[17];
  values[0] = fl_required_tensor(x);
  values[1] = fl_required_tensor(dt);
  values[2] = fl_required_tensor(A);
  values[3] = fl_required_tensor(B);
  values[4] = fl_required_tensor(C);
  values[5] = fl_tensor(D);
  values[6] = fl_tensor(z);
  values[7] = fl_tensor(dt_bias);
  values[8] = fl_bool(dt_softplus);
  values[9] = fl_tensor(ssm_state);
  values[10] = fl_int(chunk_size);
  values[11] = fl_tensor(query_start_loc);
  values[12] = fl_tensor(cache_indices);
  values[13] = fl_tensor(has_initial_state);
  values[14] = fl_float(dt_min);
  values[15] = dt_max ? fl_float(*dt_max) : fl_none();
  values[16] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 17, stream);
  return fl_invoke(ops->mamba_chunk_scan, &call);
}

/*
 * The layer of Mamba; A is -exp(A_log). Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is
 * slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if
 * has_initial_state[i] (none: it does not).
 *     mamba_mixer(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor x_proj,
 *         Tensor dt_proj, Tensor dt_bias, Tensor A, Tensor D, Tensor out_proj, Tensor? dt_norm, Tensor? b_norm,
 *         Tensor? c_norm, Tensor(a!)? conv_state, Tensor(b!)? ssm_state, Tensor? query_start_loc=None,
 *         Tensor? cache_indices=None, Tensor? has_initial_state=None, float epsilon=1e-5) -> Tensor out
 * where  hidden_states: T[t, m]
 *        in_proj: T[2*i, m]
 *        conv_weight: T|float32[i, w]
 *        conv_bias: T|float32[i]
 *        x_proj: T[r + 2*n, i]
 *        dt_proj: T[i, r]
 *        dt_bias: T|float32[i]
 *        A: T|float32[i, n]
 *        D: T|float32[i]
 *        out_proj: T[m, i]
 *        dt_norm: T|float32[r]
 *        b_norm: T|float32[n]
 *        c_norm: T|float32[n]
 *        conv_state: S[s, i, w - 1]
 *        ssm_state: R[s, i, n]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[t, m]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 *        R = float32|float16|bfloat16
 * conv_bias, dt_norm, b_norm, c_norm, conv_state, ssm_state, query_start_loc, cache_indices, has_initial_state: NULL
 * for none.
 * Formula: [x | gate] = in_proj hidden_states; x = causal_conv1d(x), silu; [dt | B | C] = x_proj x, each rms_norm'ed
 * where it has a norm; y = selective_scan(x, dt_proj dt, A, B, C, D, z = gate, dt_bias, softplus); out = out_proj y;
 * each rounded to T (vLLM: MambaMixer)
 */
static inline fl_status fl_mamba_mixer(const fl_ops *ops, void *stream, DLTensor *hidden_states, DLTensor *in_proj,
                                       DLTensor *conv_weight, DLTensor *conv_bias, DLTensor *x_proj, DLTensor *dt_proj,
                                       DLTensor *dt_bias, DLTensor *A, DLTensor *D, DLTensor *out_proj,
                                       DLTensor *dt_norm, DLTensor *b_norm, DLTensor *c_norm, DLTensor *conv_state,
                                       DLTensor *ssm_state, DLTensor *query_start_loc, DLTensor *cache_indices,
                                       DLTensor *has_initial_state, double epsilon, DLTensor *out) {
  fl_value values[20];
  values[0] = fl_required_tensor(hidden_states);
  values[1] = fl_required_tensor(in_proj);
  values[2] = fl_required_tensor(conv_weight);
  values[3] = fl_tensor(conv_bias);
  values[4] = fl_required_tensor(x_proj);
  values[5] = fl_required_tensor(dt_proj);
  values[6] = fl_required_tensor(dt_bias);
  values[7] = fl_required_tensor(A);
  values[8] = fl_required_tensor(D);
  values[9] = fl_required_tensor(out_proj);
  values[10] = fl_tensor(dt_norm);
  values[11] = fl_tensor(b_norm);
  values[12] = fl_tensor(c_norm);
  values[13] = fl_tensor(conv_state);
  values[14] = fl_tensor(ssm_state);
  values[15] = fl_tensor(query_start_loc);
  values[16] = fl_tensor(cache_indices);
  values[17] = fl_tensor(has_initial_state);
  values[18] = fl_float(epsilon);
  values[19] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 20, stream);
  return fl_invoke(ops->mamba_mixer, &call);
}

/*
 * The layer of Mamba-2; A is -exp(A_log). Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state
 * is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if
 * has_initial_state[i] (none: it does not).
 *     mamba_mixer2(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor dt_bias,
 *         Tensor A, Tensor D, Tensor norm_weight, Tensor out_proj, Tensor(a!)? conv_state, Tensor(b!)? ssm_state,
 *         int n_groups, int head_dim, int chunk_size=256, Tensor? query_start_loc=None, Tensor? cache_indices=None,
 *         Tensor? has_initial_state=None, float epsilon=1e-5) -> Tensor out
 * where  hidden_states: T[t, m]
 *        A: T|float32[h]
 *        in_proj: T[2*h*head_dim + 2*n_groups*n + h, m]
 *        conv_weight: T|float32[h*head_dim + 2*n_groups*n, w]
 *        conv_bias: T|float32[h*head_dim + 2*n_groups*n]
 *        dt_bias: T|float32[h]
 *        D: T|float32[h]
 *        norm_weight: T|float32[h*head_dim]
 *        out_proj: T[m, h*head_dim]
 *        conv_state: S[s, h*head_dim + 2*n_groups*n, w - 1]
 *        ssm_state: R[s, h, head_dim, n]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[t, m]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 *        R = float32|float16|bfloat16
 * conv_bias, conv_state, ssm_state, query_start_loc, cache_indices, has_initial_state: NULL for none.
 * Formula: [gate | xBC | dt] = in_proj hidden_states; [x | B | C] = causal_conv1d(xBC), silu; y = mamba_chunk_scan(x,
 * dt, A, B, C, D, dt_bias, softplus); out = out_proj mixer2_gated_rms_norm(y, gate); each rounded to T (vLLM:
 * MambaMixer2)
 */
static inline fl_status fl_mamba_mixer2(const fl_ops *ops, void *stream, DLTensor *hidden_states, DLTensor *in_proj,
                                        DLTensor *conv_weight, DLTensor *conv_bias, DLTensor *dt_bias, DLTensor *A,
                                        DLTensor *D, DLTensor *norm_weight, DLTensor *out_proj, DLTensor *conv_state,
                                        DLTensor *ssm_state, int64_t n_groups, int64_t head_dim, int64_t chunk_size,
                                        DLTensor *query_start_loc, DLTensor *cache_indices, DLTensor *has_initial_state,
                                        double epsilon, DLTensor *out) {
  fl_value values[19];
  values[0] = fl_required_tensor(hidden_states);
  values[1] = fl_required_tensor(in_proj);
  values[2] = fl_required_tensor(conv_weight);
  values[3] = fl_tensor(conv_bias);
  values[4] = fl_required_tensor(dt_bias);
  values[5] = fl_required_tensor(A);
  values[6] = fl_required_tensor(D);
  values[7] = fl_required_tensor(norm_weight);
  values[8] = fl_required_tensor(out_proj);
  values[9] = fl_tensor(conv_state);
  values[10] = fl_tensor(ssm_state);
  values[11] = fl_int(n_groups);
  values[12] = fl_int(head_dim);
  values[13] = fl_int(chunk_size);
  values[14] = fl_tensor(query_start_loc);
  values[15] = fl_tensor(cache_indices);
  values[16] = fl_tensor(has_initial_state);
  values[17] = fl_float(epsilon);
  values[18] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 19, stream);
  return fl_invoke(ops->mamba_mixer2, &call);
}

/*
 * The state-space layer of PLaMo 2; A is -exp(A_log). Sequence i is query_start_loc[i] to [i + 1] (none: there is one),
 * its state is slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if
 * has_initial_state[i] (none: it does not).
 *     plamo2_mamba_mixer(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor bcdt_proj, Tensor dt_proj,
 *         Tensor dt_bias, Tensor A, Tensor D, Tensor b_norm, Tensor c_norm, Tensor dt_norm, Tensor out_proj,
 *         Tensor(a!)? conv_state, Tensor(b!)? ssm_state, int num_heads, Tensor? query_start_loc=None,
 *         Tensor? cache_indices=None, Tensor? has_initial_state=None, float epsilon=1e-6) -> Tensor out
 * where  hidden_states: T[t, m]
 *        in_proj: T[2*i, m]
 *        conv_weight: T|float32[i, w]
 *        bcdt_proj: T[2*n + r, i]
 *        dt_proj: T[num_heads, r]
 *        dt_bias: T|float32[num_heads]
 *        A: T|float32[num_heads]
 *        D: T|float32[num_heads]
 *        b_norm: T|float32[n]
 *        c_norm: T|float32[n]
 *        dt_norm: T|float32[r]
 *        out_proj: T[m, i]
 *        conv_state: S[s, i, w - 1]
 *        ssm_state: R[s, num_heads, i/num_heads, n]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[t, m]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 *        R = float32|float16|bfloat16
 * conv_state, ssm_state, query_start_loc, cache_indices, has_initial_state: NULL for none.
 * Formula: [gate | x] = in_proj hidden_states; x = causal_conv1d(x), silu; [B | C | dt] = bcdt_proj x, each
 * rms_norm'ed; y = mamba_chunk_scan(x, dt_proj dt, A, B, C, D, z = gate, dt_bias, softplus), B and C of one group; out
 * = out_proj y; each rounded to T (vLLM: Plamo2MambaMixer)
 */
static inline fl_status fl_plamo2_mamba_mixer(const fl_ops *ops, void *stream, DLTensor *hidden_states,
                                              DLTensor *in_proj, DLTensor *conv_weight, DLTensor *bcdt_proj,
                                              DLTensor *dt_proj, DLTensor *dt_bias, DLTensor *A, DLTensor *D,
                                              DLTensor *b_norm, DLTensor *c_norm, DLTensor *dt_norm, DLTensor *out_proj,
                                              DLTensor *conv_state, DLTensor *ssm_state, int64_t num_heads,
                                              DLTensor *query_start_loc, DLTensor *cache_indices,
                                              DLTensor *has_initial_state, double epsilon, DLTensor *out) {
  fl_value values[20];
  values[0] = fl_required_tensor(hidden_states);
  values[1] = fl_required_tensor(in_proj);
  values[2] = fl_required_tensor(conv_weight);
  values[3] = fl_required_tensor(bcdt_proj);
  values[4] = fl_required_tensor(dt_proj);
  values[5] = fl_required_tensor(dt_bias);
  values[6] = fl_required_tensor(A);
  values[7] = fl_required_tensor(D);
  values[8] = fl_required_tensor(b_norm);
  values[9] = fl_required_tensor(c_norm);
  values[10] = fl_required_tensor(dt_norm);
  values[11] = fl_required_tensor(out_proj);
  values[12] = fl_tensor(conv_state);
  values[13] = fl_tensor(ssm_state);
  values[14] = fl_int(num_heads);
  values[15] = fl_tensor(query_start_loc);
  values[16] = fl_tensor(cache_indices);
  values[17] = fl_tensor(has_initial_state);
  values[18] = fl_float(epsilon);
  values[19] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 20, stream);
  return fl_invoke(ops->plamo2_mamba_mixer, &call);
}

/*
 * The gated short convolution of LFM2. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is
 * slot cache_indices[i] (none: i; -1: the sequence is skipped, its results are 0), which it begins from if
 * has_initial_state[i] (none: it does not).
 *     short_conv(Tensor hidden_states, Tensor in_proj, Tensor conv_weight, Tensor? conv_bias, Tensor out_proj,
 *         Tensor(a!)? conv_state, Tensor? query_start_loc=None, Tensor? cache_indices=None,
 *         Tensor? has_initial_state=None) -> Tensor out
 * where  hidden_states: T[t, m]
 *        in_proj: T[3*i, m]
 *        conv_weight: T|float32[i, w]
 *        conv_bias: T|float32[i]
 *        out_proj: T[m, i]
 *        conv_state: S[s, i, w - 1]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[t, m]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 * conv_bias, conv_state, query_start_loc, cache_indices, has_initial_state: NULL for none.
 * Formula: [B | C | x] = in_proj hidden_states; out = out_proj (C * causal_conv1d(B * x)), without activation; each
 * rounded to T (vLLM: ShortConv)
 */
static inline fl_status fl_short_conv(const fl_ops *ops, void *stream, DLTensor *hidden_states, DLTensor *in_proj,
                                      DLTensor *conv_weight, DLTensor *conv_bias, DLTensor *out_proj,
                                      DLTensor *conv_state, DLTensor *query_start_loc, DLTensor *cache_indices,
                                      DLTensor *has_initial_state, DLTensor *out) {
  fl_value values[10];
  values[0] = fl_required_tensor(hidden_states);
  values[1] = fl_required_tensor(in_proj);
  values[2] = fl_required_tensor(conv_weight);
  values[3] = fl_tensor(conv_bias);
  values[4] = fl_required_tensor(out_proj);
  values[5] = fl_tensor(conv_state);
  values[6] = fl_tensor(query_start_loc);
  values[7] = fl_tensor(cache_indices);
  values[8] = fl_tensor(has_initial_state);
  values[9] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 10, stream);
  return fl_invoke(ops->short_conv, &call);
}

/*
 * Makes tokens of the prompt and the output less likely; ids outside 0 to v - 1 are padding.
 *     apply_penalties(Tensor(a!) logits, Tensor prompt_token_ids, Tensor output_token_ids, Tensor presence_penalties,
 *         Tensor frequency_penalties, Tensor repetition_penalties) -> Tensor(a) out
 * where  logits: float32[n, v]
 *        prompt_token_ids: int32|int64[n, p]
 *        output_token_ids: int32|int64[n, o]
 *        presence_penalties: float32[n]
 *        frequency_penalties: float32[n]
 *        repetition_penalties: float32[n]
 *        out: as logits
 * out may be the very tensor logits (in place); else logits stays as it is.
 * Formula: count = how often a token is in the row's output; l = l / repetition where l > 0, else l * repetition, of
 * tokens in prompt or output; l = l - frequency * count; l = l - presence where count > 0 (vLLM: apply_penalties)
 */
static inline fl_status fl_apply_penalties(const fl_ops *ops, void *stream, DLTensor *logits,
                                           DLTensor *prompt_token_ids, DLTensor *output_token_ids,
                                           DLTensor *presence_penalties, DLTensor *frequency_penalties,
                                           DLTensor *repetition_penalties, DLTensor *out) {
  fl_value values[7];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_required_tensor(prompt_token_ids);
  values[2] = fl_required_tensor(output_token_ids);
  values[3] = fl_required_tensor(presence_penalties);
  values[4] = fl_required_tensor(frequency_penalties);
  values[5] = fl_required_tensor(repetition_penalties);
  values[6] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 7, stream);
  return fl_invoke(ops->apply_penalties, &call);
}

/*
 * Divides each row by its temperature; below 1e-5, which stands for greedy sampling, it stays.
 *     apply_temperature(Tensor(a!) logits, Tensor temperature) -> Tensor(a) out
 * where  logits: float32[n, v]
 *        temperature: float32[n]
 *        out: as logits
 * out may be the very tensor logits (in place); else logits stays as it is.
 * Formula: out = logits / t; t = 1 where temperature < 1e-5 (vLLM: Sampler.apply_temperature)
 */
static inline fl_status fl_apply_temperature(const fl_ops *ops, void *stream, DLTensor *logits, DLTensor *temperature,
                                             DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_required_tensor(temperature);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->apply_temperature, &call);
}

/*
 * Closes the tokens (-inf) that are less probable than min_p times the most probable one.
 *     apply_min_p(Tensor(a!) logits, Tensor min_p) -> Tensor(a) out
 * where  logits: float32[n, v]
 *        min_p: float32[n]
 *        out: as logits
 * out may be the very tensor logits (in place); else logits stays as it is.
 * Formula: p = softmax(logits); out = -inf where p < min_p * max(p), else logits (vLLM: MinPLogitsProcessor); where p
 * is NaN, logits
 */
static inline fl_status fl_apply_min_p(const fl_ops *ops, void *stream, DLTensor *logits, DLTensor *min_p,
                                       DLTensor *out) {
  fl_value values[3];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_required_tensor(min_p);
  values[2] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->apply_min_p, &call);
}

/*
 * Closes (-inf) all tokens but the top_k most probable ones, and of these all but the first that together have
 * probability top_p. Of equal logits the lowest token comes first.
 *     apply_top_k_top_p(Tensor(a!) logits, Tensor? top_k=None, Tensor? top_p=None) -> Tensor(a) out
 * where  logits: float32[n, v]
 *        top_k: int32|int64[n]
 *        top_p: float32[n]
 *        out: as logits
 * out may be the very tensor logits (in place); else logits stays as it is.
 * top_k, top_p: NULL for none.
 * Formula: the first top_k stay (all, if that is below 1); p = softmax of these; a token stays if the sum of p over
 * those before it is below top_p, the first always, all where top_p >= 1 (vLLM: apply_top_k_top_p, whose PyTorch form
 * keeps all that are equal to the last)
 */
static inline fl_status fl_apply_top_k_top_p(const fl_ops *ops, void *stream, DLTensor *logits, DLTensor *top_k,
                                             DLTensor *top_p, DLTensor *out) {
  fl_value values[4];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_tensor(top_k);
  values[2] = fl_tensor(top_p);
  values[3] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 4, stream);
  return fl_invoke(ops->apply_top_k_top_p, &call);
}

/*
 * The token of the greatest logit, the lowest of equal ones; NaN counts as greatest.
 *     greedy_argmax(Tensor logits) -> Tensor ids
 * where  logits: T[n, v]
 *        ids: int64[n]
 *        T = float32|float16|bfloat16
 * Formula: ids = argmax(logits) (vLLM: Sampler.greedy_sample)
 */
static inline fl_status fl_greedy_argmax(const fl_ops *ops, void *stream, DLTensor *logits, DLTensor *ids) {
  fl_value values[2];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_required_tensor(ids);
  fl_call call;
  fl_ops_call(&call, values, 2, stream);
  return fl_invoke(ops->greedy_argmax, &call);
}

/*
 * A token drawn by softmax(logits) with exponential noise (above 0). A token of -inf is never taken, unless all are (0
 * then).
 *     exponential_sample(Tensor logits, Tensor noise) -> Tensor ids
 * where  logits: float32[n, v]
 *        noise: float32[n, v]
 *        ids: int64[n]
 * Formula: ids = argmax(softmax(logits) / noise) = argmax(logits - log(noise)), the lowest of equal ones (vLLM:
 * random_sample)
 */
static inline fl_status fl_exponential_sample(const fl_ops *ops, void *stream, DLTensor *logits, DLTensor *noise,
                                              DLTensor *ids) {
  fl_value values[3];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_required_tensor(noise);
  values[2] = fl_required_tensor(ids);
  fl_call call;
  fl_ops_call(&call, values, 3, stream);
  return fl_invoke(ops->exponential_sample, &call);
}

/*
 * A token drawn by softmax(logits / temperature) with uniform noise (above 0, below 1); of temperature 0 the token of
 * the greatest logit.
 *     gumbel_sample(Tensor logits, Tensor uniform, Tensor temperature) -> Tensor ids
 * where  logits: float32[n, v]
 *        uniform: float32[n, v]
 *        temperature: float32[n]
 *        ids: int64[n]
 * Formula: ids = argmax(logits / temperature - log(-log1p(-uniform))), the lowest of equal ones (vLLM: gumbel_sample);
 * a token of -inf as in exponential_sample
 */
static inline fl_status fl_gumbel_sample(const fl_ops *ops, void *stream, DLTensor *logits, DLTensor *uniform,
                                         DLTensor *temperature, DLTensor *ids) {
  fl_value values[4];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_required_tensor(uniform);
  values[2] = fl_required_tensor(temperature);
  values[3] = fl_required_tensor(ids);
  fl_call call;
  fl_ops_call(&call, values, 4, stream);
  return fl_invoke(ops->gumbel_sample, &call);
}

/*
 * The logprobs of a token of each row and, behind it, of the num_logprobs most probable ones, with their ids; the
 * token's rank is how many are as probable or more.
 *     gather_logprobs(Tensor logits, Tensor token_ids, int num_logprobs=0) -> (Tensor logprob_token_ids,
 *         Tensor logprobs, Tensor ranks)
 * where  logits: T[n, v]
 *        token_ids: int32|int64[n]
 *        logprob_token_ids: int32[n, num_logprobs+1]
 *        logprobs: float32[n, num_logprobs+1]
 *        ranks: int64[n]
 *        T = float32|float16|bfloat16
 * Formula: lp = logits - logsumexp(logits) in float32; column 0: the given token; columns from 1 on: the greatest, of
 * equal logits the lowest token first; ranks = the number of tokens with lp >= that of the given one (vLLM:
 * Sampler.gather_logprobs)
 */
static inline fl_status fl_gather_logprobs(const fl_ops *ops, void *stream, DLTensor *logits, DLTensor *token_ids,
                                           int64_t num_logprobs, DLTensor *logprob_token_ids, DLTensor *logprobs,
                                           DLTensor *ranks) {
  fl_value values[6];
  values[0] = fl_required_tensor(logits);
  values[1] = fl_required_tensor(token_ids);
  values[2] = fl_int(num_logprobs);
  values[3] = fl_required_tensor(logprob_token_ids);
  values[4] = fl_required_tensor(logprobs);
  values[5] = fl_required_tensor(ranks);
  fl_call call;
  fl_ops_call(&call, values, 6, stream);
  return fl_invoke(ops->gather_logprobs, &call);
}

/*
 * The gated delta rule over whole sequences, as Qwen3-Next has it, or with a gate for each key channel as in Kimi's
 * KDA. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i] (none: i;
 * -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it does not).
 *     chunk_gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor g, Tensor beta, Tensor(a!)? state=None,
 *         Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? has_initial_state=None, float? scale=None,
 *         bool use_qk_l2norm=True) -> Tensor out
 * where  query: T[t, h, c]
 *        key: T[t, h, c]
 *        value: T[t, H, v]
 *        g: float32[t, H] or float32[t, H, c]
 *        beta: T|float32[t, H]
 *        state: S[s, H, v, c]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[t, H, v]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 * state, query_start_loc, cache_indices, has_initial_state, scale: NULL for none.
 * Formula: q, k = x / sqrt(sum of x^2 + 1e-6) if use_qk_l2norm; q = q * scale (none: c^-0.5); S = S * exp(g); d =
 * (value - S k) * beta; S = S + d k^T; out = S q, S of v by c numbers, token after token; value head j uses query and
 * key head j / (H / h); exp(g) is one number of a head, or one of each column of S; in float32, out rounded to T from S
 * before that is rounded to its own type (vLLM: chunk_gated_delta_rule, chunk_kda)
 */
static inline fl_status fl_chunk_gated_delta_rule(const fl_ops *ops, void *stream, DLTensor *query, DLTensor *key,
                                                  DLTensor *value, DLTensor *g, DLTensor *beta, DLTensor *state,
                                                  DLTensor *query_start_loc, DLTensor *cache_indices,
                                                  DLTensor *has_initial_state, const double *scale, bool use_qk_l2norm,
                                                  DLTensor *out) {
  fl_value values[12];
  values[0] = fl_required_tensor(query);
  values[1] = fl_required_tensor(key);
  values[2] = fl_required_tensor(value);
  values[3] = fl_required_tensor(g);
  values[4] = fl_required_tensor(beta);
  values[5] = fl_tensor(state);
  values[6] = fl_tensor(query_start_loc);
  values[7] = fl_tensor(cache_indices);
  values[8] = fl_tensor(has_initial_state);
  values[9] = scale ? fl_float(*scale) : fl_none();
  values[10] = fl_bool(use_qk_l2norm);
  values[11] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 12, stream);
  return fl_invoke(ops->chunk_gated_delta_rule, &call);
}

/*
 * One step of the gated delta rule for each row of mixed_qkv, which is query, key and value of one token; its state is
 * slot cache_indices[i] (-1: the row is skipped, its result is 0).
 *     recurrent_gated_delta_rule(Tensor mixed_qkv, Tensor a, Tensor b, Tensor A_log, Tensor dt_bias, Tensor(a!) state,
 *         Tensor cache_indices, int num_k_heads, float? scale=None, bool use_qk_l2norm=True) -> Tensor out
 * where  state: S[s, H, v, c]
 *        mixed_qkv: T[n, 2*num_k_heads*c + H*v]
 *        a: T[n, H]
 *        b: T[n, H]
 *        A_log: T|float32[H]
 *        dt_bias: T|float32[H]
 *        cache_indices: int32|int64[n]
 *        out: T[n, H, v]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 * scale: NULL for none.
 * Formula: [q | k | v] = mixed_qkv; g = -exp(A_log) * softplus(a + dt_bias), softplus(x) = x above 20, beta =
 * sigmoid(b); q, k = x / sqrt(sum of x^2 + 1e-6) if use_qk_l2norm; q = q * scale (none: c^-0.5); S = S * exp(g); d =
 * (value - S k) * beta; S = S + d k^T; out = S q, S of v by c numbers, token after token; value head j uses query and
 * key head j / (H / h); in float32, out rounded to T from S before that is rounded to its own type (vLLM:
 * fused_recurrent_gated_delta_rule_packed_decode, fused_sigmoid_gating_delta_rule_update)
 */
static inline fl_status fl_recurrent_gated_delta_rule(const fl_ops *ops, void *stream, DLTensor *mixed_qkv, DLTensor *a,
                                                      DLTensor *b, DLTensor *A_log, DLTensor *dt_bias, DLTensor *state,
                                                      DLTensor *cache_indices, int64_t num_k_heads, const double *scale,
                                                      bool use_qk_l2norm, DLTensor *out) {
  fl_value values[11];
  values[0] = fl_required_tensor(mixed_qkv);
  values[1] = fl_required_tensor(a);
  values[2] = fl_required_tensor(b);
  values[3] = fl_required_tensor(A_log);
  values[4] = fl_required_tensor(dt_bias);
  values[5] = fl_required_tensor(state);
  values[6] = fl_required_tensor(cache_indices);
  values[7] = fl_int(num_k_heads);
  values[8] = scale ? fl_float(*scale) : fl_none();
  values[9] = fl_bool(use_qk_l2norm);
  values[10] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 11, stream);
  return fl_invoke(ops->recurrent_gated_delta_rule, &call);
}

/*
 * What a layer of Qwen3-Next does between its projections: the causal convolution, and the gated delta rule of what
 * comes out of it. Sequence i is query_start_loc[i] to [i + 1] (none: there is one), its state is slot cache_indices[i]
 * (none: i; -1: the sequence is skipped, its results are 0), which it begins from if has_initial_state[i] (none: it
 * does not).
 *     gdn_attention_core(Tensor mixed_qkv, Tensor a, Tensor b, Tensor conv_weight, Tensor? conv_bias, Tensor A_log,
 *         Tensor dt_bias, Tensor(a!)? conv_state, Tensor(b!)? state, int num_k_heads, int head_k_dim,
 *         Tensor? query_start_loc=None, Tensor? cache_indices=None, Tensor? has_initial_state=None) -> Tensor out
 * where  a: T[t, H]
 *        mixed_qkv: T[t, 2*num_k_heads*head_k_dim + H*v]
 *        b: T[t, H]
 *        conv_weight: T[2*num_k_heads*head_k_dim + H*v, w]
 *        conv_bias: T[2*num_k_heads*head_k_dim + H*v]
 *        A_log: T|float32[H]
 *        dt_bias: T|float32[H]
 *        conv_state: R[s, 2*num_k_heads*head_k_dim + H*v, w - 1]
 *        state: S[s, H, v, head_k_dim]
 *        query_start_loc: int32|int64[q + 1]
 *        cache_indices: int32|int64[q]
 *        has_initial_state: bool[q]
 *        out: T[t, H, v]
 *        T = float32|float16|bfloat16
 *        S = float32|float16|bfloat16
 *        R = float32|float16|bfloat16
 * conv_bias, conv_state, state, query_start_loc, cache_indices, has_initial_state: NULL for none.
 * Formula: [q | k | v] = causal_conv1d(mixed_qkv), silu, rounded to T; g = -exp(A_log) * softplus(a + dt_bias),
 * softplus(x) = x above 20, beta = sigmoid(b); out = chunk_gated_delta_rule(q, k, v, g, beta) with use_qk_l2norm; a
 * token of each sequence for decode (vLLM: gdn_attention_core)
 */
static inline fl_status fl_gdn_attention_core(const fl_ops *ops, void *stream, DLTensor *mixed_qkv, DLTensor *a,
                                              DLTensor *b, DLTensor *conv_weight, DLTensor *conv_bias, DLTensor *A_log,
                                              DLTensor *dt_bias, DLTensor *conv_state, DLTensor *state,
                                              int64_t num_k_heads, int64_t head_k_dim, DLTensor *query_start_loc,
                                              DLTensor *cache_indices, DLTensor *has_initial_state, DLTensor *out) {
  fl_value values[15];
  values[0] = fl_required_tensor(mixed_qkv);
  values[1] = fl_required_tensor(a);
  values[2] = fl_required_tensor(b);
  values[3] = fl_required_tensor(conv_weight);
  values[4] = fl_tensor(conv_bias);
  values[5] = fl_required_tensor(A_log);
  values[6] = fl_required_tensor(dt_bias);
  values[7] = fl_tensor(conv_state);
  values[8] = fl_tensor(state);
  values[9] = fl_int(num_k_heads);
  values[10] = fl_int(head_k_dim);
  values[11] = fl_tensor(query_start_loc);
  values[12] = fl_tensor(cache_indices);
  values[13] = fl_tensor(has_initial_state);
  values[14] = fl_required_tensor(out);
  fl_call call;
  fl_ops_call(&call, values, 15, stream);
  return fl_invoke(ops->gdn_attention_core, &call);
}

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_OPS_H */
