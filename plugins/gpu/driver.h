/*
 * A GPU's driver as the rest of this directory sees it: one table of functions for CUDA's driver API and for HIP. Which
 * of the two is decided when a plugin is linked: cuda_driver.c or hip_driver.c defines `gpu`. The driver's library is
 * opened on first need and never linked; what is missing is said in words.
 *
 * Where both vendors' functions agree, up to pointers and integers of a pointer's size, the table holds theirs; where
 * they do not, an adapter of these two files.
 */
#ifndef FLHOST_GPU_DRIVER_H
#define FLHOST_GPU_DRIVER_H

#include "plugins/driver.h"
#include "plugins/gpu/work_functions.h"

#include <flhost/plugin.h>
#include <pthread.h>
#include <stdatomic.h>

/* CUresult or hipError_t: the two agree on the codes that matter here. */
typedef int gpu_code;
enum {
  GPU_SUCCESS = 0,
  GPU_OUT_OF_MEMORY = 2,
  GPU_NOT_INITIALISED = 3,
  GPU_DEINITIALISED = 4,
  GPU_UNAVAILABLE = 46, /* another process has the device for itself, as long as that runs */
  GPU_NO_DEVICE = 100,
  GPU_INVALID_DEVICE = 101,
  GPU_NO_BINARY = 209,
  GPU_INVALID_PTX = 218,
  GPU_UNSUPPORTED_PTX = 222,
  GPU_NOT_SUPPORTED = 801
};

enum { GPU_MAX_DEVICES = 32, GPU_WORDS = 256, GPU_CAPTURE_RELAXED = 2 };

/* What is known of a device without using it. */
typedef struct gpu_properties {
  char arch[64];    /* "sm_90", "gfx90a:sramecc+:xnack-" */
  int major, minor; /* of the compute capability */
  int units;        /* multiprocessors, compute units */
  int warp;         /* threads that run in step */
  int shared_limit; /* bytes of shared memory that a block may ask for */
} gpu_properties;

/* A device in use. */
typedef struct gpu_device {
  int ordinal;
  gpu_properties properties;
  _Atomic(void *) context;       /* CUDA: the primary context, kept for the life of the process */
  _Atomic(gpu_code) lost;        /* the error after which nothing works any more; 0: none */
  _Atomic(const char *) lost_in; /* the op, or function, that met it */
  _Atomic(const char *) last_op; /* that was launched: the first suspect when waiting fails */
} gpu_device;

/* What leave() puts back. */
typedef struct gpu_scope {
  bool changed;
  int ordinal; /* HIP: the thread's device before */
} gpu_scope;

typedef struct gpu_functions {
  gpu_code (*initialise)(unsigned flags);
  gpu_code (*version)(int *version); /* works before initialise() */
  gpu_code (*count)(int *count);     /* before initialise() CUDA says GPU_NOT_INITIALISED */
  gpu_code (*describe)(int ordinal, gpu_properties *properties);
  gpu_code (*name)(char *name, int size, int ordinal);
  /* Bytes of memory; what is free may stay 0, not known, where finding out would take some. */
  gpu_code (*memory)(int ordinal, size_t *available, size_t *total);
  gpu_code (*current)(int *ordinal); /* the thread's device */
  /* Does the process use the driver already? Then the thread's device, -1 for none. Initialises nothing. */
  bool (*in_use)(int *ordinal);
  /* Makes the device the thread's, if it is not; leave() puts back what was. */
  gpu_code (*enter)(gpu_device *device, gpu_scope *scope);
  void (*leave)(const gpu_scope *scope);
  const char *(*error_name)(gpu_code code);

  /* About the device that was entered. */
  gpu_code (*load)(void **module, const void *image);
  gpu_code (*find)(void **function, void *module, const char *name);
  gpu_code (*allow_shared)(void *function, int bytes); /* more than every kernel may have */
  gpu_code (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                     unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **arguments, void **extra);
  gpu_code (*allocate)(void **memory, size_t size);
  gpu_code (*release)(void *memory);
  gpu_code (*copy)(void *to, const void *from, size_t size, int direction, void *stream); /* FL_COPY_* */
  gpu_code (*synchronize)(void *stream);
  gpu_code (*synchronize_all)(void);
  gpu_code (*capturing)(void *stream, int *status); /* 0: the stream is not being captured */
  /* What a capture by the thread forbids: takes *mode and gives what was. NULL: the driver cannot be asked. */
  gpu_code (*exchange_capture_mode)(int *mode);
} gpu_functions;

/* The handles and words of work_functions.h. A driver's addresses of device memory are as wide as pointers. */
typedef void *gpu_stream, *gpu_event, *gpu_pool, *gpu_address, *gpu_graph, *gpu_instance;
typedef int gpu_pool_attribute, gpu_capture_mode;

#define GPU_CONSTANT(name, value, cuda, hip) name = value,
enum { GPU_WORK_CONSTANTS(GPU_CONSTANT) GPU_CAPTURE_LAST = 908 };
#undef GPU_CONSTANT

/* CUmemPoolProps and hipMemPoolProps. */
typedef struct gpu_pool_properties {
  int kind;    /* GPU_MEMORY_PINNED */
  int handles; /* to share it with other processes: none */
  struct {
    int kind, ordinal; /* GPU_MEMORY_ON_DEVICE */
  } place;
  void *security;
  unsigned char reserved[64]; /* the limit of its size, and what is to come: 0 */
} gpu_pool_properties;

/* What an older driver may lack, each for itself. */
typedef enum gpu_part {
  GPU_STREAMS,
  GPU_EVENTS,
  GPU_HOST_MEMORY,
  GPU_POOLS,
  GPU_GRAPHS,
  GPU_HEALTH,
  GPU_N_PARTS
} gpu_part;

/* About the device that was entered. NULL: the driver has not all functions of that part. */
typedef struct gpu_work_functions {
#define GPU_FIELD(part, field, cuda, hip, arguments) gpu_code(*field) arguments;
  GPU_WORK_FUNCTIONS(GPU_FIELD)
#undef GPU_FIELD
} gpu_work_functions;

/* One of these by the name that it has in the driver's library. */
typedef struct gpu_work_symbol {
  gpu_part part;
  const char *name;
  void *slot;
} gpu_work_symbol;

/* A function of the driver's library, and where its address goes. */
typedef struct gpu_symbol {
  const char *name;
  void *slot; /* address of a function pointer */
} gpu_symbol;

typedef struct gpu_driver {
  const char *name;                    /* "cuda": of the platform, and of vendor.cuda */
  const char *title;                   /* "CUDA" */
  const char *impl_id;                 /* "vendor.cuda" */
  const char *min_arch;                /* "sm_80": what the kernels need, whatever they were compiled for */
  const char *setting;                 /* variable that names a library to open in the driver's place */
  int32_t device_type;                 /* of its tensors */
  bool tensor_cores;                   /* the kernels use them: GPU_HAS_TENSOR_CORES of kernels/tile.h */
  const gpu_symbol *symbols;           /* ended by a NULL name */
  const gpu_work_symbol *work_symbols; /* as well; an older driver may lack them */
  /* Looks up what a list of names cannot say. NULL: nothing. */
  bool (*bind)(const driver *library, char *reason, size_t size);
  bool (*arch_reaches)(const char *arch, const char *least); /* fl_platform.arch_reaches */
  /* Do the embedded kernels run on such a device, with such a driver? */
  bool (*suits)(const gpu_properties *properties, int version, char *reason, size_t size);
  gpu_functions call; /* filled when the library is opened */
  gpu_work_functions work;
  driver library;
} gpu_driver;

/* This plugin's. */
extern gpu_driver gpu;

/* Of driver.c, module.c, inquiry.c and work.c. A child process finds them free: the thread that had one is not there.
 */
enum { GPU_LOCK_DRIVER, GPU_LOCK_MODULES, GPU_LOCK_INQUIRY, GPU_LOCK_POOLS, GPU_N_LOCKS };
extern pthread_mutex_t gpu_locks[GPU_N_LOCKS];

/* The same for a lock of another file, for the life of the process. At registration. */
void gpu_free_after_fork(pthread_mutex_t *lock);

/* Reads the setting, and sees to the locks. At registration. */
void gpu_choose_library(void);

/* Is there a device node, and a driver library with all that is needed? Nothing is initialised, so that the process may
 * still fork. Any thread. */
bool gpu_present(const char **reason);

/* Has the driver, once it is open, the functions of that part? Fills `words`, on behalf of `where`, if not. */
bool gpu_has_part(gpu_part part, const char *where, char *words, size_t size);

/* Takes the thread's word on what its captures forbid, GPU_CAPTURE_RELAXED for instance, and gives what was; again, to
 * put that back. false: the driver does not know it. */
static inline bool gpu_exchange_capture_mode(int *mode) {
  return gpu.call.exchange_capture_mode && !gpu.call.exchange_capture_mode(mode);
}

/* Is the open library one of the tests' stand-ins? */
bool gpu_is_stand_in(void);

/* Initialises the driver in this process and lists its devices, once. */
fl_status gpu_open(const char **reason);
bool gpu_is_open(void);
/* After that: how many, and each. */
int gpu_count(void);
gpu_device *gpu_device_at(int ordinal);

/* Do the embedded kernels run on one of the devices? Asks in a child process unless the process uses the driver
 * already: a process that initialised a driver cannot fork any more. The answer is kept. Any thread. */
bool gpu_has_suitable_device(const char **reason);

/* A device by number, opened if need be; NULL, with status and words, when there is none of that number (FL_EINVAL) or
 * it cannot be used. */
gpu_device *gpu_find_device(int ordinal, fl_status *status, char *words, size_t size);

/* "CUDA_ERROR_OUT_OF_MEMORY (2)" */
const char *gpu_error_text(gpu_code code, char *text, size_t size);

/* The status for an error that `step` met on behalf of `where`, an op or a function of the platform; fills `words`.
 * After an error that makes the device useless, that is remembered. `device` may be NULL. */
fl_status gpu_failed(gpu_device *device, gpu_code code, const char *where, const char *step, char *words, size_t size);

/* Enters the device for `where`, until gpu.call.leave(); fills `words` where that fails. */
fl_status gpu_enter(gpu_device *device, gpu_scope *scope, const char *where, char *words, size_t size);

#endif
