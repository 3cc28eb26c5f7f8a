/* What a plugin leaves behind in a process that is its own: compared as a whole, which takes too long for an engine. */
#ifndef FLHOST_CORE_PLUGINS_TRACES_H
#define FLHOST_CORE_PLUGINS_TRACES_H

#include "core/plugins/process_state.h"
#include "core/support.h"

enum { FL_TRACED_FILES = 1024 };

typedef struct fl_traces {
  fl_process_state state;
  struct {
    uint64_t device, inode; /* 0: closed */
  } files[FL_TRACED_FILES];
  long threads;
  fl_strings environment;
} fl_traces;

void fl_traces_read(fl_traces *traces);

/* Adds what is another now, "the locale", "descriptors (2 more)"; frees what was read. */
void fl_traces_compare(fl_traces *before, void (*report)(void *user, const char *what), void *user);

#endif
