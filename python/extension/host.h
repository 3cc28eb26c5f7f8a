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

/* Rows of such a table: a method by the name of its function, with signature and docstring. */
#define FL_PY_METHOD_WITH_KEYWORDS(name_, arguments_, doc_)                                                            \
  { #name_, (PyCFunction)(void (*)(void))name_, METH_VARARGS | METH_KEYWORDS, #name_ arguments_ "\n--\n\n" doc_ }
#define FL_PY_METHOD(name_, form_, arguments_, doc_)                                                                   \
  { #name_, name_, form_, #name_ arguments_ "\n--\n\n" doc_ }

/* Methods of Host that report and that change. */
extern PyMethodDef fl_py_report_methods[], fl_py_control_methods[];

#endif /* FLHOST_PYTHON_HOST_H */
