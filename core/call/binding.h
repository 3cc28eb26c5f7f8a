/* Bindings: what was resolved for an op, a policy and a device type, made on the first call and cached (rule S5). */
#ifndef FLHOST_CORE_CALL_BINDING_H
#define FLHOST_CORE_CALL_BINDING_H

#include "core/registry/records.h"

/* ------------------------------------------------------------------------------------------------------ invoke.c */

/* The first tensor of a call; NULL: it has none. */
const DLTensor *fl_call_first_tensor(const fl_call *call);

/* The tensor whose device selects: that of the schema's device_argument; if that is none, the first that the call has.
 * NULL: it has none. */
static inline const DLTensor *fl_call_tensor(const fl_op *op, const fl_call *call) {
  if (op->device_argument < 0)
    return NULL;
  const fl_value *value = &call->values[op->device_argument];
  return value->type == FL_TENSOR ? value->v.tensor : fl_call_first_tensor(call);
}

/* Its device type; 0 when the call has no tensor. */
uint32_t fl_call_device(const fl_op *op, const fl_call *call);

/* Calls what the op has bound, or resolves it first. The thread is reading, the arguments are good, and call->message
 * is set. */
fl_status fl_dispatch(const fl_op *op, const fl_slots *slots, fl_call *call);

/* Calls a target, and goes on as the policy wants when that fails. */
fl_status fl_run_target(const fl_target *target, fl_call *call);

/* -------------------------------------------------------------------------------------------------------- binding.c */

/* Resolves and publishes into `slots`, unless something is bound there. The thread is reading, and must go on until it
 * is done with the target. NULL with the error message and *status when there is nothing to call. */
const fl_target *fl_bind(fl_op *op, fl_slots *slots, uint32_t device_type, fl_status *status);

/* The use of a binding's first candidate was logged. */
void fl_binding_noted(fl_binding *binding);

/* Resolves before any call does; an op's first use is noted, nothing is unbound. The thread is reading. FL_ENOIMPL:
 * nothing to call. */
fl_status fl_bind_ahead(fl_op *op, fl_slots *slots, uint32_t device_type);

/* F1: logs the first use of an op, and a change of what it uses; lists kind default in the oplist file. */
void fl_note_use(fl_op *op, const fl_impl_record *record);
/* The same without a line in the log: a fallback was logged already. */
void fl_note_fallback(fl_op *op, const fl_impl_record *record);

/* F4: remembers a failure, unless the host is frozen; what the op has bound is out of date. */
void fl_remember_failure(fl_op *op, fl_impl_record *record, const char *reason);
/* Is the implementation skipped at the time `now`? The host's lock is held. */
bool fl_failure_skips(const fl_op *op, const fl_impl_record *record, double now);
/* S4: adds a line for each implementation that is not among a binding's candidates for tensors on the device type: why
 * it is not. Takes the host's lock. */
void fl_add_left_out(const fl_binding *binding, uint32_t device_type, fl_text *text);
/* A failed implementation works again. Nothing changes when the host is frozen. */
void fl_forget_failure(fl_op *op, const fl_impl_record *record);

/* Does it take every call that the op's schema lets through (S3: the search ends with it)? */
bool fl_takes_all(const fl_impl_record *record);

/* ----------------------------------------------------------------------------------------------------- fallback.c */

/*
 * What a binding's target calls when that is not the kernel itself. Like a kernel, fl_run_counted and fl_run_guarded
 * give back the first candidate's error as it is; what fl_run_candidates gives back is settled.
 */
fl_status fl_run_counted(void *binding, fl_call *call);    /* counts the call of the first candidate */
fl_status fl_run_guarded(void *binding, fl_call *call);    /* asks the first candidate, logs, counts */
fl_status fl_run_candidates(void *binding, fl_call *call); /* looks at everything */

/* Says that an error is the call's, and gives it back: whoever called the target has nothing left to try. */
static inline fl_status fl_settle(fl_status status) {
  fl_self.settled = status != FL_OK;
  return status;
}

/* A target came back with an error: that of the first candidate, unless it is settled. */
fl_status fl_finish_failed(const fl_target *target, fl_call *call, fl_status status);

#endif
