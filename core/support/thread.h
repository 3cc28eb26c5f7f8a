/*
 * What the host keeps for each thread, and how it knows that no thread still reads what it wants to free.
 *
 * A thread that calls an op marks itself as reading for the length of the call: two stores to a cache line of its own.
 * Whoever has unpublished something asks the kernel to order all threads' memory (membarrier) and frees it once every
 * thread that was reading at that time has left (docs/architecture.md, "Reclaiming old generations"). Readers take no
 * lock and write nothing shared.
 *
 * The list of threads is the process's, as threads are; it holds no setting and no registration.
 */
#ifndef FLHOST_CORE_SUPPORT_THREAD_H
#define FLHOST_CORE_SUPPORT_THREAD_H

#include <flhost/flhost.h>
#include <pthread.h>
#include <stdatomic.h>

/* What a thread's state may say besides the period: anything but 0 has to leave the short way of fl_invoke. */
enum {
  FL_THREAD_UNKNOWN = 1, /* not in the list of threads yet */
  FL_THREAD_FENCES = 2,  /* must fence by itself, since there is no membarrier here */
  FL_THREAD_SCOPED = 4,  /* in a scope */
  FL_PERIOD = 8          /* periods count in steps of this */
};

typedef struct fl_thread {
  _Atomic uint64_t state; /* FL_THREAD_*, and, in a call, the period in which the outermost began */
  /* Of the outermost call; NULL: it has none so far. Others read it while the thread is reading. */
  _Atomic(const struct fl_target *) target;
  fl_call *call; /* that call, and, below, the caller's values: for when it fails */
  char *message; /* fl_error_buffer() */
  fl_value *values;
  const char *reason; /* of a supports_args that said no; nobody reads it */
  fl_scope *scope;    /* innermost scope; NULL */
  void *kept;         /* what fl_thread_keeps makes */
  /* The implementation that runs, where it is not the target's first; NULL. Others read it. */
  _Atomic(const struct fl_impl_record *) running;
  bool settled;             /* the error that a target returns is the call's: no fallback is left to try */
  _Atomic(uint64_t) *calls; /* calls counted by this thread, by number */
  uint32_t n_calls;
  uint64_t id;                       /* the system's, by which a debugger knows it */
  struct fl_thread *next, *previous; /* of all threads that ever called an op */
} fl_thread;

#pragma GCC visibility push(hidden) /* reached without a look into the table of symbols */

/* initial-exec: the address is one addition away, at the price of a little static thread storage. */
extern _Thread_local fl_thread fl_self __attribute__((tls_model("initial-exec")));

/* Current period; advances when somebody waits. */
extern _Atomic uint64_t fl_period;
#pragma GCC visibility pop

/* Fork knows of threads from now on. Locks that are taken before those of this file need handlers that are registered
 * after this. */
void fl_threads_start(void);

/* What a thread gets when it joins and gives back when it ends; `release` takes NULL, too. `ends_inside` is called when
 * a thread ends that is reading still. To be said before any thread joins, and the same each time. */
void fl_thread_keeps(void *(*create)(void), void (*release)(void *memory), void (*ends_inside)(fl_thread *self));

/* Enters the calling thread into the list, if it is not there. FL_ENOMEM. */
fl_status fl_thread_join(void);

/* Is the thread in a call of an op, or reading otherwise? */
static inline bool fl_is_reading(const fl_thread *self) {
  return atomic_load_explicit(&self->state, memory_order_relaxed) >= FL_PERIOD;
}

/* Begins and ends reading; nests. Between them, what was published stays valid. The thread must have joined. In the
 * short form flags other than FL_THREAD_SCOPED are known not to be set, and that one is not needed. */
static inline void fl_read_begin_outermost(fl_thread *self) {
  /* acquire: who sees a period sees what was unpublished before it began. */
  atomic_store_explicit(&self->state, atomic_load_explicit(&fl_period, memory_order_acquire), memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst); /* the kernel's membarrier does the rest, for the one who waits */
}

static inline uint64_t fl_read_begin(fl_thread *self) {
  uint64_t outer = atomic_load_explicit(&self->state, memory_order_relaxed);
  if (outer < FL_PERIOD) {
    atomic_store_explicit(&self->target, NULL, memory_order_relaxed);
    uint64_t period = atomic_load_explicit(&fl_period, memory_order_acquire);
    atomic_store_explicit(&self->state, period | outer, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (outer & FL_THREAD_FENCES)
      atomic_thread_fence(memory_order_seq_cst);
  }
  return outer;
}

static inline void fl_read_end(fl_thread *self, uint64_t outer) {
  atomic_store_explicit(&self->state, outer, memory_order_release);
}

/* For a variable with what fl_read_begin gave, where somebody else's code is called in between, which may throw or end
 * the thread: the cleanup of it. */
static inline void fl_reading_ends(const uint64_t *outer) {
  fl_read_end(&fl_self, *outer);
}

/* Shows every thread that has joined, under their lock: `see` takes no other and calls nobody's code. */
void fl_threads_each(void (*see)(fl_thread *thread, void *user), void *user);

/*
 * Waits until every thread that is reading now has stopped, but no longer than so many seconds: false, and `blocked`
 * (may be NULL) is told of one that has not. It is called under the lock of threads, which keeps what that thread may
 * be reading; it calls nobody else. The caller must not be reading.
 */
bool fl_synchronize(double seconds, void (*blocked)(const fl_thread *thread, void *user), void *user);

/* Memory that readers may still see. Zero-initialise; guarded by its owner's lock. */
typedef struct fl_retired {
  struct fl_retired_item {
    void *memory;
    void (*release)(void *memory);
    uint64_t period;
  } * items;
  uint32_t n, checked;
  uint32_t borne; /* so many are not long: whoever waited for fewer waited in vain */
} fl_retired;

/* Frees `memory` when nobody can be reading it any more; looks for such memory now and then. */
void fl_retire(fl_retired *retired, void *memory, void (*release)(void *memory));

/* Frees all; nobody may be reading. */
void fl_retired_free(fl_retired *retired);

/* True when so much waits to be freed that a writer should fl_synchronize() (outside its locks) before going on. */
bool fl_retired_is_long(const fl_retired *retired);
/* It was waited for in vain: what there is, and as much again, is not long. */
void fl_retired_bear(fl_retired *retired);

/* Statistics: adds one to the thread's count of an implementation. */
void fl_count_grow(fl_thread *self, uint32_t id);
static inline void fl_count_call(fl_thread *self, uint32_t id) {
  if (__builtin_expect(id >= self->n_calls, 0)) {
    fl_count_grow(self, id);
    if (id >= self->n_calls)
      return; /* out of memory: counted elsewhere */
  }
  uint64_t calls = atomic_load_explicit(&self->calls[id], memory_order_relaxed);
  atomic_store_explicit(&self->calls[id], calls + 1, memory_order_relaxed);
}

/* The sum over all threads, those that ended included. */
uint64_t fl_count_total(uint32_t id);

/* Numbers for counted implementations: a new one counts from 0. UINT32_MAX: out of memory. */
uint32_t fl_count_new(void);
void fl_count_release(uint32_t id);

#endif
