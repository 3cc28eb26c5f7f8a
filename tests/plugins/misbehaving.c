/*
 * An op with a reference implementation that is right, and one of a vendor that misbehaves in a way that no host may
 * take for a result. Built once for each (CASE, NAME); tests/test_misbehaving.c has the verdict that each must get.
 */
#include <flhost/plugin.h>

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

enum behaviour {
  NOTHING,
  /* While it is loaded. */
  CONSTRUCTOR_EXITS,
  CONSTRUCTOR_ENDS_THREAD,
  ENTRY_EXITS,
  ENTRY_ENDS_THREAD,
  /* Does not come back. */
  CRASHES,
  CRASHES_LATER, /* in one of the forms of the op's calls only */
  DIVIDES,
  ABORTS,
  KILLS_ITSELF,
  EXITS,
  EXITS_AT_ONCE,
  ENDS_THREAD,
  HANGS,
  TAKES_MEMORY,
  OVERFLOWS_STACK,
  JUMPS,
  FREES_TWICE,
  /* Wrong results. */
  WRONG_TAIL,
  WRONG_MANY_ROWS,
  WRONG_LONG_ROWS,
  WRONG_NAN,
  WRONG_500TH,
  SKIPS_ROW,
  OF_PREVIOUS_CALL,
  OF_STATIC_BUFFER,
  OF_UNSET_MEMORY,
  OF_UNSET_RESULT,
  /* Where it must not be. */
  READS_BEHIND,
  READS_BEFORE,
  WRITES_BEHIND,
  WRITES_FAR_BEHIND,
  WRITES_FAR_BEFORE,
  WRITES_INPUT,
  /* Leaves something behind. */
  LEAKS_DESCRIPTOR,
  LEAKS_THREAD,
  LEAKS_MASK,
  CHANGES_HANDLER,
  CHANGES_DIRECTORY,
  CHANGES_LOCALE,
  CHANGES_ROUNDING,
  PRINTS,
  /* What it answers. */
  STATUS_GARBAGE,
  MESSAGE_WITHOUT_END,
};

enum { X, WEIGHT, OUT };

static const fl_op_def op = {.size = sizeof(fl_op_def),
                             .schema = "misbehaving(Tensor x, Tensor? weight=None) -> Tensor out",
                             .rules = "x: T[..., d]; weight: T[d]; out: T[..., d]; T = float32",
                             .category = "test",
                             .doc = "out = max(x, 0) * weight",
                             .cases = "...: [1] [7] [2, 3]; d: 8 1 32 64; weight: normal none"};

/* One call, taken apart. */
typedef struct work {
  fl_call *call;
  const DLTensor *x, *out;
  const float *weight;
  int64_t rows, d;
} work;

static float *row_of(const DLTensor *tensor, int64_t number) {
  float *row = fl_data(tensor);
  for (int dim = tensor->ndim - 2; dim >= 0; dim--) {
    row += number % tensor->shape[dim] * fl_stride(tensor, dim);
    number /= tensor->shape[dim];
  }
  return row;
}

static void compute(const work *w) {
  for (int64_t row = 0; row < w->rows; row++) {
    const float *x = row_of(w->x, row);
    float *out = row_of(w->out, row);
    for (int64_t i = 0; i < w->d; i++)
      out[i] = (x[i] < 0 ? 0 : x[i]) * (w->weight ? w->weight[i] : 1);
  }
}

/* ----------------------------------------------------------------------------------------------- does not come back */

static volatile int zero;
static jmp_buf nowhere;

static int deeper(volatile char *above, int depth) {
  volatile char here[4096];
  here[0] = above[0];
  return depth < 0 ? here[0] : deeper(here, depth + 1) + here[0];
}

static void take_memory(void) {
  for (size_t i = 0; i < 2000; i++) {         /* 100 GB */
    char *volatile memory = malloc(50 << 20); /* volatile: else a compiler may do without it */
    if (memory)
      memset(memory, 1, 50 << 20);
  }
}

static void end_here(const work *w, enum behaviour does) {
  char one = 1;
  if (does == CRASHES || (does == CRASHES_LATER && w->d == 32))
    *(volatile int *)(uintptr_t)(zero + 16) = 1;
  if (does == DIVIDES)
    raise(SIGFPE);
  if (does == ABORTS)
    abort();
  if (does == KILLS_ITSELF)
    raise(SIGKILL);
  if (does == EXITS)
    exit(0);
  if (does == EXITS_AT_ONCE)
    _exit(0);
  if (does == ENDS_THREAD)
    pthread_exit(NULL);
  while (does == HANGS)
    pause();
  if (does == TAKES_MEMORY)
    take_memory();
  if (does == OVERFLOWS_STACK)
    zero = deeper(&one, 0);
  if (does == JUMPS)
    longjmp(nowhere, 1);
  if (does == FREES_TWICE) {
    char *volatile memory = malloc(64);
    free(memory);
    free(memory);
  }
}

/* ---------------------------------------------------------------------------------------------------- wrong results */

static atomic_int calls;

/* Through a buffer that all threads share. */
static void compute_through_buffer(const work *w) {
  static float buffer[1 << 14];
  for (int64_t row = 0; row < w->rows; row++) {
    const float *x = row_of(w->x, row);
    float *out = row_of(w->out, row);
    int64_t n = w->d < 1 << 14 ? w->d : 1 << 14;
    for (int64_t i = 0; i < n; i++)
      buffer[i] = (x[i] < 0 ? 0 : x[i]) * (w->weight ? w->weight[i] : 1);
    sched_yield();
    memcpy(out, buffer, (size_t)n * sizeof *out);
  }
}

static void spoil(const work *w, enum behaviour does) {
  static float before;
  float *out = row_of(w->out, w->rows - 1), *last = &out[w->d - 1];
  bool wrong = (does == WRONG_TAIL && w->d % 8 == 3) || (does == WRONG_MANY_ROWS && w->rows >= 2048) ||
               (does == WRONG_LONG_ROWS && w->d > 8192) ||
               (does == WRONG_500TH && atomic_fetch_add(&calls, 1) % 500 == 499);
  if (wrong)
    *last += 1;
  if (does == WRONG_NAN)
    *last = NAN;
  if (does == OF_PREVIOUS_CALL) {
    *last += before;
    before = row_of(w->x, 0)[0];
  }
  if (does == OF_UNSET_MEMORY) {
    float *volatile memory = malloc(4096);
    if (memory) {
      *last += fabsf(memory[100]) > 1e-30f ? 1 : 0;
      free(memory);
    }
  }
  if (does == OF_STATIC_BUFFER)
    compute_through_buffer(w);
}

/* --------------------------------------------------------------------------------------------- where it must not be */

static volatile float seen;

static void stray(const work *w, enum behaviour does) {
  float *x = row_of(w->x, w->rows - 1), *out = row_of(w->out, w->rows - 1), *first = row_of(w->out, 0);
  if (does == READS_BEHIND)
    for (int i = 0; i < 8; i++)
      seen = x[w->d + i];
  if (does == READS_BEFORE)
    seen = row_of(w->x, 0)[-1];
  if (does == WRITES_BEHIND)
    out[w->d] = 0;
  if (does == WRITES_FAR_BEHIND)
    *(volatile float *)&out[w->d + 80] = 0;
  if (does == WRITES_FAR_BEFORE)
    *(volatile float *)&first[-80] = 0;
  if (does == WRITES_INPUT)
    *x = 3;
}

/* ------------------------------------------------------------------------------------------------- what it leaves */

static void on_signal(int number) {
  (void)number;
}

static void *wait_for_ever(void *unused) {
  for (;;)
    pause();
  return unused;
}

static void print(void) {
  static char text[1 << 16];
  memset(text, 'x', sizeof text);
  if (write(STDOUT_FILENO, text, sizeof text) < 0)
    zero = 0;
}

static void leave(const work *w, enum behaviour does) {
  pthread_t thread;
  sigset_t set;
  if (does == LEAKS_DESCRIPTOR && w->d == 1 && open("/dev/null", O_RDONLY) < 0)
    zero = 0;
  if (does == LEAKS_THREAD && w->d == 1 && !pthread_create(&thread, NULL, wait_for_ever, NULL))
    pthread_detach(thread);
  if (does == LEAKS_MASK) {
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
  }
  if (does == CHANGES_HANDLER)
    signal(SIGUSR2, on_signal);
  if (does == CHANGES_DIRECTORY && chdir("/"))
    zero = 0;
  if (does == CHANGES_LOCALE)
    setlocale(LC_NUMERIC, "C.UTF-8");
  if (does == CHANGES_ROUNDING)
    fesetround(FE_TOWARDZERO);
  if (does == PRINTS)
    print();
}

/* ------------------------------------------------------------------------------------------------------- the plugin */

static fl_status run(fl_call *call, enum behaviour does) {
  const DLTensor *weight = call->values[WEIGHT].type == FL_TENSOR ? call->values[WEIGHT].v.tensor : NULL;
  work w = {.call = call,
            .x = call->values[X].v.tensor,
            .out = call->values[OUT].v.tensor,
            .weight = weight ? fl_data(weight) : NULL,
            .rows = 1};
  w.d = w.x->shape[w.x->ndim - 1];
  for (int dim = 0; dim < w.x->ndim - 1; dim++)
    w.rows *= w.x->shape[dim];
  end_here(&w, does);
  if (does == STATUS_GARBAGE)
    return (fl_status)12345;
  if (does == MESSAGE_WITHOUT_END) {
    memset(call->message, 'x', call->message_size);
    return FL_EDEVICE;
  }
  if (!w.rows || !w.d)
    return FL_OK;
  if (does == OF_UNSET_RESULT)
    seen = *row_of(w.out, 0);
  float unset = does == OF_UNSET_RESULT ? seen : 0;
  if (does == SKIPS_ROW)
    w.rows--;
  compute(&w);
  if (does == SKIPS_ROW)
    return FL_OK;
  if (unset != 0)
    *row_of(w.out, 0) += 1;
  spoil(&w, does);
  stray(&w, does);
  leave(&w, does);
  return FL_OK;
}

static fl_status right(void *self, fl_call *call) {
  (void)self;
  return run(call, NOTHING);
}

static fl_status wrong(void *self, fl_call *call) {
  (void)self;
  return run(call, CASE);
}

__attribute__((constructor)) static void construct(void) {
  if (CASE == CONSTRUCTOR_EXITS)
    exit(0);
  if (CASE == CONSTRUCTOR_ENDS_THREAD)
    pthread_exit(NULL);
}

fl_status register_builtins(fl_registry *registry) {
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "misbehaving",
                  .impl_id = "reference.right",
                  .kind = FL_KIND_REFERENCE,
                  .devices = FL_DEVICE(kDLCPU),
                  .dtypes = FL_FLOAT32,
                  .flags = FL_IMPL_DETERMINISTIC,
                  .fn = right};
  if (CASE == ENTRY_EXITS)
    exit(0);
  if (CASE == ENTRY_ENDS_THREAD)
    pthread_exit(NULL);
  fl_status status = registry->register_op(registry, &op);
  if (!status)
    status = registry->register_impl(registry, &impl);
  impl.impl_id = "vendor.wrong";
  impl.kind = FL_KIND_VENDOR;
  impl.vendor = "wrong";
  impl.fn = wrong;
  if (!status)
    status = registry->register_impl(registry, &impl);
  impl.impl_id = "vendor.other"; /* its verdict stands whatever becomes of the one before */
  impl.vendor = "other";
  impl.fn = right;
  return status ? status : registry->register_impl(registry, &impl);
}
