/*
 * Out-of-tree replacement: which op replaces a layer class of vLLM's, and whether the switches and lists of the
 * settings let it. The classes that vLLM registers are in a table; plugins add their own (component type "layer").
 */
#include "core/registry/records.h"
#include "core/support/error.h"

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

/* The layers of a host in one row: those of the table, then those of plugins. The host's lock is held. */
static bool layer_at(const fl_host *host, uint32_t i, fl_layer *layer) {
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
  for (uint32_t i = 0; layer_at(host, i, layer); i++)
    if (!strcmp(layer->class, class))
      return true;
  return false;
}

/* -------------------------------------------------------------------------------------------------------- permission
 */

static bool lists(const fl_config_list *list, const fl_layer *layer) {
  return fl_strings_has(&list->names, layer->class) || fl_strings_has(&list->names, layer->op) ||
         (layer->former && fl_strings_has(&list->names, layer->former));
}

/* May the layer be replaced? If not, why. */
static bool is_allowed(const fl_config *config, const fl_layer *layer, fl_text *reason) {
  if (!config->oot_enabled)
    fl_text_add(reason, "out-of-tree replacement is off (%s)", fl_config_origin(config, "VLLM_FL_OOT_ENABLED"));
  else if (config->oot_whitelist.set && !lists(&config->oot_whitelist, layer))
    fl_text_add(reason, "not in the list of %s", config->oot_whitelist.origin);
  else if (!config->oot_whitelist.set && config->oot_blacklist.set && lists(&config->oot_blacklist, layer))
    fl_text_add(reason, "in oot_blacklist (%s)", config->oot_blacklist.origin);
  else
    return true;
  return false;
}

/* FL_ENOENT, with the nearest class. The host's lock is held. */
static fl_status no_such_class(const fl_host *host, const char *class) {
  char hint[FL_NAME_MAX + 32];
  fl_strings names = {0};
  fl_layer layer;
  for (uint32_t i = 0; layer_at(host, i, &layer); i++)
    if (!fl_strings_add(&names, layer.class))
      break; /* the hint may then be missing */
  fl_status status =
      fl_error(FL_ENOENT, "no op replaces a layer class '%s'%s", class,
               fl_did_you_mean(hint, sizeof hint, fl_nearest_word(class, (const char *const *)names.items, names.n)));
  fl_strings_free(&names);
  return status;
}

fl_op *fl_layer_op(fl_host *host, const char *class) {
  fl_layer layer;
  if (!fl_layer_find(host, class, &layer)) {
    no_such_class(host, class);
    return NULL;
  }
  fl_op *op = fl_registry_known(host, layer.op);
  if (!op)
    fl_error(FL_ENOENT, "layer class '%s' is replaced by op '%s', which is not registered", class, layer.op);
  return op;
}

const char *fl_oot_op(fl_host *host, const char *class) {
  fl_text reason = {0};
  fl_layer layer;
  pthread_mutex_lock(&host->lock);
  fl_op *op = fl_layer_op(host, class);
  if (op && fl_layer_find(host, class, &layer) && !is_allowed(host->config, &layer, &reason)) {
    fl_error(FL_ESTATE, "layer class '%s' is not replaced: %s", class, fl_text_get(&reason));
    op = NULL;
  }
  pthread_mutex_unlock(&host->lock);
  fl_text_free(&reason);
  return op ? op->name : NULL; /* an op stays */
}

const fl_replaced *fl_layers_of(const fl_host *host, const char *op, fl_arena *arena, uint32_t *n) {
  fl_layer layer;
  uint32_t most = 0;
  for (uint32_t i = 0; layer_at(host, i, &layer); i++)
    most += !strcmp(layer.op, op);
  fl_replaced *replaced = fl_arena_array(arena, most, sizeof *replaced);
  *n = 0;
  for (uint32_t i = 0; replaced && layer_at(host, i, &layer); i++) {
    fl_text reason = {0};
    if (strcmp(layer.op, op) != 0)
      continue;
    bool allowed = is_allowed(host->config, &layer, &reason);
    replaced[(*n)++] = (fl_replaced){
        .class_name = fl_arena_string(arena, layer.class),
        .allowed = allowed,
        .reason = allowed ? NULL : fl_arena_text(arena, &reason),
    };
  }
  return replaced;
}
