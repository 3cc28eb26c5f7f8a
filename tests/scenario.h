/* What the scenario suites share: where a scenario starts, and how an outcome is judged. */
#ifndef FLHOST_TESTS_SCENARIO_H
#define FLHOST_TESTS_SCENARIO_H

#include "tests/command.h"
#include <sys/stat.h>

/* A fixture's setup: a directory with two good plugins, an empty one for platform files, and nothing else set. Its
 * teardown is end_scenario. */
static inline void begin_scenario(void) {
  copy_built("plugins/cpu.so", "plugins");
  copy_built("tests/plugins/two_vendors.so", "plugins");
  mkdir(scratch("platforms"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_CONFIG_DIR=%s", scratch("platforms"));
  setting("VLLM_FL_PLATFORM=cpu");
  setting("HWLOC_COMPONENTS=-pci,-x86"); /* hwloc's own: libpciaccess leaks, and the x86 part speaks under valgrind */
}

static inline void assert_status(outcome run, int expected) {
  ck_assert_msg(run.status == expected, "exit status %d, expected %d\nstdout:\n%.3000s\nstderr:\n%.3000s", run.status,
                expected, run.out, run.err);
}

/* Succeeded, and said nothing that nobody asked for. */
static inline void assert_quiet(outcome run) {
  assert_status(run, 0);
  ck_assert_str_eq(run.err, "");
}

/* Refused: exit status 2, nothing on standard output, and messages that all have the prefix. */
static inline void assert_refused(outcome run) {
  assert_status(run, 2);
  ck_assert_str_eq(run.out, "");
  for (const char *line = run.err; *line; line = strchr(line, '\n') + 1)
    ck_assert_msg(!strncmp(line, "flhost: ", 8), "no prefix: %s", line);
}

/* Refused with these words among the messages. */
static inline void assert_refused_with(outcome run, const char *words) {
  assert_refused(run);
  assert_contains(run.err, words);
}

/* The string at a key of an object. */
static inline const char *text_at(const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  ck_assert_msg(text != NULL, "no string at '%s'", key);
  return text;
}

/* The entry of a list whose `key` is `value`. */
static inline json_t *entry_of(const json_t *list, const char *key, const char *value) {
  json_t *entry;
  size_t index;
  json_array_foreach(list, index, entry) if (!strcmp(text_at(entry, key), value)) return entry;
  ck_abort_msg("no entry with %s '%s'", key, value);
  return NULL;
}

#endif
