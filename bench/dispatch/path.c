/*
 * The call path, instruction by instruction. A child makes one call by handle and is stepped through it, in a host with
 * statistics and in one without. Were there an instruction on the path that asks whether something is to be recorded,
 * the two would part there; they may part only where the binding's function is called, which is a different one.
 */
#include "bench/dispatch/dispatch.h"

#include <elf.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_STEPS = 20000, MOST_STEPS_BEFORE = 25000 };

typedef struct path {
  int n;
  uintptr_t at[MOST_STEPS];
} path;

/* The end of what is stepped through. Not inlined, and not taken out. */
static __attribute__((noinline)) void path_end(void) {
  __asm__ volatile("");
}

static __attribute__((noreturn)) void traced_call(fl_op *op, fl_call *call) {
  if (fl_invoke(op, call) || ptrace(PTRACE_TRACEME, 0, NULL, NULL)) /* the first call of a thread is another matter */
    _exit(1);
  raise(SIGSTOP);
  fl_invoke(op, call);
  path_end();
  _exit(0);
}

#if defined __x86_64__ || defined __aarch64__
static uintptr_t program_counter(pid_t child) {
  struct user_regs_struct registers;
  struct iovec place = {&registers, sizeof registers};
  if (ptrace(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &place))
    return 0;
#ifdef __x86_64__
  return registers.rip;
#else
  return registers.pc;
#endif
}
#else
static uintptr_t program_counter(pid_t child) {
  (void)child;
  return 0;
}
#endif

/* Steps from the entry of fl_invoke to path_end. False: this cannot be done here. */
static bool step_through(pid_t child, path *steps) {
  int status;
  steps->n = 0;
  if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
    return false;
  for (int i = 0; i < MOST_STEPS_BEFORE && steps->n < MOST_STEPS; i++) {
    uintptr_t at = program_counter(child);
    if (!at || at == (uintptr_t)path_end)
      return steps->n > 0;
    if (steps->n || at == (uintptr_t)fl_invoke)
      steps->at[steps->n++] = at;
    if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) || waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
      return false;
  }
  return false;
}

static fl_status trace(uint32_t flags, path *steps, bool *traced) {
  fl_host *host = NULL;
  fl_impl impl = bench_impl("bench_plain", "default.flagos", FL_KIND_DEFAULT, NULL);
  bench_caller *caller = aligned_alloc(_Alignof(bench_caller), sizeof *caller);
  fl_status status = caller ? bench_host(FL_HOST_NO_ARGUMENT_CHECKS | flags, "ERROR", &host) : FL_ENOMEM;
  if (!status)
    status = bench_op(host, impl.op_name);
  if (!status)
    status = fl_register_impl(host, &impl);
  if (!status) {
    bench_caller_init(caller, host, impl.op_name);
    fflush(NULL);
    pid_t child = fork();
    if (!child)
      traced_call(caller->op, &caller->call);
    *traced = child > 0 && step_through(child, steps);
    if (child > 0) {
      kill(child, SIGKILL);
      waitpid(child, NULL, 0);
    }
  }
  fl_host_destroy(host);
  free(caller);
  return status;
}

/* Numbers of instructions that two paths have in common: from the start, and from the end. */
static int common_start(const path *a, const path *b) {
  int n = 0;
  while (n < a->n && n < b->n && a->at[n] == b->at[n])
    n++;
  return n;
}

static int common_end(const path *a, const path *b) {
  int n = 0;
  while (n < a->n && n < b->n && a->at[a->n - 1 - n] == b->at[b->n - 1 - n])
    n++;
  return n;
}

/* Before the kernel and after it, the path must be the same whether or not calls are counted. */
static void judge(bench *b, const path *off, const path *on) {
  enum { KERNEL_BYTES = 64 };
  int before = 0, in_kernel = 0, start = common_start(off, on), end = common_end(off, on);
  while (before < off->n && off->at[before] != (uintptr_t)bench_nothing)
    before++;
  while (before + in_kernel < off->n && off->at[before + in_kernel] - (uintptr_t)bench_nothing < KERNEL_BYTES)
    in_kernel++;
  int after = off->n - before - in_kernel;
  bool same = in_kernel && start == before && end >= after;
  bench_set_absolute(b, ROW_OFF, (bench_spread){before + after, before + after});
  b->rows[ROW_OFF].verdict = same ? 1 : -1;
  if (same)
    bench_note(b, ROW_OFF,
               "stepped through: %d to the kernel, %d back; with statistics on the path is the same up to the call of "
               "another function there (see `make bench-disassembly`)",
               before, after);
  else
    bench_note(
        b, ROW_OFF,
        "of %d instructions to the kernel and %d back, the first %d and the last %d are the same with statistics on",
        before, after, start < before ? start : before, end < after ? end : after);
}

fl_status bench_path(bench *b) {
  bool traced_off = false, traced_on = false;
  path *off = malloc(sizeof *off), *on = malloc(sizeof *on);
  fl_status status = off && on ? FL_OK : FL_ENOMEM;
  if (!status)
    status = trace(0, off, &traced_off);
  if (!status)
    status = trace(FL_HOST_STATISTICS, on, &traced_on);
  if (status)
    goto out;
  if (!traced_off || !traced_on) {
    bench_note(b, ROW_OFF, "a child cannot be stepped through here; see `make bench-disassembly`");
    goto out;
  }
  judge(b, off, on);
out:
  free(off);
  free(on);
  return status;
}
