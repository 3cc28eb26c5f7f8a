/*
 * bench/communicators.py, which `make bench-communicators` runs: what it times, writes and draws. Times mean nothing
 * here. Needs python3; where there is none, the suite passes and says so.
 */
#include "tests/command.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *run_script(const char *environment, int *status) {
  static char said[1 << 16];
  char command[16384];
  snprintf(command, sizeof command,
           "%s python3 bench/communicators.py --flhost %s/flhost --plot %s/bench/plot --results %s -- --seconds 0.001 "
           "--dims 'bytes: 8 4096' 2>&1",
           environment, build_dir(), build_dir(), scratch("results"));
  FILE *stream = popen(command, "r");
  ck_assert_ptr_nonnull(stream);
  said[fread(said, 1, sizeof said - 1, stream)] = 0;
  int ended = pclose(stream);
  *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  return said;
}

/* The file that was written with that ending. */
static void read_written(const char *ending, char *text, size_t size) {
  DIR *directory = opendir(scratch("results"));
  FILE *file = NULL;
  ck_assert_ptr_nonnull(directory);
  for (struct dirent *entry; !file && (entry = readdir(directory));)
    if (strstr(entry->d_name, "-communicators-") && strstr(entry->d_name, ending))
      file = fopen(scratch("results/%s", entry->d_name), "r");
  closedir(directory);
  ck_assert_msg(file != NULL, "no %s was written", ending);
  text[fread(text, 1, size - 1, file)] = 0;
  fclose(file);
}

static size_t count(const char *text, const char *word) {
  size_t n = 0;
  for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
    n++;
  return n;
}

/* Of two ranks each run has eight collectives, at two sizes. */
static void check_files(size_t runs) {
  enum { COLLECTIVES = 8, SIZES = 2 };
  json_error_t error;
  static char text[1 << 18];
  json_t *run;
  size_t i;
  read_written(".json", text, sizeof text);
  json_t *report = json_loads(text, 0, &error);
  ck_assert_msg(report != NULL, "%s", error.text);
  ck_assert_uint_eq(json_array_size(json_object_get(report, "runs")), runs);
  json_array_foreach(json_object_get(report, "runs"), i, run)
      ck_assert_uint_eq(json_array_size(json_object_get(run, "rows")), COLLECTIVES * SIZES);
  json_decref(report);
  read_written(".txt", text, sizeof text);
  assert_contains(text, "all_reduce           4096 | ");
  read_written(".svg", text, sizeof text);
  /* A line for the time of each, and for the bus bandwidth of all but one; and the legend. */
  ck_assert_uint_eq(count(text, "<polyline "), runs * (2 * COLLECTIVES - 1));
  ck_assert_uint_eq(count(text, "<circle "), runs * (2 * COLLECTIVES - 1) * SIZES);
  assert_contains(text, "shm, 2 ranks");
  assert_contains(text, "shm, threads, 2 ranks");
  assert_contains(text, "half of the time there and back");
  ck_assert_uint_eq(count(text, "</svg>"), 1);
}

static bool has(const char *program) {
  char command[64];
  snprintf(command, sizeof command, "command -v %s >/dev/null", program);
  return !system(command);
}

START_TEST(communicators_are_timed_beside_each_other_and_drawn) {
  char plugin[4096];
  int status;
  snprintf(plugin, sizeof plugin, "%s/plugins/mpi.so", build_dir());
  const char *said = run_script("TMPDIR=/tmp", &status);
  bool has_mpi = has("mpirun") && !access(plugin, R_OK);
  ck_assert_msg(!status, "%s", said);
  assert_contains(said, "written: ");
  if (!has_mpi)
    assert_contains(said, "skip: mpi, of messages: ");
  check_files(has_mpi ? 4 : 2);
}
END_TEST

START_TEST(what_is_not_there_is_skipped) {
  char environment[8192], command[8192];
  int status;
  ck_assert_int_eq(mkdir(scratch("bin"), 0755), 0);
  snprintf(command, sizeof command, "ln -s \"$(python3 -c 'import sys; print(sys.executable)')\" %s",
           scratch("bin/python3"));
  ck_assert_int_eq(system(command), 0);
  snprintf(environment, sizeof environment, "PATH=%s", scratch("bin"));
  const char *said = run_script(environment, &status);
  ck_assert_msg(!status, "%s", said);
  assert_contains(said, "skip: mpi, MPI's own: no mpirun");
  check_files(2);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, end_scenario);
  if (!has("python3")) {
    printf("skip: test_bench_communicators: no python3\n");
    return;
  }
  tcase_add_test(tests, communicators_are_timed_beside_each_other_and_drawn);
  tcase_add_test(tests, what_is_not_there_is_skipped);
}

int main(void) {
  return run_suite("bench_communicators", add_tests, 60);
}
