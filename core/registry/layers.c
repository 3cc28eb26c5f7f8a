/* Which op replaces a layer class of vLLM's: see layers.h. */
#include "core/registry/layers.h"

#include <string.h>

/* The classes of vLLM's CustomOp and PluggableLayer registries. `former` is what lists called the layer in the
 * dispatcher before flhost, where that is neither the class nor the op. */
static const struct {
  const char *class, *op, *former;
} classes[] = {
    /* activation */
    {"FastGELU", "gelu_fast", NULL},
    {"FatreluAndMul", "fatrelu_and_mul", NULL},
    {"GeluAndMul", "gelu_and_mul", NULL},
    {"GeluAndMulSparse", "gelu_and_mul_sparse", NULL},
    {"MulAndSilu", "mul_and_silu", NULL},
    {"NewGELU", "gelu_new", NULL},
    {"QuickGELU", "quick_gelu", NULL},
    {"ReLUSquaredActivation", "relu2", NULL},
    {"SiluAndMul", "silu_and_mul", NULL},
    {"SiluAndMulWithClamp", "silu_and_mul_with_clamp", NULL},
    {"SituAndMul", "situ_and_mul", NULL},
    {"SwigluOAIAndMul", "swigluoai_and_mul", NULL},
    {"SwigluStepAndMul", "swiglustep_and_mul", NULL},
    {"XIELU", "xielu", NULL},
    /* normalisation */
    {"GemmaRMSNorm", "gemma_rms_norm", NULL},
    {"Mixer2RMSNormGated", "mixer2_gated_rms_norm", NULL},
    {"RMSNorm", "rms_norm", NULL},
    {"RMSNormGated", "rms_norm_gated", NULL},
    /* rotary embedding */
    {"ApplyRotaryEmb", "apply_rotary_emb", NULL},
    {"DualChunkRotaryEmbedding", "dual_chunk_rotary_embedding", NULL},
    {"RotaryEmbedding", "rotary_embedding", NULL},
    /* quantisation, attention */
    {"MMEncoderAttention", "mm_encoder_attn", NULL},
    {"MultiHeadLatentAttentionWrapper", "multi_head_latent_attention", NULL},
    {"QuantFP8", "quant_fp8", NULL},
    /* linear, embedding, logits, convolution */
    {"ColumnParallelLinear", "column_parallel_linear", NULL},
    {"Conv2dLayer", "conv2d", NULL},
    {"Conv3dLayer", "conv3d", NULL},
    {"LogitsProcessor", "logits_processor", NULL},
    {"MergedColumnParallelLinear", "column_parallel_linear", NULL},
    {"ParallelLMHead", "parallel_lm_head", NULL},
    {"QKVParallelLinear", "column_parallel_linear", NULL},
    {"ReplicatedLinear", "replicated_linear", NULL},
    {"RowParallelLinear", "row_parallel_linear", NULL},
    {"VocabParallelEmbedding", "vocab_parallel_embedding", NULL},
    /* mixture of experts */
    {"FusedMoE", "fused_moe", NULL},
    {"FusedMoEModularMethod", "modular_fused_moe", NULL},
    {"GroupedTopk", "grouped_topk", NULL},
    {"TransformersFusedMoE", "transformers_fused_moe", NULL},
    {"TransformersMoERunner", "transformers_fused_moe", NULL},
    {"UnquantizedFusedMoEMethod", "unquantized_fused_moe", "unquantized_fused_moe_method"},
    /* state-space models */
    {"MambaMixer", "mamba_mixer", NULL},
    {"MambaMixer2", "mamba_mixer2", NULL},
    {"Plamo2MambaMixer", "plamo2_mamba_mixer", NULL},
    {"ShortConv", "short_conv", NULL},
};
enum { N_CLASSES = sizeof classes / sizeof *classes };

bool fl_layer_at(const fl_host *host, uint32_t i, fl_layer *layer) {
  if (i < N_CLASSES) {
    *layer = (fl_layer){classes[i].class, classes[i].op, classes[i].former, "flhost"};
    return true;
  }
  for (uint32_t c = 0, n = N_CLASSES; c < host->n_components; c++)
    if (host->components[c].op && n++ == i) {
      *layer = (fl_layer){host->components[c].name, host->components[c].op, NULL, host->components[c].plugin};
      return true;
    }
  return false;
}

bool fl_layer_find(const fl_host *host, const char *class, fl_layer *layer) {
  for (uint32_t i = 0; fl_layer_at(host, i, layer); i++)
    if (!strcmp(layer->class, class))
      return true;
  return false;
}
