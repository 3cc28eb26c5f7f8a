/* Which architecture is made of which blocks, and the pass through the layers: see llm.h. */
#include "llm.h"

#include <string.h>

/* Names of weights. */
typedef struct names {
  const char *embedding, *norm, *mixer_norm, *feed_forward_norm; /* the last NULL: layers have but a mixer */
} names;

static const names decoder = {"model.embed_tokens.weight", "model.norm.weight",
                              "model.layers.%d.input_layernorm.weight",
                              "model.layers.%d.post_attention_layernorm.weight"};
static const names backbone = {"backbone.embeddings.weight", "backbone.norm_f.weight", "backbone.layers.%d.norm.weight",
                               NULL};

static block qwen3_next_mixer(model *m, int64_t layer) {
  const json_t *kinds = json_object_get(m->files.config, "layer_types");
  const char *kind = json_string_value(json_array_get(kinds, (size_t)layer));
  return kind && !strcmp(kind, "linear_attention") ? delta_net_block(m, layer) : attention_block(m, layer);
}

static const struct architecture {
  const char *name; /* as config.json has it */
  const names *names;
  block (*mixer)(model *m, int64_t layer);
  bool norms_from_one;
} architectures[] = {
    {"LlamaForCausalLM", &decoder, attention_block, false},
    {"MistralForCausalLM", &decoder, attention_block, false},
    {"Qwen2ForCausalLM", &decoder, attention_block, false},
    {"Qwen3ForCausalLM", &decoder, attention_block, false},
    {"MixtralForCausalLM", &decoder, attention_block, false},
    {"Qwen2MoeForCausalLM", &decoder, attention_block, false},
    {"Qwen3MoeForCausalLM", &decoder, attention_block, false},
    {"GptOssForCausalLM", &decoder, attention_block, false},
    {"DeepseekV2ForCausalLM", &decoder, latent_block, false},
    {"DeepseekV3ForCausalLM", &decoder, latent_block, false},
    {"Qwen3NextForCausalLM", &decoder, qwen3_next_mixer, true},
    {"Mamba2ForCausalLM", &backbone, mamba2_block, false},
};

static const struct architecture *architecture_of(const model *m) {
  const char *name = json_string_value(json_array_get(json_object_get(m->files.config, "architectures"), 0));
  for (size_t i = 0; name && i < sizeof architectures / sizeof *architectures; i++)
    if (!strcmp(architectures[i].name, name))
      return &architectures[i];
  fail("config.json: architecture '%s' is not known here", name ? name : "");
}

DLTensor *stored_weight(const model *m, const char *name, int64_t layer) {
  char whole[256];
  const char *number = strstr(name, "%d");
  int before = number ? (int)(number - name) : (int)strlen(name);
  int n = snprintf(whole, sizeof whole, "%.*s", before, name);
  if (number)
    snprintf(whole + n, sizeof whole - (size_t)n, "%lld%s", (long long)layer, number + 2);
  return checkpoint_find(&m->files, whole);
}

DLTensor *optional_weight(model *m, const char *name, int64_t layer) {
  DLTensor *found = stored_weight(m, name, layer);
  if (found && found->dtype.bits == 8)
    fail("'%s' of layer %lld is a code with a scale elsewhere, which is not known here", name, (long long)layer);
  DLTensor *made = converted(&m->kept, found, m->dtype);
  if (made != found)
    checkpoint_release(&m->files, found);
  return made;
}

DLTensor *weight(model *m, const char *name, int64_t layer) {
  DLTensor *found = optional_weight(m, name, layer);
  if (!found)
    fail("the checkpoint has no '%s' of layer %lld", name, (long long)layer);
  return found;
}

projection find_projection(model *m, const char *name, int64_t layer) {
  char weight_name[256], bias_name[256];
  snprintf(weight_name, sizeof weight_name, "%s.weight", name);
  snprintf(bias_name, sizeof bias_name, "%s.bias", name);
  return projected(m, weight(m, weight_name, layer), optional_weight(m, bias_name, layer));
}

void model_open(model *m, fl_host *host, const char *directory, const char *dtype) {
  static const int64_t usual = 2048;
  ok(fl_ops_init(&m->ops, host));
  checkpoint_open(&m->files, directory, &m->kept);
  const struct architecture *a = architecture_of(m);
  DLTensor *embedding = checkpoint_find(&m->files, a->names->embedding);
  const fl_element_type *type = dtype ? fl_element_type_named(dtype) : NULL;
  if (dtype && (!type || !(type->bit & (FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16))))
    fail("element type '%s': expected float32, float16 or bfloat16", dtype);
  if (!embedding || embedding->ndim != 2)
    fail("the checkpoint has no '%s'", a->names->embedding);
  m->dtype = type ? type->dtype : embedding->dtype;
  m->vocabulary = embedding->shape[0];
  m->hidden = embedding->shape[1];
  m->n_layers = config_int(&m->files, "num_hidden_layers", NULL);
  m->longest = config_int(&m->files, "max_position_embeddings", &usual);
  m->epsilon =
      config_number(m->files.config, "rms_norm_eps", config_number(m->files.config, "layer_norm_epsilon", 1e-6));
  m->norms_from_one = a->norms_from_one;
  m->embedding = weight(m, a->names->embedding, 0);
  m->norm = weight(m, a->names->norm, 0);
  m->head = config_is(&m->files, "tie_word_embeddings", false) ? m->embedding : weight(m, "lm_head.weight", 0);
  m->layers = arena_take(&m->kept, (size_t)m->n_layers * sizeof *m->layers);
  for (int64_t i = 0; i < m->n_layers; i++) {
    m->layers[i] = (model_layer){.mixer_norm = weight(m, a->names->mixer_norm, i), .mixer = a->mixer(m, i)};
    if (!a->names->feed_forward_norm)
      continue;
    m->layers[i].feed_forward_norm = weight(m, a->names->feed_forward_norm, i);
    m->layers[i].feed_forward = feed_forward_block(m, i);
  }
}

void model_close(model *m) {
  checkpoint_close(&m->files);
  arena_reset(&m->kept);
  arena_reset(&m->step);
}

DLTensor *linear(model *m, DLTensor *x, const projection *p) {
  DLTensor *out = tensor(&m->step, m->dtype, SHAPE(x->shape[0], p->n));
  linear_into(m, x, p, out);
  return out;
}

void norm(model *m, DLTensor *x, DLTensor *residual, DLTensor *weight) {
  if (m->norms_from_one)
    ok(fl_gemma_rms_norm(&m->ops, NULL, x, residual, weight, m->epsilon, x, residual));
  else
    ok(fl_rms_norm(&m->ops, NULL, x, residual, weight, m->epsilon, NULL, x, residual));
}

/* Rows of x. */
static DLTensor *rows_of(model *m, DLTensor *x, DLTensor *rows) {
  DLTensor *out = tensor(&m->step, m->dtype, SHAPE(rows->shape[0], m->hidden));
  ok(fl_vocab_parallel_embedding(&m->ops, NULL, rows, x, 0, NULL, 0, 0, 0, out));
  return out;
}

/* The residual is what the layers add to; x what goes through them. Each norm adds x to it first. */
DLTensor *model_run(model *m, const batch *b) {
  DLTensor *residual = rows_of(m, m->embedding, b->ids), *x = tensor(&m->step, m->dtype, SHAPE(b->n_tokens, m->hidden));
  memset(x->data, 0, bytes(x));
  for (int64_t i = 0; i < m->n_layers; i++) {
    const model_layer *l = &m->layers[i];
    norm(m, x, residual, l->mixer_norm);
    x = l->mixer.run(m, l->mixer.self, b, x);
    if (!l->feed_forward.run)
      continue;
    norm(m, x, residual, l->feed_forward_norm);
    x = l->feed_forward.run(m, l->feed_forward.self, b, x);
  }
  norm(m, x, residual, m->norm);
  DLTensor *last = rows_of(m, x, b->wanted),
           *logits = tensor(&m->step, m->dtype, SHAPE(b->wanted->shape[0], m->vocabulary));
  ok(fl_parallel_lm_head(&m->ops, NULL, last, m->head, NULL, logits));
  return converted(&m->step, logits, float32);
}
