/*
 * New tensors for results, of the kind of a call's first tensor: by the functions that its library hands out, or by
 * that library's own function in Python (flhost/_kinds.py has a row for each).
 */
#include "python/extension/tensor.h"

/* Where a library of tensors says why it could not make one; it may do so without the GIL. */
static void keep_reason(void *context, const char *kind, const char *message) {
  snprintf(context, FL_REASON_MAX, "%s: %.*s", kind ? kind : "error", message ? (int)strcspn(message, "\n") : 0,
           message ? message : "");
}

static bool allocate_exchange(const dlpack_exchange *exchange, const fl_tensor_spec *spec, DLTensor *tensor,
                              fl_py_borrowed *borrowed, const fl_py_place *place) {
  int64_t shape[FL_MAX_DIMS];
  DLTensor prototype = {.device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = shape};
  memcpy(shape, spec->shape, sizeof shape);
  char reason[FL_REASON_MAX], text[2 * FL_REASON_MAX];
  dlpack_versioned *made = NULL;
  reason[0] = '\0';
  if (exchange->allocate(&prototype, &made, reason, keep_reason) || !made) {
    PyErr_Clear();
    snprintf(text, sizeof text, "%s: %s '%s': no memory for it: %s", place->op, place->what, place->name,
             reason[0] ? reason : "its library does not say why");
    fl_py_raise_message(FL_ENOMEM, text);
    return false;
  }
  *tensor = made->tensor;
  if (fl_py_is_plain(tensor))
    tensor->strides = NULL;
  borrowed->managed = made;
  borrowed->tensor = tensor;
  return true;
}

static PyObject *shape_of(const fl_tensor_spec *spec) {
  PyObject *shape = PyTuple_New(spec->ndim);
  for (int32_t i = 0; shape && i < spec->ndim; i++) {
    PyObject *size = PyLong_FromLongLong(spec->shape[i]);
    if (!size || PyTuple_SetItem(shape, i, size))
      Py_CLEAR(shape);
  }
  return shape;
}

PyObject *fl_py_spec(const fl_tensor_spec *spec) {
  const fl_element_type *element = fl_element_type_of(spec->dtype);
  const char *device = fl_device_type_name((int32_t)spec->device.device_type);
  PyObject *shape = shape_of(spec);
  PyObject *place = PyUnicode_FromFormat(spec->device.device_type == kDLCPU ? "%s" : "%s:%d", device ? device : "?",
                                         (int)spec->device.device_id);
  PyObject *described = shape && place ? Py_BuildValue("(OsO)", shape, element ? element->name : "?", place) : NULL;
  Py_XDECREF(place);
  Py_XDECREF(shape);
  return described;
}

PyObject *fl_py_call_kinds(const char *name, PyObject *like, PyObject *argument) {
  PyObject *kinds = PyImport_ImportModule("flhost._kinds");
  PyObject *function = kinds ? PyObject_GetAttrString(kinds, name) : NULL;
  PyObject *result = function ? PyObject_CallFunctionObjArgs(function, like ? like : Py_None, argument, NULL) : NULL;
  Py_XDECREF(function);
  Py_XDECREF(kinds);
  return result;
}

bool fl_py_allocate(PyObject *like, const fl_tensor_spec *spec, fl_py_stream *stream, DLTensor *tensor,
                    fl_py_borrowed *borrowed, const fl_py_place *place) {
  fl_py_kind *kind = like ? fl_py_kind_of(Py_TYPE(like)) : NULL;
  *borrowed = (fl_py_borrowed){0};
  if (kind && kind->route == FL_PY_EXCHANGE)
    return allocate_exchange(kind->exchange, spec, tensor, borrowed, place);
  PyObject *described = fl_py_spec(spec);
  PyObject *made = described ? fl_py_call_kinds("allocate", like, described) : NULL;
  bool done = false;
  Py_XDECREF(described);
  if (!made) {
    fl_py_cannot_allocate(place);
    return false;
  }
  kind = fl_py_kind_of(Py_TYPE(made));
  if (kind->route == FL_PY_EXCHANGE)
    done = fl_py_borrow_exchange(kind->exchange, made, tensor, borrowed, place);
  else if (kind->route == FL_PY_NO_TENSOR)
    fl_py_refuse(made, place);
  else
    done = fl_py_borrow_capsule(kind, made, stream, borrowed, place);
  borrowed->object = made;
  if (!done)
    fl_py_give_back(borrowed);
  return done;
}

PyObject *fl_py_made(PyObject *like, fl_py_borrowed *borrowed) {
  PyObject *object = borrowed->object;
  void *made = NULL;
  if (object) {
    borrowed->object = NULL;
    return object;
  }
  dlpack_versioned *managed = borrowed->managed;
  borrowed->managed = NULL;
  if (fl_py_kind_of(Py_TYPE(like))->exchange->to_object(managed, &made))
    return NULL; /* it took `managed` over all the same */
  return made;
}
