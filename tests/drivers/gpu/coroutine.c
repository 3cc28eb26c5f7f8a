/* Coroutines: see coroutine.h. */
#include "tests/drivers/gpu/coroutine.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#ifdef WITH_ASAN
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef VALGRIND_STACK_REGISTER
#define VALGRIND_STACK_REGISTER(from, to) 0
#define VALGRIND_STACK_DEREGISTER(id)     (void)(id)
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#ifdef WITH_ASAN
enum { STACK_SIZE = 256 << 10 };
#else
enum { STACK_SIZE = 64 << 10 };
#endif

struct coroutine {
  void (*function)(void *argument);
  void *argument;
  bool ended;
  char *stack;
  unsigned id; /* valgrind's, of the stack */
#if defined(__x86_64__)
  void *inside, *outside; /* stack pointers */
#else
  ucontext_t inside, outside;
#endif
#ifdef WITH_ASAN
  void *fake_inside, *fake_outside;
  const void *outer_stack;
  size_t outer_size;
#endif
};

/* ---------------------------------------------------------------------------------------------------- the switch */

#if defined(__x86_64__)
/* Saves what a call has to keep, and the stack pointer in *from; then takes on another. */
void coroutine_switch(void **from, void *to);
__asm__(".text\n"
        ".hidden coroutine_switch\n"
        ".globl coroutine_switch\n"
        ".type coroutine_switch, @function\n"
        "coroutine_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size coroutine_switch, . - coroutine_switch\n"
        ".section .note.GNU-stack, \"\", @progbits\n"
        ".text\n");
#define SWITCH_IN(c)  coroutine_switch(&(c)->outside, (c)->inside)
#define SWITCH_OUT(c) coroutine_switch(&(c)->inside, (c)->outside)
#else
#define SWITCH_IN(c)  swapcontext(&(c)->outside, &(c)->inside)
#define SWITCH_OUT(c) swapcontext(&(c)->inside, &(c)->outside)
#endif

/* The one whose first step is being taken: a new stack has no arguments. */
static __thread coroutine *beginning;

static void leave(coroutine *c) {
#ifdef WITH_ASAN
  __sanitizer_start_switch_fiber(&c->fake_inside, c->outer_stack, c->outer_size);
#endif
  SWITCH_OUT(c);
#ifdef WITH_ASAN
  __sanitizer_finish_switch_fiber(c->fake_inside, &c->outer_stack, &c->outer_size);
#endif
}

/* The bottom of each stack; never returns. A coroutine that has ended begins anew when it is started again. */
static void begin(void) {
  coroutine *c = beginning;
#ifdef WITH_ASAN
  __sanitizer_finish_switch_fiber(NULL, &c->outer_stack, &c->outer_size);
#endif
  for (;;) {
    c->function(c->argument);
    c->ended = true;
    leave(c);
  }
}

bool coroutine_resume(coroutine *c) {
#ifdef WITH_ASAN
  __sanitizer_start_switch_fiber(&c->fake_outside, c->stack, STACK_SIZE);
#endif
  beginning = c;
  SWITCH_IN(c);
#ifdef WITH_ASAN
  __sanitizer_finish_switch_fiber(c->fake_outside, NULL, NULL);
#endif
  return c->ended;
}

bool coroutine_start(coroutine *c, void *argument) {
  c->argument = argument;
  c->ended = false;
  return coroutine_resume(c);
}

void coroutine_yield(coroutine *c) {
  leave(c);
}

/* ---------------------------------------------------------------------------------------------------- the stacks */

coroutine *coroutine_create(void (*function)(void *argument)) {
  coroutine *c = calloc(1, sizeof *c);
  if (!c)
    return NULL;
  c->function = function;
  c->stack = mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (c->stack == MAP_FAILED) {
    free(c);
    return NULL;
  }
  c->id = VALGRIND_STACK_REGISTER(c->stack, c->stack + STACK_SIZE);
#if defined(__x86_64__)
  /* What coroutine_switch pops: six registers and where to go; there the stack is as after a call. */
  void **top = (void **)(void *)(c->stack + STACK_SIZE) - 2;
  top[0] = (void *)(uintptr_t)begin;
  c->inside = top - 6;
#else
  getcontext(&c->inside);
  c->inside.uc_stack.ss_sp = c->stack;
  c->inside.uc_stack.ss_size = STACK_SIZE;
  makecontext(&c->inside, begin, 0);
#endif
  return c;
}

void coroutine_free(coroutine *c) {
  if (!c)
    return;
  VALGRIND_STACK_DEREGISTER(c->id);
  munmap(c->stack, STACK_SIZE);
  free(c);
}
