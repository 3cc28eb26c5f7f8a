/*
 * Matrix products by oneDNN, which is opened when first needed and need not be there. It computes in the calling thread
 * alone: its OpenMP threads would not come back after fork.
 */
#ifndef FLHOST_CPU_ONEDNN_H
#define FLHOST_CPU_ONEDNN_H

#include "plugins/cpu/flagos/matmul.h"

/* Whether it is there: the first call opens it. FLHOST_ONEDNN names another file; set-uid programs ignore it. */
bool cpu_onednn_is_there(void);

/* A product made for one thread: of a and b of given sizes, strides and element types, without bias, into floats that
 * are rows of n without gaps. It has no fast kernel for others. */
typedef struct cpu_onednn cpu_onednn;

/* Made for `like`; NULL where oneDNN is not there, or has no fast kernel for it. */
cpu_onednn *cpu_onednn_begin(const cpu_product *like);

/* a and b are as those that it was made for, but for where they lie. False: it failed, and `out` holds anything. */
bool cpu_onednn_run(cpu_onednn *made, const void *a, const void *b, float *out);

/* NULL is nothing. */
void cpu_onednn_end(cpu_onednn *made);

#endif
