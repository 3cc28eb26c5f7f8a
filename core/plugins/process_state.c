/* Process state around foreign code: see process_state.h. Relies on nothing but the C library. */
#include "core/plugins/process_state.h"

#include <langinfo.h>
#include <string.h>

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

static bool same_float(const fl_process_state *before, const fl_process_state *now) {
  return float_control(&before->floating_point) == float_control(&now->floating_point);
}

static void restore_float(const fl_process_state *before) {
  fesetenv(&before->floating_point);
}

static bool same_blocked(const fl_process_state *before, const fl_process_state *now) {
  return !memcmp(&before->blocked, &now->blocked, _NSIG / 8);
}

static void restore_blocked(const fl_process_state *before) {
  pthread_sigmask(SIG_SETMASK, &before->blocked, NULL);
}

static bool same_thread_locale(const fl_process_state *before, const fl_process_state *now) {
  return before->thread_locale == now->thread_locale;
}

static void restore_thread_locale(const fl_process_state *before) {
  uselocale(before->thread_locale);
}

static bool same_handlers(const fl_process_state *before, const fl_process_state *now) {
  bool same = true;
  for (int i = 1; i < FL_SIGNALS && same; i++) {
    const struct sigaction *a = &before->handlers[i], *b = &now->handlers[i];
    same = a->sa_flags == b->sa_flags && a->sa_handler == b->sa_handler && !memcmp(&a->sa_mask, &b->sa_mask, _NSIG / 8);
  }
  return same;
}

static bool same_locale(const fl_process_state *before, const fl_process_state *now) {
  bool same = true;
  for (int category = LC_CTYPE; category <= LC_IDENTIFICATION && before->locale && now->locale && same; category++)
    same = category == LC_ALL || !strcmp(nl_langinfo_l(NL_LOCALE_NAME(category), before->locale),
                                         nl_langinfo_l(NL_LOCALE_NAME(category), now->locale));
  return same;
}

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static bool same_directory(const fl_process_state *before, const fl_process_state *now) {
  return same_file(&before->directory, &now->directory);
}

static bool same_streams(const fl_process_state *before, const fl_process_state *now) {
  bool same = true;
  for (int i = 0; i < FL_STANDARD_STREAMS && same; i++)
    same = same_file(&before->streams[i], &now->streams[i]);
  return same;
}

static const struct {
  const char *what;
  bool (*same)(const fl_process_state *before, const fl_process_state *now);
  void (*restore)(const fl_process_state *before); /* NULL: it belongs to the process */
} aspects[] = {
    {"the floating-point mode", same_float, restore_float},
    {"the signal mask", same_blocked, restore_blocked},
    {"the thread's locale", same_thread_locale, restore_thread_locale},
    {"signal handlers", same_handlers, NULL},
    {"the locale", same_locale, NULL},
    {"the working directory", same_directory, NULL},
    {"standard input, output or error", same_streams, NULL},
};

/* What cannot be asked for, a closed stream or one of the C library's own signals, keeps all bytes zero. */
void fl_process_state_read(fl_process_state *state) {
  memset(state, 0, sizeof *state);
  fegetenv(&state->floating_point);
  pthread_sigmask(SIG_SETMASK, NULL, &state->blocked);
  state->thread_locale = uselocale((locale_t)0);
  for (int i = 1; i < FL_SIGNALS; i++)
    sigaction(i, NULL, &state->handlers[i]);
  state->locale = duplocale(LC_GLOBAL_LOCALE); /* setlocale(…, NULL) gives a string that another thread may free */
  stat(".", &state->directory);
  for (int i = 0; i < FL_STANDARD_STREAMS; i++)
    fstat(i, &state->streams[i]);
}

void fl_process_state_compare(fl_process_state *before, fl_state_report report, void *user) {
  fl_process_state now;
  fl_process_state_read(&now);
  for (size_t i = 0; i < sizeof aspects / sizeof aspects[0]; i++) {
    if (aspects[i].same(before, &now))
      continue;
    if (aspects[i].restore)
      aspects[i].restore(before);
    report(user, aspects[i].what, aspects[i].restore);
  }
  if (before->locale)
    freelocale(before->locale);
  if (now.locale)
    freelocale(now.locale);
}
