/*
 * What one plugin registers is published as a whole or not at all (R3), also when memory runs out half-way, when there
 * are very many rows, and when the plugin goes on after it was asked.
 */
#include "core/registry.h"
#include "tests/allocations.h"
#include "tests/fixture.h"

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

/* -------------------------------------------------------------------------------------------------------- all or none
 */

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

static void add_tests(TCase *tests) {
  tcase_add_test(tests, R3_all_rows_or_none_are_there_whichever_allocation_fails);
  tcase_add_test(tests, R3_a_row_is_not_skipped_for_want_of_memory);
}

int main(void) {
  return run_suite("registration", add_tests, 60);
}
