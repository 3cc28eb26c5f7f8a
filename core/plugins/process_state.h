/*
 * What plugins must leave as it was while they are loaded: read before the first instruction of one, compared after its
 * last. What is the loading thread's own is put back. What belongs to the process is only told of: another thread may
 * have changed it meanwhile, and putting it back would undo that. Nothing is held in between, no descriptor above all.
 * Not looked at: the umask (it cannot be read without being changed, which other threads would see) and environment
 * variables.
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
  /* The thread's. */
  fenv_t floating_point;
  sigset_t blocked;
  locale_t thread_locale;
  /* The process's. */
  struct sigaction handlers[FL_SIGNALS];
  locale_t locale;                                     /* a copy; 0: there was no memory for one */
  struct stat directory, streams[FL_STANDARD_STREAMS]; /* all bytes zero: there is none */
} fl_process_state;

/* Says what was found changed: `what` is "the working directory" and the like; `restored`: it is the thread's own, and
 * was put back. */
typedef void (*fl_state_report)(void *user, const char *what, bool restored);

/* To be ended by fl_process_state_compare in the same thread. */
void fl_process_state_read(fl_process_state *state);
void fl_process_state_compare(fl_process_state *before, fl_state_report report, void *user);

#endif
