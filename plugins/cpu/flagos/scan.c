/*
 * The scans of Mamba and Mamba-2, a block of tokens at a time: B and C of the block are laid out as float with the
 * state's dimension innermost, along which everything is vectorised; the states stay in scratch, as float, from one
 * block to the next. The order of additions is fixed: the same bits every time.
 */
#include "plugins/cpu/flagos/block.h"
#include "plugins/cpu/flagos/vector.h"
#include "plugins/cpu/state_space.h"

#include <math.h>
#include <stdlib.h>

enum { LANES = 16, TOKENS = 64 };

static void *address(const cpu_array *array, int64_t i, int64_t j, int64_t k, int64_t l) {
  return (char *)array->data + cpu_at(array, i, j, k, l) * cpu_dtype_size(array->dtype);
}

static float get(const cpu_array *array, int64_t i, int64_t j, int64_t k, int64_t l) {
  float value;
  cpu_block_types[array->dtype].load(&value, address(array, i, j, k, l), 0, 1);
  return value;
}

static float get_or_zero(const cpu_array *array, int64_t i, int64_t j) {
  return array->data ? get(array, i, j, 0, 0) : 0;
}

static void load_row(const cpu_array *array, const void *row, int64_t n, float *to) {
  cpu_block_types[array->dtype].load(to, row, 0, n);
}

static void store_row(const cpu_array *array, void *row, int64_t n, const float *from) {
  cpu_block_types[array->dtype].store(row, 0, from, n);
}

/* Elements that are `stride` apart, as float. */
static void gather(const cpu_array *array, void *first, int64_t stride, int64_t n, float *to) {
  int64_t step = stride * cpu_dtype_size(array->dtype);
  if (stride == 1)
    load_row(array, first, n, to);
  else if (array->dtype == CPU_FLOAT32)
    for (int64_t i = 0; i < n; i++)
      to[i] = ((const float *)first)[i * stride];
  else
    for (int64_t i = 0; i < n; i++)
      load_row(array, (char *)first + i * step, 1, to + i);
}

static void scatter(const cpu_array *array, void *first, int64_t stride, int64_t n, const float *from) {
  int64_t step = stride * cpu_dtype_size(array->dtype);
  if (stride == 1)
    store_row(array, first, n, from);
  else if (array->dtype == CPU_FLOAT32)
    for (int64_t i = 0; i < n; i++)
      ((float *)first)[i * stride] = from[i];
  else
    for (int64_t i = 0; i < n; i++)
      store_row(array, (char *)first + i * step, 1, from + i);
}

static float sum_lanes(const float *sums) {
  float sum = 0;
  for (int lane = 0; lane < LANES; lane++)
    sum += sums[lane];
  return sum;
}

/* ----------------------------------------------------------------------------------------------------- selective scan
 */

/* For a block of TOKENS tokens. */
typedef struct scan_scratch {
  float *h;     /* [channels, states] */
  float *b, *c; /* [TOKENS, states] of one group */
  float *a;     /* [states] of one channel */
} scan_scratch;

/* h = exp(delta a) h + delta u b; what c makes of h. */
static float advance(int64_t n, float delta, float u, const float *restrict a, const float *restrict b,
                     const float *restrict c, float *restrict h) {
  float sums[LANES] = {0}, step = delta * u;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) {
      float next = vector_exp(delta * a[i + lane]) * h[i + lane] + step * b[i + lane];
      h[i + lane] = next;
      sums[lane] += c[i + lane] * next;
    }
  for (; i < n; i++) {
    h[i] = vector_exp(delta * a[i]) * h[i] + step * b[i];
    sums[i % LANES] += c[i] * h[i];
  }
  return sum_lanes(sums);
}

static void scan_channel(const cpu_scan *scan, const scan_scratch *scratch, int64_t channel, int64_t first, int64_t n) {
  float u[TOKENS], delta[TOKENS], z[TOKENS], y[TOKENS];
  float bias = get_or_zero(&scan->delta_bias, channel, 0), skip = get_or_zero(&scan->d, channel, 0);
  float *h = scratch->h + channel * scan->states;
  load_row(&scan->a, address(&scan->a, channel, 0, 0, 0), scan->states, scratch->a);
  gather(&scan->u, address(&scan->u, channel, first, 0, 0), scan->u.stride[1], n, u);
  gather(&scan->delta, address(&scan->delta, channel, first, 0, 0), scan->delta.stride[1], n, delta);
  for (int64_t t = 0; t < n; t++) {
    float step = scan->softplus ? softplus(delta[t] + bias) : delta[t] + bias;
    const float *b = scratch->b + t * scan->states, *c = scratch->c + t * scan->states;
    y[t] = advance(scan->states, step, u[t], scratch->a, b, c, h);
  }
  for (int64_t t = 0; scan->d.data && t < n; t++)
    y[t] += skip * u[t];
  if (scan->z.data) {
    gather(&scan->z, address(&scan->z, channel, first, 0, 0), scan->z.stride[1], n, z);
    for (int64_t t = 0; t < n; t++)
      y[t] *= vector_silu(z[t]);
  }
  scatter(&scan->out, address(&scan->out, channel, first, 0, 0), scan->out.stride[1], n, y);
}

/* [state, token] of a group to [token, state]. */
static void lay_out(const cpu_array *array, int64_t group, int64_t first, int64_t n, int64_t states, float *to) {
  float row[TOKENS];
  for (int64_t i = 0; i < states; i++) {
    gather(array, address(array, group, i, first, 0), array->stride[2], n, row);
    for (int64_t t = 0; t < n; t++)
      to[t * states + i] = row[t];
  }
}

static void scan_block(const cpu_scan *scan, const scan_scratch *scratch, int64_t first, int64_t n) {
  int64_t size = scan->channels / scan->groups;
  for (int64_t group = 0; group < scan->groups; group++) {
    lay_out(&scan->b, group, first, n, scan->states, scratch->b);
    lay_out(&scan->c, group, first, n, scan->states, scratch->c);
    for (int64_t channel = group * size; channel < (group + 1) * size; channel++)
      scan_channel(scan, scratch, channel, first, n);
  }
}

static void scan_sequence(const cpu_scan *scan, const scan_scratch *scratch, const cpu_sequence *sequence) {
  int64_t end = sequence->begin + sequence->length, states = scan->states;
  for (int64_t i = 0; i < scan->channels * states; i++)
    scratch->h[i] = 0;
  for (int64_t channel = 0; sequence->continues && channel < scan->channels; channel++)
    load_row(&scan->state, address(&scan->state, sequence->slot, channel, 0, 0), states, scratch->h + channel * states);
  for (int64_t first = sequence->begin; first < end; first += TOKENS)
    scan_block(scan, scratch, first, end - first < TOKENS ? end - first : TOKENS);
  for (int64_t channel = 0; scan->state.data && channel < scan->channels; channel++)
    store_row(&scan->state, address(&scan->state, sequence->slot, channel, 0, 0), states,
              scratch->h + channel * states);
}

static void zero_scan(const cpu_scan *scan, int64_t begin, int64_t end) {
  static const float zero = 0;
  for (int64_t channel = 0; channel < scan->channels; channel++)
    for (int64_t t = begin; t < end; t++)
      store_row(&scan->out, address(&scan->out, channel, t, 0, 0), 1, &zero);
}

fl_status cpu_flagos_scan(fl_call *call, const cpu_scan *scan) {
  size_t states = (size_t)scan->states;
  scan_scratch scratch;
  scratch.h = malloc(((size_t)scan->channels + 2 * TOKENS + 1) * states * sizeof(float) + 1);
  if (!scratch.h)
    return fl_fail(call, FL_ENOMEM, "no memory for the state of a sequence");
  scratch.b = scratch.h + (size_t)scan->channels * states;
  scratch.c = scratch.b + TOKENS * states;
  scratch.a = scratch.c + TOKENS * states;
  for (int64_t i = 0; i < scan->sequences.n; i++) {
    cpu_sequence sequence = cpu_sequence_at(&scan->sequences, i);
    if (sequence.slot < 0)
      zero_scan(scan, sequence.begin, sequence.begin + sequence.length);
    else if (sequence.length)
      scan_sequence(scan, &scratch, &sequence);
  }
  zero_scan(scan, cpu_sequences_end(&scan->sequences), scan->sequences.tokens);
  free(scratch.h);
  return FL_OK;
}

/* --------------------------------------------------------------------------------------------------------- chunk scan
 */

typedef struct ssd_scratch {
  float *h;                /* [heads, size, states] */
  float *b, *c;            /* [TOKENS, states] of one group */
  float *x, *z, *y, *skip; /* [size] of one head */
} ssd_scratch;

/* h = decay h + x b; what c makes of h. */
static float decay_and_add(int64_t n, float decay, float x, const float *restrict b, const float *restrict c,
                           float *restrict h) {
  float sums[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (int lane = 0; lane < LANES; lane++) {
      float next = decay * h[i + lane] + x * b[i + lane];
      h[i + lane] = next;
      sums[lane] += c[i + lane] * next;
    }
  for (; i < n; i++) {
    h[i] = decay * h[i] + x * b[i];
    sums[i % LANES] += c[i] * h[i];
  }
  return sum_lanes(sums);
}

static float ssd_step_size(const cpu_ssd *scan, int64_t head, int64_t token) {
  float dt = get(&scan->dt, token, head, 0, 0) + get_or_zero(&scan->dt_bias, head, 0);
  dt = scan->softplus ? softplus(dt) : dt;
  return dt < scan->dt_min ? scan->dt_min : dt > scan->dt_max ? scan->dt_max : dt;
}

static void ssd_head(const cpu_ssd *scan, const ssd_scratch *scratch, int64_t head, int64_t first, int64_t n) {
  int64_t size = scan->size, states = scan->states;
  float a = get(&scan->a, head, 0, 0, 0), *h = scratch->h + head * size * states;
  for (int64_t p = 0; p < size; p++)
    scratch->skip[p] = get_or_zero(&scan->d, head, p);
  for (int64_t t = 0; t < n; t++) {
    float dt = ssd_step_size(scan, head, first + t), decay = expf(dt * a);
    load_row(&scan->x, address(&scan->x, first + t, head, 0, 0), size, scratch->x);
    for (int64_t p = 0; p < size; p++)
      scratch->y[p] = decay_and_add(states, decay, dt * scratch->x[p], scratch->b + t * states, scratch->c + t * states,
                                    h + p * states);
    for (int64_t p = 0; scan->d.data && p < size; p++)
      scratch->y[p] += scratch->skip[p] * scratch->x[p];
    if (scan->z.data) {
      load_row(&scan->z, address(&scan->z, first + t, head, 0, 0), size, scratch->z);
      for (int64_t p = 0; p < size; p++)
        scratch->y[p] *= vector_silu(scratch->z[p]);
    }
    store_row(&scan->out, address(&scan->out, first + t, head, 0, 0), size, scratch->y);
  }
}

static void ssd_block(const cpu_ssd *scan, const ssd_scratch *scratch, int64_t first, int64_t n) {
  int64_t heads = scan->heads / scan->groups, states = scan->states;
  for (int64_t group = 0; group < scan->groups; group++) {
    for (int64_t t = 0; t < n; t++) {
      load_row(&scan->b, address(&scan->b, first + t, group, 0, 0), states, scratch->b + t * states);
      load_row(&scan->c, address(&scan->c, first + t, group, 0, 0), states, scratch->c + t * states);
    }
    for (int64_t head = group * heads; head < (group + 1) * heads; head++)
      ssd_head(scan, scratch, head, first, n);
  }
}

static void ssd_sequence(const cpu_ssd *scan, const ssd_scratch *scratch, const cpu_sequence *sequence) {
  int64_t end = sequence->begin + sequence->length, rows = scan->heads * scan->size, states = scan->states;
  for (int64_t i = 0; i < rows * states; i++)
    scratch->h[i] = 0;
  for (int64_t row = 0; sequence->continues && row < rows; row++)
    load_row(&scan->state, address(&scan->state, sequence->slot, row / scan->size, row % scan->size, 0), states,
             scratch->h + row * states);
  for (int64_t first = sequence->begin; first < end; first += TOKENS)
    ssd_block(scan, scratch, first, end - first < TOKENS ? end - first : TOKENS);
  for (int64_t row = 0; scan->state.data && row < rows; row++)
    store_row(&scan->state, address(&scan->state, sequence->slot, row / scan->size, row % scan->size, 0), states,
              scratch->h + row * states);
}

static void zero_ssd(const cpu_ssd *scan, int64_t begin, int64_t end) {
  static const float zero = 0;
  for (int64_t t = begin; t < end; t++)
    for (int64_t row = 0; row < scan->heads * scan->size; row++)
      store_row(&scan->out, address(&scan->out, t, row / scan->size, row % scan->size, 0), 1, &zero);
}

fl_status cpu_flagos_ssd(fl_call *call, const cpu_ssd *scan) {
  size_t states = (size_t)scan->states, size = (size_t)scan->size, h = (size_t)scan->heads * size * states;
  ssd_scratch scratch;
  scratch.h = malloc((h + 2 * TOKENS * states + 4 * size) * sizeof(float) + 1);
  if (!scratch.h)
    return fl_fail(call, FL_ENOMEM, "no memory for the state of a sequence");
  scratch.b = scratch.h + h;
  scratch.c = scratch.b + TOKENS * states;
  scratch.x = scratch.c + TOKENS * states;
  scratch.z = scratch.x + size;
  scratch.y = scratch.z + size;
  scratch.skip = scratch.y + size;
  for (int64_t i = 0; i < scan->sequences.n; i++) {
    cpu_sequence sequence = cpu_sequence_at(&scan->sequences, i);
    if (sequence.slot < 0)
      zero_ssd(scan, sequence.begin, sequence.begin + sequence.length);
    else if (sequence.length)
      ssd_sequence(scan, &scratch, &sequence);
  }
  zero_ssd(scan, cpu_sequences_end(&scan->sequences), scan->sequences.tokens);
  free(scratch.h);
  return FL_OK;
}

static const fl_impl ops[] = {
    {.op_name = "selective_scan", CPU_FLAGOS, .fn = cpu_selective_scan, .self = (cpu_scan_fn[]){cpu_flagos_scan}},
    {.op_name = "mamba_chunk_scan", CPU_FLAGOS, .fn = cpu_mamba_chunk_scan, .self = (cpu_ssd_fn[]){cpu_flagos_ssd}},
};
OP_LIST(ops);
