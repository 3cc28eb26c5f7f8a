/* The collectives, in the form that fl_communicator has them. */
#ifndef FLHOST_PLUGINS_SHM_COLLECTIVES_H
#define FLHOST_PLUGINS_SHM_COLLECTIVES_H

#include "plugins/shm/rank.h"

fl_status shm_all_reduce(void *self, fl_rank *rank, const fl_collective *c); /* and reduce */
fl_status shm_share(void *self, fl_rank *rank, const fl_collective *c);      /* broadcast, all_gather(_v), gather */
fl_status shm_exchange(void *self, fl_rank *rank,
                       const fl_collective *c); /* reduce_scatter(_v), scatter, all_to_all(_v) */
fl_status shm_barrier(void *self, fl_rank *rank, const fl_collective *c);
fl_status shm_message(void *self, fl_rank *rank, const fl_collective *c); /* send, recv */
fl_status shm_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size);

/* Of a fl_collective_kind, "all_reduce". */
const char *shm_kind_name(int32_t kind);

/* Can this call be made? Else FL_EINVAL, FL_ENOTSUP or what broke the communicator, in the rank's message. */
fl_status shm_check(fl_rank *rank, const fl_collective *c);

/* Of an element. */
static inline size_t shm_element_bytes(DLDataType dtype) {
  return ((size_t)dtype.bits * dtype.lanes + 7) / 8;
}

static inline bool shm_is_message(const fl_collective *c) {
  return c->kind == FL_SEND || c->kind == FL_RECV;
}

#endif
