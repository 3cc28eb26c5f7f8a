/* What the command says of an Ascend device, through the stand-in. */
#include "tests/scenario.h"

#include <limits.h>
#include <stdlib.h>

static void set_up(void) {
  char build[PATH_MAX];
  begin_scenario();
  copy_built("plugins/ascend.so", "plugins");
  ck_assert_ptr_nonnull(realpath(build_dir(), build));
  setting("VLLM_FL_PLATFORM=");
  setting("VLLM_FL_CONFIG_DIR=%s/config", build);
  setting("ASCEND_HOME_PATH=%s/tests/drivers/ascend", build);
  setting("FLHOST_ASCEND_NODE=/dev/null");
}

START_TEST(platform_counts_the_devices_of_the_plugin) {
  outcome run = FLHOST("platform", "--json");
  assert_status(run, 0);
  json_t *report = parse_json(run.out, JSON_OBJECT);
  ck_assert_str_eq(text_at(report, "active"), "ascend");
  assert_contains(text_at(report, "config_file"), "/config/ascend.yaml");
  const json_t *ascend = entry_of(json_object_get(report, "platforms"), "name", "ascend");
  assert_contains(text_at(ascend, "diagnosis"), "plugin 'ascend' reports 2 devices");
  outcome table = FLHOST("platform");
  assert_contains(table.out, "ascend:1");
  assert_contains(table.out, "1.17.0 (a stand-in of the tests)  Ascend910B3 (a stand-in of the tests)");
}
END_TEST

START_TEST(a_driver_that_does_not_start_has_no_devices) {
  setting("FLHOST_STAND_IN=aclInit=507899");
  outcome run = FLHOST("platform", "--json");
  assert_status(run, 0);
  const json_t *platforms = json_object_get(parse_json(run.out, JSON_OBJECT), "platforms");
  assert_lacks(text_at(entry_of(platforms, "name", "ascend"), "diagnosis"), "reports");
}
END_TEST

START_TEST(a_driver_that_does_not_count_its_devices_has_a_reason) {
  setting("FLHOST_STAND_IN=aclrtGetDeviceCount=507899,words=EL0003: the driver is not of this release");
  outcome run = FLHOST("platform", "--json");
  assert_status(run, 0);
  const json_t *platforms = json_object_get(parse_json(run.out, JSON_OBJECT), "platforms");
  assert_contains(
      text_at(entry_of(platforms, "name", "ascend"), "diagnosis"),
      "plugin 'ascend' says that it is active; aclrtGetDeviceCount returned 507899 (the device or its driver "
      "failed): EL0003: the driver is not of this release");
}
END_TEST

START_TEST(the_plugin_serves_tensors_of_the_device_and_no_others) {
  assert_contains(FLHOST("explain", "--device", "ascend", "rms_norm").out, "vendor.ascend");
  assert_contains(FLHOST("resolve", "--device", "ascend", "rms_norm").out, "rms_norm  vendor.ascend");
  assert_lacks(FLHOST("resolve", "rms_norm").out, "ascend");
}
END_TEST

START_TEST(verify_and_run_work_on_the_device) {
  outcome run = FLHOST("verify", "--json", "--impl", "vendor.ascend", "silu_and_mul", "rms_norm", "replicated_linear");
  assert_status(run, 0);
  json_t *tests = json_object_get(parse_json(run.out, JSON_OBJECT), "tests"), *test;
  size_t i;
  ck_assert_uint_eq(json_array_size(tests), 9); /* each in three element types */
  json_array_foreach(tests, i, test) {
    ck_assert_str_eq(text_at(test, "status"), "ok");
    ck_assert_str_eq(text_at(test, "device"), "ext_dev:0");
  }
  run = FLHOST("run", "--device", "ascend", "tests/golden/silu_and_mul");
  assert_status(run, 0);
  assert_contains(run.out, "vendor.ascend");
}
END_TEST

START_TEST(run_has_a_stream_of_its_own_where_the_device_has_streams) {
  setting("FLHOST_STAND_IN=aclrtCreateStreamWithConfig=507899");
  outcome run = FLHOST("run", "--device", "ascend", "tests/golden/silu_and_mul");
  ck_assert_int_ne(run.status, 0);
  assert_contains(run.err, "ext_dev:0: making a stream: aclrtCreateStreamWithConfig returned 507899");
  setting("FLHOST_STAND_IN=aclrtCreateStreamWithConfig=207000"); /* not supported: the default one will do */
  run = FLHOST("run", "--device", "ascend", "tests/golden/silu_and_mul");
  assert_status(run, 0);
  assert_contains(run.out, "vendor.ascend");
}
END_TEST

/* Its row in the report of `flhost bench`. */
static const json_t *timed(outcome run) {
  assert_status(run, 0);
  const json_t *timings = json_object_get(parse_json(run.out, JSON_OBJECT), "timings");
  return entry_of(timings, "impl_id", "vendor.ascend");
}

#define BENCH "bench", "--device", "ascend", "--seconds", "0.01", "--size", "small", "--impl", "vendor.ascend"

START_TEST(bench_times_calls_in_a_graph) {
  const json_t *row = timed(FLHOST(BENCH, "--json", "silu_and_mul"));
  ck_assert(json_number_value(json_object_get(row, "graph_us")) > 0);
  ck_assert(json_is_null(json_object_get(row, "no_graph")));
  outcome table = FLHOST(BENCH, "silu_and_mul");
  assert_contains(table.out, "GRAPH US");
}
END_TEST

START_TEST(bench_says_why_there_is_no_graph) {
  setting("FLHOST_STAND_IN=aclmdlRICaptureEnd=507903");
  const json_t *row = timed(FLHOST(BENCH, "--json", "silu_and_mul"));
  ck_assert(json_number_value(json_object_get(row, "us")) > 0);
  ck_assert(json_is_null(json_object_get(row, "graph_us")));
  assert_contains(text_at(row, "no_graph"),
                  "no graph: ext_dev:0: making the graph: aclmdlRICaptureEnd returned 507903");
}
END_TEST

START_TEST(a_graph_that_hangs_costs_the_graph_alone) {
  setting("FLHOST_STAND_IN=stall aclmdlRIExecuteAsync=60000");
  const json_t *row = timed(FLHOST(BENCH, "--json", "--timeout", "1", "silu_and_mul"));
  ck_assert(json_number_value(json_object_get(row, "us")) > 0);
  assert_contains(text_at(row, "no_graph"), "no graph: hung in a call (no answer within 1 s");
}
END_TEST

/* The severity of doctor's finding that contains `part`; "" where there is none. */
static const char *found_by_doctor(const char *part, int expected_status) {
  outcome run = FLHOST("doctor", "--json");
  json_t *finding;
  size_t i;
  assert_status(run, expected_status);
  json_array_foreach(parse_json(run.out, JSON_ARRAY), i,
                     finding) if (strstr(text_at(finding, "what"), part)) return text_at(finding, "severity");
  return "";
}

START_TEST(doctor_asks_each_device_for_its_health) {
  static const struct {
    const char *setting, *finding, *severity;
    int status;
  } rows[] = {
      {"", "ascend:1 is Ascend910B3 (a stand-in of the tests), ", "ok", 0},
      {"", ", and well", "ok", 0},
      {"aclrtQueryDeviceStatus=507899", "ascend:0: ext_dev:0: health: aclrtQueryDeviceStatus returned 507899",
       "problem", 2},
      {"aclrtQueryDeviceStatus=507899", ", and well", "", 2},
      {"aclrtQueryDeviceStatus=207000", ", and well", "", 0}, /* not supported: nothing is said against it */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    setting("FLHOST_STAND_IN=%s", rows[i].setting);
    ck_assert_str_eq(found_by_doctor(rows[i].finding, rows[i].status), rows[i].severity);
  }
}
END_TEST

START_TEST(without_a_device_each_op_says_what_is_missing) {
  setting("FLHOST_ASCEND_NODE=/nonexistent/davinci");
  outcome run = FLHOST("explain", "--device", "ascend", "rms_norm");
  assert_contains(run.out, "no device node /nonexistent/davinci");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_test(tests, platform_counts_the_devices_of_the_plugin);
  tcase_add_test(tests, a_driver_that_does_not_start_has_no_devices);
  tcase_add_test(tests, a_driver_that_does_not_count_its_devices_has_a_reason);
  tcase_add_test(tests, the_plugin_serves_tensors_of_the_device_and_no_others);
  tcase_add_test(tests, verify_and_run_work_on_the_device);
  tcase_add_test(tests, run_has_a_stream_of_its_own_where_the_device_has_streams);
  tcase_add_test(tests, bench_times_calls_in_a_graph);
  tcase_add_test(tests, bench_says_why_there_is_no_graph);
  tcase_add_test(tests, a_graph_that_hangs_costs_the_graph_alone);
  tcase_add_test(tests, doctor_asks_each_device_for_its_health);
  tcase_add_test(tests, without_a_device_each_op_says_what_is_missing);
}

int main(void) {
  return run_suite("ascend_command", add_tests, 60);
}
