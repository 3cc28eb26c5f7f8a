/* Tensors, and the memory that they are made in: see llm.h. */
#include "llm.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, LEAST = 1 << 20 };

/* Its memory follows it, aligned. */
typedef struct chunk {
  struct chunk *next;
  size_t size;
} chunk;

const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1}, int64 = {kDLInt, 64, 1},
                 boolean = {FL_DTYPE_BOOL, 8, 1};

_Noreturn void fail(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  fputs("llm: ", stderr);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
  va_end(arguments);
  exit(EXIT_FAILURE);
}

void ok(fl_status status) {
  if (status)
    fail("%s", fl_error_message());
}

static void add_chunk(arena *a, size_t size) {
  chunk *c = aligned_alloc(ALIGNMENT, ALIGNMENT + size);
  if (!c)
    fail("out of memory for %zu bytes", size);
  *c = (chunk){a->chunks, size};
  a->chunks = c;
  a->used = 0;
  a->total += size;
}

void *arena_take(arena *a, size_t size) {
  size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  if (!a->chunks || a->chunks->size - a->used < size)
    add_chunk(a, size > LEAST ? size : LEAST);
  a->used += size;
  return (char *)a->chunks + ALIGNMENT + a->used - size;
}

static void free_chunks(arena *a) {
  while (a->chunks) {
    chunk *next = a->chunks->next;
    free(a->chunks);
    a->chunks = next;
  }
}

void arena_reset(arena *a) {
  size_t total = a->total;
  a->used = 0;
  if (!a->chunks || !a->chunks->next)
    return;
  free_chunks(a);
  a->total = 0;
  add_chunk(a, total);
}

void arena_free(arena *a) {
  free_chunks(a);
  *a = (arena){0};
}

static DLTensor *describe(arena *a, DLDataType dtype, int ndim, const int64_t *shape) {
  struct {
    DLTensor tensor;
    int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  } *made = arena_take(a, sizeof *made);
  made->tensor = (DLTensor){.device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = made->shape};
  memcpy(made->shape, shape, (size_t)ndim * sizeof *shape);
  return &made->tensor;
}

DLTensor *tensor(arena *a, DLDataType dtype, int ndim, const int64_t *shape) {
  DLTensor *t = describe(a, dtype, ndim, shape);
  t->data = arena_take(a, bytes(t));
  return t;
}

DLTensor *view(arena *a, const DLTensor *of, int64_t offset, const int64_t *strides, int ndim, const int64_t *shape) {
  DLTensor *t = describe(a, of->dtype, ndim, shape);
  t->data = of->data;
  t->byte_offset = of->byte_offset + (uint64_t)offset * (of->dtype.bits / 8u);
  if (strides)
    t->strides = memcpy(t->shape + FL_MAX_DIMS, strides, (size_t)ndim * sizeof *strides);
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

DLTensor *converted(arena *a, DLTensor *t, DLDataType dtype) {
  if (!t || !memcmp(&t->dtype, &dtype, sizeof dtype))
    return t;
  const fl_element_type *from = fl_element_type_of(t->dtype), *to = fl_element_type_of(dtype);
  DLTensor *made = tensor(a, dtype, t->ndim, t->shape);
  for (int64_t i = 0, n = elements(t); i < n; i++)
    to->put(made->data, i, from->get(data(t), i));
  return made;
}
