/* What a process has beside its memory, and a call has to leave as it was. */
#ifndef FLHOST_CLI_TRIALS_STATE_H
#define FLHOST_CLI_TRIALS_STATE_H

#include <flhost/plugin.h>
#include <signal.h>

/* Of the calling thread, and of the process. */
typedef struct process_state {
  sigset_t mask;
  struct sigaction handlers[NSIG];
  int rounding;
  unsigned int modes; /* flush to zero and the like, where the processor has them */
  char directory[1024], locale[512];
} process_state;

void state_take(process_state *state);

/* Words for the first thing that is not as it was, in a buffer of the caller; NULL: all is. */
const char *state_difference(const process_state *before, char *words, size_t size);

/* How many the process has open, or running; -1: nobody says. */
int state_descriptors(void);
int state_threads(void);

#endif
