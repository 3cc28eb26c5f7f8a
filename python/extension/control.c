/*
 * What changes a host: Host's methods that load, register, set, freeze and forget.
 */
#include "python/extension/host.h"
#include "python/extension/strings.h"

#include <flhost/vllm.h>

/* The result of a method that gives none. */
static PyObject *nothing(fl_status status) {
  return fl_py_ok(status) ? Py_NewRef(Py_None) : NULL;
}

/* A method of one name. */
static PyObject *with_name(PyObject *self, PyObject *name, const char *what,
                           fl_status (*change)(fl_host *, const char *)) {
  fl_py_host *host = fl_py_open_host(self);
  const char *word = host ? fl_py_text(name, what) : NULL;
  fl_status status = FL_OK;
  if (!word)
    return NULL;
  FL_PY_WITHOUT_GIL(status = change(host->host, word));
  return nothing(status);
}

/* -------------------------------------------------------------------------------------------------------- plugins */

static PyObject *load_plugin(PyObject *self, PyObject *module) {
  fl_py_host *host = fl_py_open_host(self);
  PyObject *path;
  fl_status status = FL_OK;
  if (!host || !PyUnicode_FSConverter(module, &path))
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_load_plugin(host->host, PyBytes_AsString(path)));
  Py_DECREF(path);
  return nothing(status);
}

static PyObject *withdraw_plugin(PyObject *self, PyObject *plugin) {
  return with_name(self, plugin, "plugin", fl_withdraw_plugin);
}

static PyObject *discover_plugins(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  uint32_t n = 0;
  fl_status status = FL_OK;
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_discover_plugins(host->host, &n));
  return fl_py_ok(status) ? PyLong_FromUnsignedLong(n) : NULL;
}

static PyObject *plugin_directories(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  (void)none;
  const char *const *directories = host ? fl_plugin_directories(host->host) : NULL;
  PyObject *list = directories ? PyList_New(0) : NULL;
  for (; list && *directories; directories++) {
    PyObject *path = PyUnicode_DecodeFSDefault(*directories);
    if (!path || PyList_Append(list, path))
      Py_CLEAR(list);
    Py_XDECREF(path);
  }
  return list;
}

static PyObject *register_op(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"schema", "rules", "category", "doc",   "formula", "cases", "bytes",
                          "flops",  "bench", "layers",   "parts", "ranks",   NULL};
  fl_py_host *host = fl_py_open_host(self);
  fl_op_def op = {.size = sizeof op};
  fl_status status = FL_OK;
  if (!host || !PyArg_ParseTupleAndKeywords(arguments, keywords, "s|$zzzzzzzzzzz:register_op", names, &op.schema,
                                            &op.rules, &op.category, &op.doc, &op.formula, &op.cases, &op.bytes,
                                            &op.flops, &op.bench, &op.layers, &op.parts, &op.ranks))
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_register_op(host->host, &op));
  return nothing(status);
}

/* --------------------------------------------------------------------------------------------------------- policy */

static PyObject *set_global_policy(PyObject *self, PyObject *policy) {
  fl_py_host *host = fl_py_open_host(self);
  fl_status status = FL_OK;
  if (!host)
    return NULL;
  if (Py_TYPE(policy) != fl_py_policy_type)
    return fl_py_raise_type("set_global_policy: %R, expected a Policy", policy);
  FL_PY_WITHOUT_GIL(status = fl_set_global_policy(host->host, ((fl_py_policy *)policy)->policy));
  return nothing(status);
}

static PyObject *reset_global_policy(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  fl_status status = FL_OK;
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_reset_global_policy(host->host));
  return nothing(status);
}

static PyObject *bump_policy_epoch(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  (void)none;
  if (!host)
    return NULL;
  FL_PY_WITHOUT_GIL(fl_bump_policy_epoch(host->host));
  return nothing(FL_OK);
}

static PyObject *set_log_level(PyObject *self, PyObject *level) {
  return with_name(self, level, "level", fl_set_log_level);
}

/* ------------------------------------------------------------------------------------------- freezing, failures */

static PyObject *freeze(PyObject *self, PyObject *who) {
  return with_name(self, who, "who", fl_freeze);
}

static PyObject *thaw(PyObject *self, PyObject *who) {
  return with_name(self, who, "who", fl_thaw);
}

static PyObject *is_frozen(PyObject *self, PyObject *none) {
  fl_py_host *host = fl_py_open_host(self);
  (void)none;
  return host ? PyBool_FromLong(fl_is_frozen(host->host, NULL, 0)) : NULL;
}

static PyObject *warm_up(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"device", NULL};
  fl_py_host *host = fl_py_open_host(self);
  PyObject *word = NULL;
  uint32_t resolved = 0, without = 0;
  int32_t device;
  fl_status status = FL_OK;
  bool done;
  if (!host || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:warm_up", names, &word) ||
      !(device = fl_py_device(host, word)))
    return NULL;
  FL_PY_UNDER_POLICY(host, done, status, status = fl_warm_up(host->host, device, &resolved, &without));
  return done ? Py_BuildValue("(II)", resolved, without) : NULL;
}

static PyObject *clear_failed_impls(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"op", NULL};
  fl_py_host *host = fl_py_open_host(self);
  const char *op = NULL;
  if (!host || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|z:clear_failed_impls", names, &op))
    return NULL;
  FL_PY_WITHOUT_GIL(fl_clear_failed_impls(host->host, op));
  return nothing(FL_OK);
}

static PyObject *enforce_enable(PyObject *self, PyObject *arguments) {
  fl_py_host *host = fl_py_open_host(self);
  const char *name;
  int enforce = 1;
  fl_status status = FL_OK;
  if (!host || !PyArg_ParseTuple(arguments, "s|p:enforce_enable", &name, &enforce))
    return NULL;
  FL_PY_WITHOUT_GIL({
    fl_op *op = fl_find_op(host->host, name);
    status = op ? fl_op_enforce_enable(op, enforce) : fl_error_status();
  });
  return nothing(status);
}

PyMethodDef fl_py_control_methods[] = {
    FL_PY_METHOD(load_plugin, METH_O, "($self, module)", "Loads a plugin, by its path or name."),
    FL_PY_METHOD(withdraw_plugin, METH_O, "($self, plugin)", "Withdraws all that a plugin brought."),
    FL_PY_METHOD(discover_plugins, METH_NOARGS, "($self)", "Looks again for plugins; how many were loaded now."),
    FL_PY_METHOD(plugin_directories, METH_NOARGS, "($self)", "Where plugins are looked for: a list of paths."),
    FL_PY_METHOD_WITH_KEYWORDS(
        register_op,
        "($self, schema, *, rules=None, category=None, doc=None, formula=None, cases=None, bytes=None, "
        "flops=None, bench=None, layers=None, parts=None, ranks=None)",
        "Defines an op: 'my_op(Tensor x, float alpha=1.0) -> Tensor out'."),
    FL_PY_METHOD(set_global_policy, METH_O, "($self, policy)", "In force for every call outside with blocks."),
    FL_PY_METHOD(reset_global_policy, METH_NOARGS, "($self)", "Reads environment and files again."),
    FL_PY_METHOD(bump_policy_epoch, METH_NOARGS, "($self)", "Forgets failures, and everything resolved."),
    FL_PY_METHOD(set_log_level, METH_O, "($self, level)", "Least severe level that is logged: 'DEBUG', 'INFO'…"),
    FL_PY_METHOD(freeze, METH_O, "($self, who)", "Freezes what calls run, until thaw with the same name."),
    FL_PY_METHOD(thaw, METH_O, "($self, who)", "Ends a freeze."),
    FL_PY_METHOD(is_frozen, METH_NOARGS, "($self)", "Is the host frozen?"),
    FL_PY_METHOD_WITH_KEYWORDS(warm_up, "($self, device='cpu')",
                               "Resolves every op: (how many, how many have nothing to run)."),
    FL_PY_METHOD_WITH_KEYWORDS(clear_failed_impls, "($self, op=None)",
                               "Lets what failed be tried again, of one op or all."),
    FL_PY_METHOD(enforce_enable, METH_VARARGS, "($self, op, enforce=True, /)",
                 "Enables an op whatever custom_ops says."),
    {NULL, NULL, 0, NULL},
};
