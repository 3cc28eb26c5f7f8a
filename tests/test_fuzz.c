/* What is kept for each fuzz target, replayed: inputs that reach much, and all that ever did harm. */
#include "tests/suite.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TARGETS_MAX = 32 };

static char targets[TARGETS_MAX][64];
static int n_targets;

/* Every target in tests/fuzz/targets. */
static void find_targets(void) {
  DIR *directory = opendir("tests/fuzz/targets");
  for (const struct dirent *entry; directory && (entry = readdir(directory));) {
    const char *end = strstr(entry->d_name, ".c");
    if (end && !end[2] && n_targets < TARGETS_MAX)
      snprintf(targets[n_targets++], sizeof *targets, "%.*s", (int)(end - entry->d_name), entry->d_name);
  }
  if (directory)
    closedir(directory);
}

START_TEST(a_target_ends_well_on_all_that_is_kept_for_it) {
  char command[512], said[4096] = "";
  snprintf(command, sizeof command, "%s/tests/fuzz/%s tests/fuzz/corpus/%s 2>&1", build_dir(), targets[_i],
           targets[_i]);
  FILE *pipe = popen(command, "r");
  ck_assert_ptr_nonnull(pipe);
  size_t length = fread(said, 1, sizeof said - 1, pipe);
  said[length] = '\0';
  int status = pclose(pipe), files = 0;
  ck_assert_msg(status == 0, "%s: %s", command, said);
  const char *last = strstr(said, " files");
  while (last && last > said && last[-1] != '\n')
    last--;
  ck_assert_msg(last && sscanf(last, "%d files", &files) == 1 && files > 0, "%s: no input: %s", command, said);
}
END_TEST

START_TEST(there_are_targets_for_all_that_other_people_write) {
  ck_assert_int_ge(n_targets, 12);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, there_are_targets_for_all_that_other_people_write);
  tcase_add_loop_test(tests, a_target_ends_well_on_all_that_is_kept_for_it, 0, n_targets);
}

int main(void) {
  find_targets();
  return run_suite("fuzz", add_tests, 60);
}
