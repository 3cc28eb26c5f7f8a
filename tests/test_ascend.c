/* The Ascend plugin over its stand-in: the vendor's libraries, wherever they are or are not, and the platform. */
#include "tests/npu.h"
#include "tests/scratch.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

static void set_up(void) {
  scratch_make();
}

static void tear_down(void) {
  scratch_remove();
}

/* -------------------------------------------------------------------------------------------------------- libraries */

/* A toolkit that has some of the stand-in's libraries. */
static const char *toolkit(const char *const *libraries) {
  static char home[2 * PATH_MAX];
  char name[64];
  mkdir(in_scratch("home"), 0755);
  mkdir(in_scratch("home/lib64"), 0755);
  for (; *libraries; libraries++) {
    snprintf(name, sizeof name, "home/lib64/%s", *libraries);
    ck_assert_int_eq(symlink(built("tests/drivers/ascend/stand_in.so"), in_scratch(name)), 0);
  }
  snprintf(home, sizeof home, "%s", in_scratch("home"));
  return home;
}

static const char *reason_of_platform(void) {
  const char *reason = NULL;
  ck_assert(!npu->is_active(NULL, &reason));
  ck_assert_ptr_nonnull(reason);
  ck_assert_int_eq(npu->device_count(NULL), -1);
  return reason;
}

static const char *reason_of(const char *op) {
  const char *reason = NULL;
  const fl_impl *impl = npu_find(op);
  ck_assert_ptr_nonnull(impl);
  return impl->is_available(impl->self, &reason) ? NULL : reason;
}

START_TEST(without_a_device_node_nothing_is_opened) {
  npu_open_plugin(built("tests/drivers/ascend"), "/nonexistent/davinci");
  ck_assert_str_eq(reason_of_platform(), "no device node /nonexistent/davinci");
  ck_assert_str_eq(reason_of("silu_and_mul"), "no device node /nonexistent/davinci");
  ck_assert_str_eq(reason_of("attention_backend"), "no device node /nonexistent/davinci");
}
END_TEST

START_TEST(a_device_node_without_permission_is_told_apart) {
  if (!geteuid()) {
    printf("skip: a_device_node_without_permission_is_told_apart: root has every permission\n");
    return;
  }
  char expected[2 * PATH_MAX + 64];
  write_text("node", "");
  ck_assert_int_eq(chmod(in_scratch("node"), 0), 0);
  npu_open_plugin(built("tests/drivers/ascend"), in_scratch("node"));
  snprintf(expected, sizeof expected, "no permission on the device node %s", in_scratch("node"));
  ck_assert_str_eq(reason_of_platform(), expected);
}
END_TEST

START_TEST(a_library_that_is_not_there_is_named) {
  static const char *const none[] = {NULL}, *const runtime[] = {"libascendcl.so", NULL};
  if (_i) {
    npu_open_plugin(toolkit(runtime), "/dev/null");
    ck_contains(reason_of_platform(), "libnnopbase.so");
  } else {
    npu_open_plugin(toolkit(none), "/dev/null");
    ck_contains(reason_of_platform(), "libascendcl.so");
  }
  ck_contains(reason_of_platform(), "cannot open shared object file");
}
END_TEST

START_TEST(a_library_that_lacks_a_function_is_named_with_it) {
  static const char *const none[] = {NULL};
  const char *home = toolkit(none);
  ck_assert_int_eq(symlink(built("tests/plugins/lib/libfake_driver.so"), in_scratch("home/lib64/libascendcl.so")), 0);
  npu_open_plugin(home, "/dev/null");
  ck_assert_str_eq(reason_of_platform(), "libascendcl.so lacks aclGetRecentErrMsg");
}
END_TEST

/* torch_npu has loaded it: no path of ours is needed. */
START_TEST(a_library_that_the_engine_has_loaded_is_used) {
  static const char *const others[] = {"libnnopbase.so", "libopapi.so", NULL};
  npu_open_control(built("tests/drivers/ascend/stand_in.so"));
  npu_open_plugin(toolkit(others), "/dev/null");
  const char *reason = NULL;
  ck_assert_msg(npu->is_active(NULL, &reason), "%s", reason);
  ck_assert_ptr_null(reason_of("silu_and_mul"));
}
END_TEST

static const char *const without_operators[] = {"libascendcl.so", "libnnopbase.so", NULL};

START_TEST(an_operator_that_no_library_has_is_named) {
  const char *reason = NULL;
  npu_open_plugin(toolkit(without_operators), "/dev/null");
  ck_assert(npu->is_active(NULL, &reason));
  ck_assert_str_eq(reason_of("silu_and_mul"), "the operator libraries lack aclnnSwiGlu");
  ck_assert_str_eq(reason_of("rms_norm"), "the operator libraries lack aclnnRmsNorm");
  ck_assert_ptr_null(reason_of("attention_backend"));
}
END_TEST

/* Root passes over files of others; a test that is not root owns its files. */
START_TEST(custom_operators_are_found_unless_others_own_them) {
  const char *home = toolkit(without_operators);
  mkdir(in_scratch("custom"), 0755);
  mkdir(in_scratch("custom/op_api"), 0755);
  mkdir(in_scratch("custom/op_api/lib"), 0755);
  const char *library =
      copy_to_scratch(built("tests/drivers/ascend/stand_in.so"), "custom/op_api/lib/libcust_opapi.so");
  if (_i == 1) { /* by the vendor's name in config.ini */
    mkdir(in_scratch("vendors"), 0755);
    write_text("vendors/config.ini", "# vendors\nload_priority=none,acme\n");
    ck_assert_int_eq(rename(in_scratch("custom"), in_scratch("vendors/acme")), 0);
    setenv("ASCEND_OPP_PATH", scratch, 1);
  } else {
    char paths[2 * PATH_MAX + 64];
    snprintf(paths, sizeof paths, "/nonexistent:%s", in_scratch("custom"));
    setenv("ASCEND_CUSTOM_OPP_PATH", paths, 1);
  }
  bool foreign = _i == 2 && !geteuid() && !chown(library, 12345, 12345);
  npu_open_plugin(home, "/dev/null");
  ck_assert_int_eq(reason_of("silu_and_mul") == NULL, !foreign);
}
END_TEST

/* Both have the operator; only the custom one refuses. */
START_TEST(custom_operators_come_first) {
  mkdir(in_scratch("op_api"), 0755);
  mkdir(in_scratch("op_api/lib"), 0755);
  npu_open_control(copy_to_scratch(built("tests/drivers/ascend/stand_in.so"), "op_api/lib/libcust_opapi.so"));
  npu_control.set("aclnnSiluGetWorkspaceSize", "561112");
  setenv("ASCEND_CUSTOM_OPP_PATH", scratch, 1);
  npu_open_plugin(built("tests/drivers/ascend"), "/dev/null");
  npu_tensor *x = npu_make((DLDataType){kDLFloat, 32, 1}, 1, (int64_t[]){8}, 0);
  npu_tensor *out = npu_make((DLDataType){kDLFloat, 32, 1}, 1, (int64_t[]){4}, 0);
  fl_value values[] = {fl_tensor(&x->tensor), fl_tensor(&out->tensor)};
  ck_assert_int_eq(npu_call(npu_find("mul_and_silu"), values, 2), FL_ENOTSUP);
  ck_contains(npu_message, "aclnnSiluGetWorkspaceSize returned 561112");
  npu_free(x);
  npu_free(out);
}
END_TEST

static void *ask_in_thread(void *argument) {
  (void)argument;
  return (void *)reason_of("silu_and_mul");
}

/* While a thread looks for operators, another forks: in the child nobody will come to an end with looking. It hangs
 * where a file does not end, until this process stops writing it. */
START_TEST(X1_a_child_that_is_forked_while_operators_are_looked_for_can_look) {
  pthread_t thread;
  void *reason;
  int status = 1, written = -1;
  mkdir(in_scratch("vendors"), 0755);
  ck_assert_int_eq(mkfifo(in_scratch("vendors/config.ini"), 0600), 0);
  setenv("ASCEND_OPP_PATH", scratch, 1);
  npu_open_plugin(built("tests/drivers/ascend"), "/dev/null");
  ck_assert_int_eq(pthread_create(&thread, NULL, ask_in_thread, NULL), 0);
  while (written < 0)
    written = open(in_scratch("vendors/config.ini"), O_WRONLY | O_NONBLOCK); /* refused while nobody reads */
  pid_t child = fork();
  ck_assert_int_ge(child, 0);
  if (!child) {
    alarm(10);
    unlink(in_scratch("vendors/config.ini"));
    _exit(reason_of("silu_and_mul") != NULL);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  close(written);
  pthread_join(thread, &reason);
  ck_assert_int_eq(status, 0);
  ck_assert_ptr_null(reason);
}
END_TEST

/* ------------------------------------------------------------------------------------------------ platform, devices */

START_TEST(the_platform_tells_its_devices_and_that_they_are_none) {
  npu_open();
  fl_device_properties properties = {.size = sizeof properties};
  ck_assert_int_eq(npu->device_count(NULL), 2);
  ck_assert_int_eq(npu->device_type, kDLExtDev);
  ck_assert_int_eq(npu->properties(NULL, 1, &properties), FL_OK);
  ck_assert_str_eq(properties.name, "Ascend910B3 (a stand-in of the tests)");
  ck_assert_str_eq(properties.arch, "Ascend910B3");
  ck_assert_str_eq(properties.driver, "1.17.0 (a stand-in of the tests)");
  ck_assert_int_eq(properties.units, 20);
  ck_assert_uint_eq(properties.memory_total, UINT64_C(64) << 30);
  ck_assert_uint_eq(properties.memory_free, UINT64_C(32) << 30);
  ck_assert_int_eq(npu->properties(NULL, 7, &properties), FL_EDEVICE);
  ck_assert_str_eq(npu->error(NULL), "there is no Ascend device 7; the driver reports 2");
  npu_check_clean();
}
END_TEST

/* A context takes device memory, and the other NPUs may be other processes'. */
START_TEST(describing_a_device_makes_no_context_on_it_in_a_process_that_works_on_another) {
  npu_open();
  fl_device_properties properties = {.size = sizeof properties};
  npu_control.set("devices", "4");
  ck_assert_int_eq(npu->device_count(NULL), 4);
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", 2), 0);
  for (int i = 0; i < 4; i++) {
    ck_assert_int_eq(npu->properties(NULL, i, &properties), FL_OK);
    ck_assert_str_eq(properties.arch, "Ascend910B3");
    ck_assert_uint_eq(properties.memory_total, UINT64_C(64) << 30);
    ck_assert_uint_eq(properties.memory_free, i == 2 ? UINT64_C(32) << 30 : 0); /* to find out would take some */
  }
  ck_assert_int_eq(npu_control.count("made contexts"), 1);
  ck_assert_int_eq(npu_control.count("reset"), 0);
  ck_assert_int_eq(npu_thread_device(), 2);
  npu_check_clean();
}
END_TEST

static void *describe_in_thread(void *argument) {
  fl_device_properties properties = {.size = sizeof properties};
  fl_status status = npu->properties(NULL, 1, &properties);
  (void)argument;
  return status || npu_thread_device() != -1 || !properties.memory_free ? "it has a device, or no memory is free"
                                                                        : NULL;
}

/* A thread that had no device has none: of one that another thread works on, and where nobody works on any. */
START_TEST(describing_a_device_leaves_a_thread_without_one) {
  npu_open();
  pthread_t thread;
  void *wrong;
  int32_t device = -1;
  ck_assert_int_eq(npu->current_device(NULL, &device), FL_OK);
  if (_i)
    ck_assert_int_eq(npu_runtime("aclrtSetDevice", 1), 0);
  ck_assert_int_eq(pthread_create(&thread, NULL, describe_in_thread, NULL), 0);
  ck_assert_int_eq(pthread_join(thread, &wrong), 0);
  ck_assert_msg(!wrong, "%s", (char *)wrong);
  ck_assert_int_eq(npu_control.count("contexts"), _i);
  ck_assert_int_eq(npu_thread_device(), _i ? 1 : -1);
  npu_check_clean();
}
END_TEST

/* Older runtimes do not tell who has a context: then a thread's own device is asked, and no other. */
START_TEST(without_word_of_contexts_only_the_threads_device_is_asked_what_is_free) {
  npu_open();
  fl_device_properties properties = {.size = sizeof properties};
  npu_control.set("aclrtGetPrimaryCtxState", "207000");
  ck_assert_int_eq(npu->properties(NULL, 1, &properties), FL_OK);
  ck_assert_uint_eq(properties.memory_free, UINT64_C(32) << 30);
  ck_assert_int_eq(npu_control.count("contexts"), 0);
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", 0), 0);
  ck_assert_int_eq(npu->properties(NULL, 1, &properties), FL_OK);
  ck_assert_uint_eq(properties.memory_free, 0);
  ck_assert_int_eq(npu->properties(NULL, 0, &properties), FL_OK);
  ck_assert_uint_eq(properties.memory_free, UINT64_C(32) << 30);
  ck_assert_int_eq(npu_control.count("contexts"), 1);
  npu_check_clean();
}
END_TEST

START_TEST(initialised_before_is_fine_and_a_failure_is_told) {
  npu_open();
  ck_assert_int_eq(npu_runtime("aclInit", 0), 0);
  ck_assert_int_eq(npu->device_count(NULL), 2); /* 100002 */
  npu_check_clean();
}
END_TEST

START_TEST(a_runtime_that_does_not_start_is_a_device_error) {
  npu_open();
  int32_t device;
  npu_control.set("words", "EJ0001: driver and runtime do\nnot match");
  npu_control.set("aclInit", "507899");
  ck_assert_int_eq(npu->device_count(NULL), -1);
  ck_assert_int_eq(npu->current_device(NULL, &device), FL_EDEVICE);
  ck_assert_str_eq(npu->error(NULL), "aclInit returned 507899 (the device or its driver failed): EJ0001: driver and "
                                     "runtime do not match");
  npu_control.set("aclInit", "0"); /* the next try */
  ck_assert_int_eq(npu->current_device(NULL, &device), FL_OK);
  npu_control.set("aclrtGetDeviceCount", "507899");
  ck_assert_int_eq(npu->device_count(NULL), -1);
  ck_contains(npu->error(NULL), "aclrtGetDeviceCount returned 507899 (the device or its driver failed)");
  npu_check_clean();
}
END_TEST

START_TEST(the_threads_device_stays_as_it_was) {
  npu_open();
  int32_t device = -1;
  void *memory;
  ck_assert_int_eq(npu->current_device(NULL, &device), FL_OK);
  ck_assert_int_eq(device, 0); /* none is set: what it would use */
  ck_assert_int_eq(npu_runtime("aclrtSetDevice", 1), 0);
  ck_assert_int_eq(npu->allocate(NULL, 0, 100, &memory), FL_OK);
  ck_assert_int_eq(npu_thread_device(), 1);
  ck_assert_int_eq(npu->release(NULL, 0, memory), FL_OK);
  ck_assert_int_eq(npu->synchronize(NULL, 0, NULL, true), FL_OK);
  ck_assert_int_eq(npu_thread_device(), 1);
  ck_assert_int_eq(npu->current_device(NULL, &device), FL_OK);
  ck_assert_int_eq(device, 1);
  npu_check_clean();
}
END_TEST

START_TEST(memory_is_aligned_and_may_have_no_bytes) {
  npu_open();
  void *memory[3];
  npu_control.set("misaligned", _i ? "1" : "0");
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(npu->allocate(NULL, 0, (size_t)i * 1000, &memory[i]), FL_OK);
    ck_assert_uint_eq((uintptr_t)memory[i] % 256, 0);
  }
  ck_assert_int_eq(npu_control.count("blocks"), 3);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(npu->release(NULL, 0, memory[i]), FL_OK);
  ck_assert_int_eq(npu->release(NULL, 0, NULL), FL_OK);
  ck_assert_int_eq(npu_control.count("blocks"), 0);
  npu_check_clean();
}
END_TEST

START_TEST(copies_go_each_way_in_the_order_of_the_stream) {
  npu_open();
  char text[] = "as it was", back[sizeof text] = "";
  void *a, *b;
  ck_assert_int_eq(npu->allocate(NULL, 1, sizeof text, &a), FL_OK);
  ck_assert_int_eq(npu->allocate(NULL, 1, sizeof text, &b), FL_OK);
  ck_assert_int_eq(npu->copy(NULL, 1, a, text, sizeof text, FL_COPY_TO_DEVICE, NULL), FL_OK);
  ck_assert_int_eq(npu->copy(NULL, 1, b, a, sizeof text, FL_COPY_ON_DEVICE, NULL), FL_OK);
  ck_assert_int_eq(npu_control.count("queued"), 1);
  ck_assert_int_eq(npu->copy(NULL, 1, back, b, sizeof text, FL_COPY_TO_HOST, NULL), FL_OK);
  ck_assert_str_eq(back, text);
  ck_assert_int_eq(npu->copy(NULL, 1, NULL, NULL, 0, FL_COPY_TO_HOST, NULL), FL_OK);
  npu_control.set("aclrtMemcpy", "507899");
  ck_assert_int_eq(npu->copy(NULL, 1, back, b, 1, FL_COPY_TO_HOST, NULL), FL_EDEVICE);
  ck_contains(npu->error(NULL), "aclrtMemcpy returned 507899");
  ck_assert_int_eq(npu->release(NULL, 1, a), FL_OK);
  ck_assert_int_eq(npu->release(NULL, 1, b), FL_OK);
  npu_check_clean();
}
END_TEST

START_TEST(no_memory_is_told_apart_from_a_device_that_fails) {
  npu_open();
  void *memory = &memory;
  npu_control.set("aclrtMalloc", "207001");
  ck_assert_int_eq(npu->allocate(NULL, 0, 10, &memory), FL_ENOMEM);
  ck_assert_str_eq(npu->error(NULL), "aclrtMalloc returned 207001 (out of memory)");
  npu_control.set("aclrtMalloc", "507899");
  ck_assert_int_eq(npu->allocate(NULL, 0, 10, &memory), FL_EDEVICE);
  ck_assert_ptr_eq(memory, &memory);
  npu_control.set("aclrtMalloc", "0");
  npu_control.set("aclrtSetDevice", "207004");
  ck_assert_int_eq(npu->release(NULL, 1, memory), FL_EDEVICE);
  npu_check_clean();
}
END_TEST

START_TEST(architectures_are_in_the_order_of_their_series) {
  static const struct {
    const char *arch, *least;
    bool reaches;
  } cases[] = {
      {"Ascend910B3", "Ascend910B", true},
      {"Ascend910B", "Ascend910B", false}, /* a device of that bare name is of the first generation */
      {"Ascend910ProB", "Ascend910B", false},
      {"Ascend910_9391", "Ascend910B", true},
      {"Ascend910B3", "Ascend910_93", false},
      {"Ascend950PR", "Ascend910B", true},
      {"Ascend310P3", "Ascend910A", false},
      {"Ascend310P3", "Ascend310P", true},
      {"Ascend999", "Ascend910B", true}, /* not known: not judged */
  };
  npu_open();
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_msg(npu->arch_reaches(NULL, cases[i].arch, cases[i].least) == cases[i].reaches, "%s for %s",
                  cases[i].arch, cases[i].least);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, tear_down);
  tcase_add_test(tests, without_a_device_node_nothing_is_opened);
  tcase_add_test(tests, a_device_node_without_permission_is_told_apart);
  tcase_add_loop_test(tests, a_library_that_is_not_there_is_named, 0, 2);
  tcase_add_test(tests, a_library_that_lacks_a_function_is_named_with_it);
  tcase_add_test(tests, a_library_that_the_engine_has_loaded_is_used);
  tcase_add_test(tests, an_operator_that_no_library_has_is_named);
  tcase_add_test(tests, custom_operators_come_first);
  tcase_add_loop_test(tests, custom_operators_are_found_unless_others_own_them, 0, 3);
  tcase_add_test(tests, X1_a_child_that_is_forked_while_operators_are_looked_for_can_look);
  tcase_add_test(tests, the_platform_tells_its_devices_and_that_they_are_none);
  tcase_add_test(tests, describing_a_device_makes_no_context_on_it_in_a_process_that_works_on_another);
  tcase_add_loop_test(tests, describing_a_device_leaves_a_thread_without_one, 0, 2);
  tcase_add_test(tests, without_word_of_contexts_only_the_threads_device_is_asked_what_is_free);
  tcase_add_test(tests, initialised_before_is_fine_and_a_failure_is_told);
  tcase_add_test(tests, a_runtime_that_does_not_start_is_a_device_error);
  tcase_add_test(tests, the_threads_device_stays_as_it_was);
  tcase_add_loop_test(tests, memory_is_aligned_and_may_have_no_bytes, 0, 2);
  tcase_add_test(tests, copies_go_each_way_in_the_order_of_the_stream);
  tcase_add_test(tests, no_memory_is_told_apart_from_a_device_that_fails);
  tcase_add_test(tests, architectures_are_in_the_order_of_their_series);
}

int main(void) {
  return run_suite("ascend", add_tests, 30);
}
