/*
 * The exceptions: one for each fl_status, all of them flhost.Error, with the library's message. Where Python has an
 * exception of its own for it, ours is one of those, too.
 */
#include "python/extension/core.h"

#include <stdarg.h>

static const struct {
  fl_status status;
  const char *name, *c_name;
  PyObject **also; /* NULL: nothing */
  const char *doc;
} kinds[] = {
    {FL_EINVAL, "InvalidArgument", "FL_EINVAL", &PyExc_ValueError, "An argument is wrong, and which."},
    {FL_ENOTSUP, "NotSupported", "FL_ENOTSUP", NULL, "No implementation supports these arguments."},
    {FL_ENOMEM, "OutOfMemory", "FL_ENOMEM", &PyExc_MemoryError, "The host or a device is out of memory."},
    {FL_EDEVICE, "DeviceError", "FL_EDEVICE", NULL, "A device or its driver failed."},
    {FL_EINTERNAL, "InternalError", "FL_EINTERNAL", NULL, "An implementation failed, or the host itself."},
    {FL_ENOIMPL, "NoImplementation", "FL_ENOIMPL", NULL,
     "No implementation is registered, allowed, available or left: each is listed, and why not."},
    {FL_ECONFIG, "ConfigError", "FL_ECONFIG", NULL, "A setting is invalid: which, and where it comes from."},
    {FL_EPLUGIN, "PluginError", "FL_EPLUGIN", NULL, "A plugin cannot be used, and why."},
    {FL_EEXIST, "AlreadyExists", "FL_EEXIST", NULL, "There is one of that name already."},
    {FL_ENOENT, "NotFound", "FL_ENOENT", &PyExc_LookupError, "There is none of that name; the nearest is named."},
    {FL_ESTATE, "StateError", "FL_ESTATE", NULL, "Not in the present state, such as that of a frozen host."},
};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static PyObject *base, *wrong_type, *classes[N_KINDS];

/* A class flhost.NAME, added to the module. A borrowed reference: the module's, which is never unloaded. */
static PyObject *add(PyObject *module, const char *name, const char *doc, PyObject *bases, int status,
                     const char *status_name) {
  char full_name[64];
  snprintf(full_name, sizeof full_name, "flhost.%s", name);
  PyObject *made = PyErr_NewExceptionWithDoc(full_name, doc, bases, NULL);
  PyObject *number = made ? PyLong_FromLong(status) : NULL;
  PyObject *word = number ? PyUnicode_FromString(status_name) : NULL;
  bool done = word && !PyObject_SetAttrString(made, "status", number) &&
              !PyObject_SetAttrString(made, "status_name", word) && !PyModule_AddObjectRef(module, name, made);
  Py_XDECREF(number);
  Py_XDECREF(word);
  if (!done)
    Py_CLEAR(made);
  return made;
}

int fl_py_errors_add(PyObject *module) {
  base = add(module, "Error",
             "What flhost raises: a subclass for each status of the library, whose message this is.\n\n"
             "status and status_name are the library's number and name of it: 1, 'FL_EINVAL'.",
             NULL, 0, "");
  for (int i = 0; base && i < N_KINDS; i++) {
    PyObject *bases = kinds[i].also ? PyTuple_Pack(2, base, *kinds[i].also) : PyTuple_Pack(1, base);
    classes[i] = bases ? add(module, kinds[i].name, kinds[i].doc, bases, kinds[i].status, kinds[i].c_name) : NULL;
    Py_XDECREF(bases);
    if (!classes[i])
      return -1;
  }
  PyObject *bases = base ? PyTuple_Pack(2, classes[0], PyExc_TypeError) : NULL;
  wrong_type = bases ? add(module, "WrongType",
                           "An argument is of the wrong type, there are too many, one is missing or unknown: an "
                           "InvalidArgument and a TypeError.",
                           bases, FL_EINVAL, "FL_EINVAL")
                     : NULL;
  Py_XDECREF(bases);
  return wrong_type ? 0 : -1;
}

static PyObject *class_of(fl_status status) {
  for (int i = 0; i < N_KINDS; i++)
    if (kinds[i].status == status)
      return classes[i];
  return base;
}

PyObject *fl_py_raise_message(fl_status status, const char *message) {
  PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
  if (text)
    PyErr_SetObject(class_of(status), text);
  Py_XDECREF(text);
  return NULL;
}

PyObject *fl_py_raise(fl_status status) {
  return fl_py_raise_message(status, fl_error_message());
}

bool fl_py_end(fl_status status) {
  if (status)
    fl_py_raise(status);
  fl_py_log_flush();
  return !status;
}

PyObject *fl_py_raise_value(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyErr_FormatV(classes[0], format, arguments);
  va_end(arguments);
  return NULL;
}

PyObject *fl_py_raise_type(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyErr_FormatV(wrong_type, format, arguments);
  va_end(arguments);
  return NULL;
}

PyObject *fl_py_type_name(PyObject *object) {
  PyObject *type = (PyObject *)Py_TYPE(object);
  PyObject *name = PyObject_GetAttrString(type, "__qualname__");
  PyObject *module = name ? PyObject_GetAttrString(type, "__module__") : NULL;
  PyObject *full = NULL;
  if (module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "builtins"))
    full = PyUnicode_FromFormat("%U.%S", module, name);
  else if (name)
    full = PyObject_Str(name);
  Py_XDECREF(module);
  Py_XDECREF(name);
  return full;
}
