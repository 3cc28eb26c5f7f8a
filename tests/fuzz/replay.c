/*
 * In place of libFuzzer: replay DIRECTORY… runs a target over each file there, in a child, and says which one ends it.
 * The last line is "N files". Exit status 1: a file ended the child, took over ten seconds, or cannot be read.
 */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* In shared memory: what the child is at. */
typedef struct replay_state {
  char path[PATH_MAX];
  int files;
} replay_state;

enum { SECONDS_PER_FILE = 10, FILE_MAX = 1 << 20 };

static int time_factor(void) {
  const char *factor = getenv("CK_TIMEOUT_MULTIPLIER");
  return factor && atoi(factor) > 0 ? atoi(factor) : 1;
}

static void run_file(const char *path) {
  static uint8_t data[FILE_MAX];
  FILE *file = fopen(path, "rb");
  if (!file)
    fuzz_broken("%s: cannot be read", path);
  size_t size = fread(data, 1, sizeof data, file);
  fclose(file);
  /* Of its own size, so that a read past its end is found. */
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy)
    fuzz_broken("out of memory");
  memcpy(copy, data, size);
  alarm((unsigned)(SECONDS_PER_FILE * time_factor()));
  LLVMFuzzerTestOneInput(copy, size);
  alarm(0);
  free(copy);
}

static void run_directory(const char *name, replay_state *progress) {
  DIR *directory = opendir(name);
  if (!directory)
    fuzz_broken("%s: no such directory", name);
  for (const struct dirent *entry; (entry = readdir(directory));) {
    if (*entry->d_name == '.')
      continue;
    snprintf(progress->path, sizeof progress->path, "%s/%s", name, entry->d_name);
    run_file(progress->path);
    progress->files++;
  }
  closedir(directory);
}

int main(int argc, char **argv) {
  replay_state *progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (progress == MAP_FAILED)
    return 1;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    for (int i = 1; i < argc; i++)
      run_directory(argv[i], progress);
    exit(0);
  }
  int status = 1;
  if (child < 0 || waitpid(child, &status, 0) != child)
    return 1;
  if (status) {
    if (WIFSIGNALED(status))
      printf("%s: %s\n", progress->path, strsignal(WTERMSIG(status)));
    else
      printf("%s: exit status %d\n", progress->path, WEXITSTATUS(status));
  }
  printf("%d files\n", progress->files);
  return status != 0;
}
