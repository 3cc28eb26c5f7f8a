/* The process's pool of threads. */
#ifndef FLHOST_CORE_THREADS_POOL_H
#define FLHOST_CORE_THREADS_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FL_THREADS_MAX = 1024 };

/* What several threads do together, in the memory of the thread that begins it. */
typedef struct fl_gathering {
  void (*work)(void *data); /* returns when there is nothing left to begin */
  void *data;
  uint32_t wanted;           /* threads that may still come; guarded by the pool's lock, as is what follows */
  _Atomic uint32_t inside;   /* that are in `work`, but for the one that began it; read without the lock, too */
  _Atomic bool abandoned;    /* one of them left `work` otherwise than by returning, or was lost in a fork */
  struct fl_gathering *next; /* of those that are going on */
  uint64_t owner;            /* the thread that began it */
} fl_gathering;

/* Calls work(data) in the calling thread and in up to n - 1 of the pool, which are made if they are not there; returns
 * when none is in it any more. false: a thread did not return from `work`, so that something may be left undone. */
bool fl_pool_run(void (*work)(void *data), void *data, uint32_t n);

/* How many cores this process may use, found out once. */
uint32_t fl_pool_cores(void);

/* Ends the pool's threads, when they have done what they are in; the next fl_pool_run makes others. */
void fl_threads_end(void);

#endif
