/* What vLLM's IR does with implementations of an op: identities, reserved names, orders per op. */
#include "fixture.h"

#include "tests/scratch.h"

/* ------------------------------------------------------------------------------------------------------- identity */

static const char *uuid_of(fl_host *host, const char *op, const char *impl_id) {
  static char buffers[4][65];
  static int turn;
  char *uuid = buffers[turn++ % 4];
  ck_ok(fl_impl_uuid(host, op, impl_id, uuid));
  ck_assert_uint_eq(strspn(uuid, "0123456789abcdef"), 64);
  ck_assert_uint_eq(strlen(uuid), 64);
  return uuid;
}

/* SHA-256 of "op() -> str out\0default.x\0engine\0", made with another program. */
START_TEST(uuid_is_a_digest_of_schema_id_and_build) {
  test_impl impl = {.id = "default.x"};
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  test_register(host, "op", &impl, 0, false);
  ck_assert_str_eq(uuid_of(host, "op", "default.x"),
                   "f8e3107de6eedd79c6abf125ea29b0d7ac84dc212ed2f7fbab829e6e7f725d6b");
  fl_host_destroy(host);
}
END_TEST

START_TEST(uuid_is_the_same_in_every_host_and_differs_by_each_part) {
  test_impl x = {.id = "default.x"}, y = {.id = "default.y"};
  fl_host *host = test_host(NULL, 0), *other = test_host(NULL, 0);
  test_op(host, "op");
  test_op(host, "op2");
  test_op(other, "op");
  test_register(host, "op", &x, 0, false);
  test_register(host, "op", &y, 0, false);
  test_register(host, "op2", &x, 0, false);
  test_register(other, "op", &x, 999, true); /* neither priority nor predicate is what it computes */
  const char *uuid = uuid_of(host, "op", "default.x");
  ck_assert_str_eq(uuid, uuid_of(other, "op", "default.x"));
  ck_assert_str_ne(uuid, uuid_of(host, "op", "default.y"));
  ck_assert_str_ne(uuid, uuid_of(host, "op2", "default.x"));
  fl_host_destroy(host);
  fl_host_destroy(other);
}
END_TEST

/* A host with one of the plugins that are built from good.c. */
static fl_host *host_with(const char *plugin) {
  char name[64];
  fl_host *host = test_host(NULL, 0);
  snprintf(name, sizeof name, "tests/plugins/%s.so", plugin);
  ck_ok(fl_load_plugin(host, built(name)));
  return host;
}

START_TEST(uuid_changes_with_the_build_of_a_plugin) {
  char before[65];
  fl_host *host = host_with("good");
  snprintf(before, sizeof before, "%s", uuid_of(host, "test_scale", "vendor.good"));
  fl_host_destroy(host);
  host = host_with("good");
  ck_assert_str_eq(before, uuid_of(host, "test_scale", "vendor.good"));
  fl_host_destroy(host);
  host = host_with("good_rebuilt");
  ck_assert_str_ne(before, uuid_of(host, "test_scale", "vendor.good"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(uuid_is_refused_where_nothing_tells_builds_apart) {
  char uuid[65] = "untouched";
  fl_host *host = host_with("good_anonymous");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scale", "vendor.good", uuid), FL_ENOTSUP);
  ck_assert_str_eq(fl_error_message(), "plugin 'good' of 'vendor.good' has no build id: link it with -Wl,--build-id");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scale", "vendor.goof", uuid), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(),
                   "op 'test_scale' has no implementation 'vendor.goof'; did you mean 'vendor.good'?");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scail", "vendor.good", uuid), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no op 'test_scail'; did you mean 'test_scale'?");
  ck_assert_str_eq(uuid, "untouched");
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- reserved names */

START_TEST(T1_native_is_the_reference) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=op=native|flagos", NULL};
  test_impl flagos = {.id = "default.x"}, reference = {.id = "reference.x"};
  fl_host *host = test_host(environment, 0);
  const char *ran;
  test_op(host, "op");
  test_register(host, "op", &flagos, 0, false);
  test_register(host, "op", &reference, 0, false);
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "reference.x");
  reference.status = FL_EDEVICE;
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "default.x");
  fl_host_destroy(host);
}
END_TEST

static fl_status no_kernel(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "must not run");
}

START_TEST(reserved_names_are_refused) {
  static const struct {
    const char *impl_id, *vendor, *message;
  } cases[] = {{"native", "acme", "impl_id 'native' is reserved"},
               {"unfused", "acme", "impl_id 'unfused' is reserved"},
               {"vendor.native", "native", "vendor 'native' is reserved"},
               {"vendor.unfused", "unfused", "vendor 'unfused' is reserved"},
               {"reference.parts", "acme", "impl_id 'reference.parts' is reserved"}};
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_impl impl = {.size = sizeof impl,
                    .op_name = "op",
                    .impl_id = cases[i].impl_id,
                    .kind = FL_KIND_VENDOR,
                    .vendor = cases[i].vendor,
                    .devices = FL_DEVICE_ANY,
                    .fn = no_kernel};
    ck_assert_int_eq(fl_register_impl(host, &impl), FL_EINVAL);
    ck_contains(fl_error_message(), cases[i].message);
    impl.impl_id = "vendor.unfused_fast"; /* only the very words are reserved */
    impl.vendor = "natives";
    ck_assert_int_eq(fl_register_impl(host, &impl), i ? FL_EEXIST : FL_OK);
  }
  fl_host_destroy(host);
}
END_TEST

/* ------------------------------------------------------------------------------------------------- orders of one op */

/* An op with vendor.a, vendor.b and vendor.even (which takes no call of this test) and a reference. */
static fl_host *host_with_four(const char *const *environment) {
  static test_impl impls[4];
  static const char *const ids[] = {"vendor.a", "vendor.b", "vendor.even", "reference.x"};
  fl_host *host = test_host(environment, 0);
  test_op(host, "op");
  for (int i = 0; i < 4; i++) {
    impls[i] = (test_impl){.id = ids[i], .unsupported = i == 2};
    test_register(host, "op", &impls[i], 0, i == 2);
  }
  return host;
}

static const char *runs(fl_host *host) {
  const char *ran = NULL;
  ck_ok(test_call(host, "op", &ran));
  return ran;
}

#define ENTER(host, scope, ...)                                                                                        \
  fl_scope_op_order(host, "op", (const char *const[]){__VA_ARGS__},                                                    \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *), scope)

START_TEST(P5_orders_of_one_op_nest_and_are_restored) {
  fl_host *host = host_with_four(NULL);
  fl_scope outer, inner, innermost;
  ck_assert_str_eq(runs(host), "vendor.b"); /* vendor.even is tried first, and takes nothing */
  ck_ok(ENTER(host, &outer, "vendor:a", "vendor:b"));
  ck_assert_str_eq(runs(host), "vendor.a");
  ck_ok(ENTER(host, &inner, "reference"));
  ck_assert_str_eq(runs(host), "reference.x");
  ck_ok(ENTER(host, &innermost, "vendor:even"));
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL); /* an error leaves the scopes as they are */
  ck_ok(fl_scope_leave(&innermost));
  ck_assert_str_eq(runs(host), "reference.x");
  ck_ok(fl_scope_op_order(host, "op", NULL, 0, &innermost)); /* none of its own */
  ck_assert_str_eq(runs(host), "vendor.b");
  ck_ok(fl_scope_leave(&innermost));
  ck_ok(fl_scope_leave(&inner));
  ck_ok(fl_scope_deny_vendors(host, (const char *const[]){"a"}, 1, &inner));
  ck_assert_str_eq(runs(host), "vendor.b"); /* a scope of another kind keeps the order */
  ck_ok(fl_scope_leave(&inner));
  ck_ok(fl_scope_leave(&outer));
  ck_assert_str_eq(runs(host), "vendor.b");
  fl_host_destroy(host);
}
END_TEST

static void *run_in_thread(void *host) {
  return (void *)(uintptr_t)!strcmp(runs(host), "vendor.b");
}

START_TEST(P5_order_of_one_op_is_the_threads_own) {
  fl_host *host = host_with_four(NULL);
  fl_scope scope;
  pthread_t thread;
  void *same;
  ck_ok(ENTER(host, &scope, "native"));
  ck_assert_str_eq(runs(host), "reference.x");
  ck_assert_int_eq(pthread_create(&thread, NULL, run_in_thread, host), 0);
  ck_assert_int_eq(pthread_join(thread, &same), 0);
  ck_assert_ptr_nonnull(same);
  ck_ok(fl_scope_leave(&scope));
  fl_host_destroy(host);
}
END_TEST

START_TEST(policy_with_the_order_of_one_op_leaves_the_rest_alone) {
  fl_policy *first = NULL, *second = NULL, *third = NULL;
  const char *const ab[] = {"vendor:a", "vendor:b"}, *const native[] = {"native"};
  fl_policy_fields fields = {.size = sizeof fields, .strict = true};
  ck_ok(fl_policy_create(&fields, &first));
  ck_ok(fl_policy_with_op_order(first, "op", ab, 2, &second));
  ck_assert_str_eq(fl_policy_fingerprint(second), "prefer=flagos;st=1;per=op=vendor:a|vendor:b");
  ck_ok(fl_policy_with_op_order(second, "another", native, 1, &third));
  ck_assert_str_eq(fl_policy_fingerprint(third), "prefer=flagos;st=1;per=another=native;op=vendor:a|vendor:b");
  fl_policy_release(second);
  ck_ok(fl_policy_with_op_order(third, "op", native, 1, &second));
  ck_assert_str_eq(fl_policy_fingerprint(second), "prefer=flagos;st=1;per=another=native;op=native");
  fl_policy_release(third);
  ck_ok(fl_policy_with_op_order(second, "op", NULL, 0, &third));
  ck_assert_str_eq(fl_policy_fingerprint(third), "prefer=flagos;st=1;per=another=native");
  fl_policy_release(second);
  fl_policy_release(third);
  fl_policy_release(first);
}
END_TEST

START_TEST(T2_wrong_order_of_one_op_is_refused_and_enters_nothing) {
  fl_host *host = host_with_four(NULL);
  fl_scope scope;
  ck_assert_int_eq(ENTER(host, &scope, "nativ"), FL_EINVAL);
  ck_contains(fl_error_message(), "op 'op': 'nativ' is not a token");
  ck_contains(fl_error_message(), "did you mean 'native'?");
  ck_assert_int_eq(fl_scope_op_order(host, "silu_and_mull", NULL, 0, &scope), FL_ENOENT);
  ck_contains(fl_error_message(), "did you mean 'silu_and_mul'?");
  ck_assert_int_eq(fl_scope_op_order(host, NULL, NULL, 0, &scope), FL_EINVAL);
  ck_assert_int_eq(fl_scope_op_order(host, "op", NULL, 2, &scope), FL_EINVAL);
  ck_assert_int_eq(fl_scope_leave(&scope), FL_ESTATE);
  ck_assert_str_eq(runs(host), "vendor.b");
  fl_host_destroy(host);
}
END_TEST

static const char partial[] = "WARNING Op 'op': no implementation in its order takes all arguments, so that a call may "
                              "find none; add 'reference' to the end of the order";

START_TEST(order_that_may_find_nothing_is_warned_of_once) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=op=vendor:even", NULL};
  fl_host *host = host_with_four(environment);
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
    ck_contains(fl_error_message(), "odd sizes only");
    fl_bump_policy_epoch(host);
  }
  ck_assert_int_eq(test_log_count(partial), 1);
  fl_host_destroy(host);
}
END_TEST

/* Who enters a scope may want that implementation and no other: there is no setting to correct. */
START_TEST(order_of_a_scope_is_not_warned_of) {
  static const char *const tokens[] = {"vendor:even"};
  fl_scope scope;
  fl_host *host = host_with_four(NULL);
  ck_ok(fl_scope_op_order(host, "op", tokens, 1, &scope));
  ck_assert_int_eq(test_call(host, "op", NULL), FL_ENOIMPL);
  ck_ok(fl_scope_leave(&scope));
  ck_assert_int_eq(test_log_count(partial), 0);
  fl_host_destroy(host);
}
END_TEST

START_TEST(order_that_always_finds_something_is_not_warned_of) {
  static const char *const orders[] = {"PER_OP=op=vendor:even|native", "PER_OP=op=vendor:even|reference",
                                       "PER_OP=op=vendor:even|vendor:a", "PREFER=vendor"};
  for (size_t i = 0; i < sizeof orders / sizeof *orders; i++) {
    char variable[64];
    const char *const environment[] = {variable, NULL};
    snprintf(variable, sizeof variable, "VLLM_FL_%s", orders[i]);
    fl_host *host = host_with_four(environment);
    runs(host);
    ck_assert_int_eq(test_log_count(partial), 0);
    fl_host_destroy(host);
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- tests */

static void add_tests(TCase *tests) {
  tcase_add_test(tests, uuid_is_a_digest_of_schema_id_and_build);
  tcase_add_test(tests, uuid_is_the_same_in_every_host_and_differs_by_each_part);
  tcase_add_test(tests, uuid_changes_with_the_build_of_a_plugin);
  tcase_add_test(tests, uuid_is_refused_where_nothing_tells_builds_apart);
  tcase_add_test(tests, T1_native_is_the_reference);
  tcase_add_test(tests, reserved_names_are_refused);
  tcase_add_test(tests, P5_orders_of_one_op_nest_and_are_restored);
  tcase_add_test(tests, P5_order_of_one_op_is_the_threads_own);
  tcase_add_test(tests, policy_with_the_order_of_one_op_leaves_the_rest_alone);
  tcase_add_test(tests, T2_wrong_order_of_one_op_is_refused_and_enters_nothing);
  tcase_add_test(tests, order_that_may_find_nothing_is_warned_of_once);
  tcase_add_test(tests, order_of_a_scope_is_not_warned_of);
  tcase_add_test(tests, order_that_always_finds_something_is_not_warned_of);
}

int main(void) {
  return run_suite("ir", add_tests, 10);
}
