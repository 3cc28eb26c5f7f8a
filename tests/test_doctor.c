/* Scenarios of `flhost doctor`: each makes one thing wrong and looks for the finding. */
#include "tests/scenario.h"

#include <sys/stat.h>

/* The finding whose text contains `part`. */
static json_t *finding(const json_t *list, const char *part) {
  json_t *entry;
  size_t index;
  json_array_foreach(list, index, entry) if (strstr(text_at(entry, "what"), part)) return entry;
  ck_abort_msg("no finding with '%s' in:\n%.3000s", part, json_dumps(list, JSON_INDENT(1)));
  return NULL;
}

static json_t *doctor(int expected_status) {
  outcome run = FLHOST("doctor", "--json");
  assert_status(run, expected_status);
  ck_assert_str_eq(run.err, "");
  return parse_json(run.out, JSON_ARRAY);
}

START_TEST(doctor_is_content_with_a_sound_machine) {
  static const char *const keys[] = {"severity", "area", "what", "advice", NULL};
  json_t *list = doctor(0);
  assert_keys(json_array_get(list, 0), keys);
  ck_assert_str_eq(text_at(finding(list, "operators are ready on cpu"), "severity"), "ok");
  ck_assert_str_eq(text_at(finding(list, "two_vendors 2.1"), "severity"), "note"); /* one of four is missing */
  outcome run = FLHOST("doctor");
  assert_quiet(run);
  assert_contains(run.out, "operators are ready on cpu");
}
END_TEST

START_TEST(doctor_works_with_invalid_settings) {
  setting("VLLM_FL_PREFER=vendro");
  json_t *list = doctor(2), *invalid = finding(list, "'vendro'");
  ck_assert_str_eq(text_at(invalid, "severity"), "problem");
  ck_assert_uint_gt(strlen(text_at(invalid, "advice")), 0);
  ck_assert_str_eq(text_at(finding(list, "two_vendors 2.1"), "severity"), "note"); /* one of four is missing */
  assert_lacks(FLHOST("doctor").out, "has no effect");
}
END_TEST

START_TEST(doctor_finds_failed_plugins) {
  scratch_file("plugins/broken.so", "not a plugin\n");
  json_t *broken = finding(doctor(2), "broken.so");
  ck_assert_str_eq(text_at(broken, "severity"), "problem");
  ck_assert_str_eq(text_at(broken, "area"), "plugins");
}
END_TEST

START_TEST(doctor_finds_missing_directories) {
  setting("VLLM_FL_PLUGIN_PATH=%s:%s", scratch("plugins"), scratch("nowhere"));
  json_t *missing = finding(doctor(0), scratch("nowhere"));
  ck_assert_str_eq(text_at(missing, "severity"), "warning");
  assert_contains(text_at(missing, "what"), "VLLM_FL_PLUGIN_PATH");
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("nowhere"));
  ck_assert_str_eq(text_at(finding(doctor(2), "no plugin is loaded"), "severity"), "problem");
}
END_TEST

START_TEST(doctor_finds_directories_that_everyone_may_write_to) {
  ck_assert_int_eq(chmod(scratch("plugins"), 0777), 0);
  json_t *open = finding(doctor(2), "every user may write to");
  ck_assert_str_eq(text_at(open, "severity"), "problem");
  assert_contains(text_at(open, "what"), scratch("plugins"));
}
END_TEST

START_TEST(doctor_finds_a_policy_that_everyone_may_write_to) {
  const char *policy = scratch_file("policy.yaml", "prefer: reference\n");
  setting("VLLM_FL_CONFIG=%s", policy);
  ck_assert_int_eq(chmod(policy, 0666), 0);
  assert_contains(text_at(finding(doctor(2), "every user may write to"), "what"), policy);
}
END_TEST

START_TEST(doctor_finds_names_that_are_not_registered) {
  setting("VLLM_FL_PER_OP=silu_and_mull=flagos");
  setting("VLLM_FL_DENY_VENDORS=acne");
  json_t *list = doctor(0), *op = finding(list, "'silu_and_mull'");
  ck_assert_str_eq(text_at(op, "severity"), "warning");
  assert_contains(text_at(op, "what"), "'silu_and_mul'");
  assert_contains(text_at(op, "what"), "VLLM_FL_PER_OP");
  assert_contains(text_at(finding(list, "'acne'"), "what"), "'acme'");
}
END_TEST

/* What the host has to accept, since a plugin may come yet: settings, and the finding that names what was meant. */
static const struct {
  const char *setting, *words;
} slips[] = {
    {"VLLM_FL_OOT_BLACKLIST=SiluAndMlu",
     "oot_blacklist (VLLM_FL_OOT_BLACKLIST): no op replaces a layer class 'SiluAndMlu'; did you mean 'SiluAndMul'?"},
    {"VLLM_FL_OOT_WHITELIST=RMSNorm,rms_nrom", "VLLM_FL_OOT_WHITELIST): no op replaces a layer class 'rms_nrom'"},
    {"VLLM_FL_FLAGOS_BLACKLIST=rms_nrom", "names the op 'rms_nrom', which is not registered; did you mean 'rms_norm'?"},
    {"VLLM_FL_ALLOW_VENDORS=NVIDIA",
     "names the vendor 'NVIDIA', which is not registered; did you mean 'cuda'?"}, /* `flhost plugins` says NVIDIA */
    {"VLLM_FL_DENY_VENDORS=huawei", "names the vendor 'huawei', which is not registered; did you mean 'ascend'?"},
    {"FLAGGEMS_ENABLE_OPLIST_PATH=/nonexistent/ops.txt",
     "FLAGGEMS_ENABLE_OPLIST_PATH: '/nonexistent/ops.txt' cannot be written: there is no such directory"},
    {"FLAGGEMS_ENABLE_OPLIST_PATH=/proc", "'/proc' cannot be written: it is a directory"},
    {"FLAGGEMS_ENABLE_OPLIST_PATH=/proc/self", "'/proc/self' cannot be written: it is a link"},
};
enum { N_SLIPS = sizeof slips / sizeof *slips };

START_TEST(doctor_finds_what_settings_name_and_nothing_has) {
  copy_built("plugins/cuda.so", "plugins");
  copy_built("plugins/ascend.so", "plugins");
  setting("%s", slips[_i].setting);
  json_t *slip = finding(doctor(0), slips[_i].words);
  ck_assert_str_eq(text_at(slip, "severity"), "warning");
  ck_assert_str_eq(text_at(slip, "area"), "settings");
  ck_assert_uint_gt(strlen(text_at(slip, "advice")), 0);
}
END_TEST

/* The host warns of these itself: doctor does not say it twice. */
static const struct {
  const char *setting, *words;
} orders[] = {
    {"VLLM_FL_PER_OP=silu_and_mul=impl:vendor.blot|reference",
     "token 'impl:vendor.blot' for op 'silu_and_mul': no plugin has registered that implementation; did you mean "
     "'impl:vendor.bolt'?"},
    {"VLLM_FL_PER_OP=rms_norm=impl:vendor.bolt|reference", /* it has another op */
     "token 'impl:vendor.bolt' for op 'rms_norm': no plugin has registered that implementation"},
};
enum { N_ORDERS = sizeof orders / sizeof *orders };

START_TEST(doctor_tells_once_of_an_order_that_names_what_nobody_has_registered) {
  json_t *list, *item;
  size_t i;
  int n = 0;
  setting("%s", orders[_i].setting);
  list = doctor(0);
  ck_assert_str_eq(text_at(finding(list, orders[_i].words), "severity"), "warning");
  json_array_foreach(list, i, item) n += strstr(text_at(item, "what"), "token 'impl:") != NULL;
  ck_assert_int_eq(n, 1);
}
END_TEST

START_TEST(doctor_has_nothing_to_say_of_names_that_are_right) {
  setting("VLLM_FL_PER_OP=silu_and_mul=impl:vendor.bolt|impl:default.flagos|reference");
  setting("VLLM_FL_OOT_BLACKLIST=SiluAndMul,rms_norm,unquantized_fused_moe_method,worker,mla_attention_backend");
  setting("VLLM_FL_ALLOW_VENDORS=bolt");
  setting("FLAGGEMS_ENABLE_OPLIST_PATH=%s", scratch("ops.txt"));
  finding(doctor(0), "settings are in force");
}
END_TEST

/* Where nothing invalid is told of, this is the place to hear it; not that it is beaten by something else. */
START_TEST(doctor_tells_what_is_invalid_where_nobody_else_does) {
  setting("VLLM_FL_CHECK=off");
  setting("VLLM_FL_PREFER=vendro");
  ck_assert_str_eq(text_at(finding(doctor(0), "'vendro'"), "severity"), "warning");
  assert_lacks(FLHOST("doctor").out, "has no effect");
}
END_TEST

START_TEST(doctor_misses_no_platform_file_beside_a_file_that_stands_in_for_it) {
  finding(doctor(0), "no platform file for cpu");
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "prefer: reference\n"));
  assert_lacks(FLHOST("doctor").out, "built-in values are in force");
}
END_TEST

START_TEST(doctor_blames_the_variable_that_named_what_is_not_there) {
  setting("VLLM_FL_PLUGIN_MODULES=two_vendros");
  assert_contains(text_at(finding(doctor(2), "no plugin 'two_vendros'"), "advice"), "correct VLLM_FL_PLUGIN_MODULES");
  setting("VLLM_FL_PLUGIN_MODULES=");
  setting("VLLM_FL_PLUGIN_PATH=build/plugins");
  ck_assert_str_eq(text_at(finding(doctor(2), "expected an absolute path"), "advice"), "correct the variable");
}
END_TEST

START_TEST(doctor_counts_one_in_the_singular) {
  copy_built("tests/plugins/listed/lazy_builtin.so", "plugins");
  ck_assert(strstr(FLHOST("doctor").out, "plugin lazy_builtin 1: 1 implementation\n") != NULL);
}
END_TEST

START_TEST(doctor_finds_variables_without_effect) {
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "prefer: reference\n"));
  setting("VLLM_FL_PREFER=flagos");
  json_t *beaten = finding(doctor(0), "VLLM_FL_PREFER is set but has no effect");
  ck_assert_str_eq(text_at(beaten, "severity"), "warning");
  assert_contains(text_at(beaten, "what"), "policy.yaml:1");
}
END_TEST

/* Set beside VLLM_FL_CONFIG; `key` is what the file would say in its place, NULL: it counts. */
static const struct {
  const char *setting, *key;
} beside_policy_file[] = {
    {"VLLM_FL_PREFER=vendor", "prefer"},
    {"VLLM_FL_DENY_VENDORS=acme", "deny_vendors"},
    {"VLLM_FL_FLAGOS_BLACKLIST=rms_norm", "flagos_blacklist"},
    {"VLLM_FL_FLAGOS_WHITELIST=rms_norm", "flagos_whitelist"},
    {"VLLM_FL_OOT_BLACKLIST=rms_norm", "oot_blacklist"},
    {"VLLM_FL_CUSTOM_OPS=none", "custom_ops"},
    {"VLLM_FL_OP_CONFIG=tests/data/op_config.json", "op_backends"},
    {"VLLM_FL_FLAGOS_BLACKLIST_APPEND=rms_norm", NULL},
    {"VLLM_FL_OOT_WHITELIST=rms_norm", NULL},
    {"VLLM_FL_OOT_ENABLED=0", NULL},
    {"USE_FLAGGEMS=0", NULL},
    {"VLLM_FL_PREFER_ENABLED=0", NULL},
};
enum { N_BESIDE = sizeof beside_policy_file / sizeof *beside_policy_file };

START_TEST(doctor_names_the_policy_file_that_beats_a_variable) {
  const char *variable = beside_policy_file[_i].setting, *key = beside_policy_file[_i].key;
  char expected[256], words[128];
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "strict: true\n"));
  setting("%s", variable);
  if (!key) {
    assert_lacks(FLHOST("doctor").out, "has no effect");
    return;
  }
  snprintf(words, sizeof words, "%.*s is set but has no effect: the policy file '", (int)strcspn(variable, "="),
           variable);
  json_t *beaten = finding(doctor(0), words);
  snprintf(expected, sizeof expected,
           "(VLLM_FL_CONFIG) replaces every other source of %s, whose value comes from built-in", key);
  assert_contains(text_at(beaten, "what"), expected);
  snprintf(expected, sizeof expected, "write %s in that file, or remove the variable", key);
  ck_assert_str_eq(text_at(beaten, "advice"), expected);
}
END_TEST

/* Another finding names a variable that begins with its name. */
START_TEST(doctor_tells_of_each_variable_without_effect) {
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "strict: true\n"));
  setting("VLLM_FL_FLAGOS_BLACKLIST_APPEND=rms_norm silu_and_mul");
  setting("VLLM_FL_FLAGOS_BLACKLIST=rms_norm");
  json_t *list = doctor(0);
  finding(list, "VLLM_FL_FLAGOS_BLACKLIST_APPEND: the name 'rms_norm silu_and_mul' holds white space");
  finding(list, "VLLM_FL_FLAGOS_BLACKLIST is set but has no effect");
}
END_TEST

START_TEST(doctor_finds_that_kind_flagos_is_off) {
  setting("USE_FLAGGEMS=false");
  json_t *off = finding(doctor(0), "kind flagos are not used for any operator");
  ck_assert_str_eq(text_at(off, "severity"), "warning");
  assert_contains(text_at(off, "what"), "USE_FLAGGEMS");
}
END_TEST

START_TEST(doctor_hears_warnings_at_any_log_level) {
  setting("VLLM_FL_LOG_LEVEL=ERROR");
  setting("VLLM_FL_PERFER=vendor");
  ck_assert_str_eq(text_at(finding(doctor(0), "VLLM_FL_PERFER"), "severity"), "warning");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, begin_scenario, end_scenario);
  tcase_add_test(tests, doctor_is_content_with_a_sound_machine);
  tcase_add_test(tests, doctor_works_with_invalid_settings);
  tcase_add_test(tests, doctor_finds_failed_plugins);
  tcase_add_test(tests, doctor_finds_missing_directories);
  tcase_add_test(tests, doctor_finds_directories_that_everyone_may_write_to);
  tcase_add_test(tests, doctor_finds_a_policy_that_everyone_may_write_to);
  tcase_add_test(tests, doctor_finds_names_that_are_not_registered);
  tcase_add_loop_test(tests, doctor_finds_what_settings_name_and_nothing_has, 0, N_SLIPS);
  tcase_add_loop_test(tests, doctor_tells_once_of_an_order_that_names_what_nobody_has_registered, 0, N_ORDERS);
  tcase_add_test(tests, doctor_has_nothing_to_say_of_names_that_are_right);
  tcase_add_test(tests, doctor_tells_what_is_invalid_where_nobody_else_does);
  tcase_add_test(tests, doctor_misses_no_platform_file_beside_a_file_that_stands_in_for_it);
  tcase_add_test(tests, doctor_blames_the_variable_that_named_what_is_not_there);
  tcase_add_test(tests, doctor_counts_one_in_the_singular);
  tcase_add_test(tests, doctor_finds_variables_without_effect);
  tcase_add_test(tests, doctor_tells_of_each_variable_without_effect);
  tcase_add_loop_test(tests, doctor_names_the_policy_file_that_beats_a_variable, 0, N_BESIDE);
  tcase_add_test(tests, doctor_finds_that_kind_flagos_is_off);
  tcase_add_test(tests, doctor_hears_warnings_at_any_log_level);
}

int main(void) {
  return run_suite("doctor", add_tests, 30);
}
