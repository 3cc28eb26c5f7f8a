/* flhost doctor, settings: names in them that nothing has, variables that had no effect, files that are not as they
 * should be. What is invalid the host itself refuses; here is what it has to accept, since a plugin may come yet. */
#include "cli/cli.h"
#include "cli/commands/doctor.h"

#include <ctype.h>
#include <flhost/vllm.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* What the checks look at. */
typedef struct subject {
  fl_host *host;
  const fl_snapshot *snapshot;
  const char *policy_file; /* as VLLM_FL_CONFIG names it; NULL: none is in force */
  const fl_setting *setting;
  findings *list;
} subject;

/* ------------------------------------------------------------------------------------------------------------ names */

static bool is_among(const char *word, const char *const *words) {
  while (*words && strcmp(*words, word) != 0)
    words++;
  return *words;
}

/* A name that nothing has; `nearest` may be NULL. */
static void add_unknown(const subject *s, const char *what, const char *word, const char *nearest, const char *advice) {
  finding_add(s->list, FINDING_WARNING, "settings", advice, "%s (%s) names the %s '%s', which is not registered%s",
              s->setting->name, s->setting->origin, what, word, cli_suggest("", nearest).text);
}

static void check_op_name(const subject *s, const char *op) {
  uint32_t n = fl_snapshot_op_count(s->snapshot);
  const char **known = calloc(n + 1, sizeof *known);
  for (uint32_t i = 0; known && i < n; i++)
    known[i] = fl_snapshot_op_name(s->snapshot, i);
  s->list->failed |= !known;
  if (known && !is_among(op, known))
    add_unknown(s, "op", op, cli_nearest(op, known), "'flhost ops' lists the operators");
  free(known);
}

/* The vendor that implementations of a plugin by that company have: of 'NVIDIA' it is 'cuda'. NULL: there is none. */
static const char *vendor_of_company(const subject *s, const fl_plugins *plugins, const char *company) {
  const char *vendor = NULL;
  for (uint32_t i = 0; i < plugins->n && !vendor; i++) {
    const fl_plugin_info *plugin = fl_plugin_at(plugins, i);
    if (strcasecmp(plugin->vendor, company) != 0)
      continue;
    vendor = *plugin->impl_vendor ? plugin->impl_vendor : NULL;
    for (uint32_t op = 0; op < fl_snapshot_op_count(s->snapshot); op++)
      for (uint32_t j = 0; !vendor && j < fl_snapshot_impl_count(s->snapshot, op); j++)
        if (!strcmp(fl_snapshot_impl(s->snapshot, op, j)->plugin, plugin->name))
          vendor = fl_snapshot_impl(s->snapshot, op, j)->vendor;
  }
  return vendor;
}

/* Those of what is registered, and of plugins that are not loaded and name theirs, in a list that ends in NULL, which
 * the caller frees. NULL: out of memory. */
static const char **known_vendors(const subject *s, const fl_plugins *plugins) {
  size_t n = plugins->n, kept = 0;
  for (uint32_t op = 0; op < fl_snapshot_op_count(s->snapshot); op++)
    n += fl_snapshot_impl_count(s->snapshot, op);
  const char **known = calloc(n + 1, sizeof *known);
  for (uint32_t op = 0; known && op < fl_snapshot_op_count(s->snapshot); op++)
    for (uint32_t i = 0; i < fl_snapshot_impl_count(s->snapshot, op); i++)
      if (fl_snapshot_impl(s->snapshot, op, i)->vendor)
        known[kept++] = fl_snapshot_impl(s->snapshot, op, i)->vendor;
  for (uint32_t i = 0; known && i < plugins->n; i++)
    if (*fl_plugin_at(plugins, i)->impl_vendor)
      known[kept++] = fl_plugin_at(plugins, i)->impl_vendor;
  return known;
}

static void check_vendor(const subject *s, const char *vendor) {
  fl_plugins *plugins;
  if (fl_get_discovered_plugins(s->host, &plugins)) {
    s->list->failed = true;
    return;
  }
  const char **known = known_vendors(s, plugins);
  s->list->failed |= !known;
  if (known && !is_among(vendor, known)) {
    const char *of_company = vendor_of_company(s, plugins, vendor);
    add_unknown(s, "vendor", vendor, of_company ? of_company : cli_nearest(vendor, known),
                "'flhost ops --impls' lists the vendors");
  }
  free(known);
  fl_plugins_free(plugins);
}

/* A layer stands by its class, by the op that replaces it, or by a former name: what explain takes. What plugins bring
 * of other classes stands by its type. */
static void check_layer(const subject *s, const char *layer) {
  fl_explanation *explanation;
  const char *path;
  if (fl_class_path(s->host, layer, &path) != FL_EINVAL)
    return;
  if (!fl_explain(s->host, layer, kDLCPU, &explanation))
    fl_explanation_free(explanation);
  else if (!fl_oot_op(s->host, layer) && fl_error_status() == FL_ENOENT) /* in words about layers */
    finding_add(s->list, FINDING_WARNING, "settings", "'flhost explain OP' names the layers of an operator",
                "%s (%s): %s", s->setting->name, s->setting->origin, fl_error_message());
}

/* all, none, +op, -op */
static void check_custom_op(const subject *s, const char *word) {
  if (*word == '+' || *word == '-')
    check_op_name(s, word + 1);
}

/* Settings that are lists, and what their words name. The host itself warns about op_backends. */
static const struct {
  const char *setting;
  void (*check)(const subject *, const char *word);
} lists[] = {
    {"flagos_whitelist", check_op_name}, {"flagos_blacklist", check_op_name},
    {"custom_ops", check_custom_op},     {"VLLM_FL_FLAGOS_BLACKLIST_APPEND", check_op_name},
    {"allow_vendors", check_vendor},     {"deny_vendors", check_vendor},
    {"oot_blacklist", check_layer},      {"VLLM_FL_OOT_WHITELIST", check_layer},
};

static void check_list(const subject *s) {
  json_t *words, *item;
  size_t index;
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    if (strcmp(lists[i].setting, s->setting->name) != 0)
      continue;
    words = json_loads(s->setting->value, JSON_DECODE_ANY, NULL);
    json_array_foreach(words, index, item) { /* nothing for what is no list */
      const char *word = json_string_value(item);
      if (word && *word)
        lists[i].check(s, word);
    }
    json_decref(words);
  }
}

/* ------------------------------------------------------------------------------------------------------------ files */

/* The list of ops that kind flagos serves is written at their first call: too late to hear that it cannot be. */
static void check_oplist(const subject *s) {
  json_t *value = strcmp(s->setting->name, "FLAGGEMS_ENABLE_OPLIST_PATH") == 0
                      ? json_loads(s->setting->value, JSON_DECODE_ANY, NULL)
                      : NULL;
  const char *path = json_string_value(value), *trouble = NULL;
  char *directory = path ? strdup(path) : NULL;
  struct stat status;
  s->list->failed |= path && !directory;
  if (!directory)
    goto out;
  if (!lstat(path, &status))
    trouble = S_ISLNK(status.st_mode)   ? "it is a link"
              : S_ISDIR(status.st_mode) ? "it is a directory"
              : access(path, W_OK)      ? "this user may not write to it"
                                        : NULL;
  else if (access(dirname(directory), W_OK | X_OK))
    trouble = "there is no such directory, or this user may not write to it";
  if (trouble)
    finding_add(s->list, FINDING_WARNING, "settings", "name a file that can be written, or remove the variable",
                "%s: '%s' cannot be written: %s", s->setting->name, path, trouble);
out:
  free(directory);
  json_decref(value);
}

static void check_config_file(findings *list) {
  const char *path = getenv("VLLM_FL_CONFIG");
  struct stat status;
  if (path && *path && !stat(path, &status))
    check_writable(path, &status, "settings", list);
}

/* ------------------------------------------------------------------------------------------------------------- all */

/* What a policy file says in place of a variable: the setting's key, and for the orders of VLLM_FL_OP_CONFIG theirs.
 * NULL: the variable counts beside it. */
static const char *key_of(const fl_setting *setting) {
  if (!strcmp(setting->name, "VLLM_FL_OP_CONFIG"))
    return "op_backends";
  return strcmp(setting->name, setting->variable) ? setting->name : NULL;
}

/* Does the text name the variable, and not one whose name only begins so? */
static bool names_variable(const char *text, const char *variable) {
  size_t length = strlen(variable);
  for (; (text = strstr(text, variable)); text += length)
    if (text[length] != '_' && !isalnum((unsigned char)text[length]))
      return true;
  return false;
}

/* A variable that something else beats. One that is invalid was reported already. */
static void check_effect(const subject *s) {
  const fl_setting *setting = s->setting;
  const char *key = key_of(setting);
  char advice[128];
  if (!*setting->variable || !is_variable_set(setting->variable) || names_variable(setting->origin, setting->variable))
    return;
  for (size_t i = 0; i < s->list->n; i++)
    if (names_variable(s->list->items[i].what, setting->variable))
      return;
  snprintf(advice, sizeof advice, "write %s in that file, or remove the variable", key ? key : "");
  if (s->policy_file && key)
    finding_add(s->list, FINDING_WARNING, "settings", advice,
                "%s is set but has no effect: the policy file '%s' (VLLM_FL_CONFIG) replaces every other source of %s, "
                "whose value comes from %s",
                setting->variable, s->policy_file, key, setting->origin);
  else
    finding_add(s->list, FINDING_WARNING, "settings", "remove the variable, or the setting that beats it",
                "%s is set but has no effect: the value of %s comes from %s", setting->variable, setting->name,
                setting->origin);
}

/* The value of VLLM_FL_CONFIG as JSON; NULL if it is not listed. */
static json_t *policy_file_of(const fl_settings *settings) {
  for (uint32_t i = 0; i < settings->n; i++)
    if (!strcmp(fl_setting_at(settings, i)->name, "VLLM_FL_CONFIG"))
      return json_loads(fl_setting_at(settings, i)->value, JSON_DECODE_ANY, NULL);
  return NULL;
}

/* Of those that make up for what a plugin may do. */
static void check_safety(const subject *s) {
  if (!strcmp(s->setting->variable, "VLLM_FL_PROBE") && !strcmp(s->setting->value, "\"off\""))
    finding_add(s->list, FINDING_NOTE, "plugins", "", "plugins are not tried in another process first (%s)",
                s->setting->origin);
}

void check_settings(fl_host *host, findings *list) {
  static void (*const checks[])(const subject *) = {check_effect, check_list, check_oplist, check_safety};
  size_t before = list->n;
  fl_settings *settings;
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  if (!snapshot || fl_get_settings(host, &settings)) {
    finding_add(list, FINDING_PROBLEM, "settings", "", "%s", fl_error_message());
    fl_snapshot_release(snapshot);
    return;
  }
  json_t *policy_file = policy_file_of(settings);
  for (uint32_t i = 0; i < settings->n; i++) {
    const subject s = {host, snapshot, json_string_value(policy_file), fl_setting_at(settings, i), list};
    for (size_t j = 0; j < sizeof checks / sizeof *checks; j++)
      checks[j](&s);
  }
  check_config_file(list);
  if (list->n == before)
    finding_add(list, FINDING_OK, "settings", "", "%u settings are in force", settings->n);
  json_decref(policy_file);
  fl_settings_free(settings);
  fl_snapshot_release(snapshot);
}
