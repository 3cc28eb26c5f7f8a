#include "python/extension/describe.h"

static PyObject *text(const char *words) {
  return words ? PyUnicode_DecodeUTF8(words, (Py_ssize_t)strlen(words), "replace") : Py_NewRef(Py_None);
}

static PyObject *word_of(const char *const *words, int n, int i) {
  return text(i > 0 && i < n ? words[i] : NULL);
}

static PyObject *value_of(const char *at, fl_py_form form) {
  static const char *const kinds[] = {NULL, "flagos", "vendor", "reference"};
  static const char *const verdicts[] = {NULL, "selected", "candidate", "rejected"};
  switch (form) {
  case FL_PY_TEXT:
    return text(*(const char *const *)(const void *)at);
  case FL_PY_CHARS:
    return text(at);
  case FL_PY_BOOL:
    return PyBool_FromLong(*(const bool *)at);
  case FL_PY_INT32:
    return PyLong_FromLong(*(const int32_t *)(const void *)at);
  case FL_PY_UINT32:
    return PyLong_FromUnsignedLong(*(const uint32_t *)(const void *)at);
  case FL_PY_UINT64:
    return PyLong_FromUnsignedLongLong(*(const uint64_t *)(const void *)at);
  case FL_PY_DOUBLE:
    return PyFloat_FromDouble(*(const double *)(const void *)at);
  case FL_PY_KIND:
    return word_of(kinds, 4, (int)*(const fl_kind *)(const void *)at);
  case FL_PY_VERDICT:
    return word_of(verdicts, 4, (int)*(const fl_verdict *)(const void *)at);
  default:
    return text(fl_device_type_name(*(const int32_t *)(const void *)at));
  }
}

bool fl_py_put(PyObject *dict, const char *name, PyObject *value) {
  bool done = dict && value && !PyDict_SetItemString(dict, name, value);
  Py_XDECREF(value);
  return done;
}

PyObject *fl_py_dict(const void *item, const fl_py_field *fields) {
  PyObject *dict = PyDict_New();
  for (; dict && fields->name; fields++)
    if (!fl_py_put(dict, fields->name, value_of((const char *)item + fields->offset, fields->form)))
      Py_CLEAR(dict);
  return dict;
}

PyObject *fl_py_dicts(const void *items, uint32_t n, uint32_t size, const fl_py_field *fields) {
  PyObject *list = PyList_New(n);
  for (uint32_t i = 0; list && i < n; i++) {
    PyObject *dict = fl_py_dict(fl_item_at(items, n, size, i), fields);
    if (!dict || PyList_SetItem(list, i, dict))
      Py_CLEAR(list);
  }
  return list;
}

PyObject *fl_py_texts(const char *const *texts, uint32_t n) {
  PyObject *list = PyList_New(n);
  for (uint32_t i = 0; list && i < n; i++) {
    PyObject *item = text(texts[i]);
    if (!item || PyList_SetItem(list, i, item))
      Py_CLEAR(list);
  }
  return list;
}
