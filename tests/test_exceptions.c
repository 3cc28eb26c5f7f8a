/*
 * C++ exceptions, and the ends of threads, that come out of what a host calls beside kernels (register_builtins,
 * is_available, supports_args, workspace_size): whoever called gets them, and the host is as usable as before: no lock
 * is held, no thread is reading. (Kernels: test_not_returning.c.)
 */
#include "tests/fixture.h"
#include "tests/scenario.h"

#include <dlfcn.h>

/* tests/plugins/catches.cc: 1 when something came through. */
static int (*catches)(void (*call)(void *), void *user);

static void set_up(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/plugins/lib/libcatches.so", build_dir());
  void *library = dlopen(path, RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  *(void **)&catches = dlsym(library, "catches");
}

static fl_host *empty_host(void) {
  return test_host((const char *const[]){"VLLM_FL_PROBE=off", "VLLM_FL_LOG_LEVEL=DEBUG", NULL}, 0);
}

static const char *module_of(const char *where) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/tests/plugins/throws_from_%s.so", build_dir(), where);
  return path;
}

static const char *name_of(const char *where) {
  static char name[64];
  snprintf(name, sizeof name, "throws_from_%s", where);
  return name;
}

static fl_host *host_with(const char *where) {
  fl_host *host = empty_host();
  ck_ok(fl_load_plugin(host, module_of(where)));
  return host;
}

static fl_status call_thrown(fl_host *host, bool ask_for_workspace) {
  float x[] = {1, 2, 3}, out[3] = {0};
  int64_t n = 3;
  size_t size = 0;
  DLTensor from = {.data = x, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = &n}, to = from;
  to.data = out;
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  fl_status status = ask_for_workspace ? fl_workspace_size(fl_find_op(host, "thrown"), &call, &size)
                                       : fl_call_op(host, "thrown", &call);
  if (!status && !ask_for_workspace)
    ck_assert_float_eq(out[2], 6);
  return status;
}

/* ------------------------------------------------------------------------------------------------- what asks them */

static void calls(void *host) {
  call_thrown(host, false);
}

static void asks_for_workspace(void *host) {
  call_thrown(host, true);
}

static void lists(void *host) {
  fl_snapshot_release(fl_registry_snapshot(host));
}

static void warms_up(void *host) {
  fl_warm_up(host, kDLCPU, NULL, NULL);
}

static void freezes(void *host) {
  if (!fl_freeze(host, "test"))
    fl_thaw(host, "test");
}

static void explains(void *host) {
  fl_explanation *explanation;
  if (!fl_explain(host, "thrown", kDLCPU, &explanation))
    fl_explanation_free(explanation);
}

static const struct {
  const char *where, *blamed; /* what is said of it in the log */
  void (*asks)(void *host);
} cases[] = {
    {"is_available", "is not available: is_available did not return", calls},
    {"is_available", "is not available: is_available did not return", asks_for_workspace},
    {"is_available", "is not available: is_available did not return", lists},
    {"is_available", "is not available: is_available did not return", warms_up},
    {"is_available", "is not available: is_available did not return", freezes},
    {"is_available", "is not available: is_available did not return", explains},
    {"supports_args", "failed for op 'thrown': it did not return", calls},
    {"supports_args", NULL, asks_for_workspace},
    {"workspace_size", "failed for op 'thrown': it did not return", calls}, /* the host asks, to bring it */
    {"workspace_size", NULL, asks_for_workspace},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static void *use_from_elsewhere(void *host) {
  ck_ok(call_thrown(host, false));
  lists(host);
  return NULL;
}

/* Nobody waits, in this thread or another, and whoever withdraws is not held up. */
static void check_usable(fl_host *host) {
  pthread_t thread;
  ck_assert(!pthread_create(&thread, NULL, use_from_elsewhere, host));
  pthread_join(thread, NULL);
  ck_ok(call_thrown(host, false));
}

START_TEST(what_comes_out_of_a_plugins_answer_leaves_the_host_as_it_was) {
  fl_host *host = host_with(cases[_i].where);
  ck_assert_int_eq(catches(cases[_i].asks, host), 1);
  if (cases[_i].blamed)
    ck_contains(test_log.text, cases[_i].blamed);
  if (cases[_i].blamed) /* else it is asked again */
    check_usable(host);
  ck_ok(fl_withdraw_plugin(host, name_of(cases[_i].where)));
  fl_host_destroy(host);
}
END_TEST

/* One that answered with an exception is out until the registry changes, and is not asked before. */
START_TEST(an_implementation_whose_is_available_throws_is_not_available) {
  fl_explanation *explanation;
  fl_host *host = host_with("is_available");
  ck_assert_int_eq(catches(calls, host), 1);
  ck_assert_int_eq(catches(calls, host), 0);
  ck_ok(fl_explain(host, "thrown", kDLCPU, &explanation));
  ck_assert_str_eq(explanation->selected, "reference.right");
  fl_explanation_free(explanation);
  fl_bump_policy_epoch(host); /* asked again, R6 */
  ck_assert_int_eq(catches(calls, host), 1);
  ck_assert_int_eq(catches(calls, host), 0);
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------- while it registers */

static void loads(void *host) {
  fl_load_plugin(host, module_of("register_builtins"));
}

static const fl_host_options *options_for(const char *where) {
  static const char *environment[3] = {"VLLM_FL_PROBE=off"};
  static char modules[4200];
  static fl_host_options options;
  snprintf(modules, sizeof modules, "VLLM_FL_PLUGIN_MODULES=%s", module_of(where));
  environment[1] = modules;
  options = (fl_host_options){.size = sizeof options,
                              .environment = environment,
                              .config_dir = "/nonexistent",
                              .log = test_log_capture,
                              .log_user = &test_log};
  return &options;
}

static void creates(void *where) {
  fl_host *host;
  fl_host_create(options_for(where), &host);
}

static void takes_default(void *host) {
  *(fl_host **)host = fl_default_host();
}

static void makes_default(void *host) {
  fl_host_options options = *options_for("creation");
  fl_create_default_host(&options);
  *(fl_host **)host = NULL;
}

static void looks_for_op(void *host) {
  fl_find_op(host, "thrown");
}

static void expect_failed(fl_host *host) {
  fl_plugins *plugins;
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_uint_eq(plugins->n, 1);
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "failed");
  ck_contains(fl_plugin_at(plugins, 0)->reason,
              "register_builtins did not return: it ended the thread (pthread_exit) or "
              "threw an exception");
  fl_plugins_free(plugins);
}

static void *load_good(void *host) {
  ck_ok(fl_load_plugin(host, module_of("is_available")));
  return NULL;
}

START_TEST(what_register_builtins_throws_leaves_a_failed_plugin_and_no_lock) {
  pthread_t thread;
  fl_host *host = empty_host();
  ck_assert_int_eq(catches(loads, host), 1);
  expect_failed(host);
  ck_assert(!pthread_create(&thread, NULL, load_good, host)); /* loading is nobody's any more */
  pthread_join(thread, NULL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(looking_for_an_op_whose_plugin_throws_holds_nothing_up) {
  fl_host *host;
  ck_ok(fl_host_create(options_for("register_builtins"), &host));
  ck_assert_int_eq(catches(looks_for_op, host), 1);
  expect_failed(host);
  ck_ok(fl_load_plugin(host, module_of("nowhere")));
  check_usable(host);
  ck_ok(fl_withdraw_plugin(host, name_of("nowhere")));
  fl_host_destroy(host);
}
END_TEST

/* Nothing is left of it (valgrind), and another one can be had. */
START_TEST(a_host_that_a_plugin_throws_out_of_is_gone) {
  char name[] = "creation";
  fl_host *host;
  ck_assert_int_eq(catches(creates, name), 1);
  ck_ok(fl_host_create(options_for("supports_args"), &host));
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_default_host_can_be_had_after_a_plugin_threw) {
  fl_host *host = NULL;
  setenv("VLLM_FL_PROBE", "off", 1);
  setenv("VLLM_FL_PLUGIN_PATH", "/nonexistent", 1);
  setenv("VLLM_FL_PLUGIN_MODULES", module_of("creation"), 1);
  ck_assert_int_eq(catches(takes_default, &host), 1);
  ck_assert_ptr_null(host);
  ck_assert_int_eq(catches(makes_default, &host), 1);
  unsetenv("VLLM_FL_PLUGIN_MODULES");
  ck_assert_int_eq(catches(takes_default, &host), 0);
  ck_assert_ptr_nonnull(host);
  fl_reset_default_host();
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_loop_test(tests, what_comes_out_of_a_plugins_answer_leaves_the_host_as_it_was, 0, N_CASES);
  tcase_add_test(tests, an_implementation_whose_is_available_throws_is_not_available);
  tcase_add_test(tests, what_register_builtins_throws_leaves_a_failed_plugin_and_no_lock);
  tcase_add_test(tests, looking_for_an_op_whose_plugin_throws_holds_nothing_up);
  tcase_add_test(tests, a_host_that_a_plugin_throws_out_of_is_gone);
  tcase_add_test(tests, the_default_host_can_be_had_after_a_plugin_threw);
}

int main(void) {
  return run_suite("exceptions", add_tests, 30);
}
