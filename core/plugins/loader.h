/*
 * One plugin file: judged by its note before it is mapped, opened, its entry found and called. Knows nothing of where
 * files come from (discovery.h) and leaves the process as it found it.
 */
#ifndef FLHOST_CORE_PLUGINS_LOADER_H
#define FLHOST_CORE_PLUGINS_LOADER_H

#include "core/plugins/process_state.h"
#include "core/plugins/trust.h"
#include "core/registry/registry.h"

typedef enum fl_plugin_status {
  FL_PLUGIN_LOADED = 1,
  FL_PLUGIN_UNAVAILABLE = 2, /* loaded, but no implementation of it is available here */
  FL_PLUGIN_SKIPPED = 3,
  FL_PLUGIN_FAILED = 4,
  FL_PLUGIN_DEFERRED = 5 /* loaded when one of the ops that it lists is first looked for */
} fl_plugin_status;

/* What became of one plugin. Strings owned, never NULL. */
typedef struct fl_plugin_record {
  char *name, *file, *version, *vendor, *licence, *abi, *reason, *build_id;
  char *ops;         /* "op_a,op_b", FL_PLUGIN_OPS; NULL: it has no such list */
  char *platform;    /* of FL_PLUGIN_PLATFORM; NULL: it has none */
  char *symbol;      /* of a deferred one; NULL = "register_builtins" */
  const char *route; /* "directory", "manifest", "module", "engine" */
  fl_plugin_status status;
  double load_us;
  uint32_t impls;
  bool critical;
  dev_t device; /* of the file, so that one file is loaded once */
  ino_t inode;
  uint64_t opener; /* of a deferred one: the thread that is loading it (fl_loading_begin), or was when it forked */
} fl_plugin_record;

void fl_plugin_record_clear(fl_plugin_record *record);

/* A plugin's name before its note is read: the file's name without "libflhost_" or "lib" and ".so". malloc'ed. */
char *fl_plugin_name_of_file(const char *path);

/* What a file says of itself, read without mapping it as code. */
typedef struct fl_note_info {
  fl_plugin_note note; /* zero beyond what the file's own size covers; strings always end */
  char build_id[65];   /* hex, "" if none */
  char *ops;           /* "op_a,op_b", FL_PLUGIN_OPS without white space; NULL if it has none. Owned */
  char *platform;      /* FL_PLUGIN_PLATFORM: its name; NULL if it has none. Owned */
  char *signs;         /* that the platform may be active: "/dev/a,$B"; NULL if `platform` is. Owned */
} fl_note_info;

/* FL_EPLUGIN: not an ELF file, truncated, another architecture, no note, a bad list of ops or platform: the message
 * says what the file is, and nothing is in *info. */
fl_status fl_note_read(const char *path, fl_note_info *info);
void fl_note_clear(fl_note_info *info);

/* The same; what the process has read before is not read again as long as the file has not changed. */
fl_status fl_note_of_file(const char *path, const fl_file *file, fl_note_info *info);

/* Is the name in the first `length` bytes of the list? */
bool fl_ops_list(const char *ops, size_t length, const char *name, size_t name_length);

/* Libraries that the file names as needed, symbols that it exports, and those that it wants of others (both by its
 * section headers; none if stripped). Each list may be NULL. FL_EPLUGIN as fl_note_read. */
fl_status fl_elf_read_dynamic(const char *path, fl_strings *needed, fl_strings *exports, fl_strings *undefined);

/* Does this processor (and operating system) have every instruction set of the comma list? If not, *missing (into the
 * buffer) is the first that it lacks; an unknown name counts as lacking, and is said to be unknown. */
bool fl_isa_available(const char *isa, char *missing, size_t size);

/* One round of loading, by one thread: what its plugins share. */
typedef struct fl_loader {
  fl_host *host;
  fl_log *log;
  fl_trust trust;
  fl_process_state state;  /* from the first plugin that was opened on */
  fl_strings names, files; /* of those that were opened */
  bool saved;
} fl_loader;

void fl_loader_begin(fl_loader *loader, fl_host *host, fl_log *log);

/* Puts back what is only looked at when the round is over, with a warning. */
void fl_loader_end(fl_loader *loader);

/*
 * Judges a file while it is data: permissions, note, ABI, instruction sets. Fills `record` in every case but FL_ENOMEM
 * (then it is empty); its route and critical are the caller's to set. FL_EPLUGIN: the message, also in record->reason.
 */
fl_status fl_loader_judge(fl_loader *loader, const char *path, const fl_file *file, fl_plugin_record *record,
                          fl_note_info *info);

/*
 * Loads a file that was judged well: dlopen(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), entry symbol in that very file,
 * register_builtins, commit. `symbol` NULL = "register_builtins". FL_EPLUGIN with the loader's own words and a hint
 * when it failed: the message, also in record->reason; FL_ENOMEM: the record is empty. When it loaded, the reason says
 * which rows were refused, or why its platform is not active when it brings nothing else. What the plugin changed in
 * the process is put back and warned of. Holds no lock while the plugin's code runs.
 */
fl_status fl_loader_open(fl_loader *loader, const char *symbol, const fl_note_info *info, fl_plugin_record *record);

/* All of it for one file. */
fl_status fl_plugin_load(fl_host *host, fl_log *log, const char *path, const char *symbol, fl_plugin_record *record);

#endif
