/*
 * Tensors of Python objects, borrowed for a call: torch and what else hands out DLPack's functions through these, other
 * libraries by the method __dlpack__, and new tensors of the same kind for results.
 */
#ifndef FLHOST_PYTHON_TENSOR_H
#define FLHOST_PYTHON_TENSOR_H

#include "python/extension/core.h"
#include "python/extension/dlpack_1.h"

/* How a type's tensors are reached. */
typedef enum fl_py_route {
  FL_PY_NO_TENSOR,
  FL_PY_EXCHANGE, /* by dlpack_exchange */
  FL_PY_ARRAY,    /* numpy.ndarray: by __dlpack__, in the host's memory */
  FL_PY_CAPSULE   /* by __dlpack__ */
} fl_py_route;

/* A type of Python's, and its route. */
typedef struct fl_py_kind {
  PyTypeObject *type; /* a reference; NULL: an empty place */
  fl_py_route route;
  const dlpack_exchange *exchange;
  int (*borrow)(void *object, DLTensor *tensor); /* the exchange's; NULL: none */
  bool unversioned;                              /* its __dlpack__ does not know max_version */
} fl_py_kind;

/* Types that were met, each at a place that its address gives; another of the same place takes it. */
enum { FL_PY_KINDS = 128 };
extern fl_py_kind fl_py_kinds[FL_PY_KINDS];

/* Never NULL: FL_PY_NO_TENSOR where it is none; valid until the next is asked for. */
fl_py_kind *fl_py_kind_find(PyTypeObject *type);
static inline fl_py_kind *fl_py_kind_of(PyTypeObject *type) {
  fl_py_kind *kind = &fl_py_kinds[((uintptr_t)type >> 4) % FL_PY_KINDS];
  return kind->type == type ? kind : fl_py_kind_find(type);
}

/* A tensor that is borrowed. */
typedef struct fl_py_borrowed {
  DLTensor *tensor;          /* the caller's, or that of what is held */
  PyObject *held;            /* a capsule; NULL: nothing */
  dlpack_versioned *managed; /* given back with its deleter; NULL: nothing */
  PyObject *object;          /* a new tensor, a reference; NULL: nothing, or `managed` becomes one */
  bool read_only;
} fl_py_borrowed;

/* Where an object stands in a call, for messages: "rms_norm: argument 'x'". */
typedef struct fl_py_place {
  const char *op, *what, *name;
} fl_py_place;

/* The stream of a call; not known: NULL, the device's default one. */
typedef struct fl_py_stream {
  bool known;
  void *address;
} fl_py_stream;

/* Is that memory of a device with streams? */
static inline bool fl_py_has_streams(DLDevice device) {
  int type = (int)device.device_type;
  return type != kDLCPU && type != kDLCUDAHost && type != kDLROCMHost;
}

/* The stream of a call is that of the first tensor on a device that has any. False: the library's exception is set. */
static inline bool fl_py_ask_stream(fl_py_stream *stream, const dlpack_exchange *exchange, DLDevice device) {
  if (stream->known || !fl_py_has_streams(device))
    return true;
  stream->known = true;
  return !exchange->current_stream((int)device.device_type, device.device_id, &stream->address);
}

/* Borrows an object of FL_PY_EXCHANGE into `tensor`; `borrowed` where the library keeps something for it. */
bool fl_py_borrow_exchange(const dlpack_exchange *exchange, PyObject *object, DLTensor *tensor,
                           fl_py_borrowed *borrowed, const fl_py_place *place);

/* Borrows one of the other routes. It is made ready for the stream, which is asked for where it is not known. */
bool fl_py_borrow_capsule(fl_py_kind *kind, PyObject *object, fl_py_stream *stream, fl_py_borrowed *borrowed,
                          const fl_py_place *place);

/* Borrows a numpy array that its __dlpack__ refused; the exception is another then, or gone. */
bool fl_py_borrow_array(PyObject *object, fl_py_borrowed *borrowed);

/* Gives back what was borrowed. An exception that is set stays. */
void fl_py_give_back(fl_py_borrowed *borrowed);

/* Raises what is wrong with an object that is no tensor, or cannot be borrowed (its library's exception is set). */
void fl_py_refuse(PyObject *object, const fl_py_place *place);

/* Raises that a result cannot be made; its library's exception is set, and becomes the cause. */
void fl_py_cannot_allocate(const fl_py_place *place);

/* Is its first element aligned to its element type? Kernels rely on it. Else an exception is set. */
bool fl_py_is_aligned(const DLTensor *tensor, const fl_py_place *place);

/* Does it lie close, in one or two dimensions? DLPack says that without strides, too, which the host checks soonest. */
static inline bool fl_py_is_plain(const DLTensor *tensor) {
  const int64_t *strides = tensor->strides;
  return strides && ((tensor->ndim == 2 && strides[1] == 1 && strides[0] == tensor->shape[1]) ||
                     (tensor->ndim == 1 && strides[0] == 1));
}

/* Calls flhost._kinds.NAME(like), or with `argument` behind. */
PyObject *fl_py_call_kinds(const char *name, PyObject *like, PyObject *argument);

/* (shape, name of the element type, device) */
PyObject *fl_py_spec(const fl_tensor_spec *spec);

/* A new tensor of the kind of `like` (NULL: numpy.ndarray), which is borrowed already, and the object when the call is
 * over. */
bool fl_py_allocate(PyObject *like, const fl_tensor_spec *spec, fl_py_stream *stream, DLTensor *tensor,
                    fl_py_borrowed *borrowed, const fl_py_place *place);
PyObject *fl_py_made(PyObject *like, fl_py_borrowed *borrowed);

#endif /* FLHOST_PYTHON_TENSOR_H */
