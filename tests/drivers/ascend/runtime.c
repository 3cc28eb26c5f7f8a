/*
 * The stand-in's runtime: devices that a thread has to set, memory, streams whose work waits. The prototypes are those
 * of acl/acl_rt.h.
 */
#include "tests/drivers/ascend/stand_in.h"

#include <stdlib.h>
#include <string.h>

enum {
  INVALID = 100000,
  NOT_INITIALISED = 100001,
  REPEATED = 100002,
  INVALID_PARAMETER = 107000,
  INVALID_DEVICE = 107001,
  NO_CONTEXT = 107002,
  NO_MEMORY = 207001,
  MAX_DEVICES = 16
};

/* A piece of work: an operator, or a copy. */
typedef struct work {
  struct work *next;
  aclOpExecutor *executor;
  void *workspace, *to;
  const void *from;
  size_t size;
} work;

typedef struct stream {
  struct stream *next;
  int device;
  int index; /* 0: the device's default */
  work *first;
} stream;

typedef struct memory_block {
  struct memory_block *next;
  char *memory, *whole;
  size_t size;
} memory_block;

static int initialised;
static stream default_streams[MAX_DEVICES];

/* Before any thread can use them. */
static __attribute__((constructor)) void number_default_streams(void) {
  for (int i = 0; i < MAX_DEVICES; i++)
    default_streams[i].device = i;
}

static stream *streams;
static int n_streams;
static memory_block *blocks;
static int contexts[MAX_DEVICES]; /* how often a device is set and not reset; their addresses are the handles */
static _Thread_local int current = -1;

EXPORT int aclInit(const char *config);
EXPORT int aclFinalize(void);
EXPORT const char *aclGetRecentErrMsg(void);
EXPORT const char *aclrtGetSocName(void);
EXPORT int aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch);
EXPORT int aclrtGetDeviceCount(uint32_t *count);
EXPORT int aclrtSetDevice(int32_t device);
EXPORT int aclrtResetDevice(int32_t device);
EXPORT int aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active);
EXPORT int aclrtGetDevice(int32_t *device);
EXPORT int aclrtGetCurrentContext(void **context);
EXPORT int aclrtSetCurrentContext(void *context);
EXPORT int aclrtCreateStream(void **handle);
EXPORT int aclrtDestroyStream(void *handle);
EXPORT int aclrtSynchronizeStream(void *handle);
EXPORT int aclrtSynchronizeDevice(void);
EXPORT int aclrtMalloc(void **memory, size_t size, int policy);
EXPORT int aclrtFree(void *memory);
EXPORT int aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind);
EXPORT int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int kind, void *handle);
EXPORT int aclrtGetMemInfo(int attribute, size_t *left, size_t *total);
EXPORT int aclmdlRICaptureGetInfo(void *handle, int *status, void **graph);
EXPORT int aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t *value);

#define ORDERED()                                                                                                      \
  do {                                                                                                                 \
    int ordered_ = stand_in_ordered(__func__);                                                                         \
    if (ordered_)                                                                                                      \
      return ordered_;                                                                                                 \
  } while (0)
#define NEEDS_CONTEXT()                                                                                                \
  do {                                                                                                                 \
    ORDERED();                                                                                                         \
    if (!stand_in_has_context())                                                                                       \
      return NO_CONTEXT;                                                                                               \
  } while (0)

/* ------------------------------------------------------------------------------------------------------------ devices
 */

/* A context that was reset is gone for every thread. */
int stand_in_has_context(void) {
  stand_in_lock();
  int there = initialised && current >= 0 && contexts[current];
  stand_in_unlock();
  return there;
}

int aclInit(const char *config) {
  (void)config;
  ORDERED();
  stand_in_lock();
  int repeated = initialised;
  initialised = 1;
  stand_in_unlock();
  return repeated ? REPEATED : 0;
}

int aclFinalize(void) {
  stand_in_add("finalised", 1);
  return 0;
}

const char *aclGetRecentErrMsg(void) {
  static _Thread_local char words[128];
  stand_in_words(words, sizeof words);
  return *words ? words : NULL;
}

const char *aclrtGetSocName(void) {
  return initialised ? stand_in_soc() : NULL;
}

int aclrtGetVersion(int32_t *major, int32_t *minor, int32_t *patch) {
  ORDERED();
  *major = 1;
  *minor = 17;
  *patch = 0;
  return 0;
}

int aclrtGetDeviceCount(uint32_t *count) {
  ORDERED();
  if (!initialised)
    return NOT_INITIALISED;
  *count = (uint32_t)stand_in_setting("devices");
  return 0;
}

int aclrtSetDevice(int32_t device) {
  ORDERED();
  if (!initialised)
    return NOT_INITIALISED;
  if (device < 0 || device >= stand_in_setting("devices") || device >= MAX_DEVICES)
    return INVALID_DEVICE;
  stand_in_lock();
  if (!contexts[device]++) {
    stand_in_add("contexts", 1);
    stand_in_add("made contexts", 1);
  }
  stand_in_unlock();
  current = device;
  return 0;
}

/* What is set as often as it is reset is gone, with what the context had. */
int aclrtResetDevice(int32_t device) {
  ORDERED();
  if (device < 0 || device >= MAX_DEVICES)
    return INVALID_DEVICE;
  stand_in_add("reset", 1);
  stand_in_lock();
  int count = contexts[device];
  if (!count) {
    stand_in_violation("aclrtResetDevice of a device that is not set");
  } else if (!--contexts[device]) {
    stand_in_add("contexts", -1);
    if (default_streams[device].first)
      stand_in_violation("device %d reset before its work was done", device);
  }
  stand_in_unlock();
  return count ? 0 : INVALID_DEVICE;
}

int aclrtGetPrimaryCtxState(int32_t device, uint32_t *flags, int32_t *active) {
  ORDERED();
  if (!initialised)
    return NOT_INITIALISED;
  if (flags || device < 0 || device >= MAX_DEVICES)
    return flags ? INVALID_PARAMETER : INVALID_DEVICE;
  stand_in_lock();
  *active = contexts[device] > 0;
  stand_in_unlock();
  return 0;
}

int aclrtGetDevice(int32_t *device) {
  NEEDS_CONTEXT();
  *device = current;
  return 0;
}

int aclrtGetCurrentContext(void **context) {
  NEEDS_CONTEXT();
  *context = &contexts[current];
  return 0;
}

int aclrtSetCurrentContext(void *context) {
  ORDERED();
  if (!context)
    return NO_CONTEXT;
  current = (int)((int *)context - contexts);
  return 0;
}

int aclrtGetMemInfo(int attribute, size_t *left, size_t *total) {
  NEEDS_CONTEXT();
  *total = attribute == 1 ? (size_t)64 << 30 : 0; /* high-bandwidth memory only */
  *left = *total / 2;
  return 0;
}

int aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t *value) {
  enum { AI_CORES = 101, MEMORY = 301 };
  ORDERED();
  (void)device;
  *value = attribute == AI_CORES ? 20 : attribute == MEMORY ? (int64_t)64 << 30 : 0;
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------ graphs
 */

/* All streams are captured while the setting says so; in one that is nothing may be waited for. */
int aclmdlRICaptureGetInfo(void *handle, int *status, void **graph) {
  enum { NONE, ACTIVE };
  NEEDS_CONTEXT();
  (void)handle;
  *status = stand_in_setting("capture") ? ACTIVE : NONE;
  *graph = NULL;
  return 0;
}

/* Nothing of this in a graph. */
static void check_capture(const char *function) {
  if (stand_in_setting("capture"))
    stand_in_violation("%s while a stream is captured", function);
}

/* ------------------------------------------------------------------------------------------------------------- memory
 */

static memory_block **find_block(const void *memory, size_t size) {
  memory_block **link = &blocks;
  const char *at = memory;
  while (*link && (at < (*link)->memory || at + size > (*link)->memory + (*link)->size))
    link = &(*link)->next;
  return link;
}

int stand_in_is_device_memory(const void *memory, size_t size) {
  stand_in_lock();
  int inside = *find_block(memory, size) != NULL;
  stand_in_unlock();
  return inside;
}

int aclrtMalloc(void **memory, size_t size, int policy) {
  NEEDS_CONTEXT();
  check_capture(__func__);
  (void)policy;
  if (!size)
    return INVALID;
  size_t shift = stand_in_setting("misaligned") ? 64 : 0;
  memory_block *block = calloc(1, sizeof *block);
  if (block)
    block->whole = aligned_alloc(512, (size + shift + 511) / 512 * 512);
  if (!block || !block->whole) {
    free(block);
    return NO_MEMORY;
  }
  block->memory = block->whole + shift;
  block->size = size;
  memset(block->memory, 0x5a, size); /* it is not cleared */
  stand_in_lock();
  block->next = blocks;
  blocks = block;
  stand_in_unlock();
  stand_in_add("blocks", 1);
  stand_in_add("allocations", 1);
  *memory = block->memory;
  return 0;
}

static int overlaps(const memory_block *block, const void *memory) {
  return (const char *)memory >= block->memory && (const char *)memory < block->memory + block->size;
}

/* Work that still waits may not lose its memory. */
static void check_queue(const stream *s, const memory_block *block) {
  for (const work *w = s->first; w; w = w->next) {
    int used = overlaps(block, w->workspace) || overlaps(block, w->to) || overlaps(block, w->from);
    for (int i = 0; w->executor && i < w->executor->n; i++)
      used |= overlaps(block, w->executor->tensors[i].data);
    if (used)
      stand_in_violation("memory of %s freed before it was done", w->executor ? w->executor->name : "a copy");
  }
}

int aclrtFree(void *memory) {
  NEEDS_CONTEXT();
  stand_in_lock();
  memory_block **link = find_block(memory, 1), *block = *link;
  if (!block || block->memory != memory) {
    stand_in_violation("aclrtFree of what aclrtMalloc did not give");
    stand_in_unlock();
    return INVALID_PARAMETER;
  }
  for (int i = 0; i < MAX_DEVICES; i++)
    check_queue(&default_streams[i], block);
  for (const stream *s = streams; s; s = s->next)
    check_queue(s, block);
  *link = block->next;
  stand_in_unlock();
  stand_in_add("blocks", -1);
  free(block->whole);
  free(block);
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------ streams
 */

static stream *stream_of(void *handle) {
  return handle ? handle : &default_streams[current];
}

int aclrtCreateStream(void **handle) {
  NEEDS_CONTEXT();
  stream *made = calloc(1, sizeof *made);
  if (!made)
    return NO_MEMORY;
  stand_in_lock();
  made->device = current;
  made->index = ++n_streams;
  made->next = streams;
  streams = made;
  stand_in_unlock();
  *handle = made;
  return 0;
}

static void enqueue(stream *s, work made) {
  work *w = malloc(sizeof *w), **link = &s->first;
  if (!w)
    abort();
  *w = made;
  stand_in_lock();
  while (*link)
    link = &(*link)->next;
  *link = w;
  stand_in_unlock();
  stand_in_add("queued", 1);
}

int stand_in_queue(aclOpExecutor *executor, void *workspace, uint64_t size, void *handle) {
  if (!stand_in_has_context())
    return RUNTIME_ERROR;
  stream *s = stream_of(handle);
  if (s->device != current) {
    stand_in_violation("%s on a stream of another device", executor->name);
    return INVALID_PARAMETER;
  }
  stand_in_note("launch %s on %d.%d", executor->name, s->device, s->index);
  stand_in_add("launched", 1);
  enqueue(s, (work){.executor = executor, .workspace = workspace, .size = size});
  return 0;
}

static int do_operator(const work *w) {
  int ordered = stand_in_ordered("kernel");
  if (w->workspace && !stand_in_is_device_memory(w->workspace, w->size))
    stand_in_violation("the workspace of %s is no device memory", w->executor->name);
  else if (w->workspace)
    memset(w->workspace, 0xa5, w->size);
  int code = ordered ? ordered : w->executor->compute(w->executor);
  stand_in_note("%s %s", code ? "failed" : "done", w->executor->name);
  return code;
}

static int do_work(const work *w) {
  if (w->executor)
    return do_operator(w);
  memmove(w->to, w->from, w->size);
  stand_in_note("done copy of %zu bytes", w->size);
  return 0;
}

/* In order; what comes after a failure is lost. */
static int drain(stream *s) {
  int error = 0;
  stand_in_lock();
  while (s->first) {
    work *w = s->first;
    int code = error ? 0 : do_work(w);
    error = error ? error : code;
    s->first = w->next;
    free(w);
    stand_in_add("queued", -1);
  }
  stand_in_unlock();
  return error;
}

int aclrtSynchronizeStream(void *handle) {
  NEEDS_CONTEXT();
  check_capture(__func__);
  stream *s = stream_of(handle);
  stand_in_note("wait %d.%d", s->device, s->index);
  stand_in_add("waits", 1);
  return drain(s);
}

int aclrtSynchronizeDevice(void) {
  NEEDS_CONTEXT();
  int error = drain(&default_streams[current]);
  stand_in_note("wait %d", current);
  stand_in_add("waits", 1);
  for (stream *s = streams; s; s = s->next)
    if (s->device == current) {
      int code = drain(s);
      error = error ? error : code;
    }
  return error;
}

int aclrtDestroyStream(void *handle) {
  NEEDS_CONTEXT();
  drain(handle);
  stand_in_lock();
  stream **link = &streams;
  while (*link && *link != handle)
    link = &(*link)->next;
  if (*link)
    *link = (*link)->next;
  stand_in_unlock();
  free(handle);
  return 0;
}

/* ------------------------------------------------------------------------------------------------------------- copies
 */

static int check_copy(const void *to, size_t room, const void *from, size_t size, int kind) {
  int to_device = kind == 1 || kind == 3, from_device = kind == 2 || kind == 3;
  if (room < size || kind < 1 || kind > 3)
    return INVALID;
  if (stand_in_is_device_memory(to, size) != to_device || stand_in_is_device_memory(from, size) != from_device) {
    stand_in_violation("a copy of kind %d between other memory", kind);
    return INVALID_PARAMETER;
  }
  return 0;
}

/* Waits for no stream. */
int aclrtMemcpy(void *to, size_t room, const void *from, size_t size, int kind) {
  NEEDS_CONTEXT();
  int code = check_copy(to, room, from, size, kind);
  if (code)
    return code;
  memcpy(to, from, size);
  return 0;
}

int aclrtMemcpyAsync(void *to, size_t room, const void *from, size_t size, int kind, void *handle) {
  NEEDS_CONTEXT();
  int code = check_copy(to, room, from, size, kind);
  if (!code && kind != 3) {
    stand_in_violation("an asynchronous copy with host memory that ACL has not allocated");
    code = INVALID_PARAMETER;
  }
  if (code)
    return code;
  stream *s = stream_of(handle);
  stand_in_note("launch copy on %d.%d", s->device, s->index);
  enqueue(s, (work){.to = to, .from = from, .size = size});
  return 0;
}
