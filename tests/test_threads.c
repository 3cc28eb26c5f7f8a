/*
 * Many threads call while others register, withdraw, change policy, fail and fork. Each call checks that what ran was
 * allowed by a policy in force and was registered. Meant for the thread sanitizer too, so rounds are bounded by time.
 */
#include "core/support.h"
#include "fixture.h"
#include "tests/allocations.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* An implementation that knows whether it may be called. */
typedef struct live_impl {
  const char *id;
  _Atomic int registered; /* cleared only after fl_withdraw_plugin returned */
  _Atomic long calls, wrong;
  bool fails_now_and_then;
} live_impl;

static fl_status run(void *self, fl_call *call) {
  live_impl *impl = self;
  long n = ++impl->calls;
  if (!impl->registered)
    impl->wrong++;
  if (impl->fails_now_and_then && n % 7 == 0)
    return fl_fail(call, FL_EDEVICE, "now and then");
  call->values[0] = fl_string(impl->id);
  return FL_OK;
}

static void add(fl_host *host, live_impl *impl, fl_kind kind, const char *vendor) {
  fl_impl record = {.size = sizeof record,
                    .op_name = "op",
                    .impl_id = impl->id,
                    .kind = kind,
                    .vendor = vendor,
                    .devices = FL_DEVICE(kDLCPU),
                    .fn = run,
                    .self = impl};
  impl->registered = 1;
  ck_ok(fl_register_impl(host, &record));
}

typedef struct state {
  fl_host *host;
  fl_op *op;
  _Atomic bool stop;
  _Atomic long calls, errors, not_allowed;
  live_impl flagos, vendor, reference, transient;
} state;

static void *caller(void *argument) {
  state *s = argument;
  while (!s->stop) {
    fl_value values[] = {fl_none()};
    fl_call call = FL_CALL(values);
    if (fl_invoke(s->op, &call))
      s->errors++;
    s->calls++;
  }
  return NULL;
}

/* In a scope that prefers the reference, which never fails, nothing else may run. */
static void *scoped_caller(void *argument) {
  state *s = argument;
  while (!s->stop) {
    fl_scope scope;
    if (fl_scope_prefer(s->host, "reference", &scope))
      return argument;
    for (int i = 0; i < 20; i++) {
      fl_value values[] = {fl_none()};
      fl_call call = FL_CALL(values);
      if (fl_invoke(s->op, &call) || strcmp(values[0].v.s, "reference.c"))
        s->not_allowed++;
      s->calls++;
    }
    fl_scope_leave(&scope);
  }
  return NULL;
}

static state *start(uint32_t flags) {
  state *s = calloc(1, sizeof *s);
  s->host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, flags);
  test_op(s->host, "op");
  s->op = fl_find_op(s->host, "op");
  s->flagos.id = "default.flagos";
  s->vendor.id = "vendor.acme";
  s->reference.id = "reference.c";
  s->transient.id = "vendor.transient";
  add(s->host, &s->flagos, FL_KIND_DEFAULT, NULL);
  add(s->host, &s->vendor, FL_KIND_VENDOR, "acme");
  add(s->host, &s->reference, FL_KIND_REFERENCE, NULL);
  return s;
}

static void finish(state *s) {
  ck_assert_int_eq(s->flagos.wrong + s->vendor.wrong + s->reference.wrong + s->transient.wrong, 0);
  ck_assert_int_eq(s->not_allowed, 0);
  ck_assert_int_gt(s->calls, 0);
  fl_host_destroy(s->host);
  free(s);
}

static double run_time(void) {
  const char *text = getenv("FLHOST_STRESS_SECONDS");
  return text ? atof(text) : 0.7;
}

START_TEST(policy_changes_while_threads_call) {
  static const char *const prefer[] = {"flagos", "vendor", "reference"};
  state *s = start(0);
  pthread_t threads[3];
  fl_policy *policies[3];
  for (int i = 0; i < 3; i++) {
    fl_policy_fields fields = {.size = sizeof fields, .prefer = prefer[i]};
    ck_ok(fl_policy_create(&fields, &policies[i]));
  }
  for (int i = 0; i < 3; i++)
    pthread_create(&threads[i], NULL, i == 2 ? scoped_caller : caller, s);
  double end = seconds() + run_time();
  for (int i = 0; seconds() < end; i++)
    ck_ok(fl_set_global_policy(s->host, policies[i % 3]));
  s->stop = true;
  for (int i = 0; i < 3; i++) {
    pthread_join(threads[i], NULL);
    fl_policy_release(policies[i]);
  }
  ck_assert_int_eq(s->errors, 0);
  finish(s);
}
END_TEST

START_TEST(R4_D6_registering_and_withdrawing_while_threads_call) {
  state *s = start(0);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, caller, s);
  double end = seconds() + run_time();
  while (seconds() < end) {
    /* All of the engine's go and come: when fl_withdraw_plugin returns, none of them runs any more. */
    ck_ok(fl_withdraw_plugin(s->host, "engine"));
    s->flagos.registered = s->vendor.registered = s->reference.registered = 0;
    add(s->host, &s->reference, FL_KIND_REFERENCE, NULL);
    add(s->host, &s->vendor, FL_KIND_VENDOR, "acme");
    add(s->host, &s->flagos, FL_KIND_DEFAULT, NULL);
    sched_yield();
  }
  s->stop = true;
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  finish(s);
}
END_TEST

START_TEST(F4_failures_come_and_go_while_threads_call) {
  state *s = start(FL_HOST_STATISTICS);
  pthread_t threads[3];
  s->flagos.fails_now_and_then = true;
  for (int i = 0; i < 3; i++)
    pthread_create(&threads[i], NULL, i == 2 ? scoped_caller : caller, s);
  double end = seconds() + run_time();
  while (seconds() < end) {
    fl_failed_impls *failed;
    fl_counters counters = {.size = sizeof counters};
    fl_explanation *why;
    fl_clear_failed_impls(s->host, "op");
    ck_ok(fl_get_failed_impls(s->host, NULL, &failed));
    fl_failed_impls_free(failed);
    ck_ok(fl_get_counters(s->host, "op", "default.flagos", &counters));
    ck_ok(fl_explain(s->host, "op", kDLCPU, &why));
    fl_explanation_free(why);
    fl_bump_policy_epoch(s->host);
  }
  s->stop = true;
  for (int i = 0; i < 3; i++)
    pthread_join(threads[i], NULL);
  ck_assert_int_eq(s->errors, 0); /* another one took over each time */
  finish(s);
}
END_TEST

START_TEST(F8_counts_of_threads_that_ended_stay) {
  fl_counters counters = {.size = sizeof counters};
  state *s = start(FL_HOST_STATISTICS);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++)
    pthread_create(&threads[i], NULL, caller, s);
  while (s->calls < 1000)
    sched_yield();
  s->stop = true;
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  ck_ok(fl_get_counters(s->host, "op", "default.flagos", &counters));
  ck_assert_uint_eq(counters.calls, (uint64_t)s->calls);
  ck_assert_uint_eq(counters.calls, (uint64_t)s->flagos.calls);
  finish(s);
}
END_TEST

/* A value of the thread's whose destructor calls an op, also after the host's own destructor ran. */
typedef struct farewell {
  state *s;
  pthread_key_t key;
  _Atomic int calls, good;
} farewell;

static void call_at_the_end(void *argument) {
  farewell *f = argument;
  fl_value values[] = {fl_none()};
  fl_call call = FL_CALL(values);
  f->good += fl_invoke(f->s->op, &call) == FL_EDEVICE && !strcmp(fl_error_message(), "op: now and then");
  if (++f->calls < 2)
    pthread_setspecific(f->key, f);
}

static void *call_and_end(void *argument) {
  farewell *f = argument;
  fl_scope scope;
  if (fl_scope_strict(f->s->host, &scope))
    return NULL;
  fl_scope_leave(&scope);
  pthread_setspecific(f->key, f);
  return argument;
}

static fl_status fail_strictly(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EDEVICE, "now and then");
}

static void *call_without_memory(void *op) {
  fl_value out = fl_none();
  fl_call call = {.size = sizeof call, .count = 1, .values = &out};
  fl_status status = fl_thread_join(); /* what a thread needs to call at all */
  failing = allocations;
  if (!status)
    status = fl_invoke(op, &call);
  failing = -1;
  return (void *)(intptr_t)status;
}

/* A new thread that finds no room for its numbers. */
START_TEST(F8_a_call_is_counted_where_memory_is_short) {
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=ERROR", NULL}, FL_HOST_STATISTICS);
  live_impl impl = {.id = "default.flagos"};
  fl_counters counters = {.size = sizeof counters};
  pthread_t thread;
  void *status;
  test_op(host, "op");
  add(host, &impl, FL_KIND_DEFAULT, NULL);
  ck_ok(test_call(host, "op", NULL));
  ck_assert_int_eq(pthread_create(&thread, NULL, call_without_memory, fl_find_op(host, "op")), 0);
  ck_assert_int_eq(pthread_join(thread, &status), 0);
  ck_assert_ptr_null(status);
  ck_ok(fl_get_counters(host, "op", "default.flagos", &counters));
  ck_assert_uint_eq(counters.calls, 2);
  ck_ok(test_call(host, "op", NULL));
  ck_ok(fl_get_counters(host, "op", "default.flagos", &counters));
  ck_assert_uint_eq(counters.calls, 3);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_thread_may_call_ops_while_it_ends) {
  farewell f = {0};
  pthread_t thread;
  void *result;
  /* Destructors run in the order in which their keys were made: that of the error message's, this one's, the rest. */
  ck_assert_int_eq(fl_policy_create(NULL, &(fl_policy *){NULL}), FL_EINVAL);
  ck_assert_int_eq(pthread_key_create(&f.key, call_at_the_end), 0);
  f.s = start(0);
  fl_policy_fields fields = {.size = sizeof fields, .strict = true};
  fl_policy *strict;
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "op",
                  .impl_id = "default.zz",
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = fail_strictly};
  ck_ok(fl_register_impl(f.s->host, &impl));
  ck_ok(fl_policy_create(&fields, &strict));
  ck_ok(fl_set_global_policy(f.s->host, strict));
  fl_policy_release(strict);
  ck_assert_int_eq(pthread_create(&thread, NULL, call_and_end, &f), 0);
  pthread_join(thread, &result);
  ck_assert_ptr_eq(result, &f);
  ck_assert_int_eq(f.calls, 2);
  ck_assert_int_eq(f.good, 2);
  f.s->calls++;
  finish(f.s);
}
END_TEST

/* The thread sanitizer cannot start a thread in the child of a process that had several. */
#if defined(__SANITIZE_THREAD__)
enum { CHILD_MAY_START_THREADS = 0, CHILD_MAY_BE_HELD_UP = 0 };
#elif defined(__SANITIZE_ADDRESS__)
/* Where another thread held a lock of the sanitizer's own allocator, the child waits for it for ever. */
enum { CHILD_MAY_START_THREADS = 1, CHILD_MAY_BE_HELD_UP = 1 };
#else
enum { CHILD_MAY_START_THREADS = 1, CHILD_MAY_BE_HELD_UP = 0 };
#endif

/* In a child: calls work, with what the parent had registered, and forget its failures. */
static int child(state *s) {
  fl_failed_impls *failed;
  fl_value values[] = {fl_none()};
  fl_call call = FL_CALL(values);
  pthread_t thread;
  if (fl_get_failed_impls(s->host, NULL, &failed) || failed->n)
    return 2;
  fl_failed_impls_free(failed);
  for (int i = 0; i < 100; i++)
    if (fl_invoke(s->op, &call))
      return 3;
  s->stop = false;
  s->calls = 0;
  if (CHILD_MAY_START_THREADS) {
    if (pthread_create(&thread, NULL, caller, s))
      return 4;
    while (s->calls < 100)
      sched_yield();
    s->stop = true;
    pthread_join(thread, NULL);
  }
  if (fl_register_op(s->host, &(fl_op_def){.size = sizeof(fl_op_def), .schema = "new() -> str"}))
    return 5;
  if (fl_withdraw_plugin(s->host, "engine"))
    return 6;
  return 0;
}

/* Ends a child by a signal when it did well: what the threads that are gone had on their stacks is lost, which is no
 * leak for a leak checker to find. */
static void end_child(int failure) {
  signal(SIGUSR1, SIG_DFL);
  if (!failure)
    raise(SIGUSR1);
  _exit(failure);
}

START_TEST(X1_a_child_forked_in_the_middle_of_other_threads_calls_works) {
  state *s = start(FL_HOST_STATISTICS);
  pthread_t threads[2];
  fl_policy_fields fields = {.size = sizeof fields, .prefer = "vendor"};
  fl_policy *policy;
  ck_ok(fl_policy_create(&fields, &policy));
  s->flagos.fails_now_and_then = true;
  for (int i = 0; i < 2; i++)
    pthread_create(&threads[i], NULL, caller, s);
  double end = seconds() + run_time();
  int forks = 0;
  do {
    ck_ok(fl_set_global_policy(s->host, policy));
    ck_ok(fl_reset_global_policy(s->host));
    pid_t pid = fork();
    if (!pid) {
      signal(SIGALRM, SIG_DFL); /* Check's own ends the test with the child */
      alarm(CHILD_MAY_BE_HELD_UP ? 5 : 0);
      end_child(child(s));
    }
    int status = 0;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (CHILD_MAY_BE_HELD_UP && WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
      continue;
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1, "the child failed: status %x", (unsigned)status);
    forks++;
  } while (seconds() < end || !forks);
  s->stop = true;
  for (int i = 0; i < 2; i++)
    pthread_join(threads[i], NULL);
  fl_policy_release(policy);
  ck_assert_int_gt(forks, 0);
  finish(s);
}
END_TEST

static fl_status fork_inside(void *self, fl_call *call) {
  int status = 0;
  state *s = self;
  pid_t pid = fork();
  if (!pid) {
    /* Other ops, from inside the call that was running when the process forked. */
    const char *ran;
    _exit(test_call(s->host, "op", &ran) ? 1 : 0);
  }
  waitpid(pid, &status, 0);
  call->values[0] = fl_string("forked");
  return status ? FL_EINTERNAL : FL_OK;
}

START_TEST(X1_an_implementation_may_fork) {
  state *s = start(0);
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "forks",
                  .impl_id = "default.forks",
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = fork_inside,
                  .self = s};
  test_op(s->host, "forks");
  ck_ok(fl_register_impl(s->host, &impl));
  ck_ok(test_call(s->host, "forks", NULL));
  s->calls++;
  finish(s);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, policy_changes_while_threads_call);
  tcase_add_test(tests, R4_D6_registering_and_withdrawing_while_threads_call);
  tcase_add_test(tests, F4_failures_come_and_go_while_threads_call);
  tcase_add_test(tests, F8_counts_of_threads_that_ended_stay);
  tcase_add_test(tests, F8_a_call_is_counted_where_memory_is_short);
  tcase_add_test(tests, a_thread_may_call_ops_while_it_ends);
  tcase_add_test(tests, X1_a_child_forked_in_the_middle_of_other_threads_calls_works);
  tcase_add_test(tests, X1_an_implementation_may_fork);
}

int main(void) {
  return run_suite("threads", add_tests, 60);
}
