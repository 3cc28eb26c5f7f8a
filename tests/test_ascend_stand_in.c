/* The stand-in for ACL itself: that it finds what breaks the rules, since the other suites rely on it. */
#include "tests/npu.h"
#include "tests/scratch.h"

#include <dlfcn.h>

typedef struct aclTensor aclTensor;
typedef struct aclOpExecutor aclOpExecutor;
enum { F32 = 0, ND = 2 };

/* Prototypes of ACL, looked up in the stand-in. */
static int (*init)(const char *), (*set_device)(int32_t), (*allocate)(void **, size_t, int), (*release)(void *);
static int (*synchronize)(void *), (*copy_async)(void *, size_t, const void *, size_t, int, void *);
static aclTensor *(*create)(const int64_t *, uint64_t, int, const int64_t *, int64_t, int, const int64_t *, uint64_t,
                            void *);
static int (*destroy)(const aclTensor *), (*destroy_executor)(aclOpExecutor *);
static int (*swiglu_size)(const aclTensor *, int64_t, const aclTensor *, uint64_t *, aclOpExecutor **);
static int (*swiglu)(void *, uint64_t, aclOpExecutor *, void *);
static int (*silu)(void *, uint64_t, aclOpExecutor *, void *);

static void look_up(const char *name, void *function) {
  void *address = dlsym(npu_control.library, name);
  ck_assert_msg(address != NULL, "no %s", name);
  memcpy(function, &address, sizeof address);
}

static void set_up(void) {
  npu_open_control(built("tests/drivers/ascend/lib64/libascendcl.so"));
  look_up("aclInit", &init);
  look_up("aclrtSetDevice", &set_device);
  look_up("aclrtMalloc", &allocate);
  look_up("aclrtFree", &release);
  look_up("aclrtSynchronizeStream", &synchronize);
  look_up("aclrtMemcpyAsync", &copy_async);
  look_up("aclCreateTensor", &create);
  look_up("aclDestroyTensor", &destroy);
  look_up("aclDestroyAclOpExecutor", &destroy_executor);
  look_up("aclnnSwiGluGetWorkspaceSize", &swiglu_size);
  look_up("aclnnSwiGlu", &swiglu);
  look_up("aclnnSilu", &silu);
  ck_assert_int_eq(init(NULL), 0);
  ck_assert_int_eq(init(NULL), 100002);
  npu_control.set("workspace", "0");
}

static void *memory(size_t size) {
  void *made = NULL;
  ck_assert_int_eq(allocate(&made, size, 0), 0);
  return made;
}

static aclTensor *matrix(void *data, int64_t rows, int64_t columns, int64_t stride) {
  const int64_t shape[] = {rows, columns}, strides[] = {stride, 1}, storage = rows * stride;
  aclTensor *made = create(shape, 2, F32, strides, 0, ND, &storage, 1, data);
  ck_assert_ptr_nonnull(made);
  return made;
}

static void expect_violation(const char *words) {
  ck_assert_int_eq(npu_control.count("violations"), 1);
  ck_contains(npu_control.log(), "violation: ");
  ck_contains(npu_control.log(), words);
  npu_control.clear();
}

START_TEST(a_thread_has_to_set_a_device) {
  void *made;
  uint64_t size;
  aclOpExecutor *executor;
  ck_assert_int_eq(allocate(&made, 1, 0), 107002);
  ck_assert_int_eq(synchronize(NULL), 107002);
  ck_assert_int_eq(swiglu_size(NULL, -1, NULL, &size, &executor), 361001);
  ck_assert_int_eq(set_device(2), 107001);
  ck_assert_int_eq(set_device(1), 0);
  ck_assert_int_eq(allocate(&made, 0, 0), 100000);
  release(memory(1));
}
END_TEST

START_TEST(a_device_has_a_context_until_it_was_reset_as_often_as_it_was_set) {
  int (*reset)(int32_t), (*state)(int32_t, uint32_t *, int32_t *);
  int32_t active = -1;
  look_up("aclrtResetDevice", &reset);
  look_up("aclrtGetPrimaryCtxState", &state);
  ck_assert_int_eq(state(1, NULL, &active), 0);
  ck_assert_int_eq(active, 0);
  ck_assert_int_eq(set_device(1), 0);
  ck_assert_int_eq(set_device(1), 0);
  ck_assert_int_eq(reset(1), 0);
  ck_assert_int_eq(npu_thread_device(), 1);
  ck_assert_int_eq(state(1, NULL, &active), 0);
  ck_assert_int_eq(active, 1);
  ck_assert_int_eq(reset(1), 0);
  ck_assert_int_eq(npu_thread_device(), -1);
  ck_assert_int_eq(npu_control.count("contexts"), 0);
  ck_assert_int_ne(reset(1), 0);
  expect_violation("aclrtResetDevice of a device that is not set");
}
END_TEST

START_TEST(descriptors_are_checked_and_destroyed_once) {
  ck_assert_int_eq(set_device(0), 0);
  char *data = memory(1024);
  const int64_t shape[] = {4, 4}, storage = 15;
  ck_assert_ptr_null(create(shape, 2, F32, NULL, 0, ND, shape, 2, data + 4));
  expect_violation("aclCreateTensor of 2 dimensions");
  aclTensor *tensor = create(shape, 2, F32, NULL, 0, ND, &storage, 1, data);
  expect_violation("larger than its storage");
  ck_assert_int_eq(npu_control.count("tensors"), 1);
  ck_assert_int_eq(destroy(tensor), 0);
  ck_assert_int_eq(npu_control.count("tensors"), 0);
  ck_assert_int_ne(destroy(tensor), 0);
  expect_violation("twice");
  ck_assert_int_eq(release(data), 0);
  ck_assert_int_ne(release(data), 0);
  expect_violation("aclrtFree");
}
END_TEST

/* Executors are for one use, of their own operator; without one they count as left. */
START_TEST(executors_are_used_once) {
  uint64_t size = 0;
  aclOpExecutor *executor = NULL;
  ck_assert_int_eq(set_device(0), 0);
  void *data = memory(4096), *result = memory(4096);
  aclTensor *x = matrix(data, 4, 8, 8), *out = matrix(result, 4, 4, 4);
  ck_assert_int_eq(swiglu_size(x, -1, out, &size, &executor), 0);
  ck_assert_int_eq(npu_control.count("executors"), 1);
  ck_assert_int_eq(silu(NULL, 0, executor, NULL), 0);
  expect_violation("executor of aclnnSwiGlu used for aclnnSilu");
  ck_assert_int_ne(swiglu(NULL, 0, executor, NULL), 0);
  expect_violation("used twice");
  npu_control.set("workspace", "64");
  ck_assert_int_eq(swiglu_size(x, -1, out, &size, &executor), 0);
  ck_assert_uint_eq(size, 64);
  swiglu(NULL, size, executor, NULL);
  expect_violation("workspace of aclnnSwiGlu");
  ck_assert_int_eq(swiglu_size(x, -1, out, &size, &executor), 0);
  ck_assert_int_eq(destroy_executor(executor), 0);
  ck_assert_int_ne(destroy_executor(executor), 0);
  expect_violation("twice");
  ck_assert_int_eq(npu_control.count("executors"), 0);
  destroy(x);
  destroy(out);
}
END_TEST

START_TEST(arguments_are_refused_as_the_operator_documents) {
  uint64_t size;
  aclOpExecutor *executor;
  ck_assert_int_eq(set_device(0), 0);
  void *data = memory(4096);
  aclTensor *padded = matrix(data, 4, 8, 16), *x = matrix(data, 4, 8, 8), *out = matrix(data, 4, 4, 4);
  ck_assert_int_eq(swiglu_size(NULL, -1, out, &size, &executor), 161001);
  ck_assert_int_eq(swiglu_size(padded, -1, out, &size, &executor), 161002);
  ck_contains(npu_control.log(), "is_compact");
  ck_assert_int_eq(swiglu_size(x, -1, x, &size, &executor), 161002);
  ck_assert_int_eq(swiglu_size(x, 5, out, &size, &executor), 161002);
  npu_control.set("soc", "Ascend310P3");
  ck_assert_int_eq(swiglu_size(x, -1, out, &size, &executor), 161002); /* rows of 16 bytes */
  npu_control.set("soc", "Ascend910ProB");
  ck_assert_int_eq(swiglu_size(x, -1, out, &size, &executor), 561003);
  ck_assert_int_eq(npu_control.count("executors"), 0);
  ck_assert_int_eq(npu_control.count("violations"), 0);
  destroy(padded);
  destroy(x);
  destroy(out);
}
END_TEST

/* Work waits until its stream is waited for; what it uses may not go before. */
START_TEST(work_is_done_late_and_needs_its_memory) {
  uint64_t size;
  aclOpExecutor *executor;
  ck_assert_int_eq(set_device(0), 0);
  float *data = memory(4096), *result = memory(4096);
  for (int i = 0; i < 32; i++)
    data[i] = 1;
  result[0] = 9;
  aclTensor *x = matrix(data, 4, 8, 8), *out = matrix(result, 4, 4, 4);
  ck_assert_int_eq(swiglu_size(x, -1, out, &size, &executor), 0);
  ck_assert_int_eq(swiglu(NULL, 0, executor, NULL), 0);
  destroy(x);
  destroy(out);
  ck_assert_float_eq(result[0], 9);
  ck_assert_int_eq(synchronize(NULL), 0);
  ck_assert_float_eq_tol(result[0], 0.7310586f, 1e-5f);
  ck_assert_int_eq(copy_async(result, 4, data, 4, 3, NULL), 0);
  ck_assert_int_eq(npu_control.count("violations"), 0);
  ck_assert_int_eq(release(data), 0);
  expect_violation("freed before it was done");
  ck_assert_int_ne(copy_async(&size, 4, result, 4, 2, NULL), 0);
  expect_violation("host memory that ACL has not allocated");
}
END_TEST

/* What the vendor wants to be done first, and what is none of its. */
START_TEST(streams_events_and_graphs_are_given_back_when_they_are_done_with) {
  int (*create_stream)(void **), (*destroy_stream)(void *), (*create_event)(void **, uint32_t),
      (*destroy_event)(void *);
  int (*wait_event)(void *, void *), (*capture)(void *, int), (*capture_end)(void *, void **);
  int (*execute)(void *, void *), (*destroy_graph)(void *), (*free_host)(void *);
  void *stream = NULL, *other = NULL, *event = NULL, *graph = NULL;
  look_up("aclrtCreateStream", &create_stream);
  look_up("aclrtDestroyStream", &destroy_stream);
  look_up("aclrtCreateEventExWithFlag", &create_event);
  look_up("aclrtDestroyEvent", &destroy_event);
  look_up("aclrtStreamWaitEvent", &wait_event);
  look_up("aclmdlRICaptureBegin", &capture);
  look_up("aclmdlRICaptureEnd", &capture_end);
  look_up("aclmdlRIExecuteAsync", &execute);
  look_up("aclmdlRIDestroy", &destroy_graph);
  look_up("aclrtFreeHost", &free_host);
  ck_assert_int_eq(set_device(0), 0);
  float *data = memory(64), *result = memory(64);
  ck_assert_int_eq(create_stream(&stream), 0);
  ck_assert_int_eq(create_stream(&other), 0);
  ck_assert_int_eq(create_event(&event, 1), 0);
  ck_assert_int_ne(wait_event(stream, event), 0); /* it was not recorded */
  ck_assert_int_eq(destroy_event(event), 0);
  ck_assert_int_ne(destroy_event(event), 0);
  expect_violation("aclrtDestroyEvent of what is no event");
  ck_assert_int_eq(capture(stream, 1), 0);
  ck_assert_int_eq(copy_async(result, 4, data, 4, 3, stream), 0);
  ck_assert_int_eq(destroy_stream(stream), 107027);
  ck_assert_int_eq(capture_end(stream, &graph), 0);
  ck_assert_int_eq(execute(graph, stream), 0);
  ck_assert_int_eq(destroy_graph(graph), 107037);
  expect_violation("aclmdlRIDestroy of a graph that runs");
  ck_assert_int_eq(synchronize(stream), 0);
  ck_assert_int_eq(destroy_graph(graph), 0);
  ck_assert_int_eq(copy_async(result, 4, data, 4, 3, other), 0);
  ck_assert_int_eq(destroy_stream(other), 0);
  expect_violation("stream destroyed before its work was done");
  ck_assert_int_eq(destroy_stream(stream), 0);
  ck_assert_int_ne(free_host(data), 0);
  expect_violation("aclrtFreeHost of what it is not for");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, NULL);
  tcase_add_test(tests, a_thread_has_to_set_a_device);
  tcase_add_test(tests, a_device_has_a_context_until_it_was_reset_as_often_as_it_was_set);
  tcase_add_test(tests, descriptors_are_checked_and_destroyed_once);
  tcase_add_test(tests, executors_are_used_once);
  tcase_add_test(tests, arguments_are_refused_as_the_operator_documents);
  tcase_add_test(tests, work_is_done_late_and_needs_its_memory);
  tcase_add_test(tests, streams_events_and_graphs_are_given_back_when_they_are_done_with);
}

int main(void) {
  return run_suite("ascend_stand_in", add_tests, 30);
}
