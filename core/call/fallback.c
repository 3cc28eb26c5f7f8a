/*
 * Candidates of an op and what becomes of a call when the first is not the one (rules S3 and F): nothing here is on the
 * way of a call that goes straight into its kernel (invoke.c).
 */
#include "core/call/binding.h"
#include "core/call/in_place.h"
#include "core/call/selection.h"
#include "core/support/error.h"
#include "core/support/likely.h"
#include "core/support/probes.h"
#include "core/support/sized.h"
#include "core/support/tensor.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- one candidate's turn */

/* Devices of one type differ, and the candidate is for some of them: for the call's? */
static bool reaches(const fl_candidate *candidate, const fl_call *call) {
  uint32_t device = (uint32_t)fl_call_tensor(candidate->record->op, call)->device.device_id;
  return device >= FL_DEVICES_MAX || candidate->on_devices >> device & 1;
}

/* Does a candidate take the call? */
static bool takes(const fl_candidate *candidate, const fl_call *call, const char **reason) {
  const fl_impl_record *record = candidate->record;
  if (unlikely(candidate->on_devices != UINT64_MAX) && !reaches(candidate, call)) {
    *reason = "the tensors' device does not reach its min_arch";
    return false;
  }
  if (candidate->dtypes) {
    const DLTensor *tensor = fl_call_tensor(record->op, call);
    if (tensor && !(candidate->dtypes & fl_dtype_bit(tensor->dtype))) {
      *reason = "it does not declare this element type";
      return false;
    }
  }
  if (!record->supports_args || record->supports_args(record->self, call, reason))
    return true;
  if (!*reason)
    *reason = "supports_args says no and gives no reason";
  return false;
}

/* What an implementation may return; anything else counts as an internal error, and is the reason if it gave none. */
static fl_status normal_status(fl_call *call, fl_status status) {
  if (status >= FL_OK && status <= FL_EINTERNAL)
    return status;
  if (!call->message[0])
    snprintf(call->message, call->message_size, "it returned %d, which is no status of an implementation", (int)status);
  return FL_EINTERNAL;
}

static void note_once(fl_binding *binding, fl_candidate *candidate) {
  if (likely(atomic_load_explicit(&candidate->noted, memory_order_relaxed)))
    return;
  atomic_store_explicit(&candidate->noted, true, memory_order_relaxed);
  fl_note_use(binding->op, candidate->record);
  if (candidate == &binding->candidates[0])
    fl_binding_noted(binding);
}

fl_status fl_run_counted(void *self, fl_call *call) {
  const fl_binding *binding = self;
  fl_count_call(&fl_self, binding->count);
  return binding->fn(binding->self, call);
}

fl_status fl_run_guarded(void *self, fl_call *call) {
  fl_binding *binding = self;
  fl_candidate *first = &binding->candidates[0];
  const char *reason = NULL;
  if (unlikely(!takes(first, call, &reason)))
    return fl_run_candidates(self, call);
  note_once(binding, first);
  return binding->statistics ? fl_run_counted(self, call) : binding->fn(binding->self, call);
}

/* ------------------------------------------------------------------------------------------------- asynchronous errors
 */

/* Is the call's tensor where a kernel may still run when the implementation has returned? Its device, if so. */
static bool is_asynchronous(const fl_op *op, const fl_call *call, DLDevice *device) {
  const DLTensor *tensor = fl_call_tensor(op, call);
  if (!tensor || fl_tensor_is_on_host(tensor))
    return false;
  *device = tensor->device;
  return true;
}

/* Waits for the call's stream. The words for an error are where the implementation's own would be. */
static fl_status wait_for_device(const fl_op *op, const fl_call *call) {
  DLDevice device;
  return is_asynchronous(op, call, &device) ? fl_device_synchronize(op->host, device, call->stream, false) : FL_OK;
}

/* A driver tells of the error of a kernel when it is called next, which need not be by the same op. */
static void note_asynchronous(const fl_binding *binding, fl_call *call, fl_status status) {
  DLDevice device;
  size_t length = strlen(call->message);
  if (status == FL_EDEVICE && !binding->synchronous && is_asynchronous(binding->op, call, &device))
    snprintf(call->message + length, call->message_size - length,
             "%s (may come from an earlier call; VLLM_FL_SYNCHRONIZE=1 finds it)",
             length ? "" : fl_status_name(status));
}

/* ------------------------------------------------------------------------------------------- calling a candidate */

/* `wait`: until the device is done, too. */
static fl_status call_candidate(const fl_binding *binding, const fl_candidate *candidate, fl_call *call, bool wait) {
  const fl_impl_record *record = candidate->record;
  if (binding->statistics)
    fl_count_call(&fl_self, record->count);
  call->message[0] = 0;
  fl_status status = record->flags & FL_IMPL_INPLACE_ONLY ? fl_call_in_place(binding->op, candidate, call)
                                                          : record->fn(record->self, call);
  if (!status && wait)
    status = wait_for_device(binding->op, call);
  return normal_status(call, status);
}

/* ------------------------------------------------------------------------------------------------------ fallback */

static const char *failure_reason(const fl_call *call, fl_status status) {
  return call->message[0] ? call->message : fl_status_name(status);
}

static const char *candidate_id(const fl_binding *binding, uint32_t i) {
  return i < binding->n ? binding->candidates[i].record->impl_id : "";
}

/* The next candidate from `i` on that takes the call; those passed over are counted and listed in `why`. */
static uint32_t next_taker(const fl_binding *binding, uint32_t i, const fl_call *call, fl_text *why) {
  for (; i < binding->n; i++) {
    const fl_candidate *candidate = &binding->candidates[i];
    const char *reason = NULL;
    if (takes(candidate, call, &reason))
      break;
    fl_impl_record_count(candidate->record, FL_EVENT_NOT_SUPPORTED);
    fl_text_add(why, "\n  %s: not supported: %s", candidate->record->impl_id, reason);
    fl_probe_fallback(binding->op->name, candidate_id(binding, i), candidate_id(binding, i + 1), reason);
    fl_log_line(&binding->op->host->log, FL_LOG_DEBUG, "Op '%s' passes over '%s': %s", binding->op->name,
                candidate->record->impl_id, reason);
  }
  return i;
}

/* Nothing failed, and nothing took the call. */
static fl_status none_takes(const fl_binding *binding, const fl_call *call, fl_text *why) {
  fl_add_left_out(binding, fl_call_device(binding->op, call), why);
  return fl_error(FL_ENOIMPL, "No implementation of op='%s' supports these arguments:%s", binding->op->name,
                  fl_text_get(why));
}

/* What became of the candidates of one call so far. */
typedef struct attempts {
  uint32_t failed;
  const char *last; /* impl_id of the last that failed, */
  fl_status status; /* what it returned, */
  fl_text reason;   /* and its words */
  fl_text why;      /* a line for each that did not take the call */
} attempts;

static void note_failed(attempts *made, const char *id, const fl_call *call, fl_status status) {
  made->failed++;
  made->last = id;
  made->status = status;
  fl_text_free(&made->reason);
  fl_text_add(&made->reason, "%s", failure_reason(call, status));
}

/* There is no candidate left. */
static fl_status give_up(const fl_binding *binding, const fl_call *call, attempts *made) {
  const fl_op *op = binding->op;
  if (!made->failed)
    return none_takes(binding, call, &made->why);
  fl_log_line(&op->host->log, FL_LOG_ERROR, "Last implementation '%s' failed for op '%s': %s", made->last, op->name,
              fl_text_get(&made->reason));
  return fl_error(made->status, "All %u implementation(s) failed for op='%s'. Last error: %s%s", made->failed, op->name,
                  fl_text_get(&made->reason), fl_text_get(&made->why));
}

/* F3: the words are the implementation's own, if it has any. */
static fl_status own_error(const fl_binding *binding, const char *id, const fl_call *call, fl_status status) {
  if (!call->message[0])
    fl_error(status, "Implementation '%s' failed for op '%s': %s", id, binding->op->name, fl_status_name(status));
  return status;
}

/*
 * Goes through the candidates from `i` on. `status` is what candidate `i` returned already, or FL_OK if it was not
 * called yet. `kept` are the caller's inputs, or NULL if no copies are kept.
 */
static fl_status run_from(fl_binding *binding, fl_call *call, uint32_t i, fl_status status, fl_kept *kept) {
  fl_op *op = binding->op;
  fl_log *log = &op->host->log;
  attempts made = {0};
  bool called = status != FL_OK, wait = binding->synchronous || (kept && kept->on_device);
  if (!called)
    i = next_taker(binding, i, call, &made.why);
  for (;;) {
    if (i == binding->n) {
      status = give_up(binding, call, &made);
      goto out;
    }
    fl_candidate *candidate = &binding->candidates[i];
    const char *id = candidate->record->impl_id;
    if (!called) {
      if (made.failed)
        fl_log_line(log, FL_LOG_INFO, "Op '%s' fallback to '%s' (kind=%s, vendor=%s)", op->name, id,
                    fl_kind_name((fl_kind)candidate->record->kind),
                    candidate->record->vendor ? candidate->record->vendor : "None");
      else
        note_once(binding, candidate);
      status = call_candidate(binding, candidate, call, wait);
    }
    called = false;
    note_asynchronous(binding, call, status);
    if (status == FL_OK) {
      if (made.failed)
        fl_note_fallback(op, candidate->record);
      if (candidate->on_probation)
        fl_forget_failure(op, candidate->record);
      goto out;
    }
    if (status != FL_EINVAL && status != FL_ENOTSUP) {
      fl_impl_record_count(candidate->record, FL_EVENT_FAILURE);
      fl_probe_failure(op->name, id, status, failure_reason(call, status));
    }
    if (status == FL_EINVAL) {
      fl_error(status, "%s: %s", op->name, failure_reason(call, status));
      goto out;
    }
    if (binding->strict) {
      status = own_error(binding, id, call, status);
      goto out;
    }
    if (status == FL_ENOTSUP) {
      if (fl_keeps_frozen(op->host, op->name, id, failure_reason(call, status), status))
        goto out;
      fl_impl_record_count(candidate->record, FL_EVENT_NOT_SUPPORTED);
      fl_text_add(&made.why, "\n  %s: not supported: %s", id, failure_reason(call, status));
      fl_probe_fallback(op->name, id, candidate_id(binding, i + 1), failure_reason(call, status));
      fl_log_line(log, FL_LOG_DEBUG, "Op '%s': '%s' does not support the call: %s", op->name, id,
                  failure_reason(call, status));
      i = next_taker(binding, i + 1, call, &made.why);
      continue;
    }
    if (fl_keeps_frozen(op->host, op->name, id, failure_reason(call, status), status))
      goto out;
    note_failed(&made, id, call, status);
    fl_remember_failure(op, candidate->record, failure_reason(call, status));
    uint32_t next = next_taker(binding, i + 1, call, &made.why);
    const char *lost = next < binding->n ? fl_restore_inputs(op, call, kept) : NULL;
    if (lost) {
      fl_log_line(log, FL_LOG_ERROR, "Implementation '%s' failed for op '%s': %s", id, op->name,
                  failure_reason(call, status));
      fl_error(status,
               "Implementation '%s' failed for op '%s': %s. No fallback: it may have overwritten '%s' in place; set "
               "preserve_inputs to keep a copy",
               id, op->name, failure_reason(call, status), lost);
      goto out;
    }
    if (next == binding->n) {
      status = give_up(binding, call, &made);
      goto out;
    }
    fl_log_line(log, FL_LOG_WARNING, "Implementation '%s' failed for op '%s': %s", id, op->name,
                failure_reason(call, status));
    fl_impl_record_count(candidate->record, FL_EVENT_FALLBACK);
    fl_probe_fallback(op->name, id, candidate_id(binding, next), failure_reason(call, status));
    i = next;
  }
out:
  fl_text_free(&made.reason);
  fl_text_free(&made.why);
  return status ? fl_error_note(status) : FL_OK;
}

fl_status fl_finish_failed(const fl_target *target, fl_call *call, fl_status status) {
  bool settled = fl_self.settled;
  fl_self.settled = false;
  return settled ? status : run_from(target->binding, call, 0, normal_status(call, status), NULL);
}

/* A back-off is over: what was left out may be tried again, which takes a new binding. */
static fl_status run_again(fl_binding *binding, fl_call *call) {
  fl_op *op = binding->op;
  pthread_mutex_lock(&op->host->lock);
  if (binding->place)
    fl_unbind(op, NULL, NULL);
  pthread_mutex_unlock(&op->host->lock);
  const fl_slots *slots = fl_scope_slots(op);
  return slots ? fl_dispatch(op, slots, call) : fl_error_no_memory();
}

static fl_status run_candidates(fl_binding *binding, fl_call *call) {
  if (binding->retry_at && fl_monotonic() >= binding->retry_at)
    return run_again(binding, call);
  if (call->count > FL_VALUES_MAX)
    return fl_error(FL_EINVAL, "%s: %u values in one call, at most %d are supported", binding->op->name, call->count,
                    FL_VALUES_MAX);
  /* What fails now is not this call's; nothing of it was called. */
  if (binding->synchronous && wait_for_device(binding->op, call))
    return fl_error(FL_EDEVICE, "%s: not called, since work that was queued before it failed: %s", binding->op->name,
                    call->message);
  if (!binding->preserve_inputs)
    return run_from(binding, call, 0, FL_OK, NULL);
  fl_kept kept;
  fl_keep_inputs(binding->op, call, &kept);
  fl_status status = run_from(binding, call, 0, FL_OK, &kept);
  fl_kept_free(&kept, binding->op, call);
  return status ? fl_error_note(status) : FL_OK;
}

fl_status fl_run_candidates(void *self, fl_call *call) {
  return fl_settle(run_candidates(self, call));
}

/* ------------------------------------------------------------------------------------------------------- workspace */

/* What a call's slot has bound under the policy in force in this thread, resolved if need be; the thread is reading.
 * NULL with *status. */
static const fl_binding *binding_for(fl_op *op, const fl_call *call, fl_status *status) {
  fl_slots *slots = fl_scope_slots(op);
  uint32_t device = fl_call_device(op, call);
  if (!slots || device >= FL_DEVICE_SLOTS) {
    *status =
        slots ? fl_error(FL_EINVAL, "%s: device type %d is not known", op->name, (int)device) : fl_error_no_memory();
    return NULL;
  }
  const fl_target *target = atomic_load_explicit(&slots->by_device[device], memory_order_acquire);
  if (!target->binding)
    target = fl_bind(op, slots, device, status);
  return target ? target->binding : NULL;
}

fl_status fl_workspace_size(fl_op *op, const fl_call *call, size_t *size) {
  fl_call whole;
  size_t largest = 0;
  bool taken = false;
  fl_text why = {0};
  if (!op)
    return fl_error(FL_ENOENT, "fl_workspace_size: the op is NULL");
  fl_status status = fl_check(op, call);
  if (status || (status = fl_thread_join()))
    return status;
  fl_sized_take(&whole, sizeof whole, call);
  call = &whole;
  fl_thread *self = &fl_self;
  uint64_t outer = fl_read_begin(self);
  const fl_binding *binding = binding_for(op, call, &status);
  for (uint32_t i = 0; binding && i < binding->n; i++) {
    const fl_impl_record *record = binding->candidates[i].record;
    const char *reason = NULL;
    if (!takes(&binding->candidates[i], call, &reason)) {
      fl_text_add(&why, "\n  %s: not supported: %s", record->impl_id, reason);
      continue;
    }
    size_t wanted = record->workspace_size ? record->workspace_size(record->self, call) : 0;
    taken = true;
    if (wanted > largest)
      largest = wanted;
    if (binding->strict)
      break; /* no other is called */
  }
  if (binding && !taken)
    status = none_takes(binding, call, &why);
  fl_read_end(self, outer);
  fl_text_free(&why);
  if (!status)
    *size = largest;
  return status;
}

/* ---------------------------------------------------------------------------------------------- failures, counters */

fl_status fl_get_failed_impls(fl_host *host, const char *name, fl_failed_impls **failed) {
  fl_op *only = NULL;
  if (name && !(only = fl_find_op(host, name)))
    return FL_ENOENT;
  fl_status status = FL_OK;
  pthread_mutex_lock(&host->lock);
  size_t n = 0, text = 0;
  for (uint32_t i = 0; i < host->n_ops; i++)
    for (const fl_failure *f = host->ops[i]->failures; f && (!only || only == host->ops[i]); f = f->next) {
      n++;
      text += strlen(host->ops[i]->name) + strlen(f->impl->impl_id) + strlen(f->reason ? f->reason : "") + 3;
    }
  /* One block: the list, its items, then their strings. */
  fl_failed_impls *list = malloc(sizeof *list + n * sizeof *list->impls + text);
  if (list) {
    fl_failed_impl *items = (fl_failed_impl *)(list + 1);
    char *at = (char *)(items + n);
    double now = fl_monotonic();
    *list = (fl_failed_impls){items, 0};
    for (uint32_t i = 0; i < host->n_ops; i++)
      for (const fl_failure *f = host->ops[i]->failures; f && (!only || only == host->ops[i]); f = f->next) {
        fl_failed_impl *item = &items[list->n++];
        item->op = strcpy(at, host->ops[i]->name);
        at += strlen(at) + 1;
        item->impl_id = strcpy(at, f->impl->impl_id);
        at += strlen(at) + 1;
        item->reason = strcpy(at, f->reason ? f->reason : "");
        at += strlen(at) + 1;
        item->retry_in = !f->retry_at ? -1 : f->retry_at > now ? f->retry_at - now : 0;
      }
    *failed = list;
  } else {
    status = fl_error_no_memory();
  }
  pthread_mutex_unlock(&host->lock);
  return status;
}

void fl_failed_impls_free(fl_failed_impls *failed) {
  free(failed);
}

void fl_clear_failed_impls(fl_host *host, const char *name) {
  bool cleared = false;
  pthread_mutex_lock(&host->lock);
  fl_status refused = fl_refuse_frozen(host, "clearing failed implementations");
  for (uint32_t i = 0; i < host->n_ops && !refused; i++)
    if (host->ops[i]->failures && (!name || !strcmp(name, host->ops[i]->name))) {
      cleared = true;
      fl_failures_free(host->ops[i]);
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

void fl_bump_policy_epoch(fl_host *host) {
  pthread_mutex_lock(&host->lock);
  if (fl_refuse_frozen(host, "bumping the policy epoch")) {
    pthread_mutex_unlock(&host->lock);
    fl_log_line(&host->log, FL_LOG_WARNING, "%s", fl_error_message());
    return;
  }
  for (uint32_t i = 0; i < host->n_ops; i++)
    fl_failures_free(host->ops[i]);
  fl_registry_advance(host); /* availability is asked again */
  uint64_t epoch = host->epoch;
  pthread_mutex_unlock(&host->lock);
  fl_log_line(&host->log, FL_LOG_DEBUG, "Policy epoch bumped to %llu", (unsigned long long)epoch);
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
  status = record ? FL_OK : fl_registry_no_such_impl(op, impl_id);
  pthread_mutex_unlock(&host->lock);
  if (!status)
    fl_sized_give(counters, &found, sizeof found);
  return status;
}

static void clear_counters(fl_impl_record *record) {
  free(atomic_exchange(&record->tally, NULL));
}

void fl_host_after_fork(fl_host *host) {
  pthread_mutexattr_t recursive;
  for (uint32_t i = 0; i < host->n_ops; i++) {
    fl_op *op = host->ops[i];
    fl_impl_set *set = atomic_load_explicit(&op->impls, memory_order_relaxed);
    if (!host->frozen_by.n)
      fl_failures_free(op);
    for (uint32_t j = 0; set && j < set->n; j++)
      clear_counters(set->impls[j]);
    if (op->unfused)
      clear_counters(op->unfused);
  }
  /* Another thread may have been asking, or loading, when the process forked. */
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&host->availability_lock, &recursive);
  pthread_mutexattr_destroy(&recursive);
  pthread_mutex_init(&host->loading, NULL);
  fl_views_after_fork(host);
  if (!host->frozen_by.n) /* else what is bound stays bound */
    fl_registry_advance(host);
}
