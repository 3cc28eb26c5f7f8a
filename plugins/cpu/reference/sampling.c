/*
 * Sampling as vLLM's sampler does it (v1/sample), a row at a time. What decides which token stays or is taken is
 * computed in double, so that an order of additions or a rounding decides nothing. Needs libm only.
 */
#include "plugins/cpu/sampling.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/order.h"
#include "plugins/cpu/support/scratch.h"

#include <math.h>
#include <string.h>

static const float *logits_of(const cpu_sampling_row *row) {
  return row->logits;
}

/* Adds 1 for each of the row's ids; those that are no token's are padding. */
static void count(const DLTensor *ids, const cpu_sampling_row *row, int32_t *counts) {
  for (int64_t i = 0; i < ids->shape[1]; i++) {
    int64_t id = cpu_index_at(ids, row->index, i);
    if (id >= 0 && id < row->size)
      counts[id]++;
  }
}

static fl_status apply_penalties(const cpu_sampling_row *row) {
  size_t bytes = 2 * (size_t)row->size * sizeof(int32_t);
  int32_t *output = cpu_scratch_take_bytes(bytes), *prompt = output ? output + row->size : NULL;
  if (!output)
    return FL_ENOMEM;
  memset(output, 0, bytes);
  count(row->output, row, output);
  count(row->prompt, row, prompt);
  for (int64_t i = 0; i < row->size; i++) {
    float l = logits_of(row)[i];
    if (output[i] || prompt[i])
      l = l > 0 ? l / row->repetition : l * row->repetition;
    if (output[i]) {
      l -= row->frequency * (float)output[i];
      l -= row->presence;
    }
    row->out[i] = l;
  }
  cpu_scratch_give(output);
  return FL_OK;
}

static fl_status apply_temperature(const cpu_sampling_row *row) {
  float temperature = row->temperature < 1e-5f ? 1 : row->temperature;
  for (int64_t i = 0; i < row->size; i++)
    row->out[i] = logits_of(row)[i] / temperature;
  return FL_OK;
}

/* NaN if one is. */
static float largest(const cpu_sampling_row *row) {
  uint32_t most = 0;
  for (int64_t i = 0; i < row->size; i++) {
    uint32_t bits = cpu_order_bits(load(row->dtype, row->logits, i));
    most = bits > most ? bits : most;
  }
  return cpu_order_value(most);
}

/* p / max(p), of which one is 1. Of an infinite or NaN maximum all p are NaN, and no comparison with them is true. */
static fl_status apply_min_p(const cpu_sampling_row *row) {
  float most = largest(row);
  for (int64_t i = 0; i < row->size; i++) {
    float l = logits_of(row)[i];
    bool below = isfinite(most) && exp((double)l - (double)most) < (double)row->min_p;
    row->out[i] = below ? -INFINITY : l;
  }
  return FL_OK;
}

/* Of a heap, whose least key is the first, only keys[at] may be out of place. */
static void sift(uint64_t *keys, int64_t at, int64_t n) {
  uint64_t key = keys[at];
  for (int64_t child; (child = 2 * at + 1) < n; at = child) {
    child += child + 1 < n && keys[child + 1] < keys[child];
    if (keys[child] >= key)
      break;
    keys[at] = keys[child];
  }
  keys[at] = key;
}

/* Descending. Not by qsort, which allocates. */
static void sort(uint64_t *keys, int64_t n) {
  for (int64_t i = n / 2; i-- > 0;)
    sift(keys, i, n);
  while (n-- > 1) {
    uint64_t least = keys[0];
    keys[0] = keys[n];
    keys[n] = least;
    sift(keys, 0, n);
  }
}

/* The whole row in its order; cpu_scratch_give. */
static uint64_t *sorted(const cpu_sampling_row *row) {
  uint64_t *keys = cpu_scratch_take_bytes((size_t)row->size * sizeof *keys);
  for (int64_t i = 0; keys && i < row->size; i++)
    keys[i] = cpu_order_key(load(row->dtype, row->logits, i), i);
  if (keys)
    sort(keys, row->size);
  return keys;
}

/* How many of the first n stay. */
static int64_t prefix(const uint64_t *keys, int64_t n, float top_p) {
  double all = 0, before = 0, most = (double)cpu_order_value_of(keys[0]);
  if (top_p >= 1 || most == -INFINITY)
    return n;
  for (int64_t i = 0; i < n; i++)
    all += exp((double)cpu_order_value_of(keys[i]) - most);
  for (int64_t i = 0; i < n; i++) {
    if (i && !(before < (double)top_p * all))
      return i;
    before += exp((double)cpu_order_value_of(keys[i]) - most);
  }
  return n;
}

static fl_status apply_top_k_top_p(const cpu_sampling_row *row) {
  uint64_t *keys = sorted(row);
  if (!keys)
    return FL_ENOMEM;
  for (int64_t i = 0; i < row->size; i++)
    row->out[i] = logits_of(row)[i];
  for (int64_t i = prefix(keys, row->top_k, row->top_p); i < row->size; i++)
    row->out[cpu_order_index(keys[i])] = -INFINITY;
  cpu_scratch_give(keys);
  return FL_OK;
}

static fl_status greedy_argmax(const cpu_sampling_row *row) {
  uint64_t first = 0;
  for (int64_t i = 0; i < row->size; i++) {
    uint64_t key = cpu_order_key(load(row->dtype, row->logits, i), i);
    first = key > first ? key : first;
  }
  *row->id = cpu_order_index(first);
  return FL_OK;
}

/* The first in the order of `score`, which NaN leads; that of a token of -inf is -inf. */
static fl_status take_best(const cpu_sampling_row *row, double (*score)(const cpu_sampling_row *row, int64_t i)) {
  double best = -INFINITY;
  *row->id = 0;
  for (int64_t i = 0; i < row->size; i++) {
    double given = logits_of(row)[i] == -INFINITY ? -INFINITY : score(row, i);
    if (given > best || (isnan(given) && !isnan(best))) {
      best = given;
      *row->id = i;
    }
  }
  return FL_OK;
}

static double exponential_score(const cpu_sampling_row *row, int64_t i) {
  return (double)logits_of(row)[i] - log((double)row->noise[i]);
}

static fl_status exponential_sample(const cpu_sampling_row *row) {
  return take_best(row, exponential_score);
}

static double gumbel_score(const cpu_sampling_row *row, int64_t i) {
  return (double)logits_of(row)[i] / (double)row->temperature - log(-log1p(-(double)row->noise[i]));
}

static fl_status gumbel_sample(const cpu_sampling_row *row) {
  return row->temperature == 0 ? greedy_argmax(row) : take_best(row, gumbel_score);
}

static float logsumexp(const cpu_sampling_row *row) {
  float most = largest(row);
  double sum = 0;
  if (!isfinite(most))
    return most;
  for (int64_t i = 0; i < row->size; i++)
    sum += exp((double)load(row->dtype, row->logits, i) - (double)most);
  return (float)((double)most + log(sum));
}

static fl_status gather_logprobs(const cpu_sampling_row *row) {
  uint64_t *keys = sorted(row);
  float lse = logsumexp(row), given = load(row->dtype, row->logits, row->token) - lse;
  if (!keys)
    return FL_ENOMEM;
  row->ids[0] = (int32_t)row->token;
  row->logprobs[0] = given;
  for (int64_t i = 0; i < row->wanted; i++) {
    row->ids[i + 1] = (int32_t)cpu_order_index(keys[i]);
    row->logprobs[i + 1] = cpu_order_value_of(keys[i]) - lse;
  }
  *row->rank = 0;
  for (int64_t i = 0; i < row->size; i++)
    *row->rank += load(row->dtype, row->logits, i) - lse >= given;
  cpu_scratch_give(keys);
  return FL_OK;
}

#define ROW(name)                                                                                                      \
  {                                                                                                                    \
    .op_name = #name, CPU_REFERENCE, .fn = cpu_##name, .self = (cpu_sampling_fn[]) {                                   \
      name                                                                                                             \
    }                                                                                                                  \
  }
static const fl_impl ops[] = {
    ROW(apply_penalties), ROW(apply_temperature),  ROW(apply_min_p),   ROW(apply_top_k_top_p),
    ROW(greedy_argmax),   ROW(exponential_sample), ROW(gumbel_sample), ROW(gather_logprobs),
};
OP_LIST(ops);
