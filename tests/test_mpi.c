/*
 * The communicator mpi: ranks that mpirun starts, each this program again with the name of what it is to do and the
 * directory of the test. What a rank finds wrong is in what it prints, which the test shows.
 */
#include "tests/collectives.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>

static const DLDataType float32 = {kDLFloat, 32, 1};

/* Another time limit than this is a test of it. */
enum { PATIENCE = 100 };

static fl_host *host;

/* TEST_ENDLESS: without a limit of time, so that MPI's own collectives are used. */
static void host_with_mpi(const char *setting) {
  const char *const environment[] = {"VLLM_FL_PLATFORM=cpu", setting,
                                     getenv("TEST_ENDLESS") ? "VLLM_FL_COMM_TIMEOUT_S=0" : NULL, NULL};
  host = test_host(environment, 0);
  ck_ok(fl_load_plugin(host, built("plugins/mpi.so")));
}

static void host_end(void) {
  if (host)
    fl_host_destroy(host);
  host = NULL;
}

/* --------------------------------------------------------------------------------------------------- in a rank */

static const char *directory;
static int me, world;

/* A file that ranks see, by name and number. */
static const char *shared(const char *name, int number) {
  static char paths[4][PATH_MAX];
  static int turn;
  char *path = paths[turn++ % 4];
  snprintf(path, PATH_MAX, "%s/%s-%d", directory, name, number);
  return path;
}

static void put(const char *path, const void *bytes, size_t size) {
  char unfinished[PATH_MAX + 16];
  snprintf(unfinished, sizeof unfinished, "%s.new", path);
  FILE *file = fopen(unfinished, "w");
  ck_assert(file && fwrite(bytes, 1, size, file) == size && !fclose(file));
  ck_assert_int_eq(rename(unfinished, path), 0);
}

/* Once it is there. */
static void get(const char *path, void *bytes, size_t size) {
  for (int i = 0; i < PATIENCE * 100 && access(path, R_OK); i++)
    usleep(10000);
  FILE *file = fopen(path, "r");
  ck_assert_msg(file && fread(bytes, 1, size, file) == size, "%s does not come", path);
  fclose(file);
}

/* Of the group of that number; made by one rank, for the others. */
static fl_group_id id_of(int number, bool makes) {
  fl_group_id id;
  if (makes) {
    ck_ok(fl_group_make_id(host, kDLCPU, &id));
    put(shared("id", number), &id, sizeof id);
  }
  get(shared("id", number), &id, sizeof id);
  return id;
}

static fl_status join(fl_group_id id, int rank, int ranks, double timeout, fl_group **group) {
  const fl_group_options options = {.size = sizeof options, .name = "tp", .timeout = timeout};
  return fl_group_create(host, &id, rank, ranks, &options, group);
}

/* All of MPI's world, numbered backwards. */
static fl_group *join_all(double timeout) {
  fl_group *group;
  host_with_mpi("VLLM_FL_COMMUNICATOR=mpi");
  fl_group_id id = id_of(0, me == 0);
  ck_ok(join(id, world - 1 - me, world, timeout, &group));
  ck_assert_int_eq(fl_group_rank(group), world - 1 - me);
  ck_assert_str_eq(fl_group_communicator(group), "mpi");
  return group;
}

/* The last that a rank does: all went well with it. */
static void end_well(void) {
  put(shared("well", me), "1", 1);
}

/* mpirun ends the others when one ends without having finalised MPI: none does before all have said how it went. */
static void wait_for_all(void) {
  char well;
  end_well();
  for (int i = 0; i < world; i++)
    get(shared("well", i), &well, 1);
}

/* So many that ranks have parts of them, and of two or three ranks more than one portion; values with one right sum. */
static void large_ones(fl_group *group) {
  const int64_t n = world > 3 ? 30011 : 2100077;
  const int ranks = fl_group_ranks(group), rank = fl_group_rank(group);
  float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
  ck_assert(x && y);
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(rank + i % 1000);
  ck_ok(fl_all_reduce(group, x, y, n, float32, FL_REDUCE_SUM, NULL));
  for (int64_t i = 0; i < n; i++)
    ck_each(y[i] == (float)(ranks * (ranks - 1) / 2 + ranks * (i % 1000)), "element %lld is %g", (long long)i,
            (double)y[i]);
  fl_collective c = fl_collective_of(FL_REDUCE, x, rank ? NULL : y, n, float32, NULL);
  c.reduction = FL_REDUCE_MAX;
  ck_ok(fl_collective_run(group, &c));
  for (int64_t i = 0; i < n && !rank; i++)
    ck_each(y[i] == (float)(ranks - 1 + i % 1000), "element %lld is %g", (long long)i, (double)y[i]);
  ck_ok(fl_broadcast(group, x, x, n, float32, ranks - 1, NULL));
  for (int64_t i = 0; i < n; i++)
    ck_each(x[i] == (float)(ranks - 1 + i % 1000), "element %lld is %g", (long long)i, (double)x[i]);
  c = fl_collective_of(FL_REDUCE_SCATTER, x, y, n / ranks, float32, NULL);
  ck_ok(fl_collective_run(group, &c));
  for (int64_t i = 0; i < n / ranks; i++)
    ck_each(y[i] == (float)ranks * x[rank * (n / ranks) + i], "element %lld is %g", (long long)i, (double)y[i]);
  free(x);
  free(y);
}

static void check_nan(fl_group *group) {
  float x[2] = {fl_group_rank(group) ? 1 : NAN, 2}, y[2];
  for (int reduction = FL_REDUCE_MAX; reduction <= FL_REDUCE_MIN; reduction++) {
    ck_ok(fl_all_reduce(group, x, y, 2, float32, (fl_reduction)reduction, NULL));
    ck_assert(isnan(y[0]) && y[1] == 2);
  }
}

/* How many of MPI's own collectives the plugin has called (tests/plugins/counting_mpi.c). */
static int counted(void) {
  atomic_int *count = dlsym(RTLD_DEFAULT, "counted_collectives");
  ck_assert_msg(count != NULL, "the library that counts is not there");
  return *count;
}

/* Each of MPI's own, or none of them. */
static void check_which(fl_group *group) {
  enum { MOST = 7 };
  float send[MOST * MOST] = {0}, recv[MOST * MOST];
  int64_t counts[MOST], offsets[MOST];
  int before = counted(), made = 0;
  for (int i = 0; i < world; i++) {
    counts[i] = 1;
    offsets[i] = i;
  }
  for (int kind = 0; kind < FL_COLLECTIVES; kind++) {
    bool is_root = fl_group_rank(group) == 0;
    if (kind == FL_SEND || kind == FL_RECV)
      continue;
    fl_collective c = fl_collective_of((fl_collective_kind)kind, send, recv, kind != FL_BARRIER, float32, NULL);
    c.send_counts = c.recv_counts = counts;
    c.send_offsets = c.recv_offsets = offsets;
    c.recv = !is_root && (kind == FL_REDUCE || kind == FL_GATHER) ? NULL : c.recv;
    c.send = !is_root && (kind == FL_BROADCAST || kind == FL_SCATTER) ? NULL : c.send;
    ck_ok(fl_collective_run(group, &c));
    made += kind == FL_ALL_TO_ALL_V ? 2 : 1; /* before it, whether all fits */
    ck_assert_msg(counted() - before == (getenv("TEST_ENDLESS") && world > 1 ? made : 0), "%s: %d were MPI's own",
                  fl_collective_name(kind), counted() - before);
  }
}

/* Which bits get lost where integers overflow, how truths are written, and parts that leave gaps. */
static void check_what_mpi_does_otherwise(fl_group *group) {
  const DLDataType int32 = {kDLInt, 32, 1}, truth = {FL_DTYPE_BOOL, 8, 1};
  int32_t x = INT32_MAX, y;
  uint8_t all = 2, any = fl_group_rank(group) == 0 ? 4 : 0, result;
  ck_ok(fl_all_reduce(group, &x, &y, 1, int32, FL_REDUCE_SUM, NULL));
  ck_assert_int_eq(y, (int32_t)((uint32_t)INT32_MAX * (uint32_t)world));
  ck_ok(fl_all_reduce(group, &all, &result, 1, truth, FL_REDUCE_PROD, NULL));
  ck_assert_uint_eq(result, 1);
  ck_ok(fl_all_reduce(group, &any, &result, 1, truth, FL_REDUCE_MAX, NULL));
  ck_assert_uint_eq(result, 1);
  float send[16], part = -1;
  int64_t counts[8] = {0}, offsets[8];
  for (int i = 0; i < 16; i++)
    send[i] = (float)i;
  for (int i = 0; i < world; i++) {
    counts[i] = 1;
    offsets[i] = 2 * (world - 1 - i); /* the last is the first */
  }
  fl_collective c = fl_collective_of(FL_REDUCE_SCATTER_V, send, &part, 0, float32, NULL);
  c.recv_counts = counts;
  c.recv_offsets = offsets;
  ck_ok(fl_collective_run(group, &c));
  ck_assert_float_eq(part, (float)(offsets[fl_group_rank(group)] * world));
}

/* Parts of one size and another without gaps, as MPI has them, and one of none; apart, and in the place of the part. */
static void check_dense_parts(fl_group *group) {
  const int rank = fl_group_rank(group);
  int64_t counts[8], offsets[8], end = 0;
  for (int i = 0; i < world; i++) {
    counts[i] = i % 3 == 1 ? 0 : 5 + 100 * i;
    offsets[i] = end;
    end += counts[i];
  }
  float *send = malloc((size_t)(end + 1) * sizeof *send), *apart = malloc((size_t)(end + 1) * sizeof *apart);
  ck_assert(send && apart);
  for (int in_place = 0; in_place < 2; in_place++) {
    float *recv = in_place ? send + offsets[rank] : apart;
    for (int64_t i = 0; i < end; i++)
      send[i] = (float)(i + rank);
    fl_collective c = fl_collective_of(FL_REDUCE_SCATTER_V, send, recv, 0, float32, NULL);
    c.recv_counts = counts;
    c.recv_offsets = offsets;
    c.reduction = FL_REDUCE_AVG;
    ck_ok(fl_collective_run(group, &c));
    for (int64_t i = 0; i < counts[rank]; i++)
      ck_each(recv[i] == (float)((offsets[rank] + i) * world + world * (world - 1) / 2) / (float)world,
              "element %lld is %g", (long long)i, (double)recv[i]);
  }
  free(send);
  free(apart);
}

START_TEST(collectives) {
  fl_group *group = join_all(0), *part, *other;
  check_which(group);
  check_what_mpi_does_otherwise(group);
  check_dense_parts(group);
  check_collectives(host, group, world > 2 ? 2 : 4);
  check_nan(group);
  large_ones(group);
  /* Two halves in falling order, and a part that the last is not in. */
  int32_t rank = fl_group_rank(group);
  ck_ok(fl_group_split(group, rank % 2, -rank, NULL, &part));
  ck_assert_int_eq(fl_group_ranks(part), (world + 1 - rank % 2) / 2);
  ck_assert_int_eq(fl_group_rank(part), fl_group_ranks(part) - 1 - rank / 2);
  check_collectives(host, part, 2);
  ck_ok(fl_group_split(group, rank == world - 1 ? -1 : 5, 0, NULL, &other));
  ck_assert((rank == world - 1) == (other == NULL));
  if (other)
    check_collectives(host, other, 1);
  fl_group_destroy(other);
  fl_group_destroy(group);
  check_collectives(host, part, 1); /* is none of the group's any more */
  fl_group_destroy(part);
  end_well();
}
END_TEST

/* What an engine does that uses MPI itself. */
static void *mpi_function(const char *name) {
  void *library = dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL), *found = library ? dlsym(library, name) : NULL;
  ck_assert_msg(found != NULL, "no %s: %s", name, dlerror());
  return found;
}

static int call_mpi(const char *name) {
  int (*function)(int *, char ***);
  *(void **)&function = mpi_function(name);
  return function(NULL, NULL);
}

static void *make_barrier(void *group) {
  ck_assert_int_eq(fl_barrier(group, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "the engine initialised MPI for one thread, and this is another one");
  return NULL;
}

START_TEST(in_an_engine_that_initialised) {
  pthread_t thread;
  ck_assert_int_eq(call_mpi("MPI_Init"), 0);
  fl_group *group = join_all(0), *other;
  check_collectives(host, group, 2);
  ck_ok(fl_group_split(group, 0, 0, NULL, &other)); /* the attempt breaks it */
  pthread_create(&thread, NULL, make_barrier, other);
  pthread_join(thread, NULL);
  fl_group_destroy(other);
  ck_assert_int_eq(call_mpi("MPI_Finalize"), 0);
  ck_assert_int_eq(fl_barrier(group, NULL), FL_ESTATE);
  ck_contains(fl_error_message(), "the engine has finalised MPI");
  fl_group_destroy(group);
  fl_group_id id = id_of(0, false);
  ck_assert_int_eq(join(id, me, world, 0, &group), FL_ESTATE);
  ck_contains(fl_error_message(), "the process has finalised MPI");
  end_well();
}
END_TEST

/* A group of all for each of two threads, which do not wait for each other. */
static void *use_group(void *of) {
  fl_group *group = of;
  const int64_t n = 3001;
  float x[3001], y[3001];
  for (int round = 0; round < 100; round++) {
    for (int64_t i = 0; i < n; i++)
      x[i] = (float)(i + round + fl_group_rank(group));
    ck_ok(fl_all_reduce(group, x, y, n, float32, FL_REDUCE_MAX, NULL));
    for (int64_t i = 0; i < n; i++)
      ck_each(y[i] == (float)(i + round + world - 1), "round %d, element %lld", round, (long long)i);
  }
  return NULL;
}

START_TEST(two_threads) {
  pthread_t threads[2];
  fl_group *groups[2] = {join_all(0)};
  ck_ok(fl_group_split(groups[0], 0, 0, NULL, &groups[1]));
  for (int i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, use_group, groups[i]);
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++)
    fl_group_destroy(groups[i]);
  end_well();
}
END_TEST

/* Alone: started by no mpirun. */
START_TEST(alone_in_an_engine_that_initialised) {
  fl_group *group;
  fl_group_id id;
  ck_assert_int_eq(call_mpi("MPI_Init"), 0);
  host_with_mpi("VLLM_FL_COMMUNICATOR=mpi");
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  ck_assert_int_eq(join(id, 0, 2, 0, &group), FL_EINVAL);
  ck_contains(fl_error_message(), "MPI's world has 1 rank, the group 2: start the ranks by mpirun -n 2");
  ck_ok(join(id, 0, 1, 0, &group));
  check_collectives(host, group, 2);
  fl_group_destroy(group);
  ck_assert_int_eq(call_mpi("MPI_Finalize"), 0);
  end_well();
}
END_TEST

/* Two groups of two at the same time, then two of all that are used in turns; a group that is larger than the world,
 * and one whose ranks are not numbered apart. */
START_TEST(groups_of_a_part) {
  fl_group *group, *all[2];
  float x = 1;
  host_with_mpi("VLLM_FL_COMMUNICATOR=mpi");
  fl_group_id ids[4];
  for (int i = 0; i < 4; i++)
    ids[i] = id_of(i, me == 0);
  ck_assert_int_eq(join(ids[0], me, 5, 0, &group), FL_EINVAL);
  ck_contains(fl_error_message(), "MPI's world has 4 ranks, the group 5: start the ranks by mpirun -n 5");
  ck_ok(join(ids[me / 2], me % 2, 2, 0, &group));
  check_collectives(host, group, 2);
  for (int i = 0; i < 2; i++)
    ck_ok(join(ids[2 + i], me, 4, 0, &all[i]));
  for (int i = 0; i < 20; i++)
    ck_ok(fl_all_reduce(all[i % 2], &x, &x, 1, float32, FL_REDUCE_MAX, NULL));
  fl_group_destroy(all[0]);
  fl_group_destroy(all[1]);
  fl_group_destroy(group);
  ck_assert_int_eq(join(ids[0], 0, 4, 0, &group), FL_EINVAL);
  ck_contains(fl_error_message(), "of MPI's world are both rank 0");
  ck_assert_int_eq(join(ids[0], me % 3, me == 3 ? 3 : 4, 0, &group), FL_EINVAL);
  ck_assert_int_eq(join(ids[me == 3], me, 4, 0, &group), FL_EINVAL);
  ck_contains(fl_error_message(), me == 3 ? "1 of MPI's 4 ranks have this id, the group is of 4"
                                          : "3 of MPI's 4 ranks have this id, the group is of 4");
  end_well();
}
END_TEST

/* Rank 2 of three does not come to a collective in time: the others say so, and it hears of it. */
START_TEST(late) {
  static const int64_t counts[] = {1, 3000000};
  const int64_t n = counts[atoi(getenv("TEST_CASE"))];
  float *x = calloc((size_t)n, sizeof *x);
  const fl_group_options options = {.size = sizeof options, .name = "tp", .timeout = 2, .any_manifest = 1};
  fl_group *all = join_all(0), *group;
  ck_ok(fl_group_split(all, 0, 0, &options, &group));
  if (fl_group_rank(group) == 2)
    sleep(3);
  fl_status status = fl_all_reduce(group, x, x, n, float32, FL_REDUCE_SUM, NULL);
  /* Small ones that the others sent before they gave up are there. */
  for (int i = 0; i < 100 && !status && n < 100 && fl_group_rank(group) == 2; i++)
    status = fl_all_reduce(group, x, x, n, float32, FL_REDUCE_SUM, NULL);
  ck_assert_int_eq(status, FL_EDEVICE);
  ck_contains(fl_error_message(), "all_reduce of group 'tp', rank ");
  if (fl_group_rank(group) == 2)
    ck_contains(fl_error_message(), "by communicator 'mpi': broken by rank ");
  ck_contains(fl_error_message(), "all_reduce: rank 2 did not come within 2 s");
  ck_assert_int_eq(fl_barrier(group, NULL), FL_ESTATE);
  fl_group_destroy(group);
  fl_group_destroy(all);
  free(x);
  wait_for_all();
}
END_TEST

/* The time limit of joining, the first time and later. */
START_TEST(late_to_join) {
  fl_group *group;
  bool again = atoi(getenv("TEST_CASE"));
  /* To initialise MPI waits for all without a limit. */
  ck_assert_int_eq(call_mpi("MPI_Init"), 0);
  if (again)
    fl_group_destroy(join_all(0));
  else
    host_with_mpi("VLLM_FL_COMMUNICATOR=mpi");
  if (me == 0) {
    fl_group_id id = id_of(1, true);
    ck_assert_int_eq(join(id, 0, 2, 1, &group), FL_EDEVICE);
    ck_contains(fl_error_message(), "joining of group 'tp', rank 0 of 2, by communicator 'mpi': ");
    ck_contains(fl_error_message(),
                again ? "rank 1 did not come within 1 s (ranks of MPI's world, all of which join at "
                        "the same time)"
                      : "not all ranks of MPI's world came within 1 s; MPI does not say who is missing");
    ck_assert_int_eq(join(id, 0, 2, 1, &group), FL_EDEVICE);
  }
  wait_for_all();
}
END_TEST

static void *abort_soon(void *group) {
  usleep(200000);
  ck_ok(fl_group_abort(group));
  return NULL;
}

/* One rank has a limit of time, and so no rank uses what cannot be given up. */
START_TEST(one_has_a_limit) {
  const fl_group_options limited = {.size = sizeof limited, .timeout = PATIENCE};
  fl_group *group = join_all(me == 1 ? PATIENCE : 0), *endless, *part;
  int before = counted();
  check_collectives(host, group, 2);
  ck_assert_int_eq(counted(), before);
  ck_ok(fl_group_split(group, 0, 0, NULL, &endless));
  check_collectives(host, endless, 2);
  ck_assert_int_gt(counted(), before);
  ck_ok(fl_group_split(endless, 0, 0, me == 0 ? &limited : NULL, &part));
  before = counted();
  check_collectives(host, part, 2);
  ck_assert_int_eq(counted(), before);
  fl_group_destroy(part);
  fl_group_destroy(endless);
  fl_group_destroy(group);
  end_well();
}
END_TEST

/* The last ends, and mpirun ends the others while they wait for it. */
START_TEST(dies) {
  float x = 1;
  fl_group *group = join_all(0);
  ck_ok(fl_all_reduce(group, &x, &x, 1, float32, FL_REDUCE_SUM, NULL));
  end_well();
  if (me == world - 1)
    kill(getpid(), SIGKILL);
  ck_ok(fl_all_reduce(group, &x, &x, 1, float32, FL_REDUCE_SUM, NULL));
  put(shared("came-back", me), "1", 1);
}
END_TEST

START_TEST(aborted) {
  fl_group *group = join_all(0);
  pthread_t thread;
  ck_ok(fl_barrier(group, NULL));
  if (fl_group_rank(group) == 0)
    pthread_create(&thread, NULL, abort_soon, group);
  /* The last does not come, so that the others wait. */
  if (fl_group_rank(group) < world - 1) {
    ck_assert_int_eq(fl_barrier(group, NULL), FL_EDEVICE);
    ck_contains(fl_error_message(), "rank 0 was aborted");
  } else {
    while (fl_group_state(group) == FL_OK)
      usleep(10000);
    ck_contains(fl_error_message(), "broken by rank 0: rank 0 was aborted");
  }
  if (fl_group_rank(group) == 0)
    pthread_join(thread, NULL);
  fl_group_destroy(group);
  wait_for_all();
}
END_TEST

/* More or less than is expected. */
START_TEST(unequal) {
  float x[4] = {0};
  int expected = atoi(getenv("TEST_CASE")) ? 1 : 3;
  fl_group *group = join_all(0);
  if (fl_group_rank(group) == 1) {
    ck_ok(fl_send(group, x, 2, float32, 0, NULL));
  } else {
    ck_assert_int_eq(fl_recv(group, x, expected, float32, 1, NULL), FL_EDEVICE);
    ck_contains(fl_error_message(),
                expected == 3 ? "rank 1 sends 8 bytes to rank 0, which expects more" : "MPI_ERR_TRUNCATE");
  }
  fl_group_destroy(group);
  wait_for_all();
}
END_TEST

static const struct {
  const char *name;
  const TTest **test;
} roles[] = {
    {"collectives", &collectives},
    {"in_an_engine_that_initialised", &in_an_engine_that_initialised},
    {"alone_in_an_engine_that_initialised", &alone_in_an_engine_that_initialised},
    {"two_threads", &two_threads},
    {"groups_of_a_part", &groups_of_a_part},
    {"late", &late},
    {"late_to_join", &late_to_join},
    {"one_has_a_limit", &one_has_a_limit},
    {"dies", &dies},
    {"aborted", &aborted},
    {"unequal", &unequal},
};

static const TTest *role;

static void add_role(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, host_end);
  tcase_add_test(tests, role);
}

static int be_rank(const char *name, const char *where) {
  const char *number = getenv("OMPI_COMM_WORLD_RANK"), *size = getenv("OMPI_COMM_WORLD_SIZE");
  directory = where;
  me = number ? atoi(number) : 0;
  world = size ? atoi(size) : 1;
  for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
    if (!strcmp(roles[i].name, name))
      role = *roles[i].test;
  if (!role)
    return 2;
  setenv("CK_FORK", "no", 1);
  return run_suite(name, add_role, PATIENCE);
}

/* -------------------------------------------------------------------------------------------------- with mpirun */

/* What Open MPI needs in containers, as root, with more ranks than processors; and that it asks no network. */
static const char *const surroundings[] = {
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_plm=isolated",
    "OMPI_MCA_btl=self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism=none",
    "OMPI_MCA_mpi_yield_when_idle=1",
};

static char program[PATH_MAX];

static void set_up(void) {
  ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  ck_assert_int_gt(length, 0);
  program[length] = 0;
  for (size_t i = 0; i < sizeof surroundings / sizeof *surroundings; i++)
    putenv((char *)(uintptr_t)surroundings[i]);
  scratch_make();
}

static void tear_down(void) {
  host_end();
  scratch_remove();
}

/* All that was printed, each line marked: a summary of another suite is none of this. */
static char *read_log(void) {
  size_t length, n = 0;
  char *log = (char *)read_file(in_scratch("log"), &length), *shown = calloc(2, length + 2);
  ck_assert_ptr_nonnull(shown);
  for (size_t i = 0; i < length; i++) {
    shown[n++] = log[i];
    if (log[i] == '\n')
      shown[n++] = '|';
  }
  free(log);
  return shown;
}

static void run(const char *launcher, int ranks, const char *name) {
  char command[5 * PATH_MAX], file[32];
  int well = 0;
  /* Open MPI keeps sockets in TMPDIR, whose names have to be short. */
  snprintf(command, sizeof command, "TMPDIR=/tmp %s '%s' %s '%s' >'%s/log' 2>&1 </dev/null", launcher, program, name,
           scratch, scratch);
  int status = system(command);
  for (int i = 0; i < ranks; i++) {
    snprintf(file, sizeof file, "well-%d", i);
    well += !access(in_scratch(file), F_OK);
  }
  if (well < ranks)
    ck_abort_msg("%d of %d ranks of '%s' went well, status %d:\n|%.3000s", well, ranks, name, status, read_log());
}

static void run_ranks(int ranks, const char *name) {
  char launcher[100];
  snprintf(launcher, sizeof launcher, "mpirun --oversubscribe --timeout %d -n %d", PATIENCE, ranks);
  run(launcher, ranks, name);
}

static void run_case(int ranks, const char *name, int number) {
  char text[16];
  snprintf(text, sizeof text, "%d", number);
  setenv("TEST_CASE", text, 1);
  run_ranks(ranks, name);
}

static const int numbers_of_ranks[] = {1, 2, 3, 4, 7};
enum { NUMBERS = sizeof numbers_of_ranks / sizeof *numbers_of_ranks };

/* Ranks, which are started after this, count MPI's own collectives; they have limits of time, or none. */
static void count_own(bool endless) {
  setenv("FLHOST_MPI", built("tests/counting_mpi.so"), 1);
  if (endless)
    setenv("TEST_ENDLESS", "1", 1);
}

START_TEST(ranks_of_mpirun_come_together_and_split) {
  count_own(false);
  run_ranks(numbers_of_ranks[_i], "collectives");
}
END_TEST

START_TEST(without_a_limit_of_time_they_use_the_collectives_of_mpi) {
  count_own(true);
  run_ranks(numbers_of_ranks[_i], "collectives");
}
END_TEST

START_TEST(where_one_rank_has_a_limit_none_uses_them) {
  count_own(true);
  run_ranks(3, "one_has_a_limit");
}
END_TEST

START_TEST(groups_of_two_threads_use_them_at_the_same_time) {
  count_own(true);
  run_ranks(2, "two_threads");
}
END_TEST

START_TEST(a_rank_that_dies_ends_the_others) {
  char file[32];
  count_own(_i);
  run_ranks(3, "dies");
  for (int i = 0; i < 3; i++) {
    snprintf(file, sizeof file, "came-back-%d", i);
    ck_assert_msg(access(in_scratch(file), F_OK) != 0, "rank %d came back from a collective without the last", i);
  }
  size_t length;
  char *log = (char *)read_file(in_scratch("log"), &length);
  ck_assert_msg(memmem(log, length, "signal 9", 8) != NULL, "mpirun does not name the rank's end");
  free(log);
}
END_TEST

START_TEST(an_mpi_that_the_engine_initialised_is_used_and_left_to_it) {
  run_ranks(2, "in_an_engine_that_initialised");
}
END_TEST

START_TEST(groups_of_two_threads_do_not_wait_for_each_other) {
  run_ranks(2, "two_threads");
}
END_TEST

START_TEST(a_process_alone_is_told_to_use_mpirun) {
  run("", 1, "alone_in_an_engine_that_initialised");
}
END_TEST

START_TEST(parts_of_the_world_come_together_and_what_does_not_fit_is_said) {
  run_ranks(4, "groups_of_a_part");
}
END_TEST

START_TEST(a_rank_that_does_not_come_is_named_and_hears_of_it) {
  run_case(3, "late", _i);
}
END_TEST

START_TEST(joining_has_a_time_limit) {
  run_case(2, "late_to_join", _i);
}
END_TEST

START_TEST(an_abort_ends_all_waiting) {
  run_ranks(3, "aborted");
}
END_TEST

START_TEST(a_message_of_another_size_is_an_error) {
  run_case(2, "unequal", _i);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- without mpirun */

START_TEST(where_there_is_no_launcher_or_no_library_the_reason_says_so) {
  fl_group_id id;
  host_with_mpi("VLLM_FL_COMMUNICATOR=mpi");
  ck_assert_int_eq(fl_group_make_id(host, kDLCPU, &id), FL_ENOIMPL);
  ck_contains(fl_error_message(), "mpi: the process was not started by mpirun or srun");
  setenv("SLURM_STEP_ID", "0", 1); /* srun, of a cluster whose default is no MPI */
  ck_assert_int_eq(fl_group_make_id(host, kDLCPU, &id), FL_ENOIMPL);
  ck_contains(fl_error_message(), "mpi: srun started the process, but told it nothing of MPI: srun --mpi=pmix does");
  setenv("FLHOST_MPI", "/nonexistent/libmpi.so.40", 1);
  ck_assert_int_eq(fl_group_make_id(host, kDLCPU, &id), FL_ENOIMPL);
  ck_contains(fl_error_message(), "mpi: FLHOST_MPI: /nonexistent/libmpi.so.40 is not there");
  setenv("FLHOST_MPI", "libmpi_of_nobody.so.40", 1);
  ck_assert_int_eq(fl_group_make_id(host, kDLCPU, &id), FL_ENOIMPL);
  ck_contains(fl_error_message(), "mpi: FLHOST_MPI: libmpi_of_nobody.so.40 is not there");
}
END_TEST

START_TEST(another_communicator_brings_no_mpi_into_the_process) {
  static const char *const launched[] = {"OMPI_COMM_WORLD_SIZE=1", "VLLM_FL_COMMUNICATOR=shm,mpi"};
  fl_group_id id;
  putenv((char *)(uintptr_t)launched[0]);
  host_with_mpi(launched[1]);
  ck_ok(fl_load_plugin(host, built("plugins/shm.so")));
  ck_ok(fl_group_make_id(host, kDLCPU, &id));
  ck_assert_str_eq(id.communicator, "shm");
  ck_assert_ptr_null(dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD));
  fl_communicators *list;
  ck_ok(fl_get_communicators(host, &list));
  const fl_communicator_info *mpi = fl_communicator_at(list, 1);
  ck_assert_str_eq(mpi->name, "mpi");
  ck_assert(mpi->available && mpi->splits && mpi->batches);
  ck_assert_str_eq(mpi->reason, "'shm' comes before it");
  ck_assert_uint_eq(mpi->native, (1u << FL_COLLECTIVES) - 1);
  fl_communicators_free(list);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_loop_test(tests, ranks_of_mpirun_come_together_and_split, 0, NUMBERS);
  tcase_add_loop_test(tests, without_a_limit_of_time_they_use_the_collectives_of_mpi, 0, NUMBERS);
  tcase_add_test(tests, where_one_rank_has_a_limit_none_uses_them);
  tcase_add_test(tests, groups_of_two_threads_use_them_at_the_same_time);
  tcase_add_loop_test(tests, a_rank_that_dies_ends_the_others, 0, 2);
  tcase_add_test(tests, an_mpi_that_the_engine_initialised_is_used_and_left_to_it);
  tcase_add_test(tests, groups_of_two_threads_do_not_wait_for_each_other);
  tcase_add_test(tests, a_process_alone_is_told_to_use_mpirun);
  tcase_add_test(tests, parts_of_the_world_come_together_and_what_does_not_fit_is_said);
  tcase_add_loop_test(tests, a_rank_that_does_not_come_is_named_and_hears_of_it, 0, 2);
  tcase_add_loop_test(tests, joining_has_a_time_limit, 0, 2);
  tcase_add_test(tests, an_abort_ends_all_waiting);
  tcase_add_loop_test(tests, a_message_of_another_size_is_an_error, 0, 2);
  tcase_add_test(tests, where_there_is_no_launcher_or_no_library_the_reason_says_so);
  tcase_add_test(tests, another_communicator_brings_no_mpi_into_the_process);
}

/* In place of all others: the line that it is skipped stands for it. */
START_TEST(ranks_of_mpirun) {
}
END_TEST

static void add_nothing(TCase *tests) {
  tcase_add_test(tests, ranks_of_mpirun);
}

int main(int argc, char **argv) {
  if (argc == 3)
    return be_rank(argv[1], argv[2]);
  char plugin[PATH_MAX];
  snprintf(plugin, sizeof plugin, "%s/plugins/mpi.so", build_dir());
  const char *lack = access(plugin, R_OK)                     ? "built without Open MPI"
                     : system("command -v mpirun >/dev/null") ? "no mpirun"
                                                              : NULL;
  if (lack)
    printf("skip: ranks_of_mpirun: %s\n", lack);
  return run_suite("mpi", lack ? add_nothing : add_tests, 2 * PATIENCE);
}
