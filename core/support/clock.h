/* Clocks. */
#ifndef FLHOST_CORE_SUPPORT_CLOCK_H
#define FLHOST_CORE_SUPPORT_CLOCK_H

#include <stdbool.h>
#include <time.h>

static inline double fl_monotonic_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Has a time come that was set `ahead` seconds before? A clock from before then was set back: better now than never. */
static inline bool fl_is_due(double time, double ahead, double now) {
  return now >= time || now < time - ahead;
}

/* Time that passes while something is waited for, whatever the clock does: a virtual machine that is moved, or a
 * process that is restored from a file, may find another. */
typedef struct fl_stopwatch {
  double passed, seen;
} fl_stopwatch;

static inline fl_stopwatch fl_stopwatch_start(void) {
  return (fl_stopwatch){.seen = fl_monotonic_seconds()};
}

/* Gives the seconds until now. `step`: how long was waited at most since it was looked at last. A machine that is busy
 * lets us wait longer; what is longer still is the clock's jump, or the time for which the machine itself stood still,
 * in which nobody could have done what is waited for. */
static inline double fl_stopwatch_look(fl_stopwatch *watch, double step) {
  enum { BUSY = 1 };
  double now = fl_monotonic_seconds(), since = now - watch->seen;
  watch->seen = now;
  watch->passed += since < 0 ? step : since < step + BUSY ? since : step + BUSY;
  return watch->passed;
}

#endif
