/* One rank's part, and what is done with it. */
#ifndef FLHOST_HCCL_RANK_H
#define FLHOST_HCCL_RANK_H

#include "plugins/hccl/library.h"
#include "plugins/ranks/works.h"

struct fl_rank {
  HcclComm comm;
  int32_t device;
  int me, n;
  aclrtStream stream; /* for work that is given the default stream, which the library does not take */
  void *spare;        /* device memory in place of a buffer of no elements, which may be NULL */
  bool failed;        /* what is on streams may never end */
  works works;        /* what was asked for, and the limit */
  work_id late;       /* the first that was not done within it; 0: none */
  char *message;      /* the group's */
  size_t message_size;
};

/* ------------------------------------------------------------------------- limit.c. On the device that was entered: */

void hccl_limit_rank(fl_rank *rank, double timeout);
/* FL_EDEVICE with words, from when work was late on. */
fl_status hccl_check_late(fl_rank *rank);
/* Waits for a stream, where the runtime lets that end as long as the limit, from the last work's begin on, does. */
fl_status hccl_wait_for(fl_rank *rank, aclrtStream stream);
/* Waits until nothing that was asked for is on streams any more. false: it is late, or may never end. */
bool hccl_await_works(fl_rank *rank);

/* An error of the rank's, in words. FL_ENOTSUP is none. */
fl_status hccl_failed(fl_rank *rank, fl_status status);
fl_status hccl_failed_in(fl_rank *rank, const char *function, aclError code);

/* Of fl_communicator. */
fl_status hccl_make_id(void *self, void *id, char *message, size_t message_size);
fl_status hccl_join(void *self, const fl_join *join, fl_rank **rank);
void hccl_leave(void *self, fl_rank *rank);
fl_status hccl_state(void *self, fl_rank *rank);

/* Any collective but reduce and gather. */
fl_status hccl_collective(void *self, fl_rank *rank, const fl_collective *collective);
fl_status hccl_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size);

#endif
