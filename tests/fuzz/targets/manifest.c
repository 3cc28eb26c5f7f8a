/* A package's manifest of a plugin. */
#include "core/plugins/drop_in.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fl_found_list found = {0};
  fl_manifest_read(fuzz_file(data, size), &found);
  if (found.n != 1 || found.owned.failed)
    fuzz_broken("%u plugins of one manifest", found.n);
  const fl_found *first = found.items;
  if (!first->problem && !first->path && !first->disabled)
    fuzz_broken("a manifest without library and without a problem");
  fl_found_list_free(&found);
  return 0;
}
