/* The table of built-in ops, in the order of lists and docs. */
#include "core/ops/ops.h"

#include "core/ops/entries.h"

const fl_op_def *const fl_builtin_ops[] = {
    &fl_op_silu_and_mul,
    &fl_op_mul_and_silu,
    &fl_op_gelu_and_mul,
    &fl_op_gelu_and_mul_sparse,
    &fl_op_swigluoai_and_mul,
    &fl_op_fatrelu_and_mul,
    &fl_op_silu_and_mul_with_clamp,
    &fl_op_swiglustep_and_mul,
    &fl_op_situ_and_mul,
    &fl_op_gelu,
    &fl_op_gelu_new,
    &fl_op_gelu_fast,
    &fl_op_quick_gelu,
    &fl_op_relu2,
    &fl_op_xielu,
    &fl_op_rms_norm,
    &fl_op_fused_add_rms_norm,
    &fl_op_gemma_rms_norm,
    &fl_op_rms_norm_gated,
    &fl_op_mixer2_gated_rms_norm,
    &fl_op_rotary_embedding,
    &fl_op_apply_rotary_emb,
    &fl_op_dual_chunk_rotary_embedding,
    &fl_op_quant_fp8,
    &fl_op_attention_backend,
    NULL,
};
