/*
 * What the files of the CPU backend share: its kernels, and how they read a call.
 *
 * The host has checked a call against the op's schema before a kernel sees it (number, types and shapes of the values).
 * Kernels still answer for what the schema leaves open: element types of secondary tensors, and indices in data.
 */
#ifndef FLHOST_CPU_H
#define FLHOST_CPU_H

#include <flhost/plugin.h>

/* Element types that the kernels compute with, as an index into their tables. */
typedef enum cpu_dtype { CPU_FLOAT32, CPU_FLOAT16, CPU_BFLOAT16, CPU_N_DTYPES, CPU_OTHER = CPU_N_DTYPES } cpu_dtype;

static inline cpu_dtype cpu_dtype_of(const DLTensor *tensor) {
  DLDataType type = tensor->dtype;
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 32)
    return CPU_FLOAT32;
  if (type.lanes == 1 && type.code == kDLFloat && type.bits == 16)
    return CPU_FLOAT16;
  if (type.lanes == 1 && type.code == kDLBfloat && type.bits == 16)
    return CPU_BFLOAT16;
  return CPU_OTHER;
}

static inline int64_t cpu_dtype_size(cpu_dtype dtype) {
  return dtype == CPU_FLOAT32 ? 4 : 2;
}

/* The tensor at `index` of a call; NULL if there is none. */
static inline DLTensor *cpu_tensor(const fl_call *call, uint32_t index) {
  return call->values[index].type == FL_TENSOR ? call->values[index].v.tensor : NULL;
}

/* The standard normal distribution's quantile, in the steps of PyTorch's float32. */
float cpu_normal_quantile(double probability);

fl_status cpu_attention_backend(void *self, fl_call *call);
fl_status cpu_vocab_parallel_embedding(void *self, fl_call *call);

fl_status cpu_reference_silu_and_mul(void *self, fl_call *call);
fl_status cpu_reference_mul_and_silu(void *self, fl_call *call);
fl_status cpu_reference_gelu_and_mul(void *self, fl_call *call);
fl_status cpu_reference_gelu_and_mul_sparse(void *self, fl_call *call);
fl_status cpu_reference_swigluoai_and_mul(void *self, fl_call *call);
fl_status cpu_reference_fatrelu_and_mul(void *self, fl_call *call);
fl_status cpu_reference_silu_and_mul_with_clamp(void *self, fl_call *call);
fl_status cpu_reference_swiglustep_and_mul(void *self, fl_call *call);
fl_status cpu_reference_situ_and_mul(void *self, fl_call *call);
fl_status cpu_reference_gelu(void *self, fl_call *call);
fl_status cpu_reference_gelu_new(void *self, fl_call *call);
fl_status cpu_reference_gelu_fast(void *self, fl_call *call);
fl_status cpu_reference_quick_gelu(void *self, fl_call *call);
fl_status cpu_reference_relu2(void *self, fl_call *call);
fl_status cpu_reference_xielu(void *self, fl_call *call);
fl_status cpu_reference_rms_norm(void *self, fl_call *call);
fl_status cpu_reference_gemma_rms_norm(void *self, fl_call *call);
fl_status cpu_reference_rms_norm_gated(void *self, fl_call *call);
fl_status cpu_reference_mixer2_gated_rms_norm(void *self, fl_call *call);
fl_status cpu_reference_rotary_embedding(void *self, fl_call *call);
fl_status cpu_reference_apply_rotary_emb(void *self, fl_call *call);
fl_status cpu_reference_dual_chunk_rotary_embedding(void *self, fl_call *call);
fl_status cpu_reference_quant_fp8(void *self, fl_call *call);
fl_status cpu_reference_mm_encoder_attn(void *self, fl_call *call);
fl_status cpu_reference_mla_prefill(void *self, fl_call *call);
fl_status cpu_reference_mla_decode(void *self, fl_call *call);
fl_status cpu_reference_merge_attn_states(void *self, fl_call *call);
fl_status cpu_reference_multi_head_latent_attention(void *self, fl_call *call);
fl_status cpu_reference_replicated_linear(void *self, fl_call *call);
fl_status cpu_reference_column_parallel_linear(void *self, fl_call *call);
fl_status cpu_reference_row_parallel_linear(void *self, fl_call *call);
fl_status cpu_reference_parallel_lm_head(void *self, fl_call *call);
fl_status cpu_reference_logits_processor(void *self, fl_call *call);
fl_status cpu_reference_convolution(void *self, fl_call *call);

fl_status cpu_flagos_silu_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_mul_and_silu(void *self, fl_call *call);
fl_status cpu_flagos_gelu_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_gelu_and_mul_sparse(void *self, fl_call *call);
fl_status cpu_flagos_swigluoai_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_fatrelu_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_silu_and_mul_with_clamp(void *self, fl_call *call);
fl_status cpu_flagos_swiglustep_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_situ_and_mul(void *self, fl_call *call);
fl_status cpu_flagos_gelu(void *self, fl_call *call);
fl_status cpu_flagos_gelu_new(void *self, fl_call *call);
fl_status cpu_flagos_gelu_fast(void *self, fl_call *call);
fl_status cpu_flagos_quick_gelu(void *self, fl_call *call);
fl_status cpu_flagos_relu2(void *self, fl_call *call);
fl_status cpu_flagos_xielu(void *self, fl_call *call);
fl_status cpu_flagos_rms_norm(void *self, fl_call *call);
fl_status cpu_flagos_gemma_rms_norm(void *self, fl_call *call);
fl_status cpu_flagos_rms_norm_gated(void *self, fl_call *call);
fl_status cpu_flagos_mixer2_gated_rms_norm(void *self, fl_call *call);
fl_status cpu_flagos_rotary_embedding(void *self, fl_call *call);
fl_status cpu_flagos_apply_rotary_emb(void *self, fl_call *call);
fl_status cpu_flagos_dual_chunk_rotary_embedding(void *self, fl_call *call);
fl_status cpu_flagos_quant_fp8(void *self, fl_call *call);
fl_status cpu_flagos_mm_encoder_attn(void *self, fl_call *call);
fl_status cpu_flagos_mla_prefill(void *self, fl_call *call);
fl_status cpu_flagos_mla_decode(void *self, fl_call *call);
fl_status cpu_flagos_merge_attn_states(void *self, fl_call *call);
fl_status cpu_flagos_multi_head_latent_attention(void *self, fl_call *call);
fl_status cpu_flagos_replicated_linear(void *self, fl_call *call);
fl_status cpu_flagos_column_parallel_linear(void *self, fl_call *call);
fl_status cpu_flagos_row_parallel_linear(void *self, fl_call *call);
fl_status cpu_flagos_parallel_lm_head(void *self, fl_call *call);
fl_status cpu_flagos_logits_processor(void *self, fl_call *call);
fl_status cpu_flagos_convolution(void *self, fl_call *call);

/* Mixture of experts. */
fl_status cpu_moe_align_block_size(void *self, fl_call *call);
fl_status cpu_reference_grouped_topk(void *self, fl_call *call);
fl_status cpu_reference_topk_softmax(void *self, fl_call *call);
fl_status cpu_reference_moe_sum(void *self, fl_call *call);
fl_status cpu_reference_routed_moe(void *self, fl_call *call);
fl_status cpu_reference_transformers_moe(void *self, fl_call *call);
fl_status cpu_reference_fused_moe(void *self, fl_call *call);
fl_status cpu_flagos_grouped_topk(void *self, fl_call *call);
fl_status cpu_flagos_topk_softmax(void *self, fl_call *call);
fl_status cpu_flagos_moe_sum(void *self, fl_call *call);
fl_status cpu_flagos_routed_moe(void *self, fl_call *call);
fl_status cpu_flagos_transformers_moe(void *self, fl_call *call);
fl_status cpu_flagos_fused_moe(void *self, fl_call *call);

/* State-space models. */
fl_status cpu_reference_causal_conv1d(void *self, fl_call *call);
fl_status cpu_reference_selective_scan(void *self, fl_call *call);
fl_status cpu_reference_mamba_chunk_scan(void *self, fl_call *call);
fl_status cpu_reference_mamba_mixer(void *self, fl_call *call);
fl_status cpu_reference_mamba_mixer2(void *self, fl_call *call);
fl_status cpu_reference_plamo2_mamba_mixer(void *self, fl_call *call);
fl_status cpu_reference_short_conv(void *self, fl_call *call);
fl_status cpu_flagos_causal_conv1d(void *self, fl_call *call);
fl_status cpu_flagos_selective_scan(void *self, fl_call *call);
fl_status cpu_flagos_mamba_chunk_scan(void *self, fl_call *call);
fl_status cpu_flagos_mamba_mixer(void *self, fl_call *call);
fl_status cpu_flagos_mamba_mixer2(void *self, fl_call *call);
fl_status cpu_flagos_plamo2_mamba_mixer(void *self, fl_call *call);
fl_status cpu_flagos_short_conv(void *self, fl_call *call);

#endif
