/* One plugin file, judged and opened by a host's loader as discovery does it, and what became of it. */
#ifndef FLHOST_TESTS_LOADED_H
#define FLHOST_TESTS_LOADED_H

#include "core/plugins/loader.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

static fl_host *host;
static fl_plugin_record record;

static inline void tear_down(void) {
  fl_plugin_record_clear(&record);
  fl_host_destroy(host);
  scratch_remove();
}

/* `symbol` NULL: register_builtins. */
static inline fl_status load(const char *path, const char *symbol) {
  fl_loader loader;
  fl_note_info info;
  fl_file file = fl_file_look(path);
  fl_plugin_record_clear(&record);
  fl_loader_begin(&loader, host, &host->log);
  fl_status status = fl_loader_judge(&loader, path, &file, &record, &info);
  if (!status)
    status = fl_loader_open(&loader, symbol, &info, &record);
  fl_note_clear(&info);
  fl_loader_end(&loader);
  return status;
}

#endif
