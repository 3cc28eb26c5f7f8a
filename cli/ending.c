/* See ending.h. */
#include "cli/ending.h"

#include "cli/cli.h"

#include <link.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile bool guarded, watched;
static char doing[512];

/* Has the file, as it is mapped, a note of ours? */
static bool is_plugin(const struct dl_phdr_info *file) {
  static const char owner[8] = "flhost";
  for (int i = 0; i < file->dlpi_phnum; i++) {
    const ElfW(Phdr) *part = &file->dlpi_phdr[i];
    if (part->p_type != PT_NOTE)
      continue;
    const char *at = (const char *)file->dlpi_addr + part->p_vaddr, *end = at + part->p_memsz;
    while (end - at > (ptrdiff_t)sizeof(ElfW(Nhdr))) {
      ElfW(Nhdr) note;
      memcpy(&note, at, sizeof note);
      at += sizeof note;
      if (note.n_namesz == sizeof owner && end - at >= (ptrdiff_t)sizeof owner && !memcmp(at, owner, sizeof owner))
        return true;
      at += (note.n_namesz + 3u) / 4 * 4 + (note.n_descsz + 3u) / 4 * 4;
    }
  }
  return false;
}

/* The linker lists files in the order in which they were opened. */
static int keep_last(struct dl_phdr_info *file, size_t size, void *last) {
  (void)size;
  if (is_plugin(file))
    *(const char **)last = file->dlpi_name;
  return 0;
}

static void end(void) {
  const char *plugin = NULL;
  if (!guarded || getenv("FLHOST_JUDGING")) /* there who watches wants the plugins' own end (fl_probe_plugin) */
    return;
  if (!watched) {
    dl_iterate_phdr(keep_last, &plugin);
    cli_error("the process was ended from within, by exit() or pthread_exit(), before there was a result%s%s%s%s",
              *doing ? "; it happened while " : "", doing, plugin ? "; the plugin that was opened last is " : "",
              plugin ? plugin : "");
    fflush(stdout); /* what was printed so far is shown, but it is not all */
  }
  _exit(EXIT_USAGE);
}

void cli_guard_ending(void) {
  guarded = !atexit(end);
}

void cli_ending_is_due(void) {
  guarded = false;
}

void cli_ending_is_watched(void) {
  watched = true;
}

void cli_doing(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(doing, sizeof doing, format, arguments);
  va_end(arguments);
}
