/* What failed and what works again: see failures.h. */
#include "core/call/failures.h"

#include "core/support.h"

#include <stdlib.h>

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
