/* The Ascend plugin over its stand-in: streams, events, pinned memory, copies that do not wait, health; and
 * how all of it fails, that of graphs too. */
#include "tests/npu_work.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 25 };

/* ---------------------------------------------------------------------------------------------------------- streams */

START_TEST(streams_do_not_wait_for_each_other) {
  bench b = open_bench();
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(copy(&b, b.memory[1], b.host[1], FL_COPY_TO_DEVICE, 1));
  ck_assert_int_eq(npu_control.count("queued"), 2);
  wait_for(&b, 1);
  ck_assert_int_eq(npu_control.count("queued"), 1);
  wait_for(&b, 0);
  free_bench(&b);
}
END_TEST

START_TEST(a_priority_that_the_device_has_not_becomes_the_nearest) {
  static const int32_t asked[] = {-5, 0, 3, 100};
  static const char *const made[] = {"stream of priority 0", "stream of priority 0", "stream of priority 3",
                                     "stream of priority 7"};
  void *stream;
  npu_open();
  OK(npu->create_stream(NULL, 1, asked[_i], &stream));
  ck_contains(npu_control.log(), made[_i]);
  OK(npu->destroy_stream(NULL, 1, stream));
}
END_TEST

START_TEST(a_stream_that_is_destroyed_does_its_work_first) {
  bench b = open_bench();
  void *stream = NULL;
  OK(npu->create_stream(NULL, 0, 0, &stream));
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(npu->copy_async(NULL, 0, b.memory[0], b.host[1], SIZE, FL_COPY_TO_DEVICE, stream));
  OK(npu->destroy_stream(NULL, 0, stream));
  ck_assert_int_eq(*(char *)b.memory[0], 'b');
  OK(npu->destroy_stream(NULL, 0, NULL));
  ck_assert_int_eq(npu_control.count("streams"), 2);
  free_bench(&b);
}
END_TEST

START_TEST(a_stream_whose_work_failed_is_gone_and_tells_it) {
  bench b = open_bench();
  npu_control.set("aclrtSynchronizeStream", "507015");
  FAILS(npu->destroy_stream(NULL, 0, b.streams[0]), FL_EDEVICE, "aclrtSynchronizeStream returned 507015");
  npu_control.set("aclrtSynchronizeStream", "0");
  ck_assert_int_eq(npu_control.count("streams"), 1);
  b.streams[0] = NULL;
  free_bench(&b);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- events */

START_TEST(a_stream_waits_for_the_event_of_another) {
  bench b = open_bench();
  void *event = make_event(&b, false);
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(npu->record_event(NULL, 0, event, b.streams[0]));
  OK(copy(&b, b.memory[0], b.host[1], FL_COPY_TO_DEVICE, 0)); /* behind the place */
  OK(npu->wait_event(NULL, 0, event, b.streams[1]));
  OK(copy(&b, b.host[1], b.memory[0], FL_COPY_TO_HOST, 1));
  wait_for(&b, 1);
  ck_assert_int_eq(b.host[1][SIZE - 1], 'a');
  ck_assert_int_eq(npu_control.count("queued"), 1);
  wait_for(&b, 0);
  OK(npu->destroy_event(NULL, 0, event));
  free_bench(&b);
}
END_TEST

START_TEST(an_event_that_was_not_recorded_is_done_and_nobody_waits_for_it) {
  bench b = open_bench();
  void *event = make_event(&b, _i);
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  ck_assert(is_done(event));
  OK(npu->wait_event(NULL, 0, event, b.streams[0]));
  OK(npu->synchronize_event(NULL, 0, event));
  ck_assert_int_eq(npu_control.count("queued"), 1);
  OK(npu->destroy_event(NULL, 0, event));
  OK(npu->destroy_event(NULL, 0, NULL));
  free_bench(&b);
}
END_TEST

/* Whoever asks again and again sees the end, and has not waited. */
START_TEST(an_event_is_done_when_what_is_before_it_is) {
  bench b = open_bench();
  void *event = make_event(&b, false);
  OK(npu->record_event(NULL, 0, event, b.streams[0]));
  wait_for(&b, 0);
  ck_assert(is_done(event));
  npu_control.clear();
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(npu->record_event(NULL, 0, event, b.streams[0])); /* it moves */
  ck_assert(!is_done(event));
  while (!is_done(event))
    ;
  ck_assert_int_eq(*(char *)b.memory[0], 'a');
  ck_assert_int_eq(npu_control.count("waits"), 0);
  OK(npu->destroy_event(NULL, 0, event));
  free_bench(&b);
}
END_TEST

START_TEST(to_wait_for_an_event_leaves_what_is_behind_it) {
  bench b = open_bench();
  void *event = make_event(&b, false);
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(npu->record_event(NULL, 0, event, b.streams[0]));
  OK(copy(&b, b.memory[1], b.host[1], FL_COPY_TO_DEVICE, 0));
  OK(npu->synchronize_event(NULL, 0, event));
  ck_assert_int_eq(*(char *)b.memory[0], 'a');
  ck_assert_int_eq(npu_control.count("queued"), 1);
  OK(npu->destroy_event(NULL, 0, event)); /* the stream goes on without it */
  free_bench(&b);
}
END_TEST

/* Another stream may lie at the same address. */
START_TEST(a_stream_that_is_destroyed_gives_its_memory_back) {
  bench b = open_bench();
  gated made = make_gated();
  void *stream = NULL;
  set_gated(&made, 1);
  npu_control.set("workspace", "1000");
  int64_t blocks = npu_control.count("blocks");
  for (int i = 0; i < 3; i++) {
    OK(npu->create_stream(NULL, 0, 0, &stream));
    ck_assert_msg(call_gated(&made, stream) == FL_OK, "%s", npu_message);
    ck_assert_int_eq(npu_control.count("blocks"), blocks + 1);
    OK(npu->destroy_stream(NULL, 0, stream));
    ck_assert_int_eq(npu_control.count("blocks"), blocks);
  }
  check_gated(&made, 0.7310586f);
  free_gated(&made);
  free_bench(&b);
}
END_TEST

START_TEST(two_timed_events_tell_how_long_it_took) {
  bench b = open_bench();
  gated made = make_gated();
  void *first = make_event(&b, true), *last = make_event(&b, true);
  double us = -1;
  set_gated(&made, 1);
  npu_control.set("stall kernel", "20");
  OK(npu->record_event(NULL, 0, first, b.streams[0]));
  ck_assert_int_eq(call_gated(&made, b.streams[0]), FL_OK);
  OK(npu->record_event(NULL, 0, last, b.streams[0]));
  FAILS(npu->elapsed(NULL, 0, first, last, &us), FL_EDEVICE, "aclrtEventElapsedTime returned 507006");
  ck_assert_double_eq(us, -1);
  OK(npu->synchronize_event(NULL, 0, last));
  OK(npu->elapsed(NULL, 0, first, last, &us));
  ck_assert_double_ge(us, 20000);
  ck_assert_double_lt(us, 20e6);
  check_gated(&made, 0.7310586f);
  OK(npu->destroy_event(NULL, 0, first));
  OK(npu->destroy_event(NULL, 0, last));
  free_gated(&made);
  free_bench(&b);
}
END_TEST

START_TEST(events_without_times_have_none) {
  bench b = open_bench();
  void *timed = make_event(&b, true), *untimed = make_event(&b, false), *never = make_event(&b, true);
  double us = -1;
  OK(npu->record_event(NULL, 0, timed, NULL));
  OK(npu->record_event(NULL, 0, untimed, NULL));
  OK(npu->synchronize(NULL, 0, NULL, true));
  FAILS(npu->elapsed(NULL, 0, timed, untimed, &us), FL_EDEVICE, "not made for times");
  FAILS(npu->elapsed(NULL, 0, untimed, timed, &us), FL_EDEVICE, "not made for times");
  FAILS(npu->elapsed(NULL, 0, timed, never, &us), FL_EDEVICE, "not recorded");
  ck_assert_double_eq(us, -1);
  OK(npu->destroy_event(NULL, 0, timed));
  OK(npu->destroy_event(NULL, 0, untimed));
  OK(npu->destroy_event(NULL, 0, never));
  free_bench(&b);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- memory */

START_TEST(pinned_memory_is_aligned_and_may_have_no_bytes) {
  void *memory[3];
  npu_open();
  for (int i = 0; i < 3; i++) {
    OK(npu->allocate_host(NULL, 0, (size_t)i * 100, &memory[i]));
    ck_assert_uint_eq((uintptr_t)memory[i] % 64, 0);
  }
  ck_assert_int_eq(npu_control.count("host blocks"), 3);
  for (int i = 0; i < 3; i++)
    OK(npu->release_host(NULL, 0, memory[i]));
  OK(npu->release_host(NULL, 0, NULL));
}
END_TEST

START_TEST(copies_with_pinned_memory_do_not_wait) {
  bench b = open_bench();
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(copy(&b, b.memory[1], b.memory[0], FL_COPY_ON_DEVICE, 0));
  OK(npu->copy_async(NULL, 0, b.host[1] + 8, b.memory[1], SIZE - 8, FL_COPY_TO_HOST, b.streams[0]));
  OK(npu->copy_async(NULL, 0, NULL, NULL, 0, FL_COPY_TO_HOST, b.streams[0]));
  ck_assert_int_eq(npu_control.count("queued"), 3);
  ck_assert_int_eq(npu_control.count("waits"), 0);
  ck_assert_int_eq(b.host[1][8], 'b');
  wait_for(&b, 0);
  ck_assert_int_eq(b.host[1][7], 'b');
  ck_assert_int_eq(b.host[1][8], 'a');
  ck_assert_int_eq(b.host[1][SIZE - 1], 'a');
  free_bench(&b);
}
END_TEST

/* Older runtimes copy anything at all of what they have not allocated. */
START_TEST(copies_with_other_memory_are_done_in_the_streams_turn) {
  bench b = open_bench();
  char there[SIZE], back[SIZE] = "";
  memset(there, 'x', SIZE);
  OK(copy(&b, b.memory[0], b.host[0], FL_COPY_TO_DEVICE, 0));
  OK(copy(&b, b.memory[0], there, FL_COPY_TO_DEVICE, 0));
  memset(there, 'y', SIZE); /* it is done with */
  OK(copy(&b, b.memory[1], b.memory[0], FL_COPY_ON_DEVICE, 0));
  OK(copy(&b, back, b.memory[1], FL_COPY_TO_HOST, 0));
  ck_assert_int_eq(back[SIZE - 1], 'x');
  ck_assert_int_eq(npu_control.count("waits"), 2);
  free_bench(&b);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- health */

START_TEST(health_is_the_runtimes_word_and_makes_no_context) {
  npu_open();
  OK(npu->health(NULL, 1));
  FAILS(npu->health(NULL, 2), FL_EDEVICE, "there is no Ascend device 2");
  npu_control.set("abnormal", "1");
  FAILS(npu->health(NULL, 1), FL_EDEVICE, "says that Ascend device 1 is abnormal");
  npu_control.set("aclrtQueryDeviceStatus", "207020");
  FAILS(npu->health(NULL, 1), FL_EDEVICE, "aclrtQueryDeviceStatus returned 207020");
  ck_assert_int_eq(npu_control.count("made contexts"), 0);
}
END_TEST

/* Some errors go away, others do not, whatever the runtime says of the device. */
START_TEST(a_device_that_a_call_found_lost_stays_lost) {
  static const struct {
    const char *code;
    bool lost;
  } codes[] = {{"507010", true},  {"507053", true},  {"507054", true}, {"507901", true},
               {"507015", false}, {"507899", false}, {"207001", false}};
  npu_open();
  npu_control.set("aclrtSynchronizeStream", codes[_i].code);
  ck_assert_int_ne(npu->synchronize(NULL, 1, NULL, false), FL_OK);
  npu_control.set("aclrtSynchronizeStream", "0");
  OK(npu->health(NULL, 0));
  if (codes[_i].lost) {
    FAILS(npu->health(NULL, 1), FL_EDEVICE, "Ascend device 1 is lost: a call returned ");
    ck_contains(npu->error(NULL), codes[_i].code);
  } else {
    OK(npu->health(NULL, 1));
  }
}
END_TEST

/* Not the one that the thread works on meanwhile. */
START_TEST(a_device_is_lost_that_cannot_be_set_or_asked) {
  npu_open();
  ck_assert_int_eq(npu->device_count(NULL), 2);
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", 0), 0);
  const char *function = _i ? "aclrtSetDevice" : "aclrtQueryDeviceStatus";
  npu_control.set(function, "507901");
  ck_assert_int_eq(_i ? npu->synchronize(NULL, 1, NULL, false) : npu->health(NULL, 1), FL_EDEVICE);
  npu_control.set(function, "0");
  FAILS(npu->health(NULL, 1), FL_EDEVICE, "Ascend device 1 is lost");
  OK(npu->health(NULL, 0));
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- failures */

/* What a call of the platform works on, and what it makes, which it leaves alone when it fails. */
typedef struct attempt {
  bench b;
  void *event, *other, *graph, *made;
  bool done;
  double us;
} attempt;

static fl_status try_create_stream(attempt *a) {
  return npu->create_stream(NULL, 0, 0, &a->made);
}
static fl_status try_destroy_stream(attempt *a) {
  fl_status status = npu->destroy_stream(NULL, 0, a->b.streams[1]);
  if (!status)
    a->b.streams[1] = NULL;
  return status;
}
static fl_status try_create_event(attempt *a) {
  return npu->create_event(NULL, 0, true, &a->made);
}
static fl_status try_record_event(attempt *a) {
  return npu->record_event(NULL, 0, a->event, a->b.streams[0]);
}
static fl_status try_wait_event(attempt *a) {
  return npu->wait_event(NULL, 0, a->event, a->b.streams[1]);
}
static fl_status try_is_event_done(attempt *a) {
  return npu->is_event_done(NULL, 0, a->event, &a->done);
}
static fl_status try_synchronize_event(attempt *a) {
  return npu->synchronize_event(NULL, 0, a->event);
}
static fl_status try_elapsed(attempt *a) {
  return npu->elapsed(NULL, 0, a->event, a->other, &a->us);
}
static fl_status try_allocate_host(attempt *a) {
  return npu->allocate_host(NULL, 0, 100, &a->made);
}
static fl_status try_copy_async(attempt *a) {
  return copy(&a->b, a->b.memory[0], a->b.host[0], FL_COPY_TO_DEVICE, 0);
}
static fl_status try_begin_capture(attempt *a) {
  return npu->begin_capture(NULL, 0, a->b.streams[0]);
}
static fl_status try_launch_graph(attempt *a) {
  return npu->launch_graph(NULL, 0, a->graph, a->b.streams[0]);
}
static fl_status try_destroy_graph(attempt *a) {
  fl_status status = npu->destroy_graph(NULL, 0, a->graph);
  if (!status)
    a->graph = NULL;
  return status;
}
static fl_status try_health(attempt *a) {
  (void)a;
  return npu->health(NULL, 0);
}

static const struct {
  const char *function;
  fl_status (*call)(attempt *);
} attempts[] = {{"aclrtCreateStreamWithConfig", try_create_stream},
                {"aclrtDestroyStream", try_destroy_stream},
                {"aclrtCreateEventExWithFlag", try_create_event},
                {"aclrtRecordEvent", try_record_event},
                {"aclrtStreamWaitEvent", try_wait_event},
                {"aclrtQueryEventStatus", try_is_event_done},
                {"aclrtSynchronizeEvent", try_synchronize_event},
                {"aclrtEventElapsedTime", try_elapsed},
                {"aclrtMallocHost", try_allocate_host},
                {"aclrtMemcpyAsync", try_copy_async},
                {"aclmdlRICaptureBegin", try_begin_capture},
                {"aclmdlRIExecuteAsync", try_launch_graph},
                {"aclmdlRIDestroy", try_destroy_graph},
                {"aclrtQueryDeviceStatus", try_health}};
enum { N_ATTEMPTS = sizeof attempts / sizeof attempts[0] };

static attempt make_attempt(void) {
  attempt made = {.b = open_bench(), .us = -1};
  made.event = make_event(&made.b, true);
  made.other = make_event(&made.b, true);
  made.made = npu_message;
  OK(npu->begin_capture(NULL, 0, made.b.streams[0]));
  OK(npu->end_capture(NULL, 0, made.b.streams[0], &made.graph));
  OK(npu->record_event(NULL, 0, made.event, made.b.streams[0]));
  OK(npu->record_event(NULL, 0, made.other, made.b.streams[0]));
  return made;
}

static void free_attempt(attempt *made) {
  OK(npu->destroy_event(NULL, 0, made->event));
  OK(npu->destroy_event(NULL, 0, made->other));
  OK(npu->destroy_graph(NULL, 0, made->graph));
  free_bench(&made->b);
}

/* Of memory, of the device, of a chip that has no such thing. */
START_TEST(each_call_of_the_runtime_may_fail) {
  static const struct {
    const char *code;
    fl_status status;
  } codes[] = {{"207001", FL_ENOMEM}, {"507899", FL_EDEVICE}, {"207000", FL_ENOTSUP}};
  attempt made = make_attempt();
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
    npu_control.set(attempts[_i].function, codes[i].code);
    npu_control.set("words", "why it did not work");
    FAILS(attempts[_i].call(&made), codes[i].status, attempts[_i].function);
    ck_contains(npu->error(NULL), codes[i].code);
    ck_contains(npu->error(NULL), "why it did not work");
  }
  npu_control.set(attempts[_i].function, "0");
  ck_assert_ptr_eq(made.made, npu_message);
  ck_assert(!made.done);
  ck_assert_double_eq(made.us, -1);
  free_attempt(&made);
}
END_TEST

/* They are gone for the engine, whatever becomes of them. */
START_TEST(what_cannot_be_given_back_is_told) {
  bench b = open_bench();
  void *event = make_event(&b, false), *memory = NULL;
  OK(npu->allocate_host(NULL, 0, 10, &memory));
  npu_control.set("aclrtDestroyEvent", "507899");
  npu_control.set("aclrtFreeHost", "507899");
  FAILS(npu->destroy_event(NULL, 0, event), FL_EDEVICE, "aclrtDestroyEvent returned 507899");
  FAILS(npu->release_host(NULL, 0, memory), FL_EDEVICE, "aclrtFreeHost returned 507899");
  OK(npu->copy_async(NULL, 0, b.memory[0], memory, 10, FL_COPY_TO_DEVICE, b.streams[0]));
  ck_assert_int_eq(npu_control.count("queued"), 0); /* it does not count as pinned any more */
  npu_control.set("aclrtFreeHost", "0");
  npu_control.set("aclrtDestroyEvent", "0");
  OK(npu->release_host(NULL, 0, memory));
  ck_assert_int_eq(npu_control.count("events"), 1);
  free_bench(&b);
  npu_control.count = NULL; /* the event is left */
}
END_TEST

START_TEST(a_device_that_cannot_be_set_fails_every_call) {
  attempt made = make_attempt();
  OK(npu->synchronize(NULL, 0, NULL, true));
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", 1), 0);
  npu_control.set("aclrtSetDevice", "507899");
  for (int i = 0; i < N_ATTEMPTS; i++)
    if (attempts[i].call != try_health)
      FAILS(attempts[i].call(&made), FL_EDEVICE, "aclrtSetDevice returned 507899");
  npu_control.set("aclrtSetDevice", "0");
  free_attempt(&made);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- older runtimes */

/* The stand-in under another name for one of its functions, in a toolkit of its own. */
static void open_without(const char *function) {
  size_t size = 0, length = strlen(function);
  char *text = (char *)read_file(built("tests/drivers/ascend/stand_in.so"), &size);
  int found = 0;
  for (size_t i = 1; i + length < size; i++)
    if (!text[i - 1] && !text[i + length] && !memcmp(text + i, function, length)) {
      text[i] = 'x';
      found++;
    }
  ck_assert_int_gt(found, 0);
  mkdir(in_scratch("lib64"), 0755);
  write_file("lib64/libascendcl.so", text, size);
  free(text);
  ck_assert_int_eq(symlink("libascendcl.so", in_scratch("lib64/libnnopbase.so")), 0);
  ck_assert_int_eq(symlink("libascendcl.so", in_scratch("lib64/libopapi.so")), 0);
  npu_open_plugin(scratch, "/dev/null");
  npu_open_control(in_scratch("lib64/libascendcl.so"));
}

typedef enum paragraph { EVENTS = 1, HOST_MEMORY = 2, GRAPHS = 4, HEALTH = 8 } paragraph;

static void check_paragraph(fl_status status, bool lacks, const char *function) {
  if (lacks)
    FAILS(status, FL_ENOTSUP, "libascendcl.so lacks ");
  if (lacks)
    ck_contains(npu->error(NULL), function);
  else
    OK(status);
}

/* What a paragraph makes is given back, where it makes something. */
static void check_paragraphs(unsigned lacking, const char *function) {
  void *stream = NULL, *event = NULL, *memory = NULL, *graph = NULL, *there = NULL;
  char here[SIZE] = "";
  OK(npu->create_stream(NULL, 0, 100, &stream));
  check_paragraph(npu->create_event(NULL, 0, false, &event), lacking & EVENTS, function);
  check_paragraph(npu->destroy_event(NULL, 0, event ? event : here), lacking & EVENTS, function);
  check_paragraph(npu->allocate_host(NULL, 0, SIZE, &memory), lacking & HOST_MEMORY, function);
  OK(npu->allocate(NULL, 0, SIZE, &there));
  OK(npu->copy_async(NULL, 0, there, memory ? memory : here, SIZE, FL_COPY_TO_DEVICE, stream));
  OK(npu->synchronize(NULL, 0, stream, false));
  OK(npu->release(NULL, 0, there));
  check_paragraph(npu->release_host(NULL, 0, memory ? memory : here), lacking & HOST_MEMORY, function);
  check_paragraph(npu->begin_capture(NULL, 0, stream), lacking & GRAPHS, function);
  check_paragraph(npu->end_capture(NULL, 0, stream, &graph), lacking & GRAPHS, function);
  check_paragraph(npu->destroy_graph(NULL, 0, graph ? graph : here), lacking & GRAPHS, function);
  check_paragraph(npu->health(NULL, 0), lacking & HEALTH, function);
  OK(npu->destroy_stream(NULL, 0, stream));
}

static const struct {
  const char *function;
  unsigned lacking;
} optional[] = {{"aclrtCreateStreamWithConfig", 0},     {"aclrtDeviceGetStreamPriorityRange", 0},
                {"aclrtCreateEventExWithFlag", EVENTS}, {"aclrtDestroyEvent", EVENTS},
                {"aclrtRecordEvent", EVENTS},           {"aclrtStreamWaitEvent", EVENTS},
                {"aclrtQueryEventStatus", EVENTS},      {"aclrtSynchronizeEvent", EVENTS},
                {"aclrtEventElapsedTime", EVENTS},      {"aclrtMallocHost", HOST_MEMORY},
                {"aclrtFreeHost", HOST_MEMORY},         {"aclmdlRICaptureBegin", GRAPHS},
                {"aclmdlRICaptureGetInfo", GRAPHS},     {"aclmdlRICaptureEnd", GRAPHS},
                {"aclmdlRIExecuteAsync", GRAPHS},       {"aclmdlRIDestroy", GRAPHS},
                {"aclrtQueryDeviceStatus", HEALTH}};
enum { N_OPTIONAL = sizeof optional / sizeof optional[0] };

START_TEST(a_paragraph_without_a_function_says_which_and_the_others_work) {
  open_without(optional[_i].function);
  check_paragraphs(optional[_i].lacking, optional[_i].function);
  if (strcmp(optional[_i].function, "aclrtCreateStreamWithConfig") != 0)
    ck_contains(npu_control.log(), "stream of priority 7");
}
END_TEST

START_TEST(there_are_no_pools_and_no_seed) {
  npu_open();
  ck_assert(!npu->allocate_async && !npu->release_async && !npu->trim_pool && !npu->pool_usage && !npu->seed);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- threads */

static char *use_all(bench *b, bool *done) {
  void *event = NULL, *graph = NULL;
  STEP(npu->create_event(NULL, b->device, true, &event));
  STEP(npu->begin_capture(NULL, b->device, b->streams[0]));
  STEP(copy(b, b->memory[0], b->host[0], FL_COPY_TO_DEVICE, 0));
  STEP(npu->end_capture(NULL, b->device, b->streams[0], &graph));
  STEP(npu->launch_graph(NULL, b->device, graph, b->streams[0]));
  STEP(npu->record_event(NULL, b->device, event, b->streams[0]));
  STEP(npu->wait_event(NULL, b->device, event, b->streams[1]));
  STEP(copy(b, b->host[1], b->memory[0], FL_COPY_TO_HOST, 1));
  STEP(npu->synchronize(NULL, b->device, b->streams[1], false));
  STEP(npu->synchronize_event(NULL, b->device, event));
  STEP(npu->is_event_done(NULL, b->device, event, done));
  STEP(npu->health(NULL, b->device));
  STEP(npu->destroy_graph(NULL, b->device, graph));
  STEP(npu->destroy_event(NULL, b->device, event));
  return *done && b->host[1][SIZE - 1] == 'a' ? NULL : strdup("not done, or something else was copied");
}

static char *try_all(int32_t device) {
  bench b = {.device = device};
  bool done = false;
  char *wrong = make_all(&b);
  wrong = wrong ? wrong : use_all(&b, &done);
  return wrong ? wrong : free_all(&b);
}

START_TEST(the_threads_device_stays_as_it_was) {
  npu_open();
  ck_assert_int_eq(npu->device_count(NULL), 2);
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", 1), 0);
  char *wrong = try_all(0);
  ck_assert_msg(!wrong, "%s", wrong);
  ck_assert_int_eq(npu_thread_device(), 1);
  double us;
  void *event = NULL;
  OK(npu->create_event(NULL, 0, false, &event));
  FAILS(npu->elapsed(NULL, 0, event, event, &us), FL_EDEVICE, "not made for times");
  OK(npu->destroy_event(NULL, 0, event));
  ck_assert_int_eq(npu_thread_device(), 1);
}
END_TEST

static void *use_all_often(void *argument) {
  char *wrong = NULL;
  for (uintptr_t i = 0; i < ROUNDS && !wrong; i++)
    wrong = try_all((int32_t)(((uintptr_t)argument + i) % 2));
  return wrong;
}

START_TEST(any_thread_may_call) {
  pthread_t threads[THREADS];
  npu_open();
  for (uintptr_t i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, use_all_often, (void *)i), 0);
  for (int i = 0; i < THREADS; i++) {
    void *wrong;
    pthread_join(threads[i], &wrong);
    ck_assert_msg(!wrong, "%s", (char *)wrong);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, streams_do_not_wait_for_each_other);
  tcase_add_loop_test(tests, a_priority_that_the_device_has_not_becomes_the_nearest, 0, 4);
  tcase_add_test(tests, a_stream_that_is_destroyed_does_its_work_first);
  tcase_add_test(tests, a_stream_whose_work_failed_is_gone_and_tells_it);
  tcase_add_test(tests, a_stream_waits_for_the_event_of_another);
  tcase_add_loop_test(tests, an_event_that_was_not_recorded_is_done_and_nobody_waits_for_it, 0, 2);
  tcase_add_test(tests, an_event_is_done_when_what_is_before_it_is);
  tcase_add_test(tests, to_wait_for_an_event_leaves_what_is_behind_it);
  tcase_add_test(tests, a_stream_that_is_destroyed_gives_its_memory_back);
  tcase_add_test(tests, two_timed_events_tell_how_long_it_took);
  tcase_add_test(tests, events_without_times_have_none);
  tcase_add_test(tests, pinned_memory_is_aligned_and_may_have_no_bytes);
  tcase_add_test(tests, copies_with_pinned_memory_do_not_wait);
  tcase_add_test(tests, copies_with_other_memory_are_done_in_the_streams_turn);
  tcase_add_test(tests, health_is_the_runtimes_word_and_makes_no_context);
  tcase_add_loop_test(tests, a_device_that_a_call_found_lost_stays_lost, 0, 7);
  tcase_add_loop_test(tests, a_device_is_lost_that_cannot_be_set_or_asked, 0, 2);
  tcase_add_loop_test(tests, each_call_of_the_runtime_may_fail, 0, N_ATTEMPTS);
  tcase_add_test(tests, what_cannot_be_given_back_is_told);
  tcase_add_test(tests, a_device_that_cannot_be_set_fails_every_call);
  tcase_add_loop_test(tests, a_paragraph_without_a_function_says_which_and_the_others_work, 0, N_OPTIONAL);
  tcase_add_test(tests, there_are_no_pools_and_no_seed);
  tcase_add_test(tests, the_threads_device_stays_as_it_was);
  tcase_add_test(tests, any_thread_may_call);
}

int main(void) {
  return run_suite("ascend_work", add_tests, 60);
}
