/*
 * Prepared weights: what implementations made of them, to be brought along in calls (flhost/call.h, fl_prepare). Each
 * is the host's, in a list under its lock, and immutable.
 */
#ifndef FLHOST_CORE_CALL_PREPARED_H
#define FLHOST_CORE_CALL_PREPARED_H

#include "core/registry.h"

/* FL_EINVAL where call->prepared was not made for this op with these tensors. The call has passed the schema. */
fl_status fl_prepared_check(const fl_op *op, const fl_call *call);

/* Bytes that an implementation has prepared, and how many they are. The host's lock is held. */
uint64_t fl_prepared_sum_locked(const fl_op *op, const char *impl_id, uint64_t *count);

/* Frees what is left. Nobody calls any more. */
void fl_prepared_end(fl_host *host);

#endif
