/*
 * bench/gpu.py, which `make bench-cuda` runs: on a stand-in driver, whose times mean nothing, and without a device.
 * Needs python3; where there is none, the suite passes and says so.
 */
#include "tests/command.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

static bool has_python(void) {
  bool found = !system("command -v python3 >/dev/null");
  if (!found)
    printf("skip: test_bench_gpu: no python3\n");
  return found;
}

/* What the script prints; `environment` goes before it. */
static const char *run_script(const char *environment, const char *arguments, int *status) {
  static char said[1 << 16];
  char command[4096];
  snprintf(command, sizeof command, "%s python3 bench/gpu.py --flhost %s/flhost --results %s %s 2>&1", environment,
           build_dir(), scratch("results"), arguments);
  FILE *stream = popen(command, "r");
  ck_assert_ptr_nonnull(stream);
  said[fread(said, 1, sizeof said - 1, stream)] = 0;
  int ended = pclose(stream);
  *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  return said;
}

static json_t *read_result(const char *hardware) {
  json_t *report = NULL;
  json_error_t error;
  DIR *directory = opendir(scratch("results"));
  ck_assert_ptr_nonnull(directory);
  for (struct dirent *entry; (entry = readdir(directory));)
    if (strstr(entry->d_name, hardware))
      report = json_load_file(scratch("results/%s", entry->d_name), 0, &error);
  closedir(directory);
  ck_assert_msg(report != NULL, "no result file named for %s", hardware);
  return report;
}

START_TEST(operators_on_a_device_are_timed_and_written_with_date_and_hardware) {
  char environment[1024];
  int status;
  if (!has_python())
    return;
  snprintf(environment, sizeof environment, "FLHOST_CUDA_DRIVER=%s/tests/drivers/standin_cuda.so", build_dir());
  const char *said = run_script(environment, "-- relu2 --size small --seconds 0.001", &status);
  if (strstr(said, "built without nvcc")) {
    ck_assert_int_eq(status, 0);
    assert_contains(said, "skip: bench-cuda: not available: built without nvcc");
    return;
  }
  ck_assert_msg(!status, "%s", said);
  assert_contains(said, "relu2");
  assert_contains(said, "written: ");
  json_t *report = read_result("stand-in-for-an-nvidia-gpu");
  static const char *const keys[] = {"machine", "device",  "threads",  "seconds", "rotated", "peers",
                                     "old",     "timings", "hardware", "torch",   NULL};
  assert_keys(report, keys);
  ck_assert_uint_eq(json_array_size(json_object_get(report, "timings")), 2); /* the kernel, and the copy */
  json_decref(report);
}
END_TEST

START_TEST(without_a_device_it_says_why_writes_nothing_and_succeeds) {
  int status;
  if (!has_python())
    return;
  const char *said = run_script("FLHOST_CUDA_DRIVER=/nonexistent/libcuda.so.1", "", &status);
  ck_assert_msg(!status, "%s", said);
  assert_contains(said, "skip: bench-cuda: ");
  ck_assert_int_ne(access(scratch("results"), F_OK), 0);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, end_scenario);
  tcase_add_test(tests, operators_on_a_device_are_timed_and_written_with_date_and_hardware);
  tcase_add_test(tests, without_a_device_it_says_why_writes_nothing_and_succeeds);
}

int main(void) {
  return run_suite("bench_gpu", add_tests, 60);
}
