/*
 * Candidates of an op and what becomes of a call when the first is not the one (rules S3 and F): nothing here is on the
 * way of a call that goes straight into its kernel (invoke.c).
 */
#include "core/call/fallback.h"

#include "core/call/failures.h"
#include "core/call/first_use.h"
#include "core/call/in_place.h"
#include "core/call/invoke.h"
#include "core/call/scope.h"
#include "core/platform.h"
#include "core/support.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------------- one candidate's turn */

/* Devices of one type differ, and the candidate is for some of them: for the call's? */
static bool reaches(const fl_candidate *candidate, const fl_call *call) {
  uint32_t device = (uint32_t)fl_call_tensor(candidate->record->op, call)->device.device_id;
  return device >= FL_DEVICES_MAX || candidate->on_devices >> device & 1;
}

bool fl_candidate_takes(const fl_candidate *candidate, const fl_call *call, const char **reason) {
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
  if (unlikely(!fl_candidate_takes(first, call, &reason)))
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
    if (fl_candidate_takes(candidate, call, &reason))
      break;
    fl_impl_record_count(candidate->record, FL_EVENT_NOT_SUPPORTED);
    fl_text_add(why, "\n  %s: not supported: %s", candidate->record->impl_id, reason);
    fl_probe_fallback(binding->op->name, candidate_id(binding, i), candidate_id(binding, i + 1), reason);
    fl_log_line(&binding->op->host->log, FL_LOG_DEBUG, "Op '%s' passes over '%s': %s", binding->op->name,
                candidate->record->impl_id, reason);
  }
  return i;
}

fl_status fl_none_takes(const fl_binding *binding, const fl_call *call, fl_text *why) {
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
    return fl_none_takes(binding, call, &made->why);
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
  if (binding->bound.place)
    fl_unbind(op, NULL, NULL);
  pthread_mutex_unlock(&op->host->lock);
  const fl_slots *slots = fl_scope_slots(op);
  return slots ? fl_dispatch(op, slots, call) : fl_error_no_memory();
}

static fl_status run_candidates(fl_binding *binding, fl_call *call) {
  if (binding->retry_at && fl_monotonic_seconds() >= binding->retry_at)
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
