/*
 * _core.Policy, immutable, and the policy of a context: a with block of flhost.prefer() and its like. The library's
 * scopes belong to a thread, and several tasks of asyncio share one. So the policy lies in a ContextVar of the host,
 * and each call that is made where one is set runs in a scope of its own.
 */
#include "python/extension/strings.h"

#include <stdlib.h>

PyTypeObject *fl_py_policy_type;

/* Takes a count of the policy over; NULL gives NULL. */
PyObject *fl_py_policy_new(fl_policy *policy) {
  fl_py_policy *made = policy ? (fl_py_policy *)PyType_GenericAlloc(fl_py_policy_type, 0) : NULL;
  if (made)
    made->policy = policy;
  else
    fl_policy_release(policy);
  return (PyObject *)made;
}

bool fl_py_policy_look(fl_py_host *host, PyObject **policy) {
  PyObject *found = PyObject_CallNoArgs(host->get_policy);
  bool is_policy = found && Py_TYPE(found) == fl_py_policy_type;
  if (found && !is_policy && !Py_IsNone(found))
    PyErr_SetString(PyExc_TypeError, "flhost: the context has something else than a policy");
  if (!is_policy)
    Py_CLEAR(found);
  *policy = found;
  return !PyErr_Occurred();
}

/* --------------------------------------------------------------------------------------------------------- making */

/* The tokens of each op. */
typedef struct orders {
  uint32_t n;
  fl_op_order *items;
  fl_py_strings *tokens;
  PyObject *pairs; /* list of (op, tokens): what the texts belong to */
} orders;

static void orders_end(orders *all) {
  for (uint32_t i = 0; all->tokens && i < all->n; i++)
    fl_py_strings_end(&all->tokens[i]);
  free(all->tokens);
  free(all->items);
  Py_XDECREF(all->pairs);
}

static bool orders_begin(orders *all, PyObject *mapping) {
  *all = (orders){0};
  if (!mapping)
    return true;
  if (!PyMapping_Check(mapping)) {
    fl_py_raise_type("per_op: %R, expected a mapping of ops to lists of tokens", mapping);
    return false;
  }
  all->pairs = PyMapping_Items(mapping);
  Py_ssize_t n = all->pairs ? PyList_Size(all->pairs) : -1;
  if (n < 0)
    return false;
  all->items = calloc((size_t)n + 1, sizeof *all->items);
  all->tokens = calloc((size_t)n + 1, sizeof *all->tokens);
  all->n = (uint32_t)n;
  if (!all->items || !all->tokens)
    return PyErr_NoMemory() != NULL;
  for (uint32_t i = 0; i < all->n; i++) {
    PyObject *pair = PyList_GetItem(all->pairs, i), *op, *tokens;
    if (!pair || !PyArg_ParseTuple(pair, "OO", &op, &tokens) ||
        !(all->items[i].op = fl_py_text(op, "per_op: name of an op")) ||
        !fl_py_strings_begin(&all->tokens[i], tokens, "per_op: tokens of an op"))
      return false;
    all->items[i].tokens = all->tokens[i].items;
    all->items[i].n_tokens = all->tokens[i].n;
  }
  return true;
}

static PyObject *given(PyObject *object) {
  return object && !Py_IsNone(object) ? object : NULL;
}

static PyObject *policy_make(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"prefer", "strict",       "preserve_inputs", "host_fallback",
                          "per_op", "deny_vendors", "allow_vendors",   NULL};
  fl_policy_fields fields = {.size = sizeof fields, .per_op_size = sizeof(fl_op_order)};
  PyObject *per_op = NULL, *deny = NULL, *allow = NULL;
  int strict = 0, preserve = 0, fallback = 0;
  fl_py_strings denied = {0}, allowed = {0};
  orders all = {0};
  fl_policy *policy = NULL;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$zpppOOO:Policy", names, &fields.prefer, &strict, &preserve,
                                   &fallback, &per_op, &deny, &allow))
    return NULL;
  fields.strict = strict;
  fields.preserve_inputs = preserve;
  fields.host_fallback = fallback;
  bool done = orders_begin(&all, given(per_op)) &&
              (!given(deny) || fl_py_strings_begin(&denied, deny, "deny_vendors")) &&
              (!given(allow) || fl_py_strings_begin(&allowed, allow, "allow_vendors"));
  fields.per_op = all.items;
  fields.n_per_op = all.n;
  fields.deny_vendors = denied.items;
  fields.n_deny_vendors = denied.n;
  fields.allow_vendors = allowed.items;
  fields.n_allow_vendors = allowed.n;
  if (done)
    fl_py_ok(fl_policy_create(&fields, &policy));
  orders_end(&all);
  fl_py_strings_end(&denied);
  fl_py_strings_end(&allowed);
  return fl_py_policy_new(policy);
}

static PyObject *policy_from_config(PyObject *type, PyObject *file) {
  PyObject *path;
  fl_policy *policy = NULL;
  fl_status status;
  (void)type;
  if (!PyUnicode_FSConverter(file, &path))
    return NULL;
  FL_PY_WITHOUT_GIL(status = fl_policy_from_config(PyBytes_AsString(path), &policy));
  Py_DECREF(path);
  return fl_py_ok(status) ? fl_py_policy_new(policy) : NULL;
}

/* -------------------------------------------------------------------------------------------------------- derived */

static PyObject *policy_with_strict(PyObject *self, PyObject *strict) {
  fl_policy *policy = NULL;
  int truth = PyObject_IsTrue(strict);
  return truth >= 0 && fl_py_ok(fl_policy_with_strict(((fl_py_policy *)self)->policy, truth, &policy))
             ? fl_py_policy_new(policy)
             : NULL;
}

static PyObject *policy_with_preference(PyObject *self, PyObject *prefer) {
  fl_policy *policy = NULL;
  const char *word = fl_py_text(prefer, "prefer");
  return word && fl_py_ok(fl_policy_with_preference(((fl_py_policy *)self)->policy, word, &policy))
             ? fl_py_policy_new(policy)
             : NULL;
}

static PyObject *with_vendors(PyObject *self, PyObject *vendors,
                              fl_status (*derive)(const fl_policy *, const char *const *, uint32_t, fl_policy **)) {
  fl_policy *policy = NULL;
  fl_py_strings names;
  if (fl_py_strings_begin(&names, vendors, "vendors"))
    fl_py_ok(derive(((fl_py_policy *)self)->policy, names.items, names.n, &policy));
  fl_py_strings_end(&names);
  return fl_py_policy_new(policy);
}

static PyObject *policy_with_allowed(PyObject *self, PyObject *vendors) {
  return with_vendors(self, vendors, fl_policy_with_allowed_vendors);
}

static PyObject *policy_with_denied(PyObject *self, PyObject *vendors) {
  return with_vendors(self, vendors, fl_policy_with_denied_vendors);
}

static PyObject *policy_with_order(PyObject *self, PyObject *arguments) {
  fl_policy *policy = NULL;
  fl_py_strings words = {0};
  const char *op;
  PyObject *tokens;
  if (PyArg_ParseTuple(arguments, "sO:with_op_order", &op, &tokens) && fl_py_strings_begin(&words, tokens, "tokens"))
    fl_py_ok(fl_policy_with_op_order(((fl_py_policy *)self)->policy, op, words.items, words.n, &policy));
  fl_py_strings_end(&words);
  return fl_py_policy_new(policy);
}

/* ----------------------------------------------------------------------------------------------------- attributes */

static PyObject *list_of(const char *const *words, uint32_t n) {
  PyObject *list = PyList_New(n);
  for (uint32_t i = 0; list && i < n; i++) {
    PyObject *word = PyUnicode_FromString(words[i]);
    if (!word || PyList_SetItem(list, i, word))
      Py_CLEAR(list);
  }
  return list;
}

static PyObject *per_op_of(const fl_policy_fields *fields) {
  PyObject *all = PyDict_New();
  for (uint32_t i = 0; all && i < fields->n_per_op; i++) {
    const fl_op_order *order = fl_order_at(fields, i);
    PyObject *tokens = list_of(order->tokens, order->n_tokens);
    if (!tokens || PyDict_SetItemString(all, order->op, tokens))
      Py_CLEAR(all);
    Py_XDECREF(tokens);
  }
  return all;
}

static PyObject *policy_fields(PyObject *self, void *none) {
  const fl_policy_fields *fields = fl_policy_get_fields(((fl_py_policy *)self)->policy);
  (void)none;
  PyObject *per_op = per_op_of(fields), *deny = list_of(fields->deny_vendors, fields->n_deny_vendors);
  PyObject *allow =
      fields->allow_vendors ? list_of(fields->allow_vendors, fields->n_allow_vendors) : Py_NewRef(Py_None);
  PyObject *dict = per_op && deny && allow
                       ? Py_BuildValue("{sssOsOsOsOsOsO}", "prefer", fields->prefer ? fields->prefer : "flagos",
                                       "strict", fields->strict ? Py_True : Py_False, "preserve_inputs",
                                       fields->preserve_inputs ? Py_True : Py_False, "host_fallback",
                                       fields->host_fallback ? Py_True : Py_False, "per_op", per_op, "deny_vendors",
                                       deny, "allow_vendors", allow)
                       : NULL;
  Py_XDECREF(per_op);
  Py_XDECREF(deny);
  Py_XDECREF(allow);
  return dict;
}

static PyObject *policy_fingerprint(PyObject *self, void *none) {
  (void)none;
  return PyUnicode_FromString(fl_policy_fingerprint(((fl_py_policy *)self)->policy));
}

static PyObject *policy_repr(PyObject *self) {
  return PyUnicode_FromFormat("<flhost.Policy %s>", fl_policy_fingerprint(((fl_py_policy *)self)->policy));
}

static PyObject *policy_compare(PyObject *self, PyObject *other, int operation) {
  if (Py_TYPE(other) != fl_py_policy_type || (operation != Py_EQ && operation != Py_NE))
    return Py_NewRef(Py_NotImplemented);
  bool equal = fl_policy_equal(((fl_py_policy *)self)->policy, ((fl_py_policy *)other)->policy);
  return PyBool_FromLong(equal == (operation == Py_EQ));
}

/* Equal policies have equal fingerprints. */
static Py_hash_t policy_hash(PyObject *self) {
  PyObject *text = policy_fingerprint(self, NULL);
  Py_hash_t hash = text ? PyObject_Hash(text) : -1;
  Py_XDECREF(text);
  return hash;
}

static void policy_dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  fl_policy_release(((fl_py_policy *)self)->policy);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"from_config", policy_from_config, METH_O | METH_STATIC,
     "from_config(path)\n\nThe policy of a YAML file, of the form that VLLM_FL_CONFIG takes."},
    {"with_strict", policy_with_strict, METH_O, "with_strict(strict)\n\nThis policy, but strict or not."},
    {"with_preference", policy_with_preference, METH_O,
     "with_preference(prefer)\n\nThis policy, but with 'flagos', 'vendor' or 'reference' first."},
    {"with_allowed_vendors", policy_with_allowed, METH_O,
     "with_allowed_vendors(vendors)\n\nThis policy, but with these vendors alone; none lifts the restriction."},
    {"with_denied_vendors", policy_with_denied, METH_O,
     "with_denied_vendors(vendors)\n\nThis policy, without these vendors, too."},
    {"with_op_order", policy_with_order, METH_VARARGS,
     "with_op_order(op, tokens)\n\nThis policy, but with the order of one op; no tokens take it away."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef attributes[] = {
    {"fields", policy_fields, NULL, "What it is made of: a dict.", NULL},
    {"fingerprint", policy_fingerprint, NULL, "It as text.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, policy_make},
    {Py_tp_dealloc, policy_dealloc},
    {Py_tp_repr, policy_repr},
    {Py_tp_hash, policy_hash},
    {Py_tp_richcompare, policy_compare},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {Py_tp_doc, "Policy(*, prefer=None, strict=False, preserve_inputs=False, host_fallback=False, per_op=None, "
                "deny_vendors=None, allow_vendors=None)\n--\n\n"
                "Which implementations may run, in which order. Immutable.\n\n"
                "per_op has a list of tokens for an op: flagos, vendor, vendor:NAME, reference, impl:ID."},
    {0, NULL},
};
static PyType_Spec spec = {"flhost._core.Policy", sizeof(fl_py_policy), 0, Py_TPFLAGS_DEFAULT, slots};

int fl_py_policy_add(PyObject *module) {
  fl_py_policy_type = (PyTypeObject *)PyType_FromSpec(&spec);
  return fl_py_policy_type ? PyModule_AddObjectRef(module, "Policy", (PyObject *)fl_py_policy_type) : -1;
}
