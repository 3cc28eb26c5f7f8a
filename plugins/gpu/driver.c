/* Opens a GPU's driver and keeps what is known of its devices: see driver.h. */
#include "plugins/gpu/driver.h"

#include <pthread.h>
#include <stdlib.h>

pthread_mutex_t gpu_locks[GPU_N_LOCKS] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER,
                                          PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};

/* Guarded by GPU_LOCK_DRIVER until `opened` is set; then the devices' numbers and properties stay as they are. */
static struct {
  char *chosen;                     /* the setting's library; kept for the life of the process */
  bool bound;                       /* every function was found */
  const char *missing[GPU_N_PARTS]; /* the first function that the driver lacks of that part; NULL: none */
  atomic_bool opened;
  fl_status status;
  char reason[GPU_WORDS];
  int n;
  gpu_device devices[GPU_MAX_DEVICES];
} state;

/* What they guard is good without the thread that had one: it is done, or will be done again. */
enum { MOST_LOCKS = 8 };
static pthread_mutex_t *_Atomic more_locks[MOST_LOCKS];

static void free_locks(void) {
  for (int i = 0; i < GPU_N_LOCKS; i++)
    pthread_mutex_init(&gpu_locks[i], NULL);
  for (int i = 0; i < MOST_LOCKS && more_locks[i]; i++)
    pthread_mutex_init(more_locks[i], NULL);
}

void gpu_free_after_fork(pthread_mutex_t *lock) {
  for (int i = 0; i < MOST_LOCKS; i++) {
    pthread_mutex_t *there = NULL;
    if (atomic_compare_exchange_strong(&more_locks[i], &there, lock) || there == lock)
      return;
  }
}

static void guard_forks(void) {
  pthread_atfork(NULL, NULL, free_locks);
}

/* ---------------------------------------------------------------------------------------------------------- library */

void gpu_choose_library(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  const char *path = secure_getenv(gpu.setting);
  pthread_once(&once, guard_forks);
  pthread_mutex_lock(&gpu_locks[GPU_LOCK_DRIVER]);
  if (path && *path && !gpu.library.library) {
    free(state.chosen);
    state.chosen = strdup(path);
  }
  pthread_mutex_unlock(&gpu_locks[GPU_LOCK_DRIVER]);
}

/* What stands in the driver's place needs no device. */
static bool open_chosen(const char **reason) {
  *reason = gpu.library.reason;
  if (!gpu.library.library)
    gpu.library.library = dlopen(state.chosen, RTLD_LAZY | RTLD_LOCAL);
  if (gpu.library.library)
    return true;
  const char *words = dlerror();
  snprintf(gpu.library.reason, sizeof gpu.library.reason, "%s: %s", gpu.setting, words ? words : "dlopen failed");
  return false;
}

static const char *name_of_library(void) {
  return state.chosen ? state.chosen : gpu.library.libraries[0];
}

static void bind_work(void) {
  for (const gpu_work_symbol *symbol = gpu.work_symbols; symbol->name; symbol++)
    if (!driver_find(&gpu.library, symbol->name, symbol->slot) && !state.missing[symbol->part])
      state.missing[symbol->part] = symbol->name;
}

static bool bind_functions(const char **reason) {
  *reason = gpu.library.reason;
  for (const gpu_symbol *symbol = gpu.symbols; symbol->name && !state.bound; symbol++)
    if (!driver_find(&gpu.library, symbol->name, symbol->slot)) {
      snprintf(gpu.library.reason, sizeof gpu.library.reason, "the driver library %s lacks %s: is it too old?",
               name_of_library(), symbol->name);
      return false;
    }
  if (!state.bound)
    bind_work();
  state.bound = state.bound || !gpu.bind || gpu.bind(&gpu.library, gpu.library.reason, sizeof gpu.library.reason);
  return state.bound;
}

bool gpu_present(const char **reason) {
  pthread_mutex_lock(&gpu_locks[GPU_LOCK_DRIVER]);
  bool present = (state.chosen ? open_chosen(reason) : driver_present(&gpu.library, reason)) && bind_functions(reason);
  pthread_mutex_unlock(&gpu_locks[GPU_LOCK_DRIVER]);
  return present;
}

bool gpu_has_part(gpu_part part, const char *where, char *words, size_t size) {
  if (state.missing[part])
    snprintf(words, size, "%s: the driver library %s lacks %s: is it too old?", where, name_of_library(),
             state.missing[part]);
  return !state.missing[part];
}

bool gpu_is_stand_in(void) {
  void *marker;
  return driver_find(&gpu.library, "flhost_stand_in_driver", &marker);
}

/* ----------------------------------------------------------------------------------------------------------- errors */

const char *gpu_error_text(gpu_code code, char *text, size_t size) {
  const char *name = gpu.call.error_name ? gpu.call.error_name(code) : NULL;
  snprintf(text, size, "%s (%d)", name ? name : "unknown error", code);
  return text;
}

/* Errors after which the device's context is of no use any more. */
static bool is_final(gpu_code code) {
  static const gpu_code codes[] = {214 /* ECC */,
                                   220 /* NVLink */,
                                   226 /* contained */,
                                   700 /* illegal address */,
                                   702 /* timeout */,
                                   709 /* no context left */,
                                   710 /* assertion */,
                                   714 /* hardware stack */,
                                   715 /* instruction */,
                                   716 /* alignment */,
                                   717 /* address space */,
                                   718 /* program counter */,
                                   719 /* launch failure */,
                                   721 /* tensor memory leak */};
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
    if (codes[i] == code)
      return true;
  return false;
}

/* What the code means to who reads it, where its name does not say it. */
static const char *hint(gpu_code code) {
  switch (code) {
  case GPU_NOT_INITIALISED:
  case GPU_DEINITIALISED:
    return "; was the process forked after the driver was initialised, or is it ending?";
  case GPU_UNSUPPORTED_PTX:
    return "; the driver is older than the compiler of these kernels";
  default:
    return "";
  }
}

static fl_status status_of(gpu_code code) {
  switch (code) {
  case GPU_OUT_OF_MEMORY:
    return FL_ENOMEM;
  case GPU_NOT_INITIALISED:
  case GPU_DEINITIALISED:
  case GPU_UNAVAILABLE:
  case GPU_NO_DEVICE:
  case GPU_INVALID_DEVICE:
    return FL_EDEVICE;
  case GPU_NO_BINARY:
  case GPU_INVALID_PTX:
  case GPU_UNSUPPORTED_PTX:
  case GPU_NOT_SUPPORTED:
    return FL_ENOTSUP;
  default:
    return is_final(code) ? FL_EDEVICE : FL_EINTERNAL;
  }
}

fl_status gpu_failed(gpu_device *device, gpu_code code, const char *where, const char *step, char *words, size_t size) {
  char text[64];
  gpu_code none = 0;
  gpu_error_text(code, text, sizeof text);
  if (!device || !is_final(code)) {
    snprintf(words, size, "%s: %s: %s%s", where, step, text, hint(code));
    return status_of(code);
  }
  const char *last = atomic_load(&device->last_op);
  if (atomic_compare_exchange_strong(&device->lost, &none, code))
    atomic_store(&device->lost_in, where);
  snprintf(words, size, "%s: %s: device %d is lost: %s, from this call or an earlier one%s%s%s", where, step,
           device->ordinal, text, last ? " (the last launch was for '" : "", last ? last : "", last ? "')" : "");
  return FL_EDEVICE;
}

fl_status gpu_enter(gpu_device *device, gpu_scope *scope, const char *where, char *words, size_t size) {
  gpu_code code = gpu.call.enter(device, scope);
  return code ? gpu_failed(device, code, where, "choosing the device", words, size) : FL_OK;
}

/* ---------------------------------------------------------------------------------------------------------- devices */

/* With the lock held. */
static fl_status open_devices(void) {
  int n = 0;
  const char *step = "initialisation";
  gpu_code code = gpu.call.initialise(0);
  if (!code) {
    step = "counting the devices";
    code = gpu.call.count(&n);
  }
  if (n > GPU_MAX_DEVICES)
    n = GPU_MAX_DEVICES;
  for (int i = 0; i < n && !code; i++) {
    step = "asking a device for its properties";
    state.devices[i].ordinal = i;
    code = gpu.call.describe(i, &state.devices[i].properties);
  }
  if (code == GPU_NO_DEVICE || (!code && !n)) {
    snprintf(state.reason, sizeof state.reason, "the driver reports no device");
    return FL_EDEVICE;
  }
  state.n = code ? 0 : n;
  return code ? gpu_failed(NULL, code, gpu.title, step, state.reason, sizeof state.reason) : FL_OK;
}

fl_status gpu_open(const char **reason) {
  if (atomic_load_explicit(&state.opened, memory_order_acquire)) {
    *reason = state.reason;
    return state.status;
  }
  if (!gpu_present(reason))
    return FL_EDEVICE;
  pthread_mutex_lock(&gpu_locks[GPU_LOCK_DRIVER]);
  if (!atomic_load(&state.opened)) {
    state.status = open_devices();
    atomic_store_explicit(&state.opened, true, memory_order_release);
  }
  pthread_mutex_unlock(&gpu_locks[GPU_LOCK_DRIVER]);
  *reason = state.reason;
  return state.status;
}

bool gpu_is_open(void) {
  return atomic_load_explicit(&state.opened, memory_order_acquire);
}

int gpu_count(void) {
  return state.n;
}

gpu_device *gpu_device_at(int ordinal) {
  return &state.devices[ordinal];
}

gpu_device *gpu_find_device(int ordinal, fl_status *status, char *words, size_t size) {
  const char *reason;
  char text[64];
  *status = gpu_open(&reason);
  if (*status) {
    snprintf(words, size, "%s", reason);
    return NULL;
  }
  if (ordinal < 0 || ordinal >= state.n) {
    snprintf(words, size, "there is no %s device %d; the driver reports %d", gpu.title, ordinal, state.n);
    *status = FL_EINVAL;
    return NULL;
  }
  gpu_device *device = &state.devices[ordinal];
  gpu_code lost = atomic_load_explicit(&device->lost, memory_order_relaxed);
  if (!lost)
    return device;
  const char *where = atomic_load(&device->lost_in);
  snprintf(words, size, "device %d was lost in %s, or in a call before it: %s; the process has to be started anew",
           ordinal, where ? where : "a call", gpu_error_text(lost, text, sizeof text));
  *status = FL_EDEVICE;
  return NULL;
}
