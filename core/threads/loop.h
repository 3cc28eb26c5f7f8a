/* Loops of kernels, over the pool's threads or the engine's. */
#ifndef FLHOST_CORE_THREADS_LOOP_H
#define FLHOST_CORE_THREADS_LOOP_H

#include <flhost/plugin.h>

/* fl_registry.parallel_for; the threads' number is that of the host whose call this thread is in. */
fl_status fl_parallel_for(int64_t n, int64_t grain, fl_range_fn body, void *user);

#endif
