/*
 * A call of an op from Python: its arguments read into fl_values on the stack, results made or taken from `out`.
 */
#ifndef FLHOST_PYTHON_CALL_H
#define FLHOST_PYTHON_CALL_H

#include "python/extension/tensor.h"

enum { FL_PY_MOST_VALUES = 64, FL_PY_MOST_RESULTS = 16, FL_PY_MOST_INTS = 128 };

/* One argument or result. */
typedef struct fl_py_value {
  PyObject *name; /* interned */
  const fl_argument *schema;
  fl_type type;
  bool written; /* a result, or a state: an argument that is overwritten without a result in its place */
} fl_py_value;

typedef struct fl_py_op {
  PyObject_HEAD fl_py_host *host; /* a reference */
  fl_op *op;
  const char *op_name;
  uint32_t n_arguments, n_results;
  fl_py_value *values;  /* arguments, then results */
  fl_value *defaults;   /* by argument; FL_NONE where there is none */
  PyMethodDef function; /* its call, which lives as long as this */
  char *doc;            /* signature and docstring */
} fl_py_op;

typedef struct fl_py_weights fl_py_weights; /* prepared.h */

/* Keywords that each call takes beside the op's arguments. */
enum { FL_PY_OUT, FL_PY_STREAM, FL_PY_PREPARED, FL_PY_KEYWORDS };

/* What a call holds while it lasts. Not cleared: only what the counts say is set. */
typedef struct fl_py_frame {
  const fl_py_op *op;
  PyObject *like;                      /* the first tensor, borrowed from the caller; NULL: none */
  PyObject *keywords[FL_PY_KEYWORDS];  /* NULL: not given */
  fl_py_weights *prepared;             /* what `prepared` is; NULL: not given */
  PyObject *given[FL_PY_MOST_RESULTS]; /* the results that `out` gives; NULL: none for this one */
  fl_py_stream stream;
  uint32_t n_borrowed, n_later, n_ints;
  fl_call call;
  uint16_t later[FL_PY_MOST_VALUES]; /* values whose tensors are borrowed when the stream is known */
  PyObject *objects[FL_PY_MOST_VALUES];
  fl_value values[FL_PY_MOST_VALUES];
  DLTensor tensors[FL_PY_MOST_VALUES];
  fl_py_borrowed borrowed[FL_PY_MOST_VALUES]; /* what has to be given back */
  fl_py_borrowed *made[FL_PY_MOST_RESULTS];
  int64_t ints[FL_PY_MOST_INTS];
} fl_py_frame;

/* Where value i stands, for messages. */
static inline fl_py_place fl_py_place_of(const fl_py_op *op, uint32_t i) {
  return (fl_py_place){op->op_name, i < op->n_arguments ? "argument" : "result", op->values[i].schema->name};
}

/* Reads the arguments of a call of METH_FASTCALL | METH_KEYWORDS. False with an exception set; fl_py_frame_end follows
 * in either case. */
bool fl_py_frame_begin(fl_py_frame *frame, const fl_py_op *op, PyObject *const *arguments, Py_ssize_t n,
                       PyObject *keywords);
void fl_py_frame_end(fl_py_frame *frame);

/* Sets the results' values: what `out` gives, new tensors where the op gives one, none. False as above. */
bool fl_py_frame_results(fl_py_frame *frame);

/* Reads one value that is no tensor. */
bool fl_py_read(fl_py_frame *frame, uint32_t i, PyObject *object);

/* Op's methods: call and infer. */
PyObject *fl_py_call(PyObject *op, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords);
PyObject *fl_py_infer(PyObject *op, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords);

/* Op.example */
PyObject *fl_py_example(PyObject *op, PyObject *arguments, PyObject *keywords);

/* A value that is no tensor, as Python has it: an int list is a tuple, none is None. */
PyObject *fl_py_value_object(const fl_value *value);

/* The other way, with Python's own conversions and exceptions; a string belongs to the object. Not for lists. */
bool fl_py_convert(PyObject *object, fl_type type, fl_value *value);

int fl_py_call_add(PyObject *module);

#endif /* FLHOST_PYTHON_CALL_H */
