/* Which architecture is made of which blocks, and the pass through the layers: see llm.h. */
#include "llm.h"

/* Names of weights, all behind the first; the last two behind "layers.3." or the like. */
static const struct names {
  const char *prefix, *embedding, *norm, *mixer_norm, *feed_forward_norm; /* the last NULL: layers have but a mixer */
} decoder = {"model.", "embed_tokens", "norm", "input_layernorm", "post_attention_layernorm"},
  backbone = {"backbone.", "embeddings", "norm_f", "norm", NULL};

static const struct architecture {
  const char *known[5]; /* as config.json has them, before "ForCausalLM" */
  const struct names *names;
  block_maker *mixer;
  bool norms_from_one;
} architectures[] = {
    {{"Llama", "Mistral", "Qwen2", "Qwen3"}, &decoder, attention_block, false},
    {{"Mixtral", "Qwen2Moe", "Qwen3Moe", "GptOss"}, &decoder, attention_block, false},
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

static void add_layer(model *m, const struct architecture *a, int64_t i) {
  char prefix[64];
  m->kind = json_string_value(json_array_get(json_object_get(m->config, "layer_types"), (size_t)i));
  bool is_linear = m->kind && !strcmp(m->kind, "linear_attention");
  block_maker *makers[] = {is_linear ? delta_net_block : a->mixer, feed_forward_block};
  const char *norms[] = {a->names->mixer_norm, a->names->feed_forward_norm};
  snprintf(prefix, sizeof prefix, "%slayers.%lld.", a->names->prefix, LL(i));
  for (int part = 0; part < 2 && norms[part]; part++) {
    m->chain[m->n_chain] = makers[part](m, prefix);
    m->chain[m->n_chain++].norm = weight(m, prefix, norms[part], ".weight", true);
  }
  checkpoint_release(&m->files);
}

int64_t divided(const model *m, const char *what, int64_t n) {
  if (n < 1 || n % m->own.parts)
    fail("%s %lld cannot be divided among %lld ranks", what, LL(n), LL(m->own.parts));
  return n / m->own.parts;
}

void model_open(model *m, fl_host *host, const char *directory, const char *dtype) {
  const fl_group_options options = {.size = sizeof options, .name = "tp"};
  fl_launched launched = {.size = sizeof launched};
  m->host = host;
  ok(fl_ops_init(&m->ops, host));
  ok(fl_stream_create(host, cpu, 0, &m->stream));
  m->kept = m->step = (arena){.host = host, .stream = m->stream};
  ok(fl_find_launched(host, &launched));
  m->own = (share){launched.rank, launched.ranks};
  if (launched.ranks > 1) { /* from here on ops are made by all ranks together */
    ok(fl_group_create_launched(host, kDLCPU, &options, &m->group));
    ok(fl_scope_group(host, m->group, &m->scope));
  }
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
  m->tokens = m->vocabulary % m->own.parts ? ALL : m->own; /* of one that cannot be divided each has all */
  m->hidden = embedding->shape[1];
  m->longest = config_number(m->config, "max_position_embeddings", 2048);
  m->epsilon = config_number(m->config, "rms_norm_eps", config_number(m->config, "layer_norm_epsilon", 1e-6));
  m->norms_from_one = a->norms_from_one;
  m->embedding = cut(&m->kept, weight(m, a->names->prefix, a->names->embedding, ".weight", true), m->tokens, ALL);
  m->norm = weight(m, a->names->prefix, a->names->norm, ".weight", true);
  bool tied = config_number(m->config, "tie_word_embeddings", false) > 0;
  m->head = tied ? m->embedding : cut(&m->kept, weight(m, "", "lm_head", ".weight", true), m->tokens, ALL);
  m->chain = arena_take(&m->kept, 2 * (size_t)n_layers * sizeof *m->chain);
  for (int64_t i = 0; i < n_layers; i++)
    add_layer(m, a, i);
}

void model_close(model *m) {
  checkpoint_close(&m->files);
  arena_reset(&m->kept);
  arena_reset(&m->step);
  ok(fl_stream_destroy(m->host, cpu, m->stream));
  if (m->group)
    ok(fl_scope_leave(&m->scope));
  fl_group_destroy(m->group);
}

void norm(model *m, DLTensor *x, DLTensor *residual, DLTensor *weight) {
  if (weight && m->norms_from_one)
    ok(fl_gemma_rms_norm(OPS, x, residual, weight, m->epsilon, x, residual));
  else if (weight)
    ok(fl_rms_norm(OPS, x, residual, weight, m->epsilon, NULL, x, residual));
}

/* The residual is what the blocks add to; x what goes through them. Each norm adds x to it first. */
DLTensor *model_run(model *m, const batch *b) {
  int64_t n = b->wanted->shape[0], rows = m->embedding->shape[0], first = m->tokens.part * rows, end = first + rows;
  bool shared = m->tokens.parts > 1;
  DLTensor *residual = MADE(b->n_tokens, m->hidden), *x = MADE(b->n_tokens, m->hidden), *wanted = MADE(n, m->hidden),
           *logits = MADE(n, m->vocabulary);
  ok(fl_vocab_parallel_embedding(OPS, b->ids, m->embedding, first, shared ? &end : NULL, 0, 0, 0, residual));
  memset(x->data, 0, bytes(x));
  for (const block *part = m->chain; part < m->chain + m->n_chain; part++) {
    norm(m, x, residual, part->norm);
    x = part->run(m, part->self, b, x);
  }
  norm(m, x, residual, m->norm);
  ok(fl_vocab_parallel_embedding(OPS, b->wanted, x, 0, NULL, 0, 0, 0, wanted)); /* without an end: rows of x as it is */
  ok(shared ? fl_parallel_lm_head(OPS, wanted, m->head, NULL, logits)
            : fl_replicated_linear(OPS, wanted, m->head, NULL, false, logits));
  ok(fl_device_synchronize(m->host, cpu, m->stream, false));
  return logits;
}
