/*
 * May a file be loaded as code? A plugin has the process's rights, so one that anybody else may write or replace is
 * refused.
 */
#ifndef FLHOST_CORE_PLUGINS_TRUST_H
#define FLHOST_CORE_PLUGINS_TRUST_H

#include <flhost/flhost.h>
#include <sys/stat.h>

/* The file that a path leads to, as stat() tells it. */
typedef struct fl_file {
  struct stat status;
  bool is_link; /* the path itself is a symbolic link */
  int error;    /* errno, when there is no such file; else 0 */
} fl_file;

fl_file fl_file_look(const char *path);

/* The directory that was looked at last: files come directory by directory. Zero-initialise. */
typedef struct fl_trust {
  char *directory;
  struct stat status;
} fl_trust;

/* FL_EPLUGIN: `path` may be replaced or written by anyone on this machine: the file is world-writable, or its directory
 * (also that of the link's target) is, without the sticky bit or with a file of another user; or there is no such file.
 */
fl_status fl_trust_judge(fl_trust *trust, const char *path, const fl_file *file);
void fl_trust_free(fl_trust *trust);

/* The same for one file by itself. */
fl_status fl_file_trusted(const char *path);

#endif
