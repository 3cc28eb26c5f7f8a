/* The plugins of a host: finding and loading them (rules D1–D5), and the record of what became of each. */
#include "core/plugins/plugins.h"

#include "core/platform.h"
#include "core/plugins/by_file.h"
#include "core/plugins/deferred.h"
#include "core/plugins/look_ahead.h"
#include "core/plugins/note_cache.h"
#include "core/registry.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The record of a file that is loaded already, or may stay deferred, NULL if none. The loading lock is held. */
static const fl_plugin_record *find_same(const fl_host *host, const fl_file *file, bool may_defer) {
  for (uint32_t i = 0; !file->error && i < host->n_plugins; i++) {
    const fl_plugin_record *record = &host->plugins[i];
    if ((record->status == FL_PLUGIN_LOADED || (may_defer && record->status == FL_PLUGIN_DEFERRED)) &&
        record->device == file->status.st_dev && record->inode == file->status.st_ino)
      return record;
  }
  return NULL;
}

static bool is_named(const fl_plugin_record *record) {
  return !strcmp(record->route, "module");
}

/* The next record behind `before`, UINT32_MAX at first, of another build of a plugin, or a copy: variants of one
 * backend share the name alone, and differ in their files'. Gives the number of records if there is none. */
static uint32_t next_same(const fl_host *host, const fl_plugin_record *one, uint32_t before) {
  uint32_t i = before;
  do
    i = strchr(one->file, '/') ? fl_plugin_elsewhere(host, one->file, i) : host->n_plugins;
  while (i < host->n_plugins && (strcmp(host->plugins[i].name, one->name) || !strchr(host->plugins[i].file, '/')));
  return i;
}

/* D1: what a plugin that was found, not named, gives way to: the same that came before it. One that was named and
 * failed is told of; an older one in its place would hide that. NULL: nothing. The loading lock is held. */
static const fl_plugin_record *find_rival(const fl_host *host, const fl_plugin_record *one) {
  for (uint32_t i = UINT32_MAX; !is_named(one) && (i = next_same(host, one, i)) < host->n_plugins;) {
    const fl_plugin_record *other = &host->plugins[i];
    bool counts = other->status == FL_PLUGIN_LOADED || other->status == FL_PLUGIN_DEFERRED ||
                  (other->status == FL_PLUGIN_FAILED && is_named(other) && !one->critical);
    if (counts)
      return other;
  }
  return NULL;
}

/* "'acme' of /opt/acme.so came before it; this is another build" */
static const char *rival_reason(fl_plugin_record *one, const fl_plugin_record *rival) {
  const char *build = !strcmp(one->build_id, rival->build_id) ? "; this is the same build" : "; this is another build";
  return fl_arena_format(&one->owned, "'%s' of %s %s%s", rival->name, rival->file,
                         rival->status == FL_PLUGIN_FAILED ? "was named explicitly, and failed" : "came before it",
                         *one->build_id && *rival->build_id ? build : "");
}

/* Room for one more record: what is published must not lack its record. Gives how many there is room for, 0: out of
 * memory.
 */
static uint32_t make_room(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  bool done = fl_array_grow(&host->plugins, host->n_plugins, sizeof *host->plugins);
  uint32_t room = done ? host->n_plugins + 1 : 0;
  pthread_mutex_unlock(&host->lock);
  return room;
}

/* Adds a record, in the place of an older one of the same file that was not loaded. There is room for `room` of them,
 * 0: none was made. Takes it over. */
static bool add_record(fl_host *host, fl_plugin_record *record, uint32_t room) {
  pthread_mutex_lock(&host->lock);
  uint32_t i = record->file ? fl_plugin_of_file(host, record->file, UINT32_MAX) : host->n_plugins;
  while (i < host->n_plugins && host->plugins[i].status == FL_PLUGIN_LOADED)
    i = fl_plugin_of_file(host, record->file, i);
  bool replaces = i < host->n_plugins;
  /* Who looks for an op of one that failed is told why it is missing. */
  if (replaces && !record->ops && (record->status == FL_PLUGIN_FAILED || record->again))
    record->ops = fl_arena_string(&record->owned, host->plugins[i].ops);
  if (replaces)
    record->opener = host->plugins[i].opener;
  bool added =
      !record->owned.failed && (replaces || i < room || fl_array_grow(&host->plugins, i, sizeof *host->plugins));
  if (added && replaces) {
    host->n_deferred -= host->plugins[i].status == FL_PLUGIN_DEFERRED;
    record->same_chain = host->plugins[i].same_chain;
    fl_plugin_record_clear(&host->plugins[i]);
  }
  if (added) {
    host->n_plugins += !replaces;
    host->plugins[i] = *record;
    if (!replaces)
      fl_plugin_of_file_added(host);
    host->n_deferred += record->status == FL_PLUGIN_DEFERRED;
  }
  pthread_mutex_unlock(&host->lock);
  if (!added)
    fl_plugin_record_clear(record);
  return added;
}

/* A record of what is not loaded; `same`: the same file is there by another name. */
static bool record_unloaded(fl_host *host, const fl_found *found, fl_plugin_status status, bool same,
                            const char *reason) {
  fl_plugin_record record = fl_plugin_record_begin(found->path);
  record.name =
      found->name ? fl_arena_string(&record.owned, found->name) : fl_plugin_name_of_file(&record.owned, found->path);
  record.reason = fl_arena_string(&record.owned, reason);
  record.route = found->route;
  record.status = status;
  record.critical = found->critical;
  record.gave_way = same;
  return add_record(host, &record, 0);
}

/* "until …: op_a,op_b,op_c and 12 more" */
static const char *deferral_reason(fl_arena *arena, const char *ops, const char *communicators) {
  enum { SHOWN = 120 };
  if (!*ops)
    return fl_arena_format(arena, "until ranks come together: %s", communicators ? communicators : "");
  size_t length = strlen(ops), shown = length;
  uint32_t more = 0;
  if (length > SHOWN)
    for (shown = SHOWN; shown && ops[shown] != ',';)
      shown--;
  for (const char *at = ops + shown; (at = strchr(at, ',')); at++)
    more++;
  if (!more)
    return fl_arena_format(arena, "until one of its ops is looked for: %s", ops);
  return fl_arena_format(arena, "until one of its ops is looked for: %.*s and %u more", (int)shown, ops,
                         (unsigned)more);
}

/* Keeps a plugin that was judged well for later. */
static fl_status defer(fl_host *host, const fl_found *found, fl_plugin_record *record) {
  record->reason = deferral_reason(&record->owned, record->ops, record->communicators);
  if (record->denied)
    record->reason = fl_arena_format(&record->owned, "%s; not for its platform: %s", record->reason, record->denied);
  record->symbol = fl_arena_string(&record->owned, found->symbol);
  record->status = FL_PLUGIN_DEFERRED;
  record->load_us = 0;
  fl_log_line(&host->log, FL_LOG_DEBUG, "plugin %s is deferred %s", record->name, record->reason);
  return add_record(host, record, 0) ? FL_OK : fl_error_no_memory();
}

/* Does a record say that of the file already? */
static bool is_said(const fl_host *host, const fl_plugin_record *one) {
  for (uint32_t i = UINT32_MAX; one->file && (i = fl_plugin_of_file(host, one->file, i)) < host->n_plugins;)
    if (host->plugins[i].status == one->status)
      return one->status == FL_PLUGIN_SKIPPED || !strcmp(host->plugins[i].reason, one->reason);
  return false;
}

/* What lacked descriptors or memory is tried again when one of its ops is looked for. */
static void postpone(fl_host *host, const fl_found *found, fl_plugin_record *record) {
  record->reason = fl_arena_format(
      &record->owned, "not loaded so far, and tried again when one of its ops is looked for: %s", record->reason);
  record->symbol = fl_arena_string(&record->owned, found->symbol);
  record->status = FL_PLUGIN_DEFERRED;
  if (!is_said(host, record))
    fl_log_line(&host->log, FL_LOG_WARNING, "plugin %s is %s", record->name, record->reason);
}

/* Records that a plugin gives way. Said once, at INFO: nothing is wrong. Takes the record over. */
static fl_status give_way(fl_host *host, const fl_plugin_record *rival, fl_plugin_record *record) {
  record->reason = rival_reason(record, rival);
  record->status = FL_PLUGIN_SKIPPED;
  record->gave_way = true;
  record->again = false;
  if (!is_said(host, record))
    fl_log_line(&host->log, FL_LOG_INFO, "plugin %s skipped: %s", record->file, record->reason);
  return add_record(host, record, 0) ? FL_OK : fl_error_no_memory();
}

/* What is named when others wait already goes before the same that was found. */
static bool set_aside(fl_host *host, const fl_plugin_record *named) {
  bool done = true;
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = UINT32_MAX; is_named(named) && done && (i = next_same(host, named, i)) < host->n_plugins;) {
    fl_plugin_record *other = &host->plugins[i];
    if (other->status != FL_PLUGIN_DEFERRED || other->opener || is_named(other))
      continue;
    const char *reason = fl_arena_format(&other->owned, "'%s' was named explicitly: %s", named->name, named->file);
    done = !other->owned.failed;
    other->owned.failed = false; /* it stays as it is then */
    if (!done)
      break;
    other->reason = reason;
    other->status = FL_PLUGIN_SKIPPED;
    other->gave_way = true;
    other->again = false;
    host->n_deferred--;
  }
  pthread_mutex_unlock(&host->lock);
  return done;
}

static bool brought(const fl_host *host, const char *plugin, const char *name) {
  const fl_op *op = fl_registry_known(host, name);
  const fl_impl_set *set = op ? atomic_load_explicit(&op->impls, memory_order_relaxed) : NULL;
  bool found = op && !strcmp(op->schema_plugin, plugin);
  for (uint32_t i = 0; set && i < set->n && !found; i++)
    found = !strcmp(set->impls[i]->provider->plugin, plugin);
  return found;
}

/* Each op that a plugin lists in vain makes somebody load it in vain. */
static void warn_of_missing_ops(fl_host *host, const fl_plugin_record *record) {
  fl_strings ops = {0}, missing = {0};
  bool done = !record->ops || fl_split(&ops, record->ops, ',');
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < ops.n && done; i++)
    done = brought(host, record->name, ops.items[i]) || fl_strings_add(&missing, ops.items[i]);
  pthread_mutex_unlock(&host->lock);
  for (uint32_t i = 0; i < missing.n; i++)
    fl_log_line(&host->log, FL_LOG_WARNING, "plugin %s: its FL_PLUGIN_OPS lists '%s', of which it registered nothing",
                record->name, missing.items[i]);
  fl_strings_free(&ops);
  fl_strings_free(&missing);
}

/* In a process that tries plugins none is kept out: who asks for that will load it. */
bool fl_plugin_is_kept_out(fl_host *host, const fl_note_info *info, fl_plugin_record *record) {
  fl_text reason = {0};
  if (!info->vendor || host->load_watch)
    return false;
  pthread_mutex_lock(&host->lock);
  bool out = fl_vendor_is_kept_out(host, info->vendor, &reason);
  pthread_mutex_unlock(&host->lock);
  if (out)
    record->denied = fl_arena_text(&record->owned, &reason);
  return out;
}

/* Nothing is wrong, so it is said once, at INFO. Takes the record over. */
static fl_status keep_out(fl_host *host, const fl_found *found, fl_plugin_record *record) {
  record->reason = fl_arena_format(&record->owned, "not loaded: %s", record->denied);
  record->symbol = fl_arena_string(&record->owned, found->symbol);
  record->status = FL_PLUGIN_SKIPPED;
  record->kept_out = true;
  record->load_us = 0;
  if (!is_said(host, record))
    fl_log_line(&host->log, FL_LOG_INFO, "plugin %s is %s", record->name, record->reason);
  fl_error(FL_EPLUGIN, "plugin %s is %s", record->name, record->reason);
  if (!add_record(host, record, 0))
    return fl_error_no_memory();
  atomic_store(&host->kept_out, true);
  return FL_EPLUGIN;
}

/* FL_PLUGIN_PLATFORM: is there a file or a variable that says that the platform may be active? */
static bool has_sign(const char *signs) {
  fl_strings words = {0};
  bool found = !fl_split(&words, signs, ','); /* out of memory: the plugin itself will tell */
  for (uint32_t i = 0; i < words.n && !found; i++) {
    const char *word = words.items[i], *value = *word == '$' ? secure_getenv(word + 1) : NULL;
    found = *word == '$' ? value && *value : !access(word, F_OK);
  }
  fl_strings_free(&words);
  return found;
}

/* Not if its platform may be active. One whose vendor is denied is not in force by what the plugin's code says. */
static bool wait_with(fl_host *host, const fl_note_info *info, fl_plugin_record *record) {
  bool signs = info->signs && has_sign(info->signs);
  if (!info->ops)
    return false;
  pthread_mutex_lock(&host->lock);
  if (signs)
    record->denied = fl_platform_of_file(host, record->name, info->platform, &record->owned).not_asked;
  bool wait = (!signs || record->denied) && fl_may_defer(host, info->ops);
  pthread_mutex_unlock(&host->lock);
  return wait;
}

/* One attempt to load, for when its thread does not come back from it. */
typedef struct attempt {
  fl_loader *loader;
  fl_note_info *info;
  fl_plugin_record *record;
  uint32_t room; /* for the record */
} attempt;

/* Why is in the record. Nobody but this thread can leave the lock. */
static void give_up(void *user) {
  attempt *a = user;
  fl_host *host = a->loader->host;
  fl_log_line(&host->log, FL_LOG_ERROR, "plugin %s failed: %s", a->record->name, a->record->reason);
  add_record(host, a->record, a->room);
  fl_note_clear(a->info);
  fl_loader_end(a->loader);
  fl_loading_abandon(host);
}

/* Defers or loads what was judged; `status` is the judgement. Takes the record over. */
static fl_status load_judged(fl_loader *loader, const fl_found *found, fl_status status, bool may_defer,
                             fl_note_info *info, fl_plugin_record *record, bool *loaded) {
  fl_host *host = loader->host;
  if (!status && fl_plugin_is_kept_out(host, info, record)) {
    status = keep_out(host, found, record);
    return may_defer && status == FL_EPLUGIN ? FL_OK : status;
  }
  if (!status && may_defer && !found->critical && wait_with(host, info, record))
    return defer(host, found, record);
  uint32_t room = make_room(host);
  if (!room) {
    fl_plugin_record_clear(record);
    return fl_error_no_memory();
  }
  if (!status) {
    attempt a = {loader, info, record, room};
    pthread_cleanup_push(give_up, &a);
    status = fl_loader_open(loader, found->symbol, info, record);
    pthread_cleanup_pop(false);
  }
  if (status == FL_ENOMEM)
    return status;
  record->again = record->again && !found->critical;
  if (record->again) {
    postpone(host, found, record);
  } else if (status) {
    fl_log_line(&host->log, FL_LOG_ERROR, "plugin %s failed: %s", record->name, record->reason);
  } else {
    fl_log_line(&host->log, FL_LOG_INFO, "plugin %s loaded.", record->name);
    warn_of_missing_ops(host, record);
  }
  *loaded = !status;
  return add_record(host, record, room) ? status : fl_error_no_memory();
}

static bool waits(fl_host *host, const fl_found *found, const fl_note_info *info, fl_plugin_record *record) {
  return fl_plugin_is_kept_out(host, info, record) || (!found->critical && wait_with(host, info, record));
}

/* Judges one file, and defers or loads it, or skips it for another. */
static fl_status load_file(fl_loader *loader, const fl_found *found, const fl_file *file, bool may_defer,
                           bool *loaded) {
  fl_host *host = loader->host;
  fl_plugin_record record = {0};
  fl_note_info info;
  fl_status status = fl_loader_judge(loader, found->path, file, &record, &info);
  if (status == FL_ENOMEM)
    return status;
  record.route = found->route;
  record.critical = found->critical;
  const fl_plugin_record *rival = find_rival(host, &record);
  if (rival) {
    status = give_way(host, rival, &record);
  } else if (set_aside(host, &record)) {
    status = load_judged(loader, found, status, may_defer, &info, &record, loaded);
  } else {
    fl_plugin_record_clear(&record);
    status = fl_error_no_memory();
  }
  fl_note_clear(&info);
  return status;
}

fl_status fl_plugins_load(fl_loader *loader, const fl_found *found, bool may_defer, bool *loaded) {
  fl_host *host = loader->host;
  *loaded = false;
  if (found->problem) {
    fl_log_line(&host->log, FL_LOG_ERROR, "plugin %s failed: %s", found->name ? found->name : found->path,
                found->problem);
    if (!record_unloaded(host, found, FL_PLUGIN_FAILED, false, found->problem))
      return fl_error_no_memory();
    return fl_error(FL_EPLUGIN, "%s", found->problem);
  }
  if (found->disabled)
    return record_unloaded(host, found, FL_PLUGIN_SKIPPED, false, "disabled by its manifest") ? FL_OK
                                                                                              : fl_error_no_memory();
  fl_file file = fl_file_look(found->path);
  const fl_plugin_record *same = find_same(host, &file, may_defer && !found->critical);
  if (!same)
    return load_file(loader, found, &file, may_defer, loaded);
  if (!strcmp(same->file, found->path))
    return FL_OK;
  char *reason = fl_format("the same file as %s, which is %s", same->file,
                           same->status == FL_PLUGIN_LOADED ? "loaded" : "deferred");
  bool recorded = reason && record_unloaded(host, found, FL_PLUGIN_SKIPPED, true, reason);
  free(reason);
  return recorded ? FL_OK : fl_error_no_memory();
}

fl_status fl_discover_plugins(fl_host *host, uint32_t *n_loaded) {
  FL_RELEASED_BY(fl_found_list_free) fl_found_list found = {0};
  FL_RELEASED_BY(fl_strings_free) fl_strings directories = {0};
  uint32_t n = 0;
  char *critical = NULL;
  fl_loader loader = {0};
  FL_RELEASED_BY(fl_upcoming_end) fl_upcoming later;
  fl_upcoming_set(&later, &loader, &found, waits);
  fl_status status = fl_refuse_frozen_unlocked(host, "discovering plugins");
  if (status)
    return status;
  fl_loading_begin(host);
  fl_loader_begin(&loader, host, &host->log);
  status = fl_loader_read_locks(&loader);
  if (status)
    goto out;
  status = fl_discover(&host->sources, &host->log, &directories, &found);
  if (status)
    goto out;
  if (!host->directories.n) { /* what was handed out by fl_plugin_directories stays */
    host->directories = directories;
    directories = (fl_strings){0};
  }
  if (found.n)
    fl_log_line(&host->log, FL_LOG_INFO, "Available plugins for group flhost.plugins:");
  for (uint32_t i = 0; i < found.n && fl_log_enabled(&host->log, FL_LOG_INFO); i++) {
    const fl_found *one = &found.items[i];
    fl_log_line(&host->log, FL_LOG_INFO, "- %s -> %s",
                one->name ? one->name : fl_plugin_name_of_file(&found.owned, one->path), one->path);
  }
  fl_upcoming_begin(&later);
  for (uint32_t i = 0; i < found.n && !critical; i++) {
    bool loaded;
    later.next = i + 1;
    fl_status one = fl_plugins_load(&loader, &found.items[i], true, &loaded);
    n += loaded;
    if (one && found.items[i].critical)
      critical = fl_format("critical plugin %s: %s", found.items[i].name ? found.items[i].name : found.items[i].path,
                           fl_error_message());
  }
  if (critical)
    status = fl_error(FL_EPLUGIN, "%s", critical);
  else if (n_loaded)
    *n_loaded = n;
out:
  fl_loader_end(&loader);
  fl_loading_end(host);
  free(critical);
  return status;
}

fl_status fl_load_plugin(fl_host *host, const char *module) {
  FL_RELEASED_BY(fl_found_list_free) fl_found_list found = {0};
  bool loaded;
  fl_loader loader;
  fl_status status = fl_refuse_frozen_unlocked(host, "loading a plugin");
  if (status)
    return status;
  fl_loading_begin(host);
  fl_loader_begin(&loader, host, &host->log);
  if (!host->directories.n && !fl_default_plugin_directories(&host->directories))
    status = fl_error_no_memory();
  if (!status)
    fl_find_module(&host->directories, module, &found);
  if (found.owned.failed)
    status = fl_error_no_memory();
  if (!status)
    status = fl_plugins_load(&loader, &found.items[0], false, &loaded);
  fl_loader_end(&loader);
  fl_loading_end(host);
  return status;
}

void fl_clear_discovered_plugins(fl_host *host) {
  uint32_t kept = 0;
  fl_loading_begin(host);
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_plugins; i++) {
    if (host->plugins[i].status == FL_PLUGIN_LOADED || host->plugins[i].status == FL_PLUGIN_DEFERRED ||
        host->plugins[i].kept_out)
      host->plugins[kept++] = host->plugins[i];
    else
      fl_plugin_record_clear(&host->plugins[i]);
  }
  host->n_plugins = kept;
  fl_plugins_by_file_renew(host);
  pthread_mutex_unlock(&host->lock);
  fl_loading_end(host);
}

const char *const *fl_plugin_directories(fl_host *host) {
  static const char *const none[] = {NULL};
  return host->directories.n ? (const char *const *)host->directories.items : none;
}

/* ------------------------------------------------------------------------------------------------------ the list */

/* D4: a plugin's implementations. */
typedef struct impl_counts {
  uint32_t total, unavailable, unasked;
  const char *reason; /* of the first that is not available */
  const fl_impl_record *first_unasked;
} impl_counts;

/* The host's lock is held, availability was asked. */
static impl_counts count_impls(const fl_host *host, const char *plugin) {
  impl_counts counts = {0};
  for (uint32_t i = 0; i < host->n_ops; i++) {
    const fl_impl_set *set = atomic_load_explicit(&host->ops[i]->impls, memory_order_acquire);
    for (uint32_t j = 0; set && j < set->n; j++) {
      const fl_impl_record *impl = set->impls[j];
      if (strcmp(impl->provider->plugin, plugin))
        continue;
      bool asked = fl_impl_is_asked(host, impl);
      const char *why = asked ? atomic_load(&impl->reason) : NULL;
      counts.total++;
      counts.unavailable += why != NULL;
      counts.unasked += !asked;
      if (!counts.reason)
        counts.reason = why;
      if (!counts.first_unasked && !asked)
        counts.first_unasked = impl;
    }
  }
  return counts;
}

/* What is missing of a plugin that is loaded, a line each. The host's lock is held. */
static void add_lacking(fl_host *host, const impl_counts *counts, const char *refused, fl_text *reason) {
  bool scoped;
  const fl_policy *policy = fl_scope_policy(host, &scoped);
  if (counts->unavailable)
    fl_text_add(reason, "%u of %u not available: %s", (unsigned)counts->unavailable, (unsigned)counts->total,
                counts->reason);
  if (counts->unasked) {
    fl_text_add(reason, "%s%u of %u not asked whether available: ", reason->length ? "\n" : "",
                (unsigned)counts->unasked, (unsigned)counts->total);
    fl_kept_out_reason(host, policy, scoped, counts->first_unasked->vendor, reason);
  }
  fl_text_add(reason, "%s%s", reason->length && *refused ? "\n" : "", refused);
}

static fl_plugin_info describe(fl_host *host, const fl_plugin_record *record, fl_arena *arena) {
  fl_text reason = {0};
  fl_plugin_status status = record->status;
  impl_counts counts = status == FL_PLUGIN_LOADED ? count_impls(host, record->name) : (impl_counts){0};
  /* Without implementations a plugin may bring a platform; if there is a reason, that is not active. */
  if (status == FL_PLUGIN_LOADED && (counts.total ? counts.unavailable == counts.total : *record->reason != 0)) {
    status = FL_PLUGIN_UNAVAILABLE;
    fl_text_add(&reason, "%s", counts.total ? counts.reason : record->reason);
  } else {
    add_lacking(host, &counts, record->reason, &reason);
  }
  return (fl_plugin_info){
      .name = fl_arena_string(arena, record->name),
      .file = fl_arena_string(arena, record->file),
      .version = fl_arena_string(arena, record->version),
      .vendor = fl_arena_string(arena, record->vendor),
      .licence = fl_arena_string(arena, record->licence),
      .route = record->route,
      .abi = fl_arena_string(arena, record->abi),
      .status = fl_plugin_status_name(status),
      .reason = fl_arena_text(arena, &reason),
      .load_us = record->load_us,
      .impls = record->impls,
      .impl_vendor = fl_arena_string(arena, record->token ? record->token : ""),
  };
}

fl_status fl_get_discovered_plugins(fl_host *host, fl_plugins **result) {
  fl_arena *arena;
  fl_status status = fl_thread_join();
  if (status)
    return status;
  fl_registry_lock_asked(host); /* who is asked may throw: nothing is to be freed yet */
  fl_plugins *list = fl_arena_create(sizeof *list, &arena);
  if (!list) {
    pthread_mutex_unlock(&host->lock);
    return fl_error_no_memory();
  }
  fl_plugin_info *items = fl_arena_array(arena, host->n_plugins, sizeof *items);
  for (uint32_t i = 0; items && i < host->n_plugins; i++)
    items[i] = describe(host, &host->plugins[i], arena);
  *list = (fl_plugins){.size = sizeof *list, .n = host->n_plugins, .item_size = sizeof *items, .items = items};
  pthread_mutex_unlock(&host->lock);
  status = fl_arena_finish(list, sizeof *list);
  if (!status)
    *result = list;
  return status;
}

void fl_plugins_free(fl_plugins *plugins) {
  fl_arena_destroy(plugins, sizeof *plugins);
}
