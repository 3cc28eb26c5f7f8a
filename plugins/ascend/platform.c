/*
 * The platform "ascend": devices and their memory. Copies between host and device wait for the stream and are then made
 * by the blocking function, since the asynchronous one wants host memory that ACL has allocated.
 */
#include "plugins/ascend/platform.h"
#include "plugins/ascend/locks.h"
#include "plugins/ascend/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

static _Thread_local char words[ASCEND_WORDS];

char *ascend_words(void) {
  return words;
}

static const char *error(void *self) {
  (void)self;
  return words;
}

fl_status ascend_result_of(const char *function, aclError code) {
  if (!code)
    return FL_OK;
  ascend_describe(words, sizeof words, function, code);
  return ascend_code_of(code).status == FL_ENOMEM ? FL_ENOMEM : FL_EDEVICE;
}

fl_status ascend_enter_device(int32_t device, ascend_guard *guard) {
  return ascend_enter(device, guard, words, sizeof words) ? FL_EDEVICE : FL_OK;
}

static bool is_active(void *self, const char **reason) {
  (void)self;
  return ascend_libraries_open(reason);
}

static int device_count(void *self) {
  int count = 0;
  (void)self;
  return ascend_count_devices(&count, words, sizeof words) ? -1 : count;
}

/* Of the thread's device; unknown ones stay as they are. */
static void read_memory(fl_device_properties *properties) {
  size_t left = 0, total = 0;
  if (acl.aclrtGetMemInfo(ACL_HBM_MEM, &left, &total) || !total)
    if (acl.aclrtGetMemInfo(ACL_DDR_MEM, &left, &total))
      return;
  properties->memory_free = left;
  properties->memory_total = total;
}

/* What is free only a context knows, which takes memory. So a process that works on one device is asked about that; one
 * that works on none, as the child that the host asks in, has a context on each for a moment. `current` is the thread's
 * device, -1 for none: all that is known where the runtime does not tell who has a context. */
static bool may_have_context(int32_t device, int32_t current) {
  uint32_t count = 0;
  int32_t active = 0;
  if (!acl.aclrtGetPrimaryCtxState || acl.aclrtGetPrimaryCtxState(device, NULL, &active) ||
      acl.aclrtGetDeviceCount(&count))
    return current < 0;
  bool works = current >= 0;
  for (uint32_t i = 0; i < count && !works && !active; i++) {
    int32_t other = 0;
    works = !acl.aclrtGetPrimaryCtxState((int32_t)i, NULL, &other) && other;
  }
  return active || !works;
}

typedef struct inquiry {
  int32_t device;
  fl_device_properties *properties;
} inquiry;

/* A device counts how often it is set: it is reset for that, not under anybody else. */
static void *read_memory_in_thread(void *argument) {
  const inquiry *asked = argument;
  if (!acl.aclrtSetDevice(asked->device)) {
    read_memory(asked->properties);
    acl.aclrtResetDevice(asked->device);
  }
  return NULL;
}

/* Another device than the thread's is asked from a thread of its own: one that had no device would keep it, as none can
 * be put back. */
static void find_memory(int32_t device, fl_device_properties *properties) {
  int64_t total = 0;
  int32_t current = -1;
  pthread_t thread;
  inquiry asked = {device, properties};
  if (!acl.aclrtGetDeviceInfo((uint32_t)device, ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE, &total) && total > 0)
    properties->memory_total = (uint64_t)total;
  if (acl.aclrtGetDevice(&current))
    current = -1;
  if (current == device)
    read_memory(properties);
  else if (may_have_context(device, current) && !pthread_create(&thread, NULL, read_memory_in_thread, &asked))
    pthread_join(thread, NULL);
}

/* Before the runtime is initialised, too. */
static void driver_version(void *self, char *text, size_t size) {
  int32_t major = 0, minor = 0, patch = 0;
  const char *reason;
  (void)self;
  if (ascend_libraries_open(&reason) && !acl.aclrtGetVersion(&major, &minor, &patch))
    snprintf(text, size, "%d.%d.%d%s", (int)major, (int)minor, (int)patch,
             ascend_is_stand_in() ? " (a stand-in of the tests)" : "");
}

/* Leaves the thread's device, and who has a context, as they are. */
static fl_status get_properties(void *self, int32_t device, fl_device_properties *properties) {
  int64_t units = 0;
  (void)self;
  if (ascend_check_number(device, words, sizeof words))
    return FL_EDEVICE;
  const char *stand_in = ascend_is_stand_in() ? " (a stand-in of the tests)" : "";
  /* As much of it as the host knows. */
  fl_device_properties found = {.size = properties->size < sizeof found ? properties->size : sizeof found};
  if (!acl.aclrtGetDeviceInfo((uint32_t)device, ACL_DEV_ATTR_AICORE_CORE_NUM, &units))
    found.units = (int32_t)units;
  snprintf(found.name, sizeof found.name, "%s%s", ascend_chip_name(), stand_in);
  snprintf(found.arch, sizeof found.arch, "%s", ascend_chip_name());
  driver_version(self, found.driver, sizeof found.driver);
  find_memory(device, &found);
  memcpy(properties, &found, found.size);
  return FL_OK;
}

static fl_status current_device(void *self, int32_t *device) {
  (void)self;
  fl_status status = ascend_start(words, sizeof words);
  if (status)
    return status;
  aclError code = acl.aclrtGetDevice(device);
  if (code == ACL_ERROR_RT_CONTEXT_NULL) /* what the thread would use: the first */
    *device = 0;
  else if (code)
    return ascend_result_of("aclrtGetDevice", code);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

/* aclrtMalloc promises an alignment of 64. What is not aligned enough is part of a larger block: rare, so a list will
 * do. */
typedef struct block {
  struct block *next;
  void *memory, *whole;
} block;

static block *blocks;

static aclError allocate_aligned(size_t size, void **memory) {
  block *made = malloc(sizeof *made);
  if (!made)
    return ACL_ERROR_BAD_ALLOC;
  aclError code = acl.aclrtMalloc(&made->whole, size + ALIGNMENT, ACL_MEM_MALLOC_HUGE_FIRST);
  if (code) {
    free(made);
    return code;
  }
  made->memory = (char *)made->whole + (ALIGNMENT - (uintptr_t)made->whole % ALIGNMENT) % ALIGNMENT;
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_BLOCKS]);
  made->next = blocks;
  blocks = made;
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_BLOCKS]);
  *memory = made->memory;
  return 0;
}

/* The block that `memory` is part of, which is no longer listed; `memory` itself when there is none. */
static void *take_whole(void *memory) {
  void *whole = memory;
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_BLOCKS]);
  block **link = &blocks;
  while (*link && (*link)->memory != memory)
    link = &(*link)->next;
  block *found = *link;
  if (found) {
    *link = found->next;
    whole = found->whole;
    free(found);
  }
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_BLOCKS]);
  return whole;
}

/* ACL does not allocate 0 bytes. */
static fl_status allocate(void *self, int32_t device, size_t size, void **memory) {
  ascend_guard guard;
  void *made = NULL;
  (void)self;
  fl_status status = ascend_enter_device(device, &guard);
  if (status)
    return status;
  aclError code = acl.aclrtMalloc(&made, size ? size : 1, ACL_MEM_MALLOC_HUGE_FIRST);
  if (!code && (uintptr_t)made % ALIGNMENT) {
    acl.aclrtFree(made);
    code = allocate_aligned(size ? size : 1, &made);
  }
  status = ascend_result_of("aclrtMalloc", code);
  ascend_leave(&guard);
  if (!status)
    *memory = made;
  return status;
}

static fl_status release(void *self, int32_t device, void *memory) {
  ascend_guard guard;
  (void)self;
  fl_status status = memory ? ascend_enter_device(device, &guard) : FL_OK;
  if (status || !memory)
    return status;
  status = ascend_result_of("aclrtFree", acl.aclrtFree(take_whole(memory)));
  ascend_leave(&guard);
  return status;
}

static fl_status copy_with_host(void *to, const void *from, size_t size, aclrtMemcpyKind kind, aclrtStream stream) {
  fl_status status = ascend_result_of("aclrtSynchronizeStream", acl.aclrtSynchronizeStream(stream));
  return status ? status : ascend_result_of("aclrtMemcpy", acl.aclrtMemcpy(to, size, from, size, kind));
}

fl_status ascend_copy_now(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                          void *stream) {
  ascend_guard guard;
  (void)self;
  fl_status status = size ? ascend_enter_device(device, &guard) : FL_OK;
  if (status || !size)
    return status;
  if (direction == FL_COPY_ON_DEVICE)
    status = ascend_result_of("aclrtMemcpyAsync",
                              acl.aclrtMemcpyAsync(to, size, from, size, ACL_MEMCPY_DEVICE_TO_DEVICE, stream));
  else
    status = copy_with_host(
        to, from, size, direction == FL_COPY_TO_DEVICE ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST, stream);
  ascend_leave(&guard);
  return status;
}

static fl_status synchronize(void *self, int32_t device, void *stream, bool all) {
  ascend_guard guard;
  (void)self;
  fl_status status = ascend_enter_device(device, &guard);
  if (status)
    return status;
  if (all)
    status = ascend_result_of("aclrtSynchronizeDevice", acl.aclrtSynchronizeDevice());
  else
    status = ascend_result_of("aclrtSynchronizeStream", acl.aclrtSynchronizeStream(stream));
  ascend_leave(&guard);
  return status;
}

static fl_status is_captured(void *self, int32_t device, void *stream, bool *captured) {
  ascend_guard guard;
  (void)self;
  fl_status status = ascend_enter_device(device, &guard);
  if (status)
    return status;
  *captured = ascend_is_captured(stream);
  ascend_leave(&guard);
  return FL_OK;
}

const fl_platform ascend_platform = {.size = sizeof ascend_platform,
                                     .device_type = kDLExtDev,
                                     .is_active = is_active,
                                     .device_count = device_count,
                                     .properties = get_properties,
                                     .current_device = current_device,
                                     .allocate = allocate,
                                     .release = release,
                                     .copy = ascend_copy_now,
                                     .synchronize = synchronize,
                                     .error = error,
                                     .arch_reaches = ascend_arch_reaches,
                                     .driver_version = driver_version,
                                     .is_captured = is_captured,
                                     .create_stream = ascend_create_stream,
                                     .destroy_stream = ascend_destroy_stream,
                                     .create_event = ascend_create_event,
                                     .destroy_event = ascend_destroy_event,
                                     .record_event = ascend_record_event,
                                     .wait_event = ascend_wait_event,
                                     .is_event_done = ascend_is_event_done,
                                     .synchronize_event = ascend_synchronize_event,
                                     .elapsed = ascend_elapsed,
                                     .allocate_host = ascend_allocate_host,
                                     .release_host = ascend_release_host,
                                     .copy_async = ascend_copy_async,
                                     .begin_capture = ascend_begin_capture,
                                     .end_capture = ascend_end_capture,
                                     .launch_graph = ascend_launch_graph,
                                     .destroy_graph = ascend_destroy_graph,
                                     .health = ascend_health};
