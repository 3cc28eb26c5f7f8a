/*
 * Deferred plugins: those that say in their file which ops they implement are loaded when one of these is first looked
 * for, or when somebody wants to know of the platform that they bring. An op becomes ready, so that calls find it
 * without asking anybody, when no deferred plugin lists it any more; from then on a plugin that lists it is loaded as
 * soon as it is found (plugins.c). Both happen under the loading lock.
 */
#include "core/plugins/deferred.h"

#include "core/plugins/by_file.h"
#include "core/plugins/look_ahead.h"
#include "core/plugins/plugins.h"
#include "core/registry.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* May the plugin wait? Not if it lists an op that calls find already. The host's lock is held. */
bool fl_may_defer(const fl_host *host, const char *ops) {
  fl_strings names = {0};
  bool may = fl_split(&names, ops, ',');
  for (uint32_t i = 0; i < names.n && may; i++)
    may = !fl_registry_is_ready(host, names.items[i]);
  fl_strings_free(&names);
  return may;
}

/* ------------------------------------------------------------------------------------------------------- loading */

/* A number that no other thread of this process has or had, nor of the one that it was forked from. */
static uint64_t thread_number(void) {
  static _Atomic uint64_t last;
  static _Thread_local uint64_t own;
  if (!own)
    own = atomic_fetch_add(&last, 1) + 1;
  return own;
}

/* Which plugins somebody wants, given a word. */
typedef bool (*wanted)(const fl_plugin_record *record, const char *word);

static bool any(const fl_plugin_record *record, const char *word) {
  (void)record, (void)word;
  return true;
}

static bool brings_platform(const fl_plugin_record *record, const char *name) {
  return record->platform && (!name || !strcmp(record->platform, name));
}

static bool brings_communicators(const fl_plugin_record *record, const char *word) {
  (void)word;
  return record->communicators;
}

/* One that the thread of that number is not just loading. */
static bool is_wanted_by(const fl_plugin_record *record, uint64_t self, wanted is_wanted, const char *word) {
  return record->status == FL_PLUGIN_DEFERRED && record->opener != self && is_wanted(record, word);
}

/* One that this thread is not just loading; NULL if there is none. */
static fl_plugin_record *next(const fl_host *host, wanted is_wanted, const char *word) {
  uint64_t self = thread_number();
  for (uint32_t i = 0; host->n_deferred && i < host->n_plugins; i++) {
    fl_plugin_record *record = &host->plugins[i];
    if (is_wanted_by(record, self, is_wanted, word))
      return record;
  }
  return NULL;
}

bool fl_has_deferred(const fl_host *host) {
  return next(host, any, NULL) != NULL;
}

static fl_found as_found(const fl_plugin_record *record, fl_arena *owned) {
  return (fl_found){.path = fl_arena_string(owned, record->file),
                    .symbol = fl_arena_string(owned, record->symbol),
                    .route = record->route,
                    .critical = record->critical};
}

/* Adds what is to be loaded next, as it was found. false: there is nothing, or no memory. */
static bool take_next(fl_host *host, wanted is_wanted, const char *word, fl_found_list *found) {
  pthread_mutex_lock(&host->lock);
  fl_plugin_record *record = next(host, is_wanted, word);
  if (record)
    fl_found_add(found, as_found(record, &found->owned));
  bool taken = record && !found->owned.failed;
  if (taken)
    record->opener = thread_number();
  pthread_mutex_unlock(&host->lock);
  return taken;
}

/* Those that are deferred still, for want of memory or descriptors, may be tried again, and so may one that failed when
 * it is discovered anew. */
static void give_back(fl_host *host, const fl_found_list *found) {
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < found->n; i++)
    for (uint32_t j = UINT32_MAX; (j = fl_plugin_of_file(host, found->items[i].path, j)) < host->n_plugins;)
      host->plugins[j].opener = 0;
  pthread_mutex_unlock(&host->lock);
}

/* Those that will be taken, as far as that is known before the first is. */
static void list_wanted(fl_host *host, wanted is_wanted, const char *word, fl_found_list *found) {
  uint64_t self = thread_number();
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_plugins; i++)
    if (is_wanted_by(&host->plugins[i], self, is_wanted, word))
      fl_found_add(found, as_found(&host->plugins[i], &found->owned));
  pthread_mutex_unlock(&host->lock);
}

/* What is behind it in the list; the list stays as it is when others come meanwhile. */
static void go_behind(fl_upcoming *later, const char *path) {
  for (uint32_t i = later->next; i < later->found->n; i++)
    if (!strcmp(later->found->items[i].path, path))
      later->next = i + 1;
}

static bool is_kept_out(fl_host *host, const fl_found *found, const fl_note_info *info, fl_plugin_record *record) {
  (void)found;
  return fl_plugin_is_kept_out(host, info, record);
}

static fl_status load(fl_host *host, wanted is_wanted, const char *word) {
  fl_loader loader;
  FL_RELEASED_BY(fl_found_list_free) fl_found_list found = {0};
  FL_RELEASED_BY(fl_found_list_free) fl_found_list all = {0};
  fl_status status = FL_OK;
  bool loaded;
  if (!atomic_load(&host->n_deferred) || atomic_load(&host->frozen))
    return FL_OK;
  fl_loading_begin(host);
  fl_loader_begin(&loader, host, &host->log);
  list_wanted(host, is_wanted, word, &all);
  FL_RELEASED_BY(fl_upcoming_end) fl_upcoming later;
  fl_upcoming_set(&later, &loader, &all, is_kept_out);
  if (!all.owned.failed)
    fl_upcoming_begin(&later);
  while (status != FL_ENOMEM && take_next(host, is_wanted, word, &found)) {
    go_behind(&later, found.items[found.n - 1].path);
    status = fl_plugins_load(&loader, &found.items[found.n - 1], false, &loaded);
  }
  give_back(host, &found);
  fl_loader_end(&loader);
  fl_loading_end(host);
  if (status == FL_ENOMEM || found.owned.failed)
    status = fl_error_no_memory();
  else if (found.n) /* that one of them failed is no error of the caller's */
    fl_error_clear();
  return status == FL_ENOMEM ? status : FL_OK;
}

fl_status fl_load_deferred(fl_host *host, const char *op) {
  return load(host, op ? fl_plugin_lists : any, op);
}

fl_status fl_load_deferred_platform(fl_host *host, const char *platform) {
  return load(host, brings_platform, platform);
}

fl_status fl_load_deferred_communicators(fl_host *host) {
  return load(host, brings_communicators, NULL);
}

/* ------------------------------------------------------------------------------------------------------- letting in */

/* Adds those that were kept out, and are so no more. */
static bool take_let_in(fl_host *host, fl_found_list *found) {
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_plugins; i++) {
    const fl_plugin_record *record = &host->plugins[i];
    fl_text reason = {0};
    if (record->kept_out && !fl_vendor_is_kept_out(host, record->token, &reason))
      fl_found_add(found, as_found(record, &found->owned));
    fl_text_free(&reason);
  }
  pthread_mutex_unlock(&host->lock);
  return !found->owned.failed;
}

void fl_let_in(fl_host *host) {
  fl_loader loader;
  FL_RELEASED_BY(fl_found_list_free) fl_found_list found = {0};
  fl_kept_error kept;
  bool loaded;
  fl_error_keep(&kept);
  fl_loading_begin(host);
  fl_loader_begin(&loader, host, &host->log);
  bool taken = take_let_in(host, &found);
  for (uint32_t i = 0; taken && i < found.n; i++)
    if (fl_plugins_load(&loader, &found.items[i], true, &loaded) == FL_ENOMEM)
      taken = false;
  if (!taken)
    fl_log_line(&host->log, FL_LOG_WARNING,
                "a plugin whose vendor is let in now could not be loaded for want of memory; discovering plugins again "
                "loads it");
  fl_loader_end(&loader);
  fl_loading_end(host);
  fl_error_restore(&kept);
}
