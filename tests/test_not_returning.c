/*
 * Calls inside calls, and implementations that do not return: an exception, the end of the thread or a jump leaves
 * them. They have failed, with their name in words, and nothing waits for them for ever.
 */
#include "tests/misdeeds.h"

#include <dlfcn.h>
#include <setjmp.h>

/* -------------------------------------------------------------------------------------------- calls inside calls */

static fl_status calls_itself(void *self, fl_call *call) {
  next.calls++;
  fl_status status = fl_call_op(self, "op", call);
  return status ? fl_fail(call, status, "%s", fl_error_message()) : FL_OK;
}

static fl_host *host_of_loop(void) {
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {.size = sizeof op, .schema = copy_schema};
  ck_ok(fl_register_op(host, &op));
  register_as(host, "op", "default.loop", FL_KIND_DEFAULT, calls_itself, host);
  next = (second){0};
  return host;
}

START_TEST(an_op_that_calls_itself_ends_with_words) {
  fl_host *host = host_of_loop();
  for (int i = 0; i < 2; i++) {
    next.calls = 0;
    ck_assert_int_eq(call_on(host, kDLCPU), FL_EINTERNAL);
    ck_assert_int_eq(next.calls, 33); /* flhost/call.h */
    ck_contains(fl_error_message(),
                "op: not called: 33 calls are inside each other already, the most that may be: op > op > "
                "op > op > op > … > op > op > op > op");
    fl_clear_failed_impls(host, NULL);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_op_that_calls_itself_falls_back_where_it_cannot_go_deeper) {
  fl_host *host = host_of_loop();
  register_as(host, "op", "reference.good", FL_KIND_REFERENCE, does_nothing, NULL);
  ck_ok(call_on(host, kDLCPU)); /* the innermost falls back, and so all are well */
  ck_contains(test_log.text,
              "WARNING Implementation 'default.loop' failed for op 'op': op: not called: 33 calls are inside");
  fl_host_destroy(host);
}
END_TEST

static fl_status calls_many_leaves(void *self, fl_call *call) {
  for (int i = 0; i < 100; i++) {
    fl_status status = fl_call_op(self, "leaf", call);
    if (status)
      return status;
  }
  return FL_OK;
}

static fl_policy *reference_first(void) {
  fl_policy *policy;
  ck_ok(fl_policy_create(&(fl_policy_fields){.size = sizeof(fl_policy_fields), .prefer = "reference"}, &policy));
  return policy;
}

START_TEST(calls_one_after_the_other_inside_a_call_are_not_deep) {
  fl_host *host = host_of_loop();
  fl_op_def op = {.size = sizeof op, .schema = "leaf(Tensor x) -> Tensor out"};
  ck_ok(fl_register_op(host, &op));
  register_as(host, "leaf", "default.leaf", FL_KIND_DEFAULT, does_nothing, NULL);
  register_as(host, "op", "reference.many", FL_KIND_REFERENCE, calls_many_leaves, host);
  fl_policy *policy = reference_first();
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  ck_ok(call_on(host, kDLCPU));
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------- those that do not return */

static jmp_buf outside;

static fl_status ends_the_thread(fl_call *call) {
  (void)call;
  pthread_exit(NULL);
}

static fl_status jumps_out(fl_call *call) {
  (void)call;
  longjmp(outside, 1);
}

static void *call_in_thread(void *host) {
  call_on(host, kDLCPU);
  return host;
}

static void *jump_in_thread(void *host) {
  if (!setjmp(outside))
    call_on(host, kDLCPU);
  return NULL;
}

static void expect_blamed(fl_host *host, const char *words) {
  fl_failed_impls *failed;
  char line[256];
  ck_ok(fl_get_failed_impls(host, "op", &failed));
  ck_assert_uint_eq(failed->n, 1);
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->impl_id, "default.bad");
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->reason, words);
  fl_failed_impls_free(failed);
  snprintf(line, sizeof line, "WARNING Implementation 'default.bad' failed for op 'op': %s", words);
  ck_assert_int_eq(test_log_count(line), 1);
  /* Nothing is held any more. */
  ck_ok(call_on(host, kDLCPU));
  ck_assert_int_eq(next.calls, 1);
  ck_ok(fl_withdraw_plugin(host, "engine"));
}

/* On the short way, on that with copies, and where results are judged. */
static fl_host *host_for_way(int way, misdeed *deed) {
  fl_host *host = host_with(copy_schema, deed, run_second);
  fl_policy *policy;
  ck_ok(fl_policy_create(&(fl_policy_fields){.size = sizeof(fl_policy_fields), .preserve_inputs = way == 1}, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  return host;
}

START_TEST(an_implementation_that_ends_its_thread_has_failed_and_holds_nothing_up) {
  misdeed deed = ends_the_thread;
  pthread_t thread;
  void *result;
  fl_host *host = host_for_way(_i, &deed);
  ck_assert_int_eq(pthread_create(&thread, NULL, call_in_thread, host), 0);
  pthread_join(thread, &result);
  ck_assert_ptr_null(result);
  expect_blamed(host, "it did not return: an exception, or the thread's end, left it");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_thread_that_ends_after_a_jump_out_of_a_call_holds_nothing_up) {
  misdeed deed = jumps_out;
  pthread_t thread;
  fl_host *host = host_for_way(_i, &deed);
  ck_assert_int_eq(pthread_create(&thread, NULL, jump_in_thread, host), 0);
  pthread_join(thread, NULL);
  expect_blamed(host, "it did not return before its thread ended");
  fl_host_destroy(host);
}
END_TEST

/* tests/plugins/catches.cc */
static fl_status (*throws)(void *self, fl_call *call);
static int (*catches)(void (*call)(void *), void *user);

static void open_catches(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/plugins/lib/libcatches.so", build_dir());
  void *library = dlopen(path, RTLD_NOW);
  ck_assert_msg(library != NULL, "%s", dlerror());
  *(void **)&throws = dlsym(library, "throws");
  *(void **)&catches = dlsym(library, "catches");
}

static fl_status throws_on(fl_call *call) {
  return throws(NULL, call);
}

static void call_it(void *host) {
  call_on(host, kDLCPU);
}

START_TEST(an_exception_that_leaves_a_call_leaves_nothing_behind) {
  misdeed deed = throws_on;
  open_catches();
  fl_host *host = host_for_way(_i, &deed);
  ck_assert_int_eq(catches(call_it, host), 1);
  expect_blamed(host, "it did not return: an exception, or the thread's end, left it");
  fl_host_destroy(host);
}
END_TEST

static fl_status calls_inner(void *self, fl_call *call) {
  (void)call;
  call_on(self, kDLCPU);
  return FL_OK;
}

static void call_outer(void *host) {
  float x[4] = {0}, out[4];
  int64_t n = 4;
  DLTensor from = vector(x, &n, kDLCPU), to = vector(out, &n, kDLCPU);
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  fl_call_op(host, "outer", &call);
}

START_TEST(an_exception_through_calls_inside_calls_leaves_nothing_behind) {
  misdeed deed = throws_on;
  open_catches();
  fl_host *host = host_with(copy_schema, &deed, run_second);
  fl_op_def op = {.size = sizeof op, .schema = "outer(Tensor x) -> Tensor out"};
  ck_ok(fl_register_op(host, &op));
  register_as(host, "outer", "default.outer", FL_KIND_DEFAULT, calls_inner, host);
  for (int i = 0; i < 100; i++) { /* more often than calls may be deep */
    ck_assert_int_eq(catches(call_outer, host), 1);
    fl_clear_failed_impls(host, NULL);
  }
  deed = no_end_and_good;
  call_outer(host);
  ck_ok(fl_withdraw_plugin(host, "engine"));
  fl_host_destroy(host);
}
END_TEST

static pthread_barrier_t jumped, checked;

static void *jump_and_wait(void *host) {
  if (!setjmp(outside))
    call_on(host, kDLCPU);
  pthread_barrier_wait(&jumped);
  pthread_barrier_wait(&checked);
  return NULL;
}

START_TEST(D6_a_withdrawal_that_a_call_holds_up_ends_and_says_who) {
  misdeed deed = jumps_out;
  pthread_t thread;
  fl_host *host = host_for_way(_i, &deed);
  pthread_barrier_init(&jumped, NULL, 2);
  pthread_barrier_init(&checked, NULL, 2);
  ck_assert_int_eq(pthread_create(&thread, NULL, jump_and_wait, host), 0);
  pthread_barrier_wait(&jumped);
  ck_assert_int_eq(fl_withdraw_within(host, "engine", 0.1), FL_ESTATE);
  ck_contains(fl_error_message(),
              "plugin 'engine' is withdrawn, but its code may still run: after 0.1 seconds thread ");
  ck_contains(fl_error_message(), " has not left implementation 'default.bad' of op 'op'");
  ck_assert_int_eq(call_on(host, kDLCPU), FL_ENOIMPL); /* withdrawn it is */
  pthread_barrier_wait(&checked);
  pthread_join(thread, NULL);
  register_as(host, "op", "default.bad", FL_KIND_DEFAULT, does_nothing, NULL);
  ck_ok(call_on(host, kDLCPU));
  ck_ok(fl_withdraw_within(host, "engine", 0.1));
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_thread_that_jumped_out_of_a_call_goes_on_calling) {
  misdeed deed = jumps_out;
  fl_host *host = host_for_way(_i, &deed);
  for (volatile int i = 0; i < 100; i++) /* more often than calls may be deep */
    if (!setjmp(outside))
      call_on(host, kDLCPU);
  deed = no_end_and_good;
  ck_ok(call_on(host, kDLCPU));
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_call_that_was_jumped_out_of_ends_with_its_host) {
  misdeed deed = jumps_out, good = no_end_and_good;
  fl_host *volatile host = host_for_way(_i, &deed);
  if (!setjmp(outside))
    call_on(host, kDLCPU);
  fl_host_destroy(host);
  fl_host *another = host_for_way(_i, &good);
  ck_ok(call_on(another, kDLCPU));
  ck_ok(fl_withdraw_plugin(another, "engine"));
  fl_host_destroy(another);
}
END_TEST

START_TEST(a_thread_that_jumped_out_of_a_call_may_outlive_the_host) {
  misdeed deed = jumps_out;
  pthread_t thread;
  fl_host *host = host_for_way(_i, &deed);
  pthread_barrier_init(&jumped, NULL, 2);
  pthread_barrier_init(&checked, NULL, 2);
  ck_assert_int_eq(pthread_create(&thread, NULL, jump_and_wait, host), 0);
  pthread_barrier_wait(&jumped);
  fl_host_destroy(host);
  host = test_host(NULL, 0);
  test_op(host, "op");
  register_as(host, "op", "default.x", FL_KIND_DEFAULT, good_text, NULL);
  ck_assert_int_eq(fl_withdraw_within(host, "engine", 0.1), FL_ESTATE);
  ck_contains(fl_error_message(), " has not left a call in which no implementation runs");
  pthread_barrier_wait(&checked);
  pthread_join(thread, NULL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(changes_do_not_wait_for_ever_for_a_call_that_does_not_end) {
  misdeed deed = jumps_out;
  pthread_t thread;
  fl_host *host = host_for_way(0, &deed);
  pthread_barrier_init(&jumped, NULL, 2);
  pthread_barrier_init(&checked, NULL, 2);
  ck_assert_int_eq(pthread_create(&thread, NULL, jump_and_wait, host), 0);
  pthread_barrier_wait(&jumped);
  deed = no_end_and_good;
  for (int i = 0; i < 4200; i++) { /* more than are borne without waiting */
    ck_each(!call_on(host, kDLCPU), "%s", fl_error_message());
    fl_bump_policy_epoch(host);
  }
  pthread_barrier_wait(&checked);
  pthread_join(thread, NULL);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, an_op_that_calls_itself_ends_with_words);
  tcase_add_test(tests, an_op_that_calls_itself_falls_back_where_it_cannot_go_deeper);
  tcase_add_test(tests, calls_one_after_the_other_inside_a_call_are_not_deep);
  tcase_add_loop_test(tests, an_implementation_that_ends_its_thread_has_failed_and_holds_nothing_up, 0, 2);
  tcase_add_loop_test(tests, a_thread_that_ends_after_a_jump_out_of_a_call_holds_nothing_up, 0, 2);
  tcase_add_loop_test(tests, an_exception_that_leaves_a_call_leaves_nothing_behind, 0, 2);
  tcase_add_loop_test(tests, D6_a_withdrawal_that_a_call_holds_up_ends_and_says_who, 0, 2);
  tcase_add_loop_test(tests, a_thread_that_jumped_out_of_a_call_goes_on_calling, 0, 2);
  tcase_add_loop_test(tests, a_call_that_was_jumped_out_of_ends_with_its_host, 0, 2);
  tcase_add_loop_test(tests, a_thread_that_jumped_out_of_a_call_may_outlive_the_host, 0, 2);
  tcase_add_test(tests, changes_do_not_wait_for_ever_for_a_call_that_does_not_end);
  tcase_add_test(tests, an_exception_through_calls_inside_calls_leaves_nothing_behind);
}

int main(void) {
  return run_suite("not_returning", add_tests, 60);
}
