/* What the command says of communicators between devices, through stand-ins for drivers and libraries, or without. */
#include "tests/scenario.h"

#include <limits.h>
#include <stdlib.h>

/* One with its library's stand-in, and what the reason says where there is no device. */
static const struct {
  const char *name, *native, *device_type, *without;
} rows[] = {{"flagcx", "all but barrier", "cuda", "no device node /dev/nvidiactl"},
            {"hccl", "all but reduce, gather", "ext_dev", "no device node /dev/davinci_manager"}};

static void set_up(void) {
  begin_scenario();
  copy_built("plugins/flagcx.so", "plugins");
  copy_built("plugins/hccl.so", "plugins");
}

static void use_stand_ins(void) {
  char build[PATH_MAX];
  ck_assert_ptr_nonnull(realpath(build_dir(), build));
  setting("FLHOST_CUDA_DRIVER=%s/tests/drivers/standin_cuda.so", build);
  setting("FLAGCX_PATH=%s/tests/drivers/flagcx", build);
  setting("FLHOST_ASCEND_NODE=/dev/null");
  setting("ASCEND_HOME_PATH=%s/tests/drivers/ascend", build);
  setting("HCCL_SO_PATH=%s/tests/drivers/hccl/libhccl.so", build);
}

/* The line of a table that begins with the name. */
static const char *line_of(const char *table, const char *name) {
  static char line[512];
  char beginning[32];
  snprintf(beginning, sizeof beginning, "\n%s ", name);
  const char *at = strstr(table, beginning);
  ck_assert_msg(at != NULL, "no line '%s' in\n%s", name, table);
  snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 1, "\n"), at + 1);
  return line;
}

START_TEST(both_commands_show_what_is_there) {
  static const char *const commands[][3] = {{"platform", NULL}, {"explain", "communicator", NULL}};
  use_stand_ins();
  outcome run = run_flhost(commands[_i]);
  assert_status(run, 0);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *line = line_of(run.out, rows[i].name);
    assert_contains(line, rows[i].device_type);
    assert_contains(line, " yes ");
    assert_contains(line, "chosen");
    assert_contains(line, rows[i].native);
  }
}
END_TEST

START_TEST(what_is_missing_is_said) {
  outcome run = FLHOST("explain", "communicator");
  assert_status(run, 0);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const char *line = line_of(run.out, rows[i].name);
    assert_contains(line, " no ");
    if (!strstr(line, rows[i].without)) /* a machine with such a device */
      assert_contains(line, " is not there");
  }
}
END_TEST

START_TEST(an_older_library_is_said) {
  char build[PATH_MAX];
  use_stand_ins();
  ck_assert_ptr_nonnull(realpath(build_dir(), build));
  setting("FLAGCX_PATH=%s/tests/drivers/flagcx_old", build);
  assert_contains(line_of(FLHOST("explain", "communicator").out, "flagcx"), "FlagCX is older than 0.13.0");
}
END_TEST

START_TEST(the_path_is_a_setting) {
  setting("FLAGCX_PATH=/opt/FlagCX");
  outcome run = FLHOST("config");
  assert_status(run, 0);
  assert_contains(line_of(run.out, "FLAGCX_PATH"), "/opt/FlagCX");
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_loop_test(tests, both_commands_show_what_is_there, 0, 2);
  tcase_add_test(tests, what_is_missing_is_said);
  tcase_add_test(tests, an_older_library_is_said);
  tcase_add_test(tests, the_path_is_a_setting);
}

int main(void) {
  return run_suite("communicator_command", add_tests, 60);
}
