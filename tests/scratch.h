/* Files for one test, in a directory of its own that is removed with it. */
#ifndef FLHOST_TESTS_SCRATCH_H
#define FLHOST_TESTS_SCRATCH_H

#include "tests/suite.h"
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[PATH_MAX]; /* the directory, absolute */

static inline void scratch_make(void) {
  const char *base = getenv("TMPDIR");
  snprintf(scratch, sizeof scratch, "%s/flhost-test-XXXXXX", base ? base : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(scratch));
}

static inline int scratch_remove_one(const char *path, const struct stat *status, int type, struct FTW *place) {
  (void)status;
  (void)type;
  (void)place;
  return remove(path);
}

static inline void scratch_remove(void) {
  nftw(scratch, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path in it; one of four buffers in turn. */
static inline const char *in_scratch(const char *name) {
  static char paths[4][2 * PATH_MAX];
  static int turn;
  char *path = paths[turn++ % 4];
  snprintf(path, 2 * PATH_MAX, "%s/%s", scratch, name);
  return path;
}

/* A file as it was built, absolute. */
static inline const char *built(const char *name) {
  static char paths[4][2 * PATH_MAX];
  static int turn;
  char *path = paths[turn++ % 4], directory[PATH_MAX];
  ck_assert_ptr_nonnull(realpath(build_dir(), directory));
  snprintf(path, 2 * PATH_MAX, "%s/%s", directory, name);
  return path;
}

static inline const char *write_file(const char *name, const void *bytes, size_t length) {
  const char *path = in_scratch(name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, bytes, length), (ssize_t)length);
  ck_assert_int_eq(close(fd), 0);
  return path;
}

static inline const char *write_text(const char *name, const char *text) {
  return write_file(name, text, strlen(text));
}

/* A whole file; the caller frees it. */
static inline unsigned char *read_file(const char *path, size_t *length) {
  struct stat status;
  int fd = open(path, O_RDONLY);
  ck_assert_msg(fd >= 0 && !fstat(fd, &status), "%s is not built", path);
  unsigned char *bytes = malloc((size_t)status.st_size + 1);
  ck_assert_int_eq(read(fd, bytes, (size_t)status.st_size), status.st_size);
  close(fd);
  *length = (size_t)status.st_size;
  return bytes;
}

static inline const char *copy_to_scratch(const char *path, const char *name) {
  size_t length;
  unsigned char *bytes = read_file(path, &length);
  const char *copy = write_file(name, bytes, length);
  free(bytes);
  return copy;
}

#endif
