/* A call of a library that may wait for ever, with a limit: a thread of its own makes it. */
#ifndef FLHOST_RANKS_ATTEMPT_H
#define FLHOST_RANKS_ATTEMPT_H

#include <stddef.h>
#include <stdint.h>

typedef enum attempt_end {
  ATTEMPT_CAME_BACK,
  ATTEMPT_LATE, /* the thread is left with the call */
  ATTEMPT_NO_THREAD
} attempt_end;

/*
 * Has `make` called with a copy of *data by a thread of its own, "flhost joining", which takes no signals; what it
 * wrote there is in *data when it came back. A caller that has waited for `limit` nanoseconds goes on without: should
 * the call come back later, the thread calls `undo` with its copy. So the data points to nothing that ends before the
 * process does. limit 0: `make` is called here, and however long it takes.
 */
attempt_end attempt_within(uint64_t limit, void *data, size_t size, void (*make)(void *data), void (*undo)(void *data));

#endif
