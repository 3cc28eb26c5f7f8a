/*
 * What a newcomer sees: `make run` says how far the build is and then tells a story (tools/first-minute) that fits a
 * terminal. It is told in a directory of the test's own, which links to the tree and to what was built.
 */
#include "tests/scratch.h"

#include <dirent.h>
#include <stdarg.h>
#include <sys/wait.h>

enum { COLUMNS = 80 };

static char output[1 << 16];

/* Runs a shell command in the scratch directory, into `output`; its exit status. */
__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...) {
  char command[4 * PATH_MAX];
  va_list arguments;
  int used = snprintf(command, sizeof command, "exec 2>&1; unset MAKEFLAGS MFLAGS MAKELEVEL; cd '%s' && ", scratch);
  va_start(arguments, format);
  vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
  va_end(arguments);
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  output[fread(output, 1, sizeof output - 1, pipe)] = 0;
  int status = pclose(pipe);
  ck_assert_msg(WIFEXITED(status), "%s", output);
  return WEXITSTATUS(status);
}

static void link_to(const char *target, const char *name) {
  char absolute[PATH_MAX];
  ck_assert_msg(realpath(target, absolute) != NULL, "%s", target);
  ck_assert_int_eq(symlink(absolute, in_scratch(name)), 0);
}

static void set_up(void) {
  scratch_make();
  link_to("examples", "examples");
  link_to("include", "include");
  link_to(build_dir(), "build");
  ck_assert_int_eq(mkdir(in_scratch("tests"), 0755), 0);
  link_to("tests/models", "tests/models");
  ck_assert_int_eq(mkdir(in_scratch("tools"), 0755), 0);
  chmod(copy_to_scratch("tools/first-minute", "tools/first-minute"), 0755);
  chmod(copy_to_scratch("tools/progress", "tools/progress"), 0755);
}

/* All, or two where a tool makes that long. */
static void link_golden_files(void) {
  if (rounds(100) == 100) {
    link_to("tests/golden", "tests/golden");
    return;
  }
  ck_assert_int_eq(mkdir(in_scratch("tests/golden"), 0755), 0);
  ck_assert_int_eq(mkdir(in_scratch("tests/golden/silu_and_mul"), 0755), 0);
  link_to("tests/golden/silu_and_mul/f32_1x64_0.safetensors", "tests/golden/silu_and_mul/f32_1x64_0.safetensors");
  link_to("tests/golden/silu_and_mul/f32_7x96_0.safetensors", "tests/golden/silu_and_mul/f32_7x96_0.safetensors");
}

static int count_entries(const char *directory) {
  int n = 0;
  DIR *entries = opendir(directory);
  ck_assert_ptr_nonnull(entries);
  for (const struct dirent *entry; (entry = readdir(entries));)
    n += *entry->d_name != '.';
  closedir(entries);
  return n;
}

static void tell_story(void) {
  link_golden_files();
  ck_assert_msg(shell("tools/first-minute build") == 0, "%s", output);
}

/* Where the words first stand after `from`. */
static const char *find(const char *from, const char *words) {
  const char *at = strstr(from, words);
  ck_assert_msg(at != NULL, "expected '%s' in:\n%s", words, from);
  return at;
}

/* ------------------------------------------------------------------------------------------------------- the story */

START_TEST(the_story_fits_80_columns_and_has_a_line_an_op_and_few_more) {
  tell_story();
  int n = 0;
  for (const char *line = output; *line; line += strcspn(line, "\n") + 1, n++)
    ck_assert_msg(strcspn(line, "\n") <= COLUMNS, "too long: %.*s", (int)strcspn(line, "\n"), line);
  ck_assert_int_le(n, count_entries(in_scratch("tests/golden")) + 55);
  find(output, "\n$ flhost run --summary tests/golden\nOP ");
  find(output, "default.flagos is an operator's default implementation, of kind flagos");
}
END_TEST

/* Those that tests/models/qwen3/expected has. */
START_TEST(a_model_continues_a_prompt_as_transformers_does_by_each_kind_of_implementation) {
  const char *tokens = "\n249 63 68 62 65 100 154 123 113 123 16 67 7 52 67 250\n";
  tell_story();
  const char *reference = find(find(output, "\n$ llm tests/models/qwen3 "), "\n$ VLLM_FL_PREFER=reference llm ");
  ck_assert_ptr_eq(find(find(output, "\n$ llm tests/models/qwen3 "), tokens) + strlen(tokens) - 1, reference);
  find(reference, tokens);
}
END_TEST

START_TEST(each_scene_ends_with_the_implementation_that_it_is_about) {
  tell_story();
  const char *chosen = find(output, "\n1. "), *denied = find(chosen, "\n2. "), *failed = find(denied, "\n3. ");
  find(chosen,
       "\n$ flhost explain --brief silu_and_mul\nsilu_and_mul: vendor.acme, then default.flagos, reference.c\n");
  find(denied,
       "\n$ VLLM_FL_DENY_VENDORS=acme flhost explain --brief silu_and_mul\nsilu_and_mul: default.flagos, then ");
  find(denied, "\n  vendor.acme: vendor 'acme' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)\n");
  find(failed, "\nflhost: WARNING: Implementation 'vendor.flaky' failed for op 'silu_and_mul'");
  find(failed, "\nsilu_and_mul: vendor.acme, then default.flagos, reference.c\n");
  find(failed, "\n  vendor.flaky: failed: the card does not answer; tried again in ");
  find(failed, "\n1 file: 1 ok\n");
}
END_TEST

START_TEST(the_story_can_be_told_again_and_leaves_nothing_outside_the_build) {
  tell_story();
  ck_assert_msg(shell("tools/first-minute build") == 0, "%s", output);
  ck_assert_int_eq(shell("find . -type f | sort | tr '\\n' ' '"), 0);
  ck_assert_str_eq(output, "./tools/first-minute ./tools/progress ");
  ck_assert_int_eq(count_entries(scratch), 5);
}
END_TEST

START_TEST(settings_of_whoever_looks_do_not_change_the_story) {
  link_golden_files();
  ck_assert_msg(shell("VLLM_FL_PREFER=vnedor VLLM_FL_CONFIG=/nonexistent USE_FLAGGEMS=0 tools/first-minute build") == 0,
                "%s", output);
}
END_TEST

START_TEST(the_commands_of_the_story_can_be_repeated_as_they_stand) {
  tell_story();
  write_text("story", output);
  ck_assert_int_eq(shell("awk '/^\\$ / { on = 1 } on { print } !/\\\\$/ { on = 0 }' story | sed 's/^\\$ //' > commands;"
                         " bash -e commands"),
                   0);
  find(output, "silu_and_mul: vendor.acme, then default.flagos, reference.c\n");
}
END_TEST

/* One number of the expected result changed: wrong by far more than the tolerance. */
START_TEST(a_golden_file_that_fails_ends_the_story_with_an_error) {
  size_t length;
  ck_assert_int_eq(mkdir(in_scratch("tests/golden"), 0755), 0);
  unsigned char *bytes = read_file("tests/golden/silu_and_mul/f32_7x96_0.safetensors", &length);
  const char *begin = strstr((char *)bytes + 8, "\"out.out\":"), *offsets = strstr(begin, "\"data_offsets\":[");
  ck_assert(begin && offsets);
  uint64_t header;
  memcpy(&header, bytes, sizeof header);
  float wrong = 1e6f;
  memcpy(bytes + 8 + header + atol(offsets + strlen("\"data_offsets\":[")), &wrong, sizeof wrong);
  write_file("tests/golden/wrong.safetensors", bytes, length);
  free(bytes);
  ck_assert_int_ne(shell("tools/first-minute build"), 0);
  find(output, "1 failed");
  ck_assert_ptr_null(strstr(output, "\n1. "));
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- the progress */

/* Ten files, one after the other. */
static const char makefile[] = "STEPS := $(addprefix out/,0 1 2 3 4 5 6 7 8 9)\n"
                               "all: $(STEPS)\n"
                               "out/%:\n"
                               "\t@mkdir -p out; sleep 0.2\n"
                               "\t@touch $@; : -o $@\n"
                               "bad:\n"
                               "\tfalse -o $@\n";

START_TEST(a_build_says_how_far_it_is_and_one_of_nothing_says_nothing) {
  write_text("Makefile", makefile);
  ck_assert_int_eq(shell("tools/progress make -s all"), 0);
  find(output, " of 10  out\n");
  find(output, "\n 100 %  10 of 10  out\n");
  ck_assert_int_eq(shell("tools/progress make -s all"), 0);
  ck_assert_str_eq(output, "");
}
END_TEST

START_TEST(a_build_that_fails_gives_its_status) {
  write_text("Makefile", makefile);
  ck_assert_int_eq(shell("tools/progress make -s bad"), 2);
  find(output, "make: *** ");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, scratch_remove);
  tcase_add_test(tests, the_story_fits_80_columns_and_has_a_line_an_op_and_few_more);
  tcase_add_test(tests, a_model_continues_a_prompt_as_transformers_does_by_each_kind_of_implementation);
  tcase_add_test(tests, each_scene_ends_with_the_implementation_that_it_is_about);
  tcase_add_test(tests, the_story_can_be_told_again_and_leaves_nothing_outside_the_build);
  tcase_add_test(tests, settings_of_whoever_looks_do_not_change_the_story);
  tcase_add_test(tests, the_commands_of_the_story_can_be_repeated_as_they_stand);
  tcase_add_test(tests, a_golden_file_that_fails_ends_the_story_with_an_error);
  tcase_add_test(tests, a_build_says_how_far_it_is_and_one_of_nothing_says_nothing);
  tcase_add_test(tests, a_build_that_fails_gives_its_status);
}

int main(void) {
  return run_suite("first_minute", add_tests, 60);
}
