/*
 * Arrays of numpy that its __dlpack__ does not give out: read-only ones before numpy 2.1, and those of element types
 * that other modules bring (ml_dtypes.bfloat16).
 */
#include "python/extension/tensor.h"

#include <stdlib.h>

/* The tensor, its shape and its strides in one block of memory. */
typedef struct described {
  dlpack_versioned managed;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
} described;

static void described_free(dlpack_versioned *managed) {
  free(managed);
}

/* A tuple of ints; *n is its length. False with an exception set. */
static bool read_sizes(PyObject *tuple, int64_t *sizes, int32_t *n) {
  Py_ssize_t length = tuple && PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
  if (length < 0 || length > FL_MAX_DIMS) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_BufferError, "it has %zd dimensions, expected at most %d", length, FL_MAX_DIMS);
    return false;
  }
  for (Py_ssize_t i = 0; i < length; i++)
    if ((sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i))) == -1 && PyErr_Occurred())
      return false;
  *n = (int32_t)length;
  return true;
}

/* The element type: by name, since numpy has no code for those of other modules. */
static const fl_element_type *element_of(PyObject *object) {
  PyObject *dtype = PyObject_GetAttrString(object, "dtype");
  PyObject *native = dtype ? PyObject_GetAttrString(dtype, "isnative") : NULL;
  PyObject *name = native ? PyObject_GetAttrString(dtype, "name") : NULL;
  const char *word = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  const fl_element_type *element = word ? fl_element_type_named(word) : NULL;
  if (word && !element)
    PyErr_Format(PyExc_BufferError, "its dtype is %s", word);
  else if (element && !PyObject_IsTrue(native)) {
    PyErr_Format(PyExc_BufferError, "its elements are in the other byte order");
    element = NULL;
  }
  Py_XDECREF(name);
  Py_XDECREF(native);
  Py_XDECREF(dtype);
  return element;
}

/* Strides come in bytes. */
static bool fill(described *room, PyObject *interface, int64_t item) {
  DLTensor *tensor = &room->managed.tensor;
  PyObject *data = PyDict_GetItemString(interface, "data"), *strides = PyDict_GetItemString(interface, "strides");
  int32_t n = 0;
  if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2 ||
      !read_sizes(PyDict_GetItemString(interface, "shape"), room->shape, &tensor->ndim))
    return false;
  tensor->data = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
  if (PyErr_Occurred())
    return false;
  room->managed.flags = PyObject_IsTrue(PyTuple_GetItem(data, 1)) ? DLPACK_1_READ_ONLY : 0;
  tensor->shape = room->shape;
  if (!strides || Py_IsNone(strides))
    return true;
  if (!read_sizes(strides, room->strides, &n) || n != tensor->ndim)
    return false;
  for (int32_t i = 0; i < n; i++) {
    if (room->strides[i] % item) {
      PyErr_SetString(PyExc_BufferError, "its strides are no multiples of an element's size");
      return false;
    }
    room->strides[i] /= item;
  }
  tensor->strides = room->strides;
  return true;
}

bool fl_py_borrow_array(PyObject *object, fl_py_borrowed *borrowed) {
  PyErr_Clear();
  const fl_element_type *element = element_of(object);
  PyObject *interface = element ? PyObject_GetAttrString(object, "__array_interface__") : NULL;
  described *room = interface && PyDict_Check(interface) ? calloc(1, sizeof *room) : NULL;
  bool done = false;
  if (room) {
    room->managed.version.major = 1;
    room->managed.deleter = described_free;
    room->managed.tensor.dtype = element->dtype;
    room->managed.tensor.device.device_type = kDLCPU;
    done = fill(room, interface, element->dtype.bits / 8);
  }
  if (done) {
    borrowed->tensor = &room->managed.tensor;
    borrowed->managed = &room->managed;
    borrowed->read_only = room->managed.flags & DLPACK_1_READ_ONLY;
  } else {
    free(room);
    if (!PyErr_Occurred())
      PyErr_SetString(PyExc_BufferError, "its __array_interface__ is not as numpy describes it");
  }
  Py_XDECREF(interface);
  return done;
}
