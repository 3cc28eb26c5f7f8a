/*
 * What the files about Host share.
 */
#ifndef FLHOST_PYTHON_HOST_H
#define FLHOST_PYTHON_HOST_H

#include "python/extension/core.h"

/* A host that is not closed; NULL with an exception set. */
fl_py_host *fl_py_open_host(PyObject *self);

/* The device type that a word or number means: "cpu", "cuda:1", "nvidia", 2, torch.device; NULL: the processor. 0 with
 * an exception set. */
int32_t fl_py_device(fl_py_host *host, PyObject *word);

/* Methods of Host that report and that change. */
extern PyMethodDef fl_py_report_methods[], fl_py_control_methods[];

#endif /* FLHOST_PYTHON_HOST_H */
