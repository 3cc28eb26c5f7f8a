/*
 * Attention over parts of the keys, where tasks are few and sequences long: what comes of each part of a row, and how
 * that is joined. Where keys are cut depends on the call's sizes alone, not on the threads.
 */
#ifndef FLHOST_CPU_FLAGOS_ATTENTION_KEY_PARTS_H
#define FLHOST_CPU_FLAGOS_ATTENTION_KEY_PARTS_H

#include "plugins/cpu/flagos/attention/panel.h"
#include "plugins/cpu/flagos/vectors/vector.h"
#include "plugins/cpu/support/scratch.h"
#include "plugins/integers.h"

#include <string.h>

/* Rows are numbered by their owner. Of each part of one there are its sums of values, then its largest score and its
 * sum of weights. */
typedef struct key_parts {
  int64_t n, length; /* of a sequence, and keys in each */
  int64_t size;      /* of a value */
  float *floats;     /* NULL: n is 1 */
} key_parts;

/* About `n` parts, or as many as have results that are kept in memory that is there from call to call; a multiple of
 * `step` keys in each. */
static key_parts cut_keys(int64_t n, int64_t keys, int64_t step, int64_t rows, int64_t size) {
  const int64_t most = CPU_SCRATCH_KEPT / (rows * (size + 2) * (int64_t)sizeof(float) + 1);
  if (n <= 1 || most <= 1)
    return (key_parts){.n = 1, .length = keys, .size = size};
  const int64_t length = round_up(divide_up(keys, least(n, most)), step);
  return (key_parts){.n = divide_up(keys, length), .length = length, .size = size};
}

/* Memory for the results, where there are several parts; cpu_scratch_give gives it back. */
static fl_status take_parts(key_parts *parts, int64_t rows) {
  if (parts->n > 1 && !(parts->floats = cpu_scratch_take((size_t)(rows * (parts->size + 2) * parts->n))))
    return FL_ENOMEM;
  return FL_OK;
}

static float *part_of(const key_parts *parts, int64_t row, int64_t part) {
  return parts->floats + (row * parts->n + part) * (parts->size + 2);
}

static void keep_part(const key_parts *parts, int64_t row, int64_t part, const float *sums, float most, float total) {
  float *kept = part_of(parts, row, part);
  memcpy(kept, sums, (size_t)parts->size * sizeof *sums);
  kept[parts->size] = most;
  kept[parts->size + 1] = total;
}

/* Of all parts: returns the sums, which replace those of the first. */
static float *join_parts(const key_parts *parts, int64_t row, float *most, float *total) {
  float *joined = part_of(parts, row, 0);
  *most = joined[parts->size];
  *total = 0;
  for (int64_t part = 1; part < parts->n; part++) {
    const float other = part_of(parts, row, part)[parts->size];
    *most = other > *most ? other : *most;
  }
  for (int64_t part = 0; part < parts->n; part++) {
    const float *kept = part_of(parts, row, part), factor = vector_exp_weight(kept[parts->size] - base_of(*most));
    *total += kept[parts->size + 1] * factor;
    for (int64_t i = 0; i < parts->size; i++)
      joined[i] = (part ? joined[i] : 0) + kept[i] * factor;
  }
  return joined;
}

#endif
