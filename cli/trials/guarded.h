/*
 * Tensors in memory that is watched: a margin around the elements and the gaps between strided rows hold a pattern, and
 * a copy of everything is kept, so that whatever a kernel writes where it must not is found. On a device the margins
 * lie there; its memory is looked at on the host, once it was fetched.
 */
#ifndef FLHOST_CLI_TRIALS_GUARDED_H
#define FLHOST_CLI_TRIALS_GUARDED_H

#include "cli/trials/device.h"

typedef enum layout {
  LAYOUT_COMPACT, /* no strides */
  LAYOUT_STRIDES, /* compact, with strides, and not at the beginning of a cache line */
  LAYOUT_PADDED,  /* gaps after each row and each further dimension */
  LAYOUT_PERMUTED /* leading dimensions lie in memory in the opposite order, rows have gaps */
} layout;

/* Where the elements lie in memory of the processor. */
typedef enum memory_edge {
  EDGE_NONE,   /* within a margin that is looked at afterwards */
  EDGE_BEHIND, /* the last one before a page that cannot be touched */
  EDGE_BEFORE  /* the first one behind such a page */
} memory_edge;

/* Stays where it is: `tensor` points into it. */
typedef struct guarded {
  DLTensor tensor;
  int64_t shape[FL_MAX_DIMS], strides[FL_MAX_DIMS];
  char *memory, *kept; /* the copy, of the same size */
  size_t size;
  memory_edge edge;     /* if there is one, `memory` is whole pages with one on either side that cannot be touched */
  device_memory device; /* where `tensor` lies, of which `memory` is an image; none: `memory` itself */
} guarded;

/* Where tensors are made. */
typedef struct place {
  fl_host *host;
  DLDevice device;
} place;

/* Makes a tensor whose elements are those of `data` (compact), or the pattern (NULL). On a device there are no edges.
 * false: out of memory. */
bool guarded_create(guarded *tensor, place at, const fl_tensor_spec *spec, layout as, memory_edge edge,
                    const void *data);
void guarded_free(guarded *tensor);

/* A tensor of the same layout with the kept contents, for another thread. false: out of memory. */
bool guarded_clone(guarded *clone, const guarded *tensor);

/* Puts the kept contents back, and gets what a device has made of them. An error is the device's. */
fl_status guarded_reset(guarded *tensor);
fl_status guarded_fetch(guarded *tensor);

/* Does the address lie on a page that cannot be touched? Then says in `where` how far: "12 bytes behind the last
 * element". */
bool guarded_is_beyond(const guarded *tensor, const void *address, char *where, size_t size);

/* A tensor of the shape and strides of `like` in the memory of another, whose first element lies `at` bytes from where
 * that begins. It goes with that memory, and has no tensor to be passed. */
void guarded_view(guarded *view, const guarded *memory, const DLTensor *like, size_t at);

/* Takes elements (compact), or those that are there now, for what is kept. */
void guarded_put(const guarded *tensor, const void *data);
void guarded_accept(const guarded *tensor);

/* Copies the elements, in order, to `data`; guarded_bytes() says how many bytes. */
void guarded_read(const guarded *tensor, void *data);
size_t guarded_bytes(const guarded *tensor);

/* Is everything as it was kept? With `may_change` its elements may differ. Else says in `where` which byte is not:
 * "element [2, 0]", "3 bytes behind the last element", "the gap between rows, 1 byte behind element [0, 6]". */
bool guarded_is_intact(const guarded *tensor, bool may_change, char *where, size_t size);

/* Same bits? Else sets *element to the linear index of the first element that differs. */
bool guarded_same(const guarded *a, const guarded *b, int64_t *element);

/* "[2, 0]" for the linear index of an element. */
void format_index(const DLTensor *tensor, int64_t element, char *text, size_t size);

#endif
