/* The CPU plugin's instruction sets: which one runs, who says so, and what becomes of one that the machine has not. The
 * C library is told to know less of the processor than it is, as on an older machine. */
#include "tests/command.h"

#include <flhost/flhost.h>

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static const char *variant_of_rms_norm(void) {
  outcome run = FLHOST("explain", "rms_norm", "--json");
  ck_assert_msg(run.status == 0, "%s", run.err);
  json_t *root = parse_json(run.out, JSON_OBJECT);
  json_t *first = json_array_get(json_object_get(root, "implementations"), 0);
  ck_assert_str_eq(json_string_value(json_object_get(first, "impl_id")), "default.flagos");
  return json_string_value(json_object_get(first, "variant"));
}

START_TEST(without_its_instructions_a_variant_is_not_chosen) {
#ifdef __x86_64__
  static const struct {
    const char *tunables, *not_this;
  } machines[] = {{"glibc.cpu.hwcaps=-AVX512F", "avx512_bf16"}, {"glibc.cpu.hwcaps=-AVX512F,-AVX2", "avx2"}};
  for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
    setting("GLIBC_TUNABLES=%s", machines[i].tunables);
    const char *variant = variant_of_rms_norm();
    ck_assert_msg(strncmp(variant, "avx512", 6), "%s", variant);
    ck_assert_str_ne(variant, machines[i].not_this);
  }
  ck_assert_str_eq(variant_of_rms_norm(), "baseline");
#else
  ck_assert_str_eq(variant_of_rms_norm(), "baseline");
#endif
}
END_TEST

START_TEST(the_variable_pins_it_and_explain_ops_and_plugins_say_so) {
  setting("VLLM_FL_CPU_ISA=baseline");
  ck_assert_str_eq(variant_of_rms_norm(), "baseline");
  setting("VLLM_FL_CPU_ISA= Baseline ");
  ck_assert_str_eq(variant_of_rms_norm(), "baseline");
  assert_contains(FLHOST("explain", "rms_norm").out, "cpu (baseline)");
  assert_contains(FLHOST("ops", "rms_norm").out, "cpu (baseline)");
  assert_contains(FLHOST("plugins").out, "    variant: baseline\n");
  assert_contains(FLHOST("config").out, "VLLM_FL_CPU_ISA");
  json_t *plugins = parse_json(FLHOST("plugins", "--json").out, JSON_ARRAY), *plugin;
  size_t i, n = 0;
  json_array_foreach(plugins, i, plugin) {
    json_t *variants = json_object_get(plugin, "variants");
    bool is_cpu = !strcmp(json_string_value(json_object_get(plugin, "name")), "cpu");
    ck_assert_uint_eq(json_array_size(variants), is_cpu);
    n += is_cpu;
  }
  ck_assert_uint_eq(n, 1);
}
END_TEST

/* In the environment that an engine gives it, which is not the process's. */
static fl_host *create_host(const char *isa) {
  char variable[64], plugins[PATH_MAX + 16], here[PATH_MAX];
  fl_host *host;
  snprintf(variable, sizeof variable, "VLLM_FL_CPU_ISA=%s", isa);
  snprintf(plugins, sizeof plugins, "%s/plugins", realpath(build_dir(), here));
  const fl_host_options options = {.size = sizeof options,
                                   .environment = (const char *const[]){variable, NULL},
                                   .plugin_path = plugins,
                                   .platform = "cpu"};
  ck_assert_msg(!fl_host_create(&options, &host), "%s", fl_error_message());
  return host;
}

START_TEST(each_host_has_its_own) {
  static const char *const wanted[] = {"baseline", "avx2"};
  setting("VLLM_FL_CPU_ISA=avx512");
  for (size_t i = 0; i < 2; i++) {
    fl_host *host = create_host(wanted[i]);
    fl_explanation *explanation;
    ck_assert_msg(!fl_explain(host, "rms_norm", 0, &explanation), "%s", fl_error_message());
    const fl_explained *first = fl_explained_at(explanation, 0);
    if (first && first->variant) /* else the machine has not these instructions */
      ck_assert_str_eq(first->variant, wanted[i]);
    ck_assert(i || (first && first->variant));
    fl_explanation_free(explanation);
    fl_host_destroy(host);
  }
}
END_TEST

/* The operating system gives no registers of tiles to a process whose signals have no room for them. */
START_TEST(a_process_that_gets_no_tiles_has_the_next_best) {
  static char small[8192];
  const stack_t stack = {.ss_sp = small, .ss_size = sizeof small};
  if (sigaltstack(&stack, NULL)) {
    printf("skip: a_process_that_gets_no_tiles_has_the_next_best: signals need more than 8 KiB here\n");
    return;
  }
  fl_host *host = create_host("auto");
  fl_explanation *explanation;
  ck_assert_msg(!fl_explain(host, "rms_norm", 0, &explanation), "%s", fl_error_message());
  const fl_explained *first = fl_explained_at(explanation, 0);
  ck_assert_str_eq(first->impl_id, "default.flagos");
  ck_assert_str_ne(first->variant, "amx");
  fl_explanation_free(explanation);
  fl_host_destroy(host);
}
END_TEST

START_TEST(one_that_the_machine_has_not_is_refused_with_words) {
  setting("VLLM_FL_CPU_ISA=avx512");
  setting("GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F");
  outcome run = FLHOST("plugins");
  assert_contains(run.out, "VLLM_FL_CPU_ISA=avx512: this ");
  assert_contains(run.out, "failed");
}
END_TEST

START_TEST(a_misspelt_one_stops_the_start_with_the_nearest_word) {
  setting("VLLM_FL_CPU_ISA=avx51");
  outcome run = FLHOST("ops");
  ck_assert_int_eq(run.status, 2);
  assert_contains(run.err, "did you mean 'avx512'?");
}
END_TEST

START_TEST(what_runs_is_part_of_the_manifest_and_of_the_identity) {
  char baseline[65];
  setting("VLLM_FL_CPU_ISA=baseline");
  json_t *manifest = parse_json(FLHOST("manifest", "--json").out, JSON_OBJECT);
  snprintf(baseline, sizeof baseline, "%s", json_string_value(json_object_get(manifest, "sha256")));
  setting("VLLM_FL_CPU_ISA=auto");
  manifest = parse_json(FLHOST("manifest", "--json").out, JSON_OBJECT);
  bool same = !strcmp(variant_of_rms_norm(), "baseline");
  ck_assert_int_eq(!strcmp(baseline, json_string_value(json_object_get(manifest, "sha256"))), same);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, end_scenario);
  tcase_add_test(tests, without_its_instructions_a_variant_is_not_chosen);
  tcase_add_test(tests, the_variable_pins_it_and_explain_ops_and_plugins_say_so);
  tcase_add_test(tests, each_host_has_its_own);
  tcase_add_test(tests, a_process_that_gets_no_tiles_has_the_next_best);
  tcase_add_test(tests, one_that_the_machine_has_not_is_refused_with_words);
  tcase_add_test(tests, a_misspelt_one_stops_the_start_with_the_nearest_word);
  tcase_add_test(tests, what_runs_is_part_of_the_manifest_and_of_the_identity);
}

int main(void) {
  return run_suite("cpu_variants", add_tests, 60);
}
