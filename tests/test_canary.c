/*
 * Canary mode: implementations that compute something else than the reference, the evidence that is saved, and what the
 * engine gets all the same. (Guarded mode: test_guard.c.)
 */
#include "cli/run/safetensors.h"
#include "tests/watched.h"

#include <dirent.h>
#include <flhost/freeze.h>
#include <sys/wait.h>

static const char *evidence_file(void) {
  static char path[2 * PATH_MAX];
  struct dirent **entries;
  int n = scandir(in_scratch("evidence"), &entries, NULL, alphasort);
  ck_assert_int_eq(n, 3); /* ., .. and the file */
  snprintf(path, sizeof path, "%s/evidence/%s", scratch, entries[2]->d_name);
  for (int i = 0; i < n; i++)
    free(entries[i]);
  free(entries);
  return path;
}

/* Why, or "no"; its reference never is. */
static const char *barred_in_a_snapshot(fl_host *host) {
  static char reason[1024] = "";
  int seen = 0;
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++) {
      const fl_impl_info *info = fl_snapshot_impl(snapshot, i, j);
      bool is_bad = !strcmp(info->impl_id, "default.bad");
      seen += is_bad;
      ck_assert(is_bad || !info->barred);
      if (is_bad)
        snprintf(reason, sizeof reason, "%s", info->barred ? info->barred : "no");
    }
  ck_assert_int_eq(seen, 1);
  fl_snapshot_release(snapshot);
  return reason;
}

START_TEST(who_is_wrong_in_the_third_call_is_barred_and_the_engine_gets_the_references_result) {
  fl_host *host = host_with(THIRD_WRONG, "VLLM_FL_CANARY=5");
  for (int i = 0; i < 6; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 3);
  ck_assert_int_eq(good.calls, 3 + 3); /* beside the three, and in place of it */
  check_failed(host, "canary mode: 'out' is not what 'reference.good' gives: 1 of 32 elements differ, worst at 0: 1, "
                     "expected 0");
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_double_lt(fl_failed_impl_at(failed, 0)->retry_in, 0);
  fl_failed_impls_free(failed);
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "twice", kDLCPU, &explanation));
  ck_contains(fl_explained_at(explanation, 0)->reason, "; barred (canary mode: ");
  ck_contains(fl_explained_at(explanation, 0)->reason, ", skipped until it is cleared");
  fl_explanation_free(explanation);
  ck_contains(barred_in_a_snapshot(host), "canary mode: 'out' is not what 'reference.good' gives");
  fl_clear_failed_impls(host, "twice");
  ck_assert_str_eq(barred_in_a_snapshot(host), "no");
  fl_host_destroy(host);
}
END_TEST

START_TEST(the_call_that_went_wrong_is_saved_with_what_the_reference_gives) {
  char error[SAFETENSORS_ERROR_MAX];
  safetensors file;
  struct stat about;
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  const char *path = evidence_file();
  ck_contains(test_log.text, path);
  ck_assert_msg(safetensors_read(path, &file, error), "%s", error);
  ck_assert_str_eq(safetensors_metadata(&file, "op"), "twice");
  ck_contains(safetensors_metadata(&file, "note"), "'out' is not what 'reference.good' gives");
  const DLTensor *x = safetensors_find(&file, "x"), *out = safetensors_find(&file, "out.out");
  ck_assert_ptr_nonnull(x);
  ck_assert_ptr_nonnull(out);
  for (int i = 0; i < ROWS * COLUMNS; i++)
    ck_assert_float_eq(((float *)out->data)[i], 2 * ((float *)x->data)[i]);
  safetensors_free(&file);
  ck_assert(!stat(in_scratch("evidence"), &about));
  ck_assert_uint_eq(about.st_mode & 0777, 0700);
  fl_host_destroy(host);
}
END_TEST

/* Rows that lie apart, and (second turn) the result in the place of the argument. */
START_TEST(the_file_has_strides_and_what_was_in_place) {
  data d;
  char error[SAFETENSORS_ERROR_MAX], evidence[PATH_MAX + 64];
  safetensors file;
  snprintf(evidence, sizeof evidence, "VLLM_FL_EVIDENCE=%s/evidence", scratch);
  fl_host *host = test_host((const char *const[]){"VLLM_FL_CANARY=1", evidence, NULL}, 0);
  add_op(host, "twice(Tensor(a!) x) -> Tensor(a) out", "x: float32[n, m]; out: float32[n, m]");
  bad = (subject){.id = "default.bad", .fault = WRONG};
  good = (subject){.id = "reference.good"};
  add(host, "twice", &bad, twice, kDLCPU);
  add(host, "twice", &good, twice, kDLCPU);
  fill(&d, COLUMNS + 3);
  if (_i)
    d.out_tensor = d.x_tensor;
  ck_ok(call_twice(host, &d));
  ck_assert_msg(safetensors_read(evidence_file(), &file, error), "%s", error);
  json_t *layout = json_loads(safetensors_metadata(&file, "layout"), 0, NULL);
  json_t *x = json_object_get(layout, "x"), *out = json_object_get(layout, "out.out");
  ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(x, "strides"), 0)), COLUMNS + 3);
  ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(out, "strides"), 0)), COLUMNS + 3);
  ck_assert_int_eq(json_object_get(x, "memory") && json_object_get(out, "memory"), _i);
  json_decref(layout);
  safetensors_free(&file);
  fl_host_destroy(host);
}
END_TEST

START_TEST(evidence_that_cannot_be_saved_does_not_change_the_call) {
  ck_assert(!mkdir(in_scratch("evidence"), 0777) && !chmod(in_scratch("evidence"), 0777));
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  check_failed(host, "; the call is not saved: ");
  check_failed(host, "/evidence: expected a directory of one's own that nobody else may write to");
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_full_directory_is_not_filled_any_further) {
  char name[32];
  ck_assert(!mkdir(in_scratch("evidence"), 0700));
  for (int i = 0; i < 64; i++) {
    snprintf(name, sizeof name, "evidence/%d", i);
    write_text(name, "");
  }
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  check_failed(host, "/evidence holds 64 files, and is not filled any further");
  fl_host_destroy(host);
}
END_TEST

START_TEST(after_the_first_calls_the_kernel_itself_is_bound) {
  fl_host *host = host_with(NONE, "VLLM_FL_CANARY=3");
  for (int i = 0; i < 5; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 5);
  ck_assert_int_eq(good.calls, 3);
  const fl_target *target = atomic_load(&fl_find_op(host, "twice")->slots.by_device[kDLCPU]);
  ck_assert(target->fn == twice && target->self == &bad);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_strict_mode_nothing_takes_the_place_of_one_that_is_barred) {
  static const fl_policy_fields fields = {.size = sizeof fields, .strict = true};
  fl_policy *policy;
  data d;
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  ck_ok(fl_policy_create(&fields, &policy));
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  fill(&d, COLUMNS);
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "twice: canary mode: 'out' is not what 'reference.good' gives");
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "twice: 'default.bad' is barred: canary mode: ");
  ck_assert_int_eq(bad.calls, 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(a_bar_outlasts_an_epoch_and_a_fork_and_ends_when_somebody_asks) {
  int status;
  fl_host *host = host_with(WRONG, "VLLM_FL_CANARY=1");
  call_right(host, COLUMNS);
  fl_bump_policy_epoch(host);
  call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 1);
  pid_t child = fork();
  if (!child) {
    data d;
    fill(&d, COLUMNS);
    _exit(call_twice(host, &d) || bad.calls != 1);
  }
  ck_assert_int_eq(waitpid(child, &status, 0), child);
  ck_assert_int_eq(status, 0);
  fl_clear_failed_impls(host, "twice");
  call_right(host, COLUMNS); /* checked again, and barred again */
  ck_assert_int_eq(bad.calls, 2);
  call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 2);
  fl_host_destroy(host);
}
END_TEST

START_TEST(in_a_frozen_host_a_wrong_result_is_an_error_and_nothing_else_changes) {
  data d;
  fl_host *host = host_with(THIRD_WRONG, "VLLM_FL_CANARY=9");
  call_right(host, COLUMNS);
  call_right(host, COLUMNS);
  ck_ok(fl_freeze(host, "test"));
  fill(&d, COLUMNS);
  ck_assert_int_eq(call_twice(host, &d), FL_EINTERNAL);
  ck_contains(fl_error_message(), "'out' is not what 'reference.good' gives");
  for (int i = 0; i < 9; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 12);
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0);
  fl_failed_impls_free(failed);
  ck_ok(fl_thaw(host, "test"));
  for (int i = 0; i < 2; i++)
    call_right(host, COLUMNS);
  const fl_target *target = atomic_load(&fl_find_op(host, "twice")->slots.by_device[kDLCPU]);
  ck_assert(target->fn == twice); /* all that was to be checked is checked */
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_op_without_a_reference_is_not_checked_and_that_is_said_once) {
  static subject alone = {.id = "default.alone", .fault = WRONG};
  data d;
  fl_host *host = test_host((const char *const[]){"VLLM_FL_LOG_LEVEL=DEBUG", "VLLM_FL_CANARY=3", NULL}, 0);
  add_op(host, "twice(Tensor x) -> Tensor out", "x: float32[n, m]; out: float32[n, m]");
  add(host, "twice", &alone, twice, kDLCPU);
  for (int i = 0; i < 4; i++) {
    fill(&d, COLUMNS);
    ck_ok(call_twice(host, &d));
    ck_assert_float_eq(d.out[0], 1);
  }
  ck_assert_int_eq(
      test_log_count("INFO Implementation 'default.alone' of op 'twice' is not checked by canary mode: the "
                     "op has no reference on the host"),
      1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(both_modes_at_once_check_a_call_once) {
  fl_host *host = host_with(THIRD_WRONG, "VLLM_FL_CANARY=5");
  host->watch->guarded = true;
  for (int i = 0; i < 4; i++)
    call_right(host, COLUMNS);
  ck_assert_int_eq(bad.calls, 3);
  check_failed(host, "canary mode: ");
  fl_host_destroy(host);
}
END_TEST

/* ----------------------------------------------------------------------------------------------------- many threads */

static void *call_often(void *user) {
  for (int i = 0; i < rounds(200); i++)
    call_right(user, i % 2 ? COLUMNS : COLUMNS + 1);
  return NULL;
}

START_TEST(threads_that_call_at_the_same_time_are_all_watched) {
  pthread_t threads[4];
  fl_host *host = host_with(_i ? THIRD_WRONG : NONE, "VLLM_FL_CANARY=100");
  host->watch->guarded = _i != 2;
  for (int i = 0; i < 4; i++)
    ck_assert(!pthread_create(&threads[i], NULL, call_often, host));
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  if (_i)
    check_failed(host, "canary mode: ");
  else
    ck_assert_int_eq(bad.calls, 4 * rounds(200));
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------- a device */

START_TEST(what_a_device_computes_is_compared_with_the_reference_on_the_host) {
  check_on_device(WRONG, "VLLM_FL_CANARY=2", false,
                  "canary mode: 'out' is not what 'reference.good' gives: 1 of 32 elements differ, worst at 5");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, scratch_make, scratch_remove);
  tcase_add_test(tests, who_is_wrong_in_the_third_call_is_barred_and_the_engine_gets_the_references_result);
  tcase_add_test(tests, the_call_that_went_wrong_is_saved_with_what_the_reference_gives);
  tcase_add_loop_test(tests, the_file_has_strides_and_what_was_in_place, 0, 2);
  tcase_add_test(tests, evidence_that_cannot_be_saved_does_not_change_the_call);
  tcase_add_test(tests, a_full_directory_is_not_filled_any_further);
  tcase_add_test(tests, after_the_first_calls_the_kernel_itself_is_bound);
  tcase_add_test(tests, in_strict_mode_nothing_takes_the_place_of_one_that_is_barred);
  tcase_add_test(tests, a_bar_outlasts_an_epoch_and_a_fork_and_ends_when_somebody_asks);
  tcase_add_test(tests, in_a_frozen_host_a_wrong_result_is_an_error_and_nothing_else_changes);
  tcase_add_test(tests, an_op_without_a_reference_is_not_checked_and_that_is_said_once);
  tcase_add_test(tests, both_modes_at_once_check_a_call_once);
  tcase_add_test(tests, what_a_device_computes_is_compared_with_the_reference_on_the_host);
  tcase_add_loop_test(tests, threads_that_call_at_the_same_time_are_all_watched, 0, 3);
}

int main(void) {
  return run_suite("canary", add_tests, 120);
}
