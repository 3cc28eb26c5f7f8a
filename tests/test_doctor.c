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

START_TEST(doctor_finds_variables_without_effect) {
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "prefer: reference\n"));
  setting("VLLM_FL_PREFER=flagos");
  json_t *beaten = finding(doctor(0), "VLLM_FL_PREFER is set but has no effect");
  ck_assert_str_eq(text_at(beaten, "severity"), "warning");
  assert_contains(text_at(beaten, "what"), "policy.yaml:1");
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
  tcase_add_test(tests, doctor_finds_variables_without_effect);
  tcase_add_test(tests, doctor_finds_that_kind_flagos_is_off);
  tcase_add_test(tests, doctor_hears_warnings_at_any_log_level);
}

int main(void) {
  return run_suite("doctor", add_tests, 30);
}
