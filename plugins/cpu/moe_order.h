/*
 * The order in which a token's experts are chosen, as integers: keys that are compared without a branch. Compiled with
 * the scores of each implementation, as what is fast for one instruction set is not for the next.
 */
#ifndef FLHOST_CPU_MOE_ORDER_H
#define FLHOST_CPU_MOE_ORDER_H

#include "plugins/cpu/moe_routing.h"
#include "plugins/cpu/support/element.h"
#include "plugins/cpu/support/order.h"

#include <math.h>

/* The type of score + bias. */
static inline cpu_dtype cpu_choice_type(const cpu_routing *routing) {
  return routing->bias && cpu_dtype_of(routing->bias) != routing->rounding ? CPU_FLOAT32 : routing->rounding;
}

/* No key is CPU_CLOSED or CPU_ABOVE_ALL. */
static inline uint64_t cpu_expert_key(float score, int64_t index) {
  return cpu_order_key(score, index);
}

static inline int64_t cpu_expert_of(uint64_t key) {
  return cpu_order_index(key);
}

/* The score that is compared. */
static inline float cpu_choice(const cpu_routing *routing, float score, int64_t index) {
  return routing->bias ? round_to(cpu_choice_type(routing),
                                  score + load(cpu_dtype_of(routing->bias), fl_data(routing->bias), index))
                       : score;
}

/* Guards and rounds the scores, and makes their keys. */
static inline void cpu_order_experts(const cpu_routing *routing, float *restrict scores, uint64_t *restrict keys) {
  const int64_t n = routing->experts; /* which no store changes */
  if (routing->guarded)
    for (int64_t i = 0; i < n; i++)
      scores[i] = fabsf(scores[i]) <= 3.4028235e38f ? scores[i] : 0;
  if (routing->rounding != CPU_FLOAT32)
    for (int64_t i = 0; i < n; i++)
      scores[i] = round_to(routing->rounding, scores[i]);
  if (routing->bias)
    for (int64_t i = 0; i < n; i++)
      keys[i] = cpu_expert_key(cpu_choice(routing, scores[i], i), i);
  else
    for (int64_t i = 0; i < n; i++)
      keys[i] = cpu_expert_key(scores[i], i);
}

/* The largest key below `bound`, of which there is one: that which lacks least, as those above lack a lot. */
static inline uint64_t cpu_largest_below(const uint64_t *keys, int64_t n, uint64_t bound) {
  uint64_t least = UINT64_MAX;
  for (int64_t i = 0; i < n; i++) {
    uint64_t lacks = bound - 1 - keys[i];
    least = lacks < least ? lacks : least;
  }
  return bound - 1 - least;
}

#endif
