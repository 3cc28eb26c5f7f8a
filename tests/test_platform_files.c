/*
 * The platform files that are installed (config): orders of single ops, held against what the plugins say of
 * themselves. An order that names a vendor for an op that its plugin lacks, or that `prefer` gives anyhow, would only
 * look like one.
 */
#include "core/plugins/loader.h"
#include "core/settings/policy.h"
#include "core/support.h"
#include "tests/fixture.h"

#include <limits.h>
#include <stdlib.h>

static const struct {
  const char *file, *plugin, *vendor;
  int least;         /* orders that put the vendor somewhere */
  const char *other; /* an op that the plugin lacks, ordered for the plugin of another vendor; NULL: none */
} platforms[] = {
    {"config/cuda.yaml", "cuda", "cuda", 7, "attention_backend"},
    {"config/rocm.yaml", "rocm", "rocm", 5, "attention_backend"},
    {"config/ascend.yaml", "ascend", "ascend", 15, NULL},
};
enum { N_PLATFORMS = sizeof platforms / sizeof *platforms };

static const char *built_plugins(void) {
  static char path[PATH_MAX + 16];
  char build[PATH_MAX];
  ck_assert_ptr_nonnull(realpath(build_dir(), build));
  snprintf(path, sizeof path, "%s/plugins", build);
  return path;
}

/* The ops in the plugin's note; the caller frees it. */
static char *ops_of_plugin(const char *plugin) {
  char path[PATH_MAX + 64];
  fl_note_info info;
  snprintf(path, sizeof path, "%s/%s.so", built_plugins(), plugin);
  ck_ok(fl_note_read(path, &info));
  ck_assert_msg(info.ops != NULL, "%s lists no ops", path);
  char *ops = fl_strdup(info.ops);
  fl_note_clear(&info);
  return ops;
}

static bool has_op(const char *ops, const char *op) {
  return fl_ops_list(ops, strlen(ops), op, strlen(op));
}

/* Does the token stand for implementations of a vendor? Of whose it may, and no other. */
static bool names_vendor(const char *token, const char *vendor) {
  char own[64];
  snprintf(own, sizeof own, "vendor:%s", vendor);
  ck_assert_msg(strncmp(token, "vendor:", 7) || !strcmp(token, own), "'%s' in the file of '%s'", token, vendor);
  snprintf(own, sizeof own, "impl:vendor.%s", vendor);
  return !strncmp(token, "vendor", 6) || !strncmp(token, own, strlen(own));
}

static bool any_names_vendor(const fl_op_order *order, const char *vendor) {
  bool named = false;
  for (uint32_t i = 0; i < order->n_tokens; i++)
    named |= names_vendor(order->tokens[i], vendor);
  return named;
}

START_TEST(orders_that_name_the_vendor_are_of_ops_that_its_plugin_has) {
  char *ops = ops_of_plugin(platforms[_i].plugin);
  const char *other = platforms[_i].other;
  fl_policy *policy;
  int named = 0;
  ck_ok(fl_policy_from_config(platforms[_i].file, &policy));
  const fl_policy_fields *fields = fl_policy_get_fields(policy);
  for (uint32_t i = 0; i < fields->n_per_op; i++) {
    const fl_op_order *order = &fields->per_op[i];
    bool is_other = other && !strcmp(order->op, other);
    if (!any_names_vendor(order, platforms[_i].vendor))
      continue;
    ck_assert_msg(has_op(ops, order->op) != is_other, "%s: %s: plugin '%s' %s", platforms[_i].file, order->op,
                  platforms[_i].plugin, is_other ? "has it, so it is no exception" : "has no such op");
    named += !is_other;
  }
  ck_assert_int_ge(named, platforms[_i].least);
  fl_policy_release(policy);
  free(ops);
}
END_TEST

/* The op's implementation of that id in a snapshot. */
static bool is_registered(const fl_snapshot *snapshot, const char *op, const char *impl_id) {
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++)
    for (uint32_t j = 0; !strcmp(fl_snapshot_op_name(snapshot, i), op) && j < fl_snapshot_impl_count(snapshot, i); j++)
      if (!strcmp(fl_snapshot_impl(snapshot, i, j)->impl_id, impl_id))
        return true;
  return false;
}

START_TEST(a_host_knows_all_that_the_orders_name) {
  char path[PATH_MAX + 64], file[64];
  snprintf(path, sizeof path, "VLLM_FL_PLUGIN_PATH=%s", built_plugins());
  snprintf(file, sizeof file, "VLLM_FL_CONFIG=%s", platforms[_i].file);
  const char *const environment[] = {path, file, "VLLM_FL_PLATFORM=cpu", NULL};
  const fl_host_options options = {
      .size = sizeof options, .environment = environment, .log = test_log_capture, .log_user = &test_log};
  fl_host *host;
  ck_ok(fl_host_create(&options, &host));
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  fl_policy *policy = fl_get_policy(host);
  const fl_policy_fields *fields = fl_policy_get_fields(policy);
  ck_assert_uint_gt(fields->n_per_op, 0);
  for (uint32_t i = 0; i < fields->n_per_op; i++)
    for (uint32_t j = 0; j < fields->per_op[i].n_tokens; j++) {
      const char *op = fields->per_op[i].op, *token = fields->per_op[i].tokens[j];
      ck_assert_msg(strncmp(token, "impl:", 5) || is_registered(snapshot, op, token + 5), "%s: %s: no %s",
                    platforms[_i].file, op, token);
    }
  ck_assert_msg(!strstr(test_log.text, "WARNING"), "%s", test_log.text); /* an op that is not registered */
  fl_policy_release(policy);
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

START_TEST(orders_differ_from_the_one_that_prefer_gives) {
  fl_policy *policy, *preference;
  ck_ok(fl_policy_from_config(platforms[_i].file, &policy));
  const fl_policy_fields *fields = fl_policy_get_fields(policy);
  const fl_policy_fields only = {.size = sizeof only, .prefer = fields->prefer};
  ck_ok(fl_policy_create(&only, &preference));
  for (uint32_t i = 0; i < fields->n_per_op; i++) {
    const fl_op_order *order = &fields->per_op[i];
    uint32_t n;
    bool is_own, differs;
    const char *const *given = fl_policy_order(preference, order->op, &n, &is_own);
    differs = n != order->n_tokens;
    for (uint32_t j = 0; j < n && !differs; j++)
      differs = strcmp(given[j], order->tokens[j]) != 0;
    ck_assert_msg(differs, "%s: the order of %s is that of `prefer`", platforms[_i].file, order->op);
  }
  fl_policy_release(preference);
  fl_policy_release(policy);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_loop_test(tests, orders_that_name_the_vendor_are_of_ops_that_its_plugin_has, 0, N_PLATFORMS);
  tcase_add_loop_test(tests, a_host_knows_all_that_the_orders_name, 0, N_PLATFORMS);
  tcase_add_loop_test(tests, orders_differ_from_the_one_that_prefer_gives, 0, N_PLATFORMS);
}

int main(void) {
  return run_suite("platform_files", add_tests, 30);
}
