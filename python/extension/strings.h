/*
 * Lists of strings from Python, and paths, for as long as a call of the library takes.
 */
#ifndef FLHOST_PYTHON_STRINGS_H
#define FLHOST_PYTHON_STRINGS_H

#include "python/extension/core.h"

/* The strings of a sequence; they belong to it. */
typedef struct fl_py_strings {
  PyObject *owner; /* a tuple */
  const char **items;
  uint32_t n;
} fl_py_strings;

/* Reads any iterable of str, but no str. `what` is for the message. False with an exception set; fl_py_strings_end
 * follows in either case. */
bool fl_py_strings_begin(fl_py_strings *strings, PyObject *iterable, const char *what);
void fl_py_strings_end(fl_py_strings *strings);

/* A str's text, without NUL; NULL with an exception set. It belongs to the object. */
const char *fl_py_text(PyObject *object, const char *what);

/* For PyArg_Parse's O&: a `PyObject *` that is a bytes object with the path, of a str, bytes or os.PathLike; NULL for
 * None.
 */
int fl_py_path(PyObject *object, void *bytes);

#endif /* FLHOST_PYTHON_STRINGS_H */
