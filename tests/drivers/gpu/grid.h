/*
 * Grids of threads on the CPU: how the stand-in drivers run kernels, which are compiled from the very sources that the
 * GPUs get. The threads of a block are coroutines that give way only where they wait for each other, so that a kernel
 * without barriers costs little more than a loop. C11 and C++17: kernels include it through emulated.h.
 */
#ifndef FLHOST_TESTS_GRID_H
#define FLHOST_TESTS_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct grid_dimensions {
  unsigned x, y, z;
} grid_dimensions;

/* A kernel, found by name in the section "grid_kernels". */
typedef struct grid_kernel {
  const char *name;
  void (*run)(const void *arguments); /* one thread */
  size_t arguments_size;
  unsigned most_threads; /* of a block */
  const char *file;      /* that it is written in */
} grid_kernel;

/* What a thread knows of itself. */
typedef struct grid_thread {
  grid_dimensions thread, block;         /* threadIdx, blockIdx */
  grid_dimensions block_size, grid_size; /* blockDim, gridDim */
  unsigned char *shared;                 /* dynamic shared memory */
} grid_thread;

/* The running one. */
extern __thread grid_thread *grid_self;

/* Waits for all threads of the block that have not ended. */
void grid_barrier(void);

/* Each thread of a warp gives `size` (at most 8) bytes and gets those of the lane `from`, or its own where there is no
 * such lane. Waits for all lanes that have not ended. */
void grid_exchange(void *value, size_t size, unsigned lane, unsigned from);

/* NULL: there is no such kernel. */
const grid_kernel *grid_find(const char *name);
/* One after the other, in no order; NULL past the last. */
const grid_kernel *grid_kernel_at(size_t i);

/* Runs a grid to its end, `backwards` from its last block and thread to the first. false, with the reason in `words`:
 * its threads wait for each other for ever, or a size is more than a device has. Any thread. */
bool grid_run(const grid_kernel *kernel, const void *arguments, grid_dimensions grid, grid_dimensions block,
              unsigned shared, bool backwards, char *words, size_t size);

#ifdef __cplusplus
}
#endif
#endif
