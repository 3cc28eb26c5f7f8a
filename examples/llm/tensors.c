/* Tensors, and the memory that they are made in: see llm.h. */
#include "llm.h"

/* Its memory follows it, aligned as it is. */
typedef struct piece {
  _Alignas(64) struct piece *next;
} piece;

const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1}, int64 = {kDLInt, 64, 1},
                 boolean = {FL_DTYPE_BOOL, 8, 1};

void ok(fl_status status) {
  if (status)
    fail("%s", fl_error_message());
}

void *arena_take(arena *a, size_t size) {
  piece *p = aligned_alloc(sizeof *p, (size + 2 * sizeof *p - 1) / sizeof *p * sizeof *p);
  if (!p)
    fail("out of memory for %zu bytes", size);
  *p = (piece){a->pieces};
  a->pieces = p;
  a->total += size;
  a->most = a->total > a->most ? a->total : a->most;
  return p + 1;
}

void arena_reset(arena *a) {
  for (piece *next; a->pieces; a->pieces = next) {
    next = a->pieces->next;
    free(a->pieces);
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
  DLTensor *t = view(a, &(DLTensor){.device = {kDLCPU, 0}, .dtype = dtype}, 0, NULL, ndim, shape);
  t->data = arena_take(a, bytes(t));
  return t;
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

void *data(const DLTensor *t) {
  return (char *)t->data + t->byte_offset;
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
      memcpy((char *)data(to) + (size_t)(at + i) * size, (char *)data(from) + (size_t)begin * size, (size_t)row * size);
    else
      for (int64_t j = 0; j < row; j++)
        out->put(data(to), at + i + j, in->get(data(from), begin + j * step));
  }
}

DLTensor *converted(arena *a, DLTensor *t, DLDataType dtype) {
  if (!memcmp(&t->dtype, &dtype, sizeof dtype))
    return t;
  DLTensor *made = tensor(a, dtype, t->ndim, t->shape);
  put(made, 0, t);
  return made;
}
