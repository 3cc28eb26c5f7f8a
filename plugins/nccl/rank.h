/* One rank's part, and what is done with it. */
#ifndef FLHOST_NCCL_RANK_H
#define FLHOST_NCCL_RANK_H

#include "plugins/nccl/library.h"

/* What a rank waits for: a fl_collective_kind, or one of these. */
typedef enum nccl_work_kind {
  NCCL_BATCH = FL_COLLECTIVES,
  NCCL_JOINING,
  NCCL_SPLITTING,
  NCCL_LEAVING,
  NCCL_WORK_KINDS
} nccl_work_kind;

/* Which of a rank's works: its number among them, from 1 on (joining: 0), and the kind; never 0. */
typedef uint64_t nccl_work_id;

/* A collective that was asked of the library, with an event behind it in its stream. The rank's thread writes it, the
 * watchdog reads it. */
typedef struct nccl_work {
  gpu_event event;         /* of the rank's device, for as long as the rank's part */
  _Atomic uint64_t since;  /* when it was asked for, nccl_now's; 0: there is none */
  _Atomic nccl_work_id id; /* which it is */
  _Atomic bool recorded;   /* the event says when it is done; before, the library is still being asked */
} nccl_work;

enum { NCCL_WORKS = 64 };

struct fl_rank {
  ncclComm_t comm;
  gpu_device *device;
  int me, n;
  void *streams;       /* nccl_calls.find_stream's, */
  cudaStream_t stream; /* and the collective's that is being made */
  char *message;       /* the group's */
  size_t message_size;
  pthread_mutex_t lock; /* held while the library has the communicator */
  double timeout;       /* seconds; 0: without end, and nobody watches */
  uint64_t limit;       /* the same in nanoseconds */
  bool polled;          /* of begin_rank */
  /* The library's part is gone: 0, NCCL_ABORTED, or the work that came to no end. */
  _Atomic nccl_work_id ended;
  nccl_work_id work;           /* the last that was begun, the thread's own */
  uint64_t place;              /* where the next goes in works, */
  nccl_work works[NCCL_WORKS]; /* which is a circle of the last ones; without events where the driver has none */
  fl_rank *next_watched;       /* watchdog.c's */
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

/* ------------------------------------------------------------------------------------------------- limit.c: how long
 */

uint64_t nccl_now(void); /* nanoseconds */

/* The limit of a rank that is being made, and the events for it, on the device that was entered; and their end. */
void nccl_limit_rank(fl_rank *rank, double timeout);
void nccl_free_works(fl_rank *rank);

/* Notes what is about to be asked of the library. NULL: nobody watches it (there is no limit, or the stream is being
 * captured: a graph's work is the graph's). */
nccl_work *nccl_begin_work(fl_rank *rank, int kind, void *stream);
/* After it was asked: the event goes behind it. Without the rank's lock: a stream that is full lets this wait. */
void nccl_record_work(nccl_work *work, void *stream, bool asked);
/* What is waited for here, as joining is: its number, for nccl_await. */
void nccl_begin_waiting(fl_rank *rank, int kind);

/* What becomes of a result: where the library went on in the background, it is waited for, up to the limit, after which
 * this rank's part has ended. With the rank's lock. */
ncclResult_t nccl_await(fl_rank *rank, ncclResult_t result);
/* Waits for what is on streams; the watchdog sees to it that this ends. Without the rank's lock. */
void nccl_await_works(fl_rank *rank);

/* Ends the library's part for a reason, once: NCCL_ABORTED or a work. From any thread, also while another is in the
 * library, which comes back. */
void nccl_end_part(fl_rank *rank, nccl_work_id why, bool has_lock);

/* What a call says in the end: why the part has ended, or what `function` gave. */
fl_status nccl_outcome(const fl_rank *rank, ncclResult_t result, const char *function);

/* The work that has waited for longer than the limit; 0: none. *next is brought forward to when one may have. On the
 * device that was entered. The watchdog's. */
nccl_work_id nccl_find_late(fl_rank *rank, uint64_t now, uint64_t *next);

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
