/* Bindings: what was resolved for an op, a policy and a device type, made on the first call and cached (rule S5). */
#ifndef FLHOST_CORE_BIND_H
#define FLHOST_CORE_BIND_H

#include "core/host.h"

/* Resolves and publishes into `slots`. The thread is reading, and must go on until it is done with the binding. NULL
 * with the error message and *status when there is nothing to call. */
fl_binding *fl_bind(fl_op *op, fl_slots *slots, int32_t device_type, fl_status *status);

/* Resolves before any call does; an op's first use is noted, nothing is unbound. The thread is reading. FL_ENOIMPL:
 * nothing to call. */
fl_status fl_bind_ahead(fl_op *op, fl_slots *slots, int32_t device_type);

/* F1: logs the first use of an op, and a change of what it uses; lists kind default in the oplist file. */
void fl_note_use(fl_op *op, const fl_impl_record *record);
/* The same without a line in the log: a fallback was logged already. */
void fl_note_fallback(fl_op *op, const fl_impl_record *record);

/* F4: remembers a failure, unless the host is frozen; the op's bindings are out of date. */
void fl_remember_failure(fl_op *op, fl_impl_record *record, const char *reason);
/* Is the implementation skipped at the time `now`? The host's lock is held. */
bool fl_failure_skips(const fl_op *op, const fl_impl_record *record, double now);
/* A failed implementation works again. Nothing changes when the host is frozen. */
void fl_forget_failure(fl_op *op, const fl_impl_record *record);

/* Does it take every call that the op's schema lets through (S3: the search ends with it)? */
bool fl_takes_all(const fl_op *op, const fl_impl *impl);

/* What a binding calls when its kernel cannot be called directly. */
fl_status fl_run_guarded(void *binding, fl_call *call);
fl_status fl_run_candidates(void *binding, fl_call *call);

#endif
