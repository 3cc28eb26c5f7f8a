/* Watched tensors: see guarded.h. */
#include "cli/trials/guarded.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The pattern: a large finite number in every format, so that a kernel that reads it gives a wrong result. */
enum { MARGIN = 256, PATTERN = 0xfb, ALIGNMENT = 256, GAP = 3 };

static size_t item_size(const DLTensor *tensor) {
  return tensor->dtype.bits / 8u;
}

static int64_t count_elements(const DLTensor *tensor) {
  int64_t n = 1;
  for (int d = 0; d < tensor->ndim; d++)
    n *= tensor->shape[d];
  return n;
}

size_t guarded_bytes(const guarded *tensor) {
  return (size_t)count_elements(&tensor->tensor) * item_size(&tensor->tensor);
}

/* ----------------------------------------------------------------------------------------------------------- layout */

/* Sets the strides; the number of elements from the first to behind the last, gaps included. */
static int64_t lay_out(guarded *tensor, layout as) {
  int ndim = tensor->tensor.ndim;
  int64_t gap = as == LAYOUT_PADDED || as == LAYOUT_PERMUTED ? GAP : 0, extent = 1;
  for (int step = 0; step < ndim; step++) {
    /* From the inside: the last dimension, then the others, from behind or (permuted) from the front. */
    int d = !step || as != LAYOUT_PERMUTED ? ndim - 1 - step : step - 1;
    int64_t size = tensor->shape[d] ? tensor->shape[d] : 1;
    tensor->strides[d] = extent;
    extent = extent * size + gap;
  }
  tensor->tensor.strides = as == LAYOUT_COMPACT || !ndim ? NULL : tensor->strides;
  return extent;
}

/* Walks over rows: runs of elements along the last dimension. */
typedef struct row {
  char *at;      /* in the tensor's memory */
  size_t bytes;  /* of the run */
  int64_t first; /* linear index of its first element */
  int64_t left;  /* rows still to come, the present one included */
  int64_t index[FL_MAX_DIMS];
} row;

static row first_row(const guarded *tensor) {
  const DLTensor *t = &tensor->tensor;
  int64_t n = count_elements(t), length = t->ndim ? t->shape[t->ndim - 1] : 1;
  return (row){
      .at = tensor->memory + t->byte_offset, .bytes = (size_t)length * item_size(t), .left = n ? n / length : 0};
}

static void next_row(const guarded *tensor, row *r) {
  const DLTensor *t = &tensor->tensor;
  int64_t item = (int64_t)item_size(t);
  r->left--;
  r->first += t->ndim ? t->shape[t->ndim - 1] : 1;
  for (int d = t->ndim - 2; d >= 0; d--) {
    if (++r->index[d] < t->shape[d]) {
      r->at += fl_stride(t, d) * item;
      return;
    }
    r->at -= fl_stride(t, d) * item * (t->shape[d] - 1);
    r->index[d] = 0;
  }
}

/* ----------------------------------------------------------------------------------------------------------- memory */

static size_t page_size(void) {
  return (size_t)sysconf(_SC_PAGESIZE);
}

/* Whole pages, the first and the last of which cannot be touched. */
static char *map_pages(size_t size) {
  size_t page = page_size(), all = size + 2 * page;
  char *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return NULL;
  if (!mprotect(memory, page, PROT_NONE) && !mprotect(memory + page + size, page, PROT_NONE))
    return memory + page;
  munmap(memory, all);
  return NULL;
}

static void free_memory(guarded *tensor) {
  if (tensor->edge && tensor->memory)
    munmap(tensor->memory - page_size(), tensor->size + 2 * page_size());
  else
    free(tensor->memory);
}

static bool allocate(guarded *tensor, place at) {
  bool on_host = at.device.device_type == kDLCPU;
  tensor->device = (device_memory){0};
  tensor->memory = tensor->edge ? map_pages(tensor->size) : aligned_alloc(ALIGNMENT, tensor->size);
  tensor->kept = malloc(tensor->size);
  bool complete = tensor->memory && tensor->kept &&
                  (on_host || !device_memory_create(&tensor->device, at.host, at.device, tensor->size));
  tensor->tensor.device = at.device;
  tensor->tensor.data = on_host ? tensor->memory : tensor->device.memory;
  if (!complete)
    guarded_free(tensor);
  return complete;
}

/* Where the elements lie, and how much memory there is. */
static void place_elements(guarded *tensor, layout as, size_t item, size_t extent) {
  size_t unit = tensor->edge ? page_size() : (size_t)ALIGNMENT, offset = tensor->edge ? 0 : MARGIN;
  if (!tensor->edge && as == LAYOUT_STRIDES)
    offset += item;
  tensor->size = (offset + extent + (tensor->edge ? 0 : MARGIN) + unit - 1) / unit * unit;
  tensor->tensor.byte_offset = tensor->edge == EDGE_BEHIND ? tensor->size - extent : offset;
}

bool guarded_create(guarded *tensor, place at, const fl_tensor_spec *spec, layout as, memory_edge edge,
                    const void *data) {
  const char *from = data;
  memset(tensor, 0, sizeof *tensor);
  tensor->edge = at.device.device_type == kDLCPU ? edge : EDGE_NONE;
  memcpy(tensor->shape, spec->shape, sizeof tensor->shape);
  tensor->tensor = (DLTensor){.ndim = spec->ndim, .dtype = spec->dtype, .shape = tensor->shape};
  size_t item = item_size(&tensor->tensor), extent = (size_t)lay_out(tensor, as) * item;
  place_elements(tensor, as, item, extent);
  if (!allocate(tensor, at))
    return false;
  memset(tensor->memory, PATTERN, tensor->size);
  for (row r = first_row(tensor); from && r.left; next_row(tensor, &r)) {
    memcpy(r.at, from, r.bytes);
    from += r.bytes;
  }
  memcpy(tensor->kept, tensor->memory, tensor->size);
  return true;
}

bool guarded_clone(guarded *clone, const guarded *tensor) {
  *clone = *tensor;
  clone->tensor.shape = clone->shape;
  clone->tensor.strides = tensor->tensor.strides ? clone->strides : NULL;
  if (!allocate(clone, (place){tensor->device.host, tensor->tensor.device}))
    return false;
  memcpy(clone->kept, tensor->kept, tensor->size);
  memcpy(clone->memory, tensor->kept, tensor->size);
  return true;
}

void guarded_free(guarded *tensor) {
  device_memory_free(&tensor->device);
  free_memory(tensor);
  free(tensor->kept);
  memset(tensor, 0, sizeof *tensor);
}

fl_status guarded_reset(guarded *tensor) {
  memcpy(tensor->memory, tensor->kept, tensor->size);
  return tensor->device.memory ? device_memory_put(&tensor->device, tensor->kept) : FL_OK;
}

fl_status guarded_fetch(guarded *tensor) {
  return tensor->device.memory ? device_memory_get(&tensor->device, tensor->memory) : FL_OK;
}

void guarded_view(guarded *view, const guarded *memory, const DLTensor *like, size_t at) {
  guarded made = *memory; /* `like` may lie in `view` */
  made.device = (device_memory){0};
  for (int d = 0; d < like->ndim; d++) {
    made.shape[d] = like->shape[d];
    made.strides[d] = fl_stride(like, d);
  }
  made.tensor = (DLTensor){.ndim = like->ndim,
                           .dtype = like->dtype,
                           .shape = view->shape,
                           .strides = like->strides ? view->strides : NULL,
                           .byte_offset = at};
  *view = made;
}

void guarded_put(const guarded *tensor, const void *data) {
  const char *from = data;
  for (row r = first_row(tensor); r.left; next_row(tensor, &r)) {
    memcpy(tensor->kept + (r.at - tensor->memory), from, r.bytes);
    from += r.bytes;
  }
}

void guarded_accept(const guarded *tensor) {
  for (row r = first_row(tensor); r.left; next_row(tensor, &r))
    memcpy(tensor->kept + (r.at - tensor->memory), r.at, r.bytes);
}

void guarded_read(const guarded *tensor, void *data) {
  char *to = data;
  for (row r = first_row(tensor); r.left; next_row(tensor, &r)) {
    memcpy(to, r.at, r.bytes);
    to += r.bytes;
  }
}

/* ---------------------------------------------------------------------------------------------------------- looking */

void format_index(const DLTensor *tensor, int64_t element, char *text, size_t size) {
  int64_t index[FL_MAX_DIMS];
  size_t length = (size_t)snprintf(text, size, "[");
  for (int d = tensor->ndim - 1; d >= 0; d--) {
    index[d] = element % tensor->shape[d];
    element /= tensor->shape[d];
  }
  for (int d = 0; d < tensor->ndim && length < size; d++)
    length += (size_t)snprintf(text + length, size - length, "%s%" PRId64, d ? ", " : "", index[d]);
  if (length < size)
    snprintf(text + length, size - length, "]");
}

/* Words for the byte at `offset` of the memory. */
static void describe(const guarded *tensor, size_t offset, char *where, size_t size) {
  const char *at = tensor->memory + offset;
  const char *first = tensor->memory + tensor->tensor.byte_offset, *before = NULL, *end = first;
  size_t item = item_size(&tensor->tensor), distance;
  int64_t element = 0;
  char index[160];
  for (row r = first_row(tensor); r.left; next_row(tensor, &r)) {
    if (at >= r.at && at < r.at + r.bytes) {
      format_index(&tensor->tensor, r.first + (int64_t)((size_t)(at - r.at) / item), index, sizeof index);
      snprintf(where, size, "element %s", index);
      return;
    }
    if (r.at + r.bytes > end)
      end = r.at + r.bytes;
    if (at >= r.at + r.bytes && (!before || r.at + r.bytes > before)) {
      before = r.at + r.bytes;
      element = r.first + (int64_t)(r.bytes / item) - 1;
    }
  }
  distance = at < first ? (size_t)(first - at) : (size_t)(at - (before ? before : first)) + 1;
  if (at < first || !before) {
    snprintf(where, size, "%zu byte%s %s", distance, distance == 1 ? "" : "s",
             at < first ? "before the first element" : "into a tensor without elements");
    return;
  }
  format_index(&tensor->tensor, element, index, sizeof index);
  snprintf(where, size, "%s %zu byte%s behind %selement %s", at < end ? "the gap between rows," : "the memory",
           distance, distance == 1 ? "" : "s", at < end ? "" : "the last ", index);
}

/* First byte that differs, `n` if none does. */
static size_t first_difference(const char *a, const char *b, size_t n) {
  size_t i = 0;
  if (!memcmp(a, b, n))
    return n;
  while (a[i] == b[i])
    i++;
  return i;
}

bool guarded_is_beyond(const guarded *tensor, const void *address, char *where, size_t size) {
  const char *at = address, *begin = tensor->memory, *end = begin + tensor->size;
  size_t page = page_size(), distance;
  if (!tensor->edge || at < begin - page || at >= end + page || (at >= begin && at < end))
    return false;
  if (at < begin) {
    distance = (size_t)(begin - at);
    snprintf(where, size, "%zu byte%s before the first element", distance, distance == 1 ? "" : "s");
  } else {
    distance = (size_t)(at - end);
    if (!distance)
      snprintf(where, size, "right behind the last element");
    else
      snprintf(where, size, "%zu byte%s behind the last element", distance, distance == 1 ? "" : "s");
  }
  return true;
}

bool guarded_is_intact(const guarded *tensor, bool may_change, char *where, size_t size) {
  char *shadow = NULL;
  size_t at = first_difference(tensor->memory, tensor->kept, tensor->size);
  if (at == tensor->size)
    return true;
  if (may_change) {
    /* What it would be if nothing but elements had changed. */
    shadow = malloc(tensor->size);
    if (!shadow) {
      snprintf(where, size, "(out of memory)");
      return false;
    }
    memcpy(shadow, tensor->kept, tensor->size);
    for (row r = first_row(tensor); r.left; next_row(tensor, &r))
      memcpy(shadow + (r.at - tensor->memory), r.at, r.bytes);
    at = first_difference(tensor->memory, shadow, tensor->size);
    free(shadow);
    if (at == tensor->size)
      return true;
  }
  describe(tensor, at, where, size);
  return false;
}

bool guarded_same(const guarded *a, const guarded *b, int64_t *element) {
  size_t item = item_size(&a->tensor);
  for (row r = first_row(a); r.left; next_row(a, &r)) {
    size_t at = first_difference(r.at, b->memory + (r.at - a->memory), r.bytes);
    if (at < r.bytes) {
      *element = r.first + (int64_t)(at / item);
      return false;
    }
  }
  return true;
}
