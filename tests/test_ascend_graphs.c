/* The Ascend plugin over its stand-in: what a stream is given becomes a graph, which runs again and again. */
#include "tests/npu_work.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>

static bool is_captured(void *stream) {
  bool captured = false;
  OK(npu->is_captured(NULL, 0, stream, &captured));
  return captured;
}

START_TEST(a_graph_runs_any_number_of_times_on_the_addresses_of_the_capture) {
  bench b = open_bench();
  gated made = make_gated();
  void *graph = NULL;
  npu_control.set("workspace", "0");
  set_gated(&made, 0);
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  ck_assert(is_captured(b.streams[0]));
  ck_assert(!is_captured(b.streams[1]));
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(copy(&b, b.host[1], b.memory[0], FL_COPY_TO_HOST, 0));
  ck_assert_msg(call_gated(&made, b.streams[0]) == FL_OK, "%s", npu_message);
  OK(npu->end_capture(NULL, 0, b.streams[0], &graph));
  ck_assert_ptr_nonnull(graph);
  ck_assert(!is_captured(b.streams[0]));
  wait_for(&b, 0);
  ck_assert_int_eq(b.host[1][0], 'b'); /* it did not run */
  for (int i = 1; i < 4; i++) {
    memset(b.host[0], '0' + i, SIZE);
    set_gated(&made, (float)i);
    OK(npu->launch_graph(NULL, 0, graph, b.streams[i % 2]));
    ck_assert_int_ne(b.host[1][0], '0' + i);
    wait_for(&b, i % 2);
    ck_assert_int_eq(b.host[1][SIZE - 1], '0' + i);
    check_gated(&made, (float)(i * i) / (1 + expf(-(float)i)));
  }
  OK(npu->destroy_graph(NULL, 0, graph));
  OK(npu->destroy_graph(NULL, 0, NULL));
  free_gated(&made);
  free_bench(&b);
}
END_TEST

START_TEST(a_graph_takes_in_streams_that_wait_for_its_events) {
  bench b = open_bench();
  void *graph = NULL, *there = make_event(&b, false), *back = make_event(&b, false);
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(npu->record_event(NULL, 0, there, b.streams[0]));
  OK(npu->wait_event(NULL, 0, there, b.streams[1]));
  ck_assert(is_captured(b.streams[1]));
  OK(copy(&b, b.memory[1], b.memory[0], FL_COPY_ON_DEVICE, 1));
  OK(npu->record_event(NULL, 0, back, b.streams[1]));
  if (_i)
    OK(npu->wait_event(NULL, 0, back, b.streams[0]));
  fl_status status = npu->end_capture(NULL, 0, b.streams[0], &graph);
  ck_assert(!is_captured(b.streams[1]));
  if (_i) {
    OK(status);
    OK(npu->launch_graph(NULL, 0, graph, b.streams[1]));
    wait_for(&b, 1);
    ck_assert_int_eq(*(char *)b.memory[1], 'a');
    OK(npu->destroy_graph(NULL, 0, graph));
  } else { /* nobody waited for the other's work */
    FAILS(status, FL_EDEVICE, "aclmdlRICaptureEnd returned 107025 (not while a graph is captured)");
    ck_assert_ptr_null(graph);
  }
  OK(npu->destroy_event(NULL, 0, there));
  OK(npu->destroy_event(NULL, 0, back));
  free_bench(&b);
}
END_TEST

static fl_status wait_for_stream(const bench *b) {
  return npu->synchronize(NULL, 0, b->streams[0], false);
}

static fl_status wait_for_device(const bench *b) {
  (void)b;
  return npu->synchronize(NULL, 0, NULL, true);
}

static fl_status copy_and_wait(const bench *b) {
  return npu->copy(NULL, 0, b->memory[0], b->host[0], SIZE, FL_COPY_TO_DEVICE, b->streams[1]);
}

static fl_status copy_from_elsewhere(const bench *b) {
  char elsewhere[SIZE] = "";
  return copy(b, b->memory[0], elsewhere, FL_COPY_TO_DEVICE, 0);
}

/* Of all of them the engine is told at once, and at the end. */
START_TEST(what_a_graph_cannot_hold_makes_it_fail_and_leaves_the_stream_usable) {
  static fl_status (*const calls[])(const bench *) = {wait_for_stream, wait_for_device, copy_and_wait,
                                                      copy_from_elsewhere};
  bench b = open_bench();
  void *graph = &graph;
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  ck_assert_int_eq(calls[_i](&b), FL_EDEVICE);
  FAILS(npu->end_capture(NULL, 0, b.streams[0], &graph), FL_EDEVICE,
        "aclmdlRICaptureEnd returned 507903 (something was done that a graph cannot hold)");
  ck_assert_ptr_eq(graph, &graph);
  ck_assert(!is_captured(b.streams[0]));
  OK(copy(&b, b.memory[0], b.host[1], FL_COPY_TO_DEVICE, 0));
  wait_for(&b, 0);
  ck_assert_int_eq(*(char *)b.memory[0], 'b');
  free_bench(&b);
}
END_TEST

/* An engine's own, which the runtime knows. */
START_TEST(pinned_memory_of_others_is_for_graphs_too) {
  bench b = open_bench();
  int (*allocate)(void **, size_t);
  void *memory = NULL, *graph = NULL;
  *(void **)&allocate = dlsym(npu_control.library, "aclrtMallocHost");
  ck_assert_int_eq(allocate(&memory, SIZE), 0);
  memset(memory, 'x', SIZE);
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  OK(copy(&b, b.memory[0], memory, FL_COPY_TO_DEVICE, 0));
  OK(npu->end_capture(NULL, 0, b.streams[0], &graph));
  OK(npu->launch_graph(NULL, 0, graph, b.streams[0]));
  wait_for(&b, 0);
  ck_assert_int_eq(*(char *)b.memory[0], 'x');
  OK(npu->destroy_graph(NULL, 0, graph));
  OK(npu->release_host(NULL, 0, memory));
  free_bench(&b);
}
END_TEST

static void *copy_elsewhere(void *argument) {
  return copy_and_wait(argument) ? strdup(npu->error(NULL)) : NULL;
}

START_TEST(other_threads_may_do_what_a_graph_cannot_hold) {
  bench b = open_bench();
  pthread_t thread;
  void *wrong, *graph = NULL;
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  ck_assert_int_eq(pthread_create(&thread, NULL, copy_elsewhere, &b), 0);
  pthread_join(thread, &wrong);
  ck_assert_msg(!wrong, "%s", (char *)wrong);
  OK(npu->end_capture(NULL, 0, b.streams[0], &graph));
  OK(npu->destroy_graph(NULL, 0, graph));
  free_bench(&b);
}
END_TEST

START_TEST(what_a_failed_capture_leaves_behind_is_destroyed) {
  bench b = open_bench();
  void *graph = &graph;
  npu_control.set("partial", "1");
  npu_control.set("aclmdlRICaptureEnd", "207001");
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  ck_assert_int_eq(npu->end_capture(NULL, 0, b.streams[0], &graph), FL_ENOMEM);
  ck_assert_ptr_eq(graph, &graph);
  ck_assert_int_eq(npu_control.count("graphs"), 0);
  free_bench(&b);
}
END_TEST

START_TEST(a_capture_has_a_beginning_an_end_and_a_stream) {
  bench b = open_bench();
  void *graph = &graph;
  ck_assert_int_eq(npu->begin_capture(NULL, 0, NULL), FL_EDEVICE); /* the default one */
  FAILS(npu->end_capture(NULL, 0, b.streams[0], &graph), FL_EDEVICE, "107029");
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  FAILS(npu->begin_capture(NULL, 0, b.streams[0]), FL_EDEVICE, "107027");
  FAILS(npu->end_capture(NULL, 0, b.streams[1], &graph), FL_EDEVICE, "107029");
  ck_assert_ptr_eq(graph, &graph);
  OK(npu->end_capture(NULL, 0, b.streams[0], &graph));
  OK(npu->destroy_graph(NULL, 0, graph));
  free_bench(&b);
}
END_TEST

/* The stream's own memory is for no graph; the capture goes on. */
START_TEST(an_op_that_would_use_the_streams_memory_is_left_out_of_a_graph) {
  bench b = open_bench();
  gated made = make_gated();
  void *graph = NULL;
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  ck_assert_int_eq(call_gated(&made, b.streams[0]), FL_ENOTSUP);
  ck_contains(npu_message, "the stream is being captured in a graph");
  OK(npu->end_capture(NULL, 0, b.streams[0], &graph));
  OK(npu->destroy_graph(NULL, 0, graph));
  free_gated(&made);
  free_bench(&b);
}
END_TEST

static void *end_elsewhere(void *argument) {
  const bench *b = argument;
  static char words[256];
  void *graph = NULL;
  fl_status status = npu->end_capture(NULL, 0, b->streams[0], &graph);
  snprintf(words, sizeof words, "%d: %s", (int)status, npu->error(NULL));
  return words;
}

START_TEST(the_thread_that_began_a_capture_ends_it) {
  bench b = open_bench();
  pthread_t thread;
  void *words, *graph = NULL;
  char expected[64];
  OK(npu->begin_capture(NULL, 0, b.streams[0]));
  ck_assert_int_eq(pthread_create(&thread, NULL, end_elsewhere, &b), 0);
  pthread_join(thread, &words);
  snprintf(expected, sizeof expected, "%d: aclmdlRICaptureEnd returned 107038 (another thread began", FL_EDEVICE);
  ck_contains((char *)words, expected);
  OK(npu->end_capture(NULL, 0, b.streams[0], &graph));
  OK(npu->destroy_graph(NULL, 0, graph));
  free_bench(&b);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, a_graph_runs_any_number_of_times_on_the_addresses_of_the_capture);
  tcase_add_loop_test(tests, a_graph_takes_in_streams_that_wait_for_its_events, 0, 2);
  tcase_add_loop_test(tests, what_a_graph_cannot_hold_makes_it_fail_and_leaves_the_stream_usable, 0, 4);
  tcase_add_test(tests, pinned_memory_of_others_is_for_graphs_too);
  tcase_add_test(tests, other_threads_may_do_what_a_graph_cannot_hold);
  tcase_add_test(tests, what_a_failed_capture_leaves_behind_is_destroyed);
  tcase_add_test(tests, a_capture_has_a_beginning_an_end_and_a_stream);
  tcase_add_test(tests, an_op_that_would_use_the_streams_memory_is_left_out_of_a_graph);
  tcase_add_test(tests, the_thread_that_began_a_capture_ends_it);
}

int main(void) {
  return run_suite("ascend_graphs", add_tests, 60);
}
