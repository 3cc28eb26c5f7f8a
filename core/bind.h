/* Bindings: what was resolved for an op, a policy and a device type, made on the first call and cached (rule S5). */
#ifndef FLHOST_CORE_BIND_H
#define FLHOST_CORE_BIND_H

#include "core/host.h"

/* Resolves and publishes into `slots`. The thread is reading, and must go on until it is done with the binding. NULL
 * with the error message and *status when there is nothing to call. */
fl_binding *fl_bind(fl_op *op, fl_slots *slots, int32_t device_type, fl_status *status);

/* F1: logs the first use of an op, and a change of what it uses; lists kind default in the oplist file. */
void fl_note_use(fl_op *op, const fl_impl_record *record);
/* The same without a line in the log: a fallback was logged already. */
void fl_note_fallback(fl_op *op, const fl_impl_record *record);

/* F4: remembers a failure; the op's bindings are out of date. */
void fl_remember_failure(fl_op *op, fl_impl_record *record, const char *reason);
/* A failed implementation works again. */
void fl_forget_failure(fl_op *op, const fl_impl_record *record);

/* What a binding calls when its kernel cannot be called directly. */
fl_status fl_run_guarded(void *binding, fl_call *call);
fl_status fl_run_candidates(void *binding, fl_call *call);

#endif
