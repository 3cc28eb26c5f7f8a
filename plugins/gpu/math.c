/* Opens the library of matrix products, and keeps a handle for each device: see math.h. */
#include "plugins/gpu/math.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/auxv.h>

/* Guarded by the lock; handles are read without it. */
static struct {
  pthread_mutex_t lock;
  char *chosen; /* the setting's library; kept for the life of the process */
  bool bound;   /* every function was found */
  _Atomic(void *) handles[GPU_MAX_DEVICES];
  char reason[GPU_WORDS];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---------------------------------------------------------------------------------------------------------- library */

void gpu_math_choose_library(void) {
  const char *path = getauxval(AT_SECURE) ? NULL : getenv(gpu_math.setting);
  pthread_mutex_lock(&state.lock);
  if (path && *path && !gpu_math.library.library) {
    free(state.chosen);
    state.chosen = strdup(path);
  }
  pthread_mutex_unlock(&state.lock);
}

/* The engine's own copy goes first: torch brings one that no search path names. With the lock held. */
static bool open_library(void) {
  driver *d = &gpu_math.library;
  if (d->library)
    return true;
  if (state.chosen) {
    d->library = dlopen(state.chosen, RTLD_LAZY | RTLD_LOCAL);
    const char *words = d->library ? NULL : dlerror();
    if (!d->library)
      snprintf(state.reason, sizeof state.reason, "%s: %s", gpu_math.setting, words ? words : "dlopen failed");
    return d->library;
  }
  if (driver_open(d, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) || driver_open(d, RTLD_LAZY | RTLD_LOCAL))
    return true;
  snprintf(state.reason, sizeof state.reason, "%s, which computes it, is not there: %.180s", gpu_math.title, d->reason);
  return false;
}

/* With the lock held. */
static bool bind_functions(void) {
  if (state.bound)
    return true;
  if (!open_library())
    return false;
  for (const gpu_symbol *symbol = gpu_math.symbols; symbol->name; symbol++)
    if (!driver_find(&gpu_math.library, symbol->name, symbol->slot)) {
      snprintf(state.reason, sizeof state.reason, "%s lacks %s: is it too old?", gpu_math.title, symbol->name);
      return false;
    }
  for (const gpu_symbol *symbol = gpu_math.optional; symbol->name; symbol++)
    driver_find(&gpu_math.library, symbol->name, symbol->slot);
  return state.bound = true;
}

/* ----------------------------------------------------------------------------------------------------------- errors */

static fl_status describe(int code, const char *where, const char *step, char *words, size_t size) {
  const gpu_math_status *known = gpu_math.statuses;
  while (known->name && known->code != code)
    known++;
  snprintf(words, size, "%s: %s: %s: %s (%d)", where, gpu_math.title, step, known->name ? known->name : "unknown error",
           code);
  return known->name ? known->status : FL_EINTERNAL;
}

/* ---------------------------------------------------------------------------------------------------------- handles */

/* With the lock held and the device entered. */
static int make_handle(gpu_device *device, void **handle) {
  int code = gpu_math.create(handle);
  if (code)
    return code;
  if (gpu_math.prepare && (code = gpu_math.prepare(*handle))) {
    gpu_math.destroy(*handle);
    return code;
  }
  atomic_store_explicit(&state.handles[device->ordinal], *handle, memory_order_release);
  return 0;
}

/* The device's handle, with the device entered; NULL with status and words. Making one allocates, which would spoil a
 * capture. */
static void *find_handle(gpu_device *device, void *stream, const char *where, fl_status *status, char *words,
                         size_t size) {
  void *handle = atomic_load_explicit(&state.handles[device->ordinal], memory_order_acquire);
  *status = FL_OK;
  if (handle)
    return handle;
  if (gpu_is_captured(stream)) {
    snprintf(
        words, size,
        "%s: %s is not used on device %d yet, and cannot be made ready while a stream is captured; call the op once "
        "before",
        where, gpu_math.title, device->ordinal);
    *status = FL_ENOTSUP;
    return NULL;
  }
  pthread_mutex_lock(&state.lock);
  handle = atomic_load(&state.handles[device->ordinal]);
  int code = 0;
  if (!bind_functions()) {
    snprintf(words, size, "%s: %s", where, state.reason);
    *status = FL_ENOTSUP;
  } else if (!handle && (code = make_handle(device, &handle))) {
    *status = describe(code, where, "making a handle", words, size);
    handle = NULL;
  }
  pthread_mutex_unlock(&state.lock);
  return handle;
}

bool gpu_math_available(const char **reason) {
  static char words[GPU_WORDS]; /* the host asks from one thread at a time */
  gpu_scope scope;
  fl_status status;
  int ordinal;
  *reason = state.reason;
  pthread_mutex_lock(&state.lock);
  bool bound = bind_functions();
  pthread_mutex_unlock(&state.lock);
  if (!bound || !gpu.call.in_use(&ordinal) || ordinal < 0)
    return bound;
  *reason = words;
  gpu_device *device = gpu_find_device(ordinal, &status, words, sizeof words);
  if (!device)
    return false;
  gpu_code code = gpu.call.enter(device, &scope);
  if (code) {
    gpu_failed(device, code, gpu_math.title, "choosing the device", words, sizeof words);
    return false;
  }
  void *handle = find_handle(device, NULL, gpu.impl_id, &status, words, sizeof words);
  gpu.call.leave(&scope);
  return handle;
}

/* --------------------------------------------------------------------------------------------------------- products */

/* Both libraries want rows that do not overlap, and sizes of 32 bits. */
bool gpu_math_takes(const gpu_product *p, const char **reason) {
  const char *none, **why = reason ? reason : &none;
  *why = p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX || p->x_stride > INT32_MAX ||
                 p->weight_stride > INT32_MAX || p->out_stride > INT32_MAX
             ? "a matrix of more than 2147483647 rows or columns"
         : (p->m > 1 && (p->x_stride < p->k || p->out_stride < p->n)) || (p->n > 1 && p->weight_stride < p->k)
             ? "a matrix whose rows overlap"
             : NULL;
  return !*why;
}

/* A single row's stride says nothing: any that the library takes will do. */
static gpu_product with_strides(const gpu_product *product) {
  gpu_product p = *product;
  p.x_stride = p.x_stride < p.k ? p.k : p.x_stride;
  p.weight_stride = p.weight_stride < p.k ? p.k : p.weight_stride;
  p.out_stride = p.out_stride < p.n ? p.n : p.out_stride;
  return p;
}

size_t gpu_product_workspace(const gpu_op *op, const fl_call *call, const gpu_product *product) {
  char words[GPU_WORDS];
  fl_call question = *call;
  fl_status status;
  gpu_scope scope;
  gpu_product p = with_strides(product);
  size_t size = 0;
  question.message = NULL;
  gpu_device *device = gpu_call_device(op, &question, &status);
  if (!device || gpu.call.enter(device, &scope))
    return 0;
  void *handle = find_handle(device, call->stream, op->name, &status, words, sizeof words);
  if (handle)
    size = gpu_math.workspace(device->ordinal, handle, &p);
  gpu.call.leave(&scope);
  return size;
}

fl_status gpu_multiply(const gpu_op *op, fl_call *call, const gpu_product *product) {
  fl_status status;
  gpu_scope scope;
  gpu_product p = with_strides(product);
  gpu_device *device = gpu_call_device(op, call, &status);
  if (!device)
    return status;
  gpu_code entered = gpu.call.enter(device, &scope);
  if (entered)
    return gpu_failed(device, entered, op->name, "choosing the device", call->message, call->message_size);
  void *handle = find_handle(device, call->stream, op->name, &status, call->message, call->message_size);
  int code = 0;
  if (handle) {
    code = gpu_math.multiply(device->ordinal, handle, &p, call->workspace, call->workspace ? call->workspace_size : 0,
                             call->stream);
    gpu_note_launch(device, op->name);
  }
  gpu.call.leave(&scope);
  return code ? describe(code, op->name, "a matrix product", call->message, call->message_size) : status;
}
