/* Classes of vLLM's that plugins bring by their paths: which are taken, and which one an engine is handed. */
#include "core/registry/registration.h"
#include "tests/allocations.h"
#include "tests/fixture.h"

#include <flhost/plugin.h>
#include <flhost/vllm.h>
#include <locale.h>

static fl_component class_at(const char *type, const char *platform, const char *path) {
  return (fl_component){.size = sizeof(fl_component),
                        .type = type,
                        .name = platform,
                        .functions = path,
                        .functions_type = FL_FUNCTIONS_CLASS_PATH,
                        .functions_size = path ? (uint32_t)strlen(path) + 1 : 0};
}

static fl_status offer(fl_stage *stage, const char *type, const char *platform, const char *path) {
  fl_registry *registry = fl_stage_table(stage);
  const fl_component component = class_at(type, platform, path);
  return registry->register_component(registry, &component);
}

static fl_status kernel(void *self, fl_call *call) {
  (void)self, (void)call;
  return FL_OK;
}

/* A plugin of that name brings it, with an implementation of that vendor's; NULL: without. */
static void bring(fl_host *host, const char *plugin, const char *vendor, const char *type, const char *platform,
                  const char *path) {
  fl_stage *stage = fl_stage_begin(host, plugin, "", 0);
  fl_registry *registry = fl_stage_table(stage);
  char id[64];
  snprintf(id, sizeof id, "vendor.%s", vendor ? vendor : "");
  if (vendor)
    ck_ok(registry->register_impl(registry, &(fl_impl){.size = sizeof(fl_impl),
                                                       .op_name = "relu2",
                                                       .impl_id = id,
                                                       .kind = FL_KIND_VENDOR,
                                                       .vendor = vendor,
                                                       .devices = FL_DEVICE(kDLCPU),
                                                       .fn = kernel}));
  ck_ok(offer(stage, type, platform, path));
  ck_ok(fl_stage_commit(stage, NULL));
}

#define ck_path(host, type, expected)                                                                                  \
  do {                                                                                                                 \
    const char *path_;                                                                                                 \
    ck_ok(fl_class_path(host, type, &path_));                                                                          \
    ck_assert_str_eq(path_, expected);                                                                                 \
  } while (0)

#define ck_no_path(host, type, status)                                                                                 \
  do {                                                                                                                 \
    const char *path_ = "what was there before";                                                                       \
    ck_assert_int_eq(fl_class_path(host, type, &path_), status);                                                       \
    ck_assert_ptr_null(path_);                                                                                         \
  } while (0)

static const char *const types[] = {"attention_backend", "mla_attention_backend", "worker", "model_runner"};
enum { N_TYPES = sizeof types / sizeof *types };

START_TEST(an_engine_is_handed_the_class_of_each_type) {
  fl_host *host = test_host(NULL, 0);
  char path[64];
  ck_no_path(host, types[_i], FL_ENOENT);
  ck_contains(fl_error_message(), "for the platform 'cpu'");
  snprintf(path, sizeof path, "acme.%s.Acme_2", types[_i]);
  bring(host, "acme", NULL, types[_i], "cpu", path);
  memset(path, 'x', sizeof path - 1); /* the host has a copy */
  for (int i = 0; i < N_TYPES; i++)
    if (i != _i)
      ck_no_path(host, types[i], FL_ENOENT);
  snprintf(path, sizeof path, "acme.%s.Acme_2", types[_i]);
  ck_path(host, types[_i], path);
  fl_host_destroy(host);
}
END_TEST

static char long_path[10001];

static const struct {
  const char *path, *message; /* NULL: it is taken */
} paths[] = {
    {"a.B", NULL},
    {"_acme._v1.worker_2.AcmeWorker", NULL},
    {NULL, "a null pointer"},
    {"", "'' is no path of a Python class"},
    {"Worker", "'Worker' is no path of a Python class, expected \"package.module.Class\""},
    {".", "no path"},
    {".Worker", "no path"},
    {"acme.", "no path"},
    {"acme..Worker", "no path"},
    {"acme.1Worker", "no path"},
    {"1acme.Worker", "no path"},
    {"acme.Worker ", "no path"},
    {" acme.Worker", "no path"},
    {"acme. Worker", "no path"},
    {"acme:Worker", "no path"},
    {"acme.worker:Worker", "no path"},
    {"acme/worker.Worker", "no path"},
    {"acme.Worker()", "no path"},
    {"acme.Worker\n", "no path"},
    {"acme.\x1b[2JWorker", "'acme.\\x1b[2JWorker' is no path"},
    {"acme.W\xc3\xb6rker", "no path"},
    {"acme.W\xf6rker", "no path"},
    {long_path, "the path of the class is longer than 255 bytes"},
};

START_TEST(what_is_no_path_of_a_class_is_refused_in_words) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  setlocale(LC_ALL, "de_DE.ISO-8859-1"); /* where there is one a byte of it is a letter */
  memcpy(memset(long_path, 'a', sizeof long_path - 1), "acme.", 5);
  fl_component component = class_at("worker", "cpu", paths[_i].path);
  for (int typed = 0; typed < 2; typed++) {
    if (!typed)
      component.functions_type = component.functions_size = 0;
    else
      component = class_at("model_runner", "cpu", paths[_i].path);
    fl_status status = registry->register_component(registry, &component);
    ck_assert_int_eq(status, paths[_i].message ? FL_EINVAL : FL_OK);
    if (paths[_i].message)
      ck_contains(fl_error_message(), paths[_i].message);
  }
  fl_stage_abort(stage, NULL);
  ck_no_path(host, "worker", FL_ENOENT);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_longest_path_is_taken_and_one_byte_more_is_not) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  char path[FL_CLASS_PATH_MAX + 2];
  memcpy(memset(path, 'a', sizeof path), "a.", 2);
  path[FL_CLASS_PATH_MAX + 1] = 0;
  ck_assert_int_eq(offer(stage, "worker", "cpu", path), FL_EINVAL);
  fl_stage_abort(stage, NULL);
  path[FL_CLASS_PATH_MAX] = 0;
  bring(host, "acme", NULL, "worker", "cpu", path);
  ck_path(host, "worker", path);
  fl_host_destroy(host);
}
END_TEST

static const char not_ended[] = {'a', '.', 'B'};

static const struct {
  const char *type, *platform;
  const void *functions;
  uint32_t functions_type, functions_size;
  const char *message;
} rows[] = {
    {"worker", "cpu", "a.B", FL_FUNCTIONS_OP_NAME, 4, "functions_type is 2, expected 4 for worker"},
    {"worker", "cpu", "a.B", FL_FUNCTIONS_PLATFORM, 4, "functions_type is 1, expected 4 for worker"},
    {"model_runner", "cpu", "a.B", 5, 4, "functions_type is 5, expected 4 for model_runner"},
    {"worker", "cpu", NULL, FL_FUNCTIONS_CLASS_PATH, 4, "functions: a null pointer"},
    {"worker", "cpu", "a.B", FL_FUNCTIONS_CLASS_PATH, 0, "functions: functions_size is missing"},
    {"worker", "cpu", "a.B", FL_FUNCTIONS_CLASS_PATH, 3, "functions has 4 bytes, but functions_size is 3"},
    {"worker", "cpu", "a.B", FL_FUNCTIONS_CLASS_PATH, 9, "functions has 4 bytes, but functions_size is 9"},
    {"worker", "cpu", not_ended, FL_FUNCTIONS_CLASS_PATH, 3, "functions has 4 bytes, but functions_size is 3"},
    {"layer", "Acme", "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "functions_type is 4, expected 2 for layer"},
    {"worker", "", "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "name is empty"},
    {"worker", NULL, "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "name is empty"},
    {"worker", "auto", "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "'auto' is no name of a platform"},
    {"worker", "my cpu", "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "'my cpu' is no name of a platform"},
    {"worker_", "cpu", "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "did you mean 'worker'?"},
    {"attention-backend", "cpu", "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "did you mean 'attention_backend'?"},
    {NULL, "cpu", "a.B", FL_FUNCTIONS_CLASS_PATH, 4, "type is '', expected \"platform\", \"layer\", "},
};

START_TEST(a_row_that_is_wrong_is_refused_in_words) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  const fl_component component = {.size = sizeof component,
                                  .type = rows[_i].type,
                                  .name = rows[_i].platform,
                                  .functions = rows[_i].functions,
                                  .functions_type = rows[_i].functions_type,
                                  .functions_size = rows[_i].functions_size};
  ck_assert_int_eq(registry->register_component(registry, &component), FL_EINVAL);
  ck_contains(fl_error_message(), rows[_i].message);
  fl_stage_abort(stage, NULL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(R2_a_plugin_brings_one_of_a_type_for_a_platform) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", FL_PLUGIN_SKIP_REFUSED);
  ck_ok(offer(stage, "worker", "cpu", "acme.Worker"));
  ck_ok(offer(stage, "worker", "acme", "acme.Worker"));
  ck_ok(offer(stage, "model_runner", "cpu", "acme.Runner"));
  ck_assert_int_eq(offer(stage, "worker", "cpu", "acme.Other"), FL_EEXIST);
  ck_assert_str_eq(fl_error_message(),
                   "plugin 'acme' registers 'worker' for the platform 'cpu' twice: 'acme.Other', and "
                   "before 'acme.Worker'");
  ck_ok(fl_stage_commit(stage, NULL));
  ck_path(host, "worker", "acme.Worker");
  ck_path(host, "model_runner", "acme.Runner");
  fl_host_destroy(host);
}
END_TEST

START_TEST(R2_of_two_plugins_the_first_counts_also_after_others_have_gone) {
  fl_host *host = test_host(NULL, 0);
  const char *kept;
  bring(host, "gone", NULL, "worker", "acme", "gone.Worker");
  bring(host, "one", NULL, "worker", "cpu", "one.Worker");
  bring(host, "two", NULL, "worker", "cpu", "two.Worker");
  bring(host, "three", NULL, "worker", "cpu", "three.Worker");
  ck_path(host, "worker", "one.Worker");
  ck_ok(fl_withdraw_plugin(host, "gone"));
  ck_ok(fl_class_path(host, "worker", &kept));
  ck_ok(fl_withdraw_plugin(host, "one"));
  ck_assert_str_eq(kept, "one.Worker"); /* what was handed out stays */
  ck_path(host, "worker", "two.Worker");
  ck_ok(fl_withdraw_plugin(host, "two"));
  ck_ok(fl_withdraw_plugin(host, "three"));
  ck_no_path(host, "worker", FL_ENOENT);
  ck_assert_str_eq(kept, "one.Worker");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_class_for_another_platform_does_not_count_and_is_named) {
  fl_host *host = test_host(NULL, 0);
  bring(host, "acme", NULL, "worker", "acme", "acme.Worker");
  bring(host, "acme_too", NULL, "attention_backend", "cpu", "acme.Attention");
  ck_no_path(host, "worker", FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no plugin brings 'worker' for the platform 'cpu':\n"
                                       "  plugin 'acme' brings 'acme.Worker' for the platform 'acme'");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P4_a_class_of_a_denied_vendor_is_left_out) {
  const char *const environment[] = {"VLLM_FL_DENY_VENDORS=acme", NULL};
  fl_host *host = test_host(environment, 0);
  bring(host, "of_acme", "acme", "worker", "cpu", "acme.Worker");
  ck_no_path(host, "worker", FL_ENOENT);
  ck_contains(fl_error_message(), "plugin 'of_acme' brings 'acme.Worker' for the platform 'cpu', but vendor 'acme' is "
                                  "denied (deny_vendors: VLLM_FL_DENY_VENDORS)");
  bring(host, "of_bolt", "bolt", "worker", "cpu", "bolt.Worker");
  ck_path(host, "worker", "bolt.Worker");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P4_the_scope_of_a_thread_lets_a_class_in_or_keeps_it_out) {
  fl_host *host = test_host(NULL, 0);
  bring(host, "of_acme", "acme", "worker", "cpu", "acme.Worker");
  bring(host, "of_bolt", "bolt", "worker", "cpu", "bolt.Worker");
  fl_scope scope;
  const char *denied[] = {"acme"}, *allowed[] = {"nobody"};
  ck_ok(fl_scope_deny_vendors(host, denied, 1, &scope));
  ck_path(host, "worker", "bolt.Worker");
  fl_scope_leave(&scope);
  ck_ok(fl_scope_allow_vendors(host, allowed, 1, &scope));
  ck_no_path(host, "worker", FL_ENOENT);
  ck_contains(fl_error_message(), "vendor 'bolt' is not allowed (allow_vendors: the thread's scope)");
  fl_scope_leave(&scope);
  ck_path(host, "worker", "acme.Worker");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P4_a_plugin_without_implementations_goes_by_the_platforms_name) {
  const char *const environment[] = {"VLLM_FL_DENY_VENDORS=cpu", NULL};
  fl_host *host = test_host(environment, 0);
  bring(host, "acme", NULL, "worker", "cpu", "acme.Worker");
  ck_no_path(host, "worker", FL_ENOENT);
  ck_contains(fl_error_message(), "vendor 'cpu' is denied");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_word_that_is_no_type_is_told_with_the_nearest) {
  fl_host *host = test_host(NULL, 0);
  ck_no_path(host, "wroker", FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "no plugin brings a class for 'wroker', expected \"attention_backend\", "
                                       "\"mla_attention_backend\", \"worker\" or \"model_runner\"; did you mean "
                                       "'worker'?");
  ck_no_path(host, "platform", FL_EINVAL);
  ck_no_path(host, "layer", FL_EINVAL);
  ck_no_path(host, "", FL_EINVAL);
  ck_no_path(host, NULL, FL_EINVAL);
  fl_host_destroy(host);
}
END_TEST

/* What the file says that it brings: FL_PLUGIN_OPS, and the platform. */
START_TEST(a_plugin_that_may_wait_brings_classes_for_its_platform_alone) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_stage_limit(stage, "relu2", NULL, NULL);
  ck_assert_int_eq(offer(stage, "worker", "cpu", "acme.Worker"), FL_EINVAL);
  ck_contains(fl_error_message(), "the host would not look for worker 'cpu' there; say so with FL_PLUGIN_PLATFORM");
  fl_stage_abort(stage, NULL);
  stage = fl_stage_begin(host, "acme", "", FL_PLUGIN_SKIP_REFUSED);
  fl_stage_limit(stage, "relu2", "cpu", NULL);
  ck_ok(offer(stage, "worker", "cpu", "acme.Worker"));
  ck_assert_int_eq(offer(stage, "worker", "acme", "acme.Worker"), FL_EINVAL);
  ck_contains(fl_error_message(), "brings ops and the platform 'cpu' alone");
  ck_ok(fl_stage_commit(stage, NULL));
  ck_path(host, "worker", "acme.Worker");
  fl_host_destroy(host);
}
END_TEST

/* A path that is found, and one that is not though somebody brings it elsewhere. */
START_TEST(an_answer_needs_memory_and_says_so) {
  int failed = 0;
  for (int i = -1, n = 0; i < n; i++) { /* at first none */
    const char *path, *none;
    fl_host *host = test_host(NULL, 0);
    bring(host, "acme", NULL, "worker", "cpu", "acme.Worker");
    bring(host, "bolt", NULL, "model_runner", "bolt", "bolt.Runner");
    allocations = 0;
    failing = i;
    fl_status found = fl_class_path(host, "worker", &path), missing = fl_class_path(host, "model_runner", &none);
    failing = -1;
    n = i < 0 ? allocations : n;
    failed += found != FL_OK;
    failed += missing != FL_ENOENT;
    ck_each(found ? found == FL_ENOMEM && !path : !strcmp(path, "acme.Worker"), "allocation %d: %s", i,
            fl_status_name(found));
    ck_each((missing == FL_ENOENT || missing == FL_ENOMEM) && !none, "allocation %d: %s", i, fl_status_name(missing));
    ck_path(host, "worker", "acme.Worker");
    ck_no_path(host, "model_runner", FL_ENOENT);
    fl_host_destroy(host);
  }
  ck_assert_int_ge(failed, 2);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, an_engine_is_handed_the_class_of_each_type, 0, N_TYPES);
  tcase_add_loop_test(tests, what_is_no_path_of_a_class_is_refused_in_words, 0, sizeof paths / sizeof *paths);
  tcase_add_test(tests, the_longest_path_is_taken_and_one_byte_more_is_not);
  tcase_add_loop_test(tests, a_row_that_is_wrong_is_refused_in_words, 0, sizeof rows / sizeof *rows);
  tcase_add_test(tests, R2_a_plugin_brings_one_of_a_type_for_a_platform);
  tcase_add_test(tests, R2_of_two_plugins_the_first_counts_also_after_others_have_gone);
  tcase_add_test(tests, a_class_for_another_platform_does_not_count_and_is_named);
  tcase_add_test(tests, P4_a_class_of_a_denied_vendor_is_left_out);
  tcase_add_test(tests, P4_the_scope_of_a_thread_lets_a_class_in_or_keeps_it_out);
  tcase_add_test(tests, P4_a_plugin_without_implementations_goes_by_the_platforms_name);
  tcase_add_test(tests, a_word_that_is_no_type_is_told_with_the_nearest);
  tcase_add_test(tests, an_answer_needs_memory_and_says_so);
  tcase_add_test(tests, a_plugin_that_may_wait_brings_classes_for_its_platform_alone);
}

int main(void) {
  return run_suite("classes", add_tests, 30);
}
