/* One rank's part, and what is done with it. */
#ifndef FLHOST_HCCL_RANK_H
#define FLHOST_HCCL_RANK_H

#include "plugins/hccl/library.h"

struct fl_rank {
  HcclComm comm;
  int32_t device;
  int me, n;
  aclrtStream stream; /* for work that is given the default stream, which the library does not take */
  void *spare;        /* device memory in place of a buffer of no elements, which may be NULL */
  bool failed;        /* what is on streams may never end */
  char *message;      /* the group's */
  size_t message_size;
};

/* Of fl_communicator. */
fl_status hccl_make_id(void *self, void *id, char *message, size_t message_size);
fl_status hccl_join(void *self, const fl_join *join, fl_rank **rank);
void hccl_leave(void *self, fl_rank *rank);
fl_status hccl_state(void *self, fl_rank *rank);

/* Any collective but reduce and gather. */
fl_status hccl_collective(void *self, fl_rank *rank, const fl_collective *collective);
fl_status hccl_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size);

#endif
