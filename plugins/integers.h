/* Arithmetic of sizes. Neither is negative, and `by` is not 0. */
#ifndef FLHOST_PLUGINS_INTEGERS_H
#define FLHOST_PLUGINS_INTEGERS_H

#include <stdint.h>

static inline int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

static inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* The next multiple, or `n` itself. */
static inline int64_t round_up(int64_t n, int64_t multiple) {
  return divide_up(n, multiple) * multiple;
}

#endif
