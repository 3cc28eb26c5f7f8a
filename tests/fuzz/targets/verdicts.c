/* What is kept about plugins that were tried: the bytes with a digest that is right, and as they are. */
#include "core/plugins/verdicts.h"
#include "tests/fuzz/fuzz.h"

#include <sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void quiet(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

static void read_as(const uint8_t *data, size_t size) {
  char variable[400];
  fuzz_named_file("flhost/verdicts", data, size);
  snprintf(variable, sizeof variable, "XDG_CACHE_HOME=%s", fuzz_directory());
  const char *const environment[] = {variable, NULL};
  fl_config_sources sources = {.environment = environment};
  fl_log log = {.fn = quiet, .level = FL_LOG_DEBUG};
  fl_verdicts list = {0};
  fl_verdicts_open(&list, &sources, &log);
  for (uint32_t i = 0; i < list.n; i++) {
    if (*list.items[i].key.file != '/' || !list.items[i].words)
      fuzz_broken("a verdict about '%s'", list.items[i].key.file);
    fl_verdicts_find(&list, list.items[i].key.file, &list.items[i].key);
  }
  fl_verdicts_save(&list, &log);
  fl_verdicts_close(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char digest[FL_SHA256_SIZE];
  char *sealed = malloc(size + 100);
  if (!sealed)
    fuzz_broken("out of memory");
  memcpy(sealed, data, size);
  SHA256Data(data, size, digest);
  int tail = snprintf(sealed + size, 100, "sha256 %s\n", digest);
  read_as((const uint8_t *)sealed, size + (size_t)tail);
  free(sealed);
  read_as(data, size);
  return 0;
}
