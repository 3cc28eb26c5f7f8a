/*
 * Plugins that misbehave, as real files: whatever they do, the command says what became of each, with an exit status
 * that no script takes for success. (What `flhost verify` finds in results alone is in test_verify.c, too.)
 */
#include "tests/scenario.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

/* A crash is to end the process by its signal. */
static void keep_sanitizers_from_crashes(void) {
  const char *given = getenv("TSAN_OPTIONS");
  char options[512];
  snprintf(options, sizeof options, "%s%shandle_segv=0", given ? given : "", given ? ":" : "");
  setenv("TSAN_OPTIONS", options, 1);
}

static void set_up(void) {
  keep_sanitizers_from_crashes();
  mkdir(scratch("platforms"), 0755);
  mkdir(scratch("plugins"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_CONFIG_DIR=%s", scratch("platforms"));
  setting("VLLM_FL_PLATFORM=cpu");
  setting("VLLM_FL_PROBE=off"); /* what a plugin does in the command's own process is what this is about */
}

static void use(const char *name) {
  char *plugin = NULL;
  ck_assert_int_gt(asprintf(&plugin, "tests/plugins/%s.so", name), 0);
  copy_built(plugin, "plugins");
  free(plugin);
}

/* Far writes meet the heap first, which a sanitizer or valgrind watches; of some others these know nothing, and of the
 * first thread's end too much. */
static bool is_for_plain_builds(const char *name) {
  static const char *const names[] = {"far_behind",   "far_before",  "overflows_stack", "of_unset_memory",
                                      "takes_memory", "frees_twice", "jumps",           "ends_thread"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strstr(name, names[i]))
      return true;
  return false;
}

static bool is_watched(void) {
  const char *flags = getenv("SANITIZE");
  return is_sparse() || (flags && *flags);
}

/* Says so. */
static bool is_left_out(const char *name) {
  bool left_out = is_for_plain_builds(name) && is_watched();
  if (left_out)
    printf("skip: %s: a tool that watches memory is at work\n", name);
  return left_out;
}

/* --------------------------------------------------------------------------------------------- ended while it loads */

static const char *const ending[] = {"misbehaving_constructor_exits", "misbehaving_constructor_ends_thread",
                                     "misbehaving_entry_exits", "misbehaving_entry_ends_thread"};
enum { N_ENDING = sizeof ending / sizeof ending[0] };

START_TEST(a_plugin_that_ends_the_process_does_not_make_a_command_succeed) {
  static const char *const commands[][4] = {
      {"verify", "misbehaving"}, {"doctor"}, {"explain", "misbehaving"}, {"ops"}, {"bench", "misbehaving"}};
  if (is_left_out(ending[_i]))
    return;
  use(ending[_i]);
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    outcome run = run_flhost(commands[i]);
    assert_status(run, 2);
    assert_contains(run.err, "ended from within");
    assert_contains(run.err, "the plugin that was opened last is /");
    assert_contains(run.err, ending[_i]);
  }
}
END_TEST

/* ----------------------------------------------------------------------------------------- what a kernel does, and
 * gets
 */

/* build/tests/plugins/NAME.so: how its test ended ("": either way), and words that stand in what is said of it. */
static const struct {
  const char *name, *ended, *words[3];
} misbehaving[] = {
    {"misbehaving_crashes", "crashed", {"crashed in call 0 (SIGSEGV, x float32[", "out float32["}},
    {"misbehaving_crashes_later", "crashed", {"crashed in call ", "(SIGSEGV, x float32[", "32]"}},
    {"misbehaving_divides", "crashed", {"crashed in call 0 (SIGFPE, x float32["}},
    {"misbehaving_aborts", "crashed", {"crashed in call 0 (SIGABRT, x float32["}},
    {"misbehaving_kills_itself", "crashed", {"crashed in call 0 (SIGKILL, x float32["}},
    {"misbehaving_exits", "exited", {"exited in call 0 (status 2, x float32["}},
    {"misbehaving_exits_at_once", "exited", {"exited in call 0 (status 0, x float32["}},
    {"misbehaving_ends_thread", "exited", {"exited in call 0 (status 2, x float32["}},
    {"misbehaving_hangs", "hung", {"hung in call 0 (no answer within 5 s, x float32["}},
    {"misbehaving_takes_memory", "out of memory", {"out of memory in call 0 (it took more than 1.5 GB, x float32["}},
    {"misbehaving_overflows_stack", "crashed", {"crashed in call 0 (SIGSEGV, stack overflow, x float32["}},
    {"misbehaving_jumps", "crashed", {"crashed in call 0 (SIG"}},
    {"misbehaving_frees_twice", "crashed", {"crashed in call 0 (SIG"}},
    {"throws", "crashed", {"crashed in call 0 (SIGABRT, x float32[", "a kernel's own words"}},
    {"misbehaving_wrong_tail", NULL, {"result 'out': 1 element differs", "x tolerance)", "d: "}},
    {"misbehaving_wrong_many_rows", NULL, {"result 'out': 1 element differs", "(...: ["}},
    {"misbehaving_wrong_long_rows", NULL, {"result 'out': 1 element differs", "(d: 8"}},
    {"misbehaving_wrong_nan", NULL, {"nan, the reference gives "}},
    {"misbehaving_wrong_500th", NULL, {"again", "result 'out' differs at element ["}},
    {"misbehaving_skips_row", NULL, {"result 'out': ", " from the reference"}},
    {"misbehaving_of_previous_call",
     NULL,
     {"called twice with the same arguments, it gave different bits: result 'out'"}},
    {"misbehaving_of_static_buffer", NULL, {"threads at once"}},
    {"misbehaving_of_unset_memory", NULL, {"result 'out': 1 element differs"}},
    {"misbehaving_of_unset_result", NULL, {"result 'out': 1 element differs"}},
    {"misbehaving_reads_behind", "crashed", {"SIGSEGV, right behind the last element of 'x'", "at the end of memory"}},
    {"misbehaving_reads_before",
     "crashed",
     {"SIGSEGV, 4 bytes before the first element of 'x'", "at the beginning of memory"}},
    {"misbehaving_writes_behind", NULL, {"written outside result 'out': ", " behind "}},
    {"misbehaving_writes_far_behind", "", {NULL}}, /* the heap's end of it may come first, or the edge's */
    {"misbehaving_writes_far_before", "", {NULL}},
    {"misbehaving_writes_input", NULL, {"argument 'x' was overwritten (element ["}},
    {"misbehaving_leaks_descriptor", NULL, {"32 calls left 32 open descriptors behind"}},
    {"misbehaving_leaks_thread", NULL, {"32 calls left 32 threads behind"}},
    {"misbehaving_leaks_mask", NULL, {"the call left signal SIGUSR1 in the thread's mask"}},
    {"misbehaving_changes_handler", NULL, {"the call changed the handler of signal SIGUSR2"}},
    {"misbehaving_changes_directory", NULL, {"the call changed the working directory to /"}},
    {"misbehaving_changes_locale", NULL, {"the call changed the locale to "}},
    {"misbehaving_changes_rounding", NULL, {"the call left the floating-point mode changed"}},
    {"misbehaving_prints", NULL, {"it printed ", " MB to the standard streams, beginning with: xxxxxx"}},
    {"misbehaving_status_garbage", NULL, {"returned "}},
    {"misbehaving_message_without_end", NULL, {"returned FL_E", "xxxxxx, in call 0: x float32["}},
};
enum { N_MISBEHAVING = sizeof misbehaving / sizeof misbehaving[0] };

/* The report in JUnit's form is whole: three tests, one of which is an error or a failure. */
static void assert_report(const char *ended) {
  static char report[1 << 16];
  FILE *file = fopen(scratch("report.xml"), "r");
  ck_assert_ptr_nonnull(file);
  report[fread(report, 1, sizeof report - 1, file)] = 0;
  fclose(file);
  assert_contains(report, ended ? "tests=\"3\" failures=\"0\" errors=\"1\" skipped=\"0\""
                                : "tests=\"3\" failures=\"1\" errors=\"0\" skipped=\"0\"");
  assert_contains(report, ended ? "<error type=\"" : "<failure message=\"");
  assert_contains(report, "</testsuite>\n");
}

START_TEST(an_implementation_that_misbehaves_gets_its_verdict_and_the_others_have_theirs) {
  const char *name = misbehaving[_i].name;
  if (is_left_out(name))
    return;
  use(name);
  const char *timeout = strstr(name, "hangs") ? "5" : "100";
  outcome run = FLHOST("verify", "--json", "--timeout", timeout, "--memory", "1.5", "--junit", scratch("report.xml"));
  assert_status(run, 1);
  if (*run.err && !is_sparse()) /* valgrind speaks there */
    assert_contains(run.err, "flhost: WARNING: Implementation 'vendor.wrong' failed for op 'misbehaving': ");
  json_t *tests = json_object_get(parse_json(run.out, JSON_OBJECT), "tests");
  ck_assert_uint_eq(json_array_size(tests), 3);
  const json_t *wrong = entry_of(tests, "impl_id", "vendor.wrong");
  ck_assert_str_eq(text_at(wrong, "status"), "failed");
  const char *ended = misbehaving[_i].ended;
  if (ended && !*ended)
    ended = json_string_value(json_object_get(wrong, "ended"));
  if (ended)
    ck_assert_msg(json_is_string(json_object_get(wrong, "ended")) && !strcmp(text_at(wrong, "ended"), ended),
                  "not %s: %s", ended, text_at(wrong, "problem"));
  else
    ck_assert_msg(json_is_null(json_object_get(wrong, "ended")), "ended: %s", text_at(wrong, "problem"));
  for (size_t i = 0; i < 3 && misbehaving[_i].words[i]; i++)
    assert_contains(text_at(wrong, "problem"), misbehaving[_i].words[i]);
  assert_report(ended);
  ck_assert_str_eq(text_at(entry_of(tests, "impl_id", "reference.right"), "status"), "ok");
  ck_assert_str_eq(text_at(entry_of(tests, "impl_id", "vendor.other"), "status"), "ok");
}
END_TEST

START_TEST(one_that_behaves_passes) {
  use("misbehaving_nothing");
  assert_quiet(FLHOST("verify"));
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- run and bench */

/* The golden form of a call, written by a run without expected results. */
static const char *file_of_call(const char *directory) {
  static const char header[] = "{\"__metadata__\":{\"op\":\"misbehaving\"},\"x\":{\"dtype\":\"F32\",\"shape\":[1,2],"
                               "\"data_offsets\":[0,8]}}";
  const uint64_t length = sizeof header - 1;
  const float x[2] = {1, -2};
  mkdir(scratch("%s", directory), 0755);
  for (int i = 0; i < 2; i++) {
    FILE *file = fopen(scratch("%s/%d.safetensors", directory, i), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(&length, sizeof length, 1, file), 1);
    ck_assert_uint_eq(fwrite(header, length, 1, file), 1);
    ck_assert_uint_eq(fwrite(x, sizeof x, 1, file), 1);
    ck_assert_int_eq(fclose(file), 0);
  }
  return scratch("%s", directory);
}

static const struct {
  const char *name, *words;
} ends[] = {{"misbehaving_crashes", "crashed in "},
            {"misbehaving_exits", "exited in "},
            {"misbehaving_ends_thread", "exited in "},
            {"misbehaving_hangs", "hung in "}};
enum { N_ENDS = sizeof ends / sizeof ends[0] };

START_TEST(run_says_which_file_did_not_come_back_and_goes_on_with_the_next) {
  if (is_left_out(ends[_i].name))
    return;
  use(ends[_i].name);
  setting("VLLM_FL_PER_OP=misbehaving=impl:vendor.wrong");
  outcome run = FLHOST("run", "--json", "--timeout", "3", file_of_call("calls"));
  assert_status(run, 2);
  json_t *files = parse_json(run.out, JSON_ARRAY);
  ck_assert_uint_eq(json_array_size(files), 2);
  for (size_t i = 0; i < 2; i++) {
    ck_assert_str_eq(text_at(json_array_get(files, i), "status"), "error");
    assert_contains(text_at(json_array_get(files, i), "problem"), ends[_i].words);
  }
  assert_contains(run.err, "0.safetensors: ");
  assert_contains(run.err, "1.safetensors: ");
  setting("VLLM_FL_PER_OP=misbehaving=impl:vendor.other");
  assert_quiet(FLHOST("run", scratch("calls")));
  assert_quiet(FLHOST("run", "--explain", scratch("calls")));
}
END_TEST

START_TEST(bench_says_which_implementation_did_not_come_back_and_times_the_others) {
  if (is_left_out(ends[_i].name))
    return;
  use(ends[_i].name);
  outcome run = FLHOST("bench", "--json", "--seconds", "0.01", "--timeout", "3", "--dims", "d: 64", "misbehaving");
  assert_status(run, 1);
  json_t *rows = json_object_get(parse_json(run.out, JSON_OBJECT), "timings");
  const json_t *wrong = entry_of(rows, "impl_id", "vendor.wrong"), *other = entry_of(rows, "impl_id", "vendor.other");
  assert_contains(text_at(wrong, "reason"), ends[_i].words);
  assert_contains(text_at(wrong, "reason"), "x[");
  ck_assert_double_gt(json_real_value(json_object_get(other, "us")), 0);
}
END_TEST

/* Each is a plugin; `bytes` is what the file has at most, `repeated` what `flhost run` says of it. */
static const struct {
  const char *plugin, *repeated;
  int status, bytes;
} saved[] = {
    {"misbehaving_wrong_long_rows", "differ", 1, 110000}, /* one row, the shortest that fails */
    {"misbehaving_crashes_later", "crashed in ", 2, 2000},
    {"misbehaving_reads_behind", "right behind the last element of 'x'", 2, 2000},
    {"misbehaving_reads_before", "before the first element of 'x'", 2, 2000},
    {"misbehaving_writes_behind", "it wrote outside 'out.out': the memory 1 byte behind", 1, 2000},
    {"misbehaving_writes_input", "argument 'x' was overwritten (element [0", 1, 2000},
    {"misbehaving_wrong_500th", "in call 500 of 500: 'out.out': ", 1, 2000},
    {"planted_behind_row", "it wrote outside 'out.out': the memory 1 byte behind", 1, 2000},
    {"planted_overwrites_x", "argument 'x' was overwritten (element [", 1, 2000},
    {"planted_ignores_stride", "", 1, 2000},
    {"planted_ignores_offset", "", 1, 2000},
    {"planted_in_place", "differ", 1, 2000},
};
enum { N_SAVED = sizeof saved / sizeof *saved };

/* It fails in no other way than that: the reference is right, called as it is. */
START_TEST(a_failing_call_is_saved_small_and_run_repeats_it) {
  bool planted = !strncmp(saved[_i].plugin, "planted", strlen("planted"));
  use(saved[_i].plugin);
  outcome run = FLHOST("verify", "--json", "--save", scratch("saved"));
  assert_status(run, 1);
  ck_assert_str_eq(run.err, "");
  const json_t *wrong = entry_of(json_object_get(parse_json(run.out, JSON_OBJECT), "tests"), "impl_id", "vendor.wrong");
  const char *file = text_at(wrong, "saved");
  struct stat status;
  ck_assert_int_eq(stat(file, &status), 0);
  ck_assert_int_lt(status.st_size, saved[_i].bytes);
  setting("VLLM_FL_PER_OP=%s=impl:vendor.wrong", planted ? "planted" : "misbehaving");
  run = FLHOST("run", file);
  assert_status(run, saved[_i].status);
  assert_contains(run.err, saved[_i].repeated);
  setting("VLLM_FL_PER_OP=%s=reference", planted ? "planted" : "misbehaving");
  assert_quiet(FLHOST("run", file));
}
END_TEST

/* What no file repeats by itself is saved all the same, and it says why. */
START_TEST(what_one_call_does_not_show_is_saved_with_what_it_takes) {
  static const struct {
    const char *plugin, *note;
  } kept[] = {{"misbehaving_of_static_buffer", "called from 4 threads at once"},
              {"misbehaving_leaks_descriptor", "open descriptors behind"},
              {"misbehaving_leaks_mask", "left signal SIGUSR1 in the thread's mask"}};
  use(kept[_i].plugin);
  outcome run = FLHOST("verify", "--json", "--save", scratch("saved"));
  assert_status(run, 1);
  const json_t *wrong = entry_of(json_object_get(parse_json(run.out, JSON_OBJECT), "tests"), "impl_id", "vendor.wrong");
  char text[4096] = "";
  FILE *file = fopen(text_at(wrong, "saved"), "rb");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_gt(fread(text, 1, 8, file), 0); /* the length of the header, which is text */
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  assert_contains(text, kept[_i].note);
  assert_quiet(FLHOST("run", text_at(wrong, "saved")));
}
END_TEST

START_TEST(in_this_process_a_crash_is_that_of_the_command) {
  use("misbehaving_crashes");
  int status = FLHOST("verify", "--in-process").status;
  ck_assert_msg(status != 0 && (is_watched() || status == 128 + SIGSEGV), "exit status %d", status);
}
END_TEST

START_TEST(in_this_process_an_exit_is_no_success) {
  use("misbehaving_exits");
  outcome run = FLHOST("verify", "--in-process");
  assert_status(run, 2);
  assert_contains(run.err, "ended from within");
  assert_contains(run.err, "it happened while call 0: x float32[");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_loop_test(tests, a_plugin_that_ends_the_process_does_not_make_a_command_succeed, 0, N_ENDING);
  tcase_add_loop_test(tests, an_implementation_that_misbehaves_gets_its_verdict_and_the_others_have_theirs, 0,
                      loop_cases(N_MISBEHAVING));
  tcase_add_test(tests, one_that_behaves_passes);
  tcase_add_loop_test(tests, run_says_which_file_did_not_come_back_and_goes_on_with_the_next, 0, N_ENDS);
  tcase_add_loop_test(tests, bench_says_which_implementation_did_not_come_back_and_times_the_others, 0, N_ENDS);
  tcase_add_loop_test(tests, a_failing_call_is_saved_small_and_run_repeats_it, 0, N_SAVED);
  tcase_add_loop_test(tests, what_one_call_does_not_show_is_saved_with_what_it_takes, 0, 3);
  tcase_add_test(tests, in_this_process_a_crash_is_that_of_the_command);
  tcase_add_test(tests, in_this_process_an_exit_is_no_success);
}

int main(void) {
  return run_suite("misbehaving", add_tests, 120);
}
