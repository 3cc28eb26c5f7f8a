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

/* Elements `first` to first + n - 1, n <= CPU_CHUNK; lanes behind them are -infinity. Whole chunks and the last one, of
 * which some lanes may be none, are computed by loops of their own: a choice between them would keep all in memory. */
CPU_TEMPLATE void load_chunk(cpu_dtype dtype, const void *logits, int64_t first, int64_t n, float *values) {
  if (n == CPU_CHUNK) {
    cpu_load_next(dtype, values, logits, first, CPU_CHUNK);
    return;
  }
  cpu_load(dtype, values, logits, first, n);
  for (int64_t i = n; i < CPU_CHUNK; i++)
    values[i] = -INFINITY;
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

CPU_TEMPLATE void divide_chunk(const cpu_sampling_row *row, float temperature, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_chunk(CPU_FLOAT32, row->logits, first, n, values);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] /= temperature;
  cpu_store(CPU_FLOAT32, row->out, first, values, n);
}

static fl_status apply_temperature(const cpu_sampling_row *row) {
  const float temperature = row->temperature < 1e-5f ? 1 : row->temperature;
  int64_t first = 0;
  for (; first + CPU_CHUNK <= row->size; first += CPU_CHUNK)
    divide_chunk(row, temperature, first, CPU_CHUNK);
  if (first < row->size)
    divide_chunk(row, temperature, first, row->size - first);
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

/* Lane by lane, as the order's bits. */
CPU_TEMPLATE void find_most(const cpu_sampling_row *row, uint32_t *lanes, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_chunk(CPU_FLOAT32, row->logits, first, n, values);
  for (int i = 0; i < CPU_CHUNK; i++) {
    uint32_t bits = cpu_order_bits(values[i]);
    lanes[i] = bits > lanes[i] ? bits : lanes[i];
  }
}

static uint32_t most_of(const cpu_sampling_row *row) {
  uint32_t lanes[CPU_CHUNK] = {0}, most = 0;
  int64_t first = 0;
  for (; first + CPU_CHUNK <= row->size; first += CPU_CHUNK)
    find_most(row, lanes, first, CPU_CHUNK);
  if (first < row->size)
    find_most(row, lanes, first, row->size - first);
  for (int i = 0; i < CPU_CHUNK; i++)
    most = lanes[i] > most ? lanes[i] : most;
  return most;
}

/* Closes what is below the cut. */
CPU_TEMPLATE void cut_chunk(const cpu_sampling_row *row, uint32_t cut, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_chunk(CPU_FLOAT32, row->logits, first, n, values);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] = cpu_order_bits(values[i]) < cut ? -INFINITY : values[i];
  cpu_store(CPU_FLOAT32, row->out, first, values, n);
}

static fl_status apply_min_p(const cpu_sampling_row *row) {
  uint32_t most = row->min_p > 0 ? most_of(row) : cpu_order_nan;
  if (!isfinite(cpu_order_value(most))) {
    copy(row);
    return FL_OK;
  }
  const uint32_t cut = cut_of(most, (double)row->min_p);
  int64_t first = 0;
  for (; first + CPU_CHUNK <= row->size; first += CPU_CHUNK)
    cut_chunk(row, cut, first, CPU_CHUNK);
  if (first < row->size)
    cut_chunk(row, cut, first, row->size - first);
  return FL_OK;
}

/* Closes what comes behind (bound, index) in the order. */
CPU_TEMPLATE void close_chunk(const cpu_sampling_row *row, uint32_t bound, uint32_t index, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_chunk(CPU_FLOAT32, row->logits, first, n, values);
  for (int i = 0; i < CPU_CHUNK; i++) {
    uint32_t bits = cpu_order_bits(values[i]), at = (uint32_t)first + (uint32_t)i;
    bool stays = (bits > bound) | ((bits == bound) & (at <= index));
    values[i] = stays ? values[i] : -INFINITY;
  }
  cpu_store(CPU_FLOAT32, row->out, first, values, n);
}

static void close_behind(const cpu_sampling_row *row, uint64_t last) {
  const uint32_t bound = (uint32_t)(last >> 32), index = (uint32_t)cpu_order_index(last);
  int64_t first = 0;
  for (; first + CPU_CHUNK <= row->size; first += CPU_CHUNK)
    close_chunk(row, bound, index, first, CPU_CHUNK);
  if (first < row->size)
    close_chunk(row, bound, index, first, row->size - first);
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

/* Lane by lane the first of the largest. */
typedef struct leaders {
  uint32_t most[CPU_CHUNK], at[CPU_CHUNK]; /* in the order's bits; of the chunk where it is */
} leaders;

CPU_TEMPLATE void find_leaders(cpu_dtype dtype, leaders *found, const void *logits, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_chunk(dtype, logits, first, n, values);
  for (int i = 0; i < CPU_CHUNK; i++) {
    uint32_t bits = cpu_order_bits(values[i]);
    found->at[i] = bits > found->most[i] ? (uint32_t)first : found->at[i];
    found->most[i] = bits > found->most[i] ? bits : found->most[i];
  }
}

/* The first of the largest. */
CPU_TEMPLATE int64_t argmax(cpu_dtype dtype, const void *logits, int64_t size) {
  leaders found = {{0}, {0}};
  uint64_t best = 0;
  int64_t first = 0;
  for (; first + CPU_CHUNK <= size; first += CPU_CHUNK)
    find_leaders(dtype, &found, logits, first, CPU_CHUNK);
  if (first < size)
    find_leaders(dtype, &found, logits, first, size - first);
  for (int i = 0; i < CPU_CHUNK; i++) {
    uint64_t key = cpu_order_key(cpu_order_value(found.most[i]), (int64_t)found.at[i] + i);
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

/* A draw as far as it is. */
typedef struct drawn {
  double best;
  float bound; /* of it */
  int64_t taken;
} drawn;

/* Scores in float, and in double those of the tokens that may be the best yet, the first ones and then few. False: one
 * is no number, and taken. */
CPU_TEMPLATE bool draw_chunk(draw how, const cpu_sampling_row *row, drawn *yet, int64_t first, int64_t n) {
  float values[CPU_CHUNK], noise[CPU_CHUNK];
  int32_t may[CPU_CHUNK], any = 0;
  load_chunk(CPU_FLOAT32, row->logits, first, n, values);
  load_chunk(CPU_FLOAT32, row->noise, first, n, noise);
  for (int i = 0; i < CPU_CHUNK; i++) {
    float e = how.uniform ? probability_minus_log1p_minus(noise[i]) : noise[i];
    float score = values[i] - how.temperature * probability_log(e);
    may[i] = (values[i] != -INFINITY) & !(score < yet->bound);
    any |= may[i];
  }
  for (int i = 0; any && i < CPU_CHUNK; i++) {
    double score = may[i] ? exact_score(how, values[i], noise[i]) : -INFINITY;
    if (isnan(score)) {
      yet->taken = first + i;
      return false;
    }
    if (score > yet->best)
      *yet = (drawn){.best = score, .bound = bound_of(how, score), .taken = first + i};
  }
  return true;
}

CPU_TEMPLATE int64_t draw_from(draw how, const cpu_sampling_row *row) {
  drawn yet = {-INFINITY, -INFINITY, 0};
  int64_t first = 0;
  for (; first + CPU_CHUNK <= row->size; first += CPU_CHUNK)
    if (!draw_chunk(how, row, &yet, first, CPU_CHUNK))
      return yet.taken;
  if (first < row->size)
    draw_chunk(how, row, &yet, first, row->size - first);
  return yet.taken;
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

CPU_TEMPLATE void add_exponentials(const cpu_leading *row, double most, double *lanes, int64_t first, int64_t n) {
  float values[CPU_CHUNK];
  load_chunk(CPU_FLOAT32, row->values, first, n, values);
  for (int i = 0; i < CPU_CHUNK; i++)
    lanes[i] += probability_exp((double)values[i] - most);
}

static float logsumexp(const cpu_leading *row) {
  const float most = cpu_order_value(row->most);
  double lanes[CPU_CHUNK] = {0}, sum = 0;
  int64_t first = 0;
  if (!isfinite(most))
    return most;
  for (; first + CPU_CHUNK <= row->size; first += CPU_CHUNK)
    add_exponentials(row, (double)most, lanes, first, CPU_CHUNK);
  if (first < row->size)
    add_exponentials(row, (double)most, lanes, first, row->size - first);
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

/* With a whole chunk at the end. */
CPU_TEMPLATE void widen_as(cpu_dtype dtype, const void *logits, int64_t size, float *to) {
  int64_t first = 0;
  for (; first + CPU_CHUNK <= size; first += CPU_CHUNK)
    load_chunk(dtype, logits, first, CPU_CHUNK, to + first);
  if (first < size)
    load_chunk(dtype, logits, first, size - first, to + first);
}

static void widen(cpu_dtype dtype, const void *logits, int64_t size, float *to) {
  if (dtype == CPU_FLOAT16)
    widen_as(CPU_FLOAT16, logits, size, to);
  else
    widen_as(CPU_BFLOAT16, logits, size, to);
}

/* Other types are made floats first. */
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
