/* Plugins that say in their file which ops they implement (FL_PLUGIN_OPS): they are loaded when one of these is first
 * looked for, and nobody but the clock can tell the difference. */
#include "tests/listed.h"

#include <flhost/testing.h>
#include <flhost/vllm.h>
#include <sys/inotify.h>

START_TEST(D4_a_plugin_that_lists_its_ops_is_opened_when_one_is_looked_for) {
  start_with("lazy_a lazy_builtin");
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_str_eq(reason, "until one of its ops is looked for: lazy_a");
  ck_assert_int_eq(test_log_count("DEBUG plugin lazy_a is deferred until one of its ops is looked for: lazy_a"), 1);
  ck_assert(!is_open(listed("lazy_a")));
  expect_run("lazy_a", "lazy_a");
  ck_assert_str_eq(status_of("lazy_a"), "loaded");
  ck_assert_str_eq(reason, "");
  ck_assert_int_eq(test_log_count("INFO plugin lazy_a loaded."), 1); /* D5 */
  expect_run("lazy_a", "lazy_a");
  ck_assert_int_eq(registrations("lazy_a"), 1);
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
}
END_TEST

START_TEST(an_unknown_op_loads_nothing_and_is_answered_with_the_nearest_that_is_listed) {
  start_with("lazy_again lazy_builtin");
  ck_assert_ptr_null(fl_find_op(host, "lazy_agian_a"));
  ck_assert_str_eq(fl_error_message(), "no op 'lazy_agian_a'; did you mean 'lazy_again_a'?");
  ck_assert_int_eq(fl_error_status(), FL_ENOENT);
  ck_assert_str_eq(status_of("lazy_again"), "deferred");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
}
END_TEST

/* The second is better, and named last; the third has nothing to do with it. */
START_TEST(R4_all_that_list_an_op_are_loaded_before_its_handle_is_given_out) {
  start_with("lazy_a lazy_better lazy_again");
  expect_run("lazy_a", "lazy_better");
  ck_assert_str_eq(status_of("lazy_a"), "loaded");
  ck_assert_str_eq(status_of("lazy_again"), "deferred");
  expect_run("lazy_c", "lazy_better"); /* it came with the other */
}
END_TEST

START_TEST(a_listed_op_of_the_hosts_own_loads_the_plugin) {
  char id[FL_NAME_MAX + 1];
  start_with("lazy_builtin");
  ck_assert_ptr_nonnull(fl_find_op(host, "rms_norm"));
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_ok(fl_get_selected_impl_id(host, "relu2", kDLCPU, id, sizeof id));
  ck_assert_str_eq(id, "vendor.lazy_builtin");
}
END_TEST

/* An engine that has the handle already does not look the op up again. */
START_TEST(R4_a_plugin_found_later_is_loaded_at_once_when_an_op_of_it_is_in_use) {
  start_with("lazy_a");
  expect_run("lazy_a", "lazy_a");
  copy_to_scratch(listed("lazy_better"), "plugins/lazy_better.so");
  copy_to_scratch(listed("lazy_again"), "plugins/lazy_again.so");
  ck_ok(fl_discover_plugins(host, NULL));
  ck_assert_str_eq(status_of("lazy_better"), "loaded");
  ck_assert_str_eq(status_of("lazy_again"), "deferred");
  expect_run("lazy_a", "lazy_better");
}
END_TEST

START_TEST(R4_an_engines_own_op_waits_for_those_that_list_it) {
  test_impl own = {.id = "reference.own"};
  start_with("lazy_a");
  test_op(host, "lazy_a");
  ck_assert_str_eq(status_of("lazy_a"), "loaded");
  test_register(host, "lazy_a", &own, 0, false);
  expect_run("lazy_a", "lazy_a");
}
END_TEST

/* R2: who was found first has the id. */
START_TEST(R2_an_engines_duplicate_is_refused_whether_or_not_the_plugin_was_loaded) {
  test_impl own = {.id = "vendor.lazy_builtin"};
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "relu2",
                        .impl_id = own.id,
                        .kind = FL_KIND_VENDOR,
                        .vendor = "lazy_builtin",
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = (fl_kernel_fn)abort,
                        .self = &own};
  start_with("lazy_builtin");
  ck_assert_int_eq(fl_register_impl(host, &impl), FL_EEXIST);
  ck_contains(fl_error_message(), "Duplicate impl_id 'vendor.lazy_builtin' for op='relu2'");
}
END_TEST

/* Whatever shows all implementations loads all; explaining an op, what lists it. */
static void take_snapshot(void) {
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  bool found = false;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    found = found || (!strcmp(fl_snapshot_op_name(snapshot, i), "lazy_a") && fl_snapshot_impl_count(snapshot, i) == 1);
  ck_assert(found);
  fl_snapshot_release(snapshot);
}

static void explain(void) {
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "lazy_a", 0, &explanation));
  ck_assert_str_eq(explanation->selected, "vendor.lazy_a");
  fl_explanation_free(explanation);
}

static void resolve(void) {
  fl_resolution resolution = {.size = sizeof resolution};
  ck_ok(fl_resolve_op(host, "lazy_a", 0, &resolution));
  ck_assert_str_eq(resolution.impl_id, "vendor.lazy_a");
}

static void count(void) {
  uint32_t enabled, disabled;
  fl_custom_op_counts(host, &enabled, &disabled);
  ck_assert_uint_eq(enabled + disabled, 1);
}

static void freeze(void) {
  ck_ok(fl_freeze(host, "test"));
  ck_assert_ptr_nonnull(fl_find_op(host, "lazy_a")); /* found for the first time, and nothing is loaded for it */
}

static void warm_up(void) {
  uint32_t resolved = 0, without = 1;
  ck_ok(fl_warm_up(host, kDLCPU, &resolved, &without));
  ck_assert_uint_ge(resolved, 1);
  ck_assert_uint_eq(without, 0);
}

static void list_calls(void) {
  fl_manifest *manifest;
  bool found = false;
  ck_ok(fl_get_manifest(host, kDLCPU, &manifest));
  for (uint32_t i = 0; i < manifest->n_rows; i++)
    found = found || !strcmp(fl_manifest_row_at(manifest, i)->impl_id, "vendor.lazy_a");
  ck_assert(found);
  fl_manifest_free(manifest);
}

static void load_by_name(void) {
  ck_ok(fl_load_plugin(host, listed("lazy_a")));
}

static void (*const questions[])(void) = {take_snapshot, explain, resolve,    count,
                                          freeze,        warm_up, list_calls, load_by_name};

START_TEST(what_needs_implementations_loads_them) {
  start_with("lazy_a");
  questions[_i]();
  ck_assert_str_eq(status_of("lazy_a"), "loaded");
  ck_assert_int_eq(registrations("lazy_a"), 1);
}
END_TEST

START_TEST(dispatch_debug_shows_all_at_the_start) {
  const char *const debug[] = {"VLLM_FL_DISPATCH_DEBUG=1", NULL};
  ck_ok(create(modules_of("lazy_a"), debug, test_log_capture, &host));
  ck_assert_str_eq(status_of("lazy_a"), "loaded");
  ck_contains(test_log.text, "[Operator: lazy_a]");
}
END_TEST

START_TEST(D4_a_critical_plugin_is_not_deferred) {
  const char *environment[] = {NULL, NULL};
  char variable[2 * PATH_MAX], manifest[2 * PATH_MAX];
  ck_assert_int_eq(mkdir(in_scratch("flhost"), 0755), 0);
  ck_assert_int_eq(mkdir(in_scratch("flhost/plugins.d"), 0755), 0);
  snprintf(variable, sizeof variable, "XDG_CONFIG_HOME=%s", scratch);
  environment[0] = variable;
  snprintf(manifest, sizeof manifest, "library: %s\ncritical: true\n", listed("lazy_fails"));
  write_text("flhost/plugins.d/acme.yaml", manifest);
  ck_assert_int_eq(create(NULL, environment, test_log_capture, &host), FL_EPLUGIN);
  ck_contains(fl_error_message(), "no licence");
  snprintf(manifest, sizeof manifest, "library: %s\n", listed("lazy_fails"));
  write_text("flhost/plugins.d/acme.yaml", manifest);
  ck_ok(create(NULL, environment, test_log_capture, &host));
  ck_assert_str_eq(status_of("lazy_fails"), "deferred");
}
END_TEST

/* A policy may name the ops and the vendor of a plugin that is not loaded yet. */
START_TEST(T2_names_that_a_deferred_plugin_brings_are_not_unknown) {
  const char *const good[] = {"VLLM_FL_PER_OP=lazy_a=vendor:lazy_a|reference", NULL},
                    *const bad[] = {"VLLM_FL_PER_OP=lazy_a=vendor:lazy_b|reference", NULL};
  ck_ok(create(modules_of("lazy_a"), good, test_log_capture, &host));
  ck_assert_msg(!strstr(test_log.text, "VLLM_FL_PER_OP"), "%s", test_log.text);
  fl_host_destroy(host);
  ck_ok(create(modules_of("lazy_a"), bad, test_log_capture, &host));
  ck_contains(test_log.text, "no plugin has registered vendor 'lazy_b'; did you mean 'lazy_a'?");
}
END_TEST

START_TEST(D6_a_deferred_plugin_is_withdrawn_without_being_opened) {
  start_with("lazy_a");
  ck_ok(fl_withdraw_plugin(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_a"), "skipped");
  ck_assert_str_eq(reason, "withdrawn");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert(!is_open(listed("lazy_a")));
}
END_TEST

START_TEST(D2_one_file_by_several_paths_is_deferred_once) {
  copy_to_scratch(listed("lazy_a"), "plugins/a.so");
  ck_assert_int_eq(symlink("a.so", in_scratch("plugins/b.so")), 0);
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_str_eq(status_of("b"), "skipped");
  ck_contains(reason, "plugins/a.so, which is deferred");
  expect_run("lazy_a", "lazy_a");
  ck_assert_int_eq(registrations("lazy_a"), 1);
}
END_TEST

START_TEST(what_waits_is_not_forgotten_with_what_failed) {
  start_with("lazy_a lazy_gap");
  fl_clear_discovered_plugins(host);
  ck_assert_str_eq(status_of("lazy_gap"), "not found");
  expect_run("lazy_a", "lazy_a");
}
END_TEST

/* Opened files, by inotify, since the watch began. */
static int opened(int watch) {
  char events[4096] __attribute__((aligned(8)));
  ssize_t length = read(watch, events, sizeof events);
  int n = 0;
  for (char *at = events; at < events + length;) {
    const struct inotify_event *event = (struct inotify_event *)at;
    n += event->len && strstr(event->name, ".so");
    at += sizeof *event + event->len;
  }
  return n;
}

START_TEST(no_file_is_read_twice_while_it_stays_the_same) {
  fl_host *first;
  int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so"); /* where no other suite opens any */
  copy_to_scratch(listed("lazy_better"), "plugins/lazy_better.so");
  sleep(3); /* what was changed a moment ago is always read */
  ck_assert_int_ge(inotify_add_watch(watch, in_scratch("plugins"), IN_OPEN), 0);
  ck_ok(create(NULL, NULL, NULL, &host));
  ck_assert_int_eq(opened(watch), 2);
  ck_ok(fl_discover_plugins(host, NULL));
  first = host;
  ck_ok(create(NULL, NULL, NULL, &host));
  ck_assert_str_eq(status_of("lazy_better"), "deferred");
  ck_assert_int_eq(opened(watch), 0);
  expect_run("lazy_c", "lazy_better");
  fl_host_destroy(host);
  host = first;
  expect_run("lazy_a", "lazy_better");
  close(watch);
}
END_TEST

START_TEST(a_file_that_changed_is_read_again) {
  fl_host *first;
  copy_to_scratch(listed("lazy_a"), "plugins/x.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  first = host;
  copy_to_scratch(listed("lazy_again"), "plugins/x.so"); /* in place: the same inode */
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_str_eq(status_of("lazy_again"), "deferred");
  fl_host_destroy(first);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, D4_a_plugin_that_lists_its_ops_is_opened_when_one_is_looked_for);
  tcase_add_test(tests, an_unknown_op_loads_nothing_and_is_answered_with_the_nearest_that_is_listed);
  tcase_add_test(tests, R4_all_that_list_an_op_are_loaded_before_its_handle_is_given_out);
  tcase_add_test(tests, a_listed_op_of_the_hosts_own_loads_the_plugin);
  tcase_add_test(tests, R4_a_plugin_found_later_is_loaded_at_once_when_an_op_of_it_is_in_use);
  tcase_add_test(tests, R4_an_engines_own_op_waits_for_those_that_list_it);
  tcase_add_test(tests, R2_an_engines_duplicate_is_refused_whether_or_not_the_plugin_was_loaded);
  tcase_add_loop_test(tests, what_needs_implementations_loads_them, 0, sizeof questions / sizeof *questions);
  tcase_add_test(tests, dispatch_debug_shows_all_at_the_start);
  tcase_add_test(tests, D4_a_critical_plugin_is_not_deferred);
  tcase_add_test(tests, T2_names_that_a_deferred_plugin_brings_are_not_unknown);
  tcase_add_test(tests, D6_a_deferred_plugin_is_withdrawn_without_being_opened);
  tcase_add_test(tests, D2_one_file_by_several_paths_is_deferred_once);
  tcase_add_test(tests, what_waits_is_not_forgotten_with_what_failed);
  tcase_add_test(tests, no_file_is_read_twice_while_it_stays_the_same);
  tcase_add_test(tests, a_file_that_changed_is_read_again);
}

int main(void) {
  return run_suite("lazy", add_tests, 20);
}
