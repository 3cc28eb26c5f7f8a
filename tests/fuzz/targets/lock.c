/* A plugins.lock. */
#include "core/plugins/lock.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fl_lock lock = {0};
  fl_status status = fl_lock_read(fuzz_file(data, size), &lock);
  if (status) {
    if (status != FL_ECONFIG || lock.n || !*fl_error_message())
      fuzz_broken("status %d, %u entries, message \"%s\"", (int)status, lock.n, fl_error_message());
    return 0;
  }
  for (uint32_t i = 0; i < lock.n; i++) {
    const fl_lock_entry *entry = &lock.entries[i];
    if (*entry->file != '/' || strlen(entry->sha256) != FL_SHA256_TEXT - 1)
      fuzz_broken("an entry of '%s' with the digest '%s'", entry->file, entry->sha256);
    if (!fl_lock_find(&lock, entry->file))
      fuzz_broken("'%s' is listed and not found", entry->file);
  }
  fl_lock_free(&lock);
  return 0;
}
