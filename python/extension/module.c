/*
 * flhost._core: libflhost for Python. It uses only the limited API of CPython 3.10, so that one file serves every later
 * version, and of the library only its public headers.
 */
#include "python/extension/prepared.h"
#include "python/extension/python_impl.h"

static PyMethodDef functions[] = {
    {"_log_end", fl_py_log_end, METH_NOARGS, "For atexit: from now on the log goes to standard error."},
    {"_use_openmp", fl_py_use_openmp, METH_VARARGS, "For flhost.torch.use_threads."},
    {"_prepared_of", fl_py_prepared_of, METH_O, "For flhost.torch: the Prepared of a handle."},
    {NULL, NULL, 0, NULL},
};

/* The state is the process's: exceptions, types and names live in static variables, for one interpreter. */
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "flhost._core", "libflhost for Python.", -1, functions, NULL, NULL, NULL, NULL};

/* When the interpreter ends, lines that are still to come have nobody to hand them on. */
static int watch_end(PyObject *module) {
  PyObject *atexit = PyImport_ImportModule("atexit"), *end = PyObject_GetAttrString(module, "_log_end");
  PyObject *result = atexit && end ? PyObject_CallMethod(atexit, "register", "O", end) : NULL;
  Py_XDECREF(result);
  Py_XDECREF(end);
  Py_XDECREF(atexit);
  return result ? 0 : -1;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
  static int (*const parts[])(PyObject *) = {
      fl_py_errors_add, fl_py_tensor_add, fl_py_policy_add,      fl_py_op_add,       fl_py_call_add,
      fl_py_host_add,   fl_py_torch_add,  fl_py_python_impl_add, fl_py_prepared_add, watch_end,
  };
  PyObject *module = PyModule_Create(&definition);
  if (!module || PyModule_AddStringConstant(module, "__version__", fl_version()))
    return NULL;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
    if (parts[i](module))
      return NULL;
  return module;
}
