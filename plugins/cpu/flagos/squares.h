/* Sums of squares: in independent lanes that compilers vectorise, in a fixed order, so the same bits every time. */
#ifndef FLHOST_CPU_FLAGOS_SQUARES_H
#define FLHOST_CPU_FLAGOS_SQUARES_H

#include <stdint.h>

enum { CPU_LANES = 16 };

typedef struct cpu_squares {
  float lanes[CPU_LANES];
} cpu_squares;

static inline void cpu_squares_add(cpu_squares *squares, const float *values, int64_t n) {
  int64_t i = 0;
  for (; i + CPU_LANES <= n; i += CPU_LANES)
    for (int lane = 0; lane < CPU_LANES; lane++)
      squares->lanes[lane] += values[i + lane] * values[i + lane];
  for (; i < n; i++)
    squares->lanes[0] += values[i] * values[i];
}

static inline float cpu_squares_sum(const cpu_squares *squares) {
  float sum = 0;
  for (int lane = 0; lane < CPU_LANES; lane++)
    sum += squares->lanes[lane];
  return sum;
}

#endif
