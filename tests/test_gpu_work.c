/* What the GPU plugins' platform has beside devices and memory: streams, events, copies, pinned memory, pools. */
#include "tests/gpu_work.h"

#include <limits.h>
#include <pthread.h>

/* ----------------------------------------------------------------------------------------------- streams and copies */

START_TEST(copies_are_made_in_the_order_of_their_stream) {
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  void *other = device_memory();
  send(s.streams[0]);
  works(ask(copy_async, 0, other, s.middle, BYTES, FL_COPY_ON_DEVICE, s.streams[0]));
  works(ask(copy_async, 0, s.to, other, BYTES, FL_COPY_TO_HOST, s.streams[0]));
  works(ask(copy_async, 0, NULL, NULL, 0, FL_COPY_TO_HOST, s.streams[0]));
  if (is_stand_in(_i)) {
    ck_assert_int_eq(stand_in_lines("copy"), 3);
    ck_assert(are_from(s.to, -N)); /* nobody waited */
  }
  await(s.streams[0]);
  ck_assert(are_from(s.to, 1));
  works(ask(release, 0, other));
  free_scene();
}
END_TEST

START_TEST(a_stream_that_is_destroyed_finishes_its_work) {
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  void *stream = stream_of(0);
  send(stream);
  fetch(stream);
  works(ask(destroy_stream, 0, stream));
  works(ask(synchronize, 0, NULL, true));
  ck_assert(are_from(s.to, 1));
  free_scene();
}
END_TEST

START_TEST(a_priority_that_the_device_has_not_becomes_the_nearest) {
  static const int32_t wanted[] = {0, -1, INT32_MIN, INT32_MAX};
  if (!set_up(_i, ""))
    return;
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *stream = NULL;
    works(ask(create_stream, 0, wanted[i], &stream));
    works(ask(destroy_stream, 0, stream));
  }
  if (!is_stand_in(_i))
    return;
  ck_assert_int_eq(stand_in_lines("create stream priority 0\n"), _i ? 1 : 2);
  ck_assert_int_eq(stand_in_lines(_i ? "create stream priority -1\n" : "create stream priority -5\n"), _i ? 2 : 1);
  ck_assert_int_eq(stand_in_lines("create stream priority 1\n"), _i ? 1 : 0);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- events */

START_TEST(a_stream_waits_for_the_event_of_another) {
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  void *event = event_of(false);
  send(s.streams[0]);
  works(ask(record_event, 0, event, s.streams[0]));
  works(ask(wait_event, 0, event, s.streams[1]));
  fetch(s.streams[1]);
  await(s.streams[1]);
  ck_assert(are_from(s.to, 1));
  works(ask(destroy_event, 0, event));
  free_scene();
}
END_TEST

/* That the stand-in has an order to keep: without the event there is none. */
START_TEST(streams_do_not_wait_for_each_other_by_themselves) {
  set_up(_i, "delay=1");
  make_scene();
  memset(s.middle, 0, BYTES);
  send(s.streams[0]);
  fetch(s.streams[1]);
  await(s.streams[1]);
  ck_assert_int_eq(s.to[0], 0);
  await(s.streams[0]);
  free_scene();
}
END_TEST

START_TEST(an_event_that_was_not_recorded_is_done) {
  if (!set_up(_i, "delay=1"))
    return;
  void *event = event_of(true), *stream = stream_of(0);
  ck_assert(is_done(event));
  works(ask(wait_event, 0, event, stream));
  works(ask(synchronize_event, 0, event));
  works(ask(destroy_event, 0, event));
  works(ask(destroy_stream, 0, stream));
}
END_TEST

START_TEST(an_event_is_done_when_all_before_it_is) {
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  void *event = event_of(false);
  for (int round = 0; round < 3; round++) { /* recorded again, it moves */
    fill_with(s.from, round);
    send(s.streams[0]);
    fetch(s.streams[0]);
    works(ask(record_event, 0, event, s.streams[0]));
    if (is_stand_in(_i))
      ck_assert(!is_done(event));
    works(ask(synchronize_event, 0, event));
    ck_assert(is_done(event));
    ck_assert(are_from(s.to, round));
  }
  works(ask(destroy_event, 0, event));
  free_scene();
}
END_TEST

START_TEST(an_event_may_go_while_it_is_still_to_come) {
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  void *event = event_of(true);
  send(s.streams[0]);
  works(ask(record_event, 0, event, s.streams[0]));
  works(ask(wait_event, 0, event, s.streams[1]));
  works(ask(destroy_event, 0, event));
  fetch(s.streams[1]);
  await(s.streams[1]);
  ck_assert(are_from(s.to, 1));
  free_scene();
}
END_TEST

START_TEST(two_timed_events_tell_the_time_between_them) {
  double us = -1;
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  void *first = event_of(true), *last = event_of(true), *untimed = event_of(false);
  works(ask(record_event, 0, first, s.streams[0]));
  send(s.streams[0]);
  works(ask(record_event, 0, last, s.streams[0]));
  works(ask(record_event, 0, untimed, s.streams[0]));
  if (is_stand_in(_i))
    fails(ask(elapsed, 0, first, last, &us), FL_EDEVICE, "(600)");
  ck_assert_double_eq(us, -1);
  await(s.streams[0]);
  works(ask(elapsed, 0, first, last, &us));
  if (is_stand_in(_i)) /* the copy's and the event's own, on a clock that counts tasks */
    ck_assert_double_eq_tol(us, 2, 1e-3);
  ck_assert(us > 0 && us < 10e6);
  us = -1;
  fails(ask(elapsed, 0, first, untimed, &us), FL_EDEVICE, "reading the time between two timed events");
  ck_assert_double_eq(us, -1);
  works(ask(destroy_event, 0, first));
  works(ask(destroy_event, 0, last));
  works(ask(destroy_event, 0, untimed));
  free_scene();
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- memory */

START_TEST(pinned_memory_may_be_empty) {
  void *memory = NULL;
  if (!set_up(_i, ""))
    return;
  works(ask(allocate_host, 0, 0, &memory));
  ck_assert_ptr_nonnull(memory);
  works(ask(release_host, 0, memory));
}
END_TEST

typedef struct usage {
  uint64_t used, held;
} usage;

static usage pool_now(void) {
  usage u = {1, 1};
  works(ask(pool_usage, 0, &u.used, &u.held));
  return u;
}

START_TEST(a_pool_keeps_what_is_given_back_until_it_is_trimmed) {
  enum { MIB = 1 << 20 };
  void *memory[2] = {NULL, NULL};
  if (!set_up(_i, "delay=1"))
    return;
  void *stream = stream_of(0);
  works(ask(trim_pool, 0, 0)); /* of a pool that there is not yet */
  ck_assert_uint_eq(pool_now().held, 0);
  for (int i = 0; i < 2; i++) {
    works(ask(allocate_async, 0, MIB, stream, &memory[i]));
    ck_assert_uint_eq((uintptr_t)memory[i] % 256, 0);
  }
  ck_assert_uint_ge(pool_now().used, 2 * MIB);
  ck_assert_uint_ge(pool_now().held, pool_now().used);
  for (int i = 0; i < 2; i++)
    works(ask(release_async, 0, memory[i], stream));
  if (is_stand_in(_i))
    ck_assert_uint_eq(pool_now().used, 2 * MIB); /* in the order of the stream */
  await(stream);
  ck_assert_uint_eq(pool_now().used, 0);
  ck_assert_uint_ge(pool_now().held, 2 * MIB);
  if (is_stand_in(_i)) {
    works(ask(trim_pool, 0, MIB));
    ck_assert_uint_eq(pool_now().held, MIB);
  }
  works(ask(trim_pool, 0, 0));
  ck_assert_uint_eq(pool_now().held, 0);
  if (is_stand_in(_i))
    ck_assert_int_eq(stand_in_lines("create pool"), 1);
  works(ask(destroy_stream, 0, stream));
}
END_TEST

START_TEST(memory_of_a_pool_is_used_in_the_order_of_its_stream) {
  void *memory = NULL, *empty = NULL;
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  works(ask(allocate_async, 0, 0, s.streams[0], &empty));
  works(ask(allocate_async, 0, BYTES, s.streams[0], &memory));
  works(ask(copy_async, 0, memory, s.from, BYTES, FL_COPY_TO_DEVICE, s.streams[0]));
  works(ask(copy_async, 0, s.to, memory, BYTES, FL_COPY_TO_HOST, s.streams[0]));
  works(ask(release_async, 0, memory, s.streams[0]));
  works(ask(release_async, 0, empty, s.streams[0]));
  await(s.streams[0]);
  ck_assert(are_from(s.to, 1));
  free_scene();
}
END_TEST

START_TEST(no_memory_is_no_memory) {
  void *here = &plugin, *memory = here;
  set_up(_i, "allocate=2");
  fails(ask(allocate_host, 0, 100, &memory), FL_ENOMEM, "allocate_host: allocating host memory: ");
  fails(ask(allocate_async, 0, 100, NULL, &memory), FL_ENOMEM, "allocate_async: allocating memory: ");
  ck_assert_ptr_eq(memory, here);
  stand_in_set("fail.create_pool=2"); /* there is one already */
  works(ask(allocate_async, 0, 100, NULL, &memory));
  works(ask(release_async, 0, memory, NULL));
}
END_TEST

START_TEST(a_device_without_pools_says_so) {
  void *memory = NULL;
  set_up(_i, "fail.create_pool=801");
  fails(ask(allocate_async, 0, 100, NULL, &memory), FL_ENOTSUP, "allocate_async: making the device's pool: ");
  ck_assert_ptr_null(memory);
  ck_assert_uint_eq(pool_now().held, 0);
  stand_in_set("fail.set_pool=999");
  fails(ask(allocate_async, 0, 100, NULL, &memory), FL_EDEVICE, "(999)");
  ck_assert_int_eq(stand_in_lines("destroy pool"), 1);
}
END_TEST

/* ---------------------------------------------------------------------------------------------- threads and devices */

START_TEST(what_belongs_to_one_device_does_not_work_on_another) {
  int32_t current = -1;
  void *event = NULL, *memory = NULL;
  set_up(_i, "devices=2");
  void *streams[2] = {stream_of(0), stream_of(1)};
  works(ask(create_event, 1, false, &event));
  works(ask(record_event, 1, event, streams[1]));
  fails(ask(record_event, 1, event, streams[0]), FL_EDEVICE, "(400)");
  fails(ask(record_event, 0, event, streams[0]), FL_EDEVICE, "(400)");
  works(ask(wait_event, 0, event, streams[0])); /* that is what events are for */
  works(ask(allocate_async, 1, 100, streams[1], &memory));
  works(ask(release_async, 1, memory, streams[1]));
  ck_assert_int_eq(stand_in_lines("create pool 1"), 1);
  ck_assert_int_eq(stand_in_lines("create pool 0"), 0);
  ck_assert_uint_eq(pool_now().held, 0);
  works(ask(destroy_event, 1, event));
  for (int i = 0; i < 2; i++)
    works(ask(destroy_stream, i, streams[i]));
  fails(ask(health, 2), FL_EDEVICE, "device 2; the driver reports 2");
  works(plugin.platform.current_device(plugin.self, &current));
  ck_assert_int_eq(current, 0);
}
END_TEST

enum { THREADS = 4 };

/* NULL: it went well; else why not, to be freed. */
static void *use_in_thread(void *place) {
  (void)place;
  for (int round = 0; round < 20; round++) {
    void *stream = NULL, *event = NULL, *memory = NULL, *graph = NULL, *to = NULL;
    int from = round, back = -1;
    bool well = !ask(create_stream, 0, 0, &stream) && !ask(create_event, 0, true, &event) &&
                !ask(allocate_async, 0, sizeof from, stream, &memory) && !ask(allocate_host, 0, sizeof from, &to) &&
                !ask(copy_async, 0, memory, &from, sizeof from, FL_COPY_TO_DEVICE, stream) &&
                !ask(synchronize, 0, stream, false) && !ask(begin_capture, 0, stream) &&
                !ask(copy_async, 0, to, memory, sizeof from, FL_COPY_TO_HOST, stream) &&
                !ask(end_capture, 0, stream, &graph) && !ask(launch_graph, 0, graph, stream) &&
                !ask(record_event, 0, event, stream) && !ask(synchronize_event, 0, event);
    if (!well)
      return strdup(error_words());
    back = *(int *)to;
    if (ask(release_async, 0, memory, stream) || ask(destroy_graph, 0, graph) || ask(destroy_event, 0, event) ||
        ask(destroy_stream, 0, stream) || ask(release_host, 0, to) || ask(health, 0))
      return strdup(error_words());
    if (back != from)
      return strdup("another number came back");
  }
  return NULL;
}

START_TEST(every_thread_may_have_streams_of_its_own) {
  pthread_t threads[THREADS];
  if (!set_up(_i, _i % 2 ? "delay=1" : ""))
    return;
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, use_in_thread, NULL), 0);
  for (int i = 0; i < THREADS; i++) {
    void *failed = NULL;
    pthread_join(threads[i], &failed);
    ck_assert_msg(!failed, "%s", (const char *)failed);
  }
  works(ask(synchronize, 0, NULL, true));
  ck_assert_uint_eq(pool_now().used, 0);
}
END_TEST

/* What one thread makes another may use. */
static void *send_in_thread(void *stream) {
  return (void *)(intptr_t)ask(copy_async, 0, s.middle, s.from, BYTES, FL_COPY_TO_DEVICE, stream);
}

START_TEST(a_stream_may_go_from_thread_to_thread) {
  pthread_t thread;
  void *failed = NULL;
  if (!set_up(_i, "delay=1"))
    return;
  make_scene();
  ck_assert_int_eq(pthread_create(&thread, NULL, send_in_thread, s.streams[0]), 0);
  pthread_join(thread, &failed);
  ck_assert_ptr_null(failed);
  fetch(s.streams[0]);
  await(s.streams[0]);
  ck_assert(are_from(s.to, 1));
  free_scene();
}
END_TEST

/* Says what the tests did without. */
START_TEST(devices_of_this_machine_are_tested_as_well) {
  if (!has_device(_i))
    printf("skip: devices_of_this_machine_are_tested_as_well: %s: no device node %s\n", devices[_i].plugin,
           devices[_i].nodes[0]);
}
END_TEST

static void add_tests(TCase *tests) {
  EVERYWHERE(copies_are_made_in_the_order_of_their_stream);
  EVERYWHERE(a_stream_that_is_destroyed_finishes_its_work);
  EVERYWHERE(a_priority_that_the_device_has_not_becomes_the_nearest);
  EVERYWHERE(a_stream_waits_for_the_event_of_another);
  ON_STAND_INS(streams_do_not_wait_for_each_other_by_themselves);
  EVERYWHERE(an_event_that_was_not_recorded_is_done);
  EVERYWHERE(an_event_is_done_when_all_before_it_is);
  EVERYWHERE(an_event_may_go_while_it_is_still_to_come);
  EVERYWHERE(two_timed_events_tell_the_time_between_them);
  EVERYWHERE(pinned_memory_may_be_empty);
  EVERYWHERE(a_pool_keeps_what_is_given_back_until_it_is_trimmed);
  EVERYWHERE(memory_of_a_pool_is_used_in_the_order_of_its_stream);
  ON_STAND_INS(no_memory_is_no_memory);
  ON_STAND_INS(a_device_without_pools_says_so);
  ON_STAND_INS(what_belongs_to_one_device_does_not_work_on_another);
  EVERYWHERE(every_thread_may_have_streams_of_its_own);
  EVERYWHERE(a_stream_may_go_from_thread_to_thread);
  tcase_add_loop_test(tests, devices_of_this_machine_are_tested_as_well, 0, N_DEVICES);
}

int main(void) {
  return run_suite("gpu_work", add_tests, 60);
}
