/* Notes that the process has read. */
#ifndef FLHOST_CORE_PLUGINS_NOTE_CACHE_H
#define FLHOST_CORE_PLUGINS_NOTE_CACHE_H

#include "core/plugins/elf_note.h"
#include "core/plugins/trust.h"

/* The same; what the process has read before is not read again as long as the file has not changed. */
fl_status fl_note_of_file(const char *path, const fl_file *file, fl_note_info *info);

#endif
