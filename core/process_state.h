/*
 * What a plugin must leave as it was while it is loaded: saved before its first instruction, compared and put back
 * after its last. Not looked at: the umask (it cannot be read without being changed, which other threads would see)
 * and environment variables.
 */
#ifndef FLHOST_CORE_PROCESS_STATE_H
#define FLHOST_CORE_PROCESS_STATE_H

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
  struct {
    int copy; /* -1: was closed */
    struct stat status;
  } streams[FL_STANDARD_STREAMS];
} fl_process_state;

/* A few microseconds; holds descriptors until restored. The calling thread's, where state belongs to a thread. */
void fl_process_state_save(fl_process_state *state);

/* Puts back what differs and says so: `what` is "the working directory" and the like; `restored` is false where that
 * did not work. To be called once, in the thread that saved. */
void fl_process_state_restore(fl_process_state *state, void (*report)(void *user, const char *what, bool restored),
                              void *user);

#endif
