/* The threads of this process, by their names. */
#ifndef FLHOST_TESTS_TASKS_H
#define FLHOST_TESTS_TASKS_H

#include "tests/suite.h"
#include <dirent.h>
#include <unistd.h>

/* How many have this name and state ('S' for asleep); NULL and 0 for any. */
static inline int listed_threads(const char *name, char state) {
  DIR *tasks = opendir("/proc/self/task");
  int n = 0;
  ck_assert_ptr_nonnull(tasks);
  for (struct dirent *task; (task = readdir(tasks));) {
    char path[300], its_name[32] = "", its_state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", task->d_name);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%*d (%31[^)]) %c", its_name, &its_state) == 2)
      n += (!name || !strcmp(its_name, name)) && (!state || its_state == state);
    if (file)
      fclose(file);
  }
  closedir(tasks);
  return n;
}

/* The same, once they are as many as are expected, or after ten seconds: a thread that was joined may be listed a
 * little longer, and one that has nothing to do be awake. */
static inline int come_to(int expected, const char *name, char state) {
  int n = listed_threads(name, state);
  for (int i = 0; n != expected && i < 10000; i++) {
    usleep(1000);
    n = listed_threads(name, state);
  }
  return n;
}

static inline void check_threads(const char *name, int expected) {
  ck_assert_int_eq(come_to(expected, name, 0), expected);
}

#endif
