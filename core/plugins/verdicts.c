/*
 * The file of verdicts: see verdicts.h. Text, a line a verdict, and a digest of all of it at the end. It is replaced as
 * a whole, under a lock on its directory, so that readers need none. Relies on nobody else being able to write the
 * directory: it is the user's own, or it is not used.
 */
#include "core/plugins/verdicts.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_TRIES = 200, LOCK_PAUSE_US = 5000, SETTLED_SECONDS = 2, FIELDS = 13 };

static const char first_line[] = "flhost verdicts 1\n";
static const char file_name[] = "verdicts", new_name[] = "verdicts.new";

/* ------------------------------------------------------------------------------------------------------ its place */

/* Is it the user's own, which nobody else can write? */
static bool is_own(int fd, mode_t type) {
  struct stat status;
  return !fstat(fd, &status) && (status.st_mode & S_IFMT) == type && status.st_uid == geteuid() &&
         !(status.st_mode & (S_IWGRP | S_IWOTH));
}

static int open_directory(const char *path) {
  return open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* The directory, if it is there and the user's; -1: it is not, and errno says why. */
static int open_own_directory(const char *path) {
  int fd = open_directory(path);
  if (fd < 0 || is_own(fd, S_IFDIR))
    return fd;
  close(fd);
  errno = EPERM;
  return -1;
}

/* Makes the directory, and the one it lies in, where these are missing and what they lie in is the user's. */
static bool make_directory(const char *path, int levels) {
  const char *slash = strrchr(path, '/');
  char *parent = slash && slash != path ? fl_format("%.*s", (int)(slash - path), path) : NULL;
  bool made = false;
  struct stat status;
  if (parent && !stat(parent, &status))
    made = status.st_uid == geteuid() && !mkdir(path, 0700);
  else if (parent && levels && make_directory(parent, levels - 1))
    made = !mkdir(path, 0700);
  free(parent);
  return made || errno == EEXIST;
}

/* ------------------------------------------------------------------------------------------------------- reading */

static bool add(fl_verdicts *list, const fl_judgement *verdict) {
  fl_judgement copy = *verdict;
  copy.key.file = fl_arena_string(&list->owned, verdict->key.file);
  copy.words = fl_arena_string(&list->owned, verdict->words);
  if (list->owned.failed || !fl_array_grow(&list->items, list->n, sizeof *list->items))
    return false;
  list->items[list->n++] = copy;
  return true;
}

static bool read_number(const char *text, int64_t *number) {
  char *end;
  errno = 0;
  *number = strtoll(text, &end, 10);
  return *text && !*end && !errno;
}

static bool read_digest(const char *text, char digest[FL_SHA256_SIZE]) {
  if (strlen(text) != FL_SHA256_SIZE - 1 || strspn(text, "0123456789abcdef") != FL_SHA256_SIZE - 1)
    return false;
  memcpy(digest, text, FL_SHA256_SIZE);
  return true;
}

/* Cuts the line at its tabs. */
static uint32_t split_line(char *line, char *fields[FIELDS]) {
  uint32_t n = 0;
  for (char *at = line; at; n++) {
    char *tab = strchr(at, '\t');
    if (tab)
      *tab = 0;
    if (n < FIELDS)
      fields[n] = at;
    at = tab ? tab + 1 : NULL;
  }
  return n;
}

static bool read_line(fl_verdicts *list, char *line) {
  char *f[FIELDS];
  int64_t numbers[8];
  fl_judgement verdict = {0};
  if (split_line(line, f) != FIELDS || (strcmp(f[0], "ok") != 0 && strcmp(f[0], "failed") != 0))
    return false;
  for (int i = 0; i < 8; i++)
    if (!read_number(f[i + 1], &numbers[i]))
      return false;
  if (!read_digest(f[9], verdict.sha256) || !read_digest(f[10], verdict.key.conditions) || *f[11] != '/')
    return false;
  verdict.failed = *f[0] == 'f';
  verdict.when = numbers[0];
  verdict.key.device = (uint64_t)numbers[1];
  verdict.key.inode = (uint64_t)numbers[2];
  verdict.key.size = (uint64_t)numbers[3];
  verdict.key.modified = numbers[4];
  verdict.key.modified_ns = numbers[5];
  verdict.key.changed = numbers[6];
  verdict.key.changed_ns = numbers[7];
  verdict.key.file = f[11];
  verdict.words = f[12];
  return add(list, &verdict);
}

static bool same_file(const fl_verdict_key *a, const fl_verdict_key *b) {
  return a->device == b->device && a->inode == b->inode && a->size == b->size && a->modified == b->modified &&
         a->modified_ns == b->modified_ns && a->changed == b->changed && a->changed_ns == b->changed_ns;
}

/* The file whose digest was right last: a process that loads its plugins one by one reads the file each time, and
 * reckons once. Nobody waits for it, so that a child of a fork need not either. */
static fl_verdict_key right_last;
static pthread_mutex_t right_lock = PTHREAD_MUTEX_INITIALIZER;

static bool was_right(const struct stat *status) {
  fl_verdict_key key = {0};
  fl_verdict_key_set(&key, status);
  if (pthread_mutex_trylock(&right_lock))
    return false;
  bool was = same_file(&key, &right_last);
  pthread_mutex_unlock(&right_lock);
  return was;
}

/* Not of one that changed just now: another change would look like none. */
static void note_right(const struct stat *status) {
  if ((int64_t)time(NULL) - status->st_ctim.tv_sec < SETTLED_SECONDS || pthread_mutex_trylock(&right_lock))
    return;
  fl_verdict_key_set(&right_last, status);
  pthread_mutex_unlock(&right_lock);
}

/* The text up to the line with its digest; false: that is not right. */
static bool check_digest(char *text, size_t length, const struct stat *status) {
  static const char word[] = "sha256 ";
  char digest[FL_SHA256_SIZE];
  size_t tail = strlen(word) + FL_SHA256_SIZE; /* with the newline */
  if (length < strlen(first_line) + tail || strncmp(text, first_line, strlen(first_line)) != 0 ||
      strlen(text) != length)
    return false;
  char *last = text + length - tail;
  if (last[-1] != '\n' || strncmp(last, word, strlen(word)) != 0 || text[length - 1] != '\n')
    return false;
  bool right = was_right(status);
  if (!right) {
    SHA256Data((const uint8_t *)text, length - tail, digest);
    right = !memcmp(digest, last + strlen(word), FL_SHA256_SIZE - 1);
    if (right)
      note_right(status);
  }
  *last = 0;
  return right;
}

static bool read_lines(fl_verdicts *list, char *text, size_t length, const struct stat *status) {
  if (!check_digest(text, length, status))
    return false;
  for (char *line = text + strlen(first_line), *end; *line; line = end + 1) {
    end = strchr(line, '\n');
    if (!end || list->n == FL_VERDICTS_MAX)
      return false;
    *end = 0;
    if (!read_line(list, line))
      return false;
  }
  return true;
}

static char *read_all(int fd, size_t *length, struct stat *status) {
  if (fstat(fd, status) || status->st_size > FL_TEXT_FILE_MAX)
    return NULL;
  size_t size = (size_t)status->st_size;
  char *text = malloc(size + 1);
  for (*length = 0; text && *length < size;) {
    ssize_t n = read(fd, text + *length, size - *length);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    *length += (size_t)n;
  }
  if (text)
    text[*length] = 0;
  return text;
}

/* What is kept in the directory; nothing, where that is broken or somebody else's. */
static void read_file(fl_verdicts *list, int directory, fl_log *log) {
  size_t length;
  struct stat status;
  int fd = openat(directory, file_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    if (errno != ENOENT)
      fl_log_line(log, FL_LOG_DEBUG, "verdicts about plugins, '%s/%s': %s", list->directory, file_name,
                  strerror(errno));
    return;
  }
  const char *wrong = is_own(fd, S_IFREG) ? NULL : "it is not the user's own, or others may write it";
  char *text = wrong ? NULL : read_all(fd, &length, &status);
  if (!wrong && (!text || !read_lines(list, text, length, &status)))
    wrong = "it is damaged, or of another version";
  if (wrong) {
    list->n = 0;
    fl_log_line(log, FL_LOG_DEBUG, "verdicts about plugins, '%s/%s', are not used: %s", list->directory, file_name,
                wrong);
  }
  free(text);
  close(fd);
}

/* The XDG rules say that a relative path is to be ignored. */
static char *directory_of(const fl_config_sources *sources) {
  const char *cache = fl_config_getenv(sources, "XDG_CACHE_HOME"), *home = fl_config_getenv(sources, "HOME");
  if (cache && *cache == '/')
    return fl_format("%s/flhost", cache);
  return home && *home == '/' ? fl_format("%s/.cache/flhost", home) : NULL;
}

void fl_verdicts_open(fl_verdicts *list, const fl_config_sources *sources, fl_log *log) {
  if (list->opened)
    return;
  list->opened = true;
  list->directory = directory_of(sources);
  int directory = list->directory ? open_own_directory(list->directory) : -1;
  if (directory >= 0) {
    read_file(list, directory, log);
    close(directory);
  } else if (list->directory && errno != ENOENT) {
    fl_log_line(log, FL_LOG_DEBUG, "verdicts about plugins are not kept in '%s': %s", list->directory,
                errno == EPERM ? "it is not the user's own, or others may write it" : strerror(errno));
  }
}

void fl_verdicts_close(fl_verdicts *list) {
  free(list->items);
  free(list->directory);
  fl_arena_free(&list->owned);
  *list = (fl_verdicts){0};
}

/* ------------------------------------------------------------------------------------------------ finding, adding */

void fl_verdict_key_set(fl_verdict_key *key, const struct stat *status) {
  key->device = status->st_dev;
  key->inode = status->st_ino;
  key->size = (uint64_t)status->st_size;
  key->modified = status->st_mtim.tv_sec;
  key->modified_ns = status->st_mtim.tv_nsec;
  key->changed = status->st_ctim.tv_sec;
  key->changed_ns = status->st_ctim.tv_nsec;
}

static bool same_subject(const fl_verdict_key *a, const fl_verdict_key *b) {
  return !strcmp(a->conditions, b->conditions) && !strcmp(a->file, b->file);
}

/* One that lies in the future was made by a clock that nobody can rely on. */
static bool has_expired(const fl_judgement *verdict) {
  int64_t age = (int64_t)time(NULL) - verdict->when;
  return verdict->failed && (age < 0 || age >= FL_VERDICT_LASTS_SECONDS);
}

const fl_judgement *fl_verdicts_find(fl_verdicts *list, const char *path, const fl_verdict_key *key) {
  char sha256[FL_SHA256_SIZE];
  for (uint32_t i = list->n; i--;) { /* the newest first */
    fl_judgement *verdict = &list->items[i];
    if (!same_subject(&verdict->key, key) || has_expired(verdict))
      continue;
    if (same_file(&verdict->key, key))
      return verdict;
    if (verdict->key.size != key->size || !SHA256File(path, sha256) || strcmp(sha256, verdict->sha256) != 0)
      return NULL;
    const char *file = verdict->key.file;
    verdict->key = *key;
    verdict->key.file = file;
    verdict->is_unsaved = true; /* so that it is found at once the next time */
    return verdict;
  }
  return NULL;
}

fl_judgement *fl_verdicts_add(fl_verdicts *list, const char *path, const fl_verdict_key *key, bool failed,
                              const char *words) {
  fl_judgement verdict = {
      .key = *key, .failed = failed, .is_new = true, .is_unsaved = true, .words = words, .when = (int64_t)time(NULL)};
  if (!SHA256File(path, verdict.sha256))
    memset(verdict.sha256, '0', FL_SHA256_SIZE - 1);
  return add(list, &verdict) ? &list->items[list->n - 1] : NULL;
}

/* -------------------------------------------------------------------------------------------------------- writing */

/* A path or words that would break a line are not kept. */
static bool fits_line(const fl_judgement *verdict) {
  return *verdict->key.file == '/' && !strpbrk(verdict->key.file, "\t\n") && !strpbrk(verdict->words, "\t\n");
}

/* Two changes within a tick of the file system's clock look like one: of a file that was just changed only the content
 * is compared. */
static void write_line(fl_text *text, const fl_judgement *verdict) {
  const fl_verdict_key *key = &verdict->key;
  bool settled = !verdict->is_unsaved || (int64_t)time(NULL) - key->changed >= SETTLED_SECONDS;
  fl_text_add(text,
              "%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%" PRId64
              "\t%s\t%s\t%s\t%s\n",
              verdict->failed ? "failed" : "ok", verdict->when, (int64_t)key->device, (int64_t)key->inode,
              (int64_t)key->size, key->modified, key->modified_ns, settled ? key->changed : 0, key->changed_ns,
              verdict->sha256, key->conditions, key->file, verdict->words);
}

/* Those that were kept, but for what is replaced, and the new ones; not more than there may be. */
static bool merge(fl_verdicts *kept, const fl_verdicts *list) {
  bool done = true;
  for (uint32_t i = 0; i < list->n && done; i++) {
    if (!list->items[i].is_unsaved || !fits_line(&list->items[i]))
      continue;
    uint32_t n = 0;
    for (uint32_t j = 0; j < kept->n; j++)
      if (!same_subject(&kept->items[j].key, &list->items[i].key))
        kept->items[n++] = kept->items[j];
    kept->n = n;
    done = add(kept, &list->items[i]);
  }
  if (kept->n > FL_VERDICTS_MAX) {
    uint32_t excess = kept->n - FL_VERDICTS_MAX;
    memmove(kept->items, kept->items + excess, FL_VERDICTS_MAX * sizeof *kept->items);
    kept->n = FL_VERDICTS_MAX;
  }
  return done;
}

static bool write_all(int fd, const char *bytes, size_t length) {
  while (length) {
    ssize_t n = write(fd, bytes, length);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    bytes += n;
    length -= (size_t)n;
  }
  return true;
}

/* Under the lock. */
static bool replace_file(int directory, const fl_text *text) {
  unlinkat(directory, new_name, 0); /* of a process that was killed here */
  int fd = openat(directory, new_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0)
    return false;
  bool written = write_all(fd, text->text, text->length);
  written = !close(fd) && written;
  if (written && !renameat(directory, new_name, directory, file_name))
    return true;
  int error = errno;
  unlinkat(directory, new_name, 0);
  errno = error;
  return false;
}

static bool write_merged(const fl_verdicts *list, int directory, fl_log *log) {
  fl_verdicts kept = {.directory = list->directory};
  fl_text text = {0};
  char digest[FL_SHA256_SIZE];
  read_file(&kept, directory, log);
  bool done = merge(&kept, list);
  fl_text_add(&text, "%s", first_line);
  for (uint32_t i = 0; i < kept.n; i++)
    write_line(&text, &kept.items[i]);
  if (!text.failed)
    SHA256Data((const uint8_t *)text.text, text.length, digest);
  fl_text_add(&text, "sha256 %s\n", text.failed ? "" : digest);
  errno = ENOMEM;
  done = done && !text.failed && replace_file(directory, &text);
  int error = errno;
  fl_text_free(&text);
  kept.directory = NULL; /* borrowed */
  fl_verdicts_close(&kept);
  errno = error;
  return done;
}

/* Whoever holds the lock for long is not waited for: the verdict is found anew the next time. */
static bool lock(int directory) {
  for (int i = 0; i < LOCK_TRIES; i++) {
    if (!flock(directory, LOCK_EX | LOCK_NB))
      return true;
    if (errno != EWOULDBLOCK && errno != EINTR)
      return false;
    usleep(LOCK_PAUSE_US);
  }
  return false;
}

void fl_verdicts_save(fl_verdicts *list, fl_log *log) {
  bool any = false;
  for (uint32_t i = 0; i < list->n; i++)
    any |= list->items[i].is_unsaved;
  if (!any || !list->directory)
    return;
  int directory = open_own_directory(list->directory);
  if (directory < 0 && errno == ENOENT && make_directory(list->directory, 1))
    directory = open_own_directory(list->directory);
  bool saved = directory >= 0 && lock(directory) && write_merged(list, directory, log);
  if (!saved)
    fl_log_line(log, FL_LOG_DEBUG, "verdicts about plugins are not kept in '%s': %s", list->directory, strerror(errno));
  if (directory >= 0)
    close(directory); /* and with it the lock */
  for (uint32_t i = 0; i < list->n; i++)
    list->items[i].is_unsaved = false;
}
