/* For scenario tests: runs a built program with an environment of the test's own and keeps what it printed. */
#ifndef FLHOST_TESTS_COMMAND_H
#define FLHOST_TESTS_COMMAND_H

#include "tests/suite.h"
#include <jansson.h>
#include <stdbool.h>

/* What a run left behind. `status` is the exit status, or 128 + the signal that ended it. */
typedef struct outcome {
  char *out, *err;
  int status;
} outcome;

/* Adds NAME=VALUE to the environment of the test's later runs, which have no other; replaces an earlier one of that
 * name. */
void setting(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* How many descriptors later runs may have open; 0: as many as this process. */
void files_at_most(unsigned n);

/* Runs build/flhost with these words. */
#define FLHOST(...) run_flhost((const char *const[]){__VA_ARGS__, NULL})
outcome run_flhost(const char *const *words);
/* Another program of the build. */
outcome run_built(const char *name, const char *const *words);

/* With standard output a terminal 100 columns wide, or a file that is there. */
outcome run_flhost_on_terminal(const char *const *words);
outcome run_flhost_into(const char *path, const char *const *words);

/* A fixture's teardown: frees all that the functions here have handed out and removes the scratch directory. */
void end_scenario(void);

/* A directory of the test's own, made at first use. */
const char *scratch_dir(void);

/* A path in it. */
const char *scratch(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes a file in it; its path. */
const char *scratch_file(const char *name, const char *text);

/* Copies a file of the build ("plugins/cpu.so") into a directory of the scratch directory, which is made if need be. */
void copy_built(const char *from, const char *directory);

void assert_contains(const char *text, const char *expected);
void assert_lacks(const char *text, const char *unexpected);

/* Parses text as JSON of that type; fails the test if it is none. */
json_t *parse_json(const char *text, json_type type);

/* Fails the test unless the object has just these keys (a list ended by NULL). */
void assert_keys(const json_t *object, const char *const *keys);

#endif
