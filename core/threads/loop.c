/* Loops over the pool's threads: see loop.h. */
#include "core/threads/loop.h"

#include "core/registry.h"
#include "core/support.h"
#include "core/threads/pool.h"

#include <fenv.h>
#include <flhost/threads.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------------------------------------- whose threads */

/* The engine's; NULL: flhost's own. One that was replaced may be in use, so that each is kept until the process ends,
 * where a leak checker finds it. */
typedef struct engine_pool {
  fl_thread_pool pool;
  struct engine_pool *former;
} engine_pool;
static _Atomic(engine_pool *) engine;
static _Atomic(engine_pool *) newest;

fl_status fl_use_thread_pool(const fl_thread_pool *given) {
  if (!given) {
    atomic_store(&engine, NULL);
    return FL_OK;
  }
  if (fl_sized_check(given, offsetof(fl_thread_pool, run), "fl_use_thread_pool: the", "fl_thread_pool"))
    return FL_EINVAL;
  fl_thread_pool pool;
  fl_sized_take(&pool, sizeof pool, given);
  if (!pool.run || !pool.count)
    return fl_error(FL_EINVAL, "fl_use_thread_pool: %s is NULL", pool.run ? "count" : "run");
  engine_pool *kept = malloc(sizeof *kept);
  if (!kept)
    return fl_error_no_memory();
  *kept = (engine_pool){pool, atomic_load(&newest)};
  while (!atomic_compare_exchange_weak(&newest, &kept->former, kept))
    ;
  atomic_store(&engine, kept);
  return FL_OK;
}

/* ---------------------------------------------------------------------------------------------------- how many */

static uint32_t least(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}

/* In calls of the host's ops; NULL: of no host's. */
static uint32_t threads_of(const fl_host *host, const engine_pool *pool) {
  uint32_t wanted = host ? host->n_threads : 0;
  if (pool) {
    uint32_t n = pool->pool.count(pool->pool.user);
    n = n ? n : 1;
    return wanted ? least(wanted, n) : n;
  }
  if (!wanted && host)
    wanted = host->n_openmp_threads;
  return wanted ? wanted : fl_pool_cores();
}

uint32_t fl_thread_count(fl_host *host) {
  return threads_of(host, atomic_load(&engine));
}

/* Whose call the thread is in: what it calls is a binding's, or, where nothing was bound yet, the op's own. */
static const fl_host *host_of_call(void) {
  const fl_thread *self = &fl_self;
  const fl_target *target = fl_is_reading(self) ? atomic_load_explicit(&self->target, memory_order_relaxed) : NULL;
  if (!target)
    return NULL;
  /* A binding begins with what the registry knows of it; the target may stand further on in it. */
  return target->binding ? ((const fl_bound *)(const void *)target->binding)->first->op->host
                         : ((const fl_op *)target->self)->host;
}

/* ------------------------------------------------------------------------------------------------------- the loop */

typedef struct loop {
  fl_range_fn body;
  void *user;
  int64_t n, grain;
  int64_t shares;        /* what is left is divided by */
  _Atomic int64_t next;  /* the first that was not given out */
  _Atomic int32_t error; /* the first; FL_OK: none */
  fenv_t mode;           /* of the caller */
} loop;

/* This thread is in a loop's body: a loop in it is its own affair. */
static _Thread_local bool is_in_loop __attribute__((tls_model("initial-exec")));

static void fail(loop *l, fl_status error) {
  int32_t none = FL_OK;
  atomic_compare_exchange_strong(&l->error, &none, error);
  atomic_store_explicit(&l->next, l->n, memory_order_relaxed); /* nothing more is begun */
}

/* A thread's part, however it ends. */
typedef struct part {
  loop *l;
  fenv_t mode; /* of the thread */
  bool was_in_loop, returned;
} part;

static void part_ends(part *p) {
  if (!p->returned)
    fail(p->l, FL_EINTERNAL);
  is_in_loop = p->was_in_loop;
  fesetenv(&p->mode);
}

static int64_t divide_up(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

/* Ranges are half of a thread's share of what is left: large ones first, since each has a cost of its own, small ones
 * at last, so that threads end together though one comes late or is slow. */
static void work(void *data) {
  loop *l = data;
  int64_t first = atomic_load_explicit(&l->next, memory_order_relaxed);
  __attribute__((cleanup(part_ends))) part p = {.l = l, .was_in_loop = is_in_loop};
  fegetenv(&p.mode);
  fesetenv(&l->mode);
  is_in_loop = true;
  while (first < l->n) {
    int64_t step = divide_up(divide_up(l->n - first, l->grain), l->shares) * l->grain;
    int64_t end = l->n - first < step ? l->n : first + step;
    if (!atomic_compare_exchange_weak_explicit(&l->next, &first, end, memory_order_relaxed, memory_order_relaxed))
      continue;
    fl_status status = l->body(l->user, first, end);
    if (status)
      fail(l, status);
    first = atomic_load_explicit(&l->next, memory_order_relaxed);
  }
  p.returned = true;
}

fl_status fl_parallel_for(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  if (n <= 0)
    return FL_OK;
  if (grain < 1)
    grain = 1;
  if (n <= grain || is_in_loop)
    return body(user, 0, n);
  const engine_pool *pool = atomic_load_explicit(&engine, memory_order_acquire);
  int64_t ranges = divide_up(n, grain);
  uint32_t threads = threads_of(host_of_call(), pool);
  if (ranges < threads)
    threads = (uint32_t)ranges;
  if (threads <= 1)
    return body(user, 0, n);
  loop l = {.body = body, .user = user, .n = n, .grain = grain, .shares = 2 * (int64_t)threads};
  fegetenv(&l.mode);
  bool whole = true;
  if (!pool)
    whole = fl_pool_run(work, &l, threads);
  else
    pool->pool.run(pool->pool.user, work, &l, threads);
  work(&l); /* what an engine's pool left */
  fl_status status = atomic_load_explicit(&l.error, memory_order_relaxed);
  return status || whole ? status : FL_EINTERNAL;
}
