/*
 * What plugins must leave as it was while they are loaded: saved before the first instruction of the first, compared
 * and put back after the last of each. Signal handlers, which cost one system call each, are compared once, after the
 * last plugin. Not looked at: the umask (it cannot be read without being changed, which other threads would see) and
 * environment variables.
 */
#ifndef FLHOST_CORE_PLUGINS_PROCESS_STATE_H
#define FLHOST_CORE_PLUGINS_PROCESS_STATE_H

#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>

enum { FL_STANDARD_STREAMS = 3, FL_SIGNALS = 65 };

typedef struct fl_process_state {
  fenv_t floating_point;
  unsigned rounding; /* rounding, traps, flush-to-zero: what of the environment counts */
  struct sigaction handlers[FL_SIGNALS];
  sigset_t blocked;
  char *locale; /* malloc'ed name of the process's locale */
  locale_t thread_locale;
  int directory; /* descriptor of the working directory, -1 if it could not be opened */
  struct stat directory_status;
  struct {
    int copy; /* -1: was closed */
    struct stat status;
  } streams[FL_STANDARD_STREAMS];
  const void *foreign_handler; /* one that fl_process_state_release put the engine's back for, if any */
} fl_process_state;

/* Says what was found changed: `what` is "the working directory" and the like; `restored` is false where putting it
 * back did not work. */
typedef void (*fl_state_report)(void *user, const char *what, bool restored);

/* Holds descriptors until released. The calling thread's, where state belongs to a thread. */
void fl_process_state_save(fl_process_state *state);

/* After a plugin: puts back all but signal handlers. In the thread that saved, as often as wanted. */
void fl_process_state_restore(fl_process_state *state, fl_state_report report, void *user);

/* After the last one: puts signal handlers back, and lets go of what is held. In the thread that saved. */
void fl_process_state_release(fl_process_state *state, fl_state_report report, void *user);

#endif
