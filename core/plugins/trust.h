/*
 * May a file be loaded as code? A plugin has the process's rights, so one that somebody else may write or replace is
 * refused.
 *
 * Trusted are root, the process's own user, and who could replace the host itself: owners of the file that has this
 * library's code and of the directories on the way to it, and groups that may write there. Nothing is lost by trusting
 * these, and what was built or installed beside the library can be loaded by whoever runs it, root included.
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

/* The directory that was found good last: files come directory by directory. Zero-initialise. */
typedef struct fl_trust {
  char *directory;
} fl_trust;

/*
 * FL_EPLUGIN: somebody who is not trusted may write or replace `path`: the file, a directory on the way to it or a link
 * on that way belongs to him; he may write the file; or he may write such a directory and it is not sticky. What a link
 * leads to is looked at as far as `/`, too. The message says which it is, who may, and what mends it. Or there is no
 * such file. Access lists beyond the mode are not looked at.
 */
fl_status fl_trust_judge(fl_trust *trust, const char *path, const fl_file *file);
void fl_trust_free(fl_trust *trust);

/* The same for one file by itself. */
fl_status fl_file_trusted(const char *path);

#endif
