/* Python functions as implementations: see python_impl.h. */
#include "python/extension/python_impl.h"

#include "python/extension/call.h"
#include "python/extension/object_call.h"
#include "python/extension/view.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* The interpreter is ending: no thread may ask for the GIL any more. */
static atomic_bool ended;

/* Of this thread: an exception that no implementation is to be blamed for. */
static _Thread_local PyObject *passing;

/* traceback.format_exception; flhost's own exceptions; made once. */
static PyObject *format_exception, *not_supported, *invalid_argument;

/* ------------------------------------------------------------------------------------------------ exceptions as
 * failures */

/* The exception that was raised, normalised and with its traceback; none is set any more. */
static PyObject *take_exception(void) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback)
    PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return value;
}

bool fl_py_restore_passing(void) {
  PyObject *exception = passing;
  passing = NULL;
  if (!exception)
    return false;
  PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
  Py_DECREF(exception);
  return true;
}

static int raise_pending(void *exception) {
  PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
  Py_DECREF((PyObject *)exception);
  return -1;
}

/* Pending calls are the main thread's; to others Python carries an exception's class alone. */
void fl_py_pass_on(void) {
  PyObject *exception = passing;
  if (!exception)
    return;
  passing = NULL;
  PyGILState_STATE state = PyGILState_Ensure();
  if (getpid() != gettid() || Py_AddPendingCall(raise_pending, exception)) {
    PyThreadState_SetAsyncExc(PyThread_get_thread_ident(), (PyObject *)Py_TYPE(exception));
    Py_DECREF(exception);
  }
  PyGILState_Release(state);
}

/* Text of an object, or what else there is to say of it; new. */
static PyObject *text_of(PyObject *object) {
  PyObject *text = PyObject_Str(object);
  if (text && PyUnicode_GetLength(text) > 0)
    return text;
  PyErr_Clear();
  Py_XDECREF(text);
  return PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
}

/* The traceback as Python prints it; NULL if it cannot be had. */
static PyObject *traceback_of(PyObject *exception) {
  PyObject *traceback = PyException_GetTraceback(exception);
  PyObject *lines = format_exception ? PyObject_CallFunctionObjArgs(format_exception, (PyObject *)Py_TYPE(exception),
                                                                    exception, traceback ? traceback : Py_None, NULL)
                                     : NULL;
  PyObject *empty = lines ? PyUnicode_FromString("") : NULL;
  PyObject *text = empty ? PyUnicode_Join(empty, lines) : NULL;
  Py_XDECREF(empty);
  Py_XDECREF(lines);
  Py_XDECREF(traceback);
  PyErr_Clear();
  return text;
}

/* First what it says, as a line of its own, then where it came from: of a long traceback the end, which says most. */
static void write_message(fl_call *call, PyObject *exception) {
  PyObject *text = text_of(exception), *traceback = traceback_of(exception);
  const char *said = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  Py_ssize_t length = 0;
  const char *where = traceback ? PyUnicode_AsUTF8AndSize(traceback, &length) : NULL;
  if (call->message && call->message_size && said) {
    size_t used = (size_t)snprintf(call->message, call->message_size, "%s", said);
    size_t room = used + 1 < call->message_size ? call->message_size - used - 1 : 0;
    if (where && room > 1) {
      const char *from = (size_t)length < room ? where : where + length - (room - 1);
      while ((*from & 0xc0) == 0x80) /* the middle of a character */
        from++;
      snprintf(call->message + used, room + 1, "\n%s", from);
      size_t end = strlen(call->message);
      while (end && call->message[end - 1] == '\n')
        call->message[--end] = 0;
    }
  }
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(traceback);
}

static bool is_a(PyObject *exception, PyObject *class) {
  return class && PyErr_GivenExceptionMatches(exception, class);
}

static bool is_out_of_memory(PyObject *exception) {
  PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(exception), "__name__");
  bool named = name && !PyUnicode_CompareWithASCIIString(name, "OutOfMemoryError"); /* torch's */
  Py_XDECREF(name);
  PyErr_Clear();
  return named || is_a(exception, PyExc_MemoryError);
}

/* Python refused to enter the function at all: it has not such arguments. */
static bool is_not_entered(PyObject *exception) {
  PyObject *traceback = PyException_GetTraceback(exception);
  Py_XDECREF(traceback);
  return !traceback && is_a(exception, PyExc_TypeError);
}

/* What an exception means. `by_objects`: the function was called with the caller's own arguments. */
static fl_status status_of(PyObject *exception, bool by_objects) {
  if (is_a(exception, PyExc_NotImplementedError) || is_a(exception, not_supported))
    return FL_ENOTSUP;
  if (is_a(exception, invalid_argument) || (by_objects && is_not_entered(exception)))
    return FL_EINVAL;
  return is_out_of_memory(exception) ? FL_ENOMEM : FL_EINTERNAL;
}

/* The exception that was raised is the call's failure. It stays with the object call, or passes through this thread. */
static fl_status fail(fl_call *call, object_call *objects) {
  PyObject *exception = take_exception();
  bool passes = !is_a(exception, PyExc_Exception);
  fl_status status = passes ? FL_EINVAL : status_of(exception, objects != NULL);
  write_message(call, exception);
  PyObject **place = objects ? &objects->exception : passes ? &passing : NULL;
  if (place) {
    PyObject *before = *place;
    *place = exception;
    Py_XDECREF(before);
  } else {
    Py_DECREF(exception);
  }
  return status;
}

/* ------------------------------------------------------------------------------------------------------- by objects */

static fl_status run_with_objects(python_impl *impl, object_call *objects, fl_call *call) {
  fl_status status = FL_OK;
  PyEval_RestoreThread(objects->state);
  object_call_suspend();
  PyObject *result = PyObject_Call(impl->function, objects->args, objects->kwargs);
  object_call_resume(objects);
  if (!result)
    status = fail(call, objects);
  else
    Py_CLEAR(objects->exception);
  PyObject *before = objects->result;
  objects->result = result;
  Py_XDECREF(before);
  objects->state = PyEval_SaveThread();
  return status;
}

/* -------------------------------------------------------------------------------------------------------- by values */

/* `views` gets what has to be let go of when the call is over. */
static PyObject *object_of(const fl_value *value, PyObject *views) {
  if (value->type != FL_TENSOR)
    return fl_py_value_object(value);
  PyObject *view = view_new(value->v.tensor);
  if (view && PyList_Append(views, view))
    Py_CLEAR(view);
  return view;
}

static PyObject *objects_of(const fl_value *values, uint32_t n, PyObject *views) {
  PyObject *tuple = PyTuple_New(n);
  for (uint32_t i = 0; tuple && i < n; i++) {
    PyObject *object = object_of(&values[i], views);
    if (!object || PyTuple_SetItem(tuple, i, object))
      Py_CLEAR(tuple);
  }
  return tuple;
}

/* A result that is no tensor. A string lives as long as the function's `strings`, where it is kept. */
static int store(fl_value *value, fl_type type, PyObject *given, PyObject *function) {
  if (given == Py_None) {
    *value = fl_none();
    return 0;
  }
  if (type == FL_STRING) {
    PyObject *interned = Py_NewRef(given);
    PyUnicode_InternInPlace(&interned);
    const char *text = PyUnicode_AsUTF8AndSize(interned, NULL);
    PyObject *kept = text ? PyObject_GetAttrString(function, "strings") : NULL;
    int failed = kept ? PyDict_SetItem(kept, interned, interned) : -1;
    Py_XDECREF(kept);
    if (!failed)
      *value = fl_string(text);
    Py_DECREF(interned);
    return failed;
  }
  return fl_py_convert(given, type, value) ? 0 : -1;
}

/* Those results that are no tensors, in order. */
static int store_results(const python_impl *impl, fl_call *call, uint32_t n_arguments, PyObject *given) {
  Py_ssize_t next = 0;
  for (uint32_t i = n_arguments; i < call->count; i++) {
    const fl_argument *result = fl_op_argument(impl->op, i);
    if (result->type == FL_TENSOR)
      continue;
    PyObject *item = PyTuple_GetItem(given, next++);
    if (!item || store(&call->values[i], result->type, item, impl->by_values))
      return -1;
  }
  return 0;
}

static fl_status run_with_values(python_impl *impl, fl_call *call) {
  if (!impl->by_values)
    return fl_fail(call, FL_ENOTSUP, "it takes Python objects, and this call has none");
  if (atomic_load(&ended))
    return fl_fail(call, FL_ENOTSUP, "the Python interpreter that it belongs to has ended");
  uint32_t n = fl_op_argument_count(impl->op);
  PyGILState_STATE state = PyGILState_Ensure();
  object_call *suspended = object_call_suspend();
  PyObject *views = PyList_New(0);
  PyObject *arguments = views ? objects_of(call->values, n, views) : NULL;
  PyObject *results = arguments ? objects_of(call->values + n, call->count - n, views) : NULL;
  PyObject *given = results ? PyObject_CallFunctionObjArgs(impl->by_values, arguments, results, NULL) : NULL;
  fl_status status = given && !store_results(impl, call, n, given) ? FL_OK : fail(call, NULL);
  if (views)
    views_close(views);
  Py_XDECREF(given);
  Py_XDECREF(results);
  Py_XDECREF(arguments);
  Py_XDECREF(views);
  object_call_resume(suspended);
  PyGILState_Release(state);
  return status;
}

/* ---------------------------------------------------------------------------------------------- what the host calls */

static fl_status run(void *self, fl_call *call) {
  python_impl *impl = self;
  object_call *objects = object_call_of(impl->op);
  return objects ? run_with_objects(impl, objects, call) : run_with_values(impl, call);
}

/* The answer of a predicate of Python's; an exception is a no, with its words. */
static bool answer(PyObject *given, const char **reason, const char *otherwise) {
  int yes = given ? PyObject_IsTrue(given) : -1;
  Py_XDECREF(given);
  if (yes > 0)
    return true;
  if (!yes)
    return fl_reason(reason, "%s", otherwise);
  PyObject *exception = take_exception();
  PyObject *text = text_of(exception);
  const char *said = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
  PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(exception), "__name__");
  const char *class = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
  fl_reason(reason, "%s: %s", class ? class : "exception", said ? said : "");
  PyErr_Clear();
  Py_XDECREF(name);
  Py_XDECREF(text);
  Py_DECREF(exception);
  return false;
}

static bool is_available(void *self, const char **reason) {
  const python_impl *impl = self;
  if (atomic_load(&ended))
    return fl_reason(reason, "the Python interpreter that it belongs to has ended");
  PyGILState_STATE state = PyGILState_Ensure();
  object_call *suspended = object_call_suspend();
  bool yes = answer(PyObject_CallNoArgs(impl->is_available), reason, "its is_available says no");
  object_call_resume(suspended);
  PyGILState_Release(state);
  return yes;
}

/* Its predicate, with the caller's objects or with views. */
static bool ask(const python_impl *impl, object_call *objects, const fl_call *call, const char **reason) {
  if (objects)
    return answer(PyObject_Call(impl->supports_args, objects->args, objects->kwargs), reason,
                  "its supports_args says no");
  PyObject *views = PyList_New(0);
  PyObject *arguments = views ? objects_of(call->values, fl_op_argument_count(impl->op), views) : NULL;
  bool yes = answer(arguments ? PyObject_Call(impl->supports_args, arguments, NULL) : NULL, reason,
                    "its supports_args says no");
  if (views)
    views_close(views);
  Py_XDECREF(arguments);
  Py_XDECREF(views);
  return yes;
}

static bool supports_args(void *self, const fl_call *call, const char **reason) {
  const python_impl *impl = self;
  object_call *objects = object_call_of(impl->op);
  if (!objects && !impl->by_values)
    return fl_reason(reason, "it takes Python objects, and this call has none");
  if (atomic_load(&ended))
    return fl_reason(reason, "the Python interpreter that it belongs to has ended");
  PyGILState_STATE state = PyGILState_Ensure();
  object_call_suspend();
  bool yes = ask(impl, objects, call, reason);
  object_call_resume(objects);
  PyGILState_Release(state);
  return yes;
}

/* ------------------------------------------------------------------------------------------------------ registering */

python_impl *python_impl_new(fl_op *op, PyObject *function, PyObject *available, PyObject *supports,
                             PyObject *by_values) {
  python_impl *impl = PyMem_Calloc(1, sizeof *impl);
  if (!impl) {
    PyErr_NoMemory();
    return NULL;
  }
  impl->op = op;
  impl->function = Py_NewRef(function);
  impl->is_available = Py_XNewRef(available);
  impl->supports_args = Py_XNewRef(supports);
  impl->by_values = Py_XNewRef(by_values);
  return impl;
}

void python_impl_free(python_impl *impl) {
  Py_XDECREF(impl->function);
  Py_XDECREF(impl->is_available);
  Py_XDECREF(impl->supports_args);
  Py_XDECREF(impl->by_values);
  PyMem_Free(impl);
}

void python_impl_fill(python_impl *impl, fl_impl *row) {
  row->flags |= FL_IMPL_OPAQUE;
  row->fn = run;
  row->self = impl;
  row->is_available = impl->is_available ? is_available : NULL;
  row->supports_args = impl->supports_args ? supports_args : NULL;
}

/* ------------------------------------------------------------------------------------------------------- the module */

static PyObject *interpreter_ends(PyObject *self, PyObject *none) {
  (void)self, (void)none;
  atomic_store(&ended, true);
  return Py_NewRef(Py_None);
}

static PyMethodDef ending = {"_interpreter_ends", interpreter_ends, METH_NOARGS, "Called when the interpreter ends."};

/* As PyImport_ImportModule and PyObject_GetAttrString; NULL with an exception. */
static PyObject *from_module(const char *module, const char *name) {
  PyObject *imported = PyImport_ImportModule(module);
  PyObject *found = imported ? PyObject_GetAttrString(imported, name) : NULL;
  Py_XDECREF(imported);
  return found;
}

static int register_ending(void) {
  PyObject *function = PyCFunction_New(&ending, NULL);
  PyObject *registrar = function ? from_module("atexit", "register") : NULL;
  PyObject *done = registrar ? PyObject_CallFunctionObjArgs(registrar, function, NULL) : NULL;
  Py_XDECREF(done);
  Py_XDECREF(registrar);
  Py_XDECREF(function);
  return done ? 0 : -1;
}

int python_impl_exec(PyObject *module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError, "flhost works in the main interpreter alone: its functions are called from any "
                                       "thread, and threads find no subinterpreter");
    return -1;
  }
  atomic_store(&ended, false);
  if (!format_exception && !(format_exception = from_module("traceback", "format_exception")))
    return -1;
  return register_ending() || view_exec(module) ? -1 : 0;
}

void python_impl_exceptions(PyObject *not_supported_class, PyObject *invalid_argument_class) {
  Py_XDECREF(not_supported);
  Py_XDECREF(invalid_argument);
  not_supported = Py_XNewRef(not_supported_class);
  invalid_argument = Py_XNewRef(invalid_argument_class);
}
