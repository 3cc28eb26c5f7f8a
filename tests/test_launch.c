/* `flhost launch`: ranks of a program that find each other, and end together. */
#include "tests/scenario.h"

#include <flhost/flhost.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_up_ranks(void) {
  copy_built("plugins/shm.so", "plugins");
  copy_built("plugins/cpu.so", "plugins");
  setting("VLLM_FL_LOG_LEVEL=ERROR");
  setting("PATH=/usr/bin:/bin");
}

#define SHELL(...) "--", "sh", "-c", __VA_ARGS__

static const char *program(const char *name, char path[4096]) {
  ck_assert_ptr_nonnull(realpath(getenv("FLHOST_BUILD") ? getenv("FLHOST_BUILD") : "build", path));
  return strcat(path, name);
}

/* examples/ranks.c, as it was built. */
static const char *ranks_program(void) {
  static char path[4096];
  return program("/tests/ranks", path);
}

static const char *flhost_program(void) {
  static char path[4096];
  return program("/flhost", path);
}

START_TEST(ranks_of_a_program_come_together) {
  set_up_ranks();
  outcome run = FLHOST("launch", "--ranks", "4", "--", ranks_program());
  ck_assert_int_eq(run.status, 0);
  ck_assert_str_eq(run.err, "");
  ck_assert_str_eq(run.out, "4 ranks by shm, 210 of 840 inner features each: as one rank alone, within 1e-5\n");
  run = FLHOST("launch", "-n", "1", ranks_program());
  ck_assert_str_eq(run.out, "1 ranks by shm, 840 of 840 inner features each: as one rank alone, within 1e-5\n");
}
END_TEST

START_TEST(alone_a_program_is_rank_0_of_1) {
  set_up_ranks();
  static const char alone[] = "1 ranks by shm, 840 of 840 inner features each: as one rank alone, within 1e-5\n";
  ck_assert_str_eq(run_built("tests/ranks", (const char *const[]){NULL}).out, alone);
  setting("SLURM_PROCID=0"); /* in a batch script of a job for four, which no srun started */
  setting("SLURM_NTASKS=4");
  ck_assert_str_eq(run_built("tests/ranks", (const char *const[]){NULL}).out, alone);
}
END_TEST

/* As torchrun, mpirun and Slurm start ranks: they meet through a file. */
START_TEST(ranks_of_other_launchers_meet_through_a_file) {
  static const char *const words[][2] = {{"RANK", "WORLD_SIZE"},
                                         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                         {"PMI_RANK", "PMI_SIZE"},
                                         {"SLURM_PROCID", "SLURM_NTASKS"}};
  char script[1024];
  set_up_ranks();
  setting("FLHOST_GROUP_FILE=%s", scratch("id"));
  setting("SLURM_STEP_ID=0"); /* of srun */
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    snprintf(script, sizeof script, "export %s=3; for r in 2 1 0; do %s=$r %s & done; wait", words[i][1], words[i][0],
             ranks_program());
    /* The command lends its environment alone: its own variables are taken away. */
    char all[2048];
    snprintf(all, sizeof all, "unset FLHOST_RANK FLHOST_RANKS FLHOST_LOCAL_RANK FLHOST_GROUP_ID; %s", script);
    outcome run = FLHOST("launch", "-n", "1", SHELL(all));
    ck_assert_str_eq(run.err, "");
    ck_assert_str_eq(run.out, "3 ranks by shm, 280 of 840 inner features each: as one rank alone, within 1e-5\n");
    ck_assert_int_ne(access(scratch("id"), F_OK), 0); /* gone when they have met */
  }
}
END_TEST

/* MPI's ranks know of each other. */
START_TEST(ranks_of_mpirun_need_no_file) {
  char script[8192], plugin[4096];
  set_up_ranks();
  if (system("mpirun --version >/dev/null 2>&1") || access(program("/plugins/mpi.so", plugin), F_OK)) {
    puts("skip: ranks_of_mpirun_need_no_file: there is no mpirun, or no plugin for it");
    return;
  }
  copy_built("plugins/mpi.so", "plugins");
  setting("OMPI_MCA_plm=isolated"); /* without ssh */
  setting("OMPI_MCA_btl_vader_single_copy_mechanism=none");
  setting("OMPI_ALLOW_RUN_AS_ROOT=1");
  setting("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  snprintf(script, sizeof script, "unset FLHOST_RANK FLHOST_RANKS FLHOST_GROUP_ID; mpirun --oversubscribe -n 3 %s",
           ranks_program());
  setting("HOME=%s", scratch_dir());
  setting("VLLM_FL_COMMUNICATOR=shm,mpi");
  outcome run = FLHOST("launch", "-n", "1", SHELL(script));
  assert_contains(run.err, "rank"); /* shm's need one */
  setting("VLLM_FL_COMMUNICATOR=mpi,shm");
  run = FLHOST("launch", "-n", "1", "--device", "cpu", SHELL(script));
  assert_contains(run.out, "3 ranks by mpi, 280 of 840 inner features each: as one rank alone, within 1e-5\n");
}
END_TEST

START_TEST(what_makes_no_sense_in_the_environment_is_said) {
  set_up_ranks();
  setting("RANK=1");
  assert_contains(run_built("tests/ranks", (const char *const[]){NULL}).err,
                  "RANK is there and WORLD_SIZE is not: how many ranks are there?");
  setting("WORLD_SIZE=0");
  assert_contains(run_built("tests/ranks", (const char *const[]){NULL}).err,
                  "WORLD_SIZE is '0', expected a number from 1");
  setting("WORLD_SIZE=2");
  assert_contains(
      run_built("tests/ranks", (const char *const[]){NULL}).err,
      "rank 1 of 2, started by torchrun: the ranks of communicator 'shm' need an id; let FLHOST_GROUP_FILE");
  setting("FLHOST_GROUP_FILE=%s", scratch("nowhere/id"));
  setting("VLLM_FL_COMM_TIMEOUT_S=0.2");
  assert_contains(run_built("tests/ranks", (const char *const[]){NULL}).err,
                  "rank 0 did not write the group's id to '");
  setting("FLHOST_GROUP_FILE=%s", scratch_file("nonsense", "shm:12zz"));
  assert_contains(run_built("tests/ranks", (const char *const[]){NULL}).err,
                  "'shm:12zz' is no id of a group, expected the name of a communicator, a colon");
  setting("FLHOST_GROUP_ID=shm");
  assert_contains(run_built("tests/ranks", (const char *const[]){NULL}).err,
                  "FLHOST_GROUP_ID: 'shm' is no id of a group");
  setting("RANK=2");
  assert_contains(run_built("tests/ranks", (const char *const[]){NULL}).err,
                  "RANK is '2', expected a number from 0 to 1");
}
END_TEST

START_TEST(each_rank_has_its_numbers) {
  set_up_ranks();
  outcome run =
      FLHOST("launch", "--ranks=3",
             SHELL("test $FLHOST_RANKS = 3 && test $FLHOST_LOCAL_RANK = $FLHOST_RANK && test -n \"$FLHOST_GROUP_ID\" "
                   "&& test $OMP_NUM_THREADS -ge 1 && ! read line && echo $FLHOST_RANK >> $0",
                   scratch("seen")));
  ck_assert_str_eq(run.err, "");
  ck_assert_int_eq(run.status, 0);
  char text[16] = "";
  FILE *file = fopen(scratch("seen"), "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_eq(fread(text, 1, sizeof text - 1, file), 6);
  fclose(file);
  ck_assert(strchr(text, '0') && strchr(text, '1') && strchr(text, '2'));
}
END_TEST

/* Those whose numbers are in the file. */
static void assert_gone(const char *path) {
  FILE *file = fopen(path, "r");
  int pid, n = 0;
  ck_assert_ptr_nonnull(file);
  for (; fscanf(file, "%d", &pid) == 1; n++)
    for (int tries = 0; !kill(pid, 0); tries++) {
      ck_assert_msg(tries < 1000, "process %d is still there", pid);
      usleep(10000);
    }
  fclose(file);
  ck_assert_int_eq(n, 2);
}

/* And what they started. */
START_TEST(when_one_fails_all_are_ended) {
  set_up_ranks();
  const char *pids = scratch("pids");
  outcome run =
      FLHOST("launch", "-n", "3",
             SHELL("test $FLHOST_RANK != 1 || { sleep 0.5; exit 5; }; sleep 100 & echo $! >> $0; wait", pids));
  assert_gone(pids);
  ck_assert_int_eq(run.status, 5);
  assert_contains(run.err, "flhost: rank 1 (process ");
  assert_contains(run.err, ") ended with exit status 5; the others are ended\n");
  run = FLHOST("launch", "-n", "3", SHELL("test $FLHOST_RANK != 2 || kill -9 $$; sleep 100"));
  ck_assert_int_eq(run.status, 137);
  assert_contains(run.err, "flhost: rank 2 (process ");
  assert_contains(run.err, ") was ended by signal 9 (Killed); the others are ended\n");
}
END_TEST

START_TEST(a_signal_to_the_command_ends_all) {
  set_up_ranks();
  outcome run = FLHOST("launch", "-n", "2",
                       SHELL("test $FLHOST_RANK != 0 || { sleep 0.3; kill -TERM $PPID; }; sleep 100; exit 0"));
  ck_assert_int_eq(run.status, 128 + SIGTERM);
  ck_assert_str_eq(run.err, "");
}
END_TEST

START_TEST(what_cannot_be_started_is_said) {
  set_up_ranks();
  outcome run = FLHOST("launch", "-n", "2", "--", "/nonexistent/program");
  ck_assert_int_eq(run.status, 127);
  ck_assert_str_eq(run.err, "flhost: '/nonexistent/program' cannot be started: No such file or directory\n");
  static const char *const wrong[] = {"0", "-1", "1.5", "many", "5000"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    ck_assert_int_eq(FLHOST("launch", "-n", wrong[i], "--", "true").status, 2);
  ck_assert_int_eq(FLHOST("launch", "--", "true").status, 0); /* as many as there are processors */
  ck_assert_int_eq(FLHOST("launch", "-n", "2").status, 2);
  setting("VLLM_FL_COMMUNICATOR=shn");
  run = FLHOST("launch", "-n", "2", "--", "true");
  ck_assert_int_eq(run.status, 2);
  assert_contains(run.err, "names the communicator 'shn', which no plugin brings; did you mean 'shm'?");
}
END_TEST

START_TEST(every_collective_is_verified) {
  set_up_ranks();
  outcome run = FLHOST("launch", "-n", "3", "--", flhost_program(), "verify", "--quick", "--json", "communicator");
  assert_quiet(run);
  json_t *report = parse_json(run.out, JSON_OBJECT), *list = json_object_get(report, "collectives"), *row;
  size_t i;
  ck_assert_str_eq(text_at(report, "communicator"), "shm");
  ck_assert_int_eq(json_integer_value(json_object_get(report, "ranks")), 3);
  ck_assert_uint_eq(json_array_size(list), FL_COLLECTIVES + 1);
  ck_assert_str_eq(text_at(json_array_get(list, FL_COLLECTIVES), "collective"), "two groups at once");
  json_array_foreach(list, i, row) {
    ck_assert_int_gt(json_integer_value(json_object_get(row, "cases")), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "failures")), 0);
  }
  run = FLHOST("verify", "--quick", "communicator"); /* of one rank */
  assert_quiet(run);
  assert_contains(run.out, "communicator 'shm', 1 ranks, device cpu");
}
END_TEST

START_TEST(verification_starts_ranks_itself) {
  set_up_ranks();
  outcome run = FLHOST("verify", "communicator", "--ranks", "2", "--quick", "--device=cpu");
  assert_quiet(run);
  assert_contains(run.out, "communicator 'shm', 2 ranks, device cpu");
  run = FLHOST("verify", "--ranks=2", "rms_norm");
  assert_status(run, 2);
  assert_contains(run.err, "--ranks needs the word communicator in place of operators");
}
END_TEST

/* `wrong` of the tests' communicators adds one too much. */
START_TEST(what_is_wrong_with_a_communicator_is_told) {
  set_up_ranks();
  copy_built("tests/plugins/communicators.so", "plugins");
  setting("VLLM_FL_COMMUNICATOR=wrong");
  outcome run = FLHOST("verify", "--quick", "communicator");
  assert_status(run, 1);
  assert_contains(run.out, "all_reduce");
  assert_contains(run.out, "wrong; all_reduce of 1 float32 (sum): rank 0 of 1: element 0 is -2, expected -3");
}
END_TEST

/* `crossed` is wrong where two groups are in use at the same time, and not else. */
START_TEST(groups_that_are_not_kept_apart_are_told) {
  set_up_ranks();
  copy_built("tests/plugins/communicators.so", "plugins");
  setting("VLLM_FL_COMMUNICATOR=crossed");
  outcome run = FLHOST("verify", "--quick", "--json", "communicator");
  assert_status(run, 1);
  json_t *list = json_object_get(parse_json(run.out, JSON_OBJECT), "collectives"), *row;
  size_t i;
  json_array_foreach(list, i, row) {
    bool is_wrong = json_integer_value(json_object_get(row, "failures")) > 0;
    ck_assert_msg(is_wrong == (i == FL_COLLECTIVES), "%s", text_at(row, "collective"));
  }
}
END_TEST

#define BENCH(...) FLHOST("launch", "-n", "2", "--", flhost_program(), "bench", "--seconds", "0.001", __VA_ARGS__)

/* What the bus carries of two ranks' bytes over the time; NULL: it is not defined. */
static const struct {
  const char *name;
  double bus;
} definitions[] = {{"all_reduce", 1}, {"all_gather", 0.5}, {"reduce_scatter", 0.5}, {"all_to_all", 0.5},
                   {"broadcast", 1},  {"reduce", 1},       {"send_recv", 1},        {"ping_pong", 0}};
enum { N_DEFINITIONS = sizeof definitions / sizeof *definitions };

static double number_at(const json_t *row, const char *key) {
  return json_number_value(json_object_get(row, key));
}

START_TEST(collectives_are_timed) {
  set_up_ranks();
  outcome run = BENCH("--json", "--dims", "bytes: 8 4096 100000", "communicator");
  assert_quiet(run);
  json_t *report = parse_json(run.out, JSON_OBJECT), *rows = json_object_get(report, "rows");
  ck_assert_str_eq(text_at(report, "communicator"), "shm");
  ck_assert_str_eq(text_at(report, "dtype"), "float32");
  ck_assert_double_eq(number_at(report, "timeout_s"), 300);
  ck_assert_str_ne(text_at(json_object_get(report, "machine"), "cpu"), "");
  ck_assert_uint_eq(json_array_size(rows), 3 * N_DEFINITIONS);
  for (size_t i = 0; i < 3 * N_DEFINITIONS; i++) {
    static const double sizes[] = {8, 4096, 100000};
    const json_t *row = json_array_get(rows, i);
    double seconds = number_at(row, "seconds"), bus = definitions[i / 3].bus;
    ck_assert_str_eq(text_at(row, "collective"), definitions[i / 3].name);
    ck_assert_double_eq(number_at(row, "bytes"), sizes[i % 3]);
    ck_assert(number_at(row, "least_seconds") > 0 && number_at(row, "least_seconds") <= seconds);
    ck_assert(number_at(row, "most_seconds") >= seconds && number_at(row, "samples") >= 5);
    ck_assert_double_eq_tol(number_at(row, "bytes_per_s") * seconds, sizes[i % 3], 1e-6 * sizes[i % 3]);
    ck_assert(json_is_null(json_object_get(row, "bus_bytes_per_s")) == !bus);
    ck_assert_double_eq_tol(number_at(row, "bus_bytes_per_s") * seconds, bus * sizes[i % 3], 1e-6 * sizes[i % 3]);
  }
  run = BENCH("--size", "small", "communicator");
  assert_quiet(run);
  assert_contains(run.out, "X MEMCPY");
  assert_contains(run.out, "all_reduce      4 ");
  ck_assert_ptr_null(strstr(run.out, "all_gather")); /* 4 bytes have no part for each of two */
}
END_TEST

/* Two ranks that the benchmark starts by itself, processes, or threads: `how` is the option for it, or any other. */
static void check_ranks_of_bench(const char *how) {
  outcome run = FLHOST("bench", "--ranks=2", how, "--seconds", "0.001", "--dims", "bytes: 8", "communicator");
  assert_quiet(run);
  assert_contains(run.out, "communicator 'shm', 2 ranks, device cpu");
  assert_contains(run.out, "all_reduce          8 ");
  run = FLHOST("bench", "--ranks", "2", how, "rms_norm");
  assert_status(run, 2);
  assert_contains(run.err, "--ranks needs the word communicator in place of operators");
  run = FLHOST("bench", "--ranks", "0", how, "communicator");
  assert_status(run, 2);
  assert_contains(run.err, "--ranks: '0' is not a whole number from 1 to ");
}

START_TEST(the_benchmark_starts_ranks_itself) {
  set_up_ranks();
  outcome run = FLHOST("bench", "communicator", "--ranks", "3", "--seconds=0.001", "--size", "large", "--dims",
                       "bytes: 8 600", "--json");
  assert_quiet(run);
  json_t *report = parse_json(run.out, JSON_OBJECT);
  ck_assert_int_eq(json_integer_value(json_object_get(report, "ranks")), 3);
  ck_assert_double_eq(number_at(json_array_get(json_object_get(report, "rows"), 0), "bytes"), 600);
  check_ranks_of_bench("--dtype=float32");
}
END_TEST

START_TEST(ranks_are_timed_as_threads) {
  set_up_ranks();
  check_ranks_of_bench("--in-process");
}
END_TEST

START_TEST(of_three_ranks_the_parts_are_thirds) {
  set_up_ranks();
  outcome run = FLHOST("launch", "-n", "3", "--", flhost_program(), "bench", "--seconds", "0.001", "--json", "--dtype",
                       "bfloat16", "--dims", "bytes: 1000", "communicator");
  assert_quiet(run);
  json_t *report = parse_json(run.out, JSON_OBJECT);
  const json_t *whole = json_array_get(json_object_get(report, "rows"), 0),
               *parts = json_array_get(json_object_get(report, "rows"), 1);
  ck_assert_str_eq(text_at(report, "dtype"), "bfloat16");
  ck_assert_double_eq(number_at(whole, "bytes"), 1000);
  ck_assert_double_eq_tol(number_at(whole, "bus_bytes_per_s") / number_at(whole, "bytes_per_s"), 4.0 / 3, 1e-6);
  ck_assert_double_eq(number_at(parts, "bytes"), 996); /* three times 166 of 2 bytes */
  ck_assert_double_eq_tol(number_at(parts, "bus_bytes_per_s") / number_at(parts, "bytes_per_s"), 2.0 / 3, 1e-6);
}
END_TEST

START_TEST(sizes_that_make_no_sense_are_refused) {
  static const char *const wrong[] = {"n: 8", "bytes:", "bytes: 8,16", "bytes: 0", "bytes: -4", "bytes: 2147483648"};
  set_up_ranks();
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    outcome run = FLHOST("bench", "--dims", wrong[i], "communicator");
    assert_status(run, 2);
    assert_contains(run.err, "is not like 'bytes: 8 1024 1048576', of numbers from 1 to 1073741824");
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, begin_scenario, end_scenario);
  tcase_add_test(tests, ranks_of_a_program_come_together);
  tcase_add_test(tests, alone_a_program_is_rank_0_of_1);
  tcase_add_test(tests, ranks_of_other_launchers_meet_through_a_file);
  tcase_add_test(tests, ranks_of_mpirun_need_no_file);
  tcase_add_test(tests, what_makes_no_sense_in_the_environment_is_said);
  tcase_add_test(tests, each_rank_has_its_numbers);
  tcase_add_test(tests, when_one_fails_all_are_ended);
  tcase_add_test(tests, a_signal_to_the_command_ends_all);
  tcase_add_test(tests, what_cannot_be_started_is_said);
  tcase_add_test(tests, every_collective_is_verified);
  tcase_add_test(tests, verification_starts_ranks_itself);
  tcase_add_test(tests, what_is_wrong_with_a_communicator_is_told);
  tcase_add_test(tests, groups_that_are_not_kept_apart_are_told);
  tcase_add_test(tests, collectives_are_timed);
  tcase_add_test(tests, the_benchmark_starts_ranks_itself);
  tcase_add_test(tests, ranks_are_timed_as_threads);
  tcase_add_test(tests, of_three_ranks_the_parts_are_thirds);
  tcase_add_test(tests, sizes_that_make_no_sense_are_refused);
}

int main(void) {
  return run_suite("launch", add_tests, 60);
}
