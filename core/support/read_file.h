/* Reads a small text file whole: settings, never data. */
#ifndef FLHOST_CORE_SUPPORT_READ_FILE_H
#define FLHOST_CORE_SUPPORT_READ_FILE_H

#include <flhost/flhost.h>
#include <sys/types.h>

enum { FL_TEXT_FILE_MAX = 1 << 20 };

/* What a file is that is not regular ("a named pipe"); NULL: it is. */
const char *fl_irregular(mode_t mode);

/* Reads to the file's end, whatever size it says it has: files of /proc say 0, and one that is being written or cut has
 * what there is at the time. Anything but a regular file is refused without being opened: opening may wait, or do
 * something. The caller frees *text, which ends in NUL. FL_ENOENT: no such file; FL_EINVAL: not a regular file;
 * FL_ECONFIG: too large or unreadable. The thread's message says which, without the path. */
fl_status fl_read_file(const char *path, char **text, size_t *length);

#endif
