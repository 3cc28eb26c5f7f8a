/* Prepared weights: see prepared.h. */
#include "python/extension/prepared.h"
#include "python/extension/python_impl.h"

static PyTypeObject *prepared_type;

/* _core.Prepared. The GIL guards it. */
typedef struct fl_py_prepared {
  PyObject_HEAD fl_py_op *op; /* a reference, which keeps the host, too */
  const fl_prepared *made;    /* NULL: the implementation prepares nothing, or it was freed */
  PyObject *tensors;          /* what it was made of: others must not come to lie at their addresses */
  DLDevice device;
  uint64_t bytes;
  char impl_id[FL_NAME_MAX + 1]; /* "": nothing was prepared */
  Py_ssize_t calls;              /* that are under way with it */
  bool closed;
} fl_py_prepared;

/* -------------------------------------------------------------------------------------------------------- lifetime */

/* On a device when its work is done: a call that is back may still be queued there. */
static void free_made(const fl_py_prepared *prepared, const fl_prepared *made) {
  if (fl_py_has_streams(prepared->device))
    fl_device_synchronize(prepared->op->host->host, prepared->device, NULL, true);
  fl_prepared_free(made);
}

/* No call takes it from now on; it is freed at once, or by the last call that is under way with it. */
static void close_prepared(fl_py_prepared *prepared) {
  prepared->closed = true;
  if (prepared->calls)
    return;
  const fl_prepared *made = prepared->made;
  PyObject *tensors = prepared->tensors;
  prepared->made = NULL;
  prepared->tensors = NULL;
  prepared->bytes = 0;
  if (made)
    FL_PY_WITHOUT_GIL(free_made(prepared, made));
  Py_XDECREF(tensors);
}

static int prepared_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((fl_py_prepared *)self)->tensors);
  return 0;
}

static int prepared_clear(PyObject *self) {
  close_prepared((fl_py_prepared *)self);
  return 0;
}

static void prepared_dealloc(PyObject *self) {
  fl_py_prepared *prepared = (fl_py_prepared *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  PyObject *kind, *value, *traceback; /* a tensor's end may run Python code */
  PyErr_Fetch(&kind, &value, &traceback);
  close_prepared(prepared);
  Py_DECREF((PyObject *)prepared->op);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
  PyErr_Restore(kind, value, traceback);
}

/* ---------------------------------------------------------------------------------------------------------- making */

/* The objects of the arguments that something was made of. */
static PyObject *tensors_of(const fl_py_op *op, uint64_t set, PyObject *const *objects, uint32_t n) {
  PyObject *tensors = PyList_New(0);
  for (uint32_t i = 0; tensors && i < n && i < op->n_arguments && i < 64; i++)
    if (set >> i & 1 && objects[i] && PyList_Append(tensors, objects[i]))
      Py_CLEAR(tensors);
  return tensors;
}

/* Takes `made` over; NULL: nothing was made. */
static PyObject *new_prepared(fl_py_frame *frame, const fl_prepared *made, PyObject *const *objects, uint32_t n) {
  fl_prepared_info info = {.size = sizeof info, .impl_id = ""};
  fl_py_prepared *prepared = (fl_py_prepared *)PyType_GenericAlloc(prepared_type, 0);
  if (prepared) {
    prepared->op = (fl_py_op *)Py_NewRef((PyObject *)frame->op);
    prepared->device = (DLDevice){kDLCPU, 0};
  }
  if (made)
    fl_get_prepared_info(made, &info);
  PyObject *tensors = prepared ? tensors_of(frame->op, info.arguments, objects, n) : NULL;
  if (!tensors) {
    FL_PY_WITHOUT_GIL(fl_prepared_free(made));
    Py_XDECREF((PyObject *)prepared);
    return NULL;
  }
  for (uint32_t i = 0; made && i < frame->op->n_arguments && i < 64; i++)
    if (info.arguments >> i & 1 && frame->values[i].type == FL_TENSOR)
      prepared->device = frame->values[i].v.tensor->device;
  prepared->made = made;
  prepared->tensors = tensors;
  prepared->bytes = info.bytes;
  snprintf(prepared->impl_id, sizeof prepared->impl_id, "%s", info.impl_id);
  return (PyObject *)prepared;
}

PyObject *fl_py_prepare(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords) {
  const fl_py_op *op = (fl_py_op *)self;
  fl_py_frame frame;
  const fl_prepared *made = NULL;
  PyObject *result = NULL;
  fl_status status = FL_OK;
  bool done = fl_py_frame_begin(&frame, op, arguments, n, keywords) && fl_py_frame_results(&frame);
  frame.call.stream = frame.stream.address;
  if (done) {
    FL_PY_UNDER_POLICY(op->host, done, status, status = fl_prepare(op->op, &frame.call, &made));
    if (done)
      result = new_prepared(&frame, made, keywords ? frame.objects : arguments, keywords ? op->n_arguments : n);
    else
      fl_py_restore_passing();
  }
  fl_py_frame_end(&frame);
  return result;
}

/* ------------------------------------------------------------------------------------------------------------- calls
 */

bool fl_py_prepared_enter(fl_py_frame *frame, PyObject *object) {
  const char *op = frame->op->op_name;
  fl_py_prepared *prepared = (fl_py_prepared *)object;
  if (Py_TYPE(object) != prepared_type) {
    PyObject *type = fl_py_type_name(object);
    if (type)
      fl_py_raise_type("%s: argument 'prepared': %U, expected what prepare of this op gave", op, type);
    Py_XDECREF(type);
    return false;
  }
  if (prepared->op->op != frame->op->op) {
    fl_py_raise_value("%s: argument 'prepared': it was made for op '%s'%s, expected what prepare of '%s' gave here", op,
                      prepared->op->op_name,
                      prepared->op->host->host == frame->op->host->host ? "" : " of another host", op);
    return false;
  }
  if (prepared->closed) {
    PyObject *words = PyUnicode_FromFormat("%s: argument 'prepared': it was closed, prepare the weights again", op);
    const char *text = words ? PyUnicode_AsUTF8AndSize(words, NULL) : NULL;
    if (text)
      fl_py_raise_message(FL_ESTATE, text);
    Py_XDECREF(words);
    return false;
  }
  prepared->calls++;
  frame->prepared = prepared;
  frame->call.prepared = prepared->made;
  return true;
}

void fl_py_prepared_leave(fl_py_prepared *prepared) {
  PyObject *kind, *value, *traceback;
  if (--prepared->calls || !prepared->closed)
    return;
  PyErr_Fetch(&kind, &value, &traceback);
  close_prepared(prepared);
  PyErr_Restore(kind, value, traceback);
}

/* ----------------------------------------------------------------------------------------------- attributes, methods
 */

static PyObject *get_op(PyObject *self, void *none) {
  (void)none;
  return Py_NewRef((PyObject *)((fl_py_prepared *)self)->op);
}

static PyObject *get_impl_id(PyObject *self, void *none) {
  const fl_py_prepared *prepared = (fl_py_prepared *)self;
  (void)none;
  return *prepared->impl_id ? PyUnicode_FromString(prepared->impl_id) : Py_NewRef(Py_None);
}

static PyObject *get_bytes(PyObject *self, void *none) {
  (void)none;
  return PyLong_FromUnsignedLongLong(((fl_py_prepared *)self)->bytes);
}

static PyObject *get_closed(PyObject *self, void *none) {
  (void)none;
  return PyBool_FromLong(((fl_py_prepared *)self)->closed);
}

static PyObject *prepared_repr(PyObject *self) {
  const fl_py_prepared *prepared = (fl_py_prepared *)self;
  if (prepared->closed)
    return PyUnicode_FromFormat("<flhost prepared weights of %s: closed>", prepared->op->op_name);
  if (!prepared->made)
    return PyUnicode_FromFormat("<flhost prepared weights of %s: none>", prepared->op->op_name);
  return PyUnicode_FromFormat("<flhost prepared weights of %s: %llu bytes for %s>", prepared->op->op_name,
                              (unsigned long long)prepared->bytes, prepared->impl_id);
}

static PyObject *prepared_close(PyObject *self, PyObject *none) {
  (void)none;
  close_prepared((fl_py_prepared *)self);
  return Py_NewRef(Py_None);
}

static PyObject *prepared_enter(PyObject *self, PyObject *none) {
  (void)none;
  return Py_NewRef(self);
}

static PyObject *prepared_exit(PyObject *self, PyObject *arguments) {
  (void)arguments;
  return prepared_close(self, NULL);
}

static PyGetSetDef attributes[] = {
    {"op", get_op, NULL, "The op whose calls take it.", NULL},
    {"impl_id", get_impl_id, NULL, "The implementation that uses it; None: nothing was prepared.", NULL},
    {"bytes", get_bytes, NULL, "The memory that it takes; 0 where nothing was prepared, and when it is closed.", NULL},
    {"closed", get_closed, NULL, "Was it closed?", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"close", prepared_close, METH_NOARGS,
     "close($self)\n--\n\nFrees its memory; calls that are under way with it end before. No later call takes it."},
    {"__enter__", prepared_enter, METH_NOARGS, "__enter__($self)\n--\n\n"},
    {"__exit__", prepared_exit, METH_VARARGS, "__exit__($self, kind, error, traceback, /)\n--\n\nAs close."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, prepared_dealloc},
    {Py_tp_traverse, prepared_traverse},
    {Py_tp_clear, prepared_clear},
    {Py_tp_repr, prepared_repr},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Weights that an implementation of an op laid out as it likes them best: Op.prepare makes it, calls take "
     "it as prepared=. It closes at the end of a with block, or when nobody refers to it."},
    {0, NULL},
};
static PyType_Spec spec = {"flhost._core.Prepared", sizeof(fl_py_prepared), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};

int fl_py_prepared_add(PyObject *module) {
  prepared_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return prepared_type ? PyModule_AddObjectRef(module, "Prepared", (PyObject *)prepared_type) : -1;
}
