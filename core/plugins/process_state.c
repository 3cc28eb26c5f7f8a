/* Process state around foreign code: see process_state.h. Relies on nothing but the C library. */
#include "core/plugins/process_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef enum change { SAME, RESTORED, LOST } change;

/* What of the floating-point environment changes results: rounding, traps, treatment of subnormals. The exception
 * flags do not, and any computation raises them. */
static unsigned float_control(const fenv_t *environment) {
#if defined(__x86_64__)
  return (environment->__mxcsr & ~0x3fu) | (unsigned)environment->__control_word << 16;
#elif defined(__aarch64__)
  return environment->__fpcr;
#else
  (void)environment;
  return (unsigned)fegetround();
#endif
}

static void save_float(fl_process_state *state) {
  fegetenv(&state->floating_point);
  state->rounding = float_control(&state->floating_point);
}

static change restore_float(fl_process_state *state) {
  fenv_t now;
  fegetenv(&now);
  if (float_control(&now) == state->rounding)
    return SAME;
  return fesetenv(&state->floating_point) ? LOST : RESTORED;
}

/* A number that cannot be asked for (the C library's own signals) keeps all bytes zero, before and after. */
static void query_handler(int number, struct sigaction *action) {
  memset(action, 0, sizeof *action);
  sigaction(number, NULL, action);
}

static bool same_handler(const struct sigaction *a, const struct sigaction *b) {
  return a->sa_flags == b->sa_flags && a->sa_handler == b->sa_handler && !memcmp(&a->sa_mask, &b->sa_mask, _NSIG / 8);
}

static void save_handlers(fl_process_state *state) {
  for (int i = 1; i < FL_SIGNALS; i++)
    query_handler(i, &state->handlers[i]);
}

static change restore_handlers(fl_process_state *state) {
  change result = SAME;
  for (int i = 1; i < FL_SIGNALS; i++) {
    struct sigaction now;
    query_handler(i, &now);
    if (same_handler(&now, &state->handlers[i]))
      continue;
    memcpy(&state->foreign_handler, &now.sa_handler, sizeof state->foreign_handler);
    if (sigaction(i, &state->handlers[i], NULL))
      return LOST;
    result = RESTORED;
  }
  return result;
}

static void save_blocked(fl_process_state *state) {
  sigemptyset(&state->blocked);
  pthread_sigmask(SIG_SETMASK, NULL, &state->blocked);
}

static change restore_blocked(fl_process_state *state) {
  sigset_t now;
  sigemptyset(&now);
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  if (!memcmp(&now, &state->blocked, _NSIG / 8))
    return SAME;
  return pthread_sigmask(SIG_SETMASK, &state->blocked, NULL) ? LOST : RESTORED;
}

static void save_locale(fl_process_state *state) {
  const char *name = setlocale(LC_ALL, NULL);
  state->locale = name ? strdup(name) : NULL;
  state->thread_locale = uselocale((locale_t)0);
}

static change restore_locale(fl_process_state *state) {
  const char *name = setlocale(LC_ALL, NULL);
  change result = SAME;
  if (uselocale((locale_t)0) != state->thread_locale)
    result = uselocale(state->thread_locale) ? RESTORED : LOST;
  if (state->locale && name && strcmp(name, state->locale))
    result = setlocale(LC_ALL, state->locale) ? RESTORED : LOST;
  return result;
}

static void release_locale(fl_process_state *state) {
  free(state->locale);
}

static void release_directory(fl_process_state *state) {
  if (state->directory >= 0)
    close(state->directory);
  state->directory = -1;
}

static void save_directory(fl_process_state *state) {
  int fd = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
  state->directory = fd;
  if (fd >= 0 && fd < FL_STANDARD_STREAMS) { /* a standard stream is closed: it must not seem to be open */
    state->directory = fcntl(fd, F_DUPFD_CLOEXEC, FL_STANDARD_STREAMS);
    close(fd);
  }
  if (state->directory >= 0 && fstat(state->directory, &state->directory_status))
    release_directory(state);
}

static change restore_directory(fl_process_state *state) {
  const struct stat *before = &state->directory_status;
  struct stat now;
  if (state->directory < 0 || (!stat(".", &now) && before->st_dev == now.st_dev && before->st_ino == now.st_ino))
    return SAME;
  return fchdir(state->directory) ? LOST : RESTORED;
}

static void save_streams(fl_process_state *state) {
  for (int i = 0; i < FL_STANDARD_STREAMS; i++) {
    state->streams[i].copy = fcntl(i, F_DUPFD_CLOEXEC, FL_STANDARD_STREAMS);
    if (state->streams[i].copy >= 0)
      fstat(i, &state->streams[i].status);
  }
}

static change restore_stream(int number, int copy, const struct stat *before) {
  struct stat now;
  bool open_now = !fstat(number, &now);
  if (copy < 0 && open_now)
    return close(number) ? LOST : RESTORED;
  if (copy < 0 || (open_now && now.st_dev == before->st_dev && now.st_ino == before->st_ino))
    return SAME;
  return dup2(copy, number) < 0 ? LOST : RESTORED;
}

static change restore_streams(fl_process_state *state) {
  change result = SAME;
  for (int i = 0; i < FL_STANDARD_STREAMS; i++) {
    change one = restore_stream(i, state->streams[i].copy, &state->streams[i].status);
    result = one > result ? one : result;
  }
  return result;
}

static void release_streams(fl_process_state *state) {
  for (int i = 0; i < FL_STANDARD_STREAMS; i++)
    if (state->streams[i].copy >= 0)
      close(state->streams[i].copy);
}

static const struct {
  const char *what;
  void (*save)(fl_process_state *state);
  change (*restore)(fl_process_state *state);
  void (*release)(fl_process_state *state); /* NULL: nothing is held */
} aspects[] = {
    {"the floating-point mode", save_float, restore_float, NULL},
    {"the signal mask", save_blocked, restore_blocked, NULL},
    {"the locale", save_locale, restore_locale, release_locale},
    {"the working directory", save_directory, restore_directory, release_directory},
    {"standard input, output or error", save_streams, restore_streams, release_streams},
};
enum { N_ASPECTS = sizeof aspects / sizeof aspects[0] };

void fl_process_state_save(fl_process_state *state) {
  state->foreign_handler = NULL;
  save_handlers(state);
  for (size_t i = 0; i < N_ASPECTS; i++)
    aspects[i].save(state);
}

void fl_process_state_restore(fl_process_state *state, fl_state_report report, void *user) {
  for (size_t i = 0; i < N_ASPECTS; i++) {
    change result = aspects[i].restore(state);
    if (result != SAME)
      report(user, aspects[i].what, result == RESTORED);
  }
}

void fl_process_state_release(fl_process_state *state, fl_state_report report, void *user) {
  change result = restore_handlers(state);
  for (size_t i = 0; i < N_ASPECTS; i++)
    if (aspects[i].release)
      aspects[i].release(state);
  if (result != SAME)
    report(user, "signal handlers", result == RESTORED);
}
