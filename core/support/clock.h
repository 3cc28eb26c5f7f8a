/* Time that only goes forward. */
#ifndef FLHOST_CORE_SUPPORT_CLOCK_H
#define FLHOST_CORE_SUPPORT_CLOCK_H

#include <time.h>

static inline double fl_monotonic_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
