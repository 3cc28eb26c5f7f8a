/* What became of each plugin that was found, and which ops it says that it brings. */
#ifndef FLHOST_CORE_REGISTRY_PLUGIN_RECORD_H
#define FLHOST_CORE_REGISTRY_PLUGIN_RECORD_H

#include "core/support.h"

#include <flhost/flhost.h>
#include <sys/types.h>
#include <time.h>

typedef enum fl_plugin_status {
  FL_PLUGIN_LOADED = 1,
  FL_PLUGIN_UNAVAILABLE = 2, /* loaded, but no implementation of it is available here */
  FL_PLUGIN_SKIPPED = 3,
  FL_PLUGIN_FAILED = 4,
  FL_PLUGIN_DEFERRED = 5 /* loaded when one of the ops that it lists is first looked for */
} fl_plugin_status;

/* What became of one plugin. */
typedef struct fl_plugin_record {
  fl_arena owned; /* the strings, unless they are constants */
  const char *name, *file, *version, *vendor, *licence, *abi, *reason, *build_id;
  const char *ops;      /* "op_a,op_b", FL_PLUGIN_OPS; NULL: it has no such list, or it could not be read (`again`) */
  const char *platform; /* of FL_PLUGIN_PLATFORM; NULL: it has none */
  const char *communicators; /* of FL_PLUGIN_COMMUNICATORS, "a,b"; NULL: it has none */
  const char *symbol;        /* of a deferred one; NULL = "register_builtins" */
  const char *token;         /* of FL_PLUGIN_VENDOR; NULL: it has none */
  const char *denied; /* of one that is kept out, or deferred though there are signs of its platform: why; else NULL */
  const char *route;  /* "directory", "manifest", "module", "engine" */
  fl_plugin_status status;
  double load_us;
  uint32_t impls;
  bool critical;
  bool kept_out; /* of a skipped one: its vendor is denied, or not allowed, and it is loaded when that is let in */
  bool gave_way; /* of a skipped one: another build of it, or the same file, is there in its place */
  bool again;    /* of a deferred one: loading it failed for want of descriptors or memory, and is to be tried again */
  dev_t device;  /* of the file, so that one file is loaded once */
  ino_t inode;
  off_t size; /* as it was judged, and when it was written last */
  struct timespec modified;
  uint32_t same_chain; /* plugins/by_file.c */
  uint64_t opener;     /* of a deferred one: the thread that is loading it (fl_loading_begin), or was when it forked */
} fl_plugin_record;

/* "loaded", … */
const char *fl_plugin_status_name(fl_plugin_status status);

/* One that failed so far, of which nothing is known but its file. */
fl_plugin_record fl_plugin_record_begin(const char *file);
void fl_plugin_record_clear(fl_plugin_record *record);

/* Is the name in the first `length` bytes of a list "op_a,op_b"? */
bool fl_ops_list(const char *ops, size_t length, const char *name, size_t name_length);

#endif
