/*
 * Availability (rule R6) as a plugin's own code that may crash or hang: a vendor that the policy keeps out is never
 * asked, whatever is done with the host; any other is asked once a generation of the registry.
 */
#include "fixture.h"
#include "tests/scenario.h"

#include <flhost/vllm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 4 }; /* that asked.c has of the vendor */

/* How often was is_available asked so far, in any process? */
static int asked(void) {
  struct stat status;
  return stat(scratch("asked"), &status) ? 0 : (int)status.st_size;
}

static fl_host *host_with(const char *plugin, const char *first, const char *second) {
  char module[256];
  const char *const environment[] = {"VLLM_FL_PROBE=off", "VLLM_FL_DISPATCH_DEBUG=1", first ? first : second,
                                     first ? second : NULL, NULL};
  setenv("TEST_ASKED", scratch("asked"), 1);
  fl_host *host = test_host(environment, 0);
  snprintf(module, sizeof module, "%s/tests/plugins/%s.so", build_dir(), plugin);
  ck_ok(fl_load_plugin(host, module));
  return host;
}

static const char *called(fl_host *host, const char *op) {
  const char *ran = NULL;
  return test_call(host, op, &ran) ? "" : ran;
}

/* ------------------------------------------------------------------------------------------------ ways to be asked */

static void resolve(fl_host *host) {
  static const char *const ops[] = {"asked_both", "asked_only", "relu2"};
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    for (int32_t device = kDLCPU; device <= kDLCUDA; device++) {
      fl_resolution resolution = {.size = sizeof resolution};
      fl_explanation *explanation;
      fl_resolve_op(host, ops[i], device, &resolution); /* there may be none */
      ck_ok(fl_explain(host, ops[i], device, &explanation));
      fl_explanation_free(explanation);
    }
}

static void list(fl_host *host) {
  uint32_t enabled, disabled;
  char uuid[65];
  fl_plugins *plugins;
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  ck_assert_ptr_nonnull(snapshot);
  fl_snapshot_release(snapshot);
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  fl_plugins_free(plugins);
  fl_custom_op_counts(host, &enabled, &disabled);
  ck_assert_int_eq(fl_impl_uuid(host, "asked_both", "reference.asked", uuid), FL_OK);
}

static void call(fl_host *host) {
  fl_value values[] = {fl_none()};
  fl_call call = FL_CALL(values);
  size_t size;
  called(host, "asked_both");
  called(host, "asked_only");
  fl_workspace_size(fl_find_op(host, "asked_both"), &call, &size);
}

static void call_in_child(fl_host *host) {
  int status;
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    call(host);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
}

static void call_in_scope(fl_host *host) {
  fl_scope scope;
  ck_ok(fl_scope_strict(host, &scope));
  call(host);
  ck_ok(fl_scope_leave(&scope));
}

static void warm_up(fl_host *host) {
  ck_ok(fl_warm_up(host, kDLCPU, NULL, NULL));
  ck_ok(fl_warm_up(host, kDLCUDA, NULL, NULL));
}

static void freeze(fl_host *host) {
  ck_ok(fl_freeze(host, "test"));
  call(host);
  ck_ok(fl_thaw(host, "test"));
}

static void make_manifest(fl_host *host) {
  fl_manifest *manifest;
  ck_ok(fl_get_manifest(host, kDLCUDA, &manifest));
  fl_manifest_free(manifest);
}

static void (*const ways[])(fl_host *host) = {call,    resolve, list,          call_in_scope,
                                              warm_up, freeze,  make_manifest, call_in_child};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* Without the last: a child asks anew. */
static void go_all_ways(fl_host *host) {
  for (size_t i = 0; i + 1 < N_WAYS; i++)
    ways[i](host);
}

/* ---------------------------------------------------------------------------------------------------- what is asked */

static const char *const plugins[] = {"asked_crashes", "asked_hangs", "asked_counts"};
enum { N_PLUGINS = sizeof plugins / sizeof *plugins };

/* Each way is the first of a host of its own, too. */
START_TEST(R6_a_vendor_that_is_kept_out_is_never_asked) {
  const char *plugin = plugins[_i / 2];
  char setting[64] = "VLLM_FL_ALLOW_VENDORS=other";
  if (_i % 2)
    snprintf(setting, sizeof setting, "VLLM_FL_DENY_VENDORS=other,%s", plugin);
  for (size_t i = 0; i < N_WAYS; i++) {
    fl_host *host = host_with(plugin, setting, NULL);
    ways[i](host);
    go_all_ways(host);
    ck_assert_str_eq(called(host, "asked_both"), "reference.asked");
    ck_assert_str_eq(called(host, "asked_only"), "");
    fl_host_destroy(host);
    ck_assert_int_eq(asked(), 0);
  }
}
END_TEST

START_TEST(R6_a_vendor_that_is_let_in_is_asked_once_a_generation) {
  fl_host *host = host_with("asked_counts", "VLLM_FL_DENY_VENDORS=other", NULL);
  call(host);
  ck_assert_int_eq(asked(), 2); /* those of what is called */
  go_all_ways(host);
  go_all_ways(host);
  ck_assert_int_eq(asked(), ROWS);
  ck_assert_str_eq(called(host, "asked_only"), "vendor.asked_counts");
  fl_bump_policy_epoch(host);
  go_all_ways(host);
  ck_assert_int_eq(asked(), 2 * ROWS);
  fl_host_destroy(host);
}
END_TEST

static fl_policy *permissive(void) {
  fl_policy_fields fields = {.size = sizeof fields, .prefer = "vendor"};
  fl_policy *policy;
  ck_ok(fl_policy_create(&fields, &policy));
  return policy;
}

START_TEST(R6_a_vendor_is_asked_when_a_policy_lets_it_in) {
  fl_host *host = host_with("asked_counts", "VLLM_FL_DENY_VENDORS=asked_counts", NULL);
  fl_policy *policy = permissive(), *denying = fl_get_policy(host);
  fl_scope scope;
  go_all_ways(host);
  ck_assert_int_eq(asked(), 0);
  for (int i = 0; i < 2; i++) {
    ck_ok(fl_scope_enter(host, policy, &scope));
    ck_assert_str_eq(called(host, "asked_both"), "vendor.asked_counts");
    ck_ok(fl_scope_leave(&scope));
    ck_assert_str_eq(called(host, "asked_both"), "reference.asked");
    ck_assert_int_eq(asked(), 1);
  }
  ck_ok(fl_set_global_policy(host, policy));
  go_all_ways(host);
  ck_assert_int_eq(asked(), ROWS); /* one of them before */
  ck_ok(fl_set_global_policy(host, denying));
  fl_bump_policy_epoch(host);
  go_all_ways(host);
  ck_assert_int_eq(asked(), ROWS);
  fl_policy_release(policy);
  fl_policy_release(denying);
  fl_host_destroy(host);
}
END_TEST

/* A thread in a scope, and where it stands. */
typedef struct scoped_thread {
  fl_host *host;
  pthread_barrier_t step;
  char ran[64];
} scoped_thread;

static void *call_when_frozen(void *data) {
  scoped_thread *thread = data;
  fl_policy *policy = permissive();
  fl_scope scope;
  ck_ok(fl_scope_enter(thread->host, policy, &scope));
  pthread_barrier_wait(&thread->step); /* entered */
  pthread_barrier_wait(&thread->step); /* frozen */
  snprintf(thread->ran, sizeof thread->ran, "%s", called(thread->host, "asked_only"));
  ck_ok(fl_scope_leave(&scope));
  fl_policy_release(policy);
  return NULL;
}

/* What was not asked before a freeze would be asked by a call in the frozen host, which is to be what it was. */
START_TEST(R6_a_freeze_asks_whom_the_scope_of_any_thread_lets_in) {
  scoped_thread thread = {.host = host_with("asked_counts", "VLLM_FL_DENY_VENDORS=asked_counts", NULL)};
  pthread_t id;
  pthread_barrier_init(&thread.step, NULL, 2);
  ck_assert_int_eq(pthread_create(&id, NULL, call_when_frozen, &thread), 0);
  pthread_barrier_wait(&thread.step);
  ck_assert_int_eq(asked(), 0);
  ck_ok(fl_freeze(thread.host, "test"));
  ck_assert_int_eq(asked(), ROWS);
  pthread_barrier_wait(&thread.step);
  pthread_join(id, NULL);
  ck_assert_str_eq(thread.ran, "vendor.asked_counts");
  ck_assert_str_eq(called(thread.host, "asked_only"), ""); /* here it is denied */
  ck_assert_int_eq(asked(), ROWS);
  fl_host_destroy(thread.host);
  pthread_barrier_destroy(&thread.step);
}
END_TEST

/* ----------------------------------------------------------------------------------------------- what is said of it */

static const fl_impl_info *info_of(const fl_snapshot *snapshot, const char *op, const char *impl_id) {
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++)
      if (!strcmp(fl_snapshot_op_name(snapshot, i), op) && !strcmp(fl_snapshot_impl(snapshot, i, j)->impl_id, impl_id))
        return fl_snapshot_impl(snapshot, i, j);
  ck_abort_msg("no '%s' of '%s'", impl_id, op);
}

START_TEST(not_asked_is_an_answer_of_its_own_with_the_setting_that_decided) {
  static const char *const denied = "vendor 'asked_counts' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)";
  char words[256];
  fl_host *host = host_with("asked_counts", "VLLM_FL_DENY_VENDORS=asked_counts", NULL);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  const fl_impl_info *vendor = info_of(snapshot, "asked_both", "vendor.asked_counts"),
                     *reference = info_of(snapshot, "asked_both", "reference.asked");
  ck_assert(!vendor->asked && !vendor->available);
  ck_assert_str_eq(vendor->reason, denied);
  ck_assert(reference->asked && reference->available && !reference->reason);
  fl_snapshot_release(snapshot);
  fl_plugins *list;
  ck_ok(fl_get_discovered_plugins(host, &list));
  ck_assert_str_eq(fl_plugin_at(list, 0)->status, "loaded");
  snprintf(words, sizeof words, "4 of 5 not asked whether available: %s", denied);
  ck_assert_str_eq(fl_plugin_at(list, 0)->reason, words);
  fl_plugins_free(list);
  ck_assert_int_eq(test_call(host, "asked_only", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(), denied);
  /* what is known from before stays known in its generation */
  fl_policy *policy = permissive();
  fl_scope scope;
  ck_ok(fl_scope_enter(host, policy, &scope));
  called(host, "asked_both");
  ck_ok(fl_scope_leave(&scope));
  snapshot = fl_registry_snapshot(host);
  ck_assert(info_of(snapshot, "asked_both", "vendor.asked_counts")->available);
  ck_assert(!info_of(snapshot, "asked_only", "vendor.asked_counts")->asked);
  fl_snapshot_release(snapshot);
  fl_policy_release(policy);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- commands */

static void begin_commands(const char *plugin) {
  char path[64];
  begin_scenario();
  snprintf(path, sizeof path, "tests/plugins/%s.so", plugin);
  copy_built(path, "plugins");
  setting("VLLM_FL_PROBE=off"); /* what is asked in another process is asked, too */
  setting("TEST_ASKED=%s", scratch("asked"));
  setting("VLLM_FL_DISPATCH_DEBUG=1");
  setting("VLLM_FL_LOG_LEVEL=ERROR");
}

START_TEST(no_command_asks_a_vendor_that_is_denied) {
  static const char *const commands[][5] = {{"ops"},
                                            {"ops", "relu2"},
                                            {"ops", "--impls"},
                                            {"ops", "--json"},
                                            {"explain"},
                                            {"explain", "relu2", "--json"},
                                            {"explain", "asked_both", "--device", "cuda"},
                                            {"plugins"},
                                            {"plugins", "--json"},
                                            {"doctor"},
                                            {"config"},
                                            {"platform"},
                                            {"manifest"},
                                            {"resolve", "relu2"},
                                            {"verify", "relu2"},
                                            {"verify", "asked_both"},
                                            {"bench", "relu2", "--seconds", "0.001"}};
  const char *plugin = plugins[_i];
  begin_commands(plugin);
  setting("VLLM_FL_DENY_VENDORS=%s", plugin);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    outcome run = run_flhost(commands[i]);
    ck_assert_msg(run.status <= 1, "%s: %d: %s%s", commands[i][0], run.status, run.out, run.err);
    ck_assert_msg(!asked(), "%s %s", commands[i][0], commands[i][1] ? commands[i][1] : "");
  }
}
END_TEST

START_TEST(commands_show_who_was_not_asked) {
  static const char *const denied = "vendor 'asked_crashes' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)";
  begin_commands("asked_crashes");
  setting("VLLM_FL_DENY_VENDORS=asked_crashes");
  json_t *ops = parse_json(FLHOST("ops", "--json").out, JSON_ARRAY);
  json_t *impl = entry_of(json_object_get(entry_of(ops, "name", "relu2"), "impls"), "impl_id", "vendor.asked_crashes");
  ck_assert(json_is_null(json_object_get(impl, "available")));
  ck_assert_str_eq(text_at(impl, "reason"), denied);
  assert_contains(FLHOST("ops", "asked_only").out, "not asked: vendor 'asked_crashes' is denied");
  assert_contains(FLHOST("plugins").out, "4 of 5 not asked whether available: vendor 'asked_crashes' is denied");
  assert_contains(FLHOST("explain", "asked_both").out, denied);
  outcome run = FLHOST("verify", "relu2", "--impl", "vendor.asked_crashes");
  assert_contains(run.out, "not asked whether it is available: vendor 'asked_crashes' is denied");
  setting("VLLM_FL_LOG_LEVEL=INFO");
  assert_contains(FLHOST("resolve", "asked_both").err, "  - vendor.asked_crashes (kind=vendor");
  ck_assert_int_eq(asked(), 0);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ platforms */

/* One that has no implementations is denied by its own name, else it is its vendor's. */
static const struct {
  const char *plugin, *setting, *reason;
} platforms[] = {
    {"platform_crashes", "VLLM_FL_DENY_VENDORS=platform_crashes",
     "vendor 'platform_crashes' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)"},
    {"platform_crashes", "VLLM_FL_ALLOW_VENDORS=other",
     "vendor 'platform_crashes' is not allowed (allow_vendors: VLLM_FL_ALLOW_VENDORS)"},
    {"platform_of_acme", "VLLM_FL_DENY_VENDORS=other,acme",
     "vendor 'acme' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)"},
    {"platform_of_acme", "VLLM_FL_CONFIG", "vendor 'acme' is denied (deny_vendors: "},
};
enum { N_PLATFORMS = sizeof platforms / sizeof *platforms };

START_TEST(P4_the_platform_of_a_vendor_that_is_denied_is_not_asked) {
  static const char *const commands[][3] = {{"ops"}, {"plugins"}, {"doctor"}, {"platform"}, {"platform", "--json"}};
  begin_commands(platforms[_i].plugin);
  setting("VLLM_FL_PLATFORM=");
  if (strchr(platforms[_i].setting, '='))
    setting("%s", platforms[_i].setting);
  else
    setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "deny_vendors: [acme]\n"));
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    outcome run = run_flhost(commands[i]);
    ck_assert_msg(run.status <= 1, "%s: %d: %s%s", commands[i][0], run.status, run.out, run.err);
  }
  assert_contains(FLHOST("platform", "--json").out, "is not asked: vendor '");
  assert_contains(FLHOST("platform", "--json").out, platforms[_i].reason);
  setting("VLLM_FL_LOG_LEVEL=INFO");
  outcome run = FLHOST("ops");
  assert_contains(run.err, "is not asked whether it is active: vendor '");
  assert_contains(run.err, platforms[_i].reason);
}
END_TEST

/* Dispatch off: the other settings count for nothing. */
START_TEST(P4_where_dispatch_is_off_no_denial_counts) {
  begin_commands("platform_crashes");
  setting("VLLM_FL_PLATFORM=");
  ck_assert_int_ge(FLHOST("ops").status, 128);
  setting("VLLM_FL_DENY_VENDORS=platform_crashes");
  setting("VLLM_FL_PREFER_ENABLED=false");
  ck_assert_int_ge(FLHOST("ops").status, 128);
}
END_TEST

/* The plugin is what it says it is. */
START_TEST(a_vendor_that_is_not_denied_is_asked_and_may_crash) {
  begin_commands("asked_crashes");
  ck_assert_int_ge(FLHOST("ops", "--impls").status, 128);
  ck_assert_int_eq(asked(), 1);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- tests */

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, end_scenario);
  tcase_add_loop_test(tests, P4_the_platform_of_a_vendor_that_is_denied_is_not_asked, 0, N_PLATFORMS);
  tcase_add_test(tests, P4_where_dispatch_is_off_no_denial_counts);
  tcase_add_loop_test(tests, R6_a_vendor_that_is_kept_out_is_never_asked, 0, 2 * N_PLUGINS);
  tcase_add_test(tests, R6_a_vendor_that_is_let_in_is_asked_once_a_generation);
  tcase_add_test(tests, R6_a_vendor_is_asked_when_a_policy_lets_it_in);
  tcase_add_test(tests, R6_a_freeze_asks_whom_the_scope_of_any_thread_lets_in);
  tcase_add_test(tests, not_asked_is_an_answer_of_its_own_with_the_setting_that_decided);
  tcase_add_loop_test(tests, no_command_asks_a_vendor_that_is_denied, 0, 2);
  tcase_add_test(tests, commands_show_who_was_not_asked);
  tcase_add_test(tests, a_vendor_that_is_not_denied_is_asked_and_may_crash);
}

int main(void) {
  return run_suite("availability", add_tests, 30);
}
