/* Opens a vendor's library, and keeps a handle for each device: see library.h. */
#include "plugins/gpu/library.h"

#include <stdlib.h>

/* ---------------------------------------------------------------------------------------------------------- library */

void gpu_library_choose(gpu_library *l) {
  const char *path = secure_getenv(l->setting);
  gpu_free_after_fork(&l->lock);
  pthread_mutex_lock(&l->lock);
  if (path && *path && !l->library.library) {
    free(l->chosen);
    l->chosen = strdup(path);
  }
  pthread_mutex_unlock(&l->lock);
}

/* The engine's own copy goes first: torch brings one that no search path names. With the lock held. */
static bool open_library(gpu_library *l) {
  driver *d = &l->library;
  if (d->library)
    return true;
  if (l->chosen) {
    d->library = dlopen(l->chosen, RTLD_LAZY | RTLD_LOCAL);
    const char *words = d->library ? NULL : dlerror();
    if (!d->library)
      snprintf(l->reason, sizeof l->reason, "%s: %s", l->setting, words ? words : "dlopen failed");
    return d->library;
  }
  if (driver_open(d, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) || driver_open(d, RTLD_LAZY | RTLD_LOCAL))
    return true;
  snprintf(l->reason, sizeof l->reason, "%s, which computes it, is not there: %.180s", l->title, d->reason);
  return false;
}

/* With the lock held. */
static bool bind_functions(gpu_library *l) {
  if (l->bound)
    return true;
  if (!open_library(l))
    return false;
  for (const gpu_symbol *symbol = l->symbols; symbol->name; symbol++)
    if (!driver_find(&l->library, symbol->name, symbol->slot)) {
      snprintf(l->reason, sizeof l->reason, "%s lacks %s: is it too old?", l->title, symbol->name);
      return false;
    }
  for (const gpu_symbol *symbol = l->optional; symbol && symbol->name; symbol++)
    driver_find(&l->library, symbol->name, symbol->slot);
  return l->bound = !l->suits || l->suits(l->reason, sizeof l->reason);
}

/* ----------------------------------------------------------------------------------------------------------- errors */

fl_status gpu_library_failed(const gpu_library *l, int code, const char *where, const char *step, char *words,
                             size_t size) {
  const gpu_library_status *known = l->statuses;
  char text[GPU_WORDS];
  if (l->describe) {
    fl_status status = l->describe(code, text, sizeof text);
    snprintf(words, size, "%s: %s: %s: %s", where, l->title, step, text);
    return status;
  }
  while (known->name && known->code != code)
    known++;
  snprintf(words, size, "%s: %s: %s: %s (%d)", where, l->title, step, known->name ? known->name : "unknown error",
           code);
  return known->name ? known->status : FL_EINTERNAL;
}

/* ---------------------------------------------------------------------------------------------------------- handles */

/* With the lock held and the device entered. */
static int make_handle(gpu_library *l, gpu_device *device, void **handle) {
  int code = l->create(handle);
  if (code)
    return code;
  if (l->prepare && (code = l->prepare(*handle))) {
    l->destroy(*handle);
    return code;
  }
  atomic_store_explicit(&l->handles[device->ordinal], *handle, memory_order_release);
  return 0;
}

/* The handle of a device, which is entered. */
static void *find_handle(gpu_library *l, gpu_device *device, void *stream, const char *where, fl_status *status,
                         char *words, size_t size) {
  void *handle = atomic_load_explicit(&l->handles[device->ordinal], memory_order_acquire);
  *status = FL_OK;
  if (handle)
    return handle;
  if (gpu_is_captured(stream)) {
    snprintf(
        words, size,
        "%s: %s is not used on device %d yet, and cannot be made ready while a stream is captured; call the op once "
        "before",
        where, l->title, device->ordinal);
    *status = FL_ENOTSUP;
    return NULL;
  }
  pthread_mutex_lock(&l->lock);
  handle = atomic_load(&l->handles[device->ordinal]);
  int code = 0;
  if (!bind_functions(l)) {
    snprintf(words, size, "%s: %s", where, l->reason);
    *status = FL_ENOTSUP;
  } else if (!handle && (code = make_handle(l, device, &handle))) {
    *status = gpu_library_failed(l, code, where, "making a handle", words, size);
    handle = NULL;
  }
  pthread_mutex_unlock(&l->lock);
  return handle;
}

void *gpu_library_enter(gpu_library *l, const gpu_op *op, fl_call *call, gpu_device **device, gpu_scope *scope,
                        fl_status *status) {
  *device = gpu_call_device(op, call, status);
  if (!*device)
    return NULL;
  *status = gpu_enter(*device, scope, op->name, call->message, call->message_size);
  if (*status)
    return NULL;
  void *handle = find_handle(l, *device, call->stream, op->name, status, call->message, call->message_size);
  if (!handle)
    gpu.call.leave(scope);
  return handle;
}

bool gpu_library_available(gpu_library *l, const char **reason) {
  static char words[GPU_WORDS]; /* the host asks from one thread at a time */
  gpu_scope scope;
  fl_status status;
  int ordinal;
  *reason = l->reason;
  pthread_mutex_lock(&l->lock);
  bool bound = bind_functions(l);
  pthread_mutex_unlock(&l->lock);
  if (!bound || !gpu.call.in_use(&ordinal) || ordinal < 0)
    return bound;
  *reason = words;
  gpu_device *device = gpu_find_device(ordinal, &status, words, sizeof words);
  if (!device)
    return false;
  if (gpu_enter(device, &scope, l->title, words, sizeof words))
    return false;
  void *handle = find_handle(l, device, NULL, gpu.impl_id, &status, words, sizeof words);
  gpu.call.leave(&scope);
  return handle;
}
