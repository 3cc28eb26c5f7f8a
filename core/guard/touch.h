/*
 * Who touched a guard page: a handler of SIGSEGV for guarded mode. It writes one line to standard error, opens the
 * page, which is memory of ours, and lets the instruction go on; the call's results are thrown away when it comes back.
 * No jump, no allocation, no lock. What is no page of ours goes to the handler that was there before.
 */
#ifndef FLHOST_CORE_GUARD_TOUCH_H
#define FLHOST_CORE_GUARD_TOUCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Memory that is watched: guard pages, pages that may be used, guard pages. */
typedef struct fl_watched_memory {
  char *map; /* of `size` bytes */
  size_t size;
  char *inside; /* what is no guard page */
  size_t inside_size;
  const char *first; /* the tensor in it, */
  size_t span;       /* whose bytes these are */
  const char *what;  /* "op 'x', implementation 'y', argument 'z' (float32[2])"; stays until it is released */
} fl_watched_memory;

/* Watches it, from now on, in all threads; the handler is there from the first time on and stays. A number to release
 * it by; negative: there is no room for more, touching it is a crash that nobody explains. */
int fl_touch_watch(const fl_watched_memory *memory);

/* The byte, counted from the tensor's first, that was touched first; false: none was. */
bool fl_touch_look(int watch, ptrdiff_t *byte);

/* Nobody touches it any more. */
void fl_touch_release(int watch);

#endif
