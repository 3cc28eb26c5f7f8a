/* Rows in several threads: see rows.h. */
#include "plugins/cpu/support/rows.h"
#include "plugins/cpu/support/pages.h"
#include "plugins/cpu/support/parallel.h"
#include "plugins/integers.h"

#include <stdatomic.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

typedef struct rows_loop {
  cpu_row_fn row;
  cpu_run_fn run; /* in place of `row` */
  const void *user;
  int64_t together; /* the pages of so many rows are touched at once; 0: of none */
  int64_t step;     /* by every `step`th row */
  cpu_rows begin;
} rows_loop;

static void touch_rows(const rows_loop *loop, const cpu_rows *first, int64_t n) {
  cpu_rows rows;
  cpu_rows_copy(&rows, first);
  for (int64_t i = 0; i < n; i += loop->step, cpu_rows_skip(&rows, loop->step))
    for (int t = 0; t < rows.n_tensors; t++)
      cpu_touch_pages(rows.at[t], rows.bytes[t]);
}

static void each_row(const rows_loop *loop, cpu_rows *rows, int64_t n) {
  for (; n > 0; n--, cpu_rows_next(rows))
    loop->row(loop->user, rows);
}

static void each_run(const rows_loop *loop, cpu_rows *rows, int64_t n) {
  for (int64_t run; n > 0; n -= run, cpu_rows_skip(rows, run)) {
    const cpu_rows_dim last = cpu_rows_last(rows);
    run = least(n, last.size - last.index);
    loop->run(loop->user, rows, run);
  }
}

static fl_status run_range(void *user, int64_t first, int64_t end) {
  const rows_loop *loop = user;
  cpu_rows rows;
  cpu_rows_copy(&rows, &loop->begin);
  cpu_rows_skip(&rows, first);
  for (int64_t i = first, n; i < end; i += n) {
    n = loop->together ? least(end - i, loop->together) : end - i;
    if (loop->together)
      touch_rows(loop, &rows, n);
    if (loop->run)
      each_run(loop, &rows, n);
    else
      each_row(loop, &rows, n);
  }
  cpu_rows_written(rows.around);
  return FL_OK;
}

/* Sixty pages and more at once take little longer than one, and the second cache keeps a line of each. */
static void plan_touches(rows_loop *loop) {
  const int64_t pages = 64 * CPU_PAGE;
  int64_t longest = 1, all = 1;
  for (int t = 0; t < loop->begin.n_tensors; t++) {
    int64_t bytes = loop->begin.bytes[t];
    longest = bytes > longest ? bytes : longest;
    all += bytes;
  }
  loop->together = pages / all + 1;
  loop->step = longest < CPU_PAGE ? CPU_PAGE / longest : 1;
}

#ifdef __x86_64__
/* Bytes of the last cache that a core reaches. Of AMD's processors, which have several, sysconf tells those of all
 * together before glibc 2.37. */
static int64_t ask_for_last_cache(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(0x8000001d, 3, &a, &b, &c, &d) || !(a & 31)) /* no AMD processor, or no third level */
    return sysconf(_SC_LEVEL3_CACHE_SIZE);
  int64_t ways = (b >> 22) + 1, partitions = (b >> 12 & 1023) + 1, line = (b & 4095) + 1, sets = (int64_t)c + 1;
  return ways * partitions * line * sets;
}

/*
 * What of the last cache results may fill: all of it, but no more than the part of the cores that are here. A virtual
 * machine is told of the cache of the whole processor, of which other machines use theirs: of 480 MB, two cores kept
 * what they wrote up to some 32. Servers have 2 to 4 MB a core.
 */
static int64_t ask_for_room(void) {
  const int64_t least = 32 << 20, of_a_core = 4 << 20;
  int64_t cache = ask_for_last_cache(), share = sysconf(_SC_NPROCESSORS_ONLN) * of_a_core;
  share = share > least ? share : least;
  return cache < share ? cache : share;
}

/* Once: in a virtual machine the answer may take longer than a few megabytes. */
static int64_t room_in_caches(void) {
  static _Atomic int64_t known;
  int64_t bytes = atomic_load_explicit(&known, memory_order_relaxed);
  if (!bytes) {
    bytes = ask_for_room();
    atomic_store_explicit(&known, bytes, memory_order_relaxed);
  }
  return bytes;
}
#endif

bool cpu_rows_outgrow_caches(int64_t bytes) {
#ifdef __x86_64__
  const int64_t never = 4 << 20; /* smaller than any: not worth a question */
  return bytes > never && bytes >= room_in_caches();
#else
  return (void)bytes, false;
#endif
}

void cpu_rows_written(bool around) {
#ifdef __x86_64__
  if (around)
    __builtin_ia32_sfence();
#else
  (void)around;
#endif
}

/* Of a loop that has its rows, by one of the two functions. */
static fl_status run_loop(rows_loop *loop, cpu_row_cost cost, cpu_row_fn row, cpu_run_fn run, const void *user) {
  const int64_t second_cache = 4 << 20; /* no core has more */
  loop->row = row;
  loop->run = run;
  loop->user = user;
  loop->together = 0;
  loop->begin.far = loop->begin.left * cost.work > second_cache;
  loop->begin.around = cpu_rows_outgrow_caches(loop->begin.left * cost.written);
  if (loop->begin.far)
    plan_touches(loop);
  return cpu_parallel_for(loop->begin.left, cpu_grain(cost.work), run_range, loop);
}

fl_status cpu_rows_walk(const cpu_rows *rows, cpu_row_cost cost, cpu_row_fn row, const void *user) {
  rows_loop loop;
  cpu_rows_copy(&loop.begin, rows);
  return run_loop(&loop, cost, row, NULL, user);
}

fl_status cpu_rows_run(int n_tensors, DLTensor *const *tensors, cpu_row_cost cost, cpu_row_fn row, const void *user) {
  rows_loop loop;
  cpu_rows_set(&loop.begin, n_tensors, tensors);
  return run_loop(&loop, cost, row, NULL, user);
}

fl_status cpu_rows_run_by_run(int n_tensors, DLTensor *const *tensors, cpu_row_cost cost, cpu_run_fn run,
                              const void *user) {
  rows_loop loop;
  cpu_rows_set(&loop.begin, n_tensors, tensors);
  return run_loop(&loop, cost, NULL, run, user);
}
