/* vLLM's CustomOp rules: the custom_ops list, what overrides it, names of dispatch, layers that ops replace. */
#include "fixture.h"

#include "core/ops.h"
#include "core/registry.h"
#include "tests/scratch.h"

#include <flhost/vllm.h>

/* --------------------------------------------------------------------------------------------------------- the list */

/* Host with a flagos and a reference implementation of the four ops that vLLM's test looks at, by shorter names. */
static const char *const columns[] = {"norm", "silu", "gate", "relu3"};
static test_impl flagos = {.id = "default.x"}, reference = {.id = "reference.x"};

static fl_host *host_with_list(const char *list) {
  char variable[128];
  const char *const environment[] = {variable, NULL};
  snprintf(variable, sizeof variable, "VLLM_FL_CUSTOM_OPS=%s", list);
  fl_host *host = test_host(environment, 0);
  for (int i = 0; i < 4; i++) {
    test_op(host, columns[i]);
    test_register(host, columns[i], &flagos, 0, false);
    test_register(host, columns[i], &reference, 0, false);
  }
  return host;
}

/* Does the op run what the policy chooses? */
static bool is_enabled(fl_host *host, const char *op) {
  const char *ran;
  ck_ok(test_call(host, op, &ran));
  return !strcmp(ran, "default.x");
}

/* The vectors of vLLM's test_enabled_ops, without the compiler's modes (here the base mode is `all` when none is
 * given). relu2 has no implementation in this host: naming it changes nothing. */
START_TEST(custom_ops_enable_what_vllm_enables) {
  static const struct {
    const char *list, *enabled;
  } cases[] = {{"all", "1111"},
               {"none", "0000"},
               {"+norm,-silu", "1011"},
               {"none,-norm,+relu3", "0001"},
               {"all,-silu", "1011"},
               {"-relu3,+relu2", "1110"},
               {"none,-relu3,+norm,+silu", "1100"},
               {"-norm", "0111"},
               {"none,+relu3", "0001"},
               {"all,-norm", "0111"},
               {"+norm,+norm", "1111"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_host *host = host_with_list(cases[i].list);
    uint32_t enabled = 0, disabled = 0, expected = 0;
    for (int j = 0; j < 4; j++) {
      ck_assert_msg(is_enabled(host, columns[j]) == (cases[i].enabled[j] == '1'), "%s: %s", cases[i].list, columns[j]);
      expected += cases[i].enabled[j] == '1';
    }
    fl_custom_op_counts(host, &enabled, &disabled);
    ck_assert_uint_eq(enabled, expected);
    ck_assert_uint_eq(disabled, 4 - expected);
    fl_host_destroy(host);
  }
}
END_TEST

START_TEST(disabled_op_without_reference_runs_its_vendors) {
  test_impl vendor = {.id = "vendor.x"};
  fl_host *host = host_with_list("none");
  const char *ran;
  test_op(host, "op");
  test_register(host, "op", &flagos, 0, false);
  test_register(host, "op", &vendor, 0, false);
  ck_ok(test_call(host, "op", &ran));
  ck_assert_str_eq(ran, "vendor.x");
  fl_host_destroy(host);
}
END_TEST

START_TEST(enforced_op_is_enabled_in_its_host_only) {
  fl_host *host = host_with_list("none"), *other = host_with_list("none");
  fl_explanation *explanation;
  uint32_t enabled, disabled;
  ck_assert(!is_enabled(host, "silu"));
  ck_ok(fl_op_enforce_enable(fl_find_op(host, "silu"), true));
  ck_assert(is_enabled(host, "silu"));
  ck_assert(!is_enabled(host, "gate"));
  ck_assert(!is_enabled(other, "silu"));
  fl_custom_op_counts(host, &enabled, &disabled);
  ck_assert_uint_eq(enabled, 1);
  ck_assert_uint_eq(disabled, 3);
  ck_ok(fl_reset_global_policy(host)); /* settings that are read again leave it */
  ck_assert(is_enabled(host, "silu"));
  ck_ok(fl_op_enforce_enable(fl_find_op(host, "silu"), false));
  ck_assert(!is_enabled(host, "silu"));
  ck_ok(fl_explain(host, "silu", kDLCPU, &explanation));
  ck_assert_str_eq(explanation->order_origin, "custom_ops: VLLM_FL_CUSTOM_OPS");
  fl_explanation_free(explanation);
  ck_assert_int_eq(fl_op_enforce_enable(NULL, true), FL_ENOENT);
  fl_host_destroy(host);
  fl_host_destroy(other);
}
END_TEST

/* Dispatch that is off is more than an op that is off. */
START_TEST(enforcing_does_not_switch_dispatch_on) {
  static const char *const environment[] = {"VLLM_FL_PREFER_ENABLED=false", NULL};
  fl_host *host = test_host(environment, 0);
  test_op(host, "silu");
  test_register(host, "silu", &flagos, 0, false);
  test_register(host, "silu", &reference, 0, false);
  ck_ok(fl_op_enforce_enable(fl_find_op(host, "silu"), true));
  ck_assert(!is_enabled(host, "silu"));
  fl_host_destroy(host);
}
END_TEST

/* A host that loads its plugins from a directory with one that is in order and, if `broken`, one that is none. */
static fl_status create_host(const char *const *environment, bool broken, fl_host **host) {
  fl_host_options options = {.size = sizeof options,
                             .environment = environment,
                             .config_dir = "/nonexistent",
                             .plugin_path = scratch,
                             .log = test_log_capture,
                             .log_user = &test_log};
  copy_to_scratch(built("tests/plugins/good.so"), "good.so");
  if (broken)
    write_text("broken.so", "no plugin");
  test_log_clear();
  return fl_host_create(&options, host);
}

START_TEST(C1_unknown_custom_op_is_an_error_once_plugins_are_loaded) {
  static const char *const environment[] = {"VLLM_FL_CUSTOM_OPS=+test_scale,-tset_scale,+zzz", NULL};
  fl_host *host = NULL;
  scratch_make();
  ck_assert_int_eq(create_host(environment, false, &host), FL_ECONFIG);
  ck_assert_str_eq(fl_error_message(),
                   "VLLM_FL_CUSTOM_OPS: custom_ops: '+zzz' has no effect: no op 'zzz' is registered\n"
                   "VLLM_FL_CUSTOM_OPS: custom_ops: '-tset_scale' has no effect: no op 'tset_scale' is registered; did "
                   "you mean 'test_scale'?");
  scratch_remove();
}
END_TEST

START_TEST(C1_unknown_custom_op_is_a_warning_where_it_may_still_come) {
  static const char *const strict[] = {"VLLM_FL_CUSTOM_OPS=-zzz", NULL};
  static const char *const lenient[] = {"VLLM_FL_CUSTOM_OPS=-zzz", "VLLM_FL_CHECK=warn", NULL};
  static const char *const silent[] = {"VLLM_FL_CUSTOM_OPS=-zzz", "VLLM_FL_CHECK=off", NULL};
  static const char line[] = "WARNING VLLM_FL_CUSTOM_OPS: custom_ops: '-zzz' has no effect: no op 'zzz' is registered";
  static const struct {
    const char *const *environment;
    bool broken;
    int lines;
  } cases[] = {{lenient, false, 1}, {silent, false, 0}, {strict, true, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_host *host = NULL;
    scratch_make();
    ck_ok(create_host(cases[i].environment, cases[i].broken, &host));
    ck_assert_int_eq(test_log_count(line), cases[i].lines);
    fl_host_destroy(host);
    scratch_remove();
  }
  fl_host *host = test_host(strict, 0); /* loads no plugins: the engine brings them */
  ck_ok(fl_reset_global_policy(host));
  ck_assert_int_eq(test_log_count(line), 1);
  fl_host_destroy(host);
}
END_TEST

/* --------------------------------------------------------------------------------------------------- dispatch names */

START_TEST(dispatch_names_are_device_types) {
  static const struct {
    const char *name;
    int32_t device;
  } cases[] = {{"cuda", kDLCUDA},  {"hip", kDLROCM}, {"xpu", 14}, {"cpu", kDLCPU}, {"tpu", kDLExtDev},
               {"oot", kDLExtDev}, {"native", 0},    {"hyp", -1}, {"HIP", -1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_int_eq(fl_dispatch_device(cases[i].name), cases[i].device);
  ck_contains(fl_error_message(), "'HIP' is no name of dispatch");
  ck_contains(fl_error_message(), "did you mean 'hip'?");
  ck_assert_str_eq(fl_device_type_name(fl_dispatch_device("xpu")), "oneapi");
}
END_TEST

static fl_status nothing(void *self, fl_call *call) {
  (void)self;
  (void)call;
  return FL_OK;
}

/* CUDA's of one vendor, which declares only that; another's, which declares ROCm, too; and a reference for any. */
START_TEST(S1_dispatch_follows_the_devices_that_are_declared) {
  static const fl_impl impls[] = {{.impl_id = "vendor.both",
                                   .kind = FL_KIND_VENDOR,
                                   .vendor = "both",
                                   .devices = FL_DEVICE(kDLCUDA) | FL_DEVICE(kDLROCM)},
                                  {.impl_id = "vendor.cuda",
                                   .kind = FL_KIND_VENDOR,
                                   .vendor = "cuda",
                                   .priority = 120,
                                   .devices = FL_DEVICE(kDLCUDA)},
                                  {.impl_id = "reference.any", .kind = FL_KIND_REFERENCE, .devices = FL_DEVICE_ANY}};
  static const struct {
    const char *name, *with_both, *with_cuda;
  } cases[] = {{"cuda", "vendor.cuda", "vendor.cuda"},    {"hip", "vendor.both", "reference.any"},
               {"xpu", "reference.any", "reference.any"}, {"cpu", "reference.any", "reference.any"},
               {"tpu", "reference.any", "reference.any"}, {"oot", "reference.any", "reference.any"}};
  for (int first = 0; first < 2; first++) {
    fl_host *host = test_host(NULL, 0);
    for (int i = first; i < 3; i++) {
      fl_impl impl = impls[i];
      impl.size = sizeof impl;
      impl.op_name = "silu_and_mul";
      impl.fn = nothing;
      ck_ok(fl_register_impl(host, &impl));
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      fl_resolution found = {.size = sizeof found};
      ck_ok(fl_resolve_op(host, "silu_and_mul", fl_dispatch_device(cases[i].name), &found));
      ck_assert_str_eq(found.impl_id, first ? cases[i].with_cuda : cases[i].with_both);
    }
    fl_host_destroy(host);
  }
}
END_TEST

/* ------------------------------------------------------------------------------------------ layers that ops replace */

static fl_host *host_with(const char *setting) {
  const char *const environment[] = {setting ? setting : "VLLM_FL_OOT_ENABLED=1", NULL};
  return test_host(environment, 0);
}

START_TEST(layer_classes_of_vllm_are_replaced_by_their_ops) {
  static const char *const cases[][2] = {{"SiluAndMul", "silu_and_mul"},
                                         {"GeluAndMul", "gelu_and_mul"},
                                         {"RMSNorm", "rms_norm"},
                                         {"RotaryEmbedding", "rotary_embedding"},
                                         {"Llama3RotaryEmbedding", "rotary_embedding"},
                                         {"YaRNScalingRotaryEmbedding", "rotary_embedding"},
                                         {"GateLinear", "replicated_linear"},
                                         {"DeepSeekV2FusedQkvAProjLinear", "column_parallel_linear"},
                                         {"TPAwareRMSNorm", "rms_norm"},
                                         {"GELU", "gelu"},
                                         {"GELUTanh", "gelu"}};
  fl_host *host = host_with(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *op = fl_oot_op(host, cases[i][0]);
    ck_assert_msg(op != NULL, "%s", fl_error_message());
    ck_assert_str_eq(op, cases[i][1]);
  }
  fl_host_destroy(host);
}
END_TEST

/* As vLLM does it: by the very name of the class. */
START_TEST(unknown_layer_class_names_the_nearest) {
  fl_host *host = host_with(NULL);
  ck_assert_ptr_null(fl_oot_op(host, "SiluAndMull"));
  ck_assert_int_eq(fl_error_status(), FL_ENOENT);
  ck_assert_str_eq(fl_error_message(), "no op replaces a layer class 'SiluAndMull'; did you mean 'SiluAndMul'?");
  ck_assert_ptr_null(fl_oot_op(host, "silu_and_mul"));
  ck_assert_int_eq(fl_error_status(), FL_ENOENT);
  fl_host_destroy(host);
}
END_TEST

START_TEST(L2_lists_name_the_layer_by_class_or_op) {
  static const struct {
    const char *setting, *class, *reason; /* NULL: allowed */
  } cases[] = {
      {"VLLM_FL_OOT_ENABLED=0", "RMSNorm", "out-of-tree replacement is off (VLLM_FL_OOT_ENABLED)"},
      {"VLLM_FL_PREFER_ENABLED=false", "RMSNorm", "out-of-tree replacement is off (VLLM_FL_PREFER_ENABLED)"},
      {"VLLM_FL_OOT_WHITELIST=RMSNorm", "RMSNorm", NULL},
      {"VLLM_FL_OOT_WHITELIST=rms_norm", "RMSNorm", NULL},
      {"VLLM_FL_OOT_WHITELIST=rms_norm", "SiluAndMul", "not in the list of VLLM_FL_OOT_WHITELIST"},
      {"VLLM_FL_OOT_WHITELIST=,", "SiluAndMul", "not in the list of VLLM_FL_OOT_WHITELIST"},
      {"VLLM_FL_OOT_BLACKLIST=SiluAndMul,GeluAndMul", "SiluAndMul", "in oot_blacklist (VLLM_FL_OOT_BLACKLIST)"},
      {"VLLM_FL_OOT_BLACKLIST=silu_and_mul", "SiluAndMul", "in oot_blacklist (VLLM_FL_OOT_BLACKLIST)"},
      {"VLLM_FL_OOT_BLACKLIST=silu_and_mul", "RMSNorm", NULL},
      {"VLLM_FL_OOT_BLACKLIST=siluandmul", "SiluAndMul", NULL}}; /* names are exact */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char expected[256];
    fl_host *host = host_with(cases[i].setting);
    const char *op = fl_oot_op(host, cases[i].class);
    ck_assert_msg(!op == !!cases[i].reason, "%s: %s", cases[i].setting, cases[i].class);
    if (!op) {
      snprintf(expected, sizeof expected, "layer class '%s' is not replaced: %s", cases[i].class, cases[i].reason);
      ck_assert_int_eq(fl_error_status(), FL_ESTATE);
      ck_assert_str_eq(fl_error_message(), expected);
    }
    fl_host_destroy(host);
  }
}
END_TEST

/* One rule for every name of a layer: its class, its op, what lists called it before. */
START_TEST(L2_a_layer_is_allowed_by_any_of_its_names) {
  static const struct {
    const char *setting;
    const char *allowed[4], *denied[6];
  } cases[] = {{"VLLM_FL_OOT_BLACKLIST=rms_norm", {"SiluAndMul", "silu_and_mul"}, {"RMSNorm", "rms_norm"}},
               {"VLLM_FL_OOT_BLACKLIST=SiluAndMul", {"RMSNorm", "rms_norm"}, {"SiluAndMul", "silu_and_mul"}},
               {"VLLM_FL_OOT_WHITELIST=rms_norm", {"RMSNorm", "rms_norm"}, {"SiluAndMul", "silu_and_mul"}},
               {"VLLM_FL_OOT_WHITELIST=RMSNorm", {"RMSNorm", "rms_norm"}, {"SiluAndMul", "silu_and_mul"}},
               {"VLLM_FL_OOT_BLACKLIST=unquantized_fused_moe_method",
                {"FusedMoE"},
                {"UnquantizedFusedMoEMethod", "unquantized_fused_moe", "unquantized_fused_moe_method"}},
               {"VLLM_FL_OOT_WHITELIST=UnquantizedFusedMoEMethod",
                {"UnquantizedFusedMoEMethod", "unquantized_fused_moe", "unquantized_fused_moe_method"},
                {"FusedMoE"}},
               /* an op that replaces several: any of them */
               {"VLLM_FL_OOT_BLACKLIST=QKVParallelLinear",
                {"ColumnParallelLinear", "MergedColumnParallelLinear", "column_parallel_linear"},
                {"QKVParallelLinear"}},
               {"VLLM_FL_OOT_BLACKLIST=column_parallel_linear",
                {"RowParallelLinear"},
                {"ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear", "column_parallel_linear"}},
               /* what nobody is known to replace, and names are exact */
               {"VLLM_FL_OOT_BLACKLIST=acme", {"Acme", "rms_norm"}, {"acme"}},
               {"VLLM_FL_OOT_WHITELIST=acme", {"acme"}, {"Acme", "rms_norm"}},
               {"VLLM_FL_OOT_ENABLED=0", {NULL}, {"RMSNorm", "rms_norm", "acme"}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    fl_host *host = host_with(cases[i].setting);
    ck_assert_int_eq(fl_is_oot_enabled(host), strcmp(cases[i].setting, "VLLM_FL_OOT_ENABLED=0") != 0);
    for (const char *const *name = cases[i].allowed; *name; name++)
      ck_assert_msg(fl_is_oot_allowed(host, *name), "%s: %s", cases[i].setting, *name);
    for (const char *const *name = cases[i].denied; *name; name++)
      ck_assert_msg(!fl_is_oot_allowed(host, *name), "%s: %s", cases[i].setting, *name);
    fl_host_destroy(host);
  }
}
END_TEST

/* Each class of the entries has a name of its own, or the first would hide the second. */
START_TEST(every_layer_of_the_entries_has_names_of_its_own) {
  fl_strings names = {0};
  for (const fl_op_def *const *op = fl_builtin_ops; *op; op++)
    for (const char *rest = (*op)->layers; rest;) {
      fl_layer layer;
      rest = fl_layer_read(rest, &layer);
      const char *const own[] = {layer.class, layer.former};
      ck_assert_msg(*layer.class, "%s: '%s'", (*op)->schema, (*op)->layers);
      for (size_t i = 0; i < 2; i++) {
        ck_assert_msg(!fl_strings_has(&names, own[i]), "%s: '%s' is replaced twice", (*op)->schema, own[i]);
        ck_assert(!*own[i] || fl_strings_add(&names, own[i]));
      }
    }
  ck_assert_uint_gt(names.n, 40);
  fl_strings_free(&names);
}
END_TEST

START_TEST(every_explanation_lists_the_classes_that_its_op_replaces) {
  fl_host *host = host_with("VLLM_FL_OOT_BLACKLIST=rms_norm");
  fl_snapshot *snapshot = fl_registry_snapshot(host);
  uint32_t n = 0;
  for (uint32_t i = 0; i < fl_snapshot_op_count(snapshot); i++) {
    fl_explanation *explanation, *by_class;
    const char *op = fl_snapshot_op_name(snapshot, i);
    ck_ok(fl_explain(host, op, kDLCPU, &explanation));
    for (uint32_t j = 0; j < explanation->n_replaces; j++, n++) {
      const fl_replaced *layer = fl_replaced_at(explanation, j);
      const char *by = fl_oot_op(host, layer->class_name);
      ck_assert_int_eq(layer->allowed, by != NULL);
      ck_assert_int_eq(layer->allowed, fl_is_oot_allowed(host, layer->class_name));
      ck_assert_int_eq(layer->allowed, strcmp(op, "rms_norm") != 0);
      if (by)
        ck_assert_str_eq(by, op);
      else
        ck_assert_str_eq(layer->reason, "in oot_blacklist (VLLM_FL_OOT_BLACKLIST)");
      ck_ok(fl_explain(host, layer->class_name, kDLCPU, &by_class));
      ck_assert_str_eq(by_class->op, op);
      fl_explanation_free(by_class);
    }
    fl_explanation_free(explanation);
  }
  ck_assert_uint_ge(n, 4);
  fl_snapshot_release(snapshot);
  fl_host_destroy(host);
}
END_TEST

static fl_status load(fl_host *host, const char *plugin) {
  char name[64];
  snprintf(name, sizeof name, "tests/plugins/%s.so", plugin);
  return fl_load_plugin(host, built(name));
}

START_TEST(plugin_replaces_further_layers) {
  fl_host *host = host_with(NULL);
  ck_ok(load(host, "layer_a"));
  ck_assert_str_eq(fl_oot_op(host, "AcmeAttention"), "test_layer");
  ck_assert_ptr_null(fl_oot_op(host, "AcmeAttentoin"));
  ck_contains(fl_error_message(), "did you mean 'AcmeAttention'?");
  fl_plugins *plugins;
  ck_ok(fl_get_discovered_plugins(host, &plugins));
  ck_assert_str_eq(fl_plugin_at(plugins, 0)->status, "loaded");
  fl_plugins_free(plugins);
  ck_ok(fl_withdraw_plugin(host, "layer_a"));
  ck_assert_ptr_null(fl_oot_op(host, "AcmeAttention"));
  ck_assert_int_eq(fl_error_status(), FL_ENOENT);
  fl_host_destroy(host);
}
END_TEST

START_TEST(R2_layer_that_is_replaced_already_names_both_plugins) {
  fl_host *host = host_with(NULL);
  ck_ok(load(host, "layer_a"));
  ck_assert_int_eq(load(host, "layer_b"), FL_EPLUGIN);
  ck_contains(fl_error_message(),
              "layer class 'AcmeAttention' is replaced twice: by plugin 'layer_b', and before by plugin 'layer_a'");
  ck_assert_int_eq(load(host, "layer_taken"), FL_EPLUGIN);
  ck_contains(fl_error_message(),
              "layer class 'SiluAndMul' is replaced twice: by plugin 'layer_taken', and before by plugin 'flhost'");
  ck_assert_int_eq(load(host, "layer_unknown"), FL_EPLUGIN);
  ck_contains(fl_error_message(), "layer class 'AcmeAttention' is replaced twice");
  ck_assert_str_eq(fl_oot_op(host, "AcmeAttention"), "test_layer");
  ck_assert_str_eq(fl_oot_op(host, "SiluAndMul"), "silu_and_mul");
  fl_host_destroy(host);
  host = host_with(NULL);
  ck_assert_int_eq(load(host, "layer_unknown"), FL_EPLUGIN);
  ck_contains(fl_error_message(), "no op 'test_layre'");
  ck_assert_ptr_null(fl_oot_op(host, "AcmeAttention"));
  fl_host_destroy(host);
}
END_TEST

START_TEST(entry_of_a_plugins_op_names_the_layers_that_it_replaces) {
  fl_explanation *explanation;
  fl_host *host = host_with("VLLM_FL_OOT_BLACKLIST=acme_former");
  ck_ok(load(host, "layer_own"));
  ck_assert_str_eq(fl_oot_op(host, "AcmeNorm"), "test_layer");
  ck_assert_ptr_null(fl_oot_op(host, "AcmeMLP"));
  ck_assert_str_eq(fl_error_message(),
                   "layer class 'AcmeMLP' is not replaced: in oot_blacklist (VLLM_FL_OOT_BLACKLIST)");
  ck_assert(fl_is_oot_allowed(host, "AcmeNorm"));
  ck_assert(!fl_is_oot_allowed(host, "AcmeMLP"));
  ck_ok(fl_explain(host, "AcmeMLP", kDLCPU, &explanation));
  ck_assert_str_eq(explanation->op, "test_layer");
  ck_assert_uint_eq(explanation->n_replaces, 2);
  ck_assert_str_eq(fl_replaced_at(explanation, 0)->class_name, "AcmeNorm");
  ck_assert_str_eq(fl_replaced_at(explanation, 1)->class_name, "AcmeMLP");
  fl_explanation_free(explanation);
  ck_ok(fl_explain(host, "acme_former", kDLCPU, &explanation));
  ck_assert_str_eq(explanation->op, "test_layer");
  fl_explanation_free(explanation);
  /* they go with the plugin */
  ck_ok(fl_withdraw_plugin(host, "layer_own"));
  ck_assert_ptr_null(fl_oot_op(host, "AcmeNorm"));
  ck_assert_int_eq(fl_error_status(), FL_ENOENT);
  fl_host_destroy(host);
}
END_TEST

/* A layer is not looked for in a plugin that waits. */
START_TEST(entry_of_a_plugin_that_may_wait_names_no_layers) {
  fl_host *host = host_with(NULL);
  ck_assert_int_eq(load(host, "layer_listed"), FL_EPLUGIN);
  ck_contains(fl_error_message(), "a plugin with FL_PLUGIN_OPS brings ops alone: the host would not look for layer "
                                  "'AcmeNorm' there");
  ck_assert_ptr_null(fl_oot_op(host, "AcmeNorm"));
  fl_host_destroy(host);
}
END_TEST

static fl_status declare(fl_host *host, const char *schema, const char *layers) {
  const fl_op_def op = {.size = sizeof op, .schema = schema, .layers = layers};
  return fl_register_op(host, &op);
}

START_TEST(R2_entry_whose_layer_is_replaced_already_is_refused) {
  char longest[FL_NAME_MAX + 1], too_long[FL_NAME_MAX + 16] = "A,B:";
  memset(longest, 'x', FL_NAME_MAX);
  longest[FL_NAME_MAX] = 0;
  strcat(strcat(too_long, longest), "x");
  const struct {
    const char *layers, *words;
  } cases[] = {{"Free,SiluAndMul",
                "layer class 'SiluAndMul' is replaced twice: by plugin 'engine', and before by plugin "
                "'flhost'"},
               {"Free,", "the name of a class is empty"},
               {"", "the name of a class is empty"},
               {":name", "the name of a class is empty"},
               {too_long, "longer than 127 bytes"}};
  fl_host *host = host_with(NULL);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    ck_assert_int_ne(declare(host, "own(Tensor x) -> Tensor out", cases[i].layers), FL_OK);
    ck_contains(fl_error_message(), cases[i].words);
    ck_assert_ptr_null(fl_find_op(host, "own")); /* all of it, or nothing */
    ck_assert_ptr_null(fl_oot_op(host, "Free"));
  }
  ck_ok(declare(host, "own(Tensor x) -> Tensor out", "Free , Free, Other"));
  ck_assert_str_eq(fl_oot_op(host, "Free"), "own");
  /* who declares an op again may say again what it replaces, and more */
  ck_ok(declare(host, "own(Tensor x) -> Tensor out", "Other,Third"));
  ck_assert_str_eq(fl_oot_op(host, "Third"), "own");
  ck_assert_int_eq(declare(host, "its(Tensor x) -> Tensor out", "Other"), FL_EEXIST);
  ck_ok(declare(host, "its(Tensor x) -> Tensor out", longest));
  ck_assert_str_eq(fl_oot_op(host, longest), "its");
  fl_explanation *explanation;
  ck_ok(fl_explain(host, "own", kDLCPU, &explanation));
  ck_assert_uint_eq(explanation->n_replaces, 3);
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- tests */

static void add_tests(TCase *tests) {
  tcase_add_test(tests, custom_ops_enable_what_vllm_enables);
  tcase_add_test(tests, disabled_op_without_reference_runs_its_vendors);
  tcase_add_test(tests, enforced_op_is_enabled_in_its_host_only);
  tcase_add_test(tests, enforcing_does_not_switch_dispatch_on);
  tcase_add_test(tests, C1_unknown_custom_op_is_an_error_once_plugins_are_loaded);
  tcase_add_test(tests, C1_unknown_custom_op_is_a_warning_where_it_may_still_come);
  tcase_add_test(tests, dispatch_names_are_device_types);
  tcase_add_test(tests, S1_dispatch_follows_the_devices_that_are_declared);
  tcase_add_test(tests, layer_classes_of_vllm_are_replaced_by_their_ops);
  tcase_add_test(tests, unknown_layer_class_names_the_nearest);
  tcase_add_test(tests, L2_lists_name_the_layer_by_class_or_op);
  tcase_add_test(tests, L2_a_layer_is_allowed_by_any_of_its_names);
  tcase_add_test(tests, every_layer_of_the_entries_has_names_of_its_own);
  tcase_add_test(tests, every_explanation_lists_the_classes_that_its_op_replaces);
  tcase_add_test(tests, plugin_replaces_further_layers);
  tcase_add_test(tests, R2_layer_that_is_replaced_already_names_both_plugins);
  tcase_add_test(tests, entry_of_a_plugins_op_names_the_layers_that_it_replaces);
  tcase_add_test(tests, entry_of_a_plugin_that_may_wait_names_no_layers);
  tcase_add_test(tests, R2_entry_whose_layer_is_replaced_already_is_refused);
}

int main(void) {
  return run_suite("custom_ops", add_tests, 10);
}
