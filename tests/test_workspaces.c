/* Workspaces that the host brings to calls with tensors in its own memory: one for each thread, others for calls inside
 * a call. Those of devices are in test_device_calls.c. */
#include "tests/fixture.h"

#include <stdlib.h>
#include <string.h>

static const DLDataType float32 = {kDLFloat, 32, 1};

/* fill(x, n, depth): wants n bytes, fills them with the depth, calls itself with one less, and looks at them again.
 * What it met is told through these. */
static _Thread_local struct {
  void *workspace[8];
  size_t size[8];
} met;

static fl_op *op;

enum { X, N, DEPTH, OUT };

static size_t wants(void *self, const fl_call *call) {
  (void)self;
  return (size_t)call->values[N].v.i;
}

static fl_status fill(void *self, fl_call *call) {
  int64_t n = call->values[N].v.i, depth = call->values[DEPTH].v.i;
  char *workspace = call->workspace;
  (void)self;
  met.workspace[depth] = workspace;
  met.size[depth] = call->workspace_size;
  if (call->workspace_size < (size_t)n)
    return fl_fail(call, FL_ENOTSUP, "%zu bytes of workspace, expected %lld", call->workspace_size, (long long)n);
  if ((uintptr_t)workspace % 256)
    return fl_fail(call, FL_EINTERNAL, "its workspace is not aligned");
  if (n)
    memset(workspace, (int)depth + 1, (size_t)n);
  if (depth) {
    fl_value values[4];
    memcpy(values, call->values, sizeof values);
    values[DEPTH] = fl_int(depth - 1);
    fl_call inner = FL_CALL(values);
    fl_status status = fl_invoke(op, &inner);
    if (status)
      return fl_fail(call, status, "%s", fl_error_message());
  }
  for (int64_t i = 0; i < n; i++)
    if (workspace[i] != depth + 1)
      return fl_fail(call, FL_EINTERNAL, "byte %lld of its workspace is another's", (long long)i);
  return FL_OK;
}

typedef struct filled {
  DLTensor x, out;
  int64_t shape[1];
  float storage[2];
  fl_value values[4];
  fl_call call;
} filled;

static void prepare(filled *f, int64_t n, int64_t depth) {
  *f = (filled){.shape = {1}};
  f->x = (DLTensor){&f->storage[0], {kDLCPU, 0}, 1, float32, f->shape, NULL, 0};
  f->out = (DLTensor){&f->storage[1], {kDLCPU, 0}, 1, float32, f->shape, NULL, 0};
  f->values[X] = fl_tensor(&f->x);
  f->values[N] = fl_int(n);
  f->values[DEPTH] = fl_int(depth);
  f->values[OUT] = fl_tensor(&f->out);
  f->call = (fl_call)FL_CALL(f->values);
}

static fl_host *host_with_fill(const char *second) {
  static const fl_op_def def = {.size = sizeof def, .schema = "fill(Tensor x, int n, int depth=0) -> Tensor out"};
  fl_host *host = test_host(NULL, 0);
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "fill",
                  .impl_id = "default.fill",
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = fill,
                  .workspace_size = wants};
  ck_ok(fl_register_op(host, &def));
  ck_ok(fl_register_impl(host, &impl));
  if (second) {
    impl.impl_id = second;
    impl.kind = FL_KIND_REFERENCE;
    ck_ok(fl_register_impl(host, &impl));
  }
  op = fl_find_op(host, "fill");
  test_log_clear();
  return host;
}

START_TEST(a_thread_has_a_workspace_that_grows_and_stays) {
  fl_host *host = host_with_fill(NULL);
  filled f;
  prepare(&f, 1000, 0);
  ck_ok(fl_invoke(op, &f.call));
  void *first = met.workspace[0];
  ck_assert_ptr_nonnull(first);
  ck_assert_ptr_null(f.call.workspace);
  prepare(&f, 10, 0);
  ck_ok(fl_invoke(op, &f.call));
  ck_assert_ptr_eq(met.workspace[0], first);
  prepare(&f, 1 << 20, 0);
  ck_ok(fl_invoke(op, &f.call));
  ck_assert_uint_ge(met.size[0], 1 << 20);
  void *larger = met.workspace[0];
  prepare(&f, 1000, 0);
  ck_ok(fl_invoke(op, &f.call));
  ck_assert_ptr_eq(met.workspace[0], larger);
  prepare(&f, 0, 0); /* it wants none now */
  ck_ok(fl_invoke(op, &f.call));
  ck_assert_ptr_null(met.workspace[0]);
  ck_assert_uint_eq(fl_workspace_bytes(host), 0); /* those of devices alone */
  fl_host_destroy(host);
}
END_TEST

START_TEST(calls_inside_a_call_have_workspaces_of_their_own) {
  fl_host *host = host_with_fill(NULL);
  filled f;
  prepare(&f, 5000, 3);
  for (int i = 0; i < 2; i++)
    ck_ok(fl_invoke(op, &f.call));
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < i; j++)
      ck_assert_ptr_ne(met.workspace[i], met.workspace[j]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_workspace_that_a_call_brings_is_used_and_no_other) {
  fl_host *host = host_with_fill(NULL);
  filled f;
  _Alignas(256) char own[512];
  prepare(&f, 512, 0);
  f.call.workspace = own;
  f.call.workspace_size = sizeof own;
  ck_ok(fl_invoke(op, &f.call));
  ck_assert_ptr_eq(met.workspace[0], own);
  ck_assert_ptr_eq(f.call.workspace, own);
  ck_assert_uint_eq(f.call.workspace_size, sizeof own);
  fl_host_destroy(host);
}
END_TEST

START_TEST(one_that_cannot_be_had_is_a_warning_and_the_next_implementation_runs) {
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
  printf("skip: one_that_cannot_be_had_is_a_warning_and_the_next_implementation_runs: a sanitizer ends the program "
         "there\n");
  return;
#endif
  fl_host *host = host_with_fill("reference.fill");
  filled f;
  prepare(&f, INT64_MAX - 4096, 0);
  for (int i = 0; i < 2; i++)
    ck_assert_int_eq(fl_invoke(op, &f.call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "default.fill: not supported: 0 bytes of workspace, expected 9223372036854771711");
  ck_contains(fl_error_message(), "reference.fill: not supported: 0 bytes of workspace");
  ck_assert_int_eq(
      test_log_count("WARNING Op 'fill': 'default.fill' wants a workspace of 9223372036854771711 bytes, and "
                     "has 0: out of memory"),
      1);
  prepare(&f, 100, 0);
  ck_ok(fl_invoke(op, &f.call));
  fl_host_destroy(host);
}
END_TEST

static void *invoke_in_thread(void *user) {
  filled *f = user;
  fl_status status = FL_OK;
  for (int i = 0; i < 100 && !status; i++)
    status = fl_invoke(op, &f->call);
  return status ? NULL : met.workspace[0];
}

START_TEST(each_thread_has_its_own) {
  fl_host *host = host_with_fill(NULL);
  filled here, there;
  pthread_t thread;
  void *its;
  prepare(&here, 3000, 1);
  prepare(&there, 3000, 1);
  ck_assert_int_eq(pthread_create(&thread, NULL, invoke_in_thread, &there), 0);
  for (int i = 0; i < 100; i++)
    ck_ok(fl_invoke(op, &here.call));
  pthread_join(thread, &its);
  ck_assert_ptr_nonnull(its);
  ck_assert_ptr_ne(its, met.workspace[0]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_strict_mode_it_is_brought_too) {
  fl_host *host = host_with_fill(NULL);
  fl_scope scope;
  filled f;
  prepare(&f, 100, 0);
  ck_ok(fl_scope_strict(host, &scope));
  ck_ok(fl_invoke(op, &f.call));
  ck_assert_ptr_nonnull(met.workspace[0]);
  ck_ok(fl_scope_leave(&scope));
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, a_thread_has_a_workspace_that_grows_and_stays);
  tcase_add_test(tests, calls_inside_a_call_have_workspaces_of_their_own);
  tcase_add_test(tests, a_workspace_that_a_call_brings_is_used_and_no_other);
  tcase_add_test(tests, one_that_cannot_be_had_is_a_warning_and_the_next_implementation_runs);
  tcase_add_test(tests, each_thread_has_its_own);
  tcase_add_test(tests, in_strict_mode_it_is_brought_too);
}

int main(void) {
  return run_suite("workspaces", add_tests, 30);
}
