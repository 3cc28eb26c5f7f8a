/* Opaque calls, whose arguments go another way than through values, and withdrawing one implementation. */
#include "fixture.h"

#include "tests/scratch.h"
#include <string.h>

/* An implementation of an op with a tensor. */
typedef struct opaque_impl {
  const char *id;
  fl_status status;
  int calls, without_values;
} opaque_impl;

static const char *ran;

static fl_status kernel(void *self, fl_call *call) {
  opaque_impl *impl = self;
  impl->calls++;
  impl->without_values += !call->count && !call->values;
  ran = impl->id;
  return impl->status ? fl_fail(call, impl->status, "E:%s", impl->id) : FL_OK;
}

static const fl_op_def neg = {.size = sizeof neg, .schema = "test_neg(Tensor(a!) x) -> Tensor(a) out"};

static void add(fl_host *host, opaque_impl *impl, bool opaque) {
  bool is_reference = !strncmp(impl->id, "reference", 9);
  ck_ok(fl_register_impl(host, &(fl_impl){.size = sizeof(fl_impl),
                                          .flags = opaque ? FL_IMPL_OPAQUE : 0,
                                          .op_name = "test_neg",
                                          .impl_id = impl->id,
                                          .kind = is_reference ? FL_KIND_REFERENCE : FL_KIND_DEFAULT,
                                          .devices = FL_DEVICE_ANY,
                                          .fn = kernel,
                                          .self = impl}));
}

static fl_host *host_of(const char *const *environment, opaque_impl *values, opaque_impl *first, opaque_impl *second) {
  fl_host *host = test_host(environment, FL_HOST_STATISTICS);
  ck_ok(fl_register_op(host, &neg));
  if (values)
    add(host, values, false);
  if (first)
    add(host, first, true);
  if (second)
    add(host, second, true);
  return host;
}

static fl_status invoke(fl_host *host) {
  fl_call call = {.size = sizeof call};
  ran = "";
  return fl_invoke_opaque(fl_find_op(host, "test_neg"), &call);
}

START_TEST(S6_only_implementations_that_say_so_take_an_opaque_call) {
  opaque_impl values = {.id = "default.values"}, objects = {.id = "reference.objects"};
  fl_host *host = host_of(NULL, &values, &objects, NULL);
  ck_ok(invoke(host));
  ck_assert_str_eq(ran, "reference.objects");
  ck_assert_int_eq(objects.without_values, 1);
  ck_assert_int_eq(values.calls, 0);
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, "test_neg", "reference.objects", &counters));
  ck_assert_uint_eq(counters.calls, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_call_with_values_may_run_them_too) {
  float data[2] = {1, 2};
  int64_t shape[] = {2};
  DLTensor x = {.data = data, .device = {kDLCPU, 0}, .ndim = 1, .dtype = {kDLFloat, 32, 1}, .shape = shape};
  fl_value given[] = {fl_tensor(&x), fl_tensor(&x)};
  fl_call call = FL_CALL(given);
  opaque_impl objects = {.id = "default.objects"};
  fl_host *host = host_of(NULL, NULL, &objects, NULL);
  ck_ok(fl_call_op(host, "test_neg", &call));
  ck_assert_int_eq(objects.calls, 1);
  ck_assert_int_eq(objects.without_values, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S6_it_falls_back_and_remembers_as_every_call) {
  opaque_impl first = {.id = "default.first", .status = FL_EDEVICE}, second = {.id = "reference.second"};
  char policy[PATH_MAX + 32];
  scratch_make();
  /* on a machine that stalls it would be tried again meanwhile */
  snprintf(policy, sizeof policy, "VLLM_FL_CONFIG=%s", write_text("policy.yaml", "retry_first_s: 0\n"));
  fl_host *host = host_of((const char *const[]){"VLLM_FL_LOG_LEVEL=INFO", policy, NULL}, NULL, &first, &second);
  scratch_remove();
  for (int i = 0; i < 3; i++)
    ck_ok(invoke(host));
  ck_assert_int_eq(first.calls, 1);
  ck_assert_int_eq(second.calls, 3);
  ck_assert_int_eq(test_log_count("WARNING Implementation 'default.first' failed for op 'test_neg': E:default.first"),
                   1);
  first.status = FL_OK;
  fl_clear_failed_impls(host, "test_neg");
  ck_ok(invoke(host));
  ck_assert_str_eq(ran, "default.first");
  first.status = FL_ENOTSUP;
  ck_ok(invoke(host));
  ck_assert_str_eq(ran, "reference.second");
  first.status = FL_EINVAL;
  ck_assert_int_eq(invoke(host), FL_EINVAL);
  ck_assert_str_eq(ran, "default.first");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S6_policies_copies_and_canaries_leave_it_alone) {
  static const char *const environment[] = {"VLLM_FL_CANARY=4", NULL};
  opaque_impl first = {.id = "default.first", .status = FL_EINTERNAL}, second = {.id = "reference.second"};
  fl_host *host = host_of(environment, NULL, &first, &second);
  fl_policy *policy;
  ck_ok(fl_policy_create(&(fl_policy_fields){.size = sizeof(fl_policy_fields), .preserve_inputs = true}, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  ck_ok(invoke(host));
  ck_assert_str_eq(ran, "reference.second");
  fl_scope scope;
  ck_ok(fl_scope_strict(host, &scope));
  ck_assert_int_eq(invoke(host), FL_EINTERNAL);
  ck_assert_str_eq(fl_error_message(), "test_neg: E:default.first");
  ck_ok(fl_scope_leave(&scope));
  fl_policy_release(policy);
  fl_host_destroy(host);
}
END_TEST

START_TEST(what_is_left_over_is_explained) {
  opaque_impl values = {.id = "default.values"};
  fl_host *host = host_of(NULL, &values, NULL, NULL);
  fl_resolution resolution = {.size = sizeof resolution};
  ck_assert_int_eq(invoke(host), FL_ENOIMPL);
  ck_contains(fl_error_message(), "No available implementation for op='test_neg'. Registered: ['default.values']");
  ck_contains(fl_error_message(), "default.values: takes values");
  ck_assert_int_eq(fl_resolve_op(host, "test_neg", FL_DEVICE_OPAQUE, &resolution), FL_ENOIMPL);
  opaque_impl objects = {.id = "reference.objects"};
  add(host, &objects, true);
  ck_ok(fl_resolve_op(host, "test_neg", FL_DEVICE_OPAQUE, &resolution));
  ck_assert_str_eq(resolution.impl_id, "reference.objects");
  ck_ok(fl_resolve_op(host, "test_neg", kDLCPU, &resolution));
  ck_assert_str_eq(resolution.impl_id, "default.values");
  objects.status = FL_ENOTSUP;
  ck_assert_int_eq(invoke(host), FL_ENOIMPL);
  ck_contains(fl_error_message(), "default.values: takes values");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_wrong_struct_is_an_error) {
  opaque_impl objects = {.id = "default.objects"};
  fl_host *host = host_of(NULL, NULL, &objects, NULL);
  fl_call call = {.size = 4};
  ck_assert_int_eq(fl_invoke_opaque(fl_find_op(host, "test_neg"), &call), FL_EINVAL);
  ck_assert_int_eq(fl_invoke_opaque(NULL, &call), FL_ENOENT);
  fl_host_destroy(host);
}
END_TEST

START_TEST(one_implementation_is_withdrawn_and_its_id_is_free) {
  opaque_impl first = {.id = "default.first"}, other = {.id = "default.first"}, second = {.id = "reference.second"};
  fl_host *host = host_of(NULL, NULL, &first, &second);
  ck_ok(invoke(host));
  ck_ok(fl_withdraw_impl(host, "test_neg", "default.first"));
  ck_ok(invoke(host));
  ck_assert_str_eq(ran, "reference.second");
  add(host, &other, true);
  ck_ok(invoke(host));
  ck_assert_int_eq(other.calls, 1);
  ck_assert_int_eq(first.calls, 1);
  ck_assert_int_eq(fl_withdraw_impl(host, "test_neg", "default.frist"), FL_ENOENT);
  ck_contains(fl_error_message(), "default.first");
  ck_assert_int_eq(fl_withdraw_impl(host, "test_nog", "default.first"), FL_ENOENT);
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_int_eq(fl_withdraw_impl(host, "test_neg", "default.first"), FL_ESTATE);
  ck_contains(fl_error_message(), "withdrawing an implementation");
  ck_ok(fl_thaw(host, "capture"));
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, S6_only_implementations_that_say_so_take_an_opaque_call);
  tcase_add_test(tests, a_call_with_values_may_run_them_too);
  tcase_add_test(tests, S6_it_falls_back_and_remembers_as_every_call);
  tcase_add_test(tests, S6_policies_copies_and_canaries_leave_it_alone);
  tcase_add_test(tests, what_is_left_over_is_explained);
  tcase_add_test(tests, a_wrong_struct_is_an_error);
  tcase_add_test(tests, one_implementation_is_withdrawn_and_its_id_is_free);
}

int main(void) {
  return run_suite("opaque", add_tests, 30);
}
