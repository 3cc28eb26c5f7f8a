/*
 * Python functions as implementations of ops.
 *
 * A function is called in one of two ways. By values: with views of the call's tensors and its other arguments, as any
 * caller of the op gives them. By objects: with the very objects that a Python caller gave, whatever they are
 * (object_call.h); the host selects, falls back, remembers and counts, and knows nothing of them.
 *
 * Whoever registers keeps the python_impl as long as the host may call it, and frees it with the GIL held.
 */
#ifndef FLHOST_PYTHON_IMPL_H
#define FLHOST_PYTHON_IMPL_H

#include "python/extension/core.h"

#include <flhost/flhost.h>

/* What a registered function needs when it is called. */
typedef struct python_impl {
  fl_op *op;
  PyObject *function;
  PyObject *is_available;  /* callable without arguments, or NULL */
  PyObject *supports_args; /* callable with the call's arguments, or NULL */
  PyObject *by_values;     /* calls the function with views and stores what it gives back; NULL: by objects alone */
} python_impl;

/* Takes new references. NULL with an exception. */
python_impl *python_impl_new(fl_op *op, PyObject *function, PyObject *is_available, PyObject *supports_args,
                             PyObject *by_values);
void python_impl_free(python_impl *impl);

/* Puts the functions that the host calls into a row to register. */
void python_impl_fill(python_impl *impl, fl_impl *row);

/* An exception that was to pass through the call that this thread made (KeyboardInterrupt, SystemExit): raises it again
 * and says true. Whoever calls an op from Python asks after a failure. */
bool fl_py_restore_passing(void);

/* The same where the caller can be given nothing but an error of its own library's (torch): it is raised as soon as
 * Python code of this thread goes on, as an interrupt is. With the GIL or without. */
void fl_py_pass_on(void);

/* flhost's own exceptions that mean "not supported" and "bad argument". */
void python_impl_exceptions(PyObject *not_supported_class, PyObject *invalid_argument_class);

/* Readies the module; fails in a subinterpreter, whose functions no other thread could call. */
int python_impl_exec(PyObject *module);

/* Adds all this to the module. */
int fl_py_python_impl_add(PyObject *module);

/* The host is destroyed: lets go of the functions that were registered in it. */
void fl_py_python_impls_free(const fl_py_host *host);

#endif /* FLHOST_PYTHON_IMPL_H */
