/*
 * The CPU backend: for each op a reference implementation (plain C that computes what vLLM's forward_native computes,
 * step by step) and a default one (portable C, optimised). Needs the C library and libm only.
 */
#include "plugins/cpu/cpu.h"

FL_PLUGIN("cpu", FLHOST_VERSION, "flhost", "Apache-2.0", "");

#define REFERENCE .impl_id = "reference.c", .kind = FL_KIND_REFERENCE
#define FLAGOS    .impl_id = "default.flagos", .kind = FL_KIND_DEFAULT

static const fl_impl impls[] = {
    {.op_name = "silu_and_mul", REFERENCE, .fn = cpu_reference_silu_and_mul},
    {.op_name = "silu_and_mul", FLAGOS, .fn = cpu_flagos_silu_and_mul},
    {.op_name = "mul_and_silu", REFERENCE, .fn = cpu_reference_mul_and_silu},
    {.op_name = "mul_and_silu", FLAGOS, .fn = cpu_flagos_mul_and_silu},
    {.op_name = "gelu_and_mul", REFERENCE, .fn = cpu_reference_gelu_and_mul},
    {.op_name = "gelu_and_mul", FLAGOS, .fn = cpu_flagos_gelu_and_mul},
    {.op_name = "gelu_and_mul_sparse", REFERENCE, .fn = cpu_reference_gelu_and_mul_sparse},
    {.op_name = "gelu_and_mul_sparse", FLAGOS, .fn = cpu_flagos_gelu_and_mul_sparse},
    {.op_name = "swigluoai_and_mul", REFERENCE, .fn = cpu_reference_swigluoai_and_mul},
    {.op_name = "swigluoai_and_mul", FLAGOS, .fn = cpu_flagos_swigluoai_and_mul},
    {.op_name = "fatrelu_and_mul", REFERENCE, .fn = cpu_reference_fatrelu_and_mul},
    {.op_name = "fatrelu_and_mul", FLAGOS, .fn = cpu_flagos_fatrelu_and_mul},
    {.op_name = "silu_and_mul_with_clamp", REFERENCE, .fn = cpu_reference_silu_and_mul_with_clamp},
    {.op_name = "silu_and_mul_with_clamp", FLAGOS, .fn = cpu_flagos_silu_and_mul_with_clamp},
    {.op_name = "swiglustep_and_mul", REFERENCE, .fn = cpu_reference_swiglustep_and_mul},
    {.op_name = "swiglustep_and_mul", FLAGOS, .fn = cpu_flagos_swiglustep_and_mul},
    {.op_name = "situ_and_mul", REFERENCE, .fn = cpu_reference_situ_and_mul},
    {.op_name = "situ_and_mul", FLAGOS, .fn = cpu_flagos_situ_and_mul},
    {.op_name = "gelu", REFERENCE, .fn = cpu_reference_gelu},
    {.op_name = "gelu", FLAGOS, .fn = cpu_flagos_gelu},
    {.op_name = "gelu_new", REFERENCE, .fn = cpu_reference_gelu_new},
    {.op_name = "gelu_new", FLAGOS, .fn = cpu_flagos_gelu_new},
    {.op_name = "gelu_fast", REFERENCE, .fn = cpu_reference_gelu_fast},
    {.op_name = "gelu_fast", FLAGOS, .fn = cpu_flagos_gelu_fast},
    {.op_name = "quick_gelu", REFERENCE, .fn = cpu_reference_quick_gelu},
    {.op_name = "quick_gelu", FLAGOS, .fn = cpu_flagos_quick_gelu},
    {.op_name = "relu2", REFERENCE, .fn = cpu_reference_relu2},
    {.op_name = "relu2", FLAGOS, .fn = cpu_flagos_relu2},
    {.op_name = "xielu", REFERENCE, .fn = cpu_reference_xielu},
    {.op_name = "xielu", FLAGOS, .fn = cpu_flagos_xielu},
    {.op_name = "rms_norm", REFERENCE, .fn = cpu_reference_rms_norm},
    {.op_name = "rms_norm", FLAGOS, .fn = cpu_flagos_rms_norm},
    {.op_name = "fused_add_rms_norm", REFERENCE, .fn = cpu_reference_rms_norm},
    {.op_name = "fused_add_rms_norm", FLAGOS, .fn = cpu_flagos_rms_norm},
    {.op_name = "gemma_rms_norm", REFERENCE, .fn = cpu_reference_gemma_rms_norm},
    {.op_name = "gemma_rms_norm", FLAGOS, .fn = cpu_flagos_gemma_rms_norm},
    {.op_name = "rms_norm_gated", REFERENCE, .fn = cpu_reference_rms_norm_gated},
    {.op_name = "rms_norm_gated", FLAGOS, .fn = cpu_flagos_rms_norm_gated},
    {.op_name = "mixer2_gated_rms_norm", REFERENCE, .fn = cpu_reference_mixer2_gated_rms_norm},
    {.op_name = "mixer2_gated_rms_norm", FLAGOS, .fn = cpu_flagos_mixer2_gated_rms_norm},
    {.op_name = "rotary_embedding", REFERENCE, .fn = cpu_reference_rotary_embedding},
    {.op_name = "rotary_embedding", FLAGOS, .fn = cpu_flagos_rotary_embedding},
    {.op_name = "apply_rotary_emb", REFERENCE, .fn = cpu_reference_apply_rotary_emb},
    {.op_name = "apply_rotary_emb", FLAGOS, .fn = cpu_flagos_apply_rotary_emb},
    {.op_name = "dual_chunk_rotary_embedding", REFERENCE, .fn = cpu_reference_dual_chunk_rotary_embedding},
    {.op_name = "dual_chunk_rotary_embedding", FLAGOS, .fn = cpu_flagos_dual_chunk_rotary_embedding},
    {.op_name = "quant_fp8", REFERENCE, .fn = cpu_reference_quant_fp8},
    {.op_name = "quant_fp8", FLAGOS, .fn = cpu_flagos_quant_fp8},
    {.op_name = "attention_backend", REFERENCE, .fn = cpu_attention_backend},
    {.op_name = "attention_backend", FLAGOS, .fn = cpu_attention_backend},
    {.op_name = "grouped_topk", REFERENCE, .fn = cpu_reference_grouped_topk},
    {.op_name = "grouped_topk", FLAGOS, .fn = cpu_flagos_grouped_topk},
    {.op_name = "topk_softmax", REFERENCE, .fn = cpu_reference_topk_softmax},
    {.op_name = "topk_softmax", FLAGOS, .fn = cpu_flagos_topk_softmax},
    {.op_name = "moe_align_block_size", REFERENCE, .fn = cpu_moe_align_block_size},
    {.op_name = "moe_align_block_size", FLAGOS, .fn = cpu_moe_align_block_size},
    {.op_name = "moe_sum", REFERENCE, .fn = cpu_reference_moe_sum},
    {.op_name = "moe_sum", FLAGOS, .fn = cpu_flagos_moe_sum},
    {.op_name = "unquantized_fused_moe", REFERENCE, .fn = cpu_reference_routed_moe},
    {.op_name = "unquantized_fused_moe", FLAGOS, .fn = cpu_flagos_routed_moe},
    {.op_name = "modular_fused_moe", REFERENCE, .fn = cpu_reference_routed_moe},
    {.op_name = "modular_fused_moe", FLAGOS, .fn = cpu_flagos_routed_moe},
    {.op_name = "transformers_fused_moe", REFERENCE, .fn = cpu_reference_transformers_moe},
    {.op_name = "transformers_fused_moe", FLAGOS, .fn = cpu_flagos_transformers_moe},
    {.op_name = "fused_moe", REFERENCE, .fn = cpu_reference_fused_moe},
    {.op_name = "fused_moe", FLAGOS, .fn = cpu_flagos_fused_moe},
    {.op_name = "causal_conv1d", REFERENCE, .fn = cpu_reference_causal_conv1d},
    {.op_name = "causal_conv1d", FLAGOS, .fn = cpu_flagos_causal_conv1d},
    {.op_name = "selective_scan", REFERENCE, .fn = cpu_reference_selective_scan},
    {.op_name = "selective_scan", FLAGOS, .fn = cpu_flagos_selective_scan},
    {.op_name = "mamba_chunk_scan", REFERENCE, .fn = cpu_reference_mamba_chunk_scan},
    {.op_name = "mamba_chunk_scan", FLAGOS, .fn = cpu_flagos_mamba_chunk_scan},
    {.op_name = "mamba_mixer", REFERENCE, .fn = cpu_reference_mamba_mixer},
    {.op_name = "mamba_mixer", FLAGOS, .fn = cpu_flagos_mamba_mixer},
    {.op_name = "mamba_mixer2", REFERENCE, .fn = cpu_reference_mamba_mixer2},
    {.op_name = "mamba_mixer2", FLAGOS, .fn = cpu_flagos_mamba_mixer2},
    {.op_name = "plamo2_mamba_mixer", REFERENCE, .fn = cpu_reference_plamo2_mamba_mixer},
    {.op_name = "plamo2_mamba_mixer", FLAGOS, .fn = cpu_flagos_plamo2_mamba_mixer},
    {.op_name = "short_conv", REFERENCE, .fn = cpu_reference_short_conv},
    {.op_name = "short_conv", FLAGOS, .fn = cpu_flagos_short_conv},
};

fl_status register_builtins(fl_registry *registry) {
  for (size_t i = 0; i < sizeof impls / sizeof impls[0]; i++) {
    fl_impl impl = impls[i];
    impl.size = sizeof impl;
    impl.flags = FL_IMPL_DETERMINISTIC; /* one thread, one order */
    impl.devices = FL_DEVICE(kDLCPU);
    fl_status status = registry->register_impl(registry, &impl);
    if (status)
      return status;
  }
  return FL_OK;
}
