/* Prepared weights: see prepared.h. */
#include "python/extension/prepared.h"
#include "python/extension/python_impl.h"

#include <pthread.h>
#include <stdlib.h>

static PyTypeObject *prepared_type;

/* What fl_prepare made, until it is closed and no call has it any more. */
struct fl_py_weights {
  fl_op *op;
  fl_host *host;
  const fl_prepared *made; /* NULL: nothing was */
  DLDevice device;
  uint32_t calls; /* that are under way with it; the lock guards it, and what follows */
  bool closed;
  uint32_t slot;   /* among the handles, from 1; 0: none */
  PyObject *owner; /* the Prepared, borrowed; with the GIL, while they are not closed */
};

/* _core.Prepared */
typedef struct fl_py_prepared {
  PyObject_HEAD fl_py_op *op; /* a reference, which keeps the host, too */
  fl_py_weights *weights;     /* NULL: closed */
  PyObject *tensors;          /* what it was made of: others must not come to lie at their addresses */
  uint64_t bytes;
  char impl_id[FL_NAME_MAX + 1]; /* "": nothing was prepared */
} fl_py_prepared;

/* For calls of torch's, which do not hold the GIL. Nothing else is waited for while it is held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void take_lock(void) {
  pthread_mutex_lock(&lock);
}

static void release_lock(void) {
  pthread_mutex_unlock(&lock);
}

/* --------------------------------------------------------------------------------------------------------- handles */

/* Weights by number. A slot's next weights have another number, so that an old one finds nothing. */
static struct slot {
  fl_py_weights *weights; /* NULL: free */
  uint32_t generation;
} * slots;
static uint32_t n_slots;

static int64_t handle_of(uint32_t slot) {
  return (int64_t)slots[slot - 1].generation << 32 | slot;
}

/* A slot for weights that have none: 0, if there is no memory. The lock is held. */
static uint32_t find_slot(fl_py_weights *weights) {
  uint32_t i = 0;
  while (i < n_slots && slots[i].weights)
    i++;
  if (i == n_slots) {
    struct slot *more = realloc(slots, (n_slots + 64) * sizeof *more);
    if (!more)
      return 0;
    memset(more + n_slots, 0, 64 * sizeof *more);
    slots = more;
    n_slots += 64;
  }
  slots[i].weights = weights;
  slots[i].generation = (slots[i].generation + 1) & INT32_MAX;
  return i + 1;
}

/* -------------------------------------------------------------------------------------------------------- lifetime */

/* On a device when its work is done: a call that is back may still be queued there. Not with the GIL. */
static void free_weights(fl_py_weights *weights) {
  if (weights->made && fl_py_has_streams(weights->device))
    fl_device_synchronize(weights->host, weights->device, NULL, true);
  fl_prepared_free(weights->made);
  free(weights);
}

/* No call takes them from now on. They are freed at once, or by the last call that is under way. */
static void close_weights(fl_py_weights *weights) {
  take_lock();
  bool last = !weights->calls;
  weights->closed = true;
  if (weights->slot)
    slots[weights->slot - 1].weights = NULL;
  release_lock();
  if (last)
    FL_PY_WITHOUT_GIL(free_weights(weights));
}

/* They are to be freed. */
static bool leave(fl_py_weights *weights) {
  take_lock();
  bool last = !--weights->calls && weights->closed;
  release_lock();
  return last;
}

/* NULL: nothing has that handle. The lock is held. */
static fl_py_weights *find_weights(int64_t handle) {
  uint32_t slot = (uint32_t)handle;
  return slot && slot <= n_slots && handle_of(slot) == handle ? slots[slot - 1].weights : NULL;
}

fl_py_weights *fl_py_weights_enter(int64_t handle, const fl_op *op, const fl_prepared **made, const char **why) {
  take_lock();
  fl_py_weights *found = find_weights(handle);
  *why = !found ? "it was closed, or is no handle" : found->op != op ? "it was made for another op" : NULL;
  if (*why)
    found = NULL;
  else {
    found->calls++;
    *made = found->made;
  }
  release_lock();
  return found;
}

void fl_py_weights_leave(fl_py_weights *weights) {
  if (leave(weights))
    free_weights(weights);
}

static void close_prepared(fl_py_prepared *prepared) {
  fl_py_weights *weights = prepared->weights;
  PyObject *tensors = prepared->tensors;
  prepared->weights = NULL;
  prepared->tensors = NULL;
  prepared->bytes = 0;
  if (weights)
    close_weights(weights);
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
  Py_XDECREF((PyObject *)prepared->op);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
  PyErr_Restore(kind, value, traceback);
}

/* ---------------------------------------------------------------------------------------------------------- making */

/* The objects of the arguments that something was made of; where they lie. */
static PyObject *tensors_of(const fl_py_frame *frame, uint64_t set, PyObject *const *objects, uint32_t n,
                            DLDevice *device) {
  PyObject *tensors = PyList_New(0);
  for (uint32_t i = 0; tensors && i < n && i < 64; i++) {
    if (!(set >> i & 1) || !objects[i] || frame->values[i].type != FL_TENSOR)
      continue;
    *device = frame->values[i].v.tensor->device;
    if (PyList_Append(tensors, objects[i]))
      Py_CLEAR(tensors);
  }
  return tensors;
}

static fl_py_weights *new_weights(const fl_py_op *op, const fl_prepared *made, DLDevice device) {
  fl_py_weights *weights = calloc(1, sizeof *weights);
  if (weights)
    *weights = (fl_py_weights){.op = op->op, .host = op->host->host, .made = made, .device = device};
  else
    PyErr_NoMemory();
  return weights;
}

/* Takes `made` over; NULL: nothing was made. `objects` are the call's n arguments. */
static PyObject *new_prepared(fl_py_frame *frame, const fl_prepared *made, PyObject *const *objects, uint32_t n) {
  fl_prepared_info info = {.size = sizeof info, .impl_id = ""};
  DLDevice device = {kDLCPU, 0};
  if (made)
    fl_get_prepared_info(made, &info);
  PyObject *tensors = tensors_of(frame, info.arguments, objects, n, &device);
  fl_py_prepared *prepared = tensors ? (fl_py_prepared *)PyType_GenericAlloc(prepared_type, 0) : NULL;
  fl_py_weights *weights = prepared ? new_weights(frame->op, made, device) : NULL;
  if (!weights) {
    FL_PY_WITHOUT_GIL(fl_prepared_free(made));
    Py_XDECREF((PyObject *)prepared);
    Py_XDECREF(tensors);
    return NULL;
  }
  prepared->op = (fl_py_op *)Py_NewRef((PyObject *)frame->op);
  prepared->weights = weights;
  weights->owner = (PyObject *)prepared;
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

/* ------------------------------------------------------------------------------------------------------------ calls */

static void raise_closed(const char *op, const char *what) {
  PyObject *words = PyUnicode_FromFormat("%s: %s: it was closed, prepare the weights again", op, what);
  const char *text = words ? PyUnicode_AsUTF8AndSize(words, NULL) : NULL;
  if (text)
    fl_py_raise_message(FL_ESTATE, text);
  Py_XDECREF(words);
}

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
  if (!prepared->weights) {
    raise_closed(op, "argument 'prepared'");
    return false;
  }
  take_lock();
  prepared->weights->calls++;
  release_lock();
  frame->prepared = prepared->weights;
  frame->call.prepared = prepared->weights->made;
  return true;
}

void fl_py_prepared_leave(fl_py_weights *weights) {
  if (leave(weights))
    FL_PY_WITHOUT_GIL(free_weights(weights));
}

/* ---------------------------------------------------------------------------------------------- attributes, methods */

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
  return PyBool_FromLong(!((fl_py_prepared *)self)->weights);
}

static PyObject *get_handle(PyObject *self, void *none) {
  const fl_py_prepared *prepared = (fl_py_prepared *)self;
  fl_py_weights *weights = prepared->weights;
  (void)none;
  if (!weights) {
    raise_closed(prepared->op->op_name, "prepared weights");
    return NULL;
  }
  take_lock();
  if (!weights->slot)
    weights->slot = find_slot(weights);
  int64_t handle = weights->slot ? handle_of(weights->slot) : 0;
  release_lock();
  return handle ? PyLong_FromLongLong(handle) : PyErr_NoMemory();
}

PyObject *fl_py_prepared_of(PyObject *module, PyObject *number) {
  int64_t handle = PyLong_AsLongLong(number);
  (void)module;
  if (handle == -1 && PyErr_Occurred())
    return NULL;
  take_lock();
  fl_py_weights *found = find_weights(handle);
  release_lock();
  return found ? Py_NewRef(found->owner)
               : fl_py_raise_value("argument 'prepared': it was closed, or is no handle, expected the handle of what "
                                   "prepare gave");
}

static PyObject *prepared_repr(PyObject *self) {
  const fl_py_prepared *prepared = (fl_py_prepared *)self;
  if (!prepared->weights)
    return PyUnicode_FromFormat("<flhost prepared weights of %s: closed>", prepared->op->op_name);
  if (!prepared->weights->made)
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
    {"handle", get_handle, NULL,
     "A number that stands for it in this process until it is closed; flhost.torch.handle makes a tensor of it.", NULL},
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

static PyType_Slot type_slots[] = {
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
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, type_slots};

int fl_py_prepared_add(PyObject *module) {
  if (pthread_atfork(take_lock, release_lock, release_lock))
    return PyErr_NoMemory(), -1;
  prepared_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return prepared_type ? PyModule_AddObjectRef(module, "Prepared", (PyObject *)prepared_type) : -1;
}
