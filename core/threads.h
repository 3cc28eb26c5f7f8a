/* Threads for kernels: how many, the pool, and loops over it. What rooms above may use. */
#ifndef FLHOST_CORE_THREADS_H
#define FLHOST_CORE_THREADS_H

#include "core/threads/loop.h"
#include "core/threads/pool.h"

#endif
