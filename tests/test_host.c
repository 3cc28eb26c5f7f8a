/* Hosts as an engine makes them: options, environment, plugins, log lines, the default one. */
#include "fixture.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[512];

static void set_up(void) {
  const char *base = getenv("TMPDIR");
  snprintf(directory, sizeof directory, "%s/flhost-host-XXXXXX", base ? base : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(directory));
  test_log_clear();
}

static void tear_down(void) {
  char command[1024];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  ck_assert_int_eq(system(command), 0);
}

static void capture(void *user, int level, const char *line) {
  (void)user;
  size_t used = strlen(test_log.text);
  const char *name = level >= FL_LOG_ERROR     ? "ERROR"
                     : level >= FL_LOG_WARNING ? "WARNING"
                     : level >= FL_LOG_INFO    ? "INFO"
                                               : "DEBUG";
  snprintf(test_log.text + used, sizeof test_log.text - used, "%s %s\n", name, line);
}

/* A plugin of the tests, copied into the directory as NAME. */
static void add_plugin(const char *plugin, const char *name) {
  char command[2048];
  snprintf(command, sizeof command, "cp '%s/tests/plugins/%s.so' '%s/%s'", build_dir(), plugin, directory, name);
  ck_assert_int_eq(system(command), 0);
}

/* A host with the plugins of the directory and these settings (NAME=VALUE, ended by NULL). */
static fl_status open_host(const char *const *environment, fl_host **host) {
  static const char *const none[] = {NULL};
  fl_host_options options = {.size = sizeof options,
                             .environment = environment ? environment : none,
                             .plugin_path = directory,
                             .config_dir = "/nonexistent",
                             .log = capture};
  return fl_host_create(&options, host);
}

static fl_plugin_info only_plugin(fl_host *host, fl_plugins **plugins) {
  ck_ok(fl_get_discovered_plugins(host, plugins));
  ck_assert_uint_eq((*plugins)->n, 1);
  return *fl_plugin_at(*plugins, 0);
}

START_TEST(D5_plugins_are_announced_then_loaded_and_an_activated_platform_is_named) {
  char line[2048];
  fl_host *host;
  add_plugin("good", "b_good.so");
  add_plugin("platform_a", "a_platform.so");
  ck_ok(open_host(NULL, &host));
  const char *announced = strstr(test_log.text, "INFO Available plugins for group flhost.plugins:\n");
  ck_assert_ptr_nonnull(announced);
  snprintf(line, sizeof line, "INFO - a_platform -> %s/a_platform.so\nINFO - b_good -> %s/b_good.so\n", directory,
           directory);
  ck_assert_msg(strstr(announced, line) != NULL, "%s", test_log.text);
  ck_assert_msg(strstr(announced, "INFO plugin platform_a loaded.\nINFO plugin good loaded.\n") != NULL, "%s",
                test_log.text);
  ck_assert_int_eq(test_log_count("INFO Platform plugin platform_a is activated"), 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(D4_a_failed_plugin_is_one_error_line_and_the_others_go_on) {
  fl_plugins *plugins;
  fl_host *host;
  FILE *file;
  char path[1024];
  add_plugin("good", "good.so");
  snprintf(path, sizeof path, "%s/broken.so", directory);
  ck_assert_ptr_nonnull(file = fopen(path, "w"));
  fputs("not a library", file);
  fclose(file);
  ck_ok(open_host(NULL, &host));
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_uint_eq(plugins->n, 2);
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "failed");
  ck_assert_str_eq(fl_plugin_at(plugins, 1)->status, "loaded");
  ck_contains(test_log.text, "ERROR plugin broken failed: ");
  fl_plugins_free(plugins);
  /* What failed can be forgotten; what is loaded stays. */
  fl_clear_discovered_plugins(host);
  fl_plugin_info left = only_plugin(host, &plugins);
  ck_assert_str_eq(left.name, "good");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

/* The active platform's name is the name of its file, and a word of settings. */
START_TEST(D4_a_platform_under_an_impossible_name_fails_its_plugin_alone) {
  char name[64];
  fl_plugins *plugins;
  fl_host *host;
  snprintf(name, sizeof name, "platform_unnamable_%d", _i);
  add_plugin(name, "a.so");
  add_plugin("good", "b.so");
  ck_ok(open_host(NULL, &host));
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_uint_eq(plugins->n, 2);
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->name, name);
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "failed");
  ck_contains(fl_plugin_at(plugins, 0)->reason, "is no name of a platform");
  ck_assert_str_eq(fl_plugin_at(plugins, 1)->status, "loaded");
  ck_contains(test_log.text, "ERROR plugin platform_unnamable_");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

START_TEST(D2_the_same_file_by_two_paths_is_loaded_once) {
  char from[1024], to[1024];
  fl_plugins *plugins;
  fl_host *host;
  add_plugin("good", "a.so");
  snprintf(from, sizeof from, "%s/a.so", directory);
  snprintf(to, sizeof to, "%s/b.so", directory);
  ck_assert_int_eq(link(from, to), 0);
  ck_ok(open_host(NULL, &host));
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "loaded");
  ck_assert_str_eq(fl_plugin_at(plugins, 1)->status, "skipped");
  ck_contains(fl_plugin_at(plugins, 1)->reason, "the same file as");
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

START_TEST(discovering_again_loads_what_has_come) {
  uint32_t n;
  fl_host *host;
  ck_ok(open_host(NULL, &host));
  ck_ok(fl_discover_plugins(host, &n));
  ck_assert_uint_eq(n, 0);
  add_plugin("good", "good.so");
  ck_ok(fl_discover_plugins(host, &n));
  ck_assert_uint_eq(n, 1);
  ck_ok(fl_discover_plugins(host, &n));
  ck_assert_uint_eq(n, 0);
  ck_assert_str_eq(fl_plugin_directories(host)[0], directory);
  ck_assert_ptr_null(fl_plugin_directories(host)[1]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(D3_a_module_is_loaded_by_name_and_a_missing_one_says_where_it_was_looked_for) {
  fl_host *host;
  fl_plugins *plugins;
  ck_ok(open_host(NULL, &host));
  add_plugin("good", "libflhost_good.so");
  ck_ok(fl_load_plugin(host, "good"));
  fl_plugin_info plugin = only_plugin(host, &plugins);
  ck_assert_str_eq(plugin.route, "module");
  ck_assert_str_eq(plugin.status, "loaded");
  fl_plugins_free(plugins);
  ck_assert_int_eq(fl_load_plugin(host, "goood"), FL_EPLUGIN);
  ck_contains(fl_error_message(), directory);
  ck_assert_int_eq(fl_error_status(), FL_EPLUGIN);
  fl_host_destroy(host);
}
END_TEST

/* In the user's directory of manifests, which XDG_CONFIG_HOME=directory names. */
static void add_missing_critical_plugin(void) {
  char home[600], path[1024];
  snprintf(home, sizeof home, "%s/flhost/plugins.d", directory);
  snprintf(path, sizeof path, "mkdir -p '%s'", home);
  ck_assert_int_eq(system(path), 0);
  snprintf(path, sizeof path, "%s/acme.yaml", home);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  fputs("name: acme\nlibrary: acme.so\ncritical: true\n", file);
  fclose(file);
}

START_TEST(D4_a_critical_plugin_that_fails_is_the_hosts_failure) {
  char variable[600];
  fl_host *host = NULL;
  add_missing_critical_plugin();
  snprintf(variable, sizeof variable, "XDG_CONFIG_HOME=%s", directory);
  ck_assert_int_eq(open_host((const char *const[]){variable, NULL}, &host), FL_EPLUGIN);
  ck_contains(fl_error_message(), "critical plugin acme: ");
  ck_assert_ptr_null(host);
}
END_TEST

START_TEST(D4_a_critical_plugin_that_comes_later_leaves_the_count_of_loaded_ones_alone) {
  char variable[600];
  fl_host *host;
  uint32_t n_loaded = 77;
  snprintf(variable, sizeof variable, "XDG_CONFIG_HOME=%s", directory);
  ck_ok(open_host((const char *const[]){variable, NULL}, &host));
  add_plugin("good", "good.so");
  add_missing_critical_plugin();
  ck_assert_int_eq(fl_discover_plugins(host, &n_loaded), FL_EPLUGIN);
  ck_contains(fl_error_message(), "critical plugin acme: ");
  ck_assert_uint_eq(n_loaded, 77);
  fl_host_destroy(host);
}
END_TEST

/* As it would be in a library whose items have grown. */
START_TEST(an_item_of_a_list_is_found_by_the_size_that_the_library_gave) {
  const struct {
    fl_setting known;
    char later[24];
  } items[] = {{{.name = "one"}, ""}, {{.name = "two"}, ""}};
  const fl_settings list = {.size = sizeof list + 8, .n = 2, .item_size = sizeof items[0], .items = items};
  ck_assert_str_eq(fl_setting_at(&list, 0)->name, "one");
  ck_assert_str_eq(fl_setting_at(&list, 1)->name, "two");
  ck_assert_ptr_null(fl_setting_at(&list, 2));
}
END_TEST

START_TEST(what_is_handed_out_begins_with_its_size_and_has_the_size_of_its_items) {
  fl_host *host;
  fl_plugins *plugins;
  fl_settings *settings;
  fl_failed_impls *failed;
  fl_explanation *explanation;
  fl_manifest *manifest;
  fl_platform_report *report;
  add_plugin("good", "good.so");
  ck_ok(open_host(NULL, &host));
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_ok(fl_get_settings(host, &settings));
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_ok(fl_explain(host, "rms_norm", kDLCPU, &explanation));
  ck_ok(fl_get_manifest(host, kDLCPU, &manifest));
  ck_ok(fl_get_platform(host, &report));
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  const struct {
    const void *object;
    size_t size;
    uint32_t item_size;
    size_t expected;
  } rows[] = {
      {plugins, sizeof *plugins, plugins->item_size, sizeof(fl_plugin_info)},
      {settings, sizeof *settings, settings->item_size, sizeof(fl_setting)},
      {failed, sizeof *failed, failed->item_size, sizeof(fl_failed_impl)},
      {explanation, sizeof *explanation, explanation->impl_size, sizeof(fl_explained)},
      {explanation, sizeof *explanation, explanation->replaced_size, sizeof(fl_replaced)},
      {explanation, sizeof *explanation, explanation->missing_size, sizeof(fl_missing_plugin)},
      {manifest, sizeof *manifest, manifest->row_size, sizeof(fl_manifest_row)},
      {report, sizeof *report, report->platform_size, sizeof(fl_platform_info)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    uint32_t size;
    memcpy(&size, rows[i].object, sizeof size);
    ck_assert_msg(size == rows[i].size, "object %zu says that it has %u bytes", i, size);
    ck_assert_msg(rows[i].item_size == rows[i].expected, "items of object %zu: %u bytes", i, rows[i].item_size);
  }
  ck_assert_uint_eq(fl_platform_at(report, 0)->step_size, sizeof(fl_platform_step));
  ck_assert_uint_eq(fl_platform_at(report, 0)->device_size, sizeof(fl_device_properties));
  bool found = false;
  for (uint32_t op = 0; op < fl_snapshot_op_count(snapshot) && !found; op++)
    if ((found = fl_snapshot_impl_count(snapshot, op)))
      ck_assert_uint_eq(fl_snapshot_impl(snapshot, op, 0)->size, sizeof(fl_impl_info));
  ck_assert(found);
  fl_snapshot_release(snapshot);
  fl_platform_report_free(report);
  fl_manifest_free(manifest);
  fl_explanation_free(explanation);
  fl_failed_impls_free(failed);
  fl_settings_free(settings);
  fl_plugins_free(plugins);
  fl_host_destroy(host);
}
END_TEST

START_TEST(T2_a_vendor_or_op_that_nobody_registered_is_a_warning_with_the_nearest) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=rms_nrom=vendor:acmee", NULL};
  fl_host *host;
  ck_ok(open_host(environment, &host));
  ck_assert_int_eq(test_log_count("WARNING VLLM_FL_PER_OP: no op 'rms_nrom' is registered; did you mean 'rms_norm'?"),
                   1);
  ck_contains(
      test_log.text,
      "WARNING VLLM_FL_PER_OP: token 'vendor:acmee' for op 'rms_nrom': no plugin has registered vendor 'acmee'");
  fl_host_destroy(host);
}
END_TEST

/* An implementation that nobody has may come later, too. */
START_TEST(T2_an_impl_that_nobody_registered_is_a_warning_with_the_nearest_unless_checks_are_off) {
  static const char line[] =
      "WARNING VLLM_FL_PER_OP: token 'impl:default.flagso' for op 'op': no plugin has registered "
      "that implementation; did you mean 'impl:default.flagos'?";
  static test_impl impl = {.id = "default.flagos"};
  for (int off = 0; off < 2; off++) {
    fl_host *host = test_host(
        (const char *const[]){"VLLM_FL_PER_OP=op=impl:default.flagso|impl:default.flagos|flagos;rms_nrom=vendor:x",
                              off ? "VLLM_FL_CHECK=off" : "VLLM_FL_CHECK=error", NULL},
        0);
    test_op(host, "op");
    test_register(host, "op", &impl, 0, false);
    test_log_clear();
    ck_ok(fl_reset_global_policy(host));
    ck_assert_int_eq(test_log_count(line), !off);
    ck_assert_int_eq(strstr(test_log.text, "WARNING ") != NULL, !off);
    ck_assert_ptr_null(strstr(test_log.text, "'impl:default.flagos' for op"));
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(C1_an_invalid_setting_is_the_hosts_failure) {
  static const char *const environment[] = {"VLLM_FL_PREFER=vendro", NULL};
  fl_host *host = NULL;
  ck_assert_int_eq(open_host(environment, &host), FL_ECONFIG);
  ck_contains(fl_error_message(), "VLLM_FL_PREFER");
  ck_contains(fl_error_message(), "'vendor'");
  ck_assert_ptr_null(host);
}
END_TEST

START_TEST(P6_resetting_reads_the_environment_again_and_keeps_the_old_policy_on_error) {
  fl_host_options options = {
      .size = sizeof options, .flags = FL_HOST_NO_PLUGINS, .config_dir = "/nonexistent", .log = capture};
  fl_host *host;
  unsetenv("VLLM_FL_PREFER");
  ck_ok(fl_host_create(&options, &host));
  setenv("VLLM_FL_PREFER", "reference", 1);
  ck_ok(fl_reset_global_policy(host));
  fl_policy *policy = fl_get_policy(host);
  ck_assert_str_eq(fl_policy_get_fields(policy)->prefer, "reference");
  fl_policy_release(policy);
  setenv("VLLM_FL_PREFER", "refrence", 1);
  ck_assert_int_eq(fl_reset_global_policy(host), FL_ECONFIG);
  policy = fl_get_policy(host);
  ck_assert_str_eq(fl_policy_get_fields(policy)->prefer, "reference");
  fl_policy_release(policy);
  unsetenv("VLLM_FL_PREFER");
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_default_host_is_one_and_can_be_reset) {
  setenv("VLLM_FL_PLUGIN_PATH", directory, 1);
  setenv("VLLM_FL_LOG_LEVEL", "ERROR", 1);
  fl_host *host = fl_default_host();
  ck_assert_msg(host != NULL, "%s", fl_error_message());
  ck_assert_ptr_eq(fl_default_host(), host);
  ck_assert_ptr_eq(fl_get_default_manager(), host);
  ck_assert_ptr_nonnull(fl_find_op(host, "rms_norm"));
  fl_reset_default_host();
  setenv("VLLM_FL_STRICT", "perhaps", 1);
  ck_assert_ptr_null(fl_default_host());
  ck_assert_int_eq(fl_error_status(), FL_ECONFIG);
  unsetenv("VLLM_FL_STRICT");
  host = fl_default_host();
  ck_assert_ptr_nonnull(host);
  ck_ok(fl_register_op(host, &(fl_op_def){.size = sizeof(fl_op_def), .schema = "mine(Tensor x) -> Tensor out"}));
  fl_reset_default_manager();
  ck_assert_ptr_null(fl_find_op(fl_default_host(), "mine"));
  fl_reset_default_host();
}
END_TEST

/* It would wait for itself. */
START_TEST(a_plugin_that_asks_for_the_default_host_while_it_is_created_is_given_none) {
  char address[32];
  snprintf(address, sizeof address, "%llx", (unsigned long long)(uintptr_t)fl_default_host);
  setenv("TEST_DEFAULT_HOST", address, 1);
  setenv("VLLM_FL_PROBE", "off", 1); /* the address is of this process */
  setenv("VLLM_FL_PLUGIN_PATH", directory, 1);
  setenv("VLLM_FL_LOG_LEVEL", "ERROR", 1);
  add_plugin("asks_default", "asks_default.so");
  fl_host *host = fl_default_host();
  ck_assert_msg(host != NULL, "%s", fl_error_message());
  ck_assert_ptr_nonnull(fl_find_op(host, "test_scale"));
  fl_reset_default_host();
}
END_TEST

START_TEST(a_log_level_is_set_by_name) {
  fl_host *host;
  ck_ok(open_host(NULL, &host));
  test_log_clear();
  ck_ok(fl_set_log_level(host, "debug"));
  fl_clear_failed_impls(host, NULL);
  ck_assert_int_eq(test_log_count("DEBUG Cleared all failed implementations cache"), 1);
  ck_ok(fl_set_log_level(host, "ERROR"));
  fl_clear_failed_impls(host, NULL);
  ck_assert_int_eq(test_log_count("DEBUG Cleared all failed implementations cache"), 1);
  ck_assert_int_eq(fl_set_log_level(host, "WARNNG"), FL_EINVAL);
  ck_contains(fl_error_message(), "did you mean 'WARNING'?");
  fl_host_destroy(host);
}
END_TEST

START_TEST(DISPATCH_DEBUG_logs_the_table_and_each_resolution) {
  static const char *const environment[] = {"VLLM_FL_DISPATCH_DEBUG=1", "VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  static test_impl impl = {.id = "vendor.acme"};
  fl_host *host;
  add_plugin("good", "good.so");
  ck_ok(open_host(environment, &host));
  ck_assert_int_eq(test_log_count("INFO VLLM-FL Dispatch: Registered Operators"), 1);
  ck_contains(test_log.text, "INFO [Operator: test_scale]\nINFO   ✓ ");
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  ck_ok(test_call(host, "op", NULL));
  ck_assert_int_eq(test_log_count("DEBUG [DISPATCH] Op 'op' -> 'vendor.acme' (kind=vendor, vendor=acme)"), 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(options_without_a_size_are_refused) {
  fl_host *host = NULL;
  fl_host_options options = {0};
  ck_assert_int_eq(fl_host_create(&options, &host), FL_EINVAL);
  ck_contains(fl_error_message(), "size");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, D5_plugins_are_announced_then_loaded_and_an_activated_platform_is_named);
  tcase_add_test(tests, D4_a_failed_plugin_is_one_error_line_and_the_others_go_on);
  tcase_add_loop_test(tests, D4_a_platform_under_an_impossible_name_fails_its_plugin_alone, 0, 6);
  tcase_add_test(tests, D2_the_same_file_by_two_paths_is_loaded_once);
  tcase_add_test(tests, discovering_again_loads_what_has_come);
  tcase_add_test(tests, D3_a_module_is_loaded_by_name_and_a_missing_one_says_where_it_was_looked_for);
  tcase_add_test(tests, D4_a_critical_plugin_that_fails_is_the_hosts_failure);
  tcase_add_test(tests, D4_a_critical_plugin_that_comes_later_leaves_the_count_of_loaded_ones_alone);
  tcase_add_test(tests, an_item_of_a_list_is_found_by_the_size_that_the_library_gave);
  tcase_add_test(tests, what_is_handed_out_begins_with_its_size_and_has_the_size_of_its_items);
  tcase_add_test(tests, T2_a_vendor_or_op_that_nobody_registered_is_a_warning_with_the_nearest);
  tcase_add_test(tests, T2_an_impl_that_nobody_registered_is_a_warning_with_the_nearest_unless_checks_are_off);
  tcase_add_test(tests, C1_an_invalid_setting_is_the_hosts_failure);
  tcase_add_test(tests, P6_resetting_reads_the_environment_again_and_keeps_the_old_policy_on_error);
  tcase_add_test(tests, the_default_host_is_one_and_can_be_reset);
  tcase_add_test(tests, a_plugin_that_asks_for_the_default_host_while_it_is_created_is_given_none);
  tcase_add_test(tests, a_log_level_is_set_by_name);
  tcase_add_test(tests, DISPATCH_DEBUG_logs_the_table_and_each_resolution);
  tcase_add_test(tests, options_without_a_size_are_refused);
}

int main(void) {
  return run_suite("host", add_tests, 30);
}
