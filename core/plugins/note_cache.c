/*
 * Notes that the process has read, by the file that they are in: discovering again, and a second host, read no file
 * anew. One table for the process, since a note belongs to a file and to no host. Nobody waits for it: whoever finds it
 * taken, also in a child that was forked meanwhile, reads the file.
 */
#include "core/plugins/note_cache.h"

#include "core/support.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { BUCKETS = 64, SETTLED_SECONDS = 2 };

/* One file's; what it says is replaced when the file has changed, so that there are no more of them than files. */
typedef struct entry {
  struct entry *next;
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec modified, changed;
  fl_note_info info;
} entry;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *buckets[BUCKETS];

static entry **bucket_of(const struct stat *file) {
  return &buckets[(file->st_ino ^ file->st_dev) % BUCKETS];
}

static entry *find(const struct stat *file) {
  entry *item = *bucket_of(file);
  while (item && (item->inode != file->st_ino || item->device != file->st_dev))
    item = item->next;
  return item;
}

static bool same_time(struct timespec a, struct timespec b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_current(const entry *item, const struct stat *file) {
  return item->size == file->st_size && same_time(item->modified, file->st_mtim) &&
         same_time(item->changed, file->st_ctim);
}

/* Two changes within a tick of the file system's clock look like one: of a file that was just changed nothing is kept.
 */
static bool is_settled(const struct stat *file) {
  return time(NULL) - file->st_ctim.tv_sec >= SETTLED_SECONDS;
}

static bool copy_info(fl_note_info *to, const fl_note_info *from) {
  *to = *from;
  to->owned = (fl_arena){0};
  to->ops = (char *)fl_arena_string(&to->owned, from->ops);
  to->platform = fl_arena_string(&to->owned, from->platform);
  to->signs = fl_arena_string(&to->owned, from->signs);
  to->hardware = fl_arena_string(&to->owned, from->hardware);
  to->vendor = fl_arena_string(&to->owned, from->vendor);
  to->communicators = fl_arena_string(&to->owned, from->communicators);
  if (!to->owned.failed)
    return true;
  fl_note_clear(to);
  return false;
}

/* Where there is no memory for it, the file is read again. */
static void keep(const struct stat *file, const fl_note_info *info) {
  entry *item = find(file);
  fl_note_info copy;
  if (!copy_info(&copy, info))
    return;
  if (!item && (item = calloc(1, sizeof *item))) {
    item->next = *bucket_of(file);
    *bucket_of(file) = item;
  }
  if (!item) {
    fl_note_clear(&copy);
    return;
  }
  fl_note_clear(&item->info);
  item->device = file->st_dev;
  item->inode = file->st_ino;
  item->size = file->st_size;
  item->modified = file->st_mtim;
  item->changed = file->st_ctim;
  item->info = copy;
}

fl_status fl_note_of_file(const char *path, const fl_file *file, fl_note_info *info) {
  if (!pthread_mutex_trylock(&lock)) {
    const entry *item = find(&file->status);
    bool known = item && is_current(item, &file->status), copied = known && copy_info(info, &item->info);
    pthread_mutex_unlock(&lock);
    if (known)
      return copied ? FL_OK : fl_error_no_memory();
  }
  fl_status status = fl_note_read(path, info);
  if (!status && is_settled(&file->status) && !pthread_mutex_trylock(&lock)) {
    keep(&file->status, info);
    pthread_mutex_unlock(&lock);
  }
  return status;
}
