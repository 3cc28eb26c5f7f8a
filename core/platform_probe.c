/* Driver probes: see platform_probe.h. The prototypes are the vendors' published ones. */
#include "core/platform_probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Looks a function up; false, with words, when the library lacks it. */
static bool find(void *library, const char *symbol, void *function, char *words, size_t size) {
  void *address = dlsym(library, symbol);
  if (!address)
    snprintf(words, size, "it lacks %s", symbol);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

static int failed(char *words, size_t size, const char *function, int code, const char *name) {
  snprintf(words, size, "%s returned %d%s%s", function, code, name ? ", " : "", name ? name : "");
  return -1;
}

int fl_count_cuda(void *library, char *words, size_t size) {
  int (*init)(unsigned), (*get_count)(int *), (*error_name)(int, const char **);
  const char *name = NULL;
  int count = 0;
  if (!find(library, "cuInit", &init, words, size) || !find(library, "cuDeviceGetCount", &get_count, words, size) ||
      !find(library, "cuGetErrorName", &error_name, words, size))
    return -1;
  int code = init(0);
  if (code == 100) /* CUDA_ERROR_NO_DEVICE */
    return 0;
  const char *function = "cuInit";
  if (!code) {
    function = "cuDeviceGetCount";
    code = get_count(&count);
  }
  if (!code)
    return count;
  error_name(code, &name);
  return failed(words, size, function, code, name);
}

int fl_count_cuda_in_use(void *library, char *words, size_t size) {
  int (*get_count)(int *), count = 0;
  return find(library, "cuDeviceGetCount", &get_count, words, size) && !get_count(&count) ? count : -1;
}

int fl_count_rocm(void *library, char *words, size_t size) {
  int (*get_count)(int *), count = 0;
  const char *(*error_name)(int);
  if (!find(library, "hipGetDeviceCount", &get_count, words, size) ||
      !find(library, "hipGetErrorName", &error_name, words, size))
    return -1;
  int code = get_count(&count);
  if (code == 100) /* hipErrorNoDevice */
    return 0;
  return code ? failed(words, size, "hipGetDeviceCount", code, error_name(code)) : count;
}

int fl_count_ascend(void *library, char *words, size_t size) {
  int (*init)(const char *), (*get_count)(uint32_t *);
  uint32_t count = 0;
  if (!find(library, "aclInit", &init, words, size) || !find(library, "aclrtGetDeviceCount", &get_count, words, size))
    return -1;
  int code = init(NULL);
  if (code && code != 100002) /* initialised before */
    return failed(words, size, "aclInit", code, NULL);
  code = get_count(&count);
  return code ? failed(words, size, "aclrtGetDeviceCount", code, NULL) : (int)count;
}

/* ------------------------------------------------------------------------------------------------------ the child */

/* The first library that opens. When none does, the words are about the first that is there but broken, else about the
 * first of the list. */
static void *open_driver(const char *const *libraries, fl_probe *probe) {
  bool told = false;
  for (; *libraries; libraries++) {
    void *library = dlopen(*libraries, RTLD_LAZY | RTLD_LOCAL);
    if (library) {
      probe->opened = true;
      probe->words[0] = 0;
      probe->driver = *libraries;
      return library;
    }
    const char *words = dlerror();
    bool absent = words && !strncmp(words, *libraries, strlen(*libraries)) && strstr(words, "No such file");
    if (!probe->words[0] || (!absent && !told))
      snprintf(probe->words, sizeof probe->words, "%s", words ? words : "dlopen failed");
    told |= !absent;
  }
  return NULL;
}

/* What is asked in the child. */
typedef struct question {
  const char *name; /* of who is asked */
  const fl_driver *driver;
  bool count;
  int (*function)(void *self); /* in the driver's place, when not NULL */
  void *self;
} question;

static void ask(const question *q, fl_probe *probe) {
  if (q->function) {
    probe->opened = true;
    probe->count = q->function(q->self);
    return;
  }
  void *library = open_driver(q->driver->libraries, probe);
  if (library && q->count)
    probe->count = q->driver->count(library, probe->words, sizeof probe->words);
}

/* Never returns. Drivers print; the engine's handlers are not for a crash in here. */
static void child(const question *q, int timeout_ms, int answer) {
  fl_probe probe = {.count = -1};
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
  ask(q, &probe);
  /* Less than PIPE_BUF: written as a whole. The name it points to is in the parent at the same address. */
  _exit(write(answer, &probe, sizeof probe) != sizeof probe);
}

/* ----------------------------------------------------------------------------------------------------- the parent */

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* True: the pipe has something to say, or has ended. */
static bool wait_for_answer(int answer, int timeout_ms) {
  int64_t end = now_ms() + timeout_ms;
  for (;;) {
    struct pollfd pipe_end = {.fd = answer, .events = POLLIN};
    int64_t left = end - now_ms();
    int n = poll(&pipe_end, 1, left > 0 ? (int)left : 0);
    if (n >= 0 || errno != EINTR)
      return n > 0;
  }
}

static void take_answer(pid_t pid, int answer, const char *first, int timeout_ms, fl_probe *probe) {
  int status = 0;
  ssize_t n = 0;
  bool answered = wait_for_answer(answer, timeout_ms);
  if (answered)
    do
      n = read(answer, probe, sizeof *probe);
    while (n < 0 && errno == EINTR);
  kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    continue;
  if (n == sizeof *probe)
    return;
  *probe = (fl_probe){.count = -1};
  if (!answered)
    snprintf(probe->words, sizeof probe->words, "%s did not answer within %d s", first, (timeout_ms + 999) / 1000);
  else
    snprintf(probe->words, sizeof probe->words, "%s crashed or ended the process that asked it (%s)", first,
             WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "no signal");
}

static bool probe_in_use(const fl_driver *driver, fl_probe *probe) {
  for (const char *const *name = driver->libraries; driver->count_in_use && *name && probe->count < 0; name++) {
    void *library = dlopen(*name, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
      continue;
    probe->count = driver->count_in_use(library, probe->words, sizeof probe->words);
    probe->driver = *name;
    dlclose(library);
  }
  probe->opened = probe->count >= 0;
  return probe->opened;
}

static void probe_in_child(const question *q, int timeout_ms, fl_probe *probe) {
  int ends[2];
  *probe = (fl_probe){.count = -1};
  if (pipe2(ends, O_CLOEXEC)) {
    snprintf(probe->words, sizeof probe->words, "not asked: pipe: %s", strerror(errno));
    return;
  }
  pid_t pid = fork();
  if (!pid)
    child(q, timeout_ms, ends[1]);
  close(ends[1]);
  if (pid < 0)
    snprintf(probe->words, sizeof probe->words, "not asked: fork: %s", strerror(errno));
  else
    take_answer(pid, ends[0], q->name, timeout_ms, probe);
  close(ends[0]);
}

void fl_probe_driver(const fl_driver *driver, bool count, int timeout_ms, fl_probe *probe) {
  const question q = {.name = driver->libraries[0], .driver = driver, .count = count};
  *probe = (fl_probe){.count = -1};
  if (!count || !probe_in_use(driver, probe))
    probe_in_child(&q, timeout_ms, probe);
}

void fl_probe_function(int (*count)(void *self), void *self, const char *name, int timeout_ms, fl_probe *probe) {
  const question q = {.name = name, .function = count, .self = self};
  probe_in_child(&q, timeout_ms, probe);
}
