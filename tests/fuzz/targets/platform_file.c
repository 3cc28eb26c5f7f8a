/* A platform file, which a directory of the operator's has. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_file(data, size);
  fuzz_settings((const char *const[]){NULL}, fuzz_directory());
  return 0;
}
