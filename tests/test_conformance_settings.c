/*
 * What vllm-plugin-FL's dispatcher decided about settings (tests/conformance/dispatch.json) is what flhost decides
 * under VLLM_FL_CHECK=warn. A row for which a rule says otherwise is listed with that rule, and must really differ.
 */
#include "tests/settings_support.h"

#include <jansson.h>

static const struct {
  const char *group, *input, *rule;
} differing_rows[] = {
    {"yaml", "strict: \"false\"", "C5, VLLM_FL_STRICT: the quoted words \"false\", \"0\", \"no\", \"off\" are false"},
    {"oot", "{\"VLLM_FL_OOT_ENABLED\": \"\"}", "C4: an empty variable counts as unset"},
    {"oot", "{\"VLLM_FL_OOT_BLACKLIST\": \"a,b\", \"VLLM_FL_OOT_ENABLED\": \"\"}", "C4"},
    {"oot", "{\"VLLM_FL_OOT_BLACKLIST\": \",\", \"VLLM_FL_OOT_ENABLED\": \"\"}", "C4"},
    {"oot", "{\"VLLM_FL_OOT_ENABLED\": \"\", \"VLLM_FL_OOT_WHITELIST\": \"a, b\"}", "C4"},
    {"oot", "{\"VLLM_FL_OOT_BLACKLIST\": \"a\", \"VLLM_FL_OOT_ENABLED\": \"\", \"VLLM_FL_OOT_WHITELIST\": \"a, b\"}",
     "C4"},
    {"oot", "{\"VLLM_FL_OOT_BLACKLIST\": \"a,b\", \"VLLM_FL_OOT_ENABLED\": \"\", \"VLLM_FL_OOT_WHITELIST\": \"a, b\"}",
     "C4"},
    {"oot", "{\"VLLM_FL_OOT_BLACKLIST\": \",\", \"VLLM_FL_OOT_ENABLED\": \"\", \"VLLM_FL_OOT_WHITELIST\": \"a, b\"}",
     "C4"},
    {"oot", "{\"VLLM_FL_OOT_ENABLED\": \"\", \"VLLM_FL_OOT_WHITELIST\": \",\"}", "C4"},
    {"oot", "{\"VLLM_FL_OOT_BLACKLIST\": \"a\", \"VLLM_FL_OOT_ENABLED\": \"\", \"VLLM_FL_OOT_WHITELIST\": \",\"}",
     "C4"},
    {"oot", "{\"VLLM_FL_OOT_BLACKLIST\": \"a,b\", \"VLLM_FL_OOT_ENABLED\": \"\", \"VLLM_FL_OOT_WHITELIST\": \",\"}",
     "C4"},
};
enum { N_DIFFERING = sizeof differing_rows / sizeof *differing_rows };

/* Runs one row; false: flhost decides otherwise, with `why`. */
typedef bool (*row_check)(const json_t *row, fl_text *why);

static json_t *dataset(void) {
  json_error_t error;
  json_t *data = json_load_file("tests/conformance/dispatch.json", 0, &error);
  ck_assert_msg(data != NULL, "%s", error.text);
  return data;
}

/* What names a row: its `in`, or its variables in order. */
static char *row_input(const json_t *row) {
  const json_t *in = json_object_get(row, "in"), *environment = json_object_get(row, "env");
  return in ? strdup(json_string_value(in)) : environment ? json_dumps(environment, JSON_SORT_KEYS) : strdup("");
}

static const char *differs_by(const char *group, const char *input, bool seen[N_DIFFERING]) {
  for (size_t i = 0; i < N_DIFFERING; i++)
    if (!strcmp(differing_rows[i].group, group) && !strcmp(differing_rows[i].input, input)) {
      seen[i] = true;
      return differing_rows[i].rule;
    }
  return NULL;
}

static void run_group(const char *group, row_check check) {
  bool seen[N_DIFFERING] = {false};
  json_t *data = dataset();
  const json_t *rows = json_object_get(data, group);
  ck_assert_msg(json_is_array(rows), "no group %s", group);
  for (size_t i = 0; i < json_array_size(rows); i++) {
    const json_t *row = json_array_get(rows, i);
    char *input = row_input(row);
    const char *rule = differs_by(group, input, seen);
    fl_text why = {0};
    bool same = check(row, &why);
    if (rule)
      ck_assert_msg(!same, "%s %s does not differ, although %s", group, input, rule);
    else
      ck_assert_msg(same, "%s row %zu, %s: %s", group, i, input, fl_text_get(&why));
    fl_text_free(&why);
    free(input);
  }
  for (size_t i = 0; i < N_DIFFERING; i++)
    ck_assert_msg(seen[i] || strcmp(differing_rows[i].group, group), "no row %s", differing_rows[i].input);
  json_decref(data);
}

/* ------------------------------------------------------------------------------------------------------- loading */

static void add_variable(fl_strings *variables, const char *name, const char *value) {
  char *text = fl_format("%s=%s", name, value);
  ck_assert(fl_strings_add(variables, text));
  free(text);
}

/* The list, ended by NULL. */
static const char *const *environment_of(fl_strings *variables) {
  ck_assert(fl_strings_add(variables, ""));
  variables->n--;
  free(variables->items[variables->n]);
  variables->items[variables->n] = NULL;
  return (const char *const *)variables->items;
}

static fl_status load(const json_t *environment, const char *config, const char *platform, log_lines *lines,
                      fl_config **loaded) {
  fl_strings variables = {0};
  const char *name;
  json_t *value;
  add_variable(&variables, "VLLM_FL_CHECK", "warn");
  if (config)
    add_variable(&variables, "VLLM_FL_CONFIG", config);
  json_object_foreach((json_t *)environment, name, value) add_variable(&variables, name, json_string_value(value));
  fl_config_sources sources = {.environment = environment_of(&variables),
                               .default_config_dir = "tests/conformance/platforms"};
  *loaded = NULL;
  fl_status status = fl_config_load(&sources, platform, &lines->log, loaded);
  fl_strings_free(&variables);
  return status;
}

/* ------------------------------------------------------------------------------------------------------ comparing */

static bool same_text(fl_text *why, const char *what, const char *found, const char *expected) {
  if (!strcmp(found, expected))
    return true;
  fl_text_add(why, "%s is %s, expected %s; ", what, found, expected);
  return false;
}

static json_t *json_list(const char *const *names, uint32_t n) {
  json_t *list = json_array();
  for (uint32_t i = 0; i < n; i++)
    json_array_append_new(list, json_string(names[i]));
  return list;
}

/* Takes `found`. */
static bool same_json(fl_text *why, const char *what, json_t *found, const json_t *expected) {
  bool same = json_equal(found, expected);
  char *left = json_dumps(found, JSON_ENCODE_ANY), *right = json_dumps(expected, JSON_ENCODE_ANY);
  if (!same)
    fl_text_add(why, "%s is %s, expected %s; ", what, left, right);
  free(left);
  free(right);
  json_decref(found);
  return same;
}

static json_t *json_orders(const fl_policy_fields *fields) {
  json_t *orders = json_array();
  for (uint32_t i = 0; i < fields->n_per_op; i++)
    json_array_append_new(orders, json_pack("[so]", fields->per_op[i].op,
                                            json_list(fields->per_op[i].tokens, fields->per_op[i].n_tokens)));
  return orders;
}

static bool same_policy(fl_text *why, const fl_policy *policy, const json_t *expected) {
  const fl_policy_fields *fields = fl_policy_get_fields(policy);
  uint32_t n;
  bool per_op;
  const char *const *order = fl_policy_order(policy, "an op without an order", &n, &per_op);
  bool same = same_text(why, "prefer", fields->prefer, json_string_value(json_object_get(expected, "prefer")));
  same &= same_json(why, "strict", json_boolean(fields->strict), json_object_get(expected, "strict"));
  same &= same_json(why, "per_op", json_orders(fields), json_object_get(expected, "per_op"));
  same &= same_json(why, "deny", json_list(fields->deny_vendors, fields->n_deny_vendors),
                    json_object_get(expected, "deny"));
  same &= same_json(why, "allow",
                    fields->allow_vendors ? json_list(fields->allow_vendors, fields->n_allow_vendors) : json_null(),
                    json_object_get(expected, "allow"));
  same &= same_json(why, "order", json_list(order, n), json_object_get(expected, "order"));
  same &= same_text(why, "fingerprint", fl_policy_fingerprint(policy),
                    json_string_value(json_object_get(expected, "fingerprint")));
  return same;
}

/* "… line 1, column 9" of Python's message is ":1:9: " here. */
static bool same_place(fl_text *why, const char *message, const char *python) {
  unsigned line, column;
  char place[32];
  const char *at = strstr(python, "line ");
  if (!at || sscanf(at, "line %u, column %u", &line, &column) != 2)
    return true;
  snprintf(place, sizeof place, ":%u:%u: ", line, column);
  if (strstr(message, place))
    return true;
  fl_text_add(why, "'%s' does not say %s", message, place);
  return false;
}

static bool same_error(fl_text *why, fl_status status, const json_t *error, const char *path) {
  const char *text = json_string_value(json_object_get(error, "text")), *message = fl_error_message();
  static const char failed[] = "Failed to load config file '";
  if (status != FL_ECONFIG) {
    fl_text_add(why, "status is %s, expected an error: %s", fl_status_name(status), text);
    return false;
  }
  if (!path)
    return same_text(why, "message", message, text);
  if (!strncmp(text, failed, strlen(failed))) {
    char *first = fl_format("%s%s': %s:", failed, path, path);
    bool same = !strncmp(message, first, strlen(first));
    if (!same)
      fl_text_add(why, "'%s' does not begin with '%s'", message, first);
    free(first);
    return same && same_place(why, message, text);
  }
  return true; /* the peer's accident ('str' object has no attribute 'get'): that it is an error is what counts */
}

static bool same_log(fl_text *why, const log_lines *lines, const json_t *expected) {
  bool same = true;
  for (size_t i = 0; i < json_array_size(expected); i++) {
    const json_t *line = json_array_get(expected, i);
    char *text =
        fl_format("%s %s", json_string_value(json_array_get(line, 0)), json_string_value(json_array_get(line, 1)));
    if (!fl_strings_has(&lines->lines, text)) {
      fl_text_add(why, "not logged: %s; ", text);
      same = false;
    }
    free(text);
  }
  return same;
}

/* -------------------------------------------------------------------------------------------------------- groups */

/* A row with variables or a file whose result is a policy or an error. */
static bool check_policy(const json_t *row, const char *path, fl_text *why) {
  log_lines lines;
  fl_config *config;
  const json_t *ok = json_object_get(row, "ok"), *error = json_object_get(row, "error");
  log_begin(&lines);
  fl_status status =
      load(json_object_get(row, "env"), path, json_string_value(json_object_get(row, "platform")), &lines, &config);
  bool same;
  if (!ok)
    same = same_error(why, status, error ? error : json_object_get(row, "err"), path);
  else if (status) {
    fl_text_add(why, "%s", fl_error_message());
    same = false;
  } else {
    same = same_policy(why, config->policy, ok);
    same &= same_log(why, &lines, json_object_get(row, "log"));
  }
  fl_config_free(config);
  fl_strings_free(&lines.lines);
  return same;
}

static bool check_env(const json_t *row, fl_text *why) {
  return check_policy(row, NULL, why);
}

static bool check_yaml(const json_t *row, fl_text *why) {
  scratch_dir scratch;
  scratch_begin(&scratch);
  const char *path = scratch_file(&scratch, "policy.yaml", json_string_value(json_object_get(row, "in")));
  bool same = check_policy(row, path, why);
  scratch_end(&scratch);
  return same;
}

/* The policy that one variable alone makes. */
static fl_config *load_variable(const char *name, const char *value) {
  log_lines lines;
  fl_config *config;
  json_t *environment = json_pack("{ss}", name, value);
  log_begin(&lines);
  ck_assert_msg(!load(environment, NULL, NULL, &lines, &config), "%s", fl_error_message());
  fl_strings_free(&lines.lines);
  json_decref(environment);
  return config;
}

static int compare_items(const void *a, const void *b) {
  const json_t *left = *(json_t *const *)a, *right = *(json_t *const *)b;
  if (json_is_array(left)) {
    left = json_array_get(left, 0);
    right = json_array_get(right, 0);
  }
  return strcmp(json_string_value(left), json_string_value(right));
}

/* The peer's sets and maps have no order; flhost's are sorted. */
static json_t *sorted(const json_t *list) {
  size_t n = json_array_size(list);
  json_t *copy = json_array(), **items = calloc(n + 1, sizeof *items);
  for (size_t i = 0; i < n; i++)
    items[i] = json_array_get(list, i);
  qsort(items, n, sizeof *items, compare_items);
  for (size_t i = 0; i < n; i++)
    json_array_append(copy, items[i]);
  free(items);
  return copy;
}

static bool check_csv(const json_t *row, fl_text *why) {
  fl_config *config = load_variable("VLLM_FL_DENY_VENDORS", json_string_value(json_object_get(row, "in")));
  const fl_policy_fields *fields = fl_policy_get_fields(config->policy);
  json_t *expected = sorted(json_object_get(row, "out"));
  bool same = same_json(why, "list", json_list(fields->deny_vendors, fields->n_deny_vendors), expected);
  json_decref(expected);
  fl_config_free(config);
  return same;
}

static bool check_per_op(const json_t *row, fl_text *why) {
  fl_config *config = load_variable("VLLM_FL_PER_OP", json_string_value(json_object_get(row, "in")));
  json_t *expected = sorted(json_object_get(row, "out"));
  bool same = same_json(why, "orders", json_orders(fl_policy_get_fields(config->policy)), expected);
  json_decref(expected);
  fl_config_free(config);
  return same;
}

static bool check_order(const json_t *row, fl_text *why) {
  fl_config *config = load_variable("VLLM_FL_PREFER", json_string_value(json_object_get(row, "prefer")));
  uint32_t n;
  bool per_op;
  const char *const *order = fl_policy_order(config->policy, "op", &n, &per_op);
  bool same = same_json(why, "order", json_list(order, n), json_object_get(row, "order"));
  fl_config_free(config);
  return same;
}

/* "vendor.x(vendor=a:b)": the id, whose first part says the kind, and the vendor, which is else the id's second part.
 */
static void parse_impl(const char *text, fl_kind *kind, char id[64], char vendor[64]) {
  const char *paren = strchr(text, '('), *dot = strchr(text, '.');
  snprintf(id, 64, "%.*s", paren ? (int)(paren - text) : (int)strlen(text), text);
  *kind = !strncmp(id, "vendor.", 7)    ? FL_KIND_VENDOR
          : !strncmp(id, "default.", 8) ? FL_KIND_DEFAULT
                                        : FL_KIND_REFERENCE;
  *vendor = 0;
  if (paren)
    sscanf(paren, "(vendor=%63[^)])", vendor);
  else if (*kind == FL_KIND_VENDOR)
    snprintf(vendor, 64, "%s", dot + 1);
}

static bool check_token(const json_t *row, fl_text *why) {
  const char *token = json_string_value(json_object_get(row, "token")), *impl;
  json_t *expected;
  bool same = true;
  json_object_foreach(json_object_get(row, "match"), impl, expected) {
    char id[64], vendor[64];
    fl_kind kind;
    parse_impl(impl, &kind, id, vendor);
    bool matches = fl_token_matches(token, kind, *vendor ? vendor : NULL, id);
    same &= same_text(why, impl, matches ? "a match" : "no match", json_is_true(expected) ? "a match" : "no match");
  }
  return same;
}

static json_t *json_of_list(const fl_setting_value *list) {
  return list->set ? json_list((const char *const *)list->names.items, list->names.n) : json_null();
}

static bool check_flagos_lists(const json_t *row, fl_text *why) {
  static const char *const ops[][2] = {{"op_a", "a"}, {"op_zz", "zz"}};
  log_lines lines;
  fl_config *config;
  const json_t *lists = json_object_get(row, "lists"), *ok = json_object_get(lists, "ok");
  log_begin(&lines);
  fl_status status = load(json_object_get(row, "env"), NULL, NULL, &lines, &config);
  bool same = true;
  if (!ok)
    same = same_error(why, status, json_object_get(lists, "error"), NULL);
  else {
    char reason[128];
    ck_assert_msg(!status, "%s", fl_error_message());
    same =
        same_json(why, "whitelist", json_of_list(&config->values[FL_SETTING_FLAGOS_WHITELIST]), json_array_get(ok, 0));
    same &=
        same_json(why, "blacklist", json_of_list(&config->values[FL_SETTING_FLAGOS_BLACKLIST]), json_array_get(ok, 1));
    for (size_t i = 0; i < 2; i++)
      same &=
          same_json(why, ops[i][0], json_boolean(fl_config_flagos_allowed(config, ops[i][1], reason, sizeof reason)),
                    json_object_get(json_object_get(row, ops[i][0]), "ok"));
  }
  fl_config_free(config);
  fl_strings_free(&lines.lines);
  return same;
}

static bool check_oot(const json_t *row, fl_text *why) {
  log_lines lines;
  fl_config *config;
  log_begin(&lines);
  ck_assert_msg(!load(json_object_get(row, "env"), NULL, NULL, &lines, &config), "%s", fl_error_message());
  bool same = same_json(why, "whitelist", json_of_list(&config->values[FL_SETTING_OOT_WHITELIST]),
                        json_object_get(row, "whitelist"));
  same &= same_json(why, "blacklist", json_of_list(&config->values[FL_SETTING_OOT_BLACKLIST]),
                    json_object_get(row, "blacklist"));
  same &= same_json(why, "enabled", json_boolean(config->values[FL_SETTING_OOT_ENABLED].flag),
                    json_object_get(row, "enabled"));
  fl_config_free(config);
  fl_strings_free(&lines.lines);
  return same;
}

START_TEST(C_comma_lists_are_split_as_by_the_peer) {
  run_group("csv", check_csv);
}
END_TEST

START_TEST(C_per_op_strings_are_split_as_by_the_peer) {
  run_group("per_op", check_per_op);
}
END_TEST

START_TEST(C1_variables_over_platform_files_as_in_the_peer) {
  run_group("env", check_env);
}
END_TEST

START_TEST(C1_policy_files_are_read_as_by_the_peer) {
  run_group("yaml", check_yaml);
}
END_TEST

START_TEST(T1_tokens_match_as_in_the_peer) {
  run_group("token", check_token);
}
END_TEST

START_TEST(P2_default_orders_are_the_peers) {
  run_group("order", check_order);
}
END_TEST

START_TEST(L1_L2_flagos_lists_are_the_peers) {
  run_group("flagos_lists", check_flagos_lists);
}
END_TEST

START_TEST(L1_L2_oot_lists_are_the_peers) {
  run_group("oot", check_oot);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, C_comma_lists_are_split_as_by_the_peer);
  tcase_add_test(tests, C_per_op_strings_are_split_as_by_the_peer);
  tcase_add_test(tests, C1_variables_over_platform_files_as_in_the_peer);
  tcase_add_test(tests, C1_policy_files_are_read_as_by_the_peer);
  tcase_add_test(tests, T1_tokens_match_as_in_the_peer);
  tcase_add_test(tests, P2_default_orders_are_the_peers);
  tcase_add_test(tests, L1_L2_flagos_lists_are_the_peers);
  tcase_add_test(tests, L1_L2_oot_lists_are_the_peers);
}

int main(void) {
  return run_suite("conformance_settings", add_tests, 30);
}
