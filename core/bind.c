/* Making bindings, and what is remembered between them: first uses and failures. Not on the call path. */
#include "core/bind.h"

#include "core/error.h"
#include "core/probes.h"
#include "core/select.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double fl_monotonic(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ----------------------------------------------------------------------------------------------------- failures */

static fl_failure *find_failure(const fl_op *op, const fl_impl_record *record) {
  for (fl_failure *failure = op->failures; failure; failure = failure->next)
    if (failure->impl == record)
      return failure;
  return NULL;
}

void fl_failure_forget(fl_op *op, const fl_impl_record *record) {
  for (fl_failure **link = &op->failures; *link; link = &(*link)->next)
    if ((*link)->impl == record) {
      fl_failure *failure = *link;
      *link = failure->next;
      free(failure->reason);
      free(failure);
      return;
    }
}

void fl_failures_free(fl_op *op) {
  while (op->failures)
    fl_failure_forget(op, op->failures->impl);
}

void fl_remember_failure(fl_op *op, fl_impl_record *record, const char *reason) {
  fl_host *host = op->host;
  pthread_mutex_lock(&host->lock);
  fl_failure *failure = find_failure(op, record);
  /* A plugin that was withdrawn meanwhile leaves nothing behind. */
  if (!failure && fl_registry_find_impl(op, record->impl.impl_id) == record && (failure = calloc(1, sizeof *failure))) {
    failure->impl = record;
    fl_failure **link = &op->failures; /* in the order in which they failed */
    while (*link)
      link = &(*link)->next;
    *link = failure;
  }
  if (failure) {
    double first = host->config->retry_first, most = host->config->retry_max;
    failure->backoff = failure->backoff > 0 ? failure->backoff * 2 : first;
    if (failure->backoff > most)
      failure->backoff = most > first ? most : first;
    failure->retry_at = first > 0 ? fl_monotonic() + failure->backoff : 0;
    char *copy = fl_strdup(reason);
    if (copy) {
      free(failure->reason);
      failure->reason = copy;
    }
    fl_host_advance(host);
  }
  pthread_mutex_unlock(&host->lock);
}

void fl_forget_failure(fl_op *op, const fl_impl_record *record) {
  bool forgotten;
  pthread_mutex_lock(&op->host->lock);
  forgotten = find_failure(op, record) != NULL;
  if (forgotten) {
    fl_failure_forget(op, record);
    fl_host_advance(op->host);
  }
  pthread_mutex_unlock(&op->host->lock);
  if (forgotten)
    fl_log_line(&op->host->log, FL_LOG_INFO, "Implementation '%s' of op '%s' works again", record->impl.impl_id,
                op->name);
}

/* Every candidate failed before and none may be tried yet. The host's lock is held. */
static fl_status all_failed(const fl_op *op) {
  fl_text text = {0};
  fl_text_add(&text, "All implementations for op='%s' have failed previously. Failed impl_ids: {", op->name);
  for (const fl_failure *failure = op->failures; failure; failure = failure->next)
    fl_text_add(&text, "%s'%s'", failure == op->failures ? "" : ", ", failure->impl->impl.impl_id);
  fl_text_add(&text, "}");
  for (const fl_failure *failure = op->failures; failure; failure = failure->next)
    fl_text_add(&text, "\n  %s: %s", failure->impl->impl.impl_id, failure->reason ? failure->reason : "");
  fl_status status = fl_error(FL_ENOIMPL, "%s", fl_text_get(&text));
  fl_text_free(&text);
  return status;
}

/* ---------------------------------------------------------------------------------------------------- first uses */

static const char *vendor_text(const fl_impl_record *record) {
  return record->impl.vendor ? record->impl.vendor : "None";
}

/* The peer's file of ops that kind default serves: one line for each (op, impl), never through a link. */
static void list_op(fl_host *host, const fl_impl_record *record) {
  char line[2 * FL_NAME_MAX + 64];
  char *path = NULL;
  if (record->impl.kind != FL_KIND_DEFAULT)
    return;
  snprintf(line, sizeof line, "[DEBUG] vllm_fl.dispatch.ops.%s: %s\n", record->impl.op_name, record->impl.impl_id);
  pthread_mutex_lock(&host->lock);
  if (host->config->oplist_path && !fl_strings_has(&host->oplist, line) && fl_strings_add(&host->oplist, line))
    path = fl_strdup(host->config->oplist_path);
  pthread_mutex_unlock(&host->lock);
  if (!path)
    return;
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, line, strlen(line)) < 0)
    fl_log_line(&host->log, FL_LOG_WARNING, "FLAGGEMS_ENABLE_OPLIST_PATH: cannot write '%s': %m", path);
  if (fd >= 0)
    close(fd);
  free(path);
}

/* Takes a binding out of its slot, unless `record` is its first candidate. The host's lock is held. */
static void unbind(fl_host *host, fl_slots *slots, const fl_impl_record *record) {
  uint64_t generation = atomic_load_explicit(&host->generation, memory_order_relaxed);
  for (int i = 0; i < FL_DEVICE_SLOTS; i++) {
    fl_binding *binding = atomic_load_explicit(&slots->by_device[i], memory_order_relaxed);
    if (!binding || binding->generation != generation || binding->candidates[0].record == record)
      continue; /* one that is out of date is made anew, and noted, anyway */
    atomic_store_explicit(&slots->by_device[i], NULL, memory_order_release);
    fl_retire(&host->retired, binding, fl_binding_free);
  }
}

/*
 * A use is noted when a binding is made, so that no call has to look. For a scope that comes and goes to be noted each
 * time, a change unbinds the op wherever it was bound otherwise; but only so often, lest threads under different
 * policies unbind each other for ever.
 */
enum { SWITCHES_NOTED = 16 };

static void unbind_others(fl_op *op, const fl_impl_record *record) {
  if (op->switches++ >= SWITCHES_NOTED)
    return;
  unbind(op->host, &op->slots, record);
  for (fl_view *view = op->host->views; view; view = view->next) {
    fl_view_table *table = atomic_load_explicit(&view->table, memory_order_relaxed);
    fl_slots *slots =
        table && op->index < table->n ? atomic_load_explicit(&table->ops[op->index], memory_order_relaxed) : NULL;
    if (slots)
      unbind(op->host, slots, record);
  }
}

/* Remembers what the op uses; `before` gets what it used (malloc'ed). False: no change. */
static bool change_use(fl_op *op, const fl_impl_record *record, char **before) {
  bool changed = false;
  *before = NULL;
  pthread_mutex_lock(&op->host->lock);
  if (!op->last_used || strcmp(op->last_used, record->impl.impl_id)) {
    char *copy = fl_strdup(record->impl.impl_id);
    if (copy) {
      *before = op->last_used;
      op->last_used = copy;
      changed = true;
      unbind_others(op, record);
    }
  }
  pthread_mutex_unlock(&op->host->lock);
  return changed;
}

void fl_note_use(fl_op *op, const fl_impl_record *record) {
  fl_log *log = &op->host->log;
  const char *kind = fl_kind_name((fl_kind)record->impl.kind);
  char *before;
  if (!change_use(op, record, &before))
    return;
  if (before)
    fl_log_line(log, FL_LOG_INFO, "Op '%s' switched from '%s' to '%s' (kind=%s, vendor=%s)", op->name, before,
                record->impl.impl_id, kind, vendor_text(record));
  else
    fl_log_line(log, FL_LOG_INFO, "Op '%s' using '%s' (kind=%s, vendor=%s)", op->name, record->impl.impl_id, kind,
                vendor_text(record));
  free(before);
  list_op(op->host, record);
}

void fl_note_fallback(fl_op *op, const fl_impl_record *record) {
  char *before;
  change_use(op, record, &before);
  free(before);
  list_op(op->host, record);
}

/* ------------------------------------------------------------------------------------------------------ bindings */

void fl_binding_free(void *memory) {
  fl_binding *binding = memory;
  if (!binding)
    return;
  free(binding->candidates[0].noted); /* one array for all */
  free(binding);
}

/* Can the first candidate's kernel be called without looking at anything? */
static bool is_direct(const fl_binding *binding) {
  const struct fl_candidate *first = &binding->candidates[0];
  return !first->supports_args && !first->dtypes && !first->inplace_only && !first->on_probation &&
         !binding->retry_at && !binding->statistics && !binding->preserve_inputs;
}

/* Does anything but the first candidate's own predicate have to be looked at? */
static bool is_guarded(const fl_binding *binding) {
  const struct fl_candidate *first = &binding->candidates[0];
  return !first->inplace_only && !first->on_probation && !binding->retry_at && !binding->preserve_inputs;
}

static bool set_candidate(fl_binding *binding, uint32_t i, fl_impl_record *record, bool on_probation,
                          _Atomic bool *noted) {
  struct fl_candidate *candidate = &binding->candidates[i];
  uint32_t all = fl_schema_dtypes(binding->op->schema);
  if (binding->statistics && record->count == UINT32_MAX && (record->count = fl_count_new()) == UINT32_MAX)
    return false;
  *candidate = (struct fl_candidate){
      .record = record,
      .fn = record->impl.fn,
      .self = record->impl.self,
      .supports_args = record->impl.supports_args,
      /* No need to look at the element type where the schema lets none through that the impl does not take. */
      .dtypes = all && !(all & ~record->impl.dtypes) ? 0 : record->impl.dtypes,
      .count = record->count,
      .on_probation = on_probation,
      .inplace_only = record->impl.flags & FL_IMPL_INPLACE_ONLY,
      .noted = noted + i,
  };
  return true;
}

/* The host's lock is held. */
static fl_binding *make_binding(fl_op *op, const fl_selection *selection, fl_status *status) {
  fl_host *host = op->host;
  uint32_t n = selection->n_accepted;
  bool strict = selection->policy->fields.strict;
  double now = op->failures ? fl_monotonic() : 0;
  _Atomic bool *noted = calloc(n, sizeof *noted);
  fl_binding *binding = calloc(1, sizeof *binding + n * sizeof binding->candidates[0]);
  if (!binding || !noted) {
    free((void *)noted);
    free(binding);
    *status = fl_error_no_memory();
    return NULL;
  }
  binding->op = op;
  binding->strict = strict;
  binding->preserve_inputs = selection->policy->fields.preserve_inputs && !strict;
  binding->statistics = host->statistics;
  binding->generation = atomic_load_explicit(&host->generation, memory_order_relaxed);
  binding->candidates[0].noted = noted;
  for (uint32_t i = 0; i < n; i++) {
    fl_impl_record *record = selection->items[i].record;
    const fl_failure *failure = strict ? NULL : find_failure(op, record);
    if (failure && (!failure->retry_at || now < failure->retry_at)) {
      if (failure->retry_at && (!binding->retry_at || failure->retry_at < binding->retry_at))
        binding->retry_at = failure->retry_at;
      continue;
    }
    if (!set_candidate(binding, binding->n, record, failure != NULL, noted)) {
      fl_binding_free(binding);
      *status = fl_error_no_memory();
      return NULL;
    }
    binding->n++;
  }
  if (!binding->n) {
    *status = all_failed(op);
    fl_binding_free(binding);
    return NULL;
  }
  binding->direct = is_direct(binding);
  binding->fn = binding->direct ? binding->candidates[0].fn : is_guarded(binding) ? fl_run_guarded : fl_run_candidates;
  binding->self = binding->direct ? binding->candidates[0].self : binding;
  return binding;
}

/* Does the op's own order end without an implementation that takes every call? True once. The host's lock is held. */
static bool order_is_partial(fl_op *op, const fl_selection *selection) {
  if (op->order_is_partial || !selection->per_op || !selection->n_accepted)
    return false;
  for (uint32_t i = 0; i < selection->n_accepted; i++)
    if (!selection->items[i].record->impl.supports_args)
      return false;
  for (uint32_t i = 0; i < selection->n_order; i++)
    if (!strcmp(selection->order[i], "reference") || !strcmp(selection->order[i], "native"))
      return false; /* there is nothing to advise */
  return op->order_is_partial = true;
}

fl_binding *fl_bind(fl_op *op, fl_slots *slots, int32_t device_type, fl_status *status) {
  fl_host *host = op->host;
  fl_selection selection;
  fl_binding *binding = NULL;
  bool again, partial = false;
  do {
    bool scoped;
    fl_registry_ask_availability(host, op);
    pthread_mutex_lock(&host->lock);
    *status = fl_select(&selection, op, fl_scope_policy(host, &scoped), device_type);
    again = !*status && selection.unasked;
    if (!*status && !again && !selection.n_accepted)
      *status = fl_selection_error(&selection);
    if (!*status && !again) {
      partial = order_is_partial(op, &selection);
      binding = make_binding(op, &selection, status);
    }
    if (binding) {
      fl_binding *old = atomic_load_explicit(&slots->by_device[device_type], memory_order_relaxed);
      atomic_store_explicit(&slots->by_device[device_type], binding, memory_order_release);
      fl_retire(&host->retired, old, fl_binding_free);
    }
    fl_selection_free(&selection);
    pthread_mutex_unlock(&host->lock);
  } while (again);
  if (partial)
    fl_log_line(&host->log, FL_LOG_WARNING,
                "Op '%s': no implementation in its order takes all arguments, so that a call may find none; add "
                "'reference' to the end of the order",
                op->name);
  if (!binding)
    return NULL;
  fl_probe_resolve(op->name, binding->candidates[0].record->impl.impl_id, device_type);
  if (host->dispatch_debug) {
    const fl_impl *impl = &binding->candidates[0].record->impl;
    fl_log_line(&host->log, FL_LOG_DEBUG, "[DISPATCH] Op '%s' -> '%s' (kind=%s%s%s)", op->name, impl->impl_id,
                fl_kind_name((fl_kind)impl->kind), impl->vendor ? ", vendor=" : "", impl->vendor ? impl->vendor : "");
  }
  if (binding->direct)
    fl_note_use(op, binding->candidates[0].record);
  return binding;
}
