/*
 * One plugin file: judged by its note before it is mapped, opened, its entry found and called. Knows nothing of where
 * files come from (discovery.h) and leaves the process as it found it.
 */
#ifndef FLHOST_CORE_LOADER_H
#define FLHOST_CORE_LOADER_H

#include "core/registry.h"
#include <sys/types.h>

typedef enum fl_plugin_status {
  FL_PLUGIN_LOADED = 1,
  FL_PLUGIN_UNAVAILABLE = 2, /* loaded, but no implementation of it is available here */
  FL_PLUGIN_SKIPPED = 3,
  FL_PLUGIN_FAILED = 4
} fl_plugin_status;

/* What became of one plugin. Strings owned, never NULL. */
typedef struct fl_plugin_record {
  char *name, *file, *version, *vendor, *licence, *abi, *reason, *build_id;
  const char *route; /* "directory", "manifest", "module", "engine" */
  fl_plugin_status status;
  double load_us;
  uint32_t impls;
  bool critical;
  dev_t device; /* of the file, so that one file is loaded once */
  ino_t inode;
} fl_plugin_record;

void fl_plugin_record_clear(fl_plugin_record *record);

/* A plugin's name before its note is read: the file's name without "libflhost_" or "lib" and ".so". malloc'ed. */
char *fl_plugin_name_of_file(const char *path);

/* FL_EPLUGIN: `path` may be replaced or written by anyone on this machine: the file is world-writable, or its directory
 * (also that of the link's target) is, without the sticky bit or with a file of another user. FL_ENOENT: no such file.
 */
fl_status fl_file_trusted(const char *path);

/* What a file says of itself, read without mapping it as code. */
typedef struct fl_note_info {
  fl_plugin_note note; /* zero beyond what the file's own size covers; strings always end */
  char build_id[65];   /* hex, "" if none */
} fl_note_info;

/* FL_EPLUGIN: not an ELF file, truncated, another architecture, no note: the message says what the file is. */
fl_status fl_note_read(const char *path, fl_note_info *info);

/* Libraries that the file names as needed, and symbols that it exports (by its section headers; none if stripped).
 * Either list may be NULL. FL_EPLUGIN as fl_note_read. */
fl_status fl_elf_read_dynamic(const char *path, fl_strings *needed, fl_strings *exports);

/* Does this processor (and operating system) have every instruction set of the comma list? If not, *missing (into the
 * buffer) is the first that it lacks; an unknown name counts as lacking, and is said to be unknown. */
bool fl_isa_available(const char *isa, char *missing, size_t size);

/*
 * Loads one file into a host: permissions, note, ABI, instruction sets, dlopen(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE),
 * entry symbol in that very file, register_builtins, commit. `symbol` NULL = "register_builtins". Fills `record` in
 * every case but FL_ENOMEM (then it is empty); its route and critical are the caller's to set. FL_EPLUGIN with the
 * loader's own words and a hint when it failed: the message, also in record->reason. When it loaded, the reason says
 * which rows were refused, or why its platform is not active when it brings nothing else. What the plugin changed in
 * the process is put back and warned of in `log`. Holds no lock while the plugin's code runs.
 */
fl_status fl_plugin_load(fl_host *host, fl_log *log, const char *path, const char *symbol, fl_plugin_record *record);

#endif
