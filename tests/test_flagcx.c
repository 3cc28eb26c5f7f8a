/*
 * The communicator flagcx on stand-ins for the driver and the library: every collective between threads that are ranks,
 * each with a device of its own, streams that the library wants wrapped, and libraries that will not do.
 */
#include "tests/device_ranks.h"
#include "tests/gpu.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <unistd.h>

#define ROOT    "tests/drivers/flagcx"
#define LIBRARY ROOT "/lib/libflagcx.so"
#define IN_ENVIRONMENT(path)                                                                                           \
  (const char *const[]) {                                                                                              \
    "VLLM_FL_LOG_LEVEL=DEBUG", path, NULL                                                                              \
  }

static const gpu_setup *const gpu = &gpu_setups[0];

/* A host with the platform and the communicator on devices of the stand-in; FLAGCX_PATH is `root`, NULL: not set. */
static void start_at(const char *root) {
  char setting[2 * PATH_MAX + 16], plugin[PATH_MAX];
  snprintf(setting, sizeof setting, "FLAGCX_PATH=%s", root ? root : "");
  stand_in_open(gpu->driver);
  stand_in_set("devices=5");
  setenv(gpu->setting, stand_in_path(), 1);
  ranks_host = test_host(IN_ENVIRONMENT(root ? setting : NULL), 0);
  snprintf(plugin, sizeof plugin, "tests/drivers/plugins/%s", gpu->plugin);
  ck_ok(fl_load_plugin(ranks_host, built(plugin)));
  ck_ok(fl_load_plugin(ranks_host, built("plugins/flagcx.so")));
}

static void start(void) {
  library_open(LIBRARY);
  start_at(built(ROOT));
}

static void tear_down(void) {
  fl_host_destroy(ranks_host);
  ranks_host = NULL;
}

static const char *reason(void) {
  return communicator_reason("flagcx");
}

static void as_ranks(int32_t ranks, rank_body body) {
  as_device_ranks("flagcx", kDLCUDA, ranks, body);
}

static int streams(void) {
  int (*living)(void);
  library_find("flhost_stand_in_flagcx_streams", &living);
  return living();
}

/* ---------------------------------------------------------------------------------------------------- collectives */

static void all_collectives(fl_host *of, fl_group *group) {
  ck_assert_int_eq(fl_group_device(group).device_type, kDLCUDA);
  ck_assert_int_eq(fl_group_device(group).device_id, fl_group_rank(group) + 1);
  check_collectives(of, group, is_sparse() ? 2 : 4);
}

/* What FlagCX has itself is asked of it, and not made of sends and receives. */
START_TEST(every_collective_is_right) {
  static const int own[] = {ALL_REDUCES, GATHERS, SCATTERS, ALL_TO_ALLS, ALL_TO_ALL_VS};
  start();
  as_ranks(_i + 1, all_collectives);
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    ck_assert_int_gt(library_calls(own[i]), 0);
  ck_assert_int_eq(streams(), 0);
}
END_TEST

/* The host makes up float8 and truth values, a barrier and splits: all else is the library's. */
START_TEST(what_is_native_is_in_the_list) {
  fl_communicators *list;
  start();
  ck_ok(fl_get_communicators(ranks_host, &list));
  const fl_communicator_info *info = find_communicator(list, "flagcx");
  ck_assert_msg(info->available && info->chosen, "%s", info->reason);
  ck_assert_uint_eq(info->native, (1u << FL_BARRIER) - 1);
  ck_assert_uint_eq(info->reductions, (1u << FL_REDUCTIONS) - 1);
  ck_assert(info->batches && !info->splits);
  ck_assert_int_eq(info->priority, FL_PRIORITY_DEFAULT);
  fl_communicators_free(list);
}
END_TEST

/* Each stream is wrapped once in a rank, and all are freed when it leaves. */
static void on_streams(fl_host *of, fl_group *group) {
  DLDevice device = fl_group_device(group);
  float *from = numbers(group, 64, 2), *x = numbers(group, 64, 1);
  for (uintptr_t i = 0; i < 6; i++) {
    void *stream = i % 3 ? (void *)(0x100 + 0x10 * (i % 3) + (uintptr_t)fl_group_rank(group)) : NULL;
    ck_ok(fl_device_copy(of, device, x, from, 64 * sizeof *x, FL_COPY_ON_DEVICE, stream));
    ck_ok(fl_all_reduce(group, x, x, 64, float32, FL_REDUCE_SUM, stream));
    ck_ok(fl_device_synchronize(of, device, stream, false));
    ck_assert_float_eq(number(group, x, 63), 4);
  }
  ck_ok(fl_barrier(group, NULL));
  ck_assert_int_eq(streams(), 2 * 3);
  ck_ok(fl_barrier(group, NULL));
  give_back(group, from);
  give_back(group, x);
}

START_TEST(a_stream_is_wrapped_once) {
  start();
  stand_in_set("devices=5 delay=1");
  as_ranks(2, on_streams);
  ck_assert_int_eq(streams(), 0);
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
  start();
  as_ranks(4, in_two_parts);
}
END_TEST

/* FlagOS's own goes first where the policy says so, which it does unless it is told otherwise. */
START_TEST(the_policy_chooses_between_it_and_nccl) {
  static const char *const chosen[] = {"flagcx", "nccl", "nccl"};
  char root[2 * PATH_MAX + 16];
  const char *const environments[][4] = {{"VLLM_FL_LOG_LEVEL=DEBUG", root, NULL},
                                         {"VLLM_FL_PREFER=vendor", root, NULL},
                                         {"VLLM_FL_COMMUNICATOR=nccl", root, NULL}};
  fl_group_id id;
  snprintf(root, sizeof root, "FLAGCX_PATH=%s", built(ROOT));
  stand_in_open(gpu->driver);
  setenv(gpu->setting, stand_in_path(), 1);
  setenv("VLLM_NCCL_SO_PATH", built("tests/drivers/libnccl.so.2"), 1);
  ranks_host = test_host(environments[_i], 0);
  ck_ok(fl_load_plugin(ranks_host, built("plugins/nccl.so")));
  ck_ok(fl_load_plugin(ranks_host, built("plugins/flagcx.so")));
  ck_ok(fl_group_make_id(ranks_host, kDLCUDA, &id));
  ck_assert_str_eq(id.communicator, chosen[_i]);
}
END_TEST

/* ----------------------------------------------------------------------------------------------- what goes wrong */

static void nothing(fl_host *of, fl_group *group) {
  (void)of;
  (void)group;
  ck_abort_msg("the group was not to come together");
}

START_TEST(two_ranks_on_one_device_are_refused) {
  worker workers[2];
  start();
  run_device_ranks(workers, "flagcx", kDLCUDA, 2, 1, 0, nothing);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(workers[i].joined, FL_ESTATE);
    ck_contains(workers[i].words,
                "by communicator 'flagcx': flagcxCommInitRank: invalid usage (flagcxInvalidUsage, 5)");
  }
}
END_TEST

START_TEST(an_id_that_the_library_cannot_make_is_an_error) {
  fl_group_id id;
  start();
  library_set("id", 2);
  ck_assert_int_eq(fl_group_make_id(ranks_host, kDLCUDA, &id), FL_EDEVICE);
  ck_contains(fl_error_message(), "flagcxGetUniqueId: system error (flagcxSystemError, 2)");
}
END_TEST

static void refused(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  (void)of;
  ck_assert_int_eq(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL), FL_EDEVICE);
  ck_contains(fl_error_message(), "all_reduce of group 'tp', rank 0 of 1, by communicator 'flagcx': flagcxAllReduce: "
                                  "unhandled error of the library below it (flagcxUnhandledCCLError, 8)");
  ck_assert_int_eq(fl_all_gather(group, x, x, 1, float32, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "is broken");
  give_back(group, x);
}

START_TEST(what_a_collective_meets_breaks_the_group) {
  start();
  library_set("run", 8);
  as_ranks(1, refused);
  ck_assert_int_eq(streams(), 0);
}
END_TEST

static void unknown_result(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  (void)of;
  ck_assert_int_eq(fl_broadcast(group, x, x, 4, float32, 0, NULL), FL_EINTERNAL);
  ck_contains(fl_error_message(), "flagcxBroadcast: a result that is not in its header (77)");
  give_back(group, x);
}

START_TEST(a_result_of_a_later_library_is_an_error) {
  start();
  library_set("run", 77);
  as_ranks(1, unknown_result);
}
END_TEST

/* Between several vendors' devices the library does not know what happened on streams. */
static void async_error(fl_host *of, fl_group *group) {
  (void)of;
  ck_ok(fl_group_state(group));
  library_set("async", 9);
  ck_ok(fl_group_state(group));
  library_set("async", 6);
  ck_assert_int_eq(fl_group_state(group), FL_EDEVICE);
  ck_contains(fl_error_message(), "work that was queued before: remote process exited, or the network failed "
                                  "(flagcxRemoteError, 6)");
}

START_TEST(what_happens_on_streams_is_in_the_groups_state) {
  start();
  as_ranks(1, async_error);
}
END_TEST

static void *abort_soon(void *group) {
  usleep(100000);
  ck_ok(fl_group_abort(group));
  return NULL;
}

/* Rank 0 waits for a message of rank 1, which does not send it. */
static void aborted(fl_host *of, fl_group *group) {
  pthread_t thread;
  float *x = numbers(group, 4, 1);
  (void)of;
  if (fl_group_rank(group)) {
    ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, group), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(fl_send(group, x, 4, float32, 0, NULL), FL_ESTATE);
    ck_contains(fl_error_message(), "was aborted");
  } else {
    ck_assert_int_eq(fl_recv(group, x, 4, float32, 1, NULL), FL_EDEVICE);
    ck_contains(fl_error_message(), "flagcxRecv: remote process exited");
  }
  give_back(group, x);
}

START_TEST(an_abort_ends_waiting) {
  start();
  as_ranks(2, aborted);
  ck_assert_int_eq(streams(), 0);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- the library */

static bool is_installed(const char *test) {
  void *real = dlopen("libflagcx.so", RTLD_LAZY | RTLD_LOCAL);
  if (real)
    printf("skip: %s: this machine has libflagcx.so\n", test);
  return real && !dlclose(real);
}

START_TEST(without_the_library_the_reason_names_what_was_tried) {
  if (is_installed("without_the_library_the_reason_names_what_was_tried"))
    return;
  start_at(NULL);
  ck_contains(reason(), "FlagCX is not there. FLAGCX_PATH is not set: by the loader: libflagcx.so: cannot open");
}
END_TEST

START_TEST(a_path_that_leads_nowhere_is_said) {
  if (is_installed("a_path_that_leads_nowhere_is_said"))
    return;
  start_at("/nonexistent/FlagCX");
  ck_contains(reason(), "FlagCX is not there. FLAGCX_PATH: /nonexistent/FlagCX/lib/libflagcx.so: cannot open");
  ck_contains(reason(), "/nonexistent/FlagCX/build/lib/libflagcx.so: cannot open");
  ck_contains(reason(), "by the loader: libflagcx.so: cannot open");
}
END_TEST

/* None of the older one's functions is called: each would end the process. */
START_TEST(an_older_library_is_refused_by_what_it_has) {
  start_at(built("tests/drivers/flagcx_old"));
  ck_assert_str_eq(reason(), "FlagCX is older than 0.13.0, which is needed: it has flagcxHandleInit and no "
                             "flagcxDeviceHandleInit");
}
END_TEST

START_TEST(an_older_library_is_refused_by_its_version) {
  library_open(LIBRARY);
  library_set("version", 1203);
  start_at(built(ROOT));
  ck_assert_str_eq(reason(), "FlagCX is of version 0.12.3, at least 0.13.0 is needed");
}
END_TEST

START_TEST(a_library_that_lacks_a_function_is_refused) {
  start_at(built("tests/drivers/flagcx_lacks"));
  ck_assert_str_eq(reason(), "FlagCX lacks flagcxAlltoAllv: is it older than 0.13.0?");
}
END_TEST

START_TEST(a_library_for_another_vendors_devices_is_refused) {
  library_open(LIBRARY);
  library_set("vendor", 1);
  start_at(built(ROOT));
  ck_contains(reason(), "FlagCX was built for devices of ASCEND, expected NVIDIA: ");
  ck_contains(reason(), "FlagCX was built for devices of ASCEND, expected NVIDIA: ");
}
END_TEST

START_TEST(a_library_that_gives_no_device_handle_is_refused) {
  library_open(LIBRARY);
  library_set("handle", 3);
  start_at(built(ROOT));
  ck_assert_str_eq(reason(), "FlagCX gives no device handle: flagcxDeviceHandleInit returned 3");
  library_set("handle", 0);
  ck_assert_str_eq(reason(), "");
}
END_TEST

/* As the engine's own binding opens it. */
START_TEST(the_copy_that_the_process_has_is_used) {
  fl_group_id id;
  library_open(LIBRARY);
  start_at(NULL);
  ck_assert_str_eq(reason(), "");
  ck_ok(fl_group_make_id(ranks_host, kDLCUDA, &id));
}
END_TEST

START_TEST(without_a_driver_nothing_is_opened) {
  char setting[2 * PATH_MAX + 16];
  snprintf(setting, sizeof setting, "FLAGCX_PATH=%s", built(ROOT));
  setenv(gpu->setting, "/nonexistent/driver.so", 1);
  ranks_host = test_host(IN_ENVIRONMENT(setting), 0);
  ck_ok(fl_load_plugin(ranks_host, built("plugins/flagcx.so")));
  ck_contains(reason(), "/nonexistent/driver.so: cannot open shared object file");
  ck_assert_ptr_null(dlopen(built(LIBRARY), RTLD_NOW | RTLD_NOLOAD));
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, tear_down);
  tcase_add_loop_test(tests, every_collective_is_right, 0, MOST_RANKS);
  tcase_add_test(tests, what_is_native_is_in_the_list);
  tcase_add_test(tests, a_stream_is_wrapped_once);
  tcase_add_test(tests, a_group_is_split_by_joining_anew);
  tcase_add_loop_test(tests, the_policy_chooses_between_it_and_nccl, 0, 3);
  tcase_add_test(tests, two_ranks_on_one_device_are_refused);
  tcase_add_test(tests, an_id_that_the_library_cannot_make_is_an_error);
  tcase_add_test(tests, what_a_collective_meets_breaks_the_group);
  tcase_add_test(tests, a_result_of_a_later_library_is_an_error);
  tcase_add_test(tests, what_happens_on_streams_is_in_the_groups_state);
  tcase_add_test(tests, an_abort_ends_waiting);
  tcase_add_test(tests, without_the_library_the_reason_names_what_was_tried);
  tcase_add_test(tests, a_path_that_leads_nowhere_is_said);
  tcase_add_test(tests, an_older_library_is_refused_by_what_it_has);
  tcase_add_test(tests, an_older_library_is_refused_by_its_version);
  tcase_add_test(tests, a_library_that_lacks_a_function_is_refused);
  tcase_add_test(tests, a_library_for_another_vendors_devices_is_refused);
  tcase_add_test(tests, a_library_that_gives_no_device_handle_is_refused);
  tcase_add_test(tests, the_copy_that_the_process_has_is_used);
  tcase_add_test(tests, without_a_driver_nothing_is_opened);
}

int main(void) {
  return run_suite("flagcx", add_tests, 60);
}
