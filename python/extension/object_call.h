/*
 * A call whose arguments are Python objects: they lie in this thread's own place while the host looks for the
 * implementation to call, and that one takes them from there.
 */
#ifndef FLHOST_PYTHON_OBJECT_CALL_H
#define FLHOST_PYTHON_OBJECT_CALL_H

#include "python/extension/core.h"

#include <flhost/flhost.h>

/* A call under way. */
typedef struct object_call {
  fl_op *op;
  PyObject *args, *kwargs; /* borrowed */
  PyObject *result;        /* what the last function gave back; owned */
  PyObject *exception;     /* what the last that failed raised; owned */
  PyThreadState *state;    /* of this thread, while it does not hold the GIL */
  struct object_call *outer;
} object_call;

/* This thread's innermost, if it is a call of that op; NULL else, and while a function runs. */
object_call *object_call_of(const fl_op *op);

/* No call, until it is set back: what the function calls in its turn is no part of this one. */
object_call *object_call_suspend(void);
void object_call_resume(object_call *call);

/* Calls the op with objects; `values` (may be NULL) is the same call for implementations that take values. Returns the
 * status; result and exception are the caller's to release. Called with the GIL, which it releases meanwhile. */
fl_status object_call_run(object_call *call, fl_call *values);

#endif /* FLHOST_PYTHON_OBJECT_CALL_H */
