/* What is invalid: where, what was found, what is allowed, the nearest valid word (C1, C5, T2), and what VLLM_FL_CHECK
 * makes of it. */
#include "tests/settings_support.h"

#define ENV(...)                                                                                                       \
  (const char *const[]) {                                                                                              \
    __VA_ARGS__, NULL                                                                                                  \
  }

static log_lines lines;

static fl_status load(const char *const *environment, fl_config **config) {
  fl_config_sources sources = {.environment = environment};
  *config = NULL;
  log_begin(&lines);
  return fl_config_load(&sources, NULL, &lines.log, config);
}

static void unload(fl_config *config) {
  fl_config_free(config);
  fl_strings_free(&lines.lines);
}

static void expect_message(const char *expected) {
  ck_assert_msg(!strcmp(fl_error_message(), expected), "'%s'\nexpected '%s'", fl_error_message(), expected);
}

/* Replaces each PATH by the path. */
static char *with_path(const char *text, const char *path) {
  fl_text out = {0};
  for (const char *at; (at = strstr(text, "PATH")); text = at + 4) {
    fl_text_add_bytes(&out, text, (size_t)(at - text));
    fl_text_add(&out, "%s", path);
  }
  fl_text_add(&out, "%s", text);
  return fl_text_take(&out);
}

/* One invalid text, the message, and what remains of it under warn ("" : an error there too). */
typedef struct invalid {
  const char *text, *message, *setting, *remains;
} invalid;

/* Runs it under error, warn and off. `warning`: the log line under warn, when it is not the message. */
static void run_invalid(const char *variable, const invalid *row, const char *message, const char *warning) {
  fl_config *config;
  ck_assert_msg(load(ENV(variable), &config) == FL_ECONFIG, "%s is accepted", row->text);
  expect_message(message);
  ck_assert_ptr_null(config);
  unload(config);
  static const char *const modes[] = {"VLLM_FL_CHECK=warn", "VLLM_FL_CHECK=off"};
  for (size_t i = 0; i < 2; i++) {
    fl_status status = load(ENV(variable, modes[i]), &config);
    ck_assert_msg((status == FL_ECONFIG) == !*row->remains, "%s under %s: %s", row->text, modes[i], fl_error_message());
    if (status) {
      expect_message(message);
      unload(config);
      continue;
    }
    expect_value(config, row->setting, row->remains, row->text);
    char *line = fl_format("WARNING %s", warning ? warning : message);
    ck_assert_msg(log_count(&lines, line) == !i, "'%s' logged %u times under %s", line, log_count(&lines, line),
                  modes[i]);
    ck_assert_uint_eq(log_count(&lines, "WARNING "), !i);
    free(line);
    unload(config);
  }
}

/* ----------------------------------------------------------------------------------------------------- variables */

START_TEST(C1_T2_invalid_variables) {
  static const invalid rows[] = {
      {"VLLM_FL_PREFER=vendro",
       "VLLM_FL_PREFER: 'vendro' is not one of flagos, vendor, reference; did you mean 'vendor'?", "prefer",
       "\"flagos\""},
      {"VLLM_FL_PREFER=flaggems",
       "VLLM_FL_PREFER: 'flaggems' is not one of flagos, vendor, reference; did you mean 'flagos'?", "prefer",
       "\"flagos\""},
      {"VLLM_FL_PREFER=vendor:cuda", "VLLM_FL_PREFER: 'vendor:cuda' is not one of flagos, vendor, reference", "prefer",
       "\"flagos\""},
      {"VLLM_FL_PREFER=ref", "VLLM_FL_PREFER: 'ref' is not one of flagos, vendor, reference; did you mean 'reference'?",
       "prefer", "\"flagos\""},
      {"VLLM_FL_LOG_LEVEL=warn",
       "VLLM_FL_LOG_LEVEL: 'warn' is not one of DEBUG, INFO, WARNING, ERROR; did you mean 'WARNING'?",
       "VLLM_FL_LOG_LEVEL", "\"INFO\""},
      {"VLLM_FL_CHECK=warning", "VLLM_FL_CHECK: 'warning' is not one of error, warn, off; did you mean 'warn'?", "",
       ""},
      {"VLLM_FL_CANARY=-1", "VLLM_FL_CANARY: '-1' is not a number from 0 to 4294967295", "VLLM_FL_CANARY", "0"},
      {"VLLM_FL_CANARY=4294967296", "VLLM_FL_CANARY: '4294967296' is not a number from 0 to 4294967295",
       "VLLM_FL_CANARY", "0"},
      {"VLLM_FL_CANARY=0x10", "VLLM_FL_CANARY: '0x10' is not a number from 0 to 4294967295", "VLLM_FL_CANARY", "0"},
      {"VLLM_FL_LOG_LEVEL=DEBUGG",
       "VLLM_FL_LOG_LEVEL: 'DEBUGG' is not one of DEBUG, INFO, WARNING, ERROR; did you mean 'DEBUG'?",
       "VLLM_FL_LOG_LEVEL", "\"INFO\""},
      {"VLLM_FL_PER_OP=rms_norm=vendor|refrence",
       "VLLM_FL_PER_OP: op 'rms_norm': 'refrence' is not a token, expected flagos, vendor, vendor:NAME, reference, "
       "native, unfused or impl:ID; did you mean 'reference'?",
       "op_backends", "{\"rms_norm\": [\"vendor\", \"refrence\"]}"},
      {"VLLM_FL_PER_OP=a=vendor:cuda,flagos",
       "VLLM_FL_PER_OP: op 'a': 'vendor:cuda,flagos' is not a token, expected flagos, vendor, vendor:NAME, reference, "
       "native, unfused or impl:ID; tokens are separated by '|'",
       "op_backends", "{\"a\": [\"vendor:cuda,flagos\"]}"},
      {"VLLM_FL_PER_OP=a=ref",
       "VLLM_FL_PER_OP: op 'a': 'ref' is not a token, expected flagos, vendor, vendor:NAME, reference, native, unfused "
       "or impl:ID; did you mean 'reference'?",
       "op_backends", "{\"a\": [\"ref\"]}"},
      {"VLLM_FL_PER_OP=a=default.flagos",
       "VLLM_FL_PER_OP: op 'a': 'default.flagos' is not a token, expected flagos, vendor, vendor:NAME, reference, "
       "native, unfused or impl:ID; did you mean 'impl:ID'?",
       "op_backends", "{\"a\": [\"default.flagos\"]}"},
      {"VLLM_FL_PER_OP=a=vendor.cuda",
       "VLLM_FL_PER_OP: op 'a': 'vendor.cuda' is not a token, expected flagos, vendor, vendor:NAME, reference, "
       "native, unfused or impl:ID; did you mean 'vendor:NAME'?",
       "op_backends", "{\"a\": [\"vendor.cuda\"]}"},
      {"VLLM_FL_PER_OP=rms_norm:vendor;a=flagos",
       "VLLM_FL_PER_OP: 'rms_norm:vendor' is not an order, expected op=token|token", "op_backends",
       "{\"a\": [\"flagos\"]}"},
      {"VLLM_FL_PER_OP=a=vendor: cuda",
       "VLLM_FL_PER_OP: op 'a': 'vendor: cuda' is not a token, expected flagos, vendor, vendor:NAME, reference, "
       "native, unfused or impl:ID; did you mean 'vendor:cuda'?",
       "op_backends", "{\"a\": [\"vendor: cuda\"]}"},
      {"VLLM_FL_PER_OP= = vendor ", "VLLM_FL_PER_OP: '= vendor' is not an order, expected op=token|token",
       "op_backends", "{}"},
      {"VLLM_FL_CUSTOM_OPS=all,none", "VLLM_FL_CUSTOM_OPS: custom_ops can contain only one base mode: 'all' or 'none'",
       "custom_ops", "[\"all\"]"},
      {"VLLM_FL_CUSTOM_OPS=+a,-b,-a",
       "VLLM_FL_CUSTOM_OPS: custom_ops cannot both enable and disable the same operation(s): a. Remove either the '+' "
       "or "
       "'-' directive",
       "custom_ops", "[\"+a\", \"-b\"]"},
      {"VLLM_FL_CUSTOM_OPS=rms_norm,none",
       "VLLM_FL_CUSTOM_OPS: Invalid syntax 'rms_norm' for custom op, must be 'all', 'none', '+op' or '-op' (where 'op' "
       "is "
       "the registered op name)",
       "custom_ops", "[\"none\"]"},
      {"VLLM_FL_CUSTOM_OPS=+",
       "VLLM_FL_CUSTOM_OPS: Invalid syntax '+' for custom op, must be 'all', 'none', '+op' or '-op' (where 'op' is the "
       "registered op name)",
       "custom_ops", "[]"},
      {"VLLM_FL_CUSTOM_OPS=nnoe",
       "VLLM_FL_CUSTOM_OPS: Invalid syntax 'nnoe' for custom op, must be 'all', 'none', '+op' or '-op' (where 'op' is "
       "the "
       "registered op name); did you mean 'none'?",
       "custom_ops", "[]"},
      {"VLLM_FL_CONFIG=/no/such.yaml", "VLLM_FL_CONFIG: Config file '/no/such.yaml' not found.", "VLLM_FL_CONFIG",
       "null"},
      {"VLLM_FL_CONFIG=tests", "VLLM_FL_CONFIG: Config file tests: not a regular file: it is a directory",
       "VLLM_FL_CONFIG", "null"},
      {"VLLM_FL_CONFIG=/dev/zero", "VLLM_FL_CONFIG: Config file /dev/zero: not a regular file: it is a device",
       "VLLM_FL_CONFIG", "null"},
      {"VLLM_FL_CHECK=wran", "VLLM_FL_CHECK: 'wran' is not one of error, warn, off; did you mean 'warn'?", "", ""},
      {"VLLM_FL_OP_CONFIG=/no/such.json", "VLLM_FL_OP_CONFIG file not found: /no/such.json", "", ""},
      {"VLLM_FL_OP_CONFIG=tests", "VLLM_FL_OP_CONFIG: 'tests': not a regular file: it is a directory", "", ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    run_invalid(rows[i].text, &rows[i], rows[i].message, NULL);
}
END_TEST

START_TEST(C5_booleans_of_variables) {
  static const char *const names[] = {"VLLM_FL_PREFER_ENABLED", "USE_FLAGGEMS", "VLLM_FL_OOT_ENABLED",
                                      "VLLM_FL_DISPATCH_DEBUG", "VLLM_FL_STRICT"};
  static const char *const true_words[] = {"1", "true", "TRUE", " True ", "\t1\n"};
  static const char *const false_words[] = {"0", "false", "False", " FALSE "};
  for (size_t n = 0; n < 5; n++) {
    const char *setting = strcmp(names[n], "VLLM_FL_STRICT") ? names[n] : "strict";
    for (size_t i = 0; i < 9; i++) {
      fl_config *config;
      char *variable = fl_format("%s=%s", names[n], i < 5 ? true_words[i] : false_words[i - 5]);
      ck_assert_msg(!load(ENV(variable), &config), "%s", fl_error_message());
      expect_value(config, setting, i < 5 ? "true" : "false", variable);
      unload(config);
      free(variable);
    }
  }
}
END_TEST

START_TEST(C5_what_is_no_boolean_is_invalid_and_false_to_the_peer) {
  static const struct {
    const char *word, *hint;
  } words[] = {{"yes", "; did you mean '1'?"},
               {"OFF", "; did you mean '0'?"},
               {"ture", "; did you mean 'true'?"},
               {"2", ""},
               {"-1", ""},
               {"maybe", ""},
               {" ", ""}};
  static const char *const names[] = {"VLLM_FL_PREFER_ENABLED", "USE_FLAGGEMS", "VLLM_FL_OOT_ENABLED",
                                      "VLLM_FL_DISPATCH_DEBUG", "VLLM_FL_STRICT"};
  for (size_t n = 0; n < 5; n++)
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
      bool strict = !strcmp(names[n], "VLLM_FL_STRICT"), blank = !strcmp(words[i].word, " ");
      if (strict && blank) /* the peer takes that one for unset */
        continue;
      char *variable = fl_format("%s=%s", names[n], words[i].word);
      char *message = fl_format("%s: '%s' is not a boolean, expected 1, true, 0 or false%s", names[n], words[i].word,
                                words[i].hint);
      if (blank) {
        free(message);
        message = fl_format("%s: '' is not a boolean, expected 1, true, 0 or false", names[n]);
      }
      char *warning = fl_format(
          "Invalid VLLM_FL_STRICT value '%s', expected '0' or '1'. Defaulting to '0' (fallback mode).", words[i].word);
      const invalid row = {variable, message, strict ? "strict" : names[n], "false"};
      run_invalid(variable, &row, message, strict ? warning : NULL);
      free(variable);
      free(message);
      free(warning);
    }
}
END_TEST

/* The peer takes 1 and 0 only: under warn it stays so for VLLM_FL_STRICT, of which it says so itself. */
START_TEST(C5_strict_true_is_false_under_warn_with_the_peers_warning) {
  fl_config *config;
  ck_assert_int_eq(load(ENV("VLLM_FL_STRICT=true", "VLLM_FL_CHECK=warn"), &config), FL_OK);
  expect_value(config, "strict", "false", "under warn");
  ck_assert_ptr_nonnull(log_find(
      &lines, "WARNING Invalid VLLM_FL_STRICT value 'true', expected '0' or '1'. Defaulting to '0' (fallback mode)."));
  unload(config);
}
END_TEST

START_TEST(C2_the_nearest_name_may_be_a_part_of_the_variable_or_the_other_way_round) {
  static const char *const names[][2] = {
      {"VLLM_FL_PREFERENCE", "VLLM_FL_PREFER"},          {"VLLM_FL_STRICT_MODE", "VLLM_FL_STRICT"},
      {"VLLM_FL_BLACKLIST", "VLLM_FL_FLAGOS_BLACKLIST"}, {"VLLM_FL_DEBUG", "VLLM_FL_DISPATCH_DEBUG"},
      {"VLLM_FL_USE_FLAGGEMS", "USE_FLAGGEMS"},          {"VLLM_FL_CONFIG_PATH", "VLLM_FL_CONFIG"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char *variable = fl_format("%s=1", names[i][0]);
    char *line = fl_format("WARNING %s: unknown variable, ignored; did you mean '%s'?", names[i][0], names[i][1]);
    fl_config *config;
    ck_assert_int_eq(load(ENV(variable), &config), FL_OK);
    ck_assert_msg(log_find(&lines, line) != NULL, "not logged: %s", line);
    unload(config);
    free(variable);
    free(line);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- files */

/* The file as VLLM_FL_CONFIG, under error, warn and off. */
static void run_file(const invalid *row) {
  scratch_dir scratch;
  scratch_begin(&scratch);
  const char *path = scratch_file(&scratch, "p.yaml", row->text);
  char *variable = fl_format("VLLM_FL_CONFIG=%s", path), *message = with_path(row->message, path);
  run_invalid(variable, row, message, NULL);
  free(variable);
  free(message);
  scratch_end(&scratch);
}

#define KEYS                                                                                                           \
  "prefer, strict, host_fallback, op_backends, allow_vendors, deny_vendors, flagos_whitelist, flagos_blacklist, "      \
  "oot_blacklist, "                                                                                                    \
  "custom_ops, communicator, comm_timeout_s, preserve_inputs, retry_first_s, retry_max_s, prepare_weights"

START_TEST(C1_unknown_and_repeated_keys) {
  static const invalid rows[] = {
      {"strict: true\nprefre: vendor\n",
       "PATH:2:1: unknown key 'prefre', expected one of " KEYS "; did you mean 'prefer'?", "strict", "true"},
      {"  xyzzy: 1\n", "PATH:1:3: unknown key 'xyzzy', expected one of " KEYS, "strict", "false"},
      {"Prefer: vendor", "PATH:1:1: unknown key 'Prefer', expected one of " KEYS "; did you mean 'prefer'?", "prefer",
       "\"flagos\""},
      {"1: vendor", "PATH:1:1: unknown key '1', expected one of " KEYS, "prefer", "\"flagos\""},
      {"per_op: {a: [vendor]}", "PATH:1:1: flhost has no key 'per_op' as vllm-plugin-FL has: write op_backends",
       "op_backends", "{}"},
      {"io_dump: {dir: x}", "PATH:1:1: flhost has no key 'io_dump' as vllm-plugin-FL has: it does not dump tensors",
       "op_backends", "{}"},
      {"prefer: vendor\nstrict: 1\nprefer: reference\n", "PATH:3:1: 'prefer' stands here and in line 1, expected once",
       "prefer", "\"reference\""},
      {"op_backends:\n  a: [vendor]\n  b: [flagos]\n  a: [reference]\n",
       "PATH:4:3: op 'a' stands here and in line 2, expected once", "op_backends",
       "{\"a\": [\"reference\"], \"b\": [\"flagos\"]}"},
      {"op_backends: {a: [vendor], a: }", "PATH:1:28: op 'a' stands here and in line 1, expected once", "op_backends",
       "{}"},
      {"op_backends: {a: , a: [vendor]}", "PATH:1:20: op 'a' stands here and in line 1, expected once", "op_backends",
       "{\"a\": [\"vendor\"]}"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    run_file(&rows[i]);
}
END_TEST

START_TEST(C1_C5_invalid_values_in_a_file) {
  static const invalid rows[] = {
      {"prefer: vendro", "PATH:1:9: prefer: 'vendro' is not one of flagos, vendor, reference; did you mean 'vendor'?",
       "prefer", "\"flagos\""},
      {"prefer: yes", "PATH:1:9: prefer: 'yes' is not one of flagos, vendor, reference", "prefer", "\"flagos\""},
      {"prefer: [vendor]", "PATH:1:9: prefer: found a list, expected a word", "prefer", "\"flagos\""},
      {"strict: maybe", "PATH:1:9: strict: 'maybe' is not a boolean, expected true or false", "strict", "true"},
      {"strict: ture", "PATH:1:9: strict: 'ture' is not a boolean, expected true or false; did you mean 'true'?",
       "strict", "true"},
      {"strict: ''", "PATH:1:9: strict: '' is not a boolean, expected true or false", "strict", "false"},
      {"strict: 2", "PATH:1:9: strict: '2' is not a boolean, expected true or false", "strict", "true"},
      {"strict: 0.0", "PATH:1:9: strict: '0.0' is not a boolean, expected true or false", "strict", "false"},
      {"strict: 0.5", "PATH:1:9: strict: '0.5' is not a boolean, expected true or false", "strict", "true"},
      {"strict: 0x00", "PATH:1:9: strict: '0x00' is not a boolean, expected true or false", "strict", "false"},
      {"strict: .nan", "PATH:1:9: strict: '.nan' is not a boolean, expected true or false", "strict", "true"},
      {"strict: []", "PATH:1:9: strict: found a list, expected true or false", "strict", "false"},
      {"strict: {a: b}", "PATH:1:9: strict: found a mapping, expected true or false", "strict", "true"},
      {"deny_vendors: 5",
       "PATH:1:15: deny_vendors: found a number, expected a list of names, or a string of names separated by commas",
       "deny_vendors", "[]"},
      {"deny_vendors: {a: b}",
       "PATH:1:15: deny_vendors: found a mapping, expected a list of names, or a string of names separated by commas",
       "deny_vendors", "[]"},
      {"deny_vendors: [a, no]",
       "PATH:1:19: deny_vendors: found 'no', which YAML reads as a boolean, expected a name (a name that looks so "
       "needs "
       "quotes)",
       "deny_vendors", "[\"a\"]"},
      {"deny_vendors: [on, b]",
       "PATH:1:16: deny_vendors: found 'on', which YAML reads as a boolean, expected a name (a name that looks so "
       "needs "
       "quotes)",
       "deny_vendors", "[\"True\", \"b\"]"},
      {"allow_vendors: [~]",
       "PATH:1:17: allow_vendors: found '~', which YAML reads as nothing, expected a name (a name that looks so needs "
       "quotes)",
       "allow_vendors", "null"},
      {"allow_vendors: [0]",
       "PATH:1:17: allow_vendors: found '0', which YAML reads as a number, expected a name (a name that looks so needs "
       "quotes)",
       "allow_vendors", "null"},
      {"allow_vendors: ['  ']", "PATH:1:17: allow_vendors: found an empty name, expected a name", "allow_vendors",
       "[\"\"]"},
      {"allow_vendors: ['', a]", "PATH:1:17: allow_vendors: found an empty name, expected a name", "allow_vendors",
       "[\"a\"]"},
      {"allow_vendors: [[a], b]", "PATH:1:17: allow_vendors: found a list, expected a name", "allow_vendors",
       "[\"b\"]"},
      {"op_backends: [a]", "PATH:1:14: op_backends: found a list, expected a mapping of op to tokens", "op_backends",
       "{}"},
      {"op_backends: a=vendor", "PATH:1:14: op_backends: found a string, expected a mapping of op to tokens",
       "op_backends", "{}"},
      {"op_backends: {a: 3, b: [vendor]}",
       "PATH:1:18: op 'a': found a number, expected a list of tokens, or 'token|token'", "op_backends",
       "{\"b\": [\"vendor\"]}"},
      {"op_backends: {a: {b: c}}", "PATH:1:18: op 'a': found a mapping, expected a list of tokens, or 'token|token'",
       "op_backends", "{}"},
      {"op_backends:\n  rms_norm:\n  - vendor\n  - vender:x\n",
       "PATH:4:5: op 'rms_norm': 'vender:x' is not a token, expected flagos, vendor, vendor:NAME, reference, native, "
       "unfused or impl:ID; did you mean 'vendor:NAME'?",
       "op_backends", "{\"rms_norm\": [\"vendor\", \"vender:x\"]}"},
      {"op_backends: {a: [vendor: cuda, reference]}",
       "PATH:1:19: op_backends: found a mapping, expected a name; did you mean 'vendor:cuda'?", "op_backends",
       "{\"a\": [\"reference\"]}"},
      {"op_backends: {' ': [vendor]}", "PATH:1:15: op_backends: found an empty name, expected an op", "op_backends",
       "{\"\": [\"vendor\"]}"},
      {"op_backends: {a: 'vendor|flagso'}",
       "PATH:1:18: op 'a': 'flagso' is not a token, expected flagos, vendor, vendor:NAME, reference, native, unfused "
       "or impl:ID; did you mean 'flagos'?",
       "op_backends", "{\"a\": [\"vendor\", \"flagso\"]}"},
      {"op_backends: {a: ['vendor|flagos']}",
       "PATH:1:19: op 'a': 'vendor|flagos' is not a token, expected flagos, vendor, vendor:NAME, reference, native, "
       "unfused or impl:ID; in a list each is an item",
       "op_backends", "{\"a\": [\"vendor|flagos\"]}"},
      {"custom_ops: [none, all]", "PATH:1:13: custom_ops can contain only one base mode: 'all' or 'none'", "custom_ops",
       "[\"none\"]"},
      {"custom_ops: {a: b}",
       "PATH:1:13: custom_ops: found a mapping, expected a list of names, or a string of names separated by commas",
       "custom_ops", "[\"all\"]"},
      {"retry_first_s: soon", "PATH:1:16: retry_first_s: 'soon' is not a time, expected seconds, 0 or more",
       "retry_first_s", "1"},
      {"retry_first_s: 010", "PATH:1:16: retry_first_s: '010' is not a time, expected seconds, 0 or more",
       "retry_first_s", "1"},
      {"retry_first_s: -1", "PATH:1:16: retry_first_s: '-1' is not a time, expected seconds, 0 or more",
       "retry_first_s", "1"},
      {"retry_max_s: .inf", "PATH:1:14: retry_max_s: '.inf' is not a time, expected seconds, 0 or more", "retry_max_s",
       "300"},
      {"retry_max_s: [1]", "PATH:1:14: retry_max_s: found a list, expected seconds, 0 or more", "retry_max_s", "300"},
      {"retry_first_s: 400",
       "built-in: retry_max_s 300 is less than retry_first_s 400 (PATH:1), expected at least that", "retry_max_s",
       "400"},
      {"[]", "PATH:1:1: found a list, expected a mapping such as 'prefer: vendor'", "prefer", "\"flagos\""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    run_file(&rows[i]);
}
END_TEST

/* Not YAML, or not of this form: the peer raises too. */
START_TEST(C1_files_that_cannot_be_read_are_errors_in_every_mode) {
  static const invalid rows[] = {
      {"prefer: vendor\n\tstrict: 1\n",
       "Failed to load config file 'PATH': PATH:1:9: while scanning a plain scalar; PATH:2:1: found a "
       "tab character that violates indentation (a tab; YAML is indented with spaces)",
       "", ""},
      {"op_backends: {a: [vendor\n",
       "Failed to load config file 'PATH': PATH:1:18: while parsing a flow sequence; PATH:2:1: did not "
       "find expected ',' or ']'",
       "", ""},
      {"prefer: !!python/object/apply:os.system [x]",
       "Failed to load config file 'PATH': PATH:1:9: could not determine a constructor for the tag "
       "'tag:yaml.org,2002:python/object/apply:os.system'",
       "", ""},
      {"x: {y: !z 1}",
       "Failed to load config file 'PATH': PATH:1:8: could not determine a constructor for the tag '!z'", "", ""},
      {"prefer: vendor\n---\nstrict: 1\n",
       "Failed to load config file 'PATH': PATH:1:1: expected a single document; PATH:2:1: found another one", "", ""},
      {"? [a]\n: b\n", "Failed to load config file 'PATH': PATH:1:3: a key must be a name, found 'a list'", "", ""},
      {"op_backends: {<<: {a: [vendor]}}",
       "Failed to load config file 'PATH': PATH:1:15: merge keys are not supported: write out what is merged, found "
       "'<<'",
       "", ""},
      {"prefer: \"ven\\0dor\"", "Failed to load config file 'PATH': PATH:1:9: a NUL character is not allowed", "", ""},
      {"prefer: *no_anchor", "Failed to load config file 'PATH': PATH:1:9: found undefined alias", "", ""},
      {"\xff\xfe\x01", "Failed to load config file 'PATH': PATH: incomplete UTF-16 character (byte 2)", "", ""},
      {"just words", "PATH:1:1: found a string, expected a mapping such as 'prefer: vendor'", "", ""},
      {"- a\n- b\n", "PATH:1:1: found a list, expected a mapping such as 'prefer: vendor'", "", ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    run_file(&rows[i]);
}
END_TEST

START_TEST(C1_valid_files) {
  static const struct {
    const char *text, *setting, *value;
  } rows[] = {
      {"", "prefer", "\"flagos\""},
      {"# nothing\n", "prefer", "\"flagos\""},
      {"---\nnull\n", "prefer", "\"flagos\""},
      {"{}", "prefer", "\"flagos\""},
      {"prefer:\n", "prefer", "\"flagos\""},
      {"prefer: ' VENDOR '", "prefer", "\"vendor\""},
      {"{\"prefer\": \"vendor\"}", "prefer", "\"vendor\""},
      {"strict:\n", "strict", "false"},
      {"strict: on", "strict", "true"},
      {"strict: No", "strict", "false"},
      {"strict: 1", "strict", "true"},
      {"strict: 0", "strict", "false"},
      {"strict: \"false\"", "strict", "false"},
      {"strict: \" NO \"", "strict", "false"},
      {"strict: \"off\"", "strict", "false"},
      {"strict: \"0\"", "strict", "false"},
      {"strict: 'yes'", "strict", "true"},
      {"strict: !!bool 'true'", "strict", "true"},
      {"deny_vendors: [3090, 'no']", "deny_vendors", "[\"3090\", \"no\"]"},
      {"deny_vendors: [1.5, 0x10, _1]", "deny_vendors", "[\"1.5\", \"0x10\", \"_1\"]"},
      {"deny_vendors: ''", "deny_vendors", "[]"},
      {"allow_vendors: []", "allow_vendors", "null"},
      {"flagos_blacklist: null", "flagos_blacklist", "[]"},
      {"flagos_whitelist: []", "flagos_whitelist", "[]"},
      {"oot_blacklist: a,b", "oot_blacklist", "[\"a\", \"b\"]"},
      {"op_backends: {a: , b: [vendor]}", "op_backends", "{\"b\": [\"vendor\"]}"},
      {"op_backends: {' a ': ' vendor | flagos '}", "op_backends", "{\"a\": [\"vendor\", \"flagos\"]}"},
      {"op_backends: {a: &o [vendor:x, 'impl:y '], b: *o}", "op_backends",
       "{\"a\": [\"vendor:x\", \"impl:y\"], \"b\": [\"vendor:x\", \"impl:y\"]}"},
      {"op_backends: {a: []}", "op_backends", "{\"a\": []}"},
      {"op_backends: {\"q\\\"\": [vendor]}", "op_backends", "{\"q\\\"\": [\"vendor\"]}"},
      {"custom_ops: none,+a", "custom_ops", "[\"none\", \"+a\"]"},
      {"retry_first_s: 0\n", "retry_first_s", "0"},
      {"retry_max_s: 1e3\n", "retry_max_s", "1000"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    scratch_dir scratch;
    fl_config *config;
    scratch_begin(&scratch);
    char *variable = fl_format("VLLM_FL_CONFIG=%s", scratch_file(&scratch, "p.yaml", rows[i].text));
    ck_assert_msg(!load(ENV(variable), &config), "%s: %s", rows[i].text, fl_error_message());
    expect_value(config, rows[i].setting, rows[i].value, rows[i].text);
    unload(config);
    free(variable);
    scratch_end(&scratch);
  }
}
END_TEST

START_TEST(P3_an_empty_order_is_none_in_a_variable_and_in_a_file) {
  static const char *const variables[] = {"VLLM_FL_PER_OP=a=", "VLLM_FL_PER_OP=a= |", "VLLM_FL_PER_OP=a=flagos; a =|"};
  fl_config *config;
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    ck_assert_msg(!load(ENV(variables[i]), &config), "%s: %s", variables[i], fl_error_message());
    expect_value(config, "op_backends", "{\"a\": []}", variables[i]);
    ck_assert_str_eq(fl_policy_fingerprint(config->policy), "prefer=flagos;st=0");
    ck_assert_uint_eq(lines.lines.n, 0);
    unload(config);
  }
  scratch_dir scratch;
  scratch_begin(&scratch);
  char *variable = fl_format("VLLM_FL_CONFIG=%s", scratch_file(&scratch, "p.yaml", "op_backends: {a: [], b: ' | '}"));
  ck_assert_msg(!load(ENV(variable), &config), "%s", fl_error_message());
  ck_assert_str_eq(fl_policy_fingerprint(config->policy), "prefer=flagos;st=0");
  unload(config);
  free(variable);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C3_a_name_that_stands_twice_in_a_list_counts_once) {
  scratch_dir scratch;
  fl_config *config;
  scratch_begin(&scratch);
  const char *path =
      scratch_file(&scratch, "p.yaml", "deny_vendors: [b, a, b, c, ' a ', a]\ncustom_ops: '+a,+a,none'\n");
  char *variable = fl_format("VLLM_FL_CONFIG=%s", path);
  ck_assert_msg(!load(ENV(variable, "VLLM_FL_OOT_WHITELIST=a,a"), &config), "%s", fl_error_message());
  expect_value(config, "deny_vendors", "[\"b\", \"a\", \"c\"]", path);
  expect_value(config, "custom_ops", "[\"+a\", \"none\"]", path);
  expect_value(config, "VLLM_FL_OOT_WHITELIST", "[\"a\"]", "the variable");
  unload(config);
  free(variable);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C1_every_problem_is_reported_one_a_line) {
  scratch_dir scratch;
  fl_config *config;
  scratch_begin(&scratch);
  const char *path = scratch_file(&scratch, "p.yaml", "prefer: vendro\nstrikt: 1\nop_backends:\n  a: [bogus]\n");
  char *variable = fl_format("VLLM_FL_CONFIG=%s", path);
  char *message =
      with_path("PATH:2:1: unknown key 'strikt', expected one of " KEYS "; did you mean 'strict'?\n"
                "PATH:1:9: prefer: 'vendro' is not one of flagos, vendor, reference; did you mean 'vendor'?\n"
                "PATH:4:7: op 'a': 'bogus' is not a token, expected flagos, vendor, vendor:NAME, reference, native, "
                "unfused or impl:ID\nVLLM_FL_OOT_ENABLED: 'x' is not a boolean, expected 1, true, 0 or false",
                path);
  ck_assert_int_eq(load(ENV(variable, "VLLM_FL_OOT_ENABLED=x"), &config), FL_ECONFIG);
  expect_message(message);
  unload(config);
  free(variable);
  free(message);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C1_problems_beyond_the_messages_end_are_counted) {
  scratch_dir scratch;
  fl_config *config;
  fl_text text = {0};
  scratch_begin(&scratch);
  fl_text_add(&text, "op_backends:\n");
  for (int i = 0; i < 1000; i++)
    fl_text_add(&text, "  op%04d: [bogus]\n", i);
  char *variable = fl_format("VLLM_FL_CONFIG=%s", scratch_file(&scratch, "p.yaml", fl_text_get(&text)));
  ck_assert_int_eq(load(ENV(variable), &config), FL_ECONFIG);
  const char *message = fl_error_message(), *rest = strstr(message, "\n… and ");
  ck_assert_ptr_nonnull(rest);
  int shown = 0, more = atoi(rest + strlen("\n… and "));
  for (const char *c = message; c < rest; c++)
    shown += *c == '\n';
  ck_assert_int_eq(shown + 1 + more, 1000);
  unload(config);
  free(variable);
  fl_text_free(&text);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C1_a_broken_platform_file_is_an_error_and_under_warn_passed_over) {
  scratch_dir scratch;
  scratch_begin(&scratch);
  scratch_file(&scratch, "x.yaml", "\tprefer: vendor\n");
  fl_config_sources sources = {.environment = ENV("A=1"), .default_config_dir = scratch.dir};
  fl_config *config = NULL;
  log_begin(&lines);
  ck_assert_int_eq(fl_config_load(&sources, "x", &lines.log, &config), FL_ECONFIG);
  char *start = fl_format("Failed to load platform config: %s/x.yaml:1:1: ", scratch.dir);
  ck_assert_msg(strstr(fl_error_message(), start) == fl_error_message(), "%s", fl_error_message());
  sources.environment = ENV("VLLM_FL_CHECK=warn");
  ck_assert_int_eq(fl_config_load(&sources, "x", &lines.log, &config), FL_OK);
  ck_assert_ptr_nonnull(log_find(&lines, start));
  ck_assert_ptr_null(config->platform_file);
  unload(config);
  free(start);
  scratch_end(&scratch);
}
END_TEST

START_TEST(C1_a_file_that_is_too_large_or_unreadable_is_refused) {
  scratch_dir scratch;
  fl_config *config;
  char *large = malloc((1 << 20) + 2);
  memset(large, '#', (1 << 20) + 1);
  large[(1 << 20) + 1] = 0;
  scratch_begin(&scratch);
  const char *path = scratch_file(&scratch, "p.yaml", large);
  char *variable = fl_format("VLLM_FL_CONFIG=%s", path);
  char *message = with_path("Failed to load config file 'PATH': PATH: larger than 1 MiB", path);
  ck_assert_int_eq(load(ENV(variable), &config), FL_ECONFIG);
  expect_message(message);
  large[1 << 20] = 0; /* just fits */
  scratch_file(&scratch, "p.yaml", large);
  ck_assert_int_eq(load(ENV(variable), &config), FL_OK);
  unload(config);
  free(message);
  if (geteuid()) { /* the superuser may read everything */
    ck_assert_int_eq(chmod(path, 0), 0);
    message = with_path("Failed to load config file 'PATH': PATH: Permission denied", path);
    ck_assert_int_eq(load(ENV(variable), &config), FL_ECONFIG);
    expect_message(message);
    free(message);
  }
  free(variable);
  free(large);
  unlink(path);
  fl_strings_free(&scratch.files);
  scratch_end(&scratch);
}
END_TEST

/* ------------------------------------------------------------------------------------------- VLLM_FL_OP_CONFIG */

START_TEST(C_op_config_errors_have_line_and_column) {
  static const struct {
    const char *text, *message;
  } rows[] = {
      {"", "PATH:1:1: Invalid VLLM_FL_OP_CONFIG JSON file. unexpected token near end of file"},
      {"{\"a\": \"vendor\",\n \"b\" \"flagos\"}",
       "PATH:2:13: Invalid VLLM_FL_OP_CONFIG JSON file. ':' expected near '\"flagos\"'"},
      {"[\"a\"]", "PATH:1:1: VLLM_FL_OP_CONFIG must be a JSON object. Expected {\"rms_norm\": \"vendor\"}"},
      {"\"a\"", "PATH:1:1: VLLM_FL_OP_CONFIG must be a JSON object. Expected {\"rms_norm\": \"vendor\"}"},
      {"{\"a\": \"vendor\",\n  \"b\": [\"vendor\"]}",
       "PATH:2:8: VLLM_FL_OP_CONFIG must map strings to strings. op 'b' has a value that is none"},
      {"{\"a\": null}", "PATH:1:7: VLLM_FL_OP_CONFIG must map strings to strings. op 'a' has a value that is none"},
      {"{\n\"a\\n\\\"b\":\t\"vendro\"\n}", "PATH:2:11: Unsupported backend 'vendro' for op 'a\n\"b'. Must be one of: "
                                           "flagos, reference, vendor; did you mean "
                                           "'vendor'?"},
      {"{\"a\": \"vendor:cuda\"}",
       "PATH:1:7: Unsupported backend 'vendor:cuda' for op 'a'. Must be one of: flagos, reference, vendor"},
  };
  static const char *const modes[] = {"VLLM_FL_CHECK=error", "VLLM_FL_CHECK=warn"};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    scratch_dir scratch;
    fl_config *config;
    scratch_begin(&scratch);
    const char *path = scratch_file(&scratch, "o.json", rows[i].text);
    char *variable = fl_format("VLLM_FL_OP_CONFIG=%s", path), *message = with_path(rows[i].message, path);
    for (size_t m = 0; m < 2; m++) {
      ck_assert_int_eq(load(ENV(variable, modes[m]), &config), FL_ECONFIG);
      expect_message(message);
      unload(config);
    }
    free(variable);
    free(message);
    scratch_end(&scratch);
  }
}
END_TEST

START_TEST(C_op_config_that_names_an_op_twice) {
  scratch_dir scratch;
  fl_config *config;
  scratch_begin(&scratch);
  const char *path = scratch_file(&scratch, "o.json", "{\"a\": \"vendor\", \"b\": \"flagos\",\n \"a\": \"reference\"}");
  char *variable = fl_format("VLLM_FL_OP_CONFIG=%s", path);
  char *message = with_path("PATH:2:2: op 'a' stands here and in line 1, expected once", path);
  ck_assert_int_eq(load(ENV(variable), &config), FL_ECONFIG);
  expect_message(message);
  unload(config);
  ck_assert_int_eq(load(ENV(variable, "VLLM_FL_CHECK=warn"), &config), FL_OK);
  expect_value(config, "op_backends", "{\"a\": [\"reference\"], \"b\": [\"flagos\"]}", path);
  unload(config);
  free(variable);
  free(message);
  scratch_end(&scratch);
}
END_TEST

/* --------------------------------------------------------------------------------------- fl_policy_from_config */

START_TEST(policies_from_files_use_no_setting_of_the_environment) {
  scratch_dir scratch;
  fl_policy *policy = NULL;
  unsetenv("VLLM_FL_CHECK");
  setenv("VLLM_FL_STRICT", "nonsense", 1);
  setenv("VLLM_FL_PREFER", "reference", 1);
  scratch_begin(&scratch);
  const char *path = scratch_file(
      &scratch, "p.yaml", "prefer: vendor\npreserve_inputs: true\nop_backends: {a: [flagos]}\nallow_vendors: x\n");
  ck_assert_int_eq(fl_policy_from_config(path, &policy), FL_OK);
  ck_assert_str_eq(fl_policy_fingerprint(policy), "prefer=vendor;st=0;allow=x;per=a=flagos;preserve=1");
  fl_policy_release(policy);
  policy = NULL;
  scratch_file(&scratch, "p.yaml", "prefer: vendro\n");
  char *message =
      with_path("PATH:1:9: prefer: 'vendro' is not one of flagos, vendor, reference; did you mean 'vendor'?", path);
  ck_assert_int_eq(fl_policy_from_config(path, &policy), FL_ECONFIG);
  expect_message(message);
  free(message);
  scratch_file(&scratch, "p.yaml", "a: [\n");
  message = with_path("Failed to load config file 'PATH': PATH:2:1: ", path);
  ck_assert_int_eq(fl_policy_from_config(path, &policy), FL_ECONFIG);
  ck_assert_msg(strstr(fl_error_message(), message) == fl_error_message(), "%s", fl_error_message());
  free(message);
  ck_assert_int_eq(fl_policy_from_config("/no/such.yaml", &policy), FL_ECONFIG);
  expect_message("Config file '/no/such.yaml' not found.");
  ck_assert_int_eq(fl_policy_from_config(NULL, &policy), FL_EINVAL);
  expect_message("fl_policy_from_config: path is NULL, expected the path of a YAML file");
  ck_assert_ptr_null(policy);
  unlink(path);
  fl_strings_free(&scratch.files);
  scratch_end(&scratch);
}
END_TEST

/* What a function writes to standard error, up to the buffer's end. */
static void hear(const char *path, fl_policy **policy, char *heard, size_t size) {
  FILE *file = tmpfile();
  int kept = dup(STDERR_FILENO);
  ck_assert(file && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
  fl_status status = fl_policy_from_config(path, policy);
  ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
  ck_assert_msg(!status, "%s", fl_error_message());
  rewind(file);
  heard[fread(heard, 1, size - 1, file)] = 0;
  close(kept);
  fclose(file);
}

START_TEST(C1_policies_from_files_heed_VLLM_FL_CHECK) {
  scratch_dir scratch;
  fl_policy *policy = NULL;
  char heard[1024];
  scratch_begin(&scratch);
  const char *path = scratch_file(&scratch, "p.yaml", "prefer: vendro\nstrict: yes\n");
  setenv("VLLM_FL_CHECK", "warn", 1);
  hear(path, &policy, heard, sizeof heard);
  ck_assert_str_eq(fl_policy_fingerprint(policy), "prefer=flagos;st=1");
  ck_assert_msg(strstr(heard, "[WARNING] [flhost] ") && strstr(heard, "p.yaml:1:9: prefer: 'vendro' is not one of"),
                "%s", heard);
  fl_policy_release(policy);
  setenv("VLLM_FL_CHECK", "off", 1);
  hear(path, &policy, heard, sizeof heard);
  ck_assert_str_eq(heard, "");
  fl_policy_release(policy);
  setenv("VLLM_FL_CHECK", "wran", 1);
  ck_assert_int_eq(fl_policy_from_config(path, &policy), FL_ECONFIG);
  ck_assert_msg(strstr(fl_error_message(), "VLLM_FL_CHECK: 'wran' is not one of") == fl_error_message(), "%s",
                fl_error_message());
  scratch_end(&scratch);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, C1_T2_invalid_variables);
  tcase_add_test(tests, C5_booleans_of_variables);
  tcase_add_test(tests, C5_what_is_no_boolean_is_invalid_and_false_to_the_peer);
  tcase_add_test(tests, C5_strict_true_is_false_under_warn_with_the_peers_warning);
  tcase_add_test(tests, C2_the_nearest_name_may_be_a_part_of_the_variable_or_the_other_way_round);
  tcase_add_test(tests, C1_unknown_and_repeated_keys);
  tcase_add_test(tests, C1_C5_invalid_values_in_a_file);
  tcase_add_test(tests, C1_files_that_cannot_be_read_are_errors_in_every_mode);
  tcase_add_test(tests, C1_valid_files);
  tcase_add_test(tests, C1_every_problem_is_reported_one_a_line);
  tcase_add_test(tests, C1_problems_beyond_the_messages_end_are_counted);
  tcase_add_test(tests, C1_a_broken_platform_file_is_an_error_and_under_warn_passed_over);
  tcase_add_test(tests, C1_a_file_that_is_too_large_or_unreadable_is_refused);
  tcase_add_test(tests, C_op_config_errors_have_line_and_column);
  tcase_add_test(tests, C_op_config_that_names_an_op_twice);
  tcase_add_test(tests, policies_from_files_use_no_setting_of_the_environment);
  tcase_add_test(tests, C1_policies_from_files_heed_VLLM_FL_CHECK);
  tcase_add_test(tests, P3_an_empty_order_is_none_in_a_variable_and_in_a_file);
  tcase_add_test(tests, C3_a_name_that_stands_twice_in_a_list_counts_once);
}

int main(void) {
  return run_suite("settings", add_tests, 20);
}
