/*
 * The host code of the GPU plugins on stand-in drivers: what is found, what a launch does and does not do, and what
 * becomes of each error. The plugins' functions are called as the host calls them, without one.
 */
#include "plugins/driver.h"
#include "tests/gpu.h"
#include "tests/scratch.h"

#include <limits.h>
#include <pthread.h>

static gpu_plugin plugin;
static silu_call silu;
static char words[512];

static const gpu_setup *const cuda = &gpu_setups[0], *const hip5 = &gpu_setups[1], *const hip6 = &gpu_setups[2];

static void load(const char *name, const char *setting, const char *path_of_driver) {
  setenv(setting, path_of_driver, 1);
  gpu_plugin_open(&plugin, name);
}

/* The plugin on its stand-in, which behaves as `settings` say. */
static void set_up(const gpu_setup *setup, const char *settings) {
  gpu_plugin_on_stand_in(&plugin, setup, NULL);
  stand_in_set(settings);
}

static const fl_impl *impl_of(const char *op) {
  return gpu_plugin_impl(&plugin, op, NULL);
}

static const char *unavailable(void) {
  const fl_impl *impl = impl_of("silu_and_mul");
  const char *reason = NULL;
  return impl->is_available(impl->self, &reason) ? NULL : reason ? reason : "(no reason)";
}

static void assert_available(void) {
  const char *reason = unavailable();
  ck_assert_msg(!reason, "not available: %s", reason);
}

static void make_tensors(int32_t device) {
  silu_make(&silu, plugin.platform.device_type, device);
}

static void move_tensors(int32_t device) {
  silu_move(&silu, (DLDevice){(DLDeviceType)plugin.platform.device_type, device});
}

static fl_status call_on(void *stream) {
  const fl_impl *impl = impl_of("silu_and_mul");
  fl_call call = FL_CALL(silu.values);
  call.stream = stream;
  call.message = words;
  call.message_size = sizeof words;
  words[0] = 0;
  return impl->fn(impl->self, &call);
}

#define assert_status(call, expected) assert_call_status(call, expected, words)

/* -------------------------------------------------------------------------------------------------- registration */

START_TEST(a_gpu_plugin_registers_a_platform_and_vendor_implementations) {
  const gpu_setup *setup = _i ? hip6 : cuda;
  set_up(setup, "");
  ck_assert_int_eq(plugin.platform.device_type, setup->device_type);
  ck_assert_int_gt(plugin.n_impls, 0);
  for (int i = 0; i < plugin.n_impls; i++) {
    size_t length = strlen(setup->impl_id); /* and what a library of the vendor's computes: vendor.cuda.cudnn */
    ck_assert_msg(!strncmp(plugin.impls[i].impl_id, setup->impl_id, length) &&
                      strchr(".", plugin.impls[i].impl_id[length]),
                  "%s, expected %s", plugin.impls[i].impl_id, setup->impl_id);
    ck_assert_int_eq(plugin.impls[i].kind, FL_KIND_VENDOR);
    ck_assert_str_eq(plugin.impls[i].vendor, _i ? "rocm" : "cuda");
    ck_assert_str_eq(plugin.impls[i].min_arch, _i ? "gfx900,gfx1010" : "sm_80");
    ck_assert_uint_eq(plugin.impls[i].devices, FL_DEVICE(setup->device_type));
  }
}
END_TEST

/* -------------------------------------------------------------------------------------------------- availability */

START_TEST(a_driver_library_that_is_missing_or_too_old_is_named) {
  const char *reason;
  load("cuda.so", "FLHOST_CUDA_DRIVER", "/nonexistent/libcuda.so.1");
  ck_assert(!plugin.platform.is_active(plugin.self, &reason));
  ck_contains(reason, "FLHOST_CUDA_DRIVER: /nonexistent/libcuda.so.1: cannot open shared object file");
  ck_contains(unavailable(), "/nonexistent/libcuda.so.1");
  ck_assert_int_eq(plugin.platform.device_count(plugin.self), -1);
}
END_TEST

/* As ROCm's is, in /opt/rocm or where ROCM_PATH says. */
START_TEST(a_driver_library_in_its_vendors_own_directory_is_found) {
  const char *reason, *name = "libflhost_own_directory.so.1";
  char absolute[PATH_MAX], link[PATH_MAX];
  driver missing = {.libraries = {name}, .nodes = {"/dev/null"}}, found = missing;
  stand_in_open(cuda->driver);
  scratch_make();
  ck_assert_ptr_nonnull(realpath(stand_in_path(), absolute));
  ck_assert_int_eq(mkdir(in_scratch("lib"), 0755), 0);
  snprintf(link, sizeof link, "%s/%s", in_scratch("lib"), name);
  ck_assert_int_eq(symlink(absolute, link), 0);
  setenv("TEST_VENDOR_PATH", in_scratch(""), 1);
  ck_assert(!driver_present(&missing, &reason));
  ck_contains(reason, "libflhost_own_directory.so.1: cannot open shared object file");
  found.root = "TEST_VENDOR_PATH";
  ck_assert(driver_present(&found, &reason));
  ck_assert_ptr_nonnull(found.library);
  scratch_remove();
}
END_TEST

START_TEST(a_driver_without_a_function_that_is_needed_names_it) {
  stand_in_open("standin_cuda_old.so");
  load("cuda.so", "FLHOST_CUDA_DRIVER", stand_in_path());
  ck_contains(unavailable(), "standin_cuda_old.so lacks cuGetErrorName");
}
END_TEST

static const struct {
  int setup;
  const char *settings, *reason; /* NULL: it is available */
} situations[] = {
    {0, "", NULL},
    {0, "major=8 minor=0", NULL},
    {0, "major=8 minor=9", NULL},
    {0, "major=9 version=13020", NULL},
    {0, "major=10", NULL}, /* by PTX */
    {0, "devices=0", "the driver reports no device"},
    {0, "init=803", "CUDA: initialisation: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"},
    {0, "count=999", "CUDA: counting the devices: unknown error (999)"},
    {0, "describe=999", "CUDA: asking a device for its properties: unknown error (999)"},
    {0, "major=7 minor=5", "device of architecture sm_75, the kernels need sm_80 or newer"},
    {0, "version=12040", "the driver is for CUDA 12.4, the kernels need one for 13.0"},
    {0, "major=12 version=12080",
     "the driver is for CUDA 12.8, the kernels need one for 13.0 to be compiled for this device"},
    {0, "crash=1", "the CUDA driver ended the process that asked it (Segmentation fault)"},
    {1, "", NULL},
    {1, "arch=1", NULL}, /* gfx942 */
    {1, "arch=2", "the kernels are compiled for gfx90a,gfx942,gfx1100,gfx1200, this device is gfx803"},
    {1, "devices=0", "the driver reports no device"},
    {2, "", NULL},
    {2, "arch=1", NULL},
    {2, "arch=2", "the kernels are compiled for gfx90a,gfx942,gfx1100,gfx1200, this device is gfx803"},
    {3, "", NULL},
    {3, "arch=1", NULL}, /* gfx1200 */
    {3, "arch=2", "the kernels are compiled for gfx90a,gfx942,gfx1100,gfx1200, this device is gfx1151"},
};
enum { N_SITUATIONS = sizeof situations / sizeof situations[0] };

START_TEST(availability_has_its_reason) {
  set_up(&gpu_setups[situations[_i].setup], situations[_i].settings);
  const char *reason = unavailable();
  if (!situations[_i].reason)
    ck_assert_msg(!reason, "%s: %s", situations[_i].settings, reason);
  else
    ck_assert_str_eq(reason, situations[_i].reason);
}
END_TEST

/* What an engine does that forks its workers before it uses the device. */
START_TEST(availability_initialises_nothing_in_the_process) {
  int (*get_count)(int *), n;
  set_up(cuda, "");
  assert_available();
  stand_in_find("cuDeviceGetCount", &get_count);
  ck_assert_int_eq(get_count(&n), 3);
  ck_assert_str_eq(stand_in_log(), "");
}
END_TEST

START_TEST(without_the_vendors_compiler_there_is_a_platform_and_a_reason) {
  const gpu_setup *setup = _i ? hip6 : cuda;
  const char *reason;
  stand_in_open(setup->driver);
  load(_i ? "rocm_bare.so" : "cuda_bare.so", setup->setting, stand_in_path());
  ck_assert(plugin.platform.is_active(plugin.self, &reason));
  ck_contains(unavailable(), _i ? "built without a clang for AMD's devices" : "built without nvcc");
  make_tensors(0);
  assert_status(call_on(NULL), FL_ENOTSUP);
  ck_contains(words, _i ? "silu_and_mul: built without a clang for AMD's devices" : "silu_and_mul: built without nvcc");
}
END_TEST

/* A card and the graphics of the processor. */
START_TEST(beside_a_device_that_suits_one_that_does_not_is_named) {
  set_up(&gpu_setups[3], "devices=2 arch_step=2");
  assert_available();
  make_tensors(1);
  assert_status(call_on(NULL), FL_ENOTSUP);
  ck_assert_str_eq(words, "silu_and_mul: the kernels are compiled for gfx90a,gfx942,gfx1100,gfx1200, this device is "
                          "gfx1151");
  ck_assert_int_eq(stand_in_lines("load"), 0);
  move_tensors(0);
  assert_status(call_on(NULL), FL_OK);
  silu_assert_computed(&silu);
}
END_TEST

START_TEST(where_the_thread_uses_a_device_availability_loads_the_kernels) {
  set_up(cuda, "devices=2");
  stand_in_use_device(1);
  assert_available();
  ck_assert_int_eq(stand_in_lines("load"), 1);
  make_tensors(1);
  stand_in_set("devices=2 capturing=1");
  assert_status(call_on(NULL), FL_OK);
}
END_TEST

/* Where one op needs the kernels of others. */
START_TEST(availability_loads_all_kernels_of_an_op) {
  const char *reason;
  set_up(cuda, "");
  stand_in_use_device(0);
  const fl_impl *impl = impl_of("fused_moe");
  ck_assert(impl->is_available(impl->self, &reason));
  ck_assert_int_eq(stand_in_lines("load"), 3);
}
END_TEST

START_TEST(kernels_that_do_not_load_are_not_available) {
  static const struct {
    const char *settings, *reason;
  } cases[] = {
      {"load=209", "activation: loading the kernels: CUDA_ERROR_NO_BINARY_FOR_GPU (209)"},
      {"load=218", "activation: loading the kernels: CUDA_ERROR_INVALID_PTX (218)"},
      {"load=222",
       "activation: loading the kernels: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222); the driver is older than the "
       "compiler of these kernels"},
      {"load=2", "activation: loading the kernels: CUDA_ERROR_OUT_OF_MEMORY (2)"},
  };
  set_up(cuda, "");
  stand_in_use_device(0);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    stand_in_set(cases[i].settings);
    ck_assert_str_eq(unavailable(), cases[i].reason);
  }
  stand_in_set("");
  assert_available();
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ launches */

START_TEST(a_call_queues_one_kernel_on_its_stream_and_nothing_else) {
  char stream[16];
  set_up(_i ? hip6 : cuda, "");
  make_tensors(0);
  assert_status(call_on(stream), FL_OK); /* loads */
  stand_in_clear();
  snprintf(words, sizeof words, "stream %p", (void *)stream);
  char expected[64];
  memcpy(expected, words, sizeof expected);
  assert_status(call_on(stream), FL_OK);
  ck_assert_int_eq(stand_in_lines("launch silu_and_mul_f32 grid "), 1);
  ck_contains(stand_in_log(), expected);
  ck_assert_int_eq(stand_in_lines("allocate") + stand_in_lines("synchronize") + stand_in_lines("load") +
                       stand_in_lines("find") + stand_in_lines("copy"),
                   0);
  silu_assert_computed(&silu);
}
END_TEST

START_TEST(nobody_waits_for_a_kernel_but_who_synchronises_its_stream) {
  char streams[2];
  set_up(_i ? hip6 : cuda, "delay=1");
  make_tensors(0);
  double before = get(&silu.out->tensor, 0);
  assert_status(call_on(&streams[0]), FL_OK);
  assert_status(plugin.platform.synchronize(plugin.self, 0, &streams[1], false), FL_OK);
  ck_assert_double_eq(get(&silu.out->tensor, 0), before);
  assert_status(plugin.platform.synchronize(plugin.self, 0, &streams[0], false), FL_OK);
  silu_assert_computed(&silu);
}
END_TEST

START_TEST(zero_tokens_launch_nothing) {
  set_up(cuda, "");
  make_tensors(0);
  silu.x->shape[0] = silu.out->shape[0] = 0;
  assert_status(call_on(NULL), FL_OK);
  ck_assert_str_eq(stand_in_log(), "");
}
END_TEST

START_TEST(the_threads_own_context_is_as_it_was_after_a_call) {
  int (*push)(void *), (*current)(void **);
  char other[1];
  void *now;
  set_up(cuda, "");
  make_tensors(0);
  assert_status(call_on(NULL), FL_OK);
  stand_in_find("cuCtxPushCurrent_v2", &push);
  stand_in_find("cuCtxGetCurrent", &current);
  ck_assert_int_eq(push(other), 0);
  assert_status(call_on(NULL), FL_OK);
  ck_assert_int_eq(current(&now), 0);
  ck_assert_ptr_eq(now, other);
  silu_assert_computed(&silu);
}
END_TEST

START_TEST(the_right_context_is_not_pushed_again) {
  set_up(cuda, "devices=2");
  stand_in_use_device(1);
  make_tensors(1);
  assert_status(call_on(NULL), FL_OK);
  ck_assert_int_eq(stand_in_lines("push") + stand_in_lines("pop"), 0);
  silu_assert_computed(&silu);
}
END_TEST

/* The thread's context or device, as a number. */
static intptr_t place(bool hip) {
  int (*get_context)(void **), (*get_device)(int *), device;
  void *context;
  if (hip) {
    stand_in_find("hipGetDevice", &get_device);
    ck_assert_int_eq(get_device(&device), 0);
    return device;
  }
  stand_in_find("cuCtxGetCurrent", &get_context);
  ck_assert_int_eq(get_context(&context), 0);
  return (intptr_t)context;
}

/* What is loaded is good in one context, or on one device, and nowhere else. */
START_TEST(each_device_has_kernels_of_its_own) {
  set_up(_i ? hip6 : cuda, "devices=3");
  if (!_i)
    stand_in_use_device(0);
  make_tensors(2);
  for (int i = 0; i < 6; i++) {
    intptr_t engines = place(_i);
    move_tensors((i + 2) % 3);
    set(&silu.out->tensor, 0, 0);
    assert_status(call_on(NULL), FL_OK);
    silu_assert_computed(&silu);
    ck_assert_int_eq(place(_i), engines);
  }
  ck_assert_int_eq(stand_in_lines("load"), 3);
  ck_assert_int_eq(stand_in_lines("launch"), 6);
}
END_TEST

START_TEST(hips_device_of_the_thread_is_as_it_was_after_a_call) {
  int (*get_device)(int *), device;
  set_up(hip5, "devices=2");
  make_tensors(1);
  assert_status(call_on(NULL), FL_OK);
  stand_in_find("hipGetDevice", &get_device);
  ck_assert_int_eq(get_device(&device), 0);
  ck_assert_int_eq(device, 0);
  ck_assert_int_eq(stand_in_lines("set device 1"), 1);
  ck_assert_int_eq(stand_in_lines("set device 0"), 1);
}
END_TEST

START_TEST(what_is_not_loaded_is_not_loaded_during_a_capture) {
  set_up(_i ? hip6 : cuda, "capturing=1");
  make_tensors(0);
  assert_status(call_on(NULL), FL_ENOTSUP);
  ck_assert_str_eq(words,
                   "silu_and_mul: its kernels are not on device 0 yet, and while a stream is captured they cannot "
                   "be loaded; call it once before");
  stand_in_set("");
  assert_status(call_on(NULL), FL_OK);
  stand_in_set("capturing=1");
  assert_status(call_on(NULL), FL_OK);
}
END_TEST

static pthread_barrier_t line;
static void *call_once(void *stream) {
  char said[512] = "";
  const fl_impl *impl = impl_of("silu_and_mul");
  fl_call call = FL_CALL(silu.values);
  call.stream = stream;
  call.message = said;
  call.message_size = sizeof said;
  pthread_barrier_wait(&line);
  return impl->fn(impl->self, &call) ? strdup(said) : NULL;
}

START_TEST(threads_that_call_first_together_load_once) {
  enum { THREADS = 8 };
  pthread_t threads[THREADS];
  set_up(cuda, "delay=1"); /* the kernels write to one place: they run after another */
  make_tensors(0);
  pthread_barrier_init(&line, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, call_once, NULL), 0);
  for (int i = 0; i < THREADS; i++) {
    void *said;
    pthread_join(threads[i], &said);
    ck_assert_msg(!said, "%s", (char *)said);
  }
  ck_assert_int_eq(stand_in_lines("load"), 1);
  ck_assert_int_eq(stand_in_lines("launch"), THREADS);
  assert_status(plugin.platform.synchronize(plugin.self, 0, NULL, true), FL_OK);
  silu_assert_computed(&silu);
}
END_TEST

/* -------------------------------------------------------------------------------------------------------- errors */

static const struct {
  const char *settings, *message;
  fl_status status;
} failures[] = {
    {"load=2", "silu_and_mul: loading the kernels: CUDA_ERROR_OUT_OF_MEMORY (2)", FL_ENOMEM},
    {"load=209", "silu_and_mul: loading the kernels: CUDA_ERROR_NO_BINARY_FOR_GPU (209)", FL_ENOTSUP},
    {"load=218", "silu_and_mul: loading the kernels: CUDA_ERROR_INVALID_PTX (218)", FL_ENOTSUP},
    {"load=222",
     "silu_and_mul: loading the kernels: CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222); the driver is older than the "
     "compiler "
     "of these kernels",
     FL_ENOTSUP},
    {"load=801", "silu_and_mul: loading the kernels: unknown error (801)", FL_ENOTSUP},
    {"find=500", "silu_and_mul: silu_and_mul_f32: CUDA_ERROR_NOT_FOUND (500)", FL_EINTERNAL},
    {"launch=1", "silu_and_mul: silu_and_mul_f32: unknown error (1)", FL_EINTERNAL},
    {"launch=701", "silu_and_mul: silu_and_mul_f32: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701)", FL_EINTERNAL},
    {"launch=2", "silu_and_mul: silu_and_mul_f32: CUDA_ERROR_OUT_OF_MEMORY (2)", FL_ENOMEM},
    {"launch=3",
     "silu_and_mul: silu_and_mul_f32: CUDA_ERROR_NOT_INITIALIZED (3); was the process forked after the driver was "
     "initialised, or is it ending?",
     FL_EDEVICE},
    {"launch=46", "silu_and_mul: silu_and_mul_f32: unknown error (46)", FL_EDEVICE},
};
enum { N_FAILURES = sizeof failures / sizeof failures[0] };

START_TEST(a_failed_call_says_where_and_the_next_one_works) {
  set_up(cuda, failures[_i].settings);
  make_tensors(0);
  assert_status(call_on(NULL), failures[_i].status);
  ck_assert_str_eq(words, failures[_i].message);
  stand_in_set("");
  assert_status(call_on(NULL), FL_OK);
  silu_assert_computed(&silu);
}
END_TEST

START_TEST(a_device_that_is_not_there_is_named) {
  set_up(cuda, "devices=2");
  make_tensors(2);
  assert_status(call_on(NULL), FL_EINVAL);
  ck_assert_str_eq(words, "there is no CUDA device 2; the driver reports 2");
}
END_TEST

/* An error of a kernel appears when somebody waits, and stays. */
START_TEST(a_lost_device_is_remembered_with_what_met_it) {
  set_up(_i ? hip6 : cuda, "broken=700");
  const char *name = _i ? "hipErrorIllegalAddress" : "CUDA_ERROR_ILLEGAL_ADDRESS";
  char expected[256];
  make_tensors(0);
  assert_status(call_on(NULL), FL_OK);
  assert_status(plugin.platform.synchronize(plugin.self, 0, NULL, true), FL_EDEVICE);
  snprintf(
      expected, sizeof expected,
      "synchronize: waiting for the device: device 0 is lost: %s (700), from this call or an earlier one (the last "
      "launch was for 'silu_and_mul')",
      name);
  ck_assert_str_eq(plugin.platform.error(plugin.self), expected);
  stand_in_set(""); /* even if the driver said otherwise */
  stand_in_clear();
  assert_status(call_on(NULL), FL_EDEVICE);
  snprintf(expected, sizeof expected,
           "silu_and_mul: device 0 was lost in synchronize, or in a call before it: %s (700); the process has to be "
           "started anew",
           name);
  ck_assert_str_eq(words, expected);
  ck_assert_str_eq(stand_in_log(), "");
}
END_TEST

static const int final_codes[] = {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721};
enum { N_FINAL = sizeof final_codes / sizeof final_codes[0] };

START_TEST(an_error_that_the_context_does_not_survive_is_remembered) {
  char settings[32], code[16];
  set_up(cuda, "devices=2");
  make_tensors(0);
  snprintf(settings, sizeof settings, "devices=2 launch=%d", final_codes[_i]);
  snprintf(code, sizeof code, "(%d)", final_codes[_i]);
  stand_in_set(settings);
  assert_status(call_on(NULL), FL_EDEVICE);
  stand_in_set("devices=2");
  assert_status(call_on(NULL), FL_EDEVICE);
  ck_contains(words, "device 0 was lost");
  ck_contains(words, code);
  move_tensors(1); /* whose context is another */
  assert_status(call_on(NULL), FL_OK);
}
END_TEST

START_TEST(a_launch_that_meets_a_lost_device_names_the_op) {
  set_up(cuda, "launch=719");
  make_tensors(0);
  assert_status(call_on(NULL), FL_EDEVICE);
  ck_assert_str_eq(words, "silu_and_mul: silu_and_mul_f32: device 0 is lost: CUDA_ERROR_LAUNCH_FAILED (719), from this "
                          "call or an earlier one");
  assert_status(call_on(NULL), FL_EDEVICE);
  ck_contains(words, "device 0 was lost in silu_and_mul");
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ platform */

START_TEST(the_platform_describes_its_devices) {
  const gpu_setup *setup = &gpu_setups[_i];
  fl_device_properties p = {.size = sizeof p};
  const char *reason;
  set_up(setup, "devices=2");
  ck_assert(plugin.platform.is_active(plugin.self, &reason));
  ck_assert_int_eq(plugin.platform.device_count(plugin.self), 2);
  assert_status(plugin.platform.properties(plugin.self, 1, &p), FL_OK);
  ck_assert_str_eq(p.name,
                   setup == cuda ? "stand-in for an NVIDIA GPU, number 1" : "stand-in for an AMD GPU, number 1");
  ck_assert_str_eq(p.arch, setup == cuda ? "sm_90" : "gfx90a:sramecc+:xnack-");
  ck_assert_str_eq(p.driver, setup == cuda ? "13.0 (a stand-in of the tests)" : "5.2 (a stand-in of the tests)");
  ck_assert_int_eq(p.units, setup == cuda ? 132 : 110);
  ck_assert_uint_gt(p.memory_total, p.memory_free);
  ck_assert_uint_gt(p.memory_free, 0);
  ck_assert_int_eq(stand_in_lines("retain"), stand_in_lines("release")); /* nothing is left behind */
  assert_status(plugin.platform.properties(plugin.self, 2, &p), FL_EDEVICE);
  ck_contains(plugin.platform.error(plugin.self), "the driver reports 2");
}
END_TEST

START_TEST(a_platform_without_devices_counts_none) {
  int32_t device;
  set_up(_i ? hip6 : cuda, "devices=0");
  ck_assert_int_eq(plugin.platform.device_count(plugin.self), 0);
  assert_status(plugin.platform.current_device(plugin.self, &device), FL_EDEVICE);
  ck_assert_str_eq(plugin.platform.error(plugin.self), "the driver reports no device");
}
END_TEST

START_TEST(the_threads_device_is_the_one_of_its_context) {
  int32_t device = -1;
  set_up(cuda, "devices=3");
  assert_status(plugin.platform.current_device(plugin.self, &device), FL_OK);
  ck_assert_int_eq(device, 0);
  stand_in_use_device(2);
  assert_status(plugin.platform.current_device(plugin.self, &device), FL_OK);
  ck_assert_int_eq(device, 2);
}
END_TEST

START_TEST(memory_is_copied_there_and_back) {
  char sent[100], got[100] = {0};
  void *memory[2];
  set_up(_i ? hip6 : cuda, "delay=1");
  memset(sent, 0x3c, sizeof sent);
  for (int i = 0; i < 2; i++) {
    assert_status(plugin.platform.allocate(plugin.self, 0, sizeof sent, &memory[i]), FL_OK);
    ck_assert_uint_eq((uintptr_t)memory[i] % 256, 0);
  }
  assert_status(plugin.platform.copy(plugin.self, 0, memory[0], sent, sizeof sent, FL_COPY_TO_DEVICE, NULL), FL_OK);
  assert_status(plugin.platform.copy(plugin.self, 0, memory[1], memory[0], sizeof sent, FL_COPY_ON_DEVICE, NULL),
                FL_OK);
  assert_status(plugin.platform.copy(plugin.self, 0, got, memory[1], sizeof sent, FL_COPY_TO_HOST, NULL), FL_OK);
  ck_assert_mem_eq(got, sent, sizeof sent);
  ck_assert_int_eq(stand_in_lines("synchronize"), 2); /* not for the copy on the device */
  for (int i = 0; i < 2; i++)
    assert_status(plugin.platform.release(plugin.self, 0, memory[i]), FL_OK);
}
END_TEST

START_TEST(the_platforms_failures_are_said_in_words) {
  char bytes[8];
  void *memory, *more = bytes;
  set_up(cuda, "");
  assert_status(plugin.platform.allocate(plugin.self, 0, 8, &memory), FL_OK);
  stand_in_set("allocate=2");
  assert_status(plugin.platform.allocate(plugin.self, 0, 1000, &more), FL_ENOMEM);
  ck_assert_ptr_eq(more, bytes);
  ck_assert_str_eq(plugin.platform.error(plugin.self), "device 0 has no 1000 bytes of memory left");
  stand_in_set("copy=1");
  assert_status(plugin.platform.copy(plugin.self, 0, memory, bytes, 8, FL_COPY_TO_DEVICE, NULL), FL_EDEVICE);
  ck_assert_str_eq(plugin.platform.error(plugin.self), "copy: queueing the copy: unknown error (1)");
  stand_in_set("capturing=1");
  assert_status(plugin.platform.copy(plugin.self, 0, memory, bytes, 8, FL_COPY_TO_DEVICE, NULL), FL_EDEVICE);
  ck_assert_str_eq(plugin.platform.error(plugin.self),
                   "copy: waiting for the copy: CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900)");
  stand_in_set("");
  assert_status(plugin.platform.copy(plugin.self, 0, NULL, NULL, 0, FL_COPY_TO_HOST, NULL), FL_OK);
  assert_status(plugin.platform.release(plugin.self, 0, memory), FL_OK);
}
END_TEST

static void free_tensors(void) {
  silu_free(&silu);
}

/* --------------------------------------------------------------------------------------------------- architectures */

START_TEST(the_drivers_version_is_told_before_it_is_initialised) {
  static const char *const versions[GPU_SETUPS] = {"13.0 (a", "5.2.21153 (a"};
  char text[64] = "";
  gpu_plugin_on_stand_in(&plugin, &gpu_setups[_i], NULL);
  plugin.platform.driver_version(plugin.self, text, sizeof text);
  ck_contains(text, versions[_i] ? versions[_i] : ".");
  ck_contains(text, "(a stand-in of the tests)");
  ck_assert_int_eq(stand_in_lines("init"), 0);
}
END_TEST

START_TEST(architectures_are_in_the_vendors_order) {
  static const struct {
    int32_t device_type;
    const char *arch, *least;
    bool reaches;
  } cases[] = {
      {kDLCUDA, "sm_90", "sm_80", true},
      {kDLCUDA, "sm_80", "sm_90", false},
      {kDLCUDA, "sm_80", "sm_80", true},
      {kDLCUDA, "sm_100", "sm_90", true},
      {kDLCUDA, "sm_90", "sm_90a", true},
      {kDLCUDA, "sm_100", "sm_90a", false},
      {kDLCUDA, "sm_103", "sm_100f", true},
      {kDLCUDA, "sm_100", "sm_103f", false},
      {kDLCUDA, "sm_120", "sm_100f", false},
      {kDLCUDA, "unknown", "sm_80", true}, /* not of that form: not judged */
      {kDLROCM, "gfx90a:sramecc+:xnack-", "gfx90a", true},
      {kDLROCM, "gfx90a:sramecc+:xnack-", "gfx90a:xnack-", true},
      {kDLROCM, "gfx90a:sramecc+:xnack+", "gfx90a:xnack-", false},
      {kDLROCM, "gfx942", "gfx90a:xnack-", true},
      {kDLROCM, "gfx908", "gfx90a", false},
      {kDLROCM, "gfx90c", "gfx90a", false},
      {kDLROCM, "gfx90c", "gfx900", true},
      {kDLROCM, "gfx1030", "gfx90a", false},
      {kDLROCM, "gfx942", "gfx1030", false},
      {kDLROCM, "gfx1100", "gfx1030", true},
      {kDLROCM, "gfx1030", "gfx1100", false},
      {kDLROCM, "gfx9-generic", "gfx90a", true},
      {kDLROCM, "sm_80", "gfx90a", true},
  };
  gpu_plugin_on_stand_in(&plugin, &gpu_setups[_i], NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (cases[i].device_type == plugin.platform.device_type)
      ck_assert_msg(plugin.platform.arch_reaches(plugin.self, cases[i].arch, cases[i].least) == cases[i].reaches,
                    "%s for %s", cases[i].arch, cases[i].least);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, free_tensors);
  tcase_add_loop_test(tests, a_gpu_plugin_registers_a_platform_and_vendor_implementations, 0, 2);
  tcase_add_test(tests, a_driver_library_that_is_missing_or_too_old_is_named);
  tcase_add_test(tests, a_driver_library_in_its_vendors_own_directory_is_found);
  tcase_add_test(tests, a_driver_without_a_function_that_is_needed_names_it);
  tcase_add_loop_test(tests, availability_has_its_reason, 0, N_SITUATIONS);
  tcase_add_test(tests, availability_initialises_nothing_in_the_process);
  tcase_add_test(tests, beside_a_device_that_suits_one_that_does_not_is_named);
  tcase_add_loop_test(tests, without_the_vendors_compiler_there_is_a_platform_and_a_reason, 0, 2);
  tcase_add_test(tests, where_the_thread_uses_a_device_availability_loads_the_kernels);
  tcase_add_test(tests, availability_loads_all_kernels_of_an_op);
  tcase_add_test(tests, kernels_that_do_not_load_are_not_available);
  tcase_add_loop_test(tests, a_call_queues_one_kernel_on_its_stream_and_nothing_else, 0, 2);
  tcase_add_loop_test(tests, nobody_waits_for_a_kernel_but_who_synchronises_its_stream, 0, 2);
  tcase_add_test(tests, zero_tokens_launch_nothing);
  tcase_add_test(tests, the_threads_own_context_is_as_it_was_after_a_call);
  tcase_add_test(tests, the_right_context_is_not_pushed_again);
  tcase_add_loop_test(tests, each_device_has_kernels_of_its_own, 0, 2);
  tcase_add_test(tests, hips_device_of_the_thread_is_as_it_was_after_a_call);
  tcase_add_loop_test(tests, what_is_not_loaded_is_not_loaded_during_a_capture, 0, 2);
  tcase_add_test(tests, threads_that_call_first_together_load_once);
  tcase_add_loop_test(tests, a_failed_call_says_where_and_the_next_one_works, 0, N_FAILURES);
  tcase_add_test(tests, a_device_that_is_not_there_is_named);
  tcase_add_loop_test(tests, a_lost_device_is_remembered_with_what_met_it, 0, 2);
  tcase_add_loop_test(tests, an_error_that_the_context_does_not_survive_is_remembered, 0, N_FINAL);
  tcase_add_test(tests, a_launch_that_meets_a_lost_device_names_the_op);
  tcase_add_loop_test(tests, the_platform_describes_its_devices, 0, 3);
  tcase_add_loop_test(tests, a_platform_without_devices_counts_none, 0, 2);
  tcase_add_test(tests, the_threads_device_is_the_one_of_its_context);
  tcase_add_loop_test(tests, memory_is_copied_there_and_back, 0, 2);
  tcase_add_test(tests, the_platforms_failures_are_said_in_words);
  tcase_add_loop_test(tests, the_drivers_version_is_told_before_it_is_initialised, 0, GPU_SETUPS);
  tcase_add_loop_test(tests, architectures_are_in_the_vendors_order, 0, GPU_SETUPS);
}

int main(void) {
  return run_suite("gpu_plugin", add_tests, 30);
}
