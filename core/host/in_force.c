/* The settings in force: see in_force.h. */
#include "core/host/in_force.h"

#include "core/call.h"
#include "core/host/unknown_names.h"
#include "core/registry.h"
#include "core/settings.h"
#include "core/support.h"
#include "core/vllm.h"

#include <limits.h>
#include <string.h>

fl_status fl_settings_load_first(fl_host *host) {
  static const fl_setting_id wanted[] = {FL_SETTING_ALLOW_VENDORS, FL_SETTING_DENY_VENDORS, FL_SETTING_CONFIG};
  fl_log silent = {.level = INT_MAX}; /* what is wrong is said when all is read */
  const char *source, *text = NULL;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted && !text; i++)
    text = fl_sources_text(&host->sources, &fl_setting_table[wanted[i]], &source);
  fl_status status = text ? fl_config_load(&host->sources, NULL, &silent, &host->first_config) : FL_OK;
  return status == FL_ENOMEM ? status : FL_OK;
}

fl_status fl_settings_load(fl_host *host) {
  fl_config *config = NULL;
  fl_status status = fl_config_load(&host->sources, host->platform, &host->log, &config);
  if (!status)
    status = fl_custom_ops_check(host, config);
  if (status) {
    fl_config_free(config);
    return status;
  }
  pthread_mutex_lock(&host->lock);
  status = fl_refuse_frozen(host, "resetting the global policy");
  if (status) {
    pthread_mutex_unlock(&host->lock);
    fl_config_free(config);
    return status;
  }
  fl_config *before = host->config, *first = host->first_config;
  host->first_config = NULL;
  fl_policy *policy_before = host->policy;
  host->config = config;
  host->policy = fl_policy_retain(config->policy);
  host->policy_is_set = false;
  atomic_store(&host->log.level, config->log_level);
  fl_host_advance(host);
  pthread_mutex_unlock(&host->lock);
  fl_config_free(before);
  fl_config_free(first);
  fl_policy_release(policy_before);
  fl_host_let_in(host);
  return FL_OK;
}

/* A word or number without the marks of JSON. */
static fl_status put_text(fl_config *config, fl_setting_id id, char *value, size_t size) {
  const fl_setting_row *row = &fl_setting_table[id];
  __attribute__((cleanup(fl_text_free))) fl_text json = {0};
  const char *text = config->values[id].word;
  if (row->type != &fl_type_word || !text) {
    row->type->to_json(row, &config->values[id], &json);
    text = fl_text_get(&json);
  }
  if (json.failed)
    return fl_error_no_memory();
  if (strlen(text) >= size)
    return fl_error(FL_EINVAL, "setting '%s' has %zu bytes, expected room for them and a NUL", fl_setting_name(row),
                    strlen(text));
  strcpy(value, text);
  return FL_OK;
}

/* Before the settings are in force they are read for this alone: what is wrong with them is said when they are. */
fl_status fl_settings_text(fl_host *host, const char *name, char *value, size_t size) {
  const fl_setting_row *row = fl_setting_find(name, true);
  fl_log silent = {.level = INT_MAX};
  fl_config *read = NULL;
  fl_status status = FL_OK;
  if (size)
    *value = 0;
  if (!row && !(row = fl_setting_find(name, false)))
    return fl_error(FL_ENOENT, "there is no setting '%s'%s", name, fl_suggest(fl_setting_nearest(name, false)).text);
  pthread_mutex_lock(&host->lock);
  bool is_known = host->config;
  if (is_known)
    status = put_text(host->config, (fl_setting_id)(row - fl_setting_table), value, size);
  pthread_mutex_unlock(&host->lock);
  if (!is_known)
    status = fl_config_load(&host->sources, NULL, &silent, &read);
  if (read)
    status = put_text(read, (fl_setting_id)(row - fl_setting_table), value, size);
  fl_config_free(read);
  return status;
}

fl_status fl_set_log_level(fl_host *host, const char *level) {
  static const char *const names[] = {"DEBUG", "INFO", "WARNING", "ERROR", NULL};
  int number = fl_log_level_from_name(level);
  if (!number)
    return fl_error(FL_EINVAL, "log level '%s': expected DEBUG, INFO, WARNING or ERROR%s", level,
                    fl_suggest(fl_nearest_or_beginning(level, names)).text);
  atomic_store(&host->log.level, number);
  return FL_OK;
}

fl_status fl_reset_global_policy(fl_host *host) {
  fl_status status = fl_refuse_frozen_unlocked(host, "resetting the global policy");
  if (!status)
    status = fl_settings_load(host);
  if (!status)
    fl_warn_of_unknown_names(host);
  fl_host_bound_memory(host);
  return status;
}

fl_status fl_get_settings(fl_host *host, fl_settings **result) {
  fl_arena *arena;
  fl_settings *list = fl_arena_create(sizeof *list, &arena);
  if (!list)
    return fl_error_no_memory();
  pthread_mutex_lock(&host->lock);
  const fl_config *config = host->config;
  fl_setting *items = fl_arena_array(arena, FL_N_SETTINGS, sizeof *items);
  for (uint32_t i = 0; items && i < FL_N_SETTINGS; i++) {
    const fl_setting_row *row = &fl_setting_table[i];
    fl_text json = {0};
    row->type->to_json(row, &config->values[i], &json);
    items[i] = (fl_setting){
        .name = fl_setting_name(row),
        .variable = row->variable,
        .value = fl_arena_text(arena, &json),
        .origin = fl_arena_string(arena, config->values[i].origin),
        .doc = row->doc,
    };
  }
  *list = (fl_settings){.size = sizeof *list, .n = FL_N_SETTINGS, .item_size = sizeof *items, .items = items};
  pthread_mutex_unlock(&host->lock);
  fl_status status = fl_arena_finish(list, sizeof *list);
  if (!status)
    *result = list;
  return status;
}

void fl_settings_free(fl_settings *settings) {
  fl_arena_destroy(settings, sizeof *settings);
}
