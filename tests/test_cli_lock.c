/* Scenarios through `flhost lock`: an administrator makes a plugins.lock, installs it, and checks it in a script. */
#include "tests/scenario.h"

static const char *made(void) {
  const char *path = scratch("plugins.lock");
  outcome run = FLHOST("lock", "--output", path);
  assert_quiet(run);
  ck_assert_str_eq(run.out, "");
  return path;
}

/* Another version of a plugin is installed. */
static void change_plugin(void) {
  FILE *file = fopen(scratch("plugins/two_vendors.so"), "a");
  ck_assert_ptr_nonnull(file);
  fputc(0, file);
  ck_assert_int_eq(fclose(file), 0);
}

START_TEST(what_it_makes_lets_in_what_is_there) {
  const char *path = made();
  outcome run = FLHOST("lock");
  assert_quiet(run);
  char text[8192] = "";
  FILE *file = fopen(path, "r");
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  ck_assert_str_eq(text, run.out);
  setting("VLLM_FL_PLUGINS_LOCK=%s", path);
  assert_quiet(FLHOST("run", "tests/golden/rms_norm"));
  assert_lacks(FLHOST("plugins").out, "failed");
}
END_TEST

START_TEST(a_plugin_that_differs_is_refused_and_listed_with_the_reason) {
  setting("VLLM_FL_PLUGINS_LOCK=%s", made());
  change_plugin();
  outcome run = FLHOST("plugins", "--json");
  json_t *plugin = entry_of(parse_json(run.out, JSON_ARRAY), "file", scratch("plugins/two_vendors.so"));
  ck_assert_str_eq(text_at(plugin, "status"), "failed");
  assert_contains(text_at(plugin, "reason"), "it is another file than plugins.lock expects: its SHA-256 is ");
}
END_TEST

START_TEST(checking_says_what_differs_by_the_exit_status) {
  static const char *const keys[] = {"file", "lock", "status", "sha256", "expected", "reason", NULL};
  const char *path = made();
  outcome run = FLHOST("lock", "--check", path);
  assert_quiet(run);
  assert_contains(run.out, "listed");
  change_plugin();
  copy_built("tests/plugins/good.so", "plugins");
  run = FLHOST("lock", "--check", path);
  assert_status(run, 1);
  assert_contains(run.err, "flhost: 2 of 3 plugin files are not what the lock lists");
  assert_contains(run.out, "changed");
  assert_contains(run.out, "unlisted");
  run = FLHOST("lock", "--check", "--json", path);
  assert_status(run, 1);
  json_t *list = parse_json(run.out, JSON_ARRAY), *plugin = entry_of(list, "file", scratch("plugins/two_vendors.so"));
  assert_keys(plugin, keys);
  ck_assert_str_eq(text_at(plugin, "status"), "changed");
  ck_assert_str_eq(text_at(plugin, "lock"), path);
  ck_assert_str_ne(text_at(plugin, "sha256"), text_at(plugin, "expected"));
  /* The one in force, when none is named; and it is made anew though it keeps a plugin out. */
  setting("VLLM_FL_PLUGINS_LOCK=%s", path);
  assert_status(FLHOST("lock", "--check"), 1);
  made();
  assert_quiet(FLHOST("lock", "--check"));
}
END_TEST

START_TEST(a_lock_that_cannot_be_written_leaves_the_old_one) {
  const char *path = made();
  assert_refused_with(FLHOST("lock", "--output", scratch("nowhere/plugins.lock")), "No such file or directory");
  outcome run = FLHOST("lock", "--check", path);
  assert_quiet(run);
}
END_TEST

START_TEST(wrong_usage_is_refused) {
  assert_refused_with(FLHOST("lock", "plugins.lock"), "a FILE to compare with needs --check");
  assert_refused_with(FLHOST("lock", "--check", "--output", "x"), "--output excludes --check and --json");
  assert_refused_with(FLHOST("lock", "--check"), "no plugins.lock is in force");
  assert_refused_with(FLHOST("lock", "--check", scratch("nowhere")), "no file '");
}
END_TEST

START_TEST(nothing_to_list_is_no_success) {
  mkdir(scratch("empty"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("empty"));
  outcome run = FLHOST("lock");
  assert_status(run, 1);
  assert_contains(run.err, "flhost: no plugin was found");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, begin_scenario, end_scenario);
  tcase_add_test(tests, what_it_makes_lets_in_what_is_there);
  tcase_add_test(tests, a_plugin_that_differs_is_refused_and_listed_with_the_reason);
  tcase_add_test(tests, checking_says_what_differs_by_the_exit_status);
  tcase_add_test(tests, a_lock_that_cannot_be_written_leaves_the_old_one);
  tcase_add_test(tests, wrong_usage_is_refused);
  tcase_add_test(tests, nothing_to_list_is_no_success);
}

int main(void) {
  return run_suite("cli_lock", add_tests, 60);
}
