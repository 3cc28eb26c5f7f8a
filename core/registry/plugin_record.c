/* Records of plugins: see plugin_record.h. */
#include "core/registry/plugin_record.h"

#include <stdlib.h>
#include <string.h>

void fl_plugin_record_clear(fl_plugin_record *record) {
  char *strings[] = {record->name,   record->file,     record->version, record->vendor,   record->licence, record->abi,
                     record->reason, record->build_id, record->ops,     record->platform, record->symbol};
  for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
    free(strings[i]);
  *record = (fl_plugin_record){0};
}

bool fl_ops_list(const char *ops, size_t length, const char *name, size_t name_length) {
  for (const char *at = ops, *end = ops + length; at < end;) {
    const char *comma = memchr(at, ',', (size_t)(end - at));
    size_t n = (size_t)((comma ? comma : end) - at);
    if (n == name_length && !memcmp(at, name, n))
      return true;
    at += n + 1;
  }
  return false;
}
