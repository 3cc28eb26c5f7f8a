/* The call path, for those in this room that call on behalf of a call. */
#ifndef FLHOST_CORE_CALL_INVOKE_H
#define FLHOST_CORE_CALL_INVOKE_H

#include "core/registry.h"

/* The first tensor of a call; NULL: it has none. */
const DLTensor *fl_call_first_tensor(const fl_call *call);

/* Has it no values? Then it is an opaque call, or the op has no arguments either. */
static inline bool fl_call_is_opaque(const fl_call *call) {
  return !call->count;
}

/* The tensor whose device selects: that of the schema's device_argument; if that is none, the first that the call has.
 * NULL: it has none. */
static inline const DLTensor *fl_call_tensor(const fl_op *op, const fl_call *call) {
  if (op->device_argument < 0 || fl_call_is_opaque(call))
    return NULL;
  const fl_value *value = &call->values[op->device_argument];
  return value->type == FL_TENSOR ? value->v.tensor : fl_call_first_tensor(call);
}

/* Its device type; 0 when the call has no tensor; FL_OPAQUE_SLOT for an opaque call. */
uint32_t fl_call_device(const fl_op *op, const fl_call *call);

/* Calls what the op has bound, or resolves it first. The thread is reading, the arguments are good, and call->message
 * is set. */
fl_status fl_dispatch(fl_op *op, fl_call *call);

/* Threads that call have what this room keeps for them, from now on. */
void fl_calls_start(void);

#endif
