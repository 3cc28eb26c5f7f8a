/* The clock by which things are timed here. */
#ifndef FLHOST_CLI_TRIALS_CLOCK_H
#define FLHOST_CLI_TRIALS_CLOCK_H

#include <time.h>

static inline double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
