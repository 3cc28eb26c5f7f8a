/* Guarded mode and canary mode against plugins that misbehave, through the command. */
#include "cli/run/safetensors.h"
#include "tests/scenario.h"

#include <glob.h>

enum { ROWS = 2, COLUMNS = 64 };

static const char *call_file; /* "misbehaving" of two rows, with its right result */

static void write_call(void) {
  char error[SAFETENSORS_ERROR_MAX];
  int64_t shape[] = {ROWS, COLUMNS};
  safetensors_entry entries[2];
  safetensors made = {.metadata = json_pack("{s:s}", "op", "misbehaving"), .entries = entries, .n = 2};
  ck_assert(safetensors_entry_create(&entries[0], "x", (DLDataType){kDLFloat, 32, 1}, 2, shape));
  ck_assert(safetensors_entry_create(&entries[1], "out.out", (DLDataType){kDLFloat, 32, 1}, 2, shape));
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    float x = (float)(i % 7 - 3);
    ((float *)entries[0].tensor.data)[i] = x;
    ((float *)entries[1].tensor.data)[i] = x < 0 ? 0 : x;
  }
  call_file = scratch("call.safetensors");
  ck_assert_msg(safetensors_write(call_file, &made, error), "%s", error);
  for (size_t i = 0; i < made.n; i++)
    safetensors_entry_free(&entries[i]);
  json_decref(made.metadata);
}

static void set_up(void) {
  mkdir(scratch("platforms"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_CONFIG_DIR=%s", scratch("platforms"));
  setting("VLLM_FL_PLATFORM=cpu");
  setting("VLLM_FL_EVIDENCE=%s", scratch("evidence"));
  write_call();
}

static void load(const char *plugin) {
  char file[80];
  snprintf(file, sizeof file, "tests/plugins/misbehaving_%s.so", plugin);
  copy_built(file, "plugins");
}

static const struct {
  const char *plugin, *setting, *words;
  bool touches; /* valgrind would report it */
} found[] = {
    {"writes_behind", "VLLM_FL_GUARD=1",
     "guarded mode: result 'out' (float32[2, 64]) was touched 1 bytes behind its end", true},
    {"writes_far_behind", "VLLM_FL_GUARD=1",
     "guarded mode: result 'out' (float32[2, 64]) was touched 321 bytes behind its end", true},
    {"writes_far_before", "VLLM_FL_GUARD=1",
     "guarded mode: result 'out' (float32[2, 64]) was touched 320 bytes before its beginning", false},
    {"reads_behind", "VLLM_FL_GUARD=1",
     "guarded mode: argument 'x' (float32[2, 64]) was touched 1 bytes behind its end", true},
    {"reads_before", "VLLM_FL_GUARD=1",
     "guarded mode: argument 'x' (float32[2, 64]) was touched 4 bytes before its beginning", true},
    {"writes_input", "VLLM_FL_GUARD=1",
     "guarded mode: argument 'x' (float32[2, 64]) is an input and was written at byte 256", true},
    {"skips_row", "VLLM_FL_GUARD=1",
     "guarded mode: result 'out' (float32[2, 64]): 64 of 128 elements are left unwritten, the first at [1, 0]", false},
    {"skips_row", "VLLM_FL_CANARY=2", "canary mode: 'out' is not what 'reference.right' gives", false},
    {"wrong_nan", "VLLM_FL_CANARY=2",
     "canary mode: 'out' is not what 'reference.right' gives: 1 of 128 elements differ, worst at 127: nan", false},
};
enum { N_FOUND = sizeof found / sizeof found[0] };

START_TEST(who_misbehaves_is_found_named_and_replaced) {
  const char *preloaded = getenv("LD_PRELOAD");
  if (found[_i].touches && preloaded && strstr(preloaded, "vgpreload")) {
    printf("skip: who_misbehaves_is_found_named_and_replaced: %s: valgrind reports each touch of a guard page\n",
           found[_i].plugin);
    return;
  }
  load(found[_i].plugin);
  setting("%s", found[_i].setting);
  outcome run = FLHOST("run", "--json", call_file);
  assert_status(run, 0);
  assert_contains(run.err, found[_i].words);
  json_t *reports = parse_json(run.out, JSON_ARRAY);
  ck_assert_str_eq(text_at(json_array_get(reports, 0), "impl_id"), "vendor.other");
}
END_TEST

START_TEST(who_is_in_order_is_left_alone) {
  load("nothing");
  setting("VLLM_FL_GUARD=1");
  setting("VLLM_FL_CANARY=3");
  outcome run = FLHOST("run", "--json", call_file);
  assert_status(run, 0);
  ck_assert_str_eq(run.err, "");
  ck_assert_str_eq(text_at(json_array_get(parse_json(run.out, JSON_ARRAY), 0), "impl_id"), "vendor.wrong");
}
END_TEST

START_TEST(evidence_repeats_the_fault_and_agrees_with_the_reference) {
  glob_t files;
  load("wrong_nan");
  setting("VLLM_FL_CANARY=1");
  assert_status(FLHOST("run", call_file), 0);
  ck_assert_int_eq(glob(scratch("evidence/misbehaving-vendor.wrong-*.safetensors"), 0, NULL, &files), 0);
  ck_assert_uint_eq(files.gl_pathc, 1);
  const char *evidence = scratch("evidence/%s", strrchr(files.gl_pathv[0], '/') + 1);
  globfree(&files);
  setting("VLLM_FL_CANARY=0");
  outcome run = FLHOST("run", evidence);
  assert_status(run, 1);
  assert_contains(run.err, "'out.out': 1 of 128 elements differ, worst at 127: nan");
  setting("VLLM_FL_PREFER=reference");
  assert_status(FLHOST("run", evidence), 0);
}
END_TEST

START_TEST(the_modes_count_beside_a_policy_file_and_say_where_they_come_from) {
  setting("VLLM_FL_CONFIG=%s", scratch_file("policy.yaml", "prefer: vendor\n"));
  setting("VLLM_FL_GUARD=1");
  setting("VLLM_FL_CANARY=7");
  json_t *settings = json_object_get(parse_json(FLHOST("config", "--json").out, JSON_OBJECT), "settings");
  const json_t *guard = json_object_get(settings, "VLLM_FL_GUARD"),
               *canary = json_object_get(settings, "VLLM_FL_CANARY");
  ck_assert(json_is_true(json_object_get(guard, "value")));
  ck_assert_str_eq(text_at(guard, "origin"), "VLLM_FL_GUARD");
  ck_assert_int_eq(json_integer_value(json_object_get(canary, "value")), 7);
  ck_assert_str_eq(text_at(canary, "origin"), "VLLM_FL_CANARY");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_loop_test(tests, who_misbehaves_is_found_named_and_replaced, 0, N_FOUND);
  tcase_add_test(tests, who_is_in_order_is_left_alone);
  tcase_add_test(tests, evidence_repeats_the_fault_and_agrees_with_the_reference);
  tcase_add_test(tests, the_modes_count_beside_a_policy_file_and_say_where_they_come_from);
}

int main(void) {
  return run_suite("guard_plugins", add_tests, 120);
}
