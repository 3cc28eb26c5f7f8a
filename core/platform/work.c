/* Streams, events, pools and graphs as engines see them: flhost/device.h. Each function is the platform's own. */
#include "core/platform/device.h"
#include "core/support.h"

#include <string.h>

/* The first function of what comes together; the others are there if that is. */
enum member {
  STREAMS = offsetof(fl_platform, create_stream),
  EVENTS = offsetof(fl_platform, create_event),
  HOST_MEMORY = offsetof(fl_platform, allocate_host),
  COPIES = offsetof(fl_platform, copy_async),
  POOLS = offsetof(fl_platform, allocate_async),
  GRAPHS = offsetof(fl_platform, begin_capture),
  HEALTH = offsetof(fl_platform, health)
};

/* One call of such a function. */
typedef struct work {
  fl_backend backend;
  DLDevice device;
  const char *title; /* "making a stream" */
} work;

static fl_status not_there(const work *w, const char *things) {
  char name[32];
  fl_device_words(w->device, name, sizeof name);
  if (w->device.device_type == kDLCPU)
    return fl_error(FL_ENOTSUP, "%s: %s: the processor has no %s", name, w->title, things);
  return fl_error(FL_ENOTSUP, "%s: %s: the platform of plugin '%s' has no %s", name, w->title, w->backend.plugin,
                  things);
}

/* Finds who is to do it. */
static fl_status begin(work *w, fl_host *host, DLDevice device, enum member member, const char *title) {
  static const struct {
    enum member member;
    const char *things;
  } members[] = {{STREAMS, "streams"},
                 {EVENTS, "events"},
                 {HOST_MEMORY, "host memory of its own"},
                 {COPIES, "asynchronous copies"},
                 {POOLS, "pools"},
                 {GRAPHS, "graphs"},
                 {HEALTH, "word on its health"}};
  void (*function)(void);
  w->device = device;
  w->title = title;
  fl_status status = fl_backend_open(host, device, &w->backend);
  if (status)
    return status;
  memcpy(&function, (const char *)&w->backend.platform + member, sizeof function);
  for (size_t i = 0; !function && i < sizeof members / sizeof *members; i++)
    if (members[i].member == member)
      return not_there(w, members[i].things);
  return FL_OK;
}

/* What the platform answered. */
static fl_status answered(const work *w, fl_status status) {
  if (status == FL_ENOTSUP)
    return fl_backend_said(&w->backend, w->device, status, w->title);
  return status ? fl_backend_failed(&w->backend, w->device, status, w->title) : FL_OK;
}

/* The same of what was to be made. */
static fl_status made(const work *w, fl_status status, void *thing, void **to) {
  status = answered(w, !status && !thing ? FL_ENOMEM : status);
  if (!status)
    *to = thing;
  return status;
}

static fl_status given(const void *thing, const char *function, const char *name) {
  return thing ? FL_OK : fl_error(FL_EINVAL, "%s: %s is NULL", function, name);
}

/* ----------------------------------------------------------------------------------------------- streams and events */

fl_status fl_stream_create(fl_host *host, DLDevice device, int32_t priority, void **stream) {
  work w;
  void *thing = NULL;
  fl_status status = begin(&w, host, device, STREAMS, "making a stream");
  if (status)
    return status;
  status = w.backend.platform.create_stream(w.backend.self, device.device_id, priority, &thing);
  return made(&w, status, thing, stream);
}

fl_status fl_stream_destroy(fl_host *host, DLDevice device, void *stream) {
  work w;
  if (!stream)
    return FL_OK;
  fl_status status = begin(&w, host, device, STREAMS, "ending a stream");
  return status ? status : answered(&w, w.backend.platform.destroy_stream(w.backend.self, device.device_id, stream));
}

fl_status fl_event_create(fl_host *host, DLDevice device, bool timed, void **event) {
  work w;
  void *thing = NULL;
  fl_status status = begin(&w, host, device, EVENTS, "making an event");
  if (status)
    return status;
  status = w.backend.platform.create_event(w.backend.self, device.device_id, timed, &thing);
  return made(&w, status, thing, event);
}

fl_status fl_event_destroy(fl_host *host, DLDevice device, void *event) {
  work w;
  if (!event)
    return FL_OK;
  fl_status status = begin(&w, host, device, EVENTS, "ending an event");
  return status ? status : answered(&w, w.backend.platform.destroy_event(w.backend.self, device.device_id, event));
}

fl_status fl_event_record(fl_host *host, DLDevice device, void *event, void *stream) {
  work w;
  fl_status status = given(event, "fl_event_record", "event");
  if (!status)
    status = begin(&w, host, device, EVENTS, "recording an event");
  return status ? status
                : answered(&w, w.backend.platform.record_event(w.backend.self, device.device_id, event, stream));
}

fl_status fl_stream_wait_event(fl_host *host, DLDevice device, void *stream, void *event) {
  work w;
  fl_status status = given(event, "fl_stream_wait_event", "event");
  if (!status)
    status = begin(&w, host, device, EVENTS, "putting a stream behind an event");
  return status ? status : answered(&w, w.backend.platform.wait_event(w.backend.self, device.device_id, event, stream));
}

fl_status fl_event_is_done(fl_host *host, DLDevice device, void *event, bool *done) {
  work w;
  bool is_done = false;
  fl_status status = given(event, "fl_event_is_done", "event");
  if (!status)
    status = begin(&w, host, device, EVENTS, "asking for an event");
  if (!status)
    status = answered(&w, w.backend.platform.is_event_done(w.backend.self, device.device_id, event, &is_done));
  if (!status)
    *done = is_done;
  return status;
}

fl_status fl_event_synchronize(fl_host *host, DLDevice device, void *event) {
  work w;
  fl_status status = given(event, "fl_event_synchronize", "event");
  if (!status)
    status = begin(&w, host, device, EVENTS, "waiting for an event");
  return status ? status : answered(&w, w.backend.platform.synchronize_event(w.backend.self, device.device_id, event));
}

fl_status fl_event_elapsed(fl_host *host, DLDevice device, void *first, void *last, double *us) {
  work w;
  double measured = 0;
  fl_status status = given(first && last ? first : NULL, "fl_event_elapsed", first ? "last" : "first");
  if (!status)
    status = begin(&w, host, device, EVENTS, "the time between two events");
  if (!status)
    status = answered(&w, w.backend.platform.elapsed(w.backend.self, device.device_id, first, last, &measured));
  if (!status)
    *us = measured;
  return status;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

/* Drivers give nothing, or an error, for no bytes. */
static size_t at_least_one(size_t size) {
  return size ? size : 1;
}

fl_status fl_device_allocate_host(fl_host *host, DLDevice device, size_t size, void **memory) {
  work w;
  void *thing = NULL;
  fl_status status = begin(&w, host, device, HOST_MEMORY, "allocating host memory");
  if (status)
    return status;
  status = w.backend.platform.allocate_host(w.backend.self, device.device_id, at_least_one(size), &thing);
  return made(&w, status, thing, memory);
}

fl_status fl_device_free_host(fl_host *host, DLDevice device, void *memory) {
  work w;
  if (!memory)
    return FL_OK;
  fl_status status = begin(&w, host, device, HOST_MEMORY, "freeing host memory");
  return status ? status : answered(&w, w.backend.platform.release_host(w.backend.self, device.device_id, memory));
}

fl_status fl_device_copy_async(fl_host *host, DLDevice device, void *to, const void *from, size_t size,
                               int32_t direction, void *stream) {
  work w;
  fl_status status = fl_direction_check("fl_device_copy_async", direction);
  if (!status)
    status = begin(&w, host, device, COPIES, "copying");
  if (status || !size)
    return status;
  const fl_platform *platform = &w.backend.platform;
  return answered(&w, platform->copy_async(w.backend.self, device.device_id, to, from, size, direction, stream));
}

fl_status fl_device_allocate_async(fl_host *host, DLDevice device, size_t size, void *stream, void **memory) {
  work w;
  void *thing = NULL;
  fl_status status = begin(&w, host, device, POOLS, "allocating from the pool");
  if (status)
    return status;
  status = w.backend.platform.allocate_async(w.backend.self, device.device_id, at_least_one(size), stream, &thing);
  return made(&w, status, thing, memory);
}

fl_status fl_device_free_async(fl_host *host, DLDevice device, void *memory, void *stream) {
  work w;
  if (!memory)
    return FL_OK;
  fl_status status = begin(&w, host, device, POOLS, "giving memory back to the pool");
  return status ? status
                : answered(&w, w.backend.platform.release_async(w.backend.self, device.device_id, memory, stream));
}

fl_status fl_device_trim_pool(fl_host *host, DLDevice device, uint64_t keep) {
  work w;
  fl_status status = begin(&w, host, device, POOLS, "trimming the pool");
  return status ? status : answered(&w, w.backend.platform.trim_pool(w.backend.self, device.device_id, keep));
}

fl_status fl_device_pool_usage(fl_host *host, DLDevice device, uint64_t *used, uint64_t *held) {
  work w;
  uint64_t in_use = 0, all = 0;
  fl_status status = begin(&w, host, device, POOLS, "asking for the pool");
  if (!status)
    status = answered(&w, w.backend.platform.pool_usage(w.backend.self, device.device_id, &in_use, &all));
  if (status)
    return status;
  *used = in_use;
  *held = all;
  return FL_OK;
}

/* ----------------------------------------------------------------------------------------------------------- graphs */

fl_status fl_graph_begin(fl_host *host, DLDevice device, void *stream) {
  work w;
  fl_status status = begin(&w, host, device, GRAPHS, "beginning a graph");
  if (!status && !stream)
    return fl_error(FL_EINVAL, "fl_graph_begin: stream is NULL, and the default stream makes no graph");
  return status ? status : answered(&w, w.backend.platform.begin_capture(w.backend.self, device.device_id, stream));
}

fl_status fl_graph_end(fl_host *host, DLDevice device, void *stream, void **graph) {
  work w;
  void *thing = NULL;
  fl_status status = begin(&w, host, device, GRAPHS, "making the graph");
  if (!status)
    status = given(stream, "fl_graph_end", "stream");
  if (status)
    return status;
  status = w.backend.platform.end_capture(w.backend.self, device.device_id, stream, &thing);
  return made(&w, status, thing, graph);
}

fl_status fl_graph_launch(fl_host *host, DLDevice device, void *graph, void *stream) {
  work w;
  fl_status status = begin(&w, host, device, GRAPHS, "launching a graph");
  if (!status)
    status = given(graph, "fl_graph_launch", "graph");
  return status ? status
                : answered(&w, w.backend.platform.launch_graph(w.backend.self, device.device_id, graph, stream));
}

fl_status fl_graph_destroy(fl_host *host, DLDevice device, void *graph) {
  work w;
  if (!graph)
    return FL_OK;
  fl_status status = begin(&w, host, device, GRAPHS, "ending a graph");
  return status ? status : answered(&w, w.backend.platform.destroy_graph(w.backend.self, device.device_id, graph));
}

/* ------------------------------------------------------------------------------------------------ the device itself */

fl_status fl_device_seed(fl_host *host, DLDevice device, uint64_t seed) {
  work w = {.device = device, .title = "seeding random numbers"};
  fl_status status = fl_backend_open(host, device, &w.backend);
  if (status || !w.backend.platform.seed)
    return status;
  return answered(&w, w.backend.platform.seed(w.backend.self, device.device_id, seed));
}

fl_status fl_device_health(fl_host *host, DLDevice device) {
  work w;
  fl_status status = begin(&w, host, device, HEALTH, "health");
  return status ? status : answered(&w, w.backend.platform.health(w.backend.self, device.device_id));
}
