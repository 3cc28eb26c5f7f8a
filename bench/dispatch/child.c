/* Programs that this one runs, and the numbers that they print. */
#include "bench/dispatch/dispatch.h"

#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

bool bench_run_child(const char *program, const char *const *words, double *numbers, int n) {
  const char *arguments[10] = {"dispatch"};
  posix_spawn_file_actions_t actions;
  int ends[2], status = -1, read = 0;
  pid_t child;
  for (int i = 0; words[i]; i++)
    arguments[i + 1] = words[i];
  if (pipe2(ends, O_CLOEXEC))
    return false;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  int error = posix_spawn(&child, program, &actions, NULL, (char *const *)arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  FILE *from = fdopen(ends[0], "r");
  while (!error && from && read < n && fscanf(from, "%lf", &numbers[read]) == 1)
    read++;
  if (from)
    fclose(from);
  else
    close(ends[0]);
  if (error)
    return false;
  return waitpid(child, &status, 0) == child && status == 0 && read == n;
}
