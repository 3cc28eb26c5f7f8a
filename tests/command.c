/* Scenario tests' helpers: see command.h. */
#include "tests/command.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pty.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORDS = 128, MAX_SETTINGS = 32 };

static char scratch_path[PATH_MAX];
static char *environment[MAX_SETTINGS + 1];

/* What is handed out, for the end of the test. */
static struct kept {
  struct kept *next;
  void *text;
  json_t *json;
} * kept_list;

static void *keep(void *text, json_t *json) {
  struct kept *one = malloc(sizeof *one);
  ck_assert(one && (text || json));
  *one = (struct kept){kept_list, text, json};
  kept_list = one;
  return text;
}

/* ------------------------------------------------------------------------------------------------------------- runs */

void setting(const char *format, ...) {
  char *text;
  size_t i = 0;
  va_list arguments;
  va_start(arguments, format);
  ck_assert_int_gt(vasprintf(&text, format, arguments), 0);
  va_end(arguments);
  size_t length = strcspn(text, "=") + 1;
  while (environment[i] && strncmp(environment[i], text, length) != 0)
    i++;
  ck_assert_uint_lt(i, MAX_SETTINGS);
  environment[i] = keep(text, NULL);
}

/* What sanitizers need to be told, and valgrind of the process that plugins are tried in (tests/run). */
static void keep_sanitizers(void) {
  static const char *const kept[] = {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS", "FLHOST_COMMAND"};
  for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
    if (getenv(kept[i]))
      setting("%s=%s", kept[i], getenv(kept[i]));
}

static char *read_all(int file) {
  size_t size = 0, capacity = 1 << 16;
  char *text = malloc(capacity);
  ck_assert_ptr_nonnull(text);
  for (ssize_t n; (n = read(file, text + size, capacity - size - 1)) > 0;) {
    size += (size_t)n;
    if (size + 1 == capacity) {
      text = realloc(text, capacity *= 2);
      ck_assert_ptr_nonnull(text);
    }
  }
  text[size] = 0;
  return keep(text, NULL);
}

static FILE *temporary_file(void) {
  FILE *file = tmpfile();
  ck_assert_ptr_nonnull(file);
  return file;
}

static char *text_of(FILE *file) {
  lseek(fileno(file), 0, SEEK_SET);
  char *text = read_all(fileno(file));
  fclose(file);
  return text;
}

static rlim_t most_files; /* 0: as this process */

void files_at_most(unsigned n) {
  most_files = n;
}

static pid_t start(const char *name, const char *const *words, int out, int err) {
  char program[PATH_MAX];
  const char *arguments[MAX_WORDS + 2] = {program};
  snprintf(program, sizeof program, "%s/%s", build_dir(), name);
  for (size_t i = 0; words[i]; i++) {
    ck_assert_uint_lt(i, MAX_WORDS);
    arguments[i + 1] = words[i];
  }
  keep_sanitizers();
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    const struct rlimit limit = {most_files, most_files};
    if (most_files && (close_range(STDERR_FILENO + 1, ~0U, 0) || setrlimit(RLIMIT_NOFILE, &limit)))
      _exit(127);
    execve(program, (char *const *)arguments, environment);
    dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
    _exit(127);
  }
  return child;
}

static int finish(pid_t child) {
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

outcome run_built(const char *name, const char *const *words) {
  FILE *out = temporary_file(), *err = temporary_file();
  int status = finish(start(name, words, fileno(out), fileno(err)));
  return (outcome){text_of(out), text_of(err), status};
}

outcome run_flhost(const char *const *words) {
  return run_built("flhost", words);
}

outcome run_flhost_into(const char *path, const char *const *words) {
  int out = open(path, O_WRONLY);
  FILE *err = temporary_file();
  ck_assert_int_ge(out, 0);
  int status = finish(start("flhost", words, out, fileno(err)));
  close(out);
  return (outcome){NULL, text_of(err), status};
}

outcome run_flhost_on_terminal(const char *const *words) {
  int out, terminal;
  FILE *err = temporary_file();
  struct winsize size = {.ws_row = 24, .ws_col = 100};
  ck_assert_int_eq(openpty(&terminal, &out, NULL, NULL, &size), 0);
  pid_t child = start("flhost", words, out, fileno(err));
  close(out);
  char *text = read_all(terminal); /* until the child has closed the other end */
  close(terminal);
  int status = finish(child);
  return (outcome){text, text_of(err), status};
}

/* ------------------------------------------------------------------------------------------------------------ files */

const char *scratch_dir(void) {
  const char *parent = getenv("TMPDIR");
  if (!*scratch_path) {
    snprintf(scratch_path, sizeof scratch_path, "%s/flhost-cli-XXXXXX", parent && *parent ? parent : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(scratch_path));
  }
  return scratch_path;
}

static int remove_entry(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status, (void)type, (void)place;
  return remove(path);
}

void end_scenario(void) {
  if (*scratch_path)
    nftw(scratch_path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  while (kept_list) {
    struct kept *one = kept_list;
    kept_list = one->next;
    json_decref(one->json);
    free(one->text);
    free(one);
  }
}

const char *scratch(const char *format, ...) {
  char *name, *path;
  va_list arguments;
  va_start(arguments, format);
  ck_assert_int_ge(vasprintf(&name, format, arguments), 0);
  va_end(arguments);
  ck_assert_int_gt(asprintf(&path, "%s/%s", scratch_dir(), name), 0);
  free(name);
  return keep(path, NULL);
}

const char *scratch_file(const char *name, const char *text) {
  const char *path = scratch("%s", name);
  FILE *file = fopen(path, "w");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_ge(fputs(text, file), 0);
  ck_assert_int_eq(fclose(file), 0);
  return path;
}

void copy_built(const char *from, const char *directory) {
  char path[PATH_MAX], buffer[1 << 16];
  const char *name = strrchr(from, '/') ? strrchr(from, '/') + 1 : from;
  snprintf(path, sizeof path, "%s/%s", build_dir(), from);
  mkdir(scratch("%s", directory), 0755);
  FILE *in = fopen(path, "rb"), *out = fopen(scratch("%s/%s", directory, name), "wb");
  ck_assert_msg(in && out, "cannot copy %s: %s", path, strerror(errno));
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, in));)
    ck_assert_uint_eq(fwrite(buffer, 1, n, out), n);
  fclose(in);
  ck_assert_int_eq(fclose(out), 0);
}

/* ------------------------------------------------------------------------------------------------------- assertions */

void assert_contains(const char *text, const char *expected) {
  ck_assert_msg(strstr(text, expected) != NULL, "expected '%s' in:\n%.3000s", expected, text);
}

void assert_lacks(const char *text, const char *unexpected) {
  ck_assert_msg(strstr(text, unexpected) == NULL, "did not expect '%s' in:\n%.3000s", unexpected, text);
}

json_t *parse_json(const char *text, json_type type) {
  json_error_t error;
  json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  ck_assert_msg(value != NULL, "%s at %d:%d of:\n%.3000s", error.text, error.line, error.column, text);
  keep(NULL, value);
  ck_assert_int_eq(json_typeof(value), type);
  return value;
}

void assert_keys(const json_t *object, const char *const *keys) {
  size_t n = 0;
  ck_assert(json_is_object(object));
  for (; keys[n]; n++)
    ck_assert_msg(json_object_get(object, keys[n]) != NULL, "key '%s' is missing", keys[n]);
  ck_assert_uint_eq(json_object_size(object), n);
}
