/*
 * Rows as a row function goes through them: by whole chunks (or two at a time) where they lie, then what is left, in
 * places where zeros follow up to a whole one. So what computes a chunk stands once in a row function: compilers take
 * their time for it.
 *
 *   cpu_span span;
 *   for (cpu_span_begin(&span, size, CPU_CHUNK, around); span.size; cpu_span_next(&span)) {
 *     const char *x = cpu_span_in(&span, 0, row, bytes);
 *     char *out = cpu_span_out(&span, 0, results);
 *     for (int64_t i = 0, n = span.size; i < n; i += CPU_CHUNK)
 *       ...
 *     cpu_span_end(&span, 0, results, bytes);
 *   }
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_SPAN_H
#define FLHOST_CPU_FLAGOS_VECTORS_SPAN_H

#include "plugins/cpu/flagos/vectors/chunk.h"

typedef struct cpu_span {
  int64_t unit;        /* elements: a chunk, or two */
  int64_t first, size; /* elements of a row: whole units, or one for those that are left */
  int64_t left;        /* elements of the row from `first` on */
  bool around;         /* the caches, with whole units */
  bool padded;
  _Alignas(64) uint64_t in[3][CPU_CHUNK], out[2][CPU_CHUNK]; /* two chunks of floats each */
} cpu_span;

CPU_TEMPLATE void cpu_span_pad(cpu_span *span) {
  span->padded = true;
  span->around = false;
  span->size = span->left ? span->unit : 0;
}

CPU_TEMPLATE void cpu_span_begin(cpu_span *span, int64_t size, int64_t unit, bool around) {
  span->unit = unit;
  span->first = 0;
  span->left = size;
  span->around = around;
  span->padded = false;
  span->size = size - size % unit;
  if (!span->size)
    cpu_span_pad(span);
}

CPU_TEMPLATE void cpu_span_next(cpu_span *span) {
  span->first += span->size;
  span->left = span->padded ? 0 : span->left - span->size;
  cpu_span_pad(span);
}

/* Where the span of a row begins that is read; each such row has a place of its own. `bytes`: of an element, so that
 * a unit has at most two chunks of floats. */
CPU_TEMPLATE const char *cpu_span_in(cpu_span *span, int place, const void *row, int64_t bytes) {
  uint64_t *to = span->in[place];
  if (!span->padded)
    return row;
  for (int i = 0; i < (bytes < 4 ? CPU_CHUNK / 2 : CPU_CHUNK); i++) /* of memset compilers make a slow one */
    to[i] = 0;
  return memcpy(to, (const char *)row + span->first * bytes, (size_t)(span->left * bytes));
}

/* The same of a row that is written. */
CPU_TEMPLATE char *cpu_span_out(cpu_span *span, int place, void *row) {
  return span->padded ? (char *)span->out[place] : row;
}

CPU_TEMPLATE void cpu_span_end(const cpu_span *span, int place, void *row, int64_t bytes) {
  if (span->padded)
    memcpy((char *)row + span->first * bytes, span->out[place], (size_t)(span->left * bytes));
}

#endif
