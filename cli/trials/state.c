/* What a process has beside its memory: see state.h. */
#include "cli/trials/state.h"

#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* Of the control register what is no flag: masks, rounding, flush to zero, denormals are zero. */
static unsigned int modes(void) {
#ifdef __SSE__
  return _mm_getcsr() & ~0x3fu;
#elif defined __aarch64__
  fenv_t environment;
  return fegetenv(&environment) ? 0 : environment.__fpcr;
#else
  return 0;
#endif
}

void state_take(process_state *state) {
  memset(state, 0, sizeof *state);
  pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
  for (int i = 1; i < NSIG; i++)
    sigaction(i, NULL, &state->handlers[i]);
  state->rounding = fegetround();
  state->modes = modes();
  if (!getcwd(state->directory, sizeof state->directory))
    *state->directory = 0;
  snprintf(state->locale, sizeof state->locale, "%s", setlocale(LC_ALL, NULL));
}

const char *state_difference(const process_state *before, char *words, size_t size) {
  process_state now;
  state_take(&now);
  for (int i = 1; i < NSIG; i++) {
    const char *name = sigabbrev_np(i);
    bool blocked = sigismember(&now.mask, i) == 1;
    if (blocked != (sigismember(&before->mask, i) == 1)) {
      snprintf(words, size, "left signal %s%s in the thread's mask", name ? "SIG" : "", name ? name : "of real time");
      return words;
    }
    if (now.handlers[i].sa_handler != before->handlers[i].sa_handler) {
      snprintf(words, size, "changed the handler of signal %s%s", name ? "SIG" : "", name ? name : "of real time");
      return words;
    }
  }
  if (now.rounding != before->rounding || now.modes != before->modes)
    snprintf(words, size, "left the floating-point mode changed");
  else if (strcmp(now.directory, before->directory) != 0)
    snprintf(words, size, "changed the working directory to %.200s", now.directory);
  else if (strcmp(now.locale, before->locale) != 0)
    snprintf(words, size, "changed the locale to %.200s", now.locale);
  else
    return NULL;
  return words;
}

static int count_entries(const char *path) {
  DIR *directory = opendir(path);
  int n = 0;
  if (!directory)
    return -1;
  for (const struct dirent *entry; (entry = readdir(directory));)
    n += *entry->d_name != '.';
  closedir(directory);
  return n;
}

int state_descriptors(void) {
  return count_entries("/proc/self/fd");
}

int state_threads(void) {
  return count_entries("/proc/self/task");
}
