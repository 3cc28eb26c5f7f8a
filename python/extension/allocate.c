/*
 * New tensors for results, of the kind of a call's first tensor: by the functions that its library hands out, or by
 * that library's own function in Python (flhost/_kinds.py has a row for each).
 */
#include "python/extension/tensor.h"

#include <stdlib.h>

/* Where a library of tensors says why it could not make one; it may do so without the GIL. */
static void keep_reason(void *context, const char *kind, const char *message) {
  snprintf(context, FL_REASON_MAX, "%s: %.*s", kind ? kind : "error", message ? (int)strcspn(message, "\n") : 0,
           message ? message : "");
}

/*
 * Of a small result in the host's memory the bytes come with what says where they are, in one block, and its library
 * makes the object of it: where it is asked for the tensor, it makes one of its own first, and the object of that. Of
 * larger ones that takes no time to speak of, and its allocator may have large pages.
 */
typedef struct block {
  dlpack_versioned managed;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
} block;

enum { ALIGNMENT = 64, HEAD = (sizeof(block) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, MOST_BYTES = 256 << 10 };

/* Any thread, with the GIL or without. */
static void block_delete(dlpack_versioned *self) {
  free(self->manager_context);
}

/* NULL: its library is to make it. */
static dlpack_versioned *block_new(const fl_tensor_spec *spec) {
  uint32_t bits = spec->dtype.bits * (uint32_t)spec->dtype.lanes;
  int64_t size = bits / 8, strides[FL_MAX_DIMS] = {0}, step = 1;
  void *memory;
  if (spec->device.device_type != kDLCPU || bits % 8)
    return NULL;
  for (int32_t d = spec->ndim; d-- > 0 && step <= MOST_BYTES;) {
    if (spec->shape[d] > MOST_BYTES)
      return NULL;
    strides[d] = step;
    step *= spec->shape[d] ? spec->shape[d] : 1;
    size *= spec->shape[d];
  }
  if (step > MOST_BYTES || size > MOST_BYTES || posix_memalign(&memory, ALIGNMENT, (size_t)(HEAD + size)))
    return NULL;
  block *made = memory;
  memcpy(made->shape, spec->shape, sizeof made->shape);
  memcpy(made->strides, strides, sizeof strides);
  made->managed = (dlpack_versioned){.version = {1, 0},
                                     .manager_context = memory,
                                     .deleter = block_delete,
                                     .tensor = {.data = (char *)memory + HEAD,
                                                .device = spec->device,
                                                .ndim = spec->ndim,
                                                .dtype = spec->dtype,
                                                .shape = made->shape,
                                                .strides = made->strides}};
  return &made->managed;
}

static bool allocate_exchange(const dlpack_exchange *exchange, const fl_tensor_spec *spec, DLTensor *tensor,
                              fl_py_borrowed *borrowed, const fl_py_place *place) {
  int64_t shape[FL_MAX_DIMS];
  DLTensor prototype = {.device = spec->device, .ndim = spec->ndim, .dtype = spec->dtype, .shape = shape};
  memcpy(shape, spec->shape, sizeof shape);
  char reason[FL_REASON_MAX], text[2 * FL_REASON_MAX];
  dlpack_versioned *made = block_new(spec);
  reason[0] = '\0';
  if (!made && (exchange->allocate(&prototype, &made, reason, keep_reason) || !made)) {
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
