/*
 * A vendor's library of operators (cuBLASLt, rocBLAS, cuDNN): opened when an op that needs it is first asked for, and
 * never linked; what is missing is said in words. A handle is made for a device when it is first needed, and kept.
 */
#ifndef FLHOST_GPU_LIBRARY_H
#define FLHOST_GPU_LIBRARY_H

#include "plugins/gpu/launch.h"

#include <pthread.h>

/* What a library's status means. */
typedef struct gpu_library_status {
  int code;
  const char *name;
  fl_status status;
} gpu_library_status;

typedef struct gpu_library {
  const char *title;                  /* "cuBLASLt" */
  const char *setting;                /* variable that names a library to open in its place */
  const gpu_symbol *symbols;          /* ended by a NULL name; all are needed */
  const gpu_symbol *optional;         /* ended by a NULL name; may be NULL */
  const gpu_library_status *statuses; /* ended by a NULL name; 0 is success in all libraries */
  /* Is it of a version that this plugin knows? NULL: any that has the symbols. */
  bool (*suits)(char *reason, size_t size);
  int (*create)(void **handle); /* on the device that was entered */
  int (*prepare)(void *handle); /* a handle that was just made; may be NULL */
  int (*destroy)(void *handle); /* when prepare() failed */
  /* What `code` means, in words; NULL: as `statuses` has it. */
  fl_status (*describe)(int code, char *words, size_t size);
  driver library;

  /* Filled here. Guarded by the lock; handles are read without it. */
  pthread_mutex_t lock;
  char *chosen; /* the setting's library; kept for the life of the process */
  bool bound;   /* every function was found */
  _Atomic(void *) handles[GPU_MAX_DEVICES];
  char reason[GPU_WORDS];
} gpu_library;

/* Reads the setting. At registration. */
void gpu_library_choose(gpu_library *l);

/* For gpu_op.is_ready: is the library there, with all that is needed? Makes the handle of the thread's device if the
 * thread uses one already. */
bool gpu_library_available(gpu_library *l, const char **reason);

/* The call's device, entered, and its handle; NULL with status and the call's message set, and nothing entered. Making
 * a handle allocates, which would spoil a capture: FL_ENOTSUP while the stream is captured. */
void *gpu_library_enter(gpu_library *l, const gpu_op *op, fl_call *call, gpu_device **device, gpu_scope *scope,
                        fl_status *status);

/* The status for an error that `step` met on behalf of `where`; fills `words`. */
fl_status gpu_library_failed(const gpu_library *l, int code, const char *where, const char *step, char *words,
                             size_t size);

#endif
