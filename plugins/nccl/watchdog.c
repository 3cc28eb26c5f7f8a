/*
 * A thread that ends the part of a rank whose work came to no end: the rank's own thread may be waiting for its stream,
 * which then goes on. There is one in a process for each plugin, as long as a rank with a limit is there; it sleeps
 * until the nearest limit, and takes no signals.
 */
#include "plugins/nccl/rank.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { NS = 1000000000 };

/* Guarded by the lock. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t woken, let_go;
  pid_t process; /* a child has none of it */
  fl_rank *ranks;
  const fl_rank *ending; /* that the watchdog has in hand, without the lock */
  bool runs;
  pthread_t thread;
  uintptr_t generation; /* of the thread: it ends when this is another's */
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

void nccl_guard_watchdog(void) {
  gpu_free_after_fork(&state.lock);
}

/* The first rank whose time is over, and why. With the lock held. */
static fl_rank *find_late(work_id *why, uint64_t *next) {
  gpu_scope scope;
  char words[GPU_WORDS];
  *next = UINT64_MAX;
  for (fl_rank *rank = state.ranks; rank; rank = rank->next_watched) {
    if (gpu_enter(rank->device, &scope, nccl_vendor.title, words, sizeof words))
      continue;
    *why = atomic_load(&rank->ended) ? 0 : works_find_late(&rank->works, works_now(), next);
    gpu.call.leave(&scope);
    if (*why)
      return rank;
  }
  return NULL;
}

/* The library may take its time over an abort: other ranks come and go meanwhile. */
static void end_part(fl_rank *rank, work_id why) {
  state.ending = rank;
  pthread_mutex_unlock(&state.lock);
  nccl_end_part(rank, why, false);
  pthread_mutex_lock(&state.lock);
  state.ending = NULL;
  pthread_cond_broadcast(&state.let_go);
}

static void *watch(void *generation) {
  int mode = GPU_CAPTURE_RELAXED;
  work_id why;
  uint64_t next;
  gpu_exchange_capture_mode(&mode);
  pthread_mutex_lock(&state.lock);
  while (state.generation == (uintptr_t)generation) {
    fl_rank *late = find_late(&why, &next);
    if (late)
      end_part(late, why);
    else
      pthread_cond_timedwait(&state.woken, &state.lock, &(struct timespec){(time_t)(next / NS), (long)(next % NS)});
  }
  pthread_mutex_unlock(&state.lock);
  return NULL;
}

/* With the lock held, as the next two. */
static bool start(void) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state.runs = !pthread_create(&state.thread, NULL, watch, (void *)state.generation);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (state.runs)
    pthread_setname_np(state.thread, "flhost ranks");
  return state.runs;
}

/* A child has neither the thread nor ranks. */
static void know_process(void) {
  pthread_condattr_t monotonic;
  if (state.process == getpid())
    return;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&state.woken, &monotonic);
  pthread_condattr_destroy(&monotonic);
  pthread_cond_init(&state.let_go, NULL);
  state.process = getpid();
  state.ranks = NULL;
  state.runs = false;
}

static void take_out(const fl_rank *rank) {
  fl_rank **place = &state.ranks;
  while (*place && *place != rank)
    place = &(*place)->next_watched;
  if (*place)
    *place = rank->next_watched;
}

bool nccl_watch(fl_rank *rank) {
  if (!rank->works.limit)
    return true;
  pthread_mutex_lock(&state.lock);
  know_process();
  bool watched = state.runs || start();
  if (watched) {
    rank->next_watched = state.ranks;
    state.ranks = rank;
    pthread_cond_signal(&state.woken); /* its limit may be the nearest */
  }
  pthread_mutex_unlock(&state.lock);
  return watched;
}

/* The last one ends the thread. */
void nccl_unwatch(fl_rank *rank) {
  pthread_t thread;
  if (!rank->works.limit)
    return;
  pthread_mutex_lock(&state.lock);
  take_out(rank);
  while (state.ending == rank)
    pthread_cond_wait(&state.let_go, &state.lock);
  bool last = !state.ranks && state.runs;
  if (last) {
    thread = state.thread;
    state.runs = false;
    state.generation++;
    pthread_cond_signal(&state.woken);
  }
  pthread_mutex_unlock(&state.lock);
  if (last)
    pthread_join(thread, NULL);
}
