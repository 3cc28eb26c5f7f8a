/* Changes all of the process's state that a plugin must leave alone, some of it before its entry is called. */
#include <fcntl.h>
#include <fenv.h>
#include <flhost/plugin.h>
#include <locale.h>
#include <signal.h>
#include <unistd.h>

FL_PLUGIN("changes", "1", "Test", "MIT", "");

static void on_signal(int number) {
  (void)number;
}

__attribute__((constructor)) static void start(void) {
  struct sigaction action = {.sa_handler = on_signal};
  if (chdir("/"))
    _exit(1);
  sigaction(SIGUSR1, &action, NULL);
}

fl_status register_builtins(fl_registry *registry) {
  sigset_t set;
  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  (void)registry;
  fesetround(FE_TOWARDZERO);
  setlocale(LC_ALL, "C.UTF-8");
  uselocale(newlocale(LC_NUMERIC_MASK, "C", (locale_t)0));
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  dup2(null, STDOUT_FILENO);
  close(null);
  return FL_OK;
}
