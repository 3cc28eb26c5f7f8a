/*
 * Guarded mode: implementations that write where they must not, or leave something unwritten, and what the engine gets
 * all the same. (Canary mode: test_canary.c.)
 */
#include "tests/watched.h"

#include <flhost/freeze.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* Standard error goes into a file of the scratch directory from now on. */
static void catch_stderr(void) {
  int fd = open(in_scratch("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
  close(fd);
}

static void check_stderr(const char *expected) {
  size_t length;
  char *text = (char *)read_file(in_scratch("stderr"), &length);
  text[length] = 0;
  ck_assert_str_eq(text, expected);
  free(text);
}

/* valgrind takes each touch of a guard page for an error of its own. */
static bool cannot_touch(const char *test) {
  const char *preloaded = getenv("LD_PRELOAD");
  bool valgrind = preloaded && strstr(preloaded, "vgpreload");
  if (valgrind)
    printf("skip: %s: valgrind reports each touch of a guard page\n", test);
  return valgrind;
}

/* ---------------------------------------------------------------------------------------------------- guarded mode */

START_TEST(without_the_mode_a_call_goes_straight_into_the_kernel) {
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=0");
  call_right(host, COLUMNS);
  call_right(host, COLUMNS);
  const fl_target *target = atomic_load(&fl_find_op(host, "twice")->slots.by_device[kDLCPU]);
  ck_assert(target->fn == twice);
  ck_assert_ptr_null(host->watch);
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_implementation_that_keeps_to_its_contract_runs_as_ever) {
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  for (int i = 0; i < 4; i++)
    call_right(host, i % 2 ? COLUMNS : COLUMNS + 3);
  ck_assert_int_eq(bad.calls, 4);
  ck_assert_int_eq(good.calls, 0);
  ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_behind_a_result_is_reported_and_the_fallback_gives_the_results) {
  if (cannot_touch("a_write_behind_a_result_is_reported_and_the_fallback_gives_the_results"))
    return;
  fl_host *host = host_with(FAR_BEHIND, "VLLM_FL_GUARD=1");
  catch_stderr();
  call_right(host, COLUMNS);
  check_stderr("flhost: guarded mode: op 'twice', implementation 'default.bad': result 'out' (float32[4, 8]): touched "
               "401 bytes behind its end; the call's results are thrown away\n");
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]) was touched 401 bytes behind its end");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_before_a_result_is_found_where_tensors_lie_at_the_beginning_of_their_pages) {
  if (cannot_touch("a_write_before_a_result_is_found_where_tensors_lie_at_the_beginning_of_their_pages"))
    return;
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS); /* at the end */
  bad.fault = BEFORE;
  catch_stderr();
  call_right(host, COLUMNS);
  check_stderr(
      "flhost: guarded mode: op 'twice', implementation 'default.bad': result 'out' (float32[4, 8]): touched 4 "
      "bytes before its beginning; the call's results are thrown away\n");
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]) was touched 4 bytes before its beginning");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_close_to_a_result_is_found_without_a_guard_page) {
  static const fault faults[] = {BEHIND, BEFORE};
  static const char *const words[] = {"was touched 1 bytes behind its end", "bytes before its beginning"};
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  if (_i == 0)
    call_right(host, COLUMNS); /* the next lies at the beginning of its pages, and has room behind it */
  bad.fault = faults[_i];
  call_right(host, COLUMNS);
  check_failed(host, words[_i]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_input_that_is_written_is_the_callers_no_more_than_before) {
  if (cannot_touch("an_input_that_is_written_is_the_callers_no_more_than_before"))
    return;
  fl_host *host = host_with(_i ? SAME_INPUT : INPUT, "VLLM_FL_GUARD=1");
  catch_stderr();
  call_right(host, COLUMNS);
  check_stderr(
      "flhost: guarded mode: op 'twice', implementation 'default.bad': argument 'x' (float32[4, 8]): an input, "
      "written at byte 4; the call's results are thrown away\n");
  check_failed(host, "guarded mode: argument 'x' (float32[4, 8]) is an input and was written at byte 4");
  fl_host_destroy(host);
}
END_TEST

START_TEST(elements_that_are_left_unwritten_are_found) {
  fl_host *host = host_with(UNWRITTEN, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS);
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]): 24 of 32 elements are left unwritten, the first at "
                     "[1, 0]");
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_element_that_happens_to_be_the_pattern_is_not_taken_for_unwritten) {
  data d;
  fl_host *host = host_with(PATTERN, "VLLM_FL_GUARD=1");
  fill(&d, COLUMNS);
  ck_ok(call_twice(host, &d));
  ck_assert_int_eq(((unsigned char *)d.out)[0], 0xfb);
  ck_assert_float_eq(d.out[1], 2);
  ck_assert_int_eq(good.calls, 0);
  ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_write_between_the_rows_of_a_result_is_found) {
  fl_host *host = host_with(GAP, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS + 3);
  check_failed(host, "guarded mode: result 'out' (float32[4, 8]) was written between its rows, at byte 32");
  fl_host_destroy(host);
}
END_TEST

START_TEST(what_is_not_finite_though_the_inputs_are_is_warned_of_once) {
  static const char line[] = "WARNING Implementation 'default.bad' of op 'twice' was given finite numbers only: result "
                             "'out' (float32[4, 8]) is not finite at [0, 0]";
  data d;
  fl_host *host = host_with(NOT_A_NUMBER, "VLLM_FL_GUARD=1");
  for (int i = 0; i < 3; i++) {
    fill(&d, COLUMNS);
    ck_ok(call_twice(host, &d));
    ck_assert(isnan(d.out[0]));
  }
  ck_assert_int_eq(test_log_count(line), 1);
  ck_assert_uint_eq(counters_of(host, "default.bad").failures, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_strict_mode_the_failure_is_the_calls) {
  static const fl_policy_fields fields = {.size = sizeof fields, .strict = true};
  fl_policy *policy;
  data d;
  fl_host *host = host_with(UNWRITTEN, "VLLM_FL_GUARD=1");
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  fill(&d, COLUMNS);
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "twice: guarded mode: result 'out' (float32[4, 8]): 24 of 32 elements");
  ck_assert_int_eq(good.calls, 0);
  fl_host_destroy(host);
}
END_TEST

/* "halve": in place, or not. */
static fl_status halve(void *self, fl_call *call) {
  subject *s = self;
  const DLTensor *x = call->values[0].v.tensor, *out = call->values[1].v.tensor;
  s->calls++;
  for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++)
    row_of(out, 0)[i] = row_of(x, 0)[i] / 2;
  if (s->fault == NONE)
    return FL_OK;
  row_of(x, 0)[0] = 77;
  return fl_fail(call, FL_EDEVICE, "half way");
}

START_TEST(a_call_in_place_falls_back_from_what_the_caller_gave) {
  static subject failing = {.id = "default.failing", .fault = INPUT}, reference = {.id = "reference.right"};
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "halve(Tensor(a!) x) -> Tensor(a) out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "halve", &failing, halve, kDLCPU);
  add(host, "halve", &reference, halve, kDLCPU);
  fill(&d, COLUMNS);
  fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(&d.x_tensor)};
  fl_call call = FL_CALL(values);
  ck_ok(fl_call_op(host, "halve", &call));
  for (int i = 0; i < ROWS * COLUMNS; i++)
    ck_assert_float_eq(d.x[i], (float)i / 2);
  ck_assert_int_eq(failing.calls, 1);
  ck_assert_int_eq(reference.calls, 1);
  fl_host_destroy(host);
}
END_TEST

/* "store": the first row of the cache becomes x's. */
static fl_status store(void *self, fl_call *call) {
  (void)self;
  memcpy(row_of(call->values[1].v.tensor, 0), row_of(call->values[0].v.tensor, 0), COLUMNS * sizeof(float));
  if (call->stream) /* meanwhile another thread of the engine writes another row */
    *(float *)call->stream = 99;
  call->values[2] = fl_string("stored");
  return FL_OK;
}

START_TEST(of_a_state_only_what_changed_is_given_back) {
  static subject storing = {.id = "default.storing"};
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "store(Tensor x, Tensor(a!) cache) -> str done", "x: float32[n, m]; cache: float32[n, m]");
  add(host, "store", &storing, store, kDLCPU);
  fill(&d, COLUMNS);
  fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(&d.out_tensor), fl_none()};
  fl_call call = FL_CALL(values);
  call.stream = &d.out[COLUMNS + 1];
  ck_ok(fl_call_op(host, "store", &call));
  ck_assert_str_eq(values[2].v.s, "stored");
  ck_assert_mem_eq(d.out, d.x, COLUMNS * sizeof(float));
  ck_assert_float_eq(d.out[COLUMNS + 1], 99);
  fl_host_destroy(host);
}
END_TEST

static fl_status twice_without_end(void *self, fl_call *call) {
  twice(self, call);
  pthread_exit(NULL);
}

static void *call_without_end(void *host) {
  data d;
  fill(&d, COLUMNS);
  call_twice(host, &d);
  return host;
}

START_TEST(of_a_call_whose_thread_ends_in_it_nothing_is_left) {
  static subject leaving = {.id = "default.bad"}, staying = {.id = "reference.good"};
  pthread_t thread;
  void *returned;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "twice", &leaving, twice_without_end, kDLCPU);
  add(host, "twice", &staying, twice, kDLCPU);
  ck_assert(!pthread_create(&thread, NULL, call_without_end, host));
  pthread_join(thread, &returned);
  ck_assert_ptr_null(returned);
  call_right(host, COLUMNS);
  ck_assert_int_eq(leaving.calls, 1);
  ck_assert_int_eq(staying.calls, 1);
  fl_host_destroy(host); /* a leak is the sanitizer's to find, and valgrind's */
}
END_TEST

/* Uses a byte more of the workspace than there is. */
static fl_status twice_with_workspace(void *self, fl_call *call) {
  memset(call->workspace, 0, call->workspace_size + 1);
  return twice(self, call);
}

START_TEST(a_workspace_is_watched_as_tensors_are) {
  static subject greedy = {.id = "default.bad"}, modest = {.id = "reference.good"};
  _Alignas(256) char workspace[128];
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "twice", &greedy, twice_with_workspace, kDLCPU);
  add(host, "twice", &modest, twice, kDLCPU);
  memset(workspace, 5, sizeof workspace);
  fill(&d, COLUMNS);
  fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(&d.out_tensor)};
  fl_call call = FL_CALL(values);
  call.workspace = workspace;
  call.workspace_size = 100;
  ck_ok(fl_call_op(host, "twice", &call));
  check_right(&d);
  check_failed(host, "guarded mode: the workspace (uint8[100]) was touched 1 bytes behind its end");
  ck_assert_int_eq(workspace[100], 5);
  fl_host_destroy(host);
}
END_TEST

START_TEST(both_modes_go_with_in_place_only_implementations_scopes_copies_and_counters) {
  static subject only = {.id = "default.only"}, reference = {.id = "reference.right"};
  fl_host *host = test_host((const char *const[]){"VLLM_FL_GUARD=1", "VLLM_FL_CANARY=2", NULL}, FL_HOST_STATISTICS);
  fl_policy_fields fields = {.size = sizeof fields, .preserve_inputs = true};
  fl_policy *policy;
  fl_scope scope;
  data d;
  add_op(host, "halve(Tensor(a!) x) -> Tensor(a) out", "x: float32[n, m]; out: float32[n, m]");
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "halve",
                  .impl_id = only.id,
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .flags = FL_IMPL_INPLACE_ONLY,
                  .fn = halve,
                  .self = &only};
  ck_ok(fl_register_impl(host, &impl));
  add(host, "halve", &reference, halve, kDLCPU);
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  for (int i = 0; i < 6; i++) {
    bool in_place = i % 2, scoped = i >= 4;
    fill(&d, COLUMNS);
    fl_value values[] = {fl_tensor(&d.x_tensor), fl_tensor(in_place ? &d.x_tensor : &d.out_tensor)};
    fl_call call = FL_CALL(values);
    if (scoped)
      ck_ok(fl_scope_prefer(host, "reference", &scope));
    ck_ok(fl_call_op(host, "halve", &call));
    if (scoped)
      ck_ok(fl_scope_leave(&scope));
    for (int j = 0; j < ROWS * COLUMNS; j++) {
      ck_assert_float_eq((in_place ? d.x : d.out)[j], (float)j / 2);
      ck_assert_float_eq(d.x[j], in_place ? (float)j / 2 : (float)j);
    }
  }
  ck_assert_int_eq(only.calls, 4);
  ck_assert_int_eq(reference.calls, 2 + 2); /* two beside those, two in its scope */
  fl_counters counters = {.size = sizeof counters};
  ck_ok(fl_get_counters(host, "halve", only.id, &counters));
  ck_assert_uint_eq(counters.calls, 4);
  ck_assert_uint_eq(counters.failures, 0);
  fl_host_destroy(host);
}
END_TEST

static void leave(int number) {
  (void)number;
  _exit(7);
}

START_TEST(a_fault_elsewhere_goes_to_the_handler_that_was_there_before) {
  if (cannot_touch("a_fault_elsewhere_goes_to_the_handler_that_was_there_before"))
    return;
  struct sigaction action = {.sa_handler = leave};
  int status;
  volatile char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ck_assert(page != MAP_FAILED);
  ck_assert(!sigaction(SIGSEGV, &action, NULL));
  fl_host *host = host_with(NONE, "VLLM_FL_GUARD=1");
  call_right(host, COLUMNS);
  pid_t child = fork();
  if (!child) {
    *page = 1;
    _exit(0);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert(WIFEXITED(status));
  ck_assert_int_eq(WEXITSTATUS(status), 7);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- a device */

START_TEST(on_a_device_the_margins_around_tensors_are_looked_at) {
  check_on_device(NONE, "VLLM_FL_GUARD=1", false, NULL);
}
END_TEST

START_TEST(a_kernel_that_writes_behind_its_result_on_a_device_is_replaced) {
  check_on_device(BEHIND, "VLLM_FL_GUARD=1", true,
                  "guarded mode: result 'out' (float32[4, 8]) was touched 1 bytes behind its end");
}
END_TEST

START_TEST(what_cannot_be_watched_is_said_and_runs_as_ever) {
  static subject there = {.id = "default.bad"};
  float values[ROWS * COLUMNS] = {0};
  matrix x, out;
  fl_host *host = on_host = device_host((const char *const[]){"VLLM_FL_GUARD=1", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  there.fault = NONE;
  add(host, "twice", &there, twice_there, kDLExtDev);
  matrix_make(&x, host, device0, ROWS, COLUMNS, values);
  matrix_make(&out, host, device0, ROWS, COLUMNS, NULL);
  fl_value call_values[] = {fl_tensor(&x.tensor), fl_tensor(&out.tensor)};
  fl_call call = FL_CALL(call_values);
  test_device->full = true;
  for (int i = 0; i < 2; i++)
    ck_ok(fl_call_op(host, "twice", &call));
  test_device->full = false;
  const char *said = strstr(test_log.text, "WARNING Implementation 'default.bad' of op 'twice' is not watched: ");
  ck_assert_ptr_nonnull(said);
  ck_assert_ptr_null(strstr(strchr(said, '\n'), " is not watched: "));
  matrix_free(&x);
  matrix_free(&out);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
  tcase_add_test(tests, without_the_mode_a_call_goes_straight_into_the_kernel);
  tcase_add_test(tests, an_implementation_that_keeps_to_its_contract_runs_as_ever);
  tcase_add_test(tests, a_write_behind_a_result_is_reported_and_the_fallback_gives_the_results);
  tcase_add_test(tests, a_write_before_a_result_is_found_where_tensors_lie_at_the_beginning_of_their_pages);
  tcase_add_loop_test(tests, a_write_close_to_a_result_is_found_without_a_guard_page, 0, 2);
  tcase_add_loop_test(tests, an_input_that_is_written_is_the_callers_no_more_than_before, 0, 2);
  tcase_add_test(tests, elements_that_are_left_unwritten_are_found);
  tcase_add_test(tests, an_element_that_happens_to_be_the_pattern_is_not_taken_for_unwritten);
  tcase_add_test(tests, a_write_between_the_rows_of_a_result_is_found);
  tcase_add_test(tests, what_is_not_finite_though_the_inputs_are_is_warned_of_once);
  tcase_add_test(tests, in_strict_mode_the_failure_is_the_calls);
  tcase_add_test(tests, a_call_in_place_falls_back_from_what_the_caller_gave);
  tcase_add_test(tests, both_modes_go_with_in_place_only_implementations_scopes_copies_and_counters);
  tcase_add_test(tests, of_a_call_whose_thread_ends_in_it_nothing_is_left);
  tcase_add_test(tests, a_workspace_is_watched_as_tensors_are);
  tcase_add_test(tests, of_a_state_only_what_changed_is_given_back);
  tcase_add_test(tests, a_fault_elsewhere_goes_to_the_handler_that_was_there_before);
  tcase_add_test(tests, on_a_device_the_margins_around_tensors_are_looked_at);
  tcase_add_test(tests, a_kernel_that_writes_behind_its_result_on_a_device_is_replaced);
  tcase_add_test(tests, what_cannot_be_watched_is_said_and_runs_as_ever);
}

int main(void) {
  return run_suite("guard", add_tests, 120);
}
