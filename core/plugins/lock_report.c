/* What plugins.lock says of the plugins that are there, and which of those that it lists are not: for whoever makes or
 * checks one (flhost/plugins.h). */
#include "core/plugins/lock.h"
#include "core/registry.h"
#include "core/support.h"

#include <flhost/plugins.h>
#include <stdlib.h>
#include <string.h>

typedef struct comparison {
  fl_arena *arena;
  fl_locked_plugin *items;
  uint32_t n;
  bool failed;
} comparison;

/* Adds a file; its digest is compared with what is expected ("" if it is not listed). */
static void add(comparison *r, const char *file, const char *lock, const char *expected) {
  char sha256[FL_SHA256_TEXT] = "";
  if (r->failed || !fl_array_grow(&r->items, r->n, sizeof *r->items)) {
    r->failed = true;
    return;
  }
  bool readable = !fl_digest_file(file, 0, 0, sha256), same = !strcmp(sha256, expected);
  r->items[r->n++] = (fl_locked_plugin){
      .file = fl_arena_string(r->arena, file),
      .lock = fl_arena_string(r->arena, lock),
      .status = !*expected  ? "unlisted"
                : !readable ? "missing"
                : same      ? "listed"
                            : "changed",
      .sha256 = fl_arena_string(r->arena, sha256),
      .expected = fl_arena_string(r->arena, expected),
      .reason = !readable              ? fl_arena_string(r->arena, fl_error_message())
                : !*expected && !*lock ? ""
                : !*expected           ? fl_arena_format(r->arena, "%s does not list it", lock)
                : same                 ? ""
                       : fl_arena_format(r->arena, "its SHA-256 is %s, %s has %s", sha256, lock, expected),
  };
}

/* The files that a lock has to do with; names are kept by the arena. */
static const char **found_files(fl_host *host, const fl_locks *in_force, fl_arena *arena, uint32_t *n) {
  const char **files;
  *n = 0;
  pthread_mutex_lock(&host->lock);
  files = fl_arena_array(arena, host->n_plugins, sizeof *files);
  for (uint32_t i = 0; files && i < host->n_plugins; i++) {
    const fl_plugin_record *record = &host->plugins[i];
    if (*record->file == '/' && (record->status == FL_PLUGIN_LOADED || record->status == FL_PLUGIN_DEFERRED ||
                                 (record->status == FL_PLUGIN_FAILED && in_force->n)))
      files[(*n)++] = fl_arena_string(arena, record->file);
  }
  pthread_mutex_unlock(&host->lock);
  return files;
}

/* Does a lock in force keep it out? One that failed for another reason is nothing to vouch for. */
static bool is_kept_out(const fl_locks *in_force, const char *file) {
  fl_locked locked;
  fl_kept_error before;
  fl_error_keep(&before);
  bool kept_out = in_force->n && (fl_locks_find(in_force, file, &locked) || fl_locked_check(&locked, file, 0, 0));
  fl_error_restore(&before);
  return kept_out;
}

static bool has_failed(fl_host *host, const char *file) {
  bool failed = false;
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_plugins && !failed; i++)
    failed = host->plugins[i].status == FL_PLUGIN_FAILED && !strcmp(host->plugins[i].file, file);
  pthread_mutex_unlock(&host->lock);
  return failed;
}

/* What is there, against one lock (NULL: against none), then what that lists beside it. */
static void compare(comparison *r, fl_host *host, const fl_locks *in_force, const fl_lock *lock) {
  uint32_t n;
  const char **files = found_files(host, in_force, r->arena, &n);
  const fl_lock_entry **seen = fl_arena_array(r->arena, n + 1, sizeof *seen);
  for (uint32_t i = 0; files && seen && i < n; i++) {
    const fl_lock_entry *entry = lock ? fl_lock_find(lock, files[i]) : NULL;
    seen[i] = entry;
    if (!has_failed(host, files[i]) || is_kept_out(in_force, files[i]))
      add(r, files[i], lock ? lock->path : "", entry ? entry->sha256 : "");
    else
      seen[i] = NULL; /* listed below, if it is */
  }
  for (uint32_t i = 0; lock && seen && i < lock->n; i++) {
    bool done = false;
    for (uint32_t j = 0; j < n && !done; j++)
      done = seen[j] == &lock->entries[i];
    if (!done)
      add(r, lock->entries[i].file, lock->path, lock->entries[i].sha256);
  }
}

static fl_status fill(comparison *r, fl_host *host, const char *path, const fl_locks *in_force) {
  fl_lock lock = {.n = 0};
  if (!path && !in_force->n)
    return fl_error(FL_ENOENT,
                    "no plugins.lock is in force: VLLM_FL_PLUGINS_LOCK is not set, and there is no " FL_SYSTEM_LOCK
                    "; 'flhost lock' makes one");
  if (path && *path) {
    char *absolute = realpath(path, NULL);
    fl_status status = fl_lock_read(absolute ? absolute : path, &lock);
    free(absolute);
    if (status)
      return status;
  }
  if (!path)
    for (uint32_t i = 0; i < in_force->n; i++)
      compare(r, host, in_force, &in_force->items[i]);
  else
    compare(r, host, in_force, *path ? &lock : NULL);
  fl_lock_free(&lock);
  return FL_OK;
}

fl_status fl_check_plugins_lock(fl_host *host, const char *path, fl_lock_report **result) {
  fl_locks in_force;
  comparison r = {0};
  fl_lock_report *list = fl_arena_create(sizeof *list, &r.arena);
  if (!list)
    return fl_error_no_memory();
  fl_status status = fl_locks_read(&host->sources, &in_force);
  if (!status)
    status = fill(&r, host, path, &in_force);
  fl_locked_plugin *items = fl_arena_array(r.arena, r.n, sizeof *items);
  if (items && r.n)
    memcpy(items, r.items, r.n * sizeof *items);
  free(r.items);
  fl_locks_free(&in_force);
  *list = (fl_lock_report){.size = sizeof *list, .n = r.n, .item_size = sizeof *items, .items = items};
  if (!status && r.failed)
    status = fl_error_no_memory();
  if (status) {
    fl_kept_error why;
    fl_error_keep(&why);
    fl_lock_report_free(list);
    return fl_error_restore(&why);
  }
  status = fl_arena_finish(list, sizeof *list);
  if (!status)
    *result = list;
  return status;
}

void fl_lock_report_free(fl_lock_report *report) {
  fl_arena_destroy(report, sizeof *report);
}
