/* flhost verify, through the command itself: that it finds what is wrong, passes what is right, and reports both. */
#include "tests/scenario.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static void set_up(void) {
  mkdir(scratch("platforms"), 0755);
  mkdir(scratch("plugins"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_CONFIG_DIR=%s", scratch("platforms"));
  setting("VLLM_FL_PLATFORM=cpu");
}

static json_int_t number_at(const json_t *object, const char *key) {
  ck_assert_msg(json_is_integer(json_object_get(object, key)), "no integer at '%s'", key);
  return json_integer_value(json_object_get(object, key));
}

/* The list of tests in a JSON report. */
static json_t *tests_of(outcome run) {
  return json_object_get(parse_json(run.out, JSON_OBJECT), "tests");
}

/* A developer's build beside the installed one: what is named is what is tested. */
START_TEST(D1_the_module_that_is_named_is_verified_and_not_an_installed_one_of_its_name) {
  copy_built("tests/plugins/old/planted.so", "plugins");
  assert_quiet(FLHOST("verify", "--impl", "vendor.wrong", "planted"));
  setting("VLLM_FL_PLUGIN_MODULES=%s/tests/plugins/new/planted.so", build_dir());
  outcome run = FLHOST("verify", "--impl", "vendor.wrong", "planted");
  assert_status(run, 1);
  ck_assert_str_eq(run.err, "");
  assert_contains(run.out, "calls failed, the first: ");
}
END_TEST

/* --------------------------------------------------------------------------------------------------- planted errors */

/* Each is a plugin, build/tests/plugins/planted_NAME.so; `words` stand in what is said of it. */
static const struct {
  const char *name, *words[3];
} planted[] = {
    {"last_element", {"result 'out': 1 element differs from the reference, the worst at [", "the reference gives"}},
    {"behind_row", {"written outside result 'out': ", " behind ", "element ["}},
    {"overwrites_input", {"argument 'weight' was overwritten (element [0", "does not mark as mutable"}},
    {"overwrites_x", {"argument 'x' was overwritten (element [", "though the result is another tensor"}},
    {"ignores_stride", {"written outside result 'out': the gap between rows, ", " behind element ["}},
    {"ignores_offset", {"written outside result 'out': ", " before the first element"}},
    {"odd_sizes", {"result 'out': ", " differ", "the reference gives"}},
    {"drops_nan", {": 0, the reference gives nan", "with awkward values"}},
    {"in_place", {"result 'out': ", "out in place"}},
    {"forgets_weight", {"result 'out': ", "weight float32["}},
    {"other_threads", {"called from 4 threads at once: other bits", "declared deterministic", "result 'out' differs"}},
    {"other_bits", {"called twice with the same arguments, it gave different bits: result 'out'"}},
    {"enotsup_after_yes", {"returned FL_ENOTSUP, although its supports_args said", "planted: rows of 64 are too long"}},
    {"writes_before_enotsup",
     {"result 'out' was written (element [0", "before the implementation returned FL_ENOTSUP"}},
    {"fails", {"returned FL_EDEVICE: planted: too many rows"}},
    {"wrong_prepared", {"with prepared weights: result 'out'"}},
    {"prepares_behind", {"preparing weights, it returned FL_EINTERNAL: planted: vendor.wrong prepared more than the "}},
    {"fails_to_prepare", {"preparing weights, it returned FL_EDEVICE: planted: vendor.wrong cannot prepare weights: "}},
};
enum { N_PLANTED = sizeof planted / sizeof planted[0] };

START_TEST(a_planted_error_is_found_and_named) {
  char *plugin = NULL;
  ck_assert_int_gt(asprintf(&plugin, "tests/plugins/planted_%s.so", planted[_i].name), 0);
  copy_built(plugin, "plugins");
  free(plugin);
  outcome run = FLHOST("verify", "--json", "planted");
  assert_status(run, 1);
  json_t *tests = tests_of(run), *right = json_array_get(tests, 0), *wrong = json_array_get(tests, 1);
  ck_assert_uint_eq(json_array_size(tests), 2);
  ck_assert_str_eq(text_at(right, "impl_id"), "reference.right");
  ck_assert_str_eq(text_at(right, "status"), "ok");
  ck_assert_int_eq(number_at(right, "failures"), 0);
  ck_assert_str_eq(text_at(wrong, "impl_id"), "vendor.wrong");
  ck_assert_str_eq(text_at(wrong, "status"), "failed");
  ck_assert_int_gt(number_at(wrong, "failures"), 0);
  for (size_t i = 0; i < 3 && planted[_i].words[i]; i++)
    assert_contains(text_at(wrong, "problem"), planted[_i].words[i]);
  assert_contains(text_at(wrong, "problem"), "x float32[");
}
END_TEST

START_TEST(prepared_weights_that_are_right_pass_and_are_explained) {
  copy_built("tests/plugins/planted_prepares.so", "plugins");
  assert_quiet(FLHOST("verify", "planted"));
  outcome run = FLHOST("explain", "planted");
  assert_contains(run.out, "\nprepares weights (fl_prepare): vendor.wrong\n");
  const json_t *impls =
      json_object_get(parse_json(FLHOST("explain", "--json", "planted").out, JSON_OBJECT), "implementations");
  for (size_t i = 0; i < json_array_size(impls); i++) {
    const json_t *impl = json_array_get(impls, i);
    bool prepares = !strcmp(text_at(impl, "impl_id"), "vendor.wrong");
    ck_assert(json_is_boolean(json_object_get(impl, "prepares")));
    ck_assert_int_eq(json_is_true(json_object_get(impl, "prepares")), prepares);
  }
}
END_TEST

START_TEST(an_error_of_one_layout_or_size_does_not_spoil_all_calls) {
  copy_built("tests/plugins/planted_in_place.so", "plugins");
  const json_t *wrong = json_array_get(tests_of(FLHOST("verify", "--json", "planted")), 1);
  ck_assert_int_lt(number_at(wrong, "failures"), number_at(wrong, "calls"));
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- the report */

/* All ops, or (FLHOST_SAMPLE, see tests/suite.h) a few. */
START_TEST(the_cpu_plugin_passes_in_every_op_and_element_type) {
  size_t i;
  json_t *test;
  copy_built("plugins/cpu.so", "plugins");
  bool few = sample() > 1;
  outcome run = few ? FLHOST("verify", "--json", "silu_and_mul", "moe_sum") : FLHOST("verify", "--json", "--quick");
  assert_status(run, 0);
  json_t *tests = tests_of(run);
  ck_assert_uint_ge(json_array_size(tests), few ? 12 : 300);
  json_array_foreach(tests, i, test) {
    ck_assert_msg(!strcmp(text_at(test, "status"), "ok"), "%s, %s: %s", text_at(test, "op"), text_at(test, "impl_id"),
                  text_at(test, "status"));
    ck_assert_int_ge(number_at(test, "calls"), 20);
    if (number_at(test, "skipped_calls")) /* what the reference does not take is no test */
      ck_assert_str_eq(text_at(test, "impl_id"), "default.flagos");
  }
}
END_TEST

/* Sizes beyond the cases, edges of memory, repetitions, races. */
START_TEST(the_cpu_plugin_passes_all_there_is_to_find_out_about_it) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = sample() > 1 ? FLHOST("verify", "--json", "--dtype", "float32", "silu_and_mul")
                             : FLHOST("verify", "--json", "silu_and_mul", "rms_norm", "replicated_linear",
                                      "rotary_embedding", "topk_softmax", "causal_conv1d");
  assert_status(run, 0);
  ck_assert_int_gt(number_at(json_array_get(tests_of(run), 0), "calls"), 60);
}
END_TEST

START_TEST(the_table_tells_the_failure_and_sums_up) {
  copy_built("tests/plugins/planted_last_element.so", "plugins");
  outcome run = FLHOST("verify", "planted");
  assert_status(run, 1);
  assert_contains(run.out, "OP       IMPL             DTYPE    CALLS  MAX ERROR  OF ALLOWED  STATUS\n");
  assert_contains(run.out, "vendor.wrong");
  assert_contains(run.out, "calls failed, the first: result 'out': 1 element differs");
  assert_contains(run.out, "2 tests: 1 ok, 1 failed\n");
  ck_assert_str_eq(run.err, "");
}
END_TEST

START_TEST(the_worst_error_is_given_with_its_place_values_and_tolerance) {
  static const char *const keys[] = {"where", "share_of_tolerance", "got", "expected", "atol", "rtol", NULL};
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("verify", "--json", "--dtype", "bfloat16", "--impl", "default.flagos", "rms_norm");
  assert_status(run, 0);
  const json_t *tests = tests_of(run), *test = json_array_get(tests, 0), *worst = json_object_get(test, "worst");
  ck_assert_uint_eq(json_array_size(tests), 1);
  ck_assert_str_eq(text_at(test, "dtype"), "bfloat16");
  assert_keys(worst, keys);
  assert_contains(text_at(worst, "where"), "out[");
  double share = json_real_value(json_object_get(worst, "share_of_tolerance"));
  double error = json_real_value(json_object_get(worst, "got")) - json_real_value(json_object_get(worst, "expected"));
  double allowed = 1e-3 + 1.6e-2 * fabs(json_real_value(json_object_get(worst, "expected")));
  ck_assert_double_eq_tol(share, fabs(error) / allowed, 1e-12);
  ck_assert_double_gt(share, 0);
  ck_assert_double_le(share, 1);
}
END_TEST

/* Everything but the times. */
static char *report_without_times(const char *seed) {
  size_t i;
  json_t *test, *tests = tests_of(FLHOST("verify", "--json", "--seed", seed, "silu_and_mul"));
  json_array_foreach(tests, i, test) json_object_del(test, "seconds");
  return json_dumps(tests, JSON_SORT_KEYS);
}

START_TEST(a_seed_gives_the_same_calls_each_time_and_another_seed_others) {
  copy_built("plugins/cpu.so", "plugins");
  char *first = report_without_times("7"), *second = report_without_times("7"), *other = report_without_times("8");
  ck_assert_str_eq(first, second);
  ck_assert_str_ne(first, other);
  free(first);
  free(second);
  free(other);
}
END_TEST

/* Not after minutes of tests. */
/* Of this seed the first number makes no call of any element type. */
START_TEST(an_element_type_that_an_op_does_not_take_is_left_out_whatever_the_seed) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("verify", "--seed", "102", "--impl", "default.flagos", "--json", "conv2d");
  assert_status(run, 0);
  ck_assert_uint_eq(json_array_size(tests_of(run)), 3);
}
END_TEST

START_TEST(a_report_that_cannot_be_written_is_refused_at_once) {
  assert_refused_with(FLHOST("verify", "--junit", scratch("not/there.xml")),
                      "not/there.xml: No such file or directory");
  assert_refused_with(FLHOST("verify", "--junit", scratch("plugins")), "Is a directory");
}
END_TEST

START_TEST(element_types_have_short_names) {
  static const char *const names[][2] = {{"bf16", "bfloat16"}, {"half", "float16"}, {"fp32", "float32"}};
  copy_built("plugins/cpu.so", "plugins");
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    outcome run = FLHOST("verify", "--json", "--dtype", names[i][0], "--impl", "default.flagos", "silu_and_mul");
    assert_status(run, 0);
    json_t *tests = json_object_get(parse_json(run.out, JSON_OBJECT), "tests");
    ck_assert_str_eq(text_at(json_array_get(tests, 0), "dtype"), names[i][1]);
  }
}
END_TEST

static const char *report_of(const char *path) {
  static char report[1 << 16];
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  report[fread(report, 1, sizeof report - 1, file)] = 0;
  fclose(file);
  return report;
}

/* A driver's words, here those of the path: in GBK, with what XML takes for its own. */
START_TEST(junit_report_is_xml_whatever_the_words_of_a_vendor) {
  copy_built("plugins/cuda.so", "plugins");
  copy_built("plugins/cpu.so", "plugins");
  setting("FLHOST_CUDA_DRIVER=/nonexistent/\xd6\xd0\x1b<&\">\xe4\xb8\xad");
  assert_status(FLHOST("verify", "--junit", scratch("report.xml"), "--impl", "vendor.cuda", "relu2"), 3);
  assert_contains(report_of(scratch("report.xml")), "/nonexistent/\\xd6\\xd0\\x1b&#60;&#38;&#34;&#62;\xe4\xb8\xad: ");
}
END_TEST

START_TEST(junit_report_has_every_test) {
  copy_built("tests/plugins/planted_last_element.so", "plugins");
  assert_status(FLHOST("verify", "--junit", scratch("report.xml")), 1);
  const char *report = report_of(scratch("report.xml"));
  assert_contains(report, "<testsuite name=\"flhost verify\" tests=\"");
  assert_contains(report, "failures=\"1\"");
  assert_contains(report, "<testcase classname=\"planted\" name=\"reference.right float32\" time=\"");
  assert_contains(report, "<testcase classname=\"planted\" name=\"vendor.wrong float32\" time=\"");
  assert_contains(report, "<failure message=\"result 'out': 1 element differs");
  assert_contains(report, "</testsuite>\n");
  outcome run = FLHOST("verify", "--junit", scratch("no/such/report.xml"), "planted");
  assert_status(run, 2);
  assert_contains(run.err, "--junit: ");
}
END_TEST

/* ------------------------------------------------------------------------------------------ what cannot be verified */

START_TEST(an_unavailable_implementation_is_skipped_with_its_reason) {
  copy_built("tests/plugins/unavailable.so", "plugins");
  outcome run = FLHOST("verify", "--json");
  assert_status(run, 3);
  const json_t *test = json_array_get(tests_of(run), 0);
  ck_assert_str_eq(text_at(test, "status"), "skipped");
  assert_contains(text_at(test, "reason"), "not available: ");
}
END_TEST

START_TEST(calls_that_an_implementation_does_not_take_are_counted_with_the_reason) {
  copy_built("tests/plugins/planted_writes_before_enotsup.so", "plugins");
  const json_t *wrong = json_array_get(tests_of(FLHOST("verify", "--json", "planted")), 1);
  ck_assert_int_gt(number_at(wrong, "skipped_calls"), 0); /* those without rows: nothing was written */
  ck_assert_str_eq(text_at(wrong, "reason"), "planted: rows of 64 are too long");
}
END_TEST

START_TEST(nothing_to_verify_is_exit_status_3) {
  outcome run = FLHOST("verify");
  assert_status(run, 3);
  assert_contains(run.err, "nothing to verify");
  copy_built("plugins/cpu.so", "plugins");
  assert_status(FLHOST("verify", "--dtype", "int8", "silu_and_mul"), 3);
}
END_TEST

START_TEST(a_wrong_word_is_refused_with_the_nearest_right_one) {
  copy_built("plugins/cpu.so", "plugins");
  assert_refused_with(FLHOST("verify", "silu_and_mull"), "silu_and_mul");
  assert_refused_with(FLHOST("verify", "--impl", "default.flagoss"), "did you mean 'default.flagos'?");
  assert_refused_with(FLHOST("verify", "--dtype", "bfloat61"), "did you mean 'bfloat16'?");
  assert_refused_with(FLHOST("verify", "--seed", "one"), "--seed: 'one' is not a number");
  assert_refused_with(FLHOST("verify", "--seed", "-1"), "--seed: '-1' is not a number");
}
END_TEST

START_TEST(without_a_reference_there_is_nothing_to_compare_with) {
  copy_built("tests/plugins/failing.so", "plugins");
  outcome run = FLHOST("verify", "--json", "test_scale");
  assert_status(run, 3);
  const json_t *test = json_array_get(tests_of(run), 0);
  ck_assert_str_eq(text_at(test, "status"), "skipped");
  ck_assert_str_eq(text_at(test, "reason"), "no reference implementation of test_scale is available");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_test(tests, D1_the_module_that_is_named_is_verified_and_not_an_installed_one_of_its_name);
  tcase_add_loop_test(tests, a_planted_error_is_found_and_named, 0, N_PLANTED);
  tcase_add_test(tests, prepared_weights_that_are_right_pass_and_are_explained);
  tcase_add_test(tests, an_error_of_one_layout_or_size_does_not_spoil_all_calls);
  tcase_add_test(tests, the_cpu_plugin_passes_in_every_op_and_element_type);
  tcase_add_test(tests, the_cpu_plugin_passes_all_there_is_to_find_out_about_it);
  tcase_add_test(tests, the_table_tells_the_failure_and_sums_up);
  tcase_add_test(tests, the_worst_error_is_given_with_its_place_values_and_tolerance);
  tcase_add_test(tests, a_seed_gives_the_same_calls_each_time_and_another_seed_others);
  tcase_add_test(tests, an_element_type_that_an_op_does_not_take_is_left_out_whatever_the_seed);
  tcase_add_test(tests, a_report_that_cannot_be_written_is_refused_at_once);
  tcase_add_test(tests, element_types_have_short_names);
  tcase_add_test(tests, junit_report_is_xml_whatever_the_words_of_a_vendor);
  tcase_add_test(tests, junit_report_has_every_test);
  tcase_add_test(tests, an_unavailable_implementation_is_skipped_with_its_reason);
  tcase_add_test(tests, calls_that_an_implementation_does_not_take_are_counted_with_the_reason);
  tcase_add_test(tests, nothing_to_verify_is_exit_status_3);
  tcase_add_test(tests, a_wrong_word_is_refused_with_the_nearest_right_one);
  tcase_add_test(tests, without_a_reference_there_is_nothing_to_compare_with);
}

int main(void) {
  return run_suite("verify", add_tests, 120);
}
