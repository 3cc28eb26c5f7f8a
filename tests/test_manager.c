/* Rules S and F: which implementation runs, what happens when it fails, what is said about it. */
#include "fixture.h"

#include <flhost/vllm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RESOLVED "DEBUG [DISPATCH] Op 'op' -> "

static test_impl flagos, cuda, ascend, reference;

/* The four implementations of the peer's cases. */
static fl_host *host_with_four(const char *const *environment) {
  fl_host *host = test_host(environment, 0);
  flagos = (test_impl){.id = "default.flagos"};
  cuda = (test_impl){.id = "vendor.cuda"};
  ascend = (test_impl){.id = "vendor.ascend"};
  reference = (test_impl){.id = "reference.torch"};
  test_op(host, "op");
  test_register(host, "op", &flagos, 0, false);
  test_register(host, "op", &cuda, 0, false);
  test_register(host, "op", &ascend, 0, false);
  test_register(host, "op", &reference, 0, false);
  return host;
}

static const char *called(fl_host *host) {
  const char *ran;
  ck_ok(test_call(host, "op", &ran));
  return ran;
}

static void set_policy(fl_host *host, fl_policy_fields fields) {
  fl_policy *policy;
  fields.size = sizeof fields;
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
}

START_TEST(S2_the_winner_is_the_first_token_that_matches_then_priority_then_id) {
  static test_impl low = {.id = "vendor.a9"}, high = {.id = "vendor.a10"}, best = {.id = "vendor.zz"};
  fl_host *host = host_with_four(NULL);
  test_register(host, "op", &low, 0, false);
  test_register(host, "op", &high, 0, false);
  set_policy(host, (fl_policy_fields){.prefer = "vendor"});
  ck_assert_str_eq(called(host), "vendor.cuda"); /* 100 all: bytewise descending */
  test_register(host, "op", &best, 99, false);
  ck_assert_str_eq(called(host), "vendor.cuda");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S2_priority_never_crosses_tokens) {
  static test_impl loud = {.id = "reference.loud"};
  fl_host *host = host_with_four(NULL);
  test_register(host, "op", &loud, 999, false);
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P3_a_token_that_is_not_listed_is_never_tried) {
  static const char *const tokens[] = {"vendor:ascend", "flagos"};
  static const fl_op_order order = {"op", tokens, 2};
  fl_host *host = host_with_four(NULL);
  set_policy(host, (fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)});
  ck_assert_str_eq(called(host), "vendor.ascend");
  ascend.status = flagos.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "All 2 implementation(s) failed for op='op'. Last error: E:default.flagos");
  ck_assert_int_eq(cuda.calls + reference.calls, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_a_candidate_that_does_not_support_the_call_is_passed_over) {
  static test_impl odd = {.id = "default.zz_odd", .unsupported = true};
  fl_counters counters = {.size = sizeof counters};
  fl_host *host = host_with_four(NULL);
  test_register(host, "op", &odd, 200, true);
  ck_assert_str_eq(called(host), "default.flagos");
  ck_assert_int_eq(odd.calls, 0);
  ck_ok(fl_get_counters(host, "op", "default.zz_odd", &counters));
  ck_assert_uint_eq(counters.fallbacks_not_supported, 1);
  odd.unsupported = false;
  ck_assert_str_eq(called(host), "default.zz_odd");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_when_none_supports_the_call_each_says_why) {
  static test_impl odd = {.id = "default.odd", .unsupported = true},
                   late = {.id = "reference.late", .status = FL_ENOTSUP};
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  test_register(host, "op", &odd, 0, true);
  test_register(host, "op", &late, 0, false);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_assert_str_eq(fl_error_message(), "No implementation of op='op' supports these arguments:\n"
                                       "  default.odd: not supported: odd sizes only\n"
                                       "  reference.late: not supported: E:reference.late");
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0); /* F5: not supported is no failure */
  fl_failed_impls_free(failed);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S4_errors_keep_the_words_that_callers_rely_on) {
  static const char *const tokens[] = {"vendor:nobody"};
  static const fl_op_order order = {"op", tokens, 1};
  fl_host *host = host_with_four(NULL);
  set_policy(host, (fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)});
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(),
              "No implementation selected for op='op'. Candidates: ['default.flagos', 'vendor.cuda', "
              "'vendor.ascend', 'reference.torch'], Order: ['vendor:nobody']\n");
  ck_contains(fl_error_message(), "\n  vendor.cuda: no token of the order matches it: vendor:nobody");
  set_policy(host,
             (fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order), .strict = true});
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(), "No implementation available for op='op' under strict policy. Candidates: [");
  flagos.unavailable = cuda.unavailable = ascend.unavailable = reference.unavailable = true;
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(),
              "No available implementation for op='op'. Registered: ['default.flagos', 'vendor.cuda', "
              "'vendor.ascend', 'reference.torch']\n");
  ck_contains(fl_error_message(), "default.flagos: not available: no such device here");
  test_op(host, "rms_nor");
  ck_assert_int_eq(test_call(host, "rms_nor", NULL), FL_ENOIMPL); /* without implementation */
  ck_assert_str_eq(fl_error_message(), "No available implementation for op='rms_nor'. Registered: []");
  ck_assert_int_eq(test_call(host, "rms_nrom", NULL), FL_ENOENT); /* unknown */
  ck_assert_str_eq(fl_error_message(), "No available implementation for op='rms_nrom'. Registered: []\n"
                                       "  no op 'rms_nrom'; did you mean 'rms_norm'?");
  fl_resolution resolution = {.size = sizeof resolution};
  ck_assert_int_eq(fl_resolve_op(host, "nope", kDLCPU, &resolution), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(),
                   "No available implementation for op='nope'. Registered: []\n  no op 'nope'; did you mean 'op'?");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S5_an_error_is_not_cached) {
  fl_host *host = host_with_four(NULL);
  flagos.unavailable = cuda.unavailable = ascend.unavailable = reference.unavailable = true;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  reference.unavailable = false;
  fl_bump_policy_epoch(host);
  ck_assert_str_eq(called(host), "reference.torch");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S5_what_was_resolved_is_kept_until_something_changes) {
  static const char *const environment[] = {"VLLM_FL_DISPATCH_DEBUG=1", "VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  static test_impl late = {.id = "default.late"};
  fl_scope scope;
  fl_host *host = host_with_four(environment);
  for (int i = 0; i < 3; i++)
    called(host);
  ck_assert_int_eq(test_log_count(RESOLVED "'default.flagos' (kind=flagos)"), 1);
  ck_ok(fl_scope_prefer(host, "vendor", &scope)); /* another policy, of this thread */
  for (int i = 0; i < 3; i++)
    called(host);
  ck_assert_int_eq(test_log_count(RESOLVED "'vendor.cuda' (kind=vendor, vendor=cuda)"), 1);
  ck_ok(fl_scope_leave(&scope));
  test_register(host, "op", &late, 200, false);
  for (int i = 0; i < 3; i++)
    called(host);
  ck_assert_int_eq(test_log_count(RESOLVED "'default.late' (kind=flagos)"), 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F1_first_use_and_each_change_are_logged_once) {
  fl_host *host = host_with_four(NULL);
  for (int i = 0; i < 5; i++)
    called(host);
  ck_assert_int_eq(test_log_count("INFO Op 'op' using 'default.flagos' (kind=flagos, vendor=None)"), 1);
  set_policy(host, (fl_policy_fields){.prefer = "vendor"});
  for (int i = 0; i < 5; i++)
    called(host);
  ck_assert_int_eq(
      test_log_count("INFO Op 'op' switched from 'default.flagos' to 'vendor.cuda' (kind=vendor, vendor=cuda)"), 1);
  ck_ok(fl_resolve_op(host, "op", kDLCPU, &(fl_resolution){.size = sizeof(fl_resolution)}));
  ck_assert_int_eq(test_log_count("INFO Op 'op' using 'default.flagos' (kind=flagos, vendor=None)"), 1);
  fl_host_destroy(host);
}
END_TEST

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
  ck_assert_int_gt(dprintf(file, "retry_first_s: 0.05\nretry_max_s: 10\n"), 0);
  close(file);
  snprintf(variable, sizeof variable, "VLLM_FL_CONFIG=%s", path);
  const char *const environment[] = {variable, NULL};
  fl_failed_impls *failed;
  fl_host *host = host_with_four(environment);
  flagos.status = FL_EDEVICE;
  called(host);
  called(host);
  ck_assert_int_eq(flagos.calls, 1);
  nanosleep(&(struct timespec){.tv_nsec = 70000000}, NULL);
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_assert_int_eq(flagos.calls, 2); /* tried, failed again */
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert(fl_failed_impl_at(failed, 0)->retry_in > 0.05); /* twice as long now */
  fl_failed_impls_free(failed);
  nanosleep(&(struct timespec){.tv_nsec = 120000000}, NULL);
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

/* An op that works in place: "twice(Tensor(a!) x) -> Tensor(a) out". */
typedef struct twice_impl {
  bool fails_half_way;
  int calls;
} twice_impl;

static fl_status twice(void *self, fl_call *call) {
  twice_impl *impl = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  float *to = fl_data(out);
  const float *from = fl_data(x);
  impl->calls++;
  for (int64_t i = 0; i < x->shape[0]; i++) {
    if (impl->fails_half_way && i == x->shape[0] / 2)
      return fl_fail(call, FL_EDEVICE, "lost the device");
    to[i] = from[i] * 2;
  }
  return FL_OK;
}

static fl_status twice_in_place_only(void *self, fl_call *call) {
  twice_impl *impl = self;
  ck_assert_ptr_eq(call->values[0].v.tensor->data, call->values[1].v.tensor->data);
  return twice(impl, call);
}

static fl_host *host_with_twice(twice_impl *best, twice_impl *next, uint32_t flags) {
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {.size = sizeof op, .schema = "twice(Tensor(a!) x) -> Tensor(a) out"};
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "twice",
                  .impl_id = "default.best",
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .flags = flags,
                  .fn = flags & FL_IMPL_INPLACE_ONLY ? twice_in_place_only : twice,
                  .self = best};
  ck_ok(fl_register_op(host, &op));
  ck_ok(fl_register_impl(host, &impl));
  impl.impl_id = "reference.next";
  impl.kind = FL_KIND_REFERENCE;
  impl.flags = 0;
  impl.fn = twice;
  impl.self = next;
  ck_ok(fl_register_impl(host, &impl));
  return host;
}

static DLTensor vector(float *data, int64_t *n) {
  return (DLTensor){.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = n};
}

static fl_status call_twice(fl_host *host, float *x, float *out, int64_t n) {
  DLTensor from = vector(x, &n), to = vector(out, &n);
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, "twice", &call);
}

START_TEST(F6_a_fallback_computes_from_the_callers_input) {
  twice_impl best = {.fails_half_way = true}, next = {0};
  float x[] = {1, 2, 3, 4}, out[4];
  fl_host *host = host_with_twice(&best, &next, 0);
  ck_ok(call_twice(host, x, out, 4));
  ck_assert(out[0] == 2 && out[3] == 8 && x[0] == 1);
  ck_assert_int_eq(best.calls, 1);
  ck_assert_int_eq(next.calls, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F6_in_place_the_failure_is_reported_not_computed_over) {
  twice_impl best = {.fails_half_way = true}, next = {0};
  float x[] = {1, 2, 3, 4};
  fl_host *host = host_with_twice(&best, &next, 0);
  ck_assert_int_eq(call_twice(host, x, x, 4), FL_EDEVICE);
  ck_assert_int_eq(next.calls, 0);
  ck_contains(fl_error_message(), "lost the device");
  ck_contains(fl_error_message(), "may have overwritten 'x' in place");
  ck_contains(fl_error_message(), "preserve_inputs");
  fl_host_destroy(host);
}
END_TEST

START_TEST(F6_preserve_inputs_keeps_a_copy) {
  twice_impl best = {.fails_half_way = true}, next = {0};
  float x[] = {1, 2, 3, 4};
  fl_host *host = host_with_twice(&best, &next, 0);
  set_policy(host, (fl_policy_fields){.preserve_inputs = true});
  ck_ok(call_twice(host, x, x, 4));
  ck_assert(x[0] == 2 && x[1] == 4 && x[2] == 6 && x[3] == 8);
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_impl_that_works_only_in_place_is_offered_functionally) {
  twice_impl best = {0}, next = {0};
  float x[] = {1, 2, 3, 4}, out[4] = {0};
  fl_host *host = host_with_twice(&best, &next, FL_IMPL_INPLACE_ONLY);
  ck_ok(call_twice(host, x, out, 4));
  ck_assert(out[3] == 8 && x[3] == 4);
  ck_ok(call_twice(host, x, x, 4));
  ck_assert(x[3] == 8);
  ck_assert_int_eq(best.calls, 2);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S1_a_tensor_never_reaches_an_impl_of_another_device) {
  twice_impl best = {0}, next = {0};
  int64_t n = 1;
  float x[1] = {1}, y[1];
  fl_host *host = host_with_twice(&best, &next, 0);
  DLTensor from = vector(x, &n), to = vector(y, &n);
  from.device.device_type = to.device.device_type = kDLCUDA;
  fl_value values[] = {fl_tensor(&from), fl_tensor(&to)};
  fl_call call = FL_CALL(values);
  ck_assert_int_eq(fl_call_op(host, "twice", &call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "default.best: works on cpu, the tensors are on cuda");
  to.device.device_type = kDLCPU;
  ck_assert_int_eq(fl_call_op(host, "twice", &call), FL_EINVAL);
  ck_assert_int_eq(best.calls + next.calls, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(dtypes_that_an_impl_declares_are_a_condition) {
  twice_impl best = {0}, next = {0};
  float x[] = {1}, out[1];
  fl_host *host = host_with_twice(&best, &next, 0);
  fl_impl half = {.size = sizeof half,
                  .op_name = "twice",
                  .impl_id = "default.half",
                  .kind = FL_KIND_DEFAULT,
                  .priority = 500,
                  .devices = FL_DEVICE(kDLCPU),
                  .dtypes = FL_FLOAT16,
                  .fn = twice,
                  .self = &best};
  ck_ok(fl_register_impl(host, &half));
  ck_ok(call_twice(host, x, out, 1));
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, "twice", "default.half", &counters));
  ck_assert_uint_eq(counters.fallbacks_not_supported, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F8_calls_are_counted_when_statistics_are_on) {
  static test_impl impl = {.id = "default.x"};
  fl_counters counters = {.size = sizeof counters};
  fl_host *host = test_host(NULL, FL_HOST_STATISTICS);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  for (int i = 0; i < 7; i++)
    called(host);
  ck_ok(fl_get_counters(host, "op", "default.x", &counters));
  ck_assert_uint_eq(counters.calls, 7);
  ck_assert_int_eq(fl_get_counters(host, "op", "default.y", &counters), FL_ENOENT);
  ck_contains(fl_error_message(), "default.y");
  fl_host_destroy(host);
  /* A new host starts from nought. */
  host = test_host(NULL, FL_HOST_STATISTICS);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  called(host);
  ck_ok(fl_get_counters(host, "op", "default.x", &counters));
  ck_assert_uint_eq(counters.calls, 1);
  fl_host_destroy(host);
}
END_TEST

/* In the child: 0 if neither failures nor counts of the parent are left. */
static int inherited(fl_host *host) {
  fl_failed_impls *failed;
  fl_counters counters = {.size = sizeof counters};
  if (fl_get_failed_impls(host, NULL, &failed) || failed->n)
    return 1;
  fl_failed_impls_free(failed);
  if (fl_get_counters(host, "op", "default.flagos", &counters) || counters.failures || counters.fallbacks_failed)
    return 2;
  return strcmp(called(host), "default.flagos") ? 3 : 0;
}

START_TEST(X1_a_child_begins_without_failures_and_counts) {
  fl_counters counters = {.size = sizeof counters};
  int status = 0;
  fl_host *host = host_with_four(NULL);
  flagos.status = FL_EDEVICE;
  called(host);
  flagos.status = FL_OK;
  pid_t pid = fork();
  if (!pid)
    _exit(inherited(host));
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the child's status is %x", (unsigned)status);
  ck_assert_str_eq(called(host), "vendor.cuda"); /* the parent has them still */
  ck_ok(fl_get_counters(host, "op", "default.flagos", &counters));
  ck_assert_uint_eq(counters.failures, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(explain_gives_order_verdict_and_reason_of_every_impl) {
  static const char *const environment[] = {"VLLM_FL_DENY_VENDORS=cuda", "VLLM_FL_PREFER=vendor", NULL};
  fl_explanation *why;
  fl_host *host = host_with_four(environment);
  reference.unavailable = true;
  ck_ok(fl_explain(host, "op", kDLCPU, &why));
  ck_assert_str_eq(why->selected, "vendor.ascend");
  ck_assert_uint_eq(why->n_order, 3);
  ck_assert_str_eq(why->order[0], "vendor");
  ck_assert_str_eq(why->order_origin, "prefer vendor: VLLM_FL_PREFER");
  static const char *const ids[] = {"vendor.ascend", "default.flagos", "vendor.cuda", "reference.torch"};
  static const fl_verdict verdicts[] = {FL_SELECTED, FL_CANDIDATE, FL_REJECTED, FL_REJECTED};
  for (int i = 0; i < 4; i++) {
    ck_assert_str_eq(fl_explained_at(why, i)->impl_id, ids[i]);
    ck_assert_int_eq(fl_explained_at(why, i)->verdict, verdicts[i]);
  }
  ck_assert_str_eq(fl_explained_at(why, 2)->reason, "vendor 'cuda' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)");
  ck_contains(fl_explained_at(why, 3)->reason, "not available: no such device here");
  fl_explanation_free(why);
  fl_host_destroy(host);
}
END_TEST

START_TEST(PREFER_ENABLED_off_runs_the_reference_else_the_vendor) {
  static const char *const environment[] = {"VLLM_FL_PREFER_ENABLED=false", "VLLM_FL_DENY_VENDORS=only", NULL};
  static test_impl only = {.id = "vendor.only"};
  const char *ran;
  fl_host *host = host_with_four(environment);
  ck_assert_str_eq(called(host), "reference.torch");
  test_op(host, "without_reference");
  test_register(host, "without_reference", &only, 0, false);
  ck_ok(test_call(host, "without_reference", &ran));
  ck_assert_str_eq(ran, "vendor.only");
  fl_host_destroy(host);
}
END_TEST

/* The tensors' device counts: a reference for the CPU is none for what lies on a GPU. */
START_TEST(PREFER_ENABLED_off_runs_the_vendors_where_no_reference_is_for_the_device) {
  static const char *const off[][2] = {{"VLLM_FL_PREFER_ENABLED=false", NULL}, {"VLLM_FL_CUSTOM_OPS=none", NULL}};
  fl_impl impls[] = {
      {.impl_id = "reference.c", .kind = FL_KIND_REFERENCE, .devices = FL_DEVICE(kDLCPU)},
      {.impl_id = "vendor.acme", .kind = FL_KIND_VENDOR, .vendor = "acme", .devices = FL_DEVICE(kDLCUDA)},
  };
  for (size_t i = 0; i < 2; i++) {
    fl_resolution found = {.size = sizeof found};
    fl_op_def op = {.size = sizeof op, .schema = "on_device(Tensor x) -> Tensor"};
    fl_host *host = test_host(off[i], 0);
    ck_ok(fl_register_op(host, &op));
    for (size_t j = 0; j < 2; j++) {
      impls[j].size = sizeof impls[j];
      impls[j].op_name = "on_device";
      impls[j].fn = (fl_kernel_fn)(void *)abort;
      ck_ok(fl_register_impl(host, &impls[j]));
    }
    ck_ok(fl_resolve_op(host, "on_device", kDLCUDA, &found));
    ck_assert_str_eq(found.impl_id, "vendor.acme");
    ck_ok(fl_resolve_op(host, "on_device", kDLCPU, &found));
    ck_assert_str_eq(found.impl_id, "reference.c");
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(L3_a_listed_op_does_not_use_kind_default_and_explain_names_the_list) {
  static const char *const environment[] = {"VLLM_FL_FLAGOS_BLACKLIST=op", NULL};
  fl_explanation *why;
  fl_host *host = host_with_four(environment);
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_assert(!fl_is_flagos_allowed(host, "op"));
  ck_assert(fl_is_flagos_allowed(host, "rms_norm"));
  ck_ok(fl_explain(host, "op", kDLCPU, &why));
  for (uint32_t i = 0; i < why->n_impls; i++)
    if (!strcmp(fl_explained_at(why, i)->impl_id, "default.flagos"))
      ck_contains(fl_explained_at(why, i)->reason, "VLLM_FL_FLAGOS_BLACKLIST");
  fl_explanation_free(why);
  fl_host_destroy(host);
}
END_TEST

START_TEST(custom_ops_off_runs_the_reference) {
  static const char *const environment[] = {"VLLM_FL_CUSTOM_OPS=all,-op", NULL};
  fl_host *host = host_with_four(environment);
  ck_assert_str_eq(called(host), "reference.torch");
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_oplist_file_lists_kind_default_once_and_never_through_a_link) {
  char directory[] = "/tmp/flhost-oplist-XXXXXX", path[64], link[64], variable[128], text[256] = "";
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/list", directory);
  snprintf(link, sizeof link, "%s/link", directory);
  snprintf(variable, sizeof variable, "FLAGGEMS_ENABLE_OPLIST_PATH=%s", path);
  const char *const environment[] = {variable, NULL};
  fl_host *host = host_with_four(environment);
  called(host);
  set_policy(host, (fl_policy_fields){.prefer = "vendor"});
  called(host);
  set_policy(host, (fl_policy_fields){.prefer = "flagos"});
  called(host);
  fl_host_destroy(host);
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 0);
  fclose(file);
  ck_assert_str_eq(text, "[DEBUG] vllm_fl.dispatch.ops.op: default.flagos\n");
  ck_assert_int_eq(symlink("list", link), 0);
  snprintf(variable, sizeof variable, "FLAGGEMS_ENABLE_OPLIST_PATH=%s", link);
  host = host_with_four(environment);
  called(host);
  fl_host_destroy(host);
  ck_contains(test_log.text, "FLAGGEMS_ENABLE_OPLIST_PATH: cannot write");
  unlink(link);
  ck_assert_int_eq(mkfifo(link, 0600), 0); /* that nobody reads */
  host = host_with_four(environment);
  called(host);
  fl_host_destroy(host);
  ck_contains(test_log.text, "FLAGGEMS_ENABLE_OPLIST_PATH: cannot write");
  unlink(link);
  unlink(path);
  rmdir(directory);
}
END_TEST

START_TEST(without_argument_checks_a_call_is_not_judged) {
  static test_impl impl = {.id = "default.x"};
  fl_host *host = test_host(NULL, FL_HOST_NO_ARGUMENT_CHECKS);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  fl_value values[] = {fl_int(1), fl_none()}; /* one too many */
  fl_call call = FL_CALL(values);
  ck_ok(fl_call_op(host, "op", &call));
  ck_assert_int_eq(fl_check(fl_find_op(host, "op"), &call), FL_EINVAL); /* unless one asks */
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_null_op_a_null_call_and_one_without_size_are_errors) {
  fl_value values[] = {fl_none()};
  fl_call call = FL_CALL(values);
  fl_cost cost = {.size = sizeof cost};
  size_t size;
  ck_assert_int_eq(fl_invoke(NULL, &call), FL_ENOENT);
  ck_assert_int_eq(fl_workspace_size(NULL, &call, &size), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "fl_workspace_size: the op is NULL");
  fl_host *host = host_with_four(NULL);
  fl_op *op = fl_find_op(host, "op");
  ck_assert_int_eq(fl_invoke(op, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "op: the call is a null pointer, expected a fl_call");
  ck_assert_int_eq(fl_check(op, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_infer(op, NULL, NULL, 0, sizeof(fl_tensor_spec)), FL_EINVAL);
  ck_assert_int_eq(fl_op_cost(op, NULL, &cost), FL_EINVAL);
  ck_assert_int_eq(fl_workspace_size(op, NULL, &size), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "op: the call is a null pointer, expected a fl_call");
  call.size = 12;
  ck_assert_int_eq(fl_invoke(op, &call), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "op: the call's size is 12 bytes, expected at least 16: use FL_CALL or set .size = sizeof(fl_call)");
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, S1_a_tensor_never_reaches_an_impl_of_another_device);
  tcase_add_test(tests, S2_the_winner_is_the_first_token_that_matches_then_priority_then_id);
  tcase_add_test(tests, S2_priority_never_crosses_tokens);
  tcase_add_test(tests, P3_a_token_that_is_not_listed_is_never_tried);
  tcase_add_test(tests, S3_a_candidate_that_does_not_support_the_call_is_passed_over);
  tcase_add_test(tests, S3_when_none_supports_the_call_each_says_why);
  tcase_add_test(tests, S4_errors_keep_the_words_that_callers_rely_on);
  tcase_add_test(tests, S5_an_error_is_not_cached);
  tcase_add_test(tests, S5_what_was_resolved_is_kept_until_something_changes);
  tcase_add_test(tests, F1_first_use_and_each_change_are_logged_once);
  tcase_add_test(tests, F2_a_failure_is_warned_of_and_the_next_is_tried);
  tcase_add_test(tests, F2_when_all_fail_the_last_error_comes_back);
  tcase_add_test(tests, F2_a_failure_comes_back_when_the_rest_does_not_support_the_call);
  tcase_add_test(tests, S4_whatever_is_left_out_is_listed);
  tcase_add_test(tests, F3_F7_strict_fails_at_once_with_the_winners_own_error_behind_the_op_and_remembers_nothing);
  tcase_add_test(tests, a_number_that_is_no_status_is_named_where_there_is_no_other_reason);
  tcase_add_test(tests, F3_strict_ignores_the_memory_of_failures);
  tcase_add_test(tests, an_implementation_that_calls_another_op_may_pass_its_message_on);
  tcase_add_test(tests, F4_a_failed_impl_is_skipped_until_cleared);
  tcase_add_test(tests, F4_it_is_tried_again_after_a_back_off_that_doubles);
  tcase_add_test(tests, F5_bad_arguments_return_at_once_and_are_held_against_nobody);
  tcase_add_test(tests, F6_a_fallback_computes_from_the_callers_input);
  tcase_add_test(tests, F6_in_place_the_failure_is_reported_not_computed_over);
  tcase_add_test(tests, F6_preserve_inputs_keeps_a_copy);
  tcase_add_test(tests, an_impl_that_works_only_in_place_is_offered_functionally);
  tcase_add_test(tests, dtypes_that_an_impl_declares_are_a_condition);
  tcase_add_test(tests, F8_calls_are_counted_when_statistics_are_on);
  tcase_add_test(tests, X1_a_child_begins_without_failures_and_counts);
  tcase_add_test(tests, explain_gives_order_verdict_and_reason_of_every_impl);
  tcase_add_test(tests, PREFER_ENABLED_off_runs_the_reference_else_the_vendor);
  tcase_add_test(tests, PREFER_ENABLED_off_runs_the_vendors_where_no_reference_is_for_the_device);
  tcase_add_test(tests, L3_a_listed_op_does_not_use_kind_default_and_explain_names_the_list);
  tcase_add_test(tests, custom_ops_off_runs_the_reference);
  tcase_add_test(tests, the_oplist_file_lists_kind_default_once_and_never_through_a_link);
  tcase_add_test(tests, without_argument_checks_a_call_is_not_judged);
  tcase_add_test(tests, a_null_op_a_null_call_and_one_without_size_are_errors);
}

int main(void) {
  return run_suite("manager", add_tests, 30);
}
