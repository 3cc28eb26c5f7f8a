/* The entries by name, for the table in ops.c and for the files that define them. */
#ifndef FLHOST_CORE_OPS_ENTRIES_H
#define FLHOST_CORE_OPS_ENTRIES_H

#include <flhost/plugin.h>

/* activation.c */
extern const fl_op_def fl_op_silu_and_mul, fl_op_mul_and_silu, fl_op_gelu_and_mul, fl_op_gelu_and_mul_sparse,
    fl_op_swigluoai_and_mul, fl_op_fatrelu_and_mul, fl_op_silu_and_mul_with_clamp, fl_op_swiglustep_and_mul,
    fl_op_situ_and_mul, fl_op_gelu, fl_op_gelu_new, fl_op_gelu_fast, fl_op_quick_gelu, fl_op_relu2, fl_op_xielu;
/* normalisation.c */
extern const fl_op_def fl_op_rms_norm, fl_op_fused_add_rms_norm, fl_op_gemma_rms_norm, fl_op_rms_norm_gated,
    fl_op_mixer2_gated_rms_norm;
/* rotary.c */
extern const fl_op_def fl_op_rotary_embedding, fl_op_apply_rotary_emb, fl_op_dual_chunk_rotary_embedding;
/* quantisation.c */
extern const fl_op_def fl_op_quant_fp8;
/* attention.c */
extern const fl_op_def fl_op_attention_backend, fl_op_mm_encoder_attn, fl_op_mla_prefill, fl_op_mla_decode;
extern const fl_op_def fl_op_merge_attn_states, fl_op_multi_head_latent_attention;
/* linear.c */
extern const fl_op_def fl_op_replicated_linear, fl_op_column_parallel_linear, fl_op_row_parallel_linear;
/* embedding.c */
extern const fl_op_def fl_op_vocab_parallel_embedding, fl_op_parallel_lm_head, fl_op_logits_processor;
/* convolution.c */
extern const fl_op_def fl_op_conv2d, fl_op_conv3d;
/* moe.c */
extern const fl_op_def fl_op_grouped_topk, fl_op_topk_softmax, fl_op_moe_align_block_size, fl_op_moe_sum,
    fl_op_unquantized_fused_moe, fl_op_modular_fused_moe, fl_op_transformers_fused_moe, fl_op_fused_moe;
/* state_space.c */
extern const fl_op_def fl_op_causal_conv1d, fl_op_selective_scan, fl_op_mamba_chunk_scan, fl_op_mamba_mixer,
    fl_op_mamba_mixer2, fl_op_plamo2_mamba_mixer, fl_op_short_conv;

#endif
