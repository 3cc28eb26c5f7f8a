/* Plugins that say in their file whose they are (FL_PLUGIN_VENDOR), where settings deny that vendor, or let it in. */

#include "core/plugins/elf_note.h"

#include "tests/allocations.h"
#include "tests/listed.h"

static const char denied[] = "VLLM_FL_DENY_VENDORS=acme";
static const char not_loaded[] = "not loaded: vendor 'acme' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)";

static void start_under(const char *names, const char *setting) {
  const char *const more[] = {setting, NULL};
  ck_ok(create(modules_of(names), more, test_log_capture, &host));
}

static const char *scratch_file(const char *name, const char *text) {
  const char *path = in_scratch(name);
  FILE *file = fopen(path, "w");
  ck_assert(file && fputs(text, file) >= 0 && !fclose(file));
  return path;
}

static fl_policy *policy_of(const char *prefer) {
  const fl_policy_fields fields = {.size = sizeof fields, .prefer = prefer};
  fl_policy *policy;
  ck_ok(fl_policy_create(&fields, &policy));
  return policy;
}

/* Whatever asks for implementations. */
static void ask_all(void) {
  fl_platform_report *report;
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  ck_assert_ptr_nonnull(snapshot);
  fl_snapshot_release(snapshot);
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_ok(fl_get_platform(host, &report));
  fl_platform_report_free(report);
}

START_TEST(P4_the_file_of_a_denied_vendor_is_not_mapped_whoever_looks_for_its_ops) {
  static const char *const names[] = {"acme_listed", "acme_eager", "acme_platform"};
  ck_assert_int_eq(setenv("LAZY_PLATFORM", "here", 1), 0);
  start_under("acme_listed acme_eager acme_platform", denied);
  ask_all();
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_contains(fl_error_message(),
              "no op 'lazy_a': plugin 'acme_listed', which lists it, is not loaded: vendor 'acme' is");
  ck_ok(fl_discover_plugins(host, NULL));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char line[256];
    ck_assert_str_eq(status_of(names[i]), "skipped");
    ck_assert_str_eq(reason, not_loaded);
    ck_assert_msg(!is_open(listed(names[i])), "%s", names[i]);
    snprintf(line, sizeof line, "INFO plugin %s is %s", names[i], not_loaded);
    ck_assert_int_eq(test_log_count(line), 1);
  }
}
END_TEST

/* What is kept out, by what; the last by a file that is read when its platform is known, which is too late for one that
 * does not wait. */
static const struct {
  const char *plugin, *file, *text, *words;
} origins[] = {
    {"acme_eager", NULL, "VLLM_FL_ALLOW_VENDORS=other",
     "vendor 'acme' is not allowed (allow_vendors: VLLM_FL_ALLOW_VENDORS)"},
    {"acme_eager", "policy.yaml", "deny_vendors: [acme]\n", "vendor 'acme' is denied (deny_vendors: "},
    {"acme_listed", "cpu.yaml", "deny_vendors: [acme]\n", "cpu.yaml:1)"},
};

START_TEST(P4_any_setting_keeps_a_vendors_file_out_and_is_named) {
  char setting[PATH_MAX + 32] = "";
  const char *words = origins[_i].text;
  if (origins[_i].file) {
    const char *path = scratch_file(origins[_i].file, origins[_i].text);
    bool platform = !strcmp(origins[_i].file, "cpu.yaml");
    snprintf(setting, sizeof setting, "%s=%.*s", platform ? "VLLM_FL_CONFIG_DIR" : "VLLM_FL_CONFIG",
             platform ? (int)(strrchr(path, '/') - path) : (int)strlen(path), path);
    words = setting;
  }
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_LOG_LEVEL=DEBUG", words, NULL};
  const fl_host_options options = {.size = sizeof options,
                                   .environment = environment,
                                   .plugin_path = in_scratch("plugins"),
                                   .plugin_modules = modules_of(origins[_i].plugin),
                                   .log = test_log_capture,
                                   .log_user = &test_log};
  ck_ok(fl_host_create(&options, &host));
  ask_all();
  ck_assert_str_eq(status_of(origins[_i].plugin), "skipped");
  ck_contains(reason, "not loaded: ");
  ck_contains(reason, origins[_i].words);
  ck_assert(!is_open(listed(origins[_i].plugin)));
}
END_TEST

START_TEST(P4_a_policy_that_lets_the_vendor_in_lets_its_plugins_in) {
  start_under("acme_listed acme_eager", denied);
  fl_policy *policy = policy_of("vendor");
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  ck_assert_str_eq(status_of("acme_listed"), "deferred");
  ck_assert_str_eq(status_of("acme_eager"), "loaded");
  ck_assert(!is_open(listed("acme_listed")));
  expect_run("lazy_a", "acme_listed");
  expect_run("lazy_b", "acme_eager");
  ck_ok(fl_reset_global_policy(host)); /* what is loaded stays, and is not called */
  ck_assert_str_eq(status_of("acme_eager"), "loaded");
  ck_assert_int_eq(test_call(host, "lazy_b", NULL), FL_ENOIMPL);
}
END_TEST

START_TEST(P4_a_scope_that_lets_the_vendor_in_lets_its_plugins_in) {
  static const char *const acme[] = {"acme"};
  fl_scope scope;
  fl_policy *policy = policy_of("vendor");
  start_under("acme_listed acme_eager", denied);
  ck_ok(fl_scope_allow_vendors(host, acme, 1, &scope)); /* denied is denied */
  ck_assert_str_eq(status_of("acme_eager"), "skipped");
  ck_ok(fl_scope_leave(&scope));
  ck_ok(fl_scope_enter(host, policy, &scope));
  expect_run("lazy_a", "acme_listed");
  expect_run("lazy_b", "acme_eager");
  ck_ok(fl_scope_leave(&scope));
  fl_policy_release(policy);
  ck_assert_int_eq(test_call(host, "lazy_b", NULL), FL_ENOIMPL);
}
END_TEST

/* Other threads want it. */
START_TEST(a_scope_that_denies_keeps_no_plugin_from_the_host) {
  static const char *const acme[] = {"acme"};
  fl_scope scope;
  start_with("acme_listed");
  ck_ok(fl_scope_deny_vendors(host, acme, 1, &scope));
  ck_assert_int_eq(test_call(host, "lazy_a", NULL), FL_ENOIMPL);
  ck_ok(fl_scope_leave(&scope));
  expect_run("lazy_a", "acme_listed");
}
END_TEST

START_TEST(an_op_that_is_in_use_gets_what_was_kept_out_at_once) {
  fl_policy *policy = policy_of("vendor");
  start_under("lazy_a acme_listed", denied);
  expect_run("lazy_a", "lazy_a");
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  ck_assert_str_eq(status_of("acme_listed"), "loaded");
}
END_TEST

START_TEST(who_loads_a_plugin_of_a_denied_vendor_is_told) {
  start_under("", denied);
  ck_assert_int_eq(fl_load_plugin(host, listed("acme_eager")), FL_EPLUGIN);
  ck_contains(fl_error_message(), not_loaded);
  ck_assert_str_eq(status_of("acme_eager"), "skipped");
  fl_clear_discovered_plugins(host); /* it may be let in */
  ck_assert_str_eq(status_of("acme_eager"), "skipped");
  ck_ok(fl_withdraw_plugin(host, "acme_eager")); /* it may not */
  ck_assert_str_eq(reason, not_loaded);
  fl_policy *policy = policy_of("vendor");
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  ck_assert_str_eq(status_of("acme_eager"), "skipped");
  ck_assert_str_eq(reason, "withdrawn");
  ck_assert(!is_open(listed("acme_eager")));
}
END_TEST

START_TEST(P4_where_dispatch_is_off_every_plugin_is_loaded) {
  const char *const more[] = {denied, "VLLM_FL_PREFER_ENABLED=0", NULL};
  ck_ok(create(modules_of("acme_eager"), more, test_log_capture, &host));
  ck_assert_str_eq(status_of("acme_eager"), "loaded");
}
END_TEST

START_TEST(P4_the_platform_of_what_is_kept_out_is_told_of) {
  static const char words[] = "platform 'acmenpu' of plugin 'acme_platform' is not asked whether it is active: vendor "
                              "'acme' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)\n";
  const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", denied, NULL};
  const fl_host_options options = {.size = sizeof options,
                                   .environment = environment,
                                   .config_dir = "/nonexistent",
                                   .plugin_path = in_scratch("plugins"),
                                   .plugin_modules = modules_of("acme_platform"),
                                   .log = test_log_capture,
                                   .log_user = &test_log};
  ck_assert_int_eq(setenv("LAZY_PLATFORM", "here", 1), 0);
  test_log_clear();
  ck_ok(fl_host_create(&options, &host));
  ck_contains(test_log.text, words);
}
END_TEST

START_TEST(T2_names_of_what_is_kept_out_are_not_unknown) {
  const char *const more[] = {denied, "VLLM_FL_PER_OP=lazy_a=vendor:acme|impl:vendor.acme_listed|reference", NULL};
  ck_ok(create(modules_of("acme_listed"), more, test_log_capture, &host));
  ck_assert_ptr_null(strstr(test_log.text, "for op 'lazy_a': no plugin"));
  ck_assert_ptr_null(strstr(test_log.text, "no op 'lazy_a'"));
}
END_TEST

/* "acme_listed yes skipped; …" */
static const char *missing_of(const char *op) {
  static char text[1024];
  fl_explanation *explanation;
  const fl_missing_plugin *plugin;
  size_t length = 0;
  *text = '\0';
  ck_ok(fl_explain(host, op, kDLCPU, &explanation));
  for (uint32_t i = 0; (plugin = fl_missing_plugin_at(explanation, i)); i++) {
    length += (size_t)snprintf(text + length, sizeof text - length, "%s %s %s; ", plugin->plugin,
                               plugin->lists_op ? "yes" : "perhaps", plugin->status);
    ck_assert(*plugin->reason && strstr(plugin->file, plugin->plugin));
  }
  fl_explanation_free(explanation);
  return text;
}

START_TEST(explanations_name_what_is_missing_and_not_what_gave_way) {
  copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  start_under("lazy_a lazy_fails acme_listed acme_eager", denied);
  ck_assert_str_eq(missing_of("lazy_a"),
                   "lazy_fails yes failed; acme_listed yes skipped; acme_eager perhaps skipped; ");
  ck_assert_str_eq(missing_of("rms_norm"), "acme_eager perhaps skipped; ");
  fl_policy *policy = policy_of("vendor");
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  ck_assert_str_eq(missing_of("lazy_a"), "lazy_fails yes failed; ");
  ck_ok(fl_withdraw_plugin(host, "acme_eager"));
  ck_assert_str_eq(missing_of("lazy_a"), "lazy_fails yes failed; acme_eager perhaps skipped; ");
}
END_TEST

/* Files that say one thing and do another, or say nothing that a setting could name. */
static const struct {
  const char *plugin, *words;
} liars[] = {
    {"acme_other", "impl 'vendor.acme_other' of op 'lazy_b': its FL_PLUGIN_VENDOR says that all are of kind vendor and "
                   "vendor 'acme', this is of vendor 'other'"},
    {"acme_reference", "says that all are of kind vendor and vendor 'acme', this is of kind reference"},
    {"acme_empty", "damaged 'flhost' note: FL_PLUGIN_VENDOR is empty"},
    {"acme_comma", "damaged 'flhost' note: FL_PLUGIN_VENDOR is empty, longer than 127 bytes, or holds a comma"},
    {"acme_twice", "damaged 'flhost' note: FL_PLUGIN_VENDOR stands there twice"},
};

START_TEST(a_plugin_that_is_not_what_its_note_says_is_refused) {
  start_with(liars[_i].plugin);
  ck_assert_str_eq(status_of(liars[_i].plugin), "failed");
  ck_contains(reason, liars[_i].words);
  ck_assert_ptr_null(fl_find_op(host, "lazy_b"));
}
END_TEST

static const struct {
  const char *file, *vendor;
} own[] = {{"plugins/cuda.so", "cuda"}, {"plugins/rocm.so", "rocm"}, {"plugins/ascend.so", "ascend"}};

START_TEST(the_devices_plugins_of_this_project_say_whose_they_are) {
  fl_note_info info;
  ck_ok(fl_note_read(built(own[_i].file), &info));
  ck_assert_str_eq(info.vendor, own[_i].vendor);
  fl_note_clear(&info);
}
END_TEST

static void say_nothing(void *user, int level, const char *line) {
  (void)user, (void)level, (void)line;
}

/* Want of memory lets nobody in. */
START_TEST(P4_what_is_kept_out_stays_out_whichever_allocation_fails) {
  const char *modules = modules_of("acme_eager");
  const char *const more[] = {denied, "VLLM_FL_PROBE=off", NULL};
  int failed = 0, n = 1;
  for (int i = 0; i < n; i++) {
    allocations = 0;
    failing = i;
    fl_status status = create(modules, more, say_nothing, &host);
    failing = -1;
    n = allocations > i ? i + 2 : i;
    ck_assert_msg(!is_open(listed("acme_eager")), "allocation %d", i);
    if (!status)
      fl_host_destroy(host);
    failed += status != FL_OK;
  }
  host = NULL;
  ck_assert_int_gt(failed, 10);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, P4_the_file_of_a_denied_vendor_is_not_mapped_whoever_looks_for_its_ops);
  tcase_add_loop_test(tests, P4_any_setting_keeps_a_vendors_file_out_and_is_named, 0, sizeof origins / sizeof *origins);
  tcase_add_test(tests, P4_a_policy_that_lets_the_vendor_in_lets_its_plugins_in);
  tcase_add_test(tests, P4_a_scope_that_lets_the_vendor_in_lets_its_plugins_in);
  tcase_add_test(tests, a_scope_that_denies_keeps_no_plugin_from_the_host);
  tcase_add_test(tests, an_op_that_is_in_use_gets_what_was_kept_out_at_once);
  tcase_add_test(tests, who_loads_a_plugin_of_a_denied_vendor_is_told);
  tcase_add_test(tests, P4_where_dispatch_is_off_every_plugin_is_loaded);
  tcase_add_test(tests, P4_the_platform_of_what_is_kept_out_is_told_of);
  tcase_add_test(tests, T2_names_of_what_is_kept_out_are_not_unknown);
  tcase_add_test(tests, explanations_name_what_is_missing_and_not_what_gave_way);
  tcase_add_loop_test(tests, a_plugin_that_is_not_what_its_note_says_is_refused, 0, sizeof liars / sizeof *liars);
  tcase_add_loop_test(tests, the_devices_plugins_of_this_project_say_whose_they_are, 0, sizeof own / sizeof *own);
  tcase_add_test(tests, P4_what_is_kept_out_stays_out_whichever_allocation_fails);
}

int main(void) {
  return run_suite("kept_out", add_tests, 60);
}
