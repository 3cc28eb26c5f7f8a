/* The process's pool of threads: see pool.h. */
#include "core/threads/pool.h"

#include "core/platform.h"
#include "core/support.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Looks at what is coming for so long before a thread sleeps: kernels follow each other at once, or after a while.
 * Whoever began something looks for longer, about as long as to be woken takes, since the last ranges of a loop are
 * short. */
static const double SPIN_SECONDS = 10e-6, LAST_SECONDS = 100e-6;
enum { LOOKS = 64 };

static _Atomic uint32_t n_cores; /* 0: nobody asked so far */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

/* A thread of the pool. */
typedef struct helper {
  pthread_t thread;
  pthread_cond_t called;
  bool sleeps;
  int away_from; /* the processor that it may not run on */
} helper;

/* Nothing else is locked, and no code of others runs, while this is held; fork takes it, too. Threads are woken when it
 * is free: else they would wake, find it taken, sleep, and have to be woken once more. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static pthread_cond_t somebody_left = PTHREAD_COND_INITIALIZER;
static fl_gathering *gatherings;       /* the oldest first */
static helper helpers[FL_THREADS_MAX]; /* made so far; some may have ended */
static uint32_t n_made, n_threads, n_waiting;
static bool ending;              /* threads are to end */
static uint64_t generation;      /* of the process: another one after each fork */
static _Atomic uint32_t n_begun; /* gatherings so far: read without the lock by those who spin */

static inline void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* -------------------------------------------------------------------------------------------------------- a helper */

/* The one with the fewest threads that wants more; NULL. The lock is held. */
static fl_gathering *find_wanting(void) {
  fl_gathering *best = NULL;
  for (fl_gathering *at = gatherings; at; at = at->next)
    if (at->wanted && (!best || atomic_load_explicit(&at->inside, memory_order_relaxed) <
                                    atomic_load_explicit(&best->inside, memory_order_relaxed)))
      best = at;
  return best;
}

/* Whoever began it goes on when `inside` is 0: then it is not touched any more. The lock is held, and is given back. */
static void leave(fl_gathering *gathering) {
  atomic_fetch_sub_explicit(&gathering->inside, 1, memory_order_release);
  bool is_awaited = n_waiting > 0;
  pthread_mutex_unlock(&lock);
  if (is_awaited)
    pthread_cond_broadcast(&somebody_left);
}

/* A thread's stay in a gathering, however it ends. */
typedef struct stay {
  fl_gathering *gathering;
  uint64_t generation;
  bool returned;
} stay;

static void stay_ends(stay *s) {
  if (s->returned)
    return;
  /* The thread ends: it is one less. */
  pthread_mutex_lock(&lock);
  if (s->generation == generation) {
    atomic_store_explicit(&s->gathering->abandoned, true, memory_order_relaxed);
    n_threads--;
    leave(s->gathering);
  } else {
    pthread_mutex_unlock(&lock);
  }
}

/* The lock is held, and is held again afterwards. false: this is the child of a fork that `work` made. */
static bool help(fl_gathering *gathering) {
  __attribute__((cleanup(stay_ends))) stay s = {gathering, generation, false};
  gathering->wanted--;
  atomic_fetch_add_explicit(&gathering->inside, 1, memory_order_relaxed);
  pthread_mutex_unlock(&lock);
  gathering->work(gathering->data);
  s.returned = true;
  pthread_mutex_lock(&lock);
  if (s.generation != generation)
    return false;
  leave(gathering);
  pthread_mutex_lock(&lock);
  return true;
}

/* Until something begins, or for a while. */
static void spin(uint32_t seen) {
  fl_stopwatch watch = fl_stopwatch_start();
  do
    for (int i = 0; i < LOOKS; i++) {
      if (atomic_load_explicit(&n_begun, memory_order_relaxed) != seen)
        return;
      pause_briefly();
    }
  while (fl_stopwatch_look(&watch, SPIN_SECONDS) < SPIN_SECONDS);
}

static void *run_thread(void *user) {
  helper *self = user;
  bool goes_on = true, has_spun = false;
  pthread_mutex_lock(&lock);
  while (goes_on && !ending) {
    fl_gathering *gathering = find_wanting();
    if (gathering) {
      goes_on = help(gathering);
      has_spun = false;
    } else if (!has_spun) {
      uint32_t seen = atomic_load_explicit(&n_begun, memory_order_relaxed);
      pthread_mutex_unlock(&lock);
      spin(seen);
      pthread_mutex_lock(&lock);
      has_spun = true;
    } else {
      self->sleeps = true;
      while (self->sleeps && !ending)
        pthread_cond_wait(&self->called, &lock);
      has_spun = false;
    }
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

/* ---------------------------------------------------------------------------------------------------------- fork */

static void fork_prepare(void) {
  pthread_mutex_lock(&lock);
}

static void fork_parent(void) {
  pthread_mutex_unlock(&lock);
}

/* Only this thread is left, with the gatherings that it began, in which nobody helps any more. */
static void fork_child(void) {
  uint64_t self = (uint64_t)pthread_self();
  fl_gathering **place = &gatherings;
  while (*place)
    if ((*place)->owner == self) {
      (*place)->wanted = 0;
      if (atomic_load(&(*place)->inside))
        atomic_store(&(*place)->abandoned, true);
      atomic_store(&(*place)->inside, 0);
      place = &(*place)->next;
    } else {
      *place = (*place)->next;
    }
  n_made = n_threads = n_waiting = 0;
  ending = false;
  generation++;
  somebody_left = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  asking = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER; /* another thread may have been */
  pthread_mutex_unlock(&lock);
}

static void follow_forks(void) {
  pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void start(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, follow_forks);
}

uint32_t fl_pool_cores(void) {
  uint32_t cores = atomic_load_explicit(&n_cores, memory_order_relaxed);
  if (cores)
    return cores;
  start();
  pthread_mutex_lock(&asking);
  if (!atomic_load_explicit(&n_cores, memory_order_relaxed)) {
    fl_processors processors = fl_usable_processors();
    atomic_store_explicit(&n_cores, fl_usable_cores(&processors), memory_order_relaxed);
    CPU_FREE(processors.set);
  }
  pthread_mutex_unlock(&asking);
  return atomic_load_explicit(&n_cores, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------------------------------- gathering */

/* Where this process may run, but for one processor: that of the thread that begins a gathering. Where a processor
 * sleeps so deeply that the system takes it for busy, as in a virtual machine, the system would have a helper wake on
 * the one that is at work, and the two would take turns there. */
static fl_processors processors_but(int one) {
  fl_processors processors = fl_usable_processors();
  if (processors.set && one >= 0) {
    CPU_CLR_S((size_t)one, processors.size, processors.set);
    if (!CPU_COUNT_S(processors.size, processors.set))
      CPU_SET_S((size_t)one, processors.size, processors.set);
  }
  return processors;
}

/* Makes threads until there are n; that there are fewer does no harm. They take no signals, which are the engine's, and
 * run where the process may, but not here. The lock is held. */
static void make_threads(uint32_t n, int here) {
  pthread_attr_t attributes;
  sigset_t all, before;
  if (n_threads >= n || ending || pthread_attr_init(&attributes))
    return;
  fl_processors processors = processors_but(here);
  if (processors.set)
    pthread_attr_setaffinity_np(&attributes, processors.size, processors.set);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (n_threads < n && n_made < FL_THREADS_MAX) {
    helper *next = &helpers[n_made];
    *next = (helper){.called = PTHREAD_COND_INITIALIZER, .away_from = here};
    if (pthread_create(&next->thread, &attributes, run_thread, next))
      break;
    pthread_setname_np(next->thread, "flhost");
    n_made++;
    n_threads++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  CPU_FREE(processors.set);
}

/* Seldom: the caller was moved, or another one has come. `others` is asked for once. The lock is held. */
static void keep_away(helper *each, int here, fl_processors *others) {
  if (each->away_from == here)
    return;
  if (!others->set)
    *others = processors_but(here);
  if (others->set)
    pthread_setaffinity_np(each->thread, others->size, others->set);
  each->away_from = here;
}

static void begin(fl_gathering *gathering) {
  uint16_t called[FL_THREADS_MAX];
  uint32_t n_called = 0;
  int here = sched_getcpu();
  fl_processors others = {0};
  start();
  pthread_mutex_lock(&lock);
  make_threads(gathering->wanted, here);
  fl_gathering **last = &gatherings;
  while (*last)
    last = &(*last)->next;
  *last = gathering;
  atomic_fetch_add_explicit(&n_begun, 1, memory_order_relaxed);
  for (uint32_t i = 0; i < n_made && n_called < gathering->wanted; i++)
    if (helpers[i].sleeps) {
      helpers[i].sleeps = false;
      keep_away(&helpers[i], here, &others);
      called[n_called++] = (uint16_t)i;
    }
  pthread_mutex_unlock(&lock);
  CPU_FREE(others.set);
  for (uint32_t i = 0; i < n_called; i++)
    pthread_cond_signal(&helpers[called[i]].called);
}

static bool is_empty(const fl_gathering *gathering) {
  return !atomic_load_explicit(&gathering->inside, memory_order_acquire);
}

/* Nobody comes any more; waits for those who are inside. However the thread that began it leaves. */
static void end(fl_gathering *gathering) {
  pthread_mutex_lock(&lock);
  gathering->wanted = 0;
  pthread_mutex_unlock(&lock);
  fl_stopwatch watch = fl_stopwatch_start();
  while (!is_empty(gathering) && fl_stopwatch_look(&watch, LAST_SECONDS) < LAST_SECONDS)
    for (int i = 0; i < LOOKS && !is_empty(gathering); i++)
      pause_briefly();
  pthread_mutex_lock(&lock);
  while (!is_empty(gathering)) {
    n_waiting++;
    pthread_cond_wait(&somebody_left, &lock);
    n_waiting--;
  }
  fl_gathering **place = &gatherings;
  while (*place != gathering)
    place = &(*place)->next;
  *place = gathering->next;
  pthread_mutex_unlock(&lock);
}

static void ended(fl_gathering **gathering) {
  end(*gathering);
}

bool fl_pool_run(void (*work)(void *data), void *data, uint32_t n) {
  fl_gathering gathering = {.work = work, .data = data, .wanted = n - 1, .owner = (uint64_t)pthread_self()};
  begin(&gathering);
  {
    __attribute__((unused, cleanup(ended))) fl_gathering *going_on = &gathering;
    work(data);
  }
  return !atomic_load_explicit(&gathering.abandoned, memory_order_relaxed);
}

void fl_threads_end(void) {
  pthread_mutex_lock(&lock);
  uint64_t ours = generation;
  uint32_t n = ending ? 0 : n_made;
  ending |= n > 0;
  for (uint32_t i = 0; i < n; i++)
    pthread_cond_signal(&helpers[i].called);
  pthread_mutex_unlock(&lock);
  if (!n)
    return;
  for (uint32_t i = 0; i < n; i++) /* nobody makes more until then */
    pthread_join(helpers[i].thread, NULL);
  pthread_mutex_lock(&lock);
  if (ours == generation) {
    n_made = n_threads = 0;
    ending = false;
  }
  pthread_mutex_unlock(&lock);
}
