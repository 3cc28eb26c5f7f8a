/*
 * One plugin file: judged by its note before it is mapped, opened, its entry found and called. Knows nothing of where
 * files come from (discovery.h).
 */
#ifndef FLHOST_CORE_PLUGINS_LOADER_H
#define FLHOST_CORE_PLUGINS_LOADER_H

#include "core/plugins/elf_note.h"
#include "core/plugins/judge.h"
#include "core/plugins/lock.h"
#include "core/plugins/trust.h"
#include "core/registry.h"

/* A plugin's name before its note is read: the file's name without "libflhost_" or "lib" and ".so". */
const char *fl_plugin_name_of_file(fl_arena *arena, const char *path);

/* One round of loading, by one thread: what its plugins share. */
typedef struct fl_loader {
  fl_host *host;
  fl_log *log;
  fl_trust trust;
  fl_locks locks; /* once they are read */
  bool locks_are_read;
  fl_judge judge;
} fl_loader;

void fl_loader_begin(fl_loader *loader, fl_host *host, fl_log *log);
/* FL_ECONFIG: a plugins.lock is in force and broken. Each plugin of the round is refused then, with the same words. */
fl_status fl_loader_read_locks(fl_loader *loader);
void fl_loader_end(fl_loader *loader);

/*
 * Judges a file while it is data: permissions, whether plugins.lock lists it, note, ABI, instruction sets. Fills
 * `record` in every case but FL_ENOMEM (then it is empty); its route and critical are the caller's to set. FL_EPLUGIN:
 * the message, also in record->reason.
 */
fl_status fl_loader_judge(fl_loader *loader, const char *path, const fl_file *file, fl_plugin_record *record,
                          fl_note_info *info);

/*
 * Loads a file that was judged well, if plugins.lock has it, byte for byte, and it does no harm in another process
 * (judge.h): dlopen(RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE), entry symbol in that very file, register_builtins, commit.
 * `symbol` NULL = "register_builtins". FL_EPLUGIN with the loader's own words and a hint when it failed: the message,
 * also in record->reason; FL_ENOMEM: the record is empty. When it loaded, the reason says which rows were refused, or
 * why its platform is not active when it brings nothing else. What the plugin changed of the thread is put back, and
 * that or a change of the process's state warned of. Holds no lock while the plugin's code runs.
 */
fl_status fl_loader_open(fl_loader *loader, const char *symbol, const fl_note_info *info, fl_plugin_record *record);

#endif
