/* What failed in calls, works again, and how often what happened: see failures.h, and flhost/failures.h for what
 * engines ask of it. */
#include "core/call/failures.h"

#include "core/call/prepared.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

void fl_remember_failure(fl_op *op, fl_impl_record *record, const char *reason, bool barred) {
  fl_host *host = op->host;
  pthread_mutex_lock(&host->lock);
  bool frozen = atomic_load_explicit(&host->frozen, memory_order_relaxed);
  fl_failure *failure = frozen ? NULL : fl_failure_find_locked(op, record);
  /* A plugin that was withdrawn meanwhile leaves nothing behind. */
  if (!failure && !frozen && fl_registry_find_impl(op, record->impl_id) == record)
    failure = fl_failure_add_locked(op, record);
  if (failure) {
    double first = host->config->values[FL_SETTING_RETRY_FIRST].seconds,
           most = host->config->values[FL_SETTING_RETRY_MAX].seconds;
    failure->backoff = failure->backoff > 0 ? failure->backoff * 2 : first;
    if (failure->backoff > most)
      failure->backoff = most > first ? most : first;
    failure->barred |= barred;
    if (failure->barred)
      failure->backoff = 0;
    failure->retry_at = first > 0 && !failure->barred ? fl_monotonic_seconds() + failure->backoff : 0;
    char *copy = fl_strdup(reason);
    if (copy) {
      free(failure->reason);
      failure->reason = copy;
    }
    fl_unbind(op, NULL, NULL);
  }
  pthread_mutex_unlock(&host->lock);
}

void fl_forget_failure(fl_op *op, const fl_impl_record *record) {
  bool forgotten;
  pthread_mutex_lock(&op->host->lock);
  forgotten = !atomic_load_explicit(&op->host->frozen, memory_order_relaxed) && fl_failure_find_locked(op, record);
  if (forgotten) {
    fl_failure_forget_locked(op, record);
    fl_unbind(op, NULL, NULL);
  }
  pthread_mutex_unlock(&op->host->lock);
  if (forgotten)
    fl_log_line(&op->host->log, FL_LOG_INFO, "Implementation '%s' of op '%s' works again", record->impl_id, op->name);
}

/* ----------------------------------------------------------------------------------------------- what engines ask */

fl_status fl_get_failed_impls(fl_host *host, const char *name, fl_failed_impls **result) {
  fl_arena *arena;
  fl_op *only = NULL;
  if (name && !(only = fl_find_op(host, name)))
    return FL_ENOENT;
  fl_failed_impls *list = fl_arena_create(sizeof *list, &arena);
  if (!list)
    return fl_error_no_memory();
  pthread_mutex_lock(&host->lock);
  size_t n = 0;
  for (uint32_t i = 0; i < host->n_ops; i++)
    for (const fl_failure *f = host->ops[i]->failures; f; f = f->next)
      n++;
  fl_failed_impl *items = fl_arena_array(arena, n, sizeof *items);
  double now = fl_monotonic_seconds();
  *list = (fl_failed_impls){.size = sizeof *list, .item_size = sizeof *items, .items = items};
  for (uint32_t i = 0; items && i < host->n_ops; i++)
    for (const fl_failure *f = host->ops[i]->failures; f && (!only || only == host->ops[i]); f = f->next)
      items[list->n++] = (fl_failed_impl){
          .op = fl_arena_string(arena, host->ops[i]->name),
          .impl_id = fl_arena_string(arena, f->impl->impl_id),
          .reason = fl_arena_string(arena, f->reason ? f->reason : ""),
          .retry_in = !f->retry_at                              ? -1
                      : fl_is_due(f->retry_at, f->backoff, now) ? 0
                                                                : f->retry_at - now,
      };
  pthread_mutex_unlock(&host->lock);
  fl_status status = fl_arena_finish(list, sizeof *list);
  if (!status)
    *result = list;
  return status;
}

void fl_failed_impls_free(fl_failed_impls *failed) {
  fl_arena_destroy(failed, sizeof *failed);
}

void fl_clear_failed_impls(fl_host *host, const char *name) {
  bool cleared = false;
  pthread_mutex_lock(&host->lock);
  fl_status refused = fl_refuse_frozen(host, "clearing failed implementations");
  for (uint32_t i = 0; i < host->n_ops && !refused; i++)
    if (host->ops[i]->failures && (!name || !strcmp(name, host->ops[i]->name))) {
      cleared = true;
      fl_failures_free_locked(host->ops[i]);
      fl_unbind(host->ops[i], NULL, NULL);
    }
  pthread_mutex_unlock(&host->lock);
  if (refused)
    fl_log_line(&host->log, FL_LOG_WARNING, "%s", fl_error_message());
  else if (!name)
    fl_log_line(&host->log, FL_LOG_DEBUG, "Cleared all failed implementations cache");
  else if (cleared)
    fl_log_line(&host->log, FL_LOG_DEBUG, "Cleared failed implementations cache for op '%s'", name);
  fl_host_bound_memory(host);
}

fl_status fl_get_counters(fl_host *host, const char *name, const char *impl_id, fl_counters *counters) {
  fl_counters found = {0};
  fl_status status = fl_sized_check(counters, offsetof(fl_counters, fallbacks_not_supported),
                                    "fl_get_counters: the counters'", "fl_counters");
  if (status)
    return status;
  fl_op *op = fl_find_op(host, name);
  if (!op)
    return FL_ENOENT;
  pthread_mutex_lock(&host->lock);
  const fl_impl_record *record = fl_registry_find_impl(op, impl_id);
  if (record)
    found = (fl_counters){
        .calls = record->count == UINT32_MAX ? 0 : fl_count_total(record->count),
        .fallbacks_not_supported = fl_impl_record_events(record, FL_EVENT_NOT_SUPPORTED),
        .fallbacks_failed = fl_impl_record_events(record, FL_EVENT_FALLBACK),
        .failures = fl_impl_record_events(record, FL_EVENT_FAILURE),
    };
  if (record)
    found.prepared_bytes = fl_prepared_sum_locked(op, impl_id, &found.prepared);
  status = record ? FL_OK : fl_registry_no_such_impl(op, impl_id);
  pthread_mutex_unlock(&host->lock);
  if (!status)
    fl_sized_give(counters, &found, sizeof found);
  return status;
}
