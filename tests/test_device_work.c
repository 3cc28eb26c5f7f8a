/*
 * Streams, events, pools and graphs in the core: which function of a platform each is, what becomes of its answers, and
 * what the processor has of them.
 */
#include "tests/device.h"

#include <pthread.h>

/* ------------------------------------------------------------------------------------- a platform that is told what to
 * say */

/* What it was asked last, and what it answers. */
static struct {
  const char *asked;
  int32_t device, number;
  uint64_t size;
  const void *first, *second, *stream;
  fl_status answer;
  const char *words;
  void *makes;
} told;

static int thing, other_thing, a_stream;

static fl_status asked(const char *function, int32_t device) {
  told.asked = function;
  told.device = device;
  return told.answer;
}

static bool is_active(void *self, const char **reason) {
  (void)self;
  *reason = NULL;
  return true;
}

static int count(void *self) {
  (void)self;
  return 2;
}

static fl_status properties(void *self, int32_t device, fl_device_properties *p) {
  (void)self, (void)p;
  return asked("properties", device);
}

static fl_status current_device(void *self, int32_t *device) {
  (void)self;
  *device = 0;
  return FL_OK;
}

static fl_status allocate(void *self, int32_t device, size_t size, void **memory) {
  (void)self;
  told.size = size;
  *memory = told.makes;
  return asked("allocate", device);
}

static fl_status release(void *self, int32_t device, void *memory) {
  (void)self;
  told.first = memory;
  return asked("release", device);
}

static fl_status copy(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                      void *stream) {
  (void)self;
  told.first = to;
  told.second = from;
  told.size = size;
  told.number = direction;
  told.stream = stream;
  return asked("copy", device);
}

static fl_status synchronize(void *self, int32_t device, void *stream, bool all) {
  (void)self, (void)all;
  told.stream = stream;
  return asked("synchronize", device);
}

static const char *error(void *self) {
  (void)self;
  return told.words;
}

static fl_status is_captured(void *self, int32_t device, void *stream, bool *captured) {
  (void)self, (void)device, (void)stream;
  *captured = false;
  return FL_OK;
}

static fl_status create_stream(void *self, int32_t device, int32_t priority, void **stream) {
  (void)self;
  told.number = priority;
  *stream = told.makes;
  return asked("create_stream", device);
}

static fl_status destroy_stream(void *self, int32_t device, void *stream) {
  (void)self;
  told.stream = stream;
  return asked("destroy_stream", device);
}

static fl_status create_event(void *self, int32_t device, bool timed, void **event) {
  (void)self;
  told.number = timed;
  *event = told.makes;
  return asked("create_event", device);
}

static fl_status destroy_event(void *self, int32_t device, void *event) {
  (void)self;
  told.first = event;
  return asked("destroy_event", device);
}

static fl_status record_event(void *self, int32_t device, void *event, void *stream) {
  (void)self;
  told.first = event;
  told.stream = stream;
  return asked("record_event", device);
}

static fl_status wait_event(void *self, int32_t device, void *event, void *stream) {
  record_event(self, device, event, stream);
  return asked("wait_event", device);
}

static fl_status is_event_done(void *self, int32_t device, void *event, bool *done) {
  (void)self;
  told.first = event;
  *done = true;
  return asked("is_event_done", device);
}

static fl_status synchronize_event(void *self, int32_t device, void *event) {
  (void)self;
  told.first = event;
  return asked("synchronize_event", device);
}

static fl_status elapsed(void *self, int32_t device, void *first, void *last, double *us) {
  (void)self;
  told.first = first;
  told.second = last;
  *us = 12.5;
  return asked("elapsed", device);
}

static fl_status allocate_host(void *self, int32_t device, size_t size, void **memory) {
  allocate(self, device, size, memory);
  return asked("allocate_host", device);
}

static fl_status release_host(void *self, int32_t device, void *memory) {
  release(self, device, memory);
  return asked("release_host", device);
}

static fl_status copy_async(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                            void *stream) {
  copy(self, device, to, from, size, direction, stream);
  return asked("copy_async", device);
}

static fl_status allocate_async(void *self, int32_t device, size_t size, void *stream, void **memory) {
  allocate(self, device, size, memory);
  told.stream = stream;
  return asked("allocate_async", device);
}

static fl_status release_async(void *self, int32_t device, void *memory, void *stream) {
  release(self, device, memory);
  told.stream = stream;
  return asked("release_async", device);
}

static fl_status trim_pool(void *self, int32_t device, uint64_t keep) {
  (void)self;
  told.size = keep;
  return asked("trim_pool", device);
}

static fl_status pool_usage(void *self, int32_t device, uint64_t *used, uint64_t *held) {
  (void)self;
  *used = 10;
  *held = 20;
  return asked("pool_usage", device);
}

static fl_status begin_capture(void *self, int32_t device, void *stream) {
  (void)self;
  told.stream = stream;
  return asked("begin_capture", device);
}

static fl_status end_capture(void *self, int32_t device, void *stream, void **graph) {
  (void)self;
  told.stream = stream;
  *graph = told.makes;
  return asked("end_capture", device);
}

static fl_status launch_graph(void *self, int32_t device, void *graph, void *stream) {
  record_event(self, device, graph, stream);
  return asked("launch_graph", device);
}

static fl_status destroy_graph(void *self, int32_t device, void *graph) {
  (void)self;
  told.first = graph;
  return asked("destroy_graph", device);
}

static fl_status seed(void *self, int32_t device, uint64_t number) {
  (void)self;
  told.size = number;
  return asked("seed", device);
}

static fl_status health(void *self, int32_t device) {
  (void)self;
  return asked("health", device);
}

static const fl_platform complete = {.size = sizeof complete,
                                     .device_type = kDLExtDev,
                                     .is_active = is_active,
                                     .device_count = count,
                                     .properties = properties,
                                     .current_device = current_device,
                                     .allocate = allocate,
                                     .release = release,
                                     .copy = copy,
                                     .synchronize = synchronize,
                                     .error = error,
                                     .is_captured = is_captured,
                                     .create_stream = create_stream,
                                     .destroy_stream = destroy_stream,
                                     .create_event = create_event,
                                     .destroy_event = destroy_event,
                                     .record_event = record_event,
                                     .wait_event = wait_event,
                                     .is_event_done = is_event_done,
                                     .synchronize_event = synchronize_event,
                                     .elapsed = elapsed,
                                     .allocate_host = allocate_host,
                                     .release_host = release_host,
                                     .copy_async = copy_async,
                                     .allocate_async = allocate_async,
                                     .release_async = release_async,
                                     .trim_pool = trim_pool,
                                     .pool_usage = pool_usage,
                                     .begin_capture = begin_capture,
                                     .end_capture = end_capture,
                                     .launch_graph = launch_graph,
                                     .destroy_graph = destroy_graph,
                                     .seed = seed,
                                     .health = health};

static fl_host *host_with(const fl_platform *platform) {
  fl_host *host = test_host(NULL, 0);
  ck_ok(device_register_platform(host, platform));
  memset(&told, 0, sizeof told);
  told.makes = &thing;
  return host;
}

/* ---------------------------------------------------------------------------------------------------- each function */

/* What a call gave back. */
typedef struct result {
  void *made;
  bool done;
  double us;
  uint64_t used, held;
} result;

static fl_status call_create_stream(fl_host *host, DLDevice device, result *r) {
  return fl_stream_create(host, device, -3, &r->made);
}
static fl_status call_destroy_stream(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_stream_destroy(host, device, &a_stream);
}
static fl_status call_create_event(fl_host *host, DLDevice device, result *r) {
  return fl_event_create(host, device, true, &r->made);
}
static fl_status call_destroy_event(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_event_destroy(host, device, &thing);
}
static fl_status call_record_event(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_event_record(host, device, &thing, &a_stream);
}
static fl_status call_wait_event(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_stream_wait_event(host, device, &a_stream, &thing);
}
static fl_status call_is_event_done(fl_host *host, DLDevice device, result *r) {
  return fl_event_is_done(host, device, &thing, &r->done);
}
static fl_status call_synchronize_event(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_event_synchronize(host, device, &thing);
}
static fl_status call_elapsed(fl_host *host, DLDevice device, result *r) {
  return fl_event_elapsed(host, device, &thing, &other_thing, &r->us);
}
static fl_status call_allocate_host(fl_host *host, DLDevice device, result *r) {
  return fl_device_allocate_host(host, device, 0, &r->made);
}
static fl_status call_release_host(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_device_free_host(host, device, &thing);
}
static fl_status call_copy_async(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_device_copy_async(host, device, &thing, &other_thing, sizeof thing, FL_COPY_TO_HOST, &a_stream);
}
static fl_status call_allocate_async(fl_host *host, DLDevice device, result *r) {
  return fl_device_allocate_async(host, device, 64, &a_stream, &r->made);
}
static fl_status call_release_async(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_device_free_async(host, device, &thing, &a_stream);
}
static fl_status call_trim_pool(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_device_trim_pool(host, device, 4096);
}
static fl_status call_pool_usage(fl_host *host, DLDevice device, result *r) {
  return fl_device_pool_usage(host, device, &r->used, &r->held);
}
static fl_status call_begin_capture(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_graph_begin(host, device, &a_stream);
}
static fl_status call_end_capture(fl_host *host, DLDevice device, result *r) {
  return fl_graph_end(host, device, &a_stream, &r->made);
}
static fl_status call_launch_graph(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_graph_launch(host, device, &thing, &a_stream);
}
static fl_status call_destroy_graph(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_graph_destroy(host, device, &thing);
}
static fl_status call_seed(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_device_seed(host, device, 42);
}
static fl_status call_health(fl_host *host, DLDevice device, result *r) {
  (void)r;
  return fl_device_health(host, device);
}

static const struct {
  const char *function; /* of the platform */
  fl_status (*call)(fl_host *host, DLDevice device, result *r);
  const char *title, *things; /* of messages */
  int32_t number;             /* what the platform was handed */
  uint64_t size;
  const void *first, *second, *stream;
  result result;
} functions[] = {
    {"create_stream", call_create_stream, "making a stream", "streams", .number = -3, .result = {.made = &thing}},
    {"destroy_stream", call_destroy_stream, "ending a stream", "streams", .stream = &a_stream},
    {"create_event", call_create_event, "making an event", "events", .number = 1, .result = {.made = &thing}},
    {"destroy_event", call_destroy_event, "ending an event", "events", .first = &thing},
    {"record_event", call_record_event, "recording an event", "events", .first = &thing, .stream = &a_stream},
    {"wait_event", call_wait_event, "putting a stream behind an event", "events", .first = &thing, .stream = &a_stream},
    {"is_event_done", call_is_event_done, "asking for an event", "events", .first = &thing, .result = {.done = true}},
    {"synchronize_event", call_synchronize_event, "waiting for an event", "events", .first = &thing},
    {"elapsed", call_elapsed, "the time between two events", "events", .first = &thing, .second = &other_thing,
     .result = {.us = 12.5}},
    {"allocate_host", call_allocate_host, "allocating host memory", "host memory of its own", .size = 1,
     .result = {.made = &thing}},
    {"release_host", call_release_host, "freeing host memory", "host memory of its own", .first = &thing},
    {"copy_async", call_copy_async, "copying", "asynchronous copies", .number = FL_COPY_TO_HOST, .size = sizeof thing,
     .first = &thing, .second = &other_thing, .stream = &a_stream},
    {"allocate_async", call_allocate_async, "allocating from the pool", "pools", .size = 64, .stream = &a_stream,
     .result = {.made = &thing}},
    {"release_async", call_release_async, "giving memory back to the pool", "pools", .first = &thing,
     .stream = &a_stream},
    {"trim_pool", call_trim_pool, "trimming the pool", "pools", .size = 4096},
    {"pool_usage", call_pool_usage, "asking for the pool", "pools", .result = {.used = 10, .held = 20}},
    {"begin_capture", call_begin_capture, "beginning a graph", "graphs", .stream = &a_stream},
    {"end_capture", call_end_capture, "making the graph", "graphs", .stream = &a_stream, .result = {.made = &thing}},
    {"launch_graph", call_launch_graph, "launching a graph", "graphs", .first = &thing, .stream = &a_stream},
    {"destroy_graph", call_destroy_graph, "ending a graph", "graphs", .first = &thing},
    {"seed", call_seed, "seeding random numbers", NULL, .size = 42},
    {"health", call_health, "health", "word on its health", .number = 0},
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static void is_result(const result *r, const result *expected) {
  ck_assert_ptr_eq(r->made, expected->made);
  ck_assert(r->done == expected->done && r->us == expected->us);
  ck_assert(r->used == expected->used && r->held == expected->held);
}

START_TEST(each_function_is_the_platforms) {
  fl_host *host = host_with(&complete);
  result r = {0};
  ck_ok(functions[_i].call(host, device1, &r));
  ck_assert_str_eq(told.asked, functions[_i].function);
  ck_assert_int_eq(told.device, 1);
  ck_assert_int_eq(told.number, functions[_i].number);
  ck_assert_uint_eq(told.size, functions[_i].size);
  ck_assert_ptr_eq(told.first, functions[_i].first);
  ck_assert_ptr_eq(told.second, functions[_i].second);
  ck_assert_ptr_eq(told.stream, functions[_i].stream);
  is_result(&r, &functions[_i].result);
  fl_host_destroy(host);
}
END_TEST

START_TEST(its_failure_is_told_in_its_words_and_gives_nothing) {
  static const struct {
    fl_status answer, status;
    const char *words, *shown;
  } answers[] = {{FL_ENOMEM, FL_ENOMEM, "no room", "no room"},
                 {FL_EDEVICE, FL_EDEVICE, "the board is gone", "the board is gone"},
                 {FL_ENOTSUP, FL_ENOTSUP, "this device has none", "this device has none"},
                 {FL_EDEVICE, FL_EDEVICE, NULL, "the plugin gives no reason"},
                 {(fl_status)77, FL_EDEVICE, "", "the plugin gives no reason"}};
  fl_host *host = host_with(&complete);
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    result r = {0};
    char expected[128];
    told.answer = answers[i].answer;
    told.words = answers[i].words;
    snprintf(expected, sizeof expected, "ext_dev:1: %s: %s", functions[_i].title, answers[i].shown);
    ck_assert_int_eq(functions[_i].call(host, device1, &r), answers[i].status);
    ck_assert_str_eq(fl_error_message(), expected);
    is_result(&r, &(result){0});
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_platform_without_it_is_named) {
  fl_platform old = complete;
  old.size = offsetof(fl_platform, create_stream);
  fl_host *host = host_with(&old);
  result r = {0};
  char expected[128];
  if (!functions[_i].things) {
    ck_ok(functions[_i].call(host, device1, &r)); /* there is nothing to seed */
    ck_assert_ptr_null(told.asked);
  } else {
    snprintf(expected, sizeof expected, "ext_dev:1: %s: the platform of plugin 'acme' has no %s", functions[_i].title,
             functions[_i].things);
    ck_assert_int_eq(functions[_i].call(host, device1, &r), FL_ENOTSUP);
    ck_assert_str_eq(fl_error_message(), expected);
  }
  ck_assert_int_eq(functions[_i].call(host, (DLDevice){kDLExtDev, 2}, &r), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "ext_dev:2: there is no such device, expected an index from 0 to 1");
  ck_assert_int_eq(functions[_i].call(host, (DLDevice){kDLCUDA, 0}, &r), FL_ENOENT);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_platform_that_makes_nothing_is_out_of_memory) {
  fl_host *host = host_with(&complete);
  result r = {0};
  told.makes = NULL;
  if (functions[_i].result.made) {
    ck_assert_int_eq(functions[_i].call(host, device1, &r), FL_ENOMEM);
    ck_contains(fl_error_message(), functions[_i].title);
  } else {
    ck_ok(functions[_i].call(host, device1, &r));
  }
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- registration */

START_TEST(functions_of_one_paragraph_come_together) {
  static const struct {
    size_t missing;
    const char *message;
  } torn[] = {
      {offsetof(fl_platform, destroy_stream),
       "functions: destroy_stream is missing, but create_stream is there; create_stream and destroy_stream come "
       "together: all, or none"},
      {offsetof(fl_platform, elapsed),
       "functions: elapsed is missing, but create_event is there; create_event, destroy_event, record_event, "
       "wait_event, is_event_done, synchronize_event and elapsed come together: all, or none"},
      {offsetof(fl_platform, release_host), "functions: release_host is missing, but allocate_host is there;"},
      {offsetof(fl_platform, trim_pool), "functions: trim_pool is missing, but allocate_async is there;"},
      {offsetof(fl_platform, begin_capture), "functions: begin_capture is missing, but end_capture is there;"},
      {offsetof(fl_platform, is_captured),
       "functions: begin_capture is there, but is_captured is missing: the host has to know"},
  };
  fl_host *host = test_host(NULL, 0);
  fl_platform platform = complete;
  memset((char *)&platform + torn[_i].missing, 0, sizeof platform.elapsed);
  ck_assert_int_eq(device_register_platform(host, &platform), FL_EINVAL);
  ck_contains(fl_error_message(), torn[_i].message);
  fl_host_destroy(host);
}
END_TEST

START_TEST(streams_need_memory) {
  fl_host *host = test_host(NULL, 0);
  const fl_platform platform = {.size = sizeof platform,
                                .device_type = kDLExtDev,
                                .is_active = is_active,
                                .create_stream = create_stream,
                                .destroy_stream = destroy_stream};
  ck_assert_int_eq(device_register_platform(host, &platform), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "functions: create_stream is there, but not what puts tensors on the device: "
                                       "properties and the others");
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- what is NULL */

START_TEST(what_is_null_is_said_or_ignored) {
  fl_host *host = host_with(&complete);
  void *made = NULL;
  bool done = false;
  double us = 0;
  ck_ok(fl_stream_destroy(host, device1, NULL));
  ck_ok(fl_event_destroy(host, device1, NULL));
  ck_ok(fl_device_free_host(host, device1, NULL));
  ck_ok(fl_device_free_async(host, device1, NULL, &a_stream));
  ck_ok(fl_graph_destroy(host, device1, NULL));
  ck_ok(fl_device_copy_async(host, device1, NULL, NULL, 0, FL_COPY_TO_HOST, NULL));
  ck_assert_ptr_null(told.asked);
  ck_assert_int_eq(fl_event_record(host, device1, NULL, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fl_event_record: event is NULL");
  ck_assert_int_eq(fl_stream_wait_event(host, device1, NULL, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_event_is_done(host, device1, NULL, &done), FL_EINVAL);
  ck_assert_int_eq(fl_event_synchronize(host, device1, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_event_elapsed(host, device1, &thing, NULL, &us), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fl_event_elapsed: last is NULL");
  ck_assert_int_eq(fl_event_elapsed(host, device1, NULL, &thing, &us), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fl_event_elapsed: first is NULL");
  ck_assert_int_eq(fl_graph_begin(host, device1, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fl_graph_begin: stream is NULL, and the default stream makes no graph");
  ck_assert_int_eq(fl_graph_end(host, device1, NULL, &made), FL_EINVAL);
  ck_assert_int_eq(fl_graph_launch(host, device1, NULL, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_device_copy_async(host, device1, &thing, &thing, 4, 0, NULL), FL_EINVAL);
  ck_contains(fl_error_message(), "fl_device_copy_async: direction is 0, expected FL_COPY_TO_DEVICE (1)");
  ck_assert_ptr_null(told.asked);
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- the processor */

START_TEST(the_processor_has_streams_and_events) {
  fl_host *host = test_host(NULL, 0);
  void *stream, *other, *first, *last, *untimed;
  bool done = false;
  double us = -1;
  ck_ok(fl_stream_create(host, cpu, 0, &stream));
  ck_ok(fl_stream_create(host, cpu, -5, &other));
  ck_assert_ptr_ne(stream, other);
  ck_ok(fl_event_create(host, cpu, true, &first));
  ck_ok(fl_event_create(host, cpu, true, &last));
  ck_ok(fl_event_create(host, cpu, false, &untimed));
  ck_ok(fl_event_is_done(host, cpu, first, &done));
  ck_assert(done);
  ck_assert_int_eq(fl_event_elapsed(host, cpu, first, last, &us), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "cpu:0: the time between two events: an event was not recorded");
  ck_ok(fl_event_record(host, cpu, first, stream));
  nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  ck_ok(fl_event_record(host, cpu, last, stream));
  ck_ok(fl_stream_wait_event(host, cpu, other, last));
  ck_ok(fl_event_synchronize(host, cpu, last));
  ck_ok(fl_event_elapsed(host, cpu, first, last, &us));
  ck_assert_msg(us >= 2000, "%g µs", us);
  ck_ok(fl_event_record(host, cpu, untimed, NULL));
  ck_assert_int_eq(fl_event_elapsed(host, cpu, first, untimed, &us), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "cpu:0: the time between two events: an event was not made to be timed");
  ck_ok(fl_event_destroy(host, cpu, first));
  ck_ok(fl_event_destroy(host, cpu, last));
  ck_ok(fl_event_destroy(host, cpu, untimed));
  ck_ok(fl_stream_destroy(host, cpu, other));
  ck_ok(fl_stream_destroy(host, cpu, stream));
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_processor_has_memory_of_each_kind) {
  fl_host *host = test_host(NULL, 0);
  uint64_t before, used, held;
  int from = 7, to = 0;
  void *pinned, *pooled, *none;
  ck_ok(fl_device_allocate_host(host, cpu, 100, &pinned));
  ck_assert_uint_eq((uintptr_t)pinned % 64, 0);
  memset(pinned, 1, 100);
  ck_ok(fl_device_pool_usage(host, cpu, &before, &held));
  ck_ok(fl_device_allocate_async(host, cpu, 1000, NULL, &pooled));
  ck_assert_uint_eq((uintptr_t)pooled % 256, 0);
  memset(pooled, 1, 1000);
  ck_ok(fl_device_allocate_async(host, cpu, 0, NULL, &none));
  ck_ok(fl_device_pool_usage(host, cpu, &used, &held));
  ck_assert_uint_eq(used - before, 1001);
  ck_assert_uint_ge(held, used);
  ck_ok(fl_device_copy_async(host, cpu, &to, &from, sizeof from, FL_COPY_ON_DEVICE, NULL));
  ck_assert_int_eq(to, 7);
  ck_ok(fl_device_free_async(host, cpu, none, NULL));
  ck_ok(fl_device_free_async(host, cpu, pooled, NULL));
  ck_ok(fl_device_trim_pool(host, cpu, 0));
  ck_ok(fl_device_pool_usage(host, cpu, &used, &held));
  ck_assert_uint_eq(used, before);
  ck_ok(fl_device_free_host(host, cpu, pinned));
  ck_assert_int_eq(fl_device_allocate_async(host, cpu, SIZE_MAX - 300, NULL, &none), FL_ENOMEM);
  ck_assert_str_eq(fl_error_message(), "cpu:0: allocating from the pool: out of memory");
  ck_assert_int_eq(fl_device_allocate_host(host, cpu, SIZE_MAX, &none), FL_ENOMEM);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_processor_has_no_graphs_and_is_well) {
  fl_host *host = test_host(NULL, 0);
  void *graph = NULL;
  ck_assert_int_eq(fl_graph_begin(host, cpu, &a_stream), FL_ENOTSUP);
  ck_assert_str_eq(fl_error_message(), "cpu:0: beginning a graph: the processor has no graphs");
  ck_assert_int_eq(fl_graph_end(host, cpu, &a_stream, &graph), FL_ENOTSUP);
  ck_assert_ptr_null(graph);
  ck_ok(fl_device_seed(host, cpu, 1));
  ck_ok(fl_device_health(host, cpu));
  ck_assert_int_eq(fl_device_health(host, (DLDevice){kDLCPU, 1}), FL_EINVAL);
  fl_host_destroy(host);
}
END_TEST

static void *use_pool(void *given) {
  fl_host *host = given;
  for (int i = 0; i < 200; i++) {
    void *memory, *event;
    ck_ok(fl_device_allocate_async(host, cpu, 128, NULL, &memory));
    ck_ok(fl_event_create(host, cpu, true, &event));
    ck_ok(fl_event_record(host, cpu, event, NULL));
    ck_ok(fl_event_destroy(host, cpu, event));
    ck_ok(fl_device_free_async(host, cpu, memory, NULL));
  }
  return NULL;
}

START_TEST(threads_use_it_at_once) {
  fl_host *host = test_host(NULL, 0);
  pthread_t threads[4];
  uint64_t before, used, held;
  ck_ok(fl_device_pool_usage(host, cpu, &before, &held));
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, use_pool, host), 0);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  ck_ok(fl_device_pool_usage(host, cpu, &used, &held));
  ck_assert_uint_eq(used, before);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, each_function_is_the_platforms, 0, N_FUNCTIONS);
  tcase_add_loop_test(tests, its_failure_is_told_in_its_words_and_gives_nothing, 0, N_FUNCTIONS);
  tcase_add_loop_test(tests, a_platform_without_it_is_named, 0, N_FUNCTIONS);
  tcase_add_loop_test(tests, a_platform_that_makes_nothing_is_out_of_memory, 0, N_FUNCTIONS);
  tcase_add_loop_test(tests, functions_of_one_paragraph_come_together, 0, 6);
  tcase_add_test(tests, streams_need_memory);
  tcase_add_test(tests, what_is_null_is_said_or_ignored);
  tcase_add_test(tests, the_processor_has_streams_and_events);
  tcase_add_test(tests, the_processor_has_memory_of_each_kind);
  tcase_add_test(tests, the_processor_has_no_graphs_and_is_well);
  tcase_add_test(tests, threads_use_it_at_once);
}

int main(void) {
  return run_suite("device work", add_tests, 30);
}
