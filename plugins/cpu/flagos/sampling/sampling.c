/*
 * Sampling, a row at a time: what is done to all of a row is vectorised, and what decides which token stays or is taken
 * is computed in double, of the few tokens that it may be. No row is sorted.
 */
#include "plugins/cpu/sampling.h"
#include "plugins/cpu/flagos/sampling/leading.h"
#include "plugins/cpu/flagos/sampling/probability.h"
#include "plugins/cpu/flagos/vectors/chunk.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

/* Lanes behind the row's end are -infinity. */
CPU_TEMPLATE void load_chunk(cpu_dtype dtype, const void *logits, int64_t size, int64_t first, float *values) {
  int64_t n = size - first;
  if (n >= CPU_CHUNK) {
    cpu_load_next(dtype, values, logits, first, CPU_CHUNK);
    return;
  }
  cpu_load(dtype, values, logits, first, n);
  for (int64_t i = n; i < CPU_CHUNK; i++)
    values[i] = -INFINITY;
}

CPU_TEMPLATE void store_chunk(const cpu_sampling_row *row, int64_t first, const float *values) {
  if (first + CPU_CHUNK <= row->size)
    cpu_store(CPU_FLOAT32, row->out, first, values, CPU_CHUNK);
  else
    cpu_store(CPU_FLOAT32, row->out, first, values, row->size - first);
}

static void copy(const cpu_sampling_row *row) {
  if (row->out != row->logits)
    memcpy(row->out, row->logits, (size_t)row->size * sizeof *row->out);
}

/* ------------------------------------------------------------------------------------------------------- penalties */

typedef void (*penalty_fn)(const cpu_sampling_row *row, uint32_t *counts, int64_t token);

CPU_TEMPLATE void for_tokens(const cpu_sampling_row *row, const DLTensor *ids, penalty_fn function, uint32_t *counts) {
  for (int64_t i = 0; i < ids->shape[1]; i++) {
    int64_t id = cpu_index_at(ids, row->index, i);
    if (id >= 0 && id < row->size)
      function(row, counts, id);
  }
}

static inline void clear(const cpu_sampling_row *row, uint32_t *counts, int64_t token) {
  (void)row;
  counts[token] = 0;
}

static inline void count(const cpu_sampling_row *row, uint32_t *counts, int64_t token) {
  (void)row;
  counts[token]++;
}

enum { DONE = -1 };

/* At the first of a token's ids. */
static inline void penalise(const cpu_sampling_row *row, uint32_t *counts, int64_t token) {
  float l = row->out[token];
  uint32_t times = counts[token];
  if (times == (uint32_t)DONE)
    return;
  l = l > 0 ? l / row->repetition : l * row->repetition;
  if (times) {
    l -= row->frequency * (float)times;
    l -= row->presence;
  }
  row->out[token] = l;
  counts[token] = (uint32_t)DONE;
}

/* Of the counts only those of tokens that occur are ever looked at. */
static fl_status apply_penalties(const cpu_sampling_row *row) {
  uint32_t *counts = cpu_scratch_take_bytes((size_t)row->size * sizeof *counts);
  if (!counts)
    return FL_ENOMEM;
  copy(row);
  for_tokens(row, row->prompt, clear, counts);
  for_tokens(row, row->output, clear, counts);
  for_tokens(row, row->output, count, counts);
  for_tokens(row, row->output, penalise, counts);
  for_tokens(row, row->prompt, penalise, counts);
  cpu_scratch_give(counts);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------- temperature and cut-offs */

static fl_status apply_temperature(const cpu_sampling_row *row) {
  float temperature = row->temperature < 1e-5f ? 1 : row->temperature, values[CPU_CHUNK];
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    load_chunk(CPU_FLOAT32, row->logits, row->size, first, values);
    for (int i = 0; i < CPU_CHUNK; i++)
      values[i] /= temperature;
    store_chunk(row, first, values);
  }
  return FL_OK;
}

/* The least bits (order.h) from those of -infinity to `most` whose value is no less probable than `part` of that one;
 * most + 1: even that is not. By halves: next to 0 there are many floats between which exp sees no difference. */
static uint32_t cut_of(uint32_t most, double part) {
  uint32_t low = cpu_order_bits(-INFINITY), high = most + 1;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (exp((double)cpu_order_value(middle) - (double)cpu_order_value(most)) < part)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

CPU_TEMPLATE uint32_t most_of(const cpu_sampling_row *row) {
  uint32_t lanes[CPU_CHUNK] = {0}, most = 0;
  float values[CPU_CHUNK];
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    load_chunk(CPU_FLOAT32, row->logits, row->size, first, values);
    for (int i = 0; i < CPU_CHUNK; i++) {
      uint32_t bits = cpu_order_bits(values[i]);
      lanes[i] = bits > lanes[i] ? bits : lanes[i];
    }
  }
  for (int i = 0; i < CPU_CHUNK; i++)
    most = lanes[i] > most ? lanes[i] : most;
  return most;
}

static fl_status apply_min_p(const cpu_sampling_row *row) {
  float values[CPU_CHUNK];
  uint32_t most = row->min_p > 0 ? most_of(row) : cpu_order_nan;
  if (!isfinite(cpu_order_value(most))) {
    copy(row);
    return FL_OK;
  }
  uint32_t cut = cut_of(most, (double)row->min_p);
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    load_chunk(CPU_FLOAT32, row->logits, row->size, first, values);
    for (int i = 0; i < CPU_CHUNK; i++)
      values[i] = cpu_order_bits(values[i]) < cut ? -INFINITY : values[i];
    store_chunk(row, first, values);
  }
  return FL_OK;
}

/* Closes what comes behind `last` in the order. */
static void close_behind(const cpu_sampling_row *row, uint64_t last) {
  uint32_t bound = (uint32_t)(last >> 32), index = (uint32_t)cpu_order_index(last);
  float values[CPU_CHUNK];
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    load_chunk(CPU_FLOAT32, row->logits, row->size, first, values);
    for (int i = 0; i < CPU_CHUNK; i++) {
      uint32_t bits = cpu_order_bits(values[i]), at = (uint32_t)first + (uint32_t)i;
      bool stays = (bits > bound) | ((bits == bound) & (at <= index));
      values[i] = stays ? values[i] : -INFINITY;
    }
    store_chunk(row, first, values);
  }
}

/* Of an infinite or NaN largest value all probabilities are NaN: only the first stays. Of a row of -infinity all do. */
static uint64_t last_of(const cpu_leading *leading, int64_t top_k, float top_p) {
  float most = cpu_order_value(leading->most);
  bool all = top_p >= 1 || most == -INFINITY, by_part = !all && isfinite(most);
  if (by_part && top_k == leading->size)
    return cpu_leading_part(leading, (double)top_p);
  int64_t n = all || by_part ? top_k : 1;
  cpu_leading_choose(leading, n);
  return by_part ? cpu_leading_part_of_keys(leading, n, (double)top_p) : cpu_leading_last(leading->keys, n);
}

static fl_status apply_top_k_top_p(const cpu_sampling_row *row) {
  if (row->top_k == row->size && row->top_p >= 1) {
    copy(row);
    return FL_OK;
  }
  void *memory = cpu_scratch_take_bytes(cpu_leading_bytes(row->size));
  if (!memory)
    return FL_ENOMEM;
  cpu_leading leading = cpu_leading_begin(row->logits, row->size, memory);
  close_behind(row, last_of(&leading, row->top_k, row->top_p));
  cpu_scratch_give(memory);
  return FL_OK;
}

/* --------------------------------------------------------------------------------------------------- taking a token */

/* Lane by lane the first of the largest; then the first of these. */
CPU_TEMPLATE int64_t argmax(cpu_dtype dtype, const void *logits, int64_t size) {
  uint32_t most[CPU_CHUNK] = {0}, at[CPU_CHUNK] = {0};
  uint64_t best = 0;
  float values[CPU_CHUNK];
  for (int64_t first = 0; first < size; first += CPU_CHUNK) {
    load_chunk(dtype, logits, size, first, values);
    for (int i = 0; i < CPU_CHUNK; i++) {
      uint32_t bits = cpu_order_bits(values[i]);
      at[i] = bits > most[i] ? (uint32_t)first : at[i];
      most[i] = bits > most[i] ? bits : most[i];
    }
  }
  for (int i = 0; i < CPU_CHUNK; i++) {
    uint64_t key = cpu_order_key(cpu_order_value(most[i]), (int64_t)at[i] + i);
    best = key > best ? key : best;
  }
  return cpu_order_index(best);
}

static fl_status greedy_argmax(const cpu_sampling_row *row) {
  *row->id = row->dtype == CPU_FLOAT32   ? argmax(CPU_FLOAT32, row->logits, row->size)
             : row->dtype == CPU_FLOAT16 ? argmax(CPU_FLOAT16, row->logits, row->size)
                                         : argmax(CPU_BFLOAT16, row->logits, row->size);
  return FL_OK;
}

/* How tokens are drawn: the one of the greatest l / t - log(e), where e is exponential noise, or made of uniform. */
typedef struct draw {
  bool uniform;
  float temperature; /* t */
} draw;

static double exact_score(draw how, float l, float noise) {
  double e = how.uniform ? -log1p(-(double)noise) : (double)noise;
  return (double)l / (double)how.temperature - log(e);
}

/* In float, times t: no token whose score is below this may be better than `best`. What is rounded are the logarithms,
 * which are 104 at most, their product with t and the sum. Below 0, or NaN: all may. */
static float bound_of(draw how, double best) {
  double t = (double)how.temperature;
  return t > 0 ? (float)(best * t - (t * 2e-4 + 1e-6 * fabs(best * t))) : -INFINITY;
}

/* Scores in float, and in double those of the tokens that may be the best yet, the first ones and then few. */
CPU_TEMPLATE int64_t draw_from(draw how, const cpu_sampling_row *row) {
  float values[CPU_CHUNK], noise[CPU_CHUNK], bound = -INFINITY;
  double best = -INFINITY;
  int64_t taken = 0;
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    int32_t may[CPU_CHUNK], any = 0;
    load_chunk(CPU_FLOAT32, row->logits, row->size, first, values);
    load_chunk(CPU_FLOAT32, row->noise, row->size, first, noise);
    for (int i = 0; i < CPU_CHUNK; i++) {
      float e = how.uniform ? probability_minus_log1p_minus(noise[i]) : noise[i];
      float score = values[i] - how.temperature * probability_log(e);
      may[i] = (values[i] != -INFINITY) & !(score < bound);
      any |= may[i];
    }
    for (int i = 0; any && i < CPU_CHUNK; i++) {
      double score = may[i] ? exact_score(how, values[i], noise[i]) : -INFINITY;
      if (isnan(score))
        return first + i;
      if (score > best) {
        best = score;
        taken = first + i;
        bound = bound_of(how, best);
      }
    }
  }
  return taken;
}

static fl_status exponential_sample(const cpu_sampling_row *row) {
  *row->id = draw_from((draw){false, 1}, row);
  return FL_OK;
}

static fl_status gumbel_sample(const cpu_sampling_row *row) {
  *row->id = row->temperature == 0 ? argmax(CPU_FLOAT32, row->logits, row->size)
                                   : draw_from((draw){true, row->temperature}, row);
  return FL_OK;
}

/* --------------------------------------------------------------------------------------------------------- logprobs */

static float logsumexp(const cpu_leading *row) {
  float most = cpu_order_value(row->most), values[CPU_CHUNK];
  double lanes[CPU_CHUNK] = {0}, sum = 0;
  if (!isfinite(most))
    return most;
  for (int64_t first = 0; first < row->size; first += CPU_CHUNK) {
    load_chunk(CPU_FLOAT32, row->values, row->size, first, values);
    for (int i = 0; i < CPU_CHUNK; i++)
      lanes[i] += probability_exp((double)values[i] - (double)most);
  }
  for (int i = 0; i < CPU_CHUNK; i++)
    sum += lanes[i];
  return (float)((double)most + log(sum));
}

/* How many have a logprob of at least `given`. */
static int64_t rank_of(const cpu_leading *row, float lse, float given) {
  int64_t rank = 0, first = 0;
  for (; first + CPU_CHUNK <= row->size; first += CPU_CHUNK) {
    int32_t above = 0;
    for (int i = 0; i < CPU_CHUNK; i++)
      above += row->values[first + i] - lse >= given;
    rank += above;
  }
  for (; first < row->size; first++)
    rank += row->values[first] - lse >= given;
  return rank;
}

static void gather(const cpu_sampling_row *of, const cpu_leading *row) {
  float lse = logsumexp(row);
  of->ids[0] = (int32_t)of->token;
  of->logprobs[0] = row->values[of->token] - lse;
  *of->rank = rank_of(row, lse, of->logprobs[0]);
  if (!of->wanted)
    return;
  cpu_leading_choose(row, of->wanted);
  cpu_leading_sort(row->keys, of->wanted);
  for (int64_t i = 0; i < of->wanted; i++) {
    of->ids[i + 1] = (int32_t)cpu_order_index(row->keys[i]);
    of->logprobs[i + 1] = cpu_order_value_of(row->keys[i]) - lse;
  }
}

static void widen(cpu_dtype dtype, const void *logits, int64_t size, float *to) {
  for (int64_t first = 0; first < size; first += CPU_CHUNK) {
    if (dtype == CPU_FLOAT16)
      load_chunk(CPU_FLOAT16, logits, size, first, to + first);
    else
      load_chunk(CPU_BFLOAT16, logits, size, first, to + first);
  }
}

/* Other types are made floats first, with a whole chunk at the end. */
static fl_status gather_logprobs(const cpu_sampling_row *row) {
  size_t floats = row->dtype == CPU_FLOAT32 ? 0 : ((size_t)row->size + CPU_CHUNK) * sizeof(float);
  char *memory = cpu_scratch_take_bytes(cpu_leading_bytes(row->size) + floats);
  const float *values = row->logits;
  if (!memory)
    return FL_ENOMEM;
  if (floats) {
    float *wide = (float *)(memory + cpu_leading_bytes(row->size));
    widen(row->dtype, row->logits, row->size, wide);
    values = wide;
  }
  cpu_leading leading = cpu_leading_begin(values, row->size, memory);
  gather(row, &leading);
  cpu_scratch_give(memory);
  return FL_OK;
}

#define ROW(name)                                                                                                      \
  {                                                                                                                    \
    .op_name = #name, CPU_FLAGOS, .fn = cpu_##name, .self = (cpu_sampling_fn[]) {                                      \
      name                                                                                                             \
    }                                                                                                                  \
  }
static const fl_impl ops[] = {
    ROW(apply_penalties), ROW(apply_temperature),  ROW(apply_min_p),   ROW(apply_top_k_top_p),
    ROW(greedy_argmax),   ROW(exponential_sample), ROW(gumbel_sample), ROW(gather_logprobs),
};
OP_LIST(ops);
