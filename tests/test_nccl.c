/*
 * The communicators nccl and rccl on stand-ins for the driver and the library: every collective between threads that
 * are ranks, each with a device of its own, and what goes wrong: no library, one that is too old, errors, aborts.
 */
#include "tests/device_ranks.h"
#include "tests/gpu.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

/* A plugin, its stand-ins, and the driver that it needs. */
typedef struct setup {
  const char *name, *plugin, *library;
  const gpu_setup *gpu;
} setup;

static const setup nccl = {"nccl", "plugins/nccl.so", "tests/drivers/libnccl.so.2", &gpu_setups[0]};
static const setup nccl_old = {"nccl", "plugins/nccl.so", "tests/drivers/libnccl_old.so", &gpu_setups[0]};
static const setup rccl = {"rccl", "plugins/rccl.so", "tests/drivers/librccl.so.1", &gpu_setups[2]};

static const setup *in_use;

/* -------------------------------------------------------------------------------------------------------- stand-ins */

/* A host with the platform and the communicator, on devices of the stand-in; without the library. */
static void start_without(const setup *s) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  in_use = s;
  stand_in_open(s->gpu->driver);
  stand_in_set("devices=5");
  setenv(s->gpu->setting, stand_in_path(), 1);
  ranks_host = test_host(environment, 0);
  char plugin[512];
  snprintf(plugin, sizeof plugin, "tests/drivers/plugins/%s", s->gpu->plugin);
  ck_ok(fl_load_plugin(ranks_host, built(plugin)));
}

static void load(void) {
  ck_ok(fl_load_plugin(ranks_host, built(in_use->plugin)));
}

static void open_library(void) {
  library_open(in_use->library);
}

static void start(const setup *s) {
  start_without(s);
  setenv("VLLM_NCCL_SO_PATH", built(s->library), 1);
  open_library();
  load();
}

static void tear_down(void) {
  fl_host_destroy(ranks_host);
  ranks_host = NULL;
}

/* ------------------------------------------------------------------------------------------------------------ ranks */

/* Rank i on device first + i * step. */
static void run_ranks(worker *workers, int32_t ranks, int32_t first, int32_t step, rank_body body) {
  run_device_ranks(workers, in_use->name, in_use->gpu->device_type, ranks, first, step, body);
}

static void as_ranks(int32_t ranks, rank_body body) {
  as_device_ranks(in_use->name, in_use->gpu->device_type, ranks, body);
}

/* ------------------------------------------------------------------------------------------------------ collectives */

static void all_collectives(fl_host *of, fl_group *group) {
  ck_assert_int_eq(fl_group_device(group).device_type, in_use->gpu->device_type);
  ck_assert_int_eq(fl_group_device(group).device_id, fl_group_rank(group) + 1);
  check_collectives(of, group, is_sparse() ? 2 : 4);
}

START_TEST(every_collective_is_right_between_devices) {
  start(&nccl);
  as_ranks(_i + 1, all_collectives);
  ck_assert_int_gt(library_calls(ALL_REDUCES), 0);
  ck_assert_int_eq(library_calls(SENDS), library_calls(RECVS));
}
END_TEST

START_TEST(every_collective_is_right_by_rccl) {
  start(&rccl);
  as_ranks(_i + 2, all_collectives);
  ck_assert_int_gt(library_calls(ALL_REDUCES), 0);
}
END_TEST

START_TEST(every_collective_is_right_by_the_oldest_library_that_will_do) {
  start(&nccl_old);
  as_ranks(3, all_collectives);
}
END_TEST

/* The host makes up float8 and truth values, and a barrier: all else is the library's. */
START_TEST(what_is_native_is_in_the_list) {
  fl_communicators *list;
  start(_i ? &rccl : &nccl);
  ck_ok(fl_get_communicators(ranks_host, &list));
  ck_assert_uint_eq(list->n, 1);
  const fl_communicator_info *info = fl_communicator_at(list, 0);
  ck_assert_str_eq(info->name, in_use->name);
  ck_assert_msg(info->available && info->chosen, "%s", info->reason);
  ck_assert_uint_eq(info->native, (1u << FL_BARRIER) - 1);
  ck_assert_uint_eq(info->reductions, (1u << FL_REDUCTIONS) - 1);
  ck_assert(info->batches && info->splits);
  ck_assert_int_eq(info->priority, FL_PRIORITY_VENDOR);
  fl_communicators_free(list);
}
END_TEST

/* Device memory that is still to be written when the collective is called: it comes after that. */
static void in_order_of_the_stream(fl_host *of, fl_group *group) {
  void *stream = (void *)(uintptr_t)(0x100 + fl_group_rank(group));
  DLDevice device = fl_group_device(group);
  float *from = numbers(group, 64, 2), *x = numbers(group, 64, 1);
  ck_ok(fl_device_copy(of, device, x, from, 64 * sizeof *x, FL_COPY_ON_DEVICE, stream));
  ck_ok(fl_all_reduce(group, x, x, 64, float32, FL_REDUCE_SUM, stream));
  ck_ok(fl_device_synchronize(of, device, stream, false));
  ck_assert_float_eq(number(group, x, 63), 4);
  give_back(group, from);
  give_back(group, x);
}

START_TEST(a_collective_comes_after_what_its_stream_had) {
  start(&nccl);
  stand_in_set("devices=5 delay=1");
  as_ranks(2, in_order_of_the_stream);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- splits */

static void in_two_parts(fl_host *of, fl_group *group) {
  const fl_group_options options = {.size = sizeof options, .name = "half", .any_manifest = 1};
  int32_t rank = fl_group_rank(group);
  fl_group *part;
  (void)of;
  ck_ok(fl_group_split(group, rank == 3 ? -1 : rank % 2, -rank, &options, &part));
  ck_assert((rank == 3) == !part);
  if (!part)
    return;
  ck_assert_int_eq(fl_group_ranks(part), rank == 1 ? 1 : 2);
  ck_assert_int_eq(fl_group_rank(part), rank == 0); /* by falling number: 2, 0 */
  ck_assert_int_eq(fl_group_device(part).device_id, rank + 1);
  float *x = numbers(part, 1, (float)(1 << rank));
  ck_ok(fl_all_reduce(part, x, x, 1, float32, FL_REDUCE_SUM, NULL));
  ck_assert_float_eq(number(part, x, 0), rank == 1 ? 2 : 5);
  give_back(part, x);
  fl_group_destroy(part);
}

START_TEST(a_group_is_split_by_the_library_or_by_the_host) {
  start(_i ? &nccl_old : &nccl);
  as_ranks(4, in_two_parts);
  ck_assert_int_eq(library_calls(SPLITS), _i ? 0 : 4);
}
END_TEST

static void to_another_device(fl_host *of, fl_group *group) {
  const fl_group_options options = {.size = sizeof options, .device = fl_group_rank(group) ? 0 : 3, .any_manifest = 1};
  fl_group *part = NULL;
  (void)of;
  fl_status status = fl_group_split(group, fl_group_rank(group), 0, &options, &part);
  ck_assert_int_eq(status, fl_group_rank(group) ? FL_OK : FL_EINVAL);
  if (status)
    ck_contains(fl_error_message(), "a part of a group is on the group's device, 1, expected that or none, not 3");
  fl_group_destroy(part);
}

START_TEST(a_part_stays_on_the_groups_device) {
  start(&nccl);
  as_ranks(2, to_another_device);
}
END_TEST

static void split_in_vain(fl_host *of, fl_group *group) {
  const fl_group_options options = {.size = sizeof options, .any_manifest = 1};
  fl_group *part = NULL;
  (void)of;
  ck_assert_int_eq(fl_group_split(group, 0, 0, &options, &part), FL_EDEVICE);
  ck_contains(fl_error_message(), "ncclCommSplit: unhandled device error (ncclUnhandledCudaError, 1)");
  ck_assert_ptr_null(part);
}

START_TEST(what_the_library_made_in_a_split_that_failed_ends_with_the_group) {
  start(&nccl);
  library_set("split", 1);
  as_ranks(2, split_in_vain);
  ck_assert_int_eq(library_comms(), 0);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- what goes wrong */

static void nothing(fl_host *of, fl_group *group) {
  (void)of;
  (void)group;
  ck_abort_msg("the group was not to come together");
}

START_TEST(two_ranks_on_one_device_are_refused_in_the_librarys_words) {
  worker workers[2];
  start(&nccl);
  run_ranks(workers, 2, 1, 0, nothing);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(workers[i].joined, FL_ESTATE);
    ck_contains(workers[i].words,
                "by communicator 'nccl': ncclCommInitRankConfig: invalid usage (ncclInvalidUsage, 5): "
                "stand-in: two ranks on one device");
  }
}
END_TEST

START_TEST(a_device_that_is_not_there_is_an_error) {
  worker workers[1];
  start(_i ? &rccl : &nccl);
  run_ranks(workers, 1, 7, 1, nothing);
  ck_assert_int_eq(workers[0].joined, FL_EINVAL);
  ck_contains(workers[0].words, "device 7; the driver reports 5");
}
END_TEST

START_TEST(an_id_that_the_library_cannot_make_is_an_error) {
  fl_group_id id;
  start(&nccl);
  library_set("id", 2);
  ck_assert_int_eq(fl_group_make_id(ranks_host, kDLCUDA, &id), FL_EDEVICE);
  ck_contains(fl_error_message(), "ncclGetUniqueId: unhandled system error (ncclSystemError, 2): stand-in: no "
                                  "interface for the bootstrap");
}
END_TEST

static void refused(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  (void)of;
  ck_assert_int_eq(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL), FL_EDEVICE);
  ck_contains(fl_error_message(), "all_reduce of group 'tp', rank 0 of 1, by communicator 'nccl': ncclAllReduce: "
                                  "unhandled device error (ncclUnhandledCudaError, 1)");
  ck_assert_int_eq(fl_all_gather(group, x, x, 1, float32, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "is broken");
  give_back(group, x);
}

START_TEST(what_a_collective_meets_breaks_the_group) {
  start(&nccl);
  library_set("run", 1);
  as_ranks(1, refused);
}
END_TEST

static void async_error(fl_host *of, fl_group *group) {
  (void)of;
  ck_ok(fl_group_state(group));
  library_set("async", 7); /* in progress */
  ck_ok(fl_group_state(group));
  library_set("async", 6);
  ck_assert_int_eq(fl_group_state(group), FL_EDEVICE);
  ck_contains(fl_error_message(), "work that was queued before: remote process exited (ncclRemoteError, 6)");
}

START_TEST(what_happens_on_streams_is_in_the_groups_state) {
  start(&nccl);
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
    ck_contains(fl_error_message(), "ncclRecv: remote process exited (ncclRemoteError, 6)");
  }
  give_back(group, x);
}

START_TEST(an_abort_ends_waiting) {
  start(&nccl);
  as_ranks(2, aborted);
}
END_TEST

/* A thread waits in a collective while another aborts it. */
static void aborted_by_itself(fl_host *of, fl_group *group) {
  pthread_t thread;
  float *x = numbers(group, 4, 1);
  (void)of;
  if (!fl_group_rank(group)) {
    ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, group), 0);
    ck_assert_int_ne(fl_recv(group, x, 4, float32, 1, NULL), FL_OK);
    pthread_join(thread, NULL);
  }
  give_back(group, x);
}

START_TEST(a_rank_that_waits_is_aborted_by_another_thread) {
  start(&nccl);
  as_ranks(2, aborted_by_itself);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ the library */

static const char *reason(void) {
  return communicator_reason(in_use->name);
}

/* Does the machine have the real one, where the loader looks? */
static bool is_installed(const setup *s) {
  void *real = dlopen(strrchr(s->library, '/') + 1, RTLD_LAZY | RTLD_LOCAL);
  return real && !dlclose(real);
}

START_TEST(without_the_library_the_reason_names_what_was_tried) {
  start_without(_i ? &rccl : &nccl);
  unsetenv("VLLM_NCCL_SO_PATH");
  if (is_installed(in_use)) {
    printf("skip: without_the_library_the_reason_names_what_was_tried: this machine has %s\n", in_use->name);
    return;
  }
  load();
  const char *words = reason();
  ck_contains(words, _i ? "RCCL is not there. VLLM_NCCL_SO_PATH is not set; the process has no librccl.so.1 mapped;"
                        : "NCCL is not there. VLLM_NCCL_SO_PATH is not set; the process has no libnccl.so.2 mapped;");
  ck_contains(words, "beside torch: the process has no libtorch; by the loader: ");
  ck_contains(words, "cannot open shared object file");
}
END_TEST

START_TEST(a_path_that_leads_nowhere_is_said) {
  start_without(&nccl);
  setenv("VLLM_NCCL_SO_PATH", "/nonexistent/libnccl.so.2", 1);
  load();
  ck_contains(reason(), "VLLM_NCCL_SO_PATH: /nonexistent/libnccl.so.2: cannot open shared object file");
}
END_TEST

START_TEST(another_library_in_its_place_is_found_out) {
  start_without(&nccl);
  setenv("VLLM_NCCL_SO_PATH", stand_in_path(), 1);
  load();
  ck_assert_str_eq(reason(), "NCCL lacks ncclGetVersion: is it too old?");
}
END_TEST

START_TEST(a_library_that_is_too_old_is_not_used) {
  start_without(&nccl);
  setenv("VLLM_NCCL_SO_PATH", built(in_use->library), 1);
  open_library();
  library_set("version", 2804);
  load();
  ck_assert_str_eq(reason(), "NCCL is of version 2.8.4, at least 2.10.0 is needed");
}
END_TEST

/* torch's copy is found by name once it is mapped, wherever it lies, also after the plugin was loaded. */
START_TEST(the_copy_that_the_process_has_is_used) {
  start_without(_i ? &rccl : &nccl);
  unsetenv("VLLM_NCCL_SO_PATH");
  if (is_installed(in_use)) {
    open_library();
    load();
  } else {
    load();
    ck_assert_str_ne(reason(), "");
    open_library();
  }
  ck_assert_str_eq(reason(), "");
  as_ranks(2, all_collectives);
  ck_assert_int_gt(library_calls(ALL_REDUCES), 0);
}
END_TEST

/* It has the functions and a version that will do, and makes ids without a device. */
START_TEST(the_real_library_is_opened_where_there_is_one) {
  fl_group_id id;
  start_without(_i ? &rccl : &nccl);
  unsetenv("VLLM_NCCL_SO_PATH");
  if (!is_installed(in_use)) {
    printf("skip: the_real_library_is_opened_where_there_is_one: this machine has no %s\n", in_use->name);
    return;
  }
  load();
  ck_assert_str_eq(reason(), "");
  if (fl_group_make_id(ranks_host, in_use->gpu->device_type, &id))
    ck_contains(fl_error_message(), "ncclGetUniqueId: "); /* a machine without a network */
  else
    ck_assert_str_eq(id.communicator, in_use->name);
}
END_TEST

/* As pip installs them: torch/lib, and nvidia/nccl/lib beside torch. */
START_TEST(a_wheel_beside_the_processs_torch_is_found) {
  char command[6 * PATH_MAX];
  start_without(&nccl);
  unsetenv("VLLM_NCCL_SO_PATH");
  scratch_make();
  snprintf(command, sizeof command,
           "cd '%s' && mkdir -p torch/lib nvidia/nccl/lib && cp '%s' nvidia/nccl/lib/libnccl.so.2 && cp '%s' "
           "torch/lib/libtorch_cuda.so",
           scratch, built(in_use->library), built("plugins/rccl.so"));
  ck_assert_int_eq(system(command), 0);
  ck_assert_ptr_nonnull(dlopen(in_scratch("torch/lib/libtorch_cuda.so"), RTLD_NOW | RTLD_LOCAL));
  load();
  ck_assert_str_eq(reason(), "");
  fl_group_id id;
  ck_ok(fl_group_make_id(ranks_host, kDLCUDA, &id));
  ck_assert_ptr_nonnull(dlopen(in_scratch("nvidia/nccl/lib/libnccl.so.2"), RTLD_NOW | RTLD_NOLOAD));
  scratch_remove();
}
END_TEST

START_TEST(without_a_driver_nothing_is_opened) {
  static const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  in_use = _i ? &rccl : &nccl;
  unsetenv(in_use->gpu->setting);
  setenv(in_use->gpu->setting, "/nonexistent/driver.so", 1);
  setenv("VLLM_NCCL_SO_PATH", built(in_use->library), 1);
  ranks_host = test_host(environment, 0);
  load();
  ck_contains(reason(), "/nonexistent/driver.so: cannot open shared object file");
  ck_assert_ptr_null(dlopen(built(in_use->library), RTLD_NOW | RTLD_NOLOAD));
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, tear_down);
  tcase_add_loop_test(tests, every_collective_is_right_between_devices, 0, MOST_RANKS);
  tcase_add_loop_test(tests, every_collective_is_right_by_rccl, 0, 1);
  tcase_add_test(tests, every_collective_is_right_by_the_oldest_library_that_will_do);
  tcase_add_loop_test(tests, what_is_native_is_in_the_list, 0, 2);
  tcase_add_test(tests, a_collective_comes_after_what_its_stream_had);
  tcase_add_loop_test(tests, a_group_is_split_by_the_library_or_by_the_host, 0, 2);
  tcase_add_test(tests, a_part_stays_on_the_groups_device);
  tcase_add_test(tests, what_the_library_made_in_a_split_that_failed_ends_with_the_group);
  tcase_add_test(tests, two_ranks_on_one_device_are_refused_in_the_librarys_words);
  tcase_add_loop_test(tests, a_device_that_is_not_there_is_an_error, 0, 2);
  tcase_add_test(tests, an_id_that_the_library_cannot_make_is_an_error);
  tcase_add_test(tests, what_a_collective_meets_breaks_the_group);
  tcase_add_test(tests, what_happens_on_streams_is_in_the_groups_state);
  tcase_add_test(tests, an_abort_ends_waiting);
  tcase_add_test(tests, a_rank_that_waits_is_aborted_by_another_thread);
  tcase_add_loop_test(tests, without_the_library_the_reason_names_what_was_tried, 0, 2);
  tcase_add_test(tests, a_path_that_leads_nowhere_is_said);
  tcase_add_test(tests, another_library_in_its_place_is_found_out);
  tcase_add_test(tests, a_library_that_is_too_old_is_not_used);
  tcase_add_loop_test(tests, the_copy_that_the_process_has_is_used, 0, 2);
  tcase_add_loop_test(tests, the_real_library_is_opened_where_there_is_one, 0, 2);
  tcase_add_test(tests, a_wheel_beside_the_processs_torch_is_found);
  tcase_add_loop_test(tests, without_a_driver_nothing_is_opened, 0, 2);
}

int main(void) {
  return run_suite("nccl", add_tests, 60);
}
