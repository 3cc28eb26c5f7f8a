/*
 * What DLPack 1 has beyond the release in Debian 12 (0.6): tensors with a version, and the functions that a library of
 * tensors hands out by the attribute __dlpack_c_exchange_api__ of its type (1.2). The names are our own, so that a
 * newer header does not meet them.
 */
#ifndef FLHOST_PYTHON_DLPACK_1_H
#define FLHOST_PYTHON_DLPACK_1_H

#include <dlpack/dlpack.h>
#include <stdint.h>

enum { DLPACK_1_READ_ONLY = 1 << 0 };

typedef struct dlpack_version {
  uint32_t major, minor;
} dlpack_version;

/* What a capsule named "dltensor_versioned" holds. With another major version only `deleter` may be used. */
typedef struct dlpack_versioned {
  dlpack_version version;
  void *manager_context;
  void (*deleter)(struct dlpack_versioned *self); /* may be NULL */
  uint64_t flags;                                 /* DLPACK_1_READ_ONLY… */
  DLTensor tensor;
} dlpack_versioned;

typedef struct dlpack_exchange_header {
  dlpack_version version;
  struct dlpack_exchange_header *previous; /* functions of an older major version; NULL: none */
} dlpack_exchange_header;

/* Each returns 0, or another number with a Python exception set; none waits for a stream. The GIL is held. */
typedef struct dlpack_exchange {
  dlpack_exchange_header header;
  /* A new tensor, by the prototype's shape, dtype and device; an error goes to `set_error` instead. */
  int (*allocate)(DLTensor *prototype, dlpack_versioned **made, void *error_context,
                  void (*set_error)(void *error_context, const char *kind, const char *message));
  int (*to_managed)(void *object, dlpack_versioned **managed);
  int (*to_object)(dlpack_versioned *managed, void **object); /* takes `managed` over */
  int (*borrow)(void *object, DLTensor *tensor); /* for as long as the object is not changed; may be NULL */
  int (*current_stream)(int device_type, int32_t device, void **stream);
} dlpack_exchange;

#endif /* FLHOST_PYTHON_DLPACK_1_H */
