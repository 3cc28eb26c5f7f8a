/*
 * _core.Caller: one op of a host, called with Python objects as they are, or, where an adapter knows how, with values
 * beside them for implementations that are no Python functions. And what registers Python functions.
 */
#include "python/extension/call.h"
#include "python/extension/host.h"
#include "python/extension/object_call.h"
#include "python/extension/python_impl.h"
#include "python/extension/tensor.h"
#include "python/extension/view.h"

#include <stddef.h>

/* ------------------------------------------------------------------------------------------------------ registering */

/* A function that is registered in a host. */
typedef struct registered {
  struct registered *next;
  const fl_py_host *host;
  python_impl *impl;
  char *op, *impl_id; /* behind it */
} registered;

static registered *all_registered; /* guarded by the GIL */

static registered *registered_new(const fl_py_host *host, python_impl *impl, const char *op, const char *impl_id) {
  size_t op_size = strlen(op) + 1, id_size = strlen(impl_id) + 1;
  registered *made = PyMem_Malloc(sizeof *made + op_size + id_size);
  if (!made)
    return NULL;
  *made = (registered){all_registered, host, impl, NULL, NULL};
  made->op = memcpy(made + 1, op, op_size);
  made->impl_id = memcpy(made->op + op_size, impl_id, id_size);
  return all_registered = made;
}

/* Frees those of a host, or the one that is named. */
static void registered_free(const fl_py_host *host, const char *op, const char *impl_id) {
  registered *dropped = NULL;
  for (registered **link = &all_registered; *link;) {
    registered *item = *link;
    if (item->host != host || (op && (strcmp(item->op, op) != 0 || strcmp(item->impl_id, impl_id) != 0))) {
      link = &item->next;
      continue;
    }
    *link = item->next;
    item->next = dropped;
    dropped = item;
  }
  while (dropped) { /* what is freed may run code, which finds the list whole */
    registered *next = dropped->next;
    python_impl_free(dropped->impl);
    PyMem_Free(dropped);
    dropped = next;
  }
}

void fl_py_python_impls_free(const fl_py_host *host) {
  registered_free(host, NULL, NULL);
}

static PyObject *none_as_null(PyObject *object) {
  return object == Py_None ? NULL : object;
}

static bool is_open(const fl_py_host *host) {
  if (!host->host)
    fl_py_raise_message(FL_ESTATE, "the host is closed");
  return host->host;
}

/* A tuple of words; None: any. */
static bool devices_of(fl_py_host *host, PyObject *words, uint64_t *devices) {
  if (Py_IsNone(words)) {
    *devices = FL_DEVICE_ANY;
    return true;
  }
  Py_ssize_t n = PyTuple_Size(words);
  for (Py_ssize_t i = 0; i < n; i++) {
    int32_t device = fl_py_device(host, PyTuple_GetItem(words, i));
    if (!device)
      return false;
    *devices |= FL_DEVICE(device);
  }
  return n >= 0;
}

static const char register_doc[] =
    "register_impl(host, op, impl_id, function, kind, vendor, priority, devices, dtypes, is_available, supports_args, "
    "by_values)";

static PyObject *register_impl(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *host_object, *function, *available, *supports, *by_values, *priority;
  fl_impl row = {.size = sizeof row};
  PyObject *devices;
  int kind, dtypes;
  if (!PyArg_ParseTuple(args, "O!ssOizOOiOOO:register_impl", fl_py_host_type, &host_object, &row.op_name, &row.impl_id,
                        &function, &kind, &row.vendor, &priority, &devices, &dtypes, &available, &supports, &by_values))
    return NULL;
  fl_py_host *host = (fl_py_host *)host_object;
  if (!PyCallable_Check(function))
    return fl_py_raise_type("register_impl: %R is no function", function);
  if (!is_open(host) || !devices_of(host, devices, &row.devices))
    return NULL;
  fl_op *op;
  fl_status status = FL_OK;
  FL_PY_WITHOUT_GIL(op = fl_find_op(host->host, row.op_name));
  if (!op) {
    fl_py_ok(fl_error_status());
    return NULL;
  }
  python_impl *impl =
      python_impl_new(op, function, none_as_null(available), none_as_null(supports), none_as_null(by_values));
  if (!impl)
    return NULL;
  if (priority != Py_None) {
    row.priority = (int32_t)PyLong_AsLong(priority);
    row.flags |= row.priority ? 0 : FL_IMPL_PRIORITY_ZERO;
  }
  row.kind = kind;
  row.dtypes = (uint32_t)dtypes;
  python_impl_fill(impl, &row);
  registered *kept = PyErr_Occurred() ? NULL : registered_new(host, impl, row.op_name, row.impl_id);
  if (!kept) {
    python_impl_free(impl);
    return PyErr_Occurred() ? NULL : PyErr_NoMemory();
  }
  FL_PY_WITHOUT_GIL(status = fl_register_impl(host->host, &row));
  if (!fl_py_ok(status)) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    registered **link = &all_registered;
    while (*link != kept)
      link = &(*link)->next;
    *link = kept->next;
    python_impl_free(impl);
    PyMem_Free(kept);
    PyErr_Restore(type, value, traceback);
    return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *withdraw_impl(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *host_object;
  const char *op, *impl_id;
  fl_status status;
  if (!PyArg_ParseTuple(args, "O!ss:withdraw_impl", fl_py_host_type, &host_object, &op, &impl_id))
    return NULL;
  fl_py_host *host = (fl_py_host *)host_object;
  if (!is_open(host))
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_withdraw_impl(host->host, op, impl_id));
  if (!fl_py_ok(status)) /* FL_ESTATE: it may still run, so it is kept */
    return NULL;
  registered_free(host, op, impl_id);
  Py_RETURN_NONE;
}

/* ---------------------------------------------------------------------------------------------------------- calling */

/* _core.Caller */
typedef struct caller {
  PyObject ob_base;
  fl_py_host *host;
  fl_op *op;
  PyObject *policy;  /* gives the Policy in force in this context, or None; called before each call */
  PyObject *adapter; /* (args, kwargs) -> None or (inputs, results, what to return, or what makes it); NULL: none */
  PyObject *failed;  /* (message, last exception) -> the exception to raise */
} caller;

static PyTypeObject *caller_type;

static PyObject *caller_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  PyObject *host, *policy, *adapter, *failed;
  const char *name;
  (void)kwargs;
  if (!PyArg_ParseTuple(args, "O!sOOO:Caller", fl_py_host_type, &host, &name, &policy, &adapter, &failed) ||
      !is_open((fl_py_host *)host))
    return NULL;
  fl_op *op;
  FL_PY_WITHOUT_GIL(op = fl_find_op(((fl_py_host *)host)->host, name));
  if (!op) {
    fl_py_ok(fl_error_status());
    return NULL;
  }
  allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
  caller *self = (caller *)allocate(type, 0);
  if (!self)
    return NULL;
  self->host = (fl_py_host *)Py_NewRef(host);
  self->op = op;
  self->policy = Py_NewRef(policy);
  self->adapter = Py_XNewRef(none_as_null(adapter));
  self->failed = Py_NewRef(failed);
  return (PyObject *)self;
}

static int caller_traverse(PyObject *object, visitproc visit, void *arg) {
  caller *self = (caller *)object;
  Py_VISIT(Py_TYPE(object));
  Py_VISIT((PyObject *)self->host);
  Py_VISIT(self->policy);
  Py_VISIT(self->adapter);
  Py_VISIT(self->failed);
  return 0;
}

static int caller_clear(PyObject *object) {
  caller *self = (caller *)object;
  Py_CLEAR(self->host);
  Py_CLEAR(self->policy);
  Py_CLEAR(self->adapter);
  Py_CLEAR(self->failed);
  return 0;
}

static void caller_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  PyObject_GC_UnTrack(object);
  caller_clear(object);
  freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
  release(object);
  Py_DECREF(type);
}

/* The same call for implementations that take values. */
typedef struct adapted {
  fl_value values[64];
  DLTensor tensors[64];
  fl_py_borrowed borrowed[64];
  uint32_t n;
  PyObject *given, *result; /* owned; borrowed from `given` */
} adapted;

static void adapted_release(adapted *a) {
  for (uint32_t i = 0; i < a->n; i++)
    fl_py_give_back(&a->borrowed[i]);
  Py_CLEAR(a->given);
}

/* `value` of an argument or result; false where it has no C form. */
static bool adapt(adapted *a, PyObject *object, fl_type type, fl_py_stream *stream, const fl_py_place *place) {
  uint32_t i = a->n++;
  fl_value *value = &a->values[i];
  a->borrowed[i] = (fl_py_borrowed){0};
  *value = fl_none();
  if (object == Py_None)
    return true;
  if (type == FL_TENSOR) {
    fl_py_kind *kind = fl_py_kind_of(Py_TYPE(object));
    fl_py_borrowed *borrowed = &a->borrowed[i];
    bool exchanges = kind->route == FL_PY_EXCHANGE;
    if (kind->route == FL_PY_NO_TENSOR ||
        !(exchanges ? fl_py_borrow_exchange(kind->exchange, object, &a->tensors[i], borrowed, place)
                    : fl_py_borrow_capsule(kind, object, stream, borrowed, place)))
      return false;
    *value = fl_tensor(borrowed->tensor);
    return !exchanges || fl_py_ask_stream(stream, kind->exchange, borrowed->tensor->device);
  }
  return fl_py_convert(object, type, value);
}

/* Fills what the adapter gives. False: there is no C form of this call; an exception is then set or not. */
static bool adapt_all(caller *self, PyObject *args, PyObject *kwargs, adapted *a, fl_call *call) {
  PyObject *inputs, *results, *item;
  a->n = 0;
  a->given = PyObject_CallFunctionObjArgs(self->adapter, args, kwargs ? kwargs : Py_None, NULL);
  if (!a->given || a->given == Py_None ||
      !PyArg_ParseTuple(a->given, "O!O!O", &PyTuple_Type, &inputs, &PyTuple_Type, &results, &a->result))
    return false;
  uint32_t n = fl_op_argument_count(self->op), m = fl_op_result_count(self->op);
  fl_py_stream stream = {false, NULL};
  if (PyTuple_Size(inputs) != (Py_ssize_t)n || PyTuple_Size(results) != (Py_ssize_t)m || n + m > 64)
    return false;
  for (uint32_t i = 0; i < n + m; i++) {
    const fl_argument *argument = fl_op_argument(self->op, i);
    const fl_py_place place = {fl_op_name(self->op), i < n ? "argument" : "result", argument->name};
    item = i < n ? PyTuple_GetItem(inputs, (Py_ssize_t)i) : PyTuple_GetItem(results, (Py_ssize_t)(i - n));
    if (!adapt(a, item, argument->type, &stream, &place))
      return false;
  }
  call->count = n + m;
  call->values = a->values;
  call->stream = stream.address;
  return true;
}

/* Raises what becomes of a call that failed: an exception of the function's own where that is the call's failure. */
static void raise_failure(const caller *self, fl_status status, PyObject *exception) {
  const fl_py_host *host = self->host;
  bool strict = false;
  bool passes = exception && (status == FL_EINVAL || !PyErr_GivenExceptionMatches(exception, PyExc_Exception));
  if (exception && !passes) {
    fl_policy *policy = fl_get_policy(host->host);
    strict = policy && fl_policy_get_fields(policy)->strict;
    fl_policy_release(policy);
  }
  if (passes || strict) {
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    return;
  }
  const char *message = fl_error_message();
  PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
  PyObject *number = text ? PyLong_FromLong(status) : NULL;
  PyObject *made =
      number ? PyObject_CallFunctionObjArgs(self->failed, number, text, exception ? exception : Py_None, NULL) : NULL;
  if (made)
    PyErr_SetObject((PyObject *)Py_TYPE(made), made);
  Py_XDECREF(made);
  Py_XDECREF(number);
  Py_XDECREF(text);
}

/* Calls, in a scope if there is a policy; the error is raised in it, too, since that is the policy which was in force.
 */
static PyObject *call_in_scope(caller *self, object_call *objects, fl_call *values, fl_py_policy *policy) {
  fl_scope scope;
  fl_status status = policy ? fl_scope_enter(self->host->host, policy->policy, &scope) : FL_OK;
  bool entered = policy && !status;
  if (!status)
    status = object_call_run(objects, values);
  if (status)
    raise_failure(self, status, objects->exception);
  if (entered)
    fl_scope_leave(&scope);
  if (atomic_load_explicit(&fl_py_lines, memory_order_relaxed))
    fl_py_log_flush();
  Py_CLEAR(objects->exception);
  if (!status)
    return objects->result;
  Py_CLEAR(objects->result);
  return NULL;
}

/* What the adapter said to return; a function: it makes that of the results that are no tensors. */
static PyObject *answer_of(const caller *self, const adapted *a) {
  if (!PyCallable_Check(a->result))
    return Py_NewRef(a->result);
  PyObject *others = PyList_New(0);
  for (uint32_t i = fl_op_argument_count(self->op); others && i < a->n; i++) {
    if (fl_op_argument(self->op, i)->type == FL_TENSOR)
      continue;
    PyObject *other = fl_py_value_object(&a->values[i]);
    if (!other || PyList_Append(others, other))
      Py_CLEAR(others);
    Py_XDECREF(other);
  }
  PyObject *arguments = others ? PyList_AsTuple(others) : NULL;
  PyObject *answer = arguments ? PyObject_Call(a->result, arguments, NULL) : NULL;
  Py_XDECREF(arguments);
  Py_XDECREF(others);
  return answer;
}

static PyObject *call_adapted(caller *self, object_call *objects, fl_py_policy *policy) {
  adapted a;
  fl_call values = {.size = sizeof values};
  bool has_form = adapt_all(self, objects->args, objects->kwargs, &a, &values);
  PyErr_Clear(); /* what has no C form is for Python functions, who say themselves what is wrong with it */
  PyObject *result = call_in_scope(self, objects, has_form ? &values : NULL, policy);
  if (!result && !PyErr_Occurred())
    result = answer_of(self, &a); /* no function of Python's was called: the results are filled */
  adapted_release(&a);
  return result;
}

static PyObject *caller_call(PyObject *object, PyObject *args, PyObject *kwargs) {
  caller *self = (caller *)object;
  object_call objects = {.op = self->op, .args = args, .kwargs = kwargs};
  PyObject *policy = PyObject_CallNoArgs(self->policy);
  if (!policy || !is_open(self->host)) {
    Py_XDECREF(policy);
    return NULL;
  }
  if (policy != Py_None && Py_TYPE(policy) != fl_py_policy_type) {
    fl_py_raise_type("the policy of the context is no flhost Policy");
    Py_DECREF(policy);
    return NULL;
  }
  fl_py_policy *scoped = policy == Py_None ? NULL : (fl_py_policy *)policy;
  PyObject *result = self->adapter ? call_adapted(self, &objects, scoped) : call_in_scope(self, &objects, NULL, scoped);
  Py_DECREF(policy);
  return result;
}

static PyType_Slot caller_slots[] = {
    {Py_tp_doc, "Caller(host, op, policy, adapter, failed): calls an op with Python objects"},
    {Py_tp_new, (void *)caller_new},
    {Py_tp_call, (void *)caller_call},
    {Py_tp_traverse, (void *)caller_traverse},
    {Py_tp_clear, (void *)caller_clear},
    {Py_tp_dealloc, (void *)caller_dealloc},
    {0, NULL},
};
static PyType_Spec caller_spec = {"flhost._core.Caller", sizeof(caller), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                                  caller_slots};

/* ------------------------------------------------------------------------------------------------------- the module */

static PyMethodDef functions[] = {
    {"register_impl", register_impl, METH_VARARGS, register_doc},
    {"withdraw_impl", withdraw_impl, METH_VARARGS, "withdraw_impl(host, op, impl_id)"},
    {0},
};

int fl_py_python_impl_add(PyObject *module) {
  if (python_impl_exec(module) || PyModule_AddFunctions(module, functions))
    return -1;
  PyObject *not_supported = PyObject_GetAttrString(module, "NotSupported");
  PyObject *invalid = PyObject_GetAttrString(module, "InvalidArgument");
  PyErr_Clear();
  python_impl_exceptions(not_supported, invalid);
  Py_XDECREF(not_supported);
  Py_XDECREF(invalid);
  PyObject *type = PyType_FromSpec(&caller_spec);
  if (!type)
    return -1;
  caller_type = (PyTypeObject *)type;
  return PyModule_AddObjectRef(module, "Caller", type);
}
