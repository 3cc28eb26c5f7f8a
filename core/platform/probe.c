/* Driver probes: see probe.h. */
#include "core/platform/probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------------------ the child */

/* In the vendor's own directory. */
static void *open_in_directory(const fl_driver *driver, const char *name) {
  char path[PATH_MAX];
  const char *directory = NULL;
  for (const char *const *at = driver->directories; *at && !(directory && *directory); at++)
    directory = **at == '$' ? secure_getenv(*at + 1) : *at;
  if (!directory || !*directory || (size_t)snprintf(path, sizeof path, "%s/lib/%s", directory, name) >= sizeof path)
    return NULL;
  return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

/* The first library that opens. When none does, the words are about the first that is there but broken, else about the
 * first of the list. */
static void open_driver(const fl_driver *driver, fl_probe *probe) {
  bool told = false;
  for (const char *const *libraries = driver->libraries; *libraries; libraries++) {
    void *library = dlopen(*libraries, RTLD_LAZY | RTLD_LOCAL);
    char words[FL_PROBE_WORDS] = "dlopen failed"; /* dlerror's are good until the next dlopen */
    const char *said = library ? NULL : dlerror();
    if (said)
      snprintf(words, sizeof words, "%s", said);
    if (!library)
      library = open_in_directory(driver, *libraries);
    if (library) {
      probe->opened = true;
      probe->words[0] = 0;
      probe->driver = *libraries; /* in the parent at the same address */
      return;
    }
    bool absent = !strncmp(words, *libraries, strlen(*libraries)) && strstr(words, "No such file");
    if (!probe->words[0] || (!absent && !told))
      memcpy(probe->words, words, sizeof words);
    told |= !absent;
  }
}

/* What is asked in the child; the answer is the size of `answer_size` and lies in memory that both share. */
typedef struct question {
  const char *name; /* of who is asked */
  void (*ask)(const struct question *q, void *answer);
  size_t answer_size;
  const fl_driver *driver;
  const fl_platform *platform;
  void *self;
} question;

static void ask_driver(const question *q, void *answer) {
  open_driver(q->driver, answer);
}

static void ask_platform(const question *q, void *answer) {
  fl_list_devices(q->platform, q->self, answer);
}

/* Never returns. Drivers print; the engine's handlers are not for a crash in here. */
static void child(const question *q, int timeout_ms, int done, void *answer) {
  const struct rlimit no_core = {0, 0};
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
  setrlimit(RLIMIT_CORE, &no_core);
  alarm((unsigned)timeout_ms / 1000 + 2); /* should the parent be gone */
  q->ask(q, answer);
  _exit(write(done, "", 1) != 1);
}

/* ----------------------------------------------------------------------------------------------------- the parent */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* True: the pipe has something to say, or has ended. */
static bool wait_for_answer(int done, int timeout_ms) {
  int64_t end = now_ms() + timeout_ms;
  for (;;) {
    struct pollfd pipe_end = {.fd = done, .events = POLLIN};
    int64_t left = end - now_ms();
    int n = poll(&pipe_end, 1, left > 0 ? (int)left : 0);
    if (n >= 0 || errno != EINTR)
      return n > 0;
  }
}

/* Did the child answer? If not, `words` say why. */
static bool take_answer(pid_t pid, int done, const char *name, int timeout_ms, char *words, size_t size) {
  int status = 0;
  ssize_t n = 0;
  char byte;
  bool answered = wait_for_answer(done, timeout_ms);
  if (answered)
    do
      n = read(done, &byte, 1);
    while (n < 0 && errno == EINTR);
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    continue;
  if (n == 1)
    return true;
  if (!answered)
    snprintf(words, size, "%s did not answer within %d s", name, (timeout_ms + 999) / 1000);
  else
    snprintf(words, size, "%s crashed or ended the process that asked it (%s)", name,
             WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no signal");
  return false;
}

/* Fills `answer`; if that does not come about, it is left alone and `words` say why. */
static bool ask_in_child(const question *q, int timeout_ms, void *answer, char *words, size_t size) {
  int ends[2];
  bool answered = false;
  void *shared = mmap(NULL, q->answer_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    snprintf(words, size, "not asked: mmap: %s", strerror(errno));
    return false;
  }
  if (pipe2(ends, O_CLOEXEC)) {
    snprintf(words, size, "not asked: pipe: %s", strerror(errno));
    goto out;
  }
  pid_t pid = fork();
  if (!pid)
    child(q, timeout_ms, ends[1], shared);
  close(ends[1]);
  if (pid < 0)
    snprintf(words, size, "not asked: fork: %s", strerror(errno));
  else
    answered = take_answer(pid, ends[0], q->name, timeout_ms, words, size);
  if (answered)
    memcpy(answer, shared, q->answer_size);
  close(ends[0]);
out:
  munmap(shared, q->answer_size);
  return answered;
}

void fl_probe_driver(const fl_driver *driver, int timeout_ms, fl_probe *probe) {
  const question q = {.name = driver->libraries[0], .ask = ask_driver, .answer_size = sizeof *probe, .driver = driver};
  *probe = (fl_probe){0};
  ask_in_child(&q, timeout_ms, probe, probe->words, sizeof probe->words);
}

/* ----------------------------------------------------------------------------------------------------- the devices */

/* Strings of a plugin's may fill their places without an end. */
static void end_strings(fl_device_properties *properties) {
  properties->name[sizeof properties->name - 1] = 0;
  properties->arch[sizeof properties->arch - 1] = 0;
  properties->driver[sizeof properties->driver - 1] = 0;
}

/* Without a count there is at least the first, if it answers. */
void fl_list_devices(const fl_platform *platform, void *self, fl_device_list *list) {
  memset(list, 0, sizeof *list);
  if (platform->driver_version)
    platform->driver_version(self, list->version, sizeof list->version);
  list->version[sizeof list->version - 1] = 0;
  list->count = platform->device_count ? platform->device_count(self) : -1;
  const char *failed = platform->device_count && list->count < 0 && platform->error ? platform->error(self) : NULL;
  snprintf(list->words, sizeof list->words, "%s", failed ? failed : "");
  int32_t n = platform->device_count ? list->count : FL_DEVICES_MAX;
  for (int32_t i = 0; platform->properties && i < n && i < FL_DEVICES_MAX; i++) {
    list->devices[i].size = sizeof list->devices[i];
    if (platform->properties(self, i, &list->devices[i])) {
      const char *words = platform->device_count ? platform->error(self) : NULL;
      if (words)
        snprintf(list->words, sizeof list->words, "device %d: %s", i, words);
      return;
    }
    end_strings(&list->devices[i]);
    list->n++;
  }
}

void fl_probe_devices(const fl_platform *platform, void *self, const char *name, int timeout_ms, fl_device_list *list) {
  const question q = {
      .name = name, .ask = ask_platform, .answer_size = sizeof *list, .platform = platform, .self = self};
  memset(list, 0, sizeof *list);
  list->count = -1;
  bool answered = ask_in_child(&q, timeout_ms, list, list->words, sizeof list->words);
  if (answered && !list->n && (list->count < 0 || (list->count && platform->properties)))
    fl_list_devices(platform, self, list);
}
