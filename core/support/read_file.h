/* Reads a small text file whole: settings, never data. */
#ifndef FLHOST_CORE_SUPPORT_READ_FILE_H
#define FLHOST_CORE_SUPPORT_READ_FILE_H

#include <flhost/flhost.h>

enum { FL_TEXT_FILE_MAX = 1 << 20 };

/* The caller frees *text, which ends in NUL. FL_ENOENT: no such file; FL_EINVAL: not a regular file; FL_ECONFIG: too
 * large or unreadable. The thread's message says which, without the path. */
fl_status fl_read_file(const char *path, char **text, size_t *length);

#endif
