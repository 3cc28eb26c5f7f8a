/*
 * What an engine needs beside kernels and memory: streams, events, pinned host memory, graphs, health (fl_platform). Of
 * each paragraph older runtimes may lack a function; that paragraph then answers FL_ENOTSUP, and the others work.
 */
#include "plugins/ascend/work.h"
#include "plugins/ascend/locks.h"
#include "plugins/ascend/workspace.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct function_entry {
  const char *name;
  size_t place; /* in acl_functions */
} function_entry;

/* The functions that a paragraph cannot do without; the last has no name. */
#define ENTRY(result, name, arguments) {#name, offsetof(acl_functions, name)},
static const function_entry of_events[] = {ACL_EVENT_FUNCTIONS(ENTRY){0}};
static const function_entry of_host_memory[] = {ACL_HOST_MEMORY_FUNCTIONS(ENTRY){0}};
static const function_entry of_graphs[] = {ACL_GRAPH_FUNCTIONS(ENTRY){0}};
static const function_entry of_health[] = {ACL_HEALTH_FUNCTIONS(ENTRY){0}};
#undef ENTRY

static bool is_there(const function_entry *function) {
  void *address;
  memcpy(&address, (const char *)&acl + function->place, sizeof address);
  return address != NULL;
}

/* FL_OK, FL_ENOTSUP, or FL_EDEVICE where the runtime does not start. */
static fl_status need(const function_entry *functions) {
  if (ascend_start(ascend_words(), ASCEND_WORDS))
    return FL_EDEVICE;
  while (functions->name && is_there(functions))
    functions++;
  if (!functions->name)
    return FL_OK;
  snprintf(ascend_words(), ASCEND_WORDS, "libascendcl.so lacks %s, which newer releases of CANN have", functions->name);
  return FL_ENOTSUP;
}

static fl_status enter(const function_entry *functions, int32_t device, ascend_guard *guard) {
  fl_status status = need(functions);
  return status ? status : ascend_enter_device(device, guard);
}

/* Some chips have no graphs, though their runtime has the functions. */
static fl_status status_of(aclError code) {
  return code == ACL_ERROR_RT_FEATURE_NOT_SUPPORT   ? FL_ENOTSUP
         : ascend_code_of(code).status == FL_ENOMEM ? FL_ENOMEM
                                                    : FL_EDEVICE;
}

static fl_status result_of(const char *function, aclError code) {
  return ascend_result_of(function, code) ? status_of(code) : FL_OK;
}

static fl_status refuse(fl_status status, const char *text) {
  snprintf(ascend_words(), ASCEND_WORDS, "%s", text);
  return status;
}

/* ---------------------------------------------------------------------------------------------------------- streams */

/* The vendor's numbers are in the same order as ours, and 0 is the first. */
static uint32_t nearest_priority(int32_t priority) {
  int32_t least = 7, greatest = 0;
  if (acl.aclrtDeviceGetStreamPriorityRange)
    acl.aclrtDeviceGetStreamPriorityRange(&least, &greatest);
  if (priority > least)
    priority = least;
  if (priority < greatest)
    priority = greatest;
  return (uint32_t)priority;
}

fl_status ascend_create_stream(void *self, int32_t device, int32_t priority, void **stream) {
  ascend_guard guard;
  aclrtStream made = NULL;
  (void)self;
  fl_status status = ascend_enter_device(device, &guard);
  if (status)
    return status;
  if (acl.aclrtCreateStreamWithConfig)
    status = result_of("aclrtCreateStreamWithConfig",
                       acl.aclrtCreateStreamWithConfig(&made, nearest_priority(priority),
                                                       ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC));
  else
    status = result_of("aclrtCreateStream", acl.aclrtCreateStream(&made));
  ascend_leave(&guard);
  if (!status)
    *stream = made;
  return status;
}

/* The vendor wants it waited for first. What that says of the work is told, the stream is gone all the same. */
fl_status ascend_destroy_stream(void *self, int32_t device, void *stream) {
  ascend_guard guard;
  (void)self;
  fl_status status = stream ? ascend_enter_device(device, &guard) : FL_OK;
  if (status || !stream)
    return status;
  status = result_of("aclrtSynchronizeStream", acl.aclrtSynchronizeStream(stream));
  if (!status)
    ascend_workspace_forget(device, stream);
  fl_status gone = result_of("aclrtDestroyStream", acl.aclrtDestroyStream(stream));
  ascend_leave(&guard);
  return gone ? gone : status;
}

/* ----------------------------------------------------------------------------------------------------------- events */

/* What the runtime makes of an event that was not recorded depends on its version: it is not asked then. */
typedef struct ascend_event {
  aclrtEvent event;
  bool timed;
  atomic_bool recorded;
} ascend_event;

/* Those of the function with Ex may be recorded again while somebody waits, and destroyed; the older ones would have to
 * be reset in between, when nobody does. */
fl_status ascend_create_event(void *self, int32_t device, bool timed, void **event) {
  ascend_guard guard;
  (void)self;
  fl_status status = enter(of_events, device, &guard);
  if (status)
    return status;
  ascend_event *made = calloc(1, sizeof *made);
  if (!made)
    status = refuse(FL_ENOMEM, "out of host memory for an event");
  else
    status = result_of(
        "aclrtCreateEventExWithFlag",
        acl.aclrtCreateEventExWithFlag(&made->event, timed ? ACL_EVENT_TIME_LINE | ACL_EVENT_SYNC : ACL_EVENT_SYNC));
  ascend_leave(&guard);
  if (status) {
    free(made);
    return status;
  }
  made->timed = timed;
  *event = made;
  return FL_OK;
}

fl_status ascend_destroy_event(void *self, int32_t device, void *event) {
  ascend_guard guard;
  ascend_event *gone = event;
  (void)self;
  fl_status status = event ? enter(of_events, device, &guard) : FL_OK;
  if (status || !event)
    return status;
  status = result_of("aclrtDestroyEvent", acl.aclrtDestroyEvent(gone->event));
  free(gone);
  ascend_leave(&guard);
  return status;
}

fl_status ascend_record_event(void *self, int32_t device, void *event, void *stream) {
  ascend_guard guard;
  ascend_event *recorded = event;
  (void)self;
  fl_status status = enter(of_events, device, &guard);
  if (status)
    return status;
  status = result_of("aclrtRecordEvent", acl.aclrtRecordEvent(recorded->event, stream));
  if (!status)
    recorded->recorded = true;
  ascend_leave(&guard);
  return status;
}

fl_status ascend_wait_event(void *self, int32_t device, void *event, void *stream) {
  ascend_guard guard;
  const ascend_event *awaited = event;
  (void)self;
  fl_status status = enter(of_events, device, &guard);
  if (status)
    return status;
  if (awaited->recorded)
    status = result_of("aclrtStreamWaitEvent", acl.aclrtStreamWaitEvent(stream, awaited->event));
  ascend_leave(&guard);
  return status;
}

fl_status ascend_is_event_done(void *self, int32_t device, void *event, bool *done) {
  ascend_guard guard;
  const ascend_event *asked = event;
  aclrtEventRecordedStatus found = ACL_EVENT_RECORDED_STATUS_COMPLETE;
  (void)self;
  fl_status status = enter(of_events, device, &guard);
  if (status)
    return status;
  if (asked->recorded)
    status = result_of("aclrtQueryEventStatus", acl.aclrtQueryEventStatus(asked->event, &found));
  ascend_leave(&guard);
  if (!status)
    *done = found == ACL_EVENT_RECORDED_STATUS_COMPLETE;
  return status;
}

fl_status ascend_synchronize_event(void *self, int32_t device, void *event) {
  ascend_guard guard;
  const ascend_event *awaited = event;
  (void)self;
  fl_status status = enter(of_events, device, &guard);
  if (status)
    return status;
  if (awaited->recorded)
    status = result_of("aclrtSynchronizeEvent", acl.aclrtSynchronizeEvent(awaited->event));
  ascend_leave(&guard);
  return status;
}

fl_status ascend_elapsed(void *self, int32_t device, void *first, void *last, double *us) {
  ascend_guard guard;
  const ascend_event *from = first, *to = last;
  float milliseconds = 0;
  (void)self;
  fl_status status = enter(of_events, device, &guard);
  if (status)
    return status;
  if (!from->timed || !to->timed)
    status = refuse(FL_EDEVICE, "an event that was not made for times has none");
  else if (!from->recorded || !to->recorded)
    status = refuse(FL_EDEVICE, "an event that was not recorded has no time");
  else
    status = result_of("aclrtEventElapsedTime", acl.aclrtEventElapsedTime(&milliseconds, from->event, to->event));
  ascend_leave(&guard);
  if (!status)
    *us = (double)milliseconds * 1000;
  return status;
}

/* ------------------------------------------------------------------------------------------------------ host memory */

/* What was allocated here: a few large blocks, so a list will do. Whole at any time: another thread may fork. */
typedef struct pinned_block {
  struct pinned_block *next;
  const char *memory;
  size_t size;
} pinned_block;

static pinned_block *pinned_blocks;

static void add_pinned(pinned_block *block) {
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_HOST_MEMORY]);
  block->next = pinned_blocks;
  pinned_blocks = block;
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_HOST_MEMORY]);
}

static void remove_pinned(const void *memory) {
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_HOST_MEMORY]);
  pinned_block **link = &pinned_blocks;
  while (*link && (*link)->memory != memory)
    link = &(*link)->next;
  pinned_block *found = *link;
  if (found)
    *link = found->next;
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_HOST_MEMORY]);
  free(found);
}

static bool is_pinned(const void *memory, size_t size) {
  uintptr_t at = (uintptr_t)memory;
  pthread_mutex_lock(&ascend_locks[ASCEND_LOCK_HOST_MEMORY]);
  const pinned_block *block = pinned_blocks;
  while (block && (at < (uintptr_t)block->memory || at - (uintptr_t)block->memory > block->size ||
                   size > block->size - (at - (uintptr_t)block->memory)))
    block = block->next;
  pthread_mutex_unlock(&ascend_locks[ASCEND_LOCK_HOST_MEMORY]);
  return block != NULL;
}

/* ACL does not allocate 0 bytes; it aligns to 64. */
fl_status ascend_allocate_host(void *self, int32_t device, size_t size, void **memory) {
  ascend_guard guard;
  void *made = NULL;
  (void)self;
  fl_status status = enter(of_host_memory, device, &guard);
  if (status)
    return status;
  pinned_block *block = malloc(sizeof *block);
  if (!block)
    status = refuse(FL_ENOMEM, "out of host memory");
  else
    status = result_of("aclrtMallocHost", acl.aclrtMallocHost(&made, size ? size : 1));
  ascend_leave(&guard);
  if (status) {
    free(block);
    return status;
  }
  *block = (pinned_block){.memory = made, .size = size};
  add_pinned(block);
  *memory = made;
  return FL_OK;
}

/* It leaves the list first: another thread may be given the same address at once. */
fl_status ascend_release_host(void *self, int32_t device, void *memory) {
  ascend_guard guard;
  (void)self;
  fl_status status = memory ? enter(of_host_memory, device, &guard) : FL_OK;
  if (status || !memory)
    return status;
  remove_pinned(memory);
  status = result_of("aclrtFreeHost", acl.aclrtFreeHost(memory));
  ascend_leave(&guard);
  return status;
}

/* Of host memory that is not pinned older runtimes copy anything at all: it is copied as ever, in the stream's turn. A
 * stream that is captured cannot be waited for; runtimes that have graphs tell what is pinned themselves. */
fl_status ascend_copy_async(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                            void *stream) {
  static const aclrtMemcpyKind kinds[] = {[FL_COPY_TO_DEVICE] = ACL_MEMCPY_HOST_TO_DEVICE,
                                          [FL_COPY_TO_HOST] = ACL_MEMCPY_DEVICE_TO_HOST,
                                          [FL_COPY_ON_DEVICE] = ACL_MEMCPY_DEVICE_TO_DEVICE};
  ascend_guard guard;
  fl_status status = size ? ascend_enter_device(device, &guard) : FL_OK;
  if (status || !size)
    return status;
  if (direction == FL_COPY_ON_DEVICE || is_pinned(direction == FL_COPY_TO_HOST ? to : from, size) ||
      ascend_is_captured(stream))
    status = result_of("aclrtMemcpyAsync", acl.aclrtMemcpyAsync(to, size, from, size, kinds[direction], stream));
  else
    status = ascend_copy_now(self, device, to, from, size, direction, stream);
  ascend_leave(&guard);
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- graphs */

/* Other threads may go on with what a graph cannot hold; this one is told. */
fl_status ascend_begin_capture(void *self, int32_t device, void *stream) {
  ascend_guard guard;
  (void)self;
  fl_status status = enter(of_graphs, device, &guard);
  if (status)
    return status;
  status = result_of("aclmdlRICaptureBegin", acl.aclmdlRICaptureBegin(stream, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL));
  ascend_leave(&guard);
  return status;
}

fl_status ascend_end_capture(void *self, int32_t device, void *stream, void **graph) {
  ascend_guard guard;
  aclmdlRI made = NULL;
  (void)self;
  fl_status status = enter(of_graphs, device, &guard);
  if (status)
    return status;
  status = result_of("aclmdlRICaptureEnd", acl.aclmdlRICaptureEnd(stream, &made));
  if (status && made)
    acl.aclmdlRIDestroy(made);
  else if (!status && !made)
    status = refuse(FL_EDEVICE, "aclmdlRICaptureEnd made no graph");
  ascend_leave(&guard);
  if (!status)
    *graph = made;
  return status;
}

fl_status ascend_launch_graph(void *self, int32_t device, void *graph, void *stream) {
  ascend_guard guard;
  (void)self;
  fl_status status = enter(of_graphs, device, &guard);
  if (status)
    return status;
  status = result_of("aclmdlRIExecuteAsync", acl.aclmdlRIExecuteAsync(graph, stream));
  ascend_leave(&guard);
  return status;
}

fl_status ascend_destroy_graph(void *self, int32_t device, void *graph) {
  ascend_guard guard;
  (void)self;
  fl_status status = graph ? enter(of_graphs, device, &guard) : FL_OK;
  if (status || !graph)
    return status;
  status = result_of("aclmdlRIDestroy", acl.aclmdlRIDestroy(graph));
  ascend_leave(&guard);
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- health */

/* Needs no context, and so makes none. */
static fl_status ask_runtime(int32_t device) {
  aclrtDeviceStatus found = ACL_RT_DEVICE_STATUS_NORMAL;
  aclError code = acl.aclrtQueryDeviceStatus(device, &found);
  if (code) {
    ascend_describe_of(device, ascend_words(), ASCEND_WORDS, "aclrtQueryDeviceStatus", code);
    return status_of(code);
  }
  if (found == ACL_RT_DEVICE_STATUS_NORMAL)
    return FL_OK;
  snprintf(ascend_words(), ASCEND_WORDS, "aclrtQueryDeviceStatus says that Ascend device %d is abnormal (%d)",
           (int)device, (int)found);
  return FL_EDEVICE;
}

/* What a call has met counts where the runtime still says that all is well. */
fl_status ascend_health(void *self, int32_t device) {
  int32_t code = ascend_lost(device);
  (void)self;
  if (ascend_check_number(device, ascend_words(), ASCEND_WORDS))
    return FL_EDEVICE;
  if (code) {
    snprintf(ascend_words(), ASCEND_WORDS, "Ascend device %d is lost: a call returned %d (%s)", (int)device, (int)code,
             ascend_code_of(code).meaning);
    return FL_EDEVICE;
  }
  fl_status status = need(of_health);
  return status ? status : ask_runtime(device);
}
