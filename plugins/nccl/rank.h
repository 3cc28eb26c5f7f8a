/* One rank's part, and what is done with it. */
#ifndef FLHOST_NCCL_RANK_H
#define FLHOST_NCCL_RANK_H

#include "plugins/nccl/library.h"

struct fl_rank {
  ncclComm_t comm;
  gpu_device *device;
  int me, n;
  atomic_bool aborted; /* the library's part is gone */
  void *streams;       /* nccl_calls.find_stream's, */
  cudaStream_t stream; /* and the collective's that is being made */
  char *message;       /* the group's */
  size_t message_size;
};

/* The rank's device is the thread's until gpu.call.leave. FL_ESTATE after an abort. */
fl_status nccl_enter(fl_rank *rank, gpu_scope *scope);

/* The status for a result other than ncclSuccess that the library's function gave, "AllReduce", said in the message. */
fl_status nccl_failed(ncclResult_t result, const char *function, char *message, size_t message_size);

/* Of fl_communicator. */
fl_status nccl_make_id(void *self, void *id, char *message, size_t message_size);
fl_status nccl_join(void *self, const fl_join *join, fl_rank **rank);
void nccl_leave(void *self, fl_rank *rank);
void nccl_abort(void *self, fl_rank *rank);
fl_status nccl_state(void *self, fl_rank *rank);
fl_status nccl_split(void *self, fl_rank *rank, int32_t color, int32_t key, const fl_join *join, fl_rank **part);

/* Any collective but a barrier. */
fl_status nccl_collective(void *self, fl_rank *rank, const fl_collective *collective);
fl_status nccl_batch(void *self, fl_rank *rank, const fl_collective *collectives, uint32_t n, uint32_t item_size);

#endif
