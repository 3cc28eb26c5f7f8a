/*
 * The scans of Mamba and Mamba-2: a lane of a tile is a channel, or an element of a head. A block of lanes goes through
 * all sequences, a tile of tokens at a time, with its states [state, lane] in scratch; blocks are independent of each
 * other. The order of additions is fixed: the same bits every time, however many threads there are.
 */
#include "plugins/cpu/flagos/recurrences/plane.h"
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

enum { LANES = CPU_PLANE_LANES, TOKENS = CPU_PLANE_ROWS };

/* What a block of lanes is computed from. */
typedef struct lanes_scan {
  int64_t lanes, states;
  cpu_plane u, delta, z, out; /* [token, lane] */
  cpu_plane delta_bias, d;    /* [any, lane] */
  cpu_plane a;                /* [state, lane] */
  cpu_plane b, c;             /* [token, state] */
  cpu_array state;            /* [slot, lane, state] */
  bool softplus, one_decay;   /* one_decay: a is the same for all states and lanes */
  float delta_min, delta_max;
  const cpu_sequences *sequences;
} lanes_scan;

/* Of a block: [state, lane], [token, state], [token, lane] and [lane]. */
typedef struct lanes_scratch {
  float *h, *a, *b, *c, *u, *delta, *z, *delta_bias, *d;
} lanes_scratch;

static size_t scratch_size(int64_t states) {
  return (size_t)(states * 2 * (LANES + TOKENS) + 3 * TOKENS * LANES + 2 * LANES);
}

static lanes_scratch divide(float *memory, int64_t states) {
  lanes_scratch s = {.h = memory};
  s.u = s.h + states * LANES; /* rows of LANES floats first: they lie in whole cache lines */
  s.delta = s.u + TOKENS * LANES;
  s.z = s.delta + TOKENS * LANES;
  s.delta_bias = s.z + TOKENS * LANES;
  s.d = s.delta_bias + LANES;
  s.a = s.d + LANES;
  s.b = s.a + states * LANES;
  s.c = s.b + states * TOKENS;
  return s;
}

/* -------------------------------------------------------------------------------------------------------- one token */

/* h = exp(delta a) h + delta u b; u becomes what c makes of h. */
static void advance(int64_t states, const float *restrict delta, const float *restrict a, const float *restrict b,
                    const float *restrict c, float *restrict h, float *restrict u) {
  float step[LANES], sum[LANES] = {0};
  for (int lane = 0; lane < LANES; lane++)
    step[lane] = delta[lane] * u[lane];
  for (int64_t i = 0; i < states; i++)
    for (int lane = 0; lane < LANES; lane++) {
      float next = vector_exp(delta[lane] * a[i * LANES + lane]) * h[i * LANES + lane] + step[lane] * b[i];
      h[i * LANES + lane] = next;
      sum[lane] += c[i] * next;
    }
  memcpy(u, sum, sizeof sum);
}

/* The same where exp(delta a) is one number. */
static void advance_at_once(int64_t states, const float *restrict delta, float a, const float *restrict b,
                            const float *restrict c, float *restrict h, float *restrict u) {
  float step[LANES], sum[LANES] = {0}, decay = vector_exp(delta[0] * a);
  for (int lane = 0; lane < LANES; lane++)
    step[lane] = delta[lane] * u[lane];
  for (int64_t i = 0; i < states; i++)
    for (int lane = 0; lane < LANES; lane++) {
      float next = decay * h[i * LANES + lane] + step[lane] * b[i];
      h[i * LANES + lane] = next;
      sum[lane] += c[i] * next;
    }
  memcpy(u, sum, sizeof sum);
}

/* --------------------------------------------------------------------------------------------------- a tile of them */

CPU_TEMPLATE void limit_steps_as(bool softplus, const lanes_scan *scan, const lanes_scratch *s, int64_t n) {
  const float least = scan->delta_min, most = scan->delta_max;
  for (int64_t t = 0; t < n; t++) {
    float *steps = s->delta + t * LANES;
    for (int lane = 0; lane < LANES; lane++) {
      float step = steps[lane] + s->delta_bias[lane], delta = softplus ? vector_softplus(step) : step;
      float above = delta < least ? least : delta;
      steps[lane] = above > most ? most : above;
    }
  }
}

/* Functions of their own: of a loop with a choice in it compilers make no vectors. */
static void limit_steps(const lanes_scan *scan, const lanes_scratch *s, int64_t n) {
  if (scan->softplus)
    limit_steps_as(true, scan, s, n);
  else
    limit_steps_as(false, scan, s, n);
}

static void scan_token(const lanes_scan *scan, const lanes_scratch *s, int64_t t) {
  float *u = s->u + t * LANES, skipped[LANES];
  const float *delta = s->delta + t * LANES, *b = s->b + t * scan->states, *c = s->c + t * scan->states;
  for (int lane = 0; lane < LANES; lane++)
    skipped[lane] = s->d[lane] * u[lane];
  if (scan->one_decay)
    advance_at_once(scan->states, delta, s->a[0], b, c, s->h, u);
  else
    advance(scan->states, delta, s->a, b, c, s->h, u);
  for (int lane = 0; scan->d.data && lane < LANES; lane++)
    u[lane] += skipped[lane];
}

static void scan_tile(const lanes_scan *scan, const lanes_scratch *s, int64_t first, int64_t n) {
  const struct {
    const cpu_plane *plane;
    float *to;
    int64_t lanes, width;
  } inputs[] = {{&scan->u, s->u, scan->lanes, LANES},
                {&scan->delta, s->delta, scan->lanes, LANES},
                {&scan->z, s->z, scan->z.data ? scan->lanes : 0, LANES},
                {&scan->b, s->b, scan->states, scan->states},
                {&scan->c, s->c, scan->states, scan->states}};
  for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
    cpu_plane from = cpu_plane_from(inputs[i].plane, first);
    cpu_plane_load(&from, n, inputs[i].lanes, inputs[i].to, inputs[i].width);
  }
  limit_steps(scan, s, n);
  for (int64_t t = 0; t < n; t++)
    scan_token(scan, s, t);
  for (int64_t i = 0; scan->z.data && i < n * LANES; i++)
    s->u[i] *= vector_silu(s->z[i]);
  cpu_plane out = cpu_plane_from(&scan->out, first);
  cpu_plane_store(&out, n, scan->lanes, s->u, LANES);
}

/* ------------------------------------------------------------------------------------------------- a block of lanes */

static void scan_sequence(const lanes_scan *scan, const lanes_scratch *s, const cpu_sequence *sequence) {
  int64_t end = sequence->begin + sequence->length;
  cpu_plane state = cpu_plane_at(&scan->state, 2, 1, sequence->slot, 0, 0);
  if (sequence->continues)
    cpu_plane_load(&state, scan->states, scan->lanes, s->h, LANES);
  else
    memset(s->h, 0, (size_t)(scan->states * LANES) * sizeof *s->h);
  for (int64_t first = sequence->begin; first < end; first += TOKENS)
    scan_tile(scan, s, first, end - first < TOKENS ? end - first : TOKENS);
  if (state.data)
    cpu_plane_store(&state, scan->states, scan->lanes, s->h, LANES);
}

static void write_zeros(const lanes_scan *scan, int64_t begin, int64_t end) {
  cpu_plane out = cpu_plane_from(&scan->out, begin);
  cpu_plane_zero(&out, end - begin, scan->lanes);
}

static void scan_lanes(const lanes_scan *scan, const lanes_scratch *s) {
  cpu_plane_load(&scan->a, scan->one_decay ? 1 : scan->states, scan->lanes, s->a, LANES);
  cpu_plane_load(&scan->d, 1, scan->lanes, s->d, LANES);
  cpu_plane_load(&scan->delta_bias, 1, scan->lanes, s->delta_bias, LANES);
  for (int64_t i = 0; i < scan->sequences->n; i++) {
    cpu_sequence sequence = cpu_sequence_at(scan->sequences, i);
    if (sequence.slot < 0)
      write_zeros(scan, sequence.begin, sequence.begin + sequence.length);
    else if (sequence.length)
      scan_sequence(scan, s, &sequence);
  }
  write_zeros(scan, cpu_sequences_end(scan->sequences), scan->sequences->tokens);
}

/* ------------------------------------------------------------------------------------------------------- all blocks */

typedef struct scan_loop {
  const void *scan;
  lanes_scan (*block)(const void *scan, int64_t i);
  int64_t states;
} scan_loop;

static fl_status run_blocks(void *user, int64_t first, int64_t end) {
  const scan_loop *loop = user;
  float *memory = cpu_scratch_take(scratch_size(loop->states));
  if (!memory)
    return FL_ENOMEM;
  lanes_scratch scratch = divide(memory, loop->states);
  for (int64_t i = first; i < end; i++) {
    lanes_scan block = loop->block(loop->scan, i);
    scan_lanes(&block, &scratch);
  }
  cpu_scratch_give(memory);
  return FL_OK;
}

/* `work`: of a number of the state, for each token. */
static fl_status run(fl_call *call, scan_loop loop, int64_t blocks, int64_t tokens, int64_t work) {
  fl_status status = cpu_parallel_for(blocks, cpu_grain(tokens * LANES * loop.states * work), run_blocks, &loop);
  return status ? fl_fail(call, status, "no memory for the state of %d lanes", (int)LANES) : FL_OK;
}

/* Of `size` lanes that share b and c, or a. */
static int64_t blocks_of(int64_t size) {
  return (size + LANES - 1) / LANES;
}

static int64_t lanes_from(int64_t first, int64_t size) {
  return size - first < LANES ? size - first : LANES;
}

static lanes_scan channels_block(const void *user, int64_t i) {
  const cpu_scan *scan = user;
  int64_t size = scan->channels / scan->groups, group = i / blocks_of(size), in_group = i % blocks_of(size) * LANES;
  int64_t channel = group * size + in_group;
  cpu_array state = scan->state;
  state.data = cpu_plane_at(&state, 2, 1, 0, channel, 0).data;
  return (lanes_scan){.lanes = lanes_from(in_group, size),
                      .states = scan->states,
                      .u = cpu_plane_at(&scan->u, 1, 0, channel, 0, 0),
                      .delta = cpu_plane_at(&scan->delta, 1, 0, channel, 0, 0),
                      .z = cpu_plane_at(&scan->z, 1, 0, channel, 0, 0),
                      .out = cpu_plane_at(&scan->out, 1, 0, channel, 0, 0),
                      .delta_bias = cpu_plane_at(&scan->delta_bias, 1, 0, channel, 0, 0),
                      .d = cpu_plane_at(&scan->d, 1, 0, channel, 0, 0),
                      .a = cpu_plane_at(&scan->a, 1, 0, channel, 0, 0),
                      .b = cpu_plane_at(&scan->b, 2, 1, group, 0, 0),
                      .c = cpu_plane_at(&scan->c, 2, 1, group, 0, 0),
                      .state = state,
                      .softplus = scan->softplus,
                      .delta_min = -INFINITY,
                      .delta_max = INFINITY,
                      .sequences = &scan->sequences};
}

fl_status cpu_flagos_scan(fl_call *call, const cpu_scan *scan) {
  int64_t blocks = scan->groups * blocks_of(scan->channels / scan->groups);
  return run(call, (scan_loop){scan, channels_block, scan->states}, blocks, scan->sequences.tokens,
             CPU_WORK_EXP * (int64_t)sizeof(float));
}

/* All elements of a head have the same step: of an array without that dimension the stride along it is 0. */
static lanes_scan head_block(const void *user, int64_t i) {
  const cpu_ssd *scan = user;
  enum { NONE = 3 };
  int64_t head = i / blocks_of(scan->size), first = i % blocks_of(scan->size) * LANES;
  int64_t group = head / (scan->heads / scan->groups);
  cpu_array state = scan->state;
  state.data = cpu_plane_at(&state, 3, 2, 0, head, first).data;
  memmove(state.stride + 1, state.stride + 2, 2 * sizeof state.stride[0]);
  return (lanes_scan){.lanes = lanes_from(first, scan->size),
                      .states = scan->states,
                      .u = cpu_plane_at(&scan->x, 0, 2, 0, head, first),
                      .delta = cpu_plane_at(&scan->dt, 0, NONE, 0, head, 0),
                      .z = cpu_plane_at(&scan->z, 0, 2, 0, head, first),
                      .out = cpu_plane_at(&scan->out, 0, 2, 0, head, first),
                      .delta_bias = cpu_plane_at(&scan->dt_bias, 0, NONE, head, 0, 0),
                      .d = cpu_plane_at(&scan->d, 0, 1, head, first, 0),
                      .a = cpu_plane_at(&scan->a, 0, NONE, head, 0, 0),
                      .b = cpu_plane_at(&scan->b, 0, 2, 0, group, 0),
                      .c = cpu_plane_at(&scan->c, 0, 2, 0, group, 0),
                      .state = state,
                      .softplus = scan->softplus,
                      .one_decay = true,
                      .delta_min = scan->dt_min,
                      .delta_max = scan->dt_max,
                      .sequences = &scan->sequences};
}

fl_status cpu_flagos_ssd(fl_call *call, const cpu_ssd *scan) {
  return run(call, (scan_loop){scan, head_block, scan->states}, scan->heads * blocks_of(scan->size),
             scan->sequences.tokens, sizeof(float));
}

static const fl_impl ops[] = {
    {.op_name = "selective_scan", CPU_FLAGOS, .fn = cpu_selective_scan, .self = (cpu_scan_fn[]){cpu_flagos_scan}},
    {.op_name = "mamba_chunk_scan", CPU_FLAGOS, .fn = cpu_mamba_chunk_scan, .self = (cpu_ssd_fn[]){cpu_flagos_ssd}},
};
OP_LIST(ops);
