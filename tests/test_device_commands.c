/* The commands on a device, through the test device: run, verify, platform, doctor. */
#include "cli/run/safetensors.h"
#include "tests/scenario.h"

static void set_up(void) {
  begin_scenario();
  copy_built("tests/plugins/device.so", "plugins");
}

static json_t *tests_of(outcome run) {
  return json_object_get(parse_json(run.out, JSON_OBJECT), "tests");
}

/* ---------------------------------------------------------------------------------------------------------- verify */

START_TEST(verify_tests_an_implementation_on_the_device_that_it_is_for) {
  outcome run = FLHOST("verify", "--json", "--impl", "vendor.test_device", "--dtype", "bfloat16", "silu_and_mul",
                       "rms_norm", "fused_add_rms_norm", "mul_and_silu", "relu2", "quick_gelu");
  assert_status(run, 0);
  json_t *tests = tests_of(run), *test;
  size_t i, ok = 0;
  json_array_foreach(tests, i, test) {
    if (strcmp(text_at(test, "status"), "ok") != 0) {
      ck_assert_str_eq(text_at(test, "status"), "skipped");
      continue;
    }
    ck_assert_str_eq(text_at(test, "device"), "ext_dev:0");
    ok++;
  }
  ck_assert_uint_eq(ok, 4);
  json_t *too_old = entry_of(tests, "op", "quick_gelu");
  ck_assert_str_eq(text_at(too_old, "reason"), "not available: needs td_9, device 0 is td_1, device 1 is td_2");
  assert_contains(text_at(entry_of(tests, "op", "relu2"), "reason"), "does not reach its min_arch");
  assert_contains(FLHOST("verify", "--dtype", "float32", "silu_and_mul").out, "DEVICE     DTYPE");
}
END_TEST

START_TEST(verify_on_a_device_tests_what_is_for_it) {
  outcome run = FLHOST("verify", "--json", "--device", "ext_dev:1", "--dtype", "float32", "relu2", "rms_norm");
  assert_status(run, 0);
  json_t *tests = tests_of(run), *test;
  size_t i;
  ck_assert_uint_eq(json_array_size(tests), 2);
  json_array_foreach(tests, i, test) {
    ck_assert_str_eq(text_at(test, "impl_id"), "vendor.test_device");
    ck_assert_str_eq(text_at(test, "device"), "ext_dev:1");
    ck_assert_str_eq(text_at(test, "status"), "ok");
  }
  run = FLHOST("verify", "--json", "--device", "ext_dev", "--impl", "default.flagos", "silu_and_mul");
  assert_status(run, 3);
  assert_contains(text_at(json_array_get(tests_of(run), 0), "reason"), "it is for tensors on cpu");
}
END_TEST

/* Margins lie on the device, too. */
START_TEST(verify_finds_what_a_device_writes_where_it_must_not) {
  setting("TEST_DEVICE_ERROR=behind");
  outcome run = FLHOST("verify", "--json", "--device", "ext_dev", "--dtype", "float32", "silu_and_mul");
  assert_status(run, 1);
  assert_contains(text_at(json_array_get(tests_of(run), 0), "problem"), "written outside result 'out': ");
  setting("TEST_DEVICE_ERROR=workspace");
  run = FLHOST("verify", "--json", "--device", "ext_dev", "--dtype", "float32", "mul_and_silu");
  assert_status(run, 1);
  assert_contains(text_at(json_array_get(tests_of(run), 0), "problem"), "written outside the workspace of ");
}
END_TEST

START_TEST(a_device_that_is_not_there_is_refused) {
  static const struct {
    const char *device, *words;
  } cases[] = {
      {"cuda", "no plugin brings the memory of cuda; there is cpu, ext_dev (plugin 'test_device')"},
      {"ext_dev:2", "ext_dev:2: there is no such device, expected an index from 0 to 1"},
      {"ext_dev:one", "'one' is not the index of a device"},
      {"ext_dve", "unknown device type 'ext_dve'; did you mean 'ext_dev'?"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    outcome run = FLHOST("verify", "--device", cases[i].device, "silu_and_mul");
    assert_refused(run);
    assert_contains(run.err, cases[i].words);
    run = FLHOST("run", "--device", cases[i].device, "tests/golden/silu_and_mul");
    assert_refused(run);
    assert_contains(run.err, cases[i].words);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------------------------- run */

START_TEST(run_computes_on_a_device_and_compares_on_the_host) {
  outcome run = FLHOST("run", "--json", "--device", "ext_dev:1", "tests/golden/silu_and_mul",
                       "tests/golden/mul_and_silu", "tests/golden/fused_add_rms_norm", "tests/golden/relu2");
  assert_status(run, 0);
  json_t *files = parse_json(run.out, JSON_ARRAY), *file;
  size_t i;
  ck_assert_uint_ge(json_array_size(files), 50);
  json_array_foreach(files, i, file) {
    ck_assert_str_eq(text_at(file, "status"), "ok");
    ck_assert_str_eq(text_at(file, "impl_id"), "vendor.test_device");
  }
}
END_TEST

/* A file that calls test_device_fail on [1, 2]. */
static const char *failing_call(const char *how) {
  char error[SAFETENSORS_ERROR_MAX];
  int64_t shape[] = {2};
  float values[] = {1, 2};
  safetensors_entry entries[1];
  safetensors made = {.metadata = json_object(), .entries = entries, .n = 1};
  const char *path = scratch("fail_%s.safetensors", how);
  ck_assert(safetensors_entry_create(&entries[0], "x", (DLDataType){kDLFloat, 32, 1}, 1, shape));
  memcpy(entries[0].tensor.data, values, sizeof values);
  json_object_set_new(made.metadata, "op", json_string("test_device_fail"));
  json_object_set_new(made.metadata, "attrs", json_sprintf("{\"how\": %s}", how));
  ck_assert_msg(safetensors_write(path, &made, error), "%s", error);
  safetensors_entry_free(&entries[0]);
  json_decref(made.metadata);
  return path;
}

START_TEST(an_error_of_a_kernel_is_found_with_VLLM_FL_SYNCHRONIZE) {
  const char *path = failing_call("2"); /* late */
  outcome run = FLHOST("run", "--device", "ext_dev", path);
  assert_status(run, 2);
  assert_contains(run.err, "ext_dev:0: synchronising: a kernel used an illegal address");
  setting("VLLM_FL_SYNCHRONIZE=1");
  json_t *files;
  run = FLHOST("run", "--json", "--device", "ext_dev", path);
  assert_status(run, 0);
  files = parse_json(run.out, JSON_ARRAY);
  ck_assert_str_eq(text_at(json_array_get(files, 0), "impl_id"), "vendor.test_second");
  assert_contains(text_at(json_array_get(files, 0), "why"), "fallback from 'vendor.test_device'");
}
END_TEST

START_TEST(on_a_device_without_implementation_run_says_so) {
  outcome run = FLHOST("run", "--device", "ext_dev", "tests/golden/gelu_new");
  assert_status(run, 3);
  assert_contains(run.err, "works on cpu, cuda_host, rocm_host, the tensors are on ext_dev");
}
END_TEST

/* ------------------------------------------------------------------------------------------------ platform, doctor */

START_TEST(platform_shows_the_devices_and_that_this_one_is_a_test_part) {
  outcome run = FLHOST("platform", "--json");
  assert_quiet(run);
  json_t *platforms = json_object_get(parse_json(run.out, JSON_OBJECT), "platforms");
  json_t *found = entry_of(platforms, "name", "test_device"), *devices = json_object_get(found, "devices");
  ck_assert_uint_eq(json_array_size(devices), 2);
  ck_assert_str_eq(text_at(json_array_get(devices, 0), "name"), "test part, memory of the host");
  ck_assert_str_eq(text_at(json_array_get(devices, 1), "arch"), "td_2");
  ck_assert_int_eq(json_integer_value(json_object_get(json_array_get(devices, 1), "memory_total")), 256 << 20);
  run = FLHOST("platform");
  assert_quiet(run);
  assert_contains(run.out, "Steps to a device of test_device, plugin 'test_device':");
  assert_contains(run.out, "ext_dev:1  td_2");
  assert_contains(run.out, "test part, memory of the host");
}
END_TEST

START_TEST(doctor_goes_through_the_steps_of_the_platform_in_force) {
  setting("VLLM_FL_PLATFORM=test_device");
  outcome run = FLHOST("doctor");
  assert_status(run, 0);
  assert_contains(run.out, "test_device, devices: 2 devices");
  assert_contains(run.out, "test_device:1 is test part, memory of the host, td_2");
  assert_contains(run.out, "operators are ready on ext_dev");
}
END_TEST

START_TEST(ops_and_explain_tell_of_an_architecture_that_is_too_old) {
  assert_contains(FLHOST("ops", "quick_gelu").out, "needs td_9, device 0 is td_1, device 1 is td_2");
  outcome run = FLHOST("explain", "--device", "ext_dev", "quick_gelu");
  assert_contains(run.out, "not available: needs td_9, device 0 is td_1, device 1 is td_2");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_test(tests, verify_tests_an_implementation_on_the_device_that_it_is_for);
  tcase_add_test(tests, verify_on_a_device_tests_what_is_for_it);
  tcase_add_test(tests, verify_finds_what_a_device_writes_where_it_must_not);
  tcase_add_test(tests, a_device_that_is_not_there_is_refused);
  tcase_add_test(tests, run_computes_on_a_device_and_compares_on_the_host);
  tcase_add_test(tests, an_error_of_a_kernel_is_found_with_VLLM_FL_SYNCHRONIZE);
  tcase_add_test(tests, on_a_device_without_implementation_run_says_so);
  tcase_add_test(tests, platform_shows_the_devices_and_that_this_one_is_a_test_part);
  tcase_add_test(tests, doctor_goes_through_the_steps_of_the_platform_in_force);
  tcase_add_test(tests, ops_and_explain_tell_of_an_architecture_that_is_too_old);
}

int main(void) {
  return run_suite("device_commands", add_tests, 60);
}
