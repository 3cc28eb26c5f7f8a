/* Sums of squares: in independent lanes that compilers vectorise, in a fixed order, so the same bits every time. */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_SQUARES_H
#define FLHOST_CPU_FLAGOS_VECTORS_SQUARES_H

#include "plugins/cpu/flagos/vectors/lanes.h"
#include "plugins/cpu/flagos/vectors/span.h"

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
  return sum_of_lanes(squares->lanes, CPU_LANES);
}

/* A chunk of x, plus the residual where there is one. */
CPU_TEMPLATE void cpu_load_sum(cpu_dtype dtype, bool has_residual, float *values, const char *x, const char *residual,
                               int64_t first) {
  float added[CPU_CHUNK];
  cpu_load(dtype, values, x, first, CPU_CHUNK);
  if (!has_residual)
    return;
  cpu_load(dtype, added, residual, first, CPU_CHUNK);
  for (int i = 0; i < CPU_CHUNK; i++)
    values[i] += added[i];
}

CPU_TEMPLATE void cpu_squares_add_sum(cpu_dtype dtype, bool has_residual, float *lanes, const char *x,
                                      const char *residual, int64_t first) {
  float values[CPU_CHUNK];
  cpu_load_sum(dtype, has_residual, values, x, residual, first);
  cpu_squares_add_chunk(lanes, values);
}

/* The sum of the squares of a row, to which the residual is added where there is one. */
CPU_TEMPLATE float cpu_squares_of_row(cpu_dtype dtype, bool has_residual, const void *row, const void *residual_row,
                                      int64_t size) {
  const int64_t bytes = cpu_dtype_size(dtype);
  cpu_squares squares = {{0}};
  cpu_span span;
  for (cpu_span_begin(&span, size, CPU_LANES, false); span.size; cpu_span_next(&span)) {
    const char *x = cpu_span_in(&span, 0, row, bytes);
    const char *residual = has_residual ? cpu_span_in(&span, 1, residual_row, bytes) : NULL;
    for (int64_t i = 0, n = span.size; i < n; i += CPU_LANES) {
      cpu_squares_add_sum(dtype, has_residual, squares.lanes, x, residual, i);
      cpu_squares_add_sum(dtype, has_residual, squares.lanes + CPU_CHUNK, x, residual, i + CPU_CHUNK);
    }
  }
  return cpu_squares_sum(&squares);
}

#endif
