/*
 * The NVIDIA backend. It links nothing of CUDA, so that it loads on every machine and can say what is missing.
 * It brings the platform "cuda"; the ops run on the other backends.
 */
#include "plugins/driver.h"
#include <flhost/plugin.h>

FL_PLUGIN("cuda", FLHOST_VERSION, "NVIDIA", "Apache-2.0", "");

static driver cuda = {.libraries = {"libcuda.so.1"}, .nodes = {"/dev/nvidiactl", "/dev/dxg"}};

static bool is_active(void *self, const char **reason) {
  return driver_present(self, reason);
}

/* CUDA_ERROR_NO_DEVICE (100) is an answer, not a failure. */
static int device_count(void *self) {
  int (*init)(unsigned), (*get_count)(int *), count = 0;
  if (!driver_find(self, "cuInit", &init) || !driver_find(self, "cuDeviceGetCount", &get_count))
    return -1;
  int code = init(0);
  if (code == 100)
    return 0;
  return code || get_count(&count) ? -1 : count;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_platform platform = {
      .size = sizeof platform, .device_type = kDLCUDA, .is_active = is_active, .device_count = device_count};
  static const fl_component component = {
      .size = sizeof component, .type = "platform", .name = "cuda", .functions = &platform, .self = &cuda};
  return registry->register_component(registry, &component);
}
