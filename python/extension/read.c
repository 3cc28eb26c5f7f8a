/*
 * Values that are no tensors: as Python has them, and Python's. Those of a call are read strictly: what an argument's
 * type in the schema says, and what a Python user takes for the same. An int is an int or has __index__ (numpy.int64),
 * a float what has __float__ too, but for bools: True is no 1. A bool is a bool of Python or numpy. An int list is a
 * sequence of ints.
 */
#include "python/extension/call.h"

static bool is_bool(PyObject *object) {
  return Py_IsTrue(object) || Py_IsFalse(object);
}

/* numpy.bool, which numpy before 2.0 calls bool_. */
static bool is_numpy_bool(PyObject *object) {
  PyObject *name = fl_py_type_name(object);
  bool found = name && (!PyUnicode_CompareWithASCIIString(name, "numpy.bool") ||
                        !PyUnicode_CompareWithASCIIString(name, "numpy.bool_"));
  PyErr_Clear();
  Py_XDECREF(name);
  return found;
}

/* An object's word for messages: of short values themselves. */
static PyObject *describe(PyObject *object) {
  if (is_bool(object) || Py_IsNone(object))
    return PyObject_Repr(object);
  PyObject *name = fl_py_type_name(object);
  PyObject *described = name ? PyUnicode_FromFormat("an object of type %U", name) : NULL;
  Py_XDECREF(name);
  return described;
}

static bool refuse(const fl_py_frame *frame, uint32_t i, PyObject *object, const char *expected) {
  fl_py_place place = fl_py_place_of(frame->op, i);
  PyObject *given = describe(object);
  if (given)
    fl_py_raise_type("%s: %s '%s': %U, expected %s%s", place.op, place.what, place.name, given, expected,
                     frame->op->values[i].schema->optional ? " or None" : "");
  Py_XDECREF(given);
  return false;
}

/* A library's own exception, of __index__ or the like, becomes ours; one that is about size stays a ValueError. */
static bool read_int64(const fl_py_frame *frame, uint32_t i, PyObject *object, int64_t *number, const char *expected) {
  if (is_bool(object) || is_numpy_bool(object) || PyFloat_Check(object))
    return refuse(frame, i, object, expected);
  PyObject *index = PyNumber_Index(object);
  if (!index) {
    PyErr_Clear();
    return refuse(frame, i, object, expected);
  }
  int overflow = 0;
  *number = PyLong_AsLongLongAndOverflow(index, &overflow);
  Py_DECREF(index);
  if (overflow) {
    fl_py_place place = fl_py_place_of(frame->op, i);
    fl_py_raise_value("%s: %s '%s': %S, expected a number of 64 bits", place.op, place.what, place.name, object);
  }
  return !overflow;
}

static bool read_int(fl_py_frame *frame, uint32_t i, PyObject *object, fl_value *value) {
  int64_t number = 0;
  if (Py_TYPE(object) == &PyLong_Type) {
    int overflow;
    number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow)
      return read_int64(frame, i, object, &number, "int");
  } else if (!read_int64(frame, i, object, &number, "int")) {
    return false;
  }
  *value = fl_int(number);
  return true;
}

static bool read_float(fl_py_frame *frame, uint32_t i, PyObject *object, fl_value *value) {
  bool is_number = Py_TYPE(object) == &PyFloat_Type || Py_TYPE(object) == &PyLong_Type;
  if (!is_number && (is_bool(object) || is_numpy_bool(object) || PyUnicode_Check(object) ||
                     fl_py_kind_of(Py_TYPE(object))->route != FL_PY_NO_TENSOR))
    return refuse(frame, i, object, "float");
  double number = PyFloat_AsDouble(object);
  if (number == -1.0 && PyErr_Occurred()) {
    bool too_large = PyErr_ExceptionMatches(PyExc_OverflowError);
    PyErr_Clear();
    if (!too_large)
      return refuse(frame, i, object, "float");
    fl_py_place place = fl_py_place_of(frame->op, i);
    fl_py_raise_value("%s: %s '%s': a number that no float holds", place.op, place.what, place.name);
    return false;
  }
  *value = fl_float(number);
  return true;
}

static bool read_bool(fl_py_frame *frame, uint32_t i, PyObject *object, fl_value *value) {
  if (is_bool(object)) {
    *value = fl_bool(Py_IsTrue(object));
    return true;
  }
  int truth = is_numpy_bool(object) ? PyObject_IsTrue(object) : -1;
  if (truth < 0)
    return refuse(frame, i, object, "bool");
  *value = fl_bool(truth);
  return true;
}

static bool read_string(fl_py_frame *frame, uint32_t i, PyObject *object, fl_value *value) {
  Py_ssize_t length = 0;
  if (!PyUnicode_Check(object))
    return refuse(frame, i, object, "str");
  const char *text = PyUnicode_AsUTF8AndSize(object, &length);
  if (text && strlen(text) == (size_t)length) {
    *value = fl_string(text);
    return true;
  }
  PyErr_Clear();
  fl_py_place place = fl_py_place_of(frame->op, i);
  fl_py_raise_value("%s: %s '%s': %R, expected text without NUL that is valid Unicode", place.op, place.what,
                    place.name, object);
  return false;
}

static bool read_ints(fl_py_frame *frame, uint32_t i, PyObject *object, fl_value *value) {
  bool is_list = !PyUnicode_Check(object) && !PyBytes_Check(object) && PySequence_Check(object);
  Py_ssize_t n = is_list ? PySequence_Size(object) : -1;
  if (n < 0) {
    PyErr_Clear();
    return refuse(frame, i, object, "a sequence of ints");
  }
  if (n > FL_PY_MOST_INTS - (Py_ssize_t)frame->n_ints) {
    fl_py_place place = fl_py_place_of(frame->op, i);
    fl_py_raise_value("%s: %s '%s': %zd ints, expected at most %d in a call", place.op, place.what, place.name, n,
                      (int)FL_PY_MOST_INTS);
    return false;
  }
  int64_t *ints = frame->ints + frame->n_ints;
  for (Py_ssize_t j = 0; j < n; j++) {
    PyObject *item = PySequence_GetItem(object, j);
    bool done = item && read_int64(frame, i, item, &ints[j], "a sequence of ints");
    Py_XDECREF(item);
    if (!done)
      return false;
  }
  frame->n_ints += (uint32_t)n;
  *value = fl_ints(ints, (uint32_t)n);
  return true;
}

/* By fl_type. */
static bool (*const readers[])(fl_py_frame *, uint32_t, PyObject *, fl_value *) = {
    [FL_INT] = read_int,       [FL_FLOAT] = read_float,   [FL_BOOL] = read_bool,
    [FL_STRING] = read_string, [FL_INT_LIST] = read_ints,
};

bool fl_py_read(fl_py_frame *frame, uint32_t i, PyObject *object) {
  const fl_argument *schema = frame->op->values[i].schema;
  if (schema->optional && Py_IsNone(object)) {
    frame->values[i] = fl_none();
    return true;
  }
  return readers[schema->type](frame, i, object, &frame->values[i]);
}

/* ----------------------------------------------------------------------------------------------- as Python has them */

bool fl_py_convert(PyObject *object, fl_type type, fl_value *value) {
  if (type == FL_INT)
    *value = fl_int(PyLong_AsLongLong(object));
  else if (type == FL_FLOAT)
    *value = fl_float(PyFloat_AsDouble(object));
  else if (type == FL_BOOL)
    *value = fl_bool(PyObject_IsTrue(object) == 1);
  else if (type == FL_STRING)
    *value = fl_string(PyUnicode_AsUTF8AndSize(object, NULL));
  else
    fl_py_raise_type("%R: not a value of a type that can be converted", object);
  return !PyErr_Occurred();
}

static PyObject *ints_object(const fl_value *value) {
  PyObject *tuple = PyTuple_New(value->length);
  for (uint32_t i = 0; tuple && i < value->length; i++) {
    PyObject *item = PyLong_FromLongLong(value->v.ints[i]);
    if (!item || PyTuple_SetItem(tuple, i, item))
      Py_CLEAR(tuple);
  }
  return tuple;
}

PyObject *fl_py_value_object(const fl_value *value) {
  switch (value->type) {
  case FL_INT:
    return PyLong_FromLongLong(value->v.i);
  case FL_FLOAT:
    return PyFloat_FromDouble(value->v.f);
  case FL_BOOL:
    return PyBool_FromLong(value->v.b);
  case FL_STRING:
    return PyUnicode_DecodeUTF8(value->v.s, (Py_ssize_t)strlen(value->v.s), "replace");
  case FL_INT_LIST:
    return ints_object(value);
  default:
    return Py_NewRef(Py_None);
  }
}
