/* Small files: see read_file.h. */
#include "core/support/read_file.h"
#include "core/support/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static fl_status system_error(void) {
  char words[128];
  int number = errno;
  return fl_error(number == ENOENT || number == ENOTDIR ? FL_ENOENT : FL_ECONFIG, "%s",
                  strerror_r(number, words, sizeof words));
}

const char *fl_irregular(mode_t mode) {
  return S_ISREG(mode)    ? NULL
         : S_ISDIR(mode)  ? "a directory"
         : S_ISFIFO(mode) ? "a named pipe"
         : S_ISSOCK(mode) ? "a socket"
                          : "a device";
}

/* Opens a regular file. Looked at before and after, and O_NONBLOCK: another may have come in its place. */
static fl_status open_file(const char *path, int *file, struct stat *about) {
  *file = -1;
  if (stat(path, about))
    return system_error();
  if (S_ISREG(about->st_mode) &&
      ((*file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) < 0 || fstat(*file, about)))
    return system_error();
  return S_ISREG(about->st_mode) ? FL_OK
                                 : fl_error(FL_EINVAL, "not a regular file: it is %s", fl_irregular(about->st_mode));
}

fl_status fl_read_file(const char *path, char **text, size_t *length) {
  struct stat about;
  char *bytes = NULL;
  size_t filled = 0, room = 0;
  int file;
  fl_status status = open_file(path, &file, &about);
  if (status)
    goto out;
  for (;;) {
    if (filled == room) { /* at first what the file says it has, and the byte that tells that it ends there */
      room = room ? 2 * room : (size_t)about.st_size < FL_TEXT_FILE_MAX ? (size_t)about.st_size + 1 : FL_TEXT_FILE_MAX;
      char *grown = realloc(bytes, room + 1);
      if (!grown) {
        status = fl_error_no_memory();
        goto out;
      }
      bytes = grown;
    }
    ssize_t n = read(file, bytes + filled, room - filled);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      status = system_error();
      goto out;
    }
    if (!n)
      break;
    filled += (size_t)n;
    if (filled > FL_TEXT_FILE_MAX) {
      status = fl_error(FL_ECONFIG, "larger than 1 MiB");
      goto out;
    }
  }
  /* What a kernel makes up says it has a page, and lies in no block. */
  if (about.st_blocks > 0 && filled < (size_t)about.st_size) {
    status = fl_error(FL_ECONFIG, "it has %lld bytes, of which %zu could be read: it may be changing; try again",
                      (long long)about.st_size, filled);
    goto out;
  }
  bytes[filled] = 0;
  *length = filled;
  *text = bytes;
  bytes = NULL;
out:
  free(bytes);
  if (file >= 0)
    close(file);
  return status;
}
