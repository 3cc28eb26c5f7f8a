/* A package's manifest of a plugin. */
#include "core/plugins/drop_in.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fl_found found = {0};
  fl_status status = fl_manifest_read(fuzz_file(data, size), &found);
  if (status)
    fuzz_broken("status %d: %s", (int)status, fl_error_message());
  if (!found.problem && !found.path && !found.disabled)
    fuzz_broken("a manifest without library and without a problem");
  fl_found_clear(&found);
  return 0;
}
