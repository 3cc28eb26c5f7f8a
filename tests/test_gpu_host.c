/*
 * The GPU plugins in a host, on stand-in drivers: which device a call reaches and which it leaves alone, also in a
 * capture, after a failure and in a forked child.
 */
#include "tests/gpu.h"

#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static silu_call silu;

static const gpu_setup *const cuda = &gpu_setups[0], *const hip6 = &gpu_setups[2];

static fl_status call_on(fl_host *host, DLDevice device) {
  fl_call call = FL_CALL(silu.values);
  silu_move(&silu, device);
  return fl_call_op(host, "silu_and_mul", &call);
}

/* On a device of the type that the tensors are made for. */
static fl_status call_host(fl_host *host, int32_t device) {
  return call_on(host, (DLDevice){silu.x->tensor.device.device_type, device});
}

START_TEST(a_lost_device_is_a_failure_and_the_cpu_goes_on) {
  fl_host *host = gpu_host(cuda);
  silu_make(&silu, kDLCUDA, 0);
  ck_ok(call_host(host, 0));
  silu_assert_computed(&silu);
  stand_in_set("launch=700");
  ck_assert_int_eq(call_host(host, 0), FL_EDEVICE);
  ck_contains(fl_error_message(), "device 0 is lost: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
  ck_ok(call_on(host, (DLDevice){kDLCPU, 0}));
  fl_host_destroy(host);
}
END_TEST

/* The host asks whether an implementation is available only once. */
START_TEST(an_op_that_is_first_called_in_a_capture_is_loaded_then) {
  fl_host *host = gpu_host(cuda);
  int (*exchange)(int *), mode = 0;
  silu_make(&silu, kDLCUDA, 0);
  stand_in_use_device(0);
  stand_in_set("capturing=1");
  ck_ok(call_host(host, 0));
  ck_assert_int_eq(stand_in_lines("load"), 1);
  stand_in_find("cuThreadExchangeStreamCaptureMode", &exchange);
  ck_assert_int_eq(exchange(&mode), 0);
  ck_assert_int_eq(mode, 0); /* the thread's own, as it was */
  stand_in_set("");
  ck_ok(call_host(host, 0));
  silu_assert_computed(&silu);
  fl_host_destroy(host);
}
END_TEST

/* What is captured does not run, so that there is nothing to wait for; waiting would end the capture. */
START_TEST(synchronous_calls_can_be_captured) {
  static const char *const environment[] = {"VLLM_FL_SYNCHRONIZE=1", NULL};
  const gpu_setup *setup = _i ? hip6 : cuda;
  char plugin[PATH_MAX];
  stand_in_open(setup->driver);
  setenv(setup->setting, stand_in_path(), 1);
  fl_host *host = test_host(environment, 0);
  snprintf(plugin, sizeof plugin, "%s/tests/drivers/plugins/%s", build_dir(), setup->plugin);
  ck_ok(fl_load_plugin(host, plugin));
  silu_make(&silu, setup->device_type, 0);
  ck_ok(call_host(host, 0));
  ck_assert_int_eq(stand_in_lines("synchronize stream"), 2); /* for what was queued before, and for the call */
  stand_in_set("capturing=1");
  stand_in_clear();
  ck_ok(call_host(host, 0));
  ck_assert_int_eq(stand_in_lines("launch"), 1);
  ck_assert_int_eq(stand_in_lines("synchronize"), 0);
  fl_host_destroy(host);
}
END_TEST

/* Not even in a child process, nor a library that does not exist here. */
START_TEST(a_call_on_the_cpu_asks_no_gpu) {
  const int64_t shape[] = {4, 4};
  const gpu_setup *setup = _i ? hip6 : cuda;
  fl_host *host = gpu_host(setup);
  owned *weight = make(float32, 2, shape, 0), *in = make(float32, 2, shape, 0), *product = make(float32, 2, shape, 0);
  fl_value values[] = {fl_tensor(&in->tensor), fl_tensor(&weight->tensor), fl_none(), fl_bool(false),
                       fl_tensor(&product->tensor)};
  fl_call call = {.size = sizeof call, .count = 5, .values = values};
  stand_in_set("crash=1");
  ck_ok(fl_call_op(host, "replicated_linear", &call));
  fl_explanation *explanation;
  stand_in_set("");
  ck_ok(fl_explain(host, "replicated_linear", setup->device_type, &explanation)); /* which asks now */
  ck_assert_str_eq(explanation->selected, setup->impl_id);
  fl_explanation_free(explanation);
  unmake(in);
  unmake(weight);
  unmake(product);
  fl_host_destroy(host);
}
END_TEST

/* A context takes device memory, and the other devices may be other processes'. */
START_TEST(a_call_makes_a_context_on_its_own_device_alone) {
  fl_host *host = gpu_host(cuda);
  stand_in_set("devices=4");
  silu_make(&silu, kDLCUDA, 0);
  stand_in_use_device(2);
  ck_ok(call_host(host, 2));
  ck_assert_msg(stand_in_lines("retain") == stand_in_lines("release") + 1, "%s", stand_in_log());
  ck_assert_int_eq(stand_in_lines("retain 0") + stand_in_lines("retain 1") + stand_in_lines("retain 3"), 0);
  /* What is free on the others is not known for that. */
  for (int i = 0; i < 4; i++) {
    fl_device_properties p = {.size = sizeof p};
    ck_ok(fl_device_get_properties(host, (DLDevice){kDLCUDA, i}, &p));
    ck_assert_str_eq(p.arch, "sm_90");
    ck_assert_uint_eq(p.memory_total, UINT64_C(80) << 30);
    ck_assert_uint_eq(p.memory_free, i == 2 ? UINT64_C(60) << 30 : 0);
  }
  fl_host_destroy(host);
}
END_TEST

static void *call_in_thread(void *host) {
  return (void *)(intptr_t)call_host(host, 0);
}

/* While a thread asks for the device, another forks: in the child nobody will come to an end with asking. */
START_TEST(X1_a_child_that_is_forked_while_the_driver_is_asked_can_call) {
  fl_host *host = gpu_host(cuda);
  pthread_t thread;
  void *result;
  int status = 1;
  silu_make(&silu, kDLCUDA, 0);
  stand_in_set("stall=500");
  ck_assert_int_eq(pthread_create(&thread, NULL, call_in_thread, host), 0);
  usleep(200000);
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    alarm(15);
    _exit(call_host(host, 0));
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  pthread_join(thread, &result);
  ck_assert_ptr_null(result);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F5_a_device_that_is_not_there_is_held_against_nobody) {
  fl_host *host = gpu_host(_i ? hip6 : cuda);
  fl_failed_impls *failed;
  silu_make(&silu, (_i ? hip6 : cuda)->device_type, 0);
  ck_ok(call_host(host, 0));
  ck_assert_int_eq(call_host(host, 7), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), _i ? "silu_and_mul: there is no ROCm device 7; the driver reports 1"
                                          : "silu_and_mul: there is no CUDA device 7; the driver reports 1");
  ck_assert_int_eq(call_host(host, -1), FL_EINVAL);
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  ck_ok(call_host(host, 0));
  fl_host_destroy(host);
}
END_TEST

static void free_tensors(void) {
  silu_free(&silu);
}

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, free_tensors);
  tcase_add_test(tests, a_lost_device_is_a_failure_and_the_cpu_goes_on);
  tcase_add_test(tests, an_op_that_is_first_called_in_a_capture_is_loaded_then);
  tcase_add_loop_test(tests, synchronous_calls_can_be_captured, 0, 2);
  tcase_add_loop_test(tests, a_call_on_the_cpu_asks_no_gpu, 0, 2);
  tcase_add_test(tests, a_call_makes_a_context_on_its_own_device_alone);
  tcase_add_test(tests, X1_a_child_that_is_forked_while_the_driver_is_asked_can_call);
  tcase_add_loop_test(tests, F5_a_device_that_is_not_there_is_held_against_nobody, 0, 2);
}

int main(void) {
  return run_suite("gpu_host", add_tests, 30);
}
