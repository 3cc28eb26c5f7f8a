/* What every suite shares: one test case a function, each test in a process of its own (Check's fork mode). */
#ifndef FLHOST_TESTS_SUITE_H
#define FLHOST_TESTS_SUITE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs one suite; the program's exit status. `timeout` is in seconds, for each test. */
static inline int run_suite(const char *name, void (*add_tests)(TCase *), double timeout) {
  Suite *suite = suite_create(name);
  TCase *tests = tcase_create(name);
  SRunner *runner;
  int failed;
  tcase_set_timeout(tests, timeout);
  add_tests(tests);
  suite_add_tcase(suite, tests);
  runner = srunner_create(suite);
  srunner_run_all(runner, CK_NORMAL);
  failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Under a tool a sample of what takes long is made: FLHOST_SAMPLE=16 asks for a sixteenth (the address sanitizer), 100
 * for a hundredth (valgrind, the thread sanitizer). 1: all of it. */
static inline int sample(void) {
  const char *asked = getenv("FLHOST_SAMPLE");
  return asked && atoi(asked) > 1 ? atoi(asked) : 1;
}

/* Where threads take turns, and children of a fork beside them hang, or are misread. */
static inline int is_sparse(void) {
  return sample() >= 100;
}

/* `n` rounds, or a sample of them. */
static inline int rounds(int n) {
  return (n + sample() - 1) / sample();
}

/* The same for the number of a loop test's cases, of which a third is the least. */
static inline int loop_cases(int n) {
  return is_sparse() ? (n + 2) / 3 : n;
}

/* An assertion for loops over many elements: Check writes a line to a file for each of its own, also for those that
 * hold. */
#define ck_each(condition, ...)                                                                                        \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      ck_abort_msg(__VA_ARGS__);                                                                                       \
  } while (0)

/* The directory of what was built (FLHOST_BUILD, else "build"). Tests run in the project's root. */
static inline const char *build_dir(void) {
  const char *dir = getenv("FLHOST_BUILD");
  return dir ? dir : "build";
}

#endif
