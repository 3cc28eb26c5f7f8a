/* Sums of squares: in independent lanes that compilers vectorise, in a fixed order, so the same bits every time. */
#ifndef FLHOST_CPU_FLAGOS_SQUARES_H
#define FLHOST_CPU_FLAGOS_SQUARES_H

#include "plugins/cpu/flagos/chunk.h"

/* Of two chunks: additions are slower to finish than to begin. */
enum { CPU_LANES = 2 * CPU_CHUNK };

typedef struct cpu_squares {
  float lanes[CPU_LANES];
} cpu_squares;

/* Lane by lane: to `lanes`, which are CPU_CHUNK of them. */
CPU_TEMPLATE void cpu_squares_add_chunk(float *restrict lanes, const float *restrict values) {
  for (int i = 0; i < CPU_CHUNK; i++)
    lanes[i] += values[i] * values[i];
}

CPU_TEMPLATE void cpu_squares_add(cpu_squares *squares, const float *values, int64_t n) {
  int64_t i = 0;
  for (; i + CPU_CHUNK <= n; i += CPU_CHUNK)
    cpu_squares_add_chunk(squares->lanes + i / CPU_CHUNK % 2 * CPU_CHUNK, values + i);
  for (; i < n; i++)
    squares->lanes[0] += values[i] * values[i];
}

CPU_TEMPLATE float cpu_squares_sum(const cpu_squares *squares) {
  float sums[8] = {0}, sum = 0;
  for (int i = 0; i < CPU_LANES; i += 8)
    for (int lane = 0; lane < 8; lane++)
      sums[lane] += squares->lanes[i + lane];
  for (int i = 0; i < 8; i++)
    sum += sums[i];
  return sum;
}

#endif
