/*
 * Verdicts about plugin files: which were tried in another process, and what came of it. Kept for each user in
 * $XDG_CACHE_HOME/flhost/verdicts or ~/.cache/flhost/verdicts, for as long as the file and all else that the verdict
 * depends on stay the same. A file that is broken, or that others could have written, counts as none.
 */
#ifndef FLHOST_CORE_PLUGINS_VERDICTS_H
#define FLHOST_CORE_PLUGINS_VERDICTS_H

#include "core/settings.h"
#include "core/support.h"

#include <sys/stat.h>

/* A plugin that did harm is tried again after a day: what was wrong may lie outside all that is looked at. */
enum { FL_VERDICT_LASTS_SECONDS = 24 * 3600, FL_VERDICTS_MAX = 512, FL_SHA256_SIZE = 65 };

/* What a verdict is about: when one of these is another, the verdict is of no use. */
typedef struct fl_verdict_key {
  const char *file;                /* its path; with ":symbol" */
  char conditions[FL_SHA256_SIZE]; /* digest of the library path, the driver's version and so on */
  uint64_t device, inode, size;
  int64_t modified, modified_ns, changed, changed_ns;
} fl_verdict_key;

typedef struct fl_judgement {
  fl_verdict_key key; /* `file` is owned by the list */
  char sha256[FL_SHA256_SIZE];
  int64_t when; /* seconds since 1970 */
  bool failed;
  bool is_new; /* made in this round */
  bool is_unsaved;
  const char *words; /* what harm it did; "" if none. Owned by the list */
} fl_judgement;

/* Zero-initialise. */
typedef struct fl_verdicts {
  fl_judgement *items;
  uint32_t n;
  char *directory; /* NULL: nothing is kept */
  fl_arena owned;
  bool opened;
} fl_verdicts;

/* Reads what is kept for the user. Whatever is wrong is a line at DEBUG. */
void fl_verdicts_open(fl_verdicts *list, const fl_config_sources *sources, fl_log *log);
void fl_verdicts_close(fl_verdicts *list);

/* What the file's status says of the key. */
void fl_verdict_key_set(fl_verdict_key *key, const struct stat *status);

/* The verdict about that very file, or about its content where only its times or place changed; NULL: none that still
 * counts. `path` is the file. */
const fl_judgement *fl_verdicts_find(fl_verdicts *list, const char *path, const fl_verdict_key *key);

/* Adds one of now, and gives it until the next is added; NULL: out of memory. */
fl_judgement *fl_verdicts_add(fl_verdicts *list, const char *path, const fl_verdict_key *key, bool failed,
                              const char *words);

/* Puts those that are new among what is kept by now. Processes that do so at the same time lose nothing. */
void fl_verdicts_save(fl_verdicts *list, fl_log *log);

#endif
