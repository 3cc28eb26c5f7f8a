/*
 * The AMD backend. It links nothing of ROCm, so that it loads on every machine and can say what is missing.
 * It brings the platform "rocm"; the ops run on the other backends.
 */
#include "plugins/driver.h"
#include <flhost/plugin.h>

FL_PLUGIN("rocm", FLHOST_VERSION, "AMD", "Apache-2.0", "");

static driver rocm = {.libraries = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}, .nodes = {"/dev/kfd"}};

static bool is_active(void *self, const char **reason) {
  return driver_present(self, reason);
}

/* hipErrorNoDevice (100) is an answer, not a failure. */
static int device_count(void *self) {
  int (*get_count)(int *), count = 0;
  if (!driver_find(self, "hipGetDeviceCount", &get_count))
    return -1;
  int code = get_count(&count);
  return code == 100 ? 0 : code ? -1 : count;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_platform platform = {
      .size = sizeof platform, .device_type = kDLROCM, .is_active = is_active, .device_count = device_count};
  static const fl_component component = {
      .size = sizeof component, .type = "platform", .name = "rocm", .functions = &platform, .self = &rocm};
  return registry->register_component(registry, &component);
}
