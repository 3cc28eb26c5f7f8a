/* Rules F: what happens when an implementation fails, and what is said about it. */
#include "four_impls.h"

#include <unistd.h>

START_TEST(F2_a_failure_is_warned_of_and_the_next_is_tried) {
  fl_host *host = host_with_four(NULL);
  fl_counters counters = {.size = sizeof counters};
  flagos.status = FL_EDEVICE;
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_assert_int_eq(test_log_count("WARNING Implementation 'default.flagos' failed for op 'op': E:default.flagos"), 1);
  ck_assert_int_eq(test_log_count("INFO Op 'op' fallback to 'vendor.cuda' (kind=vendor, vendor=cuda)"), 1);
  ck_ok(fl_get_counters(host, "op", "default.flagos", &counters));
  ck_assert_uint_eq(counters.failures, 1);
  ck_assert_uint_eq(counters.fallbacks_failed, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F2_when_all_fail_the_last_error_comes_back) {
  fl_host *host = host_with_four(NULL);
  flagos.status = cuda.status = ascend.status = FL_EDEVICE;
  reference.status = FL_ENOMEM;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOMEM);
  ck_assert_str_eq(fl_error_message(), "All 4 implementation(s) failed for op='op'. Last error: E:reference.torch");
  ck_assert_int_eq(test_log_count("ERROR Last implementation 'reference.torch' failed for op 'op': E:reference.torch"),
                   1);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(), "All implementations for op='op' have failed previously. Failed impl_ids: "
                                  "{'default.flagos', 'vendor.cuda', 'vendor.ascend', 'reference.torch'}");
  ck_contains(fl_error_message(), "\n  vendor.cuda: E:vendor.cuda");
  fl_host_destroy(host);
}
END_TEST

/* The failure is not lost where those behind it do not take the call. */
START_TEST(F2_a_failure_comes_back_when_the_rest_does_not_support_the_call) {
  fl_host *host = host_with_four(NULL);
  flagos.status = FL_ENOTSUP;
  cuda.status = FL_EDEVICE;
  ascend.status = reference.status = FL_ENOTSUP;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_int_eq(fl_error_status(), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "All 1 implementation(s) failed for op='op'. Last error: E:vendor.cuda"
                                       "\n  default.flagos: not supported: E:default.flagos"
                                       "\n  vendor.ascend: not supported: E:vendor.ascend"
                                       "\n  reference.torch: not supported: E:reference.torch");
  ck_assert_int_eq(test_log_count("ERROR Last implementation 'vendor.cuda' failed for op 'op': E:vendor.cuda"), 1);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL); /* S4: it is skipped now, and the error says so */
  ck_contains(fl_error_message(),
              "No implementation of op='op' supports these arguments; 'vendor.cuda' failed before:\n");
  ck_contains(fl_error_message(), "\n  vendor.cuda: failed before: E:vendor.cuda");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S4_whatever_is_left_out_is_listed) {
  fl_host *host = host_with_four(NULL);
  const char *const tokens[] = {"vendor"}, *const denied[] = {"ascend"};
  const fl_op_order order = {"op", tokens, 1};
  set_policy(host, (fl_policy_fields){.per_op = &order,
                                      .n_per_op = 1,
                                      .per_op_size = sizeof(fl_op_order),
                                      .deny_vendors = denied,
                                      .n_deny_vendors = 1});
  cuda.status = FL_ENOTSUP;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(), "\n  vendor.cuda: not supported: E:vendor.cuda");
  ck_contains(fl_error_message(), "\n  vendor.ascend: vendor 'ascend' is denied");
  ck_contains(fl_error_message(), "\n  default.flagos: no token of the order matches it: vendor");
  cuda.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(), "have failed previously. Failed impl_ids: {'vendor.cuda'}");
  ck_contains(fl_error_message(), "\n  vendor.ascend: vendor 'ascend' is denied");
  ck_contains(fl_error_message(), "\n  reference.torch: no token of the order matches it: vendor");
  fl_host_destroy(host);
}
END_TEST

START_TEST(F3_F7_strict_fails_at_once_with_the_winners_own_error_behind_the_op_and_remembers_nothing) {
  fl_failed_impls *failed;
  fl_host *host = host_with_four(NULL);
  set_policy(host, (fl_policy_fields){.strict = true});
  flagos.status = FL_EDEVICE;
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
    ck_assert_str_eq(fl_error_message(), "op: E:default.flagos");
    ck_assert_int_eq(fl_error_status(), FL_EDEVICE);
  }
  flagos.message = "";
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "Implementation 'default.flagos' failed for op 'op': FL_EDEVICE");
  ck_assert_int_eq(flagos.calls, 3);
  ck_assert_int_eq(cuda.calls, 0);
  ck_ok(fl_get_failed_impls(host, "op", &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  flagos.status = FL_OK;
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_number_that_is_no_status_is_named_where_there_is_no_other_reason) {
  fl_host *host = host_with_four(NULL);
  flagos.message = "";
  flagos.status = 77;
  ck_ok(test_call(host, "op", NULL));
  ck_contains(test_log.text, "WARNING Implementation 'default.flagos' failed for op 'op': it returned 77, which is no "
                             "status of an implementation\n");
  set_policy(host, (fl_policy_fields){.strict = true});
  fl_clear_failed_impls(host, NULL);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EINTERNAL);
  ck_assert_str_eq(fl_error_message(), "op: it returned 77, which is no status of an implementation");
  fl_host_destroy(host);
}
END_TEST

static fl_status call_another(void *self, fl_call *call) {
  fl_status status = test_call(self, "inner", NULL);
  return status ? fl_fail(call, status, "inner: %s", fl_error_message()) : FL_OK;
}

START_TEST(an_implementation_that_calls_another_op_may_pass_its_message_on) {
  fl_host *host = host_with_four(NULL);
  const fl_impl outer = {.size = sizeof outer,
                         .op_name = "outer",
                         .impl_id = "default.outer",
                         .kind = FL_KIND_DEFAULT,
                         .devices = FL_DEVICE_ANY,
                         .fn = call_another,
                         .self = host};
  test_op(host, "outer");
  test_op(host, "inner");
  test_register(host, "inner", &cuda, 0, false);
  ck_ok(fl_register_impl(host, &outer));
  ck_ok(test_call(host, "outer", NULL));
  cuda.status = FL_EINVAL;
  cuda.message = "alpha is 3";
  ck_assert_int_eq(test_call(host, "outer", NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "outer: inner: inner: alpha is 3");
  fl_host_destroy(host);
}
END_TEST

START_TEST(F3_strict_ignores_the_memory_of_failures) {
  fl_host *host = host_with_four(NULL);
  flagos.status = FL_EDEVICE;
  ck_assert_str_eq(called(host), "vendor.cuda");
  flagos.status = FL_OK;
  ck_assert_str_eq(called(host), "vendor.cuda");
  set_policy(host, (fl_policy_fields){.strict = true});
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(F4_a_failed_impl_is_skipped_until_cleared) {
  fl_failed_impls *failed;
  fl_host *host = host_with_four(NULL);
  flagos.status = FL_EDEVICE;
  called(host);
  flagos.status = FL_OK;
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_assert_int_eq(flagos.calls, 1);
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 1);
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->op, "op");
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->impl_id, "default.flagos");
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->reason, "E:default.flagos");
  ck_assert(fl_failed_impl_at(failed, 0)->retry_in > 0 && fl_failed_impl_at(failed, 0)->retry_in <= 1);
  fl_failed_impls_free(failed);
  fl_resolution resolution = {.size = sizeof resolution}; /* asking which one is best is another question */
  ck_ok(fl_resolve_op(host, "op", kDLCPU, &resolution));
  ck_assert_str_eq(resolution.impl_id, "default.flagos");
  fl_clear_failed_impls(host, "op");
  ck_assert_str_eq(called(host), "default.flagos");
  flagos.status = FL_EDEVICE;
  called(host);
  flagos.status = FL_OK;
  fl_bump_policy_epoch(host);
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(F4_it_is_tried_again_after_a_back_off_that_doubles) {
  char path[] = "/tmp/flhost-retry-XXXXXX", variable[64];
  int file = mkstemp(path);
  ck_assert_int_ge(file, 0);
  ck_assert_int_gt(dprintf(file, "retry_first_s: 0.5\nretry_max_s: 10\n"), 0); /* a busy machine stalls */
  close(file);
  snprintf(variable, sizeof variable, "VLLM_FL_CONFIG=%s", path);
  const char *const environment[] = {variable, NULL};
  fl_failed_impls *failed;
  fl_host *host = host_with_four(environment);
  flagos.status = FL_EDEVICE;
  called(host);
  called(host);
  ck_assert_int_eq(flagos.calls, 1);
  usleep(600000);
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_assert_int_eq(flagos.calls, 2); /* tried, failed again */
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert(fl_failed_impl_at(failed, 0)->retry_in > 0.5); /* twice as long now */
  fl_failed_impls_free(failed);
  usleep(1200000);
  flagos.status = FL_OK;
  ck_assert_str_eq(called(host), "default.flagos");
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  ck_assert_int_eq(test_log_count("INFO Implementation 'default.flagos' of op 'op' works again"), 1);
  fl_host_destroy(host);
  unlink(path);
}
END_TEST

START_TEST(F5_bad_arguments_return_at_once_and_are_held_against_nobody) {
  fl_failed_impls *failed;
  fl_host *host = host_with_four(NULL);
  fl_value none[1], two[] = {fl_int(1), fl_none()};
  fl_call too_many = FL_CALL(two), too_few = FL_CALL(none);
  too_few.count = 0;
  ck_assert_int_eq(fl_call_op(host, "op", &too_many), FL_EINVAL);
  ck_assert_int_eq(fl_call_op(host, "op", &too_few), FL_EINVAL);
  ck_assert_int_eq(flagos.calls, 0);
  flagos.status = FL_EINVAL; /* found by the implementation: an index out of range, say */
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "op: E:default.flagos");
  ck_assert_int_eq(cuda.calls, 0);
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  flagos.status = 4711; /* nothing that an implementation may return: counts as its failure */
  ck_assert_str_eq(called(host), "vendor.cuda");
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, F2_a_failure_is_warned_of_and_the_next_is_tried);
  tcase_add_test(tests, F2_when_all_fail_the_last_error_comes_back);
  tcase_add_test(tests, F2_a_failure_comes_back_when_the_rest_does_not_support_the_call);
  tcase_add_test(tests, S4_whatever_is_left_out_is_listed);
  tcase_add_test(tests, F3_F7_strict_fails_at_once_with_the_winners_own_error_behind_the_op_and_remembers_nothing);
  tcase_add_test(tests, a_number_that_is_no_status_is_named_where_there_is_no_other_reason);
  tcase_add_test(tests, an_implementation_that_calls_another_op_may_pass_its_message_on);
  tcase_add_test(tests, F3_strict_ignores_the_memory_of_failures);
  tcase_add_test(tests, F4_a_failed_impl_is_skipped_until_cleared);
  tcase_add_test(tests, F4_it_is_tried_again_after_a_back_off_that_doubles);
  tcase_add_test(tests, F5_bad_arguments_return_at_once_and_are_held_against_nobody);
}

int main(void) {
  return run_suite("fallback", add_tests, 30);
}
