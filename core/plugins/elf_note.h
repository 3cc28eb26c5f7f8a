/* What a plugin's file says of itself, read while it is data. */
#ifndef FLHOST_CORE_PLUGINS_ELF_NOTE_H
#define FLHOST_CORE_PLUGINS_ELF_NOTE_H

#include "core/platform.h"
#include "core/support.h"
#include <flhost/plugin.h>

/* What a file says of itself, read without mapping it as code. */
typedef struct fl_note_info {
  fl_plugin_note note;       /* zero beyond what the file's own size covers; strings always end */
  char build_id[65];         /* hex, "" if none */
  char *ops;                 /* "op_a,op_b", FL_PLUGIN_OPS without white space; NULL if it has none */
  const char *platform;      /* FL_PLUGIN_PLATFORM: its name; NULL if it has none */
  const char *signs;         /* that the platform may be active: "/dev/a,$B"; NULL if `platform` is */
  const char *hardware;      /* FL_PLUGIN_HARDWARE; NULL if it has none */
  const char *vendor;        /* FL_PLUGIN_VENDOR; NULL if it has none */
  const char *communicators; /* FL_PLUGIN_COMMUNICATORS, "a,b"; NULL if it has none. Then `ops` is not NULL */
  fl_arena owned;            /* these six */
  /* Loading it makes the process's stack executable, or writes to code that is mapped. */
  bool executable_stack, text_relocations;
} fl_note_info;

/* FL_EPLUGIN: not an ELF file, truncated, another architecture, no note, a bad list of ops, platform or vendor: the
 * message
 * says what the file is, and nothing is in *info. */
fl_status fl_note_read(const char *path, fl_note_info *info);
void fl_note_clear(fl_note_info *info);

/* What it says of its platform, borrowed; its name is NULL if it has none. */
fl_platform_note fl_note_platform(const fl_note_info *info);

/* Names in the dynamic part of a file: libraries that it needs, symbols that it exports, and those that it wants of
 * others (both by its section headers; none if stripped). FL_EPLUGIN as fl_note_read. */
typedef enum fl_elf_names { FL_ELF_NEEDED, FL_ELF_EXPORTS, FL_ELF_UNDEFINED } fl_elf_names;
fl_status fl_elf_read_dynamic(const char *path, fl_elf_names which, fl_strings *list);

#endif
