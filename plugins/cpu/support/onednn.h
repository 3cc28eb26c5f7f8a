/*
 * Matrix products by oneDNN, which is opened when first needed and need not be there. It computes in the calling thread
 * alone: its OpenMP threads would not come back after fork.
 */
#ifndef FLHOST_CPU_SUPPORT_ONEDNN_H
#define FLHOST_CPU_SUPPORT_ONEDNN_H

#include "plugins/cpu/support/product.h"

/* Whether it is there: the first call opens it. FLHOST_ONEDNN names another file; set-uid programs ignore it. */
bool cpu_onednn_is_there(void);

/* A product made for one thread: of a and b of given sizes, strides and element types, without bias, into floats that
 * are rows of n without gaps. It has no fast kernel for others. */
typedef struct cpu_onednn cpu_onednn;

/* Made for `like`; NULL where oneDNN is not there, or has no fast kernel for it. `packed`: b as cpu_onednn_pack left
 * it; NULL: b as the product has it. */
cpu_onednn *cpu_onednn_begin(const cpu_product *like, const void *packed);

/* a and b are as those that it was made for, but for where they lie. False: it failed, and `out` holds anything. */
bool cpu_onednn_run(cpu_onednn *made, const void *a, const void *b, float *out);

/* b of a product as oneDNN likes it best for products of many rows: bytes that this takes, a multiple of 64, or 0: it
 * is not there, or would leave b as it is. Then fills them, at an address that is one; false: it failed. */
size_t cpu_onednn_packed_size(const cpu_product *like);
bool cpu_onednn_pack(const cpu_product *like, void *packed);

/* NULL is nothing. */
void cpu_onednn_end(cpu_onednn *made);

#endif
