/* Paths of the library that faults are let into: each does one thing that an engine or an operator asks for, and says
 * what came of it. */
#ifndef FLHOST_TESTS_FAULTS_PATHS_H
#define FLHOST_TESTS_FAULTS_PATHS_H

#include "tests/faults/inject.h"

#include <flhost/flhost.h>

/* What a path found, as text, in memory that no fault reaches. */
typedef struct findings {
  char text[1 << 16];
  size_t length;
} findings;

/* Where it works. */
typedef struct fault_place {
  const char *build;      /* what was built */
  const char *directory;  /* of its own: policy.yaml, plugins/, a home */
  fl_host *host;          /* NULL where the path makes its own */
  unsigned warnings;      /* lines of the log that say something is wrong */
  char last_warning[512]; /* the last of them */
} fault_place;

typedef struct fault_path {
  const char *name;
  bool own_host; /* makes and ends the host by itself */
  /* May find less than without faults, when it says so: the log has a warning. */
  bool may_find_less;
  fl_status (*run)(fault_place *place, findings *found);
  fault_kind first; /* of those that are let in, by number; 0: all are */
} fault_path;

extern const fault_path paths[];
extern const size_t n_paths;

/* A host as the paths have it. */
fl_status new_host(fault_place *place, fl_host **host);

#endif
