/*
 * The communicator hccl on stand-ins for the ACL runtime and the library: every collective between threads that are
 * ranks, each with a device of its own; the default stream, which the library does not take; and what goes wrong.
 */
#include "tests/device_ranks.h"
#include "tests/kernels.h"
#include "tests/npu.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <unistd.h>

#define LIBRARY "tests/drivers/hccl/libhccl.so"
#define BARE    "tests/drivers/hccl/libhccl_bare.so"

static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", NULL};

/* A host with the platform on five devices of the stand-in, without the communicator. */
static void start_without(void) {
  setenv("FLHOST_ASCEND_NODE", "/dev/null", 1);
  setenv("ASCEND_HOME_PATH", built("tests/drivers/ascend"), 1);
  npu_open_control(built("tests/drivers/ascend/lib64/libascendcl.so"));
  npu_control.set("devices", "5");
  ranks_host = test_host(environment, 0);
  ck_ok(fl_load_plugin(ranks_host, built("plugins/ascend.so")));
}

static void load(const char *library) {
  if (library)
    setenv("HCCL_SO_PATH", built(library), 1);
  else
    unsetenv("HCCL_SO_PATH");
  ck_ok(fl_load_plugin(ranks_host, built("plugins/hccl.so")));
}

static void start(const char *library) {
  start_without();
  library_open(library);
  load(library);
}

static void tear_down(void) {
  fl_host_destroy(ranks_host);
  ranks_host = NULL;
}

static const char *reason(void) {
  return communicator_reason("hccl");
}

static void as_ranks(int32_t ranks, rank_body body) {
  as_device_ranks("hccl", kDLExtDev, ranks, body);
}

/* Nothing of the device's is left, and no rule of ACL's was broken. */
static void check_clean(void) {
  npu_check_clean();
  ck_assert_int_eq(npu_control.count("streams") + npu_control.count("events"), 0);
  ck_assert_int_eq(library_comms(), 0);
  ck_assert_int_eq(npu_control.count("blocks"), 0);
}

/* A stream of the group's device, which is the thread's from then on. */
static void *make_stream(fl_group *group) {
  void *stream = NULL;
  int (*create)(void **);
  *(void **)&create = dlsym(npu_control.library, "aclrtCreateStream");
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", fl_group_device(group).device_id), 0);
  ck_assert_int_eq(create(&stream), 0);
  return stream;
}

static void end_stream(void *stream) {
  int (*destroy)(void *);
  *(void **)&destroy = dlsym(npu_control.library, "aclrtDestroyStream");
  ck_assert_int_eq(destroy(stream), 0);
}

/* ---------------------------------------------------------------------------------------------------- collectives */

static void all_collectives(fl_host *of, fl_group *group) {
  ck_assert_int_eq(fl_group_device(group).device_type, kDLExtDev);
  ck_assert_int_eq(fl_group_device(group).device_id, fl_group_rank(group) + 1);
  check_collectives(of, group, is_sparse() ? 2 : 4);
}

/* What HCCL has itself is asked of it. */
START_TEST(every_collective_is_right) {
  static const int own[] = {ALL_REDUCES,   BROADCASTS,    SCATTERS,         ALL_TO_ALLS,
                            ALL_TO_ALL_VS, ALL_GATHER_VS, REDUCE_SCATTER_VS};
  start(LIBRARY);
  as_ranks(_i + 1, all_collectives);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    ck_assert_int_gt(library_calls(own[i]), 0);
  if (_i)
    ck_assert_int_gt(library_calls(BATCHES), 0);
  check_clean();
}
END_TEST

START_TEST(what_a_library_lacks_that_came_later_is_made_up) {
  start(BARE);
  as_ranks(3, all_collectives);
  ck_assert_int_gt(library_calls(ALL_REDUCES), 0);
  ck_assert_int_eq(library_calls(SCATTERS) + library_calls(BATCHES), 0);
  check_clean();
}
END_TEST

START_TEST(what_is_native_is_in_the_list) {
  fl_communicators *list;
  start(LIBRARY);
  ck_ok(fl_get_communicators(ranks_host, &list));
  const fl_communicator_info *info = find_communicator(list, "hccl");
  ck_assert_msg(info->available && info->chosen, "%s", info->reason);
  ck_assert_uint_eq(info->native, ((1u << FL_COLLECTIVES) - 1) & ~(1u << FL_REDUCE | 1u << FL_GATHER));
  ck_assert_uint_eq(info->reductions, ((1u << FL_REDUCTIONS) - 1) & ~(1u << FL_REDUCE_AVG));
  ck_assert(info->batches && !info->splits);
  ck_assert_int_eq(info->priority, FL_PRIORITY_VENDOR);
  fl_communicators_free(list);
}
END_TEST

/* Device memory that is still to be written when the collective is called: it comes after that. The root's elements
 * are copied to where the library broadcasts them from. */
static void in_order_of_the_stream(fl_host *of, fl_group *group) {
  DLDevice device = fl_group_device(group);
  void *stream = make_stream(group);
  float *from = numbers(group, 64, 2 + (float)fl_group_rank(group)), *x = numbers(group, 64, 1);
  for (int i = 0; i < 2; i++) {
    void *used = i ? stream : NULL;
    ck_ok(fl_device_copy(of, device, x, from, 64 * sizeof *x, FL_COPY_ON_DEVICE, used));
    ck_ok(fl_all_reduce(group, x, x, 64, float32, FL_REDUCE_SUM, used));
    ck_ok(fl_device_synchronize(of, device, used, false));
    ck_assert_float_eq(number(group, x, 63), 5);
    ck_ok(fl_broadcast(group, fl_group_rank(group) == 1 ? from : NULL, x, 64, float32, 1, used));
    ck_ok(fl_device_synchronize(of, device, used, false));
    ck_assert_float_eq(number(group, x, 63), 3);
  }
  end_stream(stream);
  give_back(group, from);
  give_back(group, x);
}

START_TEST(a_collective_comes_after_what_its_stream_had) {
  start(LIBRARY);
  as_ranks(2, in_order_of_the_stream);
  check_clean();
}
END_TEST

/* bfloat16 has sums in the library and no products; float64 only the host reduces. */
static void not_of_each_type(fl_host *of, fl_group *group) {

  DLDevice device = fl_group_device(group);
  uint16_t *x = (uint16_t *)numbers(group, 1, 0), three[2] = {0x4040, 0x4040}, made[2];
  int before = library_calls(ALL_REDUCES);
  ck_ok(fl_device_copy(of, device, x, three, sizeof three, FL_COPY_TO_DEVICE, NULL));
  ck_ok(fl_all_reduce(group, x, x, 2, bfloat16, FL_REDUCE_PROD, NULL));
  ck_ok(fl_device_copy(of, device, made, x, sizeof made, FL_COPY_TO_HOST, NULL));
  ck_assert_uint_eq(made[1], 0x4110); /* 9 */
  ck_assert_int_eq(library_calls(ALL_REDUCES), before);
  give_back(group, (float *)x);
}

START_TEST(a_product_that_the_library_does_not_know_is_the_hosts) {
  start(LIBRARY);
  as_ranks(2, not_of_each_type);
}
END_TEST

/* A rank's messages to itself are copies; to others they go together, also those of several streams, each after what
 * its stream had. */
static void at_once(fl_host *of, fl_group *group) {
  int32_t rank = fl_group_rank(group), other = !rank;
  void *stream = make_stream(group);
  float *sent = numbers(group, 8, (float)rank + 1), *received = numbers(group, 8, 0), *before = numbers(group, 8, 9);
  for (int i = 0; i < 3; i++) { /* on the stream, on the default one, on both */
    void *first = i == 1 ? NULL : stream, *second = i == 0 ? stream : NULL;
    const fl_collective items[] = {{.size = sizeof *items,
                                    .kind = FL_SEND,
                                    .send = sent,
                                    .count = 2,
                                    .dtype = float32,
                                    .root = other,
                                    .stream = first},
                                   {.size = sizeof *items,
                                    .kind = FL_SEND,
                                    .send = sent,
                                    .count = 1,
                                    .dtype = float32,
                                    .root = rank,
                                    .stream = first},
                                   {.size = sizeof *items,
                                    .kind = FL_RECV,
                                    .recv = received,
                                    .count = 2,
                                    .dtype = float32,
                                    .root = other,
                                    .stream = second},
                                   {.size = sizeof *items,
                                    .kind = FL_RECV,
                                    .recv = received + 4,
                                    .count = 1,
                                    .dtype = float32,
                                    .root = rank,
                                    .stream = second},
                                   {.size = sizeof *items,
                                    .kind = FL_SEND,
                                    .send = sent,
                                    .count = 0,
                                    .dtype = float32,
                                    .root = other,
                                    .stream = first}};
    ck_ok(fl_device_copy(of, fl_group_device(group), received, before, 8 * sizeof *before, FL_COPY_ON_DEVICE, second));
    ck_ok(fl_collective_run_batch(group, items, 5, sizeof *items));
    ck_ok(fl_device_synchronize(of, fl_group_device(group), stream, true));
    ck_assert_float_eq(number(group, received, 1), (float)other + 1);
    ck_assert_float_eq(number(group, received, 4), (float)rank + 1);
  }
  end_stream(stream);
  give_back(group, sent);
  give_back(group, received);
  give_back(group, before);
}

START_TEST(sends_and_receives_go_together) {
  start(LIBRARY);
  as_ranks(2, at_once);
  ck_assert_int_eq(library_calls(BATCHES), 2 * 3);
  check_clean();
}
END_TEST

/* Rank 0 has nothing, gets nothing, or neither: its buffers are NULL, which the library does not take. */
static void nothing_from_or_to_rank_0(fl_host *of, fl_group *group) {
  static const int64_t counts[] = {0, 3}, offsets[] = {0, 0}, none[] = {0, 0};
  bool first = !fl_group_rank(group);
  const int64_t *own = first ? none : counts;
  float *x = numbers(group, 4, 2), *y = numbers(group, 4, 0);
  (void)of;
  fl_collective gather = fl_collective_of(FL_ALL_GATHER_V, first ? NULL : x, y, 0, float32, NULL);
  gather.recv_counts = counts;
  gather.recv_offsets = offsets;
  ck_ok(fl_collective_run(group, &gather));
  ck_assert_float_eq(number(group, y, 2), 2);
  fl_collective scatter = fl_collective_of(FL_REDUCE_SCATTER_V, x, first ? NULL : y, 0, float32, NULL);
  scatter.recv_counts = counts;
  scatter.recv_offsets = offsets;
  scatter.reduction = FL_REDUCE_SUM;
  ck_ok(fl_collective_run(group, &scatter));
  ck_assert_float_eq(number(group, y, 2), first ? 2 : 4);
  fl_collective all = fl_collective_of(FL_ALL_TO_ALL_V, first ? NULL : x, first ? NULL : y, 0, float32, NULL);
  all.send_counts = all.recv_counts = own;
  all.send_offsets = all.recv_offsets = offsets;
  ck_ok(fl_collective_run(group, &all));
  ck_assert_float_eq(number(group, y, 2), 2);
  give_back(group, x);
  give_back(group, y);
}

START_TEST(buffers_of_no_elements_may_be_null) {
  start(LIBRARY);
  as_ranks(2, nothing_from_or_to_rank_0);
  check_clean();
}
END_TEST

static void to_itself(fl_host *of, fl_group *group) {
  float *x = numbers(group, 8, 1);
  const fl_collective items[] = {
      {.size = sizeof *items, .kind = FL_SEND, .send = x, .count = 2, .dtype = float32},
      {.size = sizeof *items, .kind = FL_RECV, .recv = x + 4, .count = 3, .dtype = float32},
  };
  (void)of;
  ck_assert_int_eq(fl_collective_run_batch(group, items, 2, sizeof *items), FL_EINVAL);
  ck_contains(fl_error_message(), "rank 0 sends itself something else than it receives from itself");
  ck_assert_int_eq(fl_collective_run_batch(group, items, 1, sizeof *items), FL_EINVAL);
  give_back(group, x);
}

START_TEST(a_message_to_oneself_that_is_not_received_is_an_error) {
  start(LIBRARY);
  as_ranks(1, to_itself);
}
END_TEST

static void in_two_parts(fl_host *of, fl_group *group) {
  const fl_group_options options = {.size = sizeof options, .name = "half", .any_manifest = 1};
  int32_t rank = fl_group_rank(group);
  fl_group *part;
  (void)of;
  ck_ok(fl_group_split(group, rank % 2, -rank, &options, &part));
  ck_assert_int_eq(fl_group_ranks(part), 2);
  ck_assert_int_eq(fl_group_rank(part), rank < 2);
  float *x = numbers(part, 1, (float)(1 << rank));
  ck_ok(fl_all_reduce(part, x, x, 1, float32, FL_REDUCE_SUM, NULL));
  ck_assert_float_eq(number(part, x, 0), rank % 2 ? 10 : 5);
  give_back(part, x);
  fl_group_destroy(part);
}

START_TEST(a_group_is_split_by_joining_anew) {
  start(LIBRARY);
  as_ranks(4, in_two_parts);
  check_clean();
}
END_TEST

/* ----------------------------------------------------------------------------------------------- what goes wrong */

static void nothing(fl_host *of, fl_group *group) {
  (void)of;
  (void)group;
  ck_abort_msg("the group was not to come together");
}

START_TEST(a_device_that_is_not_there_is_an_error) {
  worker workers[1];
  start(LIBRARY);
  run_device_ranks(workers, "hccl", kDLExtDev, 1, 7, 1, nothing);
  ck_assert_int_eq(workers[0].joined, FL_EINVAL);
  ck_contains(workers[0].words, "there is no Ascend device 7; the driver reports 5");
}
END_TEST

START_TEST(two_ranks_on_one_device_are_refused) {
  worker workers[2];
  start(LIBRARY);
  npu_control.set("words", "EI0004:\n\tthe ranks share a device");
  run_device_ranks(workers, "hccl", kDLExtDev, 2, 1, 0, nothing);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(workers[i].joined, FL_EDEVICE);
    ck_contains(workers[i].words, "by communicator 'hccl': HcclCommInitRootInfo: unavailable (HCCL_E_UNAVAIL, 7): "
                                  "EI0004:  the ranks share a device");
  }
  check_clean();
}
END_TEST

START_TEST(an_id_that_the_library_cannot_make_is_an_error) {
  fl_group_id id;
  start(LIBRARY);
  library_set("id", 19);
  ck_assert_int_eq(fl_group_make_id(ranks_host, kDLExtDev, &id), FL_EDEVICE);
  ck_contains(fl_error_message(), "HcclGetRootInfo: the network failed (HCCL_E_NETWORK, 19)");
}
END_TEST

START_TEST(what_joining_meets_is_an_error) {
  worker workers[1];
  start(LIBRARY);
  library_set("init", 9);
  run_device_ranks(workers, "hccl", kDLExtDev, 1, 0, 1, nothing);
  ck_assert_int_eq(workers[0].joined, FL_EDEVICE);
  ck_contains(workers[0].words, "HcclCommInitRootInfo: waited too long (HCCL_E_TIMEOUT, 9)");
  check_clean();
}
END_TEST

static void refused(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  (void)of;
  ck_assert_int_eq(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL), FL_EDEVICE);
  ck_contains(fl_error_message(), "all_reduce of group 'tp', rank 0 of 1, by communicator 'hccl': HcclAllReduce: "
                                  "the runtime failed (HCCL_E_RUNTIME, 15)");
  ck_assert_int_eq(fl_all_gather(group, x, x, 1, float32, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "is broken");
  give_back(group, x);
}

START_TEST(what_a_collective_meets_breaks_the_group) {
  start(LIBRARY);
  library_set("run", 15);
  as_ranks(1, refused);
  check_clean();
}
END_TEST

static void unknown_result(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  (void)of;
  ck_assert_int_eq(fl_broadcast(group, x, x, 4, float32, 0, NULL), FL_EINTERNAL);
  ck_contains(fl_error_message(), "HcclBroadcast: unknown error (not in its header, 77)");
  give_back(group, x);
}

START_TEST(a_result_of_a_later_library_is_an_error) {
  start(LIBRARY);
  library_set("run", 77);
  as_ranks(1, unknown_result);
}
END_TEST

/* The copy before a broadcast fails, or waiting for the default stream. */
static void runtime_fails(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1), *y = numbers(group, 4, 1);
  (void)of;
  npu_control.set("aclrtMemcpyAsync", "507899");
  ck_assert_int_eq(fl_broadcast(group, x, y, 4, float32, 0, NULL), FL_EDEVICE);
  ck_contains(fl_error_message(), "by communicator 'hccl': aclrtMemcpyAsync returned 507899");
  npu_control.set("aclrtMemcpyAsync", "0");
  give_back(group, x);
  give_back(group, y);
}

START_TEST(what_the_runtime_meets_breaks_the_group) {
  start(LIBRARY);
  as_ranks(1, runtime_fails);
}
END_TEST

static void async_error(fl_host *of, fl_group *group) {
  (void)of;
  ck_ok(fl_group_state(group));
  library_set("async", 21);
  ck_assert_int_eq(fl_group_state(group), FL_EDEVICE);
  ck_contains(fl_error_message(), "work that was queued before: another rank failed (HCCL_E_REMOTE, 21)");
  ck_assert_int_eq(fl_group_abort(group), FL_ENOTSUP);
  ck_contains(fl_error_message(), "communicator 'hccl' cannot be aborted");
}

START_TEST(what_happens_on_streams_is_in_the_groups_state) {
  start(LIBRARY);
  as_ranks(1, async_error);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ time limits */

static double limit;

static void start_limited(void) {
  start(LIBRARY);
  ranks_timeout = limit = sample() > 1 ? 1 : 0.25;
}

START_TEST(G4_a_rank_that_does_not_join_is_an_error_within_the_limit) {
  start_limited();
  join_without_others("HCCL", kDLExtDev, 2, limit, true);
  check_clean();
}
END_TEST

static void says_late(const char *what, const char *collective, int number) {
  char words[256];
  snprintf(
      words, sizeof words,
      "%s of group 'tp', rank 0 of 1, by communicator 'hccl': %s, number %d of this rank's, was not done after %g "
      "seconds: another rank has not come to it, has ended or hangs; HCCL does not say which and cannot end it. It "
      "is left in its stream",
      what, collective, number, limit);
  ck_assert_str_eq(fl_error_message(), words);
}

static bool asks_for_state;

/* By the state, or by the next call where nobody asks for it; of several the first is named, and one that was done
 * within the limit is not. */
static void in_the_stream(fl_host *of, fl_group *group) {
  void *stream = make_stream(group);
  float *x = numbers(group, 4, 1);
  bool asks = asks_for_state;
  ck_ok(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, stream));
  ck_ok(fl_device_synchronize(of, fl_group_device(group), stream, false));
  ck_ok(fl_group_state(group));
  npu_control.set("hung", "1");
  ck_ok(fl_broadcast(group, x, x, 4, float32, 0, stream));
  ck_ok(fl_all_gather(group, x, x, 4, float32, stream));
  ck_ok(fl_group_state(group));
  usleep((useconds_t)(1.2e6 * limit));
  ck_assert_int_eq(asks ? fl_group_state(group) : fl_send(group, x, 4, float32, 0, stream), FL_EDEVICE);
  says_late(asks ? "work" : "send", "broadcast", 2);
  ck_assert_int_eq(fl_barrier(group, stream), FL_ESTATE);
  ck_contains(fl_error_message(), "group 'tp' is broken: ");
}

START_TEST(G4_a_collective_that_its_stream_does_not_come_to_an_end_of_is_named) {
  start_limited();
  asks_for_state = _i;
  as_ranks(1, in_the_stream);
}
END_TEST

/* The host waits for the default stream itself. */
static void on_the_default_stream(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  (void)of;
  npu_control.set("hung", "1");
  ck_assert_int_eq(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL), FL_EDEVICE);
  says_late("all_reduce", "all_reduce", 1);
}

START_TEST(G4_a_call_that_waits_for_the_default_stream_ends_within_the_limit) {
  start_limited();
  as_ranks(1, on_the_default_stream);
}
END_TEST

static void and_leaves(fl_host *of, fl_group *group) {
  void *stream = make_stream(group);
  float *x = numbers(group, 4, 1);
  (void)of;
  npu_control.set("hung", "1");
  ck_ok(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, stream));
}

/* What may still be written to is left to the process: the communicator, and what is the rank's. */
START_TEST(a_rank_leaves_within_the_limit_whatever_its_stream_waits_for) {
  start_limited();
  as_ranks(1, and_leaves);
  ck_assert_int_eq(library_comms(), 1);
  npu_check_clean();
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- the library */

START_TEST(without_the_library_the_reason_names_what_was_tried) {
  start_without();
  load(NULL);
  ck_contains(reason(), "HCCL is not there. HCCL_SO_PATH is not set; by the loader: ");
  ck_contains(reason(), "tests/drivers/ascend/lib64/libhccl.so: cannot open shared object file");
}
END_TEST

START_TEST(a_path_that_leads_nowhere_is_said) {
  start_without();
  setenv("HCCL_SO_PATH", "/nonexistent/libhccl.so", 1);
  ck_ok(fl_load_plugin(ranks_host, built("plugins/hccl.so")));
  ck_contains(reason(), "HCCL_SO_PATH: /nonexistent/libhccl.so: cannot open shared object file");
}
END_TEST

START_TEST(a_library_that_lacks_a_function_is_refused) {
  static const char *const libraries[] = {"tests/drivers/hccl/libhccl_lacks.so", "tests/drivers/hccl/libhccl_empty.so"};
  start_without();
  load(libraries[_i]);
  ck_assert_str_eq(reason(),
                   _i ? "HCCL lacks HcclGetRootInfo: is it too old?" : "HCCL lacks HcclAlltoAllV: is it too old?");
}
END_TEST

/* In a toolkit as set_env.sh names it: collectives in one library, communicators in another. */
START_TEST(the_toolkits_libraries_are_found) {
  char command[8 * PATH_MAX];
  fl_group_id id;
  scratch_make();
  snprintf(command, sizeof command,
           "cd '%s' && mkdir -p home/lib64 && ln -s '%s' home/lib64/libhccl.so && ln -s '%s' home/lib64/libhcomm.so",
           scratch, built(_i ? "tests/drivers/hccl/libhccl_empty.so" : LIBRARY), built(LIBRARY));
  ck_assert_int_eq(system(command), 0);
  start_without();
  setenv("ASCEND_HOME_PATH", in_scratch("home"), 1);
  load(NULL);
  ck_assert_str_eq(reason(), "");
  ck_ok(fl_group_make_id(ranks_host, kDLExtDev, &id));
  ck_assert_str_eq(id.communicator, "hccl");
  scratch_remove();
}
END_TEST

START_TEST(without_a_device_nothing_is_opened) {
  setenv("FLHOST_ASCEND_NODE", "/nonexistent/davinci", 1);
  ranks_host = test_host(environment, 0);
  load(LIBRARY);
  ck_assert_str_eq(reason(), "no device node /nonexistent/davinci");
  ck_assert_ptr_null(dlopen(built(LIBRARY), RTLD_NOW | RTLD_NOLOAD));
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, tear_down);
  tcase_add_loop_test(tests, every_collective_is_right, 0, MOST_RANKS);
  tcase_add_test(tests, what_a_library_lacks_that_came_later_is_made_up);
  tcase_add_test(tests, what_is_native_is_in_the_list);
  tcase_add_test(tests, a_collective_comes_after_what_its_stream_had);
  tcase_add_test(tests, a_product_that_the_library_does_not_know_is_the_hosts);
  tcase_add_test(tests, sends_and_receives_go_together);
  tcase_add_test(tests, buffers_of_no_elements_may_be_null);
  tcase_add_test(tests, a_message_to_oneself_that_is_not_received_is_an_error);
  tcase_add_test(tests, a_group_is_split_by_joining_anew);
  tcase_add_test(tests, a_device_that_is_not_there_is_an_error);
  tcase_add_test(tests, two_ranks_on_one_device_are_refused);
  tcase_add_test(tests, an_id_that_the_library_cannot_make_is_an_error);
  tcase_add_test(tests, what_joining_meets_is_an_error);
  tcase_add_test(tests, what_a_collective_meets_breaks_the_group);
  tcase_add_test(tests, a_result_of_a_later_library_is_an_error);
  tcase_add_test(tests, what_the_runtime_meets_breaks_the_group);
  tcase_add_test(tests, what_happens_on_streams_is_in_the_groups_state);
  tcase_add_test(tests, G4_a_rank_that_does_not_join_is_an_error_within_the_limit);
  tcase_add_loop_test(tests, G4_a_collective_that_its_stream_does_not_come_to_an_end_of_is_named, 0, 2);
  tcase_add_test(tests, G4_a_call_that_waits_for_the_default_stream_ends_within_the_limit);
  tcase_add_test(tests, a_rank_leaves_within_the_limit_whatever_its_stream_waits_for);
  tcase_add_test(tests, without_the_library_the_reason_names_what_was_tried);
  tcase_add_test(tests, a_path_that_leads_nowhere_is_said);
  tcase_add_loop_test(tests, a_library_that_lacks_a_function_is_refused, 0, 2);
  tcase_add_loop_test(tests, the_toolkits_libraries_are_found, 0, 2);
  tcase_add_test(tests, without_a_device_nothing_is_opened);
}

int main(void) {
  return run_suite("hccl", add_tests, 60);
}
