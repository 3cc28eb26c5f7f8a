/*
 * Calls of ops. The way of a call that goes well: arguments by position are read where they stand, names of keywords
 * are compared by identity, tensors are borrowed by the functions that their library hands out, and nothing is made but
 * the results.
 */
#include "python/extension/call.h"
#include "python/extension/prepared.h"
#include "python/extension/python_impl.h"

#include <flhost/testing.h>

static const char *const keyword_words[FL_PY_KEYWORDS] = {
    [FL_PY_OUT] = "out", [FL_PY_STREAM] = "stream", [FL_PY_PREPARED] = "prepared"};
static PyObject *keyword_names[FL_PY_KEYWORDS]; /* interned */

/* -------------------------------------------------------------------------------------------------------- arguments */

/* Is its first element where its type wants it? Types of odd sizes are asked again. */
static inline bool is_aligned(const DLTensor *tensor) {
  uint64_t bytes = (uint64_t)tensor->dtype.bits * tensor->dtype.lanes >> 3;
  return !bytes || !(((uintptr_t)tensor->data + tensor->byte_offset) & (bytes - 1));
}

/* A tensor that is borrowed, as value i. */
static bool set_tensor(fl_py_frame *frame, uint32_t i, DLTensor *tensor, bool read_only) {
  frame->values[i] = fl_required_tensor(tensor);
  if (!read_only && is_aligned(tensor))
    return true;
  fl_py_place place = fl_py_place_of(frame->op, i);
  if (!read_only || !frame->op->values[i].written)
    return fl_py_is_aligned(tensor, &place);
  fl_py_raise_value("%s: %s '%s': a read-only tensor, expected one that can be written", place.op, place.what,
                    place.name);
  return false;
}

/* Borrows a tensor whose library hands out functions, or says why not. */
static bool take_exchange(fl_py_frame *frame, uint32_t i, PyObject *object, const dlpack_exchange *exchange) {
  fl_py_place place = fl_py_place_of(frame->op, i);
  fl_py_borrowed *borrowed = &frame->borrowed[frame->n_borrowed];
  *borrowed = (fl_py_borrowed){0};
  if (!fl_py_borrow_exchange(exchange, object, &frame->tensors[i], borrowed, &place))
    return false;
  frame->n_borrowed++;
  return fl_py_ask_stream(&frame->stream, exchange, borrowed->tensor->device) &&
         set_tensor(frame, i, borrowed->tensor, borrowed->read_only);
}

/* Its library's exception is set. */
static bool refuse_tensor(fl_py_frame *frame, uint32_t i, PyObject *object) {
  fl_py_place place = fl_py_place_of(frame->op, i);
  fl_py_refuse(object, &place);
  return false;
}

static bool take_other(fl_py_frame *frame, uint32_t i, PyObject *object, const fl_py_kind *kind) {
  if (kind->route == FL_PY_NO_TENSOR)
    return refuse_tensor(frame, i, object);
  if (!frame->like)
    frame->like = object;
  if (kind->route == FL_PY_EXCHANGE)
    return take_exchange(frame, i, object, kind->exchange);
  frame->objects[i] = object;
  frame->later[frame->n_later++] = (uint16_t)i;
  return true;
}

/* What goes well in every call: a tensor of torch, or None for one that need not be, which has to be told before its
 * type is looked up: types of what is no tensor are not kept. */
static inline bool take_tensor(fl_py_frame *frame, uint32_t i, PyObject *object) {
  if (Py_IsNone(object) && frame->op->values[i].schema->optional) {
    frame->values[i] = fl_none();
    return true;
  }
  const fl_py_kind *kind = fl_py_kind_of(Py_TYPE(object));
  const dlpack_exchange *exchange = kind->exchange;
  DLTensor *tensor = &frame->tensors[i];
  if (!kind->borrow || kind->borrow(object, tensor))
    return !PyErr_Occurred() ? take_other(frame, i, object, kind) : refuse_tensor(frame, i, object);
  if (fl_py_is_plain(tensor))
    tensor->strides = NULL;
  frame->values[i].type = FL_TENSOR;
  frame->values[i].length = 0;
  frame->values[i].v.tensor = tensor;
  if (!frame->like)
    frame->like = object;
  return (tensor->device.device_type == kDLCPU || fl_py_ask_stream(&frame->stream, exchange, tensor->device)) &&
         (is_aligned(tensor) || set_tensor(frame, i, tensor, false));
}

/* Borrows those that are made ready for a stream, now that it is known. */
static bool take_later(fl_py_frame *frame) {
  for (uint32_t j = 0; j < frame->n_later; j++) {
    uint32_t i = frame->later[j];
    fl_py_place place = fl_py_place_of(frame->op, i);
    fl_py_borrowed *borrowed = &frame->borrowed[frame->n_borrowed];
    *borrowed = (fl_py_borrowed){0};
    if (!fl_py_borrow_capsule(fl_py_kind_of(Py_TYPE(frame->objects[i])), frame->objects[i], &frame->stream, borrowed,
                              &place))
      return false;
    frame->n_borrowed++;
    if (!set_tensor(frame, i, borrowed->tensor, borrowed->read_only))
      return false;
  }
  return true;
}

/* The argument of that name; behind the arguments stand the keywords; -1: none. */
static int find_name(const fl_py_op *op, PyObject *name) {
  for (uint32_t i = 0; i < op->n_arguments; i++)
    if (op->values[i].name == name)
      return (int)i;
  for (int k = 0; k < FL_PY_KEYWORDS; k++)
    if (keyword_names[k] == name)
      return (int)op->n_arguments + k;
  for (uint32_t i = 0; i < op->n_arguments; i++)
    if (!PyUnicode_Compare(op->values[i].name, name))
      return (int)i;
  for (int k = 0; k < FL_PY_KEYWORDS; k++)
    if (!PyUnicode_Compare(keyword_names[k], name))
      return (int)op->n_arguments + k;
  return -1;
}

static bool refuse_name(const fl_py_op *op, PyObject *name) {
  const char *words[FL_PY_MOST_VALUES + FL_PY_KEYWORDS], *word = PyUnicode_AsUTF8AndSize(name, NULL);
  for (uint32_t i = 0; i < op->n_arguments; i++)
    words[i] = op->values[i].schema->name;
  memcpy(words + op->n_arguments, keyword_words, sizeof keyword_words);
  const char *nearest = word ? fl_nearest_word(word, words, op->n_arguments + FL_PY_KEYWORDS) : NULL;
  PyErr_Clear();
  fl_py_raise_type(nearest ? "%s: there is no argument '%S'; did you mean '%s'? %s"
                           : "%s: there is no argument '%S', expected%s those of %s",
                   op->op_name, name, nearest ? nearest : "", fl_op_schema(op->op));
  return false;
}

/* Puts arguments by position and by name into frame->objects; NULL: not given. */
static bool place_arguments(fl_py_frame *frame, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords) {
  const fl_py_op *op = frame->op;
  Py_ssize_t n_keywords = PyTuple_Size(keywords);
  memcpy(frame->objects, arguments, (size_t)n * sizeof *arguments);
  memset(frame->objects + n, 0, (op->n_arguments - (size_t)n) * sizeof *arguments);
  for (Py_ssize_t j = 0; j < n_keywords; j++) {
    PyObject *name = PyTuple_GetItem(keywords, j), *object = arguments[n + j];
    int i = find_name(op, name);
    if (i < 0)
      return refuse_name(op, name);
    if (i >= (int)op->n_arguments)
      frame->keywords[i - (int)op->n_arguments] = Py_IsNone(object) ? NULL : object;
    else if (frame->objects[i]) {
      fl_py_raise_type("%s: argument '%S': given twice, by position and by name", op->op_name, name);
      return false;
    } else
      frame->objects[i] = object;
  }
  return true;
}

static bool read_stream(fl_py_frame *frame, PyObject *object) {
  frame->stream.address = PyLong_Check(object) ? PyLong_AsVoidPtr(object) : NULL;
  frame->stream.known = true;
  if (PyLong_Check(object) && !PyErr_Occurred())
    return true;
  PyErr_Clear();
  fl_py_raise_type("%s: argument 'stream': %R, expected the address of a stream of the device, an int",
                   frame->op->op_name, object);
  return false;
}

/* What stands for an argument that is not given. */
static bool take_default(fl_py_frame *frame, uint32_t i) {
  const fl_py_op *op = frame->op;
  frame->values[i] = op->defaults[i];
  if (!op->values[i].schema->has_default)
    fl_py_raise_type("%s: argument '%s': missing: %s", op->op_name, op->values[i].schema->name, fl_op_schema(op->op));
  return op->values[i].schema->has_default;
}

bool fl_py_frame_begin(fl_py_frame *frame, const fl_py_op *op, PyObject *const *arguments, Py_ssize_t n,
                       PyObject *keywords) {
  PyObject *const *objects = arguments;
  uint32_t given = (uint32_t)n;
  bool done = true;
  frame->op = op;
  frame->like = NULL;
  memset(frame->keywords, 0, sizeof frame->keywords);
  frame->prepared = NULL;
  frame->stream = (fl_py_stream){false, NULL};
  frame->n_borrowed = frame->n_later = frame->n_ints = 0;
  frame->call =
      (fl_call){.size = sizeof frame->call, .count = op->n_arguments + op->n_results, .values = frame->values};
  if (n > (Py_ssize_t)op->n_arguments) {
    fl_py_raise_type("%s: %zd arguments, expected at most %u: %s", op->op_name, n, (unsigned)op->n_arguments,
                     fl_op_schema(op->op));
    return false;
  }
  if (keywords) {
    if (!place_arguments(frame, arguments, n, keywords) ||
        (frame->keywords[FL_PY_STREAM] && !read_stream(frame, frame->keywords[FL_PY_STREAM])) ||
        (frame->keywords[FL_PY_PREPARED] && !fl_py_prepared_enter(frame, frame->keywords[FL_PY_PREPARED])))
      return false;
    objects = frame->objects;
    given = op->n_arguments;
  }
  for (uint32_t i = 0; done && i < op->n_arguments; i++) {
    if (i >= given || !objects[i])
      done = take_default(frame, i);
    else if (op->values[i].type == FL_TENSOR)
      done = take_tensor(frame, i, objects[i]);
    else
      done = fl_py_read(frame, i, objects[i]);
  }
  return done;
}

void fl_py_frame_end(fl_py_frame *frame) {
  for (uint32_t i = 0; i < frame->n_borrowed; i++)
    fl_py_give_back(&frame->borrowed[i]);
  if (frame->prepared)
    fl_py_prepared_leave(frame->prepared);
}

/* ---------------------------------------------------------------------------------------------------------- results */

/* The results that `out` gives, as borrowed references. */
static bool spread_out(fl_py_frame *frame) {
  const fl_py_op *op = frame->op;
  PyObject *out = frame->keywords[FL_PY_OUT], **given = frame->given;
  for (uint32_t r = 0; r < op->n_results; r++)
    given[r] = NULL;
  if (!out)
    return true;
  if (!PyTuple_Check(out)) {
    if (op->n_results == 1) {
      given[0] = out;
      return true;
    }
    fl_py_raise_type("%s: argument 'out': one object, expected a tuple of %u: %s", op->op_name, (unsigned)op->n_results,
                     fl_op_schema(op->op));
    return false;
  }
  Py_ssize_t n = PyTuple_Size(out);
  if (n != (Py_ssize_t)op->n_results) {
    fl_py_raise_type("%s: argument 'out': %zd results, expected %u: %s", op->op_name, n, (unsigned)op->n_results,
                     fl_op_schema(op->op));
    return false;
  }
  for (Py_ssize_t r = 0; r < n; r++) {
    PyObject *item = PyTuple_GetItem(out, r);
    given[r] = Py_IsNone(item) ? NULL : item;
  }
  return true;
}

bool fl_py_frame_results(fl_py_frame *frame) {
  const fl_py_op *op = frame->op;
  PyObject **given = frame->given;
  uint32_t n = op->n_arguments, missing = 0;
  if (!spread_out(frame))
    return false;
  for (uint32_t r = 0; r < op->n_results; r++) {
    const fl_argument *schema = op->values[n + r].schema;
    frame->made[r] = NULL;
    frame->values[n + r] = fl_none();
    if (given[r] && schema->type != FL_TENSOR) {
      fl_py_raise_type("%s: result '%s': it is no tensor, expected None for it in 'out'", op->op_name, schema->name);
      return false;
    }
    if (given[r] && !take_tensor(frame, n + r, given[r]))
      return false;
    missing += !given[r] && schema->type == FL_TENSOR;
  }
  if (frame->n_later && !take_later(frame))
    return false;
  if (!missing)
    return true;
  fl_tensor_spec specs[FL_PY_MOST_RESULTS];
  fl_status status = fl_infer(op->op, &frame->call, specs, op->n_results, sizeof *specs);
  if (!fl_py_ok(status))
    return false;
  for (uint32_t r = 0; r < op->n_results; r++) {
    if (given[r] || !specs[r].present || op->values[n + r].schema->type != FL_TENSOR)
      continue;
    fl_py_place place = fl_py_place_of(op, n + r);
    fl_py_borrowed *borrowed = &frame->borrowed[frame->n_borrowed];
    if (!fl_py_allocate(frame->like, &specs[r], &frame->stream, &frame->tensors[n + r], borrowed, &place))
      return false;
    frame->n_borrowed++;
    frame->made[r] = borrowed;
    frame->values[n + r] = fl_required_tensor(borrowed->tensor);
  }
  return true;
}

static PyObject *result_of(fl_py_frame *frame, uint32_t r) {
  const fl_value *value = &frame->values[frame->op->n_arguments + r];
  if (frame->given[r])
    return Py_NewRef(frame->given[r]);
  return value->type == FL_TENSOR ? fl_py_made(frame->like, frame->made[r]) : fl_py_value_object(value);
}

static PyObject *results_of(fl_py_frame *frame) {
  uint32_t n = frame->op->n_results;
  if (n == 1)
    return result_of(frame, 0);
  if (!n)
    return Py_NewRef(Py_None);
  PyObject *results = PyTuple_New(n);
  for (uint32_t r = 0; results && r < n; r++) {
    PyObject *result = result_of(frame, r);
    if (!result || PyTuple_SetItem(results, r, result))
      Py_CLEAR(results);
  }
  return results;
}

/* ------------------------------------------------------------------------------------------------------------ calls */

PyObject *fl_py_call(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords) {
  const fl_py_op *op = (fl_py_op *)self;
  fl_py_frame frame;
  PyObject *result = NULL;
  fl_status status = FL_OK;
  bool done = fl_py_frame_begin(&frame, op, arguments, n, keywords) && fl_py_frame_results(&frame);
  frame.call.stream = frame.stream.address;
  if (done) {
    FL_PY_UNDER_POLICY(op->host, done, status, status = fl_invoke(op->op, &frame.call));
    if (done)
      result = results_of(&frame);
    else
      fl_py_restore_passing();
  }
  fl_py_frame_end(&frame);
  return result;
}

PyObject *fl_py_infer(PyObject *self, PyObject *const *arguments, Py_ssize_t n, PyObject *keywords) {
  const fl_py_op *op = (fl_py_op *)self;
  fl_py_frame frame;
  fl_tensor_spec specs[FL_PY_MOST_RESULTS];
  PyObject *results = NULL;
  if (fl_py_frame_begin(&frame, op, arguments, n, keywords) && take_later(&frame)) {
    frame.call.count = op->n_arguments;
    if (fl_py_ok(fl_infer(op->op, &frame.call, specs, op->n_results, sizeof *specs)))
      results = PyTuple_New(op->n_results);
  }
  for (uint32_t r = 0; results && r < op->n_results; r++) {
    PyObject *described = specs[r].present ? fl_py_spec(&specs[r]) : Py_NewRef(Py_None);
    if (!described || PyTuple_SetItem(results, r, described))
      Py_CLEAR(results);
  }
  fl_py_frame_end(&frame);
  return results;
}

int fl_py_call_add(PyObject *module) {
  (void)module;
  for (int k = 0; k < FL_PY_KEYWORDS; k++)
    if (!(keyword_names[k] = PyUnicode_InternFromString(keyword_words[k])))
      return -1;
  return 0;
}
