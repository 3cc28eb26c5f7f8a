/* Records of plugins: see plugin_record.h. */
#include "core/registry/plugin_record.h"

#include <string.h>

const char *fl_plugin_status_name(fl_plugin_status status) {
  static const char *const names[] = {"?", "loaded", "unavailable", "skipped", "failed", "deferred"};
  return names[status];
}

fl_plugin_record fl_plugin_record_begin(const char *file) {
  fl_plugin_record record = {
      .name = "",
      .version = "",
      .vendor = "",
      .licence = "",
      .abi = "",
      .reason = "",
      .build_id = "",
      .route = "",
      .status = FL_PLUGIN_FAILED,
  };
  record.file = fl_arena_string(&record.owned, file);
  return record;
}

void fl_plugin_record_clear(fl_plugin_record *record) {
  fl_arena_free(&record->owned);
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
