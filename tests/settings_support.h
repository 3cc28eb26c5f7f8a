/* What the suites about settings share: files in a directory of their own, sources, and the log lines of a load. */
#ifndef FLHOST_TESTS_SETTINGS_SUPPORT_H
#define FLHOST_TESTS_SETTINGS_SUPPORT_H

#include "core/settings.h"
#include "tests/suite.h"

#include <sys/stat.h>
#include <unistd.h>

/* The row of a setting by its name. */
static inline fl_setting_id setting_id(const char *name) {
  size_t id = 0;
  while (id < FL_N_SETTINGS && strcmp(fl_setting_name(&fl_setting_table[id]), name))
    id++;
  ck_assert_msg(id < FL_N_SETTINGS, "no setting %s", name);
  return (fl_setting_id)id;
}

/* Fails the test unless the setting's value is that as JSON. */
static inline void expect_value(const fl_config *config, const char *name, const char *value, const char *why) {
  fl_text json = {0};
  fl_setting_id id = setting_id(name);
  fl_setting_table[id].type->to_json(&fl_setting_table[id], &config->values[id], &json);
  ck_assert_msg(!strcmp(fl_text_get(&json), value), "%s: %s is %s, expected %s", why, name, fl_text_get(&json), value);
  fl_text_free(&json);
}

/* Platforms as a host may know them. */
static inline const char *find_platform(const void *context, const char *word) {
  static const char *const names[][2] = {{"cpu", "cpu"},  {"cuda", "cuda"},     {"nvidia", "cuda"}, {"rocm", "rocm"},
                                         {"amd", "rocm"}, {"ascend", "ascend"}, {"npu", "ascend"}};
  (void)context;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!strcmp(word, names[i][0]))
      return names[i][1];
  return NULL;
}

/* A directory that goes away with the test. */
typedef struct scratch_dir {
  char dir[64];
  fl_strings files;
} scratch_dir;

static inline void scratch_begin(scratch_dir *scratch) {
  *scratch = (scratch_dir){0};
  snprintf(scratch->dir, sizeof scratch->dir, "/tmp/flhost-settings-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(scratch->dir));
}

/* Writes a file; its path lives as long as the directory. */
static inline const char *scratch_file(scratch_dir *scratch, const char *name, const char *text) {
  char *path = fl_format("%s/%s", scratch->dir, name);
  ck_assert(fl_strings_add(&scratch->files, path));
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fwrite(text, 1, strlen(text), file), strlen(text));
  ck_assert_int_eq(fclose(file), 0);
  free(path);
  return scratch->files.items[scratch->files.n - 1];
}

static inline void scratch_end(scratch_dir *scratch) {
  for (uint32_t i = 0; i < scratch->files.n; i++)
    unlink(scratch->files.items[i]);
  ck_assert_int_eq(rmdir(scratch->dir), 0);
  fl_strings_free(&scratch->files);
}

/* Log lines as "WARNING text". */
typedef struct log_lines {
  fl_log log;
  fl_strings lines;
} log_lines;

static inline void add_log_line(void *user, int level, const char *line) {
  log_lines *lines = user;
  char *text = fl_format("%s %s", fl_log_level_name(level), line);
  ck_assert(fl_strings_add(&lines->lines, text));
  free(text);
}

static inline void log_begin(log_lines *lines) {
  *lines = (log_lines){.log = {.fn = add_log_line, .user = lines}};
  atomic_init(&lines->log.level, FL_LOG_DEBUG);
}

/* The first line that holds `part`, NULL if none. */
static inline const char *log_find(const log_lines *lines, const char *part) {
  for (uint32_t i = 0; i < lines->lines.n; i++)
    if (strstr(lines->lines.items[i], part))
      return lines->lines.items[i];
  return NULL;
}

static inline uint32_t log_count(const log_lines *lines, const char *part) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < lines->lines.n; i++)
    n += strstr(lines->lines.items[i], part) != NULL;
  return n;
}

#endif
