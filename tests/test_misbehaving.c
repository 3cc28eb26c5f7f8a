/*
 * Plugins that misbehave, as real files: whatever they do, the command says what became of each, with an exit status
 * that no script takes for success. (What `flhost verify` finds in results alone is in test_verify.c, too.)
 */
#include "tests/scenario.h"

#include <sys/stat.h>
#include <unistd.h>

static void set_up(void) {
  mkdir(scratch("platforms"), 0755);
  mkdir(scratch("plugins"), 0755);
  setting("VLLM_FL_PLUGIN_PATH=%s", scratch("plugins"));
  setting("VLLM_FL_CONFIG_DIR=%s", scratch("platforms"));
  setting("VLLM_FL_PLATFORM=cpu");
}

static void use(const char *name) {
  char *plugin = NULL;
  ck_assert_int_gt(asprintf(&plugin, "tests/plugins/%s.so", name), 0);
  copy_built(plugin, "plugins");
  free(plugin);
}

/* ---------------------------------------------------------------------------------------------- ended while it loads
 */

static const char *const ending[] = {"misbehaving_constructor_exits", "misbehaving_constructor_ends_thread",
                                     "misbehaving_entry_exits", "misbehaving_entry_ends_thread"};
enum { N_ENDING = sizeof ending / sizeof ending[0] };

START_TEST(a_plugin_that_ends_the_process_does_not_make_a_command_succeed) {
  static const char *const commands[][4] = {
      {"verify", "misbehaving"}, {"doctor"}, {"explain", "misbehaving"}, {"ops"}, {"bench", "misbehaving"}};
  use(ending[_i]);
  for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
    outcome run = run_flhost(commands[i]);
    assert_status(run, 2);
    assert_contains(run.err, "ended from within");
    assert_contains(run.err, "the plugin that was opened last is /");
    assert_contains(run.err, ending[_i]);
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_loop_test(tests, a_plugin_that_ends_the_process_does_not_make_a_command_succeed, 0, N_ENDING);
}

int main(void) {
  return run_suite("misbehaving", add_tests, 120);
}
