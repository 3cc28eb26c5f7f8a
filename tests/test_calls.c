/* What calls leave behind: log lines, counts, the list of ops that were used; and calls that nobody should make. */
#include "four_impls.h"

#include <flhost/vllm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(F1_first_use_and_each_change_are_logged_once) {
  fl_host *host = host_with_four(NULL);
  for (int i = 0; i < 5; i++)
    called(host);
  ck_assert_int_eq(test_log_count("INFO Op 'op' using 'default.flagos' (kind=flagos, vendor=None)"), 1);
  set_policy(host, (fl_policy_fields){.prefer = "vendor"});
  for (int i = 0; i < 5; i++)
    called(host);
  ck_assert_int_eq(
      test_log_count("INFO Op 'op' switched from 'default.flagos' to 'vendor.cuda' (kind=vendor, vendor=cuda)"), 1);
  ck_ok(fl_resolve_op(host, "op", kDLCPU, &(fl_resolution){.size = sizeof(fl_resolution)}));
  ck_assert_int_eq(test_log_count("INFO Op 'op' using 'default.flagos' (kind=flagos, vendor=None)"), 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(F8_calls_are_counted_when_statistics_are_on) {
  static test_impl impl = {.id = "default.x"};
  fl_counters counters = {.size = sizeof counters};
  fl_host *host =
      _i ? test_host((const char *const[]){"VLLM_FL_STATISTICS=1", NULL}, 0) : test_host(NULL, FL_HOST_STATISTICS);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  for (int i = 0; i < 7; i++)
    called(host);
  ck_ok(fl_get_counters(host, "op", "default.x", &counters));
  ck_assert_uint_eq(counters.calls, 7);
  ck_assert_int_eq(fl_get_counters(host, "op", "default.y", &counters), FL_ENOENT);
  ck_contains(fl_error_message(), "default.y");
  fl_host_destroy(host);
  /* A new host starts from nought. */
  host = test_host(NULL, FL_HOST_STATISTICS);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  called(host);
  ck_ok(fl_get_counters(host, "op", "default.x", &counters));
  ck_assert_uint_eq(counters.calls, 1);
  fl_host_destroy(host);
}
END_TEST

/* In the child: 0 if neither failures nor counts of the parent are left. */
static int inherited(fl_host *host) {
  fl_failed_impls *failed;
  fl_counters counters = {.size = sizeof counters};
  if (fl_get_failed_impls(host, NULL, &failed) || failed->n)
    return 1;
  fl_failed_impls_free(failed);
  if (fl_get_counters(host, "op", "default.flagos", &counters) || counters.failures || counters.fallbacks_failed)
    return 2;
  return strcmp(called(host), "default.flagos") ? 3 : 0;
}

START_TEST(X1_a_child_begins_without_failures_and_counts) {
  fl_counters counters = {.size = sizeof counters};
  int status = 0;
  fl_host *host = host_with_four(NULL);
  flagos.status = FL_EDEVICE;
  called(host);
  flagos.status = FL_OK;
  pid_t pid = fork();
  if (!pid)
    _exit(inherited(host));
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "the child's status is %x", (unsigned)status);
  ck_assert_str_eq(called(host), "vendor.cuda"); /* the parent has them still */
  ck_ok(fl_get_counters(host, "op", "default.flagos", &counters));
  ck_assert_uint_eq(counters.failures, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_oplist_file_lists_kind_default_once_and_never_through_a_link) {
  char directory[] = "/tmp/flhost-oplist-XXXXXX", path[64], link[64], variable[128], text[256] = "";
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/list", directory);
  snprintf(link, sizeof link, "%s/link", directory);
  snprintf(variable, sizeof variable, "FLAGGEMS_ENABLE_OPLIST_PATH=%s", path);
  const char *const environment[] = {variable, NULL};
  fl_host *host = host_with_four(environment);
  called(host);
  set_policy(host, (fl_policy_fields){.prefer = "vendor"});
  called(host);
  set_policy(host, (fl_policy_fields){.prefer = "flagos"});
  called(host);
  fl_host_destroy(host);
  FILE *file = fopen(path, "r");
  ck_assert_ptr_nonnull(file);
  ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 0);
  fclose(file);
  ck_assert_str_eq(text, "[DEBUG] vllm_fl.dispatch.ops.op: default.flagos\n");
  ck_assert_int_eq(symlink("list", link), 0);
  snprintf(variable, sizeof variable, "FLAGGEMS_ENABLE_OPLIST_PATH=%s", link);
  host = host_with_four(environment);
  called(host);
  fl_host_destroy(host);
  ck_contains(test_log.text, "FLAGGEMS_ENABLE_OPLIST_PATH: cannot write");
  unlink(link);
  ck_assert_int_eq(mkfifo(link, 0600), 0); /* that nobody reads */
  host = host_with_four(environment);
  called(host);
  fl_host_destroy(host);
  ck_contains(test_log.text, "FLAGGEMS_ENABLE_OPLIST_PATH: cannot write");
  unlink(link);
  unlink(path);
  rmdir(directory);
}
END_TEST

START_TEST(without_argument_checks_a_call_is_not_judged) {
  static test_impl impl = {.id = "default.x"};
  fl_host *host = test_host(NULL, FL_HOST_NO_ARGUMENT_CHECKS);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  fl_value values[] = {fl_int(1), fl_none()}; /* one too many */
  fl_call call = FL_CALL(values);
  ck_ok(fl_call_op(host, "op", &call));
  ck_assert_int_eq(fl_check(fl_find_op(host, "op"), &call), FL_EINVAL); /* unless one asks */
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_null_op_a_null_call_and_one_without_size_are_errors) {
  fl_value values[] = {fl_none()};
  fl_call call = FL_CALL(values);
  fl_cost cost = {.size = sizeof cost};
  size_t size;
  ck_assert_int_eq(fl_invoke(NULL, &call), FL_ENOENT);
  ck_assert_int_eq(fl_workspace_size(NULL, &call, &size), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "fl_workspace_size: the op is NULL");
  fl_host *host = host_with_four(NULL);
  fl_op *op = fl_find_op(host, "op");
  ck_assert_int_eq(fl_invoke(op, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "op: the call is a null pointer, expected a fl_call");
  ck_assert_int_eq(fl_check(op, NULL), FL_EINVAL);
  ck_assert_int_eq(fl_infer(op, NULL, NULL, 0, sizeof(fl_tensor_spec)), FL_EINVAL);
  ck_assert_int_eq(fl_op_cost(op, NULL, &cost), FL_EINVAL);
  ck_assert_int_eq(fl_workspace_size(op, NULL, &size), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "op: the call is a null pointer, expected a fl_call");
  call.size = 12;
  ck_assert_int_eq(fl_invoke(op, &call), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(),
                   "op: the call's size is 12 bytes, expected at least 16: use FL_CALL or set .size = sizeof(fl_call)");
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, F1_first_use_and_each_change_are_logged_once);
  tcase_add_loop_test(tests, F8_calls_are_counted_when_statistics_are_on, 0, 2);
  tcase_add_test(tests, X1_a_child_begins_without_failures_and_counts);
  tcase_add_test(tests, the_oplist_file_lists_kind_default_once_and_never_through_a_link);
  tcase_add_test(tests, without_argument_checks_a_call_is_not_judged);
  tcase_add_test(tests, a_null_op_a_null_call_and_one_without_size_are_errors);
}

int main(void) {
  return run_suite("calls", add_tests, 30);
}
