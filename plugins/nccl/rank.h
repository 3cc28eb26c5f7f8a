/* One rank's part, and what is done with it. */
#ifndef FLHOST_NCCL_RANK_H
#define FLHOST_NCCL_RANK_H

#include "plugins/nccl/library.h"
#include "plugins/ranks/works.h"

struct fl_rank {
  ncclComm_t comm;
  gpu_device *device;
  int me, n;
  void *streams;       /* nccl_calls.find_stream's, */
  cudaStream_t stream; /* and the collective's that is being made */
  char *message;       /* the group's */
  size_t message_size;
  pthread_mutex_t lock; /* held while the library has the communicator */
  bool polled;          /* of begin_rank */
  /* The library's part is gone: 0, NCCL_ABORTED, or the work that came to no end. */
  _Atomic work_id ended;
  works works; /* without a limit nobody watches */
  /* Where a split's result goes, which a library that went on in the background may write as long as there is comm;
   * one that failed stays here until the rank leaves. */
  ncclComm_t split;
  fl_rank *next_watched; /* watchdog.c's */
};

#define NCCL_ABORTED UINT64_MAX

/* The rank's device is the thread's, and its communicator this thread's alone, until nccl_exit. FL_ESTATE after an
 * abort, FL_EDEVICE after work that came to no end. */
fl_status nccl_enter(fl_rank *rank, gpu_scope *scope);
void nccl_exit(fl_rank *rank, const gpu_scope *scope);

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

/* -------------------------------------------------------------------------------------- limit.c: how long it waits */

/* The limit of a rank that is being made, and the events for it, on the device that was entered. */
void nccl_limit_rank(fl_rank *rank, double timeout);

/* What becomes of a result: where the library went on in the background, it is waited for, up to the limit, after which
 * this rank's part has ended. With the rank's lock. */
ncclResult_t nccl_await(fl_rank *rank, ncclResult_t result);
/* Waits for what is on streams; the watchdog sees to it that this ends. Without the rank's lock. */
void nccl_await_works(fl_rank *rank);

/* Ends the library's part for a reason, once: NCCL_ABORTED or a work. From any thread, also while another is in the
 * library, which comes back. */
void nccl_end_part(fl_rank *rank, work_id why, bool has_lock);

/* Says which work came to no end. */
fl_status nccl_say_late(const fl_rank *rank, work_id late);
/* What a call says in the end: why the part has ended, or what `function` gave. */
fl_status nccl_outcome(const fl_rank *rank, ncclResult_t result, const char *function);

/* --------------------------------------------------------------------------------------------------- watchdog.c: who
 * looks, where the rank's own thread does not come back from waiting for a stream
 */

/* A rank with a limit is watched by a thread, which there is as long as there are such ranks. false: there is none. */
bool nccl_watch(fl_rank *rank);
/* Returns when the watchdog has let go of it. */
void nccl_unwatch(fl_rank *rank);
/* At registration. */
void nccl_guard_watchdog(void);

#endif
