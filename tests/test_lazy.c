/*
 * Plugins that say in their file which ops they implement (FL_PLUGIN_OPS): they are loaded when one of these is first
 * looked for, and nobody but the clock can tell the difference.
 */
#include "core/registry.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <flhost/ops.h>
#include <flhost/testing.h>
#include <flhost/vllm.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/wait.h>

static fl_host *host;

/* "…/lazy_a.so" */
static const char *listed(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "tests/plugins/listed/%s.so", name);
  return built(path);
}

static fl_status create(const char *modules, const char *const *more, fl_log_fn log, fl_host **created) {
  const char *environment[8] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_LOG_LEVEL=DEBUG"};
  for (int i = 0; more && more[i]; i++)
    environment[i + 2] = more[i];
  const fl_host_options options = {
      .size = sizeof options,
      .environment = environment,
      .config_dir = "/nonexistent",
      .plugin_path = in_scratch("plugins"),
      .plugin_modules = modules,
      .log = log,
      .log_user = &test_log,
  };
  test_log_clear();
  return fl_host_create(&options, created);
}

/* The plugins of those names, divided by blanks, as modules. */
static const char *modules_of(const char *names) {
  static char modules[8 * PATH_MAX];
  char copy[256], *rest = copy, *name;
  size_t length = 0;
  snprintf(copy, sizeof copy, "%s", names);
  modules[0] = 0;
  while ((name = strsep(&rest, " ")))
    length += (size_t)snprintf(modules + length, sizeof modules - length, "%s%s", length ? "," : "", listed(name));
  return modules;
}

static void start_with(const char *names) {
  ck_ok(create(modules_of(names), NULL, test_log_capture, &host));
}

static void set_up(void) {
  scratch_make();
  ck_assert_int_eq(mkdir(in_scratch("plugins"), 0755), 0);
}

static void tear_down(void) {
  fl_host_destroy(host);
  scratch_remove();
}

/* What the host says became of a plugin; its reason goes to `reason`. */
static char reason[2048];

static const char *status_of(const char *name) {
  static char status[32];
  fl_plugins *plugins;
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  strcpy(status, "not found");
  for (uint32_t i = 0; i < plugins->n; i++)
    if (!strcmp(fl_plugin_at(plugins, i)->name, name)) {
      snprintf(status, sizeof status, "%s", fl_plugin_at(plugins, i)->status);
      snprintf(reason, sizeof reason, "%s", fl_plugin_at(plugins, i)->reason);
    }
  fl_plugins_free(plugins);
  return status;
}

static bool is_open(const char *path) {
  void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (handle)
    dlclose(handle);
  return handle != NULL;
}

static void expect_run(const char *op, const char *plugin) {
  const char *ran = NULL;
  ck_ok(test_call(host, op, &ran));
  ck_assert_str_eq(ran, plugin);
}

/* How often did register_builtins of a plugin run? */
static int registrations(const char *plugin) {
  char line[128];
  snprintf(line, sizeof line, "INFO plugin %s: registers", plugin);
  return test_log_count(line);
}

/* ------------------------------------------------------------------------------------------------- when it is loaded
 */

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

/* ------------------------------------------------------------------------------------------------------- platforms */

/* `platform` NULL: it is detected. */
static fl_status create_for(const char *platform) {
  const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", NULL};
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

/* ---------------------------------------------------------------------------------------------- what goes wrong then
 */

START_TEST(R3_a_row_of_an_op_that_is_not_listed_is_refused) {
  start_with("lazy_other");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_other"), "failed");
  ck_contains(reason, "op 'lazy_b': its FL_PLUGIN_OPS does not list 'lazy_b', so the host would not look for it there; "
                      "did you mean 'lazy_a'?");
}
END_TEST

START_TEST(a_component_of_a_plugin_with_a_list_is_refused) {
  start_with("lazy_layer");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_layer"), "failed");
  ck_contains(reason,
              "component 'AcmeAttention': a plugin with FL_PLUGIN_OPS brings ops alone: the host would not look "
              "for a layer 'AcmeAttention' there");
}
END_TEST

START_TEST(a_platform_that_the_file_does_not_speak_of_is_refused) {
  start_with("lazy_platform_unsaid");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_platform_unsaid"), "failed");
  ck_contains(reason, "component 'lazynpu': a plugin with FL_PLUGIN_OPS brings ops alone: the host would not look for "
                      "a platform 'lazynpu' there; say so with FL_PLUGIN_PLATFORM");
}
END_TEST

START_TEST(a_platform_of_another_name_than_the_file_says_is_refused) {
  start_with("lazy_platform_other");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_contains((status_of("lazy_platform_other"), reason),
              "component 'other': a plugin with FL_PLUGIN_OPS brings ops and the platform 'lazynpu' alone: the host "
              "would not look for a platform 'other' there");
}
END_TEST

START_TEST(an_op_that_is_listed_in_vain_is_warned_of) {
  start_with("lazy_missing");
  ck_assert_ptr_null(fl_find_op(host, "lazy_b"));
  ck_assert_str_eq(fl_error_message(), "no op 'lazy_b'; did you mean 'lazy_a'?");
  ck_assert_int_eq(
      test_log_count("WARNING plugin lazy_missing: its FL_PLUGIN_OPS lists 'lazy_b', of which it registered "
                     "nothing"),
      1);
  expect_run("lazy_a", "lazy_missing");
}
END_TEST

START_TEST(D4_a_plugin_that_fails_late_is_recorded_and_named) {
  start_with("lazy_fails lazy_builtin");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_contains(fl_error_message(),
              "no op 'lazy_a': plugin 'lazy_fails', which lists it, failed: register_builtins returned "
              "FL_EINTERNAL: no licence");
  ck_assert_str_eq(status_of("lazy_fails"), "failed");
  ck_contains(test_log.text, "ERROR plugin lazy_fails failed: ");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_int_eq(registrations("lazy_fails"), 1); /* it is not tried again and again */
}
END_TEST

/* Others have the op: who asks for it does not hear of the failure. */
START_TEST(D4_a_plugin_that_fails_late_does_not_harm_the_others) {
  start_with("lazy_fails lazy_a");
  ck_assert_ptr_nonnull(fl_find_op(host, "lazy_a"));
  ck_assert_int_eq(fl_error_status(), FL_OK);
  ck_assert_str_eq(fl_error_message(), "");
  expect_run("lazy_a", "lazy_a");
}
END_TEST

START_TEST(a_file_that_became_writable_for_everyone_is_refused_when_it_is_loaded) {
  const char *copy = copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_int_eq(chmod(copy, 0666), 0);
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_contains(fl_error_message(), "it is world-writable (mode 0666)");
  ck_assert(!is_open(copy));
}
END_TEST

START_TEST(a_file_that_is_gone_is_named) {
  const char *copy = copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_int_eq(unlink(copy), 0);
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_a"), "failed");
  ck_contains(reason, "cannot be opened: No such file or directory");
}
END_TEST

/* An upgrade while the process runs: what counts is the file that is opened. */
START_TEST(a_file_that_was_replaced_is_judged_anew) {
  copy_to_scratch(listed("lazy_a"), "plugins/lazy_a.so");
  ck_ok(create(NULL, NULL, test_log_capture, &host));
  ck_assert_int_eq(unlink(in_scratch("plugins/lazy_a.so")), 0);
  copy_to_scratch(listed("lazy_better"), "plugins/lazy_a.so");
  expect_run("lazy_a", "lazy_better");
  ck_assert_str_eq(status_of("lazy_better"), "loaded");
}
END_TEST

static const struct {
  const char *name, *reason;
} bad_lists[] = {
    {"lazy_empty", "damaged 'flhost' note: name 1 of FL_PLUGIN_OPS, '', is empty"},
    {"lazy_gap", "damaged 'flhost' note: name 2 of FL_PLUGIN_OPS, '', is empty"},
    {"lazy_twice", "damaged 'flhost' note: name 3 of FL_PLUGIN_OPS, 'lazy_a', stands there twice"},
    {"lazy_odd", "damaged 'flhost' note: name 2 of FL_PLUGIN_OPS, 'lazy-b', is not the name of an op"},
    {"lazy_signs_none",
     "damaged 'flhost' note: FL_PLUGIN_PLATFORM is not the name of a platform, a colon, and signs of "
     "it (4096 bytes at most)"},
    {"lazy_signs_unnamed",
     "damaged 'flhost' note: FL_PLUGIN_PLATFORM is not the name of a platform, a colon, and signs "
     "of it (4096 bytes at most)"},
    {"lazy_signs_twice", "damaged 'flhost' note: it has FL_PLUGIN_PLATFORM twice"},
    {"lazy_huge", "damaged 'flhost' note: FL_PLUGIN_OPS has 69999 bytes, 65536 at most"},
};

START_TEST(D4_a_bad_list_is_a_failed_plugin_before_its_code_runs) {
  start_with(bad_lists[_i].name);
  ck_assert_str_eq(status_of(bad_lists[_i].name), "failed");
  ck_assert_str_eq(reason, bad_lists[_i].reason);
  ck_assert(!is_open(listed(bad_lists[_i].name)));
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
}
END_TEST

/* ----------------------------------------------------------------------------------------------- the host's own list
 */

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
  char directory[PATH_MAX];
  int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  snprintf(directory, sizeof directory, "%s", listed("lazy_a"));
  *strrchr(directory, '/') = 0;
  sleep(3); /* what was changed a moment ago is always read */
  ck_assert_int_ge(inotify_add_watch(watch, directory, IN_OPEN), 0);
  start_with("lazy_a lazy_better");
  ck_assert_int_eq(opened(watch), 2);
  ck_ok(fl_discover_plugins(host, NULL));
  first = host;
  start_with("lazy_a lazy_better");
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

/* --------------------------------------------------------------------------------------------- failed for the moment
 */

static struct rlimit all_descriptors;

/* No descriptor is free until this is called with false. */
static void use_up_descriptors(bool none) {
  struct rlimit limit;
  if (none) {
    int first = dup(STDIN_FILENO);
    close(first);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all_descriptors), 0);
    limit = all_descriptors;
    limit.rlim_cur = (rlim_t)first;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
  } else {
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &all_descriptors), 0);
  }
}

START_TEST(D4_a_plugin_that_lacked_descriptors_is_tried_again_at_the_next_look) {
  start_with("lazy_a");
  use_up_descriptors(true);
  for (int i = 0; i < 3; i++) {
    ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
    ck_contains(fl_error_message(), "no op 'lazy_a': plugin 'lazy_a', which lists it, failed: not loaded so far");
  }
  use_up_descriptors(false);
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_contains(reason, "not loaded so far, and tried again when one of its ops is looked for: ");
  ck_contains(reason, "Too many open files");
  expect_run("lazy_a", "lazy_a");
  ck_assert_str_eq(status_of("lazy_a"), "loaded");
  ck_assert_str_eq(reason, "");
  const char *first = strstr(test_log.text, "WARNING plugin lazy_a is not loaded so far");
  ck_assert_ptr_nonnull(first);
  ck_assert_ptr_null(strstr(strchr(first, '\n'), "is not loaded so far"));
}
END_TEST

/* The host's own op exists without it, and is not taken for complete. */
START_TEST(D4_a_built_in_op_gets_the_plugin_that_lacked_descriptors_later) {
  start_with("lazy_builtin");
  use_up_descriptors(true);
  ck_assert_ptr_nonnull(fl_find_op(host, "relu2"));
  use_up_descriptors(false);
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_assert_ptr_nonnull(fl_find_op(host, "relu2"));
  ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
}
END_TEST

/* Its note could not be read, so any op may be one of it. */
START_TEST(D4_a_plugin_that_could_not_be_read_for_want_of_descriptors_is_tried_again) {
  start_with("lazy_again");
  use_up_descriptors(true);
  ck_assert_int_eq(fl_load_plugin(host, listed("lazy_a")), FL_EPLUGIN);
  use_up_descriptors(false);
  ck_contains(fl_error_message(), "Too many open files");
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  expect_run("lazy_a", "lazy_a");
}
END_TEST

START_TEST(D4_a_plugin_that_lacked_memory_is_tried_again) {
  start_with("lazy_poor");
  ck_assert_ptr_null(fl_find_op(host, "lazy_a"));
  ck_assert_str_eq(status_of("lazy_poor"), "deferred");
  ck_contains(reason, "register_builtins returned FL_ENOMEM");
  expect_run("lazy_a", "lazy_poor");
}
END_TEST

/* ------------------------------------------------------------------------------------ threads, forks, calls from
 * inside */

static void *look_for_it(void *argument) {
  (void)argument;
  return fl_find_op(host, "lazy_a");
}

START_TEST(two_threads_that_look_for_an_op_load_its_plugin_once) {
  pthread_t threads[2];
  void *ops[2];
  start_with("lazy_slow lazy_better");
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, look_for_it, NULL), 0);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], &ops[i]);
  ck_assert_ptr_nonnull(ops[0]);
  ck_assert_ptr_eq(ops[0], ops[1]);
  ck_assert_int_eq(registrations("lazy_slow"), 1);
  expect_run("lazy_a", "lazy_better");
}
END_TEST

/* The fork falls into the plugin's initialiser, or into its register_builtins. */
static const char *const slow[] = {"lazy_slow_start", "lazy_slow"};

START_TEST(X1_a_fork_while_a_plugin_is_loaded_leaves_both_able_to_call) {
  pthread_t thread;
  const char *ran;
  void *op;
  int status;
  start_with(slow[_i]);
  ck_assert_int_eq(pthread_create(&thread, NULL, look_for_it, NULL), 0);
  usleep(100000);
  pid_t child = fork();
  if (!child) {
    alarm(10);
    if (!test_call(host, "lazy_a", &ran) && !strcmp(ran, slow[_i]))
      kill(getpid(), SIGKILL); /* what another thread of the parent owns is no leak of the child */
    _exit(1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "the child failed: status %x", (unsigned)status);
  pthread_join(thread, &op);
  ck_assert_ptr_nonnull(op);
  expect_run("lazy_a", slow[_i]);
}
END_TEST

/* Runs while the plugin registers, in its thread. */
static fl_op *found_inside[2];

static void look_inside(void *user, int level, const char *line) {
  if (host && !strcmp(line, "plugin lazy_better: registers")) {
    found_inside[0] = fl_find_op(host, "lazy_again_b"); /* of another plugin that waits */
    found_inside[1] = fl_find_op(host, "lazy_c");       /* of the very plugin */
  }
  test_log_capture(user, level, line);
}

START_TEST(an_op_may_be_looked_for_while_a_plugin_registers) {
  ck_ok(create(modules_of("lazy_better lazy_again"), NULL, look_inside, &host));
  expect_run("lazy_a", "lazy_better");
  ck_assert_ptr_nonnull(found_inside[0]);
  ck_assert_ptr_null(found_inside[1]); /* it is not registered yet, and not for ever unknown */
  expect_run("lazy_c", "lazy_better");
  expect_run("lazy_again_b", "lazy_again");
  ck_assert_int_eq(registrations("lazy_better"), 1);
  ck_assert_int_eq(registrations("lazy_again"), 1);
}
END_TEST

/* An engine's implementation that calls an op by name. */
static fl_status call_lazy(void *self, fl_call *call) {
  fl_call inner = {.size = sizeof inner, .count = 1, .values = &call->values[call->count - 1]};
  (void)self;
  return fl_call_op(host, "lazy_a", &inner);
}

START_TEST(an_op_may_be_looked_for_from_inside_a_call) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "outer",
                        .impl_id = "default.outer",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = call_lazy};
  start_with("lazy_fails lazy_a");
  test_op(host, "outer");
  ck_ok(fl_register_impl(host, &impl));
  expect_run("outer", "lazy_a");
}
END_TEST

/* ------------------------------------------------------------------------------------------ handles before the search
 */

static float numbers[2][4] = {{-1, 2, -3, 4}};
static int64_t four[] = {4};
static DLTensor from = {
    .data = numbers[0], .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = four};
static DLTensor to = {.data = numbers[1], .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = four};

START_TEST(typed_calls_load_the_plugins_of_an_op_at_its_first_call) {
  fl_ops ops;
  start_with("lazy_a lazy_builtin");
  ck_ok(fl_ops_init(&ops, host));
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_assert(!is_open(listed("lazy_builtin")));
  for (int i = 0; i < 3; i++)
    ck_ok(fl_relu2(&ops, NULL, &from, &to));
  ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
  ck_assert_str_eq(status_of("lazy_a"), "deferred");
  ck_assert_ptr_eq(ops.relu2, fl_find_op(host, "relu2"));
  ck_assert_int_eq(test_log_count("INFO Op 'relu2' using 'vendor.lazy_builtin' (kind=vendor, vendor=lazy_builtin)"), 1);
}
END_TEST

/* Whatever is asked of a handle first. */
typedef fl_status (*first_use)(fl_op *op, fl_call *call);

static fl_status use_scoped(fl_op *op, fl_call *call) {
  fl_scope scope;
  ck_ok(fl_scope_prefer(host, "vendor", &scope));
  fl_status status = fl_invoke(op, call);
  ck_ok(fl_scope_leave(&scope));
  return status;
}

static fl_status use_in_a_call(void *self, fl_call *call) {
  (void)call;
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call inner = FL_CALL(values);
  return fl_invoke(self, &inner);
}

static fl_status use_nested(fl_op *op, fl_call *call) {
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "outer",
                        .impl_id = "default.x",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE_ANY,
                        .fn = use_in_a_call,
                        .self = op};
  fl_value none[] = {fl_none()};
  fl_call outer = FL_CALL(none);
  (void)call;
  test_op(host, "outer");
  ck_ok(fl_register_impl(host, &impl));
  return fl_call_op(host, "outer", &outer);
}

static fl_status use_check(fl_op *op, fl_call *call) {
  return fl_check(op, call);
}

static fl_status use_infer(fl_op *op, fl_call *call) {
  fl_tensor_spec spec;
  return fl_infer(op, call, &spec, 1, sizeof spec);
}

static fl_status use_cost(fl_op *op, fl_call *call) {
  fl_cost cost = {.size = sizeof cost};
  return fl_op_cost(op, call, &cost);
}

static fl_status use_workspace(fl_op *op, fl_call *call) {
  size_t size;
  return fl_workspace_size(op, call, &size);
}

static fl_status use_schema(fl_op *op, fl_call *call) {
  (void)call;
  ck_assert_str_eq(fl_op_schema(op), "relu2(Tensor(a!) x) -> Tensor(a) out");
  return FL_OK;
}

static fl_status use_argument(fl_op *op, fl_call *call) {
  (void)call;
  ck_assert_str_eq(fl_op_argument(op, 1)->name, "out");
  return FL_OK;
}

static fl_status use_inputs(fl_op *op, fl_call *call) {
  fl_input input;
  (void)call;
  return fl_generate_inputs(op, 0, 1, 0, &input, 1, sizeof input);
}

static const first_use first_uses[] = {fl_invoke, use_scoped,    use_nested, use_check,    use_infer,
                                       use_cost,  use_workspace, use_schema, use_argument, use_inputs};

START_TEST(any_first_use_of_a_handle_looks_for_its_op) {
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  start_with("lazy_builtin");
  fl_op *op = fl_op_handle(host, "relu2");
  ck_assert_ptr_nonnull(op);
  ck_assert_str_eq(fl_op_name(op), "relu2");
  ck_assert_str_eq(status_of("lazy_builtin"), "deferred");
  ck_ok(first_uses[_i](op, &call));
  ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
}
END_TEST

START_TEST(a_handle_of_an_op_that_is_not_known_is_none) {
  start_with("lazy_a");
  ck_assert_ptr_null(fl_op_handle(host, "relu3"));
  ck_assert_int_eq(fl_error_status(), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no op 'relu3'; did you mean 'relu2'?");
  ck_assert_ptr_null(fl_op_handle(host, "lazy_a"));
}
END_TEST

static fl_ops racing;
static pthread_barrier_t start;

/* NULL, or what it was given: a call failed. */
static void *call_at_once(void *failed) {
  float own[2][4] = {{1}};
  DLTensor x = from, out = to;
  x.data = own[0];
  out.data = own[1];
  pthread_barrier_wait(&start);
  for (int i = 0; i < 3; i++)
    if (fl_relu2(&racing, NULL, &x, &out))
      return failed;
  return NULL;
}

START_TEST(threads_that_make_the_first_typed_call_load_a_plugin_once) {
  enum { THREADS = 6 };
  pthread_t threads[THREADS];
  for (int round = 0; round < rounds(20); round++) {
    const char *environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_LOG_LEVEL=INFO", NULL};
    const fl_host_options options = {
        .size = sizeof options,
        .flags = _i ? FL_HOST_NO_ARGUMENT_CHECKS : 0,
        .environment = environment,
        .config_dir = "/nonexistent",
        .plugin_path = in_scratch("plugins"),
        .plugin_modules = modules_of("lazy_builtin"),
        .log = test_log_capture,
        .log_user = &test_log,
    };
    test_log_clear();
    ck_ok(fl_host_create(&options, &host));
    ck_ok(fl_ops_init(&racing, host));
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
      ck_assert_int_eq(pthread_create(&threads[i], NULL, call_at_once, &racing), 0);
    for (int i = 0; i < THREADS; i++) {
      void *failed;
      pthread_join(threads[i], &failed);
      ck_assert_ptr_null(failed);
    }
    pthread_barrier_destroy(&start);
    ck_assert_str_eq(status_of("lazy_builtin"), "loaded");
    ck_assert_int_eq(registrations("lazy_builtin"), 1);
    fl_host_destroy(host);
    host = NULL;
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, typed_calls_load_the_plugins_of_an_op_at_its_first_call);
  tcase_add_loop_test(tests, any_first_use_of_a_handle_looks_for_its_op, 0, sizeof first_uses / sizeof *first_uses);
  tcase_add_test(tests, a_handle_of_an_op_that_is_not_known_is_none);
  tcase_add_loop_test(tests, threads_that_make_the_first_typed_call_load_a_plugin_once, 0, 2);
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
  tcase_add_test(tests, R3_a_row_of_an_op_that_is_not_listed_is_refused);
  tcase_add_test(tests, a_component_of_a_plugin_with_a_list_is_refused);
  tcase_add_test(tests, a_platform_that_the_file_does_not_speak_of_is_refused);
  tcase_add_test(tests, a_platform_of_another_name_than_the_file_says_is_refused);
  tcase_add_test(tests, H2_a_platform_without_a_sign_of_it_is_not_loaded);
  tcase_add_test(tests, H2_a_platform_with_a_sign_of_it_is_loaded_and_chosen);
  tcase_add_test(tests, H2_an_empty_variable_is_no_sign);
  tcase_add_test(tests, H2_a_platform_that_is_forced_loads_its_plugin_alone);
  tcase_add_test(tests, H2_a_platform_that_waits_is_among_those_that_may_be_forced);
  tcase_add_test(tests, H1_the_report_of_platforms_loads_those_that_wait);
  tcase_add_test(tests, memory_of_a_device_loads_the_platforms_that_wait);
  tcase_add_test(tests, an_op_that_is_listed_in_vain_is_warned_of);
  tcase_add_test(tests, D4_a_plugin_that_fails_late_is_recorded_and_named);
  tcase_add_test(tests, D4_a_plugin_that_fails_late_does_not_harm_the_others);
  tcase_add_test(tests, a_file_that_became_writable_for_everyone_is_refused_when_it_is_loaded);
  tcase_add_test(tests, a_file_that_is_gone_is_named);
  tcase_add_test(tests, a_file_that_was_replaced_is_judged_anew);
  tcase_add_loop_test(tests, D4_a_bad_list_is_a_failed_plugin_before_its_code_runs, 0,
                      sizeof bad_lists / sizeof *bad_lists);
  tcase_add_test(tests, D6_a_deferred_plugin_is_withdrawn_without_being_opened);
  tcase_add_test(tests, D2_one_file_by_several_paths_is_deferred_once);
  tcase_add_test(tests, what_waits_is_not_forgotten_with_what_failed);
  tcase_add_test(tests, no_file_is_read_twice_while_it_stays_the_same);
  tcase_add_test(tests, a_file_that_changed_is_read_again);
  tcase_add_test(tests, two_threads_that_look_for_an_op_load_its_plugin_once);
  tcase_add_test(tests, D4_a_plugin_that_lacked_descriptors_is_tried_again_at_the_next_look);
  tcase_add_test(tests, D4_a_built_in_op_gets_the_plugin_that_lacked_descriptors_later);
  tcase_add_test(tests, D4_a_plugin_that_could_not_be_read_for_want_of_descriptors_is_tried_again);
  tcase_add_test(tests, D4_a_plugin_that_lacked_memory_is_tried_again);
  tcase_add_loop_test(tests, X1_a_fork_while_a_plugin_is_loaded_leaves_both_able_to_call, 0, 2);
  tcase_add_test(tests, an_op_may_be_looked_for_while_a_plugin_registers);
  tcase_add_test(tests, an_op_may_be_looked_for_from_inside_a_call);
}

int main(void) {
  return run_suite("lazy", add_tests, 20);
}
