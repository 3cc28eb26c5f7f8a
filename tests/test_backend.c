/* A backend is its folder and its YAML file: the commands know a vendor that stands nowhere else
 * (tests/plugins/zephyr.c), by its name and its aliases, on a machine that has its device and on one that has not. */
#include "tests/scenario.h"

static void set_up(void) {
  begin_scenario();
  copy_built("tests/plugins/zephyr.so", "plugins");
  scratch_file("platforms/zephyr.yaml", "prefer: vendor\nop_backends:\n  relu2: vendor:zephyr\n");
  setting("VLLM_FL_PLATFORM=");
}

static json_t *report(void) {
  outcome run = FLHOST("platform", "--json");
  assert_status(run, 0);
  return parse_json(run.out, JSON_OBJECT);
}

START_TEST(its_platform_is_in_force_where_there_is_a_sign_of_it) {
  ck_assert_str_eq(text_at(report(), "active"), "cpu");
  setting("ZEPHYR=1");
  json_t *found = report();
  ck_assert_str_eq(text_at(found, "active"), "zephyr");
  assert_contains(text_at(found, "config_file"), "/platforms/zephyr.yaml");
}
END_TEST

START_TEST(an_alias_forces_its_platform_and_names_its_devices) {
  static const char *const words[] = {"zephyr", "west", "WIND"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    setting("VLLM_FL_PLATFORM=%s", words[i]);
    ck_assert_str_eq(text_at(report(), "active"), "zephyr");
    assert_contains(FLHOST("config").out, "zephyr.yaml:1");
  }
  setting("ZEPHYR=1");
  assert_contains(FLHOST("resolve", "--device", "west", "relu2").out, "vendor.zephyr");
  setting("VLLM_FL_PLATFORM=vest");
  assert_refused_with(FLHOST("platform"), "expected one of cpu, zephyr, west, wind, auto; did you mean 'west'?");
}
END_TEST

START_TEST(each_step_to_its_devices_is_told) {
  const json_t *zephyr = entry_of(json_object_get(report(), "platforms"), "name", "zephyr");
  const json_t *steps = json_object_get(zephyr, "steps");
  assert_contains(text_at(zephyr, "diagnosis"), "no Zephyr device on the PCI bus");
  assert_contains(text_at(entry_of(steps, "step", "kernel driver"), "advice"), "modprobe zephyr");
  assert_contains(text_at(entry_of(steps, "step", "device node"), "finding"), "no device node /nonexistent/zephyr0");
  assert_contains(text_at(entry_of(steps, "step", "user driver"), "finding"), "libzephyr_of_nobody.so.1");
  assert_contains(text_at(entry_of(steps, "step", "plugin"), "finding"), "plugin 'zephyr' says: ZEPHYR is not set");
  setting("ZEPHYR=1");
  outcome run = FLHOST("platform");
  assert_contains(run.out, "zephyr:0");
  assert_contains(run.out, "Zephyr 7");
}
END_TEST

START_TEST(its_architectures_are_in_its_own_order) {
  setting("ZEPHYR=1");
  assert_contains(FLHOST("explain", "--device", "zephyr", "quick_gelu").out,
                  "needs zephyr-nine, device 0 is zephyr-seven");
  assert_lacks(FLHOST("explain", "--device", "zephyr", "relu2").out, "needs");
}
END_TEST

START_TEST(its_kernels_are_called_with_its_memory) {
  setting("ZEPHYR=1");
  outcome run = FLHOST("verify", "--impl", "vendor.zephyr", "--dtype", "float32", "relu2");
  assert_status(run, 0);
  assert_contains(run.out, "vendor.zephyr");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_test(tests, its_platform_is_in_force_where_there_is_a_sign_of_it);
  tcase_add_test(tests, an_alias_forces_its_platform_and_names_its_devices);
  tcase_add_test(tests, each_step_to_its_devices_is_told);
  tcase_add_test(tests, its_architectures_are_in_its_own_order);
  tcase_add_test(tests, its_kernels_are_called_with_its_memory);
}

int main(void) {
  return run_suite("backend", add_tests, 30);
}
