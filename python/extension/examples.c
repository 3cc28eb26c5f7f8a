/*
 * Calls to test an op with, as the library generates them by the op's entry: Op.example.
 */
#include "python/extension/call.h"

#include <flhost/testing.h>

/* What a tensor is to be filled with, by fl_contents. */
static const char *const contents[] = {NULL, "normal", "range", "distinct", "ascending", "moderate"};

/* An argument: a tensor as (shape, dtype, contents, low, high), another value as it is, None. */
static PyObject *describe(const fl_input *input, fl_type type) {
  if (type != FL_TENSOR)
    return fl_py_value_object(&input->value);
  if (!input->spec.present)
    return Py_NewRef(Py_None);
  PyObject *spec = fl_py_spec(&input->spec);
  PyObject *described = spec ? Py_BuildValue("(OOsdd)", PyTuple_GetItem(spec, 0), PyTuple_GetItem(spec, 1),
                                             contents[input->contents > 0 && input->contents < 6 ? input->contents : 1],
                                             input->low, input->high)
                             : NULL;
  Py_XDECREF(spec);
  return described;
}

PyObject *fl_py_example(PyObject *self, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"number", "seed", "dtype", NULL};
  const fl_py_op *op = (fl_py_op *)self;
  unsigned long long number, seed = 1;
  const char *dtype = NULL;
  fl_input inputs[FL_PY_MOST_VALUES];
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "K|Kz:example", names, &number, &seed, &dtype))
    return NULL;
  const fl_element_type *element = dtype ? fl_element_type_named(dtype) : NULL;
  if (dtype && !element)
    return fl_py_raise_value("example: '%s' is no element type", dtype);
  fl_status status =
      fl_generate_inputs(op->op, element ? element->bit : 0, seed, number, inputs, op->n_arguments, sizeof *inputs);
  PyObject *list = fl_py_ok(status) ? PyTuple_New(op->n_arguments) : NULL;
  for (uint32_t i = 0; list && i < op->n_arguments; i++) {
    PyObject *item = describe(&inputs[i], op->values[i].schema->type);
    if (!item || PyTuple_SetItem(list, i, item))
      Py_CLEAR(list);
  }
  return list;
}
