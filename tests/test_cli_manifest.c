/* Scenarios through `flhost manifest`: the key of a compile cache, as a script takes it. */
#include "tests/scenario.h"

#include <unistd.h>

static json_t *manifest(void) {
  outcome run = FLHOST("manifest", "--json");
  assert_quiet(run);
  return parse_json(run.out, JSON_OBJECT);
}

static const char *digest(void) {
  return text_at(manifest(), "sha256");
}

START_TEST(json_has_the_promised_keys) {
  static const char *const keys[] = {"library",  "device",  "policy", "sha256", "problem",
                                     "resolved", "without", "rows",   NULL},
                           *const row_keys[] = {"op",     "place",   "impl_id",  "kind", "vendor",
                                                "plugin", "version", "build_id", NULL};
  json_t *whole = manifest(), *rows = json_object_get(whole, "rows"), *row;
  size_t index;
  json_int_t ops = 0;
  assert_keys(whole, keys);
  ck_assert_str_eq(text_at(whole, "device"), "cpu");
  ck_assert_str_eq(text_at(whole, "policy"), "prefer=flagos;st=0");
  ck_assert_uint_eq(strspn(text_at(whole, "sha256"), "0123456789abcdef"), 64);
  ck_assert(json_is_null(json_object_get(whole, "problem")));
  ck_assert_uint_gt(json_array_size(rows), 10);
  json_array_foreach(rows, index, row) {
    assert_keys(row, row_keys);
    ops += !json_integer_value(json_object_get(row, "place"));
  }
  ck_assert_int_eq(json_integer_value(json_object_get(whole, "resolved")), ops);
  row = entry_of(rows, "op", "silu_and_mul");
  ck_assert_str_eq(text_at(row, "impl_id"), "default.flagos");
  ck_assert_str_eq(text_at(row, "kind"), "flagos");
  ck_assert_str_eq(text_at(row, "plugin"), "cpu");
  ck_assert(json_is_null(json_object_get(row, "vendor")));
  ck_assert_uint_ge(strlen(text_at(row, "build_id")), 16);
}
END_TEST

/* What the manual page promises: another program makes the digest again. (Under valgrind, which has not all of the
 * machine's instructions, the shell's command runs without it: the digest knows that the kernels are others.) */
START_TEST(sha256sum_of_the_text_is_the_digest) {
  char command[4096], sum[65] = "";
  setting("VLLM_FL_CPU_ISA=baseline");
  snprintf(command, sizeof command,
           "VLLM_FL_PLUGIN_PATH='%s' VLLM_FL_CONFIG_DIR='%s' VLLM_FL_PLATFORM=cpu VLLM_FL_CPU_ISA=baseline "
           "%s/flhost manifest --text | sha256sum",
           scratch("plugins"), scratch("platforms"), build_dir());
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  ck_assert_int_eq(fscanf(pipe, "%64s", sum), 1);
  ck_assert_int_eq(pclose(pipe), 0);
  ck_assert_str_eq(sum, digest());
}
END_TEST

START_TEST(the_table_lists_who_runs_what) {
  setting("VLLM_FL_PREFER=vendor");
  outcome run = FLHOST("manifest");
  assert_quiet(run);
  assert_contains(run.out, "OP ");
  assert_contains(run.out, "vendor.bolt");
  assert_contains(run.out, "two_vendors");
  assert_contains(run.out, "2.1");
  assert_contains(run.out, "prefer=vendor;st=0");
  assert_contains(run.out, digest());
  assert_lacks(run.out, "without:");
}
END_TEST

START_TEST(the_same_plugins_in_another_place_give_the_same_digest) {
  setting("VLLM_FL_PREFER=vendor"); /* so that calls reach both */
  const char *before = digest();
  copy_built("tests/plugins/two_vendors.so", "other"); /* loaded the other way round */
  copy_built("plugins/cpu.so", "another");
  setting("VLLM_FL_PLUGIN_PATH=%s:%s", scratch("other"), scratch("another"));
  ck_assert_str_eq(digest(), before);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("another"));
  ck_assert_str_ne(digest(), before);
}
END_TEST

START_TEST(a_setting_gives_another_digest) {
  const char *before = digest();
  setting("VLLM_FL_DENY_VENDORS=bolt");
  ck_assert_str_ne(digest(), before);
}
END_TEST

START_TEST(a_plugin_that_no_call_reaches_leaves_the_digest) {
  const char *before = digest();
  ck_assert_int_eq(unlink(scratch("plugins/two_vendors.so")), 0);
  ck_assert_str_eq(digest(), before);
}
END_TEST

START_TEST(it_is_of_one_device_type) {
  outcome run = FLHOST("manifest", "--device=cuda", "--json");
  assert_quiet(run);
  json_t *whole = parse_json(run.out, JSON_OBJECT), *row = entry_of(json_object_get(whole, "rows"), "op", "acme_scale");
  ck_assert_str_eq(text_at(whole, "device"), "cuda");
  ck_assert_str_eq(text_at(row, "impl_id"), "vendor.acme");
  ck_assert_uint_eq(json_array_size(json_object_get(whole, "without")), 0);
}
END_TEST

START_TEST(an_op_of_which_nothing_may_run_is_named) {
  setting("VLLM_FL_PER_OP=silu_and_mul=flagos");
  setting("VLLM_FL_FLAGOS_BLACKLIST=silu_and_mul");
  json_t *without = json_object_get(manifest(), "without");
  ck_assert_uint_eq(json_array_size(without), 1);
  ck_assert_str_eq(json_string_value(json_array_get(without, 0)), "silu_and_mul");
  assert_contains(FLHOST("manifest").out,
                  "silu_and_mul: none of its implementations may run; 'flhost explain silu_and_mul' says why");
  setting("VLLM_FL_PER_OP=acme_scale=impl:nobody");
  assert_contains(FLHOST("manifest", "--device=cuda").out, "'flhost explain --device cuda acme_scale' says why");
}
END_TEST

START_TEST(exit_status_3_where_nothing_runs) {
  ck_assert_int_eq(unlink(scratch("plugins/cpu.so")), 0);
  outcome run = FLHOST("manifest", "--device", "rocm", "--json");
  assert_status(run, 3);
  ck_assert_str_eq(run.err, "flhost: no operator has an implementation that may run on rocm\n");
  ck_assert_uint_eq(json_array_size(json_object_get(parse_json(run.out, JSON_OBJECT), "rows")), 0);
}
END_TEST

START_TEST(exit_status_1_where_nothing_tells_builds_apart) {
  copy_built("tests/plugins/good_anonymous.so", "plugins");
  outcome run = FLHOST("manifest", "--json");
  assert_status(run, 1);
  assert_contains(run.err, "flhost: no digest: plugin 'good' of 'vendor.good' has no build id: link it with");
  json_t *whole = parse_json(run.out, JSON_OBJECT);
  ck_assert(json_is_null(json_object_get(whole, "sha256")));
  assert_contains(text_at(whole, "problem"), "has no build id");
  ck_assert(json_is_null(json_object_get(entry_of(json_object_get(whole, "rows"), "plugin", "good"), "build_id")));
  run = FLHOST("manifest");
  assert_status(run, 1);
  assert_contains(run.out, "sha256:    -\n");
}
END_TEST

START_TEST(text_and_json_exclude_each_other) {
  outcome run = FLHOST("manifest", "--text", "--json");
  assert_refused(run);
  assert_contains(run.err, "--text and --json exclude each other");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, begin_scenario, end_scenario);
  tcase_add_test(tests, json_has_the_promised_keys);
  tcase_add_test(tests, sha256sum_of_the_text_is_the_digest);
  tcase_add_test(tests, the_table_lists_who_runs_what);
  tcase_add_test(tests, the_same_plugins_in_another_place_give_the_same_digest);
  tcase_add_test(tests, a_setting_gives_another_digest);
  tcase_add_test(tests, a_plugin_that_no_call_reaches_leaves_the_digest);
  tcase_add_test(tests, it_is_of_one_device_type);
  tcase_add_test(tests, an_op_of_which_nothing_may_run_is_named);
  tcase_add_test(tests, exit_status_3_where_nothing_runs);
  tcase_add_test(tests, exit_status_1_where_nothing_tells_builds_apart);
  tcase_add_test(tests, text_and_json_exclude_each_other);
}

int main(void) {
  return run_suite("cli_manifest", add_tests, 60);
}
