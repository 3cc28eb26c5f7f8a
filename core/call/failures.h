/* Implementations that fail in calls, and work again (rule F4). */
#ifndef FLHOST_CORE_CALL_FAILURES_H
#define FLHOST_CORE_CALL_FAILURES_H

#include "core/registry.h"

/* F4: remembers a failure, unless the host is frozen; what the op has bound is out of date. `barred`: results were
 * wrong, and it is not tried again by itself. */
void fl_remember_failure(fl_op *op, fl_impl_record *record, const char *reason, bool barred);
/* A failed implementation works again. Nothing changes when the host is frozen. */
void fl_forget_failure(fl_op *op, const fl_impl_record *record);

#endif
