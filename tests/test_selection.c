/* Rules S: which implementation runs, and what is said about it. */
#include "four_impls.h"

#include <flhost/vllm.h>

#define RESOLVED "DEBUG [DISPATCH] Op 'op' -> "

START_TEST(S2_the_winner_is_the_first_token_that_matches_then_priority_then_id) {
  static test_impl low = {.id = "vendor.a9"}, high = {.id = "vendor.a10"}, best = {.id = "vendor.zz"};
  fl_host *host = host_with_four(NULL);
  test_register(host, "op", &low, 0, false);
  test_register(host, "op", &high, 0, false);
  set_policy(host, (fl_policy_fields){.prefer = "vendor"});
  ck_assert_str_eq(called(host), "vendor.cuda"); /* 100 all: bytewise descending */
  test_register(host, "op", &best, 99, false);
  ck_assert_str_eq(called(host), "vendor.cuda");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S2_priority_never_crosses_tokens) {
  static test_impl loud = {.id = "reference.loud"};
  fl_host *host = host_with_four(NULL);
  test_register(host, "op", &loud, 999, false);
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P3_a_token_that_is_not_listed_is_never_tried) {
  static const char *const tokens[] = {"vendor:ascend", "flagos"};
  static const fl_op_order order = {"op", tokens, 2};
  fl_host *host = host_with_four(NULL);
  set_policy(host, (fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)});
  ck_assert_str_eq(called(host), "vendor.ascend");
  ascend.status = flagos.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_str_eq(fl_error_message(), "All 2 implementation(s) failed for op='op'. Last error: E:default.flagos");
  ck_assert_int_eq(cuda.calls + reference.calls, 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_a_candidate_that_does_not_support_the_call_is_passed_over) {
  static test_impl odd = {.id = "default.zz_odd", .unsupported = true};
  fl_counters counters = {.size = sizeof counters};
  fl_host *host = host_with_four(NULL);
  test_register(host, "op", &odd, 200, true);
  ck_assert_str_eq(called(host), "default.flagos");
  ck_assert_int_eq(odd.calls, 0);
  ck_ok(fl_get_counters(host, "op", "default.zz_odd", &counters));
  ck_assert_uint_eq(counters.fallbacks_not_supported, 1);
  odd.unsupported = false;
  ck_assert_str_eq(called(host), "default.zz_odd");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S3_when_none_supports_the_call_each_says_why) {
  static test_impl odd = {.id = "default.odd", .unsupported = true},
                   late = {.id = "reference.late", .status = FL_ENOTSUP};
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  test_register(host, "op", &odd, 0, true);
  test_register(host, "op", &late, 0, false);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_assert_str_eq(fl_error_message(), "No implementation of op='op' supports these arguments:\n"
                                       "  default.odd: not supported: odd sizes only\n"
                                       "  reference.late: not supported: E:reference.late");
  fl_failed_impls *failed;
  ck_ok(fl_get_failed_impls(host, NULL, &failed));
  ck_assert_uint_eq(failed->n, 0); /* F5: not supported is no failure */
  fl_failed_impls_free(failed);
  fl_host_destroy(host);
}
END_TEST

START_TEST(S4_errors_keep_the_words_that_callers_rely_on) {
  static const char *const tokens[] = {"vendor:nobody"};
  static const fl_op_order order = {"op", tokens, 1};
  fl_host *host = host_with_four(NULL);
  set_policy(host, (fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)});
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(),
              "No implementation selected for op='op'. Candidates: ['default.flagos', 'vendor.cuda', "
              "'vendor.ascend', 'reference.torch'], Order: ['vendor:nobody']\n");
  ck_contains(fl_error_message(), "\n  vendor.cuda: no token of the order matches it: vendor:nobody");
  set_policy(host,
             (fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order), .strict = true});
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(), "No implementation available for op='op' under strict policy. Candidates: [");
  flagos.unavailable = cuda.unavailable = ascend.unavailable = reference.unavailable = true;
  fl_bump_policy_epoch(host);
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_contains(fl_error_message(),
              "No available implementation for op='op'. Registered: ['default.flagos', 'vendor.cuda', "
              "'vendor.ascend', 'reference.torch']\n");
  ck_contains(fl_error_message(), "default.flagos: not available: no such device here");
  test_op(host, "rms_nor");
  ck_assert_int_eq(test_call(host, "rms_nor", NULL), FL_ENOIMPL); /* without implementation */
  ck_assert_str_eq(fl_error_message(), "No available implementation for op='rms_nor'. Registered: []");
  ck_assert_int_eq(test_call(host, "rms_nrom", NULL), FL_ENOENT); /* unknown */
  ck_assert_str_eq(fl_error_message(), "No available implementation for op='rms_nrom'. Registered: []\n"
                                       "  no op 'rms_nrom'; did you mean 'rms_norm'?");
  fl_resolution resolution = {.size = sizeof resolution};
  ck_assert_int_eq(fl_resolve_op(host, "xp", kDLCPU, &resolution), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(),
                   "No available implementation for op='xp'. Registered: []\n  no op 'xp'; did you mean 'op'?");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S5_an_error_is_not_cached) {
  fl_host *host = host_with_four(NULL);
  flagos.unavailable = cuda.unavailable = ascend.unavailable = reference.unavailable = true;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  reference.unavailable = false;
  fl_bump_policy_epoch(host);
  ck_assert_str_eq(called(host), "reference.torch");
  fl_host_destroy(host);
}
END_TEST

START_TEST(S5_what_was_resolved_is_kept_until_something_changes) {
  static const char *const environment[] = {"VLLM_FL_DISPATCH_DEBUG=1", "VLLM_FL_LOG_LEVEL=DEBUG", NULL};
  static test_impl late = {.id = "default.late"};
  fl_scope scope;
  fl_host *host = host_with_four(environment);
  for (int i = 0; i < 3; i++)
    called(host);
  ck_assert_int_eq(test_log_count(RESOLVED "'default.flagos' (kind=flagos)"), 1);
  ck_ok(fl_scope_prefer(host, "vendor", &scope)); /* another policy, of this thread */
  for (int i = 0; i < 3; i++)
    called(host);
  ck_assert_int_eq(test_log_count(RESOLVED "'vendor.cuda' (kind=vendor, vendor=cuda)"), 1);
  ck_ok(fl_scope_leave(&scope));
  test_register(host, "op", &late, 200, false);
  for (int i = 0; i < 3; i++)
    called(host);
  ck_assert_int_eq(test_log_count(RESOLVED "'default.late' (kind=flagos)"), 1);
  fl_host_destroy(host);
}
END_TEST

START_TEST(explain_gives_order_verdict_and_reason_of_every_impl) {
  static const char *const environment[] = {"VLLM_FL_DENY_VENDORS=cuda", "VLLM_FL_PREFER=vendor", NULL};
  fl_explanation *why;
  fl_host *host = host_with_four(environment);
  reference.unavailable = true;
  ck_ok(fl_explain(host, "op", kDLCPU, &why));
  ck_assert_str_eq(why->selected, "vendor.ascend");
  ck_assert_uint_eq(why->n_order, 3);
  ck_assert_str_eq(why->order[0], "vendor");
  ck_assert_str_eq(why->order_origin, "prefer vendor: VLLM_FL_PREFER");
  static const char *const ids[] = {"vendor.ascend", "default.flagos", "vendor.cuda", "reference.torch"};
  static const fl_verdict verdicts[] = {FL_SELECTED, FL_CANDIDATE, FL_REJECTED, FL_REJECTED};
  for (int i = 0; i < 4; i++) {
    ck_assert_str_eq(fl_explained_at(why, i)->impl_id, ids[i]);
    ck_assert_int_eq(fl_explained_at(why, i)->verdict, verdicts[i]);
  }
  ck_assert_str_eq(fl_explained_at(why, 2)->reason, "vendor 'cuda' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)");
  ck_contains(fl_explained_at(why, 3)->reason, "not available: no such device here");
  fl_explanation_free(why);
  fl_host_destroy(host);
}
END_TEST

START_TEST(PREFER_ENABLED_off_runs_the_reference_else_the_vendor) {
  static const char *const environment[] = {"VLLM_FL_PREFER_ENABLED=false", "VLLM_FL_DENY_VENDORS=only", NULL};
  static test_impl only = {.id = "vendor.only"};
  const char *ran;
  fl_host *host = host_with_four(environment);
  ck_assert_str_eq(called(host), "reference.torch");
  test_op(host, "without_reference");
  test_register(host, "without_reference", &only, 0, false);
  ck_ok(test_call(host, "without_reference", &ran));
  ck_assert_str_eq(ran, "vendor.only");
  fl_host_destroy(host);
}
END_TEST

/* The tensors' device counts: a reference for the CPU is none for what lies on a GPU. */
START_TEST(PREFER_ENABLED_off_runs_the_vendors_where_no_reference_is_for_the_device) {
  static const char *const off[][2] = {{"VLLM_FL_PREFER_ENABLED=false", NULL}, {"VLLM_FL_CUSTOM_OPS=none", NULL}};
  fl_impl impls[] = {
      {.impl_id = "reference.c", .kind = FL_KIND_REFERENCE, .devices = FL_DEVICE(kDLCPU)},
      {.impl_id = "vendor.acme", .kind = FL_KIND_VENDOR, .vendor = "acme", .devices = FL_DEVICE(kDLCUDA)},
  };
  for (size_t i = 0; i < 2; i++) {
    fl_resolution found = {.size = sizeof found};
    fl_op_def op = {.size = sizeof op, .schema = "on_device(Tensor x) -> Tensor"};
    fl_host *host = test_host(off[i], 0);
    ck_ok(fl_register_op(host, &op));
    for (size_t j = 0; j < 2; j++) {
      impls[j].size = sizeof impls[j];
      impls[j].op_name = "on_device";
      impls[j].fn = (fl_kernel_fn)(void *)abort;
      ck_ok(fl_register_impl(host, &impls[j]));
    }
    ck_ok(fl_resolve_op(host, "on_device", kDLCUDA, &found));
    ck_assert_str_eq(found.impl_id, "vendor.acme");
    ck_ok(fl_resolve_op(host, "on_device", kDLCPU, &found));
    ck_assert_str_eq(found.impl_id, "reference.c");
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(L3_a_listed_op_does_not_use_kind_default_and_explain_names_the_list) {
  static const char *const environment[] = {"VLLM_FL_FLAGOS_BLACKLIST=op", NULL};
  fl_explanation *why;
  fl_host *host = host_with_four(environment);
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_assert(!fl_is_flagos_allowed(host, "op"));
  ck_assert(fl_is_flagos_allowed(host, "rms_norm"));
  ck_ok(fl_explain(host, "op", kDLCPU, &why));
  for (uint32_t i = 0; i < why->n_impls; i++)
    if (!strcmp(fl_explained_at(why, i)->impl_id, "default.flagos"))
      ck_contains(fl_explained_at(why, i)->reason, "VLLM_FL_FLAGOS_BLACKLIST");
  fl_explanation_free(why);
  fl_host_destroy(host);
}
END_TEST

START_TEST(custom_ops_off_runs_the_reference) {
  static const char *const environment[] = {"VLLM_FL_CUSTOM_OPS=all,-op", NULL};
  fl_host *host = host_with_four(environment);
  ck_assert_str_eq(called(host), "reference.torch");
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, S2_the_winner_is_the_first_token_that_matches_then_priority_then_id);
  tcase_add_test(tests, S2_priority_never_crosses_tokens);
  tcase_add_test(tests, P3_a_token_that_is_not_listed_is_never_tried);
  tcase_add_test(tests, S3_a_candidate_that_does_not_support_the_call_is_passed_over);
  tcase_add_test(tests, S3_when_none_supports_the_call_each_says_why);
  tcase_add_test(tests, S4_errors_keep_the_words_that_callers_rely_on);
  tcase_add_test(tests, S5_an_error_is_not_cached);
  tcase_add_test(tests, S5_what_was_resolved_is_kept_until_something_changes);
  tcase_add_test(tests, explain_gives_order_verdict_and_reason_of_every_impl);
  tcase_add_test(tests, PREFER_ENABLED_off_runs_the_reference_else_the_vendor);
  tcase_add_test(tests, PREFER_ENABLED_off_runs_the_vendors_where_no_reference_is_for_the_device);
  tcase_add_test(tests, L3_a_listed_op_does_not_use_kind_default_and_explain_names_the_list);
  tcase_add_test(tests, custom_ops_off_runs_the_reference);
}

int main(void) {
  return run_suite("selection", add_tests, 30);
}
