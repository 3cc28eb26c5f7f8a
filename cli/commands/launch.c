/* flhost launch: starts the ranks of a program on this machine, and ends them together. */
#include "cli/cli.h"
#include "cli/communicators.h"
#include "cli/ending.h"
#include "cli/trials/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOT_FOUND = 127, MOST = 4096, GRACE_S = 5 };

typedef struct launch {
  pid_t *children; /* by rank; 0: it has ended */
  int32_t n, running;
  int status; /* of the first that failed */
} launch;

/* The signal that asked this process to end; the ranks get it. */
static volatile sig_atomic_t asked;

static void ask(int signal_number) {
  asked = signal_number;
}

/* That this process may use. */
static int32_t count_processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

/* A rank finds what it is in its environment. Where nobody said how many threads a kernel has, the ranks do not take
 * the processors from each other. */
static bool set_environment(int32_t rank, int32_t n, const char *id) {
  char number[16], all[16], threads[16];
  int32_t processors = count_processors();
  snprintf(number, sizeof number, "%d", rank);
  snprintf(all, sizeof all, "%d", n);
  snprintf(threads, sizeof threads, "%d", processors > n ? processors / n : 1);
  return !setenv("FLHOST_RANK", number, 1) && !setenv("FLHOST_LOCAL_RANK", number, 1) &&
         !setenv("FLHOST_RANKS", all, 1) && !setenv("FLHOST_GROUP_ID", id, 1) && !setenv("OMP_NUM_THREADS", threads, 0);
}

/* What is typed at a terminal is the command's; what is piped to it is rank 0's. */
static void set_input(int32_t rank) {
  if ((rank || isatty(STDIN_FILENO)) && !freopen("/dev/null", "r", stdin))
    close(STDIN_FILENO);
}

/* Does not come back. Why it could not begin goes through the pipe, which ends when it could. A rank has a process
 * group of its own, so that it is ended with whatever it started. */
static void be_rank(int32_t rank, int32_t n, const char *id, char **program, int pipe_end, pid_t launcher) {
  cli_ending_is_watched();
  signal(SIGPIPE, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != launcher)
    _exit(NOT_FOUND);
  setpgid(0, 0);
  set_input(rank);
  errno = ENOMEM;
  if (set_environment(rank, n, id))
    execvp(program[0], program);
  int why = errno;
  if (write(pipe_end, &why, sizeof why) < 0)
    _exit(NOT_FOUND);
  _exit(NOT_FOUND);
}

/* false, with a message: it could not be started. */
static bool start(launch *l, int32_t rank, const char *id, char **program) {
  int ends[2], why = 0;
  pid_t self = getpid();
  if (pipe2(ends, O_CLOEXEC)) {
    cli_error("rank %d cannot be started: %s", rank, strerror(errno));
    return false;
  }
  pid_t child = fork();
  if (!child)
    be_rank(rank, l->n, id, program, ends[1], self);
  why = child < 0 ? errno : 0;
  close(ends[1]);
  if (child > 0) {
    setpgid(child, child); /* whoever comes first */
    l->children[rank] = child;
    l->running++;
    if (read(ends[0], &why, sizeof why) != sizeof why)
      why = 0;
  }
  close(ends[0]);
  if (why)
    cli_error("'%s' cannot be started: %s", program[0], strerror(why));
  return !why;
}

static void signal_all(const launch *l, int signal_number) {
  for (int32_t i = 0; i < l->n; i++)
    if (l->children[i])
      kill(-l->children[i], signal_number);
}

/* How a rank ended, and what of. Only the first that fails is told of: the others are ended, or fail since it did. */
static bool note_end(launch *l, pid_t child, int status) {
  int32_t rank = 0;
  while (rank < l->n && l->children[rank] != child)
    rank++;
  if (rank == l->n)
    return false;
  l->children[rank] = 0;
  l->running--;
  kill(-child, SIGTERM); /* what it started and left behind */
  bool by_signal = WIFSIGNALED(status);
  int code = by_signal ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (!code || l->status)
    return false;
  l->status = code;
  if (asked)
    return false;
  if (by_signal)
    cli_error("rank %d (process %d) was ended by signal %d (%s)%s", rank, (int)child, WTERMSIG(status),
              strsignal(WTERMSIG(status)), l->running ? "; the others are ended" : "");
  else
    cli_error("rank %d (process %d) ended with exit status %d%s", rank, (int)child, code,
              l->running ? "; the others are ended" : "");
  return true;
}

/* Until all have ended. One that fails, or a signal, ends the others: by SIGTERM, and by SIGKILL when that does not
 * help.
 */
static void wait_for_all(launch *l, bool failed) {
  double told = failed ? seconds_now() : 0;
  if (failed)
    signal_all(l, SIGTERM);
  while (l->running) {
    int status;
    pid_t child = waitpid(-1, &status, WNOHANG);
    if (child > 0 && note_end(l, child, status) && !told) {
      told = seconds_now();
      signal_all(l, SIGTERM);
    }
    if (asked && !told) {
      told = seconds_now();
      l->status = 128 + asked;
      signal_all(l, asked);
    }
    if (told && seconds_now() - told > GRACE_S) {
      signal_all(l, SIGKILL);
      told = seconds_now();
    }
    if (child <= 0)
      nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
}

static int run_ranks(int32_t n, const char *id, char **program) {
  launch l = {.children = calloc((size_t)n, sizeof(pid_t)), .n = n};
  const struct sigaction action = {.sa_handler = ask};
  const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  bool started = l.children != NULL;
  if (!started)
    return cli_no_memory();
  for (int32_t i = 0; i < n && started && !asked; i++)
    started = start(&l, i, id, program);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
    sigaction(signals[i], &action, NULL);
  if (!started)
    l.status = NOT_FOUND;
  wait_for_all(&l, !started);
  free(l.children);
  return l.status;
}

/* What all ranks get. */
static int make_id(const char *device, char *text, size_t size) {
  int32_t device_type;
  int exit_status;
  fl_group_id id;
  fl_host *host = cli_open_host(0, &exit_status);
  if (!host)
    return exit_status;
  if (!cli_device_type(host, device, &device_type)) {
    exit_status = EXIT_USAGE;
  } else {
    fl_status status = fl_group_make_id(host, device_type, &id);
    if (!status)
      status = fl_group_id_to_text(&id, text, size);
    exit_status = status ? cli_fail(status) : EXIT_OK;
  }
  fl_host_destroy(host);
  return exit_status;
}

/* -n N, as mpirun has it, is --ranks N. */
static void take_short_option(int argc, char **argv) {
  static char ranks[] = "--ranks";
  for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (!strcmp(argv[i], "-n"))
      argv[i] = ranks;
}

bool cli_read_ranks(const char *text, int32_t *n) {
  double amount;
  if (!text)
    return true;
  if (!cli_amount("ranks", text, MOST, &amount))
    return false;
  *n = (int32_t)amount;
  if (*n >= 1 && amount == *n)
    return true;
  cli_error("--ranks: '%s' is not a whole number from 1 to %d", text, MOST);
  return false;
}

int command_launch(int argc, char **argv) {
  const char *ranks = NULL, *device = "cpu";
  const cli_option options[] = {
      {"ranks", "N", "how many ranks to start (default: one a processor); -n N is the same", NULL, &ranks},
      CLI_DEVICE(&device),
      {NULL, NULL, NULL, NULL, NULL}};
  const cli_syntax syntax = {
      "-- PROGRAM [WORD...]", 1, -1,
      "Starts ranks of a program on this machine, which come together by fl_group_create_launched: each finds its "
      "number "
      "in FLHOST_RANK, how many there are in FLHOST_RANKS, and the group's id in FLHOST_GROUP_ID. Where "
      "OMP_NUM_THREADS is "
      "not set the ranks share the processors. When one fails, or the command is told to end, all are ended.\n"
      "Exit status: that of the first rank that failed, 128 and the signal's number if a signal ended it; 127: the "
      "program "
      "cannot be started; 2: the ranks cannot come together.",
      options};
  char *id = malloc(FL_GROUP_ID_TEXT);
  int32_t n = count_processors();
  int exit_status = EXIT_USAGE;
  take_short_option(argc, argv);
  int first = id ? cli_parse(&syntax, argc, argv, &exit_status) : -1;
  if (!id)
    exit_status = cli_no_memory();
  else if (first >= 0 && cli_read_ranks(ranks, &n) && !(exit_status = make_id(device, id, FL_GROUP_ID_TEXT)))
    exit_status = run_ranks(n, id, argv + first);
  free(id);
  return exit_status;
}

/* ------------------------------------------------------------------------------------------------ of other commands */

/* The words of the command without --ranks; how many. */
static int copy_words(int argc, char **argv, char **words) {
  static const char option[] = "--ranks";
  int n = 0;
  for (int i = 0; i < argc; i++)
    if (!strcmp(argv[i], option))
      i++;
    else if (strncmp(argv[i], "--ranks=", sizeof option) != 0)
      words[n++] = argv[i];
  return n;
}

int cli_start_ranks(const char *ranks, const char *device, int first, int argc, char **argv) {
  enum { BEFORE = 7 }; /* launch --ranks N --device TYPE -- PROGRAM */
  static char command[] = "launch", option[] = "--ranks", place[] = "--device", end[] = "--";
  char own[4096], *number = strdup(ranks), *type = strdup(device ? device : "cpu");
  char **words = calloc((size_t)argc + BEFORE + 1, sizeof *words);
  ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
  int exit_status = EXIT_USAGE;
  if (!number || !type || !words) {
    exit_status = cli_no_memory();
  } else if (length < 0) {
    cli_error("/proc/self/exe cannot be read: %s", strerror(errno));
  } else if (cli_ranks_fit(argc - first, argv + first)) {
    own[length] = 0;
    type[strcspn(type, ":")] = 0;
    char *const before[BEFORE] = {command, option, number, place, type, end, own};
    memcpy(words, before, sizeof before);
    exit_status = command_launch(BEFORE + copy_words(argc, argv, words + BEFORE), words);
  }
  free(words);
  free(number);
  free(type);
  return exit_status;
}
