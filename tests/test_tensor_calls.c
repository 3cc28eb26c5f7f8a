/* Calls with tensors: where they lie and of what type they are, and that a fallback computes from what the caller
 * gave, also in place (F6). */
#include "four_impls.h"

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

static void add_tests(TCase *tests) {
  tcase_add_test(tests, F6_a_fallback_computes_from_the_callers_input);
  tcase_add_test(tests, F6_in_place_the_failure_is_reported_not_computed_over);
  tcase_add_test(tests, F6_preserve_inputs_keeps_a_copy);
  tcase_add_test(tests, an_impl_that_works_only_in_place_is_offered_functionally);
  tcase_add_test(tests, S1_a_tensor_never_reaches_an_impl_of_another_device);
  tcase_add_test(tests, dtypes_that_an_impl_declares_are_a_condition);
}

int main(void) {
  return run_suite("tensor_calls", add_tests, 30);
}
