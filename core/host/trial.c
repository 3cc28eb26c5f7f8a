/*
 * Trying a plugin in a process of its own: fl_probe_plugin. The process is a copy of this one that tells step by step
 * how it gets on, so that it is known where it ended. It has a host without plugins, which judges none. Between it and
 * this process stands another, the guard: a plugin that kills its parent kills that, and what a plugin leaves running
 * becomes the guard's, which ends it.
 */
#include "core/host/hosts.h"
#include "core/plugins.h"
#include "core/registry.h"
#include "core/support.h"

#include <errno.h>
#include <fcntl.h>
#include <flhost/testing.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUT_OF_THE_WAY = 500, ALL_STEPS = 6, SAID = 160 };

/* Seen from the process that watches. */
typedef struct trial {
  const char *module;
  fl_probe_fn follow;
  void *user;
  fl_probed *result;
  char phase[64], line[512];
  size_t length;
  bool entered;         /* the plugin's code has run, or begun to */
  bool ends;            /* it got as far as its own end */
  fl_child_result died; /* by the guard's word; `end` 0: it said none */
} trial;

/* ------------------------------------------------------------------------------------------------------- the trial */

static void tell(void *user, const char *word, const char *text) {
  const int *channel = user;
  char line[480];
  int length = snprintf(line, sizeof line, "%s %s", word, text);
  length = length < (int)sizeof line ? length : (int)sizeof line - 1;
  for (int i = 0; i < length; i++)
    if (line[i] == '\n')
      line[i] = ' ';
  line[length] = '\n';
  if (write(*channel, line, (size_t)length + 1) < 0)
    _exit(EXIT_FAILURE); /* nobody listens any more, or the plugin closed what is not its own */
}

static void enters(void *user, const char *phase) {
  tell(user, "in", phase);
}

static void changed(void *user, const char *what) {
  tell(user, "changed", what);
}

static void say_nothing(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* Availability is asked as an engine would: of everything that is registered. */
static void try_plugin(fl_host *host, const char *module, int *channel) {
  if (fl_load_plugin(host, module)) {
    tell(channel, "refused", fl_error_message());
    return;
  }
  enters(channel, "is_available");
  fl_snapshot_release(fl_registry_snapshot(host));
}

/* Ends by exit(), so that the plugin's destructors run. */
static void run_trial(const trial *t, int channel) {
  const char *environment[] = {"VLLM_FL_PROBE=off", NULL};
  const fl_host_options options = {
      .size = sizeof options, .flags = FL_HOST_NO_PLUGINS, .environment = environment, .log = say_nothing};
  static fl_traces before;
  fl_host *host;
  const fl_load_watch watch = {enters, changed, &channel};
  setenv("FLHOST_JUDGING", "1", 1);   /* for a command that it may run */
  prctl(PR_SET_CHILD_SUBREAPER, 1UL); /* so that processes which it leaves behind are seen */
  if (fl_host_create(&options, &host)) {
    tell(&channel, "refused", fl_error_message());
    _exit(EXIT_FAILURE);
  }
  host->load_watch = &watch;
  fl_traces_read(&before);
  try_plugin(host, t->module, &channel);
  fl_traces_compare(&before, changed, &channel);
  host->load_watch = NULL;
  fl_host_destroy(host);
  tell(&channel, "in", "its destructors");
  tell(&channel, "ends", "");
  exit(EXIT_SUCCESS);
}

/* -------------------------------------------------------------------------------------------------------- the guard */

/* Tells how the trial ended. */
static int guard(void *user, int given) {
  char words[32];
  int status = 0, channel = fcntl(given, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
  if (channel < 0)
    channel = given;
  prctl(PR_SET_CHILD_SUBREAPER, 1UL);
  pid_t self = getpid(), pid = fork();
  if (!pid) {
    if (channel != given)
      close(given);
    fl_child_end_with_parent();
    if (getppid() == self)
      run_trial(user, channel);
    _exit(EXIT_FAILURE);
  }
  while (pid > 0 && waitpid(pid, &status, WUNTRACED) < 0 && errno == EINTR)
    continue;
  if (pid < 0)
    snprintf(words, sizeof words, "%d %d", FL_CHILD_UNKNOWN, 0);
  else if (WIFEXITED(status))
    snprintf(words, sizeof words, "%d %d", FL_CHILD_EXITED, WEXITSTATUS(status));
  else if (WIFSTOPPED(status))
    snprintf(words, sizeof words, "%d %d", FL_CHILD_HUNG, WSTOPSIG(status));
  else
    snprintf(words, sizeof words, "%d %d", FL_CHILD_KILLED, WTERMSIG(status));
  fl_end_children();
  tell(&channel, "died", words);
  return EXIT_SUCCESS;
}

/* ------------------------------------------------------------------------------------------------------- the watch */

static void add_changed(fl_probed *result, const char *what) {
  size_t length = strlen(result->changed);
  if (!strstr(result->changed, what))
    snprintf(result->changed + length, sizeof result->changed - length, "%s%s", length ? ", " : "", what);
}

static void take_line(trial *t, const char *line) {
  int end, number;
  if (!strncmp(line, "in ", 3)) {
    snprintf(t->phase, sizeof t->phase, "%s", line + 3);
    t->entered = true;
    if (t->follow)
      t->follow(t->user, t->phase);
  } else if (!strncmp(line, "changed ", 8)) {
    add_changed(t->result, line + 8);
  } else if (!strncmp(line, "refused ", 8)) {
    t->result->refused = true;
    snprintf(t->result->words, sizeof t->result->words, "%s", line + 8);
  } else if (!strncmp(line, "ends ", 5)) {
    t->ends = true;
  } else if (sscanf(line, "died %d %d", &end, &number) == 2) {
    t->died = (fl_child_result){.end = (fl_child_end)end, .code = number};
    t->died.signal = end == FL_CHILD_EXITED ? 0 : (uint32_t)number;
  }
}

static void receive(void *user, const void *data, size_t length) {
  trial *t = user;
  const char *bytes = data;
  for (size_t i = 0; i < length; i++) {
    bool is_end = bytes[i] == '\n';
    if (!is_end && t->length + 1 < sizeof t->line)
      t->line[t->length++] = bytes[i];
    if (!is_end)
      continue;
    t->line[t->length] = 0;
    t->length = 0;
    take_line(t, t->line);
  }
}

/* "crashed in register_builtins (SIGSEGV)" */
static void say_harm(const trial *t, const fl_child_result *ended) {
  fl_probed *result = t->result;
  size_t size = sizeof result->words;
  char *words = result->words;
  const char *name = ended->signal ? sigabbrev_np((int)ended->signal) : NULL;
  switch (ended->end) {
  case FL_CHILD_KILLED:
    snprintf(words, size, "crashed in %s (SIG%s)", t->phase, name ? name : "?");
    break;
  case FL_CHILD_HUNG:
    if (ended->signal)
      snprintf(words, size, "stopped the process in %s (SIG%s)", t->phase, name ? name : "?");
    else
      snprintf(words, size, "hung in %s (no end within %g s)", t->phase, fl_probe_step_ms() / 1e3);
    break;
  case FL_CHILD_MEMORY:
    snprintf(words, size, "%s in %s", ended->words, t->phase);
    break;
  case FL_CHILD_EXITED:
    snprintf(words, size, "ended the process in %s (exit status %d)", t->phase, (int)ended->code);
    break;
  default:
    snprintf(words, size, "ended the process in %s", t->phase);
  }
}

/* What it printed last, or first, says more than a signal: an assertion, a library's complaint. */
static void add_output(fl_probed *result, const char *output) {
  size_t length = strlen(result->words);
  int line = (int)strcspn(output, "\n");
  if (!line)
    return;
  snprintf(result->words + length, sizeof result->words - length, "; it said: %.*s", line > SAID ? SAID : line, output);
}

static bool did_harm(const trial *t, const fl_child_result *ended) {
  if (!t->ends)
    return true;
  return !(ended->end == FL_CHILD_UNKNOWN || (ended->end == FL_CHILD_EXITED && !ended->code));
}

/* A limit that no plugin needs, and that leaves the machine alive. */
static uint64_t memory_limit(void) {
  const char *text = secure_getenv("FLHOST_PROBE_MEMORY_MB");
  long given = text ? strtol(text, NULL, 10) : 0;
  uint64_t machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE), most = UINT64_C(4) << 30;
  if (given > 0)
    return (uint64_t)given << 20;
  return machine / 2 < most ? machine / 2 : most;
}

fl_status fl_probe_plugin(const char *module, fl_probe_fn follow, void *user, fl_probed *result) {
  fl_probed own = {.size = sizeof own};
  fl_child_result ended = {.size = sizeof ended};
  char output[SAID * 2];
  trial t = {.module = module, .follow = follow, .user = user, .result = &own, .phase = "the process's start"};
  const fl_child_options options = {.size = sizeof options,
                                    .run = guard,
                                    .receive = receive,
                                    .user = &t,
                                    .silence_ms = fl_probe_step_ms(),
                                    .timeout_ms = fl_probe_step_ms() * ALL_STEPS,
                                    .max_memory = memory_limit(),
                                    .max_file_size = UINT64_C(1) << 30,
                                    .output = output,
                                    .output_size = sizeof output};
  if (fl_sized_check(result, offsetof(fl_probed, words), "fl_probe_plugin: the result's", "fl_probed"))
    return FL_EINVAL;
  fflush(NULL); /* else the copy would write it, too */
  fl_status status = fl_child_run(&options, &ended);
  if (status)
    return status;
  const fl_child_result *end = t.died.end && ended.end != FL_CHILD_HUNG ? &t.died : &ended;
  own.failed = did_harm(&t, end);
  own.seconds = ended.seconds;
  if (own.failed && !t.entered) /* too little of something, maybe; no fault of the plugin's */
    return fl_error(FL_ESTATE, "the process that was to try '%s' ended before it came to that: %s", module,
                    own.refused    ? own.words
                    : *ended.words ? ended.words
                                   : "nobody knows why");
  if (own.failed) {
    own.refused = false;
    say_harm(&t, end);
    add_output(&own, output);
  } else if (ended.output) {
    add_changed(&own, "standard output or error (it wrote there)");
  }
  fl_sized_give(result, &own, sizeof own);
  return FL_OK;
}
