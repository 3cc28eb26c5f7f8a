/*
 * Who may write a file, and who may put another one in its place: see trust.h. Directories are looked at from the root
 * on, each link of the way by itself. So whoever could still change a step that was looked at is trusted, and it makes
 * no difference that time passes before the file is opened by its path.
 */
#include "core/plugins/trust.h"

#include "core/plugins/discovery.h"
#include "core/support.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
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

/* ------------------------------------------------------------------------------------------------ the way to a file */

/* Called for each step: directories from "/" on, links, and what is at the end. `path` has no link in it but, where the
 * step is one, the last. */
typedef fl_status (*visit_fn)(void *user, const char *path, const struct stat *status);

typedef struct way {
  char at[PATH_MAX];   /* where it is; "" is the root */
  char rest[PATH_MAX]; /* what is still to go */
  unsigned links;
} way;

static fl_status no_way(const char *path, int error) {
  return fl_error(FL_EPLUGIN, "'%s': %s", path, strerror(error));
}

/* "a" and "b/c" become "a/b/c". False: too long. */
static bool append(char path[PATH_MAX], const char *more, size_t length) {
  size_t n = strlen(path);
  if (n + 1 + length >= PATH_MAX)
    return false;
  path[n] = '/';
  memcpy(path + n + 1, more, length);
  path[n + 1 + length] = 0;
  return true;
}

static void go_up(way *w) {
  char *slash = strrchr(w->at, '/');
  if (slash)
    *slash = 0;
}

/* Goes on at the target of the link that it is at. */
static int follow(way *w) {
  char target[PATH_MAX];
  ssize_t n = readlink(w->at, target, sizeof target - 1);
  if (n < 0)
    return errno;
  if (++w->links > 40)
    return ELOOP;
  target[n] = 0;
  if (!append(target, w->rest, strlen(w->rest)))
    return ENAMETOOLONG;
  go_up(w);
  if (*target == '/')
    *w->at = 0;
  memcpy(w->rest, target, strlen(target) + 1);
  return 0;
}

/* Takes the first name off what is still to go; NULL: that was all. */
static const char *next_name(way *w, char name[NAME_MAX + 1]) {
  const char *begin = w->rest + strspn(w->rest, "/");
  size_t length = strcspn(begin, "/");
  if (length > NAME_MAX) /* no such file then */
    length = NAME_MAX;
  memcpy(name, begin, length);
  name[length] = 0;
  /* Byte by byte: valgrind takes the checked memmove for a memcpy. */
  const char *from = begin + length;
  for (char *to = w->rest; (*to = *from); to++, from++)
    continue;
  return *name ? name : NULL;
}

static fl_status step(way *w, const char *name, visit_fn visit, void *user) {
  struct stat status;
  if (!strcmp(name, "."))
    return FL_OK;
  if (!strcmp(name, "..")) {
    go_up(w);
    return FL_OK;
  }
  if (!append(w->at, name, strlen(name)))
    return no_way(w->at, ENAMETOOLONG);
  if (lstat(w->at, &status))
    return no_way(w->at, errno);
  fl_status result = visit(user, w->at, &status);
  int error = !result && S_ISLNK(status.st_mode) ? follow(w) : 0;
  return error ? no_way(w->at, error) : result;
}

static fl_status walk(const char *path, visit_fn visit, void *user) {
  way w; /* large, of which little is used */
  w.at[0] = w.rest[0] = 0;
  w.links = 0;
  char name[NAME_MAX + 1];
  struct stat root;
  if (*path != '/' && !getcwd(w.rest, sizeof w.rest))
    return no_way(path, errno);
  if (!append(w.rest, path, strlen(path)))
    return no_way(path, ENAMETOOLONG);
  if (stat("/", &root))
    return no_way("/", errno);
  fl_status status = visit(user, "/", &root);
  while (!status && next_name(&w, name))
    status = step(&w, name, visit, user);
  return status;
}

/* -------------------------------------------------------------------------------------------------- who is trusted */

enum { MAX_TRUSTED = 16 };

/* Who could replace the host itself, beside root and the user. Found out once: where it lies does not change. */
static struct trusted {
  uid_t users[MAX_TRUSTED];
  gid_t groups[MAX_TRUSTED];
  unsigned n_users, n_groups;
} hosts_own;
static pthread_once_t hosts_own_once = PTHREAD_ONCE_INIT;

static fl_status add_trusted(void *user, const char *path, const struct stat *status) {
  (void)user, (void)path;
  if (hosts_own.n_users < MAX_TRUSTED)
    hosts_own.users[hosts_own.n_users++] = status->st_uid;
  if (status->st_mode & S_IWGRP && !(status->st_mode & S_ISVTX) && !S_ISLNK(status->st_mode) &&
      hosts_own.n_groups < MAX_TRUSTED)
    hosts_own.groups[hosts_own.n_groups++] = status->st_gid;
  return FL_OK;
}

/* Where it cannot be told, root and the user are all. */
static void find_trusted(void) {
  fl_kept_error before;
  fl_error_keep(&before);
  if (fl_own_file())
    walk(fl_own_file(), add_trusted, NULL);
  fl_error_restore(&before);
}

static bool is_trusted_user(uid_t user) {
  bool trusted = user == 0 || user == geteuid();
  for (unsigned i = 0; i < hosts_own.n_users && !trusted; i++)
    trusted = hosts_own.users[i] == user;
  return trusted;
}

static bool is_trusted_group(gid_t group) {
  bool trusted = group == 0 || group == getegid();
  for (unsigned i = 0; i < hosts_own.n_groups && !trusted; i++)
    trusted = hosts_own.groups[i] == group;
  return trusted;
}

/* ---------------------------------------------------------------------------------------------------- the judgement */

/* `what` is "it", or the directory with its path; `path` is for the command that mends it. */
static fl_status judge_owner(const char *what, const char *path, const struct stat *status) {
  if (is_trusted_user(status->st_uid))
    return FL_OK;
  return fl_error(FL_EPLUGIN,
                  "%s belongs to user %u, and what is loaded must belong to root%s; 'chown %s%u %s' mends it, if you "
                  "trust what is there",
                  what, (unsigned)status->st_uid, geteuid() ? " or the user who runs this" : "",
                  S_ISLNK(status->st_mode) ? "-h " : "", (unsigned)geteuid(), path);
}

static fl_status judge_mode(const char *what, const char *path, const struct stat *status) {
  const char *from = S_ISDIR(status->st_mode) ? "there" : "such a file";
  unsigned mode = status->st_mode & 07777u;
  if (S_ISLNK(status->st_mode) || (S_ISDIR(status->st_mode) && mode & S_ISVTX))
    return FL_OK; /* the owner of what is in a sticky directory is the next to be judged */
  if (mode & S_IWOTH)
    return fl_error(FL_EPLUGIN,
                    "%s is world-writable (mode %04o), and nothing is loaded from %s; 'chmod o-w %s' mends it", what,
                    mode, from, path);
  if (mode & S_IWGRP && !is_trusted_group(status->st_gid))
    return fl_error(FL_EPLUGIN,
                    "%s may be written by group %u (mode %04o), and nothing is loaded from %s; 'chmod g-w %s' mends it",
                    what, (unsigned)status->st_gid, mode, from, path);
  return FL_OK;
}

/* One step of the way to the file. */
static fl_status judge_step(void *user, const char *path, const struct stat *status) {
  char what[PATH_MAX + 64];
  (void)user;
  snprintf(what, sizeof what, "%s '%s'",
           S_ISDIR(status->st_mode)   ? "the directory"
           : S_ISLNK(status->st_mode) ? "the link"
                                      : "the file",
           path);
  fl_status result = judge_owner(what, path, status);
  return result ? result : judge_mode(what, path, status);
}

/* The file itself, by what stat() said of it. What is none is refused for that, by who reads it. */
static fl_status judge_file(const char *path, const struct stat *status) {
  fl_status result = S_ISREG(status->st_mode) ? judge_mode("it", path, status) : FL_OK;
  return result || !S_ISREG(status->st_mode) ? result : judge_owner("it", path, status);
}

/* The directory that `path` names, unless it was the last. */
static fl_status judge_directory(fl_trust *trust, const char *path) {
  const char *slash = strrchr(path, '/'), *name = !slash ? "." : slash == path ? "/" : path;
  size_t length = slash && slash != path ? (size_t)(slash - path) : 1;
  if (trust->directory && strlen(trust->directory) == length && !memcmp(trust->directory, name, length))
    return FL_OK;
  fl_trust_free(trust);
  trust->directory = strndup(name, length);
  if (!trust->directory)
    return fl_error_no_memory();
  fl_status status = walk(trust->directory, judge_step, NULL);
  if (status)
    fl_trust_free(trust);
  return status;
}

fl_status fl_trust_judge(fl_trust *trust, const char *path, const fl_file *file) {
  pthread_once(&hosts_own_once, find_trusted);
  if (file->error)
    return fl_error(FL_EPLUGIN, "cannot be opened: %s", strerror(file->error));
  const char *irregular = fl_irregular(file->status.st_mode);
  if (irregular) /* not even opened: that may do something */
    return fl_error(FL_EPLUGIN, "not a regular file: it is %s", irregular);
  fl_status status = judge_file(path, &file->status);
  if (!status)
    status = judge_directory(trust, path);
  return !status && file->is_link ? walk(path, judge_step, NULL) : status;
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
