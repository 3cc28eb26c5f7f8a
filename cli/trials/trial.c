/* Work in a child process: see trial.h. */
#include "cli/trials/trial.h"

#include "cli/cli.h"
#include "cli/ending.h"
#include "cli/trials/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Signs of life come so often at most, in milliseconds; what a child may write to one file; what memory that nobody has
 * set holds there, inverted; of the stack for the handler. */
enum {
  BEAT_MS = 20,
  FILE_MOST = 1 << 30,
  PERTURB = 0x04,
  STACK_BYTES = 1 << 16,
  STACK_NEAR = 1 << 20,
  FIRST_DESCRIPTOR = 10
};

/* What the child says of itself, in shared memory. */
typedef struct trial_note {
  atomic_bool done;
  char where[64], what[TRIAL_WORDS - 256], fault[96];
} trial_note;

typedef struct trial {
  const trial_limits *limits;
  void (*work)(void *context);
  void *context;
  trial_note *note;
} trial;

/* Of the child that this process is. */
static trial_note *note;
static int channel = -1;
static int commands[2] = {-1, -1}; /* the command's own standard streams */
static trial_locate locate;
static const char *stack_end;
static const char stack_words[] = "stack overflow";

const char *trial_end_name(trial_end end) {
  static const char *const names[] = {[TRIAL_DONE] = "",
                                      [TRIAL_CRASHED] = "crashed",
                                      [TRIAL_HUNG] = "hung",
                                      [TRIAL_EXITED] = "exited",
                                      [TRIAL_OUT_OF_MEMORY] = "out of memory",
                                      [TRIAL_NOT_STARTED] = "not started"};
  return names[end];
}

void *trial_share(size_t size) {
  void *memory = mmap(NULL, size + !size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void trial_unshare(void *memory, size_t size) {
  if (memory)
    munmap(memory, size + !size);
}

/* -------------------------------------------------------------------------------------------------------- the child */

void trial_beat(void) {
  static _Atomic int64_t last;
  int64_t time = channel < 0 ? 0 : (int64_t)(seconds_now() * 1e3);
  if (channel < 0 || time - atomic_load_explicit(&last, memory_order_relaxed) < BEAT_MS)
    return;
  atomic_store_explicit(&last, time, memory_order_relaxed);
  if (write(channel, "", 1) < 0)
    errno = 0; /* the parent is gone: so will this process be */
}

void trial_doing(const char *where, const char *what) {
  cli_doing("%s%s%s", where, what ? ": " : "", what ? what : "");
  if (!note)
    return;
  snprintf(note->where, sizeof note->where, "%s", where);
  snprintf(note->what, sizeof note->what, "%s", what ? what : "");
  trial_beat();
}

void trial_show(void) {
  fflush(stdout);
  if (channel >= 0 && commands[0] >= 0)
    dup2(commands[0], STDOUT_FILENO);
}

/* The command's messages, and the host's, are not to be kept with what kernels print. */
static void open_messages(void) {
  FILE *file = commands[1] < 0 ? NULL : fdopen(commands[1], "w");
  if (!file)
    return;
  setvbuf(file, NULL, _IOLBF, BUFSIZ);
  cli_set_messages(file);
}

void trial_set_locate(trial_locate function) {
  locate = function;
}

/* Where the stack of the first thread ends at most; NULL: unknown. It reads files, so not in a handler. */
static const char *end_of_stack(void) {
  pthread_attr_t attributes;
  void *lowest = NULL;
  size_t size = 0;
  struct rlimit limit;
  if (pthread_getattr_np(pthread_self(), &attributes))
    return NULL;
  pthread_attr_getstack(&attributes, &lowest, &size);
  pthread_attr_destroy(&attributes);
  if (!getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur < size)
    return (const char *)lowest + size - limit.rlim_cur;
  return lowest;
}

/* A memory fault: notes where, and lets the signal end the process when the instruction is tried again. */
static void on_fault(int number, siginfo_t *info, void *context) {
  const char *address = info->si_addr;
  (void)number, (void)context;
  if (info->si_code <= 0 || (locate && locate(address, note->fault, sizeof note->fault)))
    return;
  if (stack_end && address > stack_end - STACK_NEAR && address < stack_end + STACK_NEAR)
    memcpy(note->fault, stack_words, sizeof stack_words);
}

static void watch_faults(void) {
  static char stack[STACK_BYTES];
  const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  const struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND};
  stack_end = end_of_stack();
  sigaltstack(&own, NULL);
  sigaction(SIGSEGV, &fault, NULL);
  sigaction(SIGBUS, &fault, NULL);
}

static int be_child(void *user, int end) {
  const trial *t = user;
  channel = end;
  note = t->note;
  cli_ending_is_watched();
  open_messages();
  watch_faults();
  mallopt(M_PERTURB, PERTURB);
  t->work(t->context);
  fflush(NULL);
  atomic_store(&note->done, true);
  return 0;
}

/* ------------------------------------------------------------------------------------------------------- the parent */

/* Its signs of life mean nothing more. */
static void receive(void *user, const void *data, size_t length) {
  (void)user, (void)data, (void)length;
}

/* The command's streams, for a child that has something to show; they are closed where they are closed here. */
static void keep_streams(void) {
  for (int i = 0; i < 2; i++)
    commands[i] = fcntl(STDOUT_FILENO + i, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
}

static void release_streams(void) {
  for (int i = 0; i < 2; i++) {
    if (commands[i] >= 0)
      close(commands[i]);
    commands[i] = -1;
  }
}

/* Bytes that this process has in memory. */
static uint64_t memory_in_use(void) {
  unsigned long long all, resident = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%llu %llu", &all, &resident) != 2)
    resident = 0;
  if (file)
    fclose(file);
  return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static trial_end end_of(const fl_child_result *result, const trial_note *said) {
  if (atomic_load(&said->done))
    return TRIAL_DONE;
  return result->end == FL_CHILD_KILLED   ? TRIAL_CRASHED
         : result->end == FL_CHILD_HUNG   ? TRIAL_HUNG
         : result->end == FL_CHILD_MEMORY ? TRIAL_OUT_OF_MEMORY
                                          : TRIAL_EXITED;
}

static FL_PRINTF(3, 4) void add(char *words, size_t size, const char *format, ...) {
  size_t length = strlen(words);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words + length, size - length, format, arguments);
  va_end(arguments);
}

static void describe(trial_outcome *outcome, const fl_child_result *result, const trial_note *said,
                     const trial_limits *limits) {
  char *words = outcome->words;
  const char *name = result->end == FL_CHILD_KILLED ? sigabbrev_np((int)result->signal) : NULL;
  size_t size = sizeof outcome->words;
  add(words, size, "%s", trial_end_name(outcome->end));
  if (*said->where)
    add(words, size, " in %.*s", (int)sizeof said->where - 1, said->where);
  if (outcome->end == TRIAL_OUT_OF_MEMORY)
    add(words, size, " (it took more than %.3g GB", (double)limits->memory / 1e9);
  else if (outcome->end == TRIAL_HUNG)
    add(words, size, " (no answer within %g s", limits->seconds);
  else if (name)
    add(words, size, " (SIG%s", name);
  else
    add(words, size, " (status %d", (int)result->code);
  if (outcome->end == TRIAL_CRASHED && *said->fault)
    add(words, size, ", %.*s", (int)sizeof said->fault - 1, said->fault);
  if (*said->what)
    add(words, size, ", %.*s", (int)sizeof said->what - 1, said->what);
  add(words, size, ")");
  /* Its own last words, an assertion's for one. */
  if (outcome->end == TRIAL_CRASHED && *outcome->beginning)
    add(words, size, "; it printed: %s", outcome->beginning);
}

/* One line. */
static void flatten(char *text) {
  size_t length = strlen(text);
  while (length && (unsigned char)text[length - 1] <= ' ')
    text[--length] = 0;
  for (; *text; text++)
    if ((unsigned char)*text < ' ')
      *text = ' ';
}

static trial_outcome not_started(const char *why) {
  trial_outcome outcome = {.end = TRIAL_NOT_STARTED};
  snprintf(outcome.words, sizeof outcome.words, "not started: %s", why);
  return outcome;
}

trial_outcome trial_run(const trial_limits *limits, void (*work)(void *context), void *context) {
  trial_outcome outcome = {0};
  if (limits->in_process) {
    work(context);
    return outcome;
  }
  trial t = {.limits = limits, .work = work, .context = context, .note = trial_share(sizeof *t.note)};
  if (!t.note)
    return not_started(strerror(errno));
  const fl_child_options options = {.size = sizeof options,
                                    .run = be_child,
                                    .receive = receive,
                                    .user = &t,
                                    .silence_ms = (uint32_t)(limits->seconds * 1e3),
                                    .max_memory = limits->memory ? memory_in_use() + limits->memory : 0,
                                    .max_file_size = FILE_MOST,
                                    .output = outcome.beginning,
                                    .output_size = sizeof outcome.beginning};
  fl_child_result result = {.size = sizeof result};
  fflush(NULL);
  keep_streams();
  if (fl_child_run(&options, &result)) {
    outcome = not_started(fl_error_message());
  } else {
    outcome.end = end_of(&result, t.note);
    outcome.signal = (int)result.signal;
    outcome.printed = result.output;
    flatten(outcome.beginning);
    if (outcome.end)
      describe(&outcome, &result, t.note, limits);
  }
  release_streams();
  trial_unshare(t.note, sizeof *t.note);
  return outcome;
}
