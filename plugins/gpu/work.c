/*
 * What fl_platform has beside devices and memory: streams, events, host memory that the device reaches, pools, graphs,
 * health. Handles are the driver's own, so that an engine may have made them as well. Where the driver lacks a part,
 * its functions return FL_ENOTSUP and name what is missing.
 */
#include "plugins/gpu/work.h"
#include "plugins/gpu/platform.h"

static fl_status begin(gpu_visit *visit, gpu_part part, int32_t ordinal, const char *where) {
  fl_status status = gpu_visit_begin(visit, ordinal, where);
  if (status || !(status = gpu_platform_has(part, where)))
    return status;
  gpu_visit_end(visit, GPU_SUCCESS, NULL);
  return status;
}

/* Devices that have no such thing say so. */
static fl_status end(const gpu_visit *visit, gpu_code code, const char *step) {
  fl_status status = gpu_visit_end(visit, code, step);
  return code == GPU_NOT_SUPPORTED ? FL_ENOTSUP : status;
}

/* ---------------------------------------------------------------------------------------------------------- streams */

/* Of the device's numbers the least urgent is the greatest. */
static int nearest(int32_t priority, int least, int greatest) {
  return priority > least ? least : priority < greatest ? greatest : priority;
}

static fl_status create_stream(void *self, int32_t ordinal, int32_t priority, void **stream) {
  gpu_visit visit;
  const char *step = "asking for the priorities of streams";
  void *made = NULL;
  int least = 0, greatest = 0;
  (void)self;
  fl_status status = begin(&visit, GPU_STREAMS, ordinal, "create_stream");
  if (status)
    return status;
  gpu_code code = gpu.work.priorities(&least, &greatest);
  if (!code) {
    step = "making a stream";
    code = gpu.work.create_stream(&made, GPU_STREAM_NON_BLOCKING, nearest(priority, least, greatest));
  }
  if (!code)
    *stream = made;
  return end(&visit, code, step);
}

static fl_status destroy_stream(void *self, int32_t ordinal, void *stream) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_STREAMS, ordinal, "destroy_stream");
  return status ? status : end(&visit, gpu.work.destroy_stream(stream), "destroying the stream");
}

/* ----------------------------------------------------------------------------------------------------------- events */

static fl_status create_event(void *self, int32_t ordinal, bool timed, void **event) {
  gpu_visit visit;
  void *made = NULL;
  (void)self;
  fl_status status = begin(&visit, GPU_EVENTS, ordinal, "create_event");
  if (status)
    return status;
  gpu_code code = gpu.work.create_event(&made, timed ? 0 : GPU_EVENT_UNTIMED);
  if (!code)
    *event = made;
  return end(&visit, code, "making an event");
}

static fl_status destroy_event(void *self, int32_t ordinal, void *event) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_EVENTS, ordinal, "destroy_event");
  return status ? status : end(&visit, gpu.work.destroy_event(event), "destroying the event");
}

static fl_status record_event(void *self, int32_t ordinal, void *event, void *stream) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_EVENTS, ordinal, "record_event");
  return status ? status : end(&visit, gpu.work.record_event(event, stream), "recording the event");
}

static fl_status wait_event(void *self, int32_t ordinal, void *event, void *stream) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_EVENTS, ordinal, "wait_event");
  return status ? status : end(&visit, gpu.work.wait_event(stream, event, 0), "letting the stream wait");
}

static fl_status is_event_done(void *self, int32_t ordinal, void *event, bool *done) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_EVENTS, ordinal, "is_event_done");
  if (status)
    return status;
  gpu_code code = gpu.work.query_event(event);
  if (!code || code == GPU_NOT_READY)
    *done = !code;
  return end(&visit, code == GPU_NOT_READY ? GPU_SUCCESS : code, "asking for the event");
}

static fl_status synchronize_event(void *self, int32_t ordinal, void *event) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_EVENTS, ordinal, "synchronize_event");
  return status ? status : end(&visit, gpu.work.synchronize_event(event), "waiting for the event");
}

static fl_status elapsed(void *self, int32_t ordinal, void *first, void *last, double *us) {
  gpu_visit visit;
  float ms = 0;
  (void)self;
  fl_status status = begin(&visit, GPU_EVENTS, ordinal, "elapsed");
  if (status)
    return status;
  gpu_code code = gpu.work.elapsed(&ms, first, last);
  if (!code)
    *us = (double)ms * 1000;
  return end(&visit, code, "reading the time between two timed events that are done");
}

/* ------------------------------------------------------------------------------------------------------ host memory */

/* Whole pages, for every device. No bytes are no memory, but a pointer that release_host() takes back. */
static fl_status allocate_host(void *self, int32_t ordinal, size_t size, void **memory) {
  gpu_visit visit;
  void *made = NULL;
  (void)self;
  fl_status status = begin(&visit, GPU_HOST_MEMORY, ordinal, "allocate_host");
  if (status)
    return status;
  gpu_code code = gpu.work.allocate_host(&made, size ? size : 1, GPU_HOST_PORTABLE);
  if (!code)
    *memory = made;
  return end(&visit, code, "allocating host memory");
}

static fl_status release_host(void *self, int32_t ordinal, void *memory) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_HOST_MEMORY, ordinal, "release_host");
  return status ? status : end(&visit, gpu.work.release_host(memory), "giving host memory back");
}

static fl_status copy_async(void *self, int32_t ordinal, void *to, const void *from, size_t size, int32_t direction,
                            void *stream) {
  gpu_visit visit;
  (void)self;
  fl_status status = size ? gpu_visit_begin(&visit, ordinal, "copy_async") : FL_OK;
  if (status || !size)
    return status;
  return end(&visit, gpu.call.copy(to, from, size, direction, stream), "queueing the copy");
}

/* ------------------------------------------------------------------------------------------------------------ pools */

/* One for each device, of our own: the process's default pool is the engine's, which may want it to give back what it
 * has. Made on first use, and kept. */
static _Atomic(void *) pools[GPU_MAX_DEVICES];

static gpu_code make_pool(int ordinal, void **pool) {
  const gpu_pool_properties properties = {.kind = GPU_MEMORY_PINNED,
                                          .place = {.kind = GPU_MEMORY_ON_DEVICE, .ordinal = ordinal}};
  uint64_t all = UINT64_MAX;
  gpu_code code = gpu.work.create_pool(pool, &properties);
  if (code)
    return code;
  code = gpu.work.set_pool(*pool, GPU_POOL_KEEPS, &all);
  if (code)
    gpu.work.destroy_pool(*pool);
  return code;
}

/* The device's, which is entered. */
static gpu_code find_pool(int ordinal, void **pool) {
  gpu_code code = GPU_SUCCESS;
  *pool = atomic_load_explicit(&pools[ordinal], memory_order_acquire);
  if (*pool)
    return code;
  pthread_mutex_lock(&gpu_locks[GPU_LOCK_POOLS]);
  *pool = atomic_load(&pools[ordinal]);
  if (!*pool && !(code = make_pool(ordinal, pool)))
    atomic_store_explicit(&pools[ordinal], *pool, memory_order_release);
  pthread_mutex_unlock(&gpu_locks[GPU_LOCK_POOLS]);
  return code;
}

static fl_status allocate_async(void *self, int32_t ordinal, size_t size, void *stream, void **memory) {
  gpu_visit visit;
  const char *step = "making the device's pool";
  void *pool, *made = NULL;
  (void)self;
  fl_status status = begin(&visit, GPU_POOLS, ordinal, "allocate_async");
  if (status)
    return status;
  gpu_code code = find_pool(ordinal, &pool);
  if (!code) {
    step = "allocating memory";
    code = gpu.work.allocate_async(&made, size ? size : 1, pool, stream);
  }
  if (!code)
    *memory = made;
  return end(&visit, code, step);
}

static fl_status release_async(void *self, int32_t ordinal, void *memory, void *stream) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_POOLS, ordinal, "release_async");
  return status ? status : end(&visit, gpu.work.release_async(memory, stream), "giving memory back");
}

/* A pool that was never used has nothing to give. */
static fl_status trim_pool(void *self, int32_t ordinal, uint64_t keep) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_POOLS, ordinal, "trim_pool");
  if (status)
    return status;
  void *pool = atomic_load_explicit(&pools[ordinal], memory_order_acquire);
  return end(&visit, pool ? gpu.work.trim_pool(pool, keep) : GPU_SUCCESS, "trimming the device's pool");
}

static fl_status pool_usage(void *self, int32_t ordinal, uint64_t *used, uint64_t *held) {
  gpu_visit visit;
  uint64_t found[2] = {0, 0};
  gpu_code code = GPU_SUCCESS;
  (void)self;
  fl_status status = begin(&visit, GPU_POOLS, ordinal, "pool_usage");
  if (status)
    return status;
  void *pool = atomic_load_explicit(&pools[ordinal], memory_order_acquire);
  if (pool && !(code = gpu.work.ask_pool(pool, GPU_POOL_USED, &found[0])))
    code = gpu.work.ask_pool(pool, GPU_POOL_HELD, &found[1]);
  if (!code) {
    *used = found[0];
    *held = found[1];
  }
  return end(&visit, code, "asking for the pool's size");
}

/* ----------------------------------------------------------------------------------------------------------- graphs */

/* What this thread does beside the stream, and would spoil the graph, is refused; other threads are left alone. */
static fl_status begin_capture(void *self, int32_t ordinal, void *stream) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_GRAPHS, ordinal, "begin_capture");
  if (status)
    return status;
  return end(&visit, gpu.work.begin_capture(stream, GPU_CAPTURE_THREAD), "beginning the capture");
}

/* Of what was captured only the form that can be launched is kept. */
static fl_status end_capture(void *self, int32_t ordinal, void *stream, void **graph) {
  gpu_visit visit;
  const char *step = "ending the capture";
  void *captured = NULL, *made = NULL;
  (void)self;
  fl_status status = begin(&visit, GPU_GRAPHS, ordinal, "end_capture");
  if (status)
    return status;
  gpu_code code = gpu.work.end_capture(stream, &captured);
  if (!code) {
    step = "making the graph ready";
    code = gpu.work.instantiate(&made, captured, 0);
  }
  if (captured)
    gpu.work.destroy_graph(captured);
  if (!code)
    *graph = made;
  return end(&visit, code, step);
}

static fl_status launch_graph(void *self, int32_t ordinal, void *graph, void *stream) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_GRAPHS, ordinal, "launch_graph");
  return status ? status : end(&visit, gpu.work.launch_graph(graph, stream), "launching the graph");
}

static fl_status destroy_graph(void *self, int32_t ordinal, void *graph) {
  gpu_visit visit;
  (void)self;
  fl_status status = begin(&visit, GPU_GRAPHS, ordinal, "destroy_graph");
  return status ? status : end(&visit, gpu.work.destroy_instance(graph), "destroying the graph");
}

/* ----------------------------------------------------------------------------------------------------------- health */

/* That there is work left is no fault of the device's, and neither is a capture of the default stream or of one that
 * waits for it. */
static bool tells_of_work(gpu_code code) {
  return code == GPU_NOT_READY || (code >= GPU_CAPTURE_UNSUPPORTED && code <= GPU_CAPTURE_LAST);
}

/* A device whose loss was met before is refused when the visit begins; a loss that nobody has met yet any question
 * about a stream meets. It must not be taken for a part of a capture. */
static fl_status health(void *self, int32_t ordinal) {
  gpu_visit visit;
  int mode = GPU_CAPTURE_RELAXED;
  (void)self;
  fl_status status = begin(&visit, GPU_HEALTH, ordinal, "health");
  if (status)
    return status;
  bool relaxed = gpu_exchange_capture_mode(&mode);
  gpu_code code = gpu.work.query_stream(NULL);
  if (relaxed)
    gpu_exchange_capture_mode(&mode);
  return end(&visit, tells_of_work(code) ? GPU_SUCCESS : code, "asking for the default stream");
}

void gpu_add_work(fl_platform *platform) {
  platform->create_stream = create_stream;
  platform->destroy_stream = destroy_stream;
  platform->create_event = create_event;
  platform->destroy_event = destroy_event;
  platform->record_event = record_event;
  platform->wait_event = wait_event;
  platform->is_event_done = is_event_done;
  platform->synchronize_event = synchronize_event;
  platform->elapsed = elapsed;
  platform->allocate_host = allocate_host;
  platform->release_host = release_host;
  platform->copy_async = copy_async;
  platform->allocate_async = allocate_async;
  platform->release_async = release_async;
  platform->trim_pool = trim_pool;
  platform->pool_usage = pool_usage;
  platform->begin_capture = begin_capture;
  platform->end_capture = end_capture;
  platform->launch_graph = launch_graph;
  platform->destroy_graph = destroy_graph;
  platform->health = health;
}
