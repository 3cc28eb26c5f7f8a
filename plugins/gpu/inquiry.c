/*
 * Whether a device suits the kernels, found out without initialising the driver in this process: a child process asks,
 * since neither CUDA nor HIP survives fork. The host does the same when it looks for platforms.
 */
#include "plugins/gpu/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

enum { TIMEOUT_MS = 20000 };

/* What the child says. */
typedef struct answer {
  bool suitable;
  char reason[GPU_WORDS];
} answer;

/* The first reason is that of device 0, which people look at first. */
static void judge(answer *a) {
  const char *reason;
  int version = 0;
  *a = (answer){0};
  if (gpu_open(&reason)) {
    snprintf(a->reason, sizeof a->reason, "%s", reason);
    return;
  }
  if (gpu.call.version(&version))
    version = 0;
  for (int i = 0; i < gpu_count() && !a->suitable; i++) {
    char words[GPU_WORDS] = "";
    a->suitable = gpu.suits(&gpu_device_at(i)->properties, version, words, sizeof words);
    if (!i)
      memcpy(a->reason, words, sizeof words);
  }
}

/* Drivers print, and the engine's handlers are not for a crash in here. */
static void answer_in_child(int pipe_end) {
  answer a;
  sigset_t none;
  int null = open("/dev/null", O_RDWR);
  for (int i = 1; i < NSIG; i++)
    signal(i, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (null >= 0) {
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
  }
  alarm(TIMEOUT_MS / 1000 + 1); /* should the parent be gone */
  judge(&a);
  _exit(write(pipe_end, &a, sizeof a) != sizeof a); /* less than PIPE_BUF: as a whole */
}

static void read_answer(pid_t child, int pipe_end, answer *a) {
  struct pollfd wanted = {.fd = pipe_end, .events = POLLIN};
  int status = 0, ready;
  do
    ready = poll(&wanted, 1, TIMEOUT_MS);
  while (ready < 0 && errno == EINTR);
  bool complete = ready > 0 && read(pipe_end, a, sizeof *a) == sizeof *a;
  kill(child, SIGKILL);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  if (complete)
    return;
  *a = (answer){0};
  if (ready > 0)
    snprintf(a->reason, sizeof a->reason, "the %s driver ended the process that asked it (%s)", gpu.title,
             WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no signal");
  else
    snprintf(a->reason, sizeof a->reason, "the %s driver did not answer within %d s", gpu.title, TIMEOUT_MS / 1000);
}

static void ask_child(answer *a) {
  int ends[2];
  *a = (answer){0};
  if (pipe2(ends, O_CLOEXEC)) {
    snprintf(a->reason, sizeof a->reason, "the driver was not asked: pipe: %s", strerror(errno));
    return;
  }
  pid_t child = fork();
  if (!child)
    answer_in_child(ends[1]);
  close(ends[1]);
  if (child < 0)
    snprintf(a->reason, sizeof a->reason, "the driver was not asked: fork: %s", strerror(errno));
  else
    read_answer(child, ends[0], a);
  close(ends[0]);
}

bool gpu_has_suitable_device(const char **reason) {
  static answer kept;
  static bool asked, in_process;
  int ordinal;
  if (!gpu_present(reason))
    return false;
  pthread_mutex_lock(&gpu_locks[GPU_LOCK_INQUIRY]);
  bool in_use = gpu_is_open() || gpu.call.in_use(&ordinal);
  if (!asked || (in_use && !in_process)) {
    if (in_use)
      judge(&kept);
    else
      ask_child(&kept);
    asked = true;
    in_process = in_use;
  }
  bool suitable = kept.suitable;
  *reason = kept.reason;
  pthread_mutex_unlock(&gpu_locks[GPU_LOCK_INQUIRY]);
  return suitable;
}
