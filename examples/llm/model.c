/* Which architecture is made of which blocks, and the pass through the layers: see llm.h. */
#include "llm.h"

/* Names of weights, all behind the first; the last two behind "layers.3." or the like. */
static const struct names {
  const char *prefix, *embedding, *norm, *mixer_norm, *feed_forward_norm; /* the last NULL: layers have but a mixer */
} decoder = {"model.", "embed_tokens", "norm", "input_layernorm", "post_attention_layernorm"},
  backbone = {"backbone.", "embeddings", "norm_f", "norm", NULL};

static const struct architecture {
  const char *known[9]; /* as config.json has them, before "ForCausalLM" */
  const struct names *names;
  block_maker *mixer;
  bool norms_from_one;
} architectures[] = {
    {{"Llama", "Mistral", "Qwen2", "Qwen3", "Mixtral", "Qwen2Moe", "Qwen3Moe", "GptOss"},
     &decoder,
     attention_block,
     false},
    {{"Qwen3Next"}, &decoder, attention_block, true},
    {{"DeepseekV2", "DeepseekV3"}, &decoder, latent_block, false},
    {{"Mamba2"}, &backbone, mamba2_block, false},
};

static const struct architecture *architecture_of(const model *m) {
  const char *name = json_string_value(json_array_get(json_object_get(m->config, "architectures"), 0));
  for (size_t i = 0; name && i < sizeof architectures / sizeof *architectures; i++)
    for (const char *const *known = architectures[i].known; *known; known++)
      if (!strncmp(*known, name, strlen(*known)) && !strcmp(name + strlen(*known), "ForCausalLM"))
        return &architectures[i];
  fail("config.json: architecture '%s' is not known here", name ? name : "");
}

static void add_block(model *m, block_maker *make, const char *prefix, const char *norm) {
  block *made = &m->chain[m->n_chain++];
  *made = make(m, prefix);
  made->norm = weight(m, prefix, norm, ".weight", true);
}

static void add_layer(model *m, const struct architecture *a, int64_t i) {
  char prefix[64];
  m->kind = json_string_value(json_array_get(json_object_get(m->config, "layer_types"), (size_t)i));
  bool is_linear = m->kind && !strcmp(m->kind, "linear_attention");
  snprintf(prefix, sizeof prefix, "%slayers.%lld.", a->names->prefix, (long long)i);
  add_block(m, is_linear ? delta_net_block : a->mixer, prefix, a->names->mixer_norm);
  if (a->names->feed_forward_norm)
    add_block(m, feed_forward_block, prefix, a->names->feed_forward_norm);
  checkpoint_release(&m->files);
}

void model_open(model *m, fl_host *host, const char *directory, const char *dtype) {
  ok(fl_ops_init(&m->ops, host));
  checkpoint_open(&m->files, directory, &m->kept);
  m->config = m->files.config;
  const struct architecture *a = architecture_of(m);
  json_int_t rows = 128, columns = 128;
  const DLTensor *embedding = stored_weight(m, a->names->prefix, a->names->embedding, ".weight", true);
  const fl_element_type *type = dtype ? fl_element_type_named(dtype) : NULL;
  if (dtype && (!type || !(type->bit & (FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16))))
    fail("element type '%s': expected float32, float16 or bfloat16", dtype);
  if (embedding->ndim != 2)
    fail("'%s%s.weight' is no matrix", a->names->prefix, a->names->embedding);
  if (json_unpack(m->files.config, "{s?{s?[I, I]}}", "quantization_config", "weight_block_size", &rows, &columns) ||
      rows < 1 || columns < 1)
    fail("config.json: 'weight_block_size' is something else, expected two sizes above 0");
  int64_t n_layers = config_number(m->config, "num_hidden_layers", REQUIRED);
  m->scale_block[0] = rows;
  m->scale_block[1] = columns;
  m->dtype = type ? type->dtype : embedding->dtype;
  m->vocabulary = embedding->shape[0];
  m->hidden = embedding->shape[1];
  m->longest = config_number(m->config, "max_position_embeddings", 2048);
  m->epsilon = config_number(m->config, "rms_norm_eps", config_number(m->config, "layer_norm_epsilon", 1e-6));
  m->norms_from_one = a->norms_from_one;
  m->embedding = weight(m, a->names->prefix, a->names->embedding, ".weight", true);
  m->norm = weight(m, a->names->prefix, a->names->norm, ".weight", true);
  m->head = config_number(m->config, "tie_word_embeddings", false) > 0 ? m->embedding
                                                                       : weight(m, "", "lm_head", ".weight", true);
  m->chain = arena_take(&m->kept, 2 * (size_t)n_layers * sizeof *m->chain);
  for (int64_t i = 0; i < n_layers; i++)
    add_layer(m, a, i);
}

void model_close(model *m) {
  checkpoint_close(&m->files);
  arena_reset(&m->kept);
  arena_reset(&m->step);
}

void norm(model *m, DLTensor *x, DLTensor *residual, DLTensor *weight) {
  if (weight && m->norms_from_one)
    ok(fl_gemma_rms_norm(&m->ops, NULL, x, residual, weight, m->epsilon, x, residual));
  else if (weight)
    ok(fl_rms_norm(&m->ops, NULL, x, residual, weight, m->epsilon, NULL, x, residual));
}

/* Rows of a matrix of as many columns as the model has. */
static DLTensor *rows_of(model *m, DLTensor *x, DLTensor *rows) {
  DLTensor *out = tensor(&m->step, m->dtype, SHAPE(rows->shape[0], m->hidden));
  ok(fl_vocab_parallel_embedding(&m->ops, NULL, rows, x, 0, NULL, 0, 0, 0, out));
  return out;
}

/* The residual is what the blocks add to; x what goes through them. Each norm adds x to it first. */
DLTensor *model_run(model *m, const batch *b) {
  DLTensor *residual = rows_of(m, m->embedding, b->ids), *x = tensor(&m->step, m->dtype, SHAPE(b->n_tokens, m->hidden));
  DLTensor *logits = tensor(&m->step, m->dtype, SHAPE(b->wanted->shape[0], m->vocabulary));
  memset(x->data, 0, bytes(x));
  for (const block *part = m->chain; part < m->chain + m->n_chain; part++) {
    norm(m, x, residual, part->norm);
    x = part->run(m, part->self, b, x);
  }
  norm(m, x, residual, m->norm);
  ok(fl_parallel_lm_head(&m->ops, NULL, rows_of(m, x, b->wanted), m->head, NULL, logits));
  return logits;
}
