/*
 * Coroutines on stacks of their own, for grid.c: a few nanoseconds a switch on x86-64, by the C library elsewhere. The
 * address sanitizer and valgrind are told of the stacks.
 */
#ifndef FLHOST_TESTS_COROUTINE_H
#define FLHOST_TESTS_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct coroutine coroutine;

/* A stack that runs `function(argument)` each time it is started. NULL: out of memory. */
coroutine *coroutine_create(void (*function)(void *argument));
void coroutine_free(coroutine *c);

/* Runs it from the beginning, or on from where it gave way, until it gives way or ends. true: it has ended. */
bool coroutine_start(coroutine *c, void *argument);
bool coroutine_resume(coroutine *c);

/* Gives way to whoever started or resumed it. From inside only. */
void coroutine_yield(coroutine *c);

#endif
