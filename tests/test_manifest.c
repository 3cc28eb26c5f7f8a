/* The manifest of calls: which implementations are listed, and what its digest depends on. */
#include "fixture.h"

#include "tests/scratch.h"
#include <flhost/vllm.h>
#include <sha2.h>

static fl_manifest *manifest_of(fl_host *host) {
  fl_manifest *manifest;
  ck_ok(fl_get_manifest(host, kDLCPU, &manifest));
  return manifest;
}

/* The digest, in one of four buffers in turn. */
static const char *digest_for(fl_host *host, int32_t device_type) {
  static char buffers[4][65];
  static int turn;
  char *digest = buffers[turn++ % 4];
  fl_manifest *manifest;
  ck_ok(fl_get_manifest(host, device_type, &manifest));
  ck_assert_ptr_nonnull(manifest->sha256);
  snprintf(digest, sizeof buffers[0], "%s", manifest->sha256);
  fl_manifest_free(manifest);
  return digest;
}

static const char *digest_of(fl_host *host) {
  return digest_for(host, kDLCPU);
}

static void load(fl_host *host, const char *plugin) {
  char name[64];
  snprintf(name, sizeof name, "tests/plugins/%s.so", plugin);
  ck_ok(fl_load_plugin(host, built(name)));
}

static fl_status kernel(void *self, fl_call *call) {
  (void)self;
  return fl_fail(call, FL_EINTERNAL, "must not run");
}

static bool no_odd_sizes(void *self, const fl_call *call, const char **reason) {
  (void)self;
  (void)call;
  *reason = "odd sizes only";
  return false;
}

static void add_op(fl_host *host, const char *schema) {
  fl_op_def op = {.size = sizeof op, .schema = schema};
  ck_ok(fl_register_op(host, &op));
}

/* With the fields given; the rest has its default. */
static void add_impl(fl_host *host, fl_impl impl) {
  impl.size = sizeof impl;
  if (!impl.devices)
    impl.devices = FL_DEVICE(kDLCPU);
  impl.fn = kernel;
  ck_ok(fl_register_impl(host, &impl));
}

/* "a b c " of the impl_ids of an op's rows, by place. */
static const char *ids_of(fl_host *host, const char *op) {
  static char ids[512];
  uint32_t place = 0;
  fl_manifest *manifest = manifest_of(host);
  *ids = 0;
  for (uint32_t i = 0; i < manifest->n_rows; i++)
    if (!strcmp(fl_manifest_row_at(manifest, i)->op, op)) {
      ck_assert_uint_eq(fl_manifest_row_at(manifest, i)->place, place++);
      snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s ", fl_manifest_row_at(manifest, i)->impl_id);
    }
  fl_manifest_free(manifest);
  return ids;
}

/* -------------------------------------------------------------------------------------------------------- its form */

static const char text[] = "flhost-manifest\t1\n"
                           "library\t" FLHOST_VERSION "\n"
                           "device\t1\n"
                           "policy\tprefer=vendor;st=0;deny=bolt;per=test_scale=vendor:good\n"
                           "setting\tVLLM_FL_PREFER_ENABLED\ttrue\n"
                           "setting\tUSE_FLAGGEMS\ttrue\n"
                           "setting\tflagos_blacklist\ta\tb\n"
                           "setting\tcustom_ops\tall\t+alpha\t-beta_with_a_long_name\t-gamma\n"
                           "setting\tenforced\talpha\tgamma\n"
                           "setting\tVLLM_FL_OOT_ENABLED\ttrue\n"
                           "setting\tVLLM_FL_OOT_WHITELIST\n"
                           "layer\tAcmeAttention\ttest_layer\tlayer_a\n"
                           "op\talpha\talpha(Tensor x) -> Tensor out\n"
                           "impl\t0\tvendor.acme\tvendor\tacme\tengine\t\tengine\n"
                           "impl\t1\tdefault.x\tflagos\t\tengine\t\tengine\n"
                           "op\tbeta_with_a_long_name\tbeta_with_a_long_name() -> str out\n"
                           "op\tgamma\tgamma() -> str out\n"
                           "impl\t0\treference.c\treference\t\tengine\t\tengine\n"
                           "op\ttest_scale\ttest_scale(Tensor x, float factor=2.0) -> Tensor out\n"
                           "impl\t0\tvendor.good\tvendor\tgood\tgood\t1.2.3\t00c0ffee\n";

START_TEST(text_has_the_form_that_the_header_describes) {
  static const char *const environment[] = {"VLLM_FL_PREFER=vendor",
                                            "VLLM_FL_DENY_VENDORS=bolt",
                                            "VLLM_FL_PER_OP=test_scale=vendor:good",
                                            "VLLM_FL_FLAGOS_BLACKLIST=b,a",
                                            "VLLM_FL_CUSTOM_OPS=-gamma,+alpha,-beta_with_a_long_name",
                                            "VLLM_FL_OOT_WHITELIST=,",
                                            NULL};
  char digest[65];
  fl_host *host = test_host(environment, 0);
  load(host, "layer_a");
  load(host, "good");
  add_op(host, "beta_with_a_long_name() -> str out");
  add_op(host, "gamma() -> str out");
  add_op(host, "alpha(Tensor x) -> Tensor out");
  add_impl(host, (fl_impl){.op_name = "alpha", .impl_id = "default.x", .kind = FL_KIND_DEFAULT});
  add_impl(host, (fl_impl){.op_name = "alpha",
                           .impl_id = "vendor.acme",
                           .kind = FL_KIND_VENDOR,
                           .vendor = "acme",
                           .supports_args = no_odd_sizes});
  add_impl(host,
           (fl_impl){
               .op_name = "beta_with_a_long_name", .impl_id = "vendor.bolt", .kind = FL_KIND_VENDOR, .vendor = "bolt"});
  add_impl(host, (fl_impl){.op_name = "gamma", .impl_id = "reference.c", .kind = FL_KIND_REFERENCE});
  ck_ok(fl_op_enforce_enable(fl_find_op(host, "gamma"), true));
  ck_ok(fl_op_enforce_enable(fl_find_op(host, "alpha"), true));
  fl_manifest *manifest = manifest_of(host);
  ck_assert_str_eq(manifest->library, FLHOST_VERSION);
  ck_assert_int_eq(manifest->device_type, kDLCPU);
  ck_assert_str_eq(manifest->policy, "prefer=vendor;st=0;deny=bolt;per=test_scale=vendor:good");
  ck_assert_str_eq(manifest->text, text);
  ck_assert_uint_eq(manifest->n_rows, 4);
  const fl_manifest_row *row = fl_manifest_row_at(manifest, 3);
  ck_assert_str_eq(row->op, "test_scale");
  ck_assert_str_eq(row->impl_id, "vendor.good");
  ck_assert_int_eq(row->kind, FL_KIND_VENDOR);
  ck_assert_str_eq(row->vendor, "good");
  ck_assert_str_eq(row->plugin, "good");
  ck_assert_str_eq(row->version, "1.2.3");
  ck_assert_str_eq(row->build_id, "00c0ffee");
  ck_assert_ptr_null(fl_manifest_row_at(manifest, 2)->vendor);
  ck_assert_uint_eq(manifest->n_without, 1);
  ck_assert_str_eq(manifest->without[0], "beta_with_a_long_name");
  ck_assert_str_eq(manifest->sha256, SHA256Data((const uint8_t *)manifest->text, strlen(manifest->text), digest));
  ck_assert_ptr_null(manifest->problem);
  fl_manifest_free(manifest);
  fl_host_destroy(host);
}
END_TEST

START_TEST(what_would_end_a_field_or_a_line_is_escaped) {
  static const char *const environment[] = {"VLLM_FL_FLAGOS_BLACKLIST=back\\slash,new\nline,ta\tb", NULL};
  fl_host *host = test_host(environment, 0);
  fl_manifest *manifest = manifest_of(host);
  ck_contains(manifest->text, "\nsetting\tflagos_blacklist\tback\\x5cslash\tnew\\x0aline\tta\\x09b\nsetting\t");
  fl_manifest_free(manifest);
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_unknown_device_type_is_an_error) {
  fl_host *host = test_host(NULL, 0);
  fl_manifest *manifest = NULL;
  ck_assert_int_eq(fl_get_manifest(host, 0, &manifest), FL_EINVAL);
  ck_assert_int_eq(fl_get_manifest(host, 20, &manifest), FL_EINVAL);
  ck_assert_str_eq(fl_error_message(), "fl_get_manifest: device type 20 is not known");
  ck_assert_ptr_null(manifest);
  fl_manifest_free(NULL);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- what is listed */

START_TEST(S3_rows_end_with_the_first_that_takes_all_calls) {
  fl_host *host = test_host(NULL, 0);
  add_op(host, "op(Tensor x) -> Tensor out");
  ck_assert_str_eq(ids_of(host, "op"), "");
  add_impl(host, (fl_impl){.op_name = "op", .impl_id = "reference.c", .kind = FL_KIND_REFERENCE});
  ck_assert_str_eq(ids_of(host, "op"), "reference.c ");
  add_impl(host, (fl_impl){.op_name = "op", .impl_id = "vendor.a", .kind = FL_KIND_VENDOR, .vendor = "a"});
  ck_assert_str_eq(ids_of(host, "op"), "vendor.a ");
  add_impl(host, (fl_impl){.op_name = "op",
                           .impl_id = "vendor.picky",
                           .kind = FL_KIND_VENDOR,
                           .vendor = "picky",
                           .supports_args = no_odd_sizes});
  ck_assert_str_eq(ids_of(host, "op"), "vendor.picky vendor.a ");
  add_impl(host, (fl_impl){.op_name = "op", .impl_id = "default.half", .kind = FL_KIND_DEFAULT, .dtypes = FL_FLOAT16});
  ck_assert_str_eq(ids_of(host, "op"), "default.half vendor.picky vendor.a ");
  add_impl(host, (fl_impl){.op_name = "op",
                           .impl_id = "default.card",
                           .kind = FL_KIND_DEFAULT,
                           .priority = 999,
                           .devices = FL_DEVICE(kDLCUDA)});
  ck_assert_str_eq(ids_of(host, "op"), "default.half vendor.picky vendor.a ");
  fl_host_destroy(host);
}
END_TEST

/* Where the op's rules let only these types through, one that declares them takes all calls. */
START_TEST(S3_a_row_that_declares_all_types_of_the_op_takes_all_calls) {
  fl_host *host = test_host(NULL, 0);
  fl_op_def op = {
      .size = sizeof op, .schema = "op(Tensor x) -> Tensor out", .rules = "T=float32|float16; x: T[n]; out: T[n]"};
  ck_ok(fl_register_op(host, &op));
  add_impl(host, (fl_impl){.op_name = "op", .impl_id = "reference.c", .kind = FL_KIND_REFERENCE});
  add_impl(host, (fl_impl){.op_name = "op",
                           .impl_id = "default.x",
                           .kind = FL_KIND_DEFAULT,
                           .dtypes = FL_FLOAT32 | FL_FLOAT16 | FL_BFLOAT16});
  ck_assert_str_eq(ids_of(host, "op"), "default.x ");
  fl_host_destroy(host);
}
END_TEST

START_TEST(rows_are_what_calls_of_a_frozen_host_run) {
  static test_impl flagos = {.id = "default.x", .unsupported = true}, vendor = {.id = "vendor.a"},
                   reference = {.id = "reference.c"};
  const char *ran;
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  test_register(host, "op", &reference, 0, false);
  test_register(host, "op", &vendor, 0, false);
  test_register(host, "op", &flagos, 0, true);
  ck_ok(fl_freeze(host, "capture"));
  ck_assert_str_eq(ids_of(host, "op"), "default.x vendor.a ");
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "vendor.a");
  vendor.status = FL_EDEVICE;
  ck_assert_int_eq(test_call(host, "op", NULL), FL_EDEVICE);
  ck_assert_str_eq(ids_of(host, "op"), "default.x vendor.a ");
  ck_ok(fl_thaw(host, "capture"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(F4_what_calls_skip_is_not_listed) {
  static test_impl flagos = {.id = "default.x", .status = FL_EDEVICE}, reference = {.id = "reference.c"};
  fl_scope strict;
  fl_host *host = test_host(NULL, 0);
  test_op(host, "op");
  test_register(host, "op", &flagos, 0, false);
  test_register(host, "op", &reference, 0, false);
  char before[65];
  snprintf(before, sizeof before, "%s", digest_of(host));
  ck_ok(test_call(host, "op", NULL));
  ck_assert_str_eq(ids_of(host, "op"), "reference.c ");
  ck_assert_str_ne(digest_of(host), before);
  ck_ok(fl_scope_strict(host, &strict)); /* strict calls do not look at it */
  ck_assert_str_eq(ids_of(host, "op"), "default.x ");
  ck_ok(fl_scope_leave(&strict));
  fl_clear_failed_impls(host, NULL);
  ck_assert_str_eq(digest_of(host), before);
  fl_host_destroy(host);
}
END_TEST

START_TEST(P5_it_is_of_the_threads_policy) {
  fl_scope scope;
  fl_host *host = test_host(NULL, 0);
  add_op(host, "op() -> str out");
  add_impl(host, (fl_impl){.op_name = "op", .impl_id = "default.x", .kind = FL_KIND_DEFAULT});
  add_impl(host, (fl_impl){.op_name = "op", .impl_id = "reference.c", .kind = FL_KIND_REFERENCE});
  ck_ok(fl_scope_prefer(host, "reference", &scope));
  ck_assert_str_eq(ids_of(host, "op"), "reference.c ");
  fl_manifest *manifest = manifest_of(host);
  ck_assert_str_eq(manifest->policy, "prefer=reference;st=0");
  fl_manifest_free(manifest);
  ck_ok(fl_scope_leave(&scope));
  ck_assert_str_eq(ids_of(host, "op"), "default.x ");
  fl_host_destroy(host);
}
END_TEST

START_TEST(an_op_by_its_parts_is_the_hosts) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=fused_add_rms_norm=unfused", NULL};
  fl_host *host = test_host(environment, 0);
  ck_ok(fl_load_plugin(host, built("plugins/cpu.so")));
  fl_manifest *manifest = manifest_of(host);
  ck_contains(manifest->text,
              "\nimpl\t0\treference.parts\treference\t\tflhost\t" FLHOST_VERSION "\t" FLHOST_VERSION "\n");
  fl_manifest_free(manifest);
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- digests */

START_TEST(the_order_of_loading_and_of_lists_does_not_matter) {
  static const char *const one[] = {"VLLM_FL_FLAGOS_BLACKLIST=a,b",     "VLLM_FL_DENY_VENDORS=x,y",
                                    "VLLM_FL_PER_OP=a=vendor;b=flagos", "VLLM_FL_CUSTOM_OPS=none,+a,+b",
                                    "VLLM_FL_OOT_BLACKLIST=a,b",        NULL},
                           *const two[] = {"VLLM_FL_OOT_BLACKLIST=b,a",        "VLLM_FL_CUSTOM_OPS=none,+b,+a",
                                           "VLLM_FL_PER_OP=b=flagos;a=vendor", "VLLM_FL_DENY_VENDORS=y,x",
                                           "VLLM_FL_FLAGOS_BLACKLIST=b,a",     NULL};
  static const char *const plugins[] = {"good", "two_vendors", "layer_a"};
  fl_host *host = test_host(one, 0), *other = test_host(two, 0);
  for (int i = 0; i < 3; i++) {
    load(host, plugins[i]);
    load(other, plugins[2 - i]);
  }
  ck_assert_str_eq(digest_of(host), digest_of(other));
  ck_ok(fl_freeze(host, "capture"));
  ck_ok(fl_warm_up(host, kDLCPU, NULL, NULL));
  ck_assert_str_eq(digest_of(host), digest_of(other));
  fl_host_destroy(host);
  fl_host_destroy(other);
}
END_TEST

/* One setting each that differs from what the others have. */
START_TEST(each_setting_that_selects_changes_the_digest) {
  static const char *const settings[] = {
      NULL,
      "VLLM_FL_PREFER=vendor",
      "VLLM_FL_STRICT=1",
      "VLLM_FL_PER_OP=test_scale=reference",
      "VLLM_FL_DENY_VENDORS=good",
      "VLLM_FL_ALLOW_VENDORS=good",
      "USE_FLAGGEMS=0",
      "VLLM_FL_PREFER_ENABLED=0",
      "VLLM_FL_FLAGOS_WHITELIST=test_scale",
      "VLLM_FL_FLAGOS_WHITELIST=,",
      "VLLM_FL_FLAGOS_BLACKLIST=test_scale",
      "VLLM_FL_CUSTOM_OPS=none",
      "VLLM_FL_CUSTOM_OPS=none,+test_scale",
      "VLLM_FL_CUSTOM_OPS=-test_scale",
      "VLLM_FL_OOT_ENABLED=0",
      "VLLM_FL_OOT_WHITELIST=RMSNorm",
      "VLLM_FL_OOT_BLACKLIST=RMSNorm",
  };
  enum { N = sizeof settings / sizeof *settings };
  char digests[N + 3][65];
  for (size_t i = 0; i < N + 3; i++) {
    const char *const environment[] = {i < N ? settings[i] : NULL, NULL};
    fl_host *host = test_host(environment, 0);
    load(host, "good");
    if (i == N)
      ck_ok(fl_op_enforce_enable(fl_find_op(host, "test_scale"), true));
    if (i == N + 2)
      load(host, "layer_a");
    snprintf(digests[i], sizeof digests[i], "%s", digest_for(host, i == N + 1 ? kDLCUDA : kDLCPU));
    for (size_t j = 0; j < i; j++)
      ck_assert_msg(strcmp(digests[i], digests[j]) != 0, "%zu and %zu have the same digest", j, i);
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(what_selects_nothing_leaves_the_digest) {
  static const char *const settings[] = {NULL, "VLLM_FL_LOG_LEVEL=ERROR", "VLLM_FL_DISPATCH_DEBUG=1",
                                         "VLLM_FL_CHECK=warn"};
  char first[65];
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    const char *const environment[] = {settings[i], NULL};
    fl_host *host = test_host(environment, i ? FL_HOST_STATISTICS | FL_HOST_NO_ARGUMENT_CHECKS : 0);
    load(host, "good");
    if (i)
      ck_assert_str_eq(digest_of(host), first);
    else
      snprintf(first, sizeof first, "%s", digest_of(host));
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(each_field_of_a_row_changes_the_digest) {
  static const struct {
    const char *schema;
    fl_impl impl;
  } cases[] = {
      {"op() -> str out", {.op_name = "op", .impl_id = "x", .kind = FL_KIND_DEFAULT}},
      {"op() -> int out", {.op_name = "op", .impl_id = "x", .kind = FL_KIND_DEFAULT}},
      {"po() -> str out", {.op_name = "po", .impl_id = "x", .kind = FL_KIND_DEFAULT}},
      {"op() -> str out", {.op_name = "op", .impl_id = "y", .kind = FL_KIND_DEFAULT}},
      {"op() -> str out", {.op_name = "op", .impl_id = "x", .kind = FL_KIND_REFERENCE}},
      {"op() -> str out", {.op_name = "op", .impl_id = "x", .kind = FL_KIND_VENDOR, .vendor = "a"}},
      {"op() -> str out", {.op_name = "op", .impl_id = "x", .kind = FL_KIND_VENDOR, .vendor = "b"}},
  };
  enum { N = sizeof cases / sizeof *cases };
  char digests[N][65];
  for (size_t i = 0; i < N; i++) {
    fl_host *host = test_host(NULL, 0);
    add_op(host, cases[i].schema);
    add_impl(host, cases[i].impl);
    snprintf(digests[i], sizeof digests[i], "%s", digest_of(host));
    for (size_t j = 0; j < i; j++)
      ck_assert_msg(strcmp(digests[i], digests[j]) != 0, "%zu and %zu have the same digest", j, i);
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(a_new_build_of_a_plugin_changes_the_digest) {
  fl_host *host = test_host(NULL, 0), *other = test_host(NULL, 0), *again = test_host(NULL, 0);
  load(host, "good");
  load(other, "good_rebuilt");
  load(again, "good");
  ck_assert_str_eq(digest_of(host), digest_of(again));
  ck_assert_str_ne(digest_of(host), digest_of(other));
  fl_host_destroy(host);
  fl_host_destroy(other);
  fl_host_destroy(again);
}
END_TEST

START_TEST(a_candidate_that_only_some_calls_reach_counts) {
  fl_host *host = test_host(NULL, 0);
  add_op(host, "op() -> str out");
  add_impl(host,
           (fl_impl){.op_name = "op", .impl_id = "default.x", .kind = FL_KIND_DEFAULT, .supports_args = no_odd_sizes});
  char before[65];
  snprintf(before, sizeof before, "%s", digest_of(host));
  add_impl(host, (fl_impl){.op_name = "op", .impl_id = "reference.c", .kind = FL_KIND_REFERENCE});
  ck_assert_str_ne(digest_of(host), before);
  fl_host_destroy(host);
}
END_TEST

START_TEST(without_a_build_id_there_is_no_digest) {
  static const char *const environment[] = {"VLLM_FL_PER_OP=test_scale=impl:other", NULL};
  fl_host *host = test_host(NULL, 0);
  load(host, "good_anonymous");
  fl_manifest *manifest = manifest_of(host);
  ck_assert_ptr_null(manifest->sha256);
  ck_assert_str_eq(manifest->problem, "plugin 'good' of 'vendor.good' has no build id: link it with -Wl,--build-id");
  ck_assert_uint_eq(manifest->n_rows, 2);
  ck_assert_str_eq(fl_manifest_row_at(manifest, 0)->build_id, "");
  ck_assert_str_eq(fl_manifest_row_at(manifest, 0)->version, "1.2.3");
  fl_manifest_free(manifest);
  fl_host_destroy(host);
  host = test_host(environment, 0); /* nothing of it can run */
  load(host, "good_anonymous");
  ck_assert_uint_eq(strlen(digest_of(host)), 64);
  fl_host_destroy(host);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_test(tests, text_has_the_form_that_the_header_describes);
  tcase_add_test(tests, what_would_end_a_field_or_a_line_is_escaped);
  tcase_add_test(tests, an_unknown_device_type_is_an_error);
  tcase_add_test(tests, S3_rows_end_with_the_first_that_takes_all_calls);
  tcase_add_test(tests, S3_a_row_that_declares_all_types_of_the_op_takes_all_calls);
  tcase_add_test(tests, rows_are_what_calls_of_a_frozen_host_run);
  tcase_add_test(tests, F4_what_calls_skip_is_not_listed);
  tcase_add_test(tests, P5_it_is_of_the_threads_policy);
  tcase_add_test(tests, an_op_by_its_parts_is_the_hosts);
  tcase_add_test(tests, the_order_of_loading_and_of_lists_does_not_matter);
  tcase_add_test(tests, each_setting_that_selects_changes_the_digest);
  tcase_add_test(tests, what_selects_nothing_leaves_the_digest);
  tcase_add_test(tests, each_field_of_a_row_changes_the_digest);
  tcase_add_test(tests, a_new_build_of_a_plugin_changes_the_digest);
  tcase_add_test(tests, a_candidate_that_only_some_calls_reach_counts);
  tcase_add_test(tests, without_a_build_id_there_is_no_digest);
}

int main(void) {
  return run_suite("manifest", add_tests, 20);
}
