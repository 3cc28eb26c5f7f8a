#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Noreturn void fuzz_broken(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vfprintf(stderr, format, arguments);
  va_end(arguments);
  fputc('\n', stderr);
  abort();
}

static char directory[256], path[300];

static void remove_directory(void) {
  unlink(path);
  rmdir(directory);
}

const char *fuzz_directory(void) {
  if (!*directory) {
    const char *where = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/flhost-fuzz-XXXXXX", where && *where ? where : "/tmp");
    if (!mkdtemp(directory))
      fuzz_broken("cannot make a directory %s", directory);
    snprintf(path, sizeof path, "%s/fuzz.yaml", directory);
    atexit(remove_directory);
  }
  return directory;
}

const char *fuzz_file(const uint8_t *data, size_t size) {
  fuzz_directory();
  int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0 || write(file, data, size) != (ssize_t)size || close(file))
    fuzz_broken("cannot write %s", path);
  return path;
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
