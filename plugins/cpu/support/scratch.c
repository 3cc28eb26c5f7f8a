/* Scratch memory of threads: see scratch.h. */
#include "plugins/cpu/support/scratch.h"
#include "plugins/cpu/support/matrix.h"

#include <pthread.h>

/* Of one thread: what it holds, and behind that what it has kept. */
typedef struct scratch_stack {
  size_t held;
  struct {
    float *floats;
    size_t n;
  } kept[CPU_SCRATCH_DEPTH];
} scratch_stack;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void release(void *stack) {
  for (int i = 0; i < CPU_SCRATCH_DEPTH; i++)
    free(((scratch_stack *)stack)->kept[i].floats);
  free(stack);
}

static void make_key(void) {
  has_key = !pthread_key_create(&key, release);
}

/* The calling thread's; NULL without memory for it: nothing is kept then. */
static scratch_stack *stack_of_thread(void) {
  pthread_once(&once, make_key);
  scratch_stack *stack = has_key ? pthread_getspecific(key) : NULL;
  if (stack || !has_key)
    return stack;
  stack = calloc(1, sizeof *stack);
  if (stack && !pthread_setspecific(key, stack))
    return stack;
  free(stack);
  return NULL;
}

float *cpu_scratch_take(size_t n) {
  scratch_stack *stack = stack_of_thread();
  if (!stack || stack->held == CPU_SCRATCH_DEPTH || n > CPU_SCRATCH_KEPT / sizeof(float))
    return cpu_floats_alloc(n);
  if (!stack->kept[stack->held].floats || stack->kept[stack->held].n < n) {
    free(stack->kept[stack->held].floats);
    stack->kept[stack->held].floats = cpu_floats_alloc(n);
    stack->kept[stack->held].n = n;
  }
  float *scratch = stack->kept[stack->held].floats;
  stack->held += scratch != NULL;
  return scratch;
}

void *cpu_scratch_take_bytes(size_t n) {
  return cpu_scratch_take(n / sizeof(float) + 1);
}

void cpu_scratch_give(void *scratch) {
  scratch_stack *stack = scratch ? stack_of_thread() : NULL;
  if (stack && stack->held && stack->kept[stack->held - 1].floats == scratch)
    stack->held--;
  else
    free(scratch);
}
