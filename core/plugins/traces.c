/* What a plugin leaves behind: see traces.h. */
#include "core/plugins/traces.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* 0: nobody says. */
static long count_threads(void) {
  DIR *tasks = opendir("/proc/self/task");
  const struct dirent *entry;
  long n = 0;
  while (tasks && (entry = readdir(tasks)))
    n += entry->d_name[0] != '.';
  if (tasks)
    closedir(tasks);
  return n;
}

static void read_files(fl_traces *traces) {
  struct stat status;
  for (int i = 0; i < FL_TRACED_FILES; i++) {
    bool is_open = !fstat(i, &status);
    traces->files[i].device = is_open ? status.st_dev : 0;
    traces->files[i].inode = is_open ? status.st_ino : 0;
  }
}

void fl_traces_read(fl_traces *traces) {
  *traces = (fl_traces){.threads = count_threads()};
  fl_process_state_read(&traces->state);
  read_files(traces);
  for (char **entry = environ; entry && *entry; entry++)
    fl_strings_add(&traces->environment, *entry);
}

typedef struct comparison {
  void (*report)(void *user, const char *what);
  void *user;
} comparison;

static void report_state(void *user, const char *what, bool restored) {
  const comparison *c = user;
  (void)restored;
  c->report(c->user, what);
}

static void compare_files(const comparison *c, const fl_traces *before, const fl_traces *now) {
  int more = 0, less = 0, other = 0;
  char words[96];
  for (int i = 0; i < FL_TRACED_FILES; i++) {
    bool was = before->files[i].inode, is = now->files[i].inode;
    more += is && !was;
    less += was && !is;
    other += was && is && memcmp(&before->files[i], &now->files[i], sizeof now->files[i]) != 0;
  }
  snprintf(words, sizeof words, "descriptors (%d more, %d closed, %d exchanged)", more, less, other);
  if (more || less || other)
    c->report(c->user, words);
}

/* Values are nobody's business. */
static void report_variable(const comparison *c, const char *entry) {
  char words[96];
  snprintf(words, sizeof words, "the environment (%.*s)", (int)strcspn(entry, "="), entry);
  c->report(c->user, words);
}

static void compare_environment(const comparison *c, const fl_strings *before, const fl_strings *now) {
  for (uint32_t i = 0; i < now->n; i++)
    if (!fl_strings_has(before, now->items[i])) {
      report_variable(c, now->items[i]);
      return;
    }
  for (uint32_t i = 0; i < before->n; i++)
    if (!fl_strings_has(now, before->items[i])) {
      report_variable(c, before->items[i]);
      return;
    }
}

void fl_traces_compare(fl_traces *before, void (*report)(void *user, const char *what), void *user) {
  const comparison c = {report, user};
  fl_traces *now = calloc(1, sizeof *now);
  char words[64];
  siginfo_t child;
  fl_process_state_compare(&before->state, report_state, (void *)(uintptr_t)&c);
  if (now) {
    now->threads = count_threads();
    read_files(now);
    for (char **entry = environ; entry && *entry; entry++)
      fl_strings_add(&now->environment, *entry);
    compare_files(&c, before, now);
    compare_environment(&c, &before->environment, &now->environment);
    if (now->threads > before->threads) {
      snprintf(words, sizeof words, "threads (%ld that go on running)", now->threads - before->threads);
      report(user, words);
    }
    fl_strings_free(&now->environment);
  }
  if (!waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT))
    report(user, "processes (it left some behind)");
  fl_strings_free(&before->environment);
  free(now);
}
