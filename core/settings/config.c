/*
 * What is in force: reads variables, options and one file into the values of the table, settles what the rules say of
 * settings that bear on each other, and publishes the result with its origins.
 */
#include "core/settings/config.h"

#include "core/settings/op_config.h"
#include "core/settings/policy.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct settings_reader {
  const fl_config_sources *sources;
  const char *platform;
  fl_problems problems;
  fl_setting_value *values; /* of the configuration that is made */
  bool complete;            /* a VLLM_FL_CONFIG file is in force */
  char *platform_file;
} settings_reader;

static const char *variable_of(fl_setting_id id) {
  return fl_setting_table[id].variable;
}

/* ------------------------------------------------------------------------------------------------- reading sources */

/* These say where and how to read the rest. */
static bool is_first(size_t id) {
  return id == FL_SETTING_CHECK || id == FL_SETTING_CONFIG || id == FL_SETTING_CONFIG_DIR;
}

static void read_text(settings_reader *reader, size_t id) {
  const fl_setting_row *row = &fl_setting_table[id];
  const char *source, *text = fl_sources_text(reader->sources, row, &source);
  if (!text)
    return;
  if (reader->complete && (row->key || row->flags & FL_SETTING_OF_OPS)) {
    if (!reader->sources->reload)
      fl_log_line(reader->problems.log, FL_LOG_INFO,
                  "%s is ignored: the policy file '%s' (%s) replaces every other source", source,
                  reader->values[FL_SETTING_CONFIG].word, reader->values[FL_SETTING_CONFIG].origin);
    return;
  }
  fl_setting_from_text(&reader->problems, row, source, text, &reader->values[id]);
}

/* VLLM_FL_CHECK: what is read from here on is judged by it. */
static void read_check(settings_reader *reader) {
  static const fl_check_mode modes[] = {FL_CHECK_ERROR, FL_CHECK_WARN, FL_CHECK_OFF};
  const fl_setting_value *check = &reader->values[FL_SETTING_CHECK];
  const char *const *words = fl_setting_table[FL_SETTING_CHECK].words;
  read_text(reader, FL_SETTING_CHECK);
  for (size_t i = 0; check->set && words[i]; i++)
    if (!strcmp(check->word, words[i]))
      reader->problems.check = modes[i];
}

/* C1: the file that replaces all others. Not found or no file at all: the peer goes on to the next source. */
static void read_config_file(settings_reader *reader) {
  fl_setting_value *config = &reader->values[FL_SETTING_CONFIG];
  fl_problems *problems = &reader->problems;
  fl_yaml *yaml = NULL;
  if (!config->set)
    return;
  fl_status status = fl_yaml_load(config->word, &yaml);
  if (status == FL_ENOMEM)
    problems->no_memory = true;
  else if (status == FL_ENOENT)
    fl_problem(problems, (fl_place){.source = config->origin}, "Config file '%s' not found.", config->word);
  else if (status == FL_EINVAL)
    fl_problem(problems, (fl_place){.source = config->origin}, "Config file %s", fl_error_message());
  else if (status)
    fl_problem_fatal(problems, (fl_place){0}, "Failed to load config file '%s': %s", config->word, fl_error_message());
  else {
    fl_log_line(reader->problems.log, FL_LOG_INFO, "Using custom config from '%s'", config->word);
    fl_settings_from_yaml(problems, yaml, reader->values);
    reader->complete = true;
  }
  if (!reader->complete)
    fl_setting_value_free(config);
  fl_yaml_free(yaml);
}

static void use_platform_file(settings_reader *reader, char *path) {
  fl_yaml *yaml = NULL;
  fl_status status = fl_yaml_load(path, &yaml);
  if (status == FL_ENOMEM)
    reader->problems.no_memory = true;
  else if (status && status != FL_ENOENT)
    fl_problem(&reader->problems, (fl_place){0}, "Failed to load platform config: %s", fl_error_message());
  if (!status) {
    fl_log_line(reader->problems.log, FL_LOG_INFO, "Using platform config from '%s'", path);
    fl_settings_from_yaml(&reader->problems, yaml, reader->values);
    reader->platform_file = path;
  } else
    free(path);
  fl_yaml_free(yaml);
}

static void read_platform_file(settings_reader *reader) {
  fl_setting_value *dir = &reader->values[FL_SETTING_CONFIG_DIR];
  const char *platform = reader->platform, *path = dir->set ? dir->word : reader->sources->default_config_dir;
  struct stat about;
  if (!platform || !*platform || !path)
    return;
  /* The name becomes part of a path. */
  if (*platform == '.' || strchr(platform, '/')) {
    fl_problem_fatal(&reader->problems, (fl_place){0},
                     "'%s' is not the name of a platform: it must not hold '/' or begin with '.'", platform);
    return;
  }
  if (dir->set && (stat(path, &about) || !S_ISDIR(about.st_mode)))
    fl_problems_warn(&reader->problems, "%s: '%s' is not a directory; no platform file is read", dir->origin, path);
  char *file = fl_format("%s/%s.yaml", path, platform);
  if (file)
    use_platform_file(reader, file);
  else
    reader->problems.no_memory = true;
}

/* ---------------------------------------------------------------------------- settings that bear on each other */

static void set_origin(settings_reader *reader, fl_setting_value *value, const char *origin) {
  fl_origin_free(value->origin);
  value->origin = fl_place_origin(&reader->problems, (fl_place){.source = origin});
}

static void set_word(settings_reader *reader, fl_setting_id id, const char *word) {
  char *copy = fl_strdup(word);
  reader->problems.no_memory |= !copy;
  free(reader->values[id].word);
  reader->values[id].word = copy;
}

/* Takes a value out of force, by the rule of another setting. */
static void overrule(settings_reader *reader, fl_setting_id id, const char *origin) {
  fl_setting_value_free(&reader->values[id]);
  set_origin(reader, &reader->values[id], origin);
}

/* VLLM_FL_OP_CONFIG beats VLLM_FL_PER_OP, which beats op_backends; the whole map each time, unless it is empty. */
static void apply_op_config(settings_reader *reader) {
  const fl_setting_value *path = &reader->values[FL_SETTING_OP_CONFIG];
  fl_setting_value *backends = &reader->values[FL_SETTING_OP_BACKENDS];
  fl_orders orders = {0};
  if (!path->set)
    return;
  fl_opconfig_load(&reader->problems, path->word, &orders);
  if (!orders.n) {
    fl_orders_free(&orders);
    return;
  }
  fl_orders_free(&backends->orders);
  backends->orders = orders;
  backends->set = true;
  set_origin(reader, backends, variable_of(FL_SETTING_OP_CONFIG));
}

static bool from_variable(const settings_reader *reader, fl_setting_id id) {
  const fl_setting_value *value = &reader->values[id];
  return value->set && value->origin && !strcmp(value->origin, variable_of(id));
}

/* A variable that another setting leaves without effect. */
static void say_ignored(settings_reader *reader, fl_setting_id ignored, fl_setting_id by) {
  if (!reader->sources->reload)
    fl_log_line(reader->problems.log, FL_LOG_INFO, "%s is ignored: %s (%s) says which are allowed",
                variable_of(ignored), fl_setting_name(&fl_setting_table[by]), reader->values[by].origin);
}

/* L1 and L2: both variables cannot be set; a whitelist takes every blacklist out of force. */
static void apply_whitelist(settings_reader *reader, fl_setting_id white, fl_setting_id black, bool fatal) {
  if (from_variable(reader, white) && from_variable(reader, black))
    (fatal ? fl_problem_fatal : fl_problem)(&reader->problems, (fl_place){0},
                                            "Cannot set both %s and %s simultaneously. Please set only one of them.",
                                            variable_of(white), variable_of(black));
  if (!reader->values[white].set || !reader->values[white].origin)
    return;
  if (from_variable(reader, black))
    say_ignored(reader, black, white);
  overrule(reader, black, reader->values[white].origin);
}

static void append_blacklist(settings_reader *reader) {
  const fl_setting_value *more = &reader->values[FL_SETTING_FLAGOS_BLACKLIST_APPEND];
  fl_setting_value *black = &reader->values[FL_SETTING_FLAGOS_BLACKLIST];
  if (!more->names.n)
    return;
  if (reader->values[FL_SETTING_FLAGOS_WHITELIST].set) {
    say_ignored(reader, FL_SETTING_FLAGOS_BLACKLIST_APPEND, FL_SETTING_FLAGOS_WHITELIST);
    return;
  }
  for (uint32_t i = 0; i < more->names.n && !reader->problems.no_memory; i++)
    reader->problems.no_memory = !fl_strings_add(&black->names, more->names.items[i]);
  reader->problems.no_memory |= !fl_strings_unique(&black->names);
  char *both = black->set ? fl_format("%s and %s", black->origin, more->origin) : fl_strdup(more->origin);
  reader->problems.no_memory |= !both;
  fl_origin_free(black->origin);
  black->origin = both;
  black->set = true;
}

/* VLLM_FL_PREFER_ENABLED=false: the reference runs, and where there is none the vendor's; nothing else is asked. That
 * kind flagos is out is fl_config_flagos_allowed's affair. */
static void apply_dispatch_off(settings_reader *reader) {
  static const fl_setting_id ignored[] = {FL_SETTING_PREFER, FL_SETTING_OP_BACKENDS, FL_SETTING_ALLOW_VENDORS,
                                          FL_SETTING_DENY_VENDORS, FL_SETTING_OOT_ENABLED};
  const char *origin = variable_of(FL_SETTING_PREFER_ENABLED);
  if (reader->values[FL_SETTING_PREFER_ENABLED].flag)
    return;
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
    overrule(reader, ignored[i], origin);
  set_word(reader, FL_SETTING_PREFER, "reference");
}

static void check_retry(fl_problems *problems, fl_setting_value values[FL_N_SETTINGS]) {
  fl_setting_value *first = &values[FL_SETTING_RETRY_FIRST], *longest = &values[FL_SETTING_RETRY_MAX];
  if (longest->seconds >= first->seconds)
    return;
  fl_problem(problems, (fl_place){0}, "%s: retry_max_s %g is less than retry_first_s %g (%s), expected at least that",
             longest->origin, longest->seconds, first->seconds, first->origin);
  longest->seconds = first->seconds;
}

/* What is in force where no word was given, or another one. */
static void name_defaults(settings_reader *reader) {
  const char *origin, *forced = fl_config_forced_platform(reader->sources, &origin);
  set_word(reader, FL_SETTING_PLATFORM, forced ? forced : "auto");
  if (!reader->values[FL_SETTING_CONFIG_DIR].word && reader->sources->default_config_dir)
    set_word(reader, FL_SETTING_CONFIG_DIR, reader->sources->default_config_dir);
}

static void settle(settings_reader *reader) {
  apply_op_config(reader);
  apply_whitelist(reader, FL_SETTING_FLAGOS_WHITELIST, FL_SETTING_FLAGOS_BLACKLIST, true);
  /* The peer lets this whitelist win, so that only VLLM_FL_CHECK=error refuses it. */
  apply_whitelist(reader, FL_SETTING_OOT_WHITELIST, FL_SETTING_OOT_BLACKLIST, false);
  append_blacklist(reader);
  fl_settings_add_builtin(&reader->problems, reader->values);
  apply_dispatch_off(reader);
  check_retry(&reader->problems, reader->values);
  name_defaults(reader);
}

/* ---------------------------------------------------------------------------------------------------- publishing */

static fl_status make_policy(const fl_setting_value values[FL_N_SETTINGS], fl_policy **policy) {
  const fl_orders *orders = &values[FL_SETTING_OP_BACKENDS].orders;
  const fl_strings *deny = &values[FL_SETTING_DENY_VENDORS].names, *allow = &values[FL_SETTING_ALLOW_VENDORS].names;
  fl_op_order *per_op = calloc((size_t)orders->n + 1, sizeof *per_op);
  if (!per_op)
    return fl_error_no_memory();
  for (uint32_t i = 0; i < orders->n; i++)
    per_op[i] = (fl_op_order){orders->items[i].op, (const char *const *)orders->items[i].tokens.items,
                              orders->items[i].tokens.n};
  fl_policy_fields fields = {.size = sizeof fields,
                             .prefer = values[FL_SETTING_PREFER].word,
                             .strict = values[FL_SETTING_STRICT].flag,
                             .preserve_inputs = values[FL_SETTING_PRESERVE_INPUTS].flag,
                             .host_fallback = values[FL_SETTING_HOST_FALLBACK].flag,
                             .per_op = per_op,
                             .n_per_op = orders->n,
                             .per_op_size = sizeof *per_op,
                             .deny_vendors = (const char *const *)deny->items,
                             .n_deny_vendors = deny->n,
                             .allow_vendors = allow->n ? (const char *const *)allow->items : NULL,
                             .n_allow_vendors = allow->n};
  /* The tokens were checked where they stand; with VLLM_FL_CHECK=warn invalid ones stay and match nothing. */
  fl_status status = fl_policy_create_unchecked(&fields, policy);
  free(per_op);
  return status;
}

static void free_values(fl_setting_value values[FL_N_SETTINGS]) {
  for (size_t id = 0; id < FL_N_SETTINGS; id++)
    fl_setting_value_free(&values[id]);
}

fl_status fl_config_load(const fl_config_sources *sources, const char *platform, fl_log *log, fl_config **config) {
  fl_config *made = calloc(1, sizeof *made);
  if (!made)
    return fl_error_no_memory();
  settings_reader reader = {.sources = sources, .platform = platform, .problems = {.log = log}, .values = made->values};
  read_check(&reader);
  read_text(&reader, FL_SETTING_CONFIG);
  read_text(&reader, FL_SETTING_CONFIG_DIR);
  fl_sources_report(sources, &reader.problems);
  read_config_file(&reader);
  if (!reader.complete)
    read_platform_file(&reader);
  for (size_t id = 0; id < FL_N_SETTINGS; id++)
    if (!is_first(id))
      read_text(&reader, id);
  settle(&reader);
  made->platform_file = reader.platform_file;
  made->check = reader.problems.check;
  fl_status status = fl_problems_finish(&reader.problems);
  if (!status) {
    made->log_level = fl_log_level_from_name(made->values[FL_SETTING_LOG_LEVEL].word);
    status = make_policy(made->values, &made->policy);
  }
  if (status)
    fl_config_free(made);
  else
    *config = made;
  return status;
}

/* Of the environment VLLM_FL_CHECK counts, and the log level for what it lets pass. */
fl_status fl_policy_from_config(const char *path, fl_policy **policy) {
  fl_config_sources sources = {0};
  fl_setting_value values[FL_N_SETTINGS] = {0};
  fl_log log = {0};
  settings_reader reader = {.sources = &sources, .problems = {.log = &log}, .values = values};
  fl_yaml *yaml = NULL;
  if (!path)
    return fl_error(FL_EINVAL, "fl_policy_from_config: path is NULL, expected the path of a YAML file");
  atomic_init(&log.level, fl_config_log_level(&sources));
  fl_status status = fl_yaml_load(path, &yaml);
  if (status == FL_ENOENT)
    status = fl_error(FL_ECONFIG, "Config file '%s' not found.", path);
  else if (status && status != FL_ENOMEM)
    status = fl_error(FL_ECONFIG, "Failed to load config file '%s': %s", path, fl_error_message());
  if (!status) {
    read_check(&reader);
    fl_settings_from_yaml(&reader.problems, yaml, values);
    fl_settings_add_builtin(&reader.problems, values);
    check_retry(&reader.problems, values);
    status = fl_problems_finish(&reader.problems);
  }
  if (!status)
    status = make_policy(values, policy);
  free_values(values);
  fl_yaml_free(yaml);
  return status;
}

void fl_config_free(fl_config *config) {
  if (!config)
    return;
  fl_policy_release(config->policy);
  free_values(config->values);
  free(config->platform_file);
  free(config);
}

/* ----------------------------------------------------------------------------------------------------- questions */

const char *fl_config_origin(const fl_config *config, fl_setting_id id) {
  return config->values[id].origin;
}

const char *fl_config_op_origin(const fl_config *config, const char *op) {
  const fl_order *order = fl_orders_find(&config->values[FL_SETTING_OP_BACKENDS].orders, op);
  return order ? order->origin : NULL;
}

bool fl_config_flagos_allowed(const fl_config *config, const char *op, char *reason, size_t size) {
  const fl_setting_value *values = config->values, *white = &values[FL_SETTING_FLAGOS_WHITELIST],
                         *black = &values[FL_SETTING_FLAGOS_BLACKLIST];
  if (!values[FL_SETTING_PREFER_ENABLED].flag)
    snprintf(reason, size, "dispatch is off (%s)", values[FL_SETTING_PREFER_ENABLED].origin);
  else if (!values[FL_SETTING_USE_FLAGGEMS].flag)
    snprintf(reason, size, "kind flagos is off (%s)", values[FL_SETTING_USE_FLAGGEMS].origin);
  else if (white->set && !fl_strings_has(&white->names, op))
    snprintf(reason, size, "not in flagos_whitelist (%s)", white->origin);
  else if (!white->set && black->set && fl_strings_has(&black->names, op))
    snprintf(reason, size, "in flagos_blacklist (%s)", black->origin);
  else
    return true;
  return false;
}

static bool list_has_any(const fl_setting_value *list, const char *const *names) {
  while (*names && !fl_strings_has(&list->names, *names))
    names++;
  return *names != NULL;
}

bool fl_config_oot_allowed(const fl_config *config, const char *const *names, char *reason, size_t size) {
  const fl_setting_value *enabled = &config->values[FL_SETTING_OOT_ENABLED],
                         *white = &config->values[FL_SETTING_OOT_WHITELIST],
                         *black = &config->values[FL_SETTING_OOT_BLACKLIST];
  if (!enabled->flag)
    snprintf(reason, size, "out-of-tree replacement is off (%s)", enabled->origin);
  else if (white->set && !list_has_any(white, names))
    snprintf(reason, size, "not in the list of %s", white->origin);
  else if (!white->set && black->set && list_has_any(black, names))
    snprintf(reason, size, "in oot_blacklist (%s)", black->origin);
  else
    return true;
  return false;
}

bool fl_config_op_enabled(const fl_config *config, const char *op) {
  const fl_strings *items = &config->values[FL_SETTING_CUSTOM_OPS].names;
  bool enabled = true;
  for (uint32_t i = 0; i < items->n; i++) {
    const char *item = items->items[i];
    if (*item != '+' && *item != '-')
      enabled = !strcmp(item, "all");
    else if (!strcmp(item + 1, op)) /* no op stands there with both signs */
      return *item == '+';
  }
  return enabled;
}
