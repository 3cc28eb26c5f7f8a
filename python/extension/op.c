/*
 * _core.Op: an op of a host: what its entry says, as plain values, and its call as a function with a signature and a
 * docstring that are made of the entry, too.
 */
#include "python/extension/prepared.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

PyTypeObject *fl_py_op_type;

static const char *const type_words[] = {
    [FL_TENSOR] = "tensor", [FL_INT] = "int",    [FL_FLOAT] = "float",
    [FL_BOOL] = "bool",     [FL_STRING] = "str", [FL_INT_LIST] = "sequence of ints",
};
static const char *const type_names[] = {
    [FL_TENSOR] = "Tensor", [FL_INT] = "int",    [FL_FLOAT] = "float",
    [FL_BOOL] = "bool",     [FL_STRING] = "str", [FL_INT_LIST] = "int[]",
};

/* ------------------------------------------------------------------------------------------------- docstring */

/* As Python writes it. */
static bool write_value(FILE *text, const fl_value *value) {
  PyObject *object = fl_py_value_object(value);
  PyObject *written = object ? PyObject_Repr(object) : NULL;
  const char *words = written ? PyUnicode_AsUTF8AndSize(written, NULL) : NULL;
  bool infinite = value->type == FL_FLOAT && isinf(value->v.f);
  if (infinite)
    words = value->v.f < 0 ? "-1e999" : "1e999"; /* what can be read again */
  if (words)
    fputs(words, text);
  Py_XDECREF(written);
  Py_XDECREF(object);
  return words != NULL;
}

/* The clause of the rules about a name: what stands behind "name:"; its length, 0 if there is none. */
static const char *clause_of(const char *rules, const char *name, int *length) {
  size_t n = strlen(name);
  while (*rules) {
    rules += strspn(rules, " ;");
    size_t whole = strcspn(rules, ";");
    if (whole > n && !strncmp(rules, name, n) && rules[n] == ':') {
      const char *clause = rules + n + 1 + strspn(rules + n + 1, " ");
      *length = (int)(rules + whole - clause);
      return clause;
    }
    rules += whole;
  }
  *length = 0;
  return "";
}

/* Clauses of the rules that are about no tensor: "T = float32|float16". */
static void write_where(FILE *text, const char *rules) {
  while (*rules) {
    rules += strspn(rules, " ;");
    int whole = (int)strcspn(rules, ";");
    if (memchr(rules, '=', (size_t)whole) && !memchr(rules, ':', (size_t)whole))
      fprintf(text, "    %.*s\n", whole, rules);
    rules += whole;
  }
}

static bool write_signature(FILE *text, const fl_py_op *op) {
  fprintf(text, "%s(", op->op_name);
  for (uint32_t i = 0; i < op->n_arguments; i++) {
    fprintf(text, "%s%s", i ? ", " : "", op->values[i].schema->name);
    if (op->values[i].schema->has_default && (fputc('=', text), !write_value(text, &op->defaults[i])))
      return false;
  }
  fprintf(text, "%s*, out=None, stream=None, prepared=None)\n--\n\n", op->n_arguments ? ", " : "");
  return true;
}

static bool write_argument(FILE *text, const fl_py_op *op, uint32_t i) {
  const fl_argument *schema = op->values[i].schema;
  int length;
  const char *clause = clause_of(fl_op_rules(op->op), schema->name, &length);
  fprintf(text, "    %s: %s%s%.*s%s", schema->name, type_words[schema->type], length ? " " : "", length, clause,
          schema->optional ? ", or None" : "");
  if (i < op->n_arguments && schema->has_default && (fputs("; default ", text), !write_value(text, &op->defaults[i])))
    return false;
  if (i < op->n_arguments && op->values[i].written)
    fputs("; a state: overwritten", text);
  if (i >= op->n_arguments && schema->alias >= 0)
    fprintf(text, "; may be the very tensor %s, which stays as it is otherwise",
            op->values[schema->alias].schema->name);
  if (i >= op->n_arguments && schema->optional && schema->alias >= 0)
    fprintf(text, "; None where that is");
  fputc('\n', text);
  return true;
}

static bool write_doc(FILE *text, const fl_py_op *op) {
  bool done = write_signature(text, op);
  fprintf(text, "%s\n\nArguments:\n", fl_op_doc(op->op)[0] ? fl_op_doc(op->op) : op->op_name);
  for (uint32_t i = 0; done && i < op->n_arguments; i++)
    done = write_argument(text, op, i);
  fputs(op->n_results > 1 ? "    out: a tuple of tensors to write the results into, None for one that is to be made\n"
                          : "    out: a tensor to write the result into; it is made otherwise\n",
        text);
  fputs("    stream: the device's stream, an address; that of the first tensor's library otherwise\n"
        "    prepared: what Op.prepare made of the weights, which are given all the same\n\nResults:\n",
        text);
  for (uint32_t i = op->n_arguments; done && i < op->n_arguments + op->n_results; i++)
    done = write_argument(text, op, i);
  if (strchr(fl_op_rules(op->op), '=')) {
    fputs("\nwhere\n", text);
    write_where(text, fl_op_rules(op->op));
  }
  if (fl_op_formula(op->op)[0])
    fprintf(text, "\nFormula:\n    %s\n", fl_op_formula(op->op));
  if (fl_op_parts(op->op)[0])
    fprintf(text, "\nParts:\n    %s\n", fl_op_parts(op->op));
  if (fl_op_ranks(op->op)[0])
    fprintf(text, "\nOver ranks:\n    %s\n", fl_op_ranks(op->op));
  fprintf(text, "\nSchema:\n    %s\n", fl_op_schema(op->op));
  return done;
}

static char *doc_of(const fl_py_op *op) {
  char *doc = NULL;
  size_t size;
  FILE *text = open_memstream(&doc, &size);
  bool done = text && write_doc(text, op);
  if (text && fclose(text))
    done = false;
  if (!done) {
    free(doc);
    doc = NULL;
    if (!PyErr_Occurred())
      PyErr_NoMemory();
  }
  return doc;
}

/* -------------------------------------------------------------------------------------------------- making */

/* An argument that is overwritten, and no result stands for it. */
static bool is_state(const fl_py_op *op, uint32_t argument) {
  for (uint32_t r = 0; r < op->n_results; r++)
    if (op->values[op->n_arguments + r].schema->alias == (int32_t)argument)
      return false;
  return op->values[argument].schema->mutates;
}

static bool read_entry(fl_py_op *op) {
  uint32_t n = op->n_arguments + op->n_results;
  op->values = calloc(n + 1, sizeof *op->values);
  op->defaults = calloc(op->n_arguments + 1, sizeof *op->defaults);
  if (!op->values || !op->defaults)
    return PyErr_NoMemory();
  for (uint32_t i = 0; i < n; i++) {
    op->values[i].schema = fl_op_argument(op->op, i);
    op->values[i].type = op->values[i].schema->type;
    if (!(op->values[i].name = PyUnicode_InternFromString(op->values[i].schema->name)))
      return false;
    if (i < op->n_arguments)
      op->defaults[i] = op->values[i].schema->default_value;
  }
  for (uint32_t i = 0; i < n; i++)
    op->values[i].written = i >= op->n_arguments || is_state(op, i);
  op->doc = doc_of(op);
  op->function =
      (PyMethodDef){op->op_name, (PyCFunction)(void (*)(void))fl_py_call, METH_FASTCALL | METH_KEYWORDS, op->doc};
  return op->doc != NULL;
}

PyObject *fl_py_op_find(fl_py_host *host, const char *name) {
  fl_op *found;
  fl_status status;
  FL_PY_WITHOUT_GIL(found = fl_find_op(host->host, name); status = found ? FL_OK : fl_error_status());
  if (!fl_py_ok(status))
    return NULL;

  fl_py_op *op = (fl_py_op *)PyType_GenericAlloc(fl_py_op_type, 0);
  if (!op)
    return NULL;
  op->host = (fl_py_host *)Py_NewRef((PyObject *)host);
  op->op = found;
  op->op_name = fl_op_name(found);
  op->n_arguments = fl_op_argument_count(found);
  op->n_results = fl_op_result_count(found);
  if (op->n_arguments + op->n_results > FL_PY_MOST_VALUES || op->n_results > FL_PY_MOST_RESULTS)
    fl_py_raise_message(FL_ENOTSUP, "an op with more values than Python calls take");
  else if (read_entry(op))
    return (PyObject *)op;
  Py_DECREF(op);
  return NULL;
}

static void op_dealloc(PyObject *self) {
  fl_py_op *op = (fl_py_op *)self;
  PyTypeObject *type = Py_TYPE(self);
  for (uint32_t i = 0; op->values && i < op->n_arguments + op->n_results; i++)
    Py_XDECREF(op->values[i].name);
  free(op->values);
  free(op->defaults);
  free(op->doc);
  Py_XDECREF(op->host);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* ---------------------------------------------------------------------------------------------- attributes */

static PyObject *op_text(PyObject *self, void *function) {
  const char *(*text)(const fl_op *) = (const char *(*)(const fl_op *))(uintptr_t)function;
  return PyUnicode_FromString(text(((fl_py_op *)self)->op));
}

static PyObject *op_call(PyObject *self, void *none) {
  (void)none;
  return PyCFunction_NewEx(&((fl_py_op *)self)->function, self, NULL);
}

static PyObject *op_host(PyObject *self, void *none) {
  (void)none;
  return Py_NewRef((PyObject *)((fl_py_op *)self)->host);
}

static PyObject *describe_value(const fl_py_op *op, uint32_t i) {
  const fl_argument *schema = op->values[i].schema;
  PyObject *value = fl_py_value_object(&schema->default_value);
  return value ? Py_BuildValue("{sOsssOsOsOsNsi}", "name", op->values[i].name, "type", type_names[schema->type],
                               "optional", schema->optional ? Py_True : Py_False, "mutates",
                               schema->mutates ? Py_True : Py_False, "has_default",
                               schema->has_default ? Py_True : Py_False, "default", value, "alias", (int)schema->alias)
               : NULL;
}

/* `what` is not NULL for the results. */
static PyObject *op_values(PyObject *self, void *what) {
  const fl_py_op *op = (fl_py_op *)self;
  uint32_t from = what ? op->n_arguments : 0, n = what ? op->n_results : op->n_arguments;
  PyObject *values = PyTuple_New(n);
  for (uint32_t i = 0; values && i < n; i++) {
    PyObject *value = describe_value(op, from + i);
    if (!value || PyTuple_SetItem(values, i, value))
      Py_CLEAR(values);
  }
  return values;
}

static PyObject *op_repr(PyObject *self) {
  return PyUnicode_FromFormat("<flhost op %s>", fl_op_schema(((fl_py_op *)self)->op));
}

static PyObject *op_tolerance(PyObject *self, PyObject *word) {
  const char *name = PyUnicode_Check(word) ? PyUnicode_AsUTF8AndSize(word, NULL) : NULL;
  const fl_element_type *element = name ? fl_element_type_named(name) : NULL;
  if (!element)
    return PyErr_Occurred()
               ? NULL
               : fl_py_raise_value("tolerance: %R, expected the name of an element type, such as float32", word);
  double atol, rtol;
  fl_op_tolerance(((fl_py_op *)self)->op, element->dtype, &atol, &rtol);
  return Py_BuildValue("(dd)", atol, rtol);
}

#define TEXT(name_, function_, doc_)                                                                                   \
  { name_, op_text, NULL, doc_, (void *)(uintptr_t)function_ }
static PyGetSetDef op_attributes[] = {
    TEXT("name", fl_op_name, "The op's name."),
    TEXT("schema", fl_op_schema, "Arguments and results, as text."),
    TEXT("rules", fl_op_rules, "Shapes and dtypes, as text."),
    TEXT("category", fl_op_category, "What lists have it under."),
    TEXT("doc", fl_op_doc, "What it computes, in a line."),
    TEXT("formula", fl_op_formula, "The formula, and where it comes from."),
    TEXT("bytes", fl_op_bytes, "Bytes that a call moves, as text."),
    TEXT("flops", fl_op_flops, "Operations on floating-point numbers of a call, as text."),
    TEXT("parts", fl_op_parts, "What a fused op is made of, as text."),
    TEXT("ranks", fl_op_ranks, "What ranks that share a call do with it, as text."),
    {"arguments", op_values, NULL, "Its arguments: a tuple of dicts.", NULL},
    {"results", op_values, NULL, "Its results: a tuple of dicts.", (void *)1},
    {"call", op_call, NULL, "The function that calls it.", NULL},
    {"host", op_host, NULL, "Its host.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef op_methods[] = {
    {"infer", (PyCFunction)(void (*)(void))fl_py_infer, METH_FASTCALL | METH_KEYWORDS,
     "infer(*arguments, **keywords)\n\n"
     "What a call's results are, by the arguments' shapes: a tuple of (shape, dtype, device), None for one that is not "
     "there. Nothing is called."},
    {"prepare", (PyCFunction)(void (*)(void))fl_py_prepare, METH_FASTCALL | METH_KEYWORDS,
     "prepare(*arguments, **keywords)\n\n"
     "Has the weights of a call prepared for many more: laid out as the implementation likes them best that would run "
     "it "
     "under the policy in force. Takes what a call takes, and calls nothing; of what is no weight (rows of x) any "
     "number "
     "will do. Calls with the same tensors take the Prepared as prepared=; it keeps them, and about as many bytes once "
     "more. Who changes a weight's bytes prepares it again: nobody looks."},
    {"example", (PyCFunction)(void (*)(void))fl_py_example, METH_VARARGS | METH_KEYWORDS,
     "example(number, seed=1, dtype=None)\n\n"
     "The arguments of a call to test the op with: a tensor as (shape, dtype, contents, low, high), which say what to "
     "fill "
     "it with. InvalidArgument: this number makes no call, take the next; NotFound: the op does not take that dtype."},
    {"tolerance", op_tolerance, METH_O, "tolerance(dtype)\n\n(atol, rtol) of its results for an element type."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot op_slots[] = {
    {Py_tp_dealloc, op_dealloc},
    {Py_tp_repr, op_repr},
    {Py_tp_getset, op_attributes},
    {Py_tp_methods, op_methods},
    {Py_tp_doc, "An op of a host; Host.op(name) finds it."},
    {0, NULL},
};
static PyType_Spec op_spec = {"flhost._core.Op", sizeof(fl_py_op), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, op_slots};

int fl_py_op_add(PyObject *module) {
  fl_py_op_type = (PyTypeObject *)PyType_FromSpec(&op_spec);
  return fl_py_op_type ? PyModule_AddObjectRef(module, "Op", (PyObject *)fl_py_op_type) : -1;
}
