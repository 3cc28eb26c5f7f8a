/*
 * What a stand-in driver does in the order of streams: tasks that wait until somebody asks for them (the setting
 * `delay`) or run at once, events, captures and graphs, pools. The entry points are those of
 * plugins/gpu/work_functions.h, whose prototypes tests/cuda-headers holds against the vendors' headers;
 * standin_create_stream is exported as cuStreamCreateWithPriority or hipStreamCreateWithPriority, and
 * `fail.create_stream=2` among the settings lets it fail.
 *
 * STANDIN_LEAN: a driver that lacks one function of each part.
 */
#ifndef FLHOST_TESTS_STANDIN_WORK_H
#define FLHOST_TESTS_STANDIN_WORK_H

#include "plugins/gpu/work_functions.h"
#include "tests/drivers/gpu/standin.h"

#include <limits.h>
#include <stdint.h>

enum {
  STANDIN_INVALID_VALUE = 1,
  STANDIN_OUT_OF_MEMORY = 2,
  STANDIN_INVALID_CONTEXT = 201,
  STANDIN_INVALID_HANDLE = 400,
  STANDIN_ILLEGAL_STATE = 401,
  STANDIN_NOT_READY = 600,
  STANDIN_NOT_SUPPORTED = 801,
  STANDIN_CAPTURE_UNSUPPORTED = 900,
  STANDIN_CAPTURE_INVALIDATED = 901,
  STANDIN_CAPTURE_MERGE = 902,
  STANDIN_CAPTURE_UNMATCHED = 903,
  STANDIN_CAPTURE_UNJOINED = 904,
  STANDIN_CAPTURE_ISOLATION = 905,
  STANDIN_CAPTURED_EVENT = 907,
  STANDIN_CAPTURE_WRONG_THREAD = 908
};

/* ----------------------------------------------------------------------------------------------------- entry points */

#ifdef STANDIN_LEAN
#define cuStreamCreateWithPriority   of_a_later_driver_1
#define hipStreamCreateWithPriority  of_a_later_driver_1
#define cuStreamWaitEvent            of_a_later_driver_2
#define hipStreamWaitEvent           of_a_later_driver_2
#define cuMemHostAlloc               of_a_later_driver_3
#define hipHostMalloc                of_a_later_driver_3
#define cuMemAllocFromPoolAsync      of_a_later_driver_4
#define hipMallocFromPoolAsync       of_a_later_driver_4
#define cuGraphInstantiateWithFlags  of_a_later_driver_5
#define hipGraphInstantiateWithFlags of_a_later_driver_5
#define cuStreamQuery                of_a_later_driver_6
#define hipStreamQuery               of_a_later_driver_6
#endif

#ifdef STANDIN_hip
#define STANDIN_NAME(cuda, hip) hip
#else
#define STANDIN_NAME(cuda, hip) cuda
#endif
#define STANDIN_TEXT(name)  STANDIN_TEXT_(name)
#define STANDIN_TEXT_(name) #name

typedef void *gpu_stream, *gpu_pool, *gpu_address;
typedef struct standin_event *gpu_event;
typedef struct standin_graph *gpu_graph, *gpu_instance;
typedef int gpu_pool_attribute, gpu_capture_mode;

typedef struct gpu_pool_properties {
  int kind, handles, place, ordinal;
  void *security;
  unsigned char reserved[64];
} gpu_pool_properties;

#define STANDIN_ENTRY(part, field, cuda, hip, arguments)                                                               \
  STANDIN_EXPORT int standin_##field arguments __asm__(STANDIN_TEXT(STANDIN_NAME(cuda, hip)));
GPU_WORK_FUNCTIONS(STANDIN_ENTRY)
#undef STANDIN_ENTRY

/* What each of them begins with: has the thread a device, does the device work, is the function to fail? */
int standin_begin(const char *function);
#define STANDIN_BEGIN standin_begin(__func__ + sizeof "standin_" - 1)

/* ------------------------------------------------------------------------------------------------------------ tasks */

typedef struct standin_task {
  struct standin_task *next;
  unsigned long number; /* in the order of all that were made */
  void *stream;
  int (*run)(const struct standin_task *task); /* a code: the device is broken */
  size_t size;
  _Alignas(16) char arguments[];
} standin_task;

/* NULL: no memory. */
standin_task *standin_make_task(int (*run)(const standin_task *task), void *stream, size_t size);

/* Takes the task: a capture's it becomes, or waits in the stream, or runs. */
int standin_queue_task(standin_task *task);

/* Of the task with that number, and of all tasks. */
bool standin_is_pending(unsigned long number);
/* Runs what has to be run for that task to be done. */
void standin_finish(unsigned long number);

/* Microseconds, of which each task takes one. */
unsigned long standin_clock(void);

/* Is the stream one of the thread's device? One that a test invents is everybody's. */
bool standin_is_here(void *stream);

/* Has work that nobody has waited for yet. */
bool standin_has_work(void *stream);

/* --------------------------------------------------------------------------------------------------------- captures */

/* Does the stream's capture take the task? Then *code is what becomes of it. */
bool standin_capture_takes(standin_task *task, int *code);

/* Waiting for a stream, or for all, ends its capture: there is no graph. true: there was one. */
bool standin_capture_ends(void *stream, bool all);

/* The same for what the thread must not do beside a capture that it began. */
bool standin_thread_capture_ends(void);

/* 0: none; 1: active; 2: ended */
int standin_capture_status(void *stream);

/* Where a captured event lies; capture 0: it is not captured. */
typedef struct standin_place {
  unsigned long capture;
  void *stream;
  size_t work;
} standin_place;

/* Where an event would lie that is recorded in the stream now. */
standin_place standin_capture_place(void *stream);
bool standin_capture_is_open(unsigned long capture);
/* That ends, too. */
void standin_capture_spoil(unsigned long capture);
/* The stream waits for the place. false: that has nothing to do with captures. */
bool standin_capture_joins(void *stream, const standin_place *place, int *code);

#endif
