/*
 * Devices in the core, with the test device: its memory crashes whoever touches it but its own kernels and copies, so
 * each test here also shows that the host does not.
 */
#include "core/arch.h"
#include "core/error.h"
#include "core/host.h"
#include "tests/fixture.h"
#include "tests/plugins/device.h"
#include "tests/scratch.h"

#include <dlfcn.h>
#include <sys/wait.h>

static const DLDevice device0 = {kDLExtDev, 0}, device1 = {kDLExtDev, 1}, cpu = {kDLCPU, 0};
static const DLDataType float32 = {kDLFloat, 32, 1};

static device_state *state;

/* A host with the CPU plugin and the test device. */
static fl_host *device_host(const char *const *environment, uint32_t flags) {
  const char *plugin = built("tests/plugins/device.so");
  fl_host *host = test_host(environment, flags);
  ck_ok(fl_load_plugin(host, plugin));
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  void *library = dlopen(plugin, RTLD_NOW | RTLD_NOLOAD);
  ck_assert_ptr_nonnull(library);
  state = dlsym(library, "test_device_state");
  ck_assert_ptr_nonnull(state);
  test_log_clear();
  return host;
}

/* A float32 matrix on a device; `stride` is that of its rows. */
typedef struct matrix {
  fl_host *host;
  DLTensor tensor;
  int64_t shape[2], strides[2];
  void *memory;
} matrix;

static void put(matrix *m, const float *values) {
  ck_ok(fl_device_copy(m->host, m->tensor.device, m->memory, values, (size_t)(m->shape[0] * m->strides[0]) * 4,
                       FL_COPY_TO_DEVICE, NULL));
}

static void get(const matrix *m, float *values) {
  ck_ok(fl_device_copy(m->host, m->tensor.device, values, m->memory, (size_t)(m->shape[0] * m->strides[0]) * 4,
                       FL_COPY_TO_HOST, NULL));
}

static void make_strided(matrix *m, fl_host *host, DLDevice device, int64_t rows, int64_t columns, int64_t stride,
                         const float *values) {
  *m = (matrix){.host = host, .shape = {rows, columns}, .strides = {stride, 1}};
  ck_ok(fl_device_allocate(host, device, (size_t)(rows * stride) * 4, &m->memory));
  ck_assert_uint_eq((uintptr_t)m->memory % 256, 0);
  m->tensor = (DLTensor){m->memory, device, 2, float32, m->shape, m->strides, 0};
  if (values)
    put(m, values);
}

static void make(matrix *m, fl_host *host, DLDevice device, int64_t rows, int64_t columns, const float *values) {
  make_strided(m, host, device, rows, columns, columns, values);
}

static void unmake(matrix *m) {
  ck_ok(fl_device_free(m->host, m->tensor.device, m->memory));
}

/* Elements are as expected, to a few units in the last place. */
static void check_values(const matrix *m, const float *expected, size_t n) {
  float values[64];
  ck_assert_uint_le(n, 64);
  get(m, values);
  for (size_t i = 0; i < n; i++)
    ck_assert_msg(values[i] == expected[i] || (values[i] - expected[i] < 1e-5f && expected[i] - values[i] < 1e-5f),
                  "element %zu is %g, expected %g", i, (double)values[i], (double)expected[i]);
}

/* -------------------------------------------------------------------------------------------------- device memory */

START_TEST(memory_of_a_device_is_allocated_copied_and_freed) {
  fl_host *host = device_host(NULL, 0);
  const float values[] = {1, 2, 3, 4};
  float back[4] = {0};
  for (int i = 0; i < 3; i++) {
    DLDevice device = i == 2 ? cpu : (DLDevice){kDLExtDev, i};
    void *a, *b;
    ck_ok(fl_device_allocate(host, device, sizeof values, &a));
    ck_ok(fl_device_allocate(host, device, sizeof values, &b));
    ck_assert_uint_eq((uintptr_t)a % 256, 0);
    ck_assert_ptr_ne(a, b);
    ck_ok(fl_device_copy(host, device, a, values, sizeof values, FL_COPY_TO_DEVICE, NULL));
    ck_ok(fl_device_copy(host, device, b, a, sizeof values, FL_COPY_ON_DEVICE, NULL));
    ck_ok(fl_device_synchronize(host, device, NULL, false));
    memset(back, 0, sizeof back);
    ck_ok(fl_device_copy(host, device, back, b, sizeof back, FL_COPY_TO_HOST, NULL));
    ck_assert_mem_eq(back, values, sizeof values);
    ck_ok(fl_device_free(host, device, a));
    ck_ok(fl_device_free(host, device, b));
  }
  ck_assert_uint_eq(state->allocations, 0);
  ck_ok(fl_device_free(host, device0, NULL));
  fl_host_destroy(host);
}
END_TEST

START_TEST(devices_are_counted_and_described) {
  fl_host *host = device_host(NULL, 0);
  fl_device_properties properties = {.size = sizeof properties};
  DLDevice current;
  int32_t count = 0;
  ck_ok(fl_device_count(host, kDLExtDev, &count));
  ck_assert_int_eq(count, 2);
  ck_ok(fl_device_get_properties(host, device1, &properties));
  ck_assert_str_eq(properties.arch, "td_2");
  ck_assert_uint_eq(properties.memory_total, 256 << 20);
  ck_ok(fl_device_current(host, kDLExtDev, &current));
  ck_assert_int_eq(current.device_id, 0);
  ck_ok(fl_device_count(host, kDLCPU, &count));
  ck_assert_int_eq(count, 1);
  ck_ok(fl_device_get_properties(host, cpu, &properties));
  ck_assert_uint_gt(properties.memory_total, 0);
  ck_assert_int_gt(properties.units, 0);
  /* One that was built when the struct ended earlier. */
  struct {
    fl_device_properties properties;
    char behind;
  } old = {.properties = {.size = offsetof(fl_device_properties, driver)}, .behind = 7};
  memset(old.properties.driver, 7, sizeof old.properties.driver);
  ck_ok(fl_device_get_properties(host, device0, &old.properties));
  ck_assert_str_eq(old.properties.arch, "td_1");
  ck_assert_int_eq(old.properties.driver[0], 7);
  fl_host_destroy(host);
}
END_TEST

START_TEST(device_memory_that_is_not_there_is_an_error_that_says_what_there_is) {
  fl_host *host = device_host(NULL, 0);
  void *memory = NULL;
  ck_assert_int_eq(fl_device_allocate(host, (DLDevice){kDLCUDA, 0}, 1, &memory), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(),
                   "no plugin brings the memory of cuda; there is cpu, ext_dev (plugin 'test_device')");
  ck_assert_int_eq(fl_device_allocate(host, (DLDevice){kDLExtDev, 2}, 1, &memory), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "ext_dev:2: there is no such device, expected an index from 0 to 1");
  ck_assert_int_eq(fl_device_allocate(host, (DLDevice){kDLExtDev, -1}, 1, &memory), FL_EINVAL);
  ck_assert_int_eq(fl_device_allocate(host, (DLDevice){(DLDeviceType)77, 0}, 1, &memory), FL_EINVAL);
  ck_assert_int_eq(fl_device_copy(host, device0, &memory, &memory, 1, 4, NULL), FL_EINVAL);
  ck_contains(fl_error_message(), "direction is 4, expected FL_COPY_TO_DEVICE (1)");
  ck_assert_int_eq(fl_device_copy(host, device0, &memory, &memory, 1, FL_COPY_TO_DEVICE, NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "ext_dev:0: copying 1 bytes: illegal address");
  state->full = true;
  ck_assert_int_eq(fl_device_allocate(host, device0, 100, &memory), FL_ENOMEM);
  ck_assert_str_eq(fl_error_message(), "ext_dev:0: allocating 100 bytes: test device: out of memory");
  ck_assert_int_eq(fl_device_allocate(host, cpu, SIZE_MAX, &memory), FL_ENOMEM);
  ck_assert_ptr_null(memory);
  state->full = false;
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_platform_that_is_not_active_brings_no_memory) {
  fl_host *host = device_host(NULL, 0);
  void *memory;
  state->asleep = true;
  ck_assert_int_eq(fl_device_allocate(host, device0, 1, &memory), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "the platform 'test_device' of plugin 'test_device', which brings the memory of "
                                       "ext_dev, is not active: the test device is asleep");
  state->asleep = false;
  ck_ok(fl_device_allocate(host, device0, 1, &memory));
  unsigned asked = state->active;
  ck_ok(fl_device_free(host, device0, memory));
  ck_assert_uint_eq(state->active, asked); /* once a generation of the registry */
  ck_ok(fl_withdraw_plugin(host, "test_device"));
  ck_assert_int_eq(fl_device_allocate(host, device0, 1, &memory), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no plugin brings the memory of ext_dev; there is cpu");
  fl_host_destroy(host);
}
END_TEST

/* Threads that allocate, copy and free while what is known of the devices is asked anew again and again. */
static void *use_memory(void *host) {
  for (int i = 0; i < rounds(300); i++) {
    DLDevice device = {kDLExtDev, i % 2};
    int value = i, back = -1;
    void *memory;
    ck_ok(fl_device_allocate(host, device, sizeof value, &memory));
    ck_ok(fl_device_copy(host, device, memory, &value, sizeof value, FL_COPY_TO_DEVICE, NULL));
    ck_ok(fl_device_copy(host, device, &back, memory, sizeof back, FL_COPY_TO_HOST, NULL));
    ck_assert_int_eq(back, i);
    ck_ok(fl_device_free(host, device, memory));
  }
  return NULL;
}

START_TEST(several_threads_may_use_device_memory_at_once) {
  enum { THREADS = 4 };
  fl_host *host = device_host(NULL, 0);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, use_memory, host), 0);
  for (int i = 0; i < rounds(300); i++)
    fl_bump_policy_epoch(host);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  ck_assert_uint_eq(state->allocations, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_child_process_finds_the_devices_anew) {
  fl_host *host = device_host(NULL, 0);
  void *memory;
  int status = 1;
  ck_ok(fl_device_allocate(host, device0, 1, &memory));
  ck_ok(fl_device_free(host, device0, memory));
  unsigned asked = state->active;
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child)
    _exit(fl_device_allocate(host, device0, 1, &memory) != FL_OK || state->active != asked + 1);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  fl_host_destroy(host);
}
END_TEST

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
    make(&x, host, (DLDevice){kDLExtDev, i}, 1, 4, gated);
    make(&out, host, (DLDevice){kDLExtDev, i}, 1, 2, NULL);
    ck_ok(silu_and_mul(host, &x, &out, i ? &queue : NULL));
    check_values(&out, gated_result, 2);
    ck_assert_int_eq(state->device, i);
    ck_assert_ptr_eq(state->stream, i ? &queue : NULL);
    ck_assert_uint_eq(state->synchronous, 0);
    unmake(&x);
    unmake(&out);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(tensors_on_two_devices_are_an_argument_error) {
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device1, 1, 2, NULL);
  ck_assert_int_eq(silu_and_mul(host, &x, &out, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "silu_and_mul: result 'out': on ext_dev:1, expected ext_dev:0 (that of 'x')");
  ck_assert_uint_eq(state->kernels, 0);
  unmake(&x);
  unmake(&out);
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
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device0, 1, 4, NULL);
  ck_assert_int_eq(unary(host, "gelu_new", &x, &out), FL_ENOIMPL);
  ck_contains(fl_error_message(), "default.flagos: works on cpu, cuda_host, rocm_host, the tensors are on ext_dev");
  unmake(&x);
  unmake(&out);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- architectures */

START_TEST(min_arch_is_compared_by_the_rule_of_plugin_h) {
  static const struct {
    const char *arch, *least;
    bool reaches;
  } cases[] = {
      {"sm_90", "sm_80", true},
      {"sm_80", "sm_90", false},
      {"sm_80", "sm_80", true},
      {"sm_100", "sm_90", true},
      {"sm_90", "sm_90a", true},
      {"sm_100", "sm_90a", false},
      {"sm_103", "sm_100f", true},
      {"sm_100", "sm_103f", false},
      {"sm_120", "sm_100f", false},
      {"gfx90a:sramecc+:xnack-", "gfx90a", true},
      {"gfx90a:sramecc+:xnack-", "gfx90a:xnack-", true},
      {"gfx90a:sramecc+:xnack+", "gfx90a:xnack-", false},
      {"gfx942", "gfx90a:xnack-", true},
      {"gfx908", "gfx90a", false},
      {"gfx90c", "gfx90a", false},
      {"gfx90c", "gfx900", true},
      {"gfx1030", "gfx90a", false},
      {"gfx942", "gfx1030", false},
      {"gfx1100", "gfx1030", true},
      {"gfx1030", "gfx1100", false},
      {"gfx9-generic", "gfx90a", true},
      {"gfx908", "gfx90a,gfx1030", false},
      {"gfx90a:xnack-", "gfx90a,gfx1030", true},
      {"gfx1100", "gfx90a,gfx1030", true},
      {"gfx1010", "gfx90a,gfx1030", false},
      {"Ascend910B3", "Ascend910B", true},
      {"Ascend910B", "Ascend910B", false}, /* a device of that bare name is of the first generation */
      {"Ascend910ProB", "Ascend910B", false},
      {"Ascend910_9391", "Ascend910B", true},
      {"Ascend910B3", "Ascend910_93", false},
      {"Ascend950PR", "Ascend910B", true},
      {"Ascend310P3", "Ascend910A", false},
      {"Ascend310P3", "Ascend310P", true},
      {"Ascend999", "Ascend910B", true},
      {"acme7", "acme6", true},
      {"acme7", "acme8", false},
      {"acme7", "bolt9", true}, /* not of one form: not judged */
      {"sm_80", "gfx90a", true},
      {"", "sm_80", true},
      {"sm_80", "", true},
      {NULL, "sm_80", true},
      {"unknown", "sm_80", true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_msg(fl_arch_reaches(cases[i].arch, cases[i].least) == cases[i].reaches, "%s for %s",
                  cases[i].arch ? cases[i].arch : "NULL", cases[i].least);
}
END_TEST

START_TEST(an_implementation_is_not_available_below_its_min_arch) {
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device0, 1, 4, NULL);
  ck_assert_int_eq(unary(host, "quick_gelu", &x, &out), FL_ENOIMPL);
  ck_contains(fl_error_message(), "vendor.test_device: not available: needs td_9, device 0 is td_1, device 1 is td_2");
  unmake(&x);
  unmake(&out);
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

START_TEST(where_devices_differ_that_of_the_tensors_counts) {
  static const float x_values[] = {-1, 2, -3, 4}, squares[] = {0, 4, 0, 16};
  fl_host *host = device_host(NULL, 0);
  matrix x, out;
  for (int i = 1; i >= 0; i--) {
    make(&x, host, (DLDevice){kDLExtDev, i}, 1, 4, x_values);
    make(&out, host, (DLDevice){kDLExtDev, i}, 1, 4, NULL);
    if (i) {
      ck_ok(unary(host, "relu2", &x, &out));
      check_values(&out, squares, 4);
    } else {
      ck_assert_int_eq(unary(host, "relu2", &x, &out), FL_ENOIMPL);
      ck_contains(fl_error_message(), "vendor.test_device: not supported: the tensors' device does not reach its");
    }
    unmake(&x);
    unmake(&out);
  }
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "relu2", kDLExtDev, &explanation));
  ck_assert_str_eq(explanation->selected, "vendor.test_device");
  ck_contains(explanation->impls[0].reason, "not on each device: needs td_2, device 0 is td_1");
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
  ck_contains(explanation->impls[0].reason, "needs td_9");
  ck_assert_uint_eq(state->properties, 0);
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------- workspace */

START_TEST(a_workspace_is_asked_for_and_given) {
  static const float product[] = {0, 1.7615942f};
  fl_host *host = device_host(NULL, 0);
  fl_op *op = fl_find_op(host, "mul_and_silu");
  matrix x, out;
  size_t size = 0;
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device0, 1, 2, NULL);
  fl_value values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(values);
  ck_ok(fl_workspace(op, &call, &size));
  ck_assert_uint_eq(size, 4 * sizeof(float));
  ck_assert_int_eq(fl_invoke(op, &call), FL_ENOIMPL);
  ck_contains(fl_error_message(), "workspace of 0 bytes, expected 16");
  ck_ok(fl_device_allocate(host, device0, size, &call.workspace));
  call.workspace_size = size;
  ck_ok(fl_invoke(op, &call));
  check_values(&out, product, 2);
  ck_ok(fl_device_free(host, device0, call.workspace));
  /* One that none asks for, wrong arguments, nothing to run. */
  fl_op *plain = fl_find_op(host, "silu_and_mul");
  ck_ok(fl_workspace(plain, &call, &size));
  ck_assert_uint_eq(size, 0);
  size = 7;
  values[1] = fl_tensor(&x.tensor);
  ck_assert_int_eq(fl_workspace(op, &call, &size), FL_EINVAL);
  ck_assert_int_eq(fl_workspace(fl_find_op(host, "gelu_new"), &call, &size), FL_ENOIMPL);
  ck_assert_int_eq(fl_workspace(NULL, &call, &size), FL_ENOENT);
  ck_assert_uint_eq(size, 7);
  unmake(&x);
  unmake(&out);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_workspace_is_that_of_the_policy_in_force) {
  fl_host *host = device_host(NULL, 0);
  static const char *const reference[] = {"reference"};
  fl_scope scope;
  size_t size = 7;
  matrix x, out;
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device0, 1, 2, NULL);
  fl_value values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(values);
  ck_ok(fl_scope_op_order(host, "mul_and_silu", reference, 1, &scope));
  ck_assert_int_eq(fl_workspace(fl_find_op(host, "mul_and_silu"), &call, &size), FL_ENOIMPL);
  ck_assert_uint_eq(size, 7);
  ck_ok(fl_scope_leave(&scope));
  ck_ok(fl_workspace(fl_find_op(host, "mul_and_silu"), &call, &size));
  ck_assert_uint_eq(size, 16);
  unmake(&x);
  unmake(&out);
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
  make_strided(&x, host, device0, 2, 2, 3, x_values);
  make_strided(&out, host, device0, 2, 2, 3, before);
  fl_value values[] = {fl_tensor(&x.tensor),   fl_none(), fl_none(), fl_float(0), fl_none(),
                       fl_tensor(&out.tensor), fl_none()};
  fl_call call = FL_CALL(values);
  ck_ok(fl_call_op(host, "rms_norm", &call));
  check_values(&out, expected, 6);
  check_values(&x, x_values, 6);
  unmake(&x);
  unmake(&out);
  ck_assert_uint_eq(state->allocations, 0);
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
  make_strided(&x, host, device0, 2, 2, 3, before_call);
  ck_assert_int_eq(fail_in_place(host, &x, FAIL_AT_ONCE), FL_EDEVICE);
  ck_contains(fl_error_message(), "No fallback: it may have overwritten 'x' in place; set preserve_inputs");
  check_values(&x, overwritten, 6);
  unmake(&x);
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
    make_strided(&x, host, device0, 2, 2, 3, before_call);
    ck_ok(fail_in_place(host, &x, how));
    check_values(&x, expected, 6);
    unmake(&x);
    ck_assert_uint_eq(state->allocations, 0);
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
  make_strided(&x, host, device0, 2, 2, 3, before_call);
  state->full = true;
  ck_assert_int_eq(fail_in_place(host, &x, FAIL_AT_ONCE), FL_EDEVICE);
  ck_contains(fl_error_message(), "'vendor.test_device' failed for op 'test_device_fail': launch failed");
  ck_contains(fl_error_message(), "No fallback");
  state->full = false;
  unmake(&x);
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
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device0, 1, 4, NULL);
  ck_ok(fail_apart(host, &x, &out, FAIL_LATE));
  ck_assert_int_eq(silu_and_mul(host, &x, &out, NULL), FL_EINVAL); /* wrong arguments ask no device */
  int64_t half = out.shape[1] = 2;
  out.strides[0] = half;
  ck_assert_int_eq(silu_and_mul(host, &x, &out, NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "a kernel used an illegal address (may come from an earlier call; "
                                       "VLLM_FL_SYNCHRONIZE=1 finds it)");
  ck_ok(silu_and_mul(host, &x, &out, NULL));
  unmake(&x);
  unmake(&out);
  fl_host_destroy(host);
}
END_TEST

/* Switched on by the variable and by the flag. */
START_TEST(synchronous_calls_find_the_op_that_failed_and_fall_back) {
  static const char *const variable[] = {"VLLM_FL_SYNCHRONIZE=1", "VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  fl_host *host = device_host(_i ? variable : NULL, _i ? 0 : FL_HOST_SYNCHRONOUS);
  fl_counters counters;
  matrix x, out;
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device0, 1, 4, NULL);
  ck_ok(fail_apart(host, &x, &out, FAIL_LATE));
  check_values(&out, plus_one, 4);
  ck_contains(test_log.text, "WARNING Implementation 'vendor.test_device' failed for op 'test_device_fail': ext_dev:0: "
                             "synchronising: a kernel used an illegal address\n");
  ck_ok(fl_get_counters(host, "test_device_fail", "vendor.test_device", &counters));
  ck_assert_uint_eq(counters.failures, 1);
  out.shape[1] = out.strides[0] = 2;
  unsigned before = state->synchronous;
  ck_ok(silu_and_mul(host, &x, &out, NULL));
  ck_assert_uint_gt(state->synchronous, before);
  unmake(&x);
  unmake(&out);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_synchronous_call_is_not_blamed_for_what_was_queued_before_it) {
  fl_host *host = device_host(NULL, 0), *careful = device_host(NULL, FL_HOST_SYNCHRONOUS);
  fl_counters counters;
  matrix x, out;
  make(&x, host, device0, 1, 4, gated);
  make(&out, host, device0, 1, 4, NULL);
  ck_ok(fail_apart(host, &x, &out, FAIL_LATE)); /* by somebody who does not wait */
  unsigned kernels = state->kernels;
  out.shape[1] = out.strides[0] = 2;
  ck_assert_int_eq(silu_and_mul(careful, &x, &out, NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "silu_and_mul: not called, since work that was queued before it failed: "
                                       "ext_dev:0: synchronising: a kernel used an illegal address");
  ck_assert_uint_eq(state->kernels, kernels);
  ck_ok(fl_get_counters(careful, "silu_and_mul", "vendor.test_device", &counters));
  ck_assert_uint_eq(counters.failures, 0);
  ck_ok(silu_and_mul(careful, &x, &out, NULL));
  unmake(&x);
  unmake(&out);
  fl_host_destroy(host);
  fl_host_destroy(careful);
}
END_TEST

START_TEST(calls_on_the_cpu_wait_for_nothing) {
  fl_host *host = device_host(NULL, FL_HOST_SYNCHRONOUS);
  matrix x, out;
  make(&x, host, cpu, 1, 4, gated);
  make(&out, host, cpu, 1, 2, NULL);
  ck_ok(silu_and_mul(host, &x, &out, NULL));
  check_values(&out, gated_result, 2);
  ck_assert_uint_eq(state->synchronous, 0);
  unmake(&x);
  unmake(&out);
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- registration */

static bool always(void *self, const char **reason) {
  (void)self;
  *reason = NULL;
  return true;
}

static fl_status no_properties(void *self, int32_t device, fl_device_properties *properties) {
  (void)self, (void)device, (void)properties;
  return FL_EDEVICE;
}

static const char *no_words(void *self) {
  (void)self;
  return NULL;
}

/* What the engine says a plugin may not: through the host's own table. */
static fl_status register_platform(fl_host *host, const fl_platform *platform) {
  const fl_component component = {.size = sizeof component, .type = "platform", .name = "acme", .functions = platform};
  uint32_t n;
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_status status = fl_stage_table(stage)->register_component(fl_stage_table(stage), &component);
  if (status) {
    char message[512];
    snprintf(message, sizeof message, "%s", fl_error_message());
    fl_stage_abort(stage);
    fl_error(status, "%s", message);
    return status;
  }
  return fl_stage_commit(stage, &n);
}

START_TEST(functions_for_device_memory_come_all_together_or_not_at_all) {
  fl_host *host = test_host(NULL, 0);
  void *memory;
  fl_platform platform = {.size = sizeof platform,
                          .device_type = kDLCUDA,
                          .is_active = always,
                          .properties = no_properties,
                          .error = no_words};
  ck_assert_int_eq(register_platform(host, &platform), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "functions: current_device is missing, but properties is there; properties, current_device, "
                   "allocate, release, copy, synchronize and error come together: all, or none");
  /* One of 0.1, whose struct ended before; what lies behind it is not looked at. */
  platform.size = offsetof(fl_platform, properties);
  ck_ok(register_platform(host, &platform));
  ck_assert_int_eq(fl_device_allocate(host, (DLDevice){kDLCUDA, 0}, 1, &memory), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no plugin brings the memory of cuda; there is cpu");
  fl_host_destroy(host);
}
END_TEST

/* -------------------------------------------------------------------------------- ops whose arguments name no device
 */

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
  uint32_t n;
  fl_stage *stage = fl_stage_begin(host, "acme", "", 0);
  fl_registry *registry = fl_stage_table(stage);
  ck_ok(registry->register_op(registry, &op));
  ck_ok(registry->register_impl(registry, &impl));
  ck_ok(fl_stage_commit(stage, &n));
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
  make(&a, host, device0, 2, 2, NULL);
  make(&b, host, device0, 2, 2, NULL);
  a.tensor.ndim = b.tensor.ndim = 1;
  a.tensor.strides = b.tensor.strides = NULL;
  register_host_op(host, "acme_zeros", "acme_zeros(int n) -> Tensor out", "out: float32[n]");
  check_host_op(host, "acme_zeros", (fl_value[]){fl_int(2), fl_tensor(&a.tensor)}, 2);
  register_host_op(host, "acme_either", "acme_either(Tensor? a, Tensor? b) -> Tensor? out",
                   "a: float32[n]; b: float32[n]; out: float32[n]");
  check_host_op(host, "acme_either", (fl_value[]){fl_none(), fl_tensor(&a.tensor), fl_tensor(&b.tensor)}, 3);
  unmake(&a);
  unmake(&b);
  fl_host_destroy(host);
}
END_TEST

static fl_status no_memory(void *self, int32_t device, size_t size, void **memory) {
  (void)self, (void)device, (void)size, (void)memory;
  return FL_ENOMEM;
}

static fl_status no_release(void *self, int32_t device, void *memory) {
  (void)self, (void)device, (void)memory;
  return FL_EDEVICE;
}

static fl_status no_copy(void *self, int32_t device, void *to, const void *from, size_t size, int32_t direction,
                         void *stream) {
  (void)self, (void)device, (void)to, (void)from, (void)size, (void)direction, (void)stream;
  return FL_EDEVICE;
}

static fl_status no_synchronize(void *self, int32_t device, void *stream, bool all) {
  (void)self, (void)device, (void)stream, (void)all;
  return FL_EDEVICE;
}

static fl_status no_current(void *self, int32_t *device) {
  (void)self, (void)device;
  return FL_EDEVICE;
}

START_TEST(of_several_platforms_of_a_type_the_one_in_force_brings_the_memory) {
  fl_host *host = device_host(NULL, 0);
  const fl_platform platform = {.size = sizeof platform,
                                .device_type = kDLExtDev,
                                .is_active = always,
                                .properties = no_properties,
                                .current_device = no_current,
                                .allocate = no_memory,
                                .release = no_release,
                                .copy = no_copy,
                                .synchronize = no_synchronize,
                                .error = no_words};
  DLDevice current;
  void *memory;
  ck_ok(register_platform(host, &platform));
  ck_ok(fl_device_allocate(host, device0, 1, &memory)); /* the first that was registered */
  ck_ok(fl_device_free(host, device0, memory));
  state->asleep = true;
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(fl_device_allocate(host, device0, 8, &memory), FL_ENOMEM);
  ck_assert_str_eq(fl_error_message(), "ext_dev:0: allocating 8 bytes: the plugin gives no reason");
  ck_assert_int_eq(fl_device_current(host, kDLExtDev, &current), FL_EDEVICE);
  int32_t count;
  ck_assert_int_eq(fl_device_count(host, kDLExtDev, &count), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "plugin 'acme' cannot count its devices");
  state->asleep = false;
  free(host->platform);
  host->platform = strdup("acme");
  host->platform_plugin = strdup("acme");
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(fl_device_allocate(host, device0, 8, &memory), FL_ENOMEM);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, memory_of_a_device_is_allocated_copied_and_freed);
  tcase_add_test(tests, devices_are_counted_and_described);
  tcase_add_test(tests, device_memory_that_is_not_there_is_an_error_that_says_what_there_is);
  tcase_add_test(tests, a_platform_that_is_not_active_brings_no_memory);
  tcase_add_test(tests, several_threads_may_use_device_memory_at_once);
  tcase_add_test(tests, a_child_process_finds_the_devices_anew);
  tcase_add_test(tests, of_several_platforms_of_a_type_the_one_in_force_brings_the_memory);
  tcase_add_test(tests, a_tensor_on_a_device_gets_that_devices_kernel_and_the_calls_stream);
  tcase_add_test(tests, tensors_on_two_devices_are_an_argument_error);
  tcase_add_test(tests, no_cpu_kernel_stands_in_for_a_device);
  tcase_add_test(tests, min_arch_is_compared_by_the_rule_of_plugin_h);
  tcase_add_test(tests, an_implementation_is_not_available_below_its_min_arch);
  tcase_add_test(tests, where_devices_differ_that_of_the_tensors_counts);
  tcase_add_test(tests, explaining_asks_a_devices_architecture_in_a_child_process);
  tcase_add_test(tests, a_workspace_is_asked_for_and_given);
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
  tcase_add_test(tests, functions_for_device_memory_come_all_together_or_not_at_all);
}

int main(void) {
  return run_suite("device", add_tests, 30);
}
