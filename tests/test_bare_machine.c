/* A machine that shows little of itself: no /sys, no /proc, as in some containers and sandboxes. */
#include "tests/scenario.h"

#include <sys/wait.h>

/* What a command says, with empty directories in the places of `hidden`, on both streams. NULL: nobody may mount here.
 */
static char *run_without(const char *hidden, const char *command) {
  static char out[1 << 16];
  char *line, directory[4096];
  ck_assert_ptr_nonnull(realpath(build_dir(), directory));
  ck_assert_int_gt(asprintf(&line,
                            "exec 2>&1; unshare -rm sh -c 'for d in %s; do mount -t tmpfs none $d || exit 77; done; "
                            "LD_LIBRARY_PATH=%s %s/flhost %s'",
                            hidden, directory, directory, command),
                   0);
  FILE *pipe = popen(line, "r");
  free(line);
  ck_assert_ptr_nonnull(pipe);
  out[fread(out, 1, sizeof out - 1, pipe)] = 0;
  int status = pclose(pipe);
  if (WIFEXITED(status) && !WEXITSTATUS(status))
    return out;
  ck_assert_msg(strstr(out, "unshare") || strstr(out, "mount"), "%s: %d: %s", command, status, out);
  return NULL;
}

static void begin(void) {
  begin_scenario();
  setenv("VLLM_FL_PLUGIN_PATH", scratch("plugins"), 1);
  copy_built("plugins/cuda.so", "plugins");
}

START_TEST(H1_without_sys_the_bus_is_not_known_and_nobody_else_writes_to_standard_error) {
  begin();
  const char *out = run_without("/sys", "platform");
  if (!out) {
    printf("skip: %s: no mount namespace here\n", "H1_without_sys");
    return;
  }
  assert_contains(out, "the PCI bus cannot be read");
  assert_lacks(out, "on the PCI bus;");
  assert_lacks(out, "hwloc");
  ck_assert(!strncmp(out, "platform:", 9));
}
END_TEST

/* Sanitizers themselves read /proc. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define HIDDEN "/sys"
#else
#define HIDDEN "/sys /proc"
#endif

START_TEST(a_host_starts_without_proc_and_sys) {
  static const char *const commands[] = {"platform", "plugins", "explain relu2", "config", "doctor"};
  begin();
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    const char *out = run_without(HIDDEN, commands[i]);
    if (!out) {
      printf("skip: %s: no mount namespace here\n", "a_host_starts_without_proc_and_sys");
      return;
    }
    assert_lacks(out, "hwloc");
    assert_lacks(out, "flhost: ");
  }
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, NULL, end_scenario);
  tcase_add_test(tests, H1_without_sys_the_bus_is_not_known_and_nobody_else_writes_to_standard_error);
  tcase_add_test(tests, a_host_starts_without_proc_and_sys);
}

int main(void) {
  return run_suite("bare machine", add_tests, 60);
}
