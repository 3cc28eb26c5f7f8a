/* Threads, reading, reclaiming, fork: see thread.h. */
#include "core/support/thread.h"
#include "core/support/array.h"
#include "core/support/clock.h"
#include "core/support/error.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

_Thread_local fl_thread fl_self __attribute__((tls_model("initial-exec"))) = {.state = FL_THREAD_UNKNOWN};
_Atomic uint64_t fl_period = FL_PERIOD;
static bool has_membarrier; /* if not, readers fence by themselves */

/* Taken after every other lock of the library, by fork, too. Never held while code of a plugin or of the engine runs.
 */
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static fl_thread *threads;
static struct {
  uint64_t *ended; /* what threads that ended had counted, minus the count at which the number was given out */
  bool *used;
  uint32_t n, next; /* no number below `next` is free */
} counts;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static struct {
  void *(*create)(void);
  void (*release)(void *memory);
  void (*ends_inside)(fl_thread *self);
} keeps;

void fl_thread_keeps(void *(*create)(void), void (*release)(void *memory), void (*ends_inside)(fl_thread *self)) {
  pthread_mutex_lock(&threads_lock);
  if (!keeps.create) { /* threads that join read without the lock what their host's creation made sure of */
    keeps.create = create;
    keeps.release = release;
    keeps.ends_inside = ends_inside;
  }
  pthread_mutex_unlock(&threads_lock);
}

/* Takes an ending thread out of the list: before its message buffer goes, which a call or a fork would still touch. */
static void thread_leave(void) {
  fl_thread *self = &fl_self;
  if (fl_is_reading(self))
    keeps.ends_inside(self);
  pthread_mutex_lock(&threads_lock);
  for (uint32_t i = 0; i < self->n_calls && i < counts.n; i++)
    counts.ended[i] += atomic_load_explicit(&self->calls[i], memory_order_relaxed);
  if (self->previous)
    self->previous->next = self->next;
  else
    threads = self->next;
  if (self->next)
    self->next->previous = self->previous;
  pthread_mutex_unlock(&threads_lock);
  free(self->calls);
  keeps.release(self->kept);
  self->calls = NULL;
  self->kept = NULL;
  self->n_calls = 0;
  self->message = NULL;
  self->scope = NULL;
  /* A later destructor of the thread may still call an op: it joins anew. */
  atomic_store_explicit(&self->state, FL_THREAD_UNKNOWN, memory_order_relaxed);
}

static void fork_prepare(void) {
  pthread_mutex_lock(&threads_lock);
}

static void fork_parent(void) {
  pthread_mutex_unlock(&threads_lock);
}

/* X1: only this thread is left. The records of the others are thread storage that nobody frees; what they point to is.
 */
static void fork_child(void) {
  bool known = !(atomic_load_explicit(&fl_self.state, memory_order_relaxed) & FL_THREAD_UNKNOWN);
  for (fl_thread *thread = threads; thread; thread = thread->next)
    if (thread != &fl_self) {
      free(thread->calls);
      free(thread->message);
      keeps.release(thread->kept);
    }
  threads = known ? &fl_self : NULL;
  fl_self.id = (uint64_t)gettid();
  fl_self.next = fl_self.previous = NULL;
  for (uint32_t i = 0; i < fl_self.n_calls; i++)
    atomic_store_explicit(&fl_self.calls[i], 0, memory_order_relaxed);
  if (counts.n)
    memset(counts.ended, 0, counts.n * sizeof *counts.ended);
  pthread_mutex_unlock(&threads_lock);
}

static void initialise(void) {
  pthread_atfork(fork_prepare, fork_parent, fork_child);
  has_membarrier = !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

void fl_threads_start(void) {
  pthread_once(&once, initialise);
}

fl_status fl_thread_join(void) {
  fl_thread *self = &fl_self;
  if (!(atomic_load_explicit(&self->state, memory_order_relaxed) & FL_THREAD_UNKNOWN))
    return FL_OK;
  fl_threads_start();
  self->message = fl_error_buffer();
  self->kept = keeps.create();
  if (!self->message || !self->kept) {
    keeps.release(self->kept);
    self->kept = NULL;
    return fl_error_no_memory();
  }
  fl_error_at_thread_end(thread_leave);
  pthread_mutex_lock(&threads_lock);
  self->id = (uint64_t)gettid();
  self->previous = NULL;
  self->next = threads;
  if (threads)
    threads->previous = self;
  threads = self;
  atomic_store_explicit(&self->state, has_membarrier ? 0 : FL_THREAD_FENCES, memory_order_relaxed);
  pthread_mutex_unlock(&threads_lock);
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------ waiting */

/* Orders every thread's earlier stores before our later loads, and the other way round. */
static void order_all_threads(void) {
  if (has_membarrier)
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  else
    atomic_thread_fence(memory_order_seq_cst);
}

void fl_threads_each(void (*see)(fl_thread *thread, void *user), void *user) {
  pthread_mutex_lock(&threads_lock);
  for (fl_thread *thread = threads; thread; thread = thread->next)
    see(thread, user);
  pthread_mutex_unlock(&threads_lock);
}

/* The thread that has been reading for the longest time, and the period in which it began; NULL and UINT64_MAX if none
 * reads. The lock is held. */
static const fl_thread *find_oldest(uint64_t *period) {
  const fl_thread *oldest = NULL;
  *period = UINT64_MAX;
  for (const fl_thread *thread = threads; thread; thread = thread->next) {
    uint64_t state = atomic_load_explicit(&thread->state, memory_order_acquire);
    if (state >= FL_PERIOD && state < *period) {
      *period = state;
      oldest = thread;
    }
  }
  return oldest;
}

static uint64_t oldest_reader(void) {
  uint64_t oldest;
  order_all_threads();
  pthread_mutex_lock(&threads_lock);
  find_oldest(&oldest);
  pthread_mutex_unlock(&threads_lock);
  return oldest;
}

bool fl_synchronize(double seconds, void (*blocked)(const fl_thread *thread, void *user), void *user) {
  uint64_t period = atomic_fetch_add(&fl_period, FL_PERIOD) + FL_PERIOD, oldest;
  fl_stopwatch watch = fl_stopwatch_start();
  fl_threads_start();
  for (unsigned i = 0; oldest_reader() < period; i++) {
    if (i < 64)
      sched_yield();
    else if (fl_stopwatch_look(&watch, 1e-3) < seconds)
      usleep(i < 1000 ? 50 : 1000);
    else
      break;
  }
  pthread_mutex_lock(&threads_lock);
  const fl_thread *thread = find_oldest(&oldest);
  bool over = oldest >= period;
  if (!over && blocked)
    blocked(thread, user);
  pthread_mutex_unlock(&threads_lock);
  return over;
}

enum { RETIRED_BATCH = 64, RETIRED_LONG = 4096 };

static void reclaim(fl_retired *retired) {
  uint64_t oldest = oldest_reader();
  uint32_t kept = 0;
  for (uint32_t i = 0; i < retired->n; i++) {
    struct fl_retired_item item = retired->items[i];
    if (item.period <= oldest)
      item.release(item.memory);
    else
      retired->items[kept++] = item;
  }
  retired->n = retired->checked = kept;
}

void fl_retire(fl_retired *retired, void *memory, void (*release)(void *memory)) {
  if (!memory)
    return;
  if (!fl_array_grow(&retired->items, retired->n, sizeof *retired->items))
    return; /* leaked rather than freed under a reader */
  /* A thread whose reading began before this period may see it. */
  retired->items[retired->n++] =
      (struct fl_retired_item){memory, release, atomic_fetch_add(&fl_period, FL_PERIOD) + FL_PERIOD};
  if (retired->n >= retired->checked + RETIRED_BATCH)
    reclaim(retired);
}

bool fl_retired_is_long(const fl_retired *retired) {
  return retired->n > RETIRED_LONG && retired->n > retired->borne;
}

void fl_retired_bear(fl_retired *retired) {
  retired->borne = 2 * retired->n;
}

void fl_retired_free(fl_retired *retired) {
  for (uint32_t i = 0; i < retired->n; i++)
    retired->items[i].release(retired->items[i].memory);
  free(retired->items);
  *retired = (fl_retired){0};
}

/* ----------------------------------------------------------------------------------------------------- counting */

void fl_count_grow(fl_thread *self, uint32_t id) {
  uint32_t n = (id + 1 + 63) & ~63u;
  pthread_mutex_lock(&threads_lock); /* fl_count_total may be reading the array */
  _Atomic(uint64_t) *grown = realloc(self->calls, n * sizeof *grown);
  if (grown) {
    memset((void *)(grown + self->n_calls), 0, (n - self->n_calls) * sizeof *grown);
    self->calls = grown;
    self->n_calls = n;
  } else if (id < counts.n) { /* as if a thread had made that call and ended */
    counts.ended[id]++;
  }
  pthread_mutex_unlock(&threads_lock);
}

static uint64_t count_sum(uint32_t id) {
  uint64_t sum = counts.ended[id];
  for (const fl_thread *thread = threads; thread; thread = thread->next)
    if (id < thread->n_calls)
      sum += atomic_load_explicit(&thread->calls[id], memory_order_relaxed);
  return sum;
}

uint64_t fl_count_total(uint32_t id) {
  uint64_t sum = 0;
  pthread_mutex_lock(&threads_lock);
  if (id < counts.n)
    sum = count_sum(id);
  pthread_mutex_unlock(&threads_lock);
  return sum;
}

uint32_t fl_count_new(void) {
  pthread_mutex_lock(&threads_lock);
  uint32_t id = counts.next;
  while (id < counts.n && counts.used[id])
    id++;
  if (id == counts.n) {
    if (fl_array_grow(&counts.ended, id, sizeof *counts.ended) && fl_array_grow(&counts.used, id, sizeof *counts.used))
      counts.ended[counts.n++] = 0;
    else
      id = UINT32_MAX;
  }
  if (id != UINT32_MAX) {
    counts.used[id] = true;
    counts.next = id + 1;
    counts.ended[id] -= count_sum(id); /* what an earlier owner of the number left behind */
  }
  pthread_mutex_unlock(&threads_lock);
  return id;
}

void fl_count_release(uint32_t id) {
  pthread_mutex_lock(&threads_lock);
  if (id < counts.n) {
    counts.used[id] = false;
    if (id < counts.next)
      counts.next = id;
  }
  pthread_mutex_unlock(&threads_lock);
}
