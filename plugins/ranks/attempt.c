/* Calls that may wait for ever: see attempt.h. */
#include "plugins/ranks/attempt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

/* The caller's until it is given up, then the thread's. */
typedef struct attempt {
  pthread_mutex_t lock;
  pthread_cond_t came_back;
  bool is_back, given_up;
  void (*make)(void *data), (*undo)(void *data);
  _Alignas(max_align_t) char data[];
} attempt;

static attempt *begin(const void *data, size_t size, void (*make)(void *), void (*undo)(void *)) {
  pthread_condattr_t monotonic;
  attempt *a = calloc(1, sizeof *a + size);
  if (!a)
    return NULL;
  pthread_mutex_init(&a->lock, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&a->came_back, &monotonic);
  pthread_condattr_destroy(&monotonic);
  a->make = make;
  a->undo = undo;
  memcpy(a->data, data, size);
  return a;
}

static void end(attempt *a) {
  pthread_cond_destroy(&a->came_back);
  pthread_mutex_destroy(&a->lock);
  free(a);
}

static void *run(void *of) {
  attempt *a = of;
  a->make(a->data);
  pthread_mutex_lock(&a->lock);
  bool alone = a->given_up;
  a->is_back = true;
  pthread_cond_signal(&a->came_back);
  pthread_mutex_unlock(&a->lock);
  if (alone) {
    a->undo(a->data);
    end(a);
  }
  return NULL;
}

static bool start(attempt *a, pthread_t *thread) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = !pthread_create(thread, NULL, run, a);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started)
    pthread_setname_np(*thread, "flhost joining");
  return started;
}

/* Is it back in time? Else it is given up. */
static bool await(attempt *a, struct timespec until) {
  pthread_mutex_lock(&a->lock);
  while (!a->is_back && pthread_cond_timedwait(&a->came_back, &a->lock, &until) != ETIMEDOUT)
    ;
  bool is_back = a->is_back;
  a->given_up = !is_back;
  pthread_mutex_unlock(&a->lock);
  return is_back;
}

attempt_end attempt_within(uint64_t limit, void *data, size_t size, void (*make)(void *), void (*undo)(void *)) {
  struct timespec until;
  pthread_t thread;
  if (!limit) {
    make(data);
    return ATTEMPT_CAME_BACK;
  }
  clock_gettime(CLOCK_MONOTONIC, &until);
  uint64_t nanoseconds = (uint64_t)until.tv_nsec + limit;
  until.tv_sec += (time_t)(nanoseconds / NS_PER_S);
  until.tv_nsec = (long)(nanoseconds % NS_PER_S);
  attempt *a = begin(data, size, make, undo);
  if (!a || !start(a, &thread)) {
    if (a)
      end(a);
    return ATTEMPT_NO_THREAD;
  }
  if (!await(a, until)) {
    pthread_detach(thread);
    return ATTEMPT_LATE;
  }
  pthread_join(thread, NULL);
  memcpy(data, a->data, size);
  end(a);
  return ATTEMPT_CAME_BACK;
}
