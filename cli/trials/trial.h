/*
 * Work in a child process (fl_child_run): what other people's code does there (crash, hang, exit, take all memory,
 * print without end) happens to the child alone, and the command says what it was. The child has the host as the parent
 * has it, so the parent may have called no kernel and used no device before: a driver does not survive a fork.
 */
#ifndef FLHOST_CLI_TRIALS_TRIAL_H
#define FLHOST_CLI_TRIALS_TRIAL_H

#include <flhost/plugin.h>
#include <flhost/testing.h>

/* What a child may do. */
typedef struct trial_limits {
  double seconds;  /* without a sign of life (trial_beat, trial_doing); 0: any time */
  uint64_t memory; /* bytes beyond what the parent has; 0: any */
  bool in_process; /* no child at all, for a debugger: what goes wrong ends the command */
} trial_limits;

typedef enum trial_end {
  TRIAL_DONE,
  TRIAL_CRASHED,
  TRIAL_HUNG,
  TRIAL_EXITED,
  TRIAL_OUT_OF_MEMORY,
  TRIAL_NOT_STARTED /* no child could be made */
} trial_end;

enum { TRIAL_WORDS = 640, TRIAL_PRINTED = 256 };

/* How it ended. */
typedef struct trial_outcome {
  trial_end end;
  int signal;                    /* that ended it, or 0 */
  char words[TRIAL_WORDS];       /* "crashed in call 7 (SIGSEGV, x float32[7, 3])"; "" when done */
  uint64_t printed;              /* bytes that it wrote to its standard streams */
  char beginning[TRIAL_PRINTED]; /* the beginning of that, on one line */
} trial_outcome;

/* "crashed", "hung", "exited", "out of memory"; "" when done. */
const char *trial_end_name(trial_end end);

/* Memory that parent and children share, zeroed; NULL: there is none. */
void *trial_share(size_t size);
void trial_unshare(void *memory, size_t size);

/* Runs `work` in a child, and waits. What the work found it leaves in shared memory. */
trial_outcome trial_run(const trial_limits *limits, void (*work)(void *context), void *context);

/* In the work. Says what comes next, for the outcome's words; `what` may be NULL. A sign of life. */
void trial_doing(const char *where, const char *what);
void trial_beat(void);

/* In the work: from here on its standard output is that of the command; until then it is kept apart. */
void trial_show(void);

/* In the work: what lies at the address of a memory fault, for the words. false: unknown. Called in a signal handler.
 */
typedef bool (*trial_locate)(const void *address, char *words, size_t size);
void trial_set_locate(trial_locate locate);

#endif
