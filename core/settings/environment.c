/* The environment and the engine's options: see environment.h. */
#include "core/settings/environment.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>
#include <unistd.h>

#define PREFIX "VLLM_FL_"

static bool untrusted(const fl_config_sources *sources) {
  return !sources->environment && (sources->set_uid || getauxval(AT_SECURE));
}

static const char *const *variables(const fl_config_sources *sources) {
  static const char *const none[] = {NULL};
  if (sources->environment)
    return sources->environment;
  return untrusted(sources) || !environ ? none : (const char *const *)environ;
}

static const char *find_variable(const char *const *environment, const char *name) {
  size_t length = strlen(name);
  for (; *environment; environment++)
    if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
      return *environment + length + 1;
  return NULL;
}

const char *fl_config_getenv(const fl_config_sources *sources, const char *name) {
  const char *value = find_variable(variables(sources), name);
  return value && *value ? value : NULL;
}

/* What an engine may give in place of a variable. */
static const struct {
  fl_setting_id id;
  size_t offset;
  const char *source;
} options[] = {
    {FL_SETTING_CONFIG, offsetof(fl_config_sources, config_file), "option config_file"},
    {FL_SETTING_CONFIG_DIR, offsetof(fl_config_sources, config_dir), "option config_dir"},
    {FL_SETTING_PLATFORM, offsetof(fl_config_sources, platform), "option platform"},
    {FL_SETTING_PLUGIN_PATH, offsetof(fl_config_sources, plugin_path), "option plugin_path"},
    {FL_SETTING_PLUGIN_MODULES, offsetof(fl_config_sources, plugin_modules), "option plugin_modules"},
};

static const char *option_text(const fl_config_sources *sources, fl_setting_id id, const char **source) {
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (options[i].id == id) {
      const char *text = *(const char *const *)((const char *)sources + options[i].offset);
      *source = options[i].source;
      return text && *text ? text : NULL;
    }
  return NULL;
}

const char *fl_sources_text(const fl_config_sources *sources, const fl_setting_row *row, const char **source) {
  const char *text = option_text(sources, (fl_setting_id)(row - fl_setting_table), source);
  if (text)
    return text;
  *source = row->variable;
  return *row->variable ? fl_config_getenv(sources, row->variable) : NULL;
}

/* A word of a row that is read before the others: its number, -1 if it is none. */
static int early_word(const fl_config_sources *sources, fl_setting_id id) {
  const fl_setting_row *row = &fl_setting_table[id];
  const char *word = fl_config_getenv(sources, row->variable);
  size_t length = word ? fl_trim(&word, strlen(word)) : 0;
  for (int i = 0; length && row->words[i]; i++)
    if (strlen(row->words[i]) == length && !strncasecmp(row->words[i], word, length))
      return i;
  return -1;
}

fl_probe_mode fl_config_probe(const fl_config_sources *sources) {
  int mode = early_word(sources, FL_SETTING_PROBE);
  return mode < 0 ? FL_PROBE_NEW : (fl_probe_mode)mode;
}

int fl_config_log_level(const fl_config_sources *sources) {
  const char *name = fl_config_getenv(sources, fl_setting_table[FL_SETTING_LOG_LEVEL].variable);
  char word[16];
  size_t length = name ? fl_trim(&name, strlen(name)) : sizeof word;
  if (length >= sizeof word)
    return FL_LOG_INFO;
  memcpy(word, name, length);
  word[length] = 0;
  int level = fl_log_level_from_name(word);
  return level ? level : FL_LOG_INFO;
}

const char *fl_config_forced_platform(const fl_config_sources *sources, const char **origin) {
  const char *text = fl_sources_text(sources, &fl_setting_table[FL_SETTING_PLATFORM], origin), *word = text;
  char name[32];
  size_t length = text ? fl_trim(&word, strlen(text)) : 0;
  if (!length)
    return NULL;
  if (length >= sizeof name)
    return text;
  for (size_t i = 0; i < length; i++)
    name[i] = (char)tolower((unsigned char)word[i]);
  name[length] = 0;
  if (!strcmp(name, "auto"))
    return NULL;
  const char *known = sources->find_platform ? sources->find_platform(sources->platform_context, name) : NULL;
  return known ? known : text;
}

bool fl_config_plugins(const fl_config_sources *sources, bool *has_path, fl_strings *path, fl_strings *modules) {
  const fl_setting_row *path_row = &fl_setting_table[FL_SETTING_PLUGIN_PATH],
                       *modules_row = &fl_setting_table[FL_SETTING_PLUGIN_MODULES];
  const char *source, *text = fl_sources_text(sources, path_row, &source);
  const char *names = fl_sources_text(sources, modules_row, &source), *word = text;
  *path = *modules = (fl_strings){0};
  *has_path = text && fl_trim(&word, strlen(text));
  if ((*has_path && !fl_split(path, text, path_row->separator)) ||
      (names && !fl_split(modules, names, modules_row->separator))) {
    fl_strings_free(path);
    fl_strings_free(modules);
    return false;
  }
  return true;
}

/* ------------------------------------------------------------------------------------------------ unknown variables */

/* What container orchestrators make of a service that is named vllm-fl-…. */
static bool injected(const char *name) {
  return strstr(name, "_SERVICE_") || strstr(name, "_PORT") || strstr(name, "_TCP");
}

static void report_variable(fl_problems *problems, const char *name) {
  const char *hint = fl_setting_foreign(name);
  if (hint)
    fl_problems_warn(problems, "%s: flhost has no such setting as vllm-plugin-FL has (%s); the variable is ignored",
                     name, hint);
  else
    fl_problems_warn(problems, "%s: unknown variable, ignored%s", name,
                     fl_suggest(fl_setting_nearest(name, false)).text);
}

static bool any_variable(const char *const *environment) {
  for (size_t i = 0; i < FL_N_SETTINGS; i++)
    if (*fl_setting_table[i].variable && find_variable(environment, fl_setting_table[i].variable))
      return true;
  return false;
}

void fl_sources_report(const fl_config_sources *sources, fl_problems *problems) {
  if (sources->reload)
    return;
  if (untrusted(sources) && environ && any_variable((const char *const *)environ))
    fl_problems_warn(problems, "The environment is ignored, since this program runs with the rights of another user "
                               "(set-uid or file capabilities)");
  for (const char *const *variable = variables(sources); *variable; variable++) {
    const char *equals = strchr(*variable, '=');
    if (!equals || !equals[1] || strncmp(*variable, PREFIX, strlen(PREFIX)))
      continue;
    char *name = strndup(*variable, (size_t)(equals - *variable));
    if (!name)
      problems->no_memory = true;
    else if (!fl_setting_find(name, false) && !injected(name))
      report_variable(problems, name);
    free(name);
  }
}
