#include "tests/fuzz/settings.h"
#include "core/settings.h"
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

/* What is said of a setting is JSON, and of valid UTF-8. */
static void check_json(const fl_config *config, fl_setting_id id) {
  fl_text json = {0};
  json_error_t error;
  fl_setting_table[id].type->to_json(&fl_setting_table[id], &config->values[id], &json);
  json_t *value = json_loads(fl_text_get(&json), JSON_DECODE_ANY, &error);
  if (!value)
    fuzz_broken("setting %d is not JSON (%s): %s", (int)id, error.text, fl_text_get(&json));
  json_decref(value);
  fl_text_free(&json);
}

static void check_config(const fl_config *config, const fl_config *again) {
  for (size_t id = 0; id < FL_N_SETTINGS; id++) {
    check_json(config, (fl_setting_id)id);
    if (!fl_config_origin(config, (fl_setting_id)id))
      fuzz_broken("setting %zu has no origin", id);
  }
  if (!fl_policy_equal(config->policy, again->policy))
    fuzz_broken("the same settings gave two policies");
  if (strcmp(fl_policy_fingerprint(config->policy), fl_policy_fingerprint(again->policy)) != 0)
    fuzz_broken("equal policies have two fingerprints");
}

static void quiet(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

void fuzz_settings(const char *const *environment, const char *config_dir) {
  fl_config_sources sources = {.environment = environment, .config_dir = config_dir};
  fl_log log = {.fn = quiet, .level = FL_LOG_DEBUG};
  fl_config *config = NULL, *again = NULL;
  fl_status status = fl_config_load(&sources, "fuzz", &log, &config);
  if (status) {
    if (status != FL_ECONFIG || config || !*fl_error_message())
      fuzz_broken("status %d, message \"%s\"", (int)status, fl_error_message());
    return;
  }
  if (fl_config_load(&sources, "fuzz", &log, &again))
    fuzz_broken("settings that loaded do not load again: %s", fl_error_message());
  check_config(config, again);
  fl_config_free(again);
  fl_config_free(config);
}
