/*
 * flhost._core: libflhost for Python. Only the limited API of CPython 3.10, so that one file serves every later version.
 */
#include "python/extension/core.h"

#include <flhost/flhost.h>

static int module_exec(PyObject *module) {
  return PyModule_AddStringConstant(module, "__version__", fl_version());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)module_exec}, {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "flhost._core", "libflhost for Python.", 0, NULL, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
  return PyModuleDef_Init(&definition);
}
