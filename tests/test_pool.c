/* The threads of kernels: every step is run once, by as many threads as the host says, whatever a step does, and after
 * a fork. */
#include "core/platform.h"
#include "core/threads.h"
#include "tests/fixture.h"
#include "tests/tasks.h"

#include <errno.h>
#include <fenv.h>
#include <flhost/testing.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---------------------------------------------------------------------------------------- a kernel that runs a loop */

enum { STEPS_MAX = 10000, PATIENCE = 10000000 /* microseconds */ };

typedef struct test_loop {
  int64_t n, grain;
  int meeting;                       /* so many threads have to be in steps at once; 0: as it comes */
  fl_status (*extra)(int64_t first); /* at each range; NULL */
  _Atomic int runs[STEPS_MAX];       /* of each step */
  _Atomic int present, ranges;       /* threads that came so far */
  _Atomic int64_t longest, last;     /* ranges: the longest; the one at the end */
  _Atomic pid_t threads[64];         /* these */
  fl_status status;
} test_loop;

static test_loop tested;

static void note_thread(test_loop *loop) {
  pid_t self = (pid_t)syscall(SYS_gettid);
  int n = atomic_load(&loop->present);
  for (int i = 0; i < n; i++)
    if (atomic_load(&loop->threads[i]) == self)
      return;
  atomic_store(&loop->threads[atomic_fetch_add(&loop->present, 1)], self);
}

static fl_status range(void *user, int64_t first, int64_t end) {
  test_loop *loop = user;
  bool is_whole =
      first < end && end <= loop->n && first % loop->grain == 0 && (end == loop->n || end % loop->grain == 0);
  if (!is_whole)
    return FL_EINTERNAL; /* ck_assert has a lock, which who forks meanwhile would find taken in the child */
  note_thread(loop);
  atomic_fetch_add(&loop->ranges, 1);
  for (int64_t most = atomic_load(&loop->longest); end - first > most;)
    if (atomic_compare_exchange_weak(&loop->longest, &most, end - first))
      break;
  if (end == loop->n)
    atomic_store(&loop->last, end - first);
  for (int i = 0; atomic_load(&loop->present) < loop->meeting && i < PATIENCE / 100; i++)
    usleep(100);
  for (int64_t i = first; i < end; i++)
    atomic_fetch_add(&loop->runs[i], 1);
  return loop->extra ? loop->extra(first) : FL_OK;
}

/* loop() -> str */
static fl_status kernel(void *self, fl_call *call) {
  test_loop *loop = self;
  call->values[0] = (fl_value){.type = FL_STRING, .v.s = "done"};
  return loop->status = fl_parallel_for(loop->n, loop->grain, range, loop);
}

static fl_host *host_with(const char *variable) {
  fl_host *host = test_host((const char *const[]){variable, NULL}, 0);
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "loop",
                        .impl_id = "default.loop",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = kernel,
                        .self = &tested};
  test_op(host, "loop");
  ck_ok(fl_register_impl(host, &impl));
  return host;
}

static fl_status run_loop(fl_host *host, int64_t n, int64_t grain) {
  fl_value values[1] = {fl_none()};
  fl_call call = FL_CALL(values);
  tested.n = n;
  tested.grain = grain;
  atomic_store(&tested.present, 0);
  atomic_store(&tested.ranges, 0);
  atomic_store(&tested.longest, 0);
  for (int i = 0; i < STEPS_MAX; i++)
    atomic_store(&tested.runs[i], 0);
  return fl_invoke(fl_find_op(host, "loop"), &call);
}

static void check_each_step_once(int64_t n) {
  for (int64_t i = 0; i < STEPS_MAX; i++)
    ck_each(atomic_load(&tested.runs[i]) == (i < n), "step %d of %d was run %d times", (int)i, (int)n,
            atomic_load(&tested.runs[i]));
}

static const char *const of_pool = "flhost";

/* ---------------------------------------------------------------------------------------------------------- steps */

START_TEST(X2_each_step_is_run_once_in_ranges_of_whole_grains) {
  static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, STEPS_MAX}, grains[] = {1, 3, 64, STEPS_MAX};
  char variable[64];
  for (int threads = 1; threads < 6; threads++) {
    snprintf(variable, sizeof variable, "VLLM_FL_CPU_THREADS=%d", threads);
    fl_host *host = host_with(variable);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      for (size_t j = 0; j < sizeof grains / sizeof *grains; j++) {
        ck_ok(run_loop(host, sizes[i], grains[j]));
        check_each_step_once(sizes[i]);
        ck_assert_int_le(atomic_load(&tested.present), threads);
      }
    fl_host_destroy(host);
  }
}
END_TEST

/* Half of a thread's share of what is left: at first of all, at last a grain. */
START_TEST(ranges_get_smaller_so_that_threads_end_together) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=4");
  ck_ok(run_loop(host, 3000, 3));
  check_each_step_once(3000);
  ck_assert_int_eq(atomic_load(&tested.longest), 375);
  ck_assert_int_eq(atomic_load(&tested.last), 3);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_loop_of_one_grain_stays_in_its_thread) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=4");
  ck_ok(run_loop(host, 100, 100));
  check_each_step_once(100);
  ck_assert_int_eq(atomic_load(&tested.ranges), 1);
  ck_assert_int_eq(atomic_load(&tested.threads[0]), getpid());
  check_threads(of_pool, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(X2_as_many_threads_as_the_host_says_meet) {
  fl_host *three = host_with("VLLM_FL_CPU_THREADS=3"), *two = host_with("VLLM_FL_CPU_THREADS=2");
  tested.meeting = 3;
  ck_ok(run_loop(three, 300, 1));
  check_each_step_once(300);
  ck_assert_int_eq(atomic_load(&tested.present), 3);
  /* The pool has three now: this host's loops have two. */
  tested.meeting = 2;
  ck_ok(run_loop(two, 300, 1));
  ck_assert_int_eq(atomic_load(&tested.present), 2);
  ck_assert_uint_eq(fl_thread_count(three), 3);
  ck_assert_uint_eq(fl_thread_count(two), 2);
  fl_host_destroy(three);
  check_threads(of_pool, 2);
  fl_host_destroy(two);
  check_threads(of_pool, 0);
}
END_TEST

START_TEST(the_first_call_of_an_op_has_the_hosts_number_too) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=1");
  ck_ok(run_loop(host, 300, 1));
  ck_assert_int_eq(atomic_load(&tested.present), 1);
  check_threads(of_pool, 0);
  fl_host_destroy(host);
}
END_TEST

/* looped(Tensor x) -> Tensor out */
static fl_status kernel_of_tensors(void *self, fl_call *call) {
  test_loop *loop = self;
  (void)call;
  return fl_parallel_for(loop->n, loop->grain, range, loop);
}

/* What a slot points to is another place after an op's first use, where calls are counted. */
START_TEST(later_calls_have_it_too_where_they_are_counted) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_CPU_THREADS=3", "VLLM_FL_STATISTICS=1", NULL}, 0);
  const fl_op_def op = {.size = sizeof op, .schema = "looped(Tensor x) -> Tensor out"};
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = "looped",
                        .impl_id = "default.loop",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .fn = kernel_of_tensors,
                        .self = &tested};
  ck_ok(fl_register_op(host, &op));
  ck_ok(fl_register_impl(host, &impl));
  float data[8] = {0};
  int64_t shape[] = {4};
  DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape}, out = x;
  out.data = data + 4;
  fl_value values[] = {fl_tensor(&x), fl_tensor(&out)};
  fl_call call = FL_CALL(values);
  for (int i = 0; i < 4; i++) {
    tested.n = 300;
    tested.grain = 1;
    tested.meeting = 3;
    atomic_store(&tested.present, 0);
    ck_ok(fl_invoke(fl_find_op(host, "looped"), &call));
    ck_assert_int_eq(atomic_load(&tested.present), 3);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(without_a_setting_it_is_openmps_else_the_cores) {
  static const struct {
    const char *variable;
    uint32_t n; /* 0: the cores */
  } cases[] = {{"OMP_NUM_THREADS=5", 5},
               {"OMP_NUM_THREADS=4,2", 4},
               {"OMP_NUM_THREADS=0", 0},
               {"OMP_NUM_THREADS=x", 0},
               {"OMP_NUM_THREADS=99999999999999999999", 1024},
               {"VLLM_FL_CPU_THREADS=0", 0}};
  fl_processors processors = fl_usable_processors();
  uint32_t cores = fl_usable_cores(&processors);
  ck_assert_uint_ge(cores, 1);
  ck_assert_uint_le(cores, (uint32_t)CPU_COUNT_S(processors.size, processors.set));
  CPU_FREE(processors.set);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_host *host = host_with(cases[i].variable);
    ck_assert_uint_eq(fl_thread_count(host), cases[i].n ? cases[i].n : cores);
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(a_process_that_is_bound_to_one_core_has_one_thread) {
  cpu_set_t one;
  ck_assert_int_eq(sched_getaffinity(0, sizeof one, &one), 0);
  for (int i = 0, n = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &one) && n++)
      CPU_CLR(i, &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=0");
  ck_assert_uint_eq(fl_thread_count(host), 1);
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------- what steps may do */

static fl_status fails_at_twenty(int64_t first) {
  return first >= 20 ? FL_EDEVICE : FL_OK;
}

START_TEST(the_first_error_ends_the_loop) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=2");
  tested.extra = fails_at_twenty;
  ck_assert_int_ne(run_loop(host, STEPS_MAX, 1), FL_OK);
  ck_assert_int_eq(tested.status, FL_EDEVICE);
  ck_assert_int_lt(atomic_load(&tested.ranges), 6); /* of eight */
  tested.extra = NULL;
  fl_host_destroy(host);
}
END_TEST

static _Atomic int inner_steps, inner_elsewhere;

static fl_status inner(void *user, int64_t first, int64_t end) {
  atomic_fetch_add(&inner_steps, (int)(end - first));
  atomic_fetch_add(&inner_elsewhere, *(pid_t *)user != (pid_t)syscall(SYS_gettid));
  return FL_OK;
}

static fl_status loops_itself(int64_t first) {
  pid_t self = (pid_t)syscall(SYS_gettid);
  (void)first;
  return fl_parallel_for(100, 1, inner, &self);
}

START_TEST(a_loop_in_a_loop_stays_in_its_thread) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=2");
  tested.meeting = 2;
  tested.extra = loops_itself;
  ck_ok(run_loop(host, 8, 1));
  ck_assert_int_eq(atomic_load(&inner_steps), 100 * atomic_load(&tested.ranges));
  ck_assert_int_eq(atomic_load(&inner_elsewhere), 0);
  fl_host_destroy(host);
}
END_TEST

static pthread_t caller;

static fl_status a_helper_ends_its_thread(int64_t first) {
  (void)first;
  if (!pthread_equal(pthread_self(), caller))
    pthread_exit(NULL);
  return FL_OK;
}

START_TEST(X2_a_thread_that_ends_in_a_step_is_an_error_and_is_replaced) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=2");
  caller = pthread_self();
  tested.meeting = 2;
  for (int i = 0; i < 3; i++) {
    tested.extra = a_helper_ends_its_thread;
    ck_assert_int_ne(run_loop(host, 100, 1), FL_OK);
    ck_assert_int_eq(tested.status, FL_EINTERNAL);
    tested.extra = NULL;
    fl_clear_failed_impls(host, NULL);
    ck_ok(run_loop(host, 100, 1));
    check_each_step_once(100);
  }
  fl_host_destroy(host);
  check_threads(of_pool, 0);
}
END_TEST

static fl_status the_caller_ends_its_thread(int64_t first) {
  (void)first;
  if (pthread_equal(pthread_self(), caller))
    pthread_exit(NULL);
  usleep(20000); /* is in the loop yet when the caller leaves */
  return FL_OK;
}

static void *call_and_end(void *host) {
  caller = pthread_self();
  run_loop(host, 100, 1);
  return host; /* it does not */
}

START_TEST(a_caller_that_ends_its_thread_waits_for_the_others) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=2");
  pthread_t thread;
  void *result = NULL;
  tested.meeting = 2;
  tested.extra = the_caller_ends_its_thread;
  ck_assert_int_eq(pthread_create(&thread, NULL, call_and_end, host), 0);
  ck_assert_int_eq(pthread_join(thread, &result), 0);
  ck_assert_ptr_null(result);
  tested.extra = NULL;
  fl_clear_failed_impls(host, NULL);
  ck_ok(run_loop(host, 100, 1));
  check_each_step_once(100);
  fl_host_destroy(host);
}
END_TEST

static _Atomic int other_modes;

static fl_status sees_the_mode(int64_t first) {
  (void)first;
  atomic_fetch_add(&other_modes, fegetround() != FE_UPWARD);
  return FL_OK;
}

START_TEST(steps_have_the_callers_floating_point_mode) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=2");
  tested.meeting = 2;
  tested.extra = sees_the_mode;
  fesetround(FE_UPWARD);
  ck_ok(run_loop(host, 8, 1));
  ck_assert_int_eq(fegetround(), FE_UPWARD);
  ck_assert_int_eq(atomic_load(&other_modes), 0);
  fesetround(FE_TONEAREST);
  ck_ok(run_loop(host, 8, 1));
  ck_assert_int_eq(atomic_load(&other_modes), atomic_load(&tested.ranges));
  fl_host_destroy(host);
}
END_TEST

static _Atomic int open_to_signals, misplaced;
static int callers_processor;

/* Helpers run where the process may, but not where the caller is. */
static fl_status sees_the_thread(int64_t first) {
  sigset_t blocked;
  cpu_set_t set, all;
  (void)first;
  if (pthread_equal(pthread_self(), caller))
    return FL_OK;
  pthread_sigmask(SIG_SETMASK, NULL, &blocked);
  atomic_fetch_add(&open_to_signals, !sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGCHLD));
  sched_getaffinity(0, sizeof set, &set);
  sched_getaffinity(getpid(), sizeof all, &all);
  CPU_CLR(callers_processor, &all);
  atomic_fetch_add(&misplaced, CPU_COUNT(&all) > 0 && !CPU_EQUAL(&set, &all));
  return FL_OK;
}

/* Engines bind the thread that calls to a core of its own. */
static void *call_from_one_core(void *host) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(callers_processor, &one);
  ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
  caller = pthread_self();
  tested.meeting = 2;
  tested.extra = sees_the_thread;
  ck_ok(run_loop(host, 8, 1));
  return NULL;
}

/* Also when the next caller is elsewhere, while the helper sleeps. */
START_TEST(threads_take_no_signals_and_run_where_the_process_may_but_not_where_the_caller_is) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=2");
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  for (int i = 0, n = 0; i < CPU_SETSIZE && n < 4; i++) {
    pthread_t thread;
    if (!CPU_ISSET(i, &all))
      continue;
    callers_processor = i;
    ck_assert_int_eq(pthread_create(&thread, NULL, call_from_one_core, host), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(atomic_load(&tested.present), 2);
    ck_assert_int_eq(atomic_load(&open_to_signals), 0);
    ck_assert_msg(!atomic_load(&misplaced), "called from processor %d", i);
    ck_assert_int_eq(come_to(1, of_pool, 'S'), 1); /* one that still looks for work is not moved */
    n++;
  }
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- several, fork */

typedef struct own_loop {
  _Atomic int64_t sum;
  pthread_t thread;
} own_loop;

static fl_status add(void *user, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; i++)
    atomic_fetch_add(&((own_loop *)user)->sum, i);
  return FL_OK;
}

static void *add_many_times(void *user) {
  for (int i = 0; i < rounds(2000); i++)
    ck_assert_int_eq(fl_parallel_for(100, 7, add, user), FL_OK);
  return NULL;
}

/* Without a host: as many as there are cores. */
START_TEST(several_threads_loop_at_once) {
  own_loop loops[4] = {0};
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(pthread_create(&loops[i].thread, NULL, add_many_times, &loops[i]), 0);
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(pthread_join(loops[i].thread, NULL), 0);
    ck_assert_int_eq(atomic_load(&loops[i].sum), (int64_t)rounds(2000) * 4950);
  }
  fl_threads_end();
}
END_TEST

static void check_child(pid_t child) {
  int status;
  ck_assert_int_gt(child, 0);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %d", status);
}

START_TEST(X2_a_forked_child_has_threads_of_its_own) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=3");
  tested.meeting = 3;
  ck_ok(run_loop(host, 300, 1));
  pid_t child = fork();
  if (!child) {
    bool right = !run_loop(host, 300, 1) && atomic_load(&tested.present) == 3;
    fl_host_destroy(host);
    _exit(right ? 0 : 1);
  }
  check_child(child);
  ck_ok(run_loop(host, 300, 1));
  check_each_step_once(300);
  fl_host_destroy(host);
}
END_TEST

static _Atomic pid_t forked;
static _Atomic bool has_forked;

static fl_status forks(int64_t first) {
  (void)first;
  if (pthread_equal(pthread_self(), caller) && !atomic_exchange(&has_forked, true))
    atomic_store(&forked, fork());
  return FL_OK;
}

/* The others of its loop are not in the child: what they had begun is not done there, and it says so. */
START_TEST(a_loop_in_which_the_process_forks_ends_in_both) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=2");
  caller = pthread_self();
  tested.meeting = 2;
  tested.extra = forks;
  fl_status status = run_loop(host, 100, 1);
  if (!atomic_load(&forked)) {
    tested.extra = NULL;
    fl_clear_failed_impls(host, NULL);
    bool right = !run_loop(host, 300, 1) && atomic_load(&tested.present) == 2;
    _exit(right ? 0 : 1);
  }
  ck_ok(status);
  check_each_step_once(100);
  check_child(atomic_load(&forked));
  fl_host_destroy(host);
}
END_TEST
/* ---------------------------------------------------------------------------------------------- an engine's threads */

static _Atomic int engine_runs;

static void *work_once(void *both) {
  void **pair = both;
  ((void (*)(void *))(uintptr_t)pair[0])(pair[1]);
  return NULL;
}

static uint32_t engine_threads;

static uint32_t count_engines(void *user) {
  (void)user;
  return engine_threads;
}

/* Makes a thread each time. */
static void run_in_two(void *user, void (*work)(void *data), void *data, uint32_t n) {
  void *pair[] = {(void *)(uintptr_t)work, data};
  pthread_t thread;
  ck_assert_uint_eq(n, 2);
  ck_assert_ptr_eq(user, &tested);
  atomic_fetch_add(&engine_runs, 1);
  ck_assert_int_eq(pthread_create(&thread, NULL, work_once, pair), 0);
  work(data);
  pthread_join(thread, NULL);
}

static void run_nothing(void *user, void (*work)(void *data), void *data, uint32_t n) {
  (void)user, (void)work, (void)data, (void)n;
  atomic_fetch_add(&engine_runs, 1);
}

START_TEST(X2_an_engines_threads_take_the_place_of_ours) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=4"), *openmp = host_with("OMP_NUM_THREADS=1");
  engine_threads = 2;
  ck_ok(fl_use_thread_pool(
      &(fl_thread_pool){.size = sizeof(fl_thread_pool), .count = count_engines, .run = run_in_two, .user = &tested}));
  ck_assert_uint_eq(fl_thread_count(host), 2);
  tested.meeting = 2;
  ck_ok(run_loop(host, 300, 1));
  check_each_step_once(300);
  ck_assert_int_eq(atomic_load(&engine_runs), 1);
  /* One that does nothing leaves it to the caller. */
  engine_threads = 8;
  tested.meeting = 0;
  ck_ok(fl_use_thread_pool(
      &(fl_thread_pool){.size = sizeof(fl_thread_pool), .count = count_engines, .run = run_nothing}));
  ck_assert_uint_eq(fl_thread_count(host), 4);
  ck_assert_uint_eq(fl_thread_count(openmp), 8);
  ck_ok(run_loop(host, 300, 1));
  check_each_step_once(300);
  ck_assert_int_eq(atomic_load(&engine_runs), 2);
  /* None at the moment. */
  engine_threads = 0;
  ck_assert_uint_eq(fl_thread_count(host), 1);
  ck_ok(run_loop(host, 300, 1));
  ck_assert_int_eq(atomic_load(&engine_runs), 2);
  /* Ours again. */
  tested.meeting = 4;
  ck_ok(fl_use_thread_pool(NULL));
  ck_ok(run_loop(host, 300, 1));
  ck_assert_int_eq(atomic_load(&engine_runs), 2);
  ck_assert_int_eq(atomic_load(&tested.present), 4);
  fl_host_destroy(openmp);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_pool_that_cannot_be_is_refused_with_words) {
  ck_assert_int_eq(fl_use_thread_pool(&(fl_thread_pool){.size = sizeof(fl_thread_pool), .count = count_engines}),
                   FL_EINVAL);
  ck_contains(fl_error_message(), "run is NULL");
  ck_assert_int_eq(fl_use_thread_pool(&(fl_thread_pool){.size = sizeof(fl_thread_pool), .run = run_nothing}),
                   FL_EINVAL);
  ck_contains(fl_error_message(), "count is NULL");
  ck_assert_int_eq(fl_use_thread_pool(&(fl_thread_pool){.size = 8, .count = count_engines}), FL_EINVAL);
  ck_contains(fl_error_message(), "fl_thread_pool");
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- shortage */

static bool no_threads;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *user) {
  return no_threads ? EAGAIN : __real_pthread_create(thread, attributes, run, user);
}

START_TEST(where_no_thread_can_be_made_the_caller_does_it_all) {
  fl_host *host = host_with("VLLM_FL_CPU_THREADS=4");
  no_threads = true;
  ck_ok(run_loop(host, 300, 1));
  check_each_step_once(300);
  ck_assert_int_eq(atomic_load(&tested.present), 1);
  no_threads = false;
  tested.meeting = 4;
  ck_ok(run_loop(host, 300, 1));
  ck_assert_int_eq(atomic_load(&tested.present), 4);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, X2_each_step_is_run_once_in_ranges_of_whole_grains);
  tcase_add_test(tests, ranges_get_smaller_so_that_threads_end_together);
  tcase_add_test(tests, a_loop_of_one_grain_stays_in_its_thread);
  tcase_add_test(tests, X2_as_many_threads_as_the_host_says_meet);
  tcase_add_test(tests, the_first_call_of_an_op_has_the_hosts_number_too);
  tcase_add_test(tests, later_calls_have_it_too_where_they_are_counted);
  tcase_add_test(tests, without_a_setting_it_is_openmps_else_the_cores);
  tcase_add_test(tests, a_process_that_is_bound_to_one_core_has_one_thread);
  tcase_add_test(tests, the_first_error_ends_the_loop);
  tcase_add_test(tests, a_loop_in_a_loop_stays_in_its_thread);
  tcase_add_test(tests, X2_a_thread_that_ends_in_a_step_is_an_error_and_is_replaced);
  tcase_add_test(tests, a_caller_that_ends_its_thread_waits_for_the_others);
  tcase_add_test(tests, steps_have_the_callers_floating_point_mode);
  tcase_add_test(tests, threads_take_no_signals_and_run_where_the_process_may_but_not_where_the_caller_is);
  tcase_add_test(tests, several_threads_loop_at_once);
  if (!is_sparse()) { /* tools take a child's new threads for those that the fork left behind, or hang */
    tcase_add_test(tests, X2_a_forked_child_has_threads_of_its_own);
    tcase_add_test(tests, a_loop_in_which_the_process_forks_ends_in_both);
  }
  tcase_add_test(tests, X2_an_engines_threads_take_the_place_of_ours);
  tcase_add_test(tests, a_pool_that_cannot_be_is_refused_with_words);
  tcase_add_test(tests, where_no_thread_can_be_made_the_caller_does_it_all);
}

int main(void) {
  return run_suite("pool", add_tests, 60);
}
