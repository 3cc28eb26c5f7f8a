/* The table of built-in ops, in the order of lists and docs. */
#include "core/ops/ops.h"

#include "core/ops/entries.h"

const fl_op_def *const fl_builtin_ops[] = {
    &fl_op_silu_and_mul,
    &fl_op_gelu_and_mul,
    &fl_op_rms_norm,
    &fl_op_fused_add_rms_norm,
    &fl_op_rotary_embedding,
    &fl_op_attention_backend,
    &fl_op_mm_encoder_attn,
    &fl_op_mla_prefill,
    &fl_op_mla_decode,
    &fl_op_merge_attn_states,
    &fl_op_multi_head_latent_attention,
    &fl_op_replicated_linear,
    &fl_op_column_parallel_linear,
    &fl_op_row_parallel_linear,
    &fl_op_vocab_parallel_embedding,
    &fl_op_parallel_lm_head,
    &fl_op_logits_processor,
    &fl_op_conv2d,
    &fl_op_conv3d,
    NULL,
};
