/* Calls with Python objects for arguments: see object_call.h. */
#include "python/extension/object_call.h"

static _Thread_local object_call *innermost;

object_call *object_call_of(const fl_op *op) {
  return innermost && innermost->op == op ? innermost : NULL;
}

object_call *object_call_suspend(void) {
  object_call *call = innermost;
  innermost = NULL;
  return call;
}

void object_call_resume(object_call *call) {
  innermost = call;
}

/* The GIL is released since the host may wait: for a lock that another thread holds while it asks a Python function
 * whether its implementation is available. */
fl_status object_call_run(object_call *call, fl_call *values) {
  fl_call none = {.size = sizeof none};
  call->outer = innermost;
  innermost = call;
  call->state = PyEval_SaveThread();
  fl_status status = values ? fl_invoke(call->op, values) : fl_invoke_opaque(call->op, &none);
  PyEval_RestoreThread(call->state);
  innermost = call->outer;
  return status;
}
