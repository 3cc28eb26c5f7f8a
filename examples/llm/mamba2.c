/* Mamba-2: one operator is the whole layer, with a state for each request. */
#include "llm.h"

typedef struct mamba2 {
  DLTensor *in, *out, *conv, *conv_bias, *dt_bias, *a, *d, *norm, *conv_state, *state;
  int64_t groups, head_size, chunk;
} mamba2;

static DLTensor *run(model *m, const void *self, const batch *b, DLTensor *x) {
  const mamba2 *l = self;
  DLTensor *out = tensor(&m->step, m->dtype, SHAPE(b->n_tokens, m->hidden));
  ok(fl_mamba_mixer2(&m->ops, NULL, x, l->in, l->conv, l->conv_bias, l->dt_bias, l->a, l->d, l->norm, l->out,
                     l->conv_state, l->state, l->groups, l->head_size, l->chunk, b->query_start_loc, b->states,
                     b->has_state, m->epsilon, out));
  return out;
}

block mamba2_block(model *m, const char *prefix, const char *kind) {
  mamba2 *l = arena_take(&m->kept, sizeof *l);
  (void)kind; /* all layers are alike */
  DLTensor *a_log = converted(&m->kept, weight(m, prefix, "mixer.A_log", ""), float32);
  DLTensor *conv = weight(m, prefix, "mixer.conv1d", ".weight");
  int64_t n_state = config_int(m->config, "state_size", REQUIRED), width = conv->shape[2];
  *l = (mamba2){.in = weight(m, prefix, "mixer.in_proj", ".weight"),
                .out = weight(m, prefix, "mixer.out_proj", ".weight"),
                .conv = view(&m->kept, conv, 0, NULL, SHAPE(conv->shape[0], width)),
                .conv_bias = optional_weight(m, prefix, "mixer.conv1d", ".bias"),
                .dt_bias = weight(m, prefix, "mixer.dt_bias", ""),
                .a = tensor(&m->kept, float32, SHAPE(a_log->shape[0])),
                .d = weight(m, prefix, "mixer.D", ""),
                .norm = weight(m, prefix, "mixer.norm", ".weight"),
                .conv_state = tensor(&m->kept, m->dtype, SHAPE(m->n_states, conv->shape[0], width - 1)),
                .groups = config_int(m->config, "n_groups", REQUIRED),
                .head_size = config_int(m->config, "head_dim", REQUIRED),
                .chunk = config_int(m->config, "chunk_size", REQUIRED)};
  l->state = tensor(&m->kept, float32, SHAPE(m->n_states, a_log->shape[0], l->head_size, n_state));
  for (int64_t i = 0; i < a_log->shape[0]; i++)
    ((float *)l->a->data)[i] = -expf(((float *)data(a_log))[i]);
  m->has_states = true;
  return (block){.run = run, .self = l};
}
