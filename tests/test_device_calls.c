/*
 * Calls with tensors on a device: which implementation gets them and what it is given, in place or not, and what
 * becomes of errors that show late. The test device's memory crashes whoever touches it but its own kernels and copies,
 * so each test also shows that the host does not.
 */
#include "core/platform.h"
#include "core/registry.h"
#include "tests/device.h"

#include <flhost/ops.h>
#include <pthread.h>

/* ------------------------------------------------------------------------------------------------------- selection */

static fl_status silu_and_mul(fl_host *host, matrix *x, matrix *out, void *stream) {
  fl_value values[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
  fl_call call = FL_CALL(values);
  call.stream = stream;
  return fl_call_op(host, "silu_and_mul", &call);
}

static const float gated[] = {0, 1, 5, 2}, gated_result[] = {0, 1.4621172f};

START_TEST(a_tensor_on_a_device_gets_that_devices_kernel_and_the_calls_stream) {
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  int queue;
  for (int i = 0; i < 2; i++) {
    matrix_make(&x, host, (DLDevice){kDLExtDev, i}, 1, 4, gated);
    matrix_make(&out, host, (DLDevice){kDLExtDev, i}, 1, 2, NULL);
    ck_ok(silu_and_mul(host, &x, &out, i ? &queue : NULL));
    matrix_check(&out, gated_result, 2);
    ck_assert_int_eq(test_device->device, i);
    ck_assert_ptr_eq(test_device->stream, i ? &queue : NULL);
    ck_assert_uint_eq(test_device->synchronous, 0);
    matrix_free(&x);
    matrix_free(&out);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(tensors_on_two_devices_are_an_argument_error) {
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device1, 1, 2, NULL);
  ck_assert_int_eq(silu_and_mul(host, &x, &out, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "silu_and_mul: result 'out': on ext_dev:1, expected ext_dev:0 (that of 'x')");
  ck_assert_uint_eq(test_device->kernels, 0);
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

static fl_status unary(fl_host *host, const char *op, matrix *x, matrix *out) {
  fl_value values[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, op, &call);
}

START_TEST(no_cpu_kernel_stands_in_for_a_device) {
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device0, 1, 4, NULL);
  ck_assert_int_eq(unary(host, "gelu_new", &x, &out), FL_ENOIMPL);
  ck_contains(fl_error_message(), "default.flagos: works on cpu, cuda_host, rocm_host, the tensors are on ext_dev");
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- architectures */

/* Which devices an implementation that needs td_8 or td_1 is not for; "" if there is none. */
static void expect_lacking(fl_host *host, const char *lacking) {
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "gelu_fast", kDLExtDev, &explanation));
  ck_assert_str_eq(explanation->selected, "vendor.test_device");
  const char *said = strstr(fl_explained_at(explanation, 0)->reason, "needs");
  ck_assert_str_eq(said ? said : "", lacking);
  fl_explanation_free(explanation);
}

START_TEST(min_arch_is_compared_by_the_platform) {
  fl_host *host = device_host(NULL, 0);
  expect_lacking(host, "");
  fl_host_destroy(host);
}
END_TEST

START_TEST(without_an_order_of_architectures_only_equal_names_reach) {
  fl_host *host = device_host(NULL, 0);
  for (uint32_t i = 0; i < host->n_components; i++)
    host->components[i].platform.arch_reaches = NULL;
  expect_lacking(host, "needs td_8,td_1, device 1 is td_2");
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_implementation_is_not_available_below_its_min_arch) {
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device0, 1, 4, NULL);
  ck_assert_int_eq(unary(host, "quick_gelu", &x, &out), FL_ENOIMPL);
  ck_contains(fl_error_message(), "vendor.test_device: not available: needs td_9, device 0 is td_1, device 1 is td_2");
  matrix_free(&x);
  matrix_free(&out);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  ck_assert_ptr_nonnull(snapshot);
  const fl_impl_info *too_new = NULL, *for_some = NULL;
  for (uint32_t op = 0; op < fl_snapshot_op_count(snapshot); op++)
    for (uint32_t i = 0; i < fl_snapshot_impl_count(snapshot, op); i++) {
      const fl_impl_info *info = fl_snapshot_impl(snapshot, op, i);
      if (!strcmp(info->impl_id, "vendor.test_device") && !strcmp(info->op_name, "quick_gelu"))
        too_new = info;
      if (!strcmp(info->impl_id, "vendor.test_device") && !strcmp(info->op_name, "relu2"))
        for_some = info;
    }
  ck_assert(too_new && for_some);
  ck_assert(!too_new->available);
  ck_assert_str_eq(too_new->reason, "needs td_9, device 0 is td_1, device 1 is td_2");
  ck_assert(for_some->available);
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

/* Its architecture would be, of all that the op has for the device. */
START_TEST(R6_a_device_is_not_asked_for_a_vendor_that_is_denied) {
  const char *const environment[] = {"VLLM_FL_DENY_VENDORS=test_device", NULL};
  const fl_policy_fields fields = {.size = sizeof fields};
  fl_policy *policy;
  fl_host *host = device_host(environment, 0);
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device0, 1, 4, NULL);
  ck_assert_int_eq(unary(host, "quick_gelu", &x, &out), FL_ENOIMPL);
  ck_contains(fl_error_message(), "vendor.test_device: vendor 'test_device' is denied");
  ck_assert_uint_eq(test_device->properties, 0);
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  ck_assert_int_eq(unary(host, "quick_gelu", &x, &out), FL_ENOIMPL);
  ck_contains(fl_error_message(), "vendor.test_device: not available: needs td_9");
  ck_assert_uint_gt(test_device->properties, 0);
  fl_policy_release(policy);
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

START_TEST(where_devices_differ_that_of_the_tensors_counts) {
  static const float x_values[] = {-1, 2, -3, 4}, squares[] = {0, 4, 0, 16};
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  for (int i = 1; i >= 0; i--) {
    matrix_make(&x, host, (DLDevice){kDLExtDev, i}, 1, 4, x_values);
    matrix_make(&out, host, (DLDevice){kDLExtDev, i}, 1, 4, NULL);
    if (i) {
      ck_ok(unary(host, "relu2", &x, &out));
      matrix_check(&out, squares, 4);
    } else {
      ck_assert_int_eq(unary(host, "relu2", &x, &out), FL_ENOIMPL);
      ck_contains(fl_error_message(), "vendor.test_device: not supported: the tensors' device does not reach its");
    }
    matrix_free(&x);
    matrix_free(&out);
  }
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "relu2", kDLExtDev, &explanation));
  ck_assert_str_eq(explanation->selected, "vendor.test_device");
  ck_contains(fl_explained_at(explanation, 0)->reason, "not on each device: needs td_2, device 0 is td_1");
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

/* Nothing of a driver may be started before the engine forks its workers. */
START_TEST(explaining_asks_a_devices_architecture_in_a_child_process) {
  fl_host *host = device_host(NULL, 0);
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "quick_gelu", kDLExtDev, &explanation));
  ck_assert_ptr_null(explanation->selected);
  ck_contains(fl_explained_at(explanation, 0)->reason, "needs td_9");
  ck_assert_uint_eq(test_device->properties, 0);
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- workspace */

typedef struct staged {
  fl_host *host;
  fl_op *op;
  matrix x, out;
  fl_value values[2];
  fl_call call;
} staged;

/* mul_and_silu of the test device, which wants four bytes of workspace for each element of x. */
static void staged_begin(staged *s, fl_host *host, DLDevice device, int64_t rows) {
  static const float x_values[64] = {0, 1, 5, 2};
  *s = (staged){.host = host, .op = fl_find_op(host, "mul_and_silu")};
  matrix_make(&s->x, host, device, rows, 4, x_values);
  matrix_make(&s->out, host, device, rows, 2, NULL);
  s->values[0] = fl_tensor(&s->x.tensor);
  s->values[1] = fl_tensor(&s->out.tensor);
  s->call = (fl_call)FL_CALL(s->values);
}

static void staged_end(staged *s) {
  matrix_free(&s->x);
  matrix_free(&s->out);
}

static const float staged_result[] = {0, 1.7615942f};

#define WANTS "WARNING Op 'mul_and_silu': 'vendor.test_device' wants a workspace of 16 bytes, and has "

START_TEST(a_workspace_is_asked_for_and_given) {
  fl_host *host = device_host(NULL, 0);
  staged s;
  size_t size = 0;
  staged_begin(&s, host, device0, 1);
  ck_ok(fl_workspace_size(s.op, &s.call, &size));
  ck_assert_uint_eq(size, 4 * sizeof(float));
  ck_ok(fl_device_allocate(host, device0, size, &s.call.workspace));
  s.call.workspace_size = size;
  ck_ok(fl_invoke(s.op, &s.call));
  matrix_check(&s.out, staged_result, 2);
  ck_assert_uint_eq(s.call.workspace_size, size);
  ck_assert_uint_eq(fl_workspace_bytes(host), 0);
  /* Less is what the caller wants: the next takes the call, and the log says why, once. */
  s.call.workspace_size = size - 1;
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(fl_invoke(s.op, &s.call), FL_ENOIMPL);
    ck_contains(fl_error_message(), "workspace of 15 bytes, expected 16");
    ck_assert_int_eq(test_log_count(WANTS "15: it is passed over; bring as much (fl_workspace_size), or none"), 1);
  }
  ck_ok(fl_device_free(host, device0, s.call.workspace));
  /* One that none asks for, wrong arguments, nothing to run. */
  fl_op *plain = fl_find_op(host, "silu_and_mul");
  ck_ok(fl_workspace_size(plain, &s.call, &size));
  ck_assert_uint_eq(size, 0);
  size = 7;
  s.values[1] = fl_tensor(&s.x.tensor);
  ck_assert_int_eq(fl_workspace_size(s.op, &s.call, &size), FL_EINVAL);
  ck_assert_int_eq(fl_workspace_size(fl_find_op(host, "gelu_new"), &s.call, &size), FL_ENOIMPL);
  ck_assert_int_eq(fl_workspace_size(NULL, &s.call, &size), FL_ENOENT);
  ck_assert_uint_eq(size, 7);
  staged_end(&s);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_call_that_brings_no_workspace_gets_the_hosts) {
  fl_host *host = device_host(NULL, 0);
  fl_ops ops;
  staged s;
  staged_begin(&s, host, device0, 1);
  unsigned before = test_device->allocations;
  for (int i = 0; i < 3; i++) {
    ck_ok(fl_invoke(s.op, &s.call));
    matrix_check(&s.out, staged_result, 2);
    ck_assert_ptr_null(s.call.workspace); /* as it was given */
    ck_assert_uint_eq(s.call.workspace_size, 0);
    ck_assert_uint_eq(test_device->allocations, before + 1);
  }
  ck_assert_uint_ge(fl_workspace_bytes(host), 16);
  ck_ok(fl_ops_init(&ops, host));
  ck_ok(fl_mul_and_silu(&ops, NULL, &s.x.tensor, &s.out.tensor)); /* the typed call */
  ck_assert_uint_eq(test_device->allocations, before + 1);
  fl_release_workspaces(host);
  ck_assert_uint_eq(test_device->allocations, before);
  ck_assert_uint_eq(fl_workspace_bytes(host), 0);
  ck_ok(fl_invoke(s.op, &s.call));
  ck_assert_uint_eq(test_device->allocations, before + 1);
  staged_end(&s);
  fl_host_destroy(host);
  ck_assert_uint_eq(test_device->allocations, 0);
}
END_TEST

START_TEST(each_stream_and_device_has_a_workspace_which_grows) {
  fl_host *host = device_host(NULL, 0);
  staged small, large, other;
  int streams[20];
  staged_begin(&small, host, device0, 1);
  staged_begin(&large, host, device0, 16);
  staged_begin(&other, host, device1, 1);
  unsigned before = test_device->allocations;
  for (int i = 0; i < 20; i++) { /* more than a thread remembers */
    small.call.stream = &streams[i];
    ck_ok(fl_invoke(small.op, &small.call));
    ck_assert_uint_eq(test_device->allocations, before + (unsigned)i + 1);
  }
  for (int i = 0; i < 20; i++) {
    small.call.stream = &streams[i];
    ck_ok(fl_invoke(small.op, &small.call));
  }
  ck_ok(fl_invoke(other.op, &other.call));
  ck_assert_uint_eq(test_device->allocations, before + 21);
  uint64_t bytes = fl_workspace_bytes(host);
  /* 64 KiB serve many: only what wants more makes it grow. */
  large.call.stream = &streams[0];
  ck_ok(fl_invoke(large.op, &large.call));
  ck_assert_uint_eq(fl_workspace_bytes(host), bytes);
  staged_end(&small);
  staged_end(&large);
  staged_end(&other);
  fl_host_destroy(host);
  ck_assert_uint_eq(test_device->allocations, 0);
}
END_TEST

START_TEST(a_workspace_that_is_too_small_is_outgrown) {
  fl_host *host = device_host(NULL, 0);
  staged s;
  matrix x, out;
  staged_begin(&s, host, device0, 1);
  ck_ok(fl_invoke(s.op, &s.call));
  uint64_t bytes = fl_workspace_bytes(host);
  unsigned before = test_device->allocations;
  matrix_make(&x, host, device0, 1, 40000, NULL);
  matrix_make(&out, host, device0, 1, 20000, NULL);
  fl_value values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(values);
  for (int i = 0; i < 2; i++)
    ck_ok(fl_invoke(s.op, &call));
  ck_assert_uint_eq(test_device->allocations, before + 3); /* x, out, and one more; the old one stays */
  ck_assert_uint_ge(fl_workspace_bytes(host), bytes + 160000);
  ck_ok(fl_invoke(s.op, &s.call));
  matrix_check(&s.out, staged_result, 2);
  matrix_free(&x);
  matrix_free(&out);
  staged_end(&s);
  fl_host_destroy(host);
  ck_assert_uint_eq(test_device->allocations, 0);
}
END_TEST

/* What an engine's allocator was asked for. */
typedef struct asked {
  fl_host *host;
  unsigned allocated, released;
  void *stream;
  bool refuses;
} asked;

static fl_status allocate_for(void *user, DLDevice device, size_t size, void *stream, void **memory) {
  asked *a = user;
  a->allocated++;
  a->stream = stream;
  return a->refuses ? FL_ENOMEM : fl_device_allocate(a->host, device, size, memory);
}

static void release_for(void *user, DLDevice device, void *memory, void *stream) {
  asked *a = user;
  a->released++;
  ck_assert_ptr_eq(stream, a->stream);
  ck_ok(fl_device_free(a->host, device, memory));
}

START_TEST(an_engines_allocator_gives_the_workspaces) {
  fl_host *host = device_host(NULL, 0);
  asked a = {.host = host};
  fl_allocator allocator = {.size = sizeof allocator, .user = &a, .allocate = allocate_for, .release = release_for};
  int stream;
  staged s;
  staged_begin(&s, host, device0, 1);
  ck_ok(fl_set_workspace_allocator(host, kDLExtDev, &allocator));
  s.call.stream = &stream;
  for (int i = 0; i < 2; i++)
    ck_ok(fl_invoke(s.op, &s.call));
  matrix_check(&s.out, staged_result, 2);
  ck_assert_uint_eq(a.allocated, 1);
  ck_assert_ptr_eq(a.stream, &stream);
  fl_release_workspaces(host);
  ck_assert_uint_eq(a.released, 1);
  a.refuses = true;
  ck_assert_int_eq(fl_invoke(s.op, &s.call), FL_ENOIMPL);
  ck_assert_int_eq(test_log_count(WANTS "0: the engine's allocator gives none: FL_ENOMEM"), 1);
  ck_ok(fl_set_workspace_allocator(host, kDLExtDev, NULL)); /* the platform's again */
  ck_ok(fl_invoke(s.op, &s.call));
  allocator.release = NULL;
  ck_assert_int_eq(fl_set_workspace_allocator(host, kDLExtDev, &allocator), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fl_set_workspace_allocator: release is NULL");
  allocator.size = 8;
  ck_assert_int_eq(fl_set_workspace_allocator(host, kDLExtDev, &allocator), FL_EINVAL);
  ck_assert_int_eq(fl_set_workspace_allocator(host, kDLCPU, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_set_workspace_allocator(host, 99, NULL), FL_EINVAL);
  staged_end(&s);
  fl_host_destroy(host);
  ck_assert_uint_eq(a.allocated, a.released + 1); /* the refused one */
  ck_assert_uint_eq(test_device->allocations, 0);
}
END_TEST

START_TEST(while_a_stream_is_captured_no_workspace_grows) {
  fl_host *host = device_host(NULL, 0);
  int stream;
  staged s;
  staged_begin(&s, host, device0, 1);
  ck_ok(fl_invoke(s.op, &s.call));
  test_device->captured = true;
  ck_ok(fl_invoke(s.op, &s.call)); /* there is one already */
  s.call.stream = &stream;
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(fl_invoke(s.op, &s.call), FL_ENOIMPL);
  ck_assert_int_eq(test_log_count(WANTS "0: the stream is being captured in a graph; call the op once before"), 1);
  test_device->captured = false;
  ck_ok(fl_invoke(s.op, &s.call));
  staged_end(&s);
  fl_host_destroy(host);
}
END_TEST

START_TEST(without_memory_for_a_workspace_the_next_implementation_runs) {
  fl_host *host = device_host(NULL, 0);
  staged s;
  staged_begin(&s, host, device0, 1);
  test_device->full = true;
  ck_assert_int_eq(fl_invoke(s.op, &s.call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "vendor.test_device: not supported: workspace of 0 bytes, expected 16");
  ck_assert_int_eq(test_log_count(WANTS "0: ext_dev:0: allocating 65536 bytes: test device: out of memory"), 1);
  test_device->full = false;
  ck_ok(fl_invoke(s.op, &s.call)); /* it is held against nobody */
  staged_end(&s);
  fl_host_destroy(host);
}
END_TEST

static void *invoke_often(void *user) {
  staged *s = user;
  fl_status status = FL_OK;
  for (int i = 0; i < 200 && !status; i++)
    status = fl_invoke(s->op, &s->call);
  return status ? s : NULL;
}

START_TEST(threads_share_the_workspace_of_a_stream) {
  enum { THREADS = 4 };
  fl_host *host = device_host(NULL, 0);
  pthread_t threads[THREADS];
  staged s[THREADS];
  for (int i = 0; i < THREADS; i++)
    staged_begin(&s[i], host, device0, 1 + 4 * i);
  unsigned before = test_device->allocations;
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, invoke_often, &s[i]), 0);
  for (int i = 0; i < THREADS; i++) {
    void *failed;
    pthread_join(threads[i], &failed);
    ck_assert_ptr_null(failed);
  }
  ck_assert_uint_ge(test_device->allocations, before + 1);
  ck_assert_uint_le(test_device->allocations, before + THREADS); /* all at once may have made one */
  for (int i = 0; i < THREADS; i++)
    staged_end(&s[i]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_workspace_is_that_of_the_policy_in_force) {
  fl_host *host = device_host(NULL, 0);
  static const char *const reference[] = {"reference"};
  fl_scope scope;
  size_t size = 7;
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device0, 1, 2, NULL);
  fl_value values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(values);
  ck_ok(fl_scope_op_order(host, "mul_and_silu", reference, 1, &scope));
  ck_assert_int_eq(fl_workspace_size(fl_find_op(host, "mul_and_silu"), &call, &size), FL_ENOIMPL);
  ck_assert_uint_eq(size, 7);
  ck_ok(fl_scope_leave(&scope));
  ck_ok(fl_workspace_size(fl_find_op(host, "mul_and_silu"), &call, &size));
  ck_assert_uint_eq(size, 16);
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- in place */

START_TEST(an_implementation_that_works_only_in_place_is_offered_functionally_on_a_device) {
  /* Rows with a gap, whose contents stay. */
  static const float x_values[] = {3, 4, 9, 6, 8, 9}, before[] = {7, 7, 5, 7, 7, 5};
  static const float expected[] = {0.84852814f, 1.1313708f, 5, 0.84852814f, 1.1313708f, 5};
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  matrix_make_strided(&x, host, device0, 2, 2, 3, x_values);
  matrix_make_strided(&out, host, device0, 2, 2, 3, before);
  fl_value values[] = {fl_tensor(&x.tensor),   fl_none(), fl_none(), fl_float(0), fl_none(),
                       fl_tensor(&out.tensor), fl_none()};
  fl_call call = FL_CALL(values);
  ck_ok(fl_call_op(host, "rms_norm", &call));
  matrix_check(&out, expected, 6);
  matrix_check(&x, x_values, 6);
  matrix_free(&x);
  matrix_free(&out);
  ck_assert_uint_eq(test_device->allocations, 0);
  fl_host_destroy(host);
}
END_TEST

/* A call of test_device_fail in place, on rows with gaps. */
static fl_status fail_in_place(fl_host *host, matrix *x, int64_t how) {
  fl_value values[] = {fl_tensor(&x->tensor), fl_int(how), fl_tensor(&x->tensor)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, "test_device_fail", &call);
}

static const float before_call[] = {1, 2, 9, 3, 4, 9};

START_TEST(F6_a_failed_call_in_place_on_a_device_is_not_tried_again_without_a_copy) {
  static const float overwritten[] = {0, 1, 9, 2, 3, 9};
  fl_host *host = device_host(NULL, 0);
  matrix x;
  matrix_make_strided(&x, host, device0, 2, 2, 3, before_call);
  ck_assert_int_eq(fail_in_place(host, &x, FAIL_AT_ONCE), FL_EDEVICE);
  ck_contains(fl_error_message(), "No fallback: it may have overwritten 'x' in place; set preserve_inputs");
  matrix_check(&x, overwritten, 6);
  matrix_free(&x);
  fl_host_destroy(host);
}
END_TEST

/* Also where the error shows only when the device has come to it. */
START_TEST(F6_preserve_inputs_lets_a_fallback_start_from_a_copy_on_the_device) {
  static const float expected[] = {2, 3, 9, 4, 5, 9};
  fl_host *host = device_host(NULL, 0);
  matrix x;
  fl_policy *policy;
  const fl_policy_fields fields = {.size = sizeof fields, .preserve_inputs = true};
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  for (int64_t how = FAIL_AT_ONCE; how <= FAIL_LATE; how++) {
    matrix_make_strided(&x, host, device0, 2, 2, 3, before_call);
    ck_ok(fail_in_place(host, &x, how));
    matrix_check(&x, expected, 6);
    matrix_free(&x);
    ck_assert_uint_eq(test_device->allocations, 0);
    fl_clear_failed_impls(host, NULL);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(F6_without_device_memory_for_the_copy_the_call_is_not_tried_again) {
  fl_host *host = device_host(NULL, 0);
  matrix x;
  fl_policy *policy;
  const fl_policy_fields fields = {.size = sizeof fields, .preserve_inputs = true};
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  matrix_make_strided(&x, host, device0, 2, 2, 3, before_call);
  test_device->full = true;
  ck_assert_int_eq(fail_in_place(host, &x, FAIL_AT_ONCE), FL_EDEVICE);
  ck_contains(fl_error_message(), "'vendor.test_device' failed for op 'test_device_fail': launch failed");
  ck_contains(fl_error_message(), "No fallback");
  test_device->full = false;
  matrix_free(&x);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------- asynchronous errors */

static fl_status fail_apart(fl_host *host, matrix *x, matrix *out, int64_t how) {
  fl_value values[] = {fl_tensor(&x->tensor), fl_int(how), fl_tensor(&out->tensor)};
  fl_call call = FL_CALL(values);
  return fl_call_op(host, "test_device_fail", &call);
}

static const float plus_one[] = {1, 2, 6, 3};

START_TEST(a_late_error_is_passed_on_with_a_word_about_where_it_may_come_from) {
  static const char *const strict[] = {"VLLM_FL_STRICT=1", NULL};
  fl_host *host = device_host(strict, 0);
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device0, 1, 4, NULL);
  ck_ok(fail_apart(host, &x, &out, FAIL_LATE));
  ck_assert_int_eq(silu_and_mul(host, &x, &out, NULL), FL_EINVAL); /* wrong arguments ask no device */
  int64_t half = out.shape[1] = 2;
  out.strides[0] = half;
  ck_assert_int_eq(silu_and_mul(host, &x, &out, NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "silu_and_mul: a kernel used an illegal address (may come from an earlier call; "
                                       "VLLM_FL_SYNCHRONIZE=1 finds it)");
  ck_ok(silu_and_mul(host, &x, &out, NULL));
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

/* Switched on by the variable and by the flag. */
START_TEST(synchronous_calls_find_the_op_that_failed_and_fall_back) {
  static const char *const variable[] = {"VLLM_FL_SYNCHRONIZE=1", "VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  fl_host *host = device_host(_i ? variable : NULL, _i ? 0 : FL_HOST_SYNCHRONOUS);
  fl_counters counters = {.size = sizeof counters};
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device0, 1, 4, NULL);
  ck_ok(fail_apart(host, &x, &out, FAIL_LATE));
  matrix_check(&out, plus_one, 4);
  ck_contains(test_log.text, "WARNING Implementation 'vendor.test_device' failed for op 'test_device_fail': ext_dev:0: "
                             "synchronising: a kernel used an illegal address\n");
  ck_ok(fl_get_counters(host, "test_device_fail", "vendor.test_device", &counters));
  ck_assert_uint_eq(counters.failures, 1);
  out.shape[1] = out.strides[0] = 2;
  unsigned before = test_device->synchronous;
  ck_ok(silu_and_mul(host, &x, &out, NULL));
  ck_assert_uint_gt(test_device->synchronous, before);
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_synchronous_call_is_not_blamed_for_what_was_queued_before_it) {
  fl_host *host = device_host(NULL, 0), *careful = device_host(NULL, FL_HOST_SYNCHRONOUS);
  fl_counters counters = {.size = sizeof counters};
  matrix x, out;
  matrix_make(&x, host, device0, 1, 4, gated);
  matrix_make(&out, host, device0, 1, 4, NULL);
  ck_ok(fail_apart(host, &x, &out, FAIL_LATE)); /* by somebody who does not wait */
  unsigned kernels = test_device->kernels;
  out.shape[1] = out.strides[0] = 2;
  ck_assert_int_eq(silu_and_mul(careful, &x, &out, NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "silu_and_mul: not called, since work that was queued before it failed: "
                                       "ext_dev:0: synchronising: a kernel used an illegal address");
  ck_assert_uint_eq(test_device->kernels, kernels);
  ck_ok(fl_get_counters(careful, "silu_and_mul", "vendor.test_device", &counters));
  ck_assert_uint_eq(counters.failures, 0);
  ck_ok(silu_and_mul(careful, &x, &out, NULL));
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
  fl_host_destroy(careful);
}
END_TEST

START_TEST(calls_on_the_cpu_wait_for_nothing) {
  fl_host *host = device_host(NULL, FL_HOST_SYNCHRONOUS);
  matrix x, out;
  matrix_make(&x, host, cpu, 1, 4, gated);
  matrix_make(&out, host, cpu, 1, 2, NULL);
  ck_ok(silu_and_mul(host, &x, &out, NULL));
  matrix_check(&out, gated_result, 2);
  ck_assert_uint_eq(test_device->synchronous, 0);
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------- ops whose arguments name no device */

/* On the host: its results become 0. */
static fl_status clear(void *self, fl_call *call) {
  const DLTensor *out = call->values[call->count - 1].v.tensor;
  (void)self;
  memset(fl_data(out), 0, (size_t)out->shape[0] * sizeof(float));
  return FL_OK;
}

/* An op of a plugin that has it for the host alone. */
static void register_host_op(fl_host *host, const char *name, const char *schema, const char *rules) {
  const fl_op_def op = {.size = sizeof op, .schema = schema, .rules = rules};
  const fl_impl impl = {.size = sizeof impl,
                        .op_name = name,
                        .impl_id = "default.acme",
                        .kind = FL_KIND_DEFAULT,
                        .devices = FL_DEVICE(kDLCPU),
                        .dtypes = FL_FLOAT32,
                        .fn = clear};
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  ck_ok(registry->register_op(registry, &op));
  ck_ok(registry->register_impl(registry, &impl));
  ck_ok(fl_stage_commit(stage, NULL));
}

static void check_host_op(fl_host *host, const char *name, fl_value *values, uint32_t n) {
  fl_call call = {.size = sizeof call, .count = n, .values = values};
  float memory[3][2] = {{1, 1}, {1, 1}, {1, 1}};
  DLTensor on_host[3];
  ck_assert_int_eq(fl_call_op(host, name, &call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "default.acme: works on cpu, the tensors are on ext_dev");
  for (uint32_t i = 0; i < n; i++)
    if (values[i].type == FL_TENSOR) {
      on_host[i] = *values[i].v.tensor;
      on_host[i].device = cpu;
      on_host[i].data = memory[i];
      values[i].v.tensor = &on_host[i];
    }
  ck_ok(fl_call_op(host, name, &call));
  ck_assert_float_eq(memory[n - 1][1], 0);
}

START_TEST(a_result_on_a_device_is_for_no_cpu_kernel_whatever_the_arguments_are) {
  fl_host *host = device_host(NULL, _i ? FL_HOST_NO_ARGUMENT_CHECKS : 0);
  matrix a, b;
  matrix_make(&a, host, device0, 2, 2, NULL);
  matrix_make(&b, host, device0, 2, 2, NULL);
  a.tensor.ndim = b.tensor.ndim = 1;
  a.tensor.strides = b.tensor.strides = NULL;
  register_host_op(host, "acme_zeros", "acme_zeros(int n) -> Tensor out", "out: float32[n]");
  check_host_op(host, "acme_zeros", (fl_value[]){fl_int(2), fl_tensor(&a.tensor)}, 2);
  register_host_op(host, "acme_either", "acme_either(Tensor? a, Tensor? b) -> Tensor? out",
                   "a: float32[n]; b: float32[n]; out: float32[n]");
  check_host_op(host, "acme_either", (fl_value[]){fl_none(), fl_tensor(&a.tensor), fl_tensor(&b.tensor)}, 3);
  matrix_free(&a);
  matrix_free(&b);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, a_tensor_on_a_device_gets_that_devices_kernel_and_the_calls_stream);
  tcase_add_test(tests, tensors_on_two_devices_are_an_argument_error);
  tcase_add_test(tests, no_cpu_kernel_stands_in_for_a_device);
  tcase_add_test(tests, min_arch_is_compared_by_the_platform);
  tcase_add_test(tests, without_an_order_of_architectures_only_equal_names_reach);
  tcase_add_test(tests, an_implementation_is_not_available_below_its_min_arch);
  tcase_add_test(tests, R6_a_device_is_not_asked_for_a_vendor_that_is_denied);
  tcase_add_test(tests, where_devices_differ_that_of_the_tensors_counts);
  tcase_add_test(tests, explaining_asks_a_devices_architecture_in_a_child_process);
  tcase_add_test(tests, a_workspace_is_asked_for_and_given);
  tcase_add_test(tests, a_call_that_brings_no_workspace_gets_the_hosts);
  tcase_add_test(tests, each_stream_and_device_has_a_workspace_which_grows);
  tcase_add_test(tests, a_workspace_that_is_too_small_is_outgrown);
  tcase_add_test(tests, an_engines_allocator_gives_the_workspaces);
  tcase_add_test(tests, while_a_stream_is_captured_no_workspace_grows);
  tcase_add_test(tests, without_memory_for_a_workspace_the_next_implementation_runs);
  tcase_add_test(tests, threads_share_the_workspace_of_a_stream);
  tcase_add_test(tests, the_workspace_is_that_of_the_policy_in_force);
  tcase_add_test(tests, an_implementation_that_works_only_in_place_is_offered_functionally_on_a_device);
  tcase_add_test(tests, F6_a_failed_call_in_place_on_a_device_is_not_tried_again_without_a_copy);
  tcase_add_test(tests, F6_preserve_inputs_lets_a_fallback_start_from_a_copy_on_the_device);
  tcase_add_test(tests, F6_without_device_memory_for_the_copy_the_call_is_not_tried_again);
  tcase_add_test(tests, a_late_error_is_passed_on_with_a_word_about_where_it_may_come_from);
  tcase_add_loop_test(tests, synchronous_calls_find_the_op_that_failed_and_fall_back, 0, 2);
  tcase_add_test(tests, a_synchronous_call_is_not_blamed_for_what_was_queued_before_it);
  tcase_add_test(tests, calls_on_the_cpu_wait_for_nothing);
  tcase_add_loop_test(tests, a_result_on_a_device_is_for_no_cpu_kernel_whatever_the_arguments_are, 0, 2);
}

int main(void) {
  return run_suite("device_calls", add_tests, 30);
}
