/* Views of a call's tensors: see view.h. */
#include "python/extension/view.h"

#include <stdlib.h>
#include <string.h>

typedef struct view {
  PyObject ob_base;
  const DLTensor *tensor; /* NULL: the call is over */
} view;

static PyTypeObject *view_type;

/* DLPack 1.0's; what is in the system's header may be older. */
typedef struct versioned {
  uint32_t major, minor;
  void *manager_ctx;
  void (*deleter)(struct versioned *self);
  uint64_t flags;
  DLTensor dl_tensor;
} versioned;

/* What is given out: shape and strides are its own, since the tensor's may end with the call before the consumer's. */
typedef struct given {
  union {
    DLManagedTensor plain;
    versioned versioned;
  } as;
  int64_t numbers[];
} given;

static void delete_plain(DLManagedTensor *self) {
  free(self->manager_ctx);
}

static void delete_versioned(versioned *self) {
  free(self->manager_ctx);
}

/* Of a capsule that nobody took. */
static void drop(PyObject *capsule) {
  const char *name = PyCapsule_GetName(capsule);
  if (name && strncmp(name, "used_", 5) != 0) {
    DLManagedTensor *plain = PyCapsule_IsValid(capsule, "dltensor") ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    versioned *newer = plain ? NULL : PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (plain)
      plain->deleter(plain);
    else if (newer)
      newer->deleter(newer);
  }
}

static given *given_new(const DLTensor *tensor, DLTensor *copy) {
  size_t n = (size_t)tensor->ndim;
  given *made = malloc(sizeof *made + 2 * n * sizeof made->numbers[0]);
  if (!made)
    return NULL;
  *copy = *tensor;
  copy->shape = made->numbers;
  copy->strides = made->numbers + n; /* newer consumers want them of compact tensors, too */
  for (size_t i = n, step = 1; i-- > 0; step *= (size_t)tensor->shape[i]) {
    copy->shape[i] = tensor->shape[i];
    copy->strides[i] = tensor->strides ? tensor->strides[i] : (int64_t)step;
  }
  return made;
}

/* max_version as the protocol has it: (1, 0) or later asks for the versioned form. */
static bool wants_versioned(PyObject *kwargs) {
  PyObject *version = kwargs ? PyDict_GetItemString(kwargs, "max_version") : NULL;
  PyObject *major = version && PyTuple_Check(version) && PyTuple_Size(version) ? PyTuple_GetItem(version, 0) : NULL;
  return major && PyLong_AsLong(major) >= 1;
}

static PyObject *over(void) {
  PyErr_SetString(PyExc_RuntimeError, "the call that this tensor belongs to is over; copy what is to be kept");
  return NULL;
}

static PyObject *view_dlpack(PyObject *self, PyObject *args, PyObject *kwargs) {
  const DLTensor *tensor = ((view *)self)->tensor;
  DLTensor copy;
  (void)args;
  if (!tensor)
    return over();
  bool is_versioned = wants_versioned(kwargs);
  given *made = given_new(tensor, &copy);
  if (!made)
    return PyErr_NoMemory();
  if (is_versioned)
    made->as.versioned = (versioned){1, 0, made, delete_versioned, 0, copy};
  else
    made->as.plain = (DLManagedTensor){copy, made, delete_plain};
  PyObject *capsule = is_versioned ? PyCapsule_New(&made->as.versioned, "dltensor_versioned", drop)
                                   : PyCapsule_New(&made->as.plain, "dltensor", drop);
  if (!capsule)
    free(made);
  return capsule;
}

static PyObject *view_device(PyObject *self, PyObject *none) {
  const DLTensor *tensor = ((view *)self)->tensor;
  (void)none;
  return tensor ? Py_BuildValue("(ii)", (int)tensor->device.device_type, (int)tensor->device.device_id) : over();
}

static void view_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(self);
  Py_DECREF(type);
}

PyObject *view_new(const DLTensor *tensor) {
  allocfunc allocate = (allocfunc)PyType_GetSlot(view_type, Py_tp_alloc);
  PyObject *self = allocate(view_type, 0);
  if (self)
    ((view *)self)->tensor = tensor;
  return self;
}

void views_close(PyObject *views) {
  for (Py_ssize_t i = PyList_Size(views); i-- > 0;)
    ((view *)PyList_GetItem(views, i))->tensor = NULL;
}

static PyMethodDef methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))view_dlpack, METH_VARARGS | METH_KEYWORDS,
     "The tensor, without a copy."},
    {"__dlpack_device__", view_device, METH_NOARGS, "Device type and index."},
    {0},
};
static PyType_Slot view_slots[] = {
    {Py_tp_doc, "A tensor of the call that an implementation carries out; there until it returns."},
    {Py_tp_methods, methods},
    {Py_tp_dealloc, (void *)view_dealloc},
    {0, NULL},
};
static PyType_Spec view_spec = {"flhost._core.View", sizeof(view), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, view_slots};

int view_exec(PyObject *module) {
  PyObject *type = PyType_FromSpec(&view_spec);
  if (!type)
    return -1;
  Py_XDECREF((PyObject *)view_type);
  view_type = (PyTypeObject *)type;
  Py_INCREF(type);
  if (PyModule_AddObject(module, "View", type)) {
    Py_DECREF(type);
    return -1;
  }
  return 0;
}
