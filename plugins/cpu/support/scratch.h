/* Scratch memory of the calling thread, which is kept from call to call: kernels allocate nothing while they run again
 * and again. */
#ifndef FLHOST_CPU_SUPPORT_SCRATCH_H
#define FLHOST_CPU_SUPPORT_SCRATCH_H

#include <stddef.h>

/*
 * Memory for `n` floats, or bytes, that begins on a cache line and holds anything; NULL if there is none left. What was
 * taken last is given back first, by the same thread; NULL need not be. A thread keeps what CPU_SCRATCH_KEPT says for
 * each of the first CPU_SCRATCH_DEPTH that it holds at once, until it ends.
 */
float *cpu_scratch_take(size_t n);
void *cpu_scratch_take_bytes(size_t n);
void cpu_scratch_give(void *scratch);

enum { CPU_SCRATCH_DEPTH = 7, CPU_SCRATCH_KEPT = 8 << 20 /* bytes */ };

#endif
