/* Policies: tokens (T), fields and orders (P1-P4), derived policies (the value part of P5). */
#include "core/settings/policy.h"
#include "tests/suite.h"

#define LIST(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)

static fl_policy *make(fl_policy_fields fields) {
  fl_policy *policy = NULL;
  fields.size = sizeof fields;
  ck_assert_msg(!fl_policy_create(&fields, &policy), "%s", fl_error_message());
  return policy;
}

static void refuse(fl_policy_fields fields, const char *part) {
  fl_policy *policy = NULL;
  fields.size = sizeof fields;
  ck_assert_int_eq(fl_policy_create(&fields, &policy), FL_EINVAL);
  ck_assert_ptr_null(policy);
  ck_assert_msg(strstr(fl_error_message(), part), "'%s' not in '%s'", part, fl_error_message());
}

static void expect_order(const fl_policy *policy, const char *op, const char *joined, bool own) {
  uint32_t n;
  bool per_op;
  char text[256] = "";
  const char *const *order = fl_policy_order(policy, op, &n, &per_op);
  for (uint32_t i = 0; i < n; i++) {
    strcat(text, i ? " " : "");
    strcat(text, order[i]);
  }
  ck_assert_str_eq(text, joined);
  ck_assert_int_eq(per_op, own);
}

START_TEST(T1_tokens_match_kind_vendor_and_id) {
  static const struct {
    const char *token;
    fl_kind kind;
    const char *vendor, *id;
    bool matches;
  } rows[] = {
      {"flagos", FL_KIND_DEFAULT, NULL, "default.flagos", true},
      {"flagos", FL_KIND_VENDOR, "flagos", "vendor.flagos", false},
      {"vendor", FL_KIND_VENDOR, "cuda", "vendor.cuda", true},
      {"vendor", FL_KIND_DEFAULT, "cuda", "default.cuda", false},
      {"vendor:cuda", FL_KIND_VENDOR, "cuda", "x", true},
      {"vendor:cuda", FL_KIND_VENDOR, "cuda2", "vendor.cuda", false},
      {"vendor:cuda", FL_KIND_DEFAULT, "cuda", "vendor.cuda", false},
      {"vendor:a:b", FL_KIND_VENDOR, "a:b", "x", true},
      {"vendor:", FL_KIND_VENDOR, "", "x", false},
      {"vendor:Cuda", FL_KIND_VENDOR, "cuda", "x", false},
      {"reference", FL_KIND_REFERENCE, NULL, "reference.c", true},
      {"Reference", FL_KIND_REFERENCE, NULL, "reference.c", false},
      {"impl:reference.c", FL_KIND_REFERENCE, NULL, "reference.c", true},
      {"impl:default.flagos", FL_KIND_DEFAULT, NULL, "default.flagos", true},
      {"impl:default", FL_KIND_DEFAULT, NULL, "default.flagos", false},
      {"impl:", FL_KIND_DEFAULT, NULL, "", false},
      {"vendor", FL_KIND_VENDOR, NULL, "vendor.x", true},
      {"vendor:x", FL_KIND_VENDOR, NULL, "vendor.x", false},
      {"", FL_KIND_DEFAULT, NULL, "default.flagos", false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    ck_assert_msg(fl_token_matches(rows[i].token, rows[i].kind, rows[i].vendor, rows[i].id) == rows[i].matches, "%s %s",
                  rows[i].token, rows[i].id);
  ck_assert_str_eq(fl_kind_name(FL_KIND_DEFAULT), "flagos");
  ck_assert_str_eq(fl_kind_name(FL_KIND_VENDOR), "vendor");
  ck_assert_str_eq(fl_kind_name(FL_KIND_REFERENCE), "reference");
}
END_TEST

START_TEST(T2_what_is_no_token_has_a_nearest_one) {
  static const struct {
    const char *token, *nearest; /* "" valid, NULL: nothing near */
  } rows[] = {
      {"flagos", ""},
      {"vendor", ""},
      {"reference", ""},
      {"vendor:cuda", ""},
      {"vendor:a:b", ""},
      {"impl:default.flagos", ""},
      {"vendro", "vendor"},
      {"Vendor", "vendor"},
      {" vendor", "vendor"},
      {"refrence", "reference"},
      {"flagso", "flagos"},
      {"flaggems", "flagos"},
      {"default", "flagos"},
      {"vendor:", "vendor:NAME"},
      {"vendor : cuda", "vendor:cuda"},
      {"vendor: cuda", "vendor:cuda"},
      {" vendor:cuda", "vendor:cuda"},
      {" impl :default.flagos\t", "impl:default.flagos"},
      {"vendor: cuda flagos", "vendor:NAME"},
      {"vender: cuda", "vendor:NAME"},
      {"vendor: ", "vendor:NAME"},
      {"vender:cuda", "vendor:NAME"},
      {"vendor:cuda,flagos", "vendor:NAME"},
      {"impl:", "impl:ID"},
      {"imp:x", "impl:ID"},
      {"flagos:cuda", "flagos"},
      {"", NULL},
      {"xyzzy", NULL},
      {"x:y", NULL},
      {"a very long word that is no token at all", NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char room[FL_TOKEN_ROOM];
    bool valid = fl_token_valid(rows[i].token);
    ck_assert_msg(valid == (rows[i].nearest && !*rows[i].nearest), "'%s'", rows[i].token);
    if (valid)
      continue;
    const char *nearest = fl_token_nearest(rows[i].token, room);
    if (!rows[i].nearest)
      ck_assert_msg(!nearest, "'%s' gave %s", rows[i].token, nearest);
    else
      ck_assert_msg(nearest && !strcmp(nearest, rows[i].nearest), "'%s' gave %s", rows[i].token,
                    nearest ? nearest : "nothing");
  }
}
END_TEST

START_TEST(T2_an_unknown_token_is_refused_with_op_and_nearest) {
  fl_op_order order = {"rms_norm", LIST("flagos", "vendro")};
  refuse((fl_policy_fields){.per_op = &order, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)},
         "op 'rms_norm': 'vendro' is not a token, expected flagos, vendor, vendor:NAME, reference, native, unfused or "
         "impl:ID; did you mean "
         "'vendor'?");
}
END_TEST

START_TEST(P1_defaults) {
  fl_policy *policy = make((fl_policy_fields){0});
  const fl_policy_fields *fields = fl_policy_get_fields(policy);
  ck_assert_str_eq(fields->prefer, "flagos");
  ck_assert(!fields->strict);
  ck_assert(!fields->preserve_inputs);
  ck_assert(!fields->host_fallback);
  ck_assert_uint_eq(fields->n_per_op, 0);
  ck_assert_uint_eq(fields->n_deny_vendors, 0);
  ck_assert_ptr_null(fields->allow_vendors);
  ck_assert_str_eq(fl_policy_fingerprint(policy), "prefer=flagos;st=0");
  fl_policy_release(policy);
}
END_TEST

START_TEST(P1_fields_are_copied_and_sorted) {
  char vendor[] = "cuda";
  fl_op_order orders[] = {{"b", LIST("vendor", "flagos")}, {"a", LIST("reference")}};
  fl_policy *policy = make((fl_policy_fields){.prefer = "vendor",
                                              .strict = true,
                                              .per_op = orders,
                                              .n_per_op = 2,
                                              .per_op_size = sizeof(fl_op_order),
                                              .deny_vendors = (const char *const[]){"z", "a", "z"},
                                              .n_deny_vendors = 3,
                                              .allow_vendors = (const char *const[]){vendor, "ascend"},
                                              .n_allow_vendors = 2});
  strcpy(vendor, "gone");
  orders[0].op = "gone";
  ck_assert_str_eq(fl_policy_fingerprint(policy),
                   "prefer=vendor;st=1;allow=ascend,cuda;deny=a,z;per=a=reference;b=vendor|flagos");
  ck_assert_uint_eq(fl_policy_get_fields(policy)->n_deny_vendors, 2);
  fl_policy_release(policy);
}
END_TEST

START_TEST(P1_an_empty_allow_set_means_no_vendor) {
  fl_policy *none = make((fl_policy_fields){.allow_vendors = (const char *const[]){NULL}, .n_allow_vendors = 0});
  fl_policy *all = make((fl_policy_fields){0});
  ck_assert(!fl_policy_vendor_allowed(none, "cuda"));
  ck_assert(fl_policy_vendor_allowed(all, "cuda"));
  ck_assert(!fl_policy_equal(none, all));
  fl_policy_release(none);
  fl_policy_release(all);
}
END_TEST

START_TEST(P1_equal_fields_make_equal_policies) {
  fl_op_order one[] = {{"a", LIST("vendor")}, {"b", LIST("flagos")}};
  fl_op_order two[] = {{"b", LIST("flagos")}, {"a", LIST("reference")}, {"a", LIST("vendor")}};
  fl_policy *a = make((fl_policy_fields){
      .per_op = one, .n_per_op = 2, .per_op_size = sizeof(fl_op_order), .deny_vendors = LIST("x", "y")});
  fl_policy *b = make((fl_policy_fields){
      .per_op = two, .n_per_op = 3, .per_op_size = sizeof(fl_op_order), .deny_vendors = LIST("y", "x", "x")});
  ck_assert(fl_policy_equal(a, b));
  ck_assert_uint_eq(a->hash, b->hash);
  ck_assert(fl_policy_equal(a, a));
  ck_assert(!fl_policy_equal(a, NULL));
  fl_policy_release(b);
  const fl_policy_fields others[] = {
      {.per_op = one, .n_per_op = 2, .per_op_size = sizeof(fl_op_order), .deny_vendors = LIST("x")},
      {.per_op = one, .n_per_op = 1, .per_op_size = sizeof(fl_op_order), .deny_vendors = LIST("x", "y")},
      {.per_op = one,
       .n_per_op = 2,
       .per_op_size = sizeof(fl_op_order),
       .deny_vendors = LIST("x", "y"),
       .allow_vendors = LIST("x", "y")},
      {.per_op = one,
       .n_per_op = 2,
       .per_op_size = sizeof(fl_op_order),
       .deny_vendors = LIST("x", "y"),
       .strict = true},
      {.per_op = one,
       .n_per_op = 2,
       .per_op_size = sizeof(fl_op_order),
       .deny_vendors = LIST("x", "y"),
       .preserve_inputs = true},
      {.per_op = one,
       .n_per_op = 2,
       .per_op_size = sizeof(fl_op_order),
       .deny_vendors = LIST("x", "y"),
       .host_fallback = true},
      {.per_op = one,
       .n_per_op = 2,
       .per_op_size = sizeof(fl_op_order),
       .deny_vendors = LIST("x", "y"),
       .prefer = "vendor"},
      {.per_op = one,
       .n_per_op = 2,
       .per_op_size = sizeof(fl_op_order),
       .deny_vendors = LIST("x,y")}, /* the same fingerprint */
  };
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    fl_policy *other = make(others[i]);
    ck_assert_msg(!fl_policy_equal(a, other), "%zu", i);
    fl_policy_release(other);
  }
  fl_policy_release(a);
}
END_TEST

START_TEST(P1_prefer_in_any_case_and_nothing_else) {
  fl_policy *policy = make((fl_policy_fields){.prefer = "Vendor"});
  ck_assert_str_eq(fl_policy_get_fields(policy)->prefer, "vendor");
  fl_policy_release(policy);
  refuse((fl_policy_fields){.prefer = "vendro"},
         "Invalid prefer value: 'vendro'. Must be one of: flagos, reference, vendor; did you mean 'vendor'?");
  refuse((fl_policy_fields){.prefer = " vendor"}, "Invalid prefer value: ' vendor'");
  refuse((fl_policy_fields){.prefer = ""}, "Invalid prefer value: ''. Must be one of: flagos, reference, vendor");
}
END_TEST

START_TEST(P1_missing_arrays_are_refused) {
  refuse((fl_policy_fields){.n_deny_vendors = 1}, "deny_vendors is NULL but has 1 entries");
  refuse((fl_policy_fields){.n_allow_vendors = 2}, "allow_vendors is NULL but has 2 entries");
  refuse((fl_policy_fields){.deny_vendors = (const char *const[]){NULL}, .n_deny_vendors = 1},
         "deny_vendors[0] is NULL");
  refuse((fl_policy_fields){.n_per_op = 1, .per_op_size = sizeof(fl_op_order)}, "per_op is NULL");
  refuse((fl_policy_fields){.per_op = &(fl_op_order){0}, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)},
         "per_op[0].op is NULL");
  refuse((fl_policy_fields){.per_op = &(fl_op_order){"a", NULL, 1}, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)},
         "per_op tokens is NULL");
  fl_policy *policy = NULL;
  ck_assert_int_eq(fl_policy_create(NULL, &policy), FL_EINVAL);
  ck_assert_int_eq(fl_policy_create(&(fl_policy_fields){0}, &policy), FL_EINVAL);
  ck_assert_ptr_nonnull(strstr(fl_error_message(), "sizeof(fl_policy_fields)"));
}
END_TEST

/* They would match nothing, and nobody would hear of it. */
START_TEST(P1_names_that_nothing_can_have_are_refused) {
  fl_policy *plain = make((fl_policy_fields){0}), *derived = NULL;
  fl_op_order nameless = {"", LIST("vendor")}, blank = {" ", LIST("vendor")}, wide = {"rms_norm ", LIST("vendor")};
  refuse((fl_policy_fields){.per_op = &nameless, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)},
         "the op of per_op[0] is '', expected a name");
  refuse((fl_policy_fields){.per_op = &blank, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)},
         "the op of per_op[0] is ' ', expected a name");
  refuse((fl_policy_fields){.per_op = &wide, .n_per_op = 1, .per_op_size = sizeof(fl_op_order)},
         "the op of per_op[0] is 'rms_norm ', expected a name without white space around it: 'rms_norm'");
  refuse((fl_policy_fields){.deny_vendors = LIST("cuda", " acme")},
         "deny_vendors[1] is ' acme', expected a name without white space around it: 'acme'");
  refuse((fl_policy_fields){.allow_vendors = LIST("")}, "allow_vendors[0] is '', expected a name");
  ck_assert_int_eq(fl_policy_with_allowed_vendors(plain, LIST("a\t"), &derived), FL_EINVAL);
  ck_assert_int_eq(fl_policy_with_denied_vendors(plain, LIST("a", ""), &derived), FL_EINVAL);
  ck_assert_int_eq(fl_policy_with_op_order(plain, "", LIST("vendor"), &derived), FL_EINVAL);
  ck_assert_ptr_null(derived);
  fl_policy_release(plain);
}
END_TEST

/* What a caller with an older, shorter header passes: the rest reads as zero, whatever lies behind it. */
START_TEST(P1_fields_beyond_the_callers_size_read_as_zero) {
  fl_policy *policy = NULL;
  fl_policy_fields fields = {.size = offsetof(fl_policy_fields, per_op),
                             .prefer = "vendor",
                             .strict = true,
                             .n_per_op = 9,
                             .per_op_size = sizeof(fl_op_order)};
  ck_assert_int_eq(fl_policy_create(&fields, &policy), FL_OK);
  ck_assert_str_eq(fl_policy_fingerprint(policy), "prefer=vendor;st=1");
  fl_policy_release(policy);
}
END_TEST

START_TEST(P2_default_orders) {
  static const char *const rows[][2] = {{"flagos", "flagos vendor reference"},
                                        {"vendor", "vendor flagos reference"},
                                        {"reference", "reference flagos vendor"}};
  for (size_t i = 0; i < 3; i++) {
    fl_policy *policy = make((fl_policy_fields){.prefer = rows[i][0]});
    expect_order(policy, "rms_norm", rows[i][1], false);
    fl_policy_release(policy);
  }
}
END_TEST

START_TEST(P3_a_per_op_order_replaces_the_default_one) {
  fl_op_order orders[] = {{"rms_norm", LIST("reference")}, {"empty", NULL, 0}, {"a", LIST("vendor:x", "impl:y")}};
  fl_policy *policy =
      make((fl_policy_fields){.prefer = "vendor", .per_op = orders, .n_per_op = 3, .per_op_size = sizeof(fl_op_order)});
  expect_order(policy, "rms_norm", "reference", true);
  expect_order(policy, "a", "vendor:x impl:y", true);
  expect_order(policy, "empty", "vendor flagos reference", false);
  expect_order(policy, "RMS_NORM", "vendor flagos reference", false);
  fl_policy_release(policy);
}
END_TEST

START_TEST(P3_an_empty_order_counts_as_none) {
  fl_op_order orders[] = {{"a", LIST("vendor")}, {"b", LIST("vendor")}, {"a", NULL, 0}};
  fl_policy *policy = make((fl_policy_fields){.per_op = orders, .n_per_op = 3, .per_op_size = sizeof(fl_op_order)});
  expect_order(policy, "a", "flagos vendor reference", false);
  ck_assert_str_eq(fl_policy_fingerprint(policy), "prefer=flagos;st=0;per=b=vendor");
  fl_policy_release(policy);
}
END_TEST

START_TEST(P3_the_last_order_of_an_op_wins) {
  fl_op_order orders[] = {{"a", LIST("vendor")}, {"b", LIST("flagos")}, {"a", LIST("reference")}};
  fl_policy *policy = make((fl_policy_fields){.per_op = orders, .n_per_op = 3, .per_op_size = sizeof(fl_op_order)});
  expect_order(policy, "a", "reference", true);
  ck_assert_uint_eq(fl_policy_get_fields(policy)->n_per_op, 2);
  fl_policy_release(policy);
}
END_TEST

START_TEST(P4_deny_wins_over_allow) {
  fl_policy *policy = make((fl_policy_fields){.deny_vendors = LIST("b"), .allow_vendors = LIST("a", "b")});
  ck_assert(fl_policy_vendor_allowed(policy, "a"));
  ck_assert(!fl_policy_vendor_allowed(policy, "b"));
  ck_assert(!fl_policy_vendor_allowed(policy, "c"));
  ck_assert(!fl_policy_vendor_allowed(policy, "A"));
  fl_policy_release(policy);
}
END_TEST

START_TEST(P5_derived_policies_change_one_field) {
  fl_op_order order = {"a", LIST("vendor")};
  fl_policy *base = make((fl_policy_fields){.per_op = &order,
                                            .n_per_op = 1,
                                            .per_op_size = sizeof(fl_op_order),
                                            .deny_vendors = LIST("d"),
                                            .allow_vendors = LIST("e"),
                                            .preserve_inputs = true,
                                            .host_fallback = true});
  fl_policy *derived;
  ck_assert_int_eq(fl_policy_with_strict(base, true, &derived), FL_OK);
  ck_assert_str_eq(fl_policy_fingerprint(derived), "prefer=flagos;st=1;allow=e;deny=d;per=a=vendor;preserve=1;host=1");
  fl_policy_release(derived);
  ck_assert_int_eq(fl_policy_with_preference(base, "REFERENCE", &derived), FL_OK);
  ck_assert_str_eq(fl_policy_fingerprint(derived),
                   "prefer=reference;st=0;allow=e;deny=d;per=a=vendor;preserve=1;host=1");
  fl_policy_release(derived);
  ck_assert_int_eq(fl_policy_with_allowed_vendors(base, LIST("g", "f"), &derived), FL_OK);
  ck_assert_str_eq(fl_policy_fingerprint(derived),
                   "prefer=flagos;st=0;allow=f,g;deny=d;per=a=vendor;preserve=1;host=1");
  fl_policy_release(derived);
  ck_assert_int_eq(fl_policy_with_allowed_vendors(base, NULL, 0, &derived), FL_OK);
  ck_assert(fl_policy_vendor_allowed(derived, "anyone"));
  fl_policy_release(derived);
  ck_assert_int_eq(fl_policy_with_denied_vendors(base, LIST("c"), &derived), FL_OK);
  ck_assert_str_eq(fl_policy_fingerprint(derived),
                   "prefer=flagos;st=0;allow=e;deny=c,d;per=a=vendor;preserve=1;host=1");
  fl_policy_release(derived);
  ck_assert_str_eq(fl_policy_fingerprint(base), "prefer=flagos;st=0;allow=e;deny=d;per=a=vendor;preserve=1;host=1");
  derived = NULL;
  ck_assert_int_eq(fl_policy_with_preference(base, "bogus", &derived), FL_EINVAL);
  ck_assert_int_eq(fl_policy_with_preference(base, NULL, &derived), FL_EINVAL);
  ck_assert_int_eq(fl_policy_with_denied_vendors(base, NULL, 1, &derived), FL_EINVAL);
  ck_assert_ptr_null(derived);
  fl_policy_release(base);
}
END_TEST

START_TEST(policies_are_counted) {
  fl_policy *policy = make((fl_policy_fields){0});
  ck_assert_ptr_eq(fl_policy_retain(policy), policy);
  fl_policy_release(policy);
  ck_assert_str_eq(fl_policy_fingerprint(policy), "prefer=flagos;st=0");
  fl_policy_release(policy);
  ck_assert_ptr_null(fl_policy_retain(NULL));
  fl_policy_release(NULL);
}
END_TEST

/* With VLLM_FL_CHECK=warn an unknown token stays, and matches nothing. */
START_TEST(T2_unchecked_policies_keep_unknown_tokens) {
  fl_policy *policy;
  fl_op_order order = {"a", LIST("bogus", "flagos")};
  ck_assert_int_eq(fl_policy_create_unchecked(&(fl_policy_fields){.size = sizeof(fl_policy_fields),
                                                                  .per_op = &order,
                                                                  .n_per_op = 1,
                                                                  .per_op_size = sizeof(fl_op_order)},
                                              &policy),
                   FL_OK);
  expect_order(policy, "a", "bogus flagos", true);
  fl_policy_release(policy);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, T1_tokens_match_kind_vendor_and_id);
  tcase_add_test(tests, T2_what_is_no_token_has_a_nearest_one);
  tcase_add_test(tests, T2_an_unknown_token_is_refused_with_op_and_nearest);
  tcase_add_test(tests, T2_unchecked_policies_keep_unknown_tokens);
  tcase_add_test(tests, P1_defaults);
  tcase_add_test(tests, P1_fields_are_copied_and_sorted);
  tcase_add_test(tests, P1_an_empty_allow_set_means_no_vendor);
  tcase_add_test(tests, P1_equal_fields_make_equal_policies);
  tcase_add_test(tests, P1_prefer_in_any_case_and_nothing_else);
  tcase_add_test(tests, P1_missing_arrays_are_refused);
  tcase_add_test(tests, P1_names_that_nothing_can_have_are_refused);
  tcase_add_test(tests, P1_fields_beyond_the_callers_size_read_as_zero);
  tcase_add_test(tests, P2_default_orders);
  tcase_add_test(tests, P3_a_per_op_order_replaces_the_default_one);
  tcase_add_test(tests, P3_an_empty_order_counts_as_none);
  tcase_add_test(tests, P3_the_last_order_of_an_op_wins);
  tcase_add_test(tests, P4_deny_wins_over_allow);
  tcase_add_test(tests, P5_derived_policies_change_one_field);
  tcase_add_test(tests, policies_are_counted);
}

int main(void) {
  return run_suite("policy", add_tests, 10);
}
