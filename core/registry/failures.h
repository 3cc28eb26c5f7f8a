/*
 * Implementations that failed and are skipped (rule F4): one list an op, in the order in which they failed. The host's
 * lock is held around all of these.
 */
#ifndef FLHOST_CORE_REGISTRY_FAILURES_H
#define FLHOST_CORE_REGISTRY_FAILURES_H

#include "core/registry/records.h"

/* NULL: it has not failed. */
fl_failure *fl_failure_find_locked(const fl_op *op, const fl_impl_record *record);

/* Is an implementation with that failure (or NULL) skipped at the time `now`? */
bool fl_failure_skips(const fl_failure *failure, double now);

/* Adds one at the end. NULL: out of memory. */
fl_failure *fl_failure_add_locked(fl_op *op, fl_impl_record *record);

/* Forgets the failure of one implementation, if it has one; all of an op; those that only failed, and were not found
 * wrong. Who is not barred any more has its first calls checked again. */
void fl_failure_forget_locked(fl_op *op, const fl_impl_record *record);
void fl_failures_free_locked(fl_op *op);
void fl_failures_clear_locked(fl_op *op);

#endif
