/* Tensors of Python objects: see tensor.h. */
#include "python/extension/tensor.h"

/* Names that are looked up in each call. */
static PyObject *name_dlpack, *name_dlpack_device, *name_stream, *name_max_version, *name_exchange, *no_arguments,
    *version_1;

/* ---------------------------------------------------------------------------------------------------------- errors */

/* What an exception says, without the stack of C++ that some put behind it. */
static PyObject *first_line(PyObject *value) {
  PyObject *words = PyObject_Str(value);
  const char *text = words ? PyUnicode_AsUTF8AndSize(words, NULL) : NULL;
  PyObject *line = text ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strcspn(text, "\n"), "replace") : NULL;
  Py_XDECREF(words);
  return line;
}

/* Makes `value` the cause of the exception that is set. */
static void set_cause(PyObject *value) {
  PyObject *type, *ours, *traceback;
  PyErr_Fetch(&type, &ours, &traceback);
  PyErr_NormalizeException(&type, &ours, &traceback);
  PyException_SetCause(ours, Py_NewRef(value));
  PyErr_Restore(type, ours, traceback);
}

void fl_py_refuse(PyObject *object, const fl_py_place *place) {
  PyObject *type, *value, *traceback;
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
    return; /* an interrupt */
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject *name = fl_py_type_name(object), *words = name && value ? first_line(value) : NULL;
  if (words) {
    fl_py_raise_value("%s: %s '%s': a %U that cannot be borrowed: %U", place->op, place->what, place->name, name,
                      words);
    set_cause(value);
  } else if (name && !value) {
    fl_py_raise_type("%s: %s '%s': %U, expected a tensor, of torch, numpy or another library that has __dlpack__",
                     place->op, place->what, place->name, name);
  }
  Py_XDECREF(words);
  Py_XDECREF(name);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

void fl_py_cannot_allocate(const fl_py_place *place) {
  PyObject *type, *value, *traceback;
  if (!PyErr_ExceptionMatches(PyExc_Exception))
    return;
  bool no_memory = PyErr_ExceptionMatches(PyExc_MemoryError);
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject *text =
      PyUnicode_FromFormat("%s: %s '%s': it cannot be made: %S", place->op, place->what, place->name, value);
  const char *words = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  if (words) {
    fl_py_raise_message(no_memory ? FL_ENOMEM : FL_EINVAL, words);
    set_cause(value);
  }
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

bool fl_py_is_aligned(const DLTensor *tensor, const fl_py_place *place) {
  uint64_t bytes = (uint64_t)tensor->dtype.bits * tensor->dtype.lanes / 8;
  if (bytes <= 1 || !(((uintptr_t)tensor->data + tensor->byte_offset) % bytes))
    return true;
  for (int i = 0; i < tensor->ndim; i++)
    if (!tensor->shape[i])
      return true;
  fl_py_raise_value("%s: %s '%s': its first element is not aligned to the %d bytes of its element type; expected "
                    "aligned memory, such as that of a copy",
                    place->op, place->what, place->name, (int)bytes);
  return false;
}

/* ----------------------------------------------------------------------------------------------------------- kinds */

fl_py_kind fl_py_kinds[FL_PY_KINDS];

/* The functions that a type hands out, of DLPack's major version 1; NULL: none. No exception is left. */
static const dlpack_exchange *exchange_of(PyTypeObject *type) {
  PyObject *capsule = PyObject_GetAttr((PyObject *)type, name_exchange);
  const dlpack_exchange_header *header = capsule && PyCapsule_IsValid(capsule, "dlpack_exchange_api")
                                             ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api")
                                             : NULL;
  PyErr_Clear();
  Py_XDECREF(capsule); /* what it points to stays for ever, says DLPack */
  while (header && header->version.major != 1)
    header = header->previous;
  return (const dlpack_exchange *)header;
}

static bool has(PyTypeObject *type, PyObject *name) {
  PyObject *found = PyObject_GetAttr((PyObject *)type, name);
  PyErr_Clear();
  Py_XDECREF(found);
  return found != NULL;
}

/* Is it numpy.ndarray, or a class derived from it? Memory of either is the host's. */
static bool is_array(PyTypeObject *type) {
  PyObject *numpy = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy"); /* no array without it */
  PyObject *array = numpy ? PyObject_GetAttrString(numpy, "ndarray") : NULL;
  bool found = array && PyType_Check(array) && PyType_IsSubtype(type, (PyTypeObject *)array);
  PyErr_Clear();
  Py_XDECREF(array);
  return found;
}

fl_py_kind *fl_py_kind_find(PyTypeObject *type) {
  static fl_py_kind no_tensor;
  fl_py_kind found = {.type = type, .exchange = exchange_of(type)};
  found.borrow = found.exchange ? found.exchange->borrow : NULL;
  if (found.exchange)
    found.route = FL_PY_EXCHANGE;
  else if (is_array(type))
    found.route = FL_PY_ARRAY;
  else if (has(type, name_dlpack) && has(type, name_dlpack_device))
    found.route = FL_PY_CAPSULE;
  else
    return &no_tensor; /* types of wrong arguments take no place */
  fl_py_kind *kind = &fl_py_kinds[((uintptr_t)type >> 4) % FL_PY_KINDS];
  PyTypeObject *before = kind->type;
  Py_INCREF(type);
  *kind = found;
  Py_XDECREF(before);
  return &fl_py_kinds[((uintptr_t)type >> 4) % FL_PY_KINDS];
}

/* -------------------------------------------------------------------------------------------------------- borrowing */

void fl_py_give_back(fl_py_borrowed *borrowed) {
  PyObject *held = borrowed->held, *object = borrowed->object;
  dlpack_versioned *managed = borrowed->managed;
  *borrowed = (fl_py_borrowed){0};
  if (!held && !object && (!managed || !managed->deleter))
    return;
  PyObject *type, *value, *traceback; /* a capsule's destructor may run Python code */
  PyErr_Fetch(&type, &value, &traceback);
  Py_XDECREF(held);
  Py_XDECREF(object);
  if (managed && managed->deleter)
    managed->deleter(managed);
  PyErr_Restore(type, value, traceback);
}

bool fl_py_borrow_exchange(const dlpack_exchange *exchange, PyObject *object, DLTensor *tensor,
                           fl_py_borrowed *borrowed, const fl_py_place *place) {
  dlpack_versioned *managed = NULL;
  borrowed->tensor = tensor;
  if (exchange->borrow) {
    if (!exchange->borrow(object, tensor))
      return true;
  } else if (!exchange->to_managed(object, &managed)) {
    borrowed->managed = managed;
    borrowed->tensor = &managed->tensor;
    borrowed->read_only = managed->flags & DLPACK_1_READ_ONLY;
    return true;
  }
  fl_py_refuse(object, place);
  return false;
}

/* Takes hold of what a capsule has. The capsule gives it back by itself, since it is not renamed. */
static bool open_capsule(PyObject *capsule, fl_py_borrowed *borrowed) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    dlpack_versioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->version.major != 1) {
      PyErr_Format(PyExc_BufferError, "its tensor is of DLPack %u, expected 1", (unsigned)managed->version.major);
      return false;
    }
    borrowed->tensor = &managed->tensor;
    borrowed->read_only = managed->flags & DLPACK_1_READ_ONLY;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
    borrowed->tensor = &managed->dl_tensor;
    borrowed->read_only = false;
  } else {
    PyErr_SetString(PyExc_BufferError, "its __dlpack__ gave something else than a fresh capsule of a DLPack tensor");
    return false;
  }
  Py_INCREF(capsule);
  borrowed->held = capsule;
  return true;
}

/* What __dlpack__ is called with: the stream that the tensor is to be ready on, NULL for host memory, and the newest
 * version that is understood. */
static PyObject *keywords_of(const fl_py_kind *kind, PyObject *stream) {
  PyObject *keywords = PyDict_New();
  if (keywords && ((stream && PyDict_SetItem(keywords, name_stream, stream)) ||
                   (!kind->unversioned && PyDict_SetItem(keywords, name_max_version, version_1))))
    Py_CLEAR(keywords);
  return keywords;
}

/* Calls __dlpack__, without max_version for a type that does not know it. */
static PyObject *call_dlpack(fl_py_kind *kind, PyObject *object, PyObject *stream) {
  PyTypeObject *type = kind->type;
  PyObject *method = PyObject_GetAttr(object, name_dlpack), *capsule = NULL;
  for (bool again = method != NULL; again;) {
    PyObject *keywords = keywords_of(kind, stream);
    capsule = keywords ? PyObject_Call(method, no_arguments, keywords) : NULL;
    Py_XDECREF(keywords);
    again = !capsule && kind->type == type && !kind->unversioned && PyErr_ExceptionMatches(PyExc_TypeError);
    if (again) {
      PyErr_Clear();
      kind->unversioned = true;
    }
  }
  Py_XDECREF(method);
  return capsule;
}

/* Where a tensor is, by __dlpack_device__. */
static bool device_of(PyObject *object, DLDevice *device) {
  PyObject *pair = PyObject_CallMethodObjArgs(object, name_dlpack_device, NULL);
  int type = 0, index = 0;
  bool done = pair && PyTuple_Check(pair) && PyArg_ParseTuple(pair, "ii", &type, &index);
  if (pair && !done && !PyErr_Occurred())
    PyErr_SetString(PyExc_BufferError, "its __dlpack_device__ gave something else than a tuple of two numbers");
  Py_XDECREF(pair);
  *device = (DLDevice){(DLDeviceType)type, index};
  return done;
}

/* The stream that the call goes to, where no argument before has said it: that of this one's library. */
static bool find_stream(PyObject *object, fl_py_stream *stream) {
  PyObject *number = fl_py_call_kinds("stream", object, NULL);
  if (number)
    stream->address = PyLong_AsVoidPtr(number);
  Py_XDECREF(number);
  stream->known = !PyErr_Occurred();
  return stream->known;
}

/* DLPack's word for it: None for host memory; of CUDA 1 is the default stream, of others 0. */
static PyObject *stream_word(PyObject *object, fl_py_stream *stream) {
  DLDevice device;
  if (!device_of(object, &device))
    return NULL;
  if (!fl_py_has_streams(device))
    return Py_NewRef(Py_None);
  if (!stream->known && !find_stream(object, stream))
    return NULL;
  return PyLong_FromVoidPtr(!stream->address && device.device_type == kDLCUDA ? (void *)1 : stream->address);
}

bool fl_py_borrow_capsule(fl_py_kind *kind, PyObject *object, fl_py_stream *stream, fl_py_borrowed *borrowed,
                          const fl_py_place *place) {
  bool is_array = kind->route == FL_PY_ARRAY, done = false;
  PyObject *word = is_array ? NULL : stream_word(object, stream);
  PyObject *capsule = is_array || word ? call_dlpack(kind, object, word) : NULL;
  if (capsule)
    done = open_capsule(capsule, borrowed);
  else if (is_array && PyErr_ExceptionMatches(PyExc_Exception))
    done = fl_py_borrow_array(object, borrowed);
  if (!done)
    fl_py_refuse(object, place);
  fl_py_borrowed rest = {.held = capsule, .object = word};
  fl_py_give_back(&rest);
  return done;
}

int fl_py_tensor_add(PyObject *module) {
  (void)module;
  name_dlpack = PyUnicode_InternFromString("__dlpack__");
  name_dlpack_device = PyUnicode_InternFromString("__dlpack_device__");
  name_exchange = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  name_stream = PyUnicode_InternFromString("stream");
  name_max_version = PyUnicode_InternFromString("max_version");
  no_arguments = PyTuple_New(0);
  version_1 = Py_BuildValue("(ii)", 1, 0);
  return name_dlpack && name_dlpack_device && name_exchange && name_stream && name_max_version && no_arguments &&
                 version_1
             ? 0
             : -1;
}
