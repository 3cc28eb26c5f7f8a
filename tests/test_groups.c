/* Groups of ranks: which communicator they get, collectives made up of what one has, and what goes wrong. */
#include "tests/collectives.h"
#include "tests/device.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static fl_host *host;

/* With the communicators of the tests, and some settings. */
static fl_host *host_with(const char *const *environment) {
  fl_host *made = test_host(environment, 0);
  ck_ok(fl_load_plugin(made, built("tests/plugins/communicators.so")));
  return made;
}

static void start(const char *setting) {
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_LOG_LEVEL=DEBUG", setting, NULL};
  host = host_with(environment);
}

static void tear_down(void) {
  fl_host_destroy(host);
}

static const DLDataType float32 = {kDLFloat, 32, 1}, bytes = {kDLUInt, 8, 1};

/* --------------------------------------------------------------------------------------------------------- choosing */

/* The name of what a group on the processor would get. */
static const char *chosen(void) {
  static fl_group_id id;
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  return id.communicator;
}

START_TEST(G1_the_policys_order_chooses_then_the_priority) {
  start("VLLM_FL_PREFER=flagos");
  ck_assert_str_eq(chosen(), "acme"); /* the defaults are not available, and a vendor comes before references */
  tear_down();
  start("VLLM_FL_PREFER=reference");
  ck_assert_str_eq(chosen(), "bare");
  tear_down();
  start("VLLM_FL_DENY_VENDORS=acme");
  ck_assert_str_eq(chosen(), "bare");
}
END_TEST

START_TEST(G1_a_setting_chooses_and_what_it_does_not_list_is_not_tried) {
  start("VLLM_FL_COMMUNICATOR=absent,no_end,bare");
  ck_assert_str_eq(chosen(), "no_end");
  tear_down();
  start("VLLM_FL_COMMUNICATOR=absent,silent");
  fl_group_id id;
  ck_assert_int_eq(fl_group_make_id(host, kDLCPU, &id), FL_ENOIMPL);
  ck_contains(fl_error_message(), "no communicator for device type cpu is available:");
  ck_contains(fl_error_message(), "absent: the wire is cut");
  ck_contains(fl_error_message(), "silent: it does not say why");
  ck_contains(fl_error_message(), "bare: not listed (communicator: VLLM_FL_COMMUNICATOR)");
}
END_TEST

START_TEST(G1_a_misspelt_setting_is_an_error_with_the_nearest_name) {
  fl_group_id id;
  start("VLLM_FL_COMMUNICATOR=bear");
  ck_assert_int_eq(fl_group_make_id(host, kDLCPU, &id), FL_ENOENT);
  ck_contains(fl_error_message(),
              "the setting communicator (VLLM_FL_COMMUNICATOR) names the communicator 'bear', which "
              "no plugin brings; did you mean 'bare'?");
}
END_TEST

START_TEST(where_no_plugin_brings_one_the_error_says_so) {
  fl_group_id id;
  host = test_host(NULL, 0);
  ck_assert_int_eq(fl_group_make_id(host, kDLCPU, &id), FL_ENOIMPL);
  ck_contains(fl_error_message(), "there is none");
}
END_TEST

static const fl_communicator_info *info_of(const fl_communicators *list, const char *name) {
  for (uint32_t i = 0; i < list->n; i++)
    if (!strcmp(fl_communicator_at(list, i)->name, name))
      return fl_communicator_at(list, i);
  ck_abort_msg("no communicator '%s'", name);
  return NULL;
}

START_TEST(the_list_says_what_is_native_and_why_one_is_not_chosen) {
  fl_communicators *list;
  start("VLLM_FL_DENY_VENDORS=acme");
  ck_ok(fl_get_communicators(host, &list));
  ck_assert_uint_eq(list->n, 10);
  const fl_communicator_info *bare = info_of(list, "bare"), *acme = info_of(list, "acme");
  ck_assert(bare->available && bare->chosen && !bare->batches && !bare->splits);
  ck_assert_str_eq(bare->reason, "");
  ck_assert_str_eq(bare->plugin, "communicators");
  ck_assert_uint_eq(bare->native, 1u << FL_ALL_REDUCE | 1u << FL_BROADCAST | 1u << FL_SEND | 1u << FL_RECV);
  ck_assert_uint_eq(bare->reductions, 1u << FL_REDUCE_SUM);
  ck_assert(!acme->available && !acme->chosen);
  ck_assert_int_eq(acme->priority, FL_PRIORITY_VENDOR);
  ck_contains(acme->reason, "vendor 'acme' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)");
  ck_assert_str_eq(info_of(list, "absent")->reason, "the wire is cut");
  ck_assert_str_eq(info_of(list, "no_end")->reason, "'bare' comes before it");
  ck_assert(info_of(list, "bare_device")->chosen); /* of its device type */
  fl_communicators_free(list);
}
END_TEST

START_TEST(a_plugin_of_communicators_is_loaded_when_one_is_looked_for) {
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", NULL};
  const fl_host_options options = {.size = sizeof options,
                                   .environment = environment,
                                   .config_dir = "/nonexistent",
                                   .plugin_path = "/nonexistent",
                                   .plugin_modules = built("tests/plugins/communicators.so"),
                                   .log = test_log_capture,
                                   .log_user = &test_log};
  fl_plugins *plugins;
  ck_ok(fl_host_create(&options, &host));
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_uint_eq(plugins->n, 1);
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "deferred");
  ck_contains(fl_plugin_at(plugins, 0)->reason, "until ranks come together: bare,acme");
  fl_plugins_free(plugins);
  ck_assert_str_eq(chosen(), "acme");
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "loaded");
  fl_plugins_free(plugins);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ collectives */

static const int32_t numbers_of_ranks[] = {2, 1, 3, 7, 4};
enum { NUMBERS = sizeof numbers_of_ranks / sizeof *numbers_of_ranks };

/* More ranks than there are processors take turns, which takes its time. */
static void all_of_them(fl_host *own, fl_group *group) {
  check_collectives(own, group, is_sparse() ? 1 : sample() > 1 || fl_group_ranks(group) > 2 ? 3 : 5);
}

/* `bare` has four of fourteen, one type and one reduction. */
START_TEST(G2_what_a_communicator_lacks_is_made_up_of_what_it_has) {
  start("VLLM_FL_COMMUNICATOR=bare");
  ranks_as_threads(host, numbers_of_ranks[_i], all_of_them);
}
END_TEST

/* `choosy` lists products and then refuses each: so does a vendor's library with some of its element types. */
START_TEST(G2_what_a_communicator_refuses_is_made_up_too) {
  start("VLLM_FL_COMMUNICATOR=choosy");
  ranks_as_threads(host, 3, all_of_them);
}
END_TEST

/* Of 7 ranks: 0, 2, 4, 6 in falling order, and 1, 3 in rising order; 5 is in none. */
static void split_in_two(fl_host *own, fl_group *group) {
  const fl_group_options options = {.size = sizeof options, .name = "ep"};
  int32_t rank = fl_group_rank(group), color = rank == 5 ? -1 : rank % 2;
  fl_group *part = NULL;
  float sum = (float)rank;
  ck_ok(fl_group_split(group, color, color ? rank : -rank, &options, &part));
  if (color < 0) {
    ck_assert_ptr_null(part);
    return;
  }
  ck_assert_str_eq(fl_group_name(part), "ep");
  ck_assert_int_eq(fl_group_ranks(part), color ? 2 : 4);
  ck_assert_int_eq(fl_group_rank(part), color ? rank / 2 : 3 - rank / 2);
  ck_ok(fl_all_reduce(part, &sum, &sum, 1, float32, FL_REDUCE_SUM, NULL));
  ck_assert_float_eq(sum, color ? 4.0f : 12.0f);
  check_collectives(own, part, 1);
  fl_group_destroy(part);
}

static fl_host *host_with_shm(void) {
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", NULL};
  fl_host *made = test_host(environment, 0);
  ck_ok(fl_load_plugin(made, built("plugins/shm.so")));
  return made;
}

START_TEST(threads_share_memory) {
  host = host_with_shm();
  ck_assert_str_eq(chosen(), "shm");
  ranks_as_threads(host, numbers_of_ranks[_i], all_of_them);
}
END_TEST

START_TEST(processes_share_memory) {
  host = NULL;
  ranks_as_processes(host_with_shm, numbers_of_ranks[_i], all_of_them);
}
END_TEST

START_TEST(groups_on_shared_memory_are_split_too) {
  host = host_with_shm();
  ranks_as_threads(host, 7, split_in_two);
}
END_TEST

START_TEST(the_group_knows_its_names_and_numbers) {
  fl_group_id id;
  fl_group *group;
  start("VLLM_FL_COMMUNICATOR=bare");
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  ck_ok(fl_group_create(host, &id, 0, 1, NULL, &group));
  ck_assert_str_eq(fl_group_name(group), "world");
  ck_assert_str_eq(fl_group_communicator(group), "bare");
  ck_assert_int_eq(fl_group_rank(group), 0);
  ck_assert_int_eq(fl_group_ranks(group), 1);
  ck_assert_int_eq(fl_group_device(group).device_type, kDLCPU);
  ck_ok(fl_group_state(group));
  ck_assert_int_eq(fl_group_abort(group), FL_ENOTSUP);
  ck_contains(fl_error_message(), "communicator 'bare' cannot be aborted");
  fl_group_destroy(group);
  fl_group_destroy(NULL);
}
END_TEST

START_TEST(a_group_is_split_by_color_and_key) {
  start("VLLM_FL_COMMUNICATOR=bare");
  ranks_as_threads(host, 7, split_in_two);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- mistakes */

static fl_group *alone(const char *setting) {
  fl_group_id id;
  fl_group *group;
  start(setting);
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  ck_ok(fl_group_create(host, &id, 0, 1, NULL, &group));
  return group;
}

START_TEST(G4_a_wrong_collective_is_refused_with_what_was_expected) {
  static float x[64];
  static int64_t minus[] = {-1}, none[] = {0};
  char *odd = (char *)x + 2;
  const struct {
    fl_collective c;
    const char *words;
  } wrong[] = {
      {{.kind = 14}, "kind is 14, expected one of FL_ALL_REDUCE to FL_BARRIER"},
      {{.kind = -1}, "kind is -1"},
      {{.kind = FL_ALL_REDUCE, .dtype = {kDLFloat, 32, 4}}, "all_reduce: dtype is {2, 32, 4}, expected one of float32"},
      {{.kind = FL_ALL_REDUCE, .dtype = float32, .reduction = 5}, "reduction is 5, expected one of FL_REDUCE_SUM"},
      {{.kind = FL_ALL_REDUCE, .dtype = {FL_DTYPE_BOOL, 8, 1}, .reduction = FL_REDUCE_AVG},
       "truth values have no mean"},
      {{.kind = FL_ALL_REDUCE, .dtype = float32, .count = -3}, "count is -3, expected 0 or more"},
      {{.kind = FL_ALL_REDUCE, .dtype = float32, .count = INT64_MAX}, "no more than memory can hold"},
      {{.kind = FL_ALL_REDUCE, .dtype = float32, .count = 3, .recv = x},
       "send is NULL, expected 3 elements of float32"},
      {{.kind = FL_ALL_REDUCE, .dtype = float32, .count = 3, .send = x}, "recv is NULL"},
      {{.kind = FL_ALL_REDUCE, .dtype = float32, .count = 3, .send = odd, .recv = x}, "send is not aligned"},
      {{.kind = FL_ALL_REDUCE, .dtype = float32, .count = 3, .send = x, .recv = x + 2}, "otherwise than in place"},
      {{.kind = FL_ALL_TO_ALL, .dtype = float32, .count = 3, .send = x, .recv = x}, "expected buffers apart"},
      {{.kind = FL_BROADCAST, .dtype = float32, .root = 1}, "root is 1, expected a rank, 0 to 0"},
      {{.kind = FL_SEND, .dtype = float32, .root = -1}, "root is -1"},
      {{.kind = FL_ALL_GATHER_V, .dtype = float32}, "recv_counts is NULL, expected an element for each rank"},
      {{.kind = FL_ALL_GATHER_V, .dtype = float32, .recv_counts = minus, .recv_offsets = none}, "recv_counts[0] is -1"},
      {{.kind = FL_ALL_TO_ALL_V, .dtype = float32, .recv_counts = none, .recv_offsets = none}, "send_counts is NULL"},
  };
  fl_group *group = alone("VLLM_FL_COMMUNICATOR=bare");
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    fl_collective c = wrong[i].c;
    c.size = sizeof c;
    ck_assert_int_eq(fl_collective_run(group, &c), FL_EINVAL);
    ck_contains(fl_error_message(), wrong[i].words);
    fl_collective two[] = {fl_collective_of(FL_BARRIER, NULL, NULL, 0, bytes, NULL), c};
    ck_assert_int_eq(fl_collective_run_batch(group, two, 2, sizeof c), FL_EINVAL);
  }
  ck_contains(fl_error_message(), "collective 1 of the batch, all_to_all_v:");
  fl_collective none_said = {0};
  ck_assert_int_eq(fl_collective_run(group, &none_said), FL_EINVAL);
  ck_contains(fl_error_message(), "the collective's size is 0 bytes");
  ck_ok(fl_barrier(group, NULL)); /* nothing of it is held against the group */
  fl_group_destroy(group);
}
END_TEST

START_TEST(a_group_that_makes_no_sense_is_refused) {
  fl_group_id id, nonsense;
  fl_group *group;
  start("VLLM_FL_COMMUNICATOR=bare");
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  const struct {
    int32_t rank, ranks;
    const char *words;
  } wrong[] = {{0, 0, "rank 0 of 0"}, {-1, 2, "rank -1 of 2"}, {2, 2, "rank 2 of 2"}, {0, 17, "takes 16 at most"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    ck_assert_int_eq(fl_group_create(host, &id, wrong[i].rank, wrong[i].ranks, NULL, &group), FL_EINVAL);
    ck_contains(fl_error_message(), wrong[i].words);
  }
  memset(&nonsense, 'x', sizeof nonsense);
  ck_assert_int_eq(fl_group_create(host, &nonsense, 0, 1, NULL, &group), FL_EINVAL);
  ck_contains(fl_error_message(), "names no communicator");
  strcpy(nonsense.communicator, "bar");
  ck_assert_int_eq(fl_group_create(host, &nonsense, 0, 1, NULL, &group), FL_ENOENT);
  ck_contains(fl_error_message(), "the group's id names the communicator 'bar', which no plugin brings; did you mean");
  strcpy(nonsense.communicator, "bare");
  ck_assert_int_eq(fl_group_create(host, &nonsense, 0, 1, NULL, &group), FL_EINVAL);
  ck_contains(fl_error_message(), "joining of group 'world', rank 0 of 1, by communicator 'bare': nobody made that id");
  strcpy(nonsense.communicator, "absent");
  ck_assert_int_eq(fl_group_create(host, &nonsense, 0, 1, NULL, &group), FL_ENOIMPL);
  ck_contains(fl_error_message(), "cannot be used here: not listed");
  const fl_group_options options = {.size = sizeof options, .timeout = -1};
  ck_assert_int_eq(fl_group_create(host, &id, 0, 1, &options, &group), FL_EINVAL);
  ck_contains(fl_error_message(), "timeout is -1");
}
END_TEST

START_TEST(what_a_communicator_returns_and_says_is_not_believed) {
  static float x[13];
  fl_group *group = alone("VLLM_FL_COMMUNICATOR=odd_status");
  ck_ok(fl_all_reduce(group, x, x, 12, float32, FL_REDUCE_SUM, NULL));
  ck_assert_int_eq(fl_all_reduce(group, x, x, 13, float32, FL_REDUCE_SUM, NULL), FL_EINTERNAL);
  ck_contains(fl_error_message(), "all_reduce of group 'world', rank 0 of 1, by communicator 'odd_status': the wire is "
                                  "\\x1b[31mred");
  ck_assert_int_eq(fl_all_reduce(group, x, x, 12, float32, FL_REDUCE_SUM, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "group 'world' is broken: all_reduce of group 'world'");
  ck_assert_int_eq(fl_group_state(group), FL_ESTATE);
  fl_group_destroy(group);
  tear_down();
  group = alone("VLLM_FL_COMMUNICATOR=no_end");
  ck_assert_int_eq(fl_all_reduce(group, x, x, 13, float32, FL_REDUCE_SUM, NULL), FL_EDEVICE);
  ck_contains(fl_error_message(), ": xxxx");
  fl_group_destroy(group);
}
END_TEST

/* The last of three never comes to the collective: it ends by a signal, or waits until the others have given up. */
static void without_the_last(fl_group *group, bool dies) {
  float x = 1;
  if (fl_group_rank(group) == 2) {
    if (dies)
      kill(getpid(), SIGKILL);
    while (fl_group_state(group) == FL_OK)
      usleep(10000);
    return;
  }
  ck_assert_int_eq(fl_all_reduce(group, &x, &x, 1, float32, FL_REDUCE_SUM, NULL), FL_EDEVICE);
  ck_contains(fl_error_message(), "all_reduce of group 'tp'");
  ck_contains(fl_error_message(), "rank 2");
  ck_assert_int_eq(fl_barrier(group, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "group 'tp' is broken: all_reduce of group 'tp'");
}

static void be_one_of_three(const fl_group_id *id, int32_t rank, bool dies, double timeout) {
  const fl_group_options options = {.size = sizeof options, .name = "tp", .timeout = timeout};
  fl_host *own = host_with_shm();
  fl_group *group;
  ck_ok(fl_group_create(own, id, rank, 3, &options, &group));
  without_the_last(group, dies);
  fl_group_destroy(group);
  fl_host_destroy(own);
}

/* How many were killed. */
static int run_three(bool dies, double timeout) {
  fl_group_id id;
  int killed = 0;
  host = host_with_shm();
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  for (int32_t rank = 0; rank < 3; rank++)
    if (!fork()) {
      be_one_of_three(&id, rank, dies, timeout);
      _exit(0);
    }
  for (int32_t rank = 0; rank < 3; rank++) {
    int status = 0;
    ck_assert_int_gt(wait(&status), 0);
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    ck_assert(WIFSIGNALED(status) || !WEXITSTATUS(status));
  }
  return killed;
}

START_TEST(G4_a_rank_that_is_killed_is_named) {
  ck_assert_int_eq(run_three(true, 100), 1);
}
END_TEST

START_TEST(G4_a_rank_that_does_not_come_is_named) {
  ck_assert_int_eq(run_three(false, 2), 0);
}
END_TEST

/* The second of two, which takes longer than the setting says that anybody waits. */
static void *come_late(void *id) {
  float x = 1;
  fl_group *group;
  const fl_group_options options = {.size = sizeof options, .timeout = INFINITY};
  ck_ok(fl_group_create(host, id, 1, 2, &options, &group));
  usleep(600000);
  ck_ok(fl_all_reduce(group, &x, &x, 1, float32, FL_REDUCE_SUM, NULL));
  fl_group_destroy(group);
  return NULL;
}

START_TEST(G4_a_group_may_wait_without_end_whatever_the_setting_says) {
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_COMM_TIMEOUT_S=0.2", NULL};
  float x = 2;
  fl_group_id id;
  fl_group *group;
  pthread_t thread;
  const fl_group_options options = {.size = sizeof options, .timeout = INFINITY};
  host = test_host(environment, 0);
  ck_ok(fl_load_plugin(host, built("plugins/shm.so")));
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  pthread_create(&thread, NULL, come_late, &id);
  ck_ok(fl_group_create(host, &id, 0, 2, &options, &group));
  ck_ok(fl_all_reduce(group, &x, &x, 1, float32, FL_REDUCE_SUM, NULL));
  ck_assert(x == 3);
  pthread_join(thread, NULL);
  fl_group_destroy(group);
}
END_TEST

/* Ranks that would run different implementations. */
static void *join_second(void *of) {
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_PREFER=reference", NULL};
  fl_host *other = host_with(environment);
  fl_group *group;
  fl_group_options options = {.size = sizeof options};
  ck_assert_int_eq(fl_group_create(other, of, 1, 2, &options, &group), FL_ESTATE);
  options.any_manifest = 1;
  ck_ok(fl_group_create(other, of, 1, 2, &options, &group));
  fl_group_destroy(group);
  fl_host_destroy(other);
  return NULL;
}

START_TEST(G3_ranks_whose_manifests_differ_do_not_come_together) {
  fl_group_id id;
  fl_group *group;
  pthread_t thread;
  fl_group_options options = {.size = sizeof options, .name = "tp"};
  start("VLLM_FL_PREFER=flagos");
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  pthread_create(&thread, NULL, join_second, &id);
  ck_assert_int_eq(fl_group_create(host, &id, 0, 2, &options, &group), FL_ESTATE);
  ck_contains(fl_error_message(), "the ranks of group 'tp' would run different implementations: the manifest of rank 0 "
                                  "has the digest ");
  options.any_manifest = 1;
  ck_ok(fl_group_create(host, &id, 0, 2, &options, &group));
  fl_group_destroy(group);
  pthread_join(thread, NULL);
}
END_TEST

/* Each of the two does something else. */
static void do_other_things(fl_host *own, fl_group *group) {
  static float shared[2][8];
  float *x = shared[fl_group_rank(group)];
  bool first = !fl_group_rank(group);
  ck_ok(fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_SUM, NULL));
  ck_assert_int_eq(fl_all_reduce(group, x, x, first ? 4 : 5, float32, FL_REDUCE_SUM, NULL), FL_EINVAL);
  ck_contains(fl_error_message(), "the ranks of group 'tp' are not about to do the same: rank 0 makes all_reduce of 4 "
                                  "float32, sum, its collective number ");
  ck_contains(fl_error_message(), "; rank 1 makes all_reduce of 5 float32, sum, its");
  fl_status status = first ? fl_broadcast(group, x, x, 4, float32, 0, NULL)
                           : fl_all_reduce(group, x, x, 4, float32, FL_REDUCE_MAX, NULL);
  ck_assert_int_eq(status, FL_EINVAL);
  ck_contains(fl_error_message(), "rank 0 makes broadcast of 4 float32, root 0");
  ck_contains(fl_error_message(), "rank 1 makes all_reduce of 4 float32, max");
  const int64_t one[] = {1, 1}, two[] = {2, 2}, offsets[] = {0, 2};
  fl_collective c = fl_collective_of(FL_ALL_TO_ALL_V, x, x + 4, 0, float32, NULL);
  c.send_counts = one;
  c.recv_counts = first ? one : two;
  c.send_offsets = c.recv_offsets = offsets;
  ck_assert_int_eq(fl_collective_run(group, &c), FL_EINVAL);
  ck_contains(fl_error_message(), "all_to_all_v of group 'tp': rank 0 sends 1 elements to rank 1, which expects 2");
  check_collectives(own, group, 1); /* the group is as good as before */
}

START_TEST(ranks_that_do_not_do_the_same_are_told_when_asked_to_compare) {
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", "VLLM_FL_COMMUNICATOR=bare", "VLLM_FL_COMM_CHECK=1", NULL};
  host = host_with(environment);
  ranks_as_threads(host, 2, do_other_things);
}
END_TEST

/* Rank 0 waits in a barrier until rank 1 comes; meanwhile another thread tries to use it. */
typedef struct waiting {
  const fl_group_id *id;
  int32_t rank;
  fl_group *group;
} waiting;

static void *join_as(void *of) {
  waiting *w = of;
  ck_ok(fl_group_create(host, w->id, w->rank, 2, NULL, &w->group));
  return NULL;
}

/* As often as the other thread is in its way. */
static void *meet(void *group) {
  fl_status status;
  while ((status = fl_barrier(group, NULL)) == FL_ESTATE)
    usleep(100);
  ck_ok(status);
  return NULL;
}

START_TEST(two_threads_do_not_use_one_rank_at_once) {
  fl_group_id id;
  pthread_t threads[2];
  fl_status status = FL_OK;
  start("VLLM_FL_COMMUNICATOR=bare");
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  waiting w[] = {{&id, 0, NULL}, {&id, 1, NULL}};
  for (int i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, join_as, &w[i]);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  pthread_create(&threads[0], NULL, meet, w[0].group);
  /* What is sent to nobody returns at once where it is let in. */
  fl_collective unheard = fl_collective_of(FL_SEND, NULL, NULL, 0, float32, NULL);
  while (status != FL_ESTATE && usleep(1000) == 0)
    status = fl_collective_run_batch(w[0].group, &unheard, 1, sizeof unheard);
  ck_contains(fl_error_message(), "rank 0 of group 'world' is used by two threads at once");
  ck_ok(fl_barrier(w[1].group, NULL));
  pthread_join(threads[0], NULL);
  fl_group_destroy(w[0].group);
  fl_group_destroy(w[1].group);
}
END_TEST

START_TEST(a_forked_child_is_refused_with_words) {
  static float x[1];
  fl_group *group = alone("VLLM_FL_COMMUNICATOR=bare");
  pid_t child = fork();
  if (!child) {
    fl_status status = fl_all_reduce(group, x, x, 1, float32, FL_REDUCE_SUM, NULL);
    bool said = strstr(fl_error_message(), "group 'world' is of process ") != NULL;
    bool state = fl_group_state(group) == FL_ESTATE && fl_group_abort(group) == FL_ESTATE;
    if (!is_sparse()) /* what the communicator has of it stays its parent's: valgrind would call it lost */
      fl_group_destroy(group);
    _exit(status == FL_ESTATE && said && state ? 0 : 1);
  }
  int status;
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  ck_ok(fl_all_reduce(group, x, x, 1, float32, FL_REDUCE_SUM, NULL));
  fl_group_destroy(group);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ on a device */

static void on_a_device(fl_group *group) {
  const DLDataType half = {kDLFloat, 16, 1};
  const uint16_t two = 0x4000, three = 0x4200;
  uint16_t values[8], *memory;
  int32_t rank = fl_group_rank(group);
  for (int i = 0; i < 8; i++)
    values[i] = rank ? two : three;
  ck_ok(fl_device_allocate(host, device0, sizeof values, (void **)&memory));
  /* Reduced on the host, as the communicator knows float32 alone; then divided; then moved as bytes. */
  ck_ok(fl_device_copy(host, device0, memory, values, sizeof values, FL_COPY_TO_DEVICE, NULL));
  ck_ok(fl_all_reduce(group, memory, memory, 4, half, FL_REDUCE_AVG, NULL));
  ck_ok(fl_device_copy(host, device0, values, memory, sizeof values, FL_COPY_TO_HOST, NULL));
  for (int i = 0; i < 4; i++)
    ck_assert_uint_eq(values[i], 0x4100); /* 2.5 */
  ck_ok(fl_all_gather(group, memory + 4 * rank, memory, 4, half, NULL));
  ck_ok(fl_device_free(host, device0, memory));
  float *numbers, read[4] = {1, 2, 3, 4};
  ck_ok(fl_device_allocate(host, device0, sizeof read, (void **)&numbers));
  ck_ok(fl_device_copy(host, device0, numbers, read, sizeof read, FL_COPY_TO_DEVICE, NULL));
  ck_ok(fl_all_reduce(group, numbers, numbers, 4, float32, FL_REDUCE_AVG, NULL));
  ck_ok(fl_reduce_scatter(group, numbers, numbers + 2 * rank, 2, float32, FL_REDUCE_SUM, NULL));
  ck_ok(fl_device_copy(host, device0, read, numbers, sizeof read, FL_COPY_TO_HOST, NULL));
  ck_assert_float_eq(read[2 * rank], (float)(2 * (2 * rank + 1)));
  ck_ok(fl_barrier(group, NULL));
  ck_ok(fl_device_free(host, device0, numbers));
}

typedef struct device_rank {
  const fl_group_id *id;
  int32_t rank;
} device_rank;

static void *be_device_rank(void *of) {
  const device_rank *r = of;
  fl_group *group;
  ck_ok(fl_group_create(host, r->id, r->rank, 2, NULL, &group));
  ck_assert_int_eq(fl_group_device(group).device_type, kDLExtDev);
  on_a_device(group);
  fl_group_destroy(group);
  return NULL;
}

/* With a communicator between the test's devices. */
static fl_host *host_of_devices(const char *const *environment) {
  fl_host *made = device_host(environment, 0);
  ck_ok(fl_load_plugin(made, built("tests/plugins/communicators.so")));
  void *communicators = dlopen(built("tests/plugins/communicators.so"), RTLD_NOW | RTLD_NOLOAD);
  void *device = dlopen(built("tests/plugins/device.so"), RTLD_NOW | RTLD_NOLOAD);
  ck_assert(communicators && device);
  *(void **)dlsym(communicators, "test_open_device") = dlsym(device, "test_device_open");
  return made;
}

START_TEST(G2_on_a_device_what_is_made_up_goes_by_the_host_where_it_must) {
  const char *const environment[] = {"VLLM_FL_COMMUNICATOR=bare_device", NULL};
  fl_group_id id;
  host = host_of_devices(environment);
  ck_ok(fl_group_make_id(host, kDLExtDev, &id));
  pthread_t threads[2];
  device_rank ranks[2] = {{&id, 0}, {&id, 1}};
  for (int i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, be_device_rank, &ranks[i]);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  ck_assert_uint_eq(test_device->allocations, 0);
}
END_TEST

/* As torchrun would have started it: its host stands for its process. */
typedef struct launched_rank {
  pthread_t thread;
  fl_host *host;
  const fl_group_options *options;
  int32_t device; /* expected */
} launched_rank;

static void *be_launched(void *of) {
  const launched_rank *r = of;
  fl_group *group;
  ck_ok(fl_group_create_launched(r->host, kDLExtDev, r->options, &group));
  ck_assert_int_eq(fl_group_device(group).device_id, r->device);
  fl_group_destroy(group);
  return NULL;
}

static fl_host *launched_host(int rank, int local) {
  char rank_is[16], local_is[32], file[PATH_MAX + 32];
  const char *const environment[] = {"VLLM_FL_COMMUNICATOR=bare_device", "WORLD_SIZE=2", rank_is, local_is, file, NULL};
  snprintf(rank_is, sizeof rank_is, "RANK=%d", rank);
  snprintf(local_is, sizeof local_is, "LOCAL_RANK=%d", local);
  snprintf(file, sizeof file, "FLHOST_GROUP_FILE=%s/id", scratch);
  return host_of_devices(environment);
}

/* There are two devices. On one machine; on two, with a rank each; and where the engine says another. */
START_TEST(a_rank_that_was_launched_has_the_device_of_its_number_on_the_machine) {
  static const fl_group_options others[] = {{.size = sizeof others[0], .device = 1}, {.size = sizeof others[0]}};
  static const struct {
    int local[2], device[2];
    const fl_group_options *options[2];
  } rows[] = {
      {{0, 1}, {0, 1}, {NULL, NULL}}, {{0, 0}, {0, 0}, {NULL, NULL}}, {{0, 1}, {1, 0}, {&others[0], &others[1]}}};
  host = NULL;
  scratch_make();
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    launched_rank ranks[2];
    for (int r = 0; r < 2; r++)
      ranks[r] = (launched_rank){
          .host = launched_host(r, rows[i].local[r]), .options = rows[i].options[r], .device = rows[i].device[r]};
    for (int r = 0; r < 2; r++)
      pthread_create(&ranks[r].thread, NULL, be_launched, &ranks[r]);
    for (int r = 0; r < 2; r++)
      pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < 2; r++)
      fl_host_destroy(ranks[r].host);
  }
  scratch_remove();
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, tear_down);
  tcase_add_test(tests, G1_the_policys_order_chooses_then_the_priority);
  tcase_add_test(tests, G1_a_setting_chooses_and_what_it_does_not_list_is_not_tried);
  tcase_add_test(tests, G1_a_misspelt_setting_is_an_error_with_the_nearest_name);
  tcase_add_test(tests, where_no_plugin_brings_one_the_error_says_so);
  tcase_add_test(tests, the_list_says_what_is_native_and_why_one_is_not_chosen);
  tcase_add_test(tests, a_plugin_of_communicators_is_loaded_when_one_is_looked_for);
  tcase_add_loop_test(tests, G2_what_a_communicator_lacks_is_made_up_of_what_it_has, 0, loop_cases(NUMBERS));
  tcase_add_test(tests, G2_what_a_communicator_refuses_is_made_up_too);
  tcase_add_loop_test(tests, threads_share_memory, 0, loop_cases(NUMBERS));
  tcase_add_loop_test(tests, processes_share_memory, 0, loop_cases(NUMBERS));
  tcase_add_test(tests, groups_on_shared_memory_are_split_too);
  tcase_add_test(tests, the_group_knows_its_names_and_numbers);
  tcase_add_test(tests, a_group_is_split_by_color_and_key);
  tcase_add_test(tests, G4_a_wrong_collective_is_refused_with_what_was_expected);
  tcase_add_test(tests, a_group_that_makes_no_sense_is_refused);
  tcase_add_test(tests, what_a_communicator_returns_and_says_is_not_believed);
  tcase_add_test(tests, G4_a_rank_that_is_killed_is_named);
  tcase_add_test(tests, G4_a_rank_that_does_not_come_is_named);
  tcase_add_test(tests, G4_a_group_may_wait_without_end_whatever_the_setting_says);
  tcase_add_test(tests, G3_ranks_whose_manifests_differ_do_not_come_together);
  tcase_add_test(tests, ranks_that_do_not_do_the_same_are_told_when_asked_to_compare);
  tcase_add_test(tests, two_threads_do_not_use_one_rank_at_once);
  tcase_add_test(tests, a_forked_child_is_refused_with_words);
  tcase_add_test(tests, a_rank_that_was_launched_has_the_device_of_its_number_on_the_machine);
  tcase_add_test(tests, G2_on_a_device_what_is_made_up_goes_by_the_host_where_it_must);
}

int main(void) {
  return run_suite("groups", add_tests, 120);
}
