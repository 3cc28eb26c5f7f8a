/* Rules R1–R6: what is registered, what is refused, snapshots, availability, withdrawing. */
#include "core/ops.h"
#include "fixture.h"

#include <flhost/testing.h>

static fl_status kernel(void *self, fl_call *call) {
  (void)self;
  (void)call;
  return FL_OK;
}

static fl_impl good_impl(const char *id) {
  return (fl_impl){.size = sizeof(fl_impl),
                   .op_name = "op",
                   .impl_id = id,
                   .kind = FL_KIND_DEFAULT,
                   .devices = FL_DEVICE(kDLCPU),
                   .fn = kernel};
}

static fl_host *host_with_op(void) {
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  return host;
}

START_TEST(R1_bad_fields_are_refused_by_name) {
  static const struct {
    const char *field, *message;
  } rows[] = {{"op_name", "op_name is empty"},
              {"impl_id", "impl_id is empty"},
              {"kind", "kind is 7"},
              {"fn", "fn is NULL"},
              {"vendor", "vendor is empty"},
              {"blank", "vendor is empty"},
              {"space", "vendor ' acme' holds a comma, or white space at an end: deny_vendors could not name it"},
              {"comma", "vendor 'acme,inc' holds a comma"},
              {"devices", "devices is empty"},
              {"size", "set .size"},
              {"long", "longer than 127 bytes"}};
  char longest[200];
  fl_host *host = host_with_op();
  memset(longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = 0;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const char *field = rows[i].field;
    fl_impl impl = good_impl("default.x");
    if (!strcmp(field, "op_name"))
      impl.op_name = "";
    else if (!strcmp(field, "impl_id"))
      impl.impl_id = NULL;
    else if (!strcmp(field, "kind"))
      impl.kind = 7;
    else if (!strcmp(field, "fn"))
      impl.fn = NULL;
    else if (!strcmp(field, "devices"))
      impl.devices = 0;
    else if (!strcmp(field, "size"))
      impl.size = 0;
    else if (!strcmp(field, "long"))
      impl.impl_id = longest;
    else {
      impl.kind = FL_KIND_VENDOR;
      impl.vendor = !strcmp(field, "blank")   ? " \t"
                    : !strcmp(field, "space") ? " acme"
                    : !strcmp(field, "comma") ? "acme,inc"
                                              : NULL;
    }
    ck_assert_int_eq(fl_register_impl(host, &impl), FL_EINVAL);
    ck_contains(fl_error_message(), rows[i].message);
  }
  fl_host_destroy(host);
}
END_TEST

START_TEST(R1_priority_is_that_of_the_kind_unless_given) {
  fl_host *host = host_with_op();
  fl_impl rows[] = {good_impl("a"), good_impl("b"), good_impl("c"), good_impl("d"), good_impl("e")};
  static const int32_t expected[] = {150, 100, 50, 120, 0};
  rows[1].kind = FL_KIND_VENDOR;
  rows[1].vendor = "acme";
  rows[2].kind = FL_KIND_REFERENCE;
  rows[3].priority = 120;
  rows[4].flags = FL_IMPL_PRIORITY_ZERO;
  for (int i = 0; i < 5; i++)
    ck_ok(fl_register_impl(host, &rows[i]));
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  for (uint32_t op = 0; op < fl_snapshot_op_count(snapshot); op++)
    for (uint32_t i = 0; i < fl_snapshot_impl_count(snapshot, op); i++)
      ck_assert_int_eq(fl_snapshot_impl(snapshot, op, i)->priority, expected[i]);
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

START_TEST(R2_a_duplicate_is_refused_and_the_first_stays) {
  static test_impl first = {.id = "default.x"}, second = {.id = "default.x"};
  const char *ran;
  fl_host *host = host_with_op();
  test_register(host, "op", &first, 0, false);
  fl_impl again = good_impl("default.x");
  again.self = &second;
  ck_assert_int_eq(fl_register_impl(host, &again), FL_EEXIST);
  ck_contains(fl_error_message(), "Duplicate impl_id 'default.x' for op='op'");
  ck_contains(fl_error_message(), "from plugin 'engine', registered before by plugin 'engine'");
  ck_ok(test_call(host, "op", &ran));
  ck_assert_int_eq(first.calls, 1);
  /* The same id of another op is another implementation. */
  test_op(host, "other");
  again.op_name = "other";
  ck_ok(fl_register_impl(host, &again));
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_unknown_op_is_answered_with_the_nearest) {
  fl_host *host = host_with_op();
  fl_impl impl = good_impl("default.x");
  impl.op_name = "rms_nrom";
  ck_assert_int_eq(fl_register_impl(host, &impl), FL_ENOENT);
  ck_contains(fl_error_message(), "did you mean 'rms_norm'?");
  ck_assert_ptr_null(fl_find_op(host, "silu_and_mull"));
  ck_contains(fl_error_message(), "did you mean 'silu_and_mul'?");
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_op_declared_otherwise_is_refused_with_both_schemas) {
  fl_host *host = host_with_op();
  fl_op_def same = {.size = sizeof same, .schema = "op( )->str out"};
  fl_op_def other = {.size = sizeof other, .schema = "op(int n=1) -> str out"};
  ck_ok(fl_register_op(host, &same));
  ck_assert_int_eq(fl_register_op(host, &other), FL_EEXIST);
  ck_contains(fl_error_message(), "op(int n=1) -> str out");
  ck_contains(fl_error_message(), "op() -> str out");
  fl_host_destroy(host);
}
END_TEST

/* Of the host's own ops, too, which nobody has looked for yet. */
START_TEST(a_builtin_op_declared_otherwise_is_refused_with_both_schemas) {
  fl_host *host = test_host(NULL, 0);
  fl_op_def same = {.size = sizeof same, .schema = "relu2(Tensor(a!) x)->Tensor(a) out"};
  fl_op_def other = {.size = sizeof other, .schema = "relu2(Tensor x, int n=1) -> Tensor out"};
  ck_assert_int_eq(fl_register_op(host, &other), FL_EEXIST);
  ck_contains(fl_error_message(), "op 'relu2' is declared as 'relu2(Tensor x, int n=1) -> Tensor out', but plugin "
                                  "'flhost' declared it as 'relu2(Tensor(a!) x) -> Tensor(a) out'");
  ck_ok(fl_register_op(host, &same));
  fl_host_destroy(host);
}
END_TEST

/* Parsed or not. */
START_TEST(all_builtin_ops_are_in_a_snapshot_and_found_by_name) {
  fl_host *host = test_host(NULL, 0);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  uint32_t n = 0;
  while (fl_builtin_ops[n])
    n++;
  ck_assert_uint_eq(fl_snapshot_op_count(snapshot), n);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = fl_snapshot_op_name(snapshot, i);
    const fl_op *op = fl_find_op(host, name);
    ck_assert_ptr_nonnull(op);
    ck_assert_str_eq(fl_op_name(op), name);
    ck_assert_msg(!strncmp(fl_op_schema(op), name, strlen(name)), "%s: %s", name, fl_op_schema(op));
  }
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

static void *find_all(void *argument) {
  fl_host *host = argument;
  const fl_op **found = calloc(128, sizeof *found);
  for (uint32_t i = 0; fl_builtin_ops[i]; i++) {
    fl_input inputs[64];
    char name[FL_NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(fl_builtin_ops[i]->schema, "("), fl_builtin_ops[i]->schema);
    found[i] = fl_find_op(host, name);
    if (found[i]) /* the cases, too, are parsed for the first time */
      fl_generate_inputs(found[i], 0, 1, i, inputs, fl_op_argument_count(found[i]), sizeof(fl_input));
  }
  return found;
}

START_TEST(threads_that_look_for_an_op_for_the_first_time_find_the_same) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  const fl_op **found[THREADS];
  fl_host *host = test_host(NULL, 0);
  for (int i = 0; i < THREADS; i++)
    ck_assert_int_eq(pthread_create(&threads[i], NULL, find_all, host), 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], (void **)&found[i]);
  for (uint32_t i = 0; fl_builtin_ops[i]; i++)
    for (int j = 0; j < THREADS; j++)
      ck_assert(found[j][i] && found[j][i] == found[0][i]);
  for (int i = 0; i < THREADS; i++)
    free(found[i]);
  fl_host_destroy(host);
}
END_TEST

START_TEST(R4_a_better_impl_registered_late_is_seen_by_the_next_call) {
  static test_impl reference = {.id = "reference.c"}, best = {.id = "default.late"};
  const char *ran;
  fl_host *host = host_with_op();
  test_register(host, "op", &reference, 0, false);
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "reference.c");
  test_register(host, "op", &best, 0, false);
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "default.late");
  ck_ok(fl_withdraw_plugin(host, "engine"));
  ck_assert_int_eq(test_call(host, "op", &ran), FL_ENOIMPL);
  fl_host_destroy(host);
}
END_TEST

START_TEST(R5_a_snapshot_stays_as_it_was) {
  static test_impl impl = {.id = "vendor.acme"}, later = {.id = "vendor.later"};
  fl_host *host = host_with_op();
  test_register(host, "op", &impl, 0, false);
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  test_register(host, "op", &later, 0, false);
  ck_ok(fl_withdraw_plugin(host, "engine"));
  fl_host_destroy(host);
  uint32_t op = 0;
  while (strcmp(fl_snapshot_op_name(snapshot, op), "op"))
    op++;
  ck_assert_uint_eq(fl_snapshot_impl_count(snapshot, op), 1);
  const fl_impl_info *info = fl_snapshot_impl(snapshot, op, 0);
  ck_assert_str_eq(info->impl_id, "vendor.acme");
  ck_assert_str_eq(info->vendor, "acme");
  ck_assert_str_eq(info->plugin, "engine");
  ck_assert(info->available);
  ck_assert_ptr_null(fl_snapshot_impl(snapshot, op, 1));
  ck_assert_ptr_null(fl_snapshot_op_name(snapshot, fl_snapshot_op_count(snapshot)));
  fl_snapshot_release(snapshot);
}
END_TEST

START_TEST(R6_availability_is_asked_once_a_generation_and_its_reason_kept) {
  static test_impl away = {.id = "default.x", .unavailable = true}, there = {.id = "reference.c"},
                   late = {.id = "vendor.b"};
  const char *ran;
  fl_host *host = host_with_op();
  test_register(host, "op", &away, 0, false);
  test_register(host, "op", &there, 0, false);
  for (int i = 0; i < 3; i++)
    ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "reference.c");
  ck_assert_int_eq(away.asked, 1);
  fl_explanation *why;
  ck_ok(fl_explain(host, "op", kDLCPU, &why));
  ck_assert_int_eq(why->n_impls, 2);
  ck_assert_str_eq(fl_explained_at(why, 1)->impl_id, "default.x");
  ck_assert_str_eq(fl_explained_at(why, 1)->reason, "not available: no such device here");
  fl_explanation_free(why);
  ck_assert_int_eq(away.asked, 1);
  /* The next generation asks again: the device has come. */
  away.unavailable = false;
  test_register(host, "op", &late, 0, false);
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "default.x");
  ck_assert_int_eq(away.asked, 2);
  fl_host_destroy(host);
}
END_TEST

static fl_status withdraw_inside(void *self, fl_call *call) {
  (void)call;
  fl_status status = fl_withdraw_plugin(self, "engine");
  return status == FL_ESTATE ? FL_OK : FL_EINTERNAL;
}

static test_impl latecomer = {.id = "default.flagos"};

static bool register_another(void *self, const char **reason) {
  fl_host *host = self;
  (void)reason;
  if (!latecomer.calls++)
    test_register(host, "first", &latecomer, 0, false);
  return true;
}

/* An op that was asked already gets an implementation while the next one is asked. */
START_TEST(R6_a_list_has_nothing_in_it_that_was_not_asked) {
  fl_host *host = test_host(NULL, 0);
  test_op(host, "first");
  test_op(host, "second");
  fl_impl impl = good_impl("default.zz");
  impl.op_name = "second";
  impl.self = host;
  impl.is_available = register_another;
  ck_ok(fl_register_impl(host, &impl));
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  ck_assert_int_eq(latecomer.asked, 1);
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; j < fl_snapshot_impl_count(snapshot, i); j++) {
      ck_assert(fl_snapshot_impl(snapshot, i, j)->available);
      ck_assert_ptr_null(fl_snapshot_impl(snapshot, i, j)->reason);
    }
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

START_TEST(D6_withdrawing_inside_a_call_is_refused_and_an_unknown_plugin_named) {
  fl_host *host = host_with_op();
  fl_impl impl = good_impl("default.x");
  impl.fn = withdraw_inside;
  impl.self = host;
  ck_ok(fl_register_impl(host, &impl));
  ck_ok(test_call(host, "op", NULL));
  ck_ok(fl_withdraw_plugin(host, "engine"));
  ck_assert_int_eq(fl_withdraw_plugin(host, "engine"), FL_ENOENT);
  ck_contains(fl_error_message(), "engine");
  fl_host_destroy(host);
}
END_TEST

/* Each struct that crosses the interface, of a header that is too old or of none. */
START_TEST(a_struct_without_its_size_is_refused_with_the_size_that_it_has) {
  fl_host *host = host_with_op();
  fl_impl impl = good_impl("default.x");
  fl_op_def op = {.size = 4, .schema = "other() -> ()"};
  impl.size = 16;
  ck_assert_int_eq(fl_register_impl(host, &impl), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "its size is 16 bytes, expected at least 72: set .size = sizeof(fl_impl)");
  ck_assert_int_eq(fl_register_op(host, &op), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "its size is 4 bytes, expected at least 16: set .size = sizeof(fl_op_def)");
  ck_assert_int_eq(fl_register_impl(host, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "a null pointer, expected a fl_impl");
  ck_assert_int_eq(fl_register_op(host, NULL), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "a null pointer, expected a fl_op_def");
  fl_host_destroy(host);
}
END_TEST

START_TEST(many_ops_are_found_by_name) {
  char name[32];
  fl_host *host = test_host(NULL, 0);
  for (int i = 0; i < 2000; i++) {
    snprintf(name, sizeof name, "op_%d", i);
    test_op(host, name);
  }
  for (int i = 0; i < 2000; i++) {
    snprintf(name, sizeof name, "op_%d", i);
    ck_assert_str_eq(fl_op_name(fl_find_op(host, name)), name);
  }
  ck_assert_ptr_null(fl_find_op(host, "op_2000"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(several_hosts_do_not_see_each_other) {
  static test_impl impl = {.id = "default.x"};
  fl_host *a = host_with_op(), *b = host_with_op();
  test_register(a, "op", &impl, 0, false);
  ck_ok(test_call(a, "op", NULL));
  ck_assert_int_eq(test_call(b, "op", NULL), FL_ENOIMPL);
  fl_host_destroy(a);
  ck_assert_int_eq(test_call(b, "op", NULL), FL_ENOIMPL);
  fl_host_destroy(b);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, R1_bad_fields_are_refused_by_name);
  tcase_add_test(tests, a_struct_without_its_size_is_refused_with_the_size_that_it_has);
  tcase_add_test(tests, R1_priority_is_that_of_the_kind_unless_given);
  tcase_add_test(tests, R2_a_duplicate_is_refused_and_the_first_stays);
  tcase_add_test(tests, an_unknown_op_is_answered_with_the_nearest);
  tcase_add_test(tests, an_op_declared_otherwise_is_refused_with_both_schemas);
  tcase_add_test(tests, a_builtin_op_declared_otherwise_is_refused_with_both_schemas);
  tcase_add_test(tests, all_builtin_ops_are_in_a_snapshot_and_found_by_name);
  tcase_add_test(tests, threads_that_look_for_an_op_for_the_first_time_find_the_same);
  tcase_add_test(tests, R4_a_better_impl_registered_late_is_seen_by_the_next_call);
  tcase_add_test(tests, R5_a_snapshot_stays_as_it_was);
  tcase_add_test(tests, R6_availability_is_asked_once_a_generation_and_its_reason_kept);
  tcase_add_test(tests, R6_a_list_has_nothing_in_it_that_was_not_asked);
  tcase_add_test(tests, D6_withdrawing_inside_a_call_is_refused_and_an_unknown_plugin_named);
  tcase_add_test(tests, many_ops_are_found_by_name);
  tcase_add_test(tests, several_hosts_do_not_see_each_other);
}

int main(void) {
  return run_suite("registry", add_tests, 30);
}
