/*
 * The stand-in's runtime: devices that a thread has to set, and memory. The prototypes are those of acl/acl_rt.h.
 * streams.c has what is done with them.
 */
#include "tests/drivers/ascend/runtime.h"

#include <stdlib.h>
#include <string.h>

static int initialised;
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
EXPORT int aclrtMalloc(void **memory, size_t size, int policy);
EXPORT int aclrtFree(void *memory);
EXPORT int aclrtGetMemInfo(int attribute, size_t *left, size_t *total);
EXPORT int aclrtGetDeviceInfo(uint32_t device, int attribute, int64_t *value);
EXPORT int aclrtMallocHost(void **memory, size_t size);
EXPORT int aclrtFreeHost(void *memory);
EXPORT int aclrtQueryDeviceStatus(int32_t device, int *status);

/* ---------------------------------------------------------------------------------------------------------- devices */

/* A context that was reset is gone for every thread. */
int stand_in_has_context(void) {
  stand_in_lock();
  int there = initialised && current >= 0 && contexts[current];
  stand_in_unlock();
  return there;
}

int stand_in_current(void) {
  return current;
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
    if (stand_in_is_busy(device))
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

/* For all devices alike. */
int aclrtQueryDeviceStatus(int32_t device, int *status) {
  enum { NORMAL, ABNORMAL };
  ORDERED();
  if (device < 0 || device >= stand_in_setting("devices"))
    return INVALID_DEVICE;
  *status = stand_in_setting("abnormal") ? ABNORMAL : NORMAL;
  return 0;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

typedef struct memory_block {
  struct memory_block *next;
  char *memory, *whole;
  size_t size;
} memory_block;

/* Of the device, and of the host: pinned. */
typedef struct memory_kind {
  const char *counter, *free_function;
  memory_block *blocks;
} memory_kind;

static memory_kind of_device = {.counter = "blocks", .free_function = "aclrtFree"};
static memory_kind of_host = {.counter = "host blocks", .free_function = "aclrtFreeHost"};

static memory_block **find_block(memory_kind *kind, const void *memory, size_t size) {
  memory_block **link = &kind->blocks;
  const char *at = memory;
  while (*link && (at < (*link)->memory || at + size > (*link)->memory + (*link)->size))
    link = &(*link)->next;
  return link;
}

static int is_inside(memory_kind *kind, const void *memory, size_t size) {
  stand_in_lock();
  int inside = *find_block(kind, memory, size) != NULL;
  stand_in_unlock();
  return inside;
}

int stand_in_is_device_memory(const void *memory, size_t size) {
  return is_inside(&of_device, memory, size);
}

int stand_in_is_pinned(const void *memory, size_t size) {
  return is_inside(&of_host, memory, size);
}

/* It is not cleared. */
static int make_block(memory_kind *kind, void **memory, size_t size, size_t shift) {
  if (!size)
    return INVALID;
  memory_block *block = calloc(1, sizeof *block);
  if (block)
    block->whole = aligned_alloc(512, (size + shift + 511) / 512 * 512);
  if (!block || !block->whole) {
    free(block);
    return NO_MEMORY;
  }
  block->memory = block->whole + shift;
  block->size = size;
  memset(block->memory, 0x5a, size);
  stand_in_lock();
  block->next = kind->blocks;
  kind->blocks = block;
  stand_in_unlock();
  stand_in_add(kind->counter, 1);
  *memory = block->memory;
  return 0;
}

static int free_block(memory_kind *kind, void *memory) {
  stand_in_lock();
  memory_block **link = find_block(kind, memory, 1), *block = *link;
  if (!block || block->memory != memory) {
    stand_in_violation("%s of what it is not for", kind->free_function);
    stand_in_unlock();
    return INVALID_PARAMETER;
  }
  stand_in_check_free(block->memory, block->size);
  *link = block->next;
  stand_in_unlock();
  stand_in_add(kind->counter, -1);
  free(block->whole);
  free(block);
  return 0;
}

int aclrtMalloc(void **memory, size_t size, int policy) {
  NEEDS_CONTEXT();
  stand_in_check_capture(__func__);
  (void)policy;
  int code = make_block(&of_device, memory, size, stand_in_setting("misaligned") ? 64 : 0);
  if (!code)
    stand_in_add("allocations", 1);
  return code;
}

int aclrtFree(void *memory) {
  NEEDS_CONTEXT();
  return free_block(&of_device, memory);
}

int aclrtMallocHost(void **memory, size_t size) {
  NEEDS_CONTEXT();
  return make_block(&of_host, memory, size, 64);
}

int aclrtFreeHost(void *memory) {
  NEEDS_CONTEXT();
  return free_block(&of_host, memory);
}
