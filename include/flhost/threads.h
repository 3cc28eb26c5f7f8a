/*
 * flhost/threads.h: the threads that kernels on the processor use.
 *
 * A process has one pool of them, for all hosts and plugins (fl_registry.parallel_for). It is made when a kernel first
 * has enough to do for two threads, and anew after a fork. Its threads sleep while there is nothing to do. How many
 * threads a loop gets is the host's setting VLLM_FL_CPU_THREADS; where that is 0, OMP_NUM_THREADS; where that is not
 * set, the cores that the process may use: by its affinity and that of the calling thread, and its control group's
 * quota.
 */
#ifndef FLHOST_THREADS_H
#define FLHOST_THREADS_H

#include <flhost/host.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An engine's own threads. */
typedef struct fl_thread_pool {
  uint32_t size; /* sizeof(fl_thread_pool) */
  void *user;    /* the argument of both functions */
  /* How many there are for the calling thread at present, itself among them; 0 counts as 1. Asked at each loop. */
  uint32_t (*count)(void *user);
  /* Calls work(data) in up to n threads at once, and returns when all these calls have returned; the calling thread may
   * be one of them. As many calls as suit it: whatever is left then, the caller does. It is called from several threads
   * at once. GOMP_parallel of OpenMP's run-time library does just that (its fourth argument is 0). */
  void (*run)(void *user, void (*work)(void *data), void *data, uint32_t n);
} fl_thread_pool;

/*
 * From now on kernels use these threads instead of flhost's own; NULL: flhost's own again. For engines that have a
 * pool, so that a machine has not twice as many threads as cores; OMP_NUM_THREADS is their affair then. The struct is
 * copied; its functions and `user` must be valid until the process ends, since a loop may be running with them. A
 * forked child has what its parent had: an engine whose threads do not survive a fork sets NULL there. Any thread may
 * call it. FL_EINVAL: a field is wrong; FL_ENOMEM.
 */
FL_API fl_status fl_use_thread_pool(const fl_thread_pool *pool);

/* How many threads a kernel's loop uses at most, in calls of this host's ops: 1 or more. */
FL_API uint32_t fl_thread_count(fl_host *host);

#ifdef __cplusplus
}
#endif
#endif /* FLHOST_THREADS_H */
