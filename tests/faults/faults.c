/*
 * Faults at every site: each path of the library (paths.c) is run again and again, each time with another call of the C
 * library failing (inject.c), once only, and from there on. Whatever fails, it must hold that
 *
 *  - nothing crashes, hangs, or ends the process;
 *  - what is given out is whole: all that is found without faults, or an error with words, or a warning in the log;
 *  - the standard streams are the same files as before, and no descriptor is left open;
 *  - the same path, run again without faults, finds all.
 *
 *     faults [--every] [--fault NAME]... [--path NAME]...
 *
 * Of more than 150 sites of a path that many are taken, evenly, unless --every is given. Prints a table; the last line
 * is "N passed, N failed"; exits 1 with what went wrong, where.
 */
#include "tests/faults/inject.h"
#include "tests/faults/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma weak inject_faults
#pragma weak end_of_faults

enum { SITES = 150, SITES_ON = 25, SECONDS = 20, SHOWN = 10, DETAIL = 240 };

static const char *const fault_names[N_FAULTS] = {[FAULT_MEMORY] = "memory",
                                                  [FAULT_DESCRIPTORS] = "descriptors",
                                                  [FAULT_INTERRUPTED] = "interrupted",
                                                  [FAULT_READ] = "read",
                                                  [FAULT_SHORT] = "short",
                                                  [FAULT_SPACE] = "space",
                                                  [FAULT_PROCESSES] = "processes",
                                                  [FAULT_PROC] = "proc",
                                                  [FAULT_READ_ONLY] = "read-only",
                                                  [FAULT_MISSING] = "missing",
                                                  [FAULT_CUT] = "cut",
                                                  [FAULT_CHANGED] = "changed",
                                                  [FAULT_AHEAD] = "ahead",
                                                  [FAULT_BEHIND] = "behind"};

/* Shared with the child. */
typedef struct run_report {
  findings expected, found;
  long sites;
  char words[600]; /* what went wrong, "" if nothing */
} run_report;

static run_report *shared;
static char directory[PATH_MAX], build[PATH_MAX];
static long passed, failed;

/* ----------------------------------------------------------------------------------------------------- one attempt */

typedef struct open_files {
  int open;
  struct stat standard[3];
} open_files;

static open_files look_at_descriptors(void) {
  open_files now = {0};
  for (int i = 0; i < 3; i++)
    fstat(i, &now.standard[i]);
  for (int i = 3; i < 1024; i++)
    now.open += fcntl(i, F_GETFD) >= 0;
  return now;
}

static void wrong(const char *words, const char *detail) {
  if (!*shared->words)
    snprintf(shared->words, sizeof shared->words, "%s%s%.*s", words, *detail ? ": " : "", DETAIL, detail);
}

static void compare_descriptors(const open_files *before) {
  open_files after = look_at_descriptors();
  for (int i = 0; i < 3; i++)
    if (after.standard[i].st_ino != before->standard[i].st_ino ||
        after.standard[i].st_dev != before->standard[i].st_dev)
      wrong("a standard stream is another file, or closed", "");
  if (after.open > before->open)
    wrong("descriptors are left open", "");
}

/* The part of a finding that another lacks, in one line. */
static const char *from_the_difference(findings *found, const findings *expected) {
  size_t same = 0;
  while (found->text[same] && found->text[same] == expected->text[same])
    same++;
  for (char *c = found->text; *c; c++)
    if (*c == '\n')
      *c = ' ';
  return found->text + (same > 40 ? same - 40 : 0);
}

/* What plugins that failed say. */
static void add_reasons(fl_host *host, findings *found) {
  fl_plugins *plugins = NULL;
  const fl_plugin_info *plugin;
  if (!host || fl_get_discovered_plugins(host, &plugins))
    return;
  for (uint32_t i = 0; (plugin = fl_plugin_at(plugins, i)); i++)
    if (!strcmp(plugin->status, "failed"))
      found->length += (size_t)snprintf(found->text + found->length, sizeof found->text - found->length, "%s: %s; ",
                                        plugin->name, plugin->reason);
  fl_plugins_free(plugins);
}

static int by_text(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Implementations of one rank stand in the order of registration, and a plugin that failed comes later: parts that end
 * in "; " are sorted. */
static void sort_parts(findings *found) {
  static char text[sizeof found->text], *parts[4096];
  size_t n = 0;
  memcpy(text, found->text, sizeof text);
  for (char *at = text, *end; n < 4096 && *at; at = end) {
    end = strstr(at, "; ");
    parts[n++] = at;
    if (end)
      *end = '\0';
    end = end ? end + 2 : at + strlen(at);
  }
  qsort(parts, n, sizeof *parts, by_text);
  found->length = 0;
  for (size_t i = 0; i < n; i++)
    found->length +=
        (size_t)snprintf(found->text + found->length, sizeof found->text - found->length, "%s; ", parts[i]);
}

/* What came of the run that faults were let into. */
static void judge(const fault_path *path, const fault_place *place, fl_status status) {
  if (status) {
    if (!*fl_error_message())
      wrong("an error without words", "");
  } else if (strcmp(shared->found.text, shared->expected.text) != 0) {
    if (!path->may_find_less || !place->warnings)
      wrong("something else is found, in silence", from_the_difference(&shared->found, &shared->expected));
  }
}

/* Whose file was not there, or was another, has failed until plugins are discovered again. */
static bool is_of_a_file(fault_kind fault) {
  return fault == FAULT_MISSING || fault == FAULT_CUT || fault == FAULT_CHANGED;
}

static void attempt(const fault_path *path, fault_kind fault, long first, long last) {
  fault_place place = {.build = build, .directory = directory};
  static findings again;
  alarm(SECONDS);
  if (!path->own_host && new_host(&place, &place.host)) {
    wrong("no host", fl_error_message());
    return;
  }
  open_files before = look_at_descriptors();
  inject_faults(fault, first, last);
  fl_status status = path->run(&place, &shared->found);
  shared->sites = end_of_faults();
  sort_parts(&shared->found);
  if (first < 0) {
    shared->expected = shared->found;
    if (status)
      wrong("fails without faults", fl_error_message());
    return;
  }
  judge(path, &place, status);
  if (path->own_host)
    compare_descriptors(&before);
  again.length = 0;
  if (is_of_a_file(fault) && place.host && fl_discover_plugins(place.host, NULL))
    wrong("discovers nothing afterwards", fl_error_message());
  fl_status afterwards = path->run(&place, &again);
  add_reasons(place.host, &again);
  sort_parts(&again);
  if (afterwards)
    wrong("fails afterwards", fl_error_message());
  else if (strcmp(again.text, shared->expected.text) != 0)
    wrong("finds something else afterwards", from_the_difference(&again, &shared->expected));
  fl_host_destroy(place.host);
}

/* In a child. true: all held. */
static bool attempt_apart(const fault_path *path, fault_kind fault, long first, long last) {
  *shared->words = '\0';
  memset(&shared->found, 0, sizeof shared->found);
  pid_t child = fork();
  if (child == 0) {
    attempt(path, fault, first, last);
    _exit(0);
  }
  int status = 1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    ;
  if (child < 0)
    wrong("no child", strerror(errno));
  else if (WIFSIGNALED(status))
    wrong(WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)), "");
  else if (status)
    wrong("ended the process", "");
  return !*shared->words;
}

/* ------------------------------------------------------------------------------------------------------------ all of
 * it
 */

static void try_sites(const fault_path *path, fault_kind fault, long sites, long most, bool from_there_on, long *good,
                      long *bad) {
  long step = most && sites > most ? sites / most : 1;
  for (long site = 0; site < sites; site += step) {
    if (attempt_apart(path, fault, site, from_there_on ? LONG_MAX : site + 1)) {
      ++*good;
      continue;
    }
    if (++*bad <= SHOWN)
      printf("  %s, %s %ld%s: %s\n", path->name, fault_names[fault], site, from_there_on ? " and on" : "",
             shared->words);
  }
}

static void try_path(const fault_path *path, fault_kind fault, bool every) {
  long good = 0, bad = 0;
  memset(&shared->expected, 0, sizeof shared->expected);
  if (!attempt_apart(path, fault, -1, -1)) {
    printf("  %s: %s\n", path->name, shared->words);
    failed++;
    return;
  }
  long sites = shared->sites;
  try_sites(path, fault, sites, every ? 0 : SITES, false, &good, &bad);
  if (fault != FAULT_INTERRUPTED) /* whoever is interrupted tries again */
    try_sites(path, fault, sites, every ? 0 : SITES_ON, true, &good, &bad);
  if (sites)
    printf("%-12s %-12s %6ld sites, %6ld tried, %4ld failed\n", path->name, fault_names[fault], sites, good + bad, bad);
  fflush(stdout);
  passed += good;
  failed += bad;
}

static bool copy(const char *from, const char *to) {
  char buffer[1 << 16];
  FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
  bool good = in && out;
  for (size_t n; good && (n = fread(buffer, 1, sizeof buffer, in));)
    good = fwrite(buffer, 1, n, out) == n;
  if (in)
    fclose(in);
  if (out)
    good = !fclose(out) && good;
  return good && !chmod(to, 0755);
}

/* What the paths read. */
static bool make_directory(void) {
  char path[PATH_MAX + 64], from[PATH_MAX + 64];
  const char *where = getenv("TMPDIR");
  snprintf(directory, sizeof directory, "%s/flhost-faults-XXXXXX", where && *where ? where : "/tmp");
  if (!mkdtemp(directory))
    return false;
  static const char *const made[] = {"plugins", "other", "home"};
  for (int i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "%s/%s", directory, made[i]);
    if (mkdir(path, 0755))
      return false;
  }
  snprintf(path, sizeof path, "%s/policy.yaml", directory);
  FILE *file = fopen(path, "w");
  if (!file)
    return false;
  fputs("prefer: flagos\nop_backends:\n  silu_and_mul: [vendor, reference]\n  gelu: [reference]\n", file);
  fclose(file);
  snprintf(path, sizeof path, "%s/retry.yaml", directory);
  file = fopen(path, "w");
  if (!file)
    return false;
  fputs("retry_first_s: 0.03\nretry_max_s: 0.03\n", file);
  fclose(file);
  snprintf(path, sizeof path, "%s/home", directory);
  setenv("HOME", path, 1);
  unsetenv("XDG_CACHE_HOME");
  static const char *const plugins[][2] = {{"listed/lazy_a.so", "plugins/lazy_a.so"},
                                           {"good.so", "plugins/good.so"},
                                           {"two_vendors.so", "other/two_vendors.so"},
                                           {"../../plugins/shm.so", "plugins/shm.so"}};
  for (size_t i = 0; i < sizeof plugins / sizeof *plugins; i++) {
    snprintf(from, sizeof from, "%s/tests/plugins/%s", build, plugins[i][0]);
    snprintf(path, sizeof path, "%s/%s", directory, plugins[i][1]);
    if (!copy(from, path))
      return false;
  }
  return true;
}

static void remove_directory(void) {
  char command[PATH_MAX + 16];
  snprintf(command, sizeof command, "rm -rf '%s'", directory);
  if (*directory && system(command))
    fprintf(stderr, "%s is left\n", directory);
}

static bool chosen(const char *name, const char *const *names, int n) {
  for (int i = 0; i < n; i++)
    if (!strcmp(name, names[i]))
      return true;
  return n == 0;
}

int main(int argc, char **argv) {
  static const struct option options[] = {{"every", no_argument, NULL, 'e'},
                                          {"fault", required_argument, NULL, 'f'},
                                          {"path", required_argument, NULL, 'p'},
                                          {0}};
  const char *only_faults[16], *only_paths[32];
  int n_only_faults = 0, n_only_paths = 0;
  bool every = false;
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option == 'e')
      every = true;
    else if (option == 'f' && n_only_faults < 16)
      only_faults[n_only_faults++] = optarg;
    else if (option == 'p' && n_only_paths < 32)
      only_paths[n_only_paths++] = optarg;
    else
      return 2;
  }
  if (!inject_faults || !end_of_faults) {
    fputs("faults: libinject.so is not preloaded: make check-faults\n", stderr);
    return 2;
  }
  const char *where = getenv("FLHOST_BUILD");
  if (!realpath(where ? where : "build", build) || !make_directory()) {
    perror("faults");
    remove_directory();
    return 2;
  }
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int fault = FAULT_MEMORY; fault < N_FAULTS; fault++)
    for (size_t i = 0; i < n_paths; i++)
      if (fault >= (int)paths[i].first && chosen(fault_names[fault], only_faults, n_only_faults) &&
          chosen(paths[i].name, only_paths, n_only_paths))
        try_path(&paths[i], (fault_kind)fault, every);
  remove_directory();
  printf("%ld passed, %ld failed\n", passed, failed);
  return failed || !passed;
}
