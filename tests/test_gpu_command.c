/* What the command says of a GPU, through the stand-in drivers: what runs there, and which step is wrong. */
#include "tests/scenario.h"

#include <limits.h>
#include <stdlib.h>

static const struct {
  const char *name, *impl_id, *plugin, *driver, *math, *file;
} backends[] = {{"cuda", "vendor.cuda", "cuda.so", "FLHOST_CUDA_DRIVER", "FLHOST_CUBLASLT", "standin_cuda.so"},
                {"rocm", "vendor.rocm", "rocm.so", "FLHOST_ROCM_DRIVER", "FLHOST_ROCBLAS", "standin_hip6.so"}};
enum { CUDA, ROCM, N_BACKENDS };

/* The platform of this backend is in force, on its stand-in. */
static void use(int backend) {
  char build[PATH_MAX], plugin[64];
  ck_assert_ptr_nonnull(realpath(build_dir(), build));
  snprintf(plugin, sizeof plugin, "tests/drivers/plugins/%s", backends[backend].plugin);
  copy_built(plugin, "plugins");
  setting("VLLM_FL_PLATFORM=");
  setting("%s=%s/tests/drivers/%s", backends[backend].driver, build, backends[backend].file);
  setting("%s=%s/tests/drivers/%s", backends[backend].math, build, backends[backend].file);
  setting("FLHOST_CUDNN=/nonexistent/libcudnn.so.9"); /* a real one does not go with a driver that is none */
}

static json_t *platform_of(int backend) {
  outcome run = FLHOST("platform", "--json");
  assert_status(run, 0);
  json_t *report = parse_json(run.out, JSON_OBJECT);
  ck_assert_str_eq(text_at(report, "active"), backends[backend].name);
  return entry_of(json_object_get(report, "platforms"), "name", backends[backend].name);
}

static json_t *doctor(int expected_status) {
  outcome run = FLHOST("doctor", "--json");
  assert_status(run, expected_status);
  return parse_json(run.out, JSON_ARRAY);
}

/* The severity of the finding that contains `part`. */
static const char *severity_of(const json_t *findings, const char *part) {
  json_t *entry;
  size_t index;
  json_array_foreach(findings, index, entry) if (strstr(text_at(entry, "what"), part)) return text_at(entry,
                                                                                                      "severity");
  ck_abort_msg("no finding with '%s' in:\n%.3000s", part, json_dumps(findings, JSON_INDENT(1)));
  return NULL;
}

START_TEST(platform_says_that_a_device_is_a_stand_in) {
  use(_i);
  char line[128];
  const json_t *devices = json_object_get(platform_of(_i), "devices"), *device = json_array_get(devices, 0);
  snprintf(line, sizeof line, "platform:     %s (plugin '%s')\n", backends[_i].name, backends[_i].name);
  assert_contains(FLHOST("platform").out, line);
  ck_assert_uint_eq(json_array_size(devices), 1);
  assert_contains(text_at(device, "driver"), "(a stand-in of the tests)");
  assert_contains(text_at(device, "name"), "stand-in for an ");
}
END_TEST

START_TEST(verify_run_and_bench_work_on_the_device) {
  use(_i);
  outcome run = FLHOST("verify", "--json", "--impl", backends[_i].impl_id, "--dtype", "bfloat16", "silu_and_mul",
                       "replicated_linear");
  assert_status(run, 0);
  json_t *tests = json_object_get(parse_json(run.out, JSON_OBJECT), "tests"), *test;
  size_t i;
  ck_assert_uint_eq(json_array_size(tests), 2);
  json_array_foreach(tests, i, test) {
    ck_assert_str_eq(text_at(test, "status"), "ok");
    ck_assert_msg(!strncmp(text_at(test, "device"), backends[_i].name, 4), "on %s", text_at(test, "device"));
  }
  ck_assert_str_eq(run.err, ""); /* nothing of orders: those that the command makes are no settings */
  run = FLHOST("run", "--device", backends[_i].name, "tests/golden/silu_and_mul");
  assert_status(run, 0);
  assert_contains(run.out, backends[_i].impl_id);
  run = FLHOST("bench", "--device", backends[_i].name, "--seconds", "0.001", "--size", "small", "silu_and_mul");
  assert_status(run, 0);
  assert_contains(run.out, backends[_i].impl_id);
}
END_TEST

/* A container may have no bus to look at, Linux on Windows no kernel driver: what works does not need them. */
START_TEST(doctor_is_content_with_a_device_that_works) {
  use(_i);
  const json_t *findings = doctor(0);
  ck_assert_str_eq(severity_of(findings, ", bus: "), "note");
  ck_assert_str_eq(severity_of(findings, ", kernel driver: "), "note");
  ck_assert_str_eq(severity_of(findings, ", devices: 1 device"), "ok");
}
END_TEST

/* What the driver's calls return, and what becomes of it. */
static const struct {
  int backend;
  const char *settings, *state, *finding; /* of the step "devices" */
  const char *problem;                    /* of doctor */
} failures[] = {
    {CUDA, "devices=0", "missing", "the driver reports no device", "cuda, devices: the driver reports no device"},
    {CUDA, "init=803", "failed", "CUDA: initialisation: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)",
     "cuda, devices: CUDA: initialisation: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"},
    {CUDA, "count=2", "failed", "CUDA: counting the devices: CUDA_ERROR_OUT_OF_MEMORY (2)",
     "cuda, devices: CUDA: counting the devices: CUDA_ERROR_OUT_OF_MEMORY (2)"},
    {CUDA, "crash=1", "failed", "cuda crashed or ended the process that asked it (Segmentation fault)",
     "cuda, devices: cuda crashed or ended"},
    {CUDA, "devices=2 describe=999", "failed",
     "2 devices; device 0: CUDA: asking a device for its properties: unknown error (999)", "cuda, devices: 2 devices"},
    {CUDA, "version=12040", "ok", "1 device",
     "cuda, operators: plugin 'cuda' says: the driver is for CUDA 12.4, the kernels need one for 13.0"},
    {CUDA, "major=7 minor=5", "ok", "1 device",
     "cuda, operators: plugin 'cuda' says: device of architecture sm_75, the kernels need sm_80 or newer"},
    {ROCM, "devices=0", "missing", "the driver reports no device", "rocm, devices: the driver reports no device"},
    {ROCM, "count=2", "failed", "ROCm: counting the devices: hipErrorOutOfMemory (2)",
     "rocm, devices: ROCm: counting the devices: hipErrorOutOfMemory (2)"},
    {ROCM, "arch=2", "ok", "1 device",
     "rocm, operators: plugin 'rocm' says: the kernels are compiled for gfx90a,gfx942,gfx1100,gfx1200, this device is "
     "gfx803"},
};
enum { N_FAILURES = sizeof failures / sizeof *failures };

START_TEST(H1_the_step_at_which_a_driver_fails_is_told) {
  use(failures[_i].backend);
  setting("FLHOST_STAND_IN=%s", failures[_i].settings);
  const json_t *step = entry_of(json_object_get(platform_of(failures[_i].backend), "steps"), "step", "devices");
  ck_assert_str_eq(text_at(step, "state"), failures[_i].state);
  ck_assert_str_eq(text_at(step, "finding"), failures[_i].finding);
  const json_t *findings = doctor(2);
  ck_assert_str_eq(severity_of(findings, failures[_i].problem), "problem");
  ck_assert_str_eq(severity_of(findings, ", bus: "), "note");
}
END_TEST

/* Not once for each op, and not by what the CPU's implementations are. */
START_TEST(doctor_says_for_all_ops_together_why_nothing_runs_them) {
  use(CUDA);
  setting("FLHOST_STAND_IN=version=12040");
  outcome run = FLHOST("doctor");
  assert_status(run, 2);
  const char *reason = "no implementation may run on cuda; vendor.cuda: not available: the driver is for CUDA 12.4",
             *first = strstr(run.out, reason);
  ck_assert_msg(first != NULL, "%s", run.out);
  ck_assert_ptr_null(strstr(first + 1, reason));
  assert_contains(run.out, ": no implementation may run on cuda; none is for it\n"
                           "    'flhost explain --device cuda OP' tells more\n");
}
END_TEST

/* Copies of a device's tensors lie on the device, between margins; the reference runs on the host. */
START_TEST(kernels_run_clean_in_guarded_and_in_canary_mode) {
  static const char *const modes[] = {"VLLM_FL_GUARD=1", "VLLM_FL_CANARY=5"};
  int backend = _i / 2;
  use(backend);
  setting("VLLM_FL_EVIDENCE=%s", scratch("evidence"));
  setting("%s", modes[_i % 2]);
  outcome run = FLHOST("run", "--device", backends[backend].name, "--repeat", "1", "--json", "tests/golden/relu2");
  assert_status(run, 0);
  assert_lacks(run.err, "WARNING");
  json_t *reports = parse_json(run.out, JSON_ARRAY), *report;
  size_t i;
  json_array_foreach(reports, i, report) ck_assert_str_eq(text_at(report, "impl_id"), backends[backend].impl_id);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, begin_scenario, end_scenario);
  tcase_add_loop_test(tests, platform_says_that_a_device_is_a_stand_in, 0, N_BACKENDS);
  tcase_add_loop_test(tests, verify_run_and_bench_work_on_the_device, 0, N_BACKENDS);
  tcase_add_loop_test(tests, doctor_is_content_with_a_device_that_works, 0, N_BACKENDS);
  tcase_add_loop_test(tests, H1_the_step_at_which_a_driver_fails_is_told, 0, N_FAILURES);
  tcase_add_test(tests, doctor_says_for_all_ops_together_why_nothing_runs_them);
  tcase_add_loop_test(tests, kernels_run_clean_in_guarded_and_in_canary_mode, 0, 2 * N_BACKENDS);
}

int main(void) {
  return run_suite("gpu_command", add_tests, 120);
}
