/*
 * Devices in the core: their memory and properties, and the platforms that bring them. The test device's memory crashes
 * whoever touches it but its own kernels and copies, so each test also shows that the host does not.
 */
#include "core/registry.h"
#include "core/support.h"
#include "tests/device.h"

#include <sys/wait.h>

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
  ck_assert_uint_eq(test_device->allocations, 0);
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
  test_device->full = true;
  ck_assert_int_eq(fl_device_allocate(host, device0, 100, &memory), FL_ENOMEM);
  ck_assert_str_eq(fl_error_message(), "ext_dev:0: allocating 100 bytes: test device: out of memory");
  ck_assert_int_eq(fl_device_allocate(host, cpu, SIZE_MAX, &memory), FL_ENOMEM);
  ck_assert_ptr_null(memory);
  test_device->full = false;
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_platform_that_is_not_active_brings_no_memory) {
  fl_host *host = device_host(NULL, 0);
  void *memory;
  test_device->asleep = true;
  ck_assert_int_eq(fl_device_allocate(host, device0, 1, &memory), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "the platform 'test_device' of plugin 'test_device', which brings the memory of "
                                       "ext_dev, is not active: the test device is asleep");
  test_device->asleep = false;
  ck_ok(fl_device_allocate(host, device0, 1, &memory));
  unsigned asked = test_device->active;
  ck_ok(fl_device_free(host, device0, memory));
  ck_assert_uint_eq(test_device->active, asked); /* once a generation of the registry */
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
  ck_assert_uint_eq(test_device->allocations, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_child_process_finds_the_devices_anew) {
  fl_host *host = device_host(NULL, 0);
  void *memory;
  int status = 1;
  ck_ok(fl_device_allocate(host, device0, 1, &memory));
  ck_ok(fl_device_free(host, device0, memory));
  unsigned asked = test_device->active;
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child)
    _exit(fl_device_allocate(host, device0, 1, &memory) != FL_OK || test_device->active != asked + 1);
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
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

START_TEST(functions_for_device_memory_come_all_together_or_not_at_all) {
  fl_host *host = test_host(NULL, 0);
  void *memory;
  fl_platform platform = {.size = sizeof platform,
                          .device_type = kDLCUDA,
                          .is_active = always,
                          .properties = no_properties,
                          .error = no_words};
  ck_assert_int_eq(device_register_platform(host, &platform), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "functions: current_device is missing, but properties is there; properties, current_device, "
                   "allocate, release, copy, synchronize and error come together: all, or none");
  /* One of 0.1, whose struct ended before; what lies behind it is not looked at. */
  platform.size = offsetof(fl_platform, properties);
  ck_ok(device_register_platform(host, &platform));
  ck_assert_int_eq(fl_device_allocate(host, (DLDevice){kDLCUDA, 0}, 1, &memory), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no plugin brings the memory of cuda; there is cpu");
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
  ck_ok(device_register_platform(host, &platform));
  ck_ok(fl_device_allocate(host, device0, 1, &memory)); /* the first that was registered */
  ck_ok(fl_device_free(host, device0, memory));
  test_device->asleep = true;
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(fl_device_allocate(host, device0, 8, &memory), FL_ENOMEM);
  ck_assert_str_eq(fl_error_message(), "ext_dev:0: allocating 8 bytes: the plugin gives no reason");
  ck_assert_int_eq(fl_device_current(host, kDLExtDev, &current), FL_EDEVICE);
  int32_t count;
  ck_assert_int_eq(fl_device_count(host, kDLExtDev, &count), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "plugin 'acme' cannot count its devices");
  test_device->asleep = false;
  host->platform = "acme";
  host->platform_plugin = "acme";
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
  tcase_add_test(tests, functions_for_device_memory_come_all_together_or_not_at_all);
}

int main(void) {
  return run_suite("device", add_tests, 30);
}
