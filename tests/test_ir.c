/* What vLLM's IR does with implementations of an op: identities, reserved names, running by parts, orders per op. */
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
  ck_assert_str_eq(fl_error_message(), "op 'test_scale' has no implementation 'vendor.goof'");
  ck_assert_int_eq(fl_impl_uuid(host, "test_scail", "vendor.good", uuid), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no op 'test_scail'; did you mean 'test_scale'?");
  ck_assert_str_eq(uuid, "untouched");
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- tests */

static void add_tests(TCase *tests) {
  tcase_add_test(tests, uuid_is_a_digest_of_schema_id_and_build);
  tcase_add_test(tests, uuid_is_the_same_in_every_host_and_differs_by_each_part);
  tcase_add_test(tests, uuid_changes_with_the_build_of_a_plugin);
  tcase_add_test(tests, uuid_is_refused_where_nothing_tells_builds_apart);
}

int main(void) {
  return run_suite("ir", add_tests, 10);
}
