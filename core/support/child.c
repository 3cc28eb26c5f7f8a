/*
 * A child process with limits: see testing.h. The engine around may have handlers, reap every child, ignore SIGCHLD,
 * and fork in other threads at the same time, so nothing here relies on a pipe's end, on being told of the child's end,
 * or on getting its status.
 */
#include "core/support/child.h"

#include "core/support/clock.h"
#include "core/support/error.h"
#include "core/support/sized.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  ABOVE_GIVEN = FL_CHILD_CHANNEL + 1, /* our own descriptors lie above those that the child gets */
  GENERATIONS = 3,                    /* of whose memory is counted */
  SLICE_MS = 1000,                    /* waited at a time, so that a clock that jumps costs a limit no more */
  LOOK_MS = 20,                       /* how often memory is looked at */
  TICK_MS = 5,                        /* and the child, where the kernel does not tell of its end */
  REAP_MS = 5000,                     /* one that does not even die (in a driver) is left behind */
  READS_IN_A_ROW = 64,                /* a child that writes without end must not keep us from looking at the clock */
  READ_SIZE = 16 * 1024,
  UNFORTUNATE = 1000 /* oom_score_adj: whom the kernel is to kill first */
};

/* One child, seen from here. */
typedef struct child {
  const fl_child_options *options;
  fl_child_result *result;
  pid_t pid;
  int pidfd;                 /* -1: the kernel has none */
  int output[2], channel[2]; /* ends of pipes: ours, the child's; -1: closed */
  bool ended;                /* it is dead, and not reaped yet unless somebody else did */
  fl_stopwatch watch;        /* since it began */
  double heard;              /* when it last said something, by the watch; 0: never */
} child;

/* -------------------------------------------------------------------------------------------------- descriptors */

static void close_fd(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

/* Above the standard streams, which may be closed here, so that the child's can be put in their places. */
static bool lift(int *fd) {
  int lifted = *fd >= ABOVE_GIVEN ? *fd : fcntl(*fd, F_DUPFD_CLOEXEC, ABOVE_GIVEN);
  if (lifted != *fd)
    close_fd(fd);
  *fd = lifted;
  return lifted >= 0;
}

static bool make_pipe(int ends[2]) {
  if (pipe2(ends, O_CLOEXEC)) {
    ends[0] = ends[1] = -1;
    return false;
  }
  return lift(&ends[0]) && lift(&ends[1]) && !fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

static bool make_pipes(child *c) {
  return (!c->options->output || make_pipe(c->output)) && (!c->options->receive || make_pipe(c->channel));
}

static void close_all(child *c) {
  for (int i = 0; i < 2; i++) {
    close_fd(&c->output[i]);
    close_fd(&c->channel[i]);
  }
  close_fd(&c->pidfd);
}

/* -------------------------------------------------------------------------------------------------------- starting */

/* 1 and not 0: a limit of 0 does not stop a core file that is piped to a program, and 1 stops both. */
static void limit(pid_t pid, __rlimit_resource_t what, rlim_t most) {
  struct rlimit now;
  if (prlimit(pid, what, NULL, &now))
    return;
  if (now.rlim_max < most)
    most = now.rlim_max;
  prlimit(pid, what, &(struct rlimit){most, most}, NULL);
}

static void set_limits(pid_t pid, const fl_child_options *options) {
  limit(pid, RLIMIT_CORE, 1);
  if (options->max_file_size)
    limit(pid, RLIMIT_FSIZE, options->max_file_size);
  if (options->max_files)
    limit(pid, RLIMIT_NOFILE, options->max_files);
}

static void write_score(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd >= 0) {
    dprintf(fd, "%d", UNFORTUNATE);
    close(fd);
  }
}

static int set_actions(const child *c, posix_spawn_file_actions_t *actions) {
  int output = c->output[1], error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (int i = STDOUT_FILENO; i <= STDERR_FILENO && !error; i++)
    error = output >= 0 ? posix_spawn_file_actions_adddup2(actions, output, i)
                        : posix_spawn_file_actions_addopen(actions, i, "/dev/null", O_WRONLY, 0);
  if (!error && c->channel[1] >= 0)
    error = posix_spawn_file_actions_adddup2(actions, c->channel[1], FL_CHILD_CHANNEL);
  if (!error)
    error = posix_spawn_file_actions_addclosefrom_np(actions, FL_CHILD_CHANNEL + (c->channel[1] >= 0));
  return error;
}

static int set_attributes(posix_spawnattr_t *attributes) {
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  int error = posix_spawnattr_setsigdefault(attributes, &all);
  if (!error)
    error = posix_spawnattr_setsigmask(attributes, &none);
  if (!error)
    error = posix_spawnattr_setpgroup(attributes, 0);
  if (!error)
    error =
        posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  return error;
}

static int spawn_program(child *c) {
  const fl_child_options *options = c->options;
  char *const *environment = options->environment ? (char *const *)(uintptr_t)options->environment : environ;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  int error = posix_spawn_file_actions_init(&actions);
  if (error)
    return error;
  error = posix_spawnattr_init(&attributes);
  if (error)
    goto out;
  error = set_actions(c, &actions);
  if (!error)
    error = set_attributes(&attributes);
  if (!error)
    error = posix_spawn(&c->pid, options->argv[0], &actions, &attributes, (char *const *)(uintptr_t)options->argv,
                        environment);
  posix_spawnattr_destroy(&attributes);
out:
  posix_spawn_file_actions_destroy(&actions);
  if (!error)
    set_limits(c->pid, options);
  return error;
}

void fl_child_end_with_parent(void) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Never returns. */
static void run_function(const child *c, pid_t parent) {
  sigset_t none;
  for (int i = 1; i < NSIG; i++)
    signal(i, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  setpgid(0, 0);
  fl_child_end_with_parent();
  if (getppid() != parent) /* it ended before that took hold */
    _exit(EXIT_FAILURE);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC), output = c->output[1] >= 0 ? c->output[1] : null;
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0)
    _exit(EXIT_FAILURE);
  set_limits(0, c->options);
  _exit(c->options->run(c->options->user, c->channel[1]));
}

static int fork_function(child *c) {
  pid_t parent = getpid();
  c->pid = fork();
  if (!c->pid)
    run_function(c, parent);
  if (c->pid > 0)
    setpgid(c->pid, c->pid); /* whoever of the two is first */
  return c->pid < 0 ? errno : 0;
}

static fl_status start(child *c) {
  const fl_child_options *options = c->options;
  const char *what = options->argv ? options->argv[0] : "a child process";
  int error = make_pipes(c) ? options->argv ? spawn_program(c) : fork_function(c) : errno;
  if (error)
    return fl_error(error == ENOENT   ? FL_ENOENT
                    : error == ENOMEM ? FL_ENOMEM
                                      : FL_ESTATE,
                    "cannot start %s: %s", what, strerror(error));
  close_fd(&c->output[1]);
  close_fd(&c->channel[1]);
  write_score(c->pid);
#ifdef SYS_pidfd_open
  c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
#endif
  return FL_OK;
}

/* -------------------------------------------------------------------------------------------------------- watching */

static void keep_output(child *c, const char *bytes, size_t length) {
  const fl_child_options *options = c->options;
  uint64_t at = c->result->output;
  if (at + 1 < options->output_size) {
    size_t room = options->output_size - 1 - (size_t)at, kept = length < room ? length : room;
    memcpy(options->output + at, bytes, kept);
    options->output[at + kept] = 0;
  }
  c->result->output += length;
}

static void take(child *c, bool is_channel, const char *bytes, size_t length) {
  if (!is_channel) {
    keep_output(c, bytes, length);
    return;
  }
  c->options->receive(c->options->user, bytes, length);
  c->heard = c->watch.passed;
}

/* What lies in a pipe, or a good part of it. */
static void drain(child *c, int *fd, bool is_channel) {
  char bytes[READ_SIZE];
  for (int i = 0; i < READS_IN_A_ROW && *fd >= 0; i++) {
    ssize_t n = read(*fd, bytes, sizeof bytes);
    if (n > 0)
      take(c, is_channel, bytes, (size_t)n);
    else if (!n || (errno != EINTR && errno != EAGAIN))
      close_fd(fd);
    else if (errno == EAGAIN)
      return;
  }
}

/* The beginning of a file of /proc, "" if there is none. */
static void read_proc(const char *path, char *text, size_t size) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
  if (fd >= 0)
    close(fd);
  text[n > 0 ? n : 0] = 0;
}

/* Bytes that the process and its children have in memory, 0 if nobody says. */
static uint64_t memory_of(pid_t pid, int depth) {
  char path[64], text[512];
  uint64_t all, resident = 0;
  snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
  read_proc(path, text, sizeof text);
  if (sscanf(text, "%" SCNu64 " %" SCNu64, &all, &resident) != 2)
    return 0;
  resident *= (uint64_t)sysconf(_SC_PAGESIZE);
  if (depth == GENERATIONS)
    return resident;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
  read_proc(path, text, sizeof text);
  for (char *at = text, *end; *at; at = end) {
    long one = strtol(at, &end, 10);
    if (end == at)
      break;
    resident += *end ? memory_of((pid_t)one, depth + 1) : 0; /* else it may be cut short */
  }
  return resident;
}

static void set_end(child *c, fl_child_end end, int code, int number) {
  c->result->end = end;
  c->result->code = code;
  c->result->signal = (uint32_t)number;
}

/* Has it ended, or stopped itself? It stays a zombie, so that its number stays its own until the group was killed. */
static void look_at_child(child *c) {
  siginfo_t info = {0};
  int error;
  do
    error = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) ? errno : 0;
  while (error == EINTR);
  if (error) {
    c->ended = true;
    set_end(c, FL_CHILD_UNKNOWN, 0, 0);
  } else if (info.si_pid) {
    c->ended = info.si_code != CLD_STOPPED;
    if (info.si_code == CLD_STOPPED)
      set_end(c, FL_CHILD_HUNG, info.si_status, info.si_status);
    else if (info.si_code == CLD_EXITED)
      set_end(c, FL_CHILD_EXITED, info.si_status, 0);
    else
      set_end(c, FL_CHILD_KILLED, info.si_status, info.si_status);
  }
}

/* Milliseconds that are left, of the limit that comes first; -1: there is none. */
static int64_t time_left(const child *c) {
  const fl_child_options *options = c->options;
  double now = c->watch.passed, left = -1;
  if (options->timeout_ms)
    left = options->timeout_ms / 1e3 - now;
  if (options->silence_ms) {
    double quiet = c->heard + options->silence_ms / 1e3 - now;
    left = options->timeout_ms && left < quiet ? left : quiet;
  }
  if (!options->timeout_ms && !options->silence_ms)
    return -1;
  return left > 0 ? (int64_t)(left * 1e3) + 1 : 0;
}

static void wait_for_news(child *c, int64_t left) {
  struct pollfd fds[] = {{.fd = c->output[0], .events = POLLIN},
                         {.fd = c->channel[0], .events = POLLIN},
                         {.fd = c->pidfd, .events = POLLIN}};
  int64_t wait = left < 0 || left > SLICE_MS ? SLICE_MS : left;
  if (c->options->max_memory && wait > LOOK_MS)
    wait = LOOK_MS;
  if (c->pidfd < 0 && wait > TICK_MS)
    wait = TICK_MS;
  poll(fds, 3, (int)wait); /* interrupted: all is looked at anyway */
  fl_stopwatch_look(&c->watch, (double)wait / 1e3);
}

static void look_at_memory(child *c) {
  uint64_t used = c->options->max_memory ? memory_of(c->pid, 0) : 0;
  if (used > c->result->peak_memory)
    c->result->peak_memory = used;
  if (used > c->options->max_memory)
    set_end(c, FL_CHILD_MEMORY, 0, 0);
}

static void watch(child *c) {
  int64_t left;
  while (!c->result->end) {
    left = time_left(c);
    if (left)
      wait_for_news(c, left);
    look_at_child(c); /* before reading: what it said before it ended is there by then */
    drain(c, &c->output[0], false);
    drain(c, &c->channel[0], true);
    if (!c->result->end)
      look_at_memory(c);
    if (!c->result->end && !time_left(c))
      set_end(c, FL_CHILD_HUNG, 0, 0);
  }
}

/* ---------------------------------------------------------------------------------------------------------- ending */

static void reap(child *c) {
  siginfo_t info = {0};
  fl_stopwatch watch = fl_stopwatch_start();
  double passed;
  do {
    struct pollfd pidfd = {.fd = c->pidfd, .events = POLLIN};
    if (!c->ended)
      poll(&pidfd, 1, c->pidfd < 0 ? TICK_MS : REAP_MS);
    info.si_pid = 0;
    if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG) && errno != EINTR)
      return;
    passed = fl_stopwatch_look(&watch, (c->pidfd < 0 ? TICK_MS : REAP_MS) / 1e3);
  } while (!info.si_pid && passed < REAP_MS / 1e3);
}

/* Of one whose status somebody else took the number may be another's by now; but not the group's, while it has members.
 */
static void kill_all(const child *c) {
  kill(-c->pid, SIGKILL);
  if (!c->ended)
    kill(c->pid, SIGKILL);
}

static void add_signal(char *words, size_t size, const char *how, int number) {
  const char *name = sigabbrev_np(number), *meaning = sigdescr_np(number);
  if (name && meaning)
    snprintf(words, size, "%s SIG%s (%s)", how, name, meaning);
  else
    snprintf(words, size, "%s signal %d", how, number);
}

static void put_into_words(const child *c) {
  const fl_child_options *options = c->options;
  fl_child_result *result = c->result;
  char *words = result->words;
  size_t size = sizeof result->words;
  bool silent = options->silence_ms && c->heard > 0;
  switch (result->end) {
  case FL_CHILD_EXITED:
    snprintf(words, size, "exited with status %d", (int)result->code);
    break;
  case FL_CHILD_KILLED:
    add_signal(words, size, "killed by", (int)result->signal);
    break;
  case FL_CHILD_HUNG:
    if (result->signal)
      add_signal(words, size, "stopped itself with", (int)result->signal);
    else
      snprintf(words, size, "did not %s within %g s", silent ? "go on" : "end",
               (options->silence_ms && (silent || !options->timeout_ms) ? options->silence_ms : options->timeout_ms) /
                   1e3);
    break;
  case FL_CHILD_MEMORY:
    snprintf(words, size, "used more than %" PRIu64 " MiB of memory", options->max_memory >> 20);
    break;
  default:
    snprintf(words, size,
             "ended, and its exit status went to somebody else (SIGCHLD is ignored, or all children are "
             "waited for)");
  }
}

static fl_status check(const fl_child_options *options) {
  if (!options->argv == !options->run)
    return fl_error(FL_EINVAL, "fl_child_run: the options have %s, expected either argv or run",
                    options->argv ? "both argv and run" : "neither argv nor run");
  if (options->argv && !options->argv[0])
    return fl_error(FL_EINVAL, "fl_child_run: argv is empty, expected the path of a program");
  if (options->output && !options->output_size)
    return fl_error(FL_EINVAL, "fl_child_run: output_size is 0, expected the bytes that output has room for");
  return FL_OK;
}

fl_status fl_child_run(const fl_child_options *given, fl_child_result *result) {
  fl_child_options options;
  fl_child_result own = {.size = sizeof own};
  child c = {.options = &options, .result = &own, .pidfd = -1, .output = {-1, -1}, .channel = {-1, -1}};
  if (fl_sized_check(given, offsetof(fl_child_options, max_memory), "fl_child_run: the options'", "fl_child_options") ||
      fl_sized_check(result, offsetof(fl_child_result, seconds), "fl_child_run: the result's", "fl_child_result"))
    return FL_EINVAL;
  fl_sized_take(&options, sizeof options, given);
  fl_status status = check(&options);
  if (status)
    return status;
  if (options.output)
    options.output[0] = 0;
  c.watch = fl_stopwatch_start();
  status = start(&c);
  if (!status) {
    watch(&c);
    kill_all(&c);
    reap(&c);
    own.seconds = fl_stopwatch_look(&c.watch, 0);
    put_into_words(&c);
    fl_sized_give(result, &own, sizeof own);
  }
  close_all(&c);
  return status;
}

/* One that is killed may leave others. */
void fl_end_children(void) {
  char path[64];
  int pid;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  for (int round = 0; round < 200; round++) {
    FILE *children = fopen(path, "re");
    while (children && fscanf(children, "%d", &pid) == 1)
      kill(pid, SIGKILL);
    if (children)
      fclose(children);
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
      continue;
    if (pid < 0 && errno == ECHILD)
      return;
    usleep(1000);
  }
}
