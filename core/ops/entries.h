/* The built-in ops by name, in the order of lists and docs: the one place beside its entry where an op is named. */
#ifndef FLHOST_CORE_OPS_ENTRIES_H
#define FLHOST_CORE_OPS_ENTRIES_H

#include <flhost/plugin.h>

/* clang-format off */
#define FL_BUILTIN_OPS(op)                                                                                          \
  /* activation.c */                                                                                                \
  op(silu_and_mul) op(mul_and_silu) op(gelu_and_mul) op(gelu_and_mul_sparse) op(swigluoai_and_mul)                  \
  op(fatrelu_and_mul) op(silu_and_mul_with_clamp) op(swiglustep_and_mul) op(situ_and_mul) op(gelu) op(gelu_new)     \
  op(gelu_fast) op(quick_gelu) op(relu2) op(xielu)                                                                  \
  /* normalisation.c */                                                                                             \
  op(rms_norm) op(fused_add_rms_norm) op(gemma_rms_norm) op(rms_norm_gated) op(mixer2_gated_rms_norm)               \
  op(layer_norm)                                                                                                    \
  op(nemotron_layer_norm)                                                                                           \
  /* elementwise.c */                                                                                               \
  op(add) op(sigmoid_mul)                                                                                           \
  /* rotary.c */                                                                                                    \
  op(rotary_embedding) op(apply_rotary_emb) op(dual_chunk_rotary_embedding) op(fused_qk_norm_rope) op(mrope)        \
  /* quantisation.c */                                                                                              \
  op(quant_fp8) op(scaled_int8_quant)                                                                               \
  /* fused_quantisation.c */                                                                                        \
  op(rms_norm_static_fp8_quant) op(fused_add_rms_norm_static_fp8_quant) op(rms_norm_dynamic_per_token_quant)        \
  op(silu_and_mul_quant) op(silu_and_mul_per_block_quant)                                                           \
  /* attention.c */                                                                                                 \
  op(attention_backend) op(mm_encoder_attn) op(mla_prefill) op(mla_decode) op(merge_attn_states)                    \
  op(multi_head_latent_attention)                                                                                   \
  /* latent_attention.c */                                                                                          \
  op(concat_and_cache_mla) op(mla_paged_attention)                                                                  \
  /* paged_attention.c */                                                                                           \
  op(paged_attention) op(reshape_and_cache)                                                                         \
  /* linear.c */                                                                                                    \
  op(replicated_linear) op(column_parallel_linear) op(row_parallel_linear)                                          \
  /* quantised_linear.c */                                                                                          \
  op(scaled_mm) op(weight_only_linear) op(awq_linear) op(gptq_linear) op(mxfp4_linear)                                                     \
  /* embedding.c */                                                                                                 \
  op(vocab_parallel_embedding) op(parallel_lm_head) op(logits_processor)                                            \
  /* convolution.c */                                                                                               \
  op(conv2d) op(conv3d)                                                                                             \
  /* moe.c */                                                                                                       \
  op(grouped_topk) op(topk_softmax) op(moe_align_block_size) op(moe_sum) op(unquantized_fused_moe)                  \
  op(modular_fused_moe) op(transformers_fused_moe) op(fused_moe)                                                    \
  /* ranks.c */                                                                                                     \
  op(tensor_model_parallel_all_reduce) op(all_reduce_fused_add_rms_norm)                                                                  \
  /* state_space.c */                                                                                               \
  op(causal_conv1d) op(selective_scan) op(mamba_chunk_scan) op(mamba_mixer) op(mamba_mixer2) op(plamo2_mamba_mixer) \
  op(short_conv)                                                                                                    \
  /* sampling.c */                                                                                                  \
  op(apply_penalties) op(apply_temperature) op(apply_min_p) op(apply_top_k_top_p) op(greedy_argmax)                 \
  op(exponential_sample) op(gumbel_sample) op(gather_logprobs)                                                      \
  /* delta_rule.c */                                                                                                \
  op(chunk_gated_delta_rule) op(recurrent_gated_delta_rule) op(gdn_attention_core)
/* clang-format on */

#define FL_DECLARE_OP(name) extern const fl_op_def fl_op_##name;
FL_BUILTIN_OPS(FL_DECLARE_OP)
#undef FL_DECLARE_OP

#endif
