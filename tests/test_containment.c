/*
 * Implementations that break their contract in a call: what they leave in the call, what they return, what they say.
 * Each is a failed implementation with its name in words, and the next one runs from what the caller gave, where it
 * can. (Those that do not return: test_not_returning.c.)
 */
#include "tests/misdeeds.h"

#include <sys/mman.h>
#include <unistd.h>

/* -------------------------------------------------------------------------------------------------- what it leaves */

static fl_status no_end(fl_call *call) {
  memset(call->message, 'x', call->message_size);
  return FL_EDEVICE;
}

static fl_status not_supported_without_end(fl_call *call) {
  memset(call->message, 'x', call->message_size);
  return FL_ENOTSUP;
}

static fl_status no_message(fl_call *call) {
  call->message = NULL;
  call->message_size = 0;
  return FL_EDEVICE;
}

static fl_status small_message(fl_call *call) {
  snprintf(call->message, call->message_size, "the device is gone");
  call->message_size = 3;
  return FL_EDEVICE;
}

static fl_status wild_message(fl_call *call) {
  call->message = (char *)(uintptr_t)16;
  call->message_size = SIZE_MAX;
  return FL_EINTERNAL;
}

static fl_status no_values(fl_call *call) {
  call->values = NULL;
  return FL_EINTERNAL;
}

static fl_status other_values(fl_call *call) {
  static fl_value own[2];
  call->values = own;
  call->count = 77;
  call->size = 3;
  return FL_EINTERNAL;
}

static fl_status other_values_not_supported(fl_call *call) {
  other_values(call);
  return FL_ENOTSUP;
}

static misdeed in_call[] = {no_end,       not_supported_without_end, no_message, small_message, wild_message, no_values,
                            other_values, other_values_not_supported};
enum { IN_CALL = sizeof in_call / sizeof in_call[0] };

START_TEST(what_an_implementation_leaves_in_a_failed_call_does_not_reach_the_next) {
  static const DLDeviceType devices[] = {kDLCPU, kDLExtDev};
  for (int d = 0; d < 2; d++)
    for (int preserve = 0; preserve < 2; preserve++) {
      fl_host *host = host_with(copy_schema, &in_call[_i], run_second);
      fl_policy *policy;
      ck_ok(fl_policy_create(&(fl_policy_fields){.size = sizeof(fl_policy_fields), .preserve_inputs = preserve},
                             &policy));
      ck_ok(fl_set_global_policy(host, policy));
      fl_policy_release(policy);
      ck_ok(call_on(host, devices[d]));
      ck_assert_int_eq(next.calls, 1);
      fl_host_destroy(host);
    }
}
END_TEST

START_TEST(a_message_without_end_is_a_failure_and_shown_bounded) {
  misdeed deeds[] = {no_end, not_supported_without_end};
  for (int i = 0; i < 2; i++) {
    fl_host *host = host_with(copy_schema, &deeds[i], run_second);
    ck_ok(call_on(host, kDLCPU));
    ck_contains(test_log.text, "WARNING Implementation 'default.bad' failed for op 'op': xxxxxxxx");
    ck_contains(test_log.text, "xxx… (a message without end)\n");
    ck_assert_uint_lt(strlen(test_log.text), 5000);
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(a_message_without_end_of_a_call_that_goes_well_ends_for_its_reader) {
  misdeed deed = no_end_and_good;
  fl_host *host = host_with(copy_schema, &deed, run_second);
  ck_ok(call_on(host, kDLCPU));
  ck_assert_uint_le(strlen(fl_error_message()), 4096);
  fl_host_destroy(host);
}
END_TEST

static fl_status drops_an_argument(fl_call *call) {
  call->values[0] = fl_none();
  return fl_fail(call, FL_EDEVICE, "lost the device");
}

static fl_status drops_a_tensor(fl_call *call) {
  call->values[0].v.tensor = NULL;
  return FL_ENOTSUP;
}

static fl_status changes_a_shape(fl_call *call) {
  call->values[1].v.tensor->ndim = 0;
  return FL_EINVAL;
}

static misdeed spoiling[] = {drops_an_argument, drops_a_tensor, changes_a_shape};

START_TEST(no_fallback_starts_from_arguments_that_a_failed_implementation_changed) {
  fl_failed_impls *failed;
  fl_host *host = host_with(copy_schema, &spoiling[_i], run_second);
  ck_assert_int_eq(call_on(host, kDLCPU), FL_EINTERNAL);
  ck_assert_int_eq(next.calls, 0);
  ck_contains(fl_error_message(), "Implementation 'default.bad' failed for op 'op': ");
  ck_contains(fl_error_message(), "it changed what it was called with (op: ");
  ck_contains(fl_error_message(), ". No fallback");
  if (!_i)
    ck_contains(fl_error_message(), "lost the device; it changed");
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 1);
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->impl_id, "default.bad");
  fl_failed_impls_free(failed);
  ck_ok(call_on(host, kDLCPU)); /* the next call has another one */
  ck_assert_int_eq(next.calls, 1);
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- what it returns */

static fl_status text(fl_call *call, const char *s) {
  call->values[0] = fl_string("");
  call->values[0].v.s = s;
  return FL_OK;
}

static fl_status null_text(fl_call *call) {
  return text(call, NULL);
}

static fl_status wild_text(fl_call *call) {
  return text(call, (const char *)(uintptr_t)64);
}

static fl_status text_without_end(fl_call *call) {
  static char *endless;
  if (!endless) {
    endless = malloc(FL_STRING_RESULT_MAX + 4096);
    memset(endless, 'x', FL_STRING_RESULT_MAX + 4096);
  }
  return text(call, endless);
}

static fl_status text_that_is_gone(fl_call *call) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *gone = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(gone, page);
  return text(call, gone);
}

static fl_status text_up_to_the_end_of_memory(fl_call *call) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(at, 'x', page);
  munmap(at + page, page);
  return text(call, at + page - 3);
}

static fl_status number_for_text(fl_call *call) {
  call->values[0] = fl_int(7);
  return FL_OK;
}

static fl_status unknown_type(fl_call *call) {
  call->values[0] = fl_int(7);
  call->values[0].type = 4711;
  return FL_OK;
}

static misdeed bad_texts[] = {
    null_text,       wild_text,   text_without_end, text_that_is_gone, text_up_to_the_end_of_memory,
    number_for_text, unknown_type};
enum { BAD_TEXTS = sizeof bad_texts / sizeof bad_texts[0] };

START_TEST(a_result_that_is_no_string_is_a_failure_and_the_next_one_runs) {
  const char *result;
  fl_host *host = host_with("op() -> str out", &bad_texts[_i], good_text);
  ck_ok(test_call(host, "op", &result));
  ck_assert_str_eq(result, "good");
  ck_contains(test_log.text, "WARNING Implementation 'default.bad' failed for op 'op': it left result 'out' as a ");
  fl_host_destroy(host);
}
END_TEST

static fl_status text_near_the_end_of_memory(fl_call *call) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(at + page, page);
  return text(call, strcpy(at + page - 4, "end"));
}

static fl_status long_text(fl_call *call) {
  static char most[FL_STRING_RESULT_MAX];
  memset(most, 'x', sizeof most - 1);
  return text(call, most);
}

START_TEST(a_string_may_end_where_memory_does_and_be_as_long_as_allowed) {
  misdeed deeds[] = {text_near_the_end_of_memory, long_text};
  const char *result;
  for (int i = 0; i < 2; i++) {
    fl_host *host = host_with("op() -> str out", &deeds[i], good_text);
    ck_ok(test_call(host, "op", &result));
    ck_assert_uint_eq(strlen(result), i ? FL_STRING_RESULT_MAX - 1 : 3);
    ck_assert_int_eq(next.calls, 0);
    fl_host_destroy(host);
  }
}
END_TEST

static fl_status odd_bool(fl_call *call) {
  unsigned char byte = 2;
  call->values[0] = fl_bool(true);
  memcpy(&call->values[0].v.b, &byte, 1);
  return FL_OK;
}

static fl_status good_bool(void *self, fl_call *call) {
  (void)self;
  call->values[0] = fl_bool(true);
  return FL_OK;
}

START_TEST(a_bool_that_is_neither_true_nor_false_is_a_failure) {
  misdeed deed = odd_bool;
  fl_host *host = host_with("op() -> bool out", &deed, good_bool);
  fl_value values[] = {fl_none()};
  fl_call call = FL_CALL(values);
  ck_ok(fl_call_op(host, "op", &call));
  ck_assert(values[0].v.b);
  ck_contains(test_log.text,
              "'default.bad' failed for op 'op': it left result 'out' as a bool that is neither true nor false\n");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_bad_result_is_the_calls_error_where_nothing_else_may_run) {
  misdeed deed = null_text;
  fl_policy *policy;
  fl_host *host = host_with("op() -> str out", &deed, good_text);
  ck_ok(fl_policy_create(&(fl_policy_fields){.size = sizeof(fl_policy_fields), .strict = true}, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EINTERNAL);
  ck_assert_str_eq(fl_error_message(),
                   "op: it left result 'out' as a string that is not there, or has no end within 65536 bytes");
  fl_host_destroy(host);
}
END_TEST

/* -------------------------------------------------------------------------------------------------- what is stale */

static fl_status text_of_the_heap(void *self, fl_call *call) {
  char **made = self;
  call->values[call->count - 1] = fl_string(*made = strdup("of this call"));
  return FL_OK;
}

START_TEST(a_result_of_a_former_call_is_not_looked_at) {
  char *made = NULL;
  float x[1] = {1};
  int64_t n = 1;
  DLTensor tensor = vector(x, &n, kDLCPU);
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {.size = sizeof op, .schema = "op(Tensor x) -> str out"};
  ck_ok(fl_register_op(host, &op));
  register_as(host, "op", "default.heap", FL_KIND_DEFAULT, text_of_the_heap, &made);
  fl_value values[] = {fl_tensor(&tensor), fl_none()};
  fl_call call = FL_CALL(values);
  for (int i = 0; i < 4; i++) {
    ck_ok(fl_call_op(host, "op", &call));
    ck_assert_str_eq(values[1].v.s, "of this call");
    free(made); /* values[1] points to it still */
  }
  values[1].v.s = NULL;
  ck_ok(fl_call_op(host, "op", &call));
  free(made);
  values[1].v.s = (const char *)(uintptr_t)64;
  ck_ok(fl_call_op(host, "op", &call));
  free(made);
  values[1] = fl_int(3);
  ck_assert_int_eq(fl_call_op(host, "op", &call), FL_EINVAL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(values_that_are_null_are_refused_after_good_calls_too) {
  float x[4] = {0}, out[4];
  int64_t n = 4;
  DLTensor from = vector(x, &n, kDLCPU), to = vector(out, &n, kDLCPU);
  static const char *const schemas[] = {"op(Tensor x) -> Tensor out", "op(Tensor x, float a, str b) -> Tensor out"};
  for (int s = 0; s < 2; s++) {
    fl_host *host = test_host(NULL, 0);
    fl_op_def op = {.size = sizeof op, .schema = schemas[s]};
    ck_ok(fl_register_op(host, &op));
    register_as(host, "op", "default.x", FL_KIND_DEFAULT, does_nothing, NULL);
    fl_value two[] = {fl_tensor(&from), fl_tensor(&to)},
             four[] = {fl_tensor(&from), fl_float(1), fl_string("b"), fl_tensor(&to)};
    fl_call call = FL_CALL(two);
    if (s)
      call = FL_CALL(four);
    for (int i = 0; i < 3; i++)
      ck_ok(fl_call_op(host, "op", &call));
    call.values = NULL;
    ck_assert_int_eq(fl_call_op(host, "op", &call), FL_EINVAL);
    ck_assert_str_eq(fl_error_message(), "op: the call's values are a null pointer");
    fl_host_destroy(host);
  }
}
END_TEST

static fl_status check_without_end(fl_call *call) {
  memset(call->message, 'x', call->message_size);
  return FL_EINVAL;
}

static fl_status infer_without_end(fl_call *call, fl_tensor_spec *results) {
  (void)results;
  memset(call->message, 'x', call->message_size);
  return FL_ENOTSUP;
}

START_TEST(a_message_of_an_ops_own_check_ends) {
  for (int i = 0; i < 2; i++) {
    fl_host *host = test_host(NULL, 0);
    fl_op_def op = {.size = sizeof op,
                    .schema = copy_schema,
                    .check = i ? NULL : check_without_end,
                    .infer = i ? infer_without_end : NULL};
    ck_ok(fl_register_op(host, &op));
    register_as(host, "op", "default.x", FL_KIND_DEFAULT, does_nothing, NULL);
    ck_assert_int_eq(call_on(host, kDLCPU), i ? FL_ENOTSUP : FL_EINVAL);
    ck_assert_uint_eq(strlen(fl_error_message()), strlen("op: ") + 512);
    fl_host_destroy(host);
  }
}
END_TEST

/* -------------------------------------------------------------------------------------------------- what it says */

static char *endless_reason;

static bool says_too_much(void *self, const fl_call *call, const char **reason) {
  (void)self;
  (void)call;
  if (reason)
    *reason = endless_reason;
  return false;
}

static fl_status commands(fl_call *call) {
  return fl_fail(call, FL_EDEVICE, "\x1b[2Jgone \xe2\x80\xae backwards \xff");
}

START_TEST(a_reason_is_shown_bounded_and_without_commands) {
  enum { LONG = 16 << 20 };
  endless_reason = malloc(LONG + 1);
  memset(endless_reason, 'y', LONG);
  memcpy(endless_reason, "\x1b[31m", 5);
  endless_reason[LONG] = 0;
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {.size = sizeof op, .schema = copy_schema};
  ck_ok(fl_register_op(host, &op));
  fl_impl impl = {.size = sizeof impl,
                  .op_name = "op",
                  .impl_id = "default.bad",
                  .kind = FL_KIND_DEFAULT,
                  .devices = FL_DEVICE(kDLCPU),
                  .fn = does_nothing,
                  .supports_args = says_too_much};
  ck_ok(fl_register_impl(host, &impl));
  ck_assert_int_eq(call_on(host, kDLCPU), FL_ENOIMPL);
  ck_contains(fl_error_message(), "default.bad: not supported: \\x1b[31myyyyyyyy");
  ck_assert_uint_lt(strlen(fl_error_message()), 700);
  ck_assert_uint_lt(strlen(test_log.text), 700);
  fl_host_destroy(host);
  free(endless_reason);
}
END_TEST

START_TEST(a_message_is_shown_without_commands_wherever_it_is_shown) {
  static const char shown[] = "\\x1b[2Jgone \\xe2\\x80\\xae backwards \\xff";
  misdeed deed = commands;
  fl_failed_impls *failed;
  fl_host *host = host_with(copy_schema, &deed, run_second);
  ck_ok(call_on(host, kDLCPU));
  ck_contains(test_log.text, shown);
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_str_eq(fl_failed_impl_at(failed, 0)->reason, shown);
  fl_failed_impls_free(failed);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, what_an_implementation_leaves_in_a_failed_call_does_not_reach_the_next, 0, IN_CALL);
  tcase_add_test(tests, a_message_without_end_is_a_failure_and_shown_bounded);
  tcase_add_test(tests, a_message_without_end_of_a_call_that_goes_well_ends_for_its_reader);
  tcase_add_loop_test(tests, no_fallback_starts_from_arguments_that_a_failed_implementation_changed, 0, 3);
  tcase_add_loop_test(tests, a_result_that_is_no_string_is_a_failure_and_the_next_one_runs, 0, BAD_TEXTS);
  tcase_add_test(tests, a_string_may_end_where_memory_does_and_be_as_long_as_allowed);
  tcase_add_test(tests, a_bool_that_is_neither_true_nor_false_is_a_failure);
  tcase_add_test(tests, a_bad_result_is_the_calls_error_where_nothing_else_may_run);
  tcase_add_test(tests, a_result_of_a_former_call_is_not_looked_at);
  tcase_add_test(tests, values_that_are_null_are_refused_after_good_calls_too);
  tcase_add_test(tests, a_message_of_an_ops_own_check_ends);
  tcase_add_test(tests, a_reason_is_shown_bounded_and_without_commands);
  tcase_add_test(tests, a_message_is_shown_without_commands_wherever_it_is_shown);
}

int main(void) {
  return run_suite("containment", add_tests, 60);
}
