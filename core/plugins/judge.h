/*
 * Trying a plugin in another process before its code gets into this one. What crashes, ends the process, hangs or takes
 * all memory there is barred here. The process is the command, `flhost probe`, which tries each file in a process of
 * its own and tells through the channel (support/child.h) how that goes, a line each:
 *
 *   flhost-probe 1          what follows is of this version
 *   try 0                   the first file of the command line is begun
 *   in register_builtins    where it is now
 *   ok 0                    it did no harm; or
 *   refused 0               it did none, but no host can use it; or
 *   failed 0 crashed in …   what it did
 */
#ifndef FLHOST_CORE_PLUGINS_JUDGE_H
#define FLHOST_CORE_PLUGINS_JUDGE_H

#include "core/plugins/elf_note.h"
#include "core/plugins/verdicts.h"
#include "core/registry.h"

enum { FL_PROBE_PROTOCOL = 1, FL_JUDGE_BATCH = 16, FL_JUDGE_WORDS = 512, FL_PROBE_STEP_MS = 20000 };

/* A file that is about to be opened. */
typedef struct fl_suspect {
  const char *file;   /* absolute */
  const char *symbol; /* NULL = register_builtins */
  const char *name;   /* for messages */
  struct stat status;
  const fl_note_info *info; /* NULL: unknown */
} fl_suspect;

/* The files that this round is likely to open after that one, so that one process tries them all. Gives their number;
 * at most `n`. */
typedef uint32_t (*fl_look_ahead)(void *user, fl_suspect *suspects, uint32_t n);

/* Of a round of loading. Zero-initialise. */
typedef struct fl_judge {
  fl_verdicts verdicts;
  fl_look_ahead look_ahead; /* NULL: nothing is known */
  void *user;
  char *command, *conditions; /* that all plugins share */
} fl_judge;

/* May the file be opened in this process? If not, `why` says what it did in another. */
bool fl_judge_allows(fl_judge *judge, fl_host *host, const fl_suspect *suspect, char why[FL_JUDGE_WORDS]);

/* Milliseconds that each step of loading a plugin may take in the process that tries it: FL_PROBE_STEP_MS, unless
 * $FLHOST_PROBE_TIMEOUT_MS says another number. */
uint32_t fl_probe_step_ms(void);

/* Keeps what is new. */
void fl_judge_end(fl_judge *judge, fl_log *log);

#endif
