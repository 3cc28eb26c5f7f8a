#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Noreturn void fuzz_broken(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  abort();
}

static char directory[256];

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where) {
  (void)status, (void)type, (void)where;
  return remove(path);
}

static void remove_directory(void) {
  nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_directory(void) {
  if (!*directory) {
    const char *where = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/flhost-fuzz-XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(directory))
      fuzz_broken("cannot make a directory %s", directory);
    atexit(remove_directory);
  }
  return directory;
}

const char *fuzz_named_file(const char *name, const uint8_t *data, size_t size) {
  static char path[512];
  snprintf(path, sizeof path, "%s/%s", fuzz_directory(), name);
  char *slash = strrchr(path, '/');
  *slash = '\0';
  if (mkdir(path, 0700) && errno != EEXIST)
    fuzz_broken("cannot make a directory %s", path);
  *slash = '/';
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || write(file, data, size) != (ssize_t)size || close(file))
    fuzz_broken("cannot write %s", path);
  return path;
}

const char *fuzz_file(const uint8_t *data, size_t size) {
  return fuzz_named_file("fuzz.yaml", data, size);
}

void fuzz_split(const uint8_t *data, size_t size, const char **parts, size_t n) {
  static char *text;
  free(text);
  text = malloc(size + 1);
  if (!text)
    fuzz_broken("out of memory");
  for (size_t i = 0; i < size; i++)
    text[i] = data[i] ? (char)data[i] : ' ';
  text[size] = '\0';
  char *rest = text;
  for (size_t i = 0; i < n; i++) {
    parts[i] = rest;
    char *end = rest && i + 1 < n ? strchr(rest, '\n') : NULL;
    if (end)
      *end++ = '\0';
    rest = end;
  }
  parts[n] = NULL;
}
