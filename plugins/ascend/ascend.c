/*
 * The Huawei backend. It links nothing of CANN, so that it loads on every machine and can say what is missing.
 * It brings the platform "ascend"; the ops run on the other backends.
 */
#include "plugins/driver.h"
#include <flhost/plugin.h>

FL_PLUGIN("ascend", FLHOST_VERSION, "Huawei", "Apache-2.0", "");

static driver ascend = {.libraries = {"libascendcl.so", "libacl_rt.so"}, .nodes = {"/dev/davinci_manager"}};

static bool is_active(void *self, const char **reason) {
  return driver_present(self, reason);
}

/* aclInit may have been called by the engine before (100002); aclFinalize is up to whoever did. */
static int device_count(void *self) {
  int (*init)(const char *), (*get_count)(uint32_t *);
  uint32_t count = 0;
  if (!driver_find(self, "aclInit", &init) || !driver_find(self, "aclrtGetDeviceCount", &get_count))
    return -1;
  int code = init(NULL);
  return (code && code != 100002) || get_count(&count) ? -1 : (int)count;
}

fl_status register_builtins(fl_registry *registry) {
  static const fl_platform platform = {
      .size = sizeof platform, .device_type = kDLExtDev, .is_active = is_active, .device_count = device_count};
  static const fl_component component = {
      .size = sizeof component, .type = "platform", .name = "ascend", .functions = &platform, .self = &ascend};
  return registry->register_component(registry, &component);
}
