/* What the GPU plugins' platform has beside devices and memory: graphs and health; and whatever a driver fails at, or
 * lacks, of all of it. */
#include "plugins/gpu/work_functions.h"
#include "tests/gpu_work.h"

static silu_call silu;

/* ----------------------------------------------------------------------------------------------------------- graphs */

static void *end_capture(void *stream) {
  void *graph = NULL;
  works(ask(end_capture, 0, stream, &graph));
  ck_assert_ptr_nonnull(graph);
  return graph;
}

START_TEST(a_graph_is_what_was_captured_as_often_as_it_is_launched) {
  if (!set_up(_i, _i % 2 ? "delay=1" : ""))
    return;
  make_scene();
  works(ask(begin_capture, 0, s.streams[0]));
  bool captured = false;
  works(ask(is_captured, 0, s.streams[0], &captured));
  ck_assert(captured);
  send(s.streams[0]);
  fetch(s.streams[0]);
  void *graph = end_capture(s.streams[0]);
  works(ask(is_captured, 0, s.streams[0], &captured));
  ck_assert(!captured);
  works(ask(synchronize, 0, NULL, true));
  ck_assert(are_from(s.to, -N)); /* it did not run */
  for (int i = 0; i < 5; i++) {
    fill_with(s.from, 10 * i);
    works(ask(launch_graph, 0, graph, s.streams[i % 2]));
    await(s.streams[i % 2]);
    ck_assert(are_from(s.to, 10 * i));
  }
  works(ask(destroy_graph, 0, graph));
  free_scene();
}
END_TEST

START_TEST(streams_that_wait_for_a_captured_event_are_captured_too) {
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  void *fork_event = event_of(false), *join_event = event_of(false);
  works(ask(begin_capture, 0, s.streams[0]));
  send(s.streams[0]);
  works(ask(record_event, 0, fork_event, s.streams[0]));
  works(ask(wait_event, 0, fork_event, s.streams[1]));
  fetch(s.streams[1]);
  works(ask(record_event, 0, join_event, s.streams[1]));
  works(ask(wait_event, 0, join_event, s.streams[0]));
  void *graph = end_capture(s.streams[0]);
  await(s.streams[1]);
  ck_assert(are_from(s.to, -N));
  works(ask(launch_graph, 0, graph, s.streams[0]));
  await(s.streams[0]);
  ck_assert(are_from(s.to, 1));
  works(ask(destroy_graph, 0, graph));
  works(ask(destroy_event, 0, fork_event));
  works(ask(destroy_event, 0, join_event));
  free_scene();
}
END_TEST

/* Afterwards the stream is as before. */
static void check_stream(void *stream) {
  bool captured = true;
  works(ask(is_captured, 0, stream, &captured));
  ck_assert(!captured);
  fill_with(s.to, -N);
  send(stream);
  fetch(stream);
  await(stream);
  ck_assert(are_from(s.to, 1));
  works(ask(begin_capture, 0, stream));
  works(ask(destroy_graph, 0, end_capture(stream)));
}

START_TEST(a_capture_of_what_no_graph_can_hold_fails_and_leaves_the_stream) {
  void *here = &plugin, *graph = here;
  if (!set_up(_i, ""))
    return;
  make_scene();
  works(ask(begin_capture, 0, s.streams[0]));
  send(s.streams[0]);
  ck_assert_int_eq(ask(copy, 0, s.to, s.middle, BYTES, FL_COPY_TO_HOST, s.streams[0]), FL_EDEVICE); /* which waits */
  fails(ask(end_capture, 0, s.streams[0], &graph), FL_EDEVICE, "end_capture: ending the capture: ");
  ck_contains(error_words(), "(901)");
  ck_assert_ptr_eq(graph, here);
  check_stream(s.streams[0]);
  free_scene();
}
END_TEST

START_TEST(a_capture_that_a_stream_does_not_come_back_to_fails) {
  void *here = &plugin, *graph = here;
  if (!set_up(_i, ""))
    return;
  make_scene();
  void *event = event_of(false);
  works(ask(begin_capture, 0, s.streams[0]));
  send(s.streams[0]);
  works(ask(record_event, 0, event, s.streams[0]));
  works(ask(wait_event, 0, event, s.streams[1]));
  fetch(s.streams[1]);
  fails(ask(end_capture, 0, s.streams[0], &graph), FL_EDEVICE, "(904)");
  ck_assert_ptr_eq(graph, here);
  check_stream(s.streams[0]);
  check_stream(s.streams[1]);
  works(ask(destroy_event, 0, event));
  free_scene();
}
END_TEST

START_TEST(the_default_stream_is_not_captured) {
  if (!set_up(_i, ""))
    return;
  fails(ask(begin_capture, 0, NULL), FL_EDEVICE, "begin_capture: beginning the capture: ");
}
END_TEST

START_TEST(a_graph_that_cannot_be_made_ready_is_not_kept) {
  void *here = &plugin, *graph = here;
  set_up(_i, "");
  make_scene();
  works(ask(begin_capture, 0, s.streams[0]));
  send(s.streams[0]);
  stand_in_set("fail.instantiate=999");
  stand_in_clear();
  fails(ask(end_capture, 0, s.streams[0], &graph), FL_EDEVICE, "end_capture: making the graph ready: ");
  ck_assert_int_eq(stand_in_lines("destroy graph"), 1);
  ck_assert_ptr_eq(graph, here);
  stand_in_set("");
  check_stream(s.streams[0]);
  free_scene();
}
END_TEST

/* Through the host, which chooses the implementation before. */
START_TEST(an_op_of_the_hosts_becomes_a_graph) {
  const gpu_setup *setup = &gpu_setups[_i];
  fl_host *host = gpu_host(setup);
  gpu_plugin_open(&plugin, setup->plugin);
  silu_make(&silu, setup->device_type, 0);
  void *stream = stream_of(0);
  fl_call call = FL_CALL(silu.values);
  call.stream = stream;
  ck_ok(fl_call_op(host, "silu_and_mul", &call));
  await(stream);
  stand_in_clear();
  works(ask(begin_capture, 0, stream));
  ck_ok(fl_call_op(host, "silu_and_mul", &call));
  void *graph = end_capture(stream);
  for (int round = 0; round < 3; round++) {
    memset(silu.out->tensor.data, 0, silu.out->bytes);
    works(ask(launch_graph, 0, graph, stream));
    await(stream);
    silu_assert_computed(&silu);
  }
  ck_assert_int_eq(stand_in_lines("launch silu_and_mul"), 1);
  works(ask(destroy_graph, 0, graph));
  works(ask(destroy_stream, 0, stream));
  silu_free(&silu);
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- health */

START_TEST(a_device_that_works_is_healthy_whatever_it_does) {
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  works(ask(health, 0));
  works(ask(copy_async, 0, s.middle, s.from, BYTES, FL_COPY_TO_DEVICE, NULL));
  works(ask(health, 0));
  if (is_stand_in(_i))
    ck_assert_int_eq(stand_in_lines("synchronize"), 0);
  await(NULL);
  works(ask(begin_capture, 0, s.streams[0]));
  send(s.streams[0]);
  works(ask(health, 0));
  works(ask(destroy_graph, 0, end_capture(s.streams[0]))); /* which it did not end */
  free_scene();
}
END_TEST

START_TEST(a_device_that_is_lost_is_told_by_health_and_from_then_on_by_all) {
  void *event = NULL;
  set_up(_i, "fail.query_stream=700");
  fails(ask(health, 0), FL_EDEVICE, "health: asking for the default stream: device 0 is lost: ");
  stand_in_set("");
  fails(ask(health, 0), FL_EDEVICE, "device 0 was lost in health, or in a call before it: ");
  fails(ask(create_event, 0, true, &event), FL_EDEVICE, "the process has to be started anew");
}
END_TEST

START_TEST(only_an_error_that_stays_is_a_loss) {
  set_up(_i, "fail.query_stream=999");
  fails(ask(health, 0), FL_EDEVICE, "(999)");
  stand_in_set("");
  works(ask(health, 0)); /* that was no loss */
  stand_in_set("fail.query_stream=906");
  works(ask(health, 0)); /* somebody captures a stream that the default one waits for */
  stand_in_set("fail.record_event=719");
  void *event = event_of(false);
  fails(ask(record_event, 0, event, NULL), FL_EDEVICE, "record_event: recording the event: device 0 is lost: ");
  fails(ask(health, 0), FL_EDEVICE, "device 0 was lost in record_event");
  void (*destroy)(void *);
  stand_in_find(_i ? "hipEventDestroy" : "cuEventDestroy_v2", &destroy);
  destroy(event);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- what may fail */

static struct {
  int failures;
  char words[256]; /* of the first */
} met;

static bool note(fl_status status) {
  if (status && !met.failures++)
    snprintf(met.words, sizeof met.words, "%s", error_words());
  return !status;
}

static void use_events(void *stream) {
  void *events[2] = {NULL, NULL};
  bool done;
  double us;
  for (int i = 0; i < 2; i++)
    if (!note(ask(create_event, 0, true, &events[i])))
      return;
  for (int i = 0; i < 2; i++)
    note(ask(record_event, 0, events[i], stream));
  note(ask(wait_event, 0, events[0], stream));
  note(ask(is_event_done, 0, events[0], &done));
  note(ask(synchronize_event, 0, events[1]));
  note(ask(elapsed, 0, events[0], events[1], &us));
  for (int i = 0; i < 2; i++)
    note(ask(destroy_event, 0, events[i]));
}

static void use_memory(void *stream) {
  void *memory = NULL;
  uint64_t used, held;
  if (note(ask(allocate_host, 0, BYTES, &memory)))
    note(ask(release_host, 0, memory));
  if (note(ask(allocate_async, 0, BYTES, stream, &memory)))
    note(ask(release_async, 0, memory, stream));
  note(ask(pool_usage, 0, &used, &held));
  note(ask(trim_pool, 0, 0));
}

static void use_graphs(void *stream) {
  void *graph = NULL;
  if (!note(ask(begin_capture, 0, stream)) || !note(ask(end_capture, 0, stream, &graph)))
    return;
  note(ask(launch_graph, 0, graph, stream));
  note(ask(destroy_graph, 0, graph));
}

static void use_all(void) {
  void *stream = NULL;
  met.failures = 0;
  met.words[0] = 0;
  note(ask(health, 0));
  bool made = note(ask(create_stream, 0, 0, &stream));
  use_events(stream);
  use_memory(stream);
  if (made) {
    use_graphs(stream);
    note(ask(destroy_stream, 0, stream));
  }
}

static const char *const functions[] = {
#define NAME(part, field, cuda, hip, arguments) #field,
    GPU_WORK_FUNCTIONS(NAME)
#undef NAME
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* Each of them, of both vendors. What only tidies up behind something else may fail. */
START_TEST(whatever_the_driver_fails_at_is_told) {
  char settings[64];
  const char *name = functions[_i % N_FUNCTIONS];
  bool tidies = !strcmp(name, "destroy_graph") || !strcmp(name, "destroy_pool");
  snprintf(settings, sizeof settings, "fail.%s=999", name);
  set_up(_i / N_FUNCTIONS ? 2 : 0, settings);
  use_all();
  if (tidies)
    ck_assert_msg(!met.failures, "%s", met.words);
  else
    ck_contains(met.words, "(999)");
  stand_in_set("");
  use_all();
  ck_assert_msg(!met.failures, "%s", met.words);
}
END_TEST

START_TEST(what_an_older_driver_lacks_is_named_and_the_rest_works) {
  void *made = NULL;
  uint64_t used, held;
  gpu_setup lean = gpu_setups[_i];
  lean.driver = _i ? "standin_hip_lean.so" : "standin_cuda_lean.so";
  gpu_plugin_on_stand_in(&plugin, &lean, NULL);
  fails(ask(create_stream, 0, 0, &made), FL_ENOTSUP, "create_stream: the driver library ");
  ck_contains(error_words(), _i ? "standin_hip_lean.so lacks hipStreamCreateWithPriority: is it too old?"
                                : "standin_cuda_lean.so lacks cuStreamCreateWithPriority: is it too old?");
  fails(ask(create_event, 0, true, &made), FL_ENOTSUP, _i ? "lacks hipStreamWaitEvent" : "lacks cuStreamWaitEvent");
  fails(ask(allocate_host, 0, 1, &made), FL_ENOTSUP, _i ? "lacks hipHostMalloc" : "lacks cuMemHostAlloc");
  fails(ask(pool_usage, 0, &used, &held), FL_ENOTSUP, _i ? "hipMallocFromPoolAsync" : "cuMemAllocFromPoolAsync");
  fails(ask(trim_pool, 0, 0), FL_ENOTSUP, "trim_pool: ");
  fails(ask(begin_capture, 0, &plugin), FL_ENOTSUP,
        _i ? "hipGraphInstantiateWithFlags" : "cuGraphInstantiateWithFlags");
  fails(ask(health, 0), FL_ENOTSUP, _i ? "health: the driver library" : "lacks cuStreamQuery");
  ck_assert_ptr_null(made);
  ck_assert_int_eq(stand_in_lines("push"), stand_in_lines("pop"));
  works(ask(allocate, 0, 100, &made));
  works(ask(copy_async, 0, made, "", 1, FL_COPY_TO_DEVICE, NULL));
  works(ask(release, 0, made));
}
END_TEST

/* On every function, whether it works or not. */
START_TEST(the_threads_device_is_as_it_was) {
  set_up(_i, "devices=2");
  use_all();
  ck_assert_int_eq(stand_in_lines("push"), stand_in_lines("pop"));
  stand_in_set("devices=2 fail.record_event=999");
  use_all();
  ck_assert_int_gt(met.failures, 0);
  ck_assert_int_eq(stand_in_lines("push"), stand_in_lines("pop"));
  if (_i == 0)
    return;
  int32_t current = -1;
  int (*set_device)(int);
  stand_in_find("hipSetDevice", &set_device);
  ck_assert_int_eq(set_device(1), 0);
  use_all();
  works(plugin.platform.current_device(plugin.self, &current));
  ck_assert_int_eq(current, 1);
}
END_TEST

START_TEST(nobody_draws_random_numbers) {
  set_up(_i, "");
  ck_assert(plugin.platform.seed == NULL);
  ck_assert_uint_eq(plugin.platform.size, sizeof(fl_platform));
}
END_TEST

static void add_tests(TCase *tests) {
  EVERYWHERE(a_graph_is_what_was_captured_as_often_as_it_is_launched);
  EVERYWHERE(streams_that_wait_for_a_captured_event_are_captured_too);
  EVERYWHERE(a_capture_of_what_no_graph_can_hold_fails_and_leaves_the_stream);
  EVERYWHERE(a_capture_that_a_stream_does_not_come_back_to_fails);
  EVERYWHERE(the_default_stream_is_not_captured);
  ON_STAND_INS(a_graph_that_cannot_be_made_ready_is_not_kept);
  ON_STAND_INS(an_op_of_the_hosts_becomes_a_graph);
  EVERYWHERE(a_device_that_works_is_healthy_whatever_it_does);
  ON_STAND_INS(a_device_that_is_lost_is_told_by_health_and_from_then_on_by_all);
  ON_STAND_INS(only_an_error_that_stays_is_a_loss);
  tcase_add_loop_test(tests, whatever_the_driver_fails_at_is_told, 0, 2 * N_FUNCTIONS);
  tcase_add_loop_test(tests, what_an_older_driver_lacks_is_named_and_the_rest_works, 0, 2);
  ON_STAND_INS(the_threads_device_is_as_it_was);
  ON_STAND_INS(nobody_draws_random_numbers);
}

int main(void) {
  return run_suite("gpu_graphs", add_tests, 60);
}
