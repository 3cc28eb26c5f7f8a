/*
 * Blocks: how the optimised kernels see a row of any element type. A block is a run of floats that stays in the first
 * level cache; converting a block, computing on it and converting it back are simple loops that compilers vectorise,
 * and which type is converted is one indirect call a block.
 */
#ifndef FLHOST_CPU_FLAGOS_VECTORS_BLOCK_H
#define FLHOST_CPU_FLAGOS_VECTORS_BLOCK_H

#include "plugins/cpu/cpu.h"

enum { CPU_BLOCK = 256 };

typedef struct cpu_block_type {
  void (*load)(float *restrict to, const void *restrict row, int64_t first, int64_t n);
  void (*store)(void *restrict row, int64_t first, const float *restrict from, int64_t n);
  void (*round)(float *values, int64_t n); /* to the element type and back */
} cpu_block_type;

extern const cpu_block_type cpu_block_types[CPU_N_DTYPES];

static inline int64_t cpu_block_size(int64_t left) {
  return left < CPU_BLOCK ? left : CPU_BLOCK;
}

#endif
