/*
 * host_fallback: ops that nothing runs on the device of their tensors, on the CPU with copies. The test device's memory
 * crashes whoever touches it but its own kernels and copies.
 */
#include "tests/device.h"

#include <flhost/ops.h>
#include <pthread.h>
#include <stdlib.h>

static const char *const asked[] = {"VLLM_FL_HOST_FALLBACK=1", NULL};

static const float before[] = {0, 1, 9, -2, 30, 9}; /* rows of 2, gaps that hold 9 */
static const float relu2_result[] = {0, 1, 9, 0, 900, 9};

/* gelu_new and relu2 have the CPU's implementations; relu2 has the device's, too, for its second device alone. */
static fl_status unary(fl_host *host, const char *op, matrix *x, matrix *out, void *stream) {
  fl_value values[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
  fl_call call = FL_CALL(values);
  call.stream = stream;
  return fl_call_op(host, op, &call);
}

/* Two tensors of `before` on a device. */
static void make_pair(fl_host *host, DLDevice device, matrix *x, matrix *out) {
  matrix_make_strided(x, host, device, 2, 2, 3, before);
  matrix_make_strided(out, host, device, 2, 2, 3, before);
}

static void free_pair(matrix *x, matrix *out) {
  matrix_free(x);
  matrix_free(out);
}

static uint64_t calls_of(fl_host *host, const char *op, const char *impl_id) {
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, op, impl_id, &counters));
  return counters.calls;
}

static void set_policy(fl_host *host, fl_policy_fields fields) {
  fl_policy *policy;
  fields.size = sizeof fields;
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
}

/* Why the implementation is where it is; NULL: the op has none of that name. */
static char *reason_of(fl_host *host, const char *op, const char *impl_id) {
  fl_explanation *explanation;
  char *reason = NULL;
  ck_ok(fl_explain(host, op, kDLExtDev, &explanation));
  for (uint32_t i = 0; i < explanation->n_impls && !reason; i++)
    if (!strcmp(fl_explained_at(explanation, i)->impl_id, impl_id))
      reason = strdup(fl_explained_at(explanation, i)->reason);
  fl_explanation_free(explanation);
  return reason;
}

static void expect_reason(fl_host *host, const char *op, const char *expected) {
  char *reason = reason_of(host, op, "reference.host");
  ck_assert_msg(expected ? reason && strstr(reason, expected) : !reason, "%s", reason ? reason : "not there");
  free(reason);
}

#define WARNED(op)                                                                                                     \
  "WARNING Op '" op "' runs on the CPU for tensors on ext_dev, which are copied there and back (host_fallback)"

/* The first device is below what the device's own kernel needs. */
START_TEST(a_call_runs_on_the_cpu_and_gaps_between_rows_stay) {
  static const float gaps[] = {7, 7, 5, 7, 7, 5}, expected[] = {0, 1, 5, 0, 900, 5};
  fl_host *host = device_host(asked, 0);
  matrix x, out;
  matrix_make_strided(&x, host, device0, 2, 2, 3, before);
  matrix_make_strided(&out, host, device0, 2, 2, 3, gaps);
  for (int i = 1; i <= 3; i++) {
    ck_ok(unary(host, "relu2", &x, &out, NULL));
    matrix_check(&out, expected, 6);
    matrix_check(&x, before, 6);
    ck_assert_uint_eq(calls_of(host, "relu2", "reference.host"), (uint64_t)i); /* without FL_HOST_STATISTICS */
  }
  ck_assert_uint_eq(test_device->kernels, 0);
  free_pair(&x, &out);
  ck_assert_uint_eq(test_device->allocations, 0);
  fl_host_destroy(host);
}
END_TEST

/* The device's own comes first where it is able to. */
START_TEST(what_the_device_runs_is_not_copied) {
  fl_host *host = device_host(asked, FL_HOST_STATISTICS);
  matrix x, out;
  make_pair(host, device1, &x, &out);
  ck_ok(unary(host, "relu2", &x, &out, NULL));
  ck_assert_uint_eq(test_device->kernels, 1);
  ck_assert_uint_eq(calls_of(host, "relu2", "vendor.test_device"), 1);
  ck_assert_uint_eq(calls_of(host, "relu2", "reference.host"), 0);
  ck_ok(unary(host, "gelu_new", &x, &out, NULL));
  ck_assert_uint_eq(calls_of(host, "gelu_new", "reference.host"), 1); /* once, also with statistics */
  ck_assert_uint_eq(calls_of(host, "gelu_new", "default.flagos"), 1);
  free_pair(&x, &out);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_place_the_arguments_are_the_results) {
  static const float residual_before[] = {1, 1, 1, 1}, sums[] = {1, 2, -1, 31};
  const float x_before[] = {0, 1, -2, 30};
  fl_host *host = device_host(asked, 0);
  fl_ops ops;
  matrix x, residual, weight;
  ck_ok(fl_ops_init(&ops, host));
  matrix_make(&x, host, device0, 2, 2, x_before);
  matrix_make(&residual, host, device0, 2, 2, residual_before);
  matrix_make(&weight, host, device0, 1, 2, sums);
  weight.tensor.ndim = 1;
  weight.shape[0] = 2;
  weight.strides[0] = 1;
  ck_ok(fl_gemma_rms_norm(&ops, NULL, &x.tensor, &residual.tensor, &weight.tensor, 0, &x.tensor, &residual.tensor));
  matrix_check(&residual, sums, 4);
  float on_cpu[4] = {0, 1, -2, 30}, weights[2] = {1, 2}, residuals[4] = {1, 1, 1, 1};
  int64_t shape[] = {2, 2};
  DLTensor cpu_x = {on_cpu, cpu, 2, x.tensor.dtype, shape, NULL, 0}, cpu_r = cpu_x, cpu_w = cpu_x;
  cpu_r.data = residuals;
  cpu_w.data = weights;
  cpu_w.ndim = 1;
  ck_ok(fl_gemma_rms_norm(&ops, NULL, &cpu_x, &cpu_r, &cpu_w, 0, &cpu_x, &cpu_r));
  matrix_check(&x, on_cpu, 4);
  ck_assert_uint_eq(test_device->kernels, 0);
  matrix_free(&x);
  matrix_free(&residual);
  weight.shape[0] = 1;
  matrix_free(&weight);
  fl_host_destroy(host);
}
END_TEST

START_TEST(explained_and_warned_of_once) {
  fl_host *host = device_host(asked, 0);
  matrix x, out;
  int queue;
  make_pair(host, device0, &x, &out);
  expect_reason(host, "gelu_new",
                "on the CPU, where its tensors are copied and back (host_fallback: VLLM_FL_HOST_FALLBACK)");
  fl_bump_policy_epoch(host);
  test_log_clear();
  for (int i = 0; i < 3; i++) {
    ck_ok(unary(host, "gelu_new", &x, &out, i ? &queue : NULL));
    fl_bump_policy_epoch(host);
  }
  ck_assert_int_eq(test_log_count(WARNED("gelu_new")), 1);
  free_pair(&x, &out);
  fl_host_destroy(host);
}
END_TEST

/* Also where another policy has had it before. */
START_TEST(without_it_the_error_says_that_there_is_such_a_thing) {
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  make_pair(host, device0, &x, &out);
  expect_reason(host, "gelu_new", NULL);
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(unary(host, "gelu_new", &x, &out, NULL), FL_ENOIMPL);
    ck_contains(fl_error_message(), "host_fallback: true would run it on the CPU");
    set_policy(host, (fl_policy_fields){.host_fallback = true});
    ck_ok(unary(host, "gelu_new", &x, &out, NULL));
    set_policy(host, (fl_policy_fields){.prefer = "flagos"});
  }
  expect_reason(host, "gelu_new", "host_fallback is not set: ");
  free_pair(&x, &out);
  fl_host_destroy(host);
}
END_TEST

/* The order is the op's on the CPU, too; dispatch that is off has no host_fallback. */
START_TEST(the_order_holds_on_the_cpu) {
  static const char *const off[] = {"VLLM_FL_HOST_FALLBACK=1", "VLLM_FL_PREFER_ENABLED=0", NULL};
  const fl_op_order order = {"gelu_new", (const char *const[]){"vendor"}, 1},
                    reference = {"gelu_new", (const char *const[]){"impl:reference.c"}, 1};
  fl_host *host = device_host(asked, FL_HOST_STATISTICS);
  matrix x, out;
  make_pair(host, device0, &x, &out);
  set_policy(host, (fl_policy_fields){
                       .host_fallback = true, .per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)});
  ck_assert_int_eq(unary(host, "gelu_new", &x, &out, NULL), FL_ENOIMPL);
  expect_reason(host, "gelu_new", "nothing in the order runs the op on the CPU");
  set_policy(host, (fl_policy_fields){
                       .host_fallback = true, .per_op = &reference, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)});
  ck_ok(unary(host, "gelu_new", &x, &out, NULL));
  ck_assert_uint_eq(calls_of(host, "gelu_new", "reference.c"), 1);
  free_pair(&x, &out);
  fl_host_destroy(host);
  host = device_host(off, 0);
  expect_reason(host, "gelu_new", NULL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(while_a_graph_is_captured_nothing_runs_on_the_cpu) {
  fl_host *host = device_host(asked, 0);
  matrix x, out;
  make_pair(host, device0, &x, &out);
  test_device->captured = true;
  ck_assert_int_ne(unary(host, "gelu_new", &x, &out, NULL), FL_OK);
  ck_contains(fl_error_message(), "the stream is being captured in a graph, in which nothing runs on the CPU");
  test_device->captured = false;
  matrix_check(&out, before, 6);
  ck_ok(unary(host, "gelu_new", &x, &out, NULL));
  free_pair(&x, &out);
  fl_host_destroy(host);
}
END_TEST

/* Nothing was bound before. */
START_TEST(a_resolved_implementation_can_be_called_and_is_counted) {
  fl_host *host = device_host(asked, 0);
  fl_resolution resolution = {.size = sizeof resolution};
  matrix x, out;
  make_pair(host, device0, &x, &out);
  ck_ok(fl_resolve_op(host, "gelu_new", kDLExtDev, &resolution));
  ck_assert_str_eq(resolution.impl_id, "reference.host");
  ck_assert_uint_eq(calls_of(host, "gelu_new", "reference.host"), 0);
  fl_value values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(values);
  ck_ok(resolution.fn(resolution.self, &call));
  ck_assert_uint_eq(calls_of(host, "gelu_new", "reference.host"), 1);
  free_pair(&x, &out);
  fl_host_destroy(host);
}
END_TEST

/* A device implementation that fails leaves the call to the CPU. */
START_TEST(it_is_the_last_fallback) {
  fl_host *host = device_host(asked, 0);
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "silu_and_mul", kDLExtDev, &explanation));
  ck_assert_str_eq(explanation->selected, "vendor.test_device");
  ck_assert_str_eq(fl_explained_at(explanation, 1)->impl_id, "reference.host");
  ck_assert_int_eq(fl_explained_at(explanation, 1)->verdict, FL_CANDIDATE);
  fl_explanation_free(explanation);
  ck_ok(fl_explain(host, "silu_and_mul", kDLCPU, &explanation));
  for (uint32_t i = 0; i < explanation->n_impls; i++)
    if (!strcmp(fl_explained_at(explanation, i)->impl_id, "reference.host"))
      ck_contains(fl_explained_at(explanation, i)->reason, "the tensors are on cpu");
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

/* Its parts would be copied one by one: the whole op is copied once. */
START_TEST(a_fused_op_is_copied_whole) {
  fl_host *host = device_host(asked, 0);
  char *parts = reason_of(host, "silu_and_mul_quant", "reference.parts");
  ck_assert_msg(!parts || strstr(parts, "nothing runs its part") || strstr(parts, "works on"), "%s", parts);
  free(parts);
  expect_reason(host, "silu_and_mul_quant", "on the CPU");
  fl_host_destroy(host);
}
END_TEST

/* The manifest of the device names it. */
START_TEST(the_manifest_has_it) {
  fl_host *host = device_host(asked, 0);
  fl_manifest *manifest;
  ck_ok(fl_get_manifest(host, kDLExtDev, &manifest));
  ck_contains(manifest->text, "reference.host");
  fl_manifest_free(manifest);
  fl_host_destroy(host);
}
END_TEST

enum { THREADS = 4, CALLS = 200 };

static void *call_often(void *host) {
  matrix x, out;
  make_pair(host, device0, &x, &out);
  for (int i = 0; i < CALLS; i++)
    ck_ok(unary(host, "relu2", &x, &out, NULL));
  matrix_check(&out, relu2_result, 6);
  free_pair(&x, &out);
  return NULL;
}

START_TEST(threads_fall_back_side_by_side) {
  fl_host *host = device_host(asked, 0);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, host), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  ck_assert_uint_eq(calls_of(host, "relu2", "reference.host"), THREADS * CALLS);
  ck_assert_int_eq(test_log_count(WARNED("relu2")), 1);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, a_call_runs_on_the_cpu_and_gaps_between_rows_stay);
  tcase_add_test(tests, what_the_device_runs_is_not_copied);
  tcase_add_test(tests, in_place_the_arguments_are_the_results);
  tcase_add_test(tests, explained_and_warned_of_once);
  tcase_add_test(tests, without_it_the_error_says_that_there_is_such_a_thing);
  tcase_add_test(tests, the_order_holds_on_the_cpu);
  tcase_add_test(tests, while_a_graph_is_captured_nothing_runs_on_the_cpu);
  tcase_add_test(tests, a_resolved_implementation_can_be_called_and_is_counted);
  tcase_add_test(tests, it_is_the_last_fallback);
  tcase_add_test(tests, a_fused_op_is_copied_whole);
  tcase_add_test(tests, the_manifest_has_it);
  tcase_add_test(tests, threads_fall_back_side_by_side);
}

int main(void) {
  return run_suite("host_fallback", add_tests, 60);
}
