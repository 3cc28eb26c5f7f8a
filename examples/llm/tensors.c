/* Tensors, and the memory that they are made in: see llm.h. */
#include "llm.h"

/* Its memory follows it, aligned as it is. */
typedef struct piece {
  _Alignas(64) struct piece *next;
} piece;

const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1}, int64 = {kDLInt, 64, 1},
                 boolean = {FL_DTYPE_BOOL, 8, 1};
const DLDevice cpu = {kDLCPU, 0};

void ok(fl_status status) {
  if (status)
    fail("%s", fl_error_message());
}

void *arena_take(arena *a, size_t size) {
  void *memory;
  ok(fl_device_allocate_async(a->host, cpu, sizeof(piece) + size, a->stream, &memory));
  a->pieces = memcpy(memory, &(piece){a->pieces}, sizeof(piece));
  a->total += size;
  a->most = a->total > a->most ? a->total : a->most;
  return a->pieces + 1;
}

void arena_reset(arena *a) {
  for (piece *next; a->pieces; a->pieces = next) {
    next = a->pieces->next;
    ok(fl_device_free_async(a->host, cpu, a->pieces, a->stream));
  }
  a->total = 0;
}

DLTensor *view(arena *a, const DLTensor *of, int64_t offset, const int64_t *strides, int ndim, const int64_t *shape) {
  struct {
    DLTensor tensor;
    int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  } *made = arena_take(a, sizeof *made);
  made->tensor = *of;
  made->tensor.ndim = ndim;
  made->tensor.shape = memcpy(made->shape, shape, (size_t)ndim * sizeof *shape);
  made->tensor.strides = strides ? memcpy(made->strides, strides, (size_t)ndim * sizeof *strides) : NULL;
  made->tensor.byte_offset += (uint64_t)offset * (of->dtype.bits / 8u);
  return &made->tensor;
}

DLTensor *tensor(arena *a, DLDataType dtype, int ndim, const int64_t *shape) {
  DLTensor *t = view(a, &(DLTensor){.device = cpu, .dtype = dtype}, 0, NULL, ndim, shape);
  t->data = arena_take(a, bytes(t));
  return t;
}

DLTensor *cut(arena *a, DLTensor *t, share rows, share columns) {
  int64_t shape[FL_MAX_DIMS] = {0}, k = t && t->shape[0] ? elements(t) / t->shape[0] : 0;
  if (!t || rows.parts * columns.parts == 1)
    return t;
  memcpy(shape, t->shape, (size_t)t->ndim * sizeof *shape);
  if (shape[0] % rows.parts || k % columns.parts)
    fail("a weight of %lld rows and %lld columns cannot be divided among the ranks", LL(shape[0]), LL(k));
  shape[0] /= rows.parts;
  shape[1] /= columns.parts;
  int64_t at = shape[0] * rows.part * k + shape[1] * columns.part;
  return view(a, t, at, columns.parts > 1 ? SIZES(k, 1) : NULL, t->ndim, shape);
}

int64_t elements(const DLTensor *t) {
  int64_t n = 1;
  for (int i = 0; i < t->ndim; i++)
    n *= t->shape[i];
  return n;
}

size_t bytes(const DLTensor *t) {
  return (size_t)elements(t) * (t->dtype.bits / 8u);
}

void put(DLTensor *to, int64_t at, const DLTensor *from) {
  const fl_element_type *in = fl_element_type_of(from->dtype), *out = fl_element_type_of(to->dtype);
  const int64_t *strides = from->strides; /* without, it is one long row */
  size_t size = from->dtype.bits / 8u;
  int last = from->ndim - 1;
  int64_t n = elements(from), row = strides ? from->shape[last] : n, step = strides ? strides[last] : 1;
  for (int64_t i = 0; i < n; i += row) {
    int64_t begin = 0, rest = i / row;
    for (int d = last - 1; strides && d >= 0; rest /= from->shape[d--])
      begin += rest % from->shape[d] * strides[d];
    if (in == out && step == 1)
      memcpy((char *)fl_data(to) + (size_t)(at + i) * size, (char *)fl_data(from) + (size_t)begin * size,
             (size_t)row * size);
    else
      for (int64_t j = 0; j < row; j++)
        out->put(fl_data(to), at + i + j, in->get(fl_data(from), begin + j * step));
  }
}

DLTensor *copied(arena *a, const DLTensor *t, DLDataType dtype) {
  DLTensor *made = tensor(a, dtype, t->ndim, t->shape);
  put(made, 0, t);
  return made;
}

DLTensor *converted(arena *a, DLTensor *t, DLDataType dtype) {
  return memcmp(&t->dtype, &dtype, sizeof dtype) ? copied(a, t, dtype) : t;
}
