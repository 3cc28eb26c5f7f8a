/* Loops over several threads: see parallel.h. */
#include "plugins/cpu/support/parallel.h"

#include <stdatomic.h>

static fl_status alone(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  (void)grain;
  return n > 0 ? body(user, 0, n) : FL_OK;
}

/* The same for all hosts of a library. */
static _Atomic(fl_parallel_for_fn) parallel_for = alone;

fl_status cpu_parallel_for(int64_t n, int64_t grain, fl_range_fn body, void *user) {
  return atomic_load_explicit(&parallel_for, memory_order_relaxed)(n, grain, body, user);
}

void cpu_parallel_begin(const fl_registry *registry) {
  if (registry->size >= offsetof(fl_registry, parallel_for) + sizeof registry->parallel_for && registry->parallel_for)
    atomic_store_explicit(&parallel_for, registry->parallel_for, memory_order_relaxed);
}
