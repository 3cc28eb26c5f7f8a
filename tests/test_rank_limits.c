/*
 * What the time limit does where collectives are a library's and wait in streams: a rank that does not come, to joining
 * or to a collective, is an error of the others within it, also where they wait for a stream. On stand-ins for drivers
 * and libraries.
 */
#include "tests/device_ranks.h"
#include "tests/gpu.h"
#include "tests/scratch.h"
#include "tests/tasks.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A communicator over its library: a new NCCL comes back at once and is asked, the others wait in the call. */
typedef struct setup {
  const char *name, *title, *library;
  const gpu_setup *gpu;
  bool waits;
} setup;

static const setup setups[] = {
    {"nccl", "NCCL", "tests/drivers/libnccl.so.2", &gpu_setups[0], false},
    {"flagcx", "FlagCX", "tests/drivers/flagcx/lib/libflagcx.so", &gpu_setups[0], true},
    {"rccl", "RCCL", "tests/drivers/librccl.so.1", &gpu_setups[2], false},
    {"nccl", "NCCL", "tests/drivers/libnccl_old.so", &gpu_setups[0], true},
};
enum { ONE_OF_EACH = 2, SETUPS = 4 };

static const setup *in_use;
static double limit;
/* Far more than the limit, far less than the suite's patience. */
enum { SOON_S = 20 };

static void start(int which) {
  char root[PATH_MAX + 32], plugin[PATH_MAX];
  const char *const environment[] = {"VLLM_FL_LOG_LEVEL=DEBUG", root, NULL};
  in_use = &setups[which];
  snprintf(root, sizeof root, "FLAGCX_PATH=%s", built("tests/drivers/flagcx"));
  stand_in_open(in_use->gpu->driver);
  stand_in_set("devices=5");
  setenv(in_use->gpu->setting, stand_in_path(), 1);
  setenv("VLLM_NCCL_SO_PATH", built(in_use->library), 1);
  library_open(in_use->library);
  ranks_host = test_host(environment, 0);
  snprintf(plugin, sizeof plugin, "tests/drivers/plugins/%s", in_use->gpu->plugin);
  ck_ok(fl_load_plugin(ranks_host, built(plugin)));
  snprintf(plugin, sizeof plugin, "plugins/%s.so", in_use->name);
  ck_ok(fl_load_plugin(ranks_host, built(plugin)));
  ranks_timeout = limit = sample() > 1 ? 1 : 0.25; /* slow machines come to joining within it, too */
}

/* Collectives wait in their streams from now on, which go on where somebody waits for them. */
static void queue(void) {
  stand_in_set("devices=5 delay=1");
  library_set("queue", 1);
}

static void tear_down(void) {
  fl_host_destroy(ranks_host);
  ranks_host = NULL;
}

static void as_ranks(int32_t ranks, rank_body body) {
  as_device_ranks(in_use->name, in_use->gpu->device_type, ranks, body);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *const watchdog = "flhost ranks";

/* What the present error says of a collective that came to no end. */
static void says_late(const char *what, const char *collective) {
  char words[256];
  snprintf(words, sizeof words,
           "%s of group 'tp', rank 0 of 2, by communicator '%s': %s, number 1 of this rank's, was not done after %g "
           "seconds: another rank has not come to it, has ended or hangs; %s does not say which",
           what, in_use->name, collective, limit, in_use->title);
  ck_contains(fl_error_message(), words);
}

/* ---------------------------------------------------------------------------------------------------------- joining */

/* A library that waits in the call is left there, by three ranks for good. */
START_TEST(G4_a_rank_that_does_not_join_is_an_error_within_the_limit) {
  start(_i);
  join_without_others(in_use->title, in_use->gpu->device_type, _i == 3 ? 3 : 2, limit, in_use->waits);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ collectives */

/* Rank 0 does it; the other one is in the group, and comes to nothing. */
static rank_body body_of_first;
static atomic_bool first_is_done;

static void absent_but_for_one(fl_host *of, fl_group *group) {
  if (!fl_group_rank(group)) {
    body_of_first(of, group);
    atomic_store(&first_is_done, true);
  }
  while (!atomic_load(&first_is_done))
    usleep(1000);
}

static void alone_in_two(rank_body body) {
  body_of_first = body;
  as_ranks(2, absent_but_for_one);
  check_threads(watchdog, 0);
}

static void in_the_call(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  double begun = now();
  (void)of;
  const fl_collective item = {.size = sizeof item, .kind = FL_RECV, .recv = x, .count = 4, .dtype = float32, .root = 1};
  ck_assert_int_eq(in_use->waits ? fl_collective_run_batch(group, &item, 1, sizeof item)
                                 : fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL),
                   FL_EDEVICE);
  ck_assert(now() - begun >= limit && now() - begun < SOON_S);
  says_late(in_use->waits ? "batch" : "all_reduce", in_use->waits ? "batch" : "all_reduce");
  ck_assert_int_eq(fl_send(group, x, 4, float32, 1, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "group 'tp' is broken: ");
  give_back(group, x);
}

START_TEST(G4_a_rank_that_does_not_come_to_a_collective_is_an_error_of_the_call) {
  start(_i);
  alone_in_two(in_the_call);
}
END_TEST

/* By the state, or by the next call where nobody asks for it. Of more than are kept in mind the oldest is named. */
static bool asks_for_state;

static void in_the_stream(fl_host *of, fl_group *group) {
  DLDevice device = fl_group_device(group);
  void *stream = (void *)0x100;
  float *x = numbers(group, 4, 1);
  queue();
  for (int i = 0; i < 200; i++)
    ck_ok(fl_broadcast(group, x, x, 4, float32, 1, stream));
  ck_ok(fl_group_state(group));
  double begun = now();
  ck_ok(fl_device_synchronize(of, device, stream, false));
  ck_assert(now() - begun < SOON_S);
  ck_assert_int_eq(asks_for_state ? fl_group_state(group) : fl_recv(group, x, 4, float32, 1, NULL), FL_EDEVICE);
  says_late(asks_for_state ? "work" : "recv", "broadcast");
  ck_assert_int_eq(fl_barrier(group, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "group 'tp' is broken: ");
  give_back(group, x);
}

START_TEST(G4_a_stream_that_waits_for_a_rank_goes_on_within_the_limit) {
  start(_i);
  asks_for_state = _i < ONE_OF_EACH;
  alone_in_two(in_the_stream);
}
END_TEST

static void and_leaves(fl_host *of, fl_group *group) {
  (void)of;
  float *x = numbers(group, 4, 1);
  queue();
  ck_ok(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL));
  give_back(group, x);
}

/* What rank 0 left in its stream nobody comes to: its leaving, behind the body, ends all the same. */
START_TEST(a_rank_leaves_within_the_limit_whatever_its_stream_waits_for) {
  worker workers[2];
  start(_i);
  double begun = now();
  run_device_ranks(workers, in_use->name, in_use->gpu->device_type, 2, 1, 1, and_leaves);
  ck_assert(now() - begun < SOON_S);
}
END_TEST

/* Ones that are done are no reason, however many there are and however long ago they were. */
static void many_that_are_done(fl_host *of, fl_group *group) {
  float *x = numbers(group, 4, 1);
  for (int round = 0; round < 2; round++) {
    queue();
    for (int i = 0; i < 150; i++)
      ck_ok(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL));
    ck_ok(fl_device_synchronize(of, fl_group_device(group), NULL, false));
    if (!round)
      usleep((useconds_t)(1.2e6 * limit));
    ck_ok(fl_group_state(group));
  }
  ck_assert_float_eq(number(group, x, 3), 1);
  give_back(group, x);
}

START_TEST(collectives_that_are_done_have_no_limit) {
  start(_i);
  as_ranks(1, many_that_are_done);
}
END_TEST

/* Digests that did not arrive are no digests: the group's making fails by what happened. */
static void *make_group(void *of) {
  worker *w = of;
  const fl_group_options options = {.size = sizeof options,
                                    .name = "tp",
                                    .device = w->device,
                                    .timeout = limit,
                                    .any_manifest = (uint64_t)(w->rank != 0)};
  fl_group *group = NULL;
  w->joined = fl_group_create(ranks_host, w->id, w->rank, 2, &options, &group);
  snprintf(w->words, sizeof w->words, "%s", fl_error_message());
  if (!w->rank)
    atomic_store(&first_is_done, true);
  while (!atomic_load(&first_is_done))
    usleep(1000);
  fl_group_destroy(group);
  return NULL;
}

START_TEST(a_rank_that_does_not_come_to_the_comparison_of_manifests_is_said) {
  worker workers[2];
  fl_group_id id;
  start(_i);
  queue();
  ck_ok(fl_group_make_id(ranks_host, in_use->gpu->device_type, &id));
  for (int i = 0; i < 2; i++) {
    workers[i] = (worker){.id = &id, .rank = i, .device = 1 + i};
    ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, make_group, &workers[i]), 0);
  }
  for (int i = 0; i < 2; i++)
    pthread_join(workers[i].thread, NULL);
  ck_assert_int_eq(workers[0].joined, FL_EDEVICE);
  ck_contains(workers[0].words, "all_gather, number 1 of this rank's, was not done after ");
  ck_ok(workers[1].joined);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- watchdog */

static fl_status join_alone(double timeout, fl_group **group) {
  const fl_group_options options = {
      .size = sizeof options, .name = "tp", .device = 1, .timeout = timeout, .any_manifest = 1};
  fl_group_id id;
  ck_ok(fl_group_make_id(ranks_host, in_use->gpu->device_type, &id));
  return fl_group_create(ranks_host, &id, 0, 1, &options, group);
}

static pthread_barrier_t all_here;

static void watched(fl_host *of, fl_group *group) {
  (void)of;
  (void)group;
  pthread_barrier_wait(&all_here);
  check_threads(watchdog, isinf(ranks_timeout) ? 0 : 1);
  pthread_barrier_wait(&all_here);
}

/* With a limit there is one thread for all ranks, without one there is none, and in the end there is none. */
START_TEST(there_is_a_watchdog_as_long_as_there_are_ranks_with_a_limit) {
  start(_i);
  ck_assert_int_eq(pthread_barrier_init(&all_here, NULL, 3), 0);
  for (int round = 0; round < 4; round++) {
    ranks_timeout = round % 2 ? (double)INFINITY : limit;
    as_ranks(3, watched);
    check_threads(watchdog, 0);
  }
}
END_TEST

/* What a graph will do has no event behind it: recording one would make that a part of the graph. Nor has anything
 * where the driver has none: the calls that wait have the limit then, and streams none. */
START_TEST(what_has_no_event_has_no_limit) {
  fl_group *groups[2];
  float *x[2];
  start(_i);
  ck_ok(join_alone(limit, &groups[0]));
  stand_in_set("devices=5 fail.create_event=2");
  ck_ok(join_alone(limit, &groups[1]));
  for (int i = 0; i < 2; i++)
    x[i] = numbers(groups[i], 4, 1);
  library_set("queue", 1);
  stand_in_clear();
  for (int i = 0; i < 2; i++)
    ck_ok(fl_all_reduce(groups[i], x[i], x[i], 4, float32, FL_REDUCE_SUM, NULL));
  stand_in_set("devices=5 capturing=1");
  ck_ok(fl_all_reduce(groups[0], x[0], x[0], 4, float32, FL_REDUCE_SUM, NULL));
  stand_in_set("devices=5");
  usleep((useconds_t)(1.2e6 * limit));
  for (int i = 0; i < 2; i++) {
    ck_ok(fl_group_state(groups[i]));
    give_back(groups[i], x[i]);
    fl_group_destroy(groups[i]); /* and with the last the watchdog, which writes to the log */
  }
  ck_assert_int_eq(stand_in_lines("record stream"), 1);
}
END_TEST

/* The child has no watchdog of its parent's, and gets one with a group of its own; the parent keeps its. */
START_TEST(a_child_has_a_watchdog_of_its_own) {
  fl_group *group, *own;
  int status;
  if (is_sparse()) {
    printf("skip: a_child_has_a_watchdog_of_its_own: not beside threads that take turns\n");
    return;
  }
  start(_i);
  ck_ok(join_alone(limit, &group));
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    check_threads(watchdog, 0);
    ck_assert_int_eq(fl_group_state(group), FL_ESTATE);
    fl_group_destroy(group);
    ck_ok(join_alone(limit, &own));
    check_threads(watchdog, 1);
    fl_group_destroy(own);
    check_threads(watchdog, 0);
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  check_threads(watchdog, 1);
  ck_ok(fl_group_state(group));
  fl_group_destroy(group);
  check_threads(watchdog, 0);
}
END_TEST

/* Under tools that are slow one of each kind does. */
static void add_tests(TCase *tests) {
  int setups_in_use = is_sparse() ? ONE_OF_EACH : SETUPS;
  tcase_add_checked_fixture(tests, NULL, tear_down);
  tcase_add_loop_test(tests, G4_a_rank_that_does_not_join_is_an_error_within_the_limit, 0, setups_in_use);
  tcase_add_loop_test(tests, G4_a_rank_that_does_not_come_to_a_collective_is_an_error_of_the_call, 0, setups_in_use);
  tcase_add_loop_test(tests, G4_a_stream_that_waits_for_a_rank_goes_on_within_the_limit, 0, setups_in_use);
  tcase_add_loop_test(tests, a_rank_leaves_within_the_limit_whatever_its_stream_waits_for, 0, ONE_OF_EACH);
  tcase_add_loop_test(tests, collectives_that_are_done_have_no_limit, 0, ONE_OF_EACH);
  tcase_add_loop_test(tests, a_rank_that_does_not_come_to_the_comparison_of_manifests_is_said, 0, 1);
  tcase_add_loop_test(tests, there_is_a_watchdog_as_long_as_there_are_ranks_with_a_limit, 0, ONE_OF_EACH);
  tcase_add_loop_test(tests, what_has_no_event_has_no_limit, 0, ONE_OF_EACH);
  tcase_add_loop_test(tests, a_child_has_a_watchdog_of_its_own, 0, ONE_OF_EACH);
}

int main(void) {
  return run_suite("rank_limits", add_tests, 60);
}
