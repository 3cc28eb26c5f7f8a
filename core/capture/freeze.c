/*
 * Freezing what calls run, and resolving ahead of them. Nothing of it is on the call path: what is bound lasts until
 * something changes that resolving depends on, and all that would change it asks fl_refuse_frozen first. What a call
 * itself would change, when an implementation fails, is left undone (fl_keeps_frozen, and binding.c's memory of
 * failures).
 */
#include "core/call.h"
#include "core/platform.h"
#include "core/plugins.h"
#include "core/registry.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

bool fl_is_frozen(fl_host *host, char *who, size_t size) {
  fl_text names = {0};
  pthread_mutex_lock(&host->lock);
  bool frozen = host->frozen_by.n;
  fl_frozen_by(host, &names);
  pthread_mutex_unlock(&host->lock);
  if (who && size)
    snprintf(who, size, "%s", fl_text_get(&names));
  fl_text_free(&names);
  return frozen;
}

/* ------------------------------------------------------------------------------------------------ freezing, thawing */

/* What a frozen op skips must not depend on the clock: a failure whose back-off is over is forgotten, since calls try
 * the implementation anyway; the others last. Thawed, back-offs begin anew. The host's lock is held. */
static void set_backoffs(fl_host *host, bool frozen) {
  double now = fl_monotonic_seconds();
  for (uint32_t i = 0; i < host->n_ops; i++) {
    if (host->ops[i]->failures)
      fl_unbind(host->ops[i], NULL, NULL); /* where something failed, bindings look at the clock */
    for (fl_failure *failure = host->ops[i]->failures, *next; failure; failure = next) {
      next = failure->next;
      if (!frozen)
        failure->retry_at = failure->backoff > 0 ? now + failure->backoff : 0;
      else if (failure->retry_at && fl_is_due(failure->retry_at, failure->backoff, now))
        fl_failure_forget_locked(host->ops[i], failure->impl);
      else
        failure->retry_at = 0;
    }
  }
}

static fl_status check_name(const char *function, const char *who) {
  size_t length = who ? strnlen(who, FL_NAME_MAX + 1) : 0;
  if (!length)
    return fl_error(FL_EINVAL, "%s: `who` is %s, expected the name of who freezes, for messages", function,
                    who ? "empty" : "NULL");
  if (length > FL_NAME_MAX)
    return fl_error(FL_EINVAL, "%s: the name '%.32s…' is too long, at most %d bytes are allowed", function, who,
                    FL_NAME_MAX);
  return FL_OK;
}

/* Locks the host when all that any thread's calls may run has been asked. */
static void lock_asked(fl_host *host) {
  fl_registry_lock_asked(host);
  for (;;) {
    __attribute__((cleanup(fl_filter_release))) fl_policy *unasked = fl_scope_unasked(host);
    if (!unasked)
      return;
    pthread_mutex_unlock(&host->lock);
    fl_registry_ask_all(host, unasked);
    fl_registry_lock_asked(host);
  }
}

fl_status fl_freeze(fl_host *host, const char *who) {
  fl_status status = check_name("fl_freeze", who);
  if (!status)
    status = fl_thread_join();
  for (;;) {
    if (!status)
      status = fl_registry_prepare_all(host);
    if (status)
      return status;
    lock_asked(host);
    if (host->frozen_by.n || !fl_has_deferred(host))
      break; /* what was found while the host was being frozen waits until it is thawed */
    pthread_mutex_unlock(&host->lock);
  }
  if (!fl_strings_add(&host->frozen_by, who))
    status = fl_error_no_memory();
  else if (host->frozen_by.n == 1) {
    set_backoffs(host, true);
    atomic_store_explicit(&host->frozen, true, memory_order_release);
  }
  pthread_mutex_unlock(&host->lock);
  if (!status)
    fl_log_line(&host->log, FL_LOG_INFO, "Bindings are frozen by '%s'", who);
  return status;
}

/* Takes the first of that name out; those behind it move up. False: there is none. */
static bool remove_name(fl_strings *names, const char *who) {
  uint32_t i = 0;
  while (i < names->n && strcmp(names->items[i], who) != 0)
    i++;
  if (i == names->n)
    return false;
  free(names->items[i]);
  memmove(&names->items[i], &names->items[i + 1], (names->n - i) * sizeof *names->items); /* with the NULL at the end */
  names->n--;
  return true;
}

/* The host's lock is held. */
static fl_status not_frozen_by(const fl_host *host, const char *who) {
  fl_text state = {0};
  if (!host->frozen_by.n)
    return fl_error(FL_ESTATE, "fl_thaw: '%s' has not frozen the host; nobody has", who);
  fl_freeze_state(host, &state);
  fl_status status = fl_error(FL_ESTATE, "fl_thaw: '%s' has not frozen the host%s; %s", who,
                              fl_suggest_among(who, &host->frozen_by).text, fl_text_get(&state));
  fl_text_free(&state);
  return status;
}

fl_status fl_thaw(fl_host *host, const char *who) {
  bool thawed = false;
  fl_status status = check_name("fl_thaw", who);
  if (status)
    return status;
  pthread_mutex_lock(&host->lock);
  if (!remove_name(&host->frozen_by, who))
    status = not_frozen_by(host, who);
  else if (!host->frozen_by.n) {
    thawed = true;
    atomic_store_explicit(&host->frozen, false, memory_order_release);
    set_backoffs(host, false);
  }
  pthread_mutex_unlock(&host->lock);
  if (thawed) /* what was found while it was being frozen */
    status = fl_load_deferred(host, NULL);
  if (!status)
    fl_log_line(&host->log, FL_LOG_INFO, "'%s' has thawed the bindings%s", who,
                thawed ? "" : "; others keep them frozen");
  return status;
}

/* -------------------------------------------------------------------------------------------------------- warm-up */

/* What became of the ops. */
typedef struct progress {
  uint32_t resolved, without;
} progress;

static fl_status warm_op(fl_op *op, int32_t device_type, progress *done) {
  fl_status status = FL_OK;
  __attribute__((unused, cleanup(fl_reading_ends))) uint64_t outer = fl_read_begin(&fl_self);
  if (fl_registry_has_impl(op, device_type)) {
    done->resolved += fl_bind(op, (uint32_t)device_type, FL_ASK_AHEAD, &status) != NULL;
    done->without += status == FL_ENOIMPL;
  }
  if (status != FL_ENOIMPL)
    return status;
  fl_error_clear();
  return FL_OK;
}

fl_status fl_warm_up(fl_host *host, int32_t device_type, uint32_t *n_resolved, uint32_t *n_without) {
  progress done = {0};
  fl_status status = fl_thread_join();
  if (status)
    return status;
  if (device_type <= 0 || device_type >= FL_DEVICE_SLOTS)
    return fl_error(FL_EINVAL, "fl_warm_up: device type %d is not known", device_type);
  status = fl_registry_prepare_all(host);
  pthread_mutex_lock(&host->lock);
  for (uint32_t i = 0; i < host->n_ops && !status; i++) {
    fl_op *op = host->ops[i];
    pthread_mutex_unlock(&host->lock);
    status = warm_op(op, op->device_argument < 0 ? 0 : device_type, &done);
    pthread_mutex_lock(&host->lock);
  }
  pthread_mutex_unlock(&host->lock);
  if (status)
    return status;
  if (n_resolved)
    *n_resolved = done.resolved;
  if (n_without)
    *n_without = done.without;
  return FL_OK;
}
