/* For a suite that makes allocations fail: the linker hands the suite's and the library's to the functions below
 * (tests.mk names such suites). Include it in the one file of the suite. */
#ifndef FLHOST_TESTS_ALLOCATIONS_H
#define FLHOST_TESTS_ALLOCATIONS_H

#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);

/* The allocation that fails, counted from 0; negative: none. How many there were. */
static int failing = -1, allocations;

static bool fails(void) {
  return allocations++ == failing;
}

void *__wrap_malloc(size_t size) {
  return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
  return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *memory, size_t size) {
  return fails() ? NULL : __real_realloc(memory, size);
}

#endif
