/* Mamba-2: one operator is the whole layer, with a state for each request. */
#include "llm.h"

#include <math.h>
#include <string.h>

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

#define PREFIX "backbone.layers.%d.mixer."

block mamba2_block(model *m, int64_t layer) {
  mamba2 *l = arena_take(&m->kept, sizeof *l);
  DLTensor *a_log = converted(&m->kept, weight(m, PREFIX "A_log", layer), float32);
  DLTensor *conv = weight(m, PREFIX "conv1d.weight", layer);
  int64_t n_state = config_int(&m->files, "state_size", NULL), width = conv->shape[2];
  *l = (mamba2){.in = weight(m, PREFIX "in_proj.weight", layer),
                .out = weight(m, PREFIX "out_proj.weight", layer),
                .conv = view(&m->kept, conv, 0, NULL, SHAPE(conv->shape[0], width)),
                .conv_bias = optional_weight(m, PREFIX "conv1d.bias", layer),
                .dt_bias = weight(m, PREFIX "dt_bias", layer),
                .a = tensor(&m->kept, float32, SHAPE(a_log->shape[0])),
                .d = weight(m, PREFIX "D", layer),
                .norm = weight(m, PREFIX "norm.weight", layer),
                .conv_state = tensor(&m->kept, m->dtype, SHAPE(m->n_states, conv->shape[0], width - 1)),
                .groups = config_int(&m->files, "n_groups", NULL),
                .head_size = config_int(&m->files, "head_dim", NULL),
                .chunk = config_int(&m->files, "chunk_size", NULL)};
  l->state = tensor(&m->kept, float32, SHAPE(m->n_states, a_log->shape[0], l->head_size, n_state));
  for (int64_t i = 0; i < a_log->shape[0]; i++)
    ((float *)l->a->data)[i] = -expf(((float *)data(a_log))[i]);
  m->has_states = true;
  return (block){run, l};
}
