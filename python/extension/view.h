/*
 * A tensor of a call, as what a Python function gets: an object with the DLPack protocol, from which torch, NumPy and
 * the others make a tensor of theirs without a copy. The memory is the caller's, and there for the time of the call.
 */
#ifndef FLHOST_PYTHON_VIEW_H
#define FLHOST_PYTHON_VIEW_H

#include "python/extension/core.h"

#include <dlpack/dlpack.h>

PyObject *view_new(const DLTensor *tensor);

/* The call is over: the views give out nothing any more. */
void views_close(PyObject *views);

/* Adds the type to the module. */
int view_exec(PyObject *module);

#endif /* FLHOST_PYTHON_VIEW_H */
