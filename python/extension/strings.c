#include "python/extension/strings.h"

#include <stdlib.h>

const char *fl_py_text(PyObject *object, const char *what) {
  Py_ssize_t length = 0;
  if (!PyUnicode_Check(object)) {
    PyObject *name = fl_py_type_name(object);
    if (name)
      fl_py_raise_type("%s: an object of type %U, expected str", what, name);
    Py_XDECREF(name);
    return NULL;
  }
  const char *text = PyUnicode_AsUTF8AndSize(object, &length);
  if (text && strlen(text) == (size_t)length)
    return text;
  PyErr_Clear();
  fl_py_raise_value("%s: %R, expected text without NUL that is valid Unicode", what, object);
  return NULL;
}

bool fl_py_strings_begin(fl_py_strings *strings, PyObject *iterable, const char *what) {
  *strings = (fl_py_strings){0};
  if (PyUnicode_Check(iterable) || PyBytes_Check(iterable)) {
    fl_py_raise_type("%s: %R, expected several strings: [%R]", what, iterable, iterable);
    return false;
  }
  strings->owner = PySequence_Tuple(iterable);
  Py_ssize_t n = strings->owner ? PyTuple_Size(strings->owner) : -1;
  if (n < 0 || !(strings->items = calloc((size_t)n + 1, sizeof *strings->items)))
    return n < 0 ? false : PyErr_NoMemory() != NULL;
  for (Py_ssize_t i = 0; i < n; i++)
    if (!(strings->items[i] = fl_py_text(PyTuple_GetItem(strings->owner, i), what)))
      return false;
  strings->n = (uint32_t)n;
  return true;
}

void fl_py_strings_end(fl_py_strings *strings) {
  free(strings->items);
  Py_XDECREF(strings->owner);
  *strings = (fl_py_strings){0};
}

int fl_py_path(PyObject *object, void *bytes) {
  PyObject **path = bytes;
  *path = NULL;
  return Py_IsNone(object) || PyUnicode_FSConverter(object, path);
}
