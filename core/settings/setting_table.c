/* The table of settings: see setting_table.h. How values are read by type is in setting_types.c. */
#include "core/settings/setting_table.h"

#include <stdlib.h>
#include <string.h>

static const char *const prefer_words[] = {"flagos", "vendor", "reference", NULL};
static const char *const level_words[] = {"DEBUG", "INFO", "WARNING", "ERROR", NULL};
static const char *const probe_words[] = {"off", "new", "always", NULL};
static const char *const isa_words[] = {"auto", "baseline", "avx2", "avx512", "avx512_bf16", "amx", NULL};
static const char *const check_words[] = {"error", "warn", "off", NULL};

/* Variable, key, type, words that are allowed or what is expected, value that is built in or what none means, separator
 * of a list, flags, documentation. */
const fl_setting_row fl_setting_table[FL_N_SETTINGS] = {
    [FL_SETTING_PREFER_ENABLED] =
        {"VLLM_FL_PREFER_ENABLED", NULL, &fl_type_bool, NULL, NULL, "true", NULL, 0, FL_SETTING_BLANK_COUNTS,
         "false turns dispatch off: each op runs its reference implementation, layers are not replaced, and the "
         "other selection settings are ignored; an op without a reference for the device (attention_backend) "
         "runs its vendor implementation"},
    [FL_SETTING_CONFIG] = {"VLLM_FL_CONFIG", NULL, &fl_type_word, NULL, "path of a YAML file", NULL, NULL, 0, 0,
                           "policy file; complete: every other source of the settings that have a YAML key is "
                           "ignored"},
    [FL_SETTING_PLATFORM] =
        {"VLLM_FL_PLATFORM", NULL, &fl_type_word, NULL, "name of a platform", "auto", NULL, 0, 0,
         "forces the platform: cpu, or one that a plugin brings, by its name or an alias (cuda or nvidia)"},
    [FL_SETTING_PREFER] = {"VLLM_FL_PREFER", "prefer", &fl_type_word, prefer_words, NULL, "flagos", NULL, 0, 0,
                           "kind of implementation that is tried first, flagos, vendor or reference, for ops "
                           "without an order of their own; the others follow: it reorders and removes "
                           "nothing"},
    [FL_SETTING_STRICT] = {"VLLM_FL_STRICT", "strict", &fl_type_bool, NULL, NULL, "0", NULL, 0, FL_SETTING_PEER_DIGITS,
                           "1: the failure of the implementation that was chosen is returned at once, nothing "
                           "else is tried; 0: the next one is tried, and the failed one skipped for a while"},
    [FL_SETTING_HOST_FALLBACK] =
        {"VLLM_FL_HOST_FALLBACK", "host_fallback", &fl_type_bool, NULL, NULL, "0", NULL, 0, 0,
         "1: an op that nothing in its order runs on the device of its tensors runs on the CPU, and they are copied "
         "there and back, which waits for the device"},
    [FL_SETTING_OP_BACKENDS] =
        {"VLLM_FL_PER_OP", "op_backends", &fl_type_orders, NULL, NULL, NULL, NULL, 0, 0,
         "order of an op in place of the preferred one, op1=a|b|c;op2=x|y of the tokens flagos, vendor, "
         "vendor:NAME, reference (or native), unfused, impl:ID; what is not listed is never tried; an empty "
         "order counts as none; in YAML a mapping of ops to lists of tokens, or to strings split at |; the last "
         "order of an op counts, in a file two are an error"},
    [FL_SETTING_ALLOW_VENDORS] = {"VLLM_FL_ALLOW_VENDORS", "allow_vendors", &fl_type_names, NULL, "list of vendors",
                                  NULL, "all", ',',
                                  FL_SETTING_EMPTY_IS_ALL | FL_SETTING_NONE_IS_NULL | FL_SETTING_PLAIN_NAMES,
                                  "vendors whose implementations may run; all when not set or empty"},
    [FL_SETTING_DENY_VENDORS] = {"VLLM_FL_DENY_VENDORS", "deny_vendors", &fl_type_names, NULL, "list of vendors", NULL,
                                 NULL, ',', FL_SETTING_PLAIN_NAMES,
                                 "vendors whose implementations may not run; wins over allow_vendors and every token"},
    [FL_SETTING_USE_FLAGGEMS] = {"USE_FLAGGEMS", NULL, &fl_type_bool, NULL, NULL, "true", NULL, 0,
                                 FL_SETTING_BLANK_COUNTS, "false: no implementation of kind flagos is used"},
    [FL_SETTING_FLAGOS_WHITELIST] =
        {"VLLM_FL_FLAGOS_WHITELIST", "flagos_whitelist", &fl_type_names, NULL, "list of ops", NULL, "all", ',',
         FL_SETTING_BLANK_COUNTS | FL_SETTING_NONE_IS_NULL | FL_SETTING_PLAIN_NAMES,
         "ops that may use implementations of kind flagos; all when not set, none when empty"},
    [FL_SETTING_FLAGOS_BLACKLIST] =
        {"VLLM_FL_FLAGOS_BLACKLIST", "flagos_blacklist", &fl_type_names, NULL, "list of ops", NULL, NULL, ',',
         FL_SETTING_BLANK_COUNTS | FL_SETTING_PLAIN_NAMES,
         "ops that may not use implementations of kind flagos; without effect beside flagos_whitelist"},
    [FL_SETTING_FLAGOS_BLACKLIST_APPEND] =
        {"VLLM_FL_FLAGOS_BLACKLIST_APPEND", NULL, &fl_type_names, NULL, "list of ops", NULL, NULL, ',',
         FL_SETTING_PLAIN_NAMES,
         "ops added to whichever flagos blacklist is in force; without effect beside flagos_whitelist"},
    [FL_SETTING_OOT_ENABLED] = {"VLLM_FL_OOT_ENABLED", NULL, &fl_type_bool, NULL, NULL, "1", NULL, 0,
                                FL_SETTING_BLANK_COUNTS, "0: no layer is replaced by an out-of-tree one"},
    [FL_SETTING_OOT_WHITELIST] =
        {"VLLM_FL_OOT_WHITELIST", NULL, &fl_type_names, NULL, "list of layers", NULL, "all", ',',
         FL_SETTING_BLANK_COUNTS | FL_SETTING_NONE_IS_NULL | FL_SETTING_PLAIN_NAMES,
         "layers that may be replaced by out-of-tree ones, by class (RMSNorm) or op (rms_norm); all when not "
         "set, none when empty"},
    [FL_SETTING_OOT_BLACKLIST] =
        {"VLLM_FL_OOT_BLACKLIST", "oot_blacklist", &fl_type_names, NULL, "list of layers", NULL, NULL, ',',
         FL_SETTING_BLANK_COUNTS | FL_SETTING_PLAIN_NAMES,
         "layers that may not be replaced by out-of-tree ones, by class (RMSNorm) or op (rms_norm)"},
    [FL_SETTING_LOG_LEVEL] = {"VLLM_FL_LOG_LEVEL", NULL, &fl_type_word, level_words, NULL, "INFO", NULL, 0, 0,
                              "least severe log lines that are written: DEBUG, INFO, WARNING or ERROR"},
    [FL_SETTING_DISPATCH_DEBUG] = {"VLLM_FL_DISPATCH_DEBUG", NULL, &fl_type_bool, NULL, NULL, "0", NULL, 0,
                                   FL_SETTING_BLANK_COUNTS,
                                   "1: logs the table of ops and implementations after start, and each "
                                   "resolution at DEBUG"},
    [FL_SETTING_SYNCHRONIZE] = {"VLLM_FL_SYNCHRONIZE", NULL, &fl_type_bool, NULL, NULL, "0", NULL, 0,
                                FL_SETTING_BLANK_COUNTS,
                                "1: each call waits for the device, so that an error of a kernel is told of the "
                                "operator that caused it; slow, for finding errors"},
    [FL_SETTING_STATISTICS] = {"VLLM_FL_STATISTICS", NULL, &fl_type_bool, NULL, NULL, "0", NULL, 0,
                               FL_SETTING_BLANK_COUNTS,
                               "1: the calls of each implementation are counted, to see what ran; failures and "
                               "fallbacks always are"},
    [FL_SETTING_PLUGIN_MODULES] = {"VLLM_FL_PLUGIN_MODULES", NULL, &fl_type_names, NULL, "list of paths and names",
                                   NULL, NULL, ',', 0,
                                   "plugins to load besides those of the plugin directories: paths, or names "
                                   "that are looked up there, each optionally with :symbol"},
    [FL_SETTING_PROBE] = {"VLLM_FL_PROBE", NULL, &fl_type_word, probe_words, NULL, "new", NULL, 0, 0,
                          "plugins are tried in another process before their code gets into this one, and those that "
                          "crash, hang or end it there are barred: new, when the file, its libraries' path or the "
                          "driver is another than before; always; or off, never"},
    [FL_SETTING_CHECK] = {"VLLM_FL_CHECK", NULL, &fl_type_word, check_words, NULL, "error", NULL, 0, FL_SETTING_FATAL,
                          "what an invalid setting does: error stops the start, warn logs it and reads on as "
                          "vllm-plugin-FL does, off says nothing"},
    [FL_SETTING_CUSTOM_OPS] =
        {"VLLM_FL_CUSTOM_OPS", "custom_ops", &fl_type_custom_ops, NULL, NULL, "all", NULL, ',', FL_SETTING_PLAIN_NAMES,
         "vLLM's list of ops that run custom implementations: all or none, then +op and -op; a disabled op runs "
         "its reference; a name that no op has once the plugins are loaded is an error"},
    [FL_SETTING_CONFIG_DIR] = {"VLLM_FL_CONFIG_DIR", NULL, &fl_type_word, NULL, "directory", NULL, "the installed one",
                               0, 0, "directory of the platform files PLATFORM.yaml, in place of the installed one"},
    [FL_SETTING_PLUGIN_PATH] = {"VLLM_FL_PLUGIN_PATH", NULL, &fl_type_names, NULL,
                                "absolute directories, separated by colons", NULL, "the installed one", ':',
                                FL_SETTING_NONE_IS_NULL,
                                "directories that are searched for plugins, in place of the default ones"},
    [FL_SETTING_PLUGINS_LOCK] =
        {"VLLM_FL_PLUGINS_LOCK", NULL, &fl_type_word, NULL, "absolute path of a plugins.lock", NULL, NULL, 0, 0,
         "list of the plugin files that may be loaded, with digests, made by 'flhost lock'; beside "
         "/etc/flhost/plugins.lock, where that is there: then both count"},
    [FL_SETTING_OP_CONFIG] = {"VLLM_FL_OP_CONFIG", NULL, &fl_type_word, NULL, "path of a JSON file", NULL, NULL, 0,
                              FL_SETTING_OF_OPS,
                              "JSON file, op to one of flagos, vendor, reference: the only kind that op tries; "
                              "beats VLLM_FL_PER_OP"},
    [FL_SETTING_COMMUNICATOR] = {"VLLM_FL_COMMUNICATOR", "communicator", &fl_type_names, NULL, "list of communicators",
                                 NULL, "auto", ',', FL_SETTING_NONE_IS_NULL | FL_SETTING_PLAIN_NAMES,
                                 "communicators that groups of ranks may use, in this order (of shm, mpi, nccl, rccl, "
                                 "flagcx, hccl); what is not listed is never "
                                 "tried; not set: as the preference says, then by priority"},
    [FL_SETTING_COMM_TIMEOUT] =
        {"VLLM_FL_COMM_TIMEOUT_S", "comm_timeout_s", &fl_type_seconds, NULL, NULL, "300", NULL, 0, 0,
         "seconds that a rank waits for others in a collective, before it fails and names them; "
         "0: without end"},
    [FL_SETTING_COMM_CHECK] = {"VLLM_FL_COMM_CHECK", NULL, &fl_type_bool, NULL, NULL, "0", NULL, 0,
                               FL_SETTING_BLANK_COUNTS,
                               "1: before each collective the ranks compare what they are about to do, and one that "
                               "does something else is named; slow, for finding errors"},
    [FL_SETTING_FLAGCX_PATH] = {"FLAGCX_PATH", NULL, &fl_type_word, NULL, "path", NULL, NULL, 0, 0,
                                "directory of FlagCX, with lib/libflagcx.so or build/lib/libflagcx.so in it, for "
                                "communicator flagcx; not there, or not set: the one that the loader finds"},
    [FL_SETTING_CPU_ISA] =
        {"VLLM_FL_CPU_ISA", NULL, &fl_type_word, isa_words, NULL, "auto", NULL, 0, 0,
         "instruction set that the optimised kernels of the CPU plugin use: auto, the best that this "
         "machine has; or baseline, avx2, avx512, avx512_bf16 or amx, for comparing and for finding errors; one that "
         "the "
         "machine has not makes the plugin fail"},
    [FL_SETTING_CPU_THREADS] =
        {"VLLM_FL_CPU_THREADS", NULL, &fl_type_number, NULL, NULL, "0", NULL, 0, 0,
         "threads that a kernel on the processor uses at most; 0: as OMP_NUM_THREADS says, else as many as "
         "there are cores that the process may use"},
    [FL_SETTING_OPLIST_PATH] = {"FLAGGEMS_ENABLE_OPLIST_PATH", NULL, &fl_type_word, NULL, "path", NULL, NULL, 0, 0,
                                "file that lists each op and implementation of kind flagos when it is first "
                                "used; never written through a link"},
    [FL_SETTING_PRESERVE_INPUTS] = {"", "preserve_inputs", &fl_type_bool, NULL, NULL, "false", NULL, 0, 0,
                                    "true: what an in-place call overwrites is kept, so that a fallback can "
                                    "start from it"},
    [FL_SETTING_RETRY_FIRST] = {"", "retry_first_s", &fl_type_seconds, NULL, NULL, "1", NULL, 0, 0,
                                "seconds until an implementation that failed is tried again, doubled at each "
                                "failure; 0: never"},
    [FL_SETTING_RETRY_MAX] = {"", "retry_max_s", &fl_type_seconds, NULL, NULL, "300", NULL, 0, 0,
                              "longest time, in seconds, until an implementation that failed is tried again"},
    /* No YAML key: what keeps an engine safe counts whatever file is in force. */
    [FL_SETTING_GUARD] =
        {"VLLM_FL_GUARD", NULL, &fl_type_bool, NULL, NULL, "0", NULL, 0, FL_SETTING_BLANK_COUNTS,
         "1: guarded mode, each implementation runs on copies between guard pages; one that writes an input or "
         "outside of its results, or leaves elements unwritten, is a failed implementation; slow; counts beside "
         "VLLM_FL_CONFIG"},
    [FL_SETTING_CANARY] =
        {"VLLM_FL_CANARY", NULL, &fl_type_number, NULL, NULL, "0", NULL, 0, 0,
         "canary mode: the first calls of each implementation, this many, are compared with the reference; one that "
         "is wrong is barred, and the call gets the reference's results; counts beside VLLM_FL_CONFIG"},
    [FL_SETTING_EVIDENCE] = {"VLLM_FL_EVIDENCE", NULL, &fl_type_word, NULL, "directory", NULL,
                             "$XDG_STATE_HOME/flhost/evidence", 0, 0,
                             "where canary mode saves calls that went wrong, 64 files at most of 256 MiB at most, for "
                             "flhost run; counts beside VLLM_FL_CONFIG"},
    [FL_SETTING_PREPARE_WEIGHTS] =
        {"VLLM_FL_PREPARE_WEIGHTS", "prepare_weights", &fl_type_bool, NULL, NULL, "0", NULL, 0, 0,
         "1: vLLM's linear layers and head have their weights prepared once they are loaded, "
         "which takes their memory once more; weights that change later have to be loaded "
         "by vLLM's own ways"},
};

/* Names that the peer reads and flhost does not: a hint is more use than a guess at a slip of the keyboard. */
static const struct {
  const char *name, *hint;
} foreign_names[] = {
    {"VLLM_FL_OP_FAST_PATH", "it has no slow path to switch"},
    {"VLLM_FL_USE_FLAGGEMS_ATTN", "choose with VLLM_FL_PER_OP=attention_backend=…"},
    {"VLLM_FL_IO_DUMP", "it does not dump tensors"},
    {"per_op", "write op_backends"},
    {"io_dump", "it does not dump tensors"},
    {"action", "tuning is not a policy"},
};

const char *fl_setting_name(const fl_setting_row *row) {
  return row->key ? row->key : row->variable;
}

/* As a file writes it, or a variable; NULL: the row has none. */
static const char *name_of(const fl_setting_row *row, bool is_key) {
  return is_key ? row->key : *row->variable ? row->variable : NULL;
}

const fl_setting_row *fl_setting_find(const char *name, bool is_key) {
  for (size_t i = 0; i < FL_N_SETTINGS; i++) {
    const char *of_row = name_of(&fl_setting_table[i], is_key);
    if (of_row && !strcmp(of_row, name))
      return &fl_setting_table[i];
  }
  return NULL;
}

static const char *after_prefix(const char *name) {
  static const char prefix[] = "VLLM_FL_";
  return strncmp(name, prefix, strlen(prefix)) ? name : name + strlen(prefix);
}

/* The name that is one letter off or two, else one that the word is a part of, or that is a part of it: DEBUG for
 * VLLM_FL_DISPATCH_DEBUG. Of several the one that has most in common. */
const char *fl_setting_nearest(const char *word, bool is_key) {
  enum { LEAST = 4 }; /* bytes that say enough */
  const char *names[FL_N_SETTINGS], *part = after_prefix(word);
  size_t n = 0, best = LEAST - 1, length = strlen(part);
  for (size_t i = 0; i < FL_N_SETTINGS; i++)
    if ((names[n] = name_of(&fl_setting_table[i], is_key)))
      n++;
  const char *nearest = fl_nearest_word(word, names, n);
  for (size_t i = 0, rest = nearest ? 0 : n; i < rest; i++) {
    const char *name = after_prefix(names[i]);
    size_t known = strlen(name), common = length < known ? length : known;
    if (common > best && (strstr(name, part) || strstr(part, name))) {
      best = common;
      nearest = names[i];
    }
  }
  return nearest;
}

const char *fl_setting_foreign(const char *name) {
  for (size_t i = 0; i < sizeof foreign_names / sizeof *foreign_names; i++) {
    size_t length = strlen(foreign_names[i].name);
    /* The peer's dump has a family of variables: VLLM_FL_IO_DUMP_OPS and so on. */
    if (!strncmp(name, foreign_names[i].name, length) && (!name[length] || name[length] == '_'))
      return foreign_names[i].hint;
  }
  return NULL;
}

/* ------------------------------------------------------------------------------------------------------- reading */

/* What it gives replaces *value, whose origin is `origin` then. `source`: text with white space around it. */
static bool read_value(fl_problems *problems, const fl_setting_row *row, fl_setting_source source, fl_place origin,
                       fl_setting_value *value) {
  fl_setting_value read = {0};
  const char *word = source.text;
  size_t length = word ? fl_trim(&word, strlen(word)) : 0;
  char *trimmed = word ? strndup(word, length) : NULL;
  source.text = trimmed;
  problems->no_memory |= word && !trimmed;
  bool valid = (trimmed || !word) && row->type->read(problems, row, &source, &read);
  if (valid) {
    read.set = true;
    read.origin = fl_place_origin(problems, origin);
  }
  fl_setting_value_free(valid ? value : &read);
  if (valid)
    *value = read;
  free(trimmed);
  return valid;
}

bool fl_setting_from_text(fl_problems *problems, const fl_setting_row *row, const char *source, const char *text,
                          fl_setting_value *value) {
  const char *word = text;
  fl_place place = {.source = source};
  if (!*text || (!(row->flags & FL_SETTING_BLANK_COUNTS) && !fl_trim(&word, strlen(text))))
    return false;
  return read_value(problems, row, (fl_setting_source){.place = place, .text = text}, place, value);
}

static void report_unknown_key(fl_problems *problems, fl_place place, const char *key) {
  const char *hint = fl_setting_foreign(key), *name;
  fl_text known = {0};
  if (hint) {
    fl_problem(problems, place, "flhost has no key '%s' as vllm-plugin-FL has: %s", key, hint);
    return;
  }
  for (size_t i = 0; i < FL_N_SETTINGS; i++)
    if ((name = name_of(&fl_setting_table[i], true)))
      fl_text_add(&known, "%s%s", known.length ? ", " : "", name);
  fl_problem(problems, place, "unknown key '%s', expected one of %s%s", key, fl_text_get(&known),
             fl_suggest(fl_setting_nearest(key, true)).text);
  fl_text_free(&known);
}

/* The value of each row's key; of a key that stands twice the last, as PyYAML takes it. */
static void find_keys(fl_problems *problems, fl_yaml *yaml, const fl_yaml_node *root,
                      const fl_yaml_node *keys[FL_N_SETTINGS], const fl_yaml_node *nodes[FL_N_SETTINGS]) {
  for (uint32_t i = 0; i < fl_yaml_count(root); i++) {
    const fl_yaml_node *key = fl_yaml_key(yaml, root, i);
    const char *name = fl_yaml_string(key);
    fl_place place = fl_yaml_place(yaml, key);
    const fl_setting_row *row = fl_setting_find(name, true);
    if (!row) {
      report_unknown_key(problems, place, name);
      continue;
    }
    size_t id = (size_t)(row - fl_setting_table);
    if (keys[id])
      fl_problem(problems, place, "'%s' stands here and in line %u, expected once", name,
                 fl_yaml_place(yaml, keys[id]).line);
    keys[id] = key;
    nodes[id] = fl_yaml_value(yaml, root, i);
  }
}

void fl_settings_from_yaml(fl_problems *problems, fl_yaml *yaml, fl_setting_value values[FL_N_SETTINGS]) {
  const fl_yaml_node *root = fl_yaml_root(yaml), *keys[FL_N_SETTINGS] = {0}, *nodes[FL_N_SETTINGS] = {0};
  if (!root || fl_yaml_kind_of(root) == FL_YAML_NULL)
    return;
  if (fl_yaml_kind_of(root) != FL_YAML_MAP) {
    /* The peer takes anything empty for no settings, and fails on the rest. */
    (fl_yaml_truth(root) ? fl_problem_fatal : fl_problem)(problems, fl_yaml_place(yaml, root),
                                                          "found %s, expected a mapping such as 'prefer: vendor'",
                                                          fl_yaml_kind_name(fl_yaml_kind_of(root)));
    return;
  }
  find_keys(problems, yaml, root, keys, nodes);
  for (size_t id = 0; id < FL_N_SETTINGS; id++) {
    const fl_yaml_node *node = nodes[id];
    fl_yaml_kind kind = node ? fl_yaml_kind_of(node) : FL_YAML_NULL;
    bool scalar = kind != FL_YAML_LIST && kind != FL_YAML_MAP;
    if (kind != FL_YAML_NULL) /* a key without a value is one that is not set */
      read_value(problems, &fl_setting_table[id],
                 (fl_setting_source){fl_yaml_place(yaml, node), scalar ? fl_yaml_text(node) : NULL, yaml, node},
                 fl_yaml_place(yaml, keys[id]), &values[id]);
  }
}

void fl_settings_add_builtin(fl_problems *problems, fl_setting_value values[FL_N_SETTINGS]) {
  for (size_t id = 0; id < FL_N_SETTINGS; id++) {
    fl_setting_value *value = &values[id];
    const fl_setting_row *row = &fl_setting_table[id];
    if (value->set)
      continue;
    if (row->builtin && fl_setting_from_text(problems, row, fl_builtin_source, row->builtin, value))
      value->set = false;
    else if (!value->origin)
      value->origin = fl_place_origin(problems, (fl_place){.source = fl_builtin_source});
  }
}
