/* A plugin's file, read while it is data. */
#include "core/plugins/elf_note.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

/* Reads all of it, so that a string without an end is found. */
static void read_text(const char *text) {
  volatile size_t length = text ? strlen(text) : 0;
  (void)length;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *path = fuzz_file(data, size);
  fl_note_info info = {0};
  if (!fl_note_read(path, &info)) {
    fl_platform_note platform = fl_note_platform(&info);
    const char *const texts[] = {info.build_id, info.ops, info.platform, info.signs, info.hardware, platform.name};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
      read_text(texts[i]);
    fl_note_clear(&info);
  } else if (!*fl_error_message()) {
    fuzz_broken("refused without words");
  }
  for (int which = FL_ELF_NEEDED; which <= FL_ELF_UNDEFINED; which++) {
    fl_strings names = {0};
    fl_elf_read_dynamic(path, (fl_elf_names)which, &names);
    fl_strings_free(&names);
  }
  return 0;
}
