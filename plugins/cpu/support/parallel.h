/* Loops over several threads: those of the host's pool (fl_registry.parallel_for), or of a host that is older than that
 * the calling thread alone. */
#ifndef FLHOST_CPU_SUPPORT_PARALLEL_H
#define FLHOST_CPU_SUPPORT_PARALLEL_H

#include "plugins/cpu/cpu.h"

/*
 * Calls `body` for ranges of 0 ≤ i < n that do not overlap and together are all of it, from several threads at once
 * where there is enough to do. `grain`: so many steps take some ten microseconds; every range but the last has a
 * multiple of it. Which thread gets what is not fixed: where a result depends on the order of additions, a step is one
 * whole sum. The first error of `body` is returned, and no more ranges are begun.
 */
fl_status cpu_parallel_for(int64_t n, int64_t grain, fl_range_fn body, void *user);

/* Takes the host's pool. */
void cpu_parallel_begin(const fl_registry *registry);

#endif
