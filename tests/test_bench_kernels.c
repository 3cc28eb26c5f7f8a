/*
 * bench/kernels.py, which `make bench-kernels` runs: what it times and writes, and how it judges. Times mean nothing
 * here. Needs python3; where there is none, the suite passes and says so.
 */
#include "tests/command.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool has_python(void) {
  bool found = !system("command -v python3 >/dev/null");
  if (!found)
    printf("skip: test_bench_kernels: no python3\n");
  return found;
}

/* What a command of the shell prints. */
static const char *said_by(const char *command, int *status) {
  static char said[1 << 16];
  FILE *stream = popen(command, "r");
  ck_assert_ptr_nonnull(stream);
  said[fread(said, 1, sizeof said - 1, stream)] = 0;
  int ended = pclose(stream);
  *status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  return said;
}

static json_t *load(const char *path) {
  json_error_t error;
  json_t *report = json_load_file(path, 0, &error);
  ck_assert_msg(report != NULL, "%s: %s", path, error.text);
  return report;
}

/* What a quick run with these options more says; its report is in kernels.json. */
static const char *run_quickly(const char *options) {
  char command[2048];
  int status;
  snprintf(command, sizeof command,
           "python3 bench/kernels.py --quick --no-compile --flhost %s/flhost --json %s --dtypes float32 --seconds 0.01 "
           "%s 2>&1",
           build_dir(), scratch("kernels.json"), options);
  const char *said = said_by(command, &status);
  ck_assert_msg(!status, "%s", said);
  return said;
}

START_TEST(kernels_are_timed_beside_a_copy_written_and_drawn) {
  char command[2048];
  int status;
  if (!has_python())
    return;
  const char *said = run_quickly("--rotate 0.001");
  assert_contains(said, "silu_and_mul               float32   token          1 ");
  assert_contains(said, "≥ 0.9 of reading the weight");
  assert_contains(said, "slower than PyTorch by more than a tenth: ");
  json_t *report = load(scratch("kernels.json")), *row;
  static const char *const keys[] = {"machine", "torch",  "impl_id", "seconds",   "rotated",
                                     "rows",    "legend", "figures", "offenders", NULL};
  assert_keys(report, keys);
  const json_t *rows = json_object_get(report, "rows");
  ck_assert_uint_ge(json_array_size(rows), 3);
  size_t i;
  int n = 0;
  json_array_foreach(rows, i, row) {
    n += !strcmp(json_string_value(json_object_get(row, "op")), "silu_and_mul");
    ck_assert_str_eq(json_string_value(json_object_get(row, "impl_id")), "default.flagos");
    ck_assert(json_is_number(json_object_get(json_object_get(row, "times_as_fast_as_peers"), "copy")));
  }
  json_decref(report);
  snprintf(command, sizeof command, "%s/bench/plot %s %s && grep -c 'silu_and_mul' %s && grep -c '</svg>' %s",
           build_dir(), scratch("kernels.json"), scratch("kernels.svg"), scratch("kernels.svg"),
           scratch("kernels.svg"));
  said = said_by(command, &status);
  ck_assert_msg(!status, "%s", said);
  char drawn[32];
  snprintf(drawn, sizeof drawn, "%d\n1\n", n);
  ck_assert_int_ge(n, 2); /* a token, and memory; each with one thread, and with all where there are more */
  ck_assert_str_eq(said, drawn);
}
END_TEST

START_TEST(only_sizes_that_are_asked_for_are_timed) {
  if (!has_python())
    return;
  run_quickly("--sizes 'token,1 tokens'");
  json_t *report = load(scratch("kernels.json")), *row;
  size_t i;
  json_array_foreach(json_object_get(report, "rows"), i, row) {
    bool is_gated = !strcmp(json_string_value(json_object_get(row, "op")), "silu_and_mul");
    ck_assert_str_eq(json_string_value(json_object_get(row, "size")), is_gated ? "token" : "1 tokens");
  }
  ck_assert_uint_ge(i, 2);
  json_decref(report);
}
END_TEST

/* A command in flhost's place, which fails the second time that it is to time something, and ends who called it the
 * third time. */
START_TEST(what_was_timed_is_kept_when_a_later_one_fails_or_the_run_is_interrupted) {
  char command[2048];
  int status;
  if (!has_python())
    return;
  FILE *script = fopen(scratch("flhost"), "w");
  ck_assert_ptr_nonnull(script);
  fprintf(script,
          "#!/bin/sh\n"
          "if [ \"$1\" = bench ]; then\n"
          "  echo >>'%s'\n"
          "  case $(wc -l <'%s') in\n"
          "  2) echo 'this one fails' >&2; exit 2 ;;\n"
          "  3) kill -TERM $PPID; exec sleep 60 ;;\n"
          "  esac\n"
          "fi\n"
          "exec '%s/flhost' \"$@\"\n",
          scratch("calls"), scratch("calls"), build_dir());
  ck_assert_int_eq(fclose(script), 0);
  ck_assert_int_eq(chmod(scratch("flhost"), 0755), 0);
  snprintf(command, sizeof command,
           "python3 bench/kernels.py --quick --no-compile --flhost %s --json %s --dtypes float32 --seconds 0.01 2>&1",
           scratch("flhost"), scratch("kernels.json"));
  const char *said = said_by(command, &status);
  ck_assert_msg(status == 128 + SIGTERM, "%d: %s", status, said);
  assert_contains(said, "exit status 2\nthis one fails");
  assert_contains(said, "interrupted (SIGTERM): this is what was timed until then");
  json_t *report = load(scratch("kernels.json"));
  const json_t *rows = json_object_get(report, "rows");
  ck_assert_uint_eq(json_array_size(rows), 1);
  ck_assert_str_eq(json_string_value(json_object_get(json_array_get(rows, 0), "size")), "token");
  json_decref(report);
}
END_TEST

/* A row as it stands in a report, and the verdict. */
static const struct {
  const char *op, *dtype, *size, *threads, *copy, *torch, *compiled, *python, *reference, *met;
} verdicts[] = {
    {"rms_norm", "float32", "token", "1", "0.1", "1", "1", "5.1", "1", "True"},
    {"rms_norm", "float32", "token", "1", "0.1", "9", "9", "4.9", "9", "False"},
    {"silu_and_mul", "float32", "token", "1", "0.1", "1", "1", "2.1", "1", "True"},
    {"silu_and_mul", "float32", "token", "1", "0.1", "9", "9", "None", "9", "None"},
    {"rms_norm", "float32", "memory", "2", "0.86", "1", "1", "None", "1", "True"},
    {"rms_norm", "float32", "memory", "2", "0.84", "9", "9", "None", "9", "False"},
    {"rms_norm", "float32", "memory", "1", "0.1", "1", "1", "None", "1", "None"},
    {"rms_norm", "float32", "L2", "1", "0.71", "1", "1", "None", "1", "True"},
    {"rms_norm", "float32", "L2", "1", "0.69", "9", "9", "None", "9", "False"},
    {"rms_norm", "bfloat16", "L2", "1", "0.1", "1", "2.1", "None", "1", "True"},
    {"silu_and_mul", "float32", "L2", "1", "0.1", "1", "1.9", "None", "1", "False"},
    {"silu_and_mul", "float32", "L2", "1", "0.71", "1", "None", "None", "1", "True"},
    {"replicated_linear", "bfloat16", "8 tokens", "1", "0.91", "0.1", "1", "None", "1", "True"},
    {"replicated_linear", "bfloat16", "8 tokens", "1", "0.89", "9", "1", "None", "1", "False"},
    {"replicated_linear", "bfloat16", "64 tokens", "1", "0.1", "0.96", "1", "None", "1", "True"},
    {"replicated_linear", "bfloat16", "64 tokens", "1", "9", "0.94", "1", "None", "1", "False"},
    {"mm_encoder_attn", "bfloat16", "1024 tokens", "1", "0.1", "1.21", "1", "None", "1", "True"},
    {"mm_encoder_attn", "bfloat16", "1024 tokens", "1", "0.1", "1.19", "1", "None", "1", "False"},
    {"mla_decode", "bfloat16", "16 sequences", "1", "0.1", "1", "1.1", "None", "5.1", "True"},
    {"mla_decode", "bfloat16", "16 sequences", "1", "0.1", "1", "0.9", "None", "5.1", "False"},
    {"mla_decode", "bfloat16", "16 sequences", "1", "0.1", "1", "1.1", "None", "4.9", "False"},
    {"rms_norm", "bfloat16", "own", "1", "0.1", "0.1", "0.1", "None", "0.1", "None"},
};

START_TEST(a_row_is_held_against_its_target) {
  char command[2048], expected[16];
  int status;
  if (!has_python())
    return;
  snprintf(
      command, sizeof command,
      "PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=bench python3 -c \"import kernels; print(kernels.judge({'op': '%s', "
      "'dtype': '%s', 'size': '%s', 'threads': %s, 'us': 1.0, 'python_as_torch': %s, 'times_as_fast_as_reference': "
      "%s, 'times_as_fast_as_peers': {'copy': %s, 'torch': %s, 'torch.compile': %s}}, 2)[1])\" 2>&1",
      verdicts[_i].op, verdicts[_i].dtype, verdicts[_i].size, verdicts[_i].threads, verdicts[_i].python,
      verdicts[_i].reference, verdicts[_i].copy, verdicts[_i].torch, verdicts[_i].compiled);
  snprintf(expected, sizeof expected, "%s\n", verdicts[_i].met);
  ck_assert_str_eq(said_by(command, &status), expected);
}
END_TEST

START_TEST(what_pytorch_does_faster_by_more_than_a_tenth_is_listed) {
  int status;
  if (!has_python())
    return;
  ck_assert_str_eq(
      said_by("PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=bench python3 -c \"import kernels; print([r['n'] for r in "
              "kernels.offenders([{'n': n, 'times_as_fast_as_peers': {'torch': t}} for n, t in enumerate((0.92, "
              "0.9, None, 0.5, 2))])])\" 2>&1",
              &status),
      "[3, 1]\n");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, end_scenario);
  tcase_add_test(tests, kernels_are_timed_beside_a_copy_written_and_drawn);
  tcase_add_test(tests, what_was_timed_is_kept_when_a_later_one_fails_or_the_run_is_interrupted);
  tcase_add_test(tests, only_sizes_that_are_asked_for_are_timed);
  tcase_add_loop_test(tests, a_row_is_held_against_its_target, 0, sizeof verdicts / sizeof *verdicts);
  tcase_add_test(tests, what_pytorch_does_faster_by_more_than_a_tenth_is_listed);
}

int main(void) {
  return run_suite("bench_kernels", add_tests, 120);
}
