/*
 * Scenarios through the command itself: built plugins in a directory, settings in variables and files, and what a
 * person or a program then reads. Rule ids are those of the manual's chapter on dispatch.
 */
#include "tests/scenario.h"

#include <sys/stat.h>
#include <unistd.h>

/* `flhost explain OP --json` and one candidate of it. */
static json_t *explain(const char *op) {
  outcome run = FLHOST("explain", op, "--json");
  assert_quiet(run);
  return parse_json(run.out, JSON_OBJECT);
}

static json_t *implementation(const json_t *explanation, const char *impl_id) {
  return entry_of(json_object_get(explanation, "implementations"), "impl_id", impl_id);
}

static json_t *config(void) {
  outcome run = FLHOST("config", "--json");
  assert_quiet(run);
  return json_object_get(parse_json(run.out, JSON_OBJECT), "settings");
}

static const char *origin_of(const json_t *settings, const char *name) {
  return text_at(json_object_get(settings, name), "origin");
}

/* ---------------------------------------------------------------------------------------------------------- version */

START_TEST(version_has_library_and_interface) {
  static const char *const keys[] = {"version", "library", "abi", NULL};
  outcome run = FLHOST("version", "--json");
  assert_quiet(run);
  json_t *version = parse_json(run.out, JSON_OBJECT);
  assert_keys(version, keys);
  ck_assert_str_eq(text_at(version, "version"), text_at(version, "library"));
  assert_contains(FLHOST("--version").out, text_at(version, "version"));
  ck_assert_str_eq(FLHOST("--version").out, FLHOST("version").out);
}
END_TEST

/* ------------------------------------------------------------------------------------------------------ wrong words */

START_TEST(unknown_command_names_the_nearest) {
  outcome run = FLHOST("explian", "silu_and_mul");
  assert_refused(run);
  assert_contains(run.err, "unknown command 'explian'; did you mean 'explain'?");
  run = FLHOST("help", "plugin");
  assert_refused(run);
  assert_contains(run.err, "did you mean 'plugins'?");
  run = FLHOST("frobnicate");
  assert_refused(run);
  assert_lacks(run.err, "did you mean");
}
END_TEST

START_TEST(no_command_is_a_usage_error) {
  assert_refused(run_flhost((const char *const[]){NULL}));
}
END_TEST

START_TEST(unknown_option_names_the_nearest) {
  outcome run = FLHOST("config", "--jsno");
  assert_refused(run);
  assert_contains(run.err, "unknown option '--jsno'; did you mean '--json'?");
  run = FLHOST("--hlep");
  assert_refused(run);
  assert_contains(run.err, "did you mean '--help'?");
  run = FLHOST("ops", "-q");
  assert_refused(run);
  assert_contains(run.err, "'-q'");
}
END_TEST

START_TEST(wrong_number_of_words_is_a_usage_error) {
  outcome run = FLHOST("resolve");
  assert_refused(run);
  assert_contains(run.err, "needs OP");
  run = FLHOST("config", "prefer");
  assert_refused(run);
  assert_contains(run.err, "'prefer'");
  run = FLHOST("resolve", "silu_and_mul", "--device");
  assert_refused(run);
  assert_contains(run.err, "needs an argument");
  run = FLHOST("config", "--json=yes");
  assert_refused(run);
  assert_contains(run.err, "takes no argument");
}
END_TEST

START_TEST(unknown_device_type_names_the_nearest) {
  outcome run = FLHOST("resolve", "--device", "cdua", "silu_and_mul");
  assert_refused(run);
  assert_contains(run.err, "did you mean 'cuda'?");
}
END_TEST

/* One letter from the one thing that was not meant. */
START_TEST(a_gpu_is_not_taken_for_a_misspelt_cpu) {
  outcome run = FLHOST("resolve", "--device", "gpu", "silu_and_mul");
  assert_refused_with(run, "device types: cpu");
  assert_lacks(run.err, "did you mean");
  setting("VLLM_FL_PLATFORM=gpu");
  run = FLHOST("platform");
  assert_refused_with(run, "unknown platform 'gpu', expected one of cpu, ");
  assert_lacks(run.err, "did you mean");
}
END_TEST

START_TEST(unknown_op_names_the_nearest) {
  static const char *const takes_op[] = {"explain", "resolve", "ops"};
  for (size_t i = 0; i < sizeof takes_op / sizeof *takes_op; i++) {
    outcome run = FLHOST(takes_op[i], "silu_and_mull");
    assert_refused(run);
    assert_contains(run.err, "silu_and_mull");
    assert_contains(run.err, "'silu_and_mul'");
  }
}
END_TEST

/* ---------------------------------------------------------------------------------------------- explain and resolve */

START_TEST(explain_has_the_promised_keys) {
  static const char *const keys[] = {"op",    "device",          "order",    "order_origin",    "selected",
                                     "error", "implementations", "replaces", "missing_plugins", NULL};
  static const char *const impl_keys[] = {"impl_id",  "kind",      "vendor",  "priority", "plugin", "variant",
                                          "prepares", "candidate", "verdict", "reason",   NULL};
  json_t *explanation = explain("silu_and_mul"), *impls = json_object_get(explanation, "implementations"), *impl;
  size_t index;
  assert_keys(explanation, keys);
  ck_assert_str_eq(text_at(explanation, "op"), "silu_and_mul");
  ck_assert_str_eq(text_at(explanation, "selected"), "default.flagos");
  ck_assert_uint_eq(json_array_size(impls), 5);
  json_array_foreach(impls, index, impl) {
    assert_keys(impl, impl_keys);
    ck_assert_uint_gt(strlen(text_at(impl, "reason")), 0);
  }
  ck_assert(json_is_null(json_object_get(implementation(explanation, "default.flagos"), "vendor")));
  ck_assert_int_eq(json_integer_value(json_object_get(implementation(explanation, "vendor.bolt"), "priority")), 120);
  ck_assert_str_eq(text_at(implementation(explanation, "vendor.bolt"), "plugin"), "two_vendors");
}
END_TEST

START_TEST(S2_explain_lists_candidates_in_the_order_they_are_tried_then_the_rejected_ones) {
  static const char *const expected[][2] = {{"default.flagos", "selected"},
                                            {"vendor.bolt", "candidate"},
                                            {"vendor.acme", "candidate"},
                                            {"reference.c", "candidate"},
                                            {"vendor.bolt_card", "rejected"}};
  json_t *impls = json_object_get(explain("silu_and_mul"), "implementations");
  for (size_t i = 0; i < 5; i++) {
    ck_assert_str_eq(text_at(json_array_get(impls, i), "impl_id"), expected[i][0]);
    ck_assert_str_eq(text_at(json_array_get(impls, i), "verdict"), expected[i][1]);
    ck_assert_int_eq(json_is_true(json_object_get(json_array_get(impls, i), "candidate")),
                     strcmp(expected[i][1], "rejected") != 0);
  }
}
END_TEST

START_TEST(S1_explain_tells_why_an_implementation_is_not_available) {
  assert_contains(text_at(implementation(explain("silu_and_mul"), "vendor.bolt_card"), "reason"),
                  "no bolt card in this machine");
}
END_TEST

START_TEST(explain_is_readable) {
  outcome run = FLHOST("explain", "silu_and_mul");
  assert_quiet(run);
  assert_contains(run.out, "selected: default.flagos (tensors on cpu)\n");
  assert_contains(FLHOST("explain", "--device", "cuda", "acme_scale").out, "selected: vendor.acme (tensors on cuda)\n");
  assert_contains(run.out, "vendor.bolt_card");
  assert_contains(run.out, "no bolt card in this machine");
  assert_lacks(run.out, "\033");
}
END_TEST

START_TEST(explain_is_brief_when_asked) {
  setting("VLLM_FL_DENY_VENDORS=acme");
  outcome run = FLHOST("explain", "--brief", "silu_and_mul");
  assert_quiet(run);
  ck_assert_str_eq(run.out, "silu_and_mul: default.flagos, then vendor.bolt, reference.c\n"
                            "  order: flagos, vendor, reference (prefer flagos: built-in)\n"
                            "  vendor.acme: vendor 'acme' is denied (deny_vendors: VLLM_FL_DENY_VENDORS)\n"
                            "  not available here: vendor.bolt_card\n");
  setting("VLLM_FL_PER_OP=silu_and_mul=vendor:acme");
  run = FLHOST("explain", "--brief", "silu_and_mul");
  assert_status(run, 3);
  assert_contains(run.out, "silu_and_mul: none\n");
}
END_TEST

START_TEST(explain_names_the_plugins_that_are_missing) {
  static const char *const keys[] = {"plugin", "file", "status", "lists_op", "reason", NULL};
  json_t *plugin;
  copy_built("tests/plugins/listed/lazy_fails.so", "plugins");
  setting("VLLM_FL_PROBE=off");
  outcome run = FLHOST("explain", "lazy_a", "--json");
  ck_assert_str_eq(run.out, "");
  assert_contains(run.err, "plugin 'lazy_fails', which lists it, failed");
  copy_built("tests/plugins/listed/lazy_a.so", "plugins");
  run = FLHOST("explain", "lazy_a", "--json");
  assert_status(run, 0);
  plugin = json_array_get(json_object_get(parse_json(run.out, JSON_OBJECT), "missing_plugins"), 0);
  assert_keys(plugin, keys);
  ck_assert_str_eq(text_at(plugin, "plugin"), "lazy_fails");
  ck_assert_str_eq(text_at(plugin, "status"), "failed");
  ck_assert(json_is_true(json_object_get(plugin, "lists_op")));
  assert_contains(text_at(plugin, "reason"), "no licence");
  run = FLHOST("explain", "lazy_a");
  assert_contains(run.out, "\nlazy_fails      yes         failed  register_builtins returned");
  assert_contains(run.out, "'flhost plugins' tells more of them.\n");
  assert_contains(FLHOST("explain", "lazy_a", "--brief").out, "  plugin lazy_fails, which lists it, failed: ");
  assert_lacks(FLHOST("explain", "silu_and_mul").out, "lazy_fails"); /* which it does not list */
}
END_TEST

START_TEST(explain_takes_a_layer_class_and_shows_what_is_replaced) {
  static const char *const keys[] = {"class", "allowed", "reason", NULL};
  setting("VLLM_FL_OOT_BLACKLIST=RMSNorm");
  json_t *explanation = explain("SiluAndMul"), *layer = json_array_get(json_object_get(explanation, "replaces"), 0);
  ck_assert_str_eq(text_at(explanation, "op"), "silu_and_mul");
  assert_keys(layer, keys);
  ck_assert_str_eq(text_at(layer, "class"), "SiluAndMul");
  ck_assert(json_is_true(json_object_get(layer, "allowed")) && json_is_null(json_object_get(layer, "reason")));
  assert_contains(FLHOST("explain", "silu_and_mul").out, "\nreplaces: SiluAndMul (allowed)\n");
  assert_contains(FLHOST("explain", "RMSNorm").out,
                  "\nreplaces: RMSNorm (not allowed: in oot_blacklist (VLLM_FL_OOT_BLACKLIST))\n");
  ck_assert_uint_eq(json_array_size(json_object_get(explain("attention_backend"), "replaces")), 0);
}
END_TEST

START_TEST(explain_without_op_has_one_line_for_each) {
  outcome run = FLHOST("explain", "--json");
  assert_quiet(run);
  json_t *list = parse_json(run.out, JSON_ARRAY);
  ck_assert_str_eq(text_at(entry_of(list, "op", "rms_norm"), "selected"), "default.flagos");
  ck_assert(json_is_null(json_object_get(entry_of(list, "op", "acme_scale"), "selected")));
  run = FLHOST("explain");
  assert_quiet(run);
  size_t lines = 0;
  for (const char *c = run.out; *c; c++)
    lines += *c == '\n';
  ck_assert_uint_eq(lines, json_array_size(list) + 1);
}
END_TEST

/* What is for another device says nothing of why this one has nothing. */
START_TEST(explain_without_op_tells_what_the_devices_own_implementation_lacks) {
  copy_built("plugins/ascend.so", "plugins");
  copy_built("plugins/cuda.so", "plugins");
  setting("FLHOST_CUDA_DRIVER=/nonexistent/libcuda.so.1");
  outcome run = FLHOST("explain", "--device", "cuda");
  assert_quiet(run);
  assert_contains(run.out, "vendor.cuda: not available: FLHOST_CUDA_DRIVER: /nonexistent/libcuda.so.1: cannot open");
  assert_lacks(run.out, "davinci");
  assert_lacks(FLHOST("explain", "--device", "ascend").out, "libcuda");
}
END_TEST

START_TEST(resolve_prints_the_winner) {
  static const char *const keys[] = {"op", "impl_id", "kind", "vendor", "priority", "device", NULL};
  outcome run = FLHOST("resolve", "silu_and_mul", "--json");
  assert_quiet(run);
  json_t *found = parse_json(run.out, JSON_OBJECT);
  assert_keys(found, keys);
  ck_assert_str_eq(text_at(found, "impl_id"), "default.flagos");
  ck_assert_str_eq(text_at(found, "kind"), "flagos");
  ck_assert_str_eq(text_at(found, "device"), "cpu");
  ck_assert_int_eq(json_integer_value(json_object_get(found, "priority")), 150);
  assert_contains(FLHOST("resolve", "silu_and_mul").out, "default.flagos");
}
END_TEST

START_TEST(S1_device_decides_what_can_run) {
  outcome run = FLHOST("resolve", "--device=cuda", "acme_scale", "--json");
  assert_quiet(run);
  ck_assert_str_eq(text_at(parse_json(run.out, JSON_OBJECT), "impl_id"), "vendor.acme");
  ck_assert_str_eq(text_at(parse_json(run.out, JSON_OBJECT), "device"), "cuda");
  run = FLHOST("explain", "--device", "cuda", "silu_and_mul", "--json");
  assert_status(run, 3);
  assert_contains(text_at(implementation(parse_json(run.out, JSON_OBJECT), "reference.c"), "reason"), "cuda");
  run = FLHOST("resolve", "--device=hip", "silu_and_mul"); /* vLLM's word */
  assert_status(run, 3);
  assert_contains(run.err, "the tensors are on rocm");
}
END_TEST

START_TEST(S4_no_implementation_is_exit_status_3) {
  outcome run = FLHOST("resolve", "acme_scale");
  assert_status(run, 3);
  ck_assert_str_eq(run.out, "");
  assert_contains(run.err, "flhost: No available implementation for op='acme_scale'");
  run = FLHOST("explain", "acme_scale", "--json");
  assert_status(run, 3);
  json_t *explanation = parse_json(run.out, JSON_OBJECT);
  ck_assert(json_is_null(json_object_get(explanation, "selected")));
  assert_contains(text_at(explanation, "error"), "No available implementation for op='acme_scale'");
  ck_assert_str_eq(text_at(implementation(explanation, "vendor.acme"), "verdict"), "rejected");
}
END_TEST

START_TEST(P2_preference_changes_the_choice) {
  setting("VLLM_FL_PREFER=reference");
  json_t *explanation = explain("rms_norm");
  ck_assert_str_eq(text_at(explanation, "selected"), "reference.c");
  assert_contains(text_at(explanation, "order_origin"), "VLLM_FL_PREFER");
  ck_assert_str_eq(json_string_value(json_array_get(json_object_get(explanation, "order"), 0)), "reference");
  setting("VLLM_FL_PREFER=vendor");
  ck_assert_str_eq(text_at(explain("silu_and_mul"), "selected"), "vendor.bolt");
}
END_TEST

START_TEST(P4_denied_vendor_is_rejected_by_the_variable) {
  setting("VLLM_FL_DENY_VENDORS=bolt");
  json_t *explanation = explain("silu_and_mul"), *bolt = implementation(explanation, "vendor.bolt");
  ck_assert_str_eq(text_at(bolt, "verdict"), "rejected");
  assert_contains(text_at(bolt, "reason"), "VLLM_FL_DENY_VENDORS");
  ck_assert_str_eq(text_at(implementation(explanation, "vendor.acme"), "verdict"), "candidate");
}
END_TEST

START_TEST(C3_reasons_name_file_and_line) {
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "# policy\n"
                                                           "prefer: vendor\n"
                                                           "deny_vendors:\n"
                                                           "  - bolt\n"
                                                           "op_backends:\n"
                                                           "  rms_norm: [reference, flagos]\n"));
  json_t *explanation = explain("silu_and_mul");
  ck_assert_str_eq(text_at(explanation, "selected"), "vendor.acme");
  assert_contains(text_at(explanation, "order_origin"), "policy.yaml:2");
  assert_contains(text_at(implementation(explanation, "vendor.bolt"), "reason"), "policy.yaml:3");
  explanation = explain("rms_norm");
  ck_assert_str_eq(text_at(explanation, "selected"), "reference.c");
  assert_contains(text_at(explanation, "order_origin"), "policy.yaml:6");
}
END_TEST

START_TEST(P3_order_of_one_op_leaves_out_what_it_does_not_list) {
  setting("VLLM_FL_PER_OP=silu_and_mul=vendor:acme|impl:reference.c");
  json_t *explanation = explain("silu_and_mul");
  ck_assert_str_eq(text_at(explanation, "selected"), "vendor.acme");
  assert_contains(text_at(explanation, "order_origin"), "VLLM_FL_PER_OP");
  ck_assert_str_eq(text_at(implementation(explanation, "reference.c"), "verdict"), "candidate");
  ck_assert_str_eq(text_at(implementation(explanation, "default.flagos"), "verdict"), "rejected");
  ck_assert_str_eq(text_at(explain("rms_norm"), "selected"), "default.flagos");
}
END_TEST

START_TEST(L3_filtered_op_names_the_list) {
  setting("VLLM_FL_FLAGOS_BLACKLIST=silu_and_mul");
  json_t *filtered = implementation(explain("silu_and_mul"), "default.flagos");
  ck_assert_str_eq(text_at(filtered, "verdict"), "rejected");
  assert_contains(text_at(filtered, "reason"), "VLLM_FL_FLAGOS_BLACKLIST");
  ck_assert_str_eq(text_at(explain("rms_norm"), "selected"), "default.flagos");
}
END_TEST

/* -------------------------------------------------------------------------------------------------------------- ops */

START_TEST(ops_has_signatures_and_implementations) {
  outcome run = FLHOST("ops", "--json");
  assert_quiet(run);
  json_t *op = entry_of(parse_json(run.out, JSON_ARRAY), "name", "acme_scale");
  ck_assert_str_eq(text_at(op, "signature"), "acme_scale(Tensor x, float alpha=1.0) -> Tensor out");
  ck_assert_str_eq(text_at(op, "category"), "test");
  ck_assert_str_eq(text_at(op, "doc"), "alpha times x");
  json_t *impl = entry_of(json_object_get(op, "impls"), "impl_id", "vendor.acme");
  ck_assert_str_eq(text_at(impl, "min_arch"), "sm_80");
  ck_assert_str_eq(json_string_value(json_array_get(json_object_get(impl, "devices"), 0)), "cuda");
  ck_assert_uint_eq(json_array_size(json_object_get(impl, "dtypes")), 2);
  ck_assert(json_is_true(json_object_get(impl, "available")));
}
END_TEST

START_TEST(ops_tells_one_op_in_full) {
  outcome run = FLHOST("ops", "silu_and_mul");
  assert_quiet(run);
  assert_contains(run.out, "silu_and_mul(Tensor x) -> Tensor out");
  assert_contains(run.out, "bfloat16: atol ");
  assert_contains(run.out, "no: no bolt card in this machine");
  run = FLHOST("ops", "silu_and_mul", "--json");
  assert_quiet(run);
  ck_assert_uint_eq(json_array_size(parse_json(run.out, JSON_ARRAY)), 1);
}
END_TEST

START_TEST(ops_lists_implementations) {
  outcome run = FLHOST("ops", "--impls");
  assert_quiet(run);
  assert_contains(run.out, "float32,bfloat16");
  assert_contains(run.out, "vendor.bolt_card");
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- plugins */

START_TEST(plugins_has_the_promised_keys) {
  static const char *const keys[] = {"name",   "file",   "version", "vendor", "licence",     "abi",      "route",
                                     "status", "reason", "load_us", "impls",  "impl_vendor", "variants", NULL};
  outcome run = FLHOST("plugins", "--json");
  assert_quiet(run);
  json_t *list = parse_json(run.out, JSON_ARRAY), *plugin = entry_of(list, "name", "two_vendors");
  ck_assert_uint_eq(json_array_size(list), 2);
  assert_keys(plugin, keys);
  ck_assert_str_eq(text_at(plugin, "status"), "loaded");
  ck_assert_str_eq(text_at(plugin, "version"), "2.1");
  ck_assert_str_eq(text_at(plugin, "vendor"), "acme");
  assert_contains(text_at(plugin, "file"), "two_vendors.so");
  ck_assert_int_eq(json_integer_value(json_object_get(plugin, "impls")), 4);
  ck_assert_double_gt(json_number_value(json_object_get(plugin, "load_us")), 0);
  assert_contains(FLHOST("plugins").out, "two_vendors.so");
}
END_TEST

/* The command is linked with the host's library, so the dynamic linker would find what the plugin lacks elsewhere. */
START_TEST(D4_a_plugin_that_uses_the_hosts_functions_is_refused_where_they_happen_to_be_found) {
  copy_built("tests/plugins/undefined_present.so", "plugins");
  outcome run = FLHOST("plugins");
  assert_contains(run.out, "undefined_present.so: undefined symbol: fl_version (a plugin links nothing of the host: it "
                           "uses the functions that register_builtins is handed)");
}
END_TEST

/* `plugins` opens none; what asks for one of its ops, or for all, does. */
START_TEST(D4_a_plugin_that_waits_is_loaded_by_whoever_asks_for_plugins) {
  copy_built("tests/plugins/listed/lazy_builtin.so", "plugins");
  outcome run = FLHOST("plugins");
  assert_quiet(run);
  assert_contains(run.out, "lazy_builtin");
  assert_lacks(run.out, "deferred");
  json_t *list = parse_json(FLHOST("plugins", "--json").out, JSON_ARRAY);
  ck_assert_str_eq(text_at(entry_of(list, "name", "lazy_builtin"), "status"), "loaded");
  assert_contains(FLHOST("explain", "relu2").out, "vendor.lazy_builtin");
  assert_contains(FLHOST("ops", "relu2").out, "vendor.lazy_builtin");
  assert_contains(FLHOST("doctor").out, "plugin lazy_builtin 1: 1 implementation");
}
END_TEST

START_TEST(D4_bad_plugin_does_not_keep_good_ones_from_loading) {
  scratch_file("plugins/broken.so", "#!/bin/sh\necho no plugin\n");
  outcome run = FLHOST("plugins", "--json");
  assert_status(run, 0);
  assert_contains(run.err, "flhost: ERROR: plugin broken failed: ");
  json_t *list = parse_json(run.out, JSON_ARRAY), *plugin;
  size_t index, failed = 0;
  json_array_foreach(list, index, plugin) if (!strcmp(text_at(plugin, "status"), "failed")) {
    assert_contains(text_at(plugin, "file"), "broken.so");
    ck_assert_uint_gt(strlen(text_at(plugin, "reason")), 0);
    failed++;
  }
  ck_assert_uint_eq(failed, 1);
  ck_assert_uint_eq(json_array_size(list), 3);
  run = FLHOST("resolve", "silu_and_mul");
  assert_status(run, 0);
  assert_contains(run.out, "default.flagos");
}
END_TEST

START_TEST(empty_directory_says_where_was_looked) {
  mkdir(scratch("empty"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("empty"));
  outcome run = FLHOST("plugins");
  assert_status(run, 0);
  ck_assert_str_eq(run.out, "");
  assert_contains(run.err, scratch("empty"));
  assert_status(FLHOST("resolve", "silu_and_mul"), 3);
}
END_TEST

/* In a name as in a path of the settings. What is no control character stays: é. */
START_TEST(control_characters_do_not_reach_the_terminal) {
  static const struct {
    const char *name, *shown, *lacks;
  } cases[] = {
      {"\033[31mred", "\\x1b[31mred", "\033"},
      {"\xc2\x9b"
       "31mred",
       "\\xc2\\x9b31mred", "\x9b"},                /* a terminal's command in one character */
      {"a\u202eb", "a\\xe2\\x80\\xaeb", "\u202e"}, /* what follows would be written from right to left */
      {"\xff"
       "ed",
       "\\xffed", "\xff"},
      {"r\u00e9d", "r\u00e9d", "\\x"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char name[64];
    snprintf(name, sizeof name, "plugins/%s.so", cases[i].name);
    const char *path = scratch_file(name, "not a plugin\n");
    outcome run = FLHOST("plugins");
    assert_status(run, 0);
    assert_contains(run.out, cases[i].shown);
    assert_lacks(run.out, cases[i].lacks);
    assert_lacks(run.err, cases[i].lacks);
    ck_assert_int_eq(unlink(path), 0);
    mkdir(scratch("%s", cases[i].name), 0755);
    snprintf(name, sizeof name, "%s/cpu.yaml", cases[i].name);
    scratch_file(name, "prefer: vendor\n");
    setting("VLLM_FL_CONFIG_DIR=%s", scratch("%s", cases[i].name));
    run = FLHOST("platform");
    assert_contains(run.out, cases[i].shown);
    assert_lacks(run.out, cases[i].lacks);
    run = FLHOST("platform", "--json");
    parse_json(run.out, JSON_OBJECT);
    assert_lacks(run.out, cases[i].lacks);
  }
}
END_TEST

/* ----------------------------------------------------------------------------------------------------------- config */

START_TEST(C3_config_knows_every_origin) {
  setting("VLLM_FL_PREFER=vendor");
  scratch_file("platforms/cpu.yaml", "strict: true\nop_backends:\n  rms_norm: reference|flagos\n");
  json_t *settings = config(), *value = json_object_get(json_object_get(settings, "op_backends"), "value");
  ck_assert_str_eq(origin_of(settings, "prefer"), "VLLM_FL_PREFER");
  assert_contains(origin_of(settings, "strict"), "cpu.yaml:1");
  ck_assert(json_is_true(json_object_get(json_object_get(settings, "strict"), "value")));
  ck_assert_str_eq(origin_of(settings, "USE_FLAGGEMS"), "built-in");
  ck_assert_str_eq(json_string_value(json_array_get(json_object_get(value, "rms_norm"), 0)), "reference");
  outcome run = FLHOST("config");
  assert_quiet(run);
  assert_contains(run.out, "cpu.yaml:1");
  assert_contains(run.out, "VLLM_FL_PREFER");
}
END_TEST

START_TEST(C1_environment_beats_the_platform_file) {
  scratch_file("platforms/cpu.yaml", "prefer: reference\n");
  ck_assert_str_eq(text_at(explain("rms_norm"), "selected"), "reference.c");
  setting("VLLM_FL_PREFER=flagos");
  ck_assert_str_eq(text_at(explain("rms_norm"), "selected"), "default.flagos");
}
END_TEST

START_TEST(C1_config_file_beats_the_environment) {
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "prefer: reference\n"));
  setting("VLLM_FL_PREFER=flagos");
  ck_assert_str_eq(text_at(explain("rms_norm"), "selected"), "reference.c");
  assert_contains(origin_of(config(), "prefer"), "policy.yaml:1");
}
END_TEST

/* ---------------------------------------------------------------------------------------------------- bad settings */

START_TEST(C1_bad_value_of_a_variable_is_refused) {
  setting("VLLM_FL_PREFER=vendro");
  outcome run = FLHOST("config");
  assert_refused(run);
  assert_contains(run.err, "VLLM_FL_PREFER");
  assert_contains(run.err, "'vendro'");
  assert_contains(run.err, "'vendor'");
}
END_TEST

START_TEST(C1_unknown_key_is_refused_with_its_place) {
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "prefer: vendor\nop_backend:\n  rms_norm: [flagos]\n"));
  outcome run = FLHOST("explain", "rms_norm");
  assert_refused(run);
  assert_contains(run.err, "policy.yaml:2");
  assert_contains(run.err, "'op_backend'");
  assert_contains(run.err, "'op_backends'");
}
END_TEST

START_TEST(T2_unknown_token_is_refused_with_the_nearest) {
  setting("VLLM_FL_PER_OP=rms_norm=flagos|refrence");
  outcome run = FLHOST("resolve", "rms_norm");
  assert_refused(run);
  assert_contains(run.err, "VLLM_FL_PER_OP");
  assert_contains(run.err, "'refrence'");
  assert_contains(run.err, "'reference'");
}
END_TEST

START_TEST(C1_missing_config_file_is_refused) {
  setting("VLLM_FL_CONFIG=%s", scratch("nowhere.yaml"));
  outcome run = FLHOST("plugins");
  assert_refused(run);
  assert_contains(run.err, "nowhere.yaml");
}
END_TEST

START_TEST(C1_check_warn_goes_on_without_the_invalid_part) {
  setting("VLLM_FL_PREFER=vendro");
  setting("VLLM_FL_CHECK=warn");
  outcome run = FLHOST("resolve", "rms_norm");
  assert_status(run, 0);
  assert_contains(run.out, "default.flagos");
  assert_contains(run.err, "flhost: WARNING: ");
  assert_contains(run.err, "vendro");
}
END_TEST

START_TEST(C2_unknown_variable_is_warned_about) {
  setting("VLLM_FL_PERFER=vendor");
  outcome run = FLHOST("resolve", "rms_norm");
  assert_status(run, 0);
  assert_contains(run.err, "VLLM_FL_PERFER");
  assert_contains(run.err, "VLLM_FL_PREFER");
}
END_TEST

/* ------------------------------------------------------------------------------------------------ -------- platform */

START_TEST(platform_has_the_promised_keys) {
  static const char *const keys[] = {"active", "origin", "config_file", "unserved", "platforms", "communicators", NULL};
  static const char *const platform_keys[] = {
      "name",      "plugin",      "active", "pci_devices", "pci", "driver_found", "driver", "device_count",
      "diagnosis", "device_type", "steps",  "devices",     NULL};
  static const char *const step_keys[] = {"step", "state", "finding", "advice", NULL};
  static const char *const device_keys[] = {"index", "name",         "arch",        "driver",
                                            "units", "memory_total", "memory_free", NULL};
  copy_built("plugins/ascend.so", "plugins");
  outcome run = FLHOST("platform", "--json");
  assert_quiet(run);
  json_t *report = parse_json(run.out, JSON_OBJECT);
  assert_keys(report, keys);
  ck_assert_str_eq(text_at(report, "active"), "cpu");
  ck_assert_str_eq(text_at(report, "origin"), "VLLM_FL_PLATFORM");
  json_t *cpu = entry_of(json_object_get(report, "platforms"), "name", "cpu");
  assert_keys(cpu, platform_keys);
  ck_assert(json_is_true(json_object_get(cpu, "active")));
  assert_keys(json_array_get(json_object_get(cpu, "devices"), 0), device_keys);
  json_t *ascend = entry_of(json_object_get(report, "platforms"), "name", "ascend");
  ck_assert_str_eq(text_at(ascend, "device_type"), "ext_dev");
  json_t *step = entry_of(json_object_get(ascend, "steps"), "step", "user driver");
  assert_keys(step, step_keys);
  assert_contains(FLHOST("platform").out, "VLLM_FL_PLATFORM");
}
END_TEST

/* ---------------------------------------------------------------------------------------------------------- output */

START_TEST(log_lines_appear_only_when_asked_for) {
  assert_quiet(FLHOST("plugins"));
  setting("VLLM_FL_LOG_LEVEL=INFO");
  outcome run = FLHOST("plugins");
  assert_status(run, 0);
  assert_contains(run.err, "flhost: INFO: ");
}
END_TEST

/* Nobody asked for more than the message that the level is none. */
START_TEST(an_invalid_log_level_is_all_that_is_told) {
  static const char *const words[] = {"wran", "INFO DEBUG", "verbose_enough"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    setting("VLLM_FL_LOG_LEVEL=%s", words[i]);
    outcome run = FLHOST("plugins");
    assert_refused_with(run, "VLLM_FL_LOG_LEVEL");
    assert_lacks(run.err, "INFO: ");
  }
  setting("VLLM_FL_LOG_LEVEL= info ");
  assert_contains(FLHOST("plugins").err, "flhost: INFO: ");
}
END_TEST

START_TEST(headings_are_bold_on_a_terminal_only) {
  static const char *const words[] = {"explain", "silu_and_mul", NULL};
  setting("TERM=xterm");
  assert_contains(run_flhost_on_terminal(words).out, "\033[1m");
  assert_lacks(run_flhost(words).out, "\033");
  setting("NO_COLOR=1");
  assert_lacks(run_flhost_on_terminal(words).out, "\033");
  setting("NO_COLOR=");
  setting("TERM=dumb");
  assert_lacks(run_flhost_on_terminal(words).out, "\033");
}
END_TEST

START_TEST(long_text_is_folded_on_a_terminal_only) {
  static const char *const words[] = {"ops", "silu_and_mul", NULL};
  size_t longest = 0;
  setting("NO_COLOR=1");
  const char *folded = run_flhost_on_terminal((const char *const[]){"ops", NULL}).out;
  for (const char *line = folded; *line; line += strcspn(line, "\n") + 1)
    ck_assert_uint_le(strcspn(line, "\r\n"), 100);
  const char *plain = run_flhost(words).out;
  for (const char *line = plain; *line; line += strcspn(line, "\n") + 1)
    longest = strcspn(line, "\n") > longest ? strcspn(line, "\n") : longest;
  ck_assert_uint_gt(longest, 100);
}
END_TEST

START_TEST(full_disk_is_an_error) {
  static const char *const words[] = {"ops", "--json", NULL};
  outcome run = run_flhost_into("/dev/full", words);
  assert_status(run, 2);
  assert_contains(run.err, "flhost: cannot write to standard output: ");
}
END_TEST

START_TEST(ops_pages_are_written_a_category_each) {
  copy_built("plugins/cpu.so", "plugins");
  outcome run = FLHOST("ops", "--pages", scratch_dir());
  assert_status(run, 0);
  FILE *page = fopen(scratch("normalisation.md"), "r");
  char text[8192] = "";
  ck_assert_ptr_nonnull(page);
  ck_assert_uint_gt(fread(text, 1, sizeof text - 1, page), 0);
  fclose(page);
  assert_contains(text, "# Normalisation\n");
  assert_contains(text, "\n## fused_add_rms_norm\n");
  assert_contains(text, "weight: T|float32[H]");
  assert_contains(text, "\nReplaces vLLM's `GemmaRMSNorm`, `TPAwareGemmaRMSNorm`.\n");
  assert_contains(text, "`reference.c` (cpu, on cpu,cuda_host,rocm_host)");
  run = FLHOST("ops", "--pages", scratch("not/there"));
  assert_status(run, 2);
  assert_contains(run.err, "cannot write");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, begin_scenario, end_scenario);
  tcase_add_test(tests, version_has_library_and_interface);
  tcase_add_test(tests, unknown_command_names_the_nearest);
  tcase_add_test(tests, no_command_is_a_usage_error);
  tcase_add_test(tests, unknown_option_names_the_nearest);
  tcase_add_test(tests, wrong_number_of_words_is_a_usage_error);
  tcase_add_test(tests, unknown_device_type_names_the_nearest);
  tcase_add_test(tests, a_gpu_is_not_taken_for_a_misspelt_cpu);
  tcase_add_test(tests, unknown_op_names_the_nearest);
  tcase_add_test(tests, explain_has_the_promised_keys);
  tcase_add_test(tests, S2_explain_lists_candidates_in_the_order_they_are_tried_then_the_rejected_ones);
  tcase_add_test(tests, S1_explain_tells_why_an_implementation_is_not_available);
  tcase_add_test(tests, explain_is_readable);
  tcase_add_test(tests, explain_is_brief_when_asked);
  tcase_add_test(tests, explain_names_the_plugins_that_are_missing);
  tcase_add_test(tests, explain_takes_a_layer_class_and_shows_what_is_replaced);
  tcase_add_test(tests, explain_without_op_has_one_line_for_each);
  tcase_add_test(tests, explain_without_op_tells_what_the_devices_own_implementation_lacks);
  tcase_add_test(tests, resolve_prints_the_winner);
  tcase_add_test(tests, S1_device_decides_what_can_run);
  tcase_add_test(tests, S4_no_implementation_is_exit_status_3);
  tcase_add_test(tests, P2_preference_changes_the_choice);
  tcase_add_test(tests, P4_denied_vendor_is_rejected_by_the_variable);
  tcase_add_test(tests, C3_reasons_name_file_and_line);
  tcase_add_test(tests, P3_order_of_one_op_leaves_out_what_it_does_not_list);
  tcase_add_test(tests, L3_filtered_op_names_the_list);
  tcase_add_test(tests, ops_has_signatures_and_implementations);
  tcase_add_test(tests, ops_tells_one_op_in_full);
  tcase_add_test(tests, ops_lists_implementations);
  tcase_add_test(tests, plugins_has_the_promised_keys);
  tcase_add_test(tests, D4_a_plugin_that_uses_the_hosts_functions_is_refused_where_they_happen_to_be_found);
  tcase_add_test(tests, D4_a_plugin_that_waits_is_loaded_by_whoever_asks_for_plugins);
  tcase_add_test(tests, D4_bad_plugin_does_not_keep_good_ones_from_loading);
  tcase_add_test(tests, empty_directory_says_where_was_looked);
  tcase_add_test(tests, control_characters_do_not_reach_the_terminal);
  tcase_add_test(tests, C3_config_knows_every_origin);
  tcase_add_test(tests, C1_environment_beats_the_platform_file);
  tcase_add_test(tests, C1_config_file_beats_the_environment);
  tcase_add_test(tests, C1_bad_value_of_a_variable_is_refused);
  tcase_add_test(tests, C1_unknown_key_is_refused_with_its_place);
  tcase_add_test(tests, T2_unknown_token_is_refused_with_the_nearest);
  tcase_add_test(tests, C1_missing_config_file_is_refused);
  tcase_add_test(tests, C1_check_warn_goes_on_without_the_invalid_part);
  tcase_add_test(tests, C2_unknown_variable_is_warned_about);
  tcase_add_test(tests, platform_has_the_promised_keys);
  tcase_add_test(tests, log_lines_appear_only_when_asked_for);
  tcase_add_test(tests, an_invalid_log_level_is_all_that_is_told);
  tcase_add_test(tests, headings_are_bold_on_a_terminal_only);
  tcase_add_test(tests, long_text_is_folded_on_a_terminal_only);
  tcase_add_test(tests, full_disk_is_an_error);
  tcase_add_test(tests, ops_pages_are_written_a_category_each);
}

int main(void) {
  return run_suite("cli", add_tests, 30);
}
