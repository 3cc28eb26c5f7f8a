/* Variables, one a line. Files that they name are not the machine's: a value with a slash is left out. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/settings.h"

#include <string.h>

enum { VARIABLES = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  const char *lines[VARIABLES + 1], *environment[VARIABLES + 1];
  size_t n = 0;
  fuzz_split(data, size, lines, VARIABLES);
  for (size_t i = 0; i < VARIABLES && lines[i]; i++)
    if (!strchr(lines[i], '/'))
      environment[n++] = lines[i];
  environment[n] = NULL;
  fuzz_settings(environment, NULL);
  return 0;
}
