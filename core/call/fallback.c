/*
 * Candidates of an op and what becomes of a call when the first is not the one (rules S3 and F): nothing here is on the
 * way of a call that goes straight into its kernel (invoke.c).
 */
#include "core/call/fallback.h"

#include "core/call/failures.h"
#include "core/call/first_use.h"
#include "core/call/in_place.h"
#include "core/call/invoke.h"
#include "core/call/returned.h"
#include "core/call/workspaces.h"
#include "core/guard.h"
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

bool fl_candidate_takes(const fl_candidate *candidate, const fl_call *call, fl_said *said) {
  const char *unread = NULL, **reason = said ? fl_said_room(said) : &unread;
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
  if (said)
    said->text = fl_said_shown(said, "supports_args says no and gives no reason");
  return false;
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
  if (unlikely(!fl_candidate_takes(first, call, NULL)))
    return fl_run_candidates(self, call);
  note_once(binding, first);
  return binding->statistics ? fl_run_counted(self, call) : binding->fn(binding->self, call);
}

/* ---------------------------------------------------------------------------------------------- asynchronous errors */

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

/* ------------------------------------------------------------------------------------------------------ fallback */

static const char *failure_reason(const fl_call *call, fl_status status) {
  return call->message[0] ? call->message : fl_status_name(status);
}

static const char *candidate_id(const fl_binding *binding, uint32_t i) {
  return i < binding->n ? binding->candidates[i].record->impl_id : "";
}

/* A candidate does not support the call: it is counted and listed in `why`. */
static void pass_over(const fl_binding *binding, uint32_t i, const fl_call *call, const char *reason, fl_text *why) {
  const char *op = binding->op->name, *id = candidate_id(binding, i);
  fl_impl_record_count(binding->candidates[i].record, FL_EVENT_NOT_SUPPORTED);
  fl_text_add(why, "\n  %s: not supported: %s", id, reason);
  fl_probe_fallback(op, id, candidate_id(binding, i + 1), reason);
  fl_log_line(&binding->op->host->log, FL_LOG_DEBUG, "Op '%s' passes over '%s': %s", op, id, reason);
  if (binding->brings)
    fl_workspace_lacked(binding->candidates[i].record, call);
}

/* The next candidate from `i` on that takes the call, with the workspace that it wants if that is the host's to
 * bring. */
static uint32_t next_taker(const fl_binding *binding, uint32_t i, fl_call *call, bool bring, fl_text *why) {
  fl_said said;
  for (; i < binding->n; i++) {
    atomic_store_explicit(&fl_self.running, binding->candidates[i].record, memory_order_relaxed);
    if (bring)
      fl_workspace_bring(binding->candidates[i].record, call);
    if (fl_candidate_takes(&binding->candidates[i], call, &said))
      break;
    pass_over(binding, i, call, said.text, why);
  }
  atomic_store_explicit(&fl_self.running, NULL, memory_order_relaxed);
  return i;
}

fl_status fl_none_takes(const fl_binding *binding, const fl_call *call, fl_text *why) {
  fl_text failed = {0};
  fl_add_left_out(binding, fl_call_device(binding->op, call), &failed, why);
  fl_status status = fl_error(FL_ENOIMPL, "No implementation of op='%s' supports these arguments%s%s%s:%s",
                              binding->op->name, failed.length ? "; " : "", fl_text_get(&failed),
                              failed.length ? " failed before" : "", fl_text_get(why));
  fl_text_free(&failed);
  return status;
}

/* A call on its way through the candidates. */
typedef struct attempts {
  fl_binding *binding;
  fl_call *call;
  const fl_call *given; /* what it is, whatever an implementation makes of it */
  bool spoilt;          /* the last one changed what the call points to */
  const fl_kept *kept;  /* the caller's inputs; NULL: no copies are kept */
  bool wait;            /* for the device, after each */
  bool bring;           /* workspaces: the caller gives none */
  uint32_t turn;        /* the candidate whose turn it is; binding->n: none is left */
  uint32_t failed;      /* so far; of the last of them: */
  const char *last;     /* impl_id, */
  fl_status status;     /* what it returned, */
  fl_text reason;       /* and its words */
  fl_text why;          /* a line for each that did not take the call */
  fl_status result;     /* the call's, once it is over */
  fl_watched watched;   /* what came of the last one's call, if that was watched */
} attempts;

static fl_impl_record *on_turn(const attempts *a) {
  return a->binding->candidates[a->turn].record;
}

/* Also when a candidate does not return. */
static void attempts_free(attempts *a) {
  if (a->bring) {
    a->call->workspace = NULL; /* as it was given */
    a->call->workspace_size = 0;
  }
  fl_text_free(&a->reason);
  fl_text_free(&a->why);
}

static bool end(attempts *a, fl_status result) {
  a->result = result;
  return true;
}

/* There is no candidate left. */
static bool give_up(attempts *a) {
  const fl_op *op = a->binding->op;
  if (!a->failed)
    return end(a, fl_none_takes(a->binding, a->call, &a->why));
  fl_log_line(&op->host->log, FL_LOG_ERROR, "Last implementation '%s' failed for op '%s': %s", a->last, op->name,
              fl_text_get(&a->reason));
  return end(a, fl_error(a->status, "All %u implementation(s) failed for op='%s'. Last error: %s%s", a->failed,
                         op->name, fl_text_get(&a->reason), fl_text_get(&a->why)));
}

/* The next from `i` on is on turn. True: there is none. */
static bool take_turn(attempts *a, uint32_t i) {
  a->turn = next_taker(a->binding, i, a->call, a->bring, &a->why);
  return a->turn == a->binding->n && give_up(a);
}

/* The one on turn, with the caller's tensors or copies of them. What it returns is judged. */
static fl_status run_candidate(void *user, fl_call *call) {
  attempts *a = user;
  const fl_op *op = a->binding->op;
  const fl_candidate *candidate = &a->binding->candidates[a->turn];
  const fl_impl_record *record = candidate->record;
  const fl_call given = *call;
  atomic_store_explicit(&fl_self.running, record, memory_order_relaxed);
  fl_status status =
      record->flags & FL_IMPL_INPLACE_ONLY ? fl_call_in_place(op, candidate, call) : record->fn(record->self, call);
  atomic_store_explicit(&fl_self.running, NULL, memory_order_relaxed);
  status = fl_take_back(op, call, &given, status, &a->spoilt);
  return !status && a->wait ? wait_for_device(op, call) : status;
}

/* Nothing of it is watched any more: another target takes its place. What is frozen stays as it is. */
static void end_watch(const fl_binding *binding) {
  fl_host *host = binding->op->host;
  if (atomic_load_explicit(&host->frozen, memory_order_relaxed))
    return;
  pthread_mutex_lock(&host->lock);
  if (binding->bound.place && !atomic_load_explicit(&host->frozen, memory_order_relaxed))
    fl_unbind(binding->op, NULL, NULL);
  pthread_mutex_unlock(&host->lock);
}

/* In strict mode nothing takes the place of one that was found wrong. */
static fl_status refuse_barred(const fl_candidate *candidate, fl_call *call) {
  fl_op *op = candidate->record->op;
  pthread_mutex_lock(&op->host->lock);
  const fl_failure *failure = fl_failure_find_locked(op, candidate->record);
  snprintf(call->message, call->message_size, "'%s' is barred: %s", candidate->record->impl_id,
           failure && failure->reason ? failure->reason : "its results were wrong");
  pthread_mutex_unlock(&op->host->lock);
  return FL_EINTERNAL;
}

static fl_status call_candidate(attempts *a) {
  const fl_binding *binding = a->binding;
  const fl_candidate *candidate = &binding->candidates[a->turn];
  a->watched = (fl_watched){.op = binding->op, .record = candidate->record, .run = run_candidate, .user = a};
  a->call->message[0] = 0;
  if (candidate->barred)
    return refuse_barred(candidate, a->call);
  if (binding->statistics)
    fl_count_call(&fl_self, candidate->record->count);
  if (fl_watch_wants(binding->op->host, candidate->record))
    return fl_watch_run(&a->watched, a->call);
  if (binding->watched && !a->turn)
    end_watch(binding);
  return run_candidate(a, a->call);
}

static fl_status call_next(attempts *a) {
  const fl_impl_record *record = on_turn(a);
  const fl_op *op = a->binding->op;
  if (a->failed)
    fl_log_line(&op->host->log, FL_LOG_INFO, "Op '%s' fallback to '%s' (kind=%s, vendor=%s)", op->name, record->impl_id,
                fl_kind_name((fl_kind)record->kind), record->vendor ? record->vendor : "None");
  else
    note_once(a->binding, &a->binding->candidates[a->turn]);
  return call_candidate(a);
}

static bool succeed(attempts *a) {
  const fl_candidate *candidate = &a->binding->candidates[a->turn];
  if (a->failed)
    fl_note_fallback(a->binding->op, candidate->record);
  if (candidate->on_probation)
    fl_forget_failure(a->binding->op, candidate->record);
  return end(a, FL_OK);
}

/* F3: behind the op's name the words are the implementation's own, if it has any. */
static bool end_strictly(attempts *a, fl_status status) {
  const char *op = a->binding->op->name;
  return end(a, a->call->message[0] ? fl_error(status, "%s: %s", op, a->call->message)
                                    : fl_error(status, "Implementation '%s' failed for op '%s': %s",
                                               on_turn(a)->impl_id, op, fl_status_name(status)));
}

/* F4, F6: it failed. The next starts from what the caller gave, or not at all. */
static bool replace(attempts *a, fl_status status) {
  fl_op *op = a->binding->op;
  fl_log *log = &op->host->log;
  fl_impl_record *record = on_turn(a);
  const char *reason = failure_reason(a->call, status), *id = record->impl_id;
  a->failed++;
  a->last = id;
  a->status = status;
  fl_text_free(&a->reason);
  fl_text_add(&a->reason, "%s", reason);
  fl_remember_failure(op, record, reason, false);
  if (a->spoilt && !a->watched.untouched) {
    fl_log_line(log, FL_LOG_ERROR, "Implementation '%s' failed for op '%s': %s", id, op->name, reason);
    return end(a, fl_error(status, "Implementation '%s' failed for op '%s': %s. No fallback", id, op->name, reason));
  }
  uint32_t next = next_taker(a->binding, a->turn + 1, a->call, a->bring, &a->why);
  bool restore = next < a->binding->n && !a->watched.untouched;
  const char *lost = restore ? fl_restore_inputs(op, a->call, a->kept) : NULL;
  if (lost) {
    fl_log_line(log, FL_LOG_ERROR, "Implementation '%s' failed for op '%s': %s", id, op->name, reason);
    return end(a, fl_error(status,
                           "Implementation '%s' failed for op '%s': %s. No fallback: it may have overwritten '%s' in "
                           "place; set preserve_inputs to keep a copy",
                           id, op->name, reason, lost));
  }
  a->turn = next;
  if (next == a->binding->n)
    return give_up(a);
  fl_log_line(log, FL_LOG_WARNING, "Implementation '%s' failed for op '%s': %s", id, op->name, reason);
  fl_impl_record_count(record, FL_EVENT_FALLBACK);
  fl_probe_fallback(op->name, id, candidate_id(a->binding, next), reason);
  return false;
}

/* Its results were wrong, and the caller has got the reference's. */
static bool end_with_reference(attempts *a, const char *reason) {
  const fl_op *op = a->binding->op;
  fl_impl_record *record = on_turn(a);
  fl_log_line(&a->binding->op->host->log, FL_LOG_WARNING, "Implementation '%s' is barred from op '%s': %s",
              record->impl_id, op->name, reason);
  fl_impl_record_count(record, FL_EVENT_FALLBACK);
  fl_probe_fallback(op->name, record->impl_id, a->watched.wrong->impl_id, reason);
  fl_error_clear();
  return end(a, FL_OK);
}

/* What the candidate on turn returned: true if the call is over; else the next one is on turn. */
static bool judge(attempts *a, fl_status status) {
  fl_op *op = a->binding->op;
  fl_impl_record *record = on_turn(a);
  note_asynchronous(a->binding, a->call, status);
  if (status == FL_OK)
    return succeed(a);
  const char *reason = failure_reason(a->call, status);
  if (status == FL_EINVAL)
    return end(a, fl_error(status, "%s: %s", op->name, reason));
  if (status != FL_ENOTSUP) {
    fl_impl_record_count(record, FL_EVENT_FAILURE);
    fl_probe_failure(op->name, record->impl_id, status, reason);
  }
  if (a->watched.wrong)
    fl_remember_failure(op, record, reason, true);
  if (a->binding->strict)
    return end_strictly(a, status);
  if (fl_keeps_frozen(op->host, op->name, record->impl_id, reason, status))
    return end(a, status);
  if (a->watched.wrong)
    return end_with_reference(a, reason);
  if (status != FL_ENOTSUP)
    return replace(a, status);
  pass_over(a->binding, a->turn, a->call, reason, &a->why); /* it said so itself, and wrote nothing */
  return take_turn(a, a->turn + 1);
}

/* Goes through the candidates. `returned` is what the first returned already, FL_OK if it was not called yet. */
static fl_status run_all(fl_binding *binding, fl_call *call, const fl_call *given, fl_status returned,
                         const fl_kept *kept) {
  __attribute__((cleanup(attempts_free))) attempts a = {.binding = binding, .call = call, .given = given, .kept = kept};
  a.wait = binding->synchronous || (kept && kept->on_device);
  a.bring = binding->brings && !given->workspace;
  bool over = returned ? judge(&a, fl_take_back(binding->op, call, given, returned, &a.spoilt)) : take_turn(&a, 0);
  while (!over)
    over = judge(&a, call_next(&a));
  return a.result ? fl_error_note(a.result) : FL_OK;
}

fl_status fl_finish_failed(const fl_target *target, fl_call *call, const fl_call *given, fl_status status) {
  bool settled = fl_self.settled;
  fl_self.settled = false;
  return settled ? status : run_all(target->binding, call, given, status, NULL);
}

/* A back-off is over: what was left out may be tried again, which takes a new binding. */
static fl_status run_again(fl_binding *binding, fl_call *call) {
  fl_op *op = binding->op;
  pthread_mutex_lock(&op->host->lock);
  if (binding->bound.place)
    fl_unbind(op, NULL, NULL);
  pthread_mutex_unlock(&op->host->lock);
  return fl_dispatch(op, call);
}

static fl_status run_candidates(fl_binding *binding, fl_call *call) {
  const fl_call given = *call;
  if (binding->retry_at && fl_is_due(binding->retry_at, binding->retry_at - binding->made_at, fl_monotonic_seconds()))
    return run_again(binding, call);
  if (call->count > FL_VALUES_MAX)
    return fl_error(FL_EINVAL, "%s: %u values in one call, at most %d are supported", binding->op->name, call->count,
                    FL_VALUES_MAX);
  /* What fails now is not this call's; nothing of it was called. */
  if (binding->synchronous && wait_for_device(binding->op, call))
    return fl_error(FL_EDEVICE, "%s: not called, since work that was queued before it failed: %s", binding->op->name,
                    call->message);
  if (!binding->preserve_inputs)
    return run_all(binding, call, &given, FL_OK, NULL);
  __attribute__((cleanup(fl_kept_free))) fl_kept kept = {.op = binding->op, .call = &given};
  fl_keep_inputs(&kept);
  return run_all(binding, call, &given, FL_OK, &kept);
}

fl_status fl_run_candidates(void *self, fl_call *call) {
  return fl_settle(run_candidates(self, call));
}
