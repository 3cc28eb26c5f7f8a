/*
 * FlagCX behind plugins/nccl/library.h: finds and opens the library, and does what differs from NCCL: ids by pointer,
 * groups of a communicator, streams that are wrapped.
 */
#include "plugins/nccl/library.h"
#include "plugins/flagcx/flagcx_functions.h"

#include <limits.h>

/* 0.13 takes ids by pointer; older ones made their own. */
enum { LEAST_VERSION = 1300, WORDS = 512, VENDOR_SIZE = 256 };

typedef int flagcxResult_t, flagcxDataType_t, flagcxRedOp_t;
typedef void *flagcxComm_t, *flagcxStream_t, *flagcxUniqueId_t;

typedef struct flagcxDeviceHandle {
#define FLAGCX_ENTRY(field, arguments) flagcxResult_t(*field) arguments;
  FLAGCX_DEVICE_HANDLE(FLAGCX_ENTRY)
#undef FLAGCX_ENTRY
} * flagcxDeviceHandle_t;

#define SAME_NUMBER(name, value) _Static_assert(nccl##name == (value), "FlagCX's numbers are NCCL's");
FLAGCX_CONSTANTS(SAME_NUMBER)
#undef SAME_NUMBER

nccl_calls nccl;

static struct {
#define FLAGCX_FIELD(name, field, result, arguments) result(*field) arguments;
  FLAGCX_FUNCTIONS(FLAGCX_FIELD)
#undef FLAGCX_FIELD
} of_library;

static const gpu_symbol symbols[] = {
#define FLAGCX_SYMBOL(name, field, result, arguments) {#name, &of_library.field},
    FLAGCX_FUNCTIONS(FLAGCX_SYMBOL){NULL, NULL},
#undef FLAGCX_SYMBOL
};

/* Guarded by the lock until `opened` is set. */
static struct {
  pthread_mutex_t lock;
  char root[PATH_MAX]; /* FLAGCX_PATH; empty: not set */
  void *library;
  flagcxDeviceHandle_t device; /* the library's, for the life of the process */
  atomic_bool opened;
  char reason[2 * WORDS];
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A setting of the host's, wherever it was set; the variable where the host is older than such questions. */
void nccl_choose_library(fl_registry *registry) {
  char path[PATH_MAX] = "";
  const char *variable = secure_getenv("FLAGCX_PATH");
  if (registry->size >= offsetof(fl_registry, setting) + sizeof registry->setting && registry->setting)
    registry->setting(registry, "FLAGCX_PATH", path, sizeof path);
  else if (variable)
    snprintf(path, sizeof path, "%s", variable);
  gpu_free_after_fork(&state.lock);
  pthread_mutex_lock(&state.lock);
  if (!state.library)
    snprintf(state.root, sizeof state.root, "%s", strcmp(path, "null") != 0 ? path : "");
  pthread_mutex_unlock(&state.lock);
}

/* ------------------------------------------------------------------------------------------------------- finding */

/* In an installation's directory or a source tree's. What the loader said of each is in `words`. */
static void *open_in_root(char *words, size_t size) {
  static const char *const places[] = {"lib", "build/lib"};
  char path[PATH_MAX + 32];
  size_t length = 0;
  void *library = NULL;
  *words = 0;
  for (size_t i = 0; i < sizeof places / sizeof *places && *state.root && !library; i++) {
    snprintf(path, sizeof path, "%s/%s/libflagcx.so", state.root, places[i]);
    library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    const char *said = library ? NULL : dlerror();
    if (!library && length < size)
      length += (size_t)snprintf(words + length, size - length, "%.220s; ", said ? said : path);
  }
  return library;
}

static void *open_library(void) {
  driver d = {.libraries = {"libflagcx.so"}};
  char in_root[WORDS];
  void *library = open_in_root(in_root, sizeof in_root);
  if (library || driver_open(&d, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD) || driver_open(&d, RTLD_LAZY | RTLD_LOCAL))
    return library ? library : d.library;
  snprintf(state.reason, sizeof state.reason, "FlagCX is not there. FLAGCX_PATH%s: %sby the loader: %s",
           *state.root ? "" : " is not set", in_root, d.reason);
  return NULL;
}

/* ------------------------------------------------------------------------------------------------ its own ways */

/* What a rank's streams are to the library, until the rank leaves: the library may still be at work on any of them. */
typedef struct wrapper {
  struct wrapper *next;
  void *raw;
  flagcxStream_t stream;
} wrapper;

static ncclResult_t find_stream(void **streams, void *raw, cudaStream_t *stream) {
  wrapper *found = *streams;
  while (found && found->raw != raw)
    found = found->next;
  if (!found) {
    found = malloc(sizeof *found);
    if (!found)
      return ncclSystemError;
    *found = (wrapper){.next = *streams, .raw = raw};
    flagcxResult_t result = state.device->streamCopy(&found->stream, raw);
    if (result) {
      free(found);
      return result;
    }
    *streams = found;
  }
  *stream = found->stream;
  return ncclSuccess;
}

/* streamDestroy would end the driver's stream, too. */
static void free_streams(void *streams) {
  wrapper *next;
  for (wrapper *at = streams; at; at = next) {
    next = at->next;
    state.device->streamFree(at->stream);
    free(at);
  }
}

/* The library reads the id through a pointer to what may be written. */
static ncclResult_t init_rank(ncclComm_t *made, int ranks, const void *bytes, int rank) {
  char id[FLAGCX_UNIQUE_ID_BYTES];
  memcpy(id, bytes, sizeof id);
  return of_library.init_rank(made, ranks, id, rank);
}

/* Between devices of several vendors it cannot tell. */
static ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t *found) {
  flagcxResult_t result = of_library.get_async_error(comm, found);
  if (result != FLAGCX_NOT_SUPPORTED)
    return result;
  *found = ncclSuccess;
  return ncclSuccess;
}

static void fill_calls(void) {
  nccl = (nccl_calls){
      .all_reduce = of_library.all_reduce,
      .reduce = of_library.reduce,
      .broadcast = of_library.broadcast,
      .all_gather = of_library.all_gather,
      .reduce_scatter = of_library.reduce_scatter,
      .send = of_library.send,
      .recv = of_library.recv,
      .abort = of_library.abort,
      .gather = of_library.gather,
      .scatter = of_library.scatter,
      .all_to_all = of_library.all_to_all,
      .all_to_all_v = of_library.all_to_all_v,
      .make_id = of_library.get_unique_id,
      .init_rank = init_rank,
      .destroy = of_library.destroy,
      .get_async_error = get_async_error,
      .group_start = of_library.group_start,
      .group_end = of_library.group_end,
      .find_stream = find_stream,
      .free_streams = free_streams,
  };
}

/* ------------------------------------------------------------------------------------------------------- judging */

/* An older library has functions of the same names that take other arguments: none of them is called. */
static bool find_functions(void) {
  driver d = {.library = state.library};
  void *ignored;
  if (!driver_find(&d, "flagcxDeviceHandleInit", &ignored) && driver_find(&d, "flagcxHandleInit", &ignored)) {
    snprintf(state.reason, sizeof state.reason,
             "FlagCX is older than 0.13.0, which is needed: it has flagcxHandleInit and no flagcxDeviceHandleInit");
    return false;
  }
  for (const gpu_symbol *symbol = symbols; symbol->name; symbol++)
    if (!driver_find(&d, symbol->name, symbol->slot)) {
      snprintf(state.reason, sizeof state.reason, "FlagCX lacks %s: is it older than 0.13.0?", symbol->name);
      return false;
    }
  return true;
}

static bool is_new_enough(void) {
  int version = 0;
  flagcxResult_t result = of_library.get_version(&version);
  if (result)
    snprintf(state.reason, sizeof state.reason, "FlagCX does not say its version: flagcxGetVersion returned %d",
             result);
  else if (version < LEAST_VERSION)
    snprintf(state.reason, sizeof state.reason, "FlagCX is of version %d.%d.%d, at least 0.13.0 is needed",
             version / 10000, version / 100 % 100, version % 100);
  return !result && version >= LEAST_VERSION;
}

/* A library is built for one vendor's devices. */
static bool fits_vendor(void) {
  char vendor[VENDOR_SIZE] = "";
  flagcxResult_t result = state.device ? ncclSuccess : of_library.device_handle_init(&state.device);
  if (result || !state.device) {
    snprintf(state.reason, sizeof state.reason, "FlagCX gives no device handle: flagcxDeviceHandleInit returned %d",
             result);
    return false;
  }
  result = state.device->getVendor(vendor);
  vendor[sizeof vendor - 1] = 0;
  if (result || strcmp(vendor, "NVIDIA") != 0) {
    snprintf(state.reason, sizeof state.reason,
             "FlagCX was built for devices of %.64s, expected NVIDIA: of other vendors' the host has no communicator "
             "by it",
             result ? "nobody knows whom" : vendor);
    return false;
  }
  return true;
}

/* What is too old is let go of, as the loader counts; what was asked for its device handle stays. */
static bool bind(void) {
  if (!state.library)
    state.library = open_library();
  if (!state.library)
    return false;
  if (!state.device && !(find_functions() && is_new_enough())) {
    dlclose(state.library);
    state.library = NULL;
    return false;
  }
  if (!fits_vendor())
    return false;
  fill_calls();
  return true;
}

bool nccl_open(const char **reason) {
  if (atomic_load_explicit(&state.opened, memory_order_acquire))
    return true;
  pthread_mutex_lock(&state.lock);
  bool opened = atomic_load(&state.opened) || bind();
  atomic_store_explicit(&state.opened, opened, memory_order_release);
  pthread_mutex_unlock(&state.lock);
  *reason = state.reason;
  return opened;
}

fl_status nccl_words(ncclResult_t result, char *words, size_t size) {
  static const struct {
    const char *name;
    int value;
    fl_status status;
    const char *words;
  } results[] = {
#define FLAGCX_ROW(name, value, status, words) {#name, value, status, words},
      FLAGCX_RESULTS(FLAGCX_ROW)
#undef FLAGCX_ROW
  };
  for (size_t i = 0; i < sizeof results / sizeof *results; i++)
    if (results[i].value == result) {
      snprintf(words, size, "%s (%s, %d)", results[i].words, results[i].name, result);
      return results[i].status;
    }
  snprintf(words, size, "a result that is not in its header (%d)", result);
  return FL_EINTERNAL;
}
