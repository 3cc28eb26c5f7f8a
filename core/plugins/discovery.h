/*
 * Finding plugins: the three routes of rule D1. Nothing here depends on the working directory: a relative directory is
 * a mistake that is reported. A plugin directory is searched for *.so files, bytewise; names like libacme.so.1 are
 * passed over, being what libacme.so leads to.
 */
#ifndef FLHOST_CORE_PLUGINS_DISCOVERY_H
#define FLHOST_CORE_PLUGINS_DISCOVERY_H

#include "core/plugins/loader.h"
#include "core/settings.h"

typedef struct fl_found {
  const char *path;    /* of the library */
  const char *symbol;  /* NULL = register_builtins */
  const char *name;    /* from the manifest, else NULL */
  const char *problem; /* not NULL: cannot be loaded, and why (bad manifest, no such module) */
  const char *route;   /* "directory", "manifest", "module" */
  bool critical, disabled;
} fl_found;

/* Zero-initialise. What is added while memory lacks sets owned.failed. */
typedef struct fl_found_list {
  fl_found *items;
  uint32_t n;
  fl_arena owned; /* the strings */
} fl_found_list;

/* Of a variable that is released when it is left, also when a plugin's code ends the thread meanwhile. */
#define FL_RELEASED_BY(release) __attribute__((cleanup(release)))

void fl_found_add(fl_found_list *list, fl_found found);
/* A directory that has too many of them. */
void fl_found_add_crowded(fl_found_list *list, const char *route, const char *directory, const char *suffix);
void fl_found_list_free(fl_found_list *list);

/* The file that has this library's code, itself or the program that it is linked into; NULL: not found. */
const char *fl_own_file(void);

/* The default plugin directories (D2): beside libflhost itself, then the configured prefix. */
bool fl_default_plugin_directories(fl_strings *directories);

/* The installed platform files' directory, found the same way. malloc'ed; never NULL unless out of memory. */
char *fl_default_config_directory(void);

/* The command `flhost` that goes with this library: $FLHOST_COMMAND (which set-uid programs ignore); else beside the
 * library (a build tree), in its ../bin or ../../bin, or beside the program that the library is linked into; else in
 * the prefix's bin. malloc'ed; NULL: out of memory. */
char *fl_default_command(void);

/* Everything that is there, in order of loading: modules, directories, manifests. `directories` gets those searched. */
fl_status fl_discover(const fl_config_sources *sources, fl_log *log, fl_strings *directories, fl_found_list *found);

/* One module entry (D3): a path (with a slash; a relative one is made absolute) or a name to be looked up, with
 * optional ":symbol". When there is none, its problem says where it was looked for. */
void fl_find_module(const fl_strings *directories, const char *entry, fl_found_list *found);

/* Adds names in a directory that end in `suffix` and do not begin with a dot, and sorts them all bytewise. An errno if
 * it cannot be read to its end, else 0. E2BIG: it has more than FL_DIRECTORY_MOST, and none was added. */
enum { FL_DIRECTORY_MOST = 4096 };
int fl_list_directory(const char *directory, const char *suffix, fl_strings *names);

#endif
