/* Plugins that bring a platform and say so in their file (FL_PLUGIN_PLATFORM): when they are loaded. */
#include "tests/listed.h"

static const char *denied; /* VLLM_FL_DENY_VENDORS=…, or NULL */

/* `platform` NULL: it is detected. */
static fl_status create_for(const char *platform) {
  const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", denied, NULL};
  const fl_host_options options = {
      .size = sizeof options,
      .environment = environment,
      .config_dir = "/nonexistent",
      .platform = platform,
      .plugin_path = in_scratch("plugins"),
      .plugin_modules = modules_of("lazy_platform lazy_builtin"),
      .log = test_log_capture,
      .log_user = &test_log,
  };
  test_log_clear();
  return fl_host_create(&options, &host);
}

static const char *platform_in_force(void) {
  static char name[64];
  fl_platform_report *report;
  ck_ok(fl_get_platform(host, &report));
  strcpy(name, "none");
  for (uint32_t i = 0; i < report->n; i++)
    if (fl_platform_at(report, i)->active)
      snprintf(name, sizeof name, "%s", fl_platform_at(report, i)->name);
  fl_platform_report_free(report);
  return name;
}

START_TEST(H2_a_platform_without_a_sign_of_it_is_not_loaded) {
  ck_ok(create_for(NULL));
  ck_assert_str_eq(status_of("lazy_platform"), "deferred");
  ck_contains(test_log.text, "plugins that wait until an op of theirs is looked for: 2");
  expect_run("lazy_a", "lazy_platform");
}
END_TEST

START_TEST(H2_a_platform_with_a_sign_of_it_is_loaded_and_chosen) {
  ck_assert_int_eq(setenv("LAZY_PLATFORM", "here", 1), 0);
  ck_ok(create_for(NULL));
  ck_assert_str_eq(status_of("lazy_platform"), "loaded");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_assert_str_eq(platform_in_force(), "lazynpu");
}
END_TEST

/* Nor is a line of its code run then, until somebody looks for one of its ops. */
START_TEST(P4_a_platform_whose_vendor_is_denied_is_not_loaded_for_a_sign_of_it) {
  ck_assert_int_eq(setenv("LAZY_PLATFORM", "here", 1), 0);
  denied = "VLLM_FL_DENY_VENDORS=lazynpu";
  ck_ok(create_for(NULL));
  ck_assert_str_eq(status_of("lazy_platform"), "deferred");
  ck_contains(test_log.text, "until one of its ops is looked for: lazy_a; not for its platform: vendor 'lazynpu' is "
                             "denied (deny_vendors: VLLM_FL_DENY_VENDORS)\n");
  ck_contains(test_log.text, "INFO platform 'lazynpu' of plugin 'lazy_platform' is not asked whether it is active: "
                             "vendor 'lazynpu' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)\n");
  expect_run("lazy_a", "lazy_platform");
  ck_assert_str_eq(platform_in_force(), "cpu");
}
END_TEST

START_TEST(H2_an_empty_variable_is_no_sign) {
  ck_assert_int_eq(setenv("LAZY_PLATFORM", "", 1), 0);
  ck_ok(create_for(NULL));
  ck_assert_str_eq(status_of("lazy_platform"), "deferred");
}
END_TEST

START_TEST(H2_a_platform_that_is_forced_loads_its_plugin_alone) {
  ck_ok(create_for("lazynpu"));
  ck_assert_str_eq(status_of("lazy_platform"), "loaded");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_assert_str_eq(platform_in_force(), "lazynpu");
}
END_TEST

START_TEST(H2_a_platform_that_waits_is_among_those_that_may_be_forced) {
  ck_assert_int_eq(create_for("lazynpo"), FL_ECONFIG);
  ck_contains(fl_error_message(), "unknown platform 'lazynpo', expected one of cpu, lazynpu, auto;");
  ck_contains(fl_error_message(), "did you mean 'lazynpu'?");
}
END_TEST

START_TEST(H1_the_report_of_platforms_loads_those_that_wait) {
  ck_ok(create_for("cpu"));
  fl_platform_report *report;
  bool found = false;
  ck_ok(fl_get_platform(host, &report));
  for (uint32_t i = 0; i < report->n; i++)
    found = found || !strcmp(fl_platform_at(report, i)->name, "lazynpu");
  fl_platform_report_free(report);
  ck_assert(found);
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
}
END_TEST

START_TEST(memory_of_a_device_loads_the_platforms_that_wait) {
  void *memory;
  ck_ok(create_for("cpu"));
  ck_assert_int_eq(fl_device_allocate(host, (DLDevice){kDLExtDev, 0}, 64, &memory), FL_ENOENT);
  ck_assert_str_eq(status_of("lazy_platform"), "loaded");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, H2_a_platform_without_a_sign_of_it_is_not_loaded);
  tcase_add_test(tests, H2_a_platform_with_a_sign_of_it_is_loaded_and_chosen);
  tcase_add_test(tests, P4_a_platform_whose_vendor_is_denied_is_not_loaded_for_a_sign_of_it);
  tcase_add_test(tests, H2_an_empty_variable_is_no_sign);
  tcase_add_test(tests, H2_a_platform_that_is_forced_loads_its_plugin_alone);
  tcase_add_test(tests, H2_a_platform_that_waits_is_among_those_that_may_be_forced);
  tcase_add_test(tests, H1_the_report_of_platforms_loads_those_that_wait);
  tcase_add_test(tests, memory_of_a_device_loads_the_platforms_that_wait);
}

int main(void) {
  return run_suite("lazy_platforms", add_tests, 20);
}
