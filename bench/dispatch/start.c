/*
 * What starting a host costs. Each start is made in a new process, this program run as `dispatch --child KIND
 * DIRECTORY`, which prints the nanoseconds it took; the two that are compared take turns.
 */
#include "bench/dispatch/dispatch.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char placeholder[] = "bench_idle_000";
enum { NEEDED = 2, TEN = 10, PLACEHOLDER = sizeof placeholder - 1 };

/* A file that changed less than two seconds ago is known by its content alone (core/plugins/verdicts.c). */
enum { SETTLED_SECONDS = 3 };

/* ------------------------------------------------------------------------------------------------------- children */

static int is_plugin(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 3 && !strcmp(entry->d_name + length - 3, ".so");
}

/* Opens the files and finds the entry, which is the least that a loader does. */
static bool open_bare(const char *directory, double *ns) {
  struct dirent **entries;
  int n = scandir(directory, &entries, is_plugin, alphasort);
  char(*paths)[PATH_MAX] = n > 0 ? malloc((size_t)n * sizeof *paths) : NULL;
  bool done = paths != NULL;
  for (int i = 0; i < n && done; i++)
    snprintf(paths[i], sizeof paths[i], "%s/%s", directory, entries[i]->d_name);
  double start = bench_now();
  for (int i = 0; i < n && done; i++) {
    void *library = dlopen(paths[i], RTLD_NOW | RTLD_LOCAL);
    done = library && dlsym(library, "register_builtins");
  }
  *ns = bench_now() - start;
  if (!done)
    fprintf(stderr, "%s: %s\n", directory, paths ? dlerror() : "no plugin there");
  for (int i = 0; i < n; i++)
    free(entries[i]);
  if (n >= 0)
    free(entries);
  free(paths);
  return done;
}

static void quiet(void *user, int level, const char *line) {
  if (level >= FL_LOG_ERROR)
    fprintf(stderr, "%s\n", line);
  (void)user;
}

/* Calls the op of each of the first `n` copies of bench/plugins/idle.c. */
static fl_status call_first(fl_host *host, int n) {
  int64_t shape[] = {1};
  float data[2] = {0};
  DLTensor x = {.data = data, .ndim = 1, .shape = shape, .device = {.device_type = kDLCPU}, .dtype = {kDLFloat, 32, 1}};
  DLTensor out = x;
  out.data = data + 1;
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  fl_call call = FL_CALL(values);
  fl_status status = FL_OK;
  for (int i = 0; i < n && !status; i++) {
    char name[32];
    snprintf(name, sizeof name, "bench_idle_%03d", i);
    status = fl_call_op(host, name, &call);
  }
  return status;
}

static fl_status call_needed(fl_host *host) {
  return call_first(host, NEEDED);
}

static fl_status call_ten(fl_host *host) {
  return call_first(host, TEN);
}

/* Calls rms_norm, which all plugins of the build have an implementation of. */
static fl_status call_norm(fl_host *host) {
  bench_caller *caller = aligned_alloc(_Alignof(bench_caller), sizeof *caller);
  if (!caller)
    return FL_ENOMEM;
  bench_caller_init_rms_norm(caller, host, false);
  fl_status status = fl_invoke(caller->op, &caller->call);
  free(caller);
  return status;
}

static fl_status call_nothing(fl_host *host) {
  (void)host;
  return FL_OK;
}

/* What a child does. */
typedef struct start_kind {
  const char *name;
  fl_status (*call)(fl_host *host);
  const char *setting; /* NULL: none */
} start_kind;

/* A host with the plugins of a directory, and calls of it. */
static bool create_host(const char *directory, const char *home, const start_kind *kind, double *ns) {
  char home_setting[PATH_MAX + 8];
  snprintf(home_setting, sizeof home_setting, "HOME=%s", home);
  const char *const environment[] = {home_setting, kind->setting, NULL};
  const fl_host_options options = {
      .size = sizeof options, .environment = environment, .plugin_path = directory, .log = quiet};
  fl_host *host = NULL;
  double start = bench_now();
  fl_status status = fl_host_create(&options, &host);
  if (!status)
    status = kind->call(host);
  *ns = bench_now() - start;
  if (status)
    fprintf(stderr, "%s: %s\n", directory, fl_error_message());
  fl_host_destroy(host);
  return !status;
}

int bench_start_child(int argc, char **argv) {
  static const start_kind kinds[] = {{"host", call_nothing, NULL},
                                     {"needed", call_needed, NULL},
                                     {"called", call_norm, NULL},
                                     {"ten", call_ten, NULL},
                                     {"ten-untried", call_ten, "VLLM_FL_PROBE=off"}};
  double ns;
  bool done = false;
  if (argc == 2 && !strcmp(argv[0], "bare"))
    done = open_bare(argv[1], &ns);
  for (size_t i = 0; argc == 3 && i < sizeof kinds / sizeof kinds[0]; i++)
    if (!strcmp(argv[0], kinds[i].name))
      done = create_host(argv[1], argv[2], &kinds[i], &ns);
  if (done)
    printf("%.0f\n", ns);
  return done ? 0 : 1;
}

/* This program as a child: the nanoseconds that it prints. */
static bool run_child(const char *const *words, double *ns) {
  const char *arguments[8] = {"--child"};
  char self[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  for (int i = 0; words[i]; i++)
    arguments[i + 1] = words[i];
  if (length < 0)
    return false;
  self[length] = 0;
  return bench_run_child(self, arguments, ns, 1);
}

/* The same two children in turn, after one of each that fills the caches. */
static bool compare_children(const bench *b, const char *const *subject, const char *const *baseline,
                             bench_pair *pair) {
  enum { MOST_ROUNDS = 201 };
  int rounds = b->effort.rounds < MOST_ROUNDS ? b->effort.rounds : MOST_ROUNDS, round = 0;
  double subjects[MOST_ROUNDS], baselines[MOST_ROUNDS], ignored, end = bench_now() + 4 * b->effort.seconds * 1e9;
  bool done = run_child(subject, &ignored) && run_child(baseline, &ignored);
  for (; done && round < rounds && (round < 3 || bench_now() < end); round++)
    done = run_child(subject, &subjects[round]) && run_child(baseline, &baselines[round]);
  return done && bench_pair_of(subjects, baselines, round, pair);
}

/* ---------------------------------------------------------------------------------------------------------- files */

static char *read_whole(const char *name, size_t *size) {
  struct stat status;
  FILE *file = fopen(name, "rbe");
  char *bytes = file && !fstat(fileno(file), &status) ? malloc((size_t)status.st_size) : NULL;
  if (bytes && fread(bytes, 1, (size_t)status.st_size, file) != (size_t)status.st_size) {
    free(bytes);
    bytes = NULL;
  }
  if (bytes)
    *size = (size_t)status.st_size;
  if (file)
    fclose(file);
  return bytes;
}

static bool write_whole(const char *name, const char *bytes, size_t size) {
  int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool done = fd >= 0 && write(fd, bytes, size) == (ssize_t)size;
  return fd >= 0 && !close(fd) && done;
}

/* `n` plugins in a new directory, each with a name of its own in the place of the first's. */
static bool make_plugins(const char *from, const char *directory, int n) {
  size_t size, n_places = 0;
  char *bytes = read_whole(from, &size), name[PATH_MAX + 64], *places[16];
  bool done = bytes && !mkdir(directory, 0755);
  for (char *at = bytes; done && (at = memmem(at, size - (size_t)(at - bytes), placeholder, PLACEHOLDER)); at++)
    if (n_places < sizeof places / sizeof places[0])
      places[n_places++] = at;
  done = done && n_places >= 4; /* plugin, list of ops, op and build id */
  for (int i = 0; i < n && done; i++) {
    char number[16];
    snprintf(number, sizeof number, "%03d", i);
    for (size_t j = 0; j < n_places; j++)
      memcpy(places[j] + PLACEHOLDER - 3, number, 3);
    snprintf(name, sizeof name, "%s/bench_idle_%s.so", directory, number);
    done = write_whole(name, bytes, size);
  }
  free(bytes);
  return done;
}

/* ----------------------------------------------------------------------------------------------------------- rows */

static int count_plugins(const char *directory) {
  struct dirent **entries;
  int n = scandir(directory, &entries, is_plugin, NULL);
  for (int i = 0; i < n; i++)
    free(entries[i]);
  if (n >= 0)
    free(entries);
  return n;
}

static void start_four(bench *b, const char *home) {
  char directory[PATH_MAX], path[PATH_MAX + 16];
  bench_pair pair;
  int n;
  snprintf(path, sizeof path, "%s/plugins", b->build);
  if (!realpath(path, directory)) {
    bench_note(b, ROW_START, "%s: %s", path, strerror(errno));
    bench_note(b, ROW_START_CALLED, "%s: %s", path, strerror(errno));
    return;
  }
  const char *const host[] = {"host", directory, home, NULL}, *const bare[] = {"bare", directory, NULL};
  const char *const called[] = {"called", directory, home, NULL};
  if (compare_children(b, host, bare, &pair))
    bench_set_ratio(b, ROW_START, &pair, 1e3);
  if (compare_children(b, called, bare, &pair))
    bench_set_ratio(b, ROW_START_CALLED, &pair, 1e3);
  else
    bench_note(b, ROW_START_CALLED, "a child failed with the plugins of %s", path);
  if (b->rows[ROW_START].measured && (n = count_plugins(directory)) != 4)
    bench_note(b, ROW_START, "the build has %d plugins, not 4", n);
  else if (!b->rows[ROW_START].measured)
    bench_note(b, ROW_START, "a child failed with the plugins of %s", path);
}

/* What a host costs by itself: settings, platform, registry. */
static void start_empty(bench *b, const char *home) {
  enum { MOST_ROUNDS = 201 };
  char directory[PATH_MAX];
  int rounds = b->effort.rounds < MOST_ROUNDS ? b->effort.rounds : MOST_ROUNDS, round = 0;
  double us[MOST_ROUNDS], ns, end = bench_now() + b->effort.seconds * 1e9;
  snprintf(directory, sizeof directory, "%s/empty", home);
  const char *const words[] = {"host", directory, home, NULL};
  bool done = !mkdir(directory, 0755) && run_child(words, &ns);
  for (; done && round < rounds && (round < 3 || bench_now() < end); round++) {
    done = run_child(words, &ns);
    us[round] = ns / 1e3;
  }
  if (done)
    bench_set_absolute(b, ROW_START_EMPTY, bench_spread_of(us, round));
  else
    bench_note(b, ROW_START_EMPTY, "a child failed");
}

/* The directories of copies, each with so many of them. */
enum { ALL, TWO, TEN_ALONE, DIRECTORIES };

typedef char directories[DIRECTORIES][PATH_MAX];

/* False, with a note: they are not there. */
static bool make_copies(bench *b, directories made) {
  static const char *const names[DIRECTORIES] = {"all", "two", "ten"};
  const int numbers[DIRECTORIES] = {b->quick ? TEN : 100, NEEDED, TEN};
  char from[PATH_MAX];
  snprintf(from, sizeof from, "%s/bench/plugins/idle.so", b->build);
  for (int i = 0; i < DIRECTORIES; i++) {
    snprintf(made[i], sizeof made[i], "%s/%s", b->home, names[i]);
    if (make_plugins(from, made[i], numbers[i]))
      continue;
    bench_note(b, ROW_START_MANY, "cannot make copies of %s: %s", from, strerror(errno));
    bench_note(b, ROW_START_TRIED, "cannot make copies of %s: %s", from, strerror(errno));
    return false;
  }
  return true;
}

/* Plugins that have not changed since they were tried. What was copied at `made` is new for a while. */
static void start_copies(bench *b, const directories copies, double made) {
  bench_pair pair;
  while (!b->quick && bench_now() < made + SETTLED_SECONDS * 1e9)
    usleep(10000);
  const char *const all[] = {"needed", copies[ALL], b->home, NULL}, *const two[] = {"needed", copies[TWO], b->home,
                                                                                    NULL};
  if (compare_children(b, all, two, &pair))
    bench_set_difference(b, ROW_START_MANY, &pair, 1e6);
  else
    bench_note(b, ROW_START_MANY, "a child failed with the copies in %s", copies[ALL]);
  const char *const ten[] = {"ten", copies[TEN_ALONE], b->home, NULL};
  const char *const untried[] = {"ten-untried", copies[TEN_ALONE], b->home, NULL};
  if (compare_children(b, ten, untried, &pair))
    bench_set_difference(b, ROW_START_TRIED, &pair, 1e6);
  else
    bench_note(b, ROW_START_TRIED, "a child failed with the copies in %s", copies[TEN_ALONE]);
}

/* The copies first, so that they have settled when the other rows are done. */
fl_status bench_start(bench *b) {
  directories copies;
  bool copied = make_copies(b, copies);
  double made = bench_now();
  start_four(b, b->home);
  start_empty(b, b->home);
  if (copied)
    start_copies(b, copies, made);
  return FL_OK;
}
