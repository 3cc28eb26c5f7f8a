/*
 * What one plugin registers is published as a whole or not at all (R3), also when memory runs out half-way, when there
 * are very many rows, and when the plugin goes on after it was asked.
 */
#include "core/registry.h"
#include "tests/allocations.h"
#include "tests/fixture.h"
#include "tests/scratch.h"

#include <time.h>

static fl_status kernel(void *self, fl_call *call) {
  (void)self;
  (void)call;
  return FL_OK;
}

static fl_impl impl_of(const char *op, const char *id) {
  return (fl_impl){.size = sizeof(fl_impl),
                   .op_name = op,
                   .impl_id = id,
                   .kind = FL_KIND_VENDOR,
                   .vendor = "acme",
                   .devices = FL_DEVICE(kDLCPU),
                   .fn = kernel};
}

static bool is_active(void *self, const char **reason) {
  (void)self;
  (void)reason;
  return false;
}

/* ------------------------------------------------------------------------------------------------------ all or none */

enum { N_ROWS = 7 };

/* A bit of every kind of thing that a plugin may bring. Returns how many rows were taken. */
static int register_all(fl_registry *registry) {
  static const fl_platform platform = {.size = sizeof platform, .device_type = kDLExtDev, .is_active = is_active};
  const fl_op_def fresh = {
      .size = sizeof fresh, .schema = "acme_op(Tensor x, str s=\"a\") -> Tensor", .layers = "AcmeLayer"};
  const fl_component components[] = {
      {.size = sizeof(fl_component), .type = "platform", .name = "acme", .functions = &platform},
      {.size = sizeof(fl_component), .type = "layer", .name = "OtherLayer", .functions = "acme_op"}};
  const fl_impl impls[] = {impl_of("acme_op", "vendor.acme"), impl_of("acme_op", "vendor.acme.fast"),
                           impl_of("silu_and_mul", "vendor.acme"), impl_of("silu_and_mul", "vendor.acme.fast")};
  int taken = !registry->register_op(registry, &fresh);
  for (size_t i = 0; i < sizeof impls / sizeof *impls; i++)
    taken += !registry->register_impl(registry, &impls[i]);
  for (size_t i = 0; i < sizeof components / sizeof *components; i++)
    taken += !registry->register_component(registry, &components[i]);
  return taken;
}

/* How much of it a host has. */
static int published(fl_host *host) {
  int n = 0;
  fl_layers layers = {.host = host};
  fl_layer layer;
  pthread_mutex_lock(&host->lock);
  const fl_op *fresh = fl_registry_known(host, "acme_op"), *known = fl_registry_known(host, "silu_and_mul");
  n += fresh != NULL;
  n += fresh && fl_registry_find_impl(fresh, "vendor.acme");
  n += fresh && fl_registry_find_impl(fresh, "vendor.acme.fast");
  n += fl_registry_find_impl(known, "vendor.acme") != NULL;
  n += fl_registry_find_impl(known, "vendor.acme.fast") != NULL;
  for (uint32_t i = 0; i < host->n_components; i++)
    n += !host->components[i].op;
  while (fl_layers_next(&layers, &layer))
    n += !strcmp(layer.plugin, "acme");
  pthread_mutex_unlock(&host->lock);
  return n;
}

/* With the layer of the op's entry there is one thing more than rows. */
enum { ALL = N_ROWS + 1 };

/* One attempt, in which an allocation fails. */
static fl_status attempt(fl_host *host, uint32_t flags, int *taken) {
  *taken = 0;
  fl_stage *stage = fl_stage_begin(host, "acme", "", flags);
  if (!stage)
    return fl_error_no_memory();
  *taken = register_all(fl_stage_table(stage));
  return fl_stage_commit(stage, NULL);
}

/* flags: FL_PLUGIN_SKIP_REFUSED does not make memory that is missing a reason to skip a row. */
static void fail_each_allocation(uint32_t flags) {
  int taken, failed = 0;
  for (int i = -1, n = 0; i < n; i++) { /* at first none */
    fl_host *host = test_host(NULL, 0);
    ck_assert_ptr_nonnull(fl_find_op(host, "silu_and_mul"));
    allocations = 0;
    failing = i;
    fl_status status = attempt(host, flags, &taken);
    failing = -1;
    n = i < 0 ? allocations : n;
    failed += status != FL_OK;
    ck_each(status || taken == N_ROWS, "allocation %d: well, with %d rows of %d", i, taken, N_ROWS);
    ck_each(!status || status == FL_ENOMEM, "allocation %d: %s, expected FL_ENOMEM", i, fl_status_name(status));
    ck_each(!status || strstr(fl_error_message(), "out of memory"), "allocation %d: '%s'", i, fl_error_message());
    ck_each(published(host) == (status ? 0 : ALL), "allocation %d: %s, and %d of %d are there", i,
            fl_status_name(status), published(host), ALL);
    ck_each(!status || !attempt(host, flags, &taken), "allocation %d: a second time: %s", i, fl_error_message());
    ck_each(published(host) == ALL, "allocation %d: %d of %d at last", i, published(host), ALL);
    fl_host_destroy(host);
  }
  ck_assert_int_gt(failed, 20);
}

START_TEST(R3_all_rows_or_none_are_there_whichever_allocation_fails) {
  fail_each_allocation(0);
}
END_TEST

START_TEST(R3_a_row_is_not_skipped_for_want_of_memory) {
  fail_each_allocation(FL_PLUGIN_SKIP_REFUSED);
}
END_TEST

/* Through the file: what is recorded says why, and a later attempt may load it. */
START_TEST(R3_a_plugin_that_found_no_memory_says_so_and_loads_later) {
  char path[1024];
  snprintf(path, sizeof path, "%s/tests/plugins/good.so", build_dir());
  int failed = 0;
  for (int i = -1, n = 0; i < n; i++) { /* at first none */
    fl_host *host = test_host(NULL, 0);
    allocations = 0;
    failing = i;
    fl_status status = fl_load_plugin(host, path);
    failing = -1;
    n = i < 0 ? allocations : n;
    failed += status != FL_OK;
    pthread_mutex_lock(&host->lock);
    const fl_op *op = fl_registry_known(host, "test_scale");
    const fl_impl_set *set = op ? atomic_load(&op->impls) : NULL;
    ck_each((op != NULL) == !status && (set ? set->n : 0) == (status ? 0 : 2), "allocation %d: %s, op %d, %u rows", i,
            fl_status_name(status), op != NULL, set ? set->n : 0);
    for (uint32_t p = 0; status && p < host->n_plugins; p++) {
      ck_each(strstr(host->plugins[p].reason, "out of memory"), "allocation %d: reason '%s'", i,
              host->plugins[p].reason);
    }
    pthread_mutex_unlock(&host->lock);
    if (status) {
      ck_each(strstr(fl_error_message(), "out of memory"), "allocation %d: '%s'", i, fl_error_message());
      ck_assert_msg(!fl_load_plugin(host, path), "allocation %d: a second time: %s", i, fl_error_message());
    }
    fl_host_destroy(host);
  }
  ck_assert_int_gt(failed, 20);
}
END_TEST

/* Through a directory, as a host is created: it fails, or the plugin is there, or is said to be missing and why. */
START_TEST(R3_a_plugin_that_found_no_memory_is_not_passed_over_in_silence) {
  const char *const environment[] = {"VLLM_FL_LOG_LEVEL=INFO", NULL};
  int failed = 0;
  scratch_make();
  ck_assert_int_eq(mkdir(in_scratch("plugins"), 0755), 0);
  copy_to_scratch(built("tests/plugins/good.so"), "plugins/good.so");
  const fl_host_options options = {
      .size = sizeof options,
      .environment = environment,
      .config_dir = "/nonexistent",
      .platform = "cpu",
      .plugin_path = in_scratch("plugins"),
      .log = test_log_capture,
      .log_user = &test_log,
  };
  for (int i = -1, n = 0; i < n; i++) {
    fl_host *host = NULL;
    test_log_clear();
    allocations = 0;
    failing = i;
    fl_status status = fl_host_create(&options, &host);
    failing = -1;
    n = i < 0 ? allocations : n;
    failed += status != FL_OK;
    ck_each(!status || strstr(fl_error_message(), "out of memory"), "allocation %d: %s '%s'", i, fl_status_name(status),
            fl_error_message());
    if (status)
      continue;
    bool there = fl_find_op(host, "test_scale") != NULL;
    ck_each(there || strstr(test_log.text, "good"), "allocation %d: the plugin is missing without a word", i);
    ck_each(!fl_discover_plugins(host, NULL) && fl_find_op(host, "test_scale"), "allocation %d: not found later: %s", i,
            fl_error_message());
    fl_host_destroy(host);
  }
  ck_assert_int_gt(failed, 20);
  scratch_remove();
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- very many */

/* Processor time of registering so many implementations of one op. */
static double time_of(int n) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  clock_t start = clock();
  for (int i = 0; i < n; i++) {
    char id[32];
    snprintf(id, sizeof id, "vendor.acme.%d", i);
    const fl_impl impl = impl_of("silu_and_mul", id);
    ck_each(!registry->register_impl(registry, &impl), "row %d: %s", i, fl_error_message());
  }
  ck_ok(fl_stage_commit(stage, NULL));
  double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
  fl_host_destroy(host);
  return seconds;
}

START_TEST(eight_times_as_many_rows_take_about_eight_times_as_long) {
  int n = rounds(10000);
  double few = time_of(n), many = time_of(8 * n);
  ck_assert_msg(many < 24 * few + 0.2, "%d rows: %g s, %d rows: %g s", n, few, 8 * n, many);
}
END_TEST

START_TEST(a_row_that_is_there_twice_is_found_among_very_many) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", FL_PLUGIN_SKIP_REFUSED);
  fl_registry *registry = fl_stage_table(stage);
  int n = rounds(5000);
  for (int i = 0; i < 2 * n; i++) {
    char id[32];
    snprintf(id, sizeof id, "vendor.acme.%d", i % n);
    const fl_impl impl = impl_of("silu_and_mul", id);
    ck_each(registry->register_impl(registry, &impl) == (i < n ? FL_OK : FL_EEXIST), "row %d", i);
  }
  fl_committed committed = {0};
  ck_ok(fl_stage_commit(stage, &committed));
  ck_assert_uint_eq(committed.impls, n);
  fl_text_free(&committed.remark);
  fl_host_destroy(host);
}
END_TEST

START_TEST(of_a_thousand_refused_rows_a_few_are_named_and_all_are_counted) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=WARNING", NULL}, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  test_log_clear();
  for (int i = 0; i < 1000; i++) {
    const fl_impl impl = impl_of("rms_nrom", "vendor.acme");
    ck_each(registry->register_impl(registry, &impl) == FL_ENOENT, "row %d", i);
  }
  ck_assert_int_eq(fl_stage_commit(stage, NULL), FL_EPLUGIN);
  ck_contains(fl_error_message(), "refused rows, so nothing of it is registered:\nimpl 'vendor.acme' of op 'rms_nrom'");
  ck_contains(fl_error_message(), "\n… and 992 more");
  ck_contains(test_log.text, "WARNING plugin acme: refused 992 more rows\n");
  ck_assert_uint_lt(strlen(test_log.text), 2048);
  fl_host_destroy(host);
}
END_TEST

START_TEST(what_a_plugin_tells_without_end_is_kept_up_to_a_limit) {
  fl_text reason = {0};
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  char *words = malloc(1 << 20);
  memset(words, 'x', (1 << 20) - 1);
  words[(1 << 20) - 1] = 0;
  for (int i = 0; i < 1000; i++)
    registry->error(registry, words);
  fl_stage_abort(stage, &reason);
  ck_assert_uint_ge(reason.length, 4096);
  ck_assert_uint_lt(reason.length, 8192);
  fl_text_free(&reason);
  free(words);
  fl_host_destroy(host);
}
END_TEST

START_TEST(more_components_than_anybody_needs_are_refused) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  fl_status status = FL_OK;
  int n = 0;
  for (; n < 20000 && !status; n++) {
    char name[32];
    snprintf(name, sizeof name, "Layer%d", n);
    const fl_component layer = {.size = sizeof layer, .type = "layer", .name = name, .functions = "silu_and_mul"};
    status = registry->register_component(registry, &layer);
  }
  ck_assert_int_eq(status, FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "more than 1024 components of one plugin");
  ck_assert_int_eq(n, 1025);
  fl_stage_abort(stage, NULL);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- too late */

START_TEST(a_plugin_that_keeps_its_registry_hears_that_it_is_too_late) {
  fl_host *host = test_host(NULL, 0);
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  const fl_impl impl = impl_of("silu_and_mul", "vendor.acme");
  const fl_op_def op = {.size = sizeof op, .schema = "late() -> str"};
  const fl_component layer = {.size = sizeof layer, .type = "layer", .name = "Late", .functions = "silu_and_mul"};
  ck_assert_int_eq(register_all(registry), N_ROWS);
  ck_ok(fl_stage_commit(stage, NULL));
  ck_assert_int_eq(registry->register_impl(registry, &impl), FL_ESTATE);
  ck_assert_str_eq(fl_error_message(), "plugin 'acme' called register_impl after its register_builtins had returned: "
                                       "rows are taken only meanwhile");
  ck_assert_int_eq(registry->register_op(registry, &op), FL_ESTATE);
  ck_assert_int_eq(registry->register_component(registry, &layer), FL_ESTATE);
  test_log_clear();
  registry->error(registry, "too late");
  registry->log(registry, FL_LOG_INFO, "still here");
  ck_assert_str_eq(test_log.text, "WARNING plugin acme: too late\nINFO plugin acme: still here\n");
  ck_assert_int_eq(published(host), ALL);
  stage = fl_stage_begin(host, "acme", "", 0); /* again: what was kept is what is handed out */
  ck_assert_ptr_eq(fl_stage_table(stage), registry);
  fl_stage_abort(stage, NULL);
  ck_assert_int_eq(registry->register_op(registry, &op), FL_ESTATE);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, R3_all_rows_or_none_are_there_whichever_allocation_fails);
  tcase_add_test(tests, R3_a_row_is_not_skipped_for_want_of_memory);
  tcase_add_test(tests, R3_a_plugin_that_found_no_memory_says_so_and_loads_later);
  tcase_add_test(tests, R3_a_plugin_that_found_no_memory_is_not_passed_over_in_silence);
  tcase_add_test(tests, eight_times_as_many_rows_take_about_eight_times_as_long);
  tcase_add_test(tests, a_row_that_is_there_twice_is_found_among_very_many);
  tcase_add_test(tests, of_a_thousand_refused_rows_a_few_are_named_and_all_are_counted);
  tcase_add_test(tests, what_a_plugin_tells_without_end_is_kept_up_to_a_limit);
  tcase_add_test(tests, more_components_than_anybody_needs_are_refused);
  tcase_add_test(tests, a_plugin_that_keeps_its_registry_hears_that_it_is_too_late);
}

int main(void) {
  return run_suite("registration", add_tests, 60);
}
