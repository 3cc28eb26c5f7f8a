/* A plugin that does harm: WHAT, WHEN it is opened, registers, is asked whether it is available, or the process ends.
 */
#include <fcntl.h>
#include <fenv.h>
#include <flhost/plugin.h>
#include <locale.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

FL_PLUGIN(NAME, "1", "Test", "MIT", "");

#define OPENED    1
#define REGISTERS 2
#define ASKED     3
#define ENDS      4

static volatile int zero;
static void *volatile nowhere;

/* Each file does one of these. */
#define HARM __attribute__((unused)) static

HARM void nothing(void) {
}

/* What a sanitizer would find is to happen all the same. */
#define UNSEEN __attribute__((no_sanitize("address", "undefined")))

UNSEEN HARM void crash(void) {
  *(volatile int *)nowhere = 1;
}

UNSEEN HARM void divide(void) {
  zero = 1 / zero;
  raise(SIGFPE); /* where division by zero is allowed */
}

HARM void illegal(void) {
  raise(SIGILL);
}

HARM void abort_with_words(void) {
  fputs("acme: assertion failed\n", stderr);
  abort();
}

HARM void exit_0(void) {
  exit(0);
}

HARM void exit_3(void) {
  exit(3);
}

HARM void exit_at_once(void) {
  _exit(0);
}

HARM void exec_other(void) {
  execl("/bin/true", "true", (char *)NULL);
}

HARM void end_thread(void) {
  pthread_exit(NULL);
}

HARM void spin(void) {
  while (!zero)
    continue;
}

HARM void sleep_on(void) {
  for (;;)
    pause();
}

/* Each page is used, since memory that is only reserved takes none. */
HARM void allocate(void) {
  for (size_t step = 16 << 20;;) {
    char *memory = mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED)
      memset(memory, 1, step);
  }
}

HARM void reserve(void) {
  nowhere = mmap(NULL, (size_t)1 << 40, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

HARM void close_all(void) {
  for (int i = 3; i < 1024; i++)
    close(i);
}

HARM void close_streams(void) {
  for (int i = 0; i < 3; i++)
    close(i);
}

HARM void open_files(void) {
  for (int i = 0; i < 5; i++)
    if (open("/dev/null", O_RDONLY) < 0)
      return;
}

HARM void fork_one(void) {
  if (!fork())
    sleep_on();
}

HARM void daemonise(void) {
  if (fork())
    return;
  setsid();
  if (fork())
    _exit(0);
  sleep_on();
}

HARM void crash_and_leave_daemon(void) {
  daemonise();
  crash();
}

HARM void kill_parent(void) {
  kill(getppid(), SIGKILL);
  sleep(1);
}

/* Waits until its daemon is there, which says so in a file. */
HARM void kill_guard_and_leave_daemon(void) {
  const char *path = getenv("TEST_DAEMON");
  if (!path)
    return;
  if (!fork()) {
    setsid();
    if (fork())
      _exit(0);
    FILE *file = fopen(path, "w");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    sleep_on();
  }
  for (struct stat status; stat(path, &status) || !status.st_size;)
    usleep(1000);
  kill_parent();
}

HARM void kill_self(void) {
  kill(getpid(), SIGKILL);
}

HARM void kill_group(void) {
  kill(0, SIGTERM);
}

HARM void stop(void) {
  raise(SIGSTOP);
}

HARM void change_directory(void) {
  if (chdir("/"))
    abort();
}

HARM void change_locale(void) {
  setlocale(LC_ALL, "C.UTF-8");
}

HARM void handle(void) {
  signal(SIGUSR1, SIG_IGN);
}

HARM void block(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
}

HARM void round_down(void) {
  fesetround(FE_DOWNWARD);
}

HARM void print(void) {
  puts("acme is here");
  fflush(stdout);
}

HARM void set_variable(void) {
  setenv("ACME_MODE", "1", 1);
}

static jmp_buf stale;

__attribute__((noinline, unused)) static void mark(void) {
  if (setjmp(stale))
    abort();
}

HARM void jump(void) {
  char room[4096];
  mark();
  memset(room, 0xff, sizeof room);
  nowhere = room;
  longjmp(stale, 1);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winfinite-recursion"
__attribute__((noinline, unused)) static int recurse(int depth) {
  volatile char room[4096];
  room[depth % 4096] = 1;
  return recurse(depth + 1) + room[0];
}
#pragma GCC diagnostic pop

HARM void overflow(void) {
  recurse(0);
}

HARM void break_heap(void) {
  char *block_of = malloc(24);
  memset(block_of - 16, 0x41, 64);
  free(block_of);
  free(malloc(1000));
  abort();
}

HARM void *later(void *crashes) {
  if (!crashes)
    sleep_on();
  crash();
  return NULL;
}

HARM void leave_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, later, NULL);
}

HARM void crash_in_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, later, &stale);
  pthread_join(thread, NULL);
}

HARM void crash_at_exit(void) {
  atexit(crash);
}

HARM void alarm_soon(void) {
  alarm(1);
  sleep_on();
}

/* A byte in the file that the test names, each time. */
HARM void count(void) {
  const char *path = getenv("TEST_COUNT");
  int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
  if (fd < 0 || write(fd, "x", 1) != 1)
    return;
  close(fd);
}

HARM void count_and_crash(void) {
  count();
  crash();
}

#if WHEN == OPENED
__attribute__((constructor)) static void start(void) {
  WHAT();
}
#endif

#if WHEN == ENDS
__attribute__((destructor)) static void end(void) {
  WHAT();
}
#endif

static bool is_available(void *self, const char **reason) {
  (void)self;
  (void)reason;
#if WHEN == ASKED
  WHAT();
#endif
  return true;
}

static fl_status run(void *self, fl_call *call) {
  (void)self;
  (void)call;
  return FL_OK;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_op_def op = {.size = sizeof op, .schema = "hostile(Tensor x) -> Tensor out"};
  static const fl_impl impl = {.size = sizeof impl,
                               .op_name = "hostile",
                               .impl_id = "vendor." NAME,
                               .kind = FL_KIND_VENDOR,
                               .vendor = NAME,
                               .devices = FL_DEVICE(kDLCPU),
                               .fn = run,
                               .is_available = is_available};
#if WHEN == REGISTERS
  WHAT();
#endif
  if (getenv("TEST_REFUSE"))
    return FL_EPLUGIN;
  fl_status status = registry->register_op(registry, &op);
  return status ? status : registry->register_impl(registry, &impl);
}
