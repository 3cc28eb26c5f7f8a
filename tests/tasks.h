/* The threads of this process, by their names. */
#ifndef FLHOST_TESTS_TASKS_H
#define FLHOST_TESTS_TASKS_H

#include "tests/suite.h"
#include <dirent.h>

static inline int threads_named(const char *wanted) {
  DIR *tasks = opendir("/proc/self/task");
  int n = 0;
  ck_assert_ptr_nonnull(tasks);
  for (struct dirent *task; (task = readdir(tasks));) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE *file = fopen(path, "r");
    if (file && fgets(name, sizeof name, file)) {
      name[strcspn(name, "\n")] = 0;
      n += !strcmp(name, wanted);
    }
    if (file)
      fclose(file);
  }
  closedir(tasks);
  return n;
}

#endif
