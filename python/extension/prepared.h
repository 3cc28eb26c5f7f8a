/*
 * Weights that were prepared for calls of an op (fl_prepare), as an object of Python's that calls take as prepared=.
 */
#ifndef FLHOST_PYTHON_PREPARED_H
#define FLHOST_PYTHON_PREPARED_H

#include "python/extension/call.h"

/* Op.prepare */
PyObject *fl_py_prepare(PyObject *op, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords);

/* Puts what `prepared` holds into the frame's call, which it stays with until fl_py_prepared_leave, whoever closes it
 * meanwhile. False with an exception set. */
bool fl_py_prepared_enter(fl_py_frame *frame, PyObject *prepared);
void fl_py_prepared_leave(fl_py_weights *weights);

/* The same by the number that Prepared.handle gave, without the GIL. NULL: *why says what is wrong with it. */
fl_py_weights *fl_py_weights_enter(int64_t handle, const fl_op *op, const fl_prepared **made, const char **why);
void fl_py_weights_leave(fl_py_weights *weights);

/* The Prepared of a handle: _core._prepared_of. */
PyObject *fl_py_prepared_of(PyObject *module, PyObject *number);

int fl_py_prepared_add(PyObject *module);

#endif /* FLHOST_PYTHON_PREPARED_H */
