/* The processor as a platform: memory is the process's own, and work is done when the call that gives it returns. */
#include "core/platform/processor.h"
#include "core/support.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { ALIGNMENT = 256 };

/* Why the thread's last of these functions failed; NULL: for want of memory. */
static _Thread_local const char *words;

/* ------------------------------------------------------------------------------------------------- what is there */

static bool is_active(void *self, const char **reason) {
  (void)self;
  *reason = NULL;
  return true;
}

static int device_count(void *self) {
  (void)self;
  return 1;
}

/* "AMD EPYC 9654 96-Core Processor"; left alone where the kernel does not say. */
static void read_processor(char *name, size_t size) {
  FILE *file = fopen("/proc/cpuinfo", "re");
  char line[256];
  while (file && fgets(line, sizeof line, file)) {
    const char *value = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !value)
      continue;
    value++;
    size_t length = fl_trim(&value, strlen(value));
    snprintf(name, size, "%.*s", (int)length, value);
    break;
  }
  if (file)
    fclose(file);
}

static fl_status properties_of(void *self, int32_t device, fl_device_properties *properties) {
  struct utsname system;
  uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  (void)self, (void)device;
  properties->units = (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
  properties->memory_total = (uint64_t)sysconf(_SC_PHYS_PAGES) * page;
  properties->memory_free = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * page;
  snprintf(properties->name, sizeof properties->name, "processor");
  read_processor(properties->name, sizeof properties->name);
  if (!uname(&system)) {
    snprintf(properties->arch, sizeof properties->arch, "%.*s", (int)sizeof properties->arch - 1, system.machine);
    snprintf(properties->driver, sizeof properties->driver, "%.*s", (int)sizeof properties->driver - 1, system.release);
  }
  return FL_OK;
}

static fl_status current_device(void *self, int32_t *device) {
  (void)self;
  *device = 0;
  return FL_OK;
}

static fl_status allocate(void *self, int32_t device, size_t size, void **memory) {
  (void)self, (void)device;
  if (size > SIZE_MAX - ALIGNMENT)
    return FL_ENOMEM;
  *memory = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return *memory ? FL_OK : FL_ENOMEM;
}

static fl_status release(void *self, int32_t device, void *memory) {
  (void)self, (void)device;
  free(memory);
  return FL_OK;
}

static fl_status copy(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                      void *stream) {
  (void)self, (void)device, (void)direction, (void)stream;
  memmove(to, from, size);
  return FL_OK;
}

static fl_status synchronize(void *self, int32_t device, void *stream, bool all) {
  (void)self, (void)device, (void)stream, (void)all;
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------- streams and events */

/* Work is done when the call that gives it returns, so that a stream is nothing but an address of its own. */
static fl_status create_stream(void *self, int32_t device, int32_t priority, void **stream) {
  (void)self, (void)device, (void)priority;
  *stream = malloc(1);
  return *stream ? FL_OK : FL_ENOMEM;
}

static fl_status destroy_stream(void *self, int32_t device, void *stream) {
  (void)self, (void)device;
  free(stream);
  return FL_OK;
}

typedef struct event {
  bool timed, recorded;
  struct timespec at;
} event;

static fl_status create_event(void *self, int32_t device, bool timed, void **made) {
  (void)self, (void)device;
  event *e = calloc(1, sizeof *e);
  if (!e)
    return FL_ENOMEM;
  e->timed = timed;
  *made = e;
  return FL_OK;
}

static fl_status destroy_event(void *self, int32_t device, void *given) {
  (void)self, (void)device;
  free(given);
  return FL_OK;
}

static fl_status record_event(void *self, int32_t device, void *given, void *stream) {
  event *e = given;
  (void)self, (void)device, (void)stream;
  e->recorded = true;
  if (e->timed)
    clock_gettime(CLOCK_MONOTONIC, &e->at);
  return FL_OK;
}

static fl_status wait_event(void *self, int32_t device, void *given, void *stream) {
  (void)self, (void)device, (void)given, (void)stream;
  return FL_OK;
}

static fl_status is_event_done(void *self, int32_t device, void *given, bool *done) {
  (void)self, (void)device, (void)given;
  *done = true;
  return FL_OK;
}

static fl_status synchronize_event(void *self, int32_t device, void *given) {
  (void)self, (void)device, (void)given;
  return FL_OK;
}

static fl_status elapsed(void *self, int32_t device, void *first, void *last, double *us) {
  const event *a = first, *b = last;
  (void)self, (void)device;
  if (!a->timed || !b->timed || !a->recorded || !b->recorded) {
    words = a->timed && b->timed ? "an event was not recorded" : "an event was not made to be timed";
    return FL_EDEVICE;
  }
  *us = (double)(b->at.tv_sec - a->at.tv_sec) * 1e6 + (double)(b->at.tv_nsec - a->at.tv_nsec) * 1e-3;
  return FL_OK;
}

/* ------------------------------------------------------------------------------------------------------------- pool */

/* The C library's, which keeps what is given back, too. Before each block stands its size, in what aligns it. */
static _Atomic uint64_t in_use;

static fl_status allocate_async(void *self, int32_t device, size_t size, void *stream, void **memory) {
  void *made;
  (void)stream;
  if (size > SIZE_MAX - ALIGNMENT)
    return FL_ENOMEM;
  fl_status status = allocate(self, device, size + ALIGNMENT, &made);
  if (status)
    return status;
  memcpy(made, &size, sizeof size);
  atomic_fetch_add(&in_use, size);
  *memory = (char *)made + ALIGNMENT;
  return FL_OK;
}

static fl_status release_async(void *self, int32_t device, void *memory, void *stream) {
  void *made = (char *)memory - ALIGNMENT;
  size_t size;
  (void)self, (void)device, (void)stream;
  memcpy(&size, made, sizeof size);
  atomic_fetch_sub(&in_use, size);
  free(made);
  return FL_OK;
}

static fl_status trim_pool(void *self, int32_t device, uint64_t keep) {
  (void)self, (void)device;
  malloc_trim(keep < SIZE_MAX ? (size_t)keep : SIZE_MAX);
  return FL_OK;
}

/* What the C library holds beside it, it holds for all. */
static fl_status pool_usage(void *self, int32_t device, uint64_t *used, uint64_t *held) {
  (void)self, (void)device;
  *used = *held = atomic_load(&in_use);
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------- what is left */

static fl_status health(void *self, int32_t device) {
  (void)self, (void)device;
  return FL_OK;
}

/* What fails without words is memory. */
static const char *error(void *self) {
  const char *said = words ? words : "out of memory";
  (void)self;
  words = NULL;
  return said;
}

const fl_platform fl_processor = {
    .size = sizeof fl_processor,
    .device_type = kDLCPU,
    .is_active = is_active,
    .device_count = device_count,
    .properties = properties_of,
    .current_device = current_device,
    .allocate = allocate,
    .release = release,
    .copy = copy,
    .synchronize = synchronize,
    .error = error,
    .create_stream = create_stream,
    .destroy_stream = destroy_stream,
    .create_event = create_event,
    .destroy_event = destroy_event,
    .record_event = record_event,
    .wait_event = wait_event,
    .is_event_done = is_event_done,
    .synchronize_event = synchronize_event,
    .elapsed = elapsed,
    .allocate_host = allocate,
    .release_host = release,
    .copy_async = copy,
    .allocate_async = allocate_async,
    .release_async = release_async,
    .trim_pool = trim_pool,
    .pool_usage = pool_usage,
    .health = health,
};
