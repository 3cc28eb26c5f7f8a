/* For a suite that makes allocations fail: the linker hands the suite's and the library's to the functions below
 * (tests.mk names such suites). Include it in the one file of the suite. */
#ifndef FLHOST_TESTS_ALLOCATIONS_H
#define FLHOST_TESTS_ALLOCATIONS_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *memory, size_t size);
char *__real_strdup(const char *string);
char *__real_strndup(const char *string, size_t length);
int __real_vasprintf(char **string, const char *format, va_list arguments);
char *__wrap_strdup(const char *string);
char *__wrap_strndup(const char *string, size_t length);
int __wrap_vasprintf(char **string, const char *format, va_list arguments);

/* The allocation that fails, counted from 0; negative: none. How many there were. Suites have threads. */
static _Atomic int failing = -1, allocations;

static bool fails(void) {
  bool fails_now = allocations++ == failing;
  if (fails_now)
    errno = ENOMEM;
  return fails_now;
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

char *__wrap_strdup(const char *string) {
  return fails() ? NULL : __real_strdup(string);
}

char *__wrap_strndup(const char *string, size_t length) {
  return fails() ? NULL : __real_strndup(string, length);
}

int __wrap_vasprintf(char **string, const char *format, va_list arguments) {
  return fails() ? -1 : __real_vasprintf(string, format, arguments);
}

#endif
