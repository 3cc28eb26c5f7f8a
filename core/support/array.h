/* Arrays that grow by one item at a time. */
#ifndef FLHOST_CORE_SUPPORT_ARRAY_H
#define FLHOST_CORE_SUPPORT_ARRAY_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/*
 * Room for one more behind the `n` items of a malloc'ed array, or of none (NULL). `place` is where the pointer to it
 * stands: `&list->items`. The room is the power of two from n on, so that nobody has to note it. false: out of memory,
 * and the array is as it was.
 */
static inline bool fl_array_grow(void *place, size_t n, size_t item_size) {
  void *array;
  if (n & (n - 1))
    return true;
  memcpy(&array, place, sizeof array); /* whatever it points to: pointers look alike */
  array = realloc(array, (n ? 2 * n : 1) * item_size);
  if (array)
    memcpy(place, &array, sizeof array);
  return array;
}

#endif
