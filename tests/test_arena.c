/*
 * Memory of what is given out: the arena itself, and what becomes of each function that makes a result when any one of
 * its allocations fails.
 */
#include "core/platform.h"
#include "core/plugins.h"
#include "core/support.h"
#include "tests/allocations.h"
#include "tests/fixture.h"

#include <stdint.h>

/* -------------------------------------------------------------------------------------------------------- the arena */

START_TEST(what_an_arena_gives_is_zeroed_aligned_and_apart) {
  fl_arena arena = {0};
  unsigned char *given[200];
  for (size_t i = 0; i < 200; i++) {
    ck_assert_str_eq(fl_arena_string(&arena, "odd"), "odd"); /* so that the next has to be aligned anew */
    given[i] = fl_arena_allocate(&arena, 3 * i);
    ck_each(given[i] && (uintptr_t)given[i] % _Alignof(max_align_t) == 0, "allocation %zu is at %p", i,
            (void *)given[i]);
    for (size_t j = 0; j < 3 * i; j++)
      ck_each(!given[i][j], "byte %zu of allocation %zu is not zero", j, i);
    memset(given[i], (int)i, 3 * i);
  }
  for (size_t i = 0; i < 200; i++)
    for (size_t j = 0; j < 3 * i; j++)
      ck_each(given[i][j] == i, "allocation %zu was written to by another", i);
  fl_arena_free(&arena);
  fl_arena_free(&arena);
}
END_TEST

START_TEST(an_arena_has_room_for_what_is_larger_than_its_blocks) {
  fl_arena arena = {0};
  char *large = fl_arena_allocate(&arena, 1 << 20);
  ck_assert_ptr_nonnull(large);
  memset(large, 1, 1 << 20);
  ck_assert_str_eq(fl_arena_format(&arena, "%*d", 20000, 7) + 19998, " 7");
  fl_arena_free(&arena);
}
END_TEST

START_TEST(copies_of_strings_are_their_own) {
  fl_arena arena = {0};
  fl_text text = {0};
  const char *const names[] = {"one", "two"};
  const char **copies = fl_arena_strings(&arena, names, 2);
  ck_assert_str_eq(copies[1], "two");
  ck_assert_ptr_ne(copies[1], names[1]);
  ck_assert_ptr_null(copies[2]);
  ck_assert_ptr_null(fl_arena_strings(&arena, NULL, 0)[0]);
  ck_assert_ptr_null(fl_arena_string(&arena, NULL));
  fl_text_add(&text, "three");
  ck_assert_str_eq(fl_arena_text(&arena, &text), "three");
  ck_assert_ptr_null(text.text);
  ck_assert_str_eq(fl_arena_text(&arena, &text), "");
  ck_assert_str_eq(fl_arena_format(&arena, "%s %d", "four", 5), "four 5");
  ck_assert(!arena.failed);
  fl_arena_free(&arena);
}
END_TEST

START_TEST(an_arena_that_failed_gives_nothing_more_and_stays_readable) {
  fl_arena arena = {0};
  ck_assert_ptr_nonnull(fl_arena_string(&arena, "before"));
  ck_assert_ptr_null(fl_arena_array(&arena, SIZE_MAX / 2, 4));
  ck_assert(arena.failed);
  ck_assert_str_eq(fl_arena_string(&arena, "after"), "");
  ck_assert_str_eq(fl_arena_format(&arena, "%d", 1), "");
  ck_assert_ptr_null(fl_arena_allocate(&arena, 1));
  fl_arena_free(&arena);
}
END_TEST

START_TEST(a_text_that_failed_fails_its_arena) {
  fl_arena arena = {0};
  fl_text text = {.failed = true};
  ck_assert_str_eq(fl_arena_text(&arena, &text), "");
  ck_assert(arena.failed);
  fl_arena_free(&arena);
}
END_TEST

START_TEST(an_object_that_ran_out_of_memory_is_not_given_out) {
  fl_arena *arena;
  int *object = fl_arena_create(sizeof *object, &arena);
  ck_assert_int_eq(*object, 0);
  ck_ok(fl_arena_finish(object, sizeof *object));
  ck_assert_ptr_null(fl_arena_array(arena, SIZE_MAX, 1));
  ck_assert_int_eq(fl_arena_finish(object, sizeof *object), FL_ENOMEM);
  fl_arena_destroy(NULL, 0);
}
END_TEST

/* --------------------------------------------------------------------------------------- each allocation fails once */

static fl_host *host;
static fl_policy *policy;

static fl_status make_settings(void) {
  fl_settings *made = NULL;
  fl_status status = fl_get_settings(host, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_settings_free(made);
  return status;
}

static fl_status make_snapshot(void) {
  fl_snapshot *made = fl_registry_snapshot(host);
  fl_snapshot_release(made);
  return made ? FL_OK : fl_error_status();
}

static fl_status make_explanation(void) {
  fl_explanation *made = NULL;
  fl_status status = fl_explain(host, "silu_and_mul", kDLCPU, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_explanation_free(made);
  return status;
}

static fl_status make_manifest(void) {
  fl_manifest *made = NULL;
  fl_status status = fl_get_manifest(host, kDLCPU, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_manifest_free(made);
  return status;
}

static fl_status make_plugins(void) {
  fl_plugins *made = NULL;
  fl_status status = fl_get_discovered_plugins(host, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_plugins_free(made);
  return status;
}

static fl_status make_failed_impls(void) {
  fl_failed_impls *made = NULL;
  fl_status status = fl_get_failed_impls(host, NULL, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_failed_impls_free(made);
  return status;
}

static fl_status make_record(void) {
  char path[1024];
  fl_loader loader;
  fl_note_info info;
  fl_plugin_record record;
  snprintf(path, sizeof path, "%s/tests/plugins/good.so", build_dir());
  fl_file file = fl_file_look(path);
  fl_loader_begin(&loader, host, &host->log);
  fl_status status = fl_loader_judge(&loader, path, &file, &record, &info);
  ck_each(!status == (record.file != NULL), "%s, and a record", fl_status_name(status));
  fl_note_clear(&info);
  fl_plugin_record_clear(&record);
  fl_loader_end(&loader);
  return status;
}

static fl_status make_report(void) {
  fl_platform_kind kinds[] = {
      {.name = "cpu", .title = "CPU", .device_type = kDLCPU},
      {.name = "acme", .title = "Acme", .plugin = "acme", .is_described = true, .kernel = {"/nonexistent"}},
      {0}};
  kinds[1].nodes[0] = "/nonexistent/node";
  kinds[1].nodes[1] = NULL;
  kinds[1].driver.libraries[0] = "libflhost_no_such_driver.so.1";
  fl_platform_report *made = NULL;
  fl_status status = fl_platform_report_create(kinds, "cpu", "detected", NULL, NULL, 0, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_platform_report_free(made);
  return status;
}

static fl_status make_policy(void) {
  static const char *const vendors[] = {"b", "a", "b"}, *const tokens[] = {"vendor", "reference"};
  static const fl_op_order orders[] = {{"b", tokens, 2}, {"a", tokens, 1}, {"b", tokens, 1}};
  const fl_policy_fields fields = {.size = sizeof fields,
                                   .per_op = orders,
                                   .per_op_size = sizeof(fl_op_order),
                                   .n_per_op = 3,
                                   .deny_vendors = vendors,
                                   .n_deny_vendors = 3,
                                   .allow_vendors = vendors,
                                   .n_allow_vendors = 1};
  fl_policy *made = NULL;
  fl_status status = fl_policy_create(&fields, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_policy_release(made);
  return status;
}

static fl_status make_denying_policy(void) {
  static const char *const vendors[] = {"c"};
  fl_policy *made = NULL;
  fl_status status = fl_policy_with_denied_vendors(policy, vendors, 1, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_policy_release(made);
  return status;
}

static fl_status make_ordering_policy(void) {
  static const char *const tokens[] = {"vendor"};
  fl_policy *made = NULL;
  fl_status status = fl_policy_with_op_order(policy, "rms_norm", tokens, 1, &made);
  ck_each(!status == (made != NULL), "%s, and an object", fl_status_name(status));
  fl_policy_release(made);
  return status;
}

static const struct {
  const char *what;
  fl_status (*make)(void);
} makers[] = {
    {"settings", make_settings},
    {"snapshot", make_snapshot},
    {"explanation", make_explanation},
    {"manifest", make_manifest},
    {"plugins", make_plugins},
    {"failed implementations", make_failed_impls},
    {"record of a plugin", make_record},
    {"platform report", make_report},
    {"policy", make_policy},
    {"policy with denied vendors", make_denying_policy},
    {"policy with an order", make_ordering_policy},
};
enum { N_MAKERS = sizeof makers / sizeof *makers };

static void set_up(void) {
  test_impl broken = {.id = "vendor.broken", .status = FL_EDEVICE}, good = {.id = "reference.good"};
  static test_impl kept[2];
  const char *result;
  kept[0] = broken, kept[1] = good;
  setenv("HWLOC_COMPONENTS", "no_os,stop", 1); /* a machine without devices */
  host = test_host((const char *const[]){"VLLM_FL_PER_OP=silu_and_mul=vendor|reference", NULL}, FL_HOST_NO_PLUGINS);
  test_op(host, "op");
  test_register(host, "op", &kept[0], 0, false);
  test_register(host, "op", &kept[1], 0, false);
  ck_ok(test_call(host, "op", &result));
  policy = fl_get_policy(host);
}

START_TEST(an_allocation_that_fails_is_told_and_leaves_nothing_behind) {
  ck_assert_msg(!makers[_i].make(), "%s: %s", makers[_i].what, fl_error_message()); /* what is made once is there */
  allocations = 0;
  fl_status status = makers[_i].make();
  int n = allocations; /* assertions allocate, too */
  ck_ok(status);
  ck_assert_int_gt(n, 0);
  for (int i = 0; i < n; i++) {
    allocations = 0;
    failing = i;
    status = makers[_i].make();
    failing = -1;
    ck_each(status == FL_ENOMEM && strstr(fl_error_message(), "out of memory"), "%s, allocation %d of %d: %s, '%s'",
            makers[_i].what, i, n, fl_status_name(status), fl_error_message());
  }
  ck_assert_msg(!makers[_i].make(), "%s: %s", makers[_i].what, fl_error_message());
  fl_policy_release(policy);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, what_an_arena_gives_is_zeroed_aligned_and_apart);
  tcase_add_test(tests, an_arena_has_room_for_what_is_larger_than_its_blocks);
  tcase_add_test(tests, copies_of_strings_are_their_own);
  tcase_add_test(tests, an_arena_that_failed_gives_nothing_more_and_stays_readable);
  tcase_add_test(tests, a_text_that_failed_fails_its_arena);
  tcase_add_test(tests, an_object_that_ran_out_of_memory_is_not_given_out);
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_loop_test(tests, an_allocation_that_fails_is_told_and_leaves_nothing_behind, 0, N_MAKERS);
}

int main(void) {
  return run_suite("arena", add_tests, 30);
}
