/*
 * Settings that nobody writes by hand: too deep, too long, with other lists' separators; and what becomes of a host
 * when any one allocation on the way to its settings fails. The linker hands allocations to the functions below.
 */
#include "tests/allocations.h"
#include "tests/fixture.h"
#include "tests/settings_support.h"

#include <yaml.h>

char *__real_realpath(const char *path, char *resolved);
int __real_yaml_parser_initialize(yaml_parser_t *parser);
int __real_yaml_parser_parse(yaml_parser_t *parser, yaml_event_t *event);
int __real_yaml_parser_load(yaml_parser_t *parser, yaml_document_t *document);
char *__wrap_realpath(const char *path, char *resolved);
int __wrap_yaml_parser_initialize(yaml_parser_t *parser);
int __wrap_yaml_parser_parse(yaml_parser_t *parser, yaml_event_t *event);
int __wrap_yaml_parser_load(yaml_parser_t *parser, yaml_document_t *document);

char *__wrap_realpath(const char *path, char *resolved) {
  return fails() ? NULL : __real_realpath(path, resolved);
}

/* libyaml's own allocations are its own library's. */
static int no_memory(yaml_parser_t *parser) {
  parser->error = YAML_MEMORY_ERROR;
  return 0;
}

int __wrap_yaml_parser_initialize(yaml_parser_t *parser) {
  return fails() ? 0 : __real_yaml_parser_initialize(parser);
}

int __wrap_yaml_parser_parse(yaml_parser_t *parser, yaml_event_t *event) {
  return fails() ? no_memory(parser) : __real_yaml_parser_parse(parser, event);
}

int __wrap_yaml_parser_load(yaml_parser_t *parser, yaml_document_t *document) {
  return fails() ? no_memory(parser) : __real_yaml_parser_load(parser, document);
}

/* ---------------------------------------------------------------------------------------------------------- helpers */

static scratch_dir directory;
static log_lines lines;
static fl_config *config;

static void set_up(void) {
  scratch_begin(&directory);
  log_begin(&lines);
}

static void tear_down(void) {
  fl_config_free(config);
  config = NULL;
  scratch_end(&directory);
  fl_strings_free(&lines.lines);
}

static fl_status load(const char *first, const char *second) {
  const char *environment[] = {first, second, NULL};
  const fl_config_sources sources = {.environment = environment};
  fl_config_free(config);
  config = NULL;
  return fl_config_load(&sources, NULL, &lines.log, &config);
}

static fl_status load_file(const char *text) {
  fl_policy *policy = NULL;
  fl_status status = fl_policy_from_config(scratch_file(&directory, "policy.yaml", text), &policy);
  fl_policy_release(policy);
  return status;
}

/* `n` times what `format` makes of a number, between two texts; to be freed. */
static char *many(const char *before, const char *format, int n, const char *behind) {
  fl_text text = {0};
  fl_text_add(&text, "%s", before);
  for (int i = 0; i < n; i++) {
    char item[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(item, sizeof item, format, i);
#pragma GCC diagnostic pop
    fl_text_add(&text, "%s", item);
  }
  fl_text_add(&text, "%s", behind);
  return fl_text_take(&text);
}

/* ------------------------------------------------------------------------------------------------- other separators */

/* What names are separated by elsewhere is part of no name: the list would mean nothing, unsaid. */
START_TEST(C1_a_list_with_another_lists_separator_is_an_error_that_names_the_right_one) {
  static const char *const cases[][2] = {
      {"VLLM_FL_DENY_VENDORS=cuda;rocm", "VLLM_FL_DENY_VENDORS: 'cuda;rocm' is not a name; names are separated by ','"},
      {"VLLM_FL_ALLOW_VENDORS=cuda|rocm", "'cuda|rocm' is not a name; names are separated by ','"},
      {"VLLM_FL_FLAGOS_BLACKLIST=a|b", "VLLM_FL_FLAGOS_BLACKLIST: 'a|b' is not a name; names are separated by ','"},
      {"VLLM_FL_FLAGOS_WHITELIST=a;b", "'a;b' is not a name"},
      {"VLLM_FL_FLAGOS_BLACKLIST_APPEND=a, b;c", "'b;c' is not a name"},
      {"VLLM_FL_OOT_WHITELIST=RMSNorm;SiluAndMul", "'RMSNorm;SiluAndMul' is not a name"},
      {"VLLM_FL_OOT_BLACKLIST=RMSNorm|SiluAndMul", "'RMSNorm|SiluAndMul' is not a name"},
      {"VLLM_FL_CUSTOM_OPS=+rms_norm;-silu_and_mul", "'+rms_norm;-silu_and_mul' is not a name"},
      {"VLLM_FL_PER_OP=a=flagos|vendor,b=vendor", "'vendor,b=vendor' is not a token"},
      {"VLLM_FL_PER_OP=a=flagos|vendor,b=vendor", "; orders are separated by ';'"},
      {"VLLM_FL_PER_OP=a=flagos,vendor", "; tokens are separated by '|'"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_msg(load(cases[i][0], NULL) == FL_ECONFIG, "%s", cases[i][0]);
    ck_contains(fl_error_message(), cases[i][1]);
  }
  ck_ok(load(cases[0][0], "VLLM_FL_CHECK=warn"));
  expect_value(config, "deny_vendors", "[\"cuda;rocm\"]", "as the peer reads it");
}
END_TEST

START_TEST(C1_a_separator_in_an_item_of_a_file_is_an_error_at_its_place) {
  static const char *const cases[][2] = {
      {"deny_vendors:\n  - cuda,rocm\n", "policy.yaml:2:5: deny_vendors: 'cuda,rocm' is not a name; in a list each is"},
      {"deny_vendors: cuda;rocm\n",
       "policy.yaml:1:15: deny_vendors: 'cuda;rocm' is not a name; names are separated by"},
      {"flagos_blacklist: [mm, a|b]\n", "policy.yaml:1:24: flagos_blacklist: 'a|b' is not a name; in a list each is"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_int_eq(load_file(cases[i][0]), FL_ECONFIG);
    ck_contains(fl_error_message(), cases[i][1]);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- deep and long */

/* libyaml needs time that grows with the square of the depth, and of the anchors. */
START_TEST(C1_a_file_that_is_too_deep_or_too_clever_is_refused_at_the_place) {
  static const struct {
    const char *before, *each;
    int n;
    const char *behind, *message;
  } cases[] = {
      {"prefer: ", "[", 80000, "", "policy.yaml:1:72: too many lists and mappings in one another, expected 64 at most"},
      {"prefer: ", "{a: ", 40000, "", "too many lists and mappings in one another"},
      {"", "- ", 20000, "\n", "policy.yaml:1:129: too many lists and mappings in one another, expected 64 at most"},
      {"", "a%d: &x%d v\n", 40000, "", "policy.yaml:1001:8: too many anchors ('&'), expected 1000 at most"},
      {"prefer: &x vendor\nop_backends:\n", "  a%d: *x\n", 2000, "", "policy.yaml:1003:"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_text text = {0};
    fl_text_add(&text, "%s", cases[i].before);
    for (int k = 0; k < cases[i].n; k++) {
      if (strchr(cases[i].each, '%'))
        fl_text_add(&text, i == 3 ? "a%d: &x%d v\n" : "  a%d: *x\n", k, k);
      else
        fl_text_add(&text, "%s", cases[i].each);
    }
    fl_text_add(&text, "%s", cases[i].behind);
    ck_assert_int_eq(load_file(fl_text_get(&text)), FL_ECONFIG);
    ck_contains(fl_error_message(), cases[i].message);
    fl_text_free(&text);
  }
  char *lists = many("op_backends:\n", "  op_%d: [vendor, reference]\n", 500, "");
  ck_ok(load_file(lists)); /* many, but not in one another */
  free(lists);
}
END_TEST

/* An alias would repeat it for a byte or two. */
START_TEST(C1_an_order_of_more_tokens_than_there_are_is_an_error) {
  char *lists[] = {many("op_backends:\n  a: [", "vendor:v%d,", 70, "]\n"),
                   many("op_backends:\n  a: ", "vendor:v%d|", 69, "flagos\n")};
  for (size_t i = 0; i < 2; i++) {
    ck_assert_int_eq(load_file(lists[i]), FL_ECONFIG);
    ck_contains(fl_error_message(), "op 'a': an order of 70 tokens, expected 64 at most");
    free(lists[i]);
  }
}
END_TEST

START_TEST(T2_names_that_nobody_registered_are_warned_of_as_long_as_somebody_reads_on) {
  char *text = many("op_backends: {", "nobodys_op_%d: vendor,", 30000, "}\n");
  const fl_host_options options = {.size = sizeof options,
                                   .flags = FL_HOST_NO_PLUGINS,
                                   .config_file = scratch_file(&directory, "policy.yaml", text),
                                   .environment = (const char *const[]){NULL},
                                   .log = add_log_line,
                                   .log_user = &lines};
  fl_host *host;
  ck_ok(fl_host_create(&options, &host));
  ck_assert_ptr_nonnull(log_find(&lines, "policy.yaml:1: no op 'nobodys_op_0' is registered"));
  ck_assert_uint_lt(log_count(&lines, "is registered"), 200);
  ck_assert_uint_eq(log_count(&lines, "more ops were not looked at"), 1);
  fl_host_destroy(host);
  free(text);
}
END_TEST

START_TEST(C1_of_endless_problems_some_are_logged_and_the_rest_is_counted) {
  char *text = many("", "no_key_%d: 1\n", 20000, "");
  char *setting = fl_format("VLLM_FL_CONFIG=%s", scratch_file(&directory, "policy.yaml", text));
  ck_ok(load(setting, "VLLM_FL_CHECK=warn"));
  ck_assert_uint_eq(log_count(&lines, "unknown key"), 100);
  ck_assert_uint_eq(log_count(&lines, "… and 19900 warnings more about settings"), 1);
  free(setting);
  free(text);
}
END_TEST

/* Half of the directives contradict an earlier one, and are left out; what is left stays in order. */
START_TEST(custom_ops_of_many_names_are_what_those_of_a_few_are) {
  enum { N = 20000 };
  char *text = many("VLLM_FL_CUSTOM_OPS=none", ",+op_%05d", N, ""), *more = many(text, ",-op_%05d", N, ",oops,all");
  ck_ok(load(more, "VLLM_FL_CHECK=off"));
  const fl_strings *names = &config->values[FL_SETTING_CUSTOM_OPS].names;
  ck_assert_uint_eq(names->n, N + 1);
  ck_assert_str_eq(names->items[0], "none");
  ck_assert_str_eq(names->items[1], "+op_00000");
  ck_assert_str_eq(names->items[N], "+op_19999");
  ck_assert_int_eq(load(more, NULL), FL_ECONFIG);
  ck_contains(fl_error_message(), "custom_ops cannot both enable and disable the same operation(s): op_00000.");
  free(text);
  free(more);
}
END_TEST

START_TEST(a_list_that_is_appended_to_another_of_many_names_is_there_once) {
  enum { N = 20000 };
  char *text = many("VLLM_FL_FLAGOS_BLACKLIST=", "op_%05d,", N, ""),
       *more = many("VLLM_FL_FLAGOS_BLACKLIST_APPEND=", "op_%05d,", N + 1, "");
  ck_ok(load(text, more));
  ck_assert_uint_eq(config->values[FL_SETTING_FLAGOS_BLACKLIST].names.n, N + 1);
  ck_assert_str_eq(config->values[FL_SETTING_FLAGOS_BLACKLIST].names.items[N], "op_20000");
  free(text);
  free(more);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- without memory */

/* All settings and the platform file of a host; NULL: it could not be created for want of memory. */
static char *settings_of_host(const fl_host_options *options, int n) {
  fl_text text = {0};
  fl_host *host = NULL;
  fl_settings *settings = NULL;
  allocations = 0;
  failing = n;
  fl_status status = fl_host_create(options, &host);
  failing = -1;
  int needed = allocations;
  if (!status)
    status = fl_get_settings(host, &settings);
  for (uint32_t i = 0; settings && i < settings->n; i++)
    fl_text_add(&text, "%s=%s (%s)\n", fl_setting_at(settings, i)->name, fl_setting_at(settings, i)->value,
                fl_setting_at(settings, i)->origin);
  ck_assert_msg(!status || status == FL_ENOMEM, "allocation %d: %d: %s", n, status, fl_error_message());
  fl_settings_free(settings);
  fl_host_destroy(host);
  allocations = needed;
  return status ? (fl_text_free(&text), NULL) : fl_text_take(&text);
}

static void ignore_line(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* Each alone: the installed directory, the file of a named one, the policy file, and the JSON file of orders.
 */
START_TEST(a_host_has_all_of_its_settings_or_is_not_created_whichever_allocation_fails) {
  char *variables[2] = {NULL, NULL};
  const char *environment[] = {"VLLM_FL_DENY_VENDORS=a,b", "VLLM_FL_CUSTOM_OPS=all,-relu2", NULL, NULL};
  fl_host_options options = {
      .size = sizeof options, .flags = FL_HOST_NO_PLUGINS, .environment = environment, .log = ignore_line};
  if (_i == 1)
    options.config_dir = directory.dir;
  scratch_file(&directory, "cpu.yaml", "prefer: vendor\nop_backends:\n  rms_norm: [vendor, reference]\n");
  if (_i == 2)
    options.config_file = directory.files.items[0];
  if (_i == 3) {
    options.config_dir = directory.dir;
    environment[2] = variables[0] =
        fl_format("VLLM_FL_OP_CONFIG=%s",
                  scratch_file(&directory, "ops.json", "{\"rms_norm\": \"vendor\", \"relu2\": \"flagos\"}"));
  }
  char *expected = settings_of_host(&options, -1);
  int needed = allocations, refused = 0;
  ck_assert_ptr_nonnull(expected);
  ck_assert(!_i == !strstr(expected, ".yaml:"));
  for (int i = 0; i < needed; i += is_sparse() ? 11 : 1) {
    char *found = settings_of_host(&options, i);
    refused += !found;
    ck_each(!found || !strcmp(found, expected), "allocation %d of %d:\n%s\nexpected\n%s", i, needed, found, expected);
    free(found);
  }
  ck_assert_int_gt(refused, 5);
  free(expected);
  free(variables[0]);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, C1_a_list_with_another_lists_separator_is_an_error_that_names_the_right_one);
  tcase_add_test(tests, C1_a_separator_in_an_item_of_a_file_is_an_error_at_its_place);
  tcase_add_test(tests, C1_a_file_that_is_too_deep_or_too_clever_is_refused_at_the_place);
  tcase_add_test(tests, C1_an_order_of_more_tokens_than_there_are_is_an_error);
  tcase_add_test(tests, T2_names_that_nobody_registered_are_warned_of_as_long_as_somebody_reads_on);
  tcase_add_test(tests, C1_of_endless_problems_some_are_logged_and_the_rest_is_counted);
  tcase_add_test(tests, custom_ops_of_many_names_are_what_those_of_a_few_are);
  tcase_add_test(tests, a_list_that_is_appended_to_another_of_many_names_is_there_once);
  tcase_add_loop_test(tests, a_host_has_all_of_its_settings_or_is_not_created_whichever_allocation_fails, 0, 4);
}

int main(void) {
  return run_suite("hostile settings", add_tests, 120);
}
