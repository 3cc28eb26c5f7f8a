/* Who may write a file, and who may put another one in its place: see trust.h. */
#include "core/plugins/trust.h"

#include "core/support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fl_file fl_file_look(const char *path) {
  fl_file file = {0};
  if (lstat(path, &file.status))
    file.error = errno;
  file.is_link = !file.error && S_ISLNK(file.status.st_mode);
  if (file.is_link && stat(path, &file.status))
    file.error = errno;
  return file;
}

/* Makes the directory that holds `path` the one that was looked at last. */
static fl_status look_at_directory(fl_trust *trust, const char *path) {
  const char *slash = strrchr(path, '/'), *name = !slash ? "." : slash == path ? "/" : path;
  size_t length = slash && slash != path ? (size_t)(slash - path) : 1;
  if (trust->directory && strlen(trust->directory) == length && !memcmp(trust->directory, name, length))
    return FL_OK;
  free(trust->directory);
  trust->directory = strndup(name, length);
  if (!trust->directory)
    return fl_error_no_memory();
  if (!stat(trust->directory, &trust->status))
    return FL_OK;
  fl_status status = fl_error(FL_EPLUGIN, "directory '%s': %s", trust->directory, strerror(errno));
  fl_trust_free(trust);
  return status;
}

/* Who may write into the directory can put another file in the place of this one. The sticky bit prevents that, but
 * does not say who put it there. */
static fl_status judge_directory(fl_trust *trust, const char *path, uid_t owner) {
  fl_status status = look_at_directory(trust, path);
  if (status || !(trust->status.st_mode & S_IWOTH))
    return status;
  if (!(trust->status.st_mode & S_ISVTX))
    return fl_error(FL_EPLUGIN,
                    "its directory '%s' is world-writable (mode %04o), and nothing is loaded from there; "
                    "'chmod o-w %s' mends it",
                    trust->directory, trust->status.st_mode & 07777u, trust->directory);
  if (owner == 0 || owner == geteuid())
    return FL_OK;
  return fl_error(FL_EPLUGIN,
                  "it belongs to user %u and lies in '%s', where everyone may put files; move it to a directory of its "
                  "own",
                  (unsigned)owner, trust->directory);
}

fl_status fl_trust_judge(fl_trust *trust, const char *path, const fl_file *file) {
  if (file->error)
    return fl_error(FL_EPLUGIN, "cannot be opened: %s", strerror(file->error));
  if (file->status.st_mode & S_IWOTH && S_ISREG(file->status.st_mode))
    return fl_error(FL_EPLUGIN,
                    "it is world-writable (mode %04o), and nothing is loaded from such a file; 'chmod o-w %s' mends it",
                    file->status.st_mode & 07777u, path);
  fl_status status = judge_directory(trust, path, file->status.st_uid);
  /* Where the path is no link, the real path has the same directory: stat() followed the links on the way to it. */
  char *target = !status && file->is_link ? realpath(path, NULL) : NULL;
  if (target)
    status = judge_directory(trust, target, file->status.st_uid);
  free(target);
  return status;
}

void fl_trust_free(fl_trust *trust) {
  free(trust->directory);
  *trust = (fl_trust){0};
}

fl_status fl_file_trusted(const char *path) {
  fl_trust trust = {0};
  fl_file file = fl_file_look(path);
  fl_status status = fl_trust_judge(&trust, path, &file);
  fl_trust_free(&trust);
  return status;
}
