/*
 * _core.Host: a host of the library. flhost.Host is Python on top of it.
 */
#include "python/extension/host.h"
#include "python/extension/python_impl.h"
#include "python/extension/strings.h"

#include <flhost/vllm.h>
#include <stdlib.h>

PyTypeObject *fl_py_host_type;

fl_py_host *fl_py_open_host(PyObject *self) {
  fl_py_host *host = (fl_py_host *)self;
  if (host->host)
    return host;
  fl_py_raise_message(FL_ESTATE, "the host was not created: Host.__init__ was not called, or failed");
  return NULL;
}

int32_t fl_py_device(fl_py_host *host, PyObject *object) {
  int32_t type = kDLCPU;
  if (!object)
    return type;
  if (Py_IsNone(object))
    return FL_DEVICE_OPAQUE;
  if (PyLong_Check(object) && !PyBool_Check(object)) {
    long number = PyLong_AsLong(object);
    if (number == -1 && PyErr_Occurred())
      PyErr_Clear();
    if (number > 0 && number <= INT32_MAX)
      return (int32_t)number;
    fl_py_raise_value("device: %S, expected a device type such as 'cpu' or DLPack's number of one", object);
    return 0;
  }
  PyObject *words = PyObject_Str(object);
  const char *text = words ? fl_py_text(words, "device") : NULL;
  char word[64] = "";
  if (text)
    snprintf(word, sizeof word, "%.*s", (int)strcspn(text, ":"), text);
  fl_status status = FL_OK;
  if (text)
    FL_PY_WITHOUT_GIL(status = fl_find_device_type(host->host, word, &type));
  bool done = text && fl_py_ok(status);
  Py_XDECREF(words);
  return done ? type : 0;
}

/* ------------------------------------------------------------------------------------------------------ creation */

/* Options and what they point to. */
typedef struct host_options {
  fl_host_options fields;
  PyObject *paths[4]; /* bytes */
  fl_py_strings environment;
} host_options;

enum { CONFIG_FILE, CONFIG_DIR, PLUGIN_PATH, PLUGIN_MODULES };

static void options_end(host_options *options) {
  for (int i = 0; i < 4; i++)
    Py_XDECREF(options->paths[i]);
  fl_py_strings_end(&options->environment);
}

/* A mapping of names to values as NAME=VALUE. */
static bool read_environment(host_options *options, PyObject *mapping) {
  if (!PyMapping_Check(mapping)) {
    fl_py_raise_type("environment: %R, expected a mapping of names to values", mapping);
    return false;
  }
  PyObject *items = PyMapping_Items(mapping);
  Py_ssize_t n = items ? PyList_Size(items) : -1;
  PyObject *words = n >= 0 ? PyTuple_New(n) : NULL;
  for (Py_ssize_t i = 0; words && i < n; i++) {
    PyObject *pair = PyList_GetItem(items, i), *name, *value, *word = NULL;
    if (PyArg_ParseTuple(pair, "OO:environment", &name, &value) && PyUnicode_Check(name) && PyUnicode_Check(value))
      word = PyUnicode_FromFormat("%U=%U", name, value);
    else if (!PyErr_Occurred())
      fl_py_raise_type("environment: %R: %R, expected names and values that are str", name, value);
    if (!word || PyTuple_SetItem(words, i, word))
      Py_CLEAR(words);
  }
  bool done = words && fl_py_strings_begin(&options->environment, words, "environment");
  options->fields.environment = options->environment.items;
  Py_XDECREF(words);
  Py_XDECREF(items);
  return done;
}

static const char *path_text(PyObject *bytes) {
  return bytes ? PyBytes_AsString(bytes) : NULL;
}

static bool options_begin(host_options *options, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"environment",    "config_file", "config_dir", "platform",    "plugin_path",
                          "plugin_modules", "plugins",     "statistics", "synchronous", NULL};
  int plugins = 1, statistics = 0, synchronous = 0;
  PyObject *environment = NULL;
  *options = (host_options){.fields = {.size = sizeof options->fields, .log = fl_py_log}};
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OO&O&zO&O&ppp:Host", names, &environment, fl_py_path,
                                   &options->paths[CONFIG_FILE], fl_py_path, &options->paths[CONFIG_DIR],
                                   &options->fields.platform, fl_py_path, &options->paths[PLUGIN_PATH], fl_py_path,
                                   &options->paths[PLUGIN_MODULES], &plugins, &statistics, &synchronous) ||
      (environment && !Py_IsNone(environment) && !read_environment(options, environment)))
    return false;
  options->fields.config_file = path_text(options->paths[CONFIG_FILE]);
  options->fields.config_dir = path_text(options->paths[CONFIG_DIR]);
  options->fields.plugin_path = path_text(options->paths[PLUGIN_PATH]);
  options->fields.plugin_modules = path_text(options->paths[PLUGIN_MODULES]);
  options->fields.flags = (plugins ? 0 : FL_HOST_NO_PLUGINS) | (statistics ? FL_HOST_STATISTICS : 0) |
                          (synchronous ? FL_HOST_SYNCHRONOUS : 0);
  return true;
}

/* The ContextVar that says the policy of a context, and its method get. */
static bool add_variable(fl_py_host *host) {
  PyObject *contextvars = PyImport_ImportModule("contextvars"), *type = NULL, *name = NULL, *keywords = NULL;
  if (contextvars && (type = PyObject_GetAttrString(contextvars, "ContextVar")) &&
      (name = Py_BuildValue("(s)", "flhost.policy")) && (keywords = Py_BuildValue("{sO}", "default", Py_None)) &&
      (host->variable = PyObject_Call(type, name, keywords)))
    host->get_policy = PyObject_GetAttrString(host->variable, "get");
  Py_XDECREF(keywords);
  Py_XDECREF(name);
  Py_XDECREF(type);
  Py_XDECREF(contextvars);
  return host->get_policy != NULL;
}

static int host_init(PyObject *self, PyObject *arguments, PyObject *keywords) {
  fl_py_host *host = (fl_py_host *)self;
  host_options options;
  fl_host *made = NULL;
  fl_status status = FL_OK;
  if (host->host) {
    fl_py_raise_message(FL_ESTATE, "Host.__init__: this host was created before");
    return -1;
  }
  bool done = options_begin(&options, arguments, keywords) && (host->variable || add_variable(host));
  if (done) {
    FL_PY_WITHOUT_GIL(status = fl_host_create(&options.fields, &made));
    done = fl_py_ok(status);
  }
  options_end(&options);
  host->host = made;
  host->owned = made != NULL;
  return done ? 0 : -1;
}

/* The host that the process shares. Created here its log goes to the module logging; who created it before in C has
 * said where to. */
static PyObject *host_default(PyObject *type, PyObject *arguments, PyObject *keywords) {
  fl_py_host *host = (fl_py_host *)PyType_GenericAlloc((PyTypeObject *)type, 0);
  host_options options = {0};
  fl_status status = FL_OK;
  bool done = host && add_variable(host) && options_begin(&options, arguments, keywords);
  bool may_exist = !keywords || !PyDict_Size(keywords);
  if (done) {
    FL_PY_WITHOUT_GIL({
      status = fl_create_default_host(&options.fields);
      if (!status || (status == FL_EEXIST && may_exist))
        status = (host->host = fl_default_host()) ? FL_OK : fl_error_status();
    });
    done = fl_py_ok(status);
  }
  options_end(&options);
  if (!done)
    Py_CLEAR(host);
  return (PyObject *)host;
}

static int host_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((fl_py_host *)self)->variable);
  Py_VISIT(((fl_py_host *)self)->get_policy);
  return 0;
}

static int host_clear(PyObject *self) {
  (void)self; /* its ops refer to it, and it to none of them: in no cycle it is the one to break */
  return 0;
}

static void host_dealloc(PyObject *self) {
  fl_py_host *host = (fl_py_host *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (host->owned)
    FL_PY_WITHOUT_GIL(fl_host_destroy(host->host));
  fl_py_python_impls_free(host);
  Py_XDECREF(host->get_policy);
  Py_XDECREF(host->variable);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* -------------------------------------------------------------------------------------------------------- contexts */

/* Sets the policy of this context. */
static PyObject *host_enter(PyObject *self, PyObject *policy) {
  fl_py_host *host = fl_py_open_host(self);
  if (host && Py_TYPE(policy) != fl_py_policy_type)
    return fl_py_raise_type("enter: %R, expected a Policy", policy);
  PyObject *token = host ? PyObject_CallMethod(host->variable, "set", "O", policy) : NULL;
  if (token)
    host->entered++;
  return token;
}

static PyObject *host_leave(PyObject *self, PyObject *token) {
  fl_py_host *host = fl_py_open_host(self);
  PyObject *result = host ? PyObject_CallMethod(host->variable, "reset", "O", token) : NULL;
  if (result)
    host->entered--;
  return result;
}

static PyObject *host_get_policy(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  PyObject *policy;
  (void)none;
  if (!host || !fl_py_policy_get(host, &policy))
    return NULL;
  return policy ? policy : fl_py_policy_new(fl_get_policy(host->host));
}

static PyObject *host_op(PyObject *self, PyObject *name) {
  fl_py_host *host = fl_py_open_host(self);
  const char *word = host ? fl_py_text(name, "op") : NULL;
  return word ? fl_py_op_find(host, word) : NULL;
}

static PyObject *host_capsule(PyObject *self, void *none) {
  fl_py_host *host = fl_py_open_host(self);
  (void)none;
  return host ? PyCapsule_New(host->host, "flhost.host", NULL) : NULL;
}

static PyMethodDef own_methods[] = {
    {"default", (PyCFunction)(void (*)(void))host_default, METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "default(**options)\n\nThe host that the process shares. With options it is created, and there must be none yet."},
    {"op", host_op, METH_O, "op(name)\n--\n\nThe op of that name."},
    {"enter", host_enter, METH_O, "enter(policy)\n--\n\nSets the policy of this context; the token is for leave."},
    {"leave", host_leave, METH_O, "leave(token)\n--\n\nSets the policy of this context to what it was."},
    {"get_policy", host_get_policy, METH_NOARGS, "get_policy()\n--\n\nThe policy in force in this context."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"capsule", host_capsule, NULL, "A PyCapsule \"flhost.host\" with the fl_host *, for other extensions in C.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, host_init},
    {Py_tp_dealloc, host_dealloc},
    {Py_tp_traverse, host_traverse},
    {Py_tp_clear, host_clear},
    {Py_tp_getset, attributes},
    {Py_tp_methods, NULL},
    {Py_tp_doc, "A host: a registry of implementations, a policy, and the plugins that were loaded."},
    {0, NULL},
};
static PyType_Spec spec = {"flhost._core.Host", sizeof(fl_py_host), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

/* The methods of all files in one table. */
static PyMethodDef *all_methods(void) {
  const PyMethodDef *const tables[] = {own_methods, fl_py_report_methods, fl_py_control_methods};
  size_t n = 0;
  for (int t = 0; t < 3; t++)
    for (const PyMethodDef *method = tables[t]; method->ml_name; method++)
      n++;
  PyMethodDef *all = calloc(n + 1, sizeof *all), *to = all; /* for as long as the type: the process */
  for (int t = 0; all && t < 3; t++)
    for (const PyMethodDef *method = tables[t]; method->ml_name; method++)
      *to++ = *method;
  return all;
}

int fl_py_host_add(PyObject *module) {
  for (PyType_Slot *slot = slots; slot->slot; slot++)
    if (slot->slot == Py_tp_methods && !(slot->pfunc = all_methods()))
      return PyErr_NoMemory(), -1;
  fl_py_host_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return fl_py_host_type ? PyModule_AddObjectRef(module, "Host", (PyObject *)fl_py_host_type) : -1;
}
