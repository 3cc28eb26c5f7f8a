/* Making bindings: see binding.h. Not on the call path. */
#include "core/call/binding.h"

#include "core/call/fallback.h"
#include "core/call/first_use.h"
#include "core/call/invoke.h"
#include "core/call/over_ranks.h"
#include "core/call/returned.h"
#include "core/call/scope.h"
#include "core/call/selection.h"
#include "core/guard.h"
#include "core/platform.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* Items of a selection that are no candidates, with the rule that says so. The host's lock is held. */
static void add_rejected(const fl_selection *selection, bool scoped, fl_text *text) {
  for (uint32_t i = selection->n_accepted; i < selection->n; i++)
    if (!fl_failure_find_locked(selection->op, selection->items[i].record)) {
      fl_text_add(text, "\n  %s: ", selection->items[i].record->impl_id);
      fl_selection_reason(selection, i, scoped, text);
    }
}

/* Every candidate failed before and none may be tried yet. The host's lock is held. */
static fl_status all_failed(const fl_selection *selection, bool scoped) {
  const fl_op *op = selection->op;
  fl_text text = {0};
  fl_text_add(&text, "All implementations for op='%s' have failed previously. Failed impl_ids: {", op->name);
  for (const fl_failure *failure = op->failures; failure; failure = failure->next)
    fl_text_add(&text, "%s'%s'", failure == op->failures ? "" : ", ", failure->impl->impl_id);
  fl_text_add(&text, "}");
  for (const fl_failure *failure = op->failures; failure; failure = failure->next)
    fl_text_add(&text, "\n  %s: %s", failure->impl->impl_id, failure->reason ? failure->reason : "");
  add_rejected(selection, scoped, &text);
  if (op->host->frozen_by.n) {
    fl_text_add(&text, "\n  None is tried again: ");
    fl_freeze_state(op->host, &text);
  }
  fl_status status = fl_error(FL_ENOIMPL, "%s", fl_text_get(&text));
  fl_text_free(&text);
  return status;
}

/* In a scope with a group no failure keeps anybody out. */
static fl_status none_knows_ranks(const fl_op *op) {
  return fl_error(
      FL_ENOIMPL,
      "No implementation of op='%s' makes it over ranks: one that is allowed here must say FL_IMPL_RANKS, or "
      "be 'reference.parts'",
      op->name);
}

static bool is_candidate(const fl_binding *binding, const fl_impl_record *record) {
  for (uint32_t i = 0; i < binding->n; i++)
    if (binding->candidates[i].record == record)
      return true;
  return false;
}

void fl_add_left_out(const fl_binding *binding, uint32_t device_type, fl_text *failed, fl_text *text) {
  fl_op *op = binding->op;
  fl_selection selection;
  bool scoped;
  pthread_mutex_lock(&op->host->lock);
  if (!fl_select(&selection, op, fl_scope_policy(op->host, &scoped), (int32_t)device_type)) {
    for (uint32_t i = 0; i < selection.n_accepted; i++) {
      const fl_impl_record *record = selection.items[i].record;
      const fl_failure *failure = is_candidate(binding, record) ? NULL : fl_failure_find_locked(op, record);
      if (!failure)
        continue;
      fl_text_add(failed, "%s'%s'", failed->length ? ", " : "", record->impl_id);
      fl_text_add(text, "\n  %s: failed before: %s", record->impl_id, failure->reason ? failure->reason : "");
    }
    add_rejected(&selection, scoped, text);
    fl_selection_free(&selection);
  }
  pthread_mutex_unlock(&op->host->lock);
}

/* ------------------------------------------------------------------------------------------------------ bindings */

void fl_binding_noted(fl_binding *binding) {
  pthread_mutex_lock(&binding->op->host->lock);
  if (binding->bound.place && binding->noted.fn)
    atomic_store_explicit(binding->bound.place, &binding->noted, memory_order_release);
  pthread_mutex_unlock(&binding->op->host->lock);
}

/* What is to be called: the kernel itself, or what looks at everything the first time and at less later. */
static void choose_target(fl_binding *binding, bool grouped) {
  const fl_candidate *first = &binding->candidates[0];
  const fl_impl_record *record = first->record;
  bool brings = record->extra && record->extra->workspace_size; /* others are reached by fl_run_candidates alone */
  bool runs_all = record->flags & FL_IMPL_INPLACE_ONLY || first->on_probation || binding->retry_at ||
                  binding->preserve_inputs || binding->synchronous || brings || first->barred ||
                  fl_has_results_to_judge(binding->op) || binding->watched;
  bool over_ranks = grouped && binding->op->schema->over_ranks;
  bool looks_at_tensor = first->dtypes || first->on_devices != UINT64_MAX;
  const fl_target kernel = {record->fn, record->self, record->supports_args, record->self, binding};
  binding->fn = record->fn;
  binding->self = record->self;
  binding->count = record->count;
  if (over_ranks)
    binding->bound.target = (fl_target){.fn = fl_run_over_ranks, .self = binding, .binding = binding};
  else if (runs_all)
    binding->bound.target = (fl_target){.fn = fl_run_candidates, .self = binding, .binding = binding};
  else if (looks_at_tensor || record->supports_args || binding->statistics)
    binding->bound.target = (fl_target){.fn = fl_run_guarded, .self = binding, .binding = binding};
  else
    binding->bound.target = kernel;
  if (over_ranks || runs_all || looks_at_tensor)
    return;
  binding->noted = kernel;
  if (binding->statistics) {
    binding->noted.fn = fl_run_counted;
    binding->noted.self = binding;
  }
}

/* No need to look at the element type where the schema lets none through that the impl does not take. */
static uint32_t dtypes_to_check(const fl_op *op, const fl_impl_record *record) {
  uint32_t all = fl_schema_dtypes(op->schema);
  return all && !(all & ~record->dtypes) ? 0 : record->dtypes;
}

bool fl_takes_all(const fl_impl_record *record) {
  return !record->supports_args && !dtypes_to_check(record->op, record);
}

/* How calls go by a binding, besides what its policy says. */
typedef struct manner {
  bool scoped;
  bool synchronous; /* they wait for the device */
  bool grouped;     /* ranks share them, which must not part ways */
} manner;

/* The host's lock is held. */
static fl_binding *make_binding(fl_op *op, const fl_selection *selection, const manner *how, fl_status *status) {
  fl_host *host = op->host;
  uint32_t n = selection->n_accepted;
  bool strict = selection->policy->fields.strict || how->grouped;
  double now = op->failures ? fl_monotonic_seconds() : 0;
  fl_binding *binding = calloc(1, sizeof *binding + n * sizeof binding->candidates[0]);
  if (!binding) {
    *status = fl_error_no_memory();
    return NULL;
  }
  binding->op = op;
  binding->made_at = now;
  binding->strict = strict;
  binding->preserve_inputs = selection->policy->fields.preserve_inputs && !strict;
  binding->statistics = host->statistics;
  binding->synchronous = how->synchronous;
  for (uint32_t i = 0; i < n; i++) {
    fl_impl_record *record = selection->items[i].record;
    const fl_failure *failure = fl_failure_find_locked(op, record);
    bool barred = strict && failure && failure->barred;
    if (how->grouped && !fl_knows_ranks(record))
      continue;
    if (!strict && fl_failure_skips(failure, now)) {
      if (failure->retry_at && (!binding->retry_at || failure->retry_at < binding->retry_at))
        binding->retry_at = failure->retry_at;
      continue;
    }
    if (binding->statistics && record->count == UINT32_MAX && (record->count = fl_count_new()) == UINT32_MAX) {
      free(binding);
      *status = fl_error_no_memory();
      return NULL;
    }
    fl_candidate *candidate = &binding->candidates[binding->n++];
    candidate->record = record;
    candidate->dtypes = dtypes_to_check(op, record);
    candidate->on_devices = selection->items[i].on_devices;
    candidate->on_probation = !strict && failure;
    candidate->barred = barred;
    binding->brings |= record->extra && record->extra->workspace_size;
  }
  if (!binding->n) {
    *status = how->grouped ? none_knows_ranks(op) : all_failed(selection, how->scoped);
    free(binding);
    return NULL;
  }
  binding->bound.first = binding->candidates[0].record;
  binding->watched = fl_watch_wants(host, binding->bound.first);
  choose_target(binding, how->grouped);
  return binding;
}

/* Does the op's own order end without an implementation that takes every call? True once. The host's lock is held. */
static bool order_is_partial(fl_op *op, const fl_selection *selection) {
  if (op->order_is_partial || !selection->per_op || !selection->n_accepted)
    return false;
  for (uint32_t i = 0; i < selection->n_accepted; i++)
    if (!selection->items[i].record->supports_args)
      return false;
  for (uint32_t i = 0; i < selection->n_order; i++)
    if (!strcmp(selection->order[i], "reference") || !strcmp(selection->order[i], "native"))
      return false; /* there is nothing to advise */
  return op->order_is_partial = true;
}

/* The host's lock is held: what the slot has, or what was selected. */
static const fl_target *fill_slot(fl_op *op, _Atomic(const fl_target *) *slot, const fl_selection *selection,
                                  const manner *how, bool *made, fl_status *status) {
  const fl_target *target = atomic_load_explicit(slot, memory_order_relaxed);
  if (target->binding) /* another thread was first */
    return target;
  if (!selection->n_accepted)
    *status = fl_selection_error(selection);
  fl_binding *binding = *status ? NULL : make_binding(op, selection, how, status);
  if (!binding)
    return NULL;
  fl_slot_bind(op, &binding->bound, slot);
  *made = true;
  return &binding->bound.target;
}

static void log_resolved(const fl_op *op, const fl_impl_record *record) {
  fl_log_line(&op->host->log, FL_LOG_DEBUG, "[DISPATCH] Op '%s' -> '%s' (kind=%s%s%s)", op->name, record->impl_id,
              fl_kind_name((fl_kind)record->kind), record->vendor ? ", vendor=" : "",
              record->vendor ? record->vendor : "");
}

/* What the slot has, or what was resolved for it. NULL with the error message and *status when there is nothing to
 * call; *made: it was resolved. */
static const fl_target *resolve(fl_op *op, _Atomic(const fl_target *) *slot, int32_t device_type, fl_ask ask,
                                bool *made, fl_status *status) {
  fl_host *host = op->host;
  fl_selection selection;
  manner how = {.grouped = fl_scope_is_grouped(host)};
  fl_backend backend;
  bool wanted = host->synchronous && device_type && device_type != FL_OPAQUE_SLOT && !fl_is_host_memory(device_type);
  how.synchronous = wanted && !fl_backend_find(host, device_type, &backend);
  *made = false;
  *status = fl_select_locked(op, device_type, ask, &selection, &how.scoped);
  if (*status)
    return NULL;
  const fl_target *target = fill_slot(op, slot, &selection, &how, made, status);
  bool partial = !how.scoped && order_is_partial(op, &selection); /* a scope may want one and no other */
  fl_selection_free(&selection);
  pthread_mutex_unlock(&host->lock);
  if (partial)
    fl_log_line(&host->log, FL_LOG_WARNING,
                "Op '%s': no implementation in its order takes all arguments, so that a call may find none; add "
                "'reference' to the end of the order",
                op->name);
  if (!*made)
    return target;
  if (wanted && !how.synchronous && fl_backend_find(host, device_type, &backend))
    fl_log_line(&host->log, FL_LOG_WARNING, "VLLM_FL_SYNCHRONIZE: calls of op '%s' do not wait for the device: %s",
                op->name, fl_error_message());
  fl_probe_resolve(op->name, target->binding->candidates[0].record->impl_id, device_type);
  if (host->dispatch_debug)
    log_resolved(op, target->binding->candidates[0].record);
  return target;
}

/* Is it the kernel itself, which looks at nothing when it is called? */
static bool is_kernel(const fl_target *target) {
  return target->self != target->binding;
}

const fl_target *fl_bind(fl_op *op, uint32_t device_type, fl_ask ask, fl_status *status) {
  fl_slots *slots = fl_scope_slots(op);
  bool made;
  if (!slots || device_type >= FL_SLOTS) {
    *status = !slots ? fl_error_no_memory()
                     : fl_error(FL_EINVAL, "%s: device type %d is not known", op->name, (int)device_type);
    return NULL;
  }
  const fl_target *target = atomic_load_explicit(&slots->by_device[device_type], memory_order_acquire);
  if (target->binding)
    return target;
  target = resolve(op, &slots->by_device[device_type], (int32_t)device_type, ask, &made, status);
  if (target && made && is_kernel(target)) /* nothing notes it later */
    (ask == FL_ASK_AHEAD ? fl_note_ahead : fl_note_use)(op, target->binding->candidates[0].record);
  return target;
}

fl_status fl_run_unbound(void *self, fl_call *call) {
  return fl_settle(fl_dispatch(self, call));
}
