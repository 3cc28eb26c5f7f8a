/*
 * What bench/python/run.py holds calls against: borrowing tensors through DLPack's exchange functions, and nothing
 * else.
 */
#include "python/extension/dlpack_1.h"

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

static PyTypeObject *known;
static const dlpack_exchange *exchange;

/* borrow(*tensors): of the type that learn() was told. */
static PyObject *borrow(PyObject *module, PyObject *const *arguments, Py_ssize_t n) {
  DLTensor tensors[8];
  (void)module;
  for (Py_ssize_t i = 0; i < n && i < 8; i++)
    if (Py_TYPE(arguments[i]) != known || exchange->borrow(arguments[i], &tensors[i]))
      return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "another type than learn() was told");
  Py_RETURN_NONE;
}

static PyObject *nothing(PyObject *module, PyObject *const *arguments, Py_ssize_t n) {
  (void)module, (void)arguments, (void)n;
  Py_RETURN_NONE;
}

static PyObject *learn(PyObject *module, PyObject *type) {
  PyObject *capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  (void)module;
  exchange = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
  Py_XDECREF(capsule);
  if (!exchange)
    return NULL;
  Py_INCREF(type);
  known = (PyTypeObject *)type;
  Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"borrow", (PyCFunction)(void (*)(void))borrow, METH_FASTCALL, "Borrows tensors."},
    {"nothing", (PyCFunction)(void (*)(void))nothing, METH_FASTCALL, "Does nothing."},
    {"learn", learn, METH_O, "Says the type of the tensors."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "borrow", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_borrow(void);
PyMODINIT_FUNC PyInit_borrow(void) {
  return PyModule_Create(&definition);
}
