/*
 * What the files of the extension share.
 */
#ifndef FLHOST_PYTHON_CORE_H
#define FLHOST_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#endif /* FLHOST_PYTHON_CORE_H */
