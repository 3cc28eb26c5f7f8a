/*
 * What a host tells: Host's methods that give dicts and lists, with the names of the library's structs.
 */
#include "python/extension/describe.h"
#include "python/extension/host.h"

#define END_OF_FIELDS                                                                                                  \
  { NULL, FL_PY_TEXT, 0 }

static PyObject *resolve(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"op", "device", NULL};
  static const fl_py_field fields[] = {
      FL_PY_FIELD(fl_resolution, impl_id, FL_PY_CHARS),
      FL_PY_FIELD(fl_resolution, vendor, FL_PY_CHARS),
      FL_PY_FIELD(fl_resolution, kind, FL_PY_KIND),
      FL_PY_FIELD(fl_resolution, priority, FL_PY_INT32),
      END_OF_FIELDS,
  };
  fl_py_host *host = fl_py_open_host(self);
  fl_resolution found = {.size = sizeof found};
  PyObject *word = NULL;
  const char *op;
  int32_t device;
  fl_status status = FL_OK;
  bool done;
  if (!host || !PyArg_ParseTupleAndKeywords(arguments, keywords, "s|O:resolve", names, &op, &word) ||
      !(device = fl_py_device(host, word)))
    return NULL;
  FL_PY_UNDER_POLICY(host, done, status, status = fl_resolve_op(host->host, op, device, &found));
  return done ? fl_py_dict(&found, fields) : NULL;
}

#define METHOD(name_, arguments_, doc_)                                                                                \
  { #name_, (PyCFunction)(void (*)(void))name_, METH_VARARGS | METH_KEYWORDS, #name_ arguments_ "\n--\n\n" doc_ }
PyMethodDef fl_py_report_methods[] = {
    METHOD(resolve, "($self, op, device='cpu')", "The implementation that calls of an op run first: a dict."),
    {NULL, NULL, 0, NULL},
};
