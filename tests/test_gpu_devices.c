/* The GPU plugins on real devices, where this machine has one: what the stand-ins cannot show. */
#include "tests/command.h"

#include <unistd.h>

static const struct {
  const char *name, *impl_id, *nodes[2];
} backends[] = {{"cuda", "vendor.cuda", {"/dev/nvidiactl", "/dev/dxg"}},
                {"cuda", "vendor.cuda.cublaslt", {"/dev/nvidiactl", "/dev/dxg"}},
                {"cuda", "vendor.cuda.cudnn", {"/dev/nvidiactl", "/dev/dxg"}},
                {"rocm", "vendor.rocm", {"/dev/kfd", "/dev/kfd"}}};

enum { N_BACKENDS = sizeof backends / sizeof backends[0] };

static void set_up(void) {
  setting("VLLM_FL_PLUGIN_PATH=%s/plugins", build_dir());
}

START_TEST(O5_kernels_agree_with_the_reference_on_the_device) {
  if (access(backends[_i].nodes[0], F_OK) && access(backends[_i].nodes[1], F_OK)) {
    printf("skip: O5_kernels_agree_with_the_reference_on_the_device: %s: no device node %s\n", backends[_i].impl_id,
           backends[_i].nodes[0]);
    return;
  }
  outcome run = FLHOST("verify", "--device", backends[_i].name, "--impl", backends[_i].impl_id);
  const char *reason = strstr(run.out, "not available: ");
  if (reason) {
    printf("skip: O5_kernels_agree_with_the_reference_on_the_device: %s: %.*s\n", backends[_i].impl_id,
           (int)strcspn(reason, "\n"), reason);
    return;
  }
  ck_assert_msg(run.status == 0, "exit status %d\n%s\n%s", run.status, run.out, run.err);
}
END_TEST

static void add_tests(TCase *tests) {
  tcase_add_checked_fixture(tests, set_up, end_scenario);
  tcase_add_loop_test(tests, O5_kernels_agree_with_the_reference_on_the_device, 0, N_BACKENDS);
}

int main(void) {
  return run_suite("gpu_devices", add_tests, 600);
}
