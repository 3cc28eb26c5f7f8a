/*
 * Structs of the library as dicts: a table says which field is what.
 */
#ifndef FLHOST_PYTHON_DESCRIBE_H
#define FLHOST_PYTHON_DESCRIBE_H

#include "python/extension/core.h"

typedef enum fl_py_form {
  FL_PY_TEXT,  /* const char *; NULL is None */
  FL_PY_CHARS, /* char[] */
  FL_PY_BOOL,
  FL_PY_INT32,
  FL_PY_UINT32,
  FL_PY_UINT64,
  FL_PY_DOUBLE,
  FL_PY_KIND,    /* fl_kind: "flagos", "vendor", "reference" */
  FL_PY_VERDICT, /* fl_verdict */
  FL_PY_DEVICE   /* int32_t device type: "cpu" */
} fl_py_form;

typedef struct fl_py_field {
  const char *name;
  fl_py_form form;
  size_t offset;
} fl_py_field;

#define FL_PY_FIELD(struct_, field_, form_)                                                                            \
  { #field_, form_, offsetof(struct_, field_) }

/* A dict of the fields, which end at one without a name. */
PyObject *fl_py_dict(const void *item, const fl_py_field *fields);

/* A list of such dicts of n items that lie `size` bytes apart. */
PyObject *fl_py_dicts(const void *items, uint32_t n, uint32_t size, const fl_py_field *fields);

/* Puts a value under a name and takes its reference over; false, where it is NULL or there is no memory. */
bool fl_py_put(PyObject *dict, const char *name, PyObject *value);

/* A list of strings. */
PyObject *fl_py_texts(const char *const *texts, uint32_t n);

#endif /* FLHOST_PYTHON_DESCRIBE_H */
