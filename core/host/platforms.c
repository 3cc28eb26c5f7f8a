/* The platforms of a host: see platforms.h. The host itself knows the processor; the rest is what plugins say. */
#include "core/host/platforms.h"

#include "core/platform.h"
#include "core/plugins.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/support.h"

#include <flhost/vllm.h>
#include <stdlib.h>
#include <string.h>

const char *fl_find_platform(const void *host, const char *word) {
  fl_platform_kind *kinds = fl_platform_kinds_list((fl_host *)host);
  const fl_platform_kind *kind = kinds ? fl_platform_kind_named(kinds, word) : NULL;
  const char *name = kind ? kind->name : NULL;
  free(kinds);
  return name;
}

/* ---------------------------------------------------------------------------------------------------- device types */

enum { DEVICE_TYPES = 64 };

static bool find_device_type(const fl_platform_kind *kinds, const char *word, int32_t *device_type) {
  for (int32_t type = 0; type < DEVICE_TYPES; type++) {
    const char *name = fl_device_type_name(type);
    if (name && !strcmp(name, word)) {
      *device_type = type;
      return true;
    }
  }
  const fl_platform_kind *kind = fl_platform_kind_named(kinds, word);
  bool is_told = kind && kind->is_described;
  int32_t found = is_told ? kind->device_type : !strcmp(word, "ext") ? kDLExtDev : fl_dispatch_device(word);
  if (found > 0)
    *device_type = found;
  return found > 0;
}

static bool list_words(const fl_platform_kind *kinds, fl_strings *words) {
  bool done = fl_platform_kind_words(kinds, words);
  for (int32_t type = kDLCPU + 1; type < DEVICE_TYPES && done; type++)
    done = !fl_device_type_name(type) || fl_strings_add(words, fl_device_type_name(type));
  return done;
}

static fl_status unknown_device_type(const fl_platform_kind *kinds, const char *word) {
  fl_strings words = {0};
  fl_text platforms = {0};
  bool done = list_words(kinds, &words);
  for (const fl_platform_kind *kind = kinds; kind->name; kind++)
    fl_text_add(&platforms, "%s%s", kind == kinds ? "" : ", ", kind->name);
  fl_status status =
      !done || platforms.failed
          ? fl_error_no_memory()
          : fl_error(FL_ENOENT, "unknown device type '%s'%s\ndevice types: %s (and DLPack's other names: ext_dev)",
                     word, fl_platform_suggest(word, &words).text, fl_text_get(&platforms));
  fl_text_free(&platforms);
  fl_strings_free(&words);
  return status;
}

fl_status fl_find_device_type(fl_host *host, const char *word, int32_t *device_type) {
  fl_platform_kind *kinds = fl_platform_kinds_list(host);
  fl_status status = kinds ? FL_OK : fl_error_no_memory();
  if (!status && !find_device_type(kinds, word, device_type))
    status = unknown_device_type(kinds, word);
  free(kinds);
  return status;
}

/* ---------------------------------------------------------------------------------------------------- which is in
 * force
 */

static const char *config_dir(const fl_host *host) {
  const char *source;
  const char *named = fl_sources_text(&host->sources, &fl_setting_table[FL_SETTING_CONFIG_DIR], &source);
  return named ? named : host->sources.default_config_dir;
}

static fl_status put_in_force(fl_host *host, const char *name, const char *plugin, const char *origin) {
  host->platform = fl_arena_string(&host->owned, name);
  host->platform_origin = plugin && !origin ? fl_arena_format(&host->owned, "plugin '%s'", plugin)
                                            : fl_arena_string(&host->owned, origin ? origin : "detected");
  host->platform_plugin = fl_arena_string(&host->owned, plugin);
  if (plugin)
    fl_log_line(&host->log, FL_LOG_INFO, "Platform plugin %s is activated", plugin);
  return host->owned.failed ? fl_error_no_memory() : FL_OK;
}

fl_status fl_choose_platform(fl_host *host) {
  const char *origin = NULL, *name = NULL, *plugin = NULL;
  const char *forced = fl_config_forced_platform(&host->sources, &origin);
  fl_platform_kind *kinds = fl_platform_kinds_list(host);
  fl_status status = kinds ? FL_OK : fl_error_no_memory();
  fl_arena scratch = {0};
  uint32_t n = 0;
  if (!status && forced)
    status = fl_load_deferred_platform(host, forced);
  fl_component_record *components = fl_platforms_take(host, &scratch, &n);
  if (!status && !components)
    status = fl_error_no_memory();
  for (uint32_t i = 0; !status && !forced && i < n; i++)
    if (components[i].not_asked)
      fl_log_line(&host->log, FL_LOG_INFO, "platform '%s' of plugin '%s' is not asked whether it is active: %s",
                  components[i].name, components[i].plugin, components[i].not_asked);
  if (!status)
    status = fl_platform_activate(kinds, config_dir(host), forced, components, n, &name, &plugin);
  if (!status)
    status = put_in_force(host, name, plugin, forced ? origin : NULL);
  fl_arena_free(&scratch);
  free(kinds);
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- report */

/* Why no component stands for a kind. The loading lock is held, and the host's. */
static void explain_missing(const fl_host *host, fl_platform_kind *kinds) {
  for (fl_platform_kind *kind = kinds; kind->name; kind++)
    for (uint32_t i = 0; kind->plugin && i < host->n_plugins; i++)
      if (!strcmp(host->plugins[i].name, kind->plugin) && *host->plugins[i].reason)
        kind->problem = host->plugins[i].reason;
}

fl_status fl_get_platform(fl_host *host, fl_platform_report **report) {
  fl_loading_begin(host); /* no plugin is withdrawn, or loaded by somebody else: the components stay */
  fl_status status = fl_load_deferred_platform(host, NULL);
  fl_platform_kind *kinds = fl_platform_kinds_list(host);
  fl_arena scratch = {0};
  uint32_t n;
  const fl_component_record *components = fl_platforms_take(host, &scratch, &n);
  pthread_mutex_lock(&host->lock);
  char *file = fl_strdup(host->config->platform_file ? host->config->platform_file : "");
  if (kinds)
    explain_missing(host, kinds);
  pthread_mutex_unlock(&host->lock);
  if (!file || !kinds || !components)
    status = fl_error_no_memory();
  if (!status)
    status = fl_platform_report_create(kinds, host->platform, host->platform_origin, file, components, n, report);
  fl_loading_end(host);
  fl_arena_free(&scratch);
  free(kinds);
  free(file);
  return status;
}
