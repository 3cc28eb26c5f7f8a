/* Rules P5 and P6: policies of a thread and of all threads. */
#include "fixture.h"

static test_impl flagos = {.id = "default.flagos"}, cuda = {.id = "vendor.cuda"}, ascend = {.id = "vendor.ascend"},
                 reference = {.id = "reference.torch"};

static fl_host *host_with_four(void) {
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  test_register(host, "op", &flagos, 0, false);
  test_register(host, "op", &cuda, 0, false);
  test_register(host, "op", &ascend, 0, false);
  test_register(host, "op", &reference, 0, false);
  return host;
}

static const char *called(fl_host *host) {
  const char *ran;
  ck_ok(test_call(host, "op", &ran));
  return ran;
}

static fl_policy *preferring(const char *prefer) {
  fl_policy_fields fields = {.size = sizeof fields, .prefer = prefer};
  fl_policy *policy;
  ck_ok(fl_policy_create(&fields, &policy));
  return policy;
}

START_TEST(P5_scopes_nest_derive_from_the_outer_and_restore) {
  static const char *const cuda_only[] = {"cuda"};
  fl_scope vendor, denied, strict;
  fl_host *host = host_with_four();
  ck_ok(fl_scope_prefer(host, "vendor", &vendor));
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_ok(fl_scope_deny_vendors(host, cuda_only, 1, &denied));
  ck_assert_str_eq(called(host), "vendor.ascend");
  ck_ok(fl_scope_strict(host, &strict));
  fl_policy *policy = fl_get_policy(host);
  const fl_policy_fields *fields = fl_policy_get_fields(policy);
  ck_assert(fields->strict);
  ck_assert_str_eq(fields->prefer, "vendor");
  ck_assert_uint_eq(fields->n_deny_vendors, 1);
  fl_policy_release(policy);
  ck_ok(fl_scope_leave(&strict));
  ck_assert_str_eq(called(host), "vendor.ascend");
  ck_ok(fl_scope_leave(&denied));
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_ok(fl_scope_leave(&vendor));
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P5_allowed_vendors_replace_and_denied_add) {
  static const char *const cuda_only[] = {"cuda"}, *const ascend_only[] = {"ascend"};
  fl_scope prefer, allow, allow_other, deny;
  fl_host *host = host_with_four();
  ck_ok(fl_scope_prefer(host, "vendor", &prefer));
  ck_ok(fl_scope_allow_vendors(host, cuda_only, 1, &allow));
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_ok(fl_scope_allow_vendors(host, ascend_only, 1, &allow_other));
  ck_assert_str_eq(called(host), "vendor.ascend");
  ck_ok(fl_scope_deny_vendors(host, ascend_only, 1, &deny));
  ck_assert_str_eq(called(host), "default.flagos");
  ck_ok(fl_scope_leave(&deny));
  ck_ok(fl_scope_leave(&allow_other));
  ck_ok(fl_scope_leave(&allow));
  ck_ok(fl_scope_leave(&prefer));
  fl_host_destroy(host);
}
END_TEST

START_TEST(P5_a_scope_beats_a_global_policy_set_meanwhile) {
  fl_scope scope;
  fl_host *host = host_with_four();
  fl_policy *vendor = preferring("vendor");
  ck_ok(fl_scope_prefer(host, "reference", &scope));
  ck_assert_str_eq(called(host), "reference.torch");
  ck_ok(fl_set_global_policy(host, vendor));
  ck_assert_str_eq(called(host), "reference.torch");
  ck_ok(fl_scope_leave(&scope));
  ck_assert_str_eq(called(host), "vendor.cuda");
  fl_policy_release(vendor);
  fl_host_destroy(host);
}
END_TEST

START_TEST(P5_scopes_are_left_in_reverse_order) {
  fl_scope outer, inner;
  fl_host *host = host_with_four();
  ck_ok(fl_scope_prefer(host, "vendor", &outer));
  ck_ok(fl_scope_prefer(host, "reference", &inner));
  ck_assert_int_eq(fl_scope_leave(&outer), FL_ESTATE);
  ck_contains(fl_error_message(), "reverse order");
  ck_assert_str_eq(called(host), "reference.torch");
  ck_ok(fl_scope_leave(&inner));
  ck_assert_int_eq(fl_scope_leave(&inner), FL_ESTATE);
  ck_ok(fl_scope_leave(&outer));
  ck_assert_int_eq(fl_scope_prefer(host, "vendro", &inner), FL_EINVAL);
  ck_contains(fl_error_message(), "vendor");
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(P5_a_scope_is_of_its_host) {
  fl_scope scope;
  fl_host *a = host_with_four(), *b = host_with_four();
  ck_ok(fl_scope_prefer(a, "reference", &scope));
  ck_assert_str_eq(called(a), "reference.torch");
  ck_assert_str_eq(called(b), "default.flagos");
  ck_ok(fl_scope_leave(&scope));
  fl_host_destroy(a);
  fl_host_destroy(b);
}
END_TEST

typedef struct worker {
  fl_host *host;
  fl_policy *captured; /* or NULL */
  char ran[32];
} worker;

static void *work(void *argument) {
  worker *w = argument;
  const char *ran = "";
  fl_scope scope;
  if (w->captured && fl_scope_enter(w->host, w->captured, &scope))
    return NULL;
  if (test_call(w->host, "op", &ran))
    return NULL;
  snprintf(w->ran, sizeof w->ran, "%s", ran);
  if (w->captured)
    fl_scope_leave(&scope);
  return w;
}

static const char *in_thread(worker *w) {
  pthread_t thread;
  void *result;
  ck_assert_int_eq(pthread_create(&thread, NULL, work, w), 0);
  ck_assert_int_eq(pthread_join(thread, &result), 0);
  ck_assert_ptr_eq(result, w);
  return w->ran;
}

START_TEST(P5_a_scope_is_its_threads_and_its_policy_can_be_handed_over) {
  fl_scope scope;
  fl_host *host = host_with_four();
  ck_ok(fl_scope_prefer(host, "reference", &scope));
  ck_assert_str_eq(in_thread(&(worker){.host = host}), "default.flagos");
  fl_policy *captured = fl_get_policy(host);
  ck_assert_str_eq(in_thread(&(worker){.host = host, .captured = captured}), "reference.torch");
  fl_policy_release(captured);
  ck_ok(fl_scope_leave(&scope));
  fl_host_destroy(host);
}
END_TEST

START_TEST(P6_a_global_policy_takes_effect_with_the_next_call_of_every_thread) {
  fl_host *host = host_with_four();
  fl_policy *policy = preferring("vendor");
  ck_assert_str_eq(called(host), "default.flagos");
  ck_ok(fl_set_global_policy(host, policy));
  fl_policy_release(policy);
  ck_assert_str_eq(called(host), "vendor.cuda");
  ck_assert_str_eq(in_thread(&(worker){.host = host}), "vendor.cuda");
  ck_assert_int_eq(fl_set_global_policy(host, NULL), FL_EINVAL);
  ck_ok(fl_reset_global_policy(host));
  ck_assert_str_eq(called(host), "default.flagos");
  fl_host_destroy(host);
}
END_TEST

START_TEST(R4_what_is_registered_later_is_seen_inside_a_scope) {
  static test_impl late = {.id = "vendor.zz"};
  fl_scope scope;
  fl_host *host = host_with_four();
  ck_ok(fl_scope_prefer(host, "vendor", &scope));
  ck_assert_str_eq(called(host), "vendor.cuda");
  test_register(host, "op", &late, 0, false);
  ck_assert_str_eq(called(host), "vendor.zz");
  test_op(host, "late_op");
  test_register(host, "late_op", &late, 0, false);
  ck_ok(test_call(host, "late_op", NULL));
  ck_ok(fl_scope_leave(&scope));
  fl_host_destroy(host);
}
END_TEST

START_TEST(many_scopes_with_ever_new_policies_resolve_rightly) {
  char vendor[32];
  const char *const vendors[] = {vendor};
  fl_host *host = host_with_four();
  for (int i = 0; i < 500; i++) {
    fl_scope scope, inner;
    snprintf(vendor, sizeof vendor, "v%d", i);
    ck_ok(fl_scope_prefer(host, i % 2 ? "vendor" : "reference", &scope));
    ck_ok(fl_scope_deny_vendors(host, vendors, 1, &inner));
    ck_assert_str_eq(called(host), i % 2 ? "vendor.cuda" : "reference.torch");
    ck_ok(fl_scope_leave(&inner));
    ck_ok(fl_scope_leave(&scope));
  }
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, P5_scopes_nest_derive_from_the_outer_and_restore);
  tcase_add_test(tests, P5_allowed_vendors_replace_and_denied_add);
  tcase_add_test(tests, P5_a_scope_beats_a_global_policy_set_meanwhile);
  tcase_add_test(tests, P5_scopes_are_left_in_reverse_order);
  tcase_add_test(tests, P5_a_scope_is_of_its_host);
  tcase_add_test(tests, P5_a_scope_is_its_threads_and_its_policy_can_be_handed_over);
  tcase_add_test(tests, P6_a_global_policy_takes_effect_with_the_next_call_of_every_thread);
  tcase_add_test(tests, R4_what_is_registered_later_is_seen_inside_a_scope);
  tcase_add_test(tests, many_scopes_with_ever_new_policies_resolve_rightly);
}

int main(void) {
  return run_suite("scope", add_tests, 30);
}
