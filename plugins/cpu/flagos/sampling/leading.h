/*
 * The first elements of a row in its order (order.h), without sorting the row: the largest of each chunk rule out most
 * chunks, and of what is left a part is chosen, or sorted.
 */
#ifndef FLHOST_CPU_FLAGOS_SAMPLING_LEADING_H
#define FLHOST_CPU_FLAGOS_SAMPLING_LEADING_H

#include "plugins/cpu/support/order.h"

#include <stddef.h>

/* A row, with memory for what is found out of it. */
typedef struct cpu_leading {
  const float *values;
  int64_t size;
  uint64_t *keys;    /* [size]: of elements in no order */
  uint32_t *largest; /* of each chunk, cpu_order_bits */
  uint32_t most;     /* of all */
} cpu_leading;

/* Bytes of memory for a row of that size, and the row in it; finds `largest` and `most`. */
size_t cpu_leading_bytes(int64_t size);
cpu_leading cpu_leading_begin(const float *values, int64_t size, void *memory);

/* Makes the first n keys those of the row's first n elements, 1 <= n <= size; in no order. */
void cpu_leading_choose(const cpu_leading *row, int64_t n);

/* Of the n keys, or of the row, the shortest prefix of the order whose probability is `part` of that of all, at least
 * one: the key that it ends with. The softmax is of finite values; part < 1. */
uint64_t cpu_leading_part_of_keys(const cpu_leading *row, int64_t n, double part);
uint64_t cpu_leading_part(const cpu_leading *row, double part);

/* The least of n keys, and all in order. */
uint64_t cpu_leading_last(const uint64_t *keys, int64_t n);
void cpu_leading_sort(uint64_t *keys, int64_t n);

#endif
